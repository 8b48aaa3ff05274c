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
        Secret([bits as u64, (bits >> 64) as u64])
    }

    /// The hash of `value` under this key.
    pub fn hash(&self, value: &impl Hash) -> u64 {
        let [low, high] = self.0;
        let mut hasher = SipHasher13::new_with_keys(low, high);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
