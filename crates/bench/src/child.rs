//! A harness's program -> its answers: one process, pinned to one CPU.
//!
//! Every measured system is a child process with the protocol of `crates/bench/peers/README.md`. `measure.rs`
//! decides when each one runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A harness process that has answered `ready`.
pub struct Harness {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    complaints: PathBuf,
    /// Version of the measured system, from the harness's `ready` line.
    pub version: String,
    /// Description of the system's output, from the harness's `ready` line.
    pub delivers: String,
}

/// A harness's answer to the command `run`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Nanoseconds per packet in the median section.
    pub ns: f64,
    /// Packets that the last section delivered.
    pub completed: u64,
}

impl Harness {
    /// Starts a harness on this CPU and waits until it is ready. The harness's standard error is written to a file
    /// in `folder`.
    ///
    /// # Errors
    /// The harness did not become ready; with its own message, if it wrote one.
    pub fn start(command: &mut Command, processor: usize, folder: &Path) -> Result<Harness, String> {
        let complaints = tempfile::Builder::new().prefix("said-").tempfile_in(folder);
        let complaints = complaints.and_then(|file| Ok(file.keep()?)).map_err(|error| error.to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints.0);
        let mut child = spawn_on(command, processor)
            .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (version, delivers) = (String::new(), String::new());
        let mut harness = Harness { child, stdin, lines, complaints: complaints.1, version, delivers };
        let line = harness.answer(STARTING)?;
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["ready", version, ref delivers @ ..] => {
                harness.version = version.to_string();
                harness.delivers = delivers.join(" ");
                Ok(harness)
            }
            ["cannot", ref why @ ..] => Err(format!("cannot: {}", why.join(" "))),
            _ => Err(format!("expected 'ready', got: {line}")),
        }
    }

    /// Runs sections until `ms` milliseconds of timed work are done.
    ///
    /// # Errors
    /// The harness gave an unexpected answer or none.
    pub fn run(&mut self, ms: u64) -> Result<Run, String> {
        let line = self.ask(&format!("run {ms}"), Duration::from_millis(ms * 50) + ANSWERING)?;
        parse_run(&line).ok_or(format!("unexpected answer to run: {line}"))
    }

    /// Makes the harness write the output of one section to its file.
    ///
    /// # Errors
    /// The harness gave an unexpected answer or none.
    pub fn verify(&mut self) -> Result<(), String> {
        let line = self.ask("verify", ANSWERING)?;
        if line.starts_with("done") { Ok(()) } else { Err(format!("unexpected answer to verify: {line}")) }
    }

    fn ask(&mut self, command: &str, timeout: Duration) -> Result<String, String> {
        // A dead program cannot read; the answer that follows says why it died.
        let _ = writeln!(self.stdin, "{command}").and_then(|()| self.stdin.flush());
        self.answer(timeout)
    }

    fn answer(&mut self, timeout: Duration) -> Result<String, String> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer in {} s", timeout.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(|error| error.to_string())?;
                Err(match last_line(&self.complaints) {
                    Some(complaint) => format!("died ({status}): {complaint}"),
                    None => format!("died ({status})"),
                })
            }
        }
    }
}

impl Drop for Harness {
    /// Kills the process, which may be dead already.
    fn drop(&mut self) {
        let _ = writeln!(self.stdin, "quit");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse_run(line: &str) -> Option<Run> {
    let mut words = line.split('\t');
    let ns = words.next()?.trim().parse().ok().filter(|ns: &f64| ns.is_finite() && *ns >= 0.0)?;
    let completed = words.next()?.trim().parse().ok()?;
    words.next()?.trim().parse::<u64>().ok()?;
    Some(Run { ns, completed })
}

/// Starts a child process on this CPU. A child keeps the CPU affinity of the thread that starts it.
fn spawn_on(command: &mut Command, processor: usize) -> io::Result<Child> {
    let allowed = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set(processor);
    sched_setaffinity(None, &one)?;
    let child = command.spawn();
    sched_setaffinity(None, &allowed)?;
    child
}

/// Pins the calling thread to the last allowed CPU.
///
/// # Errors
/// The kernel does not report or change the CPU affinity.
pub fn stay_on_last_processor() -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(last_processor()?);
    Ok(sched_setaffinity(None, &one)?)
}

/// Returns the last CPU that this process may use, because the first ones do more work for other programs.
///
/// # Errors
/// The kernel does not report the allowed CPUs.
pub fn last_processor() -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    (0..CpuSet::MAX_CPU).rev().find(|one| allowed.is_set(*one)).ok_or_else(|| io::Error::other("no processor"))
}

/// Returns the last line of a file with a program's standard error; `None` if there is no such line.
pub fn last_line(path: &Path) -> Option<String> {
    let lines = BufReader::new(File::open(path).ok()?).lines().map_while(Result::ok);
    lines.filter(|line| !line.trim().is_empty() && !line.contains("RUST_BACKTRACE")).last()
}

/// Longest time until a harness is ready.
const STARTING: Duration = Duration::from_secs(120);
/// Longest time until an answer, in addition to the requested timed work.
const ANSWERING: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_three_numbers() {
        assert_eq!(parse_run("12.5\t64\t7"), Some(Run { ns: 12.5, completed: 64 }));
        for wrong in ["", "12.5", "12.5\t64", "NaN\t64\t7", "-1\t64\t7", "12.5\tmany\t7", "ready\t1\t2"] {
            assert_eq!(parse_run(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_harness_that_dies_is_quoted() {
        let start = |script: &str| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let mut harness = Harness::start(&mut command, last_processor().unwrap(), folder.path())?;
            harness.run(1).map(|run| run.ns)
        };
        assert_eq!(start("printf 'ready\\t1\\twhole\\n'; read line; printf '5\\t6\\t7\\n'; read line"), Ok(5.0));
        assert_eq!(start("printf 'cannot\\tno huge pages\\n'"), Err("cannot: no huge pages".to_string()));
        assert_eq!(
            start("echo out of memory >&2; exit 3"),
            Err("died (exit status: 3): out of memory".to_string())
        );
        let later = start("printf 'ready\\t1\\twhole\\n'; read line; echo tripped >&2; exit 4");
        assert_eq!(later, Err("died (exit status: 4): tripped".to_string()));
        assert_eq!(start("echo hello"), Err("expected 'ready', got: hello".to_string()));
    }
}
