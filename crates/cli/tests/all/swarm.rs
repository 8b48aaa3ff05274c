//! `wideload lab swarm` with one case -> its output and exit status.

use serde_json::Value;
use std::process::Command;

#[test]
fn a_single_case_passes_if_no_law_breaks() {
    for (case, status, failure_count) in [("1", 0, 0), ("1,bug=drops", 1, 1)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideload"));
        let ran = command.args(["lab", "swarm", "--case", case, "--json"]).output().expect("it runs");
        assert_eq!(ran.status.code(), Some(status), "{}", String::from_utf8_lossy(&ran.stderr));
        let outcome: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
        assert_eq!(outcome["failures"].as_array().map(Vec::len), Some(failure_count), "{outcome}");
    }
}
