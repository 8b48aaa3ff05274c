//! What waits, and which of it to give up next.
//!
//! Things are charged in bytes and stand in two orders at once. By patience: things of one patience wait in line, so
//! arrival order is deadline order, and expiry needs no heap. By share: when the limit is reached, the sources that hold
//! the most give up their oldest first, so a flood from few sources hurts only them, and one from many loses its own
//! oldest (reliability: survival grows with the limit, never to nothing; rel:G24, rel:G27).
//!
//! Which sources hold the most: those that hold about the same, within half a power of two, stand on a level; the level
//! that gives up is the highest that, with those above it, holds a part of the memory worth speaking of. So a host with a
//! few datagrams open is not taken for the flood of a thousand hosts with one each. It is wrong where an honest host holds
//! as much as each flooding one; that costs this host its oldest datagrams.
//!
//! Most things are held for a moment only: the newest is not lined up before another is held or touched, so one that comes
//! and goes alone costs no lines.
//!
//! Things that are protected wait in a line of their own and give up last, as long as they keep within the reserve
//! (C31).

use super::index::Index;
use super::slab::{Links, List, NONE, Slab};
use crate::keyed_hash::{Secret, TableKey};
use core::time::Duration;
use packet::{Address, Time};

/// A thing that knows whose memory it takes.
pub trait HasSource {
    /// Who sent it.
    fn source(&self) -> Address;
}

/// Things that wait, within a limit of bytes.
///
/// Invariants: every thing but the newest is in the line of its patience and, where it is charged anything, in one line
/// of ranks, its source's or the reserve: giving up the others frees nothing. The newest came after all of those. A
/// source is on a level as long as something unprotected of it is charged; the charges of all things add up to `charged`.
#[derive(Debug)]
pub struct FairQueue<T> {
    slots: Slab<Slot<T>>,
    /// What is held but not lined up.
    newest: u32,
    /// The longest first.
    patiences: Vec<TimeoutClass>,
    /// What was last wanted, and which patience that is, of how many nanoseconds.
    last_wanted: Option<(Duration, (usize, u64))>,
    sources_index: Index,
    sources: Slab<Source>,
    /// The source that something was held of last: known even while nothing more of it is held.
    recent: u32,
    /// Sources by how much they hold, half a power of two a level.
    levels: UsageBuckets,
    reserve: List,
    reserve_charged: usize,
    reserve_limit: usize,
    charged: usize,
    limit: usize,
    table_key: TableKey,
}

/// Where a thing is held; valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(super) u32);

impl Handle {
    /// A place where nothing is ever held.
    pub const NONE: Handle = Handle(NONE);
}

#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// None where the place is free; the rest is then what was held here last.
    value: Option<T>,
    deadline: Time,
    charge: usize,
    rank: Queue,
    patience: u8,
    by_patience: Links,
    by_rank: Links,
}

/// The line of ranks that a thing is in.
#[derive(Clone, Copy, Debug)]
enum Queue {
    /// None: it is the newest, or charged nothing.
    Nowhere,
    Reserve,
    /// That of this source.
    Source(u32),
}

#[derive(Debug)]
struct TimeoutClass {
    length: Duration,
    line: List,
}

#[derive(Debug)]
struct Source {
    address: Address,
    hash: u64,
    charged: usize,
    things: List,
    links: Links,
}

/// Sources that hold about the same.
#[derive(Clone, Copy, Debug, Default)]
struct UsageBucket {
    line: List,
    /// What they are charged in all.
    charged: usize,
}

#[derive(Clone, Copy, Debug)]
struct UsageBuckets {
    levels: [UsageBucket; LEVEL_COUNT],
    /// One bit for each level that someone is on.
    taken: u128,
}

impl Default for UsageBuckets {
    fn default() -> UsageBuckets {
        UsageBuckets { levels: [UsageBucket::default(); LEVEL_COUNT], taken: 0 }
    }
}

impl<T: HasSource> FairQueue<T> {
    /// Room for things charged `limit` bytes in all, a quarter of it reserved for what is protected; each waits for one
    /// of `patiences`.
    pub fn new(limit: usize, patiences: &[Duration], secret: Secret) -> FairQueue<T> {
        let mut patiences: Vec<_> =
            patiences.iter().map(|length| TimeoutClass { length: *length, line: List::default() }).collect();
        patiences.sort_by_key(|patience| core::cmp::Reverse(patience.length));
        FairQueue {
            slots: Slab::default(),
            newest: NONE,
            last_wanted: None,
            patiences,
            sources_index: Index::default(),
            sources: Slab::default(),
            recent: NONE,
            levels: UsageBuckets::default(),
            reserve: List::default(),
            reserve_charged: 0,
            reserve_limit: limit / RESERVE_SHARE,
            charged: 0,
            limit,
            table_key: TableKey::new(secret),
        }
    }

    /// Hashes sources by another key; before anything is held.
    pub fn set_key(&mut self, key: Secret) {
        assert!(self.count() == 0, "a source is found by the key it was put in with");
        self.table_key = TableKey::new(key);
    }

    /// The thing at a place that was seen earlier, if any is.
    #[inline(always)]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.slots.get_mut(handle.0)?.value.as_mut()
    }

    /// Has the processor fetch what is held at a place.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        if let Some(slot) = self.slots.get(handle.0) {
            packet::prefetch_value(slot);
        }
    }

    /// The thing at a place, if any is.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.get(handle.0)?.value.as_ref()
    }

    /// The thing at a place.
    #[inline]
    pub fn slot_mut(&mut self, handle: Handle) -> &mut T {
        match &mut self.slots.slot_mut(handle.0).value {
            Some(value) => value,
            None => panic!("what is asked for is held"),
        }
    }

    /// Holds a thing for the longest patience that is not above `wanted` (else the shortest).
    #[inline(always)]
    pub fn insert(&mut self, now: Time, thing: T, charge: usize, wanted: Duration) -> Handle {
        self.queue_pending();
        let (patience, length) = self.timeout_class_for(wanted);
        let at = self.slots.place(Slot::free());
        let slot = self.slots.slot_mut(at);
        debug_assert!(slot.value.is_none());
        // A free place has nothing to be dropped.
        core::mem::forget(slot.value.replace(thing));
        slot.deadline = now.later(length);
        slot.charge = charge;
        slot.rank = Queue::Nowhere;
        slot.patience = patience as u8;
        self.newest = at;
        self.charged += charge;
        Handle(at)
    }

    /// Lines the newest up.
    #[inline]
    fn queue_pending(&mut self) {
        if self.newest != NONE {
            self.queue_newest();
        }
    }

    fn queue_newest(&mut self) {
        let at = core::mem::replace(&mut self.newest, NONE);
        let slot = self.slots.at(at);
        let Some(thing) = &slot.value else { panic!("the newest is held") };
        let (charge, address) = (slot.charge, thing.source());
        if let Some(patience) = self.patiences.get_mut(usize::from(slot.patience)) {
            patience.line.push_back(&mut self.slots, at, |slot| &mut slot.by_patience);
        }
        self.enter_queues(at, address, charge);
    }

    /// Puts a thing into the line of its source, where it is charged anything.
    fn enter_queues(&mut self, at: u32, address: Address, charge: usize) {
        if charge > 0 {
            let source = self.source_of(address);
            self.slots.slot_mut(at).rank = Queue::Source(source);
            self.enter_source(at, source, charge);
        }
    }

    /// Takes a thing out of its line of ranks.
    fn leave_queues(&mut self, at: u32, charge: usize) {
        match core::mem::replace(&mut self.slots.slot_mut(at).rank, Queue::Nowhere) {
            Queue::Nowhere => {}
            Queue::Reserve => {
                self.reserve.unlink(&mut self.slots, at, |slot| &mut slot.by_rank);
                self.reserve_charged -= charge;
            }
            Queue::Source(source) => self.leave_source(at, source, charge),
        }
    }

    /// Charges a thing anew. One that was charged nothing goes to the end of its source's line.
    pub fn charge(&mut self, handle: Handle, charge: usize) {
        let slot = self.slots.slot_mut(handle.0);
        if slot.charge == charge {
            return;
        }
        let before = core::mem::replace(&mut slot.charge, charge);
        let (rank, address) = (slot.rank, slot.value.as_ref().map(HasSource::source));
        self.charged = self.charged - before + charge;
        if handle.0 == self.newest {
            return;
        }
        self.queue_pending();
        match (rank, address) {
            (Queue::Nowhere, Some(address)) => self.enter_queues(handle.0, address, charge),
            (Queue::Nowhere, None) => {}
            _ if charge == 0 => self.leave_queues(handle.0, before),
            (Queue::Reserve, _) => self.reserve_charged = self.reserve_charged - before + charge,
            (Queue::Source(source), _) => self.move_source(source, before, charge),
        }
    }

    /// Gives a thing a new deadline, as if it came now: for patience that is about idleness. Where its patience would end
    /// when it does anyway, it keeps its place.
    #[inline]
    pub fn refresh(&mut self, now: Time, handle: Handle, wanted: Duration) {
        let (patience, length) = self.timeout_class_for(wanted);
        let deadline = now.later(length);
        let slot = self.slots.slot_mut(handle.0);
        if slot.deadline != deadline || usize::from(slot.patience) != patience {
            self.refresh_at(handle, patience, deadline);
        }
    }

    fn refresh_at(&mut self, handle: Handle, patience: usize, deadline: Time) {
        if handle.0 != self.newest {
            self.queue_pending();
        }
        let slot = self.slots.slot_mut(handle.0);
        let before = usize::from(core::mem::replace(&mut slot.patience, patience as u8));
        slot.deadline = deadline;
        if before == patience && slot.by_patience.after == NONE || handle.0 == self.newest {
            return;
        }
        if let Some(patience) = self.patiences.get_mut(before) {
            patience.line.unlink(&mut self.slots, handle.0, |slot| &mut slot.by_patience);
        }
        if let Some(patience) = self.patiences.get_mut(patience) {
            patience.line.push_back(&mut self.slots, handle.0, |slot| &mut slot.by_patience);
        }
    }

    /// Moves a thing to the reserve; false where it is there, or charged nothing.
    pub fn move_to_reserve(&mut self, handle: Handle) -> bool {
        self.queue_pending();
        let slot = self.slots.slot_mut(handle.0);
        let (Queue::Source(source), charge) = (slot.rank, slot.charge) else { return false };
        self.leave_source(handle.0, source, charge);
        self.enter_reserve(handle.0, charge);
        true
    }

    /// Takes a thing out.
    #[inline(always)]
    pub fn remove(&mut self, handle: Handle) -> T {
        if handle.0 == self.newest {
            self.newest = NONE;
        } else {
            self.leave_lists(handle.0);
        }
        let slot = self.slots.slot_mut(handle.0);
        let Some(thing) = slot.value.take() else { panic!("what is taken out is held") };
        self.charged -= slot.charge;
        self.slots.vacate(handle.0);
        thing
    }

    fn leave_lists(&mut self, at: u32) {
        self.queue_pending();
        let slot = self.slots.at(at);
        let charge = slot.charge;
        if let Some(patience) = self.patiences.get_mut(usize::from(slot.patience)) {
            patience.line.unlink(&mut self.slots, at, |slot| &mut slot.by_patience);
        }
        self.leave_queues(at, charge);
    }

    /// When the next thing's patience ends.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heads().map(|at| self.slots.at(at).deadline).min()
    }

    /// A thing whose patience has ended.
    pub fn overdue(&self, now: Time) -> Option<Handle> {
        self.heads().find(|at| self.slots.at(*at).deadline <= now).map(Handle)
    }

    /// The thing that has waited longest of those with the earliest deadline; for giving up everything in order.
    pub fn oldest(&self) -> Option<Handle> {
        self.heads().min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// The same among those whose patience is at most this.
    pub fn oldest_within(&self, patience: Duration) -> Option<Handle> {
        let is_within = |at: &u32| {
            let length =
                self.patiences.get(usize::from(self.slots.at(*at).patience)).map(|patience| patience.length);
            length.is_some_and(|length| length <= patience)
        };
        self.heads().filter(is_within).min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit; what is held beyond it is for its owner to give up.
    pub fn set_limit(&mut self, limit: usize) {
        (self.limit, self.reserve_limit) = (limit, limit / RESERVE_SHARE);
    }

    /// Is more than the limit charged?
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.charged > self.limit
    }

    /// The thing to give up, as long as more than the limit is charged.
    pub fn over_limit(&mut self) -> Option<Handle> {
        if self.is_over_limit() { self.victim() } else { None }
    }

    /// The thing to give up where memory is needed, one that is charged something: of the reserve when that is over its
    /// part, else the oldest of the source that has been longest among those that hold the most.
    pub fn victim(&mut self) -> Option<Handle> {
        self.queue_pending();
        if self.reserve_charged > self.reserve_limit {
            return self.reserve.head().map(Handle);
        }
        let worth_speaking = (self.charged - self.reserve_charged) / LEVEL_SHARE;
        let mut above = 0;
        let heaviest = self.levels.heaviest_first().find(|level| {
            above += level.charged;
            above >= worth_speaking
        });
        let source = heaviest.and_then(|level| level.line.head());
        let thing = source.and_then(|source| self.sources.at(source).things.head());
        thing.or(self.reserve.head()).map(Handle)
    }

    /// Bytes charged for all that is held.
    pub fn charged(&self) -> usize {
        self.charged
    }

    /// How many things are held.
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    /// All that is held, and where.
    pub fn entries(&self) -> impl Iterator<Item = (Handle, &T)> {
        let places = self.slots.all().enumerate();
        places.filter_map(|(at, slot)| Some((Handle(at as u32), slot.value.as_ref()?)))
    }

    /// All that is held, in no order that matters: for counting.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.all().filter_map(|slot| slot.value.as_ref())
    }

    /// The first of each line, and the newest, which is behind them all.
    fn heads(&self) -> impl Iterator<Item = u32> {
        let newest = (self.newest != NONE).then_some(self.newest);
        self.patiences.iter().filter_map(|patience| patience.line.head()).chain(newest)
    }

    /// The longest that fits is better than any that does not; of those that do not, the shortest.
    #[inline]
    fn timeout_class_for(&mut self, wanted: Duration) -> (usize, u64) {
        if let Some((known, patience)) = self.last_wanted
            && known == wanted
        {
            return patience;
        }
        let patience = self.find_timeout_class(wanted);
        self.last_wanted = Some((wanted, patience));
        patience
    }

    fn find_timeout_class(&self, wanted: Duration) -> (usize, u64) {
        let fitting = self.patiences.iter().position(|patience| patience.length <= wanted);
        let patience = fitting.unwrap_or(self.patiences.len().saturating_sub(1));
        let length = self.patiences.get(patience).map_or(wanted, |patience| patience.length);
        (patience, u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The source with this address, known or new.
    fn source_of(&mut self, address: Address) -> u32 {
        if self.sources.get_mut(self.recent).is_some_and(|source| source.address == address) {
            return self.recent;
        }
        let number = address.number();
        let hash = self.table_key.hash([number as u64, (number >> 64) as u64]);
        let found = self.sources_index.find(hash, |source| self.sources.at(source).address == address);
        let source = found.unwrap_or_else(|| self.add_source(address, hash));
        let before = core::mem::replace(&mut self.recent, source);
        if self.sources.get_mut(before).is_some_and(|source| source.things.head().is_none()) {
            self.forget_source(before);
        }
        source
    }

    fn add_source(&mut self, address: Address, hash: u64) -> u32 {
        let nobody = Source { address, hash, charged: 0, things: List::default(), links: Links::NONE };
        let at = self.sources.place(nobody);
        let source = self.sources.slot_mut(at);
        (source.address, source.hash, source.charged, source.things) = (address, hash, 0, List::default());
        self.sources_index.insert(hash, at);
        at
    }

    fn enter_reserve(&mut self, at: u32, charge: usize) {
        self.slots.slot_mut(at).rank = Queue::Reserve;
        self.reserve.push_back(&mut self.slots, at, |slot| &mut slot.by_rank);
        self.reserve_charged += charge;
    }

    /// Puts a thing at the end of its source's line.
    fn enter_source(&mut self, at: u32, source: u32, charge: usize) {
        let known = self.sources.slot_mut(source);
        let is_first = known.things.head().is_none();
        known.things.push_back(&mut self.slots, at, |slot| &mut slot.by_rank);
        if !is_first {
            return self.move_source(source, 0, charge);
        }
        known.charged = charge;
        self.levels.enter(&mut self.sources, source, charge);
    }

    /// Takes a thing out of its source's line.
    fn leave_source(&mut self, at: u32, source: u32, charge: usize) {
        let known = self.sources.slot_mut(source);
        known.things.unlink(&mut self.slots, at, |slot| &mut slot.by_rank);
        if known.things.head().is_some() {
            return self.move_source(source, charge, 0);
        }
        let charged = known.charged;
        self.levels.leave(&mut self.sources, source, charged);
        if source != self.recent {
            self.forget_source(source);
        }
    }

    fn forget_source(&mut self, source: u32) {
        let hash = self.sources.at(source).hash;
        self.sources_index.remove(hash, source);
        self.sources.vacate(source);
    }

    /// Moves a source that holds something to the level of its charge.
    fn move_source(&mut self, source: u32, less: usize, more: usize) {
        let charged = &mut self.sources.slot_mut(source).charged;
        let before = *charged;
        *charged = before - less + more;
        let after = *charged;
        if bucket(before) == bucket(after) {
            let level = self.levels.at_mut(bucket(before));
            level.charged = level.charged - before + after;
            return;
        }
        self.levels.leave(&mut self.sources, source, before);
        self.levels.enter(&mut self.sources, source, after);
    }
}

impl UsageBuckets {
    fn at_mut(&mut self, level: usize) -> &mut UsageBucket {
        match self.levels.get_mut(level) {
            Some(level) => level,
            None => panic!("every charge has its level"),
        }
    }

    /// Puts a source at the end of the level of its charge.
    fn enter(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.at_mut(at);
        level.charged += charged;
        level.line.push_back(sources, source, |source| &mut source.links);
        self.taken |= 1 << at;
    }

    /// Takes a source out of the level of its charge.
    fn leave(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.at_mut(at);
        level.charged -= charged;
        level.line.unlink(sources, source, |source| &mut source.links);
        if level.line.head().is_none() {
            self.taken &= !(1 << at);
        }
    }

    /// The levels that someone is on.
    fn heaviest_first(&self) -> impl Iterator<Item = &UsageBucket> {
        let mut left = self.taken;
        core::iter::from_fn(move || {
            let at = left.checked_ilog2()?;
            left ^= 1 << at;
            self.levels.get(at as usize)
        })
    }
}

/// Two levels for each power of two: one for its lower half, one for its upper.
pub(super) fn bucket(charged: usize) -> usize {
    match charged.checked_ilog2() {
        None | Some(0) => 0,
        Some(log) => 2 * log as usize + (charged >> (log - 1) & 1),
    }
}

impl<T> Slot<T> {
    /// A free place.
    fn free() -> Slot<T> {
        Slot {
            value: None,
            deadline: Time::ZERO,
            charge: 0,
            rank: Queue::Nowhere,
            patience: 0,
            by_patience: Links::NONE,
            by_rank: Links::NONE,
        }
    }
}

/// Two levels for each power of two that a charge can reach.
pub(super) const LEVEL_COUNT: usize = 2 * usize::BITS as usize;
/// The part of the memory that the heaviest sources hold before they give up first: one in this many.
const LEVEL_SHARE: usize = 8;
/// The reserve's part of the limit: one in this many.
const RESERVE_SHARE: usize = 4;
