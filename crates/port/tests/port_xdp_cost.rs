//! Waiting frames -> a forwarder's cost per frame, with AF_XDP and with packet sockets.

mod port_support;

use linux::netlink::Netlink;
use offload::intercept::Intercept;
use packet::{Frame, Ingress, Pool};
use port_support::{NOTHING, Namespace, finish, into_buffer, ip, thread_time, wait, wire};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use testkit::Spec;
use wideload_port::{Options, Port, TxFrame, TxOffload, open};

#[test]
fn waiting_frames_are_forwarded_without_allocation() {
    for kind in ["xdp", "packet", "xdp", "packet"] {
        for len in [60, 1_514, 9_014] {
            let told = rounds(kind, len);
            println!("{kind}, {len} bytes: {} ns of CPU per frame, {told:?}", told.spent.as_nanos() / ROUNDS_LEN);
            assert_eq!((told.count, told.missed, told.unsent), (ROUNDS_LEN as u64, 0, 0), "{kind}, {len} bytes");
            assert_eq!(told.allocation_count, 0, "{kind}, {len} bytes");
        }
    }
}

#[derive(Debug, Default)]
struct Told {
    count: u64,
    missed: u64,
    unsent: u64,
    /// CPU time of the forwarder.
    spent: Duration,
    allocation_count: u64,
}

/// Sends [`ROUND_LEN`] frames per round to one port. A forwarder moves the frames to another port, and the kernel
/// drops them at its far end. The first rounds are not counted.
fn rounds(kind: &str, len: usize) -> Told {
    let (mut source, mut one, mut other, _sink) = Namespace::new().run(|| {
        for (near, far) in [("port1", "host1"), ("port2", "host2")] {
            ip(&format!("link add {near} mtu 9000 type veth peer name {far} mtu 9000"));
            [near, far].iter().for_each(|name| ip(&format!("link set {name} addrgenmode none arp off up")));
        }
        let host = Netlink::open().and_then(|mut netlink| netlink.interface("host2")).expect("it is there");
        let sink = Intercept::all(host.index).expect("these tests have the right");
        let open = |address: String| open(&address, &Options::default()).expect("it is there");
        (open("packet:host1".into()), open(format!("{kind}:port1")), open(format!("{kind}:port2")), sink)
    });
    let frame = frame(len);
    let mut pool = Pool::new(64 << 20);
    let mut frames = Vec::with_capacity(64);
    let mut told = Told::default();
    for round in 0..WARM_UP_COUNT + ROUND_COUNT {
        if round == WARM_UP_COUNT {
            told = Told::default();
        }
        for _ in 0..ROUND_LEN {
            let wire = TxFrame { header: &frame, payload: &[], offload: TxOffload::default() };
            while source.transmit(&[wire]).expect("it is up") == 0 {}
        }
        let mut count = 0;
        while count < ROUND_LEN {
            wait(&[&mut *one], 1_000);
            let (time, allocation_count) = (thread_time(), ALLOCATION_COUNT.get());
            count += forward(&mut *one, &mut *other, &mut pool, &mut frames);
            told.spent += thread_time() - time;
            told.allocation_count += ALLOCATION_COUNT.get() - allocation_count;
        }
        told.count += count;
    }
    (told.missed, told.unsent) = (one.missed(), other.unsent());
    one.give_back(&mut pool);
    assert_eq!(pool.in_use_count(), 0);
    told
}

/// Forwards the waiting frames, and returns their number.
fn forward(one: &mut dyn Port, other: &mut dyn Port, pool: &mut Pool, frames: &mut Vec<Frame>) -> u64 {
    let mut count = 0;
    loop {
        let received = one.receive(Ingress(0), pool, frames).expect("it is up");
        assert_eq!(received.lost_count, 0);
        if other.offloads() == NOTHING {
            frames.iter_mut().for_each(|frame| assert!(!finish(frame), "they are finished"));
        }
        send(frames, other);
        frames.drain(..).for_each(|frame| pool.give(into_buffer(frame)));
        count += received.count as u64;
        if received.was_last {
            return count;
        }
    }
}

fn send(frames: &[Frame], other: &mut dyn Port) {
    let mut wires = [TxFrame { header: &[], payload: &[], offload: TxOffload::default() }; 64];
    frames.iter().zip(&mut wires).for_each(|(frame, place)| *place = wire(frame, TxOffload::default()));
    let mut rest = &wires[..frames.len()];
    while !rest.is_empty() {
        let count = other.transmit(rest).expect("it takes it");
        rest = &rest[count..];
    }
}

/// An Ethernet frame of `len` bytes with an experimental protocol, to an unknown station.
fn frame(len: usize) -> Vec<u8> {
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]];
    Spec { macs, ..testkit::ip(4).payload(vec![0xCD; len - 34]).ethernet() }.bytes()
}

/// The system's allocator, with a counter of each thread's allocations.
struct Counting;

// SAFETY: every call goes to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATION_COUNT.set(ALLOCATION_COUNT.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATION_COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Number of frames of a round. A port's chunks can hold them all, with three chunks for each of the longest
/// frames.
const ROUND_LEN: u64 = 600;
/// Number of rounds that are not counted, and number of rounds that are counted.
const WARM_UP_COUNT: u64 = 10;
const ROUND_COUNT: u64 = 50;
const ROUNDS_LEN: u128 = (ROUND_LEN * ROUND_COUNT) as u128;
