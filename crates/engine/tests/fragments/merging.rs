//! Fragments -> fragments merged in order, up to the next link's MTU.
//!
//! No byte is lost. A host reassembles the same datagrams from the merged fragments as from the received fragments.

use crate::rig::*;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use wideload_engine::packet::{Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Aggregation, Coalescer, Event, FragmentMerger, FragmentPolicy, Full, Hold, Late, Limits, MergeLimits, Mode,
    Output, Prefixes, Reason, Reassembler, Role, Rules, RunsBy, Side, Toggle,
};

// The laws.

#[test]
fn merging_changes_no_datagram_in_any_order_with_any_repeat() {
    let payload = pattern(5 * 24 - 3);
    let whole = fragments(4, &payload, 24);
    assert_eq!(whole.len(), 5);
    let mut whole_at_once = 0;
    for order in orders(6) {
        for repeated in 0..5 {
            let sent: Vec<_> =
                order.iter().map(|index| whole[if *index == 5 { repeated } else { *index }].clone()).collect();
            // Room for two fragments, for three, and for all.
            for mtu in [68, 92, 200] {
                let mut rig = joining(mtu);
                let left = through(&mut rig, &sent);
                compare(&sent, &left, mtu, &format!("{order:?}, {repeated} twice, at {mtu}"));
                whole_at_once += rig.event(Event::MergedComplete);
            }
        }
    }
    assert!(whole_at_once >= 5, "{whole_at_once}");
}

#[test]
fn two_interleaved_datagrams_share_memory_and_lose_nothing() {
    let [one, other] = [1, 2].map(|id| fragments_of(id, &pattern(70), 24));
    let both = [one, other].concat();
    for order in orders(6) {
        let sent: Vec<_> = order.iter().map(|index| both[*index].clone()).collect();
        for runs in [RunsBy::Datagram, RunsBy::Flow, RunsBy::All] {
            for full in [Full::Pass, Full::Evict] {
                for run_count in [0, 1, 2] {
                    for mtu in [68, 200] {
                        let limits = MergeLimits { full, runs, bytes: run_count * run_charge(mtu), ..USUAL };
                        let mut rig = joining_within(mtu, limits);
                        let left = through(&mut rig, &sent);
                        compare(&sent, &left, mtu, &format!("{order:?}, {limits:?}, at {mtu}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_host_reassembles_the_same_datagrams_after_merging() {
    let mut events = BTreeMap::new();
    let mut delivered = 0;
    for seed in 0..seed_count(4_000) {
        let mut random = Rng::with_seed(seed);
        let scene = Scene::draw(&mut random);
        let mut rig = joining_within(scene.mtu, scene.limits);
        let mut left = Vec::new();
        for (gap, frame) in &scene.sent {
            left.extend(rig.wait(*gap));
            left.extend(rig.push(frame));
            let deadline = rig.side.next_deadline();
            let what = format!("seed {seed}: held until {deadline:?} at {:?}", rig.now);
            assert!(
                deadline.is_none_or(|deadline| deadline > rig.now && deadline <= rig.now + USUAL.timeout),
                "{what}"
            );
            let charged = rig.side.aggregation.merger.as_ref().map_or(0, FragmentMerger::charged);
            assert!(charged <= scene.limits.bytes, "seed {seed}: {charged} bytes of {}", scene.limits.bytes);
        }
        left.extend(rig.flush());
        assert_eq!((rig.held(), rig.side.next_deadline()), (0, None), "seed {seed}");
        let sent: Vec<_> = scene.sent.iter().map(|(_, frame)| frame.clone()).collect();
        delivered += compare(&sent, &left, scene.mtu, &format!("seed {seed}"));
        check_books(&rig, &sent, &left, &format!("seed {seed}"));
        for event in JOINED.into_iter().chain([Event::Merged, Event::MergeRefused]) {
            *events.entry(event.name()).or_insert(0) += rig.event(event);
        }
    }
    // Every rule was applied, and the receiving hosts got their datagrams.
    assert!(delivered > 2_000 && events.values().all(|count| *count > 50), "{delivered} datagrams, {events:?}");
}

#[test]
fn waiting_for_a_flow_does_not_change_a_datagram() {
    let (mut gathered, mut refused) = (0, 0);
    for seed in 0..seed_count(600) {
        let mut random = Rng::with_seed(seed);
        let is_v6 = random.bool();
        let mut came = Vec::new();
        for id in 1..=random.u32(2..8) {
            let payload = pattern([400, 1_200, 1_600, 1_600, 1_600][random.usize(..5)]);
            let flags = if random.bool() { DF } else { 0 };
            let room = [4_000, 4_000, 200, 800, 1_000][random.usize(..5)];
            if is_v6 {
                came.extend(cut(&udp(6).id(id).payload(payload), room));
            } else {
                came.extend(cut(&udp(4).id(id).ip_flags(flags).payload(payload), room));
            }
        }
        let [alone, joined] = [false, true].map(|policies| {
            let mut rig = Rig::new(1_400, Role::Transit, Some(Late::Retire));
            rig.side.aggregation.coalescer =
                policies.then(|| Coalescer::new(1 << 20, udp_gso_packets(), Vec::new(), secret()));
            let mut left = rig.push_all(&came);
            left.extend(rig.flush());
            // A rejected GSO packet causes one ICMP error: not compared.
            left.retain(|frame| ReadPacket::of(frame).protocol == UDP);
            left.sort();
            gathered += rig.event(Event::Coalesced);
            refused += rig.retired(Reason::TooBig);
            (left, rig.retired(Reason::TooBig))
        });
        assert!(alone == joined, "seed {seed}: {:?} leave, alone {:?}", places(&joined.0), places(&alone.0));
    }
    assert!(gathered > 1_000 && refused > 100, "{gathered}, {refused}");
}

// RFC 6946: an atomic fragment is a whole datagram.
#[test]
fn atomic_fragments_are_treated_as_unfragmented() {
    let mut gathered = 0;
    for seed in 0..seed_count(200) {
        let mut random = Rng::with_seed(seed);
        let lens: Vec<usize> =
            (0..random.usize(2..8)).map(|_| [400, 400, 1_200, 1_600][random.usize(..4)]).collect();
        let are_atomic: Vec<bool> = lens.iter().map(|_| random.bool()).collect();
        let [plain, atomic] = [false, true].map(|may_be| {
            let mut rig = Rig::new(1_400, Role::Transit, Some(Late::Retire));
            rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, udp_gso_packets(), Vec::new(), secret()));
            let came: Vec<_> = (lens.iter().zip(&are_atomic).enumerate())
                .map(|(id, (len, is_atomic))| {
                    let fragment = (may_be && *is_atomic).then_some((0, false));
                    Spec { fragment, ..udp(6).id(id as u32).payload(pattern(*len)) }.bytes()
                })
                .collect();
            let mut left = rig.push_all(&came);
            left.extend(rig.flush());
            // A rejected GSO packet causes one ICMP error: not compared.
            left.retain(|frame| ReadPacket::of(frame).protocol == UDP);
            let runs: u64 = Event::RUN_ENDS.iter().map(|event| rig.event(*event)).sum();
            gathered += rig.event(Event::Coalesced) - runs;
            (left, runs, rig.retired(Reason::TooBig))
        });
        assert!(plain == atomic, "seed {seed}: {:?} leave, not {:?}", places(&atomic.0), places(&plain.0));
    }
    assert!(gathered > 100, "{gathered}");
}

// The rules that end a run, one by one.

#[test]
fn a_datagram_that_fits_leaves_with_its_last_fragment() {
    let payload = pattern(1_480);
    let sent = fragments(4, &payload, 296);
    let mut rig = joining(1_500);
    let (last, others) = sent.split_last().unwrap();
    assert_eq!(rig.push_all(others), [[0; 0]; 0]);
    assert_eq!(rig.held(), 4);
    assert_whole(&rig.push(last), &payload);
    assert_counts(&rig, &[(Event::Merged, 5), (Event::MergedComplete, 1)]);
}

#[test]
fn a_run_leaves_if_the_next_fragment_does_not_fit() {
    let sent = fragments(4, &pattern(3_000), 488);
    let mut rig = joining(1_500);
    assert_eq!(places(&rig.push_all(&sent[..3])), []);
    assert_eq!(places(&rig.push(&sent[3])), [(0, 1_464, true)]);
    assert_eq!(places(&rig.push_all(&sent[4..6])), [], "the next run starts where the last one ended");
    assert_eq!(places(&rig.push(&sent[6])), [(1_464, 1_464, true), (2_928, 72, false)]);
    assert_counts(&rig, &[(Event::Merged, 6), (Event::MergedFull, 2)]);
}

#[test]
fn a_run_of_exactly_the_mtu_does_not_wait() {
    let sent = fragments(4, &pattern(2_000), 296);
    let mut rig = joining(1_500);
    let left = rig.push_all(&sent[..5]);
    assert_eq!((places(&left), left[0].len()), (vec![(0, 1_480, true)], 1_500));
    assert_counts(&rig, &[(Event::Merged, 5), (Event::MergedFull, 1)]);
}

#[test]
fn a_datagrams_last_fragments_leave_at_once() {
    let sent = fragments(4, &pattern(1_000), 300 / 8 * 8);
    let mut rig = joining(700);
    assert_eq!(places(&rig.push_all(&sent)), [(0, 592, true), (592, 408, false)]);
    assert_counts(&rig, &[(Event::Merged, 4), (Event::MergedFull, 1), (Event::MergedLast, 1)]);
}

#[test]
fn a_gap_closes_a_run_and_opens_another() {
    let sent = fragments(4, &pattern(800), 80);
    let mut rig = joining(1_500);
    assert_eq!(places(&rig.push_all(&sent[..3])), []);
    assert_eq!(places(&rig.push(&sent[4])), [(0, 240, true)]);
    assert_eq!(places(&rig.push_all(&sent[5..])), [(320, 480, false)]);
    assert_counts(&rig, &[(Event::Merged, 9), (Event::MergedGap, 1), (Event::MergedLast, 1)]);
}

#[test]
fn a_repeat_or_overlap_closes_the_run_and_passes_unchanged() {
    let sent = fragments(4, &pattern(800), 80);
    for (start, len) in [(0, 80), (80, 80), (0, 160), (80, 240), (8, 8), (152, 16)] {
        let other = fragment(4, start, &vec![7; len], true);
        let mut rig = joining(1_500);
        rig.push_all(&sent[..2]);
        let left = rig.push(&other);
        assert_eq!(places(&left)[0], (0, 160, true), "{start} to {}", start + len);
        assert_eq!(left[1..], [other], "{start} to {}", start + len);
        assert_counts(&rig, &[(Event::Merged, 2), (Event::MergedGap, 1)]);
    }
}

#[test]
fn a_changed_header_closes_the_run() {
    let base = |index: usize| ip(4).part(index * 80, &pattern(240)[index * 80..][..80], true);
    type Change = fn(Spec) -> Spec;
    let changes: [(&str, Change); 5] = [
        ("class", |fragment| Spec { tos: 0x20, ..fragment }),
        ("congestion mark", |fragment| Spec { tos: 3, ..fragment }),
        ("hop count", |fragment| Spec { ttl: 63, ..fragment }),
        ("the reserved bit", |fragment| Spec { ip_flags: RESERVED, ..fragment }),
        ("a copied option", |fragment| Spec { ip_options: vec![0x94, 4, 0, 0], ..fragment }),
    ];
    for (what, change) in changes {
        let mut rig = joining(1_500);
        rig.push_all(&[base(0).bytes(), base(1).bytes()]);
        let changed = change(base(2)).bytes();
        assert_eq!(places(&rig.push(&changed)), [(0, 160, true)], "{what}");
        assert_only(&rig.flush(), &changed);
        assert_counts(&rig, &[(Event::Merged, 2), (Event::MergedChanged, 1)]);
    }
    // A fragment with DF is neither merged nor held.
    let mut rig = joining(1_500);
    rig.push_all(&[base(0).bytes(), base(1).bytes()]);
    let fragment = base(2).ip_flags(DF).bytes();
    assert_eq!(places(&rig.push(&fragment)), [(0, 160, true), (160, 80, true)]);
    assert_counts(&rig, &[(Event::Merged, 2), (Event::MergedChanged, 1)]);
    // The link header is shared too: the VLAN priority, the sender's MAC address.
    for (at, value) in [(14, 0x20), (11, 9)] {
        let frame = |fragment: &Spec, at: usize, value: u8| {
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 5, 8, 0];
            frame[at] = value;
            [frame, fragment.bytes()].concat()
        };
        let mut rig = Rig { link_type: LinkType::Ethernet, ..joining(1_500) };
        rig.push_all(&[frame(&base(0), 15, 5), frame(&base(1), 15, 5)]);
        let changed = frame(&base(2), at, value);
        assert_eq!(rig.push(&changed).len(), 1);
        assert_only(&rig.flush(), &changed);
        assert_counts(&rig, &[(Event::Merged, 2), (Event::MergedChanged, 1)]);
    }
}

#[test]
fn no_fragment_waits_beyond_its_fixed_timeout() {
    let sent = fragments(4, &pattern(800), 80);
    let mut rig = joining(1_500);
    rig.push(&sent[0]);
    let deadline = Time::ZERO + USUAL.timeout;
    for next in &sent[1..4] {
        rig.wait(Duration::from_millis(3));
        assert_eq!(rig.push(next), [[0; 0]; 0]);
        assert_eq!(rig.side.next_deadline(), Some(deadline));
    }
    assert_eq!(places(&rig.wait(Duration::from_nanos(999_999))), []);
    assert_eq!(places(&rig.wait(Duration::from_nanos(1))), [(0, 320, true)]);
    assert_counts(&rig, &[(Event::Merged, 4), (Event::MergedTimeout, 1)]);
    assert_eq!(rig.side.next_deadline(), None);
    assert_eq!(places(&rig.push_all(&sent[4..])), [(320, 480, false)], "what follows joins");
}

#[test]
fn held_fragments_leave_at_the_end_of_the_input() {
    let sent = fragments(4, &pattern(800), 80);
    let mut rig = joining(1_500);
    rig.push_all(&sent[..2]);
    assert_eq!(places(&rig.flush()), [(0, 160, true)]);
    assert_counts(&rig, &[(Event::Merged, 2), (Event::MergedAtEnd, 1)]);
}

#[test]
fn without_a_longer_buffer_the_run_leaves_and_another_opens() {
    let sent = fragments(4, &pattern(8_980), 488);
    let mut rig = joining(9_000);
    rig.out = Output::new(Pool::new(3 * 2_500), None);
    let left = through(&mut rig, &sent);
    // Four fit into the buffer of the first fragment.
    assert_eq!(left.len(), 5);
    assert_eq!(rig.event(Event::MergedEvicted), 4);
    compare(&sent, &left, 9_000, "a short pool");
}

#[test]
fn a_longer_buffer_than_charged_is_used_in_full() {
    let sent = fragments(4, &pattern(8_980), 488);
    let usual = run_charge(9_000);
    for full in [Full::Pass, Full::Evict] {
        for (bytes, left_count) in [(usual, 5), (5 * usual, 1)] {
            let limits = MergeLimits { bytes, full, ..USUAL };
            let mut rig = joining_within(9_000, limits);
            // A pool with one of the longest buffers, and without memory for another of the longer ones.
            let mut pool = Pool::new(68_000 + 3 * 2_500);
            let longest = pool.allocate(65_536).unwrap();
            pool.give(longest);
            rig.out = Output::new(pool, None);
            assert_eq!(places(&rig.push_all(&sent[..4])), []);
            let mut left = rig.push(&sent[4]);
            let (_, buffers) = rig.side.aggregation.held();
            let charged = rig.side.aggregation.merger.as_ref().map(FragmentMerger::charged);
            let pinned = rig.out.pool.heap_len();
            assert_eq!(buffers, 1);
            assert!(
                charged.is_some_and(|charged| charged <= bytes && (charged > 66_000) == (left_count == 1)),
                "{pinned}"
            );
            left.extend(through(&mut rig, &sent[5..]));
            assert_eq!(left.len(), left_count, "{full:?}, {bytes} bytes");
            compare(&sent, &left, 9_000, "a pool with one long buffer");
        }
    }
}

#[test]
fn what_was_joined_for_a_longer_link_is_cut_again_and_nothing_with_df_is_joined() {
    // The side has a smaller MTU than the merger. No packet may be dropped for this reason.
    let part = |flags: u16, start: usize, end: usize| Spec {
        ip_flags: flags | if end < 1_400 { MF } else { 0 },
        ..ip(4).part(start, &pattern(1_400)[start..end], false)
    };
    let came = [(0, 400, true), (400, 480, true), (880, 400, true), (1_280, 120, false)];
    for (flags, count, expected) in [
        (0, 4, &[(0, 576, true), (576, 576, true), (1_152, 248, false)][..]),
        (0, 3, &[(0, 576, true), (576, 576, true), (1_152, 128, true)]),
        (DF, 4, &came),
        (DF, 3, &came[..3]),
    ] {
        let sent = came.map(|(start, len, _)| part(flags, start, start + len).bytes());
        let mut rig = joining(600);
        rig.side.aggregation.merger = Some(FragmentMerger::new(USUAL, 1_500, secret()));
        assert_eq!(places(&through(&mut rig, &sent[..count])), expected);
    }
}

// Fragments that belong to a run, and others.

#[test]
fn a_run_may_start_at_any_offset() {
    let sent = fragments(4, &pattern(800), 80);
    let mut rig = joining(1_500);
    assert_eq!(places(&rig.push_all(&sent[3..])), [(240, 560, false)]);
}

#[test]
fn merged_fragments_have_one_valid_header() {
    for flags in [0, RESERVED] {
        let payload = pattern(240);
        let part = |at: usize, more: u16| {
            let part = ip(4).part(at, &payload[at..at + 80], false);
            Spec { tos: 0xB9, ttl: 17, ip_flags: flags | more, protocol: UDP, ..part }
        };
        let mut rig = joining(1_500);
        rig.push_all(&[part(80, MF).bytes(), part(160, MF).bytes()]);
        let expected = Spec { payload: payload[80..].to_vec(), ..part(80, MF) };
        assert_only(&rig.flush(), &expected.bytes());
        let mut rig = joining(1_500);
        let whole = Spec { payload: payload.clone(), ..part(0, 0) };
        assert_only(
            &rig.push_all(&[part(0, MF).bytes(), part(80, MF).bytes(), part(160, 0).bytes()]),
            &whole.bytes(),
        );
    }
}

#[test]
fn options_of_the_first_fragment_alone_stay_with_it() {
    // A record route option, which only the first fragment carries, and a loose source route, which all fragments
    // carry (RFC 791 section 3.1).
    let route = [0x83, 7, 4, 192, 0, 2, 9];
    let record = [7, 7, 4, 0, 0, 0, 0];
    let first_options = [&record[..], &route, &[0, 0]].concat();
    let payload = pattern(160);
    let part = |at: usize, options: &[u8]| {
        Spec { ip_options: options.to_vec(), ..ip(4).part(at, &payload[at..at + 80], at == 0) }.bytes()
    };
    let joined = Spec { ip_options: first_options.clone(), ..ip(4).payload(payload.clone()) }.bytes();
    let shorter = [&route[..], &[0]].concat();
    // Linux writes no-operations in place of the other options.
    let blanked = [&[1; 7][..], &route, &[0, 0]].concat();
    for options in [&shorter, &blanked] {
        let mut rig = joining(1_500);
        assert_only(&rig.push_all(&[part(0, &first_options), part(80, options)]), &joined);
        // A run that starts later keeps the header of later fragments.
        let [one, other] =
            [80, 160].map(|at| Spec { ip_options: options.clone(), ..ip(4).part(at, &payload[..80], true) });
        rig.push_all(&[one.bytes(), other.bytes()]);
        let expected = Spec { payload: [&payload[..80], &payload[..80]].concat(), ..one };
        assert_only(&rig.flush(), &expected.bytes());
    }
    // The fragment is not merged if its option is missing, differs or cannot be read.
    let other_route = [0x83, 7, 4, 192, 0, 2, 8, 0];
    let unreadable = [&route[..], &[0x94]].concat();
    for options in [&[][..], &other_route, &unreadable] {
        let mut rig = joining(1_500);
        assert_eq!(rig.push_all(&[part(0, &first_options), part(80, options)]).len(), 2, "{options:02x?}");
    }
}

#[test]
fn the_longer_header_of_the_first_fragment_counts_against_the_mtu() {
    let options = vec![7, 39, 4].into_iter().chain([0; 37]).collect::<Vec<u8>>();
    let part = |at: usize, options: &[u8]| {
        Spec { ip_options: options.to_vec(), ..ip(4).part(at, [1; 48], at == 0) }.bytes()
    };
    for (mtu, left_count) in [(156, 1), (155, 2)] {
        let mut rig = joining(mtu);
        assert_eq!(through(&mut rig, &[part(0, &options), part(48, &[])]).len(), left_count, "{mtu}");
    }
}

#[test]
fn a_run_of_one_leaves_unchanged_and_uncounted() {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(Spec { tos: 0x11, ..ip(4).part(16, [5; 8], true) }.bytes());
    // Link padding, which is not part of the packet.
    frame.resize(60, 0xEE);
    let mut rig = Rig { link_type: LinkType::Ethernet, ..joining(1_500) };
    assert_eq!(rig.push(&frame), [[0; 0]; 0]);
    assert_only(&rig.wait(USUAL.timeout), &frame);
    assert_counts(&rig, &[]);
    // The merged payload replaces the padding.
    let mut rig = Rig { link_type: LinkType::Ethernet, ..joining(1_500) };
    let next = Spec { tos: 0x11, ..ip(4).part(24, [6; 8], true) }.bytes();
    rig.push_all(&[frame.clone(), [&frame[..14], &next].concat()]);
    let joined = Spec { tos: 0x11, ..ip(4).part(16, [[5; 8], [6; 8]].concat(), true) }.bytes();
    assert_only(&rig.flush(), &[&frame[..14], &joined].concat());
}

#[test]
fn a_fragment_without_room_for_another_does_not_wait() {
    let payload = pattern(3_000);
    let mut rig = joining(1_500);
    for sent in fragments(4, &payload, 744) {
        assert_only(&rig.push(&sent), &sent);
    }
    assert_counts(&rig, &[]);
    // A fragment of half the room is not too long.
    assert_eq!(through(&mut rig, &fragments_of(9, &payload, 736)).len(), 3);
}

#[test]
fn malformed_fragments_pass_unchanged_in_order() {
    let malformed = [
        ip(4).part(160, [1; 15], true),
        ip(4).part(160, [], true),
        ip(4).part(65_528, [1; 8], false),
        ip(4).part(65_528, [1; 16], true),
        Spec { ip_options: vec![7, 4, 4, 0], ..ip(4).part(160, [1; 8], true) },
    ];
    for malformed in malformed.map(|fragment| fragment.bytes()) {
        let sent = fragments(4, &pattern(800), 80);
        let mut rig = joining(1_500);
        rig.push_all(&sent[..2]);
        let left = rig.push(&malformed);
        assert_eq!(places(&left[..1]), [(0, 160, true)]);
        assert_only(&left[1..], &malformed);
        // Malformed fragments start no run either.
        assert_only(&rig.push(&malformed), &malformed);
        assert_eq!(rig.out.ledger.retired_all().packets, 0);
    }
}

#[test]
fn what_has_passed_is_never_joined_to_what_has_not() {
    // A repeat of the second, and the third with it, would overlap the second at the host.
    let sent = fragments(4, &pattern(400), 80);
    let pick = |order: &[usize]| order.iter().map(|index| sent[*index].clone()).collect::<Vec<_>>();
    for (order, expected) in [
        (&[1, 0, 1, 2, 3, 4][..], &[(80, 80, true), (0, 80, true), (80, 80, true), (160, 240, false)][..]),
        (&[3, 1, 3, 2], &[(240, 80, true), (80, 80, true), (240, 80, true), (160, 80, true)]),
        // The last fragment counts too, though it never waits.
        (&[4, 3, 4], &[(320, 80, false), (240, 80, true), (320, 80, false)]),
    ] {
        let mut rig = joining(1_500);
        assert_eq!(places(&through(&mut rig, &pick(order))), expected, "{order:?}");
    }
    // The datagram is not over either after a fragment that a host drops: that fragment may be sent again.
    let dropped = Spec { ip_options: vec![7, 4, 4, 0], ..ip(4).part(80, &pattern(400)[80..160], true) }.bytes();
    let again = [&sent[..1], &[dropped], &sent[2..], &sent[..2]].concat();
    let left = through(&mut joining(1_500), &again);
    assert_eq!(places(&left[left.len() - 2..]), [(0, 80, true), (80, 80, true)]);
    compare(&again, &left, 1_500, "a piece that a host drops");
    // A datagram that passed in order is forgotten: the next one may have its ID.
    let mut rig = joining(1_500);
    assert_eq!(places(&through(&mut rig, &[sent.clone(), sent.clone()].concat())), [(0, 400, false); 2]);
    // Any other datagram is forgotten after a while, and newer fragments do not extend that time.
    rig.push_all(&pick(&[1, 0]));
    for _ in 0..9 {
        rig.wait(Duration::from_millis(11));
        assert_eq!(rig.push(&sent[0]).len(), 1);
    }
    rig.wait(Duration::from_millis(1));
    assert_whole(&rig.push_all(&sent), &pattern(400));
}

#[test]
fn a_datagram_that_passed_in_two_parts_is_forgotten_with_its_last_fragment() {
    let sent = fragments(4, &pattern(400), 80);
    let mut rig = joining(1_500);
    rig.push_all(&sent[..2]);
    assert_eq!(places(&rig.wait(USUAL.timeout)), [(0, 160, true)]);
    assert_eq!(places(&rig.push_all(&sent[2..])), [(160, 240, false)]);
    // The next datagram has the same ID.
    assert_whole(&rig.push_all(&sent), &pattern(400));
}

#[test]
fn at_most_a_thousand_reordered_datagrams_are_tracked() {
    let sent = fragments(4, &pattern(400), 80);
    for (others, is_known) in [(900, true), (1_100, false)] {
        let mut rig = joining(1_500);
        rig.push_all(&[sent[1].clone(), sent[0].clone()]);
        for id in 0..others {
            let late = Spec { id, protocol: UDP, ..ip(4).part(80, [1; 80], false) };
            rig.push(&late.bytes());
        }
        assert_eq!(rig.push(&sent[0]).len(), usize::from(is_known), "after {others}");
    }
}

#[test]
fn every_part_of_the_key_separates_datagrams() {
    let base = ip(4).part(0, [1; 80], true);
    let next = ip(4).part(80, [2; 80], true);
    let strangers = [
        Spec { id: 0x1235, ..next.clone() },
        Spec { source: [192, 0, 2, 7].into(), ..next.clone() },
        Spec { destination: [192, 0, 2, 7].into(), ..next.clone() },
        Spec { protocol: UDP, ..next.clone() },
        // Both datagrams share one hint.
        Spec { id: 0x1234 + 64, ..next.clone() },
    ];
    for stranger in strangers {
        let mut rig = joining(1_500);
        rig.push_all(&[base.bytes(), stranger.bytes(), next.bytes()]);
        assert_eq!(rig.held(), 3, "{stranger:?}");
        assert_eq!(places(&rig.flush()), [(0, 160, true), (80, 80, true)]);
    }
    let mut rig = joining(1_500);
    rig.push(&base.bytes());
    rig.ingress = Ingress(1);
    rig.push(&next.bytes());
    assert_eq!(places(&rig.flush()), [(0, 80, true), (80, 80, true)], "another port");
    // Another VLAN.
    let frame = |vlan: u8, fragment: &Spec| {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, vlan, 8, 0][..], &fragment.bytes()].concat()
    };
    let mut rig = Rig { link_type: LinkType::Ethernet, ..joining(1_500) };
    rig.push_all(&[frame(1, &base), frame(2, &next)]);
    assert_eq!((rig.held(), rig.flush().len()), (2, 2));
}

#[test]
fn unfragmented_packets_and_ipv6_pass() {
    let mut rig = joining(1_500);
    for packet in [whole(4, &[1; 80]), whole(6, &[1; 80])] {
        assert_only(&rig.push(&packet), &packet);
    }
    // An atomic fragment is forwarded unchanged too (RFC 8200 section 4, R087).
    for sent in fragments(6, &pattern(2_000), 400).iter().chain([&fragment(6, 0, &[1; 8], false)]) {
        assert_only(&rig.push(sent), sent);
    }
    assert_counts(&rig, &[]);
}

#[test]
fn a_complete_datagram_is_coalesced_with_its_flow() {
    let mut rig = joining(1_500);
    rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, udp_gso_packets(), Vec::new(), secret()));
    let datagram = udp(4).ip_flags(0).payload(pattern(800));
    assert_eq!(rig.push_all(&datagram.parts(408)), [[0; 0]; 0], "its flow holds it");
    assert_only(&rig.flush(), &datagram.bytes());
    assert_eq!((rig.event(Event::MergedComplete), rig.event(Event::Coalesced)), (1, 1));
}

#[test]
fn fragmented_datagrams_leave_a_gso_packet_in_fragments() {
    let datagram = |id| udp(4).id(id).payload(pattern(1_600));
    let fragments = |id| cut(&datagram(id), 808);
    let rig = || {
        let mut rig = Rig::new(1_400, Role::Transit, Some(Late::Retire));
        rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, udp_gso_packets(), Vec::new(), secret()));
        rig
    };
    // A GSO packet of such datagrams exceeds the MTU. No datagram is dropped, and no datagram is fragmented into
    // shorter fragments than received.
    let mut policies = rig();
    assert_eq!(policies.push_all(&[fragments(1), fragments(2)].concat()), [[0; 0]; 0], "their flow holds them");
    let left = policies.flush();
    assert_eq!(places(&left), [(0, 808, true), (808, 800, false), (0, 808, true), (808, 800, false)]);
    assert!(ReadPacket::all(&left).iter().all(|wire| wire.dont_fragment));
    assert_eq!((policies.event(Event::Coalesced), policies.retired(Reason::TooBig)), (2, 0));
    // A datagram that came unfragmented is not in their GSO packet. It must not be fragmented, and its sender gets
    // an ICMP error.
    let mut parts = rig();
    let left = parts.push_all([&fragments(1)[..], &[datagram(2).bytes()]].concat().iter());
    assert_eq!(places(&left), [(0, 808, true), (808, 800, false)]);
    assert_eq!((parts.flush().len(), parts.event(Event::RunChanged), parts.retired(Reason::TooBig)), (1, 1, 1));
}

#[test]
fn fragmented_segments_are_coalesced_only_with_each_other() {
    let sent = |number: u16, in_fragments| {
        let whole = tcp(4).id((number + 1).into()).seq((1_000 * number).into()).payload(pattern(1_000));
        cut(&whole, if in_fragments { 512 } else { 1_500 })
    };
    for (in_fragments, lens) in [
        ([false, false, true, false, false], vec![2_000, 1_000, 2_000]),
        ([true, true, false, false, true], vec![2_000, 2_000, 1_000]),
        ([false; 5], vec![5_000]),
        ([true; 5], vec![5_000]),
    ] {
        for mode in [Mode::Resize, Mode::Reversible] {
            let mut rig = Rig::new(9_000, Role::Transit, Some(Late::Retire));
            // A longer hold time would limit runs to a share of the sender's window.
            let hold = Hold::Fixed(Duration::from_millis(1));
            let rules = Rules { mode, hold, udp: false, ..udp_gso_packets() };
            rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, rules, Vec::new(), secret()));
            let came: Vec<_> = (0..5).flat_map(|number| sent(number, in_fragments[number as usize])).collect();
            let mut left = rig.push_all(&came);
            left.extend(rig.flush());
            let left: Vec<_> = left.iter().map(|packet| packet.len() - 40).collect();
            assert_eq!(left, lens, "{in_fragments:?}, {mode:?}");
        }
    }
}

// Limits of memory, and eviction.

#[test]
fn when_full_new_fragments_pass_and_open_runs_continue() {
    let [one, other] = [1, 2].map(|id| fragments_of(id, &pattern(400), 80));
    let limits = MergeLimits { bytes: run_charge(1_500), ..USUAL };
    let mut rig = joining_within(1_500, limits);
    let left: Vec<_> =
        one.iter().zip(&other).flat_map(|(one, other)| [rig.push(one), rig.push(other)].concat()).collect();
    assert_eq!(left.len(), 6, "one leaves whole, the other as it came");
    assert!(other.iter().all(|fragment| left.contains(fragment)));
    // The last fragment needs no memory.
    assert_counts(&rig, &[(Event::Merged, 5), (Event::MergedComplete, 1), (Event::MergeRefused, 4)]);
    // With one byte less, no run fits.
    let mut rig = joining_within(1_500, MergeLimits { bytes: limits.bytes - 1, ..limits });
    assert_eq!(through(&mut rig, &one), one);
    assert_eq!(rig.event(Event::MergeRefused), 4);
}

#[test]
fn with_eviction_the_oldest_run_leaves_for_a_new_one() {
    let [one, other] = [1, 2].map(|id| fragments_of(id, &pattern(400), 80));
    let limits = MergeLimits { bytes: run_charge(1_500), full: Full::Evict, ..USUAL };
    let mut rig = joining_within(1_500, limits);
    assert_eq!(places(&rig.push_all(&one[..2])), []);
    assert_eq!(places(&rig.push(&other[0])), [(0, 160, true)]);
    assert_eq!(places(&rig.push_all(&other[1..])), [(0, 400, false)]);
    assert_counts(&rig, &[(Event::Merged, 7), (Event::MergedEvicted, 1), (Event::MergedComplete, 1)]);
}

#[test]
fn a_run_is_charged_its_maximum_from_the_start() {
    let sent = fragments(4, &pattern(8_980), 488);
    let charge = run_charge(9_000);
    assert!((16_384..18_000).contains(&charge), "{charge}");
    let mut rig = joining(9_000);
    for fragment in &sent[..18] {
        rig.push(fragment);
        assert_eq!(rig.side.aggregation.merger.as_ref().map(FragmentMerger::charged), Some(charge));
    }
    assert_whole(&rig.push(&sent[18]), &pattern(8_980));
    assert_eq!(rig.side.aggregation.merger.as_ref().map(FragmentMerger::charged), Some(0));
}

#[test]
fn the_shared_run_ends_at_any_datagram_and_a_flows_at_its_own() {
    let [one, other] = [1, 2].map(|id| fragments_of(id, &pattern(400), 80));
    let elsewhere = ip(4).id(3).to([192, 0, 2, 77]).payload(pattern(400)).parts(80);
    for (runs, after_other_flow, after_own_flow) in
        [(RunsBy::Datagram, 0, 0), (RunsBy::Flow, 0, 1), (RunsBy::All, 1, 1)]
    {
        let mut rig = joining_within(1_500, MergeLimits { runs, ..USUAL });
        rig.push_all(&one[..2]);
        assert_eq!(rig.push(&elsewhere[0]).len(), after_other_flow, "{runs:?}");
        let mut rig = joining_within(1_500, MergeLimits { runs, ..USUAL });
        rig.push_all(&one[..2]);
        assert_eq!(rig.push(&other[0]).len(), after_own_flow, "{runs:?}");
        assert_eq!(rig.event(Event::MergedEvicted), after_own_flow as u64);
        // An unfragmented packet evicts no run.
        assert_eq!(rig.push(&whole(4, &[1; 8])).len(), 1);
    }
}

#[test]
fn each_destination_has_the_policy_of_its_prefix() {
    let prefix = |text: &str| text.parse().unwrap();
    let policies = Prefixes::new(FragmentPolicy::Off)
        .with(prefix("198.51.100.0/24"), FragmentPolicy::Merge)
        .with(prefix("198.51.100.128/25"), FragmentPolicy::Reassemble)
        .with(prefix("203.0.113.7"), FragmentPolicy::ReassembleHop);
    let sent = |destination: [u8; 4]| ip(4).to(destination).payload(pattern(3_000)).parts(488);
    let cases = [([198, 51, 100, 2], 3), ([198, 51, 100, 200], 1), ([203, 0, 113, 7], 1), ([203, 0, 113, 8], 7)];
    for (destination, left_count) in cases {
        let mut rig = joining(9_000);
        rig.side.aggregation.merger = Some(FragmentMerger::new(USUAL, 1_500, secret()));
        rig.side.aggregation.policies = policies.clone();
        // Without the policy's stage, fragments pass.
        let mut without = Rig {
            side: Side::of(Aggregation { policies: policies.clone(), ..Aggregation::default() }, rig.side.sizing),
            ..rig
        };
        let sent = sent(destination);
        assert_eq!(through(&mut without, &sent), sent);
        let aggregation = &mut without.side.aggregation;
        aggregation.merger = Some(FragmentMerger::new(USUAL, 1_500, secret()));
        aggregation.reassembler = Some(Reassembler::new(LIMITS, RELEASE, secret()));
        assert_eq!(through(&mut without, &sent).len(), left_count, "{destination:?}");
    }
}

// R010, R031, rel:C1
#[test]
fn a_router_reassembles_only_by_explicit_policy() {
    let sent = fragments(4, &pattern(3_000), 488);
    let mut rig = Rig::router(9_000);
    assert_eq!(rig.push_all(&sent), sent);
    // A merger without a policy merges nothing.
    rig.side.aggregation.merger = Some(FragmentMerger::new(USUAL, 9_000, secret()));
    assert_eq!(rig.push_all(&sent), sent);
    // If every other fragment takes another path, the remaining ones leave unchanged within the time-out.
    let mut rig = joining(9_000);
    let half: Vec<_> = sent.iter().step_by(2).cloned().collect();
    let mut left = rig.push_all(&half);
    left.extend(rig.wait(USUAL.timeout));
    assert_eq!(left, half);
}

// Reassembly for the next hop.

#[test]
fn fragments_of_two_hops_are_reassembled_separately() {
    let frame =
        |station: u8, fragment: &[u8]| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, station, 8, 0][..], fragment].concat();
    let sent = fragments(4, &pattern(160), 80);
    for (join, left_count) in [(FragmentPolicy::ReassembleHop, 0), (FragmentPolicy::Reassemble, 1)] {
        let mut rig = Rig { link_type: LinkType::Ethernet, ..rejoining(join, 1_500) };
        assert_eq!(rig.push_all(&[frame(1, &sent[0]), frame(2, &sent[1])]).len(), left_count, "{join:?}");
    }
    let mut rig = Rig { link_type: LinkType::Ethernet, ..rejoining(FragmentPolicy::ReassembleHop, 1_500) };
    assert_eq!(rig.push_all(&[frame(1, &sent[0]), frame(1, &sent[1])]).len(), 1);
    // Without a link header all fragments are from one station.
    let mut rig = rejoining(FragmentPolicy::ReassembleHop, 1_500);
    assert_whole(&rig.push_all(&sent), &pattern(160));
}

#[test]
fn hop_by_hop_a_long_datagram_is_refragmented() {
    let payload = pattern(4_480);
    let sent = fragments(4, &payload, 272);
    let mut rig = rejoining(FragmentPolicy::ReassembleHop, 1_500);
    let left = rig.push_all(&sent);
    assert_eq!(places(&left), [(0, 1_480, true), (1_480, 1_480, true), (2_960, 1_480, true), (4_440, 40, false)]);
    assert_whole(&Rig::host().push_all(&left), &payload);
}

#[test]
fn ipv6_leaves_within_received_lengths_or_whole_toward_its_host() {
    let payload = pattern(3_000);
    // Fragments of unequal length; the whole datagram would fit.
    let cuts = [0, 400, 1_600, 1_608, 2_400, 3_000];
    let sent: Vec<_> =
        cuts.windows(2).map(|cut| fragment(6, cut[0], &payload[cut[0]..cut[1]], cut[1] < 3_000)).collect();
    for sent in [sent.clone(), sent.iter().rev().cloned().collect()] {
        let mut rig = rejoining(FragmentPolicy::ReassembleHop, 9_000);
        let left = rig.push_all(&sent);
        assert_eq!(places(&left), [(0, 1_200, true), (1_200, 1_200, true), (2_400, 600, false)]);
        assert!(ReadPacket::all(&left).iter().all(|wire| wire.id == 0x1234 && wire.ip_len() <= 1_248));
        assert_whole(&Rig::host().push_all(&left), &payload);
        assert_whole(&rejoining(FragmentPolicy::Reassemble, 9_000).push_all(&sent), &payload);
    }
}

#[test]
fn long_ipv6_fragments_are_refused_as_without_reassembly() {
    let mut rig = rejoining(FragmentPolicy::ReassembleHop, 1_300);
    let answers = rig.push_all(&fragments(6, &pattern(3_000), 1_400));
    assert_eq!(answers.len(), 1, "Packet Too Big");
    assert_eq!((answers[0][40], rig.retired(Reason::TooBig)), (2, 1));
}

#[test]
fn late_ipv6_leaves_hop_by_hop_within_received_lengths() {
    let payload = pattern(3_000);
    for (lens, first) in [(600, 0), (600, 1), (8, 0)] {
        let sent = fragments(6, &payload, lens);
        let mut rig = rejoining(FragmentPolicy::ReassembleHop, 9_000);
        rig.push_all(&sent[first..3]);
        let left = rig.wait(seconds(60));
        assert!(ReadPacket::all(&left).iter().all(|wire| wire.ip_len() <= 48 + lens), "{:?}", places(&left));
        let bytes: usize = ReadPacket::all(&left).iter().map(|wire| wire.body().len()).sum();
        assert_eq!(bytes, (3 - first) * lens);
    }
    // A last fragment of few bytes alone.
    let last = fragment(6, 1_000, &[1; 3], false);
    let mut rig = rejoining(FragmentPolicy::ReassembleHop, 9_000);
    rig.push(&last);
    assert_only(&rig.wait(seconds(60)), &last);
}

#[test]
fn hop_by_hop_keeps_the_fragment_header() {
    let atomic = fragment(6, 0, &[1; 80], false);
    assert_only(&rejoining(FragmentPolicy::ReassembleHop, 1_500).push(&atomic), &atomic);
    assert_whole(&rejoining(FragmentPolicy::Reassemble, 1_500).push(&atomic), &[1; 80]);
}

// Claims of papers.

// cB11
#[test]
fn seventeen_small_fragments_leave_as_four() {
    let sent = fragments(4, &pattern(4_480), 272);
    assert_eq!((sent.len(), sent[0].len()), (17, 292));
    let mut rig = joining(1_500);
    let left = through(&mut rig, &sent);
    assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [1_380, 1_380, 1_380, 420]);
    assert_whole(&Rig::host().push_all(&left), &pattern(4_480));
    assert_eq!(through(&mut joining(9_000), &sent).len(), 1);
}

// cB12
#[test]
fn with_few_buffers_eviction_merges_nothing_and_passing_merges_some() {
    let left = |datagrams: usize, buffers: usize, full: Full, mtu: u16| {
        let limits = MergeLimits { bytes: buffers * run_charge(mtu), full, ..USUAL };
        let sent = woven(datagrams);
        assert_eq!(sent.len(), 19 * datagrams);
        through(&mut joining_within(mtu, limits), &sent).len()
    };
    assert_eq!(left(2, 1, Full::Evict, 1_500), 38, "of 38");
    assert_eq!(left(2, 1, Full::Evict, 9_000), 38, "of 38");
    assert_eq!(left(16, 8, Full::Evict, 1_500), 297, "of 304");
    assert_eq!(left(16, 8, Full::Pass, 1_500), 208, "of 304: eight by seven, eight as they came");
    for datagrams in [1, 2, 4, 8, 16, 32] {
        for (mtu, whole) in [(1_500, 7), (9_000, 1)] {
            let (came, ideal) = (19 * datagrams, whole * datagrams);
            for buffers in [1, 2, 4, 8, 16, 32] {
                let what = format!("{datagrams} datagrams, {buffers} buffers, {mtu}");
                let passing = left(datagrams, buffers, Full::Pass, mtu);
                if buffers >= datagrams {
                    assert_eq!((passing, left(datagrams, buffers, Full::Evict, mtu)), (ideal, ideal), "{what}");
                }
                // The gain is at least in proportion to the number of buffers per datagram.
                let gain = (came - ideal) * buffers.min(datagrams);
                assert!((came - passing) * datagrams >= gain, "{what}: {passing} of {came}, at best {ideal}");
            }
        }
    }
    // If all datagrams share one run, any other datagram evicts the run. The alternative is one run for each flow
    // (C13).
    let by = |runs| through(&mut joining_within(1_500, MergeLimits { runs, ..USUAL }), &woven(2)).len();
    assert_eq!((by(RunsBy::All), by(RunsBy::Flow), by(RunsBy::Datagram)), (38, 14, 14));
}

// Helpers.

/// Received fragments, each with the time since the one before it.
struct Scene {
    mtu: u16,
    limits: MergeLimits,
    sent: Vec<(Duration, Vec<u8>)>,
}

impl Scene {
    fn draw(random: &mut Rng) -> Scene {
        let mtu = *random.choice(&[68, 100, 296, 576, 1_500, 1_500, 9_000, 65_535]).unwrap();
        let bytes = *random.choice(&[0, 1, 2, 3, 100, 100, 100]).unwrap() * run_charge(mtu);
        let full = *random.choice(&[Full::Pass, Full::Evict]).unwrap();
        let runs = *random.choice(&[RunsBy::Datagram, RunsBy::Datagram, RunsBy::Flow, RunsBy::All]).unwrap();
        let limits = MergeLimits { bytes, full, runs, ..USUAL };
        let datagrams: Vec<_> = (0..random.usize(1..=4)).map(|_| draw_fragments(random, mtu)).collect();
        let mut sent = weave(random, datagrams);
        disorder(random, &mut sent);
        // All fragments arrive within the time in which repeats are recognised, some after the time-out of merging.
        let mut left_us = 90_000;
        let sent = sent.into_iter().map(|fragment| {
            let gap = if random.u8(..10) == 0 { random.u64(..12_000).min(left_us) } else { 0 };
            left_us -= gap;
            (Duration::from_micros(gap), fragment.bytes())
        });
        Scene { mtu, limits, sent: sent.collect() }
    }
}

/// The fragments of a datagram, in order.
fn draw_fragments(random: &mut Rng, mtu: u16) -> Vec<Spec> {
    let longest = *random.choice(&[200, 2_000, 10_000]).unwrap();
    let payload_len = random.usize(17..longest);
    let dont_fragment = random.u8(..4) == 0;
    // Packets with DF must fit the MTU with the longest header.
    let room_max = if dont_fragment { usize::from(mtu) - 60 } else { 1_440 };
    let room = (8 * random.usize(1..=150)).max(payload_len / 40).min(room_max).max(8) / 8 * 8;
    let even = random.bool();
    let options = *random.choice(&[0, 0, 0, 1, 2, 3]).unwrap();
    let (copied, uncopied) = ([0x83, 7, 4, 192, 0, 2, 9, 0], [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let (first, later) = match options {
        0 => (vec![], vec![]),
        1 => (copied.to_vec(), copied.to_vec()),
        2 => ([&uncopied[..], &copied].concat(), copied.to_vec()),
        _ => ([&uncopied[..], &copied].concat(), [&[1; 12][..], &copied].concat()),
    };
    let header = Spec {
        source: [192, 0, 2, random.u8(1..3)].into(),
        id: random.u32(..3) * *random.choice(&[1, 64]).unwrap(),
        protocol: *random.choice(&[UDP, EXPERIMENT]).unwrap(),
        tos: *random.choice(&[0, 2, 0xB8]).unwrap(),
        ip_flags: if dont_fragment { DF } else { 0 },
        ..ip(4).payload(Vec::new())
    };
    let changes = random.u8(..4) == 0;
    let mut payload = vec![0; payload_len];
    random.fill(&mut payload);
    let (mut fragments, mut start) = (Vec::new(), 0);
    while start < payload_len {
        let len = if even { room } else { 8 * random.usize(1..=room / 8) };
        let end = (start + len).min(payload_len);
        let mut fragment = header.clone().part(start, &payload[start..end], end < payload_len);
        fragment.ip_options = if start == 0 { first.clone() } else { later.clone() };
        if changes && random.u8(..4) == 0 {
            fragment.ttl = random.u8(1..);
        }
        if changes && random.u8(..8) == 0 {
            fragment.tos ^= 1;
        }
        fragments.push(fragment);
        start = end;
    }
    if let [whole] = &mut fragments[..] {
        // The packet may overtake fragments with the same ID.
        whole.id = 0xFFFF;
    }
    fragments
}

/// All fragments, each datagram's in order: one datagram after the other, in turns or at random.
fn weave(random: &mut Rng, datagrams: Vec<Vec<Spec>>) -> Vec<Spec> {
    let mut queues: Vec<_> = datagrams.into_iter().map(Vec::into_iter).collect();
    let direction = random.u8(..3);
    let (mut woven, mut turn) = (Vec::new(), 0);
    while !queues.is_empty() {
        let at = match direction {
            0 => 0,
            1 => turn % queues.len(),
            _ => random.usize(..queues.len()),
        };
        turn += 1;
        match queues[at].next() {
            Some(fragment) => woven.push(fragment),
            None => drop(queues.remove(at)),
        }
    }
    woven
}

/// Changes that networks make, and changes that no correct sender makes.
fn disorder(random: &mut Rng, sent: &mut Vec<Spec>) {
    let often = *random.choice(&[0, 1, 3, 10, 30]).unwrap();
    if random.u8(..8) == 0 {
        sent.truncate(random.usize(1..=sent.len()));
    }
    for _ in 0..often {
        let (at, to) = (random.usize(..sent.len()), random.usize(..sent.len()));
        match random.u8(..9) {
            0 | 1 => sent.swap(at, to),
            2 | 3 => sent.insert(to, sent[at].clone()),
            4 if sent.len() > 1 => drop(sent.remove(at)),
            5 if !is_whole(&sent[at]) => {
                // Another fragment near this one, with other bytes.
                let offset = (offset(&sent[at]) + 8 * random.usize(..3)).saturating_sub(8 * random.usize(..3));
                let payload = vec![random.u8(..); 8 * random.usize(1..4)];
                sent.insert(to, sent[at].clone().part(offset, payload, true));
            }
            6 if !is_whole(&sent[at]) => {
                let payload = vec![random.u8(..); random.usize(..8)];
                sent.insert(to, sent[at].clone().part(offset(&sent[at]), payload, true));
            }
            7 if offset(&sent[at]) > 0 && sent[at].ip_options.is_empty() => {
                // An option that only a first fragment may carry: a host drops this fragment alone.
                sent.insert(to, Spec { ip_options: vec![7, 4, 4, 0], ..sent[at].clone() });
                if random.bool() {
                    sent.remove(if at < to { at } else { at + 1 });
                }
            }
            8 if random.u8(..10) == 0 => random.shuffle(sent),
            _ => {}
        }
    }
}

fn is_whole(fragment: &Spec) -> bool {
    fragment.fragment == Some((0, false))
}

fn offset(fragment: &Spec) -> usize {
    fragment.fragment.map_or(0, |(offset, _)| offset)
}

/// The octets of each fragmented datagram, in the order of arrival or departure. Each has its place and a hash of
/// its header's fields. Merging changes none of this.
type Octets = BTreeMap<[u8; 11], Vec<(usize, u16, u64)>>;

fn octets(frames: &[Vec<u8>]) -> Octets {
    let mut octets = Octets::new();
    for frame in frames {
        let wire = ReadPacket::of(frame);
        let key: Vec<u8> = [&frame[4..6], &frame[9..10], &frame[12..20]].concat();
        let of_it = octets.entry(key.try_into().unwrap()).or_default();
        // The fields that all fragments carry: class, mark, hop count, DF, the reserved bit, copied options.
        let said = (frame[1], frame[8], frame[6] & 0xC0, copied_options(&wire.header()[20..]));
        let said = hash(&said);
        if wire.offset() == 0 {
            of_it.push((0, STARTS, hash(&wire.header()[20..])));
        }
        if wire.body().is_empty() {
            of_it.push((wire.offset(), EMPTY, said));
        }
        of_it.extend(
            wire.body().iter().enumerate().map(|(at, octet)| (wire.offset() + at, u16::from(*octet), said)),
        );
        if !wire.more() {
            of_it.push((wire.offset() + wire.body().len(), ENDS, said));
        }
    }
    octets
}

fn copied_options(mut options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    while let Some(kind) = options.first().filter(|kind| **kind != 0) {
        let len = if *kind == 1 { 1 } else { usize::from(options[1]) };
        if kind & 0x80 != 0 {
            copied.extend(&options[..len]);
        }
        options = &options[len..];
    }
    copied
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Checks that `left` is `sent` merged: the same octets in the same order, within the MTU, and the same datagrams
/// at a host. Returns the number of datagrams.
#[track_caller]
fn compare(sent: &[Vec<u8>], left: &[Vec<u8>], mtu: u16, what: &str) -> usize {
    assert!(left.iter().all(|frame| frame.len() <= usize::from(mtu)), "{what}: longer than {mtu}");
    assert!(octets(sent) == octets(left), "{what}: {:?} left as {:?}", places(sent), places(left));
    // A router without merging fragments packets that exceed the MTU.
    let mut expected = Rig::host().push_all(&Rig::router(mtu).push_all(sent));
    let mut delivered = Rig::host().push_all(left);
    expected.sort();
    delivered.sort();
    assert!(expected == delivered, "{what}: {} datagrams, not {}", delivered.len(), expected.len());
    delivered.len()
}

/// Checks that the counters agree with the frames, and that no packet ended.
#[track_caller]
fn check_books(rig: &Rig, sent: &[Vec<u8>], left: &[Vec<u8>], what: &str) {
    assert_eq!(rig.out.ledger.retired_all().packets, 0, "{what}");
    let (used, made) = (rig.event(Event::Merged), JOINED.map(|event| rig.event(event)).iter().sum::<u64>());
    let (divided, cut) = (rig.event(Event::Fragmented), rig.event(Event::Fragments));
    assert_eq!(sent.len() as u64 - used + made - divided + cut, left.len() as u64, "{what}");
    assert!(used >= 2 * made, "{what}: a run of one is not joined");
    if divided == 0 {
        let strangers = left.iter().filter(|frame| !sent.contains(frame)).count() as u64;
        assert!(strangers <= made, "{what}: {strangers} are as nothing that came, {made} were joined");
    }
}

/// Checks that these events have the given counts, and that no other event happened.
#[track_caller]
fn assert_counts(rig: &Rig, expected: &[(Event, u64)]) {
    for event in JOINED.into_iter().chain([Event::Merged, Event::MergeRefused]) {
        let count = expected.iter().find(|(known, _)| *known == event).map_or(0, |(_, count)| *count);
        assert_eq!(rig.event(event), count, "{}", event.name());
    }
}

/// A router's side that merges fragments to any destination.
fn joining(mtu: u16) -> Rig {
    joining_within(mtu, USUAL)
}

fn joining_within(mtu: u16, limits: MergeLimits) -> Rig {
    let merger = Some(FragmentMerger::new(limits, mtu, secret()));
    let mut rig = Rig::router(mtu);
    rig.side.aggregation =
        Aggregation { policies: Prefixes::new(FragmentPolicy::Merge), merger, ..Aggregation::default() };
    rig
}

/// A router's side that reassembles datagrams and fragments them to the MTU.
fn rejoining(join: FragmentPolicy, mtu: u16) -> Rig {
    let mut rig = Rig::new(mtu, Role::Transit, Some(RELEASE));
    rig.side.aggregation.policies = Prefixes::new(join);
    rig
}

/// Pushes all frames, and flushes the rig.
fn through(rig: &mut Rig, sent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut left = rig.push_all(sent);
    left.extend(rig.flush());
    left
}

fn places(frames: &[Vec<u8>]) -> Vec<(usize, usize, bool)> {
    ReadPacket::all(frames).iter().map(ReadPacket::place).collect()
}

/// The fragments of a datagram with this ID.
fn fragments_of(id: u32, payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    ip(4).id(id).payload(payload).parts(room)
}

/// Interleaved fragments of datagrams from different hosts. Each datagram has 9,000 bytes, in 19 fragments of 508
/// bytes.
fn woven(datagrams: usize) -> Vec<Vec<u8>> {
    let payload = pattern(8_980);
    let starts: Vec<_> = (0..8_980).step_by(488).collect();
    let fragment = |start: usize, host: usize| {
        let end = (start + 488).min(8_980);
        ip(4).from([192, 0, 2, host as u8]).part(start, &payload[start..end], end < 8_980).bytes()
    };
    starts.into_iter().flat_map(|start| (0..datagrams).map(move |host| fragment(start, host))).collect()
}

/// The memory that one run is charged.
fn run_charge(mtu: u16) -> usize {
    let mut rig = joining(mtu);
    rig.push(&fragment(4, 0, &[0; 8], true));
    rig.side.aggregation.merger.as_ref().map_or(0, FragmentMerger::charged)
}

/// A packet in fragments of `room` payload bytes; unchanged if it is no longer.
fn cut(whole: &Spec, room: usize) -> Vec<Vec<u8>> {
    if whole.upper().len() > room { whole.parts(room) } else { vec![whole.bytes()] }
}

/// Rules with which datagrams and segments wait for later packets of their flow.
fn udp_gso_packets() -> Rules {
    Rules { mode: Mode::Reversible, hold: Hold::Fixed(seconds(1)), len_max: 65_535, longer: Toggle::On, udp: true }
}

const USUAL: MergeLimits =
    MergeLimits { bytes: 4 << 20, timeout: Duration::from_millis(10), full: Full::Pass, runs: RunsBy::Datagram };
const LIMITS: Limits = Limits { bytes: 4 << 20, timeout: None };
const RELEASE: Late = Late::Release { mtu: 9_000 };
/// The events that merging causes.
const JOINED: [Event; 8] = [
    Event::MergedComplete,
    Event::MergedLast,
    Event::MergedFull,
    Event::MergedGap,
    Event::MergedChanged,
    Event::MergedTimeout,
    Event::MergedEvicted,
    Event::MergedAtEnd,
];
/// Marks among the octets.
const STARTS: u16 = 256;
/// See [`STARTS`].
const EMPTY: u16 = 257;
/// See [`STARTS`].
const ENDS: u16 = 258;
