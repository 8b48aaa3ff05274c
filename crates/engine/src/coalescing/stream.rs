//! Segments of one stream -> runs.
//!
//! A stream stores its next sequence number, which decides about each segment. Time-outs, memory and the table of
//! streams are left to the [coalescer](super).
//!
//! - The next segment in order joins the run, or closes the run and starts another.
//! - In resize mode, an early segment waits in the reorder queue, within limits (L7, corrected by L8).
//! - A late segment is forwarded unchanged.

use super::may_join::{ahead, distance, may_precede, may_wait};
use super::reorder::{ReorderQueue, ReorderSlab};
use super::run::{NotMerged, Run};
use super::send_window::{Arrival, PAUSE_MIN, SendWindow};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Hold, Mode, Rules};
use crate::sink::PayloadSink;
use crate::table::{Handle, HasSource};
use core::time::Duration;
use packet::{Address, Checksum, HeaderMatch, L2Scope, Packet, SegmentFacts, TcpSegmentFacts, Time};

/// The state of one direction of a connection (L1). The first SYN or segment creates a stream. FIN or RST removes
/// it (L5).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stream {
    /// The headers of the first segment of the open run, or of the last run. `None` if the fast path must not take
    /// segments.
    seen: Option<HeaderMatch>,
    /// The next expected sequence number.
    next_seq: u32,
    /// The index of the counter for the stream's address pair.
    pub(crate) pair: u16,
    /// Whether segments of the stream are never held (L22).
    pub(crate) is_exempt: bool,
    /// Whether the last segment of the stream was taken.
    pub(crate) is_over: bool,
    /// Whether the stream belongs to the burst. Its held packets may then be missing in `streams`.
    pub(crate) is_in_burst: bool,
    /// Average interval of segments, in nanoseconds.
    interval: u64,
    last_arrival: Time,
    /// Length of the stream's last run, in bytes. The next run gets a buffer of this size.
    predicted_len: u32,
    run: Option<Run>,
    /// Early segments, in stream order.
    early: ReorderQueue,
    /// Arrival time of the first early segment of the present gap, or of the last gap.
    early_since: Time,
    /// The time at which `streams` last recorded the stream as idle. [`Time::NEVER`] if it was recorded as active
    /// since.
    pub(crate) idle_since: Time,
    /// The handle of the stream's connection.
    pub(crate) connection: Handle,
    /// The ingress port and VLAN tags of the stream's packets.
    l2_scope: L2Scope,
    source: Address,
    /// The window of the sender. Unlimited where runs wait for at most [`ADAPTIVE_HOLD_MAX`], which stalls nobody for long.
    window: SendWindow,
}

/// The result of the fast path.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The segment joined. Time-out and memory charge of the stream are unchanged.
    Coalesced,
    /// The segment joined, or started a run. Time-out or memory charge may have changed.
    Changed,
    /// The segment was not taken: the slow path has to decide.
    Not(Packet),
}

impl Stream {
    /// Creates the stream of this packet. `next_seq` is the next expected sequence number.
    pub(crate) fn new(
        now: Time,
        packet: &Packet,
        connection: Handle,
        next_seq: u32,
        pair: u16,
        is_exempt: bool,
        rules: &Rules,
    ) -> Stream {
        let is_watched = long_hold(rules).is_some() && packet.is_tcp();
        Stream {
            seen: None,
            next_seq,
            pair,
            is_exempt,
            is_over: false,
            is_in_burst: false,
            interval: ADAPTIVE_HOLD_MAX.as_nanos() as u64 / HOLD_INTERVALS,
            last_arrival: Time::ZERO,
            predicted_len: 0,
            run: None,
            early: ReorderQueue::EMPTY,
            early_since: Time::ZERO,
            idle_since: now,
            connection,
            l2_scope: packet.l2_scope(),
            source: packet.addresses().0,
            window: if is_watched { SendWindow::of_new_sender(now, next_seq) } else { SendWindow::unlimited() },
        }
    }

    /// Includes the interval before this segment in the average. An interval above the maximum is ignored, because
    /// it says nothing about the flow's rate (L12, L14). Returns the interval, in nanoseconds.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time) -> u64 {
        let gap = now.nanos().saturating_sub(self.last_arrival.nanos());
        if gap <= ADAPTIVE_HOLD_MAX.as_nanos() as u64 {
            self.interval = (self.interval + gap) / 2;
        }
        self.last_arrival = now;
        gap
    }

    /// Returns the maximum wait for the next segment.
    pub(crate) fn hold(&self, rules: &Rules) -> Duration {
        match rules.hold {
            Hold::Adaptive => Duration::from_nanos(self.adaptive_hold()),
            Hold::Fixed(stretch) => stretch,
        }
    }

    #[inline]
    fn adaptive_hold(&self) -> u64 {
        (self.interval * HOLD_INTERVALS).clamp(HOLD_MIN.as_nanos() as u64, ADAPTIVE_HOLD_MAX.as_nanos() as u64)
    }

    /// Returns the changed fields of a segment whose headers continue those of the last run, with the same ingress.
    /// `None` for any other segment.
    #[inline(always)]
    pub(crate) fn match_next(&self, packet: &Packet) -> Option<TcpSegmentFacts> {
        self.seen.as_ref()?.match_next(packet).filter(|_| self.came_from(packet))
    }

    /// Whether the packet has the ingress port and the VLAN tags of the stream.
    #[inline(always)]
    pub(crate) fn came_from(&self, packet: &Packet) -> bool {
        packet.l2_scope() == self.l2_scope
    }

    /// Prefetches the packet of the open run.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(run) = &self.run {
            run.packet.prefetch();
        }
    }

    /// Returns the destination of the next segment's payload, and the payload's offset in the segment. Assumes that
    /// the segment is as long as the first segment of the run.
    #[inline]
    pub(crate) fn prefetched_place(&self) -> Option<(&[u8], usize)> {
        let run = self.run.as_ref()?;
        Some((run.packet.behind(usize::from(run.first_len()))?, run.payload_at()))
    }

    /// Number of early segments.
    #[cfg(test)]
    pub(crate) fn reordered_count(&self) -> usize {
        self.early.count()
    }

    /// Clears the expected headers, so that the next segment takes the slow path.
    #[cfg(test)]
    pub(crate) fn forget_header(&mut self) {
        self.seen = None;
    }

    /// Takes the next segment if its headers continue the stream's: the fast path. For all other segments,
    /// [`take`](Stream::take) decides.
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
        let payload_len = run.first_len();
        self.next_seq = self.next_seq.wrapping_add(u32::from(payload_len));
        let has_room_as_before = run.room() == room;
        let (arrival, interval) = (self.last_arrival, self.interval);
        let gap = self.arrive(now);
        let waits_as_long = match rules.hold {
            Hold::Adaptive => {
                self.interval == interval || interval <= HOLD_MIN_INTERVAL && self.interval <= HOLD_MIN_INTERVAL
            }
            Hold::Fixed(_) => true,
        };
        // The segment before arrived at the same time, and the run was then young enough for an equal wait. So the
        // run is young enough now.
        if arrival == now && waits_as_long && has_room_as_before {
            return Outcome::Coalesced;
        }
        if gap > PAUSE_MIN.as_nanos() as u64 {
            self.end_pause(now, gap, payload_len, rules);
        }
        let hold = self.hold(rules);
        if let Some(event) = self.run.as_ref().and_then(|run| run.is_done(now, rules, hold)) {
            self.close(event, rules, out);
        } else if gap > PAUSE_MIN.as_nanos() as u64 && self.exceeds_share(payload_len) {
            self.close(Event::RunWindow, rules, out);
        }
        Outcome::Changed
    }

    /// Starts a run with a segment whose headers continue those of the last run. If the last run is still open, it
    /// is full, and is closed.
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
        let held = self.run.is_some();
        self.close(Event::RunFull, rules, out);
        let gap = self.arrive(now);
        if gap > PAUSE_MIN.as_nanos() as u64 && long_hold(rules).is_some() {
            self.pause(now, gap, self.next_seq, part.payload_len, held, rules);
        }
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
        let payload_len = part.payload_len;
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
        self.flush_share(now, payload_len, rules, places, out);
    }

    /// Whether the sender's window limits the held bytes, or intervals of this length may show that it does.
    pub(crate) fn watches(&self, gap: u64) -> bool {
        self.window.limits() || gap > PAUSE_MIN.as_nanos() as u64
    }

    /// Updates the estimate of the sender's window at the end of an interval. While the estimate limits the held
    /// bytes, all segments take the slow path.
    #[inline(never)]
    pub(crate) fn pause(
        &mut self,
        now: Time,
        gap: u64,
        next_seq: u32,
        payload_len: u16,
        held: bool,
        rules: &Rules,
    ) {
        let Some(hold) = long_hold(rules) else { return };
        self.window.arrive(Arrival { now, gap, next_seq, payload_len, held }, hold);
        if self.window.limits() {
            self.seen = None;
        }
    }

    /// Ends an interval before a segment that joined a run on the fast path.
    #[cold]
    #[inline(never)]
    fn end_pause(&mut self, now: Time, gap: u64, payload_len: u16, rules: &Rules) {
        let next_seq = self.next_seq.wrapping_sub(u32::from(payload_len));
        self.pause(now, gap, next_seq, payload_len, true, rules);
    }

    /// Releases all held packets if the next segment would exceed the part of the window that may be held.
    fn flush_share(
        &mut self,
        now: Time,
        payload_len: u16,
        rules: &Rules,
        places: &mut ReorderSlab,
        out: &mut impl Next,
    ) {
        if self.exceeds_share(payload_len) {
            self.flush(now, Event::RunWindow, rules, places, out);
        }
    }

    /// Whether another segment would exceed the part of the sender's window that may be held.
    #[inline]
    fn exceeds_share(&self, payload_len: u16) -> bool {
        let held = || self.run.as_ref().map_or(0, Run::payload_len) + self.early.payload_len();
        self.window.share().is_some_and(|share| held() + usize::from(payload_len) > share)
    }

    /// Returns the next expected sequence number.
    pub(crate) fn next_seq(&self) -> u32 {
        self.next_seq
    }

    /// Appends the next segment to the run, or starts another run. The segment arrived at `since` or later.
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
                let can_be_seen = !self.window.limits()
                    && packet.checksum != Checksum::Partial
                    && packet.max_fragment_len().is_none();
                self.seen = HeaderMatch::of(&packet, &part).filter(|_| can_be_seen);
                self.run.insert(Run::new(since, packet, part, self.predicted_len, rules))
            }
        };
        if let Some(event) = run.is_whole(rules) {
            self.close(event, rules, out);
        }
    }

    /// Closes the run if it would exceed its maximum age during another wait.
    fn close_if_old(&mut self, now: Time, rules: &Rules, out: &mut impl Next) {
        let hold = self.hold(rules);
        if self.run.as_ref().is_some_and(|run| run.is_old(now, rules, hold)) {
            self.close(Event::RunTimeout, rules, out);
        }
    }

    /// Appends the early segments that have become next in order.
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

    /// Queues an early segment. The search for its position begins at the end of the queue, where most segments
    /// belong (L8g).
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
            // The run before the gap is held too, up to its maximum age.
            self.close_if_old(now, rules, out);
        }
        self.early.insert(places, links, packet, part);
    }

    /// Takes a segment that is not next. The stream must have no open run. A late segment is forwarded. An early
    /// segment starts a run.
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

    /// Releases all held packets, in stream order.
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

    /// Closes the run, and counts it under `event`.
    pub(crate) fn close(&mut self, event: Event, rules: &Rules, out: &mut impl Next) {
        let Some(run) = self.run.take() else { return };
        self.predicted_len = run.packet.len() as u32;
        self.window.timed_out = event == Event::RunTimeout;
        let came = run.came();
        out.ledger().note(event, Tally { packets: 1, ..came });
        out.ledger().note(Event::Coalesced, came);
        run.leave(rules, out);
    }

    /// Advances to this sequence number because of a packet that does not join. `opens`: the packet starts a
    /// stream.
    pub(crate) fn advance_next_seq(&mut self, next_seq: u32, opens: bool) {
        if opens || distance(self.next_seq, next_seq) > 0 {
            self.next_seq = next_seq;
        }
    }

    /// Whether any early segment waits.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !self.early.is_empty()
    }

    /// Returns the packets and payload bytes that the stream holds, and the number of their buffers.
    pub(crate) fn held(&self, places: &ReorderSlab) -> (Tally, usize) {
        let (mut tally, mut buffers) = (Tally::NONE, self.early.count());
        if let Some(run) = &self.run {
            tally += run.came();
            buffers += 1;
        }
        self.early.packets(places).for_each(|packet| tally += Tally::of(packet));
        (tally, buffers)
    }

    /// Whether the stream holds any packet.
    #[inline]
    pub(crate) fn holds_something(&self) -> bool {
        self.run.is_some() || self.waits()
    }

    /// Returns the memory charge of the stream, in bytes.
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

/// Returns the hold time, if it is long enough to stall a sender whose window is smaller than a run.
#[inline]
pub(crate) fn long_hold(rules: &Rules) -> Option<Duration> {
    match rules.hold {
        Hold::Fixed(stretch) if stretch > ADAPTIVE_HOLD_MAX => Some(stretch),
        Hold::Fixed(_) | Hold::Adaptive => None,
    }
}

/// Charge of a stream without packet buffers, in bytes: its slot, its source and their table entries.
pub(crate) const STREAM_CHARGE: usize = 1_152;
/// Maximum wait of a run, in average intervals (L13).
const HOLD_INTERVALS: u64 = 10;
/// Minimum wait for the next segment (L14).
pub(crate) const HOLD_MIN: Duration = Duration::from_micros(50);
/// Maximum wait for the next segment (L14).
pub(crate) const ADAPTIVE_HOLD_MAX: Duration = Duration::from_millis(1);
/// Average interval in nanoseconds up to which the minimum wait applies.
const HOLD_MIN_INTERVAL: u64 = HOLD_MIN.as_nanos() as u64 / HOLD_INTERVALS;
/// Maximum number of early segments (rel:A37).
const EARLY_COUNT_MAX: usize = 64;
/// Maximum payload of early segments, in bytes (rel:A37).
const EARLY_LEN_MAX: usize = 65_536;
/// Maximum distance of an early segment in the stream, in bytes (rel:A37).
const EARLY_SPAN: i32 = 1 << 20;
/// Distance in bytes beyond which an old segment is attributed to another connection whose SYN was not seen. No
/// host repeats such old data.
const STALE_SPAN: i32 = 1 << 24;
