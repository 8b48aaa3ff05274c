//! Frames -> the header fields that etherparse reads; damaged frames -> no panic.

use crate::frames::*;
use etherparse::{IpSlice, LinkExtSlice, NetSlice, SlicedPacket};
use proptest::prelude::*;
use std::net::IpAddr;
use wideload_packet::icmp::{self, IcmpError};
use wideload_packet::{
    Address, Content, FRAGMENT_HEADER_LEN_MAX, Fragment, Fragmentation, Frame, Gso, Identifications, Ingress, Ip,
    LinkType, Maker, Packet, ParseError, Pool, Split, Template, Version,
};

#[test]
fn every_frame_is_read_as_etherparse_reads_it() {
    let mut pool = Pool::new(1 << 20);
    for payload_len in [0, 1, 31, 1_200] {
        for bytes in frames(&noise(payload_len)) {
            let packet = read(&bytes, LinkType::Ethernet, &mut pool);
            let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
            let link_len = 14 + 4 * theirs.link_exts.len();
            assert_eq!(packet.link().len(), link_len);
            let net = theirs.net.as_ref().unwrap();
            let whole = &bytes[link_len..];
            agrees(&packet, net, whole);
            let upper = packet.ip().upper.unwrap();
            let payload = net.ip_payload_ref().unwrap();
            assert_eq!((upper.protocol, packet.upper_bytes(upper)), (payload.ip_number.0, payload.payload));
            pool.give(packet.into_buffer());
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

#[test]
fn every_fragment_is_read_as_etherparse_reads_it() {
    let mut pool = Pool::new(1 << 20);
    for (offset, more) in [(0, true), (8, true), (8, false), (1_480, true), (65_528, false)] {
        let payload = noise(64);
        for bytes in [fragment_v4(offset, more, &payload), fragment_v6(offset, more, &payload)] {
            let packet = read(&bytes, LinkType::Ip, &mut pool);
            let id = if packet.ip().version == Version::V4 { 0xBEEF } else { 0xDEAD_BEEF };
            assert_eq!(packet.ip().fragment, Some(Fragment { id, offset: offset as u16, more }));
            assert_eq!(packet.payload(), payload);
            let theirs = IpSlice::from_slice(&bytes).unwrap();
            assert!(theirs.payload().fragmented);
            assert_eq!(packet.payload(), theirs.payload().payload);
            assert_eq!(packet.ip().upper.is_some(), offset == 0);
            pool.give(packet.into_buffer());
        }
    }
}

#[test]
fn fragments_of_one_shape_differ_in_nothing_that_joining_looks_at_but_their_offset() {
    // Every pair of header bits is flipped, in fragments with and without MF.
    for (offset, more) in [(8, true), (1_480, true), (1_480, false)] {
        for (bytes, header_len) in [
            (fragment_v4(offset, more, &noise(64)), 20),
            (with_options(fragment_v4(offset, more, &noise(64))), 28),
            (fragment_v6(offset, more, &noise(64)), 48),
        ] {
            let one = Ip::parse(&bytes).unwrap();
            let (mut alike, mut unlike) = (0, 0);
            for first in 0..8 * header_len {
                for second in first..8 * header_len {
                    let mut other = bytes.clone();
                    other[first / 8] ^= 1 << (first % 8);
                    if second != first {
                        other[second / 8] ^= 1 << (second % 8);
                    }
                    mend_packet(&mut other);
                    // Only later fragments are compared here: a first fragment's headers are parsed closely.
                    let Ok(other) = Ip::parse(&other) else { continue };
                    if other.fragment.is_none_or(|fragment| fragment.offset == 0) {
                        continue;
                    }
                    if other.shape != one.shape {
                        unlike += 1;
                        continue;
                    }
                    alike += 1;
                    let looked_at = |ip: &Ip| {
                        (
                            (ip.version, ip.header_len, ip.payload_at, ip.len, ip.ecn, ip.dont_fragment),
                            (ip.key_protocol(), ip.fragment.map(|fragment| fragment.more)),
                            (ip.option_misplaced, ip.length_missing, ip.payload_len_max()),
                        )
                    };
                    assert_eq!(looked_at(&other), looked_at(&one), "bits {first} and {second}");
                }
            }
            assert!(alike > 100 && unlike > 100, "{alike} alike, {unlike} not");
        }
    }
}

#[test]
fn vlan_tags_separate_frames_by_identifier() {
    let mut pool = Pool::new(1 << 20);
    let read_tags = |bytes: &[u8], pool: &mut Pool| {
        let packet = read(bytes, LinkType::Ethernet, pool);
        let tags = packet.tags();
        pool.give(packet.into_buffer());
        tags
    };
    let all: Vec<_> = (0..=2)
        .map(|tag_count| frame(tag_count, headers()[0].clone(), Transport::Udp, &[1; 32]))
        .map(|bytes| {
            let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
            let ids: Vec<u16> = theirs.link_exts.iter().filter_map(vlan_id).collect();
            (ids, read_tags(&bytes, &mut pool))
        })
        .collect();
    for (ids, tags) in &all {
        for (other_ids, other_tags) in &all {
            assert_eq!(ids == other_ids, tags == other_tags);
        }
    }
}

#[test]
fn link_padding_is_kept_with_the_frame_and_out_of_the_packet() {
    let mut pool = Pool::new(1 << 20);
    for ip in [headers()[0].clone(), headers()[16].clone()] {
        let bytes = frame(1, ip, Transport::Udp, &[7; 5]);
        for padding in 0..50 {
            let padded = [&bytes[..], &vec![0xEE; padding]].concat();
            let packet = read(&padded, LinkType::Ethernet, &mut pool);
            assert_eq!((packet.frame(), packet.bytes()), (&padded[..], &bytes[18..]));
            assert!(packet.is_as_received());
            pool.give(packet.into_buffer());
        }
    }
}

#[test]
fn every_bit_flip_and_truncation_is_read_or_refused() {
    let mut pool = Pool::new(1 << 22);
    let payload = noise(24);
    let mut bases = frames(&payload);
    for bytes in [fragment_v4(8, true, &payload), fragment_v6(8, true, &payload), fragment_v6(0, true, &payload)] {
        let ether_type = if bytes[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xDD] };
        bases.push([&[2; 12][..], &ether_type, &bytes].concat());
    }
    for base in &bases {
        for len in 0..base.len() {
            survive(&base[..len], &mut pool);
        }
        for at in 12..base.len() {
            for value in (0..8).map(|bit| base[at] ^ 1 << bit).chain([0, 0xFF, !base[at]]) {
                let mut bytes = base.clone();
                bytes[at] = value;
                survive(&bytes, &mut pool);
                // With a correct header checksum the checks behind it are reached.
                if mend_header_sum(&mut bytes) {
                    survive(&bytes, &mut pool);
                }
            }
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0u8..3) {
        let mut pool = Pool::new(1 << 22);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = match version { 0 => 0x45, 1 => 0x60, _ => *first };
        }
        for link_type in [LinkType::Ip, LinkType::Ethernet, LinkType::Loopback, LinkType::Cooked, LinkType::Cooked2] {
            survive_on(&bytes, link_type, &mut pool);
        }
        prop_assert_eq!(pool.in_use_count(), 0);
    }

    // Parsing a random chain of headers ends, and all resulting offsets are within the packet.
    #[test]
    fn any_chain_of_headers_ends(kinds in prop::collection::vec((0usize..7, 0u8..5), 0..20), tail in 0usize..64) {
        let numbers = [0u8, 43, 44, 51, 60, 17, 59];
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        bytes.extend(HOST_V6);
        bytes.extend(PEER_V6);
        let mut named_at = 6;
        for (kind, len) in kinds {
            bytes[named_at] = numbers[kind];
            named_at = bytes.len();
            let header_len = if numbers[kind] == 44 { 8 } else { 8 + usize::from(len) * 8 };
            bytes.extend(vec![0; header_len]);
            bytes[named_at + 1] = match numbers[kind] { 44 => 0, 51 => len * 2, _ => len };
        }
        bytes[named_at] = 17;
        bytes.extend(vec![0; tail]);
        let payload_len = (bytes.len() - 40) as u16;
        bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
        let mut pool = Pool::new(1 << 22);
        survive_on(&bytes, LinkType::Ip, &mut pool);
    }
}

// R097: a packet at the limit of headers can be parsed again from the fragments that we make of it.
#[test]
fn a_fragment_header_does_not_count_against_the_limit_of_headers() {
    let chain = |count: usize, len: usize, fragment: bool| {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, if fragment { 44 } else { 60 }, 64];
        bytes.extend(HOST_V6);
        bytes.extend(PEER_V6);
        if fragment {
            bytes.extend([60, 0, 0, 1, 0, 0, 0, 9]);
        }
        for index in 0..count {
            let at = bytes.len();
            bytes.extend(vec![0; len]);
            (bytes[at], bytes[at + 1]) = (if index + 1 < count { 60 } else { 17 }, (len / 8 - 1) as u8);
        }
        bytes.extend([0; 64]);
        let payload_len = (bytes.len() - 40) as u16;
        bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
        Ip::parse(&bytes).map(|ip| ip.upper.is_some())
    };
    for fragment in [false, true] {
        for (count, len) in [(8, 8), (8, 32), (1, 256)] {
            assert_eq!(chain(count, len, fragment), Ok(true), "{count} of {len}");
        }
        for (count, len) in [(9, 8), (1, 264), (2, 136)] {
            assert_eq!(chain(count, len, fragment), Err(ParseError::ChainTooLong), "{count} of {len}");
        }
    }
}

// Helpers.

#[test]
fn the_site_of_an_address_is_its_routed_prefix() {
    for (address, site) in [
        ("192.0.2.77", "192.0.2.0"),
        ("255.255.255.255", "255.255.255.0"),
        ("0.0.0.1", "0.0.0.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff::"),
        ("::1", "::"),
    ] {
        let ip = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(ip(address).routed_prefix(), ip(site), "{address}");
    }
}

/// Compares all fields of the parsed IP header.
#[track_caller]
fn agrees(packet: &Packet, theirs: &NetSlice, whole: &[u8]) {
    let ip = packet.ip();
    assert_eq!(packet.bytes(), whole);
    assert_eq!((ip.fragment, ip.length_missing, ip.option_misplaced), (None, false, false));
    let (source, destination) = packet.addresses();
    let addresses: (IpAddr, IpAddr) = (source.into(), destination.into());
    match theirs {
        NetSlice::Ipv4(v4) => {
            let header = v4.header();
            assert_eq!(addresses, (header.source_addr().into(), header.destination_addr().into()));
            assert_eq!(ip.version, Version::V4);
            assert_eq!(ip.len, u32::from(header.total_len()));
            assert_eq!(packet.header(), header.slice());
            assert_eq!(packet.payload(), v4.payload().payload);
            assert_eq!((ip.id, ip.dont_fragment), (header.identification().into(), header.dont_fragment()));
            assert_eq!((ip.protocol, ip.ecn.bits()), (header.protocol().0, header.ecn().value()));
        }
        NetSlice::Ipv6(v6) => {
            let header = v6.header();
            assert_eq!(addresses, (header.source_addr().into(), header.destination_addr().into()));
            assert_eq!(ip.version, Version::V6);
            assert_eq!(ip.len, 40 + u32::from(header.payload_length()));
            assert_eq!((ip.id, ip.dont_fragment), (0, true));
            assert_eq!(ip.ecn.bits(), header.traffic_class() & 3);
            // The headers that every fragment repeats end with the last header that routers read (R088).
            let repeated = v6.extensions().clone().into_iter().fold((40, 40), |(at, end), extension| {
                use etherparse::Ipv6ExtensionSlice::*;
                match extension {
                    HopByHop(header) | Routing(header) => (at + header.slice().len(), at + header.slice().len()),
                    DestinationOptions(header) => (at + header.slice().len(), end),
                    Authentication(header) => (at + header.slice().len(), end),
                    Fragment(_) => panic!("no fragment is in this list"),
                }
            });
            assert_eq!(usize::from(ip.header_len), repeated.1);
        }
        other => panic!("an IP packet is read as {other:?}"),
    }
}

fn vlan_id(extension: &LinkExtSlice) -> Option<u16> {
    match extension.to_header() {
        etherparse::LinkExtHeader::Vlan(header) => Some(header.vlan_id.value()),
        _ => None,
    }
}

fn survive(frame: &[u8], pool: &mut Pool) {
    survive_on(frame, LinkType::Ethernet, pool);
}

/// Applies all operations on packets to the packet in a frame.
fn survive_on(frame: &[u8], link_type: LinkType, pool: &mut Pool) {
    let Ok(mut packet) = Frame::copy(frame, link_type, Ingress(0), pool) else { return };
    let ip = *packet.ip();
    assert_eq!(packet.frame(), frame);
    assert!(ip.header_len <= ip.payload_at && u32::from(ip.payload_at) <= ip.len);
    assert!(ip.upper.is_none_or(|upper| u32::from(upper.at) <= ip.len));
    assert_eq!(packet.bytes().len(), packet.header().len() + packet.payload().len() + fragment_header_len(&ip));
    assert!(packet.wire_count() == 1 && packet.wire_len() == packet.len());
    let sources = [IpAddr::from(HOST_V4), IpAddr::from(HOST_V6)];
    for icmp_error in [
        IcmpError::TooBig { mtu: 1_280 },
        IcmpError::ReassemblyTime,
        IcmpError::BadField { pointer: 4 },
        IcmpError::HeadersCut,
    ] {
        for source in sources {
            if let Some(error) = icmp::error(icmp_error, &packet, source, pool) {
                assert!(error.len() <= 1_280);
                pool.give(error.into_buffer());
            }
        }
    }
    packet.lacks_headers();
    packet.is_neighbour_discovery();
    packet.detect_checksum();
    packet.gso = Some(Gso { segment_len: 100, ids: Identifications::Rise, maker: Maker::Sender });
    assert!(packet.wire_len() <= packet.len() && packet.wire_count() >= 1);
    packet.gso = None;
    packet.finish_len();
    packet.complete_checksum();
    let [first, later] = packet.fragment_header_lens();
    let mtu = (first.max(later) + 8) as u16;
    packet.fragmentation = Some(Fragmentation { mtu, id: 1, split: Split::Balanced, content: Content::Complete });
    let covered: usize = packet.fragment_ranges().unwrap().map(|share| share.len()).sum();
    assert_eq!(covered, packet.payload().len());
    for starts in [ip.starts(), false] {
        let mut room = [0; FRAGMENT_HEADER_LEN_MAX];
        let place = Fragment { id: 2, offset: if starts { 0 } else { 8 }, more: true };
        let header = Template::new(&packet).stamp(&mut room, 8, place);
        assert!(header.len() <= packet.link().len() + first.max(later));
    }
    if ip.fragment == Some(Fragment { id: ip.id, offset: 0, more: false }) {
        packet.fragmentation = None;
        packet.make_whole();
        assert_eq!(Ip::parse(packet.bytes()).map(|ip| ip.fragment), Ok(None));
    }
    pool.give(packet.into_buffer());
}

fn fragment_header_len(ip: &Ip) -> usize {
    usize::from(ip.payload_at - ip.header_len)
}

/// Corrects the IPv4 header checksum behind an untagged Ethernet header. Returns false if it was correct.
fn mend_header_sum(frame: &mut [u8]) -> bool {
    frame.get_mut(14..).is_some_and(mend_packet)
}

/// Corrects the header checksum of an IPv4 packet. Returns false if it was correct.
fn mend_packet(packet: &mut [u8]) -> bool {
    let Some(header_len) = packet.first().map(|first| usize::from(first & 15) * 4) else { return false };
    if packet.len() < header_len || header_len < 20 || packet[0] >> 4 != 4 {
        return false;
    }
    let before = [packet[10], packet[11]];
    seal_ip(packet);
    before != packet[10..12]
}

/// Adds eight bytes of options without effect to an IPv4 packet.
fn with_options(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.splice(20..20, [1; 8]);
    bytes[0] += 2;
    let len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    assert!(mend_packet(&mut bytes));
    bytes
}
