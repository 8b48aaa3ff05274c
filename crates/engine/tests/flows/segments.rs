//! GSO packets -> the segments that a sender without GSO would have sent.

use etherparse::{SlicedPacket, TransportSlice};
use testkit::fields::{ACK, CWR, FIN, PSH};
use wideload_engine::packet::{Frame, Gso, Identifications, Ingress, LinkType, Maker, Packet, Pool, Time};
use wideload_engine::{
    Aggregation, Connections, Event, Identifiers, LIFETIME, Output, Role, Secret, Side, Sizing, WirePackets,
};

#[test]
fn every_tcp_length_gives_consecutive_segments() {
    let mut pool = Pool::new(1 << 22);
    for version in [4, 6] {
        for segment_len in [1, 7, 536, 1_448, 8_948, 65_535] {
            let lens = (1..3_000).step_by(if segment_len < 100 { 61 } else { 1 });
            for payload_len in lens.chain([60_000, 65_000]) {
                let payload = noise(payload_len);
                let gso = tcp(version, PSH | ACK, &payload);
                let what = format!("IPv{version}, {payload_len} bytes by {segment_len}");
                let segments = cut(&gso, segment_len, Identifications::Rise, &mut pool);
                assert_eq!(segments.len(), payload_len.div_ceil(usize::from(segment_len)), "{what}");
                let mut joined: Vec<u8> = Vec::new();
                for segment in &segments {
                    let (seq, tcp_payload) = read_tcp(segment, &what);
                    assert_eq!(seq, SEQ.wrapping_add(joined.len() as u32), "{what}");
                    joined.extend(tcp_payload);
                }
                assert!(joined == payload, "{what}");
            }
        }
    }
}

#[test]
fn every_set_of_flags_is_divided_over_first_and_last_segment() {
    let mut pool = Pool::new(1 << 20);
    let payload = noise(3_000);
    for flags in 0..=255 {
        let segments = cut(&tcp(4, flags, &payload), 1_000, Identifications::Rise, &mut pool);
        let [first, middle, last] = &segments[..] else { panic!("three segments") };
        let at = 20 + 13;
        assert_eq!(first[at], flags & !(PSH | FIN), "{flags:08b}");
        assert_eq!(middle[at], flags & !(PSH | FIN | CWR), "{flags:08b}");
        assert_eq!(last[at], flags & !CWR, "{flags:08b}");
    }
}

#[test]
fn segment_headers_differ_only_in_identification() {
    let mut pool = Pool::new(1 << 20);
    let gso = tcp(4, ACK, &noise(5_000));
    for ids in [Identifications::Rise, Identifications::Stay] {
        for (index, segment) in cut(&gso, 700, ids, &mut pool).iter().enumerate() {
            let step = if ids == Identifications::Rise { index as u16 } else { 0 };
            assert_eq!(segment[4..6], 0xFFFEu16.wrapping_add(step).to_be_bytes(), "{ids:?}, segment {index}");
            // Class, flags, hop count, protocol, addresses; ports, acknowledgement, window, urgent pointer,
            // options.
            for same in [0..2, 6..10, 12..24, 28..33, 34..36, 38..52] {
                assert_eq!(segment[same.clone()], gso[same], "{ids:?}, segment {index}");
            }
        }
    }
}

// R096, R102
#[test]
fn each_datagram_of_a_udp_gso_packet_is_complete() {
    let mut pool = Pool::new(1 << 20);
    for version in [4, 6] {
        for payload_len in 1..2_500 {
            let payload = noise(payload_len);
            let gso = udp(version, &payload);
            let mut joined: Vec<u8> = Vec::new();
            for datagram in cut(&gso, 500, Identifications::Rise, &mut pool) {
                let sliced = SlicedPacket::from_ip(&datagram).unwrap();
                let Some(TransportSlice::Udp(header)) = &sliced.transport else { panic!("UDP") };
                assert_eq!(usize::from(header.length()), 8 + header.payload().len());
                assert_eq!(header.checksum(), right_sum(&sliced), "{payload_len} bytes");
                joined.extend(header.payload());
            }
            assert!(joined == payload);
        }
    }
    // IPv4: if the sender made no checksum, none is made.
    let mut gso = udp(4, &noise(1_200));
    gso[26..28].fill(0);
    assert!(cut(&gso, 500, Identifications::Rise, &mut pool).iter().all(|datagram| datagram[26..28] == [0, 0]));
}

#[test]
fn a_gso_packet_is_resegmented_for_a_narrower_link() {
    for (version, role) in [(4, Role::Transit), (6, Role::Transit), (4, source()), (6, source())] {
        let sizing = Sizing::new(1_280, role);
        let mut side = Side::of(Aggregation::default(), sizing);
        let mut out = Output::new(Pool::new(1 << 20), None);
        let payload = noise(20_000);
        let mut packet =
            Frame::copy(&tcp(version, ACK, &payload), LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
        packet.gso = Some(Gso { segment_len: 4_000, ids: Identifications::Rise, maker: Maker::Sender });
        side.push(Time::ZERO, packet, &mut Connections::new(Secret::new(7)), &mut out);
        let packet = out.next().expect("it goes on");
        let segments = fragments(&packet);
        assert!(segments.iter().all(|segment| segment.len() <= 1_280) && segments[0].len() > 1_200);
        let joined: Vec<u8> = segments.iter().flat_map(|segment| read_tcp(segment, "shorter").1.to_vec()).collect();
        assert!(joined == payload);
        out.recycle(packet);
        side.check(&out).unwrap();
    }
}

#[test]
fn a_udp_gso_packet_keeps_its_datagrams_and_fragments_long_ones() {
    for (mtu, gso_packets, fragments) in [(540, 1, 0), (500, 0, 4)] {
        let sizing = Sizing::new(mtu, source());
        let mut side = Side::of(Aggregation::default(), sizing);
        let mut out = Output::new(Pool::new(1 << 20), None);
        let mut packet = Frame::copy(&udp(4, &noise(1_200)), LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
        packet.gso = Some(Gso { segment_len: 500, ids: Identifications::Rise, maker: Maker::Sender });
        side.push(Time::ZERO, packet, &mut Connections::new(Secret::new(7)), &mut out);
        let (mut seen, mut wire) = (0, 0);
        while let Some(packet) = out.next() {
            seen += usize::from(packet.gso.is_some());
            wire += packet.wire_count();
            assert!(packet.wire_len() <= usize::from(mtu));
            out.recycle(packet);
        }
        side.check(&out).unwrap();
        assert_eq!((seen, out.ledger.event(Event::Fragments).packets), (gso_packets, fragments), "at {mtu}");
        assert_eq!(wire, if gso_packets == 1 { 3 } else { 5 });
    }
}

fn source() -> Role {
    Role::Source(Identifiers::new(Secret::new(1), LIFETIME))
}

/// The packets on the wire of a GSO packet.
fn cut(gso: &[u8], segment_len: u16, ids: Identifications, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut packet = Frame::copy(gso, LinkType::Ip, Ingress(0), pool).expect("a train parses");
    packet.gso = Some(Gso { segment_len, ids, maker: Maker::Sender });
    let segments = fragments(&packet);
    assert_eq!(segments.len(), packet.wire_count());
    assert_eq!(segments.iter().map(Vec::len).max(), Some(packet.wire_len()));
    pool.give(packet.into_buffer());
    segments
}

fn fragments(packet: &Packet) -> Vec<Vec<u8>> {
    let mut fragments = WirePackets::of(packet);
    let mut segments = Vec::new();
    while let Some(fragment) = fragments.next() {
        segments.push([fragment.header, fragment.payload].concat());
    }
    segments
}

/// Sequence number and payload of a segment; checks its lengths and checksums.
fn read_tcp<'a>(segment: &'a [u8], what: &str) -> (u32, &'a [u8]) {
    let sliced = SlicedPacket::from_ip(segment).unwrap_or_else(|error| panic!("{what}: {error}"));
    let Some(TransportSlice::Tcp(header)) = &sliced.transport else { panic!("{what}: no TCP") };
    assert_eq!(header.checksum(), right_sum(&sliced), "{what}");
    if let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net {
        assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum(), "{what}");
        assert_eq!(usize::from(ip.header().total_len()), segment.len(), "{what}");
    }
    (header.sequence_number(), &segment[segment.len() - header.payload().len()..])
}

/// The transport checksum, computed by another library.
fn right_sum(sliced: &SlicedPacket<'_>) -> u16 {
    match (&sliced.net, &sliced.transport) {
        (Some(etherparse::NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) => {
            tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), tcp.payload()).unwrap()
        }
        (Some(etherparse::NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(tcp))) => {
            tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()).unwrap()
        }
        (Some(etherparse::NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
            udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap()
        }
        (Some(etherparse::NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) => {
            udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap()
        }
        _ => panic!("TCP or UDP over IP"),
    }
}

/// A TCP packet with timestamps, as long as one header allows, with an ID close to its wrap.
fn tcp(version: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let options = [1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 0];
    testkit::tcp(version).id(0xFFFE).seq(SEQ).flags(flags).options(options).payload(payload).bytes()
}

fn udp(version: u8, payload: &[u8]) -> Vec<u8> {
    testkit::udp(version).id(0xFFFE).payload(payload).bytes()
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7 + at) as u8).collect()
}

/// A sequence number close to the wrap.
const SEQ: u32 = u32::MAX - 1_000;
