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
                [TO_NARROW, TO_WIDE].into_iter().for_each(|way| {
                    self.gateway.push(self.clock.now(), way, &mut Batch::default());
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
                    way @ (TO_NARROW | TO_WIDE) => self.gateway.done(way, packet),
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
        for way in [TO_NARROW, TO_WIDE] {
            let (held, buffer_count) = self.gateway.held(way);
            held_count += held.packets;
            let out = self.gateway.output(way);
            let accounted = buffer_count + out.queued_count() + self.ends[way].port.kept_count();
            self.gone_counts[way] = out.pool.lent_count().saturating_sub(accounted);
        }
        let queued_count =
            [TO_NARROW, TO_WIDE].map(|way| self.gateway.output(way).queued_count()).iter().sum::<usize>();
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
        for HandedFrame { way, max_fragment_len, id, frame } in legacies {
            self.legacy_count -= 1;
            let (end, out) = (&mut self.ends[*way], self.gateway.output_mut(*way));
            match Frame::copy(frame, end.port.medium(), Ingress(*way as u32), &mut out.pool) {
                Ok(mut packet) => {
                    if *max_fragment_len > 0 {
                        packet.set_fragments(*max_fragment_len as usize, *id);
                    }
                    end.seen.packet(&packet);
                    self.batch.frames.push(Frame::Ip(packet));
                    self.gateway.push(now, *way, &mut self.batch);
                }
                Err(_) => end.seen.lost += 1,
            }
        }
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
    }

    pub(super) fn replace(&mut self, replacement: Replacement) {
        let now = self.clock.now();
        let Replacement { settings, secrets, mtus, pool_limit, offloads_flows, done } = replacement;
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
        self.gateway.replace(now, &settings, secrets);
        for way in [TO_NARROW, TO_WIDE] {
            // What is held may be more than the new limit: it goes over first.
            self.gateway.output_mut(way).pool.set_limit(pool_limit);
            self.drain(way);
        }
        self.ends.iter_mut().zip(mtus).for_each(|(end, mtu)| end.mtu = mtu.into());
        self.offloads_flows = offloads_flows;
        // Who asked may be gone.
        let _ = done.send(());
    }

    pub(super) fn hand_over(&mut self, will: &HandoffWriter) {
        let now = self.clock.now();
        self.close_to_siblings();
        for way in [TO_NARROW, TO_WIDE] {
            self.drain(way);
            self.gateway.hand_over(now, way);
            while let Some(leaving) = self.gateway.next(way) {
                match leaving {
                    Egress::Forward(packet) => self.hand_over_packet(will, way, packet),
                    Egress::IcmpReply(packet) => self.send(way, packet, way),
                    Egress::PassThrough(raw, unfit) => self.pass(way, raw, unfit),
                }
            }
            self.drain(way);
        }
        self.has_heir = true;
    }

    /// Writes a packet for who goes on, and gives its buffer back.
    fn hand_over_packet(&mut self, will: &HandoffWriter, way: usize, mut packet: Packet) {
        let count = packet.wire_count() as u64;
        self.handed_over[way] += count;
        // Where nobody reads, another begins with nothing.
        if will.write(way, &mut packet).is_err() {
            self.losses.untaken += count;
        }
        self.gateway.done(way, packet);
    }

    /// Takes what siblings rebuilt of flows that are ours.
    pub(super) fn take_from_siblings(&mut self, now: Time) {
        while let Some(rebuilt) = self.siblings.as_mut().and_then(PeerHandoff::take) {
            self.push_rebuilt(now, &rebuilt);
            self.gateway.port_is_idle(now, rebuilt.way);
            self.drain(rebuilt.way);
        }
    }

    fn push_rebuilt(&mut self, now: Time, rebuilt: &HandedPacket) {
        let pool = &mut self.gateway.output_mut(rebuilt.way).pool;
        match Frame::copy(&rebuilt.frame, rebuilt.medium, Ingress(rebuilt.way as u32), pool) {
            Ok(mut packet) => {
                rebuilt.tell(&mut packet);
                self.batch.frames.push(Frame::Ip(packet));
                self.gateway.push(now, rebuilt.way, &mut self.batch);
            }
            Err(_) => self.ends[rebuilt.way].seen.lost += 1,
        }
    }

    /// Holds what siblings gave as well, and ends what goes between them: from here on all leaves where it stands.
    pub(super) fn close_to_siblings(&mut self) {
        let now = self.clock.now();
        let rest = self.siblings.as_mut().map(PeerHandoff::close).unwrap_or_default();
        for rebuilt in &rest {
            self.push_rebuilt(now, rebuilt);
            self.drain(rebuilt.way);
        }
    }
}
