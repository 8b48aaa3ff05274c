//! A seed -> frames that are too short or random, and a verdict.
//!
//! Each attack checks that a gateway does not panic and respects the laws.

use super::craft;
use super::floods::anything;
use super::fragments::{Clock, in_ethernet};
use super::rig::{Rig, Verdict};
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::V4_LEN;
use engine::{Reason, Toward};
use packet::LinkType;

/// rel:A52: frames of 0 to 60 bytes with every link type. Two thirds of them start with a link header and a packet,
/// the others are random bytes. Frames with a complete packet must be parsed. Frames that are truncated or too
/// short must be forwarded unparsed, with a counted reason.
pub fn short_frames(field: &mut Field) -> Verdict {
    let media = [LinkType::Ip, LinkType::Ethernet, LinkType::Loopback, LinkType::Cooked, LinkType::Cooked2];
    for link_type in media {
        let mut testbed = field.border();
        (testbed.link_type, testbed.has_right_sums) = (link_type, false);
        let (mut now, mut number, mut wholes) = (Clock::default(), 0, 0);
        for _ in 0..field.times(4_000, 60) {
            for len in 0..=60usize {
                let packet = anything(field, &mut number);
                let is_packet = !field.rng.one_in(3);
                let mut frame = if is_packet {
                    on_link(field, link_type, &packet)
                } else {
                    craft::bytes(field.rng.number(), 60)
                };
                // The shortest frame that can contain a packet: without VLAN tags, and with an IPv4 header.
                let least = link_len_min(link_type) + V4_LEN;
                let is_whole = is_packet && frame.len() <= len;
                let is_cut = is_packet && frame.len() > len || len < least;
                frame.resize(len, 0);
                let [read, passed] = fates(&testbed);
                testbed.push(now.tick(), Toward::Wide, &frame)?;
                let [read, passed] = [fates(&testbed)[0] - read, fates(&testbed)[1] - passed];
                holds(!(is_whole && read != 1 || is_cut && passed != 1) && read + passed == 1, || {
                    format!(
                        "a frame of {len} bytes on {link_type:?} is parsed {read} times, and passes {passed} times"
                    )
                })?;
                wholes += u64::from(is_whole);
            }
        }
        holds(wholes > 0, || format!("no frame on {link_type:?} holds a packet"))?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// Puts a packet behind a header of the link type. On Ethernet, half of the packets get a VLAN tag.
fn on_link(field: &mut Field, link_type: LinkType, packet: &[u8]) -> Vec<u8> {
    let is_v4 = packet[0] >> 4 == 4;
    let kind: [u8; 2] = if is_v4 { [8, 0] } else { [0x86, 0xDD] };
    let station = [2, 0, 0, 0, 0, 1, 0, 0];
    match link_type {
        LinkType::Ip => packet.to_vec(),
        LinkType::Ethernet => in_ethernet(if field.rng.one_in(2) { &[7] } else { &[] }, packet),
        LinkType::Loopback => [&[0, 0, 0, if is_v4 { 2 } else { 30 }], packet].concat(),
        // To this host, from a station with an address of six bytes.
        LinkType::Cooked => [&[0, 0, 0, 1, 0, 6][..], &station, &kind, packet].concat(),
        LinkType::Cooked2 => [&kind[..], &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &station, packet].concat(),
    }
}

/// Minimum header length of a link type, in bytes.
fn link_len_min(link_type: LinkType) -> usize {
    match link_type {
        LinkType::Ip => 0,
        LinkType::Ethernet => 14,
        LinkType::Loopback => 4,
        LinkType::Cooked => 16,
        LinkType::Cooked2 => 20,
    }
}

/// Number of frames toward the wide side that were parsed, and number that were forwarded unparsed.
fn fates(testbed: &Rig) -> [u64; 2] {
    let ledger = testbed.ledger(Toward::Wide);
    [ledger.received.packets, Reason::ALL.iter().map(|reason| ledger.passed(*reason).packets).sum()]
}

/// rel:A53: random packets, with flipped bits, truncated or extended. The gateway must not panic and must respect
/// the laws. (Clippy rejects panicking indexing and unwrapping in `packet` and `engine`.)
pub fn panics(field: &mut Field) -> Verdict {
    for round in 0..field.times(1_500, 30) {
        let role =
            [GatewayRole::WideInterface, GatewayRole::Border, GatewayRole::ReceiveOffload][round as usize % 3];
        let reassemble = field.rng.one_in(2);
        let gateway = Gateway { reassemble, merge: !reassemble, ..Gateway::new(role, 0) };
        let narrow_mtu = field.rng.one_of(&[1_280, 1_400, 1_500]);
        let mut testbed = field.rig(&gateway, [9_000, narrow_mtu]);
        testbed.has_right_sums = false;
        let (mut now, mut number) = (Clock::default(), 0);
        for _ in 0..1_000 {
            let mut frame = anything(field, &mut number);
            for _ in 0..field.rng.below(4) {
                // Three of four flipped bits are in the first 64 bytes, where the headers are.
                let most = if field.rng.one_in(4) { frame.len() as u64 } else { 64 };
                let at = field.rng.below(most.min(frame.len() as u64)) as usize;
                frame[at] ^= 1 << field.rng.below(8);
            }
            if frame[0] >> 4 == 4 && !field.rng.one_in(8) {
                let header_len = usize::from(frame[0] & 15) * 4;
                if let Some(header) = frame.get_mut(..header_len).filter(|header| header.len() >= 20) {
                    crate::wire::seal_v4(header);
                }
            }
            if field.rng.one_in(10) {
                frame.truncate(field.rng.below(80) as usize);
            }
            let toward = if field.rng.one_in(3) { Toward::Narrow } else { Toward::Wide };
            testbed.push(now.tick(), toward, &frame)?;
            if field.rng.one_in(16) {
                testbed.rest()?;
            }
        }
        field.end(&mut testbed)?;
    }
    Ok(())
}
