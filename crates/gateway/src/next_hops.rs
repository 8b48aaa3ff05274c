//! A destination in, the link header that leads there out: by the kernel's routes and neighbours.
//!
//! The kernel decides where packets go and who its neighbours are; this keeps what it said for one interface, and follows what
//! changes. A destination is looked up once and remembered. A neighbour that nobody sends to by the kernel would be forgotten by
//! it, so it is asked to look again now and then.

use crate::broker;
use crate::links::{Link, ethernet};
use packet::{Medium, Packet, Time};
use port::addresses::Prefix;
use port::interfaces::Interface;
use port::monitor::{Change, Monitor, Turn};
use port::netlink::Netlink;
use port::routes::{Route, RouteKind};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// The next hops behind one interface.
#[derive(Debug)]
pub struct NextHops {
    name: String,
    index: u32,
    mac: [u8; 6],
    netlink: Netlink,
    monitor: Monitor,
    /// Addresses of this host.
    own: HashSet<IpAddr>,
    /// Longest prefix first, then lowest metric.
    routes: Vec<Route>,
    destinations: HashMap<IpAddr, Destination>,
    stations: HashMap<IpAddr, Station>,
    looked_at: Time,
}

/// Where packets for a destination go.
#[derive(Clone, Copy, Debug)]
enum Destination {
    /// To a neighbour.
    By(IpAddr),
    /// To all who listen to this link address.
    Group([u8; 6]),
    /// Nowhere.
    None,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug)]
struct Station {
    mac: Option<[u8; 6]>,
    asked_at: Time,
}

impl NextHops {
    /// Those behind the interface of this name, in the namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface, or it has no link addresses.
    pub fn new(name: &str) -> io::Result<NextHops> {
        let mut netlink = Netlink::open()?;
        // Before the routes are read, so that no change is missed.
        let monitor = Monitor::open()?;
        let interface = netlink.interface(name)?;
        let mac = station(&interface)?;
        let mut hops = NextHops {
            name: name.to_owned(),
            index: interface.index,
            mac,
            netlink,
            monitor,
            own: HashSet::new(),
            routes: Vec::new(),
            destinations: HashMap::new(),
            stations: HashMap::new(),
            looked_at: Time::ZERO,
        };
        hops.read_routes()?;
        Ok(hops)
    }

    /// Is this packet for our station, and not of what the kernel needs to know its neighbours?
    pub fn is_for_station(&self, packet: &Packet) -> bool {
        packet.link().get(..6) == Some(&self.mac[..]) && !packet.is_neighbour_discovery()
    }

    /// Would a router pass this packet on? What is for one of its own addresses, it takes itself.
    pub fn passes_on(&mut self, now: Time, packet: &Packet) -> bool {
        self.follow(now);
        let (_, destination) = packet.addresses();
        !self.own.contains(&IpAddr::from(destination))
    }

    /// Does a route lead by this interface to where the packet wants to go?
    pub fn leads_to(&mut self, now: Time, packet: &Packet) -> bool {
        self.follow(now);
        let (_, destination) = packet.addresses();
        matches!(self.destination(IpAddr::from(destination)), Destination::By(_))
    }

    /// Gives a packet the link header of its next hop.
    pub fn link(&mut self, now: Time, packet: &mut Packet) -> Link {
        self.follow(now);
        let (_, destination) = packet.addresses();
        let destination = IpAddr::from(destination);
        let mac = match self.destination(destination) {
            Destination::Group(mac) => mac,
            Destination::None => return Link::None,
            Destination::By(hop) => match self.station(now, hop) {
                Some(mac) => mac,
                None => return Link::Asked,
            },
        };
        let header = ethernet(mac, self.mac, packet.ip().version);
        packet.relink(Medium::Ethernet, &header);
        Link::Ready
    }

    fn destination(&mut self, address: IpAddr) -> Destination {
        if let Some(known) = self.destinations.get(&address) {
            return *known;
        }
        let found = self.look_up(address);
        if self.destinations.len() >= DESTINATIONS_MAX {
            self.destinations.clear();
        }
        self.destinations.insert(address, found);
        found
    }

    fn look_up(&self, address: IpAddr) -> Destination {
        if let Some(mac) = group(address) {
            return Destination::Group(mac);
        }
        let Some(route) = self.routes.iter().find(|route| contains(route.destination, address)) else {
            return Destination::None;
        };
        match route.kind {
            // Another interface leads there.
            _ if route.index != Some(self.index) => Destination::None,
            RouteKind::Unicast => Destination::By(route.gateway.unwrap_or(address)),
            RouteKind::Broadcast => Destination::Group([0xFF; 6]),
            _ => Destination::None,
        }
    }

    fn station(&mut self, now: Time, hop: IpAddr) -> Option<[u8; 6]> {
        let known = self.stations.get(&hop).copied();
        if let Some(station) = known
            && now.since(station.asked_at) < if station.mac.is_some() { KEEP } else { ASK_AGAIN }
        {
            return station.mac;
        }
        // Whatever it says, the packet waits no longer than its patience.
        let asked = broker::resolve(&mut self.netlink, self.index, hop);
        let mac = self.netlink.neighbour(self.index, hop).ok().flatten().or(known.and_then(|known| known.mac));
        if self.stations.len() >= DESTINATIONS_MAX {
            self.stations.clear();
        }
        self.stations.insert(hop, Station { mac, asked_at: now });
        drop(asked);
        mac
    }

    /// Takes what has changed, at most once in a while.
    fn follow(&mut self, now: Time) {
        if now.since(self.looked_at) < LOOK {
            return;
        }
        self.looked_at = now;
        let mut routes_changed = false;
        while let Some(change) = self.monitor.next() {
            match change {
                Change::Neighbour(turn, neighbour) if neighbour.index == self.index => {
                    if let Some(station) = self.stations.get_mut(&neighbour.address) {
                        station.mac = neighbour.mac.filter(|_| turn == Turn::Set);
                    }
                }
                Change::Link(Turn::Set, interface) if interface.name == self.name => self.become_of(&interface),
                Change::Route(..) | Change::Address(..) => routes_changed = true,
                Change::Lost => {
                    routes_changed = true;
                    self.stations.clear();
                }
                _ => {}
            }
        }
        if routes_changed && self.read_routes().is_err() {
            // The kernel had no answer at this moment: the old routes serve until it has.
            self.looked_at = Time::ZERO;
        }
    }

    /// The interface may have been made anew, or been given another address.
    fn become_of(&mut self, interface: &Interface) {
        if let Ok(mac) = station(interface)
            && (mac != self.mac || interface.index != self.index)
        {
            (self.mac, self.index) = (mac, interface.index);
            self.stations.clear();
        }
    }

    fn read_routes(&mut self) -> io::Result<()> {
        let mut routes = self.netlink.routes()?;
        let of_link = self.netlink.routes_of(LOCAL)?.into_iter();
        routes
            .extend(of_link.filter(|route| route.kind == RouteKind::Broadcast && route.index == Some(self.index)));
        routes.sort_by_key(|route| (u8::MAX - route.destination.bit_count, route.metric));
        self.routes = routes;
        self.own = self.netlink.addresses()?.iter().map(|address| address.prefix.address).collect();
        self.destinations.clear();
        Ok(())
    }
}

fn station(interface: &Interface) -> io::Result<[u8; 6]> {
    interface.mac.ok_or_else(|| {
        let said = format!("{}: it has no link address; give an Ethernet interface", interface.name);
        io::Error::new(io::ErrorKind::InvalidInput, said)
    })
}

/// The link address of a group (RFC 1112 section 6.4, RFC 2464 section 7), or of all.
fn group(address: IpAddr) -> Option<[u8; 6]> {
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => Some([0xFF; 6]),
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some([0x01, 0x00, 0x5E, b & 0x7F, c, d])
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let [.., a, b, c, d] = v6.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// Does an address begin with this prefix?
pub(crate) fn contains(prefix: Prefix, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((one, one_len), (other, other_len)) = (bits(prefix.address), bits(address));
    let differ = one ^ other;
    one_len == other_len && (prefix.bit_count == 0 || differ >> (128 - u32::from(prefix.bit_count)) == 0)
}

/// Destinations and neighbours that are remembered.
const DESTINATIONS_MAX: usize = 65_536;
/// How often changes are taken.
const LOOK: Duration = Duration::from_millis(1);
/// How long a neighbour's address is used before the kernel is asked to look again: below the 30 s that it trusts one for.
const KEEP: Duration = Duration::from_secs(15);
/// How often a neighbour that does not answer is asked again; that it answered, the monitor tells at once.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The kernel's table of its own addresses and those of all on a link.
const LOCAL: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_what_is_for_all_go_to_link_addresses_that_no_neighbour_is_asked_for() {
        for (address, mac) in [
            ("255.255.255.255", Some([0xFF; 6])),
            ("224.0.0.251", Some([0x01, 0x00, 0x5E, 0, 0, 251])),
            ("239.255.1.2", Some([0x01, 0x00, 0x5E, 0x7F, 1, 2])),
            ("ff02::1:ff00:1", Some([0x33, 0x33, 0xFF, 0, 0, 1])),
            ("198.51.100.255", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(group(address.parse().expect("it is one")), mac, "{address}");
        }
    }
}
