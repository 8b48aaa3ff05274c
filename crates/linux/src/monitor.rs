//! Changes in a network namespace -> notifications.
//!
//! A gateway follows the host's interfaces and routes by notifications instead of frequent queries.

use crate::addresses::InterfaceAddress;
use crate::failure::failed;
use crate::interfaces::Interface;
use crate::netlink::{messages, until_done};
use crate::routes::{self, Route};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A subscription to changes in the namespace in which the monitor was opened. The monitor's descriptor is readable
/// if a change may be available.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    changes: VecDeque<Change>,
}

/// A change in a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An interface was added, modified or removed.
    Link(Presence, Interface),
    /// An address was added, modified or removed.
    Address(Presence, InterfaceAddress),
    /// A route of any table was added, modified or removed.
    Route(Presence, Route),
    /// A routing rule was added or removed.
    Rule(Presence),
    /// Notifications were lost because they arrived faster than they were read. Everything must be queried anew.
    Lost,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object was added or modified.
    Set,
    /// The object was removed.
    Gone,
}

impl Monitor {
    /// Opens a monitor in the calling thread's namespace. The monitor reports only later changes.
    ///
    /// # Errors
    /// The process cannot open another socket.
    pub fn open() -> io::Result<Monitor> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.bind(&SocketAddr::new(0, GROUPS))?;
            Ok(Monitor { socket, changes: VecDeque::new() })
        };
        open().map_err(|why| failed("cannot open a netlink socket", &why))
    }

    /// Returns the next change; `None` if there is none yet. Does not wait.
    #[expect(clippy::should_implement_trait, reason = "after nothing there may be something again")]
    pub fn next(&mut self) -> Option<Change> {
        while self.changes.is_empty() {
            match until_done(|| self.socket.recv_from_full()) {
                Ok((bytes, _)) => self.read(&bytes),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Change::Lost),
            }
        }
        self.changes.pop_front()
    }

    fn read(&mut self, bytes: &[u8]) {
        for message in messages(bytes) {
            match message.map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(message)) => self.changes.extend(changes(message)),
                Ok(_) => {}
                Err(_) => self.changes.push_back(Change::Lost),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn changes(message: RouteNetlinkMessage) -> Vec<Change> {
    match message {
        RouteNetlinkMessage::NewLink(link) => interface(&link, Presence::Set).into_iter().collect(),
        RouteNetlinkMessage::DelLink(link) => interface(&link, Presence::Gone).into_iter().collect(),
        RouteNetlinkMessage::NewAddress(address) => InterfaceAddress::read(&address)
            .map(|address| Change::Address(Presence::Set, address))
            .into_iter()
            .collect(),
        RouteNetlinkMessage::DelAddress(address) => InterfaceAddress::read(&address)
            .map(|address| Change::Address(Presence::Gone, address))
            .into_iter()
            .collect(),
        RouteNetlinkMessage::NewRule(_) => vec![Change::Rule(Presence::Set)],
        RouteNetlinkMessage::DelRule(_) => vec![Change::Rule(Presence::Gone)],
        RouteNetlinkMessage::NewRoute(_) => of_routes(message, Presence::Set),
        RouteNetlinkMessage::DelRoute(_) => of_routes(message, Presence::Gone),
        _ => Vec::new(),
    }
}

/// Returns the change of an interface; `None` for a message of a bridge about one of its ports. Such a message may
/// report a removed port, although the interface still exists.
fn interface(link: &LinkMessage, turn: Presence) -> Option<Change> {
    let is_whole = link.header.interface_family == AddressFamily::Unspec;
    is_whole.then(|| Change::Link(turn, Interface::read(link)))
}

fn of_routes(message: RouteNetlinkMessage, turn: Presence) -> Vec<Change> {
    routes::read(message).into_iter().map(|route| Change::Route(turn, route)).collect()
}

/// The groups of notifications: RTMGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR, _IPV6_ROUTE, and
/// the bit of RTNLGRP_IPV6_RULE.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
