//! A GSO packet -> the headers of its segments.
//!
//! A GSO packet has one header and the payload of all its segments, as in virtio-net and GSO. Its segments differ
//! only in length, sequence number, flags, identification and checksums.

use crate::checksum::Sum;
use crate::gso::Identifications;
use crate::ip::{Ip, TCP, Transport, UDP, Version, pseudo_sum};
use crate::link::LINK_LEN_MAX;
use crate::packet::{HEADROOM, Packet, fitting};
use crate::tcp::{self, Segment, TcpOption};
use crate::udp::{self, UdpHeader};

/// Whether this packet may be divided into segments that repeat its header.
///
/// Excluded are:
///
/// - packets that are not whole TCP packets;
/// - packets that open or reset a connection, or are urgent (R117, R118);
/// - packets that are signed as a whole (RFC 2385, RFC 4302, RFC 5925);
/// - packets whose options cannot be read.
pub fn may_be_segmented(packet: &Packet) -> bool {
    is_divisible(packet, tcp::SYN | tcp::RST | tcp::URG)
}

/// Whether the later packets of the connection that this packet agrees to may be divided: it must sign nothing.
pub fn may_be_segmented_hence(packet: &Packet) -> bool {
    is_divisible(packet, tcp::RST | tcp::URG)
}

/// Whether this is a whole, unsigned TCP packet without the flags in `without` and with readable options.
fn is_divisible(packet: &Packet, without: u8) -> bool {
    let ip = packet.ip();
    let Some(upper) = ip.upper.filter(|upper| upper.protocol == TCP && ip.fragment.is_none()) else { return false };
    let Some(segment) = Segment::parse(packet.upper_bytes(upper)) else { return false };
    let signs = |option| match option {
        TcpOption::Other(kind, _) => is_signature(kind),
        TcpOption::Malformed(_) => true,
        _ => false,
    };
    !ip.is_authenticated(packet.bytes()) && segment.header.flags() & without == 0 && !segment.options().any(signs)
}

/// Whether a TCP option of this kind covers the bytes of its segment.
#[inline]
pub(crate) fn is_signature(kind: u8) -> bool {
    matches!(kind, MD5_SIGNATURE | AUTHENTICATION)
}

/// The headers of a GSO packet's segments. Common fields are read once; fields that differ are written for each
/// segment.
#[derive(Debug)]
pub struct SegmentTemplate<'a> {
    version: Version,
    /// Link, IP and transport header of the GSO packet.
    front: &'a [u8],
    link_len: usize,
    /// Offset of the transport header.
    upper_at: usize,
    id: u32,
    ids: Identifications,
    /// Sum of the IP header, where it has a checksum.
    ip_rest: Sum,
    /// Sum of the transport header and of the pseudo-header without the length, less the error of the GSO packet's
    /// own sum.
    upper_rest: Sum,
    transport: SegmentTransport,
}

#[derive(Clone, Copy, Debug)]
enum SegmentTransport {
    Tcp { seq: u32, flags: u8, repeats_cwr: bool },
    Udp { has_checksum: bool },
}

/// A segment and its position in its GSO packet.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRange<'a> {
    /// Number of segments in front of it.
    pub index: usize,
    /// Payload bytes in front of it.
    pub offset: usize,
    /// Its payload.
    pub payload: &'a [u8],
    /// Whether it is the first or the last.
    pub place: Place,
}

impl<'a> SegmentTemplate<'a> {
    /// The template of `packet`'s segments; none if it is not a TCP or UDP packet with its whole header.
    #[inline]
    pub fn new(packet: &'a Packet, ids: Identifications) -> Option<SegmentTemplate<'a>> {
        let upper = packet.ip().upper?;
        let (header_len, transport) = transport(packet, upper)?;
        let version = packet.ip().version;
        let link_len = packet.link().len();
        let upper_at = link_len + usize::from(upper.at);
        let front = packet.frame().get(..upper_at + header_len)?;
        let (ip_header, upper_header) = front.get(link_len..)?.split_at_checked(upper.at.into())?;
        // A wrong sum stays wrong, by the same amount, in every segment: a damaged packet never becomes valid.
        let pseudo = pseudo_sum(packet.addresses(), upper.protocol, 0) - packet.checksum_error();
        let upper_rest = match transport {
            SegmentTransport::Tcp { .. } => pseudo + tcp::sum_of_rest(upper_header),
            SegmentTransport::Udp { .. } => pseudo + udp::sum_of_rest(upper_header),
        };
        let ip_rest = Ip::sum_of_rest(version, ip_header);
        let id = packet.ip().id;
        Some(SegmentTemplate { version, front, link_len, upper_at, id, ids, ip_rest, upper_rest, transport })
    }

    /// Length of link, IP and transport header, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.front.len()
    }

    /// Always false: a template has headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers of a segment, with both checksums, to the front of `room`, and returns them.
    ///
    /// # Panics
    /// If `room` is too short.
    #[inline]
    pub fn stamp<'r>(&self, room: &'r mut [u8], share: SegmentRange<'_>) -> &'r [u8] {
        let headers = fitting(room, self.front.len());
        simd::copy(headers, self.front);
        let (front, upper) = headers.split_at_mut(self.upper_at.min(self.front.len()));
        let ip_header = front.get_mut(self.link_len..).unwrap_or_default();
        let SegmentRange { index, offset, payload, place } = share;
        let upper_len = upper.len() + payload.len();
        let id = match self.ids {
            Identifications::Rise => self.id.wrapping_add(index as u32),
            Identifications::Stay => self.id,
        };
        Ip::stamp_segment(self.version, ip_header, self.ip_rest, upper_len, id);
        let rest = self.upper_rest + Sum::word(upper_len as u16) + Sum::of(payload);
        match self.transport {
            SegmentTransport::Tcp { seq, flags, repeats_cwr } => {
                let repeated = if repeats_cwr { tcp::CWR } else { 0 };
                tcp::stamp(upper, seq.wrapping_add(offset as u32), flags & (place.flags() | repeated), rest);
            }
            SegmentTransport::Udp { has_checksum } => udp::stamp(upper, has_checksum, rest, upper_len),
        }
        headers
    }
}

/// The position of a segment in its GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// It is the first.
    pub first: bool,
    /// It is the last.
    pub last: bool,
}

impl Place {
    /// The flags that a segment may have at this position.
    ///
    /// CWR is for the first only (RFC 3168 section 6.1.2, R043), unless the connection uses accurate ECN (RFC 9768
    /// section 3.2.2). PSH and FIN are for the last only (RFC 9293 section 3.9.1.2, R117).
    pub(crate) fn flags(self) -> u8 {
        let without_first = if self.first { 0 } else { tcp::CWR };
        let without_last = if self.last { 0 } else { tcp::PSH | tcp::FIN };
        !(without_first | without_last)
    }
}

fn transport(packet: &Packet, upper: Transport) -> Option<(usize, SegmentTransport)> {
    let bytes = packet.upper_bytes(upper);
    match upper.protocol {
        TCP => {
            let segment = Segment::parse(bytes)?;
            let header = segment.header;
            let repeats_cwr = packet.has_accurate_ecn || header.has_accurate_ecn_bit();
            let transport = SegmentTransport::Tcp { seq: header.seq.get(), flags: header.flags(), repeats_cwr };
            Some((header.header_len(), transport))
        }
        UDP => {
            let (header, _) = UdpHeader::parse(bytes)?;
            Some((udp::HEADER_LEN, SegmentTransport::Udp { has_checksum: header.checksum.get() != 0 }))
        }
        _ => None,
    }
}

/// TCP options that cover the bytes of one segment (RFC 2385 section 3, RFC 5925 section 2.2).
const MD5_SIGNATURE: u8 = 19;
/// See [`MD5_SIGNATURE`].
const AUTHENTICATION: u8 = 29;
/// Longest header of a fragment or segment, in bytes: link, IP with all headers that it repeats, transport.
pub const FRAGMENT_HEADER_LEN_MAX: usize = LINK_LEN_MAX + HEADROOM + tcp::HEADER_LEN_MAX;
