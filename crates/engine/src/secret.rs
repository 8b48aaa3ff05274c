//! A key and anything in, a number out that nobody without the key can foresee.

use core::hash::{Hash, Hasher};
use siphasher::sip::SipHasher13;

/// A 128-bit key for hash tables and identifiers: who can choose what is hashed, but not the key, finds no collisions
/// (rel:A10) and no identifiers (rel:A24).
#[derive(Clone, Copy)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A key from 128 bits, which the caller draws from its system.
    pub fn new(bits: u128) -> Secret {
        // Seeds that people choose are small numbers; no two become one key.
        let low = mix(bits as u64);
        Secret([low, mix((bits >> 64) as u64 ^ low)])
    }

    /// The hash of `value` under this key.
    pub fn hash(&self, value: &impl Hash) -> u64 {
        let [low, high] = self.0;
        let mut hasher = SipHasher13::new_with_keys(low, high);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl Secret {
    /// A quick number for `value`, for tables in which things that meet cost each other little: one wide multiplication
    /// for each eight bytes, keyed.
    pub(crate) fn spread(&self, value: u128) -> u64 {
        let [low, high] = self.0;
        let once = fold(value as u64 ^ low, high | 1);
        fold(once ^ (value >> 64) as u64, low | 1)
    }
}

/// One step of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Both halves of a wide product, folded into one.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
