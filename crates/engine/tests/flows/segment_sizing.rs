//! Segment sizing of a wide interface: segments above the MTU in IP fragments, by policy, and by loss.

use fastrand::Rng;
use std::time::Duration;
use testkit::fields::*;
use testkit::{ReadPacket, Spec, host, noise, tcp, udp};
use wideload_engine::packet::{Frame, Gso, Identifications, Ingress, LinkType, Maker, Pool, Time};
use wideload_engine::{
    Batch, Egress, Event, Exempt, Gateway, GatewayRole, GatewaySettings, Prefixes, Reason, Secret, Secrets,
    SegmentPolicy, WirePackets,
};

/// A host with a wide interface, whose connections send segments of 8,948 bytes.
struct Host {
    gateway: Gateway,
    now: Time,
    version: u8,
    ports: [u16; 2],
    /// The next new byte.
    next: u32,
}

/// The packets on the wire that carried one packet of the host.
struct Sent(Vec<ReadPacket>);

const TOWARD_NARROW: usize = 0;
const MTU: u16 = 1_500;
/// Payload of the host's segments, with timestamps: packets of 9,000 bytes.
const MSS: usize = 8_948;
const RTT: Duration = Duration::from_millis(10);
/// A pause before a repetition that tells a time-out.
const RTO: Duration = Duration::from_millis(210);

impl Host {
    fn new(policy: SegmentPolicy) -> Host {
        Host::with(|settings| settings.sides[TOWARD_NARROW].segment_policies = Prefixes::new(policy))
    }

    fn with(change: impl Fn(&mut GatewaySettings)) -> Host {
        let mut settings = GatewaySettings::usual(GatewayRole::WideInterface, 9_000, MTU);
        change(&mut settings);
        let gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
        Host { gateway, now: Time::ZERO, version: 4, ports: [40_000, 80], next: 1 }
    }

    /// Sends new data of `count` segments, as a GSO packet if there are several.
    fn send(&mut self, count: usize) -> Sent {
        let seq = self.next;
        self.next = seq.wrapping_add((count * MSS) as u32);
        self.send_at(seq, count)
    }

    /// Sends data from a sequence number on.
    fn send_at(&mut self, seq: u32, count: usize) -> Sent {
        let hosts = [host(self.version, 1), host(self.version, 2)];
        let spec = tcp(self.version).from(hosts[0]).to(hosts[1]).ports(self.ports[0], self.ports[1]);
        let spec = spec.seq(seq).flags(ACK).ip_flags(DF).stamped(1, 1).payload(noise(count * MSS, u64::from(seq)));
        self.push(&spec, count)
    }

    fn push(&mut self, spec: &Spec, count: usize) -> Sent {
        self.gateway.expire(self.now);
        let mut batch = Batch::default();
        let (_, pool) = self.gateway.places(TOWARD_NARROW);
        batch.receive(&spec.bytes(), LinkType::Ip, Ingress(0), None, pool);
        if let Some(Frame::Ip(packet)) = batch.frames.last_mut().filter(|_| count > 1) {
            packet.gso = Some(Gso { segment_len: MSS as u16, ids: Identifications::Rise, maker: Maker::Sender });
        }
        self.gateway.push(self.now, TOWARD_NARROW, &mut batch);
        let mut sent = Vec::new();
        while let Some(egress) = self.gateway.next(TOWARD_NARROW) {
            let Egress::Forward(packet) = egress else { panic!("a packet of the host leaves") };
            let mut packets = WirePackets::of(&packet);
            while let Some(packet) = packets.next() {
                assert!(packet.frame_len() <= usize::from(MTU));
                sent.push(ReadPacket::of(&[packet.header, packet.payload].concat()));
            }
            self.gateway.recycle(TOWARD_NARROW, packet);
        }
        self.gateway.check(TOWARD_NARROW).unwrap();
        Sent(sent)
    }

    /// Sends new segments, and loses one packet in `interval`. Returns the numbers of fragments of the segments.
    fn lose(&mut self, interval: usize, events: usize) {
        for _ in 0..events {
            let first = self.next;
            for _ in 0..interval.div_ceil(7) {
                self.send(1);
            }
            self.now = self.now + RTT;
            self.send_at(first, 1);
            self.now = self.now + RTT;
        }
    }

    /// Sends new segments, and loses a segment with seven behind it, eight times. The losses are few, but six frames of
    /// a segment are the most with which eight segments are in flight.
    fn lose_in_short_flights(&mut self) {
        for _ in 0..8 {
            for _ in 0..400 {
                self.send(1);
            }
            self.now = self.now + RTT;
            self.send_at(self.next.wrapping_sub(8 * MSS as u32), 1);
            self.now = self.now + RTT;
        }
    }

    fn count(&self, event: Event) -> u64 {
        self.gateway.ledger(TOWARD_NARROW).event(event).packets
    }
}

impl Sent {
    /// Whether the packets are TCP segments without IP fragments.
    fn is_segments(&self) -> bool {
        self.0.iter().all(|packet| packet.fragment.is_none())
    }

    /// The lengths of the datagrams, including the IP header, and their numbers of fragments.
    fn datagrams(&self) -> Vec<(usize, usize)> {
        let mut datagrams: Vec<(usize, usize)> = Vec::new();
        for packet in &self.0 {
            let (offset, _) = packet.fragment.unwrap_or((0, false));
            let body_len = packet.frame.len() - packet.body_at;
            match datagrams.last_mut() {
                Some((len, count)) if offset > 0 => {
                    *len += body_len;
                    *count += 1;
                }
                _ => datagrams.push((if packet.version == 4 { 20 } else { 40 } + body_len, 1)),
            }
        }
        datagrams
    }

    /// The number of datagrams of several fragments.
    fn fragmented_count(&self) -> usize {
        self.datagrams().iter().filter(|(_, count)| *count > 1).count()
    }

    /// The TCP payloads with their sequence numbers.
    fn payloads(&self) -> Vec<(u32, Vec<u8>)> {
        let mut payloads: Vec<(u32, Vec<u8>)> = Vec::new();
        for packet in &self.0 {
            match packet.fragment {
                Some((offset, _)) if offset > 0 => {
                    payloads.last_mut().unwrap().1.extend(&packet.frame[packet.body_at..]);
                }
                _ => {
                    let header_len = usize::from(packet.frame[packet.body_at + 12] >> 4) * 4;
                    payloads.push((packet.seq, packet.frame[packet.body_at + header_len..].to_vec()));
                }
            }
        }
        payloads
    }
}

#[test]
fn super_fragments_fill_frames_and_carry_every_byte() {
    for version in [4, 6] {
        let mut host = Host { version, ..Host::new(SegmentPolicy::Fragment) };
        // The host's own segments need a seventh frame for their last 100 bytes. Those of a GSO packet are cut to
        // six full frames.
        let (header_len, room) = if version == 4 { (20, 1_480) } else { (40, 1_448) };
        let own_len = header_len + 32 + MSS;
        assert_eq!(host.send(1).datagrams(), [(own_len, own_len.div_ceil(room))]);
        let gso = host.send(6);
        let (last, full) = gso.datagrams().split_last().map(|(last, full)| (*last, full.to_vec())).unwrap();
        assert!(full.len() >= 5 && full.iter().all(|datagram| *datagram == (header_len + 6 * room, 6)), "{full:?}");
        assert!(last.0 <= header_len + 6 * room);
        // Bytes, in order.
        let mut seq = 1 + MSS as u32;
        let mut joined = Vec::new();
        for (at, payload) in gso.payloads() {
            assert_eq!(at, seq);
            seq = seq.wrapping_add(payload.len() as u32);
            joined.extend(payload);
        }
        assert!(joined == noise(6 * MSS, 1 + MSS as u64));
        assert_eq!(host.count(Event::SuperFragmented), 1 + gso.fragmented_count() as u64);
        // Short segments, and other protocols, are treated as ever.
        let short = tcp(version).from(testkit::host(version, 1)).to(testkit::host(version, 2)).noise(1_000);
        assert!(host.push(&short, 1).is_segments());
        let long = udp(version).from(testkit::host(version, 1)).to(testkit::host(version, 2)).noise(5_000);
        assert_eq!(host.push(&long, 1).0.len(), 4);
    }
}

#[test]
fn segments_fit_the_mtu_by_default_for_other_destinations_and_for_exempt_flows() {
    let prefixes =
        |at: &str| Prefixes::new(SegmentPolicy::Segment).with(at.parse().unwrap(), SegmentPolicy::Fragment);
    let with = |at: &'static str, exempt: Vec<Exempt>| {
        Host::with(move |settings| {
            let side = &mut settings.sides[TOWARD_NARROW];
            (side.segment_policies, side.exempt) = (prefixes(at), exempt.clone());
        })
    };
    let to = host(4, 2).to_string();
    let own: &'static str = format!("{to}/32").leak();
    assert!(Host::with(|_| ()).send(3).is_segments());
    assert!(!with(own, Vec::new()).send(3).is_segments());
    assert!(with("203.0.113.0/24", Vec::new()).send(3).is_segments());
    assert!(with(own, vec![Exempt { prefix: None, port: Some(80) }]).send(3).is_segments());
    assert!(!with(own, vec![Exempt { prefix: None, port: Some(81) }]).send(3).is_segments());
}

#[test]
fn dynamic_segments_shrink_where_packets_are_lost_and_grow_where_they_are_not() {
    for version in [4, 6] {
        let mut host = Host { version, ..Host::new(SegmentPolicy::Dynamic) };
        assert!(!host.send(3).is_segments(), "it starts wide");
        // One packet in 10,000 costs little, one in 1,000 too much.
        host.lose(10_000, 8);
        assert!(!host.send(1).is_segments());
        host.lose(1_000, 8);
        assert!(host.send(1).is_segments() && host.send(4).is_segments());
        let shorter = host.count(Event::SegmentsShorter);
        assert!(shorter > 0);
        // No losses: within 20,000 packets, segments are wide again.
        let mut sent = 0;
        while host.send(1).is_segments() {
            sent += 7;
            assert!(sent < 20_000, "it stays narrow");
        }
        assert!(sent > 1_000, "a few packets prove nothing");
        assert_eq!(host.count(Event::SegmentsShorter), shorter);
        assert!(host.count(Event::SegmentsLonger) > 0);
    }
}

#[test]
fn all_losses_of_a_round_trip_are_one_event() {
    let mut host = Host::new(SegmentPolicy::Dynamic);
    host.lose(10_000, 4);
    // 40 segments of one window are repeated: still one event in about 10,000 packets.
    let first = host.next;
    host.lose(10_000, 1);
    for at in 1..40 {
        host.send_at(first.wrapping_add((at * MSS) as u32), 1);
    }
    assert!(!host.send(1).is_segments());
    // The only segment of each exchange is repeated: an event each.
    for _ in 0..50 {
        let last = host.next;
        host.send(1);
        host.now = host.now + RTT;
        host.send_at(last, 1);
    }
    assert!(host.send(1).is_segments());
}

// C21
#[test]
fn in_fragments_data_is_repeated_in_segments_after_a_time_out_until_new_data_is_sent() {
    for version in [4, 6] {
        let mut host = Host { version, ..Host::new(SegmentPolicy::Fragment) };
        let first = host.next;
        let second = first + MSS as u32;
        assert!(!host.send(4).is_segments());
        host.now = host.now + RTT;
        assert!(!host.send_at(first, 1).is_segments(), "a fast retransmission");
        host.now = host.now + RTO;
        for seq in [first, second, first] {
            assert!(host.send_at(seq, 1).is_segments(), "IPv{version}: after a time-out");
            host.now = host.now + RTT;
        }
        assert!(!host.send(1).is_segments(), "new data");
        assert_eq!([Event::SegmentsShorter, Event::SegmentsLonger].map(|event| host.count(event)), [1, 1]);
    }
}

#[test]
fn the_lan_policy_grows_by_a_default_segment_and_halves_at_a_time_out() {
    let mut host = Host::new(SegmentPolicy::Lan);
    let lens: Vec<usize> = (0..9).map(|_| host.send(1).datagrams()[0].1).collect();
    assert_eq!(lens, [2, 3, 4, 5, 6, 7, 7, 7, 7]);
    // A fast retransmission changes nothing.
    host.now = host.now + RTT;
    assert_eq!(host.send_at(1, 1).datagrams()[0].1, 7);
    for expected in [3, 1, 1] {
        host.now = host.now + RTO;
        let first = host.send_at(1, 1).datagrams()[0].1;
        assert_eq!(first, expected);
    }
    assert_eq!(host.send(1).datagrams()[0].1, 2);
}

// C22, C23
#[test]
fn the_slow_lan_policy_needs_two_time_outs_and_then_more_progress() {
    let mut host = Host::new(SegmentPolicy::LanSlow);
    (0..9).for_each(|_| drop(host.send(1)));
    let mut lens = Vec::new();
    for _ in 0..4 {
        host.now = host.now + RTO;
        lens.push(host.send_at(1, 1).datagrams()[0].1);
    }
    assert_eq!(lens, [7, 3, 3, 1]);
    // Four time-outs: 16 new segments for the first longer one.
    let grows_after = (1..100).find(|_| host.send(1).datagrams()[0].1 > 1);
    assert_eq!(grows_after, Some(16));
}

// C24, C25
#[test]
fn the_wan_policy_falls_along_the_plateaus_and_rises_after_ten_minutes() {
    let mut host = Host::new(SegmentPolicy::Wan);
    assert_eq!(host.send(1).datagrams()[0].0, 9_000);
    let longest = |sent: &Sent| sent.datagrams().iter().map(|(len, _)| *len).max().unwrap();
    // A TCP segment of a plateau's length; below the MTU, frames are as long as the link allows.
    for expected in [8_166, 4_352, 2_002, 1_500, 1_500] {
        host.now = host.now + RTO;
        assert_eq!(longest(&host.send_at(1, 1)), expected);
    }
    host.now = host.now + Duration::from_secs(599);
    assert_eq!(longest(&host.send(1)), 1_500);
    for (pause, expected) in [(1, 2_002), (599, 2_002), (1, 4_352), (600, 8_166), (600, 9_000)] {
        host.now = host.now + Duration::from_secs(pause);
        assert_eq!(longest(&host.send(1)), expected);
    }
}

#[test]
fn without_ip_ids_segments_are_short_and_nothing_is_lost() {
    let mut host = Host::with(|settings| {
        let side = &mut settings.sides[TOWARD_NARROW];
        side.segment_policies = Prefixes::new(SegmentPolicy::Fragment);
        side.id_lifetime = Duration::from_secs(120);
    });
    let (mut fragmented, mut segmented) = (0, 0);
    for _ in 0..12_000 {
        let sent = host.send(7);
        match sent.is_segments() {
            true => segmented += 1,
            false => fragmented += sent.fragmented_count(),
        }
    }
    assert!(fragmented <= 65_536 && fragmented > 55_000, "{fragmented} IDs in a lifetime");
    assert!(segmented > 1_000);
    assert_eq!(host.gateway.ledger(TOWARD_NARROW).retired(Reason::NoIdentifier).packets, 0);
    host.now = host.now + Duration::from_secs(121);
    assert!(!host.send(7).is_segments());
}

#[test]
fn segments_become_shorter_only_after_a_loss_and_never_stay_so() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let policies = [SegmentPolicy::Dynamic, SegmentPolicy::Lan, SegmentPolicy::LanSlow];
        let policy = random.choice(policies).unwrap();
        let mut host = Host { version: [4, 6][seed as usize % 2], ..Host::new(policy) };
        let mut repeats = 0;
        for _ in 0..random.usize(1..200) {
            let before = host.count(Event::SegmentsShorter);
            let is_repeat = host.next > 1 && random.u8(..4) == 0;
            let pause = [Duration::ZERO, RTT, RTO][random.usize(..3)];
            host.now = host.now + pause;
            let sent = if is_repeat {
                let back = random.usize(1..10).min((host.next as usize - 1) / MSS);
                host.send_at(host.next - (back * MSS) as u32, random.usize(1..=back.min(4)))
            } else {
                host.send(random.usize(1..8))
            };
            repeats += u64::from(is_repeat);
            let longest = sent.datagrams().iter().map(|(len, _)| *len).max().unwrap();
            assert!(longest <= 40 + 32 + MSS, "seed {seed}: longer than the host's own");
            let after = host.count(Event::SegmentsShorter);
            assert!(after - before <= u64::from(is_repeat), "seed {seed}: shorter without a loss, {policy:?}");
        }
        assert!(host.count(Event::SegmentsShorter) <= repeats);
        // At the worst, every interval was one packet: a mean of 304 packets allows seven fragments.
        host.next = host.next.wrapping_add(100 * MSS as u32);
        let limit = 1 + 6 * 304 / 7 + 7 * 1_024;
        let rises_after = (0..limit).find(|_| host.send(1).0.len() == 7 && !host.send(1).is_segments());
        assert!(rises_after.is_some(), "seed {seed}: it stays low");
    }
}

#[test]
fn a_flood_of_flows_uses_no_more_memory_than_allowed() {
    let mut host = Host::with(|settings| {
        settings.sides[TOWARD_NARROW].segment_policies = Prefixes::new(SegmentPolicy::Dynamic);
        settings.flow_count = 64;
    });
    for port in 1..2_000 {
        host.ports = [port, 80];
        assert!(!host.send(1).is_segments());
    }
    // The last flows are known.
    let table = host.gateway.flow_charges();
    let expected = 60 * wideload_engine::FLOW_CHARGE..=64 * wideload_engine::FLOW_CHARGE;
    assert!(expected.contains(&table), "{table}");
}

#[test]
fn a_segment_as_long_as_the_mtu_needs_no_sizing() {
    let mut host = Host::new(SegmentPolicy::Dynamic);
    let spec = tcp(4).from(testkit::host(4, 1)).to(testkit::host(4, 2)).ports(40_000, 80).seq(1).flags(ACK);
    let fits = spec.payload(noise(1_460, 1));
    assert_eq!(host.push(&fits, 1).datagrams(), [(1_500, 1)]);
    assert_eq!(host.gateway.flow_charges(), 0);
}

#[test]
fn a_loss_after_gigabytes_without_one_is_noticed() {
    let mut host = Host::new(SegmentPolicy::Dynamic);
    for _ in 0..9 {
        // What lies between went by another way.
        host.next = host.next.wrapping_add(1 << 28);
        host.send(1);
    }
    let last = host.next.wrapping_sub(MSS as u32);
    assert_eq!(host.send_at(last, 1).0.len(), 7, "one loss in few packets: each fits the MTU");
    assert!(host.send(1).is_segments());
}

// Route MTUs: X6, G27, C24, C26.

/// A host whose kernel follows the route MTUs.
fn following(version: u8) -> Host {
    let host = Host::with(|settings| {
        settings.sides[TOWARD_NARROW].segment_policies = Prefixes::new(SegmentPolicy::Dynamic);
        settings.sides[TOWARD_NARROW].route_mtu_max = Some(9_000);
    });
    let mut host = Host { version, ..host };
    assert!(host.gateway.take_route_change(), "a new gateway has none");
    host
}

impl Host {
    /// The MTU of the route to the only destination.
    fn route_mtu(&mut self) -> Option<u16> {
        self.gateway.expire(self.now);
        let all: Vec<_> = self.gateway.route_mtus().collect();
        assert!(all.len() <= 1);
        let to = host(self.version, 2).into();
        all.first().map(|(destination, mtu)| {
            assert_eq!(*destination, to);
            *mtu
        })
    }

    /// Sends a segment of the length that the route allows. One that fits the link does not cross the gateway.
    fn follow(&mut self) {
        let header_len = if self.version == 4 { 52 } else { 72 };
        let len = self.route_mtu().map_or(MSS, |mtu| usize::from(mtu) - header_len);
        if len + header_len > usize::from(MTU) {
            let hosts = [host(self.version, 1), host(self.version, 2)];
            let spec = tcp(self.version).from(hosts[0]).to(hosts[1]).ports(self.ports[0], self.ports[1]);
            let spec = spec.seq(self.next).flags(ACK).ip_flags(DF).stamped(1, 1).payload(noise(len, 1));
            self.next = self.next.wrapping_add(len as u32);
            self.push(&spec, 1);
        }
    }

    /// The route MTU after each change within this time, with the seconds since the start, while no packet is lost.
    fn changes(&mut self, time: Duration) -> Vec<(u64, Option<u16>)> {
        let (start, mut before, mut changes) = (self.now, self.route_mtu(), Vec::new());
        while self.now.since(start) < time {
            self.now = self.now + 10 * RTT;
            self.follow();
            let after = self.route_mtu();
            if before != after {
                changes.push((self.now.since(start).as_secs(), after));
            }
            before = after;
        }
        changes
    }
}

#[test]
fn a_route_mtu_falls_at_once_and_rises_in_steps_that_at_most_double_it() {
    for (version, steps) in [(4, [1_500, 2_980, 5_940]), (6, [1_500, 2_936, 5_832])] {
        let mut host = following(version);
        host.send(3);
        assert!(!host.gateway.take_route_change());
        assert_eq!(host.route_mtu(), None, "it starts wide");
        host.lose(100, 8);
        assert!(host.gateway.take_route_change());
        let [low, twice, four] = steps;
        assert_eq!(host.route_mtu(), Some(low), "IPv{version}");
        let changes = host.changes(Duration::from_secs(20));
        let [(first, one), (second, two), (third, last)] = changes[..] else { panic!("{changes:?}") };
        assert_eq!([one, two, last], [Some(twice), Some(four), None]);
        assert!((8..=10).contains(&first) && second > first && third > second && third < first + 4, "{changes:?}");
    }
}

#[test]
fn a_destination_that_loses_again_waits_longer_each_time() {
    let mut host = following(4);
    host.lose(100, 8);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let start = host.now;
        while host.route_mtu() == Some(MTU) {
            host.now = host.now + Duration::from_secs(1);
        }
        waits.push(host.now.since(start).as_secs());
        // The longer segments are lost, and the host repeats them.
        while host.route_mtu() != Some(MTU) {
            let first = host.next;
            host.follow();
            host.now = host.now + RTT;
            host.send_at(first, 1);
            host.now = host.now + RTT;
        }
    }
    for (wait, expected) in waits.iter().zip([10, 20, 40, 80, 160, 320, 600, 600, 600]) {
        assert!((expected - 2..=expected).contains(wait), "{waits:?}");
    }
}

#[test]
fn few_losses_lower_a_route_mtu_only_as_far_as_needed() {
    let mut host = following(4);
    host.lose_in_short_flights();
    assert_eq!(host.route_mtu(), Some(20 + 6 * 1_480), "six frames");
    // Another connection without losses raises nothing while this one sends.
    let first = host.ports;
    for _ in 0..20 {
        for port in [first[0], 50_000] {
            host.ports[0] = port;
            host.send(1);
        }
        host.now = host.now + 10 * RTT;
        assert_eq!(host.route_mtu(), Some(20 + 6 * 1_480));
    }
    // When this one is silent, it does.
    host.now = host.now + Duration::from_secs(1);
    host.send(1);
    assert_eq!(host.route_mtu(), None);
}

#[test]
fn without_packets_a_route_mtu_ends_and_at_a_reload_too() {
    let mut host = following(4);
    host.lose_in_short_flights();
    host.now = host.now + Duration::from_secs(599);
    assert!(host.route_mtu().is_some());
    host.now = host.now + Duration::from_secs(2);
    assert_eq!(host.route_mtu(), None);
    host.lose(100, 8);
    // From the link's MTU it rises step by step, without packets too.
    let mut mtus = Vec::new();
    for _ in 0..40 {
        mtus.push(host.route_mtu());
        host.now = host.now + Duration::from_secs(1);
    }
    mtus.dedup();
    assert_eq!(mtus, [Some(1_500), Some(2_980), Some(5_940), None]);
    host.lose(100, 8);
    assert_eq!(host.route_mtu(), Some(1_500));
    let mut settings = GatewaySettings::usual(GatewayRole::WideInterface, 9_000, 1_400);
    settings.sides[TOWARD_NARROW].segment_policies = Prefixes::new(SegmentPolicy::Dynamic);
    host.gateway.replace(host.now, &settings, Secrets::both(Secret::new(7)));
    assert!(host.gateway.take_route_change());
    assert_eq!(host.route_mtu(), None);
}

#[test]
fn a_destination_keeps_its_back_off_time_until_ten_minutes_without_a_route() {
    for (pause, expected) in [(60, 20), (700, 10)] {
        let mut host = following(4);
        host.lose(100, 8);
        // It reaches its full length without a loss, and is used for a while.
        assert_eq!(host.changes(Duration::from_secs(20)).last().unwrap().1, None);
        host.changes(Duration::from_secs(pause));
        host.lose(100, 10);
        assert_eq!(host.route_mtu(), Some(1_500));
        let [(rises, _), ..] = host.changes(Duration::from_secs(30))[..] else { panic!("it rises") };
        assert!((expected - 2..=expected).contains(&rises), "{rises} s after a pause of {pause} s");
    }
}

#[test]
fn a_short_segment_does_not_shorten_the_steps() {
    let mut host = following(4);
    let short = tcp(4).from(testkit::host(4, 1)).to(testkit::host(4, 2)).ports(40_000, 80);
    let short = short.seq(1).flags(ACK).ip_flags(DF).stamped(1, 1).payload(noise(4_000, 1));
    for _ in 0..3 {
        host.push(&short, 1);
    }
    assert_eq!(host.route_mtu(), Some(1_500));
    let changes: Vec<_> = host.changes(Duration::from_secs(20)).into_iter().map(|(_, mtu)| mtu).collect();
    assert_eq!(changes, [Some(2_980), Some(5_940), None]);
}

#[test]
fn route_mtus_are_few_and_only_set_on_request() {
    let mut other = Host::new(SegmentPolicy::Dynamic);
    other.lose(100, 8);
    assert_eq!(other.route_mtu(), None);
    let mut many = following(4);
    for number in 0..3_000_u32 {
        let to = core::net::Ipv4Addr::from_bits(0x0A00_0000 + number);
        for seq in [1, 1, 1] {
            let spec = tcp(4)
                .from(host(4, 1))
                .to(core::net::IpAddr::V4(to))
                .ports(40_000, 80)
                .seq(seq)
                .flags(ACK)
                .ip_flags(DF);
            many.push(&spec.payload(noise(MSS, 1)), 1);
        }
    }
    assert_eq!(many.gateway.route_mtus().count(), 1_024);
}
