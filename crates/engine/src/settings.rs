//! Settings of a gateway -> its stages.
//!
//! Configurations, command lines, simulator scenes and tests all fill in [`GatewaySettings`], which starts with the
//! defaults of a role. One constructor builds the stages from it. Names and help texts of options are left to the
//! callers.

use crate::coalescing::Coalescer;
use crate::connections::Connections;
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
use crate::side::{Aggregation, Side};
use crate::sizing::{Checksums, Role, SegmentSize, Sizing};
use crate::toward::Toward;
use core::net::IpAddr;
use core::time::Duration;
use packet::{Pool, Split};

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The settings of each direction, by the side that its packets leave by. A border has two: toward the narrow
    /// side, then toward the wide one.
    pub sides: Vec<SideSettings>,
    /// How the MSS of SYNs is rewritten. `None`: it is not.
    pub border: Option<Border>,
    /// Maximum number of connections that a border remembers.
    pub flow_count: usize,
}

/// The settings for packets that leave by one side.
#[derive(Clone, Debug)]
pub struct SideSettings {
    /// Longest packet that leaves, in bytes, including the IP header.
    pub mtu: u16,
    /// Whose packets they are: it decides whether DF is respected and IDs are kept.
    pub position: Position,
    /// Memory limit in bytes, once for fragments and once for TCP segments.
    pub memory: usize,
    /// Fragment policy, by destination.
    pub policies: Prefixes<FragmentPolicy>,
    /// Reassembly time-out. `None`: 30 s for IPv4, 60 s for IPv6.
    pub fragment_timeout: Option<Duration>,
    /// Treatment of incomplete datagrams at their time-out.
    pub late: Late,
    /// How long a fragment waits for the next one where fragments are merged in order.
    pub merge_timeout: Duration,
    /// Treatment of a fragment that finds no memory there.
    pub join_full: Full,
    /// When payloads are received directly at their predicted place (header split).
    pub placement: PlacementMode,
    /// How TCP segments are coalesced. `None`: they are not.
    pub coalesce: Option<Mode>,
    /// How long segments wait for the next one of their flow.
    pub hold: Holding,
    /// Whether UDP datagrams are coalesced too. Only for ports that carry the segment size beside the packet.
    pub coalesces_udp: bool,
    /// Flows whose segments never wait.
    pub exempt: Vec<Exempt>,
    /// Whether TCP packets that are too long are segmented.
    pub segment: Toggle,
    /// Whether packets that are too long are fragmented.
    pub fragment: Toggle,
    /// How a payload is divided among fragments or segments.
    pub split: Split,
    /// Segment size of outgoing GSO packets: first where segments are coalesced, second where they are not.
    pub segment_size: [SegmentSize; 2],
    /// Whether this side or the port completes partial checksums.
    pub checksums: Checksums,
    /// Whether UDP and ICMP datagrams of IPv4 with DF are fragmented too, under IP IDs issued here.
    pub fragments_df: bool,
    /// An IP ID is not issued again within this time.
    pub id_lifetime: Duration,
    /// Size limit for TCP packets of unknown flows, in bytes, including the IP header.
    pub unknown_len_max: u16,
    /// Source addresses of ICMP errors about its packets, one of each IP version. `None`: no errors are sent.
    pub icmp_source: Option<[IpAddr; 2]>,
    /// Stages that are switched off although they are configured.
    pub left_out: Vec<SideStage>,
}

/// The position of a gateway in the network; it decides the defaults of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// On a host, in front of its narrow link.
    WideInterface,
    /// On a router, beside its kernel.
    Router,
    /// Between a network of wide packets and one of narrow packets.
    Border,
}

/// Whose packets leave by a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The host's own packets: they are fragmented whatever DF says, under IP IDs issued here.
    Source,
    /// Packets of other hosts: those that must not be fragmented are dropped, and their senders get an ICMP error.
    Transit,
    /// Packets of a kernel that forwards or delivers them: the kernel fragments or drops.
    Kernel,
}

/// How long segments wait for the next one of their flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Until the port has no more packets.
    Burst,
    /// As long as the flow's own packet interval suggests.
    Adaptive,
    /// This long.
    Fixed(Duration),
}

/// A stage that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideStage {
    /// Reassemble datagrams.
    Reassemble,
    /// Merge fragments on the way.
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
    /// The key of choices that are visible outside: IP IDs, and the jitter of ICMP errors.
    pub seed: Secret,
    /// The key of hash tables.
    pub table_key: Secret,
}

impl Secrets {
    /// The same key for both.
    pub fn both(secret: Secret) -> Secrets {
        Secrets { seed: secret, table_key: secret }
    }
}

impl GatewaySettings {
    /// A gateway of one direction.
    pub fn one(side: SideSettings) -> GatewaySettings {
        GatewaySettings { sides: vec![side], border: None, flow_count: 0 }
    }

    /// Both directions, toward the narrow side and toward the wide one, with the role's defaults for links of these
    /// MTUs, in bytes.
    pub fn usual(stand: GatewayRole, wide_mtu: u16, narrow_mtu: u16) -> GatewaySettings {
        let sides = [(Toward::Narrow, narrow_mtu), (Toward::Wide, wide_mtu)];
        let sides = sides.map(|(toward, mtu)| SideSettings::usual(stand, toward, mtu)).into();
        let border = (stand == GatewayRole::Border).then(|| Border::usual(wide_mtu, narrow_mtu));
        GatewaySettings { sides, border, flow_count: FLOW_COUNT }
    }

    /// Checks the number of directions.
    ///
    /// # Panics
    /// If a border does not have two directions, or a gateway with more than two coalesces.
    pub(crate) fn check_directions(&self) {
        assert!(self.border.is_none() || self.sides.len() == 2, "a border has two directions");
        let coalesces = self.sides.iter().any(|side| side.coalesce.is_some());
        assert!(!coalesces || self.sides.len() <= 2, "a connection has two directions");
    }

    /// The connection table.
    pub(crate) fn connections(&self, secrets: Secrets) -> Connections {
        let Secrets { seed, table_key } = secrets;
        let connections = match self.border.clone() {
            Some(border) => Connections::at_border(self.flow_count * FLOW_CHARGE, border, seed),
            None => Connections::new(seed),
        };
        connections.with_table_key(table_key)
    }

    /// The settings of each side, with the limits that follow from the border.
    pub(crate) fn sides(&self) -> impl Iterator<Item = SideSettings> {
        self.sides.iter().enumerate().map(|(direction, side)| {
            let toward = Toward::of_direction(direction);
            let unknown = self.border.as_ref().map(|border| border.unknown_len_max(toward));
            SideSettings { unknown_len_max: unknown.unwrap_or(side.unknown_len_max), ..side.clone() }
        })
    }
}

impl SideSettings {
    /// The defaults of a role for one of its sides, whose link has this MTU, in bytes.
    pub fn usual(stand: GatewayRole, toward: Toward, mtu: u16) -> SideSettings {
        let is_wide = toward == Toward::Wide;
        let is_for_host = stand == GatewayRole::WideInterface && is_wide;
        let position = match stand {
            GatewayRole::WideInterface if is_wide => Position::Kernel,
            GatewayRole::WideInterface => Position::Source,
            GatewayRole::Router => Position::Kernel,
            GatewayRole::Border => Position::Transit,
        };
        let coalesce = (stand == GatewayRole::Border && is_wide).then_some(Mode::Resize);
        SideSettings {
            policies: Prefixes::new(if is_for_host { FragmentPolicy::Reassemble } else { FragmentPolicy::Off }),
            fragment_timeout: (stand != GatewayRole::WideInterface).then_some(TRANSIT_TIMEOUT),
            coalesce,
            // Between two networks segments arrive one by one, as the slower link sends them. The other roles
            // coalesce the segments of a burst.
            hold: if stand == GatewayRole::Border { Holding::Adaptive } else { Holding::Burst },
            segment: if stand == GatewayRole::Router { Toggle::Off } else { Toggle::On },
            ..SideSettings::new(mtu, position)
        }
        .with_segment_size_for(is_for_host)
    }

    /// A side that joins nothing, and divides packets that are too long as far as its position allows.
    pub fn new(mtu: u16, position: Position) -> SideSettings {
        SideSettings {
            mtu,
            position,
            memory: MEMORY,
            policies: Prefixes::new(FragmentPolicy::Off),
            fragment_timeout: None,
            late: Late::Release { mtu },
            merge_timeout: MERGE_TIMEOUT,
            join_full: Full::Pass,
            placement: PlacementMode::default(),
            coalesce: None,
            hold: Holding::Adaptive,
            coalesces_udp: false,
            exempt: Vec::new(),
            segment: Toggle::On,
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

    /// Sets the segment size of GSO packets to the default of the mode of coalescing, toward the own host or toward
    /// others.
    pub fn with_segment_size_for(self, is_own_host: bool) -> SideSettings {
        let gso_packets = [self.coalesce, None].map(|coalesce| SegmentSize::of(coalesce, is_own_host));
        SideSettings { segment_size: gso_packets, ..self }
    }

    /// Whether this policy applies to any destination.
    pub fn uses_policy(&self, join: FragmentPolicy) -> bool {
        self.policies.any(|other| *other == join)
    }

    /// Whether this stage is configured, switched off or not.
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

    /// The stage that the reassembler belongs to. If it only serves [`FragmentPolicy::ReassembleHop`], it is part
    /// of joining.
    pub(crate) fn reassembles_as(&self) -> SideStage {
        let is_for_hops_alone =
            self.uses_policy(FragmentPolicy::ReassembleHop) && !self.uses_policy(FragmentPolicy::Reassemble);
        if is_for_hops_alone { SideStage::Merge } else { SideStage::Reassemble }
    }

    /// Segment size of outgoing GSO packets.
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

    /// The reassembler, if configured.
    pub(crate) fn reassembler(&self, secrets: Secrets) -> Option<Reassembler> {
        let Secrets { seed, table_key } = secrets;
        self.reassembles().then(|| {
            let limits = Limits { bytes: self.memory, timeout: self.fragment_timeout };
            Reassembler::new(limits, self.late, seed).with_table_key(table_key).placement_mode(self.placement)
        })
    }

    /// The stage that merges fragments in order, if configured.
    pub(crate) fn merger(&self, secrets: Secrets) -> Option<FragmentMerger> {
        let Secrets { seed, table_key } = secrets;
        self.merges().then(|| {
            let (bytes, timeout) = (self.memory, self.merge_timeout);
            let limits = MergeLimits { bytes, timeout, full: self.join_full, runs: RunsBy::Datagram };
            FragmentMerger::new(limits, self.mtu, seed).with_table_key(table_key)
        })
    }

    /// The coalescer, if configured.
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

    /// Whether datagrams are reassembled, and that stage is not switched off.
    pub(crate) fn reassembles(&self) -> bool {
        let policies =
            self.uses_policy(FragmentPolicy::Reassemble) || self.uses_policy(FragmentPolicy::ReassembleHop);
        policies && !self.left_out.contains(&self.reassembles_as())
    }

    /// Whether fragments are merged in order, and that stage is not switched off.
    pub(crate) fn merges(&self) -> bool {
        self.uses_policy(FragmentPolicy::Merge) && !self.left_out.contains(&SideStage::Merge)
    }

    /// The output queue; its buffers come from this pool.
    pub(crate) fn output(&self, pool: Pool, secrets: Secrets) -> Output {
        let answers = self
            .icmp_source
            .map(|sources| IcmpResponder::new(sources, ANSWERS_PER_SECOND, ANSWERS_BURST, secrets.seed));
        Output::new(pool, answers)
    }
}

impl Side {
    /// The configured stages of this direction of a gateway.
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
            sizing: Sizing {
                mtu: settings.mtu,
                role,
                unknown_len_max: settings.unknown_len_max,
                split: settings.split,
                segment: settings.switch(SideStage::Segment),
                fragment: settings.switch(SideStage::Fragment),
                gso_packets: settings.segment_size(),
                checksums: settings.checksums,
                df_cut: settings.fragments_df.then(|| identifiers(LIFETIME)),
            },
        }
    }
}

/// Default memory limit, in bytes: once for fragments, once for TCP segments.
pub const MEMORY: usize = 64 << 20;
/// Default maximum number of connections that a border remembers.
pub const FLOW_COUNT: usize = 1 << 16;
/// Default reassembly time-out on the way.
pub const TRANSIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Default time-out of merging: how long a fragment waits for the next one (rel:G18).
pub const MERGE_TIMEOUT: Duration = Duration::from_millis(10);
/// Longest wait of a run that is otherwise released when its port has no more packets. It is for ports that always
/// have more.
pub const BURST_MAX: Duration = Duration::from_millis(1);
