//! Bytes -> their one's complement sum (RFC 1071), one word after the other.

use crate::fields::{FRAGMENT, ICMP, ICMPV6, IPV4_LEN, IPV6_LEN, TCP, UDP, word};
use core::net::IpAddr;

/// The sum of some bytes; a zero follows an odd length.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, last) = bytes.as_chunks::<2>();
    let mut sum = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    sum += last.first().map_or(0, |last| u64::from(*last) << 8);
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    sum as u16
}

/// The sum of parts, of which only the last may have an odd length.
pub fn sum_of(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(0, |so_far, part| add(so_far, sum(part)))
}

/// The sum of two words.
pub fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// The checksum of some bytes: the complement of their sum.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The pseudo-header of RFC 9293 and RFC 8200. That of version 4 has the same sum as long as lengths have 16 bits.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = octets(source);
    bytes.extend(octets(destination));
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The octets of an address.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Writes the checksum of the IPv4 header at the start of these bytes.
pub fn seal_ip(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let field = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&field.to_be_bytes());
}

/// Writes the transport checksum (TCP, UDP or ICMP) of a packet. Of IPv6 extension headers, only Fragment is
/// supported.
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

/// Offset of a transport's checksum in its header.
pub(crate) fn field_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// A UDP checksum of 0 is written as all ones (RFC 768).
pub(crate) fn right_udp(field: u16) -> u16 {
    if field == 0 { 0xFFFF } else { field }
}
