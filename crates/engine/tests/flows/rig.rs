//! One side that coalesces, with its output and a clock.

use core::time::Duration;
pub use testkit::fields::*;
pub use testkit::{ReadPacket, Spec, Summed, add, each_seed, extension, host, seal_ip, sum_of, tcp, udp};
use wideload_engine::packet::{Checksum, Frame, Gso, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Aggregation, Coalescer, Connections, Event, Exempt, Hold, Identifiers, LIFETIME, Mode, Output, Role, Rules,
    Secret, SegmentSize, Side, Sizing, Toggle, WirePackets,
};

/// One side that coalesces, with its output and a clock.
pub struct Rig {
    pub side: Side,
    pub connections: Connections,
    pub out: Output,
    pub now: Time,
    pub link_type: LinkType,
    pub ingress: Ingress,
}

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Left {
    /// The frame, before it is divided.
    pub frame: Vec<u8>,
    /// The wire packets of the frame.
    pub wire: Vec<Vec<u8>>,
    pub gso: Option<Gso>,
    pub as_received: bool,
}

impl Rig {
    /// A side that makes GSO packets and lets any length pass.
    pub fn carrying(rules: Rules) -> Rig {
        let sizing = Sizing { gso_packets: SegmentSize::Preserve, ..Sizing::new(u16::MAX, Role::Transit) };
        Rig::new(rules, sizing, 16 << 20)
    }

    /// A side that makes packets of up to `mtu` bytes.
    pub fn resizing(mtu: u16) -> Rig {
        Rig::new(resize(mtu), Sizing::new(mtu, Role::Transit), 16 << 20)
    }

    pub fn new(rules: Rules, sizing: Sizing, limit: usize) -> Rig {
        Rig::exempting(rules, sizing, limit, Vec::new())
    }

    pub fn exempting(rules: Rules, sizing: Sizing, limit: usize, exempt: Vec<Exempt>) -> Rig {
        let coalescer = Coalescer::new(limit, rules, exempt, Secret::new(7));
        let aggregation = Aggregation { coalescer: Some(coalescer), ..Aggregation::default() };
        Rig {
            side: Side::of(aggregation, sizing),
            connections: Connections::new(Secret::new(7)),
            out: Output::new(Pool::new(2 * limit + (64 << 20)), None),
            now: Time::ZERO,
            link_type: LinkType::Ip,
            ingress: Ingress(0),
        }
    }

    pub fn ethernet(self) -> Rig {
        Rig { link_type: LinkType::Ethernet, ..self }
    }

    /// Pushes a packet and returns the packets that leave at once. A partial checksum is marked as such.
    pub fn push(&mut self, spec: &Spec) -> Vec<Left> {
        let checksum = if spec.sum == Summed::Half { Checksum::Partial } else { Checksum::Unverified };
        self.push_frame(&spec.bytes(), checksum)
    }

    pub fn push_all<'a>(&mut self, specs: impl IntoIterator<Item = &'a Spec>) -> Vec<Left> {
        specs.into_iter().flat_map(|spec| self.push(spec)).collect()
    }

    pub fn push_frame(&mut self, frame: &[u8], checksum: Checksum) -> Vec<Left> {
        let packet = Frame::copy(frame, self.link_type, self.ingress, &mut self.out.pool);
        let mut packet = packet.unwrap_or_else(|unfit| panic!("{unfit:?}: {frame:02x?}"));
        packet.checksum = checksum;
        self.side.push(self.now, packet, &mut self.connections, &mut self.out);
        self.drain()
    }

    /// Advances the time, and expires held packets at their deadlines.
    pub fn wait_until(&mut self, moment: Time) -> Vec<(Time, Left)> {
        let mut left = Vec::new();
        while let Some(deadline) = self.side.next_deadline().filter(|deadline| *deadline <= moment) {
            assert!(deadline >= self.now, "nothing is held past its deadline");
            self.now = deadline;
            self.side.expire(deadline, &mut self.connections, &mut self.out);
            left.extend(self.drain().into_iter().map(|packet| (deadline, packet)));
            assert!(self.side.next_deadline().is_none_or(|next| next > deadline), "what is late has left");
        }
        self.now = moment;
        left
    }

    pub fn wait(&mut self, stretch: Duration) -> Vec<Left> {
        self.wait_until(self.now + stretch).into_iter().map(|(_, left)| left).collect()
    }

    /// A pause of the port: held bursts leave.
    pub fn release(&mut self) -> Vec<Left> {
        self.side.release(self.now, &mut self.connections, &mut self.out);
        self.drain()
    }

    /// The end of the input.
    pub fn flush(&mut self) -> Vec<Left> {
        self.side.flush(self.now, &mut self.connections, &mut self.out);
        let left = self.drain();
        assert_eq!(self.out.pool.in_use_count(), 0, "after the end nothing is held");
        left
    }

    pub fn coalescer(&self) -> &Coalescer {
        self.side.aggregation.coalescer.as_ref().expect("it coalesces")
    }

    pub fn count(&self, event: Event) -> u64 {
        self.out.ledger.event(event).packets
    }

    fn drain(&mut self) -> Vec<Left> {
        self.check();
        let mut left = Vec::new();
        while let Some(packet) = self.out.next() {
            let mut wire = Vec::new();
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                wire.push([fragment.header, fragment.payload].concat());
            }
            assert_eq!(wire.len(), packet.wire_count(), "a packet stands for as many as it says");
            let (gso, as_received) = (packet.gso, packet.is_as_received());
            left.push(Left { frame: packet.frame().to_vec(), wire, gso, as_received });
            self.out.recycle(packet);
        }
        self.check();
        left
    }

    fn check(&self) {
        self.side.check(&self.out).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// The packets on the wire.
pub fn wire(left: Vec<Left>) -> Vec<Vec<u8>> {
    left.into_iter().flat_map(|left| left.wire).collect()
}

pub fn reversible() -> Rules {
    Rules { mode: Mode::Reversible, hold: Hold::Adaptive, len_max: u16::MAX, longer: Toggle::On, udp: true }
}

pub fn resize(len_max: u16) -> Rules {
    Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max, longer: Toggle::On, udp: false }
}

pub fn source() -> Role {
    Role::Source(Identifiers::new(Secret::new(3), LIFETIME))
}

/// Reads a frame of this link type.
pub fn seen(frame: &[u8], link_type: LinkType) -> ReadPacket {
    if link_type == LinkType::Ethernet { ReadPacket::of_frame(frame) } else { ReadPacket::read(frame, 0) }
}

pub fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}
