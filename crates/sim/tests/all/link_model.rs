//! Random frames at random times -> the laws of an emulated link hold.

use fastrand::Rng;
use packet::Time;
use std::time::Duration;
use wideload_sim::link::{
    Burst, Fate, Link, LinkShape, Losses, QueueLimit, REORDER_TIMEOUT, Red, RedMode, Reorder, Tally,
};

#[test]
fn every_frame_leaves_is_dropped_or_is_inside() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let shape = any_shape(&mut rng);
        let mut link = Link::with_memory(shape.clone(), if rng.bool() { 40_000 } else { usize::MAX });
        let (mut now, mut sent, mut out) = (0, Vec::new(), Tally::default());
        let (mut alive, mut refused, mut flipped) = (0, 0, 0);
        for step in 0..600 {
            now += rng.u64(0..400_000) * u64::from(rng.u8(0..4) == 0);
            if rng.u8(0..3) > 0 && step < 500 {
                let frame: Vec<u8> = (0..rng.usize(0..3_000)).map(|_| rng.u8(..)).collect();
                let fate = link.push(Time::from_nanos(now), &frame);
                alive += u64::from(matches!(fate, Fate::Due(_) | Fate::HeldBack));
                refused += u64::from(fate == Fate::WithoutRoom);
                sent.push(frame);
            } else if let Some(departure) = link.pop(Time::from_nanos(now)) {
                assert!(departure.due.nanos() <= now, "seed {seed}: what leaves was due");
                out = out.plus(Tally { frames: 1, bytes: departure.frame().len() as u64 });
                flipped += differing_bits(&sent[departure.index as usize], departure.frame());
                link.give_back(departure);
            }
        }
        let counters = *link.counters();
        assert_eq!(counters.offered.frames, sent.len() as u64, "seed {seed}");
        assert_eq!(counters.delivered, out, "seed {seed}");
        let ended = counters.lost.plus(counters.dropped).frames;
        assert_eq!(
            alive + refused + ended,
            counters.offered.frames,
            "seed {seed}: what a link says of each frame is what it counts: {shape}"
        );
        assert_eq!(
            alive + counters.duplicated.frames - (counters.without_room.frames - refused),
            link.inside().frames + out.frames,
            "seed {seed}: {shape}"
        );
        while let Some(departure) = link.next_departure().and_then(|due| link.pop(due)) {
            out = out.plus(Tally { frames: 1, bytes: departure.frame().len() as u64 });
            flipped += differing_bits(&sent[departure.index as usize], departure.frame());
            link.give_back(departure);
        }
        assert_eq!((link.inside(), link.counters().delivered), (Tally::default(), out), "seed {seed}: {shape}");
        if shape.duplicates == 0.0 {
            assert_eq!(flipped, counters.flipped_bit_count, "seed {seed}: {shape}");
        }
    }
}

#[test]
fn byte_losses_hit_long_frames_more_often() {
    let lost = |len: usize| {
        let mut link = Link::new(LinkShape { byte_loss: 1e-4, seed: 4, ..LinkShape::default() });
        let frame = vec![0; len];
        let fates = (0..20_000).map(|_| {
            let fate = link.push(Time::ZERO, &frame);
            link.pop(Time::ZERO).into_iter().for_each(|departure| link.give_back(departure));
            u32::from(fate == Fate::Lost)
        });
        f64::from(fates.sum::<u32>()) / 20_000.0
    };
    for len in [100, 1_500, 9_000] {
        let expected = 1.0 - (1.0 - 1e-4f64).powi(len as i32);
        let deviation = (expected * (1.0 - expected) / 20_000.0).sqrt();
        assert!(
            (lost(len) - expected).abs() < 5.0 * deviation,
            "{} of {len} bytes, expected {expected}",
            lost(len)
        );
    }
}

#[test]
fn early_drops_begin_above_the_lower_bound_and_grow_with_the_queue() {
    let dropped = |load: f64| {
        let red = Red { mode: RedMode::Packets, min: 5, max: 50, share: 0.1 };
        let (early, _) = offer(red, load, |_| 1_000);
        early
    };
    assert_eq!(dropped(0.5).iter().sum::<u64>(), 0, "a queue that stays short loses nothing");
    let (some, more) = (dropped(1.05).iter().sum::<u64>(), dropped(1.5).iter().sum::<u64>());
    assert!(some > 300 && more > 3 * some, "{some} at 1.05 of the rate, {more} at 1.5");
}

#[test]
fn in_byte_mode_drops_follow_frame_length() {
    let mixed = |kind: usize| if kind == 0 { 1_500 } else { 150 };
    let packets = Red { mode: RedMode::Packets, min: 5, max: 2_000, share: 0.3 };
    let ([long, short], _) = offer(packets, 1.1, mixed);
    let ratio = long as f64 / short as f64;
    assert!((0.85..1.15).contains(&ratio), "packet mode: {long} long ones and {short} short ones");
    let bytes = Red { mode: RedMode::Bytes, min: 4_000, max: 1_600_000, share: 0.3 };
    let ([long, short], _) = offer(bytes, 1.1, mixed);
    let ratio = long as f64 / short as f64;
    assert!((8.0..12.5).contains(&ratio), "byte mode: {long} long ones and {short} short ones");
}

/// Offers a random mixture of two kinds of frames, at `load` times the link's rate. All drops must be early drops.
/// Returns the drops of each kind, and their sum.
fn offer(red: Red, load: f64, len_of: impl Fn(usize) -> usize) -> ([u64; 2], u64) {
    let rate = 10_000_000;
    let shape = LinkShape {
        rate_bits_per_second: Some(rate),
        queue: QueueLimit::Packets(100_000),
        red: Some(red),
        seed: 8,
        ..LinkShape::default()
    };
    let mut link = Link::new(shape);
    let (mut now, mut dropped) = (0.0, [0, 0]);
    let mut rng = Rng::with_seed(2);
    for _ in 0..40_000 {
        let kind = rng.usize(0..2);
        let len = len_of(kind);
        // Intervals are random, because constant ones would be synchronous with the transmissions.
        now += 8e9 * len as f64 / rate as f64 / load * (0.5 + rng.f64());
        let time = Time::from_nanos(now as u64);
        let fate = link.push(time, &vec![0; len]);
        dropped[kind] += u64::from(fate == Fate::Dropped);
        while let Some(departure) = link.pop(time) {
            link.give_back(departure);
        }
    }
    assert_eq!(link.counters().dropped_early.frames, dropped[0] + dropped[1]);
    assert_eq!(link.counters().dropped, link.counters().dropped_early);
    (dropped, dropped[0] + dropped[1])
}

#[test]
fn a_link_agrees_with_a_simple_model_to_the_nanosecond() {
    let (mut dropped, mut reordered, mut held) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let shape = LinkShape { jitter: Duration::ZERO, bit_errors: 0.0, ..any_shape(&mut rng) };
        let offers = offers(&mut rng, 300);
        let (trace, link) = trace(&shape, &offers);
        assert_eq!(trace, simple(&shape, &offers, &link), "seed {seed}: {shape}");
        dropped += link.counters().dropped.frames;
        reordered += link.counters().reordered.frames;
        held += trace.iter().filter(|(due, index)| *due > offers[*index as usize].0 + REORDER_TIMEOUT).count();
    }
    assert!(
        dropped > 1_000 && reordered > 1_000 && held > 100,
        "{dropped} {reordered} {held}: the seeds ask all of it"
    );
}

#[test]
fn without_reordering_frames_keep_order_within_the_jitter() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let jitter = Duration::from_nanos(rng.u64(0..3_000_000));
        let delay = jitter + Duration::from_nanos(rng.u64(0..3_000_000));
        let shape = LinkShape { reorder: None, duplicates: 0.0, jitter, delay, ..any_shape(&mut rng) };
        let offers = offers(&mut rng, 300);
        let (left, link) = trace(&shape, &offers);
        let (straight, _) = trace(&LinkShape { jitter: Duration::ZERO, ..shape.clone() }, &offers);
        assert!(left.is_sorted(), "seed {seed}: in order of time and of number");
        assert_eq!(link.counters().reordered.frames, 0);
        let mut last = Time::ZERO;
        for ((due, index), (middle, straight_index)) in left.iter().zip(&straight) {
            assert_eq!(index, straight_index, "seed {seed}: jitter loses nothing");
            assert!(
                *due >= last.max(*middle - jitter) && *due <= last.max(*middle + jitter),
                "seed {seed}: {index}"
            );
            last = *due;
        }
    }
}

#[test]
fn jitter_is_even_between_its_bounds_for_frames_far_apart() {
    let shape: LinkShape = "delay=5ms,jitter=1ms,seed=4".parse().unwrap();
    let offers: Vec<_> = (0..20_000).map(|index| (Time::from_nanos(index * 3_000_000), 100)).collect();
    let (left, _) = trace(&shape, &offers);
    let mut tenths = [0; 10];
    for (due, index) in left {
        let after = due.since(offers[index as usize].0).as_nanos() - 4_000_000;
        tenths[((after * 10) / 2_000_001) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (1_800..2_200).contains(count)), "{tenths:?}");
}

#[test]
fn no_window_exceeds_the_links_rate() {
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let rate = [9_600, 1_000_003, 10_000_000, 999_999_937, 40_000_000_000][rng.usize(0..5)];
        let overhead_len = rng.usize(0..40);
        let shape = LinkShape {
            rate_bits_per_second: Some(rate),
            overhead_len,
            queue: QueueLimit::Packets(200),
            ..LinkShape::default()
        };
        let offers = offers(&mut rng, 250);
        let (left, _) = trace(&shape, &offers);
        let bits = |index: u64| 8 * (offers[index as usize].1 + overhead_len) as u128;
        for (first, (start, _)) in left.iter().enumerate() {
            let mut sum = 0;
            for (end, index) in &left[first + 1..] {
                sum += bits(*index);
                let room = (end.since(*start).as_nanos() + 1) * u128::from(rate);
                assert!(
                    sum * 1_000_000_000 <= room,
                    "seed {seed}: {sum} bits from {start} to {end} at {rate} bit/s"
                );
            }
        }
    }
}

#[test]
fn a_busy_link_keeps_its_rate_to_the_nanosecond() {
    let mut link = Link::new("rate=999999937,queue=2p".parse().unwrap());
    let (mut now, mut last) = (Time::ZERO, Time::ZERO);
    for _ in 0..1_000_000 {
        let Fate::Due(due) = link.push(now, &[0; 64]) else { panic!("there is room for the next one") };
        (now, last) = (last, due);
        while let Some(departure) = link.pop(now) {
            link.give_back(departure);
        }
    }
    let exact = (1_000_000u128 * 64 * 8 * 1_000_000_000).div_ceil(999_999_937);
    assert_eq!(u128::from(last.nanos()), exact);
}

#[test]
fn each_seed_gives_its_own_trace() {
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let shape = LinkShape { loss: 0.2, ..any_shape(&mut rng) };
        let offers = offers(&mut rng, 300);
        let (once, link) = trace(&shape, &offers);
        let (again, other_link) = trace(&shape, &offers);
        assert_eq!((&once, link.counters()), (&again, other_link.counters()), "seed {seed}");
        let (other, _) = trace(&LinkShape { seed: shape.seed + 1, ..shape }, &offers);
        assert_ne!(once, other, "seed {seed}");
    }
}

#[test]
fn losses_depend_only_on_frame_numbers() {
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let burst = rng.bool().then_some(Burst { begins: 0.02, ends: 0.3 });
        let lossy = LinkShape { loss: 0.05, burst, seed, ..LinkShape::default() };
        let expected: Vec<bool> = Losses::new(&lossy).take(300).collect();
        for _ in 0..5 {
            let LinkShape { loss, burst, seed, .. } = lossy;
            let shape = LinkShape { loss, burst, seed, ..any_shape(&mut rng) };
            let mut link = Link::new(shape.clone());
            let lost: Vec<bool> = offers(&mut rng, 300)
                .into_iter()
                .map(|(now, len)| link.push(now, &vec![0; len]) == Fate::Lost)
                .collect();
            assert_eq!(lost, expected, "seed {seed}: {shape}");
        }
    }
}

#[test]
fn a_lost_frame_uses_link_time() {
    let mut lossy = Link::new("rate=1M,loss=50%,seed=3".parse().unwrap());
    let mut whole = Link::new("rate=1M".parse().unwrap());
    for _ in 0..100 {
        let (one, other) = (lossy.push(Time::ZERO, &[0; 500]), whole.push(Time::ZERO, &[0; 500]));
        assert!(one == Fate::Lost || one == other, "{one:?} {other:?}");
    }
    assert!(lossy.counters().lost.frames > 30);
}

#[test]
fn a_held_back_frame_is_overtaken_by_the_configured_count() {
    for displacement in [1, 2, 3, 10] {
        let shape =
            LinkShape { reorder: Some(Reorder { share: 0.05, displacement }), seed: 6, ..LinkShape::default() };
        let offers: Vec<_> = (0..2_000).map(|index| (Time::from_nanos(index * 1_000), 100)).collect();
        let (left, link) = trace(&shape, &offers);
        let held: Vec<u64> = held_back(&shape, &offers);
        assert!((60..140).contains(&held.len()), "{} of 2,000 at 5 %", held.len());
        // The last held-back frames are followed by too few frames.
        for index in held.iter().filter(|index| **index < 1_900) {
            let place = left.iter().position(|(_, left)| left == index).unwrap();
            let overtook = left[..place].iter().filter(|(_, other)| other > index && !held.contains(other)).count();
            assert_eq!(overtook, displacement, "packet {index}");
        }
        assert!(link.counters().reordered.frames >= held.len() as u64 - displacement as u64);
    }
}

#[test]
fn a_frame_that_is_not_overtaken_leaves_at_the_reorder_timeout() {
    let mut link = Link::new("delay=1ms,reorder=100%:3".parse().unwrap());
    assert_eq!(link.push(Time::ZERO, &[1]), Fate::HeldBack);
    assert_eq!(link.next_departure(), Some(Time::ZERO + Duration::from_millis(1) + REORDER_TIMEOUT));
}

#[test]
fn a_frame_without_memory_has_its_own_counter() {
    let mut link = Link::with_memory("delay=1ms".parse().unwrap(), 5_000);
    let fates: Vec<Fate> = (0..3).map(|_| link.push(Time::ZERO, &[0; 1_500])).collect();
    assert_eq!(fates[2], Fate::WithoutRoom);
    assert_eq!(link.counters().without_room, Tally { frames: 1, bytes: 1_500 });
    let departure = link.pop(Time::from_nanos(1_000_000)).unwrap();
    link.give_back(departure);
    assert!(matches!(link.push(Time::from_nanos(2_000_000), &[0; 1_500]), Fate::Due(_)));
}

#[test]
fn a_byte_queue_accepts_frames_up_to_its_size() {
    let mut link = Link::new("rate=1M,queue=3kB".parse().unwrap());
    let fates: Vec<bool> = [1_500, 1_500, 1_000, 501, 500, 1]
        .into_iter()
        .map(|len| matches!(link.push(Time::ZERO, &vec![0; len]), Fate::Due(_)))
        .collect();
    assert_eq!(fates, [true, true, true, false, true, false], "the first is on the line, not in the queue");
}

/// A random mixture of a link's properties.
fn any_shape(rng: &mut Rng) -> LinkShape {
    let delay = Duration::from_nanos(rng.u64(0..5_000_000));
    let share = |rng: &mut Rng| if rng.bool() { rng.f64() * 0.3 } else { 0.0 };
    LinkShape {
        delay,
        jitter: if rng.bool() { delay.mul_f64(rng.f64()) } else { Duration::ZERO },
        rate_bits_per_second: rng.bool().then(|| 1 << rng.u32(18..34)),
        overhead_len: rng.usize(0..40),
        queue: if rng.bool() {
            QueueLimit::Packets(rng.usize(0..50))
        } else {
            QueueLimit::Bytes(rng.usize(0..50_000))
        },
        loss: share(rng),
        burst: rng.bool().then(|| Burst { begins: rng.f64() * 0.1, ends: rng.f64() }),
        byte_loss: 0.0,
        red: None,
        bit_errors: if rng.bool() { rng.f64() * 1e-3 } else { 0.0 },
        reorder: rng.bool().then(|| Reorder { share: rng.f64() * 0.3, displacement: rng.usize(1..8) }),
        duplicates: share(rng),
        seed: rng.u64(0..1_000_000),
    }
}

/// Random arrival times and lengths of frames, in bursts with pauses between them.
fn offers(rng: &mut Rng, count: usize) -> Vec<(Time, usize)> {
    let mut now = 0;
    let offer = |_| {
        now += match rng.u8(0..20) {
            0..12 => 0,
            12..19 => rng.u64(0..2_000_000),
            _ => rng.u64(0..40_000_000),
        };
        (Time::from_nanos(now), rng.usize(0..2_000))
    };
    (0..count).map(offer).collect()
}

/// The delivery time and the number of each frame, in order of delivery, and the link afterwards. The link is
/// queried after each frame.
fn trace(shape: &LinkShape, offers: &[(Time, usize)]) -> (Vec<(Time, u64)>, Link) {
    let mut link = Link::new(shape.clone());
    let mut left = Vec::new();
    for (now, len) in offers {
        link.push(*now, &vec![0; *len]);
        empty(&mut link, *now, &mut left);
    }
    empty(&mut link, Time::NEVER, &mut left);
    (left, link)
}

fn empty(link: &mut Link, now: Time, left: &mut Vec<(Time, u64)>) {
    while let Some(departure) = link.pop(now) {
        left.push((departure.due, departure.index));
        link.give_back(departure);
    }
}

fn held_back(shape: &LinkShape, offers: &[(Time, usize)]) -> Vec<u64> {
    let mut link = Link::new(shape.clone());
    let held = offers.iter().enumerate().filter_map(|(index, (now, len))| {
        (link.push(*now, &vec![0; *len]) == Fate::HeldBack).then_some(index as u64)
    });
    held.collect()
}

/// A frame that the simple model accepted for transmission.
struct Taken {
    index: u64,
    start: u128,
    due: u128,
    is_held: bool,
    copies: usize,
}

/// A second model without queue, heap or state. It computes every result from the whole past, in fractions of a
/// nanosecond that depend on the rate. The link decides which frames are held back or doubled.
fn simple(shape: &LinkShape, offers: &[(Time, usize)], link: &Link) -> Vec<(Time, u64)> {
    let rate = u128::from(shape.rate_bits_per_second.unwrap_or(1));
    let lost: Vec<bool> = Losses::new(shape).take(offers.len()).collect();
    let held = held_back(shape, offers);
    let doubled = doubled(shape, offers);
    let (mut line, mut taken): (Vec<(u128, u128, usize)>, Vec<Taken>) = (Vec::new(), Vec::new());
    for (index, (now, len)) in offers.iter().enumerate() {
        let now = u128::from(now.nanos());
        let bits = if shape.rate_bits_per_second.is_some() { 8 * (len + shape.overhead_len) as u128 } else { 0 };
        let start = line.last().map_or(0, |(_, end, _)| *end).max(now * rate);
        let waiting: Vec<usize> =
            line.iter().filter(|(start, ..)| start.div_ceil(rate) > now).map(|(.., len)| *len).collect();
        let has_room = match shape.queue {
            QueueLimit::Packets(limit) => waiting.len() < limit,
            QueueLimit::Bytes(limit) => waiting.iter().sum::<usize>() + len <= limit,
        };
        if start.div_ceil(rate) > now && !has_room {
            continue;
        }
        let end = start + bits * 1_000_000_000;
        line.push((start, end, *len));
        if !lost[index] {
            let (index, due) = (index as u64, end.div_ceil(rate) + shape.delay.as_nanos());
            let copies = 1 + usize::from(doubled.contains(&index));
            taken.push(Taken { index, start, due, is_held: held.contains(&index), copies });
        }
    }
    assert!(taken.is_sorted_by_key(|taken| taken.start));
    let displacement = shape.reorder.map_or(0, |reorder| reorder.displacement);
    // Frames are sorted by delivery time. At equal times, frames in order come before frames held back until their
    // deadline. Then the number of the preceding frame decides.
    let mut leaving: Vec<(u128, usize, usize, usize, u64, usize)> = Vec::new();
    for (place, one) in taken.iter().enumerate() {
        let others = taken.iter().enumerate().skip(place + 1).filter(|(_, other)| !other.is_held);
        let deadline = one.due + REORDER_TIMEOUT.as_nanos();
        let key =
            match others.into_iter().nth(displacement.wrapping_sub(1)).filter(|(_, last)| last.due <= deadline) {
                _ if !one.is_held => (one.due, 0, place, 0, one.index, one.copies),
                Some((last_place, last)) => (last.due, 0, last_place, 1 + place, one.index, one.copies),
                None => (deadline, 1, place, 0, one.index, one.copies),
            };
        leaving.push(key);
    }
    leaving.sort_unstable();
    assert_eq!(leaving.len() as u64, link.counters().delivered.frames - link.counters().duplicated.frames);
    let times = |(due, .., index, copies): (u128, usize, usize, usize, u64, usize)| {
        std::iter::repeat_n((Time::from_nanos(due as u64), index), copies)
    };
    leaving.into_iter().flat_map(times).collect()
}

/// Numbers of the frames that the link duplicates, unless it drops them.
fn doubled(shape: &LinkShape, offers: &[(Time, usize)]) -> Vec<u64> {
    let LinkShape { duplicates, seed, .. } = *shape;
    let (left, _) = trace(&LinkShape { duplicates, seed, ..LinkShape::default() }, offers);
    left.windows(2).filter(|pair| pair[0].1 == pair[1].1).map(|pair| pair[0].1).collect()
}

fn differing_bits(one: &[u8], other: &[u8]) -> u64 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| u64::from((one ^ other).count_ones())).sum()
}
