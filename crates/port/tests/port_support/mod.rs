//! Namespaces of the test, and a loop that forwards frames between two ports.
#![allow(dead_code, reason = "each test takes what it needs")]

use packet::{Buffer, Checksum, Frame, Ingress, Pool};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Spec;
use wideload_port::{GsoKind, GsoRequest, Offloads, Port, TxFrame, TxOffload};

/// A network namespace, which exists as long as this value.
pub struct Namespace(File);

impl Namespace {
    pub fn new() -> Namespace {
        let made = thread::spawn(|| {
            // SAFETY: the call takes a number and changes this thread only.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a test of live ports runs as root");
            ip("link set lo up");
            File::open("/proc/thread-self/ns/net").expect("it is there")
        });
        Namespace(made.join().expect("the thread ends"))
    }

    /// Moves the calling thread into the namespace.
    pub fn enter(&self) {
        // SAFETY: the descriptor is open; the call changes this thread only.
        assert_eq!(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    }

    /// Runs `within` on a thread in the namespace.
    pub fn run<T: Send>(&self, within: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let ran = scope.spawn(|| {
                self.enter();
                within()
            });
            ran.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }

    /// Returns the path of the namespace, for `ip link set ... netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

pub fn ip(words: &str) {
    run("ip", words);
}

pub fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().expect("the program is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {said}");
}

/// Forwards frames from one port to the other.
pub struct Forwarder {
    pub pool: Pool,
    pub frames: Vec<Frame>,
    pub told: Told,
}

/// The counts of a forwarder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub frame_count: u64,
    pub byte_count: u64,
    pub gso_count: u64,
    pub partial_count: u64,
    /// Partial checksums that the forwarder completed, because the port does not complete checksums.
    pub finished_count: u64,
    pub lost_count: u64,
    pub longest: usize,
}

impl Forwarder {
    pub fn new() -> Forwarder {
        Forwarder { pool: Pool::new(64 << 20), frames: Vec::new(), told: Told::default() }
    }

    /// Forwards one batch. Returns whether there was a frame.
    pub fn forward(&mut self, from: &mut dyn Port, to: &mut dyn Port) -> bool {
        let received = from.receive(Ingress(0), &mut self.pool, &mut self.frames).expect("the interface is up");
        assert_eq!(received.count, received.lost_count + self.frames.len());
        self.told.lost_count += received.lost_count as u64;
        if !to.offloads().checksum {
            self.told.finished_count += self.frames.iter_mut().map(|frame| u64::from(finish(frame))).sum::<u64>();
        }
        let takes_none = to.offloads() == NOTHING;
        let to_do: Vec<TxOffload> = self
            .frames
            .iter_mut()
            .map(|frame| if takes_none { TxOffload::default() } else { to_do(frame) })
            .collect();
        let wires: Vec<TxFrame> =
            self.frames.iter().zip(&to_do).map(|(frame, to_do)| wire(frame, *to_do)).collect();
        let mut rest = &wires[..];
        while !rest.is_empty() {
            let count = to.transmit(rest).expect("the other interface takes it");
            rest = &rest[count..];
        }
        for wire in &wires {
            self.told.frame_count += 1;
            self.told.byte_count += wire.header.len() as u64;
            self.told.gso_count += u64::from(wire.offload.gso.is_some());
            self.told.partial_count += u64::from(wire.offload.checksum.is_some());
            self.told.longest = self.told.longest.max(wire.header.len());
        }
        for frame in self.frames.drain(..) {
            self.pool.give(into_buffer(frame));
        }
        received.count > 0
    }
}

/// Completes a partial checksum. Returns whether there was one.
pub fn finish(frame: &mut Frame) -> bool {
    match frame {
        Frame::Ip(packet) => packet.complete_checksum(),
        Frame::Other(..) => false,
    }
}

/// Returns the offload request for a frame: all work that the sender left to its NIC.
pub fn to_do(frame: &mut Frame) -> TxOffload {
    let Frame::Ip(packet) = frame else { return TxOffload::default() };
    if packet.checksum != Checksum::Partial {
        return TxOffload::default();
    }
    let link_len = packet.link().len();
    let checksum =
        packet.defer_checksum().map(|(start, field)| ((link_len + start) as u16, (link_len + field) as u16));
    let gso = packet.gso.map(|gso| GsoRequest {
        segment_len: gso.segment_len,
        header_len: (link_len + packet.len() - packet.gso_len()) as u16,
        kind: match (packet.is_tcp(), packet.ip().version) {
            (false, _) => GsoKind::Udp,
            (true, packet::Version::V4) => GsoKind::Tcp4 { cwr: false },
            (true, packet::Version::V6) => GsoKind::Tcp6 { cwr: false },
        },
    });
    TxOffload { checksum, gso }
}

pub fn into_buffer(frame: Frame) -> Buffer {
    match frame {
        Frame::Ip(packet) => packet.into_buffer(),
        Frame::Other(raw, _) => raw.into_buffer(),
    }
}

pub fn wire(frame: &Frame, to_do: TxOffload) -> TxFrame<'_> {
    let header = match frame {
        Frame::Ip(packet) => packet.frame(),
        Frame::Other(raw, _) => raw.frame(),
    };
    TxFrame { header, payload: &[], offload: to_do }
}

/// Forwards in both directions until `stop` is true. Returns the counts of both directions and the CPU time.
pub fn forward_until(stop: &AtomicBool, one: &mut dyn Port, other: &mut dyn Port) -> ([Told; 2], Duration) {
    let mut there = Forwarder::new();
    let mut back = Forwarder::new();
    let before = thread_time();
    while !stop.load(Ordering::Relaxed) {
        let came = there.forward(one, other) | back.forward(other, one);
        if !came {
            wait(&[one, other], 20);
        }
    }
    let spent = thread_time() - before;
    one.give_back(&mut there.pool);
    other.give_back(&mut back.pool);
    assert_eq!((there.pool.in_use_count(), back.pool.in_use_count()), (0, 0));
    ([there.told, back.told], spent)
}

/// Waits until one of the ports may have a frame.
pub fn wait(ports: &[&mut dyn Port], milliseconds: i32) {
    let mut fds: Vec<_> = ports
        .iter()
        .map(|port| libc::pollfd { fd: port.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the list lives until the call is over.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) };
}

/// Receives frames, at most ten seconds, until `look` returns a value.
pub fn receive_one<T>(port: &mut dyn Port, pool: &mut Pool, mut look: impl FnMut(&Frame) -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(10);
    let mut frames = Vec::new();
    while Instant::now() < until {
        port.receive(Ingress(0), pool, &mut frames).expect("the interface is up");
        let mut seen = None;
        for frame in frames.drain(..) {
            seen = seen.or_else(|| look(&frame));
            pool.give(into_buffer(frame));
        }
        match seen {
            Some(seen) => return seen,
            None => wait(&[port], 20),
        }
    }
    panic!("the frame came");
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time, which lives until the call is over.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends `len` bytes of TCP from one namespace to `address` in the other, and compares the received bytes. Returns
/// the duration.
pub fn transfer(from: &Namespace, to: &Namespace, address: &str, len: usize) -> Duration {
    let listener = to.run(|| TcpListener::bind(address).expect("the address is there"));
    let sent = noise(len);
    let started = Instant::now();
    thread::scope(|scope| {
        let bytes = &sent;
        scope.spawn(move || {
            from.enter();
            let mut stream = TcpStream::connect(address).expect("the other side listens");
            stream.write_all(bytes).expect("the connection holds");
        });
        let (mut stream, _) = listener.accept().expect("a connection comes");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a time");
        let mut came = vec![0; 1 << 18];
        let mut at = 0;
        loop {
            match stream.read(&mut came) {
                Ok(0) => break,
                Ok(len) => {
                    assert!(came[..len] == sent[at..at + len], "bytes at {at} differ");
                    at += len;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("after {at} bytes: {error}"),
            }
        }
        assert_eq!(at, sent.len());
    });
    started.elapsed()
}

/// Sends until a frame arrives: an interface that has just come up drops frames for a moment.
pub fn settle(one: &mut dyn Port, other: &mut dyn Port) {
    let came = (0..100).any(|_| {
        send(one, &ours(100));
        drain(other) > 0
    });
    assert!(came, "a frame comes through");
}

pub fn plain(frame: &[u8]) -> TxFrame<'_> {
    let (header, payload) = frame.split_at(frame.len().min(34));
    TxFrame { header, payload, offload: TxOffload::default() }
}

/// Sends a frame; repeats while the queue is full.
pub fn send(port: &mut dyn Port, frame: &[u8]) {
    while port.transmit(&[plain(frame)]).expect("it is up") == 0 {
        thread::yield_now();
    }
}

/// Receives frames until none comes for a while. Returns their number.
pub fn drain(port: &mut dyn Port) -> u64 {
    let mut pool = Pool::new(64 << 20);
    let mut frames = Vec::new();
    let (mut idle_count, mut count) = (0, 0);
    while idle_count < 3 {
        let received = port.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
        count += frames.len() as u64;
        frames.drain(..).for_each(|frame| pool.give(into_buffer(frame)));
        idle_count = if received.count == 0 { idle_count + 1 } else { 0 };
        if received.was_last {
            wait(&[port], 10);
        }
    }
    port.give_back(&mut pool);
    count
}

/// Receives until at least `count` frames have arrived, for at most [`TIMEOUT`]. Returns their number.
pub fn drain_at_least(port: &mut dyn Port, count: u64) -> u64 {
    let (began, mut taken) = (Instant::now(), 0);
    while taken < count && began.elapsed() < TIMEOUT {
        taken += drain(port);
    }
    taken
}

/// An Ethernet frame of `len` bytes with an experimental protocol, from the test to an unknown station.
pub fn ours(len: usize) -> Vec<u8> {
    to_nobody(testkit::ip(4).payload(vec![0xCD; len - 34])).bytes()
}

/// Returns the packet in an Ethernet frame to an unknown station.
pub fn to_nobody(packet: Spec) -> Spec {
    Spec {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]],
        ..packet.from([10, 7, 0, 1]).to([10, 7, 0, 99]).ethernet()
    }
}

pub fn noise(len: usize) -> Vec<u8> {
    testkit::noise(len, 9)
}

pub const NOTHING: Offloads = Offloads { checksum: false, tcp: false, udp: false };

const TIMEOUT: Duration = Duration::from_secs(10);
