//! A packet -> its facts: header, payload, addresses, ingress.
//!
//! Other code reads packets only by these methods, and so does not depend on the layout of buffers.

use super::Body;
use crate::ip::{Address, AddressPair, ICMPV6, Ip};
use crate::link::{Ingress, L2Scope, Link, LinkType, PrevHop, Tags};

/// Methods that read a packet.
impl Body {
    /// Returns the facts of the IP header.
    #[inline(always)]
    pub fn ip(&self) -> &Ip {
        &self.ip
    }

    /// Returns the complete frame: link header, IP packet, and the link padding of an unchanged packet.
    pub fn frame(&self) -> &[u8] {
        let start = self.ip_at();
        self.memory.bytes(start - self.link_len()..start + self.len() + usize::from(self.trailer_len))
    }

    /// Returns the link header.
    pub fn link(&self) -> &[u8] {
        self.memory.bytes(self.ip_at() - self.link_len()..self.ip_at())
    }

    /// Returns the IP header that every fragment repeats, without a Fragment header.
    #[inline(always)]
    pub fn header(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + usize::from(self.ip.header_len))
    }

    /// Returns the payload that fragmentation divides.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        self.memory.bytes(self.payload_at()..self.ip_at() + self.len())
    }

    /// Returns the bytes of the packet, starting with the IP header.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + self.len())
    }

    /// Returns the length of the packet, in bytes, including the IP header.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.ip.len as usize
    }

    /// Always false: a packet has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the address pair of the header.
    #[inline(always)]
    pub fn ends(&self) -> AddressPair {
        self.ip.ends(self.header())
    }

    /// Whether the header has this address pair.
    #[inline(always)]
    pub fn has_ends(&self, ends: &AddressPair) -> bool {
        self.ip.has_ends(self.header(), ends)
    }

    /// Returns the source and the destination address.
    pub fn addresses(&self) -> (Address, Address) {
        self.ip.addresses(self.header())
    }

    /// Returns the VLAN tags.
    pub fn tags(&self) -> Tags {
        self.l2_scope.tags()
    }

    /// Returns the facts of the link header.
    pub fn link_header(&self) -> Link {
        Link {
            len: self.link_len(),
            link_type: self.link_type,
            version: self.announced,
            tags: self.l2_scope.tags(),
            channel: self.l2_scope.channel(),
        }
    }

    /// Returns the L2 scope: ingress port, VLAN tags and cooked interface.
    #[inline(always)]
    pub fn l2_scope(&self) -> L2Scope {
        self.l2_scope
    }

    /// Returns the kind of the link header.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Returns the station that sent the frame, if the link header names it.
    pub fn previous_hop(&self) -> PrevHop {
        PrevHop::of(self.link_type, self.link())
    }

    /// Returns the ingress port.
    pub fn ingress(&self) -> Ingress {
        self.l2_scope.ingress()
    }

    /// Whether the packet will be sent with exactly the bytes that a port received.
    pub fn is_as_received(&self) -> bool {
        self.as_received && self.fragmentation.is_none() && self.gso.is_none()
    }

    /// Whether the packet is a fragment, or a datagram that was received in fragments.
    pub fn was_fragmented(&self) -> bool {
        self.max_fragment_len > 0 || self.ip.fragment.is_some()
    }

    /// Returns the length of the longest fragment from which this packet was reassembled or merged, in bytes,
    /// including the IP header. `None` if the packet was not joined from fragments.
    pub fn max_fragment_len(&self) -> Option<usize> {
        (self.max_fragment_len > 0).then_some(self.max_fragment_len as usize)
    }

    /// Sets the value of [`max_fragment_len`](Body::max_fragment_len), for example for the segments of a
    /// reassembled GSO packet.
    pub fn set_max_fragment_len(&mut self, len: Option<usize>) {
        self.max_fragment_len = len.unwrap_or_default() as u32;
    }

    /// Records two facts that the bytes of a reassembled packet may lack: the length of the longest fragment in
    /// bytes, including the IP header, and the fragments' IP ID. The ID is recorded only in IPv6.
    pub fn set_fragments(&mut self, max_fragment_len: usize, id: u32) {
        self.set_max_fragment_len(Some(max_fragment_len));
        if !self.ip.is_numbered() {
            self.ip.id = id;
        }
    }

    /// Returns the bitmap of the buffer. In a sparse packet, it marks the 8-byte units that are present.
    pub fn bitmap(&self) -> &[u8] {
        self.memory.bitmap()
    }

    /// Returns the memory that this packet occupies, in bytes.
    pub fn pinned_len(&self) -> usize {
        self.memory.pinned_len()
    }

    /// Returns the maximum payload that fits the buffer, in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    #[inline(always)]
    pub(super) fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    /// Returns the length of the link header, in bytes.
    #[inline(always)]
    pub fn link_len(&self) -> usize {
        usize::from(self.link_len)
    }

    #[inline(always)]
    pub(super) fn payload_at(&self) -> usize {
        self.ip_at() + usize::from(self.ip.payload_at)
    }
}

/// Methods for properties of special packets.
impl Body {
    /// Whether a first fragment lacks headers that it must contain (RFC 7112 section 5, R083).
    pub fn lacks_headers(&self) -> bool {
        self.ip.fragment.is_some() && self.ip.starts() && usize::from(self.ip.headers_end) > self.len()
    }

    /// Returns the length of the headers in the payload that must all be in the first fragment, in bytes (RFC 7112
    /// section 5, R082).
    pub fn headers_in_payload_len(&self) -> usize {
        usize::from(self.ip.headers_end).min(self.len()).saturating_sub(usize::from(self.ip.payload_at))
    }

    /// Whether the packet is neighbour discovery, which must never be fragmented (RFC 6980 section 5, R103).
    pub fn is_neighbour_discovery(&self) -> bool {
        self.ip.upper.is_some_and(|upper| {
            let kind = self.upper_bytes(upper).first();
            upper.protocol == ICMPV6 && kind.is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
        })
    }
}

/// ICMPv6 types of neighbour discovery and of its certificates (RFC 4861 section 4, RFC 3971 section 6.4).
const NEIGHBOUR_DISCOVERY: [u8; 7] = [133, 134, 135, 136, 137, 148, 149];
