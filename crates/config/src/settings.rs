//! The configuration as types, with the names that a file uses for their values.

use crate::problem::Problems;
use crate::renamed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use engine::{Exempt, FragmentPolicy, GatewayRole, Holding, Mode, Prefix, Prefixes, Toggle};
use packet::Split;
use std::path::PathBuf;

/// The configuration of a live gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// The gateway's role.
    pub role: Role,
    /// The configuration's name: the file's name without its extension.
    pub name: String,
    /// Number of worker threads.
    pub workers: usize,
    /// The source addresses of ICMP errors, one for IPv4 and one for IPv6; `None`: the interface's own.
    pub icmp_source: [Option<IpAddr>; 2],
    /// The own addresses of the wide side's and the narrow side's interface. They are read from the system, not
    /// from the file.
    pub own_addresses: OwnAddresses,
    /// Path of the control socket.
    pub control: PathBuf,
    /// The address at which the metrics can be fetched; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// The user that the process becomes once it has its ports; `None`: the same user.
    pub user: Option<String>,
    /// Stages that are bypassed at the start.
    pub bypass: Vec<Stage>,
    /// The treatment of packets while no worker runs.
    pub fail: Fail,
    /// The workers' scheduling priority against other programs.
    pub priority: Priority,
    /// The wide side.
    pub wide: SideConfig,
    /// The narrow side.
    pub narrow: SideConfig,
    /// Limits of memory and of remembered state.
    pub limits: LimitsConfig,
    /// The treatment of the MSS that hosts announce.
    pub mss: MssConfig,
    /// The destinations of a wide interface.
    pub wide_interface: WideInterfaceConfig,
    /// Warnings: settings that are valid but probably not meant.
    pub warnings: Problems,
}

/// The global IPv4 and IPv6 address of the wide side's and of the narrow side's interface, where it has one.
pub type OwnAddresses = [[Option<IpAddr>; 2]; 2];

/// The treatment of packets while no worker runs: one hangs, or none has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fail {
    /// Packets wait for the next worker.
    #[default]
    Closed,
    /// Packets pass unchanged if they fit the other side's MTU.
    Open,
}

impl Fail {
    pub(crate) const NAMES: [(&'static str, Fail); 2] = [("closed", Fail::Closed), ("open", Fail::Open)];
}

/// The workers' scheduling priority against other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Other programs wait for the workers, as they do for the kernel's own forwarding. The default of a router and
    /// a border.
    High,
    /// Workers and other programs share the processor. The default of a wide interface, whose host runs the
    /// programs.
    Fair,
}

impl Priority {
    pub(crate) const NAMES: [(&'static str, Priority); 2] = [("high", Priority::High), ("fair", Priority::Fair)];
}

/// The gateway's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A wide interface of the host: it reassembles for its host and fragments on its behalf.
    WideInterface,
    /// A router: packets grow only by stages that the file names.
    Router,
    /// A gateway between two packet sizes.
    Border,
}

/// A stage that can be bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reassembles datagrams.
    Reassemble,
    /// Merges fragments in order.
    Merge,
    /// Coalesces TCP segments.
    Coalesce,
    /// Splits TCP packets into segments.
    Segment,
    /// Fragments packets of any protocol.
    Fragment,
    /// Raises the MSS that hosts announce.
    Mss,
    /// Offloads flows to the kernel whose GSO packets need only another segment size.
    FlowOffload,
}

/// One side: its port, and the treatment of packets that leave by it.
#[derive(Clone, Debug)]
pub struct SideConfig {
    /// The port: `tap:NAME`, `packet:INTERFACE` or `xdp:INTERFACE`. Toward the host of a wide interface it is
    /// `egress:INTERFACE`, which no file can set.
    pub port: String,
    /// MTU: the longest IP packet that leaves, in bytes.
    pub mtu: u16,
    /// The mode of coalescing TCP segments.
    pub coalesce: Option<Mode>,
    /// The fragment policy.
    pub fragment_policy: FragmentPolicy,
    /// The fragment policies for some destinations.
    pub fragment_policy_for: Vec<(Prefix, FragmentPolicy)>,
    /// Whether TCP packets that exceed the MTU are split into segments.
    pub segment: Toggle,
    /// Whether packets that exceed the MTU are fragmented.
    pub fragment: Toggle,
    /// The treatment of UDP and ICMP datagrams with DF that exceed the MTU.
    pub df: DontFragment,
    /// How long segments are held for the next one of their flow.
    pub hold: Holding,
    /// Time-out of incomplete datagrams; `None`: the role's default.
    pub timeout: Option<Duration>,
    /// How a payload is shared out among packets when it is split.
    pub split: Split,
    /// Whether the offloads of the kernel and the network card are used.
    pub offloads: Toggle,
    /// Whether GRO is switched on at the `packet:` interface while the gateway runs.
    pub gro: Toggle,
    /// Flows that are never held.
    pub exempt: Vec<Exempt>,
}

/// The treatment of UDP and ICMP datagrams with DF that exceed the MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// They are dropped, and their senders receive ICMP errors.
    #[default]
    Refuse,
    /// IPv4 datagrams are fragmented, with IP IDs that the gateway assigns.
    Fragment,
}

/// Limits of memory and of remembered state, for each worker and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Memory for fragments, and the same amount for segments, in bytes.
    pub memory: usize,
    /// Number of flows whose MSS is remembered.
    pub flows: usize,
    /// Lifetime of a datagram in the network: no IPv4 ID is reused sooner.
    pub datagram_lifetime: Duration,
}

/// The treatment of the MSS that hosts announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssConfig {
    /// When it is raised.
    pub raise: Raise,
    /// Longest IP packet toward a host whose MSS is unknown, in bytes.
    pub safe: u16,
}

/// When the MSS that hosts announce is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// Never.
    Never,
    /// If both directions of the connection pass.
    BothWays,
    /// In every SYN.
    Always,
}

/// The destinations of a wide interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideInterfaceConfig {
    /// Destinations whose routes become wide; empty: all routes of the narrow interface.
    pub prefixes: Vec<Prefix>,
}

impl Config {
    /// The source addresses, IPv4 and IPv6, of ICMP errors that leave by the wide end (0) or the narrow one (1).
    /// The first that exists is used:
    ///
    /// - the configured address,
    /// - the interface's own,
    /// - the other interface's own,
    /// - one that no host has.
    pub fn answers_at(&self, end: usize) -> [IpAddr; 2] {
        let own = &self.own_addresses;
        core::array::from_fn(|version| {
            let found =
                own.get(end).and_then(|of| of[version]).or_else(|| own.get(1 - end).and_then(|of| of[version]));
            self.icmp_source[version].or(found).unwrap_or(NOBODYS[version])
        })
    }

    /// Whether the kernel forwards and delivers packets, and passes the gateway only those that change size.
    /// Otherwise the gateway is a bump in the wire between two ports. It is one as a border, and as the network
    /// card of a guest behind a TAP.
    pub fn is_beside_kernel(&self) -> bool {
        match self.role {
            Role::Border => false,
            Role::Router => true,
            Role::WideInterface => !self.wide.port.starts_with("tap:"),
        }
    }
}

impl SideConfig {
    /// The fragment policies by destination.
    pub fn policies(&self) -> Prefixes<FragmentPolicy> {
        self.fragment_policy_for
            .iter()
            .fold(Prefixes::new(self.fragment_policy), |all, (prefix, policy)| all.with(*prefix, *policy))
    }

    /// Whether fragments to any destination follow this policy.
    pub fn uses_policy(&self, policy: FragmentPolicy) -> bool {
        self.fragment_policy == policy || self.fragment_policy_for.iter().any(|(_, other)| *other == policy)
    }
}

impl Role {
    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        named(&Role::NAMES, self)
    }

    /// The engine's name for it.
    pub fn gateway_role(self) -> GatewayRole {
        match self {
            Role::WideInterface => GatewayRole::WideInterface,
            Role::Router => GatewayRole::Router,
            Role::Border => GatewayRole::Border,
        }
    }

    /// The names in a configuration.
    pub const NAMES: [(&str, Role); 3] =
        [("wide-interface", Role::WideInterface), ("router", Role::Router), ("border", Role::Border)];
}

impl Stage {
    /// The stage of this name; names of version 0.1 are accepted too.
    pub fn named(name: &str) -> Option<Stage> {
        let name = renamed::stage(name);
        Stage::NAMES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage)
    }

    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        named(&Stage::NAMES, self)
    }

    /// The names in a configuration.
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

/// Addresses that no host has: the IPv4 dummy address (RFC 7600) and a link-local IPv6 address.
pub const NOBODYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
