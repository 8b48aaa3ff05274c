//! The end of a border: each wide host with a raised MSS gets an ICMP error that its own TCP accepts.

use crate::rig::*;
use std::time::Duration;
use wideload_engine::packet::{Frame, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    ANSWERS_BURST, ANSWERS_PER_SECOND, Border, Connection, Connections, FLOW_CHARGE, IcmpResponder, Ledger, Output,
    Raise, Secret, Toward,
};

#[test]
fn hosts_with_a_raised_mss_get_an_icmp_error_for_the_next_byte() {
    for (version, vlans) in [(4, None), (4, Some(vec![])), (4, Some(vec![7])), (6, None), (6, Some(vec![9, 8]))] {
        let mut testbed = Testbed::new(FLOW_CHARGE * 64);
        testbed.link_type = if vlans.is_some() { LinkType::Ethernet } else { LinkType::Ip };
        testbed.vlans = vlans.clone();
        testbed.shake(version, 1, 1_440);
        testbed.pass(Toward::Wide, Spec { ack: 5_000, flags: ACK, ..testbed.of_narrow(version, 1) });
        testbed.pass(Toward::Wide, Spec { ack: 9_000, flags: ACK, ..testbed.of_narrow(version, 1) });
        // An older acknowledgement, and one that no host can have sent.
        testbed.pass(Toward::Wide, Spec { ack: 6_000, flags: ACK, ..testbed.of_narrow(version, 1) });
        testbed.pass(Toward::Wide, Spec { ack: 0xC000_0000, flags: ACK, ..testbed.of_narrow(version, 1) });
        let told = testbed.tell();
        assert_eq!(told.len(), 1, "{version} {vlans:?}");
        let [Some(frame)] = &told[..] else { panic!("it is told") };
        let seen = seen(frame, testbed.link_type);
        let icmp = seen.upper();
        let (kind, mtu, quoted_at) =
            if version == 4 { ([3, 4], &icmp[6..8], 20) } else { ([2, 0], &icmp[6..8], 40) };
        assert_eq!((&icmp[..2], mtu), (&kind[..], &1_500_u16.to_be_bytes()[..]));
        let tcp = &icmp[8 + quoted_at..];
        assert_eq!(tcp[..2], 443_u16.to_be_bytes(), "it quotes what the wide host sends");
        assert_eq!(tcp[2..4], 10_001_u16.to_be_bytes());
        assert_eq!(tcp[4..8], 9_000_u32.to_be_bytes(), "from the byte on that is asked for");
        let quoted_len = u16::from_be_bytes([icmp[8 + 2], icmp[8 + 3]]);
        if version == 4 {
            assert!(quoted_len > 8_000, "it was too long: {quoted_len}");
        }
        assert!(seen.sum_is_right);
        if testbed.link_type == LinkType::Ethernet {
            // To the station that received the narrow host's packets.
            assert_eq!(frame[..seen.ip_at], testbed.of_narrow(version, 1).bytes()[..seen.ip_at]);
        }
    }
}

#[test]
fn only_live_connections_with_a_raised_mss_get_errors() {
    let mut testbed = Testbed::new(FLOW_CHARGE * 64);
    // Without raising, the wide host gets the MSS that the narrow host announced.
    testbed.border.raise = Raise::Never;
    testbed.renew();
    testbed.shake(4, 1, 1_440);
    assert_eq!(testbed.tell(), Vec::<Option<Vec<u8>>>::new());
    testbed.border.raise = Raise::Always;
    testbed.renew();
    // From now on no MSS is raised.
    testbed.mss.stop_raising();
    testbed.shake(4, 2, 1_440);
    assert_eq!(testbed.tell(), Vec::<Option<Vec<u8>>>::new());
    // The narrow host's next expected sequence number is unknown so far.
    testbed.renew();
    let syn = Spec { flags: SYN, options: mss_option(1_440), ..testbed.of_narrow(4, 3) };
    testbed.pass(Toward::Wide, syn);
    assert_eq!(testbed.tell(), [None]);
}

#[test]
fn offloaded_acks_update_the_connection() {
    for version in [4, 6] {
        let mut testbed = Testbed::new(FLOW_CHARGE * 64);
        testbed.shake(version, 1, 1_440);
        let frame = testbed.of_narrow(version, 1).bytes();
        let packet = Frame::copy(&frame, LinkType::Ip, Ingress(1), &mut testbed.out.pool).expect("it is one");
        let (narrow, wide) = packet.addresses();
        testbed.out.recycle(packet);
        testbed.mss.on_offloaded_ack([(narrow, 10_001), (wide, 443)], Toward::Wide, 70_000);
        testbed.mss.on_offloaded_ack([(narrow, 10_001), (wide, 443)], Toward::Wide, 60_000);
        // A packet of another connection.
        testbed.mss.on_offloaded_ack([(narrow, 10_002), (wide, 443)], Toward::Wide, 90_000);
        let [Some(frame)] = &testbed.tell()[..] else { panic!("it is told") };
        let seq_at = ReadPacket::of(frame).upper_at + 8 + if version == 4 { 24 } else { 44 };
        assert_eq!(frame[seq_at..seq_at + 4], 70_000_u32.to_be_bytes());
    }
}

#[test]
fn port_reuse_starts_a_new_byte_count() {
    let mut testbed = Testbed::new(FLOW_CHARGE * 64);
    testbed.shake(4, 1, 1_440);
    testbed.pass(Toward::Wide, Spec { ack: 900_000, flags: ACK, ..testbed.of_narrow(4, 1) });
    let again =
        |spec: Spec, seq: u32, ack: u32, flags| Spec { seq, ack, flags, options: mss_option(1_440), ..spec };
    testbed.pass(Toward::Narrow, again(testbed.of_wide(4, 1), 7_000, 0, SYN));
    testbed.pass(Toward::Wide, again(testbed.of_narrow(4, 1), 80, 7_001, SYN | ACK));
    let [Some(frame)] = &testbed.tell()[..] else { panic!("it is told") };
    let seq_at = ReadPacket::of(frame).upper_at + 8 + 24;
    assert_eq!(frame[seq_at..seq_at + 4], 7_001_u32.to_be_bytes());
}

#[test]
fn an_earlier_raised_mss_is_recognised_by_long_segments() {
    for (vlans, len, is_told) in [(None, 1_460, false), (None, 1_461, true), (Some(vec![7]), 8_000, true)] {
        let mut testbed = Testbed::new(FLOW_CHARGE * 64);
        testbed.link_type = if vlans.is_some() { LinkType::Ethernet } else { LinkType::Ip };
        testbed.vlans = vlans;
        testbed.pass(Toward::Narrow, testbed.of_wide(4, 1).carrying(0, len));
        testbed.pass(Toward::Wide, Spec { ack: 8_000, flags: ACK, ..testbed.of_narrow(4, 1) });
        let told = testbed.tell();
        assert_eq!(told.iter().flatten().count(), usize::from(is_told), "{len}");
        if let [Some(frame)] = &told[..] {
            let seen = seen(frame, testbed.link_type);
            let seq_at = seen.upper_at + 8 + 24;
            assert_eq!(frame[seq_at..seq_at + 4], 8_000_u32.to_be_bytes());
            assert_eq!(frame[..seen.ip_at], testbed.of_narrow(4, 1).bytes()[..seen.ip_at]);
        }
    }
}

#[test]
fn evicted_live_connections_are_counted() {
    let mut testbed = Testbed::new(FLOW_CHARGE * 16);
    for port in 0..40 {
        testbed.shake(4, port, 1_440);
    }
    let known = testbed.mss.raised_connections().count() as u64;
    assert!(known < 40 && testbed.mss.forgotten_count() == 40 - known, "{known}");
    let mut testbed = Testbed::new(FLOW_CHARGE * 64);
    testbed.shake(4, 1, 1_440);
    testbed.shake(4, 2, 1_440);
    testbed.pass(Toward::Wide, Spec { flags: FIN | ACK, ..testbed.of_narrow(4, 2) });
    testbed.now = testbed.now + Duration::from_secs(10_000);
    testbed.mss.expire(testbed.now);
    assert_eq!((testbed.mss.forgotten_count(), testbed.mss.flow_count()), (1, 0));
}

#[test]
fn final_errors_exceed_the_usual_rate_limit() {
    let mut testbed = Testbed::new(FLOW_CHARGE * 2_000);
    (0..500).for_each(|port| testbed.shake(4, port, 1_440));
    assert_eq!(testbed.tell().iter().flatten().count(), 500);
}

/// A border's connection table with its settings.
struct Testbed {
    mss: Connections,
    border: Border,
    limit: usize,
    out: Output,
    ledger: Ledger,
    now: Time,
    link_type: LinkType,
    vlans: Option<Vec<u16>>,
}

impl Testbed {
    fn new(limit: usize) -> Testbed {
        let border = Border { raise: Raise::Always, ..Border::usual(9_000, 1_500) };
        let sources = ["192.0.2.1".parse().expect("it is one"), "2001:db8::1".parse().expect("it is one")];
        let answers = IcmpResponder::new(sources, ANSWERS_PER_SECOND, ANSWERS_BURST, Secret::new(1));
        Testbed {
            mss: Connections::at_border(limit, border.clone(), Secret::new(2)),
            border,
            limit,
            out: Output::new(Pool::new(64 << 20), Some(answers)),
            ledger: Ledger::new(),
            now: Time::ZERO,
            link_type: LinkType::Ip,
            vlans: None,
        }
    }

    /// Starts a new table with the present settings.
    fn renew(&mut self) {
        self.mss = Connections::at_border(self.limit, self.border.clone(), Secret::new(2));
    }

    fn of_narrow(&self, version: u8, port: u16) -> Spec {
        let vlans = self.vlans.clone();
        Spec { vlans, ..tcp(version).ports(10_000 + port, 443) }
    }

    fn of_wide(&self, version: u8, port: u16) -> Spec {
        self.of_narrow(version, port).turned()
    }

    /// A handshake of the wide host; the narrow host announces this MSS.
    fn shake(&mut self, version: u8, port: u16, mss: u16) {
        let syn = Spec { flags: SYN, seq: 99, options: mss_option(8_960), ..self.of_wide(version, port) };
        self.pass(Toward::Narrow, syn);
        let answer =
            Spec { flags: SYN | ACK, seq: 5, ack: 100, options: mss_option(mss), ..self.of_narrow(version, port) };
        self.pass(Toward::Wide, answer);
        self.pass(Toward::Narrow, Spec { flags: ACK, seq: 100, ack: 6, ..self.of_wide(version, port) });
        self.pass(Toward::Wide, Spec { flags: ACK, seq: 6, ack: 101, ..self.of_narrow(version, port) });
    }

    fn pass(&mut self, toward: Toward, spec: Spec) {
        let ingress = Ingress(u32::from(toward == Toward::Wide));
        let mut packet =
            Frame::copy(&spec.bytes(), self.link_type, ingress, &mut self.out.pool).expect("it is a packet");
        self.mss.on_packet(self.now, &mut packet, toward, &mut self.ledger);
        self.out.recycle(packet);
    }

    /// The ICMP error for each raised connection; `None` where none is possible.
    fn tell(&mut self) -> Vec<Option<Vec<u8>>> {
        let connections: Vec<Connection> = self.mss.raised_connections().collect();
        let told = connections.iter().map(|connection| {
            let is_told = self.mss.tell(connection, Ingress(0), &mut self.out);
            let answer = self.out.next();
            assert_eq!(answer.is_some(), is_told);
            answer.map(|answer| {
                let frame = answer.frame().to_vec();
                self.out.recycle(answer);
                frame
            })
        });
        let told = told.collect();
        assert_eq!(self.out.pool.in_use_count(), 0);
        told
    }
}

fn mss_option(mss: u16) -> Vec<u8> {
    [&[2, 4][..], &mss.to_be_bytes()].concat()
}
