//! A destination -> the kernel's route to it; routes and rules -> changes of the kernel's tables.
//!
//! The methods of [`Netlink`] for routes and routing rules are here. A wide interface uses them to copy the host's
//! routes.

use crate::addresses::{Prefix, family};
use crate::netlink::{Netlink, malformed};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use packet::Version;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A route for a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the routing table. The main table is [`MAIN`].
    pub table: u32,
    /// Treatment of packets that take the route.
    pub kind: RouteKind,
    /// Prefix of the destinations.
    pub destination: Prefix,
    /// Next hop; `None` if destinations are on the link itself.
    pub gateway: Option<IpAddr>,
    /// Index of the egress interface; `None` if packets are not sent by an interface, or if the kernel chooses the
    /// interface.
    pub index: Option<u32>,
    /// Preferred source address; `None` if the kernel chooses.
    pub source: Option<IpAddr>,
    /// Metric. Of several routes for one prefix, the route with the lowest metric applies.
    pub metric: u32,
    /// Configured MTU of the route, in bytes; `None` if there is none. An answer of [`Netlink::route_to`] may
    /// instead contain a path MTU that the kernel has learned.
    pub mtu: Option<u32>,
    /// MSS that TCP announces to the destinations, in bytes; `None` if the kernel derives it from the MTU.
    pub advertised_mss: Option<u32>,
    /// Automatic end of the route; `None` if the route stays until it is removed. In routes that the kernel
    /// returned, always `None`.
    pub ends: Option<RouteLifetime>,
    /// Whether these fields describe the route completely, except for its hop limit. If not, the route may apply to
    /// one traffic class only, or add headers to packets, for example.
    pub is_plain: bool,
}

/// The automatic end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteLifetime {
    /// The route ends after this number of seconds. IPv6 only.
    After(u32),
    /// The route ends with the interface of this index, which is a second next hop. IPv4 only. Linux removes such a
    /// route when the interface of a next hop is removed. Linux never sends packets to a next hop without carrier
    /// if `ignore_routes_with_linkdown` is set.
    With(u32),
}

/// The treatment of packets that take a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sent to one host.
    Unicast,
    /// Delivered to this host.
    Local,
    /// Broadcast on the link.
    Broadcast,
    /// Multicast to the group's members.
    Multicast,
    /// Dropped, with or without an ICMP error to the sender.
    Refused,
    /// Looked up in the table of the next rule.
    Thrown,
    /// Any other treatment.
    Other,
}

/// A routing rule, which selects a table for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IP version.
    pub version: Version,
    /// Priority. Rules are evaluated in ascending order.
    pub priority: u32,
    /// Number of the selected table; `None` if the rule has another action.
    pub table: Option<u32>,
    /// Whether the rule matches a mark or ports. Such a rule may treat a reassembled datagram differently from its
    /// fragments: fragments have no ports, and netfilter may mark them differently.
    pub selects_by_mark_or_ports: bool,
}

impl Route {
    /// Makes a route to `destination` over `gateway`, in the main table. The kernel chooses the interface.
    pub fn via(destination: Prefix, gateway: IpAddr) -> Route {
        Route { gateway: Some(gateway), ..Route::to(destination) }
    }

    /// Makes a route to destinations on the link of an interface, in the main table.
    pub fn on(destination: Prefix, index: u32) -> Route {
        Route { index: Some(index), ..Route::to(destination) }
    }

    fn to(destination: Prefix) -> Route {
        Route {
            table: MAIN,
            kind: RouteKind::Unicast,
            destination,
            gateway: None,
            index: None,
            source: None,
            metric: 0,
            mtu: None,
            advertised_mss: None,
            ends: None,
            is_plain: true,
        }
    }
}

impl Netlink {
    /// Returns the routes of the main table for both IP versions. A route with several next hops appears once for
    /// each next hop.
    ///
    /// # Errors
    /// The kernel cannot list the routes.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        self.routes_of(MAIN)
    }

    /// Returns the routes of another table, as [`Netlink::routes`] does for the main table.
    ///
    /// # Errors
    /// The kernel cannot list the routes.
    pub fn routes_of(&mut self, table: u32) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in FAMILIES {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            question.attributes.push(RouteAttribute::Table(table));
            let what = format!("cannot list the routes of table {table}");
            match self.list(RouteNetlinkMessage::GetRoute(question), what) {
                // The kernel creates a table with its first route.
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                answers => routes.extend(answers?.into_iter().flat_map(read)),
            }
        }
        routes.retain(|route| route.table == table);
        Ok(routes)
    }

    /// Returns the route by which the kernel would send to this destination.
    ///
    /// # Errors
    /// There is no route, or the route rejects packets (`NetworkUnreachable` or `HostUnreachable`).
    pub fn route_to(&mut self, destination: IpAddr) -> io::Result<Route> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(destination);
        question.header.destination_prefix_length = Prefix::host(destination).bit_count;
        question.attributes.push(RouteAttribute::Destination(destination.into()));
        let what = format!("no route to {destination}");
        let answer = self.ask(RouteNetlinkMessage::GetRoute(question), &what)?;
        read(answer).into_iter().next().ok_or_else(|| malformed(what))
    }

    /// Adds a route.
    ///
    /// # Errors
    /// The route exists (`AlreadyExists`), the gateway is unreachable, or privileges are missing.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        let what = format!("cannot add the route to {} in table {}", route.destination, route.table);
        self.order(RouteNetlinkMessage::NewRoute(write(route)), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Adds a route. Replaces an existing route with the same prefix and metric.
    ///
    /// # Errors
    /// The gateway is unreachable, or privileges are missing.
    pub fn replace_route(&mut self, route: &Route) -> io::Result<()> {
        let what = format!("cannot set the route to {} in table {}", route.destination, route.table);
        self.order(RouteNetlinkMessage::NewRoute(write(route)), NLM_F_CREATE | NLM_F_REPLACE, what)
    }

    /// Extends the lifetime of a route that [ends automatically](RouteLifetime). Does not change other properties,
    /// and keeps the path state that the kernel has learned.
    ///
    /// # Errors
    /// The gateway is unreachable, or privileges are missing.
    pub fn extend_route(&mut self, route: &Route) -> io::Result<()> {
        let what = format!("cannot extend the route to {} in table {}", route.destination, route.table);
        match self.order(RouteNetlinkMessage::NewRoute(write(route)), NLM_F_CREATE, what) {
            // The kernel returns this error although it has extended the route.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes a route.
    ///
    /// # Errors
    /// There is no such route (`NotFound`), or privileges are missing.
    pub fn remove_route(&mut self, route: &Route) -> io::Result<()> {
        let what = format!("cannot remove the route to {} from table {}", route.destination, route.table);
        self.order(RouteNetlinkMessage::DelRoute(write(route)), 0, what)
    }

    /// Returns all rules, for both IP versions.
    ///
    /// # Errors
    /// The kernel cannot list the rules.
    pub fn rules(&mut self) -> io::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for family in FAMILIES {
            let mut question = RuleMessage::default();
            question.header.family = family;
            let answers = self.list(RouteNetlinkMessage::GetRule(question), "cannot list rules")?;
            rules.extend(answers.iter().filter_map(Rule::read));
        }
        Ok(rules)
    }

    /// Adds a rule by which locally generated packets of both IP versions use a table: `ip rule add iif lo pref
    /// PRIORITY lookup TABLE`. The rule does not apply to forwarded packets.
    ///
    /// # Errors
    /// An IP version already has the rule (`AlreadyExists`), or privileges are missing. Nothing is changed then.
    pub fn add_rule(&mut self, priority: u32, table: u32) -> io::Result<()> {
        let what = format!("cannot add rule {priority} for table {table}");
        let [first, second] = FAMILIES;
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.order(RouteNetlinkMessage::NewRule(rule(first, priority, table)), flags, &what)?;
        let added = self.order(RouteNetlinkMessage::NewRule(rule(second, priority, table)), flags, &what);
        if added.is_err() {
            self.order(RouteNetlinkMessage::DelRule(rule(first, priority, table)), 0, &what)?;
        }
        added
    }

    /// Removes a rule added by [`Netlink::add_rule`].
    ///
    /// # Errors
    /// An IP version does not have the rule (`NotFound`), or privileges are missing. The rule of the other version
    /// is removed nevertheless.
    pub fn remove_rule(&mut self, priority: u32, table: u32) -> io::Result<()> {
        let what = format!("cannot remove rule {priority} for table {table}");
        let removed = FAMILIES
            .map(|family| self.order(RouteNetlinkMessage::DelRule(rule(family, priority, table)), 0, &what));
        removed.into_iter().collect()
    }
}

impl Rule {
    fn read(answer: &RouteNetlinkMessage) -> Option<Rule> {
        let RouteNetlinkMessage::NewRule(message) = answer else { return None };
        let mut rule = Rule {
            version: if message.header.family == AddressFamily::Inet { Version::V4 } else { Version::V6 },
            priority: 0,
            table: None,
            selects_by_mark_or_ports: false,
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::FwMark(_)
                | RuleAttribute::FwMask(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_) => rule.selects_by_mark_or_ports = true,
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) if message.header.action == RuleAction::ToTable => {
                    rule.table = Some(*table);
                }
                _ => {}
            }
        }
        Some(rule)
    }
}

/// Returns the routes of an answer, one for each next hop. Other answers have no routes.
pub(crate) fn read(answer: RouteNetlinkMessage) -> Vec<Route> {
    match answer {
        RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message) => read_routes(&message),
        _ => Vec::new(),
    }
}

fn read_routes(message: &RouteMessage) -> Vec<Route> {
    let Some(unspecified) = unspecified(message.header.address_family) else { return Vec::new() };
    let header = &message.header;
    let is_plain = header.tos == 0
        && header.source_prefix_length == 0
        && !header.flags.contains(RouteFlags::Onlink)
        && message.attributes.iter().all(is_plain);
    let mut route = Route {
        table: header.table.into(),
        kind: RouteKind::read(header.kind),
        is_plain,
        ..Route::to(Prefix { address: unspecified, bit_count: header.destination_prefix_length })
    };
    let mut hops: &[RouteNextHop] = &[];
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Destination(address) => {
                route.destination.address = ip(address).unwrap_or(unspecified);
            }
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Metrics(metrics) => route.mtu = metrics.iter().find_map(mtu),
            RouteAttribute::MultiPath(paths) => hops = paths,
            hop => route.read_hop(hop),
        }
    }
    if hops.is_empty() { vec![route] } else { hops.iter().map(|hop| route.by(hop)).collect() }
}

impl Route {
    fn read_hop(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Gateway(address) => self.gateway = ip(address),
            RouteAttribute::Via(RouteVia::Inet(address)) => self.gateway = Some((*address).into()),
            RouteAttribute::Via(RouteVia::Inet6(address)) => self.gateway = Some((*address).into()),
            RouteAttribute::Oif(index) => self.index = Some(*index),
            _ => {}
        }
    }

    fn by(&self, hop: &RouteNextHop) -> Route {
        let mut route = Route { index: Some(hop.interface_index), ..self.clone() };
        for attribute in &hop.attributes {
            route.read_hop(attribute);
        }
        route
    }
}

impl RouteKind {
    fn read(kind: RouteType) -> RouteKind {
        match kind {
            RouteType::Unicast => RouteKind::Unicast,
            RouteType::Local | RouteType::Anycast => RouteKind::Local,
            RouteType::Broadcast => RouteKind::Broadcast,
            RouteType::Multicast => RouteKind::Multicast,
            RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit => RouteKind::Refused,
            RouteType::Throw => RouteKind::Thrown,
            _ => RouteKind::Other,
        }
    }

    fn write(self) -> RouteType {
        match self {
            RouteKind::Unicast | RouteKind::Other => RouteType::Unicast,
            RouteKind::Local => RouteType::Local,
            RouteKind::Broadcast => RouteType::Broadcast,
            RouteKind::Multicast => RouteType::Multicast,
            RouteKind::Refused => RouteType::Unreachable,
            RouteKind::Thrown => RouteType::Throw,
        }
    }
}

fn write(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(route.destination.address),
        destination_prefix_length: route.destination.bit_count,
        protocol: RouteProtocol::Static,
        scope: scope(route),
        kind: route.kind.write(),
        flags: RouteFlags::empty(),
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(route.table));
    attributes.push(RouteAttribute::Destination(route.destination.address.into()));
    match route.ends {
        Some(RouteLifetime::With(other)) => {
            let paths = [hop(route.index, gateway(route)), hop(Some(other), None)];
            attributes.push(RouteAttribute::MultiPath(paths.into()));
        }
        ends => {
            attributes.extend(gateway(route));
            attributes.extend(route.index.map(RouteAttribute::Oif));
            if let Some(RouteLifetime::After(seconds)) = ends {
                attributes.push(RouteAttribute::Expires(seconds));
            }
        }
    }
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    attributes.extend((route.metric > 0).then_some(RouteAttribute::Priority(route.metric)));
    let mss = route.advertised_mss.map(RouteMetric::Advmss);
    let metrics: Vec<_> = route.mtu.map(RouteMetric::Mtu).into_iter().chain(mss).collect();
    attributes.extend((!metrics.is_empty()).then_some(RouteAttribute::Metrics(metrics)));
    message
}

fn gateway(route: &Route) -> Option<RouteAttribute> {
    let gateway = route.gateway?;
    let is_own_version = gateway.is_ipv4() == route.destination.address.is_ipv4();
    Some(if is_own_version { RouteAttribute::Gateway(gateway.into()) } else { RouteAttribute::Via(gateway.into()) })
}

fn hop(index: Option<u32>, gateway: Option<RouteAttribute>) -> RouteNextHop {
    let mut hop = RouteNextHop::default();
    hop.interface_index = index.unwrap_or_default();
    hop.attributes.extend(gateway);
    hop
}

fn scope(route: &Route) -> RouteScope {
    match route.kind {
        RouteKind::Local => RouteScope::Host,
        RouteKind::Unicast | RouteKind::Broadcast if route.gateway.is_none() => RouteScope::Link,
        _ => RouteScope::Universe,
    }
}

fn rule(family: AddressFamily, priority: u32, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::Table(table),
        RuleAttribute::Iifname(LOOPBACK.to_owned()),
    ];
    message
}

/// Whether [`Route`] has a field for the attribute, or the attribute does not affect how packets are sent.
fn is_plain(attribute: &RouteAttribute) -> bool {
    match attribute {
        RouteAttribute::Metrics(metrics) => {
            metrics.iter().all(|metric| matches!(metric, RouteMetric::Mtu(_) | RouteMetric::Hoplimit(_)))
        }
        RouteAttribute::Table(_)
        | RouteAttribute::Destination(_)
        | RouteAttribute::Gateway(_)
        | RouteAttribute::Via(_)
        | RouteAttribute::Oif(_)
        | RouteAttribute::PrefSource(_)
        | RouteAttribute::Priority(_)
        | RouteAttribute::Preference(_)
        | RouteAttribute::CacheInfo(_)
        | RouteAttribute::Expires(_) => true,
        // `Route` has one next hop; a route with several next hops becomes several values.
        RouteAttribute::MultiPath(_) => true,
        _ => false,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    }
}

fn unspecified(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// Name of the ingress interface of locally generated packets in rules (ip-rule(8)).
const LOOPBACK: &str = "lo";
/// Number of the main table (RT_TABLE_MAIN).
pub const MAIN: u32 = 254;
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];
