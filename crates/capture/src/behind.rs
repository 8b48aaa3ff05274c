//! Full buffers in, empty ones out: another thread packs and writes them.
//!
//! A few buffers go round. Who fills them waits only where all of them are full, and learns of a failure when it hands
//! over the next.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::packed::{BUFFER_LEN, Packed};

/// A writer on a thread of its own.
pub(crate) struct Behind<W: Write> {
    /// Full buffers to the thread; none once it has failed.
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<Packed<W>>>>,
}

impl<W: Write + Send + 'static> Behind<W> {
    pub(crate) fn start(mut packed: Packed<W>) -> io::Result<Behind<W>> {
        let (full, to_write) = sync_channel::<Vec<u8>>(BUFFER_COUNT);
        let (written, empty) = sync_channel(BUFFER_COUNT);
        for _ in 0..BUFFER_COUNT {
            written.send(Vec::with_capacity(BUFFER_LEN)).expect("its receiver lives, and it has room");
        }
        let thread = Builder::new().name("writer".to_owned()).spawn(move || {
            for mut buffer in to_write {
                packed.write_all(&buffer)?;
                buffer.clear();
                // Nobody takes it where the writer was dropped; then no other comes.
                let _ = written.send(buffer);
            }
            Ok(packed)
        })?;
        Ok(Behind { full: Some(full), empty, thread: Some(thread) })
    }
}

impl<W: Write> Behind<W> {
    /// Hands over a buffer's bytes, and leaves an empty one.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let handed = self.empty.recv().ok().and_then(|empty| {
            let full = core::mem::replace(buffer, empty);
            self.full.as_ref()?.send(full).ok()
        });
        match handed {
            Some(()) => Ok(()),
            None => Err(self.failure()),
        }
    }

    /// Waits for the thread.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(packed)) => packed?.finish(),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(already_failed()),
        }
    }

    /// Why the thread ended before its time.
    fn failure(&mut self) -> io::Error {
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Ok(Ok(_))) | None => already_failed(),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl<W: Write> Drop for Behind<W> {
    /// Nothing is written once its writer is gone.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // Whoever drops it unfinished does not want to know.
            let _ = thread.join();
        }
    }
}

fn already_failed() -> io::Error {
    io::Error::other("an earlier write failed")
}

/// Buffers that go round: one is filled, one written, and one evens out the pace.
const BUFFER_COUNT: usize = 3;
