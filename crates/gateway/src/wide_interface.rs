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
        match moved.netlink.add_rule(RULE, table(wide)) {
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
        let mut over: Vec<Route> =
            named.iter().map(|prefix| Route::on(Prefix::new(prefix.address(), prefix.bit_count()), wide)).collect();
        if named.is_empty() {
            let mut routes = netlink.routes()?;
            routes.retain(|route| route.index != Some(wide) && !is_link_local(route.destination.address));
            // What the host sends elsewhere, it goes on to send there.
            over.extend(routes.iter().map(|route| match route.kind {
                RouteKind::Unicast if route.index == Some(narrow) => Route::on(route.destination, wide),
                _ => Route { kind: RouteKind::Thrown, index: None, ..Route::on(route.destination, wide) },
            }));
        }
        for route in over {
            let source = own(route.destination.address).filter(|_| route.kind == RouteKind::Unicast);
            match netlink.add_route(&Route { table: table(&self.wide), source, ..route }) {
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
        // The interface takes its routes with it; what is gone already needs no taking back.
        let _ = take_back(&mut self.netlink, table(&self.wide));
    }
}

/// Takes away what processes that died have left: rules and tables of wide interfaces that are gone. Says whether there was
/// anything.
///
/// # Errors
/// What the kernel refuses.
pub fn undo() -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let rules = netlink.rules()?.into_iter().filter(|rule| rule.priority == RULE);
    let mut tables: Vec<u32> = rules.filter_map(|rule| rule.table).collect();
    tables.dedup();
    let mut was_there = false;
    for table in tables.into_iter().filter(|table| (TABLES..TABLES + TABLE_COUNT).contains(table)) {
        let lives = netlink.routes_of(table)?.iter().any(|route| route.kind == RouteKind::Unicast);
        if !lives {
            take_back(&mut netlink, table)?;
            was_there = true;
        }
    }
    Ok(was_there)
}

fn take_back(netlink: &mut Netlink, table: u32) -> io::Result<()> {
    if netlink.rules()?.iter().any(|rule| rule.priority == RULE && rule.table == Some(table)) {
        netlink.remove_rule(RULE, table)?;
    }
    for route in netlink.routes_of(table)? {
        netlink.remove_route(&route)?;
    }
    Ok(())
}

/// The routing table of a wide interface, by its name: so it is the same when the device is made anew.
fn table(name: &str) -> u32 {
    // FNV-1a, folded.
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    TABLES + (hash ^ hash >> 16) % TABLE_COUNT
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// Tables of wide interfaces: far from those that people number.
const TABLES: u32 = 0x0057_0000;
const TABLE_COUNT: u32 = 1 << 16;
/// Where the rules stand that have them asked: before the main table's (32766).
const RULE: u32 = 9_000;
