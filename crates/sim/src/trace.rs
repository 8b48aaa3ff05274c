//! All that happens in, one number out: two runs with the same number were the same run.

use crate::draw::GOLDEN;

/// A running hash of events and of the frames that were put on wires.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace(u64);

impl Trace {
    /// Takes in a number.
    #[inline]
    pub fn note(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(29);
    }

    /// Takes in a frame: its length, its headers, and where it ends.
    #[inline]
    pub fn note_frame(&mut self, wire: usize, frame: &[u8]) {
        self.note((wire as u64) << 32 | frame.len() as u64);
        let (words, _) = frame[..frame.len().min(40)].as_chunks::<8>();
        words.iter().for_each(|word| self.note(u64::from_le_bytes(*word)));
        if let Some(last) = frame.last_chunk::<8>() {
            self.note(u64::from_le_bytes(*last));
        }
    }

    /// The hash so far.
    pub fn hash(self) -> u64 {
        crate::draw::mix(self.0)
    }
}
