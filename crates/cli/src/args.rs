//! The command line in, what is asked for out.

use crate::rewrite::{As, Settings};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use engine::{Limits, Secret};
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

    /// Who stands where the packets pass
    #[arg(long = "as", value_enum, default_value_t = Role::Host, value_name = "ROLE")]
    pub role: Role,

    /// Addresses that the router answers from: one of IPv4, one of IPv6, or both with a comma
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_values = ["192.0.0.8", "fe80::1"])]
    pub answer_from: Vec<IpAddr>,

    /// Cut into nearly equal pieces, so that the last is never tiny
    #[arg(long)]
    pub even: bool,

    /// How long to wait for a datagram's other fragments, in seconds [default: 30 for IPv4, 60 for IPv6]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub patience: Option<Duration>,

    /// Memory for datagrams that are not complete, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=128))]
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
    /// The host's own wide interface: fragments become whole datagrams, what is too long is cut, DF or not
    Host,
    /// A router: what must not be cut is refused, and its sender is told, in the output
    Router,
}

impl Rewrite {
    /// The settings of the job; `drawn` is random.
    ///
    /// # Errors
    /// What is wrong with the arguments, and what to do.
    pub fn settings(&self, drawn: u128) -> Result<Settings, String> {
        let role = match self.role {
            Role::Host => As::Host,
            Role::Router => As::Router { answer_from: self.answer_from()? },
        };
        Ok(Settings {
            mtu: self.mtu,
            role,
            fill: if self.even { Fill::Even } else { Fill::Full },
            limits: Limits { bytes: self.memory as usize * MIB, patience: self.patience },
            lifetime: self.lifetime,
            seed: Secret::new(u128::from(self.seed)),
            table_key: Secret::new(drawn),
        })
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
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());
const REWRITE_HELP: &str = "\
Nothing is lost in silence: what is no IP packet, does not parse, has a bad header checksum or is cut by the snap \
length passes unchanged, and every fate that happened is in the table at the end. Hop counts stay as they are.

A packet that the snap length cut is named where it is the first; the status stays 0.

Exit status: 0 done; 1 could not read or write; 2 wrong arguments; 3 the input is damaged, and what could be read was \
written; 130 interrupted.";
