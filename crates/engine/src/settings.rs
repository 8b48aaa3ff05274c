//! Settings of a gateway -> its stages.
//!
//! Configurations, command lines, simulator scenes and tests all fill in [`GatewaySettings`]. Most of them start
//! with the defaults of a role. [`Side::new`] builds the stages of a side. Names and help texts of options are left
//! to the callers.

use crate::coalescing::Coalescer;
use crate::connections::Connections;
use crate::flow_sizing::SegmentPolicy;
use crate::flows::FLOW_CHARGE;
use crate::icmp_error::{ANSWERS_BURST, ANSWERS_PER_SECOND, IcmpResponder};
use crate::ip_id::{Identifiers, LIFETIME};
use crate::keyed_hash::Secret;
use crate::merge::{FragmentMerger, FragmentPolicy, Full, MergeLimits, RunsBy};
use crate::mss::Border;
use crate::output::Output;
use crate::prefixes::Prefixes;
use crate::reassembly::{Late, Limits, PlacementMode, Reassembler};
use crate::rules::{Exempt, Hold, Mode, Rules, Toggle};
use crate::segment_sizing::SegmentSizing;
use crate::side::{Aggregation, Side};
use crate::sizing::{Checksums, Role, SegmentSize, Sizing};
use crate::toward::Toward;
use core::net::IpAddr;
use core::time::Duration;
use packet::{Pool, Split};

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The settings of each direction, by direction number. A border has two directions: 0 toward the narrow side,
    /// 1 toward the wide side.
    pub sides: Vec<SideSettings>,
    /// Rules for the rewriting of the MSS in SYNs. `None`: the MSS is not rewritten.
    pub border: Option<Border>,
    /// Maximum number of connections that a border remembers.
    pub flow_count: usize,
}

/// The settings for packets that are sent to one side.
#[derive(Clone, Debug)]
pub struct SideSettings {
    /// The MTU of the side, in bytes, including the IP header.
    pub mtu: u16,
    /// The origin of the packets: it decides whether DF is respected and IP IDs are kept.
    pub position: Position,
    /// Memory limit in bytes. It applies to fragments and to TCP segments separately.
    pub memory: usize,
    /// Fragment policy, by destination.
    pub policies: Prefixes<FragmentPolicy>,
    /// Reassembly time-out. `None`: 30 s for IPv4, 60 s for IPv6.
    pub fragment_timeout: Option<Duration>,
    /// Treatment of incomplete datagrams at their time-out.
    pub late: Late,
    /// Maximum time from the first fragment of a merged run until the run is sent.
    pub merge_timeout: Duration,
    /// Treatment of a fragment for which the merger has no memory.
    pub merge_full: Full,
    /// The conditions under which payloads are received directly at their predicted place (header split).
    pub placement: PlacementMode,
    /// The coalescing mode of TCP segments. `None`: segments are not coalesced.
    pub coalesce: Option<Mode>,
    /// Maximum wait of a segment for the next segment of its flow.
    pub hold: Holding,
    /// Whether UDP datagrams are coalesced. Only for ports that transmit GSO packets with their segment size.
    pub coalesces_udp: bool,
    /// Flows whose segments are never held.
    pub exempt: Vec<Exempt>,
    /// Whether TCP packets above the MTU are segmented.
    pub segment: Toggle,
    /// The treatment of TCP segments above the MTU, by destination. Only for packets toward a narrow side that is no
    /// border's.
    pub segment_policies: Prefixes<SegmentPolicy>,
    /// The MTU of the host's routes, in bytes. Destinations whose segments must be shorter then get a route MTU of their
    /// own: see [`Gateway::route_mtus`](crate::Gateway::route_mtus). `None`: none get one. Only with
    /// [`SegmentPolicy::Dynamic`].
    pub route_mtu_max: Option<u16>,
    /// Whether packets above the MTU are fragmented.
    pub fragment: Toggle,
    /// Division of a payload among fragments or segments.
    pub split: Split,
    /// Segment size of sent GSO packets: the first value while segments are coalesced, the second while they are
    /// not.
    pub segment_size: [SegmentSize; 2],
    /// Whether this side or the port completes partial checksums.
    pub checksums: Checksums,
    /// Whether IPv4 UDP and ICMP datagrams with DF are fragmented too, with IP IDs issued here.
    pub fragments_df: bool,
    /// Minimum time between two uses of an IP ID.
    pub id_lifetime: Duration,
    /// Size limit for TCP packets of unknown flows, in bytes, including the IP header.
    pub unknown_len_max: u16,
    /// Source addresses of ICMP errors about packets of this side: one IPv4 and one IPv6 address. `None`: no errors
    /// are sent.
    pub icmp_source: Option<[IpAddr; 2]>,
    /// Configured stages that are switched off.
    pub left_out: Vec<SideStage>,
}

/// The position of a gateway in the network. It decides the defaults of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// On a host with a narrow link.
    WideInterface,
    /// On a router whose kernel forwards packets.
    Router,
    /// Between a network with a large MTU and a network with a small MTU.
    Border,
}

/// The origin of the packets that are sent to a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The host's own packets. They are fragmented regardless of DF, with IP IDs issued here.
    Source,
    /// Packets of other hosts. Packets that must not be fragmented are dropped, and their source hosts get an ICMP
    /// error.
    Transit,
    /// Packets for a kernel that forwards or delivers them. If a packet exceeds an MTU, the kernel decides whether
    /// to fragment it or drop it.
    Kernel,
}

/// Maximum wait of a segment for the next segment of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Until the port has no more packets, at most [`BURST_MAX`].
    Burst,
    /// Derived from the average packet interval of the flow.
    Adaptive,
    /// A fixed time. TCP segments are released earlier if they are a large part of their sender's window.
    Fixed(Duration),
}

impl Holding {
    /// Cuts a fixed time above [`HOLD_MAX`].
    pub fn cut(self) -> Holding {
        match self {
            Holding::Fixed(stretch) => Holding::Fixed(stretch.min(HOLD_MAX)),
            Holding::Burst | Holding::Adaptive => self,
        }
    }
}

/// A stage that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideStage {
    /// Reassemble datagrams.
    Reassemble,
    /// Merge fragments in order, without complete reassembly.
    Merge,
    /// Coalesce segments.
    Coalesce,
    /// Segment TCP packets.
    Segment,
    /// Fragment packets.
    Fragment,
}

/// The keys of all pseudo-random choices.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// The key of choices that are visible on the network: IP IDs, and the jitter of ICMP errors.
    pub seed: Secret,
    /// The key of hash tables.
    pub table_key: Secret,
}

impl Secrets {
    /// Uses one key for both purposes.
    pub fn both(secret: Secret) -> Secrets {
        Secrets { seed: secret, table_key: secret }
    }
}

impl GatewaySettings {
    /// Returns the settings of a gateway with one direction.
    pub fn one(side: SideSettings) -> GatewaySettings {
        GatewaySettings { sides: vec![side], border: None, flow_count: FLOW_COUNT }
    }

    /// Returns the defaults of a role for both directions: toward the narrow side, then toward the wide side. The
    /// MTUs of the links are in bytes.
    pub fn usual(role: GatewayRole, wide_mtu: u16, narrow_mtu: u16) -> GatewaySettings {
        let sides = [(Toward::Narrow, narrow_mtu), (Toward::Wide, wide_mtu)];
        let sides = sides.map(|(toward, mtu)| SideSettings::usual(role, toward, mtu)).into();
        let border = (role == GatewayRole::Border).then(|| Border::usual(wide_mtu, narrow_mtu));
        GatewaySettings { sides, border, flow_count: FLOW_COUNT }
    }

    /// Checks the number of directions.
    ///
    /// # Panics
    /// If a border does not have two directions, or if a gateway with more than two directions coalesces.
    pub(crate) fn check_directions(&self) {
        assert!(self.border.is_none() || self.sides.len() == 2, "a border has two directions");
        let coalesces = self.sides.iter().any(|side| side.coalesce.is_some());
        assert!(!coalesces || self.sides.len() <= 2, "a connection has two directions");
    }

    /// Builds the connection table.
    pub(crate) fn connections(&self, secrets: Secrets) -> Connections {
        let Secrets { seed, table_key } = secrets;
        let connections = match self.border.clone() {
            Some(border) => Connections::at_border(self.flow_count * FLOW_CHARGE, border, seed),
            None => Connections::new(seed).with_limit(self.flow_count * FLOW_CHARGE),
        };
        connections.with_table_key(table_key)
    }

    /// Returns the settings of each side. At a border, [`Border`] determines the size limits for unknown flows.
    pub(crate) fn sides(&self) -> impl Iterator<Item = SideSettings> {
        self.sides.iter().enumerate().map(|(direction, side)| {
            let toward = Toward::of_direction(direction);
            let unknown = self.border.as_ref().map(|border| border.unknown_len_max(toward));
            SideSettings { unknown_len_max: unknown.unwrap_or(side.unknown_len_max), ..side.clone() }
        })
    }
}

impl SideSettings {
    /// Returns the defaults of a role for one of its sides. The MTU of the side's link is in bytes.
    pub fn usual(role: GatewayRole, toward: Toward, mtu: u16) -> SideSettings {
        let is_wide = toward == Toward::Wide;
        let is_for_host = role == GatewayRole::WideInterface && is_wide;
        let position = match role {
            GatewayRole::WideInterface if is_wide => Position::Kernel,
            GatewayRole::WideInterface => Position::Source,
            GatewayRole::Router => Position::Kernel,
            GatewayRole::Border => Position::Transit,
        };
        let coalesce = (role == GatewayRole::Border && is_wide).then_some(Mode::Resize);
        SideSettings {
            policies: Prefixes::new(if is_for_host { FragmentPolicy::Reassemble } else { FragmentPolicy::Off }),
            fragment_timeout: (role != GatewayRole::WideInterface).then_some(TRANSIT_TIMEOUT),
            coalesce,
            // At a border, segments arrive one by one at the speed of the slower link. The other roles coalesce the
            // segments of a burst.
            hold: if role == GatewayRole::Border { Holding::Adaptive } else { Holding::Burst },
            segment: if role == GatewayRole::Router { Toggle::Off } else { Toggle::On },
            ..SideSettings::new(mtu, position)
        }
        .with_segment_size_for(is_for_host)
    }

    /// Returns settings without reassembly, merging and coalescing. Packets above the MTU are divided as far as the
    /// position allows.
    pub fn new(mtu: u16, position: Position) -> SideSettings {
        SideSettings {
            mtu,
            position,
            memory: MEMORY,
            policies: Prefixes::new(FragmentPolicy::Off),
            fragment_timeout: None,
            late: Late::Release { mtu },
            merge_timeout: MERGE_TIMEOUT,
            merge_full: Full::Pass,
            placement: PlacementMode::default(),
            coalesce: None,
            hold: Holding::Adaptive,
            coalesces_udp: false,
            exempt: Vec::new(),
            segment: Toggle::On,
            segment_policies: Prefixes::new(SegmentPolicy::Segment),
            route_mtu_max: None,
            fragment: Toggle::On,
            split: Split::Max,
            segment_size: [SegmentSize::Maximise; 2],
            checksums: Checksums::Complete,
            fragments_df: false,
            id_lifetime: LIFETIME,
            unknown_len_max: u16::MAX,
            icmp_source: None,
            left_out: Vec::new(),
        }
    }

    /// Sets the segment size of GSO packets to the default of the coalescing mode. `is_own_host`: the packets are
    /// for this host.
    pub fn with_segment_size_for(self, is_own_host: bool) -> SideSettings {
        let gso_packets = [self.coalesce, None].map(|coalesce| SegmentSize::of(coalesce, is_own_host));
        SideSettings { segment_size: gso_packets, ..self }
    }

    /// Whether this policy applies to at least one destination.
    pub fn uses_policy(&self, policy: FragmentPolicy) -> bool {
        self.policies.any(|other| *other == policy)
    }

    /// Whether this stage is configured, even if it is switched off.
    pub fn has(&self, stage: SideStage) -> bool {
        let reassembles =
            self.uses_policy(FragmentPolicy::Reassemble) || self.uses_policy(FragmentPolicy::ReassembleHop);
        match stage {
            SideStage::Merge if self.uses_policy(FragmentPolicy::Merge) => true,
            SideStage::Reassemble | SideStage::Merge => reassembles && self.reassembles_as() == stage,
            SideStage::Coalesce => self.coalesce.is_some(),
            SideStage::Segment => self.segment == Toggle::On,
            SideStage::Fragment => self.fragment == Toggle::On,
        }
    }

    /// Returns the stage whose switch controls the reassembler. A reassembler that only serves
    /// [`FragmentPolicy::ReassembleHop`] belongs to the merge stage.
    pub(crate) fn reassembles_as(&self) -> SideStage {
        let is_for_hops_alone =
            self.uses_policy(FragmentPolicy::ReassembleHop) && !self.uses_policy(FragmentPolicy::Reassemble);
        if is_for_hops_alone { SideStage::Merge } else { SideStage::Reassemble }
    }

    /// Returns the segment size of sent GSO packets.
    pub(crate) fn segment_size(&self) -> SegmentSize {
        let [coalesced, single] = self.segment_size;
        if self.works(SideStage::Coalesce) { coalesced } else { single }
    }

    /// Whether this stage is configured and not switched off.
    pub(crate) fn works(&self, stage: SideStage) -> bool {
        self.has(stage) && !self.left_out.contains(&stage)
    }

    pub(crate) fn switch(&self, stage: SideStage) -> Toggle {
        if self.works(stage) { Toggle::On } else { Toggle::Off }
    }

    /// Builds the reassembler, if configured.
    pub(crate) fn reassembler(&self, secrets: Secrets) -> Option<Reassembler> {
        let Secrets { seed, table_key } = secrets;
        self.reassembles().then(|| {
            let limits = Limits { bytes: self.memory, timeout: self.fragment_timeout };
            Reassembler::new(limits, self.late, seed).with_table_key(table_key).placement_mode(self.placement)
        })
    }

    /// Builds the stage that merges fragments in order, if configured.
    pub(crate) fn merger(&self, secrets: Secrets) -> Option<FragmentMerger> {
        let Secrets { seed, table_key } = secrets;
        self.merges().then(|| {
            let (bytes, timeout) = (self.memory, self.merge_timeout);
            let limits = MergeLimits { bytes, timeout, full: self.merge_full, runs: RunsBy::Datagram };
            FragmentMerger::new(limits, self.mtu, seed).with_table_key(table_key)
        })
    }

    /// Builds the coalescer, if configured.
    pub(crate) fn coalescer(&self, direction: usize, secrets: Secrets) -> Option<Coalescer> {
        let Secrets { seed, table_key } = secrets;
        let mode = self.coalesce.filter(|_| self.works(SideStage::Coalesce))?;
        let hold = match self.hold {
            Holding::Burst => Hold::Fixed(BURST_MAX),
            Holding::Adaptive => Hold::Adaptive,
            Holding::Fixed(stretch) => Hold::Fixed(stretch),
        };
        let rules = Rules {
            mode,
            hold,
            len_max: self.mtu,
            longer: self.switch(SideStage::Segment),
            udp: self.coalesces_udp,
        };
        let coalescer = Coalescer::new(self.memory, rules, self.exempt.clone(), seed);
        Some(coalescer.in_direction(direction).with_table_key(table_key))
    }

    /// Whether reassembly is configured and not switched off.
    pub(crate) fn reassembles(&self) -> bool {
        let policies =
            self.uses_policy(FragmentPolicy::Reassemble) || self.uses_policy(FragmentPolicy::ReassembleHop);
        policies && !self.left_out.contains(&self.reassembles_as())
    }

    /// Whether merging is configured and not switched off.
    pub(crate) fn merges(&self) -> bool {
        self.uses_policy(FragmentPolicy::Merge) && !self.left_out.contains(&SideStage::Merge)
    }

    /// Builds the output queue, whose buffers come from `pool`.
    pub(crate) fn output(&self, pool: Pool, secrets: Secrets) -> Output {
        let answers = self
            .icmp_source
            .map(|sources| IcmpResponder::new(sources, ANSWERS_PER_SECOND, ANSWERS_BURST, secrets.seed));
        Output::new(pool, answers)
    }
}

impl Side {
    /// Builds the configured stages of one direction of a gateway.
    pub fn new(settings: &SideSettings, direction: usize, secrets: Secrets) -> Side {
        let identifiers = |lifetime| Identifiers::new(secrets.seed, lifetime);
        let role = match settings.position {
            Position::Source => Role::Source(identifiers(settings.id_lifetime)),
            Position::Transit => Role::Transit,
            Position::Kernel => Role::Helper,
        };
        Side {
            aggregation: Aggregation {
                policies: settings.policies.clone(),
                reassembler: settings.reassembler(secrets),
                merger: settings.merger(secrets),
                coalescer: settings.coalescer(direction, secrets),
            },
            segments: SegmentSizing::new(
                settings.segment_policies.clone(),
                settings.exempt.clone(),
                settings.mtu,
                settings.route_mtu_max,
            ),
            sizing: Sizing {
                mtu: settings.mtu,
                role,
                unknown_len_max: settings.unknown_len_max,
                split: settings.split,
                segment: settings.switch(SideStage::Segment),
                fragment: settings.switch(SideStage::Fragment),
                gso_packets: settings.segment_size(),
                checksums: settings.checksums,
                df_identifiers: settings.fragments_df.then(|| identifiers(LIFETIME)),
                cleared_df_identifiers: (settings.position == Position::Transit).then(|| identifiers(LIFETIME)),
            },
        }
    }
}

/// Default memory limit, in bytes. It applies to fragments and to TCP segments separately.
pub const MEMORY: usize = 64 << 20;
/// Default maximum number of connections that a border remembers.
pub const FLOW_COUNT: usize = 1 << 16;
/// Default reassembly time-out of routers and borders.
pub const TRANSIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Default time-out of merging: the maximum time from the first fragment of a run until the run is sent (rel:G18).
pub const MERGE_TIMEOUT: Duration = Duration::from_millis(10);
/// Maximum wait of a run with [`Holding::Burst`]. It takes effect at ports that always have more packets.
pub const BURST_MAX: Duration = Duration::from_millis(1);
/// Longest hold time of a live gateway. A run waits for at most twice as long, which is a quarter of the shortest
/// retransmission time-out in use (200 ms; R126, RFC 6298).
pub const HOLD_MAX: Duration = Duration::from_millis(25);
