//! Numbers of header fields (IANA and the RFCs), and words read from bytes.

/// The 16-bit word at this offset.
pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit word at this offset.
pub fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

/// Both versions of IP.
pub const VERSIONS: [u8; 2] = [4, 6];
/// Length of an IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of an IPv6 header, in bytes.
pub const IPV6_LEN: usize = 40;
/// Length of a Fragment header, in bytes.
pub const FRAGMENT_LEN: usize = 8;

/// IPv4's reserved bit, in the word of flags and offset.
pub const RESERVED: u16 = 0x8000;
/// Don't Fragment.
pub const DF: u16 = 0x4000;
/// More Fragments.
pub const MF: u16 = 0x2000;

/// Protocol numbers.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// IPv6's Routing header.
pub const ROUTING: u8 = 43;
/// IPv6's Fragment header.
pub const FRAGMENT: u8 = 44;
/// The Authentication header.
pub const AUTHENTICATION: u8 = 51;
/// ICMPv6.
pub const ICMPV6: u8 = 58;
/// IPv6's Destination Options header.
pub const DESTINATION_OPTIONS: u8 = 60;
/// For experiments (RFC 3692): its header is unknown.
pub const EXPERIMENT: u8 = 253;

/// The ECN codepoint Congestion Experienced (RFC 3168).
pub const CE: u8 = 3;

/// TCP's flags.
pub const FIN: u8 = 0x01;
/// Opens a connection.
pub const SYN: u8 = 0x02;
/// Resets it.
pub const RST: u8 = 0x04;
/// Push.
pub const PSH: u8 = 0x08;
/// The acknowledgement number is valid.
pub const ACK: u8 = 0x10;
/// The urgent pointer is valid.
pub const URG: u8 = 0x20;
/// Congestion was experienced (RFC 3168).
pub const ECE: u8 = 0x40;
/// The congestion window was reduced (RFC 3168).
pub const CWR: u8 = 0x80;
