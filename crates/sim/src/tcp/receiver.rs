//! Segments in, acknowledgements due and windows to offer out.
//!
//! It holds no bytes, only which it has: their bytes are checked where they arrive, for a stream says what stands at each
//! place. Places count from the peer's SYN, as the [`sender`](super::sender)'s do from its own.

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
    /// The next place that is expected.
    next: u64,
    /// Where FIN stands, once it was seen.
    fin: Option<u64>,
    held: Ranges,
    /// Places in the blocks that were told of lately, the last first (RFC 2018 section 4).
    recent: ArrayVec<u64, RECENT_COUNT>,
    /// What arrived again (RFC 2883).
    repeat: Option<Span>,
    /// Up to where the bytes were read.
    read: u64,
    scale: u8,
    /// Behind the last place that was offered; it never moves back.
    edge: u64,
    memory: Tuned,
    due: Acknowledging,
    /// The longest segments that come, in bytes.
    segment_len: u32,
    last_len: u32,
    /// The peer's clock, to be echoed, and when it was read (RFC 7323 section 4.3).
    stamp: Option<(u32, Time)>,
    /// A mark was met and its echo not yet confirmed (RFC 3168 section 6.1.3).
    is_marked: bool,
}

/// What is to be acknowledged, and when.
#[derive(Clone, Debug, Default)]
struct Acknowledging {
    at: Option<Time>,
    is_due: bool,
    quick_left: u32,
    /// The place that was last acknowledged.
    last: u64,
}

/// How much is taken in, and how that grows: Linux's dynamic right-sizing.
///
/// The window that is offered starts with that of the SYN and follows the memory, less the segment at hand, by two segments
/// each time that bytes come in order or are read (after Linux's `tcp_grow_window`, which does so where they come). The memory
/// starts with what full segments fill of twice the first memory that the settings say: Linux counts the buffers that packets
/// lie in, not their bytes.
#[derive(Clone, Copy, Debug)]
struct Tuned {
    offered: u64,
    len: u64,
    limit: u64,
    /// Read in the busiest round trip.
    space: u64,
    round_start: Time,
    round_from: u64,
    trip: Option<Duration>,
}

/// Bytes of a segment that were not there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Their first place.
    pub(crate) start: u64,
    /// Where they stand in the segment's payload, in bytes.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Receiver {
    /// A receiver of a stream whose SYN had this sequence number.
    pub(crate) fn new(settings: &Settings, initial: u32, scale: u8, mss: u32) -> Receiver {
        // The first round trip is expected to bring a segment less than the first memory, at most the window of the SYN, and at
        // most ten segments (Linux's `tcp_init_buffer_space`).
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

    /// The place of a sequence number of the peer.
    pub(crate) fn place(&self, seq: u32) -> Option<u64> {
        self.numbering.place(seq, self.next)
    }

    /// The next place that is expected.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of the stream that have arrived in order.
    pub(crate) fn arrived_len(&self) -> u64 {
        self.next - 1 - u64::from(self.is_finished())
    }

    /// Bytes that arrived in order and were not read.
    pub(crate) fn unread_len(&self) -> u64 {
        self.arrived_len() + 1 - self.read
    }

    /// Have all bytes, and FIN, arrived?
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Does any of these places lie in what is expected (RFC 9293 section 3.10.7.4)? What ends before the last
    /// acknowledgement was answered, and what starts behind the window is too early.
    pub(crate) fn accepts(&self, start: u64, len: u32) -> bool {
        start + u64::from(len) >= self.due.last && start <= self.edge
    }

    /// Is this within the window (RFC 5961 section 3.2)?
    pub(crate) fn is_within(&self, place: u64) -> bool {
        (self.next..=self.edge).contains(&place)
    }

    /// Did an older copy of the peer's clock say more than this segment's (RFC 7323 section 5.3)?
    pub(crate) fn is_old(&self, now: Time, value: u32) -> bool {
        self.stamp.is_some_and(|(recent, at)| is_before(value, recent) && now.since(at) < STAMP_LASTS)
    }

    /// Notes the peer's clock, where the segment holds the place that was last acknowledged (RFC 7323 section 4.3).
    pub(crate) fn note_stamp(&mut self, now: Time, start: u64, value: u32) {
        if start <= self.due.last && self.stamp.is_none_or(|(recent, _)| !is_before(value, recent)) {
            self.stamp = Some((value, now));
        }
    }

    /// The peer's clock, to be echoed.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp.map_or(0, |(value, _)| value)
    }

    /// An acknowledgement is due at once.
    pub(crate) fn acknowledge_at_once(&mut self) {
        self.due.is_due = true;
    }

    /// Something came that lies before what is expected: it is told as a repeat (RFC 2883 section 4).
    pub(crate) fn refuse(&mut self, start: u64, len: u32) {
        self.due.is_due = true;
        let end = (start + u64::from(len)).min(self.next);
        if len > 0 && start < end {
            self.repeat = Some(Span { start, end });
        }
    }

    /// Takes what a segment brings: tells which of its bytes are fresh.
    pub(crate) fn take(&mut self, now: Time, segment: &Segment, start: u64, mut tell: impl FnMut(Fresh)) {
        self.take_mark(segment);
        let whole_end = start + u64::from(segment.len);
        // No end stands in front of what has come already.
        let is_end = whole_end >= self.next.max(self.held.end()) && whole_end < self.edge.max(self.next + 1);
        if segment.has(FIN) && is_end {
            self.fin.get_or_insert(whole_end);
        }
        // Nothing stands behind the end (RFC 9293 section 3.10.7.4: such text is ignored).
        let end = whole_end.min(self.edge).min(self.fin.unwrap_or(u64::MAX));
        let span = Span { start: start.max(self.next), end };
        if start < self.next && segment.len > 0 {
            self.refuse(start, segment.len);
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
            // What fills a gap is acknowledged at once (RFC 5681 section 4.2).
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

    /// What comes too early is acknowledged at once, so that the sender learns of the gap (RFC 5681 section 4.2).
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

    /// Two segments of one length in a row say what a full one is.
    fn measure_len(&mut self, len: u32) {
        if len > self.segment_len || len == self.last_len {
            self.segment_len = len;
        }
        self.last_len = len;
    }

    /// Every second full segment is acknowledged at once, and any after the delay (RFC 1122 section 4.2.3.2, RFC 5681
    /// section 4.2); at the start each one is (Linux).
    fn delay(&mut self, now: Time) {
        let is_second = self.next - self.due.last > self.segment_len.into();
        if self.due.quick_left > 0 || is_second {
            self.due.is_due = true;
        } else {
            self.due.at.get_or_insert(now + self.settings.acks.delay);
        }
    }

    /// Both ends have agreed: the first round trip of data begins.
    pub(crate) fn begin(&mut self, now: Time) {
        self.memory.round_start = now;
    }

    /// The peer's data echoes what our clock said `trip` ago.
    pub(crate) fn measure_trip(&mut self, trip: Duration) {
        self.memory.trip = Some(self.memory.trip.map_or(trip, |least| least.min(trip)));
    }

    /// Once a round trip: twice what was read in it, and more while that grows (Linux's `tcp_rcv_space_adjust`).
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

/// What is said to the peer.
impl Receiver {
    /// Is an acknowledgement due?
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_due
    }

    /// When one is due, if nothing else happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.at
    }

    /// Does what is due.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.due.at.take_if(|at| *at <= now).is_some() {
            self.due.is_due = true;
        }
    }

    /// The acknowledgement and the window, as they stand in the header of a segment that leaves.
    ///
    /// The window's edge never moves back (RFC 9293 section 3.8.6): where the scale cannot say how little is left, it is
    /// rounded up (RFC 7323 section 2.4). It moves on only by a segment, or half of the memory (RFC 9293 section
    /// 3.8.6.2.2).
    pub(crate) fn say(&mut self) -> (u32, u16) {
        let unit = 1 << self.scale;
        let kept = self.edge.saturating_sub(self.next);
        let free = self.memory.offered.saturating_sub(self.next - self.read.min(self.next));
        let has_room = free >= self.worth();
        // Memory that grows has room for the rest of a unit, and Linux lets none of the window be scaled away.
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

    /// Does a mark have to be echoed (RFC 3168 section 6.1.3)?
    pub(crate) fn echoes_mark(&self) -> bool {
        self.is_marked
    }

    /// The blocks of selective acknowledgement: first what arrived again (RFC 2883), then the block that changed last, then
    /// those before it (RFC 2018 section 4).
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

    /// The caller has taken `len` bytes. Returns whether the window has opened so far that the peer should know.
    pub(crate) fn read(&mut self, now: Time, len: u64) -> bool {
        self.read += len.min(self.unread_len());
        self.tune(now);
        let free = self.memory.offered.saturating_sub(self.next - self.read.min(self.next));
        let kept = self.edge.saturating_sub(self.next);
        free >= 2 * kept && free >= kept + self.worth()
    }

    /// By how much the window has to grow to be worth saying, in bytes.
    fn worth(&self) -> u64 {
        u64::from(self.segment_len).min(self.memory.len / 2).max(1)
    }
}

/// What segments of `mss` bytes fill of memory in which each lies in a buffer whose length is a power of two, with what
/// Linux keeps beside it.
fn filled(memory: u32, mss: u32) -> u32 {
    let buffer_len = (mss + BUFFER_OVERHEAD_LEN).next_power_of_two() + BOOKKEEPING_LEN;
    (u64::from(memory) * u64::from(mss) / u64::from(buffer_len)) as u32
}

/// Headers of a packet, room before them and what stands behind it in its buffer (Linux's `skb_shared_info`), in bytes, about.
const BUFFER_OVERHEAD_LEN: u32 = 448;
/// What Linux keeps of a packet beside its buffer (`sk_buff`), in bytes.
const BOOKKEEPING_LEN: u32 = 256;
/// How many blocks are remembered, as many as a header has room for.
const RECENT_COUNT: usize = 4;
/// A clock that was read longer ago may have wrapped (RFC 7323 section 5.5).
const STAMP_LASTS: Duration = Duration::from_secs(24 * 86_400);
/// What a round trip is at first expected to bring, in segments (Linux's `TCP_INIT_CWND`).
const SPACE_FIRST_SEGMENT_COUNT: u64 = 10;
