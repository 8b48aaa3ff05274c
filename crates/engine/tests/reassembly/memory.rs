//! Floods and good datagrams -> the good datagrams: memory stays below its limit, and a flooding source is evicted
//! first.

use crate::station::{SECRET, Station, USUAL, at};
use core::time::Duration;
use fastrand::Rng;
use std::collections::VecDeque;
use testkit::{Place, Spec, host, ip, noise};
use wideload_engine::packet::Time;
use wideload_engine::{Event, Late, Limits, Reason};

#[test]
fn charges_never_exceed_the_limit() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let limit = *random.choice(&[0, 2_000, 3_000, 70_000, 300_000, 4 << 20]).unwrap();
        let late = *random.choice(&[Late::Retire, Late::Release { mtu: 1_500 }]).unwrap();
        let mut station = Station::joining(Limits { bytes: limit, timeout: None }, late);
        let longest = *random.choice(&[100, 9_000, 60_000]).unwrap();
        let noise = noise(65_536, seed);
        for step in 0..2_000 {
            let mut header = ip(*random.choice(&[4, 6]).unwrap());
            header.id = random.u32(..200);
            header.source = host(header.version(), 1 + random.u32(..9));
            let start = random.usize(0..longest) / 8 * 8;
            let len = random.usize(1..1_440) / 8 * 8 + 8;
            let place = Place { range: start..start + len, more: random.u8(..8) > 0 || start == 0 };
            let datagram = Spec { payload: Vec::new(), ..header };
            station.push_ip(
                at(Duration::from_micros(step)),
                &datagram.fragment_with(&place, &noise[start..start + len]),
            );
            let charged = charged(&station);
            assert!(charged <= limit, "seed {seed}, step {step}: {charged} bytes charged, {limit} allowed");
            // The charged memory is the pinned memory: buffers, and a little for each poisoned key.
            let (_, buffers) = station.side.aggregation.held();
            assert!(charged >= buffers * 2_048, "seed {seed}: {buffers} buffers for {charged} bytes");
        }
        station.flush(at(Duration::from_secs(1)));
        assert_eq!(charged(&station), 0, "seed {seed}");
        assert_eq!(station.side.next_deadline(), None);
    }
}

#[test]
fn the_longest_search_counts_held_datagrams() {
    let mut station = Station::usual();
    let longest =
        |station: &Station| station.side.aggregation.reassembler.as_ref().map(|held| held.longest_search());
    assert_eq!(longest(&station), Some(0));
    for id in 0..500 {
        // The newest datagram is found without a search.
        let at_least = usize::from(id > 0);
        let first = Spec { id, ..ip(4) }.noise(2_000).fragments(1_500).swap_remove(0);
        station.push_ip(Time::ZERO, &first);
        let steps = longest(&station).unwrap();
        assert!((at_least..=40).contains(&steps), "{steps} steps for {} datagrams", id + 1);
    }
}

#[test]
fn evicted_datagrams_leave_nothing_behind() {
    for late in [Late::Retire, Late::Release { mtu: 1_500 }] {
        let datagrams: Vec<_> = (0..40)
            .map(|id| {
                let mut datagram = Spec { payload: noise(4_000, id), ..ip(4).noise(0) };
                datagram.id = id as u32;
                datagram
            })
            .collect();
        let mut station = Station::joining(Limits { bytes: 20_000, timeout: None }, late);
        for datagram in &datagrams {
            let [first, _, last] = datagram.fragments(1_500).try_into().unwrap();
            station.push_ip(Time::ZERO, &first);
            station.push_ip(Time::ZERO, &last);
            assert!(charged(&station) <= 20_000);
        }
        let evicted = station.out.ledger.retired(Reason::FragEvicted).packets
            + 2 * station.out.ledger.event(Event::ReleasedEvicted).packets;
        assert!(evicted >= 60, "{evicted} pieces");
        let held = station.side.aggregation.held().0.packets;
        assert_eq!(evicted + held, 80, "every piece is held or gone");
        // Each datagram comes again, complete. Evicted ones have left no state, and fragments of held ones are
        // repeats.
        for datagram in &datagrams {
            let left: Vec<_> = datagram
                .fragments(1_500)
                .iter()
                .flat_map(|fragment| station.push_ip(Time::ZERO, fragment))
                .collect();
            assert_eq!(left.iter().filter(|left| left.frame == datagram.bytes()).count(), 1, "{late:?}");
        }
        station.flush(Time::ZERO);
        assert_eq!((charged(&station), station.side.next_deadline()), (0, None));
    }
}

#[test]
fn a_poisoned_key_is_charged_little() {
    let mut station = Station::usual();
    for id in 0..1_000 {
        let mut datagram = ip(4).noise(2_000);
        datagram.id = id;
        let place = Place { range: 0..1_000, more: true };
        station.push_ip(Time::ZERO, &datagram.fragment(&place));
        station.push_ip(Time::ZERO, &datagram.fragment_with(&place, &[0xEE; 1_000]));
    }
    assert_eq!(station.out.pool.in_use_count(), 0);
    let charged = charged(&station);
    // The charge of each key is above zero, and below half of the smallest buffer.
    assert!((100_000..1_000_000).contains(&charged), "{charged} bytes for 1,000 poisoned keys and no buffer");
}

#[test]
fn a_pool_that_runs_dry_loses_packets_and_nothing_else() {
    // The pool is far smaller than the limit: opening and growing fail at any moment.
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let limits = Limits { bytes: 64 << 20, timeout: None };
        let mut station = Station::joining(limits, Late::Retire);
        station.out.pool = wideload_engine::packet::Pool::new(200_000);
        let datagrams: Vec<_> = (0..60)
            .map(|id| {
                let mut datagram = Spec { payload: noise(9_000, id), ..ip(4).noise(0) };
                datagram.id = id as u32;
                datagram
            })
            .collect();
        let mut fragments: Vec<_> = datagrams.iter().flat_map(|datagram| datagram.fragments(1_500)).collect();
        random.shuffle(&mut fragments);
        for fragment in &fragments {
            match wideload_engine::packet::Frame::copy(
                fragment,
                wideload_engine::packet::LinkType::Ip,
                Default::default(),
                &mut station.out.pool,
            ) {
                Ok(packet) => station.side.push(Time::ZERO, packet, &mut station.connections, &mut station.out),
                Err(no) => assert_eq!(no, wideload_engine::packet::CopyError::NoBuffer, "only the pool says no"),
            }
            station.checked();
            for left in station.drain() {
                assert!(datagrams.iter().any(|datagram| datagram.bytes() == left.frame));
            }
            station.checked();
        }
        assert!(station.out.ledger.retired(Reason::NoBuffer).packets > 0, "the pool ran dry");
        station.flush(Time::ZERO);
        assert_eq!(charged(&station), 0);
    }
}

#[test]
fn a_flood_from_everywhere_does_not_stop_good_datagrams() {
    // rel:G24, scaled: first fragments from sources that never repeat. 4 MiB are 1,700 of the smallest buffers. So
    // a fragment is in time if it comes within 2.7 ms, or 0.85 ms, of its datagram's first one. If sources with two
    // datagrams use part of the memory, the time is half as long.
    for (per_second, gap_us) in [(630_000, 1_000), (2_000_000, 400)] {
        for good in [Good::ManySources, Good::OneSource] {
            let flood = Flood { per_second, sources: u32::MAX };
            let gap = Duration::from_micros(gap_us);
            let outcome = Scene { flood, good, good_per_second: 500, gap, seconds: 2 }.run();
            assert!(outcome.lost * 1_000 <= outcome.sent, "{per_second} a second, {good:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_slow_drip_stops_nobody() {
    // rel:G26: 150 first fragments a second for 60 s, 200 good datagrams a second.
    let flood = Flood { per_second: 150, sources: u32::MAX };
    for good in [Good::ManySources, Good::OneSource] {
        let gap = Duration::from_millis(100);
        let outcome = Scene { flood, good, good_per_second: 200, gap, seconds: 60 }.run();
        assert_eq!(outcome.lost, 0, "{good:?}: {outcome:?}");
    }
}

#[test]
fn a_flood_from_few_sources_hurts_only_them() {
    // rel:G27: at most 1,000 sources, at any rate; the others have long gaps.
    let few = [1, 100, 1_000].map(|sources| (sources, Good::ManySources));
    for (sources, good) in few.into_iter().chain([1, 10, 50].map(|sources| (sources, Good::OneSource))) {
        for per_second in [200_000, 1_000_000] {
            let flood = Flood { per_second, sources };
            let gap = Duration::from_millis(20);
            let outcome = Scene { flood, good, good_per_second: 500, gap, seconds: 1 }.run();
            let what = format!("{sources} sources, {per_second} a second, {good:?}");
            assert!(outcome.lost * 10_000 <= outcome.sent, "{what}: {outcome:?}");
        }
    }
}

#[test]
fn datagrams_in_order_outlive_a_flood_in_the_reserve() {
    // After two fragments in order the third may come late.
    let flood = Flood { per_second: 630_000, sources: u32::MAX };
    let gap = Duration::from_micros(500);
    for good in [Good::ManySources, Good::OneSource] {
        let outcome = Scene { flood, good, good_per_second: 200, gap, seconds: 3 }.run_with_late_third();
        assert!(outcome.lost * 1_000 <= outcome.sent, "{good:?}: {outcome:?}");
    }
}

#[test]
fn no_allocation_per_packet_after_warm_up() {
    for (version, late) in [(4, Late::Retire), (6, Late::Retire), (4, Late::Release { mtu: 1_500 })] {
        let mut warm = Warm::new(version, late);
        warm.round(0);
        warm.round(1);
        let info = allocation_counter::measure(|| (2..12).for_each(|round| warm.round(round)));
        assert_eq!(info.count_total, 0, "version {version}, {late:?}: {info:?}");
        assert!(warm.packets > 10_000, "{} packets", warm.packets);
    }
}

#[test]
fn a_million_last_fragments_hold_no_more_than_one() {
    // Jolt2: an impossible last fragment is repeated a million times, and in the second case a possible one.
    for (start, len) in [(65_520, 9), (65_488, 24)] {
        let datagram = Spec { payload: noise(len, 1), ..ip(4).noise(0) };
        let fragment = datagram.fragment_with(&Place { range: start..start + len, more: false }, &datagram.payload);
        let mut station = Station::usual();
        station.push_parts(Time::ZERO, &fragment, &[]);
        let (held, charged_once) = (station.side.aggregation.held(), charged(&station));
        let memory = station.out.pool.heap_len();
        for step in 0..1_000_000 {
            station.push_parts(Time::from_nanos(step), &fragment, &[]);
        }
        station.checked();
        assert_eq!((station.side.aggregation.held(), charged(&station)), (held, charged_once));
        assert!(station.out.pool.heap_len() <= memory.max(4 * 2_500), "{} bytes", station.out.pool.heap_len());
    }
}

#[test]
fn last_fragments_far_away_cost_what_they_pin() {
    // Rose: a tiny first and last piece span 64 kB under each of many keys; the limit counts what that pins.
    let mut station = Station::usual();
    let payload = [7; 8];
    for id in 0..20_000 {
        let mut datagram = ip(4).noise(0);
        datagram.id = id;
        datagram.source = host(4, 1 + id);
        for place in [Place { range: 64_800..64_808, more: false }, Place { range: 0..8, more: true }] {
            station.push_ip(Time::ZERO, &datagram.fragment_with(&place, &payload));
            assert!(charged(&station) <= USUAL.bytes);
        }
        assert!(station.out.pool.heap_len() <= 2 * USUAL.bytes);
    }
    assert!(station.out.ledger.retired(Reason::FragEvicted).packets > 0);
    station.flush(Time::ZERO);
}

#[test]
fn deliveries_do_not_depend_on_the_secret() {
    // Without the secret, chosen IDs and addresses only give random places in the table.
    let mut lines: Vec<Vec<Vec<u8>>> = Vec::new();
    for secret in [SECRET, 0, 1, u128::MAX, 0xDEAD_BEEF << 64] {
        let mut station = Station::joining_by(USUAL, Late::Release { mtu: 1_500 }, secret);
        let mut random = Rng::with_seed(11);
        let mut left = Vec::new();
        for step in 0..20_000u64 {
            let mut datagram = Spec { payload: vec![step as u8; 1_000], ..ip(4).noise(0) };
            datagram.id = random.u32(..4_096);
            let source = random.u32(..50);
            datagram.source = host(4, 1 + source);
            let second = random.bool();
            let place = Place { range: if second { 504..1_000 } else { 0..504 }, more: !second };
            datagram.payload.fill((datagram.id + source) as u8);
            left.extend(station.push_ip(at(Duration::from_millis(step)), &datagram.fragment(&place)));
            left.extend(station.expire(at(Duration::from_millis(step))));
        }
        left.extend(station.flush(at(Duration::from_secs(60))));
        lines.push(left.into_iter().map(|left| left.frame).collect());
    }
    assert!(lines[0].len() > 5_000);
    assert!(lines.iter().all(|line| *line == lines[0]), "the same packets leave in the same order");
}

/// A flood of first fragments, without later fragments.
#[derive(Clone, Copy, Debug)]
struct Flood {
    per_second: u32,
    /// The number of sources.
    sources: u32,
}

/// The sources of the good datagrams.
#[derive(Clone, Copy, Debug)]
enum Good {
    /// Each datagram has a source of its own.
    ManySources,
    /// All datagrams have one source, so that the source has several open datagrams.
    OneSource,
}

/// A flood, and good datagrams whose fragments come `gap` apart.
struct Scene {
    flood: Flood,
    good: Good,
    good_per_second: u32,
    gap: Duration,
    seconds: u32,
}

#[derive(Debug)]
struct Outcome {
    sent: u64,
    lost: u64,
}

impl Scene {
    fn run(&self) -> Outcome {
        self.run_fragments(&[0..1_000, 1_000..1_400], self.gap)
    }

    /// Runs the scene with a third fragment, one second after the second fragment.
    fn run_with_late_third(&self) -> Outcome {
        self.run_fragments(&[0..1_000, 1_000..2_000, 2_000..2_400], Duration::from_secs(1))
    }

    fn run_fragments(&self, ranges: &[std::ops::Range<usize>], last_gap: Duration) -> Outcome {
        let mut station = Station::usual();
        let mut random = Rng::with_seed(1);
        let payload = noise(2_400, 5);
        let mut flooding = Spec { payload: vec![0; 1_000], ..ip(4).noise(0) };
        let first = Place { range: 0..1_000, more: true };
        // Frames in transit: in queues of equal delay, so each is in order.
        let mut later: Vec<VecDeque<(Duration, Vec<u8>)>> = vec![VecDeque::new(); ranges.len()];
        let (mut sent, mut next_good) = (0u64, Duration::ZERO);
        let step = Duration::from_secs(1) / self.flood.per_second;
        for number in 0..self.flood.per_second * self.seconds {
            let now = step * number;
            station.side.expire(at(now), &mut station.connections, &mut station.out);
            flooding.source = host(4, random.u32(..self.flood.sources) & 0x007F_FFFF);
            flooding.id = random.u32(..65_536);
            station.push_parts(at(now), &flooding.fragment(&first), &[]);
            if now >= next_good {
                next_good = now + (Duration::from_secs(1) / self.good_per_second).mul_f64(random.f64() * 2.0);
                let mut header = ip(4);
                let number = if matches!(self.good, Good::ManySources) { sent as u32 } else { 0 };
                header.source = host(4, 0x0080_0000 + number);
                header.id = sent as u32 & 0xFFFF;
                let datagram = Spec { payload: payload.clone(), ..header };
                let mut when = now;
                for (line, range) in ranges.iter().enumerate() {
                    let place = Place { range: range.clone(), more: range.end < ranges.last().unwrap().end };
                    later[line].push_back((when, datagram.fragment(&place)));
                    when += if line + 2 == ranges.len() { last_gap } else { self.gap };
                }
                sent += 1;
            }
            for line in &mut later {
                while line.front().is_some_and(|(when, _)| *when <= now) {
                    let (_, fragment) = line.pop_front().unwrap();
                    station.push_parts(at(now), &fragment, &[]);
                }
            }
            while let Some(packet) = station.out.next() {
                station.out.recycle(packet);
            }
            assert!(charged(&station) <= USUAL.bytes);
        }
        station.checked();
        let on_the_direction = later.last().unwrap().len() as u64;
        let whole = station.out.ledger.event(Event::Reassembled).packets;
        Outcome { sent: sent - on_the_direction, lost: sent - on_the_direction - whole }
    }
}

/// A station and prepared packets. Each round reassembles, repeats, drops, evicts and expires datagrams.
struct Warm {
    station: Station,
    frames: Vec<Vec<u8>>,
    packets: usize,
}

impl Warm {
    fn new(version: u8, late: Late) -> Warm {
        let mut random = Rng::with_seed(3);
        let mut frames = Vec::new();
        for id in 0..400 {
            let mut datagram = Spec { payload: noise(8_000, 1), ..ip(version).noise(0) };
            datagram.id = id;
            datagram.source = host(version, 1 + id % 50);
            let mut fragments = datagram.fragments(1_500);
            match id % 5 {
                0 => fragments.reverse(),
                1 => random.shuffle(&mut fragments),
                2 => drop(fragments.remove(2)),
                3 => {
                    let evil = Place { range: 16..1_200, more: true };
                    fragments.insert(1, datagram.fragment_with(&evil, &noise(1_184, 2)));
                }
                _ => fragments.push(fragments[3].clone()),
            }
            frames.extend(fragments);
        }
        // Datagrams take turns, a few fragments of each.
        frames.chunks_mut(60).for_each(|chunk| random.shuffle(chunk));
        let limits = Limits { bytes: 1 << 20, timeout: Some(Duration::from_millis(1)) };
        Warm { station: Station::joining(limits, late), frames, packets: 0 }
    }

    fn round(&mut self, round: u32) {
        for (index, frame) in self.frames.iter().enumerate() {
            let now = Duration::from_secs(1) * round + Duration::from_micros(10) * index as u32;
            self.station.side.expire(at(now), &mut self.station.connections, &mut self.station.out);
            self.station.push_parts(at(now), frame, &[]);
            self.packets += 1;
            while let Some(packet) = self.station.out.next() {
                let mut fragments = wideload_engine::WirePackets::of(&packet);
                while fragments.next().is_some() {}
                self.station.out.recycle(packet);
            }
        }
        self.station.side.flush(
            at(Duration::from_secs(1) * (round + 1)),
            &mut self.station.connections,
            &mut self.station.out,
        );
        while let Some(packet) = self.station.out.next() {
            self.station.out.recycle(packet);
        }
        assert_eq!(self.station.out.pool.in_use_count(), 0);
    }
}

fn charged(station: &Station) -> usize {
    station.side.aggregation.reassembler.as_ref().map_or(0, |reassembler| reassembler.charged())
}
