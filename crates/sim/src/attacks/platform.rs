//! A seed in, frames that are too short or are anything at all out; with them, whether a gateway stands.

use super::craft;
use super::floods::anything;
use super::fragments::{Clock, in_ethernet};
use super::stand::Verdict;
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use engine::{Reason, Toward};
use packet::Medium;

/// rel:A52: frames of 0 to 60 bytes from every kind of link, that begin like packets or like nothing: each is read, or passes for a
/// reason that has a name.
pub fn short_frames(field: &mut Field) -> Verdict {
    let media = [Medium::Ip, Medium::Ethernet, Medium::Loopback, Medium::Cooked, Medium::Cooked2];
    for medium in media {
        let mut stand = field.border();
        (stand.medium, stand.has_right_sums) = (medium, false);
        let (mut now, mut number) = (Clock::default(), 0);
        for _ in 0..field.times(4_000, 60) {
            for len in 0..=60usize {
                let packet = anything(field, &mut number);
                let mut frame = match (medium, field.dice.below(3)) {
                    (_, 0) => craft::bytes(field.dice.number(), 60),
                    (Medium::Ip, _) => packet,
                    (Medium::Ethernet, _) => in_ethernet(&[][..field.dice.below(1) as usize], &packet),
                    (_, _) => [&[0, 0, 0, 2][..], &packet].concat(),
                };
                frame.resize(len, 0);
                stand.push(now.tick(), Toward::Wide, &frame)?;
            }
        }
        let ledger = stand.ledger(Toward::Wide);
        let passed: u64 = Reason::ALL.iter().map(|reason| ledger.passed(*reason).packets).sum();
        let (read, packets) = (ledger.received.packets, stand.packets);
        holds(passed + read == packets, || format!("of {packets} frames {read} are read and {passed} pass"))?;
        field.end(&mut stand)?;
    }
    Ok(())
}

/// rel:A53: whatever can be sent, with bits of it flipped, cut short, lengthened: nothing panics, and the laws hold. (That nothing in
/// `packet` and `engine` can be indexed or unwrapped wrongly, clippy holds as errors.)
pub fn panics(field: &mut Field) -> Verdict {
    for round in 0..field.times(1_500, 30) {
        let role =
            [GatewayRole::WideInterface, GatewayRole::Border, GatewayRole::ReceiveOffload][round as usize % 3];
        let reassemble = field.dice.one_in(2);
        let gateway = Gateway { reassemble, join: !reassemble, ..Gateway::new(role, 0) };
        let narrow_mtu = field.dice.one_of(&[1_280, 1_400, 1_500]);
        let mut stand = field.stand(&gateway, [9_000, narrow_mtu]);
        stand.has_right_sums = false;
        let (mut now, mut number) = (Clock::default(), 0);
        for _ in 0..1_000 {
            let mut frame = anything(field, &mut number);
            for _ in 0..field.dice.below(4) {
                // Mostly in headers.
                let most = if field.dice.one_in(4) { frame.len() as u64 } else { 64 };
                let at = field.dice.below(most.min(frame.len() as u64)) as usize;
                frame[at] ^= 1 << field.dice.below(8);
            }
            if frame[0] >> 4 == 4 && !field.dice.one_in(8) {
                let header_len = usize::from(frame[0] & 15) * 4;
                if let Some(header) = frame.get_mut(..header_len).filter(|header| header.len() >= 20) {
                    crate::wire::seal_v4(header);
                }
            }
            if field.dice.one_in(10) {
                frame.truncate(field.dice.below(80) as usize);
            }
            let toward = if field.dice.one_in(3) { Toward::Narrow } else { Toward::Wide };
            stand.push(now.tick(), toward, &frame)?;
            if field.dice.one_in(16) {
                stand.rest()?;
            }
        }
        field.end(&mut stand)?;
    }
    Ok(())
}
