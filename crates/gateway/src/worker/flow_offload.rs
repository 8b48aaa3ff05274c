//! Flows of a border that only need another segment size -> flow offload by the kernel.
//!
//! The kernel forwards the packets of offloaded flows. It numbers the packets that it leaves to the worker, so that
//! packets stay in order.

use super::Worker;
use crate::endpoint::Endpoint;
use crate::path::{TO_NARROW, TO_WIDE};
use engine::Toward;
use offload::flow_offload::{self, Flow};
use packet::icmp::TooBigReport;
use packet::{Packet, Tags, Time, may_be_segmented, may_be_segmented_hence};
use std::time::Duration;

impl Worker {
    /// Sets the kernel's egress interfaces for offloaded flows. Removes them while a port is down.
    pub(super) fn set_redirect(&mut self) {
        let [wide, narrow] = &mut self.ends;
        let wanted = self.offloads_flows && wide.is_up && narrow.is_up;
        if self.redirects == wanted {
            return;
        }
        let [wide, narrow] = [wide.port.flow_offload(), narrow.port.flow_offload()];
        let indices = [&wide, &narrow]
            .map(|flow_offload| flow_offload.as_ref().filter(|_| wanted).map(|flow_offload| flow_offload.index()));
        let is_both = indices.iter().all(Option::is_some);
        for (flow_offload, to) in [(wide, indices[1]), (narrow, indices[0])] {
            if let Some(flow_offload) = flow_offload {
                flow_offload.set_redirect(to.filter(|_| is_both).unwrap_or(0));
            }
        }
        self.redirects = wanted && is_both;
    }

    /// Notes a packet whose flow may be offloaded: a GSO packet, or a SYN-ACK. A packet that opens or closes a
    /// connection ends the offload of its flow.
    pub(super) fn note_candidate(&mut self, direction: usize, packet: &Packet) {
        let ip = &packet.frame()[packet.link_len()..];
        let Some(flow) = Flow::of(ip).filter(|_| packet.tags() == Tags::default()) else { return };
        let turn = Flow::turn(ip);
        if turn == flow_offload::SegmentRole::GoesOn && packet.gso.is_none() {
            return;
        }
        if turn != flow_offload::SegmentRole::GoesOn {
            // Earlier packets of the same batch belong to a connection that has ended.
            self.candidates.retain(|noted| *noted != flow && *noted != flow.reversed());
        }
        let mut is_expected = true;
        for (end, flow) in [(direction, flow), (1 - direction, flow.reversed())] {
            let Some(flow_offload) = self.ends[end].port.flow_offload() else { return };
            if turn != flow_offload::SegmentRole::GoesOn {
                flow_offload.end(flow);
            }
            if turn == flow_offload::SegmentRole::Opens {
                flow_offload.expect(flow);
            }
            is_expected &= flow_offload.notes(flow);
        }
        let may_offload = match turn {
            flow_offload::SegmentRole::GoesOn => may_be_segmented(packet),
            // A SYN-ACK without a seen SYN does not prove that a connection opens.
            flow_offload::SegmentRole::SynAck => is_expected && may_be_segmented_hence(packet),
            flow_offload::SegmentRole::Opens | flow_offload::SegmentRole::Closing => false,
        };
        if may_offload {
            self.candidates.push(flow);
        }
    }

    /// Offloads the noted flows in both directions, if their packets only need another segment size.
    pub(super) fn offload(&mut self, direction: usize, now: Time) {
        if self.candidates.is_empty() {
            return;
        }
        let may_offload = self.ends.iter_mut().all(Endpoint::can_offload);
        for flow in self.candidates.drain(..).filter(|_| may_offload) {
            let ends = flow.ends().map(|(address, port)| (address.into(), port));
            let Some(limits) = self.gateway.resized_limits(ends, direction) else { continue };
            for ((end, flow), limit) in
                [(direction, flow), (1 - direction, flow.reversed())].into_iter().zip(limits)
            {
                self.ends[end]
                    .port
                    .flow_offload()
                    .into_iter()
                    .for_each(|flow_offload| flow_offload.offload(flow, limit));
            }
            self.renewal.get_or_insert(now.later(REFRESH.as_nanos() as u64));
        }
    }

    /// Ends the offload of flows that lost data: the gateway then sees which of their packets arrive. Ends the
    /// offload of all flows if the size of a path changed.
    pub(super) fn watch_losses(&mut self) {
        let Some(connections) = self.gateway.connections_mut() else { return };
        let is_changed = connections.take_path_change();
        for ends in connections.take_watched() {
            let flow = Flow::between(ends.map(|(address, port)| (address.into(), port)));
            self.candidates.retain(|noted| *noted != flow && *noted != flow.reversed());
            for (end, flow) in [(TO_NARROW, flow), (TO_WIDE, flow.reversed())] {
                self.ends[end].port.flow_offload().into_iter().for_each(|flow_offload| flow_offload.end(flow));
            }
        }
        if is_changed {
            self.withdraw();
        }
    }

    /// Handles a packet of this direction. If it is an ICMP error about an offloaded flow, the engine gets to know which
    /// data of the flow is in flight.
    pub(super) fn prepare_icmp(&mut self, direction: usize, packet: &Packet) {
        let Some(TooBigReport { source, destination, .. }) = TooBigReport::read(packet) else { return };
        let ends = [source, destination];
        let flow = Flow::between(ends.map(|(address, port)| (address.into(), port)));
        let back = direction.min(1);
        // Read first: later acknowledgements then leave some data in flight.
        let acks = self.ends[back].port.flow_offload();
        let acked = acks.and_then(|flow_offload| flow_offload.acked_of(flow.reversed()));
        let data = self.ends[1 - back].port.flow_offload();
        let sent = data.and_then(|flow_offload| flow_offload.sent_of(flow));
        if let (Some(sent), Some(connections)) = (sent, self.gateway.connections_mut()) {
            connections.on_offloaded_data(ends, Toward::of_direction(1 - back), acked, sent);
        }
    }

    /// Extends the offload of flows that were used recently and are in the flow table. Packets of other flows
    /// return to the worker.
    pub(super) fn refresh(&mut self, now: Time) {
        self.renewal = None;
        if !self.redirects
            || self.gateway.connections().is_none()
            || !self.ends.iter_mut().all(Endpoint::can_offload)
        {
            return;
        }
        for direction in [TO_NARROW, TO_WIDE] {
            let (Some(flow_offload), gateway) = (self.ends[direction].port.flow_offload(), &mut self.gateway)
            else {
                continue;
            };
            let limit = |flow: Flow, acked: Option<u32>| {
                let ends = flow.ends().map(|(address, port)| (address.into(), port));
                if let (Some(ack), Some(connections)) = (acked, gateway.connections_mut()) {
                    connections.on_offloaded_ack(ends, Toward::of_direction(direction), ack);
                }
                gateway.on_offloaded(now, ends, direction)
            };
            if flow_offload.refresh(limit) > 0 {
                self.renewal = Some(now.later(REFRESH.as_nanos() as u64));
            }
        }
    }

    /// Ends the offload of all flows. Called when the settings or the ports of the flows may have changed.
    pub(super) fn withdraw(&mut self) {
        for end in &mut self.ends {
            if let Some(flow_offload) = end.port.flow_offload() {
                flow_offload.withdraw();
            }
        }
    }

    /// Lets the kernel forward the offloaded flows of this direction, if the worker holds no earlier packet of the
    /// direction.
    pub(super) fn commit(&mut self, direction: usize) {
        if self.redirects && self.gateway.is_idle(direction) {
            self.ends[direction].port.commit();
        }
    }
}

/// Interval between two refreshes of offloaded flows: at least two refreshes within [`flow_offload::TERM`].
const REFRESH: Duration = Duration::from_millis(flow_offload::TERM.as_millis() as u64 * 2 / 5);
