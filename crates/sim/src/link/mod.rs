//! Frames in at one end of a wire, the same frames out at the other: later, slower, fewer, in another order, as asked.
//!
//! [`Link`] is one direction of such a wire as a pure model, in which time is a value: the simulator drives it by events, the
//! lab's emulator by the clock. A wire carries single, finished packets: nothing here cuts a train or finishes a checksum.

mod model;
mod red;
mod shape;

pub use crate::rng::Losses;
pub use model::{Counters, Departure, Fate, Link, Tally};
pub(crate) use shape::stretch;
pub use shape::{BadShape, Burst, LinkShape, Queue, RED_LEN_MEAN, REORDER_TIMEOUT, Red, RedMode, Reorder};
