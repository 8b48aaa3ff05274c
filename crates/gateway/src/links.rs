//! A packet that leaves in, the link header that it needs out; a packet that came in, whether it is ours out.

use crate::next_hops::NextHops;
use packet::{Checksum, Medium, Packet, Time, Version};

/// How packets get their link headers at one end.
#[derive(Debug)]
pub enum Links {
    /// They keep them: a bump in the wire between two links alike.
    Bridge,
    /// They have none: a TUN.
    Bare,
    /// All are for one station: a TAP, whose host asks nobody for addresses.
    Station([u8; 6]),
    /// Each gets that of its next hop, as the kernel knows it; only what is for this station is taken.
    NextHops(Box<NextHops>),
    /// The same, and what passes has one hop less to go (R038), taken when it leaves (C12); what is for the router itself is the
    /// kernel's.
    Router(Box<NextHops>),
}

/// Whose packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Another host's: a router takes a hop from it.
    Passing,
    /// Ours: an answer about a packet.
    Own,
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
    pub fn takes(&mut self, now: Time, packet: &Packet) -> bool {
        match self {
            Links::Bridge | Links::Bare | Links::Station(_) => true,
            Links::NextHops(hops) => hops.is_for_station(packet),
            // The kernel tells the sender of what has no hop left.
            Links::Router(hops) => {
                hops.is_for_station(packet) && packet.hops_left() > 1 && hops.passes_on(now, packet)
            }
        }
    }

    /// Does a way lead by this end to where a packet wants to go? Else it is the kernel's.
    pub fn leads_to(&mut self, now: Time, packet: &Packet) -> bool {
        match self {
            Links::Router(hops) => hops.leads_to(now, packet),
            _ => true,
        }
    }

    /// Do frames that carry no packet pass from this end to the other? Else they are the kernel's.
    pub fn passes_others(&self) -> bool {
        matches!(self, Links::Bridge)
    }

    /// Gives a packet that leaves by this end its link header.
    pub fn link(&mut self, now: Time, packet: &mut Packet, origin: Origin) -> Link {
        match self {
            Links::Bridge => Link::Ready,
            Links::Bare => {
                vouch(packet);
                if packet.medium() != Medium::Ip {
                    packet.relink(Medium::Ip, &[]);
                }
                Link::Ready
            }
            Links::Station(mac) => {
                vouch(packet);
                let header = ethernet(*mac, PEER, packet.ip().version);
                packet.relink(Medium::Ethernet, &header);
                Link::Ready
            }
            Links::NextHops(hops) => hops.link(now, packet),
            Links::Router(hops) => {
                let link = hops.link(now, packet);
                if link == Link::Ready && origin == Origin::Passing {
                    packet.take_hop();
                }
                link
            }
        }
    }
}

/// Sums up a packet for its own host, who then need not: here it is near. One that is wrong stays as it is, for the host to see.
fn vouch(packet: &mut Packet) {
    if packet.checksum == Checksum::Unverified && packet.checksum_error().is_right() {
        packet.checksum = Checksum::Verified;
    }
}

/// An Ethernet header.
pub(crate) fn ethernet(to: [u8; 6], from: [u8; 6], version: Version) -> [u8; ETHERNET_LEN] {
    let ether_type: [u8; 2] = match version {
        Version::V4 => [0x08, 0x00],
        Version::V6 => [0x86, 0xDD],
    };
    let mut header = [0; ETHERNET_LEN];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&ether_type);
    header
}

pub(crate) const ETHERNET_LEN: usize = 14;
/// The station that a host behind a TAP sees everything come from: locally administered (IEEE 802 section 8.4).
const PEER: [u8; 6] = [0x02, 0x57, 0x49, 0x44, 0x45, 0x00];
