//! One packet that stands for many in, their headers out.
//!
//! A train has one header and the payload of all its segments, as virtio-net and GSO carry it. Its segments differ in
//! length, sequence number, flags, identification and checksums, and in nothing else.

use crate::ip::{Ip, TCP, UDP, Upper, pseudo_sum};
use crate::link::LINK_LEN_MAX;
use crate::packet::Packet;
use crate::sum::Sum;
use crate::tcp::{self, Segment, TcpOption};
use crate::udp::{self, UdpHeader};

/// How a packet stands for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Payload of each segment but the last, in bytes.
    pub segment_len: u16,
    /// How IPv4 identifications go on from the first.
    pub ids: Identifications,
}

/// IPv4 identifications along a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifications {
    /// By one from segment to segment.
    #[default]
    Rise,
    /// The same in all, as some senders do where DF makes them meaningless (RFC 6864 section 4.1).
    Stay,
}

/// May this packet be divided into segments that repeat its header? Not what is no whole TCP packet, nor one that opens or
/// resets a connection or is urgent (R117, R118), nor one that is signed as a whole (RFC 2385, RFC 4302, RFC 5925) or
/// whose options cannot be read.
pub fn may_be_segmented(packet: &Packet) -> bool {
    let ip = packet.ip();
    let Some(upper) = ip.upper.filter(|upper| upper.protocol == TCP && ip.fragment.is_none()) else { return false };
    let Some(segment) = Segment::parse(packet.upper_bytes(upper)) else { return false };
    let signs =
        |option| matches!(option, TcpOption::Other(MD5_SIGNATURE | AUTHENTICATION, _) | TcpOption::Malformed(_));
    !ip.is_authenticated(packet.bytes())
        && segment.header.flags() & (tcp::SYN | tcp::RST | tcp::URG) == 0
        && !segment.options().any(signs)
}

/// The header of a train's segments: built once, patched for each.
#[derive(Debug)]
pub struct SegmentTemplate {
    bytes: [u8; TEMPLATE_LEN],
    link_len: usize,
    /// Where the transport header starts, and where it ends.
    upper_at: usize,
    len: usize,
    ip: Ip,
    ids: Identifications,
    /// The pseudo-header's sum without the length, less what the train's own sum is wrong by.
    pseudo: Sum,
    transport: Transport,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp { seq: u32, flags: u8 },
    Udp { has_checksum: bool },
}

impl SegmentTemplate {
    /// The template of `packet`'s segments; none where it is neither a TCP nor a UDP packet with its whole header.
    pub fn new(packet: &Packet, ids: Identifications) -> Option<SegmentTemplate> {
        let upper = packet.ip().upper?;
        let (header_len, transport) = transport(packet, upper)?;
        let link_len = packet.link().len();
        let (upper_at, len) = (link_len + usize::from(upper.at), link_len + usize::from(upper.at) + header_len);
        let mut template = SegmentTemplate {
            bytes: [0; TEMPLATE_LEN],
            link_len,
            upper_at,
            len,
            ip: *packet.ip(),
            ids,
            // A wrong sum stays wrong, by as much, in every segment: nothing that was damaged becomes credible.
            pseudo: pseudo_sum(packet.addresses(), upper.protocol, 0) - packet.checksum_error(),
            transport,
        };
        template.bytes.get_mut(..len)?.copy_from_slice(packet.frame().get(..len)?);
        Some(template)
    }

    /// Length of link, IP and transport header, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a template has headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The headers of the segment that carries `payload` from `offset` on in the train.
    pub fn stamp(&mut self, index: usize, offset: usize, payload: &[u8], place: Place) -> &[u8] {
        let upper_len = self.len - self.upper_at + payload.len();
        let id = match self.ids {
            Identifications::Rise => self.ip.id.wrapping_add(index as u32),
            Identifications::Stay => self.ip.id,
        };
        let pseudo = self.pseudo + Sum::word(upper_len as u16);
        let ip_len = self.upper_at - self.link_len;
        let headers = self.bytes.get_mut(self.link_len..self.len).unwrap_or_default();
        let (ip, upper) = headers.split_at_mut(ip_len.min(headers.len()));
        self.ip.stamp_segment(ip, upper_len, id);
        match self.transport {
            Transport::Tcp { seq, flags } => {
                tcp::stamp(
                    upper,
                    seq.wrapping_add(offset as u32),
                    flags & place.flags(),
                    pseudo + Sum::of(payload),
                );
            }
            Transport::Udp { has_checksum } => {
                udp::stamp(upper, has_checksum, pseudo + Sum::of(payload), upper_len)
            }
        }
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Where a segment stands in its train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// It is the first.
    pub first: bool,
    /// It is the last.
    pub last: bool,
}

impl Place {
    /// The flags that a segment here may have: CWR only the first (RFC 3168 section 6.1.2, R043), PSH and FIN only the
    /// last (RFC 9293 section 3.9.1.2, R117).
    fn flags(self) -> u8 {
        let without_first = if self.first { 0 } else { tcp::CWR };
        let without_last = if self.last { 0 } else { tcp::PSH | tcp::FIN };
        !(without_first | without_last)
    }
}

fn transport(packet: &Packet, upper: Upper) -> Option<(usize, Transport)> {
    let bytes = packet.upper_bytes(upper);
    match upper.protocol {
        TCP => {
            let segment = Segment::parse(bytes)?;
            let transport = Transport::Tcp { seq: segment.header.seq.get(), flags: segment.header.flags() };
            Some((segment.header.header_len(), transport))
        }
        UDP => {
            let (header, _) = UdpHeader::parse(bytes)?;
            Some((udp::HEADER_LEN, Transport::Udp { has_checksum: header.checksum.get() != 0 }))
        }
        _ => None,
    }
}

/// TCP options that cover the bytes of one segment (RFC 2385 section 3, RFC 5925 section 2.2).
const MD5_SIGNATURE: u8 = 19;
/// See [`MD5_SIGNATURE`].
const AUTHENTICATION: u8 = 29;
/// Longest link, IP and transport header that a template takes, in bytes.
const TEMPLATE_LEN: usize = LINK_LEN_MAX + crate::buffer::HEADROOM + tcp::HEADER_LEN_MAX;
