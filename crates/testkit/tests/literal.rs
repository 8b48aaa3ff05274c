//! The builder and the reader against independent bytes: field positions and examples in RFCs, and etherparse.

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, NetSlice, PacketBuilder,
    SlicedPacket, TransportSlice,
};
use testkit::fields::*;
use testkit::model::{Model, Verdict, joined_mark};
use testkit::{
    HOST_V4, HOST_V6, PEER_V4, PEER_V6, Place, ReadPacket, Spec, Summed, checksum, copied_option, extension, icmp,
    ip, orders, seal_ip, seal_transport, sum, sum_of, tcp, udp, uncopied_option,
};

/// RFC 1071 section 3: the sum of these bytes is ddf2.
#[test]
fn the_sum_is_that_of_rfc_1071() {
    let bytes = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
    assert_eq!((sum(&bytes), checksum(&bytes)), (0xDDF2, 0x220D));
    assert_eq!(sum_of(&[&bytes[..4], &bytes[4..7]]), 0xDDF2 - 0x00F7, "behind an odd length stands a zero");
    assert_eq!(sum(&[]), 0);
    assert_eq!(sum(&vec![0xFF; 100_000]), 0xFFFF);
}

/// A header that many texts on checksums use: a datagram of 115 bytes from 192.168.0.1 to 192.168.0.199.
#[test]
fn an_ipv4_header_is_written_byte_for_byte() {
    let built = Spec { id: 0, ..udp(4) }.from([192, 168, 0, 1]).to([192, 168, 0, 199]).payload([0; 87]).bytes();
    let literal = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xB8, 0x61, 0xC0, 0xA8, 0x00, 0x01, 0xC0, 0xA8,
        0x00, 0xC7,
    ];
    assert_eq!(built[..20], literal);
}

/// RFC 791 appendix A, examples 1 to 3: lengths, flags, offsets, and the options of the third.
#[test]
fn the_examples_of_rfc_791_match() {
    let plain = Spec { ttl: 123, protocol: 1, id: 111, ..ip(4) }.payload([0]).bytes();
    assert_eq!(plain[..10], [0x45, 0, 0, 21, 0, 111, 0, 0, 123, 1]);
    let whole = Spec { ttl: 123, protocol: 6, id: 111, ..ip(4) }.payload([7; 452]);
    assert_eq!(whole.bytes()[..10], [0x45, 0, 0x01, 0xD8, 0, 111, 0, 0, 123, 6]);
    let fragments = whole.fragments(280);
    assert_eq!(fragments[0][..10], [0x45, 0, 0x01, 0x14, 0, 111, 0x20, 0, 123, 6]);
    assert_eq!(fragments[1][..10], [0x45, 0, 0, 0xD8, 0, 111, 0, 32, 123, 6]);
    let ip_options = [&[0x88, 4, 0, 1][..], &[0x89, 3, 4, 1], &[0x44, 4, 5, 0]].concat();
    let optioned = Spec { ip_options, ..whole }.bytes();
    assert_eq!((optioned[0], optioned[3], sum(&optioned[..32])), (0x48, 0xE4, 0xFFFF));
}

#[test]
fn a_fragment_header_is_that_of_rfc_8200_section_4_5() {
    let built = ip(6).id(0xDEAD_BEEF).part(1_448, [9; 8], true).bytes();
    assert_eq!(built[..8], [0x60, 0x05, 0x12, 0x34, 0, 16, 44, 64]);
    assert_eq!(built[40..], [&[253, 0, 0x05, 0xA9, 0xDE, 0xAD, 0xBE, 0xEF][..], &[9; 8]].concat());
    let behind = Spec { extensions: vec![extension(HOP_BY_HOP, 8), extension(ROUTING, 16)], ..ip(6) };
    let chained = behind.part(0, [], true).bytes();
    assert_eq!(chained[6], 0);
    assert_eq!(chained[40..48], [43, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(chained[48..52], [44, 1, 253, 0]);
    assert_eq!(chained[64..68], [253, 0, 0, 1]);
    assert_eq!(extension(AUTHENTICATION, 24).1[1], 4, "RFC 4302: 32-bit words, less two");
}

/// Every field of a segment is at its place in RFC 9293 section 3.1.
#[test]
fn a_segment_is_written_byte_for_byte() {
    let built = Spec { ack: 0x0A0B_0C0D, window: 0x1122, urgent: 0x3344, reserved: 1, ..tcp(4) }
        .ports(0x1234, 0x5678)
        .seq(0x0102_0304)
        .flags(ACK | PSH)
        .stamped(5, 6)
        .payload([0xAA])
        .sum(Summed::Half)
        .bytes();
    let pseudo = sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 33]).to_be_bytes();
    let literal = [
        &[0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 0x0A, 0x0B, 0x0C, 0x0D, 0x81, 0x18, 0x11, 0x22][..],
        &pseudo,
        &[0x33, 0x44, 1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6, 0xAA],
    ];
    assert_eq!(built[20..], literal.concat());
}

#[test]
fn a_frame_is_that_of_802_1q() {
    let built = ip(6).vlan(7).vlan(0xE008).bytes();
    let literal = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 0x81, 0, 0xE0, 8, 0x86, 0xDD, 0x60];
    assert_eq!(built[..23], literal);
    let seen = ReadPacket::of_frame(&[&built[..], &[0; 6]].concat());
    assert_eq!((seen.vlans, seen.frame), (vec![7, 0xE008], built));
    assert_eq!(ip(4).ethernet().bytes()[12..15], [8, 0, 0x45]);
}

#[test]
fn transports_are_those_of_etherparse() {
    for len in [0, 1, 2, 3, 1_000, 1_001] {
        let payload = testkit::noise(len, 3);
        let built = |builder: etherparse::PacketBuilderStep<IpHeaders>, kind: u8| {
            let mut bytes = Vec::new();
            match kind {
                0 => builder.udp(1_500, 8_000).write(&mut bytes, &payload),
                1 => builder.tcp(1_500, 8_000, 100, 65_535).ack(100).write(&mut bytes, &payload),
                2 => builder.icmpv4_echo_request(1, 2).write(&mut bytes, &payload),
                _ => builder.icmpv6_echo_request(1, 2).write(&mut bytes, &payload),
            }
            .unwrap();
            bytes
        };
        let echo = |version, kind| {
            let like = icmp(version, kind, 0);
            Spec { transport: testkit::Transport::Icmp(kind, 0, [0, 1, 0, 2]), ..like }
        };
        let v4 = || PacketBuilder::ipv4(HOST_V4, PEER_V4, 64);
        let v6 = || PacketBuilder::ipv6(HOST_V6, PEER_V6, 64);
        for (ours, kind) in [udp(4), tcp(4), echo(4, 8)].into_iter().zip(0..) {
            assert_eq!(
                ours.id(0).ip_flags(DF).payload(payload.clone()).bytes(),
                built(v4(), kind),
                "{kind}, {len}"
            );
        }
        for (ours, kind) in [(udp(6), 0), (tcp(6), 1), (echo(6, 128), 3)] {
            let ours = Spec { label: 0, ..ours }.payload(payload.clone()).bytes();
            assert_eq!(ours, built(v6(), kind), "{kind}, {len}");
        }
    }
}

#[test]
fn fragments_are_those_of_etherparse() {
    for (offset, more) in [(0, true), (8, true), (1_480, false), (65_528, false)] {
        let place = IpFragOffset::try_new((offset / 8) as u16).unwrap();
        let mut v4 = Ipv4Header::new(8, 64, IpNumber(253), HOST_V4, PEER_V4).unwrap();
        (v4.identification, v4.dont_fragment) = (0x1234, true);
        (v4.fragment_offset, v4.more_fragments) = (place, more);
        v4.header_checksum = v4.calc_header_checksum();
        let ours = ip(4).ip_flags(DF).part(offset, [5; 8], more).bytes();
        assert_eq!(ours, [&v4.to_bytes()[..], &[5; 8]].concat());
        let v6 = Ipv6Header {
            traffic_class: 0xB9,
            flow_label: 0x5_1234.try_into().unwrap(),
            payload_length: 16,
            next_header: IpNumber::IPV6_FRAGMENTATION_HEADER,
            hop_limit: 64,
            source: HOST_V6,
            destination: PEER_V6,
        };
        let header = Ipv6FragmentHeader::new(IpNumber(253), place, more, 0x1234);
        let ours = Spec { tos: 0xB9, ..ip(6) }.part(offset, [5; 8], more).bytes();
        assert_eq!(ours, [&v6.to_bytes()[..], &header.to_bytes(), &[5; 8]].concat());
        for bytes in [ip(4).part(offset, [5; 8], more).bytes(), ours] {
            let seen = ReadPacket::of(&bytes);
            assert_eq!((seen.place(), seen.id, seen.protocol), ((offset, 8, more), 0x1234, EXPERIMENT));
            assert_eq!(seen.body(), [5; 8]);
        }
    }
}

#[test]
fn the_reader_agrees_with_etherparse() {
    for version in VERSIONS {
        for (spec, name) in [(tcp(version).stamped(1, 2), "TCP"), (udp(version), "UDP")] {
            let extensions = vec![extension(HOP_BY_HOP, 8), extension(DESTINATION_OPTIONS, 24)];
            let spec = Spec { extensions, ip_options: vec![1, 1, 1, 0], tos: 0xB9, ..spec }.carrying(0, 100);
            let bytes = spec.bytes();
            let (seen, theirs) = (ReadPacket::of(&bytes), SlicedPacket::from_ip(&bytes).unwrap());
            let payload = match theirs.transport.as_ref().unwrap() {
                TransportSlice::Tcp(tcp) => {
                    assert_eq!((seen.seq, seen.ack), (tcp.sequence_number(), tcp.acknowledgment_number()));
                    assert_eq!((seen.window, seen.options()), (tcp.window_size(), tcp.options()));
                    assert_eq!(seen.ports, [tcp.source_port(), tcp.destination_port()]);
                    tcp.payload()
                }
                TransportSlice::Udp(udp) => {
                    assert_eq!(seen.ports, [udp.source_port(), udp.destination_port()]);
                    udp.payload()
                }
                _ => panic!("{name} is read as another"),
            };
            assert_eq!(seen.payload(), payload);
            assert!(seen.sum_is_right && seen.has_header && !seen.is_fragment());
            let tos = match theirs.net.unwrap() {
                NetSlice::Ipv4(ip) => ip.header().dcp().value() << 2 | ip.header().ecn().value(),
                NetSlice::Ipv6(ip) => ip.header().traffic_class(),
                NetSlice::Arp(_) => panic!("it is IP"),
            };
            assert_eq!((seen.tos, seen.source, seen.destination), (tos, spec.source, spec.destination));
            for wrong in [Summed::Off(1), Summed::Half] {
                assert!(!ReadPacket::of(&spec.clone().sum(wrong).bytes()).sum_is_right);
            }
        }
    }
}

#[test]
fn a_packet_that_contradicts_itself_is_not_read() {
    let good = tcp(4).payload([1; 10]).bytes();
    let wrong = |at: usize, byte: u8, seal: bool| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        if seal {
            seal_ip(&mut bytes);
        }
        std::panic::catch_unwind(|| ReadPacket::of(&bytes)).is_err()
    };
    assert!(!wrong(0, 0x45, false), "this one is right");
    for (at, byte, seal) in
        [(0, 0x55, false), (3, 200, true), (3, 19, true), (3, 49, true), (10, good[10] ^ 1, false)]
    {
        assert!(wrong(at, byte, seal), "byte {at} is {byte}");
    }
}

#[test]
fn sealed_checksums_are_those_of_the_builder() {
    for spec in [tcp(4), tcp(6), udp(4), udp(6), icmp(4, 8, 0), icmp(6, 128, 0)] {
        let right = spec.carrying(0, 33).bytes();
        let mut bytes = right.clone();
        let at = if bytes[0] >> 4 == 4 { 20 } else { 40 };
        let field = at
            + match right[if at == 20 { 9 } else { 6 }] {
                TCP => 16,
                UDP => 6,
                _ => 2,
            };
        bytes[field] ^= 0x5A;
        seal_transport(&mut bytes);
        if at == 20 {
            bytes[10] ^= 1;
            seal_ip(&mut bytes);
        }
        assert_eq!(bytes, right);
    }
}

#[test]
fn fragments_carry_the_copied_options() {
    let whole = Spec { ip_options: [uncopied_option(), copied_option()].concat(), ..ip(4) }.noise(200);
    let fragments: Vec<_> = whole.fragments(100).iter().map(|fragment| fragment[0]).collect();
    assert_eq!(fragments[0], 0x4B, "24 bytes of options");
    assert!(fragments[1..].iter().all(|first| *first == 0x47), "the source route alone");
    let mut again: Vec<u8> = Vec::new();
    ReadPacket::all(&whole.fragments(100)).iter().for_each(|seen| again.extend(seen.body()));
    assert_eq!(again, whole.payload);
}

#[test]
fn the_model_reassembles_every_order_and_no_overlaps() {
    for version in VERSIONS {
        let datagram = ip(version).noise(40);
        let places: Vec<_> = datagram.places(if version == 4 { 36 } else { 64 });
        assert_eq!(places.len(), 3);
        for order in orders(3) {
            let mut model = Model::new(None);
            for (nth, index) in order.iter().enumerate() {
                let (place, now) = (&places[*index], core::time::Duration::ZERO);
                let verdict = model.push(now, &datagram, place, &datagram.payload[place.range.clone()]);
                match nth {
                    2 => assert!(matches!(verdict, Verdict::Complete(whole) if whole.payload == datagram.payload)),
                    _ => assert_eq!(verdict, Verdict::Incomplete),
                }
            }
        }
        let mut model = Model::new(None);
        let mut push = |range: core::ops::Range<usize>, byte| {
            let payload = vec![byte; range.len()];
            model.push(core::time::Duration::ZERO, &datagram, &Place { range, more: true }, &payload)
        };
        assert_eq!(push(0..16, 1), Verdict::Incomplete);
        assert_eq!(push(8..16, 1), Verdict::Repeat);
        assert_eq!(push(8..24, 1), Verdict::Kills(2));
        assert_eq!(push(24..32, 1), Verdict::Poisoned);
    }
}

/// RFC 3168 section 5.3.
#[test]
fn ecn_is_combined_by_rfc_3168() {
    let mark = |marks: &[u8]| joined_mark(marks.iter().copied());
    assert_eq!(mark(&[0, 0]), Some(Some(0)));
    assert_eq!(mark(&[0, 3]), None);
    assert_eq!(mark(&[1, 2, 3]), Some(Some(CE)));
    assert_eq!(mark(&[1, 2]), Some(None));
}

#[test]
fn traffic_is_drawn_alike_from_the_same_seed() {
    use testkit::traffic::{Wishes, draw};
    let wishes = Wishes { mtu: 1_500, segment_max: 1_448, disorder: true, forgery: false };
    let frames = |seed| draw(seed, wishes).iter().map(|sent| sent.spec.bytes()).collect::<Vec<_>>();
    let mut lens = std::collections::BTreeSet::new();
    for seed in 0..200 {
        assert_eq!(frames(seed), frames(seed));
        for frame in frames(seed) {
            lens.insert(ReadPacket::of_frame(&frame).ip_len());
        }
    }
    assert!(lens.len() > 200, "{} lengths", lens.len());
}

#[test]
fn no_file_uses_one_of_its_floor_or_above() {
    let floors: [&[&str]; 5] =
        [&["fields", "random"], &["sum"], &["build", "read"], &["rules"], &["model", "traffic"]];
    for (at, floor) in floors.iter().enumerate() {
        for file in *floor {
            let path = format!("{}/src/{file}.rs", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            for above in floors[at..].iter().flat_map(|floor| floor.iter()) {
                assert!(!text.contains(&format!("crate::{above}")), "{file} uses {above}");
            }
        }
    }
}
