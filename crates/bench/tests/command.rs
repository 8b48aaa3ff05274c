//! Options -> a table, rows and a page: the command as its users run it, without peers.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn a_run_measures_verifies_and_writes_everything_down() {
    let folder = tempfile::tempdir().unwrap();
    let [json, page] = ["rows.json", "page.md"].map(|name| folder.path().join(name));
    let words = ["--alone", "--quick", "--rounds", "1"];
    let output = bench(&words, &[("--json", &json), ("--page", &page)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");

    let rows: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    for row in rows {
        let note = row["note"].as_str().unwrap();
        assert!(!note.contains("wrong") && !note.contains("died"), "{row}");
        let cannot = note.starts_with("cannot");
        assert!(cannot || row["ns"].as_f64().unwrap() > 0.0, "{row}");
        assert!(cannot || row["completed"].as_u64().unwrap() > 0, "{row}");
        for key in ["function", "workload", "system", "instructions", "gbit_s"] {
            assert!(row.get(key).is_some(), "{row} has no {key}");
        }
    }
    let systems = |name: &str| rows.iter().filter(|row| row["system"] == name).count();
    assert_eq!(systems("wideload"), 10, "nine workloads and what memory holds");
    assert!(systems("plain copy") >= 4 && systems("copy and sum") >= 1 && systems("wideload, best case") == 1);

    let page = std::fs::read_to_string(&page).unwrap();
    for expected in ["--alone --quick --rounds 1", "## reassemble", "## checksum", "rounds: 1"] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
}

#[test]
fn words_select_workloads() {
    let output = bench(&["--alone", "--rounds", "1", "--only", "checksum 1460"], &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("checksum: 1460 B") && !said.contains("reassemble:"), "{said}");
    let none = bench(&["--alone", "--only", "no such"], &[]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&none.stderr),
        "bench: --only no such: no workload has all of these words\n"
    );
}

#[test]
fn another_build_is_interleaved_under_its_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let [other, json] = ["0123abc", "rows.json"].map(|name| folder.path().join(name));
    std::fs::copy(env!("CARGO_BIN_EXE_bench"), &other).unwrap();
    let words = ["--alone", "--rounds", "1", "--only", "checksum 1460"];
    let output = bench(&words, &[("--before", &other), ("--json", &json)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let systems: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["system"].as_str().unwrap()).collect();
    assert_eq!(systems, ["wideload", "wideload 0123abc", "plain copy"]);
    assert!(rows[1]["ratio"].as_f64().unwrap() > 0.0, "{rows}");

    let none = bench(&words, &[("--before", Path::new("/nowhere/0123abc"))]);
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(said.starts_with("bench: /nowhere/0123abc: No such file"), "{said}");
}

#[test]
fn an_unwritable_output_path_fails_before_measuring() {
    let place = Path::new("/nowhere/rows.json");
    let output = bench(&["--alone", "--quick"], &[("--json", place)]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("bench: /nowhere/rows.json: No such file"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn counting_without_valgrind_names_the_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).arg("--check").env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("valgrind is not installed") && said.contains("apt-get install valgrind"), "{said}");
}

fn bench(words: &[&str], places: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(words);
    for (option, place) in places {
        command.arg(option).arg(place);
    }
    command.output().expect("the command runs")
}
