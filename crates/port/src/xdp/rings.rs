//! Memory shared with the kernel -> the four rings of an AF_XDP socket.
//!
//! A ring has one producer and one consumer. Each side stores its own counter with release ordering, and loads the
//! counter of the other side with acquire ordering. So each side sees all earlier writes of the other side
//! (linux/Documentation/networking/af_xdp.rst).

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring in shared memory, with entries of type `E`.
#[derive(Debug)]
pub struct Ring<E> {
    map: Mapping,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// Number of entries that this process has put or taken, modulo 2^32.
    ours: u32,
    /// The kernel's counter at the last reading: entries that the kernel has taken or put.
    theirs: u32,
    entry: std::marker::PhantomData<E>,
}

/// Mapped memory, which is unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    len: usize,
}

// SAFETY: a mapping has one owner, which may use and unmap it on any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of new memory, filled with zeros.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn anonymous(len: usize) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses the place.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        Ok(Mapping { start, len })
    }

    fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mapping> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the place.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset)? };
        Ok(Mapping { start, len })
    }

    /// Returns the memory's address, for the kernel.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Returns the memory's length, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `len` bytes from offset `at` on.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "a range lies inside its mapping");
        // SAFETY: the range was checked. A chunk has one user at a time: the side that took the chunk's address
        // from a ring.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>().add(at), len) }
    }

    /// Returns `len` bytes from offset `at` on, mutable.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "a range lies inside its mapping");
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>().add(at), len) }
    }

    fn count(&self, at: u64) -> &AtomicU32 {
        assert!(at as usize + 4 <= self.len && at.is_multiple_of(4), "a count lies inside its ring");
        // SAFETY: inside the mapping and aligned; both sides use it as an atomic word.
        unsafe { &*self.start.cast::<u8>().add(at as usize).cast::<AtomicU32>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows the memory any more. A failure has no remedy.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

impl<E: Copy> Ring<E> {
    /// Maps the ring of `count` entries at offset `at` of the socket. `count` must be a power of two.
    ///
    /// # Errors
    /// The kernel cannot map the ring.
    pub fn new(fd: BorrowedFd<'_>, at: u64, offsets: libc::xdp_ring_offset, count: u32) -> io::Result<Ring<E>> {
        assert!(count.is_power_of_two(), "a ring's length is a power of two");
        let len = offsets.desc as usize + count as usize * size_of::<E>();
        let map = Mapping::shared(fd, at, len)?;
        Ok(Ring { map, offsets, mask: count - 1, ours: 0, theirs: 0, entry: std::marker::PhantomData })
    }

    /// Returns the number of free entries, in a ring that this process fills.
    pub fn room(&mut self) -> u32 {
        let free = |ring: &Ring<E>| ring.mask + 1 - ring.ours.wrapping_sub(ring.theirs);
        if free(self) == 0 {
            self.theirs = self.map.count(self.offsets.consumer).load(Ordering::Acquire);
        }
        free(self)
    }

    /// Returns the number of entries that were put and that the kernel has not taken yet.
    pub fn left_count(&mut self) -> u32 {
        self.theirs = self.map.count(self.offsets.consumer).load(Ordering::Acquire);
        self.ours.wrapping_sub(self.theirs)
    }

    /// Puts an entry into the ring. The ring must have a free entry.
    pub fn put(&mut self, entry: E) {
        assert!(self.room() > 0, "a ring that is full is asked first");
        // SAFETY: the entry is ours until the count is released, and lies inside the mapping.
        unsafe { self.entry(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Takes back the entry that was put last. The kernel must not have read this entry. The kernel reads entries
    /// only during a send call.
    pub fn take_back(&mut self) -> E {
        assert!(self.left_count() > 0, "what is taken back was put");
        self.ours = self.ours.wrapping_sub(1);
        // SAFETY: it was written by `put`, and lies inside the mapping.
        unsafe { self.entry(self.ours).read() }
    }

    /// Makes all entries that were put visible to the kernel.
    pub fn publish(&mut self) {
        self.map.count(self.offsets.producer).store(self.ours, Ordering::Release);
    }

    /// Takes the next entry of a ring that the kernel fills; `None` if the ring is empty.
    pub fn take(&mut self) -> Option<E> {
        if self.ours == self.theirs {
            self.theirs = self.map.count(self.offsets.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the kernel released it with its count, and it lies inside the mapping.
        let entry = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of all taken entries to the kernel.
    pub fn release(&mut self) {
        self.map.count(self.offsets.consumer).store(self.ours, Ordering::Release);
    }

    fn entry(&self, index: u32) -> *mut E {
        let at = self.offsets.desc as usize + (index & self.mask) as usize * size_of::<E>();
        // SAFETY: the mapping was made for `mask + 1` entries.
        unsafe { self.map.start.cast::<u8>().add(at).cast::<E>() }
    }
}
