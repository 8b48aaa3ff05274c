//! Requests about IP addresses -> the addresses of interfaces, listed or changed.
//!
//! The methods of [`Netlink`] for IP addresses are here. Those for routes and neighbours are in modules of their
//! own.

use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::fmt;
use std::io;
use std::net::IpAddr;

/// An address prefix, or an address with the prefix length of its link: `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// An address that starts with the prefix.
    pub address: IpAddr,
    /// Prefix length, in bits.
    pub bit_count: u8,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Index of the interface.
    pub index: u32,
    /// The address, and the prefix of its link.
    pub prefix: Prefix,
    /// State of the address.
    pub state: AddressState,
}

/// State of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Usable as a source and a destination.
    Usable,
    /// Not usable yet: the kernel checks whether another host uses the address (RFC 4862 section 5.4).
    Tentative,
    /// Not usable: another host uses the address.
    Duplicate,
}

impl Prefix {
    /// Makes a prefix of the first `bit_count` bits of `address`.
    ///
    /// # Panics
    /// The address has fewer than `bit_count` bits.
    pub fn new(address: impl Into<IpAddr>, bit_count: u8) -> Prefix {
        let address = address.into();
        assert!(bit_count <= bits(address), "{address} has no {bit_count} bits");
        Prefix { address, bit_count }
    }

    /// Makes a prefix that contains only this address.
    pub fn host(address: impl Into<IpAddr>) -> Prefix {
        let address = address.into();
        Prefix { address, bit_count: bits(address) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bit_count)
    }
}

impl Netlink {
    /// Returns all addresses of all interfaces.
    ///
    /// # Errors
    /// The kernel cannot list the addresses.
    pub fn addresses(&mut self) -> io::Result<Vec<InterfaceAddress>> {
        let answers =
            self.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()), "cannot list addresses")?;
        let read = |answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => InterfaceAddress::read(&message),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(read).collect())
    }

    /// Adds an address to an interface. The kernel also adds a route to the address's prefix on this link.
    /// Duplicate address detection is skipped. The kernel uses an IPv6 address only after a delay. The delay is
    /// over when [`Netlink::route_to`] reports the address as local.
    ///
    /// # Errors
    /// The address exists (`AlreadyExists`), the interface does not (`NotFound`), or privileges are missing.
    pub fn add_address(&mut self, name: &str, prefix: Prefix) -> io::Result<()> {
        let mut message = self.address(name, prefix)?;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        if let IpAddr::V4(address) = prefix.address
            && prefix.bit_count < 31
        {
            let hosts = u32::MAX >> prefix.bit_count;
            message.attributes.push(AddressAttribute::Broadcast((address.to_bits() | hosts).into()));
        }
        let what = format!("{name}: cannot add address {prefix}");
        self.order(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Removes an address from an interface.
    ///
    /// # Errors
    /// The address or the interface does not exist (`NotFound`), or privileges are missing.
    pub fn remove_address(&mut self, name: &str, prefix: Prefix) -> io::Result<()> {
        let message = self.address(name, prefix)?;
        self.order(RouteNetlinkMessage::DelAddress(message), 0, format!("{name}: cannot remove address {prefix}"))
    }

    fn address(&mut self, name: &str, prefix: Prefix) -> io::Result<AddressMessage> {
        let mut message = AddressMessage::default();
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.bit_count;
        message.header.index = self.index(name)?;
        message.attributes =
            vec![AddressAttribute::Local(prefix.address), AddressAttribute::Address(prefix.address)];
        Ok(message)
    }
}

impl InterfaceAddress {
    /// Returns the address in a message; `None` for a family other than IP.
    pub(crate) fn read(message: &AddressMessage) -> Option<InterfaceAddress> {
        let header = &message.header;
        let mut state = u32::from(header.flags.bits());
        let mut local = None;
        let mut shared = None;
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(address) => local = Some(*address),
                AddressAttribute::Address(address) => shared = Some(*address),
                AddressAttribute::Flags(flags) => state = flags.bits(),
                _ => {}
            }
        }
        let state = AddressFlags::from_bits_retain(state);
        Some(InterfaceAddress {
            index: header.index,
            prefix: Prefix { address: local.or(shared)?, bit_count: header.prefix_len },
            state: match () {
                () if state.contains(AddressFlags::Dadfailed) => AddressState::Duplicate,
                () if state.contains(AddressFlags::Tentative) => AddressState::Tentative,
                () => AddressState::Usable,
            },
        })
    }
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
