//! The short form of `wideload lab lifecycle` -> no error. It needs root.

use serde_json::Value;
use std::process::Command;

#[test]
fn flows_survive_stops_restarts_and_kills_and_the_host_is_restored() {
    let ran = Command::new(env!("CARGO_BIN_EXE_wideload")).args(["lab", "lifecycle", "--short", "--json"]).output();
    let ran = ran.expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(outcome["faults"], Value::Array(vec![]), "{outcome}");
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let rows = outcome["rows"].as_array().expect("it has a row for each");
    assert_eq!(rows.len(), 9);
    for row in rows {
        assert!(row["bytes"].as_u64() > Some(100_000) && row["changed_while_running"].as_u64() > Some(4), "{row}");
        let was_killed = row["event"] == "kill-both";
        let left = row["left_behind"].as_array().expect("it is a list");
        // A router leaves its control socket, which another round's undo may remove before.
        assert!(left.is_empty() != was_killed || row["role"] == "router", "{row}");
        // A bridge drops the packets of a flow whose MSS the border raised.
        let hangs = was_killed && row["role"] == "border";
        assert_eq!(row["stalled"].as_u64(), Some(if hangs { 4 } else { 0 }), "{row}");
        assert_eq!(row["mended_by_hand"].as_u64(), hangs.then_some(4), "{row}");
    }
}
