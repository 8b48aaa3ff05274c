//! Acknowledgements of one host of a connection -> the last one, and the numbers between two of them.
//!
//! The numbers are only used if they belong together: an acknowledgement must be later than the last one, and
//! must not acknowledge more than the border saw. So a forged acknowledgement with a random number has no effect. Data
//! counts only within the offered window. Each number between two acknowledgements stands for two packets of data.

use packet::tcp::is_before;

/// The last acknowledgement of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastAck {
    /// The bytes before this one are acknowledged.
    ack: u32,
    /// The byte after the largest window that the host offered: its right edge.
    edge: u32,
    /// The byte after the last one that the host's peer sent.
    next: u32,
    /// Packets of the peer's data for which no acknowledgement was made.
    packets: u16,
    is_known: bool,
}

/// A step from one acknowledgement to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    /// The acknowledgement number and the right edge before the step.
    pub(crate) from: u32,
    pub(crate) edge_from: u32,
    /// The acknowledgement number and the right edge after the step.
    pub(crate) to: u32,
    pub(crate) edge: u32,
    /// Packets of data for which no acknowledgement was made before the step.
    pub(crate) packets: u16,
}

impl LastAck {
    /// The acknowledgement in a SYN-ACK, whose window is not scaled.
    pub(crate) fn begun(ack: u32, window: u16) -> LastAck {
        LastAck::known(ack, ack.wrapping_add(window.into()))
    }

    fn known(ack: u32, edge: u32) -> LastAck {
        LastAck { ack, edge, next: ack, packets: 0, is_known: true }
    }

    /// Takes data of the host's peer in this number of packets. `end` is the byte after it.
    pub(crate) fn peer_sent(&mut self, end: u32, packets: u64) {
        if self.is_known && is_before(self.next, end) && !is_before(self.edge, end) {
            self.next = end;
            self.packets = self.packets.saturating_add(packets.min(u16::MAX.into()) as u16);
        }
    }

    /// Notes that an acknowledgement stands for two packets of data (RFC 9293 section 3.8.6.3).
    pub(crate) fn spend(&mut self) {
        self.packets = self.packets.saturating_sub(2);
    }

    /// Takes an acknowledgement. `edge` is the byte after the offered window. Returns the step from the last one.
    /// `None` if it acknowledges nothing new, or more than was sent. `None` also if the last one is unknown, or if the
    /// host took back a part of its window.
    pub(crate) fn advance(&mut self, ack: u32, edge: u32) -> Option<Advance> {
        let LastAck { ack: from, edge: edge_from, next, packets, is_known } = *self;
        if !is_known || from.wrapping_sub(ack) as i32 > WINDOW_MAX {
            *self = LastAck::known(ack, edge);
            return None;
        }
        if is_before(next, ack) {
            // Data took another way, or the number is forged: the next acknowledgement tells.
            self.is_known = false;
            return None;
        }
        if is_before(ack, from) {
            return None;
        }
        self.ack = ack;
        // Data that was sent before the window shrank is still data.
        let shrinks = is_before(edge, edge_from);
        if !shrinks {
            self.edge = edge;
        }
        if ack == from {
            return None;
        }
        // The acknowledgement itself stands for two packets, or for the last ones.
        self.spend();
        if ack == next {
            self.packets = 0;
        }
        (!shrinks).then_some(Advance { from, edge_from, to: ack, edge, packets })
    }

    /// Returns the acknowledgement number, the right edge, and the end of the data that was sent. `None` if they are
    /// unknown.
    pub(crate) fn numbers(&self) -> Option<[u32; 3]> {
        self.is_known.then_some([self.ack, self.edge, self.next])
    }
}

impl Advance {
    /// Returns acknowledgement numbers and windows for a step in several steps of at least `step` bytes, without the
    /// last one. There are fewer than [`EXPANDED_MAX`], and fewer than half of the packets of data. The windows are shifted by `shift` bits.
    ///
    /// A number is a multiple of the window's unit before the last one, so that all have the right edge of the last
    /// one exactly: a sender sees no window shrink, and none that the host did not offer. Only a window above the
    /// largest one is cut.
    pub(crate) fn between(self, step: u32, shift: u8) -> impl Iterator<Item = (u32, u16)> {
        let Advance { from, edge_from, to, edge, packets } = self;
        let len = to.wrapping_sub(from);
        let count = (len / step.max(1)).min(EXPANDED_MAX).min(u32::from(packets / 2));
        let mut last = (from, edge_from);
        (1..count).filter_map(move |index| {
            // As `index` is below `count`, the number is before the last one.
            let part = (u64::from(len) * u64::from(index) / u64::from(count)) as u32;
            let ack = to.wrapping_sub(len.saturating_sub(part) >> shift << shift);
            let window = (edge.wrapping_sub(ack) >> shift).min(u16::MAX.into()) as u16;
            let edge = ack.wrapping_add(u32::from(window) << shift);
            let is_next = is_before(last.0, ack) && is_before(ack, to) && !is_before(edge, last.1);
            is_next.then(|| {
                last = (ack, edge);
                (ack, window)
            })
        })
    }
}

/// Maximum number of acknowledgements that one of a host becomes, its own included.
pub(crate) const EXPANDED_MAX: u32 = 64;
/// The largest window of TCP, in bytes (RFC 7323 section 2.3).
const WINDOW_MAX: i32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every step with these parameters, at sequence numbers that wrap.
    fn each(mut test: impl FnMut(Advance, u32, u8)) {
        for from in [0, 1, 7_777, u32::MAX - 30_000, u32::MAX] {
            for len in [1, 2_919, 2_920, 5_839, 5_840, 17_376, 65_495, 1 << 20, 1 << 30] {
                for (edge_from, edge) in [(len, len), (len, 2 * len), (65_535, 65_535 + len), (len / 2, len)] {
                    for shift in [0, 1, 7, 14] {
                        let [to, edge_from, edge] = [len, edge_from, edge].map(|it| from.wrapping_add(it));
                        test(Advance { from, edge_from, to, edge, packets: u16::MAX }, 2_920, shift);
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_between_two_acknowledgements_rise_and_stay_between_them() {
        each(|advance, step, shift| {
            let Advance { from, to, .. } = advance;
            let mut last = from;
            for (ack, _) in advance.between(step, shift) {
                assert!(is_before(last, ack) && is_before(ack, to), "{advance:?}: {ack}");
                last = ack;
            }
        });
    }

    #[test]
    fn right_edges_never_shrink_and_never_pass_the_last_one() {
        each(|advance, step, shift| {
            let mut last = advance.edge_from;
            for (ack, window) in advance.between(step, shift) {
                let edge = ack.wrapping_add(u32::from(window) << shift);
                assert!(!is_before(edge, last) && !is_before(advance.edge, edge), "{advance:?}: {ack} {window}");
                last = edge;
            }
        });
    }

    #[test]
    fn there_is_one_acknowledgement_for_each_step_and_at_most_64() {
        let count = |len: u32, step: u32| {
            let advance = Advance { from: 5, edge_from: 60_005, to: 5 + len, edge: 60_005 + len, packets: 500 };
            advance.between(step, 0).count() + 1
        };
        assert_eq!([2_920, 5_839, 5_840, 17_520].map(|len| count(len, 2_920)), [1, 1, 2, 6]);
        assert_eq!([count(64 * 2_920, 2_920), count(1 << 30, 2_920)], [64, 64]);
        let acks = |shift: u8| {
            Advance { from: 0, edge_from: 60_000, to: 17_520, edge: 60_000 + 17_520, packets: 12 }
                .between(2_920, shift)
                .collect()
        };
        let even: Vec<(u32, u16)> =
            (1..6).map(|it| (it * 2_920, (77_520 - it * 2_920).min(65_535) as u16)).collect();
        let exact: Vec<(u32, u16)> = acks(0);
        assert_eq!(exact, even);
        // Steps of the window's unit, counted from the last number.
        let rounded: Vec<(u32, u16)> = acks(7);
        assert!(rounded.iter().all(|(ack, _)| (17_520 - ack) % 128 == 0), "{rounded:?}");
        assert_eq!(rounded.len(), 5);
    }

    #[test]
    fn only_a_later_acknowledgement_of_data_that_was_sent_is_a_step() {
        let mut last = LastAck::default();
        assert_eq!(last.advance(1_000, 5_500), None, "nothing is known before");
        last.peer_sent(5_000, 1);
        let before = last;
        assert_eq!(last.advance(1_000, 6_000), None, "it is repeated");
        assert_eq!(last.advance(900, 6_000), None, "it is earlier");
        assert_eq!({ before }.advance(5_001, 9_000), None, "it was not sent");
        let step = Advance { from: 1_000, edge_from: 6_000, to: 5_000, edge: 9_000, packets: 1 };
        assert_eq!(last.advance(5_000, 9_000), Some(step));
        last.peer_sent(6_000, 1);
        assert_eq!(last.advance(6_000, 8_999), None, "the window shrinks");
        last.peer_sent(7_000, 1);
        assert!(last.advance(7_000, 9_000).is_some_and(|step| step.from == 6_000), "it has the edge of before");
        assert_eq!({ last }.advance(7_000u32.wrapping_sub(1 << 30).wrapping_sub(1), 0), None);
    }

    #[test]
    fn data_beyond_the_offered_window_is_no_data() {
        let mut last = LastAck::begun(1_000, 500);
        last.peer_sent(1_501, 1);
        assert_eq!({ last }.advance(1_001, 2_000), None);
        last.peer_sent(1_500, 1);
        assert!({ last }.advance(1_500, 2_000).is_some());
    }

    #[test]
    fn each_acknowledgement_stands_for_two_packets_of_new_data() {
        let mut last = LastAck::begun(0, u16::MAX);
        for end in [1_000, 2_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000] {
            last.peer_sent(end, 1);
        }
        let step = last.advance(6_000, 66_000).unwrap();
        assert_eq!(step.packets, 7, "one of the packets was repeated");
        assert_eq!(step.between(1_000, 0).count() + 1, 3);
        assert_eq!(last.packets, 5, "the acknowledgement itself stands for two");
        last.spend();
        assert_eq!(last.packets, 3);
        assert!(last.advance(7_000, 67_000).is_some());
        assert_eq!(last.packets, 0, "all data is acknowledged");
        // One packet, and an acknowledgement of a whole window.
        last.peer_sent(60_000, 1);
        assert_eq!(last.advance(60_000, 90_000).unwrap().between(1_000, 0).count(), 0);
    }

    #[test]
    fn after_a_number_that_was_not_sent_the_next_one_begins_anew() {
        let mut last = LastAck::begun(1, 100);
        last.peer_sent(101, 1);
        assert_eq!(last.advance(50_000, 60_000), None);
        assert_eq!(last.advance(51, 200), None, "it begins anew");
        last.peer_sent(101, 1);
        assert!(last.advance(101, 300).is_some_and(|step| step.from == 51));
    }
}
