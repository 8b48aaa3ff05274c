//! A seed -> acknowledgements that no honest receiver sends, and a verdict.

use super::conversation::Conversation;
use super::craft::{self, Tcp, head};
use super::fragments::Clock;
use super::rig::Verdict;
use super::segments::BOTH_MODES;
use super::{Field, holds};
use crate::topology::{Gateway, GatewayRole};
use crate::wire::{self, TCP};
use engine::{AckPolicy, Event, Reason, Toward};

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
/// acknowledgements. Those that leave must be between those that arrived, and duplicates must all leave. At most one is
/// made for two packets of data.
fn changed_acks(field: &mut Field) -> Verdict {
    for (policy, about) in [(AckPolicy::Expand, Toward::Wide), (AckPolicy::Compress, Toward::Narrow)] {
        let gateway = Gateway { acks: policy, ..Gateway::new(GatewayRole::Border, 0) };
        let (mut now, mut testbed) = (Clock::default(), field.rig(&gateway, [9_000, 1_500]));
        let is_v6 = field.rng.one_of(&[false, true]);
        let mut conversation = Conversation::open(&mut testbed, &mut now, is_v6, 1, field.rng.number())?;
        let mut acked = conversation.next_seq(about);
        // Acknowledgements that may be made: one for each two packets of data.
        let (mut data_count, mut made_count) = (0, 0);
        let mut before = vec![acked];
        for _ in 0..field.times(300_000, 4_000) {
            conversation.send(&mut testbed, &mut now, about)?;
            data_count += if about == Toward::Wide { 6 } else { 1 };
            let (sent, number) = (conversation.next_seq(about), field.rng.number() as u32);
            let in_flight = sent.wrapping_sub(acked);
            let kind = field.rng.below(7);
            let acks: Vec<u32> = match kind {
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
                    let window = if kind > 4 { 65_535 } else { field.rng.one_of(&[0, 1, 1_000, 60_000, 65_535]) };
                    let seq = conversation.next_seq(about.other());
                    conversation.frame(about.other(), Tcp { ack: *ack, window, ..Tcp::of([0; 2], seq) }, &[])
                })
                .collect();
            if let Some(last) = acks.iter().rfind(|ack| ack.wrapping_sub(acked) <= in_flight) {
                acked = *last;
            }
            testbed.push_burst(now.tick(), about.other(), frames.iter().map(Vec::as_slice))?;
            let upper_at = if is_v6 { 40 } else { 20 };
            let left: Vec<u32> = testbed.left().map(|out| wire::long(out.frame, upper_at + 8)).collect();
            // Each number that leaves is one that arrived, or between two of them.
            let known: Vec<u32> = before.iter().chain(&acks).copied().collect();
            let is_between = |ack: &u32| {
                let [below, above] = [
                    known.iter().any(|it| ack.wrapping_sub(*it) < 1 << 30),
                    known.iter().any(|it| it.wrapping_sub(*ack) < 1 << 30),
                ];
                below && above
            };
            holds(left.iter().all(is_between), || format!("{left:?} leave after {before:?}, then {acks:?}"))?;
            holds(kind != 1 || left == acks, || format!("of five duplicates, {left:?} leave"))?;
            made_count += left.len().saturating_sub(acks.len());
            holds(2 * made_count <= data_count, || {
                format!("{made_count} acknowledgements were made for {data_count} packets of data")
            })?;
            before = acks;
        }
        let changed = match policy {
            AckPolicy::Expand => testbed.ledger(about.other()).event(Event::AcksExpanded).packets,
            _ => testbed.ledger(about.other()).retired(Reason::AckCompressed).packets,
        };
        holds(changed > 0, || "no acknowledgement was changed".to_owned())?;
        field.end(&mut testbed)?;
    }
    Ok(())
}
