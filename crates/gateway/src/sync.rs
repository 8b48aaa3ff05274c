//! What threads meet by: the standard's lock, and a bell. `tests/interleavings.rs` puts others in their place.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// Others ring it; one thread waits on it.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// One that is silent.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<EventFd> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map(EventFd)
            .map_err(|error| io::Error::new(error.kind(), format!("eventfd: cannot make one: {error}")))
    }

    /// Readable while it rings.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Rings until it is silenced.
    pub fn wake(&self) {
        // A full counter rings as well.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Silences it.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // It may not ring.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}
