//! Memory -> buffers from a pool: contiguous bytes with headroom, up to a hard limit.
//!
//! A pool owns only its free buffers. A buffer is moved out of the pool and back, so it has one owner at any time.
//! So buffers need no reference count and no lock. A buffer that is dropped never returns to its pool, and still
//! counts as in use. The law "buffers in use = buffers held + queued" detects such a loss.

use super::body::Body;
use super::memory::{CLASS_LENS, HEADROOM, Memory, pinned_len};
use core::ops::Range;

/// Contiguous bytes from a [`Pool`].
///
/// Layout: [`HEADROOM`] bytes for headers, then the content, then a bitmap with one bit per eight bytes of content.
/// During reassembly, the bitmap marks the received units of a datagram.
///
/// The type is one word: a pointer to the description of the packet, which owns the bytes.
#[derive(Debug)]
pub struct Buffer(pub(super) Box<Body>);

impl Buffer {
    fn of(memory: Memory) -> Buffer {
        Buffer(Box::new(Body::of(memory)))
    }

    #[inline]
    fn class(&self) -> usize {
        self.0.memory().class()
    }

    /// Returns the number of content bytes behind the headroom.
    pub fn capacity(&self) -> usize {
        self.0.memory().capacity()
    }

    /// Returns the memory that this buffer occupies, in bytes.
    pub fn pinned_len(&self) -> usize {
        self.0.memory().pinned_len()
    }

    /// Returns the memory that a buffer for `len` bytes occupies, in bytes. The buffer has the smallest sufficient
    /// class.
    pub fn pinned_len_for(len: usize) -> usize {
        pinned_len(CLASS_LENS.into_iter().find(|class_len| *class_len >= len).unwrap_or(len))
    }

    /// Returns the bytes of `range`, relative to the start of the memory. The content begins at [`HEADROOM`].
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.0.memory().bytes(range)
    }

    /// Returns the bytes of `range`, mutable.
    #[inline]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.0.memory_mut().bytes_mut(range)
    }

    /// Prefetches the description of the buffer's packet.
    #[inline]
    pub fn prefetch(&self) {
        simd::prefetch_value(&*self.0);
    }

    /// Prefetches the start of the content.
    #[inline]
    pub fn prefetch_content(&self) {
        if let Some(content) = self.0.memory().all().get(HEADROOM..) {
            simd::prefetch(content);
        }
    }

    /// Copies `bytes` to the buffer's memory, from offset `start` on.
    pub fn put(&mut self, start: usize, bytes: &[u8]) {
        self.0.memory_mut().put(start, bytes);
    }

    /// Returns the bitmap of the content: one bit per eight bytes. The bitmap is not cleared between two uses of
    /// the buffer.
    pub fn bitmap(&self) -> &[u8] {
        self.0.memory().bitmap()
    }

    /// Returns the bitmap of the content, mutable.
    pub fn map_mut(&mut self) -> &mut [u8] {
        self.0.memory_mut().map_mut()
    }
}

/// Supplies buffers of a few size classes, within a memory limit.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Buffer>; CLASS_LENS.len()],
    /// Heap memory allocated for buffers in use and free buffers, in bytes.
    heap_len: usize,
    limit: usize,
    in_use_count: usize,
}

impl Pool {
    /// Creates a pool that allocates up to `limit` bytes from the heap, on demand. The limit includes contents,
    /// headroom and bitmaps, but not the description of each buffer, about 150 bytes.
    pub fn new(limit: usize) -> Pool {
        Pool { free: Default::default(), heap_len: 0, limit, in_use_count: 0 }
    }

    /// Changes the limit. If more memory than `limit` is already allocated, free buffers are freed immediately. The
    /// pool then allocates no memory until enough buffers in use have returned.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.free_heap(0);
    }

    /// Adds static memory, such as the area of a ring, as one free buffer of the largest class that fits. The limit
    /// does not include this memory.
    ///
    /// # Errors
    /// The memory, if it is too short for the smallest class.
    pub fn supply(&mut self, memory: &'static mut [u8]) -> Result<(), &'static mut [u8]> {
        match CLASS_LENS.iter().rposition(|len| pinned_len(*len) <= memory.len()) {
            Some(class) => {
                let (memory, _) = memory.split_at_mut(CLASS_LENS.get(class).map_or(0, |len| pinned_len(*len)));
                self.shelf(class).push(Buffer::of(Memory::Lasting { bytes: memory, class: class as u8 }));
                Ok(())
            }
            None => Err(memory),
        }
    }

    /// Returns a buffer for `len` bytes of content. `None` if the limit is reached, or if `len` exceeds 65,536.
    ///
    /// The sources are, in this order:
    ///
    /// - a free buffer of the smallest sufficient class;
    /// - new memory from the heap, within the limit;
    /// - a free buffer of a larger class;
    /// - new memory from the heap, after free buffers of other classes were freed.
    pub fn allocate(&mut self, len: usize) -> Option<Buffer> {
        let class = CLASS_LENS.iter().position(|class_len| *class_len >= len)?;
        match self.shelf(class).pop() {
            Some(buffer) => {
                self.in_use_count += 1;
                Some(buffer)
            }
            None => self.allocate_from_class(class),
        }
    }

    /// Returns a buffer for a class whose free buffers are used up. The buffer may have a larger class.
    #[cold]
    fn allocate_from_class(&mut self, class: usize) -> Option<Buffer> {
        let wanted = CLASS_LENS.get(class).map(|len| pinned_len(*len))?;
        if self.heap_len + wanted > self.limit {
            if let Some(larger) = (class + 1..CLASS_LENS.len()).find(|larger| !self.shelf(*larger).is_empty()) {
                self.in_use_count += 1;
                return self.shelf(larger).pop();
            }
            self.free_heap(wanted);
        }
        if self.heap_len + wanted > self.limit {
            return None;
        }
        self.heap_len += wanted;
        self.in_use_count += 1;
        let bytes = vec![0; wanted].into_boxed_slice();
        Some(Buffer::of(Memory::Heap { bytes, class: class as u8 }))
    }

    /// Returns a buffer to the pool.
    #[inline(always)]
    pub fn give(&mut self, buffer: Buffer) {
        assert!(self.in_use_count > 0, "buffers come back to the pool that lent them");
        self.in_use_count -= 1;
        match self.free.get_mut(buffer.class()) {
            Some(shelf) if shelf.len() < shelf.capacity() => shelf.push(buffer),
            _ => self.give_to_full(buffer),
        }
    }

    /// Enlarges the list of free buffers. This happens only at a new peak of their number.
    #[cold]
    fn give_to_full(&mut self, buffer: Buffer) {
        self.shelf(buffer.class()).push(buffer);
    }

    /// Returns the number of buffers in use.
    pub fn in_use_count(&self) -> usize {
        self.in_use_count
    }

    /// Returns the heap memory for buffers in use and free buffers, in bytes. It exceeds the limit only after the
    /// limit was lowered.
    pub fn heap_len(&self) -> usize {
        self.heap_len
    }

    /// Returns the available memory in bytes. The value is exact if future requests use the classes of the free
    /// buffers.
    pub fn free_len(&self) -> usize {
        let free = self.free.iter().zip(CLASS_LENS).map(|(shelf, len)| shelf.len() * pinned_len(len));
        free.sum::<usize>() + self.limit.saturating_sub(self.heap_len)
    }

    /// Frees free heap buffers of all classes, until `wanted` bytes can be allocated within the limit.
    fn free_heap(&mut self, wanted: usize) {
        for shelf in &mut self.free {
            while self.heap_len + wanted > self.limit {
                match shelf.iter().rposition(|buffer| matches!(buffer.0.memory(), Memory::Heap { .. })) {
                    Some(index) => self.heap_len -= shelf.swap_remove(index).pinned_len(),
                    None => break,
                }
            }
        }
    }

    fn shelf(&mut self, class: usize) -> &mut Vec<Buffer> {
        match self.free.get_mut(class) {
            Some(shelf) => shelf,
            None => panic!("a buffer's class is one of the pool's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_gets_the_smallest_class_that_holds_it() {
        let mut pool = Pool::new(usize::MAX);
        for (len, capacity) in [(0, 2_048), (2_048, 2_048), (2_049, 4_096), (16_384, 16_384), (65_535, 65_536)] {
            let buffer = pool.allocate(len).unwrap();
            assert_eq!(buffer.capacity(), capacity, "for {len}");
            assert_eq!(buffer.bitmap().len() * 64, capacity);
            assert_eq!(buffer.pinned_len(), Buffer::pinned_len_for(len));
            pool.give(buffer);
        }
        assert!(pool.allocate(65_537).is_none());
        assert_eq!(pool.in_use_count(), 0);
    }

    #[test]
    fn a_pool_never_passes_its_limit_and_returns_to_it() {
        let limit = 3 * pinned_len(2_048);
        let mut pool = Pool::new(limit);
        let lent: Vec<_> = (0..3).map(|_| pool.allocate(1_500).unwrap()).collect();
        assert!(pool.allocate(1).is_none());
        assert_eq!((pool.in_use_count(), pool.heap_len(), pool.free_len()), (3, limit, 0));
        lent.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.in_use_count(), pool.free_len()), (0, limit));
    }

    #[test]
    fn a_lower_limit_returns_free_memory_and_applies_at_once() {
        let one = pinned_len(2_048);
        let mut pool = Pool::new(4 * one);
        let mut lent: Vec<_> = (0..4).map(|_| pool.allocate(1_500).unwrap()).collect();
        (0..2).for_each(|_| pool.give(lent.pop().unwrap()));
        pool.set_limit(one);
        assert_eq!((pool.in_use_count(), pool.heap_len()), (2, 2 * one));
        assert!(pool.allocate(1).is_none());
        lent.into_iter().for_each(|buffer| pool.give(buffer));
        pool.set_limit(one);
        assert_eq!(pool.heap_len(), one);
        assert!(pool.allocate(1).is_some() && pool.allocate(1).is_none());
    }

    #[test]
    fn free_memory_of_one_class_makes_room_for_another() {
        let mut pool = Pool::new(pinned_len(65_536));
        let small: Vec<_> = (0..20).map(|_| pool.allocate(100).unwrap()).collect();
        assert!(pool.allocate(60_000).is_none());
        small.into_iter().for_each(|buffer| pool.give(buffer));
        let large = pool.allocate(60_000).unwrap();
        assert!(pool.heap_len() <= pinned_len(65_536));
        pool.give(large);
        assert_eq!(pool.allocate(10).unwrap().capacity(), 65_536);
    }

    #[test]
    fn supplied_memory_is_used_beside_the_heap() {
        let mut pool = Pool::new(0);
        assert!(pool.supply(Vec::leak(vec![0; 100])).is_err());
        pool.supply(Vec::leak(vec![0; 5_000])).unwrap();
        let buffer = pool.allocate(3_000).unwrap();
        assert_eq!(buffer.capacity(), 4_096);
        assert!(pool.allocate(1).is_none());
        pool.give(buffer);
        assert!(pool.allocate(1).is_some());
    }
}
