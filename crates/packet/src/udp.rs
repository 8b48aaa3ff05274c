//! UDP header bytes -> fields and checksum (RFC 768).
//!
//! UDP differs from TCP in its own length field and its optional checksum. The pseudo-header is left to the caller.

use crate::checksum::Sum;
use crate::ip::UDP;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP header (RFC 768).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Length of header and payload, in bytes.
    pub len: U16,
    /// Checksum field; 0 if the source host computed no checksum.
    pub checksum: U16,
}

impl UdpHeader {
    /// Parses the UDP header at the start of `bytes`. Returns the header, and the bytes behind it.
    pub fn parse(bytes: &[u8]) -> Option<(&UdpHeader, &[u8])> {
        UdpHeader::ref_from_prefix(bytes).ok()
    }
}

/// Returns the checksum field for this sum. A complement of 0 is written as all ones, because 0 means "no checksum"
/// (RFC 768, RFC 8200 section 8.1, R096).
pub fn field(sum: Sum) -> u16 {
    match sum.checksum() {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

/// Returns the offset of the checksum field, if the datagram has a checksum and a correct length field.
/// `len_missing`: the source host left the length to segmentation offload.
pub(crate) fn checksum_at(bytes: &[u8], len_missing: bool) -> Option<usize> {
    let (header, _) = UdpHeader::parse(bytes)?;
    let claimed_len = usize::from(header.len.get());
    (header.checksum.get() != 0 && (claimed_len == bytes.len() || len_missing && claimed_len == 0))
        .then_some(CHECKSUM_AT)
}

/// Returns the offset of the length field, if the source host left the length to segmentation offload.
pub(crate) fn missing_len_at(protocol: u8, bytes: &[u8]) -> Option<usize> {
    let (header, _) = UdpHeader::parse(bytes)?;
    (protocol == UDP && header.len.get() == 0).then_some(LEN_AT)
}

/// Returns the sum of a header, without the fields that differ between the datagrams of a GSO packet: length and
/// checksum.
pub(crate) fn sum_of_rest(header: &[u8]) -> Sum {
    let Ok((fixed, _)) = UdpHeader::ref_from_prefix(header) else { panic!("a datagram has its UDP header") };
    Sum::long(u32::from(fixed.source.get()) + u32::from(fixed.destination.get()))
}

/// Writes the fields that differ between the datagrams of a GSO packet: the length, and the checksum if the GSO
/// packet has one.
///
/// `rest` is the sum of the pseudo-header, the payload, and the [`sum_of_rest`].
#[inline]
pub(crate) fn stamp(header: &mut [u8], has_checksum: bool, rest: Sum, len: usize) {
    let Ok((fixed, _)) = UdpHeader::mut_from_prefix(header) else { panic!("a template has its UDP header") };
    fixed.len = U16::new(len as u16);
    fixed.checksum = U16::new(if has_checksum { field(rest + Sum::word(len as u16)) } else { 0 });
}

/// Writes the length of a GSO packet, and its checksum if it has one. `rest` is the sum of the pseudo-header and
/// the payload.
pub(crate) fn seal(datagram: &mut [u8], rest: Sum) {
    let len = datagram.len();
    let Ok((fixed, _)) = UdpHeader::mut_from_prefix(datagram) else { panic!("a datagram has its UDP header") };
    let has_checksum = fixed.checksum.get() != 0;
    if let Some(header) = datagram.get_mut(..HEADER_LEN) {
        let rest = rest + sum_of_rest(header);
        stamp(header, has_checksum, rest, len);
    }
}

/// Length of the UDP header, in bytes.
pub const HEADER_LEN: usize = 8;
/// Offset of the length field, in bytes.
const LEN_AT: usize = 4;
/// Offset of the checksum field, in bytes.
pub(crate) const CHECKSUM_AT: usize = 6;
