//! A host's routes over one interface in, the same with a larger MTU for what the host itself sends out.
//!
//! A table of its own has a copy of each such route with the wide MTU, and a rule has packets that this host sends
//! ask it just before the main table. So rules that the host's owner made come first, forwarded packets keep the
//! link's MTU, and nothing of the main table is touched. Left to the main table are routes over other interfaces,
//! by several next hops, with more to them than this copies (a class of service, `onlink`, `encap`), and those
//! whose owner gave them an MTU below the link's.
//!
//! The copies end without us: those of IPv4 with a device of ours, those of IPv6 after ten seconds. The rule and
//! the entries that lead back to the main table stay where a process is killed, and change nothing; [`undo`]
//! removes them.

use config::Config;
use linux::addresses::Prefix;
use linux::netlink::Netlink;
use linux::routes::{Route, RouteKind, RouteLifetime, Rule};
use port::{Tap, helper};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The routes, until this is dropped.
#[derive(Debug)]
pub(crate) struct WideRoutes {
    narrow: String,
    table: u32,
    netlink: Netlink,
    /// The device that those of IPv4 end with, and its number.
    tether: (Tap, u32),
    wanted: Vec<Route>,
    /// When it was last seen to that they stand.
    set_at: Instant,
}

impl WideRoutes {
    /// Sets them for the interface `narrow`, in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub fn start(narrow: &str) -> io::Result<WideRoutes> {
        let table = table(narrow);
        let tether = helper::tether(&tag(table))?;
        let mut netlink = Netlink::open()?;
        let index = netlink.interface(tether.name())?.index;
        let (narrow, tether, set_at) = (narrow.to_owned(), (tether, index), Instant::now());
        Ok(WideRoutes { narrow, table, netlink, tether, wanted: Vec::new(), set_at })
    }

    /// The number of the table.
    pub fn table(&self) -> u32 {
        self.table
    }

    /// Follows the host's routes and the configuration; says which of them could not be copied and is left to the
    /// main table.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn refresh(&mut self, config: &Config) -> io::Result<Option<String>> {
        self.wanted = match self.netlink.interface(&self.narrow) {
            Ok(narrow) => self.wanted(config, narrow.index)?,
            // Nobody cuts what would leave by it.
            Err(_) => Vec::new(),
        };
        self.set()
    }

    /// Has those of IPv6 live on, and sets again what others removed: now and then.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn extend(&mut self) -> io::Result<Option<String>> {
        if self.set_at.elapsed() < REFRESH { Ok(None) } else { self.set() }
    }

    /// Has the table have what is wanted, and be asked.
    fn set(&mut self) -> io::Result<Option<String>> {
        self.set_at = Instant::now();
        let standing = self.netlink.routes_of(self.table)?;
        let tether = Some(self.tether.1);
        let places: HashSet<_> = self.wanted.iter().map(|route| (place(route), route.kind as u8)).collect();
        for route in standing.iter().filter(|route| route.index != tether) {
            if !places.contains(&(place(route), route.kind as u8)) {
                ignore_gone(self.netlink.remove_route(route))?;
            }
        }
        let stands: HashSet<_> = standing.iter().map(facts).collect();
        let tethered: HashSet<_> = standing.iter().filter(|route| route.index == tether).map(place).collect();
        let mut refused = None;
        // What leads back first: nothing may leave by a copy that is not to.
        let (backs, copies): (Vec<_>, Vec<_>) =
            self.wanted.iter().partition(|route| route.kind != RouteKind::Unicast);
        for route in backs.into_iter().chain(copies) {
            // To set a route anew would have sockets forget what they learnt of their paths.
            let outcome = match route.ends {
                Some(RouteLifetime::After(_)) if stands.contains(&facts(route)) => self.netlink.extend_route(route),
                Some(RouteLifetime::With(_))
                    if stands.contains(&facts(route)) && tethered.contains(&place(route)) =>
                {
                    Ok(())
                }
                None if stands.contains(&facts(route)) => Ok(()),
                _ => self.netlink.replace_route(route),
            };
            if let Err(error) = outcome {
                let back = back(self.table, route.destination, route.metric);
                self.netlink.replace_route(&back)?;
                refused.get_or_insert_with(|| format!("{}: not made wide: {error}", route.destination));
            }
        }
        self.have_it_asked()?;
        Ok(refused)
    }

    /// Adds the rule, where somebody removed it or there was none.
    fn have_it_asked(&mut self) -> io::Result<()> {
        let rules = self.netlink.rules()?;
        let is_ours = |rule: &&Rule| rule.priority == RULE && rule.table == Some(self.table);
        if rules.iter().filter(is_ours).count() < VERSION_COUNT {
            ignore_gone(self.netlink.remove_rule(RULE, self.table))?;
            self.netlink.add_rule(RULE, self.table)?;
        }
        Ok(())
    }

    /// A copy for each route over the narrow interface, and an entry that leads back to the main table for each
    /// other one.
    fn wanted(&mut self, config: &Config, narrow: u32) -> io::Result<Vec<Route>> {
        let mut routes = self.netlink.routes()?;
        routes.retain(|route| !is_of_the_link(route.destination.address));
        let mut counts = HashMap::new();
        routes.iter().for_each(|route| *counts.entry(place(route)).or_insert(0) += 1);
        let is_ours = |route: &Route| {
            let is_alone = counts.get(&place(route)) == Some(&1);
            // One whose owner said that it takes less than the link is as they said.
            let is_narrower = route.mtu.is_some_and(|mtu| mtu < config.narrow.mtu.into());
            let leaves = route.kind == RouteKind::Unicast && route.index == Some(narrow);
            leaves && is_alone && route.is_plain && !is_narrower
        };
        let copy = |route: &Route, destination: Prefix| {
            let ends = if destination.address.is_ipv4() {
                RouteLifetime::With(self.tether.1)
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
        // Within a named prefix the route that leads there counts, where it is a wider one.
        for prefix in named {
            if wanted.iter().any(|route| route.destination == prefix) {
                continue;
            }
            let wider = routes.iter().filter(|route| contains(route.destination, prefix));
            let best = wider.max_by_key(|route| (route.destination.bit_count, u32::MAX - route.metric));
            wanted.extend(best.filter(|best| is_ours(best)).map(|best| copy(best, prefix)));
        }
        // Several next hops lead back once.
        let mut seen = HashSet::new();
        wanted.retain(|route| seen.insert(place(route)));
        Ok(wanted)
    }
}

/// What the kernel tells routes of a table apart by.
fn place(route: &Route) -> (IpAddr, u8, u32) {
    (route.destination.address, route.destination.bit_count, route.metric)
}

/// What matters of a route in our table.
type Facts = ((IpAddr, u8, u32), u8, Option<IpAddr>, Option<u32>, Option<IpAddr>, Option<u32>);

fn facts(route: &Route) -> Facts {
    (place(route), route.kind as u8, route.gateway, route.index, route.source, route.mtu)
}

/// An entry that leads back to the main table.
fn back(table: u32, destination: Prefix, metric: u32) -> Route {
    Route { table, kind: RouteKind::Thrown, index: None, metric, ..Route::on(destination, 0) }
}

impl Drop for WideRoutes {
    fn drop(&mut self) {
        // What is gone already needs no taking back.
        let _ = take_back(&mut self.netlink, self.table);
    }
}

/// Removes what processes that died have left: rules and tables of wide interfaces that are gone. Says whether
/// there was anything.
///
/// # Errors
/// What the kernel refuses.
pub fn undo() -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let rules = netlink.rules()?.into_iter().filter(|rule| rule.priority == RULE);
    let mut tables: Vec<u32> = rules.filter_map(|rule| rule.table).collect();
    tables.dedup();
    let names: Vec<String> = netlink.interfaces()?.into_iter().map(|interface| interface.name).collect();
    let mut was_there = false;
    for number in tables.into_iter().filter(|number| (TABLES..TABLES + TABLE_COUNT).contains(number)) {
        // The device that its routes end with lives as long as the process.
        let tether = format!("{}{}", helper::TETHER, tag(number));
        if !names.iter().any(|name| name.starts_with(&tether)) {
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
        // Two next hops of one route are listed as two.
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

/// The routing table of an interface, by its name: so a successor finds what was left.
fn table(name: &str) -> u32 {
    TABLES + helper::name_hash(name) % TABLE_COUNT
}

/// What a table is known by in the name of its device.
fn tag(table: u32) -> String {
    format!("{:04x}", table - TABLES)
}

/// Are addresses that begin with a prefix all within another?
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

/// The longest that a route takes, or less.
fn mtu(config: &Config) -> u32 {
    u32::from(config.wide.mtu).min(ROUTE_MTU_MAX)
}

/// What is of one link goes by that link alone.
fn is_of_the_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// Tables of wide interfaces: far from those that people number.
const TABLES: u32 = 0x0057_0000;
const TABLE_COUNT: u32 = 1 << 16;
/// A rule stands once for each version.
const VERSION_COUNT: usize = 2;
/// Linux takes no larger MTU of a route, in bytes (net/ipv4/metrics.c); the kernel cuts a longer datagram in two.
const ROUTE_MTU_MAX: u32 = 65_520;
/// Where the rule stands that has them asked: just before the main table's (32766).
const RULE: u32 = 32_765;
/// Seconds after which a route of IPv6 ends that is not set again.
const LIFETIME: u32 = 10;
/// How often it is, and how often it is seen to that nobody removed anything.
const REFRESH: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_within_a_shorter_one_of_its_version() {
        let prefix = |text: &str, bits| Prefix::new(text.parse::<IpAddr>().expect("an address"), bits);
        assert!(contains(prefix("0.0.0.0", 0), prefix("10.1.0.0", 16)));
        assert!(contains(prefix("10.0.0.0", 8), prefix("10.1.0.0", 16)));
        assert!(!contains(prefix("10.1.0.0", 16), prefix("10.0.0.0", 8)));
        assert!(!contains(prefix("10.0.0.0", 8), prefix("11.0.0.0", 16)));
        assert!(!contains(prefix("0.0.0.0", 0), prefix("2001:db8::", 32)));
    }
}
