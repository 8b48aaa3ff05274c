//! A word in, what is wrong with a gateway on purpose out: so that each law is seen to break.

/// What a bent gateway does to every so many of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// They vanish, and nothing is counted.
    DropsSilently,
    /// They vanish, and are counted as if they were on the wire.
    LosesUnseen,
    /// They leave longer than the link takes.
    ExceedsMtu,
    /// They leave behind the next one.
    Reorders,
    /// Their buffers do not come back.
    ForgetsBuffer,
    /// What is refused is refused in silence.
    TellsNobody,
    /// What is held leaves a second late.
    HoldsTooLong,
    /// They leave with words of theirs exchanged, which no checksum sees.
    Corrupts,
    /// What must not be cut is cut.
    CutsAll,
    /// They leave without the mark of congestion that they came with.
    LosesMarks,
    /// They leave with such a mark, which nobody set.
    InventsMarks,
}

impl InjectedBug {
    /// All of them.
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
    /// Which packets it befalls: each so many-th.
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
