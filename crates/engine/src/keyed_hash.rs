//! A key and a value -> a number that cannot be predicted without the key.
//!
//! Hash tables, IP IDs and the jitter of ICMP errors use such numbers. The random key itself is left to the caller.

use core::hash::{Hash, Hasher};
use siphasher::sip::SipHasher13;

/// A 128-bit key for hash tables and IP IDs. An attacker may choose the hashed values. Without the key, the
/// attacker finds no collisions (rel:A10) and predicts no IDs (rel:A24).
#[derive(Clone, Copy)]
pub struct Secret([u64; 2]);

impl Secret {
    /// Makes a key from 128 bits. The caller takes the bits from the random source of its system.
    pub fn new(bits: u128) -> Secret {
        // Seeds chosen by people are small numbers. Different seeds give different keys.
        let low = mix(bits as u64);
        Secret([low, mix((bits >> 64) as u64 ^ low)])
    }

    /// Returns the hash of `value` under this key.
    pub fn hash(&self, value: &impl Hash) -> u64 {
        let [low, high] = self.0;
        let mut hasher = SipHasher13::new_with_keys(low, high);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl Secret {
    /// Returns a fast keyed hash of `value`: one 128-bit multiplication for each eight bytes. For tables in which a
    /// collision costs little.
    pub(crate) fn spread(&self, value: u128) -> u64 {
        let [low, high] = self.0;
        let once = fold(value as u64 ^ low, high | 1);
        fold(once ^ (value >> 64) as u64, low | 1)
    }
}

/// The hash key of one table, for table keys of up to eight words.
///
/// Each pair of words of a value is added to a pair of words of the hash key, and the two sums are multiplied. The
/// 128-bit products are summed (NH; Black and others, UMAC, CRYPTO 1999, section 4). Before folding, the
/// probability that two different values have equal sums is at most 2^-64 for a random hash key. So nobody finds
/// collisions without the hash key (rel:A10). The hash key is never visible: it is derived from the secret by a
/// one-way function, and hashes never leave their table.
#[derive(Clone, Copy)]
pub struct TableKey([u64; TABLE_WORDS + 2]);

impl TableKey {
    /// Derives the hash key of a table from this secret.
    pub(crate) fn new(secret: Secret) -> TableKey {
        TableKey(core::array::from_fn(|index| secret.hash(&index)))
    }

    /// Returns the hash of a value.
    #[inline]
    pub fn hash<const N: usize>(&self, words: [u64; N]) -> u64 {
        const { assert!(N.is_multiple_of(2) && N <= TABLE_WORDS) };
        let TableKey([last_low, last_high, keys @ ..]) = self;
        let (pairs, _) = words.as_chunks::<2>();
        let (key_pairs, _) = keys.as_chunks::<2>();
        let sum = pairs.iter().zip(key_pairs).fold(0u128, |sum, ([one, other], [key, other_key])| {
            sum.wrapping_add(
                u128::from(one.wrapping_add(*key)).wrapping_mul(u128::from(other.wrapping_add(*other_key))),
            )
        });
        fold(sum as u64 ^ last_low, (sum >> 64) as u64 ^ last_high)
    }
}

/// Maximum length of a value, in words.
const TABLE_WORDS: usize = 8;

/// One step of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Folds a 128-bit product into 64 bits.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl core::fmt::Debug for TableKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TableKey")
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_key_and_secret_changes_the_hash() {
        let table = TableKey::new(Secret::new(5));
        let words = [0x1234, 0, u64::MAX, 7, 0, 0, 1 << 63, 9];
        let hash = table.hash(words);
        for word in 0..8 {
            for bit in 0..64 {
                let mut other = words;
                other[word] ^= 1 << bit;
                let moved = (table.hash(other) ^ hash).count_ones();
                assert!((8..=56).contains(&moved), "word {word}, bit {bit}: {moved} bits of the hash move");
            }
        }
        assert!((0..128).all(|bit| TableKey::new(Secret::new(5 ^ 1 << bit)).hash(words) != hash));
    }

    #[test]
    fn one_step_is_that_of_split_mix_64() {
        // The first numbers of the SplitMix64 authors' generator for these seeds.
        assert_eq!([mix(0), mix(1_234_567)], [0xE220_A839_7B1D_CDAF, 6_457_827_717_110_365_317]);
    }

    #[test]
    fn every_upper_bit_of_a_sum_changes_the_hash() {
        let table = TableKey::new(Secret::new(5));
        let TableKey([_, _, one, other, rest @ ..]) = table;
        // The sum is the number times 2^64, so only its upper half is not zero.
        let hash = |number: u64| {
            let mut words = [0; 8];
            words[0] = (1_u64 << 32).wrapping_sub(one);
            words[1] = (number << 32).wrapping_sub(other);
            words[2..].iter_mut().zip(rest).for_each(|(word, key)| *word = key.wrapping_neg());
            table.hash(words)
        };
        assert!((0..32).all(|bit| hash(1 << bit) != hash(0)));
    }

    #[test]
    fn keys_in_a_row_spread_over_a_table() {
        for seed in 0..20 {
            let table = TableKey::new(Secret::new(seed));
            let mut homes = vec![0u32; 4_096];
            (0..4_096u64).for_each(|id| homes[(table.hash([7, 9, id, 0]) >> 32) as usize % 4_096] += 1);
            let most = homes.iter().max().copied().unwrap_or_default();
            assert!(most <= 10, "seed {seed}: {most} of 4,096 at one home");
        }
    }
}
