//! Nothing in, the moment out; and how often a thread slept.
//!
//! The pure crates are handed a [`Time`]; whoever runs them live reads it here, once for each batch.

use packet::Time;
use std::mem;
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

/// Times that the calling thread slept and was woken so far: its voluntary switches.
pub fn wake_count() -> u64 {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes the struct, which outlives the call.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert!(outcome == 0, "getrusage: every thread may ask what it used itself");
    usage.ru_nvcsw.cast_unsigned()
}
