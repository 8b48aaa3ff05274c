//! Messages between the supervisor and a worker process -> packets on their socket, and back.
//!
//! Each message is JSON. A message that hands over ports, sockets or a pipe also contains their descriptors.

use config::OwnAddresses;
use gateway::commands::ShutdownNotices;
use gateway::snapshot::Losses;
use linux::descriptors;
use port::Offloads;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A message of the supervisor to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The first message: begin to work. Its descriptors come in the order of the fields of [`Begin`].
    Begin(Begin),
    /// Adopt the configuration with this text. The second value contains the addresses of the gateway's interfaces.
    Reload(String, OwnAddresses),
    /// Release all held packets, and end. A successor may follow.
    Drain,
    /// End without a successor. First send ICMP errors to the hosts whose MSS was raised, then release all packets.
    Finish,
    /// Write all held packets to the pipe that comes with this message, and end. A successor receives them.
    HandOver,
    /// The result of a client's request to the supervisor.
    Said {
        /// The number of the request.
        number: u64,
        /// The result, or the reason of a failure.
        outcome: Result<Done, String>,
    },
    /// The result of reopening the ports of an endpoint. The descriptors of all workers' ports come with this
    /// message, in worker order.
    Reopened {
        /// The wide endpoint (0) or the narrow endpoint (1).
        end: usize,
        /// The reopened ports, or the reason of a failure.
        ports: Result<Vec<HandedPort>, String>,
    },
}

/// A message of a worker process to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// The worker process is ready. It has not processed a packet yet.
    Ready,
    /// All workers of the process have made another round.
    Beat,
    /// The result of a reload; the reason in case of a failure.
    Reloaded(Result<(), String>),
    /// Reopen the ports of an endpoint, as their interface was deleted or created again.
    Reopen {
        /// The wide endpoint (0) or the narrow endpoint (1).
        end: usize,
        /// Interface index of the endpoint's old ports; `None` if it is unknown.
        index: Option<u32>,
    },
    /// A request of a client of the control socket.
    // The name in version 0.1 is `Wish`. A restart exchanges messages with that version in both directions.
    #[serde(rename = "Wish", alias = "SupervisorRequest")]
    SupervisorRequest {
        /// The number of the request, which the answer repeats. It is unique in this process.
        number: u64,
        /// The request itself.
        #[serde(rename = "wish")]
        request: SupervisorRequest,
    },
    /// The process ends. The value has the numbers of connections whose wide hosts got an ICMP error about the
    /// smaller path MTU, or got none.
    #[serde(rename = "Farewell")]
    ShutdownNotices(ShutdownNotices),
    /// Losses between this worker process and its successor.
    Lost(#[serde(with = "losses_as_in_0_1")] Losses),
}

/// Losses with the names of version 0.1. A program of that version reads other names as 0.
pub(crate) mod losses_as_in_0_1 {
    use gateway::snapshot::Losses;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Former {
        untaken: u64,
        cut: u64,
        panicked: u64,
    }

    pub fn serialize<S: Serializer>(losses: &Losses, to: S) -> Result<S::Ok, S::Error> {
        let Losses { not_received, truncated, panicked } = *losses;
        Former { untaken: not_received, cut: truncated, panicked }.serialize(to)
    }

    /// Reads the names of both versions.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Losses, D::Error> {
        Losses::deserialize(from)
    }
}

/// The result of a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// A sentence about the result.
    pub said: String,
    /// Path of the control socket after the request.
    pub control: PathBuf,
}

/// A request that clients of a worker process may send to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorRequest {
    /// Reload the configuration file.
    Reload,
    /// Restart without packet loss.
    Restart,
    /// End the gateway.
    Stop,
}

/// The first message to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Path of the configuration file.
    pub file: String,
    /// Text of the configuration file.
    pub text: String,
    /// Whether stages that hold packets are bypassed, because earlier worker processes died.
    #[serde(rename = "is_careful")]
    pub is_degraded: bool,
    /// The ports of all workers in order: for each the wide port, then the narrow port.
    pub ports: Vec<HandedPort>,
    /// Whether a descriptor of the control socket comes with the message.
    pub has_control: bool,
    /// Whether a descriptor of the metrics socket comes with the message.
    pub has_metrics: bool,
    /// Whether a descriptor of the heartbeats comes with the message.
    #[serde(rename = "has_pulse")]
    pub has_heartbeat: bool,
    /// Whether a pipe comes with the message, from which the process reads held packets of another process.
    #[serde(rename = "has_heritage")]
    pub has_handoff: bool,
    /// The addresses of the gateway's interfaces.
    pub own_addresses: OwnAddresses,
    /// Packets and frames lost by earlier worker processes.
    #[serde(default)]
    pub losses: Losses,
}

/// The description of a port that is handed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedPort {
    /// The port's address, such as `packet:eth0`.
    pub address: String,
    /// The port's offloads: checksums, TCP segmentation, UDP segmentation. `None` for a port that cannot be handed
    /// over. The receiving process opens such a port itself.
    pub offloads: Option<[bool; 3]>,
    /// Index of the port's interface; `None` if it has none.
    pub index: Option<u32>,
    /// Number of the port's descriptors in the message.
    pub count: usize,
}

impl HandedPort {
    /// Returns the port's offloads; `None` for a port that cannot be handed over.
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads.map(|[checksum, tcp, udp]| Offloads { checksum, tcp, udp })
    }
}

/// Sends a message with these descriptors. Does not wait for the other process.
///
/// # Errors
/// The other process has closed the socket, or does not read.
pub fn say(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    descriptors::send(socket, &text, descriptors)
}

/// The result of receiving a message.
#[derive(Debug)]
pub enum Received<T> {
    /// A message with its descriptors.
    Said(T, Vec<OwnedFd>),
    /// There is no message yet.
    Nothing,
    /// The other process has closed the socket.
    Gone,
}

/// Receives a message. Does not wait.
///
/// # Errors
/// The bytes are no valid message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Received<T>> {
    match descriptors::receive(socket, MESSAGE_LEN_MAX) {
        Ok(Some((message, descriptors))) => {
            let said = serde_json::from_slice(&message).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("cannot parse a message: {error}"))
            })?;
            Ok(Received::Said(said, descriptors))
        }
        Ok(None) => Ok(Received::Gone),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Nothing),
        Err(error) => Err(error),
    }
}

/// Longest message, in bytes. It has room for a configuration of 64 KiB with every byte escaped. The default limits
/// of most sockets are smaller.
const MESSAGE_LEN_MAX: usize = 256 << 10;
