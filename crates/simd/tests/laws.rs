//! Every path against a word-by-word sum, at every length and alignment: equal sums, equal copies, no other byte
//! written.

use proptest::prelude::*;
use std::ops::Range;
use std::panic::catch_unwind;
use wideload_simd::{self as simd, Path};

#[test]
fn every_length_at_every_alignment_sums_and_copies_like_a_sum_by_hand() {
    let source = noise(GUARD_LEN + LEN_END + ALIGNMENTS.end);
    let mut area = vec![GUARD; 2 * GUARD_LEN + LEN_END + ALIGNMENTS.end];
    let line = source.as_ptr().align_offset(ALIGNMENTS.end);
    let line_to = area.as_ptr().align_offset(ALIGNMENTS.end) + GUARD_LEN;
    for from_start in ALIGNMENTS.step_by(STEP) {
        for len in (0..LEN_END).step_by(STEP) {
            let from = &source[line + from_start..][..len];
            let wanted = by_hand(from);
            for way in ways() {
                assert_eq!(folded((way.sum)(from)), wanted, "{}: {len} bytes at {from_start}", way.name);
                for to_start in ALIGNMENTS.step_by(STEP) {
                    let to = line_to + to_start..line_to + to_start + len;
                    let what = || format!("{}: {len} bytes at {from_start} to {to_start}", way.name);
                    let sum = (way.copy_and_sum)(&mut area[to.clone()], from);
                    assert_eq!(folded(sum), wanted, "{}", what());
                    check_copy(&mut area, to, from, what);
                }
            }
        }
    }
}

#[test]
fn a_copy_writes_only_its_range() {
    let source = noise(GUARD_LEN + LEN_END + ALIGNMENTS.end);
    let mut area = vec![GUARD; 2 * GUARD_LEN + LEN_END + ALIGNMENTS.end];
    for from_start in ALIGNMENTS.step_by(STEP) {
        for to_start in ALIGNMENTS.step_by(STEP) {
            for len in (0..LEN_END).step_by(STEP) {
                let from = &source[from_start..][..len];
                let to = GUARD_LEN + to_start..GUARD_LEN + to_start + len;
                simd::copy(&mut area[to.clone()], from);
                check_copy(&mut area, to, from, || format!("{len} bytes at {from_start} to {to_start}"));
            }
        }
    }
}

#[test]
fn long_ones_sum_and_copy_like_a_sum_by_hand() {
    let source = noise(long_lens().max().unwrap() + 1);
    let mut area = vec![GUARD; source.len() + 2 * GUARD_LEN + 8];
    for len in long_lens() {
        for from_start in [0, 1] {
            let from = &source[from_start..][..len];
            let wanted = by_hand(from);
            for way in ways() {
                assert_eq!(folded((way.sum)(from)), wanted, "{}: {len} bytes at {from_start}", way.name);
                for to_start in [0, 7] {
                    let to = GUARD_LEN + to_start..GUARD_LEN + to_start + len;
                    let what = || format!("{}: {len} bytes at {from_start} to {to_start}", way.name);
                    let sum = (way.copy_and_sum)(&mut area[to.clone()], from);
                    assert_eq!(folded(sum), wanted, "{}", what());
                    check_copy(&mut area, to, from, what);
                }
            }
        }
    }
}

#[test]
fn no_lane_overflows_and_only_zeros_are_zero() {
    let patterns = [[0xFF, 0xFF], [0xFF, 0xFE], [0xFE, 0xFF], [0x80, 0x00], [0x7F, 0xFF], [0, 1], [1, 0], [0, 0]];
    for pattern in patterns {
        let source: Vec<u8> = pattern.into_iter().cycle().take(long_lens().max().unwrap() + 1).collect();
        let mut area = vec![0; source.len()];
        for len in long_lens() {
            for from_start in [0, 1] {
                let from = &source[from_start..][..len];
                let wanted = by_hand(from);
                for way in ways() {
                    let what = format!("{}: {len} bytes of {pattern:02x?} at {from_start}", way.name);
                    assert_eq!(folded((way.sum)(from)), wanted, "{what}");
                    assert_eq!(folded((way.copy_and_sum)(&mut area[..len], from)), wanted, "{what}, copied");
                }
            }
        }
    }
}

#[test]
fn every_byte_counts_by_its_position() {
    let mut bytes = vec![0; 700];
    for len in [1, 2, 63, 64, 65, 127, 129, 255, 256, 511, 513, 699, 700] {
        for at in (0..len).step_by(STEP) {
            bytes[at] = 0x81;
            let wanted = by_hand(&bytes[..len]);
            for way in ways() {
                assert_eq!(folded((way.sum)(&bytes[..len])), wanted, "{}: byte {at} of {len}", way.name);
            }
            bytes[at] = 0;
        }
    }
}

#[test]
fn different_lengths_are_refused_with_a_sentence() {
    let refusals = [
        catch_unwind(|| simd::copy(&mut [0; 3], &[0; 4])),
        catch_unwind(|| simd::copy(&mut [0; 300], &[0; 200])),
        catch_unwind(|| drop_sum(simd::copy_and_sum(&mut [0; 4], &[0; 3]))),
        catch_unwind(|| drop_sum(Path::Scalar.copy_and_sum(&mut [0; 200], &[0; 300]))),
    ];
    let sentences = refusals.map(|refusal| *refusal.unwrap_err().downcast::<String>().unwrap());
    assert_eq!(sentences[0], "a copy is as long as what it copies: 4 bytes do not fit 3");
    assert_eq!(sentences[1], "a copy is as long as what it copies: 200 bytes do not fit 300");
    assert_eq!(sentences[2], "a copy is as long as what it copies: 3 bytes do not fit 4");
    assert_eq!(sentences[3], "a copy is as long as what it copies: 300 bytes do not fit 200");
}

#[test]
fn the_widest_available_path_is_chosen() {
    let here: Vec<&str> = Path::ALL.into_iter().filter(|path| path.is_here()).map(Path::name).collect();
    println!("paths tested on this processor: {}", here.join(", "));
    assert_eq!(here.last(), Some(&simd::path().name()));
    for path in Path::ALL.into_iter().filter(|path| !path.is_here()) {
        println!("not tested, this processor lacks it: {}", path.name());
        let refusal = catch_unwind(|| path.sum(&[1])).unwrap_err();
        assert!(refusal.downcast::<String>().unwrap().starts_with("this processor cannot go the path"));
    }
}

#[test]
fn a_prefetch_takes_any_bytes() {
    let bytes = noise(700);
    for len in [0, 1, 64, 65, 700] {
        simd::prefetch(&bytes[..len]);
        simd::prefetch_lines(&bytes[..len], 3);
        simd::prefetch_lines(&bytes[..len], usize::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 512 }, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_parts_add_up_to_the_whole(
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 400 } else { 70_000 }),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(bytes.len() + 1);
        let (front, back) = bytes.split_at(cut);
        for way in ways() {
            let mut copy = vec![GUARD; bytes.len()];
            let (to_front, to_back) = copy.split_at_mut(cut);
            let sums = [(way.copy_and_sum)(to_front, front), (way.copy_and_sum)(to_back, back)];
            // Behind an odd number of bytes the halves of each word are swapped.
            let back_sum = sums[1].rotate_left(8 * (cut % 2) as u32);
            let parts = u128::from(sums[0]) + u128::from(back_sum);
            prop_assert_eq!(folded((way.sum)(&bytes)), by_hand(&bytes), "{}", way.name);
            prop_assert_eq!(fold_of(parts), by_hand(&bytes), "{} in parts", way.name);
            prop_assert!(copy == bytes, "{} copies", way.name);
        }
    }
}

/// One available implementation of sum and copy: a path, or the default of a caller.
struct Way {
    name: &'static str,
    sum: fn(&[u8]) -> u64,
    copy_and_sum: fn(&mut [u8], &[u8]) -> u64,
}

fn ways() -> impl Iterator<Item = &'static Way> {
    static WAYS: [(Option<Path>, Way); 4] = [
        (None, Way { name: "chosen", sum: simd::sum, copy_and_sum: simd::copy_and_sum }),
        (
            Some(Path::Scalar),
            Way {
                name: "scalar",
                sum: |bytes| Path::Scalar.sum(bytes),
                copy_and_sum: |to, from| Path::Scalar.copy_and_sum(to, from),
            },
        ),
        (
            Some(Path::Avx2),
            Way {
                name: "avx2",
                sum: |bytes| Path::Avx2.sum(bytes),
                copy_and_sum: |to, from| Path::Avx2.copy_and_sum(to, from),
            },
        ),
        (
            Some(Path::Avx512),
            Way {
                name: "avx512",
                sum: |bytes| Path::Avx512.sum(bytes),
                copy_and_sum: |to, from| Path::Avx512.copy_and_sum(to, from),
            },
        ),
    ];
    WAYS.iter().filter(|(path, _)| path.is_none_or(Path::is_here)).map(|(_, way)| way)
}

/// Checks that `to` holds `from` and the guard bytes around it are unchanged. Leaves the guard everywhere.
fn check_copy(area: &mut [u8], to: Range<usize>, from: &[u8], what: impl Fn() -> String) {
    let guard = [GUARD; GUARD_LEN];
    assert!(area[to.clone()] == *from, "{}: the copy differs", what());
    assert!(area[to.start - GUARD_LEN..to.start] == guard, "{}: bytes before it changed", what());
    let behind = &area[to.end..];
    let behind = &behind[..behind.len().min(GUARD_LEN)];
    assert!(*behind == guard[..behind.len()], "{}: bytes behind it changed", what());
    area[to].fill(GUARD);
}

fn long_lens() -> impl Iterator<Item = usize> {
    LONG_LENS.into_iter().filter(|len| !cfg!(miri) || *len < 2_000)
}

/// The sum word by word, with each carry added at once. It is zero only if all bytes are zero.
fn by_hand(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        if sum > 0xFFFF {
            sum -= 0xFFFF;
        }
    }
    sum as u16
}

fn folded(sum: u64) -> u16 {
    fold_of(u128::from(sum))
}

fn fold_of(mut sum: u128) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
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

fn drop_sum(_: u64) {}

const ALIGNMENTS: Range<usize> = 0..64;
const LEN_END: usize = if cfg!(miri) { 300 } else { 600 };
/// Miri tests only some of all cases, because it is slow.
const STEP: usize = if cfg!(miri) { 13 } else { 1 };
/// Lengths around those at which the implementation changes, up to 1 MiB. At longer lengths, lanes that are folded
/// too late overflow.
const LONG_LENS: [usize; 19] = [
    1_023, 1_024, 1_025, 1_459, 1_460, 8_959, 9_001, 32_767, 65_534, 65_535, 65_536, 69_999, 70_000, 1_048_575,
    1_048_576, 1_048_577, 1_048_643, 2_097_217, 9_000_001,
];
const GUARD: u8 = 0xA5;
const GUARD_LEN: usize = 128;
