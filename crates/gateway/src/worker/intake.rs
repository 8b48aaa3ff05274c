//! A port's frames -> slices of them in a fair order.
//!
//! While a worker is busy, the frames of a port wait in its intake, which orders them by flow. Before each slice, the
//! worker looks whether the port has more frames. So a frame of a sparse flow waits for about one slice, however
//! many frames of busy flows are queued. If the intake is full, frames of the flow that uses the most memory are dropped
//! and counted.

use super::Worker;
use crate::endpoint::{Endpoint, PollState};
use crate::path::{TO_NARROW, TO_WIDE};
use engine::{Batch, FairIntake, Output, Reason};
use packet::{Frame, Time};

/// Moves the frames that a port has to its intake, and evicted ones to `evicted`. Fills the batch with the intake's
/// next slice. The result is busy as long as the port or the intake may have more frames.
pub(super) fn receive(
    end: &mut Endpoint,
    direction: usize,
    intake: &mut FairIntake,
    out: &mut Output,
    batch: &mut Batch,
    evicted: &mut Vec<Frame>,
) -> PollState {
    let mut turn = PollState::Busy;
    for _ in 0..READ_COUNT_MAX {
        if !intake.wants_more() || turn == PollState::Idle {
            break;
        }
        turn = end.receive_unpredicted(direction, out, &mut batch.frames);
        batch.frames.drain(..).for_each(|frame| intake.push(frame, evicted));
    }
    intake.take(SLICE_COUNT, SLICE_LEN, &mut batch.frames);
    if intake.is_empty() { turn } else { PollState::Busy }
}

impl Worker {
    /// Counts the frames that the intake of a direction evicted.
    pub(super) fn drop_evicted(&mut self, direction: usize) {
        let seen = &mut self.ends[direction].seen;
        for frame in self.evicted.drain(..) {
            match frame {
                Frame::Ip(packet) => {
                    seen.packet(&packet);
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

    /// Processes all frames of the intakes.
    pub(super) fn empty_intakes(&mut self, now: Time) {
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.empty_intake(direction, now));
    }

    /// Processes all frames of the intake of a direction.
    pub(super) fn empty_intake(&mut self, direction: usize, now: Time) {
        while let Some(intakes) = &mut self.intakes
            && !intakes[direction].is_empty()
        {
            intakes[direction].take(SLICE_COUNT, SLICE_LEN, &mut self.batch.frames);
            self.process(direction, now, PollState::Busy);
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
