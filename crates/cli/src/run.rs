//! A configuration file -> a live gateway, until it is stopped.
//!
//! This module only prints. The crate `daemon` runs the gateway.

use crate::args::{Restart, Run};
use crate::check::unsuited;
use crate::command::{Status, failed, tell};
use daemon::control::Client;
use daemon::supervisor::{self, Failure};
use daemon::worker_process;
use std::io;
use std::os::fd::AsFd;

/// Runs `wideload run`.
pub fn run(args: &Run) -> Status {
    if args.check {
        return check(args);
    }
    match supervisor::run(&args.config) {
        Ok(()) => Status::Done,
        Err(Failure::Config(problems)) => {
            tell(&problems);
            Status::Usage
        }
        Err(Failure::Surroundings(error)) => failed(&error),
    }
}

fn check(args: &Run) -> Status {
    if let Some(version) = args.after
        && version != supervisor::VERSION
    {
        return failed(&format!(
            "can take over from restart-state version {}, not {version}; stop the running gateway first",
            supervisor::VERSION
        ));
    }
    match supervisor::read(&args.config) {
        Ok((_, config)) => {
            config.warnings.iter().for_each(tell);
            unsuited(&config).map_or(Status::Done, |said| failed(&said))
        }
        Err(problems) => {
            tell(&problems);
            Status::Usage
        }
    }
}

/// Runs `wideload restart`, and waits for the result.
pub fn restart(args: &Restart) -> Status {
    let config = match supervisor::read(&args.config) {
        Ok((_, config)) => config,
        Err(problems) => {
            tell(&problems);
            return Status::Usage;
        }
    };
    let control = args.control.as_ref().unwrap_or(&config.control);
    match Client::connect(control).and_then(|mut gateway| gateway.restart()) {
        Ok(()) => Status::Done,
        Err(error) => failed(&error),
    }
}

/// Runs `wideload work`, the worker process of `wideload run`. The supervisor is at the other end of standard
/// input.
pub fn worker_process() -> Status {
    match io::stdin().as_fd().try_clone_to_owned().and_then(worker_process::run) {
        Ok(()) => Status::Done,
        Err(error) => failed(&error),
    }
}
