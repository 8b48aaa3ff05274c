//! The live service: workers, configuration, counters, control, shutdown.
#![forbid(unsafe_code)]

pub mod config;
pub mod links;
pub mod next_hops;
pub mod orders;
pub mod reopen;
pub mod roles;
pub mod send;
pub mod service;
pub mod siblings;
pub mod snapshot;
pub mod wide_interface;
pub mod worker;

mod build;
