//! The command line -> what is asked for.
//!
//! Each job has a struct of its arguments. Those of `rewrite` and of `lab` have files of their own; values.rs reads
//! single values, help.rs has the long texts of `--help`.

mod help;
mod lab;
mod rewrite;
mod values;

pub use lab::{
    AttacksArgs, Congestion, DifferentialArgs, Event, Experiment, GatewayRole, Lab, LifecycleArgs, LinkArgs,
    NetworkArgs, Scene, SoakArgs, SwarmArgs, TcpArgs, TransparencyArgs, TransparencyLinks, TransparencyPort,
};
pub use rewrite::{Coalescing, How, Rewrite, Role, Stage};

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use help::{DEMO_HELP, LAB_HELP, REWRITE_HELP, RUN_HELP};
use std::path::PathBuf;

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

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());
