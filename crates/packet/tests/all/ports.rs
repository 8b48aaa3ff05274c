//! The operations of a port on frames: parsing in place, another link header, deferred checksums.

use crate::frames::*;
use wideload_packet::{
    Checksum, Frame, Ingress, LINK_LEN_MAX, LinkType, Packet, ParseError, Pool, Sum, ip::pseudo_sum,
};

#[test]
fn a_deferred_checksum_is_the_pseudo_header_sum_and_completes() {
    let mut pool = Pool::new(1 << 20);
    for ip in headers() {
        for transport in [Transport::Udp, Transport::Tcp] {
            for len in [0, 1, 7, 1_399, 1_400] {
                let right = packet(ip.clone(), transport, &noise(len));
                let mut packet = read(&right, LinkType::Ip, &mut pool);
                packet.checksum = Checksum::Verified;
                let (upper_at, field_at) = packet.defer_checksum().expect("it has a checksum");
                let upper = packet.ip().upper.unwrap();
                let within = if transport == Transport::Tcp { 16 } else { 6 };
                assert_eq!((upper_at, field_at), (usize::from(upper.at), usize::from(upper.at) + within));
                let half = pseudo_sum(packet.addresses(), upper.protocol, right.len() - upper_at);
                let mut expected = right.clone();
                expected[field_at..field_at + 2].copy_from_slice(&half.fold().to_be_bytes());
                assert!(packet.bytes() == expected, "nothing but the field changes");
                assert_eq!(packet.checksum, Checksum::Partial);
                assert!(!packet.is_as_received() && packet.checksum_error().fold() == 0);
                // A NIC sums all bytes from the transport header on, including the checksum field.
                let card = Sum::of(&expected[upper_at..]).checksum();
                let card = if transport == Transport::Udp && card == 0 { 0xFFFF } else { card };
                assert_eq!(card.to_be_bytes(), right[field_at..field_at + 2]);
                // A checksum that is already deferred stays so.
                assert_eq!(packet.defer_checksum(), Some((upper_at, field_at)));
                assert!(packet.bytes() == expected && packet.is_partial());
                assert!(packet.complete_checksum() && packet.bytes() == right && !packet.is_partial());
                pool.give(packet.into_buffer());
            }
        }
    }
}

#[test]
fn unverified_and_absent_checksums_are_not_deferred() {
    let mut pool = Pool::new(1 << 20);
    let mut none = packet(headers()[0].clone(), Transport::Udp, &noise(20));
    none[26..28].fill(0);
    let datagram = packet(headers()[0].clone(), Transport::Udp, &noise(64));
    let echo = packet(headers()[0].clone(), Transport::Echo, &noise(20));
    for checksum in [Checksum::Unverified, Checksum::Verified, Checksum::Partial] {
        for bytes in [&none, &echo, &fragment_v4(0, true, &datagram[20..]), &fragment_v6(0, true, &datagram[20..])]
        {
            let mut packet = read(bytes, LinkType::Ip, &mut pool);
            packet.checksum = checksum;
            assert_eq!(packet.defer_checksum(), None);
            assert!(packet.bytes() == bytes && packet.is_as_received() && !packet.is_partial());
            pool.give(packet.into_buffer());
        }
    }
    for ip in headers() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let bytes = packet(ip.clone(), transport, &noise(100));
            let mut packet = read(&bytes, LinkType::Ip, &mut pool);
            assert_eq!(packet.defer_checksum(), None, "nobody has looked");
            assert!(packet.bytes() == bytes && packet.is_as_received() && packet.checksum == Checksum::Unverified);
            pool.give(packet.into_buffer());
        }
    }
}

#[test]
fn a_frame_reads_alike_in_any_memory() {
    let mut pool = Pool::new(1 << 22);
    for bytes in frames(&noise(64)) {
        let reference = read(&bytes, LinkType::Ethernet, &mut pool);
        for at in [0, 1, 10, 12, 63, 370, 384, 1_000] {
            let packet = laid(&bytes, at, LinkType::Ethernet, &mut pool);
            assert!(packet.frame() == bytes && packet.is_as_received());
            assert_eq!(packet.ip(), reference.ip());
            assert_eq!(packet.link_header(), reference.link_header());
            assert_eq!((packet.l2_scope(), packet.ingress()), (reference.l2_scope(), Ingress(3)));
            assert!(packet.link() == reference.link() && packet.payload() == reference.payload());
            pool.give(packet.into_buffer());
        }
        pool.give(reference.into_buffer());
    }
    assert_eq!(pool.in_use_count(), 0);
}

#[test]
fn a_frame_that_is_no_packet_gives_its_bytes_back() {
    let mut pool = Pool::new(1 << 20);
    let arp = [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6], &noise(46)].concat();
    let tagged = [&arp[..12], &[0x81, 0, 0, 7, 8, 6], &noise(46)].concat();
    let mut other_version = frame(1, headers()[0].clone(), Transport::Udp, &noise(8));
    other_version[16..18].copy_from_slice(&[0x86, 0xDD]);
    let mut bad_sum = frame(0, headers()[0].clone(), Transport::Udp, &noise(8));
    bad_sum[24] ^= 1;
    let cut = frame(2, headers()[0].clone(), Transport::Tcp, &noise(8))[..40].to_vec();
    for (bytes, link_type, expected) in [
        (&arp, LinkType::Ethernet, ParseError::NotIp),
        (&tagged, LinkType::Ethernet, ParseError::NotIp),
        (&other_version, LinkType::Ethernet, ParseError::BadVersion),
        (&bad_sum, LinkType::Ethernet, ParseError::BadHeaderSum),
        (&cut, LinkType::Ethernet, ParseError::Truncated),
        (&vec![2, 0, 0], LinkType::Ethernet, ParseError::Truncated),
        (&vec![], LinkType::Ethernet, ParseError::Truncated),
        (&vec![], LinkType::Ip, ParseError::Truncated),
        (&vec![0x50; 30], LinkType::Ip, ParseError::BadVersion),
    ] {
        for at in [0, 10, 370, 500] {
            let mut buffer = pool.allocate(2_000).unwrap();
            buffer.put(at, bytes);
            match Frame::read(buffer, at, bytes.len(), link_type, Ingress(3)) {
                Frame::Other(raw, unfit) => {
                    assert_eq!((raw.frame(), unfit), (&bytes[..], expected), "at {at}");
                    pool.give(raw.into_buffer());
                }
                Frame::Ip(packet) => panic!("{:02x?}", packet.frame()),
            }
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

#[test]
fn a_link_header_can_be_replaced_and_restored() {
    let mut pool = Pool::new(1 << 22);
    let media =
        [(LinkType::Ip, 0), (LinkType::Ethernet, 14), (LinkType::Ethernet, 22), (LinkType::Cooked2, LINK_LEN_MAX)];
    for ip in headers() {
        for (from, from_len) in media {
            for (to, to_len) in media {
                let ether_type: &[u8] = if ip.version() == 4 { &[8, 0] } else { &[0x86, 0xDD] };
                let own = link(from, from_len, ether_type);
                let bytes = [&own[..], &packet(ip.clone(), Transport::Tcp, &noise(33)), &[0xEE; 5]].concat();
                let end = bytes.len() - 5;
                let mut packet = laid(&bytes, 40, from, &mut pool);
                let (before, l2_scope) = (*packet.ip(), packet.l2_scope());
                let other = link(to, to_len, ether_type);
                packet.set_link_header(to, &other);
                assert!(packet.frame() == [&other[..], &bytes[from_len..end]].concat(), "the padding goes");
                assert_eq!((packet.link_type(), packet.link()), (to, &other[..]));
                assert_eq!(packet.link_header().len, to_len);
                assert_eq!(
                    (packet.ip(), packet.l2_scope()),
                    (&before, l2_scope),
                    "it came from where it came from"
                );
                assert!(!packet.is_as_received());
                packet.set_link_header(from, &own);
                assert!(packet.frame() == &bytes[..end]);
                pool.give(packet.into_buffer());
            }
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

#[test]
#[should_panic(expected = "a link header fits in front of its packet")]
fn a_link_header_that_is_too_long_is_refused() {
    let mut pool = Pool::new(1 << 20);
    let mut packet = read(&packet(headers()[0].clone(), Transport::Udp, &[]), LinkType::Ip, &mut pool);
    packet.set_link_header(LinkType::Ethernet, &[0; LINK_LEN_MAX + 1]);
}

/// Parses a frame at offset `at` of a buffer.
fn laid(bytes: &[u8], at: usize, link_type: LinkType, pool: &mut Pool) -> Packet {
    let mut buffer = pool.allocate(at + bytes.len()).unwrap();
    buffer.put(at, bytes);
    match Frame::read(buffer, at, bytes.len(), link_type, Ingress(3)) {
        Frame::Ip(packet) => packet,
        Frame::Other(raw, unfit) => panic!("{unfit:?}: {:02x?}", raw.frame()),
    }
}

/// Returns a link header of `len` bytes for this EtherType.
fn link(link_type: LinkType, len: usize, ether_type: &[u8]) -> Vec<u8> {
    match link_type {
        LinkType::Ethernet => {
            let tags: &[u8] = if len == 14 { &[] } else { &[0x88, 0xA8, 0, 9, 0x81, 0, 0, 7] };
            [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], tags, ether_type].concat()
        }
        LinkType::Cooked2 => {
            let front = [0x81, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            [&front[..], &[0, 9, 0x81, 0, 0, 7, 0x81, 0, 0, 5][..], ether_type].concat()
        }
        _ => Vec::new(),
    }
}

#[test]
fn a_router_decrements_ttl_and_changes_nothing_else() {
    let mut pool = Pool::new(1 << 20);
    let mut v6 = vec![0x60, 0, 0, 0, 0, 4, 17, 2];
    v6.resize(44, 1);
    let v4 = |ttl: u8| Spec { ttl, ..ip(4) }.payload([1, 2, 3, 4]).bytes();
    for ttl in 1..=255 {
        let mut packet = Frame::copy(&v4(ttl), LinkType::Ip, Ingress(0), &mut pool).unwrap();
        assert_eq!(packet.ttl(), ttl);
        packet.decrement_ttl();
        assert_eq!(packet.bytes(), v4(ttl - 1));
        pool.give(packet.into_buffer());
    }
    let mut packet = Frame::copy(&v6, LinkType::Ip, Ingress(0), &mut pool).unwrap();
    packet.decrement_ttl();
    v6[7] = 1;
    assert_eq!((packet.ttl(), packet.bytes()), (1, &v6[..]));
}
