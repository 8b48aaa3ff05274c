//! What is to happen and when in, the next of it out: one queue, in which what comes at one moment keeps its order.

use packet::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    heap: BinaryHeap<Planned<W>>,
    sequence: u64,
}

/// One of them.
#[derive(Debug)]
struct Planned<W> {
    /// The moment, and in the lower half the place among those of one moment.
    when: u128,
    what: W,
}

impl<W> Default for Events<W> {
    fn default() -> Events<W> {
        Events { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<W> Events<W> {
    /// Plans something.
    #[inline]
    pub fn plan(&mut self, at: Time, what: W) {
        self.sequence += 1;
        let when = u128::from(at.nanos()) << 64 | u128::from(self.sequence);
        self.heap.push(Planned { when, what });
    }

    /// When something happens next.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(Planned::at)
    }

    /// What happens next.
    #[inline]
    pub fn next(&mut self) -> Option<(Time, W)> {
        self.heap.pop().map(|planned| (planned.at(), planned.what))
    }
}

impl<W> Planned<W> {
    fn at(&self) -> Time {
        Time::from_nanos((self.when >> 64) as u64)
    }
}

/// The earliest is the greatest: a heap gives that out first.
impl<W> Ord for Planned<W> {
    fn cmp(&self, other: &Planned<W>) -> Ordering {
        other.when.cmp(&self.when)
    }
}

impl<W> PartialOrd for Planned<W> {
    fn partial_cmp(&self, other: &Planned<W>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W> PartialEq for Planned<W> {
    fn eq(&self, other: &Planned<W>) -> bool {
        self.when == other.when
    }
}

impl<W> Eq for Planned<W> {}
