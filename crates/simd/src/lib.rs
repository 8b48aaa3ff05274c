//! Bytes -> their sum, their copy, or both in one pass, with the widest registers of the processor.
//!
//! ```
//! let packet = [0x45, 0, 0, 28, 0x12, 0x34, 0x20, 0, 64, 17, 0xC4, 0x99, 192, 0, 2, 1, 192, 0, 2, 2];
//! let mut copy = [0; 20];
//! let sum = wideload_simd::copy_and_sum(&mut copy, &packet);
//! assert_eq!(copy, packet);
//! // A header with a right checksum sums up to minus zero, in either byte order.
//! assert_eq!(sum % 0xFFFF, 0);
//! assert_ne!(sum, 0);
//! ```
//!
//! A sum is the one's complement sum of RFC 1071 before folding. It adds the bytes as 16-bit words in the machine's
//! byte order, modulo 65,535; a zero byte follows an odd last byte. It is zero only if every byte is.
//!
//! Inputs shorter than [`SMALL_LEN`] are handled inline. All other sums use one [`Path`], which is chosen once from
//! the processor's features. All paths give equal results; a caller may also call a certain one. Longer copies use
//! `memcpy`, which chooses for itself: loops of our own were no faster at any length (`benches/simd.rs`).
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use core::sync::atomic::{AtomicU8, Ordering};

/// The sum of `bytes`.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() < SMALL_LEN {
        return scalar::sum_small(bytes);
    }
    // SAFETY: this processor supports `path`.
    unsafe { path().sum_wide(bytes) }
}

/// Copies `from` to `to`.
///
/// # Panics
/// If their lengths differ.
#[inline]
#[track_caller]
pub fn copy(to: &mut [u8], from: &[u8]) {
    same_len(to, from);
    if from.len() < SMALL_LEN {
        return scalar::copy_small(to, from);
    }
    to.copy_from_slice(from);
}

/// Copies `from` to `to` and sums the bytes in the same pass: the sum is that of `from`.
///
/// # Panics
/// If their lengths differ.
#[inline]
#[track_caller]
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> u64 {
    same_len(to, from);
    if from.len() < SMALL_LEN {
        scalar::copy_small(to, from);
        return scalar::sum_small(from);
    }
    // SAFETY: this processor supports `path`.
    unsafe { path().copy_and_sum_wide(to, from) }
}

/// Prefetches the first cache line of `bytes`. A hint: nothing is read.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_lines(bytes, 1);
}

/// Prefetches the first `count` cache lines of `bytes`, or all of them. A hint: nothing is read.
#[inline]
pub fn prefetch_lines(bytes: &[u8], count: usize) {
    let len = bytes.len().min(count.saturating_mul(LINE_LEN));
    for at in (0..len).step_by(LINE_LEN) {
        prefetch_at(bytes.as_ptr().wrapping_add(at));
    }
}

/// Prefetches the cache lines of a value. A hint: nothing is read.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let start = core::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(LINE_LEN) {
        prefetch_at(start.wrapping_add(at));
    }
}

/// The path that this processor uses.
#[inline]
pub fn path() -> Path {
    match PATH.load(Ordering::Relaxed) {
        AVX512 => Path::Avx512,
        AVX2 => Path::Avx2,
        SCALAR => Path::Scalar,
        _ => choose(),
    }
}

/// An implementation of the sum: equal results, different instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// For every processor.
    Scalar,
    /// 32 bytes at a time: x86-64 with AVX2.
    Avx2,
    /// 64 bytes at a time: x86-64 with AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Path {
    /// All paths, the widest last.
    pub const ALL: [Path; 3] = [Path::Scalar, Path::Avx2, Path::Avx512];

    /// The path's name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Path::Scalar => "scalar",
            Path::Avx2 => "avx2",
            Path::Avx512 => "avx512",
        }
    }

    /// Whether this processor supports it.
    pub fn is_here(self) -> bool {
        match self {
            Path::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Avx512 => false,
        }
    }

    /// [`sum`] by this path, however short `bytes` is.
    ///
    /// # Panics
    /// If this processor does not support it.
    pub fn sum(self, bytes: &[u8]) -> u64 {
        self.must_be_here();
        // SAFETY: asserted above.
        unsafe { self.sum_wide(bytes) }
    }

    /// [`copy_and_sum`] by this path, however short `from` is.
    ///
    /// # Panics
    /// If this processor does not support it, or the lengths differ.
    #[track_caller]
    pub fn copy_and_sum(self, to: &mut [u8], from: &[u8]) -> u64 {
        self.must_be_here();
        same_len(to, from);
        // SAFETY: asserted above.
        unsafe { self.copy_and_sum_wide(to, from) }
    }

    /// # Safety
    /// This processor must support the path.
    #[inline]
    unsafe fn sum_wide(self, bytes: &[u8]) -> u64 {
        match self {
            // SAFETY: this processor supports the path, so it has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => unsafe { avx512::sum(bytes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => unsafe { avx2::sum(bytes) },
            _ => scalar::sum(bytes),
        }
    }

    /// # Safety
    /// This processor must support the path.
    #[inline]
    unsafe fn copy_and_sum_wide(self, to: &mut [u8], from: &[u8]) -> u64 {
        match self {
            // SAFETY: this processor supports the path, so it has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => unsafe { avx512::copy_and_sum(to, from) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => unsafe { avx2::copy_and_sum(to, from) },
            _ => scalar::copy_and_sum(to, from),
        }
    }

    #[track_caller]
    fn must_be_here(self) {
        assert!(self.is_here(), "this processor cannot go the path {}; `is_here` tells", self.name());
    }
}

/// Chooses the widest supported path, once; threads that call it at the same moment choose the same.
#[cold]
fn choose() -> Path {
    let path = Path::ALL.into_iter().rfind(|path| path.is_here()).unwrap_or(Path::Scalar);
    let code = match path {
        Path::Scalar => SCALAR,
        Path::Avx2 => AVX2,
        Path::Avx512 => AVX512,
    };
    PATH.store(code, Ordering::Relaxed);
    path
}

#[inline]
#[track_caller]
fn same_len(to: &[u8], from: &[u8]) {
    if to.len() != from.len() {
        lens_differ(to.len(), from.len());
    }
}

#[cold]
#[track_caller]
fn lens_differ(to: usize, from: usize) -> ! {
    panic!("a copy is as long as what it copies: {from} bytes do not fit {to}");
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_at(place: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_at(_place: *const u8) {}

/// The chosen path, or zero before the choice.
static PATH: AtomicU8 = AtomicU8::new(0);
const SCALAR: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;

/// Shorter inputs are handled inline, in bytes.
pub const SMALL_LEN: usize = 64;
/// Length of a cache line, in bytes.
const LINE_LEN: usize = 64;
