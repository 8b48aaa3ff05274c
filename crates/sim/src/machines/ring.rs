//! Frame lengths -> receive buffers: a ring with a few buffer size classes (G2, G5, L15).
//!
//! The model shows the memory that a NIC needs for received frames.

/// A class of receive buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Maximum frame length, in bytes.
    pub len: u32,
    /// Number of buffers that the host has posted.
    pub count: u32,
}

/// A buffer of a receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    class: usize,
}

/// The state of a receive ring.
#[derive(Clone, Debug)]
pub struct Ring {
    classes: Vec<(Class, u32)>,
    refused: u64,
}

impl Ring {
    /// A ring with all buffers free. The classes may be in any order.
    pub fn new(classes: &[Class]) -> Ring {
        let mut classes: Vec<_> = classes.iter().map(|class| (*class, class.count)).collect();
        classes.sort_by_key(|(class, _)| class.len);
        Ring { classes, refused: 0 }
    }

    /// Takes a free buffer of the smallest class that fits a frame of `len` bytes. If no such buffer is free,
    /// counts the frame as dropped and returns `None`.
    pub fn take(&mut self, len: u32) -> Option<Slot> {
        let fits = |(class, free): &(Class, u32)| class.len >= len && *free > 0;
        let Some(class) = self.classes.iter().position(fits) else {
            self.refused += 1;
            return None;
        };
        self.classes[class].1 -= 1;
        Some(Slot { class })
    }

    /// Returns a buffer to the ring after the host has read its frame.
    pub fn give_back(&mut self, slot: Slot) {
        let (class, free) = &mut self.classes[slot.class];
        debug_assert!(*free < class.count, "it was taken from here");
        *free += 1;
    }

    /// Maximum frame length of a buffer, in bytes.
    pub fn len_max(&self, slot: Slot) -> u32 {
        self.classes[slot.class].0.len
    }

    /// Number of frames dropped because no buffer was free.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Total length of the ring's buffers, in bytes.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().map(|(class, _)| u64::from(class.len) * u64::from(class.count)).sum()
    }
}
