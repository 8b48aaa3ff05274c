//! Frames and the time they come at in, the same frames and the time they are due out.
//!
//! One direction of a wire, without a clock: whoever drives it hands in the time. A frame waits in a queue for the line,
//! takes its bits' time on it, and then travels for the delay. What befalls it on the way hangs on the seed and its number
//! alone (the number counts every frame that is offered), so a run at another speed, or on a slower machine, loses the same
//! frames. A frame that the way loses has taken its time on the line all the same.

use super::red::Early;
use super::shape::{LinkShape, Queue, REORDER_TIMEOUT, Reorder};
use crate::rng::{Losses, Question, befalls, draw, flipped_bits};
use packet::{Buffer, HEADROOM, Pool, Time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// One direction of a wire.
///
/// Law, asserted at every step: offered + duplicated = delivered + lost + dropped + without room + inside.
#[derive(Debug)]
pub struct Link {
    shape: LinkShape,
    losses: Losses,
    early: Option<Early>,
    pool: Pool,
    line: LinkModel,
    /// In the order in which they are due, which is the order in which they came, but for those that were overtaken.
    travelling: VecDeque<Entry>,
    /// Held back until as many frames have passed them as shall overtake them.
    held_back: VecDeque<HeldBack>,
    /// When the last frame in order is due.
    last_due: Time,
    /// Frames that set out in order: what overtakes a frame that is held back is counted in them.
    in_order_count: u64,
    /// The highest number that has left, and one.
    left_below: u64,
    inside: Tally,
    counters: Counters,
}

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will arrive, at this time.
    Due(Time),
    /// It will arrive once others have overtaken it.
    HeldBack,
    /// The way loses it.
    Lost,
    /// The queue was full.
    Dropped,
    /// The link's memory was used up, or the frame is longer than 65,536 bytes: a fault of the emulator, not of the wire.
    WithoutRoom,
}

/// A frame that has arrived. It is given back by [`Link::free`].
#[derive(Debug)]
pub struct Departure {
    /// When it arrives.
    pub due: Time,
    /// Its number among the frames that were offered, from 0.
    pub index: u64,
    /// Did the way flip bits of it?
    pub is_damaged: bool,
    stored: Stored,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Frames.
    pub frames: u64,
    /// Bytes of them, link header counted.
    pub bytes: u64,
}

/// What became of the frames that were offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Came in.
    pub offered: Tally,
    /// Went out, with second copies.
    pub delivered: Tally,
    /// Lost on the way, alone or in a burst.
    pub lost: Tally,
    /// Found the queue full, or were dropped before it was.
    pub dropped: Tally,
    /// Of those, the ones that were dropped before the queue was full.
    pub dropped_early: Tally,
    /// Found no memory: the emulator's fault.
    pub without_room: Tally,
    /// Second copies that were made.
    pub duplicated: Tally,
    /// Frames that have flipped bits.
    pub corrupted: Tally,
    /// Bits that were flipped.
    pub flipped_bit_count: u64,
    /// Went out after a frame that had come later.
    pub reordered: Tally,
}

#[derive(Debug)]
struct Entry {
    due: Time,
    index: u64,
    stored: Stored,
    is_damaged: bool,
    /// A second copy, which goes first.
    twin: Option<Stored>,
}

#[derive(Debug)]
struct HeldBack {
    /// It sets out when this many have set out in order.
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
    /// A wire with nothing on it.
    pub fn new(shape: LinkShape) -> Link {
        Link::with_memory(shape, MEMORY_LIMIT)
    }

    /// A wire that holds frames in at most `limit` bytes of memory.
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

    /// Makes room for `count` frames of up to `len` bytes ahead, so that the first of them wait for no memory.
    pub fn foresee(&mut self, count: usize, len: usize) {
        let lent: Vec<Buffer> = (0..count).map_while(|_| self.pool.share(len)).collect();
        for mut buffer in lent {
            buffer.bytes_mut(0..HEADROOM + len).fill(1);
            self.pool.give(buffer);
        }
        self.travelling.reserve(count);
    }

    /// What it does.
    pub fn shape(&self) -> &LinkShape {
        &self.shape
    }

    /// Offers a frame at `now`, which never goes back.
    pub fn push(&mut self, now: Time, frame: &[u8]) -> Fate {
        self.push_with(now, frame.len(), |room| room.copy_from_slice(frame))
    }

    /// Offers a frame of `len` bytes at `now`, which `write` writes where it is to lie; one that does not arrive is not written.
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

    /// When the next frame arrives; none while nothing is inside.
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        let next = self.travelling.front().map(|entry| entry.due);
        match (next, self.next_deadline()) {
            (Some(next), Some(deadline)) => Some(next.min(deadline)),
            (next, deadline) => next.or(deadline),
        }
    }

    /// The next frame that has arrived at `now`, with the time at which it was due.
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

    /// Takes back the memory of a frame that has arrived.
    pub fn give_back(&mut self, departure: Departure) {
        self.pool.give(departure.stored.buffer);
    }

    /// Frames in the queue, on the line and on the way.
    pub fn inside(&self) -> Tally {
        self.inside
    }

    /// What became of the frames that were offered.
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

    /// Is one of its bytes among those that the way loses?
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
        let mut buffer = self.pool.share(len)?;
        write(buffer.bytes_mut(HEADROOM..HEADROOM + len));
        self.inside.count(len);
        Some(Stored { buffer, len })
    }

    /// The delay, and the jitter's share of it.
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

    /// Lets a frame set out in order, and behind it those that it was the last to overtake.
    fn set_out(&mut self, entry: Entry) {
        let due = entry.due;
        self.last_due = due;
        self.in_order_count += 1;
        self.travelling.push_back(entry);
        let mut at = 0;
        while let Some(held) = self.held_back.get(at).filter(|held| held.after <= self.in_order_count) {
            // One whose deadline comes before this frame leaves then, between two that are travelling.
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
    /// The frame, with the bits that the way flipped.
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

    /// Both.
    pub fn plus(self, other: Tally) -> Tally {
        Tally { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

/// A queue and the line behind it: one frame's transmission starts when the last one's has ended.
#[derive(Debug)]
pub(super) struct LinkModel {
    /// None: it takes no time.
    bits_per_second: Option<u64>,
    overhead_len: usize,
    queue: Queue,
    /// When the last frame's transmission ends: whole nanoseconds, and a rest in parts of one nanosecond by the rate, so that
    /// a million frames are as exact as one.
    free_at: Time,
    rest: u64,
    /// When the transmission of each waiting frame starts, and its length.
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

    /// Frames that wait, and their bytes; when the line is free; and what it carries.
    pub(super) fn waiting(&self) -> (usize, usize, Time, Option<u64>) {
        (self.waiting.len(), self.waiting_len, self.free_at, self.bits_per_second)
    }

    /// Would a frame of `len` bytes that comes at `now` have to wait, and the queue have no room for it?
    fn is_full(&mut self, now: Time, len: usize) -> bool {
        if self.bits_per_second.is_none() {
            return false;
        }
        while let Some((_, len)) = self.waiting.pop_front_if(|(start, _)| *start <= now) {
            self.waiting_len -= len;
        }
        let is_full = match self.queue {
            Queue::Packets(limit) => self.waiting.len() >= limit,
            Queue::Bytes(limit) => self.waiting_len + len > limit,
        };
        is_full && self.start() > now
    }

    /// Puts a frame on the line, or behind those that wait for it, and says when its last bit leaves.
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

    /// The first nanosecond at which a transmission can start.
    fn start(&self) -> Time {
        self.free_at.later(u64::from(self.rest > 0))
    }
}

/// Memory that a link takes at most for frames, in bytes: ten gigabits a second for a fifth of a second.
const MEMORY_LIMIT: usize = 256 << 20;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
