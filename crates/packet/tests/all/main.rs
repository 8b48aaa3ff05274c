//! The tests of packets, in one program.

mod advice;
mod checksums;
mod errors;
mod frames;
mod glances;
mod headers;
mod inner_segments;
mod ports;
mod stamps;
mod tunnels;
