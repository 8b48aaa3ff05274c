//! A packet to be fragmented -> an IP ID that no other datagram in flight has.
//!
//! An ID is a keyed hash of source, destination and protocol, plus a counter. So IDs are unique where required, and
//! other hosts cannot predict them (X1, RFC 7739 section 5.3, R084). The 65,536 IDs of IPv4 wrap around. A block of
//! IDs is reused only after the lifetime of the last datagram that used one of them (RFC 6864 section 4.3, R076).
//! Until then no ID is issued, and the caller has to drop the packet (R077).

use crate::keyed_hash::Secret;
use core::time::Duration;
use packet::{Packet, Time};

/// Issues IP IDs.
#[derive(Debug)]
pub struct Identifiers {
    secret: Secret,
    lifetime: Duration,
    /// Counters for 16-bit IDs, then for 32-bit IDs. They are separate, so that fast use of 32-bit IDs consumes no
    /// 16-bit IDs.
    counters: [Box<[Counter]>; 2],
}

/// The counter of the flows with equal hashes.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    next: u64,
    /// The time of the first use of each block of IDs, by block number.
    begun: [Time; BLOCK_COUNT],
}

impl Identifiers {
    /// Creates an issuer that does not reuse an ID within `lifetime`.
    pub fn new(secret: Secret, lifetime: Duration) -> Identifiers {
        let counters = [(); 2].map(|()| vec![Counter::default(); COUNTER_COUNT].into_boxed_slice());
        Identifiers { secret, lifetime, counters }
    }

    /// Continues the counters of another issuer, but keeps the lifetime of this issuer.
    pub(crate) fn go_on_from(&mut self, others: Identifiers) {
        (self.secret, self.counters) = (others.secret, others.counters);
    }

    /// Whether there are enough IDs for all segments of a packet, at any segment length.
    pub(crate) fn suffice(&self, now: Time, packet: &Packet) -> bool {
        let (number, _, is_scarce) = self.place(packet);
        let [scarce, _] = &self.counters;
        !is_scarce || scarce.get(number).is_some_and(|counter| counter.has(now, self.lifetime, SEGMENTS_MAX))
    }

    /// Returns a new ID for a datagram between the hosts of `packet`. `None` if all IDs are in use.
    pub fn next(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let (number, start, is_scarce) = self.place(packet);
        let [scarce, plenty] = &mut self.counters;
        let counter = if is_scarce { scarce } else { plenty }.get_mut(number)?;
        let number = counter.take(now, is_scarce.then_some(self.lifetime))?;
        Some(start.wrapping_add(number as u32) & (u32::MAX >> (u32::BITS - packet.ip().id_bits())))
    }

    /// Returns the number of the counter for a packet, the first ID, and whether the IDs have 16 bits.
    fn place(&self, packet: &Packet) -> (usize, u32, bool) {
        let (source, destination) = packet.addresses();
        let hash = self.secret.hash(&(source, destination, packet.ip().key_protocol()));
        (hash as usize % COUNTER_COUNT, (hash >> 32) as u32, packet.ip().id_bits() <= 16)
    }
}

impl Counter {
    /// Whether the next `count` numbers, at most a block, are free.
    fn has(&self, now: Time, lifetime: Duration, count: u64) -> bool {
        let end = self.next + count;
        let block = (end - 1) / BLOCK_LEN;
        let is_new = self.next.is_multiple_of(BLOCK_LEN) || block > self.next / BLOCK_LEN;
        let is_free =
            || self.begun.get((block as usize + 1) % BLOCK_COUNT).is_some_and(|left| now.since(*left) >= lifetime);
        !is_new || (block as usize) < BLOCK_COUNT || is_free()
    }

    /// Returns the next number. For 16-bit IDs, `None` at the start of a block while an ID of the block may be in
    /// flight.
    fn take(&mut self, now: Time, lifetime: Option<Duration>) -> Option<u64> {
        let number = self.next;
        if number.is_multiple_of(BLOCK_LEN) {
            let block = (number / BLOCK_LEN) as usize;
            // A block was last used at the start of the block after it, in the previous round.
            let left = *self.begun.get((block + 1) % BLOCK_COUNT)?;
            let used_before = block >= BLOCK_COUNT;
            if lifetime.is_some_and(|lifetime| used_before && now.since(left) < lifetime) {
                return None;
            }
            *self.begun.get_mut(block % BLOCK_COUNT)? = now;
        }
        self.next = number + 1;
        Some(number)
    }
}

/// Number of counters. The table has a fixed size, for any number of flows.
const COUNTER_COUNT: usize = 1_024;
/// Number of blocks of 16-bit IDs. The age of each block is known.
const BLOCK_COUNT: usize = 16;
/// Maximum number of segments of a packet: an IP packet of the largest length, in segments of 1,280 bytes.
const SEGMENTS_MAX: u64 = 64;
/// Number of IDs in a block.
const BLOCK_LEN: u64 = 65_536 / BLOCK_COUNT as u64;
/// Default lifetime of a datagram. The two minutes of RFC 791 would allow 546 datagrams per second between two
/// hosts. Two seconds allow about 30,700 (RFC 6864 section 5.2, RFC 4963 section 2).
pub const LIFETIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn no_identification_repeats_within_a_lifetime() {
        for seed in 0..12 {
            let mut random = Rng::with_seed(seed);
            let (mut counter, mut now) = (Counter::default(), Time::from_nanos(1));
            let mut last = vec![None; 1 << 16];
            let mut again_count = 0;
            for _ in 0..400_000 {
                let pause = if random.u32(..50_000) == 0 { 3_000_000 } else { random.u64(..20) };
                now = now + Duration::from_micros(pause);
                if random.u8(..) < 8 {
                    let (mut later, count) = (counter, random.u64(1..=SEGMENTS_MAX));
                    let are_free = (0..count).all(|_| later.take(now, Some(LIFETIME)).is_some());
                    assert_eq!(counter.has(now, LIFETIME, count), are_free, "seed {seed}: {count} numbers");
                }
                let Some(number) = counter.take(now, Some(LIFETIME)) else { continue };
                if let Some(before) = last[number as usize % (1 << 16)].replace(now) {
                    assert!(now.since(before) >= LIFETIME, "seed {seed}: {number} after {:?}", now.since(before));
                    again_count += 1;
                }
            }
            assert!(again_count > 50_000, "seed {seed}: {again_count} came back");
        }
    }
}
