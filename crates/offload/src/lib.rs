//! Packet handling in the kernel: small eBPF programs at interfaces and sockets, and their loader.
//!
//! All programs end with the descriptors that hold them, so with the process, however it ends.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod flow_offload;
pub mod heartbeat;
pub mod intercept;
pub mod redirect;
pub mod steer;
pub mod xdp;

mod bpf;
mod names;
mod recent_fragments;

pub use bpf::{Hook, attached};
