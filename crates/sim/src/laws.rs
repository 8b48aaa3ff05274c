//! Violations of laws -> their descriptions.
//!
//! The laws define a correct gateway. The checks themselves are in `direction.rs`, `net.rs` and `simulation.rs`.

use core::fmt;
use packet::Time;

/// The laws that are checked after every event. Laws 8 to 10 have tests of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// No packet exceeds the MTU of its link.
    Mtu = 1,
    /// Every received packet is transmitted, dropped with a counted reason, or held. Every buffer in use has a
    /// packet that is held or queued.
    Conservation,
    /// Data is delivered unchanged. Undelivered data was dropped for a counted reason. Nothing is acknowledged for a
    /// host that the host has not acknowledged.
    Integrity,
    /// A packet that must not be fragmented is not fragmented. If it is too long, its sender gets an ICMP error.
    Refusal,
    /// Packets of a flow that were received in order are transmitted in order.
    Order,
    /// No packet is held past its deadline or beyond the memory limit.
    Holding,
    /// No packet size is lowered without evidence, and none stays low for longer than its time.
    Sizes,
}

impl Law {
    /// All laws, in the order of their numbers.
    pub const ALL: [Law; 7] =
        [Law::Mtu, Law::Conservation, Law::Integrity, Law::Refusal, Law::Order, Law::Holding, Law::Sizes];

    /// The law's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Law::Mtu => "mtu",
            Law::Conservation => "conservation",
            Law::Integrity => "integrity",
            Law::Refusal => "refusal",
            Law::Order => "order",
            Law::Holding => "holding",
            Law::Sizes => "sizes",
        }
    }
}

/// A violation of a law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The violated law.
    pub law: Law,
    /// Number of the event after which the violation was found, from 1.
    pub event: u64,
    /// Simulated time of the violation.
    pub at: Time,
    /// A sentence that says where and how the law was violated.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { law, event, at, what } = self;
        write!(f, "law {} ({}) is broken after event {event}, at {at}: {what}", *law as usize, law.name())
    }
}
