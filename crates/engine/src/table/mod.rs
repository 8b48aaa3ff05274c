//! Keys -> entries, each with a time-out and a charge in bytes.
//!
//! All held packets and all state with a time-out are in such tables. [`FairQueue`] defines the order of eviction.
//! The newest entry is indexed only when another entry is inserted. So an entry that is inserted and removed alone
//! is never hashed.

mod fair_queue;
mod index;
pub(crate) mod slab;

pub use fair_queue::{FairQueue, Handle, HasSource};

use crate::keyed_hash::{Secret, TableKey};
use core::time::Duration;
use index::Index;
use packet::{Address, Time};
use slab::NONE;

/// A key that determines the source to which the memory of its entry is charged.
pub trait Key: Eq + Copy {
    /// Returns the source that is charged for the entry.
    fn source(&self) -> Address;

    /// Returns the hash of this key under the hash key of a table.
    fn hash(&self, table: &TableKey) -> u64;
}

/// Entries under keys, within a memory limit in bytes.
///
/// Invariant: every entry except the newest is in the index.
#[derive(Debug)]
pub struct FairTable<K, V> {
    index: Index,
    things: FairQueue<Thing<K, V>>,
    /// The slot of the newest entry, which is not indexed yet.
    newest: u32,
    table_key: TableKey,
}

#[derive(Debug)]
#[repr(C)]
struct Thing<K, V> {
    value: V,
    key: K,
    /// The hash of the entry's key. Invalid until the entry is indexed.
    hash: u64,
    is_hashed: bool,
}

/// A key without an entry, with the key's hash if the look-up computed it.
#[derive(Clone, Copy, Debug)]
pub struct VacantEntry(Option<u64>);

impl<K: Key, V> FairTable<K, V> {
    /// Creates a table for entries with charges of `limit` bytes in total. A quarter of the limit is reserved for
    /// protected entries. Each entry has one of the time-outs in `timeouts`.
    pub fn new(limit: usize, timeouts: &[Duration], secret: Secret) -> FairTable<K, V> {
        let things = FairQueue::new(limit, timeouts, secret);
        FairTable { index: Index::default(), things, newest: NONE, table_key: TableKey::new(secret) }
    }

    /// Sets the hash key. Only allowed before the first entry.
    pub fn set_key(&mut self, key: Secret) {
        self.things.set_key(key);
        self.table_key = TableKey::new(key);
    }

    /// Returns the handle of the entry under this key.
    pub fn find(&self, key: &K) -> Option<Handle> {
        self.entry(key).err()
    }

    /// Returns the vacant entry for a new key.
    ///
    /// # Errors
    /// The handle of the entry, if the key has one.
    #[inline]
    pub fn entry(&self, key: &K) -> Result<VacantEntry, Handle> {
        let newest = Handle(self.newest);
        if self.get_entry(newest).is_some_and(|(known, _)| known == key) {
            return Err(newest);
        }
        if self.index.count() == 0 {
            return Ok(VacantEntry(None));
        }
        let hash = key.hash(&self.table_key);
        let is_it = |at| self.get_entry(Handle(at)).is_some_and(|(known, _)| known == key);
        match self.index.find(hash, is_it) {
            Some(at) => Err(Handle(at)),
            None => Ok(VacantEntry(Some(hash))),
        }
    }

    /// Returns the entry at a handle. `None` if the entry was removed, or has another key.
    pub fn get_for_key(&mut self, handle: Handle, key: &K) -> Option<&mut V> {
        let (known, value) = self.get_mut(handle)?;
        (known == key).then_some(value)
    }

    /// Returns the entry in the slot of a handle, mutable, and its key. `None` if the slot is free.
    #[inline(always)]
    pub fn get_mut(&mut self, handle: Handle) -> Option<(&K, &mut V)> {
        self.things.get_mut(handle).map(|thing| (&thing.key, &mut thing.value))
    }

    /// Prefetches the entry at a handle.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        self.things.prefetch(handle);
    }

    /// Returns the entry in the slot of a handle. `None` if the slot is free.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&V> {
        self.things.get(handle).map(|thing| &thing.value)
    }

    /// Returns the entry in the slot of a handle, and its key. `None` if the slot is free.
    #[inline]
    pub fn get_entry(&self, handle: Handle) -> Option<(&K, &V)> {
        self.things.get(handle).map(|thing| (&thing.key, &thing.value))
    }

    /// Returns the entry at a valid handle.
    #[inline]
    pub fn slot_mut(&mut self, handle: Handle) -> &mut V {
        &mut self.things.slot_mut(handle).value
    }

    /// Inserts an entry under a new key. The entry gets the longest time-out that does not exceed `wanted`,
    /// otherwise the shortest.
    pub fn insert(&mut self, now: Time, key: K, value: V, charge: usize, wanted: Duration) -> Handle {
        self.insert_vacant(now, VacantEntry(None), key, value, charge, wanted)
    }

    /// Inserts an entry as [`insert`](FairTable::insert) does, given the vacant entry for its key.
    #[inline(always)]
    pub fn insert_vacant(
        &mut self,
        now: Time,
        vacant: VacantEntry,
        key: K,
        value: V,
        charge: usize,
        wanted: Duration,
    ) -> Handle {
        if self.newest != NONE {
            self.index_newest();
        }
        let VacantEntry(hash) = vacant;
        let thing = Thing { value, key, hash: hash.unwrap_or_default(), is_hashed: hash.is_some() };
        let at = self.things.insert(now, thing, charge, wanted);
        self.newest = at.0;
        at
    }

    fn index_newest(&mut self) {
        let at = core::mem::replace(&mut self.newest, NONE);
        let thing = self.things.slot_mut(Handle(at));
        if !thing.is_hashed {
            (thing.hash, thing.is_hashed) = (thing.key.hash(&self.table_key), true);
        }
        self.index.insert(thing.hash, at);
    }

    /// Changes the charge of an entry.
    pub fn charge(&mut self, handle: Handle, charge: usize) {
        self.things.charge(handle, charge);
    }

    /// Restarts an entry's idle time-out at `now`. An entry whose deadline and time-out class do not change keeps
    /// its position.
    #[inline]
    pub fn refresh(&mut self, now: Time, handle: Handle, wanted: Duration) {
        self.things.refresh(now, handle, wanted);
    }

    /// Moves an entry to the reserve. Returns false if it is already there, or if its charge is 0.
    pub fn move_to_reserve(&mut self, handle: Handle) -> bool {
        self.things.move_to_reserve(handle)
    }

    /// Removes an entry.
    #[inline(always)]
    pub fn remove(&mut self, handle: Handle) -> V {
        let thing = self.things.remove(handle);
        if handle.0 == self.newest {
            self.newest = NONE;
        } else {
            self.index.remove(thing.hash, handle.0);
        }
        thing.value
    }

    /// Returns the earliest deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.things.next_deadline()
    }

    /// Returns an entry whose deadline has passed.
    pub fn overdue(&self, now: Time) -> Option<Handle> {
        self.things.overdue(now)
    }

    /// Returns the oldest of the entries with the earliest deadline, for callers that remove all entries in order.
    pub fn oldest(&self) -> Option<Handle> {
        self.things.oldest()
    }

    /// Returns the oldest of the entries with the earliest deadline, among the entries with a time-out of at most
    /// `timeout`.
    pub fn oldest_within(&self, timeout: Duration) -> Option<Handle> {
        self.things.oldest_within(timeout)
    }

    /// Returns the limit, in bytes.
    pub fn limit(&self) -> usize {
        self.things.limit()
    }

    /// Changes the limit. The caller must evict entries until the charges are within the limit.
    pub fn set_limit(&mut self, limit: usize) {
        self.things.set_limit(limit);
    }

    /// Whether the charges exceed the limit.
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.things.is_over_limit()
    }

    /// Returns the entry to evict. `None` if the charges do not exceed the limit.
    pub fn over_limit(&mut self) -> Option<Handle> {
        self.things.over_limit()
    }

    /// Returns the entry to evict when memory is needed: see [`FairQueue::victim`].
    pub fn victim(&mut self) -> Option<Handle> {
        self.things.victim()
    }

    /// Returns the charges of all entries, in bytes.
    pub fn charged(&self) -> usize {
        self.things.charged()
    }

    /// Returns the number of steps of the longest search for an entry by its key.
    pub fn longest_search(&self) -> usize {
        self.index.longest_search()
    }

    /// Returns the number of entries.
    #[inline]
    pub fn count(&self) -> usize {
        self.things.count()
    }

    /// Returns all entries, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.things.values().map(|thing| &thing.value)
    }

    /// Returns all entries with their keys, in arbitrary order.
    pub fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.things.values().map(|thing| (&thing.key, &thing.value))
    }
}

impl<K: Key, V> HasSource for Thing<K, V> {
    fn source(&self) -> Address {
        self.key.source()
    }
}

#[cfg(test)]
mod tests {
    use super::fair_queue::{LEVEL_COUNT, bucket};
    use super::*;
    use core::cell::RefCell;
    use core::net::{IpAddr, Ipv4Addr};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Name {
        number: u32,
        source: u8,
    }

    /// The naive model's record of an entry. The model is all records, in order of arrival.
    #[derive(Clone, Debug)]
    struct Thing {
        name: Name,
        handle: Handle,
        charge: usize,
        deadline: Time,
        timeout: Duration,
        /// The tick at which the entry came to the end of its time-out class.
        lined_up: u64,
        /// The tick at which the entry was moved to the reserve. `None` if it was not moved.
        protected: Option<u64>,
    }

    #[test]
    fn there_are_two_usage_buckets_per_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15].map(bucket), [0, 0, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert_eq!(bucket(usize::MAX), LEVEL_COUNT - 1);
    }

    #[test]
    fn random_operations_agree_with_a_list() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut both = Both::new(*random.choice(&[0, 1_000, 50_000, usize::MAX / 2]).unwrap());
            for step in 0..400 {
                both.work(&mut random);
                both.check(&format!("seed {seed}, step {step}"));
            }
            while let Some(at) = both.held.oldest() {
                both.remove(at);
                both.check(&format!("seed {seed}, at the end"));
            }
        }
    }

    #[test]
    fn the_reserve_evicts_only_above_its_share_or_last() {
        let mut both = Both::new(4_000);
        for number in 0..10 {
            both.insert(number, 0, 200, SECOND);
        }
        let protected: Vec<_> = (0..5).map(|index| both.things[index].handle).collect();
        protected.iter().for_each(|at| both.move_to_reserve(*at));
        // Its part is 1,000 of 4,000 bytes: other entries are evicted first.
        assert_eq!(both.held.victim(), Some(both.things[5].handle));
        both.charge(protected[3], 201);
        assert_eq!(both.held.victim(), Some(protected[0]), "a byte above its part, its own oldest goes");
        both.charge(protected[3], 200);
        for _ in 0..5 {
            let at = both.held.victim().unwrap();
            assert!(!protected.contains(&at));
            both.remove(at);
        }
        assert_eq!(both.held.victim(), Some(protected[0]), "nothing else is left");
    }

    #[test]
    fn only_a_flooding_source_is_evicted_before_small_ones() {
        let mut both = Both::new(usize::MAX / 2);
        for number in 0..200 {
            both.insert(number, number as u8, 2_464, SECOND);
        }
        // Eight open datagrams are no flood among 200 sources with one each.
        (200..208).for_each(|number| both.insert(number, 255, 2_464, SECOND));
        assert_eq!(both.held.victim(), Some(both.things[0].handle));
        (208..240).for_each(|number| both.insert(number, 255, 2_464, SECOND));
        assert_eq!(both.held.victim(), Some(both.things[200].handle), "its oldest goes first");
    }

    #[test]
    fn every_hash_is_drawn_with_the_secret() {
        // Without the secret in it, what a key hashes to could be foreseen.
        let hashes = |bits| {
            let mut held = FairTable::new(1_000, &[SECOND], Secret::new(bits));
            SEEN.take();
            let at = held.insert(Time::ZERO, Seeing(7), (), 1, SECOND);
            held.insert(Time::ZERO, Seeing(8), (), 1, SECOND);
            assert_eq!(held.find(&Seeing(7)), Some(at));
            held.remove(at);
            SEEN.take()
        };
        let (one, other) = (hashes(1), hashes(1 << 64));
        assert!(one.len() >= 2, "what is put in and sought is hashed");
        assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{one:?}");
    }

    #[test]
    fn the_newest_entry_is_hashed_when_the_next_arrives() {
        let mut held = FairTable::new(1_000, &[SECOND], Secret::new(1));
        SEEN.take();
        let at = held.insert(Time::ZERO, Seeing(7), (), 1, SECOND);
        held.charge(at, 5);
        assert_eq!((held.find(&Seeing(7)), held.charged()), (Some(at), 5));
        held.remove(at);
        assert!(SEEN.take().is_empty(), "what comes and goes alone costs no hash");
        held.insert(Time::ZERO, Seeing(7), (), 1, SECOND);
        held.insert(Time::ZERO, Seeing(8), (), 1, SECOND);
        assert!(!SEEN.take().is_empty());
    }

    /// The table under test, and the model: a list that is searched completely.
    struct Both {
        held: FairTable<Name, u32>,
        things: Vec<Thing>,
        /// Sources in the order in which they entered their usage bucket.
        sources: Vec<(u8, usize)>,
        limit: usize,
        now: Time,
        clock: u64,
    }

    impl Both {
        fn new(limit: usize) -> Both {
            Both {
                held: FairTable::new(limit, &TIMEOUTS, Secret::new(9)),
                things: Vec::new(),
                sources: Vec::new(),
                limit,
                now: Time::ZERO,
                clock: 0,
            }
        }

        fn work(&mut self, random: &mut fastrand::Rng) {
            self.now = self.now + Duration::from_millis(random.u64(..300));
            let any =
                |both: &Both, random: &mut fastrand::Rng| random.choice(&both.things).map(|thing| thing.handle);
            match random.u8(..12) {
                10 | 11 => {
                    if let Some(at) = any(self, random) {
                        self.touch(at, Duration::from_millis(random.u64(..4_000)));
                    }
                }
                0..4 => {
                    let (number, source) = (random.u32(..50), random.u8(..5));
                    let wanted = Duration::from_millis(random.u64(..4_000));
                    if self.held.find(&Name { number, source }).is_none() {
                        let charge = if random.u8(..8) > 0 { random.usize(..3_000) } else { 0 };
                        self.insert(number, source, charge, wanted);
                    }
                }
                4 | 5 => {
                    if let Some(at) = any(self, random) {
                        let charge = if random.bool() { random.usize(..9_000) } else { 0 };
                        self.charge(at, charge);
                    }
                }
                6 => {
                    if let Some(at) = any(self, random) {
                        self.move_to_reserve(at);
                    }
                }
                7 => {
                    if let Some(at) = any(self, random) {
                        self.remove(at);
                    }
                }
                8 => {
                    while let Some(at) = self.held.overdue(self.now) {
                        self.remove(at);
                    }
                    assert!(self.things.iter().all(|thing| thing.deadline > self.now));
                }
                _ => {
                    while let Some(at) = self.held.over_limit() {
                        self.remove(at);
                    }
                    assert!(self.held.charged() <= self.limit);
                }
            }
        }

        fn insert(&mut self, number: u32, source: u8, charge: usize, wanted: Duration) {
            let name = Name { number, source };
            let handle = self.held.insert(self.now, name, number, charge, wanted);
            let timeout = timeout_for(wanted);
            let (deadline, lined_up) = (self.now + timeout, self.tick());
            self.things.push(Thing { name, handle, charge, deadline, timeout, lined_up, protected: None });
            self.settle(source);
        }

        fn touch(&mut self, at: Handle, wanted: Duration) {
            self.held.refresh(self.now, at, wanted);
            let timeout = timeout_for(wanted);
            let (deadline, lined_up) = (self.now + timeout, self.tick());
            let thing = self.thing(at);
            if (thing.timeout, thing.deadline) == (timeout, deadline) {
                return;
            }
            (thing.timeout, thing.deadline, thing.lined_up) = (timeout, deadline, lined_up);
        }

        fn tick(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn charge(&mut self, at: Handle, charge: usize) {
            self.held.charge(at, charge);
            let index = self.things.iter().position(|thing| thing.handle == at).unwrap();
            let thing = &mut self.things[index];
            let before = std::mem::replace(&mut thing.charge, charge);
            let source = thing.name.source;
            if charge == 0 {
                thing.protected = None;
            } else if before == 0 {
                // To the end of its source's list.
                let thing = self.things.remove(index);
                self.things.push(thing);
            }
            self.settle(source);
        }

        fn move_to_reserve(&mut self, at: Handle) {
            self.held.move_to_reserve(at);
            let clock = self.tick();
            let thing = self.thing(at);
            if thing.charge > 0 {
                thing.protected.get_or_insert(clock);
            }
            let source = thing.name.source;
            self.settle(source);
        }

        fn remove(&mut self, at: Handle) {
            let number = self.held.remove(at);
            let index = self.things.iter().position(|thing| thing.handle == at).unwrap();
            let name = self.things.remove(index).name;
            assert_eq!(number, name.number, "the thing that was put in comes out");
            self.settle(name.source);
        }

        fn thing(&mut self, at: Handle) -> &mut Thing {
            self.things.iter_mut().find(|thing| thing.handle == at).unwrap()
        }

        fn open(&self, source: u8) -> impl Iterator<Item = &Thing> {
            let of_it =
                move |thing: &&Thing| thing.protected.is_none() && thing.charge > 0 && thing.name.source == source;
            self.things.iter().filter(of_it)
        }

        /// Moves a source whose bucket changed to the end of the new bucket. Removes a source without entries.
        fn settle(&mut self, source: u8) {
            let level = bucket(self.open(source).map(|thing| thing.charge).sum());
            let holds = self.open(source).next().is_some();
            let known = self.sources.iter().position(|(known, _)| *known == source);
            if let Some(index) = known.filter(|index| !holds || self.sources[*index].1 != level) {
                self.sources.remove(index);
            }
            if holds && !self.sources.iter().any(|(known, _)| *known == source) {
                self.sources.push((source, level));
            }
        }

        fn victim(&self) -> Option<Handle> {
            let mut reserve: Vec<_> = self.things.iter().filter(|thing| thing.protected.is_some()).collect();
            reserve.sort_by_key(|thing| thing.protected);
            let reserved: usize = reserve.iter().map(|thing| thing.charge).sum();
            if reserved > self.limit / 4 {
                return reserve.first().map(|thing| thing.handle);
            }
            // From the highest bucket down, until an eighth of the unprotected bytes lies there or above.
            let holds_from = |least: usize| {
                let of_them = self.sources.iter().filter(|(_, level)| *level >= least);
                of_them.flat_map(|(source, _)| self.open(*source)).map(|thing| thing.charge).sum::<usize>()
            };
            let eighth = holds_from(0) / 8;
            let heaviest =
                self.sources.iter().map(|(_, level)| *level).filter(|level| holds_from(*level) >= eighth);
            let heaviest = heaviest.max();
            let source = heaviest.and_then(|heaviest| self.sources.iter().find(|(_, level)| *level == heaviest));
            let thing = source.and_then(|(source, _)| self.open(*source).next());
            thing.or(reserve.first().copied()).map(|thing| thing.handle)
        }

        /// Checks that, among the entries with a time-out of at most `longest`, the table returns the one with the
        /// earliest deadline. Of entries with equal deadlines, it must be the first of its time-out class.
        fn check_oldest(&self, longest: Duration, what: &str) {
            let within = || self.things.iter().filter(|thing| thing.timeout <= longest);
            let earliest = within().map(|thing| thing.deadline).min();
            let firsts = TIMEOUTS.map(|timeout| {
                let of_it = within().filter(|thing| thing.timeout == timeout && Some(thing.deadline) == earliest);
                of_it.min_by_key(|thing| thing.lined_up).map(|thing| thing.handle)
            });
            let found = self.held.oldest_within(longest);
            assert_eq!(found.is_some(), earliest.is_some(), "{what}: {longest:?}");
            assert!(found.is_none() || firsts.contains(&found), "{what}: {longest:?}");
            if longest >= TIMEOUTS[0] {
                assert_eq!(found, self.held.oldest(), "{what}: all of them");
            }
        }

        fn check(&mut self, what: &str) {
            assert_eq!(self.held.count(), self.things.len(), "{what}");
            assert_eq!(self.held.values().count(), self.things.len(), "{what}");
            let charged = self.things.iter().map(|thing| thing.charge).sum::<usize>();
            assert_eq!(self.held.charged(), charged, "{what}");
            let next = self.things.iter().map(|thing| thing.deadline).min();
            assert_eq!(self.held.next_deadline(), next, "{what}");
            assert_eq!(self.held.victim(), self.victim(), "{what}: {:?}", self.things);
            assert_eq!(self.held.over_limit(), self.victim().filter(|_| charged > self.limit), "{what}");
            for thing in &self.things {
                assert_eq!(self.held.find(&thing.name), Some(thing.handle), "{what}");
            }
            // In one time-out class, the entry that came or was refreshed first expires first.
            for timeout in TIMEOUTS {
                let mut of_it: Vec<_> = self.things.iter().filter(|thing| thing.timeout == timeout).collect();
                of_it.sort_by_key(|thing| thing.lined_up);
                assert!(of_it.is_sorted_by_key(|thing| thing.deadline), "{what}");
            }
            for longest in
                [Duration::ZERO, Duration::from_millis(250), Duration::from_millis(999), SECOND, SECOND * 9]
            {
                self.check_oldest(longest, what);
            }
            let late = self.held.overdue(self.now).map(|at| {
                let thing = self.things.iter().find(|thing| thing.handle == at).unwrap();
                thing.deadline <= self.now
            });
            assert_eq!(late, next.filter(|next| *next <= self.now).map(|_| true), "{what}");
        }
    }

    fn timeout_for(wanted: Duration) -> Duration {
        let fitting = TIMEOUTS.into_iter().filter(|timeout| *timeout <= wanted).max();
        fitting.unwrap_or(*TIMEOUTS.iter().min().unwrap())
    }

    /// A key that records its hashes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Seeing(u64);

    impl Key for Seeing {
        fn source(&self) -> Address {
            address(1)
        }

        fn hash(&self, table: &TableKey) -> u64 {
            let hash = table.hash([self.0, 0]);
            SEEN.with_borrow_mut(|seen| seen.push(hash));
            hash
        }
    }

    impl Key for Name {
        fn source(&self) -> Address {
            address(self.source)
        }

        fn hash(&self, table: &TableKey) -> u64 {
            // Few different hashes, so that keys meet in the table.
            table.hash([u64::from(self.number % 4), 0])
        }
    }

    fn address(number: u8) -> Address {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)).into()
    }

    thread_local! {
        static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUTS: [Duration; 3] = [Duration::from_secs(3), Duration::from_millis(250), SECOND];
}
