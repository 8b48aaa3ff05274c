//! Frames whose payloads lie at their predicted places -> what [`Side::push`] would make of them.

use crate::connections::Connections;
use crate::output::Output;
use crate::reassembly::{Guesses, Placing, Taken};
use crate::side::{Side, receive, receive_alike};
use packet::{Apart, Frame, Landed, Packet, Places, Pool, Time};

impl Side {
    /// Predicts what comes next, by the header of the next packet where that was seen. Nothing else is done before
    /// what came is [settled](Side::settle).
    #[inline]
    pub fn predict(&mut self, next: Option<&Packet>, pool: &mut Pool) {
        if let Some(reassembler) = &mut self.widening.reassembler {
            reassembler.placing().predict(next, pool);
        }
    }

    /// Where the payloads of the next frames should land; none where nothing is predicted.
    #[inline]
    pub fn places(&mut self) -> Option<Places<'_>> {
        self.widening.reassembler.as_mut()?.placing().places()
    }

    /// Are places lent for what comes next?
    #[inline]
    pub(crate) fn is_predicting(&self) -> bool {
        self.widening.reassembler.as_ref().is_some_and(|reassembler| reassembler.is_predicting())
    }

    /// How predictions went so far.
    pub fn guesses(&self) -> Guesses {
        self.widening.reassembler.as_ref().map_or_else(Guesses::default, |reassembler| reassembler.guesses())
    }

    /// Takes in what landed where it belongs, as [`push`](Side::push) would; copies the rest out of its places and
    /// puts it in front of `frames`. `landed` is what came first, one for each place in their order.
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
            let place = self.placing().next_place();
            let piece = match it.read() {
                Ok(piece) => piece,
                Err(it) => {
                    self.placing().rescue(place, it);
                    break;
                }
            };
            // As any other fragment, but for where its payload lies.
            let taken = if self.reassembles(piece.packet()) {
                self.placing().take(now, &place, piece.packet())
            } else {
                Taken::Not
            };
            if taken == Taken::Not {
                self.placing().rescue(place, piece.into_landed());
                break;
            }
            receive(piece.packet(), out);
            let mut count = 1;
            match taken {
                Taken::Last => {
                    // It leaves with its memory, so what came to places there is copied out.
                    if self.placing().goes_on() {
                        pieces.by_ref().for_each(|it| self.placing().rescue_next(it));
                    }
                    if let Some((reassembler, mut next)) = self.reassembling(now, connections, out) {
                        reassembler.placing().send_complete(&mut next);
                    }
                }
                _ => count += self.take_more(&piece, pieces.as_slice(), out),
            }
            pieces.by_ref().take(count - 1).for_each(|it| out.pool.give(it.into_buffer()));
            out.pool.give(piece.into_buffer());
            right_count += count;
        }
        pieces.for_each(|it| self.placing().rescue_next(it));
        if let Some(reassembler) = &mut self.widening.reassembler {
            reassembler.placing().end(came_count, right_count, frames, &mut out.pool);
        }
    }

    fn placing(&mut self) -> Placing<'_> {
        match &mut self.widening.reassembler {
            Some(reassembler) => reassembler.placing(),
            None => panic!("what landed was lent its place by a reassembler"),
        }
    }

    /// Takes in those of `next` that go on behind this piece and are like it, and says how many they are.
    fn take_more(&mut self, piece: &Apart, next: &[Landed], out: &mut Output) -> usize {
        let count = self.placing().take_more(piece, next);
        if count > 0 {
            receive_alike(piece.packet(), count, out);
        }
        count
    }
}
