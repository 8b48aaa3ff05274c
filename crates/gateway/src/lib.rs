//! The live service: workers, configuration, counters, control, shutdown.
#![forbid(unsafe_code)]

pub mod broker;
pub mod config;
pub mod handover;
pub mod keeper;
pub mod links;
pub mod messages;
pub mod next_hops;
pub mod notify;
pub mod orders;
pub mod privileges;
pub mod send;
pub mod service;
pub mod snapshot;
pub mod wide_interface;
pub mod work;
pub mod worker;

mod build;
mod kept;
