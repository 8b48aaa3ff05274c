//! Batches of a port in, packets of the right sizes out: all that a gateway does to packets.
//!
//! A gateway has a few directions, each with the stages of the side that its packets leave by, a pool, a ledger,
//! and a queue of what leaves. A border has two, and remembers what the hosts on both sides announced. A live
//! worker, the simulator, a rewritten capture, fuzzers and the benchmark drive it in the same way:
//!
//! ```
//! use wideload_engine::packet::{Frame, HEADROOM, Ingress, Medium, Pool, Time};
//! use wideload_engine::{Batch, Gateway, GatewaySettings, Way, Pieces, Position, Secret, Secrets, SideSettings};
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
//!     // What is late leaves before what comes.
//!     if gateway.next_deadline().is_some_and(|deadline| deadline <= now) {
//!         gateway.expire(now);
//!     }
//!     // A port receives a batch, where it can the payloads to the places where they probably belong.
//!     let (_places, pool) = gateway.places(0);
//!     batch.receive(&wide, Medium::Ip, Ingress(0), None, pool);
//!     gateway.push(now, 0, &mut batch);
//!     // The port has nothing more to give.
//!     gateway.port_is_idle(now, 0);
//!     while let Some(leaving) = gateway.next(0) {
//!         let Way::Forward(packet) = leaving else { panic!("no answer is sent, and no other frame came") };
//!         let mut pieces = Pieces::of(&packet);
//!         while let Some(piece) = pieces.next() {
//!             assert!(piece.frame_len() <= 1_500);
//!         }
//!         gateway.done(0, packet);
//!     }
//! }
//! assert_eq!(gateway.ledger(0).forwarded.packets, 3);
//! gateway.check(0).unwrap();
//! ```
//!
//! # Laws
//!
//! - Every packet that came has left, is held, or ended for a reason that is counted ([`check`](Gateway::check)).
//! - Every buffer of a pool is held, waits to leave, or is with the port: to receive into, as a place, or as what
//!   left.
//! - What came in order within a flow leaves in order.
//! - Nothing is held past its deadline, once it was [expired](Gateway::expire), or beyond its limit.
//! - Nothing leaves that is longer than the MTU of its side, but what the host's own kernel is to decide, or nobody
//!   may cut, which is counted.
//! - Nothing here knows the time, or draws a number: the same calls give the same packets.

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

/// All that a gateway does to packets.
#[derive(Debug)]
pub struct Gateway {
    directions: Vec<Direction>,
    connections: Connections,
    secrets: Secrets,
}

/// What a port gave at once, in the order in which it came: first the frames that were split.
#[derive(Debug, Default)]
pub struct Batch {
    /// Frames whose payload lies at its predicted place: one for each place, in their order.
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
    /// How predictions of stages went that have ended.
    guesses_before: PlacementStats,
}

impl Gateway {
    /// A gateway that holds nothing. Each direction has a pool of its own.
    ///
    /// # Panics
    /// A border has two directions; none coalesces that has more.
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

    /// Where a port may receive the payloads of the frames that come next in a direction, and the pool of their
    /// buffers.
    ///
    /// The batch that is received so is the next one to be pushed in this direction. Before that, whatever could
    /// let go of what the places lie in panics: [`release`](Gateway::release), [`expire`](Gateway::expire),
    /// [`flush`](Gateway::flush), [`hand_over`](Gateway::hand_over), [`switch`](Gateway::switch),
    /// [`replace`](Gateway::replace).
    #[inline]
    pub fn places(&mut self, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(None, &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// The same for a port that has seen the header of the next packet, and can still choose a place for its
    /// payload.
    pub fn places_for(&mut self, next: &Packet, direction: usize) -> (Option<PayloadSlots<'_>>, &mut Pool) {
        let Direction { side, out, .. } = self.of_mut(direction);
        side.predict(Some(next), &mut out.pool);
        (side.places(), &mut out.pool)
    }

    /// Takes all of a batch. What was late by `now` has been [expired](Gateway::expire) before.
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

    /// The port has nothing more to give for a moment: segments leave that wait for the rest of a burst.
    pub fn port_is_idle(&mut self, now: Time, direction: usize) {
        if self.of(direction).settings.hold == Holding::Burst {
            self.release(now, direction);
        }
    }

    /// Lets go of the segments that are held.
    pub fn release(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.release(now, connections, out);
    }

    /// Gives up what is late.
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

    /// When something that is held becomes late; none while nothing is held. Connections that are late are
    /// forgotten at the next [`expire`](Gateway::expire), and need none of their own.
    pub fn next_deadline(&self) -> Option<Time> {
        self.directions.iter().filter_map(|direction| direction.side.next_deadline()).min()
    }

    /// When something that is held in a direction becomes late.
    pub fn next_deadline_of(&self, direction: usize) -> Option<Time> {
        self.of(direction).side.next_deadline()
    }

    /// Lets go of everything.
    pub fn flush(&mut self, now: Time) {
        for direction in 0..self.directions.len() {
            let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
            side.flush(now, connections, out);
        }
    }

    /// Lets go of what is held in a direction, to whoever goes on in its place: it is not made to fit what leaves
    /// here.
    pub fn hand_over(&mut self, now: Time, direction: usize) {
        let (Direction { side, out, .. }, connections) = self.unpredicted(direction);
        side.hand_over(now, connections, out);
    }

    /// What leaves next, counted as gone, but for frames that carry no packet: whoever sends these
    /// [counts](Ledger::pass) them.
    #[inline]
    pub fn next(&mut self, direction: usize) -> Option<Egress> {
        self.of_mut(direction).out.next_direction()
    }

    /// Takes back a packet that has left.
    #[inline]
    pub fn done(&mut self, direction: usize, packet: Packet) {
        self.of_mut(direction).out.done(packet);
    }

    /// Where what leaves in a direction waits: its pool and its ledger.
    #[inline]
    pub fn output(&self, direction: usize) -> &Output {
        &self.of(direction).out
    }

    /// See [`output`](Gateway::output).
    #[inline]
    pub fn output_mut(&mut self, direction: usize) -> &mut Output {
        &mut self.of_mut(direction).out
    }

    /// Every fate in a direction.
    pub fn ledger(&self, direction: usize) -> &Ledger {
        &self.of(direction).out.ledger
    }

    /// The stages of a direction.
    #[inline]
    pub fn side(&self, direction: usize) -> &Side {
        &self.of(direction).side
    }

    /// Packets and payload that are held in a direction, and the buffers that they lie in.
    pub fn held(&self, direction: usize) -> (Tally, usize) {
        self.of(direction).side.aggregation.held()
    }

    /// Is nothing held that could overtake, or be overtaken by, segments that go on without being seen here?
    pub fn is_idle(&self, direction: usize) -> bool {
        let Direction { side, out, .. } = self.of(direction);
        out.queued_count() == 0 && side.aggregation.coalescer.as_ref().is_none_or(Coalescer::is_empty)
    }

    /// How predictions of places went in a direction.
    pub fn placement_stats(&self, direction: usize) -> PlacementStats {
        let Direction { side, guesses_before, .. } = self.of(direction);
        guesses_before.and(side.guesses())
    }

    /// What is known of the connections that cross a border; none in other roles.
    pub fn connections(&self) -> Option<&Connections> {
        Some(&self.connections).filter(|connections| connections.is_border())
    }

    /// See [`connections`](Gateway::connections).
    pub fn connections_mut(&mut self) -> Option<&mut Connections> {
        Some(&mut self.connections).filter(|connections| connections.is_border())
    }

    /// Tells the wide host of a connection that its packets are too long from here on: see [`Connections::tell`].
    pub fn tell(&mut self, connection: &Connection, ingress: Ingress) -> bool {
        let Gateway { directions, connections, .. } = self;
        let direction = directions.get_mut(Toward::Narrow.direction());
        direction.is_some_and(|direction| connections.tell(connection, ingress, &mut direction.out))
    }

    /// How long the segments of GSO packets of a connection may leave without being seen here: in this direction,
    /// to the second of its ends, and in the other one. None where more is done to them than to give them segments
    /// of another length, and where there is no border.
    pub fn resized_limits(&mut self, ends: [(Address, u16); 2], direction: usize) -> Option<[SegmentLimit; 2]> {
        let [there, back] = self.connections.limits(ends, Toward::of_direction(direction))?;
        let other = 1 - direction.min(1);
        Some([self.side(direction).resizes_to(there)?, self.side(other).resizes_to(back)?])
    }

    /// Packets of a connection go on in this direction without being seen here, to the second of its ends. How long
    /// the segments of its GSO packets may leave; none where it is not known, or more is done to them.
    pub fn on_offloaded(&mut self, now: Time, ends: [(Address, u16); 2], direction: usize) -> Option<SegmentLimit> {
        let limit = self.connections.on_offloaded(now, ends, Toward::of_direction(direction))?;
        self.side(direction).resizes_to(limit)
    }

    /// Has half-filled checksums be finished here, or by the port, from here on.
    #[inline]
    pub fn set_checksums(&mut self, direction: usize, checksums: Checksums) {
        let Direction { settings, side, .. } = self.of_mut(direction);
        settings.checksums = checksums;
        side.sizing.checksums = checksums;
    }

    /// Switches a stage of a direction, if its settings have it. One that is switched off lets go of what it holds
    /// first, through all that follows it; one that is switched on begins anew; one that works already goes on as
    /// it is.
    pub fn switch(&mut self, now: Time, direction: usize, stage: SideStage, switch: Toggle) {
        let secrets = self.secrets;
        let (found, connections) = self.unpredicted(direction);
        found.switch(now, (direction, stage), switch, connections, secrets);
    }

    /// Goes on as other settings have it, with as many directions, drawing what is new from other secrets. What is
    /// held may still become longer by them, and no identification that was given out is given out again too soon.
    ///
    /// # Panics
    /// As [`new`](Gateway::new), and where there would be more or fewer directions.
    pub fn replace(&mut self, now: Time, settings: &GatewaySettings, secrets: Secrets) {
        settings.check_directions();
        self.secrets = secrets;
        assert_eq!(settings.sides.len(), self.directions.len(), "a gateway keeps its directions");
        // What was held finds its connections by the new rules.
        self.connections.go_on_as(settings.connections(secrets));
        for (direction, side) in settings.sides().enumerate() {
            let (found, connections) = self.unpredicted(direction);
            found.replace(now, direction, side, connections, secrets);
        }
    }

    /// The laws, between two batches: what came in a direction has left or is held, and every buffer on loan is
    /// held or queued.
    ///
    /// # Errors
    /// The law that is broken, with its figures.
    pub fn check(&self, direction: usize) -> Result<(), String> {
        let Direction { side, out, .. } = self.of(direction);
        side.check(out)
    }

    /// A direction in which nothing is predicted, so no place of a run that may leave is with a port; and the connections.
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
        if !settings.rejoins() {
            *guesses_before = guesses_before.and(side.guesses());
        }
        side.end_all_but(
            [settings.rejoins(), settings.joins_gracefully(), settings.works(SideStage::Coalesce)],
            now,
            connections,
            out,
        );
        let Aggregation { reassembler, joiner, coalescer, .. } = &mut side.aggregation;
        *reassembler = reassembler.take().or_else(|| settings.reassembler(secrets));
        *joiner = joiner.take().or_else(|| settings.joiner(secrets));
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
        if let Some(sources) = settings.answer_from {
            out.answer_from(sources);
        }
        let old = core::mem::replace(side, Side::new(&settings, direction, secrets));
        side.take_over(now, old, connections, out);
        self.settings = settings;
    }
}

impl Batch {
    /// Receives a frame as a port does: its payload to the next of these places, as long as all frames before it
    /// can be the fragments that are expected there; else to a buffer of its own. Without memory for it, it is
    /// lost: says whether there was.
    pub fn receive(
        &mut self,
        frame: &[u8],
        medium: LinkType,
        ingress: Ingress,
        places: Option<&mut PayloadSlots<'_>>,
        pool: &mut Pool,
    ) -> bool {
        let link_len = Link::parse(medium, frame).map_or(0, |link| link.len);
        // What lies behind the longest packet is padding; a packet that claims more does not parse.
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
