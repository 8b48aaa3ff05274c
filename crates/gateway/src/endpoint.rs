//! A port -> batches for one way of a worker, and what is sent by it, counted.
//!
//! Where its interface went and came again, the port is opened anew.

use crate::send::Sender;
use crate::snapshot::{EndpointSnapshot, RxStats};
use engine::{Batch, Gateway, Output};
use offload::flow_offload::OffloadStats;
use packet::{Ingress, LINK_LEN_MAX, Time};
use port::Port;
use std::io;
use std::time::Duration;

/// A port and what belongs to it.
pub struct Endpoint {
    pub(crate) port: Box<dyn Port>,
    /// Longest packet that its link takes, IP header counted, in bytes.
    pub(crate) mtu: usize,
    pub(crate) sender: Sender,
    pub(crate) seen: RxStats,
    pub(crate) is_up: bool,
    /// Opens its port anew: the interface may have been made anew under the same name.
    reopen: Option<Reopen>,
    /// When that was tried last.
    tried_at: Time,
    /// Packets that were dropped because it was down, when it was last looked at.
    down_count: u64,
    /// What the kernel passed on before the port was opened anew.
    offloaded_before: OffloadStats,
}

/// Opens a port anew, or says why it cannot be; none where its interface is as it was, and only down.
pub type Reopen = Box<dyn FnMut() -> io::Result<Option<Box<dyn Port>>> + Send>;

/// What became of a port that was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    /// It is as it was.
    Not,
    /// It was opened anew.
    Anew,
}

/// How a worker went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollState {
    /// There may be more at once.
    Busy,
    /// Nothing is there.
    Idle,
}

impl Endpoint {
    /// An end with a port, whose link takes packets of this length.
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

    /// The same, whose port is opened anew where its interface went and came again.
    pub fn with_reopen(self, reopen: Reopen) -> Endpoint {
        Endpoint { reopen: Some(reopen), ..self }
    }

    /// Opens the port anew, where it is down and that was not tried a moment ago.
    pub(crate) fn try_reopen(&mut self, now: Time, out: &mut Output) -> Reopened {
        let Some(reopen) = &mut self.reopen else { return Reopened::Not };
        if now.since(self.tried_at) < MEND_EVERY {
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

    /// What the kernel passed on by itself, of what came in here.
    fn offloaded(&mut self) -> OffloadStats {
        self.offloaded_before
            .and(self.port.flow_offload().map(|flow_offload| flow_offload.passed()).unwrap_or_default())
    }

    /// Were packets dropped since it was last asked because the port is down, or does it hold what the kernel has not
    /// sent? Who only sends would not hear of it.
    pub(crate) fn wants_a_look(&mut self) -> bool {
        let before = std::mem::replace(&mut self.down_count, self.sender.sent().link_down);
        before != self.down_count || self.port.has_unsent()
    }

    /// The longest frame that carries no IP packet and fits.
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

    /// May flows that come in here, and those that leave, be lent: does the kernel cut their trains and fill in
    /// their sums, and has it lost none of them?
    pub(crate) fn can_offload(&mut self) -> bool {
        let offloads = self.sender.offloads();
        offloads.checksum
            && offloads.tcp
            && self.port.flow_offload().is_some_and(|flow_offload| !flow_offload.has_dropped())
    }

    /// Takes what the port has for this direction, payloads to their places where there are some; none where it is
    /// down.
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

/// How often a port that is down is opened anew.
pub(crate) const MEND_EVERY: Duration = Duration::from_millis(100);
