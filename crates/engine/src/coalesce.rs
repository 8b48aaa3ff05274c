//! Segments of a flow in, trains out: one header for what came under many (Li; RFC 9293, RFC 7323).
//!
//! An open run per flow; what continues the run is appended to its first packet, whose buffer grows; anything else closes
//! it. In *reversible* mode a segment joins only where its whole header follows from the first one's, so that segmenting
//! the train gives back every packet byte for byte. In *resize* mode only the stream is the same: acknowledgement, window
//! and echo are the last segment's, and segments that come before their turn wait for it (L7, L8).
//!
//! The coalescer never drops and never judges: what does not join passes as it came, after all of its flow that came
//! before it. Nothing is copied but payload, and only that of segments that join.

use crate::held::{Handle, Held, Key};
use crate::ledger::{Event, Tally};
use crate::output::Output;
use crate::prefixes::Prefix;
use crate::secret::Secret;
use core::time::Duration;
use packet::ip::{TCP, UDP};
use packet::{
    Address, Channel, Checksum, Identifications, Ingress, Packet, Part, Sum, Tags, TcpPart, Time, Train, share_headers, tcp,
};
use std::collections::VecDeque;

/// Joins the segments of each flow into trains.
#[derive(Debug)]
pub struct Coalescer {
    flows: Held<FlowKey, Flow>,
    rules: Rules,
    exempt: Vec<Exempt>,
    /// The flows touched last, by the low bits of their ports.
    hints: [Handle; HINT_COUNT],
    /// How many flows hold something, by a hash of their two addresses: a fragment cannot say which of them is its.
    pairs: Box<[u32]>,
    secret: Secret,
}

/// What a coalescer joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only what segmenting gives back byte for byte.
    Reversible,
    /// Whatever leaves the stream the same.
    Resize,
}

/// How long a run waits for its next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Ten times the flow's average interval, from 50 µs to 1 ms (L12 to L14, rel:G18).
    Adaptive,
    /// As long.
    Fixed(Duration),
}

/// How a coalescer works, beside its memory.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What joins.
    pub mode: Mode,
    /// How long runs wait.
    pub hold: Hold,
    /// Longest packet that a run of shorter ones becomes, IP header counted, in bytes. Packets that are longer already
    /// will be cut again, and gather up to what an IP header can say.
    pub len_max: u16,
    /// Are UDP datagrams joined too? Only for ports that carry the segment size beside the packet.
    pub udp: bool,
}

/// A flow that is never coalesced, because its latency matters more (L22): packets from or to these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Addresses; none: all.
    pub prefix: Option<Prefix>,
    /// Port of TCP or UDP; none: all.
    pub port: Option<u16>,
}

/// What makes packets one flow, in one direction: never mixed between VLANs or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    source: Address,
    destination: Address,
    ports: [u16; 2],
    protocol: u8,
    tags: Tags,
    channel: Channel,
    ingress: Ingress,
}

/// What is known of one direction of a connection (L1): found by its first SYN or segment, forgotten by FIN or RST (L5).
#[derive(Debug)]
struct Flow {
    run: Option<Run>,
    /// Segments that came before their turn, by their place in the stream.
    early: VecDeque<(Packet, Part)>,
    early_len: usize,
    /// The sequence number that comes next.
    next_seq: u32,
    /// The average gap between segments, and when the last one came.
    interval: Duration,
    last_arrival: Time,
    /// How long its last run was: the next starts with as much memory.
    usual_len: usize,
    is_exempt: bool,
    is_over: bool,
}

/// Segments in order, in the buffer of the first.
#[derive(Debug)]
struct Run {
    packet: Packet,
    first: Part,
    /// What the last segment said.
    last: Part,
    /// How identifications go on; decided by the second segment.
    ids: Option<Identifications>,
    count: usize,
    longest: u16,
    payload_len: usize,
    payload_sum: Sum,
    came: Tally,
    opened: Time,
}

impl Coalescer {
    /// A coalescer that pins up to `limit` bytes.
    pub fn new(limit: usize, rules: Rules, exempt: Vec<Exempt>, secret: Secret) -> Coalescer {
        let holds: &[Duration] = match &rules.hold {
            Hold::Adaptive => &HOLDS,
            Hold::Fixed(stretch) => core::slice::from_ref(stretch),
        };
        let patiences = [holds, &[IDLE]].concat();
        Coalescer {
            flows: Held::new(limit, &patiences, secret),
            rules,
            exempt,
            hints: [Handle::NONE; HINT_COUNT],
            pairs: vec![0; PAIR_COUNT].into_boxed_slice(),
            secret,
        }
    }

    /// Finds what is held by this key.
    pub fn with_table_key(mut self, key: Secret) -> Coalescer {
        self.flows.set_key(key);
        self.secret = key;
        self
    }

    /// Takes a packet: a segment joins its flow's run or starts one, anything else goes on behind what its flow holds.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        let Some(key) = FlowKey::of(&packet).filter(|key| key.protocol == TCP || self.rules.udp) else {
            return self.pass_flowless(now, packet, out);
        };
        let part = Part::of(&packet).filter(|part| self.takes(&packet, part));
        match (self.seek(&key), part) {
            (Some(at), Some(part)) => self.advance(now, at, packet, part, out),
            (None, Some(part)) => {
                let at = self.open(now, key, part.tcp.map_or(0, |tcp| tcp.seq));
                self.advance(now, at, packet, part, out);
            }
            (at, None) => self.pass(now, key, at, packet, out),
        }
        while let Some(at) = self.flows.surplus() {
            self.give_up(now, at, Event::RunEvicted, out);
        }
    }

    /// Lets go of what has waited long enough.
    pub fn expire(&mut self, now: Time, out: &mut Output) {
        while let Some(at) = self.flows.late(now) {
            self.give_up(now, at, Event::RunLate, out);
        }
    }

    /// Lets go of all that is held: the port has nothing more to give, or the input has ended.
    pub fn release(&mut self, now: Time, out: &mut Output) {
        while let Some(at) = self.flows.oldest_within(self.longest_hold()) {
            self.let_go(now, at, Event::RunAtEnd, out);
        }
    }

    /// When [`expire`](Coalescer::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.flows.next_deadline()
    }

    /// The packets that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        let (mut tally, mut buffers) = (Tally::NONE, 0);
        for flow in self.flows.values() {
            if let Some(run) = &flow.run {
                tally += run.came;
                buffers += 1;
            }
            for (packet, _) in &flow.early {
                tally += Tally::of(packet);
                buffers += 1;
            }
        }
        (tally, buffers)
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.flows.charged()
    }

    /// Flows that are known.
    pub fn flow_count(&self) -> usize {
        self.flows.count()
    }

    fn takes(&self, packet: &Packet, part: &Part) -> bool {
        let can_be_given_back = part.canonical || self.rules.mode == Mode::Resize;
        can_be_given_back && packet.train.is_none() && packet.cut.is_none()
    }

    fn seek(&mut self, key: &FlowKey) -> Option<Handle> {
        let hint = self.hint(key);
        let hinted = *hint;
        if self.flows.recall(hinted, key).is_some() {
            return Some(hinted);
        }
        let at = self.flows.find(key)?;
        *self.hint(key) = at;
        Some(at)
    }

    fn open(&mut self, now: Time, key: FlowKey, next_seq: u32) -> Handle {
        let flow = Flow {
            run: None,
            early: VecDeque::new(),
            early_len: 0,
            next_seq,
            interval: HOLD_MAX / HOLD_INTERVALS,
            last_arrival: Time::ZERO,
            usual_len: 0,
            is_exempt: self.exempt.iter().any(|exempt| exempt.covers(&key)),
            is_over: false,
        };
        let at = self.flows.insert(now, key, flow, FLOW_CHARGE, IDLE);
        *self.hint(&key) = at;
        at
    }

    /// A segment that may join comes to its flow.
    fn advance(&mut self, now: Time, at: Handle, packet: Packet, part: Part, out: &mut Output) {
        let pair = self.pair(&packet);
        let flow = self.flows.at_mut(at);
        let (held_something, waited) = (flow.holds_something(), !flow.early.is_empty());
        flow.arrive(now);
        if flow.is_exempt {
            out.forward(packet);
            return;
        }
        flow.take(now, packet, part, &self.rules, out);
        let (holds_something, waits) = (flow.holds_something(), !flow.early.is_empty());
        let charge = flow.charge();
        let hold = if holds_something { flow.hold(&self.rules) } else { IDLE };
        if flow.is_over {
            self.flows.remove(at);
        } else {
            self.flows.charge(at, charge);
            // A gap has until the deadline of the segment before it, however many come behind it.
            if !(waited && waits) {
                self.flows.touch(now, at, hold);
            }
        }
        self.count_pair(pair, held_something, holds_something);
    }

    /// A packet that joins nothing comes to its flow: everything that came before it leaves before it.
    fn pass(&mut self, now: Time, key: FlowKey, at: Option<Handle>, packet: Packet, out: &mut Output) {
        let says = Says::of(&packet);
        let at = match at {
            Some(at) => {
                self.let_go(now, at, Event::RunPassed, out);
                Some(at)
            }
            None => says.next_seq.filter(|_| says.opens).map(|next_seq| self.open(now, key, next_seq)),
        };
        if let Some(at) = at {
            let flow = self.flows.at_mut(at);
            match says.next_seq {
                _ if says.ends => drop(self.flows.remove(at)),
                Some(next_seq) if says.opens || distance(flow.next_seq, next_seq) > 0 => flow.next_seq = next_seq,
                _ => {}
            }
        }
        out.forward(packet);
    }

    /// A packet that names no flow. A fragment may be of any flow between its two addresses.
    fn pass_flowless(&mut self, now: Time, packet: Packet, out: &mut Output) {
        let pair = self.pair(&packet);
        if packet.ip().fragment.is_some() && self.pairs.get(pair).is_some_and(|holding| *holding > 0) {
            while let Some(at) = self.flows.oldest_within(self.longest_hold()) {
                self.let_go(now, at, Event::RunPassed, out);
            }
        }
        out.forward(packet);
    }

    /// A flow has waited long enough, or its memory is needed: what it holds leaves; next time, it is forgotten.
    fn give_up(&mut self, now: Time, at: Handle, event: Event, out: &mut Output) {
        if self.flows.at_mut(at).holds_something() {
            self.let_go(now, at, event, out);
        } else {
            self.flows.remove(at);
        }
    }

    /// Lets go of what a flow holds.
    fn let_go(&mut self, now: Time, at: Handle, event: Event, out: &mut Output) {
        let flow = self.flows.at_mut(at);
        let Some(pair) = flow.any_packet().map(|packet| pair_of(self.secret, packet)) else { return };
        flow.let_go(now, event, &self.rules, out);
        let is_over = flow.is_over;
        self.count_pair(pair, true, false);
        if is_over {
            self.flows.remove(at);
        } else {
            self.flows.charge(at, FLOW_CHARGE);
            self.flows.touch(now, at, IDLE);
        }
    }

    fn longest_hold(&self) -> Duration {
        match self.rules.hold {
            Hold::Adaptive => HOLD_MAX,
            Hold::Fixed(stretch) => stretch,
        }
    }

    fn hint(&mut self, key: &FlowKey) -> &mut Handle {
        let [source, destination] = key.ports;
        match self.hints.get_mut(usize::from(source ^ destination.rotate_left(3)) % HINT_COUNT) {
            Some(hint) => hint,
            None => panic!("a remainder is below its divisor"),
        }
    }

    fn pair(&self, packet: &Packet) -> usize {
        pair_of(self.secret, packet)
    }

    fn count_pair(&mut self, pair: usize, held: bool, holds: bool) {
        if let Some(count) = self.pairs.get_mut(pair) {
            *count = *count - u32::from(held) + u32::from(holds);
        }
    }
}

impl Flow {
    /// Counts the gap before this segment into the average; one above the ceiling says nothing of the flow's pace (L12,
    /// L14).
    fn arrive(&mut self, now: Time) {
        let gap = now.since(self.last_arrival);
        if gap <= HOLD_MAX {
            self.interval = (self.interval + gap) / 2;
        }
        self.last_arrival = now;
    }

    fn hold(&self, rules: &Rules) -> Duration {
        match rules.hold {
            Hold::Adaptive => (self.interval * HOLD_INTERVALS).clamp(HOLD_MIN, HOLD_MAX),
            Hold::Fixed(stretch) => stretch,
        }
    }

    fn take(&mut self, now: Time, packet: Packet, part: Part, rules: &Rules, out: &mut Output) {
        let ahead = part.tcp.map_or(0, |tcp| distance(self.next_seq, tcp.seq));
        if ahead == 0 {
            self.append(now, packet, part, rules, out);
            self.catch_up(now, rules, out);
        } else if ahead > 0 && rules.mode == Mode::Resize && self.has_room_before_its_turn(ahead, &part) {
            self.wait(now, packet, part, rules, out);
        } else {
            self.let_go(now, Event::RunGap, rules, out);
            self.skip_to(now, packet, part, rules, out);
        }
        if self.is_over {
            self.let_go(now, Event::RunPushed, rules, out);
        }
    }

    /// Appends a segment that comes next to the run, or starts another.
    fn append(&mut self, now: Time, packet: Packet, part: Part, rules: &Rules, out: &mut Output) {
        self.next_seq = part.seq_end().unwrap_or_default();
        self.is_over = part.tcp.is_some_and(|tcp| tcp.is_last());
        let refused = self.run.as_mut().and_then(|run| run.refuses(&packet, &part, rules, self.usual_len, out));
        if let Some(event) = refused {
            self.close(event, rules, out);
        }
        let run = match &mut self.run {
            Some(run) => {
                run.append(&packet, &part, out);
                out.done(packet);
                run
            }
            None => self.run.insert(Run::new(now, packet, part)),
        };
        if let Some(event) = run.is_done(now, rules, self.interval) {
            self.close(event, rules, out);
        }
    }

    /// Takes what waited for its turn.
    fn catch_up(&mut self, now: Time, rules: &Rules, out: &mut Output) {
        while let Some((_, part)) = self.early.front() {
            match part.tcp.map_or(0, |tcp| distance(self.next_seq, tcp.seq)) {
                0 => {}
                ahead if ahead > 0 => break,
                // What came meanwhile overlaps it.
                _ => return self.let_go(now, Event::RunGap, rules, out),
            }
            let Some((packet, part)) = self.pop_early() else { break };
            self.append(now, packet, part, rules, out);
        }
    }

    fn has_room_before_its_turn(&self, ahead: i32, part: &Part) -> bool {
        ahead <= EARLY_SPAN
            && self.early.len() < EARLY_COUNT_MAX
            && self.early_len + usize::from(part.payload_len) <= EARLY_LEN_MAX
    }

    /// Keeps a segment until its turn; the last that came is mostly the last in the stream (L8g).
    fn wait(&mut self, now: Time, packet: Packet, part: Part, rules: &Rules, out: &mut Output) {
        let base = self.next_seq;
        let place = |part: &Part| part.tcp.map_or(0, |tcp| distance(base, tcp.seq));
        let end = |part: &Part| place(part) + i32::from(part.payload_len);
        let at = self.early.iter().rposition(|(_, early)| place(early) < place(&part)).map_or(0, |before| before + 1);
        let before = at.checked_sub(1).and_then(|before| self.early.get(before));
        let overlaps = before.is_some_and(|(_, before)| end(before) > place(&part))
            || self.early.get(at).is_some_and(|(_, after)| end(&part) > place(after));
        if overlaps {
            self.let_go(now, Event::RunGap, rules, out);
            return self.skip_to(now, packet, part, rules, out);
        }
        out.ledger.note(Event::Sorted, Tally::of(&packet));
        self.early_len += usize::from(part.payload_len);
        self.early.insert(at, (packet, part));
    }

    fn pop_early(&mut self) -> Option<(Packet, Part)> {
        let (packet, part) = self.early.pop_front()?;
        self.early_len -= usize::from(part.payload_len);
        Some((packet, part))
    }

    /// With nothing held, takes a segment that is not the next: one from before passes, one from behind a gap starts a run.
    fn skip_to(&mut self, now: Time, packet: Packet, part: Part, rules: &Rules, out: &mut Output) {
        let Some(tcp) = part.tcp else { return out.forward(packet) };
        let ahead = distance(self.next_seq, tcp.seq);
        if ahead < 0 && ahead > -STALE_SPAN {
            if let Some(end) = part.seq_end().filter(|end| distance(self.next_seq, *end) > 0) {
                self.next_seq = end;
            }
            return out.forward(packet);
        }
        self.append(now, packet, part, rules, out);
    }

    /// Lets go of everything, in the stream's order.
    fn let_go(&mut self, now: Time, event: Event, rules: &Rules, out: &mut Output) {
        self.close(event, rules, out);
        while let Some((packet, part)) = self.pop_early() {
            if part.tcp.is_some_and(|tcp| tcp.seq != self.next_seq) {
                self.close(Event::RunGap, rules, out);
                self.skip_to(now, packet, part, rules, out);
            } else {
                self.append(now, packet, part, rules, out);
            }
        }
        self.close(event, rules, out);
    }

    /// Ends the run by this rule.
    fn close(&mut self, event: Event, rules: &Rules, out: &mut Output) {
        let Some(run) = self.run.take() else { return };
        self.usual_len = run.packet.len();
        out.ledger.note(event, Tally::new(1, run.payload_len));
        out.ledger.note(Event::Gathered, run.came);
        run.leave(rules, out);
    }

    fn holds_something(&self) -> bool {
        self.any_packet().is_some()
    }

    fn any_packet(&self) -> Option<&Packet> {
        let early = self.early.front().map(|(packet, _)| packet);
        self.run.as_ref().map(|run| &run.packet).or(early)
    }

    fn charge(&self) -> usize {
        let early: usize = self.early.iter().map(|(packet, _)| packet.pinned_len()).sum();
        FLOW_CHARGE + self.run.as_ref().map_or(0, |run| run.packet.pinned_len()) + early
    }
}

impl Run {
    fn new(now: Time, packet: Packet, part: Part) -> Run {
        let payload_len = usize::from(part.payload_len);
        Run {
            came: Tally::of(&packet),
            packet,
            first: part,
            last: part,
            ids: None,
            count: 1,
            longest: part.payload_len,
            payload_len,
            payload_sum: part.payload_sum,
            opened: now,
        }
    }

    /// Why a segment that comes next in the stream does not join, if it does not. Makes room where it does.
    fn refuses(&mut self, packet: &Packet, part: &Part, rules: &Rules, usual_len: usize, out: &mut Output) -> Option<Event> {
        if !share_headers(&self.packet, &self.last, packet, part) || !self.moves_on(packet, part, rules) {
            return Some(Event::RunChanged);
        }
        if self.is_strict(rules) && part.payload_len > self.first.payload_len {
            return Some(Event::RunUneven);
        }
        let len = self.packet.len() + usize::from(part.payload_len);
        if len > self.len_max(rules) || self.count >= self.count_max(rules) {
            return Some(Event::RunFull);
        }
        if self.packet.room() < usize::from(part.payload_len) {
            match out.pool.lend(len.max(usual_len.min(self.len_max(rules)))) {
                Some(larger) => out.pool.give(self.packet.move_to(larger)),
                None => return Some(Event::RunEvicted),
            }
        }
        None
    }

    /// Do the fields that move along a flow move on as they may?
    fn moves_on(&self, packet: &Packet, part: &Part, rules: &Rules) -> bool {
        let tcp = match (self.last.tcp, part.tcp) {
            (Some(last), Some(tcp)) if self.is_strict(rules) => {
                (tcp.ack, tcp.window, tcp.timestamps) == (last.ack, last.window, last.timestamps)
            }
            (Some(last), Some(tcp)) => never_decreases(&last, &tcp),
            _ => true,
        };
        tcp && (!self.is_strict(rules) || self.next_ids(packet, part).is_some())
    }

    /// How identifications go on with this packet, if they do: all by one, or all the same.
    fn next_ids(&self, packet: &Packet, part: &Part) -> Option<Identifications> {
        let step = part.id.wrapping_sub(self.last.id) & ((1u64 << packet.ip().id_bits()) - 1) as u32;
        let ids = match step {
            0 => Identifications::Stay,
            1 => Identifications::Rise,
            _ => return None,
        };
        self.ids.is_none_or(|decided| decided == ids).then_some(ids)
    }

    fn append(&mut self, packet: &Packet, part: &Part, out: &mut Output) {
        let payload = packet.bytes().get(usize::from(part.payload_at)..).unwrap_or_default();
        self.ids = self.next_ids(packet, part);
        self.packet.append(payload);
        self.payload_sum = self.payload_sum + part.payload_sum.at(self.payload_len);
        self.payload_len += payload.len();
        self.longest = self.longest.max(part.payload_len);
        self.count += 1;
        self.came += Tally::of(packet);
        self.last = *part;
        for half_filled in [&self.packet, packet].into_iter().filter(|it| it.checksum == Checksum::Partial) {
            out.ledger.note(Event::ChecksumFinished, Tally::of(half_filled));
        }
        self.packet.checksum = Checksum::Unverified;
    }

    /// Why nothing more can join, or may wait, if so.
    fn is_done(&self, now: Time, rules: &Rules, interval: Duration) -> Option<Event> {
        let next_len = self.packet.len() + usize::from(self.first.payload_len);
        if self.last.tcp.is_some_and(|tcp| tcp.ends()) {
            Some(Event::RunPushed)
        } else if self.is_strict(rules) && self.last.payload_len < self.first.payload_len {
            Some(Event::RunUneven)
        } else if self.count == 1 && next_len > self.len_max(rules) {
            Some(Event::RunFull)
        } else if now.since(self.opened) + interval > AGE_MAX {
            Some(Event::RunLate)
        } else {
            None
        }
    }

    /// Must segmenting give back what came? A UDP train's datagrams are its sender's in every mode.
    fn is_strict(&self, rules: &Rules) -> bool {
        rules.mode == Mode::Reversible || self.first.tcp.is_none()
    }

    /// Longest packet that the run may become.
    fn len_max(&self, rules: &Rules) -> usize {
        let first_len = usize::from(self.first.payload_at) + usize::from(self.first.payload_len);
        if first_len > usize::from(rules.len_max) { LEN_MAX } else { usize::from(rules.len_max) }
    }

    fn count_max(&self, rules: &Rules) -> usize {
        match self.first.tcp {
            None => DATAGRAMS_MAX,
            Some(_) if self.is_strict(rules) => SEGMENTS_MAX,
            Some(_) => usize::MAX,
        }
    }

    /// Goes on as a train; a run of one as it came.
    fn leave(mut self, rules: &Rules, out: &mut Output) {
        if self.count > 1 {
            let segment_len = if self.is_strict(rules) { self.first.payload_len } else { self.longest };
            let train = Train { segment_len, ids: self.ids.unwrap_or_default() };
            self.packet.seal_train(self.last.tcp.as_ref(), self.payload_sum, train);
            let leaves = Tally::of(&self.packet);
            if leaves != self.came {
                out.ledger.note(Event::Resized, self.came);
                out.ledger.note(Event::Segments, leaves);
            }
        }
        out.forward(self.packet);
    }
}

/// What a packet that joins nothing says about its flow.
#[derive(Clone, Copy, Debug, Default)]
struct Says {
    opens: bool,
    ends: bool,
    next_seq: Option<u32>,
}

impl Says {
    fn of(packet: &Packet) -> Says {
        let Some(segment) = packet.ip().upper.and_then(|upper| {
            let bytes = (upper.protocol == TCP).then_some(packet.upper_bytes(upper))?;
            tcp::Segment::parse(bytes)
        }) else {
            return Says::default();
        };
        let flags = segment.header.flags();
        let (opens, ends) = (flags & tcp::SYN != 0, flags & (tcp::RST | tcp::FIN) != 0);
        let says_something = opens || ends || !segment.payload.is_empty();
        // What is damaged says nothing.
        if !says_something || !matches!(packet.checksum_error().fold(), 0 | 0xFFFF) {
            return Says::default();
        }
        let len = segment.payload.len() as u32 + u32::from(opens);
        Says { opens, ends, next_seq: Some(segment.header.seq.get().wrapping_add(len)) }
    }
}

impl FlowKey {
    /// The flow of a whole TCP or UDP packet.
    fn of(packet: &Packet) -> Option<FlowKey> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| ip.fragment.is_none() && matches!(upper.protocol, TCP | UDP))?;
        let &[s0, s1, d0, d1, ..] = packet.upper_bytes(upper) else { return None };
        let (source, destination) = packet.addresses();
        Some(FlowKey {
            source,
            destination,
            ports: [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])],
            protocol: upper.protocol,
            tags: packet.tags(),
            channel: packet.link_header().channel,
            ingress: packet.ingress(),
        })
    }
}

impl Key for FlowKey {
    fn source(&self) -> Address {
        self.source
    }
}

impl Exempt {
    fn covers(&self, key: &FlowKey) -> bool {
        let by_prefix =
            self.prefix.is_none_or(|prefix| prefix.contains(key.source) || prefix.contains(key.destination));
        by_prefix && self.port.is_none_or(|port| key.ports.contains(&port))
    }
}

/// Acknowledgement and time stamps never go back within a run (R135).
fn never_decreases(last: &TcpPart, next: &TcpPart) -> bool {
    let stamps = match (last.timestamps, next.timestamps) {
        (Some(last), Some(next)) => distance(last.value, next.value) >= 0 && distance(last.echo, next.echo) >= 0,
        _ => true,
    };
    distance(last.ack, next.ack) >= 0 && stamps
}

/// How far `to` lies ahead of `from`, in numbers that wrap around (RFC 9293 section 3.4).
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

fn pair_of(secret: Secret, packet: &Packet) -> usize {
    let (source, destination) = packet.addresses();
    let pair = secret.spread(source.number()) ^ secret.spread(destination.number().rotate_left(64));
    pair as usize % PAIR_COUNT
}

/// Longest packet that an IP header can say, in bytes.
const LEN_MAX: usize = 65_535;
/// Flows whose place is remembered.
const HINT_COUNT: usize = 256;
/// Counters of pairs that hold something.
const PAIR_COUNT: usize = 1_024;
/// What a flow is charged beside the buffers that it holds, in bytes: its slot, its source and their places in tables.
const FLOW_CHARGE: usize = 512;
/// Average intervals that a run waits (L13).
const HOLD_INTERVALS: u32 = 10;
/// Shortest and longest wait for the next segment (L14).
const HOLD_MIN: Duration = Duration::from_micros(50);
/// See [`HOLD_MIN`].
const HOLD_MAX: Duration = Duration::from_millis(1);
/// The waits that there are lines for.
const HOLDS: [Duration; 6] = [
    HOLD_MIN,
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(400),
    Duration::from_micros(700),
    HOLD_MAX,
];
/// How long a flow that holds nothing is remembered; longer than any wait.
const IDLE: Duration = Duration::from_secs(60);
/// How old a run may become: a tenth of the shortest retransmission time-out in use (R126, RFC 6298).
const AGE_MAX: Duration = Duration::from_millis(20);
/// Segments that may wait for their turn, their bytes, and how far ahead in the stream (rel:A37).
const EARLY_COUNT_MAX: usize = 64;
/// See [`EARLY_COUNT_MAX`].
const EARLY_LEN_MAX: usize = 65_536;
/// See [`EARLY_COUNT_MAX`].
const EARLY_SPAN: i32 = 1 << 20;
/// A segment that lies further back is of another connection, whose SYN was not seen: no sender repeats what is so old.
const STALE_SPAN: i32 = 1 << 24;
/// Longest trains, in packets (rel:A38).
const SEGMENTS_MAX: usize = 128;
/// See [`SEGMENTS_MAX`].
const DATAGRAMS_MAX: usize = 64;
