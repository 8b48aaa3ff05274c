//! Arguments in, an exit status out.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use wideload::args::{Args, Job};
use wideload::{check, command, demo, doctor, lab};

fn main() -> ExitCode {
    let status = match Args::parse().job {
        Job::Rewrite(args) => command::rewrite(&args),
        Job::Demo(args) => demo::demo(&args),
        Job::Check(args) => check::check(&args),
        Job::Doctor(args) => doctor::doctor(&args),
        Job::Lab(args) => lab::lab(&args),
        Job::Undo => check::undo(),
    };
    ExitCode::from(status as u8)
}
