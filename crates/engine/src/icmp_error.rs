//! A packet that cannot go on in, an ICMP error out, if the standards and the rate allow it.

use crate::keyed_hash::Secret;
use crate::ledger::Event;
use core::net::IpAddr;
use core::time::Duration;
use packet::icmp::{self, IcmpError};
use packet::{Address, Packet, Pool, Time, Version};

/// Sends ICMP errors, not too many of them.
///
/// The limit is a token bucket whose tokens cost a little more or less each time, by a keyed hash: an exact limit
/// would tell a third party how many errors another sender drew (rel:A31, R037). Each host that is told has a
/// bucket of a quarter of that beside it, filled as fast: a burst that one draws never empties what all share, so it tells
/// nothing of others. Only who draws as many as all may, and goes on, feels that others draw some too.
#[derive(Debug)]
pub struct IcmpResponder {
    sources: [IpAddr; 2],
    interval: Duration,
    burst: u32,
    shared: Bucket,
    /// Those of the hosts that are told, by a hash of their addresses.
    own: Box<[Bucket]>,
    secret: Secret,
    asked: u64,
}

/// Tokens that come back with time.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// When it will be full again.
    full_at: Time,
}

impl IcmpResponder {
    /// Answers from these two addresses, one of each version, at most `per_second` in the long run.
    pub fn new(sources: [IpAddr; 2], per_second: u32, burst: u32, secret: Secret) -> IcmpResponder {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let own = vec![Bucket::default(); OWN_COUNT].into_boxed_slice();
        IcmpResponder { sources, interval, burst, shared: Bucket::default(), own, secret, asked: 0 }
    }

    /// Answers from these two addresses from here on.
    pub(crate) fn come_from(&mut self, sources: [IpAddr; 2]) {
        self.sources = sources;
    }

    /// The error about `packet`, or why there is none.
    pub(crate) fn about(
        &mut self,
        now: Time,
        complaint: IcmpError,
        packet: &Packet,
        pool: &mut Pool,
    ) -> (Event, Option<Packet>) {
        if !icmp::may_be_answered(complaint, packet) {
            return (Event::IcmpForbidden, None);
        }
        // Before the work, so that a flood is not paid for.
        let (told, _) = packet.addresses();
        if !self.take_tokens(now, told) {
            return (Event::IcmpRateLimited, None);
        }
        let wanted = packet.ip().version;
        let source = self.sources.iter().find(|source| source.is_ipv4() == (wanted == Version::V4));
        match source.and_then(|source| icmp::error(complaint, packet, *source, pool)) {
            Some(error) => (Event::IcmpSent, Some(error)),
            None => (Event::IcmpForbidden, None),
        }
    }

    /// The same outside of the limit: for who bounds otherwise how many there are.
    pub(crate) fn about_all(&self, complaint: IcmpError, packet: &Packet, pool: &mut Pool) -> Option<Packet> {
        let wanted = packet.ip().version;
        let source = self.sources.iter().find(|source| source.is_ipv4() == (wanted == Version::V4));
        icmp::error(complaint, packet, *source?, pool)
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
    /// Is there a token, where so many fit in and one comes each `interval`?
    fn has(&self, now: Time, interval: Duration, burst: u32) -> bool {
        self.full_at.since(now) + interval <= interval * burst
    }

    fn take(&mut self, now: Time, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }
}

/// Linux allows as many in a second, and as many at once (net.ipv4.icmp_msgs_per_sec, icmp_msgs_burst).
pub const ANSWERS_PER_SECOND: u32 = 1_000;
/// See [`ANSWERS_PER_SECOND`].
pub const ANSWERS_BURST: u32 = 50;
/// Steps of the jitter between none and a quarter of a token.
const JITTER_STEPS: u64 = 256;
/// Buckets of hosts that are told.
const OWN_COUNT: usize = 1_024;
/// A host's own burst is one in so many of what all have.
const OWN_SHARE: u32 = 4;
