//! Hosts and links in private namespaces, and what is measured on them.
#![forbid(unsafe_code)]

pub mod demo;
pub mod emulator;
pub mod experiments;
pub mod inventory;
pub mod net;
pub mod three_hosts;
pub mod traffic;
pub mod two_hosts;
pub mod usage;
