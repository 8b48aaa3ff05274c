//! TCP packets that cross a border in, how long their receivers let them be out; their SYNs with another MSS.
//!
//! Where wide packets meet narrow ones, the MSS of each SYN is changed: raised toward the wide side, so that hosts there send
//! wide segments, which are cut here; lowered toward the narrow side, so that hosts there send what their links carry. What
//! each host announced itself is remembered for its flow, and marked on every packet to it: no cut, and no join, makes a
//! segment longer than its receiver announced. A flow whose SYN did not pass (this side began later, or had to forget it) is
//! kept to lengths that are safe without knowledge.
//!
//! Raising is right only where what the wide host sends will come through here. A SYN-ACK is raised where its SYN came
//! through; a SYN, where something that the same wide host sent to the same network came through not long ago. It is wrong
//! where that way has changed since: the wide host's segments are then too long for the other way, and it takes an ICMP error
//! or a time-out to make them shorter. Such a flow shows in its handshake, which goes on though the SYN-ACK never came through;
//! for an hour no SYN from that network is raised toward that host. Who forges two segments of such a handshake
//! suppresses raising for the network that it claims to be in, and nothing else.
//!
//! Limits change by a handshake alone: a SYN, and the SYN-ACK that acknowledges its sequence number. A further SYN of a live
//! connection is kept aside until such a SYN-ACK answers it (RFC 5961 section 4: a live host answers a forged one with an ACK). Where
//! its connection goes on though no answer passed, the answer went another way: nothing becomes longer until the next handshake.
//! Only after a whole handshake may segments become longer than they came. No limit is below what every host takes.
//!
//! Hosts that open with TCP Fast Open remember the MSS that they were told, for SYNs with data, which cannot be cut: they are told
//! what the narrow host announced (RFC 7413 section 4.1.3).
//!
//! Where a border ends for good, what a wide host sends to a narrow one is too long from then on, and nobody says so to it. So it is
//! told before, by an ICMP error for each connection whose MSS was raised ([`Mss::raised_connections`], [`Mss::tell`]). Its sender takes it for its own only
//! where it quotes a sequence number that is not acknowledged yet, or the next one: the last that the narrow host asked for.
//!
//! SYNs that are damaged, signed (RFC 2385, RFC 5925, RFC 4302), in fragments or without one clear MSS pass untouched.

use crate::held::{Handle, Held, Key};
use crate::ledger::{Event, Ledger, Tally};
use crate::output::Output;
use crate::secret::{Secret, TableKey};
use core::net::IpAddr;
use core::time::Duration;
use packet::icmp::Complaint;
use packet::ip::TCP;
use packet::{
    Address, Announced, Damaged, Frame, Ingress, Ip, LINK_LEN_MAX, Medium, Packet, SegmentLimit, Sum, Time, tcp,
};

/// Changes the MSS of SYNs that cross a border, and marks how long the packets of each flow may be.
#[derive(Debug)]
pub struct Mss {
    border: Border,
    flows: Held<FlowKey, Flow>,
    pairs: Held<PairKey, Pair>,
    /// The flow of the last packet: the next is mostly of the same.
    recent: Handle,
    /// Connections with a raised MSS that may go on, and of which nothing is known any more.
    forgotten_count: u64,
}

/// A connection that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(FlowKey);

/// Where wide packets meet narrow ones.
#[derive(Clone, Debug)]
pub struct Border {
    /// Longest packet of the wide side, IP header counted, in bytes.
    pub wide_mtu: u16,
    /// Longest packet of the narrow side, IP header counted, in bytes.
    pub narrow_mtu: u16,
    /// Which SYNs announce wide segments to the wide side.
    pub raise: Raise,
    /// Longest packet toward a narrow host whose SYN did not pass, IP header counted, in bytes; see [`SAFE_LEN`].
    pub safe_len: u16,
}

impl Border {
    /// What is usual between links of these MTUs.
    pub fn usual(wide_mtu: u16, narrow_mtu: u16) -> Border {
        Border { wide_mtu, narrow_mtu, raise: Raise::default(), safe_len: SAFE_LEN.min(narrow_mtu) }
    }

    /// Longest TCP packet toward this side whose receiver has not been heard, in bytes: what is safe for a narrow host; for a
    /// wide one, what its peer may have sent it.
    pub fn unknown_len_max(&self, toward: Toward) -> u16 {
        match toward {
            Toward::Wide => self.narrow_mtu,
            Toward::Narrow => self.safe_len,
        }
    }
}

/// Which SYNs toward the wide side are raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raise {
    /// None.
    Never,
    /// Those of hosts between which both directions are seen to pass.
    #[default]
    BothWays,
    /// All: there is no other way.
    Always,
}

/// The side that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// That of the long packets.
    Wide,
    /// That of the short ones.
    Narrow,
}

impl Toward {
    /// The number of the direction of a border that leads there.
    pub const fn direction(self) -> usize {
        match self {
            Toward::Narrow => 0,
            Toward::Wide => 1,
        }
    }

    /// Where the direction with this number leads.
    pub(crate) const fn of_direction(direction: usize) -> Toward {
        if direction == Toward::Narrow.direction() { Toward::Narrow } else { Toward::Wide }
    }

    fn other(self) -> Toward {
        match self {
            Toward::Wide => Toward::Narrow,
            Toward::Narrow => Toward::Wide,
        }
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowKey {
    narrow: Address,
    wide: Address,
    ports: [u16; 2],
    tags: u64,
}

/// What is known of a connection, by its two ends.
#[derive(Clone, Copy, Debug)]
struct Flow {
    narrow: End,
    wide: End,
    /// The SYNs of the narrow end and of the wide one that began no connection yet, as their sender may begin another one.
    offers: [Option<Offers>; 2],
    /// Has a SYN-ACK acknowledged a SYN that passed?
    is_agreed: bool,
    /// Do its hosts count marks by three bits of each segment?
    has_accurate_ecn: bool,
    /// Have both ends been heard, beyond what opens it?
    is_open: bool,
    is_closing: bool,
    /// Has it shown that what its wide end sends does not pass?
    is_judged: bool,
    /// When its life was last lengthened.
    touched: Time,
    /// What its wide end was told that it may send.
    raised: Option<Raised>,
}

/// A wide host was told that longer segments are welcome than the narrow side takes.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// Longest packet that it may send, IP header counted, in bytes.
    len: u16,
    /// The next byte that the narrow host expects, as far as it has said.
    acked: Option<u32>,
    /// The link header of packets to the wide host.
    link: [u8; LINK_LEN_MAX],
    link_len: u8,
    medium: Medium,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Longest packet that it takes, IP header counted, in bytes; 0 where that is not known.
    len_max: u16,
    /// Is that more than it announced, since every host takes as much?
    is_below_floor: bool,
    /// The sequence number of the SYN that announced it.
    seq: u32,
    /// Was that for a connection that has closed since?
    is_stale: bool,
    /// Has it opened the connection?
    opened: bool,
    /// Has it answered a SYN that did not pass?
    has_answered: bool,
    /// Does it open with data?
    is_fast_open: bool,
    /// Has a SYN of it asked for accurate ECN?
    asks_accurate_ecn: bool,
    /// Has anything of it passed?
    has_passed: bool,
}

/// What the SYNs of one end would announce, if they began a connection.
#[derive(Clone, Copy, Debug)]
struct Offers {
    last: End,
    /// What all of them allow: each may be the one that is answered where this cannot be seen.
    least: End,
}

/// A wide host, and the network of a narrow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairKey {
    site: Address,
    wide: Address,
    tags: u64,
}

/// What is known of the ways between them.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// When something from the wide host last passed.
    passed: Option<Time>,
    /// When it last showed that what it sends goes another way.
    bypassed: Option<Time>,
}

impl Mss {
    /// One that remembers within `limit` bytes.
    pub fn new(limit: usize, border: Border, secret: Secret) -> Mss {
        let pairs_limit = limit / PAIRS_SHARE;
        Mss {
            border,
            flows: Held::new(limit - pairs_limit, &[PATIENCE, SHORT_PATIENCE], secret),
            pairs: Held::new(pairs_limit, &[BYPASS_PATIENCE], secret),
            recent: Handle::NONE,
            forgotten_count: 0,
        }
    }

    /// Finds what is remembered by this key.
    pub fn with_table_key(mut self, key: Secret) -> Mss {
        self.flows.set_key(key);
        self.pairs.set_key(key);
        self
    }

    /// Goes on with the limits and lengths of another, and what it knows itself; beyond the limit the oldest goes.
    pub fn go_on_as(&mut self, other: Mss) {
        self.border = other.border;
        self.flows.set_limit(other.flows.limit());
        self.pairs.set_limit(other.pairs.limit());
        while let Some(at) = self.flows.surplus() {
            self.forget(at);
        }
        while let Some(at) = self.pairs.surplus() {
            self.pairs.remove(at);
        }
    }

    /// Sees a packet before the side that it leaves by takes it: changes the MSS of a SYN, and marks any whole TCP packet with
    /// the length that its receiver takes.
    pub fn see(&mut self, now: Time, packet: &mut Packet, toward: Toward, ledger: &mut Ledger) {
        let Some((key, flags, ack)) = FlowKey::of(packet, toward) else { return };
        if flags & tcp::SYN == 0 {
            return self.follow(now, key, (flags, ack), packet, toward, ledger);
        }
        match Announced::by(packet) {
            Some(Ok(announced)) => self.shake(now, key, announced, packet, toward, ledger),
            Some(Err(Damaged)) => ledger.note(Event::MssUntouched, Tally::of(packet)),
            None => {}
        }
    }

    /// How long packets of a connection may be toward this side, to the second of these ends, addresses and ports,
    /// without VLAN tags, and to the first one.
    pub fn limits(&mut self, [from, to]: [(Address, u16); 2], toward: Toward) -> [SegmentLimit; 2] {
        let found = self.find(&FlowKey::between(from, to, toward));
        [toward, toward.other()].map(|toward| {
            let flow = found.map(|at| *self.flows.at_mut(at));
            self.limit(flow.as_ref(), toward)
        })
    }

    /// Packets of a connection go on toward this side without being seen here: from the first of these ends to the second, addresses and
    /// ports, without VLAN tags. How long its packets may be, IP header counted, in bytes; none where the connection is not known.
    pub fn hear(&mut self, now: Time, [from, to]: [(Address, u16); 2], toward: Toward) -> Option<SegmentLimit> {
        let key = FlowKey::between(from, to, toward);
        let at = self.find(&key)?;
        self.refresh(now, key, at, tcp::ACK, toward);
        let flow = *self.flows.at_mut(at);
        Some(self.limit(Some(&flow), toward))
    }

    /// The narrow end of a connection whose packets go on without being seen here has acknowledged all before this byte. Its ends are as in
    /// [`hear`](Mss::hear), the narrow one first.
    pub fn hear_ack(&mut self, [narrow, wide]: [(Address, u16); 2], ack: u32) {
        let key = FlowKey { narrow: narrow.0, wide: wide.0, ports: [narrow.1, wide.1], tags: 0 };
        if let Some(at) = self.find(&key)
            && let Some(raised) = &mut self.flows.at_mut(at).raised
        {
            raised.go_on_to(ack);
        }
    }

    /// No MSS is raised from here on.
    pub fn stop_raising(&mut self) {
        self.border.raise = Raise::Never;
    }

    /// The connections whose wide host was told that longer segments are welcome than the narrow side takes.
    pub fn raised_connections(&self) -> impl Iterator<Item = Connection> {
        let raised = self.flows.entries().filter(|(_, flow)| flow.raised.is_some());
        raised.map(|(key, _)| Connection(*key))
    }

    /// How many of those may go on though nothing is known of them any more.
    pub fn forgotten_count(&self) -> u64 {
        self.forgotten_count
    }

    /// Tells the wide host of a connection, outside of the usual rate limit, that its packets are too long for the narrow side. Says whether that
    /// could be: it is not known yet which byte to quote, or no address is there to say it from.
    ///
    /// `out` belongs to what comes from the wide side.
    pub fn tell(&self, connection: &Connection, ingress: Ingress, out: &mut Output) -> bool {
        let Connection(key) = connection;
        let Some(at) = self.flows.find(key) else { return false };
        let frame = self.flows.peek(at).and_then(|flow| flow.raised).and_then(|raised| raised.segment(key));
        let Some((frame, medium)) = frame else { return false };
        let Ok(about) = Frame::copy(&frame, medium, ingress, &mut out.pool) else { return false };
        let is_told = out.tell(Complaint::TooBig { mtu: self.border.narrow_mtu }, &about);
        out.done(about);
        is_told
    }

    /// How long packets toward this side may be in a connection, or in one that is not known.
    fn limit(&self, flow: Option<&Flow>, toward: Toward) -> SegmentLimit {
        let unknown = SegmentLimit { len_max: self.border.unknown_len_max(toward), may_grow: false };
        flow.and_then(|flow| flow.limit(toward)).unwrap_or(unknown)
    }

    /// Forgets what is late.
    pub fn expire(&mut self, now: Time) {
        while let Some(at) = self.flows.late(now) {
            self.forget(at);
        }
        while let Some(at) = self.pairs.late(now) {
            self.pairs.remove(at);
        }
    }

    /// When [`expire`](Mss::expire) next has work; none while nothing is remembered.
    pub fn next_deadline(&self) -> Option<Time> {
        self.flows.next_deadline().into_iter().chain(self.pairs.next_deadline()).min()
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.flows.charged() + self.pairs.charged()
    }

    /// Connections that are known.
    pub fn flow_count(&self) -> usize {
        self.flows.count()
    }

    /// A SYN or SYN-ACK: its sender's announcement is remembered, and another one goes on.
    fn shake(
        &mut self,
        now: Time,
        key: FlowKey,
        announced: Announced,
        packet: &mut Packet,
        toward: Toward,
        ledger: &mut Ledger,
    ) {
        let flow = self.remember(now, key, &announced, packet.ip(), toward);
        let (wanted, may_change) = match toward {
            Toward::Narrow => {
                self.sight(now, key);
                (self.mss_toward(toward, packet.ip()).min(announced.mss), true)
            }
            Toward::Wide => {
                let wanted = self.raised(&announced, packet.ip());
                (wanted, self.may_raise(now, key, flow, &announced))
            }
        };
        if announced.is_clear() && (wanted == announced.mss || !may_change) {
            return;
        }
        let event = match toward {
            _ if !announced.may_change() => Event::MssUntouched,
            Toward::Wide => Event::MssRaised,
            Toward::Narrow => Event::MssLowered,
        };
        announced.write(packet, wanted);
        ledger.note(event, Tally::of(packet));
        if event == Event::MssRaised {
            self.note_raised(key, &flow, &announced, wanted, packet);
        }
    }

    /// A wide host sends what is longer than the narrow side takes in a connection whose beginning did not pass: it was told so before this
    /// was here. What its receiver takes is not known by that.
    fn notice(&mut self, now: Time, key: FlowKey, packet: &Packet, toward: Toward) -> Option<Handle> {
        let len = packet.wire_len().min(usize::from(self.border.wide_mtu)) as u16;
        if toward != Toward::Narrow || len <= self.border.narrow_mtu {
            return None;
        }
        let mut raised = Raised::new(packet, len, None);
        if packet.medium() == Medium::Ethernet {
            raised.link[..2 * STATION_LEN].rotate_left(STATION_LEN);
        }
        let flow = Flow { raised: Some(raised), ..Flow::new(now) };
        self.recent = self.flows.insert(now, key, flow, FLOW_CHARGE, SHORT_PATIENCE);
        while let Some(at) = self.flows.surplus() {
            self.forget(at);
        }
        self.find(&key)
    }

    /// Remembers what a wide host was told, and how it is reached.
    fn note_raised(&mut self, key: FlowKey, before: &Flow, announced: &Announced, mss: u16, packet: &Packet) {
        let Some(at) = self.find(&key) else { return };
        let len = mss.saturating_add(headers_len(packet.ip()));
        if len <= self.border.narrow_mtu {
            return;
        }
        let flow = self.flows.at_mut(at);
        let is_same = (flow.wide.seq, flow.narrow.seq) == (before.wide.seq, before.narrow.seq);
        let acked = match before.raised.filter(|_| is_same) {
            Some(raised) => raised.acked,
            None => None,
        };
        flow.raised = Some(Raised::new(packet, len, acked.or((!announced.opens).then_some(announced.ack))));
    }

    /// Forgets a connection, and counts it where its wide host may go on to send what is too long.
    fn forget(&mut self, at: Handle) {
        let flow = self.flows.remove(at);
        self.forgotten_count +=
            u64::from(flow.raised.is_some() && (flow.is_agreed || flow.is_open) && !flow.is_closing);
    }

    /// The MSS that packets toward the other side's hosts may have: what this side's MTU carries, and no less than every host
    /// takes (R113).
    fn mss_toward(&self, toward: Toward, ip: &Ip) -> u16 {
        let mtu = match toward {
            Toward::Wide => self.border.wide_mtu,
            Toward::Narrow => self.border.narrow_mtu,
        };
        mtu.saturating_sub(headers_len(ip)).max(ip.mss_default())
    }

    /// The MSS that wide hosts are told where a narrow one announces this: the longest that the wide side carries, or a shorter one.
    ///
    /// A longest segment that is no whole number of narrow ones ends in a short piece. Where that costs more packets for each
    /// byte, wide and narrow together, than the longest segment that is a whole number, that one is told. One alone would be no raising.
    ///
    /// A receiver with a small buffer opens a window that may be shorter than a long segment; its sender would then wait for its timer
    /// before each (RFC 9293 section 3.8.6.2.1). So where the first window is small it holds at least four segments, or nothing is raised.
    fn raised(&self, announced: &Announced, ip: &Ip) -> u16 {
        let payload = |mss: u16| u32::from(mss.saturating_sub(announced.options_len));
        let longest = self.mss_toward(Toward::Wide, ip);
        let taken = announced.mss.max(ip.mss_default());
        let narrow = payload(taken.min(self.mss_toward(Toward::Narrow, ip))).max(1);
        let count = payload(longest) / narrow;
        let is_less = (count + 1) * payload(longest) < (count + 2) * count * narrow;
        let window = u32::from(announced.window) / SEGMENTS_IN_WINDOW;
        if announced.window < WINDOW_SMALL && window < payload(longest) {
            let count = window / narrow;
            return if count >= 2 { (count * narrow) as u16 + announced.options_len } else { announced.mss };
        }
        let whole = (count * narrow) as u16 + announced.options_len;
        if count >= 2 && is_less && whole >= announced.mss { whole } else { longest.max(announced.mss) }
    }

    /// Remembers what a SYN's sender takes. What the flow was before is returned.
    fn remember(&mut self, now: Time, key: FlowKey, announced: &Announced, ip: &Ip, toward: Toward) -> Flow {
        let known = self.find(&key).map(|at| (at, *self.flows.at_mut(at)));
        let before = match known {
            Some((_, flow)) if announced.opens && flow.is_closing && !flow.is_agreed => flow.anew(now),
            Some((_, flow)) => flow,
            None => Flow::new(now),
        };
        let mut flow = before;
        let lives = flow.is_agreed;
        let begins =
            if announced.opens { flow.open(announced, ip, toward) } else { flow.answer(announced, ip, toward) };
        match known {
            // It changed nothing, and makes nothing last longer or shorter.
            Some((at, _)) if lives && !begins => *self.flows.at_mut(at) = flow,
            Some((at, _)) => {
                flow.touched = now;
                *self.flows.at_mut(at) = flow;
                self.flows.touch(now, at, SHORT_PATIENCE);
            }
            None => {
                self.recent = self.flows.insert(now, key, flow, FLOW_CHARGE, SHORT_PATIENCE);
                while let Some(at) = self.flows.surplus() {
                    self.forget(at);
                }
            }
        }
        before
    }

    /// May this SYN announce wide segments to the wide side?
    fn may_raise(&mut self, now: Time, key: FlowKey, flow: Flow, announced: &Announced) -> bool {
        let asked = flow.asked(announced.ack.wrapping_sub(1));
        let both_pass = if announced.opens { self.both_pass(now, key) } else { asked.is_some() };
        match self.border.raise {
            _ if !announced.opens && asked.is_some_and(|wide| wide.is_fast_open) => false,
            Raise::Never => false,
            Raise::BothWays => both_pass,
            Raise::Always => true,
        }
    }

    /// A packet of a connection that is open, or of which nothing is known.
    fn follow(
        &mut self,
        now: Time,
        key: FlowKey,
        (flags, ack): (u8, u32),
        packet: &mut Packet,
        toward: Toward,
        ledger: &mut Ledger,
    ) {
        let found = self.find(&key);
        if let Some(at) = found {
            self.flows.at_mut(at).doubt(packet, toward);
        }
        let flow = found.map(|at| *self.flows.at_mut(at));
        packet.segment_limit = Some(self.limit(flow.as_ref(), toward));
        packet.has_accurate_ecn = flow.is_some_and(|flow| flow.has_accurate_ecn);
        let is_unknown = flow.is_none_or(|flow| flow.receiver(toward).len_max == 0);
        if is_unknown && toward == Toward::Narrow && packet.wire_len() > usize::from(self.border.safe_len) {
            ledger.note(Event::MssUnknown, Tally::of(packet));
        }
        let Some(at) = found.or_else(|| self.notice(now, key, packet, toward)) else { return };
        let flow = self.flows.at_mut(at);
        flow.sender(toward).has_passed = true;
        if toward == Toward::Wide
            && flags & (tcp::ACK | tcp::RST) == tcp::ACK
            && let Some(raised) = &mut flow.raised
        {
            raised.go_on_to(ack);
        }
        // A narrow host that goes on has heard the SYN-ACK, wherever that went by.
        let has_shaken = flow.narrow.opened || flow.narrow.has_answered;
        let is_bypassed = toward == Toward::Wide && has_shaken && !flow.wide.has_passed;
        let goes_on = flags & (tcp::ACK | tcp::RST) == tcp::ACK;
        if is_bypassed && goes_on && !core::mem::replace(&mut flow.is_judged, true) {
            self.bypass(now, key, packet, ledger);
        }
        self.refresh(now, key, at, flags, toward);
    }

    /// A connection lives as long as packets of it pass; a moment more or less does not matter. One that has opened is
    /// forgotten after those that have not.
    fn refresh(&mut self, now: Time, key: FlowKey, at: Handle, flags: u8, toward: Toward) {
        let flow = self.flows.at_mut(at);
        let closes = flags & (tcp::FIN | tcp::RST) != 0 && !flow.is_closing;
        let opens = !flow.is_open && flow.narrow.has_passed && flow.wide.has_passed;
        if now.since(flow.touched) < MOMENT && !closes && !opens {
            return;
        }
        flow.is_closing |= closes;
        flow.is_open |= opens;
        flow.touched = now;
        let lasts = flow.is_open && !flow.is_closing;
        self.flows.touch(now, at, if lasts { PATIENCE } else { SHORT_PATIENCE });
        if opens {
            self.flows.protect(at);
        }
        if toward == Toward::Narrow {
            self.sight(now, key);
        }
    }

    /// Something that a wide host sent passes.
    fn sight(&mut self, now: Time, key: FlowKey) {
        self.pair(now, key).passed = Some(now);
        self.keep_pairs_limit();
    }

    /// Something that a wide host sent went by another way.
    fn bypass(&mut self, now: Time, key: FlowKey, packet: &Packet, ledger: &mut Ledger) {
        ledger.note(Event::MssOneWay, Tally::of(packet));
        self.pair(now, key).bypassed = Some(now);
        self.keep_pairs_limit();
    }

    /// Does what this wide host sends to this network pass, as far as can be told?
    fn both_pass(&mut self, now: Time, key: FlowKey) -> bool {
        let Some(at) = self.pairs.find(&key.pair()) else { return false };
        let within = |moment: Option<Time>, patience| moment.is_some_and(|moment| now.since(moment) < patience);
        let pair = *self.pairs.at_mut(at);
        within(pair.passed, PASS_PATIENCE) && !within(pair.bypassed, BYPASS_PATIENCE)
    }

    /// What is known of the ways that a connection may go, to be changed.
    fn pair(&mut self, now: Time, key: FlowKey) -> &mut Pair {
        let key = key.pair();
        let at = match self.pairs.find(&key) {
            Some(at) => at,
            None => self.pairs.insert(now, key, Pair::default(), PAIR_CHARGE, BYPASS_PATIENCE),
        };
        self.pairs.touch(now, at, BYPASS_PATIENCE);
        self.pairs.at_mut(at)
    }

    fn keep_pairs_limit(&mut self) {
        while let Some(at) = self.pairs.surplus() {
            self.pairs.remove(at);
        }
    }

    #[inline]
    fn find(&mut self, key: &FlowKey) -> Option<Handle> {
        if self.flows.recall(self.recent, key).is_none() {
            self.recent = self.flows.find(key)?;
        }
        Some(self.recent)
    }
}

impl FlowKey {
    /// The connection of packets from this end to that one, which go toward this side without VLAN tags.
    fn between(from: (Address, u16), to: (Address, u16), toward: Toward) -> FlowKey {
        let [narrow, wide] = match toward {
            Toward::Wide => [from, to],
            Toward::Narrow => [to, from],
        };
        FlowKey { narrow: narrow.0, wide: wide.0, ports: [narrow.1, wide.1], tags: 0 }
    }

    /// The connection of a whole TCP packet, its flags, and what it acknowledges.
    #[inline]
    fn of(packet: &Packet, toward: Toward) -> Option<(FlowKey, u8, u32)> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| upper.protocol == TCP && ip.fragment.is_none())?;
        let header = tcp::Segment::parse(packet.upper_bytes(upper))?.header;
        let (source, destination) = packet.addresses();
        let (from, to) = (header.source.get(), header.destination.get());
        let [tags, _] = packet.origin().words();
        let (narrow, wide, ports) = match toward {
            Toward::Wide => (source, destination, [from, to]),
            Toward::Narrow => (destination, source, [to, from]),
        };
        Some((FlowKey { narrow, wide, ports, tags }, header.flags(), header.ack.get()))
    }

    fn pair(&self) -> PairKey {
        PairKey { site: self.narrow.site(), wide: self.wide, tags: self.tags }
    }
}

impl Key for FlowKey {
    fn source(&self) -> Address {
        self.narrow
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let [narrow, wide] = [self.narrow, self.wide].map(Address::number);
        let [narrow_port, wide_port] = self.ports.map(u64::from);
        let ports = narrow_port | wide_port << 16;
        table.hash([narrow as u64, (narrow >> 64) as u64, wide as u64, (wide >> 64) as u64, ports, self.tags])
    }
}

impl Key for PairKey {
    fn source(&self) -> Address {
        self.site
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let [site, wide] = [self.site, self.wide].map(Address::number);
        table.hash([site as u64, (site >> 64) as u64, wide as u64, (wide >> 64) as u64, self.tags, 0])
    }
}

impl Flow {
    fn new(now: Time) -> Flow {
        let (narrow, wide) = (End::default(), End::default());
        let [is_agreed, has_accurate_ecn, is_open, is_closing, is_judged] = [false; 5];
        Flow {
            narrow,
            wide,
            offers: [None; 2],
            is_agreed,
            has_accurate_ecn,
            is_open,
            is_closing,
            is_judged,
            touched: now,
            raised: None,
        }
    }

    /// What the wide host's SYN with this sequence number announced, if it passed.
    fn asked(&self, seq: u32) -> Option<End> {
        let [_, offered] = self.offers.map(|offers| Some(offers?.last));
        let began = Some(self.wide).filter(|wide| wide.opened && !wide.is_stale);
        offered.into_iter().chain(began).find(|end| end.seq == seq)
    }

    /// How long packets toward this side may be; none where their receiver announced nothing.
    fn limit(&self, toward: Toward) -> Option<SegmentLimit> {
        let receiver = self.receiver(toward);
        let is_settled = self.is_agreed && !(self.is_closing && self.has_offers());
        let offered = self.receiver_offers(toward).filter(|_| !is_settled);
        let end = offered.map_or(*receiver, |offers| receiver.least(&offers.least));
        let may_grow = is_settled && !end.is_below_floor;
        (receiver.len_max > 0).then_some(SegmentLimit { len_max: end.len_max, may_grow })
    }

    /// A SYN came: says whether it changed what is known. Of several that may begin the connection, each may be the one that does.
    fn open(&mut self, announced: &Announced, ip: &Ip, toward: Toward) -> bool {
        let lives = self.is_agreed;
        let offer = End::announcing(announced, ip);
        let end = self.sender(toward);
        let is_again = end.len_max > 0 && !end.is_stale && end.seq == announced.seq;
        let is_first = end.len_max == 0 || end.is_stale;
        if is_again || is_first && !lives {
            let least = if is_first { offer } else { end.least(&offer) };
            *end = End { opened: true, has_passed: true, has_answered: end.has_answered, ..least };
            return !lives;
        }
        if !lives {
            (end.opened, end.has_passed) = (true, true);
        }
        let offers = self.sender_offers(toward);
        *offers = Some(Offers::with(*offers, offer));
        !lives
    }

    /// A SYN-ACK came: says whether it changed what is known.
    fn answer(&mut self, announced: &Announced, ip: &Ip, toward: Toward) -> bool {
        // A forged end proves nothing: until a handshake is whole, the connection before it counts.
        let lives = self.is_agreed;
        let answered = announced.ack.wrapping_sub(1);
        let offered = self.receiver_offers(toward).map(|offers| offers.last).filter(|offer| offer.seq == answered);
        let receiver = *self.receiver(toward);
        let is_known = receiver.len_max > 0 && !receiver.is_stale && receiver.opened && receiver.seq == answered;
        let sender = self.sender(toward);
        let is_again = sender.len_max > 0 && !sender.is_stale && sender.seq == announced.seq;
        let end = End::announcing(announced, ip);
        let passed = End { opened: sender.opened, ..end };
        let agrees = ACCURATE_ECN_ANSWERS.contains(&announced.accurate_ecn_field);
        match (offered, is_known) {
            _ if lives && offered.is_none() => {
                // It repeats the answer that agreed: the connection lives as long as before.
                if is_known && is_again {
                    *sender = sender.least(&passed);
                    self.has_accurate_ecn |= receiver.asks_accurate_ecn && agrees;
                }
                return false;
            }
            (Some(offer), _) => {
                *sender = end;
                *self.receiver_mut(toward) = offer;
                (self.is_open, self.is_closing, self.is_judged) = (false, false, false);
                self.has_accurate_ecn = offer.asks_accurate_ecn && agrees;
            }
            (None, true) => {
                *sender = if is_again { sender.least(&passed) } else { passed };
                self.has_accurate_ecn = receiver.asks_accurate_ecn && agrees;
            }
            // Its SYN went another way: what it announces holds, and nothing becomes longer.
            (None, false) => {
                let least = if sender.len_max == 0 || sender.is_stale { passed } else { sender.least(&passed) };
                *sender = End { has_answered: true, ..least };
                return true;
            }
        }
        (self.offers, self.is_agreed) = ([None; 2], true);
        true
    }

    /// A packet without a SYN passes: where it shows that the handshake of a further connection was completed by another way, the
    /// limits of the one before may be wrong, and nothing grows.
    fn doubt(&mut self, packet: &Packet, toward: Toward) {
        if !self.is_agreed || !self.has_offers() {
            return;
        }
        let segment = packet.ip().upper.and_then(|upper| tcp::Segment::parse(packet.upper_bytes(upper)));
        if segment.is_some_and(|segment| self.goes_on_unanswered(segment.header, toward)) {
            (self.is_agreed, self.has_accurate_ecn) = (false, false);
        }
    }

    /// Does this packet toward a side, without a SYN, belong to the connection of a SYN that no SYN-ACK has answered here? It does
    /// where it begins just behind that SYN, or acknowledges just that. An answer to a forged SYN does neither.
    fn goes_on_unanswered(&self, header: &tcp::TcpHeader, toward: Toward) -> bool {
        let is_behind = |offers: Option<Offers>, number: u32| {
            offers.is_some_and(|offers| number == offers.last.seq.wrapping_add(1))
        };
        header.flags() & (tcp::ACK | tcp::RST) == tcp::ACK
            && (is_behind(self.receiver_offers(toward.other()), header.seq.get())
                || is_behind(self.receiver_offers(toward), header.ack.get()))
    }

    fn has_offers(&self) -> bool {
        self.offers.iter().any(Option::is_some)
    }

    /// The next connection between the same ports; until its ends announce anew, what they did counts.
    fn anew(&self, now: Time) -> Flow {
        let again = |end: &End| End { len_max: end.len_max, is_stale: true, ..End::default() };
        Flow { narrow: again(&self.narrow), wide: again(&self.wide), ..Flow::new(now) }
    }

    /// The end that sends packets toward this side.
    fn sender(&mut self, toward: Toward) -> &mut End {
        match toward {
            Toward::Wide => &mut self.narrow,
            Toward::Narrow => &mut self.wide,
        }
    }

    /// The SYNs of the end that sends packets toward this side.
    fn sender_offers(&mut self, toward: Toward) -> &mut Option<Offers> {
        let [narrow, wide] = &mut self.offers;
        match toward {
            Toward::Wide => narrow,
            Toward::Narrow => wide,
        }
    }

    /// Those of the end that takes them.
    fn receiver_offers(&self, toward: Toward) -> Option<Offers> {
        let [narrow, wide] = self.offers;
        match toward {
            Toward::Wide => wide,
            Toward::Narrow => narrow,
        }
    }

    /// The end that takes them, to be changed.
    fn receiver_mut(&mut self, toward: Toward) -> &mut End {
        match toward {
            Toward::Wide => &mut self.wide,
            Toward::Narrow => &mut self.narrow,
        }
    }

    /// The end that takes them.
    fn receiver(&self, toward: Toward) -> &End {
        match toward {
            Toward::Wide => &self.wide,
            Toward::Narrow => &self.narrow,
        }
    }
}

impl Raised {
    /// With the link header of a packet to the wide host.
    fn new(packet: &Packet, len: u16, acked: Option<u32>) -> Raised {
        let mut link = [0; LINK_LEN_MAX];
        let link_len = packet.link().len().min(LINK_LEN_MAX);
        link.iter_mut().zip(packet.link()).for_each(|(to, from)| *to = *from);
        Raised { len, acked, link, link_len: link_len as u8, medium: packet.medium() }
    }

    /// Goes on to a later byte. None is later by more than a window may be (RFC 7323 section 2.3).
    #[inline]
    fn go_on_to(&mut self, ack: u32) {
        if self.acked.is_none_or(|before| ack.wrapping_sub(before) <= WINDOW_MAX) {
            self.acked = Some(ack);
        }
    }

    /// A frame such as the wide host may have sent, as long as it may be, from the first byte on that is not acknowledged; none
    /// while nothing is.
    fn segment(&self, key: &FlowKey) -> Option<(Vec<u8>, Medium)> {
        let (seq, len) = (self.acked?, usize::from(self.len));
        let mut frame = self.link.get(..usize::from(self.link_len))?.to_vec();
        if self.medium == Medium::Ethernet {
            frame.get_mut(..2 * STATION_LEN)?.rotate_left(STATION_LEN);
        }
        let link_len = frame.len();
        let ip_len = match (IpAddr::from(key.wide), IpAddr::from(key.narrow)) {
            (IpAddr::V4(wide), IpAddr::V4(narrow)) => {
                frame.extend([0x45, 0]);
                frame.extend(self.len.to_be_bytes());
                frame.extend([0, 0, 0x40, 0, TTL, TCP, 0, 0]);
                frame.extend([wide.octets(), narrow.octets()].concat());
                let checksum = Sum::of(frame.get(link_len..)?).checksum();
                frame.get_mut(link_len + 10..link_len + 12)?.copy_from_slice(&checksum.to_be_bytes());
                20
            }
            (IpAddr::V6(wide), IpAddr::V6(narrow)) => {
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((self.len - 40).to_be_bytes());
                frame.extend([TCP, TTL]);
                frame.extend([wide.octets(), narrow.octets()].concat());
                40
            }
            _ => return None,
        };
        let [narrow_port, wide_port] = key.ports;
        frame.extend([wide_port.to_be_bytes(), narrow_port.to_be_bytes()].concat());
        frame.extend(seq.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, tcp::ACK, 0, 0, 0, 0, 0, 0]);
        debug_assert!(frame.len() == link_len + ip_len + tcp::HEADER_LEN, "headers are written");
        frame.resize(link_len + len, 0);
        Some((frame, self.medium))
    }
}

impl End {
    /// This, as far as both announcements allow.
    fn least(&self, other: &End) -> End {
        End {
            len_max: self.len_max.min(other.len_max),
            is_below_floor: self.is_below_floor || other.is_below_floor,
            is_fast_open: self.is_fast_open || other.is_fast_open,
            asks_accurate_ecn: self.asks_accurate_ecn || other.asks_accurate_ecn,
            ..*self
        }
    }

    /// The sender of a SYN or SYN-ACK.
    fn announcing(announced: &Announced, ip: &Ip) -> End {
        let floor = ip.mss_default();
        End {
            len_max: announced.mss.max(floor).saturating_add(headers_len(ip)),
            is_below_floor: announced.mss < floor,
            seq: announced.seq,
            opened: announced.opens,
            has_passed: true,
            is_fast_open: announced.is_fast_open,
            asks_accurate_ecn: announced.accurate_ecn_field == ACCURATE_ECN_ASKED,
            ..End::default()
        }
    }
}

impl Offers {
    /// These and one more SYN of the same end. A SYN that is repeated announces the least of what it did.
    fn with(before: Option<Offers>, offer: End) -> Offers {
        let Some(before) = before else { return Offers { last: offer, least: offer } };
        let last = if before.last.seq == offer.seq { offer.least(&before.last) } else { offer };
        Offers { last, least: before.least.least(&offer) }
    }
}

/// Bytes of headers that an MSS does not count.
fn headers_len(ip: &Ip) -> u16 {
    (ip.header_len_min() + tcp::HEADER_LEN) as u16
}

/// Longest TCP packet toward a host of which nothing is known, in bytes. Every IPv6 link takes 1,280 (RFC 8200 section 5); an
/// IPv4 packet may become an IPv6 one on its way, which is 20 bytes longer and may have a Fragment header of 8 (RFC 7915
/// section 4.1).
pub const SAFE_LEN: u16 = 1_280 - 20 - 8;
/// AE, CWR and ECE of a SYN that asks for accurate ECN (RFC 9768 section 3.1.1).
const ACCURATE_ECN_ASKED: u8 = 0b111;
/// The same of SYN-ACKs that agree to it (RFC 9768 table 2).
const ACCURATE_ECN_ANSWERS: [u8; 4] = [0b010, 0b011, 0b100, 0b110];
/// How long an idle connection is remembered: two hours and four minutes (RFC 5382 section 5, REQ-5).
const PATIENCE: Duration = Duration::from_secs(7_440);
/// Segments that the first window of a receiver holds, at least, where it is small and they are raised.
const SEGMENTS_IN_WINDOW: u32 = 4;
/// From here on a window is taken for the start of one that grows: half of what a SYN can say, in bytes.
const WINDOW_SMALL: u16 = 1 << 15;
/// The same of one that has not opened, or is closing: four minutes (RFC 5382 section 5, REQ-5).
const SHORT_PATIENCE: Duration = Duration::from_secs(240);
/// How long what passed tells which way packets go. Routes change, but seldom within minutes.
const PASS_PATIENCE: Duration = Duration::from_secs(600);
/// How long nothing is raised between a host and a network whose packets were seen to go by another way.
const BYPASS_PATIENCE: Duration = Duration::from_secs(3_600);
/// How often a connection's life is lengthened, at most.
const MOMENT: Duration = Duration::from_secs(1);
/// What a connection is charged, in bytes: its slot, its source and their places in tables.
pub const FLOW_CHARGE: usize = 512;
/// The same of a pair.
const PAIR_CHARGE: usize = 384;
/// Longest window (RFC 7323 section 2.3), in bytes.
const WINDOW_MAX: u32 = 1 << 30;
/// Hops that a quoted packet has left.
const TTL: u8 = 64;
/// An Ethernet address, in bytes.
const STATION_LEN: usize = 6;
/// The part of the memory that is for pairs.
const PAIRS_SHARE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_connections_name_moves_its_place() {
        let table = TableKey::new(Secret::new(5));
        let address = |site| Address::from(core::net::IpAddr::from([10, 0, site, 1]));
        let key = FlowKey { narrow: address(1), wide: address(2), ports: [7, 8], tags: 0 };
        let others = [
            FlowKey { narrow: address(3), ..key },
            FlowKey { wide: address(3), ..key },
            FlowKey { ports: [9, 8], ..key },
            FlowKey { ports: [7, 9], ..key },
            FlowKey { tags: 1, ..key },
        ];
        others.iter().for_each(|other| assert_ne!(other.hash(&table), key.hash(&table), "{other:?}"));
        let pairs =
            [key.pair(), others[0].pair(), others[1].pair(), others[4].pair()].map(|pair| pair.hash(&table));
        assert!((1..4).all(|at| pairs[at] != pairs[0]), "{pairs:?}");
    }
}
