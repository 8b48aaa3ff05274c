//! A command line -> whether `wideload` accepts its arguments without a warning, and its files exist.
//!
//! Commands that measure for minutes, and commands that no test is allowed to run, have only this test.

use crate::pages::{Command, Marker, root};
use clap::Parser;
use clap::error::ErrorKind;
use libtest_mimic::Failed;
use std::fs;
use wideload::args::{Args, renamed};

/// Checks the arguments of all commands.
///
/// # Errors
/// The commands that are wrong, with page and line.
pub fn check(commands: &[Command]) -> Result<(), Failed> {
    let mut problems: Vec<String> = Vec::new();
    for command in commands {
        let problem = |why: String| format!("{}: {}: {why}", command.place, command.text);
        problems.extend(calls(&command.text).filter_map(|call| parse(&call).err()).map(problem));
        problems.extend(calls(&command.text).flat_map(former_names).map(problem));
        problems.extend(missing_files(&command.text).map(problem));
    }
    let in_vain = |name: &&str| !commands.iter().any(|command| is_call_of(&command.text, name));
    problems.extend(measured().filter(in_vain).map(|name| format!("{name}: no page has it")));
    problems.extend(MEASURES.iter().filter_map(|(name, place, call)| missing_call(name, place, call)));
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Whether the test checks only the arguments of this command, because it measures for long.
pub fn measures(command: &Command) -> bool {
    command.marker == Marker::Root && measured().any(|name| is_call_of(&command.text, name))
}

/// The names of the commands that measure for long.
fn measured() -> impl Iterator<Item = &'static str> {
    MEASURES.into_iter().map(|(name, ..)| name).chain(BY_HAND)
}

/// The arguments of each `wideload` in a line of the shell, the program's name included.
pub fn calls(text: &str) -> impl Iterator<Item = Vec<String>> {
    let text = text.replace("cargo run --release -- ", "wideload ");
    let calls: Vec<_> = text.split(" | ").flat_map(|part| part.split(" && ")).map(arguments).collect();
    calls.into_iter().filter(|words| words.first().is_some_and(|word| word == "wideload"))
}

/// The words of one command, without its redirections.
fn arguments(part: &str) -> Vec<String> {
    let part = part.split([' ']).take_while(|word| !word.starts_with(['<', '>']));
    let words = part.filter(|word| !word.is_empty()).skip_while(|word| matches!(*word, "sudo" | "time"));
    words.map(|word| word.trim_matches(['"', '\'']).to_owned()).collect()
}

/// The arguments, if they are accepted.
pub fn parse(words: &[String]) -> Result<Option<Args>, String> {
    match Args::try_parse_from(words) {
        Ok(args) => Ok(Some(args)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// A warning for each former name among the arguments.
fn former_names(words: Vec<String>) -> Vec<String> {
    renamed::warnings(words.into_iter().skip(1))
}

fn is_call_of(text: &str, name: &str) -> bool {
    calls(text).any(|words| format!("{} ", words[1..].join(" ")).starts_with(&format!("{name} ")))
}

/// Files of the repository that a command names but that do not exist.
fn missing_files(text: &str) -> impl Iterator<Item = String> {
    let words = text.split([' ', '=', '<']).map(|word| word.trim_matches(['"', '\'']));
    let ours = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    ours.filter(|word| !root().join(word).exists()).map(|word| format!("{word} does not exist"))
}

/// The problem with a place that does not exist, or that does not run the command.
fn missing_call(name: &str, place: &str, call: &str) -> Option<String> {
    match fs::read_to_string(root().join(place)) {
        Ok(text) if text.contains(call) => None,
        Ok(_) => Some(format!("{name}: {place} does not contain `{call}`")),
        Err(error) => Some(format!("{name}: {place}: {error}")),
    }
}

const FOLDERS: [&str; 4] = ["captures/", "packaging/", "crates/", "docs/"];

/// Commands that measure for long, the place that runs each of them in a short form, and its call there.
const MEASURES: [(&str, &str, &str); 19] = [
    ("demo", "crates/lab/tests/experiments.rs", "demo::run(&settings"),
    ("lab border", "crates/lab/tests/experiments.rs", " border(&settings"),
    ("lab wide-interface", "crates/lab/tests/experiments.rs", " wide_interface(&settings"),
    ("lab dips", "crates/lab/tests/experiments.rs", " dips(&settings"),
    ("lab workers", "crates/lab/tests/experiments.rs", " workers(&WorkersSettings"),
    ("lab hold", "crates/lab/tests/experiments.rs", " hold(&settings"),
    ("lab ping-pong", "crates/lab/tests/ping_pong.rs", " ping_pong(&settings"),
    ("lab calibrate", "crates/lab/tests/experiments.rs", " calibration(&trials"),
    ("lab differential", "crates/lab/tests/experiments.rs", " differential(&settings"),
    ("lab floods", "crates/lab/tests/experiments.rs", " floods(&settings"),
    ("lab fairness", "crates/lab/tests/fairness.rs", " fairness(&settings"),
    ("lab receive-offload", "crates/lab/tests/receive_offload.rs", " receive_offload(&settings"),
    ("lab path-change", "crates/lab/tests/path_change.rs", " path_change(&settings"),
    ("lab acks", "crates/lab/tests/acks.rs", " acks(&settings"),
    ("lab segment-sizes", "crates/lab/tests/segment_sizes.rs", " segment_sizes(&settings"),
    ("lab soak", "crates/cli/tests/soak.rs", "\"lab\", \"soak\""),
    ("lab lifecycle", "crates/cli/tests/lifecycle.rs", "\"lab\", \"lifecycle\""),
    ("lab transparency", "crates/lab/tests/transparency.rs", " transparency(&"),
    ("lab transparency", ".ci/run", "/wideload\" lab transparency $"),
];
/// Commands that measure for long, and that only a person runs: on a busy machine the emulator is late.
const BY_HAND: [&str; 1] = ["lab tcp"];
