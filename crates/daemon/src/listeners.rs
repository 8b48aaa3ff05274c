//! A listening socket -> a thread for each connection: at most sixteen, each with time-outs.
//!
//! The control socket and the metrics use this module.
//!
//! Every wait also ends with the service, so an open connection never delays the end of the gateway.

use gateway::sync::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A listening thread. Dropping this value stops it.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Event that is set at the end of the service. All threads wait for it too.
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// A service that handles connections.
pub(crate) trait Serve: Send + Sync + 'static {
    /// The type of the listening socket.
    type Listener: AsFd + Send + 'static;
    /// The type of a connection.
    type Stream: Read + Write + AsFd + Send;

    /// Returns the next connection, as a non-blocking stream. Does not wait.
    ///
    /// # Errors
    /// No connection is waiting.
    fn accept(&self, listener: &Self::Listener) -> io::Result<Self::Stream>;

    /// Serves a connection until it ends.
    fn serve(&self, connection: Connection<'_, Self::Stream>);

    /// Rejects a connection beyond the limit, with one write.
    fn reject_busy(&self, stream: Self::Stream);
}

/// An open connection, and the event at the end of the service.
pub(crate) struct Connection<'a, S> {
    pub stream: S,
    end: &'a EventFd,
}

impl Listener {
    /// Accepts connections on a thread of this name.
    ///
    /// # Errors
    /// The kernel cannot create a thread or a descriptor.
    pub fn open<H: Serve>(name: &str, listener: H::Listener, host: H) -> io::Result<Listener> {
        let end = Arc::new(EventFd::new()?);
        let eventfd = Arc::clone(&end);
        let thread = Builder::new().name(name.to_owned()).spawn(move || keep(&listener, &host, &eventfd))?;
        Ok(Listener { end, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported the reason.
            let _ = thread.join();
        }
    }
}

fn keep<H: Serve>(listener: &H::Listener, host: &H, end: &EventFd) {
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        while wait(end, listener.as_fd(), PollFlags::IN, None).is_ok() {
            let stream = match host.accept(listener) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // No descriptor is left, or the client has gone: existing connections continue.
                Err(_) => {
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if count.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                host.reject_busy(stream);
                continue;
            }
            count.fetch_add(1, Ordering::Relaxed);
            let leaving = Leaving(&count);
            // If no thread can be started for a connection, the connection is closed.
            let _ = Builder::new().name("guest".to_owned()).spawn_scoped(scope, move || {
                let _leaving = leaving;
                host.serve(Connection { stream, end });
            });
        }
    });
}

/// Subtracts one from the number of connections when dropped, even after a panic.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Read + Write + AsFd> Connection<'_, S> {
    /// Reads available bytes. Waits for them until `deadline`.
    ///
    /// # Errors
    /// No bytes arrived in time, the service ends, or the connection is closed.
    pub fn read(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Err(error) if is_nothing(&error) => {
                    wait(self.end, self.stream.as_fd(), PollFlags::IN, Some(deadline))?
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes all bytes. Waits for space until `deadline`.
    ///
    /// # Errors
    /// No space became free in time, the service ends, or the connection is closed.
    pub fn write_all(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_nothing(&error) => {
                    wait(self.end, self.stream.as_fd(), PollFlags::OUT, Some(deadline))?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits until `fd` is ready. Fails at the end of the service.
fn wait(end: &EventFd, fd: BorrowedFd<'_>, flags: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no data arrived in time"));
        }
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        let mut fds = [PollFd::from_borrowed_fd(fd, flags), PollFd::from_borrowed_fd(end.fd(), PollFlags::IN)];
        // After a signal, check again.
        let _ = poll(&mut fds, left.as_ref());
        let [ready, ended] = fds.map(|fd| !fd.revents().is_empty());
        if ended {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the service is stopping"));
        }
        if ready {
            return Ok(());
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Largest number of simultaneous connections.
pub(crate) const CONNECTIONS_MAX: usize = 16;
/// Pause after a connection could not be accepted, such as for lack of a descriptor.
const PAUSE: Duration = Duration::from_millis(50);
