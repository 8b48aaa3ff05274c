//! The MSS at a border: SYNs are rewritten, and no segment exceeds the MSS that its receiver announced.

use crate::rig::*;
use std::collections::HashSet;
use std::time::Duration;
use wideload_engine::packet::{
    Checksum, Frame, Gso, Identifications, Ingress, LinkType, Maker, Packet, Pool, SegmentLimit, Split, Time,
};
use wideload_engine::{
    Aggregation, Border, Coalescer, Connections, Event, Ledger, Mode, Output, Raise, Role, Rules, SAFE_LEN, Secret,
    SegmentSize, Side, Sizing, Toggle, Toward, WirePackets,
};

#[test]
fn segments_fit_a_small_receive_window() {
    let plain = vec![2, 4, 5, 180];
    let stamped = [&plain[..], &[1, 1, 8, 10], &[0; 8]].concat();
    // Toward hosts with an MTU of 9,000 bytes: six segments of 1,460 bytes need the fewest packets.
    for (window, options, told) in [
        (65_535, &plain, 6 * 1_460),
        (32_768, &plain, 6 * 1_460),
        (32_767, &plain, 5 * 1_460),
        (16_384, &plain, 2 * 1_460),
        (16_384, &stamped, 2 * 1_448 + 12),
        (11_680, &plain, 2 * 1_460),
        (11_679, &plain, 1_460),
        (0, &stamped, 1_460),
    ] {
        let spec = Spec { flags: SYN, window, options: options.clone(), ..tcp(VERSIONS[0]).carrying(0, 0) };
        let mut gateway = Gateway::new(Raise::Always);
        let (frame, _) = gateway.see(&spec, Toward::Wide, Checksum::Unverified);
        let at = frame.len() - options.len() + 2;
        let mss = u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert_eq!(mss, told, "a window of {window}, {} bytes of options", options.len());
    }
}

#[test]
fn every_option_layout_keeps_all_but_the_mss() {
    let (mut changed, mut untouched) = (0, 0);
    for options in layouts() {
        let read = Read::of(&options);
        for version in VERSIONS {
            for toward in [Toward::Wide, Toward::Narrow] {
                let mut expected = options.clone();
                if let Some((at, mss)) = read.one() {
                    let told = told(MTUS, version, toward, mss, read.has_stamps);
                    expected[at..at + 2].copy_from_slice(&told.to_be_bytes());
                    changed += usize::from(told != mss);
                }
                for (sum, checksum) in [
                    (Summed::Right, Checksum::Unverified),
                    (Summed::Right, Checksum::Verified),
                    (Summed::Half, Checksum::Partial),
                ] {
                    let spec = Spec { flags: SYN, options: options.clone(), sum, ..tcp(version).carrying(0, 3) };
                    let mut gateway = Gateway::new(Raise::Always);
                    let (frame, packet) = gateway.see(&spec, toward, checksum);
                    let wanted = Spec { options: expected.clone(), ..spec.clone() }.bytes();
                    let sum_at = spec.ip_header_len() + 16;
                    assert_eq!(frame[..sum_at], wanted[..sum_at], "{options:02x?} {toward:?}");
                    assert_eq!(frame[sum_at + 2..], wanted[sum_at + 2..], "{options:02x?} {toward:?}");
                    if sum == Summed::Half {
                        assert!(frame == wanted && packet == (Checksum::Partial, frame == spec.bytes()));
                    } else {
                        assert!(ReadPacket::of(&frame).sum_is_right, "{options:02x?} {toward:?}");
                        assert_eq!(packet, (Checksum::Verified, frame == spec.bytes()));
                    }
                    let touched = [Event::MssRaised, Event::MssLowered].map(|event| gateway.count(event));
                    let changes = u64::from(expected != options);
                    assert_eq!(touched, pick(toward, [changes, 0], [0, changes]), "{options:02x?}");
                    let wants = read.one().is_none() && read.wants(toward, version);
                    assert_eq!(gateway.count(Event::MssUntouched), u64::from(wants), "{options:02x?} {toward:?}");
                    untouched += u64::from(wants);
                }
            }
        }
    }
    assert!(changed > 500 && untouched > 10_000, "{changed}, {untouched}");
}

#[test]
fn every_mss_is_rewritten_with_a_valid_checksum() {
    for version in VERSIONS {
        for toward in [Toward::Wide, Toward::Narrow] {
            for mss in (0..=u16::MAX).step_by(7).chain([47, 48, 536, 1_219, 1_460, 8_960, 65_535]) {
                let told = told(MTUS, version, toward, mss, false);
                // The option is at an even offset and at an odd offset.
                for front in [&[][..], &[1]] {
                    let options = padded(&[front, &[2, 4], &mss.to_be_bytes()].concat());
                    let spec = Spec { flags: SYN, options, ..tcp(version) };
                    let (frame, _) = Gateway::new(Raise::Always).see(&spec, toward, Checksum::Unverified);
                    let at = spec.ip_header_len() + 22 + front.len();
                    let left = u16::from_be_bytes([frame[at], frame[at + 1]]);
                    assert_eq!(left, if mss < 48 { mss } else { told }, "IPv{version}, {toward:?}");
                    assert!(ReadPacket::of(&frame).sum_is_right, "IPv{version}, {toward:?}, {mss}");
                }
            }
        }
    }
}

#[test]
fn the_announced_mss_needs_the_fewest_packets() {
    let (mut whole, mut longest) = (0, 0);
    for mtus in [1_501, 2_000, 2_919, 2_960, 3_000, 3_700, 4_000, 9_000, 65_535].map(|wide| [wide, 1_500]) {
        for (version, stamps) in VERSIONS.into_iter().flat_map(|version| [(version, false), (version, true)]) {
            for mss in [536, 1_220, 1_380, 1_440, 1_460, 2_900, 8_690, 8_800, 9_500] {
                let (stamps_option, options_len): (&[u8], _) =
                    if stamps { (&[1, 1, 8, 10, 1, 1, 1, 1, 2, 2, 2, 2], 12) } else { (&[], 0) };
                let options = [&mss_option(mss), stamps_option].concat();
                let syn = Spec { flags: SYN, options, ..from_narrow(version, 1) };
                let mut gateway = Gateway::new(Raise::Always);
                let [wide_mtu, narrow_mtu] = mtus;
                let sides = Border { wide_mtu, narrow_mtu, ..border(Raise::Always) };
                gateway.mss = Connections::at_border(1 << 20, sides, Secret::new(3));
                let (frame, _) = gateway.see(&syn, Toward::Wide, Checksum::Unverified);
                let at = syn.ip_header_len() + 22;
                let left = u16::from_be_bytes([frame[at], frame[at + 1]]);
                assert_eq!(left, told(mtus, version, Toward::Wide, mss, stamps), "{mtus:?}, IPv{version}, {mss}");
                // Packets of the wide host leave in equal segments if the told MSS holds a whole number of them.
                let payload_len = left - options_len;
                let carried =
                    mss.max(floor(version)).min(narrow_mtu - (syn.ip_header_len() + 20) as u16) - options_len;
                let long = Spec {
                    options: stamps_option.to_vec(),
                    ..data(version, 1, Toward::Narrow, payload_len.into())
                };
                let fragments = gateway.pass(&long, Toward::Narrow, None);
                assert_eq!(
                    fragments.len(),
                    usize::from(payload_len.div_ceil(carried)),
                    "{mtus:?}, IPv{version}, {mss}"
                );
                let is_whole = payload_len % carried == 0;
                assert!(!is_whole || fragments.iter().all(|fragment| fragment.len() == fragments[0].len()));
                *if is_whole { &mut whole } else { &mut longest } += 1;
            }
        }
    }
    assert!(whole > 50 && longest > 50, "{whole}, {longest}");
}

#[test]
fn unusable_syns_pass_unchanged_and_teach_nothing() {
    let plain = |version| Spec { flags: SYN, options: mss_option(700), ..tcp(version) };
    for toward in [Toward::Wide, Toward::Narrow] {
        for version in VERSIONS {
            for (what, spec, announced) in [
                ("damaged", Spec { sum: Summed::Off(1), ..plain(version) }, false),
                ("a fragment", Spec { ip_flags: 0, fragment: Some((0, true)), ..plain(version) }, false),
                ("it resets", Spec { flags: SYN | RST, ..plain(version) }, false),
                ("it ends", Spec { flags: SYN | FIN, ..plain(version) }, false),
                ("no SYN", Spec { flags: ACK, ..plain(version) }, false),
                (
                    "signed in IPv6",
                    Spec { extensions: vec![extension(AUTHENTICATION, 24)], ..plain(version) },
                    true,
                ),
            ] {
                if version == 4 && announced {
                    continue;
                }
                let mut gateway = Gateway::new(Raise::Always);
                let (frame, (_, as_received)) = gateway.see(&spec, toward, Checksum::Unverified);
                assert!(frame == spec.bytes() && as_received, "{what}, IPv{version}, {toward:?}");
                let back = other(toward);
                let answer = Spec { flags: ACK, ..tcp(version).carrying(0, 10) }.turned();
                let len = if version == 4 { 740 } else { 1_280 };
                let expected = if announced { len } else { border(Raise::Always).unknown_len_max(back) };
                assert_eq!(gateway.len_max(&answer, back), expected, "{what}, IPv{version}, {toward:?}");
            }
        }
    }
}

/// One step of a handshake: direction and flags.
type Step = (Toward, u8);
const SYN_FROM_NARROW: Step = (Toward::Wide, SYN);
const SYN_FROM_WIDE: Step = (Toward::Narrow, SYN);
const ANSWER_FROM_NARROW: Step = (Toward::Wide, SYN | ACK);
const ANSWER_FROM_WIDE: Step = (Toward::Narrow, SYN | ACK);
const ACK_FROM_NARROW: Step = (Toward::Wide, ACK);
const ACK_FROM_WIDE: Step = (Toward::Narrow, ACK);

#[test]
fn an_mss_is_raised_only_if_both_directions_pass_here() {
    let cases: [(&str, &[Step], &[Step], u64); 8] = [
        ("a wide host opens", &[SYN_FROM_WIDE], &[ANSWER_FROM_NARROW], 1),
        ("its SYN went by another way", &[], &[ANSWER_FROM_NARROW], 0),
        ("a narrow host opens and nothing is known", &[], &[SYN_FROM_NARROW], 0),
        ("the wide host was heard", &[SYN_FROM_NARROW, ANSWER_FROM_WIDE], &[SYN_FROM_NARROW], 1),
        ("it opened a connection", &[SYN_FROM_WIDE], &[SYN_FROM_NARROW], 1),
        ("only narrow hosts were heard", &[SYN_FROM_NARROW, SYN_FROM_NARROW], &[SYN_FROM_NARROW], 0),
        (
            "it was heard, and then went another way",
            &[SYN_FROM_WIDE, SYN_FROM_NARROW, ACK_FROM_NARROW],
            &[SYN_FROM_NARROW],
            0,
        ),
        (
            "a SYN-ACK whose SYN went another way",
            &[SYN_FROM_WIDE, ANSWER_FROM_NARROW, ANSWER_FROM_NARROW],
            &[SYN_FROM_NARROW],
            1,
        ),
    ];
    for (what, before, last, raised) in cases {
        for version in VERSIONS {
            for (raise, expected) in
                [(Raise::BothWays, raised), (Raise::Never, 0), (Raise::Always, last.len() as u64)]
            {
                let mut gateway = Gateway::new(raise);
                let port = if what.starts_with("it was") || what.starts_with("it op") { 2 } else { 1 };
                before.iter().enumerate().for_each(|(index, step)| {
                    // A first packet from elsewhere belongs to another connection.
                    let port = if port == 2 && index == 0 { 1 } else { port };
                    gateway.step(version, port, *step);
                });
                let earlier = gateway.count(Event::MssRaised);
                let last_port = if last[0] == ANSWER_FROM_NARROW { port } else { 9 };
                last.iter().for_each(|step| gateway.step(version, last_port, *step));
                assert_eq!(gateway.count(Event::MssRaised) - earlier, expected, "{what}, {raise:?}");
            }
        }
    }
}

// The model: the sides of two hosts from which a packet was seen.
#[test]
fn nothing_is_raised_before_both_directions_were_seen() {
    let mut raised = 0;
    each_seed("-p wideload-engine mss", 300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut gateway = Gateway::new(Raise::BothWays);
        let mut came = HashSet::new();
        for _ in 0..random.usize(1..9) {
            let version = *random.choice(&VERSIONS).unwrap();
            let toward = if random.bool() { Toward::Wide } else { Toward::Narrow };
            let flags = *random.choice(&[SYN, SYN, SYN | ACK, ACK, FIN | ACK, RST]).unwrap();
            let before = gateway.count(Event::MssRaised);
            gateway.step(version, random.u16(1..4), (toward, flags));
            came.insert((version, sender(toward)));
            let raises = gateway.count(Event::MssRaised) - before;
            let is_both = [0, 1].iter().all(|end| came.contains(&(version, *end)));
            assert!(raises == 0 || is_both, "seed {seed}: {flags:08b} toward {toward:?} after {came:?}");
            raised += raises;
        }
    });
    assert!(raised > 0 || std::env::var("WIDELOAD_SEED").is_ok(), "none is ever raised");
}

#[test]
fn a_handshake_without_its_syn_ack_stops_raising_for_an_hour() {
    for version in VERSIONS {
        let mut gateway = Gateway::new(Raise::BothWays);
        gateway.step(version, 1, SYN_FROM_WIDE);
        gateway.step(version, 2, SYN_FROM_NARROW);
        assert_eq!(gateway.count(Event::MssRaised), 1);
        (0..3).for_each(|_| gateway.step(version, 2, ACK_FROM_NARROW));
        assert_eq!(gateway.count(Event::MssAsymmetric), 1, "a connection counts once");
        for (minutes, raised) in [(0, 1), (1, 1), (58, 1), (1, 2)] {
            gateway.now = gateway.now + Duration::from_secs(60 * minutes);
            gateway.mss.expire(gateway.now);
            gateway.step(version, 1, ACK_FROM_WIDE);
            gateway.step(version, 3, SYN_FROM_WIDE);
            gateway.step(version, 4, SYN_FROM_NARROW);
            assert_eq!(gateway.count(Event::MssRaised), raised, "after {minutes} minutes more");
        }
    }
}

#[test]
fn a_complete_or_ended_handshake_shows_no_other_path() {
    let whole: &[&[Step]] = &[
        &[SYN_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW],
        &[SYN_FROM_NARROW, SYN_FROM_NARROW, ANSWER_FROM_WIDE, ANSWER_FROM_WIDE, ACK_FROM_NARROW, ACK_FROM_WIDE],
        &[SYN_FROM_WIDE, ANSWER_FROM_NARROW, ACK_FROM_WIDE, ACK_FROM_NARROW],
        // An old connection of the wide host challenges the SYN (RFC 5961).
        &[SYN_FROM_NARROW, ACK_FROM_WIDE, ACK_FROM_NARROW],
        &[SYN_FROM_NARROW, (Toward::Narrow, RST | ACK), ACK_FROM_NARROW],
        &[SYN_FROM_NARROW, (Toward::Wide, RST)],
        &[SYN_FROM_NARROW, (Toward::Wide, RST | ACK)],
        // Both hosts open the connection at the same time.
        &[SYN_FROM_NARROW, SYN_FROM_WIDE, ANSWER_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW],
        // No packet from the start of the connection was seen.
        &[ACK_FROM_NARROW, ACK_FROM_WIDE, ACK_FROM_NARROW],
        &[ACK_FROM_WIDE, ACK_FROM_NARROW],
    ];
    for steps in whole {
        let mut gateway = Gateway::new(Raise::BothWays);
        steps.iter().for_each(|step| gateway.step(4, 1, *step));
        assert_eq!(gateway.count(Event::MssAsymmetric), 0, "{steps:?}");
    }
}

#[test]
fn path_knowledge_expires_in_ten_minutes_without_packets() {
    for (is_seen, is_heard) in [(false, false), (true, false), (false, true)] {
        let mut gateway = Gateway::new(Raise::BothWays);
        [SYN_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW].into_iter().for_each(|step| gateway.step(4, 1, step));
        for _ in 0..11 {
            gateway.now = gateway.now + Duration::from_secs(60);
            gateway.mss.expire(gateway.now);
            if is_seen {
                gateway.step(4, 1, ACK_FROM_WIDE);
            }
            if is_heard {
                assert_eq!(gateway.hear(4, 1, Toward::Narrow).map(|limit| limit.len_max), Some(1_480));
            }
        }
        gateway.step(4, 2, SYN_FROM_NARROW);
        assert_eq!(gateway.count(Event::MssRaised), u64::from(is_seen || is_heard));
    }
}

#[test]
fn an_offloaded_connection_is_kept_while_the_kernel_reports_it() {
    for version in [4, 6] {
        let mut gateway = Gateway::new(Raise::BothWays);
        assert_eq!(gateway.hear(version, 1, Toward::Wide), None, "nothing is known");
        // The packets after the handshake are not seen.
        [SYN_FROM_NARROW, ANSWER_FROM_WIDE].into_iter().for_each(|step| gateway.step(version, 1, step));
        for hour in 0..24 {
            gateway.now = gateway.now + Duration::from_secs(if hour == 0 { 200 } else { 3_600 });
            gateway.mss.expire(gateway.now);
            let toward = [Toward::Wide, Toward::Narrow][hour % 2];
            let len_max = pick(toward, 8_900, 1_440) + if version == 4 { 40 } else { 60 };
            assert_eq!(gateway.hear(version, 1, toward).map(|limit| limit.len_max), Some(len_max), "hour {hour}");
            assert_eq!(gateway.hear(version, 2, Toward::Wide), None, "of another connection");
        }
        gateway.now = gateway.now + Duration::from_secs(7_441);
        gateway.mss.expire(gateway.now);
        assert_eq!(gateway.hear(version, 1, Toward::Wide), None);
    }
}

#[test]
fn a_connection_is_kept_while_active_and_briefly_after_its_end() {
    let known =
        |gateway: &mut Gateway| gateway.len_max(&data(4, 1, Toward::Narrow, 10), Toward::Narrow) != SAFE_LEN;
    for (last, seconds) in [(ACK, 7_440), (FIN | ACK, 240), (RST, 240)] {
        let mut gateway = Gateway::new(Raise::BothWays);
        for step in [SYN_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW] {
            gateway.step(4, 1, step);
        }
        // The host sends a packet every two minutes for a day.
        for _ in 0..720 {
            gateway.now = gateway.now + Duration::from_secs(120);
            gateway.mss.expire(gateway.now);
            gateway.step(4, 1, ACK_FROM_WIDE);
        }
        gateway.step(4, 1, (Toward::Wide, last));
        let end = gateway.now + Duration::from_secs(seconds);
        gateway.now = end - Duration::from_secs(3);
        gateway.mss.expire(gateway.now);
        assert_eq!(gateway.mss.flow_count(), 1);
        gateway.mss.expire(end);
        assert_eq!(gateway.mss.flow_count(), 0, "{last:08b}");
        assert!(!known(&mut gateway));
    }
}

#[test]
fn a_one_sided_connection_is_soon_forgotten() {
    for toward in [Toward::Wide, Toward::Narrow] {
        let mut gateway = Gateway::new(Raise::BothWays);
        for flags in [SYN, ACK, ACK] {
            gateway.now = gateway.now + Duration::from_secs(2);
            gateway.step(4, 1, (toward, flags));
        }
        assert_eq!(gateway.mss.flow_count(), 1);
        gateway.mss.expire(gateway.now + Duration::from_secs(240));
        assert_eq!(gateway.mss.flow_count(), 0, "{toward:?}");
    }
}

#[test]
fn the_smallest_announced_mss_applies_until_close() {
    let mut gateway = Gateway::new(Raise::BothWays);
    let asked = |gateway: &mut Gateway| gateway.len_max(&data(4, 1, Toward::Narrow, 10), Toward::Narrow);
    for (mss, flags, expected) in [
        (1_400, SYN, 1_440),
        (1_460, SYN, 1_440),
        (1_000, SYN, 1_040),
        (1_460, SYN, 1_040),
        (1_460, FIN | ACK, 1_040),
        (1_300, SYN, 1_340),
    ] {
        let options = if flags & SYN == 0 { Vec::new() } else { mss_option(mss) };
        gateway.see(&Spec { flags, options, ..from_narrow(4, 1) }, Toward::Wide, Checksum::Unverified);
        assert_eq!(asked(&mut gateway), expected, "{mss}, {flags:08b}");
    }
}

#[test]
fn ports_hosts_and_vlans_separate_connections() {
    let spec = Spec { flags: SYN, options: mss_option(900), vlans: Some(vec![7]), ..from_narrow(4, 1) };
    let mut gateway = Gateway { link_type: LinkType::Ethernet, ..Gateway::new(Raise::BothWays) };
    gateway.see(&spec, Toward::Wide, Checksum::Unverified);
    let back = Spec { flags: ACK, options: Vec::new(), ..spec.turned() };
    assert_eq!(gateway.len_max(&back, Toward::Narrow), 940);
    for other in [
        Spec { ports: [back.ports[0], 77], ..back.clone() },
        Spec { ports: [77, back.ports[1]], ..back.clone() },
        back.clone().to(host(4, 77)),
        back.clone().from(host(4, 77)),
        Spec { vlans: Some(vec![8]), ..back.clone() },
        Spec { vlans: Some(vec![]), ..back.clone() },
    ] {
        assert_eq!(gateway.len_max(&other, Toward::Narrow), SAFE_LEN);
    }
}

#[test]
fn open_connections_outlive_a_syn_flood_in_a_full_table() {
    for limit in [0, 2_000, 40_000] {
        let mut gateway = Gateway {
            mss: Connections::at_border(limit, border(Raise::BothWays), Secret::new(3)),
            ..Gateway::new(Raise::Never)
        };
        for step in [SYN_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW] {
            gateway.step(4, 1, step);
        }
        for number in 3..=255 {
            for port in 0..20 {
                let spec = from_narrow(4, port).between(number, 2);
                let spec = Spec { flags: SYN, options: mss_option(1_460), ..spec };
                gateway.see(&spec, Toward::Wide, Checksum::Unverified);
                assert!(gateway.mss.charged() <= limit + limit / 4);
            }
        }
        let expected = if limit > 2_000 { 1_480 } else { SAFE_LEN };
        assert_eq!(gateway.len_max(&data(4, 1, Toward::Narrow, 10), Toward::Narrow), expected, "{limit} bytes");
        while let Some(deadline) = gateway.mss.next_deadline() {
            assert!(deadline >= gateway.now);
            gateway.now = deadline;
            gateway.mss.expire(deadline);
        }
        assert_eq!((gateway.mss.flow_count(), gateway.mss.charged()), (0, 0));
    }
}

#[test]
fn a_takeover_with_other_limits_keeps_the_entries_that_fit() {
    let mut gateway = Gateway::new(Raise::Always);
    for port in 0..50 {
        for step in [SYN_FROM_NARROW, ANSWER_FROM_WIDE, ACK_FROM_NARROW] {
            gateway.step(4, port, step);
        }
    }
    let (count, charged) = (gateway.mss.flow_count(), gateway.mss.charged());
    for (limit, is_known) in [(1 << 20, true), (charged / 2, true), (0, false)] {
        let less_wide = Border { wide_mtu: 4_000, ..border(Raise::Always) };
        gateway.mss.go_on_as(Connections::at_border(limit, less_wide, Secret::new(9)));
        assert!(gateway.mss.charged() <= limit + limit / 4, "{} bytes of {limit}", gateway.mss.charged());
        assert_eq!(gateway.mss.flow_count() == count, limit > charged);
        let expected = if is_known { 1_480 } else { SAFE_LEN };
        assert_eq!(gateway.len_max(&data(4, 49, Toward::Narrow, 10), Toward::Narrow), expected, "{limit} bytes");
        let syn = Spec { flags: SYN, options: mss_option(1_460), ..from_narrow(4, 60) };
        let (frame, _) = gateway.see(&syn, Toward::Wide, Checksum::Unverified);
        assert_eq!(frame[42..44], u16::to_be_bytes(3_960));
        gateway.step(4, 70, SYN_FROM_NARROW);
        assert!(gateway.mss.charged() <= limit + limit / 4, "the limit holds from here on");
    }
}

#[test]
fn only_a_resizing_side_gives_a_segment_limit() {
    let side = || Gateway::new(Raise::BothWays).wide;
    let limit = |len_max| SegmentLimit::new(len_max, true);
    assert_eq!([side().resizes_to(limit(9_001)), side().resizes_to(limit(0))], [Some(limit(9_000)), None]);
    let sizing = |change: fn(&mut Sizing)| {
        let limit = SegmentLimit::new(1_500, true);
        let mut side = side();
        change(&mut side.sizing);
        side.resizes_to(limit)
    };
    assert_eq!(sizing(|sizing| sizing.split = Split::Balanced), None);
    assert_eq!(sizing(|sizing| sizing.segment = Toggle::Off), None);
    let kept = SegmentLimit::new(1_500, false);
    assert_eq!(sizing(|sizing| sizing.gso_packets = SegmentSize::Preserve), Some(kept), "they only become shorter");
    let mut reversible = side();
    let rules = Rules { mode: Mode::Reversible, ..resize(u16::MAX) };
    reversible.aggregation.coalescer = Some(Coalescer::new(1 << 20, rules, Vec::new(), Secret::new(5)));
    assert_eq!(reversible.resizes_to(limit(1_500)), None);
    reversible.aggregation.coalescer = None;
    assert_eq!(reversible.resizes_to(limit(1_500)), Some(limit(1_500)));
}

/// A host's packet in a handshake: flags, sequence number, acknowledgement number.
fn saying(toward: Toward, flags: u8, [seq, ack]: [u32; 2], mss: u16) -> Spec {
    Spec { flags, seq, ack, options: mss_option(mss), ..data(4, 1, toward, 0) }
}

/// The lengths of the packets that leave for a GSO packet in this direction.
fn lens(gateway: &mut Gateway, toward: Toward, segment_len: u16) -> Vec<usize> {
    let left = gateway.pass(&data(4, 1, toward, 2 * usize::from(segment_len)), toward, Some(segment_len));
    left.iter().map(|frame| ReadPacket::of(frame).ip_len()).collect()
}

#[test]
fn segments_grow_only_after_a_complete_handshake_on_a_resizing_side() {
    let handshake =
        [saying(Toward::Narrow, SYN, [70, 0], 8_960), saying(Toward::Wide, SYN | ACK, [500, 71], 1_460)];
    let cases: [(&str, &[usize], bool, u64); 5] = [
        ("whole", &[0, 1], true, 0),
        ("nothing was seen", &[], false, 0),
        ("the SYN alone", &[0], false, 0),
        ("the answer alone", &[1], false, 0),
        ("an answer to another SYN", &[0, 1], false, 1),
    ];
    for (what, steps, grows, off) in cases {
        let mut gateway = Gateway::new(Raise::Always);
        for step in steps {
            let spec = &handshake[*step];
            let toward = if *step == 0 { Toward::Narrow } else { Toward::Wide };
            gateway.pass(&Spec { ack: spec.ack + off as u32, ..spec.clone() }, toward, None);
        }
        let whole = if grows { vec![1_040] } else { vec![540, 540] };
        assert_eq!(lens(&mut gateway, Toward::Wide, 500), whole, "{what}");
        assert_eq!(lens(&mut gateway, Toward::Narrow, 500), whole, "{what}");
        // Long segments are made shorter nevertheless.
        assert!(lens(&mut gateway, Toward::Narrow, 8_000).iter().all(|len| *len <= 1_500), "{what}");
        for change in
            [(|sizing: &mut Sizing| sizing.gso_packets = SegmentSize::Preserve) as fn(&mut Sizing), |sizing| {
                sizing.segment = Toggle::Off
            }]
        {
            change(&mut gateway.wide.sizing);
            assert_eq!(lens(&mut gateway, Toward::Wide, 500), [540, 540], "{what}");
        }
    }
    // A host that announces less than the minimum gets packets no longer than its peer sent them.
    let mut gateway = Gateway::new(Raise::Always);
    gateway.pass(&saying(Toward::Narrow, SYN, [70, 0], 200), Toward::Narrow, None);
    gateway.pass(&saying(Toward::Wide, SYN | ACK, [500, 71], 1_460), Toward::Wide, None);
    assert_eq!(lens(&mut gateway, Toward::Wide, 200), [240, 240]);
}

#[test]
fn only_its_own_handshake_changes_a_live_connections_limits() {
    let opened = || {
        let mut gateway = Gateway::new(Raise::BothWays);
        gateway.pass(&saying(Toward::Wide, SYN, [500, 0], 1_400), Toward::Wide, None);
        gateway.pass(&saying(Toward::Narrow, SYN | ACK, [70, 501], 8_900), Toward::Narrow, None);
        gateway.step(4, 1, ACK_FROM_NARROW);
        gateway
    };
    let limits = |gateway: &mut Gateway| {
        [Toward::Narrow, Toward::Wide].map(|toward| gateway.len_max(&data(4, 1, toward, 10), toward))
    };
    for forged in [
        &[saying(Toward::Wide, SYN, [9, 0], 48)][..],
        &[saying(Toward::Wide, SYN, [9, 0], 9_000)],
        &[saying(Toward::Wide, SYN | ACK, [9, 71], 48)],
        &[saying(Toward::Wide, SYN | ACK, [500, 72], 48)],
        &[saying(Toward::Wide, SYN, [9, 0], 48), saying(Toward::Wide, SYN | ACK, [9, 71], 48)],
        &[saying(Toward::Wide, RST, [9, 0], 48), saying(Toward::Wide, SYN | ACK, [9, 72], 48)],
        &[saying(Toward::Wide, FIN | ACK, [9, 0], 48), saying(Toward::Wide, SYN | ACK, [9, 71], 48)],
    ] {
        let mut gateway = opened();
        forged.iter().for_each(|spec| drop(gateway.pass(spec, Toward::Wide, None)));
        assert_eq!(limits(&mut gateway), [1_440, 8_940], "{forged:?}");
        assert_eq!(lens(&mut gateway, Toward::Wide, 500), [1_040], "{forged:?}");
        // The live host's challenge ACK (RFC 5961 section 4).
        gateway.step(4, 1, ACK_FROM_WIDE);
        assert_eq!(limits(&mut gateway), [1_440, 8_940]);
        // Another connection of the same ports has its own handshake.
        gateway.pass(&saying(Toward::Wide, SYN, [1_000, 0], 1_000), Toward::Wide, None);
        gateway.pass(&saying(Toward::Narrow, SYN | ACK, [90, 1_001], 7_000), Toward::Narrow, None);
        assert_eq!(limits(&mut gateway), [1_040, 7_040], "{forged:?}");
    }
    // After a forged RST and a forged SYN no segment grows, and no limit rises.
    for (mss, expected) in [(9_000, 1_440), (48, 576)] {
        let mut gateway = opened();
        gateway.pass(&saying(Toward::Wide, RST, [9, 0], 0), Toward::Wide, None);
        gateway.pass(&saying(Toward::Wide, SYN, [9, 0], mss), Toward::Wide, None);
        assert_eq!(limits(&mut gateway), [expected, 8_940]);
        assert_eq!(lens(&mut gateway, Toward::Wide, 500), [540, 540]);
        // A true RST and a true handshake start a new connection.
        gateway.pass(&saying(Toward::Wide, SYN, [1_000, 0], 1_000), Toward::Wide, None);
        gateway.pass(&saying(Toward::Narrow, SYN | ACK, [90, 1_001], 7_000), Toward::Narrow, None);
        assert_eq!(limits(&mut gateway), [1_040, 7_040]);
    }
    // Each SYN may be the valid one until the SYN-ACK shows which one is.
    let mut gateway = Gateway::new(Raise::BothWays);
    gateway.pass(&saying(Toward::Wide, SYN, [500, 0], 1_400), Toward::Wide, None);
    gateway.pass(&saying(Toward::Wide, SYN, [9, 0], 48), Toward::Wide, None);
    assert_eq!(gateway.len_max(&data(4, 1, Toward::Narrow, 10), Toward::Narrow), 576);
    gateway.pass(&saying(Toward::Narrow, SYN | ACK, [70, 501], 8_900), Toward::Narrow, None);
    assert_eq!(limits(&mut gateway), [1_440, 8_940]);
}

#[test]
fn only_the_answered_syn_raises_a_limit() {
    let syn = |seq, mss| saying(Toward::Wide, SYN, [seq, 0], mss);
    let asked = |gateway: &mut Gateway| gateway.len_max(&data(4, 1, Toward::Narrow, 10), Toward::Narrow);
    for (is_new, unanswered) in [(true, 576), (false, 576)] {
        let offered = || {
            let mut gateway = Gateway::new(Raise::BothWays);
            if !is_new {
                gateway.pass(&syn(1, 1_200), Toward::Wide, None);
                gateway.pass(&saying(Toward::Narrow, SYN | ACK, [70, 2], 8_900), Toward::Narrow, None);
                gateway.pass(&saying(Toward::Wide, FIN | ACK, [2, 71], 0), Toward::Wide, None);
            }
            for (seq, mss) in [(500, 1_400), (9, 48), (80, 1_300), (80, 9_000)] {
                gateway.pass(&syn(seq, mss), Toward::Wide, None);
            }
            // A SYN of the other host changes none of this.
            gateway.pass(&saying(Toward::Narrow, SYN, [7, 0], 9_000), Toward::Narrow, None);
            gateway
        };
        let mut gateway = offered();
        assert_eq!(asked(&mut gateway), unanswered, "{is_new}");
        // The last SYN is answered; then one that is not remembered any more.
        for (seq, expected) in [(80, 1_340), (9, unanswered), (8, unanswered)] {
            let mut gateway = offered();
            gateway.pass(&saying(Toward::Narrow, SYN | ACK, [90, seq + 1], 8_900), Toward::Narrow, None);
            assert_eq!(asked(&mut gateway), expected, "{is_new}, {seq}");
        }
    }
}

#[test]
fn nothing_grows_after_a_port_reuse_without_syn_ack() {
    let handshake = |gateway: &mut Gateway, seq: u32| {
        gateway.pass(&saying(Toward::Wide, SYN, [seq, 0], 1_400), Toward::Wide, None);
        gateway.pass(&saying(Toward::Narrow, SYN | ACK, [70, seq + 1], 8_900), Toward::Narrow, None);
    };
    let grows = |gateway: &mut Gateway| {
        let left = [Toward::Wide, Toward::Narrow].map(|toward| lens(gateway, toward, 500));
        assert!(left[0] == left[1] && [&[1_040][..], &[540, 540]].contains(&&left[0][..]), "{left:?}");
        left[0].len() == 1
    };
    for syn_toward in [Toward::Wide, Toward::Narrow] {
        for (toward, numbers) in [(syn_toward, [1_001, 90]), (other(syn_toward), [90, 1_001])] {
            let ack = |[seq, ack]: [u32; 2]| Spec { flags: ACK, seq, ack, ..data(4, 1, toward, 0) };
            let mut gateway = Gateway::new(Raise::BothWays);
            handshake(&mut gateway, 500);
            gateway.pass(&saying(syn_toward, SYN, [1_000, 0], 1_000), syn_toward, None);
            // A packet of the previous connection.
            gateway.pass(&ack([999, 999]), toward, None);
            assert!(grows(&mut gateway), "{toward:?}");
            gateway.pass(&ack(numbers), toward, None);
            assert!(!grows(&mut gateway), "{toward:?}");
            // Another SYN alone changes nothing; a whole handshake does.
            gateway.pass(&saying(Toward::Wide, SYN, [2_000, 0], 1_400), Toward::Wide, None);
            assert!(!grows(&mut gateway), "{toward:?}");
            handshake(&mut gateway, 2_000);
            assert!(grows(&mut gateway), "{toward:?}");
        }
    }
}

#[test]
fn a_repeated_syn_ack_shortens_no_connections_life() {
    let mut gateway = Gateway::new(Raise::BothWays);
    let answer = saying(Toward::Narrow, SYN | ACK, [70, 501], 8_900);
    gateway.pass(&saying(Toward::Wide, SYN, [500, 0], 1_400), Toward::Wide, None);
    gateway.pass(&answer, Toward::Narrow, None);
    gateway.now = gateway.now + Duration::from_secs(2);
    gateway.step(4, 1, ACK_FROM_WIDE);
    gateway.pass(&answer, Toward::Narrow, None);
    gateway.now = gateway.now + Duration::from_secs(1_000);
    gateway.mss.expire(gateway.now);
    assert_eq!(gateway.mss.flow_count(), 1);
    // The MSS counts nevertheless: the smallest MSS is kept.
    gateway.pass(&Spec { options: mss_option(7_000), ..answer }, Toward::Narrow, None);
    assert_eq!(gateway.len_max(&data(4, 1, Toward::Wide, 10), Toward::Wide), 7_040);
}

#[test]
fn a_new_handshake_of_an_open_connection_restarts_the_time_out() {
    let mut gateway = Gateway::new(Raise::BothWays);
    for seq in [500, 2_000] {
        gateway.pass(&saying(Toward::Wide, SYN, [seq, 0], 1_400), Toward::Wide, None);
        gateway.pass(&saying(Toward::Narrow, SYN | ACK, [70, seq + 1], 8_900), Toward::Narrow, None);
        gateway.now = gateway.now + Duration::from_secs(200);
    }
    gateway.mss.expire(gateway.now);
    assert_eq!(gateway.mss.flow_count(), 1, "200 seconds of 240 have passed");
    gateway.mss.expire(gateway.now + Duration::from_secs(40));
    assert_eq!(gateway.mss.flow_count(), 0);
}

#[test]
fn one_forged_syn_ack_stops_no_raising_and_two_forged_segments_do() {
    let forged = saying(Toward::Wide, SYN | ACK, [9, 71], 1_460);
    for (goes_on, raised) in [(false, 1), (true, 0)] {
        let mut gateway = Gateway::new(Raise::BothWays);
        gateway.step(4, 2, SYN_FROM_WIDE);
        gateway.pass(&forged, Toward::Wide, None);
        if goes_on {
            gateway.step(4, 1, ACK_FROM_NARROW);
        }
        assert_eq!(gateway.count(Event::MssRaised), 0);
        gateway.step(4, 3, SYN_FROM_NARROW);
        assert_eq!(gateway.count(Event::MssRaised), raised);
    }
}

#[test]
fn a_syn_ack_is_raised_if_its_syn_passed_here() {
    let answer = |ack| saying(Toward::Wide, SYN | ACK, [9, ack], 1_460);
    let mut gateway = Gateway::new(Raise::BothWays);
    let raises = |gateway: &mut Gateway, ack: u32| {
        let before = gateway.count(Event::MssRaised);
        gateway.pass(&answer(ack), Toward::Wide, None);
        gateway.count(Event::MssRaised) - before
    };
    assert_eq!(raises(&mut gateway, 1), 0, "nothing was asked");
    let mut gateway = Gateway::new(Raise::BothWays);
    gateway.pass(&saying(Toward::Narrow, SYN, [70, 0], 8_960), Toward::Narrow, None);
    assert_eq!(raises(&mut gateway, 71), 1);
    // The same ports again: a SYN of the wide host, and one of the narrow host.
    gateway.pass(&saying(Toward::Narrow, SYN, [900, 0], 8_960), Toward::Narrow, None);
    assert_eq!([raises(&mut gateway, 900), raises(&mut gateway, 901)], [0, 1]);
    gateway.pass(&saying(Toward::Wide, SYN, [33, 0], 1_460), Toward::Wide, None);
    assert_eq!(raises(&mut gateway, 34), 0);
}

#[test]
fn fast_open_syns_get_the_announced_mss() {
    let cookie: &[u8] = &[34, 2, 1, 1];
    let experiment: &[u8] = &[254, 4, 0xF9, 0x89];
    let other: &[u8] = &[254, 4, 0xAA, 0xAA];
    for (option, raised) in [(cookie, 0), (experiment, 0), (other, 1), (&[][..], 1)] {
        let mut gateway = Gateway::new(Raise::BothWays);
        let syn = saying(Toward::Narrow, SYN, [70, 0], 8_960);
        let options = [&syn.options[..], option].concat();
        gateway.pass(&Spec { options, ..syn }, Toward::Narrow, None);
        gateway.pass(&saying(Toward::Wide, SYN | ACK, [500, 71], 1_460), Toward::Wide, None);
        assert_eq!(gateway.count(Event::MssRaised), raised, "{option:02x?}");
    }
}

#[test]
fn three_bits_that_count_marks_are_in_every_segment_that_is_cut() {
    // The bits AE, CWR and ECE of the SYN and of its answer, and whether the hosts thereby agree on accurate ECN
    // (RFC 9768 table 2).
    let cases = [
        (0b111, 0b010, true),
        (0b111, 0b011, true),
        (0b111, 0b100, true),
        (0b111, 0b110, true),
        (0b111, 0b001, false),
        (0b111, 0b101, false),
        (0b111, 0b000, false),
        (0b011, 0b010, false),
        (0b011, 0b001, false),
    ];
    let with = |spec: Spec, bits: u8| Spec { reserved: bits >> 2, flags: spec.flags | (bits & 0b11) << 6, ..spec };
    for (asked, answered, agrees) in cases {
        for counter in 0..8 {
            let mut gateway = Gateway::new(Raise::BothWays);
            gateway.pass(&with(saying(Toward::Narrow, SYN, [70, 0], 8_960), asked), Toward::Narrow, None);
            gateway.pass(&with(saying(Toward::Wide, SYN | ACK, [500, 71], 1_460), answered), Toward::Wide, None);
            let long = with(data(4, 1, Toward::Narrow, 4_000), counter);
            // A late repeat of the SYN does not change the agreement.
            gateway.pass(&with(saying(Toward::Narrow, SYN, [70, 0], 8_960), asked ^ 0b111), Toward::Narrow, None);
            let left = gateway.pass(&long, Toward::Narrow, None);
            let said: Vec<u8> = left.iter().map(|frame| (frame[32] & 1) << 2 | frame[33] >> 6).collect();
            // AE shows accurate ECN even without a handshake.
            let later = if agrees || counter & 0b100 != 0 { counter } else { counter & !0b010 };
            assert_eq!(said, [counter, later, later], "{asked:03b}, {answered:03b}, {counter:03b}");
            assert!(left.iter().all(|frame| ReadPacket::of(frame).sum_is_right));
        }
    }
}

#[test]
fn any_copy_of_a_syn_may_ask_for_accurate_ecn() {
    let asking = |spec: &Spec| Spec { reserved: 1, flags: spec.flags | ECE | CWR, ..spec.clone() };
    let syn = saying(Toward::Narrow, SYN, [70, 0], 8_960);
    let answer = saying(Toward::Wide, SYN | ACK, [500, 71], 1_460);
    for copies in [[syn.clone(), asking(&syn)], [asking(&syn), syn.clone()]] {
        let mut gateway = Gateway::new(Raise::BothWays);
        for copy in copies {
            gateway.pass(&copy, Toward::Narrow, None);
        }
        gateway.pass(&Spec { flags: answer.flags | CWR, ..answer.clone() }, Toward::Wide, None);
        let long = data(4, 1, Toward::Narrow, 4_000);
        let left = gateway.pass(&Spec { flags: long.flags | CWR, ..long }, Toward::Narrow, None);
        // CWR is one bit of the counter: every segment has it.
        assert_eq!(left.iter().map(|frame| frame[33] & (ECE | CWR)).collect::<Vec<_>>(), [CWR; 3]);
    }
}

/// The SYN-ACK to a SYN.
fn answering(syn: &Spec, mss: u16) -> Spec {
    Spec {
        flags: SYN | ACK,
        seq: 77,
        ack: syn.seq.wrapping_add(1),
        options: mss_option(mss),
        ..syn.clone().turned()
    }
}

#[test]
fn segments_are_as_long_as_both_the_border_and_their_receiver_take() {
    // The announced MSS of the receiver, and the length of IPv4 packets toward the receiver.
    let toward_narrow =
        [(Some(1_460), 1_500), (Some(1_200), 1_240), (Some(9_000), 1_500), (None, 576), (Some(48), 576)];
    let toward_wide = [(Some(8_960), 9_000), (Some(1_460), 1_500), (Some(65_495), 9_000), (None, 576)];
    for (toward, cases) in [(Toward::Narrow, &toward_narrow[..]), (Toward::Wide, &toward_wide)] {
        for (mss, expected) in cases {
            let mut gateway = Gateway::new(Raise::BothWays);
            let syn =
                Spec { flags: SYN, options: mss.map_or(Vec::new(), mss_option), ..data(4, 1, toward, 0).turned() };
            gateway.pass(&syn, other(toward), None);
            gateway.pass(&answering(&syn, 1_460), toward, None);
            let long = data(4, 1, toward, 40_000);
            for segment_len in [None, Some(1_448), Some(8_900)] {
                let left = gateway.pass(&long, toward, segment_len);
                let longest = left.iter().map(|frame| ReadPacket::of(frame).ip_len()).max();
                assert_eq!(longest, Some(*expected), "{toward:?}, {mss:?}, {segment_len:?}");
            }
            // Other splitters of its GSO packets get the same limit, from either direction.
            let long = gateway.fresh(&long);
            let seen = gateway.seen(&long, toward, Checksum::Unverified, Some(1_448));
            let back = gateway.seen(&long.turned(), other(toward), Checksum::Unverified, None);
            let ports = [0, 2].map(|at| u16::from_be_bytes([back.payload()[at], back.payload()[at + 1]]));
            let (from, to) = back.addresses();
            let ends = [(from, ports[0]), (to, ports[1])];
            let limit = gateway.mss.limits(ends, other(toward)).map(|[_, back]| back);
            assert_eq!(limit, seen.segment_limit, "{toward:?}, {mss:?}");
            let side = pick(toward, &gateway.wide, &gateway.narrow);
            let resized = seen.segment_limit.and_then(|limit| side.resizes_to(limit));
            assert_eq!(resized.map(|limit| usize::from(limit.len_max)), Some(*expected), "{toward:?}, {mss:?}");
            [seen, back].into_iter().for_each(|packet| gateway.out.recycle(packet));
        }
        let mut stranger = Gateway::new(Raise::BothWays);
        let left = stranger.pass(&data(4, 1, toward, 40_000), toward, Some(1_460));
        let longest = left.iter().map(|frame| ReadPacket::of(frame).ip_len()).max();
        assert_eq!(longest, Some(pick(toward, 1_500, usize::from(SAFE_LEN))));
        let cut = pick(toward, 0, 40_000usize.div_ceil(1_460) as u64);
        assert_eq!(stranger.count(Event::MssUnknown), cut);
    }
}

#[test]
fn reassembled_tcp_keeps_the_safe_length() {
    let mut gateway = Gateway::new(Raise::BothWays);
    let spec = Spec { ip_flags: 0, ..data(4, 1, Toward::Narrow, 6_000) };
    // A packet from the reassembler: its limit has not been looked up.
    let packet = Frame::copy(&spec.bytes(), LinkType::Ip, Ingress(0), &mut gateway.out.pool).unwrap();
    gateway.narrow.push(gateway.now, packet, &mut gateway.mss, &mut gateway.out);
    let left = gateway.drain(Toward::Narrow);
    assert_eq!(left.iter().map(|frame| ReadPacket::of(frame).ip_len()).max(), Some(usize::from(SAFE_LEN)));
}

// The model: the smallest MSS that each host has announced.
#[test]
fn no_segment_is_longer_than_the_least_that_its_receiver_announced() {
    let mut kept = 0;
    each_seed("-p wideload-engine mss", 100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut gateway = Gateway::new(Raise::BothWays);
        let version = *random.choice(&VERSIONS).unwrap();
        let mut least = [None; 2];
        for _ in 0..20 {
            let toward = if random.bool() { Toward::Wide } else { Toward::Narrow };
            let sender = sender(toward);
            if random.bool() {
                let mss = random.u16(100..9_000);
                let flags = *random.choice(&[SYN, SYN | ACK]).unwrap();
                let syn = Spec { flags, options: mss_option(mss), ..data(version, 1, toward, 0) };
                gateway.see(&syn, toward, Checksum::Unverified);
                least[sender] = Some(least[sender].map_or(mss, |least: u16| least.min(mss)));
            } else if let Some(least) = least[1 - sender] {
                let asked = gateway.len_max(&data(version, 1, toward, 10), toward);
                let headers = if version == 4 { 40 } else { 60 };
                assert!(
                    asked <= headers + least.max(floor(version)),
                    "seed {seed}: {asked} toward {toward:?}, {least}"
                );
                kept += 1;
            }
        }
    });
    assert!(kept > 0 || std::env::var("WIDELOAD_SEED").is_ok(), "nothing is ever asked");
}

// The model: the MSS that each host announced, forgotten when the gateway restarts.
#[test]
fn restarts_keep_segments_within_announced_and_safe_lengths() {
    let mut longest = [0; 2];
    each_seed("-p wideload-engine mss", 60, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let is_small = seed % 3 == 0;
        let new = |random: &mut fastrand::Rng| {
            let limit = if is_small { random.usize(..6_000) } else { 1 << 20 };
            Connections::at_border(limit, border(Raise::BothWays), Secret::new(seed.into()))
        };
        let mut gateway = Gateway::new(Raise::BothWays);
        gateway.mss = new(&mut random);
        let announcements = [None, Some(100), Some(536), Some(1_000), Some(1_440), Some(4_000), Some(8_960)];
        let mut talks: Vec<Talk> = (0..random.u16(1..12))
            .map(|port| Talk {
                version: *random.choice(&VERSIONS).unwrap(),
                port,
                announces: [(); 2].map(|()| *random.choice(&announcements).unwrap()),
                sent: [0; 2],
            })
            .collect();
        // The hosts, by port and side, of which a SYN passed since the start.
        let mut heard: HashSet<(u16, usize)> = HashSet::new();
        for _ in 0..300 {
            if random.u8(..60) == 0 {
                gateway.mss = new(&mut random);
                heard.clear();
            }
            gateway.now = gateway.now + Duration::from_millis(random.u64(..600));
            gateway.mss.expire(gateway.now);
            let at = random.usize(..talks.len());
            let toward = if random.bool() { Toward::Wide } else { Toward::Narrow };
            let talk = &mut talks[at];
            for _ in 0..random.usize(1..5) {
                let (spec, segment_len) = talk.say(toward, &mut random);
                if spec.flags & SYN != 0 {
                    heard.insert((talk.port, sender(toward)));
                }
                gateway.push(&spec, toward, segment_len);
            }
            for frame in gateway.drain(toward) {
                let seen = ReadPacket::of(&frame);
                let Some(talk) = talks.iter().find(|talk| talk.is_of(&seen, toward)) else { continue };
                if seen.flags & SYN != 0 {
                    continue;
                }
                let receiver = 1 - sender(toward);
                let announced = talk.len_max(receiver);
                let unknown = usize::from(border(Raise::Never).unknown_len_max(toward));
                let bound = match heard.contains(&(talk.port, receiver)) {
                    true if !is_small => announced,
                    true => announced.max(unknown),
                    false => unknown,
                };
                let mtu = pick(toward, 9_000, 1_500);
                assert!(
                    seen.ip_len() <= bound.min(mtu),
                    "seed {seed}: {} toward {toward:?}, {bound}",
                    seen.ip_len()
                );
                longest[receiver] = longest[receiver].max(seen.ip_len());
            }
        }
    });
    assert!(
        longest == [9_000, 1_500] || std::env::var("WIDELOAD_SEED").is_ok(),
        "it is as long as may be: {longest:?}"
    );
}

// Helpers.

/// A border with its two sides and its connection table.
struct Gateway {
    wide: Side,
    narrow: Side,
    out: Output,
    mss: Connections,
    ledger: Ledger,
    now: Time,
    link_type: LinkType,
    /// Bytes by which the data of the next packet lies behind that of its description: none repeats another's.
    ahead: u32,
}

impl Gateway {
    fn new(raise: Raise) -> Gateway {
        let side = |mtu, toward: Toward| {
            Side::of(
                Aggregation {
                    coalescer: Some(
                        Coalescer::new(1 << 20, resize(u16::MAX), Vec::new(), Secret::new(5))
                            .in_direction(toward.direction()),
                    ),
                    ..Aggregation::default()
                },
                Sizing {
                    gso_packets: SegmentSize::ResizedWhereKnown,
                    unknown_len_max: border(raise).unknown_len_max(toward),
                    ..Sizing::new(mtu, Role::Transit)
                },
            )
        };
        Gateway {
            wide: side(9_000, Toward::Wide),
            narrow: side(1_500, Toward::Narrow),
            out: Output::new(Pool::new(64 << 20), None),
            mss: Connections::at_border(1 << 20, border(raise), Secret::new(3)),
            ledger: Ledger::new(),
            now: Time::from_nanos(1_000_000_000),
            link_type: LinkType::Ip,
            ahead: 1,
        }
    }

    /// Processes a packet. Returns its bytes, the state of its checksum, and whether it is unchanged.
    fn see(&mut self, spec: &Spec, toward: Toward, checksum: Checksum) -> (Vec<u8>, (Checksum, bool)) {
        let packet = self.seen(spec, toward, checksum, None);
        let left = (packet.frame().to_vec(), (packet.checksum, packet.is_as_received()));
        self.out.recycle(packet);
        left
    }

    fn seen(&mut self, spec: &Spec, toward: Toward, checksum: Checksum, segment_len: Option<u16>) -> Packet {
        let mut packet = Frame::copy(&spec.bytes(), self.link_type, Ingress(0), &mut self.out.pool).unwrap();
        packet.checksum = checksum;
        packet.gso =
            segment_len.map(|segment_len| Gso { segment_len, ids: Identifications::Rise, maker: Maker::Sender });
        self.mss.on_packet(self.now, &mut packet, toward, &mut self.ledger);
        packet
    }

    /// The size limit after a packet of an offloaded connection.
    fn hear(&mut self, version: u8, port: u16, toward: Toward) -> Option<SegmentLimit> {
        let spec = data(version, port, toward, 10);
        let packet = Frame::copy(&spec.bytes(), self.link_type, Ingress(0), &mut self.out.pool).unwrap();
        let (source, destination) = packet.addresses();
        let [from, to] = spec.ports;
        self.out.recycle(packet);
        self.mss.on_offloaded(self.now, [(source, from), (destination, to)], toward)
    }

    /// The longest allowed packet of this connection.
    fn len_max(&mut self, spec: &Spec, toward: Toward) -> u16 {
        let spec = self.fresh(spec);
        let packet = self.seen(&spec, toward, Checksum::Unverified, None);
        let len_max = packet.segment_limit.map_or(0, |limit| limit.len_max);
        self.out.recycle(packet);
        len_max
    }

    fn step(&mut self, version: u8, port: u16, (toward, flags): Step) {
        let mss = pick(toward, 1_440, 8_900);
        let options = if flags & SYN == 0 { Vec::new() } else { mss_option(mss) };
        let spec = data(version, port, toward, 0);
        // Both hosts start with the same sequence number.
        let ack = if flags == SYN | ACK { spec.seq.wrapping_add(1) } else { spec.ack };
        let spec = Spec { flags, ack, options, ..spec };
        self.see(&spec, toward, Checksum::Unverified);
    }

    /// The packets that leave for a packet, as on the wire.
    fn pass(&mut self, spec: &Spec, toward: Toward, segment_len: Option<u16>) -> Vec<Vec<u8>> {
        let spec = self.fresh(spec);
        self.push(&spec, toward, segment_len);
        self.drain(toward)
    }

    /// The same packet with data that was not sent before.
    fn fresh(&mut self, spec: &Spec) -> Spec {
        let has_data = !spec.payload.is_empty() && spec.flags & (SYN | FIN) == 0;
        self.ahead += if has_data { spec.payload.len() as u32 } else { 0 };
        let ahead = if has_data { self.ahead - spec.payload.len() as u32 } else { 0 };
        Spec { seq: spec.seq.wrapping_add(ahead), ..spec.clone() }
    }

    fn push(&mut self, spec: &Spec, toward: Toward, segment_len: Option<u16>) {
        let checksum = if spec.sum == Summed::Half { Checksum::Partial } else { Checksum::Unverified };
        let packet = self.seen(spec, toward, checksum, segment_len);
        pick(toward, &mut self.wide, &mut self.narrow).push(self.now, packet, &mut self.mss, &mut self.out);
    }

    fn drain(&mut self, toward: Toward) -> Vec<Vec<u8>> {
        let side = pick(toward, &mut self.wide, &mut self.narrow);
        side.release(self.now, &mut self.mss, &mut self.out);
        let mut left = Vec::new();
        while let Some(packet) = self.out.next() {
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                left.push([fragment.header, fragment.payload].concat());
            }
            self.out.recycle(packet);
        }
        assert_eq!(self.out.pool.in_use_count(), 0);
        left
    }

    fn count(&self, event: Event) -> u64 {
        self.ledger.event(event).packets
    }
}

/// A connection whose hosts always announce the same MSS.
struct Talk {
    version: u8,
    port: u16,
    /// The MSS of the wide host, then of the narrow host. `None`: no MSS option.
    announces: [Option<u16>; 2],
    sent: [usize; 2],
}

impl Talk {
    fn say(&mut self, toward: Toward, random: &mut fastrand::Rng) -> (Spec, Option<u16>) {
        let sender = sender(toward);
        let one = data(self.version, self.port, toward, 0);
        match random.u8(..12) {
            0..3 => {
                let flags = *random.choice(&[SYN, SYN | ACK]).unwrap();
                let options = self.announces[sender].map_or(Vec::new(), mss_option);
                let ack = if random.bool() { one.seq.wrapping_add(1) } else { one.ack };
                (Spec { flags, ack, options, ..one }, None)
            }
            3 => (Spec { flags: *random.choice(&[FIN | ACK, RST, ACK]).unwrap(), ..one }, None),
            what => {
                let len_max = if what < 8 { pick(toward, 1_440, 8_940) } else { 60_000 };
                let len = random.usize(1..=len_max);
                let offset = self.sent[sender];
                self.sent[sender] += len;
                let half = if random.bool() { Summed::Half } else { Summed::Right };
                let segment_len = (what >= 8).then(|| random.u16(500..pick(toward, 1_440, 8_940)));
                (Spec { sum: half, ..one.carrying(offset, len) }, segment_len)
            }
        }
    }

    fn is_of(&self, seen: &ReadPacket, toward: Toward) -> bool {
        seen.version == self.version && seen.ports[pick(toward, 0, 1)] == 10_000 + self.port
    }

    /// The longest packet that a host accepts.
    fn len_max(&self, end: usize) -> usize {
        let (headers, default) = if self.version == 4 { (40, 536) } else { (60, 1_220) };
        headers + usize::from(self.announces[end].unwrap_or(default).max(default))
    }
}

/// The MSS options that the test finds.
struct Read {
    /// Offset and value of each MSS option of the right length.
    found: Vec<(usize, u16)>,
    is_readable: bool,
    is_signed: bool,
    has_stamps: bool,
}

impl Read {
    fn of(options: &[u8]) -> Read {
        let mut read = Read { found: Vec::new(), is_readable: true, is_signed: false, has_stamps: false };
        let mut at = 0;
        while at < options.len() && options[at] != 0 {
            let len = match (options[at], options.get(at + 1)) {
                (1, _) => 1,
                (_, Some(len)) if *len >= 2 && at + usize::from(*len) <= options.len() => usize::from(*len),
                _ => {
                    read.is_readable = false;
                    break;
                }
            };
            match (options[at], len) {
                (2, 4) => read.found.push((at + 2, u16::from_be_bytes([options[at + 2], options[at + 3]]))),
                (2, _) => read.is_readable = false,
                (8, 10) => read.has_stamps = true,
                (19 | 29, 2..) => read.is_signed = true,
                _ => {}
            }
            at += len;
        }
        read
    }

    /// The only MSS option, which may be changed.
    fn one(&self) -> Option<(usize, u16)> {
        match &self.found[..] {
            [one] if self.is_readable && !self.is_signed && one.1 >= 48 => Some(*one),
            _ => None,
        }
    }

    /// Whether the MSS is ambiguous, or would be changed if that were possible.
    fn wants(&self, toward: Toward, version: u8) -> bool {
        let default = if version == 4 { 536 } else { 1_220 };
        let mss = self.found.first().map_or(default, |(_, mss)| *mss);
        let is_clear = self.is_readable && self.found.len() <= 1 && mss >= 48;
        !is_clear || mss != told(MTUS, version, toward, mss, self.has_stamps)
    }
}

/// All sequences of up to three options, and of four with an MSS option among common ones.
fn layouts() -> Vec<Vec<u8>> {
    let menu: Vec<Vec<u8>> = vec![
        vec![1],
        mss_option(1_460),
        mss_option(9_500),
        mss_option(40),
        vec![3, 3, 7],
        vec![4, 2],
        [&[8, 10][..], &[7; 8]].concat(),
        vec![34, 2],
        [&[30, 12][..], &[5; 10]].concat(),
        [&[19, 18][..], &[9; 16]].concat(),
        [&[29, 16][..], &[9; 14]].concat(),
        vec![2, 3, 5],
        vec![8, 0],
        vec![8, 41],
        vec![0],
    ];
    let mut layouts: Vec<Vec<u8>> = vec![Vec::new()];
    let mut rows: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..3 {
        rows = rows.iter().flat_map(|row| menu.iter().map(move |option| [&row[..], option].concat())).collect();
        layouts.extend(rows.iter().map(|row| padded(row)).filter(|row| row.len() <= 40));
    }
    layouts.sort();
    layouts.dedup();
    layouts
}

/// Options padded with zeros to a multiple of four bytes.
fn padded(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    options
}

fn mss_option(mss: u16) -> Vec<u8> {
    [&[2, 4][..], &mss.to_be_bytes()].concat()
}

fn border(raise: Raise) -> Border {
    let [wide_mtu, narrow_mtu] = MTUS;
    Border { raise, safe_len: SAFE_LEN, ..Border::usual(wide_mtu, narrow_mtu) }
}

/// MTUs of the wide side and of the narrow side, in bytes.
const MTUS: [u16; 2] = [9_000, 1_500];

/// The MSS that a side's hosts are told if the other side's hosts announce `announced`.
///
/// Toward the wide side these candidates exist: each MSS that its MTU carries and that holds two narrow segments.
/// The border announces the candidate with the fewest wide and narrow packets for each byte. If several candidates
/// are equal, it announces the longest. The announced MSS is never less than `announced`.
fn told([wide, narrow]: [u16; 2], version: u8, toward: Toward, announced: u16, has_stamps: bool) -> u16 {
    let [wide, narrow] = [wide, narrow].map(|mtu| mtu - if version == 4 { 40 } else { 60 });
    if toward == Toward::Narrow {
        return announced.min(narrow);
    }
    let options = if has_stamps { 12 } else { 0 };
    let segment = u32::from(announced.max(floor(version)).min(narrow).saturating_sub(options)).max(1);
    let packets = |len: u32| 1 + len.div_ceil(segment);
    let fewer = |one: u32, other: u32| packets(one) * other < packets(other) * one;
    let longest = u32::from(wide - options);
    let best = (2 * segment..=longest).rev().reduce(|best, len| if fewer(len, best) { len } else { best });
    let best = best.map_or(wide, |best| best as u16 + options);
    if best < announced { wide.max(announced) } else { best }
}

/// The MSS that every host accepts (RFC 9293 section 3.7.1, RFC 8200 section 5).
fn floor(version: u8) -> u16 {
    if version == 4 { 536 } else { 1_220 }
}

fn pick<T>(toward: Toward, wide: T, narrow: T) -> T {
    match toward {
        Toward::Wide => wide,
        Toward::Narrow => narrow,
    }
}

fn other(toward: Toward) -> Toward {
    pick(toward, Toward::Narrow, Toward::Wide)
}

/// Returns the index of the host that sends toward a side: 0 is the wide host.
fn sender(toward: Toward) -> usize {
    pick(toward, 1, 0)
}

/// A packet of a connection between narrow host 1 and wide host 2.
fn data(version: u8, port: u16, toward: Toward, len: usize) -> Spec {
    let spec = from_narrow(version, port).carrying(0, len);
    pick(toward, spec.clone(), spec.turned())
}

fn from_narrow(version: u8, port: u16) -> Spec {
    tcp(version).ports(10_000 + port, 443)
}
