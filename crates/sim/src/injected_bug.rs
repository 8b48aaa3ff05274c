//! Name -> a bug injected into a gateway. Tests use it to see each law break.

/// A bug that affects every [`InjectedBug::EVERY`]-th packet of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// Packets vanish uncounted.
    DropsSilently,
    /// Packets vanish, but count as sent.
    LosesUnseen,
    /// Packets leave longer than the MTU of the link.
    ExceedsMtu,
    /// Packets leave after the next one.
    Reorders,
    /// Buffers of packets are not returned.
    ForgetsBuffer,
    /// Rejected packets cause no ICMP error.
    TellsNobody,
    /// Held packets leave a second late.
    HoldsTooLong,
    /// Packets leave with words exchanged, which no checksum detects.
    Corrupts,
    /// Packets that must not be fragmented are fragmented.
    CutsAll,
    /// Packets leave without the congestion mark they arrived with.
    LosesMarks,
    /// Packets leave with a congestion mark that nobody set.
    InventsMarks,
}

impl InjectedBug {
    /// All bugs.
    pub const ALL: [InjectedBug; 11] = [
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
    ];
    /// Interval of affected packets.
    pub const EVERY: u64 = 50;

    /// Its name in commands.
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
        }
    }
}
