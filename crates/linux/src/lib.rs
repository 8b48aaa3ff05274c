//! Requests -> Linux: interfaces, addresses, routes, neighbours, namespaces, descriptors, the clock.
//!
//! This crate contains the system calls that several crates need. It knows neither ports nor eBPF programs.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod addresses;
pub mod bridges;
pub mod clock;
pub mod descriptors;
pub mod device;
pub mod failure;
pub mod features;
pub mod frames;
pub mod interfaces;
pub mod monitor;
pub mod namespace;
pub mod napi;
pub mod neighbours;
pub mod netlink;
pub mod raw;
pub mod realtime;
pub mod routes;
pub mod sockets;
