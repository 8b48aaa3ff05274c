//! Ranges of 8-byte units -> a bitmap of the received units of a datagram, and its runs of set bits.
//!
//! One bit stands for eight bytes, the unit of IP fragmentation. Every query or change touches a few words,
//! whatever the order of fragments. Byte offsets are left to the caller.

use core::ops::Range;

/// Sets the bits of `units`, which must be inside the bitmap.
#[inline]
pub fn set(bitmap: &mut [u8], units: Range<usize>) {
    let (bitmap, _) = bitmap.as_chunks_mut::<WORD_LEN>();
    let Some((first, last)) = ends_of(&units) else { return };
    match bitmap.get_mut(first..=last) {
        Some([only]) => *only = with(*only, from_bit(units.start) & to_bit(units.end)),
        Some([first, middle @ .., last]) => {
            *first = with(*first, from_bit(units.start));
            middle.fill([0xFF; WORD_LEN]);
            *last = with(*last, to_bit(units.end));
        }
        _ => panic!("a datagram's bits lie in its buffer's bitmap"),
    }
}

/// Whether any bit of `units` is set. `units` must be inside the bitmap.
#[inline]
pub fn any(bitmap: &[u8], units: Range<usize>) -> bool {
    let (bitmap, _) = bitmap.as_chunks::<WORD_LEN>();
    let Some((first, last)) = ends_of(&units) else { return false };
    let word = |bytes: &[u8; WORD_LEN]| u64::from_le_bytes(*bytes);
    match bitmap.get(first..=last) {
        Some([only]) => word(only) & from_bit(units.start) & to_bit(units.end) != 0,
        Some([first, middle @ .., last]) => {
            let at_ends = word(first) & from_bit(units.start) | word(last) & to_bit(units.end);
            at_ends | middle.iter().fold(0, |found, bytes| found | word(bytes)) != 0
        }
        _ => panic!("a datagram's bits lie in its buffer's bitmap"),
    }
}

/// Sets the bits of `units` if none of them is set. Returns whether the bits were set. `units` must be inside the
/// bitmap.
#[inline(always)]
pub fn claim(bitmap: &mut [u8], units: Range<usize>) -> bool {
    let (bitmap, _) = bitmap.as_chunks_mut::<WORD_LEN>();
    let Some((first, last)) = ends_of(&units) else { return true };
    let (from, to) = (from_bit(units.start), to_bit(units.end));
    let word = |bytes: &[u8; WORD_LEN]| u64::from_le_bytes(*bytes);
    match bitmap.get_mut(first..=last) {
        Some([only]) => {
            let is_free = word(only) & from & to == 0;
            if is_free {
                *only = with(*only, from & to);
            }
            is_free
        }
        Some([first, middle @ .., last]) => {
            let at_ends = word(first) & from | word(last) & to;
            let is_free = at_ends | middle.iter().fold(0, |found, bytes| found | word(bytes)) == 0;
            if is_free {
                *first = with(*first, from);
                // All of these bits are clear, so inversion sets them. A plain fill would compile to a call.
                middle.iter_mut().for_each(|bytes| *bytes = (!word(bytes)).to_le_bytes());
                *last = with(*last, to);
            }
            is_free
        }
        _ => panic!("a datagram's bits lie in its buffer's bitmap"),
    }
}

fn with(bytes: [u8; WORD_LEN], mask: u64) -> [u8; WORD_LEN] {
    (u64::from_le_bytes(bytes) | mask).to_le_bytes()
}

/// Returns the indices of the first and the last word that contain bits of `units`. `None` for an empty range.
fn ends_of(units: &Range<usize>) -> Option<(usize, usize)> {
    let last = units.end.checked_sub(1)?;
    (units.start <= last).then_some((units.start / WORD_BITS, last / WORD_BITS))
}

/// Returns a mask of the bits of a word from `bit` upward.
fn from_bit(bit: usize) -> u64 {
    u64::MAX << (bit % WORD_BITS)
}

/// Returns a mask of the bits of a word below `end`, the end of a range.
fn to_bit(end: usize) -> u64 {
    u64::MAX >> (end.wrapping_neg() % WORD_BITS)
}

/// Returns the number of set bits in `units`.
pub fn count(bitmap: &[u8], units: Range<usize>) -> usize {
    let (words, _) = bitmap.as_chunks::<WORD_LEN>();
    words_of(&units)
        .map(|index| {
            let word = words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
            (word & mask(index, &units)).count_ones() as usize
        })
        .sum()
}

/// Returns the first run of set bits at or after `from`. `None` if no such bit is set.
pub fn next_run(bitmap: &[u8], from: usize) -> Option<Range<usize>> {
    let start = find_first(bitmap, from, 0)?;
    let end = find_first(bitmap, start, u64::MAX).unwrap_or(bitmap.len() * 8);
    Some(start..end)
}

/// Returns the first bit at or after `from` that differs from the bits of `uniform`, a word of zeros or of ones.
fn find_first(bitmap: &[u8], from: usize, uniform: u64) -> Option<usize> {
    let (words, _) = bitmap.as_chunks::<WORD_LEN>();
    let first = from / WORD_BITS;
    words.iter().enumerate().skip(first).find_map(|(index, word)| {
        let mut differing = u64::from_le_bytes(*word) ^ uniform;
        if index == first {
            differing &= u64::MAX << (from % WORD_BITS);
        }
        (differing != 0).then(|| index * WORD_BITS + differing.trailing_zeros() as usize)
    })
}

fn words_of(units: &Range<usize>) -> Range<usize> {
    units.start / WORD_BITS..units.end.div_ceil(WORD_BITS)
}

/// Returns a mask of the bits of word `index` that are in `units`. The word and `units` must overlap.
#[inline]
fn mask(index: usize, units: &Range<usize>) -> u64 {
    let first = index * WORD_BITS;
    let above = if units.start > first { u64::MAX << (units.start - first) } else { u64::MAX };
    let below = if units.end < first + WORD_BITS { !(u64::MAX << (units.end - first)) } else { u64::MAX };
    if units.is_empty() { 0 } else { above & below }
}

const WORD_LEN: usize = 8;
const WORD_BITS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_sets_its_bits_and_no_others() {
        for start in 0..200 {
            for end in start..200 {
                let mut bitmap = [0u8; 32];
                set(&mut bitmap, start..end);
                let bits: Vec<_> = (0..256).filter(|bit| bitmap[bit / 8] >> (bit % 8) & 1 == 1).collect();
                assert_eq!(bits, (start..end).collect::<Vec<_>>());
                assert_eq!(count(&bitmap, 0..256), end - start);
                let meets = |other: Range<usize>| start.max(other.start) < end.min(other.end);
                for other in [0..256, 100..150, 64..128, 0..1, 199..200, 5..5, 128..128] {
                    assert_eq!(any(&bitmap, other.clone()), meets(other.clone()), "{start}..{end} and {other:?}");
                }
                assert_eq!(count(&bitmap, 100..150), end.clamp(100, 150) - start.clamp(100, 150));
                assert_eq!(next_run(&bitmap, 0), (start < end).then_some(start..end));
            }
        }
    }

    #[test]
    fn only_free_bits_are_claimed() {
        for len in [1, 3, 64, 65, 130, 200] {
            for start in (0..320 - len).step_by(7) {
                let mut bitmap = [0; 40];
                assert!(claim(&mut bitmap, start..start + len));
                let mut expected = [0; 40];
                set(&mut expected, start..start + len);
                assert_eq!(bitmap, expected, "{start} and {len} more");
                for other_len in [1, 2, 63, 150] {
                    for other in (0..320 - other_len).step_by(5) {
                        let mut tried = bitmap;
                        let is_free = other + other_len <= start || other >= start + len;
                        assert_eq!(claim(&mut tried, other..other + other_len), is_free);
                        if is_free {
                            let mut both = bitmap;
                            set(&mut both, other..other + other_len);
                            assert_eq!(tried, both);
                        } else {
                            assert_eq!(tried, bitmap, "what is not free is left as it was");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn runs_are_listed_in_order() {
        let mut bitmap = [0u8; 32];
        for run in [0..1, 3..64, 65..130, 255..256] {
            set(&mut bitmap, run);
        }
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some(run) = next_run(&bitmap, from) {
            from = run.end;
            runs.push(run);
        }
        assert_eq!(runs, [0..1, 3..64, 65..130, 255..256]);
    }
}
