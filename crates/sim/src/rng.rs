//! A seed and a packet number -> the random events of that packet.
//!
//! Each [`Question`] has a random sequence of its own, indexed by packet number. The same seed therefore drops the
//! same packets at any rate. Adding jitter does not change the losses. The mixing function is part of this crate,
//! so that updates of dependencies do not change the packets of a seed.

use crate::link::{Burst, LinkShape};

/// The purpose of a random number.
#[derive(Clone, Copy)]
pub(crate) enum Question {
    Loss = 1,
    Burst,
    Jitter,
    Reorder,
    Duplicate,
    Bits,
    ByteLoss,
    Early,
}

/// The random number of packet `index` for the purpose `question`.
pub(crate) fn draw(seed: u64, question: Question, index: u64) -> u64 {
    mix(mix(seed ^ mix(question as u64)).wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// Whether an event with probability `share` happens to packet `index`.
pub(crate) fn befalls(share: f64, seed: u64, question: Question, index: u64) -> bool {
    share > 0.0 && unit(draw(seed, question, index)) < share
}

/// Converts 64 random bits to a number in [0, 1).
fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

/// A sequential random number generator, for choices that do not belong to a packet number of a link.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed))
    }

    /// A random 64-bit number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A random number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// A random number from `least` to `most`, both included.
    pub fn from(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A random number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        unit(self.number())
    }

    /// Returns true with probability 1 / `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns a random element of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// An iterator over the packets of a link, from the first packet on: whether `loss` or `burst` of the link's shape
/// drops each.
#[derive(Clone, Debug)]
pub struct Losses {
    seed: u64,
    loss: f64,
    burst: Option<Burst>,
    index: u64,
    is_in_burst: bool,
}

impl Losses {
    /// The iterator for a link of this shape, before the first packet.
    pub fn new(shape: &LinkShape) -> Losses {
        Losses { seed: shape.seed, loss: shape.loss, burst: shape.burst, index: 0, is_in_burst: false }
    }
}

impl Iterator for Losses {
    type Item = bool;

    fn next(&mut self) -> Option<bool> {
        let index = self.index;
        self.index += 1;
        if let Some(burst) = self.burst {
            let share = if self.is_in_burst { burst.ends } else { burst.begins };
            self.is_in_burst ^= befalls(share, self.seed, Question::Burst, index);
        }
        Some(self.is_in_burst || befalls(self.loss, self.seed, Question::Loss, index))
    }
}

/// The offsets of flipped bits in packet `index`, in bits. Each bit flips with probability `share`.
///
/// Only the gaps between flipped bits are drawn, so long packets with few errors cost little.
pub(crate) fn flipped_bits(share: f64, seed: u64, index: u64, bit_count: u64) -> impl Iterator<Item = u64> {
    let mut number = draw(seed, Question::Bits, index);
    let mut at = 0u64;
    core::iter::from_fn(move || {
        number = mix(number.wrapping_add(GOLDEN));
        // 1 - u is above 0, so its logarithm is finite. A share of 1 makes every gap 0.
        let gap = (1.0 - unit(number)).ln() / (-share).ln_1p();
        at = at.saturating_add(gap as u64);
        let flipped = (share > 0.0 && at < bit_count).then_some(at);
        at = at.saturating_add(1);
        flipped
    })
}

/// The finaliser of SplitMix64 (Steele and others, OOPSLA 2014).
pub(crate) fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(GOLDEN);
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_rate_is_the_probability() {
        for loss in [0.001, 0.01, 0.1, 0.5] {
            let shape = LinkShape { loss, seed: 3, ..LinkShape::default() };
            let count = Losses::new(&shape).take(1_000_000).filter(|lost| *lost).count() as f64;
            let deviation = (1e6 * loss * (1.0 - loss)).sqrt();
            assert!((count - 1e6 * loss).abs() < 5.0 * deviation, "{count} of a million at {loss}");
        }
    }

    #[test]
    fn burst_losses_have_gilberts_rate_and_length() {
        let shape = LinkShape { burst: Some(Burst { begins: 0.01, ends: 0.25 }), seed: 9, ..LinkShape::default() };
        let lost: Vec<bool> = Losses::new(&shape).take(1_000_000).collect();
        let count = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((count / 1e6 - 0.01 / 0.26).abs() < 0.002, "{count} of a million, expected p / (p + r)");
        assert!((count / bursts - 4.0).abs() < 0.1, "{} packets a burst, expected 1 / r", count / bursts);
    }

    #[test]
    fn the_bit_flip_rate_is_the_probability_without_repeats() {
        for share in [1e-6, 1e-4, 0.01, 0.9] {
            let packet_count = if share < 1e-5 { 200_000 } else { 2_000 };
            let mut count = 0;
            for index in 0..packet_count {
                let bits: Vec<u64> = flipped_bits(share, 5, index, 12_000).collect();
                assert!(bits.is_sorted_by(|one, other| one < other) && bits.iter().all(|bit| *bit < 12_000));
                count += bits.len();
            }
            let expected = share * packet_count as f64 * 12_000.0;
            assert!(
                (count as f64 - expected).abs() < 5.0 * expected.sqrt(),
                "{count} at {share}, expected {expected}"
            );
        }
        assert_eq!(flipped_bits(1.0, 5, 0, 100).count(), 100);
        assert_eq!(flipped_bits(0.0, 5, 0, 100).count(), 0);
    }

    #[test]
    fn random_draws_are_independent() {
        let agree = (0..100_000)
            .filter(|index| befalls(0.5, 1, Question::Loss, *index) == befalls(0.5, 1, Question::Reorder, *index))
            .count();
        assert!((49_000..51_000).contains(&agree), "{agree} of 100,000 agree");
        let seeds = (0..100_000)
            .filter(|index| befalls(0.5, 1, Question::Loss, *index) == befalls(0.5, 2, Question::Loss, *index))
            .count();
        assert!((49_000..51_000).contains(&seeds), "{seeds} of 100,000 agree between two seeds");
    }
}
