//! Values -> numbered slots that are reused, and linked lists of the slots.
//!
//! Tables need stable slot numbers and no allocation per packet. The meaning of a free slot's value is left to the
//! caller.

/// First and last slot of a doubly linked list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE }
    }
}

/// A slot's neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLinks {
    pub(super) before: u32,
    pub(super) after: u32,
}

impl ListLinks {
    pub(super) const NONE: ListLinks = ListLinks { before: NONE, after: NONE };
}

impl List {
    pub(super) fn head(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push_back<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut ListLinks) {
        *links(slab.slot_mut(at)) = ListLinks { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = at,
            last => links(slab.slot_mut(last)).after = at,
        }
        self.last = at;
    }

    pub(super) fn unlink<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut ListLinks) {
        let ListLinks { before, after } = *links(slab.slot_mut(at));
        match before {
            NONE => self.first = after,
            before => links(slab.slot_mut(before)).after = after,
        }
        match after {
            NONE => self.last = before,
            after => links(slab.slot_mut(after)).before = before,
        }
    }
}

/// Slots that are reused. A slab allocates memory only when it needs more slots than ever before. A value stays in
/// its slot until the slot is used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Returns the number of a free slot, which keeps its old value. If no slot is free, adds a slot with the value
    /// `unused`.
    #[inline(always)]
    pub(super) fn place(&mut self, unused: T) -> u32 {
        match self.free.pop() {
            Some(at) => at,
            None => self.widen(unused),
        }
    }

    /// Adds a slot behind all others, and returns its number.
    #[cold]
    pub(super) fn widen(&mut self, unused: T) -> u32 {
        self.places.push(unused);
        self.places.len() as u32 - 1
    }

    /// Frees a slot.
    #[inline(always)]
    pub(super) fn vacate(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Returns the number of slots in use.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns all slots, in use or free.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.places.iter()
    }

    #[inline(always)]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)
    }

    #[inline(always)]
    pub(super) fn at(&self, at: u32) -> &T {
        match self.places.get(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }

    #[inline(always)]
    pub(super) fn slot_mut(&mut self, at: u32) -> &mut T {
        match self.places.get_mut(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }
}

/// A number that no slot has.
pub(super) const NONE: u32 = u32::MAX;
