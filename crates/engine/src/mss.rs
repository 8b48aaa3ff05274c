//! TCP packets -> the largest size that their receiver accepts; SYNs with the MSS rewritten.
//!
//! A border rewrites the MSS of each SYN. Toward the wide side the MSS is raised, so that hosts there send wide
//! segments. The border splits these segments. Toward the narrow side the MSS is lowered, so that hosts there send
//! packets that fit their links. The MSS that each host announced is stored with its [handshake](crate::handshake).
//! It limits every packet to that host. So neither segmentation nor coalescing makes a segment longer than its
//! receiver announced. A connection may have begun before this process, or its state may have been evicted. The
//! packets of such a connection are limited to lengths that are safe for unknown receivers.
//!
//! Raising is correct only if the wide host's packets cross this border. The MSS of a SYN-ACK is raised if its SYN
//! was received here. The MSS of a SYN is raised if the same wide host recently sent a packet to the same network
//! through this border. The decision is wrong if the route has changed since. The wide host's segments are then too
//! long for the other route, until an ICMP error or a time-out makes them shorter. The border recognizes such a
//! connection, because its handshake is completed although the SYN-ACK was never received here. For the next hour,
//! no SYN from that network toward that host is raised. An attacker can forge two segments of such a handshake.
//! Such a forgery suppresses raising only for the network of the forged source address.
//!
//! Hosts that use TCP Fast Open store the MSS for later SYNs with data, which cannot be segmented. So a SYN-ACK to
//! such a host keeps the narrow host's own MSS (RFC 7413 section 4.1.3).
//!
//! Some SYNs are forwarded unchanged: damaged SYNs, signed SYNs (RFC 2385, RFC 5925, RFC 4302), SYNs in fragments,
//! and SYNs without exactly one valid MSS.

use crate::flows::{FlowKey, FlowTable, Found, SHORT_TIMEOUT, TIMEOUT};
use crate::handshake::{Handshake, SegmentNumbers, headers_len};
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Ledger, Tally};
use crate::raised::Raised;
use crate::rules::AckPolicy;
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::time::Duration;
use packet::{Address, Damaged, Ip, MssOption, Packet, SegmentLimit, Time, tcp};

/// Rewrites the MSS of SYNs at a border, and sets the size limit of each connection's packets.
#[derive(Debug)]
pub(crate) struct Mss {
    pub(crate) border: Border,
    pairs: FairTable<PairKey, Pair>,
    /// Number of connections with a raised MSS that were evicted and may still be in use.
    pub(crate) forgotten_count: u64,
}

/// The settings of a border between a wide and a narrow side.
#[derive(Clone, Debug)]
pub struct Border {
    /// The MTU of the wide side, in bytes, including the IP header.
    pub wide_mtu: u16,
    /// The MTU of the narrow side, in bytes, including the IP header.
    pub narrow_mtu: u16,
    /// The SYNs toward the wide side whose MSS is raised.
    pub raise: Raise,
    /// Size limit for packets toward a narrow host whose SYN was not seen, in bytes, including the IP header; see
    /// [`SAFE_LEN`].
    pub safe_len: u16,
    /// The treatment of acknowledgements.
    pub acks: AckPolicy,
    /// Memory limit for data that is acknowledged early, in bytes. Only for [`AckPolicy::Early`], which needs at least
    /// [`ACK_STORE_MIN`](crate::ACK_STORE_MIN).
    pub ack_store: usize,
}

impl Border {
    /// Returns the defaults for links of these MTUs, in bytes.
    pub fn usual(wide_mtu: u16, narrow_mtu: u16) -> Border {
        Border {
            wide_mtu,
            narrow_mtu,
            raise: Raise::default(),
            safe_len: SAFE_LEN.min(narrow_mtu),
            acks: AckPolicy::default(),
            ack_store: 0,
        }
    }

    /// Returns the size limit for TCP packets toward this side whose receiver is unknown, in bytes. For narrow
    /// hosts, it is a safe length. For wide hosts, it is the length of the longest packet that their peer may have
    /// sent.
    pub fn unknown_len_max(&self, toward: Toward) -> u16 {
        match toward {
            Toward::Wide => self.narrow_mtu,
            Toward::Narrow => self.safe_len,
        }
    }
}

/// The SYNs toward the wide side whose MSS is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raise {
    /// No SYN.
    Never,
    /// SYNs of connections whose packets cross the border in both directions, as far as is known.
    #[default]
    BothWays,
    /// All SYNs, for networks without another route.
    Always,
}

/// A wide host, and the network of a narrow host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairKey {
    site: Address,
    wide: Address,
    tags: u64,
}

/// The known routes between a wide host and a narrow network.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// The time of the last packet from the wide host through this border. `None` if there was none.
    passed: Option<Time>,
    /// The time of the last proof that the wide host sends by another route. `None` if there was none.
    bypassed: Option<Time>,
}

impl Mss {
    /// Creates an MSS stage whose host pairs use at most `limit` bytes.
    pub(crate) fn new(limit: usize, border: Border, secret: Secret) -> Mss {
        Mss { border, pairs: FairTable::new(limit, &[BYPASS_TIMEOUT], secret), forgotten_count: 0 }
    }

    /// Sets the hash key of the pair table. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.pairs.set_key(key);
    }

    /// Adopts the settings and the limit of another MSS stage, and keeps its own host pairs. The oldest pairs above
    /// the limit are removed.
    pub(crate) fn go_on_as(&mut self, other: Mss) {
        self.border = other.border;
        self.pairs.set_limit(other.pairs.limit());
        self.keep_pairs_limit();
    }

    /// Handles a packet before the stages of the side that the packet is sent to. Rewrites the MSS of a SYN. Sets
    /// the receiver's limit on every unfragmented TCP packet.
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
        let Some(said) = found.numbers() else { return };
        if said.flags & tcp::SYN == 0 {
            return self.follow(now, found, said, packet, toward, flows, ledger);
        }
        match MssOption::by(packet) {
            Some(Ok(announced)) => self.on_syn(now, found, announced, packet, toward, flows, ledger),
            Some(Err(Damaged)) => ledger.note(Event::MssUntouched, Tally::of(packet)),
            None => {}
        }
    }

    /// Returns the size limit of packets toward this side, for a known or unknown connection.
    #[inline]
    pub(crate) fn limit(&self, handshake: Option<&Handshake>, toward: Toward) -> SegmentLimit {
        let len_max = self.border.unknown_len_max(toward);
        let unknown = SegmentLimit::new(len_max, false);
        handshake.and_then(|handshake| handshake.limit(toward)).unwrap_or(unknown)
    }

    /// Records that an offloaded connection sends packets toward this side.
    pub(crate) fn on_offloaded(&mut self, now: Time, at: Handle, toward: Toward, flows: &mut FlowTable) {
        self.refresh(now, at, tcp::ACK, toward, flows);
    }

    /// Counts an evicted connection whose wide host may continue to send packets above the narrow MTU.
    pub(crate) fn forgot(&mut self, handshake: &Handshake) {
        let goes_on = (handshake.is_agreed || handshake.is_open) && !handshake.is_closing;
        self.forgotten_count += u64::from(handshake.raised.is_some() && goes_on);
    }

    /// Removes host pairs that timed out.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(at) = self.pairs.overdue(now) {
            self.pairs.remove(at);
        }
    }

    /// Returns the time at which [`expire`](Mss::expire) next has work.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.pairs.next_deadline()
    }

    /// Returns the bytes charged against the limit.
    pub(crate) fn charged(&self) -> usize {
        self.pairs.charged()
    }

    /// Returns the memory limit for host pairs, in bytes.
    pub(crate) fn pairs_limit(&self) -> usize {
        self.pairs.limit()
    }

    /// Takes a SYN or SYN-ACK: stores the MSS that its sender announced, and rewrites it.
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

    /// Records a connection that began before this process, and whose wide host sends packets above the narrow MTU.
    /// Its MSS was raised by an earlier process. Its receiver's limit stays unknown.
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

    /// Stores the raised MSS that a wide host was told, and the link header toward this host.
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

    /// Returns the largest MSS toward this side: its MTU less the headers, but at least the default that every host
    /// accepts (R113).
    fn mss_toward(&self, toward: Toward, ip: &Ip) -> u16 {
        let mtu = match toward {
            Toward::Wide => self.border.wide_mtu,
            Toward::Narrow => self.border.narrow_mtu,
        };
        mtu.saturating_sub(headers_len(ip)).max(ip.mss_default())
    }

    /// Returns the raised MSS for the wide host, given the MSS that the narrow host announced. It is the longest
    /// that fits the wide MTU, or a shorter one.
    ///
    /// The length of a wide segment may be no multiple of the narrow segment length. Its last narrow segment is
    /// then short. If this increases the number of wide and narrow packets per byte, the largest multiple is
    /// announced instead. The multiple must be at least two.
    ///
    /// A receiver with a small buffer may open a window shorter than a wide segment. The sending host would then
    /// wait for its timer before each segment (RFC 9293 section 3.8.6.2.1). So the MSS is raised at most to a
    /// quarter of a small first window, or not at all.
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

    /// Whether the MSS of this SYN toward the wide side may be raised.
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

    /// Handles a packet of an open connection, or of an unknown connection.
    #[expect(clippy::too_many_arguments, reason = "all that a packet tells")]
    #[inline]
    fn follow(
        &mut self,
        now: Time,
        found: &mut Found,
        said: SegmentNumbers,
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

    /// Handles a packet of a connection without a known handshake.
    #[expect(clippy::too_many_arguments, reason = "all that a packet tells")]
    fn follow_unknown(
        &mut self,
        now: Time,
        found: &mut Found,
        said: SegmentNumbers,
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

    /// Counts packets above the safe length toward an unknown narrow host.
    #[inline]
    fn note_unknown(&self, packet: &Packet, toward: Toward, ledger: &mut Ledger) {
        if toward == Toward::Narrow && packet.wire_len() > usize::from(self.border.safe_len) {
            ledger.note(Event::MssUnknown, Tally::of(packet));
        }
    }

    /// Restarts a connection's time-out, at most one time per [`MOMENT`] unless the connection opens or closes.
    /// Moves a connection that has just opened to the reserve, so that unopened connections are evicted first.
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

    /// Records that a packet from a wide host was received here.
    fn note_wide(&mut self, now: Time, key: FlowKey) {
        self.pair(now, key).passed = Some(now);
        self.keep_pairs_limit();
    }

    /// Records the proof that a wide host's packets take another route.
    fn bypass(&mut self, now: Time, key: FlowKey, packet: &Packet, ledger: &mut Ledger) {
        ledger.note(Event::MssAsymmetric, Tally::of(packet));
        self.pair(now, key).bypassed = Some(now);
        self.keep_pairs_limit();
    }

    /// Whether a wide host's packets to the network of a narrow host cross the border, as far as is known.
    fn both_pass(&mut self, now: Time, key: FlowKey) -> bool {
        let Some(at) = self.pairs.find(&PairKey::of(&key)) else { return false };
        let within = |moment: Option<Time>, timeout| moment.is_some_and(|moment| now.since(moment) < timeout);
        let pair = *self.pairs.slot_mut(at);
        within(pair.passed, PASS_TIMEOUT) && !within(pair.bypassed, BYPASS_TIMEOUT)
    }

    /// Returns the entry of a connection's host pair. Creates a missing entry.
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

/// Stores the MSS announced in a SYN. Returns the handshake as it was before the SYN.
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
    // While an earlier handshake stays valid, a SYN does not restart the time-out.
    if is_new || begins || !before.is_agreed {
        handshake.touched = now;
        flows.refresh(now, at, SHORT_TIMEOUT);
    }
    before
}

impl PairKey {
    fn of(key: &FlowKey) -> PairKey {
        PairKey { site: key.narrow.routed_prefix(), wide: key.wide, tags: key.tags }
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

/// Size limit for TCP packets toward an unknown host, in bytes. Every IPv6 link carries 1,280 bytes (RFC 8200
/// section 5). An IPv4 packet may be translated to IPv6 on its way. Translation adds 20 bytes, and a Fragment
/// header may add 8 more (RFC 7915 section 4.1).
pub const SAFE_LEN: u16 = 1_280 - 20 - 8;
/// Minimum number of raised segments that fit in a small first window.
const SEGMENTS_IN_WINDOW: u32 = 4;
/// First windows of at least this size, in bytes, are expected to grow. The value is half the maximum window of a
/// SYN.
const WINDOW_SMALL: u16 = 1 << 15;
/// Maximum age of a packet that proves a route. Routes seldom change within minutes.
const PASS_TIMEOUT: Duration = Duration::from_secs(600);
/// Time without raising, after a host's packets to a network took another route.
const BYPASS_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Minimum interval between two restarts of a connection's time-out.
const MOMENT: Duration = Duration::from_secs(1);
/// Charge of a host pair, in bytes: its slot, its source and their table entries.
const PAIR_CHARGE: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_pair_changes_its_hash() {
        let table = TableKey::new(Secret::new(5));
        let address =
            |first: u16, last: u16| Address::from(core::net::IpAddr::from([first, 0, 0, 0, 0, 0, 0, last]));
        let key = PairKey { site: address(0x2001, 1), wide: address(0x2002, 2), tags: 0 };
        let others = [
            PairKey { site: address(0x2003, 1), ..key },
            PairKey { site: address(0x2001, 3), ..key },
            PairKey { wide: address(0x2003, 2), ..key },
            PairKey { wide: address(0x2002, 3), ..key },
            PairKey { tags: 1, ..key },
        ];
        others.iter().for_each(|other| assert_ne!(other.hash(&table), key.hash(&table), "{other:?}"));
    }
}
