//! Frames in at one port, the same frames out at another: later, slower, fewer, in another order, as asked.
//!
//! [`run`] joins two ports by two [links](sim::link::Link), one for each direction, which are the simulator's; [`calibrate`] asks
//! for known wires and says what really came.

mod calibrate;
mod lateness;
mod live;

pub use calibrate::{Calibration, CalibrationRun, Load, PROBE_LEN_MIN, Row, Rows, calibrate};
pub use lateness::Lateness;
pub use live::{Course, EmulatedLink, LATE, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
pub use sim::link::{
    BadShape, Burst, Counters, Departure, Fate, Link, LinkShape, Losses, Queue, REORDER_TIMEOUT, Reorder, Tally,
};
