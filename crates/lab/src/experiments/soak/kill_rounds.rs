//! Program and configuration -> a border in the middle of three hosts that a test can reload, restart, kill and
//! end.
//!
//! `running.rs` controls the processes. This file adds the network and the check of the counters.

use super::super::running::{Running, spelled};
use crate::three_hosts::ThreeHosts;
use daemon::control::Client;
use rustix::process::Signal;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A border in the middle of three hosts, run by the command `wideload run`. Dropping the value ends the border.
pub(super) struct KillRounds<'a> {
    three_hosts: &'a ThreeHosts,
    folder: TempDir,
    running: Running,
}

impl<'a> KillRounds<'a> {
    /// Starts the border, with extra configuration lines for its wide side.
    pub(super) fn start(program: &Path, three_hosts: &'a ThreeHosts, wide: &str) -> io::Result<KillRounds<'a>> {
        let folder = tempfile::tempdir()?;
        write(three_hosts, folder.path(), wide)?;
        let running = Running::start(program, three_hosts.middle.space(), &config(folder.path()))?;
        three_hosts.wait_until_forwarding()?;
        Ok(KillRounds { three_hosts, folder, running })
    }

    /// Reloads the border's configuration, with other lines for its wide side.
    pub(super) fn reload(&mut self, wide: &str) -> io::Result<()> {
        write(self.three_hosts, self.folder.path(), wide)?;
        self.running.tell_and_hear(Signal::HUP, ": reloaded")
    }

    /// Restarts the border with `wideload restart`.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        let before = self.running.worker()?;
        self.running.tell_and_hear(Signal::USR2, ": restarted")?;
        if self.running.worker()? == before {
            return Err(self.running.failed("it restarted, and the same process works"));
        }
        Ok(())
    }

    /// Kills the worker process, and waits until its replacement works.
    pub(super) fn kill_worker(&mut self) -> io::Result<()> {
        self.running.kill_worker()
    }

    /// Describes the faults of the border's counters.
    pub(super) fn broken(&mut self) -> io::Result<Vec<String>> {
        let all = Client::connect(&control(self.folder.path()))?.status()?.all;
        let mut broken = Vec::new();
        for (label, direction) in all.directions() {
            broken.extend(direction.broken.iter().cloned());
            let (packets, bytes) = (direction.unexplained.packets, direction.unexplained.bytes);
            if packets != 0 || bytes != 0 {
                broken.push(format!("{label}: {packets} packets and {bytes} bytes are unaccounted for"));
            }
        }
        for (label, end) in all.ends().iter().filter(|(_, end)| end.unexplained != 0) {
            broken.push(format!("{label} end: {} packets are unaccounted for", end.unexplained));
        }
        Ok(broken)
    }

    /// Ends the border.
    pub(super) fn end(self) -> io::Result<()> {
        self.running.tell(Signal::TERM)?;
        let status = self.running.end()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("the gateway exited with status {}", spelled(status))))
        }
    }
}

fn write(three_hosts: &ThreeHosts, folder: &Path, wide: &str) -> io::Result<()> {
    let more = format!(
        "control = \"{}\"\nmetrics = \"{METRICS}\"\nuser = \"nobody\"\nicmp-source = [\"10.77.0.254\", \"fd77::fe\"]\n\
         [mss]\nraise = \"always\"",
        control(folder).display()
    );
    fs::write(config(folder), three_hosts.border(&more, wide, ""))
}

fn config(folder: &Path) -> PathBuf {
    folder.join("border.toml")
}

fn control(folder: &Path) -> PathBuf {
    folder.join("border.sock")
}

/// Address of the border's counters, inside the middle host.
pub(super) const METRICS: &str = "127.0.0.1:9469";
