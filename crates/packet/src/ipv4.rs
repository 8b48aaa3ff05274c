//! IPv4 header bytes -> an [`Ip`]; a packet's header -> the headers of its datagram and fragments (RFC 791).
//!
//! Everything that only IPv4 has is in this file: options, the header checksum, the total length. The choice
//! between the IP versions is left to `version.rs`.

use crate::checksum::{Sum, patched};
use crate::ip::{
    Address, AddressPair, Common, Ecn, Fragment, FragmentFingerprint, Ip, LEN_MAX, PADDED_LEN_MAX, ParseError, TCP,
    Transport, UDP, Version,
};
use core::net::IpAddr;
use core::time::Duration;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of an IPv4 header (RFC 791 section 3.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    version_ihl: u8,
    tos: u8,
    total_len: U16,
    id: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

/// Returns the TTL of a header.
pub(crate) fn ttl(header: &[u8]) -> u8 {
    Ipv4Header::ref_from_prefix(header).map_or(0, |(header, _)| header.ttl)
}

/// Decrements the TTL, and updates the checksum (RFC 1812 section 5.3.1, RFC 1624).
pub(crate) fn decrement_ttl(header: &mut [u8]) {
    let Ok((header, _)) = Ipv4Header::mut_from_prefix(header) else { return };
    let word = |header: &Ipv4Header| u16::from_be_bytes([header.ttl, header.protocol]);
    let before = word(header);
    header.ttl = header.ttl.saturating_sub(1);
    header.checksum = U16::new(patched(header.checksum.get(), before, word(header)));
}

/// Clears DF in a header, sets its identification, and updates its checksum (RFC 1624).
pub(crate) fn clear_dont_fragment(header: &mut [u8], id: u16) {
    let Ok((header, _)) = Ipv4Header::mut_from_prefix(header) else { return };
    let flags = header.flags_offset.get() & !DONT_FRAGMENT;
    let sum = patched(header.checksum.get(), header.flags_offset.get(), flags);
    header.checksum = U16::new(patched(sum, header.id.get(), id));
    (header.flags_offset, header.id) = (U16::new(flags), U16::new(id));
}

/// Parses an IPv4 header. The five checks of RFC 1812 section 5.2.2 (R032) are made in their order, except that the
/// checksum requires the header length first.
#[inline]
pub(crate) fn read(ip: &mut Ip, bytes: &[u8]) -> Result<(), ParseError> {
    let (header, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    if header.version_ihl != PLAIN {
        return read_options(ip, header, bytes);
    }
    read_fields(ip, header, HEADER_LEN, bytes, |_| header.sum(), |_| false)
}

#[cold]
#[inline(never)]
fn read_options(ip: &mut Ip, header: &Ipv4Header, bytes: &[u8]) -> Result<(), ParseError> {
    let header_len = header.header_len();
    if header_len < HEADER_LEN {
        return Err(ParseError::BadHeaderLen);
    }
    read_fields(ip, header, header_len, bytes, Sum::of, has_uncopied_option)
}

/// Parses a header of `header_len` bytes. `sum` returns the sum of these bytes. `has_option` tells whether they
/// contain an option that only a first fragment may have.
#[inline(always)]
fn read_fields(
    ip: &mut Ip,
    header: &Ipv4Header,
    header_len: usize,
    bytes: &[u8],
    sum: impl FnOnce(&[u8]) -> Sum,
    has_option: impl FnOnce(&[u8]) -> bool,
) -> Result<(), ParseError> {
    let claimed_len = usize::from(header.total_len.get());
    let word = header.flags_offset.get();
    let (offset, more) = ((word & OFFSET_MASK) << 3, word & MORE != 0);
    let is_fragment = offset != 0 || more;
    // Hosts with segmentation offload omit the lengths of unfragmented packets. In a fragment without length,
    // padding and payload could not be distinguished.
    let length_missing =
        claimed_len == 0 && !is_fragment && matches!(header.protocol, TCP | UDP) && bytes.len() > PADDED_LEN_MAX;
    let len = if length_missing { bytes.len() } else { claimed_len };
    if len > LEN_MAX {
        return Err(ParseError::TooLong);
    }
    let header_bytes = bytes.get(..header_len).ok_or(ParseError::Truncated)?;
    let sum_missing = length_missing && header.checksum.get() == 0;
    if !sum_missing && !sum(header_bytes).is_right() {
        return Err(ParseError::BadHeaderSum);
    }
    if len < header_len {
        return Err(ParseError::BadTotalLen);
    }
    if len > bytes.len() {
        return Err(ParseError::Truncated);
    }
    let option_misplaced = offset != 0 && has_option(header_bytes);
    let id = u32::from(header.id.get());
    let fragment = is_fragment.then_some(Fragment { id, offset, more });
    let at = header_len as u16;
    *ip = Ip {
        version: Version::V4,
        header_len: at,
        payload_at: at,
        protocol_at: PROTOCOL_AT,
        protocol: header.protocol,
        ecn: Ecn::from_bits(header.tos),
        len: len as u32,
        dont_fragment: word & DONT_FRAGMENT != 0,
        id,
        fragment,
        upper: (offset == 0).then_some(Transport { protocol: header.protocol, at }),
        headers_end: at,
        option_misplaced,
        length_missing,
        shape: shape(header, option_misplaced),
    };
    Ok(())
}

/// Returns the fingerprint of version, header length, type of service, total length, flags, protocol and misplaced
/// options.
#[inline(always)]
fn shape(header: &Ipv4Header, option_misplaced: bool) -> FragmentFingerprint {
    let [len_high, len_low] = header.total_len.to_bytes();
    let front = u32::from_ne_bytes([header.version_ihl, header.tos, len_high, len_low]);
    let [flags, _] = header.flags_offset.to_bytes();
    let rest = u64::from(flags & FLAGS) | u64::from(header.protocol) << 8 | u64::from(option_misplaced) << 16;
    FragmentFingerprint::new(u64::from(front) | rest << 32)
}

impl Ipv4Header {
    /// Returns the sum of the fixed part of the header.
    #[inline]
    fn sum(&self) -> Sum {
        match self.as_bytes().first_chunk() {
            Some(bytes) => Sum::of_header(bytes),
            None => Sum::ZERO,
        }
    }
}

pub(crate) fn ends(header: &[u8]) -> AddressPair {
    AddressPair::new([both(header), 0, 0, 0])
}

#[inline(always)]
pub(crate) fn has_ends(header: &[u8], ends: &AddressPair) -> bool {
    let [known, ..] = ends.words();
    both(header) == known
}

/// Returns both addresses in one word, in header order.
#[inline(always)]
fn both(header: &[u8]) -> u64 {
    match header.get(SOURCE_AT..SOURCE_AT + 8) {
        Some(&[a, b, c, d, e, f, g, h]) => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => panic!("a parsed IPv4 packet has its header"),
    }
}

pub(crate) fn addresses(header: &[u8]) -> (Address, Address) {
    match Ipv4Header::ref_from_prefix(header) {
        Ok((header, _)) => (IpAddr::from(header.source).into(), IpAddr::from(header.destination).into()),
        Err(_) => panic!("a parsed IPv4 packet has its header"),
    }
}

/// Writes the header fields of a datagram or fragment: total length, DF, MF, offset, ECN and the header checksum.
#[inline]
pub(crate) fn seal(ip: &Ip, header: &mut [u8], fragment: Option<Fragment>) {
    let Ok((fixed, options)) = Ipv4Header::mut_from_prefix(header) else {
        panic!("a parsed IPv4 packet has its header")
    };
    let place = fragment.map_or(0, |fragment| if fragment.more { MORE } else { 0 } | fragment.offset >> 3);
    let reserved = fixed.flags_offset.get() & RESERVED;
    let flags_offset = reserved | if ip.dont_fragment { DONT_FRAGMENT } else { 0 } | place;
    let tos = fixed.tos & !3 | ip.ecn.bits();
    let total_len = ip.len as u16;
    // Wide reads of bytes that were just written are slow, so the sum is computed from the fields.
    let [front, rest] = [[fixed.version_ihl, tos], [fixed.ttl, fixed.protocol]].map(u16::from_be_bytes);
    let words = [front, total_len, fixed.id.get(), flags_offset, rest];
    let sum = Sum::long(words.into_iter().map(u32::from).sum()) + Sum::native(fixed.ends());
    let sum = if options.is_empty() { sum } else { sum + Sum::of(options) };
    fixed.tos = tos;
    fixed.total_len = U16::new(total_len);
    fixed.flags_offset = U16::new(flags_offset);
    fixed.checksum = U16::new(sum.checksum());
}

/// Returns the sum of a header. Optimized for headers without options.
#[inline]
fn header_sum(header: &[u8]) -> Sum {
    match Ipv4Header::ref_from_prefix(header) {
        Ok((fixed, [])) => fixed.sum(),
        _ => Sum::of(header),
    }
}

/// Copies the header for later fragments to `out`, and returns its length. Only options with the copied bit are
/// included (RFC 791 section 3.1, R004).
pub(crate) fn later_header(header: &[u8], out: &mut [u8]) -> usize {
    let (fixed, options) = header.split_at(HEADER_LEN.min(header.len()));
    let mut len = place(out, 0, fixed);
    for option in Options(options).filter(|option| option.is_copied()) {
        len = place(out, len, option.bytes);
    }
    let padded = len.next_multiple_of(4);
    let len = (len..padded).fold(len, |len, _| place(out, len, &[END_OF_OPTIONS]));
    let Ok((fixed, _)) = Ipv4Header::mut_from_prefix(out) else { panic!("a template takes any header") };
    fixed.version_ihl = 0x40 | (len / 4) as u8;
    len
}

/// Returns the header lengths of the first and of later fragments, in bytes.
#[inline]
pub(crate) fn fragment_header_lens(header: &[u8], starts: bool) -> [usize; 2] {
    if header.len() == HEADER_LEN {
        return [HEADER_LEN; 2];
    }
    let later = later_header(header, &mut [0; HEADER_LEN_MAX]);
    [if starts { header.len() } else { later }, later]
}

/// Returns the values that all fragments with this header share: flags, and the sum of all other constant fields.
/// The sum excludes length, identification, offset and checksum.
#[inline]
pub(crate) fn common(header: &[u8], dont_fragment: bool) -> Common {
    let Ok((fixed, _)) = Ipv4Header::ref_from_prefix(header) else { panic!("a parsed IPv4 packet has its header") };
    let word = fixed.flags_offset.get();
    let flags = word & RESERVED | if dont_fragment { DONT_FRAGMENT } else { 0 };
    Common { flags, rest: sum_of_rest(header) - Sum::word(word) }
}

/// Returns the sum of a header without length, identification and checksum.
#[inline]
pub(crate) fn sum_of_rest(header: &[u8]) -> Sum {
    let Ok((fixed, _)) = Ipv4Header::ref_from_prefix(header) else { panic!("a parsed IPv4 packet has its header") };
    let differs = [fixed.total_len, fixed.id, fixed.checksum].map(|word| u32::from(word.get()));
    header_sum(header) - Sum::long(differs.iter().sum())
}

/// Writes the fields that differ between the fragments of a packet: length, offset, identification. The checksum is
/// computed from these fields and the shared sum.
#[inline]
pub(crate) fn stamp(header: &mut [u8], common: Common, payload_len: usize, fragment: Fragment) {
    let total_len = header.len() + payload_len;
    assert!(total_len <= LEN_MAX, "a piece is no longer than a length field can say");
    let Ok((fixed, _)) = Ipv4Header::mut_from_prefix(header) else { panic!("a template has a header") };
    let id = fragment.id as u16;
    let place = common.flags | if fragment.more { MORE } else { 0 } | fragment.offset >> 3;
    fixed.total_len = U16::new(total_len as u16);
    fixed.id = U16::new(id);
    fixed.flags_offset = U16::new(place);
    let sum = common.rest + Sum::long(total_len as u32 + u32::from(id) + u32::from(place));
    fixed.checksum = U16::new(sum.checksum());
}

/// Writes the fields that differ between the segments of a GSO packet: length, identification, checksum. DF is not
/// changed. `rest` is the [`sum_of_rest`].
#[inline]
pub(crate) fn stamp_segment(header: &mut [u8], rest: Sum, upper_len: usize, id: u32) {
    let total_len = (header.len() + upper_len) as u16;
    let id = id as u16;
    let Ok((fixed, _)) = Ipv4Header::mut_from_prefix(header) else { panic!("a template has a header") };
    fixed.total_len = U16::new(total_len);
    fixed.id = U16::new(id);
    let sum = rest + Sum::long(u32::from(total_len) + u32::from(id));
    fixed.checksum = U16::new(sum.checksum());
}

/// Whether later fragments lack any option, or any padding between options, of the first fragment.
pub(crate) fn has_option_of_the_first(header: &[u8]) -> bool {
    Options(header.get(HEADER_LEN..).unwrap_or_default()).any(|option| !option.is_copied())
}

/// Whether a header has an option that only a first fragment may have. No host puts such an option into a later
/// fragment (RFC 6274 section 3.13.2.5, R074).
fn has_uncopied_option(header: &[u8]) -> bool {
    let options = header.get(HEADER_LEN..).unwrap_or_default();
    Options(options).any(|option| !option.is_copied() && option.kind() > NO_OPERATION)
}

/// Whether two headers without options are equal, except length, identification and checksum.
pub(crate) fn shares_header(one: &[u8], other: &[u8]) -> bool {
    let same = |from: usize, to: usize| one.get(from..to) == other.get(from..to);
    same(0, TOTAL_LEN_AT) && same(FLAGS_AT, CHECKSUM_AT) && same(CHECKSUM_AT + 2, one.len().max(other.len()))
}

/// Whether the header of a fragment can represent the next fragment of its datagram. The headers must be equal,
/// except length, MF, offset and checksum. `next` must have the options of `one`, or only those of them that later
/// fragments repeat (RFC 791 section 3.1, R004). Padding may differ.
pub(crate) fn shares_fragment_header(one: &[u8], next: &[u8]) -> bool {
    let (Ok((one, options)), Ok((next, next_options))) =
        (Ipv4Header::ref_from_prefix(one), Ipv4Header::ref_from_prefix(next))
    else {
        return false;
    };
    let flags = |header: &Ipv4Header| header.flags_offset.get() & (RESERVED | DONT_FRAGMENT);
    let marks = |header: &Ipv4Header| (header.tos, header.id, flags(header), header.ttl, header.protocol);
    let copied = |options| Options(options).filter(Ipv4Option::is_copied).map(|option| option.bytes);
    let same_options = options == next_options
        || Options(next_options).are_well_formed() && copied(options).eq(copied(next_options));
    marks(one) == marks(next) && (one.source, one.destination) == (next.source, next.destination) && same_options
}

/// Whether the header has options, which may apply to a single packet only.
pub(crate) fn has_options(ip: &Ip) -> bool {
    usize::from(ip.header_len) > HEADER_LEN
}

/// Whether the header checksum has the form that sealing writes. All ones is as correct as 0, but never written.
pub(crate) fn checksum_is_canonical(header: &[u8]) -> bool {
    header.get(CHECKSUM_AT..CHECKSUM_AT + 2) != Some(&[0xFF, 0xFF])
}

/// Iterator over the options of a header. A malformed option ends the iteration.
struct Options<'a>(&'a [u8]);

impl Options<'_> {
    /// Whether the options end at the header's end, or with an end-of-options byte.
    fn are_well_formed(mut self) -> bool {
        self.by_ref().for_each(drop);
        matches!(self.0.first(), None | Some(&END_OF_OPTIONS))
    }
}

/// The bytes of an option: kind, length and data.
struct Ipv4Option<'a> {
    bytes: &'a [u8],
}

impl Ipv4Option<'_> {
    fn kind(&self) -> u8 {
        self.bytes.first().copied().unwrap_or(END_OF_OPTIONS)
    }

    fn is_copied(&self) -> bool {
        self.kind() & COPIED != 0
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Ipv4Option<'a>;

    fn next(&mut self) -> Option<Ipv4Option<'a>> {
        let len = match (self.0.first()?, self.0.get(1)) {
            (&END_OF_OPTIONS, _) => return None,
            (&NO_OPERATION, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(Ipv4Option { bytes })
    }
}

impl Ipv4Header {
    /// Returns both addresses in one word, in header order.
    #[inline]
    fn ends(&self) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (self.source, self.destination);
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0F) * 4
    }

    /// Returns the header of a packet that answers another one: no options, DF, identification 0 (RFC 6864 section
    /// 4.1).
    pub(crate) fn for_reply(
        protocol: u8,
        tos: u8,
        source: [u8; 4],
        destination: [u8; 4],
        payload_len: usize,
    ) -> Ipv4Header {
        let mut header = Ipv4Header {
            version_ihl: 0x45,
            tos,
            total_len: U16::new((HEADER_LEN + payload_len) as u16),
            id: U16::new(0),
            flags_offset: U16::new(DONT_FRAGMENT),
            ttl: REPLY_TTL,
            protocol,
            checksum: U16::new(0),
            source,
            destination,
        };
        header.checksum = U16::new(Sum::of(header.as_bytes()).checksum());
        header
    }
}

/// Copies `bytes` to `out` at offset `at`. Returns the offset behind them.
fn place(out: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    let to = out.get_mut(at..at + bytes.len());
    assert!(to.is_some(), "a template takes any header");
    to.unwrap_or_default().copy_from_slice(bytes);
    at + bytes.len()
}

/// Minimum MTU of every link, in bytes: 60 of header and 8 of payload (RFC 791 section 3.2, R005).
pub const MTU_MIN: usize = 68;
/// Length of a header without options, in bytes.
pub(crate) const HEADER_LEN: usize = 20;
/// MSS of a host that announces none, in bytes: 576 less both headers (RFC 9293 section 3.7.1).
pub(crate) const MSS_DEFAULT: u16 = 536;
/// Maximum length of a header with options, in bytes.
const HEADER_LEN_MAX: usize = 60;
/// Reassembly time-out, as in Linux. It is half the minimum of RFC 1122 section 3.3.2 (R016), because IP IDs repeat
/// sooner.
pub(crate) const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Offsets of fields in an IPv4 header, in bytes (RFC 791 section 3.1).
const PROTOCOL_AT: u16 = 9;
const TOTAL_LEN_AT: usize = 2;
const FLAGS_AT: usize = 6;
const CHECKSUM_AT: usize = 10;
/// See [`TOTAL_LEN_AT`].
const SOURCE_AT: usize = 12;
/// First byte of a header without options: version and header length.
const PLAIN: u8 = 0x45;
/// Mask of the flags, in the first byte of the offset word.
const FLAGS: u8 = 0xE0;
const RESERVED: u16 = 0x8000;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1FFF;
/// Kinds of IPv4 options, and the copied bit of a kind ("in every fragment", RFC 791 section 3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const COPIED: u8 = 0x80;
/// Type of service of ICMP errors: the precedence "internetwork control" (RFC 1812 section 4.3.2.5).
pub(crate) const ERROR_TOS: u8 = 0xC0;
const REPLY_TTL: u8 = 64;
