//! Frames for one direction -> frames of the size that its side accepts.
//!
//! The engine under test is driven here, and the laws are checked in each of its directions. The cost of most
//! checks does not depend on the amount of stored data:
//!
//! - Counts of received and transmitted packets are compared with the ledger.
//! - Positions within a flow are compared with the flow's highest position so far.
//! - The age of a packet follows from the time in its tag.
//!
//! All stored data is recounted only occasionally, after as many events as there are entries.

mod acks;
mod sizes;
mod watch;

use self::watch::{EcnCounts, OrderCheck, Watch};
use crate::coverage::Receiving;
use crate::flow::{Flow, flow_of};
use crate::injected_bug::InjectedBug;
use crate::laws::Law;
use crate::link::Departure;
use crate::net::Net;
use crate::topology::Role;
use crate::wire::{self, TCP, TCP_LEN, UDP, UDP_LEN, long, word};
use core::iter;
use core::time::Duration;
use engine::{
    Batch, Egress as Leaving, Event, FairIntake, FrameSource, Gateway as Engine, GatewaySettings, Reason,
    Role as EngineRole, Secrets, Side, Tally, Toggle, WirePackets,
};
use packet::icmp::TooBigReport;
use packet::{Frame, Ingress, Ip, LinkType, Packet, Pool, Time};

/// One direction of an engine. All its packets are transmitted on one wire.
#[derive(Debug)]
pub struct Direction {
    /// Number of the direction within the engine.
    at: usize,
    /// The role of the node.
    pub role: Role,
    /// Number of the wire on which packets are transmitted.
    pub wire: usize,
    /// Whether rejected packets cause ICMP errors.
    pub tells: bool,
    /// Orders the frames that arrive together by flow; `None` = they are processed in order of arrival.
    pub intake: Option<FairIntake>,
    /// Whether data is acknowledged before its receiver does.
    pub is_early: bool,
    /// The injected bug, if any.
    pub bug: Option<InjectedBug>,
    /// Whether the link's MTU has changed during the run. Stored fragments may have been merged for the old MTU.
    is_replaced: bool,
    /// The longest time that the direction may hold a packet.
    timeout: Duration,
    /// Memory limit of each stage, in bytes.
    limit: usize,
    watch: Watch,
    /// A packet that an injected bug delays.
    kept: Option<Packet>,
    leaving_count: u64,
    /// Time of the next planned wake-up event.
    pub planned: Time,
}

/// Returns the wire on which a direction's ICMP error is transmitted; `None` if there is no route.
pub type Back<'a> = &'a dyn Fn(usize, &Packet) -> Option<usize>;

/// An engine and the measurements of its directions.
#[derive(Debug)]
pub struct Directions {
    engine: Engine,
    secrets: Secrets,
    batch: Batch,
    all: Vec<Direction>,
    /// The injected bug, if any.
    pub bug: Option<InjectedBug>,
    /// Time of the last call of `expire` before a batch.
    begun: Time,
    /// The MTU of each side at the start, in bytes. No change of the MTU exceeds it.
    mtus_max: Vec<usize>,
    /// The wires behind each side of a gateway.
    pub wires_behind: Vec<Vec<usize>>,
}

impl Directions {
    /// New directions without stored packets.
    pub fn new(
        settings: &GatewaySettings,
        secrets: Secrets,
        pool_limit: usize,
        all: Vec<Direction>,
        bug: Option<InjectedBug>,
    ) -> Directions {
        let engine = Engine::new(settings, secrets, || Pool::new(pool_limit));
        let mtus_max = settings.sides.iter().map(|side| side.mtu.into()).collect();
        let (batch, wires_behind) = (Batch::default(), Vec::new());
        Directions { engine, secrets, batch, all, bug, begun: Time::NEVER, mtus_max, wires_behind }
    }

    /// Processes a batch: `frames` for direction `at` that were received on `port` at the same time.
    pub fn take(&mut self, net: &mut Net, at: usize, port: usize, frames: &[Departure], back: Back<'_>) {
        if self.begun != net.now {
            self.begun = net.now;
            self.expire(net, back);
        }
        let Directions { engine, batch, all, .. } = self;
        all[at].take(engine, batch, net, port, frames);
    }

    /// Flushes packets that direction `at` holds only while its port has more frames.
    pub fn idle(&mut self, net: &mut Net, at: usize, back: Back<'_>) {
        let Directions { engine, all, .. } = self;
        all[at].idle(engine, net, back);
        all[at].check(engine, net);
        self.check_sizes(net);
    }

    /// Transmits the output of direction `at` between two batches.
    pub fn pause(&mut self, net: &mut Net, at: usize, back: Back<'_>) {
        let Directions { engine, all, .. } = self;
        all[at].drain(engine, net, back);
        all[at].check(engine, net);
        self.check_sizes(net);
    }

    /// Flushes or drops packets whose deadline has passed.
    pub fn expire(&mut self, net: &mut Net, back: Back<'_>) {
        let Directions { engine, all, bug, .. } = self;
        let holds_on = *bug == Some(InjectedBug::HoldsTooLong);
        let is_late =
            |direction: &Direction| direction.next_deadline(engine).is_some_and(|deadline| deadline <= net.now);
        if holds_on && !all.iter().any(is_late) {
            return;
        }
        engine.expire(net.now);
        for direction in all {
            if engine.output(direction.at).queued_count() > 0 {
                direction.drain(engine, net, back);
            }
        }
    }

    /// Replaces the engine's settings after a link has changed.
    pub fn replace(&mut self, net: &mut Net, settings: &GatewaySettings, back: Back<'_>) {
        let held: Vec<bool> =
            self.all.iter().map(|direction| self.engine.held(direction.at).0 != Tally::NONE).collect();
        self.engine.replace(net.now, settings, self.secrets);
        for (direction, held) in self.all.iter_mut().zip(held) {
            if held {
                // Data held by the old side starts its wait anew, and may have been merged for another link.
                direction.timeout *= 2;
                direction.is_replaced = true;
            }
            direction.drain(&mut self.engine, net, back);
        }
    }

    /// Checks the laws that hold after every event.
    pub fn check(&mut self, net: &mut Net) {
        let Directions { engine, all, .. } = self;
        all.iter_mut().for_each(|direction| direction.check(engine, net));
    }

    /// Checks the laws that hold at the end of a run. Afterwards, all lowered sizes are forgotten.
    pub fn check_end(&mut self, net: &mut Net) {
        let Directions { engine, all, .. } = self;
        all.iter().for_each(|direction| direction.check_end(engine, net));
        let lowered_count = |engine: &Engine| engine.connections().map_or(0, |known| known.lowered_path_count());
        net.lowered_path_count += lowered_count(engine);
        engine.expire(net.now + SIZES_TIMEOUT);
        let lowered = lowered_count(engine);
        let charged = if engine.connections().is_none() { engine.flow_charges() } else { 0 };
        if lowered > 0 || charged > 0 {
            net.breaks(Law::Sizes, || {
                format!(
                    "after {SIZES_TIMEOUT:?} without traffic, {lowered} paths are still lowered, and flows are \
                     charged {charged} bytes for their sizes"
                )
            });
        }
    }

    /// Adds the directions' counts to the coverage.
    pub fn tell(&self, net: &mut Net) {
        self.all.iter().for_each(|direction| direction.tell(&self.engine, net));
    }

    /// Number of packets that were dropped in these directions.
    pub fn ended_count(&self) -> u64 {
        self.all.iter().map(|direction| self.engine.ledger(direction.at).retired_all().packets).sum()
    }

    /// Forgets planned wake-ups whose time has come.
    pub fn woken(&mut self, now: Time) {
        let due = self.all.iter_mut().filter(|direction| direction.planned <= now);
        due.for_each(|direction| direction.planned = Time::NEVER);
    }

    /// Plans a wake-up for each direction whose deadline is earlier than its planned wake-up.
    pub fn plan(&mut self, mut plan: impl FnMut(Time)) {
        for direction in &mut self.all {
            if let Some(deadline) =
                direction.next_deadline(&self.engine).filter(|deadline| *deadline < direction.planned)
            {
                direction.planned = deadline;
                plan(deadline);
            }
        }
    }
}

impl Direction {
    /// Direction `at` of an engine. `timeout` limits the age and `limit` the memory of held packets.
    pub fn new(at: usize, role: Role, wire: usize, timeout: Duration, limit: usize) -> Direction {
        Direction {
            at,
            role,
            wire,
            tells: true,
            intake: None,
            is_early: false,
            bug: None,
            is_replaced: false,
            timeout,
            limit,
            watch: Watch::default(),
            kept: None,
            leaving_count: 0,
            planned: Time::NEVER,
        }
    }

    /// Processes a batch of frames received on `port` at the same time.
    fn take(&mut self, engine: &mut Engine, batch: &mut Batch, net: &mut Net, port: usize, frames: &[Departure]) {
        self.receive(engine, batch, net, port, frames);
        let mut must_refuse = 0;
        for frame in &mut batch.frames {
            let Frame::Ip(packet) = frame else { continue };
            self.watch.came += Tally::new(1, packet.ip().payload_len());
            self.watch.marks.comes(packet.bytes());
            packet.tag = net.now.nanos() + 1;
            acks::Ack::of(packet).into_iter().for_each(|ack| self.watch.acks.comes(ack));
            if !self.is_gateway() {
                packet.decrement_ttl();
            }
            let mut is_repeat = false;
            places_of(net, packet, |flow, at, len| is_repeat |= self.watch.order(flow).comes(at, len) > 0);
            self.watch.repeat_count += u64::from(is_repeat && self.bug != Some(InjectedBug::Repeats));
            // A border may consume an ICMP error, whatever its length.
            let is_report = TooBigReport::read(packet).is_some();
            self.watch.too_big_count += u64::from(is_report);
            must_refuse += u64::from(!is_report && self.must_refuse(engine.side(self.at), packet));
        }
        let count = (batch.split.len() + batch.frames.len()) as u64;
        if count > 1 {
            net.hits.receiving[Receiving::InBatches as usize] += count;
        }
        if let Some(intake) = &mut self.intake {
            // After the notes about the received order, so that the laws of order include the intake.
            let mut evicted = Vec::new();
            batch.frames.drain(..).for_each(|frame| intake.enqueue(frame, FrameSource::Port, &mut evicted));
            intake.dequeue(usize::MAX, usize::MAX, &mut batch.frames);
            assert!(evicted.is_empty(), "a batch fits an intake");
            net.hits.receiving[Receiving::InFairOrder as usize] += batch.frames.len() as u64;
        }
        let refusals = (must_refuse > 0).then(|| self.refusals(engine));
        engine.push(net.now, self.at, batch);
        if let Some(before) = refusals {
            self.check_refused(engine, net, before, [must_refuse, count]);
        }
    }

    /// Receives frames as a port does, with payloads at their predicted places.
    fn receive(
        &mut self,
        engine: &mut Engine,
        batch: &mut Batch,
        net: &mut Net,
        port: usize,
        frames: &[Departure],
    ) {
        // A router decrements the TTL before it handles a packet, so it has no split packets.
        let (is_gateway, is_fair) = (self.is_gateway(), self.intake.is_some());
        let (mut places, pool) = engine.places(self.at);
        let repeats = self.bug == Some(InjectedBug::Repeats);
        let copies = |(number, frame)| {
            iter::repeat_n(frame, if repeats && number % InjectedBug::EVERY == 0 { 2 } else { 1 })
        };
        let numbered = (self.watch.came.packets..).zip(frames.iter().map(Departure::frame));
        for frame in numbered.flat_map(copies) {
            // Law 5 also applies to atomic fragments. Its check needs their complete packets, so they are not
            // split.
            let places = places.as_mut().filter(|_| is_gateway && !is_fair && !is_atomic(frame));
            let split_count = batch.split.len();
            if !batch.receive(frame, LinkType::Ip, Ingress(port as u32), places, pool) {
                self.watch.lost_count += 1;
                net.ended += 1;
            }
            if let Some(split) = batch.split.get_mut(split_count) {
                if let Ok(ip) = Ip::parse(frame) {
                    self.watch.came += Tally::new(1, ip.payload_len());
                }
                self.watch.marks.comes(frame);
                split.mark(net.now.nanos() + 1, false);
            }
        }
    }

    /// The earliest deadline of held packets; `None` if none are held.
    fn next_deadline(&self, engine: &Engine) -> Option<Time> {
        let deadline = engine.next_deadline_of(self.at)?;
        Some(if self.bug == Some(InjectedBug::HoldsTooLong) { deadline.later(TOO_LONG) } else { deadline })
    }

    /// Flushes packets that are held only while the port has more frames.
    fn idle(&mut self, engine: &mut Engine, net: &mut Net, back: Back<'_>) {
        if self.bug != Some(InjectedBug::HoldsTooLong) {
            engine.port_is_idle(net.now, self.at);
        }
        self.drain(engine, net, back);
    }

    /// Transmits all packets in the engine's output.
    fn drain(&mut self, engine: &mut Engine, net: &mut Net, back: Back<'_>) {
        while let Some(leaving) = engine.next(self.at) {
            match leaving {
                Leaving::Forward(packet) => self.forward(engine, net, packet),
                Leaving::IcmpReply(packet) => {
                    match back(self.at, &packet) {
                        Some(wire) if packet.len() <= net.wires[wire].mtu => send(net, wire, &packet),
                        _ => net.ended += 1,
                    }
                    engine.recycle(self.at, packet);
                }
                Leaving::PassThrough(raw, unfit) => {
                    let frame = raw.frame();
                    net.ended += 1;
                    if self.is_gateway() && frame.len() <= net.wires[self.wire].mtu {
                        net.put(self.wire, frame.len(), |room| room.copy_from_slice(frame));
                    }
                    let out = engine.output_mut(self.at);
                    out.ledger.pass(unfit.into(), frame.len());
                    out.pool.give(raw.into_buffer());
                }
            }
        }
        self.emit_kept(engine, net);
        if self.is_replaced {
            self.is_replaced = engine.held(self.at).0 != Tally::NONE;
        }
    }

    /// Whether the node is a gateway, which forwards unparsed packets unchanged.
    fn is_gateway(&self) -> bool {
        matches!(self.role, Role::Border | Role::WideInterface | Role::ReceiveOffload)
    }

    fn emit_kept(&mut self, engine: &mut Engine, net: &mut Net) {
        if let Some(kept) = self.kept.take() {
            self.emit(engine, net, &kept, None);
            engine.recycle(self.at, kept);
        }
    }

    fn forward(&mut self, engine: &mut Engine, net: &mut Net, packet: Packet) {
        self.leaving_count += 1;
        let is_bent = self.leaving_count.is_multiple_of(InjectedBug::EVERY);
        match self.bug.filter(|_| is_bent) {
            Some(InjectedBug::DropsSilently) => return engine.recycle(self.at, packet),
            Some(InjectedBug::LosesUnseen) => {
                self.watch.put_count += packet.wire_count() as u64;
                return engine.recycle(self.at, packet);
            }
            Some(InjectedBug::ForgetsBuffer) => {
                self.emit(engine, net, &packet, None);
                return drop(packet);
            }
            Some(InjectedBug::Reorders) if self.kept.is_none() => {
                self.kept = Some(packet);
                return;
            }
            Some(
                bug @ (InjectedBug::ExceedsMtu
                | InjectedBug::Corrupts
                | InjectedBug::LosesMarks
                | InjectedBug::InventsMarks),
            ) => self.emit(engine, net, &packet, Some(bug)),
            _ => self.emit(engine, net, &packet, None),
        }
        engine.recycle(self.at, packet);
        self.emit_kept(engine, net);
    }

    fn emit(&mut self, engine: &Engine, net: &mut Net, packet: &Packet, bug: Option<InjectedBug>) {
        net.looked(Law::Holding);
        let age = Duration::from_nanos((net.now.nanos() + 1).saturating_sub(packet.tag));
        if packet.tag > 0 && age > self.timeout {
            let (role, timeout) = (self.role.name(), self.timeout);
            net.breaks(Law::Holding, || format!("a {role} held a packet for {age:?}; the limit is {timeout:?}"));
        }
        self.check_ack(net, packet);
        if packet.max_fragment_len().is_some() || !is_whole(packet) {
            self.check_joined(engine.side(self.at), net, packet);
        } else {
            self.check_order(engine, net, packet);
        }
        if self.role == Role::WideInterface && packet.fragmentation.is_some() {
            let from = crate::wire::read(packet.bytes()).and_then(|seen| seen.from);
            if let Some(rules) = from.and_then(|host| net.hosts.get_mut(usize::from(host))) {
                rules.has_cutting_card = true;
            }
        }
        if packet.fragmentation.is_none() && packet.gso.is_none() {
            self.put(net, packet.frame(), &[], bug);
        } else {
            let mut fragments = WirePackets::of(packet);
            while let Some(fragment) = fragments.next() {
                self.put(net, fragment.header, fragment.payload, bug);
            }
        }
        self.check_marks(net);
    }

    /// Checks the length of a packet that the fragment merger has built. If its parts fit the MTU, it must fit the
    /// MTU, too.
    fn check_joined(&self, side: &Side, net: &mut Net, packet: &Packet) {
        let aggregation = &side.aggregation;
        let is_of_joiner = aggregation.merger.is_some() && aggregation.reassembler.is_none() && !self.is_replaced;
        let mtu = usize::from(side.sizing.mtu);
        let fitted = packet.max_fragment_len().is_some_and(|len| len <= mtu);
        if is_of_joiner && fitted && packet.fragmentation.is_some() {
            let (role, len) = (self.role.name(), packet.len());
            net.breaks(Law::Mtu, || format!("a {role} merged fragments to {len} bytes, for a link with MTU {mtu}"));
        }
    }

    fn check_order(&mut self, engine: &Engine, net: &mut Net, packet: &Packet) {
        // Data that a border owes is sent again.
        let resent = engine.ledger(self.at).event(Event::EarlyResent).bytes;
        let mut broken = None;
        let mut count = 0;
        places_of(net, packet, |flow, start, len| {
            let order = self.watch.order(flow);
            order.goes(start, len);
            count += 1;
            if order.late_out > order.late_in + resent {
                broken = Some((flow, *order));
            }
        });
        net.hits.laws[Law::Order as usize - 1] += count;
        if let Some((flow, OrderCheck { late_in, late_out, .. })) = broken {
            let role = self.role.name();
            net.breaks(Law::Order, || {
                format!("flow {flow}: {late_out} bytes left out of order at a {role}, but only {late_in} arrived out of order")
            });
        }
    }

    /// Transmits one packet on the wire.
    #[inline]
    fn put(&mut self, net: &mut Net, header: &[u8], payload: &[u8], bug: Option<InjectedBug>) {
        if wire::has_odd_sum(header) && !net.is_spoilt() {
            let role = self.role.name();
            net.breaks(Law::Integrity, || format!("a header leaves a {role} with the checksum 0xFFFF"));
        }
        let len = header.len() + payload.len();
        let extra = if bug == Some(InjectedBug::ExceedsMtu) { net.wires[self.wire].mtu } else { 0 };
        let Watch { marks, put_count, .. } = &mut self.watch;
        // The wire does not call this for a frame that it loses at once.
        let mut is_written = false;
        net.put(self.wire, len + extra, |room| {
            room[..header.len()].copy_from_slice(header);
            room[header.len()..len].copy_from_slice(payload);
            match bug {
                Some(InjectedBug::Corrupts) => corrupt(room),
                Some(InjectedBug::LosesMarks) => wire::set_mark(room, false),
                Some(InjectedBug::InventsMarks) => wire::set_mark(room, true),
                _ => {}
            }
            marks.goes(room);
            is_written = true;
        });
        if !is_written {
            marks.goes(header);
        }
        *put_count += 1;
    }

    /// Checks that no more marked bytes were transmitted than received.
    #[inline]
    fn check_marks(&self, net: &mut Net) {
        let EcnCounts { came, went, in_fragments } = self.watch.marks;
        if went > came && !in_fragments && !net.is_spoilt() {
            let role = self.role.name();
            net.breaks(Law::Integrity, || {
                format!("{went} marked bytes left a {role}, but only {came} arrived marked")
            });
        }
    }

    /// Checks that every received congestion mark was transmitted, except on packets that were dropped.
    fn check_marks_at_end(&self, engine: &Engine, net: &mut Net) {
        net.looked(Law::Integrity);
        let EcnCounts { came, went, .. } = self.watch.marks;
        let ended = engine.ledger(self.at).retired_all().bytes;
        if went + ended < came && !net.is_spoilt() {
            let role = self.role.name();
            net.breaks(Law::Integrity, || {
                format!("{came} marked bytes arrived at a {role}, but {went} left marked, and {ended} ended there")
            });
        }
    }

    /// Checks the laws that hold after every event.
    fn check(&mut self, engine: &Engine, net: &mut Net) {
        net.looked(Law::Conservation);
        let Direction { at, watch, .. } = self;
        let out = engine.output(*at);
        let (came, received) = (watch.came, out.ledger.received);
        if came != received {
            return net
                .breaks(Law::Conservation, || format!("{came:?} arrived, but the ledger counts {received:?}"));
        }
        let (put, forwarded) = (watch.put_count, out.ledger.forwarded.packets);
        if put != forwarded {
            return net.breaks(Law::Conservation, || {
                format!("{put} packets were sent, but the ledger counts {forwarded} as forwarded")
            });
        }
        watch.since_walk += 1;
        if net.is_thorough || watch.since_walk >= watch.walk_len {
            watch.since_walk = 0;
            watch.walk_len = out.pool.in_use_count();
            if let Err(what) = engine.check(*at) {
                return net.breaks(Law::Conservation, || what);
            }
        }
        self.check_limits(engine, net);
    }

    fn check_limits(&self, engine: &Engine, net: &mut Net) {
        net.looked(Law::Holding);
        let charges = engine.side(self.at).aggregation.charges();
        let limit = self.limit;
        if charges.iter().any(|charged| *charged > limit) {
            net.breaks(Law::Holding, || format!("the stages hold {charges:?} bytes; the limit of each is {limit}"));
        }
        if let Some([charged, limit]) = engine.connections().map(|known| [known.charged(), known.limit()])
            && charged > limit
        {
            net.breaks(Law::Holding, || format!("connections are charged {charged} bytes; the limit is {limit}"));
        }
    }

    /// Checks the laws that hold at the end of a run.
    fn check_end(&self, engine: &Engine, net: &mut Net) {
        let (held, buffers) = engine.held(self.at);
        if held != Tally::NONE || buffers > 0 {
            net.breaks(Law::Holding, || format!("{held:?} in {buffers} buffers are never released"));
        }
        if let Err(what) = engine.check(self.at) {
            net.breaks(Law::Conservation, || what);
        }
        self.check_marks_at_end(engine, net);
        self.check_acks_at_end(engine, net);
    }

    /// Adds the direction's counts to the coverage.
    fn tell(&self, engine: &Engine, net: &mut Net) {
        let role = Role::ALL.iter().position(|role| *role == self.role).unwrap_or(0);
        net.hits.roles[role] += self.watch.came.packets;
        net.hits.add_ledger(engine.ledger(self.at));
        net.hits.add_guesses(engine.placement_stats(self.at));
        if let Some(at) = Reason::ALL.iter().position(|reason| *reason == Reason::NoBuffer) {
            net.hits.reasons[at] += self.watch.lost_count;
        }
    }

    /// Whether this packet must be rejected: it exceeds the MTU, must not be fragmented, and no stage can change
    /// its size.
    fn must_refuse(&self, side: &Side, packet: &Packet) -> bool {
        let (ip, sizing) = (packet.ip(), &side.sizing);
        let mtu = usize::from(sizing.mtu);
        let is_long = packet.len() > mtu && mtu >= ip.mtu_min();
        let is_transit = matches!(sizing.role, EngineRole::Transit);
        let may_be_segmented =
            packet.is_tcp() && (sizing.segment == Toggle::On || side.aggregation.coalescer.is_some());
        let must_stay = ip.dont_fragment || sizing.fragment == Toggle::Off;
        is_long && is_transit && must_stay && ip.fragment.is_none() && !may_be_segmented
    }

    /// Number of packets rejected as too big, and number of ICMP errors sent or suppressed.
    fn refusals(&self, engine: &Engine) -> [u64; 2] {
        let ledger = engine.ledger(self.at);
        let said = [Event::IcmpSent, Event::IcmpForbidden, Event::IcmpRateLimited];
        [ledger.retired(Reason::TooBig).packets, said.iter().map(|event| ledger.event(*event).packets).sum()]
    }

    /// Checks that the batch's `must_refuse` packets were rejected, with as many ICMP errors. If the batch of
    /// `count` packets contains others, these might have been rejected too.
    fn check_refused(&self, engine: &Engine, net: &mut Net, before: [u64; 2], [must_refuse, count]: [u64; 2]) {
        net.looked(Law::Refusal);
        let after = self.refusals(engine);
        let [refused, told] = [after[0] - before[0], after[1] - before[1]];
        let must_tell = if self.tells { must_refuse } else { 0 };
        let is_kept = match must_refuse == count {
            true => (refused, told) == (must_refuse, must_tell),
            false => refused >= must_refuse && told >= must_tell && (self.tells || told == 0),
        };
        if !is_kept {
            let role = self.role.name();
            net.breaks(Law::Refusal, || {
                format!(
                    "a {role} must refuse a packet and tell its sender by ICMP, {must_refuse} times in {count} packets: \
                     refused {refused}, ICMP errors sent {told}"
                )
            });
        }
    }
}

/// Whether the frame is an atomic fragment (RFC 6946).
fn is_atomic(frame: &[u8]) -> bool {
    Ip::parse(frame).is_ok_and(|ip| ip.fragment.is_some_and(|fragment| fragment.offset == 0 && !fragment.more))
}

/// Whether the packet is a complete datagram. Atomic fragments are complete (RFC 6946 section 4). Datagrams
/// released with missing fragments are not.
#[inline]
fn is_whole(packet: &Packet) -> bool {
    packet
        .ip()
        .fragment
        .is_none_or(|fragment| fragment.offset == 0 && !fragment.more && packet.fragmentation.is_none())
}

/// Calls `see` with flow, position and length of the packet's data: message numbers of a GSO packet, or byte
/// offsets of a segment. The two directions of a connection are separate flows.
#[inline]
fn places_of(net: &Net, packet: &Packet, mut see: impl FnMut(usize, u64, u64)) {
    let Some(upper) = packet.ip().upper.filter(|_| is_whole(packet)) else { return };
    let bytes = packet.upper_bytes(upper);
    let ports = [word(bytes, 0), word(bytes, 2)];
    let Some((flow, known)) = flow_of(ports).and_then(|flow| Some((flow, net.flows.get(flow)?))) else { return };
    let Some(end) = known.sender_of(upper.protocol, ports) else { return };
    if net.may_damage && !is_of(known, end, packet) {
        return;
    }
    if upper.protocol == UDP {
        let messages = bytes.get(UDP_LEN..).unwrap_or_default();
        let len = packet.gso.map_or(messages.len(), |gso| gso.segment_len.into());
        for number in messages.chunks(len.max(1)).filter_map(|message| known.message_of(message)) {
            see(2 * flow, number, 1);
        }
    } else if upper.protocol == TCP && bytes.len() > TCP_LEN {
        let len = bytes.len().saturating_sub(usize::from(bytes[12] >> 4) * 4);
        if len > 0 {
            see(2 * flow + end, known.place_of(end, long(bytes, 4)), len as u64);
        }
    }
}

/// Whether the packet's addresses are those of the flow's hosts. A packet with a damaged address belongs to no
/// flow.
fn is_of(flow: &Flow, end: usize, packet: &Packet) -> bool {
    let ends = crate::wire::read(packet.bytes()).map(|seen| [seen.from, seen.to]);
    ends == Some(flow.hosts_of(end).map(Some))
}

fn send(net: &mut Net, wire: usize, packet: &Packet) {
    let bytes = packet.bytes();
    net.put(wire, bytes.len(), |room| room.copy_from_slice(bytes));
}

/// Corrupts a frame but keeps its checksums valid: exchanges two words near the middle.
fn corrupt(frame: &mut [u8]) {
    let at = (frame.len() / 2) & !1;
    if let Some([one, two, three, four]) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        std::mem::swap(one, three);
        std::mem::swap(two, four);
    }
}

/// Time without traffic after which no lowered size is left.
const SIZES_TIMEOUT: Duration = Duration::from_secs(1_201);
/// Additional delay of the injected bug `HoldsTooLong`, in nanoseconds.
const TOO_LONG: u64 = 1_000_000_000;
