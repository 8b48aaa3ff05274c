//! What a file can say -> types for it: a configuration, with their names as a file writes them.

use crate::problem::Problems;
use crate::renamed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use engine::{Exempt, FragmentPolicy, GatewayRole, Holding, Mode, Prefix, Prefixes, Toggle};
use packet::Split;
use std::path::PathBuf;

/// All that a live gateway is told before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who stands where the packets pass.
    pub role: Role,
    /// The name of it: that of the file, without what follows the last point.
    pub name: String,
    /// Threads that packets are shared out to.
    pub workers: usize,
    /// Where ICMP errors come from: one address of IPv4, one of IPv6; none where the interface's own is to be
    /// taken.
    pub icmp_source: [Option<IpAddr>; 2],
    /// The addresses that the interfaces of the wide side and the narrow one have themselves, as they were found;
    /// a file says nothing of them.
    pub own_addresses: OwnAddresses,
    /// The socket that it is spoken to by.
    pub control: PathBuf,
    /// Where its counters can be fetched; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Whom the process becomes once it has its ports; none: it stays who it is.
    pub user: Option<String>,
    /// Stages that are left out at the start.
    pub bypass: Vec<Stage>,
    /// What becomes of packets while no worker works.
    pub fail: Fail,
    /// Who waits where workers and other programs want a processor.
    pub priority: Priority,
    /// What leaves by the wide side.
    pub wide: SideConfig,
    /// What leaves by the narrow side.
    pub narrow: SideConfig,
    /// How much is held and remembered.
    pub limits: LimitsConfig,
    /// What becomes of the MSS that hosts announce.
    pub mss: MssConfig,
    /// What becomes wide.
    pub wide_interface: WideInterfaceConfig,
    /// What is right and hardly meant.
    pub warnings: Problems,
}

/// A global address of IPv4 and one of IPv6 that an interface has, where it has one: of the wide side, and of the
/// narrow one.
pub type OwnAddresses = [[Option<IpAddr>; 2]; 2];

/// What becomes of packets while no worker works: one hangs, or none has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fail {
    /// They wait for the next worker.
    #[default]
    Closed,
    /// They pass as they came, those that the other side takes.
    Open,
}

impl Fail {
    pub(crate) const NAMES: [(&'static str, Fail); 2] = [("closed", Fail::Closed), ("open", Fail::Open)];
}

/// Who waits where workers and other programs want a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The others, as they do for what the kernel forwards: usual for who forwards.
    High,
    /// Each in turn: usual on a host whose programs the packets are for.
    Fair,
}

impl Priority {
    pub(crate) const NAMES: [(&'static str, Priority); 2] = [("high", Priority::High), ("fair", Priority::Fair)];
}

/// Who stands where the packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The host's own card: it reassembles for its host and cuts in its name.
    WideInterface,
    /// A router: nothing grows but by a stage that is named.
    Router,
    /// A gateway between two packet sizes.
    Border,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Fragments become whole datagrams.
    Reassemble,
    /// Fragments are joined on the way.
    Merge,
    /// TCP segments are joined.
    Coalesce,
    /// TCP is cut into segments.
    Segment,
    /// Anything is cut into fragments.
    Fragment,
    /// The MSS that hosts announce is raised.
    Mss,
    /// Flows whose trains need only segments of another length are lent to the kernel.
    FlowOffload,
}

/// What leaves by one side.
#[derive(Clone, Debug)]
pub struct SideConfig {
    /// Where packets come from and go: `tap:NAME`, `packet:INTERFACE` or `xdp:INTERFACE`; toward the host of a wide
    /// interface `egress:INTERFACE`, which stands in no file.
    pub port: String,
    /// Longest packet that leaves, IP header counted, in bytes.
    pub mtu: u16,
    /// How TCP segments are joined.
    pub coalesce: Option<Mode>,
    /// How fragments are joined.
    pub fragment_policy: FragmentPolicy,
    /// How they are joined for some destinations.
    pub fragment_policy_for: Vec<(Prefix, FragmentPolicy)>,
    /// Is TCP that is too long cut into segments?
    pub segment: Toggle,
    /// Is what is too long cut into fragments?
    pub fragment: Toggle,
    /// What becomes of UDP and ICMP datagrams with DF that are too long.
    pub df: DontFragment,
    /// How long segments are held for the next of their flow.
    pub hold: Holding,
    /// How long a datagram's other fragments are waited for; none: as is usual in its role.
    pub timeout: Option<Duration>,
    /// How a cut shares a payload out.
    pub split: Split,
    /// Is what the kernel or the card can do left to it?
    pub offloads: Toggle,
    /// Is GRO switched on at its `packet:` interface while the gateway runs?
    pub gro: Toggle,
    /// Flows that are never held.
    pub exempt: Vec<Exempt>,
}

/// What becomes of UDP and ICMP datagrams with DF that are too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// They are refused, and their senders told.
    #[default]
    Refuse,
    /// Those of IPv4 are cut, with identifications of ours.
    Fragment,
}

/// How much is held and remembered, by each worker and in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Memory for fragments, and as much for segments, in bytes.
    pub memory: usize,
    /// Flows whose MSS is remembered.
    pub flows: usize,
    /// How long a datagram may be on its way: no identifier is used again sooner.
    pub datagram_lifetime: Duration,
}

/// What becomes of the MSS that hosts announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssConfig {
    /// When it is raised.
    pub raise: Raise,
    /// Longest packet toward a host whose MSS is not known, IP header counted, in bytes.
    pub safe: u16,
}

/// When the MSS that hosts announce is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// Never.
    Never,
    /// Where both directions of a connection pass.
    BothWays,
    /// Wherever an announcement passes.
    Always,
}

/// What becomes wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideInterfaceConfig {
    /// Destinations whose routes become wide; none named: all of the narrow interface's.
    pub prefixes: Vec<Prefix>,
}

impl Config {
    /// Where ICMP errors come from that leave by the wide end (0) or the narrow one (1), one address of each
    /// version: the one that is named, the interface's own, that of the other interface, or one that no host has.
    pub fn answers_at(&self, end: usize) -> [IpAddr; 2] {
        let own = &self.own_addresses;
        core::array::from_fn(|version| {
            let found =
                own.get(end).and_then(|of| of[version]).or_else(|| own.get(1 - end).and_then(|of| of[version]));
            self.icmp_source[version].or(found).unwrap_or(NOBODYS[version])
        })
    }

    /// Does the kernel forward and deliver, and leave only what is to be joined or cut? Else the gateway is a bump
    /// in the wire between two ports: as a border does, and as the card of a guest behind a TAP.
    pub fn is_beside_kernel(&self) -> bool {
        match self.role {
            Role::Border => false,
            Role::Router => true,
            Role::WideInterface => !self.wide.port.starts_with("tap:"),
        }
    }
}

impl SideConfig {
    /// How fragments are joined, by their destination.
    pub fn policies(&self) -> Prefixes<FragmentPolicy> {
        self.fragment_policy_for
            .iter()
            .fold(Prefixes::new(self.fragment_policy), |all, (prefix, policy)| all.with(*prefix, *policy))
    }

    /// Are fragments for any destination joined so?
    pub fn uses_policy(&self, policy: FragmentPolicy) -> bool {
        self.fragment_policy == policy || self.fragment_policy_for.iter().any(|(_, other)| *other == policy)
    }
}

impl Role {
    /// The name, as it is written in a file.
    pub fn name(self) -> &'static str {
        named(&Role::NAMES, self)
    }

    /// What the engine calls it.
    pub fn stand(self) -> GatewayRole {
        match self {
            Role::WideInterface => GatewayRole::WideInterface,
            Role::Router => GatewayRole::Router,
            Role::Border => GatewayRole::Border,
        }
    }

    /// The names, as they are written in a file.
    pub const NAMES: [(&str, Role); 3] =
        [("wide-interface", Role::WideInterface), ("router", Role::Router), ("border", Role::Border)];
}

impl Stage {
    /// The stage of this name, or of this name in version 0.1.
    pub fn named(name: &str) -> Option<Stage> {
        let name = renamed::stage(name);
        Stage::NAMES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage)
    }

    /// The name, as it is written in a file.
    pub fn name(self) -> &'static str {
        named(&Stage::NAMES, self)
    }

    /// The names, as they are written in a file.
    pub const NAMES: [(&str, Stage); 7] = [
        ("reassemble", Stage::Reassemble),
        ("merge", Stage::Merge),
        ("coalesce", Stage::Coalesce),
        ("segment", Stage::Segment),
        ("fragment", Stage::Fragment),
        ("mss", Stage::Mss),
        ("flow-offload", Stage::FlowOffload),
    ];
}

fn named<T: PartialEq>(names: &[(&'static str, T)], it: T) -> &'static str {
    names.iter().find(|(_, other)| *other == it).map_or("", |(name, _)| name)
}

/// Addresses that no host has: the dummy of IPv4 (RFC 7600), and one of the link.
pub const NOBODYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
