//! What a worker is to do in, and that it lives out: the only things that cross between threads.

use crate::handover::Will;
use crate::snapshot::Snapshot;
use crate::worker::Way;
use engine::{Mss, Side};
use packet::Time;
use port::pulse::Pulse;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What a worker can be told beside to stop.
pub enum Order {
    /// Say how things are.
    Tell(Sender<Snapshot>),
    /// Change something while packets pass.
    Change(Box<Change>),
    /// Go on as another configuration says.
    Replace(Box<Replacement>),
    /// Write what is held, and end: another goes on.
    HandOver(Will),
}

/// All that another configuration changes in a worker.
#[derive(Debug)]
pub struct Replacement {
    /// To the narrow side, to the wide one: they take over what the old ones hold; is each released when its port has nothing
    /// more to give?
    pub sides: [(Side, bool); 2],
    /// Longest packets of the wide end and the narrow one, in bytes.
    pub mtus: [u16; 2],
    /// What the pool of each way may take, in bytes.
    pub pool_limit: usize,
    /// Where ICMP errors come from, if any are sent.
    pub answer_from: [IpAddr; 2],
    /// What remembers the MSS of a border's hosts: one that works goes on with the limits and lengths of this.
    pub mss: Option<Mss>,
    /// May flows be lent to the kernel?
    pub lends: bool,
    /// Hears when all of that is so.
    pub done: Sender<()>,
}

/// A change of the ways of a worker, to the narrow end and to the wide one, at this moment; what it lets go leaves at once.
pub type Change = dyn FnOnce(Time, &mut [Way; 2]) + Send;

/// A worker's end: orders come out.
#[derive(Debug)]
pub struct Orders {
    orders: Receiver<Order>,
    shared: Arc<Shared>,
    /// Where the worker says that it works, and its number there, where packets pass without it.
    pulse: Option<(Arc<Pulse>, usize)>,
}

/// The other end: orders go in.
#[derive(Clone, Debug)]
pub struct Reins {
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Readable while the worker has something to look at.
    bell: OwnedFd,
    beats: AtomicU64,
    stops: AtomicBool,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Tell(_) => "Tell",
            Order::Change(_) => "Change",
            Order::Replace(_) => "Replace",
            Order::HandOver(_) => "HandOver",
        })
    }
}

/// Both ends.
///
/// # Errors
/// The kernel has no descriptor left.
pub fn orders() -> io::Result<(Reins, Orders)> {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|error| io::Error::new(error.kind(), format!("eventfd: cannot make one: {error}")))?;
    let shared = Arc::new(Shared { bell, beats: AtomicU64::new(0), stops: AtomicBool::new(false) });
    let (sender, receiver) = mpsc::channel();
    Ok((Reins { orders: sender, shared: Arc::clone(&shared) }, Orders { orders: receiver, shared, pulse: None }))
}

impl Orders {
    /// The same, which says that it works there too, by this number.
    pub fn with_pulse(self, pulse: Option<(Arc<Pulse>, usize)>) -> Orders {
        Orders { pulse, ..self }
    }

    /// How long the worker may take to get around.
    pub fn patience(&self) -> Duration {
        if self.pulse.is_some() { QUICK } else { BEAT }
    }

    /// To wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
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

    /// The next order, if there is one.
    pub fn next(&self) -> Option<Order> {
        let mut count = [0; 8];
        // Nothing to read is no order.
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        self.orders.try_recv().ok()
    }
}

impl Reins {
    /// Tells the worker to let go of what it holds, and to end.
    pub fn stop(&self) {
        self.shared.stops.store(true, Ordering::Release);
        self.ring();
    }

    /// How often the worker got around; it does at least four times a second.
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Gives an order; false where there is no worker any more.
    pub fn give(&self, order: Order) -> bool {
        let given = self.orders.send(order).is_ok();
        self.ring();
        given
    }

    /// Asks how things are.
    ///
    /// # Errors
    /// The worker is gone, or does not answer.
    pub fn ask(&self) -> io::Result<Snapshot> {
        let (to, from) = mpsc::channel();
        if !self.give(Order::Tell(to)) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"));
        }
        from.recv_timeout(ANSWER_PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer"),
            RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"),
        })
    }

    /// Has the worker get around, if it is able to.
    pub fn nudge(&self) {
        self.ring();
    }

    /// Has the worker look at what is there for it.
    pub(crate) fn ring(&self) {
        // A full counter rings as well.
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
    }
}

/// A worker gets around at least as often.
const BEAT: Duration = Duration::from_millis(250);
/// The same where packets pass without it: thrice within the patience of its pulse.
const QUICK: Duration = Duration::from_millis(15);
/// How long a worker may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
