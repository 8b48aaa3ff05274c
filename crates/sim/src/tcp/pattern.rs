//! A flow's seed and a place in, the byte of the stream that stands there out.
//!
//! A sender stores nothing and a receiver checks everything: each eight bytes follow from the seed and their place alone.

/// The bytes of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Pattern {
        Pattern { seed }
    }

    /// The byte at `offset`.
    pub fn byte(self, offset: u64) -> u8 {
        self.word(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// Writes the bytes from `offset` on.
    pub fn write(self, offset: u64, bytes: &mut [u8]) {
        let (mut index, head) = self.start(offset, bytes.len());
        let (head, rest) = bytes.split_at_mut(head);
        head.iter_mut().zip(offset..).for_each(|(byte, place)| *byte = self.byte(place));
        let (words, tail) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = self.word(index).to_le_bytes();
            index += 1;
        }
        tail.iter_mut().zip(index * 8..).for_each(|(byte, place)| *byte = self.byte(place));
    }

    /// Are these the bytes from `offset` on? If not, where the first wrong one stands in them.
    pub fn check(self, offset: u64, bytes: &[u8]) -> Result<(), usize> {
        let (mut index, head_len) = self.start(offset, bytes.len());
        let (head, rest) = bytes.split_at(head_len);
        let (words, tail) = rest.as_chunks::<8>();
        let mut wrong = u64::from(self.first_wrong(offset, head).is_some());
        let tail_at = (index + words.len() as u64) * 8;
        for word in words {
            wrong |= self.word(index) ^ u64::from_le_bytes(*word);
            index += 1;
        }
        if wrong == 0 && self.first_wrong(tail_at, tail).is_none() {
            return Ok(());
        }
        Err(self.first_wrong(offset, bytes).expect("one of the parts differs"))
    }

    /// The number of the first whole word at or behind `offset`, and how many bytes stand in front of it.
    fn start(self, offset: u64, len: usize) -> (u64, usize) {
        let index = offset.div_ceil(8);
        (index, len.min((index * 8 - offset) as usize))
    }

    fn first_wrong(self, offset: u64, bytes: &[u8]) -> Option<usize> {
        bytes.iter().zip(offset..).position(|(byte, place)| *byte != self.byte(place))
    }

    /// Eight bytes. One multiplication with its halves folded (as wyhash mixes), so that neighbours differ in all bytes.
    #[inline]
    fn word(self, index: u64) -> u64 {
        let product = u128::from(index ^ self.seed ^ FIRST) * u128::from(index.wrapping_add(SECOND));
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Odd numbers without a pattern of their own (wyhash's).
const FIRST: u64 = 0xA076_1D64_78BD_642F;
const SECOND: u64 = 0xE703_7ED1_A0B4_28DB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_each_byte_says_at_any_place_and_length() {
        let pattern = Pattern::new(7);
        for offset in (0..17).chain([1 << 33, (1 << 40) + 3]) {
            for len in 0..40 {
                let mut bytes = vec![0; len];
                pattern.write(offset, &mut bytes);
                let expected: Vec<u8> = (0..len as u64).map(|at| pattern.byte(offset + at)).collect();
                assert_eq!(bytes, expected, "{len} bytes at {offset}");
                assert_eq!(pattern.check(offset, &bytes), Ok(()));
                for at in 0..len {
                    bytes[at] ^= 0x10;
                    assert_eq!(pattern.check(offset, &bytes), Err(at));
                    bytes[at] ^= 0x10;
                }
            }
        }
    }

    #[test]
    fn bytes_of_another_place_or_another_stream_are_wrong() {
        let mut bytes = [0; 64];
        Pattern::new(7).write(1_000, &mut bytes);
        for offset in (900..1_100).chain([1_000 + (1 << 32)]).filter(|offset| *offset != 1_000) {
            assert!(Pattern::new(7).check(offset, &bytes).is_err(), "at {offset}");
        }
        assert!(Pattern::new(8).check(1_000, &bytes).is_err());
    }
}
