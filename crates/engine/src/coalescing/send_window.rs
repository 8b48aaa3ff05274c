//! Pauses of a sender -> the bytes of its stream that may be held.
//!
//! A sender that has sent its whole window waits for acknowledgements. Held segments are not acknowledged, so a run
//! that waits for more segments than the window has stalls the sender until the hold time-out. This module sees no
//! acknowledgements, which may take another path.
//!
//! - It sees: pauses between the segments of a stream, and the bytes between two pauses.
//! - It concludes: these bytes are the sender's window, if segments were held during the second pause. A quarter of
//!   the window may be held.
//! - It is wrong if the sender paused for another reason, or if the window has grown since. It is also wrong if the
//!   pauses are too short to be seen.
//! - A low estimate costs shorter runs. A high estimate costs one stall, of at most one hold time. Estimates rise
//!   slowly, so a stall comes after at least eight hold times without one.

use core::time::Duration;
use packet::Time;

/// The estimated window of a stream's sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    /// The next sequence number at the last pause, or at the start of the stream.
    pause_seq: u32,
    /// The estimate in bytes. [`UNLIMITED`] if the window needs no consideration.
    estimate: u32,
    /// Average interval between segments, without pauses, in nanoseconds. While the estimate is [`UNLIMITED`], it
    /// includes only intervals above [`PAUSE_MIN`].
    interval: u32,
    /// Whether the sender has not paused yet. Its window is then at least as large as all bytes that it sent.
    is_opening: bool,
    /// Whether the last run ended at the hold time-out.
    pub(super) timed_out: bool,
    /// The time of the last change of the estimate.
    changed: Time,
}

/// The end of an interval between two segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Time,
    /// The time since the previous segment, in nanoseconds.
    pub(crate) gap: u64,
    /// The sequence number behind the previous segment.
    pub(crate) next_seq: u32,
    /// The payload of the segment, in bytes.
    pub(crate) payload_len: u16,
    /// Whether segments of the stream were held when this one arrived.
    pub(crate) held: bool,
}

impl SendWindow {
    /// The window of a sender that has sent nothing before `next_seq`.
    pub(crate) fn of_new_sender(now: Time, next_seq: u32) -> SendWindow {
        SendWindow {
            pause_seq: next_seq,
            estimate: INITIAL_WINDOW,
            interval: 0,
            is_opening: true,
            timed_out: false,
            changed: now,
        }
    }

    /// The window of a sender whose runs may have any length.
    pub(crate) fn unlimited() -> SendWindow {
        SendWindow { estimate: UNLIMITED, is_opening: false, ..SendWindow::of_new_sender(Time::ZERO, 0) }
    }

    /// Whether the estimate limits the held bytes.
    #[inline]
    pub(crate) fn limits(&self) -> bool {
        self.estimate != UNLIMITED
    }

    /// Returns the number of bytes that may be held. `None`: any number.
    pub(crate) fn share(&self) -> Option<usize> {
        self.limits().then_some((self.estimate / SHARE) as usize)
    }

    /// Takes an interval above [`PAUSE_MIN`], or any interval of a stream whose held bytes are limited. `hold` is
    /// the hold time.
    pub(crate) fn arrive(&mut self, arrival: Arrival, hold: Duration) {
        let Arrival { now, gap, next_seq, payload_len, held } = arrival;
        let sent = next_seq.wrapping_sub(self.pause_seq);
        // A run that reached its maximum age ended at the hold time-out too, but its sender did not pause.
        let timed_out = core::mem::take(&mut self.timed_out) && !held && gap >= hold.as_nanos() as u64;
        let is_pause = gap > PAUSE_MIN.as_nanos() as u64
            && gap > PAUSE_INTERVALS * u64::from(self.interval)
            && sent > INTERVAL_SEGMENTS * u32::from(payload_len);
        if !is_pause {
            let gap = u32::try_from(gap).unwrap_or(u32::MAX);
            self.interval = self.interval / 2 + gap / 2;
        }
        if is_pause || timed_out {
            self.pause_seq = next_seq;
            self.is_opening = false;
            if (held || timed_out) && sent < self.estimate {
                self.estimate = sent;
                self.changed = now;
            }
        } else if self.is_opening {
            self.estimate = self.estimate.max(sent);
        } else if self.limits() && now.since(self.changed) >= RISE_HOLDS * hold {
            self.estimate = self.estimate.saturating_mul(2);
            self.changed = now;
        }
        if self.limits() && self.estimate >= SHARE * LEN_MAX {
            (self.estimate, self.is_opening) = (UNLIMITED, false);
        }
    }
}

/// Shortest pause, in nanoseconds: above the time between two interrupts of a NIC (up to 125 µs).
pub(crate) const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Shortest pause, in average intervals between segments.
const PAUSE_INTERVALS: u64 = 4;
/// Number of segments after which an interval may be a pause. A receiver acknowledges every second segment (RFC
/// 9293 section 3.8.6.3), so pairs of segments need no pause.
const INTERVAL_SEGMENTS: u32 = 2;
/// The part of the window that may be held is 1 divided by this. L21 demands at most a half; a quarter delays
/// acknowledgements less.
const SHARE: u32 = 4;
/// Shortest time before an estimate is doubled, in hold times.
const RISE_HOLDS: u32 = 8;
/// Initial window of a sender, in bytes (RFC 6928).
const INITIAL_WINDOW: u32 = 14_600;
/// Maximum length of a run, in bytes.
const LEN_MAX: u32 = 65_536;
/// The estimate of a window that needs no consideration.
const UNLIMITED: u32 = u32::MAX;
