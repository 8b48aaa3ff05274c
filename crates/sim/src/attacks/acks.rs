//! A seed -> acknowledgements that no honest receiver sends, and a verdict.

use super::conversation::Conversation;
use super::craft::{self, Tcp, head};
use super::fragments::Clock;
use super::rig::Verdict;
use super::segments::BOTH_MODES;
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, TCP};
use engine::{AckPolicy, Toward};

/// rel:A39: acknowledgements of every byte, repeated acknowledgements, and acknowledgements of data never sent. The
/// gateway must forward each unchanged, and add none. A border that expands or compresses acknowledgements may only do
/// so for data that was sent.
pub fn strange_acks(field: &mut Field) -> Verdict {
    changed_acks(field)?;
    for (role, mode) in BOTH_MODES {
        let gateway = Gateway { coalesce: Some(mode), ..Gateway::new(role, 0) };
        let mut testbed = field.rig(&gateway, [9_000, 1_500]);
        let (mut now, mut ack) = (Clock::default(), 0u32);
        let (mut came, mut went) = (Vec::new(), Vec::new());
        for turn in 0..field.times(500_000, 8_000) {
            ack = match field.rng.below(4) {
                0 => ack,
                1 => ack.wrapping_add(1),
                2 => ack.wrapping_add(1 << 20),
                _ => ack.wrapping_sub(7),
            };
            let said = Tcp { ack, ..Tcp::of([80, 1], 5) };
            let frame = craft::segment(&head(false, 2, 1, TCP, turn as u32 & 0xFFFF), &said, &[]);
            let toward = if turn % 2 == 0 { Toward::Wide } else { Toward::Narrow };
            testbed.push(now.tick(), toward, &frame)?;
            went.extend(testbed.left().map(|out| out.frame.to_vec()));
            came.push(frame);
        }
        holds(came == went, || {
            format!("{} acknowledgements arrived, {} left; counts or contents differ", came.len(), went.len())
        })?;
        field.end(&mut testbed)?;
    }
    Ok(())
}

/// Acknowledgements of a misbehaving receiver, and forged data of its peer, through borders that change
/// acknowledgements. Those that leave must acknowledge no more than those that arrived. Beside each of these, there is at
/// most one for two packets of data that were sent.
fn changed_acks(field: &mut Field) -> Verdict {
    for (policy, about) in [(AckPolicy::Expand, Toward::Wide), (AckPolicy::Compress, Toward::Narrow)] {
        let gateway = Gateway { acks: policy, ..Gateway::new(GatewayRole::Border, 0) };
        let (mut now, mut testbed) = (Clock::default(), field.rig(&gateway, [9_000, 1_500]));
        let is_v6 = field.rng.one_of(&[false, true]);
        let mut conversation = Conversation::open(&mut testbed, &mut now, is_v6, 1, field.rng.number())?;
        let mut acked = conversation.next_seq(about);
        let (mut highest, mut came_count, mut went_count, mut data_count) = (acked, 0, 0, 0);
        for _ in 0..field.times(300_000, 4_000) {
            data_count += conversation.send(&mut testbed, &mut now, about)?.len() as u64 * 6;
            let (sent, number) = (conversation.next_seq(about), field.rng.number() as u32);
            let in_flight = sent.wrapping_sub(acked);
            let acks: Vec<u32> = match field.rng.below(6) {
                // Each byte is acknowledged.
                0 => (1..40).map(|it| acked.wrapping_add(it.min(in_flight))).collect(),
                // Duplicates.
                1 => vec![acked; 5],
                // Data that was not sent.
                2 => vec![sent.wrapping_add(number >> 8)],
                // Forged data of the peer, so that the acknowledgement seems to be right.
                3 => {
                    let seq = sent.wrapping_add(number >> field.rng.below(32));
                    let said = Tcp { ack: conversation.next_seq(about.other()), ..Tcp::of([0; 2], seq) };
                    let forged = conversation.frame(about, said, &[7]);
                    testbed.push(now.tick(), about, &forged)?;
                    data_count += 1;
                    vec![seq.wrapping_add(1)]
                }
                // Any number.
                4 => vec![number],
                _ => vec![acked.wrapping_add(in_flight / 2), sent],
            };
            let frames: Vec<_> = acks
                .iter()
                .map(|ack| {
                    let window = field.rng.one_of(&[0, 1, 1_000, 60_000, 65_535]);
                    let seq = conversation.next_seq(about.other());
                    conversation.frame(about.other(), Tcp { ack: *ack, window, ..Tcp::of([0; 2], seq) }, &[])
                })
                .collect();
            let numbers = || acks.iter().map(|ack| ack.wrapping_sub(highest)).filter(|step| *step < 1 << 31);
            highest = highest.wrapping_add(numbers().max().unwrap_or(0));
            if let Some(last) = acks.iter().rfind(|ack| ack.wrapping_sub(acked) <= in_flight) {
                acked = *last;
            }
            testbed.push_burst(now.tick(), about.other(), frames.iter().map(Vec::as_slice))?;
            came_count += acks.len() as u64;
            for out in testbed.left() {
                let upper_at = if is_v6 { 40 } else { 20 };
                let ack = wire::long(out.frame, upper_at + 8);
                let is_own = acks.contains(&ack) || highest.wrapping_sub(ack) < 1 << 31;
                holds(is_own, || format!("{ack} is acknowledged, and the receiver only acknowledged {highest}"))?;
                went_count += 1;
            }
            holds(went_count <= came_count + data_count / 2, || {
                format!("{came_count} acknowledgements and {data_count} packets of data became {went_count}")
            })?;
        }
        field.end(&mut testbed)?;
    }
    Ok(())
}
