//! Section -> copies of it in buffers, one after the other.
//!
//! Engines consume their input buffers, so each timed section needs a fresh copy. Copies are made outside the timed
//! part.

use super::arena;
use super::ask::Ask;
use crate::section::Section;
use packet::{Buffer, CLASS_LENS, Frame, HEADROOM, Ingress, Link, LinkType, Packet, Pool};
use std::vec::Drain;

/// Copies of a section, as a port would deliver them.
pub struct Ring {
    section: Section,
    copies: Vec<Vec<Delivery>>,
    next: usize,
}

/// A buffer with a packet that starts with its IP header, and the packet's length in bytes.
pub type Delivery = (Buffer, usize);

impl Ring {
    /// Creates an empty ring and its pool. The pool also has `held` buffers of each class up to that of
    /// `result_len` bytes.
    pub fn new(ask: &Ask, section: Section, held: usize, result_len: usize) -> (Ring, Pool) {
        let mut counts = [0; CLASS_LENS.len()];
        counts[arena::class(section.longest())] += ask.ring * section.len() + SPARE_COUNT;
        for count in &mut counts[..=arena::class(result_len)] {
            *count += held + SPARE_COUNT;
        }
        let pool = arena::pool(counts, ask.pages);
        let copies = (0..ask.ring).map(|_| Vec::with_capacity(section.len())).collect();
        (Ring { section, copies, next: usize::MAX }, pool)
    }

    /// Ensures that a copy is ready. If all copies are used, makes all of them again.
    pub fn fill(&mut self, pool: &mut Pool) {
        if self.next < self.copies.len() {
            return;
        }
        for copy in &mut self.copies {
            for packet in self.section.packets() {
                let mut buffer = pool.allocate(packet.len()).expect("the pool has room for the ring");
                buffer.put(HEADROOM, packet);
                copy.push((buffer, packet.len()));
            }
        }
        self.next = 0;
    }

    /// Returns the next copy, whose buffers the caller consumes.
    pub fn next(&mut self) -> &mut Vec<Delivery> {
        let copy = &mut self.copies[self.next];
        self.next += 1;
        copy
    }

    /// Returns the section that is copied.
    pub fn section(&self) -> &Section {
        &self.section
    }

    /// Returns the number of packets in a section.
    pub fn len(&self) -> usize {
        self.section.len()
    }
}

/// Parses the frames of the next burst and prefetches those that follow. Returns whether the burst has any frames.
#[inline(always)]
pub fn burst(frames: &mut Drain<'_, Delivery>, batch: &mut Vec<Frame>) -> bool {
    for _ in 0..BURST {
        if let Some((buffer, _)) = frames.as_slice().get(2 * FORESIGHT) {
            buffer.prefetch();
        }
        if let Some((buffer, _)) = frames.as_slice().get(FORESIGHT) {
            buffer.prefetch_content();
        }
        let Some(delivery) = frames.next() else { break };
        batch.push(frame(delivery));
    }
    !batch.is_empty()
}

/// Parses the frame in a buffer.
#[inline]
pub fn frame((buffer, len): Delivery) -> Frame {
    let link =
        Link::parse(LinkType::Ip, buffer.bytes(HEADROOM..HEADROOM + len)).expect("a section's packets are IP");
    Frame::parse(buffer, len, link, Ingress(0))
}

/// Parses the packet in a buffer.
#[inline]
pub fn parse(delivery: Delivery) -> Packet {
    match frame(delivery) {
        Frame::Ip(packet) => packet,
        Frame::Other(_, unfit) => panic!("a section's packets parse: {unfit:?}"),
    }
}

/// Packets that a port delivers together.
pub const BURST: usize = 32;
/// Distance in packets between the packet being parsed and the one being prefetched.
const FORESIGHT: usize = 4;
/// Buffers of each class in addition to the computed need.
const SPARE_COUNT: usize = 64;
