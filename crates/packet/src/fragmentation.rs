//! Payload length, header lengths and MTU -> the payload range of each fragment.
//!
//! Only the arithmetic of fragmentation is here. [`Template`](crate::Template) writes the headers of the fragments.

use crate::bitmap;
use core::ops::Range;

/// The parameters for the fragmentation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmentation {
    /// Maximum length of a fragment, in bytes, including the IP header.
    pub mtu: u16,
    /// IP ID of all fragments.
    pub id: u32,
    /// Distribution of the payload over the fragments.
    pub split: Split,
    /// Whether the complete payload is present, or only the bytes marked in the buffer's bitmap.
    pub content: Content,
}

/// Distribution of a payload over fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// The minimum number of fragments, all full except the last (RFC 1812 section 4.2.2.7, R030).
    #[default]
    Max,
    /// The minimum number of fragments, with nearly equal lengths, so that the last is never tiny (C30).
    Balanced,
}

/// Whether the complete payload of a packet is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All bytes are present.
    Complete,
    /// Only some bytes of an incomplete datagram are present. The buffer's bitmap marks them.
    Sparse,
}

/// Iterator over the payload ranges of the fragments, in order.
#[derive(Clone, Debug)]
pub struct FragmentRanges<'a> {
    /// Start of the next fragment in the payload, in bytes. `run_end` is the end of the contiguous present bytes
    /// from there.
    at: usize,
    run_end: usize,
    end: usize,
    split: Split,
    /// Maximum payload of the fragment at offset 0, in bytes. `room` is that of all other fragments.
    first_room: usize,
    room: usize,
    bitmap: Option<&'a [u8]>,
}

impl<'a> FragmentRanges<'a> {
    /// Iterates over the fragments of `payload_len` bytes. `headers` contains two header lengths in bytes: of the
    /// fragment at offset 0, and of all others. `bitmap` marks the present 8-byte units. Without a bitmap, all
    /// bytes are present.
    #[inline]
    pub fn new(
        cut: &Fragmentation,
        payload_len: usize,
        headers: [usize; 2],
        bitmap: Option<&'a [u8]>,
    ) -> FragmentRanges<'a> {
        let [first_room, room] = headers.map(|header_len| usize::from(cut.mtu).saturating_sub(header_len));
        assert!(first_room.min(room) >= UNIT, "every hop takes a header and eight bytes of payload");
        let run_end = if bitmap.is_none() { payload_len } else { 0 };
        FragmentRanges { at: 0, run_end, end: payload_len, split: cut.split, first_room, room, bitmap }
    }

    /// Returns the number of fragments, and the sum of their payload bytes.
    pub fn totals(self) -> (usize, usize) {
        if self.bitmap.is_none() && self.at < self.run_end {
            return (self.fragments_left(), self.run_end - self.at);
        }
        self.fold((0, 0), |(count, bytes), share| (count + 1, bytes + share.len()))
    }

    /// Returns the number of fragments for the rest of the contiguous present bytes.
    fn fragments_left(&self) -> usize {
        let left = self.run_end - self.at;
        let first = self.room_here();
        if left <= first {
            return 1;
        }
        let after_first = left - round_down(first);
        // All fragments except the last have a multiple of eight bytes. The last may have any length.
        1 + if after_first <= self.room { 1 } else { (after_first - self.room).div_ceil(round_down(self.room)) + 1 }
    }

    /// Advances to the next contiguous present bytes. Returns false if there are none.
    #[cold]
    fn find_run(&mut self) -> bool {
        let Some(units) = self.bitmap.and_then(|bitmap| bitmap::next_run(bitmap, self.at.div_ceil(UNIT))) else {
            return false;
        };
        self.at = units.start * UNIT;
        self.run_end = (units.end * UNIT).min(self.end);
        self.at < self.end
    }

    #[inline]
    fn room_here(&self) -> usize {
        if self.at == 0 { self.first_room } else { self.room }
    }
}

impl Iterator for FragmentRanges<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.at == self.run_end && !self.find_run() {
            return None;
        }
        let left = self.run_end - self.at;
        let room = self.room_here();
        let len = match self.split {
            _ if left <= room => left,
            Split::Max => round_down(room),
            Split::Balanced => left.div_ceil(self.fragments_left()).next_multiple_of(UNIT).min(round_down(room)),
        };
        let share = self.at..self.at + len;
        self.at = share.end;
        Some(share)
    }
}

#[inline]
fn round_down(len: usize) -> usize {
    len / UNIT * UNIT
}

/// Every fragment except the last has a multiple of this many payload bytes (RFC 791 section 3.2, RFC 8200 section
/// 4.5, R001).
pub const UNIT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_payload_in_the_fewest_fragments() {
        for split in [Split::Max, Split::Balanced] {
            for (mtu, headers) in
                [(68, [20, 20]), (68, [60, 20]), (69, [60, 60]), (576, [24, 20]), (1_280, [48, 48])]
            {
                let cut = Fragmentation { mtu, id: 0, split, content: Content::Complete };
                for payload_len in (1..2_000).chain(60_000..60_100) {
                    let fragment_ranges: Vec<_> = FragmentRanges::new(&cut, payload_len, headers, None).collect();
                    check(&fragment_ranges, payload_len, usize::from(mtu), headers);
                    let full = Fragmentation { split: Split::Max, ..cut };
                    let fewest = FragmentRanges::new(&full, payload_len, headers, None).count();
                    assert_eq!(fragment_ranges.len(), fewest, "{split:?}: {payload_len} bytes at {mtu}");
                    assert_eq!(fewest, fewest_possible(payload_len, usize::from(mtu), headers));
                    let totals = FragmentRanges::new(&cut, payload_len, headers, None).totals();
                    assert_eq!(totals, (fewest, payload_len));
                }
            }
        }
    }

    #[test]
    fn even_shares_differ_by_less_than_two_units() {
        let cut = Fragmentation { mtu: 1_500, id: 0, split: Split::Balanced, content: Content::Complete };
        for payload_len in 1_481..65_000 {
            let lens = FragmentRanges::new(&cut, payload_len, [20, 20], None).map(|share| share.len());
            let (min, max) = lens.fold((usize::MAX, 0), |(min, max), len| (min.min(len), max.max(len)));
            let count = payload_len.div_ceil(1_480);
            assert!(max - min <= UNIT * count, "{payload_len}: {min} to {max}");
            assert!(min >= 700 || payload_len < 1_500, "{payload_len}: a tiny piece of {min}");
        }
    }

    #[test]
    fn a_sparse_payload_leaves_out_its_holes() {
        let mut bitmap = [0u8; 32];
        bitmap::set(&mut bitmap, 2..4);
        bitmap::set(&mut bitmap, 10..13);
        let cut = Fragmentation { mtu: 36, id: 0, split: Split::Max, content: Content::Sparse };
        let fragment_ranges: Vec<_> = FragmentRanges::new(&cut, 101, [20, 20], Some(&bitmap)).collect();
        assert_eq!(fragment_ranges, [16..32, 80..96, 96..101]);
        assert_eq!(FragmentRanges::new(&cut, 101, [20, 20], Some(&bitmap)).totals(), (3, 37));
    }

    fn check(fragment_ranges: &[Range<usize>], payload_len: usize, mtu: usize, headers: [usize; 2]) {
        let mut at = 0;
        for (index, share) in fragment_ranges.iter().enumerate() {
            assert_eq!(share.start, at);
            assert!(!share.is_empty() && share.len() + headers[usize::from(index > 0)] <= mtu);
            assert!(share.len() % UNIT == 0 || share.end == payload_len);
            at = share.end;
        }
        assert_eq!(at, payload_len);
    }

    /// Tries increasing numbers of fragments until they have room for the payload.
    fn fewest_possible(payload_len: usize, mtu: usize, [first, later]: [usize; 2]) -> usize {
        if payload_len <= mtu - first {
            return 1;
        }
        (2..)
            .find(|count| {
                (mtu - first) / 8 * 8 + (count - 2) * ((mtu - later) / 8 * 8) + mtu - later >= payload_len
            })
            .unwrap()
    }
}
