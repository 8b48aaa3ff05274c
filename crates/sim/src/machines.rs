//! Hardware figures from papers -> timing models of that hardware.
//!
//! The models show how a gateway behaves with hardware that we do not have. All models have the same interface.
//! Callers push input with its time, and then ask for due output. Each figure from a paper is one constant with the
//! paper's id.

mod card;
mod dma;
mod offload;
mod ring;

pub use card::{Card, Sending};
pub use dma::{Dma, DmaSettings, Done, Notice, Request, WriteOrder};
pub use offload::{Load, Offload, Received, ThreadSplit};
pub use ring::{Class, Ring, Slot};

/// Ethernet's overhead per IP packet, in bytes: header, FCS, preamble and inter-packet gap.
const FRAMING_LEN: u32 = 38;
