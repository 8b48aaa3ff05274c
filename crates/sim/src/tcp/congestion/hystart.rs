//! Round trips in slow start -> the time to leave slow start.
//!
//! Slow start should end before it causes losses. The heuristic is:
//!
//! - Input: the minimum round trip among the first acknowledgements of each round. Linux's variant also uses the
//!   duration of closely spaced acknowledgements.
//! - Conclusion: a queue has begun to grow, so the path is full.
//! - Error case: jitter, or delayed acknowledgements at a low rate.
//! - Cost of the error: slow start ends early. In Linux's variant, the window then grows as in congestion
//!   avoidance. In RFC 9406, growth is reduced to a quarter for a few rounds, until the conclusion is confirmed.

use super::{Acked, Window};
use crate::tcp::settings::SlowStartExit;
use packet::Time;
use std::time::Duration;

/// Round trips of the current round, and the conclusion so far.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    choice: SlowStartExit,
    is_found: bool,
    /// The stream position whose acknowledgement ends the round.
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    sample_count: u32,
    /// The minimum round trip of the current round.
    this: Option<Duration>,
    last: Option<Duration>,
    least: Option<Duration>,
    /// In RFC 9406's conservative slow start: remaining rounds, and the round trip that started it.
    slower: Option<(u32, Duration)>,
    rest: u64,
}

impl Exit {
    /// The state before the first measurement.
    pub(super) fn new(choice: SlowStartExit) -> Exit {
        Exit {
            choice,
            is_found: false,
            round_end: 0,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            sample_count: 0,
            this: None,
            last: None,
            least: None,
            slower: None,
            rest: 0,
        }
    }

    /// Restarts slow start.
    pub(super) fn begin(&mut self) {
        *self = Exit::new(self.choice);
    }

    /// Records that a loss has ended slow start.
    pub(super) fn lost(&mut self) {
        self.slower = None;
    }

    /// Records a round trip measured in slow start.
    pub(super) fn measure(&mut self, acked: &Acked, trip: Duration, window: &mut Window) {
        self.least = Some(self.least.map_or(trip, |least| least.min(trip)));
        match self.choice {
            SlowStartExit::Loss => {}
            SlowStartExit::HyStart if !self.is_found => self.measure_as_linux(acked, trip, window),
            SlowStartExit::HyStart => {}
            SlowStartExit::HyStartPlusPlus => self.measure_by_rfc_9406(acked, trip, window),
        }
    }

    /// Growth of the window in slow start after `len` acknowledged bytes. Conservative slow start adds a quarter
    /// (RFC 9406 section 4.2).
    pub(super) fn step(&mut self, len: u64, mss: u64) -> u64 {
        if self.choice != SlowStartExit::HyStartPlusPlus {
            return len;
        }
        let len = len.min(STEP_SEGMENT_COUNT_MAX * mss);
        if self.slower.is_none() {
            return len;
        }
        self.rest += len;
        let step = self.rest / SLOWER_DIVISOR;
        self.rest %= SLOWER_DIVISOR;
        step
    }

    fn turn_round(&mut self, acked: &Acked) {
        (self.round_start, self.last_ack, self.round_end) = (acked.now, acked.now, acked.next);
        (self.last, self.this, self.sample_count) = (self.this, None, 0);
    }

    /// Evaluates a round trip like Linux's `hystart_update`.
    fn measure_as_linux(&mut self, acked: &Acked, trip: Duration, window: &mut Window) {
        if acked.una > self.round_end {
            self.turn_round(acked);
        }
        if window.len < LOW_WINDOW * window.mss {
            return;
        }
        let least = self.least.unwrap_or(trip);
        if acked.now.since(self.last_ack) <= GSO_GAP_MAX {
            self.last_ack = acked.now;
            self.is_found |= acked.now.since(self.round_start) > (least + GSO_ALLOWANCE) / 2;
        }
        self.this = Some(self.this.map_or(trip, |this| this.min(trip)));
        if self.sample_count < SAMPLE_COUNT {
            self.sample_count += 1;
        } else {
            self.is_found |= self.this > Some(least + tolerance(least));
        }
        if self.is_found {
            window.threshold = window.len;
        }
    }

    /// Evaluates a round trip by RFC 9406 section 4.2.
    fn measure_by_rfc_9406(&mut self, acked: &Acked, trip: Duration, window: &mut Window) {
        if acked.una > self.round_end {
            self.turn_round(acked);
            if let Some((rounds, _)) = &mut self.slower {
                *rounds -= 1;
                if *rounds == 0 {
                    self.slower = None;
                    window.threshold = window.len;
                    return;
                }
            }
        }
        self.this = Some(self.this.map_or(trip, |this| this.min(trip)));
        self.sample_count += 1;
        let (Some(this), Some(last)) = (self.this, self.last) else { return };
        if self.sample_count < SAMPLE_COUNT {
            return;
        }
        match self.slower {
            None if this >= last + tolerance(last) => self.slower = Some((SLOWER_ROUND_COUNT, this)),
            Some((_, began)) if this < began => self.slower = None,
            _ => {}
        }
    }
}

/// Tolerated excess over the minimum round trip: an eighth of it, but at least 4 ms and at most 16 ms (RFC 9406
/// section 4.3).
fn tolerance(least: Duration) -> Duration {
    (least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16))
}

/// Number of round trips evaluated per round (RFC 9406 section 4.3, Linux's `HYSTART_MIN_SAMPLES`).
const SAMPLE_COUNT: u32 = 8;
/// Minimum window for an early exit, in segments (Linux's `hystart_low_window`).
const LOW_WINDOW: u64 = 16;
/// Maximum gap between closely spaced acknowledgements (Linux's `hystart_ack_delta_us`).
const GSO_GAP_MAX: Duration = Duration::from_millis(2);
/// Tolerance for gaps caused by the host's own NIC (Linux's `hystart_ack_delay`, at its maximum).
const GSO_ALLOWANCE: Duration = Duration::from_millis(1);
/// Divisor of the growth in conservative slow start (RFC 9406 section 4.3).
const SLOWER_DIVISOR: u64 = 4;
/// Rounds of conservative slow start (RFC 9406 section 4.3).
const SLOWER_ROUND_COUNT: u32 = 5;
/// Maximum growth by one acknowledgement, in segments, if segments are not paced (RFC 9406 section 4.3).
const STEP_SEGMENT_COUNT_MAX: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_longer_round_trip_ends_linux_slow_start() {
        for (rise, expected) in [(3, None), (6, Some(100_000)), (30, Some(100_000))] {
            let mut exit = Exit::new(SlowStartExit::HyStart);
            let mut window = window();
            round(&mut exit, &mut window, 0, Duration::from_millis(40));
            round(&mut exit, &mut window, 1, Duration::from_millis(40 + rise));
            let ended = (window.threshold != u64::MAX).then_some(window.threshold);
            assert_eq!(ended, expected, "by {rise} ms");
        }
    }

    #[test]
    fn an_ack_train_of_half_a_round_trip_ends_linux_slow_start() {
        let mut exit = Exit::new(SlowStartExit::HyStart);
        let mut window = window();
        let trip = Duration::from_millis(40);
        for micros in (0..21_500).step_by(500) {
            assert_eq!(window.threshold, u64::MAX, "after {micros} µs");
            exit.measure(&acked(Time::from_nanos(micros * 1_000), 2, 9), trip, &mut window);
        }
        assert_eq!(window.threshold, 100_000, "(40 ms + 1 ms) / 2 have passed");
    }

    #[test]
    fn a_rising_round_trip_makes_slow_start_slower_and_then_ends_it_rfc_9406_4_2() {
        let mut exit = Exit::new(SlowStartExit::HyStartPlusPlus);
        let mut window = window();
        round(&mut exit, &mut window, 0, Duration::from_millis(40));
        assert_eq!(exit.step(1_000, 1_000), 1_000);
        for number in 1..=5 {
            round(&mut exit, &mut window, number, Duration::from_millis(50));
            assert_eq!(exit.step(1_000, 1_000), 250, "in round {number}");
            assert_eq!(window.threshold, u64::MAX);
        }
        round(&mut exit, &mut window, 6, Duration::from_millis(50));
        assert_eq!(window.threshold, 100_000);
    }

    #[test]
    fn a_round_trip_that_falls_again_resumes_slow_start_rfc_9406_4_2() {
        let mut exit = Exit::new(SlowStartExit::HyStartPlusPlus);
        let mut window = window();
        for (number, millis) in [(0, 40), (1, 50), (2, 41)] {
            round(&mut exit, &mut window, number, Duration::from_millis(millis));
        }
        assert_eq!(exit.step(1_000, 1_000), 1_000);
        assert_eq!(window.threshold, u64::MAX);
    }

    /// Processes ten acknowledgements, 5 ms apart. The first of them starts a round.
    fn round(exit: &mut Exit, window: &mut Window, number: u64, trip: Duration) {
        for index in 0..10 {
            let now = Time::ZERO + Duration::from_millis(100 * number + 5 * index);
            exit.measure(&acked(now, 100 * number + 1 + index, 100 * (number + 1)), trip, window);
        }
    }

    fn window() -> Window {
        Window { len: 100_000, threshold: u64::MAX, mss: 1_000 }
    }

    fn acked(now: Time, una: u64, next: u64) -> Acked {
        Acked { now, len: 1_000, una, next, trip: None, mean: Duration::ZERO }
    }
}
