//! A key and an offset -> payload bytes.
//!
//! Receivers can verify the bytes without a stored copy.

use crate::rng::{GOLDEN, mix};

/// An endless pseudo-random byte sequence. Different keys give different sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(u64);

impl Pattern {
    /// The sequence with this key.
    pub fn new(key: u64) -> Pattern {
        Pattern(mix(key))
    }

    /// The subsequence `number`, such as a message of a flow.
    pub fn part(self, number: u64) -> Pattern {
        Pattern(mix(self.0 ^ number.wrapping_mul(GOLDEN)))
    }

    /// A number that identifies the sequence.
    pub fn number(self) -> u64 {
        mix(self.0)
    }

    /// Fills `to` with the sequence's bytes from `offset` on.
    #[inline]
    pub fn fill(self, offset: u64, to: &mut [u8]) {
        let mut words = self.words(offset);
        let (chunks, rest) = to.as_chunks_mut::<8>();
        for chunk in chunks {
            *chunk = words.next().to_le_bytes();
        }
        rest.copy_from_slice(&words.next().to_le_bytes()[..rest.len()]);
    }

    /// The index of the first byte that differs from the sequence at `offset`; `None` if all bytes are equal.
    #[inline]
    pub fn first_wrong(self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let mut words = self.words(offset);
        let (chunks, rest) = bytes.as_chunks::<8>();
        let mut differs = 0;
        for chunk in chunks {
            differs |= u64::from_le_bytes(*chunk) ^ words.next();
        }
        if differs == 0 && *rest == words.next().to_le_bytes()[..rest.len()] {
            return None;
        }
        let mut expected = vec![0; bytes.len()];
        self.fill(offset, &mut expected);
        bytes.iter().zip(&expected).position(|(one, other)| one != other)
    }

    #[inline]
    fn words(self, offset: u64) -> Words {
        let word = self.0.wrapping_add((offset / 8).wrapping_mul(GOLDEN));
        Words { word, shift: 8 * (offset % 8) as u32 }
    }
}

/// An iterator over eight bytes at a time, from any offset.
struct Words {
    word: u64,
    shift: u32,
}

impl Words {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        let low = self.word >> self.shift;
        self.word = self.word.wrapping_add(GOLDEN);
        // In two steps, because a shift by all 64 bits is not defined.
        low | self.word << 1 << (63 - self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_depends_only_on_its_offset() {
        let pattern = Pattern::new(7).part(3);
        let mut all = vec![0; 3_000];
        pattern.fill(0, &mut all);
        for (start, len) in [(0, 1), (1, 1), (3, 8), (7, 100), (8, 9), (13, 2_900), (2_999, 1), (16, 0)] {
            let mut part = vec![0; len];
            pattern.fill(start as u64, &mut part);
            assert_eq!(part, all[start..start + len], "{len} from {start}");
            assert_eq!(pattern.first_wrong(start as u64, &part), None);
            for at in 0..len {
                part[at] ^= 1 << (at % 8);
                assert_eq!(pattern.first_wrong(start as u64, &part), Some(at));
                part[at] ^= 1 << (at % 8);
            }
        }
    }

    #[test]
    fn bytes_of_another_offset_or_part_are_wrong() {
        let pattern = Pattern::new(7);
        let mut bytes = vec![0; 64];
        pattern.fill(800, &mut bytes);
        for offset in (0..2_000).filter(|offset| *offset != 800) {
            assert!(pattern.first_wrong(offset, &bytes).is_some(), "at {offset}");
        }
        assert!(pattern.part(1).first_wrong(800, &bytes).is_some());
    }
}
