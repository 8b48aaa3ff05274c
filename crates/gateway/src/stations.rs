//! Frames of both sides of a border -> the side of each station, learned as a bridge does.
//!
//! A border also receives frames between two stations of one side: from a hub, or from a switch that has not
//! learned the receiver. Such a frame reaches its receiver without the border. An ICMP error about such a frame
//! would make the sender send shorter packets needlessly.
//!
//! All workers share the table, as each worker receives only some frames of a station. The table has a fixed size:
//! stations may share an entry, which then describes the last station heard. A frame to an unknown station is
//! treated as a frame to the other side.

use std::sync::atomic::{AtomicU64, Ordering};

/// The table of known stations. An entry contains the station's side and the time of its last frame.
#[derive(Debug)]
pub struct Stations(Box<[AtomicU64]>);

impl Default for Stations {
    fn default() -> Stations {
        Stations((0..PLACE_COUNT).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Stations {
    /// Learns the sender's side from a link header. `end` is the ingress: wide endpoint (0) or narrow endpoint (1).
    /// `seconds` is a time since any fixed moment. Returns whether the receiving station is on the sender's side.
    #[inline]
    pub fn pass(&self, link: &[u8], end: usize, seconds: u64) -> bool {
        let Some((to, rest)) = link.split_first_chunk() else { return false };
        let Some(from) = rest.first_chunk() else { return false };
        self.learn(*from, end, seconds);
        self.is_at(*to, end, seconds)
    }

    /// Records the side of a station from its frame's ingress: wide endpoint (0) or narrow endpoint (1). `seconds`
    /// is a time since any fixed moment.
    #[inline]
    fn learn(&self, mac: [u8; 6], end: usize, seconds: u64) {
        // Group addresses are never a source.
        if mac[0] & 1 == 0 {
            let word = number(mac) << 16 | (end as u64 & 1) << AGE_BITS | seconds & AGE_MASK;
            let place = self.place(mac);
            if place.load(Ordering::Relaxed) != word {
                place.store(word, Ordering::Relaxed);
            }
        }
    }

    /// Whether a frame of the station arrived at this endpoint within the last five minutes.
    #[inline]
    fn is_at(&self, mac: [u8; 6], end: usize, seconds: u64) -> bool {
        let word = self.place(mac).load(Ordering::Relaxed);
        let age = seconds.wrapping_sub(word) & AGE_MASK;
        // The clocks of workers started a moment apart.
        let is_fresh = age <= AGE_MAX || AGE_MASK - age < 2;
        word >> 16 == number(mac) && (word >> AGE_BITS & 1) as usize == end && word != 0 && is_fresh
    }

    fn place(&self, mac: [u8; 6]) -> &AtomicU64 {
        // 2^64 by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
        let at = number(mac).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACE_BITS);
        &self.0[at as usize]
    }
}

fn number(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Largest number of stations in the table.
const PLACE_COUNT: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 12;
/// Width of an entry's time field, in bits; the field counts seconds.
const AGE_BITS: u32 = 15;
const AGE_MASK: u64 = (1 << AGE_BITS) - 1;
/// Longest time without a frame before a station is forgotten, in seconds: as in Linux's bridge.
const AGE_MAX: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_remembered_for_five_minutes() {
        let stations = Stations::default();
        let mac = |last| [2, 0, 0, 0, 0, last];
        assert!(!stations.is_at(mac(1), 0, 5) && !stations.is_at([0; 6], 0, 0));
        for (end, now) in [(0, 7), (1, 400), (0, 40_000)] {
            stations.learn(mac(1), end, now);
            for (later, is_known) in [(0, true), (300, true), (301, false), (4_000, false)] {
                assert_eq!(stations.is_at(mac(1), end, now + later), is_known, "{later} s");
                assert!(!stations.is_at(mac(1), 1 - end, now + later));
            }
            assert!(!stations.is_at(mac(2), end, now));
        }
        let group = [1, 0, 0x5E, 0, 0, 1];
        stations.learn(group, 0, 1);
        assert!(!stations.is_at(group, 0, 1));
    }

    #[test]
    fn excess_stations_evict_each_other_and_are_never_confused() {
        let stations = Stations::default();
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        (0..20_000).for_each(|number| stations.learn(mac(number), number as usize & 1, 9));
        let known: Vec<u32> =
            (0..20_000).filter(|number| stations.is_at(mac(*number), *number as usize & 1, 9)).collect();
        assert!(known.len() <= PLACE_COUNT && known.contains(&19_999), "{}", known.len());
        assert!((0..20_000).all(|number| !stations.is_at(mac(number), 1 - (number as usize & 1), 9)));
    }
}
