//! Acknowledged bytes and time -> a congestion window on a cubic curve (RFC 9438).
//!
//! CUBIC is Linux's default, so most simulated hosts use it. Two choices are Linux's:
//!
//! - Until the first loss, the curve has no information about the path. Congestion avoidance therefore grows the
//!   window by at least a twentieth per round trip.
//! - The curve is evaluated one minimum round trip ahead, whereas RFC 9438 uses the smoothed round trip.
//!
//! The arithmetic uses doubles, only in operations that round equally on every machine.

use super::{Acked, Window};
use packet::Time;
use std::time::Duration;

/// The state of CUBIC: its curve, and the window that Reno would have.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Start of congestion avoidance after the last loss; `None` before.
    epoch: Option<Time>,
    /// The target W_max in bytes: the congestion window at the last loss, or less after fast convergence; 0 before
    /// the first loss.
    last_max: f64,
    /// Congestion window before the last reduction, in bytes.
    prior: f64,
    /// Height of the curve's plateau, in bytes.
    plateau: f64,
    /// Time from the epoch to the plateau, in seconds.
    rise: f64,
    /// Congestion window of Reno with the same reduction factor, in bytes.
    friendly: f64,
    /// Fraction of a byte that the window has yet to grow.
    rest: f64,
    /// The minimum round trip.
    least: Option<Duration>,
}

impl Cubic {
    /// Records a measured round trip.
    pub(super) fn measure(&mut self, trip: Duration) {
        self.least = Some(self.least.map_or(trip, |least| least.min(trip)));
    }

    /// Whether the last congestion avoidance began less than `stretch` ago.
    pub(super) fn began_within(&self, now: Time, stretch: Duration) -> bool {
        self.epoch.is_some_and(|epoch| now.since(epoch) < stretch)
    }

    /// Excludes an idle period from the curve's time (RFC 9438 section 5.8).
    pub(super) fn rest(&mut self, idle: Duration) {
        self.epoch = self.epoch.map(|epoch| epoch + idle);
    }

    /// Grows the window in congestion avoidance (RFC 9438 sections 4.2 to 4.5).
    pub(super) fn grow(&mut self, window: &mut Window, acked: &Acked) {
        let (len, mss, new) = (window.len as f64, window.mss as f64, acked.len as f64);
        let epoch = *self.epoch.get_or_insert_with(|| {
            let below = (self.last_max - len) / mss;
            let is_below = below > 0.0;
            self.rise = if is_below { cube_root(below / C) } else { 0.0 };
            self.plateau = if is_below { self.last_max } else { len };
            self.friendly = len;
            acked.now
        });
        let since = acked.now.since(epoch).as_secs_f64();
        let ahead = self.least.unwrap_or(acked.mean).as_secs_f64();
        let target = self.curve(since + ahead, mss).clamp(len, 1.5 * len);
        let alpha = if self.friendly >= self.prior { 1.0 } else { ALPHA };
        self.friendly += alpha * mss * new / len;
        let is_friendly = self.curve(since, mss) < self.friendly;
        let mut growth = (target - len) / len * new;
        if is_friendly {
            growth = growth.max(self.friendly - len);
        }
        if self.last_max == 0.0 {
            growth = growth.max(new / EARLY_DIVISOR);
        }
        self.rest += growth.max(0.0);
        let whole = self.rest as u64;
        self.rest -= whole as f64;
        window.len += whole;
    }

    /// The height of the curve, in bytes, this many seconds after the epoch (RFC 9438 equation 1).
    fn curve(&self, seconds: f64, mss: f64) -> f64 {
        let away = seconds - self.rise;
        self.plateau + C * away * away * away * mss
    }

    /// The slow start threshold after a loss, in bytes (RFC 9438 sections 4.6 and 4.7).
    pub(super) fn threshold(&mut self, window: &Window) -> u64 {
        let len = window.len as f64;
        self.last_max = if len < self.last_max { len * (1.0 + BETA) / 2.0 } else { len };
        self.prior = len;
        self.epoch = None;
        self.rest = 0.0;
        ((len * BETA).round() as u64).max(2 * window.mss)
    }
}

/// The cube root, by Newton's method from above. The result is equal on every machine.
fn cube_root(number: f64) -> f64 {
    let mut root = number.max(1.0);
    for _ in 0..ROOT_STEPS_MAX {
        let next = (2.0 * root + number / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

/// Growth constant, in segments per second cubed (RFC 9438 section 5).
const C: f64 = 0.4;
/// Factor of the window at a reduction (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Reno's growth per round trip, in segments, that gives an equal rate with factor `BETA` (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Maximum number of acknowledged bytes per byte of window growth, before the first loss (Linux's `bictcp_update`).
const EARLY_DIVISOR: f64 = 20.0;
/// Maximum number of Newton's steps. Each step removes a third of the excess, so 200 are enough for any double.
const ROOT_STEPS_MAX: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_root_is_exact() {
        for number in [0.001, 0.5, 1.0, 8.0, 27.0, 1e6, 1e15] {
            let root = cube_root(number);
            assert!((root * root * root / number - 1.0).abs() < 1e-9, "{root} of {number}");
        }
        assert!(cube_root(0.0) < 1e-9);
    }

    #[test]
    fn a_loss_leaves_seven_tenths_and_the_curve_returns_rfc_9438_4_2() {
        let mut window = Window { len: 1_000_000, threshold: 0, mss: 1_000 };
        let mut cubic = Cubic::default();
        window.len = cubic.threshold(&window);
        assert_eq!(window.len, 700_000);
        // K = cbrt(W_max (1 - beta) / C) = cbrt(1000 * 0.3 / 0.4) = 9.086 s.
        let mut reached = None;
        for step in 0..1_000 {
            let now = Time::ZERO + Duration::from_millis(100 * step);
            for _ in 0..window.len / 1_000 {
                cubic.grow(&mut window, &acked(now));
            }
            if reached.is_none() && window.len >= 995_000 {
                reached = Some(now);
            }
            if now.since(Time::ZERO) > Duration::from_secs(12) {
                break;
            }
        }
        let reached = reached.expect("the window returns").since(Time::ZERO).as_secs_f64();
        assert!((6.5..9.1).contains(&reached), "at the plateau after {reached} s");
        assert!((1_000_000..1_030_000).contains(&window.len), "{} twelve seconds after", window.len);
    }

    #[test]
    fn a_window_that_lost_before_it_was_back_makes_room_rfc_9438_4_7() {
        let mut cubic = Cubic::default();
        cubic.threshold(&Window { len: 1_000_000, threshold: 0, mss: 1_000 });
        cubic.threshold(&Window { len: 800_000, threshold: 0, mss: 1_000 });
        assert_eq!(cubic.last_max, 680_000.0);
    }

    #[test]
    fn a_small_window_grows_at_least_as_reno_would_rfc_9438_4_3() {
        let mut window = Window { len: 20_000, threshold: 0, mss: 1_000 };
        let mut cubic = Cubic::default();
        window.len = cubic.threshold(&window);
        let before = window.len;
        for round in 0..4 {
            let now = Time::ZERO + Duration::from_millis(10 * round);
            for _ in 0..window.len / 1_000 {
                cubic.grow(&mut window, &acked(now));
            }
        }
        let grown = window.len - before;
        assert!((1_900..2_400).contains(&grown), "{grown} bytes in four round trips, about 0.53 segments each");
    }

    fn acked(now: Time) -> Acked {
        let trip = Duration::from_millis(10);
        Acked { now, len: 1_000, una: 0, next: 0, trip: Some(trip), mean: trip }
    }
}
