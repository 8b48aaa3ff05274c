//! The kernel's clock and scheduler -> the time, and the number of a thread's wake-ups.
//!
//! The pure crates take a [`Time`] as input. The live code reads the time here once per batch.

use packet::Time;
use std::mem;
use std::time::Instant;

/// A clock that shows the time since its start and never goes back (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Returns the time since the clock's start, in nanoseconds.
    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }
}

/// Returns the number of times that the calling thread slept and was woken: its voluntary context switches.
pub fn wake_count() -> u64 {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes the struct, which outlives the call.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert!(outcome == 0, "getrusage: every thread may ask what it used itself");
    usage.ru_nvcsw.cast_unsigned()
}
