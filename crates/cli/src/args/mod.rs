//! Command line -> a job and its arguments.
//!
//! Each job has a struct for its arguments. The structs of `rewrite` and `lab` are in files of their own. The file
//! values.rs parses single values, help.rs contains the long texts of `--help`, and renamed.rs warns about former
//! names.

mod help;
mod lab;
pub mod renamed;
mod rewrite;
mod values;

pub use lab::{
    AttacksArgs, Congestion, DifferentialArgs, Event, Experiment, GatewayRole, Lab, LifecycleArgs, LinkArgs,
    NetworkArgs, Scene, SoakArgs, SwarmArgs, TcpArgs, TransparencyArgs, TransparencyLinks, TransparencyPort,
};
pub use rewrite::{Coalescing, Policy, Rewrite, Role, Stage};

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use help::{
    CHECK_HELP, DEMO_HELP, DOCTOR_HELP, LAB_HELP, RESTART_HELP, REWRITE_HELP, RUN_HELP, TOP_HELP, UNDO_HELP,
};
use std::path::PathBuf;

/// Resize packets where a wide network meets a narrow one
#[derive(Debug, Parser)]
#[command(name = "wideload", version, styles = STYLES, max_term_width = 100)]
pub struct Args {
    /// The job.
    #[command(subcommand)]
    pub job: Job,
}

/// The jobs of `wideload`.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Rewrite a capture to another MTU
    #[command(after_help = REWRITE_HELP)]
    Rewrite(Rewrite),
    /// Compare a bridge, Wideload and 9,000 bytes everywhere
    #[command(after_help = DEMO_HELP)]
    Demo(Demo),
    /// Check a configuration for errors
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Check if this machine can run a gateway
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Run experiments with live or simulated networks
    #[command(after_help = LAB_HELP)]
    Lab(Lab),
    /// Clean up after a killed gateway
    ///
    /// Removes the routing rule and table of a wide interface, GRO that a border enabled, and stale control sockets.
    #[command(after_help = UNDO_HELP)]
    Undo,
    /// Show a running gateway's traffic and counters
    #[command(after_help = TOP_HELP)]
    Top(Top),
    /// Run a border, router or wide interface from a configuration
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Restart a running gateway without losing a packet
    #[command(after_help = RESTART_HELP)]
    Restart(Restart),
    /// Run the worker process of a supervisor
    #[command(hide = true)]
    Work,
}

/// The arguments of `wideload demo`.
#[derive(Debug, Parser)]
pub struct Demo {
    /// Use links without offloads, and no GRO
    #[arg(long)]
    pub plain: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `wideload check`.
#[derive(Debug, Parser)]
pub struct Check {
    /// Configuration file (TOML)
    pub config: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `wideload doctor`.
#[derive(Debug, Parser)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `wideload top`.
#[derive(Debug, Parser)]
pub struct Top {
    /// Name of the gateway, or path of its control socket [default: the only running one]
    #[arg(value_name = "SOCKET|NAME")]
    pub gateway: Option<String>,

    /// Print one table for one second, then exit
    #[arg(long)]
    pub once: bool,

    /// Print one line of JSON for one second, then exit
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `wideload run`.
#[derive(Debug, Parser)]
pub struct Run {
    /// Configuration file (TOML)
    pub config: PathBuf,

    /// Check the configuration without starting the gateway
    #[arg(long)]
    pub check: bool,

    /// With --check: whether this program can take over from a running one of this version
    #[arg(long, hide = true, requires = "check", value_name = "VERSION")]
    pub after: Option<u32>,
}

/// The arguments of `wideload restart`.
#[derive(Debug, Parser)]
pub struct Restart {
    /// Configuration file of the running gateway
    pub config: PathBuf,

    /// Control socket, if the file names another one by now
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());
