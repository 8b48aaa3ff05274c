//! Segments -> acknowledgements that are due, and receive windows.
//!
//! Only received ranges are stored, not data. The caller checks the bytes on arrival, because the stream's pattern
//! is known. Positions are relative to the peer's SYN. In [`sender`](super::sender), positions are relative to this
//! end's own SYN.

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
    /// The position of FIN; `None` until it arrives.
    fin: Option<u64>,
    held: Ranges,
    /// Positions in recently changed SACK blocks, latest first (RFC 2018 section 4).
    recent: ArrayVec<u64, RECENT_COUNT>,
    /// The last duplicate range, for a D-SACK block (RFC 2883).
    repeat: Option<Span>,
    /// Position up to which the application has read.
    read: u64,
    scale: u8,
    /// Position behind the announced window, which never decreases.
    edge: u64,
    memory: Tuned,
    due: Acknowledging,
    /// Payload length of full segments, in bytes.
    segment_len: u32,
    last_len: u32,
    /// The peer's last timestamp value, which acknowledgements echo, and its arrival time (RFC 7323 section 4.3).
    stamp: Option<(u32, Time)>,
    /// Whether a congestion mark was received whose echo is not yet confirmed (RFC 3168 section 6.1.3).
    is_marked: bool,
}

/// The state of delayed acknowledgements.
#[derive(Clone, Debug, Default)]
struct Acknowledging {
    at: Option<Time>,
    is_due: bool,
    quick_left: u32,
    /// The last acknowledged position.
    last: u64,
}

/// The receive buffer with Linux's dynamic right-sizing.
///
/// The announced window starts with the SYN's window. The window then grows by two segments at a time to the buffer
/// size, less one segment. The window grows when data arrives in order or is read. (Linux's `tcp_grow_window` does
/// so only on arrival.) The initial buffer is smaller than twice `first` of the settings: Linux counts complete
/// packet buffers, of which only a part is payload.
#[derive(Clone, Copy, Debug)]
struct Tuned {
    offered: u64,
    len: u64,
    limit: u64,
    /// Bytes read in the busiest round trip.
    space: u64,
    round_start: Time,
    round_from: u64,
    trip: Option<Duration>,
}

/// A range of new bytes in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Stream position of the first new byte.
    pub(crate) start: u64,
    /// Offset of the first new byte in the segment's payload.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Receiver {
    /// A receiver for a stream whose SYN has sequence number `initial`.
    pub(crate) fn new(settings: &Settings, initial: u32, scale: u8, mss: u32) -> Receiver {
        // The amount of data expected in the first round trip is `first` less one segment. It is at most the window
        // of the SYN, and at most ten segments (Linux's `tcp_init_buffer_space`).
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

    /// Converts a sequence number of the peer to a position; `None` for numbers before the SYN.
    pub(crate) fn place(&self, seq: u32) -> Option<u64> {
        self.numbering.place(seq, self.next)
    }

    /// The next expected position.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of stream bytes received in order.
    pub(crate) fn arrived_len(&self) -> u64 {
        self.next - 1 - u64::from(self.is_finished())
    }

    /// Number of bytes received in order but not yet read.
    pub(crate) fn unread_len(&self) -> u64 {
        self.arrived_len() + 1 - self.read
    }

    /// Whether all bytes and FIN have been received.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Whether a segment is acceptable (RFC 9293 section 3.10.7.4). Segments that end before the last
    /// acknowledgement or start behind the window are not acceptable.
    pub(crate) fn accepts(&self, start: u64, len: u32) -> bool {
        start + u64::from(len) >= self.due.last && start <= self.edge
    }

    /// Whether a position is within the receive window (RFC 5961 section 3.2).
    pub(crate) fn is_within(&self, place: u64) -> bool {
        (self.next..=self.edge).contains(&place)
    }

    /// Whether a timestamp is older than the peer's last timestamp (RFC 7323 section 5.3).
    pub(crate) fn is_old(&self, now: Time, value: u32) -> bool {
        self.stamp.is_some_and(|(recent, at)| is_before(value, recent) && now.since(at) < STAMP_LASTS)
    }

    /// Records the peer's timestamp if the segment starts at or before the last acknowledged position (RFC 7323
    /// section 4.3).
    pub(crate) fn note_stamp(&mut self, now: Time, start: u64, value: u32) {
        if start <= self.due.last && self.stamp.is_none_or(|(recent, _)| !is_before(value, recent)) {
            self.stamp = Some((value, now));
        }
    }

    /// The peer's timestamp value, to be echoed.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp.map_or(0, |(value, _)| value)
    }

    /// Makes an acknowledgement due immediately.
    pub(crate) fn acknowledge_at_once(&mut self) {
        self.due.is_due = true;
    }

    /// Makes an acknowledgement due for a segment that is not accepted. The part before the expected position is
    /// reported as a duplicate (RFC 2883 section 4).
    pub(crate) fn reject(&mut self, start: u64, len: u32) {
        self.due.is_due = true;
        let end = (start + u64::from(len)).min(self.next);
        if len > 0 && start < end {
            self.repeat = Some(Span { start, end });
        }
    }

    /// Records a received segment, and calls `tell` for each range of new bytes.
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

    /// Records a segment behind a gap. The segment is acknowledged immediately, so that the sender learns of the
    /// gap (RFC 5681 section 4.2).
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

    /// Updates the length of full segments. A longer segment, or the second of two consecutive segments of equal
    /// length, sets it.
    fn measure_len(&mut self, len: u32) {
        if len > self.segment_len || len == self.last_len {
            self.segment_len = len;
        }
        self.last_len = len;
    }

    /// Schedules an acknowledgement. Every second full segment is acknowledged immediately, other segments after
    /// the delay (RFC 1122 section 4.2.3.2, RFC 5681 section 4.2). The first segments of a connection are
    /// acknowledged immediately (Linux).
    fn delay(&mut self, now: Time) {
        let is_second = self.next - self.due.last > self.segment_len.into();
        if self.due.quick_left > 0 || is_second {
            self.due.is_due = true;
        } else {
            self.due.at.get_or_insert(now + self.settings.acks.delay);
        }
    }

    /// Starts the first round trip of data, after the handshake.
    pub(crate) fn begin(&mut self, now: Time) {
        self.memory.round_start = now;
    }

    /// Records a round trip, measured by the peer's echo of our timestamp.
    pub(crate) fn measure_trip(&mut self, trip: Duration) {
        self.memory.trip = Some(self.memory.trip.map_or(trip, |least| least.min(trip)));
    }

    /// Adapts the buffer size once per round trip: twice the data read in the round trip, or more if this amount
    /// grows (Linux's `tcp_rcv_space_adjust`).
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

/// Header fields of outgoing segments.
impl Receiver {
    /// Whether an acknowledgement is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_due
    }

    /// The time when a delayed acknowledgement becomes due; `None` if none is delayed.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.at
    }

    /// Makes a delayed acknowledgement due if its time has come.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.due.at.take_if(|at| *at <= now).is_some() {
            self.due.is_due = true;
        }
    }

    /// Returns the acknowledgement and window fields of an outgoing segment.
    ///
    /// The window's right edge never decreases (RFC 9293 section 3.8.6). If the window scale is too coarse, the
    /// window is rounded up (RFC 7323 section 2.4). The edge advances by at least a segment, or half of the buffer
    /// (RFC 9293 section 3.8.6.2.2).
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

    /// Returns the acknowledgement and window fields of a SYN, whose window is not scaled (RFC 7323 section 2.2).
    pub(crate) fn say_first(&mut self) -> (u32, u16) {
        let field = self.memory.offered.min(u16::MAX.into());
        self.edge = self.edge.max(self.next + field);
        (self.numbering.seq(self.next), field as u16)
    }

    /// Whether a congestion mark must be echoed (RFC 3168 section 6.1.3).
    pub(crate) fn echoes_mark(&self) -> bool {
        self.is_marked
    }

    /// The SACK blocks: first the last duplicate (RFC 2883), then blocks in the order of their last change, latest
    /// first (RFC 2018 section 4).
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

    /// Records that the application has read `len` bytes. Returns whether the window has grown enough for an
    /// announcement.
    pub(crate) fn read(&mut self, now: Time, len: u64) -> bool {
        self.read += len.min(self.unread_len());
        self.tune(now);
        let free = self.memory.offered.saturating_sub(self.next - self.read.min(self.next));
        let kept = self.edge.saturating_sub(self.next);
        free >= 2 * kept && free >= kept + self.worth()
    }

    /// Minimum growth of the window that is announced, in bytes.
    fn worth(&self) -> u64 {
        u64::from(self.segment_len).min(self.memory.len / 2).max(1)
    }
}

/// Payload of full segments that fits this memory, in bytes. In Linux, each segment occupies a buffer whose length
/// is a power of two, plus metadata.
fn filled(memory: u32, mss: u32) -> u32 {
    let buffer_len = (mss + BUFFER_OVERHEAD_LEN).next_power_of_two() + BOOKKEEPING_LEN;
    (u64::from(memory) * u64::from(mss) / u64::from(buffer_len)) as u32
}

/// Approximate overhead of a packet in its buffer, in bytes: headers, headroom and Linux's `skb_shared_info`.
const BUFFER_OVERHEAD_LEN: u32 = 448;
/// Size of Linux's metadata of a packet (`sk_buff`), in bytes.
const BOOKKEEPING_LEN: u32 = 256;
/// Number of recently changed SACK blocks that are remembered. A TCP header has no room for more.
const RECENT_COUNT: usize = 4;
/// Maximum age of a timestamp. After this time, the peer's clock may have wrapped (RFC 7323 section 5.5).
const STAMP_LASTS: Duration = Duration::from_secs(24 * 86_400);
/// Number of segments expected in the first round trip (Linux's `TCP_INIT_CWND`).
const SPACE_FIRST_SEGMENT_COUNT: u64 = 10;
