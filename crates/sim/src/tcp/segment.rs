//! TCP header fields as numbers, and 32-bit sequence numbers -> positions in the stream.
//!
//! A segment has a payload length but no bytes, because the bytes follow from their offset in the stream.

use packet::Ecn;
pub use packet::tcp::{ACK, CWR, ECE, FIN, PSH, RST, SYN};

/// The header fields of a segment (RFC 9293 section 3.1), including options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the segment's first byte or SYN.
    pub seq: u32,
    /// The acknowledgement number, valid if [`ACK`] is set.
    pub ack: u32,
    /// The flags, such as [`SYN`].
    pub flags: u8,
    /// The window field, without scaling.
    pub window: u16,
    /// Length of the payload, in bytes.
    pub len: u32,
    /// The MSS option: maximum payload that the segment's sender accepts, in bytes (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// The window scale option: shift of the window field in all segments without SYN (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Whether the SACK-permitted option is present (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// The timestamps option (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// The SACK blocks: received ranges behind `ack` (RFC 2018 section 3).
    pub sack: Blocks,
    /// The ECN field of the segment's IP header (RFC 3168 section 5).
    pub ecn: Ecn,
}

/// The values of a timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The clock of the segment's sender (TSval).
    pub value: u32,
    /// The last clock value received from the peer (TSecr).
    pub echo: u32,
}

/// Up to four SACK blocks: start and exclusive end of each (RFC 2018 section 3).
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
    /// Whether `flag` is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Length in sequence numbers: one per payload byte, one for SYN, one for FIN (RFC 9293 section 3.4).
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// Length of the options in bytes, with padding.
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

    /// Length of the TCP header in bytes, with options.
    pub fn header_len(&self) -> usize {
        packet::tcp::HEADER_LEN + self.option_len()
    }
}

impl Blocks {
    /// Appends a block; ignored if there are already four.
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

    /// The blocks, in the order of the option.
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

/// Converts the sequence numbers of one direction to positions that never wrap. SYN has position 0, the first byte
/// 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    initial: u32,
}

impl Numbering {
    /// A numbering whose SYN has sequence number `initial`.
    pub(crate) fn new(initial: u32) -> Numbering {
        Numbering { initial }
    }

    /// Converts a position to a sequence number.
    #[inline]
    pub(crate) fn seq(self, place: u64) -> u32 {
        self.initial.wrapping_add(place as u32)
    }

    /// Converts a sequence number to the position nearest to `near`; `None` before the SYN.
    #[inline]
    pub(crate) fn place(self, seq: u32, near: u64) -> Option<u64> {
        let distance = seq.wrapping_sub(self.seq(near)) as i32;
        near.checked_add_signed(i64::from(distance))
    }
}

/// Whether timestamp `one` is older than `other`, modulo 2^32 (RFC 7323 section 5.2).
#[inline]
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// Maximum number of SACK blocks in one header (RFC 2018 section 3).
pub const BLOCK_COUNT_MAX: usize = 4;
/// Length of the timestamps option with padding, in bytes (RFC 7323 appendix A).
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
