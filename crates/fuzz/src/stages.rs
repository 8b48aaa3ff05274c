//! A program of segments, fragments, time and hand-overs -> checks of an engine with one direction.
//!
//! The engine's packets must carry the bytes that the hosts sent, fit the link's MTU, keep their order, and agree
//! with the counters. Some inputs put a fair intake before the engine.

use crate::input::Input;
use crate::intake::Intake;
use engine::packet::tcp::{ACK, FIN, PSH, SYN};
use engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Holding, IntakeLimits, Late, Mode,
    PlacementMode, Position, Prefixes, Reason, Secret, Secrets, SegmentPolicy, SegmentSize, SideSettings,
    WirePackets,
};
use packet::{Frame, Ingress, LinkType, Packet, Pool, Time};
use sim::pattern::Pattern;
use sim::wire::{self, Head, TCP, TCP_LEN, WireFacts};
use std::time::Duration;

/// An engine with one direction, and the state of the simulated hosts.
struct Scene {
    gateway: Gateway,
    batch: Batch,
    /// Orders the frames of a batch by flow; `None` = frames are processed in order of arrival.
    intake: Option<Intake>,
    /// Received frames that were not processed yet.
    waiting: Vec<Vec<u8>>,
    shape: StageShape,
    now: Time,
    flows: [Flow; FLOW_COUNT],
    last: Vec<u8>,
    /// Number of packets that exceeded the link's MTU.
    too_long: u64,
}

/// Settings of an engine, chosen by the input.
#[derive(Clone, Copy)]
struct StageShape {
    mtu: u16,
    is_source: bool,
    policies: FragmentPolicy,
    coalesces: Option<Mode>,
    keeps_gso_packets: bool,
    udp: bool,
    hold: Holding,
    guessing: PlacementMode,
    /// Maximum number of frames in a batch.
    batch_len: usize,
    segments: SegmentPolicy,
    room: usize,
    timeout: Duration,
    late: Late,
    /// Bounds of the fair intake, if there is one.
    intake: Option<IntakeLimits>,
}

/// The highest byte of a stream, and the number of bytes out of order, each at ingress and at egress.
#[derive(Clone, Copy, Default)]
struct Flow {
    next: u32,
    top: [u64; 2],
    late: [u64; 2],
}

/// Executes the input as a program.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let shape = StageShape::from_input(&mut input);
    let mut pool = Some(Pool::new(input.one_of(&[1 << 20, 1 << 16, 8 << 20])));
    let secrets = Secrets::both(Secret::new(7));
    let mut scene = Scene {
        gateway: Gateway::new(&shape.settings(), secrets, || pool.take().expect("it has one direction")),
        batch: Batch::default(),
        intake: shape.intake.map(Intake::new),
        waiting: Vec::new(),
        shape,
        now: Time::from_nanos(1_000_000_000),
        flows: [Flow::default(); FLOW_COUNT],
        last: Vec::new(),
        too_long: 0,
    };
    let mut count = 0;
    while !input.is_empty() && count < STEP_COUNT_MAX {
        scene.step(&mut input);
        scene.drain();
        count += 1;
    }
    scene.give();
    scene.empty_intake();
    scene.gateway.flush(scene.now);
    scene.drain();
    assert_eq!(scene.gateway.output(ONLY).pool.in_use_count(), 0, "every buffer comes back");
    for flow in &scene.flows {
        assert!(
            flow.late[1] <= flow.late[0],
            "law 5: {} bytes went out late, {} came so",
            flow.late[1],
            flow.late[0]
        );
    }
}

impl StageShape {
    fn from_input(input: &mut Input<'_>) -> StageShape {
        let mtu = input.one_of(&[1_500, 68, 576, 1_280, 4_000, 9_000, 65_535]);
        let millis = Duration::from_millis(input.one_of(&[30_000, 1, 50]));
        let is_source = input.bit();
        let policies = input.one_of(&[
            FragmentPolicy::Reassemble,
            FragmentPolicy::Merge,
            FragmentPolicy::ReassembleHop,
            FragmentPolicy::Off,
        ]);
        let coalesces = input.one_of(&[Some(Mode::Resize), Some(Mode::Reversible), None]);
        let (keeps_gso_packets, udp, how) = (input.bit(), input.bit(), input.byte());
        let (room, choice) = (input.one_of(&[256 << 10, 16 << 10, 1 << 20]), input.byte());
        let frames = [4, 16, 64, 4_096][usize::from(choice >> 2) % 4];
        let quantum = [1, 300, 3_000, 15_140][usize::from(choice >> 4) % 4];
        let flows = [1_024, 2][usize::from(choice >> 6) % 2];
        let intake = IntakeLimits { frames, quantum, flows, ..IntakeLimits::default() };
        StageShape {
            mtu,
            is_source,
            policies,
            coalesces,
            keeps_gso_packets,
            udp,
            hold: if how & 1 > 0 { Holding::Fixed(Duration::from_millis(5)) } else { Holding::Adaptive },
            guessing: if how & 2 > 0 { PlacementMode::Never } else { PlacementMode::Always },
            batch_len: usize::from(how >> 2) % 8 + 1,
            segments: SEGMENT_POLICIES[usize::from(how >> 5)],
            room,
            timeout: millis,
            late: if choice & 1 > 0 { Late::Retire } else { Late::Release { mtu } },
            intake: (choice & 2 > 0).then_some(intake),
        }
    }

    fn settings(self) -> GatewaySettings {
        let gso_packets = if self.keeps_gso_packets { SegmentSize::Preserve } else { SegmentSize::Maximise };
        GatewaySettings::one(SideSettings {
            memory: self.room,
            policies: Prefixes::new(self.policies),
            fragment_timeout: Some(self.timeout),
            late: self.late,
            merge_timeout: self.timeout,
            placement: self.guessing,
            coalesce: self.coalesces,
            hold: self.hold,
            coalesces_udp: self.udp,
            segment_size: [gso_packets; 2],
            segment_policies: Prefixes::new(self.segments),
            route_mtu_max: Some(u16::MAX),
            ..SideSettings::new(self.mtu, if self.is_source { Position::Source } else { Position::Transit })
        })
    }
}

impl Scene {
    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        match what % 16 {
            0..=6 => {
                let mut frame = self.segment(input);
                if what & 0x80 > 0 && what & 0x40 > 0 {
                    // Behind the addresses, which identify the sender of the bytes.
                    let at = 44.min(frame.len() - 1)
                        + usize::from(input.word()) % (frame.len() - 44.min(frame.len() - 1));
                    frame[at] ^= 1 << (input.byte() & 7);
                }
                self.push(&frame);
                self.last = frame;
            }
            7..=10 => {
                let frame = fragment(input);
                self.push(&frame);
                self.last = frame;
            }
            11 => self.pass_time(Duration::from_micros(u64::from(input.word()) * (u64::from(input.byte()) + 1))),
            12 => {
                self.give();
                self.gateway.release(self.now, ONLY);
            }
            13 => self.hand_over(),
            14 => {
                let frame = input.bytes(usize::from(what >> 4) * 8 + 20);
                // An arbitrary packet must not seem to come from a simulated host, because its bytes are not those
                // of the host.
                if wire::read(frame).is_none_or(|seen| seen.from.is_none()) {
                    self.push(frame);
                }
            }
            _ => {
                let frame = std::mem::take(&mut self.last);
                self.push(&frame);
                self.last = frame;
            }
        }
    }

    fn pass_time(&mut self, stretch: Duration) {
        self.give();
        self.now = self.now + stretch;
        self.gateway.expire(self.now);
        assert!(self.gateway.next_deadline().is_none_or(|at| at > self.now), "law 6: what was late is gone");
    }

    fn hand_over(&mut self) {
        self.give();
        self.empty_intake();
        self.gateway.replace(self.now, &self.shape.settings(), Secrets::both(Secret::new(7)));
    }

    /// Adds an arriving frame to the current batch.
    fn push(&mut self, frame: &[u8]) {
        self.waiting.push(frame.to_vec());
        if self.waiting.len() >= self.shape.batch_len {
            self.give();
        }
    }

    /// Processes the current batch.
    fn give(&mut self) {
        let (mut places, pool) = self.gateway.places(ONLY);
        if self.intake.is_some() {
            // Payloads that wait are not received in their predicted places.
            places = None;
        }
        for frame in self.waiting.drain(..) {
            let is_there = self.batch.receive(&frame, LinkType::Ip, Ingress(1), places.as_mut(), pool);
            if is_there && let Some((flow, seq, len)) = wire::read(&frame).and_then(|seen| stream(&seen, &frame)) {
                self.flows[flow].record(0, seq, len);
            }
        }
        if let Some(intake) = &mut self.intake {
            for frame in intake.exchange(&mut self.batch.frames, self.shape.batch_len) {
                match frame {
                    Frame::Ip(packet) => self.gateway.drop_unpushed(ONLY, packet, Reason::IntakeFull),
                    Frame::Other(raw, _) => self.gateway.output_mut(ONLY).pool.give(raw.into_buffer()),
                }
            }
        }
        self.gateway.push(self.now, ONLY, &mut self.batch);
    }

    /// Processes all frames of the intake.
    fn empty_intake(&mut self) {
        while self.intake.as_ref().is_some_and(|intake| !intake.is_empty()) {
            self.give();
            self.drain();
        }
    }

    /// Generates a segment of a stream: the next in order, or one near it.
    fn segment(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (choice, shape) = (input.byte(), input.byte());
        let number = usize::from(choice) % FLOW_COUNT;
        let len = match shape & 3 {
            0 => 1_448,
            1 => usize::from(input.byte()),
            2 => usize::from(input.word()) % 8_900,
            _ => 536,
        };
        let flow = &mut self.flows[number];
        let place = match shape >> 2 & 3 {
            0 | 1 => flow.next,
            2 => flow.next.saturating_sub(u32::from(input.word())),
            _ => flow.next + u32::from(input.word()),
        };
        flow.next = flow.next.max(place + len as u32);
        let mut flags = ACK | if shape & 16 > 0 { PSH } else { 0 };
        if shape & 0xE0 == 0xE0 {
            flags |= input.byte() & (FIN | SYN | 0x20 | 0xC0);
        }
        let head = Head {
            is_v6: number & 1 > 0,
            from: FROM + number as u16,
            to: TO,
            protocol: TCP,
            dont_fragment: true,
            id: u32::from(place as u16),
            ecn: shape >> 5 & 3,
            fragment: None,
        };
        tcp(&head, place, flags, len)
    }

    /// Takes all packets at egress and checks each.
    fn drain(&mut self) {
        while let Some(direction) = self.gateway.next(ONLY) {
            match direction {
                Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                    self.check_sent(&packet);
                    self.gateway.recycle(ONLY, packet);
                }
                Egress::PassThrough(raw, _) => self.gateway.output_mut(ONLY).pool.give(raw.into_buffer()),
            }
        }
        self.gateway.check(ONLY).expect("law 2");
    }

    fn check_sent(&mut self, packet: &Packet) {
        let mut fragments = WirePackets::of(packet);
        let mut long_segment = LongSegment::default();
        while let Some(fragment) = fragments.next() {
            let bytes = [fragment.header, fragment.payload].concat();
            self.too_long += u64::from(bytes.len() > usize::from(self.shape.mtu));
            let left_alone = self.gateway.ledger(ONLY).event(Event::LeftOversize).packets;
            assert!(
                self.too_long <= left_alone,
                "law 1: {} longer than the link, {left_alone} left alone",
                self.too_long
            );
            let Some(seen) = wire::read(&bytes) else { continue };
            // Routers must not fragment the packets of a stream's sender.
            let is_of_stream = seen.from.is_some_and(|from| (FROM..FROM + FLOW_COUNT as u16).contains(&from));
            let may_be_cut = self.shape.is_source || !is_of_stream;
            assert!(may_be_cut || seen.fragment.is_none(), "law 4: a packet of flow {:?} in pieces", seen.from);
            if let Some((flow, seq, len)) = stream(&seen, &bytes) {
                look_at_segment(&seen, &bytes, flow, seq, len);
                self.flows[flow].record(1, seq, len);
            } else if seen.from.is_some_and(|from| from >= FRAGMENTS_FROM) {
                look_at_fragment(&seen, &bytes);
            } else if is_of_stream {
                long_segment.take(&seen, &bytes, &mut self.flows);
            }
        }
    }
}

/// A segment of a stream that leaves in fragments, one directly behind the other.
#[derive(Default)]
struct LongSegment(Vec<u8>);

impl LongSegment {
    /// Takes the next fragment. Checks the segment after its last one.
    fn take(&mut self, seen: &WireFacts, bytes: &[u8], flows: &mut [Flow]) {
        let Some((offset, more)) = seen.fragment.filter(|_| seen.protocol == TCP) else { return };
        if offset == 0 {
            self.0.clear();
        }
        if offset != self.0.len() {
            // A fragment of a sender that fragments itself.
            return;
        }
        self.0.extend(&bytes[seen.at..seen.end]);
        if more || seen.to != Some(TO) || self.0.len() < TCP_LEN {
            return;
        }
        let flow = usize::from(seen.from.unwrap_or(0) - FROM);
        let header_len = usize::from(self.0[12] >> 4) * 4;
        if header_len >= TCP_LEN
            && header_len <= self.0.len()
            && wire::is_sum_right(seen, FROM + flow as u16, TO, &self.0)
        {
            let (seq, payload) = (wire::long(&self.0, 4), &self.0[header_len..]);
            let wrong = Pattern::new(flow as u64).first_wrong(u64::from(seq), payload);
            assert_eq!(wrong, None, "law 3: byte {wrong:?} of {} at {seq} of flow {flow}", payload.len());
            flows[flow].record(1, seq, payload.len());
        }
    }
}

impl Flow {
    /// Records a range of a stream's bytes at ingress or egress.
    fn record(&mut self, direction: usize, seq: u32, len: usize) {
        let (start, end) = (u64::from(seq), u64::from(seq) + len as u64);
        self.late[direction] += self.top[direction].min(end).saturating_sub(start);
        self.top[direction] = self.top[direction].max(end);
    }
}

/// Checks a segment's payload. A segment with wrong bytes must not have a correct checksum.
fn look_at_segment(seen: &WireFacts, bytes: &[u8], flow: usize, seq: u32, len: usize) {
    let upper = &bytes[seen.at..seen.end];
    if wire::is_sum_right(seen, FROM + flow as u16, TO, upper) {
        let payload = &upper[upper.len() - len..];
        let wrong = Pattern::new(flow as u64).first_wrong(u64::from(seq), payload);
        assert_eq!(wrong, None, "law 3: byte {wrong:?} of {len} at {seq} of flow {flow}");
    }
}

/// Checks a fragment. Merged or not, it must carry the datagram's bytes at its offset.
fn look_at_fragment(seen: &WireFacts, bytes: &[u8]) {
    let from = seen.from.unwrap_or(0);
    let (offset, _) = seen.fragment.unwrap_or((0, false));
    let wrong = Pattern::new(from.into()).first_wrong(offset as u64, &bytes[seen.at..seen.end]);
    assert_eq!(wrong, None, "law 3: byte {wrong:?} behind {offset} of datagram {from}");
}

/// Returns the stream of an unfragmented segment, the offset of the payload in the stream, and its length, in
/// bytes.
fn stream(seen: &WireFacts, bytes: &[u8]) -> Option<(usize, u32, usize)> {
    let flow = seen.from?.checked_sub(FROM).filter(|flow| usize::from(*flow) < FLOW_COUNT)?;
    let upper = bytes.get(seen.at..seen.end).filter(|_| seen.protocol == TCP && seen.fragment.is_none())?;
    let header_len = usize::from(upper.get(12)? >> 4) * 4;
    let is_plain = header_len >= TCP_LEN && header_len <= upper.len() && seen.to == Some(TO);
    is_plain.then(|| (usize::from(flow), wire::long(upper, 4), upper.len() - header_len))
}

/// Builds a TCP packet with `len` bytes of a stream.
fn tcp(head: &Head, place: u32, flags: u8, len: usize) -> Vec<u8> {
    let at = head.header_len();
    let mut frame = vec![0; at + TCP_LEN + len];
    head.write(&mut frame);
    let upper = &mut frame[at..];
    upper[..4].copy_from_slice(&[0x20, 0, 0x20, 1]);
    upper[4..8].copy_from_slice(&place.to_be_bytes());
    upper[8..12].copy_from_slice(&1_u32.to_be_bytes());
    upper[12..16].copy_from_slice(&[0x50, flags, 0xFF, 0xFF]);
    Pattern::new(u64::from(head.from - FROM)).fill(place.into(), &mut upper[TCP_LEN..]);
    let sum = (head.pseudo_sum(TCP_LEN + len) + packet::Sum::of(upper)).checksum();
    upper[16..18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Generates a fragment of one of a few datagrams, at any offset, or an unfragmented datagram.
fn fragment(input: &mut Input<'_>) -> Vec<u8> {
    let (choice, shape) = (input.byte(), input.byte());
    let offset = if shape & 1 > 0 { usize::from(input.word() & 0x1FFF) } else { usize::from(shape >> 3) * 185 } * 8;
    let len = if shape & 2 > 0 { usize::from(input.word()) % 9_000 } else { 1_480 };
    let len = if shape & 4 > 0 { len / 8 * 8 } else { len };
    let from = FRAGMENTS_FROM + u16::from(choice & 7);
    let head = Head {
        is_v6: choice & 8 > 0,
        from,
        to: TO,
        protocol: EXPERIMENT,
        dont_fragment: false,
        id: u32::from(choice & 7) + 100,
        ecn: choice >> 4 & 3,
        fragment: (choice & 0x40 == 0).then_some((offset, shape & 0x80 > 0)),
    };
    let at = head.header_len();
    let mut frame = vec![0; at + len.min(65_535 - at)];
    head.write(&mut frame);
    Pattern::new(from.into()).fill(if head.fragment.is_some() { offset as u64 } else { 0 }, &mut frame[at..]);
    frame
}

/// Segment policies, by three bits of the input.
const SEGMENT_POLICIES: [SegmentPolicy; 8] = [
    SegmentPolicy::Segment,
    SegmentPolicy::Fragment,
    SegmentPolicy::Dynamic,
    SegmentPolicy::Lan,
    SegmentPolicy::LanSlow,
    SegmentPolicy::Wan,
    SegmentPolicy::Dynamic,
    SegmentPolicy::Segment,
];
/// Index of the engine's only direction.
const ONLY: usize = 0;
const FLOW_COUNT: usize = 4;
/// Number of the first host that sends streams.
const FROM: u16 = 1;
const FRAGMENTS_FROM: u16 = 100;
const TO: u16 = 50;
/// Protocol number for experiments (RFC 3692).
const EXPERIMENT: u8 = 253;
const STEP_COUNT_MAX: usize = 2_000;
