//! A port's frames -> batches for one direction of a worker; packets to send -> the port. Both are counted.
//!
//! An endpoint outlives its port: an interface that was deleted and created again gets a new port. Processing
//! packets is left to the engine.

use crate::send::Sender;
use crate::snapshot::{EndpointSnapshot, RxStats};
use engine::{Batch, Gateway, Output};
use offload::flow_offload::OffloadStats;
use packet::{Frame, Ingress, LINK_LEN_MAX, Time};
use port::{Port, Received};
use std::io;
use std::time::Duration;

/// A port together with its sender and its counters.
pub struct Endpoint {
    pub(crate) port: Box<dyn Port>,
    /// MTU of the link, in bytes.
    pub(crate) mtu: usize,
    pub(crate) sender: Sender,
    pub(crate) seen: RxStats,
    pub(crate) is_up: bool,
    /// Function that reopens the port of an interface that was created again; `None` if the port cannot be
    /// reopened.
    reopen: Option<Reopen>,
    /// Time of the last attempt to reopen the port.
    tried_at: Time,
    /// Number of packets dropped because the port is down, at the last check.
    down_count: u64,
    /// Packets that the kernel forwarded by flow offload before the port was last reopened.
    offloaded_before: OffloadStats,
}

/// A function that reopens a port, or returns the cause of the failure. It returns `None` if the interface is the
/// same as before.
pub type Reopen = Box<dyn FnMut() -> io::Result<Option<Box<dyn Port>>> + Send>;

/// Result of an attempt to reopen a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    /// The port is unchanged.
    Not,
    /// The port was reopened.
    Anew,
}

/// Whether a port may have more frames to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollState {
    /// The port may have more frames now.
    Busy,
    /// The port has no more frames now.
    Idle,
}

impl Endpoint {
    /// Makes an endpoint of this port. `mtu` is the MTU of its link, in bytes.
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

    /// Returns this endpoint with a function that reopens its port after its interface was deleted and created
    /// again.
    pub fn with_reopen(self, reopen: Reopen) -> Endpoint {
        Endpoint { reopen: Some(reopen), ..self }
    }

    /// Reopens the port. Does nothing within [`REOPEN_INTERVAL`] of the last attempt.
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

    /// Returns the counters of packets that arrived at this endpoint and that the kernel forwarded by flow offload.
    fn offloaded(&mut self) -> OffloadStats {
        self.offloaded_before
            .and(self.port.flow_offload().map(|flow_offload| flow_offload.passed()).unwrap_or_default())
    }

    /// Whether the endpoint needs a check: the port is down and packets were dropped, or packets wait to be sent. A
    /// worker that only sends by this endpoint would not notice either case.
    pub(crate) fn wants_a_look(&mut self) -> bool {
        let before = std::mem::replace(&mut self.down_count, self.sender.sent().link_down);
        before != self.down_count || self.port.has_unsent()
    }

    /// Returns the longest frame that the link accepts, in bytes, for frames without an IP packet.
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

    /// Whether the kernel may forward flows from this endpoint or to it. The kernel must be able to segment GSO
    /// packets and to complete checksums. It must not have dropped packets of offloaded flows.
    pub(crate) fn can_offload(&mut self) -> bool {
        let offloads = self.sender.offloads();
        offloads.checksum
            && offloads.tcp
            && self.port.flow_offload().is_some_and(|flow_offload| !flow_offload.has_dropped())
    }

    /// Receives a batch of frames for this direction. If the gateway has predicted the place of a payload, the
    /// payload is received there. A port that is down returns no frames.
    pub(crate) fn receive(&mut self, direction: usize, gateway: &mut Gateway, batch: &mut Batch) -> PollState {
        let (ingress, Batch { split, frames }) = (Ingress(direction as u32), batch);
        let received = match gateway.places(direction) {
            (Some(places), pool) => self.port.receive_split(ingress, pool, places, split, frames),
            (None, pool) => self.port.receive(ingress, pool, frames),
        };
        self.count_received(received)
    }

    /// Receives a batch of frames for this direction, without prediction of places.
    pub(crate) fn receive_unpredicted(
        &mut self,
        direction: usize,
        out: &mut Output,
        frames: &mut Vec<Frame>,
    ) -> PollState {
        let received = self.port.receive(Ingress(direction as u32), &mut out.pool, frames);
        self.count_received(received)
    }

    /// Counts the frames that the port lost, and notes whether it is up.
    fn count_received(&mut self, received: io::Result<Received>) -> PollState {
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

/// Shortest interval between two attempts to reopen a port.
pub(crate) const REOPEN_INTERVAL: Duration = Duration::from_millis(100);
