//! Fragments of a datagram, or segments of a flow -> one packet: headers copied, payload appended, sealed once.
//!
//! The engine decides which packets belong together. This file combines their bytes and headers into one packet,
//! which is called a run until it is sealed.

use super::{Body, Buffer, Checksum, HEADROOM, Packet, fitting};
use crate::checksum::Sum;
use crate::fragmentation::Fragmentation;
use crate::gso::Gso;
use crate::ip::{Ecn, Fragment, FragmentFingerprint, Ip, pseudo_sum};
use crate::tcp::TcpSegmentFacts;
use crate::{tcp, udp};

/// Reassembly: the run is a packet that may have holes.
impl Packet {
    /// Opens a run in `buffer` with the headers of `fragment`, the first received fragment.
    pub fn open(fragment: &Packet, buffer: Buffer) -> Packet {
        let Buffer(mut run) = buffer;
        run.trailer_len = 0;
        run.l2_scope = fragment.l2_scope;
        run.tag = fragment.tag;
        run.become_fresh(false);
        run.copy_headers_from(fragment);
        Packet(run)
    }
}

/// Methods that build a run and convert it to a packet.
impl Body {
    /// Copies the headers of the datagram's first fragment to the run (RFC 791 section 3.2, R009; RFC 8200 section
    /// 4.5, R093).
    pub fn copy_headers_from(&mut self, fragment: &Packet) {
        let header_len = usize::from(fragment.ip.header_len);
        self.ip = fragment.ip.without_fragment_header();
        self.ip_at = (HEADROOM - header_len) as u32;
        (self.link_len, self.link_type, self.announced) =
            (fragment.link_len, fragment.link_type, fragment.announced);
        let (start, end) = (fragment.ip_at() - fragment.link_len(), fragment.ip_at() + header_len);
        let front = self.memory.bytes_mut(HEADROOM - (end - start)..HEADROOM);
        simd::copy(front, fragment.memory.bytes(start..end));
    }

    /// Returns the `len` bytes at `offset` of the datagram, mutable.
    #[inline(always)]
    pub fn payload_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(HEADROOM + offset..HEADROOM + offset + len)
    }

    /// Returns the `len` bytes at `offset` of the datagram. They must have been written before.
    pub fn laid(&self, offset: usize, len: usize) -> &[u8] {
        self.memory.bytes(HEADROOM + offset..HEADROOM + offset + len)
    }

    /// Returns the bitmap of the buffer, mutable.
    pub fn map_mut(&mut self) -> &mut [u8] {
        self.memory.map_mut()
    }

    /// Moves a run, with `laid_len` written bytes, to a larger buffer. Returns the smaller buffer.
    pub fn grow(&mut self, mut larger: Buffer, laid_len: usize) -> Buffer {
        let start = self.ip_at() - self.link_len();
        larger.put(start, self.memory.bytes(start..HEADROOM + laid_len));
        larger.map_mut().fill(0);
        if let Some((front, _)) = larger.map_mut().split_at_mut_checked(self.memory.bitmap().len()) {
            front.copy_from_slice(self.memory.bitmap());
        }
        core::mem::swap(&mut self.memory, &mut larger.0.memory);
        larger
    }

    /// Converts a run to the complete datagram of `payload_len` bytes. `max_fragment_len` is the length of the
    /// datagram's longest fragment in bytes, or 0 if the datagram was received unfragmented.
    pub fn close(&mut self, payload_len: usize, ecn: Ecn, dont_fragment: bool, max_fragment_len: u32) {
        self.ip.len = (usize::from(self.ip.header_len) + payload_len) as u32;
        self.ip.ecn = ecn;
        self.ip.dont_fragment = dont_fragment;
        self.ip.fragment = None;
        self.max_fragment_len = max_fragment_len;
        self.seal_as(None);
    }

    /// Converts an incomplete run to a packet with holes, of up to `payload_len` bytes. `cut`, a sparse
    /// fragmentation, describes the fragments that will carry the received bytes. `more`: the end of the datagram
    /// is missing.
    pub fn release(&mut self, payload_len: usize, more: bool, ecn: Ecn, cut: Fragmentation) {
        self.ip.len = (usize::from(self.ip.header_len) + payload_len) as u32;
        if let Some(fragment) = &mut self.ip.fragment {
            *fragment = Fragment { offset: 0, more, ..*fragment };
        }
        self.ip.ecn = ecn;
        self.seal();
        self.fragmentation = Some(cut);
    }

    /// Removes the Fragment header of an atomic fragment, which is a complete datagram (RFC 6946 section 4).
    pub fn make_whole(&mut self) {
        let header_len = usize::from(self.ip.header_len);
        let moved_by = usize::from(self.ip.payload_at) - header_len;
        let front = self.ip_at() - self.link_len();
        let end = self.ip_at() + header_len;
        self.memory.bytes_mut(front..end + moved_by).copy_within(..end - front, moved_by);
        self.ip_at += moved_by as u32;
        self.trailer_len = 0;
        let payload_len = self.ip.payload_len();
        self.ip = self.ip.without_fragment_header();
        // In IPv6, only fragments have an identification (RFC 8200 section 4.5).
        self.ip.id = 0;
        self.close(payload_len, self.ip.ecn, self.ip.dont_fragment, 0);
    }

    /// Whether this packet and `other` have identical link headers.
    #[inline]
    pub fn shares_link(&self, other: &Packet) -> bool {
        self.link_len == other.link_len && (self.link_len == 0 || self.link() == other.link())
    }

    /// Returns the `len` bytes of memory behind the packet's payload. `None` if the buffer is too short.
    #[inline]
    pub fn behind(&self, len: usize) -> Option<&[u8]> {
        let end = self.ip_at() + self.len();
        (len <= self.room()).then(|| self.memory.bytes(end..end + len))
    }

    /// Returns the `len` bytes of memory behind the packet's payload, mutable.
    #[inline]
    pub fn behind_mut(&mut self, len: usize) -> &mut [u8] {
        let end = self.ip_at() + self.len();
        self.memory.bytes_mut(end..end + len)
    }

    /// Extends the packet by the `len` bytes behind its payload. The caller must seal the headers later.
    #[inline]
    pub fn lengthen(&mut self, len: usize) {
        self.ip.len += len as u32;
        self.trailer_len = 0;
        self.as_received = false;
    }

    /// Appends the payload of the next packet. The caller must seal the headers later.
    pub fn append(&mut self, payload: &[u8]) {
        self.behind_mut(payload.len()).copy_from_slice(payload);
        self.lengthen(payload.len());
    }

    /// Whether the header of this fragment can represent the next fragment too. Otherwise, merging the two would
    /// lose information of the second.
    pub fn shares_fragment_header(&self, next: &Packet) -> bool {
        self.link() == next.link() && self.ip.shares_fragment_header(self.header(), next.header())
    }

    /// Converts a run of fragments, whose payloads were appended to the first, to one fragment or the complete
    /// datagram.
    ///
    /// `more` is the MF bit of the last fragment. `max_fragment_len` is the length of the longest fragment, in
    /// bytes, including the IP header. IPv4 only.
    pub fn seal_fragments(&mut self, more: bool, max_fragment_len: u32) {
        let fragment = self.ip.fragment.map(|fragment| Fragment { more, ..fragment });
        self.ip.fragment = fragment.filter(|fragment| fragment.offset > 0 || more);
        self.max_fragment_len = max_fragment_len;
        self.seal();
    }

    /// Converts a run of segments or datagrams, with the headers of the first, to one GSO packet.
    ///
    /// The payload starts at `payload_at`, in bytes from the IP header. `last` contains the facts of the last TCP
    /// segment; `None` for UDP. `payload_sum` is the sum of all payload.
    pub fn seal_gso(&mut self, last: Option<&TcpSegmentFacts>, payload_at: u16, payload_sum: Sum, gso: Gso) {
        let Some(upper) = self.ip.upper else { panic!("a train has a transport header") };
        let (start, len) = (self.ip_at(), self.len());
        let pseudo = pseudo_sum(self.addresses(), upper.protocol, len - usize::from(upper.at));
        let id = self.ip.id;
        let headers = self.memory.bytes_mut(start..start + len);
        let Some((ip_header, rest)) = headers.split_at_mut_checked(upper.at.into()) else {
            panic!("a packet holds its headers")
        };
        let version = self.ip.version;
        Ip::stamp_segment(version, ip_header, Ip::sum_of_rest(version, ip_header), rest.len(), id);
        match last {
            Some(last) => {
                let header_len = usize::from(payload_at - upper.at);
                tcp::seal(fitting(rest, header_len), last, pseudo + payload_sum);
            }
            None => udp::seal(rest, pseudo + payload_sum),
        }
        self.checksum = Checksum::Verified;
        self.as_received = false;
        self.gso = Some(gso);
    }

    /// Writes lengths, flags, ECN and checksum of the IP header.
    pub(super) fn seal(&mut self) {
        self.seal_as(self.ip.fragment);
    }

    /// Writes lengths, flags, ECN and checksum of the IP header. `fragment` is the packet's position in its
    /// datagram; `None` for a complete datagram.
    #[inline]
    fn seal_as(&mut self, fragment: Option<Fragment>) {
        let (start, len) = (self.ip_at(), usize::from(self.ip.header_len));
        self.ip.seal(self.memory.bytes_mut(start..start + len), fragment);
        self.ip.shape = FragmentFingerprint::CHANGED;
        self.trailer_len = 0;
        self.as_received = false;
    }
}
