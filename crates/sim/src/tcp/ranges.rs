//! Ranges of a stream -> their union, in which each position appears only once.
//!
//! The receiver stores the ranges behind the next expected byte. The sender stores the ranges that the receiver
//! reported. A SACK block is repeated in many segments, but only its new part costs time.

use std::collections::VecDeque;

/// A set of disjoint ranges of a stream.
///
/// Invariant: ranges are sorted, not empty, and do not touch each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: VecDeque<Span>,
    len: u64,
}

/// A range of positions from `start` to `end`, without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    #[inline]
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

impl Ranges {
    /// Adds a span, and calls `new` for each part that was missing. Returns the merged range that contains the
    /// span.
    pub(crate) fn insert(&mut self, span: Span, mut new: impl FnMut(Span)) -> Span {
        debug_assert!(span.start < span.end);
        let first = self.ranges.partition_point(|range| range.end < span.start);
        let mut merged = span;
        let mut from = span.start;
        let mut count = 0;
        for range in self.ranges.range(first..).take_while(|range| range.start <= span.end) {
            if from < range.start {
                new(Span { start: from, end: range.start });
                self.len += range.start - from;
            }
            from = range.end;
            merged = Span { start: merged.start.min(range.start), end: merged.end.max(range.end) };
            count += 1;
        }
        if from < span.end {
            new(Span { start: from, end: span.end });
            self.len += span.end - from;
        }
        match count {
            0 => self.ranges.insert(first, merged),
            _ => {
                self.ranges[first] = merged;
                self.ranges.drain(first + 1..first + count);
            }
        }
        merged
    }

    /// Removes all positions before `place`.
    pub(crate) fn forget_before(&mut self, place: u64) {
        while let Some(range) = self.ranges.front_mut().filter(|range| range.start < place) {
            if range.end > place {
                self.len -= place - range.start;
                range.start = place;
                return;
            }
            self.len -= range.len();
            self.ranges.pop_front();
        }
    }

    /// The end of the last range; 0 if there is none.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.back().map_or(0, |range| range.end)
    }

    /// The range that contains `place`, if any.
    pub(crate) fn around(&self, place: u64) -> Option<Span> {
        let index = self.ranges.partition_point(|range| range.end <= place);
        self.ranges.get(index).copied().filter(|range| range.start <= place)
    }

    /// Whether the complete span is contained.
    pub(crate) fn holds(&self, span: Span) -> bool {
        self.around(span.start).is_some_and(|range| span.end <= range.end)
    }

    /// Iterates over the ranges, from last to first.
    pub(crate) fn backwards(&self) -> impl Iterator<Item = Span> + '_ {
        self.ranges.iter().rev().copied()
    }

    /// Whether there are no ranges.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Total length of all ranges, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_ranges_in_any_order_agree_with_a_bitmap() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..3_000 {
            let (mut ranges, mut bitmap) = (Ranges::default(), [false; 64]);
            for _ in 0..random.usize(1..12) {
                let start = random.usize(0..60);
                let span = Span { start: start as u64, end: random.usize(start + 1..=64) as u64 };
                let mut told = 0;
                let merged = ranges.insert(span, |part| {
                    (part.start..part.end).for_each(|at| assert!(!bitmap[at as usize], "{at} was there"));
                    told += part.len();
                });
                let before = bitmap.iter().filter(|bit| **bit).count() as u64;
                (span.start..span.end).for_each(|at| bitmap[at as usize] = true);
                let after = bitmap.iter().filter(|bit| **bit).count() as u64;
                assert_eq!((told, ranges.len()), (after - before, after));
                assert!((merged.start..merged.end).all(|at| bitmap[at as usize]));
                assert!(merged.end == 64 || !bitmap[merged.end as usize]);
                if random.u8(0..4) == 0 {
                    let place = random.u64(0..64);
                    ranges.forget_before(place);
                    bitmap[..place as usize].fill(false);
                }
                for at in 0..64 {
                    assert_eq!(ranges.around(at).is_some(), bitmap[at as usize], "{at} in {ranges:?}");
                }
                assert_eq!(ranges.len(), bitmap.iter().filter(|bit| **bit).count() as u64);
            }
        }
    }
}
