//! Header fields -> packet bytes, and packet bytes -> header fields.
//!
//! Simulated hosts build and parse packets with this code. The code is independent of the engine's parser, which it
//! tests. Only the checksum code is shared.

use crate::address;
use packet::Sum;

/// The fields of an IP header to be written.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Whether the packet is IPv6.
    pub is_v6: bool,
    /// Number of the source host.
    pub from: u16,
    /// Number of the destination host.
    pub to: u16,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Whether IPv4's DF is set.
    pub dont_fragment: bool,
    /// IP identification.
    pub id: u32,
    /// ECN field, two bits.
    pub ecn: u8,
    /// Fragment offset in bytes, and whether more fragments follow; `None` if the packet is not a fragment.
    pub fragment: Option<(usize, bool)>,
}

/// The fields of a received packet.
#[derive(Clone, Copy, Debug)]
pub struct WireFacts {
    /// Whether the packet is IPv6.
    pub is_v6: bool,
    /// Number of the source host; `None` if the address is of no host.
    pub from: Option<u16>,
    /// Number of the destination host; `None` if the address is of no host.
    pub to: Option<u16>,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Whether the packet must not be fragmented.
    pub dont_fragment: bool,
    /// IP identification.
    pub id: u32,
    /// ECN field, two bits.
    pub ecn: u8,
    /// Fragment offset in bytes, and whether more fragments follow; `None` if the packet is not a fragment.
    pub fragment: Option<(usize, bool)>,
    /// Offset of the payload in the frame, in bytes.
    pub at: usize,
    /// Offset of the payload's end in the frame, in bytes.
    pub end: usize,
}

impl Head {
    /// Length of the IP header with any Fragment header, in bytes.
    pub fn header_len(&self) -> usize {
        match (self.is_v6, self.fragment) {
            (false, _) => V4_LEN,
            (true, None) => V6_LEN,
            (true, Some(_)) => V6_LEN + FRAGMENT_LEN,
        }
    }

    /// Writes the IP header to the start of `to`, which must have the packet's length.
    pub fn write(&self, to: &mut [u8]) {
        let len = to.len();
        if self.is_v6 {
            let payload_len = (len - V6_LEN) as u16;
            let next = if self.fragment.is_some() { FRAGMENT } else { self.protocol };
            to[..4].copy_from_slice(&[0x60, self.ecn << 4, 0, 0]);
            to[4..6].copy_from_slice(&payload_len.to_be_bytes());
            to[6..8].copy_from_slice(&[next, HOPS]);
            to[8..24].copy_from_slice(&address::v6(self.from));
            to[24..40].copy_from_slice(&address::v6(self.to));
            if let Some((offset, more)) = self.fragment {
                to[40..42].copy_from_slice(&[self.protocol, 0]);
                to[42..44].copy_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
                to[44..48].copy_from_slice(&self.id.to_be_bytes());
            }
            return;
        }
        let (offset, more) = self.fragment.unwrap_or((0, false));
        let marks = u16::from(self.dont_fragment) << 14 | u16::from(more) << 13 | (offset / 8) as u16;
        to[..2].copy_from_slice(&[0x45, self.ecn]);
        to[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        to[4..6].copy_from_slice(&(self.id as u16).to_be_bytes());
        to[6..8].copy_from_slice(&marks.to_be_bytes());
        to[8..12].copy_from_slice(&[HOPS, self.protocol, 0, 0]);
        to[12..16].copy_from_slice(&address::v4(self.from));
        to[16..20].copy_from_slice(&address::v4(self.to));
        seal_v4(&mut to[..V4_LEN]);
    }

    /// The sum of the pseudo-header, which transport checksums include.
    pub fn pseudo_sum(&self, len: usize) -> Sum {
        let ends = if self.is_v6 {
            Sum::of(&address::v6(self.from)) + Sum::of(&address::v6(self.to))
        } else {
            Sum::of(&address::v4(self.from)) + Sum::of(&address::v4(self.to))
        };
        ends + Sum::word(u16::from(self.protocol)) + Sum::word((len >> 16) as u16) + Sum::word(len as u16)
    }
}

/// Writes the checksum of an IPv4 header with or without options.
pub fn seal_v4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the congestion mark (CE) if the packet is ECN-capable (RFC 3168 section 5). Returns whether the packet is
/// ECN-capable.
pub fn mark(frame: &mut [u8]) -> bool {
    let (first, second) = match frame {
        [first, second, ..] => (*first, *second),
        _ => return false,
    };
    let takes_part = |bits: u8| matches!(bits & 3, 1 | 2);
    match first >> 4 {
        4 if takes_part(second) => {
            let header = frame.get_mut(..usize::from(first & 15) * 4).filter(|header| header.len() >= V4_LEN);
            let Some(header) = header.filter(|header| Sum::of(header).is_right()) else { return false };
            header[1] |= 3;
            seal_v4(header);
            true
        }
        6 if takes_part(second >> 4) => {
            frame[1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// The payload of a packet with a congestion mark.
#[derive(Clone, Copy, Debug)]
pub struct Marked {
    /// Payload length, in bytes: behind the TCP header for segments, and behind the IP header for datagrams and
    /// fragments.
    pub len: u64,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Whether the payload is TCP.
    pub is_tcp: bool,
}

/// Parses the headers of a packet with a congestion mark; `None` if the packet has no mark.
#[inline]
pub fn marked(front: &[u8]) -> Option<Marked> {
    let is_marked = match front {
        [first, second, ..] if first >> 4 == 4 => second & 3 == 3,
        [first, second, ..] if first >> 4 == 6 => second & 0x30 == 0x30,
        _ => false,
    };
    if is_marked { what_is_marked(front) } else { None }
}

#[cold]
fn what_is_marked(front: &[u8]) -> Option<Marked> {
    let (protocol, at, end, is_fragment) = if front[0] >> 4 == 4 {
        (*front.get(9)?, usize::from(front[0] & 15) * 4, word(front, 2), word(front, 6) & 0x3FFF > 0)
    } else {
        let end = word(front, 4).saturating_add(V6_LEN as u16);
        match *front.get(6)? {
            FRAGMENT => (*front.get(V6_LEN)?, V6_LEN + FRAGMENT_LEN, end, true),
            protocol => (protocol, V6_LEN, end, false),
        }
    };
    let is_tcp = protocol == TCP;
    let upper_at = if is_tcp && !is_fragment { at + usize::from(front.get(at + 12)? >> 4) * 4 } else { at };
    Some(Marked { len: u64::from(end).saturating_sub(upper_at as u64), is_fragment, is_tcp })
}

/// Whether an IPv4 header has the checksum 0xFFFF, which no computation from scratch gives. An update by RFC 1141's
/// formula may cause it (RFC 1624 section 3).
#[inline]
pub fn has_odd_sum(header: &[u8]) -> bool {
    matches!(header, [first, _, _, _, _, _, _, _, _, _, 0xFF, 0xFF, ..] if first >> 4 == 4)
}

/// Sets or removes the congestion mark of a packet.
pub fn set_mark(frame: &mut [u8], is_marked: bool) {
    match frame.first().map(|first| first >> 4) {
        Some(4) => {
            frame[1] = frame[1] & !3 | if is_marked { 3 } else { 2 };
            let header_len = usize::from(frame[0] & 15) * 4;
            seal_v4(&mut frame[..header_len]);
        }
        Some(6) => frame[1] = frame[1] & !0x30 | if is_marked { 0x30 } else { 0x20 },
        _ => {}
    }
}

/// Writes a UDP header to the start of `to`, which contains header and payload.
pub fn write_udp(head: &Head, port: u16, to: &mut [u8]) {
    let len = to.len();
    to[..2].copy_from_slice(&port.to_be_bytes());
    to[2..4].copy_from_slice(&port.to_be_bytes());
    to[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    to[6..8].fill(0);
    let sum = (head.pseudo_sum(len) + Sum::of(to)).checksum();
    to[6..8].copy_from_slice(&if sum == 0 { 0xFFFF } else { sum }.to_be_bytes());
}

/// Parses a packet as its receiving host does. `None` if the host would drop the packet.
pub fn read(frame: &[u8]) -> Option<WireFacts> {
    match frame.first()? >> 4 {
        4 => read_v4(frame),
        6 => read_v6(frame),
        _ => None,
    }
}

fn read_v4(frame: &[u8]) -> Option<WireFacts> {
    let at = usize::from(frame[0] & 15) * 4;
    let header = frame.get(..at).filter(|header| header.len() >= V4_LEN)?;
    let end = usize::from(word(header, 2));
    if !Sum::of(header).is_right() || end < at || end > frame.len() {
        return None;
    }
    let marks = word(header, 6);
    let (offset, more) = (usize::from(marks & 0x1FFF) * 8, marks & 0x2000 > 0);
    Some(WireFacts {
        is_v6: false,
        from: address::host_v4(&header[12..16]),
        to: address::host_v4(&header[16..20]),
        protocol: header[9],
        dont_fragment: marks & 0x4000 > 0,
        id: u32::from(word(header, 4)),
        ecn: header[1] & 3,
        fragment: (offset > 0 || more).then_some((offset, more)),
        at,
        end,
    })
}

fn read_v6(frame: &[u8]) -> Option<WireFacts> {
    let header = frame.get(..V6_LEN)?;
    let end = V6_LEN + usize::from(word(header, 4));
    if end > frame.len() {
        return None;
    }
    let (mut protocol, mut at, mut fragment, mut id) = (header[6], V6_LEN, None, 0);
    while matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
        let extension = frame.get(at..at + 8).filter(|_| at + 8 <= end)?;
        at += if protocol == FRAGMENT { 8 } else { 8 * (1 + usize::from(extension[1])) };
        if protocol == FRAGMENT {
            let marks = word(extension, 2);
            id = u32::from(word(extension, 4)) << 16 | u32::from(word(extension, 6));
            fragment = (marks & !6 > 0).then_some((usize::from(marks & !7), marks & 1 > 0));
        }
        protocol = extension[0];
        if fragment.is_some_and(|(offset, _)| offset > 0) {
            break;
        }
    }
    (at <= end).then_some(WireFacts {
        is_v6: true,
        from: address::host_v6(&header[8..24]),
        to: address::host_v6(&header[24..40]),
        protocol,
        dont_fragment: true,
        id,
        ecn: header[1] >> 4 & 3,
        fragment,
        at,
        end,
    })
}

/// Number of the destination host. No other field of the packet is parsed.
pub fn destination(frame: &[u8]) -> Option<u16> {
    match frame.first()? >> 4 {
        4 => address::host_v4(frame.get(16..20)?),
        6 => address::host_v6(frame.get(24..40)?),
        _ => None,
    }
}

/// Whether the transport checksum between these two hosts is correct.
pub fn is_sum_right(seen: &WireFacts, from: u16, to: u16, upper: &[u8]) -> bool {
    let head = Head {
        is_v6: seen.is_v6,
        from,
        to,
        protocol: seen.protocol,
        dont_fragment: false,
        id: 0,
        ecn: 0,
        fragment: None,
    };
    (head.pseudo_sum(upper.len()) + Sum::of(upper)).is_right()
}

/// The contents of an ICMP error "packet too big".
#[derive(Clone, Copy, Debug)]
pub struct TooBig {
    /// The MTU of the next link, in bytes.
    pub mtu: usize,
    /// Protocol number of the rejected packet.
    pub protocol: u8,
}

/// Parses an ICMP "too big" message (RFC 1191 section 4, RFC 4443 section 3.2). Also returns the quoted bytes of
/// the transport header. Returns `None` for any other message.
pub fn too_big<'a>(seen: &WireFacts, upper: &'a [u8]) -> Option<(TooBig, &'a [u8])> {
    let mtu = match (seen.protocol, upper) {
        (ICMP, [3, 4, ..]) if Sum::of(upper).is_right() => usize::from(word(upper, 6)),
        // The replying router has no host's address, so the checksum over its address cannot be checked here.
        (ICMPV6, [2, 0, ..]) => long(upper, 4) as usize,
        _ => return None,
    };
    let quote = upper.get(8..)?;
    let (protocol, at) = match quote.first()? >> 4 {
        4 => (*quote.get(9)?, usize::from(quote[0] & 15) * 4),
        _ => (*quote.get(6)?, V6_LEN),
    };
    Some((TooBig { mtu, protocol }, quote.get(at..)?))
}

/// Ports of an unfragmented TCP packet without IP options or extension headers; `None` for any other packet.
#[inline]
pub fn tcp_ports(frame: &[u8]) -> Option<[u16; 2]> {
    let at = match frame.first()? {
        0x45 if frame.get(9) == Some(&TCP) && word(frame, 6) & 0x3FFF == 0 => V4_LEN,
        0x60..=0x6F if frame.get(6) == Some(&TCP) => V6_LEN,
        _ => return None,
    };
    Some([word(frame, at), word(frame, at + 2)])
}

/// Reads the 16-bit word at `at`; 0 beyond the end of `bytes`.
#[inline]
pub fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Reads the 32-bit word at `at`.
#[inline]
pub fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

/// Length of an IPv4 header without options, in bytes.
pub const V4_LEN: usize = 20;
/// Length of an IPv6 header, in bytes.
pub const V6_LEN: usize = 40;
/// Length of a Fragment header, in bytes.
pub const FRAGMENT_LEN: usize = 8;
/// Length of a UDP header, in bytes.
pub const UDP_LEN: usize = 8;
/// Length of a TCP header without options, in bytes.
pub const TCP_LEN: usize = 20;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Protocol number of IPv6's Hop-by-Hop Options header.
pub const HOP_BY_HOP: u8 = 0;
/// Protocol number of IPv6's Routing header.
pub const ROUTING: u8 = 43;
/// Protocol number of IPv6's Fragment header.
pub const FRAGMENT: u8 = 44;
/// Protocol number of IPv6's Destination Options header.
pub const DESTINATION: u8 = 60;
/// TTL of transmitted packets: the maximum, so that chains of a hundred nodes are possible.
const HOPS: u8 = 255;
