//! Hardware figures from papers -> models of that hardware, with their timing.
//!
//! Each part is driven like all others: callers push input with its time and ask for due output. Each number from a
//! paper is one constant with its id.

mod card;
mod dma;
mod offload;
mod ring;

pub use card::{Card, Sending};
pub use dma::{Dma, DmaSettings, Done, Notice, Request, WriteOrder};
pub use offload::{Load, Offload, Received, ThreadSplit};
pub use ring::{Class, Ring, Slot};

/// Ethernet's overhead on an IP packet, in bytes: header, FCS, preamble and gap.
const FRAMING_LEN: u32 = 38;
