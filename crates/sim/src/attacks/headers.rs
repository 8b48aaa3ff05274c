//! A seed -> nested, endless, disordered or tunnelled headers, and a verdict.
//!
//! Each attack checks that a gateway parses the headers correctly.

use super::craft::{self, fragment, fragments, padding, udp, with_extensions, with_options};
use super::fragments::{Clock, TICK, unique_head};
use super::rig::{Rig, Verdict};
use super::{Field, holds, host};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING, UDP};
use engine::{Reason, Toward};

/// rel:A17: two to twenty Fragment headers in a row. Such packets must neither be parsed nor reassembled.
pub fn nested(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    let rounds = field.times(5_000, 100);
    for _ in 0..rounds {
        for depth in 1..=19usize {
            let head = unique_head(true, FRAGMENT, &mut number);
            let mut inner = Vec::new();
            for level in 0..depth {
                let next = if level + 1 == depth { UDP } else { FRAGMENT };
                inner.extend([next, 0, 0, 1, 0, 0, 0, number as u8]);
            }
            inner.extend([7; 32]);
            let frames = [fragment(&head, 0, true, &inner), fragment(&head, inner.len(), false, &[7; 8])];
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            holds(left.is_empty(), || format!("{depth} nested headers make a packet"))?;
        }
    }
    let passed = testbed.passed(Reason::FragNested) + testbed.passed(Reason::ChainTooLong);
    holds(passed == rounds * 19, || format!("of {} nested fragments, {passed} are recognised", rounds * 19))?;
    field.end(&mut testbed)
}

/// rel:A18: an atomic fragment between the fragments of a datagram with the same key. Both must be forwarded
/// separately.
pub fn atomic(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(50_000, 1_000) {
        let head = unique_head(true, UDP, &mut number);
        let [upper, alone] = [1_800, 40].map(|len| udp(&head, 9, &craft::bytes(number, len)));
        let mut frames = fragments(&head, &upper, 1_400);
        let at = field.rng.below(3) as usize;
        frames.insert(at, fragment(&head, 0, false, &alone));
        let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
        let mut expected = vec![craft::packet(&head, &upper)];
        expected.insert(usize::from(at == 2), craft::packet(&head, &alone));
        holds(left == expected, || format!("atomic fragment at step {at}: {} packets leave", left.len()))?;
    }
    field.end(&mut testbed)
}

/// rel:A19: every chain of up to three extension headers before the Fragment header, and later fragments with a
/// different chain. The reassembled datagram must have exactly the headers of its first fragment.
pub fn chains(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    let kinds = [HOP_BY_HOP, ROUTING, DESTINATION];
    for _ in 0..field.times(500, 8) {
        for code in 0..64usize {
            let chosen: Vec<u8> =
                (0..3).filter_map(|at| kinds.get((code >> (2 * at) & 3).wrapping_sub(1))).copied().collect();
            // Hop-by-hop options come first, or not at all (RFC 8200 section 4.1).
            if chosen.iter().skip(1).any(|kind| *kind == HOP_BY_HOP) {
                continue;
            }
            let paddings: Vec<Vec<u8>> =
                chosen.iter().map(|_| padding(8 * field.rng.from(1, 4) as usize)).collect();
            let chain: Vec<(u8, &[u8])> = chosen.iter().copied().zip(paddings.iter().map(Vec::as_slice)).collect();
            let head = unique_head(true, UDP, &mut number);
            let upper = udp(&head, 9, &craft::bytes(number, 2_000));
            let other = padding(16);
            let mut frames: Vec<_> =
                fragments(&head, &upper, 1_000).iter().map(|frame| with_extensions(frame, &chain)).collect();
            if field.rng.one_in(2) {
                frames[1] = with_extensions(&fragments(&head, &upper, 1_000)[1], &[(DESTINATION, &other)]);
            }
            super::fragments::shuffle(field, &mut frames);
            let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
            let expected = with_extensions(&craft::packet(&head, &upper), &chain);
            holds(left == [expected], || format!("after headers {chosen:?}, {} packets leave", left.len()))?;
        }
    }
    field.end(&mut testbed)
}

/// rel:A20: chains of 1 to 24 extension headers, each of 8 to 1,400 bytes. Packets with more than eight extension
/// headers, or more than 256 bytes of them, must be forwarded unparsed and counted. Within these limits, fragments
/// with the chain must be reassembled.
pub fn endless_chain(field: &mut Field) -> Verdict {
    let mut testbed = field.host().among_bystanders(16);
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(400, 8) {
        for count in 1..=24usize {
            for len in [8, 16, 32, 56, 128, 256, 1_400] {
                if count * len > 1_400 {
                    continue;
                }
                let head = unique_head(true, UDP, &mut number);
                let bytes = padding(len);
                let chain: Vec<(u8, &[u8])> = (0..count).map(|_| (DESTINATION, bytes.as_slice())).collect();
                let upper = udp(&head, 9, &[7; 32]);
                let before = testbed.passed(Reason::ChainTooLong);
                let whole = with_extensions(&craft::packet(&head, &upper), &chain);
                testbed.push(now.tick(), Toward::Wide, &whole)?;
                let left = testbed.left().filter(|out| out.frame == whole).count() as u64;
                let unread = testbed.passed(Reason::ChainTooLong) - before;
                let is_long = count > 8 || count * len > 256;
                holds(unread == u64::from(is_long) && left + unread == 1, || {
                    format!("{count} headers of {len} bytes: {left} packets leave, {unread} are not parsed")
                })?;
                let upper = udp(&head, 9, &craft::bytes(number, 2_000));
                let frames: Vec<_> =
                    fragments(&head, &upper, 1_000).iter().map(|frame| with_extensions(frame, &chain)).collect();
                let before = testbed.passed(Reason::ChainTooLong);
                let left = testbed.push_all(now.tick(), TICK, Toward::Wide, &frames)?;
                now.0 += TICK * 8;
                let unread = testbed.passed(Reason::ChainTooLong) - before;
                let joined = with_extensions(&craft::packet(&head, &upper), &chain);
                let is_kept = if is_long { unread == frames.len() as u64 } else { left == [joined] && unread == 0 };
                holds(is_kept, || {
                    format!(
                        "a datagram after {count} headers of {len} bytes: {} packets leave, {unread} are not parsed",
                        left.len()
                    )
                })?;
            }
        }
    }
    field.end(&mut testbed)
}

/// rel:A25: datagrams of every length over links with MTUs of 1,280 to 65,535 bytes. One wide interface fragments
/// them, and another reassembles them. The datagrams must arrive unchanged.
pub fn jumbo(field: &mut Field) -> Verdict {
    let mut number = 0;
    for mtu in [1_280, 4_615, 4_616, 9_000, 16_384, 65_535] {
        let mut near = field.rig(&Gateway::new(GatewayRole::WideInterface, 0), [65_535, mtu]);
        let mut far = field.rig(&host(), [65_535, mtu]);
        let mut now = Clock::default();
        let step = field.times(97, 1_999) as usize;
        for len in (0..65_480).step_by(step).chain([65_479, 65_480, 65_487]) {
            let is_v6 = field.rng.one_in(2) && len <= 65_480;
            let head = unique_head(is_v6, UDP, &mut number);
            round_trip(
                &mut near,
                &mut far,
                &mut now,
                &craft::packet(&head, &udp(&head, 9, &craft::bytes(number, len))),
            )?;
        }
        field.end(&mut near)?;
        field.end(&mut far)?;
    }
    Ok(())
}

/// rel:A26: fragments inside of IP in IP, GRE and VXLAN, some with false lengths. The inner packet must not be
/// parsed, and must arrive unchanged.
pub fn tunnelled(field: &mut Field) -> Verdict {
    let mut near = field.rig(&Gateway::new(GatewayRole::WideInterface, 0), [65_535, 1_500]);
    let mut far = field.host();
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(20_000, 300) {
        let len = 8 * field.rng.from(1, 500) as usize;
        let more = field.rng.one_in(2);
        let inner_head = unique_head(field.rng.one_in(2), UDP, &mut number);
        let mut inner = fragment(&inner_head, 8 * field.rng.below(100) as usize, more, &craft::bytes(number, len));
        if field.rng.one_in(2) {
            // One changed byte among the fields for length, identification and fragment offset.
            let at = field.rng.from(2, 7) as usize;
            inner[at] ^= field.rng.number() as u8;
        }
        let (protocol, mut upper) = match field.rng.below(3) {
            0 => (if inner_head.is_v6 { 41 } else { 4 }, Vec::new()),
            1 => (47, vec![0, 0, 8, 0]),
            _ => (UDP, Vec::new()),
        };
        upper.extend(&inner);
        let head = unique_head(false, protocol, &mut number);
        if protocol == UDP {
            let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &super::fragments::in_ethernet(&[], &inner)].concat();
            upper = udp(&head, 4_789, &vxlan);
        }
        round_trip(&mut near, &mut far, &mut now, &craft::packet(&head, &upper))?;
    }
    field.end(&mut near)?;
    field.end(&mut far)
}

/// rel:A28: every header length, MTU and payload length near the limits of fragmentation. No fragment may exceed
/// the MTU, as the rig asserts. The fragments together must be the datagram.
pub fn every_cut(field: &mut Field) -> Verdict {
    let mut number = 0;
    let mtus: &[u16] = if field.times(1, 0) == 1 {
        &[68, 69, 75, 76, 77, 127, 128, 576, 1_280, 1_281, 1_287, 1_288, 1_500]
    } else {
        &[68, 76, 1_280, 1_500]
    };
    for mtu in mtus {
        let mut near = field.rig(&Gateway::new(GatewayRole::WideInterface, 0), [65_535, *mtu]);
        let mut far = field.rig(&host(), [65_535, *mtu]);
        let mut now = Clock::default();
        for option_len in [0, 4, 20, 40] {
            for len in 0..=field.times(3 * u64::from(*mtu), 200) as usize {
                let head = unique_head(false, UDP, &mut number);
                let plain = craft::packet(&head, &udp(&head, 9, &craft::bytes(number, len)));
                // No-operation options are not copied to fragments.
                round_trip(&mut near, &mut far, &mut now, &with_options(&plain, &vec![1; option_len]))?;
                if *mtu >= 1_280 && option_len > 0 {
                    let head = unique_head(true, UDP, &mut number);
                    let plain = craft::packet(&head, &udp(&head, 9, &craft::bytes(number, len)));
                    let padding = padding(option_len.next_multiple_of(8));
                    round_trip(&mut near, &mut far, &mut now, &with_extensions(&plain, &[(ROUTING, &padding)]))?;
                }
            }
        }
        field.end(&mut near)?;
        field.end(&mut far)?;
    }
    Ok(())
}

/// rel:A47: IP in IP, with one to forty levels. The gateway must not unwrap any level, and every packet must arrive
/// unchanged.
pub fn recursion(field: &mut Field) -> Verdict {
    let mut near = field.rig(&Gateway::new(GatewayRole::WideInterface, 0), [65_535, 1_500]);
    let mut far = field.host();
    let (mut now, mut number) = (Clock::default(), 0);
    for _ in 0..field.times(500, 8) {
        for depth in 1..=40 {
            let head = unique_head(false, UDP, &mut number);
            let len = field.rng.from(1, 3_000) as usize;
            let mut packet = craft::packet(&head, &udp(&head, 9, &craft::bytes(number, len)));
            for level in 0..depth {
                let is_v6 = (number >> (level % 8)) & 1 == 1;
                let protocol = if packet[0] >> 4 == 4 { 4 } else { 41 };
                packet = craft::packet(&unique_head(is_v6, protocol, &mut number), &packet);
            }
            round_trip(&mut near, &mut far, &mut now, &packet)?;
        }
    }
    field.end(&mut near)?;
    field.end(&mut far)
}

/// Sends a packet through two wide interfaces, fragmented if needed, and compares the result. Only the IPv4
/// identification may differ, because the first wide interface sets it when it fragments.
fn round_trip(near: &mut Rig, far: &mut Rig, now: &mut Clock, packet: &[u8]) -> Verdict {
    near.push(now.tick(), Toward::Narrow, packet)?;
    let wires: Vec<_> = near.left().map(|out| out.frame.to_vec()).collect();
    let mut arrived = far.push_all(now.tick(), TICK / 64, Toward::Wide, &wires)?;
    now.0 += TICK * 64;
    for frame in &mut arrived {
        if frame[0] >> 4 == 4 && frame.len() == packet.len() {
            frame[4..6].copy_from_slice(&packet[4..6]);
            let header_len = usize::from(frame[0] & 15) * 4;
            wire::seal_v4(&mut frame[..header_len]);
        }
    }
    holds(arrived == [packet], || {
        format!(
            "a packet of {} bytes left in {} fragments and arrives as {} packets",
            packet.len(),
            wires.len(),
            arrived.len()
        )
    })
}
