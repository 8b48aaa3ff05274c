//! An interface's name -> its counters and its state, which can be changed.
//!
//! The methods of [`Netlink`] for interfaces are here. Offload features need ioctl, and are in the module
//! `features`.

use crate::features::Toggle;
use crate::namespace::Namespace;
use crate::netlink::{Netlink, malformed};
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, Stats64,
};
use packet::LinkType;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// The state of an interface when it was queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index of the interface in its namespace.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// MTU, in bytes.
    pub mtu: u32,
    /// Hardware address; `None` if it does not have six bytes.
    pub mac: Option<[u8; 6]>,
    /// Link type of the interface's frames; `None` if it is unsupported.
    pub link_type: Option<LinkType>,
    /// Whether the interface is administratively up.
    pub is_up: bool,
    /// Whether the interface is up and has a carrier.
    pub has_carrier: bool,
    /// The driver's name of the link kind, such as `veth` or `tun`; `None` for hardware.
    pub kind: Option<String>,
    /// Counters of packets and bytes.
    pub counters: Counters,
}

/// Counters of an interface since the interface was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received packets.
    pub received: Tally,
    /// Sent packets.
    pub sent: Tally,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets; a GSO packet counts as one.
    pub packet_count: u64,
    /// Bytes, link headers included.
    pub byte_count: u64,
    /// Packets dropped because a queue was full or there was no receiver.
    pub drop_count: u64,
    /// Packets that were not received or sent because of an error, such as a wrong frame checksum.
    pub error_count: u64,
}

/// A hardware address, displayed as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Netlink {
    /// Returns the interface of this name.
    ///
    /// # Errors
    /// There is no such interface (`NotFound`).
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        self.one_interface(named(name), name)
    }

    /// Returns the interface of this index.
    ///
    /// # Errors
    /// There is no such interface (`NotFound`).
    pub fn interface_at(&mut self, index: u32) -> io::Result<Interface> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.one_interface(message, &format!("interface {index}"))
    }

    /// Returns all interfaces.
    ///
    /// # Errors
    /// The kernel cannot list the interfaces.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let answers = self.list(RouteNetlinkMessage::GetLink(LinkMessage::default()), "cannot list interfaces")?;
        Ok(answers.into_iter().filter_map(link).map(|message| Interface::read(&message)).collect())
    }

    /// Creates a veth pair: one end `name` in the namespace of this connection, and the other end `peer` in
    /// `peer_namespace`.
    ///
    /// # Errors
    /// An interface of this name exists (`AlreadyExists`), or privileges are missing.
    pub fn make_veth(&mut self, name: &str, peer: &str, peer_namespace: &Namespace) -> io::Result<()> {
        let mut far = named(peer);
        far.attributes.push(LinkAttribute::NetNsFd(peer_namespace.as_fd().as_raw_fd()));
        let mut near = named(name);
        near.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
        ]));
        let what = format!("{name}: cannot create a veth pair with {peer}");
        self.order(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Removes an interface. The other end of a veth pair is removed too.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`), or it cannot be removed.
    pub fn remove(&mut self, name: &str) -> io::Result<()> {
        self.order(RouteNetlinkMessage::DelLink(named(name)), 0, format!("{name}: cannot remove it"))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`), or privileges are missing.
    pub fn set_up(&mut self, name: &str) -> io::Result<()> {
        self.set_flag(name, LinkFlags::Up, Toggle::On, "cannot set the interface up")
    }

    /// Sets an interface down. The kernel then removes its IPv6 addresses and its routes.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_down(&mut self, name: &str) -> io::Result<()> {
        self.set_flag(name, LinkFlags::Up, Toggle::Off, "cannot set the interface down")
    }

    /// Switches promiscuous mode of an interface on or off.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_promiscuous(&mut self, name: &str, switch: Toggle) -> io::Result<()> {
        self.set_flag(name, LinkFlags::Promisc, switch, &format!("cannot set promiscuous mode {switch}"))
    }

    /// Switches address resolution on an interface on or off. If it is off, the kernel sends no ARP requests and no
    /// neighbour solicitations, and treats all neighbours as one station.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_address_resolution(&mut self, name: &str, switch: Toggle) -> io::Result<()> {
        let no_arp = match switch {
            Toggle::On => Toggle::Off,
            Toggle::Off => Toggle::On,
        };
        self.set_flag(name, LinkFlags::Noarp, no_arp, &format!("cannot set address resolution {switch}"))
    }

    /// Sets the MTU of an interface, in bytes.
    ///
    /// # Errors
    /// The interface does not support this MTU, or one of the errors of [`Netlink::set_up`].
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        let what = format!("{name}: cannot set MTU {mtu}");
        self.set(name, LinkAttribute::Mtu(mtu), what)
    }

    /// Limits the length of packets that GRO builds on an interface, in bytes; 1 disables coalescing.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.19, or one of the errors of [`Netlink::set_up`].
    pub fn set_gro_max_size(&mut self, name: &str, len: u32) -> io::Result<()> {
        let what = format!("{name}: cannot limit GRO to packets of {len} bytes");
        self.set(name, LinkAttribute::GroMaxSize(len), what)
    }

    /// Sets the hardware address of an interface.
    ///
    /// # Errors
    /// The interface does not support this address, or one of the errors of [`Netlink::set_up`].
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let what = format!("{name}: cannot set hardware address {}", Mac(mac));
        self.set(name, LinkAttribute::Address(mac.to_vec()), what)
    }

    pub(crate) fn index(&mut self, name: &str) -> io::Result<u32> {
        Ok(self.interface(name)?.index)
    }

    fn one_interface(&mut self, message: LinkMessage, name: &str) -> io::Result<Interface> {
        let answer = self.ask(RouteNetlinkMessage::GetLink(message), name)?;
        let message = link(answer).ok_or_else(|| malformed(name))?;
        Ok(Interface::read(&message))
    }

    /// Makes the host ignore routes over an interface while it has no carrier (IPv4).
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn ignore_routes_without_carrier(&mut self, name: &str) -> io::Result<()> {
        // struct nlattr with one number: length, kind, value.
        let setting =
            [&8_u16.to_ne_bytes()[..], &IGNORE_WITHOUT_CARRIER.to_ne_bytes(), &1_u32.to_ne_bytes()].concat();
        let settings = AfSpecInet::Other(DefaultNla::new(INET_CONF | NESTED, setting));
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![settings])]);
        self.set(name, attribute, format!("{name}: cannot set ignore_routes_with_linkdown"))
    }

    /// Stops the kernel from generating IPv6 addresses for an interface.
    ///
    /// # Errors
    /// The kernel does not support IPv6, or one of the errors of [`Netlink::set_up`].
    pub fn make_no_address(&mut self, name: &str) -> io::Result<()> {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        self.set(name, attribute, format!("{name}: cannot disable automatic IPv6 addresses"))
    }

    pub(crate) fn set(&mut self, name: &str, attribute: LinkAttribute, what: String) -> io::Result<()> {
        let mut message = named(name);
        message.attributes.push(attribute);
        self.order(RouteNetlinkMessage::SetLink(message), 0, what)
    }

    fn set_flag(&mut self, name: &str, flag: LinkFlags, switch: Toggle, what: &str) -> io::Result<()> {
        let mut message = named(name);
        message.header.change_mask = flag;
        message.header.flags = if switch == Toggle::On { flag } else { LinkFlags::empty() };
        self.order(RouteNetlinkMessage::SetLink(message), 0, format!("{name}: {what}"))
    }
}

impl Interface {
    pub(crate) fn read(message: &LinkMessage) -> Interface {
        let flags = message.header.flags;
        // A GRE tunnel to one host has that host as its broadcast address. Other GRE tunnels have link headers with
        // the destination of their packets.
        let is_gre = matches!(message.header.link_layer_type.into(), libc::ARPHRD_IPGRE | IP6GRE);
        let mut interface = Interface {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            mac: None,
            link_type: link_type_of(message.header.link_layer_type.into()),
            is_up: flags.contains(LinkFlags::Up),
            has_carrier: flags.contains(LinkFlags::LowerUp),
            kind: None,
            counters: Counters::default(),
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Broadcast(peer) if is_gre && is_one_host(peer) => {
                    interface.link_type = Some(LinkType::Ip);
                }
                LinkAttribute::Address(mac) => interface.mac = mac.as_slice().try_into().ok(),
                LinkAttribute::LinkInfo(parts) => interface.kind = parts.iter().find_map(kind),
                LinkAttribute::Stats64(stats) => interface.counters = Counters::read(stats),
                _ => {}
            }
        }
        interface
    }
}

impl Counters {
    fn read(stats: &Stats64) -> Counters {
        Counters {
            received: Tally {
                packet_count: stats.rx_packets,
                byte_count: stats.rx_bytes,
                drop_count: stats.rx_dropped,
                error_count: stats.rx_errors,
            },
            sent: Tally {
                packet_count: stats.tx_packets,
                byte_count: stats.tx_bytes,
                drop_count: stats.tx_dropped,
                error_count: stats.tx_errors,
            },
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, last] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

pub(crate) fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn link(answer: RouteNetlinkMessage) -> Option<LinkMessage> {
    match answer {
        RouteNetlinkMessage::NewLink(message) => Some(message),
        _ => None,
    }
}

fn kind(part: &LinkInfo) -> Option<String> {
    match part {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

/// Whether this is the address of a single host: neither a group address nor all zeros.
fn is_one_host(address: &[u8]) -> bool {
    let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from));
    address.is_ok_and(|address| !address.is_unspecified() && !address.is_multicast())
}

fn link_type_of(hardware: u16) -> Option<LinkType> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | RAWIP => Some(LinkType::Ip),
        libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => Some(LinkType::Ip),
        _ => None,
    }
}

/// The hardware types ARPHRD_RAWIP and ARPHRD_IP6GRE (linux/if_arp.h).
const RAWIP: u16 = 519;
const IP6GRE: u16 = 823;

/// The attribute IFLA_INET_CONF, and the flag NLA_F_NESTED.
const INET_CONF: u16 = 1;
const NESTED: u16 = 1 << 15;
/// The setting IPV4_DEVCONF_IGNORE_ROUTES_WITH_LINKDOWN (linux/ip.h).
const IGNORE_WITHOUT_CARRIER: u16 = 29;
