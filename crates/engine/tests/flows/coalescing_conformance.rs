//! Cases of other stacks' test suites for coalescing and segmentation, as tables, with our verdicts.
//!
//! The cases are those of the other suites. The words and the packets are Wideload's. Where Wideload's verdict
//! differs, the table names the rule.

#![allow(clippy::type_complexity, reason = "a table's type is its columns")]

use crate::rig::*;
use std::time::Duration;
use wideload_engine::packet::{
    Checksum, CopyError, Frame, Gso, Identifications, Ingress, LinkType, Maker, ParseError, Split,
};
use wideload_engine::{Event, Reason, Role, Rules, SegmentSize, Sizing};

// Conformance 1.1: Linux, tools/testing/selftests/net/gro.c, all rows that are about untunnelled packets.
// R044 (flags_cwr, ip_ecn), R119 (flags_syn, flags_rst), R127 (ack)
#[test]
fn linux_gro_packets_arrive_by_its_selftest() {
    for version in VERSIONS {
        let p = |offset: usize| Spec { id: 0, ttl: 8, ..tcp(version) }.carrying(offset, 100);
        let len = |offset: usize, len: usize| Spec { id: 0, ttl: 8, ..tcp(version) }.carrying(offset, len);
        let flagged = |offset, flags| Spec { flags: ACK | flags, ..p(offset) };
        let interrupted = |flags: u8| {
            let empty = Spec { flags, ..len(0, 0) };
            vec![p(0), p(100), empty, p(300), p(400)]
        };
        let table: Vec<(&str, Vec<Spec>, &[usize])> = vec![
            ("data_same", vec![p(0), p(100)], &[200]),
            ("data_lrg_sml", vec![p(0), len(100, 50)], &[150]),
            // The frame is padded to 60 bytes; the padding is not payload.
            ("data_lrg_1byte", vec![p(0), Spec { padding: 5, ..len(100, 1) }], &[101]),
            ("data_sml_lrg", vec![len(0, 50), p(50)], &[50, 100]),
            ("ack", vec![len(0, 0), len(0, 0), Spec { ack: 101, ..len(0, 0) }], &[0, 0, 0]),
            ("flags_psh", vec![p(0), p(100), flagged(200, PSH), p(300), p(400)], &[300, 200]),
            ("flags_syn", interrupted(SYN), &[200, 0, 200]),
            ("flags_rst", interrupted(RST), &[200, 0, 200]),
            ("flags_urg", interrupted(ACK | URG), &[200, 0, 200]),
            // Linux up to 6.18 does so; 7.1: 100, 200, 200. A CWR flag belongs to one segment alone (L6, R043).
            ("flags_cwr", vec![p(0), flagged(100, CWR), flagged(200, CWR), p(300), p(400)], &[100, 100, 100, 200]),
            ("tcp_csum", vec![p(0), Spec { sum: Summed::Off(0xFFFE), ..p(100) }], &[100, 100]),
            ("tcp_seq", vec![p(0), p(101)], &[100, 100]),
            (
                "tcp_ts",
                vec![
                    p(0).stamped(0, 0),
                    p(100).stamped(0, 0),
                    p(200).stamped(100, 0),
                    Spec { options: vec![1, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1], ..p(300) },
                    Spec { options: vec![8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0], ..p(400) },
                ],
                &[200, 100, 100, 100],
            ),
            (
                "tcp_opt",
                vec![
                    p(0).stamped(0, 0),
                    p(100).stamped(0, 0),
                    Spec { options: vec![1, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..p(200) },
                ],
                &[200, 100],
            ),
            ("ip_ecn", vec![p(0), Spec { tos: 2, ..p(100) }], &[100, 100]),
            ("ip_tos", vec![p(0), Spec { tos: if version == 4 { 1 } else { 0xF0 }, ..p(100) }], &[100, 100]),
            // They have no row for IPv6's hop limit; the rule is the same.
            ("ip_ttl", vec![p(0), Spec { ttl: 7, ..p(100) }], &[100, 100]),
            ("single", vec![p(0)], &[100]),
            ("data_same, one of them half-filled", vec![p(0), Spec { sum: Summed::Half, ..p(100) }], &[200]),
        ];
        for (case, packets, expected) in table {
            let mut rig = Rig::carrying(reversible()).ethernet();
            let packets: Vec<_> = packets.into_iter().map(|one| Spec { vlans: Some(Vec::new()), ..one }).collect();
            assert_eq!(arrive(&mut rig, &[&packets]), expected, "{case}, IPv{version}");
        }
        let burst = [[p(0), p(100)], [p(200), p(300)]];
        let mut rig = Rig::carrying(reversible());
        assert_eq!(arrive(&mut rig, &[&burst[0], &burst[1]]), [200, 200], "data_burst, IPv{version}");
    }
}

// Conformance 1.1, the rows ip_opt, ip_frag4, ip_id_*.
#[test]
fn linux_gro_ipv4_packets_arrive_by_its_selftest() {
    let p = |offset: usize| Spec { ttl: 8, ..tcp(4) }.carrying(offset, 100);
    let ids = |ip_flags: u16, ids: &[u16]| -> Vec<Spec> {
        let one = |(index, id): (usize, &u16)| Spec { id: (*id).into(), ip_flags, ..p(100 * index) };
        ids.iter().enumerate().map(one).collect()
    };
    let option = [&[68, 40, 5, 0][..], &[0; 36]].concat();
    let table: Vec<(&str, Vec<Spec>, &[usize])> = vec![
        ("ip_opt", vec![p(0), Spec { ip_options: option, ..p(100) }, p(200)], &[100, 100, 100]),
        ("ip_frag4", vec![p(0), Spec { ip_flags: DF | MF, ..p(100) }], &[100, 100]),
        ("ip_id_df1_inc", ids(DF, &[8, 9]), &[200]),
        ("ip_id_df1_fixed", ids(DF, &[8, 8]), &[200]),
        ("ip_id_df0_inc", ids(0, &[8, 9]), &[200]),
        ("ip_id_df0_fixed", ids(0, &[8, 8]), &[200]),
        ("ip_id_df1_inc_fixed", ids(DF, &[8, 9, 9]), &[200, 100]),
        ("ip_id_df1_fixed_inc", ids(DF, &[8, 8, 9]), &[200, 100]),
        ("ids that come round", ids(0, &[0xFFFF, 0, 1]), &[300]),
        ("ids that fall", ids(0, &[9, 8]), &[100, 100]),
        ("DF changes", [ids(DF, &[8]), vec![Spec { ip_flags: 0, id: 9, ..p(100) }]].concat(), &[100, 100]),
    ];
    for (case, packets, expected) in table {
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&packets]), expected, "{case}");
    }
    // ip_csum: a packet with a wrong header checksum does not parse. It passes unchanged and leaves a gap.
    let mut rig = Rig::carrying(reversible());
    let wrong = Spec { ip_sum_off: 0xFFFE, ..p(100) }.bytes();
    let parsed = Frame::copy(&wrong, LinkType::Ip, Ingress(0), &mut rig.out.pool);
    assert!(matches!(parsed, Err(CopyError::Unparsed(ParseError::BadHeaderSum))));
    assert_eq!(arrive(&mut rig, &[&[p(0), p(200)]]), [100, 100]);
}

// Conformance 1.1, the rows ip_frag6, ip_v6ext_*.
#[test]
fn linux_gro_ipv6_packets_arrive_by_its_selftest() {
    let p = |offset: usize| tcp(6).carrying(offset, 100);
    let with = |offset, byte| Spec { extensions: vec![(60, vec![0, 0, 1, 4, 0, 0, 0, byte])], ..p(offset) };
    let mut rig = Rig::carrying(reversible());
    let atomic = Spec { fragment: Some((0, false)), ..p(200) };
    assert_eq!(arrive(&mut rig, &[&[p(0), p(100)], &[atomic, p(300)]]), [200, 100, 100], "ip_frag6");
    assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&[with(0, 1), with(100, 1)]]), [200], "ip_v6ext_same");
    assert_eq!(
        arrive(&mut Rig::carrying(reversible()), &[&[with(0, 1), with(100, 2)]]),
        [100, 100],
        "ip_v6ext_diff"
    );
}

// Conformance 1.1, the rows large_max and large_rem.
#[test]
fn runs_grow_to_the_maximum_packet_length() {
    for (version, longest, rest) in [(4, 65_495, 599), (6, 65_475, 899)] {
        let headers = if version == 4 { 40 } else { 60 };
        let segment = 4_096 - headers;
        let full = || (0..16).map(move |index| tcp(version).carrying(index * segment, segment));
        let large = |last: usize| -> Vec<Spec> {
            let end = 16 * segment;
            let lasts = [tcp(version).carrying(end, last), tcp(version).carrying(end + last + 9, last)];
            full().chain(lasts).collect()
        };
        assert_eq!(16 * segment + rest, longest);
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&large(rest)]), [longest, rest]);
        let expected = [longest - rest, rest + 1, rest + 1];
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&large(rest + 1)]), expected);
    }
}

// Conformance 1.1, the row capacity: there, up to 8 flows; here, any number.
#[test]
fn many_interleaved_flows_are_coalesced_in_order() {
    for version in VERSIONS {
        for count in [4, 8, 64, 1_024] {
            let mut rig = Rig::carrying(reversible());
            let packet = |flow: u16, offset: usize, flags| Spec {
                ports: [1_000 + flow, 8_000],
                flags,
                ..tcp(version).carrying(offset, 200)
            };
            let firsts = (0..count).map(|flow| packet(flow, 0, ACK));
            let seconds = (0..count).map(|flow| packet(flow, 200, ACK | PSH));
            let packets: Vec<_> = firsts.chain(seconds).collect();
            let left = send(&mut rig, &[&packets]);
            let seen: Vec<_> = left.iter().map(|left| ReadPacket::of(&left.frame)).collect();
            assert!(seen.iter().all(|seen| seen.payload().len() == 400));
            let ports: Vec<_> =
                left.iter().zip(&seen).map(|(left, seen)| left.frame[seen.upper_at..][..2].to_vec()).collect();
            assert_eq!(ports, (0..count).map(|flow| (1_000 + flow).to_be_bytes().to_vec()).collect::<Vec<_>>());
            assert_eq!(rig.count(Event::Coalesced), 2 * u64::from(count));
        }
    }
}

// Conformance 1.3: Linux, udpgso.c, the rows that send a GSO packet to a link of 1,500 bytes.
#[test]
fn udp_gso_packets_leave_by_the_udpgso_selftest() {
    for (version, mss) in [(4, 1_472), (6, 1_452)] {
        let longest = if version == 4 { 65_507 } else { 65_487 };
        let many = 65_535 / mss * mss;
        let table: Vec<(usize, Option<usize>, Vec<usize>)> = vec![
            (1, None, vec![1]),
            (mss, None, vec![mss]),
            (mss, Some(mss), vec![mss]),
            (mss, Some(mss + 1), vec![mss]),
            (mss + 1, Some(mss), vec![mss, 1]),
            (2 * mss, Some(mss), vec![mss; 2]),
            (2 * mss + 1, Some(mss), vec![mss, mss, 1]),
            (
                many.min(longest),
                Some(mss),
                (0..many.min(longest)).step_by(mss).map(|at| mss.min(many.min(longest) - at)).collect(),
            ),
            (longest, Some(mss), (0..longest).step_by(mss).map(|at| mss.min(longest - at)).collect()),
            (1, Some(1), vec![1]),
            (2, Some(1), vec![1; 2]),
            (5, Some(2), vec![2, 2, 1]),
            (128, Some(1), vec![1; 128]),
            // They reject more than 128 segments; here a port has its own limit.
            (129, Some(1), vec![1; 129]),
        ];
        for (len, segment_len, expected) in table {
            for gso_packets in [SegmentSize::Preserve, SegmentSize::Maximise] {
                for extensions in [vec![], vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])]] {
                    if !extensions.is_empty() && (version == 4 || len > 128) {
                        continue;
                    }
                    let sizing = Sizing { gso_packets, ..Sizing::new(1_500, Role::Transit) };
                    let mut rig = Rig::new(reversible(), sizing, 1 << 20);
                    let one = Spec { extensions, ..udp(version).carrying(0, len) };
                    let left = push_gso(&mut rig, &one, segment_len);
                    assert_eq!(
                        lens(&wire(left)),
                        expected,
                        "{len} by {segment_len:?}, IPv{version}, {gso_packets:?}"
                    );
                }
            }
        }
        // They fail with "message too long"; ours are counted by reason.
        for (len, segment_len) in [(mss + 1, None), (mss + 1, Some(mss + 2))] {
            let mut rig = Rig::new(reversible(), Sizing::new(1_500, Role::Transit), 1 << 20);
            assert_eq!(push_gso(&mut rig, &udp(version).carrying(0, len), segment_len).len(), 0);
            assert_eq!(rig.flush().len(), 0);
            assert_eq!(rig.out.ledger.retired(Reason::TooBig).packets, 1, "{len} by {segment_len:?}");
        }
    }
}

// Conformance 1.3: Linux, udpgro.sh and udpgro_fwd.sh.
#[test]
fn datagrams_of_equal_length_become_a_udp_gso_packet() {
    for (version, mss, sent) in [(4, 1_472, 14_720), (6, 1_452, 14_520)] {
        for (segment, total) in [(mss, sent), (500, 5_000), (1_300, 13_000)] {
            let packets: Vec<_> = (0..10)
                .map(|index| Spec { id: (index as u16).into(), ..udp(version).carrying(index * segment, segment) })
                .collect();
            let mut rig = Rig::carrying(reversible());
            let left = send(&mut rig, &[&packets]);
            assert_eq!(lens(&frames(&left)), [total]);
            assert_eq!(left[0].gso.map(|gso| usize::from(gso.segment_len)), Some(segment));
            assert_eq!(wire(left), packets.iter().map(Spec::bytes).collect::<Vec<_>>());
            // Without coalescing they pass unchanged.
            let mut rig = Rig::carrying(Rules { udp: false, ..reversible() });
            assert_eq!(arrive(&mut rig, &[&packets]), [segment; 10]);
        }
        // Equal sizes; a shorter datagram may end the run.
        let by = |lens: &[usize]| -> Vec<Spec> {
            let mut at = 0;
            lens.iter()
                .map(|len| {
                    at += len;
                    udp(version).carrying(at - len, *len)
                })
                .collect()
        };
        for (sent, expected) in [
            (vec![100, 100, 50, 100], vec![250, 100]),
            (vec![50, 100, 100], vec![50, 200]),
            (vec![100, 101], vec![100, 101]),
            // At most 64, as the kernel's limit was (rel:A38).
            (vec![10; 130], vec![640, 640, 20]),
            (vec![0, 0, 10, 10], vec![0, 0, 20]),
        ] {
            assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&by(&sent)]), expected, "{sent:?}");
        }
        // A datagram without a checksum is not coalesced with one that has it.
        let mut packets = by(&[100, 100, 100, 100]);
        if version == 4 {
            (packets[2].sum, packets[3].sum) = (Summed::None, Summed::None);
            assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&packets]), [200, 200]);
        }
    }
}

// Conformance 2.6: gVisor, stack/gro, rule by rule.
#[test]
fn gvisor_rules_hold_in_reversible_mode() {
    for version in VERSIONS {
        let p = |offset: usize| tcp(version).carrying(offset, 100);
        type Change = fn(Spec) -> Spec;
        let flushed_before: [(&str, Change, [usize; 2], [usize; 2]); 8] = [
            ("CWR", |one| Spec { flags: ACK | CWR, ..one }, [100, 100], [100, 100]),
            ("ECE", |one| Spec { flags: ACK | ECE, ..one }, [100, 100], [100, 100]),
            // When resizing, the last acknowledgement and window count.
            ("ACK number", |one| Spec { ack: 101, ..one }, [100, 100], [200, 0]),
            ("window", |one| Spec { window: 9, ..one }, [100, 100], [200, 0]),
            ("options' length", |one| one.stamped(1, 1), [100, 100], [100, 100]),
            ("not the next", |one| Spec { seq: one.seq + 1, ..one }, [100, 100], [100, 100]),
            ("hop count", |one| Spec { ttl: 9, ..one }, [100, 100], [100, 100]),
            ("class", |one| Spec { tos: 0x20, ..one }, [100, 100], [100, 100]),
        ];
        for (what, change, reversed, resized) in flushed_before {
            for (rules, expected) in [(reversible(), reversed), (resize(65_535), resized)] {
                let expected: Vec<_> = expected.into_iter().filter(|len| *len > 0).collect();
                let mut rig = Rig::carrying(rules);
                assert_eq!(arrive(&mut rig, &[&[p(0), change(p(100))]]), expected, "{what}, IPv{version}");
            }
        }
        // PSH and FIN: the segment is coalesced and ends the run, and the coalesced packet has the flag too.
        for flags in [PSH, FIN, PSH | FIN] {
            for rules in [reversible(), resize(65_535)] {
                let mut rig = Rig::carrying(rules);
                let left = rig.push_all(&[p(0), Spec { flags: ACK | flags, ..p(100) }]);
                assert_eq!(lens(&frames(&left)), [200], "it leaves at once");
                assert_eq!(ReadPacket::of(&left[0].frame).flags, ACK | flags);
            }
        }
        // They coalesce URG, RST and SYN and flush afterwards; ours pass (L6, R118).
        for flags in [URG, RST, SYN] {
            let mut rig = Rig::carrying(reversible());
            assert_eq!(
                arrive(&mut rig, &[&[p(0), Spec { flags: ACK | flags, ..p(100) }, p(200)]]),
                [100, 100, 100]
            );
        }
        // A smaller segment ends the run, and a larger one is not coalesced. When resizing, neither matters.
        let sizes = [p(0), tcp(version).carrying(100, 50), p(150), tcp(version).carrying(250, 101)];
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&sizes]), [150, 100, 101]);
        assert_eq!(arrive(&mut Rig::carrying(resize(65_535)), &[&sizes]), [351]);
    }
}

// Conformance 3.4: DPDK, GRO and GSO.
// R075
#[test]
fn dpdk_rules_hold_except_for_reversibility() {
    let p = |offset: usize| tcp(4).carrying(offset, 100);
    let table: Vec<(&str, Vec<Spec>, &[usize], &[usize], &str)> = vec![
        ("appended", vec![p(0), p(100)], &[200], &[200], "alike"),
        (
            "prepended",
            vec![p(100), p(0), p(200)],
            &[100, 100, 100],
            &[100, 100, 100],
            "they: 300; a first segment has no turn to wait for",
        ),
        ("prepended behind another", vec![p(0), p(200), p(100), p(300)], &[100; 4], &[400], "only resizing sorts"),
        (
            "id and DF",
            vec![p(0), Spec { id: 99, ..p(100) }],
            &[100, 100],
            &[200],
            "with DF they ignore it; reversing needs it",
        ),
        ("another ACK number", vec![p(0), Spec { ack: 7_000, ..p(100) }], &[100, 100], &[200], "they: two flows"),
        ("other flags", vec![p(0), Spec { flags: ACK | ECE, ..p(100) }], &[100, 100], &[100, 100], "alike"),
        ("FIN ends", vec![p(0), Spec { flags: ACK | FIN, ..p(100) }, p(200)], &[200, 100], &[200, 100], "alike"),
        (
            "a fragment",
            vec![p(0), Spec { ip_flags: MF, ..p(100) }, p(200)],
            &[100, 100, 100],
            &[100, 100, 100],
            "alike",
        ),
    ];
    for (case, packets, reversed, resized, why) in &table {
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[packets]), *reversed, "{case}: {why}");
        assert_eq!(arrive(&mut Rig::carrying(resize(65_535)), &[packets]), *resized, "{case}: {why}");
    }
    // GSO: IDs rise or stay; PSH and FIN only on the last segment; a length below the headers splits nothing.
    for ids in [Identifications::Rise, Identifications::Stay] {
        let one = Spec { flags: ACK | PSH | FIN, id: 0xFFFF, ..tcp(4).carrying(0, 3_000) };
        let mut rig = Rig::new(
            reversible(),
            Sizing { gso_packets: SegmentSize::Preserve, ..Sizing::new(1_500, Role::Transit) },
            1 << 20,
        );
        let mut packet = Frame::copy(&one.bytes(), LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
        packet.gso = Some(Gso { segment_len: 1_000, ids, maker: Maker::Sender });
        rig.side.push(rig.now, packet, &mut rig.connections, &mut rig.out);
        let left = rig.release();
        let seen: Vec<_> = wire(left).iter().map(|frame| ReadPacket::of(frame)).collect();
        let expected = if ids == Identifications::Rise { [0xFFFF, 0, 1] } else { [0xFFFF; 3] };
        assert_eq!(seen.iter().map(|seen| seen.id).collect::<Vec<_>>(), expected);
        assert_eq!(seen.iter().map(|seen| seen.flags).collect::<Vec<_>>(), [ACK, ACK, ACK | PSH | FIN]);
    }
}

// Conformance 4.4: VPP, test_gro.py.
#[test]
fn the_packets_of_vpp_arrive_in_runs_of_44() {
    for (version, ip_len) in [(4, 64_280), (6, 64_300)] {
        let p = |index: u32| {
            Spec { ack: index, id: (index as u16).into(), ..tcp(version) }.carrying(index as usize * 1_460, 1_460)
        };
        let packets: Vec<_> = (0..124).map(p).collect();
        let mut rig = Rig::carrying(resize(65_535));
        let left = send(&mut rig, &[&packets]);
        let seen: Vec<_> = left.iter().map(|left| ReadPacket::of(&left.frame)).collect();
        assert_eq!(
            seen.iter().map(ReadPacket::ip_len).collect::<Vec<_>>(),
            [ip_len, ip_len, 36 * 1_460 + ip_len % 1_460]
        );
        assert_eq!(seen.iter().map(|seen| seen.ack).collect::<Vec<_>>(), [43, 87, 123], "the last acknowledgement");
        // Reversible runs end at another acknowledgement number.
        assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&packets]).len(), 124);
        // Without coalescing they pass unchanged.
        let wire = wire(send(&mut Rig::carrying(resize(if version == 4 { 1_500 } else { 1_520 })), &[&packets]));
        assert_eq!(wire, packets.iter().map(Spec::bytes).collect::<Vec<_>>());
    }
    let last = |one: Spec| Spec { flags: ACK | PSH, ..one };
    let packets: Vec<_> = (0..88).map(|index| tcp(6).carrying(index * 1_460, 1_460)).collect();
    let packets = [&packets[..87], &[last(packets[87].clone())]].concat();
    assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&packets]), [64_240, 64_240]);
    let pairs: Vec<_> = (0..124usize)
        .flat_map(|pair| {
            let at = pair * 2_800;
            let ack = 2 * pair as u32;
            [
                Spec { ack, ..tcp(4).carrying(at, 1_460) },
                last(Spec { ack: ack + 1, ..tcp(4).carrying(at + 1_460, 1_340) }),
            ]
        })
        .collect();
    let left = send(&mut Rig::carrying(resize(65_535)), &[&pairs]);
    let seen: Vec<_> = left.iter().map(|left| ReadPacket::of(&left.frame)).collect();
    assert!(seen.len() == 124 && seen.iter().all(|seen| seen.ip_len() == 2_840));
    assert!(seen.iter().enumerate().all(|(pair, seen)| seen.ack == 2 * pair as u32 + 1));
    let padded = Spec { padding: 5, ..tcp(4).carrying(1_459, 1) };
    let mut rig = Rig::carrying(reversible());
    let left = rig.push_all(&[tcp(4).carrying(0, 1_459), padded]);
    assert_eq!(lens(&frames(&left)), [1_460], "the short one ends the run; padding is no payload");
    assert_eq!(left[0].frame.len(), 1_500);
}

// Conformance 4.5: VPP, test_gso.py, the rows without tunnels.
#[test]
fn vpp_gso_packets_are_segmented_for_the_next_link() {
    for (version, headers) in [(4, 40), (6, 60)] {
        let table: [(u16, SegmentSize, usize, &str); 6] = [
            (65_535, SegmentSize::Preserve, 45, "it passes whole"),
            (1_500, SegmentSize::Preserve, 45, "as they were"),
            (1_500, SegmentSize::Maximise, 45, "225 of 5"),
            (
                576,
                SegmentSize::Maximise,
                65_200usize.div_ceil(576 - headers),
                "they: 119 fragments, or Packet Too Big; ours are segments",
            ),
            (
                1_280,
                SegmentSize::Preserve,
                65_200usize.div_ceil(1_280 - headers),
                "they: Packet Too Big; ours are segments",
            ),
            (9_000, SegmentSize::Maximise, 65_200usize.div_ceil(9_000 - headers), "they: 33, for buffers of 2,048"),
        ];
        for (mtu, gso_packets, count, why) in table {
            for ip_flags in [0, DF] {
                let segment_len = if version == 4 { 1_460 } else { 1_440 };
                let count = if count == 45 { 65_200usize.div_ceil(segment_len) } else { count };
                let sizing = Sizing { gso_packets, ..Sizing::new(mtu, Role::Transit) };
                let mut rig = Rig::new(reversible(), sizing, 1 << 20);
                let one = Spec { ip_flags, sum: Summed::Half, ..tcp(version).carrying(0, 65_200) };
                let left = push_gso(&mut rig, &one, Some(segment_len));
                assert_eq!(left.len(), 1, "{why}");
                let wire = wire(left);
                assert_eq!(wire.len(), count, "IPv{version} at {mtu}: {why}");
                let seen: Vec<_> = wire.iter().map(|frame| ReadPacket::of(frame)).collect();
                assert!(seen.iter().all(|seen| seen.sum_is_right && seen.ip_len() <= usize::from(mtu)));
                assert_eq!(seen.iter().map(|seen| seen.payload().len()).sum::<usize>(), 65_200);
                assert!(version == 6 || seen.iter().all(|seen| seen.dont_fragment == (ip_flags == DF)));
            }
        }
        // Frames that need only a checksum.
        let mut rig = Rig::new(reversible(), Sizing::new(1_500, Role::Transit), 1 << 20);
        let one = Spec { sum: Summed::Half, ..tcp(version).carrying(0, 1_500 - headers) };
        assert_eq!(wire(send(&mut rig, &[std::slice::from_ref(&one)])), [one.finished().bytes()]);
    }
}

// Conformance 5: tun-rs and wireguard-go, offload tests; section 0 for the header that they prepend.
#[test]
fn wireguard_go_packets_are_coalesced_but_not_prepended() {
    for version in VERSIONS {
        let p = |offset: usize| tcp(version).carrying(offset, 100);
        let pushed = |offset| Spec { flags: ACK | PSH, ..p(offset) };
        let wrong = Spec { sum: Summed::Off(7), ..p(0) };
        let table: Vec<(&str, Vec<Spec>, &[usize])> = vec![
            ("PSH interleaved", vec![p(0), pushed(100), p(200), p(300)], &[200, 200]),
            ("an item with a wrong sum", vec![wrong, p(100), p(200)], &[100, 200]),
            // They coalesce all of them into one of 300.
            ("out of order", vec![p(101), p(1), p(201)], &[100, 100, 100]),
            ("unequal class", vec![p(0), Spec { tos: 4, ..p(100) }], &[100, 100]),
            ("unequal hop count", vec![p(0), Spec { ttl: 65, ..p(100) }], &[100, 100]),
        ];
        for (case, packets, expected) in table {
            assert_eq!(arrive(&mut Rig::carrying(reversible()), &[&packets]), expected, "{case}, IPv{version}");
        }
        // Packets with length 0 behind the headers, or with truncated headers, pass unchanged.
        for len in [0, 4, 12, 19] {
            let one = p(0).bytes();
            let mut short = one[..ReadPacket::of(&one).upper_at + len].to_vec();
            let total = short.len() as u16;
            if version == 4 {
                short[2..4].copy_from_slice(&total.to_be_bytes());
                short[10..12].fill(0);
                let sum = !sum_of(&[&short[..20]]);
                short[10..12].copy_from_slice(&sum.to_be_bytes());
            } else {
                short[4..6].copy_from_slice(&(total - 40).to_be_bytes());
            }
            if version == 6 && len == 0 {
                continue; // A payload length of 0 means an omitted length.
            }
            let mut rig = Rig::carrying(reversible());
            rig.push(&p(0));
            let left = rig.push_frame(&short, Checksum::Unverified);
            let passes = |left: &Left| left.frame == short && left.as_received;
            assert!(left.last().is_some_and(passes), "{len} bytes of a TCP header, IPv{version}");
        }
        // A data offset before the end of the TCP header, or past the end of the packet.
        for words in [0, 4, 15] {
            let mut bent = p(0).bytes();
            bent.truncate(bent.len() - 80);
            let at = ReadPacket::of(&p(0).bytes()).upper_at;
            let total = bent.len() as u16;
            if version == 4 {
                bent[2..4].copy_from_slice(&total.to_be_bytes());
                seal_ip(&mut bent);
            } else {
                bent[4..6].copy_from_slice(&(total - 40).to_be_bytes());
            }
            bent[at + 12] = words << 4;
            let mut rig = Rig::carrying(reversible());
            assert_eq!(frames(&rig.push_frame(&bent, Checksum::Unverified)), [bent.clone()]);
        }
    }
}

// Conformance 5.4: tun-rs rejects a segment length of 0; a GSO packet without payload is one packet.
#[test]
fn a_gso_without_payload_is_one_packet() {
    for split in [Split::Max, Split::Balanced] {
        for gso_packets in [SegmentSize::Preserve, SegmentSize::Maximise] {
            let sizing = Sizing { split, gso_packets, ..Sizing::new(1_500, Role::Transit) };
            let mut rig = Rig::new(reversible(), sizing, 1 << 20);
            let one = tcp(4);
            assert_eq!(wire(push_gso(&mut rig, &one, Some(1_460))), [one.bytes()], "{split:?}, {gso_packets:?}");
        }
    }
}

// Conformance 5.5: quinn-udp: all bytes arrive, in the segment length of the sender.
#[test]
fn quinn_gso_strides_arrive_as_sent() {
    for version in VERSIONS {
        let packets: Vec<_> =
            (0..64).map(|index| Spec { tos: 2, ..udp(version).carrying(index * 128, 128) }).collect();
        let left = send(&mut Rig::carrying(reversible()), &[&packets]);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].gso.map(|gso| gso.segment_len), Some(128));
        assert_eq!(ReadPacket::of(&left[0].frame).tos, 2, "the congestion mark survives");
    }
}

/// Sends bursts, 100 ms apart, and ends.
fn send(rig: &mut Rig, bursts: &[&[Spec]]) -> Vec<Left> {
    let mut left = Vec::new();
    for burst in bursts {
        left.extend(rig.push_all(*burst));
        left.extend(rig.wait(Duration::from_millis(100)));
    }
    left.extend(rig.flush());
    left
}

/// The payload lengths of the packets that arrive; GSO packets are not split.
fn arrive(rig: &mut Rig, bursts: &[&[Spec]]) -> Vec<usize> {
    let link_type = rig.link_type;
    let left = send(rig, bursts);
    left.iter().map(|left| payload_len(&left.frame, link_type)).collect()
}

fn lens(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(|frame| payload_len(frame, LinkType::Ip)).collect()
}

/// Bytes behind the transport header, or behind its place if the header cannot be read.
fn payload_len(frame: &[u8], link_type: LinkType) -> usize {
    let seen = seen(frame, link_type);
    assert!(seen.has_header);
    seen.payload().len()
}

fn frames(left: &[Left]) -> Vec<Vec<u8>> {
    left.iter().map(|left| left.frame.clone()).collect()
}

/// Pushes a packet that a port delivers as a GSO packet.
fn push_gso(rig: &mut Rig, one: &Spec, segment_len: Option<usize>) -> Vec<Left> {
    let mut packet = Frame::copy(&one.bytes(), LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
    if one.sum == Summed::Half {
        packet.checksum = Checksum::Partial;
    }
    packet.gso =
        segment_len.map(|len| Gso { segment_len: len as u16, ids: Identifications::Rise, maker: Maker::Sender });
    rig.side.push(rig.now, packet, &mut rig.connections, &mut rig.out);
    rig.release()
}
