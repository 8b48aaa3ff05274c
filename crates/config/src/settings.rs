//! The types of a configuration's values, and the names of these values in a file.
//!
//! The daemon sets up a gateway from these types. The module `read` builds them from a file.

use crate::problem::Problems;
use crate::renamed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use engine::{
    AckPolicy, Exempt, FragmentPolicy, GatewayRole, Holding, Mode, Prefix, Prefixes, SegmentPolicy, Toggle,
};
use packet::Split;
use std::path::PathBuf;

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// The gateway's role.
    pub role: Role,
    /// The name of the configuration: the file's name without the extension.
    pub name: String,
    /// The number of worker threads.
    pub workers: usize,
    /// The source addresses of ICMP errors: IPv4, then IPv6. `None` stands for the interface's own address.
    pub icmp_source: [Option<IpAddr>; 2],
    /// The own addresses of the wide side's interface, then of the narrow side's interface. The daemon reads these
    /// addresses from the system, not from the file.
    pub own_addresses: OwnAddresses,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Address and TCP port at which the metrics can be fetched; `None` if metrics are not served.
    pub metrics: Option<SocketAddr>,
    /// The user to which the process changes after it has opened its ports; `None` = no change.
    pub user: Option<String>,
    /// Stages that are bypassed from the start.
    pub bypass: Vec<Stage>,
    /// The treatment of packets while no worker runs.
    pub fail: Fail,
    /// The workers' scheduling priority against other programs.
    pub priority: Priority,
    /// The order in which a worker processes the packets of different flows.
    pub queueing: Queueing,
    /// The treatment of acknowledgements at a border.
    pub acks: AckPolicy,
    /// The wide side.
    pub wide: SideConfig,
    /// The narrow side.
    pub narrow: SideConfig,
    /// Limits of memory and of the state of flows and IPv4 IDs.
    pub limits: LimitsConfig,
    /// The treatment of the MSS that hosts announce.
    pub mss: MssConfig,
    /// The settings of a wide interface only.
    pub wide_interface: WideInterfaceConfig,
    /// Warnings about settings that are valid but probably not meant.
    pub warnings: Problems,
}

/// The global addresses of the wide side's interface, then of the narrow side's interface. Each of the two elements
/// contains an IPv4 and an IPv6 address; `None` if there is no such address.
pub type OwnAddresses = [[Option<IpAddr>; 2]; 2];

/// The treatment of packets while no worker runs, because all workers hang or have not started yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fail {
    /// Packets wait until a worker runs again.
    #[default]
    Closed,
    /// The kernel forwards packets unchanged if they fit the other side's MTU.
    Open,
}

impl Fail {
    pub(crate) const NAMES: [(&'static str, Fail); 2] = [("closed", Fail::Closed), ("open", Fail::Open)];
}

/// The workers' scheduling priority against other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Workers run before other programs, as the kernel's own forwarding does. This is the default of a router and
    /// a border.
    High,
    /// Workers and other programs share the CPU equally. This is the default of a wide interface, whose host also
    /// runs other programs.
    Fair,
}

impl Priority {
    pub(crate) const NAMES: [(&'static str, Priority); 2] = [("high", Priority::High), ("fair", Priority::Fair)];
}

/// The order in which a worker processes the packets of different flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// In order of arrival.
    #[default]
    Fifo,
    /// Sparse flows and control segments first, busy flows round robin.
    Fair,
}

impl Queueing {
    pub(crate) const NAMES: [(&'static str, Queueing); 2] = [("fifo", Queueing::Fifo), ("fair", Queueing::Fair)];
}

/// The gateway's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A wide interface reassembles packets for its own host, and segments or fragments the packets that the host
    /// sends.
    WideInterface,
    /// A router is on a host whose kernel forwards packets. The gateway changes packets only in stages that the
    /// file switches on.
    Router,
    /// A border joins a wide network and a narrow network like a bridge.
    Border,
}

/// A processing stage that can be bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reassembly of datagrams from their fragments.
    Reassemble,
    /// Merging of fragments that arrive in order.
    Merge,
    /// Coalescing of TCP segments.
    Coalesce,
    /// Segmentation of TCP packets that exceed the MTU.
    Segment,
    /// Fragmentation of packets that exceed the MTU.
    Fragment,
    /// Raising of the MSS that hosts announce.
    Mss,
    /// Flow offload: the kernel forwards flows that only need another segment size.
    FlowOffload,
}

/// The configuration of one side: the port, and the treatment of packets that the gateway sends by this port.
#[derive(Clone, Debug)]
pub struct SideConfig {
    /// The port: `tap:NAME`, `packet:INTERFACE` or `xdp:INTERFACE`. `egress:INTERFACE` is the port of a wide
    /// interface toward its own host. A file cannot set this port.
    pub port: String,
    /// MTU: the longest IP packet that is sent by this side, in bytes.
    pub mtu: u16,
    /// The mode of coalescing TCP segments; `None` if segments are not coalesced.
    pub coalesce: Option<Mode>,
    /// The fragment policy for all destinations without a policy of their own.
    pub fragment_policy: FragmentPolicy,
    /// The fragment policies for some destinations; the longest prefix applies.
    pub fragment_policy_for: Vec<(Prefix, FragmentPolicy)>,
    /// Whether TCP packets that exceed the MTU are split into segments.
    pub segment: Toggle,
    /// The treatment of TCP segments that exceed the MTU, for all destinations without a policy of their own.
    pub segment_policy: SegmentPolicy,
    /// The treatment of TCP segments that exceed the MTU for some destinations; the longest prefix applies.
    pub segment_policy_for: Vec<(Prefix, SegmentPolicy)>,
    /// Whether destinations get a route MTU for the segments that their segment policy allows.
    pub route_mtu: Toggle,
    /// Whether packets that exceed the MTU are fragmented.
    pub fragment: Toggle,
    /// The treatment of UDP and ICMP datagrams with DF that exceed the MTU.
    pub df: DontFragment,
    /// How long a segment is held for the next segment of its flow. At most [`HOLD_MAX`](engine::HOLD_MAX) if read from a
    /// file.
    pub hold: Holding,
    /// Time-out of incomplete datagrams; `None`: the role's default.
    pub timeout: Option<Duration>,
    /// How a payload is divided among packets when it is segmented or fragmented.
    pub split: Split,
    /// Whether packets may use the offloads of the kernel and the NIC.
    pub offloads: Toggle,
    /// Whether GRO is switched on at the `packet:` interface while the gateway runs.
    pub gro: Toggle,
    /// Flows whose packets are never held.
    pub exempt: Vec<Exempt>,
}

/// The treatment of UDP and ICMP datagrams with DF that exceed the MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// The datagrams are dropped, and their senders receive ICMP errors.
    #[default]
    Refuse,
    /// IPv4 datagrams are fragmented. The gateway assigns their IP IDs.
    Fragment,
}

/// Limits of memory, flows and IPv4 IDs. Memory and flows are limited for each worker and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Memory limit in bytes, once for fragments and once for TCP segments.
    pub memory: usize,
    /// Maximum number of flows whose MSS is kept.
    pub flows: usize,
    /// The maximum lifetime of a datagram in the network. No IPv4 ID is reused before this time has passed.
    pub datagram_lifetime: Duration,
    /// Memory limit for data that is acknowledged early, in bytes. 0 unless `acks` is [`AckPolicy::Early`].
    pub ack_store: usize,
}

/// The treatment of the MSS that hosts announce in their SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssConfig {
    /// The connections whose MSS is raised.
    pub raise: Raise,
    /// Maximum length of an IP packet toward a host whose MSS is unknown, in bytes.
    pub safe: u16,
}

/// The connections for which an announced MSS is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// No connection.
    Never,
    /// Connections whose packets pass the gateway in both directions.
    BothWays,
    /// All connections: the MSS is raised in every SYN.
    Always,
}

/// The settings of a wide interface only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideInterfaceConfig {
    /// Destinations whose routes get the wide MTU; empty = all routes of the narrow interface.
    pub prefixes: Vec<Prefix>,
}

impl Config {
    /// Returns the source addresses (IPv4, then IPv6) of ICMP errors that the gateway sends by side `end`: 0 is the
    /// wide side, 1 the narrow side. Each address is the first of these that exists:
    ///
    /// - the configured address,
    /// - the own address of that side's interface,
    /// - the own address of the other side's interface,
    /// - an address that no host has.
    pub fn answers_at(&self, end: usize) -> [IpAddr; 2] {
        let own = &self.own_addresses;
        core::array::from_fn(|version| {
            let found =
                own.get(end).and_then(|of| of[version]).or_else(|| own.get(1 - end).and_then(|of| of[version]));
            self.icmp_source[version].or(found).unwrap_or(DUMMY_ADDRESSES[version])
        })
    }

    /// Whether the kernel forwards and delivers packets, and the gateway only receives packets that need another
    /// size. If false, the gateway forwards all packets between two ports itself: a border, or a wide interface
    /// with a TAP device.
    pub fn is_beside_kernel(&self) -> bool {
        match self.role {
            Role::Border => false,
            Role::Router => true,
            Role::WideInterface => !self.wide.port.starts_with("tap:"),
        }
    }
}

impl SideConfig {
    /// Returns the fragment policies by destination.
    pub fn policies(&self) -> Prefixes<FragmentPolicy> {
        self.fragment_policy_for
            .iter()
            .fold(Prefixes::new(self.fragment_policy), |all, (prefix, policy)| all.with(*prefix, *policy))
    }

    /// Returns the treatment of TCP segments that exceed the MTU, by destination.
    pub fn segment_policies(&self) -> Prefixes<SegmentPolicy> {
        self.segment_policy_for
            .iter()
            .fold(Prefixes::new(self.segment_policy), |all, (prefix, policy)| all.with(*prefix, *policy))
    }

    /// Whether this policy applies to the fragments for at least one destination.
    pub fn uses_policy(&self, policy: FragmentPolicy) -> bool {
        self.fragment_policy == policy || self.fragment_policy_for.iter().any(|(_, other)| *other == policy)
    }
}

impl Role {
    /// Returns the role's name in a configuration.
    pub fn name(self) -> &'static str {
        named(&Role::NAMES, self)
    }

    /// Returns this role as the engine's type.
    pub fn gateway_role(self) -> GatewayRole {
        match self {
            Role::WideInterface => GatewayRole::WideInterface,
            Role::Router => GatewayRole::Router,
            Role::Border => GatewayRole::Border,
        }
    }

    /// Each role's name in a configuration.
    pub const NAMES: [(&str, Role); 3] =
        [("wide-interface", Role::WideInterface), ("router", Role::Router), ("border", Role::Border)];
}

impl Stage {
    /// Returns the stage of this name. Names of version 0.1 are accepted too.
    pub fn named(name: &str) -> Option<Stage> {
        let name = renamed::stage(name);
        Stage::NAMES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage)
    }

    /// Returns the stage's name in a configuration.
    pub fn name(self) -> &'static str {
        named(&Stage::NAMES, self)
    }

    /// Each stage's name in a configuration.
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

/// Source addresses that no host has: the IPv4 dummy address (RFC 7600) and a link-local IPv6 address.
pub const DUMMY_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
