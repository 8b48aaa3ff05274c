//! A stop request -> the end of a gateway.
//!
//! A gateway must leave the host as it was. So held packets are sent, hosts get ICMP errors, and changes to the
//! host are reverted.

use super::child::{Child, State};
use super::{LOOK, Supervisor};
use crate::messages::{ToWorker, say};
use gateway::commands::ShutdownNotices;
use gateway::worker::FAREWELL_TIMEOUT;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Makes the worker process release its packets and end. Dropping `self` reverts the changes to the host.
    pub(super) fn end(mut self) {
        self.notify.stopping();
        if let Some(seized) = &self.host_changes {
            seized.stop_taking();
        }
        match self.successor.take() {
            Some(successor) if successor.pipe.is_some() => successor.child.kill(),
            Some(successor) => self.release(successor.child),
            None => {}
        }
        if let Some(worker) = self.worker.take() {
            self.release(worker);
        }
    }

    pub(super) fn release(&mut self, mut child: Child) {
        // A process that does not react is killed after the time-out.
        let _ = say(&child.socket, &ToWorker::Finish, &[]);
        let until = Instant::now() + FAREWELL_TIMEOUT + DRAIN_TIMEOUT;
        while let State::Lives = self.attend(&mut child) {
            if Instant::now() > until {
                child.kill();
                return self
                    .say("the worker process did not exit and was killed; the packets that it held are dropped");
            }
            let mut fds = [PollFd::from_borrowed_fd(child.process.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&LOOK));
        }
    }

    pub(super) fn say_farewell(&self, farewell: ShutdownNotices) {
        let ShutdownNotices { told, untold, forgotten } = farewell;
        let mtu = self.config.narrow.mtu;
        let of = |count: u64| format!("{count} connection{}", if count == 1 { "" } else { "s" });
        if told > 0 {
            self.say(&format!("told the wide hosts of {} to send packets of at most {mtu} bytes", of(told)));
        }
        if untold + forgotten > 0 {
            let all = of(untold + forgotten);
            self.say(&format!(
                "{all} may stall, as their wide hosts do not know the smaller MTU: {untold} not reached, {forgotten} evicted"
            ));
        }
    }
}

/// Longest wait for the release of held packets.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
