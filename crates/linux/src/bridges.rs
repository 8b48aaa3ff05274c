//! Interfaces in, a bridge of the kernel between them out.

use crate::interfaces::named;
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use std::io;

impl Netlink {
    /// Makes a bridge without ports.
    ///
    /// # Errors
    /// `AlreadyExists`, or that the right is missing.
    pub fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut bridge = named(name);
        bridge.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let what = format!("{name}: cannot make a bridge");
        self.order(RouteNetlinkMessage::NewLink(bridge), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Makes an interface a port of this bridge, or, without one, of none.
    ///
    /// # Errors
    /// `NotFound` for either, or that it cannot be such a port.
    pub fn set_bridge(&mut self, name: &str, bridge: Option<&str>) -> io::Result<()> {
        let index = bridge.map(|bridge| self.index(bridge)).transpose()?.unwrap_or(0);
        let what = match bridge {
            Some(bridge) => format!("{name}: cannot make it a port of {bridge}"),
            None => format!("{name}: cannot take it out of its bridge"),
        };
        self.set(name, LinkAttribute::Controller(index), what)
    }
}
