//! A host with a narrow interface in, a host whose packets go through a wide one out; and back.
//!
//! Nothing that the host has is taken away. A table of its own leads over the wide interface, and a rule has it asked first; the
//! narrow interface keeps its addresses and routes. So a process that dies leaves a host that works: the wide interface goes with
//! it, its table is empty, and the old routes serve again. All that stays is the rule, which [`undo`] takes away.

use crate::config::Config;
use packet::Medium;
use port::addresses::Prefix;
use port::features::Switch;
use port::netlink::Netlink;
use port::routes::{Route, RouteKind};
use std::io;
use std::net::IpAddr;

/// What was changed in the host, until it is dropped.
#[derive(Debug)]
pub struct Moved {
    wide: String,
}

impl Moved {
    /// Has the host send over the interface `wide` what it would send over `narrow`, as far as it is configured so.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub fn start(config: &Config, wide: &str, narrow: &str) -> io::Result<Moved> {
        let mut netlink = Netlink::open()?;
        set_up(&mut netlink, wide)?;
        let moved = Moved { wide: wide.to_owned() };
        moved.fill(&mut netlink, config, narrow)?;
        match netlink.add_rule(RULE, TABLE) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome?,
        }
        Ok(moved)
    }

    /// Does the same where an interface went and came again.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn renew(&self, config: &Config, narrow: &str) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        set_up(&mut netlink, &self.wide)?;
        self.fill(&mut netlink, config, narrow)
    }

    /// Writes the routes of the wide interface's table.
    fn fill(&self, netlink: &mut Netlink, config: &Config, narrow: &str) -> io::Result<()> {
        let wide = netlink.interface(&self.wide)?.index;
        let narrow = netlink.interface(narrow)?.index;
        let addresses = netlink.addresses()?;
        let own = |version: IpAddr| {
            let ours = addresses.iter().filter(|address| address.index == narrow);
            let mut alike =
                ours.map(|address| address.prefix.address).filter(|own| own.is_ipv4() == version.is_ipv4());
            alike.find(|own| !is_link_local(*own))
        };
        for route in netlink.routes()? {
            let moves = route.index == Some(narrow) && route.kind == RouteKind::Unicast;
            if !moves || is_link_local(route.destination.address) || !wanted(config, route.destination) {
                continue;
            }
            let source = route.source.or_else(|| own(route.destination.address));
            let over = Route {
                table: TABLE,
                index: Some(wide),
                gateway: None,
                source,
                mtu: None,
                ..Route::on(route.destination, wide)
            };
            let over = Route { metric: route.metric, ..over };
            match netlink.add_route(&over) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        // The interface takes its routes with it; where the rule is gone already, nothing is left to do.
        let _ = undo();
    }
}

/// Everybody behind the device is one station, the gateway: nobody there answers who asks for link addresses.
fn set_up(netlink: &mut Netlink, wide: &str) -> io::Result<()> {
    if netlink.interface(wide)?.medium == Some(Medium::Ethernet) {
        netlink.set_address_resolution(wide, Switch::Off)?;
    }
    netlink.set_up(wide)
}

/// Takes away what a process that died has left: the rule. Says whether there was one.
///
/// # Errors
/// What the kernel refuses.
pub fn undo() -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let there = netlink.rules()?.iter().any(|rule| rule.priority == RULE && rule.table == Some(TABLE));
    if there {
        netlink.remove_rule(RULE, TABLE)?;
    }
    Ok(there)
}

/// Is all of this destination among what the configuration names, or does it name nothing?
fn wanted(config: &Config, destination: Prefix) -> bool {
    let named = &config.wide_interface.prefixes;
    named.is_empty() || named.iter().any(|prefix| prefix.contains(destination.address.into()))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// The wide interface's routing table, and the place of the rule that has it asked: before the main one (32766).
const TABLE: u32 = 65_535;
const RULE: u32 = 9_000;
