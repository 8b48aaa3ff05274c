//! Early acknowledgements at a border: nothing is acknowledged that is not kept, and nothing kept is lost.

use core::time::Duration;
use testkit::fields::*;
use testkit::{ReadPacket, Spec, Summed, each_seed, host, tcp};
use wideload_engine::packet::{Address, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    ACK_STORE_MIN, AckPolicy, Batch, Egress, Event, Gateway, GatewayRole, GatewaySettings, Reason, Secret, Secrets,
    WirePackets,
};

/// A border with connections between wide and narrow hosts, whose windows are shifted by these bits.
struct Net {
    gateway: Gateway,
    now: Time,
    version: u8,
    shift: u8,
    settings: GatewaySettings,
}

const WIDE: usize = 0;
const NARROW: usize = 1;
/// Payload of a full segment of the narrow host, and the window of the wide host, in bytes.
const SEGMENT: u32 = 1_400;
const WINDOW: u32 = 60_000;
const ECE: u8 = 0x40;
type Change = (&'static str, fn(Spec) -> Spec);

/// The packets that leave: toward the other side, and back to their sender.
#[derive(Debug, Default)]
struct Left {
    forwarded: Vec<ReadPacket>,
    replies: Vec<ReadPacket>,
}

impl Left {
    /// The acknowledged bytes and the windows of the replies.
    fn told(&self) -> Vec<(u32, u32)> {
        self.replies.iter().map(|it| (it.ack - 1, it.window.into())).collect()
    }

    /// The same of the forwarded packets.
    fn acks(&self) -> Vec<(u32, u32)> {
        self.forwarded.iter().map(|it| (it.ack - 1, it.window.into())).collect()
    }

    /// The first byte of the forwarded data, and the byte behind it, for each range without gaps.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = Vec::new();
        for packet in self.forwarded.iter().filter(|packet| !packet.payload().is_empty()) {
            let (start, len) = (packet.seq - 1, packet.payload().len() as u32);
            match all.last_mut().filter(|(_, end)| *end == start) {
                Some((_, end)) => *end += len,
                None => all.push((start, start + len)),
            }
        }
        all
    }
}

impl Net {
    fn new(version: u8, shift: u8, limit: usize) -> Net {
        let settings = settings(AckPolicy::Early, limit);
        let gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(16 << 20));
        let mut net = Net { gateway, now: Time::ZERO, version, shift, settings };
        net.shake(40_000);
        net
    }

    fn usual() -> Net {
        Net::new(4, 0, ACK_STORE_MIN)
    }

    /// A handshake from the wide host's port. Both initial sequence numbers are 0.
    fn shake(&mut self, port: u16) {
        let options = |mss: u16| [vec![2, 4], mss.to_be_bytes().to_vec(), vec![1, 3, 3, self.shift]].concat();
        let [wide_mss, narrow_mss] = if self.version == 4 { [8_960, 1_460] } else { [8_940, 1_440] };
        let syn = Spec { seq: 0, flags: SYN, options: options(wide_mss), ..self.of_wide(port) };
        let answer =
            Spec { seq: 0, ack: 1, flags: SYN | ACK, options: options(narrow_mss), ..self.of_narrow(port) };
        let wide = self.window();
        self.push(WIDE, &[syn]);
        self.push(NARROW, &[answer]);
        self.push(WIDE, &[Spec { window: wide, ..self.of_wide(port) }]);
    }

    fn window(&self) -> u16 {
        (WINDOW >> self.shift) as u16
    }

    fn of_wide(&self, port: u16) -> Spec {
        let spec = tcp(self.version).from(host(self.version, 1)).to(host(self.version, 2)).ports(port, 80).seq(1);
        Spec { ack: 1, flags: ACK, ..spec }
    }

    fn of_narrow(&self, port: u16) -> Spec {
        let spec = tcp(self.version).from(host(self.version, 2)).to(host(self.version, 1)).ports(80, port).seq(1);
        Spec { ack: 1, flags: ACK, ..spec }
    }

    /// An acknowledgement of the wide host for this many bytes, with the window up to the first right edge.
    fn wide_ack(&self, len: u32) -> Spec {
        Spec { ack: 1 + len, window: ((WINDOW - len) >> self.shift) as u16, ..self.of_wide(40_000) }
    }

    /// The narrow host's data from `start` to `end`.
    fn data(&self, start: u32, end: u32) -> Spec {
        let payload: Vec<u8> = (start..end).map(|at| at as u8).collect();
        Spec { seq: 1 + start, ..self.of_narrow(40_000) }.payload(payload)
    }

    /// Full segments from the segment number `first` on.
    fn segments(&self, first: u32, count: u32) -> Vec<Spec> {
        (first..first + count).map(|it| self.data(it * SEGMENT, (it + 1) * SEGMENT)).collect()
    }

    /// Pushes a batch from the wide or the narrow side. Returns the packets that leave.
    fn push(&mut self, from: usize, specs: &[Spec]) -> Left {
        let mut batch = Batch::default();
        for spec in specs {
            let (_, pool) = self.gateway.places(from);
            assert!(batch.receive(&spec.bytes(), LinkType::Ip, Ingress(from as u32), None, pool));
        }
        self.gateway.push(self.now, from, &mut batch);
        self.gateway.release(self.now, from);
        let left = self.drain(from);
        let are_right = specs.iter().all(|spec| spec.sum == Summed::Right);
        for packet in left.forwarded.iter().filter(|_| are_right).chain(&left.replies) {
            assert!(packet.sum_is_right, "{packet:?}");
        }
        left
    }

    fn drain(&mut self, from: usize) -> Left {
        let mut left = Left::default();
        while let Some(egress) = self.gateway.next(from) {
            let (packet, to) = match egress {
                Egress::Forward(packet) => (packet, &mut left.forwarded),
                Egress::IcmpReply(packet) => (packet, &mut left.replies),
                Egress::PassThrough(..) => panic!("all frames are packets"),
            };
            let mut packets = WirePackets::of(&packet);
            while let Some(wire) = packets.next() {
                to.push(ReadPacket::of(&[wire.header, wire.payload].concat()));
            }
            self.gateway.recycle(from, packet);
        }
        self.gateway.check(from).unwrap();
        left
    }

    /// Lets time pass. Returns the packets that leave toward the wide host, with their times in milliseconds.
    fn wait(&mut self, stretch: Duration) -> Vec<(u64, Left)> {
        let (begin, end) = (self.now, self.now + stretch);
        let mut all = Vec::new();
        while let Some(deadline) = self.gateway.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = deadline.max(self.now);
            self.gateway.expire(self.now);
            assert!(self.gateway.next_deadline().is_none_or(|next| next > self.now), "what is late is gone");
            let left = self.drain(NARROW);
            if !left.forwarded.is_empty() || !left.replies.is_empty() {
                all.push((self.now.since(begin).as_millis() as u64, left));
            }
        }
        self.now = end;
        all
    }

    fn millis(&mut self, count: u64) -> Vec<(u64, Left)> {
        self.wait(Duration::from_millis(count))
    }

    /// The data that is sent again at once.
    fn repeated(&mut self) -> Vec<(u32, u32)> {
        let start = self.count(Event::EarlyResent);
        let left = self.millis(25);
        let data = left.iter().flat_map(|(_, left)| left.ranges()).collect();
        if self.count(Event::EarlyResent) == start { Vec::new() } else { data }
    }

    fn count(&self, event: Event) -> u64 {
        self.gateway.ledger(NARROW).event(event).packets
    }

    fn absorbed(&self) -> u64 {
        self.gateway.ledger(WIDE).retired(Reason::AckAbsorbed).packets
    }
}

fn settings(policy: AckPolicy, limit: usize) -> GatewaySettings {
    let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
    let border = settings.border.as_mut().unwrap();
    (border.acks, border.ack_store) = (policy, limit);
    settings
}

#[test]
fn every_second_segment_is_acknowledged_at_once_and_so_is_the_last_of_a_batch() {
    for version in [4, 6] {
        for shift in [0, 2] {
            let mut net = Net::new(version, shift, ACK_STORE_MIN);
            let left = net.push(NARROW, &net.segments(0, 5));
            let window = |count: u32| (WINDOW - count * SEGMENT) >> shift;
            let expected: Vec<_> = [2, 4, 5].map(|count| (count * SEGMENT, window(count))).into();
            assert_eq!(left.told(), expected, "IPv{version}, shift {shift}");
            for reply in &left.replies {
                assert_eq!((reply.source, reply.destination), (host(version, 1), host(version, 2)));
                assert_eq!((reply.ports, reply.seq, reply.flags), ([40_000, 80], 1, ACK));
                assert!(version == 6 || reply.dont_fragment, "it has no IP ID");
            }
            assert_eq!(left.ranges(), [(0, 5 * SEGMENT)], "the data passes as usual");
            assert_eq!((net.count(Event::EarlyAcks), net.absorbed()), (3, 0));
        }
    }
}

#[test]
fn acknowledgements_of_the_host_that_tell_nothing_new_are_absorbed() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 6));
    for count in [2, 4, 6] {
        assert!(net.push(WIDE, &[net.wide_ack(count * SEGMENT)]).forwarded.is_empty(), "{count}");
    }
    assert_eq!(net.absorbed(), 3);
    assert!(
        net.gateway.next_deadline().is_none_or(|due| due > net.now + Duration::from_secs(9)),
        "nothing is owed"
    );
    let duplicate = net.wide_ack(6 * SEGMENT);
    assert_eq!(
        net.push(WIDE, std::slice::from_ref(&duplicate)).forwarded[0].packet(),
        duplicate.bytes(),
        "the host's own duplicate"
    );
}

#[test]
fn a_new_right_edge_is_told_with_the_early_number() {
    let mut net = Net::new(4, 2, ACK_STORE_MIN);
    net.push(NARROW, &net.segments(0, 6));
    let wider = Spec { window: net.window(), ..net.wide_ack(2 * SEGMENT) };
    let left = net.push(WIDE, &[wider]);
    let edge = WINDOW + 2 * SEGMENT;
    assert_eq!(left.acks(), [(6 * SEGMENT, (edge - 6 * SEGMENT) >> 2)]);
    assert!(net.push(WIDE, &[net.wide_ack(4 * SEGMENT)]).forwarded.is_empty(), "an edge never shrinks");
    let left = net.push(NARROW, &net.segments(6, 2));
    assert_eq!(
        left.told(),
        [(8 * SEGMENT, (WINDOW - 8 * SEGMENT) >> 2)],
        "but no early number uses more than it allows"
    );
}

#[test]
fn nothing_beyond_the_window_is_acknowledged_early() {
    let mut net = Net::usual();
    let count = WINDOW / SEGMENT;
    let left = net.push(NARROW, &net.segments(0, count + 5));
    assert_eq!(left.told().last(), Some(&(count * SEGMENT, WINDOW % SEGMENT)));
}

#[test]
fn other_packets_of_the_host_get_the_early_number() {
    let changes: [Change; 3] = [
        ("data", |spec| spec.payload([7; 100])),
        ("ECE", |spec| spec.flags(ACK | ECE)),
        ("FIN", |spec| spec.flags(ACK | FIN)),
    ];
    for (what, change) in changes {
        let mut net = Net::usual();
        net.push(NARROW, &net.segments(0, 6));
        let left = net.push(WIDE, &[change(net.wide_ack(2 * SEGMENT))]);
        assert_eq!(left.acks(), [(6 * SEGMENT, WINDOW - 6 * SEGMENT)], "{what}");
    }
}

#[test]
fn blocks_behind_the_early_number_stay_and_others_are_removed() {
    let block = |start: u32, end: u32| [(1 + start).to_be_bytes(), (1 + end).to_be_bytes()].concat();
    let sack = |blocks: &[Vec<u8>]| {
        let content = blocks.concat();
        [vec![1, 1, 5, 2 + content.len() as u8], content].concat()
    };
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 4));
    let behind = net.segments(5, 1);
    assert_eq!(net.push(NARROW, &behind).told(), [], "there is a hole");
    let [owed, hole] = [block(2 * SEGMENT, 3 * SEGMENT), block(5 * SEGMENT, 6 * SEGMENT)];
    let both = net.wide_ack(SEGMENT).options(sack(&[owed.clone(), hole.clone()]));
    let left = net.push(WIDE, &[both]);
    assert_eq!(left.acks(), [(4 * SEGMENT, WINDOW - 4 * SEGMENT)]);
    let expected = [sack(&[hole]), vec![1; 8]].concat();
    assert_eq!(left.forwarded[0].options(), expected);
    let only_owed = net.wide_ack(SEGMENT).options(sack(&[owed]));
    assert!(net.push(WIDE, &[only_owed]).forwarded.is_empty());
}

#[test]
fn data_behind_a_hole_is_acknowledged_as_soon_as_the_hole_is_filled() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 2));
    assert_eq!(net.push(NARROW, &net.segments(3, 3)).told(), []);
    assert_eq!(net.push(NARROW, &net.segments(2, 1)).told(), [(6 * SEGMENT, WINDOW - 6 * SEGMENT)]);
}

#[test]
fn three_duplicates_of_the_host_send_the_owed_bytes_again_until_all_losses_are_repaired() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 20));
    net.push(WIDE, &[net.wide_ack(SEGMENT)]);
    for count in 1..=2 {
        assert!(net.push(WIDE, &[net.wide_ack(SEGMENT)]).forwarded.is_empty());
        assert_eq!(net.repeated(), [], "{count}");
    }
    net.push(WIDE, &[net.wide_ack(SEGMENT)]);
    assert_eq!(net.repeated(), [(SEGMENT, 7 * SEGMENT)], "as much as one wide packet carries");
    net.push(WIDE, &[net.wide_ack(SEGMENT)]);
    assert_eq!(net.repeated(), [], "once");
    net.push(WIDE, &[net.wide_ack(12 * SEGMENT)]);
    assert_eq!(net.repeated(), [(12 * SEGMENT, 18 * SEGMENT)], "another loss of the same flight (RFC 6582)");
    net.push(WIDE, &[net.wide_ack(20 * SEGMENT)]);
    assert_eq!(net.millis(10_000).len(), 0, "nothing is owed");
    assert_eq!(net.count(Event::EarlyResent), 12);
}

#[test]
fn the_host_s_copies_and_window_updates_are_no_duplicates() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 20));
    net.push(WIDE, &[net.wide_ack(SEGMENT)]);
    let copy = [&[1, 1, 5, 10][..], &1_u32.to_be_bytes(), &(1 + SEGMENT).to_be_bytes()].concat();
    for count in 0..4 {
        net.push(WIDE, &[net.wide_ack(SEGMENT).options(&copy)]);
        net.push(WIDE, &[Spec { window: 59_000 + count, ..net.wide_ack(SEGMENT) }]);
    }
    assert_eq!(net.repeated(), []);
}

#[test]
fn owed_bytes_are_sent_again_with_doubled_time_outs_until_the_host_acknowledges_them() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 3));
    let left = net.millis(16_000);
    let times: Vec<u64> = left.iter().map(|(time, _)| time / 1_000).collect();
    assert_eq!(times, [1, 3, 7, 15]);
    for (_, left) in &left {
        assert_eq!(left.ranges(), [(0, 3 * SEGMENT)]);
        let payload: Vec<u8> = (0..3 * SEGMENT).map(|at| at as u8).collect();
        let payloads: Vec<&[u8]> = left.forwarded.iter().map(ReadPacket::payload).collect();
        assert_eq!(payloads.concat(), payload);
        assert!(left.forwarded.iter().all(|packet| packet.sum_is_right));
    }
    net.push(WIDE, &[net.wide_ack(3 * SEGMENT)]);
    assert_eq!(net.millis(1_000_000).len(), 0);
}

#[test]
fn a_measured_time_shortens_the_time_out() {
    let mut net = Net::usual();
    for round in 0..10 {
        net.push(NARROW, &net.segments(2 * round, 2));
        assert!(net.millis(10).is_empty());
        net.push(WIDE, &[net.wide_ack(2 * (round + 1) * SEGMENT)]);
    }
    net.push(NARROW, &net.segments(20, 2));
    let times: Vec<u64> = net.millis(600).iter().map(|(time, _)| time / 10).collect();
    assert_eq!(times, [21], "200 ms above the round trip");
}

#[test]
fn a_silent_host_is_given_up_after_a_quarter_of_an_hour_and_the_narrow_host_gets_a_reset() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 3));
    let left = net.wait(Duration::from_secs(2_000));
    assert_eq!(net.count(Event::EarlyLost), 3);
    assert_eq!(net.gateway.ledger(NARROW).event(Event::EarlyLost).bytes, (3 * SEGMENT).into());
    let (time, last) = left.last().unwrap();
    assert!((900_000..1_300_000).contains(time), "after {time} ms");
    let reset = &last.replies[0];
    assert_eq!((reset.flags, reset.seq, reset.ack), (RST | ACK, 1, 1 + 3 * SEGMENT));
    assert_eq!(left.iter().filter(|(_, left)| !left.forwarded.is_empty()).count(), 15);
}

#[test]
fn bytes_that_are_sent_again_carry_the_last_acknowledgement_and_no_congestion_mark() {
    let mut net = Net::usual();
    let first = Spec { tos: 3, ..net.data(0, SEGMENT) }.stamped(10, 5);
    net.push(NARROW, &[first]);
    net.push(WIDE, &[net.wide_ack(0).stamped(6, 9).payload([7; 100])]);
    net.push(NARROW, &[Spec { seq: 1 + SEGMENT, ack: 101, window: 77, ..net.of_narrow(40_000) }.stamped(12, 6)]);
    let left = net.millis(1_500);
    let again = &left[0].1.forwarded[0];
    assert_eq!((again.seq, again.ack, again.window, again.tos), (1, 101, 77, 0));
    assert_eq!(again.options(), tcp(4).stamped(12, 6).options);
}

#[test]
fn early_acknowledgements_echo_the_first_timestamp_that_they_acknowledge() {
    let mut net = Net::usual();
    let batch: Vec<Spec> =
        net.segments(0, 4).into_iter().zip(10..).map(|(spec, value)| spec.stamped(value, 3)).collect();
    net.push(WIDE, &[net.wide_ack(0).stamped(4, 0)]);
    let left = net.push(NARROW, &batch);
    let stamps = |value: u32, echo: u32| tcp(4).stamped(value, echo).options;
    assert_eq!(left.replies[0].options(), stamps(3, 10), "RFC 7323 section 4.3");
    assert_eq!(left.replies[1].options(), stamps(3, 12));
    net.push(WIDE, &[net.wide_ack(0).stamped(5, 10)]);
    let left = net.push(NARROW, &[net.segments(4, 1)[0].clone().stamped(20, 3)]);
    assert_eq!(left.replies[0].options(), stamps(5, 20), "the host's timestamps never go back (PAWS)");
}

#[test]
fn repeated_data_and_probes_are_answered_with_the_early_number() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 4));
    let told = (4 * SEGMENT, WINDOW - 4 * SEGMENT);
    assert_eq!(net.push(NARROW, &net.segments(1, 1)).told(), [told], "the early number was lost");
    let probe = Spec { seq: 4 * SEGMENT, ..net.of_narrow(40_000) };
    assert_eq!(net.push(NARROW, std::slice::from_ref(&probe)).told(), [told], "a keep-alive");
    net.push(WIDE, &[net.wide_ack(4 * SEGMENT)]);
    assert_eq!(net.push(NARROW, &[probe]).told(), [], "the host itself answers");
}

#[test]
fn packets_that_no_copy_can_replace_are_not_acknowledged_early() {
    let changes: [Change; 8] = [
        ("FIN", |spec| spec.flags(ACK | FIN)),
        ("RST", |spec| spec.flags(ACK | RST)),
        ("URG", |spec| spec.flags(ACK | 0x20)),
        ("no DF", |spec| spec.ip_flags(0)),
        ("damage", |spec| spec.sum(Summed::Off(1))),
        ("a signature", |spec| spec.options([&[1, 1, 19, 18][..], &[5; 16]].concat())),
        ("no data", |spec| spec.payload([])),
        ("data behind a hole", |spec| Spec { seq: 9_999, ..spec }),
    ];
    for (what, change) in changes {
        let mut net = Net::usual();
        let left = net.push(NARROW, &[change(net.data(0, SEGMENT))]);
        assert_eq!(left.told(), [], "{what}");
        assert_eq!(net.millis(5_000).iter().filter(|(_, left)| !left.forwarded.is_empty()).count(), 0, "{what}");
    }
}

#[test]
fn an_acknowledgement_of_data_that_was_not_sent_or_is_damaged_frees_no_bytes() {
    let forged: [Change; 3] = [
        ("not sent", |spec| Spec { ack: 1 << 30, ..spec }),
        ("damaged", |spec| Spec { ack: 1 + 3 * SEGMENT, ..spec }.sum(Summed::Off(1))),
        ("far away", |spec| Spec { ack: 1 + 3 * SEGMENT, seq: 1 << 28, ..spec }),
    ];
    for (what, change) in forged {
        let mut net = Net::usual();
        net.push(NARROW, &net.segments(0, 3));
        net.push(WIDE, &[change(net.wide_ack(0))]);
        assert_eq!(net.millis(1_500).len(), 1, "{what}");
    }
}

#[test]
fn only_an_exact_reset_and_a_new_handshake_free_owed_bytes() {
    for (from, seq, is_exact) in
        [(WIDE, 1, true), (WIDE, 2, false), (NARROW, 1 + 3 * SEGMENT, true), (NARROW, 7, false)]
    {
        let mut net = Net::usual();
        net.push(NARROW, &net.segments(0, 3));
        let sender = if from == WIDE { net.of_wide(40_000) } else { net.of_narrow(40_000) };
        net.push(from, &[Spec { seq, ..sender }.flags(RST | ACK)]);
        assert_eq!(net.millis(1_500).is_empty(), is_exact, "from {from}: {seq}");
    }
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 3));
    let syn = Spec { seq: 900_000, ..net.of_wide(40_000) }.flags(SYN);
    net.push(WIDE, &[syn]);
    assert_eq!(net.millis(1_500).len(), 1, "a SYN alone may be forged");
    let answer = Spec { seq: 800_000, ack: 900_001, ..net.of_narrow(40_000) }.flags(SYN | ACK);
    net.push(NARROW, &[answer]);
    net.push(WIDE, &[Spec { seq: 900_001, ack: 800_001, ..net.of_wide(40_000) }]);
    assert_eq!(net.millis(60_000).len(), 0);
    assert_eq!(net.count(Event::EarlyLost), 0);
}

#[test]
fn a_full_store_forwards_segments_without_early_acknowledgements_and_leaves_room_for_others() {
    let mut net = Net::new(4, 7, ACK_STORE_MIN);
    let kept_max = |net: &mut Net, port: u16| {
        net.push(WIDE, &[Spec { window: u16::MAX, ..net.of_wide(port) }]);
        let mut told = 0;
        for at in 0..900 {
            let spec = Spec { seq: 1 + at * SEGMENT, ..net.of_narrow(port) }.payload(vec![7; SEGMENT as usize]);
            let left = net.push(NARROW, &[spec]);
            assert_eq!(left.forwarded.len(), 1);
            told = left.told().last().map_or(told, |(ack, _)| *ack);
        }
        told as usize
    };
    net.shake(40_001);
    let first = kept_max(&mut net, 40_000);
    assert!((ACK_STORE_MIN * 2 / 5..ACK_STORE_MIN / 2).contains(&first), "{first}");
    let second = kept_max(&mut net, 40_001);
    assert!((ACK_STORE_MIN / 5..ACK_STORE_MIN / 3).contains(&second), "{second}");
    let known = net.gateway.connections().unwrap();
    assert!(known.charged() <= known.limit());
}

#[test]
fn a_reload_to_another_policy_keeps_the_owed_bytes_and_then_ends() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 4));
    net.gateway.replace(net.now, &settings(AckPolicy::Unchanged, 0), Secrets::both(Secret::new(8)));
    assert_eq!(net.push(NARROW, &net.segments(4, 2)).told(), [], "nothing more is acknowledged early");
    assert_eq!(net.millis(1_500).len(), 1, "what is owed is sent again");
    assert!(net.push(WIDE, &[net.wide_ack(2 * SEGMENT)]).forwarded.is_empty(), "lower numbers are absorbed");
    net.push(WIDE, &[net.wide_ack(6 * SEGMENT)]);
    let ends = [(Address::from(host(4, 1)), 40_000), (Address::from(host(4, 2)), 80)];
    assert!(net.gateway.resized_limits(ends, 0).is_some(), "the kernel may forward the connection");
    let settings = net.settings.clone();
    net.gateway.replace(net.now, &settings, Secrets::both(Secret::new(9)));
    assert_eq!(net.push(NARROW, &net.segments(6, 2)).told(), [(8 * SEGMENT, WINDOW - 8 * SEGMENT)]);
}

#[test]
fn a_gateway_that_ends_sends_all_owed_bytes_once_more() {
    for hands_over in [false, true] {
        let mut net = Net::usual();
        net.push(NARROW, &net.segments(0, 20));
        net.push(WIDE, &[net.wide_ack(8 * SEGMENT)]);
        if hands_over {
            net.gateway.hand_over(net.now, NARROW);
        } else {
            net.gateway.flush(net.now);
        }
        let ranges = net.drain(NARROW).ranges();
        assert_eq!((ranges.first().unwrap().0, ranges.last().unwrap().1), (8 * SEGMENT, 20 * SEGMENT));
        assert!(net.gateway.next_deadline().is_none_or(|due| due > net.now + Duration::from_secs(9)));
    }
}

#[test]
fn packets_that_the_wide_host_would_refuse_teach_nothing() {
    // Data far ahead, acknowledgements of data that nobody sent, and an earlier timestamp.
    let forged: [Change; 4] = [
        ("data ahead", |spec| Spec { seq: spec.seq + (1 << 20), ..spec }.payload([7; 100])),
        ("data behind", |spec| Spec { seq: spec.seq.wrapping_sub(1 << 20), ..spec }.payload([7; 100])),
        ("acknowledgement ahead", |spec| Spec { ack: spec.ack + (1 << 28), ..spec }.payload([7; 100])),
        ("earlier timestamp", |spec| spec.stamped(50, 90).payload([7; 100])),
    ];
    for (what, forge) in forged {
        let mut net = Net::usual();
        let data: Vec<Spec> = net.segments(0, 2).into_iter().map(|spec| spec.stamped(100, 90)).collect();
        assert_eq!(net.push(NARROW, &data).told().len(), 1, "{what}");
        let next = Spec { seq: 1 + 2 * SEGMENT, ..net.of_narrow(40_000) }.stamped(100, 90);
        let left = net.push(NARROW, &[forge(next)]);
        assert_eq!((left.replies.len(), left.forwarded.len()), (0, 1), "{what}");
        let (_, repeated) = net.millis(5_000).remove(0);
        assert_eq!(repeated.ranges(), [(0, 2 * SEGMENT)], "{what}");
        let first = &repeated.forwarded[0];
        assert_eq!((first.ack, first.options()), (1, &tcp(4).stamped(100, 90).options[..]), "{what}");
        net.push(WIDE, &[net.wide_ack(2 * SEGMENT)]);
        assert!(net.millis(5_000).iter().all(|(_, left)| left.forwarded.is_empty()), "{what}");
    }
}

#[test]
fn a_host_with_a_closed_window_is_not_given_up() {
    let mut net = Net::usual();
    net.push(NARROW, &net.segments(0, 2));
    let closed = Spec { window: 0, ..net.wide_ack(0) };
    for _ in 0..60 {
        net.push(WIDE, std::slice::from_ref(&closed));
        net.millis(60_000);
    }
    assert_eq!(net.count(Event::EarlyLost), 0);
    net.push(WIDE, &[net.wide_ack(2 * SEGMENT)]);
    assert!(net.millis(600_000).iter().all(|(_, left)| left.forwarded.is_empty()));
}

#[test]
fn a_crash_loses_bytes_that_only_the_border_acknowledged_and_nothing_without_early_acknowledgements() {
    for policy in [AckPolicy::Early, AckPolicy::Unchanged] {
        let mut net = Net::usual();
        let settings = settings(policy, ACK_STORE_MIN);
        let new = || Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(16 << 20));
        net.gateway = new();
        net.shake(40_000);
        let told = net.push(NARROW, &net.segments(0, 20)).told().last().map_or(0, |(ack, _)| *ack);
        net.gateway = new();
        // The network lost all behind the eighth segment, and the host says so.
        let left = net.push(WIDE, &[net.wide_ack(8 * SEGMENT)]);
        assert_eq!(left.acks()[0].0, 8 * SEGMENT, "the new gateway owes nothing");
        assert_eq!(net.millis(60_000).iter().map(|(_, left)| left.ranges().len()).sum::<usize>(), 0);
        // A sender repeats what nobody acknowledged.
        let lost = told.max(8 * SEGMENT) - 8 * SEGMENT;
        assert_eq!(lost, if policy == AckPolicy::Early { 12 * SEGMENT } else { 0 });
        let repeated = net.push(NARROW, &net.segments(8, 12)).ranges();
        assert_eq!(repeated, [(8 * SEGMENT, 20 * SEGMENT)], "repeated data passes");
    }
}

#[test]
#[should_panic(expected = "early acknowledgements need a store")]
fn a_border_without_a_store_does_not_start() {
    Gateway::new(&settings(AckPolicy::Early, ACK_STORE_MIN - 1), Secrets::both(Secret::new(7)), || {
        Pool::new(8 << 20)
    });
}

/// A wide host that receives in any order, behind a network that loses packets in both directions.
#[test]
fn every_acknowledged_byte_reaches_the_wide_host_whatever_is_lost() {
    each_seed("every_acknowledged_byte_reaches_the_wide_host_whatever_is_lost", 200, |seed| {
        let mut number = seed;
        // SplitMix64 (Steele and others 2014).
        let mut draw = |below: u64| {
            number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let one = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let two = (one ^ one >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (two ^ two >> 31) % below
        };
        let mut net = Net::usual();
        let total = 40 * SEGMENT;
        let mut received = vec![false; total as usize];
        let (mut told, mut next) = (0, 0);
        for step in 0..4_000 {
            let mut arrived: Vec<(u32, u32)> = Vec::new();
            let mut sent = Vec::new();
            for _ in 0..draw(4) {
                let at = if draw(3) == 0 { told } else { next };
                if at < total && at + SEGMENT <= WINDOW {
                    let end = (at + SEGMENT).min(total);
                    sent.push(net.data(at, end));
                    next = next.max(end);
                }
            }
            let left = net.push(NARROW, &sent);
            left.told().iter().filter(|_| draw(5) > 0).for_each(|(ack, _)| told = told.max(*ack));
            left.ranges().into_iter().filter(|_| draw(3) > 0).for_each(|range| arrived.push(range));
            for (_, left) in net.millis(draw(400)) {
                arrived.extend(left.ranges().into_iter().filter(|_| draw(3) > 0));
            }
            let is_news = !arrived.is_empty();
            arrived.iter().for_each(|&(start, end)| received[start as usize..end as usize].fill(true));
            let una = received.iter().position(|has| !has).unwrap_or(received.len()) as u32;
            if is_news && draw(4) > 0 {
                let left = net.push(WIDE, &[net.wide_ack(una)]);
                left.acks().iter().filter(|_| draw(5) > 0).for_each(|(ack, _)| told = told.max(*ack));
            }
            if una == total && told == total {
                return;
            }
            assert!(step < 3_999, "seed {seed}: {una} of {total} bytes arrived, {told} are acknowledged");
        }
    });
}
