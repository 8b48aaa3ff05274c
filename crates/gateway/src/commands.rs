//! Commands -> a worker, and its heartbeat -> all others: the only data that threads share.

use crate::handover::HandoffWriter;
use crate::queue::Queue;
use crate::snapshot::{Losses, Snapshot};
use crate::sync::{Arc, EventFd, Mutex};
use engine::{Gateway, GatewaySettings, Secrets};
use offload::heartbeat::Heartbeat;
use packet::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// A command to a worker, other than to stop.
pub enum Command {
    /// Return a snapshot.
    Tell(Sender<Snapshot>),
    /// Apply a change while packets pass.
    Change(Box<Change>),
    /// Change to another configuration.
    Replace(Box<Replacement>),
    /// Write all held packets, and end: a successor takes them.
    HandOver(HandoffWriter),
    /// No successor follows. Send ICMP errors to the hosts that were told to send longer packets, and return their
    /// number.
    Farewell(Sender<Farewell>),
}

/// Hosts to tell about the end of a border, as their packets are too long from then on. Counted by connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Connections whose hosts were told.
    pub told: u64,
    /// Connections whose hosts could not be told: none of their packets had passed, or the time was up.
    pub untold: u64,
    /// Connections whose state was already forgotten.
    pub forgotten: u64,
}

impl Farewell {
    /// The sum of two.
    pub fn and(self, other: Farewell) -> Farewell {
        Farewell {
            told: self.told + other.told,
            untold: self.untold + other.untold,
            forgotten: self.forgotten + other.forgotten,
        }
    }
}

/// The changes of a worker on a reload.
#[derive(Debug)]
pub struct Replacement {
    /// The engine's settings: its new stages take over the held packets of the old ones.
    pub settings: GatewaySettings,
    /// Random seeds for the new stages.
    pub secrets: Secrets,
    /// MTU of the wide endpoint and of the narrow one, in bytes.
    pub mtus: [u16; 2],
    /// Memory limit of the pool of each direction, in bytes.
    pub pool_limit: usize,
    /// Whether flows may be offloaded to the kernel.
    pub offloads_flows: bool,
    /// Receives a message once the change is complete.
    pub done: Sender<()>,
}

/// A change of a worker's processing. Packets that it releases leave at once.
pub type Change = dyn FnOnce(Time, &mut Gateway) + Send;

/// The worker's end: commands come out.
#[derive(Debug)]
pub struct Commands {
    shared: Arc<Shared>,
    /// Heartbeat of the worker and its number there, where packets pass by the fail-open program without a worker.
    heartbeat: Option<(Arc<Heartbeat>, usize)>,
}

/// The other end: commands go in.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: Queue<Command>,
    /// Readable while the worker has work to do.
    eventfd: Arc<EventFd>,
    beats: AtomicU64,
    stops: AtomicBool,
    /// Last snapshot of a worker that ended.
    last: Mutex<Option<Snapshot>>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Tell(_) => "Tell",
            Command::Change(_) => "Change",
            Command::Replace(_) => "Replace",
            Command::HandOver(_) => "HandOver",
            Command::Farewell(_) => "Farewell",
        })
    }
}

/// Both ends of a new command queue.
///
/// # Errors
/// The kernel has no descriptor left.
pub fn commands() -> io::Result<(WorkerHandle, Commands)> {
    let eventfd = Arc::new(EventFd::new()?);
    let commands = Queue::new(Arc::clone(&eventfd), usize::MAX);
    let shared = Arc::new(Shared {
        commands,
        eventfd,
        beats: AtomicU64::new(0),
        stops: AtomicBool::new(false),
        last: Mutex::default(),
    });
    Ok((WorkerHandle { shared: Arc::clone(&shared) }, Commands { shared, heartbeat: None }))
}

impl Commands {
    /// The same end, which also writes this heartbeat under this worker number.
    pub fn with_heartbeat(mut self, heartbeat: Option<(Arc<Heartbeat>, usize)>) -> Commands {
        self.heartbeat = heartbeat;
        self
    }

    /// Longest interval between two rounds of the worker.
    pub fn timeout(&self) -> Duration {
        if self.heartbeat.is_some() { QUICK } else { BEAT }
    }

    /// Descriptor to wait on; see [`Commands::clear`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.fd()
    }

    /// Whether the worker has not been told to stop.
    pub fn go_on(&self) -> bool {
        !self.shared.stops.load(Ordering::Acquire)
    }

    /// Counts one round of the worker.
    pub fn beat(&self) {
        self.shared.beats.fetch_add(1, Ordering::Relaxed);
        if let Some((heartbeat, number)) = &self.heartbeat {
            heartbeat.beat(*number);
        }
    }

    /// Clears the event. Call it before reading the commands: a later command sets the event again.
    pub fn clear(&self) {
        self.shared.eventfd.clear();
    }

    /// The next command; see [`Commands::clear`].
    pub fn next(&self) -> Option<Command> {
        self.shared.commands.take()
    }

    /// Stores the worker's last snapshot.
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
    /// Tells the worker to release all held packets, and to end.
    pub fn stop(&self) {
        self.shared.stops.store(true, Ordering::Release);
        self.wake();
    }

    /// Number of rounds so far. A worker makes at least four a second.
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Queues a command; false where the worker has ended.
    pub fn give(&self, command: Command) -> bool {
        self.shared.commands.put(0, || command)
    }

    /// Asks the worker for a snapshot.
    ///
    /// # Errors
    /// The worker has ended, or does not answer.
    pub fn ask(&self) -> io::Result<Snapshot> {
        let (to, from) = mpsc::channel();
        if !self.give(Command::Tell(to)) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"));
        }
        from.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"),
        })
    }

    /// Last snapshot of a worker that ended, if it could still take one.
    pub fn last(&self) -> Option<Snapshot> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells all of these workers to release their packets and to end, and waits for at most `timeout`. Returns
    /// the losses of the workers that have ended; packets of a worker that still runs are unknown.
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

    /// The worker's event, for other queues that wake it.
    pub(crate) fn eventfd(&self) -> Arc<EventFd> {
        Arc::clone(&self.shared.eventfd)
    }
}

/// Longest interval between two rounds of a worker.
const BEAT: Duration = Duration::from_millis(250);
/// The same with a heartbeat: a third of the time-out of the fail-open program.
const QUICK: Duration = Duration::from_millis(15);
/// Interval between two checks whether workers have ended.
const END_LOOK: Duration = Duration::from_millis(1);
/// Time-out of a worker's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
