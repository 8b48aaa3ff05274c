//! Frames of two ports in, packets of the right sizes to the other port out: one thread, nothing shared.
//!
//! There are two ways through it, to the narrow side and to the wide one. Each has a pool, a ledger and a [`Side`] of its own:
//! what comes in by one end leaves by the other, answers go back, and no buffer ever changes ways.

use crate::handover::{Legacy, Will};
use crate::links::{Link, Links, Origin};
use crate::orders::{Order, Orders, Replacement};
use crate::reopen::Reopened;
use crate::send::Sender;
use crate::siblings::{Rebuilt, Siblings};
use crate::snapshot::{EndSnapshot, Seen, Snapshot, StageSnapshot, WaySnapshot, sum};
use arrayvec::ArrayVec;
use engine::{Checksums, Guesses, Mss, Output, Side, Toward, Way as Leaving};
use packet::{
    Frame, Ingress, LINK_LEN_MAX, Landed, Packet, Places, Raw, Tags, Time, Unfit, advised_mtu, may_be_segmented,
    may_be_segmented_hence,
};
use port::Port;
use port::clock::Clock;
use port::leases::{self, Flow, Passed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// One thread's work: two ends, two ways.
pub struct Worker {
    clock: Clock,
    /// The wide end, the narrow end.
    ends: [End; 2],
    /// To the narrow end, to the wide end.
    ways: [Way; 2],
    /// What hosts on both sides announced, at a border.
    mss: Option<Mss>,
    frames: Vec<Frame>,
    orders: Orders,
    /// Another goes on with what was held here.
    has_heir: bool,
    /// Who else works here, where flows are steered.
    siblings: Option<Siblings>,
    /// May flows be lent to the kernel?
    lends: bool,
    /// Does the kernel know where packets of flows that are lent to it go?
    leads: bool,
    /// When leases that are in use are lengthened.
    renewal: Option<Time>,
}

/// A port and what belongs to it.
pub struct End {
    port: Box<dyn Port>,
    links: Links,
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
    /// Fragments of the batch that was received last, their payloads in place already.
    landed: Vec<Landed>,
    /// What the kernel passed on before the port was opened anew.
    lent_before: Passed,
}

/// Opens a port anew, or says why it cannot be; none where its interface is as it was, and only down.
pub type Reopen = Box<dyn FnMut() -> io::Result<Option<Reopened>> + Send>;

/// All that happens to packets of one direction.
#[derive(Debug)]
pub struct Way {
    /// The policy of the side that they leave by.
    pub side: Side,
    /// Where they wait, and are counted.
    pub out: Output,
    /// Is what is held released when the port has nothing more to give?
    pub releases_when_idle: bool,
    /// How guesses of sides went that another has taken the place of.
    guesses_before: Guesses,
    /// Packets whose next hop is being asked for, and until when they wait.
    unresolved: VecDeque<Unresolved>,
}

/// A packet that waits for its next hop.
#[derive(Debug)]
struct Unresolved {
    until: Time,
    packet: Packet,
    /// The end that it leaves by.
    to: usize,
}

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
    /// An end with a port, whose packets get link headers in this manner.
    pub fn new(port: Box<dyn Port>, links: Links, mtu: u16) -> End {
        let sender = Sender::new(port.offloads());
        End {
            port,
            links,
            mtu: mtu.into(),
            sender,
            seen: Seen::default(),
            is_up: true,
            reopen: None,
            tried_at: Time::ZERO,
            down_count: 0,
            landed: Vec::new(),
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
            Ok(Some(Reopened { port, links })) => {
                self.seen.missed_before += self.port.missed();
                self.lent_before = self.lent();
                self.port.give_back(&mut out.pool);
                self.port = port;
                if let Some(links) = links {
                    self.links = links;
                }
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

    /// Takes what the port has, payloads to these places where there are some; none where it is down.
    fn receive(
        &mut self,
        ingress: Ingress,
        places: Option<Places<'_>>,
        out: &mut Output,
        frames: &mut Vec<Frame>,
    ) -> Turn {
        let received = match places {
            Some(places) => self.port.receive_apart(ingress, &mut out.pool, places, &mut self.landed, frames),
            None => self.port.receive(ingress, &mut out.pool, frames),
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

impl Way {
    /// A way with nothing held.
    pub fn new(side: Side, out: Output, releases_when_idle: bool) -> Way {
        Way { side, out, releases_when_idle, guesses_before: Guesses::default(), unresolved: VecDeque::new() }
    }

    /// Remembers how guesses went that went by a stage which is about to end.
    pub(crate) fn keep_guesses(&mut self) {
        self.guesses_before = sum(self.guesses_before, self.side.guesses());
    }

    /// When it has work without a packet that comes.
    fn next_deadline(&self, now: Time) -> Option<Time> {
        let unresolved = (!self.unresolved.is_empty()).then(|| now.later(LOOK.as_nanos() as u64));
        self.side.next_deadline().into_iter().chain(unresolved).min()
    }

    fn snapshot(&self, kept_count: usize) -> WaySnapshot {
        let (held, buffers) = self.side.widening.held();
        let lent_count = self.out.pool.lent_count();
        let accounted = buffers + self.out.queued_count() + self.unresolved.len() + kept_count;
        let broken = if lent_count != accounted {
            Some(format!("{lent_count} buffers are lent, {accounted} are held, kept or waiting"))
        } else {
            self.out.ledger.check(held).err()
        };
        WaySnapshot {
            ledger: self.out.ledger.clone(),
            held,
            unresolved: self.unresolved.iter().map(|waiting| waiting.packet.wire_count() as u64).sum(),
            stages: StageSnapshot::all(&self.side),
            guesses: sum(self.guesses_before, self.side.guesses()),
            pool_len: self.out.pool.heap_len() as u64,
            lent_count: lent_count as u64,
            broken,
        }
    }
}

impl Worker {
    /// A worker between a wide and a narrow end; `ways` are to the narrow end and to the wide one.
    pub fn new(clock: Clock, ends: [End; 2], ways: [Way; 2], mss: Option<Mss>, orders: Orders) -> Worker {
        Worker {
            clock,
            ends,
            ways,
            mss,
            frames: Vec::with_capacity(FRAME_COUNT),
            orders,
            has_heir: false,
            siblings: None,
            lends: false,
            leads: false,
            renewal: None,
        }
    }

    /// The same, which lends flows to the kernel or does not.
    pub fn lending(self, lends: bool) -> Worker {
        Worker { lends, ..self }
    }

    /// The same, which gives its siblings what is of their flows.
    pub fn with_siblings(self, siblings: Option<Siblings>) -> Worker {
        Worker { siblings, ..self }
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
            if let Some(mss) = &mut self.mss
                && mss.next_deadline().is_some_and(|deadline| deadline <= now)
            {
                mss.expire(now);
            }
            if self.renewal.is_some_and(|renewal| renewal <= now) {
                self.renew(now);
            }
            for way in [TO_NARROW, TO_WIDE] {
                // What is late leaves before what comes.
                self.expire(way, now);
                let looks = ready[way] || self.ends[way].seems_down();
                if looks && self.receive(way, now) == Turn::Busy {
                    turn = Turn::Busy;
                } else {
                    self.settle(way);
                }
                if !self.ends[way].is_up && self.ends[way].mend(now, &mut self.ways[way].out) == Mended::Anew {
                    self.leads = false;
                    self.revoke();
                }
            }
            self.lead();
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
        for way in [TO_NARROW, TO_WIDE] {
            let Way { side, out, .. } = &mut self.ways[way];
            side.flush(now, out);
            self.drain(way, now);
        }
    }

    /// Which ends, and whether orders, want a look; at the latest when something that is held becomes late.
    fn wait(&mut self, turn: Turn) -> [bool; 3] {
        let now = self.clock.now();
        let timeout = match turn {
            Turn::Busy => Duration::ZERO,
            Turn::Idle => {
                let deadlines = self.ways.iter().filter_map(|way| way.next_deadline(now));
                let deadline = deadlines.chain(self.renewal).min();
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
        let mut frames = std::mem::take(&mut self.frames);
        let [wide, narrow] = &mut self.ends;
        let (from, to) = if way == TO_NARROW { (wide, narrow) } else { (narrow, wide) };
        let Way { side, out, .. } = &mut self.ways[way];
        let mut bet = side.bet(&mut out.pool);
        let turn = from.receive(Ingress(way as u32), bet.places(), out, &mut frames);
        let End { links, seen, landed, .. } = from;
        let takes = |packet: &Packet| links.takes(now, packet) && to.links.leads_to(now, packet);
        bet.settle(now, landed, &mut frames, out, takes, |packet, count| seen.packets(packet, count));
        for frame in frames.drain(..) {
            match frame {
                Frame::Ip(packet) => self.push(way, now, packet),
                Frame::Other(raw, unfit) => self.pass(way, now, raw, unfit),
            }
        }
        self.frames = frames;
        let Way { side, out, releases_when_idle, .. } = &mut self.ways[way];
        if turn == Turn::Idle && *releases_when_idle {
            side.release(now, out);
        }
        self.drain(way, now);
        turn
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

    /// Lends the kernel both directions of a flow, where all that is done to its packets is that their trains get segments of another
    /// length: when its hosts agree to it, so that all of it passes without us, or when a train of it comes. That ends where
    /// the connection does.
    fn lend(&mut self, way: usize, now: Time, packet: &Packet) {
        let ip = &packet.frame()[packet.link_len()..];
        let Some(flow) = Flow::of(ip).filter(|_| packet.tags() == Tags::default()) else { return };
        let flows = [(way, flow), (1 - way, flow.back())];
        let turn = Flow::turn(ip);
        if turn == leases::Turn::GoesOn && packet.train.is_none() {
            return;
        }
        let mut is_expected = true;
        for (end, flow) in flows {
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
        if !may_lend || !self.ends.iter_mut().all(End::can_lend) {
            return;
        }
        let Some(limits) = self.mss.as_mut().and_then(|mss| mss.limits(packet, TOWARD[way])) else { return };
        let resizes = |(way, _): (usize, Flow), limit| self.ways[way].side.resizes_to(limit);
        let [Some(there), Some(back)] = [resizes(flows[0], limits[0]), resizes(flows[1], limits[1])] else {
            return;
        };
        for ((end, flow), limit) in flows.into_iter().zip([there, back]) {
            self.ends[end].port.leases().into_iter().for_each(|leases| leases.lend(flow, limit));
        }
        self.renewal.get_or_insert(now.later(RENEWAL.as_nanos() as u64));
    }

    /// Lends for longer what is in use and known; what is not comes by here, and is looked at.
    fn renew(&mut self, now: Time) {
        self.renewal = None;
        if !self.leads || !self.ends.iter_mut().all(End::can_lend) {
            return;
        }
        let Some(mss) = &mut self.mss else { return };
        for way in [TO_NARROW, TO_WIDE] {
            let Some(leases) = self.ends[way].port.leases() else { continue };
            let side = &self.ways[way].side;
            let limit = |flow: Flow| {
                let ends = flow.ends().map(|(address, port)| (address.into(), port));
                side.resizes_to(mss.hear(now, ends, TOWARD[way])?)
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
        let Way { side, out, unresolved, .. } = &self.ways[way];
        let holds_none = side.widening.coalescer.as_ref().is_none_or(|coalescer| coalescer.held().1 == 0);
        if self.leads && out.queued_count() == 0 && unresolved.is_empty() && holds_none {
            self.ends[way].port.settle();
        }
    }

    fn push(&mut self, way: usize, now: Time, mut packet: Packet) {
        let [wide, narrow] = &mut self.ends;
        let (from, to) = if way == TO_NARROW { (wide, narrow) } else { (narrow, wide) };
        from.seen.packet(&packet);
        let out = &mut self.ways[way].out;
        if !from.links.takes(now, &packet) || !to.links.leads_to(now, &packet) {
            from.seen.left += 1;
            return out.done(packet);
        }
        if way == TO_WIDE
            && let Some(mtu) = advised_mtu(&packet)
        {
            from.seen.advised_mtu = mtu;
        }
        if let Some(mss) = &mut self.mss {
            mss.see(now, &mut packet, TOWARD[way], &mut out.ledger);
        }
        if self.leads && packet.is_tcp() {
            self.lend(way, now, &packet);
        }
        let Way { side, out, .. } = &mut self.ways[way];
        side.push(now, packet, out);
    }

    /// A frame that carries no packet for us goes on as it is, behind what came before it.
    fn pass(&mut self, way: usize, now: Time, raw: Raw, unfit: Unfit) {
        self.drain(way, now);
        let [wide, narrow] = &mut self.ends;
        let (from, to) = if way == TO_NARROW { (wide, narrow) } else { (narrow, wide) };
        from.seen.frames += 1;
        from.seen.bytes += raw.frame().len() as u64;
        if !from.links.passes_others() {
            from.seen.left += 1;
        } else if raw.frame().len() > to.frame_len_max() {
            from.seen.oversize += 1;
        } else {
            from.seen.passed += 1;
            self.ways[way].out.ledger.pass(unfit.into(), raw.frame().len());
            to.sender.pass(raw.frame(), to.port.as_mut());
        }
        self.ways[way].out.pool.give(raw.into_buffer());
    }

    /// Takes what siblings rebuilt of flows that are ours.
    fn take_from_siblings(&mut self, now: Time) {
        while let Some(rebuilt) = self.siblings.as_mut().and_then(Siblings::take) {
            self.push_rebuilt(now, &rebuilt);
            let Way { side, out, releases_when_idle, .. } = &mut self.ways[rebuilt.way];
            if *releases_when_idle {
                side.release(now, out);
            }
            self.drain(rebuilt.way, now);
        }
    }

    fn push_rebuilt(&mut self, now: Time, rebuilt: &Rebuilt) {
        let Way { side, out, .. } = &mut self.ways[rebuilt.way];
        match Frame::copy(&rebuilt.frame, rebuilt.medium, Ingress(rebuilt.way as u32), &mut out.pool) {
            Ok(mut packet) => {
                rebuilt.tell(&mut packet);
                if let Some(mss) = &mut self.mss {
                    mss.see(now, &mut packet, TOWARD[rebuilt.way], &mut out.ledger);
                }
                side.push(now, packet, out);
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
            self.drain(rebuilt.way, now);
        }
    }

    fn expire(&mut self, way: usize, now: Time) {
        let Way { side, out, unresolved, .. } = &mut self.ways[way];
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        if is_due(side.next_deadline()) {
            side.expire(now, out);
        }
        if !unresolved.is_empty() {
            self.retry(way, now);
        }
        if self.ways[way].out.queued_count() > 0 {
            self.drain(way, now);
        }
    }

    /// Sends all that waits for the ports.
    fn drain(&mut self, way: usize, now: Time) {
        while let Some(leaving) = self.ways[way].out.next_way() {
            match leaving {
                Leaving::Forward(packet) => {
                    if self.siblings.as_mut().is_some_and(|siblings| siblings.give(way, &packet)) {
                        self.ways[way].out.done(packet);
                    } else {
                        self.send(way, now, packet, 1 - way);
                    }
                }
                Leaving::Answer(packet) => self.send(way, now, packet, way),
            }
        }
        for end in &mut self.ends {
            end.sender.flush(end.port.as_mut(), &mut self.ways[way].out);
        }
        // What a port has refused to finish is finished, and counted, before it comes there.
        let is_left = self.ends[1 - way].sender.offloads().checksum;
        self.ways[way].side.narrowing.checksums = if is_left { Checksums::Left } else { Checksums::Finished };
    }

    fn send(&mut self, way: usize, now: Time, mut packet: Packet, to: usize) {
        let end = &mut self.ends[to];
        let Way { out, unresolved, .. } = &mut self.ways[way];
        match end.links.link(now, &mut packet, origin(way, to)) {
            Link::Ready => {
                if end.sender.put(packet) {
                    end.sender.flush(end.port.as_mut(), out);
                }
            }
            Link::Asked if unresolved.len() < UNRESOLVED_MAX => {
                let until = now.later(UNRESOLVED_PATIENCE.as_nanos() as u64);
                unresolved.push_back(Unresolved { until, packet, to });
            }
            Link::Asked | Link::None => {
                end.seen.unreachable += packet.wire_count() as u64;
                out.done(packet);
            }
        }
    }

    /// Tries again what had no next hop.
    fn retry(&mut self, way: usize, now: Time) {
        for _ in 0..self.ways[way].unresolved.len() {
            let Some(Unresolved { until, mut packet, to }) = self.ways[way].unresolved.pop_front() else { return };
            let end = &mut self.ends[to];
            match end.links.link(now, &mut packet, origin(way, to)) {
                Link::Ready => {
                    if end.sender.put(packet) {
                        end.sender.flush(end.port.as_mut(), &mut self.ways[way].out);
                    }
                }
                Link::Asked if until > now => {
                    self.ways[way].unresolved.push_back(Unresolved { until, packet, to });
                }
                Link::Asked | Link::None => {
                    end.seen.unreachable += packet.wire_count() as u64;
                    self.ways[way].out.done(packet);
                }
            }
        }
        for end in &mut self.ends {
            end.sender.flush(end.port.as_mut(), &mut self.ways[way].out);
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
                    change(now, &mut self.ways);
                    [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way, now));
                }
                Order::Replace(replacement) => {
                    self.revoke();
                    self.replace(*replacement);
                }
                Order::HandOver(will) => self.hand_over(&will),
            }
        }
    }

    /// How things are.
    pub fn snapshot(&mut self) -> Snapshot {
        let [wide, narrow] = &mut self.ends;
        let [to_narrow, to_wide] = &self.ways;
        let ways = [to_narrow.snapshot(wide.port.kept_count()), to_wide.snapshot(narrow.port.kept_count())];
        let siblings = self.siblings.as_ref().map(Siblings::moved).unwrap_or_default();
        let ends = [wide.snapshot(), narrow.snapshot()];
        Snapshot { ways, ends, processor_time: thread_time(), wake_count: port::clock::wake_count(), siblings }
    }
}

/// Going on in another's place.
impl Worker {
    /// Works as [`Worker::run`] does. Where that panics, what is held leaves first, as far as it still can.
    pub fn run_guarded(&mut self) {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            // What was amiss once may be so again: then what is held is lost.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.close_to_siblings();
                self.flush();
            }));
            resume_unwind(cause);
        }
    }

    /// Takes what another process held, before anything is received.
    pub fn inherit(&mut self, legacies: &[Legacy]) {
        let now = self.clock.now();
        for Legacy { way, longest_piece, id, frame } in legacies {
            let (end, Way { side, out, .. }) = (&mut self.ends[*way], &mut self.ways[*way]);
            match Frame::copy(frame, end.port.medium(), Ingress(*way as u32), &mut out.pool) {
                Ok(mut packet) => {
                    if *longest_piece > 0 {
                        packet.set_pieces(*longest_piece as usize, *id);
                    }
                    end.seen.packet(&packet);
                    side.push(now, packet, out);
                }
                Err(_) => end.seen.lost += 1,
            }
        }
        [TO_NARROW, TO_WIDE].into_iter().for_each(|way| self.drain(way, now));
    }

    fn replace(&mut self, replacement: Replacement) {
        let now = self.clock.now();
        let Replacement { sides, mtus, pool_limit, answer_from, mss, lends, done } = replacement;
        for (way, (side, releases)) in sides.into_iter().enumerate() {
            self.drain(way, now);
            let Way { side: place, out, releases_when_idle, guesses_before, .. } = &mut self.ways[way];
            *releases_when_idle = releases;
            out.answer_from(answer_from);
            // What is held may be more than the new limit: it goes over first.
            let old = std::mem::replace(place, side);
            *guesses_before = sum(*guesses_before, old.guesses());
            place.take_over(now, old, out);
            out.pool.set_limit(pool_limit);
            self.drain(way, now);
        }
        self.ends.iter_mut().zip(mtus).for_each(|(end, mtu)| end.mtu = mtu.into());
        match (&mut self.mss, mss) {
            (Some(mine), Some(fresh)) => mine.go_on_as(fresh),
            (mine, fresh) => *mine = fresh,
        }
        self.lends = lends;
        // Who asked may be gone.
        let _ = done.send(());
    }

    fn hand_over(&mut self, will: &Will) {
        let now = self.clock.now();
        self.close_to_siblings();
        for way in [TO_NARROW, TO_WIDE] {
            self.drain(way, now);
            let Way { side, out, unresolved, .. } = &mut self.ways[way];
            for Unresolved { packet, to, .. } in unresolved.drain(..) {
                if to == way {
                    // An answer of ours: the heir would take it for a packet that goes on.
                    self.ends[to].seen.unreachable += 1;
                    out.done(packet);
                    continue;
                }
                bequeath(will, way, packet, out);
            }
            side.hand_over(now, out);
            while let Some(leaving) = self.ways[way].out.next_way() {
                match leaving {
                    Leaving::Forward(packet) => bequeath(will, way, packet, &mut self.ways[way].out),
                    Leaving::Answer(packet) => self.send(way, now, packet, way),
                }
            }
            self.drain(way, now);
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

/// An answer goes back the way its cause came.
fn origin(way: usize, to: usize) -> Origin {
    if to == way { Origin::Own } else { Origin::Passing }
}

/// Processor time of this thread so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The ways through a worker: each comes in by the end with its own number, and leaves by the other.
const TO_NARROW: usize = 0;
/// See [`TO_NARROW`].
const TO_WIDE: usize = 1;
const TOWARD: [Toward; 2] = [Toward::Narrow, Toward::Wide];
/// Where orders stand among what is waited for.
const ORDERS: usize = 2;
/// How often a port that is down is opened anew.
const MEND_EVERY: Duration = Duration::from_millis(100);
/// How often next hops are looked at while packets wait for one.
const LOOK: Duration = Duration::from_millis(1);
/// How often leases that are in use are lengthened: more than once while one runs.
const RENEWAL: Duration = Duration::from_millis(leases::TERM.as_millis() as u64 * 2 / 5);
/// Packets that wait for next hops, at most, in each direction.
const UNRESOLVED_MAX: usize = 256;
/// How long a packet waits for its next hop: the kernel asks three times, a second apart (net.ipv4.neigh.default).
const UNRESOLVED_PATIENCE: Duration = Duration::from_secs(3);
/// Frames that a port gives at once.
const FRAME_COUNT: usize = 64;
