//! Header fields -> wire packets.
//!
//! Test packets are written by hand here, independently of the engine's own writers.

use packet::{Sum, Version};

/// IP header fields other than lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    pub version: Version,
    /// Number from which the source address is computed. `destination` is such a number for the destination
    /// address.
    pub source: u32,
    pub destination: u8,
    pub class: u8,
    pub hops: u8,
    pub flow: u32,
    /// Identification; in IPv4 only.
    pub id: u16,
    pub flags_offset: u16,
}

/// Appends a packet. In IPv4, `front` has the options, and `first` is the protocol. In IPv6, `front` has all
/// extension headers, and `first` is the first next-header value.
pub(super) fn put_ip(to: &mut Vec<u8>, ip: &Ip, front: &[u8], first: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let at = to.len();
    match ip.version {
        Version::V4 => {
            to.extend([0x40 | (5 + front.len() / 4) as u8, ip.class, 0, 0]);
            to.extend(ip.id.to_be_bytes());
            to.extend(ip.flags_offset.to_be_bytes());
            to.extend([ip.hops, first, 0, 0]);
            to.extend(v4_source(ip.source));
            to.extend(v4_destination(ip.destination));
            to.extend(front);
            payload(to);
            let len = (to.len() - at) as u16;
            to[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
            let sum = Sum::of(&to[at..at + V4_LEN + front.len()]).checksum();
            to[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Version::V6 => {
            let word = 6 << 28 | u32::from(ip.class) << 20 | ip.flow & 0xF_FFFF;
            to.extend(word.to_be_bytes());
            to.extend([0, 0, first, ip.hops]);
            to.extend(v6_source(ip.source));
            to.extend(v6_destination(ip.destination));
            to.extend(front);
            payload(to);
            let len = (to.len() - at - V6_LEN) as u16;
            to[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// Returns the sum of the pseudo-header for an upper-layer packet of `len` bytes.
pub(super) fn pseudo(ip: &Ip, protocol: u8, len: usize) -> Sum {
    let mut bytes = Vec::with_capacity(40);
    match ip.version {
        Version::V4 => {
            bytes.extend(v4_source(ip.source));
            bytes.extend(v4_destination(ip.destination));
        }
        Version::V6 => {
            bytes.extend(v6_source(ip.source));
            bytes.extend(v6_destination(ip.destination));
        }
    }
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    Sum::of(&bytes)
}

pub(super) fn v4_source(number: u32) -> [u8; 4] {
    let [_, a, b, c] = number.to_be_bytes();
    [10, a, b, c]
}

pub(super) fn v4_destination(number: u8) -> [u8; 4] {
    [192, 0, 2, number]
}

/// Returns the IPv6 address of a source. Every source is in a network of its own.
pub(super) fn v6_source(number: u32) -> [u8; 16] {
    let [a, b, c, d] = number.to_be_bytes();
    [0xfd, 0, 0, 10, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 1]
}

pub(super) fn v6_destination(number: u8) -> [u8; 16] {
    [0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number]
}

/// Appends `len` bytes from offset `at` of the stream that a seed determines.
pub(super) fn put_content(to: &mut Vec<u8>, seed: u32, at: usize, len: usize) {
    let mut at = at as u64;
    let end = at + len as u64;
    while at < end {
        let word = (u64::from(seed) << 32 | at >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let word = (word ^ word >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes();
        let from = (at & 7) as usize;
        let count = (8 - from).min((end - at) as usize);
        to.extend(&word[from..from + count]);
        at += count as u64;
    }
}

/// Length of an IPv4 header without options, in bytes.
pub(super) const V4_LEN: usize = 20;
pub(super) const V6_LEN: usize = 40;

/// Fields of a TCP or UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransportFacts {
    pub is_tcp: bool,
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
}

/// Options of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Options {
    None,
    /// Timestamps (RFC 7323), padded as Linux does: value and echo reply.
    Stamps(u32, u32),
    /// Timestamps and one SACK block.
    Sack(u32),
    /// An option of a kind that is not assigned.
    Unknown(u8),
}

/// Value of a transport checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Right,
    /// Only the pseudo-header's sum; an offload must complete the checksum.
    Half,
    Wrong,
    /// UDP: 0, which means no checksum.
    Zero,
}

impl TransportFacts {
    pub fn protocol(&self) -> u8 {
        if self.is_tcp { 6 } else { 17 }
    }

    pub fn header_len(&self) -> usize {
        if self.is_tcp { 20 + self.options.put().len() } else { 8 }
    }

    /// Returns the offset of the checksum in the header, in bytes.
    pub fn field_at(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }
}

impl Options {
    fn put(self) -> Vec<u8> {
        let stamps =
            |value: u32, echo: u32| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
        match self {
            Options::None => Vec::new(),
            Options::Stamps(value, echo) => stamps(value, echo),
            Options::Sack(edge) => {
                let block = [&[1, 1, 5, 10][..], &edge.to_be_bytes(), &edge.wrapping_add(1_000).to_be_bytes()];
                [stamps(edge, 1), block.concat()].concat()
            }
            Options::Unknown(byte) => vec![253, 4, byte, byte],
        }
    }
}

/// Appends a TCP segment or UDP datagram with `len` bytes of content.
pub(super) fn put_upper(
    to: &mut Vec<u8>,
    (ip, front, first): (&Ip, &[u8], u8),
    upper: &TransportFacts,
    filled: Filled,
    content: impl FnOnce(&mut Vec<u8>),
) {
    let mut bytes = Vec::with_capacity(128);
    for port in upper.ports {
        bytes.extend(port.to_be_bytes());
    }
    if upper.is_tcp {
        let options = upper.options.put();
        bytes.extend(upper.seq.to_be_bytes());
        bytes.extend(upper.ack.to_be_bytes());
        bytes.extend([(((20 + options.len()) / 4) << 4) as u8, upper.flags]);
        bytes.extend(upper.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(upper.urgent.to_be_bytes());
        bytes.extend(options);
    } else {
        bytes.extend([0; 4]);
    }
    content(&mut bytes);
    let len = bytes.len();
    if !upper.is_tcp {
        bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    }
    let pseudo = pseudo(ip, upper.protocol(), len);
    let sum = match filled {
        Filled::Half => pseudo.fold(),
        Filled::Zero => 0,
        Filled::Right | Filled::Wrong => match (pseudo + Sum::of(&bytes)).checksum() {
            0 if !upper.is_tcp => 0xFFFF,
            sum => sum,
        },
    };
    let sum = if filled == Filled::Wrong { sum ^ 0x0101 } else { sum };
    let at = upper.field_at();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    put_ip(to, ip, front, first, |to| to.extend(bytes));
}

/// Forwards a packet by one hop: decrements the TTL and updates the header checksum. A wrong checksum stays wrong.
pub(super) fn one_hop_on(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        let header_len = usize::from(packet[0] & 15) * 4;
        let is_right = Sum::of(&packet[..header_len]).is_right();
        packet[8] = packet[8].wrapping_sub(1);
        if is_right {
            packet[10..12].fill(0);
            let sum = Sum::of(&packet[..header_len]).checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    } else {
        packet[7] = packet[7].wrapping_sub(1);
    }
}

/// Sets the IP ID of an IPv4 packet, and updates the header checksum.
pub(super) fn set_id(packet: &mut [u8], id: u16) {
    if packet[0] >> 4 == 4 {
        let header_len = usize::from(packet[0] & 15) * 4;
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[10..12].fill(0);
        let sum = Sum::of(&packet[..header_len]).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;
pub(super) const URG: u8 = 32;
pub(super) const ECE: u8 = 64;
pub(super) const CWR: u8 = 128;
