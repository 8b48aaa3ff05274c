//! TCP connections that are never idle -> the bytes that each delivers while something else is measured.

use super::tcp::StopWhenDropped;
use linux::namespace::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::process::setpriority_process;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Sends over `flows` connections from a host to another host's address, and calls `act` meanwhile with the start of the
/// measurement. Returns the bytes that each connection delivered in `stretch` from there on, and the result of `act`.
///
/// # Errors
/// A socket that cannot be created, or a connection that fails.
pub(super) fn saturate<T>(
    from: &Namespace,
    to: (&Namespace, IpAddr),
    flows: usize,
    stretch: Duration,
    act: impl FnOnce(Instant) -> io::Result<T>,
) -> io::Result<(Vec<u64>, T)> {
    let (to, address) = to;
    let sink = to.enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = sink.local_addr()?;
    let pair = || Ok((from.enter(|| saturating(target))?, sink.accept()?.0));
    let pairs = (0..flows).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
    let (streams, receivers) = pairs.into_iter().unzip();
    let has_ended = AtomicBool::new(false);
    let began = Instant::now() + WARM_UP;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(streams, &has_ended));
        let receiver = scope.spawn(|| receive(receivers, began, stretch, &has_ended));
        let done = {
            let _stops = StopWhenDropped(&has_ended);
            act(began)
        };
        let bytes = receiver.join().expect("a receiver that panics has said why")?;
        sender.join().expect("a sender that panics has said why")?;
        Ok((bytes, done?))
    })
}

/// Opens a connection that is never idle.
fn saturating(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = tcp_socket()?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Opens a TCP socket over IPv4, with the congestion control of all measurements.
pub(super) fn tcp_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    sockopt::set_tcp_congestion(&socket, crate::traffic::CONGESTION)?;
    Ok(socket)
}

/// Keeps the send buffers of all connections full.
fn send(mut streams: Vec<TcpStream>, has_ended: &AtomicBool) -> io::Result<()> {
    run_first();
    let content = vec![7; WRITE_LEN];
    while !has_ended.load(Ordering::Relaxed) {
        for index in ready(&streams, PollFlags::OUT)? {
            match streams[index].write(&content) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The receiver may end first.
                Err(_) if has_ended.load(Ordering::Relaxed) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Reads all connections until `has_ended`. Returns the bytes that each received within `stretch` from `began` on.
fn receive(
    mut streams: Vec<TcpStream>,
    began: Instant,
    stretch: Duration,
    has_ended: &AtomicBool,
) -> io::Result<Vec<u64>> {
    run_first();
    let (mut bytes, mut room) = (vec![0; streams.len()], vec![0; 1 << 18]);
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    while !has_ended.load(Ordering::Relaxed) {
        for index in ready(&streams, PollFlags::IN)? {
            let count = match streams[index].read(&mut room) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            if now >= began && now < began + stretch {
                bytes[index] += count as u64;
            }
        }
    }
    Ok(bytes)
}

/// Lets this thread run before other programs, as the worker does. Otherwise the hosts are slower than the worker, and
/// no packet waits.
pub(super) fn run_first() {
    // Without the privilege, other programs disturb the measurement.
    let _ = setpriority_process(None, FIRST);
}

/// Waits until sockets are ready, and returns their indices.
fn ready(streams: &[TcpStream], flags: PollFlags) -> io::Result<Vec<usize>> {
    let mut fds: Vec<PollFd<'_>> = streams.iter().map(|stream| PollFd::new(stream, flags)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }))?;
    Ok((0..fds.len()).filter(|index| !fds[*index].revents().is_empty()).collect())
}

/// Time from the start of the connections to the measurement.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// Nice value of the highest priority of an ordinary thread.
const FIRST: i32 = -20;
const WRITE_LEN: usize = 1 << 16;
