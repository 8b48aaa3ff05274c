//! What the papers say of their machines in, how long those take out: the parts on which their figures hang.
//!
//! Each part is driven like every other: what comes is pushed with the time, what is due is asked for, and a number in the
//! papers stands in one constant with its id.

mod card;
mod dma;
mod offload;
mod ring;

pub use card::{Card, Sending};
pub use dma::{Dma, DmaSettings, Done, Notice, Request, WriteOrder};
pub use offload::{Load, Offload, Received, ThreadSplit};
pub use ring::{Class, Ring, Slot};

/// What Ethernet adds to an IP packet on the wire, in bytes: header, check sequence, preamble and gap.
const FRAMING_LEN: u32 = 38;
