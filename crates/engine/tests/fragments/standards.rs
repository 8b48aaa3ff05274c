//! Clauses of the standards -> a test for each: `STANDARDS.tsv` row by row.
//!
//! A test names the row that it shows. The last tests read the tables themselves. Every row that is implemented is
//! cited, every id that is cited exists, and every departure is documented.

#![allow(clippy::type_complexity, reason = "a table's type is its columns")]

use crate::rig::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wideload_engine::packet::{CLASS_LENS, Frame, HEADROOM, Ingress, Ip, LinkType, ParseError, Pool, Time};
use wideload_engine::{Event, IcmpResponder, Identifiers, Late, Limits, Output, Reason, Role, Secret, Toggle};

// Fragmentation.

// R001, R030, R062: payloads that are multiples of 8 bytes, the fewest fragments, in order, without overlaps.
#[test]
fn fragments_are_fewest_and_contiguous() {
    for option_len in [0, 4, 40] {
        for mtu in (68..160).chain([296, 575, 576, 577, 1_280, 1_499, 1_500, 1_501, 9_000]) {
            let mut rig = Rig::router(mtu);
            let room = usize::from(mtu) - 20 - option_len;
            let lens = [1, 7, 8, 9, room - 1, room, room + 1, 2 * room, 2 * room + 9, 9_000, 65_515 - option_len];
            for len in lens {
                let payload = pattern(len);
                // Copied into every fragment, so all headers are equally long.
                let options = option(0x83, option_len);
                let wire = rig.push(&Spec { ip_options: options, ..ip(4).payload(payload.clone()) }.bytes());
                let wire = ReadPacket::all(&wire);
                assert_fewest(&wire, &payload, usize::from(mtu), room);
            }
        }
    }
}

// R001, R030, R062, in IPv6.
#[test]
fn ipv6_hosts_send_the_fewest_fragments() {
    for mtu in (1_280..1_300).chain([1_492, 1_500, 9_000]) {
        let mut rig = Rig::card(mtu);
        let room = usize::from(mtu) - 48;
        for len in [room + 9, 2 * room, 2 * room + 1, 9_001, 65_495] {
            let payload = pattern(len);
            let wire = ReadPacket::all(&rig.push(&whole(6, &payload)));
            assert_fewest(&wire, &payload, usize::from(mtu), room);
        }
    }
}

// R002, R038: a transparent gateway leaves hop counts unchanged too.
#[test]
fn long_packets_are_fragmented_or_with_df_discarded() {
    for mtu in [68u16, 576, 1_500, 9_000] {
        for (longer_by, flags, expected) in [(-1, 0, 1), (0, 0, 1), (1, 0, 2), (-1, DF, 1), (0, DF, 1), (1, DF, 0)]
        {
            let mut rig = Rig::new(mtu, Role::Transit, None);
            let len = (i32::from(mtu) - 20 + longer_by) as usize;
            let bytes = Spec { ip_flags: flags, ..ip(4).payload(pattern(len)) }.bytes();
            let wire = rig.push(&bytes);
            let (answers, wire): (Vec<_>, Vec<_>) = wire.into_iter().partition(|bytes| bytes[9] == ICMP);
            assert_eq!(wire.len(), expected, "{mtu} {longer_by:+} flags {flags:04x}");
            assert_eq!(answers.len(), usize::from(expected == 0));
            if expected == 1 {
                assert_eq!(wire[0], bytes);
            }
        }
    }
}

proptest! {
    // R003
    #[test]
    fn refragmented_fragments_belong_to_the_same_datagram(
        len in 1usize..20_000, wide in 68u16..9_001, narrow in 68u16..1_501, options in 0usize..11,
    ) {
        let payload = pattern(len);
        let bytes = Spec { ip_options: option(0x83, options * 4), ..ip(4).payload(payload.clone()) }.bytes();
        let once = Rig::router(wide).push(&bytes);
        let twice = Rig::router(narrow).push_all(&once);
        let wire = ReadPacket::all(&twice);
        prop_assert!(wire.iter().all(|fragment| fragment.ip_len() <= usize::from(narrow)));
        prop_assert_eq!(laid_out(&wire), payload);
        prop_assert_eq!(wire.iter().filter(|fragment| !fragment.more()).count(), 1);
    }
}

// R003
#[test]
fn a_refragmented_middle_fragment_keeps_mf() {
    let wire = Rig::router(68).push(&ip(4).part(800, pattern(104), true).bytes());
    let places: Vec<_> = ReadPacket::all(&wire).iter().map(ReadPacket::place).collect();
    assert_eq!(places, [(800, 48, true), (848, 48, true), (896, 8, true)]);
}

// R004
#[test]
fn copied_options_are_in_every_fragment_and_others_in_the_first() {
    let cases: [(&[u8], &[u8]); 9] = [
        // Loose and strict source route, router alert, an unknown copied one, security.
        (&[0x83, 7, 4, 192, 0, 2, 9, 0], &[0x83, 7, 4, 192, 0, 2, 9, 0]),
        (&[0x89, 3, 4, 0], &[0x89, 3, 4, 0]),
        (&[0x94, 4, 0, 0], &[0x94, 4, 0, 0]),
        (&[0xC0, 6, 1, 2, 3, 4, 0, 0], &[0xC0, 6, 1, 2, 3, 4, 0, 0]),
        // Record route, time stamp, an unknown one without the copied flag, no-operations.
        (&[7, 7, 4, 0, 0, 0, 0, 0], &[]),
        (&[0x44, 8, 5, 0, 0, 0, 0, 0], &[]),
        (&[0x1E, 4, 1, 2], &[]),
        (&[1, 1, 1, 0], &[]),
        // Both kinds.
        (&[7, 3, 4, 0x83, 3, 4, 1, 0x94, 4, 0, 0, 0], &[0x83, 3, 4, 0x94, 4, 0, 0, 0]),
    ];
    for (options, later) in cases {
        let payload = pattern(300);
        let bytes = Spec { ip_options: options.to_vec(), ..ip(4).payload(payload.clone()) }.bytes();
        let wire = ReadPacket::all(&Rig::router(124).push(&bytes));
        assert!(wire.len() >= 3);
        assert_eq!(&wire[0].header()[20..], options);
        for fragment in &wire[1..] {
            assert_eq!(&fragment.header()[20..], later, "after {options:02x?}");
            assert!(fragment.ip_len() <= 124);
        }
        assert_eq!(laid_out(&wire), payload);
    }
}

// R005: every IPv4 link carries 68 bytes; for a smaller MTU nothing is fragmented.
#[test]
fn packets_of_68_bytes_are_never_fragmented() {
    let bytes = Spec { ip_options: option(0x83, 40), ..ip(4).payload(pattern(8)) }.bytes();
    assert_eq!(bytes.len(), 68);
    assert_only(&Rig::router(68).push(&bytes), &bytes);
    for mtu in [0, 8, 67] {
        let mut rig = Rig::card(mtu);
        assert_only(&rig.push(&bytes), &bytes);
        assert_eq!(rig.event(Event::LeftOversize), 1);
    }
}

// R034
#[test]
fn reserved_bits_are_copied_into_every_fragment() {
    let bytes = Spec { ip_flags: RESERVED, tos: 0xFD, ..ip(4).payload(pattern(4_000)) }.bytes();
    let wire = Rig::router(1_500).push(&bytes);
    assert_eq!(wire.len(), 3);
    for fragment in &wire {
        assert_eq!((fragment[6] & 0x80, fragment[1]), (0x80, 0xFD));
    }
    assert_only(&Rig::host().push_all(&wire), &bytes);
}

// R073
#[test]
fn a_packets_fragments_leave_all_or_none() {
    let lifetime = seconds(3_600);
    let mut rig = Rig::new(1_500, Role::Source(Identifiers::new(secret(), lifetime)), None);
    for _ in 0..70_000 {
        let count = rig.push(&ip(4).payload(vec![0; 4_000]).bytes()).len();
        assert!(count == 0 || count == 3);
    }
    let refused = rig.retired(Reason::NoIdentifier);
    assert!(refused > 0);
    assert_eq!(rig.event(Event::Fragmented) + refused, 70_000);
}

// R076, R077: a new datagram's ID differs from those of datagrams that may still be in the network.
#[test]
fn identifications_are_unique_within_a_lifetime() {
    let lifetime = seconds(2);
    for interval in [Duration::from_micros(5), Duration::from_micros(40), Duration::from_micros(300)] {
        let mut rig = Rig::new(1_500, Role::Source(Identifiers::new(secret(), lifetime)), None);
        let mut given: HashMap<u32, Time> = HashMap::new();
        let bytes = ip(4).payload(vec![0; 2_000]).bytes();
        for _ in 0..140_000 {
            rig.wait(interval);
            let Some(first) = rig.push(&bytes).first().map(|bytes| ReadPacket::of(bytes).id) else { continue };
            if let Some(before) = given.insert(first, rig.now) {
                assert!(rig.now.since(before) >= lifetime, "{first} after {:?}", rig.now.since(before));
            }
        }
        assert_eq!(rig.retired(Reason::NoIdentifier) > 0, interval < Duration::from_micros(30));
    }
}

// R076: IPv6 packets do not make IPv4 IDs wrap sooner.
#[test]
fn fast_ipv6_traffic_uses_no_ipv4_identifications() {
    let mut rig = Rig::card(1_500);
    let narrow = whole(4, &[0; 2_000]);
    let first = ReadPacket::of(&rig.push(&narrow)[0]).id;
    // So many address pairs that some share a counter.
    for number in 1..8_192u16 {
        let mut destination = PEER_V6;
        destination[14..].copy_from_slice(&number.to_be_bytes());
        rig.push(&Spec { destination: destination.into(), ..ip(6).payload(vec![0; 2_000]) }.bytes());
        let id = ReadPacket::of(&rig.push(&narrow)[0]).id;
        assert_eq!(id as u16, (first as u16).wrapping_add(number), "one further, and not more");
    }
}

// R078, R079: in transit.
#[test]
fn a_router_never_fragments_df_packets_or_clears_df() {
    for len in (60..3_000).step_by(7) {
        let mut rig = Rig::router(576);
        let bytes = Spec { ip_flags: DF, ..ip(4).payload(pattern(len)) }.bytes();
        let fits = bytes.len() <= 576;
        let wire = rig.push(&bytes);
        assert_eq!(rig.event(Event::Fragmented), 0);
        assert_eq!(rig.retired(Reason::TooBig), u64::from(!fits));
        if fits {
            assert_eq!(wire, [bytes]);
        }
    }
}

// R082
#[test]
fn the_first_fragment_holds_all_headers_of_a_packet() {
    let mut rig = Rig::card(1_280);
    rig.side.sizing.segment = Toggle::Off;
    for options_len in (8..=232).step_by(8) {
        let headers = [extension(HOP_BY_HOP, 24), extension(DESTINATION_OPTIONS, options_len)];
        let (first, mut payload) = chain(&headers, TCP);
        payload.extend(tcp_header());
        payload.extend(pattern(5_000));
        let mut bytes = Spec { protocol: first, ..ip(6).payload(payload) }.bytes();
        bytes[6] = HOP_BY_HOP;
        let wire = rig.push(&bytes);
        assert!(wire.len() >= 4);
        let headers_len = 24 + 8 + options_len + 20;
        assert!(wire[0].len() >= 40 + headers_len);
        let joined = Rig::host().push_all(&wire);
        assert!(joined == [bytes], "{options_len} bytes of options");
    }
}

// R084
#[test]
fn identifications_of_one_pair_do_not_reveal_anothers() {
    let first = |secret: u128, last: u8| {
        let role = Role::Source(Identifiers::new(Secret::new(secret), seconds(2)));
        let mut rig = Rig::new(1_500, role, None);
        let bytes = Spec { destination: with_last(PEER_V6, last).into(), ..ip(6).payload(vec![0; 2_000]) }.bytes();
        ReadPacket::of(&rig.push(&bytes)[0]).id
    };
    let by_secret: BTreeSet<_> = (0..500).map(|secret| first(secret, 1)).collect();
    let by_pair: BTreeSet<_> = (0..=255).map(|last| first(7, last)).collect();
    assert!(by_secret.len() >= 499 && by_pair.len() >= 255);
    let gaps: BTreeSet<_> =
        by_pair.iter().zip(by_pair.iter().skip(1)).map(|(low, high)| (high - low).ilog2()).collect();
    assert!(gaps.len() > 4, "identifications are spread: {gaps:?}");
    // Every bit is set in about half of the IDs.
    for bit in 0..32 {
        let set = by_secret.iter().filter(|id| *id >> bit & 1 == 1).count();
        assert!((150..350).contains(&set), "bit {bit} is set in {set} of 500");
    }
}

// R085
#[test]
fn no_atomic_fragment_is_ever_made() {
    for mtu in (0..1_280).step_by(5).chain([1_279, 1_280, 1_281, 1_500]) {
        let mut rig = Rig::card(mtu);
        for len in [0, 1, 8, 500, 1_232, 1_240] {
            let bytes = whole(6, &pattern(len));
            assert_only(&rig.push(&bytes), &bytes);
        }
    }
    for len in 1_241..1_400 {
        let wire = ReadPacket::all(&Rig::card(1_280).push(&whole(6, &pattern(len))));
        assert_eq!(wire.len(), 2);
    }
}

// R086, R048, R111
#[test]
fn a_router_refuses_long_ipv6_packets_with_the_mtu() {
    for mtu in [1_280u16, 1_281, 1_500, 4_352, 9_000] {
        for longer_by in [-1i32, 0, 1, 500] {
            let mut rig = Rig::router(mtu);
            let bytes = whole(6, &pattern((i32::from(mtu) - 40 + longer_by) as usize));
            let wire = rig.push(&bytes);
            assert_eq!(wire.len(), 1);
            if longer_by <= 0 {
                assert_eq!(wire[0], bytes);
            } else {
                assert_eq!((wire[0][6], wire[0][40], wire[0][41]), (ICMPV6, 2, 0));
                assert_eq!(wire[0][44..48], u32::from(mtu).to_be_bytes());
                assert_eq!((rig.retired(Reason::TooBig), rig.event(Event::IcmpSent)), (1, 1));
            }
        }
    }
}

// R086, R111: a fragment in transit is no exception, whichever headers it lacks.
#[test]
fn long_ipv6_fragments_with_partial_headers_get_packet_too_big() {
    let (first, headers) = chain(&[extension(DESTINATION_OPTIONS, 2_048)], TCP);
    let fragment = Spec { protocol: first, ..ip(6).part(0, &headers[..1_600], true) }.bytes();
    let mut rig = Rig::router(1_500);
    let wire = rig.push(&fragment);
    assert_eq!((wire.len(), wire[0][40]), (1, 2));
    assert_eq!(rig.retired(Reason::TooBig), 1);
}

// R088
#[test]
fn each_fragment_repeats_only_per_hop_headers() {
    let (hop, route, options) =
        (extension(HOP_BY_HOP, 16), extension(ROUTING, 24), extension(DESTINATION_OPTIONS, 8));
    let cases: [(&[&(u8, Vec<u8>)], usize); 7] = [
        (&[], 0),
        (&[&hop], 16),
        (&[&route], 24),
        (&[&hop, &route], 40),
        (&[&hop, &options, &route], 48),
        (&[&hop, &route, &options], 40),
        (&[&options], 0),
    ];
    for (headers, repeated_len) in cases {
        let headers: Vec<_> = headers.iter().copied().cloned().collect();
        let bytes = Spec { extensions: headers, ..ip(6).payload(pattern(4_000)) }.bytes();
        let wire = Rig::card(1_500).push(&bytes);
        for fragment in &wire {
            let fragment_at = 40 + repeated_len;
            // All repeated headers are unchanged, except the lengths and the byte that names the Fragment header.
            let differing: Vec<_> =
                (0..fragment_at).filter(|at| fragment[*at] != bytes[*at] && !(4..6).contains(at)).collect();
            assert_eq!(differing.len(), 1, "{repeated_len}: {differing:?}");
            assert_eq!(fragment[differing[0]], FRAGMENT);
        }
        assert_eq!(Rig::host().push_all(&wire), [bytes]);
    }
}

// R094
#[test]
fn ipv6_identifications_differ_and_use_32_bits() {
    let mut rig = Rig::card(1_500);
    let bytes = whole(6, &[0; 2_000]);
    let ids: Vec<_> = (0..70_000).map(|_| ReadPacket::of(&rig.push(&bytes)[0]).id).collect();
    let distinct: BTreeSet<_> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len());
    let tops: BTreeSet<_> = (0..100u8)
        .map(|last| {
            let bytes = Spec { source: with_last(HOST_V6, last).into(), ..ip(6).payload(vec![0; 2_000]) }.bytes();
            ReadPacket::of(&rig.push(&bytes)[0]).id >> 16
        })
        .collect();
    assert!(tops.len() > 90);
}

// Reassembly.

// R006
#[test]
fn fragments_with_different_keys_are_never_mixed() {
    let ours = ip(4).payload(Vec::new());
    let others = [
        Spec { source: [192, 0, 2, 2].into(), ..ours.clone() },
        Spec { destination: [198, 51, 100, 3].into(), ..ours.clone() },
        Spec { protocol: UDP, ..ours.clone() },
        Spec { id: 0x1235, ..ours.clone() },
    ];
    for other in others {
        let (low, high) = (pattern(64), vec![0xEE; 64]);
        let first = |of: &Spec, payload: &[u8]| of.clone().part(0, payload, true).bytes();
        let last = |of: &Spec, payload: &[u8]| of.clone().part(64, payload, false).bytes();
        let mut rig = Rig::host();
        assert!(rig.push(&first(&ours, &low)).is_empty());
        assert!(rig.push(&first(&other, &high)).is_empty());
        assert_whole(&rig.push(&last(&ours, &low)), &[low.clone(), low.clone()].concat());
        assert_whole(&rig.push(&last(&other, &high)), &[high.clone(), high.clone()].concat());
    }
}

// R006: Wideload's key also contains the VLAN and the port.
#[test]
fn fragments_of_different_vlans_and_ports_are_never_mixed() {
    let frame = |tags: &[u16], bytes: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        tags.iter().for_each(|tag| frame.extend([[0x81, 0], tag.to_be_bytes()].concat()));
        frame.extend([8, 0]);
        frame.extend(bytes);
        frame
    };
    let (first, last) = (fragment(4, 0, &[1; 64], true), fragment(4, 64, &[2; 64], false));
    for tags in [&[1][..], &[2], &[1, 2], &[1, 1], &[1, 2, 3]] {
        let mut rig = Rig { link_type: LinkType::Ethernet, ..Rig::host() };
        rig.push(&frame(&[], &first));
        assert!(rig.push(&frame(tags, &last)).is_empty());
        assert_eq!(rig.push(&frame(&[], &last)).len(), 1);
        assert_eq!(rig.push(&frame(tags, &first)).len(), 1, "behind {tags:?}");
    }
    let mut rig = Rig::host();
    rig.push(&first);
    rig.ingress = Ingress(1);
    assert!(rig.push(&last).is_empty());
    rig.ingress = Ingress(0);
    assert_eq!(rig.push(&last).len(), 1);
}

// R007
#[test]
fn datagrams_of_every_length_are_reassembled() {
    for version in VERSIONS {
        let mut rig = Rig::host();
        let longest = if version == 4 { 65_515 } else { 65_495 };
        for len in (9..1_700).chain((1_700..longest).step_by(971)).chain(longest - 20..=longest) {
            let payload = pattern(len);
            let room = if len < 1_700 { 8 } else { 1_480 };
            assert_whole(&rig.push_all(&fragments(version, &payload, room)), &payload);
        }
        let payload = pattern(longest);
        assert_whole(&rig.push_all(&fragments(version, &payload, 8)), &payload);
    }
}

// R007, R014: an IPv6 length counts the payload alone, so the longest datagram exceeds 65,535 bytes.
#[test]
fn the_longest_ipv6_payload_is_reassembled() {
    let payload = pattern(65_535);
    let mut rig = Rig::host();
    let reassembler = rig.side.aggregation.reassembler.as_mut().unwrap();
    for bytes in fragments(6, &payload, 1_400) {
        let packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
        reassembler.push(Time::ZERO, packet, &mut rig.out);
    }
    let joined = rig.out.next().unwrap();
    assert_eq!(joined.payload(), payload);
    assert_eq!(joined.bytes()[4..6], [0xFF, 0xFF]);
}

// R008, R041, R092: the later copy does not win; the datagram is dropped.
#[test]
fn a_later_copy_of_accepted_bytes_ends_the_datagram() {
    for version in VERSIONS {
        let payload = pattern(64);
        let mut other = payload.clone();
        other[3] ^= 1;
        let mut rig = Rig::host();
        assert!(rig.push(&fragment(version, 0, &payload[..32], true)).is_empty());
        assert!(rig.push(&fragment(version, 0, &other[..32], true)).is_empty());
        assert!(rig.push(&fragment(version, 32, &payload[32..], false)).is_empty());
        assert_eq!((rig.retired(Reason::FragOverlap), rig.retired(Reason::FragPoisoned)), (2, 1));
    }
}

// R009
#[test]
fn a_datagram_has_the_header_of_its_first_fragment() {
    let payload = pattern(64);
    for (first_options, later_options) in [(40, 0), (0, 40), (8, 4)] {
        let first = Spec { ip_options: option(0x83, first_options), ttl: 9, ..ip(4).part(0, &payload[..32], true) };
        let later =
            Spec { ip_options: option(0x83, later_options), ttl: 77, ..ip(4).part(32, &payload[32..], false) };
        let expected = Spec { fragment: None, payload: payload.clone(), ..first.clone() }.bytes();
        for order in [[&first, &later], [&later, &first]] {
            let mut rig = Rig::host();
            let wire: Vec<_> = order.iter().flat_map(|fragment| rig.push(&fragment.bytes())).collect();
            assert_only(&wire, &expected);
        }
    }
}

// R012, R017, R091: the error quotes the fragment at offset 0.
#[test]
fn a_late_datagram_gives_an_icmp_error_only_with_its_first_fragment() {
    for version in VERSIONS {
        let first = fragment(version, 0, &pattern(32), true);
        let second = fragment(version, 32, &pattern(32), true);
        let cases: [(&[&Vec<u8>], u64); 5] = [
            (&[&first], 1),
            (&[&second], 0),
            (&[&first, &second], 1),
            (&[&second, &first], 1),
            (&[&first, &first], 1),
        ];
        for (arrivals, answers) in cases {
            let mut rig = Rig::host();
            assert!(rig.push_all(arrivals.iter().copied()).is_empty());
            let wire = rig.wait(seconds(60));
            assert_eq!((wire.len() as u64, rig.event(Event::IcmpSent)), (answers, answers));
            assert_eq!(rig.retired(Reason::FragLate) + rig.retired(Reason::FragRepeat), arrivals.len() as u64);
            assert_eq!(rig.held(), 0);
            for bytes in wire {
                let (at, kind) = if version == 4 { (20, [11, 1]) } else { (40, [3, 1]) };
                assert_eq!(bytes[at..at + 2], kind);
                assert_eq!(bytes[at + 8..], first);
            }
        }
    }
}

// R013
#[test]
fn every_order_of_arrival_gives_the_same_datagram() {
    let payload = pattern(7 * 16 - 5);
    for version in VERSIONS {
        let parts = fragments(version, &payload, 16);
        let mut rig = Rig::host();
        for order in orders(parts.len()) {
            let wire: Vec<_> = order.iter().flat_map(|index| rig.push(&parts[*index])).collect();
            assert_whole(&wire, &payload);
        }
    }
}

// R014
#[test]
fn datagrams_of_link_and_maximum_length_are_reassembled() {
    for len in [576, 1_500, 9_000, 65_535] {
        let payload = pattern(len - 20);
        assert_whole(&Rig::host().push_all(&fragments(4, &payload, 528)), &payload);
    }
}

// R015
#[test]
fn the_timeout_does_not_depend_on_ttl_or_later_fragments() {
    for ttl in [0, 1, 2, 30, 64, 255] {
        let timeout = Duration::from_secs(7);
        let limits = Limits { bytes: 1 << 20, timeout: Some(timeout) };
        let mut rig = Rig::with_limits(u16::MAX, Role::Transit, Some(Late::Retire), limits);
        rig.push(&Spec { ttl, ..ip(4).part(0, [0; 16], true) }.bytes());
        assert_eq!(rig.side.next_deadline(), Some(Time::ZERO + timeout));
        rig.wait(seconds(6));
        rig.push(&Spec { ttl, ..ip(4).part(32, [0; 16], true) }.bytes());
        assert_eq!(rig.side.next_deadline(), Some(Time::ZERO + timeout));
        rig.wait(Duration::from_nanos(999_999_999));
        assert_eq!(rig.held(), 2);
        rig.wait(Duration::from_nanos(1));
        assert_eq!((rig.held(), rig.retired(Reason::FragLate)), (0, 2));
        assert_eq!(rig.side.next_deadline(), None);
    }
}

// R016, R091
#[test]
fn a_host_waits_30_s_for_ipv4_and_60_s_for_ipv6() {
    for (version, timeout) in [(4, 30), (6, 60)] {
        let mut rig = Rig::host();
        rig.wait(seconds(5));
        rig.push(&fragment(version, 8, &[0; 16], true));
        assert_eq!(rig.side.next_deadline(), Some(Time::ZERO + seconds(5 + timeout)));
    }
}

// R042
#[test]
fn a_ce_mark_survives_or_ends_the_datagram() {
    for version in VERSIONS {
        for count in 1..=4u32 {
            for tuple in 0..4u32.pow(count) {
                let marks: Vec<u8> = (0..count).map(|index| (tuple >> (2 * index) & 3) as u8).collect();
                let mut rig = Rig::host();
                let mut wire = Vec::new();
                for (index, mark) in marks.iter().enumerate() {
                    let (offset, more) = (index * 8, index + 1 < marks.len());
                    let bytes = match version {
                        4 => Spec { tos: 0xB8 | mark, ..ip(4).part(offset, [7; 8], more) }.bytes(),
                        _ => Spec { tos: 0xB8 | mark, ..ip(6).part(offset, [7; 8], more) }.bytes(),
                    };
                    wire.extend(rig.push(&bytes));
                }
                let class = wire.first().map(|bytes| match version {
                    4 => bytes[1],
                    _ => bytes[0] << 4 | bytes[1] >> 4,
                });
                assert_eq!(class, mark_of(&marks).map(|mark| 0xB8 | mark), "{marks:?}");
                assert_eq!(rig.retired(Reason::FragEcnMix) > 0, class.is_none());
            }
        }
    }
}

// R060: an incomplete datagram is dropped before its ID wraps.
#[test]
fn fast_identification_wraps_never_mix_datagrams() {
    let mut rig = Rig::host();
    let tick = Duration::from_micros(15);
    let push = |rig: &mut Rig, id: u16, offset: usize, more: bool| {
        rig.wait(tick);
        rig.push(&Spec { id: id.into(), ..ip(4).part(offset, [0; 8], more) }.bytes())
    };
    for id in 0..20_000u16 {
        push(&mut rig, id, 0, true);
        assert_eq!(push(&mut rig, id, 8, false).len(), 1);
    }
    push(&mut rig, 20_000, 0, true);
    for id in (20_001..=u16::MAX).chain(0..20_000) {
        push(&mut rig, id, 0, true);
        assert_eq!(push(&mut rig, id, 8, false).len(), 1);
    }
    assert!(push(&mut rig, 20_000, 8, false).is_empty(), "the halves of two datagrams make none");
    assert_eq!(rig.retired(Reason::FragLate), 1);
}

// R061: the checksum is carried, not verified.
#[test]
fn a_wrong_transport_checksum_stays_wrong_after_reassembly() {
    let bytes = udp(4).ip_flags(0).payload(pattern(3_000)).sum(Summed::Off(0x5A)).bytes();
    let wire = Rig::router(1_500).push(&bytes);
    assert_eq!(wire.len(), 3);
    assert_eq!(Rig::host().push_all(&wire), [bytes]);
}

// R063
#[test]
fn an_overlap_blocks_its_key_until_the_deadline() {
    for (version, timeout) in [(4, 30), (6, 60)] {
        let payload = pattern(64);
        let mut rig = Rig::host();
        rig.push(&fragment(version, 0, &payload[..32], true));
        rig.wait(seconds(1));
        assert!(rig.push(&fragment(version, 16, &payload[..32], true)).is_empty());
        for _ in 0..2 {
            assert!(rig.push_all(&fragments(version, &payload, 16)).is_empty());
            assert!(rig.wait(seconds(timeout / 2 - 1)).is_empty());
        }
        assert!(rig.wait(seconds(1)).is_empty(), "silently: no error is sent");
        assert_whole(&rig.push_all(&fragments(version, &payload, 16)), &payload);
        assert_eq!((rig.retired(Reason::FragOverlap), rig.retired(Reason::FragPoisoned)), (2, 8));
    }
}

// R068
#[test]
fn fragments_are_not_empty_and_all_but_the_last_are_multiples_of_8() {
    for version in VERSIONS {
        for len in 0..=64 {
            for (offset, more) in [(0, true), (8, true), (8, false)] {
                let mut rig = Rig::host();
                rig.push(&fragment(version, offset, &vec![0; len], more));
                let expected = match len {
                    0 => Some(Reason::FragZeroLen),
                    _ if more && len % 8 != 0 => Some(Reason::FragLenNot8),
                    _ => None,
                };
                assert_eq!(rig.held(), u64::from(expected.is_none()), "{version:?}: {len} at {offset}, {more}");
                if let Some(reason) = expected {
                    assert_eq!(rig.retired(reason), 1);
                }
            }
        }
    }
}

// R069
#[test]
fn no_datagram_ends_past_the_longest_even_when_options_come_late() {
    // The highest offset, with as many bytes as a packet can carry.
    let mut rig = Rig::host();
    rig.push(&ip(4).part(65_528, vec![0; 65_515], false).bytes());
    assert_eq!((rig.retired(Reason::FragOversize), rig.held()), (1, 0));
    for (options_len, last_len, joined) in
        [(0, 15, true), (0, 16, false), (40, 15, false), (4, 11, true), (4, 12, false)]
    {
        let mut rig = Rig::host();
        let (low, last_at) = (1_480, 65_500 / 8 * 8);
        let middle = pattern(last_at - low);
        let mut wire = rig.push(&ip(4).part(last_at, vec![9; last_len + 4], false).bytes());
        for (index, part) in middle.chunks(1_480).enumerate() {
            wire.extend(rig.push(&ip(4).part(low + index * 1_480, part, true).bytes()));
        }
        let first = Spec { ip_options: option(0x83, options_len), ..ip(4).part(0, vec![1; low], true) };
        wire.extend(rig.push(&first.bytes()));
        assert_eq!(wire.len(), usize::from(joined), "{options_len} bytes of options, {last_len} and 4 at the end");
        assert_eq!(rig.retired(Reason::FragOversize) > 0, !joined);
    }
}

// R070, R140
#[test]
fn a_fragment_flood_stays_within_memory_and_delays_no_other_packet() {
    let limits = Limits { bytes: 1 << 20, timeout: None };
    let mut rig = Rig::with_limits(1_500, Role::Transit, Some(Late::Retire), limits);
    let plain = whole(4, &pattern(400));
    for number in 0..20_000u32 {
        let source = [10, (number >> 16) as u8, (number >> 8) as u8, number as u8];
        let flood = Spec { source: source.into(), ..ip(4).part(number as usize % 50 * 8, [0; 8], true) }.bytes();
        assert!(rig.push(&flood).is_empty());
        assert_only(&rig.push(&plain), &plain);
        assert!(rig.side.aggregation.reassembler.as_ref().unwrap().charged() <= limits.bytes);
    }
    assert!(rig.retired(Reason::FragEvicted) > 19_000);
}

// R140, R013
#[test]
fn interleaved_shuffled_datagrams_all_complete() {
    let mut rig = Rig::host();
    let mut frames: Vec<Vec<u8>> = (0..64u16)
        .flat_map(|id| {
            let payload = vec![id as u8; 900];
            let parts = payload.chunks(96).enumerate().map(move |(index, part)| {
                Spec { id: id.into(), ..ip(4).part(index * 96, part, index < 9) }.bytes()
            });
            parts.collect::<Vec<_>>()
        })
        .collect();
    let mut state = 1u64;
    for at in (1..frames.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        frames.swap(at, (state >> 33) as usize % (at + 1));
    }
    let wire = ReadPacket::all(&rig.push_all(&frames));
    assert_eq!(wire.len(), 64);
    for datagram in wire {
        assert_eq!(datagram.body(), vec![datagram.id as u8; 900]);
    }
}

// R071
#[test]
fn an_evicted_datagram_leaves_no_fragment_behind() {
    let limits = Limits { bytes: 8 * BUFFER_LEN, timeout: None };
    let mut rig = Rig::with_limits(u16::MAX, Role::Transit, Some(Late::Retire), limits);
    for id in 0..100u16 {
        for offset in [0, 16, 32] {
            rig.push(&Spec { id: id.into(), ..ip(4).part(offset, [0; 8], true) }.bytes());
        }
        let (held, buffers) = rig.side.aggregation.held();
        assert!(buffers <= 8);
        assert_eq!(held.packets + rig.retired(Reason::FragEvicted), 3 * (u64::from(id) + 1));
        assert_eq!(held.packets, 3 * buffers as u64);
    }
}

// R072: a share for each source, and a reserve for datagrams that came in order.
#[test]
fn a_flood_from_one_source_leaves_the_datagrams_of_others_alone() {
    let limits = Limits { bytes: 64 * BUFFER_LEN, timeout: None };
    let mut rig = Rig::with_limits(u16::MAX, Role::Transit, Some(Late::Retire), limits);
    let mut joined = 0;
    for id in 0..1_000u16 {
        rig.push(&Spec { id: id.into(), ..ip(4).part(0, [0; 8], true) }.bytes());
        for flood in 0..60 {
            let bytes = Spec {
                source: [10, 0, 0, 9].into(),
                id: id.wrapping_mul(60).wrapping_add(flood).into(),
                ..ip(4).part(8, [0; 8], true)
            };
            rig.push(&bytes.bytes());
        }
        joined += rig.push(&Spec { id: id.into(), ..ip(4).part(8, [0; 8], false) }.bytes()).len();
    }
    assert_eq!(joined, 1_000);
}

// R074
#[test]
fn a_later_fragment_with_a_first_fragment_option_is_dropped() {
    let cases: [(&[u8], bool); 8] = [
        (&[7, 3, 4, 0], false),
        (&[0x44, 4, 5, 0], false),
        (&[1, 7, 3, 4], false),
        (&[0x1E, 4, 0, 0], false),
        (&[0x83, 3, 4, 0], true),
        (&[0x94, 4, 0, 0], true),
        (&[1, 1, 1, 1], true),
        (&[0, 0, 0, 0], true),
    ];
    for (options, taken) in cases {
        for offset in [0, 8] {
            let mut rig = Rig::host();
            rig.push(&Spec { ip_options: options.to_vec(), ..ip(4).part(offset, [0; 8], true) }.bytes());
            let taken = taken || offset == 0;
            assert_eq!(
                (rig.held(), rig.retired(Reason::FragOption)),
                (taken.into(), (!taken).into()),
                "{options:?}"
            );
        }
    }
}

// R081
#[test]
fn an_atomic_fragment_passes_at_once_and_changes_no_state() {
    let payload = pattern(64);
    let atomic = vec![0xAA; 61];
    let mut rig = Rig::host();
    assert!(rig.push(&fragment(6, 0, &payload[..32], true)).is_empty());
    assert_whole(&rig.push(&fragment(6, 0, &atomic, false)), &atomic);
    assert_whole(&rig.push(&fragment(6, 32, &payload[32..], false)), &payload);
    // The headers before it are unchanged.
    let front = vec![extension(HOP_BY_HOP, 8), extension(DESTINATION_OPTIONS, 24)];
    let bytes = Spec { extensions: front.clone(), ..ip(6).part(0, &atomic, false) }.bytes();
    assert_eq!(rig.push(&bytes), [Spec { extensions: front, ..ip(6).payload(atomic) }.bytes()]);
    assert_eq!(rig.event(Event::AtomicStripped), 2);
}

// R083
#[test]
fn a_first_fragment_without_all_headers_gives_an_icmp_error() {
    let (first, mut headers) = chain(&[extension(DESTINATION_OPTIONS, 32)], TCP);
    headers.extend(tcp_header());
    for len in (8..=56).step_by(8) {
        let mut payload = headers.clone();
        payload.resize(56, 0);
        payload.truncate(len);
        let bytes = Spec { protocol: first, ..ip(6).part(0, &payload, true) }.bytes();
        let mut rig = Rig::host();
        let wire = rig.push(&bytes);
        let complete = len >= 32 + 20;
        assert_eq!(rig.held(), u64::from(complete), "{len} bytes");
        if !complete {
            assert_eq!(rig.retired(Reason::FragHeadersCut), 1);
            assert_eq!(wire[0][40..42], [4, 3]);
            assert_eq!(wire[0][44..48], [0; 4]);
            assert_eq!(wire[0][48..], bytes);
        }
    }
}

// R089
#[test]
fn an_odd_ipv6_fragment_gives_a_pointer_to_its_payload_length() {
    for len in (1..64).filter(|len| len % 8 != 0) {
        let bytes = fragment(6, 64, &vec![0; len], true);
        let wire = Rig::host().push(&bytes);
        assert_eq!((wire[0][40], wire[0][41]), (4, 0));
        assert_eq!(wire[0][44..48], [0, 0, 0, 4]);
        assert_eq!(wire[0][48..], bytes);
    }
    assert!(Rig::host().push(&fragment(4, 64, &[0; 9], true)).is_empty());
}

// R090
#[test]
fn an_oversize_ipv6_fragment_gives_a_pointer_to_its_offset() {
    for (offset, len, front_len, oversize) in [
        (65_528, 7, 0, false),
        (65_528, 8, 0, true),
        (65_520, 16, 0, true),
        (65_520, 15, 0, false),
        (65_504, 23, 8, false),
        (65_504, 24, 8, true),
        (65_528, 2_000, 0, true),
    ] {
        let front = if front_len > 0 { vec![extension(HOP_BY_HOP, front_len)] } else { Vec::new() };
        let mut rig = Rig::host();
        let wire = rig.push(&Spec { extensions: front, ..ip(6).part(offset, vec![0; len], false) }.bytes());
        assert_eq!(rig.retired(Reason::FragOversize), u64::from(oversize), "{len} at {offset} behind {front_len}");
        assert_eq!(wire.len(), usize::from(oversize));
        if oversize {
            assert_eq!((wire[0][40], wire[0][41]), (4, 0));
            assert_eq!(wire[0][44..48], (42 + front_len as u32).to_be_bytes());
        }
    }
}

// R092
#[test]
fn a_repeat_does_not_end_its_datagram() {
    for version in VERSIONS {
        let payload = pattern(64);
        let mut rig = Rig::host();
        for _ in 0..10 {
            rig.push(&fragment(version, 0, &payload[..32], true));
        }
        assert_eq!((rig.retired(Reason::FragRepeat), rig.held()), (9, 1));
        assert_whole(&rig.push(&fragment(version, 32, &payload[32..], false)), &payload);
    }
}

// R093
#[test]
fn next_header_and_prior_headers_come_from_the_first_fragment() {
    let payload = pattern(64);
    let first = Spec { extensions: vec![extension(HOP_BY_HOP, 8)], ..ip(6).part(0, &payload[..32], true) };
    let later = Spec {
        extensions: vec![extension(HOP_BY_HOP, 24), extension(DESTINATION_OPTIONS, 8)],
        protocol: 59,
        ..ip(6).part(32, &payload[32..], false)
    };
    let expected = Spec { fragment: None, payload, ..first.clone() }.bytes();
    for order in [[&first, &later], [&later, &first]] {
        let mut rig = Rig::host();
        let wire: Vec<_> = order.iter().flat_map(|fragment| rig.push(&fragment.bytes())).collect();
        assert_only(&wire, &expected);
    }
}

// R097
#[test]
fn extension_headers_may_repeat_up_to_our_limit() {
    let parse = |headers: &[(u8, Vec<u8>)]| {
        Ip::parse(&Spec { extensions: headers.to_vec(), ..ip(6).payload(vec![0; 64]) }.bytes())
            .map(|ip| ip.payload_len())
    };
    let eight = |count: usize, len: usize| vec![extension(DESTINATION_OPTIONS, len); count];
    for count in 0..=8 {
        assert!(parse(&eight(count, 8)).is_ok(), "{count} headers");
        assert!(parse(&eight(count, 32)).is_ok(), "{count} headers of 32 bytes");
    }
    assert_eq!(parse(&eight(9, 8)), Err(ParseError::ChainTooLong));
    assert_eq!(parse(&eight(1, 264)), Err(ParseError::ChainTooLong));
    assert!(parse(&eight(1, 256)).is_ok());
    let nested = chain(&[(FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 1]), (FRAGMENT, vec![0; 8])], UDP);
    let bytes = Spec { protocol: nested.0, ..ip(6).payload([nested.1, vec![0; 64]].concat()) }.bytes();
    assert_eq!(Ip::parse(&bytes), Err(ParseError::NestedFragment));
}

// R103
#[test]
fn fragmented_neighbour_discovery_is_dropped_silently() {
    for kind in 0..=255u8 {
        let mut payload = pattern(64);
        (payload[0], payload[1]) = (kind, 0);
        let bytes =
            |offset: usize, part: &[u8], more| Spec { protocol: ICMPV6, ..ip(6).part(offset, part, more) }.bytes();
        let mut rig = Rig::host();
        let mut wire = rig.push(&bytes(32, &payload[32..], false));
        wire.extend(rig.push(&bytes(0, &payload[..32], true)));
        let forbidden = matches!(kind, 133..=137 | 148 | 149);
        assert_eq!(wire.is_empty(), forbidden, "type {kind}");
        assert_eq!(rig.retired(Reason::FragNeighbour) > 0, forbidden);
    }
}

// Duties of a gateway to packets and their senders.

// R011, R021, R035
#[test]
fn fragmentation_needed_quotes_the_packet_and_gives_the_mtu() {
    for mtu in (68..1_500).step_by(13).chain([576, 1_499, 65_535]) {
        for options_len in [0, 40] {
            let len = (usize::from(mtu) + 1).clamp(69, 65_535) - 20 - options_len;
            let bytes =
                Spec { ip_flags: DF, ip_options: option(0x83, options_len), ..ip(4).payload(pattern(len)) }.bytes();
            if bytes.len() <= usize::from(mtu) {
                continue;
            }
            let wire = Rig::router(mtu).push(&bytes);
            let answer = ReadPacket::of(&wire[0]);
            assert_eq!(answer.header()[16..20], HOST_V4);
            assert_eq!(answer.body()[..2], [3, 4]);
            assert_eq!(sum(answer.body()), 0xFFFF);
            assert_eq!(answer.body()[4..8], u32::from(mtu).to_be_bytes());
            assert_eq!(answer.body()[8..], bytes[..bytes.len().min(548)]);
            assert!(answer.ip_len() <= 576);
        }
    }
}

// R019
#[test]
fn a_wrong_header_checksum_ends_a_fragment_before_any_state_is_touched() {
    let bytes = Spec { ip_options: option(0x83, 12), ..ip(4).part(0, pattern(64), true) }.bytes();
    let mut rig = Rig::host();
    for bit in 0..32 * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 0x80 >> (bit % 8);
        rig.push(&wrong);
        assert_eq!((rig.held(), rig.out.pool.in_use_count()), (0, 0), "bit {bit}");
    }
    assert!(rig.out.ledger.passed(Reason::BadHeaderSum).packets > 240);
    assert_eq!(rig.out.ledger.received.packets, 0);
}

// R020, R047
#[test]
fn no_icmp_error_for_ineligible_packets() {
    let long = |payload: Vec<u8>| Spec { ip_flags: DF, ..ip(4).payload(payload) };
    let mut icmp_error = vec![3, 4, 0, 0];
    icmp_error.resize(700, 0);
    let triggers = [
        Spec { protocol: ICMP, ..long(icmp_error) },
        Spec { fragment: Some((8, false)), ..long(vec![0; 700]) },
        Spec { destination: [224, 0, 0, 1].into(), ..long(vec![0; 700]) },
        Spec { destination: [255; 4].into(), ..long(vec![0; 700]) },
        Spec { source: [0; 4].into(), ..long(vec![0; 700]) },
        Spec { source: [127, 0, 0, 1].into(), ..long(vec![0; 700]) },
        Spec { source: [224, 0, 0, 1].into(), ..long(vec![0; 700]) },
        Spec { source: [240, 0, 0, 1].into(), ..long(vec![0; 700]) },
    ];
    for trigger in triggers {
        let mut rig = Rig::router(576);
        assert!(rig.push(&trigger.bytes()).is_empty(), "{trigger:?}");
        assert_eq!((rig.retired(Reason::TooBig), rig.event(Event::IcmpForbidden)), (1, 1));
    }
    let mut redirect = vec![137, 0, 0, 0];
    redirect.resize(1_400, 0);
    let mut unreachable = redirect.clone();
    unreachable[0] = 1;
    for payload in [redirect, unreachable] {
        let mut rig = Rig::router(1_280);
        assert!(rig.push(&Spec { protocol: ICMPV6, ..ip(6).payload(payload) }.bytes()).is_empty());
        assert_eq!(rig.event(Event::IcmpForbidden), 1);
    }
    // Sent to all stations of the link, but to a unicast address.
    for group in [[0xFF; 6], [1, 0, 0x5E, 0, 0, 1]] {
        let bytes = long(vec![0; 700]).bytes();
        let frame = [&group[..], &[2, 0, 0, 0, 0, 2, 8, 0], &bytes].concat();
        let mut rig = Rig { link_type: LinkType::Ethernet, ..Rig::router(576) };
        assert!(rig.push(&frame).is_empty());
        assert_eq!(rig.event(Event::IcmpForbidden), 1);
    }
    // Packet Too Big is sent even about multicast packets, so that their path MTU can be found.
    let mut many = PEER_V6;
    many[..2].copy_from_slice(&[0xFF, 0x0E]);
    let wire = Rig::router(1_280).push(&Spec { destination: many.into(), ..ip(6).payload(vec![0; 1_400]) }.bytes());
    assert_eq!(wire.len(), 1);
}

// R032: none of the five checks can be switched off; each has its counter.
#[test]
fn each_of_the_five_header_checks_has_its_reason() {
    let good = whole(4, &pattern(40));
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let mut pool = Pool::new(1 << 20);
        let no_packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap_err();
        assert_eq!(pool.in_use_count(), 0);
        Reason::from(no_packet)
    };
    assert_eq!(broken(&|bytes| bytes.truncate(19)), Reason::Truncated);
    assert_eq!(broken(&|bytes| bytes[10] ^= 1), Reason::BadHeaderSum);
    assert_eq!(broken(&|bytes| bytes[0] = 0x55), Reason::BadVersion);
    assert_eq!(broken(&|bytes| bytes[0] = 0x44), Reason::BadHeaderLen);
    assert_eq!(broken(&|bytes| resum(bytes, 2, 19)), Reason::BadTotalLen);
    assert_eq!(broken(&|bytes| resum(bytes, 2, 61)), Reason::Truncated);
}

// R033
#[test]
fn link_padding_never_becomes_payload() {
    for version in VERSIONS {
        let payload = pattern(12);
        let mut rig = Rig { link_type: LinkType::Ethernet, ..Rig::host() };
        let mut wire = Vec::new();
        for bytes in fragments(version, &payload, 8) {
            let ether_type = if version == 4 { [8, 0] } else { [0x86, 0xDD] };
            let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ether_type, &bytes].concat();
            frame.resize(90, 0xEE);
            wire.extend(rig.push(&frame));
        }
        assert_eq!(wire.len(), 1);
        assert_whole(&[wire[0][14..].to_vec()], &payload);
    }
    // A fragment with length 0 is not from an offloading sender: the start of its padding is unknown.
    let mut bytes = Spec { protocol: UDP, ..ip(4).part(8, pattern(16), true) }.bytes();
    resum(&mut bytes, 2, 0);
    assert_eq!(Ip::parse(&bytes), Err(ParseError::BadTotalLen));
}

// rel:A53, and the first law: bytes behind a packet are no reason for a frame that exceeds the MTU.
#[test]
fn a_trailer_is_removed_from_frames_longer_than_the_mtu() {
    for version in VERSIONS {
        let bytes = whole(version, &pattern(100));
        let mut frame = bytes.clone();
        frame.resize(1_501, 0xEE);
        assert_only(&Rig::router(1_500).push(&frame), &bytes);
        frame.truncate(1_500);
        assert_only(&Rig::router(1_500).push(&frame), &frame);
    }
}

// R036
#[test]
fn an_icmp_error_has_the_routers_address() {
    for version in VERSIONS {
        let wire = match version {
            4 => Rig::router(576).push(&Spec { ip_flags: DF, ..ip(4).payload(vec![0; 700]) }.bytes()),
            _ => Rig::router(1_280).push(&whole(version, &[0; 1_400])),
        };
        match version {
            4 => assert_eq!(wire[0][12..16], ROUTER_V4),
            _ => assert_eq!(wire[0][8..24], ROUTER_V6),
        }
    }
}

// R037
#[test]
fn icmp_errors_are_rate_limited_with_jitter() {
    let counts: BTreeSet<u64> = (0..64)
        .map(|seed| {
            let answers = IcmpResponder::new([ROUTER_V4.into(), ROUTER_V6.into()], 100, 10, Secret::new(seed));
            let mut rig = Rig { out: Output::new(Pool::new(1 << 20), Some(answers)), ..Rig::router(576) };
            let bytes = Spec { ip_flags: DF, ..ip(4).payload(vec![0; 700]) }.bytes();
            for _ in 0..50_000 {
                rig.push(&bytes);
                rig.wait(Duration::from_micros(100));
            }
            let (sent, held_back) = (rig.event(Event::IcmpSent), rig.event(Event::IcmpRateLimited));
            assert_eq!(sent + held_back, 50_000);
            assert!((400..=5 * 100 + 10).contains(&sent), "{sent} in five seconds");
            sent
        })
        .collect();
    assert!(counts.len() > 3, "the jitter shows: {counts:?}");
}

// R037, rel:A31: the number of errors that one host causes at once does not depend on another host's.
#[test]
fn one_hosts_icmp_errors_reveal_nothing_about_another() {
    let bytes =
        |from: u8| Spec { source: [192, 0, 2, from].into(), ip_flags: DF, ..ip(4).payload(vec![0; 700]) }.bytes();
    for seed in 0..64 {
        for others in [0, 5, 50] {
            let answers = IcmpResponder::new([ROUTER_V4.into(), ROUTER_V6.into()], 100, 40, Secret::new(seed));
            let mut rig = Rig { out: Output::new(Pool::new(1 << 20), Some(answers)), ..Rig::router(576) };
            (0..others).for_each(|_| drop(rig.push(&bytes(77))));
            let drawn: usize = (0..100).map(|_| rig.push(&bytes(99)).len()).sum();
            assert!((8..=10).contains(&drawn), "seed {seed}: {drawn} of 100 behind {others} of another");
        }
    }
}

// R037: the smallest bucket still holds one token.
#[test]
fn a_bucket_of_one_token_allows_one_error_at_a_time() {
    let answers = IcmpResponder::new([ROUTER_V4.into(), ROUTER_V6.into()], 10, 1, secret());
    let mut rig = Rig { out: Output::new(Pool::new(1 << 20), Some(answers)), ..Rig::router(576) };
    let bytes = Spec { ip_flags: DF, ..ip(4).payload(vec![0; 700]) }.bytes();
    for _ in 0..20 {
        assert_eq!(rig.push(&bytes).len(), 1);
        assert!(rig.push(&bytes).is_empty());
        rig.wait(Duration::from_millis(125));
    }
}

// R046
#[test]
fn an_ipv6_error_quotes_as_much_as_1280_bytes_hold() {
    for len in (1_250..1_300).chain([1_500, 9_000, 65_000]) {
        let bytes = whole(6, &pattern(len));
        let wire = Rig::router(1_280).push(&bytes);
        if bytes.len() > 1_280 {
            assert_eq!(wire[0].len(), 1_280);
            assert_eq!(wire[0][48..], bytes[..1_232]);
        }
    }
}

// R051, R111
#[test]
fn no_packet_exceeds_the_mtu_and_size_drops_give_errors() {
    for version in VERSIONS {
        let mut rig = Rig::router(1_400);
        for len in 1..3_000 {
            let bytes = match version {
                4 => Spec { ip_flags: if len % 2 == 0 { DF } else { 0 }, ..ip(4).payload(vec![0; len]) }.bytes(),
                _ => whole(version, &vec![0; len]),
            };
            assert!(rig.push(&bytes).iter().all(|bytes| bytes.len() <= 1_400));
            rig.wait(Duration::from_millis(1));
        }
        let told = rig.event(Event::IcmpSent) + rig.event(Event::IcmpRateLimited);
        assert_eq!(rig.retired(Reason::TooBig), told);
        assert!(told > 700);
    }
}

// R080
#[test]
fn datagrams_keep_identifications_and_new_ones_get_unused_ones() {
    let parts = fragments(4, &pattern(4_000), 1_480);
    let mut router = Rig::new(1_000, Role::Transit, Some(Late::Retire));
    let again = ReadPacket::all(&router.push_all(&parts));
    assert!(again.len() == 5 && again.iter().all(|fragment| fragment.id == 0x1234));
    // A source assigns all IDs itself, because a kept ID could equal an assigned ID.
    let mut rig = Rig::new(1_000, Role::Source(identifiers()), Some(Late::Retire));
    let ours = ReadPacket::all(&rig.push_all(&parts));
    assert!(ours.len() == 5 && ours.iter().all(|fragment| fragment.id == ours[0].id));
    let fresh: Vec<u32> = (0..50).map(|_| ReadPacket::of(&rig.push(&whole(4, &pattern(4_000)))[0]).id).collect();
    let distinct: BTreeSet<_> = fresh.iter().chain([&ours[0].id]).collect();
    assert_eq!(distinct.len(), 51);
}

// R095
#[test]
fn packets_of_1280_bytes_pass_any_ipv6_link() {
    let bytes = whole(6, &pattern(1_240));
    for mtu in [1_280, 1_500] {
        assert_only(&Rig::router(mtu).push(&bytes), &bytes);
    }
    let mut rig = Rig::router(1_279);
    assert_eq!(rig.push(&bytes), [bytes]);
    assert_eq!(rig.event(Event::LeftOversize), 1);
}

// The tables themselves.

#[test]
fn every_row_is_covered_absent_or_waiting() {
    let cited = cited_ids();
    let [departures, _] = deviations();
    for row in rows() {
        let is_covered = cited.contains_key(&row.id) || departures.contains(&row.id);
        let of = [row.applies.as_str(), row.component.as_str()];
        let is_known = of.iter().any(|word| ABSENT.contains(word) || WAITING.contains(word));
        assert!(is_covered || is_known, "{} ({}) is nowhere; see planted/standards.py", row.id, row.requirement);
    }
}

#[test]
fn every_paper_id_is_cited_or_listed_as_uncited() {
    let page = read("docs/PAPERS.md");
    let (_, open) = page.split_once("\n## What nothing cites\n").expect("PAPERS.md has the section");
    let named: BTreeSet<String> = ids_in(open).into_iter().collect();
    let cited = cited_ids();
    let [departures, _] = deviations();
    for id in table_column(&page, 0).into_iter().map(|id| id.trim_matches('`').to_string()) {
        let leads_somewhere = cited.contains_key(&id) || departures.iter().any(|it| it.trim_matches('`') == id);
        assert!(leads_somewhere || named.contains(&id), "{id}: no code cites it, and PAPERS.md does not say so");
    }
}

#[test]
fn every_cited_id_exists() {
    let rows: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
    let papers: BTreeSet<String> =
        table_column(&read("docs/PAPERS.md"), 0).into_iter().map(|id| id.trim_matches('`').to_string()).collect();
    for (id, place) in cited_ids() {
        let known = if is_row_id(&id) { rows.contains(&id) } else { papers.contains(&id) };
        assert!(known, "{} cites {id}, which leads nowhere", place.display());
    }
}

// R110
#[test]
fn documented_departures_match_the_tests() {
    let papers: BTreeSet<String> =
        table_column(&read("docs/PAPERS.md"), 0).into_iter().map(|id| id.trim_matches('`').to_string()).collect();
    let [departures, _] = deviations();
    let (of_rows, of_papers): (Vec<_>, Vec<_>) = departures.into_iter().partition(|id| is_row_id(id));
    let departs = |row: &Row| matches!(row.applies.as_str(), "deviation" | "conflict");
    assert_same_rows(of_rows, departs, "departs from the standard");
    for id in of_papers {
        assert!(papers.contains(id.trim_matches('`')), "DEVIATIONS.md: no {id}");
    }
}

#[test]
fn documented_gaps_match_the_rows() {
    let tested = tested_ids();
    let [_, waiting] = deviations();
    let waits = |row: &Row| {
        let of = [row.applies.as_str(), row.component.as_str()];
        of.iter().any(|word| WAITING.contains(word))
            && !of.iter().any(|word| ABSENT.contains(word))
            && !tested.contains(&row.id)
    };
    assert_same_rows(waiting, waits, "is not kept yet");
}

/// Checks that `written` holds, each once, the ids of the rows for which `holds` is true.
#[track_caller]
fn assert_same_rows(mut written: Vec<String>, holds: impl Fn(&Row) -> bool, what: &str) {
    written.sort();
    for pair in written.windows(2) {
        assert_ne!(pair[0], pair[1], "DEVIATIONS.md has it twice");
    }
    for row in rows() {
        let is_written = written.contains(&row.id);
        let Row { id, requirement, applies, .. } = &row;
        assert_eq!(
            is_written,
            holds(&row),
            "{id} ({requirement}): DEVIATIONS.md {} that it {what}; STANDARDS.tsv: {applies}",
            if is_written { "says" } else { "does not say" }
        );
    }
    let rows: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
    written.iter().for_each(|id| assert!(rows.contains(id), "DEVIATIONS.md: no {id}"));
}

/// The ids of both tables of DEVIATIONS.md: the deviations, and the rows that are not implemented yet.
fn deviations() -> [Vec<String>; 2] {
    let page = read("docs/DEVIATIONS.md");
    let (departures, waiting) =
        page.split_once("\n## What is not there yet\n").expect("DEVIATIONS.md has the section");
    [departures, waiting].map(|part| table_column(part, 0))
}

// Helpers.

/// One row of the table of standards.
struct Row {
    id: String,
    requirement: String,
    component: String,
    applies: String,
}

fn rows() -> Vec<Row> {
    let table = read("docs/STANDARDS.tsv");
    let rows = table.lines().skip(1).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, requirement, _, component, _, applies] = columns[..] else { panic!("six columns: {line}") };
        Row { id: id.into(), requirement: requirement.into(), component: component.into(), applies: applies.into() }
    });
    rows.collect()
}

/// The ids that comments cite, each with a file that cites it.
fn cited_ids() -> HashMap<String, PathBuf> {
    let mut cited = HashMap::new();
    each_citation(|id, file, _| {
        cited.entry(id).or_insert_with(|| file.to_owned());
    });
    cited
}

/// The ids that comments of tests cite.
fn tested_ids() -> BTreeSet<String> {
    let mut tested = BTreeSet::new();
    each_citation(|id, _, is_in_test| {
        if is_in_test {
            tested.insert(id);
        }
    });
    tested
}

/// Calls `tell` with each id that a comment cites, the file, and whether it is in a test.
fn each_citation(mut tell: impl FnMut(String, &Path, bool)) {
    for crate_entry in fs::read_dir(root().join("crates")).unwrap() {
        for part in ["src", "tests"] {
            let mut files = Vec::new();
            rust_files(&crate_entry.as_ref().unwrap().path().join(part), &mut files);
            for file in files {
                let text = fs::read_to_string(&file).unwrap();
                let mut is_in_test = part == "tests";
                for line in text.lines() {
                    is_in_test |= line.starts_with("#[cfg(test)]");
                    let Some((_, comment)) = line.split_once("//") else { continue };
                    ids_in(comment).into_iter().for_each(|id| tell(id, &file, is_in_test));
                }
            }
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The words of a comment that have the form of an id.
fn ids_in(comment: &str) -> Vec<String> {
    let words = comment.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != ':');
    words
        .map(|word| word.trim_matches(':'))
        .filter(|word| is_row_id(word) || is_paper_id(word))
        .map(Into::into)
        .collect()
}

fn is_row_id(word: &str) -> bool {
    word.strip_prefix('R').is_some_and(|digits| digits.len() == 3 && is_number(digits))
}

fn is_paper_id(word: &str) -> bool {
    if let Some(word) = word.strip_prefix("rel:") {
        return word.strip_prefix(['G', 'A', 'C']).is_some_and(is_number);
    }
    let result = word.strip_prefix(['g', 'm', 'k', 'l', 'c']).and_then(|word| word.strip_prefix('B'));
    word.strip_prefix(['G', 'M', 'K', 'L', 'C', 'X']).or(result).is_some_and(is_number)
}

fn is_number(word: &str) -> bool {
    (1..=3).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The ids in the first column of a page's tables; a cell may hold several.
fn table_column(page: &str, column: usize) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let cells = rows.filter_map(|line| line.split('|').nth(column + 1));
    cells
        .flat_map(|cell| cell.split(", "))
        .map(|id| id.trim().to_string())
        .filter(|id| {
            let id = id.trim_matches('`');
            is_row_id(id) || is_paper_id(id)
        })
        .collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks that a datagram's fragments are the fewest possible, with equal headers.
#[track_caller]
fn assert_fewest(wire: &[ReadPacket], payload: &[u8], mtu: usize, room: usize) {
    assert!(wire.iter().all(|fragment| fragment.ip_len() <= mtu));
    let count = if payload.len() <= room { 1 } else { (payload.len() - room).div_ceil(room / 8 * 8) + 1 };
    assert_eq!(wire.len(), count, "{} bytes at {mtu}", payload.len());
    let mut at = 0;
    for (index, fragment) in wire.iter().enumerate() {
        let last = index + 1 == count;
        assert_eq!((fragment.offset(), fragment.more()), (at, !last));
        assert!(last || !fragment.body().is_empty() && fragment.body().len().is_multiple_of(8));
        assert_eq!(fragment.id, wire[0].id);
        at += fragment.body().len();
    }
    assert_eq!(laid_out(wire), payload);
}

/// The payload of fragments, each at its offset; holes are zero.
fn laid_out(wire: &[ReadPacket]) -> Vec<u8> {
    let end = wire.iter().map(|fragment| fragment.offset() + fragment.body().len()).max().unwrap_or(0);
    let mut payload = vec![0; end];
    for fragment in wire {
        payload[fragment.offset()..fragment.offset() + fragment.body().len()].copy_from_slice(fragment.body());
    }
    payload
}

/// One option of this kind that fills `len` bytes, or none.
fn option(kind: u8, len: usize) -> Vec<u8> {
    let mut option = vec![0; len];
    if len > 0 {
        (option[0], option[1]) = (kind, len as u8);
    }
    option
}

/// The ECN mark of a datagram whose fragments have these marks (RFC 3168 section 5.3). The first fragment's mark counts
/// if they differ only in the ECT codepoint.
fn mark_of(marks: &[u8]) -> Option<u8> {
    let (not_ect, ce) = (marks.contains(&0), marks.contains(&3));
    match (not_ect, ce) {
        (true, _) if marks.iter().all(|mark| *mark == 0) => Some(0),
        (true, _) => None,
        (false, true) => Some(3),
        (false, false) => Some(marks[0]),
    }
}

/// Writes a word into an IPv4 header of 20 bytes, and updates its checksum.
fn resum(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    bytes[10..12].fill(0);
    let sum = !sum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn tcp_header() -> Vec<u8> {
    let mut header = vec![0; 20];
    header[12] = 0x50;
    header
}

fn with_last(mut address: [u8; 16], last: u8) -> [u8; 16] {
    address[15] = last;
    address
}

/// Components that this program does not have.
const ABSENT: [&str; 3] = ["tunnel-mode", "optional", "endpoint"];
/// Components that do not exist yet: limits of messages, and acknowledgements of our own.
const WAITING: [&str; 2] = ["sizing", "ack-gen"];
/// Memory of a buffer of the smallest class: headroom, content, a bit for each eight bytes.
const BUFFER_LEN: usize = HEADROOM + CLASS_LENS[0] + CLASS_LENS[0] / 64;
