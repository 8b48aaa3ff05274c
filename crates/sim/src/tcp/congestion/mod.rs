//! Acknowledgements and losses -> the congestion window.
//!
//! The window is counted in bytes (C26), so a change of the segment size does not change the bytes in flight. The
//! window grows by [`reno`] or [`cubic`]. Slow start may end early by [`hystart`]. Reductions within a recovery are
//! left to [`recovery`](super::recovery).

mod cubic;
mod hystart;
mod reno;

use super::settings::{Algorithm, Growth, InitialWindow, Settings};
use cubic::Cubic;
use hystart::Exit;
use packet::Time;
use reno::Reno;
use std::time::Duration;

/// The congestion control state.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: Window,
    algorithm: Law,
    exit: Exit,
    growth: Growth,
    usage: Usage,
}

/// The congestion window and the slow start threshold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The congestion window, in bytes.
    pub(crate) len: u64,
    /// The slow start threshold, in bytes.
    pub(crate) threshold: u64,
    /// The segment size, in bytes, which is the unit of growth.
    pub(crate) mss: u64,
}

/// Facts about one acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// Arrival time of the acknowledgement.
    pub(crate) now: Time,
    /// Newly delivered bytes.
    pub(crate) len: u64,
    /// The oldest unacknowledged position.
    pub(crate) una: u64,
    /// The position behind the last byte sent.
    pub(crate) next: u64,
    /// Round trip of the newest acknowledged segment, if measured.
    pub(crate) trip: Option<Duration>,
    /// The smoothed round trip.
    pub(crate) mean: Duration,
}

/// The algorithm of congestion avoidance.
#[derive(Clone, Debug)]
enum Law {
    Reno(Reno),
    Cubic(Cubic),
}

/// Usage of the window. A window that is not fully used does not grow, as RFC 7661 section 4.3 and RFC 9438 section
/// 5.8 advise. RFC 5681 would permit growth.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// The record is valid until this stream position is acknowledged.
    until: u64,
    most: u64,
    is_limited: bool,
}

impl Congestion {
    /// The state before the first segment. `mss` is the segment size in bytes.
    pub(crate) fn new(settings: &Settings, mss: u64) -> Congestion {
        Congestion {
            window: Window { len: initial_window(settings.initial_window, mss), threshold: u64::MAX, mss },
            algorithm: match settings.algorithm {
                Algorithm::Reno => Law::Reno(Reno::default()),
                Algorithm::Cubic => Law::Cubic(Cubic::default()),
            },
            exit: Exit::new(settings.slow_start_exit),
            growth: settings.growth,
            usage: Usage::default(),
        }
    }

    /// The congestion window, in bytes.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.window.len
    }

    /// The slow start threshold, in bytes.
    pub(crate) fn threshold(&self) -> u64 {
        self.window.threshold
    }

    /// Whether the window is below the slow start threshold.
    pub(crate) fn is_slow_start(&self) -> bool {
        self.window.len < self.window.threshold
    }

    /// Changes the segment size. The window in bytes stays equal (C26), but is at least one segment.
    pub(crate) fn resize(&mut self, mss: u64) {
        self.window.mss = mss;
        self.window.len = self.window.len.max(mss);
    }

    /// Records the window's usage after a segment was sent or blocked. `outstanding` bytes are unacknowledged.
    pub(crate) fn note_use(&mut self, outstanding: u64, is_limited: bool, una: u64, next: u64) {
        let usage = &mut self.usage;
        if una >= usage.until || is_limited || !usage.is_limited && outstanding > usage.most {
            *usage = Usage { until: next, most: outstanding, is_limited };
        }
    }

    /// Whether the window was used enough to grow. In slow start, half of the window is enough (Linux's
    /// `tcp_is_cwnd_limited`).
    fn is_used(&self) -> bool {
        self.usage.is_limited || self.is_slow_start() && self.window.len < 2 * self.usage.most
    }

    /// Records a measured round trip.
    pub(crate) fn measure(&mut self, acked: &Acked) {
        let Some(trip) = acked.trip else { return };
        if let Law::Cubic(cubic) = &mut self.algorithm {
            cubic.measure(trip);
        }
        let settles = matches!(&self.algorithm, Law::Cubic(cubic) if cubic.began_within(acked.now, SETTLING));
        if !settles && self.is_slow_start() {
            self.exit.measure(acked, trip, &mut self.window);
        }
    }

    /// Grows the window after data was acknowledged outside of a recovery.
    pub(crate) fn grow(&mut self, acked: &Acked) {
        if !self.is_used() {
            return;
        }
        let mut len = acked.len;
        if self.is_slow_start() {
            len = self.grow_slowly(len);
        }
        if len > 0 {
            match &mut self.algorithm {
                Law::Reno(reno) => reno.grow(&mut self.window, len),
                Law::Cubic(cubic) => cubic.grow(&mut self.window, &Acked { len, ..*acked }),
            }
        }
    }

    /// Grows the window in slow start. Returns the number of acknowledged bytes that remain for congestion
    /// avoidance.
    fn grow_slowly(&mut self, len: u64) -> u64 {
        let step = match self.growth {
            Growth::OneSegment => len.min(self.window.mss),
            Growth::AllAcknowledged => len,
        };
        let step = self.exit.step(step, self.window.mss);
        let room = self.window.threshold - self.window.len;
        self.window.len += step.min(room);
        if step > room && self.growth == Growth::AllAcknowledged { step - room } else { 0 }
    }

    /// Lowers the slow start threshold after a loss with `in_flight` bytes in flight.
    pub(crate) fn reduce(&mut self, in_flight: u64) {
        self.window.threshold = match &mut self.algorithm {
            Law::Reno(_) => Reno::threshold(&self.window, in_flight),
            Law::Cubic(cubic) => cubic.threshold(&self.window),
        };
        self.exit.lost();
    }

    /// Handles a retransmission time-out. The new window allows one segment besides the `in_flight` bytes that may
    /// arrive.
    pub(crate) fn time_out(&mut self, in_flight: u64) {
        self.window.len = in_flight + self.window.mss;
        if let Law::Cubic(cubic) = &mut self.algorithm {
            *cubic = Cubic::default();
        }
        self.exit.begin();
    }

    /// Sets the window during or after a recovery. The minimum is one segment.
    pub(crate) fn set_window(&mut self, len: u64) {
        self.window.len = len.max(self.window.mss);
    }

    /// Reduces the window after an idle period, but not below the initial window (RFC 5681 section 4.1). As in
    /// Linux, the window is halved for each `rto` within `idle` (RFC 2861).
    pub(crate) fn rest(&mut self, idle: Duration, rto: Duration, settings: &Settings) {
        let restart = initial_window(settings.initial_window, self.window.mss).min(self.window.len);
        if self.window.threshold != u64::MAX || idle > rto {
            self.window.threshold = self.window.threshold.max(self.window.len * 3 / 4);
        }
        let mut left = idle;
        while left > rto && self.window.len > restart {
            self.window.len /= 2;
            left -= rto;
        }
        self.window.len = self.window.len.max(restart);
        if let Law::Cubic(cubic) = &mut self.algorithm {
            cubic.rest(idle);
        }
    }
}

/// The initial congestion window, in bytes.
fn initial_window(choice: InitialWindow, mss: u64) -> u64 {
    match choice {
        InitialWindow::Rfc5681 if mss > 2_190 => 2 * mss,
        InitialWindow::Rfc5681 if mss > 1_095 => 3 * mss,
        InitialWindow::Rfc5681 => 4 * mss,
        InitialWindow::Rfc6928 => (10 * mss).min((2 * mss).max(14_600)),
        InitialWindow::Segments(count) => mss * u64::from(count),
    }
}

/// After a recovery, round trips are ignored for this time, because they contain no information about the queue
/// (Linux's `bictcp_acked`).
const SETTLING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::settings::SlowStartExit;
    use super::*;

    #[test]
    fn the_initial_window_has_two_to_four_segments_rfc_5681_3_1() {
        for (mss, count) in [(1_000, 4), (1_095, 4), (1_096, 3), (2_190, 3), (2_191, 2), (8_948, 2)] {
            assert_eq!(initial_window(InitialWindow::Rfc5681, mss), count * mss);
        }
    }

    #[test]
    fn the_initial_window_has_ten_segments_up_to_14600_bytes_rfc_6928_2() {
        for (mss, expected) in [(1_000, 10_000), (1_460, 14_600), (1_500, 14_600), (8_948, 17_896)] {
            assert_eq!(initial_window(InitialWindow::Rfc6928, mss), expected);
        }
    }

    #[test]
    fn an_acknowledgement_adds_at_most_one_segment_in_slow_start_rfc_5681_3_1() {
        for (growth, expected) in [(Growth::OneSegment, 11_000), (Growth::AllAcknowledged, 13_000)] {
            let mut congestion = start(Settings { growth, ..Settings::linux() });
            congestion.grow(&acked(3_000));
            assert_eq!(congestion.window(), expected);
        }
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut congestion = start(Settings::linux());
        congestion.note_use(4_000, false, 1 << 30, 1 << 31);
        congestion.grow(&acked(3_000));
        assert_eq!(congestion.window(), 10_000, "less than half of it was in flight");
    }

    #[test]
    fn the_window_keeps_its_bytes_when_the_segments_change_c26() {
        let mut congestion = start(Settings::linux());
        congestion.resize(500);
        assert_eq!(congestion.window(), 10_000);
        congestion.resize(20_000);
        assert_eq!(congestion.window(), 20_000, "one segment fits");
    }

    #[test]
    fn reno_halves_the_flight_and_keeps_two_segments_rfc_5681_3_1() {
        let reno =
            Settings { algorithm: Algorithm::Reno, slow_start_exit: SlowStartExit::Loss, ..Settings::linux() };
        for (in_flight, expected) in [(10_000, 5_000), (3_000, 2_000)] {
            let mut congestion = start(reno.clone());
            congestion.reduce(in_flight);
            assert_eq!(congestion.threshold(), expected);
        }
    }

    #[test]
    fn a_time_out_leaves_one_segment_rfc_5681_3_1() {
        let mut congestion = start(Settings::linux());
        congestion.reduce(10_000);
        congestion.time_out(0);
        assert_eq!((congestion.window(), congestion.threshold()), (1_000, 7_000));
        assert!(congestion.is_slow_start());
    }

    #[test]
    fn an_idle_flow_starts_as_a_new_one_rfc_5681_4_1() {
        let mut congestion = start(Settings::linux());
        congestion.set_window(160_000);
        let rto = Duration::from_millis(200);
        congestion.rest(Duration::from_millis(500), rto, &Settings::linux());
        assert_eq!(congestion.window(), 40_000, "two time-outs");
        congestion.rest(Duration::from_secs(10), rto, &Settings::linux());
        assert_eq!(congestion.window(), 10_000);
    }

    fn start(settings: Settings) -> Congestion {
        let mut congestion = Congestion::new(&settings, 1_000);
        congestion.note_use(10_000, true, 1, 10_001);
        congestion
    }

    fn acked(len: u64) -> Acked {
        let mean = Duration::from_millis(10);
        Acked { now: Time::ZERO, len, una: 1 + len, next: 10_001, trip: None, mean }
    }
}
