//! The live service: workers, configuration, counters, control, shutdown.
#![forbid(unsafe_code)]

pub mod build;
pub mod bypass;
pub mod config;
pub mod control;
pub mod figures;
pub mod gro;
pub mod handover;
pub mod interface_watch;
pub mod keeper;
pub mod messages;
pub mod metrics;
pub mod notify;
pub mod orders;
pub mod own_addresses;
pub mod privileges;
pub mod reopen;
pub mod roles;
pub mod send;
pub mod service;
pub mod siblings;
pub mod snapshot;
pub mod stations;
pub mod trial;
pub mod voice;
pub mod wide_routes;
pub mod work;
pub mod worker;

mod beside;

mod claims;
mod doors;
mod kept;
mod mailbox;
mod sync;
