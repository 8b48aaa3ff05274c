//! Packets in pooled buffers: link and IP headers, checksums, fragment and segment arithmetic, time.
//!
//! This crate parses and writes single packets. It keeps no state between packets: reassembly, coalescing and
//! policy are left to the engine.
//!
//! ```
//! use wideload_packet::{Frame, Ingress, LinkType, Pool};
//!
//! // An IPv4 packet of 28 bytes: a header and eight bytes of payload, the first fragment of a datagram.
//! let bytes = [
//!     0x45, 0, 0, 28, 0x12, 0x34, 0x20, 0, 64, 17, 0xC4, 0x99, 192, 0, 2, 1, 192, 0, 2, 2, //
//!     1, 2, 3, 4, 5, 6, 7, 8,
//! ];
//! let mut pool = Pool::new(1 << 20);
//! let packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap();
//! assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
//! assert_eq!(packet.ip().fragment.unwrap().id, 0x1234);
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod bitmap;
pub mod icmp;
pub mod ip;
mod ipv4;
mod ipv6;
pub mod tcp;
pub mod udp;

mod checksum;
mod fragmentation;
mod gso;
mod header_match;
mod header_split;
mod inner_segments;
mod link;
mod mss;
mod mtu_option;
mod packet;
mod segment_facts;
mod segments;
mod time;
mod tunnel;
mod version;

pub use checksum::{Sum, patched};
pub use fragmentation::{Content, FragmentRanges, Fragmentation, Split, UNIT};
pub use gso::{Gso, Identifications, Maker, SegmentLimit};
pub use header_match::HeaderMatch;
pub use header_split::{HeaderLayout, PayloadSlots, SlotLayout, SplitFrame, SplitPacket};
pub use inner_segments::InnerSegments;
pub use ip::{Address, AddressPair, Ecn, Fragment, FragmentFingerprint, Ip, ParseError, Version};
pub use link::{CookedInterface, Ingress, L2Scope, LINK_LEN_MAX, Link, LinkType, PrevHop, Tags};
pub use mss::{Damaged, MSS_MIN, MssOption};
pub use mtu_option::advised_mtu;
pub use packet::{
    Body, Buffer, CLASS_LENS, Checksum, CopyError, Frame, HEADROOM, OpaqueFrame, Packet, Pool, Template,
};
pub use segment_facts::{SegmentFacts, share_headers};
pub use segments::{
    FRAGMENT_HEADER_LEN_MAX, Place, SegmentRange, SegmentTemplate, may_be_segmented, may_be_segmented_hence,
};
pub use simd::{prefetch, prefetch_lines, prefetch_value};
pub use tcp::{TcpFacts, TcpSegmentFacts, Timestamps};
pub use time::Time;
pub use tunnel::Tunnel;
