//! Recent queue lengths -> the fraction of frames to drop early (Floyd and Jacobson 1993).
//!
//! The queue itself is left to `model.rs`.

use super::model::LinkModel;
use super::shape::{RED_LEN_MEAN, Red, RedMode};
use packet::Time;

/// The state of random early detection for one queue.
#[derive(Debug)]
pub(super) struct Early {
    red: Red,
    /// Average queue length, in frames or bytes according to the mode.
    average: f64,
    /// Number of frames since the last drop; in byte mode, bytes divided by [`RED_LEN_MEAN`].
    since_drop: f64,
}

impl Early {
    /// The state for a queue that has always been empty.
    pub(super) fn new(red: Red) -> Early {
        Early { red, average: 0.0, since_drop: 0.0 }
    }

    /// The probability with which a frame of `len` bytes is dropped at `now`.
    pub(super) fn share(&mut self, now: Time, line: &LinkModel, len: usize) -> f64 {
        let (frame_count, byte_count, free_at, rate) = line.waiting();
        if frame_count == 0 && free_at < now {
            // Section 11 of the paper: an idle period counts like the mean-size frames that the link could have
            // transmitted in this period. These frames find the queue empty.
            let missed =
                now.since(free_at).as_secs_f64() * rate.unwrap_or(u64::MAX) as f64 / (8 * RED_LEN_MEAN) as f64;
            self.average *= (1.0 - WEIGHT).powi(missed.min(1e6) as i32);
        }
        let Red { mode, min, max, share } = self.red;
        let length = if mode == RedMode::Packets { frame_count } else { byte_count };
        self.average += WEIGHT * (length as f64 - self.average);
        let (min, max) = (min as f64, max as f64);
        if self.average < min {
            self.since_drop = 0.0;
            return 0.0;
        }
        if self.average >= max {
            return 1.0;
        }
        let share = share * (self.average - min) / (max - min);
        // Section 7: drops are spread evenly, not left to chance alone. In byte mode they are spread over bytes,
        // and a long frame is dropped more often.
        let room = 1.0 - self.since_drop * share;
        let spread = if room <= share { 1.0 } else { share / room };
        spread * self.units(len)
    }

    /// Records whether a frame was dropped.
    pub(super) fn note(&mut self, len: usize, is_dropped: bool) {
        self.since_drop = if is_dropped { 0.0 } else { self.since_drop + self.units(len) };
    }

    /// The weight of a frame: 1, or in byte mode the length divided by the mean length.
    fn units(&self, len: usize) -> f64 {
        if self.red.mode == RedMode::Packets { 1.0 } else { len as f64 / RED_LEN_MEAN as f64 }
    }
}

/// Weight of a new queue length in the average (0.002 in section 6 of the paper).
const WEIGHT: f64 = 0.002;
