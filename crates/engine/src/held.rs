//! Things under keys in, the one to give up next out.
//!
//! Everything that waits lives here: found by key, charged in bytes, and in two orders at once. By patience: things of
//! one patience wait in line, so arrival order is deadline order and expiry needs no heap. By share: when the limit is
//! reached, the sources that hold the most give up their oldest first, so a flood from few sources hurts only them, and
//! one from many loses its own oldest (reliability: survival grows with the limit, never to nothing; rel:G24, rel:G27).
//!
//! Which sources hold the most: those that hold about the same, within half a power of two, stand on a level; the level
//! that gives up is the highest that, with those above it, holds a part of the memory worth speaking of. So a host with a
//! few datagrams open is not taken for the flood of a thousand hosts with one each. It is wrong where an honest host holds
//! as much as each flooding one; that costs this host its oldest datagrams.
//!
//! Things that are protected wait in a line of their own and give up last, as long as they keep within the reserve
//! (C31).

use crate::secret::Secret;
use core::hash::Hash;
use core::time::Duration;
use hashbrown::HashTable;
use packet::{Address, Time};

/// A key knows whose memory its thing takes.
pub trait Key: Eq + Hash + Copy {
    /// Who sent what is held under this key.
    fn source(&self) -> Address;
}

/// Things held under keys, within a limit of bytes.
///
/// Invariants: every thing is in the line of its patience and in one line of ranks, its source's or the reserve; a
/// source exists as long as something unprotected of it is held; the charges of all things add up to `charged`.
#[derive(Debug)]
pub struct Held<K, V> {
    table: HashTable<u32>,
    slots: Slab<Slot<K, V>>,
    patiences: Vec<Patience>,
    sources_table: HashTable<u32>,
    sources: Slab<Source>,
    /// Sources by how much they hold, half a power of two a level.
    levels: [Level; LEVEL_COUNT],
    reserve: Line,
    reserve_charged: usize,
    reserve_limit: usize,
    charged: usize,
    limit: usize,
    secret: Secret,
}

/// Where a thing is held; valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

impl Handle {
    /// A place where nothing is ever held.
    pub const NONE: Handle = Handle(u32::MAX);
}

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    hash: u64,
    value: V,
    deadline: Time,
    charge: usize,
    patience: u8,
    /// The source whose line it is in; none in the reserve.
    source: Option<u32>,
    by_patience: Links,
    by_rank: Links,
}

#[derive(Debug)]
struct Patience {
    length: Duration,
    line: Line,
}

#[derive(Debug)]
struct Source {
    address: Address,
    hash: u64,
    charged: usize,
    things: Line,
    links: Links,
}

/// Sources that hold about the same.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    line: Line,
    /// What they are charged in all.
    charged: usize,
}

impl<K: Key, V> Held<K, V> {
    /// Room for things charged `limit` bytes in all, a quarter of it reserved for what is protected; each waits for one
    /// of `patiences`.
    pub fn new(limit: usize, patiences: &[Duration], secret: Secret) -> Held<K, V> {
        Held {
            table: HashTable::new(),
            slots: Slab::default(),
            patiences: patiences.iter().map(|length| Patience { length: *length, line: Line::default() }).collect(),
            sources_table: HashTable::new(),
            sources: Slab::default(),
            levels: [Level::default(); LEVEL_COUNT],
            reserve: Line::default(),
            reserve_charged: 0,
            reserve_limit: limit / RESERVE_SHARE,
            charged: 0,
            limit,
            secret,
        }
    }

    /// Hashes by another key; before anything is held.
    pub fn set_key(&mut self, key: Secret) {
        assert!(self.table.is_empty(), "what is held is found by the key it was put in with");
        self.secret = key;
    }

    /// What is held under this key.
    pub fn find(&self, key: &K) -> Option<Handle> {
        let found = self.table.find(self.secret.hash(key), |index| self.slots.at(*index).key == *key)?;
        Some(Handle(*found))
    }

    /// The thing at a place that was seen earlier, if it is still under this key.
    pub fn recall(&mut self, handle: Handle, key: &K) -> Option<&mut V> {
        let slot = self.slots.get_mut(handle.0)?;
        (slot.key == *key).then_some(&mut slot.value)
    }

    /// The thing at a place.
    pub fn at_mut(&mut self, handle: Handle) -> &mut V {
        &mut self.slots.at_mut(handle.0).value
    }

    /// Holds a thing under a new key, for the longest patience that is not above `wanted` (else the shortest).
    pub fn insert(&mut self, now: Time, key: K, value: V, charge: usize, wanted: Duration) -> Handle {
        let patience = self.patience_for(wanted);
        let deadline = now + self.patiences.get(patience).map_or(wanted, |patience| patience.length);
        let links = Links::default();
        let hash = self.secret.hash(&key);
        let slot = Slot {
            key,
            hash,
            value,
            deadline,
            charge,
            patience: patience as u8,
            source: None,
            by_patience: links,
            by_rank: links,
        };
        let index = self.slots.add(slot);
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |index| slots.at(*index).hash);
        if let Some(patience) = self.patiences.get_mut(patience) {
            patience.line.push_back(&mut self.slots, index, |slot| &mut slot.by_patience);
        }
        self.charged += charge;
        self.enter_source(index);
        Handle(index)
    }

    /// Charges a thing anew.
    pub fn charge(&mut self, handle: Handle, charge: usize) {
        let slot = self.slots.at_mut(handle.0);
        if slot.charge == charge {
            return;
        }
        let before = core::mem::replace(&mut slot.charge, charge);
        self.charged = self.charged - before + charge;
        match slot.source {
            Some(source) => self.move_source(source, before, charge),
            None => self.reserve_charged = self.reserve_charged - before + charge,
        }
    }

    /// Gives a thing a new deadline, as if it came now: for patience that is about idleness.
    pub fn touch(&mut self, now: Time, handle: Handle, wanted: Duration) {
        let patience = self.patience_for(wanted);
        let slot = self.slots.at_mut(handle.0);
        let before = usize::from(core::mem::replace(&mut slot.patience, patience as u8));
        slot.deadline = now + self.patiences.get(patience).map_or(wanted, |patience| patience.length);
        if before == patience && slot.by_patience.after.is_none() {
            return;
        }
        if let Some(patience) = self.patiences.get_mut(before) {
            patience.line.unlink(&mut self.slots, handle.0, |slot| &mut slot.by_patience);
        }
        if let Some(patience) = self.patiences.get_mut(patience) {
            patience.line.push_back(&mut self.slots, handle.0, |slot| &mut slot.by_patience);
        }
    }

    /// Moves a thing to the reserve.
    pub fn protect(&mut self, handle: Handle) {
        if self.slots.at(handle.0).source.is_none() {
            return;
        }
        self.leave_source(handle.0);
        self.slots.at_mut(handle.0).source = None;
        self.reserve.push_back(&mut self.slots, handle.0, |slot| &mut slot.by_rank);
        self.reserve_charged += self.slots.at(handle.0).charge;
    }

    /// Takes a thing out.
    pub fn remove(&mut self, handle: Handle) -> V {
        let slot = self.slots.at(handle.0);
        let (hash, charge, patience, source) = (slot.hash, slot.charge, slot.patience, slot.source);
        match self.table.find_entry(hash, |index| *index == handle.0) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => panic!("what is held is found by its key"),
        }
        if let Some(patience) = self.patiences.get_mut(usize::from(patience)) {
            patience.line.unlink(&mut self.slots, handle.0, |slot| &mut slot.by_patience);
        }
        match source {
            Some(_) => self.leave_source(handle.0),
            None => {
                self.reserve.unlink(&mut self.slots, handle.0, |slot| &mut slot.by_rank);
                self.reserve_charged -= charge;
            }
        }
        self.charged -= charge;
        self.slots.take(handle.0).value
    }

    /// When the next thing's patience ends.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heads().map(|index| self.slots.at(index).deadline).min()
    }

    /// A thing whose patience has ended.
    pub fn late(&self, now: Time) -> Option<Handle> {
        self.heads().find(|index| self.slots.at(*index).deadline <= now).map(Handle)
    }

    /// The thing that has waited longest of those with the earliest deadline; for giving up everything in order.
    pub fn oldest(&self) -> Option<Handle> {
        self.heads().min_by_key(|index| self.slots.at(*index).deadline).map(Handle)
    }

    /// The same among those whose patience is at most this.
    pub fn oldest_within(&self, patience: Duration) -> Option<Handle> {
        let lines = self.patiences.iter().filter(|line| line.length <= patience);
        lines.filter_map(|line| line.line.first).min_by_key(|index| self.slots.at(*index).deadline).map(Handle)
    }

    /// The thing to give up, as long as more than the limit is charged.
    pub fn surplus(&self) -> Option<Handle> {
        if self.charged <= self.limit { None } else { self.weakest() }
    }

    /// The thing to give up where memory is needed: of the reserve when that is over its part, else the oldest of the
    /// source that has been longest among those that hold the most.
    pub fn weakest(&self) -> Option<Handle> {
        if self.reserve_charged > self.reserve_limit {
            return self.reserve.first.map(Handle);
        }
        let worth_speaking = (self.charged - self.reserve_charged) / LEVEL_SHARE;
        let mut above = 0;
        let heaviest = self.levels.iter().take(level(self.charged) + 1).rev().find(|level| {
            above += level.charged;
            level.line.first.is_some() && above >= worth_speaking
        });
        let source = heaviest.and_then(|level| level.line.first);
        let thing = source.and_then(|source| self.sources.at(source).things.first);
        thing.or(self.reserve.first).map(Handle)
    }

    /// Bytes charged for all that is held.
    pub fn charged(&self) -> usize {
        self.charged
    }

    /// How many things are held.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// All that is held, in no order that matters: for counting.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().map(|slot| &slot.value)
    }

    fn heads(&self) -> impl Iterator<Item = u32> {
        self.patiences.iter().filter_map(|patience| patience.line.first)
    }

    fn patience_for(&self, wanted: Duration) -> usize {
        // The longest that fits is better than any that does not; of those that do not, the shortest.
        let rank =
            |length: Duration| if length <= wanted { (true, length) } else { (false, Duration::MAX - length) };
        let ranked = self.patiences.iter().enumerate().map(|(index, patience)| (rank(patience.length), index));
        ranked.reduce(|best, other| if other.0 > best.0 { other } else { best }).map_or(0, |(_, index)| index)
    }

    fn enter_source(&mut self, index: u32) {
        let address = self.slots.at(index).key.source();
        let hash = self.secret.hash(&address);
        let found = self.sources_table.find(hash, |source| self.sources.at(*source).address == address);
        let source = match found {
            Some(source) => *source,
            None => self.add_source(address, hash),
        };
        self.slots.at_mut(index).source = Some(source);
        self.sources.at_mut(source).things.push_back(&mut self.slots, index, |slot| &mut slot.by_rank);
        self.move_source(source, 0, self.slots.at(index).charge);
    }

    fn add_source(&mut self, address: Address, hash: u64) -> u32 {
        let links = Links::default();
        let source = self.sources.add(Source { address, hash, charged: 0, things: Line::default(), links });
        let sources = &self.sources;
        self.sources_table.insert_unique(hash, source, |source| sources.at(*source).hash);
        self.level_line(level(0)).push_back_source(source);
        source
    }

    fn leave_source(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let (Some(source), charge) = (slot.source, slot.charge) else { return };
        self.sources.at_mut(source).things.unlink(&mut self.slots, index, |slot| &mut slot.by_rank);
        self.move_source(source, charge, 0);
        if self.sources.at(source).things.first.is_none() {
            self.drop_source(source);
        }
    }

    fn drop_source(&mut self, source: u32) {
        let Source { hash, charged, .. } = *self.sources.at(source);
        self.level_line(level(charged)).unlink_source(source);
        match self.sources_table.find_entry(hash, |index| *index == source) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => panic!("a source is found by its address"),
        }
        self.sources.take(source);
    }

    /// Moves a source to the level of its charge.
    fn move_source(&mut self, source: u32, less: usize, more: usize) {
        let charged = &mut self.sources.at_mut(source).charged;
        let before = *charged;
        *charged = before - less + more;
        let after = *charged;
        self.level_mut(level(before)).charged -= before;
        self.level_mut(level(after)).charged += after;
        if level(before) != level(after) {
            self.level_line(level(before)).unlink_source(source);
            self.level_line(level(after)).push_back_source(source);
        }
    }

    fn level_line(&mut self, level: usize) -> SourceLine<'_> {
        match self.levels.get_mut(level) {
            Some(level) => SourceLine { line: &mut level.line, sources: &mut self.sources },
            None => panic!("every charge has its level"),
        }
    }

    fn level_mut(&mut self, level: usize) -> &mut Level {
        match self.levels.get_mut(level) {
            Some(level) => level,
            None => panic!("every charge has its level"),
        }
    }
}

/// A line of sources, with the slab that they live in.
struct SourceLine<'a> {
    line: &'a mut Line,
    sources: &'a mut Slab<Source>,
}

impl SourceLine<'_> {
    fn push_back_source(self, source: u32) {
        self.line.push_back(self.sources, source, |source| &mut source.links);
    }

    fn unlink_source(self, source: u32) {
        self.line.unlink(self.sources, source, |source| &mut source.links);
    }
}

/// Two levels for each power of two: one for its lower half, one for its upper.
fn level(charged: usize) -> usize {
    match charged.checked_ilog2() {
        None | Some(0) => 0,
        Some(log) => 2 * log as usize + (charged >> (log - 1) & 1),
    }
}

/// First and last of a line whose members know their neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    first: Option<u32>,
    last: Option<u32>,
}

/// A member's neighbours in a line.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    before: Option<u32>,
    after: Option<u32>,
}

impl Line {
    fn push_back<T>(&mut self, slab: &mut Slab<T>, index: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(slab.at_mut(index)) = Links { before: self.last, after: None };
        match self.last {
            Some(last) => links(slab.at_mut(last)).after = Some(index),
            None => self.first = Some(index),
        }
        self.last = Some(index);
    }

    fn unlink<T>(&mut self, slab: &mut Slab<T>, index: u32, links: impl Fn(&mut T) -> &mut Links) {
        let Links { before, after } = *links(slab.at_mut(index));
        match before {
            Some(before) => links(slab.at_mut(before)).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => links(slab.at_mut(after)).before = before,
            None => self.last = before,
        }
    }
}

/// Places that are used again, so that nothing is allocated once as many things were held as will be.
#[derive(Debug)]
struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                if let Some(place) = self.places.get_mut(index as usize) {
                    *place = Some(thing);
                }
                index
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, index: u32) -> T {
        let Some(thing) = self.places.get_mut(index as usize).and_then(Option::take) else {
            panic!("a place that is linked is taken")
        };
        self.free.push(index);
        thing
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    fn at(&self, index: u32) -> &T {
        match self.places.get(index as usize) {
            Some(Some(thing)) => thing,
            _ => panic!("a place that is linked is taken"),
        }
    }

    fn at_mut(&mut self, index: u32) -> &mut T {
        match self.get_mut(index) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

/// Two levels for each power of two that a charge can reach.
const LEVEL_COUNT: usize = 2 * usize::BITS as usize;
/// The part of the memory that the heaviest sources hold before they give up first: one in this many.
const LEVEL_SHARE: usize = 8;
/// The reserve's part of the limit: one in this many.
const RESERVE_SHARE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use core::hash::Hasher;
    use core::net::{IpAddr, Ipv4Addr};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Name {
        number: u32,
        source: u8,
    }

    /// What the naive model knows of a thing; the model is all of them, in order of arrival.
    #[derive(Clone, Debug)]
    struct Thing {
        name: Name,
        handle: Handle,
        charge: usize,
        deadline: Time,
        patience: Duration,
        /// When it came to the end of its line.
        lined_up: u64,
        /// When it was protected, if it was.
        protected: Option<u64>,
    }

    #[test]
    fn random_work_agrees_with_a_list_of_things() {
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
    fn the_reserve_gives_up_only_beyond_its_part_or_last() {
        let mut both = Both::new(4_000);
        for number in 0..10 {
            both.insert(number, 0, 200, SECOND);
        }
        let protected: Vec<_> = (0..5).map(|index| both.things[index].handle).collect();
        protected.iter().for_each(|at| both.protect(*at));
        // 1,000 of 4,000 bytes is its part: the others go first.
        assert_eq!(both.held.weakest(), Some(both.things[5].handle));
        both.charge(protected[3], 201);
        assert_eq!(both.held.weakest(), Some(protected[0]), "a byte above its part, its own oldest goes");
        both.charge(protected[3], 200);
        for _ in 0..5 {
            let at = both.held.weakest().unwrap();
            assert!(!protected.contains(&at));
            both.remove(at);
        }
        assert_eq!(both.held.weakest(), Some(protected[0]), "nothing else is left");
    }

    #[test]
    fn a_flooding_source_goes_before_many_with_little_and_a_busy_one_after_them() {
        let mut both = Both::new(usize::MAX / 2);
        for number in 0..200 {
            both.insert(number, number as u8, 2_464, SECOND);
        }
        // Eight open datagrams do not make a flood among 200 sources with one each.
        (200..208).for_each(|number| both.insert(number, 255, 2_464, SECOND));
        assert_eq!(both.held.weakest(), Some(both.things[0].handle));
        (208..240).for_each(|number| both.insert(number, 255, 2_464, SECOND));
        assert_eq!(both.held.weakest(), Some(both.things[200].handle), "its oldest goes first");
    }

    #[test]
    fn every_hash_is_drawn_with_the_secret() {
        // A key sees the state of who hashes it: without the secret in it, that state could be foreseen.
        let states = |bits| {
            let mut held = Held::new(1_000, &[SECOND], Secret::new(bits));
            SEEN.take();
            let at = held.insert(Time::ZERO, Seeing(7), (), 1, SECOND);
            assert_eq!(held.find(&Seeing(7)), Some(at));
            held.remove(at);
            SEEN.take()
        };
        let (one, other) = (states(1), states(1 << 64));
        assert!(one.len() >= 2, "what is put in and sought is hashed");
        assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{one:?}");
    }

    /// What is tested beside a list that is searched from end to end.
    struct Both {
        held: Held<Name, u32>,
        things: Vec<Thing>,
        /// Sources in the order in which they came to the level that they are on.
        sources: Vec<(u8, usize)>,
        limit: usize,
        now: Time,
        clock: u64,
    }

    impl Both {
        fn new(limit: usize) -> Both {
            Both {
                held: Held::new(limit, &PATIENCES, Secret::new(9)),
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
                        self.insert(number, source, random.usize(..3_000), wanted);
                    }
                }
                4 | 5 => {
                    if let Some(at) = any(self, random) {
                        self.charge(at, random.usize(..9_000));
                    }
                }
                6 => {
                    if let Some(at) = any(self, random) {
                        self.protect(at);
                    }
                }
                7 => {
                    if let Some(at) = any(self, random) {
                        self.remove(at);
                    }
                }
                8 => {
                    while let Some(at) = self.held.late(self.now) {
                        self.remove(at);
                    }
                    assert!(self.things.iter().all(|thing| thing.deadline > self.now));
                }
                _ => {
                    while let Some(at) = self.held.surplus() {
                        self.remove(at);
                    }
                    assert!(self.held.charged() <= self.limit);
                }
            }
        }

        fn insert(&mut self, number: u32, source: u8, charge: usize, wanted: Duration) {
            let name = Name { number, source };
            let handle = self.held.insert(self.now, name, number, charge, wanted);
            let patience = patience_for(wanted);
            let (deadline, lined_up) = (self.now + patience, self.tick());
            self.things.push(Thing { name, handle, charge, deadline, patience, lined_up, protected: None });
            self.settle(source);
        }

        fn touch(&mut self, at: Handle, wanted: Duration) {
            self.held.touch(self.now, at, wanted);
            let patience = patience_for(wanted);
            let (deadline, lined_up) = (self.now + patience, self.tick());
            let thing = self.thing(at);
            (thing.patience, thing.deadline, thing.lined_up) = (patience, deadline, lined_up);
        }

        fn tick(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn charge(&mut self, at: Handle, charge: usize) {
            self.held.charge(at, charge);
            let thing = self.thing(at);
            thing.charge = charge;
            let source = thing.name.source;
            self.settle(source);
        }

        fn protect(&mut self, at: Handle) {
            self.held.protect(at);
            let clock = self.tick();
            let thing = self.thing(at);
            thing.protected.get_or_insert(clock);
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
            let of_it = move |thing: &&Thing| thing.protected.is_none() && thing.name.source == source;
            self.things.iter().filter(of_it)
        }

        /// A source that changes its level goes to the end of the new one; one that holds nothing is forgotten.
        fn settle(&mut self, source: u8) {
            let level = level(self.open(source).map(|thing| thing.charge).sum());
            let holds = self.open(source).next().is_some();
            let known = self.sources.iter().position(|(known, _)| *known == source);
            if let Some(index) = known.filter(|index| !holds || self.sources[*index].1 != level) {
                self.sources.remove(index);
            }
            if holds && !self.sources.iter().any(|(known, _)| *known == source) {
                self.sources.push((source, level));
            }
        }

        fn weakest(&self) -> Option<Handle> {
            let mut reserve: Vec<_> = self.things.iter().filter(|thing| thing.protected.is_some()).collect();
            reserve.sort_by_key(|thing| thing.protected);
            let reserved: usize = reserve.iter().map(|thing| thing.charge).sum();
            if reserved > self.limit / 4 {
                return reserve.first().map(|thing| thing.handle);
            }
            // From the top down, until an eighth of what is unprotected lies there or above.
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

        /// Of those whose patience is at most this, the one with the earliest deadline; of equals, the first in its line.
        fn check_oldest(&self, longest: Duration, what: &str) {
            let within = || self.things.iter().filter(|thing| thing.patience <= longest);
            let earliest = within().map(|thing| thing.deadline).min();
            let firsts = PATIENCES.map(|patience| {
                let of_it = within().filter(|thing| thing.patience == patience && Some(thing.deadline) == earliest);
                of_it.min_by_key(|thing| thing.lined_up).map(|thing| thing.handle)
            });
            let found = self.held.oldest_within(longest);
            assert_eq!(found.is_some(), earliest.is_some(), "{what}: {longest:?}");
            assert!(found.is_none() || firsts.contains(&found), "{what}: {longest:?}");
            if longest >= PATIENCES[0] {
                assert_eq!(found, self.held.oldest(), "{what}: all of them");
            }
        }

        fn check(&self, what: &str) {
            assert_eq!(self.held.count(), self.things.len(), "{what}");
            assert_eq!(self.held.values().count(), self.things.len(), "{what}");
            let charged = self.things.iter().map(|thing| thing.charge).sum::<usize>();
            assert_eq!(self.held.charged(), charged, "{what}");
            let next = self.things.iter().map(|thing| thing.deadline).min();
            assert_eq!(self.held.next_deadline(), next, "{what}");
            assert_eq!(self.held.weakest(), self.weakest(), "{what}: {:?}", self.things);
            assert_eq!(self.held.surplus(), self.weakest().filter(|_| charged > self.limit), "{what}");
            for thing in &self.things {
                assert_eq!(self.held.find(&thing.name), Some(thing.handle), "{what}");
            }
            // Within one patience, the first that came or was touched is the first that is late.
            for patience in PATIENCES {
                let mut of_it: Vec<_> = self.things.iter().filter(|thing| thing.patience == patience).collect();
                of_it.sort_by_key(|thing| thing.lined_up);
                assert!(of_it.is_sorted_by_key(|thing| thing.deadline), "{what}");
            }
            for longest in
                [Duration::ZERO, Duration::from_millis(250), Duration::from_millis(999), SECOND, SECOND * 9]
            {
                self.check_oldest(longest, what);
            }
            let late = self.held.late(self.now).map(|at| {
                let thing = self.things.iter().find(|thing| thing.handle == at).unwrap();
                thing.deadline <= self.now
            });
            assert_eq!(late, next.filter(|next| *next <= self.now).map(|_| true), "{what}");
        }
    }

    fn patience_for(wanted: Duration) -> Duration {
        let fitting = PATIENCES.into_iter().filter(|patience| *patience <= wanted).max();
        fitting.unwrap_or(*PATIENCES.iter().min().unwrap())
    }

    /// A key that notes the state of whoever hashes it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Seeing(u64);

    impl Hash for Seeing {
        fn hash<H: Hasher>(&self, state: &mut H) {
            SEEN.with_borrow_mut(|seen| seen.push(state.finish()));
            state.write_u64(self.0);
        }
    }

    impl Key for Seeing {
        fn source(&self) -> Address {
            address(1)
        }
    }

    impl Hash for Name {
        fn hash<H: Hasher>(&self, state: &mut H) {
            // Few different hashes, so that keys meet in the table.
            state.write_u32(self.number % 4);
        }
    }

    impl Key for Name {
        fn source(&self) -> Address {
            address(self.source)
        }
    }

    fn address(number: u8) -> Address {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)).into()
    }

    thread_local! {
        static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCES: [Duration; 3] = [Duration::from_secs(3), Duration::from_millis(250), SECOND];
}
