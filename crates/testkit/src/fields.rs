//! Numbers of header fields (IANA and the RFCs), and functions that read words from bytes.
//!
//! The crate does not use the numbers of the tested code, so that tests find a wrong number there.

/// The big-endian 16-bit word at offset `at`.
pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit word at offset `at`.
pub fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

/// Both IP versions.
pub const VERSIONS: [u8; 2] = [4, 6];
/// Length of an IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of an IPv6 header, in bytes.
pub const IPV6_LEN: usize = 40;
/// Length of a Fragment header, in bytes.
pub const FRAGMENT_LEN: usize = 8;

/// IPv4's reserved bit, in the header word of flags and fragment offset.
pub const RESERVED: u16 = 0x8000;
/// IPv4's flag Don't Fragment.
pub const DF: u16 = 0x4000;
/// IPv4's flag More Fragments.
pub const MF: u16 = 0x2000;

/// Protocol number of IPv6's Hop-by-Hop Options header.
pub const HOP_BY_HOP: u8 = 0;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of IPv6's Routing header.
pub const ROUTING: u8 = 43;
/// Protocol number of IPv6's Fragment header.
pub const FRAGMENT: u8 = 44;
/// Protocol number of the Authentication header.
pub const AUTHENTICATION: u8 = 51;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Protocol number of IPv6's Destination Options header.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Protocol number for experiments (RFC 3692), whose header format is unknown.
pub const EXPERIMENT: u8 = 253;

/// The ECN codepoint Congestion Experienced (RFC 3168).
pub const CE: u8 = 3;

/// TCP flag: the sender has no more data.
pub const FIN: u8 = 0x01;
/// TCP flag: opens a connection.
pub const SYN: u8 = 0x02;
/// TCP flag: resets a connection.
pub const RST: u8 = 0x04;
/// TCP flag: the receiver should deliver the data to its application at once.
pub const PSH: u8 = 0x08;
/// TCP flag: the acknowledgement number is valid.
pub const ACK: u8 = 0x10;
/// TCP flag: the urgent pointer is valid.
pub const URG: u8 = 0x20;
/// TCP flag: the receiver saw congestion (RFC 3168).
pub const ECE: u8 = 0x40;
/// TCP flag: the sender reduced its congestion window (RFC 3168).
pub const CWR: u8 = 0x80;
