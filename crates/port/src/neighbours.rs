//! An IP address on a link in, the hardware address of who has it out.
//!
//! The kernel does the asking (ARP, and neighbour discovery): whoever sends frames itself reads what it found.

use crate::addresses::family;
use crate::interfaces::Mac;
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use std::io;
use std::net::IpAddr;

/// What the kernel knows of somebody on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface behind which it is.
    pub index: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its hardware address, where that is known and may be used.
    pub mac: Option<[u8; 6]>,
    /// What is known of it.
    pub state: Standing,
}

/// How well a neighbour is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its hardware address may be used: it answered, or a person said it, or it is being asked again.
    Usable,
    /// It was asked and has not answered yet.
    Asked,
    /// It was asked and did not answer.
    Failed,
    /// It was never asked.
    Unknown,
}

impl Netlink {
    /// All neighbours of both versions.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn neighbours(&mut self) -> io::Result<Vec<Neighbour>> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.list(question, "cannot list neighbours")?;
        let read = |answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => Neighbour::read(&message),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(read).collect())
    }

    /// The hardware address of this neighbour, where it is known and may be used; [`Netlink::resolve`] asks for it.
    ///
    /// # Errors
    /// `NotFound` for the interface.
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let question = RouteNetlinkMessage::GetNeighbour(about(index, address));
        match self.ask(question, format!("cannot look up neighbour {address} of interface {index}")) {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => {
                Ok(Neighbour::read(&message).and_then(|neighbour| neighbour.mac))
            }
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

impl Neighbour {
    /// `None` for a family that is not IP.
    pub(crate) fn read(message: &NeighbourMessage) -> Option<Neighbour> {
        let state = Standing::read(message.header.state);
        let mut address = None;
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
                _ => {}
            }
        }
        let mac = mac.filter(|_| state == Standing::Usable);
        Some(Neighbour { index: message.header.ifindex, address: address?, mac, state })
    }
}

impl Standing {
    fn read(state: NeighbourState) -> Standing {
        match state {
            NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Delay => Standing::Usable,
            NeighbourState::Probe | NeighbourState::Permanent | NeighbourState::Noarp => Standing::Usable,
            NeighbourState::Incomplete => Standing::Asked,
            NeighbourState::Failed => Standing::Failed,
            _ => Standing::Unknown,
        }
    }
}

fn about(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message
}
