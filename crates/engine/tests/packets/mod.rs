//! Packets built by hand in, what stands on the wire out.
//!
//! Nothing here asks the code under test for a number: headers are written and read field by field, so that a test and
//! the engine can only agree by both being right.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;
use wideload_engine::Pieces;
use wideload_engine::packet::{Frame, Ingress, Medium, NoPacket, Pool, Time, Version};
use wideload_engine::{
    Answers, Event, Identifiers, Late, Limits, Narrowing, Output, Reason, Reassembler, Role, Secret, Side, Widening,
};

/// An IPv4 packet to be built.
#[derive(Clone, Debug)]
pub struct V4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub tos: u8,
    pub id: u16,
    /// Reserved, DF and MF, as they stand in the header.
    pub flags: u16,
    /// In bytes.
    pub offset: usize,
    pub ttl: u8,
    pub protocol: u8,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

/// An IPv6 packet to be built.
#[derive(Clone, Debug)]
pub struct V6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub class: u8,
    /// Extension headers before any Fragment header: kind and bytes, whose first byte is written here.
    pub front: Vec<(u8, Vec<u8>)>,
    /// Identification, offset in bytes, M.
    pub fragment: Option<(u32, usize, bool)>,
    pub next_header: u8,
    pub payload: Vec<u8>,
}

/// What a test reads from a packet on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    pub version: Version,
    /// Everything before the payload that fragmentation divides.
    pub header: Vec<u8>,
    pub protocol: u8,
    pub id: u32,
    pub offset: usize,
    pub more: bool,
    pub dont_fragment: bool,
    /// Does it carry a Fragment header (version 6), or an offset or MF (version 4)?
    pub is_fragment: bool,
    pub payload: Vec<u8>,
}

/// One side of the engine, with its output and a clock.
pub struct Rig {
    pub side: Side,
    pub out: Output,
    pub now: Time,
    pub medium: Medium,
    pub ingress: Ingress,
}

impl V4 {
    pub fn whole(payload: Vec<u8>) -> V4 {
        V4 {
            source: HOST_V4,
            destination: PEER_V4,
            tos: 0,
            id: 0x1234,
            flags: 0,
            offset: 0,
            ttl: 64,
            protocol: EXPERIMENT,
            options: Vec::new(),
            payload,
        }
    }

    pub fn piece(offset: usize, payload: &[u8], more: bool) -> V4 {
        V4 { offset, flags: if more { MF } else { 0 }, ..V4::whole(payload.to_vec()) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        assert!(header_len.is_multiple_of(4) && header_len <= 60 && self.offset.is_multiple_of(8));
        let mut bytes = vec![0x40 | (header_len / 4) as u8, self.tos];
        bytes.extend(((header_len + self.payload.len()) as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend((self.flags | (self.offset / 8) as u16).to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.options);
        let sum = !ones_sum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

impl V6 {
    pub fn whole(payload: Vec<u8>) -> V6 {
        V6 {
            source: HOST_V6,
            destination: PEER_V6,
            class: 0,
            front: Vec::new(),
            fragment: None,
            next_header: EXPERIMENT,
            payload,
        }
    }

    pub fn piece(offset: usize, payload: &[u8], more: bool) -> V6 {
        V6 { fragment: Some((0x1234, offset, more)), ..V6::whole(payload.to_vec()) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut headers = self.front.clone();
        if let Some((id, offset, more)) = self.fragment {
            assert!(offset.is_multiple_of(8));
            let mut header = vec![0, 0];
            header.extend((offset as u16 | u16::from(more)).to_be_bytes());
            header.extend(id.to_be_bytes());
            headers.push((FRAGMENT, header));
        }
        let (first, chain) = chain(&headers, self.next_header);
        let mut bytes = vec![0x60 | self.class >> 4, self.class << 4, 0, 0];
        bytes.extend(((chain.len() + self.payload.len()) as u16).to_be_bytes());
        bytes.extend([first, 64]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(chain);
        bytes.extend(&self.payload);
        bytes
    }
}

impl Wire {
    /// Reads a packet; panics where a length or the IPv4 header checksum is wrong.
    pub fn read(bytes: &[u8]) -> Wire {
        match bytes[0] >> 4 {
            4 => Wire::read_v4(bytes),
            _ => Wire::read_v6(bytes),
        }
    }

    /// Reads many.
    pub fn read_all(packets: &[Vec<u8>]) -> Vec<Wire> {
        packets.iter().map(|bytes| Wire::read(bytes)).collect()
    }

    /// What a table shows of a piece: offset, length, MF.
    pub fn place(&self) -> (usize, usize, bool) {
        (self.offset, self.payload.len(), self.more)
    }

    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    fn read_v4(bytes: &[u8]) -> Wire {
        let header_len = usize::from(bytes[0] & 15) * 4;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(usize::from(word(2)), bytes.len(), "total length");
        assert_eq!(ones_sum(&bytes[..header_len]), 0xFFFF, "header checksum");
        let (offset, more) = (usize::from(word(6) & 0x1FFF) * 8, word(6) & MF != 0);
        Wire {
            version: Version::V4,
            header: bytes[..header_len].to_vec(),
            protocol: bytes[9],
            id: word(4).into(),
            offset,
            more,
            dont_fragment: word(6) & DF != 0,
            is_fragment: offset != 0 || more,
            payload: bytes[header_len..].to_vec(),
        }
    }

    fn read_v6(bytes: &[u8]) -> Wire {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(usize::from(word(4)) + 40, bytes.len(), "payload length");
        let (mut next, mut at) = (bytes[6], 40);
        while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            (next, at) = (bytes[at], at + 8 + usize::from(bytes[at + 1]) * 8);
        }
        let mut wire = Wire {
            version: Version::V6,
            header: bytes[..at].to_vec(),
            protocol: next,
            id: 0,
            offset: 0,
            more: false,
            dont_fragment: true,
            is_fragment: next == FRAGMENT,
            payload: bytes[at..].to_vec(),
        };
        if wire.is_fragment {
            wire.protocol = bytes[at];
            (wire.offset, wire.more) = (usize::from(word(at + 2) & 0xFFF8), word(at + 2) & 1 != 0);
            wire.id = u32::from(word(at + 4)) << 16 | u32::from(word(at + 6));
            wire.header = bytes[..at + 8].to_vec();
            wire.payload = bytes[at + 8..].to_vec();
        }
        wire
    }
}

impl Rig {
    /// A side with this MTU and role, and the reassembler of a host or of a box on the way, where there is one.
    pub fn new(mtu: u16, role: Role, late: Option<Late>) -> Rig {
        Rig::with_limits(mtu, role, late, Limits { bytes: 16 << 20, patience: None })
    }

    pub fn with_limits(mtu: u16, role: Role, late: Option<Late>, limits: Limits) -> Rig {
        let reassembler = late.map(|late| Reassembler::new(limits, late, secret()));
        let answers = Answers::new([ROUTER_V4.into(), ROUTER_V6.into()], 1_000_000_000, 1_000, secret());
        Rig {
            side: Side {
                widening: Widening { reassembler, ..Widening::default() },
                narrowing: Narrowing::new(mtu, role),
            },
            out: Output::new(Pool::new(64 << 20), Some(answers)),
            now: Time::ZERO,
            medium: Medium::Ip,
            ingress: Ingress(0),
        }
    }

    /// A host that joins what comes and lets any length pass.
    pub fn host() -> Rig {
        Rig::new(u16::MAX, Role::Transit, Some(Late::Retire))
    }

    /// A host's card: it cuts what its host sends.
    pub fn card(mtu: u16) -> Rig {
        Rig::new(mtu, Role::Source(identifiers()), None)
    }

    /// A router that joins nothing.
    pub fn router(mtu: u16) -> Rig {
        Rig::new(mtu, Role::Transit, None)
    }

    /// Pushes one frame and returns what leaves at once; what cannot be read passes and is counted.
    pub fn push(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        match Frame::copy(frame, self.medium, self.ingress, &mut self.out.pool) {
            Ok(packet) => self.side.push(self.now, packet, &mut self.out),
            Err(NoPacket::Unfit(unfit)) => {
                self.out.ledger.pass(Reason::from(unfit), frame.len());
                return vec![frame.to_vec()];
            }
            Err(NoPacket::NoBuffer) => panic!("the pool of a test is large enough"),
        }
        self.drain()
    }

    /// Pushes many frames.
    pub fn push_all<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Vec<u8>> {
        frames.into_iter().flat_map(|frame| self.push(frame)).collect()
    }

    /// Lets time pass.
    pub fn wait(&mut self, stretch: Duration) -> Vec<Vec<u8>> {
        self.now = self.now + stretch;
        self.side.expire(self.now, &mut self.out);
        self.drain()
    }

    /// Ends the input.
    pub fn flush(&mut self) -> Vec<Vec<u8>> {
        self.side.flush(self.now, &mut self.out);
        self.drain()
    }

    /// Packets that ended for this reason.
    pub fn retired(&self, reason: Reason) -> u64 {
        self.out.ledger.retired(reason).packets
    }

    /// How often this was done.
    pub fn event(&self, event: Event) -> u64 {
        self.out.ledger.event(event).packets
    }

    /// Fragments that are held.
    pub fn held(&self) -> u64 {
        self.side.widening.held().0.packets
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut wire = Vec::new();
        while let Some(packet) = self.out.next() {
            let mut pieces = Pieces::of(&packet);
            while let Some(piece) = pieces.next() {
                wire.push([piece.header, piece.payload].concat());
            }
            self.out.done(packet);
        }
        self.side.check(&self.out).unwrap();
        wire
    }
}

/// A piece of either version.
pub fn piece(version: Version, offset: usize, payload: &[u8], more: bool) -> Vec<u8> {
    match version {
        Version::V4 => V4::piece(offset, payload, more).bytes(),
        Version::V6 => V6::piece(offset, payload, more).bytes(),
    }
}

/// A whole datagram of either version.
pub fn whole(version: Version, payload: &[u8]) -> Vec<u8> {
    match version {
        Version::V4 => V4::whole(payload.to_vec()).bytes(),
        Version::V6 => V6::whole(payload.to_vec()).bytes(),
    }
}

/// The pieces of a datagram, `room` bytes in each but the last.
pub fn pieces(version: Version, payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    let last = payload.len().div_ceil(room) - 1;
    let parts = payload.chunks(room).enumerate();
    parts.map(|(index, part)| piece(version, index * room, part, index < last)).collect()
}

/// A whole datagram with this payload must be all that leaves.
#[track_caller]
pub fn assert_whole(wire: &[Vec<u8>], payload: &[u8]) {
    let wire = Wire::read_all(wire);
    assert_eq!(wire.len(), 1, "one datagram leaves");
    assert!(!wire[0].is_fragment);
    assert!(wire[0].payload == payload, "{} bytes leave as {}", payload.len(), wire[0].payload.len());
}

/// This packet must be all that leaves, byte for byte.
#[track_caller]
pub fn assert_only(wire: &[Vec<u8>], packet: &[u8]) {
    assert_eq!(wire.len(), 1, "one packet leaves");
    assert!(wire[0] == packet, "{:02x?} is not {:02x?}", wire[0], packet);
}

/// Bytes of which no two eights at different places are likely alike.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(0x9E37_79B1).to_be_bytes()[0]).collect()
}

/// Extension headers in a row: the first one's number, and their bytes.
pub fn chain(headers: &[(u8, Vec<u8>)], last: u8) -> (u8, Vec<u8>) {
    let kinds: Vec<u8> = headers.iter().map(|(kind, _)| *kind).chain([last]).collect();
    let mut bytes = Vec::new();
    for (index, (_, header)) in headers.iter().enumerate() {
        bytes.push(kinds[index + 1]);
        bytes.extend(&header[1..]);
    }
    (kinds[0], bytes)
}

/// An options or routing header of `len` bytes that asks for nothing.
pub fn padding(kind: u8, len: usize) -> (u8, Vec<u8>) {
    assert!(len.is_multiple_of(8) && len >= 8);
    let mut header = vec![0; len];
    header[1] = (len / 8 - 1) as u8;
    if kind != ROUTING {
        // PadN, whose data is zero.
        (header[2], header[3]) = (1, (len - 4).min(255) as u8);
    }
    (kind, header)
}

/// A UDP datagram with a right checksum, as the payload of a packet between these addresses.
pub fn udp(source: &[u8], destination: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut bytes = [5_555u16.to_be_bytes(), 80u16.to_be_bytes(), len.to_be_bytes(), [0; 2]].concat();
    bytes.extend(payload);
    let pseudo = [source, destination, &[0, UDP], &len.to_be_bytes()].concat();
    let sum = !ones_sum(&[pseudo, bytes.clone()].concat());
    let field = if sum == 0 { 0xFFFF } else { sum };
    bytes[6..8].copy_from_slice(&field.to_be_bytes());
    bytes
}

/// A segment of TCP with a right checksum, as the payload of a packet between these addresses.
pub fn tcp(source: &[u8], destination: &[u8], seq: u32, payload: &[u8]) -> Vec<u8> {
    let ports = [5_555u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
    let mut bytes = [&ports[..], &seq.to_be_bytes(), &[0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]].concat();
    bytes.extend(payload);
    let pseudo = [source, destination, &[0, TCP], &(bytes.len() as u16).to_be_bytes()].concat();
    let sum = !ones_sum(&[pseudo, bytes.clone()].concat());
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The ones' complement sum, one word after the other.
pub fn ones_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum, pair| {
        let word = u16::from(pair[0]) << 8 | u16::from(*pair.get(1).unwrap_or(&0));
        let (sum, carry) = u16::overflowing_add(sum, word);
        sum + u16::from(carry)
    })
}

/// Every order of the numbers below `count`.
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with_last = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, count - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(move |at| with_last(order, at))).collect()
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub fn secret() -> Secret {
    Secret::new(0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210)
}

pub fn identifiers() -> Identifiers {
    Identifiers::new(secret(), seconds(2))
}

pub const VERSIONS: [Version; 2] = [Version::V4, Version::V6];
pub const HOST_V4: [u8; 4] = [192, 0, 2, 1];
pub const PEER_V4: [u8; 4] = [198, 51, 100, 2];
pub const ROUTER_V4: [u8; 4] = [203, 0, 113, 9];
pub const HOST_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const PEER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub const ROUTER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
pub const RESERVED: u16 = 0x8000;
pub const DF: u16 = 0x4000;
pub const MF: u16 = 0x2000;
pub const HOP_BY_HOP: u8 = 0;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const DESTINATION_OPTIONS: u8 = 60;
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;
/// A protocol number for experiments (RFC 3692): nothing is known of its header.
pub const EXPERIMENT: u8 = 253;
