//! Device -> its payloads in their datagrams, and nothing else: the time of the copies alone.
//!
//! The loop knows all places beforehand. Its time shows the part of placement's gain that is due to fewer copies.

use super::device::{BATCH_COUNT, Device};
use crate::harness::Pages;
use crate::harness::arena::{memory, stride};
use packet::{CLASS_LENS, HEADROOM};
use std::ops::Range;

/// Number of copies of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// To a buffer, and from there to the datagram.
    Two,
    /// Only to the datagram. The headers are copied to a buffer.
    One,
}

/// The copies of one section, computed beforehand.
pub struct Plain {
    device: Device,
    /// For each frame, the number of its datagram, and the offset of the payload in the datagram's buffer.
    places: Vec<(usize, usize)>,
    smalls: &'static mut [u8],
    small_len: usize,
    datagrams: &'static mut [u8],
    datagram_len: usize,
    /// Number of datagram buffers used in turn with one copy, where all places of a batch are assigned beforehand.
    turns: usize,
}

impl Plain {
    /// Computes the copies for a device with fragments of datagrams of `len` bytes. Each fragment except the last
    /// has `step` bytes.
    pub fn new(device: Device, len: usize, step: usize) -> Plain {
        let fragments = len.div_ceil(step);
        let places =
            (0..device.len()).map(|index| (index / fragments, HEADROOM + index % fragments * step)).collect();
        let class_of = |len: usize| CLASS_LENS.into_iter().find(|class| *class >= len).unwrap_or(len);
        let [small, _, longer, _] = CLASS_LENS;
        let small_len = stride(if step > small { longer } else { small });
        let datagram_len = stride(class_of(len));
        let turns = BATCH_COUNT.div_ceil(fragments) + 1;
        let smalls = memory(BATCH_COUNT * small_len, Pages::Huge);
        let datagrams = memory(turns * datagram_len, Pages::Huge);
        Plain { device, places, smalls, small_len, datagrams, datagram_len, turns }
    }

    /// Copies all frames of the device's memory, batch by batch.
    pub fn receive_all(&mut self, copies: Copies) {
        let count = self.device.len();
        for start in (0..count).step_by(BATCH_COUNT) {
            let batch = start..count.min(start + BATCH_COUNT);
            match copies {
                Copies::Two => self.copy_twice(batch),
                Copies::One => self.copy_once(batch),
            }
        }
    }

    fn copy_twice(&mut self, batch: Range<usize>) {
        let (memory, frames) = self.device.frames();
        let smalls = |slot: usize| slot * self.small_len + HEADROOM;
        for (slot, range) in frames[batch.clone()].iter().enumerate() {
            let at = smalls(slot);
            self.smalls[at..at + range.len()].copy_from_slice(&memory[range.clone()]);
        }
        for (slot, index) in batch.enumerate() {
            let (from, len) = (smalls(slot) + FRONT_LEN, frames[index].len() - FRONT_LEN);
            // A complete datagram leaves, and the next one takes its buffer.
            let (_, at) = self.places[index];
            self.datagrams[at..at + len].copy_from_slice(&self.smalls[from..from + len]);
        }
    }

    fn copy_once(&mut self, batch: Range<usize>) {
        let (memory, frames) = self.device.frames();
        for (slot, index) in batch.enumerate() {
            let (header, payload) = memory[frames[index].clone()].split_at(FRONT_LEN);
            let at = slot * self.small_len + HEADROOM;
            self.smalls[at..at + FRONT_LEN].copy_from_slice(header);
            let (datagram, place) = self.places[index];
            let at = datagram % self.turns * self.datagram_len + place;
            self.datagrams[at..at + payload.len()].copy_from_slice(payload);
        }
    }
}

/// Length of the Ethernet and IPv4 headers, in bytes.
const FRONT_LEN: usize = 34;
