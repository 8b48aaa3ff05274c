//! Header fields -> bytes of attack packets. Transmitted packets -> their payload, and whether the checksum is
//! correct.
//!
//! Attacks need packets that no correct host sends.

use crate::pattern::Pattern;
use crate::wire::{self, Head, TCP, TCP_LEN, UDP, UDP_LEN, V4_LEN, V6_LEN, WireFacts, seal_v4};
use packet::Sum;

/// The fields of a TCP header.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: &'a [u8],
}

impl Tcp<'_> {
    /// A segment whose only flag is ACK.
    pub fn of(ports: [u16; 2], seq: u32) -> Tcp<'static> {
        Tcp { ports, seq, ack: 77, flags: ACK, window: 1_000, options: &[] }
    }
}

/// The IP header of a datagram between two hosts.
pub fn head(is_v6: bool, from: u16, to: u16, protocol: u8, id: u32) -> Head {
    Head { is_v6, from, to, protocol, dont_fragment: false, id, ecn: 0, fragment: None }
}

/// A packet with this header and payload.
pub fn packet(head: &Head, payload: &[u8]) -> Vec<u8> {
    let at = head.header_len();
    let mut frame = vec![0; at + payload.len()];
    head.write(&mut frame);
    frame[at..].copy_from_slice(payload);
    frame
}

/// A fragment whose payload starts at `offset` bytes of the datagram. `more` is the MF flag.
pub fn fragment(head: &Head, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    packet(&Head { fragment: Some((offset, more)), ..*head }, payload)
}

/// The fragments of a datagram, with `room` payload bytes each. The last fragment may be shorter.
pub fn fragments(head: &Head, upper: &[u8], room: usize) -> Vec<Vec<u8>> {
    let parts = upper.chunks(room).enumerate();
    parts.map(|(number, part)| fragment(head, number * room, (number + 1) * room < upper.len(), part)).collect()
}

/// A UDP header with a correct checksum, and payload.
pub fn udp(head: &Head, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut upper = vec![0; UDP_LEN + payload.len()];
    upper[UDP_LEN..].copy_from_slice(payload);
    wire::write_udp(head, port, &mut upper);
    upper
}

/// A TCP header with a correct checksum, and payload.
pub fn tcp(head: &Head, tcp: &Tcp<'_>, payload: &[u8]) -> Vec<u8> {
    let header_len = TCP_LEN + tcp.options.len();
    let mut upper = vec![0; header_len];
    upper[..2].copy_from_slice(&tcp.ports[0].to_be_bytes());
    upper[2..4].copy_from_slice(&tcp.ports[1].to_be_bytes());
    upper[4..8].copy_from_slice(&tcp.seq.to_be_bytes());
    upper[8..12].copy_from_slice(&tcp.ack.to_be_bytes());
    upper[12..14].copy_from_slice(&[(header_len / 4 * 16) as u8, tcp.flags]);
    upper[14..16].copy_from_slice(&tcp.window.to_be_bytes());
    upper[TCP_LEN..].copy_from_slice(tcp.options);
    upper.extend(payload);
    seal(head, &mut upper, 16);
    upper
}

/// An unfragmented TCP packet.
pub fn segment(head: &Head, said: &Tcp<'_>, payload: &[u8]) -> Vec<u8> {
    packet(head, &tcp(head, said, payload))
}

/// Computes the transport checksum of `upper`, and writes it at offset `at`.
pub fn seal(head: &Head, upper: &mut [u8], at: usize) {
    upper[at..at + 2].fill(0);
    let sum = (head.pseudo_sum(upper.len()) + Sum::of(upper)).checksum();
    upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Replaces the source address of an IPv4 packet without an update of the transport checksum.
pub fn from_address(mut frame: Vec<u8>, source: u32) -> Vec<u8> {
    frame[12..16].copy_from_slice(&source.to_be_bytes());
    seal_v4(&mut frame[..V4_LEN]);
    frame
}

/// Adds options to an IPv4 packet. Their length must be a multiple of four bytes.
pub fn with_options(frame: &[u8], options: &[u8]) -> Vec<u8> {
    let header_len = V4_LEN + options.len();
    let mut longer = [&frame[..V4_LEN], options, &frame[V4_LEN..]].concat();
    longer[0] = 0x40 | (header_len / 4) as u8;
    let total = longer.len() as u16;
    longer[2..4].copy_from_slice(&total.to_be_bytes());
    seal_v4(&mut longer[..header_len]);
    longer
}

/// Adds extension headers behind the IPv6 header. Each is given by its protocol number and bytes.
pub fn with_extensions(frame: &[u8], extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let mut longer = frame[..V6_LEN].to_vec();
    let last = frame[6];
    for (number, (kind, bytes)) in extensions.iter().enumerate() {
        if number == 0 {
            longer[6] = *kind;
        }
        longer.push(extensions.get(number + 1).map_or(last, |(next, _)| *next));
        longer.extend(&bytes[1..]);
    }
    longer.extend(&frame[V6_LEN..]);
    let payload_len = (longer.len() - V6_LEN) as u16;
    longer[4..6].copy_from_slice(&payload_len.to_be_bytes());
    longer
}

/// An IPv6 extension header of `len` bytes that contains only padding. The first byte (next header) is filled in
/// later.
pub fn padding(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[1] = (len / 8 - 1) as u8;
    // One padding option of the maximum length. Its data is zero, and the zeroes after it are padding too.
    (bytes[2], bytes[3]) = (1, (len - 4).min(255) as u8);
    bytes
}

/// `len` pseudo-random bytes. Equal keys give equal bytes.
pub fn bytes(key: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern::new(key).fill(0, &mut bytes);
    bytes
}

/// The bytes behind the IP headers of a packet.
pub fn upper<'a>(frame: &'a [u8], seen: &WireFacts) -> &'a [u8] {
    &frame[seen.at..seen.end]
}

/// Whether the transport checksum of an unfragmented UDP or TCP packet is correct. True for all other packets, and
/// for packets without a checksum.
pub fn is_sum_right(frame: &[u8], seen: &WireFacts) -> bool {
    let upper = upper(frame, seen);
    let field_at = if seen.protocol == UDP { 6 } else { 16 };
    let has_sum = match seen.protocol {
        UDP => upper.len() >= UDP_LEN && wire::word(upper, 6) != 0,
        TCP => upper.len() >= TCP_LEN,
        _ => false,
    };
    if seen.fragment.is_some() || !has_sum || upper.len() < field_at + 2 {
        return true;
    }
    let ends = if seen.is_v6 { &frame[8..40] } else { &frame[12..20] };
    let len = upper.len();
    let pseudo = Sum::of(ends) + Sum::word(u16::from(seen.protocol)) + Sum::word((len >> 16) as u16);
    (pseudo + Sum::word(len as u16) + Sum::of(upper)).is_right()
}

/// TCP flag SYN.
pub const SYN: u8 = 2;
/// TCP flag PSH.
pub const PSH: u8 = 8;
/// TCP flag ACK.
pub const ACK: u8 = 16;
