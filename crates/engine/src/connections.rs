//! The connections that cross a gateway, and what a border makes of them.
//!
//! Where a border ends for good, what a wide host sends to a narrow one is too long from then on, and nobody says so to
//! it. So it is told before, by an ICMP error for each connection whose MSS was raised
//! ([`raised_connections`](Connections::raised_connections), [`tell`](Connections::tell)). Its sender takes it for its own
//! only where it quotes a sequence number that is not acknowledged yet, or the next one: the last that the narrow host
//! asked for.

use crate::flows::{FlowKey, FlowTable, Found};
use crate::keyed_hash::Secret;
use crate::ledger::Ledger;
use crate::mss::{Border, Mss, Raise};
use crate::output::Output;
use crate::toward::Toward;
use packet::icmp::IcmpError;
use packet::{Address, Frame, Ingress, Packet, SegmentLimit, Time};

/// The table of connections, and the rules of a border for them.
#[derive(Debug)]
pub struct Connections {
    pub(crate) flows: FlowTable,
    mss: Option<Mss>,
}

/// A connection that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(FlowKey);

impl Connections {
    /// Those of a border. Handshakes are remembered within `limit` bytes, and pairs of hosts within a quarter as many.
    pub fn at_border(limit: usize, border: Border, secret: Secret) -> Connections {
        let flows = FlowTable::new(limit, false, secret);
        Connections { flows, mss: Some(Mss::new(limit / PAIRS_SHARE, border, secret)) }
    }

    /// Those of any other gateway, as many as its sides hold streams of.
    pub fn new(secret: Secret) -> Connections {
        Connections { flows: FlowTable::new(usize::MAX, true, secret), mss: None }
    }

    /// Finds what is remembered by this key.
    pub fn with_table_key(mut self, key: Secret) -> Connections {
        self.flows.set_key(key);
        if let Some(mss) = &mut self.mss {
            mss.set_key(key);
        }
        self
    }

    /// Goes on with the limits and lengths of others, and what is known itself. What was announced to a border that ends
    /// is forgotten with it: nobody sees what is announced from then on.
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

    /// Forgets handshakes beyond the limit, of those hosts first that have the most. What is found of a packet may be
    /// gone behind it.
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

    /// Are these a border's?
    pub(crate) fn is_border(&self) -> bool {
        self.mss.is_some()
    }

    /// Has a border see a packet before the side that it leaves by takes it: the MSS of a SYN changes, and any whole TCP
    /// packet is marked with the length that its receiver takes.
    pub fn on_packet(&mut self, now: Time, packet: &mut Packet, toward: Toward, ledger: &mut Ledger) {
        let mut found = self.flows.find(packet, toward.direction(), false, |_, _| None);
        self.see_found(now, packet, &mut found, toward, ledger);
        self.forget_surplus();
    }

    /// The same, where it is known what the table says.
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

    /// How long packets of a connection may be toward this side, to the second of these ends, addresses and ports,
    /// without VLAN tags, and to the first one; none where there is no border.
    pub fn limits(&self, ends: [(Address, u16); 2], toward: Toward) -> Option<[SegmentLimit; 2]> {
        let mss = self.mss.as_ref()?;
        let handshake = self.flows.between(ends, toward).and_then(|at| self.flows.handshake(at));
        Some([toward, toward.other()].map(|toward| mss.limit(handshake, toward)))
    }

    /// Packets of a connection go on toward this side without being seen here: from the first of these ends to the
    /// second, addresses and ports, without VLAN tags. How long its packets may be, IP header counted, in bytes; none
    /// where nothing is known of its handshake.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], toward: Toward) -> Option<SegmentLimit> {
        let mss = self.mss.as_mut()?;
        let at = self.flows.between(ends, toward).filter(|at| self.flows.handshake(*at).is_some())?;
        mss.on_offloaded(now, at, toward, &mut self.flows);
        Some(mss.limit(self.flows.handshake(at), toward))
    }

    /// The narrow end of a connection whose packets go on without being seen here has acknowledged all before this byte.
    /// Its ends are as in [`on_offloaded`](Connections::on_offloaded), the narrow one first.
    pub fn on_offloaded_ack(&mut self, ends: [(Address, u16); 2], ack: u32) {
        if let Some(at) = self.flows.between(ends, Toward::Wide)
            && let Some(raised) = self.flows.handshake_mut(at).and_then(|it| it.raised.as_mut())
        {
            raised.go_on_to(ack);
        }
    }

    /// No MSS is raised from here on.
    pub fn stop_raising(&mut self) {
        if let Some(mss) = &mut self.mss {
            mss.border.raise = Raise::Never;
        }
    }

    /// The connections whose wide host was told that longer segments are welcome than the narrow side takes.
    pub fn raised_connections(&self) -> impl Iterator<Item = Connection> {
        let raised = self.flows.handshakes().filter(|(_, handshake)| handshake.raised.is_some());
        raised.map(|(key, _)| Connection(*key))
    }

    /// How many of those may go on though nothing is known of them any more.
    pub fn forgotten_count(&self) -> u64 {
        self.mss.as_ref().map_or(0, |mss| mss.forgotten_count)
    }

    /// Tells the wide host of a connection, outside of the usual rate limit, that its packets are too long for the narrow
    /// side. Says whether that could be: it is not known yet which byte to quote, or no address is there to say it from.
    ///
    /// `out` belongs to what comes from the wide side.
    pub fn tell(&self, connection: &Connection, ingress: Ingress, out: &mut Output) -> bool {
        let Connection(key) = connection;
        let (Some(mss), Some(at)) = (&self.mss, self.flows.by_key(key)) else { return false };
        let raised = self.flows.handshake(at).and_then(|handshake| handshake.raised);
        let [narrow_port, wide_port] = key.ports;
        let frame = raised.and_then(|raised| raised.segment((key.wide, wide_port), (key.narrow, narrow_port)));
        let Some((frame, medium)) = frame else { return false };
        let Ok(about) = Frame::copy(&frame, medium, ingress, &mut out.pool) else { return false };
        let is_told = out.tell(IcmpError::TooBig { mtu: mss.border.narrow_mtu }, &about);
        out.done(about);
        is_told
    }

    /// Forgets what is late.
    pub fn expire(&mut self, now: Time) {
        let Connections { flows, mss } = self;
        flows.expire(now, |handshake| mss.iter_mut().for_each(|mss| mss.forgot(handshake)));
        if let Some(mss) = mss {
            mss.expire(now);
        }
    }

    /// When [`expire`](Connections::expire) next has work; none while nothing is remembered.
    pub fn next_deadline(&self) -> Option<Time> {
        let pairs = self.mss.as_ref().and_then(Mss::next_deadline);
        self.flows.next_deadline().into_iter().chain(pairs).min()
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.flows.charged() + self.mss.as_ref().map_or(0, Mss::charged)
    }

    /// The limit, in bytes; none that is ever reached where there is no border.
    pub fn limit(&self) -> usize {
        self.flows.limit().saturating_add(self.mss.as_ref().map_or(0, Mss::pairs_limit))
    }

    /// Connections whose handshake is known.
    pub fn flow_count(&self) -> usize {
        self.flows.handshake_count()
    }
}

/// Pairs of hosts have one byte for so many of handshakes.
const PAIRS_SHARE: usize = 4;
