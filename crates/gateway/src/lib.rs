//! The live service: workers, configuration, counters, control, shutdown.
#![forbid(unsafe_code)]

pub mod bypass;
pub mod config;
pub mod control;
pub mod figures;
pub mod links;
pub mod metrics;
pub mod next_hops;
pub mod orders;
pub mod roles;
pub mod send;
pub mod service;
pub mod snapshot;
pub mod wide_interface;
pub mod worker;

mod build;
mod doors;
