//! Frames of a port in, packets out: as a live worker has them go through the engine.

use super::reassemble::SECRET;
use super::ring::frame;
use crate::section::Section;
use crate::wire::{IPV4_LEN, put, seal_ipv4, seal_tcp4};
use engine::{
    Border, Coalescer, FLOW_CHARGE, Hold, Late, Limits, Mode, Mss, Narrowing, Output, Raise, Reassembler, Role, Rules,
    SAFE_LEN, Secret, Side, Switch, Toward, Trains, Way, Widening,
};
use packet::{Frame, HEADROOM, Landed, Packet, Pool, Time};
use std::collections::HashSet;
use std::time::Duration;

/// A side with all that a worker keeps beside it.
pub struct Live {
    side: Side,
    /// Where packets wait for the port; its pool lends their buffers.
    pub out: Output,
    mss: Option<Mss>,
    landed: Vec<Landed>,
}

impl Live {
    /// Toward the host of a wide interface, which holds so many bytes of fragments, and as many of segments.
    pub fn host(limit: usize, pool: Pool) -> Live {
        let secret = Secret::new(SECRET);
        let limits = Limits { bytes: limit, patience: None };
        let widening = Widening {
            reassembler: Some(Reassembler::new(limits, Late::Retire, secret)),
            coalescer: Some(coalescer(limit, u16::MAX)),
            ..Widening::default()
        };
        let narrowing = Narrowing::new(u16::MAX, Role::Helper);
        Live { side: Side { widening, narrowing }, out: Output::new(pool, None), mss: None, landed: Vec::new() }
    }

    /// Toward the wide side of a border, whose packets are this long at most.
    pub fn border(limit: usize, len_max: u16, flows: usize, pool: Pool) -> Live {
        let border =
            Border { wide_mtu: len_max, narrow_mtu: NARROW_MTU, raise: Raise::BothWays, safe_len: SAFE_LEN };
        let narrowing = Narrowing {
            trains: Trains::ResizedWhereKnown,
            unknown_len_max: border.unknown_len_max(Toward::Wide),
            ..Narrowing::new(len_max, Role::Transit)
        };
        let widening = Widening { coalescer: Some(coalescer(limit, len_max)), ..Widening::default() };
        let mss = Mss::new((2 * flows + FLOWS_MORE) * FLOW_CHARGE, border, Secret::new(SECRET));
        Live { side: Side { widening, narrowing }, out: Output::new(pool, None), mss: Some(mss), landed: Vec::new() }
    }

    /// Takes a batch, and delivers what leaves.
    #[inline(always)]
    pub fn push(&mut self, now: Time, frames: &mut Vec<Frame>, deliver: impl FnMut(&Packet)) -> usize {
        let Live { side, out, mss, landed } = self;
        side.bet(&mut out.pool).settle(now, landed, frames, out, |_, _| {});
        for frame in frames.drain(..) {
            let Frame::Ip(mut packet) = frame else { panic!("all frames are packets") };
            if let Some(mss) = mss {
                mss.see(now, &mut packet, Toward::Wide, &mut out.ledger);
            }
            side.push(now, packet, out);
        }
        self.drain(deliver)
    }

    /// Lets go of the segments that are held.
    #[inline(always)]
    pub fn release(&mut self, now: Time, deliver: impl FnMut(&Packet)) -> usize {
        self.side.release(now, &mut self.out);
        self.drain(deliver)
    }

    /// Gives up what is late, and forgets it.
    pub fn expire(&mut self, now: Time) {
        if let Some(mss) = &mut self.mss {
            mss.expire(now);
        }
        self.side.expire(now, &mut self.out);
        self.drain(|_| {});
    }

    /// Sees the handshake of each connection of a section, so that it is known how long its segments may become.
    pub fn open_flows(&mut self, now: Time, section: &Section, mss_max: u16) {
        let mut seen = HashSet::new();
        for packet in section.packets() {
            let name = [&packet[12..IPV4_LEN], &packet[IPV4_LEN..IPV4_LEN + 4]].concat();
            if !seen.insert(name) {
                continue;
            }
            let [syn, answer] = handshake(packet, mss_max);
            self.see(now, &syn, Toward::Wide);
            self.see(now, &answer, Toward::Narrow);
        }
    }

    fn see(&mut self, now: Time, bytes: &[u8], toward: Toward) {
        let Live { out, mss, .. } = self;
        let Some(mss) = mss else { return };
        let mut buffer = out.pool.lend(bytes.len()).expect("the pool has room for one more");
        buffer.put(HEADROOM, bytes);
        let Frame::Ip(mut packet) = frame((buffer, bytes.len())) else { panic!("a SYN is a packet") };
        mss.see(now, &mut packet, toward, &mut out.ledger);
        out.done(packet);
    }

    #[inline(always)]
    fn drain(&mut self, mut deliver: impl FnMut(&Packet)) -> usize {
        let mut count = 0;
        while let Some(way) = self.out.next_way() {
            let (Way::Forward(packet) | Way::Answer(packet)) = way;
            deliver(&packet);
            self.out.done(packet);
            count += 1;
        }
        count
    }
}

/// A live border holds by the adaptive rule; here all that is held leaves when it is told to.
fn coalescer(limit: usize, len_max: u16) -> Coalescer {
    let hold = Hold::Fixed(Duration::from_secs(1));
    let rules = Rules { mode: Mode::Resize, hold, len_max, longer: Switch::On, udp: false };
    Coalescer::new(limit, rules, Vec::new(), Secret::new(SECRET))
}

/// The SYN that opened the connection of this segment over IPv4, and what answered it.
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

/// The link on the other side of a border, in bytes.
const NARROW_MTU: u16 = 1_500;
/// Connections that a border remembers beside those that pass.
const FLOWS_MORE: usize = 1_024;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
