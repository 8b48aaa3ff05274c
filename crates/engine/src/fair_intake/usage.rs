//! Memory of flows -> a flow with about the most memory, in constant time.
//!
//! The flows of a bucket differ by less than an eighth. A change of a flow's memory moves the flow to
//! another bucket at most.

use crate::table::slab::{List, ListLinks, Slab};

/// Flows that use memory, by their memory.
pub(super) struct UsageBuckets {
    buckets: Box<[List]>,
    /// Bit mask of the buckets with flows.
    occupied: [u64; WORD_COUNT],
}

impl Default for UsageBuckets {
    fn default() -> UsageBuckets {
        let buckets = vec![List::default(); WORD_COUNT * WORD_LEN].into_boxed_slice();
        UsageBuckets { buckets, occupied: [0; WORD_COUNT] }
    }
}

impl UsageBuckets {
    /// Moves a flow whose memory was the first number of bytes and is the second. A flow without memory is in no
    /// bucket.
    pub(super) fn update<T>(
        &mut self,
        flows: &mut Slab<T>,
        at: u32,
        memory: [usize; 2],
        links: impl Fn(&mut T) -> &mut ListLinks,
    ) {
        let [before, after] = memory.map(bucket);
        if before == after {
            return;
        }
        if let Some((list, word, bit)) = self.bucket_mut(before) {
            list.unlink(flows, at, &links);
            if list.head().is_none() {
                *word &= !bit;
            }
        }
        if let Some((list, word, bit)) = self.bucket_mut(after) {
            list.push_back(flows, at, &links);
            *word |= bit;
        }
    }

    /// Returns a flow of the highest bucket, and the number of words and flows looked at.
    pub(super) fn highest(&self) -> (Option<u32>, usize) {
        let mut step_count = 0;
        for (word, bits) in self.occupied.iter().enumerate().rev() {
            step_count += 1;
            if *bits != 0 {
                let bucket = word * WORD_LEN + bits.ilog2() as usize;
                return (self.buckets.get(bucket).and_then(List::head), step_count + 1);
            }
        }
        (None, step_count)
    }

    /// Returns a bucket's list, and the word and the bit that tell whether it is occupied.
    fn bucket_mut(&mut self, bucket: Option<usize>) -> Option<(&mut List, &mut u64, u64)> {
        let bucket = bucket?;
        let word = self.occupied.get_mut(bucket / WORD_LEN)?;
        Some((self.buckets.get_mut(bucket)?, word, 1 << (bucket % WORD_LEN)))
    }
}

/// Returns the bucket of a flow with this memory in bytes. Each power of two has eight buckets.
fn bucket(memory: usize) -> Option<usize> {
    let power = memory.checked_ilog2()?;
    let top_bits = if power >= 3 { memory >> (power - 3) } else { memory << (3 - power) };
    Some(power as usize * 8 + top_bits % 8)
}

/// Number of words: eight buckets for each bit of a length.
const WORD_COUNT: usize = usize::BITS as usize * 8 / WORD_LEN;
const WORD_LEN: usize = u64::BITS as usize;
