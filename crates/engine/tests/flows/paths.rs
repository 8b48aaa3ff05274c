//! Path MTU behind a border: cuts follow the path, and only what is proved changes a size.

use std::collections::HashSet;
use std::time::Duration;
use testkit::fields::*;
use testkit::{ReadPacket, Spec, host, icmp, tcp};
use wideload_engine::packet::{Frame, Gso, Identifications, Ingress, LinkType, Maker, Pool, Time};
use wideload_engine::{
    Batch, Egress, Event, Gateway, GatewayRole, GatewaySettings, Reason, Secret, Secrets, SegmentSize, Toward,
    WirePackets,
};

/// A border between one wide and one narrow host with a connection, and the narrow path behind it.
pub struct Net {
    pub gateway: Gateway,
    pub now: Time,
    pub version: u8,
    /// The longest packet that the path carries.
    path: usize,
    /// Bytes sent by the wide host, from its first data byte on.
    sent: usize,
    /// Whether the first segment of each flight is lost for another reason than its size.
    loses: bool,
}

pub const NARROW: usize = 1;
pub const WIDE: usize = 0;
/// Payload of a wide segment.
const WIDE_LEN: usize = 8_900;
pub const RTT: Duration = Duration::from_millis(10);
const RTO: Duration = Duration::from_millis(210);

impl Net {
    pub fn new(version: u8) -> Net {
        Net::with(version, |_| {})
    }

    fn with(version: u8, change: impl Fn(&mut GatewaySettings)) -> Net {
        let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
        change(&mut settings);
        let gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
        let mut net = Net { gateway, now: Time::ZERO, version, path: 1_500, sent: 0, loses: false };
        let mss = |mss: u16| [vec![2, 4], mss.to_be_bytes().to_vec()].concat();
        let syn = Spec { seq: 0, flags: SYN, options: mss(8_960), ..net.of_wide() };
        net.push(WIDE, &syn);
        let answer = Spec { seq: 0, ack: 1, flags: SYN | ACK, options: mss(1_460), ..net.of_narrow() };
        net.push(NARROW, &answer);
        net.push(WIDE, &Spec { seq: 1, ..net.of_wide() });
        net
    }

    pub fn of_wide(&self) -> Spec {
        tcp(self.version).from(host(self.version, 1)).to(host(self.version, 2)).ports(40_000, 80).seq(1)
    }

    pub fn of_narrow(&self) -> Spec {
        tcp(self.version).from(host(self.version, 2)).to(host(self.version, 1)).ports(80, 40_000).seq(1)
    }

    /// Pushes a packet from the wide (0) or narrow (1) side. Returns the wire packets that leave.
    pub fn push(&mut self, from: usize, spec: &Spec) -> Vec<ReadPacket> {
        self.push_gso(from, spec, None)
    }

    /// Pushes a packet as [`push`](Net::push) does, as a GSO packet with segments of this length.
    fn push_gso(&mut self, from: usize, spec: &Spec, segment_len: Option<u16>) -> Vec<ReadPacket> {
        self.gateway.expire(self.now);
        let mut batch = Batch::default();
        let (_, pool) = self.gateway.places(from);
        batch.receive(&spec.bytes(), LinkType::Ip, Ingress(from as u32), None, pool);
        if let (Some(segment_len), Some(Frame::Ip(packet))) = (segment_len, batch.frames.last_mut()) {
            packet.gso = Some(Gso { segment_len, ids: Identifications::Rise, maker: Maker::Sender });
        }
        self.gateway.push(self.now, from, &mut batch);
        self.drain(from)
    }

    /// Ends a batch from this side. Returns the wire packets that leave.
    pub fn drain(&mut self, from: usize) -> Vec<ReadPacket> {
        self.gateway.port_is_idle(self.now, from);
        self.gateway.release(self.now, from);
        let mut left = Vec::new();
        for direction in [from, 1 - from] {
            while let Some(egress) = self.gateway.next(direction) {
                let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = egress else { continue };
                let mut packets = WirePackets::of(&packet);
                while let Some(packet) = packets.next() {
                    left.push(ReadPacket::of(&[packet.header, packet.payload].concat()));
                }
                self.gateway.recycle(direction, packet);
            }
            let held = self.gateway.held(direction).0;
            self.gateway.ledger(direction).check(held).unwrap();
        }
        left
    }

    /// Sends the wide segment that starts at this byte. Returns the packets that leave toward the narrow host.
    pub fn send(&mut self, at: usize) -> Vec<ReadPacket> {
        let segment = Spec { seq: 1 + at as u32, ..self.of_wide() }.payload(vec![7; WIDE_LEN]);
        self.push(WIDE, &segment)
    }

    fn acknowledge(&mut self, to: usize) {
        let ack = Spec { ack: 1 + to as u32, ..self.of_narrow() };
        self.push(NARROW, &ack);
    }

    /// A round trip with new data, and one time-out if it is lost. Returns the lengths of the packets sent first and
    /// after the time-out.
    fn flight(&mut self) -> [usize; 2] {
        let at = self.sent;
        let first = longest(&self.send(at));
        self.sent += WIDE_LEN;
        self.now = self.now + RTT;
        if first <= self.path && !self.loses {
            self.acknowledge(self.sent);
            return [first, 0];
        }
        self.now = self.now + RTO;
        let mut again = longest(&self.send(at));
        while again > self.path {
            self.now = self.now + 2 * RTO;
            again = longest(&self.send(at));
        }
        self.now = self.now + RTT;
        self.acknowledge(self.sent);
        [first, again]
    }

    /// The ICMP error of a router about a packet.
    pub fn too_big(&self, about: &ReadPacket, mtu: u16) -> Spec {
        let message = if self.version == 4 { icmp(4, 3, 4) } else { icmp(6, 2, 0) };
        let [high, low] = mtu.to_be_bytes();
        let (kind, code) = if self.version == 4 { (3, 4) } else { (2, 0) };
        let router = host(self.version, 3);
        let quote = &about.frame[..about.frame.len().min(500)];
        let spec = Spec { transport: testkit::Transport::Icmp(kind, code, [0, 0, high, low]), ..message };
        spec.from(router).to(host(self.version, 1)).payload(quote)
    }

    pub fn count(&self, event: Event) -> u64 {
        [0, 1].map(|direction| self.gateway.ledger(direction).event(event).packets).iter().sum()
    }

    fn retired(&self, reason: Reason) -> u64 {
        self.gateway.ledger(NARROW).retired(reason).packets
    }
}

pub fn longest(packets: &[ReadPacket]) -> usize {
    packets.iter().map(|packet| packet.frame.len()).max().unwrap()
}

// R022: one error lowers the size, and those about the same flight change nothing. R027: for ten minutes.
#[test]
fn a_router_behind_the_border_lowers_the_cut_and_the_host_hears_nothing() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let cuts = net.send(0);
        assert_eq!(longest(&cuts), 1_500);
        let error = net.too_big(&cuts[0], 1_400);
        assert_eq!(net.push(NARROW, &error), [], "the error ends at the border");
        assert_eq!((net.retired(Reason::IcmpUsed), net.count(Event::PathLoweredIcmp)), (1, 1), "IPv{version}");
        // The errors about the other packets of the flight change nothing.
        for cut in &cuts[1..cuts.len() - 1] {
            let error = net.too_big(cut, 1_400);
            assert_eq!(net.push(NARROW, &error), []);
        }
        assert_eq!((net.retired(Reason::IcmpRefused), net.count(Event::PathLoweredIcmp)), (0, 1));
        assert_eq!(longest(&net.send(WIDE_LEN)), 1_400);
        // Ten minutes later the link's MTU is tried again.
        net.sent = 2 * WIDE_LEN;
        net.acknowledge(net.sent);
        net.now = net.now + pmtu::RAISE_AFTER + RTT;
        assert_eq!(net.flight(), [1_500, 0]);
        assert_eq!((net.flight(), net.count(Event::PathRaised)), ([1_500, 0], 1));
    }
}

// As Linux does: net.ipv4.route.min_pmtu
#[test]
fn an_ipv4_path_below_552_bytes_gets_packets_of_552_bytes_without_df_and_with_unique_ids() {
    for mtu in [68, 296, 551] {
        let mut net = Net::new(4);
        let cuts = net.send(0);
        let error = net.too_big(&cuts[0], mtu);
        assert_eq!(net.push(NARROW, &error), []);
        assert_eq!((net.retired(Reason::IcmpUsed), net.count(Event::PathLoweredIcmp)), (1, 1));
        let ends = [(host(4, 1).into(), 40_000), (host(4, 2).into(), 80)];
        let mut seen = HashSet::new();
        for turn in 1..=3 {
            let packets = net.send(turn * WIDE_LEN);
            assert_eq!(longest(&packets), 552);
            for packet in &packets {
                assert_eq!(packet.frame[6] & 0x40, 0, "without DF");
                assert_eq!(testkit::checksum(&packet.frame[..20]), 0);
                assert!(seen.insert([packet.frame[4], packet.frame[5]]), "an IP ID is used twice");
            }
            net.acknowledge((turn + 1) * WIDE_LEN);
            assert_eq!(net.gateway.on_offloaded(net.now, ends, WIDE), None, "the kernel would keep DF");
        }
        assert_eq!(net.count(Event::DfCleared), seen.len() as u64);
    }
}

#[test]
fn without_icmp_errors_repeated_data_of_552_bytes_has_no_df() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        net.send(0);
        let mut cleared = Vec::new();
        for _ in 0..4 {
            net.now = net.now + 4 * RTO;
            let again = net.send(0);
            cleared.push(version == 4 && again.iter().all(|packet| packet.frame[6] & 0x40 == 0));
        }
        assert_eq!(cleared, [false, false, version == 4, version == 4], "IPv{version}");
    }
}

#[test]
fn an_offloaded_flow_follows_the_size_and_returns_for_a_probe() {
    let mut net = Net::new(4);
    let ends = [(host(4, 1).into(), 40_000), (host(4, 2).into(), 80)];
    let limit = |net: &mut Net| net.gateway.on_offloaded(net.now, ends, WIDE).map(|limit| limit.len_max);
    assert_eq!(limit(&mut net), Some(1_500));
    let cuts = net.send(0);
    let error = net.too_big(&cuts[0], 1_400);
    net.push(NARROW, &error);
    assert!(net.gateway.connections_mut().unwrap().take_path_change());
    assert!(!net.gateway.connections_mut().unwrap().take_path_change());
    net.acknowledge(WIDE_LEN);
    assert_eq!(limit(&mut net), Some(1_400));
    // Data that is repeated must be seen until it is acknowledged.
    net.send(WIDE_LEN);
    net.now = net.now + RTO;
    net.send(WIDE_LEN);
    assert_eq!(limit(&mut net), None);
    let watched: Vec<_> = net.gateway.connections_mut().unwrap().take_watched().collect();
    assert_eq!(watched, [ends]);
    net.acknowledge(2 * WIDE_LEN);
    assert_eq!(limit(&mut net), Some(1_400));
    // A larger size is to be tried.
    net.now = net.now + pmtu::RAISE_AFTER;
    assert_eq!(limit(&mut net), None);
}

#[test]
fn an_error_about_data_that_the_kernel_forwarded_lowers_the_size() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let ends = [(host(version, 1).into(), 40_000), (host(version, 2).into(), 80)];
        let back = [ends[1], ends[0]];
        // The kernel forwards the second and third segment, and the acknowledgement of the second.
        let cuts = net.send(0);
        net.acknowledge(WIDE_LEN);
        let [acked, sent] = [2, 3].map(|count| 1 + count * WIDE_LEN as u32);
        let about = |seq: u32| {
            let mut quoted = cuts[0].clone();
            let at = quoted.upper_at + 4;
            quoted.frame[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            quoted
        };
        net.gateway.connections_mut().unwrap().on_offloaded_ack(back, Toward::Wide, acked);
        let right = net.too_big(&about(acked), 1_400);
        assert_eq!(net.push(NARROW, &right), []);
        assert_eq!(net.retired(Reason::IcmpRefused), 1, "IPv{version}: the data in flight is unknown");
        for seq in [acked - 1, sent] {
            net.gateway.connections_mut().unwrap().on_offloaded_data(ends, Toward::Narrow, Some(acked), sent);
            let wrong = net.too_big(&about(seq), 1_400);
            assert_eq!(net.push(NARROW, &wrong), [], "IPv{version}: {seq} is not in flight");
        }
        assert_eq!((net.retired(Reason::IcmpRefused), net.retired(Reason::IcmpUsed)), (3, 0));
        assert_eq!(net.push(NARROW, &right), []);
        assert_eq!(net.retired(Reason::IcmpUsed), 1);
        // The flow returns to the border, and its packets have the new size.
        assert_eq!(longest(&net.send(3 * WIDE_LEN)), 1_400);
        net.acknowledge(4 * WIDE_LEN);
        // Older numbers from the kernel are ignored.
        net.send(4 * WIDE_LEN);
        net.gateway.connections_mut().unwrap().on_offloaded_data(ends, Toward::Narrow, Some(acked), sent);
        let late = net.too_big(&about(acked), 1_300);
        assert_eq!(net.push(NARROW, &late), []);
        assert_eq!((net.retired(Reason::IcmpRefused), net.retired(Reason::IcmpUsed)), (4, 1));
    }
}

#[test]
fn segments_that_are_sent_again_are_not_made_longer() {
    let mut net = Net::with(4, |settings| settings.sides[WIDE].segment_size = [SegmentSize::ResizedWhereKnown; 2]);
    let segments = |net: &mut Net, at: u32| {
        let spec = Spec { seq: 1 + at, ..net.of_wide() }.payload(vec![7; 5_000]);
        net.push_gso(WIDE, &spec, Some(500))
    };
    assert_eq!(longest(&segments(&mut net, 0)), 1_500);
    net.now = net.now + RTO;
    let again = segments(&mut net, 0);
    assert_eq!((again.len(), longest(&again)), (10, 540), "they are to arrive now");
}

// R057
#[test]
fn another_connection_to_the_same_host_uses_the_size_at_once_and_another_host_does_not() {
    let mut net = Net::new(4);
    let cuts = net.send(0);
    let error = net.too_big(&cuts[0], 1_400);
    net.push(NARROW, &error);
    for (to, len) in [(2, 1_400), (5, 1_500)] {
        let of_wide = Spec { ports: [40_001, 80], ..net.of_wide() }.to(host(4, to));
        let of_narrow = Spec { ports: [80, 40_001], ..net.of_narrow() }.from(host(4, to));
        net.push(WIDE, &Spec { seq: 0, flags: SYN, options: vec![2, 4, 35, 0], ..of_wide.clone() });
        net.push(
            NARROW,
            &Spec { seq: 0, ack: 1, flags: SYN | ACK, options: vec![2, 4, 5, 180], ..of_narrow.clone() },
        );
        assert_eq!(longest(&net.push(WIDE, &of_wide.payload(vec![7; WIDE_LEN]))), len);
    }
}

// R064, R098, R099, R106
#[test]
fn wrong_errors_lower_nothing_and_end_at_the_border() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let cuts = net.send(0);
        let right = net.too_big(&cuts[0], 1_400);
        let least = if version == 4 { 68 } else { 1_280 };
        let mut wrong = vec![
            ("from the destination itself", right.clone().from(host(version, 2))),
            ("an MTU as long as the packet", net.too_big(&cuts[0], 1_500)),
            ("an MTU above the packet", net.too_big(&cuts[0], 9_000)),
            ("an MTU below the minimum", net.too_big(&cuts[0], least - 1)),
        ];
        for (what, seq) in [("before the window", -1_i64), ("after the window", 1 + WIDE_LEN as i64)] {
            let mut quoted = cuts[0].clone();
            let at = quoted.upper_at + 4;
            quoted.frame[at..at + 4].copy_from_slice(&(seq as u32).to_be_bytes());
            wrong.push((what, net.too_big(&quoted, 1_400)));
        }
        for (count, (what, error)) in wrong.iter().enumerate() {
            assert_eq!(net.push(NARROW, error), [], "IPv{version}: {what}");
            assert_eq!(net.retired(Reason::IcmpRefused), count as u64 + 1, "IPv{version}: {what}");
        }
        // A damaged error, and errors about unknown connections, are none of the border's business.
        let mut quoted = cuts[0].clone();
        quoted.frame[quoted.upper_at] ^= 1;
        let foreign = net.too_big(&quoted, 1_400);
        assert_eq!(net.push(NARROW, &foreign).len(), 1);
        let damaged = Spec { sum: testkit::Summed::Off(1), ..right.clone() };
        assert_eq!(net.push(NARROW, &damaged).len(), 1);
        assert_eq!(longest(&net.send(WIDE_LEN)), 1_500);
        assert_eq!(net.gateway.connections().unwrap().lowered_path_count(), 0);
        assert_eq!(net.push(NARROW, &right), []);
        assert_eq!(longest(&net.send(2 * WIDE_LEN)), 1_400);
    }
}

// R067: codes 2 and 4 end no connection. R099: every quoted byte that identifies the packet counts.
#[test]
fn a_connection_survives_every_icmp_error_and_only_the_right_one_is_used() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let cuts = net.send(0);
        let right = net.too_big(&cuts[0], 1_400);
        for kind in 0..=u8::MAX {
            for code in 0..16 {
                let is_too_big = if version == 4 { (kind, code) == (3, 4) } else { kind == 2 };
                if !is_too_big {
                    let other =
                        Spec { transport: testkit::Transport::Icmp(kind, code, [0, 0, 5, 120]), ..right.clone() };
                    assert_eq!(net.push(NARROW, &other).len(), 1, "IPv{version}: {kind} {code} is forwarded");
                }
            }
        }
        // Its version, protocol, addresses and ports.
        let (protocol, addresses) = if version == 4 { (9, 12) } else { (6, 8) };
        for at in [0, protocol].into_iter().chain(addresses..cuts[0].upper_at + 4) {
            let mut quoted = cuts[0].clone();
            quoted.frame[at] ^= 0x80;
            let error = net.too_big(&quoted, 1_400);
            assert_eq!(net.push(NARROW, &error).len(), 1, "IPv{version}: byte {at} is of another packet");
        }
        assert_eq!(longest(&net.send(WIDE_LEN)), 1_500);
        assert_eq!(net.push(NARROW, &right), []);
        assert_eq!(longest(&net.send(2 * WIDE_LEN)), 1_400);
    }
}

// R059: an extension behind the quoted packet, with the length field 0 and set (RFC 4884 section 4). Packet Too Big has
// no such field.
#[test]
fn extensions_of_an_error_are_not_read_as_quoted_bytes() {
    for (version, quote_len, len) in [(4, 128, 0), (4, 128, 32), (4, 128, 255), (4, 28, 0), (6, 128, 0), (6, 48, 0)]
    {
        let mut net = Net::new(version);
        let cuts = net.send(0);
        let error = net.too_big(&cuts[0], 1_400);
        // An extension with an object of the value 1,300.
        let extension = [0x20, 0, 0, 0, 0, 8, 1, 1, 0, 0, 5, 20];
        let quote = [&cuts[0].frame[..quote_len], &extension].concat();
        let testkit::Transport::Icmp(kind, code, mut rest) = error.transport else { unreachable!() };
        if version == 4 {
            rest[1] = len;
        }
        let error = Spec { transport: testkit::Transport::Icmp(kind, code, rest), ..error }.payload(quote);
        assert_eq!(net.push(NARROW, &error), [], "IPv{version}: {quote_len} bytes quoted, length {len}");
        assert_eq!(longest(&net.send(WIDE_LEN)), 1_400);
    }
}

// R026: without the correction for routers of 4.2BSD, see DEVIATIONS.md.
#[test]
fn an_error_without_an_mtu_means_the_next_plateau() {
    let mut net = Net::new(4);
    let cuts = net.send(0);
    let error = net.too_big(&cuts[0], 0);
    assert_eq!(net.push(NARROW, &error), []);
    assert_eq!(longest(&net.send(WIDE_LEN)), 1_492);
}

#[test]
fn a_host_whose_own_packets_are_too_long_is_told() {
    let mut net = Net::new(4);
    let cuts = net.send(0);
    let error = net.too_big(&cuts[0], 1_400);
    net.push(NARROW, &error);
    // It may be about a packet that was sent before the size was lowered.
    net.now = net.now + Duration::from_secs(1);
    assert_eq!(net.push(NARROW, &error), []);
    // A router states the MTU that the border cuts to: the packet was not one of the border's cuts.
    net.now = net.now + Duration::from_secs(3);
    assert_eq!(net.push(NARROW, &error).len(), 1);
}

#[test]
fn data_that_was_sent_again_in_shorter_packets_does_not_prove_the_first_ones_delivered() {
    let mut net = Net::new(4);
    // The first packet is lost, and the sample is in the second.
    net.acknowledge(0);
    let (hole, sample) = (net.sent, net.sent + WIDE_LEN);
    net.send(hole);
    net.acknowledge(hole);
    let cuts = net.send(sample);
    let error = net.too_big(&cuts[0], 1_400);
    net.push(NARROW, &error);
    // Both are repeated by fast retransmission, in packets of 1,400 bytes, and acknowledged one after the other.
    for at in [hole, sample] {
        assert_eq!(longest(&net.send(at)), 1_400);
    }
    net.now = net.now + RTT;
    for at in [hole, sample] {
        net.acknowledge(at + WIDE_LEN);
    }
    assert_eq!(net.count(Event::PathRaised), 0);
    assert_eq!(longest(&net.send(sample + WIDE_LEN)), 1_400);
}

#[test]
fn a_forged_acknowledgement_stops_nothing() {
    let mut net = Net::new(4);
    for _ in 0..20 {
        net.flight();
        // Acknowledges data that was never sent.
        net.acknowledge(net.sent + (1 << 30));
    }
    net.path = 1_400;
    for _ in 0..8 {
        net.flight();
        net.acknowledge(net.sent + (1 << 30));
    }
    assert_eq!(net.count(Event::PathLoweredLoss), 1);
}

// R056, R108
#[test]
fn a_black_hole_stalls_no_flight_and_is_found_after_a_few() {
    for (version, path) in [(4, 1_400), (6, 1_400), (4, 1_280), (6, 1_280), (4, 600)] {
        let mut net = Net::new(version);
        for _ in 0..50 {
            assert_eq!(net.flight(), [1_500, 0]);
        }
        net.path = path;
        let (began, mut flights) = (net.now, 0);
        while net.count(Event::PathLoweredLoss) == 0 {
            let [first, again] = net.flight();
            assert!(first == 1_500 && again <= path, "{first}, {again}");
            flights += 1;
            assert!(flights < 50, "{} {} {path}", net.count(Event::PathRetry), version);
        }
        assert!(flights <= 5, "{flights} flights");
        let limit = if path >= 1_280 { 2 } else { 6 };
        assert!(net.now.since(began) < Duration::from_secs(limit), "{:?}", net.now.since(began));
        // The search ends near the path's MTU, and every flight arrives.
        for _ in 0..100 {
            net.flight();
        }
        let found = net.flight();
        assert!(found[0] <= path && found[0] * 20 > path * 18 && found[1] == 0, "{found:?} of {path}");
        assert!(net.count(Event::PathProbe) > 0 || path == 1_280);
        // The path is whole again.
        net.path = 1_500;
        net.now = net.now + pmtu::RAISE_AFTER;
        net.flight();
        assert_eq!(net.flight(), [1_500, 0]);
        assert_eq!(net.gateway.connections().unwrap().lowered_path_count(), 0);
    }
}

#[test]
fn a_black_hole_is_found_behind_data_that_the_border_did_not_see() {
    let mut net = Net::new(4);
    for _ in 0..20 {
        net.flight();
    }
    net.path = 1_400;
    while net.count(Event::PathLoweredLoss) == 0 {
        // The kernel forwards three segments, which are lost. The border sees the sender's repetitions: first the
        // last segment (a tail loss probe, RFC 8985 section 7), then the first one.
        let [first, last] = [net.sent, net.sent + 2 * WIDE_LEN];
        net.sent += 3 * WIDE_LEN;
        assert_eq!(longest(&net.send(last)), 1_500);
        net.now = net.now + RTO;
        let mut tries = 1;
        while longest(&net.send(first)) > net.path {
            net.now = net.now + 2 * RTO;
            tries += 1;
        }
        assert!(tries <= 2, "{tries} time-outs");
        net.now = net.now + RTT;
        net.acknowledge(first + WIDE_LEN);
        for at in [first + WIDE_LEN, last] {
            assert!(longest(&net.send(at)) <= net.path);
            net.now = net.now + RTT;
            net.acknowledge(at + WIDE_LEN);
        }
        assert!(net.now.since(Time::ZERO) < Duration::from_secs(10));
    }
    assert!(longest(&net.send(net.sent)) < 1_500);
}

#[test]
fn a_flight_that_is_lost_now_and_then_lowers_nothing() {
    let mut net = Net::new(4);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        net.loses = random.f64() < 0.1;
        net.flight();
    }
    assert_eq!(net.count(Event::PathLoweredLoss), 0);
    assert!(net.count(Event::PathRetry) > 1_000);
}

#[test]
fn an_outage_lowers_nothing() {
    let mut net = Net::new(6);
    for _ in 0..20 {
        net.flight();
    }
    for _ in 0..50 {
        // Nothing arrives: the host repeats itself, and gives up.
        let at = net.sent;
        net.send(at);
        for wait in 0..6 {
            net.now = net.now + RTO * (1 << wait);
            net.send(at);
        }
        net.sent += WIDE_LEN;
        net.acknowledge(net.sent);
        net.loses = false;
        assert_eq!(net.flight()[0], 1_500);
    }
    assert_eq!(net.count(Event::PathLoweredLoss), 0);
}

#[test]
fn errors_about_unknown_connections_take_no_memory() {
    let mut net = Net::new(4);
    let cuts = net.send(0);
    let before = net.gateway.connections().unwrap().charged();
    for number in 0..20_000_u32 {
        let mut quoted = cuts[0].clone();
        let at = quoted.upper_at;
        quoted.frame[at - 4..at].copy_from_slice(&(0x0B00_0000 + number).to_be_bytes());
        let error = net.too_big(&quoted, 1_400);
        assert_eq!(net.push(NARROW, &error).len(), 1);
    }
    assert_eq!(net.gateway.connections().unwrap().charged(), before);
}
