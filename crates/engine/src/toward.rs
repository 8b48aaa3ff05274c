//! The two sides of a gateway, and the direction that leads to each.

/// The side that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The side with the larger MTU.
    Wide,
    /// The side with the smaller MTU.
    Narrow,
}

impl Toward {
    /// The number of the direction that leads to this side.
    pub const fn direction(self) -> usize {
        match self {
            Toward::Narrow => 0,
            Toward::Wide => 1,
        }
    }

    /// The side that the direction with this number leads to.
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
