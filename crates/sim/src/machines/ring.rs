//! Frame length -> receive buffer: a receive ring with a few buffer classes (G2, G5, L15).

/// Buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Longest frame, in bytes.
    pub len: u32,
    /// Number of buffers that the host has posted.
    pub count: u32,
}

/// A buffer of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    class: usize,
}

/// A receive ring.
#[derive(Clone, Debug)]
pub struct Ring {
    classes: Vec<(Class, u32)>,
    refused: u64,
}

impl Ring {
    /// A ring with all buffers free. Classes must be in the order of their lengths.
    pub fn new(classes: &[Class]) -> Ring {
        let mut classes: Vec<_> = classes.iter().map(|class| (*class, class.count)).collect();
        classes.sort_by_key(|(class, _)| class.len);
        Ring { classes, refused: 0 }
    }

    /// A buffer for a frame of this length, of the smallest class that fits and has one left. None: the frame is
    /// lost and counted.
    pub fn take(&mut self, len: u32) -> Option<Slot> {
        let fits = |(class, free): &(Class, u32)| class.len >= len && *free > 0;
        let Some(class) = self.classes.iter().position(fits) else {
            self.refused += 1;
            return None;
        };
        self.classes[class].1 -= 1;
        Some(Slot { class })
    }

    /// Returns a buffer after the host has read it.
    pub fn give_back(&mut self, slot: Slot) {
        let (class, free) = &mut self.classes[slot.class];
        debug_assert!(*free < class.count, "it was taken from here");
        *free += 1;
    }

    /// Longest frame of a buffer's class, in bytes.
    pub fn len_max(&self, slot: Slot) -> u32 {
        self.classes[slot.class].0.len
    }

    /// Frames that found no buffer.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of all its buffers.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().map(|(class, _)| u64::from(class.len) * u64::from(class.count)).sum()
    }
}
