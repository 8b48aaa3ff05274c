//! The arguments of `wideload lab` -> which experiment, and how it is set.

use super::help::{
    ATTACKS_HELP, DIFFERENTIAL_HELP, FLOODS_HELP, HOLD_HELP, LIFECYCLE_HELP, LINK_HELP, NETWORK_HELP, SWARM_HELP,
    TCP_HELP, TRANSPARENCY_HELP,
};
use super::values::{case_count, flow_count, minutes, packet_count, rounds, seconds, share, transfer_len};
use clap::{Parser, Subcommand, ValueEnum};
use lab::emulator::LinkShape;
use lab::experiments::{Case, Cases, attack_named, transparency_kind_named};
use std::path::PathBuf;
use std::time::Duration;

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
    pub gso_packets: u64,

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
    pub wire: LinkShape,
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
    pub shape: LinkShape,

    /// What it is like from the second to the first [default: the same]
    #[arg(long, value_name = "SHAPE")]
    pub back: Option<LinkShape>,

    /// Ends after so many seconds [default: when it is interrupted]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub stretch: Option<Duration>,
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
