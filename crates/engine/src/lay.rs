//! Payloads and their places in, payloads in their places out.

/// Brings payloads to their places: a copy, or whatever a caller knows that is better.
pub trait Lay {
    /// Brings `payload` to `place`, which is as long. Who brings it there later, or has brought it there before, does nothing;
    /// until it is there, a repeat of it is taken for an overlap.
    fn lay(&mut self, place: &mut [u8], payload: &[u8]);

    /// Hears that a payload is soon to be brought to this place, for who would have both fetched meanwhile.
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
        packet::prefetch_lines(place, usize::MAX);
        packet::prefetch_lines(payload, usize::MAX);
    }
}

impl<F: FnMut(&mut [u8], &[u8])> Lay for F {
    #[inline(always)]
    fn lay(&mut self, place: &mut [u8], payload: &[u8]) {
        self(place, payload);
    }
}
