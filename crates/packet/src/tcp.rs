//! TCP header bytes -> fields and options (RFC 9293).

use crate::checksum::Sum;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of a TCP header (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Sequence number of the first byte.
    pub seq: U32,
    /// The next byte that the sender of this segment expects.
    pub ack: U32,
    data_offset: u8,
    flags: u8,
    /// Receive window, not scaled.
    pub window: U16,
    /// Checksum over pseudo-header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

/// A parsed segment: its fixed header, its options and its payload.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The fixed part of the header.
    pub header: &'a TcpHeader,
    /// Option bytes, padding included.
    pub options: &'a [u8],
    /// Bytes of the stream.
    pub payload: &'a [u8],
}

/// One TCP option, with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// End of the list; the rest is padding.
    End,
    /// One byte of alignment.
    NoOperation,
    /// Longest payload that the sender accepts, in bytes (RFC 9293 section 3.7.1).
    MaximumSegmentSize(u16),
    /// Shift of the window field (RFC 7323 section 2).
    WindowScale(u8),
    /// The sender accepts selective acknowledgements (RFC 2018 section 2).
    SackPermitted,
    /// Blocks of eight bytes, each two sequence numbers (RFC 2018 section 3).
    Sack(&'a [u8]),
    /// Clock of the sender and echo of the other clock (RFC 7323 section 3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The peer's clock, echoed.
        echo: u32,
    },
    /// Any other kind, with its data.
    Other(u8, &'a [u8]),
    /// An impossible length: the rest of the options, as they stand (R114).
    Malformed(&'a [u8]),
}

/// The fields of a whole segment's header, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFacts {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Sequence number of the first byte.
    pub seq: u32,
    /// The next byte that the sender of this segment expects.
    pub ack: u32,
    /// Receive window, not scaled.
    pub window: u16,
    /// The eight flags, CWR first and FIN last.
    pub flags: u8,
    /// Length of the header with its options, in bytes.
    pub header_len: u16,
    /// Payload bytes of the stream.
    pub payload_len: u32,
}

/// The fields of a TCP segment that change along its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegmentFacts {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// The next byte expected from the peer.
    pub ack: u32,
    /// Receive window, not scaled.
    pub window: u16,
    /// PSH and FIN, if set.
    pub ends: u8,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
}

/// The timestamps of a segment, and their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// Offset of the sender's clock, in bytes from the TCP header.
    pub at: u16,
    /// The sender's clock.
    pub value: u32,
    /// The peer's clock, echoed.
    pub echo: u32,
}

impl Segment<'_> {
    /// Reads a TCP segment; none where its header is cut off or malformed.
    pub fn parse(bytes: &[u8]) -> Option<Segment<'_>> {
        let (header, rest) = TcpHeader::ref_from_prefix(bytes).ok()?;
        let options_len = header.header_len().checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(Segment { header, options, payload })
    }
}

/// Bytes behind the header; none where the header is incomplete.
#[inline]
pub(crate) fn payload_len(segment: &[u8]) -> usize {
    let header_len = segment.get(OFFSET_AT).map_or(0, |byte| usize::from(byte >> 4) * 4);
    if header_len < HEADER_LEN { 0 } else { segment.len().saturating_sub(header_len) }
}

impl<'a> Segment<'a> {
    /// The options in order; together they cover all option bytes.
    pub fn options(&self) -> impl Iterator<Item = TcpOption<'a>> {
        options(self.options)
    }
}

/// The options in order; together they cover all of these bytes.
pub(crate) fn options(bytes: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (option, tail) = next_option(rest)?;
        rest = tail;
        Some(option)
    })
}

impl TcpOption<'_> {
    /// Number of its bytes; 1 for the end of the list.
    pub(crate) fn len(&self) -> usize {
        match self {
            TcpOption::End | TcpOption::NoOperation => 1,
            TcpOption::SackPermitted => OPTION_HEADER_LEN,
            TcpOption::WindowScale(_) => OPTION_HEADER_LEN + 1,
            TcpOption::MaximumSegmentSize(_) => OPTION_HEADER_LEN + 2,
            TcpOption::Timestamps { .. } => OPTION_HEADER_LEN + 8,
            TcpOption::Sack(content) | TcpOption::Other(_, content) => OPTION_HEADER_LEN + content.len(),
            TcpOption::Malformed(rest) => rest.len(),
        }
    }
}

impl TcpFacts {
    /// The facts of a segment; none where its header does not fit (see [`Segment::parse`]).
    #[inline]
    pub fn read(segment: &[u8]) -> Option<TcpFacts> {
        let Segment { header, payload, .. } = Segment::parse(segment)?;
        Some(TcpFacts {
            ports: [header.source.get(), header.destination.get()],
            seq: header.seq.get(),
            ack: header.ack.get(),
            window: header.window.get(),
            flags: header.flags,
            header_len: header.header_len() as u16,
            payload_len: payload.len() as u32,
        })
    }
}

impl TcpSegmentFacts {
    /// Whether the sender has no more data for now (RFC 9293 section 3.9.1.2, R116).
    pub fn ends(&self) -> bool {
        self.ends != 0
    }

    /// Whether it ends the stream.
    pub fn is_last(&self) -> bool {
        self.ends & FIN != 0
    }
}

impl TcpHeader {
    /// Length of the header with its options, in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }

    /// The three bits of accurate ECN: AE, CWR and ECE (RFC 9768 section 3.2.2).
    pub fn accurate_ecn_field(&self) -> u8 {
        (self.data_offset & 1) << 2 | self.flags >> 6
    }

    /// Whether AE is set, which only accurate ECN uses (RFC 9768 section 3.2).
    pub fn has_accurate_ecn_bit(&self) -> bool {
        self.data_offset & 1 != 0
    }

    /// The eight flags, CWR first and FIN last.
    pub fn flags(&self) -> u8 {
        self.flags
    }
}

/// The sum of a header without the fields that differ between segments: sequence number, flags, checksum.
pub(crate) fn sum_of_rest(header: &[u8]) -> Sum {
    let Ok((fixed, _)) = TcpHeader::ref_from_prefix(header) else { panic!("a segment has its TCP header") };
    let marks = Sum::long(u32::from(fixed.flags) + u32::from(fixed.checksum.get()));
    Sum::of(header) - (Sum::long(fixed.seq.get()) + marks)
}

/// Writes the fields that differ between the segments of a GSO packet: sequence number, flags, checksum.
///
/// `rest` is the sum of pseudo-header and payload, and the [`sum_of_rest`].
#[inline]
pub(crate) fn stamp(header: &mut [u8], seq: u32, flags: u8, rest: Sum) {
    let Ok((fixed, _)) = TcpHeader::mut_from_prefix(header) else { panic!("a template has its TCP header") };
    fixed.seq = U32::new(seq);
    fixed.flags = flags;
    fixed.checksum = U16::new((rest + Sum::long(seq) + Sum::word(flags.into())).checksum());
}

/// Writes the fields that a GSO packet takes from its last segment: acknowledgement, window, PSH and FIN, echo.
/// Then writes the checksum. `rest` is the sum of the pseudo-header and the payload.
pub(crate) fn seal(header: &mut [u8], last: &TcpSegmentFacts, rest: Sum) {
    let Ok((fixed, _)) = TcpHeader::mut_from_prefix(header) else { panic!("a segment has its TCP header") };
    (fixed.ack, fixed.window) = (U32::new(last.ack), U16::new(last.window));
    let (seq, flags) = (fixed.seq.get(), fixed.flags | last.ends);
    if let Some(stamps) = last.timestamps
        && let Some(echo) = header.get_mut(usize::from(stamps.at) + 4..usize::from(stamps.at) + 8)
    {
        echo.copy_from_slice(&stamps.echo.to_be_bytes());
    }
    let rest = rest + sum_of_rest(header);
    stamp(header, seq, flags, rest);
}

fn next_option(bytes: &[u8]) -> Option<(TcpOption<'_>, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    match kind {
        0 => return Some((TcpOption::End, &[])),
        1 => return Some((TcpOption::NoOperation, rest)),
        _ => {}
    }
    let data = rest
        .split_first()
        .and_then(|(len, rest)| rest.split_at_checked(usize::from(*len).checked_sub(OPTION_HEADER_LEN)?));
    let Some((data, tail)) = data else { return Some((TcpOption::Malformed(bytes), &[])) };
    let option = match (kind, data) {
        (2, &[high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low])),
        (3, &[shift]) => TcpOption::WindowScale(shift),
        (4, &[]) => TcpOption::SackPermitted,
        (5, blocks) if blocks.len().is_multiple_of(8) => TcpOption::Sack(blocks),
        (8, &[v0, v1, v2, v3, e0, e1, e2, e3]) => TcpOption::Timestamps {
            value: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        },
        (kind, data) => TcpOption::Other(*kind, data),
    };
    Some((option, tail))
}

/// Offset of the checksum field, in a segment that holds its whole header.
pub(crate) fn checksum_at(bytes: &[u8]) -> Option<usize> {
    Segment::parse(bytes).map(|_| CHECKSUM_AT)
}

/// Header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Header with the maximum of options, in bytes.
pub const HEADER_LEN_MAX: usize = 60;
/// Flags (RFC 9293 section 3.1, RFC 3168 section 6.1).
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const SYN: u8 = 0x02;
/// See [`FIN`].
pub const RST: u8 = 0x04;
/// See [`FIN`].
pub const PSH: u8 = 0x08;
/// See [`FIN`].
pub const ACK: u8 = 0x10;
/// See [`FIN`].
pub const URG: u8 = 0x20;
/// See [`FIN`].
pub const ECE: u8 = 0x40;
/// See [`FIN`].
pub const CWR: u8 = 0x80;
/// Offset of the data offset, in bytes; it has the upper four bits (RFC 9293 section 3.1).
const OFFSET_AT: usize = 12;
/// Offset of the checksum, in bytes.
pub(crate) const CHECKSUM_AT: usize = 16;
/// Kind and length of an option, in bytes.
const OPTION_HEADER_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_read_and_none_is_lost() {
        let options = [
            2, 4, 0x05, 0xB4, // MSS 1460
            4, 2, // SACK permitted
            8, 10, 0, 0, 0, 7, 0, 0, 0, 9, // time stamps
            1, 3, 3, 7, // padding, window scale 7
            5, 10, 0, 0, 0, 1, 0, 0, 0, 2, // one SACK block
            253, 4, 1, 2, // an experiment
            0, 0,
        ];
        let segment = segment(&options);
        let parsed: Vec<_> = Segment::parse(&segment).unwrap().options().collect();
        assert_eq!(
            parsed,
            [
                TcpOption::MaximumSegmentSize(1_460),
                TcpOption::SackPermitted,
                TcpOption::Timestamps { value: 7, echo: 9 },
                TcpOption::NoOperation,
                TcpOption::WindowScale(7),
                TcpOption::Sack(&[0, 0, 0, 1, 0, 0, 0, 2]),
                TcpOption::Other(253, &[1, 2]),
                TcpOption::End,
            ]
        );
    }

    #[test]
    fn any_option_bytes_are_walked_without_a_panic() {
        for len in [0, 1, 2, 3, 4, 40, 255] {
            for kind in 0..=255 {
                let options = [kind, len, 7, 7];
                let segment = segment(&options);
                let parsed = Segment::parse(&segment).unwrap();
                assert!(parsed.options().count() <= options.len());
                if kind > 1 && !(2..=4).contains(&len) {
                    assert_eq!(parsed.options().next(), Some(TcpOption::Malformed(&options)));
                }
            }
        }
    }

    fn segment(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[12] = (((HEADER_LEN + options.len()) / 4) << 4) as u8;
        bytes.extend(options);
        bytes
    }
}
