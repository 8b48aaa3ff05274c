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
//! connection is kept aside until such a SYN-ACK answers it (RFC 5961 section 4: a live host answers a forged one with an ACK). Only
//! after a whole handshake may segments become longer than they came. No limit is below what every host takes.
//!
//! Hosts that open with TCP Fast Open remember the MSS that they were told, for SYNs with data, which cannot be cut: they are told
//! what the narrow host announced (RFC 7413 section 4.1.3).
//!
//! SYNs that are damaged, signed (RFC 2385, RFC 5925, RFC 4302), in fragments or without one clear MSS pass untouched.

use crate::held::{Handle, Held, Key};
use crate::ledger::{Event, Ledger, Tally};
use crate::secret::{Secret, TableKey};
use core::time::Duration;
use packet::ip::TCP;
use packet::{Address, Announced, Damaged, Ip, Packet, SegmentLimit, Time, tcp};

/// Changes the MSS of SYNs that cross a border, and marks how long the packets of each flow may be.
#[derive(Debug)]
pub struct Mss {
    border: Border,
    flows: Held<FlowKey, Flow>,
    pairs: Held<PairKey, Pair>,
    /// The flow of the last packet: the next is mostly of the same.
    recent: Handle,
}

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
    /// The last SYN that began no connection yet, as its sender may begin another one.
    offered: Option<Offer>,
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
    /// Has anything of it passed?
    has_passed: bool,
}

/// What a SYN would announce, if it began a connection.
#[derive(Clone, Copy, Debug)]
struct Offer {
    toward: Toward,
    end: End,
    accurate_ecn_field: u8,
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
            self.flows.remove(at);
        }
        while let Some(at) = self.pairs.surplus() {
            self.pairs.remove(at);
        }
    }

    /// Sees a packet before the side that it leaves by takes it: changes the MSS of a SYN, and marks any whole TCP packet with
    /// the length that its receiver takes.
    pub fn see(&mut self, now: Time, packet: &mut Packet, toward: Toward, ledger: &mut Ledger) {
        let Some((key, flags)) = FlowKey::of(packet, toward) else { return };
        if flags & tcp::SYN == 0 {
            return self.follow(now, key, flags, packet, toward, ledger);
        }
        match Announced::by(packet) {
            Some(Ok(announced)) => self.shake(now, key, announced, packet, toward, ledger),
            Some(Err(Damaged)) => ledger.note(Event::MssUntouched, Tally::of(packet)),
            None => {}
        }
    }

    /// How long packets may be to the receiver of this packet, which goes toward this side, and to its sender; none of what is no
    /// whole TCP.
    pub fn limits(&mut self, packet: &Packet, toward: Toward) -> Option<[SegmentLimit; 2]> {
        let (key, _) = FlowKey::of(packet, toward)?;
        let back = match toward {
            Toward::Wide => Toward::Narrow,
            Toward::Narrow => Toward::Wide,
        };
        let found = self.find(&key);
        Some([toward, back].map(|toward| {
            let flow = found.map(|at| *self.flows.at_mut(at));
            self.limit(flow.as_ref(), toward)
        }))
    }

    /// Packets of a connection go on toward this side without being seen here: from the first of these ends to the second, addresses and
    /// ports, without VLAN tags. How long its packets may be, IP header counted, in bytes; none where the connection is not known.
    pub fn hear(&mut self, now: Time, [from, to]: [(Address, u16); 2], toward: Toward) -> Option<SegmentLimit> {
        let [narrow, wide] = match toward {
            Toward::Wide => [from, to],
            Toward::Narrow => [to, from],
        };
        let key = FlowKey { narrow: narrow.0, wide: wide.0, ports: [narrow.1, wide.1], tags: 0 };
        let at = self.find(&key)?;
        self.refresh(now, key, at, tcp::ACK, toward);
        let flow = *self.flows.at_mut(at);
        Some(self.limit(Some(&flow), toward))
    }

    /// How long packets toward this side may be in a connection, or in one that is not known.
    fn limit(&self, flow: Option<&Flow>, toward: Toward) -> SegmentLimit {
        let unknown = SegmentLimit { len_max: self.border.unknown_len_max(toward), may_grow: false };
        flow.and_then(|flow| flow.limit(toward)).unwrap_or(unknown)
    }

    /// Forgets what is late.
    pub fn expire(&mut self, now: Time) {
        while let Some(at) = self.flows.late(now) {
            self.flows.remove(at);
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
    fn raised(&self, announced: &Announced, ip: &Ip) -> u16 {
        let payload = |mss: u16| u32::from(mss.saturating_sub(announced.options_len));
        let longest = self.mss_toward(Toward::Wide, ip);
        let taken = announced.mss.max(ip.mss_default());
        let narrow = payload(taken.min(self.mss_toward(Toward::Narrow, ip))).max(1);
        let count = payload(longest) / narrow;
        let is_less = (count + 1) * payload(longest) < (count + 2) * count * narrow;
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
                    self.flows.remove(at);
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
        flags: u8,
        packet: &mut Packet,
        toward: Toward,
        ledger: &mut Ledger,
    ) {
        let found = self.find(&key);
        let flow = found.map(|at| *self.flows.at_mut(at));
        packet.segment_limit = Some(self.limit(flow.as_ref(), toward));
        packet.has_accurate_ecn = flow.is_some_and(|flow| flow.has_accurate_ecn);
        let is_unknown = flow.is_none_or(|flow| flow.receiver(toward).len_max == 0);
        if is_unknown && toward == Toward::Narrow && packet.wire_len() > usize::from(self.border.safe_len) {
            ledger.note(Event::MssUnknown, Tally::of(packet));
        }
        let Some(at) = found else { return };
        let flow = self.flows.at_mut(at);
        flow.sender(toward).has_passed = true;
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
    /// The connection of a whole TCP packet, and its flags.
    #[inline]
    fn of(packet: &Packet, toward: Toward) -> Option<(FlowKey, u8)> {
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
        Some((FlowKey { narrow, wide, ports, tags }, header.flags()))
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
            offered: None,
            is_agreed,
            has_accurate_ecn,
            is_open,
            is_closing,
            is_judged,
            touched: now,
        }
    }

    /// What the wide host's SYN with this sequence number announced, if it passed.
    fn asked(&self, seq: u32) -> Option<End> {
        let offered = self.offered.filter(|offer| offer.toward == Toward::Narrow).map(|offer| offer.end);
        let began = Some(self.wide).filter(|wide| wide.opened && !wide.is_stale);
        offered.into_iter().chain(began).find(|end| end.seq == seq)
    }

    /// How long packets toward this side may be; none where their receiver announced nothing.
    fn limit(&self, toward: Toward) -> Option<SegmentLimit> {
        let receiver = self.receiver(toward);
        let is_settled = self.is_agreed && !(self.is_closing && self.offered.is_some());
        let offered = self.offered.filter(|offer| !is_settled && offer.toward != toward);
        let end = offered.map_or(*receiver, |offer| receiver.least(&offer.end));
        let may_grow = is_settled && !end.is_below_floor;
        (receiver.len_max > 0).then_some(SegmentLimit { len_max: end.len_max, may_grow })
    }

    /// A SYN came: says whether it changed what is known. Of several that may begin the connection, each may be the one that does.
    fn open(&mut self, announced: &Announced, ip: &Ip, toward: Toward) -> bool {
        let lives = self.is_agreed;
        let end = self.sender(toward);
        let is_again = end.len_max > 0 && !end.is_stale && end.seq == announced.seq;
        if lives && !is_again {
            self.offered = Some(Offer::of(announced, ip, toward));
            return false;
        }
        let offer = Offer::of(announced, ip, toward);
        let is_first = end.len_max == 0 || end.is_stale;
        if is_first || is_again {
            let least = if is_first { offer.end } else { end.least(&offer.end) };
            *end = End { opened: true, has_passed: true, has_answered: end.has_answered, ..least };
            self.has_accurate_ecn = offer.accurate_ecn_field == ACCURATE_ECN_ASKED;
        } else {
            (end.opened, end.has_passed) = (true, true);
            self.offered = Some(offer);
        }
        !lives
    }

    /// A SYN-ACK came: says whether it changed what is known.
    fn answer(&mut self, announced: &Announced, ip: &Ip, toward: Toward) -> bool {
        // A forged end proves nothing: until a handshake is whole, the connection before it counts.
        let lives = self.is_agreed;
        let answered = announced.ack.wrapping_sub(1);
        let offered = self.offered.filter(|offer| offer.toward != toward && offer.end.seq == answered);
        let receiver = self.receiver(toward);
        let is_known = receiver.len_max > 0 && !receiver.is_stale && receiver.opened && receiver.seq == answered;
        let end = Offer::of(announced, ip, toward).end;
        let asked = match offered {
            Some(offer) => offer.accurate_ecn_field == ACCURATE_ECN_ASKED,
            None => self.has_accurate_ecn,
        };
        let sender = self.sender(toward);
        let is_again = sender.len_max > 0 && !sender.is_stale && sender.seq == announced.seq;
        let passed = End { has_passed: true, opened: sender.opened, ..end };
        match (offered, is_known) {
            _ if lives && offered.is_none() && !(is_known && is_again) => return false,
            (Some(offer), _) => {
                *self.sender(toward) = End { has_passed: true, ..end };
                *self.receiver_mut(toward) = offer.end;
            }
            (None, true) => *sender = if is_again { sender.least(&passed) } else { passed },
            // Its SYN went another way: what it announces holds, and nothing becomes longer.
            (None, false) => {
                let least = if sender.len_max == 0 || sender.is_stale { passed } else { sender.least(&passed) };
                *sender = End { has_answered: true, ..least };
                return true;
            }
        }
        self.offered = None;
        if offered.is_some() {
            (self.is_open, self.is_closing, self.is_judged) = (false, false, false);
        }
        self.is_agreed = true;
        self.has_accurate_ecn = asked && ACCURATE_ECN_ANSWERS.contains(&announced.accurate_ecn_field);
        true
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

impl End {
    /// This, as far as both announcements allow.
    fn least(&self, other: &End) -> End {
        End {
            len_max: self.len_max.min(other.len_max),
            is_below_floor: self.is_below_floor || other.is_below_floor,
            is_fast_open: self.is_fast_open || other.is_fast_open,
            ..*self
        }
    }
}

impl Offer {
    fn of(announced: &Announced, ip: &Ip, toward: Toward) -> Offer {
        let floor = ip.mss_default();
        let end = End {
            len_max: announced.mss.max(floor).saturating_add(headers_len(ip)),
            is_below_floor: announced.mss < floor,
            seq: announced.seq,
            opened: announced.opens,
            has_passed: true,
            is_fast_open: announced.is_fast_open,
            ..End::default()
        };
        Offer { toward, end, accurate_ecn_field: announced.accurate_ecn_field }
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
