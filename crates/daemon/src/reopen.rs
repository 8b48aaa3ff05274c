//! An interface in, ports on it out: one for each worker, in their order; and anew where the interface went and
//! came again.
//!
//! The kernel numbers the sockets of a group, and the queues of a device, as they are opened. So whichever worker
//! finds its port gone first opens those of all, or asks the keeper for them, and the others take theirs when they
//! find it too.

use crate::ports;
use crate::roles::HostChanges;
use config::{Config, SideConfig};
use engine::Toggle;
use gateway::build;
use linux::netlink::Netlink;
use offload::steer;
use port::{Address, Fanout, FanoutMode, Offloads, Options, Port};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Opens the ports of one side anew, for all workers.
#[derive(Debug)]
pub struct Reopening {
    config: Config,
    end: usize,
    seized: Arc<Mutex<HostChanges>>,
    state: Mutex<State>,
}

/// Has the port of the worker with this number opened anew; none while its interface is as it was, or nobody has
/// done so yet.
pub type Opener = Arc<dyn Fn(usize) -> io::Result<Option<Box<dyn Port>>> + Send + Sync>;

/// Ports of one side that a keeper opens anew, for all workers of a process without rights.
pub struct Asking {
    end: usize,
    ask: Ask,
    state: Mutex<Asked>,
}

/// Ports that a keeper has handed over.
pub struct Handed {
    /// Number of their interface.
    pub index: Option<u32>,
    /// Those of all workers, in their order.
    pub ports: Vec<Box<dyn Port>>,
}

/// Asks the keeper, by the end and the number of the interface that its ports were on.
type Ask = Box<dyn Fn(usize, Option<u32>) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
struct Asked {
    index: Option<u32>,
    asked_at: Option<Instant>,
    /// Ports whose workers have not missed them yet.
    waiting: Vec<Option<Box<dyn Port>>>,
    /// Why there are none.
    refused: Option<String>,
}

struct State {
    /// Number of the interface that the ports were opened on; none of a device of ours, which is made when it is
    /// opened.
    index: Option<u32>,
    /// Ports whose workers have not missed them yet.
    waiting: Vec<Option<Box<dyn Port>>>,
}

impl Reopening {
    /// For the wide end (0) or the narrow one (1), whose ports are open already.
    ///
    /// # Errors
    /// The interface is not there.
    pub fn new(config: &Config, end: usize, seized: Arc<Mutex<HostChanges>>) -> io::Result<Reopening> {
        let index = match foreign(config, end)? {
            Some(name) => Some(Netlink::open()?.interface(&name)?.index),
            None => None,
        };
        let state = Mutex::new(State { index, waiting: Vec::new() });
        Ok(Reopening { config: config.clone(), end, seized, state })
    }

    /// The port of a worker, opened anew; none while its interface is the one that it was, and only down.
    ///
    /// # Errors
    /// The interface is not there, or what the kernel refuses.
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
        locked(&self.seized).refresh(&self.config)?;
        let port = ports.get_mut(number).and_then(Option::take);
        (state.index, state.waiting) = (index, ports);
        Ok(port)
    }
}

impl Asking {
    /// For the wide end (0) or the narrow one (1), whose ports are on the interface with this number.
    pub fn new(end: usize, index: Option<u32>, ask: Ask) -> Asking {
        Asking { end, ask, state: Mutex::new(Asked { index, ..Asked::default() }) }
    }

    /// The port of a worker, where the keeper has handed one over; else it is asked, once for all workers.
    ///
    /// # Errors
    /// Why the keeper could not open it, or that it is gone.
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

    /// Takes what the keeper says, with the ports that it hands over.
    pub fn receive(&self, said: Result<Handed, String>) {
        let mut state = locked(&self.state);
        match said {
            Ok(Handed { index, ports }) => {
                state.waiting = ports.into_iter().map(Some).collect();
                (state.index, state.refused) = (index, None);
            }
            Err(why) => state.refused = Some(why),
        }
    }
}

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed").field("index", &self.index).finish_non_exhaustive()
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("end", &self.end).finish_non_exhaustive()
    }
}

/// The reason why flows are not offloaded, as one sentence; `None` where they are, or where offload is not wanted.
pub fn offload_doubt<'a>(mut reasons: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    reasons.find_map(|why| Some(format!("flow offload is off: {}", why?)))
}

/// Opens the port of one end of a worker, in the namespace of this thread. Those of several workers share what
/// comes: to be opened in the order of their numbers.
///
/// # Errors
/// What is missing, and what to do.
pub fn open(config: &Config, end: usize, number: usize) -> io::Result<Box<dyn Port>> {
    let side = side(config, end);
    let offloads = match side.offloads {
        Toggle::On => Options::default().offloads,
        Toggle::Off => Offloads::default(),
    };
    let may_offload = build::can_offload(config);
    let other = if may_offload { foreign(config, 1 - end)? } else { None };
    // Where it is not there, its own port will be opened later, and who does that sees to this one.
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

/// What became of sharing packets out otherwise than one would think; nothing where all is well.
pub fn note(config: &Config) -> Option<String> {
    let refused = if config.workers > 1 { steer::allowed().err() } else { None };
    refused.map(|error| format!("workers: {error}; meanwhile the kernel's own hash shares frames out, by flow"))
}

/// The end's side.
pub(crate) fn side(config: &Config, end: usize) -> &SideConfig {
    if end == WIDE { &config.wide } else { &config.narrow }
}

/// What is locked, whoever panicked with it: it is whole between two steps.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the device of an end that others made; none of a device of ours.
fn foreign(config: &Config, end: usize) -> io::Result<Option<String>> {
    let address: Address = ports::address(config, end)
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
/// How often a keeper is asked for the same ports.
const ASK_EVERY: Duration = Duration::from_millis(90);
/// Groups of packet sockets are numbered by their interface, away from the small numbers that people give: "wl" in
/// ASCII.
const GROUP: u16 = 0x776C;
