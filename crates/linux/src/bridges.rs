//! Interfaces -> ports of a kernel bridge.

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
    /// `AlreadyExists`, or missing privileges.
    pub fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut bridge = named(name);
        bridge.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let what = format!("{name}: cannot create a bridge");
        self.order(RouteNetlinkMessage::NewLink(bridge), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Makes an interface a port of this bridge; `None` removes it from its bridge.
    ///
    /// # Errors
    /// `NotFound` for either, or the interface cannot be a port.
    pub fn set_bridge(&mut self, name: &str, bridge: Option<&str>) -> io::Result<()> {
        let index = bridge.map(|bridge| self.index(bridge)).transpose()?.unwrap_or(0);
        let what = match bridge {
            Some(bridge) => format!("{name}: cannot add it to bridge {bridge}"),
            None => format!("{name}: cannot remove it from its bridge"),
        };
        self.set(name, LinkAttribute::Controller(index), what)
    }
}
