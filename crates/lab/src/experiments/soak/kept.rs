//! The program and a configuration in, a gateway as its keeper has it out: reloaded, restarted, killed, ended.

use crate::trio::Trio;
use gateway::control::Client;
use port::namespace::Tether;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A gateway in the middle of three hosts, run by the command `wideload run`; ended when this is dropped.
pub(super) struct Kept<'a> {
    trio: &'a Trio,
    folder: TempDir,
    process: Child,
    _tether: Tether,
    heard: Receiver<String>,
    words: Vec<String>,
}

impl<'a> Kept<'a> {
    /// Starts it, with more lines for its wide side.
    pub(super) fn start(program: &Path, trio: &'a Trio, wide: &str) -> io::Result<Kept<'a>> {
        let folder = tempfile::tempdir()?;
        write(trio, folder.path(), wide)?;
        let mut command = Command::new(program);
        command.arg("run").arg(config(folder.path())).stderr(Stdio::piped());
        let (mut process, tether) = trio.middle.space().start(command)?;
        let said = process.stderr.take().expect("it was asked for");
        let (tell, heard) = channel();
        // It ends with the process that it listens to.
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut kept = Kept { trio, folder, process, _tether: tether, heard, words: Vec::new() };
        kept.wait_for("it works", |words| words.iter().any(|word| word.ends_with(": works")))?;
        trio.settle()?;
        Ok(kept)
    }

    /// Has it read its configuration anew, with other lines for its wide side.
    pub(super) fn reload(&mut self, wide: &str) -> io::Result<()> {
        write(self.trio, self.folder.path(), wide)?;
        self.tell_and_hear(Signal::HUP, ": reloaded")
    }

    /// Has it start anew.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        let before = self.worker()?;
        self.tell_and_hear(Signal::USR2, ": restarted")?;
        if self.worker()? == before {
            return Err(self.failed("it restarted, and the same process works"));
        }
        Ok(())
    }

    /// Kills the process that works, and waits until another does.
    pub(super) fn kill_worker(&mut self) -> io::Result<()> {
        let before = self.worker()?;
        kill_process(Pid::from_raw(before).expect("a process has a number above 0"), Signal::KILL)?;
        let until = Instant::now() + PATIENCE;
        while !self.children().iter().any(|pid| *pid != before && is_confined(*pid)) {
            if Instant::now() > until {
                return Err(self.failed("its worker process was killed, and no other began"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What is wrong with its books.
    pub(super) fn broken(&mut self) -> io::Result<Vec<String>> {
        let all = Client::connect(&control(self.folder.path()))?.status()?.all;
        let mut broken = Vec::new();
        for (label, way) in all.ways() {
            broken.extend(way.broken.iter().cloned());
            let (packets, bytes) = (way.unexplained.packets, way.unexplained.bytes);
            if packets != 0 || bytes != 0 {
                broken.push(format!("{label}: {packets} packets and {bytes} bytes are unexplained"));
            }
        }
        for (label, end) in all.ends().iter().filter(|(_, end)| end.unexplained != 0) {
            broken.push(format!("{label} end: {} packets are unexplained", end.unexplained));
        }
        Ok(broken)
    }

    /// Ends it.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.tell(Signal::TERM)?;
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(self.failed(&format!("it ended with {status}"))) }
    }

    fn tell_and_hear(&mut self, signal: Signal, answer: &str) -> io::Result<()> {
        let count = |words: &[String]| words.iter().filter(|word| word.ends_with(answer)).count();
        self.hear(Duration::ZERO);
        let before = count(&self.words);
        self.tell(signal)?;
        self.wait_for(answer, |words| count(words) > before)
    }

    fn tell(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }

    fn wait_for(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.words) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.hear(left) {
                return Err(self.failed(&format!("waited in vain for: {what}")));
            }
        }
        Ok(())
    }

    /// Takes what it says; false where it will say no more.
    fn hear(&mut self, patience: Duration) -> bool {
        match self.heard.recv_timeout(patience) {
            Ok(word) => self.words.push(word),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        self.words.extend(self.heard.try_iter());
        true
    }

    fn worker(&self) -> io::Result<i32> {
        self.children().into_iter().max().ok_or_else(|| self.failed("nobody works"))
    }

    fn children(&self) -> Vec<i32> {
        let keeper = self.process.id();
        let text = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn failed(&self, what: &str) -> io::Error {
        let last = self.words.iter().rev().take(3).rev().map(String::as_str).collect::<Vec<_>>().join(" | ");
        io::Error::other(format!("the gateway: {what}; it said last: {last}"))
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has it given up its rights, as whoever touches packets must have?
fn is_confined(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default().contains("Seccomp:\t2")
}

fn write(trio: &Trio, folder: &Path, wide: &str) -> io::Result<()> {
    let more = format!(
        "control = \"{}\"\nmetrics = \"{METRICS}\"\nuser = \"nobody\"\nanswer-from = [\"10.77.0.254\", \"fd77::fe\"]\n\
         [mss]\nraise = \"always\"",
        control(folder).display()
    );
    fs::write(config(folder), trio.border(&more, wide, ""))
}

fn config(folder: &Path) -> PathBuf {
    folder.join("border.toml")
}

fn control(folder: &Path) -> PathBuf {
    folder.join("border.sock")
}

/// Where its counters are fetched, inside the middle host.
pub(super) const METRICS: &str = "127.0.0.1:9469";
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);
