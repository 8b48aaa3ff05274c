//! A scene file (TOML) -> topology, flows and changes, or an error with line and key.
//!
//! Scenes describe a simulation by hand. Random simulations are left to `swarm.rs`.
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
//!
//! [[flow]]
//! from = "far"
//! to = "near"
//! kind = "tcp"
//! bytes = 1000000
//! "#;
//! let scene: wideload_sim::Scene = text.parse().unwrap();
//! let outcome = wideload_sim::Simulation::new(&scene).run();
//! assert_eq!((outcome.connections, outcome.broken), (1, None));
//! ```

use crate::flow::{Kind as FlowKind, Plan, Sizes, Talk};
use crate::injected_bug::InjectedBug;
use crate::link::{self, LinkShape};
use crate::rng::Rng;
use crate::simulation::{Change, To};
use crate::tcp::Settings;
use crate::tcp::settings::{Algorithm, PathChoice, Probing, SlowStartExit};
use crate::topology::{BACK, Gateway, GatewayRole, Kind, Link, Role, Router, Topology};
use core::fmt;
use core::ops::{Range, RangeInclusive};
use core::str::FromStr;
use core::time::Duration;
use engine::{Hold, SegmentPolicy};
use serde::Deserialize;
use std::collections::HashMap;
use toml::Spanned;

/// All inputs of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Nodes and links of the network.
    pub topology: Topology,
    /// The planned traffic.
    pub flows: Vec<Plan>,
    /// Changes to links during the run.
    pub changes: Vec<Change>,
    /// The bug injected into the gateways; `None` = none.
    pub bug: Option<InjectedBug>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether all stored data is recounted after each event, which is slow.
    pub is_thorough: bool,
}

/// An error in a scene file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScene {
    /// Number of the line, from 1.
    pub line: usize,
    /// The key with the error; empty if the error concerns the entire table.
    pub key: String,
    /// A sentence that describes the error.
    pub what: String,
}

/// The TOML layout of a scene file.
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
    #[serde(default)]
    flow: Vec<Spanned<FlowTable>>,
    #[serde(default)]
    change: Vec<Spanned<ChangeTable>>,
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
    // `join` is the name of version 0.1.
    #[serde(alias = "join")]
    merge: Option<bool>,
    coalesce: Option<bool>,
    hold: Option<Spanned<String>>,
    #[serde(rename = "segment-policy")]
    segment_policy: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    ends: Spanned<[String; 2]>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
    back: Option<Spanned<String>>,
}

/// A chain of nodes, in which consecutive nodes are linked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainTable {
    nodes: Spanned<Vec<String>>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
}

/// A tree of routers with a fixed number of children each. The leaves are hosts.
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

/// A mesh of routers. Each router is linked with an earlier router, and with random others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshTable {
    names: String,
    count: Spanned<i64>,
    extra: Option<Spanned<i64>>,
    #[serde(default)]
    seed: u64,
    router: Option<Spanned<String>>,
    mtu: Spanned<i64>,
    shape: Option<Spanned<String>>,
}

/// The traffic from one host to another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowTable {
    from: Spanned<String>,
    to: Spanned<String>,
    kind: Spanned<String>,
    #[serde(default)]
    ipv6: bool,
    start: Option<Spanned<String>>,
    bytes: Option<Spanned<i64>>,
    congestion: Option<Spanned<String>>,
    probing: Option<Spanned<bool>>,
    messages: Option<Spanned<i64>>,
    len: Option<Spanned<i64>>,
    gap: Option<Spanned<String>>,
}

/// A change to a link while packets are in flight.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTable {
    at: Spanned<String>,
    link: Spanned<[String; 2]>,
    carrier: Option<Spanned<bool>>,
    mtu: Option<Spanned<i64>>,
}

impl FromStr for Scene {
    type Err = BadScene;

    fn from_str(text: &str) -> Result<Scene, BadScene> {
        let file: File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            bad_at(text, &span, error.message().to_owned())
        })?;
        Reader { text, topology: Topology::default(), numbers: HashMap::new() }.read(file)
    }
}

/// The state of the conversion from file to scene.
struct Reader<'a> {
    text: &'a str,
    topology: Topology,
    numbers: HashMap<String, usize>,
}

impl Reader<'_> {
    fn read(mut self, file: File) -> Result<Scene, BadScene> {
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
            if chain.nodes.get_ref().len() < 2 {
                return self.bad(&chain.nodes.span(), "a chain has at least two nodes".to_owned());
            }
            for pair in chain.nodes.get_ref().windows(2) {
                let [one, other] = [&pair[0], &pair[1]].map(|name| self.number(name, &chain.nodes.span()));
                self.join([one?, other?], &chain.mtu, [&chain.shape, &None])?;
            }
        }
        for link in &file.link {
            let [one, other] = link.ends.get_ref().each_ref().map(|name| self.number(name, &link.ends.span()));
            let ends = [one?, other?];
            if ends[0] == ends[1] {
                return self.bad(&link.ends.span(), "a link connects two different nodes".to_owned());
            }
            self.join(ends, &link.mtu, [&link.shape, &link.back])?;
        }
        let mut counts = vec![0; self.topology.nodes.len()];
        self.topology.links.iter().flat_map(|link| link.ends).for_each(|end| counts[end] += 1);
        for (node, count) in self.topology.nodes.iter().zip(counts).skip(file.node.len()) {
            if matches!(node.kind, Kind::Host { .. }) && count != 1 {
                let what = format!("the host `{}` has {count} links; a host has one link", node.name);
                return self.bad(&(0..0), what);
            }
        }
        for (number, node) in file.node.iter().enumerate() {
            self.topology.nodes[number].kind = self.kind(number, node)?;
        }
        if let Some(flow) = file.flow.get(FLOW_COUNT_MAX) {
            return self.bad(&flow.span(), format!("there are more than {FLOW_COUNT_MAX} flows; remove some"));
        }
        let flows = file.flow.iter().map(|flow| self.flow(flow)).collect::<Result<_, _>>()?;
        let changes = file.change.iter().map(|change| self.change(change)).collect::<Result<_, _>>()?;
        Ok(Scene { topology: self.topology, flows, changes, ..Scene::default() })
    }

    fn add(&mut self, name: &str, span: &Range<usize>, kind: Kind) -> Result<usize, BadScene> {
        if self.topology.nodes.len() == NODE_COUNT_MAX {
            return self.bad(span, format!("there are more than {NODE_COUNT_MAX} nodes; remove some"));
        }
        let number = self.topology.node(name, kind);
        match self.numbers.insert(name.to_owned(), number) {
            None => Ok(number),
            Some(_) => self.bad(span, format!("there are two nodes `{name}`; rename one")),
        }
    }

    fn number(&self, name: &str, span: &Range<usize>) -> Result<usize, BadScene> {
        match self.numbers.get(name) {
            Some(number) => Ok(*number),
            None => self.bad(span, format!("there is no node `{name}`; add it, or use the name of another node")),
        }
    }

    fn kind(&self, number: usize, node: &Spanned<NodeTable>) -> Result<Kind, BadScene> {
        let table = node.get_ref();
        let word = table.kind.get_ref().as_str();
        let is_gateway = word != "host" && router(word).is_none();
        let has_switches = [table.reassemble, table.merge, table.coalesce].iter().any(Option::is_some);
        let has_words = [&table.wide, &table.hold, &table.segment_policy].iter().any(|word| word.is_some());
        if !is_gateway && (has_switches || has_words) {
            let what = "only gateways have wide, hold, segment-policy, reassemble, merge and coalesce; remove them";
            return self.bad(&table.kind.span(), what.to_owned());
        }
        if word != "host" && table.dont_fragment && Role::ALL.iter().any(|role| role.name() == word) {
            return self.bad(&table.kind.span(), "only hosts have dont-fragment; remove it".to_owned());
        }
        if word == "host" {
            return match self.topology.links_of(number).count() {
                1 => Ok(Kind::Host { dont_fragment: table.dont_fragment }),
                count => self.bad(&table.name.span(), format!("a host has one link, this one has {count}")),
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
                    format!("unknown kind of node `{word}`; the kinds are host, {}", names.join(", ")),
                );
            }
        };
        let Some(wide) = &table.wide else {
            return self
                .bad(&table.kind.span(), "a gateway needs the node at its wide end: wide = \"…\"".to_owned());
        };
        let wide_node = self.number(wide.get_ref(), &wide.span())?;
        if wide_node == number {
            return self.bad(&wide.span(), "the node at a gateway's wide end must be another node".to_owned());
        }
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
        let hold = match &table.hold {
            Some(hold) if hold.get_ref() == "adaptive" => Some(Hold::Adaptive),
            Some(hold) => Some(Hold::Fixed(self.stretch_of("hold", hold, HOLD_MAX)?)),
            None => usual.hold,
        };
        let segments = match &table.segment_policy {
            Some(policy) => {
                let word = policy.get_ref().as_str();
                let found = SegmentPolicy::NAMES.iter().find(|(name, _)| *name == word);
                let Some((_, segments)) = found.filter(|_| role == GatewayRole::WideInterface) else {
                    let names = SegmentPolicy::NAMES.map(|(name, _)| name).join(", ");
                    let what =
                        format!("wide interfaces have a segment-policy, one of {names}; correct or remove it");
                    return self.bad(&policy.span(), what);
                };
                *segments
            }
            None => usual.segments,
        };
        Ok(Kind::Gateway(Gateway {
            segments,
            reassemble: table.reassemble.unwrap_or(usual.reassemble),
            merge: table.merge.unwrap_or(usual.merge),
            coalesce: usual.coalesce.filter(|_| table.coalesce != Some(false)),
            hold,
            ..usual
        }))
    }

    fn tree(&mut self, tree: &TreeTable) -> Result<(), BadScene> {
        let fanout = self.count(&tree.fanout, 1..=100)?;
        let depth = self.count(&tree.depth, 1..=10)?;
        let router = self.router(&tree.router)?;
        let mut level = vec![self.number(tree.root.get_ref(), &tree.root.span())?];
        let first = self.topology.nodes.len();
        for step in 1..=depth {
            let kind = if step == depth { Kind::Host { dont_fragment: false } } else { Kind::Router(router) };
            let mut below = Vec::new();
            for parent in level {
                for _ in 0..fanout {
                    let name = format!("{}{}", tree.names, self.topology.nodes.len() - first);
                    let child = self.add(&name, &tree.root.span(), kind.clone())?;
                    self.join([parent, child], &tree.mtu, [&tree.shape, &None])?;
                    below.push(child);
                }
            }
            level = below;
        }
        Ok(())
    }

    fn mesh(&mut self, mesh: &MeshTable) -> Result<(), BadScene> {
        let count = self.count(&mesh.count, 1..=1_000)?;
        let router = self.router(&mesh.router)?;
        let mut dice = Rng::new(mesh.seed);
        let mut members = Vec::new();
        for number in 0..count {
            let member = self.add(&format!("{}{number}", mesh.names), &mesh.count.span(), Kind::Router(router))?;
            if !members.is_empty() {
                let other = dice.one_of(&members);
                self.join([other, member], &mesh.mtu, [&mesh.shape, &None])?;
            }
            members.push(member);
        }
        for _ in 0..self.number_of(&mesh.extra, 0..=EXTRA_MAX, 0)? {
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
    ) -> Result<(), BadScene> {
        let mtu = self.mtu(mtu)?;
        let number = self.topology.links.len() as u64;
        let there = self.shape(shape)?;
        self.topology.link(ends, mtu, LinkShape { seed: there.seed ^ number << 8, ..there });
        if back.is_some() {
            let back = self.shape(back)?;
            self.topology.links[number as usize].shapes[1] =
                LinkShape { seed: back.seed ^ number << 8 ^ BACK, ..back };
        }
        Ok(())
    }

    fn flow(&self, flow: &Spanned<FlowTable>) -> Result<Plan, BadScene> {
        let table = flow.get_ref();
        let [from, to] = [self.host(&table.from)?, self.host(&table.to)?];
        if from == to {
            return self.bad(&table.to.span(), "a flow needs two different hosts".to_owned());
        }
        let kind = match table.kind.get_ref().as_str() {
            "tcp" => FlowKind::Tcp,
            "udp" => FlowKind::Datagrams,
            word => {
                return self
                    .bad(&table.kind.span(), format!("unknown kind of flow `{word}`; the kinds are tcp and udp"));
            }
        };
        let (is_tcp, spans) =
            (kind == FlowKind::Tcp, [&table.messages, &table.len].map(|number| number.as_ref().map(Spanned::span)));
        let strange = match is_tcp {
            true => spans.into_iter().flatten().chain(table.gap.as_ref().map(Spanned::span)).next(),
            false => [
                &table.bytes.as_ref().map(Spanned::span),
                &table.congestion.as_ref().map(Spanned::span),
                &table.probing.as_ref().map(Spanned::span),
            ]
            .into_iter()
            .flatten()
            .next()
            .cloned(),
        };
        if let Some(span) = strange {
            let what = if is_tcp {
                "tcp takes only bytes, congestion and probing"
            } else {
                "udp takes only messages, len and gap"
            };
            return self.bad(&span, format!("{what}; remove this key"));
        }
        let (count, len) = match is_tcp {
            true => (1, self.number_of(&table.bytes, 1..=BYTES_MAX, BYTES)?),
            false => (
                self.number_of(&table.messages, 1..=MESSAGES_MAX, MESSAGES)?,
                self.number_of(&table.len, LEN_MIN..=self.message_len_max(from, table.ipv6), LEN)?,
            ),
        };
        let end = self.end(table)?;
        Ok(Plan {
            kind,
            from,
            to,
            is_v6: table.ipv6,
            sizes: Sizes::Fixed(len as u32),
            count: count as u64,
            burst: 1,
            gap: self.stretch("gap", &table.gap, GAP)?,
            start: self.stretch("start", &table.start, Duration::ZERO)?,
            disorder: 0,
            has_timestamps: true,
            acks_every: 0,
            talk: Talk { ends: [end.clone(), end], may_end_early: true, ..Talk::default() },
        })
    }

    /// The maximum message length of a host, in bytes. A host that does not fragment is limited by its link's MTU.
    /// Other hosts are limited by the maximum packet length.
    fn message_len_max(&self, host: usize, is_v6: bool) -> i64 {
        let most = LEN_MAX[usize::from(is_v6)];
        match (&self.topology.nodes[host].kind, self.topology.links_of(host).next()) {
            (Kind::Host { dont_fragment: true }, Some(link)) => {
                most.min(i64::from(self.topology.links[link].mtu) - (IP_LEN_MAX - most))
            }
            _ => most,
        }
    }

    /// The settings of a connection's ends: those of Linux, with the changes from the file.
    fn end(&self, table: &FlowTable) -> Result<Settings, BadScene> {
        let usual = Settings::linux();
        let (algorithm, slow_start_exit) = match &table.congestion {
            None => (usual.algorithm, usual.slow_start_exit),
            Some(word) => match word.get_ref().as_str() {
                "cubic" => (Algorithm::Cubic, SlowStartExit::HyStart),
                "reno" => (Algorithm::Reno, SlowStartExit::Loss),
                other => {
                    return self.bad(&word.span(), format!("unknown algorithm `{other}`; use cubic or reno"));
                }
            },
        };
        let is_probing = table.probing.as_ref().is_some_and(|probing| *probing.get_ref());
        let probing = if is_probing { Probing::AfterBlackHole } else { Probing::Off };
        Ok(Settings { algorithm, slow_start_exit, path: PathChoice { probing, ..usual.path }, ..usual })
    }

    fn change(&self, change: &Spanned<ChangeTable>) -> Result<Change, BadScene> {
        let table = change.get_ref();
        let [one, other] = table.link.get_ref().each_ref().map(|name| self.number(name, &table.link.span()));
        let (one, other) = (one?, other?);
        let is_it = |link: &Link| link.ends == [one, other] || link.ends == [other, one];
        let Some(link) = self.topology.links.iter().position(is_it) else {
            let [one, other] = table.link.get_ref();
            return self.bad(&table.link.span(), format!("there is no link from `{one}` to `{other}`"));
        };
        let to = match (&table.carrier, &table.mtu) {
            (Some(carrier), None) => {
                if *carrier.get_ref() {
                    To::Up
                } else {
                    To::Down
                }
            }
            (None, Some(mtu)) => To::Mtu(self.mtu(mtu)?),
            _ => {
                return self.bad(
                    &table.at.span(),
                    "a change needs carrier = true, carrier = false or mtu, such as mtu = 1400".to_owned(),
                );
            }
        };
        Ok(Change { at: self.stretch_of("at", &table.at, STRETCH_MAX)?, link, to })
    }

    fn host(&self, name: &Spanned<String>) -> Result<usize, BadScene> {
        let number = self.number(name.get_ref(), &name.span())?;
        match self.topology.nodes[number].kind {
            Kind::Host { .. } => Ok(number),
            _ => self.bad(&name.span(), format!("`{}` is not a host; only hosts send and receive", name.get_ref())),
        }
    }

    fn mtu(&self, mtu: &Spanned<i64>) -> Result<u16, BadScene> {
        match u16::try_from(*mtu.get_ref()) {
            Ok(mtu) if mtu >= MTU_MIN => Ok(mtu),
            _ => {
                self.bad(&mtu.span(), format!("the MTU must be between {MTU_MIN} and 65535, not {}", mtu.get_ref()))
            }
        }
    }

    fn number_of(
        &self,
        number: &Option<Spanned<i64>>,
        bounds: RangeInclusive<i64>,
        usual: i64,
    ) -> Result<i64, BadScene> {
        number.as_ref().map_or(Ok(usual), |number| self.within(number, bounds))
    }

    fn stretch(&self, key: &str, text: &Option<Spanned<String>>, usual: Duration) -> Result<Duration, BadScene> {
        text.as_ref().map_or(Ok(usual), |text| self.stretch_of(key, text, STRETCH_MAX))
    }

    fn stretch_of(&self, key: &str, text: &Spanned<String>, most: Duration) -> Result<Duration, BadScene> {
        match link::stretch(key, text.get_ref()) {
            Ok(stretch) if stretch <= most => Ok(stretch),
            Ok(_) => self.bad(&text.span(), format!("the value is above {} s", most.as_secs())),
            Err(bad) => self.bad(&text.span(), bad.to_string()),
        }
    }

    fn shape(&self, shape: &Option<Spanned<String>>) -> Result<LinkShape, BadScene> {
        match shape {
            None => Ok(LinkShape::default()),
            Some(shape) => shape.get_ref().parse().or_else(|bad| self.bad(&shape.span(), format!("{bad}"))),
        }
    }

    fn router(&self, word: &Option<Spanned<String>>) -> Result<Router, BadScene> {
        let Some(word) = word else { return Ok(Router::Fragments) };
        match router(word.get_ref()) {
            Some(router) => Ok(router),
            None => self.bad(&word.span(), format!("unknown kind of router `{}`", word.get_ref())),
        }
    }

    fn count(&self, number: &Spanned<i64>, bounds: RangeInclusive<i64>) -> Result<usize, BadScene> {
        self.within(number, bounds).map(|number| number as usize)
    }

    fn within(&self, number: &Spanned<i64>, bounds: RangeInclusive<i64>) -> Result<i64, BadScene> {
        if bounds.contains(number.get_ref()) {
            return Ok(*number.get_ref());
        }
        let (least, most) = bounds.into_inner();
        self.bad(&number.span(), format!("the value must be between {least} and {most}, not {}", number.get_ref()))
    }

    fn bad<T>(&self, span: &Range<usize>, what: String) -> Result<T, BadScene> {
        Err(bad_at(self.text, span, what))
    }
}

fn router(word: &str) -> Option<Router> {
    let routers = [Router::Fragments, Router::Refuses, Router::Silent, Router::ReassemblesByHop, Router::Merges];
    // Names of version 0.1.
    let word = match word {
        "hop-joining-router" => "hop-reassembling-router",
        "joining-router" => "merging-router",
        _ => word,
    };
    routers.into_iter().find(|router| Role::from(*router).name() == word)
}

fn bad_at(text: &str, span: &Range<usize>, what: String) -> BadScene {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let key = whole.split_once('=').map_or("", |(key, _)| key).trim().to_owned();
    BadScene { line, key, what }
}

impl fmt::Display for BadScene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadScene { line, key, what } = self;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        write!(f, "line {line}: {key}{what}")
    }
}

impl core::error::Error for BadScene {}

/// Maximum number of nodes in a topology, because addresses contain node numbers.
const NODE_COUNT_MAX: usize = 60_000;
/// Maximum number of flows in a scene, because ports contain flow numbers.
const FLOW_COUNT_MAX: usize = 16_000;
/// Minimum MTU of an IPv4 link, in bytes (RFC 791 section 3.2).
const MTU_MIN: u16 = 68;
/// Default number of bytes of a connection.
const BYTES: i64 = 1_000_000;
const BYTES_MAX: i64 = 4_000_000_000;
/// Default number of messages of a flow.
const MESSAGES: i64 = 1_000;
const MESSAGES_MAX: i64 = 100_000_000;
const LEN: i64 = 1_000;
/// Maximum length of a packet, in bytes. The longest message fills such a packet, except for the IP and UDP
/// headers.
const IP_LEN_MAX: i64 = 65_535;
const LEN_MIN: i64 = 8;
const LEN_MAX: [i64; 2] = [65_507, 65_487];
const GAP: Duration = Duration::from_millis(1);
/// Maximum number of links in a mesh beyond its tree.
const EXTRA_MAX: i64 = 10_000;
/// Maximum hold time of a gateway, slightly below one minute.
const HOLD_MAX: Duration = Duration::from_secs(59);
const STRETCH_MAX: Duration = Duration::from_secs(3_600);
