//! A worker that panics, that hands over, that is given other sides: what it holds is not lost.

use engine::{Identifiers, LIFETIME, Late, Limits, Narrowing, Output, Reassembler, Role, Secret, Side, Widening};
use packet::{Frame, Ingress, Medium, Pool};
use port::clock::Clock;
use port::{Offloads, Port, Received, Wire};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wideload_gateway::handover::{self, Will};
use wideload_gateway::links::Links;
use wideload_gateway::orders::{Order, Reins, orders};
use wideload_gateway::worker::{End, Way, Worker};

#[test]
fn what_is_held_leaves_before_a_panic_goes_on() {
    let (mut worker, reins, left) = worker(&[piece(0, 800, true), piece(800, 400, true)]);
    let running = thread::spawn(move || catch_unwind(AssertUnwindSafe(|| worker.run_guarded())).is_err());
    has_taken(&reins, 2);
    assert!(left.lock().expect("nobody panics").is_empty(), "it is held");
    assert!(reins.give(Order::Change(Box::new(|_, _| panic!("on purpose")))));
    assert!(running.join().expect("it was caught"), "the panic goes on");
    let left: usize = left.lock().expect("nobody panics").iter().map(|frame| frame.len() - 20).sum();
    assert_eq!(left, 1_200, "all that was held has left");
}

#[test]
fn what_one_worker_holds_another_goes_on_with() {
    let (mut first, reins, left) = worker(&[piece(0, 800, true), piece(1_600, 100, false)]);
    let running = thread::spawn(move || first.run());
    has_taken(&reins, 2);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    let will = Will::each(write, 1).remove(0);
    assert!(reins.give(Order::HandOver(will)));
    drop(reins);
    running.join().expect("it ends");
    assert!(left.lock().expect("nobody panics").is_empty(), "nothing went on the wire");
    let legacies = handover::read(read, 1).expect("it is whole");
    assert_eq!(legacies[0].len(), 2, "two pieces");

    let (mut second, reins, left) = worker(&[piece(800, 800, true)]);
    second.inherit(&legacies[0]);
    let running = thread::spawn(move || second.run());
    has_taken(&reins, 1);
    reins.stop();
    running.join().expect("it ends");
    let left = left.lock().expect("nobody panics");
    assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [1_720], "one datagram, whole");
}

#[test]
fn a_will_that_breaks_off_is_no_will() {
    for len in [1, 6, 7, 50] {
        let (read, write) = rustix::pipe::pipe().expect("there is room");
        let mut bytes = vec![0, 0, 1, 60, 0, 0, 0];
        bytes.resize(67, 0);
        rustix::io::write(&write, &bytes[..len]).expect("there is room");
        drop(write);
        assert!(handover::read(read, 1).is_err(), "{len}");
    }
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    rustix::io::write(&write, &[9, 0, 1, 0, 0, 0, 0]).expect("there is room");
    drop(write);
    assert!(handover::read(read, 1).is_err(), "there is no tenth worker");
}

/// Waits until a worker has taken so many frames.
fn has_taken(reins: &Reins, count: u64) {
    let until = Instant::now() + Duration::from_secs(10);
    while reins.ask().expect("it works").ends[0].seen.frames < count {
        assert!(Instant::now() < until, "it takes them");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Frames that left.
type Left = Arc<Mutex<Vec<Vec<u8>>>>;

/// A worker whose wide port gives these, and whose narrow one keeps what leaves.
fn worker(frames: &[Vec<u8>]) -> (Worker, Reins, Left) {
    let left = Left::default();
    let (reins, orders) = orders().expect("there is room");
    let ends = [
        End::new(Memory::port(frames, &left), Links::Bare, 9_000),
        End::new(Memory::port(&[], &left), Links::Bare, 9_000),
    ];
    (Worker::new(Clock::start(), ends, [way(), way()], None, orders), reins, left)
}

fn way() -> Way {
    let secret = Secret::new(7);
    let limits = Limits { bytes: 4 << 20, patience: Some(Duration::from_secs(30)) };
    let widening = Widening {
        reassembler: Some(Reassembler::new(limits, Late::Release { mtu: 9_000 }, secret)),
        ..Widening::default()
    };
    let narrowing = Narrowing::new(9_000, Role::Source(Identifiers::new(secret, LIFETIME)));
    Way::new(Side { widening, narrowing }, Output::new(Pool::new(16 << 20), None), false)
}

/// A port of memory.
struct Memory {
    bell: OwnedFd,
    frames: VecDeque<Vec<u8>>,
    left: Left,
}

impl Memory {
    fn port(frames: &[Vec<u8>], left: &Left) -> Box<dyn Port> {
        let bell = eventfd(u32::from(!frames.is_empty()), EventfdFlags::NONBLOCK).expect("there is room");
        Box::new(Memory { bell, frames: frames.iter().cloned().collect(), left: Arc::clone(left) })
    }
}

impl Port for Memory {
    fn address(&self) -> &str {
        "memory"
    }

    fn medium(&self) -> Medium {
        Medium::Ip
    }

    fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        let mut bell = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut bell);
        let count = self.frames.len();
        for frame in self.frames.drain(..) {
            frames.push(Frame::Ip(Frame::copy(&frame, Medium::Ip, ingress, pool).expect("it is a packet")));
        }
        Ok(Received { count, lost_count: 0, was_last: true })
    }

    fn transmit(&mut self, wires: &[Wire<'_>]) -> io::Result<usize> {
        let mut left = self.left.lock().expect("nobody panics");
        left.extend(wires.iter().map(|wire| [wire.header, wire.payload].concat()));
        Ok(wires.len())
    }
}

fn piece(offset: u16, len: u16, more: bool) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + len).to_be_bytes());
    bytes.extend([0, 9]);
    bytes.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    bytes.extend([64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = packet::Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.resize(20 + usize::from(len), 5);
    bytes
}
