//! Packets delivered and lost, with their sizes -> whether a size passes.
//!
//! A path that does not carry a size loses every packet of this size. Ordinary loss takes some packets of every
//! size. So one delivery of a size refutes that the size does not pass, and losses count as evidence only in this
//! form: a packet was lost, nothing of its size or a larger one was delivered since, and a smaller packet was
//! delivered after it. The smaller packet shows that the path and the receiver were alive. Losses within one round
//! trip are one event, since a burst of losses has one cause.
//!
//! The evidence is a likelihood ratio (Wald's sequential test). An event is certain if the size does not pass, and
//! has the probability of ordinary loss otherwise. That probability is estimated from all other samples of the path.

use arrayvec::ArrayVec;
use core::time::Duration;
use packet::Time;

/// Deliveries and losses of one path, by packet size.
#[derive(Clone, Debug, Default)]
pub struct PathEvidence {
    /// Ascending by length.
    records: ArrayVec<Record, RECORD_COUNT>,
    /// Samples that say nothing about a size limit: deliveries, and losses that a later delivery explained as
    /// ordinary. They give the loss rate.
    delivered: u32,
    lost: u32,
    last_loss: Option<Time>,
    /// The length of the smallest packet lost since the last delivery. `None` if none was lost.
    waiting: Option<u16>,
    /// The length against which the losses of the last round trip with losses count. `None` if they count against
    /// none.
    counted: Option<u16>,
}

/// Deliveries and losses of packets of one length.
#[derive(Clone, Copy, Debug)]
struct Record {
    len: u16,
    /// The last delivery. `None` if there was none.
    delivered: Option<Time>,
    /// Losses after which a smaller packet was delivered, since the last delivery of this length or a larger one.
    events: u16,
    /// The time at which the first of these losses counted.
    since: Time,
}

impl PathEvidence {
    /// Takes a delivered packet of `len` bytes. The packet must have been one packet on the wire, and its delivery
    /// must not be that of a retransmission in smaller packets.
    pub fn delivered(&mut self, now: Time, len: u16) {
        self.delivered += 1;
        for record in self.records.iter_mut().filter(|record| record.len <= len) {
            self.lost += u32::from(core::mem::take(&mut record.events));
        }
        match self.waiting.take() {
            Some(lost) if lost > len => {
                if let Some(record) = self.record(lost) {
                    record.since = if record.events == 0 { now } else { record.since };
                    record.events = record.events.saturating_add(1);
                    self.counted = Some(lost);
                }
            }
            Some(_) => self.lost += 1,
            None => {}
        }
        if let Some(record) = self.record(len) {
            record.delivered = Some(now);
        }
        if self.delivered > SAMPLES_MAX {
            self.delivered /= 2;
            self.lost /= 2;
        }
    }

    /// Takes a lost packet of `len` bytes on a path with round-trip time `rtt`. Of all packets lost within `rtt`, and
    /// of all packets lost before the next delivery, only the smallest counts: their losses may have one cause.
    pub fn lost(&mut self, now: Time, len: u16, rtt: Duration) {
        if self.last_loss.is_some_and(|last| now.since(last) < rtt) {
            let is_smaller =
                self.counted.take_if(|counted| len < *counted).is_some_and(|counted| self.take_back(counted));
            if is_smaller || self.waiting.is_some_and(|waiting| len < waiting) {
                self.waiting = Some(len);
            }
            return;
        }
        (self.last_loss, self.counted) = (Some(now), None);
        self.waiting = Some(self.waiting.map_or(len, |waiting| waiting.min(len)));
    }

    /// Takes back the last event of a length: it was the loss of a smaller packet. Returns false if a delivery has
    /// explained it already.
    fn take_back(&mut self, len: u16) -> bool {
        let record = self.records.iter_mut().find(|record| record.len == len && record.events > 0);
        record.map(|record| record.events -= 1).is_some()
    }

    /// Returns the evidence that packets of `len` bytes do not pass: the natural logarithm of the likelihood ratio
    /// of a size limit to ordinary loss. A size also fails if a smaller one does. 0 if a packet of this size or a
    /// larger one was delivered since the last loss.
    pub fn against(&self, len: u16) -> f64 {
        let failing = self.records.iter().take_while(|record| record.len <= len);
        let events: u32 = failing.map(|record| u32::from(record.events)).sum();
        f64::from(events) * (CERTAIN / self.loss_rate()).ln().min(EVENT_MAX)
    }

    /// Returns the smallest length with evidence against it, in bytes. `None` if there is none.
    pub fn smallest_failing(&self) -> Option<u16> {
        self.failing().map(|record| record.len)
    }

    fn failing(&self) -> Option<&Record> {
        self.records.iter().find(|record| record.events > 0)
    }

    /// Returns the probability that a packet is lost for other reasons than its size.
    pub fn loss_rate(&self) -> f64 {
        let rate = (f64::from(self.lost) + PRIOR_LOST) / (f64::from(self.delivered + self.lost) + PRIOR_COUNT);
        rate.max(LOSS_RATE_MIN)
    }

    /// Returns the longest packet, in bytes, that was delivered since a longer one failed. `None` if there is none.
    pub fn longest_delivered(&self) -> Option<u16> {
        let failing = self.failing()?;
        let is_later = |record: &&Record| record.delivered.is_some_and(|delivered| delivered >= failing.since);
        self.records.iter().rev().filter(|record| record.len < failing.len).find(is_later).map(|record| record.len)
    }

    /// Discards what is known about sizes. The loss rate is kept. For a path whose size limit was learned otherwise.
    pub fn forget_sizes(&mut self) {
        self.records.clear();
        (self.last_loss, self.waiting, self.counted) = (None, None, None);
    }

    /// Returns the record of a length, which is created if it is missing. `None` if every record has evidence
    /// that must be kept.
    fn record(&mut self, len: u16) -> Option<&mut Record> {
        let at = match self.records.binary_search_by_key(&len, |record| record.len) {
            Ok(at) => at,
            Err(_) => {
                if self.records.is_full() {
                    let oldest = self.records.iter().enumerate().filter(|(_, record)| record.events == 0);
                    let (gone, _) = oldest.min_by_key(|(_, record)| record.delivered)?;
                    self.records.remove(gone);
                }
                let at = self.records.partition_point(|record| record.len < len);
                self.records.insert(at, Record { len, delivered: None, events: 0, since: Time::ZERO });
                at
            }
        };
        self.records.get_mut(at)
    }
}

/// Number of lengths that are remembered.
const RECORD_COUNT: usize = 8;
/// Probability that a packet above a size limit is lost. It is not 1: the path may change.
const CERTAIN: f64 = 0.99;
/// Loss rate assumed for a path without samples, 1 in 20, with the weight of so many samples.
const PRIOR_LOST: f64 = 1.0;
const PRIOR_COUNT: f64 = 20.0;
/// Smallest loss rate that is assumed: a few hundred samples cannot show a smaller one.
const LOSS_RATE_MIN: f64 = 0.005;
/// Largest weight of one event, ln 100: no single event decides.
const EVENT_MAX: f64 = 4.605_170_185_988_092;
/// Number of samples after which older ones count half, so that the loss rate follows the path.
const SAMPLES_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn at(rounds: u32) -> Time {
        Time::ZERO + RTT * rounds
    }

    #[test]
    fn losses_alone_are_no_evidence() {
        let mut path = PathEvidence::default();
        (0..100).for_each(|round| path.lost(at(round), 1_500, RTT));
        assert_eq!(path.against(1_500), 0.0);
        // The outage ends: all of it is one event.
        path.delivered(at(100), 100);
        let one = path.against(1_500);
        assert!(one > 0.0);
        path.delivered(at(101), 100);
        assert!(path.against(1_500) < 1.1 * one, "{one} is one event");
    }

    #[test]
    fn one_delivery_of_the_size_or_a_larger_one_refutes_all_losses() {
        for len in [1_500, 1_501, 9_000] {
            let mut path = PathEvidence::default();
            for round in 0..6 {
                path.lost(at(2 * round), 1_500, RTT);
                path.delivered(at(2 * round + 1), 1_280);
            }
            assert!(path.against(1_500) > 10.0);
            path.delivered(at(20), len);
            assert_eq!(path.against(1_500), 0.0);
            assert!(path.loss_rate() > 0.1);
        }
    }

    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        let mut path = PathEvidence::default();
        for nanos in 0..1_000 {
            let now = Time::from_nanos(nanos * 1_000);
            path.lost(now, 1_500, RTT);
            path.delivered(now, 100);
        }
        let mut one = PathEvidence::default();
        one.lost(at(0), 1_500, RTT);
        (0..1_000).for_each(|_| one.delivered(at(1), 100));
        assert_eq!(path.against(1_500), one.against(1_500));
    }

    #[test]
    fn of_the_losses_of_one_round_trip_only_the_smallest_counts() {
        let half = RTT / 2;
        // Whether the smaller loss is noticed before the delivery that makes the first one count, or after it.
        for is_late in [false, true] {
            let mut path = PathEvidence::default();
            path.lost(at(0), 1_500, RTT);
            if is_late {
                path.delivered(at(0) + half, 100);
                assert!(path.against(1_500) > 0.0);
            }
            path.lost(at(0) + half, 600, RTT);
            path.delivered(at(0) + half, 600);
            assert_eq!(path.against(1_500), 0.0, "{is_late}: packets of every size were lost");
        }
        // The losses of another round trip are another event.
        let mut path = PathEvidence::default();
        path.lost(at(0), 1_500, RTT);
        path.delivered(at(0), 100);
        path.lost(at(1), 600, RTT);
        path.delivered(at(1), 600);
        assert!(path.against(1_500) > 0.0);
    }

    #[test]
    fn a_lost_packet_says_nothing_about_smaller_sizes() {
        let mut path = PathEvidence::default();
        path.lost(at(0), 1_400, RTT);
        path.delivered(at(1), 1_300);
        assert!(path.against(1_400) > 0.0);
        assert!(path.against(1_500) > 0.0);
        assert_eq!(path.against(1_399), 0.0);
        assert_eq!(path.smallest_failing(), Some(1_400));
        assert_eq!(path.longest_delivered(), Some(1_300));
    }

    #[test]
    fn a_lossier_path_needs_more_events() {
        let events_until = |loss_one_in: u32| {
            let mut path = PathEvidence::default();
            let mut round = 0;
            for sample in 0..400 {
                round += 2;
                if loss_one_in > 0 && sample % loss_one_in == 0 {
                    path.lost(at(round), 1_500, RTT);
                }
                path.delivered(at(round + 1), 1_500);
            }
            (1..).find(|_| {
                round += 2;
                path.lost(at(round), 1_500, RTT);
                path.delivered(at(round + 1), 1_280);
                path.against(1_500) >= 20.0
            })
        };
        assert_eq!([0, 100, 20, 10, 5].map(|one_in| events_until(one_in).unwrap()), [5, 5, 7, 9, 11]);
    }

    #[test]
    fn memory_is_bounded_and_evidence_is_kept() {
        let mut path = PathEvidence::default();
        path.lost(at(0), 60_000, RTT);
        path.delivered(at(1), 40);
        let kept = path.against(60_000);
        (0..10_000).for_each(|round| path.delivered(at(round + 2), 40 + round as u16 % 1_000));
        assert!(path.records.len() <= RECORD_COUNT);
        assert!(path.against(60_000) >= kept);
    }
}
