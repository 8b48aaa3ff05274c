//! Packets in, what the kernel does with them without us out: small programs at interfaces and sockets, and what
//! loads them.
//!
//! All of them end with the descriptors that hold them, so with the process, however that ends.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod intercept;
pub mod leases;
pub mod pulse;
pub mod redirect;
pub mod steer;
pub mod xdp;

mod bpf;
mod lately;
mod names;

pub use bpf::{Hook, attached};
