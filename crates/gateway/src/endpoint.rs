//! A port -> batches for one direction of a worker; leaving packets -> the port. Both are counted.
//!
//! A port whose interface was deleted and created again is reopened.

use crate::send::Sender;
use crate::snapshot::{EndpointSnapshot, RxStats};
use engine::{Batch, Gateway, Output};
use offload::flow_offload::OffloadStats;
use packet::{Ingress, LINK_LEN_MAX, Time};
use port::Port;
use std::io;
use std::time::Duration;

/// A port with its sender and its counters.
pub struct Endpoint {
    pub(crate) port: Box<dyn Port>,
    /// MTU of the link, IP header included, in bytes.
    pub(crate) mtu: usize,
    pub(crate) sender: Sender,
    pub(crate) seen: RxStats,
    pub(crate) is_up: bool,
    /// Reopens the port: the interface may have been created again under the same name.
    reopen: Option<Reopen>,
    /// Time of the last attempt.
    tried_at: Time,
    /// Number of packets dropped on a port that is down, at the last check.
    down_count: u64,
    /// Packets that the kernel passed on before the port was reopened.
    offloaded_before: OffloadStats,
}

/// Reopens a port, or returns the reason for the failure. `None` where the interface is unchanged and only down.
pub type Reopen = Box<dyn FnMut() -> io::Result<Option<Box<dyn Port>>> + Send>;

/// Result of an attempt to reopen a port that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    /// The port is unchanged.
    Not,
    /// The port was reopened.
    Anew,
}

/// Whether a port may have more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollState {
    /// More frames may be available now.
    Busy,
    /// No frames are available.
    Idle,
}

impl Endpoint {
    /// An endpoint with this port and the MTU of its link, in bytes.
    pub fn new(port: Box<dyn Port>, mtu: u16) -> Endpoint {
        let sender = Sender::new(port.offloads());
        Endpoint {
            port,
            mtu: mtu.into(),
            sender,
            seen: RxStats::default(),
            is_up: true,
            reopen: None,
            tried_at: Time::ZERO,
            down_count: 0,
            offloaded_before: OffloadStats::default(),
        }
    }

    /// The same endpoint, with a function that reopens its port after the interface was deleted and created again.
    pub fn with_reopen(self, reopen: Reopen) -> Endpoint {
        Endpoint { reopen: Some(reopen), ..self }
    }

    /// Reopens the port. Limits attempts to one per [`REOPEN_INTERVAL`].
    pub(crate) fn try_reopen(&mut self, now: Time, out: &mut Output) -> Reopened {
        let Some(reopen) = &mut self.reopen else { return Reopened::Not };
        if now.since(self.tried_at) < REOPEN_INTERVAL {
            return Reopened::Not;
        }
        self.tried_at = now;
        match reopen() {
            Ok(None) => {}
            Ok(Some(port)) => {
                self.seen.missed_before += self.port.missed();
                self.offloaded_before = self.offloaded();
                self.port.give_back(&mut out.pool);
                self.port = port;
                self.sender.trust(self.port.offloads());
                self.is_up = true;
                return Reopened::Anew;
            }
            Err(error) => self.seen.last_error = Some(error.to_string()),
        }
        Reopened::Not
    }

    /// Packets of offloaded flows that the kernel passed on from this endpoint's ingress.
    fn offloaded(&mut self) -> OffloadStats {
        self.offloaded_before
            .and(self.port.flow_offload().map(|flow_offload| flow_offload.passed()).unwrap_or_default())
    }

    /// Whether the endpoint needs a check: packets were dropped on a port that is down, or the port holds unsent
    /// packets. A direction that only sends would not notice either.
    pub(crate) fn wants_a_look(&mut self) -> bool {
        let before = std::mem::replace(&mut self.down_count, self.sender.sent().link_down);
        before != self.down_count || self.port.has_unsent()
    }

    /// Longest frame without an IP packet that the link takes, in bytes.
    pub(crate) fn frame_len_max(&self) -> usize {
        self.mtu + LINK_LEN_MAX
    }

    pub(crate) fn snapshot(&mut self) -> EndpointSnapshot {
        EndpointSnapshot {
            address: self.port.address().to_owned(),
            is_up: self.is_up,
            rx: self.seen.clone(),
            tx: self.sender.sent(),
            missed: self.seen.missed_before + self.port.missed(),
            offloaded: self.offloaded(),
        }
    }

    /// Whether flows that enter or leave here may be offloaded. The kernel has to segment GSO packets and complete
    /// checksums, and must not have dropped packets of offloaded flows.
    pub(crate) fn can_offload(&mut self) -> bool {
        let offloads = self.sender.offloads();
        offloads.checksum
            && offloads.tcp
            && self.port.flow_offload().is_some_and(|flow_offload| !flow_offload.has_dropped())
    }

    /// Receives the port's frames for this direction. Payloads go to their predicted places where the gateway
    /// offers some. Takes none from a port that is down.
    pub(crate) fn receive(&mut self, direction: usize, gateway: &mut Gateway, batch: &mut Batch) -> PollState {
        let (ingress, Batch { split, frames }) = (Ingress(direction as u32), batch);
        let received = match gateway.places(direction) {
            (Some(places), pool) => self.port.receive_apart(ingress, pool, places, split, frames),
            (None, pool) => self.port.receive(ingress, pool, frames),
        };
        match received {
            Ok(received) => {
                self.is_up = true;
                self.seen.dropped += received.lost_count as u64;
                if received.was_last { PollState::Idle } else { PollState::Busy }
            }
            Err(error) => {
                self.is_up = false;
                self.seen.note(&error);
                PollState::Idle
            }
        }
    }
}

/// Interval between two attempts to reopen a port.
pub(crate) const REOPEN_INTERVAL: Duration = Duration::from_millis(100);
