//! Items from any thread -> one thread, in order, woken by an event.
//!
//! That thread waits for the event, clears it and then takes all items. In this order, an item that arrives
//! meanwhile sets the event again.

use crate::sync::{Arc, EventFd, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;

/// A bounded queue to one thread.
pub struct Queue<T> {
    /// `None` once the queue is closed.
    waiting: Mutex<Option<Waiting<T>>>,
    eventfd: Arc<EventFd>,
    len_max: usize,
}

struct Waiting<T> {
    things: VecDeque<(T, usize)>,
    len: usize,
}

impl<T> Queue<T> {
    /// An empty queue that sets this event. `len_max` limits the sum of the items' lengths.
    pub fn new(eventfd: Arc<EventFd>, len_max: usize) -> Queue<T> {
        Queue { waiting: Mutex::new(Some(Waiting { things: VecDeque::new(), len: 0 })), eventfd, len_max }
    }

    /// Queues an item of this length; false where the queue is full or closed. `thing` runs under the lock, once
    /// there is room: a rejected item costs nothing.
    pub fn put(&self, len: usize, thing: impl FnOnce() -> T) -> bool {
        let mut waiting = self.waiting();
        let Some(open) = waiting.as_mut().filter(|open| len <= self.len_max - open.len) else { return false };
        open.things.push_back((thing(), len));
        open.len += len;
        drop(waiting);
        self.eventfd.wake();
        true
    }

    /// The first item, if there is one.
    pub fn take(&self) -> Option<T> {
        let mut waiting = self.waiting();
        let open = waiting.as_mut()?;
        let (thing, len) = open.things.pop_front()?;
        open.len -= len;
        Some(thing)
    }

    /// Closes the queue, and returns the items that are left.
    pub fn close(&self) -> Vec<T> {
        let waiting = self.waiting().take();
        waiting.into_iter().flat_map(|open| open.things).map(|(thing, _)| thing).collect()
    }

    /// Ignores poisoning: the queue is consistent between any two steps.
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("len_max", &self.len_max).finish_non_exhaustive()
    }
}
