//! Items from any thread -> one thread, in order, woken by an event.
//!
//! The receiving thread waits for the event, clears it and then takes all items. An item that arrives after the
//! clearing sets the event again, so no item is missed.

use crate::sync::{Arc, EventFd, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;

/// A queue from any thread to one thread, with a limit.
pub struct Queue<T> {
    /// The queued items and their total length; `None` after the queue was closed.
    waiting: Mutex<Option<Waiting<T>>>,
    eventfd: Arc<EventFd>,
    len_max: usize,
}

struct Waiting<T> {
    things: VecDeque<(T, usize)>,
    len: usize,
}

impl<T> Queue<T> {
    /// Makes an empty queue that sets this event. `len_max` limits the sum of the items' lengths.
    pub fn new(eventfd: Arc<EventFd>, len_max: usize) -> Queue<T> {
        Queue { waiting: Mutex::new(Some(Waiting { things: VecDeque::new(), len: 0 })), eventfd, len_max }
    }

    /// Queues an item of this length. Returns false if the queue is full or closed. `thing` makes the item under
    /// the queue's lock. The function is only called if the item is queued.
    pub fn put(&self, len: usize, thing: impl FnOnce() -> T) -> bool {
        let mut waiting = self.waiting();
        let Some(open) = waiting.as_mut().filter(|open| len <= self.len_max - open.len) else { return false };
        open.things.push_back((thing(), len));
        open.len += len;
        drop(waiting);
        self.eventfd.wake();
        true
    }

    /// Removes and returns the first item; `None` if the queue is empty or closed.
    pub fn take(&self) -> Option<T> {
        let mut waiting = self.waiting();
        let open = waiting.as_mut()?;
        let (thing, len) = open.things.pop_front()?;
        open.len -= len;
        Some(thing)
    }

    /// Closes the queue, and returns the items that are left in it.
    pub fn close(&self) -> Vec<T> {
        let waiting = self.waiting().take();
        waiting.into_iter().flat_map(|open| open.things).map(|(thing, _)| thing).collect()
    }

    /// Locks the queue, even if a thread panicked under the lock. Only the function that makes an item can panic
    /// there, before the queue changes.
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("len_max", &self.len_max).finish_non_exhaustive()
    }
}
