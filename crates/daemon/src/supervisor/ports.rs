//! Interfaces that were deleted and created again -> their ports, reopened and handed over.
//!
//! A worker process has no privileges to open ports. It requests them from the supervisor.

use super::Supervisor;
use super::child::Child;
use crate::fd_store::{self, StoredPort};
use crate::messages::{ToWorker, say};
use crate::roles::HostChanges;
use config::Role;
use std::io;
use std::os::fd::AsFd;

impl Supervisor {
    /// Reopens the ports of an endpoint whose interface was created again, and hands them over. If the request
    /// names an older interface, the ports are open already and are only handed over.
    pub(super) fn reopen(&mut self, end: usize, index: Option<u32>, child: &Child) {
        let Some(first) = self.ports.get(end).filter(|_| end < SIDE_COUNT) else { return };
        let is_kept = !first.descriptors.is_empty();
        let ports = match first.open_again(&self.config, end) {
            Ok(None) if is_kept && index != first.told.index => Ok(()),
            Ok(None) => return,
            Ok(Some(ports)) => self.take_up(end, ports),
            Err(error) => Err(error),
        };
        if !is_kept && ports.is_ok() {
            // A worker process opens such ports itself. The current one has dropped the privileges for that, so its
            // successor opens them.
            if self.successor.is_none() {
                self.start_successor();
            }
            return;
        }
        let of_end = || self.ports.iter().skip(end).step_by(SIDE_COUNT);
        let descriptors: Vec<_> = of_end().flat_map(|port| &port.descriptors).map(AsFd::as_fd).collect();
        let ports = ports.map(|()| of_end().map(|port| port.told.clone()).collect());
        let handed = if ports.is_ok() { &descriptors[..] } else { &[] };
        let said = ToWorker::Reopened { end, ports: ports.map_err(|error| error.to_string()) };
        // A process that missed the message asks again.
        let _ = say(&child.socket, &said, handed);
    }

    /// Stores these ports of an endpoint, and repeats the changes to the host for their interface.
    pub(super) fn take_up(&mut self, end: usize, ports: Vec<StoredPort>) -> io::Result<()> {
        // The claim comes first: if it fails, the next request for the ports repeats it.
        self.claim()?;
        match &mut self.host_changes {
            Some(seized) => seized.refresh(&self.config)?,
            None => self.host_changes = Some(HostChanges::start(&self.config, self.heartbeat.clone(), Vec::new())?),
        }
        self.apply_gro();
        self.say_offload_doubt(&ports);
        for (place, port) in self.ports.iter_mut().skip(end).step_by(SIDE_COUNT).zip(ports) {
            *place = port;
        }
        self.set_targets();
        if let Err(error) = self.watch() {
            self.say(&format!(
                "fail-open is not set up, so no packets are forwarded while no worker runs: {error}"
            ));
        }
        Ok(())
    }

    /// Sets the egress interfaces of offloaded flows to the ports' interfaces. With fail-open programs,
    /// [`Supervisor::watch`] sets them.
    pub(super) fn set_targets(&self) {
        if self.heartbeat.is_some() || self.config.role != Role::Border {
            return;
        }
        if let Err(error) = fd_store::set_targets(&self.ports) {
            self.say(&format!("flows are not offloaded to the new interface: {error}"));
        }
    }

    /// Attaches the fail-open programs, if configured. They forward a border's packets while no worker runs.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        if let Some(heartbeat) = self.heartbeat.as_ref().filter(|_| self.config.role == Role::Border) {
            self.watched = fd_store::watch(&self.ports, heartbeat)?;
        }
        Ok(())
    }
}

/// Number of endpoints of a worker. The ports of a worker are stored in sequence: wide, then narrow.
const SIDE_COUNT: usize = 2;
