//! The bytes of a section -> the places where a system's result would have them.
//!
//! A plain loop shows the limit that memory sets for every system. The place of each payload is computed
//! beforehand. Only the copy is timed, or the copy with the sum of the bytes. Destinations are buffers with the
//! engine's spacing, and the most recently freed one is used next.

use super::Station;
use super::arena::{class, memory, stride};
use super::ask::{Ask, System};
use super::checksum::lay;
use crate::section::Section;
use crate::wire::{IPV4_LEN, IPV6_LEN, TCP_LEN, put, word};
use crate::workload::Function;
use packet::{CLASS_LENS, HEADROOM};
use pulp::Arch;
use std::collections::HashMap;
use std::hint::black_box;

struct CopyWork {
    section: Section,
    /// Distance between two packets in memory, in bytes.
    stride: usize,
    source: &'static mut [u8],
    destination: &'static mut [u8],
    moves: Vec<Move>,
    /// For each move, the result that the move completes; `None` if it completes none.
    ends: Vec<Option<PlainEnd>>,
    /// Payload bytes of one copy of the section.
    copy_len: usize,
    ring: usize,
    next: usize,
    takes_sums: bool,
    arch: Arch,
}

/// A payload to copy: its offset in a copy of the section, its offset among the destinations, and its length.
#[derive(Clone, Copy)]
struct Move {
    from: usize,
    to: usize,
    len: usize,
}

/// A complete result: its position, and whether it starts with an IPv4 header. The header's length field is still
/// that of the first packet.
#[derive(Clone, Copy)]
struct PlainEnd {
    at: usize,
    len: usize,
    has_header: bool,
}

/// A payload and its place in its run of consecutive payloads.
struct PlainPart {
    packet: usize,
    /// Offset of the payload in the packet, in bytes.
    start: usize,
    run: usize,
    /// Offset of the payload in the run, in bytes.
    at: usize,
    len: usize,
}

/// Opens a plain loop over the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    if ask.function == Function::Checksum && ask.system == System::PlainCopy {
        return Ok(Box::new(Strings::new(ask, &section)));
    }
    let (parts, has_header) = match ask.function {
        Function::Reassemble | Function::Place => (fragments(&section, usize::MAX), false),
        Function::Merge => (fragments(&section, ask.mtu - IPV4_LEN), false),
        Function::Coalesce => (segments(&section, ask), true),
        _ => return Err("there is nothing to copy".to_string()),
    };
    let stride = stride(CLASS_LENS[class(section.longest())]);
    let (moves, ends, destination_len) = plan(&parts, has_header, stride);
    let copy_len = section.len() * stride;
    Ok(Box::new(CopyWork {
        stride,
        source: memory(ask.ring * copy_len, ask.pages),
        destination: memory(destination_len, ask.pages),
        section,
        moves,
        ends,
        copy_len,
        ring: ask.ring,
        next: usize::MAX,
        takes_sums: ask.system == System::CopyAndSum,
        arch: Arch::new(),
    }))
}

impl Station for CopyWork {
    fn fill(&mut self) {
        self.next = self.next.saturating_add(1);
        if self.next < self.ring {
            return;
        }
        for copy in self.source.chunks_exact_mut(self.copy_len).take(self.ring) {
            for (buffer, packet) in copy.chunks_exact_mut(self.stride).zip(self.section.packets()) {
                buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
            }
        }
        self.next = 0;
    }

    fn section(&mut self) -> usize {
        let source = &self.source[self.next * self.copy_len..][..self.copy_len];
        match self.takes_sums {
            true => timed_section_with_sums(self.arch, source, self.destination, &self.moves),
            false => timed_section(source, self.destination, &self.moves),
        }
        self.ends.iter().flatten().count()
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let source = &self.source[self.next * self.copy_len..][..self.copy_len];
        for (one, end) in self.moves.iter().zip(&self.ends) {
            match self.takes_sums {
                true => drop(copy_and_sum(source, self.destination, std::slice::from_ref(one))),
                false => copy(source, self.destination, std::slice::from_ref(one)),
            }
            let Some(end) = end else { continue };
            let mut whole = self.destination[end.at..end.at + end.len].to_vec();
            if end.has_header {
                put(&mut whole, 2, end.len as u16);
            }
            tell(&whole);
        }
    }

    fn delivers(&self) -> String {
        match self.takes_sums {
            true => "payload at its place, summed; nothing else".to_string(),
            false => "payload at its place; nothing else".to_string(),
        }
    }
}

#[inline(never)]
fn timed_section(source: &[u8], destination: &mut [u8], moves: &[Move]) {
    copy(source, destination, moves);
}

#[inline(never)]
fn timed_section_with_sums(arch: Arch, source: &[u8], destination: &mut [u8], moves: &[Move]) {
    summed(arch, source, destination, moves);
}

fn summed(arch: Arch, source: &[u8], destination: &mut [u8], moves: &[Move]) {
    black_box(arch.dispatch(
        #[inline(always)]
        || copy_and_sum(source, destination, moves),
    ));
}

#[inline(always)]
fn copy(source: &[u8], destination: &mut [u8], moves: &[Move]) {
    for Move { from, to, len } in moves {
        destination[*to..to + len].copy_from_slice(&source[*from..from + len]);
    }
}

/// Copies payloads and returns their sum. Adds 32-bit words to 64-bit sums, in vectors as wide as the machine's
/// registers.
#[inline(always)]
fn copy_and_sum(source: &[u8], destination: &mut [u8], moves: &[Move]) -> u64 {
    let mut all = 0u64;
    for Move { from, to, len } in moves {
        let (blocks, rest) = source[*from..from + len].as_chunks::<64>();
        let (into, rest_into) = destination[*to..to + len].as_chunks_mut::<64>();
        let mut lanes = [0u64; 8];
        for (from, to) in blocks.iter().zip(into) {
            let (words, _) = from.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                let word = u64::from_ne_bytes(*word);
                *lane += (word & 0xFFFF_FFFF) + (word >> 32);
            }
            *to = *from;
        }
        rest_into.copy_from_slice(rest);
        let tail: u64 = rest.iter().map(|byte| u64::from(*byte)).sum();
        all = all.wrapping_add(lanes.iter().sum::<u64>() + tail);
    }
    all
}

/// Chooses a destination for each payload. A new run uses the most recently freed destination, and frees it when
/// complete.
fn plan(parts: &[PlainPart], has_header: bool, stride_in: usize) -> (Vec<Move>, Vec<Option<PlainEnd>>, usize) {
    let mut left: HashMap<usize, usize> = HashMap::new();
    let mut lens: HashMap<usize, usize> = HashMap::new();
    for part in parts {
        *left.entry(part.run).or_default() += 1;
        let len = lens.entry(part.run).or_default();
        *len = part.at.saturating_add(part.len).max(*len);
    }
    let longest = lens.values().copied().max().unwrap_or(0);
    let stride_out = stride(CLASS_LENS[class(longest)]);
    let (mut moves, mut ends) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    let (mut free, mut count, mut open) = (Vec::new(), 0, HashMap::new());
    for part in parts {
        let slot = *open.entry(part.run).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            })
        });
        let start = slot * stride_out + HEADROOM;
        moves.push(Move {
            from: part.packet * stride_in + HEADROOM + part.start,
            to: start + part.at,
            len: part.len,
        });
        let parts_left = left.entry(part.run).or_default();
        *parts_left -= 1;
        ends.push((*parts_left == 0).then(|| PlainEnd { at: start, len: lens[&part.run], has_header }));
        if *parts_left == 0 {
            open.remove(&part.run);
            free.push(slot);
        }
    }
    (moves, ends, count * stride_out)
}

/// Returns the payloads of fragments without duplicates, in runs of complete fragments of up to `run_len` bytes.
fn fragments(section: &Section, run_len: usize) -> Vec<PlainPart> {
    let mut runs = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    let fragment_len = section.packets().next().map_or(1, |packet| fragment(packet).3);
    let run_len = run_len / fragment_len * fragment_len;
    let mut parts = Vec::with_capacity(section.len());
    for (packet, bytes) in section.packets().enumerate() {
        let (name, offset, start, len) = fragment(bytes);
        let fresh = runs.len();
        let run = *runs.entry((name, offset / run_len)).or_insert(fresh);
        if seen.insert((run, offset)) {
            parts.push(PlainPart { packet, start, run, at: offset % run_len, len });
        }
    }
    parts
}

/// Returns a fragment's datagram key and offset, and the offset and length of its payload.
fn fragment(packet: &[u8]) -> (Vec<u8>, usize, usize, usize) {
    match packet[0] >> 4 {
        6 => {
            let (start, offset) = (IPV6_LEN + 8, word(packet, IPV6_LEN + 2) & 0xFFF8);
            let name = [&packet[8..IPV6_LEN], &packet[IPV6_LEN + 4..start]].concat();
            (name, offset, start, packet.len() - start)
        }
        _ => {
            let offset = (word(packet, 6) & 0x1FFF) * 8;
            let name = [&packet[12..IPV4_LEN], &packet[4..6]].concat();
            (name, offset, IPV4_LEN, packet.len() - IPV4_LEN)
        }
    }
}

/// Returns the payloads of segments, in runs that end at the longest packet length or at a burst's end. The first
/// segment of a run keeps its headers.
fn segments(section: &Section, ask: &Ask) -> Vec<PlainPart> {
    let header_len = IPV4_LEN + TCP_LEN;
    let payload_len = section.longest() - header_len;
    let per_run = (ask.len_max - header_len) / payload_len;
    let seq = |packet: &[u8]| u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]);
    let mut firsts = HashMap::new();
    let mut runs = HashMap::new();
    let mut bursts: HashMap<(Vec<u8>, usize), usize> = HashMap::new();
    let mut parts = Vec::with_capacity(section.len());
    for (packet, bytes) in section.packets().enumerate() {
        let flow = [&bytes[12..IPV4_LEN], &bytes[IPV4_LEN..IPV4_LEN + 4]].concat();
        let first = *firsts.entry(flow.clone()).or_insert(seq(bytes));
        let index = seq(bytes).wrapping_sub(first) as usize / payload_len;
        let (group, place) = match ask.empties_after_burst {
            true => {
                let nth = bursts.entry((flow.clone(), packet / ask.burst)).or_default();
                *nth += 1;
                (packet / ask.burst, *nth - 1)
            }
            false => (0, index),
        };
        let fresh = runs.len();
        let run = *runs.entry((flow, group, place / per_run)).or_insert(fresh);
        let place = place % per_run;
        let (start, at) = if place == 0 { (0, 0) } else { (header_len, header_len + place * payload_len) };
        parts.push(PlainPart { packet, start, run, at, len: bytes.len() - start });
    }
    parts
}

/// A section of plain byte strings, copied one by one to the same few destinations.
struct Strings {
    source: &'static [u8],
    destination: &'static mut [u8],
    copies: Vec<Vec<Move>>,
    next: usize,
}

impl Strings {
    fn new(ask: &Ask, section: &Section) -> Strings {
        let (source, places) = lay(ask, section);
        let first = |copy: &[(usize, usize)]| copy.first().map_or(0, |(at, _)| *at);
        let moves = |copy: &Vec<(usize, usize)>| {
            copy.iter().map(|(at, len)| Move { from: *at, to: at - first(copy), len: *len }).collect()
        };
        let copies: Vec<Vec<Move>> = places.iter().map(moves).collect();
        let destination = memory(section.len() * section.longest().next_multiple_of(64), ask.pages);
        Strings { source, destination, copies, next: 0 }
    }
}

impl Station for Strings {
    fn fill(&mut self) {
        self.next = (self.next + 1) % self.copies.len();
    }

    fn section(&mut self) -> usize {
        timed_section(self.source, self.destination, &self.copies[self.next]);
        self.copies[self.next].len()
    }

    fn show(&mut self, _: &mut dyn FnMut(&[u8])) {}

    fn delivers(&self) -> String {
        "a copy; no sum".to_string()
    }
}
