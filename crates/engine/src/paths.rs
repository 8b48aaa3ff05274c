//! Fates of packets toward narrow hosts, and ICMP errors from the narrow side -> the size of cuts for each host.
//!
//! A path behind the border may carry less than the border's own link. The border's cuts are then too long, and
//! only the border can learn of it: the wide hosts sent other packets. So an ICMP error that answers a cut ends
//! here, and lowers the size for its destination. Where no error comes, the losses themselves are the evidence: see
//! [`pmtu`]. The size of a path never exceeds the MTU of the border's link, and never the limit of the receiver.
//!
//! An ICMP error is believed only if it quotes data in flight (RFC 5927 section 4.1), and if its sender is not the
//! destination. Its MTU must be below the quoted length, and not below the minimum (RFC 8201 section 4).
//!
//! IPv4 paths may carry less than 552 bytes. Their packets have 552 bytes and no DF, as those of Linux, so that
//! routers fragment them.
//!
//! While no path is lowered, a packet costs no look-up here.

use crate::delivery::{DataSegment, Delivery, Fate};
use crate::flows::{FlowKey, FlowTable, Found};
use crate::handshake::Handshake;
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Ledger, Reason, Tally};
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::time::Duration;
use packet::icmp::TooBigReport;
use packet::{Address, IPV4_DF_MIN, Packet, SegmentLimit, Time, Version, tcp};
use pmtu::{Phase, SizeSearch, Sizes, plateau_below};

/// The paths to narrow hosts.
#[derive(Debug)]
pub(crate) struct Paths {
    paths: FairTable<PathKey, SizeSearch>,
    /// MTU of the narrow link, in bytes.
    link_mtu: u16,
    /// Number of paths whose size is below the link's MTU.
    lowered_count: usize,
    /// Whether a size changed since [`take_change`](Paths::take_change).
    is_changed: bool,
    /// The time of the last packet.
    now: Time,
    /// Connections that lost data since [`take_watched`](Paths::take_watched).
    watched: Vec<FlowKey>,
}

/// A narrow host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathKey {
    to: Address,
    version: Version,
    tags: u64,
}

impl Paths {
    /// Creates a table of at most `limit` bytes for paths behind a link with an MTU of `link_mtu` bytes.
    pub(crate) fn new(limit: usize, link_mtu: u16, secret: Secret) -> Paths {
        let paths = FairTable::new(limit, &[PATH_TIMEOUT], secret);
        Paths { paths, link_mtu, lowered_count: 0, is_changed: false, now: Time::ZERO, watched: Vec::new() }
    }

    /// Sets the hash key. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.paths.set_key(key);
    }

    /// Adopts the limit and the link's MTU of another table. The paths are kept if the MTU is equal.
    pub(crate) fn go_on_as(&mut self, other: &Paths) {
        self.paths.set_limit(other.paths.limit());
        if self.link_mtu != other.link_mtu {
            self.link_mtu = other.link_mtu;
            while let Some(at) = self.paths.oldest() {
                self.remove(at);
            }
        }
        self.keep_limit();
    }

    /// Takes a packet of a connection whose limits are known, after its receiver's limit was set. Limits a segment
    /// toward a narrow host to the size of its path. Learns from the acknowledgements of narrow hosts.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        now: Time,
        packet: &mut Packet,
        found: &Found,
        toward: Toward,
        flows: &mut FlowTable,
        ledger: &mut Ledger,
    ) {
        self.now = now;
        let Some((segment, at)) = found.numbers().zip(found.at()) else { return };
        let Some(handshake) = flows.handshake_mut(at) else { return };
        match toward {
            Toward::Narrow if segment.flags & tcp::SYN != 0 => {
                handshake.delivery.restart_at(segment.seq.wrapping_add(1));
            }
            Toward::Narrow => {
                let Some(sent) = DataSegment::of(packet, segment.seq) else { return };
                let Some(limit) = packet.segment_limit else { return };
                let limit = SegmentLimit { len_max: limit.len_max.min(self.link_mtu), ..limit };
                let delivery = &mut handshake.delivery;
                if self.lowered_count == 0 && !delivery.is_troubled() && !delivery.repeats(&sent) {
                    return delivery.send(now, &sent, limit.len_max, false);
                }
                let mut copy = *delivery;
                let key = flows.key(at);
                self.send_watched(now, key, &mut copy, &sent, packet, limit, ledger);
                flows.handshake_mut(at).into_iter().for_each(|handshake| handshake.delivery = copy);
            }
            Toward::Wide if segment.flags & tcp::ACK != 0 => {
                let has_data = || segment.flags & tcp::SYN != 0 || DataSegment::of(packet, segment.seq).is_some();
                if let Some(fate) = handshake.delivery.acknowledge(now, segment.ack, has_data) {
                    let rtt = handshake.delivery.rtt();
                    self.take(now, flows.key(at), fate, rtt, ledger);
                }
            }
            Toward::Wide => {}
        }
    }

    /// Sends a segment of a connection that lost data, or whose path may be lowered.
    #[expect(clippy::too_many_arguments, reason = "all that the choice depends on")]
    #[inline(never)]
    fn send_watched(
        &mut self,
        now: Time,
        key: FlowKey,
        delivery: &mut Delivery,
        sent: &DataSegment,
        packet: &mut Packet,
        limit: SegmentLimit,
        ledger: &mut Ledger,
    ) {
        let (len_max, is_probe, clears_df) = self.choose(now, key, delivery, sent, (packet, limit.len_max), ledger);
        // A probe has one length, and repeated data is to arrive now.
        let may_grow = limit.may_grow && !is_probe && delivery.resent_count() == 0;
        packet.segment_limit = Some(SegmentLimit { len_max, may_grow, clears_df, ..limit });
        delivery.send(now, sent, len_max, is_probe);
    }

    /// Chooses the length of a segment's packets, whether they are a probe, and whether they are sent without DF.
    #[inline(never)]
    fn choose(
        &mut self,
        now: Time,
        key: FlowKey,
        delivery: &mut Delivery,
        sent: &DataSegment,
        (packet, receiver): (&Packet, u16),
        ledger: &mut Ledger,
    ) -> (u16, bool, bool) {
        if delivery.repeats(sent) {
            self.watch(key);
        }
        if let Some(lost) = delivery.notice_loss(sent) {
            self.take(now, key, lost, delivery.rtt(), ledger);
        }
        let sizes = self.sizes(key.version());
        let mut unknown = SizeSearch::new(sizes);
        let path = match self.find(key) {
            Some(at) => self.paths.slot_mut(at),
            None => &mut unknown,
        };
        if delivery.repeats(sent) {
            let size = path.size_after(delivery.resent_count());
            if size < path.size() && packet.wire_len() > usize::from(size) {
                ledger.note(Event::PathRetry, Tally::of(packet));
            }
            return (receiver.min(size), false, may_clear_df(key, &sizes) && size <= sizes.floor);
        }
        let size = receiver.min(path.size());
        let clears_df = may_clear_df(key, &sizes) && path.is_at_floor();
        match path.next_probe(now, receiver, sent.wire_len) {
            Some(probe) => {
                ledger.note(Event::PathProbe, Tally::of(packet));
                (probe, true, false)
            }
            None => (size, false, clears_df),
        }
    }

    /// Returns the limit of the packets to a narrow host, in bytes; the largest number if only its link limits them.
    /// `None` while the packets of this connection must be seen: it has lost packets, or a larger size is to be
    /// tried.
    pub(crate) fn len_max(&self, key: &FlowKey, handshake: &Handshake) -> Option<u16> {
        if handshake.delivery.is_troubled() {
            return None;
        }
        let Some(path) = self.find(*key).and_then(|at| self.paths.get(at)) else { return Some(u16::MAX) };
        match path.phase() {
            Phase::LinkMtu => Some(u16::MAX),
            // The kernel forwards packets with their DF.
            _ if path.is_at_floor() && may_clear_df(*key, &self.sizes(key.version())) => None,
            Phase::Settled { until } if self.now < until => Some(path.size()),
            Phase::Settled { .. } | Phase::Searching(_) => None,
        }
    }

    /// Notes the time of packets that the kernel forwarded.
    pub(crate) fn on_offloaded(&mut self, now: Time) {
        self.now = now;
    }

    /// Takes an ICMP error from the narrow side. Returns the reason why it is not forwarded. `None` if it is, as it
    /// is about a packet of a host's own size, or about no connection that is known.
    pub(crate) fn take_too_big(
        &mut self,
        now: Time,
        packet: &Packet,
        flows: &FlowTable,
        ledger: &mut Ledger,
    ) -> Option<Reason> {
        let report = TooBigReport::read(packet)?;
        let [tags, _] = packet.l2_scope().words();
        let key = FlowKey::toward_narrow(report.source, report.destination, tags);
        let handshake = flows.handshake(flows.by_key(&key)?)?;
        let (router, _) = packet.addresses();
        let is_forged = !handshake.delivery.is_in_flight(report.seq) || router == report.destination.0;
        if is_forged || report.mtu >= report.quoted_len {
            return Some(Reason::IcmpRefused);
        }
        let at = self.open(now, key);
        let path = self.paths.slot_mut(at);
        let (before, was_whole) = (path.size(), path.phase() == Phase::LinkMtu);
        let sizes = Sizes::of(key.version(), self.link_mtu);
        let floor = sizes.floor;
        // Old IPv4 routers state no MTU (RFC 1191 section 5).
        let is_old = report.mtu == 0 && key.version() == Version::V4;
        let mtu = match report.mtu {
            _ if is_old => plateau_below(report.quoted_len, floor),
            IPV4_MTU_MIN.. if may_clear_df(key, &sizes) => report.mtu.max(floor),
            mtu => mtu,
        };
        if mtu == before && path.is_settled_since(now, LATE_ERRORS) {
            // The packet was not cut to this size, so its host must send shorter ones.
            return None;
        }
        let is_lowered = path.too_big(now, mtu);
        self.note_change(now, at, before, was_whole, ledger, Event::PathLoweredIcmp);
        self.keep_limit();
        if is_lowered {
            return Some(Reason::IcmpUsed);
        }
        // Several errors may answer one flight of packets.
        Some(if mtu >= before && mtu >= floor { Reason::IcmpUsed } else { Reason::IcmpRefused })
    }

    /// Returns the connections that lost data since the last call. Their packets must be received here, so that
    /// their fate is known.
    pub(crate) fn take_watched(&mut self) -> impl Iterator<Item = FlowKey> {
        self.watched.drain(..)
    }

    /// Whether a size changed since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        core::mem::take(&mut self.is_changed)
    }

    /// Removes paths that were not used for a long time.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(at) = self.paths.overdue(now) {
            self.remove(at);
        }
    }

    /// Returns the time at which [`expire`](Paths::expire) next has work.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.paths.next_deadline()
    }

    /// Returns the bytes charged against the limit.
    pub(crate) fn charged(&self) -> usize {
        self.paths.charged()
    }

    /// Returns the limit, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.paths.limit()
    }

    /// Returns the number of paths whose size is below the link's MTU.
    pub(crate) fn lowered_count(&self) -> usize {
        self.lowered_count
    }

    fn sizes(&self, version: Version) -> Sizes {
        Sizes::of(version, self.link_mtu)
    }

    /// Takes the fate of a packet.
    #[inline(never)]
    fn take(&mut self, now: Time, key: FlowKey, fate: Fate, rtt: Duration, ledger: &mut Ledger) {
        let at = self.open(now, key);
        let path = self.paths.slot_mut(at);
        let (before, was_whole) = (path.size(), path.phase() == Phase::LinkMtu);
        match fate {
            Fate::Delivered(len) => path.delivered(now, len),
            Fate::Lost(len) => path.lost(now, len, rtt),
        }
        self.note_change(now, at, before, was_whole, ledger, Event::PathLoweredLoss);
        self.keep_limit();
    }

    /// Counts a path whose size is not as before.
    fn note_change(
        &mut self,
        now: Time,
        at: Handle,
        before: u16,
        was_whole: bool,
        ledger: &mut Ledger,
        lowered: Event,
    ) {
        let path = self.paths.slot_mut(at);
        let (size, is_whole) = (path.size(), path.phase() == Phase::LinkMtu);
        match (was_whole, is_whole) {
            (true, false) => {
                self.lowered_count += 1;
                // It is evicted after paths about which nothing was learned.
                self.paths.move_to_reserve(at);
            }
            (false, true) => self.lowered_count -= 1,
            _ => {}
        }
        self.is_changed |= size != before;
        match size {
            _ if size < before => ledger.note(lowered, Tally::new(1, 0)),
            _ if size > before => ledger.note(Event::PathRaised, Tally::new(1, 0)),
            _ => {}
        }
        self.paths.refresh(now, at, PATH_TIMEOUT);
    }

    /// Notes that a connection lost data. Too many at once are the same as a change of all.
    fn watch(&mut self, key: FlowKey) {
        if self.watched.len() < WATCHED_MAX {
            self.watched.push(key);
        } else {
            self.is_changed = true;
        }
    }

    fn find(&self, key: FlowKey) -> Option<Handle> {
        self.paths.find(&PathKey::of(key))
    }

    /// Returns the path of a connection, which is created if it is missing.
    fn open(&mut self, now: Time, key: FlowKey) -> Handle {
        let key = PathKey::of(key);
        let sizes = self.sizes(key.version);
        match self.paths.find(&key) {
            Some(at) => at,
            None => self.paths.insert(now, key, SizeSearch::new(sizes), PATH_CHARGE, PATH_TIMEOUT),
        }
    }

    fn remove(&mut self, at: Handle) {
        let path = self.paths.remove(at);
        self.lowered_count -= usize::from(path.phase() != Phase::LinkMtu);
    }

    fn keep_limit(&mut self) {
        while let Some(at) = self.paths.over_limit() {
            self.remove(at);
        }
    }
}

impl DataSegment {
    /// Returns the facts of a TCP packet with this sequence number. `None` if it has no payload.
    #[inline]
    fn of(packet: &Packet, seq: u32) -> Option<DataSegment> {
        let upper = packet.ip().upper?;
        let bytes = packet.upper_bytes(upper);
        let header_len = usize::from(*bytes.get(DATA_OFFSET_AT)? >> 4) * 4;
        let payload_len = bytes.len().checked_sub(header_len).filter(|len| *len > 0)? as u32;
        let wire_len = packet.wire_len().min(u16::MAX.into()) as u16;
        Some(DataSegment { wire_len, seq, payload_len, headers_len: upper.at.saturating_add(header_len as u16) })
    }
}

impl PathKey {
    fn of(key: FlowKey) -> PathKey {
        PathKey { to: key.narrow, version: key.version(), tags: key.tags }
    }
}

impl Key for PathKey {
    fn source(&self) -> Address {
        self.to.routed_prefix()
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let to = self.to.number();
        table.hash([to as u64, (to >> 64) as u64, self.tags, self.version as u64, 0, 0])
    }
}

/// Whether packets for this path are sent without DF if it carries less than the floor. Each IPv6 path carries it.
fn may_clear_df(key: FlowKey, sizes: &Sizes) -> bool {
    key.version() == Version::V4 && sizes.floor >= IPV4_DF_MIN
}

/// Time-out of a path without traffic: longer than a size stays low, so that it is not learned again meanwhile.
const PATH_TIMEOUT: Duration = Duration::from_secs(2 * pmtu::RAISE_AFTER.as_secs());
/// Charge of a path, in bytes: its slot, its source and their table entries.
const PATH_CHARGE: usize = 640;
/// Time after which an error about the size in use is not about a packet that was sent before the size was lowered.
const LATE_ERRORS: Duration = Duration::from_secs(3);
/// Smallest MTU of an IPv4 link, in bytes (RFC 791 section 3.2).
const IPV4_MTU_MIN: u16 = 68;
/// Number of connections that are noted until they are asked for.
const WATCHED_MAX: usize = 64;
/// Offset of the data offset in a TCP header, in bytes (RFC 9293 section 3.1).
const DATA_OFFSET_AT: usize = 12;
