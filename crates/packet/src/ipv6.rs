//! IPv6 header bytes -> an [`Ip`]; a packet's header -> the headers of its datagram and fragments (RFC 8200).
//!
//! Everything that only IPv6 has is in this file: extension headers, and the Fragment header. The choice between
//! the IP versions is left to `version.rs`.

use crate::ip::{
    Address, AddressPair, Ecn, Fragment, FragmentFingerprint, ICMPV6, Ip, LEN_MAX, PADDED_LEN_MAX, ParseError, TCP,
    Transport, UDP, Version,
};
use crate::tcp;
use core::net::IpAddr;
use core::time::Duration;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed IPv6 header (RFC 8200 section 3).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    version_class_flow: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

/// Returns the hop limit of a header.
pub(crate) fn ttl(header: &[u8]) -> u8 {
    Ipv6Header::ref_from_prefix(header).map_or(0, |(header, _)| header.hop_limit)
}

/// Decrements the hop limit (RFC 8200 section 3).
pub(crate) fn decrement_ttl(header: &mut [u8]) {
    if let Ok((header, _)) = Ipv6Header::mut_from_prefix(header) {
        header.hop_limit = header.hop_limit.saturating_sub(1);
    }
}

/// The Fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FragmentHeader {
    next_header: u8,
    reserved: u8,
    offset_more: U16,
    id: U32,
}

/// The first two bytes of every other extension header.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ExtensionHeader {
    next_header: u8,
    len: u8,
}

/// The state of a parse along the extension headers.
struct Walk {
    /// Protocol of the next header, its offset in bytes, and the offset of the byte that names it.
    next_header: u8,
    at: usize,
    named_at: usize,
    /// End of the headers that every fragment repeats, in bytes. `repeated_named_at` is the offset of the byte that
    /// names the next header behind them.
    repeated_len: usize,
    repeated_named_at: usize,
    fragment: Option<(Fragment, usize)>,
}

/// Parses an IPv6 header and the extension headers behind it.
pub(crate) fn read(ip: &mut Ip, bytes: &[u8]) -> Result<(), ParseError> {
    let (header, _) = Ipv6Header::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    let claimed_len = usize::from(header.payload_len.get());
    let length_missing =
        claimed_len == 0 && matches!(header.next_header, TCP | UDP) && bytes.len() > PADDED_LEN_MAX;
    if claimed_len == 0 && header.next_header == HOP_BY_HOP {
        return Err(ParseError::TooLong);
    }
    let len = if length_missing { bytes.len() } else { HEADER_LEN + claimed_len };
    if len > LEN_MAX {
        return Err(ParseError::TooLong);
    }
    let packet = bytes.get(..len).ok_or(ParseError::Truncated)?;
    let mut walk = Walk {
        next_header: header.next_header,
        at: HEADER_LEN,
        named_at: NEXT_HEADER_AT,
        repeated_len: HEADER_LEN,
        repeated_named_at: NEXT_HEADER_AT,
        fragment: None,
    };
    let (upper, headers_end) = match walk.follow(packet) {
        Ok(Some(upper)) => (Some(upper), walk.at + upper_len_min(upper.protocol)),
        Ok(None) => (None, walk.at),
        // A first fragment may lack the rest of its headers. Reassembly handles this case (RFC 7112 section 5).
        Err(ParseError::ChainCut) if walk.fragment.is_some_and(|(fragment, _)| fragment.more) => (None, LEN_MAX),
        Err(unfit) => return Err(unfit),
    };
    let (header_len, payload_at, protocol_at) = match walk.fragment {
        Some((_, at)) => (at, at + FRAGMENT_HEADER_LEN, walk.repeated_named_at),
        None => (walk.repeated_len, walk.repeated_len, walk.repeated_named_at),
    };
    let named_at = if walk.fragment.is_some() { header_len } else { protocol_at };
    *ip = Ip {
        version: Version::V6,
        header_len: header_len as u16,
        payload_at: payload_at as u16,
        protocol_at: protocol_at as u16,
        protocol: packet.get(named_at).copied().ok_or(ParseError::ChainCut)?,
        ecn: Ecn::from_bits((header.version_class_flow.get() >> CLASS_SHIFT) as u8),
        len: len as u32,
        dont_fragment: true,
        id: walk.fragment.map_or(0, |(fragment, _)| fragment.id),
        fragment: walk.fragment.map(|(fragment, _)| fragment),
        upper,
        headers_end: headers_end as u16,
        option_misplaced: false,
        length_missing,
        shape: shape(len, header_len, payload_at, header, walk.fragment),
    };
    Ok(())
}

/// Returns the fingerprint of the end of the repeated headers, the start of the payload, ECN, length and MF.
fn shape(
    len: usize,
    header_len: usize,
    payload_at: usize,
    header: &Ipv6Header,
    fragment: Option<(Fragment, usize)>,
) -> FragmentFingerprint {
    let ecn = Ecn::from_bits((header.version_class_flow.get() >> CLASS_SHIFT) as u8);
    let more = fragment.is_some_and(|(fragment, _)| fragment.more);
    let lens = len as u64 | (header_len as u64) << 16 | (payload_at as u64) << 32;
    FragmentFingerprint::new(lens | u64::from(ecn.bits()) << 48 | u64::from(more) << 50 | SHAPE_V6)
}

impl Walk {
    /// Parses extension headers up to the transport header. `None` for a later fragment, and for a packet without a
    /// transport header (No Next Header).
    ///
    /// The limits for extension headers are our own. RFC 8200 section 4.1 lets headers repeat without limit, and
    /// RFC 8504 section 5.3 lets a host limit them (R097). A Fragment header does not count, so that the fragments
    /// of an accepted packet are accepted too.
    fn follow(&mut self, packet: &[u8]) -> Result<Option<Transport>, ParseError> {
        let (mut count, mut len_max) = (0, HEADER_LEN + CHAIN_LEN_MAX);
        while count <= HEADER_COUNT_MAX && self.at <= len_max {
            match self.next_header {
                HOP_BY_HOP | ROUTING => {
                    let named_at = self.at;
                    self.step(packet, 8, 8)?;
                    if self.fragment.is_none() {
                        (self.repeated_len, self.repeated_named_at) = (self.at, named_at);
                    }
                }
                DESTINATION_OPTIONS => self.step(packet, 8, 8)?,
                AUTHENTICATION => self.step(packet, 4, 8)?,
                FRAGMENT => {
                    self.fragment_header(packet)?;
                    // Removal of the Fragment header would move these Hop-by-Hop options directly behind the IPv6
                    // header, where they would be valid.
                    if self.next_header == HOP_BY_HOP {
                        return Err(ParseError::HopByHopMisplaced);
                    }
                    if self.fragment.is_some_and(|(fragment, _)| fragment.offset != 0) {
                        return Ok(None);
                    }
                    len_max += FRAGMENT_HEADER_LEN;
                    continue;
                }
                NO_NEXT_HEADER => return Ok(None),
                protocol => return Ok(Some(Transport { protocol, at: self.at as u16 })),
            }
            count += 1;
        }
        Err(ParseError::ChainTooLong)
    }

    /// Skips an extension header. Its length field is in units of `unit` bytes, beyond the first `base` bytes.
    fn step(&mut self, packet: &[u8], unit: usize, base: usize) -> Result<(), ParseError> {
        let rest = packet.get(self.at..).ok_or(ParseError::ChainCut)?;
        let (header, _) = ExtensionHeader::ref_from_prefix(rest).map_err(|_| ParseError::ChainCut)?;
        let len = base + usize::from(header.len) * unit;
        if len > rest.len() {
            return Err(ParseError::ChainCut);
        }
        self.next_header = header.next_header;
        self.named_at = self.at;
        self.at += len;
        Ok(())
    }

    fn fragment_header(&mut self, packet: &[u8]) -> Result<(), ParseError> {
        if self.fragment.is_some() {
            return Err(ParseError::NestedFragment);
        }
        let rest = packet.get(self.at..).ok_or(ParseError::ChainCut)?;
        let (header, _) = FragmentHeader::ref_from_prefix(rest).map_err(|_| ParseError::ChainCut)?;
        let word = header.offset_more.get();
        let fragment = Fragment { id: header.id.get(), offset: word & OFFSET_MASK, more: word & MORE != 0 };
        self.fragment = Some((fragment, self.at));
        self.repeated_named_at = self.named_at;
        self.next_header = header.next_header;
        self.named_at = self.at;
        self.at += FRAGMENT_HEADER_LEN;
        Ok(())
    }
}

pub(crate) fn ends(header: &[u8]) -> AddressPair {
    let Some((both, _)) = header.get(SOURCE_AT..).and_then(|rest| rest.split_first_chunk::<32>()) else {
        panic!("a parsed IPv6 packet has its header")
    };
    let (words, _) = both.as_chunks();
    let mut ends = [0; 4];
    for (end, word) in ends.iter_mut().zip(words) {
        *end = u64::from_ne_bytes(*word);
    }
    AddressPair::new(ends)
}

pub(crate) fn addresses(header: &[u8]) -> (Address, Address) {
    match Ipv6Header::ref_from_prefix(header) {
        Ok((header, _)) => (IpAddr::from(header.source).into(), IpAddr::from(header.destination).into()),
        Err(_) => panic!("a parsed IPv6 packet has its header"),
    }
}

/// Writes the header fields of an unfragmented datagram: payload length, ECN, and the protocol number in place of
/// the Fragment header's number.
pub(crate) fn seal(ip: &Ip, header: &mut [u8]) {
    name_next(header, usize::from(ip.protocol_at), ip.protocol);
    let Ok((fixed, _)) = Ipv6Header::mut_from_prefix(header) else { panic!("a parsed IPv6 packet has its header") };
    fixed.payload_len = U16::new((ip.len as usize - HEADER_LEN) as u16);
    let others = fixed.version_class_flow.get() & !(3 << CLASS_SHIFT);
    fixed.version_class_flow = U32::new(others | u32::from(ip.ecn.bits()) << CLASS_SHIFT);
}

/// Converts the header of a packet, at the start of `header`, to the header of a fragment.
///
/// The Fragment header is the last header, directly behind the last header that routers in transit read (RFC 8200
/// section 4.5, R088).
#[inline]
pub(crate) fn stamp(ip: &Ip, header: &mut [u8], payload_len: usize, fragment: Fragment) {
    let header_len = header.len();
    assert!(header_len + payload_len - HEADER_LEN <= LEN_MAX, "a piece is no longer than a length field can say");
    name_next(header, usize::from(ip.protocol_at), FRAGMENT);
    if let Ok((fixed, _)) = Ipv6Header::mut_from_prefix(header) {
        fixed.payload_len = U16::new((header_len + payload_len - HEADER_LEN) as u16);
    }
    if let Ok((_, extension)) = FragmentHeader::mut_from_suffix(header) {
        *extension = FragmentHeader {
            next_header: ip.protocol,
            reserved: 0,
            offset_more: U16::new(fragment.offset & OFFSET_MASK | u16::from(fragment.more)),
            id: U32::new(fragment.id),
        };
    }
}

/// Writes the field that differs between the segments of a GSO packet: the length.
#[inline]
pub(crate) fn stamp_segment(header: &mut [u8], upper_len: usize) {
    let payload_len = header.len() - HEADER_LEN + upper_len;
    if let Ok((fixed, _)) = Ipv6Header::mut_from_prefix(header) {
        fixed.payload_len = U16::new(payload_len as u16);
    }
}

/// Whether two headers with their extension headers are equal, except the length.
pub(crate) fn shares_header(one: &[u8], other: &[u8]) -> bool {
    let same = |from: usize, to: usize| one.get(from..to) == other.get(from..to);
    same(0, PAYLOAD_LEN_AT) && same(NEXT_HEADER_AT, one.len().max(other.len()))
}

/// Whether a parsed packet has an Authentication header before its transport header.
pub(crate) fn is_authenticated(packet: &[u8], upper: Transport) -> bool {
    let (mut at, mut named_at) = (HEADER_LEN, NEXT_HEADER_AT);
    while at < usize::from(upper.at) {
        let Some([_, len, ..]) = packet.get(at..) else { return false };
        if packet.get(named_at) == Some(&AUTHENTICATION) {
            return true;
        }
        (named_at, at) = (at, at + 8 + usize::from(*len) * 8);
    }
    false
}

impl Ipv6Header {
    /// Returns the header of a packet that answers another one.
    pub(crate) fn for_reply(
        protocol: u8,
        source: [u8; 16],
        destination: [u8; 16],
        payload_len: usize,
    ) -> Ipv6Header {
        Ipv6Header {
            version_class_flow: U32::new(6 << 28),
            payload_len: U16::new(payload_len as u16),
            next_header: protocol,
            hop_limit: REPLY_HOP_LIMIT,
            source,
            destination,
        }
    }
}

/// Returns the minimum length of a transport header, in bytes; 0 for an unknown protocol.
fn upper_len_min(protocol: u8) -> usize {
    match protocol {
        TCP => tcp::HEADER_LEN,
        UDP | ICMPV6 => 8,
        _ => 0,
    }
}

fn name_next(header: &mut [u8], at: usize, protocol: u8) {
    match header.get_mut(at) {
        Some(byte) => *byte = protocol,
        None => panic!("the byte that names the payload lies in the header"),
    }
}

/// Minimum MTU of every IPv6 link, in bytes (RFC 8200 section 5, R095).
pub const MTU_MIN: usize = 1_280;
/// Reassembly time-out (RFC 8200 section 4.5, R091).
pub(crate) const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Length of the fixed header, in bytes.
pub(crate) const HEADER_LEN: usize = 40;
/// MSS of a host that announces none, in bytes: 1,280 less both headers (RFC 9293 section 3.7.1).
pub(crate) const MSS_DEFAULT: u16 = 1_220;
/// Length of the Fragment header, in bytes.
pub(crate) const FRAGMENT_HEADER_LEN: usize = 8;
/// Maximum number of extension headers, without the Fragment header (rel:C7).
const HEADER_COUNT_MAX: usize = 8;
/// Maximum length of all extension headers together, in bytes, without the Fragment header (rel:C7).
pub(crate) const CHAIN_LEN_MAX: usize = 256;
/// Offsets of fields in an IPv6 header, in bytes (RFC 8200 section 3).
const PAYLOAD_LEN_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
/// See [`PAYLOAD_LEN_AT`].
const SOURCE_AT: usize = 8;
/// Bit that is set only in fingerprints of IPv6 packets.
const SHAPE_V6: u64 = 1 << 63;
/// Position of the traffic class in the first word, in bits.
const CLASS_SHIFT: u32 = 20;
const OFFSET_MASK: u16 = 0xFFF8;
const MORE: u16 = 1;
/// Next header numbers of IPv6 (IANA).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;
const REPLY_HOP_LIMIT: u8 = 64;
