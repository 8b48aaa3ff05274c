//! A configuration file -> a gateway that keeps running: the live service.
//!
//! The supervisor has privileges, and its worker processes have none. This crate also changes the host's settings,
//! and serves control requests and metrics. The data path (crate `gateway`) processes the packets.
#![forbid(unsafe_code)]

pub mod control;
pub mod gro;
pub mod interface_watch;
pub mod json;
pub mod messages;
pub mod metrics;
pub mod notify;
pub mod offload_probe;
pub mod own_addresses;
pub mod privileges;
pub mod reopen;
pub mod roles;
pub mod service;
pub mod stderr_log;
pub mod supervisor;
pub mod supervisor_client;
pub mod wide_routes;
pub mod worker_process;

mod claims;
mod fd_store;
mod listeners;
mod ports;
mod redirects;
