//! A way through a worker -> the end by which its packets leave.

use engine::Toward;

/// By which end packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By the other: a bump in the wire.
    Across,
    /// By the one that they came in by: the kernel goes on with them.
    Back,
}

impl Path {
    /// The end by which packets of a way leave.
    pub fn exit(self, direction: usize) -> usize {
        match self {
            Path::Across => 1 - direction,
            Path::Back => direction,
        }
    }
}

/// The ways through a worker: each comes in by the end with its own number, and leaves by the other.
pub(crate) const TO_NARROW: usize = Toward::Narrow.direction();
/// See [`TO_NARROW`].
pub(crate) const TO_WIDE: usize = Toward::Wide.direction();
