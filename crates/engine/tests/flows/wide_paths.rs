//! Path MTU of the wide side: runs follow it, and narrow hosts only hear of their own packets.

use crate::paths::{NARROW, Net, RTT, WIDE, longest};
use testkit::fields::*;
use testkit::{ReadPacket, Spec, host};
use wideload_engine::packet::{Ingress, LinkType};
use wideload_engine::{Batch, Event, Reason, Toward};

/// Payload of a narrow segment.
const NARROW_LEN: usize = 1_440;
/// Segments of a run: they fill the wide link.
const COUNT: usize = 6;
const RUN_LEN: usize = COUNT * NARROW_LEN;

/// Sends segments of the narrow host, from this byte on, in one batch. Returns the packets toward the wide host.
fn send(net: &mut Net, at: usize) -> Vec<ReadPacket> {
    net.gateway.expire(net.now);
    let mut batch = Batch::default();
    for number in 0..COUNT {
        let spec = Spec { seq: 1 + (at + number * NARROW_LEN) as u32, ack: 1, ..net.of_narrow() };
        let (_, pool) = net.gateway.places(NARROW);
        let frame = spec.payload(vec![7; NARROW_LEN]).bytes();
        batch.receive(&frame, LinkType::Ip, Ingress(NARROW as u32), None, pool);
    }
    net.gateway.push(net.now, NARROW, &mut batch);
    net.drain(NARROW)
}

/// The ICMP error of a router on the wide side about a packet.
fn error(net: &Net, about: &ReadPacket, mtu: u16) -> Spec {
    net.too_big(about, mtu).to(host(net.version, 2))
}

fn used(net: &Net) -> [u64; 3] {
    let ledger = net.gateway.ledger(WIDE);
    [
        ledger.retired(Reason::IcmpUsed).packets,
        ledger.retired(Reason::IcmpRefused).packets,
        net.count(Event::PathLoweredIcmp),
    ]
}

#[test]
fn a_narrow_link_on_the_wide_side_shortens_runs_for_ten_minutes_and_the_narrow_host_hears_nothing() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let runs = send(&mut net, 0);
        assert!(longest(&runs) > 8_000, "{}", longest(&runs));
        let told = error(&net, &runs[0], 4_000);
        assert_eq!(net.push(WIDE, &told), [], "the error ends at the border");
        assert_eq!(used(&net), [1, 0, 1], "IPv{version}");
        assert_eq!(net.push(WIDE, &told), [], "another error about the same flight");
        assert_eq!(used(&net), [2, 0, 1], "IPv{version}");
        let shorter = longest(&send(&mut net, RUN_LEN));
        assert!((2_000..=4_000).contains(&shorter), "{shorter}");
        // The size toward the narrow host is as before.
        assert_eq!(longest(&net.send(0)), 1_500);
        net.now = net.now + pmtu::RAISE_AFTER + RTT;
        assert!(longest(&send(&mut net, 2 * RUN_LEN)) > 8_000);
        assert_eq!(net.count(Event::PathRaised), 1);
        assert_eq!(net.gateway.connections().unwrap().lowered_path_count(), 0);
    }
}

#[test]
fn a_narrow_host_whose_own_packets_are_too_long_for_the_wide_side_is_told() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let runs = send(&mut net, 0);
        let told = error(&net, &runs[0], 1_400);
        assert_eq!(net.push(WIDE, &told).len(), 1, "1,400 bytes are less than it sends");
        assert_eq!(used(&net), [0, 0, 1]);
        assert!(longest(&send(&mut net, RUN_LEN)) <= 1_400);
        // A second router carries even less: the packet that it refused is no longer than a narrow one, but was joined.
        let runs = send(&mut net, 2 * RUN_LEN);
        let again = error(&net, &runs[0], 1_300);
        assert_eq!(net.push(WIDE, &again).len(), 1);
        assert!(longest(&send(&mut net, 3 * RUN_LEN)) <= 1_300);
        // An error about a packet that it sent itself.
        let mut net = Net::new(version);
        let mut own = Spec { seq: 1, ..net.of_narrow() }.payload(vec![7; NARROW_LEN]);
        own = Spec { seq: 1, ..own };
        let left = net.push(NARROW, &own);
        assert_eq!(net.push(WIDE, &error(&net, &left[0], 1_400)).len(), 1);
        assert_eq!(used(&net), [0, 0, 1], "IPv{version}");
    }
}

#[test]
fn wrong_errors_about_runs_shorten_nothing_and_end_at_the_border() {
    for version in [4, 6] {
        let mut net = Net::new(version);
        let runs = send(&mut net, 0);
        let right = error(&net, &runs[0], 4_000);
        let quoted_at = |seq: u32| {
            let mut quoted = runs[0].clone();
            let at = quoted.upper_at + 4;
            quoted.frame[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            quoted
        };
        let wrong = [
            ("from the destination itself", right.clone().from(host(version, 1))),
            ("an MTU as long as the packet", error(&net, &runs[0], longest(&runs[..1]) as u16)),
            ("before the window", error(&net, &quoted_at(0), 4_000)),
            ("after the window", error(&net, &quoted_at(1 + RUN_LEN as u32), 4_000)),
        ];
        for (count, (what, error)) in wrong.iter().enumerate() {
            assert_eq!(net.push(WIDE, error), [], "IPv{version}: {what}");
            assert_eq!(used(&net), [0, count as u64 + 1, 0], "IPv{version}: {what}");
        }
        // Acknowledged data is in flight no longer.
        let ack = Spec { ack: 1 + RUN_LEN as u32, ..net.of_wide() };
        net.push(WIDE, &ack);
        assert_eq!(net.push(WIDE, &right), []);
        assert_eq!(used(&net), [0, 5, 0]);
        assert!(longest(&send(&mut net, RUN_LEN)) > 8_000);
    }
}

#[test]
fn offloaded_flows_toward_the_wide_side_follow_the_size() {
    let mut net = Net::new(4);
    let ends = [(host(4, 2).into(), 80), (host(4, 1).into(), 40_000)];
    let limit = |net: &mut Net| net.gateway.on_offloaded(net.now, ends, NARROW).map(|limit| limit.len_max);
    let runs = send(&mut net, 0);
    assert_eq!(limit(&mut net), Some(9_000));
    // The kernel forwards a second run, and an acknowledgement of the first.
    let mut quoted = runs[0].clone();
    let (acked, sent, at) = (1 + RUN_LEN as u32, 1 + 2 * RUN_LEN as u32, quoted.upper_at + 4);
    quoted.frame[at..at + 4].copy_from_slice(&acked.to_be_bytes());
    let told = error(&net, &quoted, 4_000);
    assert_eq!(net.push(WIDE, &told), []);
    assert_eq!(used(&net), [0, 1, 0], "the data in flight is unknown");
    net.gateway.connections_mut().unwrap().on_offloaded_data(ends, Toward::Wide, Some(acked), sent);
    assert_eq!(net.push(WIDE, &told), []);
    assert_eq!(used(&net), [1, 1, 1]);
    assert!(net.gateway.connections_mut().unwrap().take_path_change());
    assert_eq!(limit(&mut net), Some(4_000));
    net.gateway.connections_mut().unwrap().on_offloaded_ack([ends[1], ends[0]], Toward::Narrow, sent + 1);
    assert_eq!(net.push(WIDE, &told), []);
    assert_eq!(used(&net), [1, 2, 1], "it is acknowledged");
    net.now = net.now + pmtu::RAISE_AFTER;
    send(&mut net, 2 * RUN_LEN);
    assert_eq!(limit(&mut net), Some(9_000));
}

#[test]
fn a_forged_syn_of_a_live_connection_moves_no_window() {
    for version in [4, 6] {
        for from in [WIDE, NARROW] {
            let mut net = Net::new(version);
            let [cuts, runs] = [net.send(0), send(&mut net, 0)];
            let of = if from == WIDE { net.of_wide() } else { net.of_narrow() };
            let forged = Spec { seq: 0x7000_0000, flags: SYN, options: vec![2, 4, 35, 0], ..of };
            net.push(from, &forged);
            let answer = Spec { flags: SYN | ACK, ack: 77, ..forged };
            net.push(from, &answer);
            for (seq, is_believed) in [(0x7000_0001, false), (1, true)] {
                let (quoted, from) = if from == WIDE { (&cuts[0], NARROW) } else { (&runs[0], WIDE) };
                let mut quoted = quoted.clone();
                let at = quoted.upper_at + 4;
                quoted.frame[at..at + 4].copy_from_slice(&u32::to_be_bytes(seq));
                let told = if from == NARROW { net.too_big(&quoted, 1_400) } else { error(&net, &quoted, 4_000) };
                net.push(from, &told);
                assert_eq!(
                    net.count(Event::PathLoweredIcmp),
                    u64::from(is_believed),
                    "IPv{version}, {from}: {seq}"
                );
            }
        }
    }
}
