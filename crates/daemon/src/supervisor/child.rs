//! The first message -> a worker process, its state, and the manner of its end.
//!
//! The supervisor decides what follows from a worker process's end; this module only observes it.

use crate::fd_store;
use crate::messages::{Begin, ToWorker, say};
use crate::notify;
use linux::descriptors;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A worker process, as the supervisor knows it.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
    pub(super) socket: OwnedFd,
    /// Whether the process has reported that it is ready.
    pub(super) is_ready: bool,
    /// Whether the process has reported a heartbeat.
    pub(super) beats: bool,
    /// Time of the process's last message; before the first one, the time of its start.
    pub(super) heard_at: Instant,
}

/// State of a worker process.
#[derive(Debug)]
pub(super) enum State {
    Lives,
    /// The process has died. The text describes how.
    Died(String),
}

impl Child {
    /// Starts a worker process of this program, and sends it the first message.
    pub(super) fn spawn(begin: Begin, descriptors: &[BorrowedFd<'_>]) -> io::Result<Child> {
        let [ours, theirs] = descriptors::pair()?;
        let said =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot start a worker process: {error}"));
        let child = Command::new(OWN_PROGRAM)
            .arg0("wideload")
            .arg(WORK)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // A terminal's signals to a process group are meant for the supervisor.
            .process_group(0)
            .env_remove(notify::SOCKET)
            .env_remove(fd_store::VARIABLE)
            // A worker process cannot open files, so it cannot read its symbols for a backtrace.
            .env("RUST_BACKTRACE", "0")
            .spawn()
            .map_err(said)?;
        let child = Child::new(child.id() as i32, ours)?;
        match say(&child.socket, &ToWorker::Begin(begin), descriptors) {
            Ok(()) => Ok(child),
            Err(error) => {
                child.kill();
                Err(said(error))
            }
        }
    }

    fn new(pid: i32, socket: OwnedFd) -> io::Result<Child> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child { pid, process, socket, is_ready: false, beats: false, heard_at: Instant::now() })
    }

    /// Adopts a worker process of the predecessor program.
    pub(super) fn adopt(pid: i32, process: OwnedFd, socket: OwnedFd) -> io::Result<Child> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Child { pid, process, socket, is_ready: true, beats: true, heard_at: Instant::now() })
    }

    pub(super) fn state(&self) -> State {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(self.process.as_fd()), options) {
            Ok(None) | Err(Errno::INTR) => State::Lives,
            Ok(Some(status)) => State::Died(manner(&status)),
            Err(error) => State::Died(format!("is gone: {}", io::Error::from(error))),
        }
    }

    /// Kills the process.
    pub(super) fn kill(&self) {
        // The process may have ended already.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

fn manner(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => ENDED.to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "is gone".to_owned(),
    }
}

/// Description of a worker process that ended by itself.
pub(super) const ENDED: &str = "ended";
/// The argument that makes this program a worker process.
pub const WORK: &str = "work";
/// Path of this process's program. The path still leads to this program after the program's file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
