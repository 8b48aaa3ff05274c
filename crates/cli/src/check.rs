//! A configuration -> its problems, for `wideload check`; the host -> reverted changes, for `wideload undo`.
//!
//! This module only prints. The crates `config` and `daemon` find the problems.

use crate::args::Check;
use crate::command::{Status, complain, failed, show, tell};
use config::{Config, Problems};
use daemon::control;
use daemon::gro;
use daemon::interface_watch::{disagreements, missing};
use daemon::json;
use daemon::own_addresses;
use daemon::wide_routes;
use serde::Serialize;

/// The result of a check.
#[derive(Serialize)]
struct Found<'a> {
    is_good: bool,
    problems: Option<&'a Problems>,
    warnings: Option<&'a Problems>,
    /// The reason why a valid configuration cannot run on this machine; `None` if the check found none.
    surroundings: Option<&'a str>,
    /// Mismatches between the interfaces of this machine and the configuration.
    interfaces: &'a [String],
    /// Changes that a gateway will make to the interfaces while it runs.
    changes: &'a [String],
}

/// Runs `wideload check`.
pub fn check(args: &Check) -> Status {
    let mut read = Config::read(&args.config);
    if let Ok(config) = &mut read {
        own_addresses::find(config);
    }
    let (problems, warnings) = match &read {
        Ok(config) => (None, Some(&config.warnings)),
        Err(problems) => (Some(problems), None),
    };
    let surroundings = read.as_ref().ok().and_then(unsuited);
    let mut interfaces = read.as_ref().map(missing).unwrap_or_default();
    interfaces.extend(read.as_ref().map(disagreements).unwrap_or_default());
    interfaces.extend(read.as_ref().map(own_addresses::doubts).unwrap_or_default());
    let changes = read.as_ref().map(gro::preview).unwrap_or_default();
    let status = match (problems, &surroundings) {
        (Some(_), _) => Status::Usage,
        (None, Some(_)) => Status::Failed,
        (None, None) => Status::Done,
    };
    if args.json {
        let is_good = status == Status::Done;
        let surroundings = surroundings.as_deref();
        let (interfaces, changes) = (&interfaces, &changes);
        let found = Found { is_good, problems, warnings, surroundings, interfaces, changes };
        return match json::indented(&found) {
            Ok(text) => show(&text, status),
            Err(error) => failed(&error),
        };
    }
    if let Some(problems) = problems {
        tell(problems);
        return status;
    }
    for warning in warnings.iter().flat_map(|warnings| warnings.iter()) {
        tell(&format!("warning: {warning}"));
    }
    for sentence in &interfaces {
        tell(&format!("warning: {sentence}"));
    }
    for sentence in &changes {
        tell(sentence);
    }
    match surroundings {
        Some(said) => {
            complain(&said);
            status
        }
        None => show(&format!("{}: the configuration is valid\n", args.config.display()), status),
    }
}

/// Returns the reason why a valid configuration cannot run on this machine; `None` if a check without a start finds
/// none.
pub(crate) fn unsuited(config: &Config) -> Option<String> {
    control::may_lie_at(&config.control).err().map(|error| error.to_string())
}

/// Runs `wideload undo`.
pub fn undo() -> Status {
    let (rules, gro, sockets) = (wide_routes::undo(), gro::undo(), control::undo());
    let mut said = String::new();
    if let Ok(true) = rules {
        said.push_str("removed the routing rule and table of the wide interface\n");
    }
    for name in gro.iter().flatten() {
        said.push_str(&format!("{name}: GRO is off again; a killed gateway had left it on\n"));
    }
    for path in sockets.iter().flatten() {
        said.push_str(&format!("{}: removed the control socket of a killed gateway\n", path.display()));
    }
    let errors = [rules.err(), gro.err(), sockets.err()];
    let mut status = Status::Done;
    if said.is_empty() && errors.iter().all(Option::is_none) {
        said.push_str("nothing to undo\n");
    }
    if !said.is_empty() {
        status = show(&said, status);
    }
    for error in errors.into_iter().flatten() {
        status = failed(&error);
    }
    status
}
