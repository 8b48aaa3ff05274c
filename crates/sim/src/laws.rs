//! Broken laws -> their descriptions.

use core::fmt;
use packet::Time;

/// Laws that hold after every event. Laws 7 to 9 have their own tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// No packet on a link exceeds its MTU.
    Mtu = 1,
    /// Every received packet has left, has ended with a reason, or is held. Every buffer in use is held or queued.
    Conservation,
    /// Data arrives as it was sent. Data that does not arrive was lost for a counted reason.
    Integrity,
    /// A packet that must not be fragmented is not fragmented, and its sender gets an ICMP error.
    Refusal,
    /// Packets that arrived in order within a flow leave in order.
    Order,
    /// Nothing is held past its deadline, beyond its limit, or for ever.
    Holding,
}

impl Law {
    /// All laws, in order.
    pub const ALL: [Law; 6] = [Law::Mtu, Law::Conservation, Law::Integrity, Law::Refusal, Law::Order, Law::Holding];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Law::Mtu => "mtu",
            Law::Conservation => "conservation",
            Law::Integrity => "integrity",
            Law::Refusal => "refusal",
            Law::Order => "order",
            Law::Holding => "holding",
        }
    }
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The law.
    pub law: Law,
    /// The number of the event that revealed it, from 1.
    pub event: u64,
    /// The time of that event.
    pub at: Time,
    /// Place and observation.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { law, event, at, what } = self;
        write!(f, "law {} ({}) is broken after event {event}, at {at}: {what}", *law as usize, law.name())
    }
}
