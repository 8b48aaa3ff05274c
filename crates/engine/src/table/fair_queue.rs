//! Entries with deadlines and charges -> the next one to expire, and the next one to evict.
//!
//! Entries are charged in bytes, and are in two orders at once:
//!
//! - By time-out. Entries of one time-out class form a list in order of arrival, which is the order of their
//!   deadlines. So expiry needs no heap.
//! - By usage. At the memory limit, the sources with the highest usage lose their oldest entries first. So a flood
//!   from few sources hurts only them, and a flood from many sources loses its own oldest entries. Survival grows
//!   with the limit, and never falls to nothing (rel:G24, rel:G27).
//!
//! Sources with about the same usage, within half a power of two, share a usage bucket. Eviction takes from the
//! highest bucket that holds, with all buckets above it, a minimum part of the memory. So a host with a few open
//! datagrams is not mistaken for a flood of a thousand hosts with one datagram each. The rule fails where an honest
//! host holds as much as each flooding host. The honest host then loses its oldest datagrams.
//!
//! Most entries are held only briefly. The newest entry enters its lists only when another one is inserted or
//! changed. So an entry that comes and goes alone costs no list operations.
//!
//! Protected entries have a list of their own. They are evicted last, as long as they stay within the reserve
//! (C31).

use super::index::Index;
use super::slab::{List, ListLinks, NONE, Slab};
use crate::keyed_hash::{Secret, TableKey};
use core::time::Duration;
use packet::{Address, Time};

/// An entry with the source that its memory is charged to.
pub trait HasSource {
    /// The sender of the entry.
    fn source(&self) -> Address;
}

/// Entries that wait, within a limit of bytes.
///
/// Invariants:
///
/// - Every entry but the newest is in the list of its time-out class.
/// - Every charged entry but the newest is in one eviction list: its source's or the reserve. Evicting uncharged
///   entries would free nothing.
/// - The newest entry came after all others.
/// - A source is in a usage bucket as long as unprotected entries of it are charged.
/// - The charges of all entries add up to `charged`.
#[derive(Debug)]
pub struct FairQueue<T> {
    slots: Slab<Slot<T>>,
    /// The entry that is held but in no list.
    newest: u32,
    /// The longest first.
    timeouts: Vec<TimeoutClass>,
    /// The last requested time-out, its class, and that class's length in nanoseconds.
    last_wanted: Option<(Duration, (usize, u64))>,
    sources_index: Index,
    sources: Slab<Source>,
    /// The source of the last listed entry; known even while it holds no entry.
    recent: u32,
    /// Sources by usage, half a power of two per bucket.
    levels: UsageBuckets,
    reserve: List,
    reserve_charged: usize,
    reserve_limit: usize,
    charged: usize,
    limit: usize,
    table_key: TableKey,
}

/// The slot of an entry; valid until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(super) u32);

impl Handle {
    /// A slot that never holds an entry.
    pub const NONE: Handle = Handle(NONE);
}

#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// None where the slot is free; the other fields are then those of its last entry.
    value: Option<T>,
    deadline: Time,
    charge: usize,
    rank: Queue,
    timeout: u8,
    by_timeout: ListLinks,
    by_rank: ListLinks,
}

/// The eviction list that an entry is in.
#[derive(Clone, Copy, Debug)]
enum Queue {
    /// No list: the entry is the newest, or is charged nothing.
    Nowhere,
    Reserve,
    /// The list of this source.
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
    links: ListLinks,
}

/// Sources with about the same usage.
#[derive(Clone, Copy, Debug, Default)]
struct UsageBucket {
    line: List,
    /// Sum of their charges.
    charged: usize,
}

#[derive(Clone, Copy, Debug)]
struct UsageBuckets {
    levels: [UsageBucket; LEVEL_COUNT],
    /// One bit for each bucket that has sources.
    taken: u128,
}

impl Default for UsageBuckets {
    fn default() -> UsageBuckets {
        UsageBuckets { levels: [UsageBucket::default(); LEVEL_COUNT], taken: 0 }
    }
}

impl<T: HasSource> FairQueue<T> {
    /// A queue for entries charged `limit` bytes in all. A quarter of the limit is reserved for protected entries.
    /// Each entry has one of the time-outs in `timeouts`.
    pub fn new(limit: usize, timeouts: &[Duration], secret: Secret) -> FairQueue<T> {
        let mut timeouts: Vec<_> =
            timeouts.iter().map(|length| TimeoutClass { length: *length, line: List::default() }).collect();
        timeouts.sort_by_key(|timeout| core::cmp::Reverse(timeout.length));
        FairQueue {
            slots: Slab::default(),
            newest: NONE,
            last_wanted: None,
            timeouts,
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

    /// Sets the hash key of sources; only before any entry is held.
    pub fn set_key(&mut self, key: Secret) {
        assert!(self.count() == 0, "a source is found by the key it was put in with");
        self.table_key = TableKey::new(key);
    }

    /// The entry at an earlier handle, if there is one.
    #[inline(always)]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.slots.get_mut(handle.0)?.value.as_mut()
    }

    /// Prefetches the entry at a handle.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        if let Some(slot) = self.slots.get(handle.0) {
            packet::prefetch_value(slot);
        }
    }

    /// The entry at a handle, if there is one.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.get(handle.0)?.value.as_ref()
    }

    /// The entry at a handle that is known to be held.
    #[inline]
    pub fn slot_mut(&mut self, handle: Handle) -> &mut T {
        match &mut self.slots.slot_mut(handle.0).value {
            Some(value) => value,
            None => panic!("what is asked for is held"),
        }
    }

    /// Inserts an entry with the longest time-out that is not above `wanted`, else the shortest.
    #[inline(always)]
    pub fn insert(&mut self, now: Time, thing: T, charge: usize, wanted: Duration) -> Handle {
        self.queue_pending();
        let (timeout, length) = self.timeout_class_for(wanted);
        let at = self.slots.place(Slot::free());
        let slot = self.slots.slot_mut(at);
        debug_assert!(slot.value.is_none());
        // A free slot has no value to drop.
        core::mem::forget(slot.value.replace(thing));
        slot.deadline = now.later(length);
        slot.charge = charge;
        slot.rank = Queue::Nowhere;
        slot.timeout = timeout as u8;
        self.newest = at;
        self.charged += charge;
        Handle(at)
    }

    /// Puts the newest entry into its lists.
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
        if let Some(timeout) = self.timeouts.get_mut(usize::from(slot.timeout)) {
            timeout.line.push_back(&mut self.slots, at, |slot| &mut slot.by_timeout);
        }
        self.enter_queues(at, address, charge);
    }

    /// Puts an entry into the list of its source, where it is charged.
    fn enter_queues(&mut self, at: u32, address: Address, charge: usize) {
        if charge > 0 {
            let source = self.source_of(address);
            self.slots.slot_mut(at).rank = Queue::Source(source);
            self.enter_source(at, source, charge);
        }
    }

    /// Removes an entry from its eviction list.
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

    /// Changes the charge of an entry. An entry without a charge so far goes to the end of its source's list.
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

    /// Restarts an entry's time-out at `now`, for idle time-outs. An entry whose deadline and time-out class stay
    /// the same keeps its position.
    #[inline]
    pub fn refresh(&mut self, now: Time, handle: Handle, wanted: Duration) {
        let (timeout, length) = self.timeout_class_for(wanted);
        let deadline = now.later(length);
        let slot = self.slots.slot_mut(handle.0);
        if slot.deadline != deadline || usize::from(slot.timeout) != timeout {
            self.refresh_at(handle, timeout, deadline);
        }
    }

    fn refresh_at(&mut self, handle: Handle, timeout: usize, deadline: Time) {
        if handle.0 != self.newest {
            self.queue_pending();
        }
        let slot = self.slots.slot_mut(handle.0);
        let before = usize::from(core::mem::replace(&mut slot.timeout, timeout as u8));
        slot.deadline = deadline;
        if before == timeout && slot.by_timeout.after == NONE || handle.0 == self.newest {
            return;
        }
        if let Some(timeout) = self.timeouts.get_mut(before) {
            timeout.line.unlink(&mut self.slots, handle.0, |slot| &mut slot.by_timeout);
        }
        if let Some(timeout) = self.timeouts.get_mut(timeout) {
            timeout.line.push_back(&mut self.slots, handle.0, |slot| &mut slot.by_timeout);
        }
    }

    /// Moves an entry to the reserve. Returns false where it is already there, or is charged nothing.
    pub fn move_to_reserve(&mut self, handle: Handle) -> bool {
        self.queue_pending();
        let slot = self.slots.slot_mut(handle.0);
        let (Queue::Source(source), charge) = (slot.rank, slot.charge) else { return false };
        self.leave_source(handle.0, source, charge);
        self.enter_reserve(handle.0, charge);
        true
    }

    /// Removes an entry.
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
        if let Some(timeout) = self.timeouts.get_mut(usize::from(slot.timeout)) {
            timeout.line.unlink(&mut self.slots, at, |slot| &mut slot.by_timeout);
        }
        self.leave_queues(at, charge);
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heads().map(|at| self.slots.at(at).deadline).min()
    }

    /// An entry whose deadline has passed.
    pub fn overdue(&self, now: Time) -> Option<Handle> {
        self.heads().find(|at| self.slots.at(*at).deadline <= now).map(Handle)
    }

    /// The longest held entry of those with the earliest deadline. For evicting all entries in order.
    pub fn oldest(&self) -> Option<Handle> {
        self.heads().min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// The same among entries with a time-out of at most `timeout`.
    pub fn oldest_within(&self, timeout: Duration) -> Option<Handle> {
        let is_within = |at: &u32| {
            let length = self.timeouts.get(usize::from(self.slots.at(*at).timeout)).map(|timeout| timeout.length);
            length.is_some_and(|length| length <= timeout)
        };
        self.heads().filter(is_within).min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit. The owner evicts the entries beyond it.
    pub fn set_limit(&mut self, limit: usize) {
        (self.limit, self.reserve_limit) = (limit, limit / RESERVE_SHARE);
    }

    /// Whether more than the limit is charged.
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.charged > self.limit
    }

    /// The entry to evict, as long as more than the limit is charged.
    pub fn over_limit(&mut self) -> Option<Handle> {
        if self.is_over_limit() { self.victim() } else { None }
    }

    /// The entry to evict where memory is needed; it has a charge. In this order:
    ///
    /// 1. Where the reserve exceeds its part, its oldest entry.
    /// 2. The oldest entry of one source: the one that has been longest in the usage bucket to evict from.
    /// 3. The oldest entry of the reserve.
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

    /// Bytes charged for all entries.
    pub fn charged(&self) -> usize {
        self.charged
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    /// All entries, and their handles.
    pub fn entries(&self) -> impl Iterator<Item = (Handle, &T)> {
        let places = self.slots.all().enumerate();
        places.filter_map(|(at, slot)| Some((Handle(at as u32), slot.value.as_ref()?)))
    }

    /// All entries, in arbitrary order: for counting.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.all().filter_map(|slot| slot.value.as_ref())
    }

    /// The first entry of each time-out class, and the newest, which is behind them all.
    fn heads(&self) -> impl Iterator<Item = u32> {
        let newest = (self.newest != NONE).then_some(self.newest);
        self.timeouts.iter().filter_map(|timeout| timeout.line.head()).chain(newest)
    }

    /// The longest time-out that is not above `wanted`; where all are above it, the shortest.
    #[inline]
    fn timeout_class_for(&mut self, wanted: Duration) -> (usize, u64) {
        if let Some((known, timeout)) = self.last_wanted
            && known == wanted
        {
            return timeout;
        }
        let timeout = self.find_timeout_class(wanted);
        self.last_wanted = Some((wanted, timeout));
        timeout
    }

    fn find_timeout_class(&self, wanted: Duration) -> (usize, u64) {
        let fitting = self.timeouts.iter().position(|timeout| timeout.length <= wanted);
        let timeout = fitting.unwrap_or(self.timeouts.len().saturating_sub(1));
        let length = self.timeouts.get(timeout).map_or(wanted, |timeout| timeout.length);
        (timeout, u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
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
        let nobody = Source { address, hash, charged: 0, things: List::default(), links: ListLinks::NONE };
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

    /// Puts an entry at the end of its source's list.
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

    /// Removes an entry from its source's list.
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

    /// Moves a source with entries to the usage bucket of its charge.
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

    /// Puts a source at the end of the bucket of its charge.
    fn enter(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.at_mut(at);
        level.charged += charged;
        level.line.push_back(sources, source, |source| &mut source.links);
        self.taken |= 1 << at;
    }

    /// Removes a source from the bucket of its charge.
    fn leave(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.at_mut(at);
        level.charged -= charged;
        level.line.unlink(sources, source, |source| &mut source.links);
        if level.line.head().is_none() {
            self.taken &= !(1 << at);
        }
    }

    /// The buckets with sources, the highest usage first.
    fn heaviest_first(&self) -> impl Iterator<Item = &UsageBucket> {
        let mut left = self.taken;
        core::iter::from_fn(move || {
            let at = left.checked_ilog2()?;
            left ^= 1 << at;
            self.levels.get(at as usize)
        })
    }
}

/// Two buckets for each power of two: one for its lower half, one for its upper half.
pub(super) fn bucket(charged: usize) -> usize {
    match charged.checked_ilog2() {
        None | Some(0) => 0,
        Some(log) => 2 * log as usize + (charged >> (log - 1) & 1),
    }
}

impl<T> Slot<T> {
    /// A free slot.
    fn free() -> Slot<T> {
        Slot {
            value: None,
            deadline: Time::ZERO,
            charge: 0,
            rank: Queue::Nowhere,
            timeout: 0,
            by_timeout: ListLinks::NONE,
            by_rank: ListLinks::NONE,
        }
    }
}

/// Two buckets for each power of two that a charge can reach.
pub(super) const LEVEL_COUNT: usize = 2 * usize::BITS as usize;
/// Part of the memory that the highest buckets must hold for eviction to take from them: one in this many.
const LEVEL_SHARE: usize = 8;
/// The reserve's part of the limit: one in this many.
const RESERVE_SHARE: usize = 4;
