//! Pieces of one datagram in, which of its bytes are missing out.

use core::ops::Range;
use packet::{UNIT, map};

/// The missing bytes of one datagram.
///
/// As long as pieces come in order, one offset says it all. After the first disorder a bit is set in the map where all
/// of its eight bytes are held; the last eight may be fewer. No order of arrival costs more than a few words a piece,
/// so pieces need no cap (C9, rel:A09).
#[derive(Clone, Copy, Debug, Default)]
pub struct Holes {
    order: Order,
    /// Bytes held.
    held: u32,
    /// Where the highest piece ends.
    top: u32,
    /// Where the datagram ends, once its last piece has come.
    end: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    /// All bytes below `held` are here, and no others.
    #[default]
    Forward,
    /// The map says which are here.
    Scattered,
}

/// How a piece stands to what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fills a hole.
    Fills,
    /// Every byte of it is held; the caller compares.
    Held,
    /// Some of its bytes are held and some are not.
    Overlaps,
    /// It ends elsewhere than the last piece said, or says that the datagram ends before bytes that are held.
    Contradicts,
}

impl Holes {
    /// How the piece at `range` stands to what is held; `more` is its MF flag.
    pub fn fit(&self, map: &[u8], range: &Range<usize>, more: bool) -> Fit {
        let held = self.held_of(map, range);
        if held == range.len() {
            Fit::Held
        } else if held > 0 {
            Fit::Overlaps
        } else if self.contradicts(range, more) {
            Fit::Contradicts
        } else {
            Fit::Fills
        }
    }

    /// Takes note of a piece that fills a hole.
    pub fn fill(&mut self, map: &mut [u8], range: &Range<usize>, more: bool) {
        if self.order == Order::Forward && range.start != self.held as usize {
            map.fill(0);
            map::set(map, units(&(0..self.held as usize)));
            self.order = Order::Scattered;
        }
        if self.order == Order::Scattered {
            map::set(map, units(range));
        }
        self.held += range.len() as u32;
        self.top = self.top.max(range.end as u32);
        if !more {
            self.end = Some(range.end as u32);
        }
    }

    /// True when nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.end == Some(self.held)
    }

    /// Bytes held.
    pub fn held_len(&self) -> usize {
        self.held as usize
    }

    /// Where the highest piece ends, in bytes.
    pub fn top(&self) -> usize {
        self.top as usize
    }

    /// True once the last piece has come.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// True while every piece came where the one before it ended.
    pub fn in_order(&self) -> bool {
        self.order == Order::Forward
    }

    fn contradicts(&self, range: &Range<usize>, more: bool) -> bool {
        let end = range.end as u32;
        let past_the_end = self.end.is_some_and(|known| end > known || !more && end != known);
        past_the_end || !more && end < self.top
    }

    /// How many bytes of `range` are held.
    fn held_of(&self, map: &[u8], range: &Range<usize>) -> usize {
        if self.order == Order::Forward {
            return range.end.min(self.held as usize).saturating_sub(range.start);
        }
        let range = range.start..range.end.min(self.top as usize);
        if range.is_empty() {
            return 0;
        }
        let full = map::count(map, units(&range)) * UNIT;
        // The last bit stands for fewer than eight bytes where the range ends inside its eight.
        let last = units(&range).end - 1;
        let excess = (last + 1) * UNIT - range.end;
        if map::count(map, last..last + 1) == 1 { full - excess } else { full }
    }
}

/// The bits of the map that a range touches.
fn units(range: &Range<usize>) -> Range<usize> {
    range.start / UNIT..range.end.div_ceil(UNIT)
}
