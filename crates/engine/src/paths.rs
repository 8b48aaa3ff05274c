//! Fates of packets toward narrow hosts, and ICMP errors of both sides -> the size of packets for each host.
//!
//! A path behind the border may carry less than the border's own link. The border's cuts are then too long, and
//! only the border can learn of it: the wide hosts sent other packets. So an ICMP error that answers a cut ends
//! here, and lowers the size for its destination. Where no error comes, the losses themselves are the evidence: see
//! [`pmtu`]. The size of a path never exceeds the MTU of the border's link, and never the limit of the receiver.
//!
//! On the wide side, links may carry less than the border's own link too. There, the border makes segments longer
//! than their narrow hosts sent them. An ICMP error about such a segment lowers the size for the wide host, for ten
//! minutes. Only packets that a narrow host sent itself concern that host.
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
use crate::in_flight::InFlight;
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Ledger, Reason, Tally};
use crate::table::{FairTable, Handle, Key};
use crate::toward::Toward;
use core::ops::Range;
use core::time::Duration;
use packet::icmp::TooBigReport;
use packet::{Address, IPV4_DF_MIN, Packet, SegmentLimit, Time, Version, tcp};
use pmtu::{Phase, SizeSearch, Sizes, plateau_below};

/// The paths to the hosts of both sides.
#[derive(Debug)]
pub(crate) struct Paths {
    paths: FairTable<PathKey, SizeSearch>,
    /// MTUs of the links, in bytes.
    links: LinkMtus,
    /// Number of paths whose size is below the link's MTU: toward narrow hosts, then toward wide hosts.
    lowered_counts: [usize; 2],
    /// Whether a size changed since [`take_change`](Paths::take_change).
    is_changed: bool,
    /// The time of the last packet.
    now: Time,
    /// Connections that lost data since [`take_watched`](Paths::take_watched).
    watched: Vec<FlowKey>,
}

/// The MTUs of a border's links, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkMtus {
    pub(crate) narrow: u16,
    pub(crate) wide: u16,
}

/// A host, and its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathKey {
    to: Address,
    toward: Toward,
    version: Version,
    tags: u64,
}

impl Paths {
    /// Creates a table of at most `limit` bytes for paths behind these links.
    pub(crate) fn new(limit: usize, links: LinkMtus, secret: Secret) -> Paths {
        let paths = FairTable::new(limit, &[PATH_TIMEOUT], secret);
        Paths { paths, links, lowered_counts: [0; 2], is_changed: false, now: Time::ZERO, watched: Vec::new() }
    }

    /// Sets the hash key. The table must be empty.
    pub(crate) fn set_key(&mut self, key: Secret) {
        self.paths.set_key(key);
    }

    /// Adopts the limit and the links' MTUs of another table. The paths are kept if the MTUs are equal.
    pub(crate) fn go_on_as(&mut self, other: &Paths) {
        self.paths.set_limit(other.paths.limit());
        if self.links != other.links {
            self.links = other.links;
            while let Some(at) = self.paths.oldest() {
                self.remove(at);
            }
        }
        self.keep_limit();
    }

    /// Takes a packet of a connection whose limits are known, after its receiver's limit was set. Limits a segment to
    /// the size of its path. Learns from the acknowledgements of narrow hosts.
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
        let Some((key, handshake)) = flows.keyed_handshake_mut(at) else { return };
        let (headers_len, payload_len) = lens(packet).unwrap_or_default();
        let is_syn = segment.flags & tcp::SYN != 0;
        if is_syn {
            handshake.begin_data(&segment, toward);
        }
        if segment.flags & tcp::ACK != 0 {
            match toward {
                Toward::Narrow => _ = handshake.toward_wide.acknowledge(segment.ack),
                Toward::Wide => {
                    let has_data = is_syn || payload_len > 0;
                    if let Some(fate) = handshake.delivery.acknowledge(now, segment.ack, has_data) {
                        self.take(now, key, fate, handshake.delivery.rtt(), ledger);
                    }
                }
            }
        }
        if is_syn || payload_len == 0 {
            return;
        }
        match toward {
            Toward::Narrow => {
                let wire_len = packet.wire_len().min(u16::MAX.into()) as u16;
                let sent = DataSegment { wire_len, seq: segment.seq, payload_len, headers_len };
                self.send_to_narrow(now, packet, &sent, key, &mut handshake.delivery, ledger);
            }
            Toward::Wide => {
                let data = segment.seq..segment.seq.wrapping_add(payload_len);
                self.send_to_wide(now, packet, data, key, &mut handshake.toward_wide, ledger);
            }
        }
    }

    /// Limits a segment toward a narrow host.
    #[inline]
    fn send_to_narrow(
        &mut self,
        now: Time,
        packet: &mut Packet,
        sent: &DataSegment,
        key: &FlowKey,
        delivery: &mut Delivery,
        ledger: &mut Ledger,
    ) {
        let Some(limit) = packet.segment_limit else { return };
        let limit = SegmentLimit { len_max: limit.len_max.min(self.links.narrow), ..limit };
        let [lowered_count, _] = self.lowered_counts;
        if lowered_count == 0 && !delivery.is_troubled() && !delivery.repeats(sent) {
            return delivery.send(now, sent, limit.len_max, false);
        }
        self.send_watched(now, key, delivery, sent, packet, limit, ledger);
    }

    /// Limits a segment toward a wide host.
    #[inline]
    fn send_to_wide(
        &mut self,
        now: Time,
        packet: &mut Packet,
        data: Range<u32>,
        key: &FlowKey,
        in_flight: &mut InFlight,
        ledger: &mut Ledger,
    ) {
        in_flight.extend_back_to(data.start);
        in_flight.send(data.start, data.end);
        let [_, lowered_count] = self.lowered_counts;
        if lowered_count > 0
            && let Some(limit) = packet.segment_limit
            && let Some(path) = self.find(key, Toward::Wide)
        {
            let len_max = limit.len_max.min(self.wide_size(now, path, ledger));
            packet.segment_limit = Some(SegmentLimit { len_max, ..limit });
        }
    }

    /// Returns the size for a wide host, in bytes. It is low for ten minutes, since no probes are sent to the wide side.
    fn wide_size(&mut self, now: Time, at: Handle, ledger: &mut Ledger) -> u16 {
        match self.paths.get(at).map(|path| (path.phase(), path.size())) {
            Some((Phase::Settled { until }, size)) if now < until => size,
            Some((Phase::LinkMtu, _)) | None => self.links.wide,
            Some(_) => {
                self.remove(at);
                self.is_changed = true;
                ledger.note(Event::PathRaised, Tally::new(1, 0));
                self.links.wide
            }
        }
    }

    /// Sends a segment of a connection that lost data, or whose path may be lowered.
    #[expect(clippy::too_many_arguments, reason = "all that the choice depends on")]
    #[inline(never)]
    fn send_watched(
        &mut self,
        now: Time,
        key: &FlowKey,
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
        key: &FlowKey,
        delivery: &mut Delivery,
        sent: &DataSegment,
        (packet, receiver): (&Packet, u16),
        ledger: &mut Ledger,
    ) -> (u16, bool, bool) {
        if delivery.repeats(sent) && !delivery.is_copy(now, sent) {
            self.watch(*key);
        }
        if let Some(lost) = delivery.notice_loss(now, sent) {
            self.take(now, key, lost, delivery.rtt(), ledger);
        }
        let sizes = self.sizes(key.version(), Toward::Narrow);
        let mut unknown = SizeSearch::new(sizes);
        let path = match self.find(key, Toward::Narrow) {
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

    /// Returns the limit of the packets toward this side, in bytes; the largest number if only its link limits them.
    /// `None` while the packets of this connection must be seen: it has lost packets, or a larger size is to be
    /// tried.
    pub(crate) fn len_max(&self, key: &FlowKey, handshake: &Handshake, toward: Toward) -> Option<u16> {
        if handshake.delivery.is_troubled() {
            return None;
        }
        let Some(path) = self.find(key, toward).and_then(|at| self.paths.get(at)) else { return Some(u16::MAX) };
        let clears_df = || toward == Toward::Narrow && may_clear_df(key, &self.sizes(key.version(), toward));
        match path.phase() {
            Phase::LinkMtu => Some(u16::MAX),
            // The kernel forwards packets with their DF.
            _ if path.is_at_floor() && clears_df() => None,
            Phase::Settled { until } if self.now < until => Some(path.size()),
            Phase::Settled { .. } | Phase::Searching(_) => None,
        }
    }

    /// Notes the time of packets that the kernel forwarded.
    pub(crate) fn on_offloaded(&mut self, now: Time) {
        self.now = now;
    }

    /// Takes an ICMP error that is sent toward this side. Returns the reason why it is not forwarded. `None` if it is,
    /// as it is about a packet of a host's own size, or about no connection that is known. `owes` tells whether the border
    /// owes a byte to a connection's wide host.
    pub(crate) fn take_too_big(
        &mut self,
        now: Time,
        packet: &Packet,
        toward: Toward,
        flows: &FlowTable,
        owes: impl FnOnce(&FlowKey, u32) -> bool,
        ledger: &mut Ledger,
    ) -> Option<Reason> {
        let report = TooBigReport::read(packet)?;
        let [tags, _] = packet.l2_scope().words();
        let about = toward.other();
        let (router, _) = packet.addresses();
        let is_of_destination = router == report.destination.0;
        match about {
            Toward::Narrow => {
                let key = FlowKey::toward_narrow(report.source, report.destination, tags);
                let handshake = flows.handshake(flows.by_key(&key)?)?;
                let is_forged = is_of_destination || !handshake.delivery.data().contains(report.seq);
                match self.credible_mtu(&report, &key, about).filter(|_| !is_forged) {
                    Some(mtu) => self.take_narrow_error(now, mtu, &key, ledger),
                    None => Some(Reason::IcmpRefused),
                }
            }
            Toward::Wide => {
                let key = FlowKey::toward_narrow(report.destination, report.source, tags);
                let handshake = flows.handshake(flows.by_key(&key)?)?;
                let is_in_flight = handshake.toward_wide.contains(report.seq) || owes(&key, report.seq);
                let is_forged = is_of_destination || !is_in_flight;
                match self.credible_mtu(&report, &key, about).filter(|_| !is_forged) {
                    Some(mtu) => self.take_wide_error(now, mtu, &key, ledger),
                    // Only the border sends packets above the narrow MTU.
                    None => (report.quoted_len > self.links.narrow).then_some(Reason::IcmpRefused),
                }
            }
        }
    }

    /// Returns the MTU that an ICMP error states, in bytes. `None` if no path has it, or if it allows the quoted packet.
    fn credible_mtu(&self, report: &TooBigReport, key: &FlowKey, about: Toward) -> Option<u16> {
        let sizes = self.sizes(key.version(), about);
        let mtu = match (report.mtu, key.version()) {
            // Old routers state none (RFC 1191 section 5).
            (0, Version::V4) => plateau_below(report.quoted_len, sizes.floor),
            (mtu @ IPV4_MTU_MIN.., Version::V4) if sizes.floor >= IPV4_DF_MIN => mtu,
            (mtu, _) if mtu >= sizes.floor => mtu,
            _ => return None,
        };
        (report.mtu < report.quoted_len).then_some(mtu.max(sizes.floor))
    }

    /// Takes a credible ICMP error about a packet toward a narrow host.
    fn take_narrow_error(&mut self, now: Time, mtu: u16, key: &FlowKey, ledger: &mut Ledger) -> Option<Reason> {
        let at = self.open(now, key, Toward::Narrow);
        let path = self.paths.slot_mut(at);
        if mtu == path.size() && path.is_settled_since(now, LATE_ERRORS) {
            // The packet was not cut to this size, so its host must send shorter ones.
            return None;
        }
        self.lower_by_error(now, at, mtu, ledger);
        // Several errors may answer one flight of packets.
        Some(Reason::IcmpUsed)
    }

    /// Takes a credible ICMP error about a packet toward a wide host. The border may have joined it.
    fn take_wide_error(&mut self, now: Time, mtu: u16, key: &FlowKey, ledger: &mut Ledger) -> Option<Reason> {
        let at = self.open(now, key, Toward::Wide);
        self.lower_by_error(now, at, mtu, ledger);
        // The narrow host's own packets may be too long as well.
        (mtu >= self.links.narrow).then_some(Reason::IcmpUsed)
    }

    /// Lowers the size of a path to an MTU that an ICMP error states.
    fn lower_by_error(&mut self, now: Time, at: Handle, mtu: u16, ledger: &mut Ledger) {
        let path = self.paths.slot_mut(at);
        let (before, was_whole) = (path.size(), path.phase() == Phase::LinkMtu);
        path.too_big(now, mtu);
        self.note_change(now, at, before, was_whole, ledger, Event::PathLoweredIcmp);
        self.keep_limit();
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
        self.lowered_counts.iter().sum()
    }

    fn sizes(&self, version: Version, toward: Toward) -> Sizes {
        Sizes::of(version, self.links.toward(toward))
    }

    /// Takes the fate of a packet.
    #[inline(never)]
    fn take(&mut self, now: Time, key: &FlowKey, fate: Fate, rtt: Duration, ledger: &mut Ledger) {
        let at = self.open(now, key, Toward::Narrow);
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
                self.count_lowered(at, 1);
                // It is evicted after paths about which nothing was learned.
                self.paths.move_to_reserve(at);
            }
            (false, true) => self.count_lowered(at, -1),
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

    fn find(&self, key: &FlowKey, toward: Toward) -> Option<Handle> {
        self.paths.find(&PathKey::of(key, toward))
    }

    /// Returns the path of a connection toward this side, which is created if it is missing.
    fn open(&mut self, now: Time, key: &FlowKey, toward: Toward) -> Handle {
        let key = PathKey::of(key, toward);
        let sizes = self.sizes(key.version, toward);
        match self.paths.find(&key) {
            Some(at) => at,
            None => self.paths.insert(now, key, SizeSearch::new(sizes), PATH_CHARGE, PATH_TIMEOUT),
        }
    }

    fn remove(&mut self, at: Handle) {
        if self.paths.get(at).is_some_and(|path| path.phase() != Phase::LinkMtu) {
            self.count_lowered(at, -1);
        }
        self.paths.remove(at);
    }

    /// Counts one path more, or one less, whose size is below the link's MTU.
    fn count_lowered(&mut self, at: Handle, change: isize) {
        let direction = self.paths.get_entry(at).map(|(key, _)| key.toward.direction());
        if let Some(count) = direction.and_then(|direction| self.lowered_counts.get_mut(direction)) {
            *count = count.saturating_add_signed(change);
        }
    }

    fn keep_limit(&mut self) {
        while let Some(at) = self.paths.over_limit() {
            self.remove(at);
        }
    }
}

impl LinkMtus {
    fn toward(self, toward: Toward) -> u16 {
        match toward {
            Toward::Narrow => self.narrow,
            Toward::Wide => self.wide,
        }
    }
}

impl PathKey {
    fn of(key: &FlowKey, toward: Toward) -> PathKey {
        let to = match toward {
            Toward::Narrow => key.narrow,
            Toward::Wide => key.wide,
        };
        PathKey { to, toward, version: key.version(), tags: key.tags }
    }
}

impl Key for PathKey {
    fn source(&self) -> Address {
        self.to.routed_prefix()
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let to = self.to.number();
        table.hash([to as u64, (to >> 64) as u64, self.tags, self.version as u64, self.toward as u64, 0])
    }
}

/// Returns the lengths of a TCP packet's headers and of its payload, in bytes.
#[inline]
fn lens(packet: &Packet) -> Option<(u16, u32)> {
    let upper = packet.ip().upper?;
    let bytes = packet.upper_bytes(upper);
    let header_len = usize::from(*bytes.get(DATA_OFFSET_AT)? >> 4) * 4;
    let payload_len = bytes.len().checked_sub(header_len)?;
    Some((upper.at.saturating_add(header_len as u16), payload_len as u32))
}

/// Whether packets for this path are sent without DF if it carries less than the floor. Each IPv6 path carries it.
fn may_clear_df(key: &FlowKey, sizes: &Sizes) -> bool {
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
