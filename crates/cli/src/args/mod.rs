//! The command line in, what is asked for out.

use crate::rewrite::{As, Settings, Stages};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use engine::{Exempt, Holding, Join, Limits, Mode, Prefix, Secret, Switch};
use lab::emulator::Shape;
use lab::experiments::{Case, Cases, attack_named, transparency_kind_named};
use packet::Fill;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Packet size, both ways: narrow packets become wide, wide packets narrow.
#[derive(Debug, Parser)]
#[command(name = "wideload", version, styles = STYLES, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub job: Job,
}

/// What `wideload` can do.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// A capture in, the same traffic at other packet sizes out
    #[command(after_help = REWRITE_HELP)]
    Rewrite(Rewrite),
    /// Compare a bridge, Wideload and 9,000 bytes everywhere
    #[command(after_help = DEMO_HELP)]
    Demo(Demo),
    /// Says what is wrong with a configuration, or that nothing is
    Check(Check),
    /// Says what this machine allows, and what to change
    Doctor(Doctor),
    /// Experiments with live kernels and gateways, as tables
    #[command(after_help = LAB_HELP)]
    Lab(Lab),
    /// Remove what a killed gateway left behind
    ///
    /// The rule and the table of a wide interface go, GRO is off again at a border, and control sockets at which nobody listens are
    /// removed.
    Undo,
    /// A live look at a running gateway
    Top(Top),
    /// A gateway, router or wide interface, live, as a file says
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Start a running gateway anew, in its new version too, without losing a packet
    Restart(Restart),
    /// Work for the process that started this one
    #[command(hide = true)]
    Work,
}

/// What `wideload lab` was asked.
#[derive(Debug, Parser)]
pub struct Lab {
    /// Which experiment
    #[command(subcommand)]
    pub experiment: Experiment,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What `wideload lab` can do.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Joins two interfaces by a wire of any kind, until it is interrupted
    #[command(after_help = LINK_HELP)]
    Link(Box<LinkArgs>),
    /// Asks for known wires in private namespaces, and says what really came
    Calibrate,
    /// Bulk TCP between a wide host and a narrow one: the kernel's bridge, its forwarding, and a border gateway
    Border {
        /// How often each transfer is timed
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
        /// Bytes of each transfer, such as 1e9
        #[arg(long, default_value_t = 256 << 20, value_parser = transfer_len)]
        bytes: u64,
        /// Bytes of each write to a socket; without it lengths are drawn, 262144 in the mean
        #[arg(long, value_parser = transfer_len)]
        write: Option<u64>,
        /// What links and hosts are like, separated by commas; without it all five
        #[arg(long, value_delimiter = ',')]
        scene: Option<Vec<Scene>>,
    },
    /// UDP messages to a host with a stock interface and to one with a wide interface
    WideInterface {
        /// How often each load is timed
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
        /// MTUs of the link, separated by commas; without it 1500 and 9000
        #[arg(long, value_delimiter = ',')]
        mtu: Option<Vec<u32>>,
        /// Lengths of messages in bytes, 8 to 65507, separated by commas; without it six
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(8..=65_507))]
        len: Option<Vec<u32>>,
    },
    /// Goodput at 2,000 lengths of messages: at which does it dip?
    Dips,
    /// Packets for a second of processor time, by one worker and by two
    Workers {
        /// How often each has its turn
        #[arg(long, default_value_t = 5, value_parser = rounds)]
        rounds: usize,
    },
    /// Packet lengths and delays by each setting of `hold`
    #[command(after_help = HOLD_HELP)]
    Hold {
        /// How often each has its turn
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
    },
    /// A gateway that is reloaded, restarted, killed and watched under load: what does it lose, do its counters add up?
    Soak(SoakArgs),
    /// Stop, reload, restart and kill a gateway under 50 TCP flows
    #[command(after_help = LIFECYCLE_HELP)]
    Lifecycle(LifecycleArgs),
    /// Completion times of transfers by the kernel's TCP and by the simulator's, over the same line
    #[command(after_help = TCP_HELP)]
    Tcp(TcpArgs),
    /// Simulated networks, each drawn from a seed, with the laws looked at after every event
    #[command(after_help = SWARM_HELP)]
    Swarm(SwarmArgs),
    /// A network of your own, simulated: what each flow and each link of it carries
    #[command(after_help = NETWORK_HELP)]
    Network(NetworkArgs),
    /// The attacks that have names, through simulated gateways, each with its verdict
    #[command(after_help = ATTACKS_HELP)]
    Attacks(AttacksArgs),
    /// The live kernel beside the engine: pieces joined, trains cut, segments joined, and every difference told
    #[command(after_help = DIFFERENTIAL_HELP)]
    Differential(DifferentialArgs),
    /// The same frames through the kernel alone and through a gateway: every difference, and whether it is wanted
    #[command(after_help = TRANSPARENCY_HELP)]
    Transparency(TransparencyArgs),
    /// Good datagrams in floods of fragments: how many become whole, by the engine and by the live kernel
    #[command(after_help = FLOODS_HELP)]
    Floods {
        /// Seconds of each live flood
        #[arg(long, default_value = "12", value_parser = seconds)]
        seconds: Duration,
        /// What sources are drawn from
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

/// What `wideload lab transparency` was asked.
#[derive(Debug, Parser)]
pub struct TransparencyArgs {
    /// Kinds of traffic, by their names, separated by commas; without it all
    #[arg(long, value_delimiter = ',', value_parser = transparency_kind_named)]
    pub kind: Vec<String>,

    /// Roles of the gateway, separated by commas; without it all
    #[arg(long, value_enum, value_delimiter = ',')]
    pub role: Vec<GatewayRole>,

    /// Ports of a border, separated by commas; without it both
    #[arg(long, value_enum, value_delimiter = ',')]
    pub port: Vec<TransparencyPort>,

    /// Offloads of the links, separated by commas; without it both
    #[arg(long, value_enum, value_delimiter = ',')]
    pub links: Vec<TransparencyLinks>,

    /// Fewer kinds, a border by packet:, links without offloads, unless others are asked for
    #[arg(long)]
    pub short: bool,

    /// Print the kinds and end
    #[arg(long)]
    pub list: bool,
}

/// What a gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GatewayRole {
    /// A border; where it is not, the kernel's bridge
    Border,
    /// A router, beside the kernel's forwarding
    Router,
    /// A wide interface of a host
    WideInterface,
}

/// By which ports a gateway stands beside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransparencyPort {
    /// Packet sockets
    Packet,
    /// AF_XDP
    Xdp,
}

/// What the links of a gateway beside the kernel are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransparencyLinks {
    /// No offloads
    Plain,
    /// Offloads as the kernel has them
    Offloads,
}

/// What `wideload lab differential` was asked.
#[derive(Debug, Parser)]
pub struct DifferentialArgs {
    /// Datagrams that come in pieces, such as 5e6
    #[arg(long, default_value = "5e6", value_parser = case_count)]
    pub datagrams: u64,

    /// Trains that are cut
    #[arg(long, default_value = "2e6", value_parser = case_count)]
    pub trains: u64,

    /// Bursts of segments that are joined
    #[arg(long, default_value = "1e6", value_parser = case_count)]
    pub bursts: u64,

    /// What they are drawn from
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Threads [default: one for each processor]
    #[arg(long)]
    pub threads: Option<usize>,

    /// Some cases alone, as a failure names them, such as reassembly:17
    #[arg(long, conflicts_with_all = ["datagrams", "trains", "bursts", "threads"])]
    pub case: Option<Cases>,
}

/// What `wideload lab soak` was asked; what is 0 is left out.
#[derive(Debug, Parser)]
pub struct SoakArgs {
    /// Reloads in one run
    #[arg(long, default_value_t = 100)]
    pub reloads: usize,

    /// Restarts in one run, of each of two kinds of traffic
    #[arg(long, default_value_t = 100)]
    pub restarts: usize,

    /// Runs of TCP connections in each of which the worker process is killed three times
    #[arg(long, default_value_t = 3)]
    pub kill_rounds: usize,

    /// TCP connections in each of them
    #[arg(long, default_value_t = 50)]
    pub streams: usize,

    /// Minutes of mixed traffic over a wire that loses and reorders, with the counters fetched each second
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    pub minutes: f64,

    /// What that wire is like, both ways
    #[arg(long, value_name = "SHAPE", default_value = "delay=3ms,rate=100M,loss=0.1%,reorder=0.5%:3")]
    pub wire: Shape,
}

/// What `wideload lab lifecycle` was asked.
#[derive(Debug, Parser)]
pub struct LifecycleArgs {
    /// Roles of the gateway, separated by commas; without it all
    #[arg(long, value_enum, value_delimiter = ',')]
    pub role: Vec<GatewayRole>,

    /// What happens to the gateway, separated by commas; without it all
    #[arg(long, value_enum, value_delimiter = ',')]
    pub event: Vec<Event>,

    /// TCP connections, 4 to 1000, half of them either way [default: 50]
    #[arg(long, value_parser = flow_count)]
    pub flows: Option<usize>,

    /// Only 8 connections, and stop, restart and kill-both, unless others are asked for; four events at a time
    #[arg(long)]
    pub short: bool,
}

/// What happens to a gateway under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Event {
    /// SIGTERM
    Stop,
    /// SIGINT, as by Ctrl-C
    Interrupt,
    /// Stages that hold packets are switched off by the control socket, then `stop` by the control socket
    Drain,
    /// SIGHUP, with another configuration
    Reload,
    /// `wideload restart`
    Restart,
    /// `wideload restart`, where the new program does not start
    BadProgram,
    /// `wideload restart` and SIGUSR2, where the new configuration is wrong
    BadConfiguration,
    /// `kill -9` of the worker process
    KillWorker,
    /// `kill -9` of the supervisor
    KillSupervisor,
    /// `kill -9` of both at one moment
    KillBoth,
}

/// What `wideload lab tcp` was asked.
#[derive(Debug, Parser)]
pub struct TcpArgs {
    /// Lengths of transfers in bytes, such as 3e4; without it 30 KB, 300 KB, 1 MB, and without loss 50 MB
    #[arg(value_parser = transfer_len)]
    pub lens: Vec<u64>,

    /// Share of packets that are lost, each way, such as 0.1%
    #[arg(long, default_value = "0", value_parser = share)]
    pub loss: f64,

    /// How often the kernel is timed
    #[arg(long, default_value_t = 5, value_parser = rounds)]
    pub rounds: usize,

    /// Congestion control, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cubic,reno")]
    pub congestion: Vec<Congestion>,
}

/// What lets a TCP send more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Congestion {
    /// RFC 9438
    Cubic,
    /// RFC 5681
    Reno,
}

/// What `wideload lab swarm` was asked.
#[derive(Debug, Parser)]
pub struct SwarmArgs {
    /// Packets that gateways take in, at least, such as 1e9
    #[arg(long, default_value = "1e7", value_parser = packet_count)]
    pub packets: u64,

    /// The first seed; the others follow it
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Threads [default: one for each processor]
    #[arg(long)]
    pub threads: Option<usize>,

    /// One case alone, as a failure names it, such as 7,without=loss,count=12
    #[arg(long, conflicts_with_all = ["packets", "seed", "threads"])]
    pub case: Option<Case>,
}

/// What `wideload lab network` was asked.
#[derive(Debug, Parser)]
pub struct NetworkArgs {
    /// The file that says what stands where, who sends, and what changes
    pub file: PathBuf,

    /// What losses and other chances are drawn from
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// What `wideload lab attacks` was asked.
#[derive(Debug, Parser)]
pub struct AttacksArgs {
    /// Attacks, by their numbers in PAPERS.md, such as A07; without it all of them
    #[arg(value_parser = attack_named)]
    pub ids: Vec<String>,

    /// What everything random in them is drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What `wideload lab link` was asked.
#[derive(Debug, Parser)]
pub struct LinkArgs {
    /// One interface
    pub a: String,

    /// The other interface
    pub b: String,

    /// What the wire from the first to the second is like, such as delay=20ms,rate=100M,loss=0.1%
    pub shape: Shape,

    /// What it is like from the second to the first [default: the same]
    #[arg(long, value_name = "SHAPE")]
    pub back: Option<Shape>,

    /// Ends after so many seconds [default: when it is interrupted]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub stretch: Option<Duration>,
}

/// What `wideload demo` was asked.
#[derive(Debug, Parser)]
pub struct Demo {
    /// Use links without offloads and without GRO anywhere
    #[arg(long)]
    pub plain: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `wideload check` was asked.
#[derive(Debug, Parser)]
pub struct Check {
    /// Configuration to read
    pub config: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `wideload doctor` was asked.
#[derive(Debug, Parser)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `wideload top` was asked.
#[derive(Debug, Parser)]
pub struct Top {
    /// The gateway's name, or the path of its control socket; where one runs, that one
    #[arg(value_name = "SOCKET|NAME")]
    pub gateway: Option<String>,

    /// Print one table, of one second, and end
    #[arg(long)]
    pub once: bool,

    /// Print the same as one line of JSON, and end, as with --once
    #[arg(long)]
    pub json: bool,
}

/// What `wideload run` was asked.
#[derive(Debug, Parser)]
pub struct Run {
    /// The configuration: a file of TOML
    pub config: PathBuf,

    /// Say what is wrong with the configuration, and start nothing
    #[arg(long)]
    pub check: bool,

    /// With --check: can this program take over what a running one of this version would leave?
    #[arg(long, hide = true, requires = "check", value_name = "VERSION")]
    pub after: Option<u32>,
}

/// What `wideload restart` was asked.
#[derive(Debug, Parser)]
pub struct Restart {
    /// The configuration that it runs by
    pub config: PathBuf,

    /// The socket that it is asked by, where the configuration says another one by now
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

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
    pub answer_from: Vec<IpAddr>,

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
    pub patience: Option<Duration>,

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

/// What links and hosts are like between which a border stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// Links without offloads, hosts that join nothing
    Apart,
    /// Links without offloads, hosts that join what comes (GRO)
    Joined,
    /// Links without offloads, hosts as the kernel makes them
    Plain,
    /// Links that only compute checksums, hosts that join nothing; the interfaces between join what comes (GRO)
    Between,
    /// Links that take trains whole
    Trains,
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
    Join,
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
            Role::Router | Role::Border => As::Transit { answer_from: self.answer_from()? },
        };
        let stages = self.stages()?;
        if !self.join_for.is_empty() && stages.reassemble == Switch::Off && stages.join.is_none() {
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
            fill: if self.even { Fill::Even } else { Fill::Full },
            limits: Limits { bytes: self.memory as usize * MIB, patience: self.patience },
            lifetime: self.lifetime,
            seed: Secret::new(u128::from(self.seed)),
            table_key: Secret::new(drawn),
        })
    }

    /// The stages that work: those of the role and those that are named, or, without a role, only those that are named;
    /// without those that are left out.
    fn stages(&self) -> Result<Stages, String> {
        let switch = |is_on| if is_on { Switch::On } else { Switch::Off };
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
            How::Graceful => Join::Graceful,
            How::Hop => Join::Hop,
        });
        let stages = Stages {
            reassemble: switch((self.reassemble || of_host) && on(Stage::Reassemble)),
            join: join.filter(|_| on(Stage::Join)),
            coalesce: mode.or(of_ends.then_some(Mode::Resize)).filter(|_| on(Stage::Coalesce)),
            segment: switch((self.segment || of_ends) && on(Stage::Segment)),
            // Hop by hop, what was joined is cut again.
            fragment: switch((self.fragment || role.is_some() || join == Some(Join::Hop)) && on(Stage::Fragment)),
        };
        if stages.reassemble == Switch::On && stages.join.is_some() {
            let mend =
                if self.reassemble { "give one of them" } else { "a host reassembles: add --off reassemble" };
            return Err(format!("--reassemble and --join: a fragment is joined in one way; {mend}"));
        }
        if stages.join == Some(Join::Graceful) && self.patience.is_some_and(|patience| patience > GRACEFUL_MAX) {
            return Err(
                "--patience: graceful joining waits at most 0.5 s, before identifications come round".to_owned()
            );
        }
        Ok(stages)
    }

    fn answer_from(&self) -> Result<[IpAddr; 2], String> {
        let mut sources =
            [IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)), IpAddr::V6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1))];
        for given in &self.answer_from {
            if self.answer_from.iter().filter(|other| other.is_ipv4() == given.is_ipv4()).count() > 1 {
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

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=MINUTES_MAX).contains(minutes));
    minutes.ok_or_else(|| "give minutes, such as 10 or 0.1, from 0 to 1440".to_owned())
}

fn flow_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (4..=1_000).contains(count));
    count.ok_or_else(|| "give a number from 4 to 1000".to_owned())
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=100).contains(rounds));
    rounds.ok_or_else(|| "give a number from 1 to 100".to_owned())
}

/// A whole number, also as `1e9`.
fn packet_count(text: &str) -> Result<u64, String> {
    let whole = |number: &f64| (1.0..=1e15).contains(number) && number.fract() == 0.0;
    let number = text.parse::<f64>().ok().filter(whole);
    number.map(|number| number as u64).ok_or_else(|| "give a whole number of packets, such as 1e9".to_owned())
}

/// As [`packet_count`], and 0 for a part that is left out.
fn case_count(text: &str) -> Result<u64, String> {
    let count = if text == "0" { Ok(0) } else { packet_count(text) };
    count.map_err(|_| "give a whole number, such as 5e6, or 0 to leave them out".to_owned())
}

fn transfer_len(text: &str) -> Result<u64, String> {
    let len = packet_count(text).ok().filter(|len| *len <= TRANSFER_LEN_MAX);
    len.ok_or_else(|| "give a whole number of bytes, such as 1e6, at most 1e9".to_owned())
}

/// A share, also in percent.
fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.parse::<f64>().map(|share| share / whole).ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "give a share, such as 0.001 or 0.1%, below 1".to_owned())
}

fn hold(text: &str) -> Result<Duration, String> {
    let hold = seconds(text).ok().filter(|hold| *hold <= HOLD_MAX);
    hold.ok_or_else(|| "give seconds, such as 0.001, above 0 and at most 10".to_owned())
}

/// `PREFIX`, `:PORT` or `PREFIX:PORT`; an IPv6 prefix before a port stands in brackets.
fn exempt(text: &str) -> Result<Exempt, String> {
    if let Ok(prefix) = text.parse() {
        return Ok(Exempt { prefix: Some(prefix), port: None });
    }
    let unclear = || {
        format!(
            "{text} is neither a prefix nor a port; give such as 192.0.2.0/24, :22, 192.0.2.7:22 or [2001:db8::]/32:22"
        )
    };
    let (prefix, port) = text.rsplit_once(':').filter(|(_, port)| !port.is_empty()).ok_or_else(unclear)?;
    if !port.bytes().all(|letter| letter.is_ascii_digit()) {
        return Err(unclear());
    }
    let port = port.parse().map_err(|_| format!("{port} is no port; give a number from 0 to 65535"))?;
    let prefix = prefix.replace(['[', ']'], "");
    let prefix = if prefix.is_empty() { None } else { Some(prefix.parse()?) };
    Ok(Exempt { prefix, port: Some(port) })
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_none(text) {
        Ok(Duration::ZERO) | Err(_) => Err("give seconds, such as 30 or 0.5, above 0 and at most 3600".to_owned()),
        seconds => seconds,
    }
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    let stretch = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    stretch.ok_or_else(|| "give seconds, such as 2 or 0.5, from 0 to 3600".to_owned())
}

const MIB: usize = 1 << 20;
const SECONDS_MAX: f64 = 3_600.0;
const TRANSFER_LEN_MAX: u64 = 1_000_000_000;
const MINUTES_MAX: f64 = 1_440.0;
/// Longest patience of graceful joining: no fast pair's identifications come round sooner (X2).
const GRACEFUL_MAX: Duration = Duration::from_millis(500);
const HOLD_MAX: Duration = Duration::from_secs(10);
const STAGES: &str = "Stages (with --as, beside those of the role; without it, only those that are named)";
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());
const DEMO_HELP: &str = "\
Takes about a minute. Sends real TCP between two hosts through each of the three, in turns. Nothing outside is touched: the \
hosts are namespaces of this process, and go with it. It needs root, or a kernel that allows user namespaces.

  wideload demo              # cards compute checksums, GRO is on at every interface
  wideload demo --json       # every figure of every round

Exit status: 0 all bytes arrived, and the wide host saw wide packets; 1 they did not, or something is missing.";
const RUN_HELP: &str = "\
It stays in the foreground, and says on standard error what happens to it. Signals: TERM and INT let go of what is held, put \
back what was changed, and end; HUP reads the file anew; USR2 starts anew, in its new version where that was installed, \
without losing a packet.

Exit status: 0 ended as it was told; 1 could not start; 2 the configuration is wrong.";
const ATTACKS_HELP: &str = "\
Held: all laws and bounds held. Broken: one did not; the command that repeats it stands below. Waiting: what is attacked does \
not exist yet. Live: it concerns ports and processes; the tests that show it are named.

Exit status: 0 nothing broke; 1 something did.";
const LAB_HELP: &str = "\
`swarm`, `attacks` and `network` are simulations. All others but `link` stay in private namespaces of this process and go with it; to keep the kernel's accounts they need the rights \
of root. Progress is on standard error, the table on standard output.

Exit status: 0 measured, and every byte arrived; 1 it did not, or something is missing.";
const LINK_HELP: &str = "\
Frames that come in by one interface leave by the other. Meanwhile the kernel gets nothing from either, and their offloads are \
off; both are put back at the end.

A shape is words with commas between: delay=, jitter=, rate=, queue=, loss=, burst=BEGINS:ENDS, ber=, reorder=SHARE:PLACES, \
byteloss=, red=MIN:MAX:SHARE, duplicate=, overhead=, seed=.

Exit status: 0 the wire was what was asked for; 1 it was not, and why is said.";
const LIFECYCLE_HELP: &str = "\
Each event happens to a gateway of its own, run by `wideload run` in a private network, while TCP connections go both ways. Then \
the same gateway goes on, or the kernel takes over: a bridge in the place of a border. A killed supervisor is followed by `wideload \
undo`, and in a round of its own by another gateway. A row says what connections saw, and whether all that is set on the \
gateway's host is as it was: interfaces, their features and programs, addresses, routes, rules, settings, sockets, files.

  wideload lab lifecycle
  wideload lab lifecycle --role border --event stop,kill-both --json

It needs root, and takes about three minutes.

Exit status: 0 every connection went on as the guide says, every exit status was right, and the host was as before; 1 one was \
not, or something is missing.";
const TCP_HELP: &str = "\
Round trips of 10 and 100 ms, MTUs of 1500 and 9000, a line of 100 Mb/s. The kernels of two private hosts send through the link \
emulator; the simulator's two ends, over its own path, are asked with 301 seeds where packets are lost. A transfer during which \
the emulator was late is timed again, for ten seconds a row or three times the rounds, whichever is more; a row of which at most half \
of the rounds were in time does not count, and says so.

Exit status: 0 medians differ by at most 15 %, with loss 30 %; 1 they do not, or something is missing.";
const SWARM_HELP: &str = "\
Each seed draws its own topology, traffic, policies and faults. Nothing leaves this process, and no rights are needed. At least \
64 seeds run, which together meet every role, fault, law and reason; a packet counts once, where the first gateway on its way \
takes it in, and at least half of them belong to TCP connections of simulated hosts.

A broken law is shown with the smallest case that breaks it, and the command that repeats that case.

Exit status: 0 nothing broke, and everything was met; 1 something broke, was never met, or less than half was TCP. \
Of one case (--case) only whether it broke a law.";
const NETWORK_HELP: &str = "\
The file is TOML. Tables, each as often as needed:
  [[node]]    name, kind: host, border, wide-interface, receive-offload, router, refusing-router, silent-router,
              hop-joining-router or joining-router; of a gateway wide = \"NODE\", the node at its wide end, and
              perhaps reassemble, join, coalesce: true or false, hold = \"adaptive\" or a time; of a host dont-fragment
  [[link]]    ends = [\"NODE\", \"NODE\"], mtu, shape = \"delay=5ms,rate=100M\" as `wideload lab link` takes it, back: the
              shape of the other direction
  [[chain]]   nodes = [...], mtu, shape: links from each to the next
  [[tree]]    root, names, fanout, depth, router, mtu, shape: routers below a node, and hosts at the end
  [[mesh]]    names, count, extra, seed, router, mtu, shape: routers joined at random
              The nodes of both are called as names says, with numbers from 0; router is their kind.
  [[flow]]    from, to, kind: tcp (bytes, congestion: cubic or reno, probing: true or false) or udp (messages, len,
              gap); ipv6 = true, start. Else 1000000 bytes, or 1000 messages of 1000 bytes, one each ms
  [[change]]  at, link = [\"NODE\", \"NODE\"], and carrier = false or true, or mtu

Nothing leaves this process, and no rights are needed. The same file and seed give the same trace.

Exit status: 0 every connection carried all it had to; 1 one did not, a law broke, or the file cannot be read; 2 the file is wrong.";
const FLOODS_HELP: &str = "\
First pieces that never become whole come from everywhere, from a thousand sources, and as a slow drip of 150 a second, each by IPv4 \
and IPv6. The first two are written to a TUN device as fast as it takes them, and simulated at two million a second; the drip comes \
at its own pace, live behind 20 seconds' worth of it at once. Each system may hold 4 MiB. The pieces of a good datagram are at most \
half a millisecond apart; where the machine was too busy for that, it is set aside.

Exit status: 0 with the engine 99.9 % of good datagrams became whole, 99.99 % beside a thousand sources, all in the drip; 1 fewer, \
or something is missing.";
const TRANSPARENCY_HELP: &str = "\
Each kind of traffic goes through the same cables several times: with the kernel alone in the middle (its bridge beside a \
border, its forwarding beside a router), with the gateway, and with a gateway whose stages are off. The same frames must \
arrive, in the same order within each flow. Kinds that begin with socket- are talks between ordinary sockets: payload, \
errors, and what the kernel says beside a message must be the same. Listed: the difference is wanted, and its reason stands \
below the table. DIFFERENT: it is a fault. A difference has to be seen twice.

  wideload lab transparency --short
  wideload lab transparency --kind tcp-syn-mss --role border --port packet

Exit status: 0 nothing differs but what is listed; 1 something does, or something is missing.";
const DIFFERENTIAL_HELP: &str = "\
Packets are drawn from the seed, written to TUN devices of private hosts, and given to the engine too. What differs is told from a \
list that is shown with the table: how often each difference was met, and those that never were. Anything else is a failure; it is \
shown as small as it was made, with the command that repeats it.

Exit status: 0 all differences are known; 1 some are not, or something is missing.";
const HOLD_HELP: &str = "\
A bridge and a border with `hold = \"adaptive\"` and `hold = \"burst\"` take turns. TCP segments arrive one by one at 20, 100 and \
500 Mbit/s. The table has the mean packet length at the wide host, the round trip of a 64-byte message, and the delay of the last \
segment of a burst: with PSH, and without it.

  wideload lab hold
  wideload lab hold --rounds 5 --json

Exit status: 0 every byte arrived; 1 it did not, or something is missing.";
const REWRITE_HELP: &str = "\
Nothing is lost in silence: what is no IP packet, does not parse, has a bad header checksum or is cut by the snap \
length passes unchanged, and every fate that happened is in the table at the end. Hop counts stay as they are.

A packet that the snap length cut is named where it is the first; the status stays 0.

Exit status: 0 done; 1 could not read or write; 2 wrong arguments; 3 the input is damaged, and what could be read was \
written; 130 interrupted.";
