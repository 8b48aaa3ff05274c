//! Seed -> packets that provoke, forge or misuse ICMP errors, sizes and identifications, and the gateway's verdict.

use super::craft::{self, SYN, Tcp, head, udp};
use super::fragments::{Clock, fresh};
use super::rig::{Out, Rig, Verdict};
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, Head, ICMP, ICMPV6, TCP, UDP, V4_LEN};
use core::time::Duration;
use engine::{Event, Toward};
use packet::Sum;
use std::collections::BTreeSet;

/// rel:A22: forged reports and forged fragments around a TCP stream that a border resizes. Its output is never IP
/// fragments, and forged reports do not change its segment size.
pub fn forced_fragments(field: &mut Field) -> Verdict {
    let mut stand = field.border();
    let mut now = Clock::default();
    let (mut seq, mut lens) = (1u32, BTreeSet::new());
    for turn in 0..field.times(100_000, 1_500) {
        let dont_fragment = field.dice.one_in(2);
        let head = Head { dont_fragment, ..head(false, 2, 1, TCP, turn as u32 & 0xFFFF) };
        let long = craft::segment(&head, &Tcp::of([80, 1], seq), &craft::bytes(turn, 8_960));
        seq = seq.wrapping_add(8_960);
        stand.push(now.tick(), Toward::Narrow, &long)?;
        for out in stand.left() {
            let is_segment = wire::tcp_ports(out.frame) == Some([80, 1]);
            holds(is_segment, || "TCP is sent in IP fragments".to_owned())?;
            lens.insert(out.frame.len());
        }
        let report = forged_report(field, &long);
        let forged = craft::fragment(&craft::head(false, 1, 2, TCP, turn as u32 & 0xFFFF), 24, false, &[9; 80]);
        for frame in [report, forged] {
            stand.push(now.tick(), Toward::Wide, &frame)?;
            let left: Vec<_> = stand.left().map(|out| out.frame.to_vec()).collect();
            holds(left == [frame], || "a packet outside the stream does not pass unchanged".to_owned())?;
        }
    }
    // The full segments and the last of each packet.
    holds(lens.len() == 2, || format!("forged reports change the segment lengths: {lens:?}"))?;
    field.end(&mut stand)
}

/// rel:A24: identifications issued by network cards. Within a lifetime, no pair gets one twice. Those of one card
/// do not reveal those of another card, nor those of one pair those of the next pair.
pub fn foreseen_ids(field: &mut Field) -> Verdict {
    let count = field.times(2_000_000, 20_000);
    for is_v6 in [false, true] {
        let mut stand = card(field, 0);
        let mut given: BTreeSet<u32> = BTreeSet::new();
        let upper = udp(&head(is_v6, 1, 2, UDP, 0), 9, &[7; 1_500]);
        let packet = craft::packet(&head(is_v6, 1, 2, UDP, 0), &upper);
        let per_version = if is_v6 { count } else { count.min(60_000) };
        for number in 0..per_version {
            // All within one lifetime.
            stand.push(Duration::from_nanos(500 * number), Toward::Narrow, &packet)?;
            if let Some(id) = first_id(&stand) {
                holds(given.insert(id), || format!("IP ID {id:#x} is issued twice within a lifetime"))?;
            }
        }
        holds(given.len() as u64 >= per_version.min(57_000), || format!("{} IP IDs are issued", given.len()))?;
        field.end(&mut stand)?;
        let mut firsts = BTreeSet::new();
        for other in 0..200 {
            let mut stand = card(field, 1 + other);
            for to in [2, 3] {
                let head = head(is_v6, 1, to, UDP, 0);
                stand.push(Duration::ZERO, Toward::Narrow, &craft::packet(&head, &udp(&head, 9, &[7; 1_500])))?;
                firsts.extend(first_id(&stand).map(|id| (id as u16) >> 4));
            }
            field.end(&mut stand)?;
        }
        holds(firsts.len() > 300, || {
            format!("the IP IDs of 400 NICs and pairs start at only {} values", firsts.len())
        })?;
    }
    Ok(())
}

/// rel:A30: SYNs that announce an MSS of 0 to 100 bytes, or the largest possible one, across borders of the
/// smallest MTUs. The rewritten MSS never exceeds the link, or the packet size that every host accepts (576 bytes).
/// It is never near zero.
pub fn least_mss(field: &mut Field) -> Verdict {
    for mtus in [[9_000, 1_500], [1_500, 576], [9_000, 68], [65_535, 1_280], [100, 68], [68, 68]] {
        let gateway = Gateway::new(GatewayRole::Border, 0);
        let mut stand = field.rig(&gateway, mtus);
        let mut now = Clock::default();
        for announced in (0..=100u16).chain([536, 1_460, 8_960, 65_495, 65_535]) {
            for toward in [Toward::Wide, Toward::Narrow] {
                let (from, to) = if toward == Toward::Wide { (1, 2) } else { (2, 1) };
                let port = announced.wrapping_add(1_000);
                let options = [2, 4, (announced >> 8) as u8, announced as u8];
                let syn = Tcp { ports: [port, 80], seq: 5, ack: 0, flags: SYN, window: 100, options: &options };
                let frame = craft::segment(&head(false, from, to, TCP, 1), &syn, &[]);
                stand.push(now.tick(), toward, &frame)?;
                let said = stand.left().find_map(|out| mss_of(out.frame));
                // Segments limited by this MSS come from the opposite end.
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
        field.end(&mut stand)?;
    }
    Ok(())
}

/// rel:A31: an attacker provokes errors up to the rate limit, and tries to detect whether another sender provoked
/// one meanwhile. The number of errors must not reveal it. Jitter of the limit alone is not enough: the experiment
/// runs a thousand times.
pub fn rate_oracle(field: &mut Field) -> Verdict {
    let rounds = field.times(2_000, 200);
    let mut counts: [[u64; 128]; 2] = [[0; 128]; 2];
    for round in 0..rounds {
        for (did_other, counts) in [false, true].into_iter().zip(&mut counts) {
            let secret = field.dice.number();
            let mut stand = Rig::new(&Gateway::new(GatewayRole::Border, 0), [9_000, 1_500], secret);
            let mut drawn = 0;
            // The start of the experiment within the second is unknown too.
            let start = Duration::from_micros(field.dice.below(1_000_000));
            if did_other {
                stand.push(start, Toward::Narrow, &too_big(2_000 + round as u16, 3, round))?;
            }
            for number in 0..100 {
                stand.push(start + Duration::from_micros(1 + number), Toward::Narrow, &too_big(2, 3, number))?;
                drawn += stand.left().filter(|out| out.is_answer).count();
            }
            counts[drawn.min(127)] += 1;
            field.end(&mut stand)?;
        }
    }
    // The advantage of the best guess over a coin toss.
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

/// rel:A34: packets of any protocol and content that are too long. The quote in the error is the start of the
/// packet. No error is longer than 576 bytes, or 1,280 for IPv6.
pub fn quotes(field: &mut Field) -> Verdict {
    let mut stand = field.border();
    stand.has_right_sums = false;
    let (mut now, mut number) = (Clock::default(), 0);
    let mut answered = 0;
    for _ in 0..field.times(300_000, 5_000) {
        let is_v6 = field.dice.one_in(2);
        let protocol = field.dice.one_of(&[
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
            field.dice.clone().number() as u8,
        ]);
        let head = Head { dont_fragment: true, ..fresh(is_v6, protocol, &mut number) };
        let len = field.dice.from(1_490, 8_900) as usize;
        let trigger = craft::packet(&head, &craft::bytes(field.dice.number(), len));
        // Slow enough for the rate limit.
        now.0 += Duration::from_millis(2);
        stand.push(now.0, Toward::Narrow, &trigger)?;
        let answers: Vec<Vec<u8>> =
            stand.left().filter(|out| out.is_answer).map(|out| out.frame.to_vec()).collect();
        for answer in answers {
            answered += 1;
            check_answer(&answer, &trigger)?;
        }
    }
    holds(answered > 0, || "no ICMP error was sent".to_owned())?;
    field.end(&mut stand)
}

/// rel:A35: a million packets a second that are too long. Errors keep to their rate and burst. Packets that must
/// not cause errors cause none (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4).
pub fn storm(field: &mut Field) -> Verdict {
    let mut stand = field.border();
    let millis = field.times(3_000, 50);
    let mut answers = 0;
    for number in 0..1_000 * millis {
        stand.push(Duration::from_micros(number), Toward::Narrow, &too_big((number % 50_000) as u16, 3, number))?;
        answers += stand.left().filter(|out| out.is_answer).count() as u64;
    }
    holds(answers <= millis + 50 && answers >= millis / 2, || format!("{answers} ICMP errors in {millis} ms"))?;
    field.end(&mut stand)?;
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

/// Packets that are too long but must not cause an error: ICMP errors, multicast and broadcast packets, later
/// fragments, invalid sources.
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
        // To a group, to all, from a group, from the unspecified address, from this host itself.
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

/// A report that a packet was too long, as an off-path attacker would forge it.
fn forged_report(field: &mut Field, about: &[u8]) -> Vec<u8> {
    let mtu = field.dice.one_of(&[0u16, 1, 28, 67, 68, 296, 552, 1_280, 1_499, 9_000, 65_535]);
    let mut upper = [3, 4, 0, 0, 0, 0].to_vec();
    upper.extend(mtu.to_be_bytes());
    upper.extend(&about[..28]);
    let sum = Sum::of(&upper).checksum();
    upper[2..4].copy_from_slice(&sum.to_be_bytes());
    craft::packet(&head(false, 1, 2, ICMP, 9), &upper)
}

/// Checks an ICMP error: readable, short, with a right checksum, and quoting the start of the packet.
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

/// A host's network card with a secret of its own.
fn card(field: &Field, number: u64) -> Rig {
    let gateway = Gateway::new(GatewayRole::WideInterface, 0);
    Rig::new(&gateway, [65_535, 1_280], field.seed.wrapping_mul(1_000) + number)
}

/// The identification of the first fragment that left.
fn first_id(stand: &Rig) -> Option<u32> {
    let id = |out: Out<'_>| wire::read(out.frame).filter(|seen| seen.fragment.is_some()).map(|seen| seen.id);
    stand.left().find_map(id)
}

/// The MSS that a SYN announces.
fn mss_of(frame: &[u8]) -> Option<u16> {
    let at = V4_LEN + 20;
    (frame.get(at) == Some(&2)).then(|| wire::word(frame, at + 2))
}
