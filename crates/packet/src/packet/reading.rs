//! A packet -> its facts: header, payload, addresses, ingress.

use super::Body;
use crate::ip::{Address, AddressPair, ICMPV6, Ip};
use crate::link::{Ingress, L2Scope, Link, LinkType, PrevHop, Tags};

/// Reading a packet.
impl Body {
    /// The facts of its IP header.
    #[inline(always)]
    pub fn ip(&self) -> &Ip {
        &self.ip
    }

    /// The whole frame: link header, packet and, while the packet is unchanged, the link's padding.
    pub fn frame(&self) -> &[u8] {
        let start = self.ip_at();
        self.memory.bytes(start - self.link_len()..start + self.len() + usize::from(self.trailer_len))
    }

    /// The link header.
    pub fn link(&self) -> &[u8] {
        self.memory.bytes(self.ip_at() - self.link_len()..self.ip_at())
    }

    /// The IP header that every fragment repeats, without a Fragment header.
    #[inline(always)]
    pub fn header(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + usize::from(self.ip.header_len))
    }

    /// The payload that fragmentation divides.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        self.memory.bytes(self.payload_at()..self.ip_at() + self.len())
    }

    /// The bytes of the packet from the IP header on.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + self.len())
    }

    /// Length of the packet, IP header included, in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.ip.len as usize
    }

    /// Always false: a packet has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its address pair, as its header states it.
    #[inline(always)]
    pub fn ends(&self) -> AddressPair {
        self.ip.ends(self.header())
    }

    /// Whether it has this address pair.
    #[inline(always)]
    pub fn has_ends(&self, ends: &AddressPair) -> bool {
        self.ip.has_ends(self.header(), ends)
    }

    /// Source and destination.
    pub fn addresses(&self) -> (Address, Address) {
        self.ip.addresses(self.header())
    }

    /// Its VLANs.
    pub fn tags(&self) -> Tags {
        self.l2_scope.tags()
    }

    /// The facts of its link header.
    pub fn link_header(&self) -> Link {
        Link {
            len: self.link_len(),
            medium: self.medium,
            version: self.announced,
            tags: self.l2_scope.tags(),
            channel: self.l2_scope.channel(),
        }
    }

    /// Its ingress: port and VLANs.
    #[inline(always)]
    pub fn l2_scope(&self) -> L2Scope {
        self.l2_scope
    }

    /// Its link type.
    pub fn medium(&self) -> LinkType {
        self.medium
    }

    /// The station that sent the frame, if the link header names it.
    pub fn previous_hop(&self) -> PrevHop {
        PrevHop::of(self.medium, self.link())
    }

    /// The port through which it arrived.
    pub fn ingress(&self) -> Ingress {
        self.l2_scope.ingress()
    }

    /// Whether the bytes are still exactly the received packet.
    pub fn is_as_received(&self) -> bool {
        self.as_received && self.fragmentation.is_none() && self.gso.is_none()
    }

    /// Whether this is a fragment, or a datagram that arrived in fragments.
    pub fn was_fragmented(&self) -> bool {
        self.max_fragment_len > 0 || self.ip.fragment.is_some()
    }

    /// Length of the longest fragment that a reassembled datagram or fragment arrived in, IP header included, in
    /// bytes.
    pub fn max_fragment_len(&self) -> Option<usize> {
        (self.max_fragment_len > 0).then_some(self.max_fragment_len as usize)
    }

    /// Records the length of the longest fragment that the packet arrived in, IP header included. None: it arrived
    /// whole.
    pub fn set_max_fragment_len(&mut self, len: Option<usize>) {
        self.max_fragment_len = len.unwrap_or_default() as u32;
    }

    /// Records the length of the longest fragment, IP header included, and the identification of the fragments. A
    /// whole packet does not carry these itself.
    pub fn set_fragments(&mut self, max_fragment_len: usize, id: u32) {
        self.set_max_fragment_len(Some(max_fragment_len));
        if !self.ip.is_numbered() {
            self.ip.id = id;
        }
    }

    /// The bitmap of the buffer: the 8-byte units that a sparse packet holds.
    pub fn bitmap(&self) -> &[u8] {
        self.memory.bitmap()
    }

    /// Bytes of memory that this packet occupies.
    pub fn pinned_len(&self) -> usize {
        self.memory.pinned_len()
    }

    /// Bytes of payload that its buffer can hold.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    #[inline(always)]
    pub(super) fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    /// Length of the link header, in bytes.
    #[inline(always)]
    pub fn link_len(&self) -> usize {
        usize::from(self.link_len)
    }

    #[inline(always)]
    pub(super) fn payload_at(&self) -> usize {
        self.ip_at() + usize::from(self.ip.payload_at)
    }
}

/// Properties that only some packets have.
impl Body {
    /// Whether a first fragment lacks headers that it must hold (RFC 7112 section 5, R083).
    pub fn lacks_headers(&self) -> bool {
        self.ip.fragment.is_some() && self.ip.starts() && usize::from(self.ip.headers_end) > self.len()
    }

    /// Bytes of headers in the payload that must all go into the first fragment (RFC 7112 section 5, R082).
    pub fn headers_in_payload_len(&self) -> usize {
        usize::from(self.ip.headers_end).min(self.len()).saturating_sub(usize::from(self.ip.payload_at))
    }

    /// Whether this is neighbour discovery, which may never arrive in fragments (RFC 6980 section 5, R103).
    pub fn is_neighbour_discovery(&self) -> bool {
        self.ip.upper.is_some_and(|upper| {
            let kind = self.upper_bytes(upper).first();
            upper.protocol == ICMPV6 && kind.is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
        })
    }
}

/// ICMPv6 types of neighbour discovery and its certificates (RFC 4861 section 4, RFC 3971 section 6.4).
const NEIGHBOUR_DISCOVERY: [u8; 7] = [133, 134, 135, 136, 137, 148, 149];
