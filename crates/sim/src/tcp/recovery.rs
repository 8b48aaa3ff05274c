//! Arrivals and send times -> lost segments, and the rate of their retransmission.
//!
//! Each type implements one RFC. [`Rack`] detects losses by time (RFC 8985 section 6). [`Tail`] is an unanswered
//! tail loss probe (RFC 8985 section 7). [`Proportional`] reduces the window while segments arrive (RFC 6937). Loss
//! detection by duplicate acknowledgements (RFC 6675) is left to the [`Scoreboard`].

use super::scoreboard::{Scoreboard, SentRange};
use packet::Time;
use std::time::Duration;

/// Loss detection by time. A segment is lost if another has arrived that was sent later by more than the reordering
/// window.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    /// Send time and transmission number of the last-sent segment that has arrived. RFC 8985 uses the segment's end
    /// instead of the number. With the end, a retransmission sent at the same time as a later segment would be
    /// marked as lost immediately.
    newest: (Time, u64),
    /// Round trip of the last-sent segment that has arrived.
    trip: Duration,
    /// Position behind the highest byte known to have arrived.
    highest: u64,
    /// Whether any reordering has been observed.
    has_seen_reordering: bool,
    /// The reordering window, in quarters of the minimum round trip.
    quarters: u32,
    /// Number of recoveries after which `quarters` is reset to one.
    recoveries_left: u32,
    /// Until this position is acknowledged, further duplicates do not widen the window again.
    repeat_until: u64,
}

/// The inputs for the reordering window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimate {
    /// The smoothed round trip.
    pub(crate) mean: Duration,
    /// The minimum round trip.
    pub(crate) least: Duration,
    /// Whether a recovery is in progress.
    pub(crate) is_recovering: bool,
}

impl Rack {
    /// The state before the first arrival.
    pub(crate) fn new() -> Rack {
        Rack {
            newest: (Time::ZERO, 0),
            trip: Duration::ZERO,
            highest: 0,
            has_seen_reordering: false,
            quarters: 1,
            recoveries_left: 0,
            repeat_until: 0,
        }
    }

    /// Records that a segment has arrived (RFC 8985 section 6.2 steps 1 to 3).
    pub(crate) fn arrived(&mut self, now: Time, sent: &SentRange, least: Option<Duration>) {
        let trip = now.since(sent.at);
        if sent.end < self.highest && sent.is_first() {
            self.has_seen_reordering = true;
        }
        self.highest = self.highest.max(sent.end);
        // An acknowledgement so soon after a retransmission belongs to the first copy.
        if !sent.is_first() && least.is_some_and(|least| trip < least) {
            return;
        }
        if (sent.at, sent.turn) > self.newest {
            self.newest = (sent.at, sent.turn);
            self.trip = trip;
        }
    }

    /// Widens the reordering window after a duplicate, which shows a wrong retransmission (RFC 8985 section 6.2
    /// step 4).
    pub(crate) fn repeated(&mut self, una: u64, next: u64) {
        if una >= self.repeat_until {
            self.repeat_until = next;
            self.quarters += 1;
        }
        self.recoveries_left = RECOVERY_COUNT;
    }

    /// Records the end of a recovery.
    pub(crate) fn recovered(&mut self) {
        self.recoveries_left = self.recoveries_left.saturating_sub(1);
        if self.recoveries_left == 0 {
            self.quarters = 1;
        }
    }

    /// The reordering window: the tolerated lateness of a segment (RFC 8985 section 6.2 step 4).
    pub(crate) fn window(&self, timeout: RttEstimate, sacked_count: usize) -> Duration {
        let is_sure = timeout.is_recovering || sacked_count >= DUPLICATE_COUNT;
        if !self.has_seen_reordering && is_sure {
            return Duration::ZERO;
        }
        (timeout.least / 4 * self.quarters).min(timeout.mean)
    }

    /// Marks lost segments. Returns their bytes, and the time of the next check (RFC 8985 section 6.2 step 5).
    ///
    /// The next check follows when the newest arrived segment's round trip and the window have passed. All segments
    /// sent before that segment are due by then. An earlier acknowledgement causes an earlier check.
    pub(crate) fn detect(&self, now: Time, window: Duration, board: &mut Scoreboard) -> (u64, Option<Time>) {
        let mut lost = 0;
        while let Some((number, sent)) = board.earliest() {
            if (sent.at, sent.turn) >= self.newest {
                return (lost, None);
            }
            if now < sent.at + self.trip + window {
                return (lost, Some((self.newest.0 + self.trip + window).max(sent.at + self.trip + window)));
            }
            lost += board.lose(number);
        }
        (lost, None)
    }

    /// Whether a segment should have arrived before `now`.
    pub(crate) fn is_overdue(&self, now: Time, sent: &SentRange, window: Duration) -> bool {
        now >= sent.at + self.trip + window
    }
}

/// A tail loss probe that is not yet answered (RFC 8985 section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The position behind the last byte sent when the probe was sent.
    pub(crate) end: u64,
    /// Whether the probe was a retransmission.
    pub(crate) is_repeat: bool,
}

impl Tail {
    /// The delay before a tail loss probe: two round trips. A single segment in flight adds the maximum delay of
    /// its acknowledgement (RFC 8985 section 7.2). Otherwise Linux adds two milliseconds.
    pub(crate) fn wait(mean: Option<Duration>, segment_count: usize, ack_delay_max: Duration) -> Duration {
        let Some(mean) = mean else { return Duration::from_secs(1) };
        mean * 2 + if segment_count == 1 { ack_delay_max } else { Duration::from_millis(2) }
    }
}

/// Window reduction in proportion to delivered data. Without further losses, the window stays at or above the slow
/// start threshold (RFC 6937).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proportional {
    /// Bytes in flight at the start of the recovery.
    prior: u64,
    delivered: u64,
    sent: u64,
}

impl Proportional {
    /// Starts a recovery with `prior` bytes in flight.
    pub(crate) fn begin(prior: u64) -> Proportional {
        Proportional { prior: prior.max(1), delivered: 0, sent: 0 }
    }

    /// Records bytes sent in the recovery.
    pub(crate) fn sent(&mut self, len: u64) {
        self.sent += len;
    }

    /// The limit of bytes in flight, after `delivered` more bytes have arrived (RFC 6937 section 3.1). As in Linux,
    /// the slow start form applies if no more bytes were lost. Otherwise the conservative form applies.
    pub(crate) fn window(
        &mut self,
        threshold: u64,
        in_flight: u64,
        delivered: u64,
        mss: u64,
        is_good: bool,
    ) -> u64 {
        self.delivered += delivered;
        let share = if in_flight > threshold {
            let due = (u128::from(self.delivered) * u128::from(threshold)).div_ceil(u128::from(self.prior)) as u64;
            due.saturating_sub(self.sent)
        } else {
            let conserved = self.delivered.saturating_sub(self.sent).max(delivered);
            (conserved + if is_good { mss } else { 0 }).min(threshold - in_flight)
        };
        // The first retransmission is sent regardless of the share.
        in_flight + if self.sent == 0 { share.max(mss) } else { share }
    }
}

/// Number of later segments whose arrival marks a segment as lost (RFC 5681 section 3.2, RFC 6675 section 2).
pub(crate) const DUPLICATE_COUNT: usize = 3;
/// Number of recoveries during which a widened reordering window stays (RFC 8985 section 6.2 step 4).
const RECOVERY_COUNT: u32 = 16;

#[cfg(test)]
mod tests {
    use super::super::ranges::Span;
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    #[test]
    fn segments_before_an_arrival_are_lost_after_the_window_rfc_8985_6_2() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        (0..4).for_each(|index| board.send(at(index), 100 * (index + 1), false));
        arrive(&mut rack, &mut board, at(101), Span { start: 100, end: 200 });
        let window = rack.window(timeout(false), board.sacked_count());
        assert_eq!(window, TRIP / 4);
        assert_eq!(rack.detect(at(101), window, &mut board), (0, Some(at(126))));
        assert_eq!(rack.detect(at(126), window, &mut board), (100, None));
        assert_eq!(board.next_lost().map(|(_, sent)| sent.start), Some(0));
    }

    #[test]
    fn three_arrivals_beyond_a_hole_need_no_window_where_nothing_was_reordered_rfc_8985_6_2() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        (0..4).for_each(|index| board.send(at(0), 100 * (index + 1), false));
        arrive(&mut rack, &mut board, at(100), Span { start: 100, end: 400 });
        let window = rack.window(timeout(false), board.sacked_count());
        assert_eq!(window, Duration::ZERO);
        assert_eq!(rack.detect(at(100), window, &mut board).0, 100);
    }

    #[test]
    fn a_flow_that_is_reordered_waits_and_longer_after_each_repeat_rfc_8985_6_2() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        (0..4).for_each(|index| board.send(at(0), 100 * (index + 1), false));
        arrive(&mut rack, &mut board, at(100), Span { start: 300, end: 400 });
        arrive(&mut rack, &mut board, at(100), Span { start: 100, end: 200 });
        assert_eq!(rack.window(timeout(true), 3), TRIP / 4, "it was overtaken");
        rack.repeated(0, 400);
        rack.repeated(0, 400);
        assert_eq!(rack.window(timeout(true), 3), TRIP / 2, "once a round trip");
        (0..20).for_each(|index| rack.repeated(400 + index, 400 + index));
        assert_eq!(rack.window(timeout(true), 3), TRIP, "no longer than the mean");
        (0..16).for_each(|_| rack.recovered());
        assert_eq!(rack.window(timeout(true), 3), TRIP / 4, "after sixteen recoveries");
    }

    #[test]
    fn a_segment_sent_again_is_lost_again_once_a_later_one_arrives_rfc_8985_3_1() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        board.send(at(0), 100, false);
        board.send(at(0), 200, false);
        let (number, _) = board.oldest().unwrap();
        board.lose(number);
        board.resend(at(150), number);
        board.send(at(160), 300, false);
        arrive(&mut rack, &mut board, at(265), Span { start: 200, end: 300 });
        assert_eq!(rack.detect(at(265), Duration::ZERO, &mut board).0, 200, "the copy, and the one after it");
    }

    #[test]
    fn a_segment_sent_again_at_the_instant_of_a_later_one_is_not_lost_with_that() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        (1..=2).for_each(|count| board.send(at(0), 100 * count, false));
        let (number, _) = board.oldest().unwrap();
        board.lose(number);
        board.resend(at(0), number);
        board.hold(Span { start: 100, end: 200 }, |sent| rack.arrived(at(0), sent, None));
        assert_eq!(rack.detect(at(0), Duration::ZERO, &mut board).0, 0, "the copy left after what has arrived");
        board.send(at(0), 300, false);
        board.hold(Span { start: 200, end: 300 }, |sent| rack.arrived(at(0), sent, None));
        assert_eq!(rack.detect(at(0), Duration::ZERO, &mut board).0, 100, "the copy left before what has arrived");
    }

    #[test]
    fn an_ack_of_a_first_copy_does_not_deliver_the_second_rfc_8985_6_2() {
        let (mut rack, mut board) = (Rack::new(), Scoreboard::starting_at(0));
        board.send(at(0), 100, false);
        let (number, _) = board.oldest().unwrap();
        board.lose(number);
        board.resend(at(95), number);
        arrive(&mut rack, &mut board, at(100), Span { start: 0, end: 100 });
        assert_eq!(rack.newest, (Time::ZERO, 0), "five milliseconds are below the least round trip");
    }

    #[test]
    fn the_window_comes_down_in_proportion_rfc_6937_3_1() {
        let mut direction = Proportional::begin(20_000);
        // One of twenty segments is lost, and the threshold is half of the window: every second arrival permits a
        // segment.
        let mut sent = 0;
        for arrival in 1..=19 {
            let in_flight = 19_000 - 1_000 * arrival + sent;
            let window = direction.window(10_000, in_flight, 1_000, 1_000, false);
            if window >= in_flight + 1_000 {
                direction.sent(1_000);
                sent += 1_000;
            }
        }
        assert_eq!(sent, 10_000);
    }

    #[test]
    fn below_the_bound_the_window_rises_as_in_slow_start_rfc_6937_3_1() {
        let mut direction = Proportional::begin(20_000);
        direction.sent(1_000);
        assert_eq!(direction.window(10_000, 4_000, 2_000, 1_000, true), 4_000 + 3_000);
        assert_eq!(direction.window(10_000, 9_500, 2_000, 1_000, true), 10_000, "up to the bound");
    }

    fn arrive(rack: &mut Rack, board: &mut Scoreboard, now: Time, span: Span) {
        board.hold(span, |sent| rack.arrived(now, sent, Some(TRIP)));
    }

    fn timeout(is_recovering: bool) -> RttEstimate {
        RttEstimate { mean: TRIP, least: TRIP, is_recovering }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }
}
