//! Frames -> frames: one side with its output, and the laws checked after every step.

use core::time::Duration;
use testkit::model::Key;
use testkit::{ReadPacket, Spec};
use wideload_engine::packet::{Content, Frame, HEADROOM, Ingress, Link, LinkType, Packet, Pool, Split, Time};
use wideload_engine::{
    Aggregation, Connections, Identifiers, LIFETIME, Late, Limits, Output, Reassembler, Role, Secret, Side, Sizing,
    WirePackets,
};

/// One side and its output.
pub struct Station {
    /// The side under test.
    pub side: Side,
    /// The connection table of its TCP flows.
    pub connections: Connections,
    pub out: Output,
}

/// A frame that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The bytes of the frame, including the link header.
    pub frame: Vec<u8>,
    /// Offset of the IP header in the frame, in bytes.
    pub ip_at: usize,
    /// The port by which the packet arrived.
    pub ingress: u32,
    /// Whether it is a fragment of a packet that was fragmented here.
    pub cut: bool,
}

impl Station {
    /// Creates a station that reassembles, and forwards datagrams of any length.
    pub fn joining(limits: Limits, late: Late) -> Station {
        Station::joining_by(limits, late, SECRET)
    }

    /// Creates the same station with this secret.
    pub fn joining_by(limits: Limits, late: Late, secret: u128) -> Station {
        let reassembler = Reassembler::new(limits, late, Secret::new(secret));
        let sizing = Sizing::new(u16::MAX, Role::Transit);
        Station::of(Some(reassembler), sizing, 2 * limits.bytes + ROOM)
    }

    /// Creates a station that fragments to `mtu` as the source.
    pub fn source(mtu: u16, split: Split) -> Station {
        let identifiers = Identifiers::new(Secret::new(SECRET), LIFETIME);
        Station::of(None, Sizing { split, ..Sizing::new(mtu, Role::Source(identifiers)) }, ROOM)
    }

    /// Creates a station that fragments to `mtu` in transit.
    pub fn router(mtu: u16, split: Split) -> Station {
        Station::of(None, Sizing { split, ..Sizing::new(mtu, Role::Transit) }, ROOM)
    }

    /// Creates a station with this reassembler and this sizing.
    pub fn of(reassembler: Option<Reassembler>, sizing: Sizing, pool_len: usize) -> Station {
        let side = Side::of(Aggregation { reassembler, ..Aggregation::default() }, sizing);
        Station {
            side,
            connections: Connections::new(Secret::new(SECRET)),
            out: Output::new(Pool::new(pool_len), None),
        }
    }

    /// Creates a station that reassembles with a memory limit of 4 MiB, and with the time-outs of the standards.
    pub fn usual() -> Station {
        Station::joining(USUAL, Late::Retire)
    }

    /// Pushes a frame: Ethernet if `vlans` has tags, otherwise bare IP. Returns the frames that leave.
    pub fn push(&mut self, now: Time, frame: &[u8], header: &Spec) -> Vec<Left> {
        let link_type = if header.vlans.is_none() { LinkType::Ip } else { LinkType::Ethernet };
        self.push_frame(now, frame, link_type, Ingress(header.ingress))
    }

    /// Pushes a bare IP packet.
    pub fn push_ip(&mut self, now: Time, frame: &[u8]) -> Vec<Left> {
        self.push_frame(now, frame, LinkType::Ip, Ingress(0))
    }

    /// Pushes a frame of any link type.
    pub fn push_frame(&mut self, now: Time, frame: &[u8], link_type: LinkType, ingress: Ingress) -> Vec<Left> {
        let packet = Frame::copy(frame, link_type, ingress, &mut self.out.pool);
        let packet = packet.unwrap_or_else(|unfit| panic!("{unfit:?}: {frame:02x?}"));
        self.side.push(now, packet, &mut self.connections, &mut self.out);
        self.checked();
        let left = self.drain();
        self.checked();
        left
    }

    /// Pushes a bare IP packet in two parts, without checks: for tests over billions of bytes.
    pub fn push_parts(&mut self, now: Time, header: &[u8], payload: &[u8]) {
        let packet = self.packet_of(header, payload);
        self.side.push(now, packet, &mut self.connections, &mut self.out);
    }

    /// A bare IP packet in a buffer of this station's pool.
    pub fn packet_of(&mut self, header: &[u8], payload: &[u8]) -> Packet {
        let len = header.len() + payload.len();
        let mut buffer = self.out.pool.allocate(len).expect("the pool has room for what this law holds");
        buffer.put(HEADROOM, header);
        buffer.put(HEADROOM + header.len(), payload);
        let link = Link::parse(LinkType::Ip, header).expect("nothing stands in front of it");
        match Frame::parse(buffer, len, link, Ingress(0)) {
            Frame::Ip(packet) => packet,
            Frame::Other(_, unfit) => panic!("{unfit:?}"),
        }
    }

    /// Expires late datagrams and returns the frames that leave.
    pub fn expire(&mut self, now: Time) -> Vec<Left> {
        self.side.expire(now, &mut self.connections, &mut self.out);
        self.checked();
        let left = self.drain();
        self.checked();
        left
    }

    /// Flushes all held fragments and returns the frames that leave.
    pub fn flush(&mut self, now: Time) -> Vec<Left> {
        self.side.flush(now, &mut self.connections, &mut self.out);
        self.checked();
        let left = self.drain();
        self.checked();
        assert_eq!(self.out.pool.in_use_count(), 0, "after the end nothing is held");
        left
    }

    /// Takes the sent packets, as on the wire.
    pub fn drain(&mut self) -> Vec<Left> {
        let mut left = Vec::new();
        while let Some(packet) = self.out.next() {
            let cut = packet.fragmentation.is_some();
            let wire_count = packet.wire_count();
            let before = left.len();
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                let frame = [fragment.header, fragment.payload].concat();
                assert_eq!(frame.len(), fragment.frame_len());
                left.push(Left { frame, ip_at: packet.link().len(), ingress: packet.ingress().0, cut });
            }
            assert_eq!(left.len() - before, wire_count, "a packet stands for as many as it says");
            let sparse = packet.fragmentation.is_some_and(|cut| cut.content == Content::Sparse);
            assert!(sparse || wire_count > 0, "a packet stands for one at least");
            self.out.recycle(packet);
        }
        left
    }

    /// Checks the laws that hold between any two packets.
    pub fn checked(&self) {
        self.side.check(&self.out).unwrap_or_else(|broken| panic!("{broken}"));
        if let Some(reassembler) = &self.side.aggregation.reassembler {
            let held = reassembler.held();
            assert!(held.1 <= held.0.packets as usize, "a run holds one piece at least");
        }
    }
}

impl Left {
    /// The packet, from its IP header on.
    pub fn ip(&self) -> &[u8] {
        &self.frame[self.ip_at..]
    }

    /// The key of its datagram.
    pub fn key(&self) -> Key {
        Key::of_seen(&ReadPacket::read(&self.frame, self.ip_at), self.ingress)
    }
}

/// Returns the time this long after the origin.
pub fn at(stretch: Duration) -> Time {
    Time::ZERO + stretch
}

/// The secret for tables and IDs; no law depends on it.
pub const SECRET: u128 = 0x0123_4567_89AB_CDEF_1122_3344_5566_7788;
/// The default limits of a table: 4 MiB, with the time-outs of the standards.
pub const USUAL: Limits = Limits { bytes: 4 << 20, timeout: None };
/// Memory for packets in processing, in bytes.
pub const ROOM: usize = 16 << 20;
