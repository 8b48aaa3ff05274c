//! Time -> deadlines: nothing is evicted a nanosecond early, and nothing is held past its deadline.

use crate::station::{Left, Station, USUAL, at};
use core::time::Duration;
use testkit::{Place, ReadPacket, Spec, ip, noise};
use wideload_engine::packet::Time;
use wideload_engine::{Event, Late, Limits, Reason};

#[test]
fn a_datagram_is_evicted_exactly_at_its_deadline() {
    for (version, timeout, deadline) in deadlines() {
        for arrival in [0, 1, 999_999_999, 86_400_000_000_123] {
            let now = Time::from_nanos(arrival);
            let datagram = ip(version).noise(3_000);
            for [first, last] in [[0, 1], [1, 0]] {
                let fragments = datagram.fragments(1_600);
                let mut station = Station::joining(Limits { timeout, ..USUAL }, Late::Retire);
                assert_eq!(station.side.next_deadline(), None);
                station.push_ip(now, &fragments[first]);
                assert_eq!(station.side.next_deadline(), Some(now + deadline));

                let before = now + (deadline - NANOSECOND);
                assert_eq!(station.expire(before), []);
                assert_eq!(station.side.next_deadline(), Some(now + deadline));
                let left = station.push_ip(before, &fragments[last]);
                assert_eq!(frames(&left), [datagram.bytes()], "in time by a nanosecond");
                assert_eq!(station.side.next_deadline(), None);

                station.push_ip(now, &fragments[first]);
                assert_eq!(station.expire(now + deadline), []);
                assert_eq!(station.out.ledger.retired(Reason::FragLate).packets, 1);
                assert_eq!(station.side.next_deadline(), None);
                assert_eq!(station.push_ip(now + deadline, &fragments[last]), [], "the first is gone");
            }
        }
    }
}

#[test]
fn later_fragments_do_not_extend_a_deadline() {
    for (version, timeout, deadline) in deadlines() {
        let datagram = ip(version).noise(8_000);
        let mut fragments = datagram.fragments(1_500);
        let last = fragments.pop().unwrap();
        let mut station = Station::joining(Limits { timeout, ..USUAL }, Late::Retire);
        for (index, fragment) in fragments.iter().chain(&fragments).enumerate() {
            // The fragments arrive in order, then all of them arrive again.
            station.push_ip(at(deadline / 16 * index as u32), fragment);
            assert_eq!(station.side.next_deadline(), Some(at(deadline)));
        }
        assert_eq!(station.expire(at(deadline - NANOSECOND)), []);
        assert_eq!(station.side.next_deadline(), Some(at(deadline)));
        station.expire(at(deadline));
        assert_eq!(station.out.ledger.retired(Reason::FragLate).packets, fragments.len() as u64);
        assert_eq!(station.push_ip(at(deadline), &last), []);
    }
}

#[test]
fn a_poisoned_key_is_free_again_at_its_datagrams_deadline() {
    for (version, timeout, deadline) in deadlines() {
        let datagram = ip(version).noise(3_000);
        let other = Spec { payload: noise(3_000, 7), ..datagram.clone() };
        let [first, last] = datagram.fragments(1_600).try_into().unwrap();
        let evil = other.fragments(1_600).remove(0);
        let mut station = Station::joining(Limits { timeout, ..USUAL }, Late::Retire);
        station.push_ip(Time::ZERO, &first);
        assert_eq!(station.push_ip(at(deadline / 2), &evil), []);
        assert_eq!(station.out.ledger.retired(Reason::FragOverlap).packets, 2, "both end");
        assert_eq!(station.out.pool.in_use_count(), 0);
        assert_eq!(station.side.next_deadline(), Some(at(deadline)));
        for now in [at(deadline / 2), at(deadline - NANOSECOND)] {
            assert_eq!(station.expire(now), []);
            for fragment in [&first, &last, &evil] {
                assert_eq!(station.push_ip(now, fragment), [], "the key is poisoned");
            }
        }
        assert_eq!(station.out.ledger.retired(Reason::FragPoisoned).packets, 6);
        assert_eq!(station.expire(at(deadline)), []);
        assert_eq!(station.side.next_deadline(), None);
        assert_eq!(station.push_ip(at(deadline), &last), []);
        assert_eq!(frames(&station.push_ip(at(deadline), &first)), [datagram.bytes()]);
    }
}

#[test]
fn datagrams_of_both_versions_expire_by_their_own_timeouts() {
    let mut station = Station::joining(USUAL, Late::Release { mtu: 1_500 });
    let mut expected = Vec::new();
    for index in 0..200u32 {
        let version = if index % 3 == 0 { 6 } else { 4 };
        let mut datagram = ip(version).noise(2_000);
        datagram.id = index;
        let now = Duration::from_millis(317) * index;
        // IPv4's deadlines come while later datagrams still arrive.
        let early: Vec<u32> = station.expire(at(now)).iter().map(id).collect();
        let due: Vec<u32> = take_due(&mut expected, now);
        assert_eq!(early, due, "at {now:?}");
        station.push_ip(at(now), &datagram.fragments(1_500)[0]);
        expected.push((now + usual(version), index));
        let next = expected.iter().map(|(deadline, _)| at(*deadline)).min();
        assert_eq!(station.side.next_deadline(), next);
    }
    while let Some(next) = station.side.next_deadline() {
        let left: Vec<u32> = station.expire(next).iter().map(id).collect();
        assert_eq!(left, take_due(&mut expected, Duration::from_nanos(next.nanos())));
    }
    assert_eq!(expected, []);
}

#[test]
fn a_flush_releases_everything_at_once() {
    let mut station = Station::joining(USUAL, Late::Release { mtu: 1_500 });
    for version in [4, 6] {
        for id in 0..50 {
            let mut datagram = ip(version).noise(2_000);
            datagram.id = id;
            station.push_ip(Time::ZERO, &datagram.fragments(1_500)[0]);
        }
    }
    assert_eq!(station.flush(Time::ZERO).len(), 100);
    assert_eq!(station.side.next_deadline(), None);
    assert_eq!(station.out.ledger.event(Event::ReleasedAtEnd).packets, 100);
}

#[test]
fn identifiers_that_come_round_never_mix_datagrams() {
    // 100,000 datagrams per second use all 65,536 IP IDs in 0.66 s, long before the time-out.
    for seed in 0..4 {
        for rate in [3_000, 20_000, 100_000] {
            let mut fast = Fast::new(seed);
            fast.run(rate, (rate * 8).min(600_000));
            fast.judge(&format!("seed {seed}, {rate} datagrams a second"));
        }
    }
}

#[test]
fn identifiers_that_become_fast_never_mix_datagrams() {
    // The time-out was long when the slow datagrams arrived. Fast datagrams then reuse the IP IDs of incomplete
    // slow ones.
    for seed in 0..4 {
        let mut fast = Fast::new(seed);
        for rate in [500, 100_000, 2_000, 50_000] {
            fast.run(rate, rate.min(20_000) * 4 + 70_000 * u32::from(rate > 2_000));
        }
        fast.judge(&format!("seed {seed}, slow, fast, slow, fast"));
    }
}

/// One pair's datagrams of two fragments with ascending IDs. One fragment in a hundred is lost.
struct Fast {
    station: Station,
    random: fastrand::Rng,
    now: Duration,
    number: u32,
    whole: u32,
}

impl Fast {
    fn new(seed: u64) -> Fast {
        let station = Station::joining(Limits { bytes: 64 << 20, timeout: None }, Late::Retire);
        Fast { station, random: fastrand::Rng::with_seed(seed), now: Duration::ZERO, number: 0, whole: 0 }
    }

    fn run(&mut self, per_second: u32, count: u32) {
        let header = ip(4);
        let mut datagram = Spec { payload: Vec::new(), ..header };
        let places = [Place { range: 0..16, more: true }, Place { range: 16..32, more: false }];
        for _ in 0..count {
            self.now += Duration::from_secs(1) / per_second;
            self.number += 1;
            datagram.id = self.number & 0xFFFF;
            datagram.payload = self.number.to_be_bytes().repeat(8);
            self.station.side.expire(at(self.now), &mut self.station.connections, &mut self.station.out);
            let reverse = self.random.bool();
            for index in 0..2 {
                if self.random.u8(..100) > 0 {
                    let fragment = datagram.fragment(&places[if reverse { 1 - index } else { index }]);
                    self.station.push_parts(at(self.now), &fragment, &[]);
                }
            }
            while let Some(packet) = self.station.out.next() {
                let (first, last) = packet.payload().split_at(16);
                assert_eq!(first, last, "pieces of two datagrams were mixed at {:?}", self.now);
                self.whole += 1;
                self.station.out.recycle(packet);
            }
        }
    }

    fn judge(mut self, what: &str) {
        self.station.checked();
        // Of a hundred datagrams two lose a fragment. Some of these spoil a datagram with the same ID, one wrap
        // later.
        assert!(self.whole >= self.number / 100 * 97, "{} of {}: {what}", self.whole, self.number);
        self.station.flush(at(self.now));
    }
}

fn take_due(expected: &mut Vec<(Duration, u32)>, now: Duration) -> Vec<u32> {
    let mut due: Vec<_> = expected.extract_if(.., |(deadline, _)| *deadline <= now).collect();
    due.sort_unstable();
    due.into_iter().map(|(_, id)| id).collect()
}

/// Versions with their time-outs: those of the standards, and configured ones.
fn deadlines() -> Vec<(u8, Option<Duration>, Duration)> {
    let asked = [Duration::from_millis(500), Duration::from_nanos(100_001), Duration::from_secs(200)];
    let versions = [4, 6].into_iter();
    versions
        .flat_map(|version| {
            let asked = asked.into_iter().map(move |asked| (version, Some(asked), asked));
            [(version, None, usual(version))].into_iter().chain(asked)
        })
        .collect()
}

fn usual(version: u8) -> Duration {
    Duration::from_secs(if version == 4 { 30 } else { 60 })
}

fn id(left: &Left) -> u32 {
    ReadPacket::of(left.ip()).id
}

fn frames(left: &[Left]) -> Vec<&[u8]> {
    left.iter().map(|left| left.frame.as_slice()).collect()
}

const NANOSECOND: Duration = Duration::from_nanos(1);
