//! The short form of `wideload lab soak` -> no error. It needs root.

use serde_json::Value;
use std::process::Command;

#[test]
fn mixed_traffic_survives_reloads_and_restarts_with_balanced_counters() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wideload"));
    command.args(["lab", "soak", "--json", "--reloads", "5", "--restarts", "5", "--kill-rounds", "1"]);
    let ran = command.args(["--streams", "10", "--minutes", "0.1"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(outcome["faults"], Value::Array(vec![]), "{outcome}");
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let changes: Vec<_> = outcome["changes"].as_array().expect("it has a row for each").iter().collect();
    assert_eq!(changes.len(), 3);
    for change in changes {
        assert_eq!(
            (&change["count"], &change["stream"]["sent"]),
            (&5.into(), &change["stream"]["came"]),
            "{change}"
        );
        assert!(change["stream"]["sent"].as_u64() > Some(100), "{change}");
    }
    assert_eq!((&outcome["kills"][0]["count"], &outcome["kills"][0]["intact"]), (&3.into(), &10.into()));
    let watched = &outcome["watched"];
    assert_eq!((&watched["unexplained"], &watched["missing"]), (&0.into(), &Value::Array(vec![])));
    for figure in ["fetched", "passed", "joined", "fragments"] {
        assert!(watched[figure].as_u64() > Some(1), "{figure}: {watched}");
    }
    assert!(watched["mixed"]["intact"].as_u64() > Some(3) && watched["wire"][1].as_u64() > Some(0), "{watched}");
}
