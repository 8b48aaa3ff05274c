//! A map of bits in, runs of set bits out: which eights of bytes of a datagram are here.
//!
//! One bit stands for eight bytes, IP's unit of fragmentation. A query or a change touches a few words, whatever the
//! order in which pieces come.

use core::ops::Range;

/// Sets the bits of `units`.
pub fn set(map: &mut [u8], units: Range<usize>) {
    each_word(map, units, |word, mask| *word |= mask);
}

/// How many of the bits of `units` are set.
pub fn count(map: &[u8], units: Range<usize>) -> usize {
    let (words, _) = map.as_chunks::<WORD_LEN>();
    words_of(&units)
        .map(|index| {
            let word = words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
            (word & mask(index, &units)).count_ones() as usize
        })
        .sum()
}

/// The first run of set bits at or after `from`.
pub fn next_run(map: &[u8], from: usize) -> Option<Range<usize>> {
    let start = seek(map, from, 0)?;
    let end = seek(map, start, u64::MAX).unwrap_or(map.len() * 8);
    Some(start..end)
}

/// The first bit at or after `from` that differs from those of `uniform`, a word of zeros or of ones.
fn seek(map: &[u8], from: usize, uniform: u64) -> Option<usize> {
    let (words, _) = map.as_chunks::<WORD_LEN>();
    let first = from / WORD_BITS;
    words.iter().enumerate().skip(first).find_map(|(index, word)| {
        let mut differing = u64::from_le_bytes(*word) ^ uniform;
        if index == first {
            differing &= u64::MAX << (from % WORD_BITS);
        }
        (differing != 0).then(|| index * WORD_BITS + differing.trailing_zeros() as usize)
    })
}

fn each_word(map: &mut [u8], units: Range<usize>, mut change: impl FnMut(&mut u64, u64)) {
    let (words, _) = map.as_chunks_mut::<WORD_LEN>();
    for index in words_of(&units) {
        let Some(bytes) = words.get_mut(index) else { panic!("a datagram's bits lie in its buffer's map") };
        let mut word = u64::from_le_bytes(*bytes);
        change(&mut word, mask(index, &units));
        *bytes = word.to_le_bytes();
    }
}

fn words_of(units: &Range<usize>) -> Range<usize> {
    units.start / WORD_BITS..units.end.div_ceil(WORD_BITS)
}

/// The bits of word `index` that lie in `units`.
fn mask(index: usize, units: &Range<usize>) -> u64 {
    let start = units.start.saturating_sub(index * WORD_BITS);
    let end = units.end.saturating_sub(index * WORD_BITS).min(WORD_BITS);
    if start >= end { 0 } else { (u64::MAX >> (WORD_BITS - (end - start))) << start }
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
                let mut map = [0u8; 32];
                set(&mut map, start..end);
                let bits: Vec<_> = (0..256).filter(|bit| map[bit / 8] >> (bit % 8) & 1 == 1).collect();
                assert_eq!(bits, (start..end).collect::<Vec<_>>());
                assert_eq!(count(&map, 0..256), end - start);
                assert_eq!(count(&map, 100..150), end.clamp(100, 150) - start.clamp(100, 150));
                assert_eq!(next_run(&map, 0), (start < end).then_some(start..end));
            }
        }
    }

    #[test]
    fn runs_come_one_after_the_other() {
        let mut map = [0u8; 32];
        for run in [0..1, 3..64, 65..130, 255..256] {
            set(&mut map, run);
        }
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some(run) = next_run(&map, from) {
            from = run.end;
            runs.push(run);
        }
        assert_eq!(runs, [0..1, 3..64, 65..130, 255..256]);
    }
}
