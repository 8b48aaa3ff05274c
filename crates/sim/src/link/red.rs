//! How long a queue was of late in, the share of what comes that is dropped early out (Floyd and Jacobson 1993).

use super::model::LinkModel;
use super::shape::{RED_LEN_MEAN, Red, RedMode};
use packet::Time;

/// Random early detection over one line's queue.
#[derive(Debug)]
pub(super) struct Early {
    red: Red,
    /// The queue's length of late, in what is counted.
    average: f64,
    /// Frames since one was dropped, or bytes in usual frames.
    since_drop: f64,
}

impl Early {
    /// One whose queue was always empty.
    pub(super) fn new(red: Red) -> Early {
        Early { red, average: 0.0, since_drop: 0.0 }
    }

    /// The share of frames like this one that is dropped at `now`.
    pub(super) fn share(&mut self, now: Time, line: &LinkModel, len: usize) -> f64 {
        let (frame_count, byte_count, free_at, rate) = line.waiting();
        if frame_count == 0 && free_at < now {
            // Section 11 of the paper: as if as many usual frames had come to an empty queue as the idle time had room for.
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
        // Section 7: drops are spread evenly, not left to chance alone. In bytes, what is spread is bytes, and a frame has its
        // share of them.
        let room = 1.0 - self.since_drop * share;
        let spread = if room <= share { 1.0 } else { share / room };
        spread * self.units(len)
    }

    /// Remembers what became of a frame.
    pub(super) fn note(&mut self, len: usize, is_dropped: bool) {
        self.since_drop = if is_dropped { 0.0 } else { self.since_drop + self.units(len) };
    }

    /// A frame in usual frames, where bytes count.
    fn units(&self, len: usize) -> f64 {
        if self.red.mode == RedMode::Packets { 1.0 } else { len as f64 / RED_LEN_MEAN as f64 }
    }
}

/// How much of the average each frame makes anew (section 6 of the paper: 0.002).
const WEIGHT: f64 = 0.002;
