//! Packets -> packets of the sizes that one side accepts: aggregation, then sizing.
//!
//! A side connects the stages of one direction. Aggregation combines several packets into one: reassembly, merging,
//! coalescing. Sizing divides one packet into several. The choice of the direction and the connection table are
//! left to the [gateway](crate::gateway).

use crate::coalescing::Coalescer;
use crate::connections::Connections;
use crate::flows::Found;
use crate::ledger::{Event, Reason, Tally};
use crate::merge::{FragmentMerger, FragmentPolicy};
use crate::output::{Next, Output};
use crate::prefixes::Prefixes;
use crate::reassembly::{Outcome, PlacementStats, Placer, Reassembler};
use crate::rules::Toggle;
use crate::segment_sizing::SegmentSizing;
use crate::sink::CopyPayload;
use crate::sizing::{Role, Sizing, take_singles};
use packet::{
    FragmentRanges, Frame, Packet, PayloadSlots, Pool, SegmentLimit, Split, SplitFrame, SplitPacket, Time, Tunnel,
};

/// All stages for the packets that are sent to one side.
#[derive(Debug)]
pub struct Side {
    /// Stages that combine several packets into one.
    pub aggregation: Aggregation,
    /// Chooses the segment length of each flow. `None` if no TCP segment may exceed the MTU.
    pub(crate) segments: Option<SegmentSizing>,
    /// The stage that divides packets, by segmentation or fragmentation.
    pub sizing: Sizing,
}

/// Stages that combine several packets into one.
#[derive(Debug)]
pub struct Aggregation {
    /// Fragment policy, by destination (C14). If the stage of the policy is missing, fragments are forwarded
    /// unchanged.
    pub policies: Prefixes<FragmentPolicy>,
    /// Reassembles datagrams.
    pub reassembler: Option<Reassembler>,
    /// Merges fragments in order into longer fragments.
    pub merger: Option<FragmentMerger>,
    /// Coalesces the segments of a flow, including reassembled segments.
    pub coalescer: Option<Coalescer>,
}

impl Side {
    /// Creates a side with these stages, whose TCP segments never exceed the MTU.
    pub fn of(aggregation: Aggregation, sizing: Sizing) -> Side {
        Side { aggregation, segments: None, sizing }
    }

    /// Takes a packet that will be sent to this side. The caller must first call [`expire`](Side::expire) with the
    /// same `now`.
    pub fn push(&mut self, now: Time, packet: Packet, connections: &mut Connections, out: &mut Output) {
        let frame = Frame::Ip(packet);
        if self.take_front(now, core::slice::from_ref(&frame), connections, out) > 0 {
            return out.pool.give(frame.into_buffer());
        }
        if let Frame::Ip(packet) = frame {
            let found = self.find(&packet, 0, connections);
            self.push_found(now, packet, found, connections, out);
        }
    }

    /// Looks a packet up in the connection table, if a stage of this direction needs the connection.
    #[inline(always)]
    pub(crate) fn find(&self, packet: &Packet, direction: usize, connections: &mut Connections) -> Found {
        match &self.aggregation.coalescer {
            Some(coalescer) => coalescer.find(connections, packet),
            None if connections.is_border() => connections.flows.find(packet, direction, false, |_, _| None),
            None => Found::Nothing,
        }
    }

    /// Takes a packet that [`take_front`](Side::take_front) did not take.
    #[inline(always)]
    pub(crate) fn push_found(
        &mut self,
        now: Time,
        packet: Packet,
        found: Found,
        connections: &mut Connections,
        out: &mut Output,
    ) {
        receive(&packet, out);
        self.push_received(now, packet, found, connections, out);
    }

    /// Takes a packet that ends here.
    pub(crate) fn retire(&mut self, packet: Packet, reason: Reason, out: &mut Output) {
        receive(&packet, out);
        let ended = Tally::of(&packet);
        out.retire(packet, ended, reason);
    }

    /// Takes a packet that was counted as received, or was made. A packet that needs no aggregation goes directly to
    /// sizing.
    #[inline(always)]
    pub(crate) fn push_received(
        &mut self,
        now: Time,
        mut packet: Packet,
        found: Found,
        connections: &mut Connections,
        out: &mut Output,
    ) {
        let Side { aggregation, segments, sizing } = self;
        if let Some(segments) = segments {
            segments.on_packet(now, &mut packet, connections, &mut out.ledger);
        }
        if packet.ip().fragment.is_some() && !sizing.is_below_every_link(&packet) {
            return aggregation.push_fragment(now, packet, connections, ToSizing { now, sizing, out });
        }
        let mut next = ToSizing { now, sizing, out };
        match &mut aggregation.coalescer {
            Some(coalescer) => coalescer.push_found(now, packet, found, connections, &mut next, &mut CopyPayload),
            None => next.forward(packet),
        }
    }

    /// Takes the leading frames that continue the datagram of the last fragment. The result equals that of
    /// [`push`](Side::push) for each frame. Returns the number of frames taken.
    #[inline]
    pub(crate) fn take_front(
        &mut self,
        now: Time,
        frames: &[Frame],
        connections: &mut Connections,
        out: &mut Output,
    ) -> usize {
        let Some(Frame::Ip(first)) = frames.first() else { return 0 };
        if first.ip().fragment.is_none() || !self.reassembles(first) {
            return 0;
        }
        let Some((reassembler, mut next)) = self.reassembling(now, connections, out) else { return 0 };
        let taken = reassembler.take_front(frames, &mut next, &mut CopyPayload);
        frames.iter().take(taken).filter_map(Frame::packet).for_each(|fragment| receive(fragment, out));
        taken
    }

    /// Prefetches the table entries and payload positions of later frames.
    #[inline]
    pub(crate) fn prefetch(&self, frames: &[Frame], connections: &Connections) {
        if let Some(coalescer) = &self.aggregation.coalescer {
            coalescer.prefetch(frames, connections, &CopyPayload);
        }
    }

    /// Whether the reassembler takes a fragment, by the policy for its destination and by the MTU.
    pub(crate) fn reassembles(&self, packet: &Packet) -> bool {
        let policies = self.aggregation.joins_of(packet);
        policies == FragmentPolicy::Reassemble
            && self.aggregation.reassembler.is_some()
            && !self.sizing.is_below_every_link(packet)
    }

    /// Returns the reassembler, and the stages behind it.
    #[inline(always)]
    pub(crate) fn reassembling<'a>(
        &'a mut self,
        now: Time,
        connections: &'a mut Connections,
        out: &'a mut Output,
    ) -> Option<(&'a mut Reassembler, ToCoalescer<'a, ToSizing<'a>>)> {
        let Side { aggregation: Aggregation { reassembler, coalescer, .. }, sizing, .. } = self;
        Some((
            reassembler.as_mut()?,
            ToCoalescer { now, coalescer, connections, next: ToSizing { now, sizing, out } },
        ))
    }

    /// Returns the size limit for TCP GSO packets of an offloaded flow. `limit` is the limit of their receiver.
    /// `None` if the flow needs more than a new segment size.
    pub fn resizes_to(&self, limit: SegmentLimit) -> Option<SegmentLimit> {
        let Sizing { mtu, split, segment, .. } = self.sizing;
        let joins_so = self.aggregation.coalescer.as_ref().is_none_or(Coalescer::resizes);
        let resizes = (segment, split) == (Toggle::On, Split::Max) && joins_so;
        let may_grow = self.sizing.may_grow(Some(limit));
        (resizes && limit.len_max > 0).then_some(SegmentLimit {
            len_max: mtu.min(limit.len_max),
            may_grow,
            ..limit
        })
    }

    /// Sends or drops the held packets whose deadline has passed, and removes state that timed out.
    pub fn expire(&mut self, now: Time, connections: &mut Connections, out: &mut Output) {
        let Side { aggregation, sizing, .. } = self;
        aggregation.expire(now, connections, ToSizing { now, sizing, out });
    }

    /// Sends all held segments, because the port has no more packets.
    pub fn release(&mut self, now: Time, connections: &mut Connections, out: &mut Output) {
        let Side { aggregation, sizing, .. } = self;
        aggregation.release(now, connections, ToSizing { now, sizing, out });
    }

    /// Sends all held packets, because the input has ended.
    pub fn flush(&mut self, now: Time, connections: &mut Connections, out: &mut Output) {
        let Side { aggregation, sizing, .. } = self;
        aggregation.flush(now, connections, ToSizing { now, sizing, out });
    }

    /// Returns the time at which [`expire`](Side::expire) next has work. `None` if no packet is held and no state
    /// is kept.
    pub fn next_deadline(&self) -> Option<Time> {
        self.aggregation.next_deadline()
    }

    /// Checks the conservation laws between two packets. Every received packet must have been sent or retired, or
    /// be held. Every buffer outside of the pool must be held or queued.
    ///
    /// # Errors
    /// The violated law, with its counters.
    pub fn check(&self, out: &Output) -> Result<(), String> {
        let (held, buffers) = self.aggregation.held();
        let expected = buffers + out.queued_count();
        if out.pool.in_use_count() != expected {
            let lent = out.pool.in_use_count();
            return Err(format!("{lent} buffers are lent, {expected} are held or queued"));
        }
        if out.queued_count() > 0 {
            return Ok(());
        }
        out.ledger.check(held)
    }

    /// Removes each stage whose element of `stays` is false: reassembler, fragment merger, coalescer. Its held
    /// packets are sent first, through all stages behind it.
    pub(crate) fn end_all_but(
        &mut self,
        stays: [bool; 3],
        now: Time,
        connections: &mut Connections,
        out: &mut Output,
    ) {
        let [reassembler_stays, joiner_stays, coalescer_stays] = stays;
        let Aggregation { reassembler, merger, coalescer, .. } = &mut self.aggregation;
        if reassembler.is_some() && !reassembler_stays || merger.is_some() && !joiner_stays {
            let staying = (reassembler.take_if(|_| reassembler_stays), merger.take_if(|_| joiner_stays));
            self.flush(now, connections, out);
            (self.aggregation.reassembler, self.aggregation.merger) = staying;
        } else if coalescer.is_some() && !coalescer_stays {
            self.release(now, connections, out);
        }
        if !coalescer_stays && let Some(coalescer) = self.aggregation.coalescer.take() {
            coalescer.forget_all(connections);
        }
    }

    /// Queues all held packets in `out`, without [`sizing`](Side::sizing), for the side that replaces this one.
    pub fn hand_over(&mut self, now: Time, connections: &mut Connections, out: &mut Output) {
        self.aggregation.flush(now, connections, out);
    }

    /// Takes over the held packets and the counters of IP IDs of another side. The caller calls it before the first
    /// packet, because the IP ID counters of this side are replaced. Later packets may still join the held packets.
    /// No ID is reused within its lifetime.
    ///
    /// The other side's record of finished datagrams is discarded.
    pub fn take_over(&mut self, now: Time, mut other: Side, connections: &mut Connections, out: &mut Output) {
        // The held packets are collected first, because streams of both sides would share entries of the connection
        // table.
        let mut held = Collected { packets: Vec::new(), out };
        other.aggregation.flush(now, connections, &mut held);
        let packets = held.packets;
        if let Some(coalescer) = other.aggregation.coalescer {
            coalescer.forget_all(connections);
        }
        // IP IDs come first: a packet that is taken over may be fragmented with the next IP ID.
        if let (Role::Source(mine), Role::Source(theirs)) = (&mut self.sizing.role, other.sizing.role) {
            mine.go_on_from(theirs);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.sizing.df_identifiers, other.sizing.df_identifiers) {
            mine.go_on_from(theirs);
        }
        let cleared = (&mut self.sizing.cleared_df_identifiers, other.sizing.cleared_df_identifiers);
        if let (Some(mine), Some(theirs)) = cleared {
            mine.go_on_from(theirs);
        }
        packets.into_iter().for_each(|packet| self.take_held(now, packet, connections, out));
    }

    /// Takes a held packet of another side. The packet was counted as received there.
    fn take_held(&mut self, now: Time, packet: Packet, connections: &mut Connections, out: &mut Output) {
        let mut take = |packet: Packet, out: &mut Output| {
            let coalescer = self.aggregation.coalescer.as_ref();
            let found = coalescer.map_or(Found::Nothing, |coalescer| coalescer.find(connections, &packet));
            self.push_received(now, packet, found, connections, out);
        };
        if packet.is_single() {
            return take(packet, out);
        }
        if let Some((count, bytes)) = packet.fragment_ranges().map(FragmentRanges::totals) {
            out.ledger.note(Event::Fragmented, Tally::new(1, bytes));
            out.ledger.note(Event::Fragments, Tally::new(count, bytes));
        }
        take_singles(packet, out, take);
    }
}

/// Methods for frames whose payloads were received at their predicted places.
impl Side {
    /// Predicts the next frames, from the header of the next packet if it is known. The next call must be
    /// [`finish_placement`](Side::finish_placement) with the received frames.
    #[inline]
    pub fn predict(&mut self, next: Option<&Packet>, pool: &mut Pool) {
        if let Some(reassembler) = &mut self.aggregation.reassembler {
            reassembler.placing().predict(next, pool);
        }
    }

    /// Returns the slots for the payloads of the next frames. `None` if there is no prediction.
    #[inline]
    pub fn places(&mut self) -> Option<PayloadSlots<'_>> {
        self.aggregation.reassembler.as_mut()?.placing().places()
    }

    /// Whether a port has payload slots for the next frames.
    #[inline]
    pub(crate) fn is_predicting(&self) -> bool {
        self.aggregation.reassembler.as_ref().is_some_and(|reassembler| reassembler.is_predicting())
    }

    /// Returns the counts of right and wrong predictions.
    pub fn placement_stats(&self) -> PlacementStats {
        self.aggregation
            .reassembler
            .as_ref()
            .map_or_else(PlacementStats::default, |reassembler| reassembler.placement_stats())
    }

    /// Takes the frames whose payload was received at the right place, as [`push`](Side::push) would. Other
    /// payloads are copied out of their slots, and their frames are inserted at the start of `frames`.
    /// `split_frame` contains the first received frames, one for each slot, in slot order.
    pub fn finish_placement(
        &mut self,
        now: Time,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
        connections: &mut Connections,
        out: &mut Output,
    ) {
        let came_count = split_frame.len() + frames.len();
        let mut right_count = 0;
        let mut fragments = split_frame.drain(..);
        while let Some(it) = fragments.next() {
            let place = self.placing().next_place();
            let fragment = match it.read() {
                Ok(fragment) => fragment,
                Err(it) => {
                    self.placing().copy_out(place, it);
                    break;
                }
            };
            // A payload at its right place is taken without a copy. Any other payload is copied out of its slot.
            let taken = if self.reassembles(fragment.packet()) {
                self.placing().take(now, &place, fragment.packet())
            } else {
                Outcome::Not
            };
            if taken == Outcome::Not {
                self.placing().copy_out(place, fragment.into_split_frame());
                break;
            }
            receive(fragment.packet(), out);
            let mut count = 1;
            match taken {
                Outcome::Last => {
                    // The datagram is sent in its buffer. Payloads of later frames in slots of this buffer are
                    // copied out before.
                    if self.placing().goes_on() {
                        fragments.by_ref().for_each(|it| self.placing().copy_out_next(it));
                    }
                    if let Some((reassembler, mut next)) = self.reassembling(now, connections, out) {
                        reassembler.placing().send_complete(&mut next);
                    }
                }
                _ => count += self.take_more(&fragment, fragments.as_slice(), out),
            }
            fragments.by_ref().take(count - 1).for_each(|it| out.pool.give(it.into_buffer()));
            out.pool.give(fragment.into_buffer());
            right_count += count;
        }
        fragments.for_each(|it| self.placing().copy_out_next(it));
        if let Some(reassembler) = &mut self.aggregation.reassembler {
            reassembler.placing().end(came_count, right_count, frames, &mut out.pool);
        }
    }

    fn placing(&mut self) -> Placer<'_> {
        match &mut self.aggregation.reassembler {
            Some(reassembler) => reassembler.placing(),
            None => panic!("what landed was lent its place by a reassembler"),
        }
    }

    /// Takes the frames of `next` that continue this fragment with equal headers. Returns the number of frames
    /// taken.
    fn take_more(&mut self, fragment: &SplitPacket, next: &[SplitFrame], out: &mut Output) -> usize {
        let count = self.placing().take_more(fragment, next);
        if count > 0 {
            receive_alike(fragment.packet(), count, out);
        }
        count
    }
}

/// Stage behind reassembly and merging: the coalescer, if configured, then `next`.
pub(crate) struct ToCoalescer<'a, N> {
    now: Time,
    coalescer: &'a mut Option<Coalescer>,
    connections: &'a mut Connections,
    next: N,
}

impl<N: Next> Next for ToCoalescer<'_, N> {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        match self.coalescer {
            Some(coalescer) => coalescer.push(self.now, packet, self.connections, &mut self.next),
            None => self.next.forward(packet),
        }
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        self.next.output()
    }
}

/// Stage behind all aggregation: sizing.
pub(crate) struct ToSizing<'a> {
    now: Time,
    sizing: &'a mut Sizing,
    out: &'a mut Output,
}

impl Next for ToSizing<'_> {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        self.sizing.push(self.now, packet, self.out);
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        self.out
    }
}

/// Collects the held packets of a side that is being replaced, for its successor.
struct Collected<'a> {
    packets: Vec<Packet>,
    out: &'a mut Output,
}

impl Next for Collected<'_> {
    fn forward(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    fn output(&mut self) -> &mut Output {
        self.out
    }
}

impl Default for Aggregation {
    /// No aggregation. A reassembler that is set later serves every destination.
    fn default() -> Aggregation {
        Aggregation {
            policies: Prefixes::new(FragmentPolicy::Reassemble),
            reassembler: None,
            merger: None,
            coalescer: None,
        }
    }
}

impl Aggregation {
    /// Returns the fragment policy for the destination of a packet.
    #[inline]
    fn joins_of(&self, packet: &Packet) -> FragmentPolicy {
        *self.policies.one().unwrap_or_else(|| {
            let (_, destination) = packet.addresses();
            self.policies.get(destination)
        })
    }

    /// Passes a fragment to the stage that its fragment policy selects. Without this stage, the fragment is
    /// forwarded unchanged.
    fn push_fragment(&mut self, now: Time, packet: Packet, connections: &mut Connections, next: impl Next) {
        let policies = self.joins_of(&packet);
        let Aggregation { reassembler, merger, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, connections, next };
        match (policies, reassembler, merger) {
            (FragmentPolicy::Reassemble, Some(reassembler), _) => {
                reassembler.push_unlike(now, packet, &mut next, &mut CopyPayload);
            }
            (FragmentPolicy::ReassembleHop, Some(reassembler), _) => {
                reassembler.push_hop_by_hop(now, packet, &mut next)
            }
            (FragmentPolicy::Merge, _, Some(merger)) => merger.push(now, packet, &mut next),
            _ => next.forward(packet),
        }
    }

    fn expire(&mut self, now: Time, connections: &mut Connections, next: impl Next) {
        let Aggregation { reassembler, merger, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, connections, next };
        if let Some(reassembler) = reassembler {
            reassembler.expire(now, &mut next);
        }
        if let Some(merger) = merger {
            merger.expire(now, &mut next);
        }
        if let Some(coalescer) = next.coalescer {
            coalescer.expire(now, next.connections, &mut next.next);
        }
    }

    fn release(&mut self, now: Time, connections: &mut Connections, mut next: impl Next) {
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.release(now, connections, &mut next);
        }
    }

    fn flush(&mut self, now: Time, connections: &mut Connections, next: impl Next) {
        let Aggregation { reassembler, merger, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, connections, next };
        if let Some(reassembler) = reassembler {
            reassembler.flush(now, &mut next);
        }
        if let Some(merger) = merger {
            merger.flush(now, &mut next);
        }
        if let Some(coalescer) = next.coalescer {
            coalescer.release(now, next.connections, &mut next.next);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let fragments = self.reassembler.as_ref().and_then(Reassembler::next_deadline);
        let joined = self.merger.as_ref().and_then(FragmentMerger::next_deadline);
        let segments = self.coalescer.as_ref().and_then(Coalescer::next_deadline);
        fragments.into_iter().chain(joined).chain(segments).min()
    }

    /// Returns the bytes charged against the limits of all stages.
    pub fn charged(&self) -> usize {
        self.charges().iter().sum()
    }

    /// Returns the bytes charged against the limit of each stage: reassembler, fragment merger, coalescer.
    pub fn charges(&self) -> [usize; 3] {
        let Aggregation { reassembler, merger, coalescer, .. } = self;
        [
            reassembler.as_ref().map_or(0, Reassembler::charged),
            merger.as_ref().map_or(0, FragmentMerger::charged),
            coalescer.as_ref().map_or(0, Coalescer::charged),
        ]
    }

    /// Recounts the held packets with their payload bytes, and their buffers.
    pub fn held(&self) -> (Tally, usize) {
        let fragments = self.reassembler.as_ref().map(Reassembler::held);
        let joined = self.merger.as_ref().map(FragmentMerger::held);
        let segments = self.coalescer.as_ref().map(Coalescer::held);
        fragments.into_iter().chain(joined).chain(segments).fold(
            (Tally::NONE, 0),
            |(mut tally, buffers), (more, count)| {
                tally += more;
                (tally, buffers + count)
            },
        )
    }
}

/// Returns the counter of packets inside this kind of tunnel.
fn inside(tunnel: Tunnel) -> Event {
    match tunnel {
        Tunnel::Vxlan => Event::InVxlan,
        Tunnel::Geneve => Event::InGeneve,
        Tunnel::Gre => Event::InGre,
        Tunnel::IpInIp => Event::InIp,
        Tunnel::WireGuard => Event::InWireGuard,
        Tunnel::Gtp => Event::InGtp,
        Tunnel::Ipsec => Event::InIpsec,
    }
}

/// Counts a received packet.
#[inline(always)]
fn receive(packet: &Packet, out: &mut Output) {
    out.ledger.received += Tally::of(packet);
    if let Some(tunnel) = Tunnel::of(packet) {
        out.ledger.note(inside(tunnel), Tally::of(packet));
    }
}

/// Counts `count` received fragments that follow `packet` in its datagram. Their payload length and protocol equal
/// those of `packet`.
fn receive_alike(packet: &Packet, count: usize, out: &mut Output) {
    let tally = Tally::new(count, count * packet.ip().payload_len());
    out.ledger.received += tally;
    if let Some(tunnel) = Tunnel::of_protocol(packet.ip().protocol) {
        out.ledger.note(inside(tunnel), tally);
    }
}
