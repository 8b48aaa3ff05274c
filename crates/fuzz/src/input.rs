//! Fuzzer bytes -> small numbers and choices. After the last byte, all values are zero.
//!
//! The targets decode their programs with these functions.

/// The bytes not yet used.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }

    pub fn bit(&mut self) -> bool {
        self.byte() & 1 > 0
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        front
    }
}
