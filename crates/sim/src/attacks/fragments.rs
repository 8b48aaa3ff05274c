//! A seed -> fragments with false information about their datagrams, and a verdict.
//!
//! Each attack is one function, which also checks the result.

use super::craft::{self, fragment, fragments, from_address, head, udp, with_options};
use super::octets::Octets;
use super::rig::{Rig, Verdict};
use super::{Field, holds, host};
use crate::topology::Gateway;
use crate::wire::{self, Head, ICMP, UDP};
use core::time::Duration;
use engine::{Event, Reason, Toward};
use packet::LinkType;

/// rel:A01: fragments that end behind the maximum datagram length, either by themselves or through the options of a
/// late first fragment.
pub fn ping_of_death(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(64);
    testbed.has_right_sums = false;
    let (mut now, mut number) = (Clock::default(), 0);
    for is_v6 in [false, true] {
        let most = if is_v6 { 65_535 } else { 65_515 };
        for offset in (8_180..=8_191).map(|unit| unit * 8) {
            for len in (8..=1_400).step_by(if field.times(1, 0) == 1 { 8 } else { 56 }) {
                let head = unique_head(is_v6, ICMP, &mut number);
                let is_long = offset + len > most;
                let before = testbed.retired(Reason::FragOversize);
                for more in [true, false] {
                    testbed.push(
                        now.tick(),
                        Toward::Wide,
                        &fragment(&head, offset, more, &craft::bytes(number, len)),
                    )?;
                }
                // Two fragments within bounds are not too long, although they contradict each other: only one has
                // the MF flag.
                let ended = testbed.retired(Reason::FragOversize) - before;
                holds(ended == if is_long { 2 } else { 0 }, || {
                    format!("of two fragments that end at byte {}, {ended} are refused as too long", offset + len)
                })?;
            }
        }
    }
    for option_len in (0..=40).step_by(4) {
        // A datagram one byte shorter than the first fragment's header allows, exactly as long, or one byte longer.
        for over in 0..=2usize {
            let head = unique_head(false, UDP, &mut number);
            let total = 65_535 - 20 - option_len + over - 1;
            let upper = craft::bytes(number, total);
            let mut frames = fragments(&head, &upper, 1_440);
            frames[0] = with_options(&frames[0], &vec![1; option_len]);
            frames.rotate_left(1);
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            now.0 += TICK * 64;
            let whole = left.iter().filter(|frame| wire::read(frame).is_some_and(|seen| seen.fragment.is_none()));
            let expected = usize::from(over < 2);
            holds(whole.count() == expected, || {
                format!(
                    "a datagram of {total} bytes after {option_len} bytes of options must be reassembled {expected} times"
                )
            })?;
        }
    }
    field.end(&mut testbed)
}

/// rel:A02: the fragments of teardrop, bonk, boink, nestea, newtear and syndrop. A further fragment would complete
/// each datagram.
pub fn teardrop(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(5_000, 100) {
        for is_v6 in [false, true] {
            for (name, script) in TEARDROPS {
                let head = unique_head(is_v6, UDP, &mut number);
                let script = script.iter().chain(&[(0, 64, true), (64, 8, false)]);
                let frames: Vec<_> = script
                    .enumerate()
                    .map(|(turn, (offset, len, more))| {
                        fragment(&head, *offset, *more, &craft::bytes(number ^ (turn as u64) << 40, *len))
                    })
                    .collect();
                let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
                now.0 += TICK * 8;
                holds(left.is_empty(), || format!("{name} makes {} packets", left.len()))?;
            }
        }
    }
    let killed = testbed.retired(Reason::FragOverlap) + testbed.retired(Reason::FragConflict);
    holds(killed > 0 && testbed.retired(Reason::FragPoisoned) > 0, || {
        format!("{killed} fragments were dropped for an overlap")
    })?;
    field.end(&mut testbed)
}

/// rel:A03: endless repeats of an illegal last fragment, and of a legal one. Memory must not grow, and repeats must
/// be detected. The bench measures the cost of each (`attack` in BENCHMARKS.md).
pub fn jolt2(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(1_000);
    let illegal = fragment(&head(false, 1, 2, ICMP, 77), 65_520, false, &[7; 90]);
    let legal = fragment(&head(false, 1, 2, ICMP, 78), 64_000, false, &[7; 29]);
    let count = field.times(5_000_000, 20_000);
    let mut most = 0;
    for number in 0..count {
        let frame = if number & 1 == 0 { &illegal } else { &legal };
        // All fragments arrive before the time-out of the first one.
        testbed.push(Duration::from_micros(number), Toward::Wide, frame)?;
        holds(testbed.left().next().is_none(), || "a last fragment leaves alone".to_owned())?;
        most = most.max(testbed.held().1);
    }
    let [oversize, repeats] = [Reason::FragOversize, Reason::FragRepeat].map(|reason| testbed.retired(reason));
    holds(oversize == count / 2 && repeats == count / 2 - 1, || {
        format!("of {count} fragments, {oversize} are too long and {repeats} are repeats")
    })?;
    holds(most <= 3, || format!("{most} buffers were held for one datagram and a background datagram"))?;
    field.end(&mut testbed)
}

/// rel:A04: ever new datagrams with a first fragment and a last fragment at offset 64,800, or with only the last
/// fragment. Charged memory must stay within the limit after each fragment. Unrelated datagrams must complete.
pub fn rose(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(50);
    let count = field.times(1_000_000, 10_000);
    for number in 0..count {
        let head = Head { id: number as u32, ..head(false, 1, 2, UDP, 0) };
        let source = 0x0B00_0000 + (number >> 16) as u32;
        let at = Duration::from_micros(2 * number);
        testbed.push(at, Toward::Wide, &from_address(fragment(&head, 0, true, &[1; 32]), source))?;
        testbed.push(at, Toward::Wide, &from_address(fragment(&head, 64_800, false, &[2; 32]), source))?;
    }
    holds(testbed.retired(Reason::FragEvicted) > 0, || "no entry was evicted".to_owned())?;
    // A single last fragment uses a small buffer, not a buffer for the complete datagram.
    let mut alone = field.host();
    for number in 0..1_000 {
        alone.push(
            Duration::ZERO,
            Toward::Wide,
            &fragment(&head(false, 1, 2, UDP, number), 64_800, false, &[2; 32]),
        )?;
    }
    let each = alone.charged() / 1_000;
    holds(each <= 8_192, || format!("a single last fragment of 32 bytes is charged {each} bytes"))?;
    field.end(&mut alone)?;
    field.end(&mut testbed)
}

/// rel:A05: first fragments too short for the transport header. Such fragments are reassembled like all others
/// (DEVIATIONS.md, R039). A host behind the gateway must get the content unchanged.
pub fn tiny_first(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(500, 5) {
        for first_len in 0..=20usize {
            let head = unique_head(false, wire::TCP, &mut number);
            let upper = craft::tcp(&head, &craft::Tcp::of([1, 22], number as u32), &craft::bytes(number, 200));
            let frames = [
                fragment(&head, 0, true, &upper[..first_len]),
                fragment(
                    &head,
                    8 * first_len.div_ceil(8).max(1),
                    false,
                    &upper[8 * first_len.div_ceil(8).max(1)..],
                ),
            ];
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            let is_whole = first_len > 0 && first_len.is_multiple_of(8);
            let expected = if is_whole { vec![craft::packet(&head, &upper)] } else { Vec::new() };
            holds(left == expected, || {
                format!("a first fragment of {first_len} bytes makes {} packets", left.len())
            })?;
        }
    }
    field.end(&mut testbed)
}

/// rel:A06: a second fragment at offset 0 that overwrites the ports. The datagram must not be forwarded.
pub fn miller(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    for turn in 0..field.times(20_000, 500) {
        let head = unique_head(turn % 2 == 1, wire::TCP, &mut number);
        let upper = craft::tcp(&head, &craft::Tcp::of([1, 80], 5), &craft::bytes(number, 100));
        let other = craft::tcp(&head, &craft::Tcp::of([1, 22], 5), &[]);
        let mut frames = vec![
            fragment(&head, 0, true, &upper[..16]),
            fragment(&head, 0, true, &other[..8]),
            fragment(&head, 16, false, &upper[16..]),
        ];
        if field.rng.one_in(2) {
            frames.swap(0, 1);
        }
        let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
        now.0 += TICK * 4;
        holds(left.is_empty(), || "a packet with two pairs of ports leaves".to_owned())?;
    }
    field.end(&mut testbed)
}

/// rel:A07: three fragments in every relative position and order, with equal or different bytes, each with or
/// without MF. After each fragment, the output must be that of the reference model `Octets`. (The engine's own
/// test `overlaps` uses up to five fragments.)
pub fn ambiguity(field: &mut Field) -> Verdict {
    let units = field.times(5, 3) as usize;
    let ranges: Vec<_> =
        (0..units).flat_map(|start| (start + 1..=units).map(move |end| 8 * start..8 * end)).collect();
    let mut testbed = field.host().among_bystanders(256);
    let (mut now, mut number) = (Clock::default(), 0);
    let mut wholes = 0;
    let count = ranges.len();
    for scene in 0..(count * count * count * 32) {
        let head = unique_head(scene & 1 == 1, UDP, &mut number);
        let differs = scene & 2 > 0;
        let (lasts, mut rest) = (scene >> 2 & 7, scene >> 5);
        let mut octets = Octets::default();
        for turn in 0..3 {
            let range = ranges[rest % count].clone();
            rest /= count;
            let key = number ^ if differs { (turn as u64) << 50 } else { 0 };
            let mut all = craft::bytes(key, 8 * units);
            // These are ports of no flow, and an absent UDP checksum.
            all[..8].fill(if differs { turn as u8 } else { 0 });
            all[6..8].fill(0);
            let more = lasts >> turn & 1 == 0;
            let part = &all[range.clone()];
            // A fragment at offset 0 without MF is a complete datagram, even if other fragments are held under its
            // key.
            let is_alone = range.start == 0 && !more;
            let whole = if is_alone { Some(part.to_vec()) } else { octets.take(range.start, more, part) };
            testbed.push(now.tick(), Toward::Wide, &fragment(&head, range.start, more, part))?;
            let left: Vec<_> = testbed.left().map(|out| out.frame.to_vec()).collect();
            let right: Vec<_> = whole.iter().map(|octets| craft::packet(&head, octets)).collect();
            holds(left == right, || {
                format!("scene {scene}, fragment {turn}: {} packets leave, {} are right", left.len(), right.len())
            })?;
            if whole.is_some() && !is_alone {
                wholes += 1;
                octets = Octets::default();
            }
        }
    }
    holds(wholes > 0, || "no scene is complete".to_owned())?;
    field.end(&mut testbed)
}

/// rel:A08: an IP ID that is used again after some or all fragments of the first datagram have arrived. No output
/// may mix the two datagrams.
pub fn reused_ids(field: &mut Field) -> Verdict {
    let mut testbed = field.host();
    let mut now = Clock::default();
    for turn in 0..field.times(4_000, 60) {
        let head = head(turn % 2 == 1, (1 + turn % 50) as u16, 2, UDP, 5);
        // Each host pair pauses for so long that its earlier poisoned keys have expired.
        now.0 += Duration::from_secs(121);
        let [old, new] = [0, 1].map(|key| craft::bytes(2 * turn + key, 3_000));
        let [old, new] = [&old, &new].map(|payload| udp(&head, 9, payload));
        let [old_frames, new_frames] = [&old, &new].map(|upper| fragments(&head, upper, 1_000));
        // All fragments of the old datagram arrived: it is complete, and so is the new one.
        let both = testbed.push_all(now.tick(), TICK, Toward::Wide, old_frames.iter().chain(&new_frames))?;
        let expected = [&old, &new].map(|upper| craft::packet(&head, upper));
        holds(both == expected, || format!("of two datagrams with one IP ID, {} leave", both.len()))?;
        // Some arrived: no mixture of the two leaves. After the deadline, the next datagram leaves.
        let kept = 1 + (turn % 2) as usize;
        now.0 += Duration::from_secs(1);
        let mixed =
            testbed.push_all(now.tick(), TICK, Toward::Wide, old_frames[..kept].iter().chain(&new_frames))?;
        holds(mixed.is_empty(), || {
            format!("{kept} fragments of an old datagram and all of a new one make a packet")
        })?;
        testbed.wait_until(now.0 + Duration::from_secs(60))?;
        now.0 += Duration::from_secs(60);
        let after = testbed.push_all(now.tick(), TICK, Toward::Wide, &new_frames)?;
        holds(after == expected[1..], || "a poisoned key is not released after its deadline".to_owned())?;
    }
    field.end(&mut testbed)
}

/// rel:A09: one datagram in fragments of eight bytes: in order, reversed, alternating and random. Each datagram
/// must complete and use a single buffer. The bench measures the cost of each (`attack` in BENCHMARKS.md).
pub fn fragment_smack(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(500);
    let (mut now, mut number, mut most) = (Clock::default(), 0, 0);
    for round in 0..field.times(60, 1) {
        for order in 0..4 {
            let head = unique_head(round % 2 == 1, UDP, &mut number);
            let upper = udp(&head, 9, &craft::bytes(number, 65_000));
            let mut frames = fragments(&head, &upper, 8);
            match order {
                0 => {}
                1 => frames.reverse(),
                2 => frames = alternating(frames),
                _ => shuffle(field, &mut frames),
            }
            let mut left = Vec::new();
            for frame in &frames {
                testbed.push(now.tick(), Toward::Wide, frame)?;
                left.extend(testbed.left().map(|out| out.frame.to_vec()));
                most = most.max(testbed.held().1);
            }
            holds(left == [craft::packet(&head, &upper)], || {
                format!("order {order}: {} packets leave", left.len())
            })?;
        }
    }
    holds(most <= 3, || format!("{most} buffers were held for one datagram and a background datagram"))?;
    field.end(&mut testbed)
}

/// rel:A12: fragments without payload, and non-last fragments whose length is not a multiple of eight, at every
/// offset. The fragments must be dropped without effect on the datagram with the same key.
pub fn empty_fragments(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(64);
    let (mut now, mut number) = (Clock::default(), 0);
    for is_v6 in [false, true] {
        for len in 0..=field.times(64, 17) as usize {
            for more in [true, false] {
                for offset in [0, 8, 64, 1_480, 60_000, 65_528] {
                    if len > 0 && (!more || len.is_multiple_of(8)) || offset == 0 && !more {
                        continue;
                    }
                    let head = unique_head(is_v6, UDP, &mut number);
                    let upper = udp(&head, 9, &craft::bytes(number, 2_000));
                    let [first, last] = [0, 1].map(|at| fragments(&head, &upper, 1_400).swap_remove(at));
                    let bad = fragment(&head, offset, more, &craft::bytes(number, len));
                    let reasons = [Reason::FragZeroLen, Reason::FragLenNot8, Reason::FragOversize];
                    let ended = |testbed: &Rig| reasons.map(|reason| testbed.retired(reason)).iter().sum::<u64>();
                    let before = ended(&testbed);
                    let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &[first, bad, last])?;
                    let whole: Vec<_> = left.into_iter().filter(|frame| frame.len() > 1_400).collect();
                    holds(whole == [craft::packet(&head, &upper)], || {
                        format!("a fragment of {len} bytes at {offset} corrupts a datagram")
                    })?;
                    holds(ended(&testbed) == before + 1, || {
                        format!("a fragment of {len} bytes at {offset} is accepted")
                    })?;
                }
            }
        }
    }
    field.end(&mut testbed)
}

/// rel:A13: datagrams of nearly 65,535 bytes or more, for which 16-bit sums overflow. Each datagram must be
/// forwarded exactly, or be dropped if it is too long.
pub fn wrapping_lengths(field: &mut Field) -> Verdict {
    let mut testbed = field.host();
    testbed.has_right_sums = false;
    let (mut now, mut number) = (Clock::default(), 0);
    for is_v6 in [false, true] {
        // In IPv6, the limit is the longest datagram that the wide link carries unfragmented. The dropped datagrams
        // exceed the length field of the header.
        let (most, next) = if is_v6 { (65_495, 65_536) } else { (65_515, 65_516) };
        for total in (most - field.times(200, 24) as usize..=most).chain(next..next + 40) {
            let head = unique_head(is_v6, UDP, &mut number);
            let upper = craft::bytes(number, total);
            let room = field.rng.one_of(&[1_440, 8_000, 65_480]);
            let mut frames = fragments(&head, &upper, room);
            shuffle(field, &mut frames);
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            now.0 += TICK * 64;
            let whole = left.iter().find(|frame| wire::read(frame).is_some_and(|seen| seen.fragment.is_none()));
            let is_exact = whole.is_some_and(|whole| whole.ends_with(&upper) && whole.len() <= 65_575);
            holds(is_exact == (total <= most), || {
                format!("of {total} bytes in fragments of {room}, {:?} leave", whole.map(Vec::len))
            })?;
        }
    }
    field.end(&mut testbed)
}

/// rel:A14: two datagrams with alternating fragments. Their keys differ in only one part: version, either address,
/// protocol, identification, VLAN or ingress port.
pub fn short_keys(field: &mut Field) -> Verdict {
    let mut testbed = field.host();
    testbed.link_type = LinkType::Ethernet;
    let (mut now, mut number) = (Clock::default(), 0u64);
    for round in 0..field.times(20_000, 300) {
        for part in 0..7u32 {
            number += 1;
            let one = head(round % 2 == 1, 3, 4, UDP, number as u32);
            let other = match part {
                0 => Head { is_v6: !one.is_v6, ..one },
                1 => Head { from: 5, ..one },
                2 => Head { to: 6, ..one },
                // In IPv6, the protocol is not part of the key (RFC 8200 section 4.5).
                3 => Head { is_v6: false, protocol: ICMP, ..one },
                4 => Head { id: one.id ^ 1 << 15, ..one },
                _ => one,
            };
            let one = if part == 3 { Head { is_v6: false, ..one } } else { one };
            let vlans: [&[u16]; 2] = [&[7], if part == 5 { &[8] } else { &[7] }];
            let uppers =
                [one, other].map(|head| udp(&head, 9, &craft::bytes(number ^ u64::from(head.from) << 32, 2_500)));
            let uppers =
                if part >= 5 { [uppers[0].clone(), udp(&other, 9, &craft::bytes(!number, 2_500))] } else { uppers };
            let frames = [0, 1].map(|at| fragments(&[one, other][at], &uppers[at], 1_400));
            let mut left = Vec::new();
            for (turn, who) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                testbed.ingress = if part == 6 { who as u32 } else { 0 };
                let frame = in_ethernet(vlans[who], &frames[who][turn]);
                testbed.push(now.tick(), Toward::Wide, &frame)?;
                left.extend(testbed.left().map(|out| out.frame.to_vec()));
            }
            let expected = [0, 1].map(|who| craft::packet(&[one, other][who], &uppers[who]));
            holds(left == expected, || {
                format!("part {part} of the key: {} of 2 datagrams leave unchanged", left.len())
            })?;
        }
    }
    field.end(&mut testbed)
}

/// rel:A15: duplicates of 1 to 100 % of all fragments, at random places. Each datagram must be forwarded exactly
/// once. No other packet may be forwarded.
pub fn repeats(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(64);
    let (mut now, mut number) = (Clock::default(), 0);
    for share in 1..=100 {
        for _ in 0..field.times(50, 2) {
            let head = unique_head(share % 2 == 1, UDP, &mut number);
            let upper = udp(&head, 9, &craft::bytes(number, 12_000));
            let mut frames = fragments(&head, &upper, 1_400);
            shuffle(field, &mut frames);
            // The completing fragment comes last and once: a repeat of it would begin another datagram.
            let last = frames.pop();
            for at in (0..frames.len()).rev() {
                if field.rng.below(100) < share {
                    let place = field.rng.from(at as u64, frames.len() as u64 - 1) as usize;
                    frames.insert(place + 1, frames[at].clone());
                }
            }
            frames.extend(last);
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            now.0 += TICK * 64;
            holds(left == [craft::packet(&head, &upper)], || {
                format!("{share} % repeats: {} packets leave", left.len())
            })?;
        }
    }
    holds(testbed.retired(Reason::FragRepeat) > 0, || "no fragment was a repeat".to_owned())?;
    field.end(&mut testbed)
}

/// rel:A21: forged last fragments with all 65,536 identifications of a host pair. The forged fragments arrive
/// before and between the pair's own fragments. Reassembly does not verify checksums (DEVIATIONS.md), so forged
/// datagrams may be forwarded. No datagram with wrong bytes may have a correct checksum.
pub fn poisoned_cache(field: &mut Field) -> Verdict {
    let mut testbed = field.host();
    testbed.has_right_sums = false;
    let mut now = Clock::default();
    let (mut good, mut forged_seen) = (0, 0);
    let count = field.times(65_536, 4_000) as u32;
    for is_before in [true, false] {
        for id in 0..count {
            let head = head(false, 10 + u16::from(is_before), 2, UDP, id);
            let upper = udp(&head, 53, &craft::bytes(u64::from(id), 2_000));
            let [first, last] = [0, 1].map(|at| fragments(&head, &upper, 1_400).swap_remove(at));
            // One byte differs, so the checksum differs.
            let mut tail = upper[1_400..].to_vec();
            tail[0] ^= field.rng.from(1, 255) as u8;
            let forged = fragment(&head, 1_400, false, &tail);
            let frames = if is_before { [forged, first, last] } else { [first, last, forged] };
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            for frame in &left {
                let Some(seen) = wire::read(frame).filter(|seen| seen.fragment.is_none()) else { continue };
                let is_right = craft::is_sum_right(frame, &seen);
                let is_same = craft::upper(frame, &seen) == upper;
                good += u64::from(is_same);
                forged_seen += u64::from(!is_same);
                holds(is_same || !is_right, || format!("IP ID {id}: forged bytes with a right checksum"))?;
            }
        }
    }
    holds(good >= u64::from(count) && forged_seen > 0, || {
        format!("of {count} datagrams before any forgery, {good} left, and {forged_seen} forged ones")
    })?;
    field.end(&mut testbed)
}

/// rel:A23: a host pair so fast that its identifications wrap repeatedly, while 1 % of the fragments is lost. No
/// reassembled datagram may mix fragments of two. A second part has no interval between datagrams, 50 % loss, and
/// little memory.
pub fn wrapped_ids(field: &mut Field) -> Verdict {
    let mut testbed = field.host();
    let count = field.times(2_000_000, 150_000);
    let whole_count = come_round(field, &mut testbed, count, Duration::from_micros(10), 100)?;
    holds(whole_count > count * 97 / 100, || format!("{whole_count} of {count} datagrams leave"))?;
    holds(testbed.event(Event::Reassembled) == whole_count, || "the ledger has another count".to_owned())?;
    field.end(&mut testbed)?;
    let mut testbed = field.rig(&Gateway { pool: POOL_OF_FEW, ..host() }, [65_535, 1_500]);
    come_round(field, &mut testbed, field.times(4_000_000, 400_000), Duration::ZERO, 2)?;
    let unheld = testbed.retired(Reason::NoBuffer);
    holds(unheld > 0, || "no fragment was refused for lack of memory".to_owned())?;
    field.end(&mut testbed)
}

/// Sends datagrams of a host pair at intervals of `gap`. One in `lost_every` fragments is lost. Returns the number
/// of forwarded datagrams, or a description of a mixed datagram.
fn come_round(
    field: &mut Field,
    testbed: &mut Rig,
    count: u64,
    gap: Duration,
    lost_every: u64,
) -> Result<u64, String> {
    testbed.has_right_sums = false;
    let mut whole_count = 0;
    for number in 0..count {
        let head = head(false, 1, 2, UDP, number as u32 & 0xFFFF);
        // No UDP checksum: no receiver would notice a mixture of two datagrams.
        let mut upper = [0; 48];
        upper[8..16].copy_from_slice(&number.to_be_bytes());
        upper[40..].copy_from_slice(&number.to_be_bytes());
        for frame in fragments(&head, &upper, 24) {
            if field.rng.one_in(lost_every) {
                continue;
            }
            testbed.push(gap * number as u32, Toward::Wide, &frame)?;
            for out in testbed.left().filter(|out| !out.is_answer) {
                let is_one = out.frame[20 + 8..20 + 16] == out.frame[out.frame.len() - 8..];
                holds(is_one, || format!("datagram {number} is made of fragments of two datagrams"))?;
                whole_count += 1;
            }
        }
    }
    Ok(whole_count)
}

/// A simulated clock that advances by [`TICK`] at each reading.
#[derive(Default)]
pub struct Clock(pub Duration);

impl Clock {
    /// Advances the clock by one tick, and returns the new time.
    pub fn tick(&mut self) -> Duration {
        self.0 += TICK;
        self.0
    }
}

/// The header of a datagram with a unique key.
pub fn unique_head(is_v6: bool, protocol: u8, number: &mut u64) -> Head {
    *number += 1;
    // There are a thousand host pairs, so that no pair has a high rate.
    head(is_v6, 100 + (*number % 1_000) as u16, 2, protocol, (*number / 1_000) as u32)
}

/// Puts frames into a random order that depends only on the attack's seed.
pub fn shuffle<T>(field: &mut Field, frames: &mut [T]) {
    for at in (1..frames.len()).rev() {
        frames.swap(at, field.rng.below(at as u64 + 1) as usize);
    }
}

/// An Ethernet frame with these VLAN tags, outermost first.
pub fn in_ethernet(vlans: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
    for vlan in vlans {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xDD] });
    frame.extend(packet);
    frame
}

fn alternating(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let (even, odd): (Vec<_>, Vec<_>) = frames.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    even.into_iter().chain(odd).map(|(_, frame)| frame).collect()
}

/// Default interval between attack packets.
pub const TICK: Duration = Duration::from_micros(20);
/// Offset in bytes, length in bytes, and the MF flag.
type Place = (usize, usize, bool);
/// The fragments of well-known attacks of 1997 and 1998.
const TEARDROPS: [(&str, &[Place]); 6] = [
    ("teardrop", &[(0, 40, true), (24, 4, false)]),
    ("bonk", &[(32, 28, false), (32, 32, true)]),
    ("boink", &[(0, 48, true), (24, 28, false), (40, 16, true)]),
    ("nestea", &[(0, 24, true), (48, 116, false), (8, 224, true)]),
    ("newtear", &[(0, 48, true), (24, 4, false), (0, 48, true)]),
    ("syndrop", &[(0, 32, true), (24, 8, false), (16, 16, true)]),
];
/// Pool size for an arriving packet and one incomplete datagram, in bytes.
const POOL_OF_FEW: usize = 5_000;
