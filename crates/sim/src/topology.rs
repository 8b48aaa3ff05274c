//! Nodes, links and their settings: the shape of a simulated network.
//!
//! `scene.rs` reads it from a file, `swarm.rs` draws it from a seed.

use crate::link::LinkShape;
use core::time::Duration;
use engine::{Hold, Late, Mode, PlacementMode};
use packet::Split;

/// Nodes and the links between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The links.
    pub links: Vec<Link>,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Sends and receives.
    Host {
        /// Whether its datagrams forbid fragmentation. If so, the host does not fragment them either, as in Linux.
        dont_fragment: bool,
    },
    /// Forwards packets on the link that leads to their destination.
    Router(Router),
    /// Stands between a wide and a narrow network.
    Gateway(Gateway),
}

/// How a router treats fragments, and packets longer than the next link's MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// It fragments packets where allowed, and otherwise sends an ICMP error.
    Fragments,
    /// It fragments nothing and sends an ICMP error.
    Refuses,
    /// It fragments nothing and sends no ICMP error: a black hole.
    Silent,
    /// It reassembles datagrams that the previous hop fragmented, and fragments them again.
    JoinsByHop,
    /// It merges fragments that arrive in order, up to the MTU of the next link.
    JoinsGracefully,
}

/// The settings of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Its role.
    pub role: GatewayRole,
    /// The node at its wide end, by number.
    pub wide: usize,
    /// Whether it reassembles datagrams toward the wide end.
    pub reassemble: bool,
    /// Whether it merges fragments in order toward the wide end.
    pub join: bool,
    /// How it coalesces segments toward the wide end; none: it does not.
    pub coalesce: Option<Mode>,
    /// Whether it coalesces UDP datagrams too.
    pub datagrams: bool,
    /// How it splits a payload into fragments.
    pub split: Split,
    /// How long segments wait for more; none: as long as the port has more packets.
    pub hold: Option<Hold>,
    /// How long fragments wait for the rest of their datagram; none: the standard time.
    pub timeout: Option<Duration>,
    /// The fate of datagrams with missing fragments.
    pub late: Lateness,
    /// When payloads are received at their predicted place.
    pub guessing: PlacementMode,
    /// Memory limit of each stage, in bytes.
    pub limit: usize,
    /// Limit of each direction's buffer pool, in bytes.
    pub pool: usize,
}

/// The fate of datagrams with missing fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// Their fragments leave unchanged.
    Release,
    /// Their fragments are dropped.
    Retire,
}

/// The role of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// Between a network of wide packets and one of narrow packets.
    Border,
    /// The network card of the hosts at its wide end.
    WideInterface,
    /// In front of a busy host: aggregates received packets, and splits those that are too long.
    ReceiveOffload,
}

/// The role of every node that runs the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// See [`GatewayRole::Border`].
    Border,
    /// See [`GatewayRole::WideInterface`].
    WideInterface,
    /// See [`GatewayRole::ReceiveOffload`].
    ReceiveOffload,
    /// See [`Router::Fragments`].
    Fragments,
    /// See [`Router::Refuses`].
    Refuses,
    /// See [`Router::Silent`].
    Silent,
    /// See [`Router::JoinsByHop`].
    JoinsByHop,
    /// See [`Router::JoinsGracefully`].
    JoinsGracefully,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The nodes, by number.
    pub ends: [usize; 2],
    /// Longest packet that it carries, in bytes.
    pub mtu: u16,
    /// Its delay, rate and faults, from the first end to the second and back.
    pub shapes: [LinkShape; 2],
    /// Above this number of packets in flight, ECN-capable packets are marked (RFC 3168 section 5); none: never.
    pub marks_above: Option<u64>,
}

impl Role {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Role; 8] = [
        Role::Border,
        Role::WideInterface,
        Role::ReceiveOffload,
        Role::Fragments,
        Role::Refuses,
        Role::Silent,
        Role::JoinsByHop,
        Role::JoinsGracefully,
    ];

    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Role::Border => "border",
            Role::WideInterface => "wide-interface",
            Role::ReceiveOffload => "receive-offload",
            Role::Fragments => "router",
            Role::Refuses => "refusing-router",
            Role::Silent => "silent-router",
            Role::JoinsByHop => "hop-joining-router",
            Role::JoinsGracefully => "joining-router",
        }
    }
}

impl From<Router> for Role {
    fn from(router: Router) -> Role {
        match router {
            Router::Fragments => Role::Fragments,
            Router::Refuses => Role::Refuses,
            Router::Silent => Role::Silent,
            Router::JoinsByHop => Role::JoinsByHop,
            Router::JoinsGracefully => Role::JoinsGracefully,
        }
    }
}

impl From<GatewayRole> for Role {
    fn from(role: GatewayRole) -> Role {
        match role {
            GatewayRole::Border => Role::Border,
            GatewayRole::WideInterface => Role::WideInterface,
            GatewayRole::ReceiveOffload => Role::ReceiveOffload,
        }
    }
}

impl Gateway {
    /// A gateway with the default settings of its role.
    pub fn new(role: GatewayRole, wide: usize) -> Gateway {
        Gateway {
            role,
            wide,
            reassemble: role == GatewayRole::WideInterface,
            join: false,
            coalesce: Some(if role == GatewayRole::ReceiveOffload { Mode::Reversible } else { Mode::Resize }),
            datagrams: false,
            split: Split::Max,
            hold: None,
            timeout: None,
            late: Lateness::Release,
            guessing: PlacementMode::default(),
            limit: 4 << 20,
            pool: 64 << 20,
        }
    }
}

impl Lateness {
    /// The same for a side whose link has this MTU.
    pub fn toward(self, mtu: u16) -> Late {
        match self {
            Lateness::Release => Late::Release { mtu },
            Lateness::Retire => Late::Retire,
        }
    }
}

impl Topology {
    /// Adds a node and returns its number.
    pub fn node(&mut self, name: impl Into<String>, kind: Kind) -> usize {
        self.nodes.push(Node { name: name.into(), kind });
        self.nodes.len() - 1
    }

    /// Adds a link with the same settings in both directions. Their losses differ.
    pub fn link(&mut self, ends: [usize; 2], mtu: u16, shape: LinkShape) {
        let back = LinkShape { seed: shape.seed ^ BACK, ..shape.clone() };
        self.links.push(Link { ends, mtu, shapes: [shape, back], marks_above: None });
    }

    /// The links of a node, by number.
    pub fn links_of(&self, node: usize) -> impl Iterator<Item = usize> {
        let is_its = move |(_, link): &(usize, &Link)| link.ends.contains(&node);
        self.links.iter().enumerate().filter(is_its).map(|(number, _)| number)
    }
}

/// Distinguishes the seed of the backward direction from that of the forward direction.
pub(crate) const BACK: u64 = 0x5EED_BAC0;
