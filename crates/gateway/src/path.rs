//! A direction of a worker -> the endpoint by which its packets leave.

use engine::Toward;

/// The endpoint by which packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By the other endpoint: a bump in the wire.
    Across,
    /// By the endpoint of their ingress: the kernel processes them further.
    Back,
}

impl Path {
    /// The endpoint by which packets of a direction leave.
    pub fn exit(self, direction: usize) -> usize {
        match self {
            Path::Across => 1 - direction,
            Path::Back => direction,
        }
    }
}

/// The directions of a worker: each enters by the endpoint of its own number, and leaves by the other.
pub(crate) const TO_NARROW: usize = Toward::Narrow.direction();
/// See [`TO_NARROW`].
pub(crate) const TO_WIDE: usize = Toward::Wide.direction();
