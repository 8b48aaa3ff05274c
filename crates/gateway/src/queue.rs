//! Things from any thread in, the same in their order out, at one thread that a bell wakes.
//!
//! That thread waits for the bell, silences it, and then takes all there is, in this order: whatever comes
//! meanwhile rings again.

use crate::sync::{Arc, EventFd, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;

/// What waits for a thread.
pub struct Queue<T> {
    /// None once nothing more is taken.
    waiting: Mutex<Option<Waiting<T>>>,
    bell: Arc<EventFd>,
    len_max: usize,
}

struct Waiting<T> {
    things: VecDeque<(T, usize)>,
    len: usize,
}

impl<T> Queue<T> {
    /// An empty one, which rings this bell and has so much room.
    pub fn new(bell: Arc<EventFd>, len_max: usize) -> Queue<T> {
        Queue { waiting: Mutex::new(Some(Waiting { things: VecDeque::new(), len: 0 })), bell, len_max }
    }

    /// Puts in a thing that takes so much room; false where there is too little, or nobody takes it any more. It is
    /// made once it has its room, under the lock: what is refused costs nothing.
    pub fn put(&self, len: usize, thing: impl FnOnce() -> T) -> bool {
        let mut waiting = self.waiting();
        let Some(open) = waiting.as_mut().filter(|open| len <= self.len_max - open.len) else { return false };
        open.things.push_back((thing(), len));
        open.len += len;
        drop(waiting);
        self.bell.wake();
        true
    }

    /// The first thing, if one is there.
    pub fn take(&self) -> Option<T> {
        let mut waiting = self.waiting();
        let open = waiting.as_mut()?;
        let (thing, len) = open.things.pop_front()?;
        open.len -= len;
        Some(thing)
    }

    /// Takes nothing more, and returns what is there.
    pub fn close(&self) -> Vec<T> {
        let waiting = self.waiting().take();
        waiting.into_iter().flat_map(|open| open.things).map(|(thing, _)| thing).collect()
    }

    /// Whoever panicked with it: it is whole between two steps.
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("len_max", &self.len_max).finish_non_exhaustive()
    }
}
