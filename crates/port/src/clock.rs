//! Nothing in, the moment out.
//!
//! The pure crates are handed a [`Time`]; whoever runs them live reads it here, once for each batch.

use packet::Time;
use std::time::Instant;

/// Counts from its start, and never goes back (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts to count.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The moment, in nanoseconds since the start.
    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }
}
