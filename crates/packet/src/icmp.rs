//! A packet that cannot be forwarded -> the ICMP error for its source host (RFC 792, RFC 1191, RFC 4443).
//!
//! Rate limits and the choice of the source address are left to the caller.

use crate::checksum::Sum;
use crate::ip::{Address, ICMP, ICMPV6, TCP, Version, pseudo_sum};
use crate::ipv4::{ERROR_TOS, Ipv4Header};
use crate::ipv6::Ipv6Header;
use crate::packet::{Packet, Pool};
use core::net::IpAddr;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes, Unaligned};

/// The kind of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet exceeds the MTU of the next link (RFC 1191 section 4, RFC 4443 section 3.2; R011, R021, R048).
    TooBig {
        /// MTU of the next link, in bytes.
        mtu: u16,
    },
    /// Reassembly of the datagram timed out (RFC 1122 section 3.3.2, RFC 8200 section 4.5; R017, R091).
    ReassemblyTime,
    /// The field at offset `pointer` is wrong (RFC 8200 section 4.5; R089, R090). IPv6 only.
    BadField {
        /// Offset of the wrong field, in bytes from the IP header.
        pointer: u32,
    },
    /// A first fragment lacks some of its headers (RFC 7112 section 5; R083). IPv6 only.
    HeadersCut,
}

/// The ICMP error "too big" about a TCP packet (RFC 1191 section 4, RFC 4443 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBigReport {
    /// The stated MTU, in bytes. 0 if a router of RFC 792 stated none.
    pub mtu: u16,
    /// Address and port of the quoted packet's sender.
    pub source: (Address, u16),
    /// Address and port of the quoted packet's receiver.
    pub destination: (Address, u16),
    /// The quoted sequence number.
    pub seq: u32,
    /// Length of the quoted packet, in bytes, as its IP header states it.
    pub quoted_len: u16,
}

impl TooBigReport {
    /// Reads the error. `None` if the packet is another one, is damaged, or quotes no start of a TCP packet.
    pub fn read(packet: &Packet) -> Option<TooBigReport> {
        let upper = packet.ip().upper.filter(|_| packet.ip().fragment.is_none())?;
        let message = packet.upper_bytes(upper);
        let (&[kind, code, _, _, high, upper_mid, mtu_high, mtu_low], quote) = message.split_first_chunk()?;
        let is_too_big = match (packet.ip().version, upper.protocol) {
            (Version::V4, ICMP) => (kind, code) == (UNREACHABLE, FRAGMENTATION_NEEDED),
            (Version::V6, ICMPV6) => kind == PACKET_TOO_BIG,
            _ => false,
        };
        if !is_too_big {
            return None;
        }
        let pseudo = match packet.ip().version {
            Version::V4 => Sum::ZERO,
            Version::V6 => pseudo_sum(packet.addresses(), ICMPV6, message.len()),
        };
        if !(pseudo + Sum::of(message)).is_right() {
            return None;
        }
        // The upper half of the field is unused in ICMPv4.
        let is_huge = packet.ip().version == Version::V6 && (high, upper_mid) != (0, 0);
        let mtu = if is_huge { u16::MAX } else { u16::from_be_bytes([mtu_high, mtu_low]) };
        let quoted = Quoted::read(quote, packet.ip().version)?;
        let &[s0, s1, d0, d1, q0, q1, q2, q3, ..] = quoted.upper else { return None };
        Some(TooBigReport {
            mtu,
            source: (quoted.addresses.0, u16::from_be_bytes([s0, s1])),
            destination: (quoted.addresses.1, u16::from_be_bytes([d0, d1])),
            seq: u32::from_be_bytes([q0, q1, q2, q3]),
            quoted_len: quoted.len,
        })
    }
}

/// The start of a TCP packet that an ICMP error quotes.
struct Quoted<'a> {
    addresses: (Address, Address),
    len: u16,
    upper: &'a [u8],
}

impl Quoted<'_> {
    fn read(quote: &[u8], version: Version) -> Option<Quoted<'_>> {
        match version {
            Version::V4 => {
                let (header, _) = quote.split_first_chunk::<IPV4_HEADER_LEN>()?;
                let &[first, _, l0, l1, _, _, f0, f1, _, protocol, _, _, addresses @ ..] = header;
                let is_first = u16::from_be_bytes([f0, f1]) & OFFSET_MASK == 0;
                if first >> 4 != 4 || protocol != TCP || !is_first {
                    return None;
                }
                let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
                let addresses = [[s0, s1, s2, s3], [d0, d1, d2, d3]].map(|it| Address::from(IpAddr::from(it)));
                let upper = quote.get(usize::from(first & 0xF) * 4..)?;
                Some(Quoted { addresses: addresses.into(), len: u16::from_be_bytes([l0, l1]), upper })
            }
            Version::V6 => {
                let (header, upper) = quote.split_first_chunk::<IPV6_HEADER_LEN>()?;
                let (&[first, _, _, _, l0, l1, next, _], addresses) = header.split_first_chunk::<8>()?;
                if first >> 4 != 6 || next != TCP {
                    return None;
                }
                let (source, rest) = addresses.split_first_chunk::<16>()?;
                let destination = rest.first_chunk::<16>()?;
                let addresses = [source, destination].map(|it| Address::from(IpAddr::from(*it)));
                let len = u16::from_be_bytes([l0, l1]).saturating_add(IPV6_HEADER_LEN as u16);
                Some(Quoted { addresses: addresses.into(), len, upper })
            }
        }
    }
}

/// Builds the ICMP error about `packet`, from the address `source` to the source host of `packet`.
///
/// Returns `None` in these cases:
///
/// - No error [may be sent](may_be_answered) about this packet.
/// - The IP version has no error of this kind.
/// - `source` has the other IP version.
/// - The pool has no buffer.
pub fn error(icmp_error: IcmpError, packet: &Packet, source: IpAddr, pool: &mut Pool) -> Option<Packet> {
    if !may_be_answered(icmp_error, packet) {
        return None;
    }
    let (sender, _) = packet.addresses();
    let from = Address::from(source);
    match (source, IpAddr::from(sender)) {
        (IpAddr::V4(source), IpAddr::V4(receiver)) => {
            let quote = quote(packet, QUOTING_LEN_MAX_V4);
            let icmp = header_v4(icmp_error)?;
            let len = ERROR_HEADER_LEN + quote.len();
            let checksum = (Sum::of(icmp.as_bytes()) + Sum::of(quote)).checksum();
            let ip = Ipv4Header::for_reply(ICMP, ERROR_TOS, source.octets(), receiver.octets(), len);
            packet.reply(&[ip.as_bytes(), icmp.with(checksum).as_bytes(), quote], pool)
        }
        (IpAddr::V6(source), IpAddr::V6(receiver)) => {
            let quote = quote(packet, QUOTING_LEN_MAX_V6);
            let icmp = header_v6(icmp_error);
            let len = ERROR_HEADER_LEN + quote.len();
            let pseudo = pseudo_sum((from, sender), ICMPV6, len);
            let checksum = (pseudo + Sum::of(icmp.as_bytes()) + Sum::of(quote)).checksum();
            let ip = Ipv6Header::for_reply(ICMPV6, source.octets(), receiver.octets(), len);
            packet.reply(&[ip.as_bytes(), icmp.with(checksum).as_bytes(), quote], pool)
        }
        _ => None,
    }
}

/// The header of an ICMP error: eight bytes, equal in both IP versions.
#[derive(Clone, Copy, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ErrorHeader {
    kind: u8,
    code: u8,
    checksum: U16,
    value: U32,
}

impl ErrorHeader {
    fn new(kind: u8, code: u8, value: u32) -> ErrorHeader {
        ErrorHeader { kind, code, checksum: U16::new(0), value: U32::new(value) }
    }

    fn with(mut self, checksum: u16) -> ErrorHeader {
        self.checksum = U16::new(checksum);
        self
    }
}

fn header_v4(icmp_error: IcmpError) -> Option<ErrorHeader> {
    match icmp_error {
        IcmpError::TooBig { mtu } => Some(ErrorHeader::new(UNREACHABLE, FRAGMENTATION_NEEDED, u32::from(mtu))),
        IcmpError::ReassemblyTime => Some(ErrorHeader::new(TIME_EXCEEDED, REASSEMBLY, 0)),
        IcmpError::BadField { .. } | IcmpError::HeadersCut => None,
    }
}

fn header_v6(icmp_error: IcmpError) -> ErrorHeader {
    match icmp_error {
        IcmpError::TooBig { mtu } => ErrorHeader::new(PACKET_TOO_BIG, 0, u32::from(mtu)),
        IcmpError::ReassemblyTime => ErrorHeader::new(TIME_EXCEEDED_V6, REASSEMBLY, 0),
        IcmpError::BadField { pointer } => ErrorHeader::new(PARAMETER_PROBLEM, ERRONEOUS_FIELD, pointer),
        IcmpError::HeadersCut => ErrorHeader::new(PARAMETER_PROBLEM, HEADER_CHAIN_CUT, 0),
    }
}

/// Whether an error about this packet may be sent (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443
/// section 2.4(e); R020, R047).
pub fn may_be_answered(icmp_error: IcmpError, packet: &Packet) -> bool {
    let (sender, receiver) = packet.addresses();
    let ip = packet.ip();
    // "Too big" is allowed for multicast (RFC 4443 section 2.4(e.3)), so that path MTU discovery works for it.
    let exempt = ip.version == Version::V6 && matches!(icmp_error, IcmpError::TooBig { .. });
    // Only IPv4 forbids errors about later fragments.
    let initial = ip.version == Version::V6 || ip.starts();
    let for_one = receiver.is_one_host() && !packet.link_type().is_for_many(packet.link());
    sender.is_one_host() && (exempt || for_one) && initial && !packet.is_for_ingress_side && !is_error(packet)
}

/// Whether this packet is, or may be, an ICMP error. An ICMPv6 redirect is treated as an error.
fn is_error(packet: &Packet) -> bool {
    let Some(upper) = packet.ip().upper else { return false };
    let kind = packet.upper_bytes(upper).first();
    match (packet.ip().version, upper.protocol) {
        (Version::V4, ICMP) => kind.is_none_or(|kind| !INFORMATIONAL.contains(kind)),
        (Version::V6, ICMPV6) => kind.is_none_or(|kind| *kind < FIRST_INFORMATIONAL_V6 || *kind == REDIRECT_V6),
        _ => false,
    }
}

/// Returns the first bytes of the received packet, as many as an error may quote (RFC 1812 section 4.3.2.3, RFC
/// 4443 section 2.4(c); R035, R046).
fn quote(packet: &Packet, len_max: usize) -> &[u8] {
    let bytes = packet.bytes();
    bytes.get(..bytes.len().min(len_max)).unwrap_or_default()
}

const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
/// The fragment offset in an IPv4 header's flags and offset (RFC 791 section 3.1).
const OFFSET_MASK: u16 = 0x1FFF;
/// Length of the error's header, in bytes: type, code, checksum, and four bytes that depend on the type.
const ERROR_HEADER_LEN: usize = 8;
/// Maximum length of the quoted packet, in bytes. An ICMPv4 error has at most 576 bytes (RFC 1812 section 4.3.2.3),
/// an ICMPv6 error at most 1,280 (RFC 4443 section 2.4(c)).
const QUOTING_LEN_MAX_V4: usize = 576 - IPV4_HEADER_LEN - ERROR_HEADER_LEN;
/// See [`QUOTING_LEN_MAX_V4`].
const QUOTING_LEN_MAX_V6: usize = 1_280 - 40 - ERROR_HEADER_LEN;
/// Types and codes of ICMPv4 errors (RFC 792, RFC 1191).
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const REASSEMBLY: u8 = 1;
/// ICMPv4 types that are not errors: echo, router discovery, timestamp, information, address mask, extended echo.
const INFORMATIONAL: [u8; 12] = [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43];
/// Types and codes of ICMPv6 errors (RFC 4443 section 2.1, RFC 7112 section 5).
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ERRONEOUS_FIELD: u8 = 0;
const HEADER_CHAIN_CUT: u8 = 3;
const FIRST_INFORMATIONAL_V6: u8 = 128;
const REDIRECT_V6: u8 = 137;
