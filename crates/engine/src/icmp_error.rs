//! A packet that cannot be forwarded -> an ICMP error, if the standards and the rate limit allow it.
//!
//! The responder chooses the source address and limits the rate. The format of errors is left to [`packet::icmp`].

use crate::keyed_hash::Secret;
use crate::ledger::Event;
use core::net::IpAddr;
use core::time::Duration;
use packet::icmp::{self, IcmpError};
use packet::{Address, Packet, Pool, Time, Version};

/// Sends ICMP errors within a rate limit.
///
/// The limit is a token bucket. The cost of a token varies slightly, by a keyed hash. An exact limit would tell a
/// third party how many errors another host caused (rel:A31, R037).
///
/// Each destination of errors also has a bucket of its own. Its burst is a quarter of the shared burst, and it is
/// refilled at the shared rate. So a burst of one host never empties the shared bucket, and reveals nothing about
/// other hosts. Only a host that continues at the full shared rate notices the errors for other hosts.
#[derive(Debug)]
pub struct IcmpResponder {
    sources: [IpAddr; 2],
    interval: Duration,
    burst: u32,
    shared: Bucket,
    /// The buckets of the destinations, indexed by a hash of the address.
    own: Box<[Bucket]>,
    secret: Secret,
    asked: u64,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The time at which the bucket is full again.
    full_at: Time,
}

impl IcmpResponder {
    /// Creates a responder with one IPv4 and one IPv6 source address, for at most `per_second` errors on average,
    /// and `burst` errors at once.
    pub fn new(sources: [IpAddr; 2], per_second: u32, burst: u32, secret: Secret) -> IcmpResponder {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let own = vec![Bucket::default(); OWN_COUNT].into_boxed_slice();
        IcmpResponder { sources, interval, burst, shared: Bucket::default(), own, secret, asked: 0 }
    }

    /// Sets the source addresses of later errors.
    pub(crate) fn come_from(&mut self, sources: [IpAddr; 2]) {
        self.sources = sources;
    }

    /// Returns the error about `packet` and its event. Without an error, the event names the cause.
    pub(crate) fn about(
        &mut self,
        now: Time,
        icmp_error: IcmpError,
        packet: &Packet,
        pool: &mut Pool,
    ) -> (Event, Option<Packet>) {
        if !icmp::may_be_answered(icmp_error, packet) {
            return (Event::IcmpForbidden, None);
        }
        // The limit is checked before the error is built, so that a flood costs little.
        let (told, _) = packet.addresses();
        if !self.take_tokens(now, told) {
            return (Event::IcmpRateLimited, None);
        }
        let wanted = packet.ip().version;
        let source = self.sources.iter().find(|source| source.is_ipv4() == (wanted == Version::V4));
        match source.and_then(|source| icmp::error(icmp_error, packet, *source, pool)) {
            Some(error) => (Event::IcmpSent, Some(error)),
            None => (Event::IcmpForbidden, None),
        }
    }

    /// Returns the error about `packet` without a rate limit, for callers that limit the number of errors
    /// themselves.
    pub(crate) fn about_all(&self, icmp_error: IcmpError, packet: &Packet, pool: &mut Pool) -> Option<Packet> {
        let wanted = packet.ip().version;
        let source = self.sources.iter().find(|source| source.is_ipv4() == (wanted == Version::V4));
        icmp::error(icmp_error, packet, *source?, pool)
    }

    fn take_tokens(&mut self, now: Time, told: Address) -> bool {
        self.asked += 1;
        let steps = (self.secret.hash(&self.asked) % JITTER_STEPS) as u32;
        let cost = self.interval + self.interval * steps / JITTER_STEPS as u32 / 4;
        let at = self.secret.hash(&told) as usize % OWN_COUNT;
        let Some(own) = self.own.get_mut(at) else { return false };
        let own_burst = (self.burst / OWN_SHARE).max(1);
        let allowed = self.shared.has(now, self.interval, self.burst) && own.has(now, self.interval, own_burst);
        if allowed {
            self.shared.take(now, cost);
            own.take(now, cost);
        }
        allowed
    }
}

impl Bucket {
    /// Whether there is a token, in a bucket of `burst` tokens that gains one token per `interval`.
    fn has(&self, now: Time, interval: Duration, burst: u32) -> bool {
        self.full_at.since(now) + interval <= interval * burst
    }

    fn take(&mut self, now: Time, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }
}

/// Rate limit of ICMP errors, in errors per second: the default of Linux (net.ipv4.icmp_msgs_per_sec).
pub const ANSWERS_PER_SECOND: u32 = 1_000;
/// Burst limit of ICMP errors: the default of Linux (net.ipv4.icmp_msgs_burst).
pub const ANSWERS_BURST: u32 = 50;
/// Number of steps of the jitter, which is between 0 and a quarter of a token.
const JITTER_STEPS: u64 = 256;
/// Number of buckets for destinations.
const OWN_COUNT: usize = 1_024;
/// Ratio of the shared burst to the burst of one destination.
const OWN_SHARE: u32 = 4;
