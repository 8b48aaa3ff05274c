//! TCP segments and UDP datagrams of a stream -> GSO packets: one header for many segments (Li; RFC 9293,
//! RFC 7323).
//!
//! A stream is one direction of a connection, and has at most one open run. A segment that continues the run is
//! appended to the run's first packet, whose buffer grows. Any other packet closes the run.
//!
//! - In *reversible* mode, a segment joins only if its complete header follows from the header of the first
//!   segment. Segmentation of the GSO packet then restores every packet byte for byte.
//! - In *resize* mode, only the byte stream is preserved. Acknowledgement number, window and timestamp echo are
//!   those of the last segment. Early segments wait in a queue until the gap is closed (L7, L8).
//!
//! The coalescer drops no packet. A packet that does not join is forwarded unchanged, behind all earlier packets of
//! its stream. Only the payload of joining segments is copied.

mod may_join;
mod reorder;
mod run;
mod send_window;
mod stream;

use crate::connections::Connections;
use crate::flows::{FlowKey, Found};
use crate::keyed_hash::Secret;
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Exempt, Hold, Mode, Rules, Toggle};
use crate::sink::{CopyPayload, PayloadSink};
use crate::table::{FairQueue, Handle};
use core::time::Duration;
use may_join::may_wait;
use packet::{Frame, Packet, SegmentFacts, TcpFacts, TcpSegmentFacts, Time, tcp};
use reorder::ReorderSlab;
use stream::{ADAPTIVE_HOLD_MAX, HOLD_MIN, Outcome, STREAM_CHARGE, Stream};

/// Coalesces the segments of each stream into GSO packets. The connection table contains the handles of the
/// streams.
#[derive(Debug)]
pub struct Coalescer {
    streams: FairQueue<Stream>,
    /// Streams that became active at the present time (see [`moment`](Coalescer::moment)) and have no early
    /// segments. Some may have released their packets already. `streams` lists them as idle. Most of a burst is
    /// released before the time advances, and so costs no queue operations.
    ///
    /// Invariant: exactly these streams have `is_in_burst` set.
    burst: Vec<Handle>,
    moment: Time,
    /// The early segments of all streams.
    places: ReorderSlab,
    rules: Rules,
    limit: usize,
    exempt: Vec<Exempt>,
    /// The number of the direction whose packets are coalesced.
    direction: usize,
    /// Numbers of streams with held packets, indexed by a hash of the two addresses. Needed for fragments, which do
    /// not identify their stream.
    pairs: Box<[u32]>,
    secret: Secret,
}

impl Coalescer {
    /// Creates a coalescer for a gateway's first direction, with a memory limit of `limit` bytes.
    ///
    /// # Panics
    /// If the hold time of a run exceeds the time-out of an idle stream.
    pub fn new(limit: usize, rules: Rules, exempt: Vec<Exempt>, secret: Secret) -> Coalescer {
        let holds: &[Duration] = match &rules.hold {
            Hold::Adaptive => &HOLDS,
            Hold::Fixed(stretch) => core::slice::from_ref(stretch),
        };
        assert!(holds.iter().all(|hold| *hold < IDLE), "a stream is remembered longer than its runs wait");
        let timeouts = [holds, &[IDLE]].concat();
        Coalescer {
            streams: FairQueue::new(limit, &timeouts, secret),
            burst: Vec::with_capacity(FRESH_MAX),
            moment: Time::ZERO,
            places: ReorderSlab::new(),
            rules,
            limit,
            exempt,
            direction: 0,
            pairs: vec![0; PAIR_COUNT].into_boxed_slice(),
            secret,
        }
    }

    /// Sets the number of the direction whose packets are coalesced.
    pub fn in_direction(self, direction: usize) -> Coalescer {
        Coalescer { direction, ..self }
    }

    /// Whether segments of GSO packets may have other lengths than the received segments.
    pub(crate) fn resizes(&self) -> bool {
        self.rules.mode == Mode::Resize
    }

    /// Sets the hash key of the tables.
    pub fn with_table_key(mut self, key: Secret) -> Coalescer {
        self.streams.set_key(key);
        self.secret = key;
        self
    }

    /// Looks up the connection of a packet, and compares the packet's headers with those that the stream expects.
    #[inline(always)]
    pub(crate) fn find(&self, connections: &mut Connections, packet: &Packet) -> Found {
        let continues = |at, packet: &Packet| {
            let stream = self.streams.get(at)?;
            Some((stream.match_next(packet)?, stream.connection))
        };
        connections.flows.find(packet, self.direction, self.rules.udp, continues)
    }

    /// Takes a packet. A segment joins its stream's run or starts a new one. Any other packet is forwarded behind
    /// the held packets of its stream.
    pub fn push(&mut self, now: Time, packet: Packet, connections: &mut Connections, out: &mut impl Next) {
        self.push_with(now, packet, connections, out, &mut CopyPayload);
    }

    /// Takes a packet as [`push`](Coalescer::push) does, with another [`PayloadSink`]. The sink only moves payloads
    /// on the fast path, for segments whose headers continue the stream's headers.
    #[inline]
    pub fn push_with(
        &mut self,
        now: Time,
        packet: Packet,
        connections: &mut Connections,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let found = self.find(connections, &packet);
        self.push_found(now, packet, found, connections, out, sink);
    }

    /// Takes a packet whose connection was looked up before.
    #[inline(always)]
    pub(crate) fn push_found(
        &mut self,
        now: Time,
        packet: Packet,
        found: Found,
        connections: &mut Connections,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        self.set_now(now);
        if let Found::Alike { stream, tcp, .. } = found {
            self.push_alike(now, stream, packet, tcp, connections, out, sink);
        } else {
            self.push_unlike(now, packet, found, connections, out);
        }
    }

    /// Takes a segment whose headers continue those of its stream.
    #[expect(clippy::too_many_arguments, reason = "all that a segment that joins needs")]
    #[inline(always)]
    fn push_alike(
        &mut self,
        now: Time,
        at: Handle,
        packet: Packet,
        tcp: TcpSegmentFacts,
        connections: &mut Connections,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let stream = self.streams.slot_mut(at);
        let held_something = stream.holds_something();
        match stream.match_header(now, packet, tcp, &self.rules, out, sink) {
            Outcome::Coalesced => {}
            Outcome::Changed => self.follow(now, at, held_something, false, connections, out),
            Outcome::Not(packet) => {
                let facts = packet.tcp_facts();
                self.push_to(now, at, packet, facts.as_ref(), connections, out);
            }
        }
    }

    /// Takes a packet without a stream, or with headers that differ from its stream's.
    #[inline(never)]
    fn push_unlike(
        &mut self,
        now: Time,
        packet: Packet,
        mut found: Found,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        if let Found::Nothing = found {
            return self.pass_flowless(now, packet, connections, out);
        }
        let facts = found.facts().copied();
        let stream = found.at().and_then(|at| connections.flows.stream(at, self.direction));
        if let Some(at) = stream {
            if self.streams.slot_mut(at).came_from(&packet) {
                return self.push_to(now, at, packet, facts.as_ref(), connections, out);
            }
            // The ingress port or the VLAN tags changed, so the former stream ends here.
            self.end(now, at, Event::RunInterrupted, connections, out);
            found = self.find(connections, &packet);
        }
        match part(&packet, facts.as_ref(), &self.rules) {
            Some(part) => {
                let next_seq = part.tcp.map_or(0, |tcp| tcp.seq);
                match self.open(now, &mut found, &packet, next_seq, connections) {
                    Some(at) => self.advance(now, at, packet, part, connections, out),
                    None => out.forward(packet),
                }
            }
            None => self.pass(now, None, packet, found, facts.as_ref(), connections, out),
        }
    }

    /// Takes a packet of a known stream.
    fn push_to(
        &mut self,
        now: Time,
        at: Handle,
        packet: Packet,
        facts: Option<&TcpFacts>,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        match part(&packet, facts, &self.rules) {
            Some(part) => self.advance(now, at, packet, part, connections, out),
            None => {
                let found = Found::Known(self.streams.slot_mut(at).connection, facts.copied());
                self.pass(now, Some(at), packet, found, facts, connections, out);
            }
        }
    }

    /// Sets the present time.
    #[inline]
    fn set_now(&mut self, now: Time) {
        if now != self.moment {
            self.file_burst();
            self.moment = now;
        }
    }

    /// Updates the time-outs and the memory charges in `streams` for all streams of the burst.
    fn file_burst(&mut self) {
        let mut fresh = core::mem::take(&mut self.burst);
        fresh.drain(..).for_each(|at| self.file_stream(at));
        self.burst = fresh;
    }

    fn file_stream(&mut self, at: Handle) {
        let stream = self.streams.slot_mut(at);
        stream.is_in_burst = false;
        let (holds_something, pair) = (stream.holds_something(), stream.pair);
        self.queue_flow(self.moment, at, false);
        self.count_pair(pair, false, holds_something);
    }

    /// Whether the charges stay within the limit even if all streams of the burst, and `more` others, reach their
    /// maximum charge.
    fn has_room_for(&self, more: usize) -> bool {
        self.streams.charged() + (self.burst.len() + more) * FRESH_LEN_MAX <= self.limit
    }

    /// Evicts streams until the memory limit is met.
    fn enforce_limit(&mut self, now: Time, connections: &mut Connections, out: &mut impl Next) {
        if self.has_room_for(0) {
            return;
        }
        self.file_burst();
        while let Some(at) = self.streams.over_limit() {
            self.evict(now, at, Event::RunEvicted, connections, out);
        }
    }

    /// Releases packets whose hold time is over, and removes streams that were idle too long.
    pub fn expire(&mut self, now: Time, connections: &mut Connections, out: &mut impl Next) {
        self.set_now(now);
        self.file_burst();
        while let Some(at) = self.streams.overdue(now) {
            self.evict(now, at, Event::RunTimeout, connections, out);
        }
    }

    /// Releases all held packets, because the port has no more packets or the input has ended.
    pub fn release(&mut self, now: Time, connections: &mut Connections, out: &mut impl Next) {
        self.set_now(now);
        while let Some(at) = self.streams.oldest_within(self.longest_hold()) {
            self.flush_stream(now, at, Event::RunAtEnd, connections, out);
        }
        let mut fresh = core::mem::take(&mut self.burst);
        for at in fresh.drain(..) {
            self.flush_burst_stream(now, at, out);
        }
        self.burst = fresh;
    }

    fn flush_burst_stream(&mut self, now: Time, at: Handle, out: &mut impl Next) {
        let stream = self.streams.slot_mut(at);
        stream.close(Event::RunAtEnd, &self.rules, out);
        stream.is_in_burst = false;
        if stream.idle_since != now {
            stream.idle_since = now;
            self.streams.refresh(now, at, IDLE);
        }
    }

    /// Ends a stream. Its held packets are forwarded, and counted under `event`.
    fn end(&mut self, now: Time, at: Handle, event: Event, connections: &mut Connections, out: &mut impl Next) {
        self.flush_stream(now, at, event, connections, out);
        if self.streams.get(at).is_some() {
            self.forget(at, connections);
        }
    }

    /// Removes all streams from the connection table. The streams must not hold packets.
    pub(crate) fn forget_all(self, connections: &mut Connections) {
        self.streams
            .entries()
            .for_each(|(at, stream)| connections.flows.end(stream.connection, self.direction, at));
    }

    /// Returns the time at which [`expire`](Coalescer::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        let fresh = self.burst_streams().map(|stream| self.moment + self.hold_timeout(stream));
        fresh.chain(self.streams.next_deadline()).min()
    }

    fn burst_streams(&self) -> impl Iterator<Item = &Stream> {
        let streams = self.burst.iter().filter_map(|at| self.streams.get(*at));
        streams.filter(|stream| stream.holds_something())
    }

    /// Returns the time-out that `streams` applies to this stream while it holds packets.
    fn hold_timeout(&self, stream: &Stream) -> Duration {
        let hold = stream.hold(&self.rules);
        match self.rules.hold {
            Hold::Adaptive => HOLDS.into_iter().rfind(|timeout| *timeout <= hold).unwrap_or(HOLD_MIN),
            Hold::Fixed(_) => hold,
        }
    }

    /// Whether no packet is held.
    pub fn is_empty(&self) -> bool {
        // The time-out of a stream with held packets is at most the longest hold time.
        self.burst_streams().next().is_none() && self.streams.oldest_within(self.longest_hold()).is_none()
    }

    /// Sets whether later segments are coalesced if their packets exceed `len_max`.
    pub(crate) fn set_longer(&mut self, longer: Toggle) {
        self.rules.longer = longer;
    }

    /// Recounts the held packets with their payload bytes, and their buffers.
    pub fn held(&self) -> (Tally, usize) {
        let (mut tally, mut buffers) = (Tally::NONE, 0);
        for (held, count) in self.streams.values().map(|stream| stream.held(&self.places)) {
            tally += held;
            buffers += count;
        }
        (tally, buffers)
    }

    /// Returns the bytes charged against the limit.
    pub fn charged(&self) -> usize {
        let fresh = self.burst_streams().map(|stream| stream.charge(&self.places) - STREAM_CHARGE);
        self.streams.charged() + fresh.sum::<usize>()
    }

    /// Returns the number of known streams.
    pub fn flow_count(&self) -> usize {
        self.streams.count()
    }

    /// Prefetches data for later frames, at fixed distances: packets, hints, connections and streams, and payload
    /// positions.
    #[inline]
    pub fn prefetch(&self, frames: &[Frame], connections: &Connections, sink: &impl PayloadSink) {
        if self.streams.count() > NEAR_COUNT {
            self.prefetch_far(frames, connections, sink);
        }
    }

    fn prefetch_far(&self, frames: &[Frame], connections: &Connections, sink: &impl PayloadSink) {
        let packet_at = |index: usize| frames.get(index).and_then(Frame::packet);
        let flows = &connections.flows;
        if let Some(packet) = packet_at(5 * FORESIGHT) {
            packet.prefetch();
        }
        if let Some(packet) = packet_at(4 * FORESIGHT) {
            packet::prefetch(packet.header());
        }
        if let Some(packet) = packet_at(3 * FORESIGHT) {
            flows.prefetch_hint(packet);
        }
        if let Some(at) = packet_at(2 * FORESIGHT).and_then(|packet| flows.prefetch(packet)) {
            self.streams.prefetch(at);
        }
        let stream_of = |packet| self.streams.get(flows.hinted_stream(packet)?);
        if let Some(stream) = packet_at(FORESIGHT).and_then(stream_of) {
            stream.prefetch();
        }
        if let Some(packet) = packet_at(FORESIGHT / 2)
            && let Some((place, payload_at)) = stream_of(packet).and_then(|stream| stream.prefetched_place())
            && let Some(payload) = packet.bytes().get(payload_at..)
        {
            sink.prefetch(place, payload);
        }
    }

    /// Creates the stream of a packet. `None` if the packet has no connection.
    fn open(
        &mut self,
        now: Time,
        found: &mut Found,
        packet: &Packet,
        next_seq: u32,
        connections: &mut Connections,
    ) -> Option<Handle> {
        let connection = connections.flows.open(now, packet, found)?;
        let is_exempt = !self.exempt.is_empty()
            && self.exempt.iter().any(|exempt| covers(exempt, &connections.flows.key(connection)));
        let pair = pair_of(self.secret, packet);
        let stream = Stream::new(now, packet, connection, next_seq, pair, is_exempt, &self.rules);
        let at = self.streams.insert(now, stream, STREAM_CHARGE, IDLE);
        connections.flows.begin(connection, self.direction, at, packet);
        Some(at)
    }

    /// Takes a segment that may join the run of its stream.
    fn advance(
        &mut self,
        now: Time,
        at: Handle,
        packet: Packet,
        part: SegmentFacts,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        let stream = self.streams.slot_mut(at);
        let (held_something, waited) = (stream.holds_something(), stream.waits());
        let gap = stream.arrive(now);
        if stream.is_exempt {
            out.forward(packet);
            return self.enforce_limit(now, connections, out);
        }
        if stream.watches(gap) && part.tcp.is_some() {
            stream.pause(now, gap, stream.next_seq(), part.payload_len, held_something, &self.rules);
        }
        stream.take(now, packet, part, &self.rules, &mut self.places, out);
        self.follow(now, at, held_something, waited, connections, out);
    }

    /// Updates the time-out and the memory charge of a stream that took a segment.
    fn follow(
        &mut self,
        now: Time,
        at: Handle,
        held_something: bool,
        waited: bool,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        let stream = self.streams.slot_mut(at);
        let (holds_something, waits, pair) = (stream.holds_something(), stream.waits(), stream.pair);
        let (is_over, was_fresh) = (stream.is_over, stream.is_in_burst);
        if was_fresh && !is_over && !waits {
            return;
        }
        self.leave_burst(at);
        let held_something = held_something && !was_fresh;
        if is_over {
            self.remove(at, connections);
        } else if !held_something && holds_something && !waits && self.may_join_burst() {
            self.streams.slot_mut(at).is_in_burst = true;
            return self.burst.push(at);
        } else {
            self.queue_flow(now, at, waited && waits);
        }
        self.count_pair(pair, held_something, holds_something);
        self.enforce_limit(now, connections, out);
    }

    /// Updates the time-out and the memory charge of a stream in `streams`. The first segment behind a gap sets the
    /// gap's deadline. Later segments do not change this deadline.
    fn queue_flow(&mut self, now: Time, at: Handle, waits_on: bool) {
        let stream = self.streams.slot_mut(at);
        let charge = stream.charge(&self.places);
        let (hold, idle_since) =
            if stream.holds_something() { (stream.hold(&self.rules), Time::NEVER) } else { (IDLE, now) };
        if !waits_on {
            stream.idle_since = idle_since;
            self.streams.refresh(now, at, hold);
        }
        self.streams.charge(at, charge);
    }

    fn forget(&mut self, at: Handle, connections: &mut Connections) {
        self.leave_burst(at);
        self.remove(at, connections);
    }

    /// Removes a stream. The stream must not hold packets.
    fn remove(&mut self, at: Handle, connections: &mut Connections) {
        let stream = self.streams.remove(at);
        assert!(!stream.holds_something(), "a stream lets go of all that it holds before it is removed");
        connections.flows.end(stream.connection, self.direction, at);
    }

    /// Removes a stream from the burst.
    fn leave_burst(&mut self, at: Handle) {
        if core::mem::take(&mut self.streams.slot_mut(at).is_in_burst) {
            self.burst.retain(|fresh| *fresh != at);
        }
    }

    /// Whether another stream may join the burst, so that `streams` is not updated yet. False if held segments time
    /// out immediately, or if memory is short.
    fn may_join_burst(&mut self) -> bool {
        if self.burst.len() >= FRESH_MAX {
            self.file_burst();
        }
        self.rules.hold != Hold::Fixed(Duration::ZERO) && self.has_room_for(1)
    }

    /// Takes a packet that does not join. All earlier packets of its stream are forwarded first.
    #[expect(clippy::too_many_arguments, reason = "all that a packet says that joins nothing")]
    fn pass(
        &mut self,
        now: Time,
        at: Option<Handle>,
        packet: Packet,
        mut found: Found,
        facts: Option<&TcpFacts>,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        let says = ControlInfo::of(&packet, facts);
        if let Some(at) = at {
            self.flush_stream(now, at, Event::RunInterrupted, connections, out);
        }
        // The release of the run may have ended the stream, and removed its connection.
        let at = match at.filter(|at| self.streams.get(*at).is_some()) {
            Some(at) => Some(at),
            None => match says.next_seq.filter(|_| says.opens) {
                Some(next_seq) => {
                    if at.is_some() {
                        found = self.find(connections, &packet);
                    }
                    self.open(now, &mut found, &packet, next_seq, connections)
                }
                None => None,
            },
        };
        if let Some(at) = at {
            match says.next_seq {
                _ if says.ends => self.forget(at, connections),
                Some(next_seq) => self.streams.slot_mut(at).advance_next_seq(next_seq, says.opens),
                None => {}
            }
        }
        out.forward(packet);
        self.enforce_limit(now, connections, out);
    }

    /// Takes a packet without ports. A fragment may belong to any stream between its two addresses.
    fn pass_flowless(&mut self, now: Time, packet: Packet, connections: &mut Connections, out: &mut impl Next) {
        if packet.ip().fragment.is_some() && self.holds_something_of(&packet) {
            while let Some(at) = self.streams.oldest_within(self.longest_hold()) {
                self.flush_stream(now, at, Event::RunInterrupted, connections, out);
            }
        }
        out.forward(packet);
    }

    /// Handles a time-out or a lack of memory. The held packets are forwarded. A stream without held packets is
    /// removed.
    fn evict(&mut self, now: Time, at: Handle, event: Event, connections: &mut Connections, out: &mut impl Next) {
        if self.streams.slot_mut(at).holds_something() {
            self.flush_stream(now, at, event, connections, out);
        } else {
            self.forget(at, connections);
        }
    }

    /// Releases the held packets of a stream.
    fn flush_stream(
        &mut self,
        now: Time,
        at: Handle,
        event: Event,
        connections: &mut Connections,
        out: &mut impl Next,
    ) {
        let stream = self.streams.slot_mut(at);
        if !stream.holds_something() {
            return;
        }
        stream.flush(now, event, &self.rules, &mut self.places, out);
        let (is_over, is_fresh, pair) = (stream.is_over, stream.is_in_burst, stream.pair);
        if !is_fresh {
            stream.idle_since = now;
            self.count_pair(pair, true, false);
        }
        if is_over {
            self.remove(at, connections);
        } else if !is_fresh {
            self.streams.charge(at, STREAM_CHARGE);
            self.streams.refresh(now, at, IDLE);
        }
    }

    /// Whether a packet may be held between the addresses of this packet. Other address pairs may have an equal
    /// hash.
    fn holds_something_of(&mut self, packet: &Packet) -> bool {
        self.file_burst();
        let pair = usize::from(pair_of(self.secret, packet));
        self.pairs.get(pair).is_some_and(|holding| *holding > 0)
    }

    fn longest_hold(&self) -> Duration {
        match self.rules.hold {
            Hold::Adaptive => ADAPTIVE_HOLD_MAX,
            Hold::Fixed(stretch) => stretch,
        }
    }

    fn count_pair(&mut self, pair: u16, held: bool, holds: bool) {
        if let Some(count) = self.pairs.get_mut(usize::from(pair)) {
            *count = *count - u32::from(held) + u32::from(holds);
        }
    }
}

/// Returns the facts of a packet that may be held for later packets, or join earlier packets. GSO packets are
/// forwarded without summing their payload.
fn part(packet: &Packet, facts: Option<&TcpFacts>, rules: &Rules) -> Option<SegmentFacts> {
    let part = if packet.is_single() { SegmentFacts::with(packet, facts) } else { None };
    part.filter(|part| may_wait(packet, rules, || part.canonical))
}

/// The effect that a packet has on its stream, if the packet does not join.
#[derive(Clone, Copy, Debug, Default)]
struct ControlInfo {
    opens: bool,
    ends: bool,
    next_seq: Option<u32>,
}

impl ControlInfo {
    fn of(packet: &Packet, facts: Option<&TcpFacts>) -> ControlInfo {
        let Some(facts) = facts else { return ControlInfo::default() };
        let (opens, ends) = (facts.flags & tcp::SYN != 0, facts.flags & (tcp::RST | tcp::FIN) != 0);
        let says_something = opens || ends || facts.payload_len > 0;
        // A damaged packet has no effect.
        if !says_something || !matches!(packet.checksum_error().fold(), 0 | 0xFFFF) {
            return ControlInfo::default();
        }
        let len = facts.payload_len + u32::from(opens);
        ControlInfo { opens, ends, next_seq: Some(facts.seq.wrapping_add(len)) }
    }
}

/// Whether this exemption covers the connection.
fn covers(exempt: &Exempt, key: &FlowKey) -> bool {
    exempt.covers([key.narrow, key.wide], key.ports)
}

fn pair_of(secret: Secret, packet: &Packet) -> u16 {
    let (source, destination) = packet.addresses();
    let pair = secret.spread(source.number()) ^ secret.spread(destination.number().rotate_left(64));
    (pair % PAIR_COUNT as u64) as u16
}

/// Maximum number of streams in a burst.
const FRESH_MAX: usize = 128;
/// Distance between a prefetch and its use, in packets: enough for data to arrive from main memory.
const FORESIGHT: usize = 4;
/// Number of streams that stay in the CPU's cache without prefetching.
const NEAR_COUNT: usize = 128;
/// Maximum charge of a stream in a burst, in addition to the charge of an idle stream, in bytes: the largest
/// buffer.
const FRESH_LEN_MAX: usize = packet::HEADROOM + 65_536 + 65_536 / 64;
/// Number of counters for address pairs with held packets.
const PAIR_COUNT: usize = 1_024;
/// The hold times of [`Hold::Adaptive`]. Each is a time-out class of `streams`.
const HOLDS: [Duration; 6] = [
    HOLD_MIN,
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(400),
    Duration::from_micros(700),
    ADAPTIVE_HOLD_MAX,
];
/// Time-out of a stream without held packets. It exceeds every hold time.
const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;
    use fastrand::Rng;
    use packet::ip::{TCP, pseudo_sum};
    use packet::{Address, Checksum, Frame, Ingress, LinkType, Pool, Sum};

    const TEST_HOLDS: [Hold; 3] =
        [Hold::Adaptive, Hold::Fixed(Duration::from_micros(300)), Hold::Fixed(Duration::from_millis(5))];

    #[test]
    fn header_match_and_burst_do_not_change_the_output() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let rules = Rules {
                mode: *random.choice(&[Mode::Reversible, Mode::Resize]).unwrap(),
                hold: *random.choice(&TEST_HOLDS).unwrap(),
                len_max: *random.choice(&[1_000, 4_000, 65_535]).unwrap(),
                longer: *random.choice(&[Toggle::Off, Toggle::On]).unwrap(),
                udp: false,
            };
            let mut glancing = Half::new(&rules, false);
            let mut close = Half::new(&rules, true);
            let mut talks: Vec<Talk> = (0..random.usize(1..8)).map(|port| Talk::new(port, &mut random)).collect();
            let mut now = Time::from_nanos(1_000_000_000);
            for step in 0..400 {
                if random.u8(..5) == 0 {
                    now = now + Duration::from_micros(*random.choice(&[1, 7, 40, 400, 3_000]).unwrap());
                }
                let what = random.u8(..40);
                let at = random.usize(..talks.len());
                let talk = &mut talks[at];
                let frame = talk.say(&mut random);
                let checksum = match random.u8(..10) {
                    0 => Checksum::Partial,
                    1..4 => Checksum::Unverified,
                    _ => Checksum::Verified,
                };
                // Some packets were reassembled from fragments.
                let came_as = [None, None, None, None, None, Some(300), Some(300), Some(516)][random.usize(..8)];
                let [one, other] = [&mut glancing, &mut close].map(|half| {
                    half.came_as = came_as;
                    half.step(now, what, &frame, checksum)
                });
                assert!(one == other, "seed {seed}, step {step}: {}", difference(&one, &other));
                let (early, late) = (glancing.coalescer.next_deadline(), close.coalescer.next_deadline());
                let holds_something = close.coalescer.held().1 > 0;
                assert!(
                    if holds_something { early == late } else { early <= late },
                    "seed {seed}, step {step}: {early:?}, {late:?}"
                );
            }
            let [one, other] = [&mut glancing, &mut close].map(|half| half.step(now, 0, &[], Checksum::Verified));
            assert!(one == other, "seed {seed}, at the end: {}", difference(&one, &other));
            assert_eq!(glancing.coalescer.charged(), STREAM_CHARGE * glancing.coalescer.flow_count());
            assert!(glancing.coalescer.pairs.iter().all(|holding| *holding == 0), "seed {seed}");
            assert_eq!(glancing.out.pool.in_use_count(), 0, "seed {seed}");
        }
    }

    #[test]
    fn matched_segments_are_copied_by_the_given_sink() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let mut talk = Talk::new(3, &mut random);
        let mut read = || {
            let frame = talk.frame(500, 0x10, 30, &mut random);
            (talk.seq, talk.id) = (talk.seq.wrapping_add(500), talk.id + 1);
            let mut packet = Frame::copy(&frame, LinkType::Ip, Ingress(0), &mut half.out.pool).unwrap();
            packet.checksum = Checksum::Verified;
            packet
        };
        let packets: Vec<Packet> = (0..40).map(|_| read()).collect();
        let mut laid_count = 0;
        let mut sink = |place: &mut [u8], payload: &[u8]| {
            place.copy_from_slice(payload);
            laid_count += 1;
        };
        for packet in packets {
            half.coalescer.push_with(Time::from_nanos(1), packet, &mut half.connections, &mut half.out, &mut sink);
        }
        // The first one starts the run.
        assert_eq!(laid_count, 39);
    }

    #[test]
    fn there_are_hints_for_every_flow() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let talk = Talk::new(3, &mut random);
        let mut frame = talk.frame(100, 0x10, 30, &mut random);
        for port in 0..5_000_u16 {
            frame[20..22].copy_from_slice(&port.to_be_bytes());
            half.push(Time::from_nanos(1), &frame, Checksum::Verified);
            half.drain();
            assert!(half.connections.flows.hint_count() >= 8 * half.coalescer.flow_count());
        }
        assert_eq!(half.coalescer.flow_count(), 5_000);
        let steps = half.connections.flows.longest_search();
        assert!(steps < 80, "a flow is found after {steps} others");
    }

    #[test]
    fn a_flow_is_kept_for_a_minute_after_its_last_packet() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let mut talk = Talk::new(3, &mut random);
        let mut now = Time::from_nanos(1);
        for _ in 0..4 {
            now = now + IDLE - Duration::from_secs(1);
            half.coalescer.expire(now, &mut half.connections, &mut half.out);
            let frame = talk.frame(500, 0x10, 30, &mut random);
            (talk.seq, talk.id) = (talk.seq.wrapping_add(500), talk.id + 1);
            half.push(now, &frame, Checksum::Verified);
            half.coalescer.release(now, &mut half.connections, &mut half.out);
            assert_eq!(half.drain().len(), 1);
            assert_eq!(half.coalescer.next_deadline(), Some(now + IDLE));
        }
        half.coalescer.expire(now + IDLE - Duration::from_nanos(1), &mut half.connections, &mut half.out);
        assert_eq!(half.coalescer.flow_count(), 1);
        half.coalescer.expire(now + IDLE, &mut half.connections, &mut half.out);
        assert_eq!(half.coalescer.flow_count(), 0);
    }

    fn usual() -> Rules {
        Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max: 65_535, longer: Toggle::Off, udp: false }
    }

    #[test]
    fn pairs_and_directions_are_spread_over_all_counters() {
        let mut out = Output::new(Pool::new(1 << 20), None);
        let mut counter_of = |source: u8, destination: u8| {
            let mut frame =
                vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, source, 10, 0, 0, destination];
            let checksum = Sum::of(&frame).checksum();
            frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            let packet = Frame::copy(&frame, LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
            let counter = pair_of(Secret::new(5), &packet);
            out.recycle(packet);
            usize::from(counter)
        };
        let (mut counts, mut alike_count) = ([0; PAIR_COUNT], 0);
        for (source, destination) in
            (0..64).flat_map(|source| (64..128).map(move |destination| (source, destination)))
        {
            counts[counter_of(source, destination)] += 1;
            alike_count += usize::from(counter_of(source, destination) == counter_of(destination, source));
        }
        // Of 4,096 drawn pairs a counter has four in the mean, and one in 55 has none.
        assert!(counts.iter().filter(|count| **count == 0).count() < 60, "{counts:?}");
        assert!(counts.iter().all(|count| *count < 20), "{counts:?}");
        assert!(alike_count < 20, "{alike_count} pairs are counted with their other direction");
    }

    #[test]
    fn every_reorder_slot_is_freed_however_a_flow_ends() {
        let mut seen = [0; 5];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let rules = Rules {
                mode: Mode::Resize,
                hold: *random.choice(&TEST_HOLDS).unwrap(),
                len_max: *random.choice(&[1_000, 65_535]).unwrap(),
                longer: Toggle::Off,
                udp: false,
            };
            // Memory for a few flows and packets, or for all.
            let limit = *random.choice(&[20_000, 1 << 30]).unwrap();
            let mut coalescer = Coalescer::new(limit, rules, Vec::new(), Secret::new(5));
            let mut connections = Connections::new(Secret::new(5));
            let mut out = Output::new(Pool::new(1 << 28), None);
            let mut talks: Vec<Talk> = (0..random.usize(1..8)).map(|port| Talk::new(port, &mut random)).collect();
            let mut frames: Vec<Vec<u8>> = talks.iter_mut().map(|talk| talk.say(&mut random)).collect();
            let mut now = Time::from_nanos(1_000_000_000);
            let mut most = 0;
            for _ in 0..600 {
                if random.u8(..8) == 0 {
                    now = now + Duration::from_micros(*random.choice(&[1, 40, 400, 3_000, 70_000_000]).unwrap());
                }
                match random.u8(..60) {
                    0 => coalescer.release(now, &mut connections, &mut out),
                    1..6 => coalescer.expire(now, &mut connections, &mut out),
                    _ => {
                        // The arriving segment waits too, if only until another one is evicted for it.
                        most = most.max(coalescer.early_count() + 1);
                        frames.push(random.choice(&mut talks).unwrap().say(&mut random));
                        let frame = frames.swap_remove(random.usize(..frames.len()));
                        let packet = Frame::copy(&frame, LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
                        coalescer.push(now, packet, &mut connections, &mut out);
                    }
                }
                while let Some(packet) = out.next() {
                    out.recycle(packet);
                }
                let (count, free) = (coalescer.places.count(), coalescer.places.free_count());
                assert_eq!(count - free, coalescer.early_count(), "seed {seed}");
                assert!(count <= most, "seed {seed}: {count} places for {most} segments");
            }
            coalescer.release(now, &mut connections, &mut out);
            assert_eq!(coalescer.places.free_count(), coalescer.places.count(), "seed {seed}");
            let ends = [Event::Reordered, Event::RunEvicted, Event::RunTimeout, Event::RunAtEnd, Event::RunPushed];
            for (seen, event) in seen.iter_mut().zip(ends) {
                *seen += out.ledger.event(event).packets;
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "each end is seen: {seen:?}");
    }

    /// Formats the first difference of two descriptions.
    fn difference(one: &str, other: &str) -> String {
        let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
        let end = |text: &str| text.chars().skip(at.saturating_sub(40)).take(200).collect::<String>();
        format!("at {at}: {} instead of {}", end(one), end(other))
    }

    impl Coalescer {
        /// Recounts the early segments of all streams.
        fn early_count(&self) -> usize {
            self.streams.values().map(Stream::reordered_count).sum()
        }
    }

    /// One of the two coalescers that are compared.
    struct Half {
        coalescer: Coalescer,
        connections: Connections,
        out: Output,
        /// Whether this coalescer skips the header match, and updates `streams` after every step.
        is_close: bool,
        /// Length of the longest fragment of the pushed packets, in bytes. `None` if they were not fragmented.
        came_as: Option<usize>,
    }

    impl Half {
        fn new(rules: &Rules, is_close: bool) -> Half {
            let coalescer = Coalescer::new(1 << 30, rules.clone(), Vec::new(), Secret::new(5));
            Half {
                coalescer,
                connections: Connections::new(Secret::new(5)),
                out: Output::new(Pool::new(1 << 28), None),
                is_close,
                came_as: None,
            }
        }

        /// Executes a step. Returns all its visible effects as text.
        fn step(&mut self, now: Time, what: u8, frame: &[u8], checksum: Checksum) -> String {
            match what {
                0 => self.coalescer.release(now, &mut self.connections, &mut self.out),
                1 => self.coalescer.expire(now, &mut self.connections, &mut self.out),
                _ => self.push(now, frame, checksum),
            }
            if self.is_close {
                self.coalescer.file_burst();
            }
            let gone = self.drain();
            self.tell(gone)
        }

        /// Returns the ports and the visible state of each packet that was sent.
        fn drain(&mut self) -> Vec<(Vec<u8>, String)> {
            let mut gone = Vec::new();
            while let Some(packet) = self.out.next() {
                let ports = packet.bytes().get(20..24).unwrap_or_default().to_vec();
                let more = (packet.gso, packet.checksum, packet.is_as_received(), packet.max_fragment_len());
                gone.push((ports, format!("{:02x?} {more:?}", packet.frame())));
                self.out.recycle(packet);
            }
            gone
        }

        fn tell(&self, mut gone: Vec<(Vec<u8>, String)>) -> String {
            // The order of release among flows is unspecified.
            gone.sort_by(|(one, _), (other, _)| one.cmp(other));
            let it = &self.coalescer;
            let counts = (it.held(), it.charged(), it.flow_count(), self.out.pool.in_use_count());
            let gone: Vec<String> = gone.into_iter().map(|(_, frame)| frame).collect();
            let events: Vec<_> =
                Event::ALL.iter().map(|event| (event.name(), self.out.ledger.event(*event))).collect();
            format!("{counts:?} {:?} {events:?} {gone:?}", self.out.ledger.forwarded)
        }

        fn push(&mut self, now: Time, frame: &[u8], checksum: Checksum) {
            let mut packet = Frame::copy(frame, LinkType::Ip, Ingress(0), &mut self.out.pool).unwrap();
            packet.checksum = checksum;
            packet.set_max_fragment_len(self.came_as);
            let found = self.coalescer.find(&mut self.connections, &packet);
            if let Some(stream) = found.at().and_then(|at| self.connections.flows.stream(at, 0))
                && self.is_close
            {
                self.coalescer.streams.slot_mut(stream).forget_header();
            }
            self.coalescer.push(now, packet, &mut self.connections, &mut self.out);
        }
    }

    /// The generator of the segments of one direction of a connection.
    struct Talk {
        port: u8,
        is_stamped: bool,
        seq: u32,
        ack: u32,
        clock: u32,
        id: u16,
        payload_len: usize,
        /// A segment that is sent later, out of order.
        kept: Option<Vec<u8>>,
    }

    impl Talk {
        fn new(port: usize, random: &mut Rng) -> Talk {
            Talk {
                port: port as u8,
                is_stamped: random.bool(),
                seq: random.u32(..),
                ack: 5,
                clock: 7,
                id: 0,
                payload_len: random.usize(1..700),
                kept: None,
            }
        }

        fn say(&mut self, random: &mut Rng) -> Vec<u8> {
            if let Some(kept) = self.kept.take_if(|_| random.bool()) {
                return kept;
            }
            let kind = random.u8(..60);
            let payload_len = match kind {
                0 => 0,
                1 => random.usize(1..700),
                _ => self.payload_len,
            };
            match kind {
                2 => self.ack = self.ack.wrapping_add(100),
                3 => self.ack = self.ack.wrapping_sub(1),
                4 => self.seq = self.seq.wrapping_add(random.u32(..3_000)),
                5 => self.clock += 1,
                6 => self.payload_len = random.usize(1..700),
                _ => {}
            }
            let flags = 0x10
                | match kind {
                    7 | 8 => 0x08,
                    9 => 0x01,
                    10 => 0x02,
                    11 => 0x04,
                    12 => 0x40,
                    _ => 0,
                };
            self.id += u16::from(kind != 13);
            let frame = self.frame(payload_len, flags, kind, random);
            if !(14..17).contains(&kind) {
                self.seq = self.seq.wrapping_add(payload_len as u32);
            }
            if (17..20).contains(&kind) && self.kept.is_none() {
                self.kept = Some(frame);
                return self.say(random);
            }
            frame
        }

        fn frame(&self, payload_len: usize, flags: u8, kind: u8, random: &mut Rng) -> Vec<u8> {
            let header_len: usize = if self.is_stamped { 32 } else { 20 };
            let addresses = [10, 0, 0, self.port / 2, 10, 1, 1, 1];
            let mut upper = vec![1, 187, 200, self.port];
            upper.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
            upper.extend([(header_len as u8 / 4) << 4, flags, 9, if kind == 20 { 1 } else { 0 }, 0, 0, 0, 0]);
            if self.is_stamped {
                upper.extend([1, 1, 8, 10]);
                upper.extend([self.clock.to_be_bytes(), 3u32.to_be_bytes()].concat());
            }
            upper.extend((0..payload_len).map(|_| random.u8(..)));
            let len = (20 + upper.len()) as u16;
            let ttl = if kind == 21 { 63 } else { 64 };
            let fragment = if kind == 22 { 0x20 } else { 0x40 };
            let mut frame = vec![0x45, if kind == 23 { 3 } else { 0 }, 0, 0, 0, 0, fragment, 0, ttl, 6, 0, 0];
            frame.extend(addresses);
            frame[2..4].copy_from_slice(&len.to_be_bytes());
            frame[4..6].copy_from_slice(&self.id.to_be_bytes());
            let checksum = Sum::of(&frame).checksum();
            frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            let [source, destination] = [0, 4].map(|at| {
                let &[a, b, c, d] = addresses[at..].first_chunk().unwrap();
                Address::from(core::net::IpAddr::from([a, b, c, d]))
            });
            let sum = pseudo_sum((source, destination), TCP, upper.len()) + Sum::of(&upper);
            upper[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
            if kind == 24 {
                // Verified or not: a checksum that is marked as verified is accepted.
                upper[header_len] ^= 0x10;
            }
            frame.extend(upper);
            // Link padding.
            frame.extend(vec![0; if kind == 25 { 6 } else { 0 }]);
            frame
        }
    }
}
