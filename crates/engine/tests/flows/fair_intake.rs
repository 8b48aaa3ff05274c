//! Fair intakes: the order within flows, the shares of flows, and the bounds.

use crate::rig::{Spec, each_seed, host, tcp, udp};
use std::collections::BTreeMap;
use testkit::ip;
use wideload_engine::packet::{Frame, Ingress, LinkType, Pool};
use wideload_engine::{
    Batch, FairIntake, FrameSource, Gateway, GatewaySettings, IntakeLimits, Position, Reason, Secret, Secrets,
    SideSettings,
};

/// Frames that wait in an intake, each with its number and its flow.
struct Rig {
    intake: FairIntake,
    limits: IntakeLimits,
    pool: Pool,
    batch: Batch,
    /// Number and flow of each frame in the intake, by the frame's bytes.
    inside: BTreeMap<Vec<u8>, (u32, String)>,
    /// The number of the last frame that left, by flow.
    last: BTreeMap<String, u32>,
    count: u32,
    /// The flows of the evicted frames.
    evicted: Vec<String>,
}

impl Rig {
    fn new(limits: IntakeLimits) -> Rig {
        Rig {
            intake: FairIntake::new(limits, Secret::new(3)),
            limits,
            pool: Pool::new(256 << 20),
            batch: Batch::default(),
            inside: BTreeMap::new(),
            last: BTreeMap::new(),
            count: 0,
            evicted: Vec::new(),
        }
    }

    /// Enqueues a frame of a flow.
    fn enqueue(&mut self, flow: &str, bytes: &[u8]) {
        let Batch { frames, .. } = &mut self.batch;
        frames.clear();
        self.batch.receive(bytes, LinkType::Ip, Ingress(0), None, &mut self.pool);
        self.count += 1;
        let before = self.inside.insert(bytes.to_vec(), (self.count, flow.to_owned()));
        assert!(before.is_none(), "the frames of a test differ");
        let mut evicted = Vec::new();
        self.batch.frames.drain(..).for_each(|frame| self.intake.enqueue(frame, FrameSource::Port, &mut evicted));
        for (frame, _) in evicted {
            let (_, flow) = self.inside.remove(bytes_of(&frame)).expect("only what entered is evicted, and once");
            self.evicted.push(flow);
            self.pool.give(frame.into_buffer());
        }
        let (count, memory) = (self.intake.count(), self.intake.memory());
        assert_eq!(count, self.inside.len());
        let is_within = count <= self.limits.frames && memory <= self.limits.memory;
        assert!(is_within || count == 1, "{count} frames, {memory} bytes");
    }

    /// Takes the next frame, and returns its flow and its length.
    fn dequeue(&mut self) -> Option<(String, usize)> {
        let mut frames = Vec::new();
        self.intake.dequeue(1, usize::MAX, &mut frames);
        let frame = frames.pop()?;
        assert!(frames.is_empty(), "one frame was asked for");
        let bytes = bytes_of(&frame).to_vec();
        self.pool.give(frame.into_buffer());
        let (number, flow) = self.inside.remove(&bytes).expect("only what entered leaves, and once");
        let before = self.last.insert(flow.clone(), number).unwrap_or_default();
        assert!(before < number, "{flow}: frame {number} left after frame {before}");
        assert_eq!(self.intake.count(), self.inside.len());
        Some((flow, bytes.len()))
    }

    /// Takes all frames, and returns their flows.
    fn dequeue_all(&mut self) -> Vec<String> {
        let all = std::iter::from_fn(|| self.dequeue()).map(|(flow, _)| flow).collect();
        assert!(self.intake.is_empty() && self.inside.is_empty(), "every frame leaves");
        assert_eq!((self.intake.memory(), self.pool.in_use_count()), (0, 0));
        all
    }
}

fn bytes_of(frame: &Frame) -> &[u8] {
    match frame {
        Frame::Ip(packet) => packet.frame(),
        Frame::Other(raw, _) => raw.frame(),
    }
}

/// A TCP segment of the connection with this number. `number` makes the frame differ from others.
fn segment(connection: u16, number: u32, len: usize) -> Spec {
    let hosts = u32::from(connection / 4);
    tcp(4)
        .between(100 + hosts, 200 + hosts)
        .ports(1_000 + connection, 80)
        .id(number & 0xFFFF)
        .seq(number)
        .noise(len)
}

#[test]
fn every_frame_leaves_once_and_the_order_within_flows_is_kept() {
    each_seed("-p wideload-engine --test flows every_frame_leaves_once", 300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = IntakeLimits {
            frames: random.usize(1..60),
            memory: random.usize(1..400_000),
            flows: random.usize(1..12),
            quantum: random.u32(1..4_000),
        };
        let mut rig = Rig::new(limits);
        let mut number = 0;
        for _ in 0..random.usize(10..120) {
            for _ in 0..random.usize(0..12) {
                number += 1;
                arrive(&mut rig, &mut random, number);
            }
            (0..random.usize(0..14)).for_each(|_| drop(rig.dequeue()));
        }
        rig.dequeue_all();
    });
}

/// Lets a random packet arrive, or all fragments of one.
fn arrive(rig: &mut Rig, random: &mut fastrand::Rng, number: u32) {
    let version = if random.bool() { 4 } else { 6 };
    let (source, port) = (random.u32(1..3), random.u16(1..4));
    let mark = number.to_be_bytes();
    let len = random.usize(4..1_200);
    let payload: Vec<u8> = mark.into_iter().chain(std::iter::repeat_n(7, len)).collect();
    let of = |spec: Spec| spec.between(source, 9).ports(port, 80).id(number).seq(number).payload(&payload);
    let is_fragmented = random.u8(..4) == 0;
    let (flow, spec) = match random.u8(..8) {
        0..4 => {
            let flags = [0x10, 0x10, 0x18, 0x02, 0x12, 0x04, 0x11][random.usize(..7)];
            let spec = of(tcp(version)).flags(flags);
            let spec = if random.bool() { spec } else { spec.payload([]) };
            (format!("tcp {version} {source} {port}"), spec)
        }
        4..6 => (format!("udp {version} {source}"), of(udp(version))),
        6 => (format!("other {version} {source}"), of(ip(version))),
        _ => {
            let bytes: Vec<u8> = [0x10, 0, 0, 0].into_iter().chain(mark).collect();
            return rig.enqueue("no packet", &bytes);
        }
    };
    if is_fragmented && spec.payload.len() > 600 {
        spec.fragments(576).iter().for_each(|bytes| rig.enqueue(&flow, bytes));
    } else {
        rig.enqueue(&flow, &spec.bytes());
    }
}

#[test]
fn a_fragment_of_a_connection_neither_overtakes_nor_is_overtaken() {
    let mut rig = Rig::new(IntakeLimits { quantum: 100, ..IntakeLimits::default() });
    (1..40).for_each(|number| rig.enqueue("a", &segment(0, number, 1_000).bytes()));
    // The rig panics if the frames of a flow leave in another order.
    segment(0, 40, 3_000).fragments(1_500).iter().for_each(|bytes| rig.enqueue("a", bytes));
    (41..80).for_each(|number| rig.enqueue("a", &segment(0, number, 100).bytes()));
    assert_eq!(rig.dequeue_all().len(), 39 + 3 + 39);
}

#[test]
fn a_fragment_of_a_busy_pair_of_hosts_delays_no_other_pair() {
    let mut rig = Rig::new(IntakeLimits { quantum: 3_000, ..IntakeLimits::default() });
    (1..100).for_each(|number| rig.enqueue("a", &segment(0, number, 1_400).bytes()));
    segment(0, 100, 3_000).fragments(1_500).iter().for_each(|bytes| rig.enqueue("a", bytes));
    (101..110).for_each(|number| rig.enqueue("a", &segment(0, number, 100).bytes()));
    // Connections of other hosts arrive behind the fragments: one is sparse, and one is busy.
    rig.enqueue("sparse", &segment(40, 1_000, 100).bytes());
    (0..20).for_each(|number| rig.enqueue("b", &segment(80, 2_000 + number, 1_400).bytes()));
    rig.enqueue("control", &segment(44, 3_000, 0).flags(0x02).bytes());
    let order = rig.dequeue_all();
    assert_eq!(order[0], "control");
    let place = order.iter().position(|flow| flow == "sparse").expect("it leaves");
    // Ahead of it is one quantum of the first flow.
    assert!(place <= 5, "the sparse flow left behind {place} frames");
    let last = order.iter().rposition(|flow| flow == "b").expect("it leaves");
    assert!(last < 50, "the busy flow of other hosts left behind {last} frames");
}

#[test]
fn evicting_the_packets_before_a_fragment_unblocks_it() {
    let mut rig = blocked(8_000, 2_000);
    rig.enqueue("c", &segment(44, 10, 100).bytes());
    assert_eq!(rig.evicted, ["a"], "the longest frame");
    assert_eq!(rig.dequeue_all().iter().filter(|flow| *flow == "a").count(), 2);
}

#[test]
fn evicting_a_blocked_fragment_keeps_the_order_of_the_frames_behind_it() {
    let mut rig = blocked(100, 10_000);
    rig.enqueue("c", &segment(44, 10, 100).bytes());
    assert_eq!(rig.evicted, ["a"], "the longest frame");
    // The rig panics if the second fragment overtakes the packet before.
    assert_eq!(rig.dequeue_all().iter().filter(|flow| *flow == "a").count(), 2);
}

#[test]
fn a_flow_whose_blocked_fragment_is_evicted_is_served_at_once() {
    let mut rig = Rig::new(IntakeLimits { frames: 8, quantum: 100, ..IntakeLimits::default() });
    let of = |spec: Spec, number: u32| spec.between(1, 2).id(number).seq(number);
    (0..4).for_each(|number| rig.enqueue("a", &of(tcp(6), number).noise(100).bytes()));
    // In IPv6, a UDP packet follows the fragments between its hosts, as these may be of any protocol.
    let fragments = of(tcp(6), 20).noise(10_000).fragments(9_500);
    rig.enqueue("fragment", &fragments[0]);
    rig.enqueue("udp", &of(udp(6), 21).noise(100).bytes());
    (22..24).for_each(|number| rig.enqueue("b", &segment(40, number, 100).bytes()));
    assert_eq!(
        [rig.dequeue(), rig.dequeue()].map(|taken| taken.map(|(flow, _)| flow).unwrap_or_default()),
        ["a", "b"]
    );
    (24..27).for_each(|number| rig.enqueue("c", &segment(44, number, 100).bytes()));
    assert_eq!(rig.evicted, ["fragment"], "the longest frame");
    let order = rig.dequeue_all();
    let last = |of: &str| order.iter().rposition(|flow| flow == of);
    assert!(last("udp") < last("a"), "{order:?}");
}

/// A full intake with a packet of this payload length, then two fragments of a packet of another length, which are
/// blocked, and a frame of another flow.
fn blocked(len: usize, fragmented_len: usize) -> Rig {
    let mut rig = Rig::new(IntakeLimits { frames: 6, quantum: 100, ..IntakeLimits::default() });
    rig.enqueue("a", &segment(0, 1, 100).bytes());
    rig.enqueue("a", &segment(0, 2, len).bytes());
    segment(0, 3, fragmented_len)
        .fragments(9_000.min(fragmented_len))
        .iter()
        .for_each(|bytes| rig.enqueue("a", bytes));
    (4..6).for_each(|number| rig.enqueue("b", &segment(40, number, 100).bytes()));
    assert_eq!(
        [rig.dequeue(), rig.dequeue()].map(|taken| taken.map(|(flow, _)| flow).unwrap_or_default()),
        ["a", "b"]
    );
    (6..8).for_each(|number| rig.enqueue("d", &segment(48, number, 100).bytes()));
    rig
}

#[test]
fn a_busy_flow_waits_at_most_for_one_quantum_of_each_other_flow() {
    each_seed("-p wideload-engine --test flows a_busy_flow_waits", 40, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let quantum = 3_000;
        let mut rig = Rig::new(IntakeLimits { quantum, ..IntakeLimits::default() });
        let flow_count = random.u16(2..40);
        let lens: Vec<usize> = (0..flow_count).map(|_| random.usize(300..1_460)).collect();
        let mut number = 0;
        let mut push = |rig: &mut Rig, flow: u16| {
            number += 1;
            rig.enqueue(&flow.to_string(), &segment(flow, number, lens[usize::from(flow)]).bytes());
        };
        for _ in 0..20 {
            (0..flow_count).for_each(|flow| push(&mut rig, flow));
        }
        let (mut served, mut waited) = (vec![0_i64; flow_count.into()], vec![0_i64; flow_count.into()]);
        // A flow sends until a frame uses up the quantum.
        let sent_max = i64::from(quantum) + 1_500;
        for _ in 0..2_000 {
            let (flow, len) = rig.dequeue().expect("all flows are busy");
            let flow: u16 = flow.parse().unwrap();
            push(&mut rig, flow);
            waited.iter_mut().for_each(|waited| *waited += len as i64);
            waited[usize::from(flow)] = 0;
            served[usize::from(flow)] += len as i64;
            let longest = *waited.iter().max().unwrap();
            assert!(longest <= i64::from(flow_count - 1) * sent_max, "a flow waited for {longest} bytes");
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least <= 2 * sent_max, "shares of {least} and {most} bytes");
        }
    });
}

#[test]
fn a_sparse_flow_leaves_before_busy_flows_but_only_for_one_quantum() {
    let mut rig = Rig::new(IntakeLimits { quantum: 3_000, ..IntakeLimits::default() });
    for number in 0..100 {
        (0..8)
            .for_each(|flow| rig.enqueue("busy", &segment(flow * 4, number * 8 + u32::from(flow), 1_400).bytes()));
        rig.last.clear();
    }
    (0..50).for_each(|_| drop((rig.dequeue(), rig.last.clear())));
    (1_000..1_020).for_each(|number| rig.enqueue("sparse", &segment(99, number, 900).bytes()));
    let mut order = Vec::new();
    for _ in 0..40 {
        order.push(rig.dequeue().unwrap().0);
        rig.last.clear();
    }
    // Four frames of 940 bytes are the first to exceed the quantum.
    assert!(order[..4].iter().all(|flow| flow == "sparse"), "{order:?}");
    assert!(order[4..16].iter().all(|flow| flow == "busy"), "{order:?}");
}

#[test]
fn a_flow_whose_frames_arrive_one_by_one_is_first_once_a_round() {
    let mut rig = Rig::new(IntakeLimits { quantum: 1_500, ..IntakeLimits::default() });
    (0..400).for_each(|number| {
        rig.enqueue(&(number % 4).to_string(), &segment(number as u16 % 4 * 4, number, 1_400).bytes())
    });
    let mut quick = 0;
    for number in 1_000..1_100 {
        rig.enqueue("quick", &segment(99, number, 1_400).bytes());
        quick += u32::from(rig.dequeue().unwrap().0 == "quick");
    }
    assert!((15..=40).contains(&quick), "{quick} of 100 frames, of 5 busy flows");
}

#[test]
fn a_control_segment_leaves_first_and_a_flood_of_them_is_served_round_robin() {
    let mut rig = Rig::new(IntakeLimits { quantum: 1_500, flows: 64, ..IntakeLimits::default() });
    (0..100).for_each(|number| rig.enqueue("busy", &segment(0, number, 1_400).bytes()));
    (0..3).for_each(|_| drop(rig.dequeue()));
    // A new flow with data is first, but behind any control segment.
    rig.enqueue("new", &segment(50, 1_000, 1_400).bytes());
    for (number, flags) in [(1_001, 0x02), (1_002, 0x12), (1_003, 0x04), (1_004, 0x11)] {
        let connection = number as u16;
        rig.enqueue("control", &segment(connection, number, 0).flags(flags).bytes());
    }
    let order: Vec<String> = (0..6).map(|_| rig.dequeue().unwrap().0).collect();
    assert_eq!(order, ["control", "control", "control", "control", "new", "busy"]);
    // A flood of SYNs, each of another connection.
    let mut busy = 0;
    for number in 2_000..4_000_u32 {
        rig.enqueue("flood", &segment(number as u16, number, 0).flags(0x02).bytes());
        rig.last.remove("flood");
        busy += u32::from(rig.dequeue().unwrap().0 == "busy");
        rig.last.remove("flood");
    }
    assert!(busy >= 25, "{busy} frames of the busy flow left");
}

#[test]
fn control_segments_stay_behind_the_data_of_their_flow() {
    for flags in [0x02, 0x04, 0x11] {
        let mut rig = Rig::new(IntakeLimits::default());
        (0..30).for_each(|number| rig.enqueue("a", &segment(0, number, 1_400).bytes()));
        // The rig panics if this segment overtakes.
        rig.enqueue("a", &segment(0, 30, 0).flags(flags).bytes());
        rig.enqueue("b", &segment(1, 31, 0).flags(flags).bytes());
        assert_eq!(rig.dequeue_all()[0], "b");
    }
}

#[test]
fn a_full_intake_evicts_frames_of_the_flow_with_the_most_memory() {
    let limits = IntakeLimits { frames: 40, memory: 1 << 20, ..IntakeLimits::default() };
    // Each frame uses a buffer of about 2 KiB. The rig verifies the bounds after each frame.
    for limits in [limits, IntakeLimits { frames: 1_000, memory: 90_000, ..limits }] {
        let mut rig = Rig::new(limits);
        (0..5).for_each(|number| rig.enqueue("sparse", &segment(40, number, 200).bytes()));
        let mut number = 100;
        for _ in 0..100 {
            number += 4;
            (0..3).for_each(|more| rig.enqueue("greedy", &segment(0, number + more, 1_000).bytes()));
            rig.enqueue("busy", &segment(4, number + 3, 1_000).bytes());
        }
        let lost = |flow: &str| rig.evicted.iter().filter(|lost| *lost == flow).count();
        assert_eq!(lost("sparse"), 0);
        // Both queues end up equally long, so both flows have about as many frames in them.
        assert!((270..300).contains(&lost("greedy")) && (70..95).contains(&lost("busy")), "{:?}", rig.evicted);
        let is_oldest_gone = rig.dequeue_all().len() < 45;
        assert!(is_oldest_gone && rig.last["greedy"] > 300, "the newest frames of a flow stay");
    }
}

#[test]
fn a_victim_uses_about_the_most_memory_of_all_flows() {
    each_seed("-p wideload-engine --test flows a_victim_uses", 20, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = IntakeLimits { frames: random.usize(20..400), ..IntakeLimits::default() };
        let mut rig = Rig::new(limits);
        let flow_count = random.u16(2..60);
        for number in 0..1_500 {
            // Flow 0 has the most frames, then flow 1, and so on.
            let flow = random.u16(..flow_count).min(random.u16(..flow_count));
            let mut used: BTreeMap<String, usize> = BTreeMap::new();
            rig.inside.values().for_each(|(_, flow)| *used.entry(flow.clone()).or_default() += 1);
            let (arrived, evicted_before) = (flow.to_string(), rig.evicted.len());
            rig.enqueue(&arrived, &segment(flow * 4, number, 1_000).bytes());
            *used.entry(arrived).or_default() += 1;
            // All buffers of these frames have one length.
            let most = used.values().max().copied().unwrap_or_default();
            for victim in &rig.evicted[evicted_before..] {
                assert!(used[victim] * 9 >= most * 8, "{} frames of {most} at most", used[victim]);
            }
            if random.u8(..4) == 0 {
                drop(rig.dequeue());
                // Each flow of this test has its own numbers only.
                rig.last.clear();
            }
        }
    });
}

#[test]
fn the_search_for_a_victim_is_as_short_with_many_flows_as_with_few() {
    let longest = [2, 1_000].map(|flow_count| {
        let limits = IntakeLimits { frames: 1_500, ..IntakeLimits::default() };
        let mut rig = Rig::new(limits);
        for number in 0..6_000_u32 {
            let flow = number % flow_count;
            let spec = udp(4).from(host(4, flow + 10)).id(number & 0xFFFF).payload(number.to_be_bytes());
            rig.enqueue(&flow.to_string(), &spec.bytes());
        }
        assert_eq!(rig.evicted.len(), 4_500);
        rig.intake.longest_search()
    });
    assert!(longest.iter().all(|steps| (1..=9).contains(steps)), "{longest:?} steps");
}

#[test]
fn a_slice_has_frames_of_one_source() {
    use FrameSource::{Peer, Port};
    let mut intake = FairIntake::new(IntakeLimits::default(), Secret::new(3));
    let (mut pool, mut batch, mut evicted) = (Pool::new(8 << 20), Batch::default(), Vec::new());
    let sources = [Port, Port, Peer, Port, Peer, Peer];
    for (number, source) in (1..).zip(sources) {
        batch.receive(&segment(0, number, 100).bytes(), LinkType::Ip, Ingress(0), None, &mut pool);
        batch.frames.drain(..).for_each(|frame| intake.enqueue(frame, source, &mut evicted));
    }
    let mut slices = Vec::new();
    while let Some(source) = intake.dequeue(64, usize::MAX, &mut batch.frames) {
        slices.push((source, batch.frames.drain(..).map(|frame| pool.give(frame.into_buffer())).count()));
    }
    assert_eq!(slices, [(Port, 2), (Peer, 1), (Port, 1), (Peer, 2)]);
}

#[test]
fn a_frame_that_exceeds_all_limits_alone_leaves() {
    let mut rig = Rig::new(IntakeLimits { frames: 1, memory: 1, flows: 1, quantum: 1 });
    rig.enqueue("a", &segment(0, 1, 1_000).bytes());
    assert_eq!(rig.dequeue_all(), ["a"]);
}

#[test]
fn an_evicted_packet_is_received_and_retired() {
    let settings = GatewaySettings::one(SideSettings::new(1_500, Position::Source));
    let mut gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
    let mut batch = Batch::default();
    let pool = &mut gateway.output_mut(0).pool;
    batch.receive(&segment(0, 1, 1_000).bytes(), LinkType::Ip, Ingress(0), None, pool);
    let Some(Frame::Ip(packet)) = batch.frames.pop() else { panic!("it is a packet") };
    gateway.drop_unpushed(0, packet, Reason::IntakeFull);
    let ledger = gateway.ledger(0);
    assert_eq!((ledger.received.packets, ledger.retired(Reason::IntakeFull).packets), (1, 1));
    gateway.check(0).unwrap();
}

#[test]
fn flows_beyond_the_limit_share_a_queue_in_order() {
    let mut rig = Rig::new(IntakeLimits { flows: 4, quantum: 1_000, ..IntakeLimits::default() });
    for number in 0..60_u32 {
        rig.enqueue(&(number % 20).to_string(), &segment(number as u16 % 20, number, 1_000).bytes());
    }
    let order = rig.dequeue_all();
    let own = |flow: &String| flow.parse::<u32>().unwrap() < 4;
    assert!(
        order[..15].iter().filter(|flow| own(flow)).count() == 12,
        "four flows have their own queues: {order:?}"
    );
    assert!(!order[20..].iter().any(own), "{order:?}");
}

#[test]
fn a_flow_that_returns_does_not_share_the_queue_of_its_successor() {
    let mut rig = Rig::new(IntakeLimits { quantum: 1_500, ..IntakeLimits::default() });
    rig.enqueue("first", &segment(0, 1, 100).bytes());
    rig.dequeue_all();
    (10..40).for_each(|number| rig.enqueue("second", &segment(4, number, 1_400).bytes()));
    (0..4).for_each(|_| drop(rig.dequeue()));
    rig.enqueue("first", &segment(0, 2, 100).bytes());
    assert_eq!(rig.dequeue().unwrap().0, "first");
}

#[test]
fn the_hash_of_flows_is_keyed() {
    // Connections that share a queue under one key do not share one under other keys: each of 2,000 connections has
    // one frame, so as many leave in the first round as have a queue of their own.
    let limits = IntakeLimits { flows: 4_000, quantum: 256, ..IntakeLimits::default() };
    let order = |secret: u128| {
        let mut rig = Rig::new(limits);
        rig.intake = FairIntake::new(limits, Secret::new(secret));
        (0..1_000_u32).for_each(|number| {
            let flow = (number % 500) as u16;
            let spec = udp(4).from(host(4, u32::from(flow) + 10)).id(number).payload(number.to_be_bytes());
            rig.enqueue(&flow.to_string(), &spec.bytes());
        });
        rig.dequeue_all()
    };
    assert_eq!(order(1), order(1), "equal calls have equal results");
    assert_ne!(order(1), order(2));
}
