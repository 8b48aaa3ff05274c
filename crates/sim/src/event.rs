//! Planned events -> the next one to happen. Events of the same time keep their order.

use packet::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Frames arrive at the far end of this wire.
    Arrive(u32),
    /// A deadline of this node has passed.
    Wake(u32),
    /// This flow sends.
    Send(u32),
    /// This fault of the plan begins.
    Fault(u32),
}

/// Planned events, the earliest first. Those of the same time come in the order of planning.
#[derive(Debug)]
pub struct Events<W> {
    heap: BinaryHeap<Planned<W>>,
    sequence: u64,
}

/// A planned event.
#[derive(Debug)]
struct Planned<W> {
    /// The time in the upper half, the order among events of the same time in the lower half.
    when: u128,
    what: W,
}

impl<W> Default for Events<W> {
    fn default() -> Events<W> {
        Events { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<W> Events<W> {
    /// Plans an event.
    #[inline]
    pub fn plan(&mut self, at: Time, what: W) {
        self.sequence += 1;
        let when = u128::from(at.nanos()) << 64 | u128::from(self.sequence);
        self.heap.push(Planned { when, what });
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(Planned::at)
    }

    /// The next event.
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

/// The earliest event is the greatest, because a heap returns the greatest first.
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
