//! Arguments of `wideload lab` -> an experiment and its settings.

use super::help::{
    ACKS_HELP, ATTACKS_HELP, BORDER_HELP, CALIBRATE_HELP, DIFFERENTIAL_HELP, DIPS_HELP, FAIRNESS_HELP, FLOODS_HELP,
    HOLD_HELP, LIFECYCLE_HELP, LINK_HELP, NETWORK_HELP, PATH_CHANGE_HELP, PING_PONG_HELP, RECEIVE_OFFLOAD_HELP,
    SEGMENT_SIZES_HELP, SOAK_HELP, SWARM_HELP, TCP_HELP, TRANSPARENCY_HELP, WIDE_INTERFACE_HELP, WORKERS_HELP,
};
use super::values::{case_count, flow_count, minutes, packet_count, rounds, seconds, share, transfer_len};
use clap::{Parser, Subcommand, ValueEnum};
use lab::emulator::LinkShape;
use lab::experiments::{Case, Cases, attack_named, transparency_kind_named};
use std::path::PathBuf;
use std::time::Duration;

/// The arguments of `wideload lab`.
#[derive(Debug, Parser)]
pub struct Lab {
    /// The experiment
    #[command(subcommand)]
    pub experiment: Experiment,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Emulate a link between two interfaces
    #[command(after_help = LINK_HELP)]
    Link(Box<LinkArgs>),
    /// Measure how exact the link emulator is
    #[command(after_help = CALIBRATE_HELP)]
    Calibrate,
    /// Compare bridge, forwarding and border gateway with bulk TCP
    #[command(after_help = BORDER_HELP)]
    Border {
        /// Rounds per transfer
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
        /// Bytes per transfer, such as 1e9
        #[arg(long, default_value_t = 256 << 20, value_parser = transfer_len)]
        bytes: u64,
        /// Bytes per write to the socket [default: random, 262144 on average]
        #[arg(long, value_parser = transfer_len)]
        write: Option<u64>,
        /// Kinds of links and hosts, separated by commas [default: all five]
        #[arg(long, value_delimiter = ',')]
        scene: Option<Vec<Scene>>,
    },
    /// Compare a stock interface with a wide one
    #[command(after_help = WIDE_INTERFACE_HELP)]
    WideInterface {
        /// Rounds per load
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
        /// MTUs of the link, separated by commas [default: 1500,9000]
        #[arg(long, value_delimiter = ',')]
        mtu: Option<Vec<u32>>,
        /// Message lengths in bytes, 8 to 65507, separated by commas [default: six lengths]
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(8..=65_507))]
        len: Option<Vec<u32>>,
    },
    /// Find message lengths at which goodput dips
    #[command(after_help = DIPS_HELP)]
    Dips,
    /// Compare the efficiency of one worker and two
    #[command(after_help = WORKERS_HELP)]
    Workers {
        /// Rounds
        #[arg(long, default_value_t = 5, value_parser = rounds)]
        rounds: usize,
    },
    /// Measure packet length and delay per `hold` setting
    #[command(after_help = HOLD_HELP)]
    Hold {
        /// Rounds
        #[arg(long, default_value_t = 3, value_parser = rounds)]
        rounds: usize,
    },
    /// Measure the delay of SYNs and the shares of flows
    #[command(after_help = FAIRNESS_HELP)]
    Fairness(FairnessArgs),
    /// Measure goodput by number of connections, with and without coalescing
    #[command(after_help = RECEIVE_OFFLOAD_HELP)]
    ReceiveOffload(ReceiveOffloadArgs),
    /// Measure the delay that holding adds to small messages
    #[command(after_help = PING_PONG_HELP)]
    PingPong {
        /// Rounds
        #[arg(long, default_value_t = 5, value_parser = rounds)]
        rounds: usize,
    },
    /// Narrow the path behind a border during transfers
    #[command(after_help = PATH_CHANGE_HELP)]
    PathChange {
        /// MTUs of the path after the change, separated by commas [default: 1400,1280]
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1_280..=1_499))]
        mtu: Option<Vec<u32>>,
        /// Leave out the bridges, which have no gateway
        #[arg(long)]
        border_only: bool,
    },
    /// Compare treatments of acknowledgements at a border
    #[command(after_help = ACKS_HELP)]
    Acks {
        /// Round-trip times in milliseconds, separated by commas [default: 1,10,100]
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000))]
        delay: Vec<u64>,
        /// MTUs of the wide link, separated by commas [default: 9000,65535]
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2_000..))]
        mtu: Vec<u16>,
        /// Bytes of a transfer
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        bytes: u64,
    },
    /// Compare segment policies at different losses and delays
    #[command(after_help = SEGMENT_SIZES_HELP)]
    SegmentSizes(SegmentSizesArgs),
    /// Reload, restart and kill a gateway, and audit its counters
    #[command(after_help = SOAK_HELP)]
    Soak(SoakArgs),
    /// Stop, reload, restart and kill a gateway under load
    #[command(after_help = LIFECYCLE_HELP)]
    Lifecycle(LifecycleArgs),
    /// Compare the simulator's TCP with the kernel's
    #[command(after_help = TCP_HELP)]
    Tcp(TcpArgs),
    /// Check the laws in random simulated networks
    #[command(after_help = SWARM_HELP)]
    Swarm(SwarmArgs),
    /// Simulate a network described in a file
    #[command(after_help = NETWORK_HELP)]
    Network(NetworkArgs),
    /// Run the known attacks against simulated gateways
    #[command(after_help = ATTACKS_HELP)]
    Attacks(AttacksArgs),
    /// Compare the engine with the kernel, packet by packet
    #[command(after_help = DIFFERENTIAL_HELP)]
    Differential(DifferentialArgs),
    /// Compare a gateway with the kernel alone
    #[command(after_help = TRANSPARENCY_HELP)]
    Transparency(TransparencyArgs),
    /// Measure reassembly during floods of fragments
    #[command(after_help = FLOODS_HELP)]
    Floods {
        /// Duration of each live flood, in seconds
        #[arg(long, default_value = "12", value_parser = seconds)]
        seconds: Duration,
        /// Seed of the source addresses
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

/// The arguments of `wideload lab fairness`.
#[derive(Debug, Parser)]
pub struct FairnessArgs {
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = rounds)]
    pub rounds: usize,

    /// Saturating TCP connections, 4 to 1000
    #[arg(long, default_value_t = 64, value_parser = flow_count)]
    pub flows: usize,

    /// Duration of each measurement, in seconds
    #[arg(long, default_value = "4", value_parser = seconds)]
    pub seconds: Duration,

    /// Write a picture of the delays
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The arguments of `wideload lab receive-offload`.
#[derive(Debug, Parser)]
pub struct ReceiveOffloadArgs {
    /// Measurements of a border for each figure
    #[arg(long, default_value_t = 0)]
    pub live: usize,

    /// Numbers of connections through the border, separated by commas [default: 1,4,16,64]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub flows: Vec<u64>,

    /// Duration of each measurement of the border, in seconds
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub seconds: Duration,

    /// Write a picture of the goodput
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The arguments of `wideload lab segment-sizes`.
#[derive(Debug, Parser)]
pub struct SegmentSizesArgs {
    /// MTU of wide links and wide interfaces, in bytes
    #[arg(long, default_value_t = 9_000, value_parser = clap::value_parser!(u16).range(2_000..))]
    pub mtu: u16,

    /// Shares of lost packets, separated by commas [default: 0,0.00001,0.0001,0.001,0.01]
    #[arg(long, value_delimiter = ',', value_parser = share)]
    pub loss: Vec<f64>,

    /// Round-trip times in milliseconds, separated by commas [default: 10,100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub delay: Vec<u64>,

    /// Simulated transfers for each figure
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,

    /// Transfers of kernels for each figure, over the link emulator
    #[arg(long, default_value_t = 0)]
    pub live: usize,

    /// Measurements of CPU time for each policy
    #[arg(long, default_value_t = 0)]
    pub cost: usize,

    /// Write a picture of the goodput
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The arguments of `wideload lab transparency`.
#[derive(Debug, Parser)]
pub struct TransparencyArgs {
    /// Kinds of traffic, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = transparency_kind_named)]
    pub kind: Vec<String>,

    /// Roles of the gateway, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub role: Vec<GatewayRole>,

    /// Ports of a border, separated by commas [default: both]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub port: Vec<TransparencyPort>,

    /// Offloads of the links, separated by commas [default: both]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub links: Vec<TransparencyLinks>,

    /// Run a short selection: fewer kinds, a border with packet: ports, links without offloads
    #[arg(long)]
    pub short: bool,

    /// List the kinds of traffic
    #[arg(long)]
    pub list: bool,
}

/// A gateway's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GatewayRole {
    /// A border, compared with the kernel's bridge
    Border,
    /// A router, compared with the kernel's forwarding
    Router,
    /// A host's wide interface
    WideInterface,
}

/// The ports of a border in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransparencyPort {
    /// Packet sockets
    Packet,
    /// AF_XDP
    Xdp,
}

/// The offloads of the links in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransparencyLinks {
    /// No offloads
    Plain,
    /// The kernel's default offloads
    Offloads,
}

/// The arguments of `wideload lab differential`.
#[derive(Debug, Parser)]
pub struct DifferentialArgs {
    /// Fragmented datagrams to reassemble, such as 5e6; 0 = none
    #[arg(long, default_value = "5e6", value_parser = case_count)]
    pub datagrams: u64,

    /// GSO packets to segment
    #[arg(long, alias = "trains", default_value = "2e6", value_parser = case_count)]
    pub gso_packets: u64,

    /// Bursts of segments to coalesce
    #[arg(long, default_value = "1e6", value_parser = case_count)]
    pub bursts: u64,

    /// Seed of the packets
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Threads [default: one per processor]
    #[arg(long)]
    pub threads: Option<usize>,

    /// Repeat single cases by the name that a failure prints, such as reassembly:17
    #[arg(long, conflicts_with_all = ["datagrams", "gso_packets", "bursts", "threads"])]
    pub case: Option<Cases>,
}

/// The arguments of `wideload lab soak`; 0 skips a part.
#[derive(Debug, Parser)]
pub struct SoakArgs {
    /// Number of reloads
    #[arg(long, default_value_t = 100)]
    pub reloads: usize,

    /// Number of restarts per kind of traffic
    #[arg(long, default_value_t = 100)]
    pub restarts: usize,

    /// Rounds with TCP connections in which the worker process is killed three times
    #[arg(long, default_value_t = 3)]
    pub kill_rounds: usize,

    /// TCP connections per round
    #[arg(long, default_value_t = 50)]
    pub streams: usize,

    /// Minutes of mixed traffic over a lossy, reordering link, with the counters fetched every second
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    pub minutes: f64,

    /// Shape of that link, in both directions
    #[arg(long, value_name = "SHAPE", default_value = "delay=3ms,rate=100M,loss=0.1%,reorder=0.5%:3")]
    pub wire: LinkShape,
}

/// The arguments of `wideload lab lifecycle`.
#[derive(Debug, Parser)]
pub struct LifecycleArgs {
    /// Roles of the gateway, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub role: Vec<GatewayRole>,

    /// Events, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub event: Vec<Event>,

    /// TCP connections, 4 to 1000, half of them in each direction [default: 50]
    #[arg(long, value_parser = flow_count)]
    pub flows: Option<usize>,

    /// Run a short selection: 8 connections; stop, restart and kill-both; four events at a time
    #[arg(long)]
    pub short: bool,
}

/// An event that a gateway undergoes under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Event {
    /// SIGTERM
    Stop,
    /// SIGINT, as by Ctrl-C
    Interrupt,
    /// Bypass of all holding stages, then `stop`, both by the control socket
    Drain,
    /// SIGHUP, with another configuration
    Reload,
    /// `wideload restart`
    Restart,
    /// `wideload restart` to a program that does not start
    BadProgram,
    /// `wideload restart` and SIGUSR2 with a wrong configuration
    BadConfiguration,
    /// `kill -9` of the worker process
    KillWorker,
    /// `kill -9` of the supervisor
    KillSupervisor,
    /// `kill -9` of both at once
    KillBoth,
}

/// The arguments of `wideload lab tcp`.
#[derive(Debug, Parser)]
pub struct TcpArgs {
    /// Transfer lengths in bytes, such as 3e4 [default: 30 KB, 300 KB, 1 MB, and 50 MB without loss]
    #[arg(value_parser = transfer_len)]
    pub lens: Vec<u64>,

    /// Loss in each direction, such as 0.1%
    #[arg(long, default_value = "0", value_parser = share)]
    pub loss: f64,

    /// Rounds of the kernel's transfers
    #[arg(long, default_value_t = 5, value_parser = rounds)]
    pub rounds: usize,

    /// Congestion control, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cubic,reno")]
    pub congestion: Vec<Congestion>,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Congestion {
    /// RFC 9438
    Cubic,
    /// RFC 5681
    Reno,
}

/// The arguments of `wideload lab swarm`.
#[derive(Debug, Parser)]
pub struct SwarmArgs {
    /// Minimum number of packets that gateways receive, such as 1e9
    #[arg(long, default_value = "1e7", value_parser = packet_count)]
    pub packets: u64,

    /// First seed; the others follow it
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Threads [default: one per processor]
    #[arg(long)]
    pub threads: Option<usize>,

    /// Repeat one case by the name that a failure prints, such as 7,without=loss,count=12
    #[arg(long, conflicts_with_all = ["packets", "seed", "threads"])]
    pub case: Option<Case>,
}

/// The arguments of `wideload lab network`.
#[derive(Debug, Parser)]
pub struct NetworkArgs {
    /// File with the nodes, links, flows and changes
    pub file: PathBuf,

    /// Seed of losses and other random events
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// The arguments of `wideload lab attacks`.
#[derive(Debug, Parser)]
pub struct AttacksArgs {
    /// Attacks by their numbers in docs/PAPERS.md, such as A07 [default: all]
    #[arg(value_parser = attack_named)]
    pub ids: Vec<String>,

    /// Seed of all random values
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The arguments of `wideload lab link`.
#[derive(Debug, Parser)]
pub struct LinkArgs {
    /// One interface
    pub a: String,

    /// The other interface
    pub b: String,

    /// Shape of the link from the first to the second, such as delay=20ms,rate=100M,loss=0.1%
    pub shape: LinkShape,

    /// Shape from the second to the first [default: the same]
    #[arg(long, value_name = "SHAPE")]
    pub back: Option<LinkShape>,

    /// Duration in seconds [default: until interrupted]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub stretch: Option<Duration>,
}

/// Links and hosts around the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// Links without offloads, hosts without GRO
    #[value(alias = "apart")]
    NoGro,
    /// Links without offloads, hosts with GRO
    #[value(alias = "joined")]
    Gro,
    /// Links without offloads, hosts with the kernel's defaults
    Plain,
    /// Links with checksum offload, hosts without GRO; GRO on the interfaces between them
    #[value(alias = "between")]
    MiddleGro,
    /// Links with TSO
    #[value(alias = "trains")]
    Tso,
}
