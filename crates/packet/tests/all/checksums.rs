//! Partial checksums -> completed checksums; wrong checksums -> unchanged; sums -> the sums of etherparse.

use crate::frames::*;
use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;
use wideload_packet::{Address, Checksum, LinkType, Packet, Pool, Sum, ip::pseudo_sum, patched, udp};

#[test]
fn a_partial_checksum_is_recognised_and_completed() {
    let mut pool = Pool::new(1 << 20);
    for ip in headers() {
        for transport in [Transport::Udp, Transport::Tcp] {
            for len in (0..40).chain([1_399, 1_400]) {
                let right = packet(ip.clone(), transport, &noise(len));
                let mut half = right.clone();
                let half_sum = half_fill(&mut half, transport, &mut pool);
                let mut packet = read(&half, LinkType::Ip, &mut pool);
                packet.detect_checksum();
                if half_sum == field(&right, transport, &mut pool) {
                    // By chance, the partial checksum equals the complete checksum.
                    assert_eq!(packet.checksum, Checksum::Unverified);
                } else {
                    assert_eq!(packet.checksum, Checksum::Partial, "{transport:?} of {len}");
                    assert!(packet.complete_checksum());
                    assert!(!packet.is_as_received());
                    assert_eq!(packet.checksum, Checksum::Verified);
                }
                assert!(packet.bytes() == right, "{transport:?} of {len}");
                assert!(!packet.complete_checksum(), "once");
                pool.give(packet.into_buffer());
            }
        }
    }
}

// rel:A49: no wrong checksum is corrected, except a partial one.
#[test]
fn only_the_partial_value_is_completed() {
    let mut pool = Pool::new(1 << 20);
    for (ip, transport) in [
        (headers()[0].clone(), Transport::Udp),
        (headers()[5].clone(), Transport::Tcp),
        (headers()[16].clone(), Transport::Udp),
        (headers()[31].clone(), Transport::Tcp),
    ] {
        let mut bytes = packet(ip, transport, &noise(33));
        let half = half_fill(&mut bytes.clone(), transport, &mut pool);
        let at = field_at(&bytes, transport, &mut pool);
        for value in 0..=u16::MAX {
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
            let mut packet = read(&bytes, LinkType::Ip, &mut pool);
            packet.detect_checksum();
            let finished = packet.complete_checksum();
            assert_eq!(finished, value == half, "{value:04x}");
            assert!(finished || packet.bytes() == bytes && packet.is_as_received());
            pool.give(packet.into_buffer());
        }
    }
}

#[test]
fn a_valid_checksum_equal_to_the_partial_one_is_kept() {
    let mut pool = Pool::new(1 << 20);
    let mut bytes = packet(headers()[16].clone(), Transport::Udp, &[0; 8]);
    let half = half_fill(&mut bytes, Transport::Udp, &mut pool);
    // With this first word of the payload, the partial checksum in the field makes the whole sum correct.
    let words = (0..=u16::MAX).find(|word| {
        bytes[48..50].copy_from_slice(&word.to_be_bytes());
        let packet = read(&bytes, LinkType::Ip, &mut pool);
        let upper = packet.ip().upper.unwrap();
        let sum = pseudo_sum(packet.addresses(), upper.protocol, packet.upper_bytes(upper).len());
        let right = (sum + Sum::of(packet.upper_bytes(upper))).is_right();
        pool.give(packet.into_buffer());
        right
    });
    assert!(words.is_some());
    let mut packet = read(&bytes, LinkType::Ip, &mut pool);
    packet.detect_checksum();
    assert_eq!(packet.checksum, Checksum::Unverified);
    assert_eq!(field(&bytes, Transport::Udp, &mut pool), half);
}

// R096: a UDP checksum whose complement is 0 is sent as all ones.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut pool = Pool::new(1 << 20);
    for ip in [headers()[0].clone(), headers()[16].clone()] {
        let mut bytes = packet(ip, Transport::Udp, &[0; 8]);
        let at = field_at(&bytes, Transport::Udp, &mut pool);
        // The payload's own checksum, added to the payload, gives a sum whose complement is 0.
        let right = [bytes[at], bytes[at + 1]];
        bytes[at + 2..at + 4].copy_from_slice(&right);
        half_fill(&mut bytes, Transport::Udp, &mut pool);
        let mut packet = read(&bytes, LinkType::Ip, &mut pool);
        packet.detect_checksum();
        assert!(packet.complete_checksum());
        assert_eq!(packet.bytes()[at..at + 2], [0xFF, 0xFF]);
        pool.give(packet.into_buffer());
    }
    assert_eq!(udp::field(Sum::word(0xFFFF)), 0xFFFF);
    assert_eq!(udp::field(Sum::word(0x1234)), !0x1234);
}

#[test]
fn absent_checksums_are_not_detected() {
    let mut pool = Pool::new(1 << 20);
    // UDP without a checksum, fragments, ICMP.
    let mut none = packet(headers()[0].clone(), Transport::Udp, &noise(20));
    none[26..28].fill(0);
    let echo = packet(headers()[0].clone(), Transport::Echo, &noise(20));
    let mut datagram = packet(headers()[0].clone(), Transport::Udp, &noise(64));
    half_fill(&mut datagram, Transport::Udp, &mut pool);
    let fragments = [fragment_v4(0, true, &datagram[20..]), fragment_v6(0, true, &datagram[20..])];
    for bytes in [&none, &echo, &fragments[0], &fragments[1]] {
        let mut packet = read(bytes, LinkType::Ip, &mut pool);
        packet.detect_checksum();
        assert_eq!(packet.checksum, Checksum::Unverified);
        packet.checksum = Checksum::Partial;
        assert!(!packet.complete_checksum());
        assert_eq!(packet.bytes(), *bytes);
        pool.give(packet.into_buffer());
    }
}

#[test]
fn a_length_that_an_offloading_sender_left_out_is_written() {
    let mut pool = Pool::new(1 << 20);
    for transport in TRANSPORTS {
        for len in [1, 40, 1_400, 60_000] {
            // The header checksum may be missing too. A short frame may be padding behind a damaged packet.
            let right = packet(headers()[0].clone(), transport, &noise(len));
            for sum_missing in [true, false] {
                let mut bytes = right.clone();
                bytes[2..4].fill(0);
                bytes[10..12].fill(0);
                if !sum_missing {
                    seal_ip(&mut bytes);
                }
                check_len(&bytes, &right, transport, bytes.len() > 60, &mut pool);
            }
            // IPv6 packets without their length.
            let right = packet(headers()[16].clone(), transport, &noise(len));
            let mut bytes = right.clone();
            bytes[4..6].fill(0);
            check_len(&bytes, &right, transport, bytes.len() > 60, &mut pool);
        }
    }
}

#[test]
fn sums_of_every_length_are_those_of_etherparse() {
    let bytes = noise(9_002);
    for len in 0..=9_001 {
        let theirs = Sum16BitWords::new().add_slice(&bytes[..len]).ones_complement();
        assert_eq!(Sum::of(&bytes[..len]).checksum(), theirs.to_be(), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn sums_of_parts_in_any_order_are_the_sum_of_the_whole(
        bytes in prop::collection::vec(any::<u8>(), 1..500), cuts in prop::collection::vec(0usize..500, 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|cut| Sum::of(&bytes[cut[0]..cut[1]]).at(cut[0]));
        let forward = parts.clone().fold(Sum::ZERO, |sum, part| sum + part);
        let backward = parts.rev().fold(Sum::ZERO, |sum, part| part + sum);
        prop_assert_eq!(forward.checksum(), Sum::of(&bytes).checksum());
        prop_assert_eq!(backward.checksum(), forward.checksum());
        // A sum of zero has two representations, plus and minus zero.
        prop_assert!((forward + Sum::of(&bytes) - forward - forward).is_right());
    }

    // R029
    #[test]
    fn a_patched_checksum_is_that_of_the_changed_header(
        header in prop::collection::vec(any::<u16>(), 9), at in 0usize..9, new in any::<u16>(),
    ) {
        // A header has a version, so its sum is never plus zero.
        let mut header = header;
        header[0] |= 0x4000;
        let new = if at == 0 { new | 0x4000 } else { new };
        let sum = |header: &[u16]| header.iter().fold(Sum::ZERO, |sum, word| sum + Sum::word(*word)).checksum();
        let (before, old) = (sum(&header), header[at]);
        header[at] = new;
        prop_assert_eq!(patched(before, old, new), sum(&header));
    }

    #[test]
    fn pseudo_sums_count_addresses_protocol_and_length(
        source in any::<u128>(), destination in any::<u128>(), protocol in any::<u8>(), len in 0usize..65_536,
    ) {
        let v6 = |number: u128| Address::from(std::net::IpAddr::from(std::net::Ipv6Addr::from(number | 1 << 127)));
        let ours = pseudo_sum((v6(source), v6(destination)), protocol, len);
        let bytes = |number: u128| (number | 1 << 127).to_be_bytes();
        let mut theirs = Sum16BitWords::new().add_16bytes(bytes(source)).add_16bytes(bytes(destination));
        let theirs = theirs.add_4bytes((len as u32).to_be_bytes()).add_2bytes([0, protocol]);
        prop_assert_eq!(ours.checksum(), theirs.ones_complement().to_be());
        let v4 = |number: u128| Address::from(std::net::IpAddr::from(std::net::Ipv4Addr::from(number as u32)));
        let ours = pseudo_sum((v4(source), v4(destination)), protocol, len);
        let mut theirs = Sum16BitWords::new();
        let mut theirs = theirs.add_4bytes((source as u32).to_be_bytes());
        let theirs = theirs.add_4bytes((destination as u32).to_be_bytes()).add_2bytes((len as u16).to_be_bytes());
        prop_assert_eq!(ours.checksum(), theirs.add_2bytes([0, protocol]).ones_complement().to_be());
    }
}

// Helpers.

fn check_len(bytes: &[u8], right: &[u8], transport: Transport, expected: bool, pool: &mut Pool) {
    let expected = expected && transport != Transport::Echo;
    let Ok(mut packet) = wideload_packet::Frame::copy(bytes, LinkType::Ip, wideload_packet::Ingress(0), pool)
    else {
        assert!(!expected && bytes[0] >> 4 == 4, "a length of 0 is a lie elsewhere");
        return;
    };
    assert_eq!(packet.ip().length_missing, expected, "{transport:?}, {} bytes", bytes.len());
    assert_eq!(packet.finish_len(), expected);
    if expected {
        assert!(packet.bytes() == right && !packet.finish_len() && !packet.is_as_received());
    }
    pool.give(packet.into_buffer());
}

/// Returns the offset of the checksum field, in bytes from the IP header.
fn field_at(bytes: &[u8], transport: Transport, pool: &mut Pool) -> usize {
    let packet = read(bytes, LinkType::Ip, pool);
    let at = usize::from(packet.ip().upper.unwrap().at);
    pool.give(packet.into_buffer());
    at + if transport == Transport::Udp { 6 } else { 16 }
}

fn field(bytes: &[u8], transport: Transport, pool: &mut Pool) -> u16 {
    let at = field_at(bytes, transport, pool);
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes the partial checksum of an offloading sender: the sum of the pseudo-header, not complemented.
fn half_fill(bytes: &mut [u8], transport: Transport, pool: &mut Pool) -> u16 {
    let at = field_at(bytes, transport, pool);
    let packet: Packet = read(bytes, LinkType::Ip, pool);
    let upper = packet.ip().upper.unwrap();
    let len = packet.upper_bytes(upper).len() as u32;
    let addresses = match packet.header()[0] >> 4 {
        4 => packet.header()[12..20].to_vec(),
        _ => packet.header()[8..40].to_vec(),
    };
    let mut sum = Sum16BitWords::new().add_slice(&addresses);
    let sum = !sum.add_4bytes(len.to_be_bytes()).add_2bytes([0, upper.protocol]).ones_complement().to_be();
    pool.give(packet.into_buffer());
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    sum
}
