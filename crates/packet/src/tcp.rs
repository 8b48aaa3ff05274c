//! TCP header bytes -> fields and options (RFC 9293).
//!
//! The engine needs typed access to headers, and a canonical form for changed ones. Sequence number comparisons are
//! left to the engine.

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
    /// Sequence number of the first payload byte.
    pub seq: U32,
    /// Acknowledgement number: the next byte expected from the peer.
    pub ack: U32,
    data_offset: u8,
    flags: u8,
    /// Receive window, without window scaling.
    pub window: U16,
    /// Checksum over pseudo-header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

/// A parsed TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The fixed part of the header.
    pub header: &'a TcpHeader,
    /// Option bytes, including padding.
    pub options: &'a [u8],
    /// Payload of the segment.
    pub payload: &'a [u8],
}

/// A TCP option, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// End of the option list. All further bytes are padding.
    End,
    /// One byte of padding.
    NoOperation,
    /// Maximum TCP payload that the source accepts in a segment, in bytes (RFC 9293 section 3.7.1).
    MaximumSegmentSize(u16),
    /// Window scale: the shift of the window field, in bits (RFC 7323 section 2).
    WindowScale(u8),
    /// The source accepts selective acknowledgements (RFC 2018 section 2).
    SackPermitted,
    /// Blocks of selective acknowledgements, eight bytes each: two sequence numbers (RFC 2018 section 3).
    Sack(&'a [u8]),
    /// Timestamps of the source and of its peer (RFC 7323 section 3).
    Timestamps {
        /// Timestamp of the source.
        value: u32,
        /// The peer's timestamp, echoed.
        echo: u32,
    },
    /// Any other option: its kind and its data.
    Other(u8, &'a [u8]),
    /// An option of impossible length: all remaining option bytes (R114).
    Malformed(&'a [u8]),
}

/// Whether sequence number `a` is before `b` (RFC 9293 section 3.4).
#[inline]
pub fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The fixed header fields of an unfragmented segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFacts {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// Acknowledgement number: the next byte expected from the peer.
    pub ack: u32,
    /// Receive window, without window scaling.
    pub window: u16,
    /// The eight flags: CWR is the highest bit, FIN the lowest.
    pub flags: u8,
    /// Length of the header including options, in bytes.
    pub header_len: u16,
    /// Length of the payload, in bytes.
    pub payload_len: u32,
}

/// The fields of a TCP segment that change along its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegmentFacts {
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// Acknowledgement number: the next byte expected from the peer.
    pub ack: u32,
    /// Receive window, without window scaling.
    pub window: u16,
    /// The flags PSH and FIN; all other bits are 0.
    pub ends: u8,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
}

/// The timestamps of a segment, and their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// Offset of the source's timestamp, in bytes from the TCP header.
    pub at: u16,
    /// Timestamp of the source.
    pub value: u32,
    /// The peer's timestamp, echoed.
    pub echo: u32,
}

impl Segment<'_> {
    /// Parses a TCP segment. `None` if its header is truncated or malformed.
    pub fn parse(bytes: &[u8]) -> Option<Segment<'_>> {
        let (header, rest) = TcpHeader::ref_from_prefix(bytes).ok()?;
        let options_len = header.header_len().checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(Segment { header, options, payload })
    }
}

/// Returns the length of the payload behind the header, in bytes; 0 if the header is malformed or incomplete.
#[inline]
pub(crate) fn payload_len(segment: &[u8]) -> usize {
    let header_len = segment.get(OFFSET_AT).map_or(0, |byte| usize::from(byte >> 4) * 4);
    if header_len < HEADER_LEN { 0 } else { segment.len().saturating_sub(header_len) }
}

impl<'a> Segment<'a> {
    /// Returns the options in order. Together they include all option bytes.
    pub fn options(&self) -> impl Iterator<Item = TcpOption<'a>> {
        options(self.options)
    }
}

/// Parses options in order. Together they include all of `bytes`.
pub(crate) fn options(bytes: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (option, tail) = next_option(rest)?;
        rest = tail;
        Some(option)
    })
}

impl TcpOption<'_> {
    /// Returns the number of bytes of this option; 1 for the end of the list.
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
    /// Returns the facts of a segment. `None` if [`Segment::parse`] fails.
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
    /// Whether the segment has PSH or FIN, so that a run ends behind it (RFC 9293 section 3.9.1.2, R116).
    pub fn ends(&self) -> bool {
        self.ends != 0
    }

    /// Whether the segment ends the stream.
    pub fn is_last(&self) -> bool {
        self.ends & FIN != 0
    }
}

impl TcpHeader {
    /// Returns the length of the header including options, in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }

    /// Returns the three bits of accurate ECN: AE, CWR and ECE (RFC 9768 section 3.2.2).
    pub fn accurate_ecn_field(&self) -> u8 {
        (self.data_offset & 1) << 2 | self.flags >> 6
    }

    /// Whether the AE bit is set, which only accurate ECN uses (RFC 9768 section 3.2).
    pub fn has_accurate_ecn_bit(&self) -> bool {
        self.data_offset & 1 != 0
    }

    /// Returns the eight flags: CWR is the highest bit, FIN the lowest.
    pub fn flags(&self) -> u8 {
        self.flags
    }
}

/// Returns the sum of a header, without the fields that differ between segments: sequence number, flags, checksum.
pub(crate) fn sum_of_rest(header: &[u8]) -> Sum {
    let Ok((fixed, _)) = TcpHeader::ref_from_prefix(header) else { panic!("a segment has its TCP header") };
    let marks = Sum::long(u32::from(fixed.flags) + u32::from(fixed.checksum.get()));
    Sum::of(header) - (Sum::long(fixed.seq.get()) + marks)
}

/// Writes the fields that differ between the segments of a GSO packet: sequence number, flags, checksum.
///
/// `rest` is the sum of the pseudo-header, the payload, and the [`sum_of_rest`].
#[inline]
pub(crate) fn stamp(header: &mut [u8], seq: u32, flags: u8, rest: Sum) {
    let Ok((fixed, _)) = TcpHeader::mut_from_prefix(header) else { panic!("a template has its TCP header") };
    fixed.seq = U32::new(seq);
    fixed.flags = flags;
    fixed.checksum = U16::new((rest + Sum::long(seq) + Sum::word(flags.into())).checksum());
}

/// Writes the fields that a GSO packet takes from its last segment: acknowledgement number, window, PSH and FIN,
/// timestamp echo. Then writes the checksum. `rest` is the sum of the pseudo-header and the payload.
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

/// Returns the offset of the checksum field. `None` if the header is incomplete.
pub(crate) fn checksum_at(bytes: &[u8]) -> Option<usize> {
    Segment::parse(bytes).map(|_| CHECKSUM_AT)
}

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of a header with options, in bytes.
pub const HEADER_LEN_MAX: usize = 60;
/// The FIN flag. Flags are defined in RFC 9293 section 3.1 and RFC 3168 section 6.1.
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
/// Offset of the byte whose upper four bits are the data offset, in bytes (RFC 9293 section 3.1).
const OFFSET_AT: usize = 12;
/// Offset of the checksum field, in bytes.
pub(crate) const CHECKSUM_AT: usize = 16;
/// Length of the kind and length bytes of an option, in bytes.
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
