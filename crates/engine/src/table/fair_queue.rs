//! Entries with deadlines and charges -> the next entry to expire, and the next entry to evict.
//!
//! Entries are charged in bytes. Each entry has a position in two orders:
//!
//! - By time-out. The entries of one time-out class form a list in order of arrival, which is the order of their
//!   deadlines. So expiry needs no heap.
//! - By usage. At the memory limit, the sources with the highest usage lose their oldest entries first. So a flood
//!   from few sources affects only these sources. A flood from many sources loses its own oldest entries. The
//!   probability that an entry of another source survives the flood grows with the limit, and is never zero
//!   (rel:G24, rel:G27).
//!
//! Sources whose usage differs by less than half a power of two share a usage bucket. The highest buckets that
//! together contain a minimum part of the memory are candidates. Eviction takes from the lowest of them. So during
//! a flood from a thousand hosts with one datagram each, a host with a few open datagrams is not evicted first. The
//! rule fails if an honest host uses as much memory as each flooding host. The honest host then loses its oldest
//! datagrams.
//!
//! Most entries are held only briefly. The newest entry enters its lists only when another entry is inserted or
//! changed. So an entry that is inserted and removed alone costs no list operations.
//!
//! Protected entries have a list of their own. They are evicted last, while they fit the reserve (C31).

use super::index::Index;
use super::slab::{List, ListLinks, NONE, Slab};
use crate::keyed_hash::{Secret, TableKey};
use core::time::Duration;
use packet::{Address, Time};

/// An entry with the source that its memory is charged to.
pub trait HasSource {
    /// Returns the address that the entry's memory is charged to.
    fn source(&self) -> Address;
}

/// Entries with deadlines, within a memory limit in bytes.
///
/// Invariants:
///
/// - Every entry except the newest is in the list of its time-out class.
/// - Every charged entry except the newest is in one eviction list: its source's or the reserve. Eviction of
///   uncharged entries would free no memory.
/// - The newest entry was inserted after all others.
/// - A source is in a usage bucket as long as any of its unprotected entries is charged.
/// - The charges of all entries add up to `charged`.
#[derive(Debug)]
pub struct FairQueue<T> {
    slots: Slab<Slot<T>>,
    /// The slot of the newest entry, which is in no list yet.
    newest: u32,
    /// The time-out classes, the longest time-out first.
    timeouts: Vec<TimeoutClass>,
    /// The last requested time-out, its class, and the time-out of that class in nanoseconds.
    last_wanted: Option<(Duration, (usize, u64))>,
    sources_index: Index,
    sources: Slab<Source>,
    /// The source of the entry that was listed last. This source is kept even if it has no entries.
    recent: u32,
    /// Usage buckets of sources, two per power of two.
    levels: UsageBuckets,
    reserve: List,
    reserve_charged: usize,
    reserve_limit: usize,
    charged: usize,
    limit: usize,
    table_key: TableKey,
}

/// The slot of an entry, valid until the entry is removed. Afterwards, a later entry may use the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(super) u32);

impl Handle {
    /// A handle that never refers to an entry.
    pub const NONE: Handle = Handle(NONE);
}

#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// The entry. `None` if the slot is free: the other fields are then those of the last entry.
    value: Option<T>,
    deadline: Time,
    charge: usize,
    rank: Queue,
    timeout: u8,
    by_timeout: ListLinks,
    by_rank: ListLinks,
}

/// The eviction list of an entry.
#[derive(Clone, Copy, Debug)]
enum Queue {
    /// No list: the entry is the newest, or its charge is 0.
    Nowhere,
    Reserve,
    /// The list of the source in this slot.
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

/// Sources with similar usage.
#[derive(Clone, Copy, Debug, Default)]
struct UsageBucket {
    line: List,
    /// Sum of the charges of these sources, in bytes.
    charged: usize,
}

#[derive(Clone, Copy, Debug)]
struct UsageBuckets {
    levels: [UsageBucket; LEVEL_COUNT],
    /// Bit mask of the buckets with sources.
    taken: u128,
}

impl Default for UsageBuckets {
    fn default() -> UsageBuckets {
        UsageBuckets { levels: [UsageBucket::default(); LEVEL_COUNT], taken: 0 }
    }
}

impl<T: HasSource> FairQueue<T> {
    /// Creates a queue for entries with charges of `limit` bytes in total. A quarter of the limit is reserved for
    /// protected entries. Each entry has one of the time-outs in `timeouts`.
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

    /// Sets the hash key of sources. Only allowed before the first entry.
    pub fn set_key(&mut self, key: Secret) {
        assert!(self.count() == 0, "a source is found by the key it was put in with");
        self.table_key = TableKey::new(key);
    }

    /// Returns the entry in the slot of a handle, mutable. `None` if the slot is free. A later entry may use the
    /// slot.
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

    /// Returns the entry in the slot of a handle. `None` if the slot is free.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.get(handle.0)?.value.as_ref()
    }

    /// Returns the entry at a valid handle.
    #[inline]
    pub fn slot_mut(&mut self, handle: Handle) -> &mut T {
        match &mut self.slots.slot_mut(handle.0).value {
            Some(value) => value,
            None => panic!("what is asked for is held"),
        }
    }

    /// Inserts an entry with the longest time-out that does not exceed `wanted`, otherwise with the shortest.
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

    /// Puts a charged entry into the list of its source.
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

    /// Changes the charge of an entry. An entry that had no charge is appended to its source's list.
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

    /// Restarts an entry's idle time-out at `now`. An entry whose deadline and time-out class do not change keeps
    /// its position.
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

    /// Moves an entry to the reserve. Returns false if it is already there, or if its charge is 0.
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

    /// Returns the earliest deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heads().map(|at| self.slots.at(at).deadline).min()
    }

    /// Returns an entry whose deadline has passed.
    pub fn overdue(&self, now: Time) -> Option<Handle> {
        self.heads().find(|at| self.slots.at(*at).deadline <= now).map(Handle)
    }

    /// Returns the oldest of the entries with the earliest deadline, for callers that remove all entries in order.
    pub fn oldest(&self) -> Option<Handle> {
        self.heads().min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// Returns the oldest of the entries with the earliest deadline, among the entries with a time-out of at most
    /// `timeout`.
    pub fn oldest_within(&self, timeout: Duration) -> Option<Handle> {
        let is_within = |at: &u32| {
            let length = self.timeouts.get(usize::from(self.slots.at(*at).timeout)).map(|timeout| timeout.length);
            length.is_some_and(|length| length <= timeout)
        };
        self.heads().filter(is_within).min_by_key(|at| self.slots.at(*at).deadline).map(Handle)
    }

    /// Returns the limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit. The caller must evict entries until the charges are within the limit.
    pub fn set_limit(&mut self, limit: usize) {
        (self.limit, self.reserve_limit) = (limit, limit / RESERVE_SHARE);
    }

    /// Whether the charges exceed the limit.
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.charged > self.limit
    }

    /// Returns the entry to evict. `None` if the charges do not exceed the limit.
    pub fn over_limit(&mut self) -> Option<Handle> {
        if self.is_over_limit() { self.victim() } else { None }
    }

    /// Returns the charged entry to evict when memory is needed. In this order:
    ///
    /// 1. The oldest entry of the reserve, if the reserve exceeds its part.
    /// 2. The oldest entry of one source: the source that has been longest in the lowest candidate bucket.
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

    /// Returns the charges of all entries, in bytes.
    pub fn charged(&self) -> usize {
        self.charged
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    /// Returns all entries, and their handles.
    pub fn entries(&self) -> impl Iterator<Item = (Handle, &T)> {
        let places = self.slots.all().enumerate();
        places.filter_map(|(at, slot)| Some((Handle(at as u32), slot.value.as_ref()?)))
    }

    /// Returns all entries, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.all().filter_map(|slot| slot.value.as_ref())
    }

    /// Returns the first entry of each time-out class, and then the newest entry.
    fn heads(&self) -> impl Iterator<Item = u32> {
        let newest = (self.newest != NONE).then_some(self.newest);
        self.timeouts.iter().filter_map(|timeout| timeout.line.head()).chain(newest)
    }

    /// Returns the class with the longest time-out that does not exceed `wanted`, otherwise the shortest, and its
    /// time-out in nanoseconds.
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

    /// Returns the source with this address. Creates a missing one.
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

    /// Appends an entry to its source's list.
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

    /// Moves a source with entries to the usage bucket of its new charge.
    fn move_source(&mut self, source: u32, less: usize, more: usize) {
        let charged = &mut self.sources.slot_mut(source).charged;
        let before = *charged;
        *charged = before - less + more;
        let after = *charged;
        if bucket(before) == bucket(after) {
            let level = self.levels.level_mut(bucket(before));
            level.charged = level.charged - before + after;
            return;
        }
        self.levels.leave(&mut self.sources, source, before);
        self.levels.enter(&mut self.sources, source, after);
    }
}

impl UsageBuckets {
    fn level_mut(&mut self, level: usize) -> &mut UsageBucket {
        match self.levels.get_mut(level) {
            Some(level) => level,
            None => panic!("every charge has its level"),
        }
    }

    /// Appends a source to the bucket of its charge.
    fn enter(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.level_mut(at);
        level.charged += charged;
        level.line.push_back(sources, source, |source| &mut source.links);
        self.taken |= 1 << at;
    }

    /// Removes a source from the bucket of its charge.
    fn leave(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = bucket(charged);
        let level = self.level_mut(at);
        level.charged -= charged;
        level.line.unlink(sources, source, |source| &mut source.links);
        if level.line.head().is_none() {
            self.taken &= !(1 << at);
        }
    }

    /// Returns the buckets with sources, the highest usage first.
    fn heaviest_first(&self) -> impl Iterator<Item = &UsageBucket> {
        let mut left = self.taken;
        core::iter::from_fn(move || {
            let at = left.checked_ilog2()?;
            left ^= 1 << at;
            self.levels.get(at as usize)
        })
    }
}

/// Returns the usage bucket of a charge. Each power of two has a bucket for its lower half and one for its upper
/// half.
pub(super) fn bucket(charged: usize) -> usize {
    match charged.checked_ilog2() {
        None | Some(0) => 0,
        Some(log) => 2 * log as usize + (charged >> (log - 1) & 1),
    }
}

impl<T> Slot<T> {
    /// Creates a free slot.
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

/// Number of usage buckets: two for each power of two that a charge can reach.
pub(super) const LEVEL_COUNT: usize = 2 * usize::BITS as usize;
/// Ratio of the unprotected memory to the minimum that the candidate buckets contain together.
const LEVEL_SHARE: usize = 8;
/// Ratio of the limit to the part that is reserved.
const RESERVE_SHARE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv6Addr};

    impl HasSource for Address {
        fn source(&self) -> Address {
            *self
        }
    }

    #[test]
    fn sources_that_share_half_of_their_address_are_found_in_few_steps() {
        let hosts = [|number: u128| number << 64 | 1, |number: u128| 1 << 64 | number];
        for host in hosts {
            let mut queue = FairQueue::new(usize::MAX, &[Duration::from_secs(1)], Secret::new(3));
            for number in 0..1_000 {
                let source = Address::from(IpAddr::from(Ipv6Addr::from_bits(host(number))));
                queue.insert(Time::ZERO, source, 100, Duration::from_secs(1));
            }
            let steps = queue.sources_index.longest_search();
            assert!((1..=60).contains(&steps), "{steps} steps");
        }
    }
}
