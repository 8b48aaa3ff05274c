//! The tests of packets, in one program.

mod checksums;
mod errors;
mod frames;
mod header_match;
mod headers;
mod inner_segments;
mod mtu_option;
mod ports;
mod template;
mod tunnels;
