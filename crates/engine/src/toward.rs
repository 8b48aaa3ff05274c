//! The two sides of a gateway, and the directions that lead to them.

/// The side that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// That of the long packets.
    Wide,
    /// That of the short ones.
    Narrow,
}

impl Toward {
    /// The number of the direction that leads there.
    pub const fn direction(self) -> usize {
        match self {
            Toward::Narrow => 0,
            Toward::Wide => 1,
        }
    }

    /// Where the direction with this number leads.
    pub(crate) const fn of_direction(direction: usize) -> Toward {
        if direction == Toward::Narrow.direction() { Toward::Narrow } else { Toward::Wide }
    }

    pub(crate) fn other(self) -> Toward {
        match self {
            Toward::Wide => Toward::Narrow,
            Toward::Narrow => Toward::Wide,
        }
    }
}
