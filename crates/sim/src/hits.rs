//! What happened in, how often out: a swarm that never meets something proves nothing about it.

use crate::laws::Law;
use crate::topology::Role;
use engine::{Event, Ledger, Reason};

/// How often each thing was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    /// Packets that each role took in.
    pub roles: [u64; Role::ALL.len()],
    /// What each fault befell.
    pub faults: [u64; Fault::ALL.len()],
    /// Times that each law was looked at.
    pub laws: [u64; Law::ALL.len()],
    /// Packets that ended or passed for each reason.
    pub reasons: [u64; Reason::ALL.len()],
    /// What was done to packets.
    pub events: [u64; Event::ALL.len()],
}

/// What can go wrong in a network, without any fault of who stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Frames lost, each by itself.
    Loss,
    /// Frames lost in bursts.
    Burst,
    /// Frames lost for the bytes in them.
    ByteLoss,
    /// Flipped bits.
    BitErrors,
    /// Frames overtaken by others.
    Reorder,
    /// Frames that come twice.
    Duplicate,
    /// A delay that differs.
    Jitter,
    /// A line so slow that its queue overflows.
    Rate,
    /// Frames dropped before the queue is full.
    Red,
    /// A link that is down for a while.
    Carrier,
    /// An MTU that changes while packets are on their way.
    MtuChange,
    /// A gateway that is short of memory.
    SmallPool,
    /// Packets that nobody should send.
    Junk,
    /// Marks of congestion.
    Mark,
}

impl Fault {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Fault; 14] = [
        Fault::Loss,
        Fault::Burst,
        Fault::ByteLoss,
        Fault::BitErrors,
        Fault::Reorder,
        Fault::Duplicate,
        Fault::Jitter,
        Fault::Rate,
        Fault::Red,
        Fault::Carrier,
        Fault::MtuChange,
        Fault::SmallPool,
        Fault::Junk,
        Fault::Mark,
    ];

    /// Its name in tables and commands.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Loss => "loss",
            Fault::Burst => "burst",
            Fault::ByteLoss => "byteloss",
            Fault::BitErrors => "ber",
            Fault::Reorder => "reorder",
            Fault::Duplicate => "duplicate",
            Fault::Jitter => "jitter",
            Fault::Rate => "rate",
            Fault::Red => "red",
            Fault::Carrier => "carrier",
            Fault::MtuChange => "mtu",
            Fault::SmallPool => "memory",
            Fault::Junk => "junk",
            Fault::Mark => "mark",
        }
    }
}

/// Reasons that no packet on a simulated link can meet: three are of captures and of link headers, which its frames do not
/// have; one is of a packet longer than any link carries, and one of what only a kernel's port gives.
pub const OUT_OF_REACH: [Reason; 5] =
    [Reason::NotIp, Reason::OtherLink, Reason::SnapCut, Reason::TooLong, Reason::TooManySegments];

impl Hits {
    /// Nothing met.
    pub fn new() -> Hits {
        Hits {
            roles: [0; Role::ALL.len()],
            faults: [0; Fault::ALL.len()],
            laws: [0; Law::ALL.len()],
            reasons: [0; Reason::ALL.len()],
            events: [0; Event::ALL.len()],
        }
    }

    /// Counts what a ledger counted.
    pub fn add_ledger(&mut self, ledger: &Ledger) {
        for (count, reason) in self.reasons.iter_mut().zip(Reason::ALL) {
            *count += ledger.retired(*reason).packets + ledger.passed(*reason).packets;
        }
        for (count, event) in self.events.iter_mut().zip(Event::ALL) {
            *count += ledger.event(*event).packets;
        }
    }

    /// Counts what others counted.
    pub fn add(&mut self, others: &Hits) {
        let mine = self.all_mut();
        mine.zip(others.all()).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Each thing that a run should meet: its table, its name, and how often it was met.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let roles = Role::ALL.iter().zip(self.roles).map(|(role, count)| ("role", role.name(), count));
        let faults = Fault::ALL.iter().zip(self.faults).map(|(fault, count)| ("fault", fault.name(), count));
        let laws = Law::ALL.iter().zip(self.laws).map(|(law, count)| ("law", law.name(), count));
        let in_reach = |(reason, _): &(&Reason, u64)| !OUT_OF_REACH.contains(*reason);
        let reasons = Reason::ALL.iter().zip(self.reasons).filter(in_reach);
        roles.chain(faults).chain(laws).chain(reasons.map(|(reason, count)| ("reason", reason.name(), count)))
    }

    fn all(&self) -> impl Iterator<Item = &u64> {
        self.roles.iter().chain(&self.faults).chain(&self.laws).chain(&self.reasons).chain(&self.events)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let Hits { roles, faults, laws, reasons, events } = self;
        roles.iter_mut().chain(faults).chain(laws).chain(reasons).chain(events)
    }
}

impl Default for Hits {
    fn default() -> Hits {
        Hits::new()
    }
}
