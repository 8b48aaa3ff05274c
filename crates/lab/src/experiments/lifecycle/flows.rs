//! Pairs of hosts -> TCP connections between them at a steady rate, and the gaps and errors of each connection.
//!
//! One thread serves all senders and one all receivers, so that the load needs little CPU time. Every received byte
//! is compared with the byte sent at its position.

use crate::net::Host;
use crate::traffic::{CONGESTION, content};
use linux::sockets::retransmitted_count;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// TCP connections that send until [`finish`](Self::finish).
pub(super) struct Flows {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Hosts and address of a connection.
pub(super) struct Route<'a> {
    /// The host that opens the connection, and sends.
    pub(super) from: &'a Host,
    /// The host that receives.
    pub(super) to: &'a Host,
    /// The receiver's address.
    pub(super) address: IpAddr,
}

/// A moment, and the progress of all connections at that moment.
pub(super) struct Mark {
    /// Time at which the progress was recorded.
    pub(super) at: Instant,
    sent: Vec<u64>,
    retransmitted: u64,
}

/// Final state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All data and the end of the stream arrived.
    Complete,
    /// The connection was reset.
    Reset,
    /// The connection timed out, or did not end in time.
    TimedOut,
}

struct Shared {
    flows: Vec<Flow>,
    /// Whether the senders stop and close their connections.
    closes: AtomicBool,
    /// Whether both threads end immediately.
    is_over: AtomicBool,
}

struct Flow {
    sender: TcpStream,
    receiver: TcpStream,
    /// The repeated content of the stream, stored twice so that no part of it wraps.
    pattern: Vec<u8>,
    sent: AtomicU64,
    received: AtomicU64,
    wrong: AtomicU64,
    has_ended: AtomicBool,
    failure: Mutex<Option<io::ErrorKind>>,
    arrivals: Mutex<Vec<Instant>>,
}

impl Flows {
    /// Opens all connections and begins to send.
    pub(super) fn start<'a>(routes: impl Iterator<Item = Route<'a>>) -> io::Result<Flows> {
        let flows = routes.zip(0..).map(|(route, seed)| Flow::open(&route, seed)).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared { flows, closes: AtomicBool::new(false), is_over: AtomicBool::new(false) });
        let (sending, receiving) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![thread::spawn(move || sending.send()), thread::spawn(move || receiving.receive())];
        Ok(Flows { shared, threads })
    }

    /// Records the present moment and the progress of all connections.
    pub(super) fn mark(&self) -> io::Result<Mark> {
        let sent = self.flows().iter().map(|flow| flow.sent.load(Ordering::Relaxed)).collect();
        Ok(Mark { at: Instant::now(), sent, retransmitted: self.retransmitted()? })
    }

    /// Waits up to `timeout` until all connections have delivered data sent after a mark. Returns the number of
    /// connections without such a delivery.
    pub(super) fn wait(&self, mark: &Mark, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        loop {
            let passed = |(flow, sent): (&Flow, &u64)| flow.received.load(Ordering::Relaxed) > *sent;
            let missing = self.flows().iter().zip(&mark.sent).filter(|it| !passed(*it)).count();
            if missing == 0 || Instant::now() >= until {
                return missing;
            }
            thread::sleep(LOOK);
        }
    }

    /// Returns each connection's longest time without an arrival between two moments.
    pub(super) fn gaps(&self, from: Instant, until: Instant) -> Vec<Duration> {
        self.flows().iter().map(|flow| longest_gap(&locked(&flow.arrivals), from, until)).collect()
    }

    /// Returns the number of segments retransmitted since a mark.
    pub(super) fn retransmitted_since(&self, mark: &Mark) -> io::Result<u64> {
        Ok(self.retransmitted()?.saturating_sub(mark.retransmitted))
    }

    /// Returns the number of bytes that all connections have delivered so far.
    pub(super) fn received(&self) -> u64 {
        self.flows().iter().map(|flow| flow.received.load(Ordering::Relaxed)).sum()
    }

    /// Stops sending and waits up to `timeout` until all data has arrived. Returns the outcome of each connection
    /// and the number of changed bytes.
    pub(super) fn finish(mut self, timeout: Duration) -> (Vec<Outcome>, u64) {
        self.shared.closes.store(true, Ordering::Relaxed);
        let until = Instant::now() + timeout;
        let is_done = |flow: &Flow| flow.has_ended.load(Ordering::Acquire) || locked(&flow.failure).is_some();
        while Instant::now() < until && !self.flows().iter().all(is_done) {
            thread::sleep(LOOK);
        }
        self.stop();
        let outcomes = self.flows().iter().map(Flow::outcome).collect();
        (outcomes, self.flows().iter().map(|flow| flow.wrong.load(Ordering::Relaxed)).sum())
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported why.
            let _ = thread.join();
        }
    }

    fn flows(&self) -> &[Flow] {
        &self.shared.flows
    }

    fn retransmitted(&self) -> io::Result<u64> {
        self.flows().iter().map(|flow| retransmitted_count(&flow.sender).map(u64::from)).sum()
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Flow {
    fn open(route: &Route<'_>, seed: u64) -> io::Result<Flow> {
        let &Route { from, to, address } = route;
        let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
        let target = listener.local_addr()?;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let open = || socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP));
        let socket = from.space().enter(open)?;
        sockopt::set_tcp_congestion(&socket, CONGESTION)?;
        // With a small buffer, a blocked sender is not far ahead of the receiver.
        sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_LEN)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(OPEN_TIMEOUT))?;
        connect(&socket, &target)?;
        let (sender, (receiver, _)) = (TcpStream::from(socket), listener.accept()?);
        sender.set_nonblocking(true)?;
        sender.set_nodelay(true)?;
        receiver.set_nonblocking(true)?;
        let pattern = content(seed, PATTERN_LEN);
        Ok(Flow {
            sender,
            receiver,
            pattern: [&pattern[..], &pattern].concat(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            failure: Mutex::new(None),
            arrivals: Mutex::default(),
        })
    }

    /// Returns the `len` bytes of the stream's content that start at position `place`.
    fn at(&self, place: u64, len: usize) -> &[u8] {
        let from = (place % PATTERN_LEN as u64) as usize;
        &self.pattern[from..from + len]
    }

    /// Writes up to [`WRITE_LEN`] bytes to the socket, without waiting.
    fn write(&self) {
        let sent = self.sent.load(Ordering::Relaxed);
        match (&self.sender).write(self.at(sent, WRITE_LEN)) {
            Ok(len) => self.sent.store(sent + len as u64, Ordering::Relaxed),
            Err(error) => self.failed(&error),
        }
    }

    /// Reads all bytes that the socket has received, and compares them with the sent bytes.
    fn read(&self, room: &mut [u8]) {
        loop {
            match (&self.receiver).read(room) {
                Ok(0) => return self.has_ended.store(true, Ordering::Release),
                Ok(len) => {
                    let place = self.received.load(Ordering::Relaxed);
                    let wrong = room[..len].iter().zip(self.at(place, len)).filter(|(came, sent)| came != sent);
                    self.wrong.fetch_add(wrong.count() as u64, Ordering::Relaxed);
                    locked(&self.arrivals).push(Instant::now());
                    self.received.store(place + len as u64, Ordering::Relaxed);
                }
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn failed(&self, error: &io::Error) {
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            locked(&self.failure).get_or_insert(error.kind());
        }
    }

    fn outcome(&self) -> Outcome {
        let is_whole = self.received.load(Ordering::Relaxed) == self.sent.load(Ordering::Relaxed);
        match *locked(&self.failure) {
            None if is_whole && self.has_ended.load(Ordering::Relaxed) => Outcome::Complete,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Outcome::Reset,
            _ => Outcome::TimedOut,
        }
    }

    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || locked(&self.failure).is_some()
    }
}

impl Shared {
    /// Writes to each connection in turn, at even intervals. Skips a connection whose socket is full.
    fn send(&self) {
        let gap = PERIOD / self.flows.len().max(1) as u32;
        let began = Instant::now();
        for (flow, turn) in self.flows.iter().cycle().zip(0_u32..) {
            if self.closes.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep((began + gap * turn).saturating_duration_since(Instant::now()));
            flow.write();
        }
        for flow in &self.flows {
            // If the connection is already broken, the shutdown fails.
            let _ = flow.sender.shutdown(Shutdown::Write);
        }
    }

    fn receive(&self) {
        let mut room = vec![0; PATTERN_LEN];
        while !self.is_over.load(Ordering::Relaxed) {
            let open: Vec<&Flow> = self.flows.iter().filter(|flow| !flow.is_over()).collect();
            let mut fds: Vec<_> =
                open.iter().map(|flow| PollFd::from_borrowed_fd(flow.receiver.as_fd(), PollFlags::IN)).collect();
            match poll(&mut fds, Some(&POLL_TIMEOUT)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return open.iter().for_each(|flow| flow.failed(&error.into())),
            }
            let ready = open.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            ready.for_each(|(flow, _)| flow.read(&mut room));
        }
    }
}

/// Returns the longest gap that overlaps the stretch from `from` to `until`. A gap is the time between two
/// arrivals, or from the last arrival to `until`.
fn longest_gap(arrivals: &[Instant], from: Instant, until: Instant) -> Duration {
    let before = arrivals.iter().rev().find(|at| **at <= from).copied().unwrap_or(from);
    let within = arrivals.iter().copied().filter(|at| *at > from && *at < until);
    let (mut longest, mut last) = (Duration::ZERO, before);
    for at in within.chain([until]) {
        longest = longest.max(at - last);
        last = at;
    }
    longest
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Length of each write, in bytes. One write per connection and period gives 1.8 Mbit/s.
const WRITE_LEN: usize = 4_500;
const PERIOD: Duration = Duration::from_millis(20);
/// Length after which the content repeats, in bytes. The length of a lost packet is not a multiple of this prime,
/// so every loss changes the content.
const PATTERN_LEN: usize = 65_521;
const SEND_BUFFER_LEN: usize = 128 << 10;
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_partly_within_the_period_counts_in_full() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let gap = |arrivals: &[u64], from, until| {
            let arrivals: Vec<_> = arrivals.iter().map(|ms| at(*ms)).collect();
            longest_gap(&arrivals, at(from), at(until)).as_millis()
        };
        assert_eq!(gap(&[0, 10, 20, 90, 100], 30, 120), 70);
        assert_eq!(gap(&[0, 10, 20, 40, 50], 30, 200), 150, "nothing came until the end");
        assert_eq!(gap(&[0, 10, 20, 30, 40], 20, 40), 10);
        assert_eq!(gap(&[], 20, 40), 20);
    }
}
