//! Segments and acknowledgements of one direction of a TCP connection -> packets delivered and packets lost.
//!
//! A border sees both directions, so it can tell what became of its cuts. It follows one sample at a time: a packet
//! with new data, until it is acknowledged. Data that is sent again from the first unacknowledged byte was lost. If
//! nothing was acknowledged in the meantime, the sender timed out, and its next packets are cut smaller: their
//! delivery distinguishes a size limit from an outage.
//!
//! An acknowledgement of data that was sent twice does not say which packet arrived (Karn's rule). It is taken for
//! the second packet's, unless it comes sooner after this packet than any acknowledgement did before.
//!
//! Wrong conclusions cost little: a sender that fast-retransmits, or whose first packet was only late, sends a few
//! packets of the base size. The [evidence](pmtu::PathEvidence) outweighs single wrong samples.

use crate::in_flight::{Acknowledged, InFlight};
use core::time::Duration;
use packet::Time;
use packet::tcp::is_before;

/// The data of a connection on its way to the narrow host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    data: InFlight,
    /// Whether the receiver acknowledged anything since its last acknowledgement of new data.
    is_heard: bool,
    /// How often the first unacknowledged data was sent again without progress. 0 while the sender has not timed out.
    resent_count: u8,
    /// The last packet with the first unacknowledged data, if it was sent again.
    resent: Option<Sample>,
    sample: Option<Sample>,
    /// Smallest and smoothed round-trip time, in microseconds; 0 if unknown.
    rtt_min: u32,
    rtt: u32,
}

/// A packet whose acknowledgement is awaited.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The first byte of the packet.
    start: u32,
    /// The byte after the packet.
    end: u32,
    /// The packet's length, in bytes, including the IP header.
    len: u16,
    /// The time at which it was sent, in microseconds modulo 2^32.
    sent: u32,
}

/// A data segment toward the narrow host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataSegment {
    /// Sequence number of the first byte.
    pub(crate) seq: u32,
    /// Length of the payload, in bytes. Not 0.
    pub(crate) payload_len: u32,
    /// Length of the headers of each of its packets, in bytes, from the IP header.
    pub(crate) headers_len: u16,
    /// Length of its longest packet as it was received, in bytes, including the IP header.
    pub(crate) wire_len: u16,
}

/// The fate of an earlier packet, with its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered(u16),
    Lost(u16),
}

impl Delivery {
    /// Whether data was sent again and is not acknowledged.
    pub(crate) fn is_troubled(&self) -> bool {
        self.data.is_known() && self.resent.is_some()
    }

    /// Returns how often the data at the first unacknowledged byte was sent again without progress.
    pub(crate) fn resent_count(&self) -> u8 {
        self.resent_count
    }

    /// Returns the smoothed round-trip time, or an assumption.
    pub(crate) fn rtt(&self) -> Duration {
        if self.rtt == 0 { RTT_UNKNOWN } else { Duration::from_micros(self.rtt.into()) }
    }

    /// Returns the data in flight.
    pub(crate) fn data(&self) -> &InFlight {
        &self.data
    }

    /// Takes a data segment that may repeat earlier data, before its size is chosen. Returns the loss that it reveals.
    pub(crate) fn notice_loss(&mut self, now: Time, sent: &DataSegment) -> Option<Fate> {
        self.data.extend_back_to(sent.seq);
        // A sender that fills a later hole reveals nothing new.
        if !self.data.repeats_una(sent.seq, sent.end()) {
            return None;
        }
        if self.is_copy(now, sent) {
            return None;
        }
        if self.is_heard && self.resent.is_none() {
            // Later packets arrived: a fast retransmission, at least at first.
            let una = self.data.una();
            let sample = self.sample.take_if(|sample| !is_before(una, sample.start))?;
            return Some(Fate::Lost(sample.len));
        }
        let lost = self.resent.or(self.sample.take()).map(|packet| Fate::Lost(packet.len));
        self.resent_count = self.resent_count.saturating_add(1);
        lost
    }

    /// Whether the network duplicated a data segment. Within a round trip, no sender knows of a loss.
    pub(crate) fn is_copy(&self, now: Time, sent: &DataSegment) -> bool {
        let earlier = self.resent.or(self.sample).filter(|packet| packet.start == sent.seq);
        self.data.contains(sent.seq) && earlier.is_some_and(|packet| packet.age(now) < self.rtt_min)
    }

    /// Whether a data segment starts with data that was sent before.
    #[inline]
    pub(crate) fn repeats(&self, sent: &DataSegment) -> bool {
        self.data.repeats(sent.seq)
    }

    /// Takes a data segment that is cut into packets of at most `len_max` bytes. A probe becomes the sample.
    pub(crate) fn send(&mut self, now: Time, sent: &DataSegment, len_max: u16, is_probe: bool) {
        if self.is_copy(now, sent) {
            return;
        }
        let len = sent.packet_len(len_max);
        let end = sent.seq.wrapping_add(u32::from(len.saturating_sub(sent.headers_len)));
        let packet = Sample { start: sent.seq, end, len, sent: micros(now) };
        if self.data.repeats(sent.seq) {
            let overlaps =
                |sample: &mut Sample| is_before(sample.start, sent.end()) && is_before(sent.seq, sample.end);
            self.sample.take_if(overlaps);
            if self.data.repeats_una(sent.seq, sent.end()) {
                self.resent = Some(packet);
            }
            self.data.send(sent.seq, sent.end());
            return;
        }
        if self.data.send(sent.seq, sent.end()) {
            self.forget_packets();
        }
        if self.sample.is_none() || is_probe {
            self.sample = Some(packet);
        }
    }

    /// Takes an acknowledgement of the narrow host. `has_data` tells whether its packet carries data. Returns the
    /// packet that the acknowledgement proves to be delivered.
    #[inline]
    pub(crate) fn acknowledge(&mut self, now: Time, ack: u32, has_data: bool) -> Option<Fate> {
        // Nothing is in flight where only the narrow host sends.
        if self.data.is_idle(ack) {
            return None;
        }
        self.acknowledge_data(now, ack, has_data)
    }

    #[inline(never)]
    fn acknowledge_data(&mut self, now: Time, ack: u32, has_data: bool) -> Option<Fate> {
        match self.data.acknowledge(ack) {
            Acknowledged::Nothing => return None,
            Acknowledged::Again => {
                // A duplicate acknowledgement carries no data (RFC 5681 section 2).
                self.is_heard |= !has_data;
                return None;
            }
            Acknowledged::Data => {}
        }
        self.is_heard = false;
        self.resent_count = 0;
        let sample = self.sample.take_if(|sample| !is_before(ack, sample.end));
        if let Some(resent) = self.resent.take() {
            return self.is_of_second(now, &resent).then_some(Fate::Delivered(resent.len));
        }
        let sample = sample?;
        self.take_rtt(sample.age(now));
        Some(Fate::Delivered(sample.len))
    }

    /// Takes an acknowledgement that the kernel forwarded, with all data before it.
    pub(crate) fn skip_to(&mut self, ack: u32) {
        self.data.skip_to(ack);
    }

    /// Takes data that the kernel forwarded; see [`InFlight::skip_between`].
    pub(crate) fn skip_between(&mut self, acked: Option<u32>, sent: u32) {
        if self.data.skip_between(acked, sent) {
            self.forget_packets();
        }
    }

    /// Forgets all data: the next byte to be sent is `seq`.
    pub(crate) fn restart_at(&mut self, seq: u32) {
        self.data = InFlight::from_seq(seq);
        self.forget_packets();
    }

    /// Forgets the packets whose fate is awaited. Round-trip times stay valid.
    fn forget_packets(&mut self) {
        let Delivery { data, rtt_min, rtt, .. } = *self;
        *self = Delivery { data, rtt_min, rtt, ..Delivery::default() };
    }

    /// Whether an acknowledgement can be that of data sent again, and not of the first packet with the data.
    fn is_of_second(&self, now: Time, resent: &Sample) -> bool {
        resent.age(now) >= self.rtt_min
    }

    /// Takes a round-trip time, in microseconds (RFC 6298 section 2).
    fn take_rtt(&mut self, rtt: u32) {
        let rtt = rtt.max(1);
        self.rtt = if self.rtt == 0 { rtt } else { self.rtt - self.rtt / 8 + rtt / 8 };
        self.rtt_min = if self.rtt_min == 0 { rtt } else { self.rtt_min.min(rtt) };
    }
}

impl Sample {
    /// Returns the time since it was sent, in microseconds.
    fn age(&self, now: Time) -> u32 {
        micros(now).wrapping_sub(self.sent)
    }
}

impl DataSegment {
    /// Returns the sequence number behind the payload.
    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload_len)
    }

    /// Returns the length of its longest packet where packets have at most `len_max` bytes.
    fn packet_len(&self, len_max: u16) -> u16 {
        self.wire_len.min(len_max)
    }
}

/// Returns a time in microseconds modulo 2^32: 71 minutes.
fn micros(time: Time) -> u32 {
    (time.nanos() / 1_000) as u32
}

/// Round-trip time assumed before the first sample (a wide-area network's).
const RTT_UNKNOWN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_whose_data_was_sent_again_is_no_sample() {
        let data = |seq| DataSegment { seq, payload_len: 1_460, headers_len: 40, wire_len: 1_500 };
        let mut delivery = Delivery::default();
        delivery.restart_at(0);
        delivery.send(Time::ZERO, &data(0), 1_500, false);
        assert_eq!(delivery.acknowledge(Time::ZERO, 0, false), None);
        // A fast retransmission, and new data, which becomes the sample and is repeated in shorter packets.
        assert_eq!(delivery.notice_loss(Time::ZERO, &data(0)), Some(Fate::Lost(1_500)));
        delivery.send(Time::ZERO, &data(0), 1_400, false);
        delivery.send(Time::ZERO, &data(1_460), 1_500, false);
        delivery.send(Time::ZERO, &data(1_460), 1_400, false);
        let fates = [1_460, 2_920].map(|ack| delivery.acknowledge(Time::ZERO, ack, false));
        assert_eq!(fates, [Some(Fate::Delivered(1_400)), None], "the fast retransmission, and no sample");
    }

    #[test]
    fn a_repetition_within_the_round_trip_is_no_loss() {
        let data = DataSegment { seq: 0, payload_len: 1_460, headers_len: 40, wire_len: 1_500 };
        let next = DataSegment { seq: 1_460, ..data };
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut delivery = Delivery::default();
        delivery.restart_at(0);
        delivery.send(at(0), &data, 1_500, false);
        assert_eq!(delivery.acknowledge(at(10), 1_460, false), Some(Fate::Delivered(1_500)));
        delivery.send(at(10), &next, 1_500, false);
        assert_eq!(delivery.notice_loss(at(19), &next), None);
        delivery.send(at(19), &next, 1_500, false);
        assert!(!delivery.is_troubled(), "the network duplicated it");
        assert_eq!(delivery.notice_loss(at(20), &next), Some(Fate::Lost(1_500)));
        delivery.send(at(20), &next, 1_280, false);
        assert!(delivery.is_troubled());
    }
}
