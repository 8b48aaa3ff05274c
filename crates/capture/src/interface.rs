//! Interface description blocks -> the resolution and offset of timestamps.
//!
//! Each interface of a pcapng section has its own unit of time. All conversions between ticks and nanoseconds are
//! here.

use packet::Time;
use pcap_parser::{OptionCode, PcapError, parse_option_be, parse_option_le};

use crate::format::{ByteOrder, NANOS_PER_SECOND};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_is_written_as_the_tick_it_was_read_from() {
        let stamps = [0, 1, 7, 999_999, 1_700_000_000, 123_456_789_012_345, 1 << 53];
        // Ticks of at least one nanosecond, and offsets with which the time is between 1970 and 2554.
        let ticks = (0..=9).map(Tick::Ten).chain((0..=29).map(Tick::Two));
        for (tick, offset) in ticks.flat_map(|tick| [0, 5, 1_000_000].map(|offset| (tick, offset))) {
            let clock = Clock { tick, offset };
            for stamp in stamps.into_iter().filter(|stamp| clock.time(*stamp) < Time::NEVER) {
                assert_eq!(clock.ticks(clock.time(stamp)), stamp, "{clock:?}");
            }
        }
    }

    #[test]
    fn a_time_stamp_survives_a_clock_finer_than_a_nanosecond() {
        for clock in
            [Tick::Ten(9), Tick::Ten(10), Tick::Two(30), Tick::Two(33)].map(|tick| Clock { tick, offset: 0 })
        {
            for nanos in [0, 1, 2, 3, 999_999_999, 1_000_000_001, 1_700_000_000_123_456_789] {
                let time = Time::from_nanos(nanos);
                assert_eq!(clock.time(clock.ticks(time)), time, "{clock:?}");
            }
        }
    }

    #[test]
    fn no_resolution_and_no_offset_overflows() {
        let moments = [0, 1, u64::MAX / 2, u64::MAX];
        for exponent in 0..=u8::MAX {
            for offset in [i64::MIN, -1, 0, 1, i64::MAX] {
                let clock = Clock { tick: Tick::of(exponent), offset };
                for moment in moments {
                    let _ = (clock.time(moment), clock.ticks(Time::from_nanos(moment)));
                }
            }
        }
    }

    #[test]
    fn a_second_is_equal_in_every_resolution() {
        let second = Time::from_nanos(NANOS_PER_SECOND);
        for exponent in (0..=19).chain(0x80..=0x80 + 63) {
            let tick = Tick::of(exponent);
            let stamp = match tick {
                Tick::Ten(n) => 10u64.pow(n),
                Tick::Two(n) => 1 << n,
            };
            let clock = Clock { tick, offset: 0 };
            assert_eq!((clock.time(stamp), clock.ticks(second)), (second, stamp), "{clock:?}");
            let later = Clock { tick, offset: 41 };
            assert_eq!(later.time(stamp), Time::from_nanos(42 * NANOS_PER_SECOND));
        }
    }
}

/// The description of one interface in a pcapng section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub link_type: u32,
    /// Snap length, in bytes; 0 = no limit.
    pub snap_len: u32,
    pub clock: Clock,
}

impl Interface {
    /// Parses an interface description block whose lengths have been checked.
    pub fn parse(order: ByteOrder, block: &[u8]) -> Result<Interface, String> {
        let fields = || Some((order.u16(block, 8)?, order.u32(block, 12)?));
        let options = block.get(FIELDS_LEN..).and_then(|rest| rest.split_last_chunk::<4>());
        let (Some((link_type, snap_len)), Some((options, _))) = (fields(), options) else {
            return Err("an interface description shorter than its fields".into());
        };
        let Some(clock) = Clock::parse(order, options) else {
            return Err("an interface description with an option that runs past its end".into());
        };
        Ok(Interface { link_type: link_type.into(), snap_len, clock })
    }
}

/// Resolution and offset of an interface's timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    tick: Tick,
    /// Seconds to add to each timestamp (option if_tsoffset).
    offset: i64,
}

/// The unit of timestamps, as a negative power of 10 or 2.
#[derive(Clone, Copy, Debug)]
enum Tick {
    /// 10^-n seconds.
    Ten(u32),
    /// 2^-n seconds.
    Two(u32),
}

impl Clock {
    /// Reads the options if_tsresol and if_tsoffset. If an option is repeated, the last value applies. The default
    /// is microseconds since 1970.
    ///
    /// Only the option parser of pcap-parser is used, because its parser of interface descriptions has three
    /// faults:
    ///
    /// - It does not support binary resolutions.
    /// - It reads every offset as little-endian.
    /// - It does not stop at the end-of-options option.
    fn parse(order: ByteOrder, mut options: &[u8]) -> Option<Clock> {
        let mut clock = Clock { tick: Tick::Ten(6), offset: 0 };
        while !options.is_empty() {
            let parsed = match order {
                ByteOrder::Little => parse_option_le::<PcapError<&[u8]>>(options),
                ByteOrder::Big => parse_option_be::<PcapError<&[u8]>>(options),
            };
            let (rest, option) = parsed.ok()?;
            options = rest;
            match (option.code, option.as_bytes().ok()?) {
                (OptionCode::EndOfOpt, _) => break,
                (OptionCode::IfTsresol, &[exponent]) => clock.tick = Tick::of(exponent),
                (OptionCode::IfTsoffset, value) => {
                    if let Ok(seconds) = value.try_into() {
                        clock.offset = match order {
                            ByteOrder::Little => i64::from_le_bytes(seconds),
                            ByteOrder::Big => i64::from_be_bytes(seconds),
                        };
                    }
                }
                _ => {}
            }
        }
        Some(clock)
    }

    /// Converts ticks to a time, rounded down to the nanosecond. Times before 1970 or after 2554 become the nearest
    /// representable time.
    pub fn time(&self, ticks: u64) -> Time {
        let ticks = u128::from(ticks);
        let nanos = match self.tick {
            Tick::Ten(n @ ..=9) => ticks * 10u128.pow(9 - n),
            Tick::Ten(n) => 10u128.checked_pow(n - 9).map_or(0, |scale| ticks / scale),
            Tick::Two(n) => (ticks * u128::from(NANOS_PER_SECOND)) >> n,
        };
        // The value is at most 2^64 × 10^9, so it fits 128 bits.
        let nanos = (nanos as i128).saturating_add(self.offset_nanos());
        Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Converts a time to ticks.
    ///
    /// Decimal ticks are rounded down. Binary ticks are rounded up, because [`time`](Clock::time) rounds down. A
    /// time that was read from a timestamp is therefore written as the same tick. If ticks are shorter than a
    /// nanosecond, the written tick may differ but reads as the same nanosecond.
    pub fn ticks(&self, time: Time) -> u64 {
        let nanos = (i128::from(time.nanos()) - self.offset_nanos()).max(0) as u128;
        let ticks = match self.tick {
            Tick::Ten(n @ ..=9) => Some(nanos / 10u128.pow(9 - n)),
            Tick::Ten(n) => 10u128.checked_pow(n - 9).and_then(|scale| nanos.checked_mul(scale)),
            Tick::Two(n) => binary_ticks(nanos, n),
        };
        // A time beyond the range of this clock becomes the last tick. Zero is zero on every clock.
        let farthest = if nanos == 0 { 0 } else { u64::MAX };
        ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(farthest)
    }

    fn offset_nanos(&self) -> i128 {
        i128::from(self.offset) * i128::from(NANOS_PER_SECOND)
    }
}

impl Tick {
    /// Decodes the option if_tsresol, whose top bit chooses the base (draft-ietf-opsawg-pcapng section 4.2).
    fn of(exponent: u8) -> Tick {
        let n = u32::from(exponent & 0x7f);
        if exponent & 0x80 == 0 { Tick::Ten(n) } else { Tick::Two(n) }
    }
}

/// Converts nanoseconds to ticks of 2^-n seconds; `None` on overflow. Seconds and fraction are scaled separately,
/// because the shift needs room above the 30 bits of the fraction.
fn binary_ticks(nanos: u128, n: u32) -> Option<u128> {
    if n > 128 - 31 {
        return None;
    }
    let second = u128::from(NANOS_PER_SECOND);
    let whole = (nanos / second).checked_mul(1 << n)?;
    whole.checked_add(((nanos % second) << n).div_ceil(second))
}

/// Length of an interface description without its options, in bytes (draft-ietf-opsawg-pcapng section 4.2).
const FIELDS_LEN: usize = 16;
