//! Frames in at one port, the same frames out at another: later, slower, fewer, in another order, as asked.
//!
//! [`run`] joins two ports by two [links](sim::link::Link), one for each direction, which are the simulator's; [`calibrate`] asks
//! for known wires and says what really came.

mod calibrate;
mod lateness;
mod live;

pub use calibrate::{Calibration, Load, PROBE_LEN_MIN, Row, Rows, Trial, calibrate};
pub use lateness::Lateness;
pub use live::{Course, LATE, Outcome, POOL_LIMIT, Scheduling, Way, monotonic, run};
pub use sim::link::{
    BadShape, Burst, Counters, Departure, Fate, Link, Losses, Queue, REORDER_PATIENCE, Reorder, Shape, Tally,
};
