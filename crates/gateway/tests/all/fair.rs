//! A worker that orders the frames of its ports by flow: none is lost, and sparse flows leave first.

use crate::handover::{Left, segment, segment_of_worker, worker, worker_by};
use engine::{FairIntake, IntakeLimits, Reason, Secret};
use packet::LinkType;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use wideload_gateway::commands::{Command, Commands, WorkerHandle, commands};
use wideload_gateway::handover::HandoffWriter;
use wideload_gateway::peer_handoff::PeerHandoff;
use wideload_gateway::snapshot::Snapshot;
use wideload_gateway::worker::Worker;

#[test]
fn a_fair_worker_sends_a_sparse_flow_first_and_keeps_the_order_of_others() {
    let (mut worker, handles, left) = fair(IntakeLimits::default());
    handles.give(Command::HandOver(successor()));
    worker.run();
    let left = left.lock().expect("nobody panics");
    assert_eq!(left.len(), BUSY_COUNT as usize + 1, "a worker with a successor sends the frames of its intakes");
    let sparse = left.iter().position(|frame| frame[20..22] == SPARSE.to_be_bytes()).expect("it left");
    assert!(sparse < 20, "it left behind {sparse} others");
    let numbers =
        left.iter().filter(|frame| frame[20..22] == BUSY.to_be_bytes()).map(|frame| frame[24..28].to_vec());
    assert!(numbers.is_sorted(), "the order of a flow is kept");
}

#[test]
fn the_counters_of_a_fair_worker_add_up_while_frames_wait() {
    let (worker, handles, _) = fair(IntakeLimits::default());
    let (snapshot, received) = snapshot_of_first_round(worker, &handles);
    assert!(received < BUSY_COUNT.into(), "{received} frames are processed, and others wait");
    assert_eq!(snapshot.directions.map(|direction| direction.broken), [None, None]);
}

#[test]
fn a_fair_worker_counts_the_packets_that_its_full_intake_evicts() {
    let (worker, handles, _) = fair(IntakeLimits { frames: 50, ..IntakeLimits::default() });
    let (snapshot, received) = snapshot_of_first_round(worker, &handles);
    let [to_narrow, _] = &snapshot.directions;
    let evicted = to_narrow.ledger.retired(Reason::IntakeFull).packets;
    assert!(evicted > 200, "{evicted} of {BUSY_COUNT}");
    assert_eq!((to_narrow.broken.clone(), received), (None, to_narrow.ledger.received.packets));
}

#[test]
fn a_packet_from_a_peer_waits_for_its_own_flow_only() {
    let both = [commands(), commands()].map(|both| both.expect("there is room"));
    let (handles, mut commands): (Vec<WorkerHandle>, Vec<Commands>) = both.into_iter().unzip();
    let mut peers = PeerHandoff::of(&handles);
    let (mut giver, taker) = (peers.remove(0), peers.remove(0));
    // The peer worker hands over a packet of a connection that has earlier packets in the intake. A busy connection
    // has more of them, and arrived before.
    let packet = segment_of_worker(1);
    let [high, low] = [packet.frame()[20], packet.frame()[21]];
    let own = u16::from_be_bytes([high, low]);
    let is_of_worker = |port: &u16| {
        let bytes = segment(*port, 1, &[7; 100]).bytes();
        offload::steer::worker(LinkType::Ip, &bytes, 2) == 1
    };
    let busy_port = (own + 1..).find(is_of_worker).expect("of so many flows one belongs to it");
    let busy = (0..BUSY_COUNT).map(|number| segment(busy_port, number, &[7; 1_000]).bytes());
    let earlier = (0..EARLIER_COUNT).map(|number| segment(own, number, &[7; 1_000]).bytes());
    let frames: Vec<_> = busy.chain(earlier).collect();
    let (worker, left) = worker_by(&frames, commands.remove(1), Some(taker));
    let intake = || FairIntake::new(IntakeLimits::default(), Secret::new(7));
    let mut worker = worker.with_intakes(Some(Box::new([intake(), intake()])));
    assert!(giver.give(0, &packet, false));
    let (to, from) = mpsc::channel();
    handles[1].give(Command::Report(to));
    let running = thread::spawn(move || worker.run());
    let snapshot = from.recv().expect("it reports");
    // The first round processed one slice. The packet from the peer worker did not empty the intake.
    assert!(snapshot.ends[0].rx.packets <= 64, "{} packets processed", snapshot.ends[0].rx.packets);
    assert_eq!(snapshot.directions.map(|direction| direction.broken), [None, None]);
    let all = frames.len() + 1;
    let until = Instant::now() + Duration::from_secs(10);
    // The worker serves its intake to the end, although its port has no more frames.
    while left.lock().expect("nobody panics").len() < all {
        assert!(Instant::now() < until, "{} of {all} left", left.lock().expect("nobody panics").len());
        thread::sleep(Duration::from_millis(1));
    }
    let last = handles[1].ask().expect("it works");
    assert_eq!(last.ends[0].rx.packets, frames.len() as u64, "the port received only its own frames");
    handles[1].stop();
    running.join().expect("it ends");
    let left = left.lock().expect("nobody panics");
    let place = left.iter().position(|frame| frame == packet.frame()).expect("it left");
    let ports: Vec<_> = left.iter().map(|frame| u16::from_be_bytes([frame[20], frame[21]])).collect();
    assert_eq!(ports[..place].iter().filter(|port| **port == own).count(), EARLIER_COUNT as usize);
    assert!(ports[place..].iter().filter(|port| **port == busy_port).count() > 100, "it left before the busy flow");
}

#[test]
fn a_packet_from_a_peer_leaves_a_fair_worker_without_other_packets() {
    let both = [commands(), commands()].map(|both| both.expect("there is room"));
    let (handles, mut commands): (Vec<WorkerHandle>, Vec<Commands>) = both.into_iter().unzip();
    let mut peers = PeerHandoff::of(&handles);
    let (mut giver, taker) = (peers.remove(0), peers.remove(0));
    let (worker, left) = worker_by(&[], commands.remove(1), Some(taker));
    let intake = || FairIntake::new(IntakeLimits::default(), Secret::new(7));
    let mut worker = worker.with_intakes(Some(Box::new([intake(), intake()])));
    let running = thread::spawn(move || worker.run());
    // The worker has read its ports to the end when it replies.
    handles[1].ask().expect("it works");
    assert!(giver.give(0, &segment_of_worker(1), false));
    let until = Instant::now() + Duration::from_secs(10);
    while left.lock().expect("nobody panics").is_empty() {
        assert!(Instant::now() < until, "it waits in the intake");
        thread::sleep(Duration::from_millis(1));
    }
    handles[1].stop();
    running.join().expect("it ends");
}

/// A snapshot after the first round of a worker, and the packets that its wide port received by then.
fn snapshot_of_first_round(mut worker: Worker, handles: &WorkerHandle) -> (Snapshot, u64) {
    let (to, from) = mpsc::channel();
    handles.give(Command::Report(to));
    handles.give(Command::HandOver(successor()));
    let running = thread::spawn(move || worker.run());
    let snapshot = from.recv().expect("it reports");
    running.join().expect("it ends");
    let received = snapshot.ends[0].rx.packets;
    (snapshot, received)
}

fn successor() -> HandoffWriter {
    let (_, write) = rustix::pipe::pipe().expect("there is room");
    HandoffWriter::each(write, 1).remove(0)
}

/// A worker with many segments of a busy flow at its wide port, and one of another flow behind them.
fn fair(limits: IntakeLimits) -> (Worker, WorkerHandle, Left) {
    let busy = (0..BUSY_COUNT).map(|number| segment(BUSY, number, &[7; 1_000]).bytes());
    let frames: Vec<_> = busy.chain([segment(SPARSE, 1, &[7; 1_000]).bytes()]).collect();
    let (worker, handles, left) = worker(&frames);
    let intake = || FairIntake::new(limits, Secret::new(7));
    (worker.with_intakes(Some(Box::new([intake(), intake()]))), handles, left)
}

const BUSY: u16 = 1_000;
const SPARSE: u16 = 2_000;
const BUSY_COUNT: u32 = 300;
/// Segments of the connection of the packet from a peer worker.
const EARLIER_COUNT: u32 = 30;
