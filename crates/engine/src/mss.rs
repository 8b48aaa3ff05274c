//! A border's connections -> how long their packets may be; SYNs with another MSS.
//!
//! Where wide packets meet narrow ones, the MSS of each SYN is changed: raised toward the wide side, so that hosts there send
//! wide segments, which are cut here; lowered toward the narrow side, so that hosts there send what their links carry. What
//! each host announced itself is remembered with its [handshake](crate::handshake), and marked on every packet to it: no cut,
//! and no join, makes a segment longer than its receiver announced. A connection whose SYN did not pass (this side began
//! later, or had to forget it) is kept to lengths that are safe without knowledge.
//!
//! Raising is right only where what the wide host sends will come through here. A SYN-ACK is raised where its SYN came
//! through; a SYN, where something that the same wide host sent to the same network came through not long ago. It is wrong
//! where that way has changed since: the wide host's segments are then too long for the other way, and it takes an ICMP error
//! or a time-out to make them shorter. Such a flow shows in its handshake, which goes on though the SYN-ACK never came through;
//! for an hour no SYN from that network is raised toward that host. Who forges two segments of such a handshake
//! suppresses raising for the network that it claims to be in, and nothing else.
//!
//! Hosts that open with TCP Fast Open remember the MSS that they were told, for SYNs with data, which cannot be cut: they are
//! told what the narrow host announced (RFC 7413 section 4.1.3).
//!
//! SYNs that are damaged, signed (RFC 2385, RFC 5925, RFC 4302), in fragments or without one clear MSS pass untouched.

use crate::flows::{FlowKey, FlowTable, Found, PATIENCE, SHORT_PATIENCE};
use crate::handshake::{Handshake, headers_len};
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Ledger, Tally};
use crate::raised::Raised;
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::time::Duration;
use packet::{Address, Damaged, Ip, MssOption, Packet, SegmentLimit, Time, tcp};

/// Changes the MSS of SYNs that cross a border, and marks how long the packets of each connection may be.
#[derive(Debug)]
pub(crate) struct Mss {
    pub(crate) border: Border,
    pairs: FairTable<PairKey, Pair>,
    /// Connections with a raised MSS that may go on, and of which nothing is known any more.
    pub(crate) forgotten_count: u64,
}

/// What a TCP header says, as far as a border needs it.
#[derive(Clone, Copy, Debug)]
struct Said {
    flags: u8,
    seq: u32,
    ack: u32,
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
    /// One that remembers pairs of hosts within `limit` bytes.
    pub(crate) fn new(limit: usize, border: Border, secret: Secret) -> Mss {
        Mss { border, pairs: FairTable::new(limit, &[BYPASS_PATIENCE], secret), forgotten_count: 0 }
    }

    /// Finds pairs by this key; before any is known.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.pairs.set_key(key);
    }

    /// Goes on with the lengths and limit of another, and what it knows itself; beyond the limit the oldest goes.
    pub(crate) fn go_on_as(&mut self, other: Mss) {
        self.border = other.border;
        self.pairs.set_limit(other.pairs.limit());
        self.keep_pairs_limit();
    }

    /// Sees a packet before the side that it leaves by takes it: changes the MSS of a SYN, and marks any whole TCP packet with
    /// the length that its receiver takes.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        now: Time,
        packet: &mut Packet,
        found: &mut Found,
        toward: Toward,
        flows: &mut FlowTable,
        ledger: &mut Ledger,
    ) {
        let said = match found {
            Found::Alike { tcp, .. } => Said { flags: tcp::ACK, seq: tcp.seq, ack: tcp.ack },
            _ => {
                let Some(facts) = found.facts() else { return };
                Said { flags: facts.flags, seq: facts.seq, ack: facts.ack }
            }
        };
        if said.flags & tcp::SYN == 0 {
            return self.follow(now, found, said, packet, toward, flows, ledger);
        }
        match MssOption::by(packet) {
            Some(Ok(announced)) => self.on_syn(now, found, announced, packet, toward, flows, ledger),
            Some(Err(Damaged)) => ledger.note(Event::MssUntouched, Tally::of(packet)),
            None => {}
        }
    }

    /// How long packets toward this side may be in a connection, or in one that is not known.
    #[inline]
    pub(crate) fn limit(&self, handshake: Option<&Handshake>, toward: Toward) -> SegmentLimit {
        let unknown = SegmentLimit { len_max: self.border.unknown_len_max(toward), may_grow: false };
        handshake.and_then(|handshake| handshake.limit(toward)).unwrap_or(unknown)
    }

    /// A connection goes on toward this side.
    pub(crate) fn on_offloaded(&mut self, now: Time, at: Handle, toward: Toward, flows: &mut FlowTable) {
        self.refresh(now, at, tcp::ACK, toward, flows);
    }

    /// Counts a connection that is forgotten, where its wide host may go on to send what is too long.
    pub(crate) fn forgot(&mut self, handshake: &Handshake) {
        let goes_on = (handshake.is_agreed || handshake.is_open) && !handshake.is_closing;
        self.forgotten_count += u64::from(handshake.raised.is_some() && goes_on);
    }

    /// Forgets pairs that are late.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(at) = self.pairs.overdue(now) {
            self.pairs.remove(at);
        }
    }

    /// When [`expire`](Mss::expire) next has work.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.pairs.next_deadline()
    }

    /// Bytes charged against the limit.
    pub(crate) fn charged(&self) -> usize {
        self.pairs.charged()
    }

    /// The limit for pairs of hosts, in bytes.
    pub(crate) fn pairs_limit(&self) -> usize {
        self.pairs.limit()
    }

    /// A SYN or SYN-ACK: its sender's announcement is remembered, and another one goes on.
    #[expect(clippy::too_many_arguments, reason = "all that a handshake changes")]
    fn on_syn(
        &mut self,
        now: Time,
        found: &mut Found,
        announced: MssOption,
        packet: &mut Packet,
        toward: Toward,
        flows: &mut FlowTable,
        ledger: &mut Ledger,
    ) {
        let Some(at) = flows.open(now, packet, found) else { return };
        let key = flows.key(at);
        let before = remember(now, at, &announced, packet.ip(), toward, flows);
        let (wanted, may_change) = match toward {
            Toward::Narrow => {
                self.note_wide(now, key);
                (self.mss_toward(toward, packet.ip()).min(announced.mss), true)
            }
            Toward::Wide => {
                let wanted = self.raised(&announced, packet.ip());
                (wanted, self.may_raise(now, key, &before, &announced))
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
            self.note_raised(at, &before, &announced, wanted, packet, flows);
        }
    }

    /// A wide host sends what is longer than the narrow side takes in a connection whose beginning did not pass: it was told so before this
    /// was here. What its receiver takes is not known by that.
    fn notice(
        &self,
        now: Time,
        found: &mut Found,
        packet: &Packet,
        toward: Toward,
        flows: &mut FlowTable,
    ) -> Option<Handle> {
        let len = packet.wire_len().min(usize::from(self.border.wide_mtu)) as u16;
        if toward != Toward::Narrow || len <= self.border.narrow_mtu {
            return None;
        }
        let at = flows.open(now, packet, found)?;
        let raised = Raised::of_sender(packet, len);
        flows.set_handshake(at, Handshake { raised: Some(raised), ..Handshake::new(now) });
        flows.refresh(now, at, SHORT_PATIENCE);
        Some(at)
    }

    /// Remembers what a wide host was told, and how it is reached.
    fn note_raised(
        &self,
        at: Handle,
        before: &Handshake,
        announced: &MssOption,
        mss: u16,
        packet: &Packet,
        flows: &mut FlowTable,
    ) {
        let len = mss.saturating_add(headers_len(packet.ip()));
        let Some(handshake) = flows.handshake_mut(at).filter(|_| len > self.border.narrow_mtu) else {
            return;
        };
        let acked = before.raised.filter(|_| handshake.is_same(before)).and_then(|raised| raised.acked);
        let acked = acked.or((!announced.opens).then_some(announced.ack));
        handshake.raised = Some(Raised::new(packet, len, acked));
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
    fn raised(&self, announced: &MssOption, ip: &Ip) -> u16 {
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

    /// May this SYN announce wide segments to the wide side?
    fn may_raise(&mut self, now: Time, key: FlowKey, before: &Handshake, announced: &MssOption) -> bool {
        let asked = before.asked(announced.ack.wrapping_sub(1));
        let both_pass = if announced.opens { self.both_pass(now, key) } else { asked.is_some() };
        match self.border.raise {
            _ if !announced.opens && asked.is_some_and(|wide| wide.is_fast_open) => false,
            Raise::Never => false,
            Raise::BothWays => both_pass,
            Raise::Always => true,
        }
    }

    /// A packet of a connection that is open, or of which nothing is known.
    #[expect(clippy::too_many_arguments, reason = "all that a packet tells")]
    #[inline]
    fn follow(
        &mut self,
        now: Time,
        found: &mut Found,
        said: Said,
        packet: &mut Packet,
        toward: Toward,
        flows: &mut FlowTable,
        ledger: &mut Ledger,
    ) {
        let at = found.at().filter(|at| flows.handshake(*at).is_some());
        let handshake = at.and_then(|at| flows.handshake_mut(at));
        let Some((at, handshake)) = at.zip(handshake) else {
            return self.follow_unknown(now, found, said, packet, toward, flows, ledger);
        };
        handshake.doubt(said.flags, said.seq, said.ack, toward);
        packet.segment_limit = Some(self.limit(Some(handshake), toward));
        packet.has_accurate_ecn = handshake.has_accurate_ecn;
        if handshake.receiver(toward).len_max == 0 {
            self.note_unknown(packet, toward, ledger);
        }
        if handshake.goes_on(said.flags, said.ack, toward) {
            let key = flows.key(at);
            self.bypass(now, key, packet, ledger);
        }
        self.refresh(now, at, said.flags, toward, flows);
    }

    /// Nothing was announced in its connection.
    #[expect(clippy::too_many_arguments, reason = "all that a packet tells")]
    fn follow_unknown(
        &mut self,
        now: Time,
        found: &mut Found,
        said: Said,
        packet: &mut Packet,
        toward: Toward,
        flows: &mut FlowTable,
        ledger: &mut Ledger,
    ) {
        packet.segment_limit = Some(self.limit(None, toward));
        packet.has_accurate_ecn = false;
        self.note_unknown(packet, toward, ledger);
        let Some(at) = self.notice(now, found, packet, toward, flows) else { return };
        if let Some(handshake) = flows.handshake_mut(at) {
            handshake.goes_on(said.flags, said.ack, toward);
        }
        self.refresh(now, at, said.flags, toward, flows);
    }

    /// Counts what is too long for a narrow host of which nothing is known.
    #[inline]
    fn note_unknown(&self, packet: &Packet, toward: Toward, ledger: &mut Ledger) {
        if toward == Toward::Narrow && packet.wire_len() > usize::from(self.border.safe_len) {
            ledger.note(Event::MssUnknown, Tally::of(packet));
        }
    }

    /// A connection lives as long as packets of it pass; a moment more or less does not matter. One that has opened is
    /// forgotten after those that have not.
    #[inline]
    fn refresh(&mut self, now: Time, at: Handle, flags: u8, toward: Toward, flows: &mut FlowTable) {
        let Some(handshake) = flows.handshake_mut(at) else { return };
        let closes = flags & (tcp::FIN | tcp::RST) != 0 && !handshake.is_closing;
        let opens = !handshake.is_open && handshake.narrow.has_passed && handshake.wide.has_passed;
        if now.since(handshake.touched) < MOMENT && !closes && !opens {
            return;
        }
        handshake.is_closing |= closes;
        handshake.is_open |= opens;
        handshake.touched = now;
        let lasts = handshake.is_open && !handshake.is_closing;
        flows.refresh(now, at, if lasts { PATIENCE } else { SHORT_PATIENCE });
        if opens {
            flows.move_to_reserve(at);
        }
        if toward == Toward::Narrow {
            self.note_wide(now, flows.key(at));
        }
    }

    /// Something that a wide host sent passes.
    fn note_wide(&mut self, now: Time, key: FlowKey) {
        self.pair(now, key).passed = Some(now);
        self.keep_pairs_limit();
    }

    /// Something that a wide host sent went by another way.
    fn bypass(&mut self, now: Time, key: FlowKey, packet: &Packet, ledger: &mut Ledger) {
        ledger.note(Event::MssAsymmetric, Tally::of(packet));
        self.pair(now, key).bypassed = Some(now);
        self.keep_pairs_limit();
    }

    /// Does what this wide host sends to this network pass, as far as can be told?
    fn both_pass(&mut self, now: Time, key: FlowKey) -> bool {
        let Some(at) = self.pairs.find(&PairKey::of(&key)) else { return false };
        let within = |moment: Option<Time>, patience| moment.is_some_and(|moment| now.since(moment) < patience);
        let pair = *self.pairs.slot_mut(at);
        within(pair.passed, PASS_PATIENCE) && !within(pair.bypassed, BYPASS_PATIENCE)
    }

    /// What is known of the ways that a connection may go, to be changed.
    fn pair(&mut self, now: Time, key: FlowKey) -> &mut Pair {
        let key = PairKey::of(&key);
        let at = match self.pairs.find(&key) {
            Some(at) => at,
            None => self.pairs.insert(now, key, Pair::default(), PAIR_CHARGE, BYPASS_PATIENCE),
        };
        self.pairs.refresh(now, at, BYPASS_PATIENCE);
        self.pairs.slot_mut(at)
    }

    fn keep_pairs_limit(&mut self) {
        while let Some(at) = self.pairs.over_limit() {
            self.pairs.remove(at);
        }
    }
}

/// Remembers what a SYN's sender takes. What the handshake was before is returned.
fn remember(
    now: Time,
    at: Handle,
    announced: &MssOption,
    ip: &Ip,
    toward: Toward,
    flows: &mut FlowTable,
) -> Handshake {
    let is_new = flows.handshake(at).is_none();
    if is_new {
        flows.set_handshake(at, Handshake::new(now));
    }
    let Some(handshake) = flows.handshake_mut(at) else { panic!("it was set") };
    if announced.opens && handshake.is_closing && !handshake.is_agreed {
        *handshake = handshake.anew(now);
    }
    let before = *handshake;
    let begins = if announced.opens {
        handshake.open(announced, ip, toward)
    } else {
        handshake.answer(announced, ip, toward)
    };
    // Where it changed nothing, it makes nothing last longer or shorter.
    if is_new || begins || !before.is_agreed {
        handshake.touched = now;
        flows.refresh(now, at, SHORT_PATIENCE);
    }
    before
}

impl PairKey {
    fn of(key: &FlowKey) -> PairKey {
        PairKey { site: key.narrow.site(), wide: key.wide, tags: key.tags }
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

/// Longest TCP packet toward a host of which nothing is known, in bytes. Every IPv6 link takes 1,280 (RFC 8200 section 5); an
/// IPv4 packet may become an IPv6 one on its way, which is 20 bytes longer and may have a Fragment header of 8 (RFC 7915
/// section 4.1).
pub const SAFE_LEN: u16 = 1_280 - 20 - 8;
/// Segments that the first window of a receiver holds, at least, where it is small and they are raised.
const SEGMENTS_IN_WINDOW: u32 = 4;
/// From here on a window is taken for the start of one that grows: half of what a SYN can say, in bytes.
const WINDOW_SMALL: u16 = 1 << 15;
/// How long what passed tells which way packets go. Routes change, but seldom within minutes.
const PASS_PATIENCE: Duration = Duration::from_secs(600);
/// How long nothing is raised between a host and a network whose packets were seen to go by another way.
const BYPASS_PATIENCE: Duration = Duration::from_secs(3_600);
/// How often a connection's life is lengthened, at most.
const MOMENT: Duration = Duration::from_secs(1);
/// What a pair is charged, in bytes: its slot, its source and their places in tables.
const PAIR_CHARGE: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_pairs_name_moves_its_place() {
        let table = TableKey::new(Secret::new(5));
        let address = |site| Address::from(core::net::IpAddr::from([10, 0, site, 1]));
        let pair = PairKey { site: address(1), wide: address(2), tags: 0 };
        let others = [
            PairKey { site: address(3), ..pair },
            PairKey { wide: address(3), ..pair },
            PairKey { tags: 1, ..pair },
        ];
        others.iter().for_each(|other| assert_ne!(other.hash(&table), pair.hash(&table), "{other:?}"));
    }
}
