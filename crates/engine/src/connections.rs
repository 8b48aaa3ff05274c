//! The connections that cross a gateway, and a border's rules for them.
//!
//! When a border is removed, the packets of wide hosts become too long for the narrow side, and no router tells
//! these hosts. So the border tells them first. It sends an ICMP error for each connection whose MSS was raised:
//! see [`raised_connections`](Connections::raised_connections) and [`tell`](Connections::tell). A wide host accepts
//! the error only if the quoted sequence number is unacknowledged or next. So the error quotes the last
//! acknowledgement number of the narrow host.

use crate::ack_store::AckStore;
use crate::flows::{FlowKey, FlowTable, Found};
use crate::keyed_hash::Secret;
use crate::ledger::{Ledger, Reason};
use crate::mss::{Border, Mss, Raise};
use crate::output::Output;
use crate::paths::{LinkMtus, Paths};
use crate::route_mtus::RouteMtus;
use crate::rules::AckPolicy;
use crate::table::Handle;
use crate::toward::Toward;
use packet::icmp::IcmpError;
use packet::{Address, Frame, Ingress, Packet, SegmentLimit, Time};

/// The connection table, and the rules of a border for it.
#[derive(Debug)]
pub struct Connections {
    pub(crate) flows: FlowTable,
    mss: Option<Mss>,
    /// The paths behind a border. `None` in other roles.
    paths: Option<Paths>,
    /// The destinations with a route MTU of their own, on a wide interface whose settings allow it.
    pub(crate) route_mtus: RouteMtus,
    /// The data that a border acknowledged early. `None` if it acknowledges none and owes none.
    pub(crate) early: Option<Box<AckStore>>,
}

/// The key of a known connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(FlowKey);

impl Connections {
    /// Creates the table of a border. Handshakes use at most `limit` bytes, host pairs and paths at most a quarter
    /// of `limit` each.
    pub fn at_border(limit: usize, border: Border, secret: Secret) -> Connections {
        let flows = FlowTable::new(limit, false, secret);
        let links = LinkMtus { narrow: border.narrow_mtu, wide: border.wide_mtu };
        let paths = Paths::new(limit / PAIRS_SHARE, links, secret);
        let early = (border.acks == AckPolicy::Early)
            .then(|| Box::new(AckStore::new(border.ack_store, border.wide_mtu, secret)));
        let mss = Mss::new(limit / PAIRS_SHARE, border, secret);
        Connections { flows, mss: Some(mss), paths: Some(paths), route_mtus: RouteMtus::new(secret), early }
    }

    /// Creates the table of any other gateway. Its connections are those with a stream in one of the gateway's
    /// coalescers, and those whose segment length is chosen by flow.
    pub fn new(secret: Secret) -> Connections {
        let flows = FlowTable::new(usize::MAX, true, secret);
        Connections { flows, mss: None, paths: None, route_mtus: RouteMtus::new(secret), early: None }
    }

    /// Limits the memory of connections without a stream, in bytes.
    pub(crate) fn with_limit(mut self, limit: usize) -> Connections {
        self.flows.set_limit(limit);
        self
    }

    /// Sets the key of the hash tables.
    pub fn with_table_key(mut self, key: Secret) -> Connections {
        self.flows.set_key(key);
        self.route_mtus.set_key(key);
        if let Some(mss) = &mut self.mss {
            mss.set_key(key);
        }
        if let Some(paths) = &mut self.paths {
            paths.set_key(key);
        }
        if let Some(early) = &mut self.early {
            early.set_key(key);
        }
        self
    }

    /// Adopts the settings and limits of `other`, and keeps the known connections. If the gateway becomes a border,
    /// or is one no longer, all handshakes are removed. Without a border, later handshakes are not seen.
    pub fn go_on_as(&mut self, other: Connections) {
        self.flows.go_on_as(&other.flows);
        // The link's MTU, or the policies, may be others.
        self.route_mtus = other.route_mtus;
        match (&mut self.mss, other.mss) {
            (Some(mine), Some(fresh)) => mine.go_on_as(fresh),
            (mine, fresh) => {
                *mine = fresh;
                self.flows.forget_handshakes();
            }
        }
        match (&mut self.paths, other.paths) {
            (Some(mine), Some(fresh)) => mine.go_on_as(&fresh),
            (mine, fresh) => *mine = fresh,
        }
        match &mut self.early {
            Some(mine) => mine.go_on_as(other.early.as_deref()),
            mine => *mine = other.early,
        }
        self.forget_surplus();
    }

    /// Returns the treatment of acknowledgements. While data is owed that was acknowledged early, the treatment stays.
    #[inline]
    pub(crate) fn ack_policy(&self) -> AckPolicy {
        if self.early.is_some() {
            return AckPolicy::Early;
        }
        self.mss.as_ref().map_or(AckPolicy::Unchanged, |mss| mss.border.acks)
    }

    /// Returns the MTU of a border's narrow side, in bytes. 0 in other roles.
    pub(crate) fn narrow_mtu(&self) -> u16 {
        self.mss.as_ref().map_or(0, |mss| mss.border.narrow_mtu)
    }

    /// Removes handshakes above the limit. The hosts with the most handshakes lose theirs first. Results of earlier
    /// look-ups may be invalid afterwards.
    #[inline]
    pub(crate) fn forget_surplus(&mut self) {
        if self.flows.has_surplus() {
            self.forget_until_few();
        }
    }

    #[cold]
    fn forget_until_few(&mut self) {
        let Connections { flows, mss, .. } = self;
        flows.forget_surplus(|handshake| mss.iter_mut().for_each(|mss| mss.forgot(handshake)));
    }

    /// Whether the gateway is a border.
    pub(crate) fn is_border(&self) -> bool {
        self.mss.is_some()
    }

    /// Handles a packet at a border, before the stages of the side that the packet is sent to. The MSS of a SYN is
    /// rewritten. Every unfragmented TCP packet is marked with its receiver's limit.
    pub fn on_packet(&mut self, now: Time, packet: &mut Packet, toward: Toward, ledger: &mut Ledger) {
        let mut found = self.flows.find(packet, toward.direction(), false, |_, _| None);
        self.see_found(now, packet, &mut found, toward, ledger);
        self.forget_surplus();
    }

    /// Handles a packet as [`on_packet`](Connections::on_packet) does, given the result of its look-up.
    #[inline]
    pub(crate) fn see_found(
        &mut self,
        now: Time,
        packet: &mut Packet,
        found: &mut Found,
        toward: Toward,
        ledger: &mut Ledger,
    ) {
        if let Some(mss) = &mut self.mss {
            mss.on_packet(now, packet, found, toward, &mut self.flows, ledger);
        }
        if let Some(paths) = &mut self.paths {
            paths.on_packet(now, packet, found, toward, &mut self.flows, ledger);
        }
    }

    /// Takes an ICMP error that may be about packets that a border cut or joined. Returns the reason why it is not
    /// forwarded. `None` for all other packets.
    pub(crate) fn take_icmp(
        &mut self,
        now: Time,
        packet: &Packet,
        toward: Toward,
        ledger: &mut Ledger,
    ) -> Option<Reason> {
        let early = self.early.as_ref();
        let owes = |key: &FlowKey, seq| early.is_some_and(|early| early.owes(key, seq));
        self.paths.as_mut()?.take_too_big(now, packet, toward, &self.flows, owes, ledger)
    }

    /// Returns the connections that lost data since the last call: their wide ends, then their narrow ends, each with
    /// address and port. Their packets must be received here until the data is acknowledged.
    pub fn take_watched(&mut self) -> impl Iterator<Item = [(Address, u16); 2]> {
        let watched = self.paths.iter_mut().flat_map(Paths::take_watched);
        watched.map(|FlowKey { narrow, wide, ports: [narrow_port, wide_port], .. }| {
            [(wide, wide_port), (narrow, narrow_port)]
        })
    }

    /// Whether the size of a path changed since the last call. Flows that the kernel forwards still have the former
    /// size.
    pub fn take_path_change(&mut self) -> bool {
        self.paths.as_mut().is_some_and(Paths::take_change)
    }

    /// Returns the number of paths behind a border that carry less than its narrow link.
    pub fn lowered_path_count(&self) -> usize {
        self.paths.as_ref().map_or(0, Paths::lowered_count)
    }

    /// Returns the size limits of a connection's packets. The first limit is for packets toward this side, to the
    /// second of `ends`. The second limit is for the opposite direction. An end is an address and a port, without
    /// VLAN tags. `None` if there is no border, or if the connection's packets must be received here. They must if it
    /// lost packets, its path is being searched, or its acknowledgements are changed.
    pub fn limits(&self, ends: [(Address, u16); 2], toward: Toward) -> Option<[SegmentLimit; 2]> {
        let mss = self.mss.as_ref()?;
        let Some(at) = self.flows.between(ends, toward).filter(|at| self.flows.handshake(*at).is_some()) else {
            return Some([toward, toward.other()].map(|toward| mss.limit(None, toward)));
        };
        let [there, back] = [toward, toward.other()].map(|toward| self.limit_of(at, toward));
        Some([there?, back?])
    }

    /// Returns the size limit of packets toward this side, of a connection with a known handshake.
    fn limit_of(&self, at: Handle, toward: Toward) -> Option<SegmentLimit> {
        if self.ack_policy() != AckPolicy::Unchanged {
            return None;
        }
        let handshake = self.flows.handshake(at)?;
        let limit = self.mss.as_ref()?.limit(Some(handshake), toward);
        let path_len_max = self.paths.as_ref()?.len_max(&self.flows.key(at), handshake, toward)?;
        Some(SegmentLimit { len_max: limit.len_max.min(path_len_max), ..limit })
    }

    /// Records that flow offload forwarded packets of a connection toward this side, from the first of `ends` to
    /// the second. An end is an address and a port, without VLAN tags. Returns the size limit of the packets.
    /// `None` if the handshake is unknown, or if the connection's packets must be received here.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], toward: Toward) -> Option<SegmentLimit> {
        let at = self.flows.between(ends, toward).filter(|at| self.flows.handshake(*at).is_some())?;
        self.mss.as_mut()?.on_offloaded(now, at, toward, &mut self.flows);
        self.paths.as_mut()?.on_offloaded(now);
        self.limit_of(at, toward)
    }

    /// Records an acknowledgement in an offloaded flow toward this side, from the first of `ends`: it has acknowledged
    /// all bytes before `ack`. An end is an address and a port.
    pub fn on_offloaded_ack(&mut self, ends: [(Address, u16); 2], toward: Toward, ack: u32) {
        if let Some(at) = self.flows.between(ends, toward)
            && let Some(handshake) = self.flows.handshake_mut(at)
        {
            match toward {
                Toward::Narrow => handshake.toward_wide.skip_to(ack),
                Toward::Wide => {
                    handshake.raised.iter_mut().for_each(|raised| raised.go_on_to(ack));
                    handshake.delivery.skip_to(ack);
                }
            }
        }
    }

    /// Records data in an offloaded flow toward this side: the first of `ends` has sent all bytes before `sent`, and the
    /// second has acknowledged those before `acked`; `None` if the kernel forwarded no acknowledgement. An end is an
    /// address and a port. An ICMP error about this data is then known to be about data in flight.
    pub fn on_offloaded_data(&mut self, ends: [(Address, u16); 2], toward: Toward, acked: Option<u32>, sent: u32) {
        if let Some(at) = self.flows.between(ends, toward)
            && let Some(handshake) = self.flows.handshake_mut(at)
        {
            match toward {
                Toward::Narrow => handshake.delivery.skip_between(acked, sent),
                Toward::Wide => _ = handshake.toward_wide.skip_between(acked, sent),
            }
        }
    }

    /// Disables raising of the MSS for all later SYNs.
    pub fn stop_raising(&mut self) {
        if let Some(mss) = &mut self.mss {
            mss.border.raise = Raise::Never;
        }
    }

    /// Returns the connections whose wide host was told an MSS above that of the narrow side.
    pub fn raised_connections(&self) -> impl Iterator<Item = Connection> {
        let raised = self.flows.handshakes().filter(|(_, handshake)| handshake.raised.is_some());
        raised.map(|(key, _)| Connection(*key))
    }

    /// Returns the number of connections with a raised MSS that were evicted and may still be in use.
    pub fn forgotten_count(&self) -> u64 {
        self.mss.as_ref().map_or(0, |mss| mss.forgotten_count)
    }

    /// Tells the wide host of a connection the MTU of the narrow side, with an ICMP error. The usual rate limit
    /// does not apply. Returns whether an error was sent. No error is sent if the sequence number to quote is
    /// unknown, or if the gateway has no source address.
    ///
    /// `out` is the output queue of packets from the wide side.
    pub fn tell(&self, connection: &Connection, ingress: Ingress, out: &mut Output) -> bool {
        let Connection(key) = connection;
        let (Some(mss), Some(at)) = (&self.mss, self.flows.by_key(key)) else { return false };
        let raised = self.flows.handshake(at).and_then(|handshake| handshake.raised);
        let [narrow_port, wide_port] = key.ports;
        let frame = raised.and_then(|raised| raised.segment((key.wide, wide_port), (key.narrow, narrow_port)));
        let Some((frame, link_type)) = frame else { return false };
        let Ok(about) = Frame::copy(&frame, link_type, ingress, &mut out.pool) else { return false };
        let is_told = out.tell(IcmpError::TooBig { mtu: mss.border.narrow_mtu }, &about);
        out.recycle(about);
        is_told
    }

    /// Removes entries that timed out.
    pub fn expire(&mut self, now: Time) {
        let Connections { flows, mss, paths, route_mtus, early } = self;
        route_mtus.expire(now);
        flows.expire(now, |handshake| mss.iter_mut().for_each(|mss| mss.forgot(handshake)));
        mss.iter_mut().for_each(|mss| mss.expire(now));
        paths.iter_mut().for_each(|paths| paths.expire(now));
        early.iter_mut().for_each(|early| early.expire(now));
    }

    /// Returns the time at which [`expire`](Connections::expire) next has work. `None` if the table is empty.
    pub fn next_deadline(&self) -> Option<Time> {
        let pairs = self.mss.as_ref().and_then(Mss::next_deadline);
        let paths = self.paths.as_ref().and_then(Paths::next_deadline);
        let routes = self.route_mtus.next_deadline();
        let early = self.early.as_ref().and_then(|early| early.next_timeout());
        self.flows.next_deadline().into_iter().chain(pairs).chain(paths).chain(routes).chain(early).min()
    }

    /// Returns the bytes charged against the limit.
    pub fn charged(&self) -> usize {
        let paths = self.paths.as_ref().map_or(0, Paths::charged);
        let early = self.early.as_ref().map_or(0, |early| early.charged());
        self.flows.charged() + self.mss.as_ref().map_or(0, Mss::charged) + paths + early
    }

    /// Returns the limit, in bytes. Without a border, the limit is `usize::MAX`.
    pub fn limit(&self) -> usize {
        let paths = self.paths.as_ref().map_or(0, Paths::limit);
        let early = self.early.as_ref().map_or(0, |early| early.limit());
        let pairs = self.mss.as_ref().map_or(0, Mss::pairs_limit);
        self.flows.limit().saturating_add(pairs).saturating_add(paths).saturating_add(early)
    }

    /// Returns the time at which data that was acknowledged early may have to be sent again. `None` if none is owed.
    #[inline]
    pub(crate) fn repeat_deadline(&self) -> Option<Time> {
        self.early.as_ref()?.next_deadline()
    }

    /// Returns the number of connections with a known handshake.
    pub fn flow_count(&self) -> usize {
        self.flows.handshake_count()
    }
}

/// Ratio of the memory limit of handshakes to that of host pairs, and to that of paths.
const PAIRS_SHARE: usize = 4;
