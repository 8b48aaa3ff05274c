//! UDP messages -> the number of arrivals, and the receiver's CPU time.
//!
//! Several experiments share this load. Each message carries its number, so the receiver detects losses, duplicates
//! and changes.

use crate::traffic::content;
use crate::usage::thread_time;
use linux::namespace::Namespace;
use rustix::net::sockopt;
use serde::Serialize;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// UDP messages of one length at regular intervals.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Length of each message, in bytes; at least 8.
    pub len: usize,
    /// Number of messages.
    pub count: u64,
    /// Interval between messages; 0: as fast as the sender can.
    pub gap: Duration,
}

/// Messages of a load that the receiver got.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Received {
    /// Number of messages that arrived complete and unchanged, without duplicates.
    pub arrived: u64,
    /// Number of received messages that were changed, duplicated or never sent.
    pub wrong: u64,
    /// CPU time of the receiving thread, in seconds.
    pub seconds: f64,
    /// Number of wake-ups of the receiving thread.
    pub wakes: u64,
    /// Time of the last arrival; `None` without arrivals.
    #[serde(skip)]
    pub ended: Option<Instant>,
}

/// A receiving socket that recognises the messages of a load.
#[derive(Debug)]
pub struct Inbox {
    socket: UdpSocket,
    /// Content of all messages. In each message, the message's number replaces the first eight bytes.
    pattern: Vec<u8>,
    room: Vec<u8>,
}

/// Round-trip times of messages, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pings {
    /// Median round-trip time.
    pub median: f64,
    /// 99th percentile of the round-trip times.
    pub p99: f64,
    /// Number of messages that returned.
    pub count: usize,
}

impl Inbox {
    /// Opens a receiving socket at an address of a host, with a port that the kernel chooses.
    ///
    /// # Errors
    /// The host has no such address.
    pub fn open(host: &Namespace, address: IpAddr) -> io::Result<Inbox> {
        let socket = host.enter(|| UdpSocket::bind(SocketAddr::new(address, 0)))?;
        // The buffer exceeds the host's limit if the process has the privilege for it. Otherwise the default length
        // remains.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_LEN);
        Ok(Inbox { socket, pattern: content(SEED, MESSAGE_LEN_MAX), room: vec![1; MESSAGE_LEN_MAX + 1] })
    }

    /// Returns the socket's address.
    ///
    /// # Errors
    /// A socket error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns message `number` of a load with messages of `len` bytes.
    pub fn message(&self, number: u64, len: usize) -> Vec<u8> {
        let mut message = self.pattern[..len].to_vec();
        message[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
        message
    }

    /// Receives the messages numbered from `first`, until all have arrived or no message has arrived for `quiet`.
    ///
    /// # Errors
    /// A socket error.
    pub fn take(&mut self, first: u64, count: u64, len: usize, quiet: Duration) -> io::Result<Received> {
        self.socket.set_read_timeout(Some(quiet))?;
        let mut seen = vec![false; count as usize];
        let mut taken = Received { arrived: 0, wrong: 0, seconds: 0.0, wakes: 0, ended: None };
        let before = (thread_time(), thread_wakes());
        while taken.arrived + taken.wrong < count {
            let came = match self.socket.recv(&mut self.room) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            taken.ended = Some(Instant::now());
            let number =
                u64::from_be_bytes(*self.room.first_chunk().expect("there is room for the longest message"));
            if number < first {
                // A late message of an earlier load.
                continue;
            }
            let whole = came == len && self.room[NUMBER_LEN..len] == self.pattern[NUMBER_LEN..len];
            match seen.get_mut((number - first) as usize) {
                Some(seen) if whole && !*seen => {
                    *seen = true;
                    taken.arrived += 1;
                }
                _ => taken.wrong += 1,
            }
        }
        taken.seconds = (thread_time() - before.0).as_secs_f64();
        taken.wakes = thread_wakes() - before.1;
        Ok(taken)
    }
}

/// Sends a load to an inbox. Another thread must already receive the messages. Numbers begin with `first`. Returns
/// the start time.
///
/// # Errors
/// A socket error.
pub fn send(socket: &UdpSocket, message: &mut [u8], first: u64, load: Load) -> io::Result<Instant> {
    let began = Instant::now();
    for index in 0..load.count {
        let due = began + load.gap.mul_f64(index as f64);
        let early = due.saturating_duration_since(Instant::now());
        if early > SLEEP_MIN {
            thread::sleep(early);
        }
        message[..NUMBER_LEN].copy_from_slice(&(first + index).to_be_bytes());
        while let Err(error) = socket.send(message) {
            if error.raw_os_error() != Some(ENOBUFS) {
                return Err(error);
            }
            thread::yield_now();
        }
    }
    Ok(began)
}

/// Opens a socket on a host, connected to the address of an inbox.
///
/// # Errors
/// The host has no route to the inbox.
pub fn outbox(host: &Namespace, target: SocketAddr) -> io::Result<UdpSocket> {
    host.enter(|| {
        let socket = UdpSocket::bind(if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.connect(target)?;
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER_LEN);
        Ok(socket)
    })
}

/// Sends `count` messages of `len` bytes from one host to the other and back. Each message is sent after the
/// previous one has returned.
///
/// # Errors
/// A socket error.
pub fn pings(from: &Namespace, to: &Namespace, address: IpAddr, count: usize, len: usize) -> io::Result<Pings> {
    let server = to.enter(|| UdpSocket::bind(SocketAddr::new(address, 0)))?;
    let client = outbox(from, server.local_addr()?)?;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PING_TIMEOUT))?;
    }
    let mut micros = thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&server));
        let micros = ping(&client, count, len);
        // An empty message ends the echo; if it is lost, the echo's time-out ends it.
        let _ = client.send(&[]);
        echo.join().expect("an echo does not panic");
        micros
    })?;
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros.get((micros.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    Ok(Pings { median: at(0.5), p99: at(0.99), count: micros.len() })
}

fn ping(client: &UdpSocket, count: usize, len: usize) -> io::Result<Vec<f64>> {
    let mut message = content(SEED, len);
    let mut room = vec![0; len + 1];
    let mut micros = Vec::with_capacity(count);
    for number in 0..count as u64 {
        message[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
        let began = Instant::now();
        client.send(&message)?;
        match client.recv(&mut room) {
            Ok(came) if room[..came] == message => micros.push(began.elapsed().as_secs_f64() * 1e6),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(micros)
}

fn echo(server: &UdpSocket) {
    let mut room = vec![0; MESSAGE_LEN_MAX];
    while let Ok((len, from)) = server.recv_from(&mut room) {
        if len == 0 || server.send_to(&room[..len], from).is_err() {
            return;
        }
    }
}

/// Returns the number of times that the calling thread has slept and been woken so far.
fn thread_wakes() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Longest UDP message over IPv4, in bytes.
pub const MESSAGE_LEN_MAX: usize = 65_507;
const NUMBER_LEN: usize = 8;
const SEED: u64 = 11;
const SOCKET_BUFFER_LEN: usize = 16 << 20;
/// Shortest sleep, because a shorter one would take longer than requested.
const SLEEP_MIN: Duration = Duration::from_micros(60);
const PING_TIMEOUT: Duration = Duration::from_secs(1);
const ENOBUFS: i32 = 105;
