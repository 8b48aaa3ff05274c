//! Frames in a device's memory -> batches of a port, by copying or by placement.
//!
//! The port does the work of kernel and program for a batch. First it copies every frame out of the device's
//! memory, as one system call for all of them would. Then it parses each frame. Frames are in pages of 2 MiB, in
//! slots like those of a NIC. After the last frame, the first one is received again.

use crate::harness::Pages;
use crate::harness::arena::{class, memory};
use crate::section::Section;
use engine::Batch;
use packet::{
    Buffer, CLASS_LENS, Frame, HEADROOM, HeaderLayout, Ingress, Link, LinkType, Packet, PayloadSlots, Pool,
    SplitFrame,
};
use std::ops::Range;

/// A device's memory, and the port on it.
pub struct Device {
    memory: &'static [u8],
    frames: Vec<Range<usize>>,
    next: usize,
    link_type: LinkType,
    link_len: usize,
    /// Room of a receive buffer for a frame, in bytes. It selects the class of the buffer.
    buffer_len: usize,
    smalls: Vec<Buffer>,
}

impl Device {
    /// Creates a device whose memory has `copies` consecutive copies of these frames.
    pub fn new(frames: &Section, copies: usize, link_type: LinkType, pages: Pages) -> Device {
        let longest = frames.longest();
        let slot_len = longest.next_multiple_of(if longest > SHORT_LEN { SLOT_LEN } else { SHORT_LEN });
        let memory = memory(copies * frames.len() * slot_len, pages);
        let mut ranges = Vec::with_capacity(copies * frames.len());
        let slots = memory.chunks_exact_mut(slot_len).enumerate();
        for ((index, slot), frame) in slots.zip((0..copies).flat_map(|_| frames.packets())) {
            slot[..frame.len()].copy_from_slice(frame);
            ranges.push(index * slot_len..index * slot_len + frame.len());
        }
        let first = frames.packets().next().unwrap_or_default();
        let link_len = Link::parse(link_type, first).expect("the frames are packets").len;
        // As in ports: a small buffer holds a whole frame of the link's MTU.
        let [small, _, longer, _] = CLASS_LENS;
        let buffer_len = if longest - link_len > small { longer } else { small };
        Device { memory, frames: ranges, next: 0, link_type, link_len, buffer_len, smalls: Vec::new() }
    }

    /// Returns another port on the same device memory.
    pub fn same_memory(&self) -> Device {
        Device { frames: self.frames.clone(), smalls: Vec::new(), ..*self }
    }

    /// Returns the number of frames in the device's memory.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the number of buffers of each class that the port needs.
    pub fn counts(&self) -> [usize; CLASS_LENS.len()] {
        let mut counts = [0; CLASS_LENS.len()];
        counts[class(self.buffer_len)] += BATCH_COUNT + 1;
        counts
    }

    /// Copies the next frame to a buffer and parses it there. The next call of [`receive`](Self::receive) starts
    /// with the same frame.
    pub fn copy_next(&self, pool: &mut Pool) -> Packet {
        let frame = &self.memory[self.frames[self.next].clone()];
        Frame::copy(frame, self.link_type, Ingress(0), pool).expect("the frames are packets")
    }

    /// Returns the device's memory, and the range of each frame.
    pub fn frames(&self) -> (&'static [u8], &[Range<usize>]) {
        (self.memory, &self.frames)
    }

    /// Receives the next `count` frames. Payloads are copied to the offered places until no place remains; later
    /// frames are copied to buffers.
    pub fn receive(
        &mut self,
        count: usize,
        places: Option<PayloadSlots<'_>>,
        pool: &mut Pool,
        Batch { split: split_frame, frames }: &mut Batch,
    ) {
        let front = places.as_ref().map(PayloadSlots::front);
        let mut places = places;
        let mut next = |index| if index < count { places.as_mut()?.next() } else { None };
        let mut places: [Option<&mut [u8]>; BATCH_COUNT] = std::array::from_fn(&mut next);
        let (start, at) = (self.next, HEADROOM - self.link_len);
        self.next = (start + count) % self.frames.len();
        assert!(count <= BATCH_COUNT && start + count <= self.frames.len(), "batches divide the ring");
        for (range, place) in self.frames[start..start + count].iter().zip(&mut places) {
            let mut buffer = pool.allocate(self.buffer_len).expect("the pool has room for a batch");
            copy(&self.memory[range.clone()], at, &mut buffer, front, place.as_deref_mut());
            self.smalls.push(buffer);
        }
        let before_count = split_frame.len();
        let came = self.smalls.drain(..).zip(&self.frames[start..start + count]).zip(&places);
        for (index, ((buffer, range), place)) in came.enumerate() {
            let len = range.len();
            let place = place.as_deref().zip(front);
            let buffer = match place {
                None => buffer,
                Some((place, front)) => {
                    match SplitFrame::of(buffer, at, len, front, place, self.link_type, Ingress(0)) {
                        Ok(it) if split_frame.len() == before_count + index => {
                            split_frame.push(it);
                            continue;
                        }
                        // After a frame that was not split, payloads are copied out of their places, so that placed
                        // payloads are contiguous.
                        Ok(it) => {
                            frames.push(it.copy_out(place));
                            continue;
                        }
                        Err(buffer) => buffer,
                    }
                }
            };
            frames.push(Frame::read(buffer, at, len, self.link_type, Ingress(0)));
        }
    }
}

/// Copies a frame as the kernel does: fills the header buffer, then the offered place, then the rest of the buffer.
fn copy(frame: &[u8], at: usize, buffer: &mut Buffer, front: Option<HeaderLayout>, place: Option<&mut [u8]>) {
    let (Some(front), Some(place)) = (front, place) else { return buffer.put(at, frame) };
    let (header, rest) = frame.split_at(front.len().min(frame.len()));
    let (payload, behind) = rest.split_at(rest.len().min(place.len()));
    buffer.put(at, header);
    place[..payload.len()].copy_from_slice(payload);
    if !behind.is_empty() {
        buffer.put(at + header.len() + place.len(), behind);
    }
}

/// Largest number of frames in a batch.
pub const BATCH_COUNT: usize = 64;
/// Spacing of long frames in device memory, in bytes: half a page of 4 KiB. Longer frames use a multiple of it.
const SLOT_LEN: usize = 2_048;
/// Spacing of frames if all frames are short, in bytes.
const SHORT_LEN: usize = 128;
