//! Payloads -> their positions in the reassembly buffer. Most packets cost most of their time here.

/// Moves payloads to their positions.
pub trait PayloadSink {
    /// Moves `payload` to `place`, which has the same length. A position is valid until the next packet is pushed.
    /// After that, a held datagram may move to a larger buffer, or end.
    fn bring(&mut self, place: &mut [u8], payload: &[u8]);

    /// May prefetch both: `payload` may soon be moved to `place`.
    fn prefetch(&self, _place: &[u8], _payload: &[u8]) {}
}

/// Copies payloads. Gateways use this.
#[derive(Clone, Copy, Debug)]
pub struct CopyPayload;

impl PayloadSink for CopyPayload {
    #[inline(always)]
    fn bring(&mut self, place: &mut [u8], payload: &[u8]) {
        place.copy_from_slice(payload);
    }

    #[inline(always)]
    fn prefetch(&self, place: &[u8], payload: &[u8]) {
        packet::prefetch_lines(place, LINES_MAX);
        packet::prefetch_lines(payload, LINES_MAX);
    }
}

/// Leaves payloads in place: they were received at their positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavePayload;

impl PayloadSink for LeavePayload {
    #[inline(always)]
    fn bring(&mut self, _place: &mut [u8], _payload: &[u8]) {}
}

/// Cache lines of a narrow packet. The processor prefetches the rest of longer ones by itself.
const LINES_MAX: usize = 24;

/// Only records the positions of payloads. For measurements of header work alone.
impl<F: FnMut(&mut [u8], &[u8])> PayloadSink for F {
    #[inline(always)]
    fn bring(&mut self, place: &mut [u8], payload: &[u8]) {
        self(place, payload);
    }
}
