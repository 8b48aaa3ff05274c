//! Fragments of one datagram -> its missing bytes.
//!
//! Reassembly needs the missing bytes to detect overlaps and completeness. The payload itself, and the memory of
//! the bitmap, are left to the run.

use core::ops::Range;
use packet::{UNIT, bitmap};

/// The missing bytes of one datagram.
///
/// While fragments arrive in order, one offset describes the missing bytes. After the first reordering, a bitmap
/// has one bit for each unit of eight received bytes. The last unit may be shorter. No order of arrival costs more
/// than a few words per fragment, so the number of fragments needs no limit (C9, rel:A09).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holes {
    /// Offset of the next fragment in bytes, while all fragments are in order. [`WHOLE`] after the last fragment
    /// has arrived in order. [`SCATTERED`] while the bitmap describes the received bytes.
    next: u32,
    /// Number of received bytes.
    held: u32,
    /// Length of the datagram in bytes. [`UNKNOWN`] before its last fragment has arrived.
    end: u32,
    /// Offset behind the highest received fragment, in bytes. Only valid while the bitmap is used.
    scattered_top: u32,
}

/// The relation of a fragment to the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The fragment fills a hole.
    Fills,
    /// All bytes of the fragment were received before. The caller compares them.
    Repeat,
    /// Only some bytes of the fragment were received before.
    Overlaps,
    /// The fragment contradicts the datagram length known from the last fragment, or claims a length below received
    /// bytes.
    Contradicts,
}

impl Holes {
    /// The state before the first fragment.
    pub(super) const ALL: Holes = Holes { next: 0, held: 0, end: UNKNOWN, scattered_top: 0 };

    /// Returns the relation of the fragment at `range` to the received bytes. `more` is its MF flag.
    pub(super) fn classify(&self, bitmap: &[u8], range: &Range<usize>, more: bool) -> Fit {
        match if self.is_vacant(bitmap, range) { 0 } else { self.held_of(bitmap, range) } {
            0 if self.contradicts(range, more) => Fit::Contradicts,
            0 => Fit::Fills,
            held if held == range.len() => Fit::Repeat,
            _ => Fit::Overlaps,
        }
    }

    /// Records a fragment if a single comparison, or a single bitmap access, proves that it fills a hole. Returns
    /// whether the fragment was recorded.
    #[inline(always)]
    pub(super) fn claim<'a>(
        &mut self,
        bitmap: impl FnOnce() -> &'a mut [u8],
        range: &Range<usize>,
        more: bool,
    ) -> bool {
        if range.start as u32 == self.next {
            self.extend(range.end, more);
            return true;
        }
        self.next == SCATTERED && self.claim_scattered(bitmap(), range, more)
    }

    #[inline(never)]
    fn claim_scattered(&mut self, bitmap: &mut [u8], range: &Range<usize>, more: bool) -> bool {
        if self.contradicts(range, more) || !bitmap::claim(bitmap, units(range)) {
            return false;
        }
        self.note(range, more);
        true
    }

    /// Records a fragment. The fragment must fill a hole.
    #[inline(always)]
    pub(super) fn fill<'a>(&mut self, bitmap: impl FnOnce() -> &'a mut [u8], range: &Range<usize>, more: bool) {
        if range.start as u32 == self.next {
            return self.extend(range.end, more);
        }
        self.fill_scattered(bitmap(), range, more);
    }

    #[inline(never)]
    fn fill_scattered(&mut self, bitmap: &mut [u8], range: &Range<usize>, more: bool) {
        if self.in_order() {
            bitmap.fill(0);
            bitmap::set(bitmap, units(&(0..self.held as usize)));
            (self.scattered_top, self.next) = (self.held, SCATTERED);
        }
        bitmap::set(bitmap, units(range));
        self.note(range, more);
    }

    /// Records several consecutive fragments that end at offset `end`, in bytes. All earlier fragments must be in
    /// order too. `more` is the MF flag of the last one.
    #[inline(always)]
    pub(super) fn extend(&mut self, end: usize, more: bool) {
        debug_assert!(self.in_order() && !self.has_end());
        let end = end as u32;
        self.held = end;
        if more {
            self.next = end;
        } else {
            (self.next, self.end) = (WHOLE, end);
        }
    }

    fn note(&mut self, range: &Range<usize>, more: bool) {
        self.held += range.len() as u32;
        self.scattered_top = self.scattered_top.max(range.end as u32);
        if !more {
            self.end = range.end as u32;
        }
    }

    /// Whether no byte is missing.
    #[inline(always)]
    pub(super) fn is_whole(&self) -> bool {
        self.end == self.held
    }

    /// Returns the number of received bytes.
    pub(super) fn held_len(&self) -> usize {
        self.held as usize
    }

    /// Returns the offset behind the highest received fragment, in bytes.
    pub(super) fn top(&self) -> usize {
        (if self.in_order() { self.held } else { self.scattered_top }) as usize
    }

    /// Whether the last fragment has arrived.
    pub(super) fn has_end(&self) -> bool {
        self.end != UNKNOWN
    }

    /// Whether every fragment started at the end of the one before it.
    #[inline(always)]
    pub(super) fn in_order(&self) -> bool {
        self.next != SCATTERED
    }

    /// Returns the offset of the next fragment in order. `None` after a reordering, or after the last fragment.
    #[inline]
    pub(super) fn next(&self) -> Option<usize> {
        (self.next < WHOLE).then_some(self.next as usize)
    }

    /// Whether no byte of `range` was received.
    #[inline]
    fn is_vacant(&self, bitmap: &[u8], range: &Range<usize>) -> bool {
        if self.in_order() {
            return range.start >= self.held as usize;
        }
        // No byte above the top was received, and the bitmap may end there.
        let end = range.end.min(self.scattered_top as usize);
        range.start >= end || !bitmap::any(bitmap, units(&(range.start..end)))
    }

    fn contradicts(&self, range: &Range<usize>, more: bool) -> bool {
        let end = range.end as u32;
        let past_the_end = self.has_end() && (end > self.end || !more && end != self.end);
        past_the_end || !more && range.end < self.top()
    }

    /// Returns the number of received bytes in `range`.
    fn held_of(&self, bitmap: &[u8], range: &Range<usize>) -> usize {
        if self.in_order() {
            return range.end.min(self.held as usize).saturating_sub(range.start);
        }
        let range = range.start..range.end.min(self.scattered_top as usize);
        if range.is_empty() {
            return 0;
        }
        let full = bitmap::count(bitmap, units(&range)) * UNIT;
        // The last bit stands for fewer than eight bytes if the range ends inside its unit.
        let last = units(&range).end - 1;
        let excess = (last + 1) * UNIT - range.end;
        if bitmap::count(bitmap, last..last + 1) == 1 { full - excess } else { full }
    }
}

/// Returns the bits of the bitmap that overlap a range.
fn units(range: &Range<usize>) -> Range<usize> {
    range.start / UNIT..range.end.div_ceil(UNIT)
}

/// Special value of [`Holes`], used by no offset: the bitmap describes the received bytes.
const SCATTERED: u32 = u32::MAX;
/// Special value of [`Holes`], used by no offset: the complete datagram was received in order.
const WHOLE: u32 = u32::MAX - 1;
/// Special value of [`Holes`], used by no offset: the datagram length is unknown.
const UNKNOWN: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// The model: each octet of a datagram, held or missing, and the datagram's end.
    #[derive(Clone, Default)]
    struct Octets {
        here: Vec<bool>,
        end: Option<usize>,
    }

    #[test]
    fn every_sequence_of_small_fragments_agrees_with_octets() {
        // All fragments within 40 bytes, including last fragments of other lengths, in all orders, until four of
        // them fit.
        let mut fragments = Vec::new();
        for start in (0..40).step_by(8) {
            for end in start + 1..=40 {
                if end % 8 == 0 {
                    fragments.push((start..end, true));
                }
                if [0, 1, 5].contains(&(end % 8)) {
                    fragments.push((start..end, false));
                }
            }
        }
        let mut tried = 0;
        follow(&fragments, Holes::ALL, &mut [0xFF; 8], &Octets::default(), 4, &mut tried);
        assert!(tried > 50_000, "{tried} pieces tried");
    }

    #[test]
    fn random_long_datagrams_agree_with_an_octet_model() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let longest = *random.choice(&[100, 3_000, 65_535]).unwrap();
            let mut holes = Holes::ALL;
            // The bitmap still holds the bits of its last user.
            let mut bitmap = vec![0xFF; 1_024];
            let mut octets = Octets::default();
            let mut next = 0;
            for _ in 0..200 {
                // Most fragments are next in order, the others are anywhere.
                let start = if random.u8(..10) > 0 { next } else { random.usize(..longest) / 8 * 8 };
                let more = random.u8(..50) > 0;
                let len = random.usize(1..=longest / 8);
                let end = if more { start + len.next_multiple_of(8) } else { start + len };
                if end > 65_535 {
                    next = 0;
                    continue;
                }
                next = end.next_multiple_of(8);
                octets.try_fragment(&mut holes, &mut bitmap, start..end, more);
            }
        }
    }

    /// Tries every fragment in this state, and goes on from each that fits.
    fn follow(
        fragments: &[(Range<usize>, bool)],
        holes: Holes,
        bitmap: &mut [u8; 8],
        octets: &Octets,
        depth: usize,
        tried: &mut usize,
    ) {
        for (range, more) in fragments {
            let (mut holes, mut bitmap, mut octets) = (holes, *bitmap, octets.clone());
            *tried += 1;
            if octets.try_fragment(&mut holes, &mut bitmap, range.clone(), *more) && depth > 1 {
                follow(fragments, holes, &mut bitmap, &octets, depth - 1, tried);
            }
        }
    }

    impl Octets {
        /// Returns the relation of a fragment to the held octets, compared octet by octet.
        fn fit(&self, range: &Range<usize>, more: bool) -> Fit {
            let held = range.clone().filter(|octet| self.here.get(*octet) == Some(&true)).count();
            let past_the_end = self.end.is_some_and(|end| range.end > end || !more && range.end != end);
            let before_the_top = !more && self.here.iter().skip(range.end).any(|here| *here);
            match held {
                held if held == range.len() => Fit::Repeat,
                0 if past_the_end || before_the_top => Fit::Contradicts,
                0 => Fit::Fills,
                _ => Fit::Overlaps,
            }
        }

        /// Records a fragment in `holes` and in this model, and compares the results. Returns whether the fragment
        /// fills a hole.
        fn try_fragment(&mut self, holes: &mut Holes, bitmap: &mut [u8], range: Range<usize>, more: bool) -> bool {
            let fit = holes.classify(bitmap, &range, more);
            assert_eq!(fit, self.fit(&range, more), "{range:?}, more {more}, {holes:?}");
            let (mut claimed, mut other_bitmap) = (*holes, bitmap.to_vec());
            let is_claimed = claimed.claim(|| &mut other_bitmap, &range, more);
            assert!(!is_claimed || fit == Fit::Fills, "{range:?}, more {more}, {holes:?}");
            if fit != Fit::Fills {
                return false;
            }
            holes.fill(|| &mut *bitmap, &range, more);
            assert!(!is_claimed || claimed == *holes && (holes.in_order() || other_bitmap == bitmap));
            self.here.resize(self.here.len().max(range.end), false);
            self.here[range.clone()].fill(true);
            if !more {
                self.end = Some(range.end);
            }
            let held = self.here.iter().filter(|here| **here).count();
            let in_order = self.here.iter().take(held).all(|here| *here);
            assert_eq!((holes.held_len(), holes.top()), (held, self.here.len()));
            assert_eq!(holes.has_end(), self.end.is_some());
            assert_eq!(holes.is_whole(), self.end == Some(held));
            assert!(!holes.in_order() || in_order, "in order, nothing is missing");
            true
        }
    }
}
