//! TCP and UDP packets -> their connections, by one table with one look-up per packet.
//!
//! A connection has an entry while a border needs its handshake, or a side coalesces one of its directions. For
//! most packets, a short hash of ports and addresses selects a hint, and the hint leads to the connection. If the
//! headers match those that the direction's stream expects, nothing else is compared.

use crate::flow_sizing::FlowSizing;
use crate::handshake::{Handshake, SegmentNumbers};
use crate::keyed_hash::{Secret, TableKey};
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::net::IpAddr;
use core::time::Duration;
use packet::ip::{TCP, UDP};
use packet::{Address, Packet, TcpFacts, TcpSegmentFacts, Time, Version, tcp};

/// The connection table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    flows: FairTable<FlowKey, Flow>,
    /// The connections of recent packets, by [`FlowHash`]. There are at least eight times as many hints as
    /// connections, up to [`HINT_COUNT_MAX`], so that few connections share a hint.
    hints: Box<[Hint]>,
    /// Whether packets received by different ports belong to different connections. False at a border, whose two
    /// directions are received by two ports.
    tells_ports_apart: bool,
    handshake_count: usize,
}

/// A probable connection, and the stream of one of its directions. Either may have been removed.
#[derive(Clone, Copy, Debug)]
struct Hint {
    at: Handle,
    stream: Handle,
}

/// The key of a connection, equal for both directions. Addresses and ports are in the order of packets toward the
/// wide side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) narrow: Address,
    pub(crate) wide: Address,
    pub(crate) ports: [u16; 2],
    version: Version,
    protocol: u8,
    /// VLAN tags and cooked interface.
    pub(crate) tags: u64,
    port: u64,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// The handshake, recorded by a border. `None` if no MSS was announced.
    pub(crate) handshake: Option<Handshake>,
    /// The segment length toward the narrow side. `None` if the policy of its destination needs no state.
    sizing: Option<Box<FlowSizing>>,
    /// The stream of each direction. `None` if the direction is not coalesced.
    streams: [Option<Handle>; 2],
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// The packet has no connection: it is a fragment, or its protocol is neither TCP nor UDP with coalescing.
    Nothing,
    /// The connection is unknown. The first value is its key.
    New(FlowKey, Option<TcpFacts>),
    /// The connection is known.
    Known(Handle, Option<TcpFacts>),
    /// The connection is known, and the headers continue those of its stream.
    Alike {
        /// The handle of the connection.
        at: Handle,
        /// The handle of the stream.
        stream: Handle,
        /// The header fields that changed.
        tcp: TcpSegmentFacts,
    },
}

/// A short hash, equal for all packets of one direction of a connection. It covers the ports and the eight bytes
/// before them, mostly addresses. An attacker can cause collisions. A collision only costs a table search for each
/// packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHash(u32);

impl FlowTable {
    /// Creates a table with a memory limit of `limit` bytes.
    pub(crate) fn new(limit: usize, tells_ports_apart: bool, secret: Secret) -> FlowTable {
        FlowTable {
            flows: FairTable::new(limit, &[TIMEOUT, SHORT_TIMEOUT, SIZING_TIMEOUT], secret),
            hints: no_hints(HINT_COUNT_MIN),
            tells_ports_apart,
            handshake_count: 0,
        }
    }

    /// Sets the key of the hash table. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.flows.set_key(key);
    }

    /// Sets the memory limit, in bytes.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.flows.set_limit(limit);
    }

    /// Adopts the limit of another table, and whether it tells ports apart. The caller removes handshakes above the
    /// limit with [`forget_surplus`](FlowTable::forget_surplus).
    pub(crate) fn go_on_as(&mut self, other: &FlowTable) {
        self.flows.set_limit(other.flows.limit());
        self.tells_ports_apart = other.tells_ports_apart;
    }

    /// Looks up the connection of a packet in this direction. `continues` compares a packet with a stream. If the
    /// headers and the ingress match, `continues` returns the changed fields and the stream's connection.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        packet: &Packet,
        direction: usize,
        takes_udp: bool,
        continues: impl Fn(Handle, &Packet) -> Option<(TcpSegmentFacts, Handle)>,
    ) -> Found {
        let is_of_one = packet.ip().upper.is_some_and(|it| it.protocol == TCP || takes_udp && it.protocol == UDP);
        let Some(hash) = FlowHash::of(packet).filter(|_| is_of_one) else { return Found::Nothing };
        let Hint { stream, .. } = *self.hint(hash);
        if let Some((tcp, at)) = continues(stream, packet) {
            return Found::Alike { at, stream, tcp };
        }
        self.find_slot(hash, packet, direction, continues)
    }

    /// Looks up a connection by its key: the slow path after a wrong hint, or for a packet that differs from its
    /// stream.
    #[inline(never)]
    fn find_slot(
        &mut self,
        hash: FlowHash,
        packet: &Packet,
        direction: usize,
        continues: impl Fn(Handle, &Packet) -> Option<(TcpSegmentFacts, Handle)>,
    ) -> Found {
        let Some((key, facts)) = FlowKey::of(packet, direction, self.tells_ports_apart) else {
            return Found::Nothing;
        };
        let hinted = *self.hint(hash);
        let at = match self.flows.get_for_key(hinted.at, &key) {
            Some(_) => hinted.at,
            None => match self.flows.find(&key) {
                Some(at) => at,
                None => return Found::New(key, facts),
            },
        };
        let stream = self.stream(at, direction).unwrap_or(Handle::NONE);
        if (at, stream) != (hinted.at, hinted.stream) {
            *self.hint(hash) = Hint { at, stream };
        }
        if stream != hinted.stream
            && let Some((tcp, at)) = continues(stream, packet)
        {
            return Found::Alike { at, stream, tcp };
        }
        Found::Known(at, facts)
    }

    /// Returns the connection between these ends, without VLAN tags. Packets from the first end to the second are
    /// sent toward the side `toward`.
    pub(crate) fn between(&self, ends: [(Address, u16); 2], toward: Toward) -> Option<Handle> {
        self.flows.find(&FlowKey::between(ends, toward))
    }

    /// Returns the connection of a packet. An unknown connection gets an entry. `None` if the packet has no
    /// connection.
    pub(crate) fn open(&mut self, now: Time, packet: &Packet, found: &mut Found) -> Option<Handle> {
        let Found::New(key, facts) = *found else { return found.at() };
        let at = self.insert(now, key);
        self.remember(packet, Hint { at, stream: Handle::NONE });
        *found = Found::Known(at, facts);
        Some(at)
    }

    fn insert(&mut self, now: Time, key: FlowKey) -> Handle {
        // A connection without a handshake lives as long as its streams, which are charged separately.
        let at = self.flows.insert(now, key, Flow::default(), 0, SHORT_TIMEOUT);
        if 8 * self.flows.count() > self.hints.len() && self.hints.len() < HINT_COUNT_MAX {
            self.hints = no_hints(2 * self.hints.len());
        }
        at
    }

    /// Returns the key of a connection.
    pub(crate) fn key(&self, at: Handle) -> FlowKey {
        match self.flows.get_entry(at) {
            Some((key, _)) => *key,
            None => panic!("a connection that was found is known"),
        }
    }

    /// Returns the connection with this key.
    pub(crate) fn by_key(&self, key: &FlowKey) -> Option<Handle> {
        self.flows.find(key)
    }

    /// Returns the handshake of a connection. `None` if it is unknown.
    #[inline]
    pub(crate) fn handshake(&self, at: Handle) -> Option<&Handshake> {
        self.flows.get(at)?.handshake.as_ref()
    }

    /// Returns the handshake of a connection, mutable. `None` if it is unknown.
    #[inline]
    pub(crate) fn handshake_mut(&mut self, at: Handle) -> Option<&mut Handshake> {
        self.flows.slot_mut(at).handshake.as_mut()
    }

    /// Returns a connection's key, and its handshake, mutable. `None` if the handshake is unknown.
    #[inline]
    pub(crate) fn keyed_handshake_mut(&mut self, at: Handle) -> Option<(&FlowKey, &mut Handshake)> {
        let (key, flow) = self.flows.get_mut(at)?;
        Some((key, flow.handshake.as_mut()?))
    }

    /// Sets the handshake of a connection. The connection must not have a handshake yet.
    pub(crate) fn set_handshake(&mut self, at: Handle, handshake: Handshake) {
        self.flows.slot_mut(at).handshake = Some(handshake);
        self.flows.charge(at, FLOW_CHARGE);
        self.handshake_count += 1;
    }

    /// Returns the place for the segment sizing of an unfragmented TCP packet's connection, which is created if it
    /// is missing. `None` if the packet has no connection.
    pub(crate) fn sizing(
        &mut self,
        now: Time,
        packet: &Packet,
        direction: usize,
    ) -> Option<&mut Option<Box<FlowSizing>>> {
        let mut found = self.find(packet, direction, false, |_, _| None);
        let at = self.open(now, packet, &mut found)?;
        self.flows.charge(at, FLOW_CHARGE);
        self.flows.refresh(now, at, SIZING_TIMEOUT);
        Some(&mut self.flows.slot_mut(at).sizing)
    }

    /// Returns all connections with a known handshake.
    pub(crate) fn handshakes(&self) -> impl Iterator<Item = (&FlowKey, &Handshake)> {
        self.flows.entries().filter_map(|(key, flow)| Some((key, flow.handshake.as_ref()?)))
    }

    /// Returns the stream of a connection in a direction.
    #[inline]
    pub(crate) fn stream(&self, at: Handle, direction: usize) -> Option<Handle> {
        self.flows.get(at)?.stream(direction)
    }

    fn remember(&mut self, packet: &Packet, hint: Hint) {
        if let Some(hash) = FlowHash::of(packet) {
            *self.hint(hash) = hint;
        }
    }

    /// Records a new stream of a connection in this direction. `packet` is the first packet of the stream.
    pub(crate) fn begin(&mut self, at: Handle, direction: usize, stream: Handle, packet: &Packet) {
        self.remember(packet, Hint { at, stream });
        match self.flows.slot_mut(at).streams.get_mut(direction) {
            Some(place) => *place = Some(stream),
            None => panic!("a connection has two directions"),
        }
    }

    /// Records the end of a stream. Removes a connection without streams and without a handshake.
    pub(crate) fn end(&mut self, at: Handle, direction: usize, stream: Handle) {
        if let Some((_, flow)) = self.flows.get_mut(at)
            && let Some(place) = flow.streams.get_mut(direction)
            && place.take_if(|known| *known == stream).is_some()
            && flow.is_nothing()
        {
            self.flows.remove(at);
        }
    }

    /// Restarts the time-out of a connection.
    pub(crate) fn refresh(&mut self, now: Time, at: Handle, timeout: Duration) {
        self.flows.refresh(now, at, timeout);
    }

    /// Moves a connection that has just opened to the reserve, so that unopened connections are evicted first.
    pub(crate) fn move_to_reserve(&mut self, at: Handle) {
        self.flows.move_to_reserve(at);
    }

    /// Removes the state of connections that timed out, and calls `forgotten` for each handshake. A connection with streams stays.
    pub(crate) fn expire(&mut self, now: Time, mut forgotten: impl FnMut(&Handshake)) {
        // Every entry is visited at most one time: a connection that stays could time out again immediately.
        for _ in 0..self.flows.count() {
            let Some(at) = self.flows.overdue(now) else { return };
            if let Some(handshake) = self.forget_state(at) {
                forgotten(&handshake);
            }
            if self.flows.get_mut(at).is_some_and(|(_, flow)| !flow.is_nothing()) {
                self.flows.refresh(now, at, SHORT_TIMEOUT);
            }
        }
    }

    /// Whether the charges exceed the memory limit.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.flows.is_over_limit()
    }

    /// Removes the state of connections above the limit, and calls `forgotten` for each handshake. The hosts with
    /// the most connections lose theirs first. A connection with streams stays, because streams are charged separately.
    pub(crate) fn forget_surplus(&mut self, mut forgotten: impl FnMut(&Handshake)) {
        while let Some(at) = self.flows.over_limit() {
            self.forget_state(at).iter().for_each(&mut forgotten);
        }
    }

    /// Removes all handshakes. A connection with streams stays.
    pub(crate) fn forget_handshakes(&mut self) {
        let known = self.flows.entries().filter(|(_, flow)| flow.handshake.is_some());
        let known: Vec<_> = known.filter_map(|(key, _)| self.flows.find(key)).collect();
        for at in known {
            self.forget_state(at);
        }
    }

    /// Forgets all but the streams of a connection.
    fn forget_state(&mut self, at: Handle) -> Option<Handshake> {
        let flow = self.flows.slot_mut(at);
        let handshake = flow.handshake.take();
        flow.sizing = None;
        let is_nothing = flow.is_nothing();
        self.handshake_count -= usize::from(handshake.is_some());
        if is_nothing {
            self.flows.remove(at);
        } else {
            self.flows.charge(at, 0);
        }
        handshake
    }

    /// Returns the time at which [`expire`](FlowTable::expire) next has work.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.flows.next_deadline()
    }

    /// Returns the bytes charged against the limit.
    pub(crate) fn charged(&self) -> usize {
        self.flows.charged()
    }

    /// Returns the limit, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.flows.limit()
    }

    /// Returns the number of connections with a known handshake.
    pub(crate) fn handshake_count(&self) -> usize {
        self.handshake_count
    }

    /// Prefetches the hint for a packet.
    #[inline]
    pub(crate) fn prefetch_hint(&self, packet: &Packet) {
        if let Some(hash) = FlowHash::of(packet) {
            packet::prefetch_value(self.hint_at(hash));
        }
    }

    /// Returns the hinted stream of a packet. Prefetches the connection.
    #[inline]
    pub(crate) fn prefetch(&self, packet: &Packet) -> Option<Handle> {
        let Hint { at, stream } = *self.hint_at(FlowHash::of(packet)?);
        self.flows.prefetch(at);
        Some(stream)
    }

    /// Returns the hinted stream of a packet.
    #[inline]
    pub(crate) fn hinted_stream(&self, packet: &Packet) -> Option<Handle> {
        Some(self.hint_at(FlowHash::of(packet)?).stream)
    }

    /// Returns the number of hints.
    #[cfg(test)]
    pub(crate) fn hint_count(&self) -> usize {
        self.hints.len()
    }

    /// Returns the number of steps of the longest search for a connection by its key.
    #[cfg(test)]
    pub(crate) fn longest_search(&self) -> usize {
        self.flows.longest_search()
    }

    #[inline(always)]
    fn hint_at(&self, FlowHash(hash): FlowHash) -> &Hint {
        match self.hints.get(hash as usize & (self.hints.len() - 1)) {
            Some(hint) => hint,
            None => panic!("there is a power of two of hints"),
        }
    }

    #[inline(always)]
    fn hint(&mut self, FlowHash(hash): FlowHash) -> &mut Hint {
        let at = hash as usize & (self.hints.len() - 1);
        match self.hints.get_mut(at) {
            Some(hint) => hint,
            None => panic!("there is a power of two of hints"),
        }
    }
}

impl Flow {
    #[inline(always)]
    fn stream(&self, direction: usize) -> Option<Handle> {
        self.streams.get(direction).copied().flatten()
    }

    fn is_nothing(&self) -> bool {
        self.handshake.is_none() && self.sizing.is_none() && self.streams.iter().all(Option::is_none)
    }
}

impl Found {
    /// Returns the connection, if it is known.
    #[inline]
    pub(crate) fn at(&self) -> Option<Handle> {
        match self {
            Found::Nothing | Found::New(..) => None,
            Found::Known(at, _) | Found::Alike { at, .. } => Some(*at),
        }
    }

    /// Returns the numbers of a TCP segment. A segment that continues its stream has no other flag than ACK that
    /// matters here.
    #[inline]
    pub(crate) fn numbers(&self) -> Option<SegmentNumbers> {
        match self {
            Found::Alike { tcp, .. } => Some(SegmentNumbers { flags: tcp::ACK, seq: tcp.seq, ack: tcp.ack }),
            _ => self.facts().map(|facts| SegmentNumbers { flags: facts.flags, seq: facts.seq, ack: facts.ack }),
        }
    }

    /// Returns the facts of the TCP header, if it was parsed.
    pub(crate) fn facts(&self) -> Option<&TcpFacts> {
        match self {
            Found::Nothing | Found::Alike { .. } => None,
            Found::New(_, facts) | Found::Known(_, facts) => facts.as_ref(),
        }
    }
}

impl FlowKey {
    /// Returns the IP version of the connection.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Returns the key of the TCP connection whose packets from `wide` to `narrow` have these VLAN tags.
    pub(crate) fn toward_narrow(wide: (Address, u16), narrow: (Address, u16), tags: u64) -> FlowKey {
        FlowKey { tags, ..FlowKey::between([wide, narrow], Toward::Narrow) }
    }

    /// Returns the key of an unfragmented TCP or UDP packet, and the facts of its TCP header.
    #[inline]
    fn of(packet: &Packet, direction: usize, tells_ports_apart: bool) -> Option<(FlowKey, Option<TcpFacts>)> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| ip.fragment.is_none() && matches!(upper.protocol, TCP | UDP))?;
        let bytes = packet.upper_bytes(upper);
        let facts = if upper.protocol == TCP { TcpFacts::read(bytes) } else { None };
        let [from, to] = match facts {
            Some(facts) => facts.ports,
            None => {
                let &[s0, s1, d0, d1, ..] = bytes else { return None };
                [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])]
            }
        };
        let (source, destination) = packet.addresses();
        let [tags, port] = packet.l2_scope().words();
        let port = if tells_ports_apart { port } else { 0 };
        let (narrow, wide, ports) = match Toward::of_direction(direction) {
            Toward::Wide => (source, destination, [from, to]),
            Toward::Narrow => (destination, source, [to, from]),
        };
        let (version, protocol) = (ip.version, upper.protocol);
        Some((FlowKey { narrow, wide, ports, version, protocol, tags, port }, facts))
    }

    /// Returns the key of a TCP connection without VLAN tags. Packets from the first end to the second are sent
    /// toward the side `toward`.
    pub(crate) fn between([from, to]: [(Address, u16); 2], toward: Toward) -> FlowKey {
        let [narrow, wide] = match toward {
            Toward::Wide => [from, to],
            Toward::Narrow => [to, from],
        };
        let ports = [narrow.1, wide.1];
        let version = if IpAddr::from(narrow.0).is_ipv4() { Version::V4 } else { Version::V6 };
        FlowKey { narrow: narrow.0, wide: wide.0, ports, version, protocol: TCP, tags: 0, port: 0 }
    }
}

impl Key for FlowKey {
    fn source(&self) -> Address {
        self.narrow
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let [narrow, wide] = [self.narrow, self.wide].map(Address::number);
        let [narrow_port, wide_port] = self.ports.map(u64::from);
        let ports = narrow_port | wide_port << 16 | u64::from(self.protocol) << 32 | (self.version as u64) << 40;
        let [narrow, narrow_high, wide, wide_high] =
            [narrow as u64, (narrow >> 64) as u64, wide as u64, (wide >> 64) as u64];
        table.hash([narrow, narrow_high, wide, wide_high, ports, self.tags, self.port, 0])
    }
}

impl FlowHash {
    /// Returns the hash of a TCP or UDP packet. For a fragment or a truncated packet, the hash may be that of
    /// another flow.
    #[inline(always)]
    fn of(packet: &Packet) -> Option<FlowHash> {
        let upper = packet.ip().upper.filter(|upper| matches!(upper.protocol, TCP | UDP))?;
        let front = packet.bytes().get(usize::from(upper.at).checked_sub(8)?..)?.first_chunk::<12>()?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, p0, p1, p2, p3] = *front;
        let addresses = u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let ports = u64::from(u32::from_ne_bytes([p0, p1, p2, p3]));
        // The upper half of a product depends on every bit (Fibonacci hashing).
        Some(FlowHash(((addresses.rotate_left(17) ^ ports).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32))
    }
}

fn no_hints(count: usize) -> Box<[Hint]> {
    vec![Hint { at: Handle::NONE, stream: Handle::NONE }; count].into_boxed_slice()
}

/// Time-out of an idle connection: two hours and four minutes (RFC 5382 section 5, REQ-5).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(7_440);
/// Time-out of a connection that has not opened, or is closing: four minutes (RFC 5382 section 5, REQ-5).
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_secs(240);
/// Time-out of the segment length of an idle connection: twice the time after which the slowest policy raises it.
const SIZING_TIMEOUT: Duration = Duration::from_secs(1_200);
/// Charge of a connection with a handshake, in bytes: its slot, its source and their table entries.
pub const FLOW_CHARGE: usize = 512;
/// Minimum number of hints, a power of two.
const HINT_COUNT_MIN: usize = 1 << 12;
/// Maximum number of hints, a power of two.
const HINT_COUNT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Frame, Ingress, LinkType, Pool, Sum};

    #[test]
    fn connections_of_one_pair_of_hosts_differ_in_both_hashes_by_either_port() {
        let mut pool = Pool::new(1 << 20);
        let table = TableKey::new(Secret::new(5));
        let mut look = |source: u16, destination: u16| {
            let mut frame = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let checksum = Sum::of(&frame).checksum();
            frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([source.to_be_bytes(), destination.to_be_bytes()].concat());
            frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
            let packet = Frame::copy(&frame, LinkType::Ip, Ingress(0), &mut pool).unwrap();
            let (key, _) = FlowKey::of(&packet, 0, true).unwrap();
            let FlowHash(hash) = FlowHash::of(&packet).unwrap();
            pool.give(packet.into_buffer());
            (key.hash(&table), hash)
        };
        let (by_key, by_hint) = look(1, 1);
        for port in (1..16).map(|bit| 1 | 1 << bit) {
            for (other_by_key, other_by_hint) in [look(port, 1), look(1, port)] {
                assert!(by_key != other_by_key && by_hint != other_by_hint, "{port}");
            }
        }
    }

    #[test]
    fn every_part_of_a_flow_key_changes_its_hash() {
        let table = TableKey::new(Secret::new(5));
        let address = |site| Address::from(core::net::IpAddr::from([10, 0, site, 1]));
        let key = FlowKey::between([(address(1), 7), (address(2), 8)], Toward::Wide);
        let others = [
            FlowKey { narrow: address(3), ..key },
            FlowKey { wide: address(3), ..key },
            FlowKey { ports: [9, 8], ..key },
            FlowKey { ports: [7, 9], ..key },
            FlowKey { protocol: UDP, ..key },
            FlowKey { version: Version::V6, ..key },
            FlowKey { tags: 1, ..key },
            FlowKey { port: 1, ..key },
        ];
        others.iter().for_each(|other| assert_ne!(other.hash(&table), key.hash(&table), "{other:?}"));
    }
}
