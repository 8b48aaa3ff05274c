//! Payloads and their places in, payloads in their places out.

/// Brings payloads to their places: a copy, or whatever a caller knows that is better.
pub trait Lay {
    /// Brings `payload` to `place`, which is as long; who has brought it there before does nothing. A place is good until the
    /// next packet is pushed: what is held may move to a larger buffer, or end.
    fn lay(&mut self, place: &mut [u8], payload: &[u8]);

    /// Hears that a payload may soon be brought to this place, for who would have both fetched meanwhile.
    fn foresee(&self, _place: &[u8], _payload: &[u8]) {}
}

/// Copies payloads.
#[derive(Clone, Copy, Debug)]
pub struct Copying;

impl Lay for Copying {
    #[inline(always)]
    fn lay(&mut self, place: &mut [u8], payload: &[u8]) {
        place.copy_from_slice(payload);
    }

    #[inline(always)]
    fn foresee(&self, place: &[u8], payload: &[u8]) {
        packet::prefetch_lines(place, LINES_MAX);
        packet::prefetch_lines(payload, LINES_MAX);
    }
}

/// Leaves payloads where they are: in their places already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staying;

impl Lay for Staying {
    #[inline(always)]
    fn lay(&mut self, _place: &mut [u8], _payload: &[u8]) {}
}

/// Lines that a narrow packet takes; what is longer, the processor foresees by itself.
const LINES_MAX: usize = 24;

impl<F: FnMut(&mut [u8], &[u8])> Lay for F {
    #[inline(always)]
    fn lay(&mut self, place: &mut [u8], payload: &[u8]) {
        self(place, payload);
    }
}
