//! Interfaces that went and came again -> their ports, opened anew and handed over.

use super::Supervisor;
use super::child::Child;
use crate::fd_store::{self, StoredPort};
use crate::messages::{ToWorker, say};
use crate::roles::HostChanges;
use config::Role;
use std::io;
use std::os::fd::AsFd;

impl Supervisor {
    /// Opens the ports of an end anew where their interface is another one than it was, and hands them over. Who
    /// asks by the number of an older interface has not been handed what is open already.
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
            // Its ports are opened by who works on them, with rights that this one has given up.
            if self.heir.is_none() {
                self.bring_up_heir();
            }
            return;
        }
        let of_end = || self.ports.iter().skip(end).step_by(SIDE_COUNT);
        let descriptors: Vec<_> = of_end().flat_map(|port| &port.descriptors).map(AsFd::as_fd).collect();
        let ports = ports.map(|()| of_end().map(|port| port.told.clone()).collect());
        let handed = if ports.is_ok() { &descriptors[..] } else { &[] };
        let said = ToWorker::Reopened { end, ports: ports.map_err(|error| error.to_string()) };
        // Who does not listen asks again.
        let _ = say(&child.socket, &said, handed);
    }

    /// Keeps these ports of an end, and has the host give up for them what it gave up for those before.
    pub(super) fn take_up(&mut self, end: usize, ports: Vec<StoredPort>) -> io::Result<()> {
        // First, so that it is tried again with the ports where it fails.
        self.claim()?;
        match &mut self.seized {
            Some(seized) => seized.refresh(&self.config)?,
            None => self.seized = Some(HostChanges::start(&self.config, self.pulse.clone(), Vec::new())?),
        }
        self.suit_gro();
        self.say_offload_doubt(&ports);
        for (place, port) in self.ports.iter_mut().skip(end).step_by(SIDE_COUNT).zip(ports) {
            *place = port;
        }
        self.set_targets();
        if let Err(error) = self.watch() {
            self.say(&format!("packets do not pass without workers: {error}"));
        }
        Ok(())
    }

    /// Has flows that the kernel passes on leave by the interfaces that the ports are on; [`Supervisor::watch`] does so
    /// where packets are to pass without workers.
    pub(super) fn set_targets(&self) {
        if self.pulse.is_some() || self.config.role != Role::Border {
            return;
        }
        if let Err(error) = fd_store::set_targets(&self.ports) {
            self.say(&format!("flows are not offloaded to an interface that is new: {error}"));
        }
    }

    /// Has packets pass without workers where they are silent, if it is to be so: in front of what keeps them from
    /// the host.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        if let Some(pulse) = self.pulse.as_ref().filter(|_| self.config.role == Role::Border) {
            self.watched = fd_store::watch(&self.ports, pulse)?;
        }
        Ok(())
    }
}

/// Ends of a worker, whose ports are kept one after the other.
const SIDE_COUNT: usize = 2;
