//! Bytes -> their checksums.
//!
//! The input is byte strings without headers, so that only the checksum computation is timed.

use super::Station;
use super::arena::memory;
use super::ask::Ask;
use crate::section::Section;
use packet::Sum;

struct Summing {
    /// The bytes of all copies of the section, and the position of each string in a copy.
    bytes: &'static [u8],
    places: Vec<Strings>,
    next: usize,
    checksums: Vec<u16>,
}

/// Opens a station that computes the checksums of a section's strings.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    let (bytes, places) = lay(ask, &section);
    Ok(Box::new(Summing { bytes, places, next: 0, checksums: Vec::with_capacity(section.len()) }))
}

/// Offset and length of each string of one copy.
pub type Strings = Vec<(usize, usize)>;

/// Lays copies of a section's strings in memory, each aligned to a cache line. Returns the memory and the strings'
/// positions in each copy.
pub fn lay(ask: &Ask, section: &Section) -> (&'static mut [u8], Vec<Strings>) {
    let stride = section.longest().next_multiple_of(64);
    let bytes = memory(ask.ring * section.len() * stride, ask.pages);
    let places: Vec<Strings> = (0..ask.ring)
        .map(|copy| {
            let first = copy * section.len();
            section.packets().enumerate().map(|(index, string)| ((first + index) * stride, string.len())).collect()
        })
        .collect();
    for copy in &places {
        for ((at, len), string) in copy.iter().zip(section.packets()) {
            bytes[*at..at + len].copy_from_slice(string);
        }
    }
    (bytes, places)
}

impl Station for Summing {
    fn fill(&mut self) {
        self.checksums.clear();
        self.next = (self.next + 1) % self.places.len();
    }

    fn section(&mut self) -> usize {
        timed_section(self.bytes, &self.places[self.next], &mut self.checksums)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        self.section();
        self.checksums.iter().for_each(|checksum| tell(&checksum.to_be_bytes()));
    }

    fn delivers(&self) -> String {
        "Internet checksums".to_string()
    }
}

#[inline(never)]
fn timed_section(bytes: &[u8], places: &[(usize, usize)], checksums: &mut Vec<u16>) -> usize {
    for (at, len) in places {
        checksums.push(Sum::of(&bytes[*at..at + len]).checksum());
    }
    checksums.len()
}
