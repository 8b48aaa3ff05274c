//! Acknowledged bytes -> a window that grows by one segment per round trip (RFC 5681 section 3.1).
//!
//! Reno is the standard's algorithm, as an alternative to CUBIC.

use super::Window;

/// The state of RFC 5681's congestion avoidance, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Reno {
    acked: u64,
}

impl Reno {
    /// Grows the window by one segment for each acknowledged window (RFC 5681 section 3.1, counted in bytes as in
    /// RFC 3465).
    pub(super) fn grow(&mut self, window: &mut Window, len: u64) {
        self.acked += len;
        if self.acked >= window.len {
            let steps = self.acked / window.len;
            self.acked -= steps * window.len;
            window.len += steps * window.mss;
        }
    }

    /// The slow start threshold after a loss: half of the bytes in flight, at least two segments (RFC 5681 equation
    /// 4).
    pub(super) fn threshold(window: &Window, in_flight: u64) -> u64 {
        (in_flight / 2).max(2 * window.mss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_acknowledgements_adds_one_segment_rfc_5681_3_1() {
        let mut window = Window { len: 10_000, threshold: 0, mss: 1_000 };
        let mut reno = Reno::default();
        (0..9).for_each(|_| reno.grow(&mut window, 1_000));
        assert_eq!(window.len, 10_000);
        reno.grow(&mut window, 1_000);
        assert_eq!(window.len, 11_000);
    }
}
