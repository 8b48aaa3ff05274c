//! Frames of two ports -> packets of the right sizes to the other port: the data path, one thread for each worker.
//!
//! What a worker is, what it is told, and its statistics. Who runs workers, and what the host is asked for, is the
//! daemon's.
#![forbid(unsafe_code)]

pub mod build;
pub mod bypass;
pub mod endpoint;
pub mod figures;
pub mod handover;
pub mod orders;
pub mod path;
pub mod send;
pub mod siblings;
pub mod snapshot;
pub mod stations;
pub mod sync;
pub mod worker;

mod mailbox;
