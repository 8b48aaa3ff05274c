//! `wideload lab network` with the project's networks, and with invalid files.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn borders_at_both_ends_of_a_long_line_carry_more_than_hosts_of_its_own_mtu() {
    let ran = lab(&networks().join("long-line.toml"), &["--json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let network: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    let [wide, plain] = [0, 1].map(|at| &network["flows"][at]);
    for flow in [wide, plain] {
        assert_eq!((&flow["end"], &flow["arrived"]), (&"done".into(), &100_000_000.into()), "{flow}");
    }
    let seconds = [wide, plain].map(|flow| flow["seconds"].as_f64().expect("a number"));
    assert!(seconds[0] * 1.5 < seconds[1], "six times as much a segment: {seconds:?} s");
    let link = |from: &str, to: &str| {
        let links = network["links"].as_array().expect("rows");
        links
            .iter()
            .find(|link| (&link["from"], &link["to"]) == (&from.into(), &to.into()))
            .expect("a link")
            .clone()
    };
    let wide_packets = link("wide-a", "border-a");
    assert!(wide_packets["mean_len"].as_f64() > Some(8_000.0), "{wide_packets}");
    assert!(link("border-a", "border-b")["lost"].as_u64() > Some(0), "the line loses");
    assert_eq!(network["broken"], Value::Null);
}

#[test]
fn one_gateway_coalesces_for_a_narrow_host() {
    let ran = lab(&networks().join("one-gateway.toml"), &["--json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let network: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    let links = network["links"].as_array().expect("rows");
    let mean_len = |from: &str, to: &str| {
        let link = links.iter().find(|link| (&link["from"], &link["to"]) == (&from.into(), &to.into()));
        link.expect("a link")["mean_len"].as_f64().expect("a number")
    };
    let (came, left) = (mean_len("narrow", "border"), mean_len("border", "wide"));
    assert!(left > 3.0 * came, "{came} bytes a packet came, {left} left");
}

#[test]
fn every_network_that_the_project_brings_runs_and_shows_all_its_flows() {
    let files = std::fs::read_dir(networks()).expect("they are there");
    let files: Vec<PathBuf> = files.map(|file| file.expect("one of them").path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let ran = lab(&file, &[]);
        assert_eq!(ran.status.code(), Some(0), "{}: {}", file.display(), said(&ran));
        let table = String::from_utf8_lossy(&ran.stdout).into_owned();
        let flows = std::fs::read_to_string(&file).expect("it is read").matches("[[flow]]").count();
        let ended = table.lines().filter(|line| line.ends_with("  done")).count();
        assert_eq!(ended, flows, "{table}");
        assert!(table.contains("mean length") && table.contains("seed 0, trace "), "{table}");
    }
}

#[test]
fn a_file_that_is_wrong_or_missing_is_named_with_its_line() {
    let scratch = std::env::temp_dir().join(format!("network-{}.toml", std::process::id()));
    std::fs::write(&scratch, "[[node]]\nname = \"one\"\nkind = \"hots\"\n").expect("it is written");
    let ran = lab(&scratch, &[]);
    std::fs::remove_file(&scratch).expect("it is there");
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0));
    let what = format!("{}: line 3: kind: unknown kind of node `hots`", scratch.display());
    assert!(said(&ran).contains(&what), "{}", said(&ran));
    let ran = lab(&scratch, &[]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains(&format!("{}: cannot read: ", scratch.display())), "{}", said(&ran));
}

fn lab(file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wideload"));
    command.args(["lab", "network"]).arg(file).args(more).output().expect("it runs")
}

fn said(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

fn networks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/networks")
}
