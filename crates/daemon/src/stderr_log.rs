//! Sentences -> lines on standard error, without waiting for the reader.
//!
//! A write to a pipe or terminal blocks if no process reads from it and its buffer is full. The flag `O_NONBLOCK`
//! would also affect other processes with the same open file description. So a pipe or terminal is opened a second
//! time. To a socket, each message is sent with the flag `MSG_DONTWAIT`.
//!
//! Lines for which there is no space are dropped. Their number is printed when there is space again.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The log of a process on standard error.
#[derive(Debug)]
pub(crate) struct StderrLog {
    direction: LogTarget,
    /// Number of lines dropped since the last line that was written.
    dropped_count: Cell<u64>,
    /// Whether the last line was only written in part, for lack of space.
    is_torn: Cell<bool>,
}

/// The way in which lines are written to a descriptor.
#[derive(Debug)]
enum LogTarget {
    /// A pipe or terminal that was opened a second time and never blocks.
    Own(OwnedFd),
    /// A socket. Each message is sent with the flag `MSG_DONTWAIT`.
    Socket(OwnedFd),
    /// A regular file, which never blocks, or a descriptor that cannot be opened again. Its free space is checked
    /// before each line.
    Shared(OwnedFd),
    /// There is no standard error.
    Nowhere,
}

impl StderrLog {
    /// Returns the log on standard error.
    pub fn standard_error() -> StderrLog {
        StderrLog::of(io::stderr())
    }

    fn of(to: impl AsFd) -> StderrLog {
        let direction = LogTarget::of(to.as_fd()).unwrap_or(LogTarget::Nowhere);
        StderrLog { direction, dropped_count: Cell::new(0), is_torn: Cell::new(false) }
    }

    /// Writes a line, or drops it if there is no space.
    pub fn say(&self, line: &str) {
        let torn = if self.is_torn.get() { "\n" } else { "" };
        let dropped = match self.dropped_count.get() {
            0 => String::new(),
            count => format!("wideload: {count} lines were dropped here: they were not read in time\n"),
        };
        let text = format!("{torn}{dropped}{line}\n");
        let mut left = text.as_bytes();
        // A pipe accepts up to PIPE_BUF bytes completely or not at all (POSIX).
        while let Some(part) = left.get(..left.len().min(PIPE_BUF)).filter(|part| !part.is_empty()) {
            match self.direction.write(part) {
                Ok(len) => left = left.get(len..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let written_len = text.len() - left.len();
        if left.is_empty() {
            self.dropped_count.set(0);
            self.is_torn.set(false);
            return;
        }
        self.is_torn.set(written_len > 0 || self.is_torn.get());
        // The note about earlier dropped lines may be incomplete as well: it is written again.
        self.dropped_count.set(self.dropped_count.get() + 1);
    }
}

impl LogTarget {
    fn of(to: BorrowedFd<'_>) -> io::Result<LogTarget> {
        let own = to.try_clone_to_owned()?;
        Ok(match FileType::from_raw_mode(fstat(to)?.st_mode) {
            FileType::Socket => LogTarget::Socket(own),
            FileType::Fifo | FileType::CharacterDevice => {
                let path = format!("/proc/self/fd/{}", to.as_raw_fd());
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                open(path, flags, Mode::empty()).map_or(LogTarget::Shared(own), LogTarget::Own)
            }
            _ => LogTarget::Shared(own),
        })
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            LogTarget::Own(own) => rustix::io::write(own, bytes),
            LogTarget::Socket(socket) => send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            LogTarget::Shared(shared) => {
                let mut fds = [PollFd::new(shared, PollFlags::OUT)];
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
                let [room] = fds.map(|fd| fd.revents().contains(PollFlags::OUT));
                if room { rustix::io::write(shared, bytes) } else { Err(Errno::AGAIN) }
            }
            LogTarget::Nowhere => Err(Errno::BADF),
        }
    }
}

/// Largest number of bytes that a pipe accepts completely or not at all.
const PIPE_BUF: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::fs::File;
    use std::io::Read;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_blocked_reader_does_not_delay_the_log_and_drops_are_counted() {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("descriptors are free");
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("they are free");
        let (read, write) = pipe();
        let (shared_read, shared_write) = pipe();
        let directions = [
            (StderrLog::of(&write), read, "a pipe"),
            (StderrLog::of(&ours), theirs, "a socket"),
            (
                StderrLog {
                    direction: LogTarget::Shared(shared_write),
                    dropped_count: Cell::new(0),
                    is_torn: Cell::new(false),
                },
                shared_read,
                "a pipe that is shared",
            ),
        ];
        for (voice, reader, what) in directions {
            let (done, is_done) = mpsc::channel();
            let talk = thread::spawn(move || {
                // Short and long lines, more than any of these descriptors can buffer.
                for number in 0..2_000 {
                    voice.say(&format!("line {number} {}", "x".repeat(number % 3 * 4_000)));
                }
                done.send(()).expect("it is waited for");
                voice
            });
            assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(()), "{what}: it waits");
            let voice = talk.join().expect("it does not panic");
            let dropped_count = voice.dropped_count.get();
            assert!((1..2_000).contains(&dropped_count), "{what}: {dropped_count}");
            let mut reader = File::from(reader);
            let mut room = vec![0; 1 << 22];
            let len = reader.read(&mut room).expect("there is something");
            let text = String::from_utf8_lossy(&room[..len]).into_owned();
            let whole = text.lines().filter(|line| line.starts_with("line ")).count() as u64;
            assert!(whole > 0 && whole <= 2_000 - dropped_count + 1, "{what}: {whole}, {dropped_count}");
            voice.say("here again");
            let len = reader.read(&mut room).expect("there is something");
            let text = String::from_utf8_lossy(&room[..len]).into_owned();
            let said = format!("wideload: {dropped_count} lines were dropped here: they were not read in time\n");
            assert!(text.ends_with(&format!("{said}here again\n")), "{what}: {text}");
            voice.say("and again");
            let len = reader.read(&mut room).expect("there is something");
            assert_eq!(&room[..len], b"and again\n", "{what}");
        }
    }

    #[test]
    fn log_lines_are_appended_to_a_file() {
        let mut file = tempfile::tempfile().expect("there is room");
        let write = |text: &str| std::io::Write::write_all(&mut &file, text.as_bytes()).expect("there is room");
        write("before\n");
        let voice = StderrLog::of(&file);
        voice.say("one");
        write("between\n");
        voice.say("two");
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).expect("it is a file");
        file.read_to_string(&mut text).expect("it is text");
        assert_eq!(text, "before\none\nbetween\ntwo\n");
    }
}
