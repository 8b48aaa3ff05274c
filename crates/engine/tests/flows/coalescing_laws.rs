//! Random flows of all kinds -> the laws of coalescing and segmentation hold.

use crate::rig::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use testkit::traffic::{SentPacket, Wishes, draw};
use wideload_engine::packet::{Split, Time};
use wideload_engine::{Event, Hold, Mode, Role, Rules, Sizing};

#[test]
fn segmentation_restores_every_coalesced_packet_in_order() {
    let mut met = Met::default();
    each_seed(FILE, 4_000, |seed| {
        let segment_max = if seed % 8 == 0 { 64_000 } else { 1_460 };
        let wishes = Wishes { mtu: 65_535, segment_max, disorder: seed % 3 > 0, forgery: true };
        let hold = if seed % 5 == 0 { Hold::Fixed(micros(300)) } else { Hold::Adaptive };
        let rules = Rules { udp: seed % 4 > 0, hold, ..reversible() };
        let mut rig = Rig::carrying(rules).ethernet();
        let sent = draw(seed, wishes);
        let (came, gone) = (flights(&sent), run(&mut rig, &sent));
        for flow in flows_of(&sent) {
            let (came, gone) = (flow.of(&came), flow.of(&gone));
            check_same(&came, &gone, &format!("{flow:?}"));
            for (index, (one, other)) in came.iter().zip(gone).enumerate() {
                let waited = other.at.since(one.at);
                assert!(waited <= AGE_MAX, "{flow:?}, packet {index} waited {waited:?}");
            }
        }
        met.note(&rig);
    });
    met.check(&[
        Event::RunFull,
        Event::RunPushed,
        Event::RunUneven,
        Event::RunChanged,
        Event::RunGap,
        Event::RunInterrupted,
    ]);
}

// R126: also if each segment waits for a fixed time, and the next segment arrives just before the end of this time.
#[test]
fn a_run_stays_within_its_age_limit() {
    for (stretch, bound) in [(1, 20), (5, 20), (12, 20), (19, 20), (20, 40), (50, 100)] {
        let [stretch, bound] = [stretch, bound].map(Duration::from_millis);
        let mut rig = Rig::carrying(Rules { hold: Hold::Fixed(stretch), ..reversible() }).ethernet();
        let gap = stretch - micros(1);
        let sent = |index: usize| SentPacket {
            at: gap * index as u32,
            flow: 0,
            spec: Spec { vlans: Some(Vec::new()), ..tcp(4) }.carrying(100 * index, 100),
        };
        let sent: Vec<SentPacket> = (0..101).map(sent).collect();
        let (came, gone) = (flights(&sent), run(&mut rig, &sent));
        check_same(&came.iter().collect::<Vec<_>>(), &gone.iter().collect::<Vec<_>>(), "one flow");
        let waits = came.iter().zip(&gone).map(|(one, other)| other.at.since(one.at));
        let longest = waits.max().expect("there are segments");
        assert!((gap..=bound).contains(&longest), "{stretch:?} each: {longest:?}, not {bound:?} at most");
    }
}

// R126: neither does a segment that waits for a gap, nor a run that starts with one that waited.
#[test]
fn a_run_stays_within_its_age_limit_under_reordering() {
    for stretch in [1, 5, 9, 12, 19].map(Duration::from_millis) {
        let mut rig = Rig::carrying(Rules { hold: Hold::Fixed(stretch), ..resize(65_535) }).ethernet();
        let gap = stretch - micros(1);
        // One segment of five comes after its successor.
        let turn = |index: usize| match index % 5 {
            3 => index + 1,
            4 => index - 1,
            _ => index,
        };
        let sent = |index: usize| SentPacket {
            at: gap * index as u32,
            flow: 0,
            spec: Spec { vlans: Some(Vec::new()), ..tcp(4) }.carrying(100 * turn(index), 100),
        };
        let sent: Vec<SentPacket> = (0..100).map(sent).collect();
        let (came, gone) = (flights(&sent), run(&mut rig, &sent));
        let left = |one: &Flight| gone.iter().find(|other| other.places().contains(&one.places().start));
        let longest = came.iter().map(|one| left(one).expect("it left").at.since(one.at)).max();
        assert!(longest.is_some_and(|longest| (gap..=AGE_MAX).contains(&longest)), "{stretch:?} each: {longest:?}");
        assert!(rig.count(Event::Reordered) >= 10, "gaps were waited for");
        let departures: BTreeSet<Time> = gone.iter().map(|one| one.at).collect();
        assert!(departures.len() <= 60, "100 segments left at {} moments, {stretch:?} each", departures.len());
    }
}

// R115, R118, R119, R127, R130: packets that cannot be coalesced pass byte for byte, in order.
#[test]
fn resizing_changes_no_stream_and_no_other_packet() {
    let mut met = Met::default();
    each_seed(FILE, 4_000, |seed| {
        let mtu = [576, 1_500, 9_000, 65_535][seed as usize % 4];
        let segment_max = if seed % 16 < 4 { 64_000 } else { 1_460 };
        let wishes = Wishes { mtu: usize::from(mtu), segment_max, disorder: seed % 3 > 0, forgery: seed % 7 == 0 };
        let role = if seed % 5 < 3 { Role::Transit } else { source() };
        let split = if seed % 9 == 0 { Split::Balanced } else { Split::Max };
        let rules = Rules { udp: seed % 11 > 5, ..resize(mtu) };
        let mut rig = Rig::new(rules, Sizing { split, ..Sizing::new(mtu, role) }, 16 << 20).ethernet();
        let sent = draw(seed, wishes);
        let (came, gone) = (flights(&sent), run(&mut rig, &sent));
        for flow in flows_of(&sent) {
            let (came, gone) = (flow.of(&came), flow.of(&gone));
            if is_udp(&came) {
                check_same(&came, &gone, &format!("datagrams are their sender's: {flow:?}"));
            } else {
                check_stream(&came, &gone, usize::from(mtu), &format!("{flow:?} at {mtu}"));
                check_receiver(&came, &gone, &format!("{flow:?} at {mtu}"));
            }
        }
        met.note(&rig);
    });
    met.check(&[
        Event::RunFull,
        Event::RunPushed,
        Event::RunChanged,
        Event::RunGap,
        Event::RunInterrupted,
        Event::Reordered,
        Event::Resized,
        Event::Segments,
    ]);
}

#[test]
fn order_is_kept() {
    each_seed(FILE, 1_500, |seed| {
        let mtu = [576, 1_500, 9_000, 65_535][seed as usize % 4];
        let wishes = Wishes { mtu: usize::from(mtu), segment_max: 1_460, disorder: false, forgery: false };
        let sent = draw(seed, wishes);
        for mode in [Mode::Reversible, Mode::Resize] {
            let rules = Rules { mode, ..resize(mtu) };
            let mut rig = Rig::new(rules, Sizing::new(mtu, Role::Transit), 16 << 20).ethernet();
            let (came, gone) = (flights(&sent), run(&mut rig, &sent));
            for flow in flows_of(&sent) {
                let (came, gone) = (flow.of(&came), flow.of(&gone));
                let places = |flights: &[&Flight]| -> Vec<(u32, u32)> {
                    let seen = flights
                        .iter()
                        .map(|one| &one.seen)
                        .filter(|seen| seen.protocol == TCP && !seen.is_fragment());
                    seen.map(|seen| (seen.seq, seen.seq_end())).collect()
                };
                let rises = |places: &[(u32, u32)]| {
                    places.windows(2).all(|pair| pair[1].0.wrapping_sub(pair[0].1) < 1 << 31)
                };
                if rises(&places(&came)) {
                    assert!(rises(&places(&gone)), "{flow:?}, {mode:?}: {:?}", places(&gone));
                }
            }
        }
    });
}

#[test]
fn one_percent_reordering_costs_at_most_five_percent_of_coalescing() {
    let in_order: Vec<usize> = (0..100_000).collect();
    for len_max in [9_000, 65_535] {
        let joined = joined_count(&in_order, len_max);
        assert!(joined < 100_000 / 5, "{joined} packets at {len_max}");
        for distance in [1, 3] {
            let mut random = fastrand::Rng::with_seed(distance as u64);
            let mut order = in_order.clone();
            let mut at = 0;
            while at + distance < order.len() {
                if random.u8(..100) == 0 {
                    let late = order.remove(at);
                    order.insert(at + distance, late);
                    at += distance;
                }
                at += 1;
            }
            let swapped = joined_count(&order, len_max);
            let share = joined as f64 / swapped as f64;
            println!("{len_max}, {distance} places: {joined} packets in order, {swapped} out of it: {share:.4}");
            assert!(
                share >= 0.95,
                "{joined} packets in order, {swapped} where some are {distance} late, at {len_max}"
            );
        }
    }
}

#[test]
fn with_short_memory_nothing_is_lost_or_reordered() {
    each_seed(FILE, 600, |seed| {
        let limit = [0, 1_000, 3_000, 12_000, 100_000][seed as usize % 5];
        let wishes = Wishes { mtu: 1_500, segment_max: 1_460, disorder: seed % 3 > 0, forgery: false };
        let sent = crowd(seed, wishes);
        for mode in [Mode::Reversible, Mode::Resize] {
            let rules = Rules { mode, ..resize(1_500) };
            let mut rig = Rig::new(rules, Sizing::new(1_500, Role::Transit), limit).ethernet();
            let (came, gone) = (flights(&sent), run(&mut rig, &sent));
            assert!(rig.coalescer().charged() <= limit);
            for flow in flows_of(&sent) {
                check_stream(
                    &flow.of(&came),
                    &flow.of(&gone),
                    1_500,
                    &format!("{flow:?}, {mode:?} in {limit} bytes"),
                );
            }
        }
    });
}

#[test]
fn memory_of_many_flows_is_limited_and_the_heaviest_are_evicted_first() {
    for limit in [50_000, 1 << 20] {
        let mut rig = Rig::new(resize(65_535), Sizing::new(65_535, Role::Transit), limit);
        let (mut came, mut gone) = (0, 0);
        for round in 0..3 {
            for flow in 0..5_000u16 {
                let mut one = tcp(4).carrying(round * 100, 100);
                (one.ports[0], one.source) = (flow, host(4, (flow % 250).into()));
                came += 100;
                gone += rig.push(&one).iter().map(|left| left.frame.len() - 40).sum::<usize>();
                let charged = rig.coalescer().charged();
                assert!(charged <= limit, "{charged} bytes of {limit}");
            }
        }
        assert!(rig.count(Event::RunEvicted) > 0);
        gone += rig.flush().iter().map(|left| left.frame.len() - 40).sum::<usize>();
        assert_eq!(came, gone, "every byte leaves");
    }
}

#[test]
fn connection_floods_use_no_more_memory_than_charged() {
    let flags_of = [("SYN", SYN, 0), ("one segment", ACK, 100), ("one segment that ends", ACK | FIN, 100)];
    for (what, flags, len) in flags_of {
        let limit = 512 << 10;
        let mut rig = Rig::new(resize(9_000), Sizing::new(9_000, Role::Transit), limit);
        let mut random = fastrand::Rng::with_seed(1);
        let flood = |rig: &mut Rig, random: &mut fastrand::Rng| {
            for _ in 0..10_000 {
                let mut one = tcp(4).carrying(0, len);
                (one.ports, one.flags) = ([random.u16(..), random.u16(..)], flags);
                one.source = host(4, random.u8(..).into());
                rig.push(&one);
                rig.wait(micros(1));
                assert!(rig.coalescer().charged() <= limit, "{what}");
            }
        };
        let info = allocation_counter::measure(|| flood(&mut rig, &mut random));
        let taken = info.bytes_current;
        println!("{what}: {taken} bytes taken, {} flows", rig.coalescer().flow_count());
        assert!(taken <= limit as i64 * 3 / 2 + (64 << 10), "{what}: {taken} bytes for a limit of {limit}");
        let info = allocation_counter::measure(|| flood(&mut rig, &mut random));
        assert!(info.bytes_current <= limit as i64 / 8, "{what}: a flood that lasts takes no more: {info:?}");
    }
}

#[test]
fn reordered_segments_leave_no_memory_behind() {
    let mut rig = Rig::new(resize(9_000), Sizing::new(9_000, Role::Transit), 4 << 20);
    let split = |rig: &mut Rig| {
        for flow in 0..2_000u16 {
            for index in 0..70 {
                let mut one = tcp(4).carrying(index * 2, 1);
                one.ports[0] = flow;
                rig.push(&one);
            }
            rig.wait(Duration::from_millis(2));
        }
    };
    let info = allocation_counter::measure(|| split(&mut rig));
    let charged = rig.coalescer().charged() as i64;
    println!("{} bytes taken, {charged} charged, {} flows", info.bytes_current, rig.coalescer().flow_count());
    assert_eq!(rig.side.aggregation.held().1, 0);
    assert!(info.bytes_current <= 2 * charged + (1 << 20), "{} bytes for {charged} charged", info.bytes_current);
}

#[test]
fn tiny_segments_out_of_order_hold_little_and_leave_soon() {
    // rel:A37: every other byte of a stream, so no two are coalesced. The work is bounded, not the time.
    for orders in [[2, 0], [0, 2], [4, 2]] {
        let mut rig = Rig::resizing(9_000);
        let mut out = 0;
        for index in 0..20_000 {
            let at = index / 2 * 4 + orders[index % 2];
            out += rig.push(&tcp(4).carrying(at + 1, 1)).len() + rig.wait(micros(2)).len();
            let (held, buffers) = rig.side.aggregation.held();
            assert!(buffers <= EARLY_COUNT_MAX + 1 && held.packets as usize <= EARLY_COUNT_MAX + 1, "{held:?}");
        }
        out += rig.flush().len();
        assert_eq!(out, 20_000);
    }
    // Large segments: no more than 64 KiB wait.
    let mut rig = Rig::resizing(65_535);
    rig.push(&tcp(4).carrying(0, 1_000));
    for index in 1..200 {
        rig.push(&tcp(4).carrying(index * 3_000, 2_000));
        let (held, _) = rig.side.aggregation.held();
        assert!(held.bytes <= (EARLY_LEN_MAX + 3_000) as u64, "{held:?}");
    }
    // Segments more than a mebibyte ahead do not wait.
    for (ahead, sorted) in [(1 << 20, 1), ((1 << 20) + 1, 0)] {
        let mut rig = Rig::resizing(9_000);
        rig.push(&tcp(4).carrying(0, 100));
        rig.push(&tcp(4).carrying(100 + ahead, 100));
        assert_eq!(rig.count(Event::Reordered), sorted, "{ahead}");
    }
}

/// A packet on the wire, without padding, and its parsed fields.
struct Flight {
    at: Time,
    frame: Vec<u8>,
    seen: ReadPacket,
}

impl Flight {
    fn new(at: Time, frame: &[u8]) -> Flight {
        let seen = ReadPacket::of_frame(frame);
        Flight { at, frame: seen.frame.clone(), seen }
    }

    /// The sequence numbers of its bytes.
    fn places(&self) -> Range<u32> {
        self.seen.seq..self.seen.seq + self.seen.payload().len() as u32
    }
}

/// The received packets, with their partial checksums completed.
fn flights(sent: &[SentPacket]) -> Vec<Flight> {
    sent.iter().map(|one| Flight::new(Time::ZERO + one.at, &one.spec.finished().bytes())).collect()
}

/// Pushes all packets at their times. Returns the packets that leave.
fn run(rig: &mut Rig, sent: &[SentPacket]) -> Vec<Flight> {
    let mut gone = Vec::new();
    let mut take = |at, left: Left| gone.extend(left.wire.into_iter().map(|frame| Flight::new(at, &frame)));
    for one in sent {
        rig.wait_until(Time::ZERO + one.at).into_iter().for_each(|(at, left)| take(at, left));
        rig.push(&one.spec).into_iter().for_each(|left| take(rig.now, left));
    }
    if sent.len().is_multiple_of(2) {
        rig.wait_until(rig.now + AGE_MAX).into_iter().for_each(|(at, left)| take(at, left));
        assert_eq!(rig.side.aggregation.held().1, 0, "nothing is held past its deadline");
    }
    rig.flush().into_iter().for_each(|left| take(rig.now, left));
    gone
}

/// One direction of a connection, or the fragments between its two hosts, because each fragment may belong to the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowOf {
    port: u16,
    host: core::net::IpAddr,
}

impl FlowOf {
    fn of<'a>(&self, flights: &'a [Flight]) -> Vec<&'a Flight> {
        flights.iter().filter(|one| self.has(one)).collect()
    }

    fn has(&self, Flight { seen, .. }: &Flight) -> bool {
        seen.source == self.host && (seen.is_fragment() || seen.ports[0] == self.port)
    }
}

fn flows_of(sent: &[SentPacket]) -> BTreeSet<FlowOf> {
    let of = |one: &SentPacket| FlowOf { port: one.spec.ports[0], host: one.spec.source };
    sent.iter().map(of).collect()
}

fn is_udp(flights: &[&Flight]) -> bool {
    flights.iter().any(|one| one.seen.protocol == UDP && !one.seen.is_fragment())
}

/// Checks that two lists contain the same packets in the same order.
fn check_same(came: &[&Flight], gone: &[&Flight], what: &str) {
    for (index, (one, other)) in came.iter().zip(gone).enumerate() {
        assert!(one.frame == other.frame, "{what}, packet {index}:\n{:02x?}\n{:02x?}", one.frame, other.frame);
    }
    assert_eq!(came.len(), gone.len(), "{what}");
}

/// Checks the packets that left against the received ones:
///
/// - Packets that cannot be coalesced leave unchanged, between the same bytes of the stream.
/// - Between two of them, every byte leaves as often as it came, with its marks and headers.
/// - No packet exceeds the MTU.
fn check_stream(came: &[&Flight], gone: &[&Flight], mtu: usize, what: &str) {
    let mut rest = gone;
    let mut chunk = Chunk::default();
    for (index, one) in came.iter().enumerate() {
        if one.seen.joins() {
            chunk.add(one);
            continue;
        }
        let before = rest.iter().take_while(|gone| gone.seen.joins()).count();
        check_chunk(&chunk, &rest[..before], mtu, &format!("{what}, before packet {index}"));
        (chunk, rest) = (Chunk::default(), &rest[before..]);
        let fits = one.seen.ip_len() <= mtu;
        let fragments = if fits { 1 } else { take_fragments(one, rest, mtu, what) };
        assert!(fragments <= rest.len(), "{what}: packet {index} is gone");
        if fits {
            check_same(&[one], &rest[..1], what);
        }
        rest = &rest[fragments..];
    }
    check_chunk(&chunk, rest, mtu, &format!("{what}, at the end"));
}

/// The bytes of a stream between two packets that cannot be coalesced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    /// A sum over all bytes, each with its place and its header.
    bytes: u64,
    count: usize,
    /// The places of PSH and FIN.
    ends: BTreeSet<(u32, u8)>,
}

impl Chunk {
    fn add(&mut self, Flight { seen, .. }: &Flight) {
        let around = seen.surroundings();
        for (at, byte) in seen.payload().iter().enumerate() {
            let place = u64::from(seen.seq.wrapping_add(at as u32)) << 8 | u64::from(*byte);
            let mixed = (around ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            self.bytes = self.bytes.wrapping_add(mixed ^ mixed >> 31);
        }
        self.count += seen.payload().len();
        for flag in [PSH, FIN] {
            if seen.flags & flag != 0 {
                self.ends.insert((seen.seq_end(), flag));
            }
        }
    }
}

fn check_chunk(came: &Chunk, gone: &[&Flight], mtu: usize, what: &str) {
    let mut left = Chunk::default();
    for one in gone {
        assert!(one.seen.joins(), "{what}: {:02x?}", one.frame);
        assert!(one.seen.ip_len() <= mtu, "{what}: {} bytes", one.seen.ip_len());
        left.add(one);
    }
    assert!(*came == left, "{what}: {came:?} leaves as {left:?}");
}

/// The number of packets that are the segments of a long packet which cannot be coalesced.
fn take_fragments(whole: &Flight, gone: &[&Flight], mtu: usize, what: &str) -> usize {
    let Flight { frame, seen, .. } = whole;
    assert!(seen.may_be_segmented(), "{what}: the traffic has nothing else that is too long");
    let mut at = seen.payload_at;
    for (index, one) in gone.iter().enumerate() {
        let fragment = &one.seen;
        let end = at + fragment.payload().len();
        assert!(fragment.ip_len() <= mtu, "{what}");
        assert_eq!(fragment.surroundings(), seen.surroundings(), "{what}: piece {index}");
        assert_eq!(fragment.seq, seen.seq.wrapping_add((at - seen.payload_at) as u32), "{what}: piece {index}");
        assert!(frame[at..end] == *fragment.payload(), "{what}: piece {index}");
        assert_eq!(fragment.sum_is_right, seen.sum_is_right, "{what}: a wrong sum stays wrong, a right one right");
        // With AE, CWR is part of a counter, which all segments repeat (RFC 9768 section 3.2.2).
        let counts = frame[seen.upper_at + 12] & 1 != 0;
        let kept = if index == 0 || counts { CWR } else { 0 } | if end == frame.len() { PSH | FIN } else { 0 };
        assert_eq!(fragment.flags, seen.flags & (!(CWR | PSH | FIN) | kept), "{what}: piece {index}");
        at = end;
        if at == frame.len() {
            return index + 1;
        }
    }
    panic!("{what}: {} bytes of a packet are gone", frame.len() - at)
}

/// Checks that a receiver ends in the same state: the same bytes, of which the first copy counts, and the same
/// acknowledgement and window. Timestamps decrease only where the received timestamps decreased.
fn check_receiver(came: &[&Flight], gone: &[&Flight], what: &str) {
    let starts = || came.iter().map(|one| &one.seen).filter(|seen| !seen.is_fragment()).map(|seen| seen.seq);
    let first = starts().next().unwrap_or_default();
    let base = starts().min_by_key(|start| start.wrapping_sub(first) as i32).unwrap_or_default();
    let (one, other) = (Receiver::of(came, base), Receiver::of(gone, base));
    assert!(one.bytes == other.bytes, "{what}: the stream");
    assert_eq!(one.ack, other.ack, "{what}: the acknowledgement");
    if one.is_ordered {
        assert_eq!(one.window, other.window, "{what}: the window");
    }
    assert!(one.clock_goes_back || !other.clock_goes_back, "{what}: the clock goes back");
}

#[derive(Debug, Default)]
struct Receiver {
    /// The stream from `base` on.
    bytes: Vec<Option<u8>>,
    base: u32,
    ack: Option<u32>,
    window: u16,
    seq: u32,
    acked_by: u32,
    clock: Option<u32>,
    clock_goes_back: bool,
    is_ordered: bool,
}

impl Receiver {
    fn of(flights: &[&Flight], base: u32) -> Receiver {
        let mut receiver = Receiver { base, is_ordered: true, ..Receiver::default() };
        for Flight { seen, .. } in flights {
            let is_sound = seen.protocol == TCP && seen.has_header && seen.sum_is_right && !seen.is_fragment();
            if is_sound && seen.flags & ACK != 0 {
                receiver.take(seen);
            }
        }
        receiver
    }

    fn take(&mut self, seen: &ReadPacket) {
        if self.ack.is_none() {
            (self.seq, self.acked_by) = (seen.seq, seen.ack);
        }
        let start = seen.seq.wrapping_sub(self.base) as usize;
        if self.bytes.len() < start + seen.payload().len() {
            self.bytes.resize(start + seen.payload().len(), None);
        }
        for (known, byte) in self.bytes[start..].iter_mut().zip(seen.payload()) {
            known.get_or_insert(*byte);
        }
        let ahead = |from: u32, to: u32| to.wrapping_sub(from) as i32;
        let by_place = ahead(self.seq, seen.seq);
        let ack = *self.ack.get_or_insert(seen.ack);
        // RFC 9293 section 3.10.7.4: SND.WL1 and SND.WL2 keep old segments from updating the window.
        if ahead(ack, seen.ack) >= 0 && (by_place > 0 || by_place == 0 && ahead(self.acked_by, seen.ack) >= 0) {
            (self.window, self.seq, self.acked_by) = (seen.window, seen.seq, seen.ack);
        }
        if ahead(ack, seen.ack) > 0 {
            self.ack = Some(seen.ack);
        } else if ahead(ack, seen.ack) < 0 {
            self.is_ordered = false;
        }
        self.is_ordered &= by_place >= 0;
        if let Some((value, _)) = seen.stamps() {
            self.clock_goes_back |= self.clock.is_some_and(|clock| ahead(clock, value) < 0);
            self.clock = Some(value);
        }
    }
}

/// The number of packets made of 100,000 segments of 1,448 bytes, 12 µs apart.
fn joined_count(order: &[usize], len_max: u16) -> usize {
    let mut rig = Rig::resizing(len_max);
    let like = tcp(4).carrying(0, 1_448).stamped(1, 1);
    let mut count = 0;
    for index in order {
        let one = Spec { seq: (*index as u32).wrapping_mul(1_448), ..like.clone() };
        count += rig.push(&one).len() + rig.wait(micros(12)).len();
    }
    count + rig.flush().len()
}

/// The traffic of several seeds at once, each between its own hosts.
fn crowd(seed: u64, wishes: Wishes) -> Vec<SentPacket> {
    let mut all: Vec<SentPacket> = Vec::new();
    for group in 0..4u32 {
        let mut sent = draw(seed * 4 + u64::from(group), wishes);
        let start = sent.first().map_or(Duration::ZERO, |one| one.at);
        for one in &mut sent {
            one.at -= start;
            let places = [1, 2].map(|number| host(one.spec.version(), number));
            let place = places.iter().position(|host| *host == one.spec.source).expect("it is one of two hosts");
            one.spec.source = host(one.spec.version(), 1 + place as u32 + 10 * group);
            one.spec.ports[0] += 100 * group as u16;
            if one.spec.sum == Summed::AllOnes {
                one.spec.sum = Summed::Right;
            }
        }
        all.extend(sent.into_iter().filter(|one| one.spec.protocol == TCP));
    }
    all.sort_by_key(|one| one.at);
    all
}

/// The events of a swarm. A kind of event that never happens is not tested.
#[derive(Debug, Default)]
struct Met {
    events: Vec<u64>,
    runs: u64,
}

impl Met {
    fn note(&mut self, rig: &Rig) {
        self.events.resize(Event::ALL.len(), 0);
        for (count, event) in self.events.iter_mut().zip(Event::ALL) {
            *count += rig.count(*event);
        }
        self.runs += 1;
    }

    fn check(&self, wanted: &[Event]) {
        for (count, event) in self.events.iter().zip(Event::ALL) {
            if *count > 0 {
                println!("{count} {}", event.name());
            }
            assert!(
                self.runs < 500 || !wanted.contains(event) || *count > self.runs / 30,
                "{}: {count}",
                event.name()
            );
        }
    }
}

const FILE: &str = "-p wideload-engine coalescing_laws";
/// R126: the longest time that a gap delays its run.
const AGE_MAX: Duration = Duration::from_millis(20);
/// rel:A37.
const EARLY_COUNT_MAX: usize = 64;
/// See [`EARLY_COUNT_MAX`].
const EARLY_LEN_MAX: usize = 65_536;
