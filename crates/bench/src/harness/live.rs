//! Frames of a port -> packets, through the engine as in live operation.
//!
//! The measurement includes the complete gateway with time-outs and limits, but no ports.

use super::reassemble::SECRET;
use super::ring::frame;
use crate::section::Section;
use crate::wire::{IPV4_LEN, put, seal_ipv4, seal_tcp4};
use engine::{
    BURST_MAX, Batch, Egress, FragmentPolicy, Gateway, GatewayRole, GatewaySettings, Holding, Late, Mode, Position,
    Prefixes, Secret, Secrets, SideSettings, Toward,
};
use packet::{Packet, Pool, Time};
use std::collections::HashSet;

/// A gateway, and the batch that is pushed into it next.
pub struct Live {
    gateway: Gateway,
    /// The frames that [`push`](Self::push) will take.
    pub batch: Batch,
}

impl Live {
    /// Creates the gateway of a host's wide interface. `limit` bounds the held bytes of fragments and, separately,
    /// those of segments.
    pub fn host(limit: usize, pool: Pool) -> Live {
        let mut settings = GatewaySettings::usual(GatewayRole::WideInterface, u16::MAX, NARROW_MTU);
        for side in &mut settings.sides {
            // Segments toward the host's own kernel are coalesced, too, as for a virtual machine behind a TAP
            // device.
            let coalesce = (side.position == Position::Kernel).then_some(Mode::Resize);
            *side = SideSettings { memory: limit, late: Late::Retire, coalesce, ..side.clone() }
                .with_segment_size_for(true);
        }
        Live::new(&settings, pool)
    }

    /// Creates a border gateway whose wide side accepts packets of up to `len_max` bytes. Held packets are sent
    /// only by [`release`](Self::release) and [`flush`](Self::flush).
    pub fn border(limit: usize, len_max: u16, flows: usize, pool: Pool) -> Live {
        let mut settings = GatewaySettings::usual(GatewayRole::Border, len_max, NARROW_MTU);
        settings.flow_count = 2 * flows + FLOWS_MORE;
        for side in &mut settings.sides {
            (side.memory, side.hold) = (limit, Holding::Fixed(BURST_MAX));
        }
        Live::new(&settings, pool)
    }

    /// Creates a router that merges fragments in transit. `mtu` is the MTU of the link to the next hop.
    pub fn router(limit: usize, mtu: u16, pool: Pool) -> Live {
        let mut settings = GatewaySettings::usual(GatewayRole::Router, mtu, NARROW_MTU);
        for side in &mut settings.sides {
            (side.memory, side.policies) = (limit, Prefixes::new(FragmentPolicy::Merge));
        }
        Live::new(&settings, pool)
    }

    fn new(settings: &GatewaySettings, pool: Pool) -> Live {
        let mut pools = [pool, Pool::new(SPARE_LEN)].into_iter().rev();
        let pools = || pools.next().expect("there are two directions");
        let gateway = Gateway::new(settings, Secrets::both(Secret::new(SECRET)), pools);
        Live { gateway, batch: Batch::default() }
    }

    /// Returns the pool of the gateway's buffers.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.gateway.output_mut(TO_WIDE).pool
    }

    /// Pushes the batch and delivers the output. Returns the number of delivered packets.
    #[inline(always)]
    pub fn push(&mut self, now: Time, deliver: impl FnMut(&Packet)) -> usize {
        let Live { gateway, batch } = self;
        // The offered places are not used, as in a worker whose port does not support placement.
        gateway.places(TO_WIDE);
        gateway.push(now, TO_WIDE, batch);
        self.drain(deliver)
    }

    /// Flushes the held segments and delivers them. Returns the number of delivered packets.
    #[inline(always)]
    pub fn release(&mut self, now: Time, deliver: impl FnMut(&Packet)) -> usize {
        self.gateway.release(now, TO_WIDE);
        self.drain(deliver)
    }

    /// Flushes all held packets and delivers them. Returns the number of delivered packets.
    #[inline(always)]
    pub fn flush(&mut self, now: Time, deliver: impl FnMut(&Packet)) -> usize {
        self.gateway.flush(now);
        self.drain(deliver)
    }

    /// Advances the time, so that entries whose time-out has passed are removed. Their packets are discarded.
    pub fn expire(&mut self, now: Time) {
        self.gateway.expire(now);
        self.drain(|_| {});
    }

    /// Forwards the handshake of each connection of a section, so that the gateway knows the size limit of its
    /// segments.
    pub fn open_flows(&mut self, now: Time, section: &Section, mss_max: u16) {
        let mut seen = HashSet::new();
        for packet in section.packets() {
            let name = [&packet[12..IPV4_LEN], &packet[IPV4_LEN..IPV4_LEN + 4]].concat();
            if !seen.insert(name) {
                continue;
            }
            let [syn, answer] = handshake(packet, mss_max);
            self.pass(now, &syn, TO_WIDE);
            self.pass(now, &answer, Toward::Narrow.direction());
        }
    }

    fn pass(&mut self, now: Time, bytes: &[u8], direction: usize) {
        let Live { gateway, batch } = self;
        let pool = &mut gateway.output_mut(direction).pool;
        let mut buffer = pool.allocate(bytes.len()).expect("the pool has room for one more");
        buffer.put(packet::HEADROOM, bytes);
        batch.frames.push(frame((buffer, bytes.len())));
        gateway.push(now, direction, batch);
        while let Some(way) = gateway.next(direction) {
            gateway.recycle(direction, packet_of(way));
        }
    }

    #[inline(always)]
    fn drain(&mut self, mut deliver: impl FnMut(&Packet)) -> usize {
        let mut count = 0;
        while let Some(way) = self.gateway.next(TO_WIDE) {
            let packet = packet_of(way);
            deliver(&packet);
            self.gateway.recycle(TO_WIDE, packet);
            count += 1;
        }
        count
    }
}

#[inline(always)]
fn packet_of(way: Egress) -> Packet {
    match way {
        Egress::Forward(packet) | Egress::IcmpReply(packet) => packet,
        Egress::PassThrough(_, unfit) => panic!("all frames are packets: {unfit:?}"),
    }
}

/// Returns the SYN that opened the IPv4 connection of this segment, and the SYN-ACK.
fn handshake(segment: &[u8], mss: u16) -> [Vec<u8>; 2] {
    let tcp = &segment[IPV4_LEN..];
    let [seq, ack] = [4, 8].map(|at| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]));
    let packet = |addresses: [&[u8]; 2], ports: [&[u8]; 2], seq: u32, ack: u32, flags: u8, mss: u16| {
        let mut bytes = segment[..12].to_vec();
        bytes.extend(addresses.concat());
        bytes.extend(ports.concat());
        bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        bytes.extend([6 << 4, flags, 0xFF, 0xFF, 0, 0, 0, 0, 2, 4, (mss >> 8) as u8, mss as u8]);
        let len = bytes.len() as u16;
        put(&mut bytes, 2, len);
        seal_ipv4(&mut bytes);
        seal_tcp4(&mut bytes);
        bytes
    };
    let [from, to] = [&segment[12..16], &segment[16..20]];
    let [from_port, to_port] = [&tcp[..2], &tcp[2..4]];
    let syn = packet([from, to], [from_port, to_port], seq.wrapping_sub(1), 0, SYN, NARROW_MTU - 40);
    let answer = packet([to, from], [to_port, from_port], ack.wrapping_sub(1), seq, SYN | ACK, mss);
    [syn, answer]
}

/// Index of the measured direction.
const TO_WIDE: usize = Toward::Wide.direction();
/// MTU of the narrow side's link, in bytes.
const NARROW_MTU: u16 = 1_500;
/// Connections that a border can track in addition to the measured ones.
const FLOWS_MORE: usize = 1_024;
/// Memory for packets of the direction that is not measured, in bytes.
const SPARE_LEN: usize = 1 << 20;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
