//! Measured round trips -> the retransmission time-out (RFC 6298).
//!
//! The timer's expiry itself is left to `sender/timers.rs`.

use super::settings::TimerBounds;
use packet::Time;
use std::time::Duration;

/// Mean, variation and minimum of the round trip, and the retransmission time-out.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    bounds: TimerBounds,
    /// Smoothed mean and variation; `None` before the first measurement.
    smoothed: Option<(Duration, Duration)>,
    rto: Duration,
    backoff: u32,
    least: Option<(Duration, Time)>,
}

impl RoundTrip {
    /// The estimate before the first measurement.
    pub(crate) fn new(bounds: TimerBounds) -> RoundTrip {
        RoundTrip { bounds, smoothed: None, rto: RTO_FIRST, backoff: 0, least: None }
    }

    /// Adds the round trip of a segment that was sent only once (RFC 6298 sections 2 and 3, Karn's rule).
    pub(crate) fn measure(&mut self, now: Time, sample: Duration) {
        let (mean, variation) = match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, variation)) => ((mean * 7 + sample) / 8, (variation * 3 + mean.abs_diff(sample)) / 4),
        };
        self.smoothed = Some((mean, variation));
        self.rto = match self.bounds {
            TimerBounds::OneSecond => (mean + (variation * 4).max(GRANULARITY)).clamp(RTO_MIN, RTO_MAX),
            TimerBounds::Linux => (mean + (variation * 4).max(RTO_MIN_LINUX)).min(RTO_MAX_LINUX),
        };
        self.note_least(now, sample);
        self.backoff = 0;
    }

    fn note_least(&mut self, now: Time, sample: Duration) {
        let is_less = self.least.is_none_or(|(least, at)| sample <= least || now.since(at) > LEAST_LASTS);
        if is_less {
            self.least = Some((sample, now));
        }
    }

    /// The retransmission time-out, which doubles after each expiry (RFC 6298 section 5.5).
    pub(crate) fn rto(&self) -> Duration {
        let longest = match self.bounds {
            TimerBounds::OneSecond => RTO_MAX,
            TimerBounds::Linux => RTO_MAX_LINUX,
        };
        self.rto.saturating_mul(1 << self.backoff.min(16)).min(longest)
    }

    /// Doubles the time-out after an expiry.
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Ends the back-off after new data was acknowledged.
    pub(crate) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Sets the first time-out for data to 3 s, because the SYN was retransmitted (RFC 6298 section 5.7).
    pub(crate) fn distrust_first(&mut self) {
        if self.smoothed.is_none() {
            self.rto = RTO_AFTER_LOST_SYN;
        }
        self.backoff = 0;
    }

    /// The smoothed mean; `None` before the first measurement.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.smoothed.map(|(mean, _)| mean)
    }

    /// The minimum round trip of the last five minutes; `None` before the first measurement.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Assumed maximum delay of the acknowledgement of a single segment, which a tail loss probe waits for (RFC
    /// 8985 section 7.2).
    pub(crate) fn ack_delay_max(&self) -> Duration {
        RTO_MIN_LINUX
    }
}

/// Time-out before the first measurement (RFC 6298 section 2.1).
const RTO_FIRST: Duration = Duration::from_secs(1);
/// First time-out for data after a SYN was retransmitted (RFC 6298 section 5.7).
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// Minimum time-out (RFC 6298 section 2.4).
const RTO_MIN: Duration = Duration::from_secs(1);
/// Maximum time-out (RFC 6298 section 2.5).
const RTO_MAX: Duration = Duration::from_secs(60);
/// Linux's minimum difference between time-out and mean, so that delayed acknowledgements cause no time-out.
const RTO_MIN_LINUX: Duration = Duration::from_millis(200);
/// Linux's maximum time-out (`TCP_RTO_MAX`).
const RTO_MAX_LINUX: Duration = Duration::from_secs(120);
/// Granularity G of the clock (RFC 6298 section 2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// Age at which a minimum round trip expires (Linux's `tcp_min_rtt_wlen`).
const LEAST_LASTS: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_trip_is_the_mean_and_half_of_it_the_variation_rfc_6298_2_2() {
        let mut trip = RoundTrip::new(TimerBounds::OneSecond);
        assert_eq!(trip.rto(), Duration::from_secs(1));
        trip.measure(Time::ZERO, Duration::from_millis(800));
        assert_eq!(trip.rto(), Duration::from_millis(800 + 4 * 400));
    }

    #[test]
    fn later_round_trips_weigh_an_eighth_and_a_quarter_rfc_6298_2_3() {
        let mut trip = RoundTrip::new(TimerBounds::OneSecond);
        trip.measure(Time::ZERO, Duration::from_millis(800));
        trip.measure(Time::ZERO, Duration::from_millis(1_600));
        assert_eq!(trip.mean(), Some(Duration::from_millis(900)));
        assert_eq!(trip.rto(), Duration::from_millis(900 + 4 * 500));
    }

    #[test]
    fn the_timer_is_at_least_a_second_or_linuxs_fifth_over_the_mean_rfc_6298_2_4() {
        for (bounds, expected) in [(TimerBounds::OneSecond, 1_000), (TimerBounds::Linux, 210)] {
            let mut trip = RoundTrip::new(bounds);
            (0..50).for_each(|_| trip.measure(Time::ZERO, Duration::from_millis(10)));
            assert_eq!(trip.rto(), Duration::from_millis(expected));
        }
    }

    #[test]
    fn each_timeout_doubles_the_timer_up_to_its_maximum_rfc_6298_5_5() {
        let mut trip = RoundTrip::new(TimerBounds::OneSecond);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                let wait = trip.rto().as_secs();
                trip.back_off();
                wait
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        trip.forget_backoff();
        assert_eq!(trip.rto(), Duration::from_secs(1));
        trip.back_off();
        trip.measure(Time::ZERO, Duration::from_millis(100));
        assert_eq!(trip.rto(), Duration::from_secs(1), "a measurement ends it (section 5)");
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_five_minutes() {
        let mut trip = RoundTrip::new(TimerBounds::Linux);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        trip.measure(at(0), Duration::from_millis(10));
        trip.measure(at(299), Duration::from_millis(50));
        assert_eq!(trip.least(), Some(Duration::from_millis(10)));
        trip.measure(at(301), Duration::from_millis(50));
        assert_eq!(trip.least(), Some(Duration::from_millis(50)));
    }
}
