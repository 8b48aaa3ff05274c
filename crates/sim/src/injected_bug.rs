//! A name -> a bug injected into a gateway.
//!
//! Tests inject each bug to prove that the checks detect the broken law.

/// A bug that affects one in [`InjectedBug::EVERY`] packets of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Packets are dropped and not counted.
    DropsSilently,
    /// Packets are dropped but counted as sent.
    LosesUnseen,
    /// Packets exceed the link's MTU.
    ExceedsMtu,
    /// Packets are transmitted after the packet that followed them.
    Reorders,
    /// Buffers are not returned to the pool.
    ForgetsBuffer,
    /// Rejected packets cause no ICMP error.
    TellsNobody,
    /// Held packets are transmitted a second too late.
    HoldsTooLong,
    /// Packets are transmitted with words exchanged, which checksums cannot detect.
    Corrupts,
    /// Packets are fragmented although they must not be.
    CutsAll,
    /// Packets lose the congestion mark with which they were received.
    LosesMarks,
    /// Packets get a congestion mark that no node set.
    InventsMarks,
    /// Packets are handled twice, as if their hosts had repeated them.
    Repeats,
}

impl InjectedBug {
    /// All injectable bugs.
    pub const ALL: [InjectedBug; 12] = [
        InjectedBug::DropsSilently,
        InjectedBug::LosesUnseen,
        InjectedBug::ExceedsMtu,
        InjectedBug::Reorders,
        InjectedBug::ForgetsBuffer,
        InjectedBug::TellsNobody,
        InjectedBug::HoldsTooLong,
        InjectedBug::Corrupts,
        InjectedBug::CutsAll,
        InjectedBug::LosesMarks,
        InjectedBug::InventsMarks,
        InjectedBug::Repeats,
    ];
    /// One in this many packets is affected.
    pub const EVERY: u64 = 50;

    /// The bug's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            InjectedBug::DropsSilently => "drops",
            InjectedBug::LosesUnseen => "loses",
            InjectedBug::ExceedsMtu => "too-long",
            InjectedBug::Reorders => "reorders",
            InjectedBug::ForgetsBuffer => "forgets",
            InjectedBug::TellsNobody => "silent",
            InjectedBug::HoldsTooLong => "holds",
            InjectedBug::Corrupts => "corrupts",
            InjectedBug::CutsAll => "cuts",
            InjectedBug::LosesMarks => "unmarks",
            InjectedBug::InventsMarks => "marks",
            InjectedBug::Repeats => "repeats",
        }
    }
}
