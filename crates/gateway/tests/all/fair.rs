//! A worker that orders the frames of its ports by flow: none is lost, and sparse flows leave first.

use crate::handover::{Left, segment, worker};
use engine::{FairIntake, IntakeLimits, Reason, Secret};
use std::sync::mpsc;
use std::thread;
use wideload_gateway::commands::{Command, WorkerHandle};
use wideload_gateway::handover::HandoffWriter;
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
