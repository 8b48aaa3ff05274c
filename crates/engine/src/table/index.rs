//! Hashes -> slot numbers, by a hash table for the slots of a slab.
//!
//! The table uses open addressing with linear probing. Removal leaves no marks, because later entries move up. An
//! entry contains half of a hash and a slot number. So a failed search rarely reads the slab, and the table grows
//! without the hash key. Comparison of the complete keys is left to the caller.

/// Slot numbers by hash.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Entries, a power of two in number, at most half of them in use. The upper half of an entry is the upper half
    /// of the hash. The lower half is the slot number.
    entries: Vec<u64>,
    count: usize,
}

impl Index {
    /// Returns the number of indexed slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of steps of the longest search for an indexed slot. The number measures work without a
    /// clock (rel:A10).
    pub(crate) fn longest_search(&self) -> usize {
        let taken = self.entries.iter().enumerate().filter(|(_, entry)| **entry != EMPTY);
        taken.map(|(at, entry)| 1 + (at.wrapping_sub(self.home(*entry)) & self.mask())).max().unwrap_or(0)
    }

    /// Returns the slot under this hash for which `is` returns true.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let entry = *self.entries.get(at)?;
            if entry == EMPTY {
                return None;
            }
            if (entry ^ hash) & TAG == 0 && is(entry as u32) {
                return Some(entry as u32);
            }
            at = self.after(at);
        }
    }

    /// Inserts a slot. The slot must not be indexed yet.
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        if 2 * (self.count + 1) > self.entries.len() {
            self.grow();
        }
        self.count += 1;
        self.insert_at_home(hash & TAG | u64::from(place));
    }

    /// Removes a slot. The slot must be indexed under this hash.
    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        let mut hole = self.home(hash);
        while self.at(hole) as u32 != place {
            assert!(self.at(hole) != EMPTY, "what is held is found by its key");
            hole = self.after(hole);
        }
        // Entries behind the hole move up if their search would cross the hole.
        let mut next = self.after(hole);
        while self.at(next) != EMPTY {
            let entry = self.at(next);
            let mask = self.mask();
            if next.wrapping_sub(self.home(entry)) & mask >= next.wrapping_sub(hole) & mask {
                self.set(hole, entry);
                hole = next;
            }
            next = self.after(next);
        }
        self.set(hole, EMPTY);
        self.count -= 1;
    }

    fn insert_at_home(&mut self, entry: u64) {
        let mut at = self.home(entry);
        while self.at(at) != EMPTY {
            at = self.after(at);
        }
        self.set(at, entry);
    }

    fn grow(&mut self) {
        let len = (2 * self.entries.len()).max(LEN_MIN);
        let before = core::mem::replace(&mut self.entries, vec![EMPTY; len]);
        before.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.insert_at_home(entry));
    }

    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.mask()
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    fn at(&self, at: usize) -> u64 {
        self.entries.get(at).copied().unwrap_or(EMPTY)
    }

    fn set(&mut self, at: usize, entry: u64) {
        if let Some(place) = self.entries.get_mut(at) {
            *place = entry;
        }
    }
}

/// The value of a free entry.
const EMPTY: u64 = u64::MAX;
/// Mask of the hash's part of an entry.
const TAG: u64 = u64::MAX << 32;
/// Initial number of entries.
const LEN_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_operations_agree_with_a_list() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut index = Index::default();
            let mut list: Vec<(u64, u32)> = Vec::new();
            // Hashes that crowd at few homes, at the table's end too.
            let crowd = random.u64(1..40);
            for _ in 0..600 {
                if random.u8(..5) < 3 && list.len() < 300 {
                    let hash = (u64::MAX - random.u64(..crowd) * 3) << 32 | random.u64(..4);
                    let place = (0..).find(|place| list.iter().all(|(_, known)| known != place)).unwrap();
                    index.insert(hash, place);
                    list.push((hash, place));
                } else if !list.is_empty() {
                    let (hash, place) = list.swap_remove(random.usize(..list.len()));
                    index.remove(hash, place);
                    assert_eq!(index.find(hash, |found| found == place), None, "seed {seed}");
                }
                assert_eq!(index.count(), list.len());
                for (hash, place) in &list {
                    assert_eq!(index.find(*hash, |found| found == *place), Some(*place), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_longest_probe_is_the_largest_cluster() {
        let mut index = Index::default();
        assert_eq!(index.longest_search(), 0);
        for place in 0..20 {
            index.insert(7 << 40, place);
            assert_eq!(index.longest_search(), place as usize + 1);
        }
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(Index::default().find(7, |_| true), None);
    }
}
