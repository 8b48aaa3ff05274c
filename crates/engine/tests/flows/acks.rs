//! Acknowledgements at a border: more of those of wide hosts, fewer of those of narrow hosts, and no others.

use testkit::fields::*;
use testkit::{ReadPacket, Spec, Summed, each_seed, host, tcp};
use wideload_engine::packet::{Address, Checksum, Frame, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    AckPolicy, Batch, Egress, Event, Gateway, GatewayRole, GatewaySettings, Reason, Secret, Secrets, WirePackets,
};

/// A border with a connection between a wide and a narrow host, whose windows are shifted by these bits.
struct Net {
    gateway: Gateway,
    version: u8,
    shift: Option<u8>,
}

const WIDE: usize = 0;
const NARROW: usize = 1;
/// The name of a change, and the change.
type Change = (&'static str, fn(Spec) -> Spec);
/// Payload of a full segment of the narrow host, without options.
const SEGMENT: u32 = 1_460;
/// Payload of a full segment of the wide host, with timestamps.
const WIDE_SEGMENT: u32 = 8_948;
const CWR: u8 = 0x80;
const ECE: u8 = 0x40;

impl Net {
    fn new(policy: AckPolicy, version: u8, shift: Option<u8>) -> Net {
        let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
        settings.border.as_mut().unwrap().acks = policy;
        let gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
        let mut net = Net { gateway, version, shift };
        net.shake(40_000);
        net
    }

    /// A handshake from the wide host's port. Both initial sequence numbers are 0.
    fn shake(&mut self, port: u16) {
        let version = self.version;
        let options = |mss: u16| {
            let scale = self.shift.map_or(vec![1, 1, 1, 1], |shift| vec![1, 3, 3, shift]);
            [vec![2, 4], mss.to_be_bytes().to_vec(), scale].concat()
        };
        let [wide_mss, narrow_mss] = if version == 4 { [8_960, 1_460] } else { [8_940, 1_440] };
        let syn = Spec { seq: 0, flags: SYN, options: options(wide_mss), ..self.of_wide(port) };
        let answer =
            Spec { seq: 0, ack: 1, flags: SYN | ACK, options: options(narrow_mss), ..self.of_narrow(port) };
        self.push(WIDE, &[syn]);
        self.push(NARROW, &[answer]);
        self.push(WIDE, &[Spec { window: 60_000, ..self.of_wide(port) }]);
    }

    fn of_wide(&self, port: u16) -> Spec {
        let spec = tcp(self.version).from(host(self.version, 1)).to(host(self.version, 2)).ports(port, 80).seq(1);
        Spec { ack: 1, flags: ACK, ..spec }
    }

    fn of_narrow(&self, port: u16) -> Spec {
        let spec = tcp(self.version).from(host(self.version, 2)).to(host(self.version, 1)).ports(80, port).seq(1);
        Spec { ack: 1, flags: ACK, ..spec }
    }

    /// An acknowledgement of the wide host for this many bytes.
    fn wide_ack(&self, len: u32) -> Spec {
        Spec { ack: 1 + len, window: 60_000, ..self.of_wide(40_000) }
    }

    /// An acknowledgement of the narrow host for this many bytes.
    fn narrow_ack(&self, len: u32) -> Spec {
        Spec { ack: 1 + len, window: 60_000, ..self.of_narrow(40_000) }
    }

    /// The narrow host sends the bytes from `start` to `end`.
    fn narrow_sends(&mut self, start: u32, end: u32) {
        for at in (start..end).step_by(SEGMENT as usize) {
            let len = (end - at).min(SEGMENT) as usize;
            self.push(NARROW, &[Spec { seq: 1 + at, ..self.of_narrow(40_000) }.payload(vec![7; len])]);
        }
    }

    fn wide_sends(&mut self, len: u32) {
        for at in (0..len).step_by(WIDE_SEGMENT as usize) {
            let len = (len - at).min(WIDE_SEGMENT) as usize;
            self.push(WIDE, &[Spec { seq: 1 + at, ..self.of_wide(40_000) }.payload(vec![7; len])]);
        }
    }

    /// Pushes a batch from the wide or the narrow side. Returns the packets that leave.
    fn push(&mut self, from: usize, specs: &[Spec]) -> Vec<ReadPacket> {
        let mut batch = Batch::default();
        for spec in specs {
            let (_, pool) = self.gateway.places(from);
            assert!(batch.receive(&spec.bytes(), LinkType::Ip, Ingress(from as u32), None, pool));
            if let (Summed::Half, Some(Frame::Ip(packet))) = (spec.sum, batch.frames.last_mut()) {
                packet.checksum = Checksum::Partial;
            }
        }
        self.gateway.push(Time::ZERO, from, &mut batch);
        self.gateway.release(Time::ZERO, from);
        let mut left = Vec::new();
        while let Some(egress) = self.gateway.next(from) {
            let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = egress else { continue };
            let mut packets = WirePackets::of(&packet);
            while let Some(packet) = packets.next() {
                left.push(ReadPacket::of(&[packet.header, packet.payload].concat()));
            }
            self.gateway.recycle(from, packet);
        }
        self.gateway.check(from).unwrap();
        left
    }

    fn expanded(&self) -> u64 {
        self.gateway.ledger(WIDE).event(Event::AcksExpanded).packets
    }

    fn compressed(&self) -> u64 {
        self.gateway.ledger(NARROW).retired(Reason::AckCompressed).packets
    }
}

fn acks(packets: &[ReadPacket]) -> Vec<u32> {
    packets.iter().map(|packet| packet.ack - 1).collect()
}

#[test]
fn an_acknowledgement_of_many_segments_becomes_one_for_each_two() {
    for version in [4, 6] {
        let mut net = Net::new(AckPolicy::Expand, version, None);
        let segment = if version == 4 { SEGMENT } else { SEGMENT - 20 };
        net.narrow_sends(0, 12 * segment);
        let sums = [Summed::Right, Summed::Half];
        for (half, sum) in [0, 6 * segment].into_iter().zip(sums) {
            let spec = net.wide_ack(half + 6 * segment).stamped(900, 800).sum(sum);
            let left = net.push(WIDE, std::slice::from_ref(&spec));
            assert_eq!(acks(&left), [2, 4, 6].map(|count| half + count * segment), "IPv{version}");
            for packet in &left {
                assert!(packet.sum_is_right, "IPv{version}");
                assert_eq!((packet.seq, packet.flags, packet.payload().len()), (1, ACK, 0));
                assert_eq!(packet.options(), spec.options, "timestamps are those of the host");
                let edge = packet.ack + u32::from(packet.window);
                assert_eq!(edge.min(1 + half + 6 * segment + 60_000), edge, "the window is within the offered one");
            }
            assert_eq!(left.last().unwrap().packet(), Spec { sum: Summed::Right, ..spec }.bytes());
        }
        assert_eq!(net.expanded(), 4);
    }
}

#[test]
fn the_first_acknowledgement_of_a_host_that_answered_a_syn_is_expanded() {
    let mut net = Net::new(AckPolicy::Expand, 4, Some(7));
    // The same ports again, and the narrow host begins.
    for port in [40_001, 40_000] {
        let options = |mss: u16| [vec![2, 4], mss.to_be_bytes().to_vec(), vec![1, 3, 3, 7]].concat();
        let syn = Spec { seq: 9_999, ack: 0, flags: SYN, options: options(1_460), ..net.of_narrow(port) };
        let answer = Spec { seq: 0, ack: 10_000, flags: SYN | ACK, options: options(8_960), ..net.of_wide(port) };
        net.push(NARROW, &[syn]);
        net.push(WIDE, &[Spec { window: 60_000, ..answer }]);
        net.push(NARROW, &[Spec { seq: 10_000, ack: 1, ..net.of_narrow(port) }]);
        for at in (0..6 * SEGMENT).step_by(SEGMENT as usize) {
            net.push(
                NARROW,
                &[Spec { seq: 10_000 + at, ..net.of_narrow(port) }.payload(vec![7; SEGMENT as usize])],
            );
        }
        let end = 10_000 + 6 * SEGMENT;
        let left = net.push(WIDE, &[Spec { ack: end, window: 60_000, ..net.of_wide(port) }]);
        assert_eq!(left.len(), 3, "{:?}", acks(&left));
    }
}

#[test]
fn packets_without_data_are_no_data() {
    let mut net = Net::new(AckPolicy::Expand, 4, None);
    // The number of a packet without data tells of no data, also if it is in the window.
    net.push(NARROW, &[Spec { seq: 1 + 12 * SEGMENT, ..net.of_narrow(40_000) }]);
    assert_eq!(acks(&net.push(WIDE, &[net.wide_ack(12 * SEGMENT)])), [12 * SEGMENT]);
    assert_eq!(net.expanded(), 0);
}

#[test]
fn each_expanded_acknowledgement_covers_two_segments_so_byte_counting_is_not_outrun() {
    // RFC 3465 section 2.2: a window grows by no more than the acknowledged bytes, and by at most two segments.
    let mut net = Net::new(AckPolicy::Expand, 4, Some(7));
    let (mut sent, mut last) = (0, 0);
    for len in [1, 1_460, 2_919, 2_920, 5_839, 5_840, 8_760, 65_495, 300_000] {
        net.narrow_sends(sent, sent + len);
        sent += len;
        let left = acks(&net.push(WIDE, &[net.wide_ack(sent)]));
        let own = left.len() as u32;
        assert_eq!(left.last(), Some(&sent));
        assert!(own <= 64 && own <= (len / (2 * SEGMENT)).max(1), "{len}: {own}");
        // A number is at most one unit of the window from its even place.
        assert!(
            own == 1 || left[0] - last >= 2 * SEGMENT && own >= (len / (2 * SEGMENT)).min(64),
            "{len}: {left:?}"
        );
        last = sent;
    }
}

#[test]
fn whatever_a_host_says_no_number_and_no_window_passes_its_own() {
    each_seed("acks", 300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let shift = [None, Some(0), Some(3), Some(7), Some(14)][random.usize(..5)];
        let unit = shift.unwrap_or(0);
        let mut net = Net::new(AckPolicy::Expand, [4, 6][random.usize(..2)], shift);
        let (mut sent, mut acked, mut edge, mut seen) = (0, 0, 60_000u64 << unit, (0, 0));
        for _ in 0..20 {
            let more = random.u32(0..100_000);
            net.narrow_sends(sent, sent + more);
            sent += more;
            let ack = random.u32(acked..=sent);
            // A host takes nothing back (RFC 9293 section 3.8.6.2.2), but for its window's unit.
            let least = (edge.saturating_sub(ack.into()) >> unit).min(65_535) as u16;
            let window = random.u16(least..=65_535);
            acked = ack;
            let said = u64::from(ack) + (u64::from(window) << unit);
            let left = net.push(WIDE, &[Spec { window, ..net.wide_ack(ack) }]);
            for packet in &left {
                let ack_out = packet.ack - 1;
                let edge_out = u64::from(ack_out) + (u64::from(packet.window) << unit);
                assert!(ack_out <= ack && ack_out >= seen.0, "{seed}");
                assert!(edge_out <= said.max(edge), "{seed}: {edge_out} {said}");
                assert!(edge_out >= seen.1 || edge_out >= said, "{seed}: {edge_out} is below {}", seen.1);
                seen = (ack_out, edge_out);
            }
            assert_eq!(left.last().map(|packet| (packet.ack - 1, packet.window)), Some((ack, window)), "{seed}");
            edge = said;
        }
    });
}

#[test]
fn other_packets_of_a_wide_host_are_left_alone() {
    let len = 12 * SEGMENT;
    let alone: [Change; 12] = [
        ("data", |spec| spec.payload([7; 100])),
        ("FIN", |spec| spec.flags(ACK | FIN)),
        ("RST", |spec| spec.flags(ACK | RST)),
        ("PSH", |spec| spec.flags(ACK | PSH)),
        ("URG", |spec| spec.flags(ACK | URG)),
        ("ECE", |spec| spec.flags(ACK | ECE)),
        ("CWR", |spec| spec.flags(ACK | CWR)),
        ("a SACK block", |spec| spec.options([1, 1, 5, 10, 0, 0, 100, 0, 0, 0, 101, 0])),
        ("a signature", |spec| spec.options([&[1, 1, 19, 18][..], &[5; 16]].concat())),
        ("a congestion mark", |spec| Spec { tos: 3, ..spec }),
        ("no DF", |spec| spec.ip_flags(0)),
        ("damage", |spec| spec.sum(Summed::Off(1))),
    ];
    for (what, change) in alone {
        let mut net = Net::new(AckPolicy::Expand, 4, Some(7));
        net.narrow_sends(0, len);
        let spec = change(net.wide_ack(len));
        let left = net.push(WIDE, std::slice::from_ref(&spec));
        assert_eq!((left.len(), net.expanded()), (1, 0), "{what}");
        assert_eq!(left[0].packet(), spec.bytes(), "{what}");
    }
    let mut net = Net::new(AckPolicy::Expand, 4, Some(7));
    net.narrow_sends(0, len);
    assert_eq!(net.push(WIDE, &[net.wide_ack(len)]).len(), 6, "nothing else keeps it from being expanded");
    assert_eq!(net.push(WIDE, &[net.wide_ack(len)]).len(), 1, "a duplicate");
    assert_eq!(net.push(WIDE, &[Spec { window: 61_000, ..net.wide_ack(len) }]).len(), 1, "another window");
    assert_eq!(net.push(WIDE, &[net.wide_ack(len / 2)]).len(), 1, "an earlier one");
}

#[test]
fn a_damaged_acknowledgement_changes_nothing_for_the_next_one() {
    let mut net = Net::new(AckPolicy::Expand, 4, None);
    net.narrow_sends(0, 12 * SEGMENT);
    net.push(WIDE, &[net.wide_ack(10 * SEGMENT).sum(Summed::Off(1))]);
    assert_eq!(net.push(WIDE, &[net.wide_ack(12 * SEGMENT)]).len(), 6);
}

#[test]
fn a_forged_acknowledgement_of_data_that_was_not_sent_makes_no_packets() {
    let mut net = Net::new(AckPolicy::Expand, 4, Some(7));
    net.narrow_sends(0, SEGMENT);
    for ack in [SEGMENT + 1, 1 << 20, 1 << 31, u32::MAX - 9] {
        assert_eq!(net.push(WIDE, &[net.wide_ack(ack)]).len(), 1, "{ack}");
    }
    assert_eq!(net.expanded(), 0);
}

#[test]
fn a_connection_whose_handshake_was_not_seen_is_left_alone() {
    for policy in [AckPolicy::Expand, AckPolicy::Compress] {
        let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
        settings.border.as_mut().unwrap().acks = policy;
        let gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
        let mut net = Net { gateway, version: 4, shift: None };
        net.narrow_sends(0, 12 * SEGMENT);
        net.wide_sends(4 * WIDE_SEGMENT);
        let of_wide = [0, 6, 12].map(|count| net.wide_ack(count * SEGMENT));
        assert_eq!(net.push(WIDE, &of_wide).len(), 3);
        let of_narrow = [0, 1, 2].map(|count| net.narrow_ack(count * SEGMENT));
        assert_eq!(net.push(NARROW, &of_narrow).len(), 3);
    }
}

#[test]
fn without_a_policy_every_acknowledgement_is_left_alone() {
    let mut net = Net::new(AckPolicy::Unchanged, 4, Some(7));
    net.narrow_sends(0, 12 * SEGMENT);
    net.wide_sends(4 * WIDE_SEGMENT);
    assert_eq!(net.push(WIDE, &[net.wide_ack(12 * SEGMENT)]).len(), 1);
    let all: Vec<Spec> = (1..20).map(|count| net.narrow_ack(count * SEGMENT)).collect();
    assert_eq!(net.push(NARROW, &all).len(), 19);
}

#[test]
fn successive_acknowledgements_of_a_batch_become_one_for_each_two_wide_segments() {
    for version in [4, 6] {
        let mut net = Net::new(AckPolicy::Compress, version, Some(7));
        net.push(NARROW, &[net.narrow_ack(0)]);
        net.wide_sends(4 * WIDE_SEGMENT);
        let all: Vec<Spec> = (1..=22)
            .map(|count| {
                Spec { window: 60_000 + count as u16, ..net.narrow_ack(count * SEGMENT) }.stamped(count, count)
            })
            .collect();
        let left = net.push(NARROW, &all);
        // The announced MSS is six times that of the narrow host. Timestamps take a part of it.
        let expected = [&all[10], &all[21]];
        assert_eq!(left.len(), 2, "IPv{version}: {:?}", acks(&left));
        left.iter().zip(expected).for_each(|(packet, spec)| assert_eq!(packet.packet(), spec.bytes()));
        assert_eq!(net.compressed(), 20);
    }
}

#[test]
fn no_acknowledgement_is_held_beyond_its_batch() {
    let mut net = Net::new(AckPolicy::Compress, 4, Some(7));
    net.push(NARROW, &[net.narrow_ack(0)]);
    net.wide_sends(4 * WIDE_SEGMENT);
    for count in 1..12 {
        assert_eq!(acks(&net.push(NARROW, &[net.narrow_ack(count * SEGMENT)])), [count * SEGMENT]);
    }
    assert_eq!(net.compressed(), 0);
}

#[test]
fn an_acknowledgement_that_says_more_is_not_replaced_and_stays_in_order() {
    let second: [Change; 9] = [
        ("a duplicate", |spec| Spec { ack: 1 + SEGMENT, ..spec }),
        ("a SACK block", |spec| spec.options([1, 1, 5, 10, 0, 0, 100, 0, 0, 0, 101, 0])),
        ("ECE", |spec| spec.flags(ACK | ECE)),
        ("CWR", |spec| spec.flags(ACK | CWR)),
        ("data", |spec| spec.payload([7; 100])),
        ("FIN", |spec| spec.flags(ACK | FIN)),
        ("RST", |spec| spec.flags(ACK | RST)),
        ("a smaller window", |spec| Spec { window: 9, ..spec }),
        ("damage", |spec| spec.sum(Summed::Off(1))),
    ];
    for (what, change) in second {
        let mut net = Net::new(AckPolicy::Compress, 4, Some(7));
        net.push(NARROW, &[net.narrow_ack(0)]);
        net.wide_sends(4 * WIDE_SEGMENT);
        let all = [net.narrow_ack(SEGMENT), change(net.narrow_ack(2 * SEGMENT)), net.narrow_ack(3 * SEGMENT)];
        let left = net.push(NARROW, &all);
        assert_eq!(left.len(), 3, "{what}: {:?}", acks(&left));
        left.iter().zip(&all).for_each(|(packet, spec)| assert_eq!(packet.packet(), spec.bytes(), "{what}"));
    }
    let others: [Change; 4] = [
        ("another sequence number", |spec| spec.seq(0)),
        ("another TTL", |spec| Spec { ttl: 9, ..spec }),
        ("another traffic class", |spec| Spec { tos: 4, ..spec }),
        ("an earlier timestamp", |spec| spec.stamped(9, 10)),
    ];
    for (what, change) in others {
        let mut net = Net::new(AckPolicy::Compress, 4, Some(7));
        net.push(NARROW, &[net.narrow_ack(0)]);
        net.wide_sends(4 * WIDE_SEGMENT);
        let all = [net.narrow_ack(SEGMENT).stamped(10, 10), change(net.narrow_ack(2 * SEGMENT).stamped(10, 10))];
        assert_eq!(net.push(NARROW, &all).len(), 2, "{what}");
    }
}

#[test]
fn acknowledgements_of_connections_in_turns_are_compressed_each() {
    let mut net = Net::new(AckPolicy::Compress, 4, Some(7));
    let ports = [40_000, 40_001];
    net.shake(40_001);
    for port in ports {
        net.push(NARROW, &[net.of_narrow(port)]);
        net.push(WIDE, &[net.of_wide(port).payload(vec![7; 8_900])]);
    }
    let all: Vec<Spec> = (1..=6)
        .flat_map(|count| ports.map(|port| Spec { ack: 1 + count * 1_400, ..net.of_narrow(port) }))
        .collect();
    let left = net.push(NARROW, &all);
    assert_eq!(acks(&left), [8_400; 2]);
    assert_ne!(left[0].ports, left[1].ports);
}

#[test]
fn the_kernel_does_not_forward_connections_whose_acknowledgements_are_changed() {
    for (policy, is_left) in
        [(AckPolicy::Unchanged, true), (AckPolicy::Expand, false), (AckPolicy::Compress, false)]
    {
        let mut net = Net::new(policy, 4, Some(7));
        let ends = [(Address::from(host(4, 1)), 40_000), (Address::from(host(4, 2)), 80)];
        assert_eq!(net.gateway.resized_limits(ends, 0).is_some(), is_left, "{policy:?}");
        assert_eq!(net.gateway.on_offloaded(Time::ZERO, ends, 0).is_some(), is_left, "{policy:?}");
    }
}
