//! The bytes of a buffer: headroom, content, bitmap.

use core::ops::Range;

/// The bytes of a buffer and their size class. They come from the heap, or from the edge (huge pages, a ring's
/// area).
#[derive(Debug)]
pub(crate) enum Memory {
    /// Owned by the buffer.
    Heap { bytes: Box<[u8]>, class: u8 },
    /// Static memory, valid for the life of the program.
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

/// Memory that a class occupies: headroom, content, bitmap.
pub(super) const fn pinned_len(content_len: usize) -> usize {
    HEADROOM + content_len + content_len / MAP_RATIO
}

/// Room in front of the content for the longest supported headers, in bytes: link 32, IPv6 40, extension headers
/// 256, Fragment header 8; rounded up to cache lines.
pub const HEADROOM: usize = 384;
/// Content of a buffer of each class, in bytes: one narrow packet; two; a page-sized wide one; any datagram.
pub const CLASS_LENS: [usize; 4] = [2_048, 4_096, 16_384, 65_536];
/// Bytes of content for one byte of the bitmap: eight bits, each for eight bytes.
const MAP_RATIO: usize = 64;
