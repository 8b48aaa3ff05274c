//! Segments of a flow in, trains out: one header for what came under many (Li; RFC 9293, RFC 7323).
//!
//! An open run per flow; what continues the run is appended to its first packet, whose buffer grows; anything else closes
//! it. In *reversible* mode a segment joins only where its whole header follows from the first one's, so that segmenting
//! the train gives back every packet byte for byte. In *resize* mode only the stream is the same: acknowledgement, window
//! and echo are the last segment's, and segments that come before their turn wait for it (L7, L8).
//!
//! The coalescer never drops and never judges: what does not join passes as it came, after all of its flow that came
//! before it. Nothing is copied but payload, and only that of segments that join.

use crate::early::Places;
use crate::flow::{FLOW_CHARGE, Flow, HOLD_MAX, HOLD_MIN, Taken};
use crate::held::{Handle, Held, Key};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Exempt, Hold, Mode, Rules, Switch};
use crate::secret::{Secret, TableKey};
use crate::sink::{CopyPayload, PayloadSink};
use core::time::Duration;
use packet::ip::{TCP, UDP};
use packet::{Address, Ends, Frame, Origin, Packet, Part, TcpPart, Time, Version, tcp};

/// Joins the segments of each flow into trains.
#[derive(Debug)]
pub struct Coalescer {
    flows: Held<FlowKey, Flow>,
    /// Flows that hold something since [`moment`](Coalescer::moment), with nothing waiting for its turn, and may have let go
    /// of it: `flows` takes them for idle ones. Most of what is held for a burst is let go before time goes on, and costs no
    /// place in a line.
    ///
    /// Invariant: it is these that are marked so.
    fresh: Vec<Handle>,
    moment: Time,
    /// Where segments of all flows wait for their turn.
    places: Places,
    rules: Rules,
    limit: usize,
    exempt: Vec<Exempt>,
    /// The flows touched last, by their [`Scent`]: eight times as many places as there are flows, so that few share one.
    hints: Box<[Handle]>,
    /// How many flows hold something, by a hash of their two addresses: a fragment cannot say which of them is its.
    pairs: Box<[u32]>,
    secret: Secret,
}

/// A number that packets of one flow share, and those of few others: of the ports and the eight bytes in front of them, which are
/// addresses mostly. Who makes flows that share theirs costs them a search for each packet.
#[derive(Clone, Copy, Debug)]
struct Scent(u32);

/// What makes packets one flow, in one direction: never mixed between VLANs or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowKey {
    ends: Ends,
    version: Version,
    ports: [u16; 2],
    protocol: u8,
    origin: Origin,
}

impl Coalescer {
    /// A coalescer that pins up to `limit` bytes.
    ///
    /// # Panics
    /// Where a run is to wait longer than a flow is remembered.
    pub fn new(limit: usize, rules: Rules, exempt: Vec<Exempt>, secret: Secret) -> Coalescer {
        let holds: &[Duration] = match &rules.hold {
            Hold::Adaptive => &HOLDS,
            Hold::Fixed(stretch) => core::slice::from_ref(stretch),
        };
        assert!(holds.iter().all(|hold| *hold < IDLE), "a flow is remembered longer than its runs wait");
        let patiences = [holds, &[IDLE]].concat();
        Coalescer {
            flows: Held::new(limit, &patiences, secret),
            fresh: Vec::with_capacity(FRESH_MAX),
            moment: Time::ZERO,
            places: Places::new(),
            rules,
            limit,
            exempt,
            hints: no_hints(HINT_COUNT_MIN),
            pairs: vec![0; PAIR_COUNT].into_boxed_slice(),
            secret,
        }
    }

    /// Does it make trains without regard to how long their segments came?
    pub(crate) fn resizes(&self) -> bool {
        self.rules.mode == Mode::Resize
    }

    /// Finds what is held by this key.
    pub fn with_table_key(mut self, key: Secret) -> Coalescer {
        self.flows.set_key(key);
        self.secret = key;
        self
    }

    /// Takes a packet: a segment joins its flow's run or starts one, anything else goes on behind what its flow holds.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        self.push_with(now, packet, out, &mut CopyPayload);
    }

    /// The same, with another way to bring payloads to their places, where segments look like those before them and
    /// their checksums are known to be right.
    #[inline(always)]
    pub fn push_with(&mut self, now: Time, packet: Packet, out: &mut impl Next, sink: &mut impl PayloadSink) {
        self.go_to(now);
        let Some(scent) = Scent::of(&packet) else { return self.push_any(now, packet, out) };
        let hinted = *self.hint(scent);
        if let Some((key, flow)) = self.flows.look(hinted)
            && let Some(tcp) = flow.moves(&packet)
            && packet.origin() == key.origin
        {
            return self.push_alike(now, hinted, packet, tcp, out, sink);
        }
        self.push_sought(now, scent, packet, out, sink);
    }

    /// Prefetches for the frames behind the next one, which stands first: hints, then flows, then their packets, then
    /// the places of payloads.
    #[inline]
    pub fn prefetch(&self, frames: &[Frame], sink: &impl PayloadSink) {
        if self.flows.count() <= NEAR_COUNT {
            return;
        }
        let packet_at = |index: usize| frames.get(index).and_then(Frame::packet);
        if let Some(packet) = packet_at(5 * FORESIGHT) {
            packet.foresee();
        }
        if let Some(packet) = packet_at(4 * FORESIGHT) {
            packet::prefetch(packet.header());
        }
        if let Some(scent) = packet_at(3 * FORESIGHT).and_then(Scent::of) {
            packet::prefetch_value(self.hint_at(scent));
        }
        if let Some(scent) = packet_at(2 * FORESIGHT).and_then(Scent::of) {
            self.flows.foresee(*self.hint_at(scent));
        }
        let flow_of = |packet| self.flows.peek(*self.hint_at(Scent::of(packet)?));
        if let Some(flow) = packet_at(FORESIGHT).and_then(flow_of) {
            flow.foresee();
        }
        if let Some(packet) = packet_at(FORESIGHT / 2)
            && let Some((place, payload_at)) = flow_of(packet).and_then(|flow| flow.foreseen_place())
            && let Some(payload) = packet.bytes().get(payload_at..)
        {
            sink.prefetch(place, payload);
        }
    }

    /// A segment comes to its flow, and looks like others of it.
    #[inline(always)]
    fn push_alike(
        &mut self,
        now: Time,
        at: Handle,
        packet: Packet,
        tcp: TcpPart,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let flow = self.flows.at_mut(at);
        let held_something = flow.holds_something();
        match flow.glance(now, packet, tcp, &self.rules, out, sink) {
            Taken::Joined => {}
            Taken::Changed => self.follow(now, at, held_something, false, out),
            Taken::Not(packet) => self.push_to(now, at, packet, out),
        }
    }

    /// The hint was wrong, or the segment looks unlike others of its flow.
    #[inline(never)]
    fn push_sought(
        &mut self,
        now: Time,
        scent: Scent,
        packet: Packet,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let Some(key) = FlowKey::of(&packet) else { return self.push_any(now, packet, out) };
        let hinted = *self.hint(scent);
        if self.flows.recall(hinted, &key).is_some() {
            return self.push_to(now, hinted, packet, out);
        }
        let Some(at) = self.flows.find(&key) else { return self.push_new(now, key, packet, out) };
        *self.hint(scent) = at;
        match self.flows.at_mut(at).moves(&packet) {
            Some(tcp) => self.push_alike(now, at, packet, tcp, out, sink),
            None => self.push_to(now, at, packet, out),
        }
    }

    fn push_any(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        let Some(key) = FlowKey::of(&packet).filter(|key| key.protocol == TCP || self.rules.udp) else {
            return self.pass_flowless(now, packet, out);
        };
        match self.flows.find(&key) {
            Some(at) => self.push_to(now, at, packet, out),
            None => self.push_new(now, key, packet, out),
        }
    }

    /// Takes a packet of a flow that is not known.
    fn push_new(&mut self, now: Time, key: FlowKey, packet: Packet, out: &mut impl Next) {
        match self.rules.part(&packet) {
            Some(part) => {
                let at = self.open(now, key, &packet, part.tcp.map_or(0, |tcp| tcp.seq));
                self.advance(now, at, packet, part, out);
            }
            None => self.pass(now, key, None, packet, out),
        }
    }

    /// Takes a packet of a flow that is known.
    fn push_to(&mut self, now: Time, at: Handle, packet: Packet, out: &mut impl Next) {
        match self.rules.part(&packet) {
            Some(part) => self.advance(now, at, packet, part, out),
            None => {
                if let Some((key, _)) = self.flows.look(at) {
                    let key = *key;
                    self.pass(now, key, Some(at), packet, out);
                }
            }
        }
    }

    /// Time goes on.
    #[inline]
    fn go_to(&mut self, now: Time) {
        if now != self.moment {
            self.settle();
            self.moment = now;
        }
    }

    /// Has `flows` know what is fresh.
    fn settle(&mut self) {
        let mut fresh = core::mem::take(&mut self.fresh);
        fresh.drain(..).for_each(|at| self.settle_one(at));
        self.fresh = fresh;
    }

    fn settle_one(&mut self, at: Handle) {
        let flow = self.flows.at_mut(at);
        flow.is_fresh = false;
        let (holds_something, pair) = (flow.holds_something(), flow.pair);
        self.line_up(self.moment, at, false);
        self.count_pair(pair, false, holds_something);
    }

    /// Does nothing have to be given up for memory, even if all that is fresh, and `more` flows, held as much as they can?
    fn has_room_for(&self, more: usize) -> bool {
        self.flows.charged() + (self.fresh.len() + more) * FRESH_LEN_MAX <= self.limit
    }

    /// Gives up what is above the limit.
    fn keep_limit(&mut self, now: Time, out: &mut impl Next) {
        if self.has_room_for(0) {
            return;
        }
        self.settle();
        while let Some(at) = self.flows.surplus() {
            self.give_up(now, at, Event::RunEvicted, out);
        }
    }

    /// Lets go of what has waited long enough.
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        self.go_to(now);
        self.settle();
        while let Some(at) = self.flows.late(now) {
            self.give_up(now, at, Event::RunLate, out);
        }
    }

    /// Lets go of all that is held: the port has nothing more to give, or the input has ended.
    pub fn release(&mut self, now: Time, out: &mut impl Next) {
        self.go_to(now);
        while let Some(at) = self.flows.oldest_within(self.longest_hold()) {
            self.let_go(now, at, Event::RunAtEnd, out);
        }
        let mut fresh = core::mem::take(&mut self.fresh);
        for at in fresh.drain(..) {
            self.let_go_fresh(now, at, out);
        }
        self.fresh = fresh;
    }

    fn let_go_fresh(&mut self, now: Time, at: Handle, out: &mut impl Next) {
        let flow = self.flows.at_mut(at);
        flow.close(Event::RunAtEnd, &self.rules, out);
        flow.is_fresh = false;
        if flow.idle_since != now {
            flow.idle_since = now;
            self.flows.touch(now, at, IDLE);
        }
    }

    /// When [`expire`](Coalescer::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        let fresh = self.fresh_flows().map(|flow| self.moment + self.patience(flow));
        fresh.chain(self.flows.next_deadline()).min()
    }

    fn fresh_flows(&self) -> impl Iterator<Item = &Flow> {
        let flows = self.fresh.iter().filter_map(|at| self.flows.peek(*at));
        flows.filter(|flow| flow.holds_something())
    }

    /// How long `flows` would have this one wait.
    fn patience(&self, flow: &Flow) -> Duration {
        let hold = flow.hold(&self.rules);
        match self.rules.hold {
            Hold::Adaptive => HOLDS.into_iter().rfind(|patience| *patience <= hold).unwrap_or(HOLD_MIN),
            Hold::Fixed(_) => hold,
        }
    }

    /// The packets that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        let (mut tally, mut buffers) = (Tally::NONE, 0);
        for (held, count) in self.flows.values().map(|flow| flow.held(&self.places)) {
            tally += held;
            buffers += count;
        }
        (tally, buffers)
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.flows.charged() + self.fresh_flows().map(|flow| flow.charge(&self.places) - FLOW_CHARGE).sum::<usize>()
    }

    /// Flows that are known.
    pub fn flow_count(&self) -> usize {
        self.flows.count()
    }

    fn open(&mut self, now: Time, key: FlowKey, packet: &Packet, next_seq: u32) -> Handle {
        let is_exempt = self.exempt.iter().any(|exempt| covers(exempt, &key));
        let flow = Flow::new(now, next_seq, pair_of(self.secret, packet), is_exempt);
        let at = self.flows.insert(now, key, flow, FLOW_CHARGE, IDLE);
        if 8 * self.flows.count() > self.hints.len() && self.hints.len() < HINT_COUNT_MAX {
            self.hints = no_hints(2 * self.hints.len());
        }
        if let Some(scent) = Scent::of(packet) {
            *self.hint(scent) = at;
        }
        at
    }

    /// A segment that may join comes to its flow.
    fn advance(&mut self, now: Time, at: Handle, packet: Packet, part: Part, out: &mut impl Next) {
        let flow = self.flows.at_mut(at);
        let (held_something, waited) = (flow.holds_something(), flow.waits());
        flow.arrive(now);
        if flow.is_exempt {
            out.forward(packet);
            return self.keep_limit(now, out);
        }
        flow.take(now, packet, part, &self.rules, &mut self.places, out);
        self.follow(now, at, held_something, waited, out);
    }

    /// A flow has taken a segment: when is it late now, and what is it charged?
    fn follow(&mut self, now: Time, at: Handle, held_something: bool, waited: bool, out: &mut impl Next) {
        let flow = self.flows.at_mut(at);
        let (holds_something, waits, pair) = (flow.holds_something(), flow.waits(), flow.pair);
        let (is_over, was_fresh) = (flow.is_over, flow.is_fresh);
        if was_fresh && !is_over && !waits {
            return;
        }
        self.forget_fresh(at);
        let held_something = held_something && !was_fresh;
        if is_over {
            self.remove(at);
        } else if !held_something && holds_something && !waits && self.may_be_fresh() {
            self.flows.at_mut(at).is_fresh = true;
            return self.fresh.push(at);
        } else {
            self.line_up(now, at, waited && waits);
        }
        self.count_pair(pair, held_something, holds_something);
        self.keep_limit(now, out);
    }

    /// Has `flows` know when a flow is late now, and what it is charged. A gap has until the deadline that the first segment
    /// behind it set, however many come after that.
    fn line_up(&mut self, now: Time, at: Handle, waits_on: bool) {
        let flow = self.flows.at_mut(at);
        let charge = flow.charge(&self.places);
        let (hold, idle_since) =
            if flow.holds_something() { (flow.hold(&self.rules), Time::NEVER) } else { (IDLE, now) };
        if !waits_on {
            flow.idle_since = idle_since;
            self.flows.touch(now, at, hold);
        }
        self.flows.charge(at, charge);
    }

    fn forget(&mut self, at: Handle) {
        self.forget_fresh(at);
        self.remove(at);
    }

    /// Removes a flow, which has given its places back.
    fn remove(&mut self, at: Handle) {
        let flow = self.flows.remove(at);
        assert!(!flow.holds_something(), "a flow lets go of all that it holds before it is removed");
    }

    /// A flow is fresh no longer.
    fn forget_fresh(&mut self, at: Handle) {
        if core::mem::take(&mut self.flows.at_mut(at).is_fresh) {
            self.fresh.retain(|fresh| *fresh != at);
        }
    }

    /// May another flow hold something without the knowledge of `flows`? None that may be late at once.
    fn may_be_fresh(&mut self) -> bool {
        if self.fresh.len() >= FRESH_MAX {
            self.settle();
        }
        self.rules.hold != Hold::Fixed(Duration::ZERO) && self.has_room_for(1)
    }

    /// A packet that joins nothing comes to its flow: everything that came before it leaves before it.
    fn pass(&mut self, now: Time, key: FlowKey, at: Option<Handle>, packet: Packet, out: &mut impl Next) {
        let says = Says::of(&packet);
        if let Some(at) = at {
            self.let_go(now, at, Event::RunPassed, out);
        }
        // What waited may have ended the flow.
        let at = match at.filter(|at| self.flows.recall(*at, &key).is_some()) {
            Some(at) => Some(at),
            None => says.next_seq.filter(|_| says.opens).map(|next_seq| self.open(now, key, &packet, next_seq)),
        };
        if let Some(at) = at {
            match says.next_seq {
                _ if says.ends => self.forget(at),
                Some(next_seq) => self.flows.at_mut(at).hear(next_seq, says.opens),
                None => {}
            }
        }
        out.forward(packet);
        self.keep_limit(now, out);
    }

    /// A packet that names no flow. A fragment may be of any flow between its two addresses.
    fn pass_flowless(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        if packet.ip().fragment.is_some() && self.holds_something_of(&packet) {
            while let Some(at) = self.flows.oldest_within(self.longest_hold()) {
                self.let_go(now, at, Event::RunPassed, out);
            }
        }
        out.forward(packet);
    }

    /// A flow has waited long enough, or its memory is needed: what it holds leaves; next time, it is forgotten.
    fn give_up(&mut self, now: Time, at: Handle, event: Event, out: &mut impl Next) {
        if self.flows.at_mut(at).holds_something() {
            self.let_go(now, at, event, out);
        } else {
            self.forget(at);
        }
    }

    /// Lets go of what a flow holds.
    fn let_go(&mut self, now: Time, at: Handle, event: Event, out: &mut impl Next) {
        let flow = self.flows.at_mut(at);
        if !flow.holds_something() {
            return;
        }
        flow.let_go(now, event, &self.rules, &mut self.places, out);
        let (is_over, is_fresh, pair) = (flow.is_over, flow.is_fresh, flow.pair);
        if !is_fresh {
            flow.idle_since = now;
            self.count_pair(pair, true, false);
        }
        if is_over {
            self.remove(at);
        } else if !is_fresh {
            self.flows.charge(at, FLOW_CHARGE);
            self.flows.touch(now, at, IDLE);
        }
    }

    /// Is anything held between the addresses of this packet?
    fn holds_something_of(&mut self, packet: &Packet) -> bool {
        self.settle();
        let pair = usize::from(pair_of(self.secret, packet));
        self.pairs.get(pair).is_some_and(|holding| *holding > 0)
    }

    fn longest_hold(&self) -> Duration {
        match self.rules.hold {
            Hold::Adaptive => HOLD_MAX,
            Hold::Fixed(stretch) => stretch,
        }
    }

    #[inline(always)]
    fn hint_at(&self, Scent(scent): Scent) -> &Handle {
        match self.hints.get(scent as usize & (self.hints.len() - 1)) {
            Some(hint) => hint,
            None => panic!("there is a power of two of hints"),
        }
    }

    #[inline(always)]
    fn hint(&mut self, Scent(scent): Scent) -> &mut Handle {
        let at = scent as usize & (self.hints.len() - 1);
        match self.hints.get_mut(at) {
            Some(hint) => hint,
            None => panic!("there is a power of two of hints"),
        }
    }

    fn count_pair(&mut self, pair: u16, held: bool, holds: bool) {
        if let Some(count) = self.pairs.get_mut(usize::from(pair)) {
            *count = *count - u32::from(held) + u32::from(holds);
        }
    }
}

impl Rules {
    /// The part of a packet that may wait for others, or join them. What stands for many is not looked at: a train passes
    /// without its payload being summed.
    fn part(&self, packet: &Packet) -> Option<Part> {
        if packet.is_single() { Part::of(packet).filter(|part| self.take(packet, part)) } else { None }
    }

    /// May this packet, of which this is the part, wait for others, or join them?
    #[inline]
    pub(crate) fn take(&self, packet: &Packet, part: &Part) -> bool {
        let can_be_given_back = part.canonical || self.mode == Mode::Resize;
        let may_be_so_long = packet.len() <= usize::from(self.len_max) || self.longer == Switch::On;
        // Of what came in pieces of IPv6 a longer packet would not know the identifications, under which it may have to leave.
        let keeps_its_number = packet.longest_piece().is_none() || packet.ip().is_numbered();
        can_be_given_back && may_be_so_long && keeps_its_number && packet.is_single()
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
        Some(FlowKey {
            ends: packet.ends(),
            version: ip.version,
            ports: [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])],
            protocol: upper.protocol,
            origin: packet.origin(),
        })
    }

    fn destination(&self) -> Address {
        self.ends.destination(self.version)
    }
}

impl Key for FlowKey {
    fn source(&self) -> Address {
        self.ends.source(self.version)
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let [e0, e1, e2, e3] = self.ends.words();
        let [source, destination] = self.ports.map(u64::from);
        let [origin, port] = self.origin.words();
        let what = source | destination << 16 | u64::from(self.protocol) << 32 | (self.version as u64) << 40;
        table.hash([e0, e1, e2, e3, what, origin, port, 0])
    }
}

/// Is this flow never coalesced?
fn covers(exempt: &Exempt, key: &FlowKey) -> bool {
    let by_prefix =
        exempt.prefix.is_none_or(|prefix| prefix.contains(key.source()) || prefix.contains(key.destination()));
    by_prefix && exempt.port.is_none_or(|port| key.ports.contains(&port))
}

impl Scent {
    /// The scent of a TCP packet's flow; of a fragment, or of a packet cut short, that of another.
    #[inline(always)]
    fn of(packet: &Packet) -> Option<Scent> {
        let upper = packet.ip().upper.filter(|upper| upper.protocol == TCP)?;
        let front = packet.bytes().get(usize::from(upper.at).checked_sub(8)?..)?.first_chunk::<12>()?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, p0, p1, p2, p3] = *front;
        let addresses = u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let ports = u64::from(u32::from_ne_bytes([p0, p1, p2, p3]));
        // The upper half of a product depends on every bit (Fibonacci hashing).
        Some(Scent(((addresses.rotate_left(17) ^ ports).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32))
    }
}

fn no_hints(count: usize) -> Box<[Handle]> {
    vec![Handle::NONE; count].into_boxed_slice()
}

fn pair_of(secret: Secret, packet: &Packet) -> u16 {
    let (source, destination) = packet.addresses();
    let pair = secret.spread(source.number()) ^ secret.spread(destination.number().rotate_left(64));
    (pair % PAIR_COUNT as u64) as u16
}

/// Flows whose place is remembered, at least and at most; powers of two.
const HINT_COUNT_MIN: usize = 1 << 12;
/// See [`HINT_COUNT_MIN`].
const HINT_COUNT_MAX: usize = 1 << 20;
/// Flows that may be fresh at once.
const FRESH_MAX: usize = 128;
/// Packets between a wish and its use, so that what is wished for comes from far memory meanwhile.
const FORESIGHT: usize = 4;
/// Flows that stay near the processor without being wished for.
const NEAR_COUNT: usize = 128;
/// What one of them may be charged beyond an idle flow, in bytes: the largest buffer.
const FRESH_LEN_MAX: usize = packet::HEADROOM + 65_536 + 65_536 / 64;
/// Counters of pairs that hold something.
const PAIR_COUNT: usize = 1_024;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;
    use fastrand::Rng;
    use packet::ip::pseudo_sum;
    use packet::{Checksum, Frame, Ingress, Medium, Pool, Sum};

    #[test]
    fn a_glance_and_what_is_fresh_change_nothing_that_can_be_seen() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let rules = Rules {
                mode: *random.choice(&[Mode::Reversible, Mode::Resize]).unwrap(),
                hold: *random.choice(&[Hold::Adaptive, Hold::Fixed(Duration::from_micros(300))]).unwrap(),
                len_max: *random.choice(&[1_000, 4_000, 65_535]).unwrap(),
                longer: *random.choice(&[Switch::Off, Switch::On]).unwrap(),
                udp: false,
            };
            let mut glancing = Half::new(&rules, false);
            let mut close = Half::new(&rules, true);
            let mut talks: Vec<Talk> = (0..random.usize(1..8)).map(|port| Talk::new(port, &mut random)).collect();
            let mut now = Time::from_nanos(1_000_000_000);
            for step in 0..400 {
                if random.u8(..5) == 0 {
                    now = now + Duration::from_micros(*random.choice(&[1, 7, 40, 400, 3_000]).unwrap());
                }
                let what = random.u8(..40);
                let at = random.usize(..talks.len());
                let talk = &mut talks[at];
                let frame = talk.say(&mut random);
                let checksum = match random.u8(..10) {
                    0 => Checksum::Partial,
                    1..4 => Checksum::Unverified,
                    _ => Checksum::Verified,
                };
                // Some came in pieces.
                let came_as = [None, None, None, None, None, Some(300), Some(300), Some(516)][random.usize(..8)];
                let [one, other] = [&mut glancing, &mut close].map(|half| {
                    half.came_as = came_as;
                    half.step(now, what, &frame, checksum)
                });
                assert!(one == other, "seed {seed}, step {step}: {}", difference(&one, &other));
                let (early, late) = (glancing.coalescer.next_deadline(), close.coalescer.next_deadline());
                let holds_something = close.coalescer.held().1 > 0;
                assert!(
                    if holds_something { early == late } else { early <= late },
                    "seed {seed}, step {step}: {early:?}, {late:?}"
                );
            }
            let [one, other] = [&mut glancing, &mut close].map(|half| half.step(now, 0, &[], Checksum::Verified));
            assert!(one == other, "seed {seed}, at the end: {}", difference(&one, &other));
            assert_eq!(glancing.coalescer.charged(), FLOW_CHARGE * glancing.coalescer.flow_count());
            assert!(glancing.coalescer.pairs.iter().all(|holding| *holding == 0), "seed {seed}");
            assert_eq!(glancing.out.pool.lent_count(), 0, "seed {seed}");
        }
    }

    #[test]
    fn segments_that_look_alike_are_brought_to_their_places_by_who_was_told_to() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let mut talk = Talk::new(3, &mut random);
        let mut read = || {
            let frame = talk.frame(500, 0x10, 30, &mut random);
            (talk.seq, talk.id) = (talk.seq.wrapping_add(500), talk.id + 1);
            let mut packet = Frame::copy(&frame, Medium::Ip, Ingress(0), &mut half.out.pool).unwrap();
            packet.checksum = Checksum::Verified;
            packet
        };
        let packets: Vec<Packet> = (0..40).map(|_| read()).collect();
        let mut laid_count = 0;
        let mut sink = |place: &mut [u8], payload: &[u8]| {
            place.copy_from_slice(payload);
            laid_count += 1;
        };
        for packet in packets {
            half.coalescer.push_with(Time::from_nanos(1), packet, &mut half.out, &mut sink);
        }
        // The first one starts the run.
        assert_eq!(laid_count, 39);
    }

    #[test]
    fn there_is_a_place_to_remember_every_flow_by() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let talk = Talk::new(3, &mut random);
        let mut frame = talk.frame(100, 0x10, 30, &mut random);
        for port in 0..5_000_u16 {
            frame[20..22].copy_from_slice(&port.to_be_bytes());
            half.push(Time::from_nanos(1), &frame, Checksum::Verified);
            half.drain();
            assert!(half.coalescer.hints.len() >= 8 * half.coalescer.flow_count());
        }
        assert_eq!(half.coalescer.flow_count(), 5_000);
        let steps = half.coalescer.flows.longest_search();
        assert!(steps < 80, "a flow is found after {steps} others");
    }

    #[test]
    fn a_flow_is_remembered_for_a_minute_after_it_was_heard_however_it_was_let_go() {
        let mut random = Rng::with_seed(1);
        let mut half = Half::new(&usual(), false);
        let mut talk = Talk::new(3, &mut random);
        let mut now = Time::from_nanos(1);
        for _ in 0..4 {
            now = now + IDLE - Duration::from_secs(1);
            half.coalescer.expire(now, &mut half.out);
            let frame = talk.frame(500, 0x10, 30, &mut random);
            (talk.seq, talk.id) = (talk.seq.wrapping_add(500), talk.id + 1);
            half.push(now, &frame, Checksum::Verified);
            half.coalescer.release(now, &mut half.out);
            assert_eq!(half.drain().len(), 1);
            assert_eq!(half.coalescer.next_deadline(), Some(now + IDLE));
        }
        half.coalescer.expire(now + IDLE - Duration::from_nanos(1), &mut half.out);
        assert_eq!(half.coalescer.flow_count(), 1);
        half.coalescer.expire(now + IDLE, &mut half.out);
        assert_eq!(half.coalescer.flow_count(), 0);
    }

    #[test]
    fn flows_of_one_pair_of_hosts_differ_in_hash_and_scent_by_either_port() {
        let mut random = Rng::with_seed(1);
        let mut out = Output::new(Pool::new(1 << 20), None);
        let frame = Talk::new(3, &mut random).frame(100, 0x10, 30, &mut random);
        let table = TableKey::new(Secret::new(5));
        let mut look = |source: u16, destination: u16| {
            let mut frame = frame.clone();
            frame[20..22].copy_from_slice(&source.to_be_bytes());
            frame[22..24].copy_from_slice(&destination.to_be_bytes());
            let packet = Frame::copy(&frame, Medium::Ip, Ingress(0), &mut out.pool).unwrap();
            let looks = (FlowKey::of(&packet).unwrap().hash(&table), Scent::of(&packet).unwrap().0);
            out.done(packet);
            looks
        };
        let (hash, scent) = look(1, 1);
        for port in (1..16).map(|bit| 1 | 1 << bit) {
            for (other_hash, other_scent) in [look(port, 1), look(1, port)] {
                assert!(hash != other_hash && scent != other_scent, "{port}");
            }
        }
    }

    fn usual() -> Rules {
        Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max: 65_535, longer: Switch::Off, udp: false }
    }

    #[test]
    fn pairs_are_spread_over_all_counters_and_each_direction_is_another() {
        let mut out = Output::new(Pool::new(1 << 20), None);
        let mut counter_of = |source: u8, destination: u8| {
            let mut frame =
                vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, source, 10, 0, 0, destination];
            let checksum = Sum::of(&frame).checksum();
            frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            let packet = Frame::copy(&frame, Medium::Ip, Ingress(0), &mut out.pool).unwrap();
            let counter = pair_of(Secret::new(5), &packet);
            out.done(packet);
            usize::from(counter)
        };
        let (mut counts, mut alike_count) = ([0; PAIR_COUNT], 0);
        for (source, destination) in
            (0..64).flat_map(|source| (64..128).map(move |destination| (source, destination)))
        {
            counts[counter_of(source, destination)] += 1;
            alike_count += usize::from(counter_of(source, destination) == counter_of(destination, source));
        }
        // Of 4,096 drawn pairs a counter has four in the mean, and one in 55 has none.
        assert!(counts.iter().filter(|count| **count == 0).count() < 60, "{counts:?}");
        assert!(counts.iter().all(|count| *count < 20), "{counts:?}");
        assert!(alike_count < 20, "{alike_count} pairs are counted with their other direction");
    }

    #[test]
    fn every_place_is_given_back_whichever_way_a_flow_goes() {
        let mut seen = [0; 5];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let rules = Rules {
                mode: Mode::Resize,
                hold: *random.choice(&[Hold::Adaptive, Hold::Fixed(Duration::from_micros(300))]).unwrap(),
                len_max: *random.choice(&[1_000, 65_535]).unwrap(),
                longer: Switch::Off,
                udp: false,
            };
            // Room for a few flows and packets, or for all.
            let limit = *random.choice(&[20_000, 1 << 30]).unwrap();
            let mut coalescer = Coalescer::new(limit, rules, Vec::new(), Secret::new(5));
            let mut out = Output::new(Pool::new(1 << 28), None);
            let mut talks: Vec<Talk> = (0..random.usize(1..8)).map(|port| Talk::new(port, &mut random)).collect();
            let mut frames: Vec<Vec<u8>> = talks.iter_mut().map(|talk| talk.say(&mut random)).collect();
            let mut now = Time::from_nanos(1_000_000_000);
            let mut most = 0;
            for _ in 0..600 {
                if random.u8(..8) == 0 {
                    now = now + Duration::from_micros(*random.choice(&[1, 40, 400, 3_000, 70_000_000]).unwrap());
                }
                match random.u8(..60) {
                    0 => coalescer.release(now, &mut out),
                    1..6 => coalescer.expire(now, &mut out),
                    _ => {
                        // What comes waits too, if only until something is given up for it.
                        most = most.max(coalescer.early_count() + 1);
                        frames.push(random.choice(&mut talks).unwrap().say(&mut random));
                        let frame = frames.swap_remove(random.usize(..frames.len()));
                        let packet = Frame::copy(&frame, Medium::Ip, Ingress(0), &mut out.pool).unwrap();
                        coalescer.push(now, packet, &mut out);
                    }
                }
                while let Some(packet) = out.next() {
                    out.done(packet);
                }
                let (count, free) = (coalescer.places.count(), coalescer.places.free_count());
                assert_eq!(count - free, coalescer.early_count(), "seed {seed}");
                assert!(count <= most, "seed {seed}: {count} places for {most} segments");
            }
            coalescer.release(now, &mut out);
            assert_eq!(coalescer.places.free_count(), coalescer.places.count(), "seed {seed}");
            let ends = [Event::Sorted, Event::RunEvicted, Event::RunLate, Event::RunAtEnd, Event::RunPushed];
            for (seen, event) in seen.iter_mut().zip(ends) {
                *seen += out.ledger.event(event).packets;
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "each end is seen: {seen:?}");
    }

    #[test]
    fn a_batch_is_taken_as_its_packets_are() {
        for seed in 0..60 {
            let mut random = Rng::with_seed(seed);
            let rules = Rules {
                mode: *random.choice(&[Mode::Reversible, Mode::Resize]).unwrap(),
                hold: *random.choice(&[Hold::Adaptive, Hold::Fixed(Duration::from_micros(300))]).unwrap(),
                len_max: *random.choice(&[1_000, 4_000]).unwrap(),
                longer: Switch::Off,
                udp: false,
            };
            let mut one_by_one = Half::new(&rules, false);
            let mut at_once = Half::new(&rules, false);
            // Sometimes more than stay near.
            let flows: usize = *random.choice(&[3, 2 * NEAR_COUNT]).unwrap();
            let mut talks: Vec<Talk> = (0..flows).map(|port| Talk::new(port, &mut random)).collect();
            let mut now = Time::from_nanos(1_000_000_000);
            for step in 0..40 {
                now = now + Duration::from_micros(*random.choice(&[1, 40, 400, 3_000]).unwrap());
                let frames: Vec<Vec<u8>> =
                    (0..random.usize(1..100)).map(|_| talks[random.usize(..flows)].say(&mut random)).collect();
                let checksum = *random.choice(&[Checksum::Unverified, Checksum::Verified]).unwrap();
                let said =
                    [one_by_one.take(now, &frames, checksum, false), at_once.take(now, &frames, checksum, true)];
                let [one, other] = &said;
                assert!(one == other, "seed {seed}, step {step}: {}", difference(one, other));
            }
        }
    }

    /// Where two descriptions part.
    fn difference(one: &str, other: &str) -> String {
        let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
        let end = |text: &str| text.chars().skip(at.saturating_sub(40)).take(200).collect::<String>();
        format!("at {at}: {} instead of {}", end(one), end(other))
    }

    impl Coalescer {
        /// Segments that wait for their turn, counted anew.
        fn early_count(&self) -> usize {
            self.flows.values().map(Flow::early_count).sum()
        }
    }

    /// One of the two that are compared.
    struct Half {
        coalescer: Coalescer,
        out: Output,
        /// Does it look at everything closely, and line everything up at once?
        is_close: bool,
        /// The longest piece of what is pushed, where it came in pieces.
        came_as: Option<usize>,
    }

    impl Half {
        fn new(rules: &Rules, is_close: bool) -> Half {
            let coalescer = Coalescer::new(1 << 30, rules.clone(), Vec::new(), Secret::new(5));
            Half { coalescer, out: Output::new(Pool::new(1 << 28), None), is_close, came_as: None }
        }

        /// All that can be seen of a step.
        fn step(&mut self, now: Time, what: u8, frame: &[u8], checksum: Checksum) -> String {
            match what {
                0 => self.coalescer.release(now, &mut self.out),
                1 => self.coalescer.expire(now, &mut self.out),
                _ => self.push(now, frame, checksum),
            }
            if self.is_close {
                self.coalescer.settle();
            }
            let gone = self.drain();
            self.tell(gone)
        }

        /// All that can be seen of packets that come one by one, or at once.
        fn take(&mut self, now: Time, frames: &[Vec<u8>], checksum: Checksum, at_once: bool) -> String {
            self.coalescer.expire(now, &mut self.out);
            let mut gone = self.drain();
            if !at_once {
                for frame in frames {
                    self.push(now, frame, checksum);
                    gone.extend(self.drain());
                }
                return self.tell(gone);
            }
            let pool = &mut self.out.pool;
            let mut read = |frame: &Vec<u8>| {
                let mut packet = Frame::copy(frame, Medium::Ip, Ingress(0), pool).unwrap();
                packet.checksum = checksum;
                packet
            };
            let batch: Vec<Frame> = frames.iter().map(|frame| Frame::Ip(read(frame))).collect();
            let mut batch = batch.into_iter();
            while let [_, ..] = batch.as_slice() {
                self.coalescer.prefetch(batch.as_slice(), &CopyPayload);
                if let Some(Frame::Ip(packet)) = batch.next() {
                    self.coalescer.push(now, packet, &mut self.out);
                }
                gone.extend(self.drain());
            }
            self.tell(gone)
        }

        /// What went out: ports, and all that can be seen of it.
        fn drain(&mut self) -> Vec<(Vec<u8>, String)> {
            let mut gone = Vec::new();
            while let Some(packet) = self.out.next() {
                let ports = packet.bytes().get(20..24).unwrap_or_default().to_vec();
                let more = (packet.train, packet.checksum, packet.is_as_received(), packet.longest_piece());
                gone.push((ports, format!("{:02x?} {more:?}", packet.frame())));
                self.out.done(packet);
            }
            gone
        }

        fn tell(&self, mut gone: Vec<(Vec<u8>, String)>) -> String {
            // Which flow is let go first is nobody's business.
            gone.sort_by(|(one, _), (other, _)| one.cmp(other));
            let it = &self.coalescer;
            let counts = (it.held(), it.charged(), it.flow_count(), self.out.pool.lent_count());
            let gone: Vec<String> = gone.into_iter().map(|(_, frame)| frame).collect();
            let events: Vec<_> =
                Event::ALL.iter().map(|event| (event.name(), self.out.ledger.event(*event))).collect();
            format!("{counts:?} {:?} {events:?} {gone:?}", self.out.ledger.forwarded)
        }

        fn push(&mut self, now: Time, frame: &[u8], checksum: Checksum) {
            let mut packet = Frame::copy(frame, Medium::Ip, Ingress(0), &mut self.out.pool).unwrap();
            packet.checksum = checksum;
            packet.set_longest_piece(self.came_as);
            if let Some(at) = FlowKey::of(&packet).and_then(|key| self.coalescer.flows.find(&key))
                && self.is_close
            {
                self.coalescer.flows.at_mut(at).forget_looks();
            }
            self.coalescer.push(now, packet, &mut self.out);
        }
    }

    /// One direction of a connection.
    struct Talk {
        port: u8,
        is_stamped: bool,
        seq: u32,
        ack: u32,
        clock: u32,
        id: u16,
        payload_len: usize,
        /// Said later than its turn.
        kept: Option<Vec<u8>>,
    }

    impl Talk {
        fn new(port: usize, random: &mut Rng) -> Talk {
            Talk {
                port: port as u8,
                is_stamped: random.bool(),
                seq: random.u32(..),
                ack: 5,
                clock: 7,
                id: 0,
                payload_len: random.usize(1..700),
                kept: None,
            }
        }

        fn say(&mut self, random: &mut Rng) -> Vec<u8> {
            if let Some(kept) = self.kept.take_if(|_| random.bool()) {
                return kept;
            }
            let kind = random.u8(..60);
            let payload_len = match kind {
                0 => 0,
                1 => random.usize(1..700),
                _ => self.payload_len,
            };
            match kind {
                2 => self.ack = self.ack.wrapping_add(100),
                3 => self.ack = self.ack.wrapping_sub(1),
                4 => self.seq = self.seq.wrapping_add(random.u32(..3_000)),
                5 => self.clock += 1,
                6 => self.payload_len = random.usize(1..700),
                _ => {}
            }
            let flags = 0x10
                | match kind {
                    7 | 8 => 0x08,
                    9 => 0x01,
                    10 => 0x02,
                    11 => 0x04,
                    12 => 0x40,
                    _ => 0,
                };
            self.id += u16::from(kind != 13);
            let frame = self.frame(payload_len, flags, kind, random);
            if !(14..17).contains(&kind) {
                self.seq = self.seq.wrapping_add(payload_len as u32);
            }
            if (17..20).contains(&kind) && self.kept.is_none() {
                self.kept = Some(frame);
                return self.say(random);
            }
            frame
        }

        fn frame(&self, payload_len: usize, flags: u8, kind: u8, random: &mut Rng) -> Vec<u8> {
            let header_len: usize = if self.is_stamped { 32 } else { 20 };
            let addresses = [10, 0, 0, self.port / 2, 10, 1, 1, 1];
            let mut upper = vec![1, 187, 200, self.port];
            upper.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
            upper.extend([(header_len as u8 / 4) << 4, flags, 9, if kind == 20 { 1 } else { 0 }, 0, 0, 0, 0]);
            if self.is_stamped {
                upper.extend([1, 1, 8, 10]);
                upper.extend([self.clock.to_be_bytes(), 3u32.to_be_bytes()].concat());
            }
            upper.extend((0..payload_len).map(|_| random.u8(..)));
            let len = (20 + upper.len()) as u16;
            let ttl = if kind == 21 { 63 } else { 64 };
            let fragment = if kind == 22 { 0x20 } else { 0x40 };
            let mut frame = vec![0x45, if kind == 23 { 3 } else { 0 }, 0, 0, 0, 0, fragment, 0, ttl, 6, 0, 0];
            frame.extend(addresses);
            frame[2..4].copy_from_slice(&len.to_be_bytes());
            frame[4..6].copy_from_slice(&self.id.to_be_bytes());
            let checksum = Sum::of(&frame).checksum();
            frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            let [source, destination] = [0, 4].map(|at| {
                let &[a, b, c, d] = addresses[at..].first_chunk().unwrap();
                Address::from(core::net::IpAddr::from([a, b, c, d]))
            });
            let sum = pseudo_sum((source, destination), TCP, upper.len()) + Sum::of(&upper);
            upper[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
            if kind == 24 {
                // Verified or not: who says that it is right is believed.
                upper[header_len] ^= 0x10;
            }
            frame.extend(upper);
            // Padding of the link.
            frame.extend(vec![0; if kind == 25 { 6 } else { 0 }]);
            frame
        }
    }
}
