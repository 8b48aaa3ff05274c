//! Configuration -> the descriptors that the supervisor stores: ports and listeners.
//!
//! Stored descriptors outlive worker processes and restarts of the supervisor. So no packet is lost while a worker
//! process is replaced.

use crate::claims::Claims;
use crate::control::{Identity, Socket};
use crate::messages::{HandedPort, SupervisorRequest, losses_as_in_0_1};
use crate::offload_probe;
use crate::ports;
use crate::redirects::RedirectKey;
use crate::reopen::open;
use config::Config;
use gateway::snapshot::Losses;
use linux::descriptors::{self, Stay};
use linux::netlink::Netlink;
use offload::flow_offload;
use offload::heartbeat::{FailOpen, Heartbeat};
use offload::redirect::RedirectLinks;
use port::{Offloads, PortAddress};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process;

/// A stored port. A port without descriptors cannot be handed over.
#[derive(Debug)]
pub struct StoredPort {
    /// The port's description for worker processes.
    pub told: HandedPort,
    /// The port's descriptors for worker processes. The first one reads and writes packets.
    pub descriptors: Vec<OwnedFd>,
    /// The reason why flows that arrive at this port are not offloaded; `None` if they are, or if offload is not
    /// wanted.
    pub why_no_offload: Option<String>,
}

/// The listening sockets of a gateway.
#[derive(Debug)]
pub struct ListeningSockets {
    /// The control socket.
    pub control: Socket,
    /// The address and the socket for metrics; `None` without metrics.
    pub metrics: Option<(SocketAddr, TcpListener)>,
}

/// Configured sockets that were opened now; `None` for sockets that were open already or are not configured.
struct Fresh {
    control: Option<Socket>,
    metrics: Option<(SocketAddr, TcpListener)>,
}

/// The state that a supervisor leaves to its successor program in the same process. It contains descriptors as
/// numbers.
#[derive(Debug, Serialize, Deserialize)]
pub struct RestartState {
    /// Version of the format.
    pub version: u32,
    /// Process ID of the supervisor, which a restart does not change.
    pub process: u32,
    /// Text of the configuration file.
    pub text: String,
    /// The ports, with the descriptor numbers of each.
    pub ports: Vec<(HandedPort, Vec<RawFd>)>,
    /// Path and descriptor number of the control socket.
    pub control: (PathBuf, RawFd),
    /// Device and inode of the control socket's file; `None` from older programs.
    #[serde(default)]
    pub control_file: Option<Identity>,
    /// Address and descriptor number of the metrics socket; `None` without metrics.
    pub metrics: Option<(SocketAddr, RawFd)>,
    /// Descriptor number of the heartbeat; `None` if no program in the kernel watches it.
    // Version 0.1 writes and reads the same format, with the key `pulse`.
    #[serde(rename = "pulse", alias = "heartbeat")]
    pub heartbeat: Option<RawFd>,
    /// The worker process: its process ID, its descriptor, the socket to it. `None` if there is none.
    pub worker: Option<(i32, RawFd, RawFd)>,
    /// The claimed interfaces, by index, with the descriptor numbers of the claims.
    #[serde(default)]
    pub claims: Vec<(u32, RawFd)>,
    /// The attached programs that redirect packets, with the descriptor numbers of their links.
    #[serde(default)]
    pub links: Vec<(RedirectKey, [RawFd; 3])>,
    /// Number of the restart request; `None` if no client waits for the result.
    #[serde(default)]
    pub awaited: Option<u64>,
    /// Packets and frames lost by worker processes so far.
    #[serde(default, with = "losses_as_in_0_1")]
    pub losses: Losses,
    /// Requests to carry out after the restart. Each has a number if a client waits for the result.
    #[serde(default)]
    pub wanted: VecDeque<(SupervisorRequest, Option<u64>)>,
}

/// The descriptors of the predecessor program, by number.
#[derive(Debug, Default)]
pub struct InheritedFds(HashMap<RawFd, OwnedFd>);

impl StoredPort {
    /// Opens the ports of all workers. `trusted` contains the offloads that passed the self-test: at the wide
    /// endpoint, then at the narrow endpoint.
    ///
    /// # Errors
    /// The kernel refuses an operation.
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

    /// Reopens the ports of one endpoint for all workers. Returns `None` if the interface is unchanged, or down.
    /// For a port that cannot be handed over, only the interface's index is updated.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses an operation.
    pub fn open_again(&self, config: &Config, end: usize) -> io::Result<Option<Vec<StoredPort>>> {
        let is_ours_to_make = self.told.address.parse::<PortAddress>().is_ok_and(|address| address.makes_device());
        match Netlink::open()?.interface(&self.name()) {
            Ok(interface) if self.told.index == Some(interface.index) || !interface.is_up => return Ok(None),
            Err(error) if !is_ours_to_make => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let trusted = self.told.offloads().unwrap_or_default();
        let open = |number| StoredPort::open(config, end, number, trusted);
        (0..config.workers).map(open).collect::<io::Result<_>>().map(Some)
    }

    /// Returns the name of the port's device.
    pub fn name(&self) -> String {
        device_of(&self.told.address)
    }
}

fn device_of(address: &str) -> String {
    address.parse().map_or_else(|_| String::new(), |address: PortAddress| address.device())
}

/// Returns the index of the device at this address; `None` if the device does not exist.
fn index_of(address: &str) -> Option<u32> {
    Netlink::open().ok()?.interface(&device_of(address)).ok().map(|interface| interface.index)
}

/// Sets the egress interfaces of a border's offloaded flows to the interfaces of the opposite ports. A predecessor
/// program of an older version may have left this step to its workers.
///
/// # Errors
/// This process lacks a privilege.
pub fn set_targets(ports: &[StoredPort]) -> io::Result<()> {
    for (place, port) in ports.iter().enumerate() {
        if let [socket, flows, _, _] = &port.descriptors[..] {
            flow_offload::set_target(socket.as_fd(), flows.as_fd(), target(ports, place))?;
        }
    }
    Ok(())
}

/// Returns the index of the interface at the other endpoint of this port's worker.
fn target(ports: &[StoredPort], place: usize) -> Option<u32> {
    ports.get(place ^ 1).and_then(|other| other.told.index)
}

/// Attaches the fail-open programs. They forward packets between a border's interfaces while a worker's heartbeat
/// is missing.
///
/// # Errors
/// This process lacks a privilege.
pub fn watch(ports: &[StoredPort], heartbeat: &Heartbeat) -> io::Result<Vec<FailOpen>> {
    let [Some(wide), Some(narrow)] = [0, 1].map(|end| ports.get(end).and_then(|port| port.told.index)) else {
        return Ok(Vec::new());
    };
    for (place, port) in ports.iter().enumerate() {
        if let [socket, others @ ..] = &port.descriptors[..] {
            let flows = others.first().map(|flows| (flows.as_fd(), target(ports, place)));
            heartbeat.clear(socket.as_fd(), flows)?;
        }
    }
    Ok(vec![heartbeat.watch(wide, narrow)?, heartbeat.watch(narrow, wide)?])
}

/// Whether a port's memory belongs to one process, so that the port cannot be handed over.
fn is_of_one_process(address: &str) -> bool {
    address.starts_with("xdp:")
}

impl ListeningSockets {
    /// Opens the configured sockets.
    ///
    /// # Errors
    /// Another process listens at an address, or the kernel refuses.
    pub fn open(config: &Config) -> io::Result<ListeningSockets> {
        let metrics = config.metrics.map(|address| Ok::<_, io::Error>((address, listen_tcp(address)?)));
        Ok(ListeningSockets { control: listen_unix(&config.control)?, metrics: metrics.transpose()? })
    }

    /// Adopts the configured sockets. Sockets with an unchanged address stay open. Changes nothing on an error.
    ///
    /// # Errors
    /// Another process listens at an address, or the kernel refuses.
    pub fn apply(&mut self, config: &Config) -> io::Result<()> {
        let Fresh { control, metrics } = self.missing(config)?;
        if let Some(control) = control {
            self.control = control;
        }
        if self.metrics.as_ref().map(|(address, _)| *address) != config.metrics {
            self.metrics = metrics;
        }
        Ok(())
    }

    /// Checks that the configured sockets can be opened.
    ///
    /// # Errors
    /// Another process listens at an address, or the kernel refuses.
    pub fn could_suit(&self, config: &Config) -> io::Result<()> {
        self.missing(config).map(drop)
    }

    /// Opens the configured sockets that are not open yet.
    fn missing(&self, config: &Config) -> io::Result<Fresh> {
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

/// Listens at a path, and creates its directory if necessary.
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
    /// Leaves this state and all open descriptors to the next program of this process. Returns a descriptor of the
    /// state, and its number as text, for the environment variable [`VARIABLE`].
    ///
    /// # Errors
    /// There is no memory or no free descriptor.
    pub fn leave(&self) -> io::Result<(OwnedFd, String)> {
        let memory = rustix::fs::memfd_create(VARIABLE, rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = File::from(memory);
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        file.rewind()?;
        descriptors::stay_all(Stay::InTheNext)?;
        let number = descriptors::number(&file).to_string();
        Ok((file.into(), number))
    }

    /// Returns the state that the predecessor program left in this process, with all of its descriptors; `None` if
    /// there is none. A state of another process or of another format version does not count. Call this before
    /// opening any descriptor.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn find() -> io::Result<Option<(RestartState, InheritedFds)>> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<RawFd>().ok()) else {
            return Ok(None);
        };
        let mut inherited = InheritedFds(
            descriptors::inherited()?.into_iter().map(|open| (descriptors::number(&open), open)).collect(),
        );
        let mut text = Vec::new();
        File::from(inherited.take(number)?).read_to_end(&mut text)?;
        let restart_state: RestartState = serde_json::from_slice(&text).map_err(io::Error::other)?;
        let is_ours = restart_state.process == process::id() && restart_state.version == VERSION;
        Ok(is_ours.then_some((restart_state, inherited)))
    }
}

impl InheritedFds {
    /// Returns the descriptor of this number.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn take(&mut self, number: RawFd) -> io::Result<OwnedFd> {
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("descriptor {number} was not handed over"));
        self.0.remove(&number).ok_or_else(missing)
    }

    /// Returns the claims of the restart state. Claims without a descriptor are left out.
    pub(crate) fn claims(&mut self, told: &[(u32, RawFd)]) -> Claims {
        Claims::adopt(told.iter().filter_map(|(index, number)| Some((*index, self.take(*number).ok()?))))
    }

    /// Returns the attached programs of the restart state. Programs without a descriptor are left out.
    pub(crate) fn links(&mut self, told: &[(RedirectKey, [RawFd; 3])]) -> Vec<(RedirectKey, RedirectLinks)> {
        let taken = told.iter().filter_map(|(spot, [at_interface, at_ingress, at_egress])| {
            let links = [self.take(*at_interface).ok()?, self.take(*at_ingress).ok()?, self.take(*at_egress).ok()?];
            Some((*spot, links))
        });
        taken.collect()
    }

    /// Returns the ports of the restart state.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn ports(&mut self, told: &[(HandedPort, Vec<RawFd>)]) -> io::Result<Vec<StoredPort>> {
        told.iter()
            .map(|(told, numbers)| {
                let descriptors = numbers.iter().map(|number| self.take(*number)).collect::<io::Result<_>>()?;
                Ok(StoredPort { told: told.clone(), descriptors, why_no_offload: None })
            })
            .collect()
    }

    /// Returns the listening sockets of the restart state.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn sockets(&mut self, restart_state: &RestartState) -> io::Result<ListeningSockets> {
        let (path, number) = &restart_state.control;
        let control = Socket::adopt(path.clone(), self.take(*number)?.into(), restart_state.control_file);
        let metrics =
            restart_state.metrics.map(|(address, number)| Ok::<_, io::Error>((address, self.take(number)?.into())));
        Ok(ListeningSockets { control, metrics: metrics.transpose()? })
    }
}

/// Returns the descriptor numbers of the stored ports.
pub fn numbers(ports: &[StoredPort]) -> Vec<(HandedPort, Vec<RawFd>)> {
    let numbers = |port: &StoredPort| port.descriptors.iter().map(descriptors::number).collect();
    ports.iter().map(|port| (port.told.clone(), numbers(port))).collect()
}

/// Returns all descriptors for a worker process, in the order of the first message.
pub fn handed<'a>(
    ports: &'a [StoredPort],
    sockets: &'a ListeningSockets,
    heartbeat: Option<&'a Heartbeat>,
) -> Vec<BorrowedFd<'a>> {
    let ports = ports.iter().flat_map(|port| &port.descriptors).map(AsFd::as_fd);
    let metrics = sockets.metrics.as_ref().map(|(_, listener)| listener.as_fd());
    ports.chain([sockets.control.listener().as_fd()]).chain(metrics).chain(heartbeat.map(Heartbeat::fd)).collect()
}

/// Version of the restart state's format and of the messages to worker processes.
pub const VERSION: u32 = 4;
/// Environment variable that contains the descriptor number of the restart state. Version 0.1 uses the same name.
pub const VARIABLE: &str = "WIDELOAD_ESTATE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_restart_state_has_the_keys_of_version_0_1() {
        let text = r#"{"version":4,"process":1,"text":"role",
            "ports":[[{"address":"packet:lan0","offloads":[true,false,true],"index":2,"count":2},[6,7]],
                [{"address":"xdp:wan0","offloads":null,"index":null,"count":0},[]]],
            "control":["/run/x.sock",3],"control_file":[64,4711],"metrics":["127.0.0.1:9469",4],"pulse":5,
            "worker":[4712,8,9],"claims":[[2,10],[3,11]],"links":[[[2,5],[12,13,14]]],"awaited":7,
            "losses":{"untaken":1,"cut":2,"panicked":3},"wanted":[["Reload",8],["Restart",9],["Stop",null]]}"#;
        let read: RestartState = serde_json::from_str(text).expect("the format is the same");
        let [lan, wan] = ["packet:lan0", "xdp:wan0"].map(str::to_owned);
        let lan = HandedPort { address: lan, offloads: Some([true, false, true]), index: Some(2), count: 2 };
        let wan = HandedPort { address: wan, offloads: None, index: None, count: 0 };
        assert_eq!((read.version, VARIABLE), (VERSION, "WIDELOAD_ESTATE"));
        assert_eq!(read.ports, [(lan, vec![6, 7]), (wan, vec![])]);
        assert_eq!((read.heartbeat, read.worker, read.awaited), (Some(5), Some((4712, 8, 9)), Some(7)));
        assert_eq!(read.claims, [(2, 10), (3, 11)]);
        assert_eq!(read.links, [([2, 5], [12, 13, 14])]);
        assert_eq!(read.losses, Losses { not_received: 1, truncated: 2, panicked: 3 });
        let [reload, restart] = [SupervisorRequest::Reload, SupervisorRequest::Restart];
        assert_eq!(read.wanted, [(reload, Some(8)), (restart, Some(9)), (SupervisorRequest::Stop, None)]);
        let of_0_1: serde_json::Value = serde_json::from_str(text).expect("the text is JSON");
        let written = serde_json::to_value(&read).expect("it is an object");
        assert_eq!(written, of_0_1, "version 0.1 reads the state after a restart into that version");
    }

    #[test]
    fn absent_keys_of_the_restart_state_have_defaults() {
        let text = r#"{"version":4,"process":1,"text":"","ports":[],"control":["/run/x.sock",3],"metrics":null,
            "pulse":null,"worker":null}"#;
        let read: RestartState = serde_json::from_str(text).expect("the other keys are optional");
        assert_eq!((read.control_file, read.heartbeat, read.awaited), (None, None, None));
        assert!(read.claims.is_empty() && read.links.is_empty() && read.wanted.is_empty());
        assert_eq!(read.losses, Losses::default());
    }
}
