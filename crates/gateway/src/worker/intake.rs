//! A port's frames -> slices of them in a fair order.
//!
//! While a worker is busy, the frames of a port wait in its intake, which orders them by flow. Before each slice, the
//! worker looks whether the port has more frames. So a frame of a sparse flow waits for about one slice, however
//! many frames of busy flows are queued. If the intake is full, frames of the flow that uses the most memory are dropped
//! and counted.
//!
//! Packets from peer workers wait in the intake as well. So they stay in order with their own flow, and overtake no
//! other one. A slice contains frames of the port or of peer workers, never both.

use super::Worker;
use crate::endpoint::{Endpoint, PollState};
use crate::path::{TO_NARROW, TO_WIDE};
use engine::{Batch, FairIntake, FrameSource, Output, Reason};
use packet::{Frame, Packet, Time};

/// Frames that an intake evicted.
pub(super) type Evicted = Vec<(Frame, FrameSource)>;

/// Moves the frames that a port has to its intake, and evicted ones to `evicted`. Fills the batch with the intake's
/// next slice. The state is busy as long as the port or the intake may have more frames.
pub(super) fn receive(
    end: &mut Endpoint,
    direction: usize,
    intake: &mut FairIntake,
    out: &mut Output,
    batch: &mut Batch,
    evicted: &mut Evicted,
) -> (PollState, FrameSource) {
    let mut state = PollState::Busy;
    for _ in 0..READ_COUNT_MAX {
        if state == PollState::Idle {
            break;
        }
        state = end.receive_unpredicted(direction, out, &mut batch.frames);
        batch.frames.drain(..).for_each(|frame| intake.enqueue(frame, FrameSource::Port, evicted));
    }
    let source = intake.dequeue(SLICE_COUNT, SLICE_LEN, &mut batch.frames);
    (if intake.is_empty() { state } else { PollState::Busy }, source.unwrap_or(FrameSource::Port))
}

impl Worker {
    /// Whether the intake of a direction has frames.
    pub(super) fn has_queued(&self, direction: usize) -> bool {
        self.intakes.as_ref().is_some_and(|intakes| !intakes[direction].is_empty())
    }

    /// Enqueues a packet of a peer worker. Returns the packet if this worker has no intakes.
    pub(super) fn enqueue_from_peer(&mut self, direction: usize, packet: Packet) -> Option<Packet> {
        let Some(intakes) = &mut self.intakes else { return Some(packet) };
        intakes[direction].enqueue(Frame::Ip(packet), FrameSource::Peer, &mut self.evicted);
        self.drop_evicted(direction);
        None
    }

    /// Counts the frames that the intake of a direction evicted.
    pub(super) fn drop_evicted(&mut self, direction: usize) {
        let seen = &mut self.ends[direction].seen;
        for (frame, source) in self.evicted.drain(..) {
            match frame {
                Frame::Ip(packet) => {
                    if source == FrameSource::Port {
                        seen.packet(&packet);
                    }
                    self.gateway.drop_unpushed(direction, packet, Reason::IntakeFull);
                }
                // The engine counts no such frames.
                Frame::Other(raw, _) => {
                    seen.dropped += 1;
                    self.gateway.output_mut(direction).pool.give(raw.into_buffer());
                }
            }
        }
    }

    /// Processes a slice of an intake, and sends the resulting packets.
    pub(super) fn process_slice(&mut self, direction: usize, now: Time, state: PollState, source: FrameSource) {
        match source {
            FrameSource::Port => self.process(direction, now, state),
            FrameSource::Peer => {
                self.process_from_peers(direction, now);
                if state == PollState::Idle {
                    self.gateway.port_is_idle(now, direction);
                }
                self.drain(direction);
            }
        }
    }

    /// Processes all frames of the intakes.
    pub(super) fn empty_intakes(&mut self, now: Time) {
        for direction in [TO_NARROW, TO_WIDE] {
            while let Some(intakes) = &mut self.intakes
                && let Some(source) = intakes[direction].dequeue(SLICE_COUNT, SLICE_LEN, &mut self.batch.frames)
            {
                self.process_slice(direction, now, PollState::Busy, source);
            }
        }
    }
}

/// Batches of a port that are read between two slices, at most. Reading is much faster than processing, so the
/// intake soon has all frames of the port.
const READ_COUNT_MAX: usize = 8;
/// Frames in a slice, at most.
const SLICE_COUNT: usize = 64;
/// Bytes in a slice: the frame that reaches this length is the last one. It is the longest GSO packet, so that a slice
/// takes no longer than one of these.
const SLICE_LEN: usize = 64 << 10;
