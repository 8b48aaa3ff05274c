//! TCP packets above the MTU -> the limit of their segments: the MTU, or longer and sent in IP fragments.
//!
//! A host that believes in a wide link sends TCP segments above the MTU of the narrow link. They are sent as shorter
//! TCP segments, or as they are, in IP fragments (super-fragmentation, C20). Longer segments cost hosts less CPU
//! time. But one lost fragment loses its whole segment, so they suit only paths with little loss. The policy
//! chooses, by destination and by [flow](crate::flow_sizing).
//!
//! The host's own segments keep their length, so its congestion window does not change in bytes (C26). It never
//! gets a longer segment to send than it chose itself, and no segment exceeds the limit of its receiver.

use crate::connections::Connections;
use crate::flow_sizing::{FlowSizing, SegmentPolicy, WideSegment};
use crate::ledger::Ledger;
use crate::prefixes::Prefixes;
use crate::rules::Exempt;
use crate::toward::Toward;
use packet::{Packet, SegmentLimit, TcpFacts, Time};

/// Chooses the segment length of the flows toward the narrow side.
#[derive(Clone, Debug)]
pub(crate) struct SegmentSizing {
    policies: Prefixes<SegmentPolicy>,
    /// Flows whose segments always fit the MTU: applications that need low latency (C28).
    exempt: Vec<Exempt>,
    /// The MTU of the narrow link, in bytes.
    mtu: u16,
    /// The MTU of the host's routes, in bytes, if destinations whose segments must be shorter get a route MTU of their
    /// own.
    route_mtu_max: Option<u16>,
}

impl SegmentSizing {
    /// Creates a chooser for a link with an MTU of `mtu` bytes. `None` if all destinations have the policy
    /// [`SegmentPolicy::Segment`].
    pub(crate) fn new(
        policies: Prefixes<SegmentPolicy>,
        exempt: Vec<Exempt>,
        mtu: u16,
        route_mtu_max: Option<u16>,
    ) -> Option<SegmentSizing> {
        let is_needed = policies.any(|policy| *policy != SegmentPolicy::Segment);
        is_needed.then_some(SegmentSizing { policies, exempt, mtu, route_mtu_max })
    }

    /// Takes a packet toward the narrow side. Sets the limit of its segments, if they may exceed the MTU.
    #[inline]
    pub(crate) fn on_packet(
        &self,
        now: Time,
        packet: &mut Packet,
        connections: &mut Connections,
        ledger: &mut Ledger,
    ) {
        if packet.wire_len() > usize::from(self.mtu) && packet.is_tcp() && packet.ip().fragment.is_none() {
            self.on_wide(now, packet, connections, ledger);
        }
    }

    #[inline(never)]
    fn on_wide(&self, now: Time, packet: &mut Packet, connections: &mut Connections, ledger: &mut Ledger) {
        let Connections { flows, route_mtus, .. } = connections;
        let (source, destination) = packet.addresses();
        let policy = *self.policies.get(destination);
        if policy == SegmentPolicy::Segment {
            return;
        }
        let Some(facts) = packet.ip().upper.and_then(|upper| TcpFacts::read(packet.upper_bytes(upper))) else {
            return;
        };
        let is_exempt = self.exempt.iter().any(|exempt| exempt.covers([source, destination], facts.ports));
        let Some(segment) = WideSegment::of(packet, facts.seq, self.mtu).filter(|_| !is_exempt) else { return };
        let Some(sizing) = flows.sizing(now, packet, Toward::Narrow.direction()) else { return };
        // The host's segments keep their length where all of them are sent in fragments.
        let route_mtu_max = self.route_mtu_max.filter(|_| policy != SegmentPolicy::Fragment);
        let to = (destination, packet.ip().version);
        let goes_on = |sizing: &FlowSizing| {
            sizing.policy == policy && !(route_mtu_max.is_some() && route_mtus.is_restarted(to, sizing.last()))
        };
        let sizing = match sizing {
            Some(sizing) if goes_on(sizing) => sizing,
            _ => sizing.insert(Box::new(FlowSizing::new(now, policy, &segment))),
        };
        let len_max = sizing.take(now, &segment, ledger);
        if let Some(mtu_max) = route_mtu_max {
            route_mtus.take(now, to, &segment, sizing.allowed(), mtu_max);
        }
        if len_max > self.mtu {
            packet.segment_limit = Some(SegmentLimit { in_fragments: true, ..SegmentLimit::new(len_max, false) });
        }
    }
}
