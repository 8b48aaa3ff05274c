//! What a law says and what was seen in, the sentence of a broken one out.

use core::fmt;
use packet::Time;

/// The laws that hold after every event (7 to 9 have tests of their own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// Nothing longer than a link's MTU is put on it.
    Mtu = 1,
    /// What came left, ended with a reason or is held; every buffer on loan is held or queued.
    Conservation,
    /// What arrives is what was sent, and what does not arrive was lost by something that says so.
    Integrity,
    /// What must not be cut is not cut, and its sender is told.
    Refusal,
    /// What came in order within a flow goes out in order.
    Order,
    /// Nothing is held past its deadline or beyond its limit, and nothing for ever.
    Holding,
}

impl Law {
    /// All of them, in their order.
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

/// A law that was seen to be broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub law: Law,
    /// The number of the event after which it was seen, from 1.
    pub event: u64,
    /// When that was.
    pub at: Time,
    /// Where, and what was seen.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { law, event, at, what } = self;
        write!(f, "law {} ({}) is broken after event {event}, at {at}: {what}", *law as usize, law.name())
    }
}
