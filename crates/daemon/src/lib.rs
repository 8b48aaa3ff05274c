//! A configuration's file -> a gateway that keeps running: the live service.
//!
//! A supervisor with rights, worker processes without, what the host gives up for them, control, metrics. What
//! happens to packets is the data path's.
#![forbid(unsafe_code)]

pub mod control;
pub mod gro;
pub mod interface_watch;
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
