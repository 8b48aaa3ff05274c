//! A configuration in, what is wrong with it out: `wideload check`; and `wideload undo`.

use crate::args::Check;
use crate::command::{Status, failed, show, tell};
use gateway::config::{Config, Problems};
use gateway::wide_interface;
use serde::Serialize;

/// What a check found.
#[derive(Serialize)]
struct Found<'a> {
    is_good: bool,
    problems: Option<&'a Problems>,
    warnings: Option<&'a Problems>,
}

/// `wideload check`.
pub fn check(args: &Check) -> Status {
    let read = Config::read(&args.config);
    let (problems, warnings) = match &read {
        Ok(config) => (None, Some(&config.warnings)),
        Err(problems) => (Some(problems), None),
    };
    let status = if problems.is_none() { Status::Done } else { Status::Usage };
    if args.json {
        let found = Found { is_good: problems.is_none(), problems, warnings };
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
    show(&format!("{}: it is good\n", args.config.display()), status)
}

/// `wideload undo`.
pub fn undo() -> Status {
    match wide_interface::undo() {
        Ok(true) => show("the rule that led packets to the wide interface is gone\n", Status::Done),
        Ok(false) => show("nothing is left to put back\n", Status::Done),
        Err(error) => failed(&error),
    }
}
