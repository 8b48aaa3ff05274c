//! Coalescing and segmentation by example: each end of a run, each limit, the memory of a flow.

use crate::rig::*;
use core::time::Duration;
use wideload_engine::packet::{Checksum, Identifications, Ingress, LinkType, Split, Time};
use wideload_engine::{Event, Exempt, Hold, Mode, Reason, Role, Rules, Sizing};

#[test]
fn every_end_of_a_run_has_an_event() {
    let table: [(Event, fn() -> Rig); 11] = [
        (Event::RunFull, || after(resize(1_500), &[p(0, 700), p(700, 700), p(1_400, 700)])),
        (Event::RunFull, || after(resize(1_500), &[p(0, 1_400)])),
        (Event::RunPushed, || after(resize(9_000), &[p(0, 100), Spec { flags: ACK | PSH, ..p(100, 100) }])),
        (Event::RunUneven, || after(reversible(), &[p(0, 100), p(100, 50)])),
        (Event::RunUneven, || after(reversible(), &[p(0, 50), p(50, 100)])),
        (Event::RunChanged, || after(resize(9_000), &[p(0, 100), Spec { tos: 4, ..p(100, 100) }])),
        (Event::RunGap, || after(reversible(), &[p(0, 100), p(200, 100)])),
        (Event::RunGap, || after(resize(9_000), &[p(0, 100), p(50, 100)])),
        (Event::RunInterrupted, || after(resize(9_000), &[p(0, 100), p(100, 0)])),
        (Event::RunTimeout, || {
            let mut rig = after(resize(9_000), &[p(0, 100)]);
            assert_eq!(rig.wait(Duration::from_millis(1)).len(), 1);
            rig
        }),
        (Event::RunWindow, || {
            let hold = Hold::Fixed(Duration::from_millis(2));
            after(Rules { hold, ..resize(9_000) }, &[p(0, 1_300), p(1_300, 1_300)])
        }),
    ];
    for (event, rig) in table {
        let rig = rig();
        assert_eq!(rig.count(event), 1, "{}", event.name());
        let ends = [
            Event::RunFull,
            Event::RunPushed,
            Event::RunUneven,
            Event::RunChanged,
            Event::RunGap,
            Event::RunInterrupted,
            Event::RunTimeout,
            Event::RunWindow,
            Event::RunEvicted,
            Event::RunAtEnd,
        ];
        assert_eq!(ends.iter().map(|end| rig.count(*end)).sum::<u64>(), 1, "{} and no other", event.name());
    }
    let mut rig = after(resize(9_000), &[p(0, 100)]);
    rig.release();
    assert_eq!(rig.count(Event::RunAtEnd), 1);
    let mut rig = Rig::new(resize(9_000), Sizing::new(9_000, Role::Transit), 2_000);
    rig.push(&p(0, 100));
    assert_eq!((rig.count(Event::RunEvicted), rig.side.aggregation.held().1), (1, 0));
}

#[test]
fn coalesced_reordered_and_resized_packets_are_counted() {
    let mut rig = Rig::resizing(9_000);
    rig.push_all(&[p(0, 100), p(200, 100), p(100, 100), Spec { flags: ACK | PSH, ..p(300, 100) }, p(500, 0)]);
    assert_eq!((rig.count(Event::Coalesced), rig.count(Event::Reordered), rig.count(Event::RunPushed)), (4, 1, 1));
    assert_eq!(rig.out.ledger.event(Event::Coalesced).bytes, 4 * 120, "with their headers");
    assert_eq!(rig.out.ledger.event(Event::RunPushed).bytes, 4 * 120);
    let mut rig = Rig::resizing(1_500);
    assert_eq!(wire(rig.push(&p(0, 3_000))).len() + wire(rig.flush()).len(), 3);
    assert_eq!((rig.count(Event::Resized), rig.count(Event::Segments)), (1, 3));
}

#[test]
fn a_run_of_one_leaves_unchanged() {
    for rules in [reversible(), resize(9_000)] {
        let mut rig = Rig::carrying(rules).ethernet();
        let one = Spec { vlans: Some(vec![9]), padding: 7, ..p(0, 3) };
        rig.push(&one);
        let left = rig.flush();
        assert!(left[0].as_received && left[0].gso.is_none());
        assert_eq!(left[0].frame, one.bytes(), "its padding too");
    }
}

#[test]
fn a_damaged_segment_behind_a_padded_one_changes_no_padding() {
    for rules in [reversible(), resize(9_000)] {
        let mut rig = Rig::carrying(rules).ethernet();
        let padded = Spec { vlans: Some(vec![9]), padding: 7, ..p(0, 3) };
        let damaged = Spec { sum: Summed::Off(1), seq: p(3, 3).seq, payload: p(3, 3).payload, ..padded.clone() };
        let mut left = rig.push_all([&padded, &damaged]);
        left.extend(rig.flush());
        assert_eq!(wire(left), [padded.bytes(), damaged.bytes()]);
    }
}

#[test]
fn a_gso_packet_records_segment_length_and_identifications() {
    for (step, ids) in [(0, Identifications::Stay), (1, Identifications::Rise)] {
        let packets: Vec<_> = (0..3u16)
            .map(|index| Spec {
                id: 0xFFFF_u16.wrapping_add(index * step).into(),
                ..p(usize::from(index) * 100, 100)
            })
            .collect();
        let left = Rig::carrying(reversible()).all(&packets);
        let gso = left[0].gso.expect("a train");
        assert_eq!((gso.segment_len, gso.ids), (100, ids));
        assert!(!left[0].as_received);
    }
}

#[test]
fn a_gso_packet_has_the_first_timestamp_and_the_last_echo_window_and_ack() {
    for version in VERSIONS {
        let like = |offset, value, echo, ack, window| Spec {
            ack,
            window,
            ..tcp(version).carrying(offset, 100).stamped(value, echo)
        };
        let packets = [like(0, 7, 70, 1_000, 500), like(100, 8, 70, 1_000, 400), like(200, 9, 72, 3_000, 0)];
        let left = Rig::resizing(9_000).all(&packets);
        let seen = ReadPacket::of(&left[0].frame);
        assert_eq!((seen.payload().len(), seen.seq, seen.ack, seen.window), (300, 100, 3_000, 0));
        assert_eq!(seen.stamps(), Some((7, 72)));
        assert!(seen.sum_is_right);
    }
}

// R135
#[test]
fn decreasing_fields_end_a_run() {
    let base = || p(0, 100).stamped(5, 5);
    let then = || p(100, 100).stamped(5, 5);
    let table: [(&str, Spec, Spec, usize); 8] = [
        ("the clock", base(), then().stamped(4, 5), 2),
        ("the echo", base(), then().stamped(5, 4), 2),
        ("the acknowledgement", base(), Spec { ack: 99, ..then() }, 2),
        ("none", base(), then(), 1),
        ("none: the clock comes round", base().stamped(u32::MAX, 5), then().stamped(3, 5), 1),
        ("none: the echo comes round", base().stamped(5, u32::MAX), then().stamped(5, 0), 1),
        ("none: acknowledgements come round", Spec { ack: u32::MAX, ..base() }, Spec { ack: 1, ..then() }, 1),
        ("the clock, by half of its range", base(), then().stamped(5 + (1 << 31), 5), 2),
    ];
    for (what, one, other, count) in table {
        assert_eq!(Rig::resizing(9_000).all(&[one, other]).len(), count, "{what} goes back");
    }
}

// R116
#[test]
fn a_pushed_write_leaves_at_once_with_its_last_segment() {
    let mut rig = Rig::resizing(9_000);
    assert_eq!(rig.push_all(&[p(0, 1_448), p(1_448, 1_448)]).len(), 0);
    assert_eq!(rig.push(&Spec { flags: ACK | PSH, ..p(2_896, 500) }).len(), 1);
    assert_eq!(rig.push(&Spec { flags: ACK | PSH, ..p(3_396, 1) }).len(), 1, "alone too");
}

#[test]
fn the_wait_follows_the_pace_of_the_flow_between_its_floor_and_its_ceiling() {
    // The wait is the longest time-out class that does not exceed ten times the average interval (L12 to L14).
    for (gap_us, shortest_us, longest_us) in
        [(0, 50, 50), (1, 50, 50), (12, 60, 120), (50, 250, 500), (90, 450, 900), (900, 1_000, 1_000)]
    {
        let mut rig = Rig::resizing(65_535);
        for index in 0..30 {
            rig.push(&p(index * 10, 10));
            rig.wait(micros(gap_us));
        }
        rig.flush();
        rig.push(&p(300, 10));
        let wait = hold(&rig);
        assert!((micros(shortest_us)..=micros(longest_us)).contains(&wait), "{gap_us} µs apart: {wait:?}");
    }
}

#[test]
fn a_second_of_silence_does_not_lengthen_the_hold() {
    let mut rig = Rig::resizing(65_535);
    let mut offset = 0;
    let mut burst = |rig: &mut Rig| {
        for _ in 0..30 {
            rig.push(&p(offset, 10));
            rig.wait(micros(12));
            offset += 10;
        }
        rig.push(&p(offset, 10));
        offset += 10;
        hold(rig)
    };
    let before = burst(&mut rig);
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.side.aggregation.held().1, 0);
    rig.push(&p(310, 10));
    assert_eq!(hold(&rig), before, "the next lone segment waits no longer");
}

#[test]
fn a_flow_that_resumes_at_its_expiry_continues() {
    for idle in [59, 60, 61, 600] {
        let mut rig = Rig::resizing(9_000);
        rig.push(&p(0, 100));
        rig.release();
        // The flow's idle time-out is over, and no packet has arrived since.
        rig.now = rig.now + Duration::from_secs(idle);
        rig.push(&p(100, 100));
        rig.side.expire(rig.now, &mut rig.connections, &mut rig.out);
        assert_eq!(rig.side.aggregation.held().0.packets, 1, "{idle} s: what came a moment ago waits");
        rig.now = rig.now + micros(10);
        rig.push(&p(200, 100));
        assert_eq!(rig.side.aggregation.held().0.packets, 2, "{idle} s");
        assert_eq!(rig.flush().len(), 1, "{idle} s");
    }
}

#[test]
fn eight_kilobytes_leave_within_the_ceiling_however_long_the_run_could_be() {
    // lB6: without a time-out, the segments would be held for ever.
    for gap_us in [0, 12, 100, 500, 990] {
        let mut rig = Rig::resizing(65_535);
        rig.wait(Duration::from_secs(1));
        let mut left = 0;
        for index in 0..6 {
            left += rig.push(&p(index * 1_366, 1_366)).len();
            if index < 5 {
                left += rig.wait(micros(gap_us)).len();
            }
        }
        let last = rig.now;
        assert_eq!(
            (rig.wait(Duration::from_millis(1)).len() + left, rig.side.aggregation.held().1),
            (1, 0),
            "{gap_us} µs apart"
        );
        assert!(rig.now.since(last) <= Duration::from_millis(1));
    }
}

#[test]
fn a_fixed_hold_is_exact() {
    for wait_us in [0, 10, 300, 1_000] {
        let mut rig = Rig::new(
            Rules { hold: Hold::Fixed(micros(wait_us)), ..resize(9_000) },
            Sizing::new(9_000, Role::Transit),
            1 << 20,
        );
        rig.push(&p(0, 10));
        assert_eq!(hold(&rig), micros(wait_us));
    }
}

#[test]
fn no_run_grows_older_than_a_tenth_of_a_retransmission_time_out() {
    // R126: the intervals between the segments are always shorter than the hold time.
    for gap_us in [300, 500, 900, 999] {
        let mut rig = Rig::resizing(65_535);
        rig.wait(Duration::from_secs(1));
        let mut came: Vec<Time> = Vec::new();
        for index in 0..400 {
            came.push(rig.now);
            let now = rig.now;
            let mut left: Vec<_> = rig.push(&p(index, 1)).into_iter().map(|left| (now, left)).collect();
            left.extend(rig.wait_until(now + micros(gap_us)));
            for (at, left) in left {
                let count = ReadPacket::of(&left.frame).payload().len();
                let age = at.since(came[0]);
                assert!(age <= Duration::from_millis(20), "{gap_us} µs apart: {age:?}");
                assert!(
                    age >= Duration::from_millis(18),
                    "{gap_us} µs apart: it could have waited longer than {age:?}"
                );
                came.drain(..count);
            }
        }
    }
}

// R123
#[test]
fn a_gap_is_awaited_until_the_prior_segments_deadline() {
    let mut rig = Rig::resizing(65_535);
    rig.push(&p(0, 10));
    rig.wait(micros(10));
    rig.push(&p(20, 10));
    let deadline = rig.side.next_deadline();
    for index in 3..20 {
        rig.wait(micros(5));
        rig.push(&p(index * 10, 10));
        assert_eq!(rig.side.next_deadline(), deadline, "however many come behind it");
    }
    let left = rig.wait(Duration::from_millis(2));
    assert_eq!(left.iter().map(payload_len).collect::<Vec<_>>(), [10, 180], "in the stream's order");
    assert_eq!(rig.now.since(Time::ZERO), micros(10 + 17 * 5 + 2_000));
}

#[test]
fn a_flow_is_known_from_its_first_segment_to_its_end() {
    for version in VERSIONS {
        let like = |flags, len| Spec { flags, ..tcp(version).carrying(0, len) };
        let mut rig = Rig::resizing(9_000);
        let mut count = |one: &Spec| {
            rig.push(one);
            rig.coalescer().flow_count()
        };
        assert_eq!(count(&like(ACK, 0)), 0, "an acknowledgement opens nothing");
        assert_eq!(count(&Spec { sum: Summed::Off(1), ..like(SYN, 0) }), 0, "nor does what is damaged");
        assert_eq!(count(&like(SYN, 0)), 1);
        assert_eq!(count(&like(ACK | FIN, 0)), 0);
        assert_eq!(count(&like(SYN | ACK, 0)), 1);
        assert_eq!(count(&Spec { sum: Summed::Off(1), ..like(RST, 0) }), 1, "what is damaged ends nothing");
        assert_eq!(count(&like(RST, 0)), 0);
        assert_eq!(count(&like(ACK, 100)), 1, "the first segment, where no SYN was seen");
        assert_eq!(count(&Spec { flags: ACK | FIN, ..tcp(version).carrying(100, 100) }), 0, "with its last data");
        assert_eq!(count(&like(ACK | FIN, 100)), 0, "first and last");
        assert_eq!(count(&like(ACK, 100)), 1);
        rig.wait(Duration::from_secs(62));
        assert_eq!(
            (rig.coalescer().flow_count(), rig.side.next_deadline()),
            (0, None),
            "after a minute of silence"
        );
    }
}

#[test]
fn a_flow_that_ends_with_what_waited_is_forgotten_then() {
    // A segment with FIN waits behind a gap. Then a packet arrives that releases all held segments.
    let mut rig = Rig::resizing(9_000);
    rig.push_all(&[p(0, 100), Spec { flags: ACK | FIN, ..p(200, 100) }]);
    assert_eq!(rig.push(&p(300, 0)).len(), 3);
    assert_eq!(rig.coalescer().flow_count(), 0);
    for ending in [Rig::release as fn(&mut Rig) -> Vec<Left>, |rig| rig.wait(Duration::from_millis(2))] {
        let mut rig = Rig::resizing(9_000);
        rig.push_all(&[p(0, 100), Spec { flags: ACK | FIN, ..p(200, 100) }]);
        assert_eq!(ending(&mut rig).len(), 2);
        assert_eq!(rig.coalescer().flow_count(), 0);
    }
}

#[test]
fn exempt_flows_are_never_held() {
    for (exempt, source, destination, is_held) in [(80, 80, 9, false), (80, 9, 80, false), (80, 81, 9, true)] {
        let exempt = vec![Exempt { port: Some(exempt), prefix: None }];
        let mut rig = Rig::exempting(resize(9_000), Sizing::new(9_000, Role::Transit), 1 << 20, exempt);
        for index in 0..5 {
            let left = rig.push(&Spec { ports: [source, destination], ..p(index * 100, 100) });
            assert_eq!(left.len(), usize::from(!is_held));
            assert!(left.iter().all(|left| left.as_received));
        }
        assert_eq!(rig.flush().len(), usize::from(is_held));
    }
    // Exempt flows are found by an address, as source or destination, alone or with a port.
    for (prefix, port, is_held) in [
        ("10.0.0.1/32", None, false),
        ("10.0.0.2/32", None, false),
        ("10.0.0.0/24", Some(8_000), false),
        ("10.0.0.0/24", Some(8_001), true),
        ("10.0.0.3/32", None, true),
        ("::/0", None, true),
    ] {
        let exempt = vec![Exempt { port, prefix: Some(prefix.parse().unwrap()) }];
        let mut rig = Rig::exempting(resize(9_000), Sizing::new(9_000, Role::Transit), 1 << 20, exempt);
        assert_eq!(rig.push(&p(0, 100)).len(), usize::from(!is_held), "{prefix}, {port:?}");
    }
    // An exemption without an address and a port covers all flows.
    let mut rig =
        Rig::exempting(resize(9_000), Sizing::new(9_000, Role::Transit), 1 << 20, vec![Exempt::default()]);
    assert_eq!(rig.push(&p(0, 100)).len(), 1);
}

#[test]
fn a_new_connection_whose_opening_was_not_seen_joins_at_once() {
    for (back, policies) in [(1u32 << 24, true), (1 << 30, true), ((1 << 24) - 1, false), (5_000, false)] {
        let mut rig = Rig::resizing(9_000);
        rig.push(&p(0, 100));
        rig.wait(Duration::from_millis(2));
        let start = 200u32.wrapping_sub(back);
        let left =
            rig.push_all(&[Spec { seq: start, ..p(0, 100) }, Spec { seq: start.wrapping_add(100), ..p(0, 100) }]);
        // A segment that may be a repeat is forwarded immediately.
        assert_eq!(left.len(), if policies { 0 } else { 2 }, "{back} bytes back");
        assert_eq!(rig.flush().len(), usize::from(policies));
    }
    // Segments far ahead of the stream are coalesced too.
    let mut rig = Rig::resizing(9_000);
    rig.push(&p(0, 100));
    rig.push_all(&[Spec { seq: 1 << 30, ..p(0, 100) }, Spec { seq: (1 << 30) + 100, ..p(0, 100) }]);
    assert_eq!(rig.flush().iter().map(payload_len).collect::<Vec<_>>(), [200]);
}

// R122
#[test]
fn repeats_pass_unchanged_behind_held_segments() {
    for rules in [reversible(), resize(9_000)] {
        let mut rig = Rig::carrying(rules);
        rig.push_all(&[p(0, 100), p(100, 100)]);
        // Repeats of all bytes, of some bytes, of some bytes followed by new ones, and a keep-alive.
        for again in [p(0, 100), p(50, 100), p(150, 100), Spec { payload: vec![0], ..p(249, 1) }] {
            let left = rig.push(&again);
            let last = left.last().expect("it passes");
            assert!(last.as_received && last.frame == again.bytes());
        }
        // Segments behind the longest of them are coalesced again.
        rig.push_all(&[p(250, 100), p(350, 100)]);
        assert_eq!(rig.flush().iter().map(payload_len).collect::<Vec<_>>(), [200]);
    }
}

// R118, R122: forwarded packets advance the stream, so their bytes are a repeat if they arrive again. The next
// sequence number never decreases.
#[test]
fn repeats_of_passed_segments_are_recognised() {
    for rules in [reversible(), resize(9_000)] {
        let mut rig = Rig::carrying(rules);
        rig.push(&p(0, 100));
        rig.push(&Spec { flags: ACK | URG, ..p(100, 100) });
        let left = rig.push(&p(100, 100));
        assert_eq!((left.len(), left[0].as_received), (1, true), "its bytes once more");
        let left = rig.push(&Spec { flags: ACK | URG, ..p(50, 100) });
        assert_eq!(left.len(), 1, "one from before, which passes too");
        let left = rig.push(&p(100, 100));
        assert_eq!((left.len(), left[0].as_received), (1, true), "its bytes a third time");
        rig.push_all(&[p(200, 100), p(300, 100)]);
        assert_eq!(rig.flush().iter().map(payload_len).collect::<Vec<_>>(), [200]);
    }
}

#[test]
fn a_fragment_flushes_its_pairs_runs_first() {
    for version in VERSIONS {
        let like = |hosts: [u32; 2]| tcp(version).carrying(0, 100).between(hosts[0], hosts[1]);
        let fragment = |hosts| Spec { ip_flags: 0, fragment: Some((0, true)), ..like(hosts) };
        let mut rig = Rig::resizing(9_000);
        rig.push(&like([1, 2]));
        assert_eq!(rig.push(&fragment([3, 4])).len(), 1, "between other hosts");
        assert_eq!(rig.push(&fragment([2, 1])).len(), 1, "the other way");
        let left = rig.push(&fragment([1, 2]));
        assert_eq!(
            left.iter().map(|left| left.frame.clone()).collect::<Vec<_>>(),
            [like([1, 2]).bytes(), fragment([1, 2]).bytes()]
        );
        assert_eq!(rig.count(Event::RunInterrupted), 1);
        assert_eq!(rig.push(&fragment([1, 2])).len(), 1, "nothing is held any more");
    }
}

#[test]
fn datagrams_are_coalesced_only_for_ports_with_udp_gso() {
    let packets = [udp(4).carrying(0, 100), udp(4).carrying(100, 100)];
    for (udp, count) in [(true, 1), (false, 2)] {
        let mut rig = Rig::carrying(Rules { udp, ..resize(9_000) });
        assert_eq!(rig.push(&packets[0]).len(), usize::from(!udp), "without, nothing waits");
        rig.push(&packets[1]);
        assert_eq!(rig.flush().len() + if udp { 0 } else { 2 }, count);
    }
    // Not even resizing changes a datagram's length.
    let mut rig = Rig::carrying(Rules { udp: true, ..resize(9_000) });
    rig.push_all(&[udp(4).carrying(0, 50), udp(4).carrying(50, 100)]);
    assert_eq!(rig.flush().len(), 1);
    assert_eq!(rig.count(Event::RunUneven), 1);
}

#[test]
fn vlans_and_ingress_ports_separate_flows() {
    let like = |offset, vlan| Spec { vlans: Some(vec![vlan]), ..p(offset, 100) };
    let mut rig = Rig::carrying(reversible()).ethernet();
    rig.push_all(&[like(0, 5), like(0, 6), like(100, 5), like(100, 6)]);
    assert_eq!((rig.coalescer().flow_count(), rig.flush().len()), (2, 2));
    // A frame's priority is in its header: it ends a run, but the flow is the same.
    let mut rig = Rig::carrying(reversible()).ethernet();
    rig.push_all(&[like(0, 5), like(100, 0xE005), like(200, 0xE005)]);
    assert_eq!((rig.coalescer().flow_count(), rig.count(Event::RunChanged), rig.flush().len()), (1, 1, 1));
    let mut rig = Rig::carrying(reversible());
    for (ingress, offset) in [(1, 0), (2, 100), (1, 100), (2, 200)] {
        rig.ingress = Ingress(ingress);
        rig.push(&p(offset, 100));
    }
    assert_eq!((rig.coalescer().flow_count(), rig.flush().len()), (2, 2));
}

#[test]
fn received_gso_packets_pass_behind_held_segments() {
    let mut rig = Rig::carrying(resize(9_000));
    rig.push(&p(0, 100));
    let mut packet = packet_of(&mut rig, &p(100, 300));
    packet.gso = Some(wideload_engine::packet::Gso {
        segment_len: 100,
        ids: Identifications::Rise,
        maker: wideload_engine::packet::Maker::Sender,
    });
    rig.side.push(rig.now, packet, &mut rig.connections, &mut rig.out);
    let mut left = rig.push(&p(400, 100));
    left.extend(rig.flush());
    assert_eq!(left.iter().map(payload_len).collect::<Vec<_>>(), [100, 300, 100]);
}

#[test]
fn reversible_gso_packets_have_at_most_128_segments_and_64_datagrams() {
    // rel:A38.
    let tcp: Vec<_> = (0..300).map(|index| p(index, 1)).collect();
    assert_eq!(Rig::carrying(reversible()).all(&tcp).iter().map(payload_len).collect::<Vec<_>>(), [128, 128, 44]);
    let udp: Vec<_> = (0..150).map(|index| udp(4).carrying(index, 1)).collect();
    assert_eq!(Rig::carrying(reversible()).all(&udp).iter().map(payload_len).collect::<Vec<_>>(), [64, 64, 22]);
}

#[test]
fn what_is_longer_than_a_run_may_be_gathers_to_be_cut_well() {
    // From an MTU of 1,500 to 576 bytes: each packet alone needs three segments, but coalesced packets need 2.7 on
    // average.
    let packets: Vec<_> = (0..40).map(|index| p(index * 1_460, 1_460)).collect();
    let mut rig = Rig::resizing(576);
    let wire = wire(rig.all(&packets));
    assert_eq!(wire.len(), (40 * 1_460usize).div_ceil(536));
    assert!(wire.iter().all(|frame| frame.len() <= 576));
}

#[test]
fn both_checksum_zeros_are_merged_and_one_is_restored() {
    let zero = |offset, sum| {
        let mut one = p(offset, 100);
        let right = one.bytes();
        let word =
            add(u16::from_be_bytes([one.payload[0], one.payload[1]]), u16::from_be_bytes([right[36], right[37]]));
        one.payload[..2].copy_from_slice(&word.to_be_bytes());
        Spec { sum, ..one }
    };
    assert_eq!(zero(0, Summed::Right).bytes()[36..38], [0, 0]);
    let mut rig = Rig::carrying(reversible());
    let left = rig.all(&[p(0, 100), zero(100, Summed::Right), p(200, 100)]);
    assert_eq!(left.iter().map(payload_len).collect::<Vec<_>>(), [300]);
    let left = Rig::carrying(reversible()).all(&[p(0, 100), zero(100, Summed::AllOnes), p(200, 100)]);
    assert_eq!(
        left.iter().map(payload_len).collect::<Vec<_>>(),
        [100, 100, 100],
        "sealing would write the other one"
    );
    let left = Rig::resizing(9_000).all(&[p(0, 100), zero(100, Summed::AllOnes), p(200, 100)]);
    assert_eq!(left.iter().map(payload_len).collect::<Vec<_>>(), [300]);
}

#[test]
fn an_empty_pool_ends_runs_and_loses_nothing() {
    let mut rig = Rig::resizing(65_535);
    rig.out.pool = wideload_engine::packet::Pool::new(8_000);
    let packets: Vec<_> = (0..40).map(|index| p(index * 1_000, 1_000)).collect();
    let left = rig.all(&packets);
    assert!(rig.count(Event::RunEvicted) > 0, "there is no room to grow");
    assert_eq!(left.iter().map(payload_len).sum::<usize>(), 40_000);
}

// R043, R117
#[test]
fn every_flag_byte_is_segmented_as_allowed() {
    for version in VERSIONS {
        for mtu in [128, 576, 1_280, 1_500] {
            for flags in 0..=255u8 {
                for split in [Split::Max, Split::Balanced] {
                    let one = Spec { flags, id: 0xFFFE, ..tcp(version).carrying(0, 4_000).stamped(1, 2) };
                    check_cut(&one, mtu, split, flags & (SYN | RST | URG) == 0);
                }
            }
        }
    }
}

// R114, R133
#[test]
fn every_option_is_segmented_unless_forbidden() {
    let table: [(&[u8], bool); 9] = [
        (&[], true),
        (&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], true),
        (&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2], true),
        (&[253, 4, 1, 2], true),
        (&[1, 1, 1, 0], true),
        // Options that sign a segment (RFC 2385, RFC 5925), and unreadable ones.
        (&[19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], false),
        (&[29, 4, 1, 1], false),
        (&[8, 0, 1, 1], false),
        (&[1, 1, 1, 8], false),
    ];
    for version in VERSIONS {
        for (options, is_cut) in table {
            for mtu in [128, 576, 1_500] {
                let one = Spec { options: options.to_vec(), ..tcp(version).carrying(0, 4_000) };
                check_cut(&one, mtu, Split::Max, is_cut);
            }
        }
    }
}

#[test]
fn tcp_is_segmented_for_every_mtu_and_length() {
    for version in VERSIONS {
        let headers = if version == 4 { 40 } else { 60 };
        for mtu in (68..1_600).step_by(7) {
            for len in [1, mtu - headers, mtu - headers + 1, 2 * (mtu - headers), 2 * (mtu - headers) + 1, 5_000] {
                for split in [Split::Max, Split::Balanced] {
                    check_cut(&tcp(version).carrying(0, len), mtu, split, true);
                }
            }
        }
    }
}

// R115
#[test]
fn a_wrong_sum_is_wrong_in_every_segment() {
    for version in VERSIONS {
        for off in (1..0xFFFFu16).step_by(97) {
            let one = Spec { sum: Summed::Off(off), ..tcp(version).carrying(0, 3_001) };
            let wire = wire(Rig::resizing(1_500).all(&[one]));
            assert_eq!(wire.len(), 3);
            assert!(wire.iter().all(|frame| !ReadPacket::of(frame).sum_is_right), "off by {off}");
        }
    }
}

/// Splits one packet and checks its segments: order, flags, IDs, checksums and lengths.
fn check_cut(one: &Spec, mtu: usize, split: Split, is_cut: bool) {
    let what =
        format!("IPv{}, {} bytes at {mtu}, flags {:08b}, {split:?}", one.version(), one.payload.len(), one.flags);
    for mode in [Mode::Reversible, Mode::Resize] {
        let mut rig = Rig::new(
            Rules { mode, ..resize(mtu as u16) },
            Sizing { split, ..Sizing::new(mtu as u16, Role::Transit) },
            1 << 20,
        );
        let mut left = rig.push(one);
        left.extend(rig.flush());
        let wire = wire(left);
        if one.ip_len() <= mtu {
            assert_eq!(wire, [one.bytes()], "{what}");
            continue;
        }
        if !is_cut {
            // Below the minimum MTU it passes unchanged; otherwise it is rejected, as it must not be fragmented.
            let refused = rig.out.ledger.retired(Reason::TooBig).packets;
            let is_below = one.version() == 6 && mtu < 1_280;
            assert_eq!((wire.len(), refused), if is_below { (1, 0) } else { (0, 1) }, "{what}");
            continue;
        }
        let room = mtu - one.ip_header_len() - one.transport_len();
        let count = one.payload.len().div_ceil(room);
        assert_eq!(wire.len(), count, "{what}");
        let segment_len = if split == Split::Max { room } else { one.payload.len().div_ceil(count) };
        for (index, (frame, part)) in wire.iter().zip(one.payload.chunks(segment_len)).enumerate() {
            let seen = ReadPacket::of(frame);
            assert!(seen.payload() == part && seen.sum_is_right && frame.len() <= mtu, "{what}");
            assert_eq!(seen.seq, one.seq.wrapping_add((index * segment_len) as u32), "{what}");
            let first = if index == 0 { CWR } else { 0 };
            let last = if index + 1 == count { PSH | FIN } else { 0 };
            assert_eq!(seen.flags, one.flags & (!(CWR | PSH | FIN) | first | last), "{what}");
            assert_eq!((seen.ack, seen.window), (one.ack, one.window), "{what}");
            assert!(
                one.version() == 6 || seen.id == (one.id + index as u32) & 0xFFFF && seen.dont_fragment,
                "{what}"
            );
            assert_eq!(seen.options(), one.options, "{what}");
        }
    }
}

impl Rig {
    /// Returns all packets that leave if these packets arrive together and no others follow.
    fn all(&mut self, packets: &[Spec]) -> Vec<Left> {
        let mut left = self.push_all(packets);
        left.extend(self.flush());
        left
    }
}

/// `len` bytes of a stream over IPv4.
fn p(offset: usize, len: usize) -> Spec {
    tcp(4).carrying(offset, len)
}

fn after(rules: Rules, packets: &[Spec]) -> Rig {
    let mut rig = Rig::carrying(rules);
    rig.push_all(packets);
    rig
}

/// The remaining hold time.
fn hold(rig: &Rig) -> Duration {
    rig.side.next_deadline().expect("something is held").since(rig.now)
}

fn payload_len(left: &Left) -> usize {
    ReadPacket::of(&left.frame).payload().len()
}

fn packet_of(rig: &mut Rig, one: &Spec) -> wideload_engine::packet::Packet {
    let packet = wideload_engine::packet::Frame::copy(&one.bytes(), LinkType::Ip, Ingress(0), &mut rig.out.pool);
    let mut packet = packet.expect("it parses");
    packet.checksum = Checksum::Unverified;
    packet
}
