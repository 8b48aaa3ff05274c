//! Frames at one end of a wire -> frames at the other end, with delay, limited rate, loss and reordering.
//!
//! [`Link`] models one direction of a wire. The model has no clock: the simulator passes event times, and the lab's
//! emulator passes real time. As for a real wire, callers must first segment GSO packets and complete checksums.

mod model;
mod red;
mod shape;

pub use crate::rng::Losses;
pub use model::{Counters, Departure, Fate, Link, Tally};
pub(crate) use shape::stretch;
pub use shape::{BadShape, Burst, LinkShape, QueueLimit, RED_LEN_MEAN, REORDER_TIMEOUT, Red, RedMode, Reorder};
