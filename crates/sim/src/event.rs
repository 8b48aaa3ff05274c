//! Planned events -> the next event. Events with equal times keep the order in which they were planned.
//!
//! The queue makes a run deterministic.

use packet::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Frames arrive at the far end of the wire with this number.
    Arrive(u32),
    /// A deadline of the node with this number has passed.
    Wake(u32),
    /// The flow with this number transmits.
    Send(u32),
    /// The planned fault with this number begins.
    Fault(u32),
}

/// A queue of planned events, earliest first. Events with equal times keep the order in which they were planned.
#[derive(Debug)]
pub struct Events<W> {
    heap: BinaryHeap<Planned<W>>,
    sequence: u64,
}

/// A planned event.
#[derive(Debug)]
struct Planned<W> {
    /// The event's time in the upper 64 bits, and a sequence number in the lower 64 bits.
    when: u128,
    what: W,
}

impl<W> Default for Events<W> {
    fn default() -> Events<W> {
        Events { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<W> Events<W> {
    /// Plans an event for time `at`.
    #[inline]
    pub fn plan(&mut self, at: Time, what: W) {
        self.sequence += 1;
        let when = u128::from(at.nanos()) << 64 | u128::from(self.sequence);
        self.heap.push(Planned { when, what });
    }

    /// The time of the next event; `None` if no event is planned.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(Planned::at)
    }

    /// Removes and returns the next event.
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

/// Reverse order, because a heap returns its greatest element first.
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
