//! Frames of one port -> the same frames at another port: delayed, rate-limited, lost or reordered as configured.
//!
//! [`run`] joins two ports by two [links](sim::link::Link) of the simulator, one for each direction. [`calibrate`]
//! measures known wires and reports the differences from the requested values.

mod calibrate;
mod lateness;
mod live;

pub use calibrate::{Calibration, CalibrationRun, Load, PROBE_LEN_MIN, Row, Rows, calibrate};
pub use lateness::Lateness;
pub use live::{Course, EmulatedLink, LATE, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
pub use sim::link::{
    BadShape, Burst, Counters, Departure, Fate, Link, LinkShape, Losses, Queue, REORDER_TIMEOUT, Reorder, Tally,
};
