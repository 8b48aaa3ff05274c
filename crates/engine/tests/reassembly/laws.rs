//! Fragments in any order -> datagrams: the laws of reassembly, for all small inputs.

use crate::station::{Left, Station, USUAL};
use core::time::Duration;
use testkit::fields::{CE, DESTINATION_OPTIONS, DF, EXPERIMENT, HOP_BY_HOP, ROUTING, UDP};
use testkit::model::joined_mark;
use testkit::{Place, ReadPacket, Spec, copied_option, each_order, extension, host, ip, noise, uncopied_option};
use wideload_engine::packet::Time;
use wideload_engine::{Event, Late, Limits, Reason};

#[test]
fn every_order_of_up_to_five_fragments_gives_the_datagram_once() {
    let mut case = 0;
    for header in headers() {
        for mtu in mtus(&header) {
            for (datagram, fragments) in datagrams_of_each_count(&header, mtu) {
                let whole = datagram.bytes();
                let mut station = Station::usual();
                each_order(fragments.len(), &mut |order| {
                    let what = || format!("{header:?} at {mtu} in order {order:?}");
                    let (last, others) = order.split_last().unwrap();
                    for index in others {
                        let left = station.push(Time::ZERO, &fragments[*index], &header);
                        assert_eq!(left, [], "nothing leaves before all is here: {}", what());
                    }
                    let left = station.push(Time::ZERO, &fragments[*last], &header);
                    assert_eq!(frames(&left), [whole.as_slice()], "{}", what());
                    assert_eq!(station.flush(Time::ZERO), [], "nothing is left behind: {}", what());
                    case += 1;
                });
            }
        }
    }
    assert!(case > 40_000, "{case} cases");
}

#[test]
fn a_repeat_of_any_fragment_at_any_time_changes_nothing() {
    for header in headers().into_iter().take(4) {
        let datagram = datagram(&header, 3 * 1_480 + 5);
        let fragments = datagram.fragments(1_500);
        each_order(4, &mut |order| {
            for repeated in 0..order.len() {
                for at in repeated + 1..order.len() {
                    let mut station = Station::usual();
                    let mut left = Vec::new();
                    for (index, fragment) in order.iter().enumerate() {
                        if index == at {
                            let repeat = &fragments[order[repeated]];
                            (0..3).for_each(|_| left.extend(station.push(Time::ZERO, repeat, &header)));
                        }
                        left.extend(station.push(Time::ZERO, &fragments[*fragment], &header));
                    }
                    assert_eq!(frames(&left), [datagram.bytes()], "{repeated} again before {at} of {order:?}");
                    let ledger = &station.out.ledger;
                    assert_eq!(ledger.retired(Reason::FragRepeat).packets, 3);
                    assert_eq!(ledger.retired_all().packets, 3);
                    assert_eq!(ledger.event(Event::FragmentsUsed).packets, 4, "a repeat is not counted twice");
                }
            }
        });
    }
}

#[test]
fn a_repeat_may_be_a_part_of_one_fragment_or_span_several() {
    let datagram = ip(4).noise(96);
    let place = |start, end| Place { range: start..end, more: end < 96 };
    for first in [[0..32, 32..64], [32..64, 0..32]] {
        let mut station = Station::usual();
        let push = |station: &mut Station, start, end| {
            station.push(Time::ZERO, &datagram.fragment(&place(start, end)), &datagram)
        };
        for range in &first {
            assert_eq!(push(&mut station, range.start, range.end), []);
        }
        for (start, end) in [(0, 8), (24, 32), (24, 40), (8, 56), (0, 64), (56, 64)] {
            assert_eq!(push(&mut station, start, end), [], "{start}..{end} is all held");
        }
        assert_eq!(station.out.ledger.retired(Reason::FragRepeat).packets, 6);
        let left = push(&mut station, 64, 96);
        assert_eq!(frames(&left), [datagram.bytes()]);
    }
}

#[test]
fn a_repeat_after_completion_starts_a_new_datagram() {
    for version in [4, 6] {
        let datagram = ip(version).noise(3_000);
        let fragments = datagram.fragments(1_500);
        let mut station = Station::usual();
        let mut left = Vec::new();
        for fragment in fragments.iter().chain(&fragments).chain(&fragments[..2]) {
            left.extend(station.push(Time::ZERO, fragment, &datagram));
        }
        assert_eq!(frames(&left), [datagram.bytes(), datagram.bytes()]);
        assert_eq!(station.out.pool.in_use_count(), 1, "the third is waited for");
    }
}

#[test]
fn received_fragments_leave_at_the_timeout_and_nothing_else() {
    for header in headers() {
        for mtu in mtus(&header) {
            let (datagram, fragments) = datagrams_of_each_count(&header, mtu).pop().unwrap();
            let places = datagram.places(mtu);
            for missing in 1u32..1 << fragments.len() {
                for release_mtu in [mtu, mtu * 2, mtu_min(&header), 9_000] {
                    for reverse in [false, true] {
                        let late = Late::Release { mtu: release_mtu as u16 };
                        let mut station = Station::joining(USUAL, late);
                        let mut here: Vec<usize> =
                            (0..fragments.len()).filter(|index| missing >> index & 1 == 0).collect();
                        if reverse {
                            here.reverse();
                        }
                        let mut held = vec![None; datagram.payload.len()];
                        for index in &here {
                            let left = station.push(Time::ZERO, &fragments[*index], &header);
                            assert_eq!(left, [], "nothing is delivered whole");
                            let range = places[*index].range.clone();
                            held[range.clone()].copy_from_slice(&somes(&datagram.payload[range]));
                        }
                        assert_eq!(station.expire(just_before(timeout(&header))), []);
                        let left = station.expire(Time::ZERO + timeout(&header));
                        let what = format!("{header:?} at {mtu} without {missing:b}, released at {release_mtu}");
                        let end_came = missing >> (fragments.len() - 1) & 1 == 0;
                        check_released(&left, &header, &held, end_came, release_mtu, &what);
                        assert_eq!(station.out.pool.in_use_count(), 0);
                        let released = station.out.ledger.event(Event::ReleasedTimeout).packets;
                        assert_eq!(released, u64::from(!here.is_empty()), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn late_fragments_are_reassembled_by_the_next_host() {
    for version in [4, 6] {
        let datagram = ip(version).noise(6_001);
        let fragments = datagram.fragments(1_500);
        for late_one in 0..fragments.len() {
            let mut first = Station::joining(USUAL, Late::Release { mtu: 1_280 });
            let mut behind = Station::usual();
            let mut on_the_direction = Vec::new();
            for (index, fragment) in fragments.iter().enumerate().filter(|(index, _)| *index != late_one) {
                assert_eq!(first.push(Time::ZERO, fragment, &datagram), [], "{index}");
            }
            on_the_direction.extend(first.expire(Time::ZERO + timeout(&datagram)));
            let now = Time::ZERO + timeout(&datagram);
            on_the_direction.extend(first.push(now, &fragments[late_one], &datagram));
            on_the_direction.extend(first.flush(now));
            let left: Vec<_> = on_the_direction
                .iter()
                .flat_map(|fragment| behind.push(Time::ZERO, &fragment.frame, &datagram))
                .collect();
            assert_eq!(frames(&left), [datagram.bytes()], "version {version}, piece {late_one} late");
        }
    }
}

#[test]
fn ecn_is_combined_by_rfc_3168_for_every_tuple() {
    for version in [4, 6] {
        for count in 1..=4u32 {
            for tuple in 0..4u32.pow(count) {
                let marks: Vec<u8> = (0..count).map(|index| (tuple >> (2 * index) & 3) as u8).collect();
                for turned in 0..count as usize {
                    check_marks(version, &marks, turned);
                }
            }
        }
    }
}

#[test]
fn released_fragments_keep_ce_for_every_tuple() {
    for version in [4, 6] {
        for tuple in 0..4u32.pow(4) {
            let marks: [u8; 4] = [0, 2, 4, 6].map(|shift| (tuple >> shift & 3) as u8);
            // One fragment is missing, at any place, and the others come in any order.
            for (missing, turned) in (0..5).flat_map(|missing| (0..4).map(move |turned| (missing, turned))) {
                let datagram = ip(version).noise(64 * 5);
                let mut station = Station::joining(USUAL, Late::Release { mtu: mtu_min(&datagram) as u16 });
                for index in 0..4 {
                    let index = (index + turned) % 4;
                    let mut header = datagram.clone();
                    header.tos |= marks[index];
                    let at = index + usize::from(index >= missing);
                    let place = Place { range: 64 * at..64 * (at + 1), more: at < 4 };
                    assert_eq!(station.push(Time::ZERO, &header.fragment(&place), &datagram), []);
                }
                let left = station.flush(Time::ZERO);
                let seen: Vec<u8> = left.iter().map(|fragment| ReadPacket::of(fragment.ip()).ecn()).collect();
                let what =
                    format!("{marks:?} in version {version}, {missing} is missing, first {turned}: {seen:?}");
                assert!(!seen.is_empty(), "{what}");
                let has_ce = marks.contains(&CE);
                assert!(seen.iter().all(|mark| (*mark == CE) == has_ce), "{what}");
                assert!(seen.iter().all(|mark| marks.contains(mark)), "{what}");
            }
        }
    }
}

#[test]
fn a_datagram_has_the_header_of_the_fragment_at_offset_0() {
    for version in [4, 6] {
        let datagram = Spec { protocol: UDP, ..ip(version).noise(3_000) };
        let places = datagram.places(1_500);
        each_order(places.len(), &mut |order| {
            let mut station = Station::usual();
            let mut left = Vec::new();
            for index in order {
                let mut fragment = datagram.clone();
                fragment.ttl += *index as u8;
                if version == 6 {
                    // RFC 8200 section 4.5 (R093): the next header in later fragments does not matter.
                    fragment.protocol = if *index == 0 { UDP } else { EXPERIMENT };
                }
                left.extend(station.push(Time::ZERO, &fragment.fragment(&places[*index]), &datagram));
            }
            assert_eq!(frames(&left), [datagram.bytes()], "in order {order:?}");
        });
    }
}

#[test]
fn each_part_of_the_key_separates_datagrams() {
    type Change = fn(&mut Spec);
    let changes: [(&str, Change); 6] = [
        ("source", |header| header.source = host(header.version(), 9)),
        ("destination", |header| header.destination = host(header.version(), 9)),
        ("identification", |header| header.id += 16_384),
        ("protocol", |header| header.protocol = UDP),
        ("VLAN", |header| header.vlans = Some(vec![8])),
        ("ingress", |header| header.ingress += 1),
    ];
    for version in [4, 6] {
        // IPv6 knows no protocol until a datagram is complete (RFC 8200 section 4.5, R093).
        for (what, change) in changes.into_iter().filter(|(what, _)| version == 4 || *what != "protocol") {
            let mut one = ip(version).noise(2_000);
            one.vlans = Some(vec![7]);
            let mut other = Spec { payload: noise(2_000, 99), ..one.clone() };
            change(&mut other);
            let [one_first, one_last] = two(one.fragments(1_500));
            let [other_first, other_last] = two(other.fragments(1_500));
            let mut station = Station::usual();
            let mut left = Vec::new();
            for (fragment, header) in
                [(&one_first, &one), (&other_last, &other), (&one_last, &one), (&other_first, &other)]
            {
                left.extend(station.push(Time::ZERO, fragment, header));
            }
            assert_eq!(frames(&left), [one.bytes(), other.bytes()], "{what} in version {version}");
        }
    }
}

#[test]
fn a_whole_datagram_passes_held_fragments_with_its_key() {
    for version in [4, 6] {
        let datagram = ip(version).noise(3_000);
        let atomic = Spec { payload: noise(100, 1), ..datagram.clone() };
        let fragments = datagram.fragments(1_500);
        for at in 0..=fragments.len() {
            let mut station = Station::usual();
            let mut left = Vec::new();
            for (index, fragment) in fragments.iter().enumerate() {
                if index == at {
                    // IPv6: with a Fragment header that covers the whole datagram (RFC 6946 section 4, R081).
                    let frame = atomic.fragment(&Place { range: 0..100, more: false });
                    assert_eq!(
                        frames(&station.push(Time::ZERO, &frame, &datagram)),
                        [atomic.bytes()],
                        "version {version}"
                    );
                }
                left.extend(station.push(Time::ZERO, fragment, &datagram));
            }
            assert_eq!(frames(&left), [datagram.bytes()], "version {version}, after {at} pieces");
        }
    }
}

#[test]
fn an_empty_fragment_is_dropped_and_changes_nothing() {
    for version in [4, 6] {
        let datagram = ip(version).noise(3_000);
        let fragments = datagram.fragments(1_500);
        for (start, more) in [(0, true), (8, true), (8, false), (1_448, true), (3_000, false), (65_528, false)] {
            let empty = datagram.fragment_with(&Place { range: start..start, more }, &[]);
            let mut station = Station::usual();
            assert_eq!(station.push(Time::ZERO, &empty, &datagram), []);
            assert_eq!(station.out.pool.in_use_count(), 0);
            let mut left = Vec::new();
            for fragment in &fragments {
                left.extend(station.push(Time::ZERO, fragment, &datagram));
                left.extend(station.push(Time::ZERO, &empty, &datagram));
            }
            assert_eq!(frames(&left), [datagram.bytes()], "version {version}: {start}, more {more}");
            assert_eq!(station.out.ledger.retired(Reason::FragZeroLen).packets, 1 + fragments.len() as u64);
        }
    }
}

#[test]
fn all_but_the_last_fragment_are_multiples_of_8() {
    for version in [4, 6] {
        let datagram = ip(version).noise(3_000);
        for len in 1..200 {
            for start in [0, 8, 1_000] {
                let place = Place { range: start..start + len, more: true };
                let mut station = Station::usual();
                assert_eq!(station.push(Time::ZERO, &datagram.fragment(&place), &datagram), []);
                let held = station.out.pool.in_use_count();
                assert_eq!(held, usize::from(len % 8 == 0), "version {version}: {place:?}");
                let refused = station.out.ledger.retired(Reason::FragLenNot8).packets;
                assert_eq!(refused, u64::from(len % 8 != 0));
            }
        }
    }
}

#[test]
fn no_datagram_exceeds_its_length_field() {
    for header in headers() {
        let (first_len, later_len) = (header.fragment_len(0), header.fragment_len(8));
        // IPv4's length field includes the header of the whole datagram, IPv6's its extension headers (never the
        // Fragment header).
        let longest = if header.version() == 4 { 65_535 - first_len } else { 65_535 + 48 - first_len };
        let start = longest / 8 * 8 - 1_024;
        for excess in -9..=24isize {
            let end = longest.strict_add_signed(excess);
            let datagram = Spec { payload: noise(end.max(longest), 3), ..header.clone() };
            let mut places: Vec<_> = (0..start)
                .step_by(32_768)
                .map(|at| Place { range: at..(at + 32_768).min(start), more: true })
                .collect();
            places.push(Place { range: start..end, more: false });
            for last_first in [false, true] {
                if last_first {
                    places.rotate_right(1);
                }
                let mut station = Station::usual();
                let mut left = Vec::new();
                for place in &places {
                    if end - place.range.start + later_len <= 65_535 || place.more {
                        left.extend(station.push(Time::ZERO, &datagram.fragment(place), &header));
                    }
                }
                let what = format!("{header:?}: {excess} bytes above, last first: {last_first}");
                let ledger = &station.out.ledger;
                assert_eq!(ledger.event(Event::Reassembled).packets, u64::from(excess <= 0), "{what}");
                assert_eq!(ledger.retired(Reason::FragOversize).packets > 0, excess > 0, "{what}");
                let whole = Spec { payload: datagram.payload[..end].to_vec(), ..header.clone() };
                // With its header, an IPv6 datagram may exceed any MTU. It is then fragmented again.
                let leaves_whole = excess <= 0 && whole.bytes().len() - header.link_len() <= 65_535;
                if excess <= 0 && !leaves_whole {
                    let payload: Vec<u8> = left
                        .iter()
                        .flat_map(|fragment| fragment.ip()[ReadPacket::of(fragment.ip()).body_at..].to_vec())
                        .collect();
                    assert!(left.len() > 1 && payload == whole.payload, "{what}");
                } else {
                    let expected = leaves_whole.then(|| whole.bytes());
                    assert!(frames(&left) == expected.iter().collect::<Vec<_>>(), "{what}");
                }
            }
        }
    }
}

#[test]
fn padding_is_never_payload() {
    for version in [4, 6] {
        for vlans in [None, Some(vec![9])] {
            let mut datagram = ip(version).noise(1_003);
            datagram.vlans = vlans;
            let places = [(0..8, true), (8..16, true), (16..1_000, true), (1_000..1_003, false)];
            each_order(places.len(), &mut |order| {
                for padding in [1, 7, 46] {
                    let mut station = Station::usual();
                    let mut left = Vec::new();
                    for index in order {
                        let (range, more) = places[*index].clone();
                        let mut frame = datagram.fragment(&Place { range, more });
                        frame.extend(vec![0xEE; padding]);
                        left.extend(station.push(Time::ZERO, &frame, &datagram));
                    }
                    assert_eq!(frames(&left), [datagram.bytes()], "version {version}, {padding} bytes of padding");
                }
            });
        }
    }
}

#[test]
fn df_of_the_longest_fragment_is_restored() {
    for flags in 0..8u32 {
        for longest in 0..3usize {
            let mut datagram = ip(4).noise(800);
            let mut at = 0;
            let places: Vec<_> = (0..3)
                .map(|index| {
                    let end = if index == 2 { 800 } else { at + if index == longest { 480 } else { 160 } };
                    let place = Place { range: at..end, more: index < 2 };
                    at = end;
                    place
                })
                .collect();
            each_order(3, &mut |order| {
                let mut station = Station::usual();
                let mut left = Vec::new();
                for index in order {
                    datagram.ip_flags = if flags >> index & 1 == 1 { DF } else { 0 };
                    left.extend(station.push(Time::ZERO, &datagram.fragment(&places[*index]), &datagram));
                }
                let lens: Vec<_> = places.iter().map(|place| place.range.len()).collect();
                let expected =
                    (0..3).any(|index| flags >> index & 1 == 1 && lens[index] == *lens.iter().max().unwrap());
                assert_eq!(
                    ReadPacket::of(left[0].ip()).dont_fragment,
                    expected,
                    "{flags:b}, piece {longest} the longest"
                );
            });
        }
    }
}

#[test]
fn an_unfragmented_packet_passes_unchanged() {
    for header in headers() {
        let datagram = datagram(&header, 1_200);
        let mut station = Station::usual();
        assert_eq!(frames(&station.push(Time::ZERO, &datagram.bytes(), &header)), [datagram.bytes()]);
        assert_eq!(station.out.pool.in_use_count(), 0);
    }
}

#[test]
fn order_and_interleaving_of_many_datagrams_do_not_matter() {
    // Identifications that share a hint, in rounds: one piece of each, then the next of each.
    for version in [4, 6] {
        for step in [1, 32, 64, 128] {
            let datagrams: Vec<Spec> = (0..40)
                .map(|index| {
                    let mut datagram = Spec { payload: noise(5_000, index), ..ip(version).noise(0) };
                    datagram.id = 7 + step * index as u32;
                    datagram
                })
                .collect();
            let fragments: Vec<_> = datagrams.iter().map(|datagram| datagram.fragments(1_500)).collect();
            let mut station = Station::joining(Limits { bytes: 8 << 20, timeout: None }, Late::Retire);
            let mut left = Vec::new();
            for round in 0..fragments[0].len() {
                for of_one in &fragments {
                    left.extend(station.push(Time::ZERO, &of_one[round], &datagrams[0]));
                }
            }
            let expected: Vec<_> = datagrams.iter().map(Spec::bytes).collect();
            assert_eq!(frames(&left), expected, "version {version}, identifications {step} apart");
        }
    }
}

fn check_marks(version: u8, marks: &[u8], turned: usize) {
    let count = marks.len();
    let datagram = ip(version).noise(64 * count);
    let mut station = Station::usual();
    let mut left = Vec::new();
    for index in 0..count {
        let index = (index + turned) % count;
        let mut header = datagram.clone();
        header.tos |= marks[index];
        let place = Place { range: 64 * index..64 * (index + 1), more: index + 1 < count };
        left.extend(station.push(Time::ZERO, &header.fragment(&place), &datagram));
    }
    let what = format!("{marks:?} in version {version}, first {turned}");
    // One fragment alone is a whole datagram, and its mark stays.
    match joined_mark(marks.iter().copied()) {
        Some(Some(mark)) => assert_eq!(ReadPacket::of(left[0].ip()).ecn(), mark, "{what}"),
        Some(None) => assert!([1, 2].contains(&ReadPacket::of(left[0].ip()).ecn()), "{what}"),
        None => {
            assert_eq!(left, [], "{what}");
            assert_eq!(station.out.ledger.retired(Reason::FragEcnMix).packets, count as u64, "{what}");
            assert_eq!(station.out.pool.in_use_count(), 0, "{what}");
        }
    }
    if marks.contains(&CE) && !left.is_empty() {
        assert_eq!(ReadPacket::of(left[0].ip()).ecn(), CE, "congestion is never forgotten: {what}");
    }
}

/// Checks that late released fragments carry exactly these octets, in order, each once, none above the MTU.
fn check_released(left: &[Left], header: &Spec, held: &[Option<u8>], end_came: bool, mtu: usize, what: &str) {
    let mut octets = vec![None; held.len()];
    let mut before = 0;
    for (index, fragment) in left.iter().enumerate() {
        let seen = ReadPacket::of(fragment.ip());
        let (offset, more) = seen.fragment.unwrap_or_else(|| panic!("nothing is delivered whole: {what}"));
        let payload = seen.body();
        assert_eq!((seen.id, seen.ip_len()), (header.id, fragment.ip().len()), "{what}");
        assert!(seen.ip_len() <= mtu, "{} bytes: {what}", seen.ip_len());
        assert!(offset >= before, "pieces leave in order: {what}");
        assert!(!more || payload.len().is_multiple_of(8), "{what}");
        let is_end = end_came && offset + payload.len() == held.len();
        assert_eq!(more, !is_end, "piece {index}: {what}");
        let expected = header.fragment_len(offset);
        assert_eq!(seen.body_at, expected, "options that go with it: {what}");
        before = offset + payload.len();
        octets[offset..before].copy_from_slice(&somes(payload));
    }
    assert_eq!(octets, held, "{what}");
}

fn datagrams_of_each_count(header: &Spec, mtu: usize) -> Vec<(Spec, Vec<Vec<u8>>)> {
    let (first, later) = ((mtu - header.fragment_len(0)) / 8 * 8, (mtu - header.fragment_len(8)) / 8 * 8);
    let longest = 65_400 - header.fragment_len(0);
    let lens = (0..5usize).flat_map(|more| [1, 7, 8, later - 1, later].map(|len| first + more * later + len));
    let mut datagrams: Vec<(Spec, Vec<Vec<u8>>)> = Vec::new();
    for len in lens.filter(|len| *len <= longest) {
        let datagram = datagram(header, len);
        let fragments = datagram.fragments(mtu);
        if (2..=5).contains(&fragments.len()) {
            datagrams.push((datagram, fragments));
        }
    }
    datagrams
}

/// Headers of both versions: plain, and with others in front of the fragmented part.
fn headers() -> Vec<Spec> {
    let plain = |version| Spec { tos: 0xB8, ..ip(version) };
    let v4 = |options: &[Vec<u8>]| Spec { ip_options: options.concat(), ..plain(4) };
    let v6 = |extensions: &[(u8, usize)]| Spec {
        extensions: extensions.iter().map(|(kind, len)| extension(*kind, *len)).collect(),
        ..plain(6)
    };
    vec![
        v4(&[]),
        v6(&[]),
        v4(&[copied_option(), uncopied_option()]),
        v6(&[(HOP_BY_HOP, 8), (DESTINATION_OPTIONS, 16), (ROUTING, 24)]),
        v4(&[copied_option()]),
        v4(&[uncopied_option()]),
        v4(&[copied_option(), uncopied_option(), uncopied_option()]),
        v6(&[(HOP_BY_HOP, 16)]),
        v6(&[(DESTINATION_OPTIONS, 8)]),
        v6(&[(ROUTING, 8)]),
        Spec { ttl: 1, ..plain(4).vlan(5) },
        Spec { id: u32::MAX, ..plain(6).vlan(5).vlan(6) },
    ]
}

fn mtus(header: &Spec) -> Vec<usize> {
    [68, 576, 1_280, 1_500, 9_000, 16_384].into_iter().filter(|mtu| *mtu >= mtu_min(header)).collect()
}

fn mtu_min(header: &Spec) -> usize {
    if header.version() == 4 { 68 } else { 1_280 }
}

fn timeout(header: &Spec) -> Duration {
    Duration::from_secs(if header.version() == 4 { 30 } else { 60 })
}

fn just_before(moment: Duration) -> Time {
    Time::ZERO + (moment - Duration::from_nanos(1))
}

fn datagram(header: &Spec, payload_len: usize) -> Spec {
    Spec { payload: noise(payload_len, payload_len as u64), ..header.clone() }
}

fn somes(bytes: &[u8]) -> Vec<Option<u8>> {
    bytes.iter().copied().map(Some).collect()
}

fn two(fragments: Vec<Vec<u8>>) -> [Vec<u8>; 2] {
    fragments.try_into().expect("2,000 bytes leave in two pieces")
}

fn frames(left: &[Left]) -> Vec<&[u8]> {
    left.iter().map(|left| left.frame.as_slice()).collect()
}
