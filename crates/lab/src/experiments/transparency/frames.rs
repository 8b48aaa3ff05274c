//! Properties of a packet -> the bytes of its frame.
//!
//! Headers are written by hand, independently of the tested code, so any field may be wrong.

use packet::Sum;
use std::net::{Ipv4Addr, Ipv6Addr};

/// One of the two sides between which frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Wide,
    Narrow,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Wide => Side::Narrow,
            Side::Narrow => Side::Wide,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Wide => "wide",
            Side::Narrow => "narrow",
        }
    }
}

/// A frame and the side that sends it.
#[derive(Clone, Debug)]
pub(super) struct SentFrame {
    pub from: Side,
    pub bytes: Vec<u8>,
}

/// Builder of the frames of one kind of traffic. Each kind has other addresses, so that kinds share no state.
#[derive(Debug)]
pub(super) struct Frames {
    /// Number of the kind, and number of the attempt.
    number: [u8; 2],
    /// MAC addresses of the router, for frames of the wide and of the narrow side; `None` without a router.
    routers: Option<[[u8; 6]; 2]>,
    pub sent: Vec<SentFrame>,
}

impl Frames {
    pub(super) fn new(number: [u8; 2], routers: Option<[[u8; 6]; 2]>) -> Frames {
        Frames { number, routers, sent: Vec::new() }
    }

    /// Returns the MAC address of a side's host.
    pub(super) fn mac(&self, side: Side) -> [u8; 6] {
        [2, 0x77, side as u8 + 1, self.number[0], self.number[1], 1]
    }

    /// Returns the destination MAC address for frames of a side.
    pub(super) fn next_hop(&self, from: Side) -> [u8; 6] {
        self.routers.map_or_else(|| self.mac(from.other()), |routers| routers[from as usize])
    }

    pub(super) fn v4(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(10, side as u8 + 1, self.number[0], self.number[1])
    }

    pub(super) fn v6(&self, side: Side) -> Ipv6Addr {
        Ipv6Addr::new(0xFD00 + side as u16 + 1, 0, 0, 0, 0, 0, self.number[0].into(), self.number[1].into())
    }

    /// Adds a complete frame that a side sends.
    pub(super) fn raw(&mut self, from: Side, bytes: Vec<u8>) {
        self.sent.push(SentFrame { from, bytes });
    }

    /// Sends a payload with an EtherType to the other side.
    pub(super) fn ether(&mut self, from: Side, ethertype: u16, payload: &[u8]) {
        self.ether_to(from, self.next_hop(from), ethertype, payload);
    }

    /// Sends a payload with an EtherType to a MAC address.
    pub(super) fn ether_to(&mut self, from: Side, to: [u8; 6], ethertype: u16, payload: &[u8]) {
        let bytes = [&to[..], &self.mac(from), &ethertype.to_be_bytes(), payload].concat();
        self.raw(from, bytes);
    }

    /// Sends a payload with VLAN tags to the other side. Tags are pairs of EtherType and control word, the
    /// outermost first.
    pub(super) fn tagged(&mut self, from: Side, tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) {
        let mut bytes = [&self.next_hop(from)[..], &self.mac(from)].concat();
        for (kind, control) in tags {
            bytes.extend(kind.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(payload);
        self.raw(from, bytes);
    }

    /// Returns an IPv4 packet to the other side.
    pub(super) fn ip4(&self, from: Side, protocol: u8, payload: &[u8]) -> Ip4 {
        Ip4::new(self.v4(from), self.v4(from.other()), protocol, payload)
    }

    /// Returns an IPv6 packet to the other side.
    pub(super) fn ip6(&self, from: Side, next: u8, payload: &[u8]) -> Ip6 {
        Ip6 {
            source: self.v6(from),
            target: self.v6(from.other()),
            next,
            hops: 64,
            class: 0,
            label: 0,
            len: None,
            payload: payload.to_vec(),
        }
    }

    /// Sends an IPv4 packet to the other side.
    pub(super) fn send4(&mut self, from: Side, packet: &Ip4) {
        self.ether(from, 0x0800, &packet.bytes());
    }

    /// Sends an IPv6 packet to the other side.
    pub(super) fn send6(&mut self, from: Side, packet: &Ip6) {
        self.ether(from, 0x86DD, &packet.bytes());
    }

    /// Sends a transport packet over IPv4 and over IPv6. `make` gets the sum of the pseudo-header without the
    /// length.
    pub(super) fn both(&mut self, from: Side, protocol: u8, make: impl Fn(Sum) -> Vec<u8>) {
        let sum = self.pseudo4(from, protocol);
        self.send4(from, &self.ip4(from, protocol, &make(sum)));
        let sum = self.pseudo6(from, protocol);
        self.send6(from, &self.ip6(from, protocol, &make(sum)));
    }

    /// Returns the sum of an IPv4 pseudo-header without the length, which the caller adds.
    pub(super) fn pseudo4(&self, from: Side, protocol: u8) -> Sum {
        Sum::of(&self.v4(from).octets()) + Sum::of(&self.v4(from.other()).octets()) + Sum::word(protocol.into())
    }

    /// Returns the sum of an IPv6 pseudo-header without the length, which the caller adds.
    pub(super) fn pseudo6(&self, from: Side, protocol: u8) -> Sum {
        Sum::of(&self.v6(from).octets()) + Sum::of(&self.v6(from.other()).octets()) + Sum::word(protocol.into())
    }
}

/// Fields of an IPv4 packet. Fields that are `None` get their correct value.
#[derive(Clone, Debug)]
pub(super) struct Ip4 {
    pub source: Ipv4Addr,
    pub target: Ipv4Addr,
    pub protocol: u8,
    pub version: u8,
    pub tos: u8,
    pub id: u16,
    /// Flags and fragment offset, as in the header.
    pub fragment: u16,
    pub ttl: u8,
    pub options: Vec<u8>,
    pub total_len: Option<u16>,
    pub checksum: Option<u16>,
    pub payload: Vec<u8>,
}

impl Ip4 {
    fn new(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, payload: &[u8]) -> Ip4 {
        Ip4 {
            source,
            target,
            protocol,
            version: 4,
            tos: 0,
            id: 0x4321,
            fragment: DF,
            ttl: 64,
            options: Vec::new(),
            total_len: None,
            checksum: None,
            payload: payload.to_vec(),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        assert!(self.options.len().is_multiple_of(4), "RFC 791: options end at a word");
        let header_len = 20 + self.options.len();
        let total_len = self.total_len.unwrap_or((header_len + self.payload.len()) as u16);
        let mut header = vec![self.version << 4 | (header_len / 4) as u8, self.tos];
        header.extend(total_len.to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.target.octets());
        header.extend(&self.options);
        let checksum = self.checksum.unwrap_or_else(|| Sum::of(&header).checksum());
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        [header, self.payload.clone()].concat()
    }

    /// Returns the packet's fragments with `len` bytes of payload each.
    pub(super) fn fragments(&self, len: usize) -> Vec<Ip4> {
        let count = self.payload.len().div_ceil(len);
        let of = |(index, part): (usize, &[u8])| {
            let more = if index + 1 < count { MORE } else { 0 };
            Ip4 { fragment: (index * len / 8) as u16 | more, payload: part.to_vec(), ..self.clone() }
        };
        self.payload.chunks(len).enumerate().map(of).collect()
    }
}

/// Fields of an IPv6 packet.
#[derive(Clone, Debug)]
pub(super) struct Ip6 {
    pub source: Ipv6Addr,
    pub target: Ipv6Addr,
    pub next: u8,
    pub hops: u8,
    pub class: u8,
    pub label: u32,
    pub len: Option<u16>,
    pub payload: Vec<u8>,
}

impl Ip6 {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.class) << 20 | self.label;
        let mut bytes = first.to_be_bytes().to_vec();
        bytes.extend(self.len.unwrap_or(self.payload.len() as u16).to_be_bytes());
        bytes.extend([self.next, self.hops]);
        bytes.extend(self.source.octets());
        bytes.extend(self.target.octets());
        bytes.extend(&self.payload);
        bytes
    }

    /// Returns the packet's fragments with `len` bytes of payload each, under an identification.
    pub(super) fn fragments(&self, len: usize, id: u32) -> Vec<Ip6> {
        let count = self.payload.len().div_ceil(len);
        let of = |(index, part): (usize, &[u8])| {
            let offset = (index * len) as u16 | u16::from(index + 1 < count);
            let header = [&[self.next, 0][..], &offset.to_be_bytes(), &id.to_be_bytes()].concat();
            Ip6 { next: 44, payload: [&header, part].concat(), ..self.clone() }
        };
        self.payload.chunks(len).enumerate().map(of).collect()
    }

    /// Returns the packet with an extension header of this kind in front of its payload. The length of `body` must
    /// be 6 bytes plus a multiple of 8.
    pub(super) fn behind(mut self, kind: u8, body: &[u8]) -> Ip6 {
        assert!(body.len() % 8 == 6, "RFC 8200: extension headers end at a word of eight bytes");
        let header = [&[self.next, (body.len() / 8) as u8], body].concat();
        self.payload.splice(0..0, header);
        self.next = kind;
        self
    }
}

/// Returns a UDP datagram. `sum` must be the sum of the pseudo-header without the length.
pub(super) fn udp(sum: Sum, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16 + 8;
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    let checksum = match (sum + Sum::word(len) + Sum::of(&bytes)).checksum() {
        0 => 0xFFFF_u16,
        checksum => checksum,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Fields of a TCP segment.
#[derive(Clone, Debug)]
pub(super) struct Tcp {
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: u32,
    /// TCP flags: the low bits of bytes 12 and 13. AE is 0x100.
    pub flags: u16,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Wrong value for the checksum field; `None`: the correct checksum.
    pub checksum: Option<u16>,
}

impl Tcp {
    /// Returns a segment with payload and ACK.
    pub(super) fn data(seq: u32, payload: &[u8]) -> Tcp {
        Tcp {
            ports: [40_000, 5_001],
            seq,
            ack: 7_000,
            flags: ACK,
            window: 4_096,
            urgent: 0,
            options: Vec::new(),
            payload: payload.to_vec(),
            checksum: None,
        }
    }

    /// Returns a SYN with options.
    pub(super) fn syn(options: &[u8]) -> Tcp {
        Tcp { flags: SYN, ack: 0, options: options.to_vec(), ..Tcp::data(1_000, &[]) }
    }

    /// Returns the bytes of the segment. `sum` must be the sum of the pseudo-header without the length.
    pub(super) fn bytes(&self, sum: Sum) -> Vec<u8> {
        assert!(self.options.len().is_multiple_of(4), "RFC 9293: options end at a word");
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        let words = (5 + self.options.len() / 4) as u16;
        bytes.extend((words << 12 | self.flags).to_be_bytes());
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent.to_be_bytes());
        bytes.extend(&self.options);
        bytes.extend(&self.payload);
        let right = (sum + Sum::word(bytes.len() as u16) + Sum::of(&bytes)).checksum();
        bytes[16..18].copy_from_slice(&self.checksum.unwrap_or(right).to_be_bytes());
        bytes
    }
}

/// Returns an ICMP message with its checksum. For ICMPv6, `pseudo` is the pseudo-header's sum.
pub(super) fn icmp(kind: u8, code: u8, rest: &[u8], pseudo: Option<Sum>) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], rest].concat();
    let sum = Sum::of(&bytes) + pseudo.map_or(Sum::ZERO, |sum| sum + Sum::word(bytes.len() as u16));
    bytes[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    bytes
}

/// Returns `len` bytes whose values depend on their positions.
pub(super) fn filled(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// IPv4 flag "don't fragment".
pub(super) const DF: u16 = 0x4000;
/// IPv4 flag "more fragments".
pub(super) const MORE: u16 = 0x2000;
pub(super) const FIN: u16 = 0x01;
pub(super) const SYN: u16 = 0x02;
pub(super) const RST: u16 = 0x04;
pub(super) const PSH: u16 = 0x08;
pub(super) const ACK: u16 = 0x10;
pub(super) const URG: u16 = 0x20;
pub(super) const ECE: u16 = 0x40;
pub(super) const CWR: u16 = 0x80;
/// TCP flag AE, the third bit of Accurate ECN.
pub(super) const AE: u16 = 0x100;
