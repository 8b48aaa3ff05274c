//! What another worker held, or rebuilt -> this one; what this one holds -> another: on a reload, a restart, a
//! panic.
//!
//! What is lost by that is counted, and told by the worker that comes next.

use super::Worker;
use crate::commands::Replacement;
use crate::handover::{HandedFrame, HandoffWriter};
use crate::path::{TO_NARROW, TO_WIDE};
use crate::peer_handoff::{HandedPacket, PeerHandoff};
use crate::stats::Stats;
use engine::{Batch, Egress};
use packet::{Frame, Ingress, Packet, Time};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a worker had in hand when it panicked.
#[derive(Clone, Copy, Debug, Default)]
struct InHand {
    /// Packets on the wire that came and that the engine has not seen.
    received_count: usize,
    /// The buffers that they lay in.
    buffer_count: usize,
}

impl Worker {
    /// [Inherits](Worker::inherit) this, and works as [`Worker::run`] does. Where that panics, what is held leaves
    /// first, as far as it still can. How things were in the end, [`WorkerHandle::last`](crate::commands::Reins::last)
    /// tells.
    pub fn run_guarded(&mut self, legacies: &[HandedFrame]) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.inherit(legacies);
            self.run();
        }));
        let mut in_hand = InHand::default();
        if ran.is_err() {
            // What was amiss once may be so again: then what is held is lost.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                in_hand = self.drop_what_is_in_hand();
                [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| {
                    self.gateway.push(self.clock.now(), direction, &mut Batch::default());
                });
                self.close_to_siblings();
                self.flush();
            }));
        }
        // The same.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if ran.is_err() {
                self.count_gone(in_hand);
            }
            let last = self.snapshot();
            self.commands.leave(last);
        }));
        if let Err(cause) = ran {
            resume_unwind(cause);
        }
    }

    /// Drops what was being received, for which nothing waits, and what was being sent, for some of it may have left.
    fn drop_what_is_in_hand(&mut self) -> InHand {
        let Batch { split, frames } = std::mem::take(&mut self.batch);
        let packet_count = |frame: &Frame| match frame {
            Frame::Ip(packet) => packet.wire_count(),
            Frame::Other(..) => 1,
        };
        let received_count = split.len() + frames.iter().map(packet_count).sum::<usize>();
        for end in &mut self.ends {
            for packet in end.sender.abandon() {
                // Each way has a pool of its own.
                match packet.ingress().0 as usize {
                    direction @ (TO_NARROW | TO_WIDE) => self.gateway.done(direction, packet),
                    _ => drop(packet),
                }
            }
        }
        InHand { buffer_count: split.len() + frames.len(), received_count }
    }

    /// Counts what a panic ended, once all has left that could: what was received and not looked at, what is still
    /// held, and what the laws miss between them and the ports. Where that is less than the buffers that nobody has
    /// any more, each of these had at least one.
    fn count_gone(&mut self, in_hand: InHand) {
        let mut held_count = 0;
        for direction in [TO_NARROW, TO_WIDE] {
            let (held, buffer_count) = self.gateway.held(direction);
            held_count += held.packets;
            let out = self.gateway.output(direction);
            let accounted = buffer_count + out.queued_count() + self.ends[direction].port.kept_count();
            self.gone_counts[direction] = out.pool.lent_count().saturating_sub(accounted);
        }
        let queued_count = [TO_NARROW, TO_WIDE]
            .map(|direction| self.gateway.output(direction).queued_count())
            .iter()
            .sum::<usize>();
        let buffer_count = self.gone_counts.iter().sum::<usize>() + queued_count;
        let buffer_count = buffer_count.saturating_sub(in_hand.buffer_count) as u64;
        let missed_count = Stats::of(&[self.snapshot()]).missed_count();
        let unseen_count = (in_hand.received_count + self.legacy_count) as u64;
        self.losses.panicked = unseen_count + held_count + missed_count.max(buffer_count);
    }

    /// Takes what another process held, before anything is received. What that one knew of its connections is not
    /// known here: packets count as those of connections whose beginning did not pass.
    pub fn inherit(&mut self, legacies: &[HandedFrame]) {
        let now = self.clock.now();
        self.legacy_count = legacies.len();
        for HandedFrame { direction, max_fragment_len, id, frame } in legacies {
            self.legacy_count -= 1;
            let (end, out) = (&mut self.ends[*direction], self.gateway.output_mut(*direction));
            match Frame::copy(frame, end.port.medium(), Ingress(*direction as u32), &mut out.pool) {
                Ok(mut packet) => {
                    if *max_fragment_len > 0 {
                        packet.set_fragments(*max_fragment_len as usize, *id);
                    }
                    end.seen.packet(&packet);
                    self.batch.frames.push(Frame::Ip(packet));
                    self.gateway.push(now, *direction, &mut self.batch);
                }
                Err(_) => end.seen.dropped += 1,
            }
        }
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
    }

    pub(super) fn replace(&mut self, replacement: Replacement) {
        let now = self.clock.now();
        let Replacement { settings, secrets, mtus, pool_limit, offloads_flows, done } = replacement;
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
        self.gateway.replace(now, &settings, secrets);
        for direction in [TO_NARROW, TO_WIDE] {
            // What is held may be more than the new limit: it goes over first.
            self.gateway.output_mut(direction).pool.set_limit(pool_limit);
            self.drain(direction);
        }
        self.ends.iter_mut().zip(mtus).for_each(|(end, mtu)| end.mtu = mtu.into());
        self.offloads_flows = offloads_flows;
        // Who asked may be gone.
        let _ = done.send(());
    }

    pub(super) fn hand_over(&mut self, will: &HandoffWriter) {
        let now = self.clock.now();
        self.close_to_siblings();
        for direction in [TO_NARROW, TO_WIDE] {
            self.drain(direction);
            self.gateway.hand_over(now, direction);
            while let Some(leaving) = self.gateway.next(direction) {
                match leaving {
                    Egress::Forward(packet) => self.hand_over_packet(will, direction, packet),
                    Egress::IcmpReply(packet) => self.send(direction, packet, direction),
                    Egress::PassThrough(raw, unfit) => self.pass(direction, raw, unfit),
                }
            }
            self.drain(direction);
        }
        self.has_heir = true;
    }

    /// Writes a packet for who goes on, and gives its buffer back.
    fn hand_over_packet(&mut self, will: &HandoffWriter, direction: usize, mut packet: Packet) {
        let count = packet.wire_count() as u64;
        self.handed_over[direction] += count;
        // Where nobody reads, another begins with nothing.
        if will.write(direction, &mut packet).is_err() {
            self.losses.not_received += count;
        }
        self.gateway.done(direction, packet);
    }

    /// Takes what siblings rebuilt of flows that are ours.
    pub(super) fn take_from_siblings(&mut self, now: Time) {
        while let Some(rebuilt) = self.peers.as_mut().and_then(PeerHandoff::take) {
            self.push_rebuilt(now, &rebuilt);
            self.gateway.port_is_idle(now, rebuilt.direction);
            self.drain(rebuilt.direction);
        }
    }

    fn push_rebuilt(&mut self, now: Time, rebuilt: &HandedPacket) {
        let pool = &mut self.gateway.output_mut(rebuilt.direction).pool;
        match Frame::copy(&rebuilt.frame, rebuilt.medium, Ingress(rebuilt.direction as u32), pool) {
            Ok(mut packet) => {
                rebuilt.tell(&mut packet);
                self.batch.frames.push(Frame::Ip(packet));
                self.gateway.push(now, rebuilt.direction, &mut self.batch);
            }
            Err(_) => self.ends[rebuilt.direction].seen.dropped += 1,
        }
    }

    /// Holds what siblings gave as well, and ends what goes between them: from here on all leaves where it stands.
    pub(super) fn close_to_siblings(&mut self) {
        let now = self.clock.now();
        let rest = self.peers.as_mut().map(PeerHandoff::close).unwrap_or_default();
        for rebuilt in &rest {
            self.push_rebuilt(now, rebuilt);
            self.drain(rebuilt.direction);
        }
    }
}
