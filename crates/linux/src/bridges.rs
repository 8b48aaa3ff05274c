//! Interfaces -> ports of a kernel bridge.
//!
//! Tests and the lab connect their namespaces with bridges. A gateway needs none.

use crate::interfaces::named;
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use std::io;

impl Netlink {
    /// Creates a bridge without ports.
    ///
    /// # Errors
    /// An interface of this name exists (`AlreadyExists`), or privileges are missing.
    pub fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut bridge = named(name);
        bridge.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let what = format!("{name}: cannot create a bridge");
        self.order(RouteNetlinkMessage::NewLink(bridge), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Makes an interface a port of this bridge. `None` removes the interface from its bridge.
    ///
    /// # Errors
    /// The interface or the bridge does not exist (`NotFound`), or the interface cannot be a port.
    pub fn set_bridge(&mut self, name: &str, bridge: Option<&str>) -> io::Result<()> {
        let index = bridge.map(|bridge| self.index(bridge)).transpose()?.unwrap_or(0);
        let what = match bridge {
            Some(bridge) => format!("{name}: cannot add it to bridge {bridge}"),
            None => format!("{name}: cannot remove it from its bridge"),
        };
        self.set(name, LinkAttribute::Controller(index), what)
    }
}
