//! An interface that was deleted and created again -> its ports, one for each worker, in order.
//!
//! The kernel numbers the sockets of a group, and the queues of a device, in the order in which they are opened. So
//! the first worker whose port fails opens the ports of all workers, or requests them from the supervisor. The
//! other workers take their ports later.

use crate::ports;
use crate::roles::HostChanges;
use config::{Config, SideConfig};
use engine::Toggle;
use gateway::build;
use linux::netlink::Netlink;
use offload::steer;
use port::{Fanout, FanoutMode, Offloads, Options, Port, PortAddress};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reopens the ports of one endpoint for all workers.
#[derive(Debug)]
pub struct Reopening {
    config: Config,
    end: usize,
    host_changes: Arc<Mutex<HostChanges>>,
    state: Mutex<State>,
}

/// A function that returns the reopened port of the worker with this number. It returns `None` if the interface is
/// unchanged, or if the port is not reopened yet.
pub type Opener = Arc<dyn Fn(usize) -> io::Result<Option<Box<dyn Port>>> + Send + Sync>;

/// Ports of one endpoint that the supervisor reopens, for all workers of an unprivileged process.
pub struct ReopenRequest {
    end: usize,
    ask: Ask,
    state: Mutex<Asked>,
}

/// Ports that the supervisor has handed over.
pub struct ReopenedPorts {
    /// Index of the ports' interface.
    pub index: Option<u32>,
    /// The ports of all workers, in worker order.
    pub ports: Vec<Box<dyn Port>>,
}

/// A function that requests reopened ports from the supervisor. Its arguments are the endpoint and the interface
/// index of the endpoint's old ports.
type Ask = Box<dyn Fn(usize, Option<u32>) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
struct Asked {
    index: Option<u32>,
    asked_at: Option<Instant>,
    /// Handed-over ports that their workers have not taken yet, in worker order.
    waiting: Vec<Option<Box<dyn Port>>>,
    /// The reason why the supervisor opened no ports; `None` if it gave none.
    refused: Option<String>,
}

struct State {
    /// Index of the open ports' interface; `None` for a device that opening creates.
    index: Option<u32>,
    /// Reopened ports that their workers have not taken yet, in worker order.
    waiting: Vec<Option<Box<dyn Port>>>,
}

impl Reopening {
    /// Makes a value for the wide endpoint (0) or the narrow endpoint (1). The endpoint's ports must be open.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn new(config: &Config, end: usize, seized: Arc<Mutex<HostChanges>>) -> io::Result<Reopening> {
        let index = match foreign(config, end)? {
            Some(name) => Some(Netlink::open()?.interface(&name)?.index),
            None => None,
        };
        let state = Mutex::new(State { index, waiting: Vec::new() });
        Ok(Reopening { config: config.clone(), end, host_changes: seized, state })
    }

    /// Returns the reopened port of a worker; `None` if the interface is unchanged or down.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses an operation.
    pub fn port(&self, number: usize) -> io::Result<Option<Box<dyn Port>>> {
        let mut state = locked(&self.state);
        if let Some(port) = state.waiting.get_mut(number).and_then(Option::take) {
            return Ok(Some(port));
        }
        let mut index = None;
        if let Some(name) = foreign(&self.config, self.end)? {
            let interface = Netlink::open()?.interface(&name)?;
            if state.index == Some(interface.index) || !interface.is_up {
                return Ok(None);
            }
            index = Some(interface.index);
        }
        let ports = (0..self.config.workers).map(|number| open(&self.config, self.end, number).map(Some));
        let mut ports = ports.collect::<io::Result<Vec<_>>>()?;
        locked(&self.host_changes).refresh(&self.config)?;
        let port = ports.get_mut(number).and_then(Option::take);
        (state.index, state.waiting) = (index, ports);
        Ok(port)
    }
}

impl ReopenRequest {
    /// Makes a value for the wide endpoint (0) or the narrow endpoint (1). `index` is the interface index of the
    /// endpoint's current ports.
    pub fn new(end: usize, index: Option<u32>, ask: Ask) -> ReopenRequest {
        ReopenRequest { end, ask, state: Mutex::new(Asked { index, ..Asked::default() }) }
    }

    /// Returns the port of a worker, if the supervisor has handed it over. Otherwise requests the ports of all
    /// workers from the supervisor.
    ///
    /// # Errors
    /// The supervisor could not open the port, for the reason in the error, or it has ended.
    pub fn port(&self, number: usize) -> io::Result<Option<Box<dyn Port>>> {
        let mut state = locked(&self.state);
        if let Some(port) = state.waiting.get_mut(number).and_then(Option::take) {
            return Ok(Some(port));
        }
        if state.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
            state.asked_at = Some(Instant::now());
            (self.ask)(self.end, state.index)?;
        }
        state.refused.take().map_or(Ok(None), |why| Err(io::Error::other(why)))
    }

    /// Stores the supervisor's answer, with the handed-over ports.
    pub fn receive(&self, said: Result<ReopenedPorts, String>) {
        let mut state = locked(&self.state);
        match said {
            Ok(ReopenedPorts { index, ports }) => {
                state.waiting = ports.into_iter().map(Some).collect();
                (state.index, state.refused) = (index, None);
            }
            Err(why) => state.refused = Some(why),
        }
    }
}

impl fmt::Debug for ReopenedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed").field("index", &self.index).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReopenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Returns a sentence with the reason why flows are not offloaded; `None` if they are, or if offload is not wanted.
pub fn offload_doubt<'a>(mut reasons: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    reasons.find_map(|why| Some(format!("flow offload is off: {}", why?)))
}

/// Opens the port of one worker's endpoint, in the calling thread's namespace. The ports of several workers share
/// the packets of the interface. They must be opened in worker order.
///
/// # Errors
/// A resource is missing. The error contains a way to fix it.
pub fn open(config: &Config, end: usize, number: usize) -> io::Result<Box<dyn Port>> {
    let side = side(config, end);
    let offloads = match side.offloads {
        Toggle::On => Options::default().offloads,
        Toggle::Off => Offloads::default(),
    };
    let may_offload = build::can_offload(config);
    let other = if may_offload { foreign(config, 1 - end)? } else { None };
    // If the other interface is missing, this port gets no egress interface for flow offload yet.
    let lends_to = other.and_then(|name| Some(Netlink::open().ok()?.interface(&name).ok()?.index));
    let counts_drops = number == 0;
    let mtu = Some(side.mtu.into());
    let mut options = Options { mtu, offloads, may_offload, lends_to, counts_drops, ..Options::default() };
    if config.workers > 1 {
        let spread =
            if steer::allowed().is_ok() { FanoutMode::Steered(config.workers as u16) } else { FanoutMode::Flow };
        let index = match foreign(config, end)? {
            Some(name) => Netlink::open()?.interface(&name)?.index,
            None => 0,
        };
        options.has_queues = true;
        options.fanout = Some(Fanout { group: GROUP ^ index as u16, spread });
    }
    port::open(&ports::address(config, end), &options)
}

/// Returns a warning about the distribution of packets among workers; `None` if it works as expected.
pub fn note(config: &Config) -> Option<String> {
    let refused = if config.workers > 1 { steer::allowed().err() } else { None };
    refused.map(|error| {
        format!("workers: {error}; the kernel's flow hash distributes frames over the workers instead")
    })
}

/// Returns the configuration of an endpoint's side.
pub(crate) fn side(config: &Config, end: usize) -> &SideConfig {
    if end == WIDE { &config.wide } else { &config.narrow }
}

/// Locks a mutex, even if a thread panicked under the lock. The state is consistent between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of an endpoint's existing device; `None` for a device that opening creates.
fn foreign(config: &Config, end: usize) -> io::Result<Option<String>> {
    let address: PortAddress = ports::address(config, end)
        .parse()
        .map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok((!address.makes_device()).then(|| address.device()))
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("index", &self.index).finish_non_exhaustive()
    }
}

const WIDE: usize = 0;
/// Interval between two requests to the supervisor for the same ports.
const ASK_EVERY: Duration = Duration::from_millis(90);
/// Base of the fan-out group numbers of packet sockets: "wl" in ASCII. A group number is the bitwise XOR of this
/// base and the interface's index.
const GROUP: u16 = 0x776C;
