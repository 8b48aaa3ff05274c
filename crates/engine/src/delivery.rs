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

use core::time::Duration;
use packet::Time;
use packet::tcp::is_before;

/// The data of a connection on its way to the narrow host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// The first unacknowledged byte.
    una: u32,
    /// The byte after the last one that was sent.
    nxt: u32,
    is_known: bool,
    /// Whether `una` is the start of the first segment after a gap: earlier data may be unacknowledged.
    is_guessed: bool,
    /// Whether the receiver acknowledged anything since `una` advanced.
    is_heard: bool,
    /// How often the data at `una` was sent again without progress. 0 while the sender has not timed out.
    resent_count: u8,
    /// The time of the last packet with the data at `una`, if it was sent again.
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
        self.is_known && self.resent.is_some()
    }

    /// Returns how often the data at the first unacknowledged byte was sent again without progress.
    pub(crate) fn resent_count(&self) -> u8 {
        self.resent_count
    }

    /// Returns the smoothed round-trip time, or an assumption.
    pub(crate) fn rtt(&self) -> Duration {
        if self.rtt == 0 { RTT_UNKNOWN } else { Duration::from_micros(self.rtt.into()) }
    }

    /// Whether a sequence number belongs to data that was sent and is not acknowledged (RFC 5927 section 4.1).
    pub(crate) fn is_in_flight(&self, seq: u32) -> bool {
        self.is_known && !is_before(seq, self.una) && is_before(seq, self.nxt)
    }

    /// Takes a data segment that may repeat earlier data, before its size is chosen. Returns the loss that it reveals.
    pub(crate) fn notice_loss(&mut self, sent: &DataSegment) -> Option<Fate> {
        // Senders do not repeat acknowledged data.
        if self.is_guessed && is_before(sent.seq, self.una) {
            self.una = sent.seq;
        }
        // A sender that fills a later hole reveals nothing new.
        if !self.repeats_una(sent) {
            return None;
        }
        if self.is_heard && self.resent.is_none() {
            // Later packets arrived: a fast retransmission, at least at first.
            let una = self.una;
            let sample = self.sample.take_if(|sample| !is_before(una, sample.start))?;
            return Some(Fate::Lost(sample.len));
        }
        let lost = self.resent.or(self.sample.take()).map(|packet| Fate::Lost(packet.len));
        self.resent_count = self.resent_count.saturating_add(1);
        lost
    }

    /// Whether a data segment starts with data that was sent before.
    pub(crate) fn repeats(&self, sent: &DataSegment) -> bool {
        self.is_known && is_before(sent.seq, self.nxt)
    }

    /// Whether a data segment repeats the first unacknowledged byte. A keep-alive probe repeats acknowledged data.
    fn repeats_una(&self, sent: &DataSegment) -> bool {
        self.repeats(sent) && !is_before(self.una, sent.seq) && is_before(self.una, sent.end())
    }

    /// Takes a data segment that is cut into packets of at most `len_max` bytes. A probe becomes the sample.
    pub(crate) fn send(&mut self, now: Time, sent: &DataSegment, len_max: u16, is_probe: bool) {
        // Before a gap, data took another way, such as through the kernel.
        if !self.is_known || is_before(self.nxt, sent.seq) {
            self.restart_at(sent.seq);
            self.is_guessed = true;
        }
        let len = sent.packet_len(len_max);
        let end = sent.seq.wrapping_add(u32::from(len.saturating_sub(sent.headers_len)));
        let packet = Sample { start: sent.seq, end, len, sent: micros(now) };
        if self.repeats(sent) {
            let overlaps =
                |sample: &mut Sample| is_before(sample.start, sent.end()) && is_before(sent.seq, sample.end);
            self.sample.take_if(overlaps);
            if self.repeats_una(sent) {
                self.resent = Some(packet);
            }
        } else if self.sample.is_none() || is_probe {
            self.sample = Some(packet);
        }
        if is_before(self.nxt, sent.end()) {
            self.nxt = sent.end();
        }
    }

    /// Takes an acknowledgement of the narrow host. `has_data` tells whether its packet carries data. Returns the
    /// packet that the acknowledgement proves to be delivered.
    #[inline]
    pub(crate) fn acknowledge(&mut self, now: Time, ack: u32, has_data: impl FnOnce() -> bool) -> Option<Fate> {
        // Nothing is in flight where only the narrow host sends.
        if !self.is_known || ack == self.una && self.una == self.nxt {
            return None;
        }
        self.acknowledge_data(now, ack, has_data())
    }

    #[inline(never)]
    fn acknowledge_data(&mut self, now: Time, ack: u32, has_data: bool) -> Option<Fate> {
        if is_before(ack, self.una) {
            return None;
        }
        self.is_guessed = false;
        if ack == self.una {
            // A duplicate acknowledgement carries no data (RFC 5681 section 2).
            self.is_heard |= !has_data;
            return None;
        }
        if is_before(self.nxt, ack) {
            // Data took another way, or the number is forged: the next segment tells.
            self.is_known = false;
            return None;
        }
        self.una = ack;
        self.is_heard = false;
        let timed_out = core::mem::take(&mut self.resent_count) > 0;
        if let Some(resent) = self.resent.take() {
            self.sample.take_if(|sample| !is_before(ack, sample.end));
            return (timed_out && self.is_of_second(now, &resent)).then_some(Fate::Delivered(resent.len));
        }
        let sample = self.sample.take_if(|sample| !is_before(ack, sample.end))?;
        self.take_rtt(sample.age(now));
        Some(Fate::Delivered(sample.len))
    }

    /// Takes an acknowledgement that the kernel forwarded, with all data before it.
    pub(crate) fn skip_to(&mut self, ack: u32) {
        self.is_known &= !is_before(self.una, ack);
    }

    /// Takes data that the kernel forwarded: the bytes before `sent`, of which those before `acked` are acknowledged.
    /// Ignores numbers that no window allows: they belong to an earlier connection.
    pub(crate) fn skip_between(&mut self, acked: Option<u32>, sent: u32) {
        let una = match acked {
            Some(acked) if !self.is_known || is_before(self.una, acked) => acked,
            _ if self.is_known => self.una,
            _ => return,
        };
        let is_in_window = |number: u32| number.wrapping_sub(una) <= WINDOW_MAX;
        if !is_in_window(sent) || self.is_known && una.wrapping_sub(self.una) > WINDOW_MAX {
            return;
        }
        if !self.is_known || una != self.una {
            self.restart_at(una);
        }
        if is_before(self.nxt, sent) {
            self.nxt = sent;
        }
    }

    /// Forgets all data: the next byte to be sent is `seq`.
    pub(crate) fn restart_at(&mut self, seq: u32) {
        let Delivery { rtt_min, rtt, .. } = *self;
        *self = Delivery { una: seq, nxt: seq, is_known: true, rtt_min, rtt, ..Delivery::default() };
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
    fn end(&self) -> u32 {
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

/// The largest window of TCP, in bytes (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 1 << 30;
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
        assert_eq!(delivery.acknowledge(Time::ZERO, 0, || false), None);
        // A fast retransmission, and new data, which becomes the sample and is repeated in shorter packets.
        assert_eq!(delivery.notice_loss(&data(0)), Some(Fate::Lost(1_500)));
        delivery.send(Time::ZERO, &data(0), 1_400, false);
        delivery.send(Time::ZERO, &data(1_460), 1_500, false);
        delivery.send(Time::ZERO, &data(1_460), 1_400, false);
        for ack in [1_460, 2_920] {
            assert_eq!(delivery.acknowledge(Time::ZERO, ack, || false), None, "{ack}");
        }
    }
}
