//! The monotonic clock, and the count of a thread's wake-ups.
//!
//! The pure crates take a [`Time`] as input. The live code reads it here, once for each batch.

use packet::Time;
use std::mem;
use std::time::Instant;

/// Time since its start; it never goes back (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Current time, in nanoseconds since the start.
    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }
}

/// Number of times the calling thread slept and was woken: its voluntary context switches.
pub fn wake_count() -> u64 {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes the struct, which outlives the call.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert!(outcome == 0, "getrusage: every thread may ask what it used itself");
    usage.ru_nvcsw.cast_unsigned()
}
