//! The command's output for traffic of other programs, and the results of other programs for its output.
//!
//! Each test names the programs and files that it needs. If one is missing, the test is ignored with that name.
//! With `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, a missing program is a failure.

mod collect;
mod dissect;
mod gro;
mod streams;
mod truth;
mod tshark;
mod tunnels;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let tests = vec![
        trial("every_captured_datagram_is_reassembled_as_by_others", &[CAPTURES], truth::compare),
        trial("every_capture_is_rewritten_without_loss", &[CAPTURES], truth::rewrite_all),
        trial("tshark_finds_no_new_faults", &[TSHARK], tshark::finds_nothing_new),
        trial("tshark_finds_the_same_payloads", &[TSHARK], tshark::finds_the_same_payloads),
        trial("tcp_streams_are_the_same_at_every_size", &[TSHARK], streams::are_the_same_at_every_size),
        trial("gso_packets_match_linux_and_segment_again", &[CAPTURES], gro::makes_what_linux_makes),
        trial("tunnels_are_counted_and_pass_unchanged", &[CAPTURES, TSHARK], tunnels::are_counted_and_pass),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A precondition of a test.
#[derive(Clone, Copy)]
enum Need {
    /// A folder of captures with ground truth, beside the project or named by `WIDELOAD_CAPTURES`.
    Captures,
    /// A program on the path.
    Program(&'static str),
}

fn trial(name: &str, needs: &'static [Need], test: fn() -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || match needs.iter().find(|need| need.is_missing()) {
        Some(Need::Program(program)) if std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some() => {
            Err(format!("{program} is not installed, and WIDELOAD_REQUIRE_TOOLS is set").into())
        }
        Some(Need::Program(program)) => {
            Ok(Completion::ignored_with(format!("needs {program}; install it with your packages")))
        }
        Some(Need::Captures) => {
            Ok(Completion::ignored_with("needs the captures with ground truth; set WIDELOAD_CAPTURES"))
        }
        None => test().map(|()| Completion::Completed),
    })
}

impl Need {
    fn is_missing(&self) -> bool {
        match self {
            Need::Captures => shared_captures().is_none(),
            Need::Program(program) => Command::new(program).arg("--version").output().is_err(),
        }
    }
}

/// The captures with ground truth.
fn shared_captures() -> Option<PathBuf> {
    let named = std::env::var_os("WIDELOAD_CAPTURES").map(PathBuf::from);
    let beside = || root().join("../shared/captures").canonicalize().ok();
    named.or_else(beside).filter(|folder| folder.join("truth_summary.tsv").exists())
}

/// The project's own captures.
fn own_captures() -> Vec<PathBuf> {
    captures_in(&root().join("captures"))
}

/// Files that are captures by their names, sorted.
fn captures_in(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let is_capture =
        |path: &PathBuf| path.extension().is_some_and(|end| CAPTURE_ENDS.iter().any(|known| end == *known));
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(is_capture).collect();
    paths.sort();
    paths
}

/// A row of the index of captures.
struct Indexed {
    file: String,
    classes: Vec<String>,
}

impl Indexed {
    /// Whether the capture belongs to one of these classes.
    fn is_any(&self, classes: &[&str]) -> bool {
        self.classes.iter().any(|class| classes.contains(&class.as_str()))
    }
}

/// The index of the captures with ground truth.
fn indexed(folder: &Path) -> Result<Vec<Indexed>, Failed> {
    let table = std::fs::read_to_string(folder.join("index.tsv"))?;
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    let column = |name: &str| names.iter().position(|it| *it == name).ok_or(format!("no column {name}"));
    let (file, classes) = (column("file")?, column("classes")?);
    let row = |fields: Vec<&str>| Indexed {
        file: fields[file].to_owned(),
        classes: fields[classes].split(',').map(str::to_owned).collect(),
    };
    Ok(lines.map(row).collect())
}

/// Runs `wideload rewrite` and returns its report. A damaged input is read as far as possible.
fn rewrite(input: &Path, output: &Path, args: &[&str]) -> Result<Value, Failed> {
    let run = Command::new(env!("CARGO_BIN_EXE_wideload"))
        .args(["rewrite", "--json"])
        .args(args)
        .args([input, output])
        .output()?;
    if !matches!(run.status.code(), Some(0 | 3)) {
        let said = String::from_utf8_lossy(&run.stderr);
        return Err(format!("{} {}: {}: {said}", input.display(), args.join(" "), run.status).into());
    }
    Ok(serde_json::from_slice(&run.stdout)?)
}

/// The number of packets with this outcome in a report.
fn fate(report: &Value, kind: &str, name: &str) -> u64 {
    let fates = report["fates"].as_array().map(Vec::as_slice).unwrap_or_default();
    fates
        .iter()
        .filter(|fate| fate["kind"] == kind && fate["name"] == name)
        .filter_map(|fate| fate["packets"].as_u64())
        .sum()
}

/// The number of frames that passed unchanged because they have no supported packet.
fn passed(report: &Value) -> u64 {
    let fates = report["fates"].as_array().map(Vec::as_slice).unwrap_or_default();
    fates.iter().filter(|fate| fate["kind"] == "passed").filter_map(|fate| fate["packets"].as_u64()).sum()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const CAPTURES: Need = Need::Captures;
const TSHARK: Need = Need::Program("tshark");
const CAPTURE_ENDS: [&str; 4] = ["pcap", "pcapng", "dmp", "cap"];
