//! Sent segments and SACK blocks -> bytes in flight and segments to retransmit.
//!
//! The cost of each step is proportional to the number of segments that change. A repeated SACK block costs one
//! search. Lost segments are detected in the order of transmission. The next segment to retransmit is the head of a
//! heap.

use super::ranges::{Ranges, Span};
use packet::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// All segments between the oldest unacknowledged byte and the newest byte sent.
///
/// Invariant: segments are adjacent, from `una` to `next`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<SentRange>,
    /// Number of the oldest segment. Numbers increase by one per segment.
    first: u64,
    /// Ranges behind `una` that the receiver has, according to SACK blocks.
    held: Ranges,
    /// Segments in the order of their last transmission. Outdated entries are skipped.
    order: VecDeque<(u64, u32)>,
    /// Numbers of segments to retransmit. Outdated entries are skipped.
    again: BinaryHeap<Reverse<u64>>,
    una: u64,
    next: u64,
    sacked_len: u64,
    lost_len: u64,
    resent_len: u64,
    sacked_count: usize,
    /// Number of transmissions so far, including retransmissions.
    departures: u64,
    /// The segment number of the last path MTU probe.
    probe: Option<u64>,
    /// Position up to which [`fall_behind`](Scoreboard::fall_behind) has looked for lost segments.
    judged: u64,
}

/// A segment that was sent, with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentRange {
    /// Position of the segment's first byte.
    pub(crate) start: u64,
    /// Position behind the segment's last byte.
    pub(crate) end: u64,
    /// Time of the last transmission.
    pub(crate) at: Time,
    /// Number of the last transmission, which orders transmissions at the same time.
    pub(crate) turn: u64,
    /// Number of transmissions of the segment.
    pub(crate) count: u32,
    /// State of the segment.
    pub(crate) state: State,
    /// Whether the segment is a path MTU probe.
    pub(crate) is_probe: bool,
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The segment is in flight.
    Flying,
    /// A SACK block has reported the segment as received.
    Sacked,
    /// The segment is lost and waits for retransmission.
    Lost,
    /// The segment is in flight after a retransmission.
    Resent,
}

impl SentRange {
    /// Length in sequence numbers.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the segment was sent only once.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.count == 1
    }
}

/// Transmission.
impl Scoreboard {
    /// An empty scoreboard; the first segment will start at position `start`.
    pub(crate) fn starting_at(start: u64) -> Scoreboard {
        Scoreboard { una: start, next: start, judged: start, ..Scoreboard::default() }
    }

    /// Adds a new segment from `next` to `end`.
    pub(crate) fn send(&mut self, now: Time, end: u64, is_probe: bool) {
        debug_assert!(end > self.next);
        let turn = self.turn();
        let sent = SentRange { start: self.next, end, at: now, turn, count: 1, state: State::Flying, is_probe };
        let number = self.first + self.segments.len() as u64;
        self.order.push_back((number, 1));
        if is_probe {
            self.probe = Some(number);
        }
        self.segments.push_back(sent);
        self.next = end;
    }

    /// Records a retransmission of segment `number`.
    pub(crate) fn resend(&mut self, now: Time, number: u64) {
        let turn = self.turn();
        let Some(sent) = self.segments.get_mut((number - self.first) as usize) else { return };
        (sent.at, sent.turn, sent.count, sent.is_probe) = (now, turn, sent.count + 1, false);
        match sent.state {
            State::Lost => {
                sent.state = State::Resent;
                self.resent_len += sent.len();
            }
            // A copy in flight beside its original counts once (RFC 8985 section 7.3).
            State::Flying | State::Resent | State::Sacked => {}
        }
        self.order.push_back((number, sent.count));
    }

    fn turn(&mut self) -> u64 {
        self.departures += 1;
        self.departures
    }

    /// The lost segment with the lowest position, and its number.
    pub(crate) fn next_lost(&mut self) -> Option<(u64, SentRange)> {
        if self.lost_len == self.resent_len {
            self.again.clear();
            return None;
        }
        while let Some(Reverse(number)) = self.again.peek().copied() {
            if let Some(sent) = self.get(number).filter(|sent| sent.state == State::Lost) {
                return Some((number, sent));
            }
            self.again.pop();
        }
        None
    }

    /// The newest segment and its number; `None` if a SACK block has reported it.
    pub(crate) fn newest(&self) -> Option<(u64, SentRange)> {
        let sent = self.segments.back().filter(|sent| sent.state != State::Sacked)?;
        Some((self.first + self.segments.len() as u64 - 1, *sent))
    }

    /// The oldest segment and its number.
    pub(crate) fn oldest(&self) -> Option<(u64, SentRange)> {
        self.segments.front().map(|sent| (self.first, *sent))
    }

    /// Splits all segments not reported by SACK into segments of at most `len` bytes, for retransmission.
    pub(crate) fn cut(&mut self, len: u64) {
        if self.segments.iter().all(|sent| sent.len() <= len) {
            return;
        }
        let whole = std::mem::take(&mut self.segments);
        for sent in whole {
            let mut start = sent.start;
            while sent.state != State::Sacked && sent.end - start > len {
                self.push_part(SentRange { start, end: start + len, is_probe: false, ..sent });
                start += len;
            }
            self.push_part(SentRange { start, is_probe: sent.is_probe && start == sent.start, ..sent });
        }
        self.count_anew();
    }

    /// Adds a part of a split segment, whose bytes may all be covered by SACK blocks.
    fn push_part(&mut self, part: SentRange) {
        let is_held = self.held.holds(Span { start: part.start, end: part.end });
        self.segments.push_back(if is_held { SentRange { state: State::Sacked, ..part } } else { part });
    }

    /// Recomputes all counters and the order of transmission.
    fn count_anew(&mut self) {
        let mut order: Vec<(u64, u64, u32)> = Vec::with_capacity(self.segments.len());
        self.again.clear();
        self.probe = self.segments.iter().rposition(|sent| sent.is_probe).map(|index| self.first + index as u64);
        (self.sacked_len, self.lost_len, self.resent_len, self.sacked_count) = (0, 0, 0, 0);
        for (sent, number) in self.segments.iter().zip(self.first..) {
            match sent.state {
                State::Sacked => {
                    self.sacked_len += sent.len();
                    self.sacked_count += 1;
                }
                State::Lost => {
                    self.lost_len += sent.len();
                    self.again.push(Reverse(number));
                }
                State::Resent => {
                    self.lost_len += sent.len();
                    self.resent_len += sent.len();
                    order.push((sent.turn, number, sent.count));
                }
                State::Flying => order.push((sent.turn, number, sent.count)),
            }
        }
        order.sort_unstable();
        self.order = order.into_iter().map(|(_, number, count)| (number, count)).collect();
    }
}

/// Acknowledgements.
impl Scoreboard {
    /// Removes all segments before `place`. Calls `tell` with each segment that had not been reported by SACK.
    /// Returns the number of newly delivered bytes.
    pub(crate) fn acknowledge(&mut self, place: u64, mut tell: impl FnMut(&SentRange)) -> u64 {
        let place = place.min(self.next);
        let mut delivered = 0;
        while let Some(sent) = self.segments.front_mut().filter(|sent| sent.start < place) {
            let is_whole = sent.end <= place;
            let part = SentRange { end: sent.end.min(place), ..*sent };
            sent.start = part.end;
            self.leave(part.state, part.len());
            if part.state != State::Sacked {
                delivered += part.len();
                if is_whole {
                    tell(&part);
                }
            }
            if is_whole {
                self.sacked_count -= usize::from(part.state == State::Sacked);
                self.segments.pop_front();
                self.first += 1;
            }
        }
        self.una = self.una.max(place);
        self.held.forget_before(place);
        self.forget_old();
        delivered
    }

    /// Records a SACK block. Calls `tell` with each segment that is completely covered for the first time. Returns
    /// the number of newly delivered bytes.
    pub(crate) fn hold(&mut self, span: Span, mut tell: impl FnMut(&SentRange)) -> u64 {
        let span = Span { start: span.start.max(self.una), end: span.end.min(self.next) };
        if span.start >= span.end || self.held.holds(span) {
            return 0;
        }
        let Scoreboard { segments, held, sacked_len, lost_len, resent_len, sacked_count, .. } = self;
        let mut news: arrayvec::ArrayVec<Span, NEWS_MAX> = arrayvec::ArrayVec::new();
        let mut spill: Vec<Span> = Vec::new();
        let merged = held.insert(span, |part| {
            if let Err(full) = news.try_push(part) {
                spill.push(full.element());
            }
        });
        let mut delivered = 0;
        for part in news.iter().chain(&spill) {
            let from = segments.partition_point(|sent| sent.end <= part.start);
            for sent in segments.range_mut(from..).take_while(|sent| sent.start < part.end) {
                if sent.state == State::Sacked || sent.start < merged.start || sent.end > merged.end {
                    continue;
                }
                tell(sent);
                let len = sent.len();
                match sent.state {
                    State::Lost => *lost_len -= len,
                    State::Resent => (*lost_len, *resent_len) = (*lost_len - len, *resent_len - len),
                    State::Flying | State::Sacked => {}
                }
                sent.state = State::Sacked;
                *sacked_len += len;
                *sacked_count += 1;
                delivered += len;
            }
        }
        delivered
    }

    fn leave(&mut self, state: State, len: u64) {
        match state {
            State::Flying => {}
            State::Sacked => self.sacked_len -= len,
            State::Lost => self.lost_len -= len,
            State::Resent => {
                self.lost_len -= len;
                self.resent_len -= len;
            }
        }
    }

    /// Discards all SACK information, because the receiver has dropped data that it had reported (RFC 2018 section
    /// 8).
    pub(crate) fn distrust(&mut self) {
        for sent in &mut self.segments {
            if sent.state == State::Sacked {
                sent.state = State::Flying;
            }
        }
        self.held.clear();
        self.judged = self.una;
        self.count_anew();
    }
}

/// Detection of losses.
impl Scoreboard {
    /// The segment in flight that was sent first, and its number.
    pub(crate) fn earliest(&mut self) -> Option<(u64, SentRange)> {
        self.forget_old();
        let (number, _) = *self.order.front()?;
        self.get(number).map(|sent| (number, sent))
    }

    fn forget_old(&mut self) {
        while let Some((number, count)) = self.order.front().copied() {
            let stands = self
                .get(number)
                .is_some_and(|sent| sent.count == count && matches!(sent.state, State::Flying | State::Resent));
            if stands {
                return;
            }
            self.order.pop_front();
        }
    }

    /// Marks segment `number` as lost. Returns its length in bytes.
    pub(crate) fn lose(&mut self, number: u64) -> u64 {
        let index = number.wrapping_sub(self.first) as usize;
        let Some(sent) = self.segments.get_mut(index) else { return 0 };
        let len = sent.len();
        match sent.state {
            State::Flying => self.lost_len += len,
            State::Resent => self.resent_len -= len,
            State::Sacked | State::Lost => return 0,
        }
        sent.state = State::Lost;
        self.again.push(Reverse(number));
        len
    }

    /// Marks all segments in flight for which `is_lost` is true as lost. Returns their total length in bytes.
    pub(crate) fn lose_where(&mut self, mut is_lost: impl FnMut(&SentRange) -> bool) -> u64 {
        let end = self.first + self.segments.len() as u64;
        (self.first..end)
            .map(|number| match self.get(number) {
                Some(sent) if is_lost(&sent) => self.lose(number),
                _ => 0,
            })
            .sum()
    }

    /// Marks segments as lost if they were sent only once and the receiver has enough data behind them. Enough
    /// means more than `len` bytes, or at least `count` separate ranges (RFC 6675 section 4, `IsLost`). Returns the
    /// lost bytes.
    pub(crate) fn fall_behind(&mut self, len: u64, count: usize) -> u64 {
        let mut beyond = 0;
        let mut limit = None;
        for (index, span) in self.held.backwards().enumerate() {
            beyond += span.len();
            if beyond > len || index + 1 >= count {
                limit = Some(span.start);
                break;
            }
        }
        let Some(limit) = limit.filter(|limit| *limit > self.judged) else { return 0 };
        let from = self.segments.partition_point(|sent| sent.end <= self.judged);
        let mut lost = 0;
        let mut number = self.first + from as u64;
        while let Some(sent) = self.get(number).filter(|sent| sent.end <= limit) {
            if sent.state == State::Flying {
                lost += self.lose(number);
            }
            number += 1;
        }
        self.judged = limit;
        lost
    }
}

/// Counters and positions.
impl Scoreboard {
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<SentRange> {
        self.segments.get(number.checked_sub(self.first)? as usize).copied()
    }

    /// The oldest unacknowledged position.
    #[inline]
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// The position behind the last byte sent.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of bytes presumed in flight (RFC 6675 section 4, `Pipe`).
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.next - self.una - self.sacked_len - self.lost_len + self.resent_len
    }

    /// Number of unacknowledged bytes.
    #[inline]
    pub(crate) fn outstanding(&self) -> u64 {
        self.next - self.una
    }

    /// Number of segments reported by SACK.
    #[inline]
    pub(crate) fn sacked_count(&self) -> usize {
        self.sacked_count
    }

    /// Number of unacknowledged segments.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    /// The path MTU probe, if it was marked as lost.
    pub(crate) fn lost_probe(&self) -> Option<SentRange> {
        self.get(self.probe?).filter(|sent| sent.is_probe && sent.state == State::Lost)
    }

    /// Whether the oldest segment was reported by SACK but not acknowledged: the receiver has dropped it.
    pub(crate) fn has_reneged(&self) -> bool {
        self.segments.front().is_some_and(|sent| sent.state == State::Sacked)
    }
}

/// Maximum number of new ranges in a SACK block without heap allocation.
const NEWS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_flight_is_the_sum_over_segments() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..300 {
            let mut board = Scoreboard::starting_at(1);
            for step in 0..200 {
                let now = Time::from_nanos(step);
                let place = |random: &mut fastrand::Rng, board: &Scoreboard| random.u64(board.una()..=board.next());
                match random.u8(0..8) {
                    0..=2 => board.send(now, board.next() + random.u64(1..30), false),
                    3 => {
                        let start = place(&mut random, &board);
                        board.hold(Span { start, end: start + random.u64(1..50) }, |_| {});
                    }
                    4 => {
                        let ack = random.u64(board.una()..=board.una() + board.outstanding() / 4);
                        board.acknowledge(ack, |_| {});
                    }
                    5 => {
                        if let Some((number, _)) = board.earliest() {
                            board.lose(number);
                        }
                    }
                    6 => {
                        if let Some((number, _)) = board.next_lost() {
                            board.resend(now, number);
                        }
                    }
                    _ => board.cut(random.u64(8..40)),
                }
                check(&mut board);
            }
        }
    }

    #[test]
    fn a_segment_is_held_once_blocks_cover_it() {
        let mut board = Scoreboard::starting_at(1);
        board.send(Time::ZERO, 101, false);
        board.send(Time::ZERO, 201, false);
        assert_eq!(board.hold(Span { start: 101, end: 150 }, |_| {}), 0);
        assert_eq!(board.hold(Span { start: 150, end: 201 }, |sent| assert_eq!(sent.start, 101)), 100);
        assert_eq!(board.hold(Span { start: 101, end: 201 }, |_| panic!("it was told")), 0);
        assert_eq!((board.in_flight(), board.sacked_count()), (100, 1));
    }

    #[test]
    fn a_selected_part_of_a_split_segment_is_not_retransmitted() {
        let mut board = Scoreboard::starting_at(0);
        board.send(Time::ZERO, 300, false);
        board.hold(Span { start: 100, end: 200 }, |_| panic!("not all of it is held"));
        board.cut(100);
        board.lose_where(|_| true);
        let starts: Vec<u64> = std::iter::from_fn(|| {
            let (number, sent) = board.next_lost()?;
            board.resend(Time::ZERO, number);
            Some(sent.start)
        })
        .collect();
        assert_eq!(starts, [0, 200]);
    }

    #[test]
    fn three_segments_held_beyond_one_mean_that_it_is_lost_rfc_6675_4() {
        let mut board = Scoreboard::starting_at(0);
        (1..=5).for_each(|count| board.send(Time::ZERO, count * 100, false));
        board.hold(Span { start: 100, end: 300 }, |_| {});
        assert_eq!(board.fall_behind(200, 3), 0, "not more than two segments");
        board.hold(Span { start: 300, end: 400 }, |_| {});
        assert_eq!(board.fall_behind(200, 3), 100);
        assert_eq!(board.next_lost().map(|(_, sent)| sent.start), Some(0));
        assert_eq!(board.fall_behind(200, 3), 0, "it is judged once");
    }

    fn check(board: &mut Scoreboard) {
        let mut place = board.una();
        assert!(board.held.len() <= board.outstanding(), "what is acknowledged is forgotten");
        let (mut flying, mut lost) = (0, 0);
        for sent in &board.segments {
            assert_eq!(sent.start, place, "segments lie side by side");
            place = sent.end;
            match sent.state {
                State::Flying => flying += sent.len(),
                State::Resent => (flying, lost) = (flying + sent.len(), lost + sent.len()),
                State::Lost => lost += sent.len(),
                State::Sacked => assert!(board.held.holds(Span { start: sent.start, end: sent.end })),
            }
        }
        assert_eq!((place, board.in_flight(), board.lost_len), (board.next(), flying, lost));
        let lowest = board.segments.iter().find(|sent| sent.state == State::Lost).copied();
        assert_eq!(board.next_lost().map(|(_, sent)| sent), lowest, "the lowest lost is sent again first");
        let first = board
            .segments
            .iter()
            .filter(|sent| matches!(sent.state, State::Flying | State::Resent))
            .min_by_key(|sent| (sent.turn, sent.start))
            .copied();
        assert_eq!(board.earliest().map(|(_, sent)| sent), first);
    }
}
