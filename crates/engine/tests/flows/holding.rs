//! Held runs and their senders: no window and no timer of a sender runs out because segments are held.

use crate::rig::*;
use core::time::Duration;
use std::collections::VecDeque;
use wideload_engine::packet::Time;
use wideload_engine::{Event, HOLD_MAX, Hold, Rules};

/// A sender with a fixed window, a coalescing side, and a receiver that acknowledges every second segment.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// The window of the sender, in segments.
    window: usize,
    /// The round trip without holding.
    round_trip: Duration,
    /// The time between two segments of a burst.
    interval: Duration,
    /// The number of segments to deliver. The last one has PSH.
    count: usize,
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    /// The time until the last segment arrived.
    time: Duration,
    /// Mean length of the delivered packets, in segments.
    mean_len: f64,
    /// Number of runs that ended at the hold time-out.
    timeouts: u64,
}

impl Transfer {
    /// Delivers all segments. `hold`: the hold time; `None` for a path without a gateway.
    fn run(&self, hold: Option<Duration>) -> Delivery {
        let mut rig = hold.map(|hold| Rig::carrying(fixed(hold)));
        let mut now = Time::from_nanos(1_000_000_000);
        let start = now;
        let (mut sent, mut acked, mut received, mut unacknowledged, mut packets) = (0, 0, 0, 0, 0);
        let mut free_at = now;
        let mut acks: VecDeque<(Time, usize)> = VecDeque::new();
        let mut delayed: Option<Time> = None;
        loop {
            let may_send = sent < self.count && sent < acked + self.window;
            let moments = [
                may_send.then_some(free_at.max(now)),
                rig.as_ref().and_then(|rig| rig.side.next_deadline()),
                acks.front().map(|(at, _)| *at),
                delayed,
            ];
            now = moments.into_iter().flatten().min().expect("something happens until all is acknowledged");
            let mut arrived = Vec::new();
            if let Some(rig) = &mut rig {
                arrived.extend(rig.wait_until(now).into_iter().map(|(_, left)| segments(left.frame.len())));
            }
            while acks.front().is_some_and(|(at, _)| *at <= now) {
                acked = acks.pop_front().expect("an acknowledgement arrives").1;
            }
            if sent < self.count && sent < acked + self.window && free_at <= now {
                let flags = if sent + 1 == self.count { ACK | PSH } else { ACK };
                sent += 1;
                free_at = now + self.interval;
                match &mut rig {
                    Some(rig) => {
                        let spec = Spec { flags, ..p((sent - 1) as u32) };
                        arrived.extend(rig.push(&spec).into_iter().map(|left| segments(left.frame.len())));
                    }
                    None => arrived.push(1),
                }
            }
            for count in arrived {
                packets += 1;
                received += count;
                unacknowledged += count;
                delayed = delayed.or(Some(now + DELAYED_ACK));
                if unacknowledged >= 2 {
                    (unacknowledged, delayed) = (0, None);
                    acks.push_back((now + self.round_trip, received));
                }
            }
            if received == self.count {
                let timeouts = rig.map_or(0, |rig| rig.count(Event::RunTimeout));
                return Delivery { time: now.since(start), mean_len: self.count as f64 / packets as f64, timeouts };
            }
            if delayed.is_some_and(|at| at <= now) {
                (unacknowledged, delayed) = (0, None);
                acks.push_back((now + self.round_trip, received));
            }
        }
    }
}

#[test]
fn holding_slows_no_sender_by_more_than_a_quarter() {
    for hold in [2, 10].map(Duration::from_millis) {
        for window in [4, 5, 8, 10, 23, 40, 80] {
            for round_trip in [300, 1_000, 10_000].map(micros) {
                for interval in [1_200, 12_000, 120_000].map(Duration::from_nanos) {
                    let short = Transfer { window, round_trip, interval, count: 1_000 };
                    // Long enough that a stall per round trip or per few hold times shows.
                    let count = 1_000 * 150_000 / short.run(None).time.as_micros() as usize;
                    let transfer = Transfer { count: count.clamp(200, 15_000), ..short };
                    let (best, held) = (transfer.run(None).time, transfer.run(Some(hold)).time);
                    assert!(held <= best * 5 / 4, "{transfer:?}, {hold:?}: {held:?}, without holding {best:?}");
                }
            }
        }
    }
}

#[test]
fn holding_costs_a_short_transfer_at_most_two_hold_times() {
    for hold in [2, 10, 25].map(Duration::from_millis) {
        for window in [4, 8, 10, 40] {
            for round_trip in [300, 3_000].map(micros) {
                for interval in [1_200, 120_000].map(Duration::from_nanos) {
                    for count in [3, 10, 30, 100] {
                        let transfer = Transfer { window, round_trip, interval, count };
                        let (best, held) = (transfer.run(None).time, transfer.run(Some(hold)).time);
                        let bound = best * 5 / 4 + round_trip + 2 * hold;
                        assert!(held <= bound, "{transfer:?}, {hold:?}: {held:?}, without holding {best:?}");
                    }
                }
            }
        }
    }
}

// The stall example of Li: the sender may send 8 KB, and the threshold of coalescing is 64 KB (lB6).
#[test]
fn a_window_below_the_longest_run_does_not_stall() {
    let hold = Duration::from_millis(20);
    let window = 8_192 / SEGMENT_LEN;
    let transfer = Transfer { window, round_trip: micros(500), interval: micros(12), count: 1_000 };
    let (best, held) = (transfer.run(None), transfer.run(Some(hold)));
    assert!(held.time <= best.time * 5 / 4, "{held:?}, without holding {best:?}");
    // With a stall for each window, there would be 200 time-outs.
    assert!(held.timeouts <= 2, "{held:?}");
}

// RFC 6928: the initial window is ten segments. They must not wait for the eleventh.
#[test]
fn the_first_segments_of_a_sender_leave_before_the_time_out() {
    let mut rig = Rig::carrying(fixed(Duration::from_millis(10)));
    let left: usize = (0..10).flat_map(|number| rig.push(&p(number))).map(|left| segments(left.frame.len())).sum();
    assert!(left >= 8, "{left} of 10 segments");
    assert!(rig.count(Event::RunWindow) >= 4 && rig.count(Event::RunTimeout) == 0);
}

#[test]
fn senders_without_pauses_get_the_longest_runs() {
    let hold = Duration::from_millis(10);
    let transfer = Transfer { window: 1_000, round_trip: micros(300), interval: micros(12), count: 5_000 };
    let held = transfer.run(Some(hold));
    assert!(held.mean_len > 36.0, "{held:?}: the longest run has 45 segments");
}

#[test]
fn an_estimate_rises_when_the_window_has_grown() {
    let hold = Duration::from_millis(2);
    let mut rig = Rig::carrying(fixed(hold));
    let mut number = 0;
    let mut burst = |rig: &mut Rig, count: usize| -> usize {
        let lens = (0..count).flat_map(|_| {
            number += 1;
            rig.push(&p(number - 1)).into_iter().map(|left| segments(left.frame.len())).collect::<Vec<_>>()
        });
        lens.max().unwrap_or(0)
    };
    for _ in 0..3 {
        burst(&mut rig, 9);
        rig.wait(micros(900));
    }
    assert!(burst(&mut rig, 9) <= 2, "a quarter of nine segments");
    // From here on the sender does not pause. Eight hold times are 16 ms, and the estimate doubles five times.
    let mut longest = 0;
    for _ in 0..1_000 {
        rig.wait(micros(100));
        longest = longest.max(burst(&mut rig, 1));
    }
    assert!(longest >= 20, "{longest} segments");
}

#[test]
fn early_segments_behind_a_gap_count_as_held() {
    let mut rig = Rig::carrying(fixed(Duration::from_millis(10)));
    rig.push(&Spec { flags: ACK | PSH, ..p(0) });
    // A new sender may have ten segments in flight. The second one is lost.
    let left: Vec<_> = (2..11).flat_map(|number| rig.push(&p(number))).collect();
    let arrived: usize = left.iter().map(|left| segments(left.frame.len())).sum();
    assert!(arrived >= 7, "{arrived} of 9 segments tell the receiver about the loss");
    assert_eq!(rig.count(Event::RunTimeout), 0);
}

#[test]
fn even_intervals_of_a_slow_link_are_no_pauses() {
    // 5 Mbit/s: a segment each 2.4 ms.
    let transfer = Transfer { window: 100, round_trip: micros(20), interval: micros(2_400), count: 400 };
    let held = transfer.run(Some(Duration::from_millis(10)));
    assert!(held.mean_len >= 4.0, "{held:?}: at most 20 ms of segments fit one run");
}

#[test]
fn messages_that_end_with_psh_do_not_shorten_runs() {
    let mut rig = Rig::carrying(fixed(Duration::from_millis(5)));
    let mut number = 0;
    // A stream of 64 KB without a pause is not limited.
    let mut message = |rig: &mut Rig, len: u32| {
        let mut left = Vec::new();
        for at in 1..=len {
            let flags = if at == len { ACK | PSH } else { ACK };
            left.extend(rig.push(&Spec { flags, ..p(number) }));
            number += 1;
        }
        left
    };
    message(&mut rig, 200);
    for _ in 0..20 {
        rig.wait(Duration::from_millis(3));
        let left = message(&mut rig, 8);
        assert_eq!(left.len(), 1, "eight segments, one run");
    }
    assert_eq!(rig.count(Event::RunTimeout), 0);
}

// L6, R126: data that its sender pushes does not wait for more.
#[test]
fn psh_releases_a_run_at_once_with_every_hold() {
    let holds = [1, 2, 10, 25].map(|millis| Hold::Fixed(Duration::from_millis(millis)));
    for hold in holds.into_iter().chain([Hold::Adaptive]) {
        let mut rig = Rig::carrying(Rules { hold, ..resize(65_535) });
        for number in 0..50 {
            assert_eq!(rig.push(&p(2 * number)).len(), 0, "{hold:?}: it waits");
            assert_eq!(rig.push(&Spec { flags: ACK | PSH, ..p(2 * number + 1) }).len(), 1, "{hold:?}: all leave");
            assert_eq!(rig.coalescer().held().1, 0);
            rig.wait(Duration::from_millis(3));
        }
    }
}

// L8h: a receiver answers an old segment with an acknowledgement. If the acknowledgement for it was lost, its sender
// needs this one to go on.
#[test]
fn an_old_segment_is_forwarded_at_once_even_if_a_run_is_held() {
    let holds = [2, 10].map(|millis| Hold::Fixed(Duration::from_millis(millis)));
    for rules in [resize(65_535), reversible()] {
        for hold in holds.into_iter().chain([Hold::Adaptive]) {
            for is_held in [false, true] {
                let mut rig = Rig::carrying(Rules { hold, ..rules.clone() });
                rig.push(&p(0));
                rig.push(&Spec { flags: ACK | PSH, ..p(1) });
                if is_held {
                    assert_eq!(rig.push(&p(2)).len(), 0);
                }
                for repeat in 0..5 {
                    let left = rig.push(&p(0));
                    let runs = usize::from(is_held && repeat == 0);
                    assert_eq!(left.len(), runs + 1, "{hold:?}: the run before it, then the segment");
                    let seen = ReadPacket::read(&left[runs].frame, 0);
                    assert_eq!((seen.seq, seen.payload().len()), (p(0).seq, SEGMENT_LEN));
                    assert!(left[runs].as_received);
                }
                assert_eq!(rig.coalescer().held().1, 0);
            }
        }
    }
}

// Both segments of a sender with a window of two are repeated because their acknowledgements are lost.
#[test]
fn a_sender_whose_acknowledgements_are_lost_gets_another_one() {
    let mut rig = Rig::carrying(fixed(Duration::from_millis(10)));
    for number in [0, 1, 0, 1, 2, 3, 2, 3, 4] {
        // An acknowledgement of this segment, new or repeated, is due within one hold time.
        let mut left = rig.push(&p(number));
        left.extend(rig.wait(Duration::from_millis(10)));
        let arrived: usize = left.iter().map(|left| segments(left.frame.len())).sum();
        assert!(arrived >= 1, "segment {number} provokes an acknowledgement");
    }
}

// L14: after a second of silence, an average of intervals alone would give a time-out of five seconds.
#[test]
fn an_idle_gap_does_not_change_the_adaptive_hold() {
    let lone_wait = |idle: Duration| {
        let mut rig = Rig::carrying(Rules { hold: Hold::Adaptive, ..resize(65_535) });
        for number in 0..40 {
            rig.push(&p(number));
            rig.wait(micros(12));
        }
        rig.wait(idle);
        rig.push(&p(40));
        let since = rig.now;
        let left = rig.wait_until(since + Duration::from_secs(10));
        assert_eq!(left.len(), 1);
        left[0].0.since(since)
    };
    for idle in [2, 10, 1_000, 50_000].map(Duration::from_millis) {
        let wait = lone_wait(idle);
        assert!(wait >= micros(50) && wait <= micros(200), "after {idle:?}: {wait:?}, ten intervals are 120 us");
    }
}

#[test]
fn no_segment_is_held_for_more_than_50_ms_with_the_longest_hold() {
    for interval in [1, 5, 13, 19, 24, 26].map(Duration::from_millis) {
        let mut rig = Rig::carrying(fixed(HOLD_MAX));
        let mut arrivals = VecDeque::new();
        for number in 0..200 {
            arrivals.push_back(rig.now);
            let until = rig.now + interval;
            let mut left: Vec<_> = rig.push(&p(number)).into_iter().map(|left| (rig.now, left)).collect();
            left.extend(rig.wait_until(until));
            for (at, left) in left {
                for _ in 0..segments(left.frame.len()) {
                    let held = at.since(arrivals.pop_front().expect("it arrived before"));
                    assert!(held <= 2 * HOLD_MAX && 2 * HOLD_MAX <= Duration::from_millis(50), "{held:?}");
                }
            }
        }
        assert!(arrivals.len() <= 26, "{interval:?}");
    }
}

fn fixed(hold: Duration) -> Rules {
    Rules { hold: Hold::Fixed(hold), ..resize(65_535) }
}

/// The segment with this number.
fn p(number: u32) -> Spec {
    tcp(4).carrying(0, SEGMENT_LEN).seq(number * SEGMENT_LEN as u32)
}

/// The number of segments in a packet.
fn segments(len: usize) -> usize {
    (len - 40) / SEGMENT_LEN
}

/// Payload of a segment, in bytes.
const SEGMENT_LEN: usize = 1_448;
/// Delay of an acknowledgement for a single segment.
const DELAYED_ACK: Duration = Duration::from_millis(40);
