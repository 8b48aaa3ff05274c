//! Fragments -> datagrams (RFC 791, RFC 815, RFC 8200 section 4.5, RFC 5722).
//!
//! Each payload is copied one time, to its final position in the datagram's buffer. A fragment that continues its
//! hinted datagram costs three comparisons: hint, key and offset (C1 to C6, G7). In any other order, a fragment
//! needs access to a few more words of memory (C9).
//!
//! A repeated fragment is dropped alone. After any other overlap, the datagram is dropped, and its key is poisoned
//! until its deadline (RFC 5722 section 4, R063). The transport checksum is kept, not verified.

mod datagrams;
mod ecn;
mod hints;
mod holes;
mod may_join;
mod pairs;
mod placement;
mod run;

pub(crate) use hints::Hints;
pub(crate) use may_join::{DatagramKey, fault, len_fault};
pub(crate) use placement::Placer;
pub use placement::{PlacementMode, PlacementStats};
pub(crate) use run::Outcome;

use crate::keyed_hash::Secret;
use crate::ledger::{Event, Reason, Tally};
use crate::output::Next;
use crate::sink::{CopyPayload, PayloadSink};
use core::time::Duration;
use datagrams::Datagrams;
use packet::{Frame, Packet, Time};
use pairs::Pairs;
use placement::Placement;

/// Reassembles fragments into datagrams.
#[derive(Debug)]
pub struct Reassembler {
    datagrams: Datagrams,
    placement: Placement,
}

/// Limits of a reassembler: memory and time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory limit in bytes, including all memory that the buffers pin.
    pub bytes: usize,
    /// Reassembly time-out. `None`: 30 s for IPv4, 60 s for IPv6.
    pub timeout: Option<Duration>,
}

/// The treatment of incomplete datagrams at their time-out, on eviction, and at the end of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The received bytes are sent as fragments of at most `mtu` bytes (IPv6: at least 1,280). The host behind this
    /// gateway decides about the datagram.
    Release {
        /// Maximum length of a fragment, in bytes, including the IP header.
        mtu: u16,
    },
    /// The datagram is dropped. If its first fragment was received, its source gets an ICMP error (RFC 1122 section
    /// 3.3.2, R012, R017, R091). For gateways that act in place of the destination host.
    Retire,
}

/// The receiver of the reassembled datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// The destination host. Fragments of all previous hops are reassembled together.
    Host,
    /// The next hop. Only fragments of one previous hop are reassembled together (C15).
    PreviousHop,
}

impl Reassembler {
    /// Creates a reassembler with these limits. The memory limit of the pool must be larger: an evicted datagram
    /// occupies its buffer until the port has transmitted it.
    pub fn new(limits: Limits, late: Late, secret: Secret) -> Reassembler {
        let pairs = Pairs::new(limits.timeout, secret);
        let datagrams = Datagrams::new(limits.bytes, pairs, late, secret);
        Reassembler { datagrams, placement: Placement::default() }
    }

    /// Sets the hash key of the table of datagrams. The counters of host pairs keep the key of
    /// [`new`](Reassembler::new).
    pub fn with_table_key(mut self, key: Secret) -> Reassembler {
        self.datagrams.set_table_key(key);
        self
    }

    /// Sets the conditions of prediction; default: [`PlacementMode::WherePays`]. Prediction also requires a port
    /// that asks for slots.
    pub fn placement_mode(mut self, guessing: PlacementMode) -> Reassembler {
        self.placement.set_mode(guessing);
        self
    }

    /// Takes a packet. A fragment is stored, or completes its datagram. Any other packet is forwarded.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        if self.datagrams.take_front([&packet], out, &mut CopyPayload) > 0 {
            out.recycle(packet);
        } else {
            self.push_unlike(now, packet, out, &mut CopyPayload);
        }
    }

    /// Takes the leading frames that continue the hinted datagram, as [`push`](Reassembler::push) would. Returns
    /// the number of frames taken. Prefetches data for the frames behind them.
    #[inline]
    pub fn take_front(&mut self, frames: &[Frame], out: &mut impl Next, sink: &mut impl PayloadSink) -> usize {
        let mut front = frames;
        if self.datagrams.count() > NEAR_COUNT {
            // Each step prefetches for one packet further ahead, and takes one packet.
            self.datagrams.prefetch(|index| frames.get(index)?.packet(), sink);
            front = frames.get(..1).unwrap_or_default();
        }
        self.datagrams.take_front(front.iter().map_while(Frame::packet), out, sink)
    }

    /// Takes a packet that does not continue the hinted datagram.
    pub fn push_unlike(&mut self, now: Time, packet: Packet, out: &mut impl Next, sink: &mut impl PayloadSink) {
        self.push_toward(Receiver::Host, now, packet, out, sink);
    }

    /// Takes a packet in transit, and reassembles hop by hop (C15). Fragments of two stations are not reassembled
    /// together. Complete datagrams above the MTU are fragmented again. IPv6 datagrams keep their Fragment header.
    /// Their fragments do not exceed the longest received fragment (R087).
    pub fn push_hop_by_hop(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        self.push_toward(Receiver::PreviousHop, now, packet, out, &mut CopyPayload);
    }

    #[inline(always)]
    fn push_toward(
        &mut self,
        toward: Receiver,
        now: Time,
        packet: Packet,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let Some(frag) = packet.ip().fragment else { return out.forward(packet) };
        if frag.offset == 0 && !frag.more {
            return match toward {
                Receiver::Host => make_whole(packet, out),
                Receiver::PreviousHop => out.forward(packet),
            };
        }
        let hop = (toward == Receiver::PreviousHop).then(|| packet.previous_hop());
        match self.datagrams.take(hop, now, &packet, frag, out, sink) {
            Ok(()) => out.recycle(packet),
            Err(reason) => {
                let ended = Tally::of(&packet);
                out.output().retire(packet, ended, reason);
            }
        }
        self.datagrams.make_room(now, out);
    }

    /// Forwards or drops the datagrams whose deadline has passed: see [`Late`].
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        self.datagrams.expire(now, out);
    }

    /// Forwards or drops all datagrams, the earliest deadline first, because the input has ended: see [`Late`].
    pub fn flush(&mut self, now: Time, out: &mut impl Next) {
        self.datagrams.flush(now, out);
    }

    /// Returns the time at which [`expire`](Reassembler::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.datagrams.next_deadline()
    }

    /// Recounts the held fragments with their payload bytes, and their buffers.
    pub fn held(&self) -> (Tally, usize) {
        self.datagrams.held()
    }

    /// Returns the bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.datagrams.charged()
    }

    /// Returns the number of steps of the longest search for a datagram by its key (rel:A10).
    pub fn longest_search(&self) -> usize {
        self.datagrams.longest_search()
    }

    /// Returns the placement interface: slots for the payloads of the next fragments, and the handling of payloads
    /// received in slots.
    #[inline(always)]
    pub(crate) fn placing(&mut self) -> Placer<'_> {
        let Reassembler { datagrams, placement } = self;
        Placer { placement, datagrams }
    }

    /// Whether a port has payload slots for the next frames.
    #[inline]
    pub(crate) fn is_predicting(&self) -> bool {
        self.placement.is_predicting()
    }

    /// Returns the placement statistics.
    pub(crate) fn placement_stats(&self) -> PlacementStats {
        self.placement.stats()
    }
}

/// Forwards an atomic fragment as a complete datagram, regardless of other fragments with its key (RFC 6946 section
/// 4, R081).
fn make_whole(mut packet: Packet, out: &mut impl Next) {
    if packet.is_neighbour_discovery() {
        let ended = Tally::of(&packet);
        return out.output().retire(packet, ended, Reason::FragNeighbour);
    }
    packet.make_whole();
    out.ledger().note(Event::AtomicStripped, Tally::of(&packet));
    out.forward(packet);
}

/// Number of datagrams that stay in the CPU's cache without prefetching.
const NEAR_COUNT: usize = 256;

#[cfg(test)]
mod tests {
    use super::pairs::COUNTERS;
    use super::*;
    use crate::output::Output;
    use fastrand::Rng;
    use packet::{Ingress, LinkType, Pool, Sum};
    use std::collections::HashSet;

    #[test]
    fn hints_and_batches_do_not_change_the_output() {
        for seed in 0..60 {
            let mut random = Rng::with_seed(seed);
            let limits = Limits {
                bytes: *random.choice(&[8_000, 60_000, 1 << 28]).unwrap(),
                timeout: random.bool().then_some(Duration::from_millis(400)),
            };
            let late = *random.choice(&[Late::Retire, Late::Release { mtu: 1_280 }]).unwrap();
            let modes = [PushMode::Each, PushMode::Closely, PushMode::Batches];
            let mut halves = modes.map(|mode| Half::new(limits, late, mode));
            let crowd = *random.choice(&[2, 20, 500]).unwrap();
            let mut now = Time::from_nanos(1_000_000_000);
            for step in 0..60 {
                if random.u8(..4) == 0 {
                    now = now + Duration::from_millis(random.u64(1..300));
                }
                let frames: Vec<Vec<u8>> =
                    (0..random.usize(1..80)).map(|_| fragment(crowd, step, &mut random)).collect();
                let [each, closely, batches] = halves.each_mut().map(|half| half.step(now, &frames));
                assert!(each == closely, "seed {seed}, step {step}, closely:\n{each}\n{closely}");
                assert!(each == batches, "seed {seed}, step {step}, in batches:\n{each}\n{batches}");
            }
            for half in &mut halves {
                half.reassembler.flush(now, &mut half.out);
                half.drain();
                assert_eq!(half.out.pool.in_use_count(), 0, "seed {seed}");
            }
        }
    }

    #[test]
    fn matching_keys_are_equal_keys() {
        let mut random = Rng::with_seed(1);
        let mut pool = Pool::new(1 << 20);
        let fragments: Vec<Packet> = (0..120)
            .filter_map(|step| {
                let ingress = Ingress(random.u32(..2));
                Frame::copy(&fragment(4, step, &mut random), LinkType::Ip, ingress, &mut pool).ok()
            })
            .collect();
        let mut same = 0;
        for [one, other] in fragments.iter().flat_map(|one| fragments.iter().map(move |other| [one, other])) {
            let [Some(frag), Some(its)] = [one, other].map(|fragment| fragment.ip().fragment) else { continue };
            for hop in [None, Some(one.previous_hop())] {
                let key = DatagramKey::of(one, frag, hop);
                let is_same = key == DatagramKey::of(other, its, None);
                assert_eq!(key.is_of(other, its, false), is_same);
                let has_its_shape = one.ip().shape.is_same(other.ip().shape);
                assert!(!has_its_shape || key.is_of(other, its, true) == is_same);
                same += usize::from(is_same);
            }
        }
        assert!(same > 500, "{same} pairs of one datagram");
    }

    #[test]
    fn a_hint_does_not_outlive_an_identification_wrap() {
        let limits = Limits { bytes: 1 << 28, timeout: None };
        let mut half = Half::new(limits, Late::Retire, PushMode::Each);
        let now = Time::from_nanos(1_000_000_000);
        let first = v4(1, 5, 0, true, 0, &[7; 64]);
        half.step(now, &[first]);
        // An incomplete datagram can continue as long as fewer than half of all IDs have been used since.
        for id in 0..HALF_A_ROUND - 1 {
            let id = (10_000 + id) as u16;
            half.step(now, &[v4(1, id, 0, true, 0, &[1; 64]), v4(1, id, 64, false, 0, &[1; 64])]);
        }
        let more = v4(1, 5, 64, true, 0, &[8; 64]);
        half.step(now, &[more]);
        assert_eq!(half.reassembler.held().0.packets, 2, "it goes on");
        half.step(now, &[v4(1, 6, 0, true, 0, &[1; 64]), v4(1, 6, 64, false, 0, &[1; 64])]);
        half.step(now, &[v4(1, 5, 128, true, 0, &[9; 64])]);
        assert_eq!(half.reassembler.held().0.packets, 1, "it is of another datagram");
        assert_eq!(half.out.ledger.retired(Reason::FragLate).packets, 2);
    }

    #[test]
    fn a_hop_hint_is_not_used_for_the_host() {
        let limits = Limits { bytes: 1 << 28, timeout: None };
        let mut half = Half::new(limits, Late::Retire, PushMode::Each);
        let now = Time::from_nanos(1_000_000_000);
        let [first, second] = [0, 64].map(|offset| {
            Frame::copy(&v4(1, 5, offset, true, 0, &[7; 64]), LinkType::Ip, Ingress(0), &mut half.out.pool).unwrap()
        });
        half.reassembler.push_hop_by_hop(now, first, &mut half.out);
        half.reassembler.push(now, second, &mut half.out);
        assert_eq!(half.reassembler.held().1, 2, "two runs");
    }

    #[test]
    fn two_counters_of_a_pair_are_rarely_shared() {
        let pairs = Pairs::new(None, Secret::new(5));
        let (mut seen, mut both) = ([[0; COUNTERS], [0; COUNTERS]], HashSet::new());
        for (source, destination) in
            (0..64).flat_map(|source| (0..64).map(move |destination| (source, destination)))
        {
            let mut fragment = v4(1, 0, 0, true, 0, &[7; 64]);
            (fragment[15], fragment[19]) = (source, destination);
            let counters = counters_of(&mended(fragment), &pairs);
            seen[0][counters[0]] += 1;
            seen[1][counters[1] - COUNTERS] += 1;
            both.insert(counters);
        }
        for counts in seen {
            // Of 4,096 drawn pairs a counter has four in the mean, and one in 55 has none.
            assert!(counts.iter().filter(|count| **count == 0).count() < 60, "{counts:?}");
            assert!(counts.iter().all(|count| *count < 20), "{counts:?}");
        }
        // In a million counters, 4,096 pairs collide eight times.
        assert!(both.len() > 4_070, "{} of 4,096 pairs have counters of their own", both.len());
    }

    #[test]
    fn pairs_differ_by_protocol_version_and_address() {
        let pairs = Pairs::new(None, Secret::new(5));
        let protocols: HashSet<_> = (0..=255)
            .map(|protocol| {
                let mut fragment = v4(1, 0, 0, true, 0, &[7; 64]);
                fragment[9] = protocol;
                counters_of(&mended(fragment), &pairs)
            })
            .collect();
        assert!(protocols.len() > 250, "{} of 256 protocols", protocols.len());
        let as_v6 = |ends: [u64; 4]| {
            let mut fragment = v6(7, 0, true, 0, &[7; 64]);
            fragment[8..40].copy_from_slice(&ends.map(u64::to_be_bytes).concat());
            fragment
        };
        // Equal in all but the version: IPv6 has no protocol here.
        let mut as_v4 = v4(1, 0, 0, true, 0, &[7; 64]);
        as_v4[9] = 0;
        as_v4[16..20].fill(0);
        let same_bytes = u64::from_be_bytes([10, 0, 0, 1, 0, 0, 0, 0]);
        assert_ne!(counters_of(&mended(as_v4), &pairs), counters_of(&as_v6([same_bytes, 0, 0, 0]), &pairs));
        for word in 0..4 {
            let ends = |value| core::array::from_fn(|at| if at == word { value } else { 0 });
            let pairs: HashSet<_> = (0..64).map(|value| counters_of(&as_v6(ends(value)), &pairs)).collect();
            assert!(pairs.len() > 60, "{} of 64 pairs that differ in word {word}", pairs.len());
        }
    }

    #[test]
    fn a_datagram_without_memory_counts_an_identification() {
        let limits = Limits { bytes: 1 << 28, timeout: None };
        // Memory for one run and one received packet.
        let pool = Pool::new(2 * packet::Buffer::pinned_len_for(64));
        let mut half = Half { out: Output::new(pool, None), ..Half::new(limits, Late::Retire, PushMode::Each) };
        let now = Time::from_nanos(1_000_000_000);
        half.step(now, &[v4(1, 5, 0, true, 0, &[7; 64])]);
        for id in 0..HALF_A_ROUND {
            half.step(now, &[v4(1, (10_000 + id) as u16, 0, true, 0, &[1; 64])]);
        }
        assert_eq!(half.out.ledger.retired(Reason::NoBuffer).packets, u64::from(HALF_A_ROUND));
        half.step(now, &[v4(1, 5, 64, true, 0, &[8; 64])]);
        assert_eq!(half.out.ledger.retired(Reason::FragLate).packets, 1, "it is of another datagram");
    }

    /// One of the reassemblers that are compared.
    struct Half {
        reassembler: Reassembler,
        out: Output,
        mode: PushMode,
        gone: Vec<String>,
    }

    /// How packets are pushed.
    #[derive(Clone, Copy, PartialEq)]
    enum PushMode {
        /// One by one.
        Each,
        /// One by one, without hints.
        Closely,
        /// In batches.
        Batches,
    }

    impl Half {
        fn new(limits: Limits, late: Late, mode: PushMode) -> Half {
            let reassembler = Reassembler::new(limits, late, Secret::new(5));
            Half { reassembler, out: Output::new(Pool::new(1 << 30), None), mode, gone: Vec::new() }
        }

        /// Executes a step. Returns all its visible results as text.
        fn step(&mut self, now: Time, frames: &[Vec<u8>]) -> String {
            self.reassembler.expire(now, &mut self.out);
            self.drain();
            let pool = &mut self.out.pool;
            let read = |frame: &Vec<u8>| Frame::Ip(Frame::copy(frame, LinkType::Ip, Ingress(0), pool).unwrap());
            let frames: Vec<Frame> = frames.iter().map(read).collect();
            let mut frames = frames.into_iter();
            while let [_, ..] = frames.as_slice() {
                if self.mode == PushMode::Closely {
                    self.reassembler.datagrams.forget_hints();
                }
                let taken = match self.mode {
                    PushMode::Batches => {
                        self.reassembler.take_front(frames.as_slice(), &mut self.out, &mut CopyPayload)
                    }
                    PushMode::Each | PushMode::Closely => 0,
                };
                frames.by_ref().take(taken).for_each(|frame| self.out.pool.give(frame.into_buffer()));
                if taken == 0
                    && let Some(Frame::Ip(packet)) = frames.next()
                {
                    match self.mode {
                        PushMode::Batches => {
                            self.reassembler.push_unlike(now, packet, &mut self.out, &mut CopyPayload);
                        }
                        PushMode::Each | PushMode::Closely => self.reassembler.push(now, packet, &mut self.out),
                    }
                }
                self.drain();
            }
            let gone = core::mem::take(&mut self.gone);
            let it = &self.reassembler;
            let counts = (it.held(), it.charged(), it.next_deadline(), self.out.pool.in_use_count());
            let ledger = &self.out.ledger;
            let events: Vec<_> = Event::ALL.iter().map(|event| (event.name(), ledger.event(*event))).collect();
            let ends: Vec<_> = Reason::ALL.iter().map(|reason| (reason.name(), ledger.retired(*reason))).collect();
            format!("{counts:?} {events:?} {ends:?} {gone:?}")
        }

        fn drain(&mut self) {
            while let Some(packet) = self.out.next() {
                let more = (packet.fragmentation, packet.max_fragment_len());
                self.gone.push(format!("{:02x?} {more:?}", packet.frame()));
                self.out.recycle(packet);
            }
        }
    }

    /// Returns the indexes of the counters of a fragment's host pair.
    fn counters_of(frame: &[u8], pairs: &Pairs) -> [usize; 2] {
        let fragment = Frame::copy(frame, LinkType::Ip, Ingress(0), &mut Pool::new(1 << 20)).unwrap();
        pairs.of(&DatagramKey::of(&fragment, fragment.ip().fragment.unwrap(), None)).0.map(usize::from)
    }

    /// Generates a fragment of one of `crowd` datagrams. Most fragments fit their datagram, in many orders, and
    /// some do not.
    fn fragment(crowd: usize, step: usize, random: &mut Rng) -> Vec<u8> {
        let number = random.usize(..crowd);
        // Datagrams of one number have one length; IDs recur.
        let (fragments, len) = (2 + number % 5, 8 * (1 + number % 80));
        let in_order = (step / 2) % fragments;
        let index = if random.bool() { in_order } else { random.usize(..fragments) };
        let more = index + 1 < fragments;
        let (mut offset, mut len, mut more) = (index * len, if more { len } else { len - number % 8 }, more);
        match random.u16(..120) {
            0 => offset += 8,
            1 => len += 8,
            2 => len += 1,
            3 => more = !more,
            4 => len = 0,
            _ => {}
        }
        let marks = if random.u8(..40) == 0 { random.u8(..4) } else { 0 };
        let payload: Vec<u8> = (0..len).map(|at| (offset + at + number) as u8).collect();
        let bytes = if number.is_multiple_of(3) {
            v6(number as u32, offset, more, marks, &payload)
        } else {
            let tos = if marks == 3 { 2 } else { 0 };
            // Two sources use the same IDs.
            v4(1 + number as u8 % 2, number as u16 / 2, offset, more, tos, &payload)
        };
        if marks < 2 || number.is_multiple_of(3) {
            bytes
        } else {
            with_option(bytes, *random.choice(&[0x88, 0x07]).unwrap())
        }
    }

    fn v4(source: u8, id: u16, offset: usize, more: bool, tos: u8, payload: &[u8]) -> Vec<u8> {
        let place = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
        let mut bytes = vec![0x45, tos, 0, 0];
        bytes.extend([id.to_be_bytes(), place.to_be_bytes()].concat());
        bytes.extend([64, 17, 0, 0, 10, 0, 0, source, 10, 1, 1, 1]);
        bytes.extend(payload);
        mended(bytes)
    }

    /// Adds an IPv4 option to a fragment. By its kind, every fragment carries the option, or only the first
    /// fragment may.
    fn with_option(mut bytes: Vec<u8>, kind: u8) -> Vec<u8> {
        bytes.splice(20..20, [kind, 4, 1, 2]);
        bytes[0] = 0x46;
        mended(bytes)
    }

    fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[10..12].fill(0);
        let header_len = usize::from(bytes[0] & 15) * 4;
        let checksum = Sum::of(&bytes[..header_len]).checksum();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn v6(id: u32, offset: usize, more: bool, marks: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, marks << 4, 0, 0];
        bytes.extend((8 + payload.len() as u16).to_be_bytes());
        bytes.extend([44, 64]);
        bytes.extend([[1; 16], [2; 16]].concat());
        bytes.extend([17, 0]);
        bytes.extend((offset as u16 | u16::from(more)).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Half of all IPv4 IDs.
    const HALF_A_ROUND: u32 = 1 << 15;
}
