//! Arguments -> an exit status.
//!
//! The binary only parses arguments and chooses the subcommand.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use wideload::args::{Args, Job, renamed};
use wideload::{check, command, demo, doctor, lab, run, top};

fn main() -> ExitCode {
    // A file name need not be UTF-8. No former name contains a character that is replaced here.
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    for warning in renamed::warnings(args) {
        command::warn(&warning);
    }
    let status = match Args::parse().job {
        Job::Rewrite(args) => command::rewrite(&args),
        Job::Demo(args) => demo::demo(&args),
        Job::Check(args) => check::check(&args),
        Job::Doctor(args) => doctor::doctor(&args),
        Job::Lab(args) => lab::lab(&args),
        Job::Undo => check::undo(),
        Job::Top(args) => top::top(&args),
        Job::Run(args) => run::run(&args),
        Job::Restart(args) => run::restart(&args),
        Job::Work => run::worker_process(),
    };
    ExitCode::from(status as u8)
}
