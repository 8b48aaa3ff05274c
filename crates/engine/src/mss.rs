//! TCP packets -> the largest size their receiver accepts; SYNs with the MSS rewritten.
//!
//! A border rewrites the MSS of each SYN. Toward the wide side it is raised, so that hosts there send wide
//! segments, which are segmented here. Toward the narrow side it is lowered, so that hosts there send packets that
//! fit their links. The MSS that each host announced is remembered with its [handshake](crate::handshake), and its
//! limit is set on every packet to that host. So neither segmentation nor coalescing makes a segment longer than
//! its receiver announced. A connection whose SYN was not seen (it is older than this process, or was forgotten)
//! keeps to lengths that are safe without knowledge.
//!
//! Raising is right only where the wide host's packets will pass here. A SYN-ACK is raised if its SYN passed here.
//! A SYN is raised if the same wide host recently sent something to the same network through here. This is wrong
//! where the route has changed since. The wide host's segments are then too long for the other route, until an ICMP
//! error or a time-out makes them shorter. Such a flow shows in its handshake, which goes on although the SYN-ACK
//! never passed here. For an hour, no SYN from that network is raised toward that host. An attacker that forges two
//! segments of such a handshake suppresses raising for the network that it claims to be in, and nothing else.
//!
//! Hosts that use TCP Fast Open remember the MSS for SYNs with data, which cannot be segmented. They are told the
//! narrow host's own MSS (RFC 7413 section 4.1.3).
//!
//! SYNs that are damaged, signed (RFC 2385, RFC 5925, RFC 4302), in fragments or without one clear MSS pass
//! unchanged.

use crate::flows::{FlowKey, FlowTable, Found, SHORT_TIMEOUT, TIMEOUT};
use crate::handshake::{Handshake, headers_len};
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Ledger, Tally};
use crate::raised::Raised;
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::time::Duration;
use packet::{Address, Damaged, Ip, MssOption, Packet, SegmentLimit, Time, tcp};

/// Rewrites the MSS of SYNs that cross a border, and sets the limit of the packets of each connection.
#[derive(Debug)]
pub(crate) struct Mss {
    pub(crate) border: Border,
    pairs: FairTable<PairKey, Pair>,
    /// Connections with a raised MSS that may go on, and whose state was forgotten.
    pub(crate) forgotten_count: u64,
}

/// The fields of a TCP header that a border needs.
#[derive(Clone, Copy, Debug)]
struct Said {
    flags: u8,
    seq: u32,
    ack: u32,
}

/// The settings of a border between wide packets and narrow ones.
#[derive(Clone, Debug)]
pub struct Border {
    /// Longest packet of the wide side, in bytes, including the IP header.
    pub wide_mtu: u16,
    /// Longest packet of the narrow side, in bytes, including the IP header.
    pub narrow_mtu: u16,
    /// Which SYNs toward the wide side get a raised MSS.
    pub raise: Raise,
    /// Longest packet toward a narrow host whose SYN was not seen, in bytes, including the IP header; see
    /// [`SAFE_LEN`].
    pub safe_len: u16,
}

impl Border {
    /// The defaults between links of these MTUs, in bytes.
    pub fn usual(wide_mtu: u16, narrow_mtu: u16) -> Border {
        Border { wide_mtu, narrow_mtu, raise: Raise::default(), safe_len: SAFE_LEN.min(narrow_mtu) }
    }

    /// Size limit, in bytes, for TCP packets toward this side whose receiver is unknown. For narrow hosts it is a
    /// safe length; for wide hosts, the longest packet that their peer may have sent.
    pub fn unknown_len_max(&self, toward: Toward) -> u16 {
        match toward {
            Toward::Wide => self.narrow_mtu,
            Toward::Narrow => self.safe_len,
        }
    }
}

/// Which SYNs toward the wide side get a raised MSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raise {
    /// None.
    Never,
    /// Those of hosts whose packets were seen in both directions.
    #[default]
    BothWays,
    /// All: there is no other route.
    Always,
}

/// A wide host, and the network of a narrow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairKey {
    site: Address,
    wide: Address,
    tags: u64,
}

/// The routes between them, as far as known.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// When a packet from the wide host last passed.
    passed: Option<Time>,
    /// When the wide host last proved to send by another route.
    bypassed: Option<Time>,
}

impl Mss {
    /// A new one that remembers host pairs within `limit` bytes.
    pub(crate) fn new(limit: usize, border: Border, secret: Secret) -> Mss {
        Mss { border, pairs: FairTable::new(limit, &[BYPASS_TIMEOUT], secret), forgotten_count: 0 }
    }

    /// Sets the key of the pair table, before the first entry.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.pairs.set_key(key);
    }

    /// Takes the lengths and limit of another, and keeps its own entries. Above the limit the oldest pairs are
    /// removed.
    pub(crate) fn go_on_as(&mut self, other: Mss) {
        self.border = other.border;
        self.pairs.set_limit(other.pairs.limit());
        self.keep_pairs_limit();
    }

    /// Sees a packet before the side that it leaves by. Rewrites the MSS of a SYN, and sets the receiver's limit on
    /// any whole TCP packet.
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

    /// Limit of packets toward this side, in a known connection or an unknown one.
    #[inline]
    pub(crate) fn limit(&self, handshake: Option<&Handshake>, toward: Toward) -> SegmentLimit {
        let unknown = SegmentLimit { len_max: self.border.unknown_len_max(toward), may_grow: false };
        handshake.and_then(|handshake| handshake.limit(toward)).unwrap_or(unknown)
    }

    /// Records that a connection goes on toward this side.
    pub(crate) fn on_offloaded(&mut self, now: Time, at: Handle, toward: Toward, flows: &mut FlowTable) {
        self.refresh(now, at, tcp::ACK, toward, flows);
    }

    /// Counts a forgotten connection whose wide host may go on to send packets that are too long.
    pub(crate) fn forgot(&mut self, handshake: &Handshake) {
        let goes_on = (handshake.is_agreed || handshake.is_open) && !handshake.is_closing;
        self.forgotten_count += u64::from(handshake.raised.is_some() && goes_on);
    }

    /// Removes pairs that timed out.
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

    /// The memory limit for host pairs, in bytes.
    pub(crate) fn pairs_limit(&self) -> usize {
        self.pairs.limit()
    }

    /// Takes a SYN or SYN-ACK: remembers its sender's announcement, and writes another one.
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

    /// Records a connection that began unseen and whose wide host sends packets above the narrow MTU. Its MSS was
    /// raised before this process began. Its receiver's limit stays unknown.
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
        flows.refresh(now, at, SHORT_TIMEOUT);
        Some(at)
    }

    /// Remembers the MSS that a wide host was told, and its link header.
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

    /// The largest MSS toward this side: its MTU less the headers, and no less than every host accepts (R113).
    fn mss_toward(&self, toward: Toward, ip: &Ip) -> u16 {
        let mtu = match toward {
            Toward::Wide => self.border.wide_mtu,
            Toward::Narrow => self.border.narrow_mtu,
        };
        mtu.saturating_sub(headers_len(ip)).max(ip.mss_default())
    }

    /// The MSS that wide hosts are told where a narrow one announces this: the longest that fits the wide side, or
    /// a shorter one.
    ///
    /// If the longest segment is no whole number of narrow ones, it ends in a short one. Where that costs more
    /// packets for each byte, wide and narrow together, the longest whole number is announced instead. It has to be
    /// at least two.
    ///
    /// A receiver with a small buffer opens a window that may be shorter than a long segment. Its sender would then
    /// wait for its timer before each segment (RFC 9293 section 3.8.6.2.1). So a small first window has to hold at
    /// least four segments, or nothing is raised.
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

    /// Whether this SYN may announce wide segments to the wide side.
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

    /// Takes a packet of an open connection, or of an unknown one.
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

    /// Takes a packet of a connection without a known handshake.
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

    /// Counts packets that are too long for an unknown narrow host.
    #[inline]
    fn note_unknown(&self, packet: &Packet, toward: Toward, ledger: &mut Ledger) {
        if toward == Toward::Narrow && packet.wire_len() > usize::from(self.border.safe_len) {
            ledger.note(Event::MssUnknown, Tally::of(packet));
        }
    }

    /// Restarts a connection's time-out, at most once in [`MOMENT`]. Moves a connection that has opened to the
    /// reserve, so that others are evicted before it.
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
        flows.refresh(now, at, if lasts { TIMEOUT } else { SHORT_TIMEOUT });
        if opens {
            flows.move_to_reserve(at);
        }
        if toward == Toward::Narrow {
            self.note_wide(now, flows.key(at));
        }
    }

    /// Records that a packet from a wide host passed.
    fn note_wide(&mut self, now: Time, key: FlowKey) {
        self.pair(now, key).passed = Some(now);
        self.keep_pairs_limit();
    }

    /// Records that a packet from a wide host took another route.
    fn bypass(&mut self, now: Time, key: FlowKey, packet: &Packet, ledger: &mut Ledger) {
        ledger.note(Event::MssAsymmetric, Tally::of(packet));
        self.pair(now, key).bypassed = Some(now);
        self.keep_pairs_limit();
    }

    /// Whether this wide host's packets to this network pass here, as far as is known.
    fn both_pass(&mut self, now: Time, key: FlowKey) -> bool {
        let Some(at) = self.pairs.find(&PairKey::of(&key)) else { return false };
        let within = |moment: Option<Time>, timeout| moment.is_some_and(|moment| now.since(moment) < timeout);
        let pair = *self.pairs.slot_mut(at);
        within(pair.passed, PASS_TIMEOUT) && !within(pair.bypassed, BYPASS_TIMEOUT)
    }

    /// The entry of a connection's host pair, created if it is new.
    fn pair(&mut self, now: Time, key: FlowKey) -> &mut Pair {
        let key = PairKey::of(&key);
        let at = match self.pairs.find(&key) {
            Some(at) => at,
            None => self.pairs.insert(now, key, Pair::default(), PAIR_CHARGE, BYPASS_TIMEOUT),
        };
        self.pairs.refresh(now, at, BYPASS_TIMEOUT);
        self.pairs.slot_mut(at)
    }

    fn keep_pairs_limit(&mut self) {
        while let Some(at) = self.pairs.over_limit() {
            self.pairs.remove(at);
        }
    }
}

/// Remembers the announcement of a SYN's sender. Returns the handshake as it was before.
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
    // A SYN that changed nothing does not change the time-out either.
    if is_new || begins || !before.is_agreed {
        handshake.touched = now;
        flows.refresh(now, at, SHORT_TIMEOUT);
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

/// Longest TCP packet toward an unknown host, in bytes. Every IPv6 link takes 1,280 (RFC 8200 section 5). An IPv4
/// packet may be translated to IPv6 on its way. It is 20 bytes longer then, and may have a Fragment header of 8
/// (RFC 7915 section 4.1).
pub const SAFE_LEN: u16 = 1_280 - 20 - 8;
/// Raised segments that a small first window of a receiver has to hold.
const SEGMENTS_IN_WINDOW: u32 = 4;
/// A first window from here on is expected to grow: half the maximum of a SYN, in bytes.
const WINDOW_SMALL: u16 = 1 << 15;
/// How long a packet that passed proves its route. Routes change, but seldom within minutes.
const PASS_TIMEOUT: Duration = Duration::from_secs(600);
/// How long nothing is raised between a host and a network whose packets took another route.
const BYPASS_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Shortest interval between restarts of a connection's time-out.
const MOMENT: Duration = Duration::from_secs(1);
/// Charge of a pair, in bytes: its slot, its source and their places in tables.
const PAIR_CHARGE: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_pair_changes_its_hash() {
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
