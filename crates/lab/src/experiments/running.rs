//! Program and configuration -> a gateway process that a test can signal, read, kill and end.
//!
//! Experiments with crashes and restarts need the real program with its two processes. The library alone is not
//! enough.

use linux::namespace::{Namespace, NamespaceGuard};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A gateway run by the command `wideload run`. Dropping the value ends the gateway.
pub(super) struct Running {
    process: Child,
    _tether: NamespaceGuard,
    heard: Receiver<String>,
    words: Vec<String>,
}

impl Running {
    /// Starts the gateway in a namespace, and waits until it is ready.
    pub(super) fn start(program: &Path, space: &Namespace, config: &Path) -> io::Result<Running> {
        let mut command = Command::new(program);
        // A terminal sends signals to a whole process group. The gateway gets a process group of its own.
        command.arg("run").arg(config).stderr(Stdio::piped()).process_group(0);
        let (mut process, tether) = space.start(command)?;
        let said = process.stderr.take().expect("it was asked for");
        let (tell, heard) = channel();
        // The thread ends with the process that it reads from.
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut running = Running { process, _tether: tether, heard, words: Vec::new() };
        running.wait_for("it works", |words| words.iter().any(|word| word.ends_with(": works")))?;
        Ok(running)
    }

    /// Sends a signal to the supervisor.
    pub(super) fn tell(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }

    /// Sends a signal to the supervisor's process group, as a terminal does.
    pub(super) fn tell_group(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process_group(Pid::from_child(&self.process), signal)?)
    }

    /// Sends a signal, and waits for a log line that contains `answer`.
    pub(super) fn tell_and_hear(&mut self, signal: Signal, answer: &str) -> io::Result<()> {
        let count = |words: &[String]| words.iter().filter(|word| word.contains(answer)).count();
        self.receive(Duration::ZERO);
        let before = count(&self.words);
        self.tell(signal)?;
        self.wait_for(answer, |words| count(words) > before)
    }

    /// Kills the worker process, and waits until its replacement works.
    pub(super) fn kill_worker(&mut self) -> io::Result<()> {
        let before = self.worker()?;
        kill_process(before, Signal::KILL)?;
        let until = Instant::now() + TIMEOUT;
        while !self.children().iter().any(|pid| *pid != before && is_confined(*pid)) {
            if Instant::now() > until {
                return Err(self.failed("the worker process was killed, and no new one started"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Kills the supervisor alone, and waits until both processes have ended.
    pub(super) fn kill_supervisor(mut self) -> io::Result<ExitStatus> {
        let children = self.children();
        self.tell(Signal::KILL)?;
        self.gone(&children)
    }

    /// Kills both processes at the same time, so that neither can react to the end of the other.
    pub(super) fn kill_both(mut self) -> io::Result<ExitStatus> {
        let children = self.children();
        for signal in [Signal::STOP, Signal::KILL] {
            self.tell(signal)?;
            for child in &children {
                // A child may already have ended together with the supervisor.
                let _ = kill_process(*child, signal);
            }
        }
        self.gone(&children)
    }

    /// Waits until the supervisor and the worker process have ended by themselves. Returns the exit status.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        let children = self.children();
        self.gone(&children)
    }

    fn gone(&mut self, children: &[Pid]) -> io::Result<ExitStatus> {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()?
                && !children.iter().any(|child| lives(*child))
            {
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(self.failed("the gateway does not exit"));
            }
            thread::sleep(LOOK);
        }
    }

    fn wait_for(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> io::Result<()> {
        let until = Instant::now() + TIMEOUT;
        while !is_so(&self.words) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.receive(left) {
                return Err(self.failed(&format!("timed out waiting for: {what}")));
            }
        }
        Ok(())
    }

    /// Reads the gateway's log. Returns false if the log has ended.
    fn receive(&mut self, timeout: Duration) -> bool {
        match self.heard.recv_timeout(timeout) {
            Ok(word) => self.words.push(word),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        self.words.extend(self.heard.try_iter());
        true
    }

    /// Returns the worker process's ID.
    pub(super) fn worker(&self) -> io::Result<Pid> {
        let newest = self.children().into_iter().max_by_key(|pid| pid.as_raw_nonzero());
        newest.ok_or_else(|| self.failed("nobody works"))
    }

    fn children(&self) -> Vec<Pid> {
        let supervisor = self.process.id();
        let text = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }

    /// Returns an error with the gateway's last log lines.
    pub(super) fn failed(&self, what: &str) -> io::Error {
        let last = self.words.iter().rev().take(3).rev().map(String::as_str).collect::<Vec<_>>().join(" | ");
        io::Error::other(format!("the gateway: {what}; its last output: {last}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has ended need not be killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an exit status as text: the exit code, or `signal` and the signal's number.
pub(super) fn spelled(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Whether a process has dropped its privileges, as every packet-handling process must.
fn is_confined(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.unwrap_or_default().contains("Seccomp:\t2")
}

/// Whether a process is alive; false for a zombie.
fn lives(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

const TIMEOUT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);
