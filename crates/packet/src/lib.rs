//! Packets in pooled buffers: link and IP headers, checksums, fragment and segment arithmetic, time.
//!
//! This crate parses and writes single packets. It keeps no state between packets: reassembly, coalescing and
//! policy are left to the engine.
//!
//! ```
//! use std::net::IpAddr;
//! use wideload_packet::udp::UdpHeader;
//! use wideload_packet::{Frame, Ingress, LinkType, Pool, Sum, ip};
//!
//! // An IPv4 packet of 33 bytes: IPv4 header, UDP header, five bytes of data.
//! let bytes = [
//!     0x45, 0, 0, 33, 0x12, 0x34, 0, 0, 64, 17, 0x7C, 0x61, 192, 0, 2, 1, 198, 51, 100, 2, //
//!     0x0F, 0xA0, 0x13, 0x88, 0, 13, 0xAC, 0xA2, //
//!     b'h', b'e', b'l', b'l', b'o',
//! ];
//!
//! // Bytes -> packet. Buffers come from a pool, here of at most 1 MiB.
//! let mut pool = Pool::new(1 << 20);
//! let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap();
//!
//! // Packet -> facts.
//! let (source, destination) = packet.addresses();
//! assert_eq!(IpAddr::from(source).to_string(), "192.0.2.1");
//! assert_eq!(IpAddr::from(destination).to_string(), "198.51.100.2");
//! assert_eq!(packet.ip().protocol, ip::UDP);
//! assert_eq!(packet.ip().fragment, None);
//! assert_eq!(packet.ttl(), 64);
//! let (udp, data) = UdpHeader::parse(packet.payload()).unwrap();
//! assert_eq!((udp.source.get(), udp.destination.get()), (4_000, 5_000));
//! assert_eq!(data, b"hello");
//! assert!(packet.checksum_error().is_right());
//!
//! // A change, as by a router: the TTL is decremented, and the header checksum is updated.
//! packet.decrement_ttl();
//!
//! // Packet -> bytes.
//! assert_eq!(packet.bytes()[8], 63);
//! assert!(Sum::of(packet.header()).is_right());
//! assert_eq!(packet.bytes()[9], bytes[9]);
//!
//! // The buffer returns to its pool.
//! pool.give(packet.into_buffer());
//! assert_eq!(pool.in_use_count(), 0);
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
mod pure_ack;
mod segment_facts;
mod segments;
mod tcp_reply;
mod time;
mod tunnel;
mod version;

pub use checksum::{Sum, patched};
pub use fragmentation::{Content, FragmentRanges, Fragmentation, Split, UNIT};
pub use gso::{Gso, IPV4_DF_MIN, Identifications, Maker, SegmentLimit};
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
pub use pure_ack::PureAck;
pub use segment_facts::{SegmentFacts, share_headers};
pub use segments::{
    FRAGMENT_HEADER_LEN_MAX, Place, SegmentRange, SegmentTemplate, may_be_segmented, may_be_segmented_hence,
};
pub use simd::{prefetch, prefetch_lines, prefetch_value};
pub use tcp::{TcpFacts, TcpSegmentFacts, Timestamps};
pub use tcp_reply::TcpReply;
pub use time::Time;
pub use tunnel::Tunnel;
