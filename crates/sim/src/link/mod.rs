//! Frames at one end of a wire -> the same frames at the other end: later, slower, fewer or in another order, as
//! configured.
//!
//! [`Link`] models one direction of a wire. Time is a value: the simulator drives it by events, the lab's emulator
//! by the clock. A wire carries single, finished packets. It splits no GSO packets and completes no checksums.

mod model;
mod red;
mod shape;

pub use crate::rng::Losses;
pub use model::{Counters, Departure, Fate, Link, Tally};
pub(crate) use shape::stretch;
pub use shape::{BadShape, Burst, LinkShape, Queue, RED_LEN_MEAN, REORDER_TIMEOUT, Red, RedMode, Reorder};
