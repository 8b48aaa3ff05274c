//! Frames of two ports in, packets of the right sizes to the other port out: one thread, nothing shared.
//!
//! What is done to packets is the engine's [`Gateway`], whose two directions lead to the narrow side and to the
//! wide one; no buffer ever changes directions. A bump in the wire sends by the other end what came in by one.
//! Beside a kernel that forwards and delivers, all goes back to where it was taken.

use crate::handover::{Legacy, Will};
use crate::orders::{Farewell, Order, Orders, Replacement};
use crate::path::{Path, TO_NARROW, TO_WIDE};
use crate::send::Sender;
use crate::siblings::{Rebuilt, Siblings};
use crate::snapshot::{EndSnapshot, Seen, Snapshot, WaySnapshot};
use crate::stations::Stations;
use arrayvec::ArrayVec;
use engine::{Batch, Checksums, Connection, Gateway, Output, Way};
use linux::clock::Clock;
use offload::leases::{self, Flow, Passed};
use packet::{
    Frame, Ingress, LINK_LEN_MAX, Packet, Raw, Tags, Time, Unfit, advised_mtu, may_be_segmented,
    may_be_segmented_hence,
};
use port::Port;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// One thread's work: two ends, and what is done to packets between them.
pub struct Worker {
    clock: Clock,
    /// The wide end, the narrow end.
    ends: [End; 2],
    /// All that is done to packets: to the narrow end, to the wide end.
    gateway: Gateway,
    /// What a port gave last.
    batch: Batch,
    /// Flows of the batch that the kernel may be able to pass on.
    candidates: Vec<Flow>,
    orders: Orders,
    /// Another goes on with what was held here.
    has_heir: bool,
    /// Who else works here, where flows are steered.
    siblings: Option<Siblings>,
    /// Which stations are on which side of a border.
    stations: Option<Arc<Stations>>,
    /// May flows be lent to the kernel?
    lends: bool,
    /// Does the kernel know where packets of flows that are lent to it go?
    leads: bool,
    /// When leases that are in use are lengthened.
    renewal: Option<Time>,
    path: Path,
    /// Hosts that are told before the end.
    leaving: Option<Leaving>,
}

/// The end of a border, while those are told who were told to send longer packets.
struct Leaving {
    /// Whom to tell yet, the last first.
    connections: Vec<Connection>,
    /// When the next is told, and when no more are.
    due: Time,
    until: Time,
    farewell: Farewell,
    done: mpsc::Sender<Farewell>,
}

/// A port and what belongs to it.
pub struct End {
    port: Box<dyn Port>,
    /// Longest packet that its link takes, IP header counted, in bytes.
    mtu: usize,
    sender: Sender,
    seen: Seen,
    is_up: bool,
    /// Opens its port anew: the interface may have been made anew under the same name.
    reopen: Option<Reopen>,
    /// When that was tried last.
    tried_at: Time,
    /// Packets that were dropped because it was down, when it was last looked at.
    down_count: u64,
    /// What the kernel passed on before the port was opened anew.
    lent_before: Passed,
}

/// Opens a port anew, or says why it cannot be; none where its interface is as it was, and only down.
pub type Reopen = Box<dyn FnMut() -> io::Result<Option<Box<dyn Port>>> + Send>;

/// What became of a port that was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mended {
    /// It is as it was.
    Not,
    /// It was opened anew.
    Anew,
}

/// How a worker went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There may be more at once.
    Busy,
    /// Nothing is there.
    Idle,
}

impl End {
    /// An end with a port, whose link takes packets of this length.
    pub fn new(port: Box<dyn Port>, mtu: u16) -> End {
        let sender = Sender::new(port.offloads());
        End {
            port,
            mtu: mtu.into(),
            sender,
            seen: Seen::default(),
            is_up: true,
            reopen: None,
            tried_at: Time::ZERO,
            down_count: 0,
            lent_before: Passed::default(),
        }
    }

    /// The same, whose port is opened anew where its interface went and came again.
    pub fn with_reopen(self, reopen: Reopen) -> End {
        End { reopen: Some(reopen), ..self }
    }

    /// Opens the port anew, where it is down and that was not tried a moment ago.
    fn mend(&mut self, now: Time, out: &mut Output) -> Mended {
        let Some(reopen) = &mut self.reopen else { return Mended::Not };
        if now.since(self.tried_at) < MEND_EVERY {
            return Mended::Not;
        }
        self.tried_at = now;
        match reopen() {
            Ok(None) => {}
            Ok(Some(port)) => {
                self.seen.missed_before += self.port.missed();
                self.lent_before = self.lent();
                self.port.give_back(&mut out.pool);
                self.port = port;
                self.sender.trust(self.port.offloads());
                self.is_up = true;
                return Mended::Anew;
            }
            Err(error) => self.seen.last_error = Some(error.to_string()),
        }
        Mended::Not
    }

    /// What the kernel passed on by itself, of what came in here.
    fn lent(&mut self) -> Passed {
        self.lent_before.and(self.port.leases().map(|leases| leases.passed()).unwrap_or_default())
    }

    /// Were packets dropped since it was last asked because the port is down? Who only sends would not hear of it.
    fn seems_down(&mut self) -> bool {
        let before = std::mem::replace(&mut self.down_count, self.sender.sent().down);
        before != self.down_count
    }

    /// The longest frame that carries no IP packet and fits.
    fn frame_len_max(&self) -> usize {
        self.mtu + LINK_LEN_MAX
    }

    fn snapshot(&mut self) -> EndSnapshot {
        EndSnapshot {
            address: self.port.address().to_owned(),
            is_up: self.is_up,
            seen: self.seen.clone(),
            sent: self.sender.sent(),
            missed: self.seen.missed_before + self.port.missed(),
            lent: self.lent(),
        }
    }

    /// May flows that come in here, and those that leave, be lent: does the kernel cut their trains and fill in their sums, and has it
    /// lost none of them?
    fn can_lend(&mut self) -> bool {
        let offloads = self.sender.offloads();
        offloads.checksum && offloads.tcp && self.port.leases().is_some_and(|leases| !leases.has_lost())
    }

    /// Takes what the port has for this direction, payloads to their places where there are some; none where it is
    /// down.
    fn receive(&mut self, way: usize, gateway: &mut Gateway, batch: &mut Batch) -> Turn {
        let (ingress, Batch { split, frames }) = (Ingress(way as u32), batch);
        let received = match gateway.places(way) {
            (Some(places), pool) => self.port.receive_apart(ingress, pool, places, split, frames),
            (None, pool) => self.port.receive(ingress, pool, frames),
        };
        match received {
            Ok(received) => {
                self.is_up = true;
                self.seen.lost += received.lost_count as u64;
                if received.was_last { Turn::Idle } else { Turn::Busy }
            }
            Err(error) => {
                self.is_up = false;
                self.seen.note(&error);
                Turn::Idle
            }
        }
    }
}

impl Worker {
    /// A worker between a wide and a narrow end, which does this to packets.
    pub fn new(clock: Clock, ends: [End; 2], gateway: Gateway, orders: Orders) -> Worker {
        Worker {
            clock,
            ends,
            gateway,
            batch: Batch { split: Vec::with_capacity(FRAME_COUNT), frames: Vec::with_capacity(FRAME_COUNT) },
            candidates: Vec::new(),
            orders,
            has_heir: false,
            siblings: None,
            stations: None,
            lends: false,
            leads: false,
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
    pub fn lending(self, lends: bool) -> Worker {
        Worker { lends, ..self }
    }

    /// The same, which gives its siblings what is of their flows.
    pub fn with_siblings(self, siblings: Option<Siblings>) -> Worker {
        Worker { siblings, ..self }
    }

    /// The same, at a border: no station is told of what it sent to another one of its side.
    pub fn with_stations(self, stations: Option<Arc<Stations>>) -> Worker {
        Worker { stations, ..self }
    }

    /// Works until it is told to stop; what is held leaves then.
    pub fn run(&mut self) {
        // Whoever worked on these ports before may have lent otherwise.
        self.revoke();
        let mut turn = Turn::Busy;
        while self.orders.go_on() && !self.has_heir {
            let ready = self.wait(turn);
            let now = self.clock.now();
            self.orders.beat();
            turn = Turn::Idle;
            // What is late leaves before what comes.
            self.gateway.expire(now);
            for way in [TO_NARROW, TO_WIDE] {
                if self.gateway.output(way).queued_count() > 0 {
                    self.drain(way);
                }
            }
            if self.renewal.is_some_and(|renewal| renewal <= now) {
                self.renew(now);
            }
            for way in [TO_NARROW, TO_WIDE] {
                let looks = ready[way] || self.ends[way].seems_down();
                if looks && self.receive(way, now) == Turn::Busy {
                    turn = Turn::Busy;
                } else {
                    self.settle(way);
                }
                if !self.ends[way].is_up && self.ends[way].mend(now, self.gateway.output_mut(way)) == Mended::Anew {
                    self.leads = false;
                    self.revoke();
                }
            }
            self.lead();
            self.tell_raised(now);
            if ready[ORDERS] {
                // First: what comes from here on rings again.
                self.orders.hush();
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
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
    }

    /// Which ends, and whether orders, want a look; at the latest when something that is held becomes late.
    fn wait(&mut self, turn: Turn) -> [bool; 3] {
        let now = self.clock.now();
        let timeout = match turn {
            Turn::Busy => Duration::ZERO,
            Turn::Idle => {
                let leaving = self.leaving.as_ref().map(|leaving| leaving.due);
                let deadline = self.gateway.next_deadline().into_iter().chain(self.renewal).chain(leaving).min();
                let patience = self.orders.patience();
                deadline.map_or(patience, |deadline| deadline.since(now).min(patience))
            }
        };
        // A port that is down would wake us for ever; it is looked at now and then.
        let timeout = if self.ends.iter().all(|end| end.is_up) { timeout } else { timeout.min(MEND_EVERY) };
        let mut fds = ArrayVec::<PollFd<'_>, 3>::new();
        fds.push(PollFd::from_borrowed_fd(self.orders.fd(), PollFlags::IN));
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
    fn receive(&mut self, way: usize, now: Time) -> Turn {
        let turn = self.ends[way].receive(way, &mut self.gateway, &mut self.batch);
        self.look(way, now);
        self.gateway.push(now, way, &mut self.batch);
        self.lend(way, now);
        if turn == Turn::Idle {
            self.gateway.port_is_idle(now, way);
        }
        self.drain(way);
        turn
    }

    /// Counts what came, and looks at whatever is to be known of it before something is done to it.
    fn look(&mut self, way: usize, now: Time) {
        let mut batch = std::mem::take(&mut self.batch);
        let seen = &mut self.ends[way].seen;
        for split in &mut batch.split {
            seen.split(split);
            if let Some(stations) = &self.stations {
                split.mark(0, stations.pass(split.link(), way, seconds(now)));
            }
        }
        for frame in &mut batch.frames {
            match frame {
                Frame::Ip(packet) => self.look_at(way, now, packet),
                Frame::Other(raw, _) => {
                    let seen = &mut self.ends[way].seen;
                    seen.frames += 1;
                    seen.bytes += raw.frame().len() as u64;
                    if let Some(stations) = &self.stations {
                        stations.pass(raw.frame(), way, seconds(now));
                    }
                }
            }
        }
        self.batch = batch;
    }

    fn look_at(&mut self, way: usize, now: Time, packet: &mut Packet) {
        let seen = &mut self.ends[way].seen;
        seen.packet(packet);
        if let Some(stations) = &self.stations {
            packet.stays_on_its_side = stations.pass(packet.link(), way, seconds(now));
        }
        if way == TO_WIDE
            && let Some(mtu) = advised_mtu(packet)
        {
            seen.advised_mtu = mtu;
        }
        if self.leads && packet.is_tcp() {
            self.consider(way, packet);
        }
    }

    /// Has the kernel pass on what is lent to it, or leave all to us while a port is down.
    fn lead(&mut self) {
        let [wide, narrow] = &mut self.ends;
        let wanted = self.lends && wide.is_up && narrow.is_up;
        if self.leads == wanted {
            return;
        }
        let [wide, narrow] = [wide.port.leases(), narrow.port.leases()];
        let indices =
            [&wide, &narrow].map(|leases| leases.as_ref().filter(|_| wanted).map(|leases| leases.index()));
        let is_both = indices.iter().all(Option::is_some);
        for (leases, to) in [(wide, indices[1]), (narrow, indices[0])] {
            if let Some(leases) = leases {
                leases.lead_to(to.filter(|_| is_both).unwrap_or(0));
            }
        }
        self.leads = wanted && is_both;
    }

    /// Notes a packet whose flow the kernel may be able to pass on: one by which its hosts agree to it, or a train.
    /// What opens or ends a connection ends what was lent.
    fn consider(&mut self, way: usize, packet: &Packet) {
        let ip = &packet.frame()[packet.link_len()..];
        let Some(flow) = Flow::of(ip).filter(|_| packet.tags() == Tags::default()) else { return };
        let turn = Flow::turn(ip);
        if turn == leases::Turn::GoesOn && packet.train.is_none() {
            return;
        }
        if turn != leases::Turn::GoesOn {
            // What came of it before, in the same batch, is of a connection that is over.
            self.candidates.retain(|noted| *noted != flow && *noted != flow.back());
        }
        let mut is_expected = true;
        for (end, flow) in [(way, flow), (1 - way, flow.back())] {
            let Some(leases) = self.ends[end].port.leases() else { return };
            if turn != leases::Turn::GoesOn {
                leases.end(flow);
            }
            if turn == leases::Turn::Opens {
                leases.expect(flow);
            }
            is_expected &= leases.notes(flow);
        }
        let may_lend = match turn {
            leases::Turn::GoesOn => may_be_segmented(packet),
            // One that nobody asked for tells nothing.
            leases::Turn::Answers => is_expected && may_be_segmented_hence(packet),
            leases::Turn::Opens | leases::Turn::Ends => false,
        };
        if may_lend {
            self.candidates.push(flow);
        }
    }

    /// Lends the kernel both directions of the flows that were noted, where all that is done to their packets is
    /// that their trains get segments of another length.
    fn lend(&mut self, way: usize, now: Time) {
        if self.candidates.is_empty() {
            return;
        }
        let may_lend = self.ends.iter_mut().all(End::can_lend);
        for flow in self.candidates.drain(..).filter(|_| may_lend) {
            let ends = flow.ends().map(|(address, port)| (address.into(), port));
            let Some(limits) = self.gateway.resized_limits(ends, way) else { continue };
            for ((end, flow), limit) in [(way, flow), (1 - way, flow.back())].into_iter().zip(limits) {
                self.ends[end].port.leases().into_iter().for_each(|leases| leases.lend(flow, limit));
            }
            self.renewal.get_or_insert(now.later(RENEWAL.as_nanos() as u64));
        }
    }

    /// Lends for longer what is in use and known; what is not comes by here, and is looked at.
    fn renew(&mut self, now: Time) {
        self.renewal = None;
        if !self.leads || self.gateway.connections().is_none() || !self.ends.iter_mut().all(End::can_lend) {
            return;
        }
        for way in [TO_NARROW, TO_WIDE] {
            let (Some(leases), gateway) = (self.ends[way].port.leases(), &mut self.gateway) else { continue };
            let limit = |flow: Flow, acked: Option<u32>| {
                let ends = flow.ends().map(|(address, port)| (address.into(), port));
                if let (TO_WIDE, Some(ack), Some(connections)) = (way, acked, gateway.connections_mut()) {
                    connections.hear_ack(ends, ack);
                }
                gateway.hear(now, ends, way)
            };
            if leases.renew(limit) > 0 {
                self.renewal = Some(now.later(RENEWAL.as_nanos() as u64));
            }
        }
    }

    /// Takes back what the kernel was lent: it was lent as things were.
    fn revoke(&mut self) {
        for end in &mut self.ends {
            if let Some(leases) = end.port.leases() {
                leases.revoke();
            }
        }
    }

    /// Where nothing that came in for a way is left, its flows may go on without us.
    fn settle(&mut self, way: usize) {
        if self.leads && self.gateway.is_idle(way) {
            self.ends[way].port.settle();
        }
    }

    /// A frame that carries no packet for us goes on as it is, behind what came before it.
    fn pass(&mut self, way: usize, raw: Raw, unfit: Unfit) {
        let (exit, len) = (self.path.exit(way), raw.frame().len());
        let fits = self.path == Path::Back || len <= self.ends[exit].frame_len_max();
        let seen = &mut self.ends[way].seen;
        let out = self.gateway.output_mut(way);
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

    /// Takes what siblings rebuilt of flows that are ours.
    fn take_from_siblings(&mut self, now: Time) {
        while let Some(rebuilt) = self.siblings.as_mut().and_then(Siblings::take) {
            self.push_rebuilt(now, &rebuilt);
            self.gateway.port_is_idle(now, rebuilt.way);
            self.drain(rebuilt.way);
        }
    }

    fn push_rebuilt(&mut self, now: Time, rebuilt: &Rebuilt) {
        let pool = &mut self.gateway.output_mut(rebuilt.way).pool;
        match Frame::copy(&rebuilt.frame, rebuilt.medium, Ingress(rebuilt.way as u32), pool) {
            Ok(mut packet) => {
                rebuilt.tell(&mut packet);
                self.batch.frames.push(Frame::Ip(packet));
                self.gateway.push(now, rebuilt.way, &mut self.batch);
            }
            Err(_) => self.ends[rebuilt.way].seen.lost += 1,
        }
    }

    /// Holds what siblings gave as well, and ends what goes between them: from here on all leaves where it stands.
    fn close_to_siblings(&mut self) {
        let now = self.clock.now();
        let rest = self.siblings.as_mut().map(Siblings::close).unwrap_or_default();
        for rebuilt in &rest {
            self.push_rebuilt(now, rebuilt);
            self.drain(rebuilt.way);
        }
    }

    /// Sends all that waits for the ports.
    fn drain(&mut self, way: usize) {
        while let Some(leaving) = self.gateway.next(way) {
            match leaving {
                Way::Forward(packet) => {
                    if self.siblings.as_mut().is_some_and(|siblings| siblings.give(way, &packet)) {
                        self.gateway.done(way, packet);
                    } else {
                        self.send(way, packet, self.path.exit(way));
                    }
                }
                Way::Answer(packet) => self.send(way, packet, way),
                Way::Pass(raw, unfit) => self.pass(way, raw, unfit),
            }
        }
        for end in &mut self.ends {
            end.sender.flush(end.port.as_mut(), self.gateway.output_mut(way));
        }
        // What a port has refused to finish is finished, and counted, before it comes there.
        let is_left = self.ends[self.path.exit(way)].sender.offloads().checksum;
        self.gateway.set_checksums(way, if is_left { Checksums::Left } else { Checksums::Finished });
    }

    fn send(&mut self, way: usize, packet: Packet, to: usize) {
        let end = &mut self.ends[to];
        if end.sender.put(packet) {
            end.sender.flush(end.port.as_mut(), self.gateway.output_mut(way));
        }
    }

    fn obey(&mut self) {
        while let Some(order) = self.orders.next() {
            match order {
                Order::Tell(to) => {
                    // Who asked may be gone.
                    let _ = to.send(self.snapshot());
                }
                Order::Change(change) => {
                    let now = self.clock.now();
                    self.revoke();
                    change(now, &mut self.gateway);
                    [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
                }
                Order::Replace(replacement) => {
                    self.revoke();
                    self.replace(*replacement);
                }
                Order::HandOver(will) => self.hand_over(&will),
                Order::Farewell(done) => self.take_leave(done),
            }
        }
    }

    /// Passes on by itself all that comes from here on, raises nothing, and begins to tell those who were told to send longer packets.
    fn take_leave(&mut self, done: mpsc::Sender<Farewell>) {
        self.lends = false;
        self.revoke();
        self.lead();
        let now = self.clock.now();
        let Some(connections) = self.gateway.connections_mut() else {
            // Nobody was told to send longer packets. Who asked may be gone.
            let _ = done.send(Farewell::default());
            return;
        };
        let mut farewell = Farewell::default();
        connections.stop_raising();
        farewell.forgotten = connections.forgotten_count();
        if let Some(leases) = self.ends[TO_WIDE].port.leases() {
            for (flow, ack) in leases.acked() {
                connections.hear_ack(flow.ends().map(|(address, port)| (address.into(), port)), ack);
            }
        }
        let raised_count = connections.raised_connections().count();
        let connections: Vec<_> = connections.raised_connections().take(TOLD_MAX).collect();
        farewell.untold = (raised_count - connections.len()) as u64;
        let until = now.later(FAREWELL_PATIENCE.as_nanos() as u64);
        self.leaving = Some(Leaving { connections, due: now, until, farewell, done });
    }

    /// Tells the next of them, once it is time: what comes at once may be too much for a host or a link.
    fn tell_raised(&mut self, now: Time) {
        let Some(Leaving { connections, due, until, farewell, done }) = &mut self.leaving else { return };
        if self.gateway.connections().is_none() {
            // A reload took what can tell them.
            *until = now;
        }
        for _ in 0..TOLD_AT_ONCE {
            if *due > now || *until <= now {
                break;
            }
            let Some(connection) = connections.pop() else { break };
            if self.gateway.tell(&connection, Ingress(TO_NARROW as u32)) {
                farewell.told += 1;
                *due = due.later(FAREWELL_PACE.as_nanos() as u64);
            } else {
                farewell.untold += 1;
            }
        }
        if *until <= now {
            farewell.untold += connections.drain(..).count() as u64;
        }
        if connections.is_empty() {
            // Who asked may be gone.
            let _ = done.send(*farewell);
            self.leaving = None;
        }
        self.drain(TO_NARROW);
    }

    /// How things are.
    pub fn snapshot(&mut self) -> Snapshot {
        let [wide, narrow] = &mut self.ends;
        let kept = [wide.port.kept_count(), narrow.port.kept_count()];
        let ways = [TO_NARROW, TO_WIDE].map(|way| WaySnapshot::of(&self.gateway, way, kept[way]));
        let siblings = self.siblings.as_ref().map(Siblings::moved).unwrap_or_default();
        let ends = [wide.snapshot(), narrow.snapshot()];
        let (processor_time, wake_count) = (thread_time(), linux::clock::wake_count());
        Snapshot { ways, ends, path: self.path, processor_time, wake_count, siblings }
    }
}

/// Going on in another's place.
impl Worker {
    /// Works as [`Worker::run`] does. Where that panics, what is held leaves first, as far as it still can.
    pub fn run_guarded(&mut self) {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            // What was amiss once may be so again: then what is held is lost.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                // What was being received is lost, and nothing waits for it.
                self.batch = Batch::default();
                [TO_NARROW, TO_WIDE].into_iter().for_each(|way| {
                    self.gateway.push(self.clock.now(), way, &mut Batch::default());
                });
                self.close_to_siblings();
                self.flush();
            }));
            resume_unwind(cause);
        }
    }

    /// Takes what another process held, before anything is received. What that one knew of its connections is not
    /// known here: packets count as those of connections whose beginning did not pass.
    pub fn inherit(&mut self, legacies: &[Legacy]) {
        let now = self.clock.now();
        for Legacy { way, longest_piece, id, frame } in legacies {
            let (end, out) = (&mut self.ends[*way], self.gateway.output_mut(*way));
            match Frame::copy(frame, end.port.medium(), Ingress(*way as u32), &mut out.pool) {
                Ok(mut packet) => {
                    if *longest_piece > 0 {
                        packet.set_pieces(*longest_piece as usize, *id);
                    }
                    end.seen.packet(&packet);
                    self.batch.frames.push(Frame::Ip(packet));
                    self.gateway.push(now, *way, &mut self.batch);
                }
                Err(_) => end.seen.lost += 1,
            }
        }
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
    }

    fn replace(&mut self, replacement: Replacement) {
        let now = self.clock.now();
        let Replacement { settings, secrets, mtus, pool_limit, lends, done } = replacement;
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way));
        self.gateway.replace(now, &settings, secrets);
        for way in [TO_NARROW, TO_WIDE] {
            // What is held may be more than the new limit: it goes over first.
            self.gateway.output_mut(way).pool.set_limit(pool_limit);
            self.drain(way);
        }
        self.ends.iter_mut().zip(mtus).for_each(|(end, mtu)| end.mtu = mtu.into());
        self.lends = lends;
        // Who asked may be gone.
        let _ = done.send(());
    }

    fn hand_over(&mut self, will: &Will) {
        let now = self.clock.now();
        self.close_to_siblings();
        for way in [TO_NARROW, TO_WIDE] {
            self.drain(way);
            self.gateway.hand_over(now, way);
            while let Some(leaving) = self.gateway.next(way) {
                match leaving {
                    Way::Forward(packet) => bequeath(will, way, packet, self.gateway.output_mut(way)),
                    Way::Answer(packet) => self.send(way, packet, way),
                    Way::Pass(raw, unfit) => self.pass(way, raw, unfit),
                }
            }
            self.drain(way);
        }
        self.has_heir = true;
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

/// Writes a packet for who goes on, and gives its buffer back.
fn bequeath(will: &Will, way: usize, mut packet: Packet, out: &mut Output) {
    // Where nobody reads, another begins with nothing.
    let _ = will.write(way, &mut packet);
    out.done(packet);
}

fn seconds(now: Time) -> u64 {
    now.nanos() / 1_000_000_000
}

/// Processor time of this thread so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where orders stand among what is waited for.
const ORDERS: usize = 2;
/// How often a port that is down is opened anew.
const MEND_EVERY: Duration = Duration::from_millis(100);
/// How often leases that are in use are lengthened: more than once while one runs.
const RENEWAL: Duration = Duration::from_millis(leases::TERM.as_millis() as u64 * 2 / 5);
/// Between two hosts that are told before the end: 20,000 a second.
const FAREWELL_PACE: Duration = Duration::from_micros(50);
/// Hosts that are told before anything else is looked at.
const TOLD_AT_ONCE: usize = 32;
/// How long telling them may take, and how many are told at that pace.
pub const FAREWELL_PATIENCE: Duration = Duration::from_secs(4);
const TOLD_MAX: usize = (FAREWELL_PATIENCE.as_micros() / FAREWELL_PACE.as_micros()) as usize;
/// Frames that a port gives at once.
const FRAME_COUNT: usize = 64;
