//! Segments -> bytes with options and checksum, and bytes -> segments.
//!
//! IP headers are left to the `wire` module of the crate.

use super::segment::{SYN, Segment, Timestamps};
use crate::pattern::Pattern;
use crate::wire::{long, word};
use packet::tcp::{HEADER_LEN, TcpOption};
use packet::{Ecn, Sum, tcp};

/// Writes a segment to `to`: header, options, and stream bytes from `offset` on. `to` must have the segment's
/// length. `ports` are source and destination. The checksum includes the sum `pseudo` of the pseudo-header.
pub fn write(segment: &Segment, ports: [u16; 2], (pattern, offset): (Pattern, u64), pseudo: Sum, to: &mut [u8]) {
    let header_len = segment.header_len();
    let (header, payload) = to.split_at_mut(header_len);
    header[0..2].copy_from_slice(&ports[0].to_be_bytes());
    header[2..4].copy_from_slice(&ports[1].to_be_bytes());
    header[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    header[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    (header[12], header[13]) = ((header_len as u8 / 4) << 4, segment.flags);
    header[14..16].copy_from_slice(&segment.window.to_be_bytes());
    header[16..20].fill(0);
    write_options(&mut header[HEADER_LEN..], segment);
    pattern.fill(offset, payload);
    let checksum = (pseudo + Sum::of(to)).checksum();
    to[16..18].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the options in Linux's order, padded to a multiple of four bytes.
fn write_options(mut room: &mut [u8], segment: &Segment) {
    let mut put = |bytes: &[u8]| {
        let (front, rest) = std::mem::take(&mut room).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        room = rest;
    };
    let is_syn = segment.has(SYN);
    if let Some(mss) = segment.mss.filter(|_| is_syn) {
        put(&[2, 4]);
        put(&mss.to_be_bytes());
    }
    let permitted = segment.sack_permitted && is_syn;
    match segment.timestamps {
        Some(stamps) => {
            put(if permitted { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
            put(&stamps.value.to_be_bytes());
            put(&stamps.echo.to_be_bytes());
        }
        None if permitted => put(&[1, 1, 4, 2]),
        None => {}
    }
    if let Some(scale) = segment.window_scale.filter(|_| is_syn) {
        put(&[1, 3, 3, scale]);
    }
    let blocks = segment.sack.as_slice();
    if !blocks.is_empty() && !is_syn {
        put(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (start, end) in blocks {
            put(&start.to_be_bytes());
            put(&end.to_be_bytes());
        }
    }
}

/// Parses a segment from a packet with this ECN field. Also returns the payload. `None` if the header is malformed.
/// The caller must verify the checksum.
pub fn read(upper: &[u8], ecn: Ecn) -> Option<(Segment, &[u8])> {
    let parsed = tcp::Segment::parse(upper)?;
    let header = parsed.header;
    let mut segment = Segment {
        seq: header.seq.get(),
        ack: header.ack.get(),
        flags: header.flags(),
        window: header.window.get(),
        len: parsed.payload.len() as u32,
        ecn,
        ..Segment::default()
    };
    for option in parsed.options() {
        match option {
            TcpOption::MaximumSegmentSize(mss) => segment.mss = Some(mss),
            TcpOption::WindowScale(scale) => segment.window_scale = Some(scale),
            TcpOption::SackPermitted => segment.sack_permitted = true,
            TcpOption::Timestamps { value, echo } => segment.timestamps = Some(Timestamps { value, echo }),
            TcpOption::Sack(blocks) => {
                blocks
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .for_each(|block| segment.sack.push(long(block, 0), long(block, 4)));
            }
            TcpOption::End | TcpOption::Malformed(_) => break,
            TcpOption::NoOperation | TcpOption::Other(..) => {}
        }
    }
    Some((segment, parsed.payload))
}

/// Source and destination port, and the sequence number, from the TCP header in an ICMP error. Errors need not
/// quote more (RFC 792).
pub fn quoted(upper: &[u8]) -> Option<([u16; 2], u32)> {
    let upper = upper.first_chunk::<8>()?;
    Some(([word(upper, 0), word(upper, 2)], long(upper, 4)))
}

#[cfg(test)]
mod tests {
    use super::super::segment::{ACK, Blocks, CWR, ECE, FIN, PSH};
    use super::*;

    #[test]
    fn a_segment_reads_back() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..2_000 {
            let (segment, offset) = (drawn(&mut random), random.u64(0..1 << 40));
            let bytes = written(&segment, offset);
            let (read, payload) = read(&bytes, segment.ecn).expect("its header fits");
            assert_eq!(read, segment, "round {round}");
            assert_eq!(stream().first_wrong(offset, payload), None);
            assert!((pseudo() + Sum::of(&bytes)).is_right());
            assert_eq!(quoted(&bytes), Some((PORTS, segment.seq)));
        }
    }

    #[test]
    fn half_a_header_is_no_segment_and_seven_bytes_are_no_quote() {
        let bytes = written(&drawn(&mut fastrand::Rng::with_seed(4)), 0);
        assert!(read(&bytes[..HEADER_LEN - 1], Ecn::NotEct).is_none());
        assert!(read(&bytes[..HEADER_LEN + 1], Ecn::NotEct).is_none(), "its options are cut off");
        assert_eq!(quoted(&bytes[..7]), None);
    }

    fn written(segment: &Segment, offset: u64) -> Vec<u8> {
        let mut bytes = vec![0xAA; segment.header_len() + segment.len as usize];
        write(segment, PORTS, (stream(), offset), pseudo(), &mut bytes);
        bytes
    }

    fn pseudo() -> Sum {
        Sum::word(77)
    }

    fn drawn(random: &mut fastrand::Rng) -> Segment {
        let is_syn = random.bool();
        let stamps = Timestamps { value: random.u32(..), echo: random.u32(..) };
        let mut sack = Blocks::default();
        for _ in 0..if is_syn { 0 } else { random.u32(1..4) } {
            sack.push(random.u32(..), random.u32(..));
        }
        let others = [FIN, PSH, ECE, CWR][random.usize(0..4)];
        Segment {
            seq: random.u32(..),
            ack: random.u32(..),
            flags: if is_syn { SYN | ACK } else { ACK | others },
            window: random.u16(..),
            len: if is_syn { 0 } else { random.u32(0..3_000) },
            mss: is_syn.then_some(1_460),
            window_scale: (is_syn && random.bool()).then_some(7),
            sack_permitted: is_syn && random.bool(),
            timestamps: (is_syn || random.bool()).then_some(stamps),
            sack,
            ecn: if random.bool() { Ecn::Ect0 } else { Ecn::NotEct },
        }
    }

    fn stream() -> Pattern {
        Pattern::new(9)
    }

    const PORTS: [u16; 2] = [4_000, 80];
}
