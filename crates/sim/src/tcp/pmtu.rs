//! ICMP errors, time-outs and acknowledged probes -> the path MTU.
//!
//! Segment sizes must follow a path MTU that changes. There are three sources of information: ICMP errors of
//! routers (RFC 1191, RFC 8201), repeated time-outs at black holes, and probes (RFC 4821). All sizes are lengths of
//! IP packets, in bytes. The caller must check that an ICMP error quotes data in flight (RFC 5927 section 4.1;
//! R064).

use super::settings::{Belief, PathChoice, Probing};
use packet::{Time, Version};
use std::time::Duration;

/// The path MTU state of one flow (R057).
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    choice: PathChoice,
    /// MTU of the host's own link, in bytes.
    link: u32,
    /// Current estimate of the path MTU, in bytes.
    mtu: u32,
    floor: u32,
    /// Length of the longest packet acknowledged since the last reduction, in bytes.
    proven: u32,
    /// Time when an ICMP error lowered the estimate; `None` if none did.
    lowered: Option<Time>,
    /// MTU from an ICMP error that is ignored until a time-out confirms it (R065).
    waiting: Option<u32>,
    search: Option<Search>,
}

/// The range of sizes in which probes search. Size `low` is proven, and sizes above `high` are not probed.
#[derive(Clone, Copy, Debug)]
struct Search {
    low: u32,
    high: u32,
    /// Time before which no probe is sent.
    from: Time,
    in_flight: Option<u32>,
}

impl PathMtu {
    /// A path about which nothing is known except the MTU `link`. `probe_from` is the smallest probe, in bytes.
    pub(crate) fn new(choice: PathChoice, version: Version, link: u32, probe_from: u32) -> PathMtu {
        let floor = match version {
            Version::V4 => FLOOR_V4,
            Version::V6 => FLOOR_V6,
        };
        let low = probe_from.clamp(floor.min(link), link);
        let search = (choice.probing == Probing::Always).then_some(Search {
            low,
            high: link,
            from: Time::ZERO,
            in_flight: None,
        });
        let mtu = if search.is_some() { low } else { link };
        PathMtu { choice, link, mtu, floor, proven: 0, lowered: None, waiting: None, search }
    }

    /// The current estimate of the path MTU, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether packets must not be fragmented.
    pub(crate) fn forbids_fragments(&self) -> bool {
        self.choice.discovery
    }

    /// Handles an ICMP error with MTU `mtu` (RFC 1191 section 3, RFC 8201 section 4). Returns whether the estimate
    /// decreased.
    pub(crate) fn report(&mut self, now: Time, mtu: u32) -> bool {
        if !self.choice.discovery {
            return false;
        }
        // Old routers leave the field 0: the next smaller common MTU applies (RFC 1191 section 7.1).
        let mtu = if mtu == 0 { plateau_below(self.mtu) } else { mtu };
        if mtu >= self.mtu || mtu < self.floor {
            return false;
        }
        if self.choice.belief == Belief::AfterTimeout && self.proven > mtu {
            self.waiting = Some(mtu);
            return false;
        }
        self.lower(now, mtu);
        true
    }

    /// Records that a packet of `len` bytes was acknowledged.
    pub(crate) fn delivered(&mut self, len: u32) {
        self.proven = self.proven.max(len);
        // Progress disproves the report (RFC 5927 section 7.2; R065).
        self.waiting = self.waiting.filter(|mtu| len <= *mtu);
    }

    /// Handles the `count`-th consecutive time-out of a packet of `len` bytes. Returns whether the estimate
    /// decreased.
    ///
    /// - Input: time-outs of one packet that is longer than every proven size, or than the minimum MTU.
    /// - Conclusion: a link on the path cannot carry this size, and its router sends no ICMP error.
    /// - Error case: the path is interrupted for a while.
    /// - Cost of the error: shorter packets until probes find the size again.
    pub(crate) fn timed_out(&mut self, now: Time, count: u32, len: u32) -> bool {
        if let Some(mtu) = self.waiting.take().filter(|mtu| *mtu < self.mtu) {
            self.lower(now, mtu);
            return true;
        }
        if self.choice.probing == Probing::Off || count < FULL_STOP_COUNT || len <= self.floor || len > self.mtu {
            return false;
        }
        // To the proven size, then by halves (RFC 4821 section 7.7; R056).
        let high = self.search.map_or(self.mtu - 1, |search| search.high.min(self.mtu - 1));
        let shorter = if self.proven < len && self.proven >= self.floor { self.proven } else { len / 2 };
        self.mtu = shorter.max(self.floor);
        self.proven = 0;
        self.lowered = None;
        self.search = Some(Search { low: self.mtu, high: high.max(self.mtu), from: now, in_flight: None });
        true
    }

    fn lower(&mut self, now: Time, mtu: u32) {
        (self.mtu, self.proven, self.lowered) = (mtu, 0, Some(now));
        if let Some(search) = &mut self.search {
            *search = Search { low: search.low.min(mtu), high: mtu, from: now, in_flight: None };
        }
    }

    /// Restores the link's MTU if the last ICMP error is old enough (RFC 1191 section 6.3, RFC 8201 section 5.4).
    /// Returns whether the estimate increased.
    pub(crate) fn forget_old(&mut self, now: Time) -> bool {
        let is_old = self.lowered.is_some_and(|at| now.since(at) >= self.choice.timeout);
        if !is_old {
            return false;
        }
        self.lowered = None;
        match &mut self.search {
            Some(search) => search.high = self.link,
            None => self.mtu = self.link,
        }
        self.search.is_none()
    }
}

/// Path MTU probes.
impl PathMtu {
    /// The size of the probe that is due, if any: above the proven size, at most the search limit (R052).
    pub(crate) fn next_probe(&mut self, now: Time) -> Option<u32> {
        let (link, timeout) = (self.link, self.choice.timeout.max(SEARCH_PAUSE_MIN));
        let search = self.search.as_mut()?;
        if search.in_flight.is_some() || now < search.from {
            return None;
        }
        if search.high.saturating_sub(search.low) < STEP_MIN {
            // Converged: the search for longer sizes resumes after a while (R053).
            if search.high < link {
                (search.high, search.from) = (link, now + timeout);
            }
            return None;
        }
        Some(search.low + (search.high - search.low).div_ceil(2))
    }

    /// Records that a probe of `len` bytes was sent.
    pub(crate) fn probing(&mut self, len: u32) {
        if let Some(search) = &mut self.search {
            search.in_flight = Some(len);
        }
    }

    /// Records that the probe was acknowledged. Returns whether the estimate increased.
    pub(crate) fn probe_arrived(&mut self, len: u32) -> bool {
        let Some(search) = self.search.as_mut().filter(|search| search.in_flight == Some(len)) else {
            return false;
        };
        (search.low, search.in_flight) = (len, None);
        self.proven = self.proven.max(len);
        let is_longer = len > self.mtu;
        self.mtu = self.mtu.max(len);
        is_longer
    }

    /// Records that the probe was lost. If no other segment was lost (`alone`), the path's MTU is smaller than the
    /// probe. The next probe is sent after `pause`, so that probes cause fewer losses than congestion avoidance
    /// (RFC 4821 section 7.6.2; R054).
    pub(crate) fn probe_lost(&mut self, now: Time, alone: bool, pause: Duration) {
        let Some(search) = &mut self.search else { return };
        let Some(len) = search.in_flight.take() else { return };
        if alone {
            search.high = len - 1;
        }
        search.from = now + pause;
    }

    /// Whether a probe is in flight.
    pub(crate) fn has_probe(&self) -> bool {
        self.search.is_some_and(|search| search.in_flight.is_some())
    }
}

/// The next common MTU below `mtu` (RFC 1191 section 7.1, table 7-1).
fn plateau_below(mtu: u32) -> u32 {
    PLATEAUS.into_iter().find(|plateau| *plateau < mtu).unwrap_or(FLOOR_V4)
}

const PLATEAUS: [u32; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, FLOOR_V4];
/// Minimum MTU of an IPv4 link, in bytes (RFC 791 section 3.2).
const FLOOR_V4: u32 = 68;
/// Minimum MTU of an IPv6 link, in bytes (RFC 8200 section 5).
const FLOOR_V6: u32 = 1_280;
/// Number of consecutive time-outs that indicate a black hole.
const FULL_STOP_COUNT: u32 = 2;
/// Search accuracy: sizes that differ by less than this are treated as equal, in bytes (Linux's
/// `tcp_probe_threshold`).
const STEP_MIN: u32 = 8;
/// Minimum pause after a search has converged (RFC 4821 section 7.3).
const SEARCH_PAUSE_MIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::*;

    #[test]
    fn a_report_lowers_the_size_and_never_raises_it_rfc_1191_3() {
        let mut path = path(Probing::Off, Belief::AtOnce);
        assert!(path.report(Time::ZERO, 1_500));
        assert!(!path.report(Time::ZERO, 4_000));
        assert!(!path.report(Time::ZERO, 60), "below what every link takes");
        assert_eq!(path.mtu(), 1_500);
    }

    #[test]
    fn an_old_routers_report_means_the_next_plateau_rfc_1191_7_1() {
        let mut path = path(Probing::Off, Belief::AtOnce);
        let sizes: Vec<u32> = (0..4)
            .map(|_| {
                path.report(Time::ZERO, 0);
                path.mtu()
            })
            .collect();
        assert_eq!(sizes, [8_166, 4_352, 2_002, 1_492]);
    }

    #[test]
    fn the_links_size_is_tried_again_after_ten_minutes_rfc_1191_6_3() {
        let mut path = path(Probing::Off, Belief::AtOnce);
        path.report(Time::ZERO, 1_500);
        assert!(!path.forget_old(at(599)));
        assert!(path.forget_old(at(600)));
        assert_eq!(path.mtu(), 9_000);
    }

    #[test]
    fn a_report_about_an_acknowledged_size_waits_for_a_time_out_and_progress_discards_it_rfc_5927_7_2() {
        for progress in [false, true] {
            let mut path = path(Probing::Off, Belief::AfterTimeout);
            path.delivered(9_000);
            assert!(!path.report(Time::ZERO, 1_500));
            if progress {
                path.delivered(9_000);
            }
            assert_eq!(path.timed_out(Time::ZERO, 1, 9_000), !progress);
            assert_eq!(path.mtu(), if progress { 9_000 } else { 1_500 });
        }
    }

    #[test]
    fn a_full_stop_falls_to_the_proven_size_and_then_halves_down_to_the_floor_rfc_4821_7_7() {
        let mut path = path(Probing::AfterBlackHole, Belief::AtOnce);
        path.delivered(1_500);
        assert!(!path.timed_out(Time::ZERO, 1, 9_000), "one time-out is a loss");
        let mut sizes = Vec::new();
        for count in 2..8 {
            path.timed_out(Time::ZERO, count, path.mtu());
            sizes.push(path.mtu());
        }
        assert_eq!(sizes, [1_500, 750, 375, 187, 93, 68]);
    }

    #[test]
    fn probes_find_the_size_of_the_path_to_within_eight_bytes_rfc_4821_7() {
        for carried in [1_100, 1_500, 4_470, 8_999, 9_000] {
            let mut path = path(Probing::Always, Belief::AtOnce);
            let mut now = Time::ZERO;
            let mut count = 0;
            while let Some(len) = path.next_probe(now) {
                assert!(len > path.mtu() && len <= 9_000, "R052");
                path.probing(len);
                assert_eq!(path.next_probe(now), None, "one at a time");
                match len <= carried {
                    true => assert!(path.probe_arrived(len)),
                    false => path.probe_lost(now, true, Duration::from_secs(1)),
                }
                now = now + Duration::from_secs(1);
                count += 1;
            }
            assert!(path.mtu() <= carried && path.mtu() + STEP_MIN > carried, "{} of {carried}", path.mtu());
            assert!(count <= 12, "{count} probes");
            assert_eq!(path.next_probe(now + Duration::from_secs(299)), None, "R053");
        }
    }

    #[test]
    fn a_probe_lost_with_its_neighbours_changes_no_size_rfc_4821_7_6_4() {
        let mut path = path(Probing::Always, Belief::AtOnce);
        let first = path.next_probe(Time::ZERO).unwrap();
        path.probing(first);
        path.probe_lost(Time::ZERO, false, Duration::from_secs(2));
        assert_eq!(path.next_probe(at(1)), None, "R054");
        assert_eq!(path.next_probe(at(2)), Some(first), "R055");
    }

    fn path(probing: Probing, belief: Belief) -> PathMtu {
        let choice = PathChoice { probing, belief, ..Settings::linux().path };
        PathMtu::new(choice, Version::V4, 9_000, 1_064)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }
}
