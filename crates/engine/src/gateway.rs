//! Batches of frames from a port -> packets of the right sizes.
//!
//! A gateway has one or more directions. Each direction has a pool, a ledger, an output queue, and the stages of
//! the side that its packets are sent to. A border has two directions. A border also remembers the MSS that the
//! hosts of both sides announced. Live workers, the simulator, the capture rewriter, the fuzzers and the benchmark
//! drive a gateway in this loop:
//!
//! ```
//! use wideload_engine::packet::{Frame, HEADROOM, Ingress, LinkType, Pool, Time};
//! use wideload_engine::{
//!     Batch, Egress, Gateway, GatewaySettings, Position, Secret, Secrets, SideSettings, WirePackets,
//! };
//!
//! # let wide: Vec<u8> = {
//! #     let mut bytes = vec![0x45, 0, 0x0F, 0xA0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
//! #     let sum = wideload_engine::packet::Sum::of(&bytes).checksum();
//! #     bytes[10..12].copy_from_slice(&sum.to_be_bytes());
//! #     bytes.resize(4_000, 0);
//! #     bytes
//! # };
//! let settings = GatewaySettings::one(SideSettings::new(1_500, Position::Source));
//! let mut gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
//! let mut batch = Batch::default();
//! for now in [Time::ZERO] {
//!     // Overdue packets leave before new ones enter.
//!     if gateway.next_deadline().is_some_and(|deadline| deadline <= now) {
//!         gateway.expire(now);
//!     }
//!     // A port receives a batch. Where it can, it puts payloads into their predicted slots.
//!     let (_places, pool) = gateway.places(0);
//!     batch.receive(&wide, LinkType::Ip, Ingress(0), None, pool);
//!     gateway.push(now, 0, &mut batch);
//!     // The port has no more frames.
//!     gateway.port_is_idle(now, 0);
//!     while let Some(leaving) = gateway.next(0) {
//!         let Egress::Forward(packet) = leaving else { panic!("no answer is sent, and no other frame came") };
//!         let mut packets = WirePackets::of(&packet);
//!         while let Some(packet) = packets.next() {
//!             assert!(packet.frame_len() <= 1_500);
//!         }
//!         gateway.recycle(0, packet);
//!     }
//! }
//! assert_eq!(gateway.ledger(0).forwarded.packets, 3);
//! gateway.check(0).unwrap();
//! ```
//!
//! # Laws
//!
//! - Every received packet was sent, is held, or was retired for a counted reason ([`check`](Gateway::check)).
//! - Every buffer of a pool is held, is queued, or is with the port. A port uses its buffers to receive frames, as
//!   payload slots, or to transmit.
//! - Packets that arrive in order within a flow are sent in order.
//! - After [`expire`](Gateway::expire), no packet is held beyond its deadline. The held packets never exceed their
//!   memory limit.
//! - No byte that a border acknowledged early is lost while the gateway lives: it is sent until its host acknowledges
//!   it, or takes no data for a quarter of an hour although its window is open. A reload keeps it.
//! - No transmitted packet exceeds the MTU of its side. There are two exceptions: packets for a kernel that divides
//!   them, and packets that no active stage may divide. Both are counted as `left_oversize`.
//! - The engine reads no clock and draws no random number: equal calls produce equal packets.

use crate::acks;
use crate::coalescing::Coalescer;
use crate::connections::{Connection, Connections};
use crate::early_acks;
use crate::flows::Found;
use crate::ledger::{Event, Ledger, Reason, Tally};
use crate::output::{Egress, Output};
use crate::reassembly::PlacementStats;
use crate::rules::{AckPolicy, Toggle};
use crate::settings::{GatewaySettings, Holding, Secrets, SideSettings, SideStage};
use crate::side::{Aggregation, Side};
use crate::sizing::Checksums;
use crate::toward::Toward;
use packet::{
    Address, Frame, HEADROOM, Ingress, Link, LinkType, Packet, PayloadSlots, Pool, SegmentLimit, SplitFrame, Time,
};

/// All packet processing of one gateway: its directions, and the connections that cross a border.
#[derive(Debug)]
pub struct Gateway {
    directions: Vec<Direction>,
    connections: Connections,
    secrets: Secrets,
}

/// The frames of one receive call, in order of arrival: the split frames first.
#[derive(Debug, Default)]
pub struct Batch {
    /// Frames whose payload was received in a predicted slot: one frame for each used slot, in slot order.
    pub split: Vec<SplitFrame>,
    /// Frames received in one buffer each.
    pub frames: Vec<Frame>,
}

/// One direction of a gateway: its settings, its stages and its output queue.
#[derive(Debug)]
struct Direction {
    settings: SideSettings,
    side: Side,
    out: Output,
    /// Placement statistics of reassemblers that were removed by a switch or a reload.
    guesses_before: PlacementStats,
}

impl Gateway {
    /// Creates a gateway without held packets. `pools` is called once for each direction, and returns the
    /// direction's pool.
    ///
    /// # Panics
    /// If a border does not have exactly two directions, or if a gateway with more than two directions coalesces.
    pub fn new(settings: &GatewaySettings, secrets: Secrets, mut pools: impl FnMut() -> Pool) -> Gateway {
        settings.check_directions();
        let directions = settings.sides().enumerate().map(|(direction, side)| Direction {
            side: Side::new(&side, direction, secrets),
            out: side.output(pools(), secrets),
            settings: side,
            guesses_before: PlacementStats::default(),
        });
        Gateway { directions: directions.collect(), connections: settings.connections(secrets), secrets }
    }

    /// Returns the predicted payload slots for the next frames of a direction, and the pool for their buffers.
    ///
    /// The caller's next [`push`](Gateway::push) in this direction must contain the batch that was received with
    /// these slots. Until then, every call that could free the memory of the slots panics:
    /// [`release`](Gateway::release), [`expire`](Gateway::expire), [`flush`](Gateway::flush),
    /// [`hand_over`](Gateway::hand_over), [`switch`](Gateway::switch), [`replace`](Gateway::replace).
    #[inline]
    pub fn places(&mut self, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(None, &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// Returns slots and pool as [`places`](Gateway::places) does. The slots are predicted from the header of the
    /// next packet. For ports that read this header before they choose the slot of its payload.
    pub fn places_for(&mut self, next: &Packet, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(Some(next), &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// Processes a complete batch. The caller must first call [`expire`](Gateway::expire) with the same `now`.
    #[inline]
    pub fn push(&mut self, now: Time, direction: usize, batch: &mut Batch) {
        let Gateway { directions, connections, .. } = self;
        let count = directions.len();
        let Some(Direction { side, out, .. }) = directions.get_mut(direction) else {
            no_direction(direction, count)
        };
        assert!(batch.split.is_empty() || side.is_predicting(), "what is split came to places of this direction");
        side.finish_placement(now, &mut batch.split, &mut batch.frames, connections, out);
        let toward = Toward::of_direction(direction);
        let made = match connections.ack_policy() {
            AckPolicy::Unchanged => None,
            AckPolicy::Expand | AckPolicy::Compress => {
                Some(acks::change(toward, &mut batch.frames, side, connections, out))
            }
            AckPolicy::Early => {
                early_acks::change(now, toward, &mut batch.frames, side, connections, out);
                None
            }
        };
        let mut frames = batch.frames.drain(..);
        loop {
            let taken = side.take_front(now, frames.as_slice(), connections, out);
            if taken > 0 {
                frames.by_ref().take(taken).for_each(|frame| out.pool.give(frame.into_buffer()));
                continue;
            }
            side.prefetch(frames.as_slice(), connections);
            match frames.next() {
                Some(Frame::Ip(mut packet)) => {
                    let mut found = side.find(&packet, direction, connections);
                    if matches!(found, Found::Nothing)
                        && let Some(reason) = connections.take_icmp(now, &packet, toward, &mut out.ledger)
                    {
                        side.retire(packet, reason, out);
                        continue;
                    }
                    connections.see_found(now, &mut packet, &mut found, toward, &mut out.ledger);
                    side.push_found(now, packet, found, connections, out);
                    connections.forget_surplus();
                }
                Some(Frame::Other(raw, unfit)) => out.pass(raw, unfit),
                None => break,
            }
        }
        if let Some(made) = made {
            out.ledger.count_as_made(Event::AcksExpanded, made);
        }
    }

    /// Counts a packet that the caller dropped before [`push`](Gateway::push) for this reason.
    pub fn drop_unpushed(&mut self, direction: usize, packet: Packet, reason: Reason) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.retire(packet, reason, out);
    }

    /// Reports that a port has no more frames for the moment. Segments that are held until the end of a burst are
    /// sent.
    pub fn port_is_idle(&mut self, now: Time, direction: usize) {
        if self.of(direction).settings.hold == Holding::Burst {
            self.release(now, direction);
        }
    }

    /// Sends all held segments of a direction.
    pub fn release(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.release(now, connections, out);
    }

    /// Sends or drops the held packets whose deadline has passed, and removes state that timed out. Sends data again
    /// that was acknowledged early, and that its wide host has not acknowledged in time.
    pub fn expire(&mut self, now: Time) {
        if self.connections.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.connections.expire(now);
        }
        if self.connections.repeat_deadline().is_some_and(|deadline| deadline <= now) {
            let (Direction { side, out, .. }, connections) = self.unpredicted(Toward::Wide.direction());
            early_acks::repeat(now, side, connections, out);
        }
        for direction in 0..self.directions.len() {
            let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
            if side.next_deadline().is_some_and(|deadline| deadline <= now) {
                side.expire(now, connections, out);
            }
        }
    }

    /// Returns the time at which the stages next need [`expire`](Gateway::expire), for held packets or for state
    /// such as idle streams. `None` if the stages hold neither. The time-outs of handshakes are ignored: any later
    /// [`expire`](Gateway::expire) removes handshakes that timed out.
    pub fn next_deadline(&self) -> Option<Time> {
        (0..self.directions.len()).filter_map(|direction| self.next_deadline_of(direction)).min()
    }

    /// Returns the time at which the stages of a direction next need [`expire`](Gateway::expire). `None` if they
    /// hold no packet and no state.
    pub fn next_deadline_of(&self, direction: usize) -> Option<Time> {
        let is_toward_wide = direction == Toward::Wide.direction();
        let repeats = self.connections.repeat_deadline().filter(|_| is_toward_wide);
        self.of(direction).side.next_deadline().into_iter().chain(repeats).min()
    }

    /// Sends or drops all held packets of all directions. Data that was acknowledged early is sent once more.
    pub fn flush(&mut self, now: Time) {
        for direction in 0..self.directions.len() {
            let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
            if direction == Toward::Wide.direction() {
                early_acks::send_all(now, Some(side), connections, out);
            }
            side.flush(now, connections, out);
        }
    }

    /// Queues all held packets of a direction, without sizing, for the successor of this gateway. The successor
    /// adapts them to its MTU. Data that was acknowledged early is queued once more.
    pub fn hand_over(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.hand_over(now, connections, out);
        if direction == Toward::Wide.direction() {
            early_acks::send_all(now, None, connections, out);
        }
    }

    /// Returns the next packet or frame to send. A packet for the other side is counted as forwarded. For a frame
    /// without an IP packet, the caller must call [`Ledger::pass`].
    #[inline]
    pub fn next(&mut self, direction: usize) -> Option<Egress> {
        self.of_mut(direction).out.next_direction()
    }

    /// Returns the buffer of a transmitted packet to the pool of its direction.
    #[inline]
    pub fn recycle(&mut self, direction: usize, packet: Packet) {
        self.of_mut(direction).out.recycle(packet);
    }

    /// Returns the output queue of a direction, with its pool and its ledger.
    #[inline]
    pub fn output(&self, direction: usize) -> &Output {
        &self.of(direction).out
    }

    /// Returns the output queue of a direction, mutable.
    #[inline]
    pub fn output_mut(&mut self, direction: usize) -> &mut Output {
        &mut self.of_mut(direction).out
    }

    /// Returns the counters of a direction.
    pub fn ledger(&self, direction: usize) -> &Ledger {
        &self.of(direction).out.ledger
    }

    /// Returns the stages of a direction.
    #[inline]
    pub fn side(&self, direction: usize) -> &Side {
        &self.of(direction).side
    }

    /// Returns the held packets of a direction with their payload bytes, and the number of their buffers.
    pub fn held(&self, direction: usize) -> (Tally, usize) {
        self.of(direction).side.aggregation.held()
    }

    /// Whether a direction has no queued packet and no held segment. Otherwise, offloaded segments could overtake
    /// them.
    pub fn is_idle(&self, direction: usize) -> bool {
        let Direction { side, out, .. } = self.of(direction);
        out.queued_count() == 0 && side.aggregation.coalescer.as_ref().is_none_or(Coalescer::is_empty)
    }

    /// Returns the placement statistics of a direction.
    pub fn placement_stats(&self, direction: usize) -> PlacementStats {
        let Direction { side, guesses_before, .. } = self.of(direction);
        guesses_before.and(side.placement_stats())
    }

    /// Returns the connections that cross a border. `None` in other roles.
    pub fn connections(&self) -> Option<&Connections> {
        Some(&self.connections).filter(|connections| connections.is_border())
    }

    /// Returns the bytes charged for connections without a stream: those that cross a border, and those whose segment
    /// length is chosen by flow.
    pub fn flow_charges(&self) -> usize {
        self.connections.charged()
    }

    /// Returns the destinations to which the host should send shorter segments than its interface allows, each with the
    /// MTU of its route in bytes. Empty unless [`SideSettings::route_mtu_max`](crate::SideSettings) is set.
    pub fn route_mtus(&self) -> impl Iterator<Item = (Address, u16)> {
        self.connections.route_mtus.all()
    }

    /// Whether [`route_mtus`](Gateway::route_mtus) changed since the last call.
    pub fn take_route_change(&mut self) -> bool {
        self.connections.route_mtus.take_change()
    }

    /// Returns the connections that cross a border, mutable. `None` in other roles.
    pub fn connections_mut(&mut self) -> Option<&mut Connections> {
        Some(&mut self.connections).filter(|connections| connections.is_border())
    }

    /// Tells the wide host of a connection to send shorter packets: see [`Connections::tell`].
    pub fn tell(&mut self, connection: &Connection, ingress: Ingress) -> bool {
        let Gateway { directions, connections, .. } = self;
        let direction = directions.get_mut(Toward::Narrow.direction());
        direction.is_some_and(|direction| connections.tell(connection, ingress, &mut direction.out))
    }

    /// Returns the segment size limits for offloaded GSO packets of a connection. The first limit is for this
    /// direction, toward the second of `ends`. The second limit is for the other direction. `None` if the gateway
    /// does more than resize the segments, or is no border.
    pub fn resized_limits(&mut self, ends: [(Address, u16); 2], direction: usize) -> Option<[SegmentLimit; 2]> {
        let [there, back] = self.connections.limits(ends, Toward::of_direction(direction))?;
        let other = 1 - direction.min(1);
        Some([self.side(direction).resizes_to(there)?, self.side(other).resizes_to(back)?])
    }

    /// Records that a connection is offloaded in this direction, toward the second of `ends`. Returns the segment
    /// size limit of its GSO packets. `None` if the limit is unknown, or the gateway does more than resize the
    /// segments.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], direction: usize) -> Option<SegmentLimit> {
        let limit = self.connections.on_offloaded(now, ends, Toward::of_direction(direction))?;
        self.side(direction).resizes_to(limit)
    }

    /// Sets whether partial checksums of later packets are completed by this direction or by its port.
    #[inline]
    pub fn set_checksums(&mut self, direction: usize, checksums: Checksums) {
        let Direction { settings, side, .. } = self.of_mut(direction);
        settings.checksums = checksums;
        side.sizing.checksums = checksums;
    }

    /// Switches a stage of a direction on or off, if its settings contain the stage. A stage that is switched off
    /// first sends its held packets through the stages behind it. A stage that is switched on starts empty. A stage
    /// that already runs is not interrupted.
    pub fn switch(&mut self, now: Time, direction: usize, stage: SideStage, switch: Toggle) {
        let secrets = self.secrets;
        let (found, connections) = self.unpredicted(direction);
        found.switch(now, (direction, stage), switch, connections, secrets);
    }

    /// Applies new settings. The number of directions must not change. New state is keyed with `secrets`. The new
    /// stages take over the held packets. The counters of IP IDs continue, so that no ID is reused within its
    /// lifetime.
    ///
    /// # Panics
    /// Under the conditions of [`new`](Gateway::new), or if the number of directions changes.
    pub fn replace(&mut self, now: Time, settings: &GatewaySettings, secrets: Secrets) {
        settings.check_directions();
        self.secrets = secrets;
        assert_eq!(settings.sides.len(), self.directions.len(), "a gateway keeps its directions");
        // Held packets look up their connections by the new rules.
        self.connections.go_on_as(settings.connections(secrets));
        for (direction, side) in settings.sides().enumerate() {
            let (found, connections) = self.unpredicted(direction);
            found.replace(now, direction, side, connections, secrets);
        }
    }

    /// Checks the conservation laws of a direction between two batches. Every received packet must have been sent
    /// or retired, or be held. Every buffer in use must be held or queued.
    ///
    /// # Errors
    /// The violated law, with its counts.
    pub fn check(&self, direction: usize) -> Result<(), String> {
        let Direction { side, out, .. } = self.of(direction);
        side.check(out)
    }

    /// Returns the direction and the connections, after a check that the direction has no predicted slots. A port
    /// may still write into such slots, so their datagrams must not be sent.
    fn unpredicted(&mut self, direction: usize) -> (&mut Direction, &mut Connections) {
        let count = self.directions.len();
        let Some(found) = self.directions.get_mut(direction) else { no_direction(direction, count) };
        assert!(!found.side.is_predicting(), "places are lent until what came to them is pushed");
        (found, &mut self.connections)
    }

    #[inline]
    fn of(&self, direction: usize) -> &Direction {
        match self.directions.get(direction) {
            Some(found) => found,
            None => no_direction(direction, self.directions.len()),
        }
    }

    #[inline]
    fn of_mut(&mut self, direction: usize) -> &mut Direction {
        let count = self.directions.len();
        match self.directions.get_mut(direction) {
            Some(found) => found,
            None => no_direction(direction, count),
        }
    }
}

impl Direction {
    fn switch(
        &mut self,
        now: Time,
        (direction, stage): (usize, SideStage),
        switch: Toggle,
        connections: &mut Connections,
        secrets: Secrets,
    ) {
        let Direction { settings, side, out, guesses_before } = self;
        settings.left_out.retain(|other| *other != stage);
        if switch == Toggle::Off {
            settings.left_out.push(stage);
        }
        if !settings.reassembles() {
            *guesses_before = guesses_before.and(side.placement_stats());
        }
        side.end_all_but(
            [settings.reassembles(), settings.merges(), settings.works(SideStage::Coalesce)],
            now,
            connections,
            out,
        );
        let Aggregation { reassembler, merger, coalescer, .. } = &mut side.aggregation;
        *reassembler = reassembler.take().or_else(|| settings.reassembler(secrets));
        *merger = merger.take().or_else(|| settings.merger(secrets));
        *coalescer = coalescer.take().or_else(|| settings.coalescer(direction, secrets));
        if let Some(coalescer) = coalescer {
            coalescer.set_longer(settings.switch(SideStage::Segment));
        }
        side.sizing.segment = settings.switch(SideStage::Segment);
        side.sizing.fragment = settings.switch(SideStage::Fragment);
        side.sizing.gso_packets = settings.segment_size();
    }

    fn replace(
        &mut self,
        now: Time,
        direction: usize,
        settings: SideSettings,
        connections: &mut Connections,
        secrets: Secrets,
    ) {
        let Direction { side, out, guesses_before, .. } = self;
        *guesses_before = guesses_before.and(side.placement_stats());
        if let Some(sources) = settings.icmp_source {
            out.icmp_source(sources);
        }
        let old = core::mem::replace(side, Side::new(&settings, direction, secrets));
        side.take_over(now, old, connections, out);
        self.settings = settings;
    }
}

impl Batch {
    /// Adds a frame to the batch, as a port does. If all earlier frames of the batch are split frames, the payload
    /// is written to the next slot. Otherwise the complete frame is written to one buffer. Returns false if there
    /// was no memory and the frame was dropped.
    pub fn receive(
        &mut self,
        frame: &[u8],
        link_type: LinkType,
        ingress: Ingress,
        places: Option<&mut PayloadSlots<'_>>,
        pool: &mut Pool,
    ) -> bool {
        let link_len = Link::parse(link_type, frame).map_or(0, |link| link.len);
        // Bytes beyond the maximum length of an IP packet are padding. A packet whose header claims more does not
        // parse.
        let frame = frame.get(..link_len + IP_LEN_MAX + 1).unwrap_or(frame);
        let Some(mut buffer) = pool.allocate(frame.len() - link_len) else { return false };
        let (at, len) = (HEADROOM - link_len, frame.len());
        if let Some(places) = places.filter(|_| self.frames.is_empty()) {
            let front = places.front();
            if let Some((header, rest)) = frame.split_at_checked(front.len())
                && let Some(place) = places.next()
            {
                let (payload, behind) = rest.split_at_checked(place.len()).unwrap_or((rest, &[]));
                let (filled, _) = place.split_at_mut(payload.len());
                filled.copy_from_slice(payload);
                buffer.put(at, header);
                if !behind.is_empty() {
                    buffer.put(at + header.len() + place.len(), behind);
                }
                match SplitFrame::of(buffer, at, len, front, place, link_type, ingress) {
                    Ok(split) => self.split.push(split),
                    Err(whole) => self.frames.push(Frame::read(whole, at, len, link_type, ingress)),
                }
                return true;
            }
        }
        buffer.put(at, frame);
        self.frames.push(Frame::read(buffer, at, len, link_type, ingress));
        true
    }
}

#[cold]
fn no_direction(direction: usize, count: usize) -> ! {
    panic!("there are {count} directions, and no number {direction}")
}

/// Longest IP packet, in bytes.
const IP_LEN_MAX: usize = u16::MAX as usize;
