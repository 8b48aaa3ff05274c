//! What is known of the frames that come next, and how predictions of them went.

use crate::held::Handle;
use core::ops::Range;
use packet::{Buffer, Frame, Grid};

/// When places are guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guessing {
    /// Never.
    Never,
    /// Whenever something is known that lets guess.
    Always,
    /// As long as enough guesses are right, and payloads are so long that a copy is worth a guess.
    #[default]
    WherePays,
}

/// How guesses went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guesses {
    /// Frames that were received with their payload apart.
    pub made: u64,
    /// Of these, fragments whose payload lay where it belonged.
    pub right: u64,
    /// Bytes of payload that nobody copied from there.
    pub landed_bytes: u64,
    /// Bytes that were copied out of places by who settled the guesses.
    pub copied_out_bytes: u64,
}

/// What a reassembler remembers to guess by.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    pub(crate) guessing: Guessing,
    pub(crate) guesses: Guesses,
    pub(crate) trial: Trial,
    /// How often the number of datagrams is halved that are lent memory before anything of them has come.
    pub(crate) caution: u32,
    pub(crate) grid: Option<Grid>,
    /// Where the first places lie, in the run that was there.
    pub(crate) rest: Range<usize>,
    pub(crate) fresh: Vec<Option<Buffer>>,
    /// Where the next place lies that was not looked at, and what is behind it in the same memory.
    pub(crate) cursor: (Area, Range<usize>),
    /// The run that the last fragment was taken in by.
    pub(crate) current: Option<(Area, Handle)>,
    pub(crate) taken_count: usize,
    pub(crate) rescued: Vec<Frame>,
}

/// Whose memory a place lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Area {
    /// That of the run that was there.
    #[default]
    Rest,
    /// That lent for one that was not, with this number.
    Fresh(usize),
}

/// Whether guessing pays, as seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    made: u64,
    right: u64,
    /// Batches without a guess that are still to come.
    pause: u32,
    /// How many there were last time; none while it pays.
    last_pause: u32,
}

/// What became of a piece whose payload lies at its place already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landfall {
    /// The guess was wrong; nothing has changed.
    Wrong,
    /// It was taken in.
    Piece,
    /// It was taken in, and nothing is missing; its run waits to be closed.
    Last,
}

impl Guesses {
    /// Those of two stages that followed each other.
    pub(crate) fn and(self, other: Guesses) -> Guesses {
        Guesses {
            made: self.made + other.made,
            right: self.right + other.right,
            landed_bytes: self.landed_bytes + other.landed_bytes,
            copied_out_bytes: self.copied_out_bytes + other.copied_out_bytes,
        }
    }
}

impl Landing {
    /// Whose memory the next place lies in, and which bytes of its datagram it takes; they follow one another as
    /// [`Places`] does.
    #[inline]
    pub(crate) fn next_place(&mut self) -> (Area, Range<usize>) {
        let Grid { step, fresh_len, .. } = match self.grid {
            Some(grid) => grid,
            None => panic!("what landed was lent a place"),
        };
        let (area, ahead) = &mut self.cursor;
        if ahead.start >= ahead.end {
            let number = match *area {
                Area::Rest => 0,
                Area::Fresh(number) => number + 1,
            };
            (*area, *ahead) = (Area::Fresh(number), 0..fresh_len);
        }
        let place = ahead.start..ahead.end.min(ahead.start + step);
        ahead.start = place.end;
        (*area, place)
    }

    /// Does a payload of this length fill a place that is not the last of its memory?
    pub(crate) fn is_filled_by(&self, len: usize) -> bool {
        self.grid.is_some_and(|grid| grid.step == len && len > 0)
    }

    /// How many places of this length, which is theirs, are still in the same memory.
    pub(crate) fn whole_places(&self, len: usize) -> usize {
        let (_, ahead) = &self.cursor;
        ahead.len().checked_div(len).unwrap_or(0)
    }

    /// Passes places of so many bytes in all, in the same memory.
    pub(crate) fn pass(&mut self, len: usize) {
        let (_, ahead) = &mut self.cursor;
        ahead.start += len;
    }

    /// Does the next place lie in the same memory as the last one?
    pub(crate) fn goes_on(&self) -> bool {
        let (_, ahead) = &self.cursor;
        ahead.start < ahead.end
    }
}

impl Trial {
    /// How many places may be guessed at once, if any.
    pub(crate) fn count_max(&mut self, guessing: Guessing) -> Option<usize> {
        match guessing {
            Guessing::Never => None,
            Guessing::Always => Some(PLACES_MAX),
            Guessing::WherePays if self.pause > 0 => {
                self.pause -= 1;
                None
            }
            Guessing::WherePays if self.last_pause > 0 => Some(RETRY_COUNT),
            Guessing::WherePays => Some(PLACES_MAX),
        }
    }

    /// Learns how guesses went.
    pub(crate) fn note(&mut self, made: u64, right: u64) {
        self.made += made;
        self.right += right;
        let enough = if self.last_pause > 0 { RETRY_COUNT as u64 } else { WINDOW };
        if self.made < enough {
            return;
        }
        let pays = self.right * 100 >= self.made * BREAK_EVEN_PERCENT;
        self.last_pause = if pays { 0 } else { (2 * self.last_pause).clamp(PAUSE_MIN, PAUSE_MAX) };
        self.pause = self.last_pause;
        (self.made, self.right) = (0, 0);
    }
}

/// Frames that places are drawn up for at once, at most: a port's batch.
const PLACES_MAX: usize = 64;
/// Right guesses below which guessing costs more than it saves, in percent: d / (1 + d - c) for a copy out that
/// costs d, and a landing that costs c, of what a fragment costs otherwise (kB4). With fragments of 1,500 bytes in
/// memory alone d is about 0.3 and c 0.6 (`bench landing`), which asks for 43.
const BREAK_EVEN_PERCENT: u64 = 40;
/// Guesses after which it is decided whether they pay.
const WINDOW: u64 = 256;
/// The same after a pause.
const RETRY_COUNT: usize = 16;
/// Batches that pass without a guess where they do not: twice as many each time.
const PAUSE_MIN: u32 = 16;
/// See [`PAUSE_MIN`].
const PAUSE_MAX: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_decides_whether_guessing_pays_and_after_a_pause_a_few_guesses_do() {
        let mut trial = Trial::default();
        trial.note(WINDOW - 1, 0);
        assert_eq!((trial.pause, trial.made), (0, WINDOW - 1), "too few to say");
        trial.note(1, 0);
        assert_eq!((trial.pause, trial.made), (PAUSE_MIN, 0));
        for pauses in 1..12 {
            trial.note(RETRY_COUNT as u64, 0);
            assert_eq!(
                trial.pause,
                (PAUSE_MIN << pauses).min(PAUSE_MAX),
                "each pause is twice as long, up to the longest"
            );
        }
        trial.note(RETRY_COUNT as u64, RETRY_COUNT as u64);
        assert_eq!((trial.pause, trial.last_pause), (0, 0), "it pays again");
        trial.note(RETRY_COUNT as u64, 0);
        assert_eq!((trial.pause, trial.made), (0, RETRY_COUNT as u64), "a window again");
    }
}
