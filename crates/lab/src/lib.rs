//! Hosts and links in private network namespaces, and the experiments that run on them.
//!
//! Measurements of kernels and gateways need networks. Private namespaces provide such networks without changes to
//! the machine's own network.
#![forbid(unsafe_code)]

pub mod chart;
pub mod demo;
pub mod emulator;
pub mod experiments;
pub mod inventory;
pub mod net;
pub mod three_hosts;
pub mod traffic;
pub mod two_hosts;
pub mod usage;
