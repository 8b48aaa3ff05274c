//! Command line -> options.

use crate::grid::Extent;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// What a packet costs: Wideload beside its peers, with the same packets, in the same run.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// A handful of workloads, in under a minute once everything is built
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// All workloads; takes hours
    #[arg(long)]
    pub full: bool,
    /// Only workloads whose name has all of these words, such as `--only "reassemble 44 random"`
    #[arg(long, value_name = "WORDS")]
    pub only: Vec<String>,
    /// Rounds of each workload, of which the median counts
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the whole table, with its command and conditions, as a page
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Fetch what peers are missing from their registries and packages
    #[arg(long)]
    pub install: bool,
    /// Where a current build of DPDK is, to be measured beside Debian's
    #[arg(long, value_name = "PATH")]
    pub dpdk: Option<PathBuf>,
    /// Another build of this program, whose engine is measured in turns with this one's; its file's name names its rows
    #[arg(long, value_name = "PATH")]
    pub before: Option<PathBuf>,
    /// Measure Wideload and the plain loops beside it, and no peer
    #[arg(long)]
    pub alone: bool,
    /// Count Wideload's instructions and measure nothing else
    #[arg(long)]
    pub instructions: bool,
    /// Compare Wideload's instructions with the committed baseline; 1 where one is more than 3 % above it
    #[arg(long, conflicts_with_all = ["instructions", "write_baseline"])]
    pub check: bool,
    /// Count Wideload's instructions and make them the baseline
    #[arg(long)]
    pub write_baseline: bool,
    /// What to do instead
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What this program does beside measuring.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What receiving payloads in place saves, beside copying them, in memory alone: nanoseconds, and how often guesses are right
    Landing {
        /// Rounds of each row, of which the median counts
        #[arg(long, value_name = "N", default_value_t = 31)]
        rounds: usize,
    },
    /// The functions that a packet goes through, of a program that was built without inlining
    Ways {
        /// Only workloads whose name has all of these words
        words: Vec<String>,
        /// Name each function, with its calls a packet
        #[arg(long)]
        all: bool,
    },
    /// Work on one section's packets and answer commands, as crates/bench/peers/README.md says
    #[command(hide = true)]
    Harness {
        /// key=value
        arguments: Vec<String>,
    },
}

impl Args {
    /// The extent of the measurement.
    pub fn extent(&self) -> Extent {
        match (self.quick, self.full) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Usual,
        }
    }
}
