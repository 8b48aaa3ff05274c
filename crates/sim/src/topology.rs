//! A small file in, the nodes and links of a network out; or what is wrong with it, with line and key.
//!
//! ```
//! let text = r#"
//! [[node]]
//! name = "far"
//! kind = "host"
//!
//! [[node]]
//! name = "near"
//! kind = "host"
//!
//! [[node]]
//! name = "gateway"
//! kind = "border"
//! wide = "far"
//!
//! [[link]]
//! ends = ["far", "gateway"]
//! mtu = 9000
//!
//! [[link]]
//! ends = ["gateway", "near"]
//! mtu = 1500
//! shape = "delay=5ms,rate=100M"
//! "#;
//! let topology: wideload_sim::Topology = text.parse().unwrap();
//! assert_eq!((topology.nodes.len(), topology.links.len()), (3, 2));
//! ```

use crate::draw::Dice;
use crate::link::Shape;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;
use engine::{Hold, Late, Mode};
use packet::Fill;
use serde::Deserialize;
use std::collections::HashMap;
use toml::Spanned;

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
    pub fill: Fill,
    /// How long segments wait for others; none: as long as the port has more.
    pub hold: Option<Hold>,
    /// How long fragments wait for others; none: as the standards say.
    pub patience: Option<Duration>,
    /// What becomes of datagrams whose fragments did not all come.
    pub late: Lateness,
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
    pub shapes: [Shape; 2],
    /// With more packets than this on it, those whose sender takes part are marked (RFC 3168 section 5); none: never.
    pub marks_above: Option<u64>,
}

/// What is wrong with a topology, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTopology {
    /// The line, from 1.
    pub line: usize,
    /// The key; empty where it is a whole table.
    pub key: String,
    /// One sentence.
    pub what: String,
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
            fill: Fill::Full,
            hold: None,
            patience: None,
            late: Lateness::Release,
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
    pub fn link(&mut self, ends: [usize; 2], mtu: u16, shape: Shape) {
        let back = Shape { seed: shape.seed ^ BACK, ..shape.clone() };
        self.links.push(Link { ends, mtu, shapes: [shape, back], marks_above: None });
    }

    /// The links of a node, by number.
    pub fn links_of(&self, node: usize) -> impl Iterator<Item = usize> {
        let is_its = move |(_, link): &(usize, &Link)| link.ends.contains(&node);
        self.links.iter().enumerate().filter(is_its).map(|(number, _)| number)
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<Spanned<NodeTable>>,
    #[serde(default)]
    link: Vec<LinkTable>,
    #[serde(default)]
    chain: Vec<ChainTable>,
    #[serde(default)]
    tree: Vec<TreeTable>,
    #[serde(default)]
    mesh: Vec<MeshTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    name: Spanned<String>,
    kind: Spanned<String>,
    wide: Option<Spanned<String>>,
    #[serde(default, rename = "dont-fragment")]
    dont_fragment: bool,
    reassemble: Option<bool>,
    join: Option<bool>,
    coalesce: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    ends: Spanned<[String; 2]>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
    back: Option<Spanned<String>>,
}

/// Nodes in a row, each linked with the next.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainTable {
    nodes: Spanned<Vec<String>>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
}

/// Routers below a root, each with so many below it, and hosts at the end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeTable {
    root: Spanned<String>,
    names: String,
    fanout: Spanned<i64>,
    depth: Spanned<i64>,
    router: Option<Spanned<String>>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
}

/// Routers of which each is linked with one before it, and with others at random.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshTable {
    names: String,
    count: Spanned<i64>,
    #[serde(default)]
    extra: i64,
    #[serde(default)]
    seed: u64,
    router: Option<Spanned<String>>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
}

impl FromStr for Topology {
    type Err = BadTopology;

    fn from_str(text: &str) -> Result<Topology, BadTopology> {
        let file: File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            bad_at(text, &span, error.message().to_owned())
        })?;
        Reader { text, topology: Topology::default(), numbers: HashMap::new() }.read(file)
    }
}

/// A file on its way to a topology.
struct Reader<'a> {
    text: &'a str,
    topology: Topology,
    numbers: HashMap<String, usize>,
}

impl Reader<'_> {
    fn read(mut self, file: File) -> Result<Topology, BadTopology> {
        for node in &file.node {
            let table = node.get_ref();
            self.add(table.name.get_ref(), &table.name.span(), Kind::Host { dont_fragment: table.dont_fragment })?;
        }
        for tree in &file.tree {
            self.tree(tree)?;
        }
        for mesh in &file.mesh {
            self.mesh(mesh)?;
        }
        for chain in &file.chain {
            for pair in chain.nodes.get_ref().windows(2) {
                let [one, other] = [&pair[0], &pair[1]].map(|name| self.number(name, &chain.nodes.span()));
                self.join([one?, other?], &chain.mtu, [&chain.shape, &None])?;
            }
        }
        for link in &file.link {
            let [one, other] = link.ends.get_ref().each_ref().map(|name| self.number(name, &link.ends.span()));
            self.join([one?, other?], &link.mtu, [&link.shape, &link.back])?;
        }
        for (number, node) in file.node.iter().enumerate() {
            self.topology.nodes[number].kind = self.kind(number, node)?;
        }
        Ok(self.topology)
    }

    fn add(&mut self, name: &str, span: &Range<usize>, kind: Kind) -> Result<usize, BadTopology> {
        if self.topology.nodes.len() == NODE_COUNT_MAX {
            return self.bad(span, format!("there are more than {NODE_COUNT_MAX} nodes; leave some out"));
        }
        let number = self.topology.node(name, kind);
        match self.numbers.insert(name.to_owned(), number) {
            None => Ok(number),
            Some(_) => self.bad(span, format!("there are two nodes `{name}`; give one another name")),
        }
    }

    fn number(&self, name: &str, span: &Range<usize>) -> Result<usize, BadTopology> {
        match self.numbers.get(name) {
            Some(number) => Ok(*number),
            None => self.bad(span, format!("there is no node `{name}`; add one, or name another")),
        }
    }

    fn kind(&self, number: usize, node: &Spanned<NodeTable>) -> Result<Kind, BadTopology> {
        let table = node.get_ref();
        let word = table.kind.get_ref().as_str();
        if word == "host" {
            return match self.topology.links_of(number).count() {
                1 => Ok(Kind::Host { dont_fragment: table.dont_fragment }),
                count => self.bad(&table.name.span(), format!("a host has one link, this one {count}")),
            };
        }
        if let Some(router) = router(word) {
            return Ok(Kind::Router(router));
        }
        let role = match word {
            "border" => GatewayRole::Border,
            "wide-interface" => GatewayRole::WideInterface,
            "receive-offload" => GatewayRole::ReceiveOffload,
            _ => {
                let names: Vec<&str> = Role::ALL.into_iter().map(Role::name).collect();
                return self.bad(
                    &table.kind.span(),
                    format!("`{word}` is no kind of node; there are host, {}", names.join(", ")),
                );
            }
        };
        let Some(wide) = &table.wide else {
            return self
                .bad(&table.kind.span(), "a gateway says which node is at its wide end: wide = \"…\"".to_owned());
        };
        let wide_node = self.number(wide.get_ref(), &wide.span())?;
        let neighbours: Vec<usize> = self.topology.links_of(number).collect();
        let is_linked = neighbours.iter().any(|link| self.topology.links[*link].ends.contains(&wide_node));
        if neighbours.len() != 2 || !is_linked {
            let count = neighbours.len();
            return self.bad(
                &wide.span(),
                format!("a gateway has two links, one of them to `{}`; this one has {count}", wide.get_ref()),
            );
        }
        let usual = Gateway::new(role, wide_node);
        Ok(Kind::Gateway(Gateway {
            reassemble: table.reassemble.unwrap_or(usual.reassemble),
            join: table.join.unwrap_or(usual.join),
            coalesce: usual.coalesce.filter(|_| table.coalesce != Some(false)),
            ..usual
        }))
    }

    fn tree(&mut self, tree: &TreeTable) -> Result<(), BadTopology> {
        let fanout = self.count(&tree.fanout, 1..=100)?;
        let depth = self.count(&tree.depth, 1..=10)?;
        let router = self.router(&tree.router)?;
        let mut level = vec![self.number(tree.root.get_ref(), &tree.root.span())?];
        for step in 1..=depth {
            let kind = if step == depth { Kind::Host { dont_fragment: false } } else { Kind::Router(router) };
            let mut below = Vec::new();
            for parent in level {
                for _ in 0..fanout {
                    let name = format!("{}{}", tree.names, self.topology.nodes.len());
                    let child = self.add(&name, &tree.root.span(), kind.clone())?;
                    self.join([parent, child], &tree.mtu, [&tree.shape, &None])?;
                    below.push(child);
                }
            }
            level = below;
        }
        Ok(())
    }

    fn mesh(&mut self, mesh: &MeshTable) -> Result<(), BadTopology> {
        let count = self.count(&mesh.count, 1..=1_000)?;
        let router = self.router(&mesh.router)?;
        let mut dice = Dice::new(mesh.seed);
        let mut members = Vec::new();
        for number in 0..count {
            let member = self.add(&format!("{}{number}", mesh.names), &mesh.count.span(), Kind::Router(router))?;
            if !members.is_empty() {
                let other = dice.one_of(&members);
                self.join([other, member], &mesh.mtu, [&mesh.shape, &None])?;
            }
            members.push(member);
        }
        for _ in 0..mesh.extra {
            let ends = [dice.one_of(&members), dice.one_of(&members)];
            if ends[0] != ends[1] {
                self.join(ends, &mesh.mtu, [&mesh.shape, &None])?;
            }
        }
        Ok(())
    }

    fn join(
        &mut self,
        ends: [usize; 2],
        mtu: &Spanned<i64>,
        [shape, back]: [&Option<Spanned<String>>; 2],
    ) -> Result<(), BadTopology> {
        let Ok(mtu) =
            u16::try_from(*mtu.get_ref()).map_err(drop).and_then(|mtu| if mtu < 68 { Err(()) } else { Ok(mtu) })
        else {
            return self
                .bad(&mtu.span(), format!("an MTU lies between 68 and 65535, this one is {}", mtu.get_ref()));
        };
        let number = self.topology.links.len() as u64;
        let there = self.shape(shape)?;
        self.topology.link(ends, mtu, Shape { seed: there.seed ^ number << 8, ..there });
        if back.is_some() {
            let back = self.shape(back)?;
            self.topology.links[number as usize].shapes[1] = Shape { seed: back.seed ^ number << 8 ^ BACK, ..back };
        }
        Ok(())
    }

    fn shape(&self, shape: &Option<Spanned<String>>) -> Result<Shape, BadTopology> {
        match shape {
            None => Ok(Shape::default()),
            Some(shape) => shape.get_ref().parse().or_else(|bad| self.bad(&shape.span(), format!("{bad}"))),
        }
    }

    fn router(&self, word: &Option<Spanned<String>>) -> Result<Router, BadTopology> {
        let Some(word) = word else { return Ok(Router::Fragments) };
        match router(word.get_ref()) {
            Some(router) => Ok(router),
            None => self.bad(&word.span(), format!("`{}` is no kind of router", word.get_ref())),
        }
    }

    fn count(&self, number: &Spanned<i64>, bounds: core::ops::RangeInclusive<i64>) -> Result<usize, BadTopology> {
        if bounds.contains(number.get_ref()) {
            return Ok(*number.get_ref() as usize);
        }
        let (least, most) = bounds.into_inner();
        self.bad(&number.span(), format!("it lies between {least} and {most}, this one is {}", number.get_ref()))
    }

    fn bad<T>(&self, span: &Range<usize>, what: String) -> Result<T, BadTopology> {
        Err(bad_at(self.text, span, what))
    }
}

fn router(word: &str) -> Option<Router> {
    let routers = [Router::Fragments, Router::Refuses, Router::Silent, Router::JoinsByHop, Router::JoinsGracefully];
    routers.into_iter().find(|router| Role::from(*router).name() == word)
}

fn bad_at(text: &str, span: &Range<usize>, what: String) -> BadTopology {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let key = whole.split_once('=').map_or("", |(key, _)| key).trim().to_owned();
    BadTopology { line, key, what }
}

impl fmt::Display for BadTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadTopology { line, key, what } = self;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        write!(f, "line {line}: {key}{what}")
    }
}

impl core::error::Error for BadTopology {}

/// What tells the seed of one direction from that of the other.
const BACK: u64 = 0x5EED_BAC0;
/// Nodes of a topology, at most: their numbers are in addresses.
const NODE_COUNT_MAX: usize = 60_000;
