//! Number of bytes -> memory that is never freed, in pages of 2 MiB where the kernel has them.
//!
//! Huge pages remove TLB misses from the figures. Only the end of the harness process frees the memory.

use super::ask::Pages;
use memmap2::{Advice, MmapMut};
use packet::{CLASS_LENS, HEADROOM, Pool};

/// Allocates at least `len` bytes for the life of the process.
pub fn memory(len: usize, pages: Pages) -> &'static mut [u8] {
    let map = MmapMut::map_anon(len.next_multiple_of(HUGE_LEN) + HUGE_LEN).expect("the machine has the memory");
    let memory: &'static mut MmapMut = Box::leak(Box::new(map));
    if pages == Pages::Huge {
        // A kernel without huge pages returns an error. The memory then has small pages.
        let _ = memory.advise(Advice::HugePage);
    }
    let start = memory.as_ptr().align_offset(HUGE_LEN);
    &mut memory[start..start + len.next_multiple_of(HUGE_LEN)]
}

/// Creates a pool with `counts` buffers of each size class in arena memory, in addition to `HEAP_LEN` bytes from
/// the heap.
pub fn pool(counts: [usize; CLASS_LENS.len()], pages: Pages) -> Pool {
    let mut pool = Pool::new(HEAP_LEN);
    if pages == Pages::Huge {
        let len = counts.iter().zip(CLASS_LENS).map(|(count, class_len)| count * stride(class_len)).sum();
        let mut rest = memory(len, pages);
        for (count, class_len) in counts.iter().zip(CLASS_LENS) {
            for _ in 0..*count {
                let (buffer, after) = rest.split_at_mut(stride(class_len));
                pool.supply(buffer).expect("a buffer is longer than the smallest class");
                rest = after;
            }
        }
    }
    pool
}

/// Returns the distance between two buffers of a class, in bytes: headroom, content and bitmap, rounded up to cache
/// lines.
pub fn stride(class_len: usize) -> usize {
    (HEADROOM + class_len + class_len / 64).next_multiple_of(64)
}

/// Returns the smallest buffer class with room for `len` bytes of content.
pub fn class(len: usize) -> usize {
    CLASS_LENS.iter().position(|class_len| *class_len >= len).unwrap_or(CLASS_LENS.len() - 1)
}

/// Length of a huge page, in bytes.
const HUGE_LEN: usize = 2 << 20;
/// Memory that a pool may take from the heap, in bytes.
const HEAP_LEN: usize = 6 << 30;
