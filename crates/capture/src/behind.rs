//! Full buffers -> empty buffers: another thread compresses and writes their content.
//!
//! A second thread hides the cost of compression from the caller. A few buffers circulate. The caller waits only if
//! all buffers are full. An error of the thread is reported when the caller hands over a later buffer, or by
//! `finish`.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::packed::{BUFFER_LEN, Packed};

/// A compressed output that is written by a thread of its own.
pub(crate) struct Behind<W: Write> {
    /// Channel for full buffers to the thread; `None` after the thread failed.
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
                // Fails only if the writer was dropped. Then no other buffer follows.
                let _ = written.send(buffer);
            }
            Ok(packed)
        })?;
        Ok(Behind { full: Some(full), empty, thread: Some(thread) })
    }
}

impl<W: Write> Behind<W> {
    /// Hands the full `buffer` to the thread and replaces it with an empty one.
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

    /// Waits until the thread has written all buffers, finishes the compression, and returns the output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(packed)) => packed?.finish(),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(already_failed()),
        }
    }

    /// The error that stopped the thread.
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
    /// Waits for the thread, so that no byte is written after the drop.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // A caller that drops the writer unfinished does not need the error.
            let _ = thread.join();
        }
    }
}

fn already_failed() -> io::Error {
    io::Error::other("an earlier write failed")
}

/// Number of buffers: one to fill, one to write, and one spare to even out the pace.
const BUFFER_COUNT: usize = 3;
