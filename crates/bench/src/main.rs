//! Workloads -> a table of nanoseconds and instructions: Wideload and its peers, side by side.
//!
//! `docs/BENCHMARKS.md` publishes the results. This file only selects the task.
#![forbid(unsafe_code)]

mod args;
mod baseline;
mod call_paths;
mod child;
mod grid;
mod guard;
mod harness;
mod instructions;
mod machine;
mod measure;
mod memory;
mod metrics;
mod page;
mod peers;
mod placement;
mod recipe;
mod reference;
mod report;
mod rows;
mod section;
mod table;
mod wire;
mod workload;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Some(Command::Harness { arguments }) => harness(arguments),
        Some(Command::Placement { rounds }) => placement::show((*rounds).max(1)),
        Some(Command::CallPaths { words, all }) => guard::show_call_paths(words, *all),
        None if args.check => guard::check(),
        None if args.write_baseline => guard::write(),
        None if args.instructions => guard::show(args.extent(), &args.only),
        None => report::measure(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("bench: {error}");
        ExitCode::FAILURE
    })
}

fn harness(arguments: &[String]) -> Result<ExitCode, String> {
    let ask = harness::Ask::parse(arguments)?;
    harness::speak(&ask, std::io::stdin().lock(), std::io::stdout()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
