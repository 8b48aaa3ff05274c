//! Flows of a border that need nothing but segments of another length -> leases of the kernel on them.
//!
//! The kernel passes on by itself what it is lent, and numbers what it leaves to the worker.

use super::Worker;
use crate::endpoint::Endpoint;
use crate::path::{TO_NARROW, TO_WIDE};
use offload::flow_offload::{self, Flow};
use packet::{Packet, Tags, Time, may_be_segmented, may_be_segmented_hence};
use std::time::Duration;

impl Worker {
    /// Has the kernel pass on what is lent to it, or leave all to us while a port is down.
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

    /// Notes a packet whose flow the kernel may be able to pass on: one by which its hosts agree to it, or a train.
    /// What opens or ends a connection ends what was lent.
    pub(super) fn note_candidate(&mut self, direction: usize, packet: &Packet) {
        let ip = &packet.frame()[packet.link_len()..];
        let Some(flow) = Flow::of(ip).filter(|_| packet.tags() == Tags::default()) else { return };
        let turn = Flow::turn(ip);
        if turn == flow_offload::SegmentRole::GoesOn && packet.gso.is_none() {
            return;
        }
        if turn != flow_offload::SegmentRole::GoesOn {
            // What came of it before, in the same batch, is of a connection that is over.
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
            // One that nobody asked for tells nothing.
            flow_offload::SegmentRole::SynAck => is_expected && may_be_segmented_hence(packet),
            flow_offload::SegmentRole::Opens | flow_offload::SegmentRole::Closing => false,
        };
        if may_offload {
            self.candidates.push(flow);
        }
    }

    /// Lends the kernel both directions of the flows that were noted, where all that is done to their packets is
    /// that their trains get segments of another length.
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

    /// Lends for longer what is in use and known; what is not comes by here, and is looked at.
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
                if let (TO_WIDE, Some(ack), Some(connections)) = (direction, acked, gateway.connections_mut()) {
                    connections.on_offloaded_ack(ends, ack);
                }
                gateway.on_offloaded(now, ends, direction)
            };
            if flow_offload.refresh(limit) > 0 {
                self.renewal = Some(now.later(REFRESH.as_nanos() as u64));
            }
        }
    }

    /// Takes back what the kernel was lent: it was lent as things were.
    pub(super) fn withdraw(&mut self) {
        for end in &mut self.ends {
            if let Some(flow_offload) = end.port.flow_offload() {
                flow_offload.withdraw();
            }
        }
    }

    /// Where nothing that came in for a way is left, its flows may go on without us.
    pub(super) fn settle(&mut self, direction: usize) {
        if self.redirects && self.gateway.is_idle(direction) {
            self.ends[direction].port.settle();
        }
    }
}

/// How often leases that are in use are lengthened: more than once while one runs.
const REFRESH: Duration = Duration::from_millis(flow_offload::TERM.as_millis() as u64 * 2 / 5);
