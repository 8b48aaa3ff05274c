//! The connections that cross a gateway, and a border's rules for them.
//!
//! When a border ends for good, the packets of wide hosts become too long for the narrow side, and nobody tells
//! their senders. So the border tells them before. It sends an ICMP error for each connection whose MSS was raised:
//! see [`raised_connections`](Connections::raised_connections) and [`tell`](Connections::tell). A sender accepts
//! the error only if the quoted sequence number is not acknowledged yet, or is the next one. The error therefore
//! quotes the last one that the narrow host asked for.

use crate::flows::{FlowKey, FlowTable, Found};
use crate::keyed_hash::Secret;
use crate::ledger::Ledger;
use crate::mss::{Border, Mss, Raise};
use crate::output::Output;
use crate::toward::Toward;
use packet::icmp::IcmpError;
use packet::{Address, Frame, Ingress, Packet, SegmentLimit, Time};

/// The connection table, and the rules of a border for it.
#[derive(Debug)]
pub struct Connections {
    pub(crate) flows: FlowTable,
    mss: Option<Mss>,
}

/// A known connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(FlowKey);

impl Connections {
    /// The connections of a border. Handshakes are remembered within `limit` bytes, and host pairs within a quarter
    /// of that.
    pub fn at_border(limit: usize, border: Border, secret: Secret) -> Connections {
        let flows = FlowTable::new(limit, false, secret);
        Connections { flows, mss: Some(Mss::new(limit / PAIRS_SHARE, border, secret)) }
    }

    /// The connections of any other gateway: as many as its sides have streams of.
    pub fn new(secret: Secret) -> Connections {
        Connections { flows: FlowTable::new(usize::MAX, true, secret), mss: None }
    }

    /// Sets the key of its hash tables.
    pub fn with_table_key(mut self, key: Secret) -> Connections {
        self.flows.set_key(key);
        if let Some(mss) = &mut self.mss {
            mss.set_key(key);
        }
        self
    }

    /// Takes the limits and lengths of `other`, and keeps the known connections. Where a border begins or ends, all
    /// handshakes are forgotten: later ones would not be seen.
    pub fn go_on_as(&mut self, other: Connections) {
        self.flows.go_on_as(&other.flows);
        match (&mut self.mss, other.mss) {
            (Some(mine), Some(fresh)) => mine.go_on_as(fresh),
            (mine, fresh) => {
                *mine = fresh;
                self.flows.forget_handshakes();
            }
        }
        self.forget_surplus();
    }

    /// Forgets handshakes above the limit, first those of the hosts that have the most. The result of an earlier
    /// look-up may be invalid afterwards.
    #[inline]
    pub(crate) fn forget_surplus(&mut self) {
        if self.flows.has_surplus() {
            self.forget_until_few();
        }
    }

    #[cold]
    fn forget_until_few(&mut self) {
        let Connections { flows, mss } = self;
        flows.forget_surplus(|handshake| mss.iter_mut().for_each(|mss| mss.forgot(handshake)));
    }

    /// Whether the gateway is a border.
    pub(crate) fn is_border(&self) -> bool {
        self.mss.is_some()
    }

    /// Shows a border a packet before the side that it leaves by. The MSS of a SYN is rewritten, and any whole TCP
    /// packet is marked with its receiver's limit.
    pub fn on_packet(&mut self, now: Time, packet: &mut Packet, toward: Toward, ledger: &mut Ledger) {
        let mut found = self.flows.find(packet, toward.direction(), false, |_, _| None);
        self.see_found(now, packet, &mut found, toward, ledger);
        self.forget_surplus();
    }

    /// The same with the result of the look-up.
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
    }

    /// The limits of a connection's packets: toward this side, to the second of these ends, then the opposite
    /// direction. Ends are addresses and ports, without VLAN tags. `None` where there is no border.
    pub fn limits(&self, ends: [(Address, u16); 2], toward: Toward) -> Option<[SegmentLimit; 2]> {
        let mss = self.mss.as_ref()?;
        let handshake = self.flows.between(ends, toward).and_then(|at| self.flows.handshake(at));
        Some([toward, toward.other()].map(|toward| mss.limit(handshake, toward)))
    }

    /// Records that packets of a connection were forwarded by flow offload toward this side: from the first of
    /// these ends to the second. Ends are addresses and ports, without VLAN tags. Returns the limit of its packets;
    /// `None` if its handshake is unknown.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], toward: Toward) -> Option<SegmentLimit> {
        let mss = self.mss.as_mut()?;
        let at = self.flows.between(ends, toward).filter(|at| self.flows.handshake(*at).is_some())?;
        mss.on_offloaded(now, at, toward, &mut self.flows);
        Some(mss.limit(self.flows.handshake(at), toward))
    }

    /// Records an acknowledgement in an offloaded flow: the narrow end has acknowledged all bytes before `ack`. The
    /// ends are as in [`on_offloaded`](Connections::on_offloaded), the narrow one first.
    pub fn on_offloaded_ack(&mut self, ends: [(Address, u16); 2], ack: u32) {
        if let Some(at) = self.flows.between(ends, Toward::Wide)
            && let Some(raised) = self.flows.handshake_mut(at).and_then(|it| it.raised.as_mut())
        {
            raised.go_on_to(ack);
        }
    }

    /// Stops raising the MSS.
    pub fn stop_raising(&mut self) {
        if let Some(mss) = &mut self.mss {
            mss.border.raise = Raise::Never;
        }
    }

    /// The connections whose wide host was told an MSS above that of the narrow side.
    pub fn raised_connections(&self) -> impl Iterator<Item = Connection> {
        let raised = self.flows.handshakes().filter(|(_, handshake)| handshake.raised.is_some());
        raised.map(|(key, _)| Connection(*key))
    }

    /// Number of connections with a raised MSS that were forgotten and may still be in use.
    pub fn forgotten_count(&self) -> u64 {
        self.mss.as_ref().map_or(0, |mss| mss.forgotten_count)
    }

    /// Tells the wide host of a connection that its packets are too long for the narrow side, outside of the usual
    /// rate limit. Returns whether an error was sent. None is sent if the byte to quote is unknown, or the gateway
    /// has no source address.
    ///
    /// `out` is the output of packets from the wide side.
    pub fn tell(&self, connection: &Connection, ingress: Ingress, out: &mut Output) -> bool {
        let Connection(key) = connection;
        let (Some(mss), Some(at)) = (&self.mss, self.flows.by_key(key)) else { return false };
        let raised = self.flows.handshake(at).and_then(|handshake| handshake.raised);
        let [narrow_port, wide_port] = key.ports;
        let frame = raised.and_then(|raised| raised.segment((key.wide, wide_port), (key.narrow, narrow_port)));
        let Some((frame, medium)) = frame else { return false };
        let Ok(about) = Frame::copy(&frame, medium, ingress, &mut out.pool) else { return false };
        let is_told = out.tell(IcmpError::TooBig { mtu: mss.border.narrow_mtu }, &about);
        out.recycle(about);
        is_told
    }

    /// Removes entries that timed out.
    pub fn expire(&mut self, now: Time) {
        let Connections { flows, mss } = self;
        flows.expire(now, |handshake| mss.iter_mut().for_each(|mss| mss.forgot(handshake)));
        if let Some(mss) = mss {
            mss.expire(now);
        }
    }

    /// When [`expire`](Connections::expire) next has work. `None` while nothing is remembered.
    pub fn next_deadline(&self) -> Option<Time> {
        let pairs = self.mss.as_ref().and_then(Mss::next_deadline);
        self.flows.next_deadline().into_iter().chain(pairs).min()
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.flows.charged() + self.mss.as_ref().map_or(0, Mss::charged)
    }

    /// The limit, in bytes. Without a border there is practically none.
    pub fn limit(&self) -> usize {
        self.flows.limit().saturating_add(self.mss.as_ref().map_or(0, Mss::pairs_limit))
    }

    /// Number of connections with a known handshake.
    pub fn flow_count(&self) -> usize {
        self.flows.handshake_count()
    }
}

/// Bytes for handshakes per byte for host pairs.
const PAIRS_SHARE: usize = 4;
