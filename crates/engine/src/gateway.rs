//! Batches of frames from a port -> packets of the right sizes.
//!
//! A gateway has one or more directions. Each direction has a pool, a ledger, an output queue, and the stages of
//! the side that its packets leave by. A border has two directions, and remembers the sizes that the hosts on both
//! sides announced. A live worker, the simulator, the capture rewriter, the fuzzers and the benchmark drive a
//! gateway in the same loop.

use crate::coalescing::Coalescer;
use crate::connections::{Connection, Connections};
use crate::ledger::{Ledger, Tally};
use crate::output::{Egress, Output};
use crate::reassembly::PlacementStats;
use crate::rules::Toggle;
use crate::settings::{GatewaySettings, Holding, Secrets, SideSettings, SideStage};
use crate::side::{Aggregation, Side};
use crate::sizing::Checksums;
use crate::toward::Toward;
use packet::{
    Address, Frame, HEADROOM, Ingress, Link, LinkType, Packet, PayloadSlots, Pool, SegmentLimit, SplitFrame, Time,
};

/// All packet processing of one gateway.
///
/// A gateway has one or more directions. Each direction has a pool, a ledger, an output queue, and the stages of the
/// side that its packets leave by. A border has two directions, and remembers the sizes that the hosts on both sides
/// announced.
///
/// # Laws
///
/// - Every received packet has left, is held, or ended for a counted reason ([`check`](Gateway::check)).
/// - Every buffer of a pool is held, is queued, or is with the port. The port has it to receive into, as a payload
///   slot, or to transmit.
/// - Packets that arrive in order within a flow leave in order.
/// - After [`expire`](Gateway::expire), nothing is held past its deadline. Nothing is ever held beyond its limit.
/// - No packet leaves longer than the MTU of its side. There are two exceptions: packets that the host's own kernel
///   is to handle, and packets that must not be fragmented. The latter are counted.
/// - The engine reads no clock and draws no random number: the same calls give the same packets.
///
/// # The loop
///
/// Every caller drives a gateway in the same loop:
///
/// ```
/// use wideload_engine::packet::{Ingress, LinkType, Pool, Time};
/// use wideload_engine::{
///     Batch, Egress, Gateway, GatewaySettings, Position, Secret, Secrets, SideSettings, WirePackets,
/// };
///
/// # let wide: Vec<u8> = {
/// #     let mut bytes = vec![0x45, 0, 0x0F, 0xA0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
/// #     let sum = wideload_engine::packet::Sum::of(&bytes).checksum();
/// #     bytes[10..12].copy_from_slice(&sum.to_be_bytes());
/// #     bytes.resize(4_000, 0);
/// #     bytes
/// # };
/// let settings = GatewaySettings::one(SideSettings::new(1_500, Position::Source));
/// let mut gateway = Gateway::new(&settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20));
/// let mut batch = Batch::default();
/// for now in [Time::ZERO] {
///     // Overdue packets leave before new ones enter.
///     if gateway.next_deadline().is_some_and(|deadline| deadline <= now) {
///         gateway.expire(now);
///     }
///     // A port receives a batch. Where it can, it puts payloads into their predicted slots.
///     let (_places, pool) = gateway.places(0);
///     batch.receive(&wide, LinkType::Ip, Ingress(0), None, pool);
///     gateway.push(now, 0, &mut batch);
///     // The port has no more frames.
///     gateway.port_is_idle(now, 0);
///     while let Some(leaving) = gateway.next(0) {
///         let Egress::Forward(packet) = leaving else { panic!("no answer is sent, and no other frame came") };
///         let mut packets = WirePackets::of(&packet);
///         while let Some(packet) = packets.next() {
///             assert!(packet.frame_len() <= 1_500);
///         }
///         gateway.done(0, packet);
///     }
/// }
/// assert_eq!(gateway.ledger(0).forwarded.packets, 3);
/// gateway.check(0).unwrap();
/// ```
#[derive(Debug)]
pub struct Gateway {
    directions: Vec<Direction>,
    connections: Connections,
    secrets: Secrets,
}

/// The frames of one receive call, in order of arrival: the split frames first.
#[derive(Debug, Default)]
pub struct Batch {
    /// Frames whose payload lies in its predicted slot: one per slot, in slot order.
    pub split: Vec<SplitFrame>,
    /// Frames that lie in one buffer each.
    pub frames: Vec<Frame>,
}

/// One direction of a gateway.
#[derive(Debug)]
struct Direction {
    settings: SideSettings,
    side: Side,
    out: Output,
    /// Prediction counters of stages that have ended.
    guesses_before: PlacementStats,
}

impl Gateway {
    /// A gateway that holds nothing. Each direction has a pool of its own.
    ///
    /// # Panics
    /// Where a border has not exactly two directions. Where a gateway with more than two directions coalesces.
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

    /// The payload slots that a port may receive the next frames of a direction into, and the pool of their
    /// buffers.
    ///
    /// The caller must push the batch received this way next in this direction. Until then, every call that could
    /// free the memory of the slots panics: [`release`](Gateway::release), [`expire`](Gateway::expire),
    /// [`flush`](Gateway::flush), [`hand_over`](Gateway::hand_over), [`switch`](Gateway::switch),
    /// [`replace`](Gateway::replace).
    #[inline]
    pub fn places(&mut self, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(None, &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// The same for a port that has seen the header of the next packet, and can still choose a slot for its
    /// payload.
    pub fn places_for(&mut self, next: &Packet, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(Some(next), &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// Processes a whole batch. The caller has [expired](Gateway::expire) everything overdue at `now` before.
    #[inline]
    pub fn push(&mut self, now: Time, direction: usize, batch: &mut Batch) {
        let Gateway { directions, connections, .. } = self;
        let count = directions.len();
        let Some(Direction { side, out, .. }) = directions.get_mut(direction) else {
            no_direction(direction, count)
        };
        assert!(batch.split.is_empty() || side.is_predicting(), "what is split came to places of this direction");
        side.settle(now, &mut batch.split, &mut batch.frames, connections, out);
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
                    let toward = Toward::of_direction(direction);
                    connections.see_found(now, &mut packet, &mut found, toward, &mut out.ledger);
                    side.push_found(now, packet, found, connections, out);
                    connections.forget_surplus();
                }
                Some(Frame::Other(raw, unfit)) => out.pass(raw, unfit),
                None => return,
            }
        }
    }

    /// The port has no more frames for a moment. Segments that wait for the rest of a burst leave.
    pub fn port_is_idle(&mut self, now: Time, direction: usize) {
        if self.of(direction).settings.hold == Holding::Burst {
            self.release(now, direction);
        }
    }

    /// Sends out all held segments of a direction.
    pub fn release(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.release(now, connections, out);
    }

    /// Evicts everything whose deadline has passed.
    pub fn expire(&mut self, now: Time) {
        if self.connections.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.connections.expire(now);
        }
        for direction in 0..self.directions.len() {
            let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
            if side.next_deadline().is_some_and(|deadline| deadline <= now) {
                side.expire(now, connections, out);
            }
        }
    }

    /// The earliest deadline of all held packets; none while nothing is held. Overdue connections have no deadline
    /// of their own: the next [`expire`](Gateway::expire) forgets them.
    pub fn next_deadline(&self) -> Option<Time> {
        self.directions.iter().filter_map(|direction| direction.side.next_deadline()).min()
    }

    /// The earliest deadline of all packets held in a direction.
    pub fn next_deadline_of(&self, direction: usize) -> Option<Time> {
        self.of(direction).side.next_deadline()
    }

    /// Sends out everything that is held.
    pub fn flush(&mut self, now: Time) {
        for direction in 0..self.directions.len() {
            let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
            side.flush(now, connections, out);
        }
    }

    /// Sends out everything held in a direction, for the successor of this gateway. The packets are not resized for
    /// this side.
    pub fn hand_over(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.hand_over(now, connections, out);
    }

    /// The next packet or frame to send. Packets are counted as forwarded here. The sender [counts](Ledger::pass)
    /// frames that carry no packet.
    #[inline]
    pub fn next(&mut self, direction: usize) -> Option<Egress> {
        self.of_mut(direction).out.next_direction()
    }

    /// Takes back a packet that the port has transmitted.
    #[inline]
    pub fn recycle(&mut self, direction: usize, packet: Packet) {
        self.of_mut(direction).out.recycle(packet);
    }

    /// The output queue of a direction, with its pool and its ledger.
    #[inline]
    pub fn output(&self, direction: usize) -> &Output {
        &self.of(direction).out
    }

    /// See [`output`](Gateway::output).
    #[inline]
    pub fn output_mut(&mut self, direction: usize) -> &mut Output {
        &mut self.of_mut(direction).out
    }

    /// The counters of a direction.
    pub fn ledger(&self, direction: usize) -> &Ledger {
        &self.of(direction).out.ledger
    }

    /// The stages of a direction.
    #[inline]
    pub fn side(&self, direction: usize) -> &Side {
        &self.of(direction).side
    }

    /// Packets and payload bytes held in a direction, and the number of buffers that they lie in.
    pub fn held(&self, direction: usize) -> (Tally, usize) {
        self.of(direction).side.aggregation.held()
    }

    /// Whether no held or queued packet could overtake, or be overtaken by, offloaded segments.
    pub fn is_idle(&self, direction: usize) -> bool {
        let Direction { side, out, .. } = self.of(direction);
        out.queued_count() == 0 && side.aggregation.coalescer.as_ref().is_none_or(Coalescer::is_empty)
    }

    /// The placement statistics of a direction.
    pub fn placement_stats(&self, direction: usize) -> PlacementStats {
        let Direction { side, guesses_before, .. } = self.of(direction);
        guesses_before.and(side.guesses())
    }

    /// The connections that cross a border; none in other roles.
    pub fn connections(&self) -> Option<&Connections> {
        Some(&self.connections).filter(|connections| connections.is_border())
    }

    /// See [`connections`](Gateway::connections).
    pub fn connections_mut(&mut self) -> Option<&mut Connections> {
        Some(&mut self.connections).filter(|connections| connections.is_border())
    }

    /// Tells the wide host of a connection to send shorter packets from now on: see [`Connections::tell`].
    pub fn tell(&mut self, connection: &Connection, ingress: Ingress) -> bool {
        let Gateway { directions, connections, .. } = self;
        let direction = directions.get_mut(Toward::Narrow.direction());
        direction.is_some_and(|direction| connections.tell(connection, ingress, &mut direction.out))
    }

    /// The segment size limits for offloaded GSO packets of a connection. The first is for this direction, toward
    /// the second of `ends`; the second is for the other direction. None where the gateway does more than resize
    /// the segments, or is no border.
    pub fn resized_limits(&mut self, ends: [(Address, u16); 2], direction: usize) -> Option<[SegmentLimit; 2]> {
        let [there, back] = self.connections.limits(ends, Toward::of_direction(direction))?;
        let other = 1 - direction.min(1);
        Some([self.side(direction).resizes_to(there)?, self.side(other).resizes_to(back)?])
    }

    /// Notes that a connection is offloaded in this direction, toward the second of `ends`. Returns the segment
    /// size limit of its GSO packets. None where the limit is unknown, or the gateway does more than resize the
    /// segments.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], direction: usize) -> Option<SegmentLimit> {
        let limit = self.connections.on_offloaded(now, ends, Toward::of_direction(direction))?;
        self.side(direction).resizes_to(limit)
    }

    /// Sets whether partial checksums are completed here or by the port, from now on.
    #[inline]
    pub fn set_checksums(&mut self, direction: usize, checksums: Checksums) {
        let Direction { settings, side, .. } = self.of_mut(direction);
        settings.checksums = checksums;
        side.sizing.checksums = checksums;
    }

    /// Switches a stage of a direction on or off, if its settings have the stage. A stage that is switched off
    /// first sends out its held packets through the stages behind it. A stage that is switched on starts empty. A
    /// stage that already runs goes on unchanged.
    pub fn switch(&mut self, now: Time, direction: usize, stage: SideStage, switch: Toggle) {
        let secrets = self.secrets;
        let (found, connections) = self.unpredicted(direction);
        found.switch(now, (direction, stage), switch, connections, secrets);
    }

    /// Applies new settings with the same number of directions. New state is keyed with `secrets`. Held packets may
    /// still grow under the new settings. No issued identification is reused too soon.
    ///
    /// # Panics
    /// As [`new`](Gateway::new), and where the number of directions changes.
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

    /// Checks the laws between two batches. Every packet received in a direction has left or is held, and every
    /// buffer in use is held or queued.
    ///
    /// # Errors
    /// The law that is broken, with its figures.
    pub fn check(&self, direction: usize) -> Result<(), String> {
        let Direction { side, out, .. } = self.of(direction);
        side.check(out)
    }

    /// The direction and the connections, after a check that the direction has no predicted slots. A port may hold
    /// such slots, so no run under them may leave.
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
            *guesses_before = guesses_before.and(side.guesses());
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
        *guesses_before = guesses_before.and(side.guesses());
        if let Some(sources) = settings.icmp_source {
            out.icmp_source(sources);
        }
        let old = core::mem::replace(side, Side::new(&settings, direction, secrets));
        side.take_over(now, old, connections, out);
        self.settings = settings;
    }
}

impl Batch {
    /// Receives a frame as a port does. The payload goes to the next slot, as long as all frames before it may be
    /// the expected fragments. Otherwise the frame goes to a buffer of its own. Returns false where there was no
    /// memory, and the frame was lost.
    pub fn receive(
        &mut self,
        frame: &[u8],
        medium: LinkType,
        ingress: Ingress,
        places: Option<&mut PayloadSlots<'_>>,
        pool: &mut Pool,
    ) -> bool {
        let link_len = Link::parse(medium, frame).map_or(0, |link| link.len);
        // Bytes behind the longest packet are padding. A packet that claims more does not parse.
        let frame = frame.get(..link_len + IP_LEN_MAX + 1).unwrap_or(frame);
        let Some(mut buffer) = pool.share(frame.len() - link_len) else { return false };
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
                match SplitFrame::of(buffer, at, len, front, place, medium, ingress) {
                    Ok(split) => self.split.push(split),
                    Err(whole) => self.frames.push(Frame::read(whole, at, len, medium, ingress)),
                }
                return true;
            }
        }
        buffer.put(at, frame);
        self.frames.push(Frame::read(buffer, at, len, medium, ingress));
        true
    }
}

#[cold]
fn no_direction(direction: usize, count: usize) -> ! {
    panic!("there are {count} directions, and no number {direction}")
}

/// Longest IP packet, in bytes.
const IP_LEN_MAX: usize = u16::MAX as usize;
