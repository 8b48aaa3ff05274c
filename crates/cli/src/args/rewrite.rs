//! The arguments of `wideload rewrite` -> the settings of the job, or a sentence about the contradiction in them.

use super::values::{exempt, hold, seconds, seconds_or_none};
use crate::rewrite::{As, Settings, Stages};
use clap::{Parser, ValueEnum};
use engine::{Exempt, FragmentPolicy, Holding, Limits, Mode, Prefix, Secret, Toggle};
use packet::Split;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// What `wideload rewrite` was asked.
#[derive(Debug, Parser)]
pub struct Rewrite {
    /// Capture to read: pcap or pcapng, plain or in gzip or zstd; `-` is standard input
    pub input: PathBuf,

    /// Capture to write, in the input's format; `.gz` and `.zst` compress it; `-` is standard output
    pub output: PathBuf,

    /// Longest packet to leave, IP header counted, in bytes: 68 to 65535
    #[arg(long, short, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: u16,

    /// Who stands where the packets pass [default: host]
    #[arg(long = "as", value_enum, value_name = "ROLE")]
    pub role: Option<Role>,

    /// Addresses that the router answers from: one of IPv4, one of IPv6, or both with a comma
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_values = ["192.0.0.8", "fe80::1"])]
    pub icmp_source: Vec<IpAddr>,

    /// Make fragments whole datagrams; they stay so long unless --fragment cuts them
    #[arg(long, help_heading = STAGES)]
    pub reassemble: bool,

    /// Join fragments on the way: gracefully, as they come, up to the MTU; or whole, as the previous hop cut them
    #[arg(long, value_enum, value_name = "HOW", help_heading = STAGES)]
    pub join: Option<How>,

    /// Join TCP segments: reversible, so that cutting gives back every packet; or resize, so that the stream is the same
    #[arg(long, value_enum, value_name = "MODE", help_heading = STAGES)]
    pub coalesce: Option<Coalescing>,

    /// Cut TCP that is too long into segments
    #[arg(long, help_heading = STAGES)]
    pub segment: bool,

    /// Cut what is too long into fragments
    #[arg(long, help_heading = STAGES)]
    pub fragment: bool,

    /// Stages to leave out, with commas between
    #[arg(long, value_enum, value_name = "STAGE", value_delimiter = ',', help_heading = STAGES)]
    pub off: Vec<Stage>,

    /// Join fragments only where they are for these addresses, such as 192.0.2.0/24; may be repeated
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    pub join_for: Vec<Prefix>,

    /// Never hold segments of these flows, for their latency: 192.0.2.0/24, :22 or 192.0.2.7:22; may be repeated
    #[arg(long, value_name = "FLOW", value_delimiter = ',', value_parser = exempt)]
    pub exempt: Vec<Exempt>,

    /// How long a segment waits for the next of its flow, in seconds, at most 10 [default: ten times the flow's average
    /// interval, from 0.00005 to 0.001]
    #[arg(long, value_name = "SECONDS", value_parser = hold, allow_hyphen_values = true)]
    pub hold: Option<Duration>,

    /// Cut into nearly equal pieces, so that the last is never tiny
    #[arg(long)]
    pub even: bool,

    /// How long to wait for a datagram's other fragments, in seconds [default: as a host 30 for IPv4, 60 for IPv6; on the
    /// way 0.5; 0.01 to join gracefully]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,

    /// Memory for what is held, in MiB: as much for fragments, and as much for segments
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=96))]
    pub memory: u32,

    /// How long a datagram may be on its way, in seconds: an IPv4 identifier is not used again sooner, so a pair of
    /// hosts has about 61,000 for as long; 0, for captures without times, sets no limit
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none, default_value = "2", allow_hyphen_values = true)]
    pub lifetime: Duration,

    /// What identifiers are drawn from: the same seed and input give the same output
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Print no report and no progress
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
}

/// Who stands where the packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The host's own wide interface: fragments become whole datagrams, TCP grows and shrinks, what else is too long is
    /// cut, DF or not
    Host,
    /// A router: nothing grows but by a stage that is named; what must not be cut is refused, and its sender is told, in the output
    Router,
    /// A gateway between packet sizes: TCP grows and shrinks, what else is too long is cut or refused
    Border,
}

/// How fragments are joined on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// In order, up to the MTU; what does not join passes as it came
    Graceful,
    /// Into whole datagrams, as the previous hop cut them; cut again where they are too long
    Hop,
}

/// How TCP segments are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Coalescing {
    /// Only what cutting gives back byte for byte
    Reversible,
    /// Whatever leaves the stream the same
    Resize,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Fragments become whole datagrams
    Reassemble,
    /// Fragments are joined on the way
    Merge,
    /// TCP segments are joined
    Coalesce,
    /// TCP is cut into segments
    Segment,
    /// Anything is cut into fragments
    Fragment,
}

impl Rewrite {
    /// The settings of the job; `drawn` is random.
    ///
    /// # Errors
    /// What is wrong with the arguments, and what to do.
    pub fn settings(&self, drawn: u128) -> Result<Settings, String> {
        let role = match self.role.unwrap_or(Role::Host) {
            Role::Host => As::Host,
            Role::Router | Role::Border => As::Transit { icmp_source: self.icmp_source()? },
        };
        let stages = self.stages()?;
        if !self.join_for.is_empty() && stages.reassemble == Toggle::Off && stages.join.is_none() {
            return Err(
                "--join-for: nothing joins fragments; give --join graceful, --join hop or --reassemble".to_owned()
            );
        }
        if (self.hold.is_some() || !self.exempt.is_empty()) && stages.coalesce.is_none() {
            return Err(
                "--hold and --exempt: nothing holds segments; give --coalesce resize or reversible".to_owned()
            );
        }
        Ok(Settings {
            mtu: self.mtu,
            role,
            stages,
            join_for: self.join_for.clone(),
            exempt: self.exempt.clone(),
            hold: self.hold.map_or(Holding::Adaptive, Holding::Fixed),
            fill: if self.even { Split::Balanced } else { Split::Max },
            limits: Limits { bytes: self.memory as usize * MIB, timeout: self.timeout },
            lifetime: self.lifetime,
            seed: Secret::new(u128::from(self.seed)),
            table_key: Secret::new(drawn),
        })
    }

    /// The stages that work: those of the role and those that are named, or, without a role, only those that are named;
    /// without those that are left out.
    fn stages(&self) -> Result<Stages, String> {
        let switch = |is_on| if is_on { Toggle::On } else { Toggle::Off };
        let named =
            self.reassemble || self.join.is_some() || self.coalesce.is_some() || self.segment || self.fragment;
        let on = |stage| !self.off.contains(&stage);
        let role = self.role.or((!named).then_some(Role::Host));
        let of_host = role == Some(Role::Host);
        let of_ends = of_host || role == Some(Role::Border);
        let mode = self.coalesce.map(|mode| match mode {
            Coalescing::Reversible => Mode::Reversible,
            Coalescing::Resize => Mode::Resize,
        });
        let join = self.join.map(|how| match how {
            How::Graceful => FragmentPolicy::Merge,
            How::Hop => FragmentPolicy::ReassembleHop,
        });
        let stages = Stages {
            reassemble: switch((self.reassemble || of_host) && on(Stage::Reassemble)),
            join: join.filter(|_| on(Stage::Merge)),
            coalesce: mode.or(of_ends.then_some(Mode::Resize)).filter(|_| on(Stage::Coalesce)),
            segment: switch((self.segment || of_ends) && on(Stage::Segment)),
            // Hop by hop, what was joined is cut again.
            fragment: switch(
                (self.fragment || role.is_some() || join == Some(FragmentPolicy::ReassembleHop))
                    && on(Stage::Fragment),
            ),
        };
        if stages.reassemble == Toggle::On && stages.join.is_some() {
            let mend =
                if self.reassemble { "give one of them" } else { "a host reassembles: add --off reassemble" };
            return Err(format!("--reassemble and --join: a fragment is joined in one way; {mend}"));
        }
        if stages.join == Some(FragmentPolicy::Merge) && self.timeout.is_some_and(|timeout| timeout > GRACEFUL_MAX)
        {
            return Err(
                "--patience: graceful joining waits at most 0.5 s, before identifications come round".to_owned()
            );
        }
        Ok(stages)
    }

    fn icmp_source(&self) -> Result<[IpAddr; 2], String> {
        let mut sources =
            [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
        for given in &self.icmp_source {
            if self.icmp_source.iter().filter(|other| other.is_ipv4() == given.is_ipv4()).count() > 1 {
                return Err("--answer-from: two addresses of one version; give one of each at most".to_owned());
            }
            if packet::Address::from(*given).is_one_host() {
                let version = usize::from(given.is_ipv6());
                sources[version] = *given;
            } else {
                return Err(format!("--answer-from: {given} is no address of one host; give one that can send"));
            }
        }
        Ok(sources)
    }
}

const MIB: usize = 1 << 20;
/// Longest patience of graceful joining: no fast pair's identifications come round sooner (X2).
const GRACEFUL_MAX: Duration = Duration::from_millis(500);
const STAGES: &str = "Stages (with --as, beside those of the role; without it, only those that are named)";
