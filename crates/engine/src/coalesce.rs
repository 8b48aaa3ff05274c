//! Segments of a flow in, trains out: one header for what came under many (Li; RFC 9293, RFC 7323).
//!
//! An open run per flow; what continues the run is appended to its first packet, whose buffer grows; anything else closes
//! it. In *reversible* mode a segment joins only where its whole header follows from the first one's, so that segmenting
//! the train gives back every packet byte for byte. In *resize* mode only the stream is the same: acknowledgement, window
//! and echo are the last segment's, and segments that come before their turn wait for it (L7, L8).
//!
//! The coalescer never drops and never judges: what does not join passes as it came, after all of its flow that came
//! before it. Nothing is copied but payload, and only that of segments that join.

use crate::flow::{FLOW_CHARGE, Flow, HOLD_MAX, HOLD_MIN};
use crate::held::{Handle, Held, Key};
use crate::ledger::{Event, Tally};
use crate::output::Output;
use crate::prefixes::Prefix;
use crate::secret::{Secret, TableKey};
use crate::side::Switch;
use core::time::Duration;
use packet::ip::{TCP, UDP};
use packet::{Address, Ends, Origin, Packet, Part, Time, Version, tcp};

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
    /// As long, below a minute. A run is older than 20 ms only where this is.
    Fixed(Duration),
}

/// How a coalescer works, beside its memory.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What joins.
    pub mode: Mode,
    /// How long runs wait.
    pub hold: Hold,
    /// Longest packet that a run of shorter ones becomes, IP header counted, in bytes.
    pub len_max: u16,
    /// Do segments in longer packets gather, up to what an IP header can say? Only where they will be cut again.
    pub longer: Switch,
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
        self.push_laying(now, packet, out, <[u8]>::copy_from_slice);
    }

    /// Does the same, and has `lay` bring each payload (second) to its place (first), which is as long, where its checksum
    /// is known to be right and nothing has to be summed.
    pub fn push_laying(&mut self, now: Time, packet: Packet, out: &mut Output, lay: impl FnOnce(&mut [u8], &[u8])) {
        match self.open_flow(&packet) {
            Some(at) if self.goes_on(now, at, &packet, out, lay) => out.done(packet),
            _ => self.push_any(now, packet, out),
        }
    }

    /// The flow touched last of those that have this packet's ports, if the packet is of it.
    #[inline]
    fn open_flow(&mut self, packet: &Packet) -> Option<Handle> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| upper.protocol == TCP)?;
        let unlike_any = ip.fragment.is_some() || ip.length_missing || !packet.is_single();
        let &[s0, s1, d0, d1, ..] = packet.upper_bytes(upper) else { return None };
        let ports = [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])];
        if unlike_any {
            return None;
        }
        let at = *self.hint(ports);
        let (key, _) = self.flows.look(at)?;
        if key.is_of(packet, ports) {
            return Some(at);
        }
        let at = self.flows.find(&FlowKey::of(packet)?)?;
        *self.hint(ports) = at;
        Some(at)
    }

    /// Takes in a segment that says nothing new of its flow, if it is one: the fast path. The flow holds something before and
    /// behind it, as much memory as before, or nothing that waits for its turn.
    #[inline]
    fn goes_on(
        &mut self,
        now: Time,
        at: Handle,
        packet: &Packet,
        out: &mut Output,
        lay: impl FnOnce(&mut [u8], &[u8]),
    ) -> bool {
        let flow = self.flows.at_mut(at);
        if !flow.goes_on(now, packet, &self.rules, out, lay) {
            return false;
        }
        if flow.holds_something() {
            let hold = flow.hold(&self.rules);
            self.flows.touch(now, at, hold);
        } else {
            let pair = self.pair(packet);
            self.flows.charge(at, FLOW_CHARGE);
            self.flows.touch(now, at, IDLE);
            self.count_pair(pair, true, false);
        }
        true
    }

    fn push_any(&mut self, now: Time, packet: Packet, out: &mut Output) {
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
        for (held, count) in self.flows.values().map(Flow::held) {
            tally += held;
            buffers += count;
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
        let may_be_so_long = packet.len() <= usize::from(self.rules.len_max) || self.rules.longer == Switch::On;
        can_be_given_back && may_be_so_long && packet.train.is_none() && packet.cut.is_none()
    }

    fn seek(&mut self, key: &FlowKey) -> Option<Handle> {
        let hinted = *self.hint(key.ports);
        if self.flows.recall(hinted, key).is_some() {
            return Some(hinted);
        }
        let at = self.flows.find(key)?;
        *self.hint(key.ports) = at;
        Some(at)
    }

    fn open(&mut self, now: Time, key: FlowKey, next_seq: u32) -> Handle {
        let is_exempt = self.exempt.iter().any(|exempt| exempt.covers(&key));
        let flow = Flow::new(next_seq, is_exempt);
        let at = self.flows.insert(now, key, flow, FLOW_CHARGE, IDLE);
        *self.hint(key.ports) = at;
        at
    }

    /// A segment that may join comes to its flow.
    fn advance(&mut self, now: Time, at: Handle, packet: Packet, part: Part, out: &mut Output) {
        let pair = self.pair(&packet);
        let flow = self.flows.at_mut(at);
        let (held_something, waited) = (flow.holds_something(), flow.waits());
        flow.arrive(now);
        if flow.is_exempt {
            out.forward(packet);
            return;
        }
        flow.take(now, packet, part, &self.rules, out);
        let (holds_something, waits) = (flow.holds_something(), flow.waits());
        let charge = flow.charge();
        let hold = if holds_something { flow.hold(&self.rules) } else { IDLE };
        if flow.is_over {
            self.flows.remove(at);
        } else {
            self.flows.charge(at, charge);
            // A gap has until the deadline that the first segment behind it set, however many come after that.
            if !(waited && waits) {
                self.flows.touch(now, at, hold);
            }
        }
        self.count_pair(pair, held_something, holds_something);
    }

    /// A packet that joins nothing comes to its flow: everything that came before it leaves before it.
    fn pass(&mut self, now: Time, key: FlowKey, at: Option<Handle>, packet: Packet, out: &mut Output) {
        let says = Says::of(&packet);
        if let Some(at) = at {
            self.let_go(now, at, Event::RunPassed, out);
        }
        // What waited may have ended the flow.
        let at = match at.filter(|at| self.flows.recall(*at, &key).is_some()) {
            Some(at) => Some(at),
            None => says.next_seq.filter(|_| says.opens).map(|next_seq| self.open(now, key, next_seq)),
        };
        if let Some(at) = at {
            match says.next_seq {
                _ if says.ends => drop(self.flows.remove(at)),
                Some(next_seq) => self.flows.at_mut(at).hear(next_seq, says.opens),
                None => {}
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

    fn hint(&mut self, [source, destination]: [u16; 2]) -> &mut Handle {
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

    /// Is it the key of this TCP packet, which has these ports?
    #[inline]
    fn is_of(&self, packet: &Packet, ports: [u16; 2]) -> bool {
        self.ports == ports
            && self.protocol == TCP
            && self.version == packet.ip().version
            && packet.has_ends(&self.ends)
            && packet.origin() == self.origin
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

impl Exempt {
    fn covers(&self, key: &FlowKey) -> bool {
        let by_prefix =
            self.prefix.is_none_or(|prefix| prefix.contains(key.source()) || prefix.contains(key.destination()));
        by_prefix && self.port.is_none_or(|port| key.ports.contains(&port))
    }
}

fn pair_of(secret: Secret, packet: &Packet) -> usize {
    let (source, destination) = packet.addresses();
    let pair = secret.spread(source.number()) ^ secret.spread(destination.number().rotate_left(64));
    pair as usize % PAIR_COUNT
}

/// Flows whose place is remembered.
const HINT_COUNT: usize = 256;
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
