//! Nodes, links and their settings: the description of a simulated network.
//!
//! A topology is either read from a file by `scene.rs`, or drawn from a seed by `swarm.rs`.

use crate::link::LinkShape;
use core::time::Duration;
use engine::{AckPolicy, Hold, Late, Mode, PlacementMode, SegmentPolicy};
use packet::Split;

/// A network of nodes and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The nodes, by number.
    pub nodes: Vec<Node>,
    /// The links, by number.
    pub links: Vec<Link>,
}

/// A node of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The node's name in messages.
    pub name: String,
    /// The node's kind and settings.
    pub kind: Kind,
}

/// The kind of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A host, which sends and receives flows.
    Host {
        /// Whether datagrams must not be fragmented. If so, the host does not fragment them either, as in Linux.
        dont_fragment: bool,
    },
    /// A router, which forwards packets toward their destinations.
    Router(Router),
    /// A gateway between a wide and a narrow network.
    Gateway(Gateway),
}

/// The kinds of routers, by their treatment of fragments and of packets that exceed the next MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// Fragments packets where allowed, and otherwise sends an ICMP error.
    Fragments,
    /// Fragments no packets, and sends an ICMP error.
    Refuses,
    /// Fragments no packets, and sends no ICMP errors: a black hole.
    Silent,
    /// Reassembles datagrams that the previous hop fragmented, and fragments them again.
    ReassemblesByHop,
    /// Merges fragments that arrive in order, up to the next link's MTU.
    Merges,
}

/// The settings of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// The gateway's role.
    pub role: GatewayRole,
    /// Number of the node on the wide side.
    pub wide: usize,
    /// The treatment of TCP segments that are too long for the narrow side.
    pub segments: SegmentPolicy,
    /// The treatment of acknowledgements at a border.
    pub acks: AckPolicy,
    /// Whether datagrams toward the wide side are reassembled.
    pub reassemble: bool,
    /// Whether fragments in order toward the wide side are merged.
    pub merge: bool,
    /// How segments toward the wide side are coalesced; `None` = not coalesced.
    pub coalesce: Option<Mode>,
    /// Whether UDP datagrams are coalesced, too.
    pub datagrams: bool,
    /// How a payload is divided into fragments.
    pub split: Split,
    /// How long a segment is held so that later ones can join it; `None` = until the port has no more frames.
    pub hold: Option<Hold>,
    /// Reassembly time-out; `None` = the standard time-out.
    pub timeout: Option<Duration>,
    /// Treatment of datagrams with missing fragments at their time-out.
    pub late: Lateness,
    /// When payloads are received at their predicted place.
    pub guessing: PlacementMode,
    /// Whether the frames that arrive together are processed in a fair order, not in order of arrival.
    pub is_fair: bool,
    /// Memory limit of each stage, in bytes.
    pub limit: usize,
    /// Limit of each direction's buffer pool, in bytes.
    pub pool: usize,
}

/// Treatment of datagrams with missing fragments at their time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// The received fragments are forwarded unchanged.
    Release,
    /// The received fragments are dropped.
    Retire,
}

/// The role of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// Between a network with a large MTU and a network with a small MTU.
    Border,
    /// Like a NIC with a large MTU, for the hosts on the wide side.
    WideInterface,
    /// In front of a busy host: coalesces received packets, and splits packets that are too long.
    ReceiveOffload,
}

/// The role of a node that runs the engine.
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
    /// See [`Router::ReassemblesByHop`].
    ReassemblesByHop,
    /// See [`Router::Merges`].
    Merges,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Numbers of the two nodes.
    pub ends: [usize; 2],
    /// The link's MTU, in bytes.
    pub mtu: u16,
    /// Delay, rate and faults: from the first end to the second, and back.
    pub shapes: [LinkShape; 2],
    /// ECN-capable packets are marked while more packets than this are in flight (RFC 3168 section 5); `None` =
    /// never.
    pub marks_above: Option<u64>,
}

impl Role {
    /// All roles, in the order of table rows.
    pub const ALL: [Role; 8] = [
        Role::Border,
        Role::WideInterface,
        Role::ReceiveOffload,
        Role::Fragments,
        Role::Refuses,
        Role::Silent,
        Role::ReassemblesByHop,
        Role::Merges,
    ];

    /// The role's name in tables and scene files.
    pub fn name(self) -> &'static str {
        match self {
            Role::Border => "border",
            Role::WideInterface => "wide-interface",
            Role::ReceiveOffload => "receive-offload",
            Role::Fragments => "router",
            Role::Refuses => "refusing-router",
            Role::Silent => "silent-router",
            Role::ReassemblesByHop => "hop-reassembling-router",
            Role::Merges => "merging-router",
        }
    }
}

impl From<Router> for Role {
    fn from(router: Router) -> Role {
        match router {
            Router::Fragments => Role::Fragments,
            Router::Refuses => Role::Refuses,
            Router::Silent => Role::Silent,
            Router::ReassemblesByHop => Role::ReassemblesByHop,
            Router::Merges => Role::Merges,
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
            segments: SegmentPolicy::Segment,
            acks: AckPolicy::Unchanged,
            reassemble: role == GatewayRole::WideInterface,
            merge: false,
            coalesce: Some(if role == GatewayRole::ReceiveOffload { Mode::Reversible } else { Mode::Resize }),
            datagrams: false,
            split: Split::Max,
            hold: None,
            timeout: None,
            late: Lateness::Release,
            guessing: PlacementMode::default(),
            is_fair: false,
            limit: 4 << 20,
            pool: 64 << 20,
        }
    }
}

impl Lateness {
    /// The engine's setting for late fragments, on a side whose link has this MTU.
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

    /// Adds a link with equal settings in both directions. The random losses of the directions differ.
    pub fn link(&mut self, ends: [usize; 2], mtu: u16, shape: LinkShape) {
        let back = LinkShape { seed: shape.seed ^ BACK, ..shape.clone() };
        self.links.push(Link { ends, mtu, shapes: [shape, back], marks_above: None });
    }

    /// Numbers of a node's links.
    pub fn links_of(&self, node: usize) -> impl Iterator<Item = usize> {
        let is_its = move |(_, link): &(usize, &Link)| link.ends.contains(&node);
        self.links.iter().enumerate().filter(is_its).map(|(number, _)| number)
    }
}

/// Combined with a seed by XOR, so that the two directions of a link have different random numbers.
pub(crate) const BACK: u64 = 0x5EED_BAC0;
