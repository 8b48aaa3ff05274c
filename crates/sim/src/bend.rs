//! A word in, what is wrong with a gateway on purpose out: so that each law is seen to break.

/// What a bent gateway does to every so many of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bend {
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

impl Bend {
    /// All of them.
    pub const ALL: [Bend; 11] = [
        Bend::DropsSilently,
        Bend::LosesUnseen,
        Bend::ExceedsMtu,
        Bend::Reorders,
        Bend::ForgetsBuffer,
        Bend::TellsNobody,
        Bend::HoldsTooLong,
        Bend::Corrupts,
        Bend::CutsAll,
        Bend::LosesMarks,
        Bend::InventsMarks,
    ];
    /// Which packets it befalls: each so many-th.
    pub const EVERY: u64 = 50;

    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Bend::DropsSilently => "drops",
            Bend::LosesUnseen => "loses",
            Bend::ExceedsMtu => "too-long",
            Bend::Reorders => "reorders",
            Bend::ForgetsBuffer => "forgets",
            Bend::TellsNobody => "silent",
            Bend::HoldsTooLong => "holds",
            Bend::Corrupts => "corrupts",
            Bend::CutsAll => "cuts",
            Bend::LosesMarks => "unmarks",
            Bend::InventsMarks => "marks",
        }
    }
}
