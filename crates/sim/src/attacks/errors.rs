//! A seed -> attacks on ICMP errors, packet sizes and IP identifications, and a verdict.
//!
//! Each attack is one function, which also checks the result.

use super::craft::{self, SYN, Tcp, head, udp};
use super::fragments::{Clock, unique_head};
use super::rig::{Out, Rig, Verdict};
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, Head, ICMP, ICMPV6, TCP, UDP, V4_LEN};
use core::time::Duration;
use engine::{Event, Toward};
use packet::Sum;
use std::collections::BTreeSet;

/// rel:A22: forged ICMP errors and forged fragments around a TCP stream that a border resizes. The border's output
/// must never be IP fragments. Forged errors must not change the segment size.
pub fn forced_fragments(field: &mut Field) -> Verdict {
    let mut testbed = field.border();
    let mut now = Clock::default();
    let (mut seq, mut lens) = (1u32, BTreeSet::new());
    for turn in 0..field.times(100_000, 1_500) {
        let dont_fragment = field.rng.one_in(2);
        let head = Head { dont_fragment, ..head(false, 2, 1, TCP, turn as u32 & 0xFFFF) };
        let long = craft::segment(&head, &Tcp::of([80, 1], seq), &craft::bytes(turn, 8_960));
        seq = seq.wrapping_add(8_960);
        testbed.push(now.tick(), Toward::Narrow, &long)?;
        for out in testbed.left() {
            let is_segment = wire::tcp_ports(out.frame) == Some([80, 1]);
            holds(is_segment, || "TCP is sent in IP fragments".to_owned())?;
            lens.insert(out.frame.len());
        }
        let report = forged_report(field, &long);
        let forged = craft::fragment(&craft::head(false, 1, 2, TCP, turn as u32 & 0xFFFF), 24, false, &[9; 80]);
        testbed.push(now.tick(), Toward::Wide, &report)?;
        let left: Vec<_> = testbed.left().map(|out| out.frame.to_vec()).collect();
        // The border takes reports about the stream itself, and believes none of these.
        holds(left.is_empty() || left == [report], || "a forged report is forwarded changed".to_owned())?;
        testbed.push(now.tick(), Toward::Wide, &forged)?;
        let left: Vec<_> = testbed.left().map(|out| out.frame.to_vec()).collect();
        holds(left == [forged], || "a packet outside the stream does not pass unchanged".to_owned())?;
    }
    // Only two lengths are correct: that of full segments, and that of the last segment of each packet.
    holds(lens.len() == 2, || format!("forged reports change the segment lengths: {lens:?}"))?;
    field.end(&mut testbed)
}

/// rel:A24: predictable IP IDs of wide interfaces. Within the lifetime of an ID, no host pair may get the same ID
/// twice. The IDs of one gateway or host pair must not reveal those of another.
pub fn foreseen_ids(field: &mut Field) -> Verdict {
    let count = field.times(2_000_000, 20_000);
    for is_v6 in [false, true] {
        let mut testbed = card(field, 0);
        let mut given: BTreeSet<u32> = BTreeSet::new();
        let upper = udp(&head(is_v6, 1, 2, UDP, 0), 9, &[7; 1_500]);
        let packet = craft::packet(&head(is_v6, 1, 2, UDP, 0), &upper);
        let per_version = if is_v6 { count } else { count.min(60_000) };
        for number in 0..per_version {
            // All packets are sent within the lifetime of one IP ID.
            testbed.push(Duration::from_nanos(500 * number), Toward::Narrow, &packet)?;
            if let Some(id) = first_id(&testbed) {
                holds(given.insert(id), || format!("IP ID {id:#x} is issued twice within a lifetime"))?;
            }
        }
        holds(given.len() as u64 >= per_version.min(57_000), || format!("{} IP IDs are issued", given.len()))?;
        field.end(&mut testbed)?;
        let mut firsts = BTreeSet::new();
        for other in 0..200 {
            let mut testbed = card(field, 1 + other);
            for to in [2, 3] {
                let head = head(is_v6, 1, to, UDP, 0);
                testbed.push(Duration::ZERO, Toward::Narrow, &craft::packet(&head, &udp(&head, 9, &[7; 1_500])))?;
                firsts.extend(first_id(&testbed).map(|id| (id as u16) >> 4));
            }
            field.end(&mut testbed)?;
        }
        holds(firsts.len() > 300, || {
            format!("the IP IDs of 400 NICs and pairs start at only {} values", firsts.len())
        })?;
    }
    Ok(())
}

/// rel:A30: SYNs with an MSS of 0 to 100 bytes, or with a usual or maximum MSS, at borders with small MTUs. A
/// raised MSS plus 40 bytes must fit the MTU, or 576 bytes if the MTU is smaller. An MSS may be lowered only to the
/// smaller MTU less 40 bytes.
pub fn least_mss(field: &mut Field) -> Verdict {
    for mtus in [[9_000, 1_500], [1_500, 576], [9_000, 68], [65_535, 1_280], [100, 68], [68, 68]] {
        let gateway = Gateway::new(GatewayRole::Border, 0);
        let mut testbed = field.rig(&gateway, mtus);
        let mut now = Clock::default();
        for announced in (0..=100u16).chain([536, 1_460, 8_960, 65_495, 65_535]) {
            for toward in [Toward::Wide, Toward::Narrow] {
                let (from, to) = if toward == Toward::Wide { (1, 2) } else { (2, 1) };
                let port = announced.wrapping_add(1_000);
                let options = [2, 4, (announced >> 8) as u8, announced as u8];
                let syn = Tcp { ports: [port, 80], seq: 5, ack: 0, flags: SYN, window: 100, options: &options };
                let frame = craft::segment(&head(false, from, to, TCP, 1), &syn, &[]);
                testbed.push(now.tick(), toward, &frame)?;
                let said = testbed.left().find_map(|out| mss_of(out.frame));
                // This MSS limits the segments of the opposite direction.
                let carried = mtus[toward as usize];
                let is_kept = said.is_some_and(|said| {
                    said >= announced.min(mtus[0].min(mtus[1]) - 40)
                        && (said <= announced || u32::from(said) + 40 <= u32::from(carried).max(576))
                });
                holds(is_kept, || {
                    format!("toward {toward:?}, between MTUs {mtus:?}, an MSS of {announced} becomes {said:?}")
                })?;
            }
        }
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// rel:A31: an attacker provokes ICMP errors up to the rate limit, to detect whether another host provoked one. The
/// number of errors must not reveal that. A little jitter of the limit would hide only a single measurement, so the
/// experiment is repeated.
pub fn rate_oracle(field: &mut Field) -> Verdict {
    let rounds = field.times(2_000, 200);
    let mut counts: [[u64; 128]; 2] = [[0; 128]; 2];
    for round in 0..rounds {
        for (did_other, counts) in [false, true].into_iter().zip(&mut counts) {
            let secret = field.rng.number();
            let mut testbed = Rig::new(&Gateway::new(GatewayRole::Border, 0), [9_000, 1_500], secret);
            let mut drawn = 0;
            // The attacker does not know the phase of the rate limit, so the experiment starts at a random time
            // within a second.
            let start = Duration::from_micros(field.rng.below(1_000_000));
            if did_other {
                testbed.push(start, Toward::Narrow, &too_big(2_000 + round as u16, 3, round))?;
            }
            for number in 0..100 {
                testbed.push(start + Duration::from_micros(1 + number), Toward::Narrow, &too_big(2, 3, number))?;
                drawn += testbed.left().filter(|out| out.is_answer).count();
            }
            counts[drawn.min(127)] += 1;
            field.end(&mut testbed)?;
        }
    }
    // The probability by which the best guess is better than a coin toss.
    let differ: u64 = (0..128).map(|drawn| counts[0][drawn].abs_diff(counts[1][drawn])).sum();
    let advantage = differ as f64 / (2 * rounds) as f64;
    let chance = 3.0 / (rounds as f64).sqrt();
    holds(advantage <= 0.01 + chance, || {
        format!(
            "an attacker who counts ICMP errors detects those of another with an advantage of {:.0} %",
            100.0 * advantage
        )
    })
}

/// rel:A34: packets that are too long, with any protocol and content. The ICMP error must quote the start of the
/// packet. An ICMPv4 error may have at most 576 bytes, an ICMPv6 error at most 1,280.
pub fn quotes(field: &mut Field) -> Verdict {
    let mut testbed = field.border();
    testbed.has_right_sums = false;
    let (mut now, mut number) = (Clock::default(), 0);
    let mut answered = 0;
    for _ in 0..field.times(300_000, 5_000) {
        let is_v6 = field.rng.one_in(2);
        let protocol = field.rng.one_of(&[
            ICMP,
            TCP,
            UDP,
            ICMPV6,
            132,
            50,
            51,
            0,
            43,
            60,
            44,
            field.rng.clone().number() as u8,
        ]);
        let head = Head { dont_fragment: true, ..unique_head(is_v6, protocol, &mut number) };
        let len = field.rng.from(1_490, 8_900) as usize;
        let trigger = craft::packet(&head, &craft::bytes(field.rng.number(), len));
        // The packets are too slow to reach the rate limit of ICMP errors.
        now.0 += Duration::from_millis(2);
        testbed.push(now.0, Toward::Narrow, &trigger)?;
        let answers: Vec<Vec<u8>> =
            testbed.left().filter(|out| out.is_answer).map(|out| out.frame.to_vec()).collect();
        for answer in answers {
            answered += 1;
            check_answer(&answer, &trigger)?;
        }
    }
    holds(answered > 0, || "no ICMP error was sent".to_owned())?;
    field.end(&mut testbed)
}

/// rel:A35: a million packets per second that are too long. The number of ICMP errors must stay within the rate
/// limit and the burst limit. Packets for which RFC 1812 section 4.3.2.7 or RFC 4443 section 2.4 forbids errors
/// must cause none.
pub fn storm(field: &mut Field) -> Verdict {
    let mut testbed = field.border();
    let millis = field.times(3_000, 50);
    let mut answers = 0;
    for number in 0..1_000 * millis {
        testbed.push(
            Duration::from_micros(number),
            Toward::Narrow,
            &too_big((number % 50_000) as u16, 3, number),
        )?;
        answers += testbed.left().filter(|out| out.is_answer).count() as u64;
    }
    holds(answers <= millis + 50 && answers >= millis / 2, || format!("{answers} ICMP errors in {millis} ms"))?;
    field.end(&mut testbed)?;
    let mut quiet = field.border();
    for (number, frame) in unanswerable().iter().enumerate() {
        quiet.push(Duration::from_secs(number as u64), Toward::Narrow, frame)?;
        let count = quiet.left().filter(|out| out.is_answer).count();
        holds(count == 0, || format!("packet {number}, which must not cause an ICMP error, causes one"))?;
    }
    let forbidden = quiet.ledger(Toward::Narrow).event(Event::IcmpForbidden).packets;
    holds(forbidden == unanswerable().len() as u64, || format!("{forbidden} ICMP errors were suppressed"))?;
    field.end(&mut quiet)
}

/// A datagram of 4,000 bytes that must not be fragmented.
fn too_big(from: u16, to: u16, number: u64) -> Vec<u8> {
    let head = Head { dont_fragment: true, ..head(false, from, to, UDP, number as u32 & 0xFFFF) };
    craft::packet(&head, &[7; 3_980])
}

/// Packets that are too long but must not cause an ICMP error: ICMP errors, multicast and broadcast packets, later
/// fragments, and packets with invalid sources.
fn unanswerable() -> Vec<Vec<u8>> {
    let plain = too_big(2, 3, 1);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = plain.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        wire::seal_v4(&mut frame[..V4_LEN]);
        frame
    };
    let mut error = with(9, &[ICMP]);
    error[V4_LEN] = 3;
    let v6 = |mark: fn(&mut Vec<u8>)| {
        let mut frame = craft::packet(&head(true, 2, 3, ICMPV6, 0), &[1; 3_980]);
        mark(&mut frame);
        frame
    };
    vec![
        error,
        // To a multicast group, to the broadcast address, from a multicast group, from the unspecified address,
        // from the loopback address.
        with(16, &[224, 0, 0, 9]),
        with(16, &[255; 4]),
        with(12, &[224, 0, 0, 9]),
        with(12, &[0; 4]),
        with(12, &[127, 0, 0, 1]),
        // A later fragment.
        with(6, &[0x40, 9]),
        v6(|_| {}),
        v6(|frame| frame[8..24].fill(0)),
        v6(|frame| frame[8] = 0xFF),
    ]
}

/// A "fragmentation needed" error forged by an off-path attacker. The error quotes the packet `about`.
fn forged_report(field: &mut Field, about: &[u8]) -> Vec<u8> {
    let mtu = field.rng.one_of(&[0u16, 1, 28, 67, 68, 296, 552, 1_280, 1_499, 9_000, 65_535]);
    let mut upper = [3, 4, 0, 0, 0, 0].to_vec();
    upper.extend(mtu.to_be_bytes());
    upper.extend(&about[..28]);
    let sum = Sum::of(&upper).checksum();
    upper[2..4].copy_from_slice(&sum.to_be_bytes());
    craft::packet(&head(false, 1, 2, ICMP, 9), &upper)
}

/// Checks an ICMP error: parsable, short, with a correct checksum, and with a quote of the packet's start.
fn check_answer(answer: &[u8], trigger: &[u8]) -> Verdict {
    let seen = wire::read(answer).ok_or_else(|| "an ICMP error cannot be parsed".to_owned())?;
    let most = if seen.is_v6 { 1_280 } else { 576 };
    holds(answer.len() <= most, || format!("an ICMP error is {} bytes long", answer.len()))?;
    let upper = craft::upper(answer, &seen);
    let quote = upper.get(8..).unwrap_or_default();
    holds(trigger.starts_with(quote) && quote.len() >= 28, || {
        format!("an ICMP error quotes {} bytes that differ from the packet", quote.len())
    })?;
    let ends = if seen.is_v6 {
        Sum::of(&answer[8..40]) + Sum::word(58) + Sum::word(upper.len() as u16)
    } else {
        Sum::of(&[])
    };
    holds((ends + Sum::of(upper)).is_right(), || "an ICMP error has a wrong checksum".to_owned())
}

/// A wide interface with its own secret key.
fn card(field: &Field, number: u64) -> Rig {
    let gateway = Gateway::new(GatewayRole::WideInterface, 0);
    Rig::new(&gateway, [65_535, 1_280], field.seed.wrapping_mul(1_000) + number)
}

/// The IP ID of the first transmitted fragment; `None` if no fragment was transmitted.
fn first_id(testbed: &Rig) -> Option<u32> {
    let id = |out: Out<'_>| wire::read(out.frame).filter(|seen| seen.fragment.is_some()).map(|seen| seen.id);
    testbed.left().find_map(id)
}

/// The MSS in an IPv4 SYN that starts its options with the MSS; `None` otherwise.
fn mss_of(frame: &[u8]) -> Option<u16> {
    let at = V4_LEN + 20;
    (frame.get(at) == Some(&2)).then(|| wire::word(frame, at + 2))
}
