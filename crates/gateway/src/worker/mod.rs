//! Frames of two ports in, packets of the right sizes to the other port out: one thread, nothing shared.
//!
//! What is done to packets is the engine's [`Gateway`], whose two directions lead to the narrow side and to the
//! wide one; no buffer ever changes directions. A bump in the wire sends by the other end what came in by one.
//! Beside a kernel that forwards and delivers, all goes back to where it was taken.

mod farewell;
mod flow_offload;
mod succession;

use crate::commands::{Command, Commands};
use crate::endpoint::{Endpoint, MEND_EVERY, PollState, Reopened};
use crate::path::{Path, TO_NARROW, TO_WIDE};
use crate::peer_handoff::PeerHandoff;
use crate::snapshot::{DirectionSnapshot, Losses, Snapshot};
use crate::stations::Stations;
use arrayvec::ArrayVec;
use engine::{Batch, Checksums, Egress, Gateway};
pub use farewell::FAREWELL_PATIENCE;
use farewell::Leaving;
use linux::clock::Clock;
use offload::flow_offload::Flow;
use packet::{Frame, OpaqueFrame, Packet, ParseError, Time, advised_mtu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One thread's work: two ends, and what is done to packets between them.
pub struct Worker {
    clock: Clock,
    /// The wide end, the narrow end.
    ends: [Endpoint; 2],
    /// All that is done to packets: to the narrow end, to the wide end.
    gateway: Gateway,
    /// What a port gave last.
    batch: Batch,
    /// Flows of the batch that the kernel may be able to pass on.
    candidates: Vec<Flow>,
    commands: Commands,
    /// Another goes on with what was held here.
    has_heir: bool,
    /// Packets that were left to it, by way; those that it did not take too.
    handed_over: [u64; 2],
    losses: Losses,
    /// Frames that were left to it and that it has not looked at yet.
    legacy_count: usize,
    /// Buffers that ended in a panic, by way.
    gone_counts: [usize; 2],
    /// Who else works here, where flows are steered.
    peers: Option<PeerHandoff>,
    /// Which stations are on which side of a border.
    stations: Option<Arc<Stations>>,
    /// May flows be lent to the kernel?
    offloads_flows: bool,
    /// Does the kernel know where packets of flows that are lent to it go?
    redirects: bool,
    /// When leases that are in use are lengthened.
    renewal: Option<Time>,
    path: Path,
    /// Hosts that are told before the end.
    leaving: Option<Leaving>,
}

impl Worker {
    /// A worker between a wide and a narrow end, which does this to packets.
    pub fn new(clock: Clock, ends: [Endpoint; 2], gateway: Gateway, commands: Commands) -> Worker {
        Worker {
            clock,
            ends,
            gateway,
            batch: Batch { split: Vec::with_capacity(FRAME_COUNT), frames: Vec::with_capacity(FRAME_COUNT) },
            candidates: Vec::new(),
            commands,
            has_heir: false,
            handed_over: [0; 2],
            losses: Losses::default(),
            legacy_count: 0,
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

    /// The same, whose packets leave by this end.
    pub fn on(self, path: Path) -> Worker {
        Worker { path, ..self }
    }

    /// The same, which lends flows to the kernel or does not.
    pub fn offloading(self, offloads_flows: bool) -> Worker {
        Worker { offloads_flows, ..self }
    }

    /// The same, which gives its siblings what is of their flows.
    pub fn with_peers(self, siblings: Option<PeerHandoff>) -> Worker {
        Worker { peers: siblings, ..self }
    }

    /// The same, at a border: no station is told of what it sent to another one of its side.
    pub fn with_stations(self, stations: Option<Arc<Stations>>) -> Worker {
        Worker { stations, ..self }
    }

    /// Works until it is told to stop; what is held leaves then.
    pub fn run(&mut self) {
        // Whoever worked on these ports before may have lent otherwise.
        self.withdraw();
        let mut turns = [PollState::Busy; 2];
        while self.commands.go_on() && !self.has_heir {
            let ready = self.wait(turns);
            let now = self.clock.now();
            self.commands.beat();
            // What is late leaves before what comes.
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
                // One that was busy is asked once more: it says that nothing is left.
                let looks =
                    ready[direction] || turns[direction] == PollState::Busy || self.ends[direction].wants_a_look();
                turns[direction] = if looks { self.receive(direction, now) } else { PollState::Idle };
                if turns[direction] == PollState::Idle {
                    self.settle(direction);
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
            if ready[ORDERS] {
                // First: what comes from here on rings again.
                self.commands.clear();
                self.take_from_siblings(now);
                self.obey();
            }
        }
        if !self.has_heir {
            self.close_to_siblings();
            self.flush();
        }
    }

    /// Lets go of everything that is held.
    pub fn flush(&mut self) {
        let now = self.clock.now();
        self.gateway.flush(now);
        [TO_NARROW, TO_WIDE].into_iter().for_each(|direction| self.drain(direction));
    }

    /// Which ends, and whether commands, want a look; at the latest when something that is held becomes late.
    fn wait(&mut self, turns: [PollState; 2]) -> [bool; 3] {
        let now = self.clock.now();
        let timeout = if turns.contains(&PollState::Busy) {
            Duration::ZERO
        } else {
            let leaving = self.leaving.as_ref().map(|leaving| leaving.due);
            let deadline = self.gateway.next_deadline().into_iter().chain(self.renewal).chain(leaving).min();
            let patience = self.commands.patience();
            deadline.map_or(patience, |deadline| deadline.since(now).min(patience))
        };
        // A port that is down would wake us for ever; it is looked at now and then.
        let timeout = if self.ends.iter().all(|end| end.is_up) { timeout } else { timeout.min(MEND_EVERY) };
        let has_unsent = self.ends.iter_mut().any(|end| end.port.has_unsent());
        let timeout = if has_unsent { timeout.min(UNSENT_EVERY) } else { timeout };
        let mut fds = ArrayVec::<PollFd<'_>, 3>::new();
        fds.push(PollFd::from_borrowed_fd(self.commands.fd(), PollFlags::IN));
        let up = self.ends.iter().filter(|end| end.is_up);
        fds.extend(up.map(|end| PollFd::from_borrowed_fd(end.port.fd(), PollFlags::IN)));
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if poll(&mut fds, Some(&timeout)).is_err() {
            // A signal: look at everything.
            return [true; 3];
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_orders = ready.next().unwrap_or(true);
        let [wide, narrow] = &self.ends;
        let [wide, narrow] = [wide, narrow].map(|end| !end.is_up || ready.next().unwrap_or(true));
        [wide, narrow, has_orders]
    }

    /// Takes a batch that came in for this way, and sends what leaves.
    fn receive(&mut self, direction: usize, now: Time) -> PollState {
        let turn = self.ends[direction].receive(direction, &mut self.gateway, &mut self.batch);
        self.poll_ports(direction, now);
        self.gateway.push(now, direction, &mut self.batch);
        self.offload(direction, now);
        if turn == PollState::Idle {
            self.gateway.port_is_idle(now, direction);
        }
        self.drain(direction);
        turn
    }

    /// Counts what came, and looks at whatever is to be known of it before something is done to it.
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
            packet.stays_on_its_side = stations.pass(packet.link(), direction, seconds(now));
        }
        if direction == TO_WIDE
            && let Some(mtu) = advised_mtu(packet)
        {
            seen.advised_mtu = mtu;
        }
        if self.redirects && packet.is_tcp() {
            self.note_candidate(direction, packet);
        }
    }

    /// A frame that carries no packet for us goes on as it is, behind what came before it.
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

    /// Sends all that waits for the ports.
    fn drain(&mut self, direction: usize) {
        while let Some(leaving) = self.gateway.next(direction) {
            match leaving {
                Egress::Forward(packet) => {
                    if self.peers.as_mut().is_some_and(|siblings| siblings.give(direction, &packet)) {
                        self.gateway.done(direction, packet);
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
        // What a port has refused to finish is finished, and counted, before it comes there.
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
                Command::Tell(to) => {
                    // Who asked may be gone.
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
                Command::Farewell(done) => self.take_leave(done),
            }
        }
    }

    /// How things are.
    pub fn snapshot(&mut self) -> Snapshot {
        let [wide, narrow] = &mut self.ends;
        let kept = [wide.port.kept_count(), narrow.port.kept_count()];
        let directions = [TO_NARROW, TO_WIDE].map(|direction| {
            DirectionSnapshot::of(&self.gateway, direction, kept[direction] + self.gone_counts[direction])
        });
        let siblings = self.peers.as_ref().map(PeerHandoff::moved).unwrap_or_default();
        let ends = [wide.snapshot(), narrow.snapshot()];
        let (processor_time, wake_count) = (thread_time(), linux::clock::wake_count());
        let (handed_over, losses) = (self.handed_over, self.losses);
        Snapshot {
            directions,
            ends,
            path: self.path,
            processor_time,
            wake_count,
            peers: siblings,
            handed_over,
            losses,
        }
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

/// Processor time of this thread so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where commands stand among what is waited for.
const ORDERS: usize = 2;
/// How often a port sends again what the kernel has left to it.
const UNSENT_EVERY: Duration = Duration::from_millis(1);
/// Frames that a port gives at once.
const FRAME_COUNT: usize = 64;
