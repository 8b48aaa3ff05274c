//! What is asked of a gateway in, the stages that do it out.
//!
//! Configurations, command lines, scenes of the simulator and tests fill in the same description, which begins with
//! what is usual for a role. One constructor makes stages of it.

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

/// What is asked of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// What is done in each direction, by the side that its packets leave by. At a border there are two: toward the
    /// narrow side, and toward the wide one.
    pub sides: Vec<SideSettings>,
    /// What becomes of the MSS that hosts announce; none where they keep it.
    pub border: Option<Border>,
    /// Connections that a border remembers, at most.
    pub flow_count: usize,
}

/// What is done to packets that leave by one side.
#[derive(Clone, Debug)]
pub struct SideSettings {
    /// Longest packet that leaves, IP header counted, in bytes.
    pub mtu: u16,
    /// Whose packets they are.
    pub position: Position,
    /// Memory for fragments, and as much for segments, in bytes.
    pub memory: usize,
    /// How fragments are joined, by their destination.
    pub joins: Prefixes<FragmentPolicy>,
    /// How long a datagram's other fragments are waited for; none: 30 s for IPv4, 60 s for IPv6.
    pub fragment_patience: Option<Duration>,
    /// What becomes of datagrams whose fragments did not all come.
    pub late: Late,
    /// How long a fragment waits for the next one where they are joined gracefully.
    pub join_patience: Duration,
    /// What becomes of a fragment for which there is no room there.
    pub join_full: Full,
    /// When payloads are received where they are predicted to belong.
    pub placement: PlacementMode,
    /// How TCP segments are joined; none: they are not.
    pub coalesce: Option<Mode>,
    /// How long segments wait for the next of their flow.
    pub hold: Holding,
    /// Are UDP datagrams joined too? Only for ports that carry the segment size beside the packet.
    pub coalesces_udp: bool,
    /// Flows whose segments never wait.
    pub exempt: Vec<Exempt>,
    /// Is TCP that is too long cut into segments?
    pub segment: Toggle,
    /// Is what is too long cut into fragments?
    pub fragment: Toggle,
    /// How a cut shares a payload out.
    pub fill: Split,
    /// How long the segments of GSO packets leave where segments are coalesced, and where they are not.
    pub segment_size: [SegmentSize; 2],
    /// Who finishes half-filled checksums.
    pub checksums: Checksums,
    /// Are UDP and ICMP datagrams of IPv4 with DF cut too, under identifications of ours?
    pub cuts_df: bool,
    /// No identification is given out again sooner.
    pub id_lifetime: Duration,
    /// Longest TCP packet whose receiver is not known, IP header counted, in bytes.
    pub unknown_len_max: u16,
    /// Where ICMP errors about its packets come from, one address of each version; none: no errors are sent.
    pub answer_from: Option<[IpAddr; 2]>,
    /// Stages that are left out, though they are described.
    pub left_out: Vec<SideStage>,
}

/// Where a gateway stands; what is usual for its sides follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// On a host, before its narrow link.
    WideInterface,
    /// Beside the kernel of a router.
    Router,
    /// Between a network of wide packets and one of narrow ones.
    Border,
}

/// Whose packets leave by a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The host's own: they are cut whatever DF says, under identifications of ours.
    Source,
    /// Other hosts': what must not be cut is refused, and its sender is told.
    Transit,
    /// Those of a kernel that forwards or delivers them: it cuts or refuses.
    Kernel,
}

/// How long segments wait for the next of their flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Until the port has nothing more to give.
    Burst,
    /// As long as the flow's own pace says.
    Adaptive,
    /// As long.
    Fixed(Duration),
}

/// A stage that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideStage {
    /// Fragments become whole datagrams.
    Reassemble,
    /// Fragments are joined on the way.
    Join,
    /// Segments are joined.
    Coalesce,
    /// TCP is cut into segments.
    Segment,
    /// Anything is cut into fragments.
    Fragment,
}

/// What all choices are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// Those that show outside: identifications, and how answers are spread.
    pub seed: Secret,
    /// Places in tables.
    pub table_key: Secret,
}

impl Secrets {
    /// One for both.
    pub fn both(secret: Secret) -> Secrets {
        Secrets { seed: secret, table_key: secret }
    }
}

impl GatewaySettings {
    /// One direction.
    pub fn one(side: SideSettings) -> GatewaySettings {
        GatewaySettings { sides: vec![side], border: None, flow_count: 0 }
    }

    /// Two directions, toward the narrow side and toward the wide one, with what is usual there for links of these
    /// MTUs.
    pub fn usual(stand: GatewayRole, wide_mtu: u16, narrow_mtu: u16) -> GatewaySettings {
        let sides = [(Toward::Narrow, narrow_mtu), (Toward::Wide, wide_mtu)];
        let sides = sides.map(|(toward, mtu)| SideSettings::usual(stand, toward, mtu)).into();
        let border = (stand == GatewayRole::Border).then(|| Border::usual(wide_mtu, narrow_mtu));
        GatewaySettings { sides, border, flow_count: FLOW_COUNT }
    }

    /// Checks that there are as many directions as such a gateway can have.
    ///
    /// # Panics
    /// A border has two directions; none coalesces that has more.
    pub(crate) fn check_directions(&self) {
        assert!(self.border.is_none() || self.sides.len() == 2, "a border has two directions");
        let coalesces = self.sides.iter().any(|side| side.coalesce.is_some());
        assert!(!coalesces || self.sides.len() <= 2, "a connection has two directions");
    }

    /// What remembers connections.
    pub(crate) fn connections(&self, secrets: Secrets) -> Connections {
        let Secrets { seed, table_key } = secrets;
        let connections = match self.border.clone() {
            Some(border) => Connections::at_border(self.flow_count * FLOW_CHARGE, border, seed),
            None => Connections::new(seed),
        };
        connections.with_table_key(table_key)
    }

    /// The description of each side, with what follows from the border.
    pub(crate) fn sides(&self) -> impl Iterator<Item = SideSettings> {
        self.sides.iter().enumerate().map(|(direction, side)| {
            let toward = Toward::of_direction(direction);
            let unknown = self.border.as_ref().map(|border| border.unknown_len_max(toward));
            SideSettings { unknown_len_max: unknown.unwrap_or(side.unknown_len_max), ..side.clone() }
        })
    }
}

impl SideSettings {
    /// What is usual where a gateway stands so, toward one of its sides, whose link has this MTU.
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
            joins: Prefixes::new(if is_for_host { FragmentPolicy::Reassemble } else { FragmentPolicy::Off }),
            fragment_patience: (stand != GatewayRole::WideInterface).then_some(TRANSIT_PATIENCE),
            coalesce,
            // Between two networks segments come one by one, as the slower link lets them; the other roles join
            // what came in a burst.
            hold: if stand == GatewayRole::Border { Holding::Adaptive } else { Holding::Burst },
            segment: if stand == GatewayRole::Router { Toggle::Off } else { Toggle::On },
            ..SideSettings::new(mtu, position)
        }
        .with_segment_size_for(is_for_host)
    }

    /// One that joins nothing, and cuts what is too long, as far as its position lets it.
    pub fn new(mtu: u16, position: Position) -> SideSettings {
        SideSettings {
            mtu,
            position,
            memory: MEMORY,
            joins: Prefixes::new(FragmentPolicy::Off),
            fragment_patience: None,
            late: Late::Release { mtu },
            join_patience: JOIN_PATIENCE,
            join_full: Full::Pass,
            placement: PlacementMode::default(),
            coalesce: None,
            hold: Holding::Adaptive,
            coalesces_udp: false,
            exempt: Vec::new(),
            segment: Toggle::On,
            fragment: Toggle::On,
            fill: Split::Max,
            segment_size: [SegmentSize::Maximise; 2],
            checksums: Checksums::Complete,
            cuts_df: false,
            id_lifetime: LIFETIME,
            unknown_len_max: u16::MAX,
            answer_from: None,
            left_out: Vec::new(),
        }
    }

    /// The same, whose GSO packets leave as its mode of coalescing has it, toward its own host or any other.
    pub fn with_segment_size_for(self, is_own_host: bool) -> SideSettings {
        let gso_packets = [self.coalesce, None].map(|coalesce| SegmentSize::of(coalesce, is_own_host));
        SideSettings { segment_size: gso_packets, ..self }
    }

    /// Are fragments for any destination joined so?
    pub fn joins_as(&self, join: FragmentPolicy) -> bool {
        self.joins.any(|other| *other == join)
    }

    /// Is this stage described, left out or not?
    pub fn has(&self, stage: SideStage) -> bool {
        let reassembles = self.joins_as(FragmentPolicy::Reassemble) || self.joins_as(FragmentPolicy::ReassembleHop);
        match stage {
            SideStage::Join if self.joins_as(FragmentPolicy::Merge) => true,
            SideStage::Reassemble | SideStage::Join => reassembles && self.reassembles_as() == stage,
            SideStage::Coalesce => self.coalesce.is_some(),
            SideStage::Segment => self.segment == Toggle::On,
            SideStage::Fragment => self.fragment == Toggle::On,
        }
    }

    /// The stage to which the reassembler belongs: where it only serves joining hop by hop, it is part of that.
    pub(crate) fn reassembles_as(&self) -> SideStage {
        let is_for_hops_alone =
            self.joins_as(FragmentPolicy::ReassembleHop) && !self.joins_as(FragmentPolicy::Reassemble);
        if is_for_hops_alone { SideStage::Join } else { SideStage::Reassemble }
    }

    /// How long the segments of GSO packets leave.
    pub(crate) fn segment_size(&self) -> SegmentSize {
        let [coalesced, single] = self.segment_size;
        if self.works(SideStage::Coalesce) { coalesced } else { single }
    }

    /// Is this stage described, and not left out?
    pub(crate) fn works(&self, stage: SideStage) -> bool {
        self.has(stage) && !self.left_out.contains(&stage)
    }

    pub(crate) fn switch(&self, stage: SideStage) -> Toggle {
        if self.works(stage) { Toggle::On } else { Toggle::Off }
    }

    /// What rejoins whole datagrams, where anything does.
    pub(crate) fn reassembler(&self, secrets: Secrets) -> Option<Reassembler> {
        let Secrets { seed, table_key } = secrets;
        self.rejoins().then(|| {
            let limits = Limits { bytes: self.memory, patience: self.fragment_patience };
            Reassembler::new(limits, self.late, seed).with_table_key(table_key).placement_mode(self.placement)
        })
    }

    /// What joins fragments gracefully, where anything does.
    pub(crate) fn joiner(&self, secrets: Secrets) -> Option<FragmentMerger> {
        let Secrets { seed, table_key } = secrets;
        self.joins_gracefully().then(|| {
            let (bytes, patience) = (self.memory, self.join_patience);
            let limits = MergeLimits { bytes, patience, full: self.join_full, runs: RunsBy::Datagram };
            FragmentMerger::new(limits, self.mtu, seed).with_table_key(table_key)
        })
    }

    /// What joins segments, where anything does.
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

    /// Is anything made whole, and that stage not left out?
    pub(crate) fn rejoins(&self) -> bool {
        let joins = self.joins_as(FragmentPolicy::Reassemble) || self.joins_as(FragmentPolicy::ReassembleHop);
        joins && !self.left_out.contains(&self.reassembles_as())
    }

    /// Is anything joined gracefully, and that stage not left out?
    pub(crate) fn joins_gracefully(&self) -> bool {
        self.joins_as(FragmentPolicy::Merge) && !self.left_out.contains(&SideStage::Join)
    }

    /// Where what leaves waits, whose buffers come from this pool.
    pub(crate) fn output(&self, pool: Pool, secrets: Secrets) -> Output {
        let answers = self
            .answer_from
            .map(|sources| IcmpResponder::new(sources, ANSWERS_PER_SECOND, ANSWERS_BURST, secrets.seed));
        Output::new(pool, answers)
    }
}

impl Side {
    /// The stages that are described, in this direction of a gateway.
    pub fn new(settings: &SideSettings, direction: usize, secrets: Secrets) -> Side {
        let identifiers = |lifetime| Identifiers::new(secrets.seed, lifetime);
        let role = match settings.position {
            Position::Source => Role::Source(identifiers(settings.id_lifetime)),
            Position::Transit => Role::Transit,
            Position::Kernel => Role::Helper,
        };
        Side {
            aggregation: Aggregation {
                joins: settings.joins.clone(),
                reassembler: settings.reassembler(secrets),
                joiner: settings.joiner(secrets),
                coalescer: settings.coalescer(direction, secrets),
            },
            sizing: Sizing {
                mtu: settings.mtu,
                role,
                unknown_len_max: settings.unknown_len_max,
                fill: settings.fill,
                segment: settings.switch(SideStage::Segment),
                fragment: settings.switch(SideStage::Fragment),
                gso_packets: settings.segment_size(),
                checksums: settings.checksums,
                df_cut: settings.cuts_df.then(|| identifiers(LIFETIME)),
            },
        }
    }
}

/// Memory for fragments, and as much for segments, where nothing else is said, in bytes.
pub const MEMORY: usize = 64 << 20;
/// Connections that a border remembers, where nothing else is said.
pub const FLOW_COUNT: usize = 1 << 16;
/// How long a datagram that is made whole on the way waits for its fragments.
pub const TRANSIT_PATIENCE: Duration = Duration::from_millis(500);
/// How long joining on the way waits for the next fragment (rel:G18).
pub const JOIN_PATIENCE: Duration = Duration::from_millis(10);
/// Longest wait of a run that is released when its port has nothing more to give: for ports that never come to an
/// end.
pub const BURST_MAX: Duration = Duration::from_millis(1);
