//! An IP address on a link -> the neighbour's hardware address.
//!
//! The kernel resolves addresses (ARP, neighbour discovery). This module reads and sets the kernel's entries.

use crate::addresses::family;
use crate::interfaces::Mac;
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use std::io;
use std::net::IpAddr;

impl Netlink {
    /// Returns the hardware address of a neighbour; `None` if the kernel has no valid entry. [`Netlink::resolve`]
    /// makes the kernel create an entry.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`).
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let question = RouteNetlinkMessage::GetNeighbour(about(index, address));
        match self.ask(question, format!("cannot look up neighbour {address} of interface {index}")) {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => Ok(usable_mac(&message)),
            Ok(_) => Ok(None),
            Err(why) if why.kind() == io::ErrorKind::NotFound => self.interface_at(index).map(|_| None),
            Err(why) => Err(why),
        }
    }

    /// Makes the kernel resolve `address` if its hardware address is unknown. Later, [`Netlink::neighbour`] returns
    /// the result. For an IPv6 address, the interface first needs a link-local address that is not tentative.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`), or privileges are missing.
    pub fn resolve(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut message = about(index, address);
        message.header.flags = NeighbourFlags::Use;
        let what = format!("cannot resolve neighbour {address} of interface {index}");
        self.order(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE, what)
    }

    /// Sets a permanent neighbour entry, and replaces any other entry of the address.
    ///
    /// # Errors
    /// The errors of [`Netlink::resolve`].
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let mut message = about(index, address);
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        let what = format!("cannot set neighbour {address} of interface {index} to {}", Mac(mac));
        self.order(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, what)
    }

    /// Removes the neighbour entry of this address.
    ///
    /// # Errors
    /// There is no such entry (`NotFound`), or privileges are missing.
    pub fn remove_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let what = format!("cannot remove neighbour {address} of interface {index}");
        self.order(RouteNetlinkMessage::DelNeighbour(about(index, address)), 0, what)
    }
}

/// Returns the hardware address of an entry. `None` unless the entry is confirmed, set by an administrator, or
/// being confirmed again.
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
