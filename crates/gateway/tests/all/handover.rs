//! A worker that panics, hands over, ends, or gets packets from a peer: no packet is lost, and no packet waits for
//! ever.

use engine::{
    Event, FragmentPolicy, Gateway, GatewaySettings, Holding, Late, Mode, Output, Position, Prefixes, Secret,
    Secrets, SideSettings, Toggle,
};
use linux::clock::Clock;
use packet::{Frame, Ingress, LinkType, Packet, Pool};
use port::{Offloads, Port, Received, TxFrame};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Spec, Summed, host, icmp, ip, tcp, udp};
use wideload_gateway::commands::{Command, Commands, WorkerHandle, commands};
use wideload_gateway::endpoint::Endpoint;
use wideload_gateway::handover::{self, HandedFrame, Handoff, HandoffWriter};
use wideload_gateway::peer_handoff::PeerHandoff;
use wideload_gateway::snapshot::{Losses, Snapshot};
use wideload_gateway::stats::{Gap, Stats};
use wideload_gateway::worker::Worker;

#[test]
fn held_packets_leave_before_a_panic_continues() {
    let (mut worker, handles, left) = worker(&[fragment(0, 800, true), fragment(800, 400, true)]);
    let running = thread::spawn(move || catch_unwind(AssertUnwindSafe(|| worker.run_guarded(&[]))).is_err());
    has_taken(&handles, 2);
    assert!(left.lock().expect("nobody panics").is_empty(), "it is held");
    assert!(handles.give(Command::Change(Box::new(|_, _| panic!("on purpose")))));
    assert!(running.join().expect("it was caught"), "the panic goes on");
    let left: usize = left.lock().expect("nobody panics").iter().map(|frame| frame.len() - 20).sum();
    assert_eq!(left, 1_200, "all that was held has left");
}

#[test]
fn other_workers_flush_before_the_process_ends_unless_they_hang() {
    let (mut holds, handles, left) = worker(&[fragment(0, 800, true), fragment(800, 400, true)]);
    let (mut panics, other_reins, _) = worker(&[]);
    let (mut hangs, hung_reins, _) = worker(&[]);
    let running = thread::spawn(move || holds.run_guarded(&[]));
    let panicking = thread::spawn(move || panics.run_guarded(&[]));
    has_taken(&handles, 2);
    assert!(other_reins.give(Command::Change(Box::new(|_, _| panic!("on purpose")))));
    assert!(panicking.join().is_err(), "the panic goes on");
    assert_eq!(WorkerHandle::stop_all(&[other_reins.clone(), handles.clone()], TIMEOUT), Losses::default());
    let left: usize = left.lock().expect("nobody panics").iter().map(|frame| frame.len() - 20).sum();
    assert_eq!(left, 1_200, "all that was held has left");
    running.join().expect("it ends");

    let (wakes, sleeps) = mpsc::channel::<()>();
    let hanging = thread::spawn(move || hangs.run_guarded(&[]));
    let hang = move |_, _: &mut Gateway| {
        // The worker wakes when the sender is dropped.
        let _ = sleeps.recv();
    };
    assert!(hung_reins.give(Command::Change(Box::new(hang))));
    let began = Instant::now();
    WorkerHandle::stop_all(&[hung_reins, handles], Duration::from_millis(20));
    assert!(began.elapsed() < TIMEOUT, "it does not wait for ever");
    drop(wakes);
    hanging.join().expect("it ends");
}

#[test]
fn a_successor_continues_with_held_packets() {
    let (mut first, handles, left) = worker(&[fragment(0, 800, true), fragment(1_600, 100, false)]);
    let running = thread::spawn(move || first.run());
    has_taken(&handles, 2);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    let will = HandoffWriter::each(write, 1).remove(0);
    assert!(handles.give(Command::HandOver(will)));
    drop(handles);
    running.join().expect("it ends");
    assert!(left.lock().expect("nobody panics").is_empty(), "nothing went on the wire");
    let handed_frames = handover::read(read, 1).handed_frames;
    assert_eq!(handed_frames[0].len(), 2, "two pieces");

    let (mut second, handles, left) = worker(&[fragment(800, 800, true)]);
    second.inherit(&handed_frames[0]);
    let running = thread::spawn(move || second.run());
    has_taken(&handles, 1);
    handles.stop();
    running.join().expect("it ends");
    let left = left.lock().expect("nobody panics");
    assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [1_720], "one datagram, whole");
}

// Reassembled, each of these would exceed the MTU of the second worker's link, and must not be fragmented.
#[test]
fn fragmented_datagrams_in_a_gso_packet_are_handed_over_in_fragments() {
    let gso = [1, 2].map(udp_fragments).concat();
    assert_goes_over_in_fragments(&gso);
}

#[test]
fn a_fragmented_segment_is_handed_over_in_fragments() {
    let fragments = tcp_fragments(3, &segment(4, 1, &[7; 1_588]));
    assert_goes_over_in_fragments(&fragments);
}

// A resized GSO packet has successive IDs, whichever the received ones were. A successor must not receive its
// packets as fragments with these IDs.
#[test]
fn waiting_fragments_stay_separate_from_handed_over_gso_packets() {
    // Three such segments are below a quarter of a sender's initial window, so a run of two waits for more.
    let contents = [[1; 1_000], [2; 1_000]];
    let waiting = tcp_fragments(2, &segment(9, 1, &[3; 1_588])).remove(0);
    let mut came = tcp_fragments(1, &segment(4, 1, &contents[0]));
    came.push(waiting.clone());
    came.extend(tcp_fragments(3, &segment(4, 1_001, &contents[1])));
    let (left_count, handed_frames) = held_of(coalescing(Mode::Resize, 65_535), &came);
    assert_eq!(left_count, 0, "they wait for more");
    let left = left_of(coalescing(Mode::Resize, 65_535), &handed_frames);
    let (fragments, segments): (Vec<_>, Vec<_>) = left.into_iter().partition(|frame| frame[6] & 0x20 != 0);
    assert!(fragments.iter().map(|frame| &frame[20..]).eq([&waiting[20..]]));
    let stream: Vec<u8> = segments.iter().flat_map(|frame| frame[40..].to_vec()).collect();
    assert!(stream == contents.concat());
}

// A reassembled IPv6 packet no longer contains the ID of its fragments.
#[test]
fn ipv6_fragments_keep_their_identification_in_a_handover() {
    let bytes = udp(6).payload([7; 1_600]).sum(Summed::Off(1)).bytes();
    let mut out = output();
    let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut out.pool).expect("it is a packet");
    packet.set_fragments(848, 0x0102_0304);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    HandoffWriter::each(write, 1)[0].write(0, &mut packet).expect("somebody reads");
    let left = left_of(coalescing(Mode::Resize, 1_400), &handover::read(read, 1).handed_frames[0]);
    assert_eq!(left.iter().map(|frame| frame[48..].len()).collect::<Vec<_>>(), [800, 800, 8]);
    assert!(left.iter().all(|frame| frame[6] == 44 && frame[44..48] == [1, 2, 3, 4]));
}

/// Checks that a successor takes over the held frames and sends them with the received lengths.
#[track_caller]
fn assert_goes_over_in_fragments(fragments: &[Vec<u8>]) {
    let (left_count, handed_frames) = held_of(coalescing(Mode::Reversible, 65_535), fragments);
    assert_eq!(left_count, 0, "they wait for more");
    let left = left_of(coalescing(Mode::Reversible, 1_400), &handed_frames);
    let payloads =
        |frames: &[Vec<u8>]| frames.iter().map(|frame| frame[20..].to_vec()).collect::<Vec<_>>().concat();
    assert!(payloads(&left) == payloads(fragments));
    assert!(left.iter().all(|frame| frame.len() <= 828 && frame[6] & 0x40 != 0), "as they came");
}

/// The number of frames that left a worker which hands over, and the frames that it handed over.
fn held_of(gateway: Gateway, frames: &[Vec<u8>]) -> (usize, Vec<HandedFrame>) {
    let (handles, commands) = commands().expect("there is room");
    let (mut worker, left) = worker_with(gateway, frames, commands);
    let running = thread::spawn(move || worker.run());
    has_taken(&handles, frames.len() as u64);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    assert!(handles.give(Command::HandOver(HandoffWriter::each(write, 1).remove(0))));
    drop(handles);
    running.join().expect("it ends");
    let left_count = left.lock().expect("nobody panics").len();
    (left_count, handover::read(read, 1).handed_frames.remove(0))
}

/// The frames that leave a worker which takes over these frames and ends.
fn left_of(gateway: Gateway, handed_frames: &[HandedFrame]) -> Vec<Vec<u8>> {
    let (handles, commands) = commands().expect("there is room");
    let (mut worker, left) = worker_with(gateway, &[], commands);
    worker.inherit(handed_frames);
    let running = thread::spawn(move || worker.run());
    handles.stop();
    running.join().expect("it ends");
    left.lock().expect("nobody panics").clone()
}

#[test]
fn a_truncated_handover_gives_whole_frames_and_a_count() {
    let mut packet = segment_of_worker(0);
    let bytes = handed(&mut packet);
    for rest in [1, 14, 15, 50] {
        let text = [&bytes[..], &bytes[..rest]].concat();
        let handoff = handover::read(pipe_with(&text), 1);
        assert_eq!((handoff.handed_frames[0].len(), handoff.truncated_count), (1, 1), "{rest}");
        assert_eq!(handoff.handed_frames[0][0].frame, packet.frame());
    }
}

#[test]
fn a_handover_skips_unroutable_frames_and_stops_at_unreadable_ones() {
    let mut packet = segment_of_worker(0);
    let frame = handed(&mut packet);
    let but = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        frame
    };
    let (no_tenth_worker, no_third_direction, too_long) = (but(0, 9), but(2, 2), but(14, 1));
    for (between, taken, lost) in [
        (&no_tenth_worker, 3, (1, 0)),
        (&no_third_direction, 3, (1, 0)),
        // The end of this frame is unknown; the frames behind it are unreadable.
        (&too_long, 1, (2, 1)),
    ] {
        let text = [&frame[..], between, &frame, &frame].concat();
        let Handoff { handed_frames, not_received_count: untaken_count, truncated_count: cut_count } =
            handover::read(pipe_with(&text), 1);
        assert_eq!((handed_frames[0].len(), (untaken_count, cut_count)), (taken, lost));
        assert!(handed_frames[0].iter().all(|legacy| legacy.frame == packet.frame()));
    }
}

#[test]
fn frames_that_a_successor_does_not_take_are_counted() {
    let (mut worker, handles, left) = worker(&[fragment(0, 800, true), fragment(1_600, 100, false)]);
    let running = thread::spawn(move || worker.run_guarded(&[]));
    has_taken(&handles, 2);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    drop(read);
    assert!(handles.give(Command::HandOver(HandoffWriter::each(write, 1).remove(0))));
    running.join().expect("it ends");
    assert!(left.lock().expect("nobody panics").is_empty(), "nothing went on the wire");
    let last = handles.last().expect("it said how things were");
    assert_eq!(last.losses, Losses { not_received: 2, ..Losses::default() });
    assert_adds_up(&last);
}

#[test]
fn frames_that_a_successor_takes_are_no_loss() {
    let (mut worker, handles, _) = worker(&[fragment(0, 800, true), fragment(1_600, 100, false)]);
    let running = thread::spawn(move || worker.run_guarded(&[]));
    has_taken(&handles, 2);
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    assert!(handles.give(Command::HandOver(HandoffWriter::each(write, 1).remove(0))));
    running.join().expect("it ends");
    assert_eq!(handover::read(read, 1).truncated_count, 0);
    let last = handles.last().expect("it said how things were");
    assert_eq!(last.losses, Losses::default());
    assert_adds_up(&last);
}

#[test]
fn a_batch_that_is_dropped_after_a_panic_is_counted() {
    let (handles, commands) = commands().expect("there is room");
    let left = Left::default();
    let frames = [fragment(0, 800, true), fragment(800, 400, true), fragment(1_200, 80, true)];
    let wide = Memory::new(&frames, &left).that_panics();
    let ends = [Endpoint::new(Box::new(wide), 9_000), Endpoint::new(Memory::port(&[], &left), 9_000)];
    let gateway = gateway(SideSettings::new(9_000, Position::Source));
    let mut worker = Worker::new(Clock::start(), ends, gateway, commands);
    let ended = thread::spawn(move || worker.run_guarded(&[])).join();
    assert!(ended.is_err(), "the panic goes on");
    let last = handles.last().expect("it said how things were");
    assert_eq!(last.losses, Losses { panicked: 3, ..Losses::default() });
    assert_adds_up(&last);
}

// A datagram lies in one buffer. One of its three fragments has left when the port panics. Sending the buffer again
// would send that fragment twice.
#[test]
fn packets_in_a_panicking_send_are_counted_and_not_sent_again() {
    let (handles, commands) = commands().expect("there is room");
    let left = Left::default();
    let frames = [0, 800, 1_600, 2_400].map(|offset| fragment(offset, 800, offset < 2_400));
    let narrow = Memory::new(&[], &left).that_panics_behind(1);
    let ends = [Endpoint::new(Memory::port(&frames, &left), 9_000), Endpoint::new(Box::new(narrow), 1_400)];
    let gateway = gateway(SideSettings::new(1_400, Position::Source));
    let mut worker = Worker::new(Clock::start(), ends, gateway, commands);
    let ended = thread::spawn(move || worker.run_guarded(&[])).join();
    assert!(ended.is_err(), "the panic goes on");
    assert_eq!(left.lock().expect("nobody panics").iter().map(Vec::len).collect::<Vec<_>>(), [1_396]);
    let last = handles.last().expect("it said how things were");
    assert_eq!(last.losses, Losses { panicked: 2, ..Losses::default() });
    assert_eq!(last.directions[0].broken, None, "its buffers are where they belong");
}

/// Checks that the counters of an ended worker add up.
#[track_caller]
fn assert_adds_up(last: &Snapshot) {
    let figures = Stats::of(std::slice::from_ref(last));
    for (_, direction) in figures.all.directions() {
        assert_eq!((direction.unexplained, &direction.broken[..]), (Gap::default(), &[][..]));
    }
    for (name, end) in figures.all.ends() {
        assert_eq!(end.unexplained, 0, "{name}");
    }
}

/// A pipe with these bytes, closed for writing.
fn pipe_with(bytes: &[u8]) -> OwnedFd {
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    assert_eq!(rustix::io::write(&write, bytes), Ok(bytes.len()));
    read
}

#[test]
fn a_busy_workers_queue_is_long_and_in_order() {
    let (handles, _orders): (Vec<WorkerHandle>, Vec<Commands>) =
        [commands(), commands()].map(|both| both.expect("there is room")).into_iter().unzip();
    let mut peers = PeerHandoff::of(&handles);
    let (mut giver, mut taker) = (peers.remove(0), peers.remove(0));
    let packet = segment_of_worker(1);
    let gave = (0..1_000_000).take_while(|_| giver.give(0, &packet, false)).count();
    assert!((10_000..1_000_000).contains(&gave), "{gave}");
    assert_eq!((giver.moved().sent, giver.moved().refused), (gave as u64, 1));
    assert!(taker.take().is_some());
    assert!(giver.give(0, &packet, false), "there is room again");
}

#[test]
fn an_icmp_error_about_a_flow_reaches_the_flows_worker() {
    for version in [4, 6] {
        let (handles, _orders): (Vec<WorkerHandle>, Vec<Commands>) =
            [commands(), commands()].map(|both| both.expect("there is room")).into_iter().unzip();
        let mut peers = PeerHandoff::of(&handles);
        let (mut giver, mut taker) = (peers.remove(0), peers.remove(0));
        let mut pool = Pool::new(1 << 20);
        let mut counts = [0; 2];
        for port in 1_000..1_100 {
            let about = tcp(version).ports(port, 80).payload([7; 1_400]).bytes();
            let error = if version == 4 { icmp(4, 3, 4) } else { icmp(6, 2, 0) };
            let error = error.from(host(version, 3)).payload(&about[..100]).bytes();
            let packet = Frame::copy(&error, LinkType::Ip, Ingress(1), &mut pool).expect("it is a packet");
            let number = offload::steer::worker(LinkType::Ip, &about, 2);
            assert_eq!(giver.give(1, &packet, true), number == 1, "IPv{version}: port {port}");
            if let Some(taken) = taker.take() {
                assert_eq!((taken.direction, taken.frame), (1, error));
            }
            assert!(!giver.give(1, &packet, false), "only a border validates it");
            counts[number] += 1;
            pool.give(packet.into_buffer());
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
        let other = icmp(version, 3, 1).payload([0; 60]).bytes();
        let other = Frame::copy(&other, LinkType::Ip, Ingress(1), &mut pool).expect("it is a packet");
        assert!(!giver.give(1, &other, true), "it is about no flow");
    }
}

#[test]
fn packets_from_peers_survive_the_end_of_a_worker() {
    for hands_over in [false, true] {
        for round in 0..100 {
            let both = [commands(), commands()].map(|both| both.expect("there is room"));
            let (handles, mut commands): (Vec<WorkerHandle>, Vec<Commands>) = both.into_iter().unzip();
            let mut peers = PeerHandoff::of(&handles);
            let (mut giver, taker) = (peers.remove(0), peers.remove(0));
            let (mut worker, left) = worker_by(&[], commands.remove(1), Some(taker));
            let (read, write) = rustix::pipe::pipe().expect("there is room");
            let reader = thread::spawn(move || handover::read(read, 2).handed_frames);
            let running = thread::spawn(move || worker.run());
            let packet = segment_of_worker(1);
            let mut will = Some(HandoffWriter::each(write, 2).remove(1));
            let mut gave = 0;
            for number in 0..20_000 {
                if number == 200 + round {
                    match will.take().filter(|_| hands_over) {
                        Some(will) => assert!(handles[1].give(Command::HandOver(will))),
                        None => handles[1].stop(),
                    }
                }
                gave += u64::from(giver.give(0, &packet, false));
            }
            running.join().expect("it ends");
            let handed_frames = reader.join().expect("it is read");
            let left = left.lock().expect("nobody panics").len() + handed_frames[1].len();
            assert_eq!(left as u64, gave, "round {round}, it {}", if hands_over { "hands over" } else { "stops" });
            assert_eq!(giver.moved().sent, gave);
        }
    }
}

#[test]
fn a_packet_from_a_peer_wakes_a_worker_that_runs_a_command() {
    let both = [commands(), commands()].map(|both| both.expect("there is room"));
    let (handles, mut commands): (Vec<WorkerHandle>, Vec<Commands>) = both.into_iter().unzip();
    let mut peers = PeerHandoff::of(&handles);
    let (mut giver, taker) = (peers.remove(0), peers.remove(0));
    let (mut worker, left) = worker_by(&[], commands.remove(1), Some(taker));
    let running = thread::spawn(move || worker.run());
    let gives = move |_, _: &mut Gateway| assert!(giver.give(0, &segment_of_worker(1), false));
    assert!(handles[1].give(Command::Change(Box::new(gives))));
    let began = Instant::now();
    while left.lock().expect("nobody panics").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "nobody told the worker");
        thread::sleep(Duration::from_millis(1));
    }
    handles[1].stop();
    running.join().expect("it ends");
}

#[test]
fn a_burst_with_a_full_last_batch_leaves_at_once() {
    let (handles, commands) = commands().expect("there is room");
    let side = SideSettings {
        coalesce: Some(Mode::Resize),
        hold: Holding::Burst,
        ..SideSettings::new(9_000, Position::Transit)
    };
    let left = Left::default();
    let frames = [1, 101, 201, 301].map(|seq| segment(1_000, seq, &[7; 100]).bytes());
    let port = Memory::new(&frames, &left).in_batches_of(2);
    let ends = [Endpoint::new(Box::new(port), 9_000), Endpoint::new(Memory::port(&[], &left), 9_000)];
    let mut worker = Worker::new(Clock::start(), ends, gateway(side), commands);
    let running = thread::spawn(move || worker.run());
    has_taken(&handles, 4);
    let (to, from) = mpsc::channel();
    let tells = move |_, gateway: &mut Gateway| {
        let ends = [Event::RunAtEnd, Event::RunTimeout].map(|event| gateway.ledger(0).event(event).packets);
        to.send(ends).expect("somebody listens");
    };
    // By now, a run that waits for its timer has left.
    thread::sleep(Duration::from_millis(5));
    assert!(handles.give(Command::Change(Box::new(tells))));
    assert_eq!(from.recv().expect("it obeys"), [1, 0]);
    handles.stop();
    running.join().expect("it ends");
    assert_eq!(left.lock().expect("nobody panics").len(), 1, "one run");
}

#[test]
fn requests_to_an_ended_worker_fail() {
    let (handles, commands) = commands().expect("there is room");
    let (to, from) = mpsc::channel();
    assert!(handles.give(Command::Report(to)));
    drop(commands);
    assert!(from.recv_timeout(Duration::from_secs(10)).is_err_and(|why| why == RecvTimeoutError::Disconnected));
    let (to, _from) = mpsc::channel();
    assert!(!handles.give(Command::Report(to)), "it has ended");
}

/// The bytes that a worker writes for a packet handed over in direction 1.
fn handed(packet: &mut Packet) -> Vec<u8> {
    let (read, write) = rustix::pipe::pipe().expect("there is room");
    HandoffWriter::each(write, 1)[0].write(1, packet).expect("somebody reads");
    let mut bytes = vec![0; 400];
    let len = rustix::io::read(&read, &mut bytes).expect("something is there");
    bytes.truncate(len);
    bytes
}

/// Waits until a worker has received so many frames.
fn has_taken(handles: &WorkerHandle, count: u64) {
    let until = Instant::now() + Duration::from_secs(10);
    while handles.ask().expect("it works").ends[0].rx.frames < count {
        assert!(Instant::now() < until, "it takes them");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Frames that left.
pub type Left = Arc<Mutex<Vec<Vec<u8>>>>;

/// A worker whose wide port delivers these frames, and whose narrow port keeps the sent ones.
pub fn worker(frames: &[Vec<u8>]) -> (Worker, WorkerHandle, Left) {
    let (handles, commands) = commands().expect("there is room");
    let (worker, left) = worker_by(frames, commands, None);
    (worker, handles, left)
}

/// The same worker as of [`worker`], with these commands and peer workers.
pub fn worker_by(frames: &[Vec<u8>], commands: Commands, peers: Option<PeerHandoff>) -> (Worker, Left) {
    let (worker, left) = worker_with(gateway(SideSettings::new(9_000, Position::Source)), frames, commands);
    (worker.with_peers(peers), left)
}

/// A gateway that holds received fragments for more of their flow. It does not segment TCP packets above this MTU.
fn coalescing(mode: Mode, mtu: u16) -> Gateway {
    gateway(SideSettings {
        coalesce: Some(mode),
        hold: Holding::Fixed(Duration::from_secs(30)),
        coalesces_udp: true,
        segment: Toggle::Off,
        ..SideSettings::new(mtu, Position::Transit)
    })
}

fn worker_with(gateway: Gateway, frames: &[Vec<u8>], commands: Commands) -> (Worker, Left) {
    let left = Left::default();
    let ends = [Endpoint::new(Memory::port(frames, &left), 9_000), Endpoint::new(Memory::port(&[], &left), 9_000)];
    (Worker::new(Clock::start(), ends, gateway, commands), left)
}

/// A TCP segment of a flow that belongs to worker `number` of two.
pub fn segment_of_worker(number: usize) -> Packet {
    let mut pool = Pool::new(1 << 20);
    for port in 1_000_u16.. {
        let bytes = segment(port, 1, &[7; 100]).bytes();
        if offload::steer::worker(LinkType::Ip, &bytes, 2) == number {
            return Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).expect("it is a packet");
        }
    }
    unreachable!("of so many flows one belongs to each")
}

/// A gateway with these settings in both directions, which reassembles fragments.
fn gateway(side: SideSettings) -> Gateway {
    let side = SideSettings {
        memory: 4 << 20,
        policies: Prefixes::new(FragmentPolicy::Reassemble),
        fragment_timeout: Some(Duration::from_secs(30)),
        late: Late::Release { mtu: 9_000 },
        ..side
    };
    let settings = GatewaySettings { sides: vec![side.clone(), side], border: None, flow_count: 0 };
    Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(16 << 20))
}

fn output() -> Output {
    Output::new(Pool::new(16 << 20), None)
}

/// A port in memory.
struct Memory {
    eventfd: OwnedFd,
    frames: VecDeque<Vec<u8>>,
    left: Left,
    /// Number of frames that the port delivers at once.
    batch_count: usize,
    /// Whether the port panics after its last frame.
    panics: bool,
    /// Number of frames that the port accepts before it panics once; `None` if it does not panic.
    panics_behind: Option<usize>,
}

impl Memory {
    fn port(frames: &[Vec<u8>], left: &Left) -> Box<dyn Port> {
        Box::new(Memory::new(frames, left))
    }

    fn new(frames: &[Vec<u8>], left: &Left) -> Memory {
        let eventfd = eventfd(u32::from(!frames.is_empty()), EventfdFlags::NONBLOCK).expect("there is room");
        let (frames, left) = (frames.iter().cloned().collect(), Arc::clone(left));
        Memory { eventfd, frames, left, batch_count: usize::MAX, panics: false, panics_behind: None }
    }

    fn in_batches_of(self, batch_count: usize) -> Memory {
        Memory { batch_count, ..self }
    }

    fn that_panics(self) -> Memory {
        Memory { panics: true, ..self }
    }

    fn that_panics_behind(self, count: usize) -> Memory {
        Memory { panics_behind: Some(count), ..self }
    }
}

impl Port for Memory {
    fn address(&self) -> &str {
        "memory"
    }

    fn link_type(&self) -> LinkType {
        LinkType::Ip
    }

    fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        let count = self.frames.len().min(self.batch_count);
        if count == self.frames.len() {
            let mut eventfd = [0; 8];
            let _ = rustix::io::read(&self.eventfd, &mut eventfd);
        }
        for frame in self.frames.drain(..count) {
            frames.push(Frame::Ip(Frame::copy(&frame, LinkType::Ip, ingress, pool).expect("it is a packet")));
        }
        assert!(!self.panics || count == 0, "on purpose");
        Ok(Received { count, lost_count: 0, was_last: count < self.batch_count })
    }

    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        let taken = self.panics_behind.unwrap_or(usize::MAX).min(wires.len());
        self.panics_behind = self.panics_behind.map(|count| count - taken).filter(|_| taken > 0);
        assert!(taken > 0, "on purpose");
        let (wires, mut left) = (&wires[..taken], self.left.lock().expect("nobody panics"));
        left.extend(wires.iter().map(|wire| [wire.header, wire.payload].concat()));
        Ok(wires.len())
    }
}

/// Longer than any expected wait.
const TIMEOUT: Duration = Duration::from_secs(10);

fn fragment(offset: usize, len: usize, more: bool) -> Vec<u8> {
    ip(4).id(9).part(offset, vec![5; len], more).bytes()
}

/// The two fragments, with DF, of a datagram of 1,608 bytes without a checksum.
fn udp_fragments(id: u32) -> Vec<Vec<u8>> {
    udp(4).id(id).payload(vec![id as u8; 1_600]).sum(Summed::None).parts(808)
}

/// Two fragments, with DF, of a TCP segment.
fn tcp_fragments(id: u32, segment: &Spec) -> Vec<Vec<u8>> {
    segment.clone().id(id).parts(808)
}

/// A TCP segment from this port.
pub fn segment(port: u16, seq: u32, payload: &[u8]) -> Spec {
    tcp(4).ports(port, 80).seq(seq).payload(payload)
}
