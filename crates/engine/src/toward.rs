//! The two sides of a gateway, and the number of the direction toward each.
//!
//! Code that depends on the side takes a [`Toward`], so no caller has to remember the numbers.

/// The side that a packet is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The side with the larger MTU.
    Wide,
    /// The side with the smaller MTU.
    Narrow,
}

impl Toward {
    /// Returns the number of the direction toward this side.
    pub const fn direction(self) -> usize {
        match self {
            Toward::Narrow => 0,
            Toward::Wide => 1,
        }
    }

    /// Returns the side at the end of the direction with this number.
    pub const fn of_direction(direction: usize) -> Toward {
        if direction == Toward::Narrow.direction() { Toward::Narrow } else { Toward::Wide }
    }

    /// Returns the opposite side.
    pub const fn other(self) -> Toward {
        match self {
            Toward::Wide => Toward::Narrow,
            Toward::Narrow => Toward::Wide,
        }
    }
}
