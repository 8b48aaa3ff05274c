//! Segments -> acknowledgements due and windows to announce.
//!
//! It stores only the ranges received, no data. The caller checks the bytes on arrival, since the stream's pattern
//! is known. Positions count from the peer's SYN, as those of the [`sender`](super::sender) do from its own.

use super::ranges::{Ranges, Span};
use super::segment::{Blocks, CWR, FIN, Numbering, Segment, is_before};
use super::settings::{Memory, Reading, Settings};
use arrayvec::ArrayVec;
use packet::{Ecn, Time};
use std::time::Duration;

/// The receiving half of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    settings: Settings,
    numbering: Numbering,
    /// The next expected position.
    next: u64,
    /// The position of FIN, once it arrived.
    fin: Option<u64>,
    held: Ranges,
    /// Positions in recently reported blocks, the latest first (RFC 2018 section 4).
    recent: ArrayVec<u64, RECENT_COUNT>,
    /// The latest duplicate (RFC 2883).
    repeat: Option<Span>,
    /// Position up to which data was read.
    read: u64,
    scale: u8,
    /// Position after the announced window; it never moves back.
    edge: u64,
    memory: Tuned,
    due: Acknowledging,
    /// Length of full segments, in bytes.
    segment_len: u32,
    last_len: u32,
    /// The peer's clock to echo, and the time of its arrival (RFC 7323 section 4.3).
    stamp: Option<(u32, Time)>,
    /// A congestion mark arrived, and its echo is not yet confirmed (RFC 3168 section 6.1.3).
    is_marked: bool,
}

/// Acknowledgements that are due.
#[derive(Clone, Debug, Default)]
struct Acknowledging {
    at: Option<Time>,
    is_due: bool,
    quick_left: u32,
    /// The last acknowledged position.
    last: u64,
}

/// The receive buffer and its growth: Linux's dynamic right-sizing.
///
/// The announced window starts with that of the SYN. It grows toward the buffer size, less one segment, by two
/// segments at a time. It does so whenever data arrives in order or is read (after Linux's `tcp_grow_window`, which
/// does so on arrival). The initial buffer is the payload of full segments in twice the first memory of the
/// settings, because Linux counts whole packet buffers.
#[derive(Clone, Copy, Debug)]
struct Tuned {
    offered: u64,
    len: u64,
    limit: u64,
    /// Data read in the busiest round trip.
    space: u64,
    round_start: Time,
    round_from: u64,
    trip: Option<Duration>,
}

/// New bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Their first position.
    pub(crate) start: u64,
    /// Their offset in the segment's payload, in bytes.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Receiver {
    /// A receiver of a stream with this sequence number in its SYN.
    pub(crate) fn new(settings: &Settings, initial: u32, scale: u8, mss: u32) -> Receiver {
        // The first round trip is expected to bring the first memory less one segment. The window of the SYN and
        // ten segments are upper limits (Linux's `tcp_init_buffer_space`).
        let (first, len, limit, space) = match settings.memory {
            Memory::Fixed(len) => (len, len, len, len),
            Memory::Growing { first, limit } => {
                let window = settings.first_window().into();
                let len = filled(first.saturating_mul(2), mss).min(limit).max(window);
                (window, len, limit, window.min(first - mss.min(first / 2)))
            }
        };
        Receiver {
            numbering: Numbering::new(initial),
            next: 1,
            fin: None,
            held: Ranges::default(),
            recent: ArrayVec::new(),
            repeat: None,
            read: 1,
            scale,
            edge: 1,
            memory: Tuned {
                offered: first.into(),
                len: len.into(),
                limit: limit.into(),
                space: u64::from(space).min(SPACE_FIRST_SEGMENT_COUNT * u64::from(mss)),
                round_start: Time::ZERO,
                round_from: 1,
                trip: None,
            },
            due: Acknowledging { quick_left: settings.acks.quick_count, last: 1, ..Acknowledging::default() },
            segment_len: 0,
            last_len: 0,
            stamp: None,
            is_marked: false,
            settings: settings.clone(),
        }
    }

    /// The position of a peer's sequence number.
    pub(crate) fn place(&self, seq: u32) -> Option<u64> {
        self.numbering.place(seq, self.next)
    }

    /// The next expected position.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of the stream that arrived in order.
    pub(crate) fn arrived_len(&self) -> u64 {
        self.next - 1 - u64::from(self.is_finished())
    }

    /// Bytes that arrived in order and were not read.
    pub(crate) fn unread_len(&self) -> u64 {
        self.arrived_len() + 1 - self.read
    }

    /// Whether all bytes and FIN have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Whether some of these positions are acceptable (RFC 9293 section 3.10.7.4). Segments that end before the
    /// last acknowledgement, or start after the window, are not.
    pub(crate) fn accepts(&self, start: u64, len: u32) -> bool {
        start + u64::from(len) >= self.due.last && start <= self.edge
    }

    /// Whether this position is within the window (RFC 5961 section 3.2).
    pub(crate) fn is_within(&self, place: u64) -> bool {
        (self.next..=self.edge).contains(&place)
    }

    /// Whether this timestamp is older than the peer's last one (RFC 7323 section 5.3).
    pub(crate) fn is_old(&self, now: Time, value: u32) -> bool {
        self.stamp.is_some_and(|(recent, at)| is_before(value, recent) && now.since(at) < STAMP_LASTS)
    }

    /// Records the peer's clock if the segment covers the last acknowledged position (RFC 7323 section 4.3).
    pub(crate) fn note_stamp(&mut self, now: Time, start: u64, value: u32) {
        if start <= self.due.last && self.stamp.is_none_or(|(recent, _)| !is_before(value, recent)) {
            self.stamp = Some((value, now));
        }
    }

    /// The peer's clock, to be echoed.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp.map_or(0, |(value, _)| value)
    }

    /// Makes an acknowledgement due at once.
    pub(crate) fn acknowledge_at_once(&mut self) {
        self.due.is_due = true;
    }

    /// Handles data before the expected position: it is reported as a duplicate (RFC 2883 section 4).
    pub(crate) fn reject(&mut self, start: u64, len: u32) {
        self.due.is_due = true;
        let end = (start + u64::from(len)).min(self.next);
        if len > 0 && start < end {
            self.repeat = Some(Span { start, end });
        }
    }

    /// Receives a segment and reports its new bytes.
    pub(crate) fn take(&mut self, now: Time, segment: &Segment, start: u64, mut tell: impl FnMut(Fresh)) {
        self.take_mark(segment);
        let whole_end = start + u64::from(segment.len);
        // A FIN before data that has already arrived is ignored.
        let is_end = whole_end >= self.next.max(self.held.end()) && whole_end < self.edge.max(self.next + 1);
        if segment.has(FIN) && is_end {
            self.fin.get_or_insert(whole_end);
        }
        // Data after FIN is ignored (RFC 9293 section 3.10.7.4).
        let end = whole_end.min(self.edge).min(self.fin.unwrap_or(u64::MAX));
        let span = Span { start: start.max(self.next), end };
        if start < self.next && segment.len > 0 {
            self.reject(start, segment.len);
        }
        if span.start < span.end {
            self.measure_len(segment.len);
            let tell = |part: Span| {
                let (at, len) = ((part.start - start) as u32, part.len() as u32);
                tell(Fresh { start: part.start, at, len });
            };
            if span.start == self.next { self.take_in_order(now, span, tell) } else { self.take_early(span, tell) }
        } else if segment.len > 0 {
            self.due.is_due = true;
        }
        self.take_fin(segment);
    }

    fn take_in_order(&mut self, now: Time, span: Span, mut tell: impl FnMut(Span)) {
        if self.held.is_empty() {
            tell(span);
            self.next = span.end;
        } else {
            // A segment that fills a gap is acknowledged at once (RFC 5681 section 4.2).
            self.next = self.held.insert(span, tell).end;
            self.held.forget_before(self.next);
            self.due.is_due = true;
        }
        if self.settings.reading == Reading::AtOnce {
            self.read = self.next;
        }
        self.tune(now);
        self.delay(now);
    }

    /// A segment after a gap is acknowledged at once, so that the sender learns of the gap (RFC 5681 section 4.2).
    fn take_early(&mut self, span: Span, mut tell: impl FnMut(Span)) {
        self.due.is_due = true;
        let before = self.held.len();
        let merged = self.held.insert(span, &mut tell);
        if self.held.len() == before {
            self.repeat = Some(span);
        }
        self.recent.retain(|place| !(merged.start..merged.end).contains(place));
        if self.recent.is_full() {
            self.recent.pop();
        }
        self.recent.insert(0, span.start);
    }

    fn take_fin(&mut self, segment: &Segment) {
        if self.fin == Some(self.next) {
            self.next += 1;
            self.due.is_due = true;
        } else if segment.has(FIN) {
            self.due.is_due = true;
        }
    }

    fn take_mark(&mut self, segment: &Segment) {
        if segment.has(CWR) {
            self.is_marked = false;
        }
        if segment.ecn == Ecn::Ce {
            self.is_marked = true;
            self.due.is_due = true;
        }
    }

    /// Two consecutive segments of the same length determine the length of a full one.
    fn measure_len(&mut self, len: u32) {
        if len > self.segment_len || len == self.last_len {
            self.segment_len = len;
        }
        self.last_len = len;
    }

    /// Every second full segment is acknowledged at once, and any other after the delay (RFC 1122 section 4.2.3.2,
    /// RFC 5681 section 4.2). At the start each one is (Linux).
    fn delay(&mut self, now: Time) {
        let is_second = self.next - self.due.last > self.segment_len.into();
        if self.due.quick_left > 0 || is_second {
            self.due.is_due = true;
        } else {
            self.due.at.get_or_insert(now + self.settings.acks.delay);
        }
    }

    /// The handshake is complete: the first round trip of data begins.
    pub(crate) fn begin(&mut self, now: Time) {
        self.memory.round_start = now;
    }

    /// Records a round trip, measured by the peer's echo of our clock.
    pub(crate) fn measure_trip(&mut self, trip: Duration) {
        self.memory.trip = Some(self.memory.trip.map_or(trip, |least| least.min(trip)));
    }

    /// Once per round trip: sets the buffer to twice the data read in it, and more while that grows (Linux's
    /// `tcp_rcv_space_adjust`).
    fn tune(&mut self, now: Time) {
        let memory = &mut self.memory;
        let segment_len = u64::from(self.segment_len);
        let room = memory.len.saturating_sub(segment_len);
        memory.offered = memory.offered.max((memory.offered + 2 * segment_len).min(room));
        let Some(trip) = memory.trip.filter(|_| memory.len < memory.limit) else { return };
        if now.since(memory.round_start) < trip {
            return;
        }
        let copied = self.read - memory.round_from;
        (memory.round_start, memory.round_from) = (now, self.read);
        if copied <= memory.space {
            return;
        }
        let grown = 2 * copied + 2 * (2 * copied * (copied - memory.space) / memory.space.max(1));
        memory.space = copied;
        memory.len = memory.len.max(grown + self.held.len()).min(memory.limit);
    }
}

/// Output to the peer.
impl Receiver {
    /// Whether an acknowledgement is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_due
    }

    /// When a delayed acknowledgement becomes due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.at
    }

    /// Makes a delayed acknowledgement due.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.due.at.take_if(|at| *at <= now).is_some() {
            self.due.is_due = true;
        }
    }

    /// The acknowledgement and window fields of an outgoing segment.
    ///
    /// The window's edge never moves back (RFC 9293 section 3.8.6). Where the scale is too coarse for the remaining
    /// window, it is rounded up (RFC 7323 section 2.4). The edge advances only by a segment, or by half of the
    /// buffer (RFC 9293 section 3.8.6.2.2).
    pub(crate) fn say(&mut self) -> (u32, u16) {
        let unit = 1 << self.scale;
        let kept = self.edge.saturating_sub(self.next);
        let free = self.memory.offered.saturating_sub(self.next - self.read.min(self.next));
        let has_room = free >= self.worth();
        // A growing buffer has room for the rest of a unit, and Linux loses none of the window to scaling.
        let is_growing = matches!(self.settings.memory, Memory::Growing { .. });
        let free = if is_growing { free.next_multiple_of(unit) } else { free };
        let is_worth_it = has_room && free >= kept + self.worth();
        let field = if is_worth_it { (free / unit).max(kept.div_ceil(unit)) } else { kept.div_ceil(unit) };
        let field = field.min(u16::MAX.into());
        self.edge = self.edge.max(self.next + field * unit);
        self.due.is_due = false;
        self.due.at = None;
        self.due.quick_left = self.due.quick_left.saturating_sub(1);
        self.due.last = self.next;
        (self.numbering.seq(self.next), field as u16)
    }

    /// The window of a segment with SYN, which is not scaled (RFC 7323 section 2.2).
    pub(crate) fn say_first(&mut self) -> (u32, u16) {
        let field = self.memory.offered.min(u16::MAX.into());
        self.edge = self.edge.max(self.next + field);
        (self.numbering.seq(self.next), field as u16)
    }

    /// Whether a congestion mark must be echoed (RFC 3168 section 6.1.3).
    pub(crate) fn echoes_mark(&self) -> bool {
        self.is_marked
    }

    /// The SACK blocks: first the latest duplicate (RFC 2883), then the block that changed last, then those before
    /// it (RFC 2018 section 4).
    pub(crate) fn blocks(&mut self, count_max: usize) -> Blocks {
        let mut blocks = Blocks::default();
        let mut push = |span: Span| blocks.push(self.numbering.seq(span.start), self.numbering.seq(span.end));
        let mut around = None;
        if let Some(repeat) = self.repeat.take() {
            push(repeat);
            around = self.held.around(repeat.start);
            around.into_iter().for_each(&mut push);
        }
        if !self.held.is_empty() {
            let spans = self.recent.iter().filter_map(|place| self.held.around(*place));
            spans.filter(|span| Some(*span) != around).for_each(push);
        } else {
            self.recent.clear();
        }
        blocks.truncate(count_max);
        blocks
    }

    /// Reads `len` bytes. Returns whether the window has opened enough to announce it.
    pub(crate) fn read(&mut self, now: Time, len: u64) -> bool {
        self.read += len.min(self.unread_len());
        self.tune(now);
        let free = self.memory.offered.saturating_sub(self.next - self.read.min(self.next));
        let kept = self.edge.saturating_sub(self.next);
        free >= 2 * kept && free >= kept + self.worth()
    }

    /// Smallest growth of the window that is worth an announcement, in bytes.
    fn worth(&self) -> u64 {
        u64::from(self.segment_len).min(self.memory.len / 2).max(1)
    }
}

/// Payload of segments of `mss` bytes that fits into this memory. Each segment occupies a buffer with a power of
/// two as its length, plus Linux's bookkeeping.
fn filled(memory: u32, mss: u32) -> u32 {
    let buffer_len = (mss + BUFFER_OVERHEAD_LEN).next_power_of_two() + BOOKKEEPING_LEN;
    (u64::from(memory) * u64::from(mss) / u64::from(buffer_len)) as u32
}

/// Approximate overhead of a packet in its buffer, in bytes: headers, headroom and Linux's `skb_shared_info`.
const BUFFER_OVERHEAD_LEN: u32 = 448;
/// Linux's data about a packet outside its buffer (`sk_buff`), in bytes.
const BOOKKEEPING_LEN: u32 = 256;
/// Number of remembered blocks: as many as a header has room for.
const RECENT_COUNT: usize = 4;
/// A clock value older than this may have wrapped (RFC 7323 section 5.5).
const STAMP_LASTS: Duration = Duration::from_secs(24 * 86_400);
/// Segments expected in the first round trip (Linux's `TCP_INIT_CWND`).
const SPACE_FIRST_SEGMENT_COUNT: u64 = 10;
