//! The bytes of a packet -> its header fields.
//!
//! Tests check transmitted packets with these functions. The functions panic, with the cause, if a packet
//! contradicts itself.

use crate::fields::{
    AUTHENTICATION, DESTINATION_OPTIONS, DF, FRAGMENT, FRAGMENT_LEN, HOP_BY_HOP, ICMP, ICMPV6, IPV4_LEN, IPV6_LEN,
    MF, ROUTING, TCP, UDP, long, word,
};
use crate::sum::{pseudo_header, sum, sum_of};
use core::net::IpAddr;

/// The header fields of a received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPacket {
    /// The frame without padding, or the packet if there is no link header.
    pub frame: Vec<u8>,
    /// VLAN tags of the Ethernet header, outermost first.
    pub vlans: Vec<u16>,
    /// Offset of the IP header in the frame, in bytes.
    pub ip_at: usize,
    /// Offset of the body that fragmentation divides, in bytes. The body starts behind the IP header and any
    /// Fragment header.
    pub body_at: usize,
    /// Offset of the transport header in the frame, in bytes.
    pub upper_at: usize,
    /// IP version: 4 or 6.
    pub version: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of the body.
    pub protocol: u8,
    /// IPv4's type of service or IPv6's traffic class.
    pub tos: u8,
    /// IPv4's time to live or IPv6's hop limit.
    pub ttl: u8,
    /// Identification; 0 in an IPv6 packet without a Fragment header.
    pub id: u32,
    /// IPv4's flag DF; always true in IPv6.
    pub dont_fragment: bool,
    /// Fragment offset in bytes, and the MF flag. `None` in IPv4 if the packet is not a fragment, and in IPv6 if
    /// there is no Fragment header.
    pub fragment: Option<(usize, bool)>,
    /// Whether an Authentication header precedes the transport header.
    pub is_authenticated: bool,
    /// Whether the transport header is complete and agrees with the packet's length.
    pub has_header: bool,
    /// Source and destination port of TCP or UDP.
    pub ports: [u16; 2],
    /// TCP's sequence number.
    pub seq: u32,
    /// TCP's acknowledgement number.
    pub ack: u32,
    /// TCP's flags.
    pub flags: u8,
    /// TCP's window.
    pub window: u16,
    /// Offset of the payload in the frame, in bytes.
    pub payload_at: usize,
    /// Whether the transport checksum is correct or absent.
    pub sum_is_right: bool,
}

impl ReadPacket {
    /// Reads a packet that starts with its IP header and has no padding.
    pub fn of(packet: &[u8]) -> ReadPacket {
        let seen = ReadPacket::read(packet, 0);
        assert_eq!(seen.frame.len(), packet.len(), "a packet is as long as it says");
        seen
    }

    /// Reads an Ethernet frame, with or without padding.
    pub fn of_frame(frame: &[u8]) -> ReadPacket {
        let mut ip_at = 14;
        while [0x8100, 0x88A8].contains(&word(frame, ip_at - 2)) {
            ip_at += 4;
        }
        ReadPacket::read(frame, ip_at)
    }

    /// Reads several packets that start with their IP headers.
    pub fn all(packets: &[Vec<u8>]) -> Vec<ReadPacket> {
        packets.iter().map(|packet| ReadPacket::of(packet)).collect()
    }

    /// Reads a frame whose IP header starts at offset `ip_at`.
    pub fn read(frame: &[u8], ip_at: usize) -> ReadPacket {
        let tags = frame[..ip_at].get(14..).unwrap_or_default().chunks_exact(4);
        let vlans = tags.map(|tag| word(tag, 0)).collect();
        let packet = &frame[ip_at..];
        let mut seen = match packet[0] >> 4 {
            4 => ReadPacket::of_v4(packet),
            6 => ReadPacket::of_v6(packet),
            version => panic!("no version of IP: {version}"),
        };
        if seen.fragment.is_none_or(|(offset, _)| offset == 0) {
            seen.read_transport();
        }
        let ends = [seen.body_at, seen.upper_at, seen.payload_at].map(|at| at + ip_at);
        [seen.body_at, seen.upper_at, seen.payload_at] = ends;
        ReadPacket { frame: frame[..ip_at + seen.frame.len()].to_vec(), vlans, ip_at, ..seen }
    }

    fn of_v4(packet: &[u8]) -> ReadPacket {
        assert!(packet.len() >= IPV4_LEN, "an IPv4 header has 20 bytes, these are {}", packet.len());
        let (header_len, len) = (usize::from(packet[0] & 15) * 4, usize::from(word(packet, 2)));
        assert!(
            (IPV4_LEN..=len).contains(&header_len) && len <= packet.len(),
            "an IPv4 header of {header_len} bytes says that its packet has {len}, these are {}",
            packet.len()
        );
        assert_eq!(sum(&packet[..header_len]), 0xFFFF, "an IPv4 header's checksum is right");
        let address = |at| <[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes").into();
        let flags = word(packet, 6);
        let (offset, more) = (usize::from(flags & 0x1FFF) * 8, flags & MF != 0);
        ReadPacket {
            version: 4,
            source: address(12),
            destination: address(16),
            protocol: packet[9],
            tos: packet[1],
            ttl: packet[8],
            id: word(packet, 4).into(),
            dont_fragment: flags & DF != 0,
            fragment: (offset > 0 || more).then_some((offset, more)),
            ..ReadPacket::blank(&packet[..len], header_len)
        }
    }

    fn of_v6(packet: &[u8]) -> ReadPacket {
        assert!(packet.len() >= IPV6_LEN, "an IPv6 header has 40 bytes, these are {}", packet.len());
        let len = IPV6_LEN + usize::from(word(packet, 4));
        assert!(
            len <= packet.len(),
            "an IPv6 header says that its packet has {len} bytes, these are {}",
            packet.len()
        );
        let address = |at| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen bytes").into();
        let mut seen = ReadPacket {
            source: address(8),
            destination: address(24),
            protocol: packet[6],
            tos: (word(packet, 0) >> 4) as u8,
            ttl: packet[7],
            ..ReadPacket::blank(&packet[..len], IPV6_LEN)
        };
        while let Some(rest) = seen.frame.get(seen.body_at..).filter(|rest| rest.len() >= 8) {
            let next = rest[0];
            let header_len = match seen.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => usize::from(rest[1]) * 8 + 8,
                AUTHENTICATION => {
                    seen.is_authenticated = true;
                    usize::from(rest[1]) * 4 + 8
                }
                FRAGMENT => {
                    seen.fragment = Some((usize::from(word(rest, 2) & 0xFFF8), word(rest, 2) & 1 != 0));
                    seen.id = long(rest, 4);
                    FRAGMENT_LEN
                }
                _ => break,
            };
            seen.body_at += header_len;
            let was_last = seen.protocol == FRAGMENT;
            seen.protocol = next;
            if was_last {
                break;
            }
        }
        seen.upper_at = seen.body_at;
        seen
    }

    fn blank(packet: &[u8], body_at: usize) -> ReadPacket {
        ReadPacket {
            frame: packet.to_vec(),
            vlans: Vec::new(),
            ip_at: 0,
            body_at,
            upper_at: body_at,
            version: 6,
            source: IpAddr::from([0; 4]),
            destination: IpAddr::from([0; 4]),
            protocol: 0,
            tos: 0,
            ttl: 0,
            id: 0,
            dont_fragment: true,
            fragment: None,
            is_authenticated: false,
            has_header: false,
            ports: [0; 2],
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            payload_at: packet.len(),
            sum_is_right: true,
        }
    }

    /// Reads the extension headers in the body, and then the transport header.
    fn read_transport(&mut self) {
        let mut protocol = self.protocol;
        while self.version == 6 && [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS, AUTHENTICATION].contains(&protocol) {
            let Some(rest) = self.frame.get(self.upper_at..).filter(|rest| rest.len() >= 8) else { return };
            let unit = if protocol == AUTHENTICATION { 4 } else { 8 };
            self.is_authenticated |= protocol == AUTHENTICATION;
            protocol = rest[0];
            self.upper_at += usize::from(rest[1]) * unit + 8;
        }
        let Some(upper) = self.frame.get(self.upper_at..) else { return };
        let pseudo = match protocol {
            ICMP => Vec::new(),
            _ => pseudo_header(self.source, self.destination, protocol, upper.len()),
        };
        let is_right = sum_of(&[&pseudo, upper]) == 0xFFFF;
        match protocol {
            TCP if upper.len() >= 20 => {
                let header_len = usize::from(upper[12] >> 4) * 4;
                self.ports = [word(upper, 0), word(upper, 2)];
                (self.seq, self.ack, self.flags) = (long(upper, 4), long(upper, 8), upper[13]);
                self.window = word(upper, 14);
                self.sum_is_right = is_right;
                if (20..=upper.len()).contains(&header_len) {
                    self.has_header = true;
                    self.payload_at = self.upper_at + header_len;
                }
            }
            UDP if upper.len() >= 8 => {
                self.ports = [word(upper, 0), word(upper, 2)];
                self.sum_is_right = word(upper, 6) == 0 || is_right;
                self.has_header = usize::from(word(upper, 4)) == upper.len();
                self.payload_at = self.upper_at + 8;
            }
            ICMP | ICMPV6 if upper.len() >= 8 => {
                self.sum_is_right = is_right;
                self.has_header = true;
                self.payload_at = self.upper_at + 8;
            }
            _ => {}
        }
    }

    /// Fragment offset, body length (both in bytes) and MF flag: a fragment's position in a form that tests can
    /// compare.
    pub fn place(&self) -> (usize, usize, bool) {
        let (offset, more) = self.fragment.unwrap_or_default();
        (offset, self.body().len(), more)
    }

    /// Fragment offset, in bytes; 0 if the packet is not a fragment.
    pub fn offset(&self) -> usize {
        self.place().0
    }

    /// The MF flag: more fragments of the datagram follow.
    pub fn more(&self) -> bool {
        self.place().2
    }

    /// Whether the packet is a fragment, or an IPv6 packet with a Fragment header.
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some()
    }

    /// The ECN codepoint: 0 to 3.
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// The packet without its link header.
    pub fn packet(&self) -> &[u8] {
        &self.frame[self.ip_at..]
    }

    /// The IP header and all other bytes in front of the body.
    pub fn header(&self) -> &[u8] {
        &self.frame[self.ip_at..self.body_at]
    }

    /// The body that fragmentation divides.
    pub fn body(&self) -> &[u8] {
        &self.frame[self.body_at..]
    }

    /// The transport header and all bytes behind it.
    pub fn upper(&self) -> &[u8] {
        &self.frame[self.upper_at..]
    }

    /// TCP's options.
    pub fn options(&self) -> &[u8] {
        if self.has_header && self.protocol != UDP { &self.frame[self.upper_at + 20..self.payload_at] } else { &[] }
    }

    /// The bytes behind all headers.
    pub fn payload(&self) -> &[u8] {
        &self.frame[self.payload_at..]
    }

    /// Length of the packet from its IP header on, in bytes.
    pub fn ip_len(&self) -> usize {
        self.frame.len() - self.ip_at
    }

    /// The sequence number of the first byte behind the payload.
    pub fn seq_end(&self) -> u32 {
        self.seq.wrapping_add(self.payload().len() as u32)
    }
}
