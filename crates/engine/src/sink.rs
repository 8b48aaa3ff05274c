//! Payloads -> their positions in the reassembly buffer.
//!
//! For most packets, moving the payload takes most of the CPU time. This step is therefore exchangeable: a payload
//! is copied, left in place, or only measured.

/// Moves payloads to their positions.
pub trait PayloadSink {
    /// Moves `payload` to `place`, which has an equal length. `place` is valid only until the next packet is
    /// pushed: a held datagram may then move to a larger buffer, or be sent.
    fn place(&mut self, place: &mut [u8], payload: &[u8]);

    /// Stages call this method if they may soon move `payload` to `place`. An implementation may prefetch both.
    fn prefetch(&self, _place: &[u8], _payload: &[u8]) {}
}

/// Copies payloads. Gateways use this implementation.
#[derive(Clone, Copy, Debug)]
pub struct CopyPayload;

impl PayloadSink for CopyPayload {
    #[inline(always)]
    fn place(&mut self, place: &mut [u8], payload: &[u8]) {
        place.copy_from_slice(payload);
    }

    #[inline(always)]
    fn prefetch(&self, place: &[u8], payload: &[u8]) {
        packet::prefetch_lines(place, LINES_MAX);
        packet::prefetch_lines(payload, LINES_MAX);
    }
}

/// Leaves payloads in place, because they were received at their positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavePayload;

impl PayloadSink for LeavePayload {
    #[inline(always)]
    fn place(&mut self, _place: &mut [u8], _payload: &[u8]) {}
}

/// Cache lines of a narrow packet. The CPU prefetches the remaining lines of longer packets by itself.
const LINES_MAX: usize = 24;

/// Calls a closure instead of copying the payload. Benchmarks use such closures to measure header processing alone.
impl<F: FnMut(&mut [u8], &[u8])> PayloadSink for F {
    #[inline(always)]
    fn place(&mut self, place: &mut [u8], payload: &[u8]) {
        self(place, payload);
    }
}
