//! Places for payloads that are still to come out, payloads that came there in (papers: Kurmann's speculative defragmentation).
//!
//! What it sees: the run that was touched last, and the last datagram that became whole. What it concludes: the next frames are
//! the rest of that run, and then datagrams like that one, in order and in pieces as long as before. When it is wrong: another
//! host's packet comes between, a piece is lost, overtaken or of another length. What that costs: the payloads from there to the
//! end of the batch are copied twice, and nothing else; so it stops guessing where too few guesses are right, and tries again
//! now and then.

use crate::connections::Connections;
use crate::landing::{Area, Guesses, Guessing, Landfall};
use crate::output::Output;
use crate::reassemble::Reassembler;
use crate::side::{Side, receive, receive_alike};
use core::ops::Range;
use packet::{Apart, Buffer, Frame, Grid, HEADROOM, Landed, Packet, Places, Pool, Time};

impl Side {
    /// Guesses what comes next, by the header of the next packet where that was seen. Nothing else is done before
    /// what came is [settled](Side::settle).
    #[inline]
    pub fn predict(&mut self, next: Option<&Packet>, pool: &mut Pool) {
        let Some(reassembler) = &mut self.widening.reassembler else { return };
        if let Some(next) = next {
            reassembler.turn_to(next);
        }
        reassembler.bet(pool);
    }

    /// Where the payloads of the next frames should land; none where nothing is guessed.
    #[inline]
    pub fn places(&mut self) -> Option<Places<'_>> {
        self.widening.reassembler.as_mut()?.places()
    }

    /// Are places lent for what comes next?
    #[inline]
    pub(crate) fn is_predicting(&self) -> bool {
        self.widening.reassembler.as_ref().is_some_and(|reassembler| reassembler.landing.grid.is_some())
    }

    /// How guesses went so far.
    pub fn guesses(&self) -> Guesses {
        self.widening.reassembler.as_ref().map_or_else(Guesses::default, |it| it.landing.guesses)
    }

    /// Takes in what landed where it belongs, as [`push`](Side::push) would; copies the rest out of its places and puts it in
    /// front of `frames`. `landed` is what came first, one for each place in their order.
    pub fn settle(
        &mut self,
        now: Time,
        landed: &mut Vec<Landed>,
        frames: &mut Vec<Frame>,
        connections: &mut Connections,
        out: &mut Output,
    ) {
        let came_count = landed.len() + frames.len();
        let mut right_count = 0;
        let mut pieces = landed.drain(..);
        while let Some(it) = pieces.next() {
            let place = self.landed_in().landing.next_place();
            let piece = match it.read() {
                Ok(piece) => piece,
                Err(it) => {
                    self.landed_in().rescue(place, it);
                    break;
                }
            };
            let mut count = 1;
            match self.land(now, &place, piece.packet(), out) {
                Landfall::Wrong => {
                    self.landed_in().rescue(place, piece.into_landed());
                    break;
                }
                Landfall::Piece => count += self.land_more(&piece, pieces.as_slice(), out),
                Landfall::Last => {
                    // The run leaves with its memory.
                    if self.landed_in().landing.goes_on() {
                        pieces.by_ref().for_each(|it| self.landed_in().rescue_next(it));
                    }
                    self.close_landed(now, connections, out);
                }
            }
            pieces.by_ref().take(count - 1).for_each(|it| out.pool.give(it.into_buffer()));
            out.pool.give(piece.into_buffer());
            right_count += count;
        }
        pieces.for_each(|it| self.landed_in().rescue_next(it));
        if let Some(reassembler) = &mut self.widening.reassembler {
            reassembler.end_bet(came_count, right_count, frames, &mut out.pool);
        }
    }
}

impl Side {
    fn landed_in(&mut self) -> &mut Reassembler {
        match &mut self.widening.reassembler {
            Some(reassembler) => reassembler,
            None => panic!("what landed was lent its place by a reassembler"),
        }
    }

    /// Takes in a fragment whose payload lies at this place, if it belongs there.
    fn land(&mut self, now: Time, place: &(Area, Range<usize>), piece: &Packet, out: &mut Output) -> Landfall {
        if !self.reassembles(piece) {
            return Landfall::Wrong;
        }
        let landfall = self.landed_in().land(now, place, piece);
        if landfall != Landfall::Wrong {
            receive(piece, out);
        }
        landfall
    }

    /// Takes in those of `next` that go on behind this piece and are like it, and says how many they are.
    fn land_more(&mut self, piece: &Apart, next: &[Landed], out: &mut Output) -> usize {
        let count = self.landed_in().land_more(piece, next);
        if count > 0 {
            receive_alike(piece.packet(), count, out);
        }
        count
    }

    /// Sends on what the last fragment made whole.
    fn close_landed(&mut self, now: Time, connections: &mut Connections, out: &mut Output) {
        if let Some((reassembler, mut next)) = self.reassembling(now, connections, out)
            && let Some((_, at)) = reassembler.landing.current.take()
        {
            reassembler.close_landed(at, &mut next);
        }
    }
}

impl Reassembler {
    /// Guesses places by this rule; without it, where it pays. Nobody guesses who is not asked to
    /// [`predict`](Side::predict).
    pub fn guessing(mut self, guessing: Guessing) -> Reassembler {
        self.landing.guessing = guessing;
        self
    }

    /// Draws up places for what is expected next.
    fn bet(&mut self, pool: &mut Pool) {
        self.landing.grid = None;
        self.landing.taken_count = 0;
        self.landing.fresh.drain(..).flatten().for_each(|buffer| pool.give(buffer));
        let Some(count) = self.landing.trial.count_max(self.landing.guessing) else { return };
        let again = self.again();
        let Some((rest, ahead)) = self
            .goes_on()
            .map(|(at, next, ahead)| (Some((at, next..ahead.len)), ahead))
            .or(again.map(|ahead| (None, ahead)))
        else {
            return;
        };
        let step_min = if self.landing.guessing == Guessing::Always { 1 } else { STEP_MIN };
        if ahead.step < step_min {
            return;
        }
        self.landing.current = rest.as_ref().map(|(at, _)| (Area::Rest, *at));
        self.landing.rest = rest.map_or(0..0, |(_, range)| range);
        self.landing.cursor = (Area::Rest, self.landing.rest.clone());
        let fresh = again.filter(|again| (again.front, again.step) == (ahead.front, ahead.step));
        let fresh_len = fresh.map_or(0, |again| again.len);
        let rest_count = self.landing.rest.len().div_ceil(ahead.step);
        if fresh_len > 0 && rest_count < count {
            let needed = (count - rest_count).div_ceil(fresh_len.div_ceil(ahead.step));
            self.lend_fresh(needed.min(FRESH_MAX >> self.landing.caution), fresh_len, pool);
        }
        self.landing.grid = Some(Grid { front: ahead.front, step: ahead.step, fresh_len, count });
    }

    /// Lends memory for datagrams of which nothing has come, as far as they could all be held, and the port finds
    /// enough for what comes.
    fn lend_fresh(&mut self, count: usize, len: usize, pool: &mut Pool) {
        let charge = Buffer::pinned_len_for(len);
        let spare_count = pool.free_len().saturating_sub(BATCH_LEN) / charge.max(1);
        let count = count.min(spare_count);
        while self.landing.fresh.len() < count && self.has_room_for(charge * (self.landing.fresh.len() + 1)) {
            let Some(buffer) = pool.lend(len) else { return };
            if buffer.pinned_len() != charge {
                return pool.give(buffer);
            }
            self.landing.fresh.push(Some(buffer));
        }
    }

    /// Takes in a fragment whose payload lies at this place, if it belongs there.
    fn land(&mut self, now: Time, place: &(Area, Range<usize>), piece: &Packet) -> Landfall {
        let (area, range) = place;
        let len = piece.ip().payload_len();
        if len > range.len() {
            return Landfall::Wrong;
        }
        let landfall = match (*area, self.landing.current) {
            (Area::Fresh(number), _) if range.start == 0 => self.land_first(now, number, piece),
            (_, Some((current, at))) if current == *area => self.take_landed(at, range.start, piece),
            _ => Landfall::Wrong,
        };
        if landfall != Landfall::Wrong {
            self.landing.guesses.landed_bytes += len as u64;
        }
        landfall
    }

    /// Takes in those of `next` that go on behind this piece, which was taken in, and are like it: each fills its place.
    fn land_more(&mut self, piece: &Apart, next: &[Landed]) -> usize {
        let len = piece.packet().ip().payload_len();
        let Some((_, at)) = self.landing.current.filter(|_| self.landing.is_filled_by(len)) else { return 0 };
        let places = self.landing.whole_places(len);
        let next = next.get(..places).unwrap_or(next);
        let alike = |count_max| piece.followed_by(next.get(..count_max).unwrap_or(next));
        let count = self.take_more_landed(at, len, alike);
        self.landing.pass(count * len);
        self.landing.guesses.landed_bytes += (count * len) as u64;
        count
    }

    fn land_first(&mut self, now: Time, number: usize, piece: &Packet) -> Landfall {
        let Some(buffer) = self.landing.fresh.get_mut(number).and_then(Option::take) else {
            return Landfall::Wrong;
        };
        match self.open_landed(now, piece, buffer) {
            Ok(at) => {
                self.landing.current = Some((Area::Fresh(number), at));
                Landfall::Piece
            }
            Err(buffer) => {
                if let Some(empty) = self.landing.fresh.get_mut(number) {
                    *empty = Some(buffer);
                }
                Landfall::Wrong
            }
        }
    }

    /// Copies a fragment's payload out of its place.
    fn rescue(&mut self, (area, range): (Area, Range<usize>), it: Landed) {
        self.landing.guesses.copied_out_bytes += it.len() as u64;
        let bytes = match (area, self.landing.current) {
            (_, Some((current, at))) if current == area => self.laid(at, range),
            (Area::Fresh(number), _) => match self.landing.fresh.get(number) {
                Some(Some(buffer)) => buffer.bytes(HEADROOM + range.start..HEADROOM + range.end),
                _ => panic!("memory that no run took is there"),
            },
            (Area::Rest, _) => panic!("a run does not end before what lies in it is copied out"),
        };
        let frame = it.copy_out(bytes);
        self.landing.rescued.push(frame);
    }

    fn rescue_next(&mut self, it: Landed) {
        let place = self.landing.next_place();
        self.rescue(place, it);
    }

    /// Gives back what nobody landed in, and learns from how the guess went.
    fn end_bet(&mut self, came_count: usize, right_count: usize, frames: &mut Vec<Frame>, pool: &mut Pool) {
        let landing = &mut self.landing;
        landing.fresh.drain(..).flatten().for_each(|buffer| pool.give(buffer));
        if !landing.rescued.is_empty() {
            frames.splice(0..0, landing.rescued.drain(..));
        }
        if landing.grid.take().is_none() {
            return;
        }
        let made = landing.taken_count.min(came_count);
        landing.guesses.made += made as u64;
        landing.guesses.right += right_count as u64;
        landing.trial.note(made as u64, right_count as u64);
        landing.current = None;
        landing.caution = if right_count == made { landing.caution.saturating_sub(1) } else { CAUTION_MAX };
        if right_count < made {
            self.forget_last();
        }
    }
}

/// Datagrams of which nothing has come that memory is lent for, at most.
const FRESH_MAX: usize = 32;
/// Payload below which a copy costs less than a guess, in bytes.
const STEP_MIN: usize = 512;
/// Memory that a port may need for a batch while nothing is lent for guesses, in bytes: one frame of the longest
/// packet, or several of a narrow link.
const BATCH_LEN: usize = 128 << 10;
/// See [`FRESH_MAX`]: one, after a wrong guess.
const CAUTION_MAX: u32 = FRESH_MAX.ilog2();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Late, Limits, Secret};

    #[test]
    fn no_guess_takes_the_memory_that_a_port_needs_for_what_comes() {
        for (bytes, expected) in [(70_000, 0), (BATCH_LEN, 0), (BATCH_LEN + Buffer::pinned_len_for(9_000), 1)] {
            let limits = Limits { bytes: 1 << 20, patience: None };
            let mut reassembler = Reassembler::new(limits, Late::Retire, Secret::new(1));
            let mut pool = Pool::new(bytes);
            reassembler.lend_fresh(10, 9_000, &mut pool);
            assert_eq!(reassembler.landing.fresh.len(), expected, "of {bytes} bytes");
            assert!(pool.lend(65_535).is_some() || bytes < BATCH_LEN);
        }
    }

    #[test]
    fn memory_is_lent_for_as_many_datagrams_as_the_limit_holds() {
        let len = 9_000;
        let charge = Buffer::pinned_len_for(len);
        for (bytes, expected) in [(0, 0), (charge - 1, 0), (charge, 1), (3 * charge - 1, 2), (3 * charge, 3)] {
            let limits = Limits { bytes, patience: None };
            let mut reassembler = Reassembler::new(limits, Late::Release { mtu: 1_500 }, Secret::new(1));
            reassembler.lend_fresh(10, len, &mut Pool::new(1 << 20));
            assert_eq!(reassembler.landing.fresh.len(), expected, "for {bytes} bytes");
        }
    }
}
