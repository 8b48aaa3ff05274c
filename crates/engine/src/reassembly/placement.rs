//! The latest fragments -> predicted slots for the next payloads; payloads received in slots -> datagrams (papers:
//! Kurmann's speculative defragmentation).
//!
//! - Input: the datagram that last gained a fragment, and the last complete datagram.
//! - Prediction: the next frames are the rest of the open datagram, then new datagrams like the complete one.
//!   Fragments arrive in order, with the same length as before.
//! - Misprediction: a packet of another host arrives in between, or a fragment is lost, reordered or of another
//!   length.
//! - Cost of a misprediction: the remaining payloads of the batch are copied twice.
//!
//! So prediction is paused if too few predictions are right, and is retried after the pause.

use super::datagrams::Datagrams;
use super::run::Outcome;
use crate::output::Next;
use crate::table::Handle;
use core::ops::Range;
use packet::{Buffer, Frame, HEADROOM, Packet, PayloadSlots, Pool, SlotLayout, SplitFrame, SplitPacket, Time};

/// When placement predicts: never, always, or where it saves CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementMode {
    /// Never.
    Never,
    /// Whenever the latest fragments permit a prediction.
    Always,
    /// While enough predictions are right, and payloads are so long that prediction saves CPU time.
    #[default]
    WherePays,
}

/// Statistics of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementStats {
    /// Number of frames that were received with header split.
    pub predicted: u64,
    /// Number of these frames whose payload was received at its right position.
    pub hits: u64,
    /// Number of payload bytes that needed no copy.
    pub in_place_bytes: u64,
    /// Number of payload bytes that were copied out of their slots after a misprediction.
    pub copied_out_bytes: u64,
}

/// The state of placement prediction.
#[derive(Debug, Default)]
pub(super) struct Placement {
    mode: PlacementMode,
    stats: PlacementStats,
    hit_rate: HitRate,
    /// The maximum number of buffers for new datagrams is halved this many times.
    backoff: u32,
    grid: Option<SlotLayout>,
    /// The range of the slots in the open datagram, in bytes of its payload.
    rest: Range<usize>,
    fresh: Vec<Option<Buffer>>,
    /// The next slot to settle: the owner of its memory, and the range of that memory not yet settled.
    cursor: (SlotOwner, Range<usize>),
    /// The slot owner and the run of the last fragment taken. `None` before the first fragment.
    current: Option<(SlotOwner, Handle)>,
    taken_count: usize,
    copied_out: Vec<Frame>,
}

/// The placement state, together with the datagrams of the predictions.
pub(crate) struct Placer<'a> {
    pub(super) placement: &'a mut Placement,
    pub(super) datagrams: &'a mut Datagrams,
}

/// A slot: the owner of its memory, and the range of its bytes in the datagram.
pub(crate) type Place = (SlotOwner, Range<usize>);

/// The owner of a slot's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SlotOwner {
    /// The datagram that was open at the prediction.
    #[default]
    Rest,
    /// The buffer with this number, prepared for a new datagram.
    Fresh(usize),
}

/// The decision whether to predict, from the results of recent batches.
#[derive(Clone, Copy, Debug, Default)]
struct HitRate {
    made: u64,
    right: u64,
    /// Number of batches until prediction is retried; 0 = not paused.
    pause: u32,
    /// Length of the last pause in batches; 0 while prediction is on.
    last_pause: u32,
}

impl PlacementStats {
    /// Returns the sum of two statistics.
    pub(crate) fn and(self, other: PlacementStats) -> PlacementStats {
        PlacementStats {
            predicted: self.predicted + other.predicted,
            hits: self.hits + other.hits,
            in_place_bytes: self.in_place_bytes + other.in_place_bytes,
            copied_out_bytes: self.copied_out_bytes + other.copied_out_bytes,
        }
    }
}

impl Placement {
    pub(super) fn set_mode(&mut self, mode: PlacementMode) {
        self.mode = mode;
    }

    pub(super) fn stats(&self) -> PlacementStats {
        self.stats
    }

    /// Whether a port has payload slots for the next frames.
    #[inline]
    pub(super) fn is_predicting(&self) -> bool {
        self.grid.is_some()
    }
}

impl<'a> Placer<'a> {
    /// Prepares slots for the expected frames. Uses the header of the next packet if the port has read it.
    pub(crate) fn predict(&mut self, next: Option<&Packet>, pool: &mut Pool) {
        if let Some(next) = next {
            self.datagrams.turn_to(next);
        }
        let Placer { placement: it, datagrams } = self;
        it.grid = None;
        it.taken_count = 0;
        it.fresh.drain(..).flatten().for_each(|buffer| pool.give(buffer));
        let Some(count) = it.hit_rate.count_max(it.mode) else { return };
        let again = datagrams.expected_again();
        let Some((rest, expected)) = datagrams
            .expected()
            .map(|(at, next, expected)| (Some((at, next..expected.len)), expected))
            .or(again.map(|expected| (None, expected)))
        else {
            return;
        };
        let step_min = if it.mode == PlacementMode::Always { 1 } else { STEP_MIN };
        if expected.step < step_min {
            return;
        }
        it.current = rest.as_ref().map(|(at, _)| (SlotOwner::Rest, *at));
        it.rest = rest.map_or(0..0, |(_, range)| range);
        it.cursor = (SlotOwner::Rest, it.rest.clone());
        let fresh = again.filter(|again| (again.front, again.step) == (expected.front, expected.step));
        let fresh_len = fresh.map_or(0, |again| again.len);
        let rest_count = it.rest.len().div_ceil(expected.step);
        it.grid = Some(SlotLayout { front: expected.front, step: expected.step, fresh_len, count });
        if fresh_len > 0 && rest_count < count {
            let needed = (count - rest_count).div_ceil(fresh_len.div_ceil(expected.step));
            let count = needed.min(FRESH_MAX >> it.backoff);
            self.offer_fresh(count, fresh_len, pool);
        }
    }

    /// Prepares buffers for new datagrams. Their number is limited in two ways: the memory limit must allow all of
    /// them, and the pool must retain memory for a batch of the port.
    fn offer_fresh(&mut self, count: usize, len: usize, pool: &mut Pool) {
        let Placer { placement: Placement { fresh, .. }, datagrams } = self;
        let charge = Buffer::pinned_len_for(len);
        let spare_count = pool.free_len().saturating_sub(BATCH_LEN) / charge.max(1);
        let count = count.min(spare_count);
        while fresh.len() < count && datagrams.has_room_for(charge * (fresh.len() + 1)) {
            let Some(buffer) = pool.allocate(len) else { return };
            if buffer.pinned_len() != charge {
                return pool.give(buffer);
            }
            fresh.push(Some(buffer));
        }
    }

    /// Returns the prepared slots.
    pub(crate) fn places(self) -> Option<PayloadSlots<'a>> {
        let Placement { grid, rest, fresh, current, taken_count, .. } = self.placement;
        let rest: &mut [u8] = match *current {
            Some((_, at)) => self.datagrams.place_mut(at, rest.clone()),
            None => &mut [],
        };
        Some(PayloadSlots::new((*grid)?, rest, fresh, taken_count))
    }

    /// Returns the next slot, in the order of [`PayloadSlots`].
    #[inline]
    pub(crate) fn next_place(&mut self) -> Place {
        let SlotLayout { step, fresh_len, .. } = match self.placement.grid {
            Some(grid) => grid,
            None => panic!("what landed was lent a place"),
        };
        let (area, ahead) = &mut self.placement.cursor;
        if ahead.start >= ahead.end {
            let number = match *area {
                SlotOwner::Rest => 0,
                SlotOwner::Fresh(number) => number + 1,
            };
            (*area, *ahead) = (SlotOwner::Fresh(number), 0..fresh_len);
        }
        let place = ahead.start..ahead.end.min(ahead.start + step);
        ahead.start = place.end;
        (*area, place)
    }

    /// Takes a fragment whose payload was received in this slot, if the slot is the payload's right position. After
    /// the last fragment, the caller must call [`send_complete`](Placer::send_complete).
    pub(crate) fn take(&mut self, now: Time, place: &Place, fragment: &Packet) -> Outcome {
        let (area, range) = place;
        let len = fragment.ip().payload_len();
        if len > range.len() {
            return Outcome::Not;
        }
        let taken = match (*area, self.placement.current) {
            (SlotOwner::Fresh(number), _) if range.start == 0 => self.open(now, number, fragment),
            (_, Some((current, at))) if current == *area => self.datagrams.take_placed(at, range.start, fragment),
            _ => Outcome::Not,
        };
        if taken != Outcome::Not {
            self.placement.stats.in_place_bytes += len as u64;
        }
        taken
    }

    fn open(&mut self, now: Time, number: usize, fragment: &Packet) -> Outcome {
        let Some(slot) = self.placement.fresh.get_mut(number) else { return Outcome::Not };
        let Some(buffer) = slot.take() else { return Outcome::Not };
        match self.datagrams.open_placed(now, fragment, buffer) {
            Ok(at) => {
                self.placement.current = Some((SlotOwner::Fresh(number), at));
                Outcome::Fragment
            }
            Err(buffer) => {
                *slot = Some(buffer);
                Outcome::Not
            }
        }
    }

    /// Takes the fragments of `next` that continue this fragment, have equal headers, and fill their slots. Returns
    /// the number of fragments taken.
    pub(crate) fn take_more(&mut self, fragment: &SplitPacket, next: &[SplitFrame]) -> usize {
        let len = fragment.packet().ip().payload_len();
        let Placement { grid, cursor: (_, ahead), current, stats: guesses, .. } = &mut *self.placement;
        let fills_its_place = grid.is_some_and(|grid| grid.step == len && len > 0);
        let Some((_, at)) = current.filter(|_| fills_its_place) else { return 0 };
        let next = next.get(..ahead.len() / len).unwrap_or(next);
        let alike = |count_max| fragment.followed_by(next.get(..count_max).unwrap_or(next));
        let count = self.datagrams.take_more_placed(at, len, alike);
        ahead.start += count * len;
        guesses.in_place_bytes += (count * len) as u64;
        count
    }

    /// Forwards the datagram whose last fragment was taken, together with its memory. Payloads in later slots of
    /// this memory must be copied out before: see [`goes_on`](Placer::goes_on).
    pub(crate) fn send_complete(&mut self, out: &mut impl Next) {
        if let Some((_, at)) = self.placement.current.take() {
            self.datagrams.close(at, out);
        }
    }

    /// Whether the next slot is in the same memory as the last settled slot.
    pub(crate) fn goes_on(&self) -> bool {
        let (_, ahead) = &self.placement.cursor;
        ahead.start < ahead.end
    }

    /// Copies a fragment's payload out of its slot.
    pub(crate) fn copy_out(&mut self, (area, range): Place, it: SplitFrame) {
        let Placer { placement, datagrams } = self;
        placement.stats.copied_out_bytes += it.len() as u64;
        let bytes = match (area, placement.current) {
            (_, Some((current, at))) if current == area => datagrams.laid(at, range),
            (SlotOwner::Fresh(number), _) => match placement.fresh.get(number) {
                Some(Some(buffer)) => buffer.bytes(HEADROOM + range.start..HEADROOM + range.end),
                _ => panic!("memory that no run took is there"),
            },
            (SlotOwner::Rest, _) => panic!("a run does not end before what lies in it is copied out"),
        };
        let frame = it.copy_out(bytes);
        placement.copied_out.push(frame);
    }

    pub(crate) fn copy_out_next(&mut self, it: SplitFrame) {
        let place = self.next_place();
        self.copy_out(place, it);
    }

    /// Frees the unused buffers, and updates the prediction state. The frames that were copied out are inserted at
    /// the start of `frames`.
    pub(crate) fn end(&mut self, came_count: usize, right_count: usize, frames: &mut Vec<Frame>, pool: &mut Pool) {
        let it = &mut *self.placement;
        it.fresh.drain(..).flatten().for_each(|buffer| pool.give(buffer));
        if !it.copied_out.is_empty() {
            frames.splice(0..0, it.copied_out.drain(..));
        }
        if it.grid.take().is_none() {
            return;
        }
        let made = it.taken_count.min(came_count);
        it.stats.predicted += made as u64;
        it.stats.hits += right_count as u64;
        it.hit_rate.note(made as u64, right_count as u64);
        it.current = None;
        it.backoff = if right_count == made { it.backoff.saturating_sub(1) } else { BACKOFF_MAX };
        if right_count < made {
            self.datagrams.forget_last();
        }
    }
}

impl HitRate {
    /// Returns the maximum number of slots to predict for a batch. `None` while prediction is off or paused.
    fn count_max(&mut self, guessing: PlacementMode) -> Option<usize> {
        match guessing {
            PlacementMode::Never => None,
            PlacementMode::Always => Some(PLACES_MAX),
            PlacementMode::WherePays if self.pause > 0 => {
                self.pause -= 1;
                None
            }
            PlacementMode::WherePays if self.last_pause > 0 => Some(RETRY_COUNT),
            PlacementMode::WherePays => Some(PLACES_MAX),
        }
    }

    /// Records the results of a batch: the numbers of predictions and of right predictions.
    fn note(&mut self, made: u64, right: u64) {
        self.made += made;
        self.right += right;
        let enough = if self.last_pause > 0 { RETRY_COUNT as u64 } else { WINDOW };
        if self.made < enough {
            return;
        }
        let pays = self.right * 100 >= self.made * BREAK_EVEN_PERCENT;
        self.last_pause = if pays { 0 } else { (2 * self.last_pause).clamp(PAUSE_MIN, PAUSE_MAX) };
        self.pause = self.last_pause;
        (self.made, self.right) = (0, 0);
    }
}

/// Maximum number of slots prepared for a batch.
const PLACES_MAX: usize = 64;
/// Break-even rate of right predictions, in percent: d / (1 + d - c). d is the cost of a copy out of a slot, c the
/// cost of a placed payload. Both are relative to a fragment's usual cost (kB4). For fragments of 1,500 bytes, a
/// benchmark without ports gives about 0.3 for d and 0.6 for c (`bench landing`). The rate is then 43.
const BREAK_EVEN_PERCENT: u64 = 40;
/// Number of predictions before each decision whether to pause.
const WINDOW: u64 = 256;
/// Number of predictions before the first decision after a pause.
const RETRY_COUNT: usize = 16;
/// Minimum length of a pause, in batches. Each further pause is twice as long as the last.
const PAUSE_MIN: u32 = 16;
/// Maximum length of a pause, in batches.
const PAUSE_MAX: u32 = 1_024;

/// Maximum number of buffers prepared for new datagrams.
const FRESH_MAX: usize = 32;
/// Minimum payload for predictions, in bytes. A copy of a shorter payload costs less than a prediction.
const STEP_MIN: usize = 512;
/// Memory that a port may need for a batch in addition to the prepared buffers, in bytes. It is enough for a frame
/// of the maximum length, or for several frames of a narrow link.
const BATCH_LEN: usize = 128 << 10;
/// Maximum number of halvings of [`FRESH_MAX`]. At this number, one buffer is prepared.
const BACKOFF_MAX: u32 = FRESH_MAX.ilog2();

#[cfg(test)]
mod tests {
    use super::super::{Late, Limits, Reassembler};
    use super::*;
    use crate::keyed_hash::Secret;

    #[test]
    fn prediction_pauses_after_a_window_of_misses_and_is_retried() {
        let mut trial = HitRate::default();
        trial.note(WINDOW - 1, 0);
        assert_eq!((trial.pause, trial.made), (0, WINDOW - 1), "too few to say");
        trial.note(1, 0);
        assert_eq!((trial.pause, trial.made), (PAUSE_MIN, 0));
        for pauses in 1..12 {
            trial.note(RETRY_COUNT as u64, 0);
            assert_eq!(
                trial.pause,
                (PAUSE_MIN << pauses).min(PAUSE_MAX),
                "each pause is twice as long, up to the longest"
            );
        }
        trial.note(RETRY_COUNT as u64, RETRY_COUNT as u64);
        assert_eq!((trial.pause, trial.last_pause), (0, 0), "it pays again");
        trial.note(RETRY_COUNT as u64, 0);
        assert_eq!((trial.pause, trial.made), (0, RETRY_COUNT as u64), "a window again");
    }

    #[test]
    fn placement_leaves_memory_for_a_batch() {
        for (bytes, expected) in [(70_000, 0), (BATCH_LEN, 0), (BATCH_LEN + Buffer::pinned_len_for(9_000), 1)] {
            let limits = Limits { bytes: 1 << 20, timeout: None };
            let mut reassembler = Reassembler::new(limits, Late::Retire, Secret::new(1));
            let mut pool = Pool::new(bytes);
            reassembler.placing().offer_fresh(10, 9_000, &mut pool);
            assert_eq!(reassembler.placement.fresh.len(), expected, "of {bytes} bytes");
            assert!(pool.allocate(65_535).is_some() || bytes < BATCH_LEN);
        }
    }

    #[test]
    fn placement_offers_buffers_up_to_the_limit() {
        let len = 9_000;
        let charge = Buffer::pinned_len_for(len);
        for (bytes, expected) in [(0, 0), (charge - 1, 0), (charge, 1), (3 * charge - 1, 2), (3 * charge, 3)] {
            let limits = Limits { bytes, timeout: None };
            let mut reassembler = Reassembler::new(limits, Late::Release { mtu: 1_500 }, Secret::new(1));
            reassembler.placing().offer_fresh(10, len, &mut Pool::new(1 << 20));
            assert_eq!(reassembler.placement.fresh.len(), expected, "for {bytes} bytes");
        }
    }
}
