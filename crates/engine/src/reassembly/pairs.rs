//! New datagrams of a host pair -> their time-out, the wrap of their identifications, and their predicted length.
//!
//! A pair's counters are selected by a hash of its addresses and protocol. Other pairs may have equal hashes. The
//! count of a pair is then too high, never too low. So every decision based on a count stays safe.

use super::may_join::{DatagramKey, id_may_have_wrapped};
use crate::keyed_hash::{Secret, TableKey};
use core::time::Duration;
use packet::{Time, Version};

/// Counters of host pairs.
#[derive(Debug)]
pub(super) struct Pairs {
    counters: Box<[Counter]>,
    /// Number of datagrams started by all pairs, modulo 2^32.
    opened: u32,
    /// The time-outs of IPv4, then of IPv6, each with the longest first.
    timeouts: [Timeouts; 2],
    /// The hash key of pairs. A collision of two pairs costs little.
    key: TableKey,
}

/// The indexes of a host pair's two counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair(pub(super) [u16; 2]);

/// The counts at the start of a datagram: the count of all pairs, and the two counts of its own pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdEpoch {
    opened: u32,
    pair: Pair,
    totals: [u32; 2],
}

/// Counts of the datagrams of all pairs with one hash: in total, in the current window, and in the window before.
/// `last_len` is the payload length of the last complete datagram, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    window: u64,
    total: u32,
    count: u32,
    before: u32,
    last_len: u16,
}

/// The time-outs of one IP version, the longest first.
type Timeouts = [Timeout; SHORTER.len()];

/// A time-out, and the maximum number of new datagrams per window for which identifications do not wrap within this
/// time.
#[derive(Clone, Copy, Debug)]
struct Timeout {
    duration: Duration,
    datagrams: u32,
}

impl Pairs {
    /// Creates counters with the standard time-outs, or with `timeout` for both IP versions.
    pub(super) fn new(timeout: Option<Duration>, secret: Secret) -> Pairs {
        let longest = timeout.map_or(STANDARD_TIMEOUTS, |timeout| [timeout; 2]);
        let [v4, v6] = longest;
        let timeouts = [(v4, Version::V4), (v6, Version::V6)]
            .map(|(longest, version)| SHORTER.map(|divisor| Timeout::new(longest / divisor, version)));
        let counters = vec![Counter::default(); 2 * COUNTERS].into_boxed_slice();
        Pairs { counters, opened: 0, timeouts, key: TableKey::new(secret) }
    }

    /// Returns all time-outs that a datagram may have.
    pub(super) fn timeouts(&self) -> Vec<Duration> {
        let mut all: Vec<Duration> = self.timeouts.as_flattened().iter().map(|timeout| timeout.duration).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Returns the two counters of a key's pair. Each counter may include other pairs, so the lower count is closer
    /// to the true one. A pair rarely shares both counters with a fast pair.
    #[inline(always)]
    pub(super) fn of(&self, key: &DatagramKey) -> Pair {
        let [e0, e1, e2, e3] = key.ends.words();
        let what = u64::from(key.protocol) | (key.version as u64) << 8;
        let pair =
            if e1 | e2 | e3 == 0 { self.key.hash([e0, what]) } else { self.key.hash([e0, e1, e2, e3, what, 0]) };
        Pair([pair as usize % COUNTERS, COUNTERS + (pair >> 32) as usize % COUNTERS].map(|at| at as u16))
    }

    /// Counts a new datagram, and returns its time-out. The time-out is shorter if the pair's identifications wrap
    /// sooner. So two datagrams with one identification are never open together (X2, RFC 4963 section 2, R060).
    #[inline(always)]
    pub(super) fn count(&mut self, now: Time, pair: Pair, version: Version) -> (Duration, IdEpoch) {
        let window = now.nanos() / WINDOW.as_nanos() as u64;
        let [(count, total), (other_count, other_total)] =
            pair.0.map(|at| self.counters.get_mut(usize::from(at)).map_or((0, 0), |it| it.count(window)));
        let datagrams = count.min(other_count);
        let [v4, v6] = &self.timeouts;
        let timeouts = if version == Version::V4 { v4 } else { v6 };
        let [.., shortest] = timeouts;
        let timeout = timeouts.iter().find(|timeout| datagrams <= timeout.datagrams).unwrap_or(shortest);
        let epoch = IdEpoch { opened: self.opened, pair, totals: [total, other_total] };
        self.opened = self.opened.wrapping_add(1);
        (timeout.duration, epoch)
    }

    /// Whether the identification of a datagram started at `epoch` may have been reused. When a pair becomes
    /// faster, the time-out of its earlier datagrams may exceed the new wrap time of identifications.
    #[inline(always)]
    pub(super) fn id_may_have_wrapped(&self, epoch: &IdEpoch, version: Version) -> bool {
        id_may_have_wrapped(version, self.opened.wrapping_sub(epoch.opened), || self.started_since(epoch))
    }

    /// Returns an upper bound on the number of datagrams that a pair has started since `epoch`.
    #[cold]
    fn started_since(&self, epoch: &IdEpoch) -> u32 {
        let counters = epoch.pair.0.map(|at| self.counters.get(usize::from(at)).map_or(0, |it| it.total));
        let since = counters.iter().zip(epoch.totals).map(|(total, then)| total.wrapping_sub(then));
        since.min().unwrap_or(0)
    }

    /// Returns the payload length of the pair's last complete datagram, in bytes. The next datagram is expected to
    /// have this length. 0 if unknown.
    #[inline]
    pub(super) fn predicted_len(&self, pair: Pair) -> usize {
        let [at, _] = pair.0;
        self.counters.get(usize::from(at)).map_or(0, |it| usize::from(it.last_len))
    }

    /// Records the payload length of a complete datagram, in bytes.
    #[inline]
    pub(super) fn note_len(&mut self, epoch: &IdEpoch, len: usize) {
        let [at, _] = epoch.pair.0;
        if let Some(counter) = self.counters.get_mut(usize::from(at)) {
            counter.last_len = len as u16;
        }
    }
}

impl IdEpoch {
    /// Returns the indexes of the counters of the datagram's host pair.
    pub(super) fn pair(&self) -> Pair {
        self.pair
    }
}

impl Timeout {
    /// Creates a time-out of this length. A pair may use it while the pair uses at most half of the identifications
    /// within this time.
    fn new(duration: Duration, version: Version) -> Timeout {
        let windows = duration.as_nanos().div_ceil(WINDOW.as_nanos()).max(1);
        let datagrams = (1 << (version.id_bits() - 1)) / windows;
        Timeout { duration, datagrams: u32::try_from(datagrams).unwrap_or(u32::MAX) }
    }
}

impl Counter {
    /// Counts a datagram. Returns the higher count of the last two windows, and the total count.
    #[inline(always)]
    fn count(&mut self, window: u64) -> (u32, u32) {
        if window != self.window {
            self.before = if window == self.window + 1 { self.count } else { 0 };
            (self.window, self.count) = (window, 0);
        }
        self.total = self.total.wrapping_add(1);
        self.count = self.count.saturating_add(1);
        (self.count.max(self.before), self.total)
    }
}

/// Number of counters in each of the two tables.
pub(super) const COUNTERS: usize = 1_024;
/// The window in which new datagrams of a pair are counted.
const WINDOW: Duration = Duration::from_millis(100);
/// Standard time-outs of IPv4 and IPv6.
const STANDARD_TIMEOUTS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Divisors that shorten a time-out for host pairs that start many datagrams per second.
const SHORTER: [u32; 4] = [1, 8, 64, 512];
