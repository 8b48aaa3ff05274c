//! Arguments of `wideload rewrite` -> settings of the job, or a sentence about a contradiction between the
//! arguments.

use super::values::{exempt, hold, seconds, seconds_or_none};
use crate::rewrite::{As, Settings, Stages};
use clap::{Parser, ValueEnum};
use engine::{Exempt, FragmentPolicy, Holding, Limits, Mode, Prefix, Secret, SegmentPolicy, Toggle};
use packet::Split;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// The arguments of `wideload rewrite`.
#[derive(Debug, Parser)]
pub struct Rewrite {
    /// Capture to read: pcap or pcapng, plain, gzip or zstd; `-` is standard input
    pub input: PathBuf,

    /// Capture to write, in the input's format; `.gz` and `.zst` compress it; `-` is standard output
    pub output: PathBuf,

    /// Largest packet to write, IP header included, in bytes: 68 to 65535
    #[arg(long, short, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: u16,

    /// Role to play, which selects the stages [default: host]
    #[arg(long = "as", value_enum, value_name = "ROLE")]
    pub role: Option<Role>,

    /// Source addresses of a router's ICMP errors: one of IPv4, one of IPv6, or both, separated by a comma
    #[arg(long, alias = "answer-from", value_name = "ADDRESS", value_delimiter = ',', default_values = ["192.0.0.8", "fe80::1"])]
    pub icmp_source: Vec<IpAddr>,

    /// Reassemble datagrams; a datagram above the MTU stays whole unless --fragment is given too
    #[arg(long, help_heading = STAGES)]
    pub reassemble: bool,

    /// Merge fragments in order up to the MTU, or reassemble datagrams as the previous hop sent them
    #[arg(long, alias = "join", value_enum, value_name = "POLICY", help_heading = STAGES)]
    pub fragment_policy: Option<Policy>,

    /// Coalesce TCP segments: `reversible` if segmentation must restore every packet, `resize` if the byte stream is enough
    #[arg(long, value_enum, value_name = "MODE", help_heading = STAGES)]
    pub coalesce: Option<Coalescing>,

    /// Segment TCP packets above the MTU
    #[arg(long, help_heading = STAGES)]
    pub segment: bool,

    /// Fragment packets above the MTU
    #[arg(long, help_heading = STAGES)]
    pub fragment: bool,

    /// Stages to disable, separated by commas
    #[arg(long, value_enum, value_name = "STAGE", value_delimiter = ',', help_heading = STAGES)]
    pub off: Vec<Stage>,

    /// Apply the fragment policy to these destinations only, such as 192.0.2.0/24; may be repeated
    #[arg(long, alias = "join-for", value_name = "PREFIX", value_delimiter = ',')]
    pub fragment_policy_for: Vec<Prefix>,

    /// Treatment of TCP segments above the MTU, in the role of a host [default: segment]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub segment_policy: Option<Segments>,

    /// Never hold segments of these latency-sensitive flows, and never send them above the MTU: 192.0.2.0/24, :22 or
    /// 192.0.2.7:22; may be repeated
    #[arg(long, value_name = "FLOW", value_delimiter = ',', value_parser = exempt)]
    pub exempt: Vec<Exempt>,

    /// Longest time a segment waits for the next of its flow, in seconds, at most 10 [default: ten times the flow's mean
    /// interval, 0.00005 to 0.001]
    #[arg(long, value_name = "SECONDS", value_parser = hold, allow_hyphen_values = true)]
    pub hold: Option<Duration>,

    /// Split a payload into nearly equal fragments, so that the last one is never tiny
    #[arg(long)]
    pub even: bool,

    /// Time-out of incomplete datagrams, in seconds [default: as a host 30 for IPv4, 60 for IPv6; as a router 0.5; 0.01
    /// with merge]
    #[arg(long, alias = "patience", value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,

    /// Memory limit in MiB, once for fragments and once for TCP segments
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=96))]
    pub memory: u32,

    /// Do not reuse an IPv4 ID within this many seconds (about 61,000 IDs per host pair); 0 = no limit, for captures
    /// without timestamps
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none, default_value = "2", allow_hyphen_values = true)]
    pub lifetime: Duration,

    /// Seed of the IPv4 IDs: the same seed and input give the same output
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Print no report and no progress
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
}

/// The role that a rewrite plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// A host's wide interface: reassembles, coalesces and segments TCP, fragments the rest, with DF too
    Host,
    /// A router: only the stages that are named; packets that must not be fragmented are answered with an ICMP error in the output
    Router,
    /// A border gateway: coalesces and segments TCP, fragments the rest or answers with an ICMP error
    Border,
}

/// How fragments are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Merge fragments in order, up to the MTU; fragments that do not merge pass unchanged
    #[value(alias = "graceful")]
    Merge,
    /// Reassemble datagrams; those above the MTU are fragmented again
    #[value(alias = "hop")]
    ReassembleHop,
}

/// How TCP segments are coalesced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Coalescing {
    /// Only runs from which segmentation restores every packet, byte for byte
    Reversible,
    /// All runs that keep the byte stream
    Resize,
}

/// How TCP segments above the MTU are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Segments {
    /// As segments that fit the MTU
    Segment,
    /// As they are, in IP fragments
    Fragment,
    /// In at most as many fragments as the flow's loss event rate allows
    Dynamic,
    /// As published for a LAN: longer with each segment, half as long after a time-out
    Lan,
    /// As published for networks with loss: longer more slowly after time-outs
    LanSlow,
    /// As published for a WAN: the next plateau of RFC 1191 after a time-out
    Wan,
}

/// A stage that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Reassembly of datagrams
    Reassemble,
    /// Merging of fragments
    #[value(alias = "join")]
    Merge,
    /// Coalescing of TCP segments
    Coalesce,
    /// Segmentation of TCP packets
    Segment,
    /// Fragmentation
    Fragment,
}

impl Rewrite {
    /// The settings of the job; `drawn` is random.
    ///
    /// # Errors
    /// A contradiction in the arguments, with its remedy.
    pub fn settings(&self, drawn: u128) -> Result<Settings, String> {
        let role = match self.role.unwrap_or(Role::Host) {
            Role::Host => As::Host,
            Role::Router | Role::Border => As::Transit { icmp_source: self.icmp_source()? },
        };
        let stages = self.stages()?;
        if !self.fragment_policy_for.is_empty()
            && stages.reassemble == Toggle::Off
            && stages.fragment_policy.is_none()
        {
            return Err(
                "--fragment-policy-for: no stage handles fragments; add --fragment-policy merge, --fragment-policy reassemble-hop or --reassemble".to_owned()
            );
        }
        let segment_policy = self.segment_policy(role, &stages)?;
        let has_exempt = !self.exempt.is_empty() && segment_policy == SegmentPolicy::Segment;
        if (self.hold.is_some() || has_exempt) && stages.coalesce.is_none() {
            return Err(
                "--hold and --exempt: no stage holds segments; add --coalesce resize or --coalesce reversible"
                    .to_owned(),
            );
        }
        Ok(Settings {
            mtu: self.mtu,
            role,
            segment_policy,
            stages,
            fragment_policy_for: self.fragment_policy_for.clone(),
            exempt: self.exempt.clone(),
            hold: self.hold.map_or(Holding::Adaptive, Holding::Fixed),
            split: if self.even { Split::Balanced } else { Split::Max },
            limits: Limits { bytes: self.memory as usize * MIB, timeout: self.timeout },
            lifetime: self.lifetime,
            seed: Secret::new(u128::from(self.seed)),
            table_key: Secret::new(drawn),
        })
    }

    /// The active stages: those of the role and the named ones, without the disabled ones. Without a role, only the named ones.
    fn stages(&self) -> Result<Stages, String> {
        let switch = |is_on| if is_on { Toggle::On } else { Toggle::Off };
        let named = self.reassemble
            || self.fragment_policy.is_some()
            || self.coalesce.is_some()
            || self.segment
            || self.fragment;
        let on = |stage| !self.off.contains(&stage);
        let role = self.role.or((!named).then_some(Role::Host));
        let of_host = role == Some(Role::Host);
        let of_ends = of_host || role == Some(Role::Border);
        let mode = self.coalesce.map(|mode| match mode {
            Coalescing::Reversible => Mode::Reversible,
            Coalescing::Resize => Mode::Resize,
        });
        let policy = self.fragment_policy.map(|policy| match policy {
            Policy::Merge => FragmentPolicy::Merge,
            Policy::ReassembleHop => FragmentPolicy::ReassembleHop,
        });
        let stages = Stages {
            reassemble: switch((self.reassemble || of_host) && on(Stage::Reassemble)),
            fragment_policy: policy.filter(|_| on(Stage::Merge)),
            coalesce: mode.or(of_ends.then_some(Mode::Resize)).filter(|_| on(Stage::Coalesce)),
            segment: switch((self.segment || of_ends) && on(Stage::Segment)),
            // With the policy reassemble-hop, reassembled datagrams are fragmented again.
            fragment: switch(
                (self.fragment || role.is_some() || policy == Some(FragmentPolicy::ReassembleHop))
                    && on(Stage::Fragment),
            ),
        };
        if stages.reassemble == Toggle::On && stages.fragment_policy.is_some() {
            let mend =
                if self.reassemble { "remove one of them" } else { "a host reassembles: add --off reassemble" };
            return Err(format!("--reassemble and --fragment-policy contradict each other; {mend}"));
        }
        if stages.fragment_policy == Some(FragmentPolicy::Merge)
            && self.timeout.is_some_and(|timeout| timeout > MERGE_TIMEOUT_MAX)
        {
            return Err(
                "--timeout: at most 0.5 with --fragment-policy merge, as IPv4 IDs may wrap after that".to_owned()
            );
        }
        Ok(stages)
    }

    fn segment_policy(&self, role: As, stages: &Stages) -> Result<SegmentPolicy, String> {
        let policy = match self.segment_policy {
            None | Some(Segments::Segment) => return Ok(SegmentPolicy::Segment),
            Some(Segments::Fragment) => SegmentPolicy::Fragment,
            Some(Segments::Dynamic) => SegmentPolicy::Dynamic,
            Some(Segments::Lan) => SegmentPolicy::Lan,
            Some(Segments::LanSlow) => SegmentPolicy::LanSlow,
            Some(Segments::Wan) => SegmentPolicy::Wan,
        };
        if role != As::Host {
            return Err(
                "--segment-policy: only the host that sends TCP segments may choose their length; use --as host"
                    .to_owned(),
            );
        }
        let stages = [("segment", stages.segment), ("fragment", stages.fragment)];
        match stages.into_iter().find(|(_, stage)| *stage == Toggle::Off) {
            Some((off, _)) => Err(format!("--segment-policy: the stage {off} is off; add --{off}")),
            None => Ok(policy),
        }
    }

    fn icmp_source(&self) -> Result<[IpAddr; 2], String> {
        let mut sources =
            [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
        for given in &self.icmp_source {
            if self.icmp_source.iter().filter(|other| other.is_ipv4() == given.is_ipv4()).count() > 1 {
                return Err("--icmp-source: two addresses of one version; give at most one of each".to_owned());
            }
            if packet::Address::from(*given).is_one_host() {
                let version = usize::from(given.is_ipv6());
                sources[version] = *given;
            } else {
                return Err(format!("--icmp-source: {given} is not a unicast address; give a unicast address"));
            }
        }
        Ok(sources)
    }
}

const MIB: usize = 1 << 20;
/// Longest time-out of merging: no fast pair of hosts reuses IPv4 IDs sooner (X2).
const MERGE_TIMEOUT_MAX: Duration = Duration::from_millis(500);
const STAGES: &str = "Stages (with --as, in addition to the role's; without --as, only the named ones)";
