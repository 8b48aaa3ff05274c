//! Descriptions of packets -> bytes, and bytes -> header fields, for tests.
//!
//! The crate uses no other crate of this workspace. So a bug in the tested code cannot be hidden by the same bug in
//! a test. Headers are written and read field by field. The crate's own tests compare the bytes with RFCs and with
//! an independent crate.
//!
//! ```
//! use testkit::{ReadPacket, tcp, udp};
//!
//! let fragments = udp(4).ports(1_500, 53).payload(&[7; 3_000]).fragments(1_500);
//! assert_eq!(ReadPacket::all(&fragments).iter().map(ReadPacket::place).collect::<Vec<_>>(), [
//!     (0, 1_480, true),
//!     (1_480, 1_480, true),
//!     (2_960, 48, false),
//! ]);
//! let segment = tcp(6).seq(100).stamped(1, 2).payload(b"hello").vlan(7).bytes();
//! assert_eq!(ReadPacket::of_frame(&segment).payload(), b"hello");
//! ```
//!
//! Each module uses only modules before it in this list: `fields` and `random`, `sum`, `build` and `read`, `rules`,
//! `model` and `traffic`. `golden` uses none.

mod build;
pub mod fields;
mod golden;
pub mod model;
mod random;
mod read;
mod rules;
mod sum;
pub mod traffic;

pub use build::{
    HOST_V4, HOST_V6, PEER_V4, PEER_V6, Place, Spec, Summed, Transport, chain, copied_option, extension, host,
    icmp, ip, tcp, udp, uncopied_option,
};
pub use golden::golden;
pub use random::{each_order, each_seed, noise, number_from, orders, pattern, seed_count, stream};
pub use read::ReadPacket;
pub use sum::{add, checksum, seal_ip, seal_transport, sum, sum_of};
