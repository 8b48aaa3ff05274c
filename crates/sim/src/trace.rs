//! Events and frames -> a hash.
//!
//! Simulations with equal hashes had the same events, and the same lengths, headers and last bytes of frames.

use crate::rng::GOLDEN;

/// A running hash of events and transmitted frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace(u64);

impl Trace {
    /// Adds a number to the hash.
    #[inline]
    pub fn note(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(29);
    }

    /// Adds a frame to the hash: its length, its headers and its last bytes.
    #[inline]
    pub fn note_frame(&mut self, wire: usize, frame: &[u8]) {
        let mut digest = (wire as u64) << 32 | frame.len() as u64;
        let (words, _) = frame[..frame.len().min(40)].as_chunks::<8>();
        // Each word has its own factor, so that no multiplication waits for the previous one.
        for (word, factor) in words.iter().chain(frame.last_chunk()).zip(FACTORS) {
            digest ^= u64::from_le_bytes(*word).wrapping_mul(factor).rotate_left(23);
        }
        self.note(digest);
    }

    /// Returns the hash of everything added so far.
    pub fn hash(self) -> u64 {
        crate::rng::mix(self.0)
    }
}

/// Odd multipliers for the words of a frame, taken from the digits of pi.
const FACTORS: [u64; 6] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7345,
    0xA409_3822_299F_31D1,
    0x082E_FA98_EC4E_6C89,
    0x4528_21E6_38D0_1377,
    0xBE54_66CF_34E9_0C6D,
];
