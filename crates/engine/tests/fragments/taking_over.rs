//! One side takes over from another: its held fragments still become whole datagrams, and every ledger balances.

use crate::rig::*;
use etherparse::{SlicedPacket, TransportSlice};
use fastrand::Rng;
use std::collections::HashSet;
use std::time::Duration;
use wideload_engine::packet::{Frame, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Aggregation, Batch, Coalescer, Connections, Egress, Event, FragmentMerger, FragmentPolicy, Full, Gateway,
    GatewaySettings, Hold, Holding, Identifiers, Late, Limits, MergeLimits, Mode, Output, Position, Prefixes,
    Reassembler, Role, Rules, RunsBy, Secret, Secrets, Side, SideSettings, Sizing, Toggle, WirePackets,
};

#[test]
fn datagrams_complete_across_any_takeover() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let mut testbed = Testbed::new(&mut random);
        let mut frames = Vec::new();
        for id in 0..random.u16(1..8) {
            let payload: Vec<u8> = (0..random.usize(1..9_000)).map(|_| random.u8(..)).collect();
            let mut fragments = fragments_of(id, &payload, 8 * random.usize(1..180));
            random.shuffle(&mut fragments);
            testbed.sent.insert((u32::from(id), payload));
            frames.extend(fragments);
        }
        if random.bool() {
            random.shuffle(&mut frames);
        }
        for frame in frames {
            if random.u8(..8) == 0 {
                testbed.take_over(&mut random);
            }
            testbed.push(&frame);
        }
        assert_eq!(testbed.out.ledger.event(Event::ReleasedTimeout).packets, 0);
        let came: HashSet<_> = testbed.came.iter().map(|wire| (wire.id, wire.body().to_vec())).collect();
        assert!(came == testbed.sent, "seed {seed}: all are whole at the end, and none was before");
        assert_eq!(testbed.side.aggregation.held().0.packets, 0, "seed {seed}");
    }
}

#[test]
fn a_stream_survives_any_takeover() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let mut testbed = Testbed::new(&mut random);
        let content: Vec<u8> = (0..random.usize(1..60_000)).map(|_| random.u8(..)).collect();
        let mut at = 0;
        while at < content.len() {
            if random.u8(..6) == 0 {
                testbed.take_over(&mut random);
            }
            let len = if random.bool() { 1_000 } else { random.usize(1..1_461) }.min(content.len() - at);
            testbed.push(&segment(at as u32, &content[at..at + len]));
            at += len;
        }
        testbed.flush();
        let mut stream: Vec<u8> = Vec::new();
        for frame in &testbed.left {
            let sliced = SlicedPacket::from_ip(frame).expect("it is a packet");
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("it is TCP") };
            assert_eq!(tcp.sequence_number() as usize, stream.len(), "seed {seed}: in order");
            stream.extend(tcp.payload());
        }
        assert!(stream == content, "seed {seed}");
    }
}

#[test]
fn a_merger_continues_from_another() {
    let mut random = Rng::with_seed(7);
    let mut testbed = Testbed::new(&mut random);
    testbed.side = side(FragmentPolicy::Merge);
    let payload: Vec<u8> = (0..4_000).map(|_| random.u8(..)).collect();
    let fragments = fragments_of(3, &payload, 1_000);
    let [first, rest @ ..] = &fragments[..] else { panic!("several") };
    testbed.push(first);
    for fragment in rest {
        let old = std::mem::replace(&mut testbed.side, side(FragmentPolicy::Merge));
        testbed.side.take_over(testbed.now, old, &mut testbed.connections, &mut testbed.out);
        testbed.drain();
        assert_eq!(testbed.left.len(), 0, "nothing leaves before its time");
        testbed.push(fragment);
    }
    assert_eq!(testbed.left.len(), 1);
    assert_eq!(testbed.left[0][20..], payload);
}

#[test]
fn fragment_length_limits_survive_a_takeover() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let mut testbed = Testbed::new(&mut random);
        testbed.side = joining_udp(9_100);
        let (count, len, room) = (random.u32(2..5), random.usize(1_480..2_000), 8 * random.usize(60..180));
        let mut sent = Vec::new();
        for id in 0..count {
            let content: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            // The datagram has DF: only its source may fragment it.
            let datagram = udp(4).id(id).payload(content);
            datagram.parts(room).iter().for_each(|fragment| testbed.push(fragment));
            sent.push(datagram.upper());
        }
        assert_eq!(testbed.left.len(), 0, "seed {seed}: they wait for more");
        // All of them exceed the MTU of the new side.
        let old = std::mem::replace(&mut testbed.side, joining_udp(1_480));
        testbed.side.take_over(testbed.now, old, &mut testbed.connections, &mut testbed.out);
        assert_eq!(testbed.out.ledger.event(Event::RunAtEnd).packets, 1, "seed {seed}: they were one train");
        testbed.flush();
        assert!(testbed.left.iter().all(|frame| frame.len() <= 20 + room), "seed {seed}: pieces of {room}");
        let came = ReadPacket::all(&Rig::host().push_all(&testbed.left));
        assert!(came.iter().map(ReadPacket::body).eq(sent.iter().map(Vec::as_slice)), "seed {seed}");
    }
}

#[test]
fn no_identification_repeats_too_soon_after_a_takeover() {
    let card = || Sizing::new(1_500, Role::Source(Identifiers::new(Secret::new(1), Duration::from_secs(2))));
    let mut rig = Rig::card(1_500);
    let mut ids = HashSet::new();
    for round in 0..20_u128 {
        for _ in 0..1_000 {
            let left = rig.push(&whole(4, &[0; 3_000]));
            assert!(ids.insert(ReadPacket::of(&left[0]).id), "round {round}");
        }
        let fresh = Sizing {
            role: Role::Source(Identifiers::new(Secret::new(round + 2), Duration::from_secs(2))),
            ..card()
        };
        let old = std::mem::replace(&mut rig.side, Side::of(Aggregation::default(), fresh));
        rig.side.take_over(rig.now, old, &mut rig.connections, &mut rig.out);
    }
}

#[test]
fn held_datagrams_leave_with_unused_identifications() {
    let settings = |coalesces_udp| {
        let side = SideSettings::new(1_500, Position::Source);
        let hold = Holding::Fixed(Duration::from_millis(10));
        GatewaySettings::one(SideSettings { coalesce: Some(Mode::Resize), coalesces_udp, hold, ..side })
    };
    // New counters from the same secret would repeat all assigned IDs.
    let secrets = Secrets::both(Secret::new(1));
    let mut gateway = Gateway::new(&settings(true), secrets, || Pool::new(8 << 20));
    let mut ids = Vec::new();
    let mut batch = Batch::default();
    let mut push = |gateway: &mut Gateway, count: u32| {
        for id in 0..count {
            let frame = udp(4).id(id).payload(vec![7; 3_000]).bytes();
            let (_, pool) = gateway.places(0);
            assert!(batch.receive(&frame, LinkType::Ip, Ingress(0), None, pool));
        }
        gateway.push(Time::ZERO, 0, &mut batch);
    };
    push(&mut gateway, 3);
    gateway.release(Time::ZERO, 0);
    ids.extend(first_ids(&mut gateway));
    push(&mut gateway, 3);
    assert_eq!((ids.len(), first_ids(&mut gateway).len()), (3, 0), "they wait for more");
    gateway.replace(Time::ZERO, &settings(false), secrets);
    ids.extend(first_ids(&mut gateway));
    push(&mut gateway, 3);
    ids.extend(first_ids(&mut gateway));
    assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (9, 9), "{ids:?}");
}

/// IDs of the datagrams that leave.
fn first_ids(gateway: &mut Gateway) -> Vec<u32> {
    let mut ids = Vec::new();
    while let Some(Egress::Forward(packet)) = gateway.next(0) {
        let mut fragments = WirePackets::of(&packet);
        while let Some(fragment) = fragments.next() {
            let seen = ReadPacket::of(&[fragment.header, fragment.payload].concat());
            if !ids.contains(&seen.id) {
                ids.push(seen.id);
            }
        }
        gateway.recycle(0, packet);
    }
    ids
}

/// A side that is replaced now and then.
struct Testbed {
    side: Side,
    connections: Connections,
    out: Output,
    now: Time,
    left: Vec<Vec<u8>>,
    sent: HashSet<(u32, Vec<u8>)>,
    came: Vec<ReadPacket>,
}

impl Testbed {
    fn new(random: &mut Rng) -> Testbed {
        let side = side(if random.bool() { FragmentPolicy::Reassemble } else { FragmentPolicy::ReassembleHop });
        let out = Output::new(Pool::new(32 << 20), None);
        Testbed {
            side,
            connections: Connections::new(Secret::new(5)),
            out,
            now: Time::ZERO,
            left: Vec::new(),
            sent: HashSet::new(),
            came: Vec::new(),
        }
    }

    fn push(&mut self, frame: &[u8]) {
        self.now = self.now.later(1_000);
        let packet = Frame::copy(frame, LinkType::Ip, Ingress(0), &mut self.out.pool).expect("it is a packet");
        self.side.push(self.now, packet, &mut self.connections, &mut self.out);
        self.side.check(&self.out).expect("the laws hold");
        self.drain();
    }

    fn take_over(&mut self, random: &mut Rng) {
        let old = std::mem::replace(
            &mut self.side,
            side(if random.bool() { FragmentPolicy::Reassemble } else { FragmentPolicy::ReassembleHop }),
        );
        self.side.take_over(self.now, old, &mut self.connections, &mut self.out);
        self.drain();
    }

    fn flush(&mut self) {
        self.side.flush(self.now, &mut self.connections, &mut self.out);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(packet) = self.out.next() {
            let mut fragments = WirePackets::of(&packet);
            let mut frames = Vec::new();
            while let Some(fragment) = fragments.next() {
                frames.push([fragment.header, fragment.payload].concat());
            }
            self.came.extend(frames.iter().map(|frame| ReadPacket::of(frame)).filter(|wire| !wire.is_fragment()));
            self.left.extend(frames);
            self.out.recycle(packet);
        }
        self.side.check(&self.out).expect("the laws hold");
    }
}

/// A side with this fragment policy, which coalesces TCP.
fn side(join: FragmentPolicy) -> Side {
    let secret = Secret::new(5);
    let limits = Limits { bytes: 4 << 20, timeout: None };
    let join_limits = MergeLimits {
        bytes: 4 << 20,
        timeout: Duration::from_millis(10),
        full: Full::Pass,
        runs: RunsBy::Datagram,
    };
    let aggregation = Aggregation {
        policies: Prefixes::new(join),
        reassembler: Some(Reassembler::new(limits, Late::Release { mtu: 9_100 }, secret)),
        merger: Some(FragmentMerger::new(join_limits, 9_100, secret)),
        coalescer: Some(Coalescer::new(4 << 20, rules(false), Vec::new(), secret)),
    };
    Side::of(aggregation, Sizing::new(9_100, Role::Transit))
}

/// A side that coalesces UDP too, with this MTU.
fn joining_udp(mtu: u16) -> Side {
    let whole = side(FragmentPolicy::Reassemble);
    let coalescer = Some(Coalescer::new(4 << 20, rules(true), Vec::new(), Secret::new(5)));
    Side::of(Aggregation { coalescer, ..whole.aggregation }, Sizing::new(mtu, Role::Transit))
}

fn rules(udp: bool) -> Rules {
    let hold = Hold::Fixed(Duration::from_millis(1));
    Rules { mode: Mode::Resize, hold, len_max: 9_100, longer: Toggle::On, udp }
}

fn fragments_of(id: u16, payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(room);
    let fragment = |(index, part): (usize, &[u8])| {
        Spec { id: id.into(), ..ip(4).part(index * room, part, index + 1 < count) }.bytes()
    };
    payload.chunks(room).enumerate().map(fragment).collect()
}

fn segment(seq: u32, payload: &[u8]) -> Vec<u8> {
    tcp(4).seq(seq).payload(payload).bytes()
}
