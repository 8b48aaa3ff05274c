//! Values -> numbered slots that are reused, and linked lists of the slots.
//!
//! Tables need stable slot numbers and no allocation per packet. The meaning of a free slot's value is left to the
//! caller.

/// First and last slot of a doubly linked list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List::EMPTY
    }
}

/// A slot's neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLinks {
    pub(crate) before: u32,
    pub(crate) after: u32,
}

impl ListLinks {
    pub(crate) const NONE: ListLinks = ListLinks { before: NONE, after: NONE };
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE };

    pub(crate) fn head(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn push_back<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut ListLinks) {
        *links(slab.slot_mut(at)) = ListLinks { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = at,
            last => links(slab.slot_mut(last)).after = at,
        }
        self.last = at;
    }

    pub(crate) fn unlink<T>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut ListLinks) {
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
pub(crate) struct Slab<T> {
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
    pub(crate) fn place(&mut self, unused: T) -> u32 {
        match self.free.pop() {
            Some(at) => at,
            None => self.widen(unused),
        }
    }

    /// Adds a slot behind all others, and returns its number.
    #[cold]
    pub(crate) fn widen(&mut self, unused: T) -> u32 {
        self.places.push(unused);
        self.places.len() as u32 - 1
    }

    /// Frees a slot.
    #[inline(always)]
    pub(crate) fn vacate(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Returns the number of slots in use.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns all slots, in use or free.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.places.iter()
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)
    }

    #[inline(always)]
    pub(crate) fn at(&self, at: u32) -> &T {
        match self.places.get(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }

    #[inline(always)]
    pub(crate) fn slot_mut(&mut self, at: u32) -> &mut T {
        match self.places.get_mut(at as usize) {
            Some(thing) => thing,
            None => panic!("a place that is linked is taken"),
        }
    }
}

/// A number that no slot has.
pub(crate) const NONE: u32 = u32::MAX;
