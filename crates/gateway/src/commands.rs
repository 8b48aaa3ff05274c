//! What a worker is to do in, and that it lives out: the only things that cross between threads.

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

/// What a worker can be told beside to stop.
pub enum Command {
    /// Say how things are.
    Tell(Sender<Snapshot>),
    /// Change something while packets pass.
    Change(Box<Change>),
    /// Go on as another configuration says.
    Replace(Box<Replacement>),
    /// Write what is held, and end: another goes on.
    HandOver(HandoffWriter),
    /// None goes on: tell the hosts that were told to send longer packets, and say how many there were.
    Farewell(Sender<Farewell>),
}

/// How many hosts were told that their packets are too long once a border has ended: a connection each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// Those that were told.
    pub told: u64,
    /// Those that could not be: nothing of theirs had passed, or time was up.
    pub untold: u64,
    /// Those of which nothing was known any more.
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

/// All that another configuration changes in a worker.
#[derive(Debug)]
pub struct Replacement {
    /// What is done to packets: the stages that it describes take over what the old ones hold.
    pub settings: GatewaySettings,
    /// What the choices of these are drawn from.
    pub secrets: Secrets,
    /// Longest packets of the wide end and the narrow one, in bytes.
    pub mtus: [u16; 2],
    /// What the pool of each way may take, in bytes.
    pub pool_limit: usize,
    /// May flows be lent to the kernel?
    pub offloads_flows: bool,
    /// Hears when all of that is so.
    pub done: Sender<()>,
}

/// A change of what a worker does to packets, at this moment; what it lets go leaves at once.
pub type Change = dyn FnOnce(Time, &mut Gateway) + Send;

/// A worker's end: commands come out.
#[derive(Debug)]
pub struct Commands {
    shared: Arc<Shared>,
    /// Where the worker says that it works, and its number there, where packets pass without it.
    pulse: Option<(Arc<Heartbeat>, usize)>,
}

/// The other end: commands go in.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: Queue<Command>,
    /// Rings while the worker has something to look at.
    bell: Arc<EventFd>,
    beats: AtomicU64,
    stops: AtomicBool,
    /// How things were with the worker when it ended.
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

/// Both ends.
///
/// # Errors
/// The kernel has no descriptor left.
pub fn commands() -> io::Result<(WorkerHandle, Commands)> {
    let bell = Arc::new(EventFd::new()?);
    let commands = Queue::new(Arc::clone(&bell), usize::MAX);
    let shared = Arc::new(Shared {
        commands,
        bell,
        beats: AtomicU64::new(0),
        stops: AtomicBool::new(false),
        last: Mutex::default(),
    });
    Ok((WorkerHandle { shared: Arc::clone(&shared) }, Commands { shared, pulse: None }))
}

impl Commands {
    /// The same, which says that it works there too, by this number.
    pub fn with_pulse(mut self, pulse: Option<(Arc<Heartbeat>, usize)>) -> Commands {
        self.pulse = pulse;
        self
    }

    /// How long the worker may take to get around.
    pub fn patience(&self) -> Duration {
        if self.pulse.is_some() { QUICK } else { BEAT }
    }

    /// To wait on; see [`Commands::clear`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.fd()
    }

    /// Was it not told to stop?
    pub fn go_on(&self) -> bool {
        !self.shared.stops.load(Ordering::Acquire)
    }

    /// Says that the worker got around once more.
    pub fn beat(&self) {
        self.shared.beats.fetch_add(1, Ordering::Relaxed);
        if let Some((pulse, number)) = &self.pulse {
            pulse.beat(*number);
        }
    }

    /// Silences what is waited on: before all is looked at that may have rung, for what comes meanwhile rings
    /// again.
    pub fn clear(&self) {
        self.shared.bell.clear();
    }

    /// The next order, if there is one; see [`Commands::clear`].
    pub fn next(&self) -> Option<Command> {
        self.shared.commands.take()
    }

    /// Leaves word how things were in the end.
    pub fn leave(&self, last: Snapshot) {
        *self.shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // Who waits for what becomes of an order learns that nothing does.
        drop(self.shared.commands.close());
    }
}

impl WorkerHandle {
    /// Tells the worker to let go of what it holds, and to end.
    pub fn stop(&self) {
        self.shared.stops.store(true, Ordering::Release);
        self.wake();
    }

    /// How often the worker got around; it does at least four times a second.
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Gives an order; false where there is no worker any more.
    pub fn give(&self, command: Command) -> bool {
        self.shared.commands.put(0, || command)
    }

    /// Asks how things are.
    ///
    /// # Errors
    /// The worker is gone, or does not answer.
    pub fn ask(&self) -> io::Result<Snapshot> {
        let (to, from) = mpsc::channel();
        if !self.give(Command::Tell(to)) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"));
        }
        from.recv_timeout(ANSWER_PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"),
        })
    }

    /// How things were with a worker that has ended, as far as it could still say.
    pub fn last(&self) -> Option<Snapshot> {
        self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells all of these workers to let go of what they hold, and to end; waits for them, but no longer than this.
    /// What was lost with those that have ended: what one holds that has not, it does not say.
    pub fn stop_all(workers: &[WorkerHandle], patience: Duration) -> Losses {
        workers.iter().for_each(WorkerHandle::stop);
        let until = Instant::now() + patience;
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

    /// Has the worker get around, if it is able to.
    pub fn wake(&self) {
        self.shared.bell.wake();
    }

    /// What wakes the worker, for what else it is to look at.
    pub(crate) fn bell(&self) -> Arc<EventFd> {
        Arc::clone(&self.shared.bell)
    }
}

/// A worker gets around at least as often.
const BEAT: Duration = Duration::from_millis(250);
/// The same where packets pass without it: thrice within the patience of its pulse.
const QUICK: Duration = Duration::from_millis(15);
/// How often is looked whether workers have ended.
const END_LOOK: Duration = Duration::from_millis(1);
/// How long a worker may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
