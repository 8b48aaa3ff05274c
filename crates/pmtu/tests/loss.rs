//! Ordinary loss, alone and in bursts, never lowers a size; a size limit lowers it soon.

use fastrand::Rng;
use packet::{Time, Version};
use proptest::prelude::*;
use std::time::Duration;
use wideload_pmtu::{Phase, RAISE_AFTER, SizeSearch, Sizes};

/// A channel that loses packets in bursts: a chain of two states, one step for each packet (Gilbert 1960).
struct Channel {
    rng: Rng,
    loss: f64,
    burst_len: f64,
    is_bad: bool,
    packet_count: u64,
    now: Time,
}

impl Channel {
    fn loses(&mut self) -> bool {
        self.packet_count += 1;
        let leave = 1.0 / self.burst_len;
        let enter = leave * self.loss / (1.0 - self.loss);
        let turns = self.rng.f64() < if self.is_bad { leave } else { enter };
        self.is_bad ^= turns;
        self.is_bad
    }
}

/// A TCP-like sender: `window` packets each round trip. Lost bytes are sent again in smaller packets.
fn send_until(path: &mut SizeSearch, channel: &mut Channel, window: u32, limit: u16, until: u64) -> Option<Time> {
    let (mut now, before) = (channel.now, path.size());
    while channel.packet_count < until {
        now = now + RTT;
        let size = path.size();
        // One packet of the window is sampled.
        let sample = channel.rng.u32(0..window);
        let lost: Vec<bool> = (0..window).map(|_| channel.loses() | (size > limit)).collect();
        if !lost[sample as usize] {
            path.delivered(now + RTT, size);
        }
        if let Some(first) = lost.iter().position(|lost| *lost) {
            let is_timeout = lost[first..].iter().all(|lost| *lost);
            path.lost(now + RTT, size, RTT);
            let mut resent = 1;
            loop {
                now = now + if is_timeout { Duration::from_millis(200) } else { RTT };
                let len = path.size_after(resent);
                if !channel.loses() && len <= limit {
                    path.delivered(now + RTT, len);
                    break;
                }
                path.lost(now + RTT, len, RTT);
                resent += 1;
            }
        }
        if path.size() < before {
            return Some(now);
        }
        channel.now = now;
    }
    None
}

#[test]
fn ordinary_loss_never_lowers_a_size() {
    let mut packet_count = 0;
    for (loss, burst_len, window) in [
        (0.05, 1.0, 1),
        (0.1, 1.0, 1),
        (0.05, 4.0, 2),
        (0.1, 4.0, 1),
        (0.1, 10.0, 1),
        (0.1, 10.0, 8),
        (0.1, 30.0, 40),
        (0.2, 3.0, 1),
    ] {
        for seed in 0..4 {
            let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
            let rng = Rng::with_seed(seed);
            let mut channel = Channel { rng, loss, burst_len, is_bad: false, packet_count: 0, now: Time::ZERO };
            let lowered = send_until(&mut path, &mut channel, window, 1_500, 400_000);
            packet_count += channel.packet_count;
            assert_eq!(lowered, None, "loss {loss} in bursts of {burst_len}, window {window}, seed {seed}");
            assert_eq!((path.size(), path.phase()), (1_500, Phase::LinkMtu));
        }
    }
    assert!(packet_count > 10_000_000, "{packet_count} packets");
}

// R108: no ICMP error tells of the limit.
#[test]
fn a_size_limit_lowers_the_size_within_seconds_also_on_a_lossy_path() {
    for (loss, seconds) in [(0.0, 2.5), (0.01, 2.5), (0.05, 4.0), (0.1, 6.0)] {
        let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
        let rng = Rng::with_seed(7);
        let mut channel = Channel { rng, loss, burst_len: 1.0, is_bad: false, packet_count: 0, now: Time::ZERO };
        assert_eq!(send_until(&mut path, &mut channel, 10, 1_500, 20_000), None);
        let begin = channel.now;
        let lowered = send_until(&mut path, &mut channel, 10, 1_400, 40_000).unwrap();
        assert!(lowered.since(begin).as_secs_f64() < seconds, "loss {loss}: {lowered}");
        assert!(path.size() < 1_400, "{}", path.size());
    }
}

#[test]
fn an_outage_lowers_nothing() {
    let mut path = SizeSearch::new(Sizes::of(Version::V6, 1_500));
    let mut now = Time::ZERO;
    for outage in 0..4 {
        for round in 0..100 {
            path.lost(now, path.size_after(round.min(3)), RTT);
            now = now + RTT * 2;
        }
        path.delivered(now, 1_280);
        assert_eq!(path.size(), 1_500, "after outage {outage}");
        path.delivered(now, 1_500);
    }
}

/// The probes of a search on a path that carries `limit` bytes, until it settles.
fn probes(path: &mut SizeSearch, now: &mut Time, limit: u16) -> Vec<u16> {
    let mut probes = Vec::new();
    while let Phase::Searching(_) = path.phase() {
        *now = *now + RTT;
        if let Some(len) = path.next_probe(*now, 1_500, 1_500) {
            probes.push(len);
            if len <= limit { path.delivered(*now, len) } else { path.lost(*now, len, RTT) }
        }
    }
    probes
}

// R104: three tries of each size. R109: a round trip apart.
#[test]
fn a_search_halves_the_range_and_tries_a_lost_probe_again() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    let mut now = Time::ZERO;
    while path.size() == 1_500 {
        path.lost(now, 1_500, RTT);
        now = now + RTT * 2;
        path.delivered(now, 1_280);
    }
    assert_eq!(path.size(), 1_280);
    assert_eq!(probes(&mut path, &mut now, 1_400), [1_426, 1_426, 1_426, 1_380, 1_406, 1_406, 1_406, 1_396, 1_400]);
    assert_eq!(path.size(), 1_400);
}

// R053, R104: a settled size is kept for ten minutes.
#[test]
fn ten_minutes_later_the_first_probe_is_the_links_mtu_and_then_one_step() {
    let mut path = SizeSearch::new(Sizes::of(Version::V6, 1_500));
    let mut now = Time::ZERO;
    assert!(path.too_big(now, 1_400));
    assert_eq!(path.size(), 1_400);
    now = now + RAISE_AFTER - Duration::from_millis(1);
    assert_eq!(path.next_probe(now, 1_500, 1_500), None);
    now = now + Duration::from_millis(1);
    // Nothing has changed.
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    path.lost(now, 1_500, RTT);
    assert_eq!(probes(&mut path, &mut now, 1_400), [1_500, 1_500, 1_406, 1_406, 1_406]);
    // The path carries a little more.
    now = now + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    path.lost(now, 1_500, RTT);
    let seen = probes(&mut path, &mut now, 1_420);
    assert_eq!((path.size(), &seen[..3]), (1_420, &[1_500, 1_500, 1_406][..]));
    // The path is whole again.
    now = now + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    path.delivered(now, 1_500);
    assert_eq!((path.size(), path.phase()), (1_500, Phase::LinkMtu));
}

// R023, R098
#[test]
fn wrong_icmp_errors_change_nothing() {
    for (version, floor) in [(Version::V4, 552), (Version::V6, 1_280)] {
        let mut path = SizeSearch::new(Sizes::of(version, 1_500));
        for mtu in [0, 68, floor - 1, 1_500, 1_501, 9_000, 65_535] {
            assert!(!path.too_big(Time::ZERO, mtu), "{mtu}");
        }
        assert_eq!(path.phase(), Phase::LinkMtu);
        assert!(path.too_big(Time::ZERO, floor));
        assert_eq!(path.size(), floor);
    }
}

// R022, R023, R024, R098: every MTU that an error can state, in every phase.
#[test]
fn no_icmp_error_raises_a_size_or_lowers_it_below_the_floor() {
    for (version, floor) in [(Version::V4, 552), (Version::V6, 1_280)] {
        let link_mtu = SizeSearch::new(Sizes::of(version, 1_500));
        let mut settled = link_mtu.clone();
        settled.too_big(Time::ZERO, 1_400);
        let mut searching = settled.clone();
        let now = Time::ZERO + RAISE_AFTER;
        assert_eq!(searching.next_probe(now, 1_500, 1_500), Some(1_500));
        for before in [link_mtu, settled, searching] {
            for mtu in 0..=u16::MAX {
                let mut path = before.clone();
                let is_lowered = path.too_big(now, mtu);
                let expected = if (floor..before.size()).contains(&mtu) { mtu } else { before.size() };
                assert_eq!((path.size(), is_lowered), (expected, expected < before.size()), "{mtu}");
                // Repeated, it has no effect.
                assert!(!path.too_big(now, mtu));
                assert_eq!(path.size(), expected);
            }
        }
    }
}

proptest! {
    // R052, R109: whatever happens to probes and packets.
    #[test]
    fn probes_are_longer_than_the_size_and_at_least_a_round_trip_apart(
        steps in proptest::collection::vec((0_u8..6, 0_u64..3_000, 40_u16..1_501), 1..400),
        link_mtu in prop::sample::select(vec![576_u16, 1_477, 1_500]),
    ) {
        let mut path = SizeSearch::new(Sizes::of(Version::V4, link_mtu));
        let (mut now, mut in_flight, mut earliest) = (Time::ZERO, None, Time::ZERO);
        path.too_big(now, 560);
        now = now + RAISE_AFTER;
        for (step, millis, len) in steps {
            now = now + Duration::from_millis(millis);
            // An answer takes a round trip at least.
            let answered = in_flight.filter(|(_, sent)| now.since(*sent) >= RTT);
            match (step, answered) {
                (0, Some((probe, _))) => (in_flight, _) = (None, path.delivered(now, probe)),
                (1, Some((probe, _))) => {
                    path.lost(now, probe, RTT);
                    (in_flight, earliest) = (None, now + RTT);
                }
                (2, _) => path.lost(now, path.size(), RTT),
                (3, _) => path.delivered(now, path.size().min(len)),
                _ => if let Some(probe) = path.next_probe(now, link_mtu, link_mtu) {
                    prop_assert!(path.size() < probe && probe <= link_mtu, "{probe} above {}", path.size());
                    prop_assert!(now >= earliest, "a probe at {now}, before {earliest}");
                    (in_flight, earliest) = (Some((probe, now)), now + RTT);
                }
            }
        }
    }
}

#[test]
fn a_packet_that_was_sent_before_the_size_was_lowered_does_not_raise_it() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    path.too_big(Time::ZERO, 1_400);
    path.delivered(Time::ZERO + RTT, 1_500);
    assert_eq!(path.size(), 1_400);
    assert!(matches!(path.phase(), Phase::Settled { .. }));
    let now = Time::ZERO + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    path.delivered(now, 1_500);
    assert_eq!((path.size(), path.phase()), (1_500, Phase::LinkMtu));
}

#[test]
fn only_the_probe_in_flight_changes_the_size_of_a_search() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    let mut now = Time::ZERO;
    while path.size() == 1_500 {
        path.lost(now, 1_500, RTT);
        now = now + RTT * 2;
        path.delivered(now, 1_280);
    }
    let probe = path.next_probe(now, 1_500, 1_500).unwrap();
    for other in [576, 1_280, 1_300, 1_500] {
        path.delivered(now, other);
        assert_eq!(path.size(), 1_280, "{other} is not the probe");
    }
    path.delivered(now, probe);
    assert_eq!(path.size(), probe);
}

#[test]
fn a_receiver_with_a_smaller_limit_gets_a_probe_of_its_limit_and_no_search_without_end() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    path.too_big(Time::ZERO, 1_400);
    let now = Time::ZERO + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_492, 200), None, "the packet is too short");
    assert!(matches!(path.phase(), Phase::Settled { .. }), "nothing was sent");
    assert_eq!(path.next_probe(now, 1_492, 1_492), Some(1_492));
    path.delivered(now + RTT, 1_492);
    assert_eq!(path.size(), 1_492);
    assert_eq!(path.next_probe(now + RTT, 1_492, 1_492), None);
    assert!(matches!(path.phase(), Phase::Settled { .. }));
}

#[test]
fn a_router_that_answers_a_probe_names_the_next_one() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    path.too_big(Time::ZERO, 1_400);
    let now = Time::ZERO + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    assert!(!path.too_big(now, 1_420), "the size does not decrease");
    assert_eq!(path.next_probe(now + RTT, 1_500, 1_500), Some(1_420));
    path.delivered(now + RTT, 1_420);
    assert_eq!(path.size(), 1_420);
    // The path is as it was.
    let now = now + RAISE_AFTER + RTT;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    path.too_big(now, 1_420);
    assert!(matches!(path.phase(), Phase::Settled { .. }));
}

#[test]
fn a_size_that_was_delivered_long_ago_is_not_where_a_search_begins() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    path.delivered(Time::ZERO, 1_492);
    let mut now = Time::ZERO + RAISE_AFTER;
    while path.size() == 1_500 {
        path.lost(now, 1_500, RTT);
        now = now + RTT * 2;
        path.delivered(now, 1_280);
    }
    assert_eq!(path.size(), 1_280);
}

// R104: the outcome of a probe is awaited for three seconds.
#[test]
fn a_probe_of_a_connection_that_ended_does_not_stop_the_search() {
    let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
    path.too_big(Time::ZERO, 1_400);
    let now = Time::ZERO + RAISE_AFTER;
    assert_eq!(path.next_probe(now, 1_500, 1_500), Some(1_500));
    assert_eq!(path.next_probe(now + Duration::from_secs(1), 1_500, 1_500), None);
    assert_eq!(path.next_probe(now + Duration::from_secs(3), 1_500, 1_500), Some(1_500));
}

const RTT: Duration = Duration::from_millis(20);
