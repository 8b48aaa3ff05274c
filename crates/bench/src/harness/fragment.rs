//! Wide packets in buffers -> fragments or segments.
//!
//! Packets are sent in two ways. By reference, the output is a gather list: a new header for each fragment, and the
//! payload in its original place. By copy, each fragment is a packet in a buffer of its own.

use super::Station;
use super::ask::Ask;
use super::ring::{Delivery, Ring, parse};
use crate::section::Section;
use crate::wire::{IPV4_LEN, TCP_LEN};
use crate::workload::{Function, Work};
use engine::{FragmentWriter, Output, WirePacket, WirePackets};
use packet::{Buffer, Checksum, Content, Fragmentation, Gso, HEADROOM, Identifications, Maker, Packet, Split};
use std::hint::black_box;

struct Cutting {
    ring: Ring,
    out: Output,
    how: How,
    gather: Gather,
    copies: Vec<(Buffer, usize)>,
    /// The parsed packets of a copy; used where parsing is not timed.
    packets: Vec<Packet>,
    work: Work,
}

/// How packets are fragmented or segmented.
#[derive(Clone, Copy)]
enum How {
    Fragments { mtu: u16 },
    Segments { len: u16 },
}

/// A gather list: address and length of each fragment's headers and payload.
struct Gather {
    headers: Vec<[u8; HEADER_LEN_MAX]>,
    list: Vec<[(usize, usize); 2]>,
}

/// Returns the number of fragments or segments of a packet.
pub fn count(ask: &Ask, packet: &[u8]) -> usize {
    match ask.function {
        Function::Segment => (packet.len() - IPV4_LEN - TCP_LEN).div_ceil(ask.segment),
        _ => (packet.len() - IPV4_LEN).div_ceil((ask.mtu - IPV4_LEN) / 8 * 8),
    }
}

/// Opens a station that fragments or segments the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    let fragments_max = section.packets().map(|packet| count(ask, packet)).max().unwrap_or(0);
    let how = match (ask.function, ask.work) {
        (Function::Segment, Work::Header) => {
            return Err("a segment's checksum is written with its header".to_string());
        }
        (Function::Fragment, Work::Checksummed) => return Err("a fragment has no transport checksum".to_string()),
        (Function::Segment, _) => {
            How::Segments { len: u16::try_from(ask.segment).map_err(|_| format!("segment={}", ask.segment))? }
        }
        _ => How::Fragments { mtu: u16::try_from(ask.mtu).map_err(|_| format!("mtu={}", ask.mtu))? },
    };
    let (ring, pool) = Ring::new(ask, section, fragments_max, ask.mtu.max(ask.segment + IPV4_LEN + TCP_LEN));
    Ok(Box::new(Cutting {
        packets: Vec::with_capacity(ring.len()),
        ring,
        out: Output::new(pool, None),
        how,
        gather: Gather {
            headers: vec![[0; HEADER_LEN_MAX]; fragments_max],
            list: Vec::with_capacity(fragments_max),
        },
        copies: Vec::with_capacity(fragments_max),
        work: ask.work,
    }))
}

impl Station for Cutting {
    fn fill(&mut self) {
        self.ring.fill(&mut self.out.pool);
        if self.work == Work::Header {
            self.packets.extend(self.ring.next().drain(..).map(parse));
        }
    }

    fn section(&mut self) -> usize {
        let Cutting { ring, out, how, gather, copies, packets, work } = self;
        match work {
            Work::Header => timed_section_of_headers(packets, *how, gather, out),
            Work::Checksummed => timed_section_by_reference(ring.next(), *how, gather, out),
            Work::Contiguous => timed_section_copied(ring.next(), *how, copies, out),
        }
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let Cutting { ring, out, how, packets, work, .. } = self;
        let mut give = |packet: Packet| {
            each(&packet, |fragment| tell(&[fragment.header, fragment.payload].concat()));
            out.recycle(packet);
        };
        match work {
            Work::Header => packets.drain(..).for_each(|packet| give(prepared(packet, *how))),
            _ => ring.next().drain(..).for_each(|frame| give(prepared(parse(frame), *how))),
        }
    }

    fn delivers(&self) -> String {
        let what = match (self.how, self.work) {
            (How::Fragments { .. }, Work::Contiguous) => "contiguous fragments, header checksums written",
            (How::Fragments { .. }, _) => "headers and payload in place, header checksums written",
            (How::Segments { .. }, Work::Contiguous) => "contiguous segments, both checksums written",
            (How::Segments { .. }, _) => "headers and payload in place, both checksums written",
        };
        what.to_string()
    }
}

#[inline(never)]
fn timed_section_of_headers(packets: &mut Vec<Packet>, how: How, gather: &mut Gather, out: &mut Output) -> usize {
    let mut count = 0;
    for packet in packets.drain(..) {
        count += by_reference(prepared(packet, how), gather, out);
    }
    count
}

#[inline(never)]
fn timed_section_by_reference(
    frames: &mut Vec<Delivery>,
    how: How,
    gather: &mut Gather,
    out: &mut Output,
) -> usize {
    let mut count = 0;
    for frame in frames.drain(..) {
        count += by_reference(prepared(parse(frame), how), gather, out);
    }
    count
}

#[inline(never)]
fn timed_section_copied(
    frames: &mut Vec<Delivery>,
    how: How,
    copies: &mut Vec<(Buffer, usize)>,
    out: &mut Output,
) -> usize {
    let mut count = 0;
    for frame in frames.drain(..) {
        let packet = prepared(parse(frame), how);
        each(&packet, |fragment| copies.push(copied(&fragment, out)));
        count += copies.len();
        for (buffer, len) in copies.drain(..) {
            black_box(len);
            out.pool.give(buffer);
        }
        out.recycle(packet);
    }
    count
}

/// Sets the fragmentation or the segment size of a packet, from which its output packets follow.
#[inline(always)]
fn prepared(mut packet: Packet, how: How) -> Packet {
    match how {
        How::Fragments { mtu } => {
            packet.fragmentation =
                Some(Fragmentation { mtu, id: packet.ip().id, split: Split::Max, content: Content::Complete });
        }
        How::Segments { len } => {
            packet.checksum = Checksum::Partial;
            packet.gso = Some(Gso { segment_len: len, ids: Identifications::Rise, maker: Maker::Sender });
        }
    }
    packet
}

#[inline(always)]
fn by_reference(packet: Packet, gather: &mut Gather, out: &mut Output) -> usize {
    gather.list.clear();
    let mut cuts = FragmentWriter::of(&packet);
    for room in &mut gather.headers {
        let Some(fragment) = cuts.next(room) else { break };
        gather.list.push([fragment.header, fragment.payload].map(|part| (part.as_ptr() as usize, part.len())));
    }
    assert!(cuts.next(&mut []).is_none(), "a packet has no more pieces");
    let count = black_box(&gather.list).len();
    out.recycle(packet);
    count
}

#[inline(always)]
fn each(packet: &Packet, mut take: impl FnMut(WirePacket<'_>)) {
    let mut fragments = WirePackets::of(packet);
    while let Some(fragment) = fragments.next() {
        take(fragment);
    }
}

#[inline(always)]
fn copied(fragment: &WirePacket<'_>, out: &mut Output) -> (Buffer, usize) {
    let mut buffer = out.pool.allocate(fragment.frame_len()).expect("the pool has a buffer for each piece");
    buffer.put(HEADROOM, fragment.header);
    buffer.put(HEADROOM + fragment.header.len(), fragment.payload);
    (buffer, fragment.frame_len())
}

/// Length of the longest headers of a fragment in this workload, in bytes.
const HEADER_LEN_MAX: usize = 64;
