//! Hardware figures from papers -> timing models of that hardware.
//!
//! The models show how reassembly and receive offload behave on NICs that the project does not have. The DMA engine
//! is a model of its own, which the models of NICs use. Each figure from a paper is one constant with the paper's
//! id.

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
