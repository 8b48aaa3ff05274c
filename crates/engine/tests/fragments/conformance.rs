//! Cases of other stacks' test suites for fragmentation and reassembly, as tables, with our verdicts.
//!
//! The cases are those of the other suites. The words and the packets are Wideload's. Where Wideload's verdict
//! differs, the table names the rule. The last lines of this file explain these rules.

#![allow(clippy::type_complexity, reason = "a table's type is its columns")]

use crate::rig::*;
use Bytes::{Dummy, Real};
use Verdict::{Nothing, Whole};
use proptest::prelude::*;
use std::time::Duration;
use wideload_engine::packet::{Content, Fragmentation, Frame, Ingress, LinkType, Pool, Split};
use wideload_engine::{Event, Late, Limits, Reason, Role, WirePackets};

// OpenBSD, regress/sys/netinet/frag and frag6.
#[test]
fn openbsd_fragment_sets_give_the_expected_results() {
    let both = |fragments: &[Part], verdict, theirs| (fragments.to_vec(), VERSIONS.to_vec(), verdict, theirs);
    let one = |version, fragments: &[Part], verdict, theirs| (fragments.to_vec(), vec![version], verdict, theirs);
    let mid_dummy = Part(8, 16, true, Dummy);
    let table = [
        ("basic", both(&[Part(0, 16, true, Real), Part(16, 8, false, Real)], Whole(24), SAME)),
        (
            "maxpacket",
            both(
                &[Part(0, 16, true, Real), Part(65_528, 8, false, Real), Part(16, 8, false, Real)],
                Whole(24),
                "version 6 alike; version 4 not in their set",
            ),
        ),
        (
            "maxpacket0",
            both(
                &[Part(65_528, 8, false, Real), Part(0, 16, true, Real), Part(16, 8, false, Real)],
                Whole(24),
                "version 6 alike; version 4 not in their set",
            ),
        ),
        (
            "mf0long",
            both(&[Part(8, 16, false, Real), Part(16, 16, false, Dummy), Part(0, 8, true, Real)], Nothing, OVERLAP),
        ),
        (
            "mf0middle",
            both(&[Part(0, 16, true, Real), Part(8, 8, false, Dummy), Part(16, 8, false, Real)], Nothing, OVERLAP),
        ),
        (
            "mf0short",
            one(
                4,
                &[Part(16, 16, false, Real), Part(8, 16, false, Dummy), Part(0, 16, true, Real)],
                Nothing,
                OVERLAP,
            ),
        ),
        (
            "mf0short",
            one(6, &[Part(8, 16, false, Real), Part(8, 8, false, Real), Part(0, 8, true, Real)], Whole(24), REPEAT),
        ),
        ("mf1end", one(4, &[Part(16, 8, false, Real), mid_dummy, Part(0, 16, true, Real)], Nothing, OVERLAP)),
        (
            "mf1end",
            one(6, &[Part(8, 16, false, Real), Part(16, 8, true, Real), Part(0, 8, true, Real)], Whole(24), REPEAT),
        ),
        (
            "overhead",
            both(&[Part(0, 8, true, Real), Part(8, 8, true, Real), Part(8, 16, false, Dummy)], Nothing, OVERLAP),
        ),
        ("overhead0", both(&[Part(0, 16, true, Real), Part(8, 16, false, Dummy)], Nothing, OVERLAP)),
        (
            "overhead1",
            both(&[Part(0, 16, true, Real), Part(8, 8, true, Dummy), Part(16, 8, false, Real)], Nothing, OVERLAP),
        ),
        (
            "overhead1, equal bytes",
            both(&[Part(0, 16, true, Real), Part(8, 8, true, Real), Part(16, 8, false, Real)], Whole(24), REPEAT),
        ),
        (
            "overtail",
            both(&[Part(16, 8, false, Real), Part(8, 8, true, Dummy), Part(0, 16, true, Real)], Nothing, OVERLAP),
        ),
        ("overtail", both(&[Part(16, 8, false, Real), mid_dummy, Part(0, 16, true, Real)], Nothing, OVERLAP)),
        ("overtail0", both(&[Part(8, 16, false, Real), Part(0, 16, true, Real)], Nothing, OVERLAP)),
        (
            "overtail1",
            both(&[Part(8, 16, false, Real), Part(8, 8, true, Real), Part(0, 8, true, Real)], Whole(24), REPEAT),
        ),
        (
            "overdrop",
            both(
                &[
                    Part(0, 16, true, Real),
                    Part(8, 16, false, Dummy),
                    Part(0, 8, true, Real),
                    Part(8, 8, true, Real),
                    Part(16, 8, false, Real),
                ],
                Nothing,
                POISON,
            ),
        ),
        (
            "zerofirst",
            both(&[Part(0, 0, true, Real), Part(0, 16, true, Real), Part(16, 8, false, Real)], Whole(24), SAME),
        ),
        (
            "zerosecond",
            both(&[Part(0, 16, true, Real), Part(0, 0, true, Real), Part(16, 8, false, Real)], Whole(24), SAME),
        ),
        (
            "overindex",
            both(&with(row(63, 64, 64 * 63), &[(4_088, 16, false), (4_032, 64, true)]), Nothing, OVERLAP),
        ),
        (
            "overreplace",
            both(
                &with(row(3, 1_024, 3_072), &[(4_088, 16, true), (3_072, 1_024, true), (4_096, 1_024, false)]),
                Nothing,
                OVERLAP,
            ),
        ),
        ("queuelimit, 64", both(&row(64, 8, 64 * 8 - 3), Whole(64 * 8 - 3), SAME)),
        ("queuelimit, 65", both(&row(65, 8, 65 * 8 - 3), Whole(65 * 8 - 3), NO_CAP)),
        ("udpheader", both(&[Part(0, 8, true, Real), Part(8, 16, false, Real)], Whole(24), SAME)),
        ("udppayload", both(&[Part(0, 16, true, Real), Part(16, 8, false, Real)], Whole(24), SAME)),
    ];
    for (name, (fragments, versions, verdict, theirs)) in table {
        for version in versions {
            assert_eq!(judge(version, &fragments), verdict, "{name} in {version:?}; others: {theirs}");
        }
    }
}

// OpenBSD: permute and maxlen.
#[test]
fn three_fragments_complete_in_every_order() {
    let parts = [Part(0, 8, true, Real), Part(8, 8, true, Real), Part(16, 8, false, Real)];
    for version in VERSIONS {
        for order in orders(3) {
            let shuffled: Vec<Part> = order.iter().map(|index| parts[*index]).collect();
            assert_eq!(judge(version, &shuffled), Whole(24));
        }
        let longest: usize = if version == 4 { 65_515 } else { 65_495 };
        let mut parts = row(longest.div_ceil(424), 424, longest);
        for index in 0..parts.len() {
            parts.swap(index, index * 7_919 % (index + 1));
        }
        assert_eq!(judge(version, &parts), Whole(longest));
    }
}

// OpenBSD: timeout. Six fragments, fifteen seconds apart.
#[test]
fn a_datagram_slower_than_the_timeout_never_completes() {
    for version in VERSIONS {
        let mut rig = Rig::host();
        for (index, bytes) in fragments(version, &pattern(48), 8).iter().enumerate() {
            let answers = rig.wait(seconds(if index == 0 { 0 } else { 15 }));
            assert!(answers.len() <= 1, "an error about the first piece, and no datagram");
            assert!(rig.push(bytes).is_empty());
        }
    }
}

// OpenBSD: overatomic, mf0atomic, shortatomic, udpatomic; VPP: one fragment, bunch; gVisor: atomic between two.
#[test]
fn an_atomic_fragment_passes_a_held_datagram_with_its_identification() {
    let (real, atomic) = (pattern(24), vec![0x5A; 17]);
    let held: [&[Part]; 4] = [
        &[Part(8, 16, false, Dummy)],
        &[Part(0, 16, true, Real)],
        &[Part(0, 16, true, Real), Part(8, 16, true, Dummy)],
        &[],
    ];
    for parts in held {
        let mut rig = Rig::host();
        for part in parts {
            rig.push(&part.bytes(6));
        }
        assert_whole(&rig.push(&fragment(6, 0, &atomic, false)), &atomic);
    }
    let mut rig = Rig::host();
    for _ in 0..604 {
        assert!(rig.push(&fragment(6, 608 * 8, &pattern(308), false)).is_empty());
    }
    assert_whole(&rig.push(&fragment(6, 0, &real, false)), &real);
    assert_eq!((rig.retired(Reason::FragRepeat), rig.held()), (603, 1));
}

// OpenBSD: opt, ext, ext2long, hop.
#[test]
fn headers_inside_and_before_the_payload_are_those_of_the_first_fragment() {
    // An option in the first piece of version 4.
    let payload = pattern(24);
    let first = Spec { ip_options: vec![1, 1, 1, 0], ..ip(4).part(0, &payload[..16], true) };
    let wire = Rig::host().push_all(&[first.bytes(), ip(4).part(16, &payload[16..], false).bytes()]);
    assert_eq!(wire, [Spec { ip_options: vec![1, 1, 1, 0], ..ip(4).payload(payload.clone()) }.bytes()]);
    // Destination options spread over both fragments: they accept them, RFC 7112 section 5 (R083) does not.
    let (kind, options) = chain(&[extension(DESTINATION_OPTIONS, 24)], EXPERIMENT);
    let fragmentable = [options, pattern(24)].concat();
    let part = |offset: usize, end: usize, more| {
        Spec { protocol: kind, ..ip(6).part(offset, &fragmentable[offset..end], more) }.bytes()
    };
    let mut rig = Rig::host();
    rig.push(&part(0, 8, true));
    rig.push(&part(8, 48, false));
    assert_eq!(rig.retired(Reason::FragHeadersCut), 1);
    // Complete in the first fragment they are accepted.
    let wire = Rig::host().push_all(&[part(0, 32, true), part(32, 48, false)]);
    assert_eq!(wire.len(), 1);
    // Hop-by-Hop options behind a Fragment header, where they are not allowed (RFC 8200 section 4.1). They drop the
    // datagram after reassembly. Here the fragments pass unchanged, in any order, and also a single one. Without
    // the Fragment header the options would stand in an allowed place.
    let (kind, hop) = chain(&[extension(HOP_BY_HOP, 8)], EXPERIMENT);
    let bytes = [hop, pattern(16)].concat();
    let part = |offset: usize, end: usize, more| {
        Spec { protocol: kind, ..ip(6).part(offset, &bytes[offset..end], more) }.bytes()
    };
    let (first, last) = (part(0, 16, true), part(16, 24, false));
    for fragments in [vec![first.clone(), last.clone()], vec![last, first.clone()], vec![part(0, 24, false)]] {
        let mut rig = Rig::host();
        assert_eq!(rig.push_all(&fragments), fragments);
        assert_eq!(rig.out.ledger.passed(Reason::HopByHopMisplaced).packets, fragments.len() as u64);
    }
    // If only the first fragment names them, the others time out.
    let mut rig = Rig::host();
    let other = Spec { protocol: EXPERIMENT, ..ip(6).part(16, &bytes[16..], false) }.bytes();
    assert_eq!(rig.push_all(&[other, first.clone()]), [first]);
}

// OpenBSD: refrag; VPP: fragments of 400 bytes fragmented again to 200.
#[test]
fn small_fragments_leave_as_the_fewest_fragments() {
    let payload = pattern(1_608);
    let mut rig = Rig::new(1_500, Role::Source(identifiers()), Some(Late::Retire));
    let wire = rig.push_all(&fragments(4, &payload, 32));
    let places: Vec<_> = ReadPacket::all(&wire).iter().map(ReadPacket::place).collect();
    assert_eq!(places, [(0, 1_480, true), (1_480, 128, false)]);
    for len in [64, 512, 1_518, 9_018] {
        let bytes = whole(4, &pattern(len));
        let narrow = Rig::router(200).push_all(&Rig::router(400).push(&bytes));
        assert_eq!(Rig::host().push_all(narrow.iter().rev()), [bytes]);
    }
}

// FreeBSD, tests/sys/netinet6/frag6 and netpfil/pf.
#[test]
fn freebsd_fragment_sets_give_the_expected_results() {
    let table: [(&str, Vec<Part>, Verdict, &str); 10] = [
        ("02 length not of eights", vec![Part(0, 1_295, true, Real)], Nothing, SAME),
        ("10 and 11 only later pieces", vec![Part(8, 8, true, Real), Part(16, 8, false, Real)], Nothing, SAME),
        (
            "14 exact repeat",
            vec![Part(0, 80, true, Real), Part(0, 80, true, Real), Part(80, 8, false, Real)],
            Whole(88),
            SAME,
        ),
        ("14 overlap by eight", vec![Part(0, 80, true, Real), Part(72, 16, false, Real)], Nothing, SAME),
        ("15 a fourth piece", row(4, 8, 32), Whole(32), NO_CAP),
        ("16 thirty pieces", row(30, 1_304, 38_408), Whole(38_408), SAME),
        (
            "07 the end past 65,535",
            vec![Part(0, 16, true, Real), Part(65_528, 1_288, true, Real), Part(16, 8, false, Real)],
            Whole(24),
            SAME,
        ),
        (
            "pf, adjacent hole",
            vec![
                Part(0, 16, true, Real),
                Part(16, 16, true, Real),
                Part(8, 8, true, Real),
                Part(32, 8, false, Real),
            ],
            Whole(40),
            SAME,
        ),
        (
            "pf, overlap in version 6",
            vec![Part(0, 16, true, Real), Part(16, 24, true, Real), Part(32, 16, true, Real)],
            Nothing,
            SAME,
        ),
        ("pf, a lone later piece", vec![Part(984, 16, false, Real)], Nothing, SAME),
    ];
    for (name, parts, verdict, theirs) in table {
        for version in VERSIONS {
            assert_eq!(judge(version, &parts), verdict, "{name} in {version:?}; others: {theirs}");
        }
    }
    // 20: a repeat of the first fragment behind more headers does not change the held ones.
    let payload = pattern(48);
    let first = Spec { extensions: vec![extension(HOP_BY_HOP, 8)], ..ip(6).part(0, &payload[..32], true) };
    let longer = Spec { extensions: vec![extension(HOP_BY_HOP, 24)], ..first.clone() };
    let wire = Rig::host().push_all(&[first.bytes(), longer.bytes(), fragment(6, 32, &payload[32..], false)]);
    assert_eq!(wire, [Spec { fragment: None, payload, ..first }.bytes()]);
    // 08: the late first fragment has headers that push the end past the limit.
    let mut rig = Rig::host();
    rig.push(&fragment(6, 65_504, &pattern(31), false));
    let first = Spec { extensions: vec![extension(HOP_BY_HOP, 8)], ..ip(6).part(0, pattern(32), true) };
    rig.push(&first.bytes());
    assert_eq!((rig.retired(Reason::FragOversize), rig.held()), (2, 0));
}

// FreeBSD: 18.
proptest! {
    #[test]
    fn random_fragments_of_one_identification_never_break_a_law(
        parts in prop::collection::vec((0usize..64, 0usize..40, any::<bool>(), any::<bool>()), 1..127),
    ) {
        for version in VERSIONS {
            let mut rig = Rig::host();
            for (unit, len, more, real) in &parts {
                let part = Part(unit * 8, *len, *more, if *real { Real } else { Dummy });
                rig.push(&part.bytes(version));
            }
            rig.flush();
            prop_assert_eq!(rig.held(), 0);
        }
    }
}

// gVisor, reassembler_test.go: ranges in units of eight bytes. Later fragments complete the datagram and show which
// ones were held.
#[test]
fn holes_match_gvisor_except_for_repeats() {
    let table: [(&str, &[Part], Verdict, &str); 10] = [
        ("one piece that is all but the end", &[units(0, 1, true)], Nothing, SAME),
        ("a gap before", &[units(1, 2, true)], Nothing, SAME),
        ("a gap before the last", &[units(1, 2, false)], Nothing, SAME),
        ("two in order", &[units(0, 1, true), units(2, 3, false)], Whole(32), SAME),
        ("the first twice", &[units(0, 1, true), units(0, 1, true), units(2, 3, false)], Whole(32), SAME),
        ("one inside another", &[units(0, 3, true), units(1, 2, true), units(4, 4, false)], Whole(40), REPEAT),
        ("overlap at the end", &[units(0, 10, true), units(5, 15, false)], Nothing, SAME),
        ("two ends", &[units(10, 14, false), units(1, 9, false), units(0, 0, true)], Nothing, SAME),
        ("the last twice", &[units(5, 14, false), units(5, 14, false), units(0, 4, true)], Whole(120), SAME),
        (
            "another end inside the last",
            &[units(5, 14, false), units(10, 13, false), units(0, 4, true)],
            Whole(120),
            REPEAT,
        ),
    ];
    for (name, parts, verdict, theirs) in table {
        for version in VERSIONS {
            assert_eq!(judge(version, parts), verdict, "{name} in {version:?}; others: {theirs}");
        }
    }
}

// gVisor, fragmentation_test.go: interleaving, protocol, time-out, memory.
#[test]
fn two_identifications_complete_each_at_its_own_last_fragment() {
    let part = |id: u32, offset: usize, more: bool| Spec { id, ..ip(4).part(offset, [id as u8; 16], more) }.bytes();
    let mut rig = Rig::host();
    assert!(rig.push_all(&[part(1, 0, true), part(2, 0, true)]).is_empty());
    assert_whole(&rig.push(&part(2, 16, false)), &[2; 32]);
    assert_whole(&rig.push(&part(1, 16, false)), &[1; 32]);
    // IPv6 takes the protocol of the first fragment; in IPv4 it is part of the key.
    for (version, joined) in [(4, 0), (6, 1)] {
        let mut rig = Rig::host();
        let mut last = fragment(version, 16, &[0; 16], false);
        match version {
            4 => last = Spec { protocol: 17, ..ip(4).part(16, [0; 16], false) }.bytes(),
            _ => last[40] = 17,
        }
        assert_eq!(rig.push_all(&[fragment(version, 0, &[0; 16], true), last]).len(), joined);
    }
}

#[test]
fn half_a_datagram_is_held_until_its_timeout() {
    let timeout = Duration::from_secs(1);
    let limits = Limits { bytes: 1 << 20, timeout: Some(timeout) };
    for version in VERSIONS {
        let mut rig = Rig::with_limits(u16::MAX, Role::Transit, Some(Late::Retire), limits);
        let (first, second) = (fragment(version, 0, &[1; 8], true), fragment(version, 8, &[2; 8], false));
        for (held, other) in [(&first, &second), (&second, &first)] {
            rig.push(held);
            rig.wait(timeout - Duration::from_nanos(1));
            assert_eq!(rig.held(), 1);
            rig.wait(Duration::from_nanos(1));
            assert_eq!((rig.held(), rig.out.pool.in_use_count()), (0, 0));
            assert!(rig.push(other).is_empty(), "the other half starts anew");
            rig.wait(timeout);
        }
        assert_eq!(rig.event(Event::IcmpSent), 2, "where the first piece was held");
    }
}

/// A host with memory for three first fragments of eight bytes, and the memory that one of them takes, in bytes.
fn of_three_fragments() -> (Rig, usize) {
    let one = {
        let mut rig = Rig::host();
        rig.push(&part(0, 0, true));
        rig.side.aggregation.reassembler.as_ref().unwrap().charged()
    };
    let limits = Limits { bytes: 3 * one, timeout: None };
    (Rig::with_limits(u16::MAX, Role::Transit, Some(Late::Retire), limits), one)
}

/// A fragment of eight bytes.
fn part(id: u32, offset: usize, more: bool) -> Vec<u8> {
    Spec { id, ..ip(4).part(offset, [0; 8], more) }.bytes()
}

#[test]
fn full_memory_evicts_the_oldest_and_repeats_are_free() {
    let (mut rig, one) = of_three_fragments();
    for id in [0, 0, 0, 1, 2, 1, 0] {
        rig.push(&part(id, 0, true));
        assert!(rig.side.aggregation.reassembler.as_ref().unwrap().charged() <= 3 * one);
    }
    assert_eq!((rig.retired(Reason::FragRepeat), rig.retired(Reason::FragEvicted)), (4, 0));
    rig.push(&part(3, 0, true));
    assert_eq!(rig.retired(Reason::FragEvicted), 1);
    assert!(rig.push(&part(0, 8, false)).is_empty(), "the oldest is gone");
    assert_eq!(rig.push(&part(3, 8, false)).len(), 1);
}

#[test]
fn datagrams_in_a_reused_slot_are_not_mixed_up() {
    let (mut rig, _) = of_three_fragments();
    // The fourth datagram evicts the first, and the fifth takes its place. Later fragments of the first do not
    // belong to it.
    (0..5).for_each(|id| drop(rig.push(&part(id, 0, true))));
    assert!(rig.retired(Reason::FragEvicted) >= 1);
    for id in 0..2 {
        assert!(rig.push(&part(id, 8, false)).is_empty(), "{id} is gone");
    }
    assert_eq!(rig.push(&part(4, 8, false)).len(), 1);
}

// gVisor, fragmentation_test.go, ipv4_test.go and ipv6_test.go: sizes of fragments.
#[test]
fn gvisor_fragment_sizes_match() {
    let table: [(u16, usize, &[(usize, usize)]); 9] = [
        (1_280, 1_000, &[(0, 1_000)]),
        (1_280, 2_000, &[(0, 1_256), (1_256, 744)]),
        (68, 100, &[(0, 48), (48, 48), (96, 4)]),
        (69, 100, &[(0, 48), (48, 48), (96, 4)]),
        (2_000, 1_100, &[(0, 1_100)]),
        (1_280, 1_300, &[(0, 1_256), (1_256, 44)]),
        (300, 1_500, &[(0, 280), (280, 280), (560, 280), (840, 280), (1_120, 280), (1_400, 100)]),
        (1_000, 1_012, &[(0, 976), (976, 36)]),
        (1_020, 1_001, &[(0, 1_000), (1_000, 1)]),
    ];
    for (mtu, len, expected) in table {
        let wire = ReadPacket::all(&Rig::router(mtu).push(&whole(4, &pattern(len))));
        let places: Vec<_> = wire.iter().map(|fragment| (fragment.offset(), fragment.body().len())).collect();
        assert_eq!(places, expected, "{len} bytes at {mtu}");
    }
    let table: [(u16, usize, &[(usize, usize)]); 5] = [
        (1_280, 1_000, &[(0, 1_000)]),
        (1_280, 2_000, &[(0, 1_232), (1_232, 768)]),
        (1_281, 2_000, &[(0, 1_232), (1_232, 768)]),
        (2_000, 1_100, &[(0, 1_100)]),
        (1_280, 1_300, &[(0, 1_232), (1_232, 68)]),
    ];
    for (mtu, len, expected) in table {
        let wire = ReadPacket::all(&Rig::card(mtu).push(&whole(6, &pattern(len))));
        let places: Vec<_> = wire.iter().map(|fragment| (fragment.offset(), fragment.body().len())).collect();
        assert_eq!(places, expected, "{len} bytes at {mtu}");
    }
}

// gVisor, ipv4_test.go: TestInvalidFragments. A header of length 0 does not parse. The limit of the end is 65,535
// bytes, header included.
#[test]
fn the_invalid_fragments_of_gvisor_are_refused() {
    for flags in [DF | MF, MF] {
        let mut bytes = Spec { ip_flags: flags, ..ip(4).part(59_776, [0; 16], true) }.bytes();
        (bytes[0], bytes[2], bytes[3]) = (0x40, 0, 0);
        let mut rig = Rig::host();
        assert_eq!(rig.push(&bytes).len(), 1, "it passes unread");
        assert_eq!(rig.out.ledger.passed(Reason::BadHeaderLen).packets, 1);
    }
    // gVisor holds a fragment that ends at 65,536 and drops one at 65,537. No datagram of either has a length that
    // its header can state.
    for len in [16, 17] {
        let mut rig = Rig::host();
        rig.push(&ip(4).part(65_520, vec![0; len], false).bytes());
        assert_eq!((rig.retired(Reason::FragOversize), rig.held()), (1, 0));
    }
    let mut rig = Rig::host();
    for (offset, more) in [(128, false), (8, false), (0, true)] {
        rig.push(&ip(4).part(offset, [0; 8], more).bytes());
    }
    assert_eq!((rig.retired(Reason::FragConflict), rig.retired(Reason::FragPoisoned)), (2, 1));
}

// gVisor: TestFragmentReassemblyTimeout.
#[test]
fn a_timeout_error_quotes_exactly_the_first_fragment() {
    for version in VERSIONS {
        let first = fragment(version, 0, &pattern(16), true);
        let short_first = fragment(version, 0, &pattern(8), true);
        let far = fragment(version, 16, &pattern(16), false);
        let table: [(&[&Vec<u8>], Option<&Vec<u8>>); 5] = [
            (&[&first], Some(&first)),
            (&[&first, &first], Some(&first)),
            (&[&far], None),
            (&[&short_first, &far], Some(&short_first)),
            (&[&far, &short_first], Some(&short_first)),
        ];
        for (arrivals, quoted) in table {
            let mut rig = Rig::host();
            rig.push_all(arrivals.iter().copied());
            let wire = rig.wait(seconds(60));
            let (at, kind) = if version == 4 { (20, [11, 1]) } else { (40, [3, 1]) };
            assert!(wire.iter().all(|bytes| bytes[at..at + 2] == kind));
            let quotes: Vec<_> = wire.iter().map(|bytes| bytes[at + 8..].to_vec()).collect();
            assert_eq!(quotes, quoted.into_iter().cloned().collect::<Vec<_>>());
        }
    }
}

// gVisor: TestReceiveFragments and TestReceiveIPv6Fragments.
#[test]
fn udp_datagrams_arrive_by_gvisors_reception_tables() {
    for version in VERSIONS {
        let longest = if version == 4 { 65_515 } else { 65_480 };
        let of = |id: u32, other_source: bool, offset: usize, payload: &[u8], more: bool| {
            let source = host(version, if other_source { 77 } else { 1 });
            Spec { id, source, protocol: UDP, ..ip(version).part(offset, payload, more) }.bytes()
        };
        for len in [264, 136, 135, longest] {
            let datagram = udp(version).payload(pattern(len - 8)).upper();
            for split in [64, len / 2 / 8 * 8, (len - 1) / 8 * 8] {
                let (low, high) = datagram.split_at(split);
                // None of these completes a datagram: one half alone, both halves with MF, halves with two IDs.
                let nothing: [&[Vec<u8>]; 4] = [
                    &[of(1, false, 0, low, true)],
                    &[of(1, false, split, high, false)],
                    &[of(1, false, 0, low, true), of(1, false, split, high, true)],
                    &[of(1, false, 0, low, true), of(2, false, split, high, false)],
                ];
                for frames in nothing {
                    let wire = Rig::host().push_all(frames);
                    let errors = wire.iter().filter(|bytes| bytes[6] == ICMPV6).count();
                    assert_eq!(wire.len(), errors, "{len} split at {split}");
                }
                let in_order = [of(1, false, 0, low, true), of(1, false, split, high, false)];
                assert_whole(&Rig::host().push_all(&in_order), &datagram);
                assert_whole(&Rig::host().push_all(in_order.iter().rev()), &datagram);
                // Two sources with one ID, interleaved; the second datagram is split at another place.
                let (other_low, other_high) = datagram.split_at(32);
                let mut rig = Rig::host();
                rig.push(&of(1, false, 0, low, true));
                rig.push(&of(1, true, 0, other_low, true));
                assert_whole(&rig.push(&of(1, false, split, high, false)), &datagram);
                assert_whole(&rig.push(&of(1, true, 32, other_high, false)), &datagram);
            }
        }
        // A first fragment of 63 bytes.
        let datagram = udp(version).payload(pattern(256)).upper();
        let mut rig = Rig::host();
        rig.push(&of(1, false, 0, &datagram[..63], true));
        assert_eq!(rig.retired(Reason::FragLenNot8), 1);
    }
}

// gVisor: TestFragmentForwarding; VPP: test_mtu.py.
#[test]
fn a_forwarded_packet_is_fragmented_or_gives_an_icmp_error() {
    let echo = |flags| {
        Spec { ip_flags: flags, protocol: ICMP, ..ip(4).payload([&[8, 0][..], &pattern(1_010)].concat()) }.bytes()
    };
    let mut rig = Rig::router(1_000);
    let wire = rig.push(&echo(DF));
    assert_eq!((wire.len(), rig.retired(Reason::TooBig)), (1, 1));
    assert_eq!((wire[0][20..22].to_vec(), wire[0].len()), (vec![3, 4], 576));
    let places: Vec<_> = ReadPacket::all(&rig.push(&echo(0))).iter().map(ReadPacket::place).collect();
    assert_eq!(places, [(0, 976, true), (976, 36, false)]);
    // A packet of exactly the MTU passes; 1,500 bytes over an MTU of 576 make three fragments.
    let exact = whole(4, &pattern(556));
    let mut rig = Rig::router(576);
    assert_eq!(rig.push(&exact), [exact]);
    let bytes = whole(4, &pattern(1_480));
    let wire = rig.push(&bytes);
    assert_eq!(wire.len(), 3);
    assert_eq!(Rig::host().push_all(&wire), [bytes]);
    // The quoted hop limit is the received one.
    let long = whole(6, &pattern(1_400));
    let wire = Rig::router(1_280).push(&long);
    assert_eq!((wire[0].len(), wire[0][48..56].to_vec()), (1_280, long[..8].to_vec()));
}

// DPDK, app/test/test_ipfrag.c: the header fields with flags and offset, in units of eight bytes.
#[test]
fn dpdk_offsets_match_for_full_fragments() {
    let first_copied = vec![7, 7, 4, 0, 0, 0, 0, 0x83, 7, 4, 0xC0, 0xA8, 0xE3, 0x96, 0, 0, 1, 1, 1, 0];
    let later_copied = vec![0x83, 7, 4, 0xC0, 0xA8, 0xE3, 0x96, 0];
    let not_copied = vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let table: [(u16, usize, u16, Vec<u8>, usize, &[u16]); 10] = [
        (1_280, 1_400, 0, vec![], 0, &[0x2000, 0x009D]),
        (600, 1_400, 0, vec![], 0, &[0x2000, 0x2048, 0x0090]),
        (600, 1_400, DF, vec![], 0, &[]),
        // DPDK leaves every fragment the room of the first one; ours fill the room that shorter headers leave.
        // Theirs: 0x8c here, then five fragments, then four.
        (600, 1_400, 0, first_copied.clone(), 0, &[0x2000, 0x2046, 0x008D]),
        (68, 104, MF, first_copied, 0, &[0x2000, 0x2003, 0x2008]),
        (68, 104, MF, later_copied.clone(), 13, &[0x200D, 0x2012, 0x2017]),
        (68, 104, 0, later_copied, 26, &[0x201A, 0x201F, 0x0024]),
        (68, 104, MF, not_copied, 0, &[0x2000, 0x2004, 0x200A]),
        (68, 104, MF, vec![], 13, &[0x200D, 0x2013, 0x2019]),
        (68, 104, 0, vec![], 26, &[0x201A, 0x2020, 0x0026]),
    ];
    for (mtu, len, flags, options, unit, expected) in table {
        let bytes = Spec {
            ip_flags: flags,
            ip_options: options,
            fragment: Some((unit * 8, false)),
            ..ip(4).payload(pattern(len))
        }
        .bytes();
        let wire: Vec<_> = Rig::router(mtu).push(&bytes).into_iter().filter(|bytes| bytes[9] != ICMP).collect();
        let fields: Vec<_> = wire.iter().map(|bytes| u16::from_be_bytes([bytes[6], bytes[7]])).collect();
        assert_eq!(fields, expected, "{len} bytes at {mtu}, {unit} units in");
    }
    for (mtu, second) in [(1_280, 0x04D0), (1_300, 0x04E0)] {
        let wire = Rig::card(mtu).push(&whole(6, &pattern(1_400)));
        let fields: Vec<_> = wire.iter().map(|bytes| u16::from_be_bytes([bytes[42], bytes[43]])).collect();
        assert_eq!(fields, [0x0001, second]);
    }
    let bytes = whole(4, &pattern(1_400));
    assert_eq!(Rig::router(4).push(&bytes), [bytes], "no link takes four bytes: nothing is done");
}

// DPDK, app/test/test_reassembly.c: the sweep. Its table ends at eight fragments, ours does not: NO_CAP.
#[test]
fn the_dpdk_sweep_is_reassembled_in_every_order() {
    for version in VERSIONS {
        let mut rig = Rig::host();
        for room in [8, 16, 64, 256] {
            for total in (room + 8..=9 * room).step_by(room).flat_map(|total| [total, total - 4]) {
                let payload: Vec<u8> = (0..total).map(|at| (at * 31 + 7) as u8).collect();
                let parts = fragments(version, &payload, room);
                let count = parts.len();
                let third = count.div_ceil(3);
                let in_order: Vec<usize> = (0..count).collect();
                let reverse = in_order.iter().rev().copied().collect();
                let odd_first = in_order.iter().copied().filter(|at| at % 2 == 1);
                let odd_first = odd_first.chain(in_order.iter().copied().filter(|at| at % 2 == 0)).collect();
                let mut blocks: Vec<Vec<usize>> = in_order.chunks(third).map(<[usize]>::to_vec).collect();
                blocks.reverse();
                for order in [in_order.clone(), reverse, odd_first, blocks.concat()] {
                    let wire: Vec<_> = order.iter().flat_map(|index| rig.push(&parts[*index])).collect();
                    assert_whole(&wire, &payload);
                }
            }
        }
        assert_eq!((rig.held(), rig.out.pool.in_use_count()), (0, 0));
    }
}

#[test]
fn dpdk_cases_give_the_expected_results() {
    let table: [(&str, &[Part], Verdict, &str); 7] = [
        ("a hole", &[Part(0, 64, true, Real), Part(128, 64, false, Real)], Nothing, SAME),
        ("no payload", &[Part(0, 0, true, Real)], Nothing, SAME),
        (
            "a repeat among disorder",
            &[
                Part(64, 64, true, Real),
                Part(192, 64, false, Real),
                Part(64, 64, true, Real),
                Part(0, 64, true, Real),
                Part(128, 64, true, Real),
            ],
            Whole(256),
            SAME,
        ),
        ("overlap behind", &[Part(0, 600, true, Real), Part(300 / 8 * 8, 304, true, Real)], Nothing, SAME),
        ("overlap before", &[Part(296, 304, true, Real), Part(0, 600, true, Real)], Nothing, SAME),
        (
            "a piece inside another",
            &[Part(0, 600, true, Real), Part(200, 200, true, Dummy), Part(600, 8, false, Real)],
            Nothing,
            SAME,
        ),
        ("the end past 65,535", &[Part(65_528, 64, false, Real)], Nothing, SAME),
    ];
    for (name, parts, verdict, theirs) in table {
        for version in VERSIONS {
            assert_eq!(judge(version, parts), verdict, "{name} in {version:?}; others: {theirs}");
        }
    }
    // Its IPv6 table rejects headers before the Fragment header; ours keeps them.
    let payload = pattern(64);
    let part = |offset: usize, more| {
        Spec { extensions: vec![extension(ROUTING, 8)], ..ip(6).part(offset, &payload[offset..offset + 32], more) }
            .bytes()
    };
    let wire = Rig::host().push_all(&[part(0, true), part(32, false)]);
    assert_eq!(wire, [Spec { extensions: vec![extension(ROUTING, 8)], ..ip(6).payload(payload) }.bytes()]);
}

// VPP, test_reassembly.py: captures of fuzzers, each followed by a good datagram.
#[test]
fn former_vpp_crashes_are_refused_and_the_next_datagram_completes() {
    let good = pattern(1_000);
    // 5737: the end past 65,535.
    let mut rig = Rig::host();
    rig.push(&Spec { id: 7, ..ip(4).part(65_520, [0x77; 116], true) }.bytes());
    assert_whole(&rig.push_all(&fragments(4, &good, 400)), &good);
    assert_eq!(rig.held(), 1 - rig.retired(Reason::FragOversize) - rig.retired(Reason::FragLenNot8));
    // 44924: the last two overlap by eight bytes that differ. VPP delivers one datagram; ours: OVERLAP.
    let parts = [Part(0, 24, true, Real), Part(24, 32, true, Real), Part(48, 27, false, Dummy)];
    assert_eq!(judge(4, &parts), Nothing);
    // frag_1: one byte with MF, twice.
    let mut rig = Rig::host();
    rig.push_all(&[ip(4).part(0, [1], true).bytes(), ip(4).part(8, [1], true).bytes()]);
    assert_eq!(rig.retired(Reason::FragLenNot8), 2);
    assert_whole(&rig.push_all(&fragments(4, &good, 400)), &good);
}

#[test]
fn vpp_duplicates_and_chains_are_reassembled() {
    for version in VERSIONS {
        for len in [64, 512, 1_518, 9_018] {
            for room in [400, 304, 200] {
                let payload = pattern(len);
                let parts = fragments(version, &payload, room);
                if parts.len() < 2 {
                    continue;
                }
                let twice: Vec<Vec<u8>> = parts.iter().flat_map(|part| [part.clone(), part.clone()]).collect();
                let mut rig = Rig::host();
                // The second copy of the last fragment starts a datagram that is never completed.
                assert_whole(&rig.push_all(&twice), &payload);
                let mut rig = Rig::host();
                assert_whole(&rig.push_all(parts.iter().rev()), &payload);
                assert_whole(&rig.push_all(&parts), &payload);
            }
        }
        // A last fragment of one byte; ten repeats of the first.
        assert_eq!(judge(version, &[Part(0, 176, true, Real), Part(176, 1, false, Real)]), Whole(177));
        let mut parts = vec![Part(0, 8, true, Real); 11];
        parts.extend([Part(8, 8, true, Real), Part(16, 8, false, Real)]);
        assert_eq!(judge(version, &parts), Whole(24));
    }
}

// VPP, IPv6: ICMP errors, and fifty pairs that overlap.
#[test]
fn malformed_vpp_ipv6_fragments_get_the_standard_errors() {
    let (kind, options) = chain(&[extension(DESTINATION_OPTIONS, 512)], UDP);
    let cut = Spec { protocol: kind, ..ip(6).part(0, &options[..256], true) }.bytes();
    let table: [(Vec<u8>, Option<u8>); 4] = [
        (cut, Some(3)),
        (fragment(6, 0, &pattern(505), true), Some(0)),
        (fragment(6, 65_504, &pattern(64), false), Some(0)),
        (fragment(6, 65_528, &pattern(1_448), true), Some(0)),
    ];
    for (bytes, code) in table {
        let wire = Rig::host().push(&bytes);
        assert_eq!(wire.first().map(|answer| (answer[40], answer[41])), code.map(|code| (4, code)));
    }
    let mut rig = Rig::host();
    for id in 0..50 {
        for len in [200, 192] {
            let mut payload = pattern(len);
            payload[0] = len as u8;
            assert!(rig.push(&ip(6).id(id).part(0, payload, true).bytes()).is_empty());
        }
        rig.push(&ip(6).id(id).part(8, [], true).bytes());
    }
    assert_eq!((rig.retired(Reason::FragOverlap), rig.retired(Reason::FragZeroLen)), (100, 50));
    assert_eq!((rig.held(), rig.out.pool.in_use_count()), (0, 0));
    // A Fragment header of only two bytes causes no ICMP error.
    let mut short = Spec { protocol: FRAGMENT, ..ip(6).payload(vec![UDP, 0]) }.bytes();
    assert_eq!(Rig::host().push(&short), [short.clone()]);
    short[41] = 255;
    assert_eq!(Rig::host().push(&short), [short.clone()]);
}

// VPP, fragments in fragments: packets inside a tunnel are payload.
#[test]
fn nested_fragments_are_reassembled_layer_by_layer() {
    let inner = whole(4, &pattern(1_000));
    let mut outer = Vec::new();
    for bytes in Rig::router(400).push(&inner) {
        let tunnel =
            Spec { protocol: 47, id: outer.len() as u32, ..ip(4).payload([vec![0, 0, 8, 0], bytes].concat()) };
        outer.extend(Rig::router(200).push(&tunnel.bytes()));
    }
    let tunnelled = Rig::host().push_all(&outer);
    let fragments: Vec<Vec<u8>> = tunnelled.iter().map(|bytes| bytes[24..].to_vec()).collect();
    assert_eq!(Rig::host().push_all(&fragments), [inner]);
}

// Suricata, src/defrag.c, and the model of Novak and Sturges.
#[test]
fn what_intrusion_detection_must_guess_is_killed_here() {
    // Seventeen pieces, by offset and length in bytes. Every policy but ours makes another datagram of them.
    let novak = [
        (0, 24),
        (32, 16),
        (48, 24),
        (80, 8),
        (104, 16),
        (120, 24),
        (144, 16),
        (160, 16),
        (176, 8),
        (8, 32),
        (48, 24),
        (72, 24),
        (96, 24),
        (128, 8),
        (152, 8),
        (160, 8),
        (176, 16),
    ];
    for version in VERSIONS {
        let mut rig = Rig::host();
        for (index, (offset, len)) in novak.iter().enumerate() {
            let letters = vec![b'A' + index as u8; *len];
            assert!(rig.push(&fragment(version, *offset, &letters, index + 1 < novak.len())).is_empty());
        }
        assert_eq!((rig.retired(Reason::FragOverlap), rig.retired(Reason::FragPoisoned)), (10, 7));
    }
    let table: [(&str, &[Part], Verdict, &str); 6] = [
        ("two reversed", &[Part(8, 3, false, Real), Part(0, 8, true, Real)], Whole(11), SAME),
        (
            "three simple",
            &[Part(0, 8, true, Real), Part(8, 8, true, Real), Part(16, 3, false, Real)],
            Whole(19),
            SAME,
        ),
        ("too large", &[Part(8_183 * 8, 71, false, Real)], Nothing, SAME),
        (
            "an end before what is held",
            &[Part(16, 8, true, Real), Part(0, 8, true, Real), Part(8, 8, false, Real)],
            Nothing,
            "16 bytes; ours: two pieces disagree on the end",
        ),
        (
            "jeremy",
            &[
                Part(0, 24, true, Real),
                Part(40, 48, true, Real),
                Part(24, 48, true, Dummy),
                Part(88, 14, false, Real),
            ],
            Nothing,
            OVERLAP,
        ),
        ("teardrop", &[Part(0, 40, true, Real), Part(24, 8, false, Dummy)], Nothing, OVERLAP),
    ];
    for (name, parts, verdict, theirs) in table {
        for version in VERSIONS {
            assert_eq!(judge(version, parts), verdict, "{name} in {version:?}; others: {theirs}");
        }
    }
}

// snabb, apps/ipv4 and ipv6.
#[test]
fn snabb_sizes_are_fragmented_and_reassembled_in_every_order() {
    for len in [100, 400, 1_000, 1_500, 2_000] {
        let cases = [512, 1_000, 1_500].map(|mtu| (4, mtu));
        let cases = cases.into_iter().chain((1_280..2_500).step_by(113).map(|mtu| (6, mtu)));
        for (version, mtu) in cases {
            let bytes = whole(version, &pattern(len));
            let wire = Rig::card(mtu).push(&bytes);
            let mut rig = Rig::host();
            for order in orders(wire.len()) {
                let joined: Vec<_> = order.iter().flat_map(|index| rig.push(&wire[*index])).collect();
                assert_eq!(joined, [bytes.clone()].map(|bytes| stamped(&bytes, &wire[0])));
            }
        }
    }
    for len in (0..=2_000).step_by(7) {
        for mtu in (68..=2_500u16).step_by(9) {
            let wire = ReadPacket::all(&Rig::router(mtu).push(&whole(4, &pattern(len))));
            assert!(wire.iter().all(|fragment| fragment.ip_len() <= usize::from(mtu)));
            assert!(wire[..wire.len() - 1].iter().all(|fragment| fragment.body().len() % 8 == 0));
            assert_eq!(wire.iter().map(|fragment| fragment.body().len()).sum::<usize>(), len);
        }
    }
}

// gopacket ip4defrag, lwIP test_ip4.c, PcapPlusPlus IPReassembly, ip_defrag.c of Linux.
#[test]
fn orders_of_other_suites_all_complete() {
    let ping = pattern(4_488);
    for order in [&[1, 3, 2, 4][..], &[1, 1, 1, 3, 2, 4], &[4, 1, 2, 3], &[4, 3, 2, 1]] {
        for version in VERSIONS {
            let parts = fragments(version, &ping, 1_480);
            let frames: Vec<_> = order.iter().map(|number| parts[number - 1].clone()).collect();
            assert_whole(&Rig::host().push_all(&frames), &ping);
        }
    }
    let payload = pattern(9 * 200 - 3);
    let parts = fragments(4, &payload, 200);
    let frames: Vec<_> = [8, 0, 1, 2, 3, 4, 7, 6, 5].iter().map(|index| parts[*index].clone()).collect();
    assert_whole(&Rig::host().push_all(&frames), &payload);
    // In thirds: the end, the middle, the start; then odd before even.
    let payload = pattern(9_999);
    for room in (8..1_492).step_by(104) {
        let parts = fragments(6, &payload, room);
        let runs = parts[6..].iter().chain(&parts[3..6]).chain(&parts[..3]);
        assert_whole(&Rig::host().push_all(runs), &payload);
        let odd = parts.iter().skip(1).step_by(2).chain(parts.iter().step_by(2));
        assert_whole(&Rig::host().push_all(odd), &payload);
    }
}

// Linux, ip_defrag.c -o: one fragment too many, between the odd and the even.
#[test]
fn an_extra_fragment_that_overlaps_is_never_delivered() {
    for version in VERSIONS {
        for room in (8..640).step_by(56) {
            let len = room * 6 + 5;
            let payload = pattern(len);
            let parts = fragments(version, &payload, room);
            let extra = fragment(version, 8, &vec![0xEE; 8 + room], true);
            let mut rig = Rig::host();
            let odd = parts.iter().skip(1).step_by(2).chain([&extra]).chain(parts.iter().step_by(2));
            assert!(rig.push_all(odd).is_empty(), "{room} bytes a piece");
        }
    }
}

// etherparse defrag.
#[test]
fn etherparse_refuses_the_same_ends() {
    let table: [(&[Part], Verdict); 5] = [
        (&[Part(0, 9, true, Real)], Nothing),
        (&[Part(65_528, 9, false, Real)], Nothing),
        (&[Part(8, 8, false, Real), Part(16, 8, false, Real), Part(0, 8, true, Real)], Nothing),
        (&[Part(8, 8, false, Real), Part(16, 8, true, Real), Part(0, 8, true, Real)], Nothing),
        (&[Part(16, 8, true, Real), Part(8, 8, false, Real), Part(0, 8, true, Real)], Nothing),
    ];
    for (parts, verdict) in table {
        for version in VERSIONS {
            assert_eq!(judge(version, parts), verdict, "{parts:?} in {version:?}");
        }
    }
}

// lwIP, Zephyr, scapy: the number of fragments.
#[test]
fn fragment_counts_match_other_suites() {
    for (version, mtu, payload_len, count) in [
        (4, 1_500, 8_008, 6),
        (4, 576, 2_056, 4),
        (4, 576, 2_068, 4),
        (4, 1_480, 40_008, 28),
        (6, 1_280, 40_008, 33),
    ] {
        let bytes = whole(version, &pattern(payload_len));
        let wire = ReadPacket::all(&Rig::card(mtu).push(&bytes));
        assert_eq!(wire.len(), count);
        assert_eq!(wire.iter().filter(|fragment| fragment.more()).count(), count - 1);
        assert!(wire.iter().all(|fragment| fragment.id == wire[0].id));
    }
}

// Click, IPFragmenter and IPReassembler. No IPv4 link has an MTU of 40 bytes, so the fragmentation is set directly.
#[test]
fn options_are_fragmented_as_by_click() {
    for options in [vec![1, 1, 1, 0], vec![2, 0, 0, 0]] {
        let bytes = Spec { ip_options: options, ip_flags: DF, ..ip(4).payload(pattern(20)) }.bytes();
        let mut pool = Pool::new(1 << 20);
        let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap();
        packet.fragmentation =
            Some(Fragmentation { mtu: 40, id: 9, split: Split::Max, content: Content::Complete });
        let mut fragments = WirePackets::of(&packet);
        let mut lens = Vec::new();
        while let Some(fragment) = fragments.next() {
            lens.push((fragment.header.len(), fragment.payload.len()));
        }
        assert_eq!(lens, [(24, 16), (20, 4)]);
    }
    let parts = [(0, 24), (24, 24), (48, 24), (72, 5)].map(|(offset, len)| Part(offset, len, offset < 72, Real));
    assert_eq!(judge(4, &parts), Whole(77));
}

// THC-IPv6, fragmentation6.
#[test]
fn thc_attacks_leave_no_state() {
    for headers in [2, 137, 175] {
        let nested = vec![(FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 1]); headers];
        let (kind, mut payload) = chain(&nested, ICMPV6);
        payload.extend(pattern(64));
        let mut rig = Rig::host();
        rig.push(&Spec { protocol: kind, ..ip(6).payload(payload) }.bytes());
        assert_eq!(rig.out.ledger.passed(Reason::FragNested).packets, 1);
    }
    // A complete datagram, with one fragment sent again with other bytes, before or after the true one. A forged
    // last fragment that comes before the true one completes the datagram: reassembly cannot detect it.
    let parts = [Part(0, 400, true, Real), Part(400, 400, true, Real), Part(800, 408, false, Real)];
    for again in 0..2 {
        let Part(offset, len, more, _) = parts[again];
        for at in 0..3 {
            let mut set = parts.to_vec();
            set.insert(at, Part(offset, len, more, Dummy));
            assert_eq!(judge(6, &set), Nothing, "{set:?}");
        }
    }
    // Two of three fragments.
    for missing in 0..3 {
        let mut set = parts.to_vec();
        set.remove(missing);
        assert_eq!(judge(6, &set), Nothing);
    }
    // Lengths past the limit.
    for (fragments, len) in [(47, 1_394), (48, 1_394)] {
        let set = row(fragments, 1_400, fragments * 1_400 - 1_400 + len);
        assert_eq!(judge(6, &set), Nothing);
    }
}

// Helpers.

/// A fragment: offset, length, MF, and the kind of its bytes.
#[derive(Clone, Copy, Debug)]
struct Part(usize, usize, bool, Bytes);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// The bytes of the datagram.
    Real,
    /// Other bytes.
    Dummy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// One datagram of this length with its own bytes.
    Whole(usize),
    Nothing,
}

impl Part {
    fn bytes(self, version: u8) -> Vec<u8> {
        let Part(offset, len, more, bytes) = self;
        let mut payload = pattern(offset + len).split_off(offset);
        if bytes == Dummy {
            payload.iter_mut().for_each(|byte| *byte = !*byte);
        }
        fragment(version, offset, &payload, more)
    }
}

/// The verdict on these fragments, from the packets that leave, ICMP errors aside.
#[track_caller]
fn judge(version: u8, parts: &[Part]) -> Verdict {
    let mut rig = Rig::host();
    let frames: Vec<_> = parts.iter().map(|part| part.bytes(version)).collect();
    let wire = ReadPacket::all(&rig.push_all(&frames));
    let datagrams: Vec<_> = wire.into_iter().filter(|packet| packet.protocol == EXPERIMENT).collect();
    match &datagrams[..] {
        [] => Nothing,
        [one] => {
            assert!(one.body() == pattern(one.body().len()), "what is delivered is what was sent");
            Whole(one.body().len())
        }
        more => panic!("{} datagrams", more.len()),
    }
}

/// Fragments of `room` bytes in order, of a datagram of `len` bytes. The last one ends the datagram.
fn row(count: usize, room: usize, len: usize) -> Vec<Part> {
    (0..count)
        .map(|index| {
            let last = index + 1 == count;
            Part(index * room, if last { len - index * room } else { room }, !last, Real)
        })
        .collect()
}

/// The fragments of a row, all with MF, and some more.
fn with(mut parts: Vec<Part>, more: &[(usize, usize, bool)]) -> Vec<Part> {
    parts.iter_mut().for_each(|part| part.2 = true);
    parts.extend(more.iter().map(|(offset, len, more)| Part(*offset, *len, *more, Real)));
    parts
}

/// A fragment of the units of eight bytes from `first` to `last`.
fn units(first: usize, last: usize, more: bool) -> Part {
    Part(first * 8, (last - first + 1) * 8, more, Real)
}

/// The whole packet with the ID of its fragments.
fn stamped(bytes: &[u8], first: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes[0] >> 4 == 4 {
        bytes[4..6].copy_from_slice(&first[4..6]);
        bytes[10..12].fill(0);
        let sum = !sum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

const SAME: &str = "the same";
/// A repeat (all of its bytes are already held, and equal) is dropped alone, whatever its length and MF. Some
/// stacks treat equal bytes at another offset as an overlap.
const REPEAT: &str = "nothing; ours: a repeat is dropped alone";
/// Any other overlap drops the datagram (RFC 5722 section 4, R063). OpenBSD and VPP trim overlaps in IPv4.
const OVERLAP: &str = "IPv4 trims, IPv6 drops; ours: an overlap ends the datagram";
/// The key of a datagram that was dropped for overlap is poisoned until its deadline (R063).
const POISON: &str = "the new set is joined; ours: its key is poisoned";
/// The number of fragments has no cap, as their memory is charged (C9).
const NO_CAP: &str = "nothing past a cap on pieces; ours has none";
