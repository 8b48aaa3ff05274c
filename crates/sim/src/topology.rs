//! What stands in a network, what joins it, and what each of it does; `scene.rs` reads it from a file.

use crate::link::LinkShape;
use core::time::Duration;
use engine::{Hold, Late, Mode, PlacementMode};
use packet::Split;

/// Nodes and the links between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// What stands there, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<Link>,
}

/// What stands somewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub kind: Kind,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Sends and receives.
    Host {
        /// Do its datagrams say that no router may cut them? Then it does not cut them itself either, as Linux does.
        dont_fragment: bool,
    },
    /// Passes packets on to whichever of its links leads to their destination.
    Router(Router),
    /// Stands between a wide end and a narrow one.
    Gateway(Gateway),
}

/// What a router does with packets that are too long for their link, and with fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// It cuts what may be cut, and tells the sender of what may not.
    Fragments,
    /// It cuts nothing, and tells the sender.
    Refuses,
    /// It cuts nothing, and says nothing.
    Silent,
    /// It makes datagrams whole that the hop before it cut, and cuts them again.
    JoinsByHop,
    /// It joins fragments that come in order, up to what the next link takes.
    JoinsGracefully,
}

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Who it is to the packets.
    pub role: GatewayRole,
    /// The node at its wide end, by number.
    pub wide: usize,
    /// Are fragments made whole toward the wide end?
    pub reassemble: bool,
    /// Are fragments joined as long as they come in order, toward the wide end?
    pub join: bool,
    /// How segments are joined toward the wide end; none: they are not.
    pub coalesce: Option<Mode>,
    /// Are UDP datagrams joined so, too?
    pub datagrams: bool,
    /// How a payload is shared out that must be cut.
    pub fill: Split,
    /// How long segments wait for others; none: as long as the port has more.
    pub hold: Option<Hold>,
    /// How long fragments wait for others; none: as the standards say.
    pub timeout: Option<Duration>,
    /// What becomes of datagrams whose fragments did not all come.
    pub late: Lateness,
    /// When payloads are received where they are predicted to belong.
    pub guessing: PlacementMode,
    /// What each stage may hold, in bytes.
    pub limit: usize,
    /// What each way may lend, in bytes.
    pub pool: usize,
}

/// What becomes of datagrams whose fragments did not all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// They leave as they are.
    Release,
    /// They end.
    Retire,
}

/// Who a gateway is to the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// Between a network of wide packets and one of narrow ones.
    Border,
    /// The card of the hosts at its wide end.
    WideInterface,
    /// In front of a busy host: joins what comes, cuts what must be.
    ReceiveOffload,
}

/// Everything that takes packets in, by what it is to them.
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

/// Two nodes and what lies between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The nodes, by number.
    pub ends: [usize; 2],
    /// Longest packet that it takes, in bytes.
    pub mtu: u16,
    /// What it does to packets from the first end to the second, and back.
    pub shapes: [LinkShape; 2],
    /// With more packets than this on it, those whose sender takes part are marked (RFC 3168 section 5); none: never.
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
    /// One with what its role usually does.
    pub fn new(role: GatewayRole, wide: usize) -> Gateway {
        Gateway {
            role,
            wide,
            reassemble: role == GatewayRole::WideInterface,
            join: false,
            coalesce: Some(if role == GatewayRole::ReceiveOffload { Mode::Reversible } else { Mode::Resize }),
            datagrams: false,
            fill: Split::Max,
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
    /// The same for a side whose link takes `mtu`.
    pub fn toward(self, mtu: u16) -> Late {
        match self {
            Lateness::Release => Late::Release { mtu },
            Lateness::Retire => Late::Retire,
        }
    }
}

impl Topology {
    /// Adds a node, and says its number.
    pub fn node(&mut self, name: impl Into<String>, kind: Kind) -> usize {
        self.nodes.push(Node { name: name.into(), kind });
        self.nodes.len() - 1
    }

    /// Adds a link that is alike in both directions, but for what it loses.
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

/// What tells the seed of one direction from that of the other.
pub(crate) const BACK: u64 = 0x5EED_BAC0;
