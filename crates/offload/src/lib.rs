//! eBPF programs -> packets handled in the kernel, at interfaces and sockets.
//!
//! The kernel removes each program when its descriptors are closed, and so also when the process is killed.
//! Processing packets in user space is left to other crates.
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
