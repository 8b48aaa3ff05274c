//! What a packet is: bytes on loan from a pool, link and IP headers, checksums, time.
//!
//! ```
//! use wideload_packet::{Frame, Ingress, Medium, Pool};
//!
//! // An IPv4 packet of 28 bytes: a header and eight bytes of payload, the first piece of a datagram.
//! let bytes = [
//!     0x45, 0, 0, 28, 0x12, 0x34, 0x20, 0, 64, 17, 0xC4, 0x99, 192, 0, 2, 1, 192, 0, 2, 2, //
//!     1, 2, 3, 4, 5, 6, 7, 8,
//! ];
//! let mut pool = Pool::new(1 << 20);
//! let packet = Frame::copy(&bytes, Medium::Ip, Ingress(0), &mut pool).unwrap();
//! assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
//! assert_eq!(packet.ip().fragment.unwrap().id, 0x1234);
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod icmp;
pub mod ip;
mod ipv4;
mod ipv6;
pub mod map;
pub mod tcp;
pub mod udp;

mod advice;
mod cut;
mod glance;
mod inner_segments;
mod link;
mod mss;
mod packet;
mod part;
mod place;
mod segments;
mod sum;
mod time;
mod train;
mod tunnel;
mod version;

pub use advice::advised_mtu;
pub use cut::{Content, Cut, Fill, Shares, UNIT};
pub use glance::Glance;
pub use inner_segments::InnerSegments;
pub use ip::{Address, Ecn, Ends, Fragment, Ip, Shape, Unfit, Version};
pub use lanes::{prefetch, prefetch_lines, prefetch_value};
pub use link::{Channel, Hop, Ingress, LINK_LEN_MAX, Link, Medium, Origin, Tags};
pub use mss::{Announced, Damaged, MSS_MIN};
pub use packet::{Body, Buffer, CLASS_LENS, Checksum, Frame, HEADROOM, NoPacket, Packet, Pool, Raw, Template};
pub use part::{Part, share_headers};
pub use place::{Apart, Front, Grid, Landed, Places};
pub use segments::{PIECE_HEADER_LEN_MAX, Place, SegmentTemplate, Share, may_be_segmented, may_be_segmented_hence};
pub use sum::{Sum, patched};
pub use tcp::{TcpFacts, TcpPart, Timestamps};
pub use time::Time;
pub use train::{Identifications, Maker, SegmentLimit, Train};
pub use tunnel::Tunnel;
