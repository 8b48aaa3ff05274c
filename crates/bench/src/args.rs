//! Command line -> options.
//!
//! One program measures, counts, traces and serves as a harness, so every task is an option or subcommand here.

use crate::grid::Extent;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measure the cost of a packet in Wideload and in its peers.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Measure a few workloads, in under a minute once everything is built
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Measure all workloads; takes hours
    #[arg(long)]
    pub full: bool,
    /// Measure only workloads whose name has all of these words, such as `--only "reassemble 44 random"`
    #[arg(long, value_name = "WORDS")]
    pub only: Vec<String>,
    /// Number of rounds of each workload; the median counts
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write all tables, the command and the conditions as a Markdown page
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Download the peers that are missing, from their registries and packages
    #[arg(long)]
    pub install: bool,
    /// Path of a current DPDK build, measured in addition to Debian's
    #[arg(long, value_name = "PATH")]
    pub dpdk: Option<PathBuf>,
    /// Measure another build of this program in turn with this one; its file name is the name of its rows
    #[arg(long, value_name = "PATH")]
    pub before: Option<PathBuf>,
    /// Measure only Wideload and the plain copy loops, without peers
    #[arg(long)]
    pub alone: bool,
    /// Count Wideload's instructions and measure nothing else
    #[arg(long)]
    pub instructions: bool,
    /// Compare Wideload's instructions with the committed baseline; exit status 1 if one is over 3 % above it
    #[arg(long, conflicts_with_all = ["instructions", "write_baseline"])]
    pub check: bool,
    /// Count Wideload's instructions and write them as the new baseline
    #[arg(long)]
    pub write_baseline: bool,
    /// Another task than measuring
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Tasks other than measuring.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare placement on receive with copying, in memory only: nanoseconds, and the share of correct predictions
    #[command(alias = "landing")]
    Placement {
        /// Number of rounds of each row; the median counts
        #[arg(long, value_name = "N", default_value_t = 31)]
        rounds: usize,
    },
    /// List the functions called for a packet, in a program built without inlining
    #[command(alias = "ways")]
    CallPaths {
        /// List only workloads whose name has all of these words
        words: Vec<String>,
        /// Print each function with its number of calls a packet
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
    /// Returns the extent that the options `--quick` and `--full` request.
    pub fn extent(&self) -> Extent {
        match (self.quick, self.full) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Usual,
        }
    }
}
