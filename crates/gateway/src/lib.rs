//! Frames of two ports -> packets of the right sizes to the other port: the data path, one thread for each worker.
//!
//! What a worker is, what it is told, and its statistics. Who runs workers, and what the host is asked for, is the
//! daemon's.
#![forbid(unsafe_code)]

pub mod build;
pub mod bypass;
pub mod commands;
pub mod endpoint;
pub mod handover;
pub mod path;
pub mod peer_handoff;
pub mod send;
pub mod snapshot;
pub mod stations;
pub mod stats;
pub mod sync;
pub mod worker;

mod queue;
