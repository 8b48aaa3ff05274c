//! Frames of two ports -> packets of the right sizes to the other port: the data path, one thread for each worker.
//!
//! This crate holds the workers, their commands and their statistics. The daemon starts the workers and configures
//! the host.
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
