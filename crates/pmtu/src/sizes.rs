//! An IP version and a link -> the packet sizes to try.

use packet::Version;

/// The range of packet sizes of a path, in bytes, including the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size below which a path is never lowered.
    pub floor: u16,
    /// The size that passes on nearly every path. Packets of a larger size that were lost are sent again with this
    /// size.
    pub base: u16,
    /// The MTU of the own link.
    pub ceiling: u16,
}

impl Sizes {
    /// Returns the usual range for packets of this version over a link with an MTU of `link_mtu` bytes.
    pub fn of(version: Version, link_mtu: u16) -> Sizes {
        let floor = match version {
            Version::V4 => FLOOR_V4,
            Version::V6 => FLOOR_V6,
        };
        Sizes { floor: floor.min(link_mtu), base: BASE.min(link_mtu), ceiling: link_mtu }
    }

    /// Returns the size to try next, larger than `low` and smaller than `high`: the common size in the middle of
    /// those between. `None` if there is none.
    pub(crate) fn between(&self, low: u16, high: u16) -> Option<u16> {
        let first = COMMON.partition_point(|size| *size <= low);
        let end = COMMON.partition_point(|size| *size < high.min(self.ceiling));
        let count = end.saturating_sub(first) + usize::from(low < self.ceiling && self.ceiling < high);
        // The ceiling itself is a size to try, whether it is common or not.
        let middle = first + count / 2;
        match COMMON.get(middle) {
            _ if count == 0 => None,
            Some(size) if middle < end => Some(*size),
            _ => Some(self.ceiling),
        }
    }

    /// Returns the common size above `low`, at most the ceiling.
    pub(crate) fn next_above(&self, low: u16) -> u16 {
        let next = COMMON.get(COMMON.partition_point(|size| *size <= low));
        next.map_or(self.ceiling, |size| (*size).min(self.ceiling))
    }
}

/// Returns the largest plateau below `size`, at least `floor`: for ICMP errors without an MTU (RFC 1191 section 5).
pub fn plateau_below(size: u16, floor: u16) -> u16 {
    PLATEAUS.into_iter().find(|plateau| *plateau < size).unwrap_or(floor).max(floor)
}

/// The plateau table of RFC 1191 section 7.1, in bytes. Of two near sizes it has the smaller one.
pub const PLATEAUS: [u16; 11] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// Path MTUs that networks have, in bytes, ascending: those of links, of links less the headers of tunnels, and of
/// RFC 1191.
const COMMON: [u16; 43] = [
    296, 508, 552, 576, 1_006, 1_200, 1_240, 1_280, 1_300, 1_320, 1_340, 1_350, 1_358, 1_360, 1_370, 1_380, 1_390,
    1_396, 1_400, 1_406, 1_412, 1_416, 1_420, 1_426, 1_430, 1_436, 1_440, 1_446, 1_450, 1_454, 1_458, 1_460, 1_464,
    1_468, 1_472, 1_476, 1_480, 1_488, 1_492, 1_500, 4_352, 8_500, 9_000,
];
/// Smallest path MTU of IPv4 that is believed, in bytes: the default of Linux (net.ipv4.route.min_pmtu).
const FLOOR_V4: u16 = 552;
/// Smallest MTU of an IPv6 link, in bytes (RFC 8200 section 5).
const FLOOR_V6: u16 = 1_280;
/// Size of packets that are sent again, in bytes: the smallest MTU of an IPv6 link, which IPv4 paths carry too.
const BASE: u16 = 1_280;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_size_between_is_reached_by_halving() {
        let sizes = Sizes::of(Version::V4, 1_500);
        for wanted in COMMON.into_iter().filter(|size| (1_280..=1_500).contains(size)) {
            let (mut low, mut high, mut tried) = (1_280, 1_501, 0);
            while let Some(size) = sizes.between(low, high) {
                assert!(low < size && size < high, "{low} < {size} < {high}");
                tried += 1;
                if size <= wanted { low = size } else { high = size }
            }
            assert_eq!(low, wanted);
            assert!(tried <= 6, "{wanted}: {tried} probes");
        }
    }

    #[test]
    fn the_mtu_of_the_own_link_is_tried_even_if_it_is_not_common() {
        let sizes = Sizes::of(Version::V6, 1_477);
        assert_eq!(sizes.between(1_476, 1_478), Some(1_477));
        assert_eq!(sizes.between(1_477, 1_478), None);
        assert_eq!(sizes.next_above(1_476), 1_477);
    }

    #[test]
    fn plateaus_fall_to_the_floor() {
        let mut size = 1_500;
        let mut seen = Vec::new();
        while size > FLOOR_V4 {
            size = plateau_below(size, FLOOR_V4);
            seen.push(size);
        }
        assert_eq!(seen, [1_492, 1_006, 552]);
    }

    #[test]
    fn common_sizes_ascend() {
        assert!(COMMON.is_sorted());
    }
}
