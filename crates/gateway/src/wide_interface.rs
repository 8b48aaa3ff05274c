//! A host with a narrow interface in, a host whose packets go through a wide one out; and back.
//!
//! Nothing that the host has is taken away. A table of its own leads over the wide interface, and a rule has it asked first; the
//! narrow interface keeps its addresses and routes. So a process that dies leaves a host that works: the wide interface goes with
//! it, its table is empty, and the old routes serve again. All that stays is the rule, which [`undo`] takes away.

use crate::config::Config;
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
    /// Speaks with the host in whose namespace it was opened, whatever thread ends this.
    netlink: Netlink,
}

impl Moved {
    /// Has the host send over the interface `wide` what it would send over `narrow`, as far as it is configured so.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub fn start(config: &Config, wide: &str, narrow: &str) -> io::Result<Moved> {
        let mut moved = Moved { wide: wide.to_owned(), netlink: Netlink::open()? };
        moved.renew(config, narrow)?;
        match moved.netlink.add_rule(RULE, TABLE) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome?,
        }
        Ok(moved)
    }

    /// Leads routes over the interface, which may have come anew. Behind a TAP there is one station, and nobody who would
    /// answer for it: it asks for no address.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn renew(&mut self, config: &Config, narrow: &str) -> io::Result<()> {
        self.netlink.set_address_resolution(&self.wide, Switch::Off)?;
        self.netlink.set_up(&self.wide)?;
        self.fill(config, narrow)
    }

    /// Writes the routes of the wide interface's table.
    fn fill(&mut self, config: &Config, narrow: &str) -> io::Result<()> {
        let netlink = &mut self.netlink;
        let wide = netlink.interface(&self.wide)?.index;
        let narrow = netlink.interface(narrow)?.index;
        let addresses = netlink.addresses()?;
        let own = |version: IpAddr| {
            let ours = addresses.iter().filter(|address| address.index == narrow);
            let mut alike =
                ours.map(|address| address.prefix.address).filter(|own| own.is_ipv4() == version.is_ipv4());
            alike.find(|own| !is_link_local(*own))
        };
        let named = &config.wide_interface.prefixes;
        let mut destinations: Vec<Prefix> =
            named.iter().map(|prefix| Prefix::new(prefix.address(), prefix.bit_count())).collect();
        if named.is_empty() {
            let of_narrow = |route: &Route| route.index == Some(narrow) && route.kind == RouteKind::Unicast;
            destinations
                .extend(netlink.routes()?.iter().filter(|route| of_narrow(route)).map(|route| route.destination));
            destinations.retain(|destination| !is_link_local(destination.address));
        }
        for destination in destinations {
            let source = own(destination.address);
            let over = Route { table: TABLE, source, ..Route::on(destination, wide) };
            match netlink.add_route(&over) {
                // Two routes of the host that differ in their metric alone.
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
        let _ = take_back(&mut self.netlink);
    }
}

/// Takes away what a process that died has left: the rule. Says whether there was one.
///
/// # Errors
/// What the kernel refuses.
pub fn undo() -> io::Result<bool> {
    take_back(&mut Netlink::open()?)
}

fn take_back(netlink: &mut Netlink) -> io::Result<bool> {
    let there = netlink.rules()?.iter().any(|rule| rule.priority == RULE && rule.table == Some(TABLE));
    if there {
        netlink.remove_rule(RULE, TABLE)?;
    }
    Ok(there)
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
