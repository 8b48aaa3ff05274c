//! What a packet is: bytes on loan from a pool, link and IP headers, checksums, time.
#![forbid(unsafe_code)]

mod link;
mod time;

pub use link::Medium;
pub use time::Time;
