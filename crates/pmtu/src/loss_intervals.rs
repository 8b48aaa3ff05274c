//! Packets and loss events of a flow -> its loss event rate (RFC 5348 section 5).
//!
//! The rate of loss *events*, not that of lost packets, decides how a flow fares: TCP reduces its rate once for all
//! losses of a round trip. The mean of the last eight intervals between events follows a change within a few
//! events, and is not moved much by one of them. Without further events, the rate falls as packets are sent.
//!
//! The first event often is the end of slow start, when the sender fills a queue. The packets before it say little about
//! the path's loss, so they count only up to a limit. RFC 5348 section 6.3.1 does not count them either.

/// The numbers of packets between the last loss events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossIntervals {
    /// Packets since the last event.
    open: u32,
    /// Packets from each event to the next, the last interval first.
    closed: [u32; INTERVAL_COUNT],
    /// Number of valid elements of `closed`.
    closed_count: u8,
}

impl LossIntervals {
    /// Takes packets that were sent.
    pub fn sent(&mut self, packet_count: u32) {
        self.open = self.open.saturating_add(packet_count);
    }

    /// Takes a loss event: one or more losses within a round trip.
    pub fn lost(&mut self) {
        self.closed.rotate_right(1);
        let [last, ..] = &mut self.closed;
        let most = if self.closed_count == 0 { FIRST_INTERVAL_MAX } else { u32::MAX };
        *last = core::mem::take(&mut self.open).clamp(1, most);
        self.closed_count = (self.closed_count + 1).min(INTERVAL_COUNT as u8);
    }

    /// Returns the mean number of packets for each loss event: 1 divided by the loss event rate. `None` before the
    /// first event.
    pub fn mean(&self) -> Option<u32> {
        let closed = self.closed.get(..usize::from(self.closed_count)).filter(|closed| !closed.is_empty())?;
        // The open interval counts only where it lowers the rate (RFC 5348 section 5.4).
        let with_open = core::iter::once(&self.open).chain(closed).take(closed.len());
        Some(weighted_mean(closed.iter()).max(weighted_mean(with_open)))
    }
}

fn weighted_mean<'a>(intervals: impl Iterator<Item = &'a u32>) -> u32 {
    let (sum, weights) = intervals
        .zip(WEIGHTS)
        .fold((0, 0), |(sum, weights), (interval, weight)| (sum + u64::from(*interval) * weight, weights + weight));
    (sum / weights.max(1)).min(u32::MAX.into()) as u32
}

/// Largest number of packets that counts before the first event.
pub const FIRST_INTERVAL_MAX: u32 = 2_500;
/// Number of intervals (RFC 5348 section 5.4).
const INTERVAL_COUNT: usize = 8;
/// Weights of the intervals, the last one first: those of RFC 5348 section 5.4, times five.
const WEIGHTS: [u64; INTERVAL_COUNT] = [5, 5, 5, 5, 4, 3, 2, 1];

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `packets` packets and then loses one, `events` times.
    fn lose(intervals: &mut LossIntervals, packets: u32, events: usize) {
        for _ in 0..events {
            intervals.sent(packets);
            intervals.lost();
        }
    }

    #[test]
    fn the_mean_is_the_distance_of_regular_events() {
        let mut intervals = LossIntervals::default();
        assert_eq!(intervals.mean(), None);
        for events in 1..20 {
            lose(&mut intervals, 100, 1);
            assert_eq!(intervals.mean(), Some(100), "{events}");
        }
    }

    #[test]
    fn a_long_time_before_the_first_event_counts_little() {
        let mut intervals = LossIntervals::default();
        lose(&mut intervals, 1_000_000, 1);
        assert_eq!(intervals.mean(), Some(2_500));
        lose(&mut intervals, 1_000, 1);
        assert_eq!(intervals.mean(), Some(1_750));
        lose(&mut intervals, 1_000_000, 1);
        assert!(intervals.mean().is_some_and(|mean| mean > 300_000), "{:?}", intervals.mean());
    }

    #[test]
    fn the_newest_interval_weighs_a_sixth() {
        let mut intervals = LossIntervals::default();
        lose(&mut intervals, 100, 8);
        lose(&mut intervals, 700, 1);
        // 5 of 30.
        assert_eq!(intervals.mean(), Some(200));
        // The open interval has replaced the oldest one, and lowers the rate only when it is longer.
        intervals.sent(100);
        assert_eq!(intervals.mean(), Some(200));
        intervals.sent(1_200);
        assert!(intervals.mean().is_some_and(|mean| mean > 300), "{:?}", intervals.mean());
    }

    #[test]
    fn two_events_without_a_packet_between_them_are_one_packet_apart() {
        let mut intervals = LossIntervals::default();
        lose(&mut intervals, 0, 8);
        assert_eq!(intervals.mean(), Some(1));
        intervals.sent(u32::MAX);
        intervals.sent(1);
        assert_eq!(intervals.mean(), Some(((u64::from(u32::MAX) * 5 + 25 - 1) / 30) as u32));
    }
}
