//! Frames of one port -> another port, with the configured delay, rate limit, losses and reordering.
//!
//! [`run`] connects two ports by two [links](sim::link::Link) of the simulator, one for each direction.
//! [`calibrate`] measures the emulator's accuracy with several link shapes.

mod calibrate;
mod lateness;
mod live;

pub use calibrate::{Calibration, CalibrationRun, Load, PROBE_LEN_MIN, Row, Rows, calibrate};
pub use lateness::Lateness;
pub use live::{Course, EmulatedLink, LATE, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
pub use sim::link::{
    BadShape, Burst, Counters, Departure, Fate, Link, LinkShape, Losses, QueueLimit, REORDER_TIMEOUT, Reorder,
    Tally,
};
