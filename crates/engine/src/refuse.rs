//! A packet that cannot go on in, an ICMP error out, if the standards and the rate allow it.

use crate::ledger::Event;
use crate::secret::Secret;
use core::net::IpAddr;
use core::time::Duration;
use packet::icmp::{self, Complaint};
use packet::{Packet, Pool, Time, Version};

/// Sends ICMP errors, not too many of them.
///
/// The limit is a token bucket whose tokens cost a little more or less each time, by a keyed hash: an exact limit
/// would tell a third party how many errors another sender drew (rel:A31, R037).
#[derive(Debug)]
pub struct Answers {
    sources: [IpAddr; 2],
    interval: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Time,
    secret: Secret,
    asked: u64,
}

impl Answers {
    /// Answers from these two addresses, one of each version, at most `per_second` in the long run.
    pub fn new(sources: [IpAddr; 2], per_second: u32, burst: u32, secret: Secret) -> Answers {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Answers { sources, interval, burst, full_at: Time::ZERO, secret, asked: 0 }
    }

    /// Answers from these two addresses from here on.
    pub(crate) fn come_from(&mut self, sources: [IpAddr; 2]) {
        self.sources = sources;
    }

    /// The error about `packet`, or why there is none.
    pub(crate) fn about(
        &mut self,
        now: Time,
        complaint: Complaint,
        packet: &Packet,
        pool: &mut Pool,
    ) -> (Event, Option<Packet>) {
        if !icmp::may_be_answered(complaint, packet) {
            return (Event::AnswerForbidden, None);
        }
        // Before the work, so that a flood is not paid for.
        if !self.take_token(now) {
            return (Event::AnswerLimited, None);
        }
        let wanted = packet.ip().version;
        let source = self.sources.iter().find(|source| source.is_ipv4() == (wanted == Version::V4));
        match source.and_then(|source| icmp::error(complaint, packet, *source, pool)) {
            Some(error) => (Event::Answered, Some(error)),
            None => (Event::AnswerForbidden, None),
        }
    }

    fn take_token(&mut self, now: Time) -> bool {
        self.asked += 1;
        let jitter =
            self.interval * (self.secret.hash(&self.asked) % JITTER_STEPS) as u32 / JITTER_STEPS as u32 / 4;
        let allowed = self.full_at.since(now) + self.interval <= self.interval * self.burst;
        if allowed {
            self.full_at = self.full_at.max(now) + self.interval + jitter;
        }
        allowed
    }
}

/// Linux allows as many in a second, and as many at once (net.ipv4.icmp_msgs_per_sec, icmp_msgs_burst).
pub const ANSWERS_PER_SECOND: u32 = 1_000;
/// See [`ANSWERS_PER_SECOND`].
pub const ANSWERS_BURST: u32 = 50;
/// Steps of the jitter between none and a quarter of a token.
const JITTER_STEPS: u64 = 256;
