//! Frames with arrival times -> frames with delivery times.
//!
//! The model has no clock, because the caller passes the time. A frame first waits in the link's queue. Its
//! transmission takes time according to the rate. Finally the delay passes.
//!
//! Losses and errors depend only on the seed and the frame's number. All offered frames are numbered. A simulation
//! at another rate, or on a slower machine, therefore loses the same frames. Frames that are lost in transit still
//! take time to transmit.

use super::red::Early;
use super::shape::{LinkShape, QueueLimit, REORDER_TIMEOUT, Reorder};
use crate::rng::{Losses, Question, befalls, draw, flipped_bits};
use packet::{Buffer, HEADROOM, Pool, Time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// A model of one direction of a wire.
///
/// Invariant, asserted at every step: offered + duplicated = delivered + lost + dropped + without room + inside.
#[derive(Debug)]
pub struct Link {
    shape: LinkShape,
    losses: Losses,
    early: Option<Early>,
    pool: Pool,
    line: LinkModel,
    /// Frames in transit by delivery time, in the order of arrival except for overtaken frames.
    travelling: VecDeque<Entry>,
    /// Frames that are delayed until enough later frames have overtaken them.
    held_back: VecDeque<HeldBack>,
    /// Delivery time of the last frame that was not delayed for reordering.
    last_due: Time,
    /// Number of frames so far whose transit began without reordering. A held-back frame waits until this number
    /// has reached its `after`.
    in_order_count: u64,
    /// One more than the highest frame number delivered.
    left_below: u64,
    inside: Tally,
    counters: Counters,
}

/// The fate of a frame that was offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame will be delivered at this time.
    Due(Time),
    /// The frame will be delivered after others have overtaken it.
    HeldBack,
    /// The frame is lost in transit.
    Lost,
    /// The frame is dropped: the queue was full, or early detection chose the frame.
    Dropped,
    /// The frame is dropped: the model's memory is full, or the frame exceeds 65,536 bytes. Such a drop is an error
    /// of the emulator, not of the wire.
    WithoutRoom,
}

/// A delivered frame. [`Link::give_back`] returns its memory.
#[derive(Debug)]
pub struct Departure {
    /// Delivery time.
    pub due: Time,
    /// The frame's number among all offered frames, from 0.
    pub index: u64,
    /// Whether the wire flipped any of the frame's bits.
    pub is_damaged: bool,
    stored: Stored,
}

/// A number of frames, and their total length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of frames.
    pub frames: u64,
    /// Total length of the frames in bytes, including link headers.
    pub bytes: u64,
}

/// Counters of offered frames by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames offered.
    pub offered: Tally,
    /// Frames delivered, duplicates included.
    pub delivered: Tally,
    /// Frames lost in transit, alone or in a burst.
    pub lost: Tally,
    /// Frames dropped because the queue was full, or by early detection.
    pub dropped: Tally,
    /// Frames dropped by early detection.
    pub dropped_early: Tally,
    /// Frames dropped for lack of memory, an error of the emulator.
    pub without_room: Tally,
    /// Duplicates created.
    pub duplicated: Tally,
    /// Frames with flipped bits.
    pub corrupted: Tally,
    /// Number of flipped bits.
    pub flipped_bit_count: u64,
    /// Frames delivered after a frame that was offered later.
    pub reordered: Tally,
}

#[derive(Debug)]
struct Entry {
    due: Time,
    index: u64,
    stored: Stored,
    is_damaged: bool,
    /// The frame's duplicate, which is delivered first.
    twin: Option<Stored>,
}

#[derive(Debug)]
struct HeldBack {
    /// The frame's transit begins when `in_order_count` reaches this number.
    after: u64,
    deadline: Time,
    entry: Entry,
}

#[derive(Debug)]
struct Stored {
    buffer: Buffer,
    len: usize,
}

impl Link {
    /// A link without frames.
    pub fn new(shape: LinkShape) -> Link {
        Link::with_memory(shape, MEMORY_LIMIT)
    }

    /// A link without frames, which uses at most `limit` bytes of memory.
    pub fn with_memory(shape: LinkShape, limit: usize) -> Link {
        if let Err(bad) = shape.check() {
            panic!("a link's shape was checked: {bad}");
        }
        Link {
            losses: Losses::new(&shape),
            early: shape.red.map(Early::new),
            line: LinkModel::new(&shape),
            shape,
            pool: Pool::new(limit),
            travelling: VecDeque::new(),
            held_back: VecDeque::new(),
            last_due: Time::ZERO,
            in_order_count: 0,
            left_below: 0,
            inside: Tally::default(),
            counters: Counters::default(),
        }
    }

    /// Allocates memory for `count` frames of up to `len` bytes, so that allocation does not delay the first
    /// frames.
    pub fn preallocate(&mut self, count: usize, len: usize) {
        let lent: Vec<Buffer> = (0..count).map_while(|_| self.pool.allocate(len)).collect();
        for mut buffer in lent {
            buffer.bytes_mut(0..HEADROOM + len).fill(1);
            self.pool.give(buffer);
        }
        self.travelling.reserve(count);
    }

    /// The link's properties.
    pub fn shape(&self) -> &LinkShape {
        &self.shape
    }

    /// Offers a frame at time `now`. The times of successive calls must not decrease.
    pub fn push(&mut self, now: Time, frame: &[u8]) -> Fate {
        self.push_with(now, frame.len(), |room| room.copy_from_slice(frame))
    }

    /// Offers a frame of `len` bytes at time `now`. `write` fills in the bytes, but is not called if the frame is
    /// lost or dropped.
    #[inline]
    pub fn push_with(&mut self, now: Time, len: usize, write: impl FnOnce(&mut [u8])) -> Fate {
        let index = self.counters.offered.frames;
        self.counters.offered.count(len);
        let fate = self.decide(now, index, len, write);
        match fate {
            Fate::Lost => self.counters.lost.count(len),
            Fate::Dropped => self.counters.dropped.count(len),
            Fate::WithoutRoom => self.counters.without_room.count(len),
            Fate::Due(_) | Fate::HeldBack => {}
        }
        self.keep_law();
        fate
    }

    /// Delivery time of the next frame; `None` if the link has no frames.
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        let next = self.travelling.front().map(|entry| entry.due);
        match (next, self.next_deadline()) {
            (Some(next), Some(deadline)) => Some(next.min(deadline)),
            (next, deadline) => next.or(deadline),
        }
    }

    /// Returns the next frame delivered until `now`, with its exact delivery time.
    pub fn pop(&mut self, now: Time) -> Option<Departure> {
        let due = self.next_departure().filter(|due| *due <= now)?;
        let is_travelling = self.travelling.front().is_some_and(|entry| entry.due == due);
        let front = match is_travelling {
            true => self.travelling.front_mut(),
            false => self.held_back.front_mut().map(|held| &mut held.entry),
        };
        let entry = front?;
        let (index, is_damaged) = (entry.index, entry.is_damaged);
        let stored = match entry.twin.take() {
            Some(twin) => twin,
            None if is_travelling => self.travelling.pop_front()?.stored,
            None => self.held_back.pop_front()?.entry.stored,
        };
        self.inside.uncount(stored.len);
        self.counters.delivered.count(stored.len);
        if index + 1 < self.left_below {
            self.counters.reordered.count(stored.len);
        }
        self.left_below = self.left_below.max(index + 1);
        self.keep_law();
        Some(Departure { due, index, is_damaged, stored })
    }

    /// Returns the memory of a delivered frame to the link.
    pub fn give_back(&mut self, departure: Departure) {
        self.pool.give(departure.stored.buffer);
    }

    /// Frames in the queue, in transmission and in transit.
    pub fn inside(&self) -> Tally {
        self.inside
    }

    /// Counters of frames by fate.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn decide(&mut self, now: Time, index: u64, len: usize, write: impl FnOnce(&mut [u8])) -> Fate {
        let is_lost = self.losses.next() == Some(true) || self.loses_a_byte(index, len);
        if is_lost || self.line.is_full(now, len) {
            if is_lost && !self.line.is_full(now, len) {
                self.line.carry(now, len);
            }
            return if is_lost { Fate::Lost } else { Fate::Dropped };
        }
        if self.drops_early(now, index, len) {
            self.counters.dropped_early.count(len);
            return Fate::Dropped;
        }
        let Some(stored) = self.store(len, write) else { return Fate::WithoutRoom };
        let off_line = self.line.carry(now, len);
        let due = (off_line + self.travel_time(index)).max(self.last_due);
        let mut entry = Entry { due, index, stored, is_damaged: false, twin: None };
        self.damage(&mut entry);
        self.duplicate(&mut entry);
        match self.shape.reorder {
            Some(reorder) if befalls(reorder.share, self.shape.seed, Question::Reorder, index) => {
                self.hold_back(entry, reorder);
                Fate::HeldBack
            }
            _ => {
                self.set_out(entry);
                Fate::Due(due)
            }
        }
    }

    /// Whether the frame is lost because of the loss probability per byte.
    fn loses_a_byte(&self, index: u64, len: usize) -> bool {
        let LinkShape { byte_loss, seed, .. } = self.shape;
        byte_loss > 0.0 && befalls(-(len as f64 * (-byte_loss).ln_1p()).exp_m1(), seed, Question::ByteLoss, index)
    }

    fn drops_early(&mut self, now: Time, index: u64, len: usize) -> bool {
        let Some(early) = &mut self.early else { return false };
        let share = early.share(now, &self.line, len);
        let is_dropped = befalls(share, self.shape.seed, Question::Early, index);
        early.note(len, is_dropped);
        is_dropped
    }

    fn store(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Option<Stored> {
        let mut buffer = self.pool.allocate(len)?;
        write(buffer.bytes_mut(HEADROOM..HEADROOM + len));
        self.inside.count(len);
        Some(Stored { buffer, len })
    }

    /// The frame's delay, including jitter.
    fn travel_time(&self, index: u64) -> Duration {
        if self.shape.jitter.is_zero() {
            return self.shape.delay;
        }
        let jitter = self.shape.jitter.as_nanos() as u64;
        let choices = u128::from(2 * jitter + 1);
        let chosen = (u128::from(draw(self.shape.seed, Question::Jitter, index)) * choices) >> 64;
        self.shape.delay + Duration::from_nanos(chosen as u64) - self.shape.jitter
    }

    fn damage(&mut self, entry: &mut Entry) {
        let LinkShape { bit_errors, seed, .. } = self.shape;
        if bit_errors == 0.0 {
            return;
        }
        let bytes = entry.stored.bytes_mut();
        let mut count = 0;
        for bit in flipped_bits(bit_errors, seed, entry.index, 8 * bytes.len() as u64) {
            bytes[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
            count += 1;
        }
        if count > 0 {
            self.counters.flipped_bit_count += count;
            self.counters.corrupted.count(entry.stored.len);
            entry.is_damaged = true;
        }
    }

    fn duplicate(&mut self, entry: &mut Entry) {
        if befalls(self.shape.duplicates, self.shape.seed, Question::Duplicate, entry.index) {
            let frame = entry.stored.bytes();
            entry.twin = self.store(frame.len(), |room| room.copy_from_slice(frame));
            match &entry.twin {
                Some(twin) => self.counters.duplicated.count(twin.len),
                None => {
                    self.counters.duplicated.count(entry.stored.len);
                    self.counters.without_room.count(entry.stored.len);
                }
            }
        }
    }

    fn hold_back(&mut self, entry: Entry, reorder: Reorder) {
        let after = self.in_order_count.saturating_add(reorder.displacement as u64);
        let last_deadline = self.held_back.back().map_or(Time::ZERO, |held| held.deadline);
        let deadline = (entry.due + REORDER_TIMEOUT).max(last_deadline);
        self.held_back.push_back(HeldBack { after, deadline, entry });
    }

    /// Starts the transit of a frame. Then starts all delayed frames that enough frames have overtaken.
    fn set_out(&mut self, entry: Entry) {
        let due = entry.due;
        self.last_due = due;
        self.in_order_count += 1;
        self.travelling.push_back(entry);
        let mut at = 0;
        while let Some(held) = self.held_back.get(at).filter(|held| held.after <= self.in_order_count) {
            // A held-back frame with an earlier deadline leaves at that deadline, between two travelling frames.
            if held.deadline < due {
                at += 1;
                continue;
            }
            let Some(HeldBack { mut entry, .. }) = self.held_back.remove(at) else { break };
            entry.due = entry.due.max(self.last_due);
            self.last_due = entry.due;
            self.travelling.push_back(entry);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.held_back.front().map(|held| held.deadline)
    }

    #[inline]
    fn keep_law(&self) {
        let Counters { offered, delivered, lost, dropped, without_room, duplicated, .. } = self.counters;
        let came = offered.plus(duplicated);
        let went = delivered.plus(lost).plus(dropped).plus(without_room).plus(self.inside);
        assert!(came == went, "what a link was offered went out, ended or is inside: {came:?} is not {went:?}");
        let is_empty = self.travelling.is_empty() && self.held_back.is_empty();
        assert!(is_empty == (self.inside.frames == 0), "what is counted as inside is inside: {:?}", self.inside);
    }
}

impl Departure {
    /// The bytes of the frame, including flipped bits.
    pub fn frame(&self) -> &[u8] {
        self.stored.bytes()
    }
}

impl Stored {
    fn bytes(&self) -> &[u8] {
        self.buffer.bytes(HEADROOM..HEADROOM + self.len)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut(HEADROOM..HEADROOM + self.len)
    }
}

impl Tally {
    fn count(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }

    fn uncount(&mut self, len: usize) {
        self.frames -= 1;
        self.bytes -= len as u64;
    }

    /// The sum of two tallies.
    pub fn plus(self, other: Tally) -> Tally {
        Tally { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

/// A queue with a transmitter. Each transmission starts when the previous one has ended.
#[derive(Debug)]
pub(super) struct LinkModel {
    /// Rate of transmissions; `None` = unlimited.
    bits_per_second: Option<u64>,
    overhead_len: usize,
    queue: QueueLimit,
    /// End of the last transmission: nanoseconds, and a remainder in units of 1 ns divided by the rate. Rounding
    /// errors therefore never accumulate.
    free_at: Time,
    rest: u64,
    /// Waiting frames: start of the transmission, and length in bytes.
    waiting: VecDeque<(Time, usize)>,
    waiting_len: usize,
}

impl LinkModel {
    fn new(shape: &LinkShape) -> LinkModel {
        LinkModel {
            bits_per_second: shape.rate_bits_per_second,
            overhead_len: shape.overhead_len,
            queue: shape.queue,
            free_at: Time::ZERO,
            rest: 0,
            waiting: VecDeque::new(),
            waiting_len: 0,
        }
    }

    /// Number of waiting frames, their bytes, the end of the last transmission, and the rate.
    pub(super) fn waiting(&self) -> (usize, usize, Time, Option<u64>) {
        (self.waiting.len(), self.waiting_len, self.free_at, self.bits_per_second)
    }

    /// Whether a frame of `len` bytes would have to wait at `now`, but the queue is full.
    fn is_full(&mut self, now: Time, len: usize) -> bool {
        if self.bits_per_second.is_none() {
            return false;
        }
        while let Some((_, len)) = self.waiting.pop_front_if(|(start, _)| *start <= now) {
            self.waiting_len -= len;
        }
        let is_full = match self.queue {
            QueueLimit::Packets(limit) => self.waiting.len() >= limit,
            QueueLimit::Bytes(limit) => self.waiting_len + len > limit,
        };
        is_full && self.start() > now
    }

    /// Transmits or queues a frame. Returns the end of its transmission.
    fn carry(&mut self, now: Time, len: usize) -> Time {
        let Some(rate) = self.bits_per_second else { return now };
        if self.start() > now {
            self.waiting.push_back((self.start(), len));
            self.waiting_len += len;
        } else {
            (self.free_at, self.rest) = (now, 0);
        }
        let bit_count = 8 * (len + self.overhead_len) as u128;
        let time = u128::from(self.rest) + bit_count * NANOS_PER_SECOND;
        let rate = u128::from(rate);
        self.free_at = self.free_at.later(u64::try_from(time / rate).unwrap_or(u64::MAX));
        self.rest = (time % rate) as u64;
        self.start()
    }

    /// The earliest start of the next transmission, rounded up to a nanosecond.
    fn start(&self) -> Time {
        self.free_at.later(u64::from(self.rest > 0))
    }
}

/// Default memory limit of a link, in bytes: 10 Gbit/s for 0.2 s.
const MEMORY_LIMIT: usize = 256 << 20;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
