//! Frames of two ports -> packets of the right sizes to the other port, in one thread.
//!
//! The engine's [`Gateway`] processes the packets. Its two directions lead to the narrow side and to the wide side.
//! Each direction has its own buffer pool. A bump in the wire sends each packet by the other endpoint. Beside a
//! kernel that forwards and delivers, packets return to the endpoint at which they arrived.

mod farewell;
mod flow_offload;
mod intake;
mod succession;

use crate::commands::{Command, Commands, Intakes};
use crate::endpoint::{Endpoint, PollState, REOPEN_INTERVAL, Reopened};
use crate::path::{Path, TO_NARROW, TO_WIDE};
use crate::peer_handoff::PeerHandoff;
use crate::snapshot::{DirectionSnapshot, Losses, Snapshot};
use crate::stations::Stations;
use arrayvec::ArrayVec;
use engine::{Batch, Checksums, Egress, FairIntake, Gateway};
pub use farewell::FAREWELL_TIMEOUT;
use farewell::Leaving;
use intake::Evicted;
use linux::clock::Clock;
use offload::flow_offload::Flow;
use packet::{Frame, OpaqueFrame, Packet, ParseError, Time, advised_mtu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The work of one thread: two endpoints, and the processing of packets between them.
pub struct Worker {
    clock: Clock,
    /// The wide endpoint, then the narrow endpoint.
    ends: [Endpoint; 2],
    /// The engine's gateway, with the direction to the narrow endpoint, then the direction to the wide endpoint.
    gateway: Gateway,
    /// The last batch that a port returned.
    batch: Batch,
    /// Flows of the last batch that may be offloaded to the kernel.
    candidates: Vec<Flow>,
    commands: Commands,
    /// The frames that wait for the engine, by flow; `None` if frames are processed in order of arrival.
    intakes: Option<Box<Intakes>>,
    /// Frames that an intake evicted and that are not counted yet.
    evicted: Evicted,
    /// Whether a successor receives the held packets.
    has_successor: bool,
    /// Packets written for the successor, by direction, including packets that the successor could not read.
    handed_over: [u64; 2],
    losses: Losses,
    /// Number of frames handed over to this worker that are not processed yet.
    handed_count: usize,
    /// Number of buffers lost in a panic, by direction.
    gone_counts: [usize; 2],
    /// The hand-off queues to peer workers; `None` if frames are not distributed by flow.
    peers: Option<PeerHandoff>,
    /// The table of stations and their sides; `None` except at a border.
    stations: Option<Arc<Stations>>,
    /// Whether the settings allow flow offload; false at a border's end.
    offloads_flows: bool,
    /// Whether the kernel has the egress interfaces of offloaded flows.
    redirects: bool,
    /// Time of the next refresh of offloaded flows; `None` if no flow is offloaded.
    renewal: Option<Time>,
    path: Path,
    /// The hosts that get ICMP errors at the border's end; `None` while the border runs.
    leaving: Option<Leaving>,
}

impl Worker {
    /// Makes a worker between a wide and a narrow endpoint, with this gateway and these commands.
    pub fn new(clock: Clock, ends: [Endpoint; 2], gateway: Gateway, commands: Commands) -> Worker {
        Worker {
            clock,
            ends,
            gateway,
            batch: Batch { split: Vec::with_capacity(FRAME_COUNT), frames: Vec::with_capacity(FRAME_COUNT) },
            candidates: Vec::new(),
            commands,
            intakes: None,
            evicted: Vec::new(),
            has_successor: false,
            handed_over: [0; 2],
            losses: Losses::default(),
            handed_count: 0,
            gone_counts: [0; 2],
            peers: None,
            stations: None,
            offloads_flows: false,
            redirects: false,
            renewal: None,
            path: Path::Across,
            leaving: None,
        }
    }

    /// Returns this worker with another choice of the endpoint by which packets are sent.
    pub fn on(self, path: Path) -> Worker {
        Worker { path, ..self }
    }

    /// Returns this worker with flow offload on or off.
    pub fn offloading(self, offloads_flows: bool) -> Worker {
        Worker { offloads_flows, ..self }
    }

    /// Returns this worker with intakes, which order the frames of each port by flow.
    pub fn with_intakes(self, intakes: Option<Box<Intakes>>) -> Worker {
        Worker { intakes, ..self }
    }

    /// Returns this worker with hand-off queues to its peer workers.
    pub fn with_peers(self, peers: Option<PeerHandoff>) -> Worker {
        Worker { peers, ..self }
    }

    /// Returns this worker with a table of stations, for a border. Packets between two stations of one side then
    /// cause no ICMP errors.
    pub fn with_stations(self, stations: Option<Arc<Stations>>) -> Worker {
        Worker { stations, ..self }
    }

    /// Processes packets until told to stop, then releases all held packets.
    pub fn run(&mut self) {
        // An earlier worker on these ports may have offloaded flows under other settings.
        self.withdraw();
        let mut turns = [PollState::Busy; 2];
        while self.commands.go_on() && !self.has_successor {
            let ready = self.wait(turns);
            let now = self.clock.now();
            self.commands.beat();
            // Overdue packets leave before new ones.
            self.gateway.expire(now);
            for direction in [TO_NARROW, TO_WIDE] {
                if self.gateway.output(direction).queued_count() > 0 {
                    self.drain(direction);
                }
            }
            if self.renewal.is_some_and(|renewal| renewal <= now) {
                self.refresh(now);
            }
            for direction in [TO_NARROW, TO_WIDE] {
                // A busy port is read again until it has no more frames.
                let looks =
                    ready[direction] || turns[direction] == PollState::Busy || self.ends[direction].wants_a_look();
                turns[direction] = if looks { self.receive(direction, now) } else { PollState::Idle };
                if turns[direction] == PollState::Idle {
                    self.commit(direction);
                }
                if !self.ends[direction].is_up
                    && self.ends[direction].try_reopen(now, self.gateway.output_mut(direction)) == Reopened::Anew
                {
                    self.redirects = false;
                    self.withdraw();
                }
            }
            self.set_redirect();
            self.tell_raised(now);
            if self.gateway.take_route_change() {
                let route_mtus = self.gateway.route_mtus().map(|(to, mtu)| (to.into(), mtu));
                self.commands.set_route_mtus(route_mtus.collect());
            }
            if ready[ORDERS] {
                // Clear first: later commands set the event again.
                self.commands.clear();
                self.receive_from_peers(now);
                self.obey();
                for direction in [TO_NARROW, TO_WIDE] {
                    if self.has_queued(direction) {
                        turns[direction] = PollState::Busy;
                    }
                }
            }
        }
        if !self.has_successor {
            self.close_peer_queues();
            self.flush();
        }
    }

    /// Releases and sends all held packets.
    pub fn flush(&mut self) {
        let now = self.clock.now();
        self.empty_intakes(now);
        self.gateway.flush(now);
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
    }

    /// Waits for frames and commands, at most until the next time-out of a held packet. Returns whether the wide
    /// endpoint, the narrow endpoint and the commands need a check.
    fn wait(&mut self, turns: [PollState; 2]) -> [bool; 3] {
        let now = self.clock.now();
        let timeout = if turns.contains(&PollState::Busy) {
            Duration::ZERO
        } else {
            let leaving = self.leaving.as_ref().map(|leaving| leaving.due);
            let deadline = self.gateway.next_deadline().into_iter().chain(self.renewal).chain(leaving).min();
            let timeout = self.commands.timeout();
            deadline.map_or(timeout, |deadline| deadline.since(now).min(timeout))
        };
        // The descriptor of a port that is down is always readable; such a port is checked at intervals.
        let timeout = if self.ends.iter().all(|end| end.is_up) { timeout } else { timeout.min(REOPEN_INTERVAL) };
        let has_unsent = self.ends.iter_mut().any(|end| end.port.has_unsent());
        let timeout = if has_unsent { timeout.min(UNSENT_EVERY) } else { timeout };
        let mut fds = ArrayVec::<PollFd<'_>, 3>::new();
        fds.push(PollFd::from_borrowed_fd(self.commands.fd(), PollFlags::IN));
        let up = self.ends.iter().filter(|end| end.is_up);
        fds.extend(up.map(|end| PollFd::from_borrowed_fd(end.port.fd(), PollFlags::IN)));
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if poll(&mut fds, Some(&timeout)).is_err() {
            // A signal: check everything.
            return [true; 3];
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_orders = ready.next().unwrap_or(true);
        let [wide, narrow] = &self.ends;
        let [wide, narrow] = [wide, narrow].map(|end| !end.is_up || ready.next().unwrap_or(true));
        [wide, narrow, has_orders]
    }

    /// Receives and processes a batch of this direction, and sends the resulting packets.
    fn receive(&mut self, direction: usize, now: Time) -> PollState {
        if let Some(intakes) = &mut self.intakes {
            let (end, intake) = (&mut self.ends[direction], &mut intakes[direction]);
            let out = self.gateway.output_mut(direction);
            let (state, source) = intake::receive(end, direction, intake, out, &mut self.batch, &mut self.evicted);
            self.drop_evicted(direction);
            self.process_slice(direction, now, state, source);
            return state;
        }
        let turn = self.ends[direction].receive(direction, &mut self.gateway, &mut self.batch);
        self.process(direction, now, turn);
        turn
    }

    /// Processes the received batch, and sends the resulting packets.
    fn process(&mut self, direction: usize, now: Time, turn: PollState) {
        self.poll_ports(direction, now);
        self.gateway.push(now, direction, &mut self.batch);
        if self.offloads_flows {
            self.watch_losses();
        }
        self.offload(direction, now);
        if turn == PollState::Idle {
            self.gateway.port_is_idle(now, direction);
        }
        self.drain(direction);
    }

    /// Counts the frames of the received batch. Evaluates advised MTUs, stations and candidates for flow offload
    /// before the engine changes packets.
    fn poll_ports(&mut self, direction: usize, now: Time) {
        let mut batch = std::mem::take(&mut self.batch);
        let seen = &mut self.ends[direction].seen;
        for split in &mut batch.split {
            seen.split(split);
            if let Some(stations) = &self.stations {
                split.mark(0, stations.pass(split.link(), direction, seconds(now)));
            }
        }
        for frame in &mut batch.frames {
            match frame {
                Frame::Ip(packet) => self.look_at(direction, now, packet),
                Frame::Other(raw, _) => {
                    let seen = &mut self.ends[direction].seen;
                    seen.frames += 1;
                    seen.bytes += raw.frame().len() as u64;
                    if let Some(stations) = &self.stations {
                        stations.pass(raw.frame(), direction, seconds(now));
                    }
                }
            }
        }
        self.batch = batch;
    }

    fn look_at(&mut self, direction: usize, now: Time, packet: &mut Packet) {
        let seen = &mut self.ends[direction].seen;
        seen.packet(packet);
        if let Some(stations) = &self.stations {
            packet.is_for_ingress_side = stations.pass(packet.link(), direction, seconds(now));
        }
        if direction == TO_WIDE
            && let Some(mtu) = advised_mtu(packet)
        {
            seen.advised_mtu = mtu;
        }
        if self.redirects && packet.is_tcp() {
            self.note_candidate(direction, packet);
        } else if self.redirects {
            self.prepare_icmp(direction, packet);
        }
    }

    /// Sends a frame without an IP packet unchanged, after all earlier packets of the direction. Drops the frame if
    /// the other link's MTU is too small.
    fn pass(&mut self, direction: usize, raw: OpaqueFrame, unfit: ParseError) {
        let (exit, len) = (self.path.exit(direction), raw.frame().len());
        let fits = self.path == Path::Back || len <= self.ends[exit].frame_len_max();
        let seen = &mut self.ends[direction].seen;
        let out = self.gateway.output_mut(direction);
        if fits {
            seen.passed += 1;
            out.ledger.pass(unfit.into(), len);
            let to = &mut self.ends[exit];
            to.sender.flush(to.port.as_mut(), out);
            to.sender.pass(raw.frame(), to.port.as_mut());
        } else {
            seen.oversize += 1;
        }
        out.pool.give(raw.into_buffer());
    }

    /// Sends the packets that the engine has finished.
    fn drain(&mut self, direction: usize) {
        while let Some(leaving) = self.gateway.next(direction) {
            match leaving {
                Egress::Forward(packet) => {
                    let takes_icmp = self.gateway.connections().is_some();
                    if self.peers.as_mut().is_some_and(|peers| peers.give(direction, &packet, takes_icmp)) {
                        self.gateway.recycle(direction, packet);
                    } else {
                        self.send(direction, packet, self.path.exit(direction));
                    }
                }
                Egress::IcmpReply(packet) => self.send(direction, packet, direction),
                Egress::PassThrough(raw, unfit) => self.pass(direction, raw, unfit),
            }
        }
        for end in &mut self.ends {
            end.sender.flush(end.port.as_mut(), self.gateway.output_mut(direction));
        }
        // If the port refuses to complete checksums, the engine completes and counts them.
        let is_left = self.ends[self.path.exit(direction)].sender.offloads().checksum;
        self.gateway.set_checksums(direction, if is_left { Checksums::Defer } else { Checksums::Complete });
    }

    fn send(&mut self, direction: usize, packet: Packet, to: usize) {
        let end = &mut self.ends[to];
        if end.sender.put(packet) {
            end.sender.flush(end.port.as_mut(), self.gateway.output_mut(direction));
        }
    }

    fn obey(&mut self) {
        while let Some(command) = self.commands.next() {
            match command {
                Command::Report(to) => {
                    // The caller may have ended.
                    let _ = to.send(self.snapshot());
                }
                Command::Change(change) => {
                    let now = self.clock.now();
                    self.withdraw();
                    change(now, &mut self.gateway);
                    [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
                }
                Command::Replace(replacement) => {
                    self.withdraw();
                    self.replace(*replacement);
                }
                Command::HandOver(will) => self.hand_over(&will),
                Command::AnnounceShutdown(done) => self.announce_shutdown(done),
            }
        }
    }

    /// Returns a snapshot of the worker's counters and state.
    pub fn snapshot(&mut self) -> Snapshot {
        let [wide, narrow] = &mut self.ends;
        let queued = self.intakes.as_ref().map(|intakes| intakes.each_ref().map(FairIntake::count));
        let [to_narrow, to_wide] = queued.unwrap_or_default();
        let kept = [wide.port.kept_count() + to_narrow, narrow.port.kept_count() + to_wide];
        let directions = [TO_NARROW, TO_WIDE].map(|direction| {
            DirectionSnapshot::of(&self.gateway, direction, kept[direction] + self.gone_counts[direction])
        });
        let peers = self.peers.as_ref().map(PeerHandoff::moved).unwrap_or_default();
        let ends = [wide.snapshot(), narrow.snapshot()];
        let (processor_time, wake_count) = (thread_time(), linux::clock::wake_count());
        let (handed_over, losses) = (self.handed_over, self.losses);
        Snapshot { directions, ends, path: self.path, processor_time, wake_count, peers, handed_over, losses }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [wide, narrow] = &self.ends;
        f.debug_struct("Worker")
            .field("wide", &wide.port.address())
            .field("narrow", &narrow.port.address())
            .finish_non_exhaustive()
    }
}

fn seconds(now: Time) -> u64 {
    now.nanos() / 1_000_000_000
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Index of the commands in the result of [`Worker::wait`].
const ORDERS: usize = 2;
/// Interval between two attempts to send packets that a port could not send.
const UNSENT_EVERY: Duration = Duration::from_millis(1);
/// Frames per batch of a port.
const FRAME_COUNT: usize = 64;
