//! A role in, what belongs to it beside the engine out: how packets get link headers, and what the host gives up meanwhile.

use crate::config::{Config, Role, SideConfig};
use crate::links::Links;
use crate::next_hops::NextHops;
use crate::wide_interface::Moved;
use packet::Medium;
use port::intercept::Intercept;
use port::netlink::Netlink;
use port::shortcut::Shortcut;
use port::{Address, Port, Takes};
use std::fs;
use std::io;

/// What the host has given up, until this is dropped.
#[derive(Debug, Default)]
pub struct Seized {
    moved: Option<Moved>,
    /// Each with the number of its interface; none where the host can do without.
    intercepts: Vec<(u32, Option<Intercept>)>,
    /// Between the interfaces with these numbers, for what is no longer than this.
    shortcut: Option<(([u32; 2], u16), Shortcut)>,
}

impl Seized {
    /// Has the kernel of this thread's namespace leave to the gateway what is the gateway's: to be called once both ports
    /// are open, so that nothing is lost between.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub fn start(config: &Config) -> io::Result<Seized> {
        let mut seized = Seized::default();
        seized.renew(config)?;
        Ok(seized)
    }

    /// Does the same where interfaces went and came again; where none did, it changes nothing.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn renew(&mut self, config: &Config) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let sides = match config.role {
            Role::WideInterface => vec![(&config.narrow, &config.wide)],
            Role::Border | Role::Router => vec![(&config.wide, &config.narrow), (&config.narrow, &config.wide)],
        };
        for (side, other) in sides {
            // An interface that is gone comes in again with its port.
            let index = match packet_socket_on(side, &mut netlink) {
                Ok(Some(index)) => index,
                Ok(None) => continue,
                Err(_) if !self.intercepts.is_empty() => continue,
                Err(error) => return Err(error),
            };
            if self.intercepts.iter().all(|(known, _)| *known != index) {
                let intercept = match config.role {
                    Role::Border => allowed(Intercept::all(index), &mut netlink, side)?,
                    Role::WideInterface => Some(Intercept::ip(index)?),
                    Role::Router => {
                        let to = netlink.interface(&interface(other)?)?.index;
                        Some(Intercept::forwarded(index, to)?)
                    }
                };
                self.intercepts.push((index, intercept));
            }
        }
        self.intercepts.retain(|(index, _)| netlink.interface_at(*index).is_ok());
        if config.role == Role::WideInterface {
            let (wide, narrow) = (interface(&config.wide)?, interface(&config.narrow)?);
            self.shorten(config, &mut netlink, [&wide, &narrow])?;
            match &mut self.moved {
                Some(moved) => moved.renew(config, &narrow)?,
                None => self.moved = Some(Moved::start(config, &wide, &narrow)?),
            }
        }
        Ok(())
    }

    /// Goes on by another configuration with the same ports: what fits is another length then. Where nothing was given up, it
    /// changes nothing.
    ///
    /// # Errors
    /// What the kernel refuses; all that the host sends is the gateway's then.
    pub fn suit(&mut self, config: &Config) -> io::Result<()> {
        if self.shortcut.is_some() { self.renew(config) } else { Ok(()) }
    }

    /// Has the kernel send what fits.
    fn shorten(&mut self, config: &Config, netlink: &mut Netlink, names: [&str; 2]) -> io::Result<()> {
        let [wide, narrow] = [netlink.interface(names[0])?, netlink.interface(names[1])?];
        let wanted = ([wide.index, narrow.index], config.narrow.mtu);
        if self.shortcut.as_ref().is_none_or(|(known, _)| *known != wanted) {
            // It would send what is too long by now, or by an interface that is gone.
            self.shortcut = None;
            let medium = wide.medium.unwrap_or(Medium::Ip);
            self.shortcut = Some((wanted, Shortcut::open(wide.index, medium, narrow.index, config.narrow.mtu)?));
        }
        Ok(())
    }
}

/// What a port on the host's own interface takes from the kernel: what the gateway changes. The rest is the kernel's, unless
/// it would drop what comes in by another interface than answers leave by (RFC 3704 section 2.2).
pub fn takes(config: &Config) -> Takes {
    match (config.role, interface(&config.narrow)) {
        (Role::WideInterface, Ok(narrow)) if may_differ(&narrow) => {
            if config.wide.coalesce.is_some() {
                Takes::Joinable
            } else {
                Takes::Fragments
            }
        }
        (Role::WideInterface, _) => Takes::Unicast,
        (Role::Border | Role::Router, _) => Takes::All,
    }
}

/// May packets come in by this interface and their answers leave by another?
fn may_differ(interface: &str) -> bool {
    let of = |name| {
        let said = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        said.ok().and_then(|said| said.trim().parse::<u8>().ok())
    };
    // The stricter of both holds, and 2 asks only that some way leads back.
    of("all").zip(of(interface)).is_some_and(|(all, own)| all.max(own) != STRICT)
}

/// How packets get their link headers at the wide end and at the narrow one; in the namespace of this thread, with no right
/// but to read.
///
/// # Errors
/// An interface is not there, or is of another kind.
pub fn links(config: &Config, wide: &dyn Port) -> io::Result<[Links; 2]> {
    Ok(match config.role {
        Role::Border => [Links::Bridge, Links::Bridge],
        Role::WideInterface => {
            [own(&config.wide, wide)?, Links::NextHops(Box::new(NextHops::new(&interface(&config.narrow)?)?))]
        }
        Role::Router => {
            let hops = |side| Ok::<_, io::Error>(Links::Router(Box::new(NextHops::new(&interface(side)?)?)));
            [hops(&config.wide)?, hops(&config.narrow)?]
        }
    })
}

/// The host behind a device of ours takes bare packets, or frames for its own link address.
fn own(side: &SideConfig, port: &dyn Port) -> io::Result<Links> {
    if port.medium() == Medium::Ip {
        return Ok(Links::Bare);
    }
    let name = interface(side)?;
    let mac = Netlink::open()?.interface(&name)?.mac;
    let mac = mac.ok_or_else(|| io::Error::other(format!("{name}: it has no link address")))?;
    Ok(Links::Station(mac))
}

/// The name of a side's interface.
fn interface(side: &SideConfig) -> io::Result<String> {
    let address: Address =
        side.port.parse().map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(match address {
        Address::Tun(name) | Address::Tap(name) | Address::Packet(name) | Address::Xdp(name) => name,
    })
}

/// The index of the interface that a side has a packet socket on; what comes in by another port, the kernel never sees.
fn packet_socket_on(side: &SideConfig, netlink: &mut Netlink) -> io::Result<Option<u32>> {
    match side.port.parse() {
        Ok(Address::Packet(name)) => Ok(Some(netlink.interface(&name)?.index)),
        _ => Ok(None),
    }
}

/// A bump in the wire does without where the right is missing and the interface has no address: the kernel then drops what is
/// not for its own station.
fn allowed(
    intercept: io::Result<Intercept>,
    netlink: &mut Netlink,
    side: &SideConfig,
) -> io::Result<Option<Intercept>> {
    let name = interface(side)?;
    match intercept {
        Ok(intercept) => Ok(Some(intercept)),
        Err(error) => {
            let index = netlink.interface(&name)?.index;
            let usable = |address: &port::addresses::Address| {
                let ours = address.prefix.address;
                let is_link_local = matches!(ours, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
                address.index == index && !is_link_local
            };
            if netlink.addresses()?.iter().any(usable) { Err(error) } else { Ok(None) }
        }
    }
}

/// As rp_filter says that answers have to leave by the same interface.
const STRICT: u8 = 1;
