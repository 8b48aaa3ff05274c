//! One side of the engine with its output and a clock, and the packets that most tests push through it.

use std::time::Duration;
pub use testkit::fields::*;
pub use testkit::{
    HOST_V4, HOST_V6, PEER_V6, ReadPacket, Spec, Summed, chain, extension, host, ip, orders, pattern, seal_ip,
    seed_count, sum, tcp, udp,
};
use wideload_engine::WirePackets;
use wideload_engine::packet::{CopyError, Frame, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Aggregation, Connections, Event, IcmpResponder, Identifiers, Late, Limits, Output, Reason, Reassembler, Role,
    Secret, Side, Sizing,
};

/// One side of the engine, with its output and a clock.
pub struct Rig {
    pub side: Side,
    pub connections: Connections,
    pub out: Output,
    pub now: Time,
    pub link_type: LinkType,
    pub ingress: Ingress,
}

impl Rig {
    /// A side with this MTU and role. With `late` it has the reassembler of a host or of a gateway in transit.
    pub fn new(mtu: u16, role: Role, late: Option<Late>) -> Rig {
        Rig::with_limits(mtu, role, late, Limits { bytes: 16 << 20, timeout: None })
    }

    pub fn with_limits(mtu: u16, role: Role, late: Option<Late>, limits: Limits) -> Rig {
        let reassembler = late.map(|late| Reassembler::new(limits, late, secret()));
        let answers = IcmpResponder::new([ROUTER_V4.into(), ROUTER_V6.into()], 1_000_000_000, 1_000, secret());
        Rig {
            side: Side::of(Aggregation { reassembler, ..Aggregation::default() }, Sizing::new(mtu, role)),
            connections: Connections::new(Secret::new(7)),
            out: Output::new(Pool::new(64 << 20), Some(answers)),
            now: Time::ZERO,
            link_type: LinkType::Ip,
            ingress: Ingress(0),
        }
    }

    /// A host that reassembles and lets any length pass.
    pub fn host() -> Rig {
        Rig::new(u16::MAX, Role::Transit, Some(Late::Retire))
    }

    /// A host's NIC, which fragments the host's packets.
    pub fn card(mtu: u16) -> Rig {
        Rig::new(mtu, Role::Source(identifiers()), None)
    }

    /// A router that does not reassemble.
    pub fn router(mtu: u16) -> Rig {
        Rig::new(mtu, Role::Transit, None)
    }

    /// Pushes one frame and returns the frames that leave at once. Unparsed frames pass and are counted.
    pub fn push(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        match Frame::copy(frame, self.link_type, self.ingress, &mut self.out.pool) {
            Ok(packet) => self.side.push(self.now, packet, &mut self.connections, &mut self.out),
            Err(CopyError::Unparsed(unfit)) => {
                self.out.ledger.pass(Reason::from(unfit), frame.len());
                return vec![frame.to_vec()];
            }
            Err(CopyError::NoBuffer) => panic!("the pool of a test is large enough"),
        }
        self.drain()
    }

    /// Pushes many frames.
    pub fn push_all<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Vec<u8>> {
        frames.into_iter().flat_map(|frame| self.push(frame)).collect()
    }

    /// Advances the time.
    pub fn wait(&mut self, stretch: Duration) -> Vec<Vec<u8>> {
        self.now = self.now + stretch;
        self.side.expire(self.now, &mut self.connections, &mut self.out);
        self.drain()
    }

    /// Ends the input.
    pub fn flush(&mut self) -> Vec<Vec<u8>> {
        self.side.flush(self.now, &mut self.connections, &mut self.out);
        self.drain()
    }

    /// Packets that were dropped or rejected for this reason.
    pub fn retired(&self, reason: Reason) -> u64 {
        self.out.ledger.retired(reason).packets
    }

    /// The count of this event.
    pub fn event(&self, event: Event) -> u64 {
        self.out.ledger.event(event).packets
    }

    /// Held fragments.
    pub fn held(&self) -> u64 {
        self.side.aggregation.held().0.packets
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut wire = Vec::new();
        while let Some(packet) = self.out.next() {
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                wire.push([fragment.header, fragment.payload].concat());
            }
            self.out.recycle(packet);
        }
        self.side.check(&self.out).unwrap();
        wire
    }
}

/// A fragment of either version.
pub fn fragment(version: u8, offset: usize, payload: &[u8], more: bool) -> Vec<u8> {
    ip(version).part(offset, payload, more).bytes()
}

/// A whole datagram of either version.
pub fn whole(version: u8, payload: &[u8]) -> Vec<u8> {
    ip(version).payload(payload).bytes()
}

/// The fragments of a datagram, `room` bytes in each but the last.
pub fn fragments(version: u8, payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    ip(version).payload(payload).parts(room)
}

/// Checks that a whole datagram with this payload is the only frame that left.
#[track_caller]
pub fn assert_whole(wire: &[Vec<u8>], payload: &[u8]) {
    let wire = ReadPacket::all(wire);
    assert_eq!(wire.len(), 1, "one datagram leaves");
    assert!(!wire[0].is_fragment());
    assert!(wire[0].body() == payload, "{} bytes leave as {}", payload.len(), wire[0].body().len());
}

/// Checks that this packet is the only frame that left, byte for byte.
#[track_caller]
pub fn assert_only(wire: &[Vec<u8>], packet: &[u8]) {
    assert_eq!(wire.len(), 1, "one packet leaves");
    assert!(wire[0] == packet, "{:02x?} is not {:02x?}", wire[0], packet);
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

pub const ROUTER_V4: [u8; 4] = [203, 0, 113, 9];
pub const ROUTER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
