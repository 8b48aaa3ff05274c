//! Bytes -> Internet checksums (RFC 1071), word by word.
//!
//! The plain form is the reference for the optimised sums of the `simd` crate.

use crate::fields::{FRAGMENT, ICMP, ICMPV6, IPV4_LEN, IPV6_LEN, TCP, UDP, word};
use core::net::IpAddr;

/// The one's complement sum of `bytes`. An odd last byte is padded with zero.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, last) = bytes.as_chunks::<2>();
    let mut sum = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    sum += last.first().map_or(0, |last| u64::from(*last) << 8);
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    sum as u16
}

/// The one's complement sum of several parts. Only the last part may have an odd length.
pub fn sum_of(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(0, |so_far, part| add(so_far, sum(part)))
}

/// The one's complement sum of two words.
pub fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// The checksum of `bytes`: the complement of their sum.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The pseudo-header of RFC 8200, also used for IPv4. In IPv4, RFC 9293's pseudo-header has the same sum, because
/// lengths fit 16 bits.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = octets(source);
    bytes.extend(octets(destination));
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The 4 or 16 octets of an address.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Writes the header checksum of the IPv4 packet at the start of `packet`.
pub fn seal_ip(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let field = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&field.to_be_bytes());
}

/// Writes the transport checksum (TCP, UDP or ICMP) of `packet`. The only supported IPv6 extension header is
/// Fragment.
pub fn seal_transport(packet: &mut [u8]) {
    let (addresses, mut at, mut protocol) = match packet[0] >> 4 {
        4 => (12..20, usize::from(packet[0] & 15) * 4, packet[9]),
        _ => (8..40, IPV6_LEN, packet[6]),
    };
    if packet[0] >> 4 == 6 && protocol == FRAGMENT {
        (protocol, at) = (packet[at], at + 8);
    }
    assert!(at >= IPV4_LEN && at <= packet.len(), "the IP header lies in the packet");
    let field_at = at + field_at(protocol).unwrap_or_else(|| panic!("protocol {protocol} has no checksum here"));
    packet[field_at..field_at + 2].fill(0);
    let upper = &packet[at..];
    let len = upper.len() as u32;
    let pseudo = [&packet[addresses], &len.to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let field = match protocol {
        ICMP => checksum(upper),
        UDP => right_udp(!sum_of(&[&pseudo, upper])),
        _ => !sum_of(&[&pseudo, upper]),
    };
    assert_eq!(word(packet, field_at), 0);
    packet[field_at..field_at + 2].copy_from_slice(&field.to_be_bytes());
}

/// Offset of the checksum in the transport header, in bytes; `None` for protocols without a checksum.
pub(crate) fn field_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// Replaces a computed UDP checksum of 0 by all ones (RFC 768).
pub(crate) fn right_udp(field: u16) -> u16 {
    if field == 0 { 0xFFFF } else { field }
}
