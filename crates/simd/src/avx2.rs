//! Bytes -> their sum and copy, 32 bytes at a time, on x86-64 with AVX2.
//!
//! AVX2 has no addition with carry. As in `scalar.rs`, 64-bit words are therefore summed without carries, and their
//! upper halves are summed a second time. The choice between the paths is left to `lib.rs`.

use crate::scalar::{self, add};
use core::arch::x86_64::*;

/// The one's complement sum of any number of bytes.
#[target_feature(enable = "avx2")]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() <= CHUNK_LEN { sum_chunk(bytes) } else { sum_chunks(bytes) }
}

/// Copies `from` to `to`, which must have the same length, and sums the bytes in the same pass.
#[target_feature(enable = "avx2")]
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
    if from.len() <= CHUNK_LEN { copy_and_sum_chunk(to, from) } else { copy_and_sum_chunks(to, from) }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
fn sum_chunks(bytes: &[u8]) -> u64 {
    bytes.chunks(CHUNK_LEN).fold(0, |all, chunk| add(all, sum(chunk)))
}

#[inline(never)]
#[target_feature(enable = "avx2")]
fn copy_and_sum_chunks(to: &mut [u8], from: &[u8]) -> u64 {
    let chunks = to.chunks_mut(CHUNK_LEN).zip(from.chunks(CHUNK_LEN));
    chunks.fold(0, |all, (to, from)| add(all, copy_and_sum(to, from)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_chunk(bytes: &[u8]) -> u64 {
    let mut lanes = Lanes::new();
    let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
    for block in blocks {
        for (index, vector) in block.as_chunks().0.iter().enumerate() {
            lanes.add(index, load(vector));
        }
    }
    let (vectors, tail) = rest.as_chunks();
    for vector in vectors {
        lanes.add(0, load(vector));
    }
    add(lanes.total(), scalar::sum_small(tail))
}

#[inline]
#[target_feature(enable = "avx2")]
fn copy_and_sum_chunk(to: &mut [u8], from: &[u8]) -> u64 {
    let to = &mut to[..from.len()];
    let mut lanes = Lanes::new();
    let (blocks, rest) = from.as_chunks::<BLOCK_LEN>();
    let (blocks_to, rest_to) = to.as_chunks_mut::<BLOCK_LEN>();
    for (to, block) in blocks_to.iter_mut().zip(blocks) {
        for (index, (to, vector)) in to.as_chunks_mut().0.iter_mut().zip(block.as_chunks().0).enumerate() {
            lanes.add(index, copied(to, vector));
        }
    }
    let (vectors, tail) = rest.as_chunks();
    let (vectors_to, tail_to) = rest_to.as_chunks_mut();
    for (to, vector) in vectors_to.iter_mut().zip(vectors) {
        lanes.add(0, copied(to, vector));
    }
    scalar::copy_small(tail_to, tail);
    add(lanes.total(), scalar::sum_small(tail))
}

/// Running sums: 64-bit words without carries, and the words' upper halves, from which the carries follow.
struct Lanes {
    sums: [__m256i; LANES_COUNT],
    uppers: [__m256i; LANES_COUNT],
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Lanes {
        let zero = [_mm256_setzero_si256(); LANES_COUNT];
        Lanes { sums: zero, uppers: zero }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, index: usize, vector: __m256i) {
        let index = index % LANES_COUNT;
        self.sums[index] = _mm256_add_epi64(self.sums[index], vector);
        self.uppers[index] = _mm256_add_epi64(self.uppers[index], _mm256_srli_epi64::<32>(vector));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(self) -> u64 {
        let mut sums = _mm256_setzero_si256();
        let mut uppers = _mm256_setzero_si256();
        for (sum, upper) in self.sums.into_iter().zip(self.uppers) {
            sums = _mm256_add_epi64(sums, sum);
            uppers = _mm256_add_epi64(uppers, upper);
        }
        let lowers = _mm256_sub_epi64(sums, _mm256_slli_epi64::<32>(uppers));
        let all = _mm256_add_epi64(lowers, uppers);
        let pair = _mm_add_epi64(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
        (_mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair)))) as u64
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn copied(to: &mut [u8; VECTOR_LEN], from: &[u8; VECTOR_LEN]) -> __m256i {
    let vector = load(from);
    store(to, vector);
    vector
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; VECTOR_LEN]) -> __m256i {
    // SAFETY: these are the 32 bytes that are read; they need no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u8; VECTOR_LEN], vector: __m256i) {
    // SAFETY: these are the 32 bytes that are written; they need no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), hidden(vector)) }
}

/// Returns the vector unchanged, but hidden from the compiler. Otherwise the compiler would turn a loop of loads
/// and stores into a call of `memcpy` and a second loop for the sum.
#[inline]
#[target_feature(enable = "avx2")]
#[cfg_attr(miri, allow(unused_mut))]
fn hidden(mut vector: __m256i) -> __m256i {
    #[cfg(not(miri))]
    // SAFETY: there is no instruction.
    unsafe {
        core::arch::asm!("/* {0} */", inout(ymm_reg) vector, options(pure, nomem, nostack, preserves_flags));
    }
    vector
}

/// Length of a vector register, in bytes.
const VECTOR_LEN: usize = 32;
/// Number of independent accumulators.
const LANES_COUNT: usize = 4;
/// Bytes summed per iteration.
const BLOCK_LEN: usize = LANES_COUNT * VECTOR_LEN;
/// Maximum input between two folds of the accumulators, in bytes. Each lane then has 2^15 half words, whose sum
/// fits 64 bits.
const CHUNK_LEN: usize = 1 << 20;
