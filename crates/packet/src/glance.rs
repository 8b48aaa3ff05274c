//! A TCP segment in; whether the next one differs from it only in what moves along a flow out, at a glance.
//!
//! Whether two packets may share one header takes a close look at both ([`Part::of`](crate::Part::of),
//! [`share_headers`](crate::share_headers)). Where one has been looked at, a second whose header has the same words, but for
//! the fields that move, needs none: it has the same length, the same options, the same everything else. It is wrong for
//! no packet: what it does not recognise, the close look judges.

use crate::ip::Version;
use crate::packet::{Checksum, Packet};
use crate::part::{Part, TcpPart, Timestamps};
use crate::sum::Sum;
use crate::tcp;

/// The words of a segment's headers, what moves left out: of one without IPv4 options or extension headers, and without TCP
/// options or with time stamps alone, as RFC 7323 appendix A lays them out.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    layout: Layout,
    words: [u64; WORDS_MAX],
}

/// What stands in front of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    V4,
    V4Stamped,
    V6,
    V6Stamped,
}

/// The header words to look at: where they start, in bytes from the IP header, and which of their bytes.
type Words<const N: usize> = [(usize, [u8; 8]); N];

impl Glance {
    /// What is to be seen of a segment of which this is the part; none where it is laid out in another way.
    pub fn of(packet: &Packet, part: &Part) -> Option<Glance> {
        let stamps_at = part.tcp?.timestamps.map(|stamps| stamps.at);
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
            Layout::V4 => words(bytes.first_chunk::<40>()?, &V4),
            Layout::V4Stamped => words(bytes.first_chunk::<52>()?, &V4_STAMPED),
            Layout::V6 => words(bytes.first_chunk::<60>()?, &V6),
            Layout::V6Stamped => words(bytes.first_chunk::<72>()?, &V6_STAMPED),
        };
        Some(Glance { layout, words })
    }

    /// What moves in a segment that differs from the one seen only there; else nothing. Lengths, addresses and ports are
    /// the same then, but where it came from has not been looked at.
    #[inline]
    pub fn moves(&self, packet: &Packet) -> Option<TcpPart> {
        let bytes = packet.bytes();
        match self.layout {
            Layout::V4Stamped => self.stamped(bytes.first_chunk::<52>()?, &V4_STAMPED, 20),
            Layout::V6Stamped => self.stamped(bytes.first_chunk::<72>()?, &V6_STAMPED, 40),
            Layout::V4 => self.plain(bytes.first_chunk::<40>()?, &V4, 20),
            Layout::V6 => self.plain(bytes.first_chunk::<60>()?, &V6, 40),
        }
    }

    /// Brings the payload of such a segment to its place behind a train's, and tells its sum, as if it stood at an even place;
    /// none where the checksum is wrong or half-filled. `lay` copies it where its sum is known from the headers.
    #[inline]
    pub fn land(&self, packet: &Packet, to: &mut [u8], lay: impl FnOnce(&mut [u8], &[u8])) -> Option<Sum> {
        let bytes = packet.bytes();
        let (headers, payload) = match self.layout {
            Layout::V4Stamped => headers_sum::<52>(bytes, 12, 20)?,
            Layout::V6Stamped => headers_sum::<72>(bytes, 8, 40)?,
            Layout::V4 => headers_sum::<40>(bytes, 12, 20)?,
            Layout::V6 => headers_sum::<60>(bytes, 8, 40)?,
        };
        match packet.checksum {
            Checksum::Unverified => {
                let sum = Sum::copying(to, payload);
                (headers + sum).is_right().then_some(sum)
            }
            Checksum::Verified => {
                lay(to, payload);
                Some(Sum::ZERO - headers)
            }
            Checksum::Partial => None,
        }
    }

    #[inline]
    fn differs<const LEN: usize, const N: usize>(&self, bytes: &[u8; LEN], at: &Words<N>) -> bool {
        at.iter().zip(self.words).fold(0, |differing, (at, word)| differing | masked(bytes, at) ^ word) != 0
    }

    #[inline]
    fn plain<const LEN: usize, const N: usize>(
        &self,
        bytes: &[u8; LEN],
        at: &Words<N>,
        tcp_at: usize,
    ) -> Option<TcpPart> {
        if self.differs(bytes, at) {
            return None;
        }
        Some(TcpPart {
            seq: number(bytes, tcp_at + 4),
            ack: number(bytes, tcp_at + 8),
            window: number(bytes, tcp_at + 12) as u16,
            ends: 0,
            timestamps: None,
        })
    }

    #[inline]
    fn stamped<const LEN: usize, const N: usize>(
        &self,
        bytes: &[u8; LEN],
        at: &Words<N>,
        tcp_at: usize,
    ) -> Option<TcpPart> {
        let part = self.plain(bytes, at, tcp_at)?;
        let (value, echo) = (number(bytes, tcp_at + 24), number(bytes, tcp_at + 28));
        Some(TcpPart { timestamps: Some(Timestamps { at: 24, value, echo }), ..part })
    }
}

/// The sum of pseudo-header and TCP header of a packet whose headers take `LEN` bytes, and its payload.
#[inline]
fn headers_sum<const LEN: usize>(bytes: &[u8], ends_at: usize, tcp_at: usize) -> Option<(Sum, &[u8])> {
    let (headers, payload) = bytes.split_first_chunk::<LEN>()?;
    // Addresses and header stand behind one another, in words of four bytes.
    let words = headers.get(ends_at..)?.as_chunks::<4>().0;
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let upper_len = (bytes.len() - tcp_at) as u32 + u32::from(crate::ip::TCP);
    Some((Sum::native(sum + u64::from(upper_len.to_be())), payload))
}

fn words<const LEN: usize, const N: usize>(bytes: &[u8; LEN], at: &Words<N>) -> [u64; WORDS_MAX] {
    let mut words = [0; WORDS_MAX];
    words.iter_mut().zip(at).for_each(|(word, at)| *word = masked(bytes, at));
    words
}

#[inline(always)]
fn masked<const LEN: usize>(bytes: &[u8; LEN], (at, mask): &(usize, [u8; 8])) -> u64 {
    let word = bytes.get(*at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
    word & u64::from_ne_bytes(*mask)
}

#[inline(always)]
fn number<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

const ALL: [u8; 8] = [0xFF; 8];
/// All but the identification.
const V4_FIRST: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF];
/// All but the header's checksum.
const V4_SECOND: [u8; 8] = [0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
/// Ports without the sequence number behind them; the four bytes in front of the time stamps.
const FRONT: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
/// Header length, flags and urgent pointer, without window and checksum.
const FLAGS: [u8; 8] = [0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF];
const V4: Words<4> = [(0, V4_FIRST), (8, V4_SECOND), (16, ALL), (20 + FLAGS_AT, FLAGS)];
const V4_STAMPED: Words<5> =
    [(0, V4_FIRST), (8, V4_SECOND), (16, ALL), (20 + FLAGS_AT, FLAGS), (20 + tcp::HEADER_LEN, FRONT)];
const V6: Words<7> = [(0, ALL), (8, ALL), (16, ALL), (24, ALL), (32, ALL), (40, FRONT), (40 + FLAGS_AT, FLAGS)];
const V6_STAMPED: Words<8> = [
    (0, ALL),
    (8, ALL),
    (16, ALL),
    (24, ALL),
    (32, ALL),
    (40, FRONT),
    (40 + FLAGS_AT, FLAGS),
    (40 + tcp::HEADER_LEN, FRONT),
];
/// Where header length and flags stand in a TCP header, in bytes (RFC 9293 section 3.1).
const FLAGS_AT: usize = 12;
/// Most words of a layout.
const WORDS_MAX: usize = 8;
