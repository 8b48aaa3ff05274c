//! A configuration in, what is wrong with it out: `wideload check`; and `wideload undo`.

use crate::args::Check;
use crate::command::{Status, complain, failed, show, tell};
use gateway::config::{Config, Problems};
use gateway::control;
use gateway::interface_watch::disagreements;
use gateway::wide_interface;
use serde::Serialize;

/// What a check found.
#[derive(Serialize)]
struct Found<'a> {
    is_good: bool,
    problems: Option<&'a Problems>,
    warnings: Option<&'a Problems>,
    /// What it meets on this machine.
    surroundings: Option<&'a str>,
    /// Where interfaces of this machine are otherwise than it says.
    interfaces: &'a [String],
}

/// `wideload check`.
pub fn check(args: &Check) -> Status {
    let read = Config::read(&args.config);
    let (problems, warnings) = match &read {
        Ok(config) => (None, Some(&config.warnings)),
        Err(problems) => (Some(problems), None),
    };
    let surroundings = read.as_ref().ok().and_then(unsuited);
    let interfaces = read.as_ref().map(disagreements).unwrap_or_default();
    let status = match (problems, &surroundings) {
        (Some(_), _) => Status::Usage,
        (None, Some(_)) => Status::Failed,
        (None, None) => Status::Done,
    };
    if args.json {
        let is_good = status == Status::Done;
        let found =
            Found { is_good, problems, warnings, surroundings: surroundings.as_deref(), interfaces: &interfaces };
        return match serde_json::to_string_pretty(&found) {
            Ok(text) => show(&format!("{text}\n"), status),
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
    match surroundings {
        Some(said) => {
            complain(&said);
            status
        }
        None => show(&format!("{}: it is good\n", args.config.display()), status),
    }
}

/// What keeps a right configuration from running here, as far as it can be seen without starting anything.
pub(crate) fn unsuited(config: &Config) -> Option<String> {
    control::may_lie_at(&config.control).err().map(|error| error.to_string())
}

/// `wideload undo`.
pub fn undo() -> Status {
    match wide_interface::undo() {
        Ok(true) => show("the rule that led packets to the wide interface is gone\n", Status::Done),
        Ok(false) => show("nothing is left to put back\n", Status::Done),
        Err(error) => failed(&error),
    }
}
