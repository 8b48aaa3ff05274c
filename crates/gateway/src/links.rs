//! A packet that leaves in, the link header that it needs out; a packet that came in, whether it is ours out.

use crate::next_hops::NextHops;
use packet::{Medium, Packet, Time};

/// How packets get their link headers at one end.
#[derive(Debug)]
pub enum Links {
    /// They keep them: a bump in the wire between two links alike.
    Bridge,
    /// They have none: a TUN.
    Bare,
    /// Each gets that of its next hop, as the kernel knows it; only what is for this station is taken.
    NextHops(Box<NextHops>),
}

/// What became of asking for a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The packet has it.
    Ready,
    /// The next hop was asked for its address.
    Asked,
    /// No route leads there.
    None,
}

impl Links {
    /// Is a packet that came in by this end ours? Else it is the kernel's.
    pub fn takes(&self, packet: &Packet) -> bool {
        match self {
            Links::Bridge | Links::Bare => true,
            Links::NextHops(hops) => hops.takes(packet),
        }
    }

    /// Do frames that carry no packet pass from this end to the other? Else they are the kernel's.
    pub fn passes_others(&self) -> bool {
        matches!(self, Links::Bridge)
    }

    /// Gives a packet that leaves by this end its link header.
    pub fn link(&mut self, now: Time, packet: &mut Packet) -> Link {
        match self {
            Links::Bridge => Link::Ready,
            Links::Bare => {
                if packet.medium() != Medium::Ip {
                    packet.relink(Medium::Ip, &[]);
                }
                Link::Ready
            }
            Links::NextHops(hops) => hops.link(now, packet),
        }
    }
}
