//! Sizing for live ports: GSO packets, partial checksums, ICMP errors, other links.

use crate::rig::*;
use wideload_engine::packet::{
    Checksum, Content, Fragmentation, Frame, Gso, Identifications, Ingress, LinkType, Maker, Packet, Pool, Split,
    Time,
};
use wideload_engine::{
    Aggregation, Checksums, Coalescer, Connections, Egress, Event, IcmpResponder, Mode, Output, Reason, Role,
    Secret, SegmentSize, Side, Sizing, Toggle, WirePackets,
};

#[test]
fn a_border_changes_a_field_and_keeps_the_gso_packet() {
    for (version, segment_len, resized_len, mtu) in
        [(4, 1_448, 8_948, 9_000), (6, 1_428, 8_928, 9_000), (4, 8_948, 1_448, 1_500), (6, 8_928, 1_428, 1_500)]
    {
        let spec = Spec { sum: Summed::Half, ..tcp(version).stamped(7, 9).carrying(0, 64_000) };
        for checksums in [Checksums::Complete, Checksums::Defer] {
            for (gso_packets, expected) in
                [(SegmentSize::Maximise, resized_len), (SegmentSize::Preserve, segment_len.min(resized_len))]
            {
                let mut side = narrow(Sizing { gso_packets, checksums, ..Sizing::new(mtu, Role::Transit) });
                let mut out = output();
                side.push(Time::ZERO, gso(&spec, Some(segment_len), &mut out), &mut none(), &mut out);
                let packet = out.next().expect("it goes on");
                assert_eq!(
                    packet.gso,
                    Some(Gso { segment_len: expected, ids: Identifications::Rise, maker: Maker::Sender })
                );
                assert!(packet.frame() == spec.bytes(), "not a byte changes");
                assert_eq!(packet.checksum, Checksum::Partial, "and nothing is summed");
                check_stream(&packet, &spec, usize::from(mtu));
                out.recycle(packet);
                side.check(&out).unwrap();
                assert!(out.next().is_none());
            }
        }
    }
}

#[test]
fn a_gso_packet_without_segment_length_passes_where_segmentation_is_off() {
    for (version, len_at) in [(4, 2), (6, 4)] {
        let spec = Spec { sum: Summed::Half, ..tcp(version).carrying(0, 20_000) };
        let mut frame = spec.bytes();
        frame[len_at..len_at + 2].fill(0);
        if version == 4 {
            frame[10..12].fill(0);
        }
        let sizing = Sizing { segment: Toggle::Off, ..Sizing::new(9_000, Role::Transit) };
        let mut side = narrow(sizing);
        let mut out = output();
        let mut packet = Frame::copy(&frame, LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
        let came = Gso { segment_len: 1_000, ids: Identifications::Rise, maker: Maker::Sender };
        (packet.checksum, packet.gso) = (Checksum::Partial, Some(came));
        side.push(Time::ZERO, packet, &mut none(), &mut out);
        let packet = out.next().expect("it goes on");
        assert_eq!(packet.gso, Some(came), "IPv{version}");
        assert_eq!(out.ledger.event(Event::LengthCompleted).packets, 20);
        check_stream(&packet, &Spec { sum: Summed::Right, ..spec }, 9_000);
        out.recycle(packet);
        side.check(&out).unwrap();
    }
}

#[test]
fn a_long_segment_becomes_a_gso_packet_with_any_checksum_setting() {
    for version in VERSIONS {
        for checksums in [Checksums::Complete, Checksums::Defer] {
            for gso_packets in [SegmentSize::Preserve, SegmentSize::Maximise] {
                let spec = Spec { sum: Summed::Half, ..tcp(version).carrying(0, 8_000) };
                let mut side = narrow(Sizing { gso_packets, checksums, ..Sizing::new(1_500, Role::Transit) });
                let mut out = output();
                side.push(Time::ZERO, gso(&spec, None, &mut out), &mut none(), &mut out);
                let packet = out.next().expect("it goes on");
                let segment_len = 1_500 - spec.ip_header_len() - 20;
                assert_eq!(packet.gso.map(|gso| usize::from(gso.segment_len)), Some(segment_len));
                assert!(packet.frame() == spec.bytes());
                check_stream(&packet, &spec, 1_500);
                out.recycle(packet);
                let finished = u64::from(checksums == Checksums::Complete);
                assert_eq!(out.ledger.event(Event::ChecksumCompleted).packets, finished);
                side.check(&out).unwrap();
            }
        }
    }
}

// The test completes partial checksums as a NIC does.
#[test]
fn a_partial_checksum_is_kept_or_completed_and_counted() {
    for version in VERSIONS {
        for one in [tcp(version), udp(version)] {
            for len in [1, 2, 999, 1_000] {
                for segment_len in [None, Some(len as u16), Some(60_000)] {
                    let spec = Spec { sum: Summed::Half, ..one.clone().carrying(0, len) };
                    let whole = spec.finished().bytes();
                    for (checksums, expected) in [(Checksums::Defer, spec.bytes()), (Checksums::Complete, whole)] {
                        let mut side = narrow(Sizing { checksums, ..Sizing::new(1_500, Role::Transit) });
                        let mut out = output();
                        side.push(Time::ZERO, gso(&spec, segment_len, &mut out), &mut none(), &mut out);
                        let packet = out.next().expect("it goes on");
                        assert!(packet.frame() == expected, "IPv{version}, {len} bytes, {checksums:?}");
                        assert_eq!(packet.gso, None, "what stands for one packet is no train");
                        let is_left = checksums == Checksums::Defer;
                        assert_eq!(packet.checksum == Checksum::Partial, is_left);
                        assert_eq!(packet.is_as_received(), is_left);
                        assert_eq!(out.ledger.event(Event::ChecksumCompleted).packets, u64::from(!is_left));
                        out.recycle(packet);
                    }
                }
            }
        }
    }
}

#[test]
fn checksums_are_completed_before_ip_fragmentation() {
    for (version, checksums) in [(4, Checksums::Defer), (6, Checksums::Defer), (4, Checksums::Complete)] {
        let spec = Spec { sum: Summed::Half, ip_flags: 0, ..udp(version).carrying(0, 4_000) };
        for segment_len in [None, Some(2_000)] {
            let mut side = narrow(Sizing { checksums, ..Sizing::new(1_500, source()) });
            let mut out = output();
            side.push(Time::ZERO, gso(&spec, segment_len, &mut out), &mut none(), &mut out);
            let mut payload: Vec<u8> = Vec::new();
            while let Some(packet) = out.next() {
                assert!(packet.fragmentation.is_some() && packet.checksum != Checksum::Partial);
                let upper = packet.ip().upper.unwrap();
                let seen = packet.upper_bytes(upper)[8..].to_vec();
                payload.extend(&seen);
                // The datagram's own checksum, as its receiver verifies it.
                let whole = Spec { sum: Summed::Right, payload: seen, ..spec.clone() }.bytes();
                assert!(packet.upper_bytes(upper) == &whole[usize::from(upper.at)..]);
                out.recycle(packet);
            }
            assert!(payload == spec.payload);
            let finished = if segment_len.is_some() { 2 } else { 1 };
            assert_eq!(out.ledger.event(Event::ChecksumCompleted).packets, finished);
            side.check(&out).unwrap();
        }
    }
}

#[test]
fn checksums_of_received_fragmentation_requests_are_completed() {
    let spec = Spec { sum: Summed::Half, ip_flags: 0, ..udp(4).carrying(0, 4_000) };
    for checksums in [Checksums::Defer, Checksums::Complete] {
        let mut side = narrow(Sizing { checksums, ..Sizing::new(1_500, source()) });
        let mut out = output();
        let mut packet = gso(&spec, None, &mut out);
        packet.fragmentation =
            Some(Fragmentation { mtu: 1_000, id: 7, split: Split::Max, content: Content::Complete });
        side.push(Time::ZERO, packet, &mut none(), &mut out);
        let packet = out.next().expect("it goes on");
        assert!(packet.fragmentation.is_some_and(|cut| cut.mtu == 1_000), "it fits already");
        assert!(packet.bytes() == spec.finished().bytes());
        out.recycle(packet);
        assert!(out.ledger.event(Event::ChecksumCompleted).packets > 0);
    }
}

#[test]
fn a_restored_length_is_in_the_port_checksum() {
    let spec = udp(4).carrying(0, 900);
    let mut bytes = Spec { sum: Summed::Half, ..spec.clone() }.bytes();
    bytes[2..4].fill(0);
    bytes[24..26].fill(0);
    bytes[10..12].fill(0);
    let sum = !sum_of(&[&bytes[..20]]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    for checksums in [Checksums::Defer, Checksums::Complete] {
        let mut side = narrow(Sizing { checksums, ..Sizing::new(1_500, Role::Transit) });
        let mut out = output();
        let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
        packet.checksum = Checksum::Partial;
        side.push(Time::ZERO, packet, &mut none(), &mut out);
        let packet = out.next().expect("it goes on");
        assert!(packet.frame() == spec.bytes());
        out.recycle(packet);
        assert_eq!(out.ledger.event(Event::ChecksumCompleted).packets, 1);
    }
}

#[test]
fn ports_see_icmp_errors_and_both_outputs_count_alike() {
    let long = udp(4).carrying(0, 2_000);
    let short = udp(4).carrying(0, 100);
    let mut outs = [output(), output()];
    for out in &mut outs {
        let mut side = narrow(Sizing::new(1_500, Role::Transit));
        for spec in [&short, &long, &short] {
            side.push(Time::ZERO, gso(spec, None, out), &mut none(), out);
        }
    }
    let [by_direction, plain] = &mut outs;
    let mut directions = String::new();
    while let Some(direction) = by_direction.next_direction() {
        let same = plain.next().expect("as many");
        let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = &direction else { panic!("only packets came") };
        assert!(packet.frame() == same.frame());
        directions.push(if matches!(direction, Egress::IcmpReply(_)) { 'a' } else { 'f' });
        assert_eq!(packet.ip().protocol == 1, matches!(direction, Egress::IcmpReply(_)), "an answer is ICMP");
        let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = direction else { panic!("only packets came") };
        by_direction.recycle(packet);
        plain.recycle(same);
    }
    assert_eq!(directions, "faf");
    assert!(plain.next().is_none());
    assert_eq!(by_direction.ledger.forwarded, plain.ledger.forwarded);
    assert_eq!(by_direction.ledger.forwarded.packets, 2);
}

#[test]
fn a_refused_gso_packet_gives_one_icmp_error() {
    for (version, answers) in [(4, 1), (6, 1)] {
        let spec = udp(version).carrying(0, 20_000);
        let mut side = narrow(Sizing::new(1_500, Role::Transit));
        let mut out = output();
        side.push(Time::ZERO, gso(&spec, Some(1_900), &mut out), &mut none(), &mut out);
        let (mut answered, mut forwarded) = (0, 0);
        while let Some(direction) = out.next_direction() {
            let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = &direction else {
                panic!("only packets came")
            };
            (answered, forwarded) = match direction {
                Egress::IcmpReply(_) => (answered + 1, forwarded),
                _ => (answered, forwarded + 1),
            };
            assert!(packet.wire_len() <= 1_500);
            let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = direction else {
                panic!("only packets came")
            };
            out.recycle(packet);
        }
        // Ten segments of 1,900 bytes, and one of 1,000 bytes, which fits.
        assert_eq!((answered, forwarded), (answers, 1), "IPv{version}");
        assert_eq!(out.ledger.retired(Reason::TooBig).packets, 10);
        assert_eq!(out.ledger.event(Event::IcmpSent).packets, 1);
        side.check(&out).unwrap();
        // The next GSO packet causes another ICMP error.
        side.push(Time::ZERO, gso(&spec, Some(1_900), &mut out), &mut none(), &mut out);
        assert_eq!(out.ledger.event(Event::IcmpSent).packets, 2);
    }
}

#[test]
fn a_gso_packet_passes_behind_its_flow_without_a_copy() {
    for mode in [Mode::Reversible, Mode::Resize] {
        for version in VERSIONS {
            let rules = wideload_engine::Rules { mode, ..resize(u16::MAX) };
            let coalescer = Coalescer::new(1 << 20, rules, Vec::new(), Secret::new(7));
            let mut connections = none();
            let mut side = Side::of(
                Aggregation { coalescer: Some(coalescer), ..Aggregation::default() },
                Sizing {
                    gso_packets: SegmentSize::Preserve,
                    checksums: Checksums::Defer,
                    ..Sizing::new(u16::MAX, Role::Transit)
                },
            );
            let mut out = output();
            let one = |at, len| Spec { sum: Summed::Half, ..tcp(version).carrying(at, len) };
            let long = gso(&one(0, 60_000), Some(1_400), &mut out);
            let place = long.bytes().as_ptr();
            side.push(Time::ZERO, long, &mut connections, &mut out);
            let long = out.next().expect("its flow holds nothing");
            assert_eq!(long.bytes().as_ptr(), place, "no byte moves");
            assert_eq!(
                long.gso,
                Some(Gso { segment_len: 1_400, ids: Identifications::Rise, maker: Maker::Sender })
            );
            assert!(long.checksum == Checksum::Partial && long.bytes() == one(0, 60_000).bytes());
            out.recycle(long);
            // Two segments wait. A GSO packet of their flow flushes them first, and then follows them.
            side.push(Time::ZERO, gso(&one(60_000, 1_000), None, &mut out), &mut connections, &mut out);
            side.push(Time::ZERO, gso(&one(61_000, 1_000).id(0x1235), None, &mut out), &mut connections, &mut out);
            assert!(out.next().is_none(), "they wait");
            side.push(Time::ZERO, gso(&one(62_000, 20_000), Some(1_000), &mut out), &mut connections, &mut out);
            side.push(Time::ZERO, gso(&one(82_000, 1_000), None, &mut out), &mut connections, &mut out);
            side.flush(Time::ZERO, &mut connections, &mut out);
            let mut next = 60_000;
            let mut lens = Vec::new();
            while let Some(packet) = out.next() {
                let seen = ReadPacket::of(packet.frame());
                assert_eq!(seen.seq, 100 + next);
                next += seen.payload().len() as u32;
                lens.push(seen.payload().len());
                out.recycle(packet);
            }
            assert_eq!(lens, [2_000, 20_000, 1_000]);
            side.check(&out).unwrap();
        }
    }
}

#[test]
fn fragments_and_segments_have_the_packets_link_header() {
    let ethernet = |version| -> Vec<u8> {
        let ether_type: &[u8] = if version == 4 { &[8, 0] } else { &[0x86, 0xDD] };
        [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x81, 0, 0, 7], ether_type].concat()
    };
    for version in VERSIONS {
        for one in [tcp(version), udp(version)] {
            let spec = Spec { ip_flags: 0, ..one.carrying(0, 6_000) };
            for relinked_first in [true, false] {
                let link = ethernet(version);
                let mut side = narrow(Sizing::new(1_500, source()));
                let mut out = output();
                let mut packet = gso(&spec, None, &mut out);
                if relinked_first {
                    packet.set_link_header(LinkType::Ethernet, &link);
                }
                side.push(Time::ZERO, packet, &mut none(), &mut out);
                let mut packet = out.next().expect("it goes on");
                if !relinked_first {
                    packet.set_link_header(LinkType::Ethernet, &link);
                }
                let mut count = 0;
                let mut fragments = WirePackets::of(&packet);
                while let Some(fragment) = fragments.next() {
                    let frame = [fragment.header, fragment.payload].concat();
                    assert!(frame.starts_with(&link));
                    let seen = ReadPacket::of_frame(&frame);
                    assert!(seen.ip_len() <= 1_500 && seen.frame.len() == frame.len());
                    count += 1;
                }
                assert_eq!((count, packet.wire_count()), (5, 5));
                out.recycle(packet);
            }
        }
    }
}

/// A table without connections.
fn none() -> Connections {
    Connections::new(Secret::new(7))
}

/// A side without aggregation.
fn narrow(sizing: Sizing) -> Side {
    Side::of(Aggregation::default(), sizing)
}

fn output() -> Output {
    let answers = IcmpResponder::new(
        ["203.0.113.9", "2001:db8:9::9"].map(|ip| ip.parse().unwrap()),
        1_000,
        1_000,
        Secret::new(5),
    );
    Output::new(Pool::new(16 << 20), Some(answers))
}

/// A packet as a port delivers it; a GSO packet if it has a segment length.
fn gso(spec: &Spec, segment_len: Option<u16>, out: &mut Output) -> Packet {
    let mut packet = Frame::copy(&spec.bytes(), LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
    if spec.sum == Summed::Half {
        packet.checksum = Checksum::Partial;
    }
    packet.gso =
        segment_len.map(|segment_len| Gso { segment_len, ids: Identifications::Rise, maker: Maker::Sender });
    packet
}

/// Checks that a GSO packet's segments have correct checksums and lengths, and carry its stream.
fn check_stream(packet: &Packet, spec: &Spec, mtu: usize) {
    let mut stream: Vec<u8> = Vec::new();
    let mut fragments = WirePackets::of(packet);
    while let Some(fragment) = fragments.next() {
        let frame = [fragment.header, fragment.payload].concat();
        let seen = ReadPacket::of(&frame);
        assert!(seen.sum_is_right && seen.ip_len() <= mtu);
        assert_eq!(seen.seq, spec.seq.wrapping_add(stream.len() as u32));
        stream.extend(seen.payload());
    }
    assert!(stream == spec.payload);
}
