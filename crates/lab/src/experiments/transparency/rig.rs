//! A role and kinds of frames -> the frames that arrived on both sides.
//!
//! The hosts of both sides have no IP addresses, so their kernels answer nothing. The middle host is between the
//! two hosts.

use super::frames::{SentFrame, Side, icmp};
use super::{LinkKind, Middle, PortKind, Role};
use crate::net::{Host, HostLink, Offloading, cable};
use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::frames::{FrameSocket, SeenFrame};
use linux::routes::{Route, RouteKind};
use packet::Sum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Frames that arrived on the wide and on the narrow side, in order.
pub(super) type Arrived = [Vec<SeenFrame>; 2];

/// Two hosts whose kernels answer nothing, and a host between them.
pub(super) struct Rig {
    role: Role,
    middle: Host,
    sockets: [FrameSocket; 2],
    names: [String; 4],
    _ends: [Host; 2],
}

/// The forwarding system that runs in the middle.
pub(super) enum StartedMiddle {
    Kernel,
    Gateway(Box<Service>),
}

impl Rig {
    pub(super) fn new(role: Role, links: LinkKind) -> io::Result<Rig> {
        let [wide, middle, narrow] = [Host::new("wide")?, Host::new("middle")?, Host::new("narrow")?];
        let tail = format!("{:04x}", std::process::id() as u16 ^ (fastrand::u16(..) << 8));
        let names = ["w", "mw", "mn", "n"].map(|front| format!("{front}{tail}"));
        for host in [&wide, &narrow] {
            host.space().set_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        }
        let has_addresses = role != Role::Border;
        if !has_addresses {
            middle.space().set_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        } else {
            for (name, value) in ROUTER_SETTINGS {
                let is_forwarding = name.ends_with("forward") || name.ends_with("forwarding");
                let value = if is_forwarding && role == Role::WideInterface { "0" } else { value };
                middle.space().set_sysctl(name, value)?;
            }
        }
        if role == Role::Border {
            // The machine's firewall rules for bridges could change frames, so bridges bypass the rules here.
            // Without such rules, a machine may lack the setting.
            for name in BRIDGE_FILTERS {
                let _ = middle.space().set_sysctl(name, "0");
            }
        }
        let of = |side: u8| {
            let v6 = Ipv6Addr::new(0xFD00 + u16::from(side), 0, 0, 0, 0, 0, 0xFFFF, 0xFFFE);
            [Prefix::new(Ipv4Addr::new(10, side, 255, 254), 16), Prefix::new(v6, 64)]
        };
        let addresses = [of(1), of(2)];
        let own = |index: usize| if has_addresses { &addresses[index][..] } else { &[] };
        let offloading = if links == LinkKind::Plain { Offloading::Off } else { Offloading::On };
        let end = |host, interface, mtu, addresses| HostLink { host, interface, mtu, addresses };
        let [wide_name, to_wide, to_narrow, narrow_name] = names.each_ref().map(String::as_str);
        cable([end(&wide, wide_name, WIDE_MTU, &[]), end(&middle, to_wide, WIDE_MTU, own(0))], offloading)?;
        cable(
            [end(&middle, to_narrow, NARROW_MTU, own(1)), end(&narrow, narrow_name, NARROW_MTU, &[])],
            offloading,
        )?;
        if role == Role::WideInterface {
            // The host answers for all addresses of the wide end.
            middle.tell(|netlink| {
                netlink.set_up("lo")?;
                let lo = netlink.interface("lo")?.index;
                let of_wide = of(1).map(|own| Prefix::new(own.address, own.bit_count));
                of_wide.into_iter().try_for_each(|prefix| {
                    let masked = masked(prefix);
                    let all = Route { table: LOCAL, kind: RouteKind::Local, ..Route::on(masked, lo) };
                    netlink.add_route(&all)
                })
            })?;
        }
        if has_addresses {
            // The ends do not answer, so the router's neighbour entries must not expire.
            for name in [to_wide, to_narrow] {
                for version in ["ipv4", "ipv6"] {
                    middle
                        .space()
                        .set_sysctl(&format!("{version}/neigh/{name}/base_reachable_time_ms"), "7200000")?;
                }
            }
        }
        let sockets = [
            wide.space().enter(|| FrameSocket::open(wide_name))?,
            narrow.space().enter(|| FrameSocket::open(narrow_name))?,
        ];
        Ok(Rig { role, middle, sockets, names, _ends: [wide, narrow] })
    }

    /// Returns the MAC addresses of the middle toward the wide and the narrow side; `None` for a border.
    pub(super) fn routers(&self) -> io::Result<Option<[[u8; 6]; 2]>> {
        if self.role == Role::Border {
            return Ok(None);
        }
        self.middle.tell(|netlink| {
            for (name, mac) in [(&self.names[1], ROUTER_MACS[0]), (&self.names[2], ROUTER_MACS[1])] {
                netlink.set_mac(name, mac)?;
            }
            Ok(Some(ROUTER_MACS))
        })
    }

    /// Gives the middle host a neighbour entry, because the hosts do not answer.
    pub(super) fn introduce(&self, side: Side, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        self.middle.tell(|netlink| {
            let index = netlink.interface(&self.names[1 + side as usize])?.index;
            netlink.add_neighbour(index, address, mac)
        })
    }

    pub(super) fn start(&self, middle: Middle, port: PortKind) -> io::Result<StartedMiddle> {
        let [_, to_wide, to_narrow, _] = self.names.each_ref().map(String::as_str);
        if middle == Middle::Kernel {
            if self.role == Role::Border {
                self.middle.tell(|netlink| {
                    netlink.make_bridge(BRIDGE)?;
                    netlink.set_bridge(to_wide, Some(BRIDGE))?;
                    netlink.set_bridge(to_narrow, Some(BRIDGE))?;
                    netlink.set_up(BRIDGE)
                })?;
            }
            return Ok(StartedMiddle::Kernel);
        }
        let text = gateway_config(self.role, middle, port, [to_wide, to_narrow]);
        let config = Config::parse(&text, "transparency.toml")
            .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
        let service = self.middle.space().enter(|| Service::start(config))?;
        Ok(StartedMiddle::Gateway(Box::new(service)))
    }

    pub(super) fn clear(&self, started: StartedMiddle) -> io::Result<()> {
        match started {
            StartedMiddle::Kernel if self.role == Role::Border => {
                self.middle.tell(|netlink| netlink.remove(BRIDGE))
            }
            StartedMiddle::Kernel => Ok(()),
            StartedMiddle::Gateway(service) => {
                service.stop();
                Ok(())
            }
        }
    }

    /// Waits until frames are forwarded in both directions.
    pub(super) fn wait_until_forwarding(&mut self, probes: &[SentFrame]) -> io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < SETTLE_MAX {
            let arrived = self.play(probes, [1, 1])?;
            let [to_wide, to_narrow] = arrived.each_ref().map(|frames| !frames.is_empty());
            if to_narrow && (to_wide || self.role == Role::WideInterface) {
                // Frames of an earlier try may still be in flight.
                while self.play(&[], [0, 0])?.iter().any(|frames| !frames.is_empty()) {}
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no frame passes the middle host"))
    }

    /// Sends frames. Receives until the wanted number has arrived on each side, and then until none arrives for
    /// [`QUIET`].
    pub(super) fn play(&mut self, sent: &[SentFrame], wanted: [usize; 2]) -> io::Result<Arrived> {
        for SentFrame { from, bytes } in sent {
            // A link rejects frames that exceed its MTU, with every middle.
            match self.sockets[*from as usize].send(bytes) {
                Err(why) if why.raw_os_error() != Some(EMSGSIZE) => {
                    return Err(io::Error::new(
                        why.kind(),
                        format!("{} end: cannot send a frame of {} bytes: {why}", from.name(), bytes.len()),
                    ));
                }
                _ => {}
            }
        }
        let mut arrived = Arrived::default();
        let (begun, mut last) = (Instant::now(), Instant::now());
        loop {
            let mut came = false;
            for (socket, frames) in self.sockets.iter_mut().zip(&mut arrived) {
                while let Some(frame) = socket.receive()? {
                    if let Some(answer) = answer(&frame.bytes) {
                        socket.send(&answer)?;
                        came = true;
                    }
                    if !is_of_middle(&frame) {
                        frames.push(frame);
                        came = true;
                    }
                }
            }
            let is_enough = arrived.iter().zip(wanted).all(|(frames, wanted)| frames.len() >= wanted);
            let timeout = if is_enough { QUIET } else { TIMEOUT };
            if came {
                last = Instant::now();
            } else if last.elapsed() >= timeout || begun.elapsed() > KIND_MAX {
                return Ok(arrived);
            }
            let mut fds: Vec<_> = self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
        }
    }
}

/// Returns configuration text for a gateway between two interfaces. A wide interface uses only the second
/// interface.
pub(super) fn gateway_config(
    role: Role,
    middle: Middle,
    port: PortKind,
    [to_wide, to_narrow]: [&str; 2],
) -> String {
    let port = port.name();
    let bypass = match (middle, role) {
        (Middle::Bypassed, Role::Border) => {
            "bypass = [\"coalesce\", \"segment\", \"fragment\", \"mss\", \"lease\"]\n"
        }
        (Middle::Bypassed, Role::Router) => "bypass = [\"join\"]\n",
        (Middle::Bypassed, Role::WideInterface) => "bypass = [\"reassemble\"]\n",
        _ => "",
    };
    let join = match (role, middle) {
        (Role::Router, Middle::Merging) => "fragment-policy = \"merge\"\n",
        _ => "",
    };
    let wide = match role {
        Role::WideInterface => "mtu = 65535\n".to_owned(),
        _ => format!("port = \"{port}:{to_wide}\"\nmtu = {WIDE_MTU}\n"),
    };
    let role = role.config();
    format!(
        "role = \"{role}\"\n{bypass}[wide]\n{wide}{join}\
         [narrow]\nport = \"{port}:{to_narrow}\"\nmtu = {NARROW_MTU}\n"
    )
}

/// Returns a host's answer to a router's neighbour request. The host's MAC address follows from its IP addresses.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let router: [u8; 6] = question.get(6..12)?.try_into().ok()?;
    let side = ROUTER_MACS.iter().position(|mac| *mac == router)? as u8 + 1;
    match question.get(12..14)? {
        [8, 6] if question.get(20..22)? == [0, 1] => {
            let (asker, asked) = (question.get(28..32)?, question.get(38..42)?);
            let mac = [2, 0x77, side, asked[2], asked[3], 1];
            let is_ours = asked[1] == side;
            let body = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, asked, &router, asker].concat();
            is_ours.then(|| [&router[..], &mac, &[8, 6], &body].concat())
        }
        [0x86, 0xDD] if question.get(20)? == &58 && question.get(54)? == &135 => {
            let (asker, asked) = (question.get(22..38)?, question.get(62..78)?);
            let mac = [2, 0x77, side, asked[13], asked[15], 1];
            let rest = [&[0x60, 0, 0, 0][..], asked, &[2, 1], &mac].concat();
            let sum = Sum::of(asked) + Sum::of(asker) + Sum::word(58);
            let body = icmp(136, 0, &rest, Some(sum));
            let len = (body.len() as u16).to_be_bytes();
            let header = [&[0x60, 0, 0, 0, len[0], len[1], 58, 255][..], asked, asker].concat();
            (asked[..2] == [0xFD, side]).then(|| [&router[..], &mac, &[0x86, 0xDD], &header, &body].concat())
        }
        _ => None,
    }
}

/// Whether the middle's kernel itself sent the frame: from a bridge's own address, or as a router's neighbour
/// request.
fn is_of_middle(frame: &SeenFrame) -> bool {
    let bytes = &frame.bytes[..];
    // Neighbour discovery, and multicast listener reports behind a hop-by-hop header.
    let is_discovery = bytes.get(12..14) == Some(&[0x86, 0xDD])
        && bytes.get(22..24) == Some(&[0xFE, 0x80])
        && matches!((bytes.get(20), bytes.get(54)), (Some(0), _) | (Some(58), Some(133..=143)));
    let is_arp = bytes.get(12..14) == Some(&[8, 6]);
    match bytes.get(6..12) {
        Some(mac) if ROUTER_MACS.iter().any(|router| router == mac) => is_arp || is_discovery,
        Some(mac) => mac[..2] != [2, 0x77],
        None => false,
    }
}

/// Returns the prefix with its host bits cleared.
fn masked(prefix: Prefix) -> Prefix {
    match prefix.address {
        IpAddr::V4(v4) => {
            Prefix::new(Ipv4Addr::from_bits(v4.to_bits() & u32::MAX << (32 - prefix.bit_count)), prefix.bit_count)
        }
        IpAddr::V6(v6) => {
            Prefix::new(Ipv6Addr::from_bits(v6.to_bits() & u128::MAX << (128 - prefix.bit_count)), prefix.bit_count)
        }
    }
}

/// Number of the kernel's local routing table (RT_TABLE_LOCAL).
const LOCAL: u32 = 255;
pub(super) const WIDE_MTU: u32 = 9_000;
pub(super) const NARROW_MTU: u32 = 1_500;
pub(super) const BRIDGE: &str = "bridge";
const ROUTER_MACS: [[u8; 6]; 2] = [[2, 0x77, 9, 0, 0, 1], [2, 0x77, 9, 0, 0, 2]];
pub(super) const BRIDGE_FILTERS: [&str; 3] =
    ["bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables", "bridge/bridge-nf-call-arptables"];
pub(super) const ROUTER_SETTINGS: [(&str, &str); 9] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/ip_forward", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
];
/// Time without a frame that ends reception when all wanted frames have arrived.
const QUIET: Duration = Duration::from_millis(40);
/// Time without a frame that ends reception while wanted frames are missing.
const TIMEOUT: Duration = Duration::from_millis(250);
const KIND_MAX: Duration = Duration::from_secs(5);
const SETTLE_MAX: Duration = Duration::from_secs(8);
const EMSGSIZE: i32 = 90;
