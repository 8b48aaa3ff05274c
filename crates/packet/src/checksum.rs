//! Bytes -> their one's complement sum; sums -> their sum, difference and shift (RFC 1071).
//!
//! A [`Sum`] is a number modulo 65,535, and the sums of parts add up to the sum of the whole. So fragmentation,
//! reassembly and coalescing compute checksums without a second pass over the payload (X3).

use core::ops::{Add, Sub};

/// The one's complement sum of some bytes, not yet complemented.
///
/// Invariant: the sum is in the CPU's byte order, with end-around carry in 64 bits, so it never overflows.
/// [`fold`](Sum::fold) converts the byte order at the end (RFC 1071 section 2B).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of zero bytes.
    pub const ZERO: Sum = Sum(0);

    /// Returns the sum of `bytes` as big-endian words. An odd last byte is the high half of a word.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum(simd::sum(bytes))
    }

    /// Copies `from` to `to`, which must have the same length, and returns the sum of the bytes, in one pass.
    #[inline]
    #[track_caller]
    pub fn copying(to: &mut [u8], from: &[u8]) -> Sum {
        Sum(simd::copy_and_sum(to, from))
    }

    /// Returns the sum of twenty bytes, the length of an IPv4 or TCP header without options.
    #[inline]
    pub(crate) fn of_header(bytes: &[u8; 20]) -> Sum {
        let (words, rest) = bytes.as_chunks::<4>();
        debug_assert!(rest.is_empty());
        Sum(words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum())
    }

    /// Returns the sum of the sixteen bytes of `number` in network order.
    pub fn number(number: u128) -> Sum {
        Sum::halves(number.to_be())
    }

    /// Returns the sum of eight bytes, read in the CPU's byte order.
    #[inline]
    pub(crate) fn native(word: u64) -> Sum {
        Sum(word)
    }

    /// Returns the end-around sum of the two halves of `number`.
    fn halves(number: u128) -> Sum {
        Sum(number as u64) + Sum((number >> 64) as u64)
    }

    /// Returns the sum of a 16-bit word.
    #[inline]
    pub fn word(word: u16) -> Sum {
        Sum(u64::from(word.to_be()))
    }

    /// Returns the sum of a 32-bit number, or of 16-bit words that add up to this number.
    #[inline]
    pub(crate) fn long(number: u32) -> Sum {
        Sum(u64::from(number.to_be()))
    }

    /// Returns the sum that the same bytes have at offset `offset` of a longer input. An odd offset swaps the two
    /// bytes of the folded sum.
    pub fn at(self, offset: usize) -> Sum {
        if offset.is_multiple_of(2) { self } else { Sum(u64::from(self.fold_native().swap_bytes())) }
    }

    /// Returns the sum folded to 16 bits, as a number in network order.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(self.fold_native())
    }

    /// Returns the checksum field for these bytes: the complement of the sum.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether the summed bytes include a correct checksum: the folded sum is 0xFFFF, which is minus zero.
    pub fn is_right(self) -> bool {
        self.fold() == 0xFFFF
    }

    #[inline]
    fn fold_native(self) -> u16 {
        let (sum, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let sum = sum + u32::from(carry);
        let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
        sum + u16::from(carry)
    }
}

impl Add for Sum {
    type Output = Sum;
    #[inline]
    fn add(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Sum(sum.wrapping_add(u64::from(carry)))
    }
}

impl Sub for Sum {
    type Output = Sum;
    #[inline]
    fn sub(self, other: Sum) -> Sum {
        self + Sum(u64::from(!other.fold_native()))
    }
}

/// Returns the new value of the checksum field `field` after one covered word changed from `old` to `new`.
///
/// HC' = ~(~HC + ~m + m') (RFC 1624 section 3, R029). The older formula of RFC 1141 would make some correct
/// checksums wrong.
pub fn patched(field: u16, old: u16, new: u16) -> u16 {
    (Sum::word(!field) + Sum::word(!old) + Sum::word(new)).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_offset_agrees_with_a_sum_by_hand() {
        let bytes = noise(70_000);
        for len in (0..300).chain([1_459, 1_460, 8_959, 9_001, 65_535, 70_000]) {
            for start in [0, 1, 2, 3] {
                let part = &bytes[start.min(len)..len];
                assert_eq!(Sum::of(part).fold(), by_hand(part), "len {len}, start {start}");
            }
        }
    }

    #[test]
    fn a_copy_gives_the_sum_of_its_bytes() {
        let bytes = noise(9_001);
        for len in (0..300).chain([1_459, 1_460, 8_959, 9_001]) {
            let mut copy = vec![0; len];
            let sum = Sum::copying(&mut copy, &bytes[..len]);
            assert_eq!(sum.fold(), by_hand(&bytes[..len]), "len {len}");
            assert_eq!(copy, bytes[..len], "len {len}");
        }
    }

    #[test]
    fn parts_at_any_offset_add_up_to_the_whole() {
        let bytes = noise(97);
        for cut in 1..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let whole = Sum::of(head) + Sum::of(tail).at(cut);
            assert_eq!(whole.fold(), by_hand(&bytes), "cut at {cut}");
            assert_eq!((whole - Sum::of(tail).at(cut)).checksum(), Sum::of(head).checksum(), "taken back at {cut}");
        }
    }

    #[test]
    fn a_patched_checksum_is_the_recomputed_one_for_every_word() {
        // Every old word against words that reach each carry, among them the example of RFC 1624 section 4.
        let rest = [0x0000u16, 0x0001, 0x5555, 0x7FFF, 0xCD7A, 0xFFFE, 0xFFFF];
        for old in 0..=u16::MAX {
            for new in [0x0000, 0x0001, 0x3285, 0x8000, 0xFFFE, 0xFFFF, old, !old] {
                for rest in rest {
                    // A header is never all zero, so its sum is never plus zero.
                    let nonzero = Sum::word(rest) + Sum::word(0x4500);
                    let before = (nonzero + Sum::word(old)).checksum();
                    let after = (nonzero + Sum::word(new)).checksum();
                    assert_eq!(patched(before, old, new), after, "{rest:04x}: {old:04x} to {new:04x}");
                }
            }
        }
        assert_eq!(patched(0xDD2F, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn sums_of_sums_never_overflow() {
        let full = Sum(u64::MAX);
        let many = (0..1_000).fold(Sum::ZERO, |sum, _| sum + full);
        assert_eq!(many.fold(), 0xFFFF);
    }

    fn by_hand(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if sum > 0xFFFF {
                sum -= 0xFFFF;
            }
        }
        sum as u16
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }
}
