//! A host's routes over one interface -> the same routes with a larger MTU, for packets that the host itself sends.
//!
//! Without a larger MTU, the host's own TCP would send short segments. A separate table contains a copy of each
//! route, with the wide MTU. A rule makes the host's own packets use this table just before the main table. So
//! other rules of the host come first, forwarded packets keep the link's MTU, and the main table stays unchanged.
//!
//! These routes are not copied, so packets to their destinations use the main table:
//!
//! - routes over other interfaces, or with several next hops,
//! - routes with attributes that this module does not copy (traffic class, `onlink`, `encap`),
//! - routes with an MTU below the link's, which an administrator has set.
//!
//! A destination whose connections lose data may get a shorter MTU. Then it has a copy of its own, of the most
//! specific route that contains it.
//!
//! After a process was killed, the copies end by themselves: IPv4 copies with a device of the process, IPv6 copies
//! after ten seconds. The rule remains, and so do entries that lead back to the main table. Neither has an effect,
//! and [`undo`] removes them.

use config::Config;
use linux::addresses::Prefix;
use linux::netlink::Netlink;
use linux::routes::{Route, RouteKind, RouteLifetime, Rule};
use port::{Tap, helper};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The copied routes and the rule. Dropping this value removes them.
#[derive(Debug)]
pub(crate) struct WideRoutes {
    narrow: String,
    table: u32,
    netlink: Netlink,
    /// The device whose removal ends the IPv4 copies, and the device's index.
    anchor: (Tap, u32),
    wanted: Vec<Route>,
    /// Time at which the routes were last checked.
    set_at: Instant,
}

impl WideRoutes {
    /// Sets the routes for the interface `narrow`, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel refuses an operation. Nothing stays changed.
    pub fn start(narrow: &str) -> io::Result<WideRoutes> {
        let table = table(narrow);
        let anchor = helper::anchor_device(&tag(table))?;
        let mut netlink = Netlink::open()?;
        let index = netlink.interface(anchor.name())?.index;
        let (narrow, anchor, set_at) = (narrow.to_owned(), (anchor, index), Instant::now());
        Ok(WideRoutes { narrow, table, netlink, anchor, wanted: Vec::new(), set_at })
    }

    /// Returns the number of the table with the copies.
    pub fn table(&self) -> u32 {
        self.table
    }

    /// Adapts the copies to the host's routes, the configuration, and the MTUs of single destinations in bytes.
    /// Returns a warning about a route that could not be copied; `None` if all were copied.
    ///
    /// # Errors
    /// The kernel refuses an operation.
    pub fn refresh(&mut self, config: &Config, route_mtus: &[(IpAddr, u16)]) -> io::Result<Option<String>> {
        self.wanted = match self.netlink.interface(&self.narrow) {
            Ok(narrow) => {
                let mut wanted = self.wanted(config, narrow.index)?;
                route_mtus.iter().for_each(|(to, mtu)| shorten(&mut wanted, *to, (*mtu).into()));
                wanted
            }
            // The interface does not exist, so there are no routes to copy.
            Err(_) => Vec::new(),
        };
        self.set()
    }

    /// Extends the lifetime of the IPv6 copies, and restores removed copies. Does nothing within [`REFRESH`] of the
    /// last check.
    ///
    /// # Errors
    /// The kernel refuses an operation.
    pub fn extend(&mut self) -> io::Result<Option<String>> {
        if self.set_at.elapsed() < REFRESH { Ok(None) } else { self.set() }
    }

    /// Sets the missing copies and the rule.
    fn set(&mut self) -> io::Result<Option<String>> {
        self.set_at = Instant::now();
        let standing = self.netlink.routes_of(self.table)?;
        let anchor = Some(self.anchor.1);
        let places: HashSet<_> = self.wanted.iter().map(|route| (place(route), route.kind as u8)).collect();
        for route in standing.iter().filter(|route| route.index != anchor) {
            if !places.contains(&(place(route), route.kind as u8)) {
                ignore_gone(self.netlink.remove_route(route))?;
            }
        }
        let stands: HashSet<_> = standing.iter().map(facts).collect();
        let anchored: HashSet<_> = standing.iter().filter(|route| route.index == anchor).map(place).collect();
        let mut refused = None;
        // Entries that lead back are set first, so that no packet uses a less specific copy by mistake.
        let (backs, copies): (Vec<_>, Vec<_>) =
            self.wanted.iter().partition(|route| route.kind != RouteKind::Unicast);
        for route in backs.into_iter().chain(copies) {
            // Replacing a route would make sockets forget the learned path MTU.
            let outcome = match route.ends {
                Some(RouteLifetime::After(_)) if stands.contains(&facts(route)) => self.netlink.extend_route(route),
                Some(RouteLifetime::With(_))
                    if stands.contains(&facts(route)) && anchored.contains(&place(route)) =>
                {
                    Ok(())
                }
                None if stands.contains(&facts(route)) => Ok(()),
                _ => self.netlink.replace_route(route),
            };
            if let Err(error) = outcome {
                let back = back(self.table, route.destination, route.metric);
                self.netlink.replace_route(&back)?;
                refused.get_or_insert_with(|| {
                    format!("{}: cannot change the route to the wide interface: {error}", route.destination)
                });
            }
        }
        self.have_it_asked()?;
        Ok(refused)
    }

    /// Adds the rule if it is missing.
    fn have_it_asked(&mut self) -> io::Result<()> {
        let rules = self.netlink.rules()?;
        let is_ours = |rule: &&Rule| rule.priority == RULE && rule.table == Some(self.table);
        if rules.iter().filter(is_ours).count() < VERSION_COUNT {
            ignore_gone(self.netlink.remove_rule(RULE, self.table))?;
            self.netlink.add_rule(RULE, self.table)?;
        }
        Ok(())
    }

    /// Returns the entries of the table: a copy of each route over the narrow interface, and for each other route
    /// an entry that leads back to the main table.
    fn wanted(&mut self, config: &Config, narrow: u32) -> io::Result<Vec<Route>> {
        let mut routes = self.netlink.routes()?;
        routes.retain(|route| !is_of_the_link(route.destination.address));
        let mut counts = HashMap::new();
        routes.iter().for_each(|route| *counts.entry(place(route)).or_insert(0) += 1);
        let is_ours = |route: &Route| {
            let is_alone = counts.get(&place(route)) == Some(&1);
            // A route with an MTU below the link's keeps the MTU that its owner set.
            let is_narrower = route.mtu.is_some_and(|mtu| mtu < config.narrow.mtu.into());
            let leaves = route.kind == RouteKind::Unicast && route.index == Some(narrow);
            leaves && is_alone && route.is_plain && !is_narrower
        };
        let copy = |route: &Route, destination: Prefix| {
            let ends = if destination.address.is_ipv4() {
                RouteLifetime::With(self.anchor.1)
            } else {
                RouteLifetime::After(LIFETIME)
            };
            let (table, mtu) = (self.table, Some(mtu(config)));
            Route { table, destination, mtu, ends: Some(ends), ..route.clone() }
        };
        let named: Vec<Prefix> = config
            .wide_interface
            .prefixes
            .iter()
            .map(|prefix| Prefix::new(prefix.address(), prefix.bit_count()))
            .collect();
        let is_named = |prefix: Prefix| named.is_empty() || named.iter().any(|named| contains(*named, prefix));
        let mut wanted: Vec<Route> = routes
            .iter()
            .map(|route| {
                if is_ours(route) && is_named(route.destination) {
                    copy(route, route.destination)
                } else {
                    back(self.table, route.destination, route.metric)
                }
            })
            .collect();
        // A configured prefix without a route of its own gets a copy of the most specific route that contains it.
        for prefix in named {
            if wanted.iter().any(|route| route.destination == prefix) {
                continue;
            }
            let wider = routes.iter().filter(|route| contains(route.destination, prefix));
            let best = wider.max_by_key(|route| (route.destination.bit_count, u32::MAX - route.metric));
            wanted.extend(best.filter(|best| is_ours(best)).map(|best| copy(best, prefix)));
        }
        // A route with several next hops is listed several times, and needs only one entry that leads back.
        let mut seen = HashSet::new();
        wanted.retain(|route| seen.insert(place(route)));
        Ok(wanted)
    }
}

/// Gives a destination an MTU below that of its route. Destinations over other interfaces keep their route. The
/// destination still learns an MSS for the longer MTU: what is lost on the way there is not lost on the way back.
fn shorten(wanted: &mut Vec<Route>, to: IpAddr, mtu: u32) {
    let [bit_count, headers_len] = if to.is_ipv4() { [32, 40] } else { [128, 60] };
    let destination = Prefix::new(to, bit_count as u8);
    let containing = wanted.iter().filter(|route| contains(route.destination, destination));
    let best = containing.max_by_key(|route| (route.destination.bit_count, u32::MAX - route.metric));
    let Some(best) = best.filter(|best| best.kind == RouteKind::Unicast && best.mtu > Some(mtu)) else { return };
    let advertised_mss = best.mtu.map(|mtu| mtu - headers_len);
    let route = Route { destination, mtu: Some(mtu), advertised_mss, ..best.clone() };
    wanted.retain(|other| place(other) != place(&route));
    wanted.push(route);
}

/// Returns the key of a route within a table: destination, prefix length, metric.
fn place(route: &Route) -> (IpAddr, u8, u32) {
    (route.destination.address, route.destination.bit_count, route.metric)
}

/// The properties by which two routes are compared.
type Facts = ((IpAddr, u8, u32), u8, Option<IpAddr>, Option<u32>, Option<IpAddr>, Option<u32>);

fn facts(route: &Route) -> Facts {
    (place(route), route.kind as u8, route.gateway, route.index, route.source, route.mtu)
}

/// Returns an entry that leads back to the main table.
fn back(table: u32, destination: Prefix, metric: u32) -> Route {
    Route { table, kind: RouteKind::Thrown, index: None, metric, ..Route::on(destination, 0) }
}

impl Drop for WideRoutes {
    fn drop(&mut self) {
        // No caller is left to handle an error.
        let _ = take_back(&mut self.netlink, self.table);
    }
}

/// Removes the rules and tables of wide interfaces whose processes were killed. Returns whether there were any.
///
/// # Errors
/// The kernel refuses an operation.
pub fn undo() -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let rules = netlink.rules()?.into_iter().filter(|rule| rule.priority == RULE);
    let mut tables: Vec<u32> = rules.filter_map(|rule| rule.table).collect();
    tables.dedup();
    let names: Vec<String> = netlink.interfaces()?.into_iter().map(|interface| interface.name).collect();
    let mut was_there = false;
    for number in tables.into_iter().filter(|number| (TABLES..TABLES + TABLE_COUNT).contains(number)) {
        // The anchor device lives as long as the process.
        let anchor = format!("{}{}", helper::ANCHOR_PREFIX, tag(number));
        if !names.iter().any(|name| name.starts_with(&anchor)) {
            take_back(&mut netlink, number)?;
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
        // The list shows two next hops of one route as two routes.
        ignore_gone(netlink.remove_route(&Route { index: None, gateway: None, source: None, ..route }))?;
    }
    Ok(())
}

fn ignore_gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Returns the number of an interface's table. It only depends on the interface's name, so that a successor finds
/// it.
fn table(name: &str) -> u32 {
    TABLES + helper::name_hash(name) % TABLE_COUNT
}

/// Returns the tag of a table, for the name of its device.
fn tag(table: u32) -> String {
    format!("{:04x}", table - TABLES)
}

/// Whether the prefix `outer` contains all addresses of `inner`.
fn contains(outer: Prefix, inner: Prefix) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differ = bits(outer.address) ^ bits(inner.address);
    outer.address.is_ipv4() == inner.address.is_ipv4()
        && outer.bit_count <= inner.bit_count
        && (outer.bit_count == 0 || differ >> (128 - u32::from(outer.bit_count)) == 0)
}

/// Returns the MTU of the copies in bytes, limited to the kernel's maximum.
fn mtu(config: &Config) -> u32 {
    u32::from(config.wide.mtu).min(ROUTE_MTU_MAX)
}

/// Whether the address is only valid on a single link, so that only that link's route applies.
fn is_of_the_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// Base of the numbers of wide interfaces' tables, far from usual numbers.
const TABLES: u32 = 0x0057_0000;
const TABLE_COUNT: u32 = 1 << 16;
/// Number of rules, one for each IP version.
const VERSION_COUNT: usize = 2;
/// Linux's maximum MTU of a route, in bytes (net/ipv4/metrics.c). The kernel fragments a longer datagram into two
/// fragments.
const ROUTE_MTU_MAX: u32 = 65_520;
/// Priority of the rule: just before the main table's rule (32,766).
const RULE: u32 = 32_765;
/// Lifetime of an IPv6 copy, in seconds.
const LIFETIME: u32 = 10;
/// Interval between two checks, which extend copies and restore removed ones.
const REFRESH: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_gets_a_shorter_copy_of_its_most_specific_route() {
        let prefix = |text: &str, bits| Prefix::new(text.parse::<IpAddr>().expect("an address"), bits);
        let copy = |text: &str, bits, metric| Route {
            table: 7,
            metric,
            mtu: Some(9_000),
            ..Route::on(prefix(text, bits), 3)
        };
        let routes = || {
            let thrown = back(7, prefix("10.2.0.0", 16), 0);
            vec![
                copy("10.0.0.0", 8, 5),
                copy("10.1.0.0", 16, 9),
                copy("10.1.0.0", 16, 4),
                thrown,
                copy("fd00::", 8, 0),
            ]
        };
        for (to, expected) in [
            ("10.1.2.3", Some((32, 4, 8_960))),
            ("10.9.2.3", Some((32, 5, 8_960))),
            ("fd00::7", Some((128, 0, 8_940))),
            // These are sent by other interfaces.
            ("10.2.2.3", None),
            ("192.0.2.1", None),
        ] {
            let (mut wanted, to) = (routes(), to.parse().expect("an address"));
            shorten(&mut wanted, to, 1_500);
            let added = wanted.iter().find(|route| route.destination.address == to);
            let seen = added.map(|it| (it.destination.bit_count, it.metric, it.advertised_mss.expect("it is set")));
            assert_eq!(seen, expected, "{to}");
            assert!(added.is_none_or(|it| (it.table, it.mtu, it.index) == (7, Some(1_500), Some(3))), "{to}");
            assert_eq!(wanted.len(), 5 + usize::from(expected.is_some()));
            // A route to the destination alone is replaced.
            shorten(&mut wanted, to, 1_400);
            assert_eq!(wanted.len(), 5 + usize::from(expected.is_some()));
            let before = wanted.clone();
            shorten(&mut wanted, to, 9_000);
            assert_eq!(wanted, before, "it is not longer");
        }
    }

    #[test]
    fn a_prefix_is_within_a_shorter_one_of_its_version_only() {
        let prefix = |text: &str, bits| Prefix::new(text.parse::<IpAddr>().expect("an address"), bits);
        assert!(contains(prefix("0.0.0.0", 0), prefix("10.1.0.0", 16)));
        assert!(contains(prefix("10.0.0.0", 8), prefix("10.1.0.0", 16)));
        assert!(!contains(prefix("10.1.0.0", 16), prefix("10.0.0.0", 8)));
        assert!(!contains(prefix("10.0.0.0", 8), prefix("11.0.0.0", 16)));
        assert!(!contains(prefix("0.0.0.0", 0), prefix("2001:db8::", 32)));
    }
}
