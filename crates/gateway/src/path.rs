//! A direction of a worker -> the endpoint by which its packets are sent.
//!
//! A bump in the wire sends packets by the other endpoint. Beside a kernel that forwards, packets return to the
//! kernel.

use engine::Toward;

/// The choice of the endpoint by which packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The other endpoint: the gateway is a bump in the wire.
    Across,
    /// The endpoint at which the packet arrived: the kernel processes the packet further.
    Back,
}

impl Path {
    /// Returns the endpoint by which packets of this direction are sent.
    pub fn exit(self, direction: usize) -> usize {
        match self {
            Path::Across => 1 - direction,
            Path::Back => direction,
        }
    }
}

/// The direction to the narrow side. Its packets arrive at the endpoint with the same number, the wide endpoint
/// (0).
pub(crate) const TO_NARROW: usize = Toward::Narrow.direction();
/// The direction to the wide side. Its packets arrive at the endpoint with the same number, the narrow endpoint
/// (1).
pub(crate) const TO_WIDE: usize = Toward::Wide.direction();
