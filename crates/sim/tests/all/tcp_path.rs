//! Two ends, a path and a seed -> the laws of a byte stream hold: all data arrives, in order and once, on any path.

use packet::{Time, Version};
use std::time::Duration;
use wideload_sim::tcp::path::{Outcome, PathDirection, PathEvent, Side, Transfer, run};
use wideload_sim::tcp::segment::{ACK, RST, SYN};
use wideload_sim::tcp::settings::{
    Acks, Algorithm, Belief, Detection, Growth, InitialWindow, Memory, Nagle, PathChoice, Probing, Reduction,
    SlowStartExit, TimerBounds,
};
use wideload_sim::tcp::{End, Settings};

#[test]
fn all_bytes_arrive_over_any_path() {
    let count = std::env::var("WIDELOAD_TCP_SEEDS").map_or(1_000, |count| count.parse().expect("a number"));
    for seed in 0..count {
        let transfer = draw(seed);
        let outcome = watch(&transfer, seed);
        let repeat = format!("seed {seed}: {transfer:?} {outcome:?}");
        assert_eq!(outcome.arrived, [transfer.lens[1], transfer.lens[0]], "{repeat}");
        assert!(outcome.complete.is_some(), "{repeat}");
        assert_eq!(outcome.ends[0], Some(End::Closed), "{repeat}");
        // The last acknowledgement might be lost and never repeated. Then the end that closed last gets no answer.
        assert!(matches!(outcome.ends[1], Some(End::Closed | End::GaveUp | End::Reset)), "{repeat}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let trace = || {
            let mut trace = Vec::new();
            let outcome = run(&draw(seed), TIMEOUT, |now, seen| trace.push(format!("{now} {seen:?}")));
            (trace, outcome)
        };
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn a_dead_path_ends_in_giving_up() {
    let there = PathDirection { loss: 1.0, ..PathDirection::default() };
    let transfer = Transfer { there, ..plain(1_000) };
    let outcome = run(&transfer, TIMEOUT, |_, _| {});
    assert_eq!(outcome.ends[0], Some(End::GaveUp));
}

/// Compares simulated durations with those of Linux 6.18 on an emulated link of 100 Mb/s (`wideload lab tcp`). With
/// an MTU of 9,000 bytes, they depend on the receiver's first window and its growth.
#[test]
fn wide_transfers_take_as_long_as_in_the_kernel() {
    let measured = [(10, 300_000, 52.6), (10, 1_000_000, 109.1), (100, 300_000, 455.3), (100, 1_000_000, 596.3)];
    for (trip, len, kernel) in measured {
        for (algorithm, slow_start_exit) in
            [(Algorithm::Reno, SlowStartExit::Loss), (Algorithm::Cubic, SlowStartExit::HyStart)]
        {
            let memory = Memory::Growing { first: 65_535, limit: 16 << 20 };
            let end = Settings { algorithm, slow_start_exit, mtu: 9_000, memory, ..Settings::linux() };
            let delay = Duration::from_millis(trip) / 2;
            let rate_bits_per_second = Some(100_000_000);
            let direction = PathDirection {
                rate_bits_per_second,
                delay,
                mtu: 9_000,
                queue_len: 64 << 20,
                ..PathDirection::default()
            };
            let transfer =
                Transfer { sender: end.clone(), receiver: end, there: direction, back: direction, ..plain(len) };
            let simulated = run(&transfer, TIMEOUT, |_, _| {}).complete.unwrap().as_secs_f64() * 1e3;
            let apart = simulated / kernel - 1.0;
            assert!(apart.abs() < 0.05, "{len} bytes at {trip} ms: {simulated:.1} ms, the kernel {kernel}");
        }
    }
}

/// A transfer over a path with random faults.
fn draw(seed: u64) -> Transfer {
    let mut random = fastrand::Rng::with_seed(seed);
    let version = if random.bool() { Version::V4 } else { Version::V6 };
    let there = direction(&mut random, version);
    let back = direction(&mut random, version);
    let len = match random.u8(0..8) {
        0 | 1 => random.u64(0..3_000),
        7 => random.u64(0..1_000_000),
        _ => random.u64(0..200_000),
    };
    let reply = if random.u8(0..3) == 0 { random.u64(0..100_000) } else { 0 };
    Transfer {
        sender: settings(&mut random, version),
        receiver: settings(&mut random, version),
        there,
        back,
        lens: [len, reply],
        seed,
    }
}

fn direction(random: &mut fastrand::Rng, version: Version) -> PathDirection {
    let floor = if version == Version::V4 { 300 } else { 1_280 };
    let sizes = [floor, 1_280, 1_500, 4_000, 9_000];
    let delay = Duration::from_micros(random.u64(10..100_000));
    let some = |random: &mut fastrand::Rng, most: f64| if random.bool() { 0.0 } else { random.f64() * most };
    PathDirection {
        rate_bits_per_second: random.bool().then(|| random.u64(1_000_000..2_000_000_000)),
        delay,
        queue_len: random.u64(20_000..500_000),
        mark_len: random.bool().then_some(20_000),
        overhead_len: 14,
        loss: some(random, 0.1),
        late: (some(random, 0.2), delay * random.u32(0..3)),
        repeats: some(random, 0.1),
        mtu: sizes[random.usize(0..5)],
        change: random.bool().then(|| (Time::from_nanos(random.u64(0..2_000_000_000)), sizes[random.usize(0..5)])),
        reports: random.bool(),
    }
}

fn settings(random: &mut fastrand::Rng, version: Version) -> Settings {
    let mostly = |random: &mut fastrand::Rng| random.u8(0..4) != 0;
    Settings {
        initial_seq: if random.bool() { u32::MAX - random.u32(0..100_000) } else { random.u32(..) },
        version,
        mtu: [1_500, 9_000, 1_280, 65_535][random.usize(0..4)],
        sack: mostly(random),
        timestamps: mostly(random),
        window_scale: mostly(random),
        ecn: random.bool(),
        algorithm: [Algorithm::Reno, Algorithm::Cubic][random.usize(0..2)],
        slow_start_exit: [SlowStartExit::Loss, SlowStartExit::HyStart, SlowStartExit::HyStartPlusPlus]
            [random.usize(0..3)],
        initial_window: [InitialWindow::Rfc5681, InitialWindow::Rfc6928, InitialWindow::Segments(10)]
            [random.usize(0..3)],
        growth: [Growth::OneSegment, Growth::AllAcknowledged][random.usize(0..2)],
        detection: [Detection::DuplicateAcks, Detection::Rack][random.usize(0..2)],
        probes_tail: random.bool(),
        reduction: [Reduction::AtOnce, Reduction::Proportional][random.usize(0..2)],
        timer: [TimerBounds::OneSecond, TimerBounds::Linux][random.usize(0..2)],
        // Retransmission never stops, so that all data must arrive.
        retry_count_max: 60,
        nagle: [Nagle::Off, Nagle::AnyOutstanding, Nagle::ShortOutstanding][random.usize(0..3)],
        acks: Acks {
            delay: Duration::from_millis([40, 200, 500][random.usize(0..3)]),
            quick_count: [0, 16][random.usize(0..2)],
        },
        memory: match random.u8(0..3) {
            0 => Memory::Fixed(random.u32(2_000..60_000)),
            1 => Memory::Fixed(4 << 20),
            _ => Memory::Growing { first: random.u32(2_000..200_000), limit: 1 << random.u32(16..25) },
        },
        path: PathChoice {
            belief: [Belief::AtOnce, Belief::AfterTimeout][random.usize(0..2)],
            probing: [Probing::AfterBlackHole, Probing::Always][random.usize(0..2)],
            ..Settings::linux().path
        },
        ..Settings::linux()
    }
}

/// Runs a transfer and checks the laws that are visible from outside.
fn watch(transfer: &Transfer, seed: u64) -> Outcome {
    let mut scales = [0; 2];
    let mut scaled = [false; 2];
    // The right edge of the window that each end has announced, and of the announcement that the other end has
    // received.
    let mut offered: [Option<u32>; 2] = [None; 2];
    let mut told: [Option<u32>; 2] = [None; 2];
    run(transfer, TIMEOUT, |now, seen| {
        let (is_leaving, side, outgoing) = match seen {
            PathEvent::Sent(side, outgoing) => (true, side, outgoing),
            PathEvent::Arrives(side, outgoing) => (false, other(side), outgoing),
        };
        let segment = &outgoing.segment;
        let index = side as usize;
        if is_leaving && segment.flags & SYN != 0 {
            (scales[index], scaled[index]) = (segment.window_scale.unwrap_or(0), segment.window_scale.is_some());
        }
        if segment.flags & RST != 0 {
            return;
        }
        let both_scale = scaled[0] && scaled[1];
        let shift = if segment.flags & SYN != 0 || !both_scale { 0 } else { scales[index] };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << shift);
        if segment.flags & ACK != 0 {
            let edges = if is_leaving { &mut offered } else { &mut told };
            let is_back = edges[index].is_some_and(|last| (edge.wrapping_sub(last) as i32) < 0);
            assert!(!(is_leaving && is_back), "seed {seed} at {now}: the window of {side:?} moves left");
            edges[index] = if is_back { edges[index] } else { Some(edge) };
        }
        if is_leaving && segment.len > 0 {
            let end = segment.seq.wrapping_add(segment.len);
            let limit = told[1 - index].expect("nothing is sent before the peer has offered a window");
            assert!((limit.wrapping_sub(end) as i32) >= 0, "seed {seed} at {now}: {side:?} sends past the window");
        }
    })
}

fn other(side: Side) -> Side {
    if side == Side::Sender { Side::Receiver } else { Side::Sender }
}

fn plain(len: u64) -> Transfer {
    Transfer {
        sender: Settings::linux(),
        receiver: Settings::linux(),
        there: PathDirection::default(),
        back: PathDirection::default(),
        lens: [len, 0],
        seed: 1,
    }
}

/// A multiple of the time for sixty retransmissions at intervals of two minutes.
const TIMEOUT: Duration = Duration::from_secs(864_000);
