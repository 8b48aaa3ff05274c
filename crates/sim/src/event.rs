//! What is to happen and when in, the next of it out: one queue, in which what comes at one moment keeps its order.

use packet::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Frames arrive at the far end of this wire.
    Arrive(u32),
    /// Something that this node holds is late.
    Wake(u32),
    /// This flow sends.
    Send(u32),
    /// This fault of the plan begins.
    Fault(u32),
}

/// What is to happen, the earliest first; of one moment, what was planned first.
#[derive(Debug)]
pub struct Events<W> {
    heap: BinaryHeap<Reverse<(Time, u64, W)>>,
    sequence: u64,
}

impl<W: Ord> Default for Events<W> {
    fn default() -> Events<W> {
        Events { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<W: Ord> Events<W> {
    /// Plans something.
    pub fn plan(&mut self, at: Time, what: W) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, what)));
    }

    /// When something happens next.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// What happens next.
    pub fn next(&mut self) -> Option<(Time, W)> {
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}
