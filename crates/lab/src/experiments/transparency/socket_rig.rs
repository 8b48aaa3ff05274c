//! A role and a middle -> two hosts with ordinary sockets and the middle between them.
//!
//! Raw frames do not show the reaction of a host's kernel. Sockets on hosts show it.

use super::rig::{BRIDGE, BRIDGE_FILTERS, NARROW_MTU, ROUTER_SETTINGS, WIDE_MTU, gateway_config};
use super::sockets::{Notes, SocketKind, Talk};
use super::{LinkKind, Middle, PortKind, Role};
use crate::net::{Host, HostLink, Offloading, cable};
use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::routes::Route;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Two hosts and the middle. A wide interface is on the wide host itself.
pub(super) struct SocketRig {
    role: Role,
    hosts: [Host; 2],
    middle: Host,
    names: [&'static str; 2],
    service: Option<Service>,
}

/// Index of the wide host.
const WIDE: usize = 0;
const NARROW: usize = 1;

impl SocketRig {
    pub(super) fn new(role: Role, links: LinkKind, port: PortKind, middle: Middle) -> io::Result<SocketRig> {
        let [wide, between, narrow] = [Host::new("wide")?, Host::new("middle")?, Host::new("narrow")?];
        for host in [&wide, &between, &narrow] {
            for (name, value) in ROUTER_SETTINGS.into_iter().chain(HOST_SETTINGS) {
                let forwards = role == Role::Router && std::ptr::eq(host, &between);
                let is_forwarding = name.ends_with("forward") || name.ends_with("forwarding");
                host.space().set_sysctl(name, if is_forwarding && !forwards { "0" } else { value })?;
            }
        }
        if role == Role::Border {
            // `rig.rs` gives the reason.
            for name in BRIDGE_FILTERS {
                let _ = between.space().set_sysctl(name, "0");
            }
        }
        let offloading = if links == LinkKind::Plain { Offloading::Off } else { Offloading::On };
        let end = |host, interface, mtu, addresses| HostLink { host, interface, mtu, addresses };
        let of = |side, host| [Prefix::new(v4(role, side, 0, host), 16), Prefix::new(v6(role, side, 0, host), 64)];
        let own = [of(WIDE, 1), of(NARROW, 2), of(WIDE, 254), of(NARROW, 254)];
        let to_narrow = if role == Role::WideInterface { &wide } else { &between };
        let narrow_addresses = match role {
            Role::Border => &[][..],
            Role::Router => &own[3],
            Role::WideInterface => &own[0],
        };
        cable(
            [end(to_narrow, TO_NARROW, NARROW_MTU, narrow_addresses), end(&narrow, "narrow", NARROW_MTU, &own[1])],
            offloading,
        )?;
        if role != Role::WideInterface {
            let wide_addresses = if role == Role::Router { &own[2][..] } else { &[] };
            cable(
                [end(&wide, "wide", WIDE_MTU, &own[0]), end(&between, TO_WIDE, WIDE_MTU, wide_addresses)],
                offloading,
            )?;
        }
        if role == Role::Router {
            let v4_all = Prefix::new(Ipv4Addr::UNSPECIFIED, 0);
            let v6_all = Prefix::new(Ipv6Addr::UNSPECIFIED, 0);
            for (host, side) in [(&wide, WIDE), (&narrow, NARROW)] {
                host.tell(|netlink| {
                    netlink.add_route(&Route::via(v4_all, v4(role, side, 0, 254)))?;
                    netlink.add_route(&Route::via(v6_all, v6(role, side, 0, 254)))
                })?;
            }
        }
        let names = [if role == Role::WideInterface { TO_NARROW } else { "wide" }, "narrow"];
        let mut rig = SocketRig { role, hosts: [wide, narrow], middle: between, names, service: None };
        match (middle, role) {
            (Middle::Kernel, Role::Border) => rig.middle.tell(|netlink| {
                netlink.make_bridge(BRIDGE)?;
                netlink.set_bridge(TO_WIDE, Some(BRIDGE))?;
                netlink.set_bridge(TO_NARROW, Some(BRIDGE))?;
                netlink.set_up(BRIDGE)
            })?,
            (Middle::Kernel, _) => {}
            _ => {
                let config =
                    Config::parse(&gateway_config(role, middle, port, [TO_WIDE, TO_NARROW]), "sockets.toml")
                        .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
                let host = if role == Role::WideInterface { &rig.hosts[WIDE] } else { &rig.middle };
                rig.service = Some(host.space().enter(|| Service::start(config))?);
            }
        }
        rig.wait_until_forwarding()?;
        Ok(rig)
    }

    /// Runs the exchange of a kind, for both IP versions in both directions. Returns the observations. Each kind
    /// has addresses of its own, so that no path state is shared.
    pub(super) fn play(&self, kind: &SocketKind, number: u8) -> io::Result<Notes> {
        let mut notes = Notes::default();
        for (direction, [from, to]) in [[NARROW, WIDE], [WIDE, NARROW]].into_iter().enumerate() {
            for address in [v4 as fn(Role, usize, u8, u8) -> IpAddr, v6] {
                let own = |side: usize| address(self.role, side, number, (2 * direction + side) as u8 + 10);
                for side in [from, to] {
                    let prefix = Prefix::host(own(side));
                    self.hosts[side].tell(|netlink| netlink.add_address(self.names[side], prefix))?;
                }
                let index =
                    |side: usize| self.hosts[side].tell(|netlink| Ok(netlink.interface(self.names[side])?.index));
                let talk = Talk {
                    from: &self.hosts[from],
                    to: &self.hosts[to],
                    source: own(from),
                    target: own(to),
                    indices: [index(from)?, index(to)?],
                    number,
                };
                if !kind.takes(&talk) {
                    continue;
                }
                // Both hosts resolve their neighbours before the observations start.
                let _ = talk.is_refused();
                let version = if talk.source.is_ipv4() { "IPv4" } else { "IPv6" };
                let direction = if to == WIDE { "to wide" } else { "to narrow" };
                notes.begin(&format!("{version} {direction}"));
                if let Err(why) = (kind.run)(&talk, &mut notes) {
                    notes.say("error", why);
                }
            }
        }
        Ok(notes)
    }

    pub(super) fn end(self) {
        if let Some(service) = self.service {
            service.stop();
        }
    }

    fn wait_until_forwarding(&self) -> io::Result<()> {
        let begun = Instant::now();
        for (from, to) in [(WIDE, NARROW), (NARROW, WIDE)] {
            for address in [v4(self.role, to, 0, to as u8 + 1), v6(self.role, to, 0, to as u8 + 1)] {
                let target = SocketAddr::new(address, 9);
                let knock = || self.hosts[from].space().enter(|| TcpStream::connect_timeout(&target, TRY));
                while !matches!(knock(), Err(why) if why.kind() == io::ErrorKind::ConnectionRefused) {
                    if begun.elapsed() > SETTLE_MAX {
                        let text = format!("{address}: no packet passes the middle host");
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the IPv4 address of a host for a kind. The two sides are in different networks only with a router.
fn v4(role: Role, side: usize, kind: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, network(role, side), kind, host).into()
}

fn v6(role: Role, side: usize, kind: u8, host: u8) -> IpAddr {
    Ipv6Addr::new(0xFD00 + u16::from(network(role, side)), 0, 0, 0, 0, 0, kind.into(), host.into()).into()
}

fn network(role: Role, side: usize) -> u8 {
    if role == Role::Router { side as u8 + 1 } else { 3 }
}

const TO_WIDE: &str = "to-wide";
const TO_NARROW: &str = "to-narrow";
const HOST_SETTINGS: [(&str, &str); 3] = [
    ("ipv4/ping_group_range", "0 2147483647"),
    ("ipv4/icmp_msgs_per_sec", "100000"),
    ("ipv6/conf/all/accept_dad", "0"),
];
const TRY: Duration = Duration::from_millis(100);
const SETTLE_MAX: Duration = Duration::from_secs(8);
