//! The bytes of a buffer: headroom, content, bitmap.
//!
//! The layout of a buffer is defined in this file only. Allocation and limits are left to [`Pool`](crate::Pool).

use core::ops::Range;

/// The bytes of a buffer, and their size class. The bytes are from the heap, or static memory from a port (huge
/// pages, the area of a ring).
#[derive(Debug)]
pub(crate) enum Memory {
    /// Heap memory that the buffer owns.
    Heap { bytes: Box<[u8]>, class: u8 },
    /// Static memory, valid until the program ends.
    Lasting { bytes: &'static mut [u8], class: u8 },
}

impl Memory {
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        CLASS_LENS.get(self.class()).copied().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn pinned_len(&self) -> usize {
        self.all().len()
    }

    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        match self.all().get(range) {
            Some(bytes) => bytes,
            None => outside(),
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        match self.all_mut().get_mut(range) {
            Some(bytes) => bytes,
            None => outside(),
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, start: usize, bytes: &[u8]) {
        self.bytes_mut(start..start + bytes.len()).copy_from_slice(bytes);
    }

    pub(crate) fn bitmap(&self) -> &[u8] {
        self.bytes(HEADROOM + self.capacity()..self.pinned_len())
    }

    pub(crate) fn map_mut(&mut self) -> &mut [u8] {
        self.bytes_mut(HEADROOM + self.capacity()..self.pinned_len())
    }

    #[inline]
    pub(super) fn class(&self) -> usize {
        match self {
            Memory::Heap { class, .. } | Memory::Lasting { class, .. } => usize::from(*class),
        }
    }

    #[inline]
    pub(super) fn all(&self) -> &[u8] {
        match self {
            Memory::Heap { bytes, .. } => bytes,
            Memory::Lasting { bytes, .. } => bytes,
        }
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap { bytes, .. } => bytes,
            Memory::Lasting { bytes, .. } => bytes,
        }
    }
}

#[cold]
fn outside() -> ! {
    panic!("a range lies inside its buffer")
}

/// Returns the memory that a content of `content_len` bytes needs, in bytes: headroom, content, bitmap.
pub(super) const fn pinned_len(content_len: usize) -> usize {
    HEADROOM + content_len + content_len / MAP_RATIO
}

/// Room before the content for the longest supported headers, in bytes. Link 32, IPv6 40, extension headers 256,
/// Fragment header 8; rounded up to cache lines.
pub const HEADROOM: usize = 384;
/// Content length of each class, in bytes: one narrow packet, two narrow packets, a wide packet, any datagram.
pub const CLASS_LENS: [usize; 4] = [2_048, 4_096, 16_384, 65_536];
/// Bytes of content per byte of the bitmap: eight bits, each for eight bytes.
const MAP_RATIO: usize = 64;
