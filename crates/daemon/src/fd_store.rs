//! A configuration in, the descriptors that its keeper keeps out: ports and listeners, through the ends of its
//! worker processes and through programs of its own that take each other's place.

use crate::claims::Claims;
use crate::control::{Identity, Socket};
use crate::messages::{HandedPort, Wish};
use crate::offload_probe;
use crate::ports;
use crate::redirects::Spot;
use crate::reopen::open;
use config::Config;
use gateway::snapshot::Losses;
use linux::descriptors::{self, Stay};
use linux::netlink::Netlink;
use offload::flow_offload;
use offload::heartbeat::{FailOpen, Heartbeat};
use offload::redirect::RedirectLinks;
use port::{Address, Offloads};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process;

/// A port that is kept; without descriptors, one that cannot be handed over.
#[derive(Debug)]
pub struct StoredPort {
    /// What a worker process is told of it.
    pub told: HandedPort,
    /// What it is handed: to read and write first.
    pub descriptors: Vec<OwnedFd>,
    /// Why no flow that comes in by it is offloaded, where some could be.
    pub why_no_offload: Option<String>,
}

/// What is spoken to from outside.
#[derive(Debug)]
pub struct Doors {
    /// Where it is asked and told.
    pub control: Socket,
    /// Where its figures are fetched.
    pub metrics: Option<(SocketAddr, TcpListener)>,
}

/// Doors that were not open before.
struct Fresh {
    control: Option<Socket>,
    metrics: Option<(SocketAddr, TcpListener)>,
}

/// What a keeper leaves to the program that takes its place in its process, by numbers of descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub struct RestartState {
    /// Which way of writing it this is.
    pub version: u32,
    /// The process.
    pub process: u32,
    /// The configuration that it went by.
    pub text: String,
    /// The ports.
    pub ports: Vec<(HandedPort, Vec<RawFd>)>,
    /// Where it is asked.
    pub control: (PathBuf, RawFd),
    /// Device and inode of that socket's file; older programs do not say it.
    #[serde(default)]
    pub control_file: Option<Identity>,
    /// Where its figures are fetched.
    pub metrics: Option<(SocketAddr, RawFd)>,
    /// Where its workers say that they work.
    pub pulse: Option<RawFd>,
    /// The worker process: its number, its descriptor, the socket to it.
    pub worker: Option<(i32, RawFd, RawFd)>,
    /// The interfaces that it has claimed, by their numbers.
    #[serde(default)]
    pub claims: Vec<(u32, RawFd)>,
    /// What stands beside the kernel.
    #[serde(default)]
    pub links: Vec<(Spot, [RawFd; 3])>,
    /// The number of the wish for the restart, if somebody waits for its outcome.
    #[serde(default)]
    pub awaited: Option<u64>,
    /// What its worker processes lost.
    #[serde(default)]
    pub losses: Losses,
    /// What is to be done afterwards, and under which number somebody waits for that.
    #[serde(default)]
    pub wanted: VecDeque<(Wish, Option<u64>)>,
}

/// Descriptors that came through a change of programs, by their numbers.
#[derive(Debug, Default)]
pub struct InheritedFds(HashMap<RawFd, OwnedFd>);

impl StoredPort {
    /// The ports of all workers, whose ends are trusted with this.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn open_all(config: &Config, trusted: [Offloads; 2]) -> io::Result<Vec<StoredPort>> {
        let mut kept = Vec::new();
        for number in 0..config.workers {
            for (end, trusted) in trusted.into_iter().enumerate() {
                kept.push(StoredPort::open(config, end, number, trusted)?);
            }
        }
        Ok(kept)
    }

    fn open(config: &Config, end: usize, number: usize, trusted: Offloads) -> io::Result<StoredPort> {
        let address = ports::address(config, end);
        if is_of_one_process(&address) {
            let index = index_of(&address);
            let told = HandedPort { address, offloads: None, index, count: 0 };
            return Ok(StoredPort { told, descriptors: Vec::new(), why_no_offload: None });
        }
        let port = open(config, end, number)?;
        let Offloads { checksum, tcp, udp } = offload_probe::both(port.offloads(), trusted);
        let address = port.address().to_owned();
        let index = index_of(&address);
        let descriptors =
            port.fds().into_iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        let told = HandedPort { address, offloads: Some([checksum, tcp, udp]), index, count: descriptors.len() };
        Ok(StoredPort { told, descriptors, why_no_offload: port.why_no_offload().map(str::to_owned) })
    }

    /// The ports of one end of all workers, opened anew; none where its interface is the one that it was, or is
    /// down. Of a port that cannot be handed over only the number of its interface is new.
    ///
    /// # Errors
    /// The interface is not there, or what the kernel refuses.
    pub fn open_again(&self, config: &Config, end: usize) -> io::Result<Option<Vec<StoredPort>>> {
        let is_ours_to_make = self.told.address.parse::<Address>().is_ok_and(|address| address.makes_device());
        match Netlink::open()?.interface(&self.name()) {
            Ok(interface) if self.told.index == Some(interface.index) || !interface.is_up => return Ok(None),
            Err(error) if !is_ours_to_make => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let trusted = self.told.offloads().unwrap_or_default();
        let open = |number| StoredPort::open(config, end, number, trusted);
        (0..config.workers).map(open).collect::<io::Result<_>>().map(Some)
    }

    /// The name of the device that it reads.
    pub fn name(&self) -> String {
        device_of(&self.told.address)
    }
}

fn device_of(address: &str) -> String {
    address.parse().map_or_else(|_| String::new(), |address: Address| address.device())
}

/// Number of the device at this address, where it is there.
fn index_of(address: &str) -> Option<u32> {
    Netlink::open().ok()?.interface(&device_of(address)).ok().map(|interface| interface.index)
}

/// Has the flows of a border that the kernel passes on leave by the interface at its other end, whichever that is
/// by now. A program before this one may have let the worker say it.
///
/// # Errors
/// The right is missing.
pub fn set_targets(ports: &[StoredPort]) -> io::Result<()> {
    for (place, port) in ports.iter().enumerate() {
        if let [socket, flows, _, _] = &port.descriptors[..] {
            flow_offload::set_target(socket.as_fd(), flows.as_fd(), target(ports, place))?;
        }
    }
    Ok(())
}

/// Number of the interface at the other end of the worker whose port stands there.
fn target(ports: &[StoredPort], place: usize) -> Option<u32> {
    ports.get(place ^ 1).and_then(|other| other.told.index)
}

/// Has packets pass between the interfaces of a border while one of its workers is silent.
///
/// # Errors
/// The right is missing.
pub fn watch(ports: &[StoredPort], pulse: &Heartbeat) -> io::Result<Vec<FailOpen>> {
    let [Some(wide), Some(narrow)] = [0, 1].map(|end| ports.get(end).and_then(|port| port.told.index)) else {
        return Ok(Vec::new());
    };
    for (place, port) in ports.iter().enumerate() {
        if let [socket, others @ ..] = &port.descriptors[..] {
            let flows = others.first().map(|flows| (flows.as_fd(), target(ports, place)));
            pulse.clear(socket.as_fd(), flows)?;
        }
    }
    Ok(vec![pulse.watch(wide, narrow)?, pulse.watch(narrow, wide)?])
}

/// Does the memory of such a port belong to one process? It cannot be handed over then.
fn is_of_one_process(address: &str) -> bool {
    address.starts_with("xdp:")
}

impl Doors {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// Somebody else listens there, or it cannot be.
    pub fn open(config: &Config) -> io::Result<Doors> {
        let metrics = config.metrics.map(|address| Ok::<_, io::Error>((address, listen_tcp(address)?)));
        Ok(Doors { control: listen_unix(&config.control)?, metrics: metrics.transpose()? })
    }

    /// Has them be those that the configuration names: what is the same stays open. On an error nothing changes.
    ///
    /// # Errors
    /// Somebody else listens at one, or it cannot be.
    pub fn suit(&mut self, config: &Config) -> io::Result<()> {
        let Fresh { control, metrics } = self.fresh(config)?;
        if let Some(control) = control {
            self.control = control;
        }
        if self.metrics.as_ref().map(|(address, _)| *address) != config.metrics {
            self.metrics = metrics;
        }
        Ok(())
    }

    /// Can they be those that the configuration names?
    ///
    /// # Errors
    /// Somebody else listens at one, or it cannot be.
    pub fn could_suit(&self, config: &Config) -> io::Result<()> {
        self.fresh(config).map(drop)
    }

    /// Those that the configuration names and that are not open yet.
    fn fresh(&self, config: &Config) -> io::Result<Fresh> {
        let is_open = |address| self.metrics.as_ref().is_some_and(|(open, _)| *open == address);
        let metrics = config.metrics.filter(|address| !is_open(*address));
        let metrics = metrics.map(|address| Ok::<_, io::Error>((address, listen_tcp(address)?))).transpose()?;
        let control = (self.control.path() != config.control).then(|| listen_unix(&config.control)).transpose()?;
        Ok(Fresh { control, metrics })
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("metrics {address}: cannot listen: {error}; give another address"))
    })
}

/// Listens at a path, in a directory that is made where there is none.
fn listen_unix(path: &Path) -> io::Result<Socket> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| {
            let said = format!("control {}: cannot listen: {error}; give another path", path.display());
            io::Error::new(error.kind(), said)
        })?;
    }
    Socket::bind(path)
}

impl RestartState {
    /// Leaves it, and all that is open, to the next program of this process: returns the variable of the
    /// environment that names it.
    ///
    /// # Errors
    /// No memory or descriptor is left.
    pub fn leave(&self) -> io::Result<(OwnedFd, String)> {
        let memory = rustix::fs::memfd_create(VARIABLE, rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = File::from(memory);
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        file.rewind()?;
        descriptors::stay_all(Stay::InTheNext)?;
        let number = descriptors::number(&file).to_string();
        Ok((file.into(), number))
    }

    /// What a program before this one of the same process left, with all that it had open; to be called before
    /// anything is opened.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find() -> io::Result<Option<(RestartState, InheritedFds)>> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<RawFd>().ok()) else {
            return Ok(None);
        };
        let mut inherited = InheritedFds(
            descriptors::inherited()?.into_iter().map(|open| (descriptors::number(&open), open)).collect(),
        );
        let mut text = Vec::new();
        File::from(inherited.take(number)?).read_to_end(&mut text)?;
        let estate: RestartState = serde_json::from_slice(&text).map_err(io::Error::other)?;
        let is_ours = estate.process == process::id() && estate.version == VERSION;
        Ok(is_ours.then_some((estate, inherited)))
    }
}

impl InheritedFds {
    /// What came under this number.
    ///
    /// # Errors
    /// Nothing did.
    pub fn take(&mut self, number: RawFd) -> io::Result<OwnedFd> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("descriptor {number} was not handed on"));
        self.0.remove(&number).ok_or_else(missing)
    }

    /// The claims of an estate, those that were handed on.
    pub(crate) fn claims(&mut self, told: &[(u32, RawFd)]) -> Claims {
        Claims::adopt(told.iter().filter_map(|(index, number)| Some((*index, self.take(*number).ok()?))))
    }

    /// What stood beside the kernel, as far as it was handed on.
    pub(crate) fn links(&mut self, told: &[(Spot, [RawFd; 3])]) -> Vec<(Spot, RedirectLinks)> {
        let taken = told.iter().filter_map(|(spot, [at_interface, at_ingress, at_egress])| {
            let links = [self.take(*at_interface).ok()?, self.take(*at_ingress).ok()?, self.take(*at_egress).ok()?];
            Some((*spot, links))
        });
        taken.collect()
    }

    /// The ports of an estate.
    ///
    /// # Errors
    /// One was not handed on.
    pub fn ports(&mut self, told: &[(HandedPort, Vec<RawFd>)]) -> io::Result<Vec<StoredPort>> {
        told.iter()
            .map(|(told, numbers)| {
                let descriptors = numbers.iter().map(|number| self.take(*number)).collect::<io::Result<_>>()?;
                Ok(StoredPort { told: told.clone(), descriptors, why_no_offload: None })
            })
            .collect()
    }

    /// The doors of an estate.
    ///
    /// # Errors
    /// One was not handed on.
    pub fn doors(&mut self, estate: &RestartState) -> io::Result<Doors> {
        let (path, number) = &estate.control;
        let control = Socket::adopt(path.clone(), self.take(*number)?.into(), estate.control_file);
        let metrics =
            estate.metrics.map(|(address, number)| Ok::<_, io::Error>((address, self.take(number)?.into())));
        Ok(Doors { control, metrics: metrics.transpose()? })
    }
}

/// Numbers of what is kept.
pub fn numbers(ports: &[StoredPort]) -> Vec<(HandedPort, Vec<RawFd>)> {
    let numbers = |port: &StoredPort| port.descriptors.iter().map(descriptors::number).collect();
    ports.iter().map(|port| (port.told.clone(), numbers(port))).collect()
}

/// All descriptors that a worker process is handed, in the order in which it is told of them.
pub fn handed<'a>(ports: &'a [StoredPort], doors: &'a Doors, pulse: Option<&'a Heartbeat>) -> Vec<BorrowedFd<'a>> {
    let ports = ports.iter().flat_map(|port| &port.descriptors).map(AsFd::as_fd);
    let metrics = doors.metrics.as_ref().map(|(_, listener)| listener.as_fd());
    ports.chain([doors.control.listener().as_fd()]).chain(metrics).chain(pulse.map(Heartbeat::fd)).collect()
}

/// Which way of leaving an estate, and of speaking with worker processes, this program knows.
pub const VERSION: u32 = 4;
/// Names what was left to this program.
pub const VARIABLE: &str = "WIDELOAD_ESTATE";
