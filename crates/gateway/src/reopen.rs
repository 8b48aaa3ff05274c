//! An interface in, ports on it out: one for each worker, in their order; and anew where the interface went and came again.
//!
//! The kernel numbers the sockets of a group, and the queues of a device, as they are opened. So whichever worker finds its
//! port gone first opens those of all, and the others take theirs when they find it too.

use crate::config::{Config, SideConfig};
use crate::links::Links;
use crate::roles::{self, Seized, links};
use engine::Switch;
use port::netlink::Netlink;
use port::{Address, Fanout, Offloads, Options, Port, Spread, steer};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Opens the ports of one side anew, for all workers.
#[derive(Debug)]
pub struct Reopening {
    config: Config,
    end: usize,
    seized: Arc<Mutex<Seized>>,
    state: Mutex<State>,
}

/// A port that was opened anew, and how packets get link headers there.
pub struct Reopened {
    /// The port.
    pub port: Box<dyn Port>,
    /// How packets get link headers.
    pub links: Links,
}

struct State {
    /// Number of the interface that the ports were opened on; none of a device of ours, which is made when it is opened.
    index: Option<u32>,
    /// Ports whose workers have not missed them yet.
    waiting: Vec<Option<Box<dyn Port>>>,
}

impl Reopening {
    /// For the wide end (0) or the narrow one (1), whose ports are open already.
    ///
    /// # Errors
    /// The interface is not there.
    pub fn new(config: &Config, end: usize, seized: Arc<Mutex<Seized>>) -> io::Result<Reopening> {
        let index = match name(side(config, end))? {
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
    pub fn port(&self, number: usize) -> io::Result<Option<Reopened>> {
        let mut state = locked(&self.state);
        if let Some(port) = state.waiting.get_mut(number).and_then(Option::take) {
            return self.with_links(port).map(Some);
        }
        let side = side(&self.config, self.end);
        let mut index = None;
        if let Some(name) = name(side)? {
            let interface = Netlink::open()?.interface(&name)?;
            if state.index == Some(interface.index) || !interface.is_up {
                return Ok(None);
            }
            index = Some(interface.index);
        }
        let ports = (0..self.config.workers).map(|number| open(&self.config, side, number).map(Some));
        let mut ports = ports.collect::<io::Result<Vec<_>>>()?;
        locked(&self.seized).renew(&self.config)?;
        let port = ports.get_mut(number).and_then(Option::take);
        (state.index, state.waiting) = (index, ports);
        port.map(|port| self.with_links(port)).transpose()
    }

    fn with_links(&self, port: Box<dyn Port>) -> io::Result<Reopened> {
        let [wide, narrow] = links(&self.config, port.as_ref())?;
        Ok(Reopened { port, links: if self.end == WIDE { wide } else { narrow } })
    }
}

/// Opens the port of one side of a worker, in the namespace of this thread. Those of several workers share what comes: to be
/// opened in the order of their numbers.
///
/// # Errors
/// What is missing, and what to do.
pub fn open(config: &Config, side: &SideConfig, _number: usize) -> io::Result<Box<dyn Port>> {
    let offloads = match side.offloads {
        Switch::On => Options::default().offloads,
        Switch::Off => Offloads::default(),
    };
    let takes = roles::takes(config);
    let mut options = Options { mtu: Some(side.mtu.into()), offloads, takes, ..Options::default() };
    if config.workers > 1 {
        let spread = if steer::allowed().is_ok() { Spread::Steered(config.workers as u16) } else { Spread::Flow };
        let index = match name(side)? {
            Some(name) => Netlink::open()?.interface(&name)?.index,
            None => 0,
        };
        options.has_queues = true;
        options.fanout = Some(Fanout { group: GROUP ^ index as u16, spread });
    }
    port::open(&side.port, &options)
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

/// The name of an interface that others made; none of a device of ours.
fn name(side: &SideConfig) -> io::Result<Option<String>> {
    let address: Address =
        side.port.parse().map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(match address {
        Address::Packet(name) | Address::Xdp(name) => Some(name),
        Address::Tun(_) | Address::Tap(_) => None,
    })
}

impl fmt::Debug for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reopened").field("port", &self.port.address()).field("links", &self.links).finish()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("index", &self.index).finish_non_exhaustive()
    }
}

const WIDE: usize = 0;
/// Groups of packet sockets are numbered by their interface, away from the small numbers that people give: "wl" in ASCII.
const GROUP: u16 = 0x776C;
