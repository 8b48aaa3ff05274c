//! Host number -> addresses, and back.
//!
//! Each host is in a network of its own, like hosts across the Internet. An IPv6 header has no checksum. An IPv6
//! address therefore contains the host number and a hash of the number. An address with flipped bits belongs to no
//! host.

use crate::rng::mix;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 address of a host.
pub fn v4(host: u16) -> [u8; 4] {
    let [high, low] = host.to_be_bytes();
    [10, high, low, 1]
}

/// The IPv6 address of a host.
pub fn v6(host: u16) -> [u8; 16] {
    let site = PREFIX_V6 | mix(u64::from(host)) >> 8 & 0xFFFF_FFFF_FFFF;
    let below = mix(!u64::from(host)) & !0xFFFF | u64::from(host);
    (u128::from(site) << 64 | u128::from(below)).to_be_bytes()
}

/// The number of the host with this IPv4 address; `None` if no host has the address.
pub fn host_v4(address: &[u8]) -> Option<u16> {
    match address {
        [10, high, low, 1] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// The number of the host with this IPv6 address; `None` if no host has the address.
pub fn host_v6(address: &[u8]) -> Option<u16> {
    let host = u16::from_be_bytes(*address.last_chunk()?);
    (v6(host) == address).then_some(host)
}

/// The IPv4 and IPv6 source addresses of ICMP errors from a router or gateway.
pub fn answering(node: u16) -> [IpAddr; 2] {
    let [high, low] = node.to_be_bytes();
    [
        IpAddr::V4(Ipv4Addr::new(172, 16 | high & 15, low, 1)),
        IpAddr::V6(Ipv6Addr::new(0xFC00, 0, 0, 0, 0, 0, 0, node)),
    ]
}

/// The prefix fd00::/16, whose addresses are not routed globally (RFC 4193).
const PREFIX_V6: u64 = 0xFD00 << 48;
