//! The live service: workers, configuration, counters, control, shutdown.
#![forbid(unsafe_code)]

pub mod broker;
pub mod bypass;
pub mod config;
pub mod control;
pub mod figures;
pub mod handover;
pub mod interface_watch;
pub mod keeper;
pub mod links;
pub mod messages;
pub mod metrics;
pub mod next_hops;
pub mod notify;
pub mod orders;
pub mod privileges;
pub mod reopen;
pub mod roles;
pub mod send;
pub mod service;
pub mod siblings;
pub mod snapshot;
pub mod trial;
pub mod wide_interface;
pub mod work;
pub mod worker;

mod build;
mod claims;
mod doors;
mod kept;
mod mailbox;
mod sync;
