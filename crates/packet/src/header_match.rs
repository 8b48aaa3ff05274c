//! A TCP segment in; whether the next one differs from it only in what moves along a flow out, at a glance.
//!
//! Whether two packets may share one header takes a close look at both ([`SegmentFacts::of`](crate::Part::of),
//! [`share_headers`](crate::share_headers)). Where one has been looked at, a second whose header has the same words, but for
//! the fields that move, needs none: it has the same length, the same options, the same everything else. It is wrong for
//! no packet: what it does not recognise, the close look judges.

use crate::checksum::Sum;
use crate::ip::Version;
use crate::packet::{Checksum, Packet};
use crate::segment_facts::SegmentFacts;
use crate::tcp::{self, TcpSegmentFacts, Timestamps};

/// The words of a segment's headers, what moves left out: of one without IPv4 options or extension headers, and without TCP
/// options or with time stamps alone, as RFC 7323 appendix A lays them out.
#[derive(Clone, Copy, Debug)]
pub struct HeaderMatch {
    layout: Layout,
    words: Words,
}

/// What stands in front of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    V4,
    V4Stamped,
    V6,
    V6Stamped,
}

impl HeaderMatch {
    /// What is to be seen of a segment of which this is the part; none where it is laid out in another way, and where it ends
    /// a run (R116).
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

    /// What moves in a segment that differs from the one seen only there; else nothing. Lengths, addresses and ports are
    /// the same then, but where it came from has not been looked at.
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

    /// Length of such a segment's headers, in bytes: where its payload starts.
    #[inline]
    pub fn payload_at(&self) -> u16 {
        match self.layout {
            Layout::V4 => 40,
            Layout::V4Stamped => 52,
            Layout::V6 => 60,
            Layout::V6Stamped => 72,
        }
    }

    /// The part of such a segment, of which this moves; none where the checksum is wrong or half-filled.
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

    /// Brings the payload of such a segment to its place behind a train's, and tells its sum, as if it stood at an even place:
    /// what is to be added, and what is to be taken from that; none where the checksum is wrong or half-filled. `lay` copies it
    /// where its sum is known from the headers.
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
        // In one breath: a loop over them is one to the processor, too.
        let ([a, b, c, d, e, f, g, h], [s, t, u, v, w, x, y, z]) = (words, self.words);
        (a ^ s) | (b ^ t) | (c ^ u) | (d ^ v) | (e ^ w) | (f ^ x) | (g ^ y) | (h ^ z) == 0
    }
}

/// What moves in a segment whose TCP header stands there.
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

/// The sum of pseudo-header and TCP header of a packet whose headers take `LEN` bytes, and its payload.
#[inline(always)]
fn headers_sum<const LEN: usize>(bytes: &[u8], ends_at: usize, tcp_at: usize) -> Option<(Sum, &[u8])> {
    let (headers, payload) = bytes.split_first_chunk::<LEN>()?;
    // Addresses and header stand behind one another, in words of eight bytes and a last one of four.
    let (words, rest) = headers.get(ends_at..)?.as_chunks::<8>();
    let halves = |word: u64| (word & 0xFFFF_FFFF) + (word >> 32);
    let sum: u64 = words.iter().map(|word| halves(u64::from_ne_bytes(*word))).sum();
    let last = rest.first_chunk().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
    let upper_len = (bytes.len() - tcp_at) as u32 + u32::from(crate::ip::TCP);
    Some((Sum::native(sum + last + u64::from(upper_len.to_be())), payload))
}

/// The words of the headers of each layout, what moves left out.
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

/// Words of a header, as many as the longest layout has; others have zeros behind.
type Words = [u64; 8];

const ALL: [u8; 8] = [0xFF; 8];
/// All but the identification.
const V4_FIRST: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF];
/// All but the header's checksum.
const V4_SECOND: [u8; 8] = [0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
/// Ports without the sequence number behind them; the four bytes in front of the time stamps.
const FRONT: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
/// Header length, flags and urgent pointer, without window and checksum.
const FLAGS: [u8; 8] = [0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF];
/// Where header length and flags stand in a TCP header, in bytes (RFC 9293 section 3.1).
const FLAGS_AT: usize = 12;
