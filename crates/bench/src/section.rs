//! Packets -> one file with all of them, and back.
//!
//! This file format is the input and output of every harness; `crates/bench/peers/README.md` defines it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Consecutive packets, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Section {
    /// Appends a packet to the section.
    pub fn push(&mut self, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.ends.push(self.bytes.len());
    }

    /// Returns the packets in order.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..*end]
        })
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the total length of the packets, in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length of the longest packet, in bytes.
    pub fn longest(&self) -> usize {
        self.packets().map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Reads a file of packets.
    ///
    /// # Errors
    /// The file cannot be read, or is not a file of packets.
    pub fn read(path: &Path) -> io::Result<Section> {
        let file = std::fs::read(path)?;
        Section::parse(&file).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: not a packet file of this benchmark", path.display()),
            )
        })
    }

    fn parse(file: &[u8]) -> Option<Section> {
        let rest = file.strip_prefix(MAGIC)?;
        let (count, mut rest) = number(rest)?;
        let mut section = Section::default();
        section.bytes.reserve(rest.len());
        for _ in 0..count {
            let (len, after) = number(rest)?;
            let (packet, after) = after.split_at_checked(len)?;
            section.push(packet);
            rest = after;
        }
        rest.is_empty().then_some(section)
    }

    /// Writes a file of packets.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(MAGIC)?;
        file.write_all(&(self.len() as u32).to_le_bytes())?;
        for packet in self.packets() {
            file.write_all(&(packet.len() as u32).to_le_bytes())?;
            file.write_all(packet)?;
        }
        file.flush()
    }
}

impl<P: AsRef<[u8]>> FromIterator<P> for Section {
    fn from_iter<I: IntoIterator<Item = P>>(packets: I) -> Section {
        let mut section = Section::default();
        packets.into_iter().for_each(|packet| section.push(packet.as_ref()));
        section
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

/// First bytes of a file of packets.
const MAGIC: &[u8] = b"WLBENCH1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("section");
        let section: Section = [vec![1, 2, 3], vec![], vec![4; 70_000]].into_iter().collect();
        section.write(&path).unwrap();
        assert_eq!(Section::read(&path).unwrap(), section);
        let mut file = std::fs::read(&path).unwrap();
        assert_eq!(&file[..16], b"WLBENCH1\x03\0\0\0\x03\0\0\0");
        file.pop();
        std::fs::write(&path, &file).unwrap();
        assert!(Section::read(&path).unwrap_err().to_string().contains("not a packet file"));
    }
}
