//! TCP header fields as a struct of numbers. Sequence numbers of 32 bits -> positions in the stream.
//!
//! A segment holds no payload. `len` is its length, and its bytes follow from their offset in the stream.

use packet::Ecn;
pub use packet::tcp::{ACK, CWR, ECE, FIN, PSH, RST, SYN};

/// The fields of one segment (RFC 9293 section 3.1), options included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of its first byte, or of its SYN.
    pub seq: u32,
    /// The next sequence number that its sender expects, if [`ACK`] is set.
    pub ack: u32,
    /// Its flags, such as [`SYN`].
    pub flags: u8,
    /// The window field, not scaled.
    pub window: u16,
    /// Length of its payload, in bytes.
    pub len: u32,
    /// Longest payload that its sender accepts, in bytes (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the window field in all segments but this one (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Whether its sender accepts selective acknowledgements (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// Timestamps option (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// Ranges that its sender holds beyond `ack` (RFC 2018 section 3).
    pub sack: Blocks,
    /// The ECN field of the packet that carries it (RFC 3168 section 5).
    pub ecn: Ecn,
}

/// The sender's clock, and the last clock value received from the peer (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The receiver's clock, echoed.
    pub echo: u32,
}

/// Up to four blocks of sequence numbers. The end of each is exclusive (RFC 2018 section 3).
#[derive(Clone, Copy, Default)]
pub struct Blocks {
    blocks: [(u32, u32); BLOCK_COUNT_MAX],
    count: u8,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            len: 0,
            mss: None,
            window_scale: None,
            sack_permitted: false,
            timestamps: None,
            sack: Blocks::default(),
            ecn: Ecn::NotEct,
        }
    }
}

impl Segment {
    /// Whether this flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Length in sequence space: one for each byte, one for SYN, one for FIN (RFC 9293 section 3.4).
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// Length of its options in bytes, padding included.
    pub fn option_len(&self) -> usize {
        let stamps = if self.timestamps.is_some() { STAMPS_LEN } else { 0 };
        if !self.has(SYN) {
            return stamps + sack_option_len(self.sack.len());
        }
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        // SACK-permitted replaces the two padding bytes of the timestamps.
        let permitted = if self.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        mss + scale + permitted + stamps
    }

    /// Length of its header in bytes, options included.
    pub fn header_len(&self) -> usize {
        packet::tcp::HEADER_LEN + self.option_len()
    }
}

impl Blocks {
    /// Appends a block, unless there are four.
    pub fn push(&mut self, start: u32, end: u32) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (start, end);
            self.count += 1;
        }
    }

    /// Number of blocks.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The blocks in order.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..self.len()]
    }

    /// Keeps only the first `count` blocks.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count as u8);
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Blocks) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Blocks {}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Length of a SACK option with this many blocks and two bytes of padding, in bytes.
pub(crate) fn sack_option_len(count: usize) -> usize {
    if count == 0 { 0 } else { 4 + 8 * count }
}

/// Maps the sequence numbers of one direction to positions that never wrap: 0 is the SYN, 1 the first byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    initial: u32,
}

impl Numbering {
    /// Starts at the sequence number of the SYN.
    pub(crate) fn new(initial: u32) -> Numbering {
        Numbering { initial }
    }

    /// The sequence number of a position.
    #[inline]
    pub(crate) fn seq(self, place: u64) -> u32 {
        self.initial.wrapping_add(place as u32)
    }

    /// The position of a sequence number: the one nearest to `near`; none before the SYN.
    #[inline]
    pub(crate) fn place(self, seq: u32, near: u64) -> Option<u64> {
        let distance = seq.wrapping_sub(self.seq(near)) as i32;
        near.checked_add_signed(i64::from(distance))
    }
}

/// Whether timestamp `one` is before `other`, with wrapping (RFC 7323 section 5.2).
#[inline]
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// Most blocks that fit into the options of one header (RFC 2018 section 3).
pub const BLOCK_COUNT_MAX: usize = 4;
/// Length of the timestamps option with two bytes of padding (RFC 7323 appendix A).
pub(crate) const STAMPS_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_survives_any_sequence_number_wrap() {
        for initial in [0, 1, u32::MAX, u32::MAX - 5, 1 << 31] {
            let numbering = Numbering::new(initial);
            for place in [0u64, 1, 5, 6, 7, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 32) + 9, 1 << 40] {
                for near in [place, place.saturating_sub(1 << 30), place + (1 << 30)] {
                    assert_eq!(
                        numbering.place(numbering.seq(place), near),
                        Some(place),
                        "{initial} {place} {near}"
                    );
                }
            }
        }
        assert_eq!(Numbering::new(9).place(8, 0), None, "nothing is before the SYN");
    }

    #[test]
    fn a_fifth_block_is_left_out() {
        let mut blocks = Blocks::default();
        (0..5).for_each(|block| blocks.push(block, block + 1));
        assert_eq!(blocks.as_slice(), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    }
}
