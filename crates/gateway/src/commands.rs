//! Commands -> a worker; the worker's heartbeat and last snapshot -> all other threads.
//!
//! A worker shares only this command queue with the threads that control it. Workers exchange packets through the
//! module `peer_handoff`.

use crate::handover::HandoffWriter;
use crate::queue::Queue;
use crate::snapshot::{Losses, Snapshot};
use crate::sync::{Arc, EventFd, Mutex};
use engine::{FairIntake, Gateway, GatewaySettings, Secrets};
use offload::heartbeat::Heartbeat;
use packet::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// A command to a worker. To stop a worker, call [`WorkerHandle::stop`].
pub enum Command {
    /// Return a snapshot of all counters.
    Report(Sender<Snapshot>),
    /// Apply a change between two batches of packets.
    Change(Box<Change>),
    /// Adopt another configuration.
    Replace(Box<Replacement>),
    /// Write all held packets for the successor, and end.
    HandOver(HandoffWriter),
    /// Prepare for an end without a successor: stop flow offload and the raising of MSS values. Send ICMP errors to
    /// the hosts that were told to send longer packets, and return the results. Packets are still forwarded.
    AnnounceShutdown(Sender<ShutdownNotices>),
}

/// Results of the ICMP errors at a border's end, counted in TCP connections. Without the border, the packets of
/// these hosts exceed the path MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownNotices {
    /// Connections whose wide host was sent an ICMP error.
    pub told: u64,
    /// Connections whose wide host could not be sent an ICMP error: the gateway knew no sequence number or source
    /// address for the error, or the time limit was reached.
    pub untold: u64,
    /// Connections with a raised MSS that were evicted from the flow table. Their hosts get no ICMP error.
    pub forgotten: u64,
}

impl ShutdownNotices {
    /// Returns the sum of two results.
    pub fn and(self, other: ShutdownNotices) -> ShutdownNotices {
        ShutdownNotices {
            told: self.told + other.told,
            untold: self.untold + other.untold,
            forgotten: self.forgotten + other.forgotten,
        }
    }
}

/// The frames that wait for a worker's engine: toward the narrow endpoint, then toward the wide endpoint.
pub type Intakes = [FairIntake; 2];

/// The new settings of a worker after a reload.
#[derive(Debug)]
pub struct Replacement {
    /// The engine's new settings. New stages take over the held packets of old stages.
    pub settings: GatewaySettings,
    /// Random seeds of the new stages.
    pub secrets: Secrets,
    /// MTU of the wide endpoint, then of the narrow endpoint, in bytes.
    pub mtus: [u16; 2],
    /// Memory limit of each direction's buffer pool, in bytes.
    pub pool_limit: usize,
    /// Whether the new configuration allows flow offload.
    pub offloads_flows: bool,
    /// The intakes under the new configuration; `None` for packets in order of arrival.
    pub intakes: Option<Box<Intakes>>,
    /// Receives a message after the worker has adopted the settings.
    pub done: Sender<()>,
}

/// A function that changes a running worker's gateway. Packets that the change releases are sent immediately.
pub type Change = dyn FnOnce(Time, &mut Gateway) + Send;

/// The worker's side of a command queue: it receives commands.
#[derive(Debug)]
pub struct Commands {
    shared: Arc<Shared>,
    /// The shared heartbeat and this worker's number in it; `None` if the kernel does not watch the worker (`fail =
    /// "closed"`).
    heartbeat: Option<(Arc<Heartbeat>, usize)>,
}

/// The controlling side of a command queue: it sends commands to one worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: Queue<Command>,
    /// Event that wakes the worker. Commands and packets of peer workers make it readable until
    /// [`Commands::clear`].
    eventfd: Arc<EventFd>,
    beats: AtomicU64,
    stops: AtomicBool,
    /// The worker's last snapshot; `None` while the worker runs.
    last: Mutex<Option<Snapshot>>,
    /// The worker's destinations with a route MTU of their own.
    route_mtus: Mutex<Vec<(IpAddr, u16)>>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Report(_) => "Tell",
            Command::Change(_) => "Change",
            Command::Replace(_) => "Replace",
            Command::HandOver(_) => "HandOver",
            Command::AnnounceShutdown(_) => "Farewell",
        })
    }
}

/// Creates a command queue, and returns its two sides.
///
/// # Errors
/// The process or the system has no free descriptor.
pub fn commands() -> io::Result<(WorkerHandle, Commands)> {
    let eventfd = Arc::new(EventFd::new()?);
    let commands = Queue::new(Arc::clone(&eventfd), usize::MAX);
    let shared = Arc::new(Shared {
        commands,
        eventfd,
        beats: AtomicU64::new(0),
        stops: AtomicBool::new(false),
        last: Mutex::default(),
        route_mtus: Mutex::default(),
    });
    Ok((WorkerHandle { shared: Arc::clone(&shared) }, Commands { shared, heartbeat: None }))
}

impl Commands {
    /// Returns these commands with the shared heartbeat and the worker's number in it.
    pub fn with_heartbeat(mut self, heartbeat: Option<(Arc<Heartbeat>, usize)>) -> Commands {
        self.heartbeat = heartbeat;
        self
    }

    /// Returns the longest time that the worker may wait between two rounds of its loop.
    pub fn timeout(&self) -> Duration {
        if self.heartbeat.is_some() { QUICK } else { BEAT }
    }

    /// Returns the descriptor to wait on. [`Commands::clear`] makes it unreadable.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.fd()
    }

    /// Whether the worker is to continue. False after [`WorkerHandle::stop`].
    pub fn go_on(&self) -> bool {
        !self.shared.stops.load(Ordering::Acquire)
    }

    /// Counts one round of the worker. Also writes the heartbeat, if there is one.
    pub fn beat(&self) {
        self.shared.beats.fetch_add(1, Ordering::Relaxed);
        if let Some((heartbeat, number)) = &self.heartbeat {
            heartbeat.beat(*number);
        }
    }

    /// Clears the worker's event. Call this before reading commands, so that a later command sets the event again.
    pub fn clear(&self) {
        self.shared.eventfd.clear();
    }

    /// Returns the next command. Call [`Commands::clear`] first.
    pub fn next(&self) -> Option<Command> {
        self.shared.commands.take()
    }

    /// Stores the destinations with a route MTU of their own. [`WorkerHandle::route_mtus`] returns them.
    pub fn set_route_mtus(&self, route_mtus: Vec<(IpAddr, u16)>) {
        *self.shared.route_mtus.lock().unwrap_or_else(PoisonError::into_inner) = route_mtus;
    }

    /// Stores the last snapshot of the worker, which is ending. [`WorkerHandle::last`] returns it.
    pub fn leave(&self, last: Snapshot) {
        *self.shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // Callers that wait for a command's result learn that none will come.
        drop(self.shared.commands.close());
    }
}

impl WorkerHandle {
    /// Tells the worker to release all held packets and to end.
    pub fn stop(&self) {
        self.shared.stops.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns the destinations to which the host should send shorter segments than its interface allows, each with the
    /// MTU of its route in bytes. Does not wait for the worker.
    pub fn route_mtus(&self) -> Vec<(IpAddr, u16)> {
        self.shared.route_mtus.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of rounds that the worker has made since its start. A running worker makes at least four
    /// rounds a second.
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Queues a command. Returns false if the worker has ended.
    pub fn give(&self, command: Command) -> bool {
        self.shared.commands.put(0, || command)
    }

    /// Asks the worker for a snapshot.
    ///
    /// # Errors
    /// The worker has ended, or does not answer in time.
    pub fn ask(&self) -> io::Result<Snapshot> {
        let (to, from) = mpsc::channel();
        if !self.give(Command::Report(to)) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"));
        }
        from.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"),
        })
    }

    /// Returns the worker's last snapshot; `None` if the worker still runs, or ended without a snapshot.
    pub fn last(&self) -> Option<Snapshot> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells all workers to release their packets and to end. Waits until all have ended, or for `timeout`. Returns
    /// the losses of the workers that have ended. The losses of other workers are unknown.
    pub fn stop_all(workers: &[WorkerHandle], timeout: Duration) -> Losses {
        workers.iter().for_each(WorkerHandle::stop);
        let until = Instant::now() + timeout;
        let mut losses = Losses::default();
        for worker in workers {
            let last = loop {
                match worker.last() {
                    None if Instant::now() < until => thread::sleep(END_LOOK),
                    last => break last,
                }
            };
            last.into_iter().for_each(|last| losses += last.losses);
        }
        losses
    }

    /// Wakes the worker.
    pub fn wake(&self) {
        self.shared.eventfd.wake();
    }

    /// Returns the event that wakes the worker, for further queues that the worker reads.
    pub(crate) fn eventfd(&self) -> Arc<EventFd> {
        Arc::clone(&self.shared.eventfd)
    }
}

/// Longest interval between two rounds of a worker without a heartbeat.
const BEAT: Duration = Duration::from_millis(250);
/// Longest interval between two rounds of a worker with a heartbeat: less than a third of the fail-open program's
/// time-out of 50 ms.
const QUICK: Duration = Duration::from_millis(15);
/// Interval between two checks whether a worker has ended.
const END_LOOK: Duration = Duration::from_millis(1);
/// Longest wait for a worker's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
