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
//! Most things are held for a moment only: the newest is not lined up before another is held or touched, so one that comes
//! and goes alone costs no lines.
//!
//! Things that are protected wait in a line of their own and give up last, as long as they keep within the reserve
//! (C31).

use crate::index::Index;
use crate::secret::{Secret, TableKey};
use core::time::Duration;
use packet::{Address, Time};

/// A key knows whose memory its thing takes.
pub trait Key: Eq + Copy {
    /// Who sent what is held under this key.
    fn source(&self) -> Address;

    /// Its hash by the key of a table.
    fn hash(&self, table: &TableKey) -> u64;
}

/// Things held under keys, within a limit of bytes.
///
/// Invariants: every thing but the newest is in the index, in the line of its patience and in one line of ranks, its
/// source's or the reserve; the newest came after all of those; a source is on a level as long as something unprotected
/// of it is held; the charges of all things add up to `charged`.
#[derive(Debug)]
pub struct Held<K, V> {
    index: Index,
    slots: Slab<Slot<K, V>>,
    /// What is held but not lined up.
    newest: u32,
    /// The longest first.
    patiences: Vec<Patience>,
    /// What was last wanted, and which patience that is, of how many nanoseconds.
    last_wanted: Option<(Duration, (usize, u64))>,
    sources_index: Index,
    sources: Slab<Source>,
    /// The source that something was held of last: known even while nothing more of it is held.
    recent: u32,
    /// Sources by how much they hold, half a power of two a level.
    levels: Levels,
    reserve: Line,
    reserve_charged: usize,
    reserve_limit: usize,
    charged: usize,
    limit: usize,
    table_key: TableKey,
}

/// Where a thing is held; valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

/// Where nothing is held under a key; and its hash, where that had to be drawn to say so.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy(Option<u64>);

impl Handle {
    /// A place where nothing is ever held.
    pub const NONE: Handle = Handle(NONE);
}

#[derive(Debug)]
#[repr(C)]
struct Slot<K, V> {
    /// None where the place is free; the rest is then what was held here last.
    value: Option<V>,
    key: K,
    /// Its hash, once that is known.
    hash: u64,
    is_hashed: bool,
    deadline: Time,
    charge: usize,
    rank: Rank,
    patience: u8,
    by_patience: Links,
    by_rank: Links,
}

/// The line of ranks that a thing is in.
#[derive(Clone, Copy, Debug)]
enum Rank {
    /// None: it is the newest.
    Nowhere,
    Reserve,
    /// That of this source.
    Source(u32),
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

#[derive(Clone, Copy, Debug)]
struct Levels {
    levels: [Level; LEVEL_COUNT],
    /// One bit for each level that someone is on.
    taken: u128,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { levels: [Level::default(); LEVEL_COUNT], taken: 0 }
    }
}

impl<K: Key, V> Held<K, V> {
    /// Room for things charged `limit` bytes in all, a quarter of it reserved for what is protected; each waits for one
    /// of `patiences`.
    pub fn new(limit: usize, patiences: &[Duration], secret: Secret) -> Held<K, V> {
        let mut patiences: Vec<_> =
            patiences.iter().map(|length| Patience { length: *length, line: Line::default() }).collect();
        patiences.sort_by_key(|patience| core::cmp::Reverse(patience.length));
        Held {
            index: Index::default(),
            slots: Slab::default(),
            newest: NONE,
            last_wanted: None,
            patiences,
            sources_index: Index::default(),
            sources: Slab::default(),
            recent: NONE,
            levels: Levels::default(),
            reserve: Line::default(),
            reserve_charged: 0,
            reserve_limit: limit / RESERVE_SHARE,
            charged: 0,
            limit,
            table_key: TableKey::new(secret),
        }
    }

    /// Hashes by another key; before anything is held.
    pub fn set_key(&mut self, key: Secret) {
        assert!(self.count() == 0, "what is held is found by the key it was put in with");
        self.table_key = TableKey::new(key);
    }

    /// What is held under this key.
    pub fn find(&self, key: &K) -> Option<Handle> {
        self.seek(key).err()
    }

    /// The vacancy for what is to be held under this key, or the place of what is.
    ///
    /// # Errors
    /// Where it is held.
    #[inline]
    pub fn seek(&self, key: &K) -> Result<Vacancy, Handle> {
        if self.newest().is_some_and(|slot| slot.key == *key) {
            return Err(Handle(self.newest));
        }
        if self.index.count() == 0 {
            return Ok(Vacancy(None));
        }
        let hash = key.hash(&self.table_key);
        match self.index.find(hash, |at| self.slots.at(at).key == *key) {
            Some(at) => Err(Handle(at)),
            None => Ok(Vacancy(Some(hash))),
        }
    }

    /// The thing at a place that was seen earlier, if it is still under this key.
    pub fn recall(&mut self, handle: Handle, key: &K) -> Option<&mut V> {
        let (known, value) = self.look(handle)?;
        (known == key).then_some(value)
    }

    /// The thing at a place that was seen earlier, if any is, and what it is held under.
    #[inline(always)]
    pub fn look(&mut self, handle: Handle) -> Option<(&K, &mut V)> {
        let slot = self.slots.places.get_mut(handle.0 as usize)?;
        Some((&slot.key, slot.value.as_mut()?))
    }

    /// Has the processor fetch what is held at a place.
    #[inline]
    pub fn foresee(&self, handle: Handle) {
        if let Some(slot) = self.slots.places.get(handle.0 as usize) {
            packet::prefetch_value(slot);
        }
    }

    /// The thing at a place, if any is.
    #[inline]
    pub fn peek(&self, handle: Handle) -> Option<&V> {
        self.glimpse(handle).map(|(_, value)| value)
    }

    /// The thing at a place, if any is, and what it is held under.
    #[inline]
    pub fn glimpse(&self, handle: Handle) -> Option<(&K, &V)> {
        let slot = self.slots.places.get(handle.0 as usize)?;
        Some((&slot.key, slot.value.as_ref()?))
    }

    /// The thing at a place.
    #[inline]
    pub fn at_mut(&mut self, handle: Handle) -> &mut V {
        match &mut self.slots.at_mut(handle.0).value {
            Some(value) => value,
            None => panic!("what is asked for is held"),
        }
    }

    /// Holds a thing under a new key, for the longest patience that is not above `wanted` (else the shortest).
    pub fn insert(&mut self, now: Time, key: K, value: V, charge: usize, wanted: Duration) -> Handle {
        self.fill(now, Vacancy(None), key, value, charge, wanted)
    }

    /// Does the same where the vacancy for the key is known.
    #[inline(always)]
    pub fn fill(
        &mut self,
        now: Time,
        vacancy: Vacancy,
        key: K,
        value: V,
        charge: usize,
        wanted: Duration,
    ) -> Handle {
        self.line_up();
        let (patience, length) = self.patience_for(wanted);
        let at = self.slots.place(Slot::free(key));
        let slot = self.slots.at_mut(at);
        debug_assert!(slot.value.is_none());
        // A free place has nothing to be dropped.
        core::mem::forget(slot.value.replace(value));
        slot.key = key;
        (slot.hash, slot.is_hashed) = (vacancy.0.unwrap_or_default(), vacancy.0.is_some());
        slot.deadline = now.later(length);
        slot.charge = charge;
        slot.rank = Rank::Nowhere;
        slot.patience = patience as u8;
        self.newest = at;
        self.charged += charge;
        Handle(at)
    }

    /// Lines the newest up.
    #[inline]
    fn line_up(&mut self) {
        if self.newest != NONE {
            self.line_up_newest();
        }
    }

    fn line_up_newest(&mut self) {
        let at = core::mem::replace(&mut self.newest, NONE);
        let slot = self.slots.at_mut(at);
        if !slot.is_hashed {
            slot.hash = slot.key.hash(&self.table_key);
        }
        let slot = self.slots.at(at);
        let (hash, charge, address) = (slot.hash, slot.charge, slot.key.source());
        if let Some(patience) = self.patiences.get_mut(usize::from(slot.patience)) {
            patience.line.push_back(&mut self.slots, at, |slot| &mut slot.by_patience);
        }
        self.index.insert(hash, at);
        let source = self.source_of(address);
        self.slots.at_mut(at).rank = Rank::Source(source);
        self.enter_source(at, source, charge);
    }

    /// Charges a thing anew.
    pub fn charge(&mut self, handle: Handle, charge: usize) {
        let slot = self.slots.at_mut(handle.0);
        if slot.charge == charge {
            return;
        }
        let before = core::mem::replace(&mut slot.charge, charge);
        let rank = slot.rank;
        self.charged = self.charged - before + charge;
        if handle.0 != self.newest {
            self.line_up();
        }
        match rank {
            Rank::Nowhere => {}
            Rank::Reserve => self.reserve_charged = self.reserve_charged - before + charge,
            Rank::Source(source) => self.move_source(source, before, charge),
        }
    }

    /// Gives a thing a new deadline, as if it came now: for patience that is about idleness. Where its patience would end
    /// when it does anyway, it keeps its place.
    #[inline]
    pub fn touch(&mut self, now: Time, handle: Handle, wanted: Duration) {
        let (patience, length) = self.patience_for(wanted);
        let deadline = now.later(length);
        let slot = self.slots.at_mut(handle.0);
        if slot.deadline != deadline || usize::from(slot.patience) != patience {
            self.touch_at(handle, patience, deadline);
        }
    }

    fn touch_at(&mut self, handle: Handle, patience: usize, deadline: Time) {
        if handle.0 != self.newest {
            self.line_up();
        }
        let slot = self.slots.at_mut(handle.0);
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

    /// Moves a thing to the reserve; false where it is there.
    pub fn protect(&mut self, handle: Handle) -> bool {
        self.line_up();
        let slot = self.slots.at_mut(handle.0);
        let (Rank::Source(source), charge) = (slot.rank, slot.charge) else { return false };
        self.leave_source(handle.0, source, charge);
        self.enter_reserve(handle.0, charge);
        true
    }

    /// Takes a thing out.
    #[inline(always)]
    pub fn remove(&mut self, handle: Handle) -> V {
        if handle.0 == self.newest {
            self.newest = NONE;
        } else {
            self.leave_lines(handle.0);
        }
        let slot = self.slots.at_mut(handle.0);
        let Some(value) = slot.value.take() else { panic!("what is taken out is held") };
        self.charged -= slot.charge;
        self.slots.free.push(handle.0);
        value
    }

    fn leave_lines(&mut self, at: u32) {
        self.line_up();
        let slot = self.slots.at(at);
        let (hash, charge, rank) = (slot.hash, slot.charge, slot.rank);
        if let Some(patience) = self.patiences.get_mut(usize::from(slot.patience)) {
            patience.line.unlink(&mut self.slots, at, |slot| &mut slot.by_patience);
        }
        self.index.remove(hash, at);
        match rank {
            Rank::Nowhere => {}
            Rank::Reserve => {
                self.reserve.unlink(&mut self.slots, at, |slot| &mut slot.by_rank);
                self.reserve_charged -= charge;
            }
            Rank::Source(source) => self.leave_source(at, source, charge),
        }
    }

    /// When the next thing's patience ends.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heads().map(|at| self.slots.at(at).deadline).min()
    }

    /// A thing whose patience has ended.
    pub fn late(&self, now: Time) -> Option<Handle> {
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
    pub fn has_surplus(&self) -> bool {
        self.charged > self.limit
    }

    /// The thing to give up, as long as more than the limit is charged.
    pub fn surplus(&mut self) -> Option<Handle> {
        if self.has_surplus() { self.weakest() } else { None }
    }

    /// The thing to give up where memory is needed: of the reserve when that is over its part, else the oldest of the
    /// source that has been longest among those that hold the most.
    pub fn weakest(&mut self) -> Option<Handle> {
        self.line_up();
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

    /// Steps of the longest search for a thing by its key.
    pub fn longest_search(&self) -> usize {
        self.index.longest_search()
    }

    /// How many things are held.
    pub fn count(&self) -> usize {
        self.index.count() + usize::from(self.newest != NONE)
    }

    /// All that is held, in no order that matters: for counting.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.places.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The same, with what each is held under.
    pub fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.places.iter().filter_map(|slot| Some((&slot.key, slot.value.as_ref()?)))
    }

    /// The first of each line, and the newest, which is behind them all.
    fn heads(&self) -> impl Iterator<Item = u32> {
        let newest = (self.newest != NONE).then_some(self.newest);
        self.patiences.iter().filter_map(|patience| patience.line.head()).chain(newest)
    }

    fn newest(&self) -> Option<&Slot<K, V>> {
        (self.newest != NONE).then(|| self.slots.at(self.newest))
    }

    /// The longest that fits is better than any that does not; of those that do not, the shortest.
    #[inline]
    fn patience_for(&mut self, wanted: Duration) -> (usize, u64) {
        if let Some((known, patience)) = self.last_wanted
            && known == wanted
        {
            return patience;
        }
        let patience = self.seek_patience(wanted);
        self.last_wanted = Some((wanted, patience));
        patience
    }

    fn seek_patience(&self, wanted: Duration) -> (usize, u64) {
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
        let nobody = Source { address, hash, charged: 0, things: Line::default(), links: Links::NONE };
        let at = self.sources.place(nobody);
        let source = self.sources.at_mut(at);
        (source.address, source.hash, source.charged, source.things) = (address, hash, 0, Line::default());
        self.sources_index.insert(hash, at);
        at
    }

    fn enter_reserve(&mut self, at: u32, charge: usize) {
        self.slots.at_mut(at).rank = Rank::Reserve;
        self.reserve.push_back(&mut self.slots, at, |slot| &mut slot.by_rank);
        self.reserve_charged += charge;
    }

    /// Puts a thing at the end of its source's line.
    fn enter_source(&mut self, at: u32, source: u32, charge: usize) {
        let known = self.sources.at_mut(source);
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
        let known = self.sources.at_mut(source);
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
        self.sources.free.push(source);
    }

    /// Moves a source that holds something to the level of its charge.
    fn move_source(&mut self, source: u32, less: usize, more: usize) {
        let charged = &mut self.sources.at_mut(source).charged;
        let before = *charged;
        *charged = before - less + more;
        let after = *charged;
        if level(before) == level(after) {
            let level = self.levels.at_mut(level(before));
            level.charged = level.charged - before + after;
            return;
        }
        self.levels.leave(&mut self.sources, source, before);
        self.levels.enter(&mut self.sources, source, after);
    }
}

impl Levels {
    fn at_mut(&mut self, level: usize) -> &mut Level {
        match self.levels.get_mut(level) {
            Some(level) => level,
            None => panic!("every charge has its level"),
        }
    }

    /// Puts a source at the end of the level of its charge.
    fn enter(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = level(charged);
        let level = self.at_mut(at);
        level.charged += charged;
        level.line.push_back(sources, source, |source| &mut source.links);
        self.taken |= 1 << at;
    }

    /// Takes a source out of the level of its charge.
    fn leave(&mut self, sources: &mut Slab<Source>, source: u32, charged: usize) {
        let at = level(charged);
        let level = self.at_mut(at);
        level.charged -= charged;
        level.line.unlink(sources, source, |source| &mut source.links);
        if level.line.head().is_none() {
            self.taken &= !(1 << at);
        }
    }

    /// The levels that someone is on.
    fn heaviest_first(&self) -> impl Iterator<Item = &Level> {
        let mut left = self.taken;
        core::iter::from_fn(move || {
            let at = left.checked_ilog2()?;
            left ^= 1 << at;
            self.levels.get(at as usize)
        })
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
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

impl Default for Line {
    fn default() -> Line {
        Line { first: NONE, last: NONE }
    }
}

/// A member's neighbours in a line.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

impl Links {
    const NONE: Links = Links { before: NONE, after: NONE };
}

impl Line {
    fn head(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    fn push_back<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(slab.at_mut(at)) = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = at,
            last => links(slab.at_mut(last)).after = at,
        }
        self.last = at;
    }

    fn unlink<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut Links) {
        let Links { before, after } = *links(slab.at_mut(at));
        match before {
            NONE => self.first = after,
            before => links(slab.at_mut(before)).after = after,
        }
        match after {
            NONE => self.last = before,
            after => links(slab.at_mut(after)).before = before,
        }
    }
}

impl<K, V> Slot<K, V> {
    /// A free place.
    fn free(key: K) -> Slot<K, V> {
        Slot {
            value: None,
            key,
            hash: 0,
            is_hashed: false,
            deadline: Time::ZERO,
            charge: 0,
            rank: Rank::Nowhere,
            patience: 0,
            by_patience: Links::NONE,
            by_rank: Links::NONE,
        }
    }
}

/// Places that are used again, so that nothing is allocated once as many things were held as will be. What was in a
/// place stays there until it is used again.
#[derive(Debug)]
struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// A free place, with what was there before; `unused` where a new one has to be made.
    #[inline(always)]
    fn place(&mut self, unused: T) -> u32 {
        match self.free.pop() {
            Some(at) => at,
            None => self.widen(unused),
        }
    }

    /// Adds a place behind all others.
    #[cold]
    fn widen(&mut self, unused: T) -> u32 {
        self.places.push(unused);
        self.places.len() as u32 - 1
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)
    }

    #[inline(always)]
    fn at(&self, at: u32) -> &T {
        match self.places.get(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }

    #[inline(always)]
    fn at_mut(&mut self, at: u32) -> &mut T {
        match self.places.get_mut(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }
}

/// No place: more things than this are never held.
const NONE: u32 = u32::MAX;
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
    fn there_are_two_levels_for_each_power_of_two_and_one_for_every_charge() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15].map(level), [0, 0, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert_eq!(level(usize::MAX), LEVEL_COUNT - 1);
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
        // Without the secret in it, what a key hashes to could be foreseen.
        let hashes = |bits| {
            let mut held = Held::new(1_000, &[SECOND], Secret::new(bits));
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
    fn the_newest_is_not_hashed_before_another_comes() {
        let mut held = Held::new(1_000, &[SECOND], Secret::new(1));
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
            if (thing.patience, thing.deadline) == (patience, deadline) {
                return;
            }
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

        fn check(&mut self, what: &str) {
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

    /// A key that notes what it hashes to.
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
    const PATIENCES: [Duration; 3] = [Duration::from_secs(3), Duration::from_millis(250), SECOND];
}
