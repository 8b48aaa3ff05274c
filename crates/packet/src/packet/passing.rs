//! A packet to forward -> the packet with another link header, a decremented TTL, or a larger buffer.
//!
//! These changes do not affect the payload. The choice of the link header is left to the port.

use super::{Body, Buffer, HEADROOM};
use crate::checksum::patched;
use crate::ip::{Ecn, FragmentFingerprint, Version};
use crate::link::{LINK_LEN_MAX, LinkType};

/// Methods that change the packet outside of its payload.
impl Body {
    /// Removes the link padding behind the IP packet, if packet and padding together exceed `len_max` bytes.
    #[inline]
    pub fn trim(&mut self, len_max: usize) {
        if self.len() + usize::from(self.trailer_len) > len_max {
            self.trailer_len = 0;
        }
    }

    /// Replaces the link header of the packet, and removes the link padding.
    ///
    /// # Panics
    /// If `header` is longer than [`LINK_LEN_MAX`].
    pub fn set_link_header(&mut self, link_type: LinkType, header: &[u8]) {
        assert!(header.len() <= LINK_LEN_MAX, "a link header fits in front of its packet");
        let start = self.ip_at() - header.len();
        self.memory.put(start, header);
        (self.link_len, self.link_type, self.announced) = (header.len() as u8, link_type, None);
        self.trailer_len = 0;
        self.as_received = false;
    }

    /// Returns the TTL or hop limit.
    pub fn ttl(&self) -> u8 {
        self.ip.ttl(self.header())
    }

    /// Decrements the TTL or hop limit, as a router does (R038).
    pub fn decrement_ttl(&mut self) {
        let (start, len) = (self.ip_at(), usize::from(self.ip.header_len));
        self.ip.decrement_ttl(self.memory.bytes_mut(start..start + len));
        self.ip.shape = FragmentFingerprint::CHANGED;
        self.as_received = false;
    }

    /// Clears DF of an IPv4 packet, and sets its IP ID, which routers need to fragment it (RFC 6864 section 4). Other
    /// packets stay unchanged.
    pub fn clear_dont_fragment(&mut self, id: u16) {
        let (start, len) = (self.ip_at(), usize::from(self.ip.header_len));
        self.ip.clear_dont_fragment(self.memory.bytes_mut(start..start + len), id);
        self.ip.shape = FragmentFingerprint::CHANGED;
        self.as_received = false;
    }

    /// Marks the packet as one of a transport without ECN, as hosts do when they repeat data (RFC 3168 section 6.1.5).
    pub fn clear_ecn(&mut self) {
        let word = self.word(0);
        let cleared = match self.ip.version {
            Version::V4 => word & !0x03,
            Version::V6 => word & !0x30,
        };
        if self.ip.version == Version::V4 {
            self.set_word(CHECKSUM_AT, patched(self.word(CHECKSUM_AT), word, cleared));
        }
        self.set_word(0, cleared);
        self.ip.ecn = Ecn::NotEct;
        self.ip.shape = FragmentFingerprint::CHANGED;
        self.mark_modified();
    }

    /// Returns the room behind the packet in its buffer, in bytes.
    pub fn room(&self) -> usize {
        (HEADROOM + self.capacity()).saturating_sub(self.ip_at() + self.len())
    }

    /// Moves the packet to a larger buffer, with its IP header at the start of the content. Returns the smaller
    /// buffer.
    pub fn move_to(&mut self, mut larger: Buffer) -> Buffer {
        let (start, end) = (self.ip_at() - self.link_len(), self.ip_at() + self.len());
        larger.put(HEADROOM - self.link_len(), self.memory.bytes(start..end));
        self.ip_at = HEADROOM as u32;
        core::mem::swap(&mut self.memory, &mut larger.0.memory);
        larger
    }
}

/// Offset of the checksum in an IPv4 header, in bytes (RFC 791 section 3.1).
const CHECKSUM_AT: usize = 10;
