//! A burst of segments and datagrams -> the GSO packets that the kernel's GRO makes, beside those of the engine.
//!
//! The comparison with the kernel has three parts; this part compares coalescing. `merging_model.rs` explains
//! differences.

use super::merging_model::explain;
use super::{Bench, Kind, Known, Verdict};
use crate::experiments::forwarder::{Forwarder, HostOffload, StopAfter};
use crate::experiments::wire::{
    ACK, CWR, ECE, FIN, Filled, Ip, Options, PSH, RST, SYN, TransportFacts, URG, one_hop_on, put_content, put_upper,
};
use engine::{
    Batch, Egress, Gateway, GatewaySettings, Holding, Mode, Position, Secret, Secrets, SegmentSize, SideSettings,
    WirePackets,
};
use fastrand::Rng;
use packet::{Ingress, LinkType, Packet, Pool, Sum, Time, Version};
use port::{TxFrame, TxOffload};
use std::fmt::Write;
use std::io;
use std::time::Duration;

/// Packets of several flows, in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub packets: Vec<Drawn>,
    pub flow_count: usize,
}

/// One generated packet of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub flow: usize,
    pub ip: Ip,
    pub upper: TransportFacts,
    pub content: u32,
    pub len: u16,
    pub filled: Filled,
    pub option_words: u8,
    pub padding: u8,
}

/// The kernel between two TUN devices, and the engines to compare.
pub(super) struct Merging {
    forwarder: Forwarder,
    reversible: Gateway,
    resizing: Gateway,
    now: Time,
    number: u16,
}

/// Output of one flow: wire packets, and the number of wire packets in each GSO packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowOutput {
    pub packets: Vec<Vec<u8>>,
    pub gso_packets: Vec<usize>,
}

impl Bench for Merging {
    type Case = Case;
    const KIND: Kind = Kind::Merging;

    fn open(rng: &mut Rng) -> io::Result<Merging> {
        let mut gateway = |mode| {
            let side = SideSettings {
                coalesce: Some(mode),
                hold: Holding::Fixed(Duration::from_millis(1)),
                coalesces_udp: true,
                ..SideSettings::new(u16::MAX, Position::Transit)
            };
            // Coalesced packets leave unsegmented.
            let side = SideSettings { segment_size: [SegmentSize::Preserve; 2], ..side };
            let secrets = Secrets::both(Secret::new(rng.u128(..)));
            Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(128 << 20))
        };
        Ok(Merging {
            forwarder: Forwarder::open(HostOffload::Gro)?,
            reversible: gateway(Mode::Reversible),
            resizing: gateway(Mode::Resize),
            now: Time::ZERO,
            number: 0,
        })
    }

    fn draw(rng: &mut Rng) -> Case {
        draw(rng)
    }

    fn compare(&mut self, cases: &[Case]) -> io::Result<Vec<Verdict>> {
        cases.iter().map(|case| self.compare_one(case)).collect()
    }

    fn smaller(case: &Case) -> Vec<Case> {
        let mut smaller = Vec::new();
        for flow in 0..case.flow_count {
            let mut less = case.clone();
            less.packets.retain(|packet| packet.flow != flow);
            smaller.push(less);
        }
        for at in (0..case.packets.len()).rev() {
            let mut less = case.clone();
            less.packets.remove(at);
            smaller.push(less);
        }
        smaller.retain(|less| !less.packets.is_empty() && less.packets.len() < case.packets.len());
        smaller
    }

    fn words(case: &Case) -> String {
        let mut words = String::new();
        for Drawn { flow, ip, upper, len, filled, option_words, padding, .. } in case.packets.iter().take(WORDS_MAX)
        {
            let _ = writeln!(
                words,
                "  flow {flow}: {len} bytes, {upper:?}, checksum {filled:?}, {ip:?}, {option_words} words of IP options, \
                 {padding} bytes of padding"
            );
        }
        if case.packets.len() > WORDS_MAX {
            let _ = writeln!(words, "  and {} more", case.packets.len() - WORDS_MAX);
        }
        words
    }

    fn counts(case: &Case) -> (u64, u64) {
        (1, case.packets.len() as u64)
    }
}

impl Merging {
    fn compare_one(&mut self, case: &Case) -> io::Result<Verdict> {
        let mut verdict = self.compare_once(case)?;
        for _ in 1..TRIES {
            // The kernel's clock may tick during a burst. Then the burst is repeated.
            let is_plain = match &verdict {
                Verdict::Known(known) => !known.contains(&Known::Early),
                Verdict::Same | Verdict::Differs(_) => true,
            };
            if is_plain {
                break;
            }
            verdict = self.compare_once(case)?;
        }
        Ok(verdict)
    }

    fn compare_once(&mut self, case: &Case) -> io::Result<Verdict> {
        // Consecutive bursts have different ports, so they never share a flow.
        self.number = self.number.wrapping_add(1) & 0x0FFF;
        let frames: Vec<Vec<u8>> = case.packets.iter().map(|packet| packet.bytes(self.number)).collect();
        let mut sent = vec![FlowOutput::default(); case.flow_count];
        for (packet, frame) in case.packets.iter().zip(&frames) {
            let mut frame = frame[..frame.len() - usize::from(packet.padding)].to_vec();
            one_hop_on(&mut frame);
            sent[packet.flow].packets.push(frame);
        }
        let kernel = self.ask_kernel(&frames, case.flow_count)?;
        let reversible = ask_engine(&mut self.reversible, &mut self.now, &frames, case.flow_count);
        let resizing = ask_engine(&mut self.resizing, &mut self.now, &frames, case.flow_count);
        let mut told = Vec::new();
        for (flow, sent) in sent.iter().enumerate() {
            let packets: Vec<&Drawn> = case.packets.iter().filter(|packet| packet.flow == flow).collect();
            match judge(&packets, sent, &kernel[flow], &reversible[flow], &resizing[flow]) {
                Ok(known) => told.extend(known),
                Err(what) => return Ok(Verdict::Differs(format!("flow {flow}: {what}"))),
            }
        }
        Ok(if told.is_empty() { Verdict::Same } else { Verdict::Known(told) })
    }

    fn ask_kernel(&mut self, frames: &[Vec<u8>], flow_count: usize) -> io::Result<Vec<FlowOutput>> {
        for frame in frames {
            let wire = TxFrame { header: frame, payload: &[], offload: TxOffload::default() };
            let _ = self.forwarder.send(wire);
        }
        let (mut left, mut count) = (vec![FlowOutput::default(); flow_count], 0);
        let number = self.number;
        self.forwarder.receive(|packet| {
            if let Some(flow) = flow_of(packet, number).and_then(|flow| left.get_mut(flow)) {
                count += flow.take(packet);
            }
            if count >= frames.len() { StopAfter::Yes } else { StopAfter::No }
        })?;
        Ok(left)
    }
}

/// Returns the known differences between the outputs of one flow. The error describes a difference that is not
/// known.
fn judge(
    packets: &[&Drawn],
    sent: &FlowOutput,
    kernel: &FlowOutput,
    reversible: &FlowOutput,
    resizing: &FlowOutput,
) -> Result<Vec<Known>, String> {
    if reversible.packets != sent.packets {
        return Err(unlike("splitting the coalesced packets does not restore the input", reversible, sent));
    }
    if resizing.packets != sent.packets {
        if received(sent) != received(resizing) {
            return Err(unlike("resizing changes the stream", resizing, sent));
        }
        if contradicts(sent, resizing) {
            return Err(unlike("resizing changes an acknowledgement or a timestamp", resizing, sent));
        }
    }
    explain(packets, sent, kernel, reversible)
}

fn ask_engine(gateway: &mut Gateway, now: &mut Time, frames: &[Vec<u8>], flow_count: usize) -> Vec<FlowOutput> {
    *now = *now + Duration::from_secs(2);
    gateway.expire(*now);
    let mut left = vec![FlowOutput::default(); flow_count];
    let mut batch = Batch::default();
    for frame in frames {
        let pool = &mut gateway.output_mut(0).pool;
        batch.receive(frame, LinkType::Ip, Ingress(0), None, pool);
        gateway.push(*now, 0, &mut batch);
    }
    gateway.release(*now, 0);
    while let Some(direction) = gateway.next(0) {
        match direction {
            Egress::Forward(mut packet) | Egress::IcmpReply(mut packet) => {
                if let Some(flow) = left.get_mut(flow_at(&packet)) {
                    flow.take(&mut packet);
                }
                gateway.recycle(0, packet);
            }
            Egress::PassThrough(raw, _) => gateway.output_mut(0).pool.give(raw.into_buffer()),
        }
    }
    for packet in left.iter_mut().flat_map(|left| &mut left.packets) {
        one_hop_on(packet);
    }
    left
}

impl FlowOutput {
    /// Adds a packet or GSO packet to the output. Returns the number of its wire packets.
    fn take(&mut self, packet: &mut Packet) -> usize {
        if packet.gso.is_none() {
            packet.complete_checksum();
        }
        let mut fragments = WirePackets::of(packet);
        let before = self.packets.len();
        while let Some(fragment) = fragments.next() {
            let mut bytes = [fragment.header, fragment.payload].concat();
            bytes.truncate(wire_len(&bytes));
            self.packets.push(bytes);
        }
        let count = self.packets.len() - before;
        self.gso_packets.push(count);
        count
    }
}

/// Returns the length of a packet without frame padding, in bytes.
fn wire_len(bytes: &[u8]) -> usize {
    match bytes[0] >> 4 {
        4 => usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
        _ => 40 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]])),
    }
}

/// Returns the flow of a packet; `None` if the packet is not from this burst.
fn flow_of(packet: &Packet, number: u16) -> Option<usize> {
    let (source_port, flow) = ports(packet.bytes())?;
    (source_port == FIRST_PORT + number).then_some(flow)
}

fn flow_at(packet: &Packet) -> usize {
    ports(packet.bytes()).map_or(usize::MAX, |(_, flow)| flow)
}

fn ports(bytes: &[u8]) -> Option<(u16, usize)> {
    let at = upper_at(bytes);
    let word = |at: usize| bytes.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    Some((word(at)?, usize::from(word(at + 2)?.checked_sub(FIRST_PORT)?)))
}

fn upper_at(bytes: &[u8]) -> usize {
    if bytes[0] >> 4 == 4 { usize::from(bytes[0] & 15) * 4 } else { 40 }
}

/// Data that a receiver gets from the packets of a flow.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    datagrams: Vec<Vec<u8>>,
    /// Received bytes of a stream by sequence number; `None` for bytes that did not arrive.
    bytes: Vec<Option<u8>>,
    /// TCP flags, each with the relative sequence number after the segment's payload.
    flags: Vec<(u32, u8)>,
}

/// Fields of a TCP segment that its receiver uses.
struct Segment<'a> {
    seq: u32,
    payload: &'a [u8],
    flags: u8,
    ack: u32,
    stamps: Option<[u32; 2]>,
}

/// Returns the TCP segments of a flow that have a correct checksum.
fn segments(left: &FlowOutput) -> impl Iterator<Item = Segment<'_>> {
    left.packets.iter().filter_map(|packet| {
        let at = upper_at(packet);
        (protocol(packet) != UDP && is_right(packet, at)).then(|| Segment::read(&packet[at..]))
    })
}

impl Segment<'_> {
    fn read(upper: &[u8]) -> Segment<'_> {
        let word = |at: usize| u32::from_be_bytes([upper[at], upper[at + 1], upper[at + 2], upper[at + 3]]);
        let (header, payload) = upper.split_at(usize::from(upper[12] >> 4) * 4);
        let has_stamps = header.get(20..24) == Some(&STAMPS);
        let stamps = has_stamps.then(|| [word(24), word(28)]);
        Segment { seq: word(4), payload, flags: upper[13], ack: word(8), stamps }
    }

    fn shares_bytes_with(&self, other: &Segment<'_>) -> bool {
        let (ahead, lens) = (other.seq.wrapping_sub(self.seq) as i32, [self.payload.len(), other.payload.len()]);
        !lens.contains(&0) && ahead < lens[0] as i32 && -ahead < lens[1] as i32
    }

    /// Whether the segment's acknowledgement or timestamp echo is older than the other segment's, or its timestamp
    /// newer.
    fn contradicts(&self, other: &Segment<'_>) -> bool {
        let is_older = |one: u32, other: u32| (one.wrapping_sub(other) as i32) < 0;
        let by_stamps = |([value, echo], [others_value, others_echo]): ([u32; 2], [u32; 2])| {
            is_older(others_value, value) || is_older(echo, others_echo)
        };
        is_older(self.ack, other.ack) || self.stamps.zip(other.stamps).is_some_and(by_stamps)
    }
}

/// Whether bytes arrive with an older acknowledgement or echo, or with a newer timestamp, than they were sent with
/// (R135). False if some bytes were sent twice, because the answer is then unknown.
fn contradicts(sent: &FlowOutput, came: &FlowOutput) -> bool {
    let sent: Vec<Segment> = segments(sent).collect();
    let left_twice = |(at, one): (usize, &Segment)| sent[at + 1..].iter().any(|other| one.shares_bytes_with(other));
    let is_untrue = |came: &Segment| sent.iter().any(|sent| came.shares_bytes_with(sent) && came.contradicts(sent));
    !sent.iter().enumerate().any(left_twice) && segments(came).any(|came| is_untrue(&came))
}

/// Returns the data that a receiver gets from packets of one flow. TCP segments with a wrong checksum are ignored.
fn received(left: &FlowOutput) -> Received {
    let datagrams = left.packets.iter().filter(|packet| protocol(packet) == UDP);
    let datagrams = datagrams.map(|packet| packet[upper_at(packet)..].to_vec()).collect();
    let mut received = Received { datagrams, ..Received::default() };
    let parts: Vec<(u32, &[u8], u8)> =
        segments(left).map(|it| (it.seq, it.payload, it.flags & (FIN | RST | SYN))).collect();
    let Some(origin) = parts.first().map(|(seq, ..)| *seq) else { return received };
    let Some(base) = parts.iter().map(|(seq, ..)| seq.wrapping_sub(origin) as i32).min() else { return received };
    let base = origin.wrapping_add_signed(base);
    for (seq, payload, flags) in parts {
        let start = seq.wrapping_sub(base) as usize;
        let end = start + payload.len();
        if received.bytes.len() < end {
            received.bytes.resize(end, None);
        }
        for (place, byte) in received.bytes[start..end].iter_mut().zip(payload) {
            place.get_or_insert(*byte);
        }
        if flags != 0 {
            received.flags.push((end as u32, flags));
        }
    }
    received.flags.sort_unstable();
    received.flags.dedup();
    received
}

fn protocol(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[9] } else { packet[6] }
}

fn is_right(packet: &[u8], at: usize) -> bool {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let len = ((packet.len() - at) as u32).to_be_bytes();
    let pseudo = [addresses, &len, &[0, 0, 0, protocol(packet)]].concat();
    (Sum::of(&pseudo) + Sum::of(&packet[at..])).is_right()
}

pub(super) fn unlike(what: &str, one: &FlowOutput, other: &FlowOutput) -> String {
    let at = one.packets.iter().zip(&other.packets).position(|(one, other)| one != other);
    let at = at.unwrap_or(one.packets.len().min(other.packets.len()));
    let shown = |left: &FlowOutput| {
        left.packets.get(at).map(|it| format!("{} bytes {:02x?}", it.len(), &it[..it.len().min(64)]))
    };
    format!(
        "{what}: packet {at} of {} and {}: {:?}, {:?}",
        one.packets.len(),
        other.packets.len(),
        shown(one),
        shown(other)
    )
}

impl Drawn {
    fn bytes(&self, number: u16) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::from(self.len) + 128);
        let upper = TransportFacts { ports: [FIRST_PORT + number, FIRST_PORT + self.flow as u16], ..self.upper };
        let front = vec![1; usize::from(self.option_words) * 4];
        put_upper(&mut bytes, (&self.ip, &front, upper.protocol()), &upper, self.filled, |to| {
            let at = if upper.is_tcp { upper.seq as usize } else { 0 };
            put_content(to, self.content, at, self.len.into());
        });
        bytes.extend(std::iter::repeat_n(0, self.padding.into()));
        bytes
    }
}

fn draw(rng: &mut Rng) -> Case {
    let flow_count = [1, 1, 2, 3][rng.usize(..4)];
    let mut packets: Vec<Drawn> = Vec::new();
    for flow in 0..flow_count {
        let own = draw_flow(rng, flow);
        let mut at = 0;
        for packet in own {
            at = if rng.bool() { packets.len() } else { rng.usize(at..=packets.len()) };
            packets.insert(at, packet);
            at += 1;
        }
    }
    Case { packets, flow_count }
}

fn draw_flow(rng: &mut Rng, flow: usize) -> Vec<Drawn> {
    let is_tcp = rng.u8(..4) > 0;
    let version = if rng.bool() { Version::V4 } else { Version::V6 };
    let ip = Ip {
        version,
        source: rng.u32(..1 << 8),
        destination: rng.u8(1..),
        class: rng.u8(..),
        hops: rng.u8(2..),
        flow: rng.u32(..),
        id: if rng.u8(..8) == 0 { u16::MAX - rng.u16(..4) } else { rng.u16(..) },
        flags_offset: if rng.bool() { 1 << 14 } else { 0 },
    };
    let options = match rng.u8(..4) {
        0 => Options::None,
        1 => Options::Sack(rng.u32(..)),
        _ => Options::Stamps(rng.u32(..), rng.u32(..)),
    };
    let upper = TransportFacts {
        is_tcp,
        ports: [0; 2],
        seq: if rng.u8(..8) == 0 { u32::MAX - rng.u32(..3_000) } else { rng.u32(..) },
        ack: rng.u32(..),
        flags: ACK | if rng.u8(..8) == 0 { ECE } else { 0 },
        window: rng.u16(..),
        urgent: 0,
        options,
    };
    let usual = if rng.u8(..8) == 0 { rng.u16(1_400..9_000) } else { rng.u16(8..600) };
    let mut next = Drawn {
        flow,
        ip,
        upper,
        content: rng.u32(..),
        len: usual,
        filled: Filled::Right,
        option_words: 0,
        padding: 0,
    };
    let step = u16::from(rng.u8(..4) > 0);
    let (is_odd, count) = (rng.bool(), if rng.u8(..32) == 0 { rng.usize(20..160) } else { rng.usize(1..9) });
    let mut packets = Vec::new();
    for _ in 0..count {
        let mut packet = next;
        if is_odd && rng.u8(..4) == 0 {
            oddity(rng, &mut packet, &mut next, usual);
        }
        packets.push(packet);
        next.upper.seq = packet.upper.seq.wrapping_add(packet.len.into());
        next.ip.id = packet.ip.id.wrapping_add(step);
    }
    if is_odd && packets.len() > 2 && rng.u8(..6) == 0 {
        let (one, other) = (rng.usize(..packets.len()), rng.usize(..packets.len()));
        packets.swap(one, other);
    }
    if is_odd && rng.u8(..8) == 0 {
        let (one, to) = (packets[rng.usize(..packets.len())], rng.usize(..=packets.len()));
        packets.insert(to, one);
    }
    // Close the flow, so that no hold time is spent.
    if is_tcp {
        next.upper.flags = RST | ACK;
        packets.push(Drawn { len: 0, ..next });
    } else {
        packets.push(Drawn { len: usual + 8, ..next });
        next.ip.id = next.ip.id.wrapping_add(1);
        packets.push(Drawn { len: 1, ..next });
    }
    packets
}

/// Makes a packet differ from the previous one. Some differences also apply to later packets of the flow.
fn oddity(rng: &mut Rng, packet: &mut Drawn, next: &mut Drawn, usual: u16) {
    let stays = rng.bool();
    match rng.u8(..22) {
        0 => packet.len = rng.u16(1..=usual),
        1 => packet.len = usual + rng.u16(1..200),
        2 => packet.len = if packet.upper.is_tcp { 0 } else { 1 },
        3 => packet.upper.flags |= PSH,
        4 => packet.upper.flags |= FIN,
        5 => packet.upper.flags |= CWR,
        6 => packet.upper.flags ^= ECE,
        7 => (packet.upper.flags, packet.upper.urgent) = (packet.upper.flags | URG, 3),
        8 => packet.upper.window = packet.upper.window.wrapping_add(rng.u16(1..)),
        9 => packet.upper.ack = packet.upper.ack.wrapping_add(rng.u32(1..5_000)),
        10 => {
            packet.upper.options = match packet.upper.options {
                Options::Stamps(value, echo) => {
                    Options::Stamps(value.wrapping_add(rng.u32(..3)), echo.wrapping_add(rng.u32(..3)))
                }
                _ => Options::Unknown(rng.u8(..2)),
            }
        }
        11 => packet.ip.id = packet.ip.id.wrapping_add(rng.u16(..4)),
        12 => packet.ip.flags_offset ^= 1 << 14,
        13 => packet.ip.hops = packet.ip.hops.wrapping_add(1).max(2),
        14 => packet.ip.class ^= 1 << rng.u8(..8),
        15 => packet.ip.flow ^= 1 << rng.u8(..20),
        16 => packet.filled = Filled::Wrong,
        17 => packet.filled = if packet.upper.is_tcp { Filled::Wrong } else { Filled::Zero },
        18 => packet.upper.seq = packet.upper.seq.wrapping_add(rng.u32(..3_000)).wrapping_sub(1_000),
        19 if packet.ip.version == Version::V4 => packet.option_words = 1,
        20 => packet.padding = rng.u8(1..30),
        _ => packet.upper.flags |= SYN,
    }
    if stays {
        let Drawn { ip, upper, filled, .. } = *packet;
        next.ip = ip;
        next.filled = filled;
        next.upper = TransportFacts { flags: upper.flags & !(SYN | FIN | PSH), ..upper };
    }
}

const UDP: u8 = 17;
/// First bytes of a timestamps option, padded as Linux does (RFC 7323, appendix A).
const STAMPS: [u8; 4] = [1, 1, 8, 10];
/// Number of packets of a case that its description lists.
const WORDS_MAX: usize = 40;
/// Number of tries for a burst during which the kernel's clock ticked.
const TRIES: usize = 3;
/// First UDP or TCP port of the bursts.
const FIRST_PORT: u16 = 20_000;
