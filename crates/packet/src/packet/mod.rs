//! A frame in a buffer -> a packet: parsed once, changed in place, sealed once.
//!
//! This file contains construction and ownership. The other files read a packet, count its wire packets, or change
//! it.

mod acknowledgement;
mod body;
mod buffer;
mod checksum;
mod memory;
mod passing;
mod reading;
mod run;
mod template;
mod wire;

pub use body::{Body, Checksum};
pub use buffer::{Buffer, Pool};
pub use memory::{CLASS_LENS, HEADROOM};
pub use template::Template;
pub(crate) use template::fitting;

use crate::ip::{LEN_MAX, ParseError};
use crate::link::{Ingress, L2Scope, Link, LinkType};
use core::ops::{Deref, DerefMut};

/// An IP packet in contiguous bytes, with its link header.
///
/// A packet stands for one wire packet, or for many. If `gso` is set, it is a GSO packet, which a port or the
/// segmenter divides into TCP segments or UDP datagrams. If `fragmentation` is set, it is sent as fragments.
/// [`wire_count`](Body::wire_count) and [`wire_len`](Body::wire_len) describe the wire packets.
///
/// Invariant: outside of reassembly, the bytes are one valid IP packet. A datagram under reassembly is sealed
/// before it is forwarded. A datagram with holes has a sparse fragmentation.
///
/// The type is one word: a pointer to the packet's description, which owns the bytes. So moving a packet copies
/// neither the description nor the bytes.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// A frame as received by a port.
#[derive(Debug)]
pub enum Frame {
    /// An IP packet.
    Ip(Packet),
    /// Any other frame, and the reason why it is not an IP packet that can be parsed. `wideload` forwards such a
    /// frame unchanged.
    Other(OpaqueFrame, ParseError),
}

/// An unparsed frame: bytes in a buffer.
#[derive(Debug)]
pub struct OpaqueFrame {
    buffer: Buffer,
    at: usize,
    len: usize,
}

/// The reason why a frame did not become a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// The frame cannot be parsed.
    Unparsed(ParseError),
    /// The pool has no memory for the frame.
    NoBuffer,
}

impl Frame {
    /// Parses a frame of `frame_len` bytes. The frame's link header must end where the buffer's content starts.
    ///
    /// A port receives a frame at [`HEADROOM`] less the length of the link header, so that the content starts with
    /// the IP header.
    #[inline]
    pub fn parse(buffer: Buffer, frame_len: usize, link: Link, ingress: Ingress) -> Frame {
        Frame::parse_at(buffer, HEADROOM, frame_len - link.len, link, ingress)
    }

    /// Parses the frame of `len` bytes at offset `at` of the buffer's memory, with a link header of any length.
    pub fn read(buffer: Buffer, at: usize, len: usize, link_type: LinkType, ingress: Ingress) -> Frame {
        match Link::parse(link_type, buffer.bytes(at..at + len)) {
            Ok(link) => Frame::parse_at(buffer, at + link.len, len - link.len, link, ingress),
            Err(unfit) => Frame::Other(OpaqueFrame { buffer, at, len }, unfit),
        }
    }

    /// Parses the packet in the `ip_len` bytes at `ip_at`, behind this link header.
    #[inline(always)]
    fn parse_at(buffer: Buffer, ip_at: usize, ip_len: usize, link: Link, ingress: Ingress) -> Frame {
        let raw = |body| OpaqueFrame { buffer: Buffer(body), at: ip_at - link.len, len: link.len + ip_len };
        let Buffer(mut body) = buffer;
        let Body { memory, ip, .. } = &mut *body;
        let read = ip.read(memory.bytes(ip_at..ip_at + ip_len));
        if let Err(unfit) = read {
            return Frame::Other(raw(body), unfit);
        }
        if link.version.is_some_and(|version| version != body.ip.version) {
            return Frame::Other(raw(body), ParseError::BadVersion);
        }
        body.ip_at = ip_at as u32;
        body.trailer_len = (ip_len - body.ip.len as usize) as u16;
        (body.link_len, body.link_type, body.announced) = (link.len as u8, link.link_type, link.version);
        body.l2_scope = L2Scope::new(&link, ingress);
        body.tag = 0;
        body.become_fresh(true);
        Frame::Ip(Packet(body))
    }

    /// Copies a frame into a buffer of the pool, and parses it.
    ///
    /// # Errors
    /// The reason why there is no packet.
    pub fn copy(bytes: &[u8], link_type: LinkType, ingress: Ingress, pool: &mut Pool) -> Result<Packet, CopyError> {
        let link = Link::parse(link_type, bytes).map_err(CopyError::Unparsed)?;
        // Bytes behind the maximum packet length are padding. A packet whose header claims a greater length is not
        // parsed.
        let bytes = bytes.get(..link.len + LEN_MAX + 1).unwrap_or(bytes);
        let ip_len = bytes.len() - link.len;
        let mut buffer = pool.allocate(ip_len).ok_or(CopyError::NoBuffer)?;
        buffer.put(HEADROOM - link.len, bytes);
        match Frame::parse(buffer, bytes.len(), link, ingress) {
            Frame::Ip(packet) => Ok(packet),
            Frame::Other(raw, unfit) => {
                pool.give(raw.into_buffer());
                Err(CopyError::Unparsed(unfit))
            }
        }
    }
}

impl Frame {
    /// Returns the packet. `None` if the frame contains no packet.
    #[inline]
    pub fn packet(&self) -> Option<&Packet> {
        match self {
            Frame::Ip(packet) => Some(packet),
            Frame::Other(..) => None,
        }
    }

    /// Returns the buffer of the frame.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        match self {
            Frame::Ip(packet) => packet.into_buffer(),
            Frame::Other(raw, _) => raw.into_buffer(),
        }
    }
}

impl OpaqueFrame {
    /// Returns the bytes of the frame.
    pub fn frame(&self) -> &[u8] {
        self.buffer.bytes(self.at..self.at + self.len)
    }

    /// Returns the memory that this frame occupies, in bytes.
    pub fn pinned_len(&self) -> usize {
        self.buffer.pinned_len()
    }

    /// Returns the buffer of the frame.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Deref for Packet {
    type Target = Body;

    #[inline(always)]
    fn deref(&self) -> &Body {
        &self.0
    }
}

impl DerefMut for Packet {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

impl Packet {
    /// Prefetches the description of the packet.
    #[inline]
    pub fn prefetch(&self) {
        simd::prefetch_value(&*self.0);
    }

    /// Marks the packet as created by this program, not received.
    pub(crate) fn originated_here(mut self) -> Packet {
        self.as_received = false;
        self
    }

    /// Builds a packet that is sent back to the station that sent this one. `parts` are its bytes, from the IP header on.
    /// `None` if the pool has no buffer.
    pub(crate) fn reply(&self, parts: &[&[u8]], pool: &mut Pool) -> Option<Packet> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut buffer = pool.allocate(len)?;
        let mut at = HEADROOM;
        for part in parts {
            buffer.put(at, part);
            at += part.len();
        }
        let link_len = self.link().len();
        buffer.put(HEADROOM - link_len, self.link());
        if self.link_type() == LinkType::Ethernet {
            buffer.bytes_mut(HEADROOM - link_len..HEADROOM - link_len + 2 * STATION_LEN).rotate_left(STATION_LEN);
        }
        match Frame::parse(buffer, link_len + len, self.link_header(), self.ingress()) {
            Frame::Ip(packet) => Some(packet.originated_here()),
            Frame::Other(..) => panic!("a reply that we built parses"),
        }
    }

    /// Returns the buffer of the packet.
    #[inline(always)]
    pub fn into_buffer(self) -> Buffer {
        Buffer(self.0)
    }

    /// Converts the packet to an opaque frame.
    pub fn into_opaque_frame(self) -> OpaqueFrame {
        let at = self.ip_at() - self.link_len();
        let len = self.frame().len();
        OpaqueFrame { at, len, buffer: self.into_buffer() }
    }
}

/// Length of an Ethernet address, in bytes.
const STATION_LEN: usize = 6;
