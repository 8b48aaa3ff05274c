//! A new program at the same path -> this process executes it, with all open descriptors.
//!
//! This updates a gateway without packet loss. The old worker process works until its successor is ready, and then
//! hands over its held packets.

use super::child::{Child, State};
use super::{START_TIMEOUT, Successor, Supervisor, Waiter, read};
use crate::fd_store::{self, RestartState};
use crate::messages::{ToWorker, say};
use crate::notify;
use crate::roles::HostChanges;
use crate::service::stays;
use linux::descriptors::{self, Stay};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

impl Supervisor {
    /// Replaces this process's program by the program at the same path, which takes over all open descriptors.
    /// Changes nothing if the new program or the configuration is unusable.
    pub(super) fn restart(&mut self, waiter: Waiter) {
        self.awaited = waiter;
        if let Err(error) = self.check_restart().and_then(|()| self.become_successor()) {
            self.say(&format!("not restarted, the gateway continues unchanged: {error}"));
            self.answer_restart(Err(format!("not restarted, the gateway continues unchanged: {error}")));
        }
    }

    pub(super) fn check_restart(&self) -> Result<(), String> {
        let (_, config) = read(&self.path).map_err(|problems| problems.to_string())?;
        stays(&self.config, &config).map_err(|error| error.to_string())?;
        self.sockets.could_suit(&config).map_err(|error| error.to_string())?;
        self.try_program()
    }

    /// Checks that the new program knows the format of the restart state and accepts the configuration.
    pub(super) fn try_program(&self) -> Result<(), String> {
        let program = self.program.display();
        let mut trial = Command::new(&self.program)
            .args(["run", "--check", "--after", &fd_store::VERSION.to_string()])
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_remove(notify::SOCKET)
            .env_remove(fd_store::VARIABLE)
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match trial.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{program} cannot take over: {status}")),
                Ok(None) if Instant::now() < until => std::thread::sleep(TRIAL_LOOK),
                Ok(None) | Err(_) => {
                    let _ = trial.kill();
                    let _ = trial.wait();
                    return Err(format!("{program} did not report within {START_TIMEOUT:?} that it can take over"));
                }
            }
        }
    }

    /// Executes the new program. Returns only on failure.
    pub(super) fn become_successor(&self) -> Result<(), String> {
        let open = |worker: &Child| {
            (
                worker.pid.as_raw_nonzero().get(),
                descriptors::number(&worker.process),
                descriptors::number(&worker.socket),
            )
        };
        let metrics = self.sockets.metrics.as_ref();
        let restart_state = RestartState {
            version: fd_store::VERSION,
            process: process::id(),
            text: self.text.clone(),
            ports: fd_store::numbers(&self.ports),
            control: (self.sockets.control.path().to_owned(), descriptors::number(self.sockets.control.listener())),
            control_file: Some(self.sockets.control.identity()),
            metrics: metrics.map(|(address, listener)| (*address, descriptors::number(listener))),
            heartbeat: self.heartbeat.as_ref().map(|heartbeat| descriptors::number(heartbeat.fd())),
            worker: self.worker.as_ref().map(open),
            claims: self.claims.numbers(),
            links: self.host_changes.as_ref().map(HostChanges::links).unwrap_or_default(),
            awaited: self.awaited,
            losses: self.losses,
            wanted: self.wanted.clone(),
        };
        let (_memory, number) = restart_state.leave().map_err(|error| error.to_string())?;
        let mut variables: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| name != fd_store::VARIABLE).collect();
        variables.push((fd_store::VARIABLE.into(), number.into()));
        let variables: Vec<(&OsStr, &OsStr)> =
            variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
        let arguments = [OsStr::new("run"), self.path.as_os_str()];
        let error = descriptors::become_program(self.program.as_os_str(), &arguments, &variables);
        descriptors::stay_all(Stay::InThisProgram).map_err(|error| error.to_string())?;
        Err(error.to_string())
    }

    /// Starts a successor of the worker process. The worker process works until the successor is ready.
    pub(super) fn start_successor(&mut self) {
        let successor = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|(read, write)| Ok(Successor { child: self.spawn(Some(&read))?, pipe: Some(write) }));
        match successor {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => {
                let said = format!("restart cancelled, the gateway continues unchanged: {error}");
                self.say(&said);
                self.answer_restart(Err(said));
            }
        }
    }

    /// Hands the packets of the worker process to its successor, if the successor is ready. Kills a successor that
    /// is not ready in time.
    pub(super) fn poll_successor(&mut self) {
        let Some(mut successor) = self.successor.take() else { return };
        let state = self.attend(&mut successor.child);
        if let State::Died(how) = state {
            return self.abandon_successor(&how);
        }
        let has_begun = successor.pipe.is_none();
        if has_begun && self.worker.is_none() && successor.child.beats {
            self.worker = Some(successor.child);
            self.notify.ready();
            self.say("restarted");
            return;
        }
        if successor.child.is_ready
            && let Some(pipe) = successor.pipe.take()
        {
            // The answer is sent before the hand-over, because the old worker process sends no answers after it.
            self.answer_restart(Ok("the worker process hands over to its successor".to_owned()));
            self.wanted.iter_mut().for_each(|(_, waiter)| *waiter = None);
            if let Some(heartbeat) = &self.heartbeat {
                // New packets wait meanwhile, so that all fragments of a datagram reach the same worker.
                heartbeat.excuse(HAND_OVER_TIMEOUT);
            }
            if let Some(worker) = &mut self.worker {
                worker.heard_at = Instant::now();
                // A process that does not react is killed after the time-out.
                let _ = say(&worker.socket, &ToWorker::HandOver, &[pipe.as_fd()]);
            }
        } else if successor.child.heard_at.elapsed() > START_TIMEOUT {
            successor.child.kill();
            return self.abandon_successor("did not start in time, and was killed");
        }
        self.successor = Some(successor);
    }

    pub(super) fn abandon_successor(&mut self, how: &str) {
        let then =
            if self.worker.is_some() { "the gateway continues unchanged" } else { "a new worker process starts" };
        let said = format!("restart cancelled, {then}: the new worker process {how}");
        self.say(&said);
        self.answer_restart(Err(said));
        self.notify.ready();
    }

    /// Sends the result to the client that waits for a restart.
    pub(super) fn answer_restart(&mut self, said: Result<String, String>) {
        let waiter = self.awaited.take();
        self.answer(waiter, said);
    }
}

/// Longest time for which packets wait during a hand-over.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(500);
const TRIAL_LOOK: Duration = Duration::from_millis(2);
