//! Arguments in, an exit status out.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use wideload::args::{Args, Job};
use wideload::{command, top};

fn main() -> ExitCode {
    let status = match Args::parse().job {
        Job::Rewrite(args) => command::rewrite(&args),
        Job::Top(args) => top::top(&args),
    };
    ExitCode::from(status as u8)
}
