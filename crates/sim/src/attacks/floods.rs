//! A seed -> floods that exceed any memory, and a verdict.
//!
//! Each attack checks that stored data stays bounded and that good traffic is forwarded.

use super::craft::{self, Tcp, fragment, fragments, from_address, head, udp};
use super::fragments::Clock;
use super::rig::{Rig, Verdict};
use super::{Field, holds, host};
use crate::topology::{Gateway, GatewayRole, Lateness};
use crate::wire::{Head, TCP, UDP};
use core::time::Duration;
use engine::{Event, Hold, Mode, Reassembler, Toward};

/// rel:A10: a million keys from an attacker who knows the hash function but not its secret. The keys are sequences
/// of addresses and identifications, and values that differ in few bits or only in high bits. Poisoned keys use no
/// buffers, so the table can store all of them.
pub fn collisions(field: &mut Field) -> Verdict {
    let count = field.times(1_000_000, 20_000);
    for row in 0..4 {
        let count = count / if row == 0 { 1 } else { 4 };
        let limit = 640 * count as usize;
        let mut testbed = field.rig(&Gateway { limit, ..host() }, [65_535, 1_500]);
        for number in 0..count {
            let (id, source) = match row {
                0 => (number as u32 & 0xFFFF, 0x0B00_0000 | (number >> 16) as u32),
                1 => (0, 0x0B00_0000 + number as u32),
                2 => (0, (number as u32).reverse_bits() | 0x0B),
                _ => ((number as u32 & 0xFF) << 8, 0x0B00_0000 | ((number >> 8) as u32 * 0x1_0001)),
            };
            let head = Head { id, ..head(false, 1, 2, UDP, 0) };
            for split in [1, 2] {
                let frame = from_address(fragment(&head, 8, true, &[split; 8]), source);
                testbed.push(Duration::ZERO, Toward::Wide, &frame)?;
            }
        }
        let reassembler = testbed.wide_side().aggregation.reassembler.as_ref();
        let longest = reassembler.map_or(0, Reassembler::longest_search);
        // For random keys, the longest search in a half-full table takes this many steps (Knuth, volume 3,
        // section 6.4, on linear probing).
        let most = 6 * count.ilog2() as usize;
        holds((1..=most).contains(&longest), || {
            format!("row {row}: the longest search among {count} keys takes {longest} steps; the limit is {most}")
        })?;
        let charged = testbed.charged();
        holds(charged >= POISON_CHARGE * count as usize, || {
            format!("row {row}: {charged} bytes are charged, so some of {count} poisoned keys are missing")
        })?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A11: first fragments from ever new sources, with a memory limit of 4 MiB. Of good datagrams, 99.9 % must
/// complete if their fragments arrive within the time in which the flood fills the memory (rel:G24).
pub fn first_fragments(field: &mut Field) -> Verdict {
    for (per_second, gap) in [(750_000, Duration::from_millis(1)), (2_000_000, Duration::from_micros(400))] {
        let mut testbed = field.host();
        let count = per_second * field.times(2_000, 100) / 1_000;
        let interval = Duration::from_secs(1) / per_second as u32;
        let (mut late, mut sent, mut whole): (Vec<(Duration, Vec<u8>)>, u64, u64) = (Vec::new(), 0, 0);
        for number in 0..count {
            let now = interval * number as u32;
            let source = field.rng.number() as u32 | 1 << 31;
            let head = head(false, 1, 2, UDP, number as u32 & 0xFFFF);
            testbed.push(now, Toward::Wide, &from_address(fragment(&head, 0, true, &[7; 1_000]), source))?;
            if number % (per_second / 500) == 0 {
                let good = craft::head(false, 100 + (sent % 200) as u16, 2, UDP, sent as u32);
                let mut frames = fragments(&good, &udp(&good, 9, &craft::bytes(sent, 2_000)), 1_400);
                late.extend(frames.pop().map(|frame| (now + gap, frame)));
                sent += 1;
                testbed.push(now, Toward::Wide, &frames.remove(0))?;
            }
            if late.first().is_some_and(|(due, _)| *due <= now) {
                let (_, frame) = late.remove(0);
                testbed.push(now, Toward::Wide, &frame)?;
                whole += u64::from(testbed.left().any(|out| out.frame.len() == 2_028));
            }
        }
        let due = sent - late.len() as u64;
        holds(1_000 * whole >= 999 * due, || {
            format!("at {per_second} fragments a second, {whole} of {due} good datagrams complete")
        })?;
        field.end(&mut testbed)?;
    }
    joiner_full(field)
}

/// Part of rel:A11: the flood of first fragments at a fragment merger. A full merger forwards new datagrams
/// unchanged. A datagram that began before the flood must be forwarded completely.
fn joiner_full(field: &mut Field) -> Verdict {
    let gateway =
        Gateway { merge: true, reassemble: false, limit: 200_000, ..Gateway::new(GatewayRole::Border, 0) };
    let mut testbed = field.rig(&gateway, [9_000, 1_500]);
    for round in 0..field.times(500, 20) {
        let start = Duration::from_millis(20 * round);
        let good = head(false, 1, 2, UDP, round as u32 + 1);
        let upper = udp(&good, 9, &craft::bytes(round, 1_592));
        let frames = fragments(&good, &upper, 400);
        let flood: Vec<_> = (0..200)
            .map(|number| {
                from_address(fragment(&good, 0, true, &[7; 1_000]), (1 << 31) + round as u32 * 200 + number)
            })
            .collect();
        let mut passed = 0;
        for (number, frame) in frames[..1].iter().chain(&flood).chain(&frames[1..3]).enumerate() {
            testbed.push(start + Duration::from_micros(number as u64), Toward::Wide, frame)?;
            passed += testbed.left().filter(|out| out.frame == frame).count();
        }
        holds(passed > 0, || "the fragment merger was never full".to_owned())?;
        testbed.push(start + Duration::from_millis(1), Toward::Wide, &frames[3])?;
        let is_whole = testbed.left().any(|out| out.frame.len() == 20 + upper.len());
        holds(is_whole, || format!("datagram {round} does not leave complete, and {passed} new fragments passed"))?;
    }
    field.end(&mut testbed)
}

/// rel:A16: buffer pools of random size that run empty at different steps, while fragments and segments of every
/// kind arrive. All buffers must be returned to the pool.
pub fn error_paths(field: &mut Field) -> Verdict {
    let mut number = 0;
    for round in 0..field.times(600, 40) {
        let role =
            [GatewayRole::WideInterface, GatewayRole::Border, GatewayRole::ReceiveOffload][round as usize % 3];
        let late = field.rng.one_of(&[Lateness::Release, Lateness::Retire]);
        let (pool, limit) = (field.rng.from(3_000, 300_000) as usize, field.rng.from(2_000, 100_000) as usize);
        let reassemble = field.rng.one_in(2);
        let gateway = Gateway { pool, limit, late, reassemble, merge: !reassemble, ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        testbed.has_right_sums = false;
        let mut now = Clock::default();
        for _ in 0..600 {
            let frame = anything(field, &mut number);
            let toward = if field.rng.one_in(4) { Toward::Narrow } else { Toward::Wide };
            if frame.len() <= 1_500 || toward == Toward::Narrow {
                testbed.push(now.tick(), toward, &frame)?;
            }
            if field.rng.one_in(8) {
                testbed.rest()?;
            }
        }
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A40: ever new flows, each with a segment behind a gap that is never filled. Waiting segments must stay
/// within the memory limit and be forwarded. Each flow starts with a SYN, so the connection table is full, too.
pub fn holes(field: &mut Field) -> Verdict {
    let hold = Some(Hold::Fixed(Duration::from_millis(5)));
    let gateway = Gateway { coalesce: Some(Mode::Resize), hold, ..Gateway::new(GatewayRole::Border, 0) };
    let mut testbed = field.rig(&gateway, [9_000, 1_500]).among_bystanders(64);
    let (mut came, mut went) = (0, 0);
    for number in 0..field.times(1_000_000, 8_000) {
        let head = head(false, (number >> 16) as u16, 2, TCP, number as u32 & 0xFFFF);
        let ports = [number as u16, 80];
        for (seq, flags, len) in [(0, craft::SYN, 0), (1, craft::ACK, 100), (1_001, craft::ACK, 100)] {
            let frame = craft::segment(&head, &Tcp { flags, ..Tcp::of(ports, seq) }, &vec![3; len]);
            testbed.push(Duration::from_micros(number), Toward::Wide, &frame)?;
            came += 1;
            went += testbed.left().count();
        }
    }
    testbed.rest()?;
    went += testbed.left().count();
    testbed.end()?;
    went += testbed.left().count();
    holds(went == came, || format!("{came} segments arrived, {went} left"))?;
    let waited = testbed.event(Event::Reordered);
    holds(waited > 0 && testbed.event(Event::Coalesced) > 0, || format!("{waited} segments were reordered"))?;
    field.end(&mut testbed)?;
    paces(field)
}

/// Part of rel:A40: a flow with constant packet intervals, a pause of any length, and a gap that is never filled.
/// The gap's time-out must be ten times the interval, between 50 µs and 1 ms (L12 to L14). Neither the number of
/// segments behind the gap nor the pause may change the time-out.
fn paces(field: &mut Field) -> Verdict {
    const LEN: u32 = 100;
    let hold = Some(Hold::Adaptive);
    let gateway = Gateway { coalesce: Some(Mode::Resize), hold, ..Gateway::new(GatewayRole::Border, 0) };
    for number in 0..field.times(3_000, 60) {
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        let pace = Duration::from_nanos(field.rng.one_of(&[2_000, 5_000, 11_000, 40_000]));
        let silence = Duration::from_micros(field.rng.one_of(&[0, 1_100, 30_000, 990_000]));
        let timeout = (10 * pace).clamp(Duration::from_micros(50), Duration::from_millis(1));
        let mut now = Duration::from_secs(1);
        let mut said = Tcp::of([number as u16, 80], 1);
        let head = head(number % 2 == 0, 3, 2, TCP, 1);
        let send = |testbed: &mut Rig, said: &Tcp<'_>, now| {
            testbed.push(now, Toward::Wide, &craft::segment(&head, said, &[3; LEN as usize]))
        };
        // Thirty packets before the pause bring the average to the flow's interval. After the pause, five packets
        // must be enough.
        for before in 0..35 {
            now += if before == 30 { silence.max(pace) } else { pace };
            send(&mut testbed, &said, now)?;
            said.seq += LEN;
        }
        let ends = |testbed: &Rig| Event::RUN_ENDS.iter().map(|event| testbed.event(*event)).sum::<u64>();
        let (since, before) = (now, ends(&testbed));
        // The limit is one and a half time-outs, because the average might not have settled. Two intervals are
        // added, because a segment that is due is transmitted only at the next arrival.
        let due = since + timeout * 3 / 2 + 2 * pace;
        for _ in 0..60 {
            said.seq += LEN;
            now += pace;
            send(&mut testbed, &said, now)?;
            holds(now <= due || ends(&testbed) > before, || {
                let waited = now - since;
                format!("a hole is still awaited after {waited:?}, in a flow with a segment every {pace:?}")
            })?;
        }
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// A random packet: malformed, a fragment, or correct.
pub fn anything(field: &mut Field, number: &mut u64) -> Vec<u8> {
    *number += 1;
    let is_v6 = field.rng.one_in(3);
    let head = head(is_v6, 3 + field.rng.below(3) as u16, 9, UDP, field.rng.below(12) as u32);
    let units = |field: &mut Field, most| 8 * field.rng.from(1, most) as usize;
    match field.rng.below(8) {
        0 | 1 => {
            let (at, len) = (units(field, 40) - 8, units(field, 170));
            fragment(&head, at * 8, !field.rng.one_in(5), &vec![7; len])
        }
        2 => {
            let (at, len) = (units(field, 40) - 8, units(field, 20));
            fragment(&head, at, !field.rng.one_in(5), &craft::bytes(*number, len))
        }
        3 => {
            let len = field.rng.below(30) as usize;
            fragment(&head, 8, true, &vec![7; len])
        }
        4 => fragment(&head, 65_528, false, &[7; 32]),
        5 => {
            let len = field.rng.from(1, 5_000) as usize;
            let dont_fragment = field.rng.one_in(2);
            let head = Head { dont_fragment, ..head };
            craft::packet(&head, &udp(&head, 9, &craft::bytes(*number, len)))
        }
        _ => {
            let head = Head { protocol: TCP, ..head };
            let seq = 1_000 * field.rng.below(20) as u32;
            let len = field.rng.one_of(&[0, 1, 999, 1_000, 1_000, 1_000, 4_000]);
            let flags = craft::ACK
                | if field.rng.one_in(6) { craft::PSH } else { 0 }
                | if field.rng.one_in(12) { craft::SYN } else { 0 };
            craft::segment(&head, &Tcp { flags, ..Tcp::of([field.rng.below(3) as u16, 80], seq) }, &vec![5; len])
        }
    }
}

/// Memory charged for a poisoned key, in bytes.
const POISON_CHARGE: usize = 512;
