//! What the command makes of traffic and what other programs make of its output.
//!
//! Each test names what it needs. Where that is missing, the test is ignored with that name; with
//! `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, a missing program is a failure.

mod collect;
mod truth;
mod tshark;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let tests = vec![
        trial("every_datagram_of_the_captures_is_as_others_rejoin_it", Need::Captures, truth::compare),
        trial("every_capture_is_rewritten_without_loss", Need::Captures, truth::rewrite_all),
        trial(
            "tshark_finds_nothing_wrong_that_was_not_wrong_before",
            Need::Program("tshark"),
            tshark::finds_nothing_new,
        ),
        trial("tshark_finds_the_same_payloads", Need::Program("tshark"), tshark::finds_the_same_payloads),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// What a test cannot do without.
#[derive(Clone, Copy)]
enum Need {
    /// A folder of captures with ground truth, beside the project or named by `WIDELOAD_CAPTURES`.
    Captures,
    /// A program on the path.
    Program(&'static str),
}

fn trial(name: &str, need: Need, test: fn() -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        let missing = match need {
            Need::Captures if shared_captures().is_none() => {
                "the captures with ground truth; set WIDELOAD_CAPTURES"
            }
            Need::Program(program) if Command::new(program).arg("--version").output().is_err() => {
                if std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some() {
                    return Err(format!("{program} is not installed, and WIDELOAD_REQUIRE_TOOLS is set").into());
                }
                return Ok(Completion::ignored_with(format!("needs {program}; install it with your packages")));
            }
            _ => return test().map(|()| Completion::Completed),
        };
        Ok(Completion::ignored_with(format!("needs {missing}")))
    })
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const CAPTURE_ENDS: [&str; 4] = ["pcap", "pcapng", "dmp", "cap"];
