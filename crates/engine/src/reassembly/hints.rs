//! Identifications -> probable table handles, in an array indexed by their low bits.
//!
//! A hint replaces a hash and a table search for most fragments. The comparison of the complete key is left to the
//! caller.

use crate::table::{FairTable, Handle, Key, VacantEntry};

/// The handles of the latest datagrams, at most `COUNT`. The table may have reused the slot of a handle for another
/// datagram.
#[derive(Debug)]
pub(crate) struct Hints<const COUNT: usize>(Box<[Hint]>);

#[derive(Clone, Copy, Debug)]
struct Hint {
    id: u32,
    at: Handle,
}

impl<const COUNT: usize> Hints<COUNT> {
    pub(crate) fn new() -> Hints<COUNT> {
        Hints(vec![Hint { id: 0, at: Handle::NONE }; COUNT].into_boxed_slice())
    }

    /// Returns the hinted handle for this identification. The handle belongs to the latest datagram with this
    /// identification. `None` if a datagram whose identification has equal low bits replaced the hint.
    #[inline(always)]
    pub(crate) fn get(&self, id: u32) -> Option<Handle> {
        self.0.get(id as usize % COUNT).filter(|hint| hint.id == id).map(|hint| hint.at)
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, id: u32, at: Handle) {
        if let Some(hint) = self.0.get_mut(id as usize % COUNT) {
            *hint = Hint { id, at };
        }
    }

    /// Returns the vacant entry for a new key with this identification. Tries the hint first, then searches the
    /// table.
    ///
    /// # Errors
    /// The handle of the entry, if the key has one.
    #[inline]
    pub(crate) fn find<K: Key, V>(
        &mut self,
        held: &FairTable<K, V>,
        key: &K,
        id: u32,
    ) -> Result<VacantEntry, Handle> {
        if let Some(at) = self.get(id).filter(|at| held.get_entry(*at).is_some_and(|(known, _)| known == key)) {
            return Err(at);
        }
        held.entry(key).inspect_err(|at| self.set(id, *at))
    }

    /// Prefetches the hint of this identification.
    #[inline]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(hint) = self.0.get(id as usize % COUNT) {
            packet::prefetch_value(hint);
        }
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        *self = Hints::new();
    }
}
