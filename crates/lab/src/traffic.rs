//! Number of bytes -> duration and CPU time of a transfer between two hosts.
//!
//! Sender and receiver are threads of this process, each in the namespace of its host, with ordinary sockets. The
//! content is drawn from a seed. The receiver keeps every byte and compares its SHA-256 with the sender's after the
//! clock has stopped. So verification adds nothing to the measurement.

use crate::usage::thread_time;
use linux::namespace::Namespace;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, ipproto, send, socket_with, sockopt,
};
use rustix::thread::{set_current_timer_slack, set_name};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// Duration, CPU time and integrity of one transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Transfer {
    /// Number of payload bytes that arrived.
    pub bytes: u64,
    /// Time from the first byte sent to the last byte received, in seconds.
    pub seconds: f64,
    /// CPU time of the sending thread, in seconds.
    pub sender_seconds: f64,
    /// CPU time of the receiving thread, in seconds.
    pub receiver_seconds: f64,
    /// Number of messages sent; 0 for a stream.
    pub messages_sent: u64,
    /// Number of messages that arrived; 0 for a stream.
    pub messages: u64,
    /// SHA-256 of the sent content.
    pub sha256: String,
    /// Whether all sent content arrived unchanged.
    pub intact: bool,
}

impl Transfer {
    /// Returns the rate of the payload, in bits per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

/// Length of each write to the sender's socket, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Writes {
    /// Lengths drawn from the seed, 256 KiB on average. With equal writes, every write ends with a short GSO packet
    /// of the same length. Some write lengths then cost much more than others.
    Drawn,
    /// Equal writes of this length.
    Of(usize),
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writes::Drawn => write!(f, "{WRITE_LEN} bytes in the mean"),
            Writes::Of(len) => write!(f, "{len} bytes"),
        }
    }
}

/// Rate and length of writes at even intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Rate of the payload, in bits per second.
    pub rate: f64,
    /// Length of each write, in bytes.
    pub write_len: usize,
    /// Treatment of the end of a write.
    pub end: WriteEnd,
}

/// Treatment of the end of a write by the sender's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WriteEnd {
    /// The last segment has PSH, which is the kernel's default.
    Push,
    /// More data follows soon (`MSG_MORE`). So full segments are sent without PSH, and a short segment waits for
    /// more data.
    More,
}

/// Sends `len` bytes in one TCP connection from a host to an address of another host, with CUBIC congestion
/// control. Lengths of writes are drawn from the seed.
///
/// # Errors
/// A socket error.
pub fn tcp(from: &Namespace, to: &Namespace, address: IpAddr, len: usize, seed: u64) -> io::Result<Transfer> {
    tcp_in(Writes::Drawn, from, to, address, len, seed)
}

/// Sends `len` bytes as [`tcp`] does, with the given lengths of writes.
///
/// # Errors
/// A socket error.
pub fn tcp_in(
    writes: Writes,
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    len: usize,
    seed: u64,
) -> io::Result<Transfer> {
    transfer(from, to, address, len, seed, |stream, content| write_in(stream, content, writes, seed))
}

/// Sends `len` bytes as [`tcp`] does, in writes at even intervals. A late sender catches up.
///
/// # Errors
/// A socket error.
pub fn tcp_paced(
    pace: Pace,
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    len: usize,
    seed: u64,
) -> io::Result<Transfer> {
    transfer(from, to, address, len, seed, |stream, content| write_paced(stream, content, pace))
}

fn transfer(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    len: usize,
    seed: u64,
    write: impl FnOnce(&mut TcpStream, &[u8]) -> io::Result<()> + Send,
) -> io::Result<Transfer> {
    let sent = content(seed, len);
    // The receiver's memory is written once beforehand, so that no page is allocated while the clock runs.
    let room = vec![1; len];
    let listener = to.enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = listener.local_addr()?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| to.enter(|| receive_tcp(&listener, room)));
        let sender = scope.spawn(|| from.enter(|| send_tcp(target, &sent, write)));
        let sending = sender.join().expect("a sender that panics has said why");
        let receiving = receiver.join().expect("a receiver that panics has said why");
        let ((began, sender_time), (ended, receiver_time, received)) = (sending?, receiving?);
        Ok(Transfer {
            bytes: received.len() as u64,
            seconds: ended.duration_since(began).as_secs_f64(),
            sender_seconds: sender_time.as_secs_f64(),
            receiver_seconds: receiver_time.as_secs_f64(),
            messages_sent: 0,
            messages: 0,
            intact: received == sent,
            sha256: digest(&sent),
        })
    })
}

fn send_tcp(
    target: SocketAddr,
    content: &[u8],
    write: impl FnOnce(&mut TcpStream, &[u8]) -> io::Result<()>,
) -> io::Result<(Instant, Duration)> {
    // A profiler shows threads by name.
    set_name(c"lab-sends")?;
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    // The algorithm is set before the connection opens. The machine's default could pace the connection even after
    // a later change.
    sockopt::set_tcp_congestion(&socket, CONGESTION)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TIMEOUT))?;
    connect(&socket, &target)?;
    let mut stream = TcpStream::from(socket);
    let (began, before) = (Instant::now(), thread_time());
    write(&mut stream, content)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // The receiver closes the connection after the last byte.
    let _ = stream.read(&mut [0]);
    Ok((began, thread_time() - before))
}

fn write_in(stream: &mut TcpStream, content: &[u8], writes: Writes, seed: u64) -> io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut left = content;
    while !left.is_empty() {
        let len = match writes {
            Writes::Drawn => rng.usize(1..2 * WRITE_LEN),
            Writes::Of(len) => len,
        };
        let (part, rest) = left.split_at(len.clamp(1, left.len()));
        stream.write_all(part)?;
        left = rest;
    }
    Ok(())
}

fn write_paced(stream: &mut TcpStream, content: &[u8], pace: Pace) -> io::Result<()> {
    // The default timer slack of 50 µs would turn short intervals into bursts.
    set_current_timer_slack(NonZeroU64::new(1))?;
    let flags = if pace.end == WriteEnd::More { SendFlags::MORE } else { SendFlags::empty() };
    let gap = Duration::from_secs_f64(pace.write_len as f64 * 8.0 / pace.rate);
    let began = Instant::now();
    for (part, index) in content.chunks(pace.write_len).zip(0u32..) {
        let early = (began + gap * index).saturating_duration_since(Instant::now());
        if !early.is_zero() {
            thread::sleep(early);
        }
        let mut left = part;
        while !left.is_empty() {
            left = &left[send(&*stream, left, flags)?..];
        }
    }
    Ok(())
}

fn receive_tcp(listener: &TcpListener, mut received: Vec<u8>) -> io::Result<(Instant, Duration, Vec<u8>)> {
    set_name(c"lab-receives")?;
    let len = received.len();
    sockopt::set_socket_timeout(listener, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let before = thread_time();
    let mut done = 0;
    while done < len {
        match stream.read(&mut received[done..(done + READ_LEN).min(len)])? {
            0 => break,
            count => done += count,
        }
    }
    let ended = Instant::now();
    received.truncate(done);
    Ok((ended, thread_time() - before, received))
}

/// Sends `count` UDP messages of `len` bytes at `rate` payload bits per second from a host to an address of another
/// host.
///
/// Each message carries its number. A message is counted as arrived if it is complete and unchanged.
///
/// # Errors
/// A socket error.
pub fn udp(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    message: Messages,
    seed: u64,
) -> io::Result<Transfer> {
    let pattern = content(seed, message.len);
    let receiver = to.enter(|| UdpSocket::bind(SocketAddr::new(address, 0)))?;
    receiver.set_read_timeout(Some(QUIET))?;
    // The buffer exceeds the host's limit if the process has the privilege for it. Otherwise the default length
    // remains.
    let _ = sockopt::set_socket_recv_buffer_size_force(&receiver, SOCKET_BUFFER_LEN);
    let target = receiver.local_addr()?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| to.enter(|| receive_udp(&receiver, &pattern, message)));
        let sending = scope.spawn(|| from.enter(|| send_udp(target, &pattern, message)));
        let sending = sending.join().expect("a sender that panics has said why");
        let receiving = receiving.join().expect("a receiver that panics has said why");
        let ((began, sender_time), (ended, receiver_time, messages, wrong)) = (sending?, receiving?);
        Ok(Transfer {
            bytes: messages * message.len as u64,
            seconds: ended.duration_since(began).as_secs_f64(),
            sender_seconds: sender_time.as_secs_f64(),
            receiver_seconds: receiver_time.as_secs_f64(),
            messages_sent: message.count,
            messages,
            intact: wrong == 0,
            sha256: digest(&pattern),
        })
    })
}

/// UDP messages of one length at one rate.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Length of each message, in bytes; at least 8.
    pub len: usize,
    /// Number of messages.
    pub count: u64,
    /// Rate of the payload, in bits per second; `None`: as fast as the sender can.
    pub rate: Option<f64>,
}

fn send_udp(target: SocketAddr, pattern: &[u8], message: Messages) -> io::Result<(Instant, Duration)> {
    let local = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local)?;
    socket.connect(target)?;
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_LEN);
    let mut content = pattern.to_vec();
    let gap = message.rate.map(|rate| Duration::from_secs_f64(message.len as f64 * 8.0 / rate));
    let (began, before) = (Instant::now(), thread_time());
    for index in 0..message.count {
        if let Some(gap) = gap {
            let due = began + gap.mul_f64(index as f64);
            let early = due.saturating_duration_since(Instant::now());
            if early > SLEEP_MIN {
                thread::sleep(early);
            }
        }
        content[..8].copy_from_slice(&index.to_be_bytes());
        while let Err(error) = socket.send(&content) {
            match error.kind() {
                // The first packets may meet unresolved neighbours.
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused => {}
                _ if error.raw_os_error() == Some(ENOBUFS) => thread::yield_now(),
                // After an ICMP error about a smaller MTU, the host fragments at the next try.
                _ if error.raw_os_error() == Some(EMSGSIZE) && content.len() <= MESSAGE_LEN_MAX => {}
                _ => return Err(error),
            }
        }
    }
    Ok((began, thread_time() - before))
}

fn receive_udp(socket: &UdpSocket, pattern: &[u8], message: Messages) -> io::Result<(Instant, Duration, u64, u64)> {
    let mut room = vec![1; message.len + 1];
    let mut seen = vec![false; message.count as usize];
    let (mut messages, mut wrong, mut ended, mut before) = (0, 0, Instant::now(), None);
    while messages + wrong < message.count {
        let len = match socket.recv(&mut room) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        };
        ended = Instant::now();
        before.get_or_insert_with(thread_time);
        let number = room[..8].try_into().map(u64::from_be_bytes).expect("eight bytes are eight bytes");
        let whole = len == message.len && room[8..len] == pattern[8..];
        match seen.get_mut(number as usize) {
            Some(seen) if whole && !*seen => {
                *seen = true;
                messages += 1;
            }
            _ => wrong += 1,
        }
    }
    let time = before.map_or(Duration::ZERO, |before| thread_time() - before);
    Ok((ended, time, messages, wrong))
}

/// Returns `len` bytes drawn from a seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut content);
    content
}

/// Returns the SHA-256 of bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Congestion control of transfers. The machine's default may pace segments.
pub const CONGESTION: &str = "cubic";
/// Longest stall of a transfer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the receiver waits after the last message; longer than a border's default reassembly time-out.
const QUIET: Duration = Duration::from_millis(800);
/// Mean of the drawn lengths, in bytes.
const WRITE_LEN: usize = 1 << 18;
const READ_LEN: usize = 1 << 18;
const SOCKET_BUFFER_LEN: usize = 8 << 20;
/// Shortest sleep, because a shorter one would take longer than requested.
const SLEEP_MIN: Duration = Duration::from_micros(60);
const ENOBUFS: i32 = 105;
const EMSGSIZE: i32 = 90;
/// Longest UDP message over IPv4, in bytes.
const MESSAGE_LEN_MAX: usize = 65_507;
