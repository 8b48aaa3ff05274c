//! Bytes -> their sum and copy, on every CPU, without `unsafe`.
//!
//! This code is the fallback for CPUs without AVX2, and serves all short inputs.

/// The one's complement sum of any number of bytes.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(CHUNK_LEN).fold(0, |sum, chunk| add(sum, sum_chunk(chunk)))
}

/// Copies `from` to `to` and returns the sum of `from`. The copy is up to 4 KiB ahead of the sum, so that the sum
/// reads from the cache.
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
    let mut all = 0;
    for (to, from) in to.chunks_mut(NEAR_LEN).zip(from.chunks(NEAR_LEN)) {
        to.copy_from_slice(from);
        all = add(all, sum(from));
    }
    all
}

/// The one's complement sum of fewer than [`SMALL_LEN`](crate::SMALL_LEN) bytes. Longer inputs are summed
/// correctly, but slowly.
#[inline]
pub fn sum_small(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<WORD_LEN>();
    let mut sum = words.iter().fold(0, |sum, word| sum + u128::from(u64::from_ne_bytes(*word)));
    if !tail.is_empty() {
        let last = match bytes.last_chunk::<WORD_LEN>() {
            Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD_LEN - tail.len())),
            None => number(tail),
        };
        sum += u128::from(u64::from_ne_bytes(last.to_le_bytes()));
    }
    add(sum as u64, (sum >> 64) as u64)
}

/// Copies fewer than [`SMALL_LEN`](crate::SMALL_LEN) bytes, as two blocks that may overlap.
#[inline]
pub fn copy_small(to: &mut [u8], from: &[u8]) {
    let is_copied = match from.len() {
        32.. => copy_halves::<32>(to, from),
        16.. => copy_halves::<16>(to, from),
        8.. => copy_halves::<8>(to, from),
        4.. => copy_halves::<4>(to, from),
        2.. => copy_halves::<2>(to, from),
        _ => copy_halves::<1>(to, from) || from.is_empty(),
    };
    debug_assert!(is_copied, "{} bytes are two halves", from.len());
}

#[inline]
fn copy_halves<const LEN: usize>(to: &mut [u8], from: &[u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<LEN>(), from.last_chunk::<LEN>()) else { return false };
    let (first, last) = (*first, *last);
    if let Some(to) = to.first_chunk_mut::<LEN>() {
        *to = first;
    }
    if let Some(to) = to.last_chunk_mut::<LEN>() {
        *to = last;
    }
    true
}

/// Reads fewer than eight bytes as a little-endian number.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    match (bytes.first_chunk(), bytes.last_chunk(), bytes.first_chunk(), bytes.last_chunk(), bytes) {
        (Some(first), Some(last), ..) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4))
        }
        (_, _, Some(first), Some(last), _) => {
            u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << (8 * (len - 2))
        }
        (.., [byte]) => u64::from(*byte),
        _ => 0,
    }
}

/// Sums up to `CHUNK_LEN` bytes. Words are summed without carries, and their upper halves are summed a second time.
/// The carries follow from the two sums. No addition waits for a carry, so the compiler can vectorise the loop.
fn sum_chunk(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<WORD_LEN>();
    let mut sum = 0u64;
    let mut uppers = 0;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        sum = sum.wrapping_add(word);
        uppers += word >> 32;
    }
    let lowers = sum.wrapping_sub(uppers << 32);
    add(lowers + uppers, sum_small(tail))
}

/// Adds two one's complement sums. The result is zero only if both sums are zero.
#[inline]
pub(crate) fn add(one: u64, other: u64) -> u64 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u64::from(carry)
}

/// Length of a machine word, in bytes.
const WORD_LEN: usize = 8;
/// Maximum input between two folds, in bytes. Each accumulator then has 2^17 half words, whose sum fits 64 bits.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes copied before they are summed. Source and copy together fit the first-level cache of any CPU.
const NEAR_LEN: usize = 4_096;
