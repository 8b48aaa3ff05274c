//! The standard library's lock and an eventfd -> the synchronisation of threads.
//!
//! All threads use these types, so that the test `tests/interleavings.rs` can replace the lock and the event, and
//! try every order of steps.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// An event that any thread can set and one thread waits for.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes an event that is not set.
    ///
    /// # Errors
    /// The process or the system has no free descriptor.
    pub fn new() -> io::Result<EventFd> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map(EventFd)
            .map_err(|error| io::Error::new(error.kind(), format!("eventfd: cannot create one: {error}")))
    }

    /// Returns the event's descriptor, which is readable while the event is set.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sets the event.
    pub fn wake(&self) {
        // The write only fails if the counter is full. The event is then set already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the event.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // The event might not be set, and then there is nothing to read.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}
