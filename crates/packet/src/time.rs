//! Time as a value.
//!
//! Callers supply the time, and no code here reads a clock. So a simulation or a capture can replace the clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since an origin chosen by the caller.
///
/// A gateway's workers measure time since their start. Captures measure it since the year 1970 (Unix time).
/// Arithmetic saturates, so a hostile timestamp cannot wrap a deadline into the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Returns the time `nanos` nanoseconds later, at most [`NEVER`](Time::NEVER).
    pub fn later(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }

    /// The origin.
    pub const ZERO: Time = Time(0);
    /// A time that is never reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, stretch: Duration) -> Time {
        Time(self.0.saturating_add(saturating_nanos(stretch)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, stretch: Duration) -> Time {
        Time(self.0.saturating_sub(saturating_nanos(stretch)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / NANOS_PER_SECOND, self.0 % NANOS_PER_SECOND)
    }
}

fn saturating_nanos(stretch: Duration) -> u64 {
    u64::try_from(stretch.as_nanos()).unwrap_or(u64::MAX)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
