//! Evidence, ICMP errors and probes -> the packet size to use.
//!
//! The search is in one of three phases. At first it assumes that the path carries packets of the own link's MTU
//! ([`Phase::LinkMtu`]). Evidence that this size does not pass begins a search between the longest delivered size and
//! the failing one ([`Phase::Searching`]). Probes halve the range. Then the size is kept for ten minutes
//! ([`Phase::Settled`]), after which larger sizes are tried again: first the MTU of the own link, because most
//! changes of a path are undone, then the next common size. An ICMP error leads to [`Phase::Settled`] at once.
//!
//! A probe that is lost is tried again, so ordinary loss seldom ends a search too low. Where it does, the size stays
//! low for at most the time of [`Phase::Settled`].
//!
//! # Law
//!
//! The size decreases only by evidence or by an ICMP error. Below the ceiling, a larger size is tried after at most
//! [`RAISE_AFTER`].

use crate::evidence::PathEvidence;
use crate::sizes::Sizes;
use core::time::Duration;
use packet::Time;

/// The search for the largest packet size that a path carries.
#[derive(Clone, Debug)]
pub struct SizeSearch {
    sizes: Sizes,
    size: u16,
    phase: Phase,
    evidence: PathEvidence,
}

/// The phase of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The size is the MTU of the own link, and no evidence speaks against it.
    LinkMtu,
    /// Probes look for a size between the current one and one that fails.
    Searching(Search),
    /// The size is below the MTU of the own link. Larger sizes are tried after `until`.
    Settled {
        /// The end of the phase.
        until: Time,
    },
}

/// The state of [`Phase::Searching`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The smallest size that is taken to fail, in bytes: all probes are smaller.
    high: u16,
    /// The next probe.
    next: Option<u16>,
    /// Probes of the current size that were lost.
    lost_count: u8,
    /// The probe that was sent and neither lost nor delivered, and its time.
    in_flight: Option<(u16, Time)>,
    /// The time from which the next probe may be sent.
    from: Time,
    /// Whether the search ends with the first size that fails.
    is_raise: bool,
}

impl SizeSearch {
    /// Creates the search for a path about which nothing is known.
    pub fn new(sizes: Sizes) -> SizeSearch {
        SizeSearch { sizes, size: sizes.ceiling, phase: Phase::LinkMtu, evidence: PathEvidence::default() }
    }

    /// Returns the largest packet to send, in bytes, including the IP header.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the size has been settled, and below the ceiling, for at least this time.
    pub fn is_settled_since(&self, now: Time, duration: Duration) -> bool {
        matches!(self.phase, Phase::Settled { until } if until - RAISE_AFTER + duration <= now)
    }

    /// Whether the size has been lowered to the floor: the path may carry even less.
    pub fn is_at_floor(&self) -> bool {
        self.size <= self.sizes.floor && self.phase != Phase::LinkMtu
    }

    /// Returns what is known about sizes.
    pub fn evidence(&self) -> &PathEvidence {
        &self.evidence
    }

    /// Returns the size for packets whose bytes were lost `lost_count` times in packets of [`size`](Self::size).
    /// Their delivery distinguishes a size limit from an outage.
    pub fn size_after(&self, lost_count: u8) -> u16 {
        let Sizes { floor, base, .. } = self.sizes;
        match lost_count {
            0 => self.size,
            1 | 2 => self.size.min(base),
            _ => self.size.min(floor),
        }
    }

    /// Returns the size of a probe that is due, in bytes, for a packet of `len` bytes to a receiver that accepts
    /// `len_max` bytes. The probe counts as sent. `None` if none is due, or if the packet is too short for it.
    pub fn next_probe(&mut self, now: Time, len_max: u16, len: u16) -> Option<u16> {
        let ceiling = self.sizes.ceiling;
        let mut search = match self.phase {
            Phase::Searching(search) => search,
            Phase::Settled { until } if until <= now => Search {
                high: ceiling.saturating_add(1),
                next: Some(ceiling),
                lost_count: 0,
                in_flight: None,
                from: now,
                is_raise: true,
            },
            Phase::Settled { .. } | Phase::LinkMtu => return None,
        };
        if search.in_flight.is_some_and(|(_, sent)| now.since(sent) < PROBE_TIMEOUT) || now < search.from {
            return None;
        }
        let probe = search.next?.min(len_max);
        if probe <= self.size {
            // The receiver accepts no larger packet.
            self.phase = Phase::Settled { until: now + RAISE_AFTER };
            return None;
        }
        if probe > len {
            return None;
        }
        search.in_flight = Some((probe, now));
        self.phase = Phase::Searching(search);
        Some(probe)
    }

    /// Takes a delivered packet of `len` bytes; see [`PathEvidence::delivered`].
    pub fn delivered(&mut self, now: Time, len: u16) {
        self.evidence.delivered(now, len);
        // Any other packet above the size was sent before the size was lowered.
        let is_probe = |search: &Search| search.in_flight.is_some_and(|(probe, _)| probe == len);
        if matches!(&self.phase, Phase::Searching(search) if is_probe(search)) {
            self.size = len;
            self.continue_search(now, Outcome::Delivered);
        } else if self.evidence.against(self.size) >= ACCEPTED {
            self.lower(now);
        }
    }

    /// Takes a lost packet of `len` bytes on a path with round-trip time `rtt`. A lost probe is no evidence against
    /// the current size.
    pub fn lost(&mut self, now: Time, len: u16, rtt: Duration) {
        if len <= self.size {
            return self.evidence.lost(now, len, rtt);
        }
        if let Phase::Searching(search) = &mut self.phase
            && search.in_flight.take_if(|(probe, _)| *probe == len).is_some()
        {
            search.lost_count += 1;
            search.from = now + rtt;
            if search.lost_count >= PROBE_TRIES {
                self.continue_search(now, Outcome::Lost(len));
            }
        }
    }

    /// Takes a validated ICMP error that states the MTU `mtu`, in bytes. Returns whether the size decreased. Errors
    /// with an MTU that is not smaller than the size, or below the floor, are ignored, unless they answer a probe.
    pub fn too_big(&mut self, now: Time, mtu: u16) -> bool {
        if let Phase::Searching(search) = &mut self.phase
            && mtu >= self.size
            && search.in_flight.take_if(|(probe, _)| mtu < *probe).is_some()
        {
            (search.high, search.lost_count) = (mtu.saturating_add(1), 0);
            search.next = (mtu > self.size).then_some(mtu);
            self.settle_if_done(now);
            return false;
        }
        if mtu >= self.size || mtu < self.sizes.floor {
            return false;
        }
        self.size = mtu;
        self.evidence.forget_sizes();
        self.phase = Phase::Settled { until: now + RAISE_AFTER };
        true
    }

    /// Lowers the size to one that passes, and searches above it.
    fn lower(&mut self, now: Time) {
        let failing = self.evidence.smallest_failing().unwrap_or(self.size).min(self.size);
        let Sizes { floor, base, .. } = self.sizes;
        let fallback = if failing > base { base } else { floor };
        self.size = self.evidence.longest_delivered().map_or(fallback, |len| len.max(fallback));
        self.evidence.forget_sizes();
        let next = self.sizes.between(self.size, failing);
        let search = Search { high: failing, next, lost_count: 0, in_flight: None, from: now, is_raise: false };
        self.phase = Phase::Searching(search);
        self.settle_if_done(now);
    }

    fn continue_search(&mut self, now: Time, outcome: Outcome) {
        let Phase::Searching(mut search) = self.phase else { return };
        if let Outcome::Lost(len) = outcome {
            search.high = len;
        }
        (search.in_flight, search.lost_count) = (None, 0);
        search.next = match outcome {
            // The path is not as it was, but it may carry a little more than it did.
            Outcome::Lost(len) if search.is_raise && len == self.sizes.ceiling => {
                Some(self.sizes.next_above(self.size)).filter(|next| *next < len)
            }
            Outcome::Lost(_) if search.is_raise => None,
            Outcome::Delivered | Outcome::Lost(_) => self.sizes.between(self.size, search.high),
        };
        search.is_raise &= matches!(outcome, Outcome::Lost(_));
        self.phase = Phase::Searching(search);
        self.settle_if_done(now);
    }

    fn settle_if_done(&mut self, now: Time) {
        if self.size == self.sizes.ceiling {
            self.phase = Phase::LinkMtu;
        } else if matches!(self.phase, Phase::Searching(Search { next: None, .. })) {
            self.phase = Phase::Settled { until: now + RAISE_AFTER };
        }
    }
}

/// The outcome of the probes of one size.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Delivered,
    /// Probes of this length were lost.
    Lost(u16),
}

/// Evidence at which a size is lowered, a natural logarithm: one error in 10^9 tests (Wald: ln(1 / alpha)).
const ACCEPTED: f64 = 20.7;
/// Lost probes of one size before it is taken to fail (RFC 8899 section 5.1.2: MAX_PROBES).
const PROBE_TRIES: u8 = 3;
/// Time after which a probe is given up whose outcome is unknown, because its connection sends nothing more (RFC
/// 8899 section 5.1.1: PROBE_TIMER, at least 1 s; the largest round-trip time of RFC 6298's first time-out).
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which larger sizes are tried again (RFC 1191 section 6.3, RFC 8899 section 5.1.1: PMTU_RAISE_TIMER).
pub const RAISE_AFTER: Duration = Duration::from_secs(600);
