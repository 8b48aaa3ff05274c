//! Payloads -> their places: the step that most packets cost most for.

/// Brings payloads to their places.
pub trait PayloadSink {
    /// Brings `payload` to `place`, which is as long. A place is good until the next packet is pushed: what is held
    /// may move to a larger buffer, or end.
    fn bring(&mut self, place: &mut [u8], payload: &[u8]);

    /// Hears that a payload may soon be brought to this place, and may have both prefetched.
    fn prefetch(&self, _place: &[u8], _payload: &[u8]) {}
}

/// Copies payloads: what a gateway does.
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

/// Leaves payloads where they are: they were received at their places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavePayload;

impl PayloadSink for LeavePayload {
    #[inline(always)]
    fn bring(&mut self, _place: &mut [u8], _payload: &[u8]) {}
}

/// Cache lines of a narrow packet; of longer ones the processor prefetches the rest by itself.
const LINES_MAX: usize = 24;

/// Only writes down what belongs where, for measurements of header work alone.
impl<F: FnMut(&mut [u8], &[u8])> PayloadSink for F {
    #[inline(always)]
    fn bring(&mut self, place: &mut [u8], payload: &[u8]) {
        self(place, payload);
    }
}
