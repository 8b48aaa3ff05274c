//! Packets of another worker -> this worker; packets of this worker -> its successor.
//!
//! A restart replaces a worker, and a reload replaces its stages. Held packets move on to the successor. A worker
//! that panics sends its held packets first, if possible. Lost packets are counted, and the successor reports them.

use super::Worker;
use crate::commands::Replacement;
use crate::handover::{HandedFrame, HandoffWriter};
use crate::path::{TO_NARROW, TO_WIDE};
use crate::peer_handoff::{HandedPacket, PeerHandoff};
use crate::stats::Stats;
use engine::{Batch, Egress};
use packet::{Frame, Ingress, Packet, Time};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Numbers of the packets and buffers that a worker was processing when it panicked.
#[derive(Clone, Copy, Debug, Default)]
struct InHand {
    /// Packets that were received and not yet given to the engine, counted as on the wire.
    received_count: usize,
    /// Buffers of the received packets.
    buffer_count: usize,
}

impl Worker {
    /// [Takes over](Worker::inherit) frames, then works as [`Worker::run`] does. After a panic, sends as many held
    /// packets as possible. [`WorkerHandle::last`](crate::commands::WorkerHandle::last) returns the last snapshot.
    pub fn run_guarded(&mut self, handed_frames: &[HandedFrame]) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.inherit(handed_frames);
            self.run();
        }));
        let mut in_hand = InHand::default();
        if ran.is_err() {
            // A second panic is possible: then all held packets are lost.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                in_hand = self.drop_what_is_in_hand();
                [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| {
                    self.gateway.push(self.clock.now(), direction, &mut Batch::default());
                });
                self.close_peer_queues();
                self.flush();
            }));
        }
        // A further panic is possible here as well.
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

    /// Drops the received batch, whose packets the engine has not seen. Drops the batch that was being sent, as
    /// some of its packets may have been sent.
    fn drop_what_is_in_hand(&mut self) -> InHand {
        let Batch { split, frames } = std::mem::take(&mut self.batch);
        let packet_count = |frame: &Frame| match frame {
            Frame::Ip(packet) => packet.wire_count(),
            Frame::Other(..) => 1,
        };
        let received_count = split.len() + frames.iter().map(packet_count).sum::<usize>();
        for end in &mut self.ends {
            for packet in end.sender.abandon() {
                // Each direction has its own pool.
                match packet.ingress().0 as usize {
                    direction @ (TO_NARROW | TO_WIDE) => self.gateway.recycle(direction, packet),
                    _ => drop(packet),
                }
            }
        }
        InHand { buffer_count: split.len() + frames.len(), received_count }
    }

    /// Counts the packets lost in a panic, after the other packets were sent. These packets are lost: received but
    /// unprocessed packets, packets that are still held, and packets missing between the counters and the ports.
    /// Each missing buffer counts as at least one packet.
    fn count_gone(&mut self, in_hand: InHand) {
        let mut held_count = 0;
        for direction in [TO_NARROW, TO_WIDE] {
            let (held, buffer_count) = self.gateway.held(direction);
            held_count += held.packets;
            let out = self.gateway.output(direction);
            let waiting_count = self.intakes.as_ref().map_or(0, |intakes| intakes[direction].count());
            let kept_count = self.ends[direction].port.kept_count() + waiting_count;
            let accounted = buffer_count + out.queued_count() + kept_count;
            self.gone_counts[direction] = out.pool.in_use_count().saturating_sub(accounted);
        }
        let queued_count = [TO_NARROW, TO_WIDE]
            .map(|direction| self.gateway.output(direction).queued_count())
            .iter()
            .sum::<usize>();
        let buffer_count = self.gone_counts.iter().sum::<usize>() + queued_count;
        let buffer_count = buffer_count.saturating_sub(in_hand.buffer_count) as u64;
        let missed_count = Stats::of(&[self.snapshot()]).missed_count();
        let unseen_count = (in_hand.received_count + self.handed_count) as u64;
        self.losses.panicked = unseen_count + held_count + missed_count.max(buffer_count);
    }

    /// Takes over frames that another process held. Must be called before the first packet is received. The
    /// connection state of the other process is lost. Its connections count as connections whose start was not
    /// seen.
    pub fn inherit(&mut self, handed_frames: &[HandedFrame]) {
        let now = self.clock.now();
        self.handed_count = handed_frames.len();
        for HandedFrame { direction, max_fragment_len, id, frame } in handed_frames {
            self.handed_count -= 1;
            let (end, out) = (&mut self.ends[*direction], self.gateway.output_mut(*direction));
            match Frame::copy(frame, end.port.link_type(), Ingress(*direction as u32), &mut out.pool) {
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
        let Replacement { settings, secrets, mtus, pool_limit, offloads_flows, intakes, done } = replacement;
        // The queued packets precede those under the new settings.
        self.empty_intakes(now);
        self.intakes = intakes;
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
        self.gateway.replace(now, &settings, secrets);
        for direction in [TO_NARROW, TO_WIDE] {
            // Held packets may exceed the new limit: the new stages take them over before it is set.
            self.gateway.output_mut(direction).pool.set_limit(pool_limit);
            self.drain(direction);
        }
        self.ends.iter_mut().zip(mtus).for_each(|(end, mtu)| end.mtu = mtu.into());
        self.offloads_flows = offloads_flows;
        // The caller may have ended.
        let _ = done.send(());
    }

    pub(super) fn hand_over(&mut self, will: &HandoffWriter) {
        let now = self.clock.now();
        self.close_peer_queues();
        self.empty_intakes(now);
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
        self.has_successor = true;
    }

    /// Writes a packet for the successor, and returns the packet's buffer to its pool.
    fn hand_over_packet(&mut self, will: &HandoffWriter, direction: usize, mut packet: Packet) {
        let count = packet.wire_count() as u64;
        self.handed_over[direction] += count;
        // Without a reader, the successor starts without these packets.
        if will.write(direction, &mut packet).is_err() {
            self.losses.not_received += count;
        }
        self.gateway.recycle(direction, packet);
    }

    /// Processes the packets of this worker's flows that peer workers reassembled or received, or queues them in the
    /// intakes.
    pub(super) fn receive_from_peers(&mut self, now: Time) {
        while let Some(rebuilt) = self.peers.as_mut().and_then(PeerHandoff::take) {
            self.push_rebuilt(now, &rebuilt);
            if !self.has_queued(rebuilt.direction) {
                self.gateway.port_is_idle(now, rebuilt.direction);
            }
            self.drain(rebuilt.direction);
        }
    }

    /// Processes a packet of a peer worker, or queues it in the intake behind earlier packets of its flow.
    fn push_rebuilt(&mut self, now: Time, rebuilt: &HandedPacket) {
        let pool = &mut self.gateway.output_mut(rebuilt.direction).pool;
        match Frame::copy(&rebuilt.frame, rebuilt.link_type, Ingress(rebuilt.direction as u32), pool) {
            Ok(mut packet) => {
                rebuilt.tell(&mut packet);
                if let Some(packet) = self.enqueue_from_peer(rebuilt.direction, packet) {
                    self.batch.frames.push(Frame::Ip(packet));
                    self.process_from_peers(rebuilt.direction, now);
                }
            }
            Err(_) => self.ends[rebuilt.direction].seen.dropped += 1,
        }
    }

    /// Processes the batch, which contains packets of peer workers. Those workers counted them as received.
    pub(super) fn process_from_peers(&mut self, direction: usize, now: Time) {
        if self.redirects {
            let frames = std::mem::take(&mut self.batch.frames);
            for frame in &frames {
                if let Frame::Ip(packet) = frame {
                    self.prepare_icmp(direction, packet);
                }
            }
            self.batch.frames = frames;
        }
        self.gateway.push(now, direction, &mut self.batch);
    }

    /// Ends the hand-off with peer workers, and processes the packets left in this worker's queue, or enqueues them in its
    /// fair intake. Afterwards this
    /// worker sends all its packets itself.
    pub(super) fn close_peer_queues(&mut self) {
        let now = self.clock.now();
        let rest = self.peers.as_mut().map(PeerHandoff::close).unwrap_or_default();
        for rebuilt in &rest {
            self.push_rebuilt(now, rebuilt);
            self.drain(rebuilt.direction);
        }
    }
}
