//! A GSO packet -> the headers of its segments.
//!
//! A GSO packet has one header and the payload of all segments, as in virtio-net and in the Linux kernel. The
//! segments differ only in length, sequence number, flags, identification and checksums. Copying of the payload is
//! left to the caller.

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
/// - packets that are not unfragmented TCP;
/// - packets with SYN, RST or URG (R117, R118);
/// - packets with a signature over the complete packet (RFC 2385, RFC 4302, RFC 5925);
/// - packets whose TCP options cannot be parsed.
pub fn may_be_segmented(packet: &Packet) -> bool {
    is_divisible(packet, tcp::SYN | tcp::RST | tcp::URG)
}

/// Whether later packets of a connection may be divided into segments, judged by the connection's SYN-ACK `packet`.
/// False if the SYN-ACK has a signature.
pub fn may_be_segmented_hence(packet: &Packet) -> bool {
    is_divisible(packet, tcp::RST | tcp::URG)
}

/// Whether this is an unfragmented TCP packet without signature, without the flags `without`, and with valid
/// options.
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

/// Whether a TCP option of this kind is a signature over its segment.
#[inline]
pub(crate) fn is_signature(kind: u8) -> bool {
    matches!(kind, MD5_SIGNATURE | AUTHENTICATION)
}

/// The header template of a GSO packet's segments. Common fields are computed once. Fields that differ are written
/// for each segment.
#[derive(Debug)]
pub struct SegmentTemplate<'a> {
    version: Version,
    /// Link, IP and transport header of the GSO packet.
    front: &'a [u8],
    link_len: usize,
    /// Offset of the transport header in `front`, in bytes.
    upper_at: usize,
    id: u32,
    ids: Identifications,
    /// Sum of the constant fields of the IP header; 0 in IPv6.
    ip_rest: Sum,
    /// Sum of the pseudo-header without its length, and of the constant fields of the transport header. The
    /// checksum error of the GSO packet is subtracted.
    upper_rest: Sum,
    transport: SegmentTransport,
}

#[derive(Clone, Copy, Debug)]
enum SegmentTransport {
    Tcp { seq: u32, flags: u8, repeats_cwr: bool },
    Udp { has_checksum: bool },
}

/// A segment, and its position in its GSO packet.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRange<'a> {
    /// Number of earlier segments of the GSO packet.
    pub index: usize,
    /// Payload length of all earlier segments, in bytes.
    pub offset: usize,
    /// Payload of the segment.
    pub payload: &'a [u8],
    /// Whether the segment is the first or the last.
    pub place: Place,
}

impl<'a> SegmentTemplate<'a> {
    /// Creates the template for the segments of `packet`. `None` if it is no TCP or UDP packet with a complete
    /// header.
    #[inline]
    pub fn new(packet: &'a Packet, ids: Identifications) -> Option<SegmentTemplate<'a>> {
        let upper = packet.ip().upper?;
        let (header_len, transport) = transport(packet, upper)?;
        let version = packet.ip().version;
        let link_len = packet.link().len();
        let upper_at = link_len + usize::from(upper.at);
        let front = packet.frame().get(..upper_at + header_len)?;
        let (ip_header, upper_header) = front.get(link_len..)?.split_at_checked(upper.at.into())?;
        // The checksum of every segment gets the error of the GSO packet's checksum, so a damaged packet never
        // becomes valid.
        let pseudo = pseudo_sum(packet.addresses(), upper.protocol, 0) - packet.checksum_error();
        let upper_rest = match transport {
            SegmentTransport::Tcp { .. } => pseudo + tcp::sum_of_rest(upper_header),
            SegmentTransport::Udp { .. } => pseudo + udp::sum_of_rest(upper_header),
        };
        let ip_rest = Ip::sum_of_rest(version, ip_header);
        let id = packet.ip().id;
        Some(SegmentTemplate { version, front, link_len, upper_at, id, ids, ip_rest, upper_rest, transport })
    }

    /// Returns the length of link, IP and transport header, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.front.len()
    }

    /// Always false: a template has headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers of a segment, including both checksums, to the start of `room`. Returns the headers.
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
    /// Whether the segment is the first.
    pub first: bool,
    /// Whether the segment is the last.
    pub last: bool,
}

impl Place {
    /// Returns the flags that a segment may have at this position.
    ///
    /// CWR is only set in the first segment (RFC 3168 section 6.1.2, R043), unless the connection uses accurate ECN
    /// (RFC 9768 section 3.2.2). PSH and FIN are only set in the last segment (RFC 9293 section 3.9.1.2, R117).
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

/// Kind of the MD5 signature option (RFC 2385 section 3).
const MD5_SIGNATURE: u8 = 19;
/// Kind of the authentication option, TCP-AO (RFC 5925 section 2.2).
const AUTHENTICATION: u8 = 29;
/// Maximum header length of a fragment or segment, in bytes: link, repeated IP headers, transport.
pub const FRAGMENT_HEADER_LEN_MAX: usize = LINK_LEN_MAX + HEADROOM + tcp::HEADER_LEN_MAX;
