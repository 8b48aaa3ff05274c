//! Segments of one flow in, runs of them out.
//!
//! The flow knows which sequence number comes next. What comes next joins the run, or ends it and starts another; in resize
//! mode, what comes before its turn waits for it within bounds (L7, corrected as L8 says); what comes after its turn
//! passes as it came.

use super::may_join::{ahead, distance, may_precede, may_wait};
use super::reorder::{ReorderQueue, ReorderSlab};
use super::run::{NotMerged, Run};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Hold, Mode, Rules};
use crate::sink::PayloadSink;
use crate::table::{Handle, HasSource};
use core::time::Duration;
use packet::{Address, Checksum, HeaderMatch, L2Scope, Packet, SegmentFacts, TcpSegmentFacts, Time};

/// What is known of one direction of a connection (L1): found by its first SYN or segment, forgotten by FIN or RST (L5).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stream {
    /// How the first segment of its run looks, or of its last one; none where nothing may be taken in unlooked at.
    seen: Option<HeaderMatch>,
    /// The sequence number that comes next.
    next_seq: u32,
    /// The counter of its pair of addresses.
    pub(crate) pair: u16,
    /// Does it never wait (L22)?
    pub(crate) is_exempt: bool,
    /// Has its last byte gone by?
    pub(crate) is_over: bool,
    /// Has nobody been told yet that it holds something?
    pub(crate) is_in_burst: bool,
    /// The average gap between segments, in nanoseconds, and when the last one came.
    interval: u64,
    last_arrival: Time,
    /// How long its last run was: the next starts with as much memory.
    predicted_len: u32,
    run: Option<Run>,
    /// Segments that came before their turn, by their place in the stream.
    early: ReorderQueue,
    /// When the first segment came that waits for the gap, or waited for the last one.
    early_since: Time,
    /// When it was last said to be idle, if nothing else was said since.
    pub(crate) idle_since: Time,
    /// The connection that it is of.
    pub(crate) connection: Handle,
    /// The port and VLANs that its packets came by.
    origin: L2Scope,
    source: Address,
}

/// What became of a segment that came to its flow at a glance.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It joined, and nothing else has changed: not when the flow is late, nor what it is charged.
    Joined,
    /// It joined, or is a run of its own.
    Changed,
    /// Nothing: it takes a closer look.
    Not(Packet),
}

impl Stream {
    /// The stream of this packet, whose next byte has this sequence number.
    pub(crate) fn new(
        now: Time,
        packet: &Packet,
        connection: Handle,
        next_seq: u32,
        pair: u16,
        is_exempt: bool,
    ) -> Stream {
        Stream {
            seen: None,
            next_seq,
            pair,
            is_exempt,
            is_over: false,
            is_in_burst: false,
            interval: HOLD_MAX.as_nanos() as u64 / HOLD_INTERVALS,
            last_arrival: Time::ZERO,
            predicted_len: 0,
            run: None,
            early: ReorderQueue::EMPTY,
            early_since: Time::ZERO,
            idle_since: now,
            connection,
            origin: packet.origin(),
            source: packet.addresses().0,
        }
    }

    /// Counts the gap before this segment into the average; one above the ceiling says nothing of the flow's pace (L12,
    /// L14).
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time) {
        let gap = now.nanos().saturating_sub(self.last_arrival.nanos());
        if gap <= HOLD_MAX.as_nanos() as u64 {
            self.interval = (self.interval + gap) / 2;
        }
        self.last_arrival = now;
    }

    /// How long it waits for its next segment.
    pub(crate) fn hold(&self, rules: &Rules) -> Duration {
        match rules.hold {
            Hold::Adaptive => Duration::from_nanos(self.adaptive_hold()),
            Hold::Fixed(stretch) => stretch,
        }
    }

    #[inline]
    fn adaptive_hold(&self) -> u64 {
        (self.interval * HOLD_INTERVALS).clamp(HOLD_MIN.as_nanos() as u64, HOLD_MAX.as_nanos() as u64)
    }

    /// What moves in a segment that looks like the first one of its last run, and came from where that one came: it is of
    /// this stream then.
    #[inline(always)]
    pub(crate) fn match_next(&self, packet: &Packet) -> Option<TcpSegmentFacts> {
        self.seen.as_ref()?.match_next(packet).filter(|_| self.came_from(packet))
    }

    /// Did the packet come from where the first one came?
    #[inline(always)]
    pub(crate) fn came_from(&self, packet: &Packet) -> bool {
        packet.origin() == self.origin
    }

    /// Has the processor fetch what is known of its run's packet.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(run) = &self.run {
            run.packet.prefetch();
        }
    }

    /// Where the next segment's payload belongs, if it is as long as the first one's, and where it starts in its packet.
    #[inline]
    pub(crate) fn prefetched_place(&self) -> Option<(&[u8], usize)> {
        let run = self.run.as_ref()?;
        Some((run.packet.behind(usize::from(run.first_len()))?, run.payload_at()))
    }

    /// How many segments wait for their turn.
    #[cfg(test)]
    pub(crate) fn reordered_count(&self) -> usize {
        self.early.count()
    }

    /// Has the next segment looked at closely.
    #[cfg(test)]
    pub(crate) fn forget_header(&mut self) {
        self.seen = None;
    }

    /// Takes in a segment that looks like others and comes next: the fast path. What this leaves alone, [`take`](Stream::take)
    /// judges.
    #[inline(always)]
    pub(crate) fn match_header(
        &mut self,
        now: Time,
        packet: Packet,
        tcp: TcpSegmentFacts,
        rules: &Rules,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Outcome {
        let Some(seen) = &self.seen else { return Outcome::Not(packet) };
        let may_join =
            packet.max_fragment_len().is_none() && may_wait(&packet, rules, || packet.has_canonical_checksums());
        if ahead(self.next_seq, Some(&tcp)) != 0 || !may_join || !self.early.is_empty() || self.is_exempt {
            return Outcome::Not(packet);
        }
        let Some(run) = &mut self.run else { return self.start(now, packet, tcp, rules, out) };
        let room = run.room();
        match run.takes(&packet, seen, &tcp, rules, out, sink) {
            Ok(()) => {}
            Err(NotMerged::Full) => return self.start(now, packet, tcp, rules, out),
            Err(NotMerged::Other) => return Outcome::Not(packet),
        }
        out.recycle(packet);
        self.next_seq = self.next_seq.wrapping_add(u32::from(run.first_len()));
        let has_room_as_before = run.room() == room;
        let (arrival, interval) = (self.last_arrival, self.interval);
        self.arrive(now);
        let waits_as_long = match rules.hold {
            Hold::Adaptive => {
                self.interval == interval || interval <= HOLD_MIN_INTERVAL && self.interval <= HOLD_MIN_INTERVAL
            }
            Hold::Fixed(_) => true,
        };
        // What was not too old for another segment at this moment, with no shorter a wait ahead of it, is not now.
        if arrival == now && waits_as_long && has_room_as_before {
            return Outcome::Joined;
        }
        let hold = self.hold(rules);
        if let Some(event) = self.run.as_ref().and_then(|run| run.is_done(now, rules, hold)) {
            self.close(event, rules, out);
        }
        Outcome::Changed
    }

    /// Starts a run with a segment that looks like the first one of the last run, which is full if it is still there.
    #[inline(never)]
    fn start(
        &mut self,
        now: Time,
        packet: Packet,
        tcp: TcpSegmentFacts,
        rules: &Rules,
        out: &mut impl Next,
    ) -> Outcome {
        let part = self.seen.as_ref().and_then(|seen| seen.part(&packet, tcp));
        let Some(part) = part.filter(|part| may_wait(&packet, rules, || part.canonical)) else {
            return Outcome::Not(packet);
        };
        self.close(Event::RunFull, rules, out);
        self.arrive(now);
        self.next_seq = self.next_seq.wrapping_add(u32::from(part.payload_len));
        let run = self.run.insert(Run::new(now, packet, part, self.predicted_len, rules));
        if let Some(event) = run.is_whole(rules) {
            self.close(event, rules, out);
        }
        Outcome::Changed
    }

    /// Takes a segment that may join.
    pub(crate) fn take(
        &mut self,
        now: Time,
        packet: Packet,
        part: SegmentFacts,
        rules: &Rules,
        places: &mut ReorderSlab,
        out: &mut impl Next,
    ) {
        let ahead = ahead(self.next_seq, part.tcp.as_ref());
        let fits_in = self.early.first(places).is_none_or(|early| may_precede(&part, early));
        if ahead == 0 && fits_in {
            self.append(now, packet, part, rules, out);
            self.catch_up(rules, places, out);
            self.close_if_old(now, rules, out);
        } else if ahead > 0 && rules.mode == Mode::Resize && self.has_reorder_room(ahead, &part) {
            self.wait(now, packet, part, rules, places, out);
        } else {
            self.flush(now, Event::RunGap, rules, places, out);
            self.skip_to(now, packet, part, rules, out);
        }
        if self.is_over {
            self.flush(now, Event::RunPushed, rules, places, out);
        }
    }

    /// Appends a segment that comes next to the run, or starts another; it may have come as early as `since`.
    fn append(&mut self, since: Time, packet: Packet, part: SegmentFacts, rules: &Rules, out: &mut impl Next) {
        self.next_seq = part.seq_end().unwrap_or_default();
        self.is_over = part.tcp.is_some_and(|tcp| tcp.is_last());
        let refused = self.run.as_mut().and_then(|run| run.refuses(&packet, &part, rules, out));
        if let Some(event) = refused {
            self.close(event, rules, out);
        }
        let run = match &mut self.run {
            Some(run) => {
                run.append(&packet, &part, since, out);
                out.recycle(packet);
                run
            }
            None => {
                let can_be_seen = packet.checksum != Checksum::Partial && packet.max_fragment_len().is_none();
                self.seen = HeaderMatch::of(&packet, &part).filter(|_| can_be_seen);
                self.run.insert(Run::new(since, packet, part, self.predicted_len, rules))
            }
        };
        if let Some(event) = run.is_whole(rules) {
            self.close(event, rules, out);
        }
    }

    /// Ends the run where it would become older than a run may, if it waited on.
    fn close_if_old(&mut self, now: Time, rules: &Rules, out: &mut impl Next) {
        let hold = self.hold(rules);
        if self.run.as_ref().is_some_and(|run| run.is_old(now, rules, hold)) {
            self.close(Event::RunTimeout, rules, out);
        }
    }

    /// Takes what waited for its turn.
    fn catch_up(&mut self, rules: &Rules, places: &mut ReorderSlab, out: &mut impl Next) {
        while let Some(part) = self.early.first(places) {
            if part.tcp.is_some_and(|tcp| tcp.seq != self.next_seq) {
                break;
            }
            let Some((packet, part)) = self.early.pop(places) else { break };
            self.append(self.early_since, packet, part, rules, out);
        }
    }

    fn has_reorder_room(&self, ahead: i32, part: &SegmentFacts) -> bool {
        ahead <= EARLY_SPAN
            && self.early.count() < EARLY_COUNT_MAX
            && self.early.payload_len() + usize::from(part.payload_len) <= EARLY_LEN_MAX
    }

    /// Keeps a segment until its turn; the last that came is mostly the last in the stream (L8g).
    fn wait(
        &mut self,
        now: Time,
        packet: Packet,
        part: SegmentFacts,
        rules: &Rules,
        places: &mut ReorderSlab,
        out: &mut impl Next,
    ) {
        let base = self.next_seq;
        let ahead = |part: &SegmentFacts| ahead(base, part.tcp.as_ref());
        let links = self.early.position(places, |early| ahead(early) < ahead(&part));
        let fits_in = places.part(links.before).is_none_or(|before| may_precede(before, &part))
            && places.part(links.after).is_none_or(|after| may_precede(&part, after));
        if !fits_in {
            self.flush(now, Event::RunGap, rules, places, out);
            return self.skip_to(now, packet, part, rules, out);
        }
        out.ledger().note(Event::Reordered, Tally::of(&packet));
        if self.early.is_empty() {
            self.early_since = now;
            // What is in front of the gap waits for it too, as long as it may.
            self.close_if_old(now, rules, out);
        }
        self.early.insert(places, links, packet, part);
    }

    /// With nothing held, takes a segment that is not the next: one from before passes, one from behind a gap starts a run.
    fn skip_to(&mut self, now: Time, packet: Packet, part: SegmentFacts, rules: &Rules, out: &mut impl Next) {
        let Some(tcp) = part.tcp else { return out.forward(packet) };
        let ahead = distance(self.next_seq, tcp.seq);
        if ahead < 0 && ahead > -STALE_SPAN {
            if let Some(end) = part.seq_end().filter(|end| distance(self.next_seq, *end) > 0) {
                self.next_seq = end;
            }
            return out.forward(packet);
        }
        self.append(now, packet, part, rules, out);
    }

    /// Lets go of everything, in the stream's order.
    pub(crate) fn flush(
        &mut self,
        now: Time,
        event: Event,
        rules: &Rules,
        places: &mut ReorderSlab,
        out: &mut impl Next,
    ) {
        self.close(event, rules, out);
        while let Some((packet, part)) = self.early.pop(places) {
            if part.tcp.is_some_and(|tcp| tcp.seq != self.next_seq) {
                self.close(Event::RunGap, rules, out);
                self.skip_to(now, packet, part, rules, out);
            } else {
                self.append(self.early_since, packet, part, rules, out);
            }
        }
        self.close(event, rules, out);
    }

    /// Ends the run by this rule.
    pub(crate) fn close(&mut self, event: Event, rules: &Rules, out: &mut impl Next) {
        let Some(run) = self.run.take() else { return };
        self.predicted_len = run.packet.len() as u32;
        let came = run.came();
        out.ledger().note(event, Tally { packets: 1, ..came });
        out.ledger().note(Event::Coalesced, came);
        run.leave(rules, out);
    }

    /// Hears of a packet that joins nothing but moves the stream on to this byte; `opens`: it starts a stream.
    pub(crate) fn advance_next_seq(&mut self, next_seq: u32, opens: bool) {
        if opens || distance(self.next_seq, next_seq) > 0 {
            self.next_seq = next_seq;
        }
    }

    /// Does a segment wait for its turn?
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !self.early.is_empty()
    }

    /// The packets that it holds, and the buffers that they lie in.
    pub(crate) fn held(&self, places: &ReorderSlab) -> (Tally, usize) {
        let (mut tally, mut buffers) = (Tally::NONE, self.early.count());
        if let Some(run) = &self.run {
            tally += run.came();
            buffers += 1;
        }
        self.early.packets(places).for_each(|packet| tally += Tally::of(packet));
        (tally, buffers)
    }

    /// Does it hold any packet?
    #[inline]
    pub(crate) fn holds_something(&self) -> bool {
        self.run.is_some() || self.waits()
    }

    /// Bytes that it is charged.
    pub(crate) fn charge(&self, places: &ReorderSlab) -> usize {
        let early: usize = self.early.packets(places).map(|packet| packet.pinned_len()).sum();
        STREAM_CHARGE + self.run.as_ref().map_or(0, |run| run.packet.pinned_len()) + early
    }
}

impl HasSource for Stream {
    fn source(&self) -> Address {
        self.source
    }
}

/// What a stream is charged beside the buffers that it holds, in bytes: its slot, its source and their places in tables.
pub(crate) const STREAM_CHARGE: usize = 1_024;
/// Average intervals that a run waits (L13).
const HOLD_INTERVALS: u64 = 10;
/// Shortest and longest wait for the next segment (L14).
pub(crate) const HOLD_MIN: Duration = Duration::from_micros(50);
/// See [`HOLD_MIN`].
pub(crate) const HOLD_MAX: Duration = Duration::from_millis(1);
/// Up to this average gap, the wait is the shortest, in nanoseconds.
const HOLD_MIN_INTERVAL: u64 = HOLD_MIN.as_nanos() as u64 / HOLD_INTERVALS;
/// Segments that may wait for their turn, their bytes, and how far ahead in the stream (rel:A37).
const EARLY_COUNT_MAX: usize = 64;
/// See [`EARLY_COUNT_MAX`].
const EARLY_LEN_MAX: usize = 65_536;
/// See [`EARLY_COUNT_MAX`].
const EARLY_SPAN: i32 = 1 << 20;
/// A segment that lies further back is of another connection, whose SYN was not seen: no sender repeats what is so old.
const STALE_SPAN: i32 = 1 << 24;
