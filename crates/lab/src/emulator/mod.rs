//! Frames in at one end of a wire, the same frames out at the other: later, slower, fewer, in another order, as asked.
//!
//! [`Link`] is one direction of such a wire as a pure model, in which time is a value; [`run`] joins two ports by two of
//! them; [`calibrate`] asks for known wires and says what really came. A wire carries single, finished packets: nothing
//! here cuts a train or finishes a checksum.

mod calibrate;
mod draw;
mod lateness;
mod live;
mod model;
mod shape;

pub use calibrate::{Calibration, Load, PROBE_LEN_MIN, Row, Rows, Trial, calibrate};
pub use draw::Losses;
pub use lateness::Lateness;
pub use live::{Course, LATE, Outcome, POOL_LIMIT, Scheduling, Way, monotonic, run};
pub use model::{Counters, Departure, Fate, Link, Tally};
pub use shape::{BadShape, Burst, Queue, REORDER_PATIENCE, Reorder, Shape};
