//! GSO packets inside tunnels -> the same packets as a sender without offload would send through the tunnel.

use etherparse::{SlicedPacket, TransportSlice};
use testkit::fields::{ACK, DF, PSH};
use testkit::{Spec, Summed, checksum, ip, seal_ip, tcp, udp};
use wideload_packet::{InnerSegments, LinkType};

/// A TCP segment over IPv4 or IPv6, from `offset` of its stream.
fn inner(version: u8, index: u16, offset: usize, payload: &[u8], psh: bool) -> Vec<u8> {
    let flags = ACK | if psh { PSH } else { 0 };
    tcp(version).id(700 + u32::from(index)).seq(77 + offset as u32).flags(flags).payload(payload).bytes()
}

/// The kinds of tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ip,
    Gre { flags: u8 },
    Vxlan { has_sum: bool },
    Geneve { options_len: usize },
    Fou,
}

/// A frame of the tunnel with this inner packet.
fn outer(kind: Kind, version: u8, index: u16, inner_packet: &[u8]) -> Vec<u8> {
    let inner_version = inner_packet[0] >> 4;
    let ether_type: [u8; 2] = if inner_version == 4 { [8, 0] } else { [0x86, 0xDD] };
    let ethernet = || [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ether_type, inner_packet].concat();
    let by_ip = |protocol, content: &[u8]| Spec { protocol, ..ip(version) }.payload(content);
    let by_udp = |front: &[u8], content: &[u8], sum| {
        udp(version).ports(12_345, 4_789).payload([front, content].concat()).sum(sum)
    };
    let packet = match kind {
        Kind::Ip => by_ip(if inner_version == 4 { 4 } else { 41 }, inner_packet),
        Kind::Gre { flags } => {
            let mut gre = vec![flags, 0];
            gre.extend(ether_type);
            gre.extend(vec![0; if flags & 0x80 != 0 { 4 } else { 0 }]);
            gre.extend(vec![7; if flags & 0x20 != 0 { 4 } else { 0 }]);
            gre.extend(inner_packet);
            if flags & 0x80 != 0 {
                let sum = checksum(&gre);
                gre[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            by_ip(47, &gre)
        }
        Kind::Vxlan { has_sum } => {
            by_udp(&[8, 0, 0, 0, 0, 0, 42, 0], &ethernet(), if has_sum { Summed::Right } else { Summed::None })
        }
        Kind::Geneve { options_len } => {
            let header = [(options_len / 4) as u8, 0, 0x65, 0x58, 0, 0, 42, 0];
            by_udp(&[&header[..], &vec![9; options_len]].concat(), &ethernet(), Summed::None)
        }
        Kind::Fou => by_udp(&[], inner_packet, Summed::None),
    };
    packet.ip_flags(DF).id(300 + u32::from(index)).ethernet().bytes()
}

const KINDS: [Kind; 9] = [
    Kind::Ip,
    Kind::Gre { flags: 0 },
    Kind::Gre { flags: 0x20 },
    Kind::Gre { flags: 0xA0 },
    Kind::Vxlan { has_sum: false },
    Kind::Vxlan { has_sum: true },
    Kind::Geneve { options_len: 0 },
    Kind::Geneve { options_len: 12 },
    Kind::Fou,
];

#[test]
fn inner_segments_equal_those_of_the_tunnels_sender() {
    let payload: Vec<u8> = (0..3_000).map(|at| (at * 7) as u8).collect();
    for kind in KINDS {
        for (version, inner_version) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            for segment_len in [1_000, 1_448, 2_999, 3_000] {
                let whole = outer(kind, version, 0, &inner(inner_version, 0, 0, &payload, true));
                let header_len = whole.len() - payload.len();
                let mut half = whole.clone();
                // GSO leaves a partial checksum. Its value does not matter here.
                half[header_len - 4..header_len - 2].copy_from_slice(&[0xAB, 0xCD]);
                let mut segments = InnerSegments::of(&half, LinkType::Ethernet, header_len - 20, segment_len)
                    .unwrap_or_else(|| panic!("{kind:?}, IPv{inner_version} in IPv{version}"));
                let count = payload.len().div_ceil(segment_len.into());
                for (index, part) in payload.chunks(segment_len.into()).enumerate() {
                    let mut room = vec![0; segments.next_len().expect("there is more")];
                    segments.write(&mut room);
                    let offset = index * usize::from(segment_len);
                    let alone = inner(inner_version, index as u16, offset, part, index + 1 == count);
                    let expected = outer(kind, version, index as u16, &alone);
                    assert_eq!(room, expected, "{kind:?}, IPv{inner_version} in IPv{version}, segment {index}");
                    if kind == Kind::Ip {
                        let sliced = SlicedPacket::from_ethernet(&room).expect("others read it");
                        assert!(!matches!(sliced.transport, Some(TransportSlice::Udp(_))));
                    }
                }
                assert_eq!(segments.next_len(), None);
            }
        }
    }
}

/// Returns a packet with a source route. Its destination field contains the next hop, and `route` the final
/// destination.
fn routed(packet: &[u8], route: &[u8], to_at: usize) -> Vec<u8> {
    let (is_v4, header_len) = if packet[0] >> 4 == 4 { (true, 20) } else { (false, 40) };
    let address_len = if is_v4 { 4 } else { 16 };
    let mut header = packet[..header_len].to_vec();
    let mut route = route.to_vec();
    let destination = header.split_off(header_len - address_len);
    header.extend(vec![99; address_len]);
    route[to_at..to_at + address_len].copy_from_slice(&destination);
    if is_v4 {
        header[0] += (route.len() / 4) as u8;
        header[2..4].copy_from_slice(&((packet.len() + route.len()) as u16).to_be_bytes());
        header.extend(route);
        seal_ip(&mut header);
    } else {
        header[4..6].copy_from_slice(&((packet.len() - 40 + route.len()) as u16).to_be_bytes());
        route[0] = std::mem::replace(&mut header[6], 43);
        header.extend(route);
    }
    [&header, &packet[header_len..]].concat()
}

// RFC 8200 section 8.1
#[test]
fn pseudo_headers_have_the_final_destination_of_a_source_route() {
    let payload: Vec<u8> = (0..3_000).map(|at| (at * 7) as u8).collect();
    let v6 = |kind: u8, left: u8, count: u8| {
        let mut header = vec![0, 2 * count, kind, left, count - 1, 0, 0, 0];
        header.extend((0..16 * u16::from(count)).map(|at| at as u8));
        header
    };
    let loose = |pointer: u8| vec![1, 131, 11, pointer, 7, 7, 7, 7, 8, 8, 8, 8];
    let strict = vec![137, 7, 4, 0, 0, 0, 0, 0];
    // The route, and the place of the final destination in it.
    let cases: [(u8, Vec<u8>, Option<usize>); 9] = [
        (6, v6(0, 1, 1), Some(8)),
        (6, v6(0, 2, 3), Some(40)),
        (6, v6(2, 1, 1), Some(8)),
        (6, v6(4, 1, 3), Some(8)),
        (6, v6(3, 1, 1), None),
        (6, vec![0, 0, 4, 1, 0, 0, 0, 0], None),
        (4, loose(4), Some(8)),
        (4, loose(8), Some(8)),
        (4, strict, Some(3)),
    ];
    for (inner_version, route, to_at) in cases {
        let on_its_way = |index, offset, part: &[u8], psh| {
            let plain = inner(inner_version, index, offset, part, psh);
            let packet = match to_at {
                Some(to_at) => routed(&plain, &route, to_at),
                None => {
                    let mut route = route.clone();
                    route[0] = 6;
                    [&plain[..6], &[43], &plain[7..40], &route, &plain[40..]].concat()
                }
            };
            outer(Kind::Ip, 4, index, &packet)
        };
        let whole = on_its_way(0, 0, &payload[..], true);
        let transport_at = whole.len() - payload.len() - 20;
        let segments = InnerSegments::of(&whole, LinkType::Ethernet, transport_at, 1_448);
        let Some(mut segments) = segments.filter(|_| to_at.is_some()) else {
            assert_eq!(to_at, None, "{route:02x?}");
            assert!(InnerSegments::of(&whole, LinkType::Ethernet, transport_at, 1_448).is_none(), "{route:02x?}");
            continue;
        };
        for (index, part) in payload.chunks(1_448).enumerate() {
            let mut room = vec![0; segments.next_len().expect("there is more")];
            segments.write(&mut room);
            let expected = on_its_way(index as u16, index * 1_448, part, index == 2);
            assert_eq!(room, expected, "{route:02x?}, segment {index}");
        }
        assert_eq!(segments.next_len(), None);
    }
    // Without segments left, the header has the final destination.
    let plain = inner(6, 0, 0, &payload, true);
    let done = [&plain[..6], &[43], &plain[7..40], &[6, 0, 77, 0, 0, 0, 0, 0], &plain[40..]].concat();
    let whole = outer(Kind::Ip, 4, 0, &done);
    let mut segments =
        InnerSegments::of(&whole, LinkType::Ethernet, whole.len() - 3_020, 3_000).expect("there is a way");
    let mut room = vec![0; segments.next_len().expect("it is one")];
    segments.write(&mut room);
    assert_eq!(room[room.len() - 3_020..], plain[40..]);
}

#[test]
fn other_packets_are_not_segmented_as_tunnels() {
    let payload = [1; 3_000];
    let plain = [&[2; 12][..], &[8, 0], &inner(4, 0, 0, &payload, false)].concat();
    assert!(InnerSegments::of(&plain, LinkType::Ethernet, 34, 1_448).is_none());
    for kind in KINDS {
        let whole = outer(kind, 4, 0, &inner(4, 0, 0, &payload, false));
        let at = whole.len() - payload.len() - 20;
        for wrong in (0..at).chain([at + 1, at + 4, whole.len() - 1, whole.len(), whole.len() + 9]) {
            assert!(InnerSegments::of(&whole, LinkType::Ethernet, wrong, 1_448).is_none(), "{kind:?}, {wrong}");
        }
        assert!(InnerSegments::of(&whole, LinkType::Ethernet, at, 0).is_none());
        // Truncated headers and headers with a changed bit must not cause a panic.
        for len in 0..at + 20 {
            assert!(InnerSegments::of(&whole[..len], LinkType::Ethernet, at, 1_448).is_none(), "{kind:?}, {len}");
        }
        for place in 0..at + 20 {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[place] ^= 1 << bit;
                if let Some(mut segments) = InnerSegments::of(&changed, LinkType::Ethernet, at, 1_448) {
                    while let Some(len) = segments.next_len() {
                        segments.write(&mut vec![0; len]);
                    }
                }
            }
        }
    }
}
