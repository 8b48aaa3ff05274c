//! What to begin with -> a worker process; whether it lives, and how it ended.

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

/// A worker process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
    pub(super) socket: OwnedFd,
    /// It has prepared all.
    pub(super) is_ready: bool,
    /// It works.
    pub(super) beats: bool,
    /// When it last spoke, or began.
    pub(super) heard_at: Instant,
}

/// How a look at a worker process ended.
#[derive(Debug)]
pub(super) enum State {
    Lives,
    /// In this manner.
    Died(String),
}

impl Child {
    /// Starts one of this program, and tells it what to begin with.
    pub(super) fn spawn(begin: Begin, descriptors: &[BorrowedFd<'_>]) -> io::Result<Child> {
        let [ours, theirs] = descriptors::pair()?;
        let said =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot start a worker process: {error}"));
        let child = Command::new(OWN_PROGRAM)
            .arg0("wideload")
            .arg(WORK)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // What a terminal sends to all of a group is for the keeper.
            .process_group(0)
            .env_remove(notify::SOCKET)
            .env_remove(fd_store::VARIABLE)
            // It may open no file to read one from.
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

    /// One that the program before this one started.
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

    /// Ends it at once, whatever it does.
    pub(super) fn kill(&self) {
        // One that has ended needs no end.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

fn manner(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => ENDED.to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "is gone".to_owned(),
    }
}

/// How a worker process ends by itself.
pub(super) const ENDED: &str = "ended";
/// The argument that makes this program a worker process.
pub const WORK: &str = "work";
/// The program of this process, also where its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
