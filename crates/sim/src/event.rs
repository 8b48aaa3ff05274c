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
#[derive(Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, What)>>,
    sequence: u64,
}

impl Events {
    /// Plans something.
    pub fn plan(&mut self, at: Time, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, what)));
    }

    /// What happens next.
    pub fn next(&mut self) -> Option<(Time, What)> {
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}
