//! An IP address on a link in, the hardware address of who has it out.
//!
//! The kernel does the asking (ARP, and neighbour discovery).

use crate::addresses::family;
use crate::interfaces::Mac;
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use std::io;
use std::net::IpAddr;

impl Netlink {
    /// The hardware address of this neighbour, where it is known and may be used; [`Netlink::resolve`] asks for it.
    ///
    /// # Errors
    /// `NotFound` for the interface.
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let question = RouteNetlinkMessage::GetNeighbour(about(index, address));
        match self.ask(question, format!("cannot look up neighbour {address} of interface {index}")) {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => Ok(usable_mac(&message)),
            Ok(_) => Ok(None),
            Err(why) if why.kind() == io::ErrorKind::NotFound => self.interface_at(index).map(|_| None),
            Err(why) => Err(why),
        }
    }

    /// Lets the kernel ask who has this address, if it does not know; the answer comes by and by. For an IPv6 address the
    /// kernel asks once the interface has a link-local address that is not tentative.
    ///
    /// # Errors
    /// `NotFound` for the interface, or that the right is missing.
    pub fn resolve(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut message = about(index, address);
        message.header.flags = NeighbourFlags::Use;
        let what = format!("cannot resolve neighbour {address} of interface {index}");
        self.order(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE, what)
    }

    /// Says for good who has this address, whatever was known.
    ///
    /// # Errors
    /// As [`Netlink::resolve`].
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let mut message = about(index, address);
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        let what = format!("cannot set neighbour {address} of interface {index} to {}", Mac(mac));
        self.order(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, what)
    }

    /// Forgets who has this address.
    ///
    /// # Errors
    /// `NotFound`, or that the right is missing.
    pub fn remove_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let what = format!("cannot remove neighbour {address} of interface {index}");
        self.order(RouteNetlinkMessage::DelNeighbour(about(index, address)), 0, what)
    }
}

/// The hardware address, where it may be used: its owner answered, or a person said it, or it is being asked again.
fn usable_mac(message: &NeighbourMessage) -> Option<[u8; 6]> {
    let is_usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    );
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) if is_usable => bytes.as_slice().try_into().ok(),
        _ => None,
    })
}

fn about(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message
}
