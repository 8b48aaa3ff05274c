//! Segments and acknowledgements of one direction of a TCP connection -> the range of data in flight.
//!
//! An ICMP error about a connection is believed only if it quotes data in flight (RFC 5927 section 4.1).

use packet::tcp::is_before;

/// The data of one direction that was sent and is not acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    /// The first unacknowledged byte.
    una: u32,
    /// The byte after the last one that was sent.
    nxt: u32,
    is_known: bool,
    /// Whether `una` is the start of the first segment after a gap: earlier data may be unacknowledged.
    is_guessed: bool,
}

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// It is old, or it is about data that was not seen.
    Nothing,
    /// It repeats the last one while data is in flight.
    Again,
    /// It acknowledges data for the first time.
    Data,
}

impl InFlight {
    /// Returns the first unacknowledged byte. Valid while data is in flight.
    pub(crate) fn una(&self) -> u32 {
        self.una
    }

    /// Whether the data is known.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Whether no data is known to be in flight, and this acknowledgement is no news.
    #[inline]
    pub(crate) fn is_idle(&self, ack: u32) -> bool {
        !self.is_known || ack == self.una && self.una == self.nxt
    }

    /// Whether a sequence number belongs to data in flight.
    pub(crate) fn contains(&self, seq: u32) -> bool {
        self.is_known && !is_before(seq, self.una) && is_before(seq, self.nxt)
    }

    /// Whether an acknowledgement of all bytes before `ack` may be right.
    pub(crate) fn may_acknowledge(&self, ack: u32) -> bool {
        !self.is_known || ack.wrapping_sub(self.una) <= self.nxt.wrapping_sub(self.una)
    }

    /// Whether data that starts with this byte was sent before.
    #[inline]
    pub(crate) fn repeats(&self, seq: u32) -> bool {
        self.is_known && is_before(seq, self.nxt)
    }

    /// Whether a segment would repeat the first unacknowledged byte. A keep-alive probe repeats acknowledged data.
    pub(crate) fn repeats_una(&self, seq: u32, end: u32) -> bool {
        self.repeats(seq) && !is_before(self.una, seq) && is_before(self.una, end)
    }

    /// Takes a repeated segment before it is sent. After a gap, it may start before the first known byte: senders do
    /// not repeat acknowledged data.
    pub(crate) fn extend_back_to(&mut self, seq: u32) {
        if self.is_guessed && is_before(seq, self.una) {
            self.una = seq;
        }
    }

    /// Takes a segment. Returns whether the data before it is unknown: it took another way, such as through the
    /// kernel.
    #[inline]
    pub(crate) fn send(&mut self, seq: u32, end: u32) -> bool {
        let is_gap = !self.is_known || is_before(self.nxt, seq);
        if is_gap {
            *self = InFlight { is_guessed: true, ..InFlight::from_seq(seq) };
        }
        if is_before(self.nxt, end) {
            self.nxt = end;
        }
        is_gap
    }

    /// Takes an acknowledgement of all bytes before `ack`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: u32) -> Acknowledged {
        if self.is_idle(ack) || is_before(ack, self.una) {
            return Acknowledged::Nothing;
        }
        self.is_guessed = false;
        if ack == self.una {
            return Acknowledged::Again;
        }
        if is_before(self.nxt, ack) {
            // Data took another way, or the number is forged: the next segment tells.
            self.is_known = false;
            return Acknowledged::Nothing;
        }
        self.una = ack;
        Acknowledged::Data
    }

    /// Takes an acknowledgement that the kernel forwarded, with all data before it.
    pub(crate) fn skip_to(&mut self, ack: u32) {
        self.is_known &= !is_before(self.una, ack);
    }

    /// Takes data that the kernel forwarded: the bytes before `sent`, of which those before `acked` are acknowledged.
    /// Ignores numbers that no window allows: they belong to an earlier connection. Returns whether data was
    /// acknowledged.
    pub(crate) fn skip_between(&mut self, acked: Option<u32>, sent: u32) -> bool {
        let una = match acked {
            Some(acked) if !self.is_known || is_before(self.una, acked) => acked,
            _ if self.is_known => self.una,
            _ => return false,
        };
        let is_in_window = |number: u32| number.wrapping_sub(una) <= WINDOW_MAX;
        if !is_in_window(sent) || self.is_known && una.wrapping_sub(self.una) > WINDOW_MAX {
            return false;
        }
        let is_news = !self.is_known || una != self.una;
        if is_news {
            *self = InFlight::from_seq(una);
        }
        if is_before(self.nxt, sent) {
            self.nxt = sent;
        }
        is_news
    }

    /// Returns the state of a direction whose next byte to be sent is `seq`.
    pub(crate) fn from_seq(seq: u32) -> InFlight {
        InFlight { una: seq, nxt: seq, is_known: true, is_guessed: false }
    }
}

/// The largest window of TCP, in bytes (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_in_flight_from_its_first_segment_to_its_acknowledgement() {
        let mut data = InFlight::from_seq(u32::MAX);
        assert!(!data.contains(u32::MAX));
        assert!(!data.send(u32::MAX, 9));
        for (seq, is_inside) in [(u32::MAX - 1, false), (u32::MAX, true), (0, true), (8, true), (9, false)] {
            assert_eq!(data.contains(seq), is_inside, "{seq}");
        }
        assert_eq!(data.acknowledge(u32::MAX - 5), Acknowledged::Nothing);
        assert_eq!(data.acknowledge(u32::MAX), Acknowledged::Again);
        assert_eq!(data.acknowledge(4), Acknowledged::Data);
        assert!(!data.contains(3) && data.contains(4));
        // A number above all data is forged, or the data took another way: nothing is known.
        assert_eq!(data.acknowledge(10), Acknowledged::Nothing);
        assert!(!data.contains(4));
        assert!(data.send(4, 9), "known again");
        assert!(data.contains(4));
    }

    #[test]
    fn after_a_gap_earlier_data_may_be_in_flight() {
        let mut data = InFlight::from_seq(0);
        assert!(data.send(1_000, 2_000));
        assert!(!data.contains(500));
        data.extend_back_to(500);
        assert!(data.contains(500));
        // An acknowledgement shows where the data begins.
        assert_eq!(data.acknowledge(1_500), Acknowledged::Data);
        data.extend_back_to(1_000);
        assert!(!data.contains(1_000));
    }
}
