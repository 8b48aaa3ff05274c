//! Events of a run -> how often each condition occurred.
//!
//! A randomised test proves nothing about conditions that never occurred. The counts show which conditions were
//! tested.

use crate::laws::Law;
use crate::topology::Role;
use engine::{Event, Ledger, PlacementStats, Reason};

/// Number of occurrences of each condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Packets received by nodes of each role.
    pub roles: [u64; Role::ALL.len()],
    /// Packets affected by each fault.
    pub faults: [u64; Fault::ALL.len()],
    /// Number of checks of each law.
    pub laws: [u64; Law::ALL.len()],
    /// Packets by the counted reason for which they were dropped or passed unchanged.
    pub reasons: [u64; Reason::ALL.len()],
    /// Engine events, from the ledgers.
    pub events: [u64; Event::ALL.len()],
    /// Frames by the way in which they were received.
    pub receiving: [u64; Receiving::ALL.len()],
}

/// The ways in which an engine receives frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiving {
    /// In a batch of several frames.
    InBatches,
    /// In the order of a fair intake.
    InFairOrder,
    /// With the payload at a predicted place, by header split.
    Predicted,
    /// With the payload at a predicted place that was right.
    PredictedRight,
    /// With the payload at a predicted place that was wrong.
    PredictedWrong,
}

impl Receiving {
    /// All ways to receive frames, in the order of table rows.
    pub const ALL: [Receiving; 5] = [
        Receiving::InBatches,
        Receiving::InFairOrder,
        Receiving::Predicted,
        Receiving::PredictedRight,
        Receiving::PredictedWrong,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Receiving::InBatches => "in batches",
            Receiving::InFairOrder => "in fair order",
            Receiving::Predicted => "predicted",
            Receiving::PredictedRight => "predicted right",
            Receiving::PredictedWrong => "predicted wrong",
        }
    }
}

/// A fault that the simulator adds: to a link, to the memory of a gateway, or to the packets of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Independent frame losses.
    Loss,
    /// Burst losses.
    Burst,
    /// Frame losses with a probability per byte.
    ByteLoss,
    /// Bit errors with an equal probability per bit.
    BitErrors,
    /// Reordered frames.
    Reorder,
    /// Duplicated frames.
    Duplicate,
    /// Variable delay.
    Jitter,
    /// A rate so low that the link's queue overflows.
    Rate,
    /// Random early detection: frames are dropped before the queue is full.
    Red,
    /// A link that is down for a while.
    Carrier,
    /// An MTU change while packets are in flight.
    MtuChange,
    /// A gateway with little buffer memory.
    SmallPool,
    /// Malformed packets from a host.
    Malformed,
    /// Congestion marks (ECN).
    Mark,
}

impl Fault {
    /// All faults, in the order of table rows.
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
        Fault::Malformed,
        Fault::Mark,
    ];

    /// The fault's name in tables and on the command line.
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
            Fault::Malformed => "malformed",
            Fault::Mark => "mark",
        }
    }
}

/// Reasons that no packet on a simulated link can have. Three concern captures and link headers, which the
/// simulation does not have. One needs a packet longer than any MTU. One needs a kernel port. One needs a forged ICMP
/// error. One needs the queues before a live worker.
pub const OUT_OF_REACH: [Reason; 7] = [
    Reason::NotIp,
    Reason::OtherLink,
    Reason::SnapCut,
    Reason::TooLong,
    Reason::TooManySegments,
    // No router of a swarm forges ICMP errors. The attacks on paths do.
    Reason::IcmpRefused,
    Reason::IntakeFull,
];

impl Coverage {
    /// Coverage with all counts zero.
    pub fn new() -> Coverage {
        Coverage {
            roles: [0; Role::ALL.len()],
            faults: [0; Fault::ALL.len()],
            laws: [0; Law::ALL.len()],
            reasons: [0; Reason::ALL.len()],
            events: [0; Event::ALL.len()],
            receiving: [0; Receiving::ALL.len()],
        }
    }

    /// Adds the counts of a ledger.
    pub fn add_ledger(&mut self, ledger: &Ledger) {
        for (count, reason) in self.reasons.iter_mut().zip(Reason::ALL) {
            *count += ledger.retired(*reason).packets + ledger.passed(*reason).packets;
        }
        for (count, event) in self.events.iter_mut().zip(Event::ALL) {
            *count += ledger.event(*event).packets;
        }
    }

    /// Adds the numbers of right and wrong placements.
    pub fn add_guesses(&mut self, guesses: PlacementStats) {
        let PlacementStats { predicted: made, hits: right, .. } = guesses;
        let kinds = [Receiving::Predicted, Receiving::PredictedRight, Receiving::PredictedWrong];
        for (kind, count) in kinds.into_iter().zip([made, right, made - right]) {
            self.receiving[kind as usize] += count;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, others: &Coverage) {
        let mine = self.all_mut();
        mine.zip(others.all()).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Table, name and count of each condition that randomised tests should reach.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let roles = Role::ALL.iter().zip(self.roles).map(|(role, count)| ("role", role.name(), count));
        let faults = Fault::ALL.iter().zip(self.faults).map(|(fault, count)| ("fault", fault.name(), count));
        let laws = Law::ALL.iter().zip(self.laws).map(|(law, count)| ("law", law.name(), count));
        let in_reach = |(reason, _): &(&Reason, u64)| !OUT_OF_REACH.contains(*reason);
        let reasons = Reason::ALL.iter().zip(self.reasons).filter(in_reach);
        let reasons = reasons.map(|(reason, count)| ("reason", reason.name(), count));
        let receiving = Receiving::ALL.iter().zip(self.receiving).map(|(it, count)| ("frames", it.name(), count));
        roles.chain(faults).chain(laws).chain(reasons).chain(receiving)
    }

    fn all(&self) -> impl Iterator<Item = &u64> {
        let Coverage { roles, faults, laws, reasons, events, receiving } = self;
        roles.iter().chain(faults).chain(laws).chain(reasons).chain(events).chain(receiving)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let Coverage { roles, faults, laws, reasons, events, receiving } = self;
        roles.iter_mut().chain(faults).chain(laws).chain(reasons).chain(events).chain(receiving)
    }
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage::new()
    }
}
