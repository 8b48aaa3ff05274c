//! The headers of a TCP segment -> a fast test whether a later packet continues the segment's flow.
//!
//! [`SegmentFacts::of`](crate::SegmentFacts::of) and [`share_headers`](crate::share_headers) are the full test
//! whether two packets may share one header. After one full test, a masked comparison is enough for the next
//! packet. Equal masked words imply equal lengths, options and fields, except fields that change along a flow. The
//! comparison accepts no packet that the full test would reject. Packets that the comparison does not recognize are
//! left to the full test.

use crate::checksum::Sum;
use crate::ip::Version;
use crate::packet::{Checksum, Packet};
use crate::segment_facts::SegmentFacts;
use crate::tcp::{self, TcpSegmentFacts, Timestamps};

/// The header words of a segment, with the fields that change along a flow masked out.
///
/// Only some layouts are supported: no IPv4 options, no extension headers, and no TCP options except timestamps in
/// the layout of RFC 7323 appendix A.
#[derive(Clone, Copy, Debug)]
pub struct HeaderMatch {
    layout: Layout,
    words: Words,
}

/// The layout of the headers before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    V4,
    V4Stamped,
    V6,
    V6Stamped,
}

impl HeaderMatch {
    /// Creates the match for packets that follow `packet`, whose facts are `part`. `None` for unsupported layouts,
    /// and for a segment that ends a run (R116).
    pub fn of(packet: &Packet, part: &SegmentFacts) -> Option<HeaderMatch> {
        let tcp = part.tcp.filter(|tcp| !tcp.ends())?;
        let stamps_at = tcp.timestamps.map(|stamps| stamps.at);
        let upper_at = packet.ip().upper?.at;
        let layout = match (packet.ip().version, upper_at, part.payload_at - upper_at, stamps_at) {
            (Version::V4, 20, 20, None) => Layout::V4,
            (Version::V4, 20, 32, Some(24)) => Layout::V4Stamped,
            (Version::V6, 40, 20, None) => Layout::V6,
            (Version::V6, 40, 32, Some(24)) => Layout::V6Stamped,
            _ => return None,
        };
        let bytes = packet.bytes();
        let words = match layout {
            Layout::V4 => v4(bytes.first_chunk()?),
            Layout::V4Stamped => v4_stamped(bytes.first_chunk()?),
            Layout::V6 => v6(bytes.first_chunk()?),
            Layout::V6Stamped => v6_stamped(bytes.first_chunk()?),
        };
        Some(HeaderMatch { layout, words })
    }

    /// Returns the changing fields of a packet that matches in all other fields. `None` if another field differs.
    /// The comparison includes lengths, addresses and ports, but not the ingress and the VLAN tags.
    #[inline(always)]
    pub fn match_next(&self, packet: &Packet) -> Option<TcpSegmentFacts> {
        let bytes = packet.bytes();
        match self.layout {
            Layout::V4 => bytes.first_chunk().filter(|it| self.is_like(v4(it))).map(|it| moving(it, 20)),
            Layout::V6 => bytes.first_chunk().filter(|it| self.is_like(v6(it))).map(|it| moving(it, 40)),
            Layout::V4Stamped => {
                bytes.first_chunk().filter(|it| self.is_like(v4_stamped(it))).map(|it| moving_stamped(it, 20))
            }
            Layout::V6Stamped => {
                bytes.first_chunk().filter(|it| self.is_like(v6_stamped(it))).map(|it| moving_stamped(it, 40))
            }
        }
    }

    /// Returns the length of the headers of a matching segment, in bytes: the offset of its payload.
    #[inline]
    pub fn payload_at(&self) -> u16 {
        match self.layout {
            Layout::V4 => 40,
            Layout::V4Stamped => 52,
            Layout::V6 => 60,
            Layout::V6Stamped => 72,
        }
    }

    /// Returns the facts of a matching segment, whose changing fields are `tcp`. `None` if the checksum is wrong or
    /// partial.
    #[inline]
    pub fn part(&self, packet: &Packet, tcp: TcpSegmentFacts) -> Option<SegmentFacts> {
        let (headers, payload) = self.headers_sum(packet.bytes())?;
        let payload_sum = match packet.checksum {
            Checksum::Unverified => Some(Sum::of(payload)).filter(|sum| (headers + *sum).is_right())?,
            Checksum::Verified => Sum::ZERO - headers,
            Checksum::Partial => return None,
        };
        Some(SegmentFacts {
            payload_at: self.payload_at(),
            payload_len: payload.len() as u16,
            payload_sum,
            id: packet.ip().id,
            canonical: packet.has_canonical_checksums(),
            tcp: Some(tcp),
        })
    }

    /// Copies the payload of a matching segment to `to`, the memory behind the payload of a GSO packet, and returns
    /// the payload's sum.
    ///
    /// The result has two parts: a sum to add and a sum to subtract. Their difference is the payload's sum at an
    /// even offset. `None` if the checksum is wrong or partial. If the checksum is verified, the sum follows from
    /// the headers, and `lay` copies the payload.
    #[inline]
    pub fn copy_payload(
        &self,
        packet: &Packet,
        to: &mut [u8],
        lay: impl FnOnce(&mut [u8], &[u8]),
    ) -> Option<(Sum, Sum)> {
        let (headers, payload) = self.headers_sum(packet.bytes())?;
        match packet.checksum {
            Checksum::Unverified => {
                let sum = Sum::copying(to, payload);
                (headers + sum).is_right().then_some((sum, Sum::ZERO))
            }
            Checksum::Verified => {
                lay(to, payload);
                Some((Sum::ZERO, headers))
            }
            Checksum::Partial => None,
        }
    }

    #[inline(always)]
    fn headers_sum<'a>(&self, bytes: &'a [u8]) -> Option<(Sum, &'a [u8])> {
        match self.layout {
            Layout::V4Stamped => headers_sum::<52>(bytes, 12, 20),
            Layout::V6Stamped => headers_sum::<72>(bytes, 8, 40),
            Layout::V4 => headers_sum::<40>(bytes, 12, 20),
            Layout::V6 => headers_sum::<60>(bytes, 8, 40),
        }
    }

    #[inline(always)]
    fn is_like(&self, words: Words) -> bool {
        // Written without a loop, because the compiled loop would process one word at a time.
        let ([a, b, c, d, e, f, g, h], [s, t, u, v, w, x, y, z]) = (words, self.words);
        (a ^ s) | (b ^ t) | (c ^ u) | (d ^ v) | (e ^ w) | (f ^ x) | (g ^ y) | (h ^ z) == 0
    }
}

/// Returns the changing fields of a segment whose TCP header starts at `tcp_at`.
#[inline(always)]
fn moving<const LEN: usize>(bytes: &[u8; LEN], tcp_at: usize) -> TcpSegmentFacts {
    TcpSegmentFacts {
        seq: number(bytes, tcp_at + 4),
        ack: number(bytes, tcp_at + 8),
        window: number(bytes, tcp_at + 12) as u16,
        ends: 0,
        timestamps: None,
    }
}

#[inline(always)]
fn moving_stamped<const LEN: usize>(bytes: &[u8; LEN], tcp_at: usize) -> TcpSegmentFacts {
    let (value, echo) = (number(bytes, tcp_at + 24), number(bytes, tcp_at + 28));
    TcpSegmentFacts { timestamps: Some(Timestamps { at: 24, value, echo }), ..moving(bytes, tcp_at) }
}

/// Returns the sum of pseudo-header and TCP header, and the payload, of a packet with `LEN` bytes of headers.
#[inline(always)]
fn headers_sum<const LEN: usize>(bytes: &[u8], ends_at: usize, tcp_at: usize) -> Option<(Sum, &[u8])> {
    let (headers, payload) = bytes.split_first_chunk::<LEN>()?;
    // Addresses and TCP header are adjacent. They are read as words of eight bytes, and a last word of four bytes.
    let (words, rest) = headers.get(ends_at..)?.as_chunks::<8>();
    let halves = |word: u64| (word & 0xFFFF_FFFF) + (word >> 32);
    let sum: u64 = words.iter().map(|word| halves(u64::from_ne_bytes(*word))).sum();
    let last = rest.first_chunk().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
    let upper_len = (bytes.len() - tcp_at) as u32 + u32::from(crate::ip::TCP);
    Some((Sum::native(sum + last + u64::from(upper_len.to_be())), payload))
}

/// Returns the header words of an IPv4 packet without timestamps, with the changing fields masked out.
#[inline(always)]
fn v4(bytes: &[u8; 40]) -> Words {
    let [first, second] = [masked(bytes, 0, V4_FIRST), masked(bytes, 8, V4_SECOND)];
    [first, second, masked(bytes, 16, ALL), masked(bytes, 20 + FLAGS_AT, FLAGS), 0, 0, 0, 0]
}

/// See [`v4`].
#[inline(always)]
fn v4_stamped(bytes: &[u8; 52]) -> Words {
    let [first, second] = [masked(bytes, 0, V4_FIRST), masked(bytes, 8, V4_SECOND)];
    let options = masked(bytes, 20 + tcp::HEADER_LEN, FRONT);
    [first, second, masked(bytes, 16, ALL), masked(bytes, 20 + FLAGS_AT, FLAGS), options, 0, 0, 0]
}

/// See [`v4`].
#[inline(always)]
fn v6(bytes: &[u8; 60]) -> Words {
    let [a, b, c, d, e] = [0, 8, 16, 24, 32].map(|at| masked(bytes, at, ALL));
    [a, b, c, d, e, masked(bytes, 40, FRONT), masked(bytes, 40 + FLAGS_AT, FLAGS), 0]
}

/// See [`v4`].
#[inline(always)]
fn v6_stamped(bytes: &[u8; 72]) -> Words {
    let [a, b, c, d, e] = [0, 8, 16, 24, 32].map(|at| masked(bytes, at, ALL));
    let options = masked(bytes, 40 + tcp::HEADER_LEN, FRONT);
    [a, b, c, d, e, masked(bytes, 40, FRONT), masked(bytes, 40 + FLAGS_AT, FLAGS), options]
}

#[inline(always)]
fn masked<const LEN: usize>(bytes: &[u8; LEN], at: usize, mask: [u8; 8]) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
    word & u64::from_ne_bytes(mask)
}

#[inline(always)]
fn number<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

/// Header words, as many as the longest layout needs. Words behind a shorter layout are zero.
type Words = [u64; 8];

const ALL: [u8; 8] = [0xFF; 8];
/// Mask of all fields except the identification, in the first word of an IPv4 header.
const V4_FIRST: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF];
/// Mask of all fields except the header checksum, in the second word of an IPv4 header.
const V4_SECOND: [u8; 8] = [0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
/// Mask of the ports, without the sequence number behind them, or of the four bytes before the timestamps.
const FRONT: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
/// Mask of header length, flags and urgent pointer, without window and checksum.
const FLAGS: [u8; 8] = [0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF];
/// Offset of the header length and flags in a TCP header, in bytes (RFC 9293 section 3.1).
const FLAGS_AT: usize = 12;
