//! Lateness of each frame in nanoseconds -> distribution of the lateness.
//!
//! The emulator reports the distribution with its results. Buckets need little memory for any number of frames.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Distribution of the lateness of departures. No bucket is wider than 1/32 of its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Spread", into = "Spread")]
pub struct Lateness {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

/// The serialised form: common quantiles, and every bucket that is not empty.
#[derive(Clone, Serialize, Deserialize)]
struct Spread {
    count: u64,
    median_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    /// Upper bound of each bucket in nanoseconds, and its number of values.
    buckets: Vec<(u64, u64)>,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { counts: vec![0; bucket_of(u64::MAX) + 1], count: 0, max: 0 }
    }
}

impl Lateness {
    /// Adds a value in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.counts[bucket_of(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    /// Returns the number of counted values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the largest value, in nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the quantile for a share from 0 to 1, in nanoseconds; 0 without values. The result is the upper
    /// bound of the quantile's bucket, so it is never too small.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        bucket.map_or(0, |bucket| end_of(bucket).min(self.max))
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (median, p99) = (micros(self.quantile(0.5)), micros(self.quantile(0.99)));
        write!(f, "late by {median:.1} us (median), {p99:.1} us (99 %), {:.1} us (max)", micros(self.max))
    }
}

impl From<Lateness> for Spread {
    fn from(lateness: Lateness) -> Spread {
        let filled = lateness.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Spread {
            count: lateness.count,
            median_ns: lateness.quantile(0.5),
            p90_ns: lateness.quantile(0.9),
            p99_ns: lateness.quantile(0.99),
            p999_ns: lateness.quantile(0.999),
            max_ns: lateness.max,
            buckets: filled.map(|(bucket, count)| (end_of(bucket), *count)).collect(),
        }
    }
}

impl From<Spread> for Lateness {
    fn from(spread: Spread) -> Lateness {
        let mut lateness = Lateness { count: spread.count, max: spread.max_ns, ..Lateness::default() };
        for (end, count) in spread.buckets {
            lateness.counts[bucket_of(end)] += count;
        }
        lateness
    }
}

/// Returns the bucket of a value. Values below 64 have one bucket each. From 64 on, 32 buckets cover each power of
/// two.
fn bucket_of(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(6);
    32 * shift as usize + (nanos >> shift) as usize
}

/// Returns the largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    let shift = (bucket / 32).saturating_sub(1);
    let top = (bucket - 32 * shift) as u128;
    u64::try_from(((top + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_narrow_bucket_that_ends_at_or_above_it() {
        let mut rng = fastrand::Rng::with_seed(1);
        let random = (0..100_000).map(|_| rng.u64(..) >> rng.u32(0..64));
        for nanos in (0..10_000).chain(random).chain([u64::MAX]) {
            let end = end_of(bucket_of(nanos));
            assert!(end >= nanos && end - nanos <= nanos / 32, "{nanos} is put at {end}");
            assert_eq!(bucket_of(end), bucket_of(nanos), "{nanos}");
        }
    }

    #[test]
    fn quantiles_match_sorted_numbers_to_a_bucket() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut numbers: Vec<u64> = (0..10_001).map(|_| rng.u64(..) >> rng.u32(20..64)).collect();
        let mut lateness = Lateness::default();
        numbers.iter().for_each(|number| lateness.record(*number));
        numbers.sort_unstable();
        for share in [0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = numbers[(10_001.0_f64 * share).ceil() as usize - 1];
            let quantile = lateness.quantile(share);
            assert!(quantile >= exact && quantile - exact <= exact / 32, "{quantile} for {exact} at {share}");
        }
        assert_eq!(Lateness::default().quantile(0.5), 0);
    }

    #[test]
    fn written_values_read_back() {
        let mut lateness = Lateness::default();
        [0, 1, 70, 5_000, 5_000, 1 << 40, u64::MAX].into_iter().for_each(|nanos| lateness.record(nanos));
        let json = serde_json::to_string(&lateness).unwrap();
        assert!(json.contains(r#""count":7,"median_ns":"#), "{json}");
        assert_eq!(serde_json::from_str::<Lateness>(&json).unwrap(), lateness);
    }
}
