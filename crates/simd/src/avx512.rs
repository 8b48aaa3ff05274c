//! Bytes -> their sum and copy, 64 bytes at a time, on x86-64 with AVX-512 F, BW, VL and VNNI.
//!
//! One VNNI instruction multiplies 32 signed words and adds them to 16 lanes of 32 bits. Packet words are unsigned.
//! The top bit of each word is therefore flipped, which subtracts 32,768. The initial value of the lanes
//! compensates for this subtraction.

use crate::scalar::add;
use core::arch::x86_64::*;

/// The one's complement sum of any number of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn sum(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..ALIGNED_READ_LEN_MIN => sum_chunk::<false>(bytes),
        ALIGNED_READ_LEN_MIN..=CHUNK_LEN => sum_chunk::<true>(bytes),
        _ => sum_chunks(bytes),
    }
}

/// Copies `from` to `to`, which must have the same length, and sums the bytes in the same pass.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
    match from.len() {
        0..ALIGNED_WRITE_LEN_MIN => copy_and_sum_chunk::<false>(to, from),
        ALIGNED_WRITE_LEN_MIN..=CHUNK_LEN => copy_and_sum_chunk::<true>(to, from),
        _ => copy_and_sum_chunks(to, from),
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sum_chunks(bytes: &[u8]) -> u64 {
    bytes.chunks(CHUNK_LEN).fold(0, |all, chunk| add(all, sum(chunk)))
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn copy_and_sum_chunks(to: &mut [u8], from: &[u8]) -> u64 {
    let chunks = to.chunks_mut(CHUNK_LEN).zip(from.chunks(CHUNK_LEN));
    chunks.fold(0, |all, (to, from)| add(all, copy_and_sum(to, from)))
}

/// Sums up to `CHUNK_LEN` bytes. With `ALIGNED`, the bytes before the first cache line boundary are summed
/// separately, because a load across two cache lines costs twice as much.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sum_chunk<const ALIGNED: bool>(bytes: &[u8]) -> u64 {
    let head = if ALIGNED { before_line(bytes.as_ptr()) } else { 0 };
    let (front, rest) = bytes.split_at(head);
    let mut lanes = Lanes::new(usize::from(ALIGNED) + rest.len().div_ceil(VECTOR_LEN));
    if ALIGNED {
        lanes.add_head(load_front(front), head);
    }
    let (blocks, rest) = rest.as_chunks::<{ 8 * VECTOR_LEN }>();
    for block in blocks {
        lanes.read(block);
    }
    let (blocks, rest) = rest.as_chunks::<{ 4 * VECTOR_LEN }>();
    for block in blocks {
        lanes.read(block);
    }
    let (vectors, tail) = rest.as_chunks::<VECTOR_LEN>();
    for vector in vectors {
        lanes.add(4, load(vector));
    }
    if !tail.is_empty() {
        lanes.add(5, load_front(tail));
    }
    behind(head, lanes.total())
}

/// Copies and sums up to `CHUNK_LEN` bytes. With `ALIGNED`, the stores start at a cache line boundary.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn copy_and_sum_chunk<const ALIGNED: bool>(to: &mut [u8], from: &[u8]) -> u64 {
    let to = &mut to[..from.len()];
    let head = if ALIGNED { before_line(to.as_ptr()) } else { 0 };
    let (front, rest) = from.split_at(head);
    let (front_to, rest_to) = to.split_at_mut(head);
    let mut lanes = Lanes::new(usize::from(ALIGNED) + rest.len().div_ceil(VECTOR_LEN));
    if ALIGNED {
        lanes.add_head(copied_front(front_to, front), head);
    }
    let (blocks, rest) = rest.as_chunks::<{ 8 * VECTOR_LEN }>();
    let (blocks_to, rest_to) = rest_to.as_chunks_mut::<{ 8 * VECTOR_LEN }>();
    for (to, block) in blocks_to.iter_mut().zip(blocks) {
        lanes.copy(to, block);
    }
    let (blocks, rest) = rest.as_chunks::<{ 4 * VECTOR_LEN }>();
    let (blocks_to, rest_to) = rest_to.as_chunks_mut::<{ 4 * VECTOR_LEN }>();
    for (to, block) in blocks_to.iter_mut().zip(blocks) {
        lanes.copy(to, block);
    }
    let (vectors, tail) = rest.as_chunks::<VECTOR_LEN>();
    let (vectors_to, tail_to) = rest_to.as_chunks_mut::<VECTOR_LEN>();
    for (to, vector) in vectors_to.iter_mut().zip(vectors) {
        lanes.add(4, copied(to, vector));
    }
    if !tail.is_empty() {
        lanes.add(5, copied_front(tail_to, tail));
    }
    behind(head, lanes.total())
}

/// Running sums of words, in signed lanes of 32 bits.
struct Lanes([__m512i; LANES_COUNT]);

impl Lanes {
    /// Accumulators for this number of vectors. One of them starts with the amount that flipping the top bits will
    /// subtract in total.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn new(vectors: usize) -> Lanes {
        let mut lanes = [_mm512_setzero_si512(); LANES_COUNT];
        lanes[LANES_COUNT - 1] = _mm512_set1_epi32((vectors << 16) as i32);
        Lanes(lanes)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add(&mut self, index: usize, vector: __m512i) {
        let signed = _mm512_xor_si512(vector, _mm512_set1_epi16(i16::MIN));
        self.0[index] = multiplied_and_added(self.0[index], signed, _mm512_set1_epi16(1));
    }

    /// Adds the first `len` bytes of an input, as a vector padded with zeros. If `len` is odd, `behind` will swap
    /// the bytes of the total, so the bytes of the head are swapped in advance.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add_head(&mut self, vector: __m512i, len: usize) {
        self.add(0, if len.is_multiple_of(2) { vector } else { swapped(vector) });
    }

    /// Adds a few vectors, each to its own accumulator.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn read<const LEN: usize>(&mut self, bytes: &[u8; LEN]) {
        for (index, vector) in bytes.as_chunks::<VECTOR_LEN>().0.iter().enumerate() {
            self.add(index, load(vector));
        }
    }

    /// Copies a few vectors, and adds each to its own accumulator.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn copy<const LEN: usize>(&mut self, to: &mut [u8; LEN], from: &[u8; LEN]) {
        let (vectors_to, _) = to.as_chunks_mut::<VECTOR_LEN>();
        for (index, (to, vector)) in vectors_to.iter_mut().zip(from.as_chunks::<VECTOR_LEN>().0).enumerate() {
            self.add(index, copied(to, vector));
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn total(self) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        let low = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
        let high = _mm512_add_epi32(_mm512_add_epi32(e, f), _mm512_add_epi32(g, h));
        let all = _mm512_add_epi32(low, high);
        let even = _mm512_and_si512(all, _mm512_set1_epi64(0xFFFF_FFFF));
        let odd = _mm512_srli_epi64::<32>(all);
        _mm512_reduce_add_epi64(_mm512_add_epi64(even, odd)) as u64
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiplied_and_added(lanes: __m512i, words: __m512i, factors: __m512i) -> __m512i {
    // Miri does not support the VNNI instruction. These two instructions are equivalent.
    #[cfg(miri)]
    return _mm512_add_epi32(lanes, _mm512_madd_epi16(words, factors));
    #[cfg(not(miri))]
    _mm512_dpwssd_epi32(lanes, words, factors)
}

/// The contribution of `sum` to a total if its bytes start at offset `len`. An odd offset swaps the bytes of each
/// word.
#[inline]
fn behind(len: usize, sum: u64) -> u64 {
    sum.rotate_left(8 * (len % 2) as u32)
}

/// Number of bytes before the next cache line boundary.
#[inline]
fn before_line(at: *const u8) -> usize {
    at.addr().wrapping_neg() % VECTOR_LEN
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn copied(to: &mut [u8; VECTOR_LEN], from: &[u8; VECTOR_LEN]) -> __m512i {
    let vector = load(from);
    store(to, vector);
    vector
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn copied_front(to: &mut [u8], from: &[u8]) -> __m512i {
    let vector = load_front(from);
    store_front(to, vector);
    vector
}

/// Swaps the bytes of each 16-bit word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn swapped(vector: __m512i) -> __m512i {
    _mm512_or_si512(_mm512_slli_epi16::<8>(vector), _mm512_srli_epi16::<8>(vector))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load(bytes: &[u8; VECTOR_LEN]) -> __m512i {
    // SAFETY: these are the 64 bytes that are read; they need no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn store(to: &mut [u8; VECTOR_LEN], vector: __m512i) {
    // SAFETY: these are the 64 bytes that are written; they need no alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), hidden(vector)) }
}

/// Returns the vector unchanged, but hidden from the compiler. Otherwise the compiler would turn a loop of loads
/// and stores into a call of `memcpy` and a second loop for the sum.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[cfg_attr(miri, allow(unused_mut))]
fn hidden(mut vector: __m512i) -> __m512i {
    #[cfg(not(miri))]
    // SAFETY: there is no instruction.
    unsafe {
        core::arch::asm!("/* {0} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags));
    }
    vector
}

/// Loads fewer than 64 bytes into a vector and pads with zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_front(bytes: &[u8]) -> __m512i {
    // SAFETY: the mask excludes everything behind `bytes`, and excluded bytes are not read.
    unsafe { _mm512_maskz_loadu_epi8(front(bytes.len()), bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn store_front(to: &mut [u8], vector: __m512i) {
    // SAFETY: the mask excludes everything behind `to`, and excluded bytes are not written.
    unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), front(to.len()), vector) }
}

/// A mask of the first `len` bytes of a vector; `len` must be less than 64.
#[inline]
fn front(len: usize) -> u64 {
    assert!(len < VECTOR_LEN, "the rest of a vector is shorter than a vector");
    !(u64::MAX << len)
}

/// Length of a vector register, in bytes.
const VECTOR_LEN: usize = 64;
/// Number of independent accumulators. Several accumulators hide the latency of a VNNI instruction, five cycles.
const LANES_COUNT: usize = 8;
/// Maximum input between two folds of the accumulators, in bytes. Each lane, added over all accumulators, then has
/// at most 2^15 words, whose sum fits 32 bits.
const CHUNK_LEN: usize = 1 << 20;
/// Minimum length for aligned access, in bytes. For shorter inputs, unaligned access costs less than a separate
/// head.
const ALIGNED_READ_LEN_MIN: usize = 1_024;
const ALIGNED_WRITE_LEN_MIN: usize = 512;
