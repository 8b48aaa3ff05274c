//! A configuration's file -> a gateway that keeps running: the live service.
//!
//! A supervisor with rights, worker processes without, what the host gives up for them, control, metrics. What
//! happens to packets is the data path's.
#![forbid(unsafe_code)]

pub mod control;
pub mod desk;
pub mod gro;
pub mod interface_watch;
pub mod keeper;
pub mod messages;
pub mod metrics;
pub mod notify;
pub mod own_addresses;
pub mod privileges;
pub mod reopen;
pub mod roles;
pub mod service;
pub mod trial;
pub mod voice;
pub mod wide_routes;
pub mod work;

mod beside;
mod claims;
mod doors;
mod kept;
mod ports;
