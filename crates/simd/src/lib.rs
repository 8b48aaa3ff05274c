//! Bytes -> their Internet checksum sum, their copy, or both in one pass, with the CPU's widest registers.
//!
//! Checksums and copies dominate the CPU time of large packets. All `unsafe` SIMD code of the workspace is isolated
//! here.
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
//! A sum is the one's complement sum of RFC 1071 before folding. The bytes are added as 16-bit words in the CPU's
//! byte order, modulo 65,535. An odd last byte is padded with a zero byte. The sum is zero only if all bytes are
//! zero.
//!
//! Inputs shorter than [`SMALL_LEN`] are summed by inline code. Longer inputs use the fastest [`Path`] that the CPU
//! supports. All paths return equal sums, and a caller may choose a path for a test. Copies of `SMALL_LEN` bytes or
//! more use `memcpy`, because our own loops were not faster at any length (`benches/simd.rs`).
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use core::sync::atomic::{AtomicU8, Ordering};

/// The one's complement sum of `bytes`, unfolded.
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
/// If the lengths of `to` and `from` differ.
#[inline]
#[track_caller]
pub fn copy(to: &mut [u8], from: &[u8]) {
    same_len(to, from);
    if from.len() < SMALL_LEN {
        return scalar::copy_small(to, from);
    }
    to.copy_from_slice(from);
}

/// Copies `from` to `to` and returns the sum of `from`, in one pass.
///
/// # Panics
/// If the lengths of `to` and `from` differ.
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

/// Prefetches the first cache line of `bytes`. A prefetch is only a hint to the CPU.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_lines(bytes, 1);
}

/// Prefetches the first `count` cache lines of `bytes`, or all lines if there are fewer. A prefetch is only a hint
/// to the CPU.
#[inline]
pub fn prefetch_lines(bytes: &[u8], count: usize) {
    let len = bytes.len().min(count.saturating_mul(LINE_LEN));
    for at in (0..len).step_by(LINE_LEN) {
        prefetch_at(bytes.as_ptr().wrapping_add(at));
    }
}

/// Prefetches all cache lines of `value`. A prefetch is only a hint to the CPU.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let start = core::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(LINE_LEN) {
        prefetch_at(start.wrapping_add(at));
    }
}

/// The path that [`sum`] and [`copy_and_sum`] use on this CPU for all but short inputs.
#[inline]
pub fn path() -> Path {
    match PATH.load(Ordering::Relaxed) {
        AVX512 => Path::Avx512,
        AVX2 => Path::Avx2,
        SCALAR => Path::Scalar,
        _ => choose(),
    }
}

/// An implementation of the sum. All implementations return equal sums but use different instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Portable code for every CPU.
    Scalar,
    /// 32 bytes at a time: x86-64 with AVX2.
    Avx2,
    /// 64 bytes at a time: x86-64 with AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Path {
    /// All paths, from the narrowest registers to the widest.
    pub const ALL: [Path; 3] = [Path::Scalar, Path::Avx2, Path::Avx512];

    /// The name of the path, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Path::Scalar => "scalar",
            Path::Avx2 => "avx2",
            Path::Avx512 => "avx512",
        }
    }

    /// Whether this CPU has the instructions of the path.
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

    /// Returns [`sum`] of `bytes` by this path, even if `bytes` is short.
    ///
    /// # Panics
    /// If this CPU does not support the path.
    pub fn sum(self, bytes: &[u8]) -> u64 {
        self.must_be_here();
        // SAFETY: asserted above.
        unsafe { self.sum_wide(bytes) }
    }

    /// Executes [`copy_and_sum`] by this path, even if `from` is short.
    ///
    /// # Panics
    /// If this CPU does not support the path, or the lengths of `to` and `from` differ.
    #[track_caller]
    pub fn copy_and_sum(self, to: &mut [u8], from: &[u8]) -> u64 {
        self.must_be_here();
        same_len(to, from);
        // SAFETY: asserted above.
        unsafe { self.copy_and_sum_wide(to, from) }
    }

    /// # Safety
    /// This CPU must support the path.
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
    /// This CPU must support the path.
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

/// Chooses the widest path that this CPU supports. Concurrent calls choose the same path.
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

/// The chosen path as a number; 0 = not yet chosen.
static PATH: AtomicU8 = AtomicU8::new(0);
const SCALAR: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;

/// Inputs shorter than this number of bytes are summed and copied by inline code.
pub const SMALL_LEN: usize = 64;
/// Length of a cache line, in bytes.
const LINE_LEN: usize = 64;
