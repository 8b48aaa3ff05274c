//! Messages between the supervisor and a worker process -> packets on their socket, and back.

use config::OwnAddresses;
use gateway::commands::Farewell;
use gateway::snapshot::Losses;
use linux::descriptors;
use port::Offloads;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Messages of the supervisor to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// Begin: the first message. The descriptors that it lists come with it, in the same order.
    Begin(Begin),
    /// Change to this configuration, with these addresses of its interfaces.
    Reload(String, OwnAddresses),
    /// Release all held packets, and end.
    Drain,
    /// No successor follows: tell the hosts that were told to send longer packets, then act as on `Drain`.
    Finish,
    /// Write all held packets to the pipe that comes with this message, and end. A successor takes them.
    HandOver,
    /// Outcome of a wish.
    Said {
        /// The number of the wish.
        number: u64,
        /// The result, or the reason of the failure.
        outcome: Result<Done, String>,
    },
    /// The ports of an endpoint were reopened, or why they could not be. Those of all workers come with this
    /// message, in worker order.
    Reopened {
        /// The wide endpoint (0) or the narrow one (1).
        end: usize,
        /// The ports.
        ports: Result<Vec<HandedPort>, String>,
    },
}

/// Messages of a worker process to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// The worker process is prepared. It has not processed a packet yet.
    Ready,
    /// All of its workers have made another round.
    Beat,
    /// Outcome of a reload; on failure with the reason.
    Reloaded(Result<(), String>),
    /// Reopen the ports of an endpoint: their interface is gone, or was created again.
    Reopen {
        /// The wide endpoint (0) or the narrow one (1).
        end: usize,
        /// Index of the interface of the sender's ports.
        index: Option<u32>,
    },
    /// A client of the control socket asks for this, and is answered under this number.
    // Its name in the messages of version 0.1, with which a restart exchanges them in both directions.
    #[serde(rename = "Wish", alias = "SupervisorRequest")]
    SupervisorRequest {
        /// Unique in this process.
        number: u64,
        /// The wish.
        wish: SupervisorRequest,
    },
    /// The process ends, and told this many hosts that their packets are too long from then on.
    Farewell(Farewell),
    /// Packets lost between this worker and its successor.
    Lost(Losses),
}

/// Outcome of a wish that was fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The outcome, in words.
    pub said: String,
    /// Path of the control socket from then on.
    pub control: PathBuf,
}

/// Wishes that clients of a worker process may send to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorRequest {
    /// Reload the configuration.
    Reload,
    /// Restart without packet loss.
    Restart,
    /// End.
    Stop,
}

/// The first message to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Path of the configuration file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Whether stages that hold packets are left out, because earlier worker processes died.
    pub is_careful: bool,
    /// The ports, two for each worker: the wide one first.
    pub ports: Vec<HandedPort>,
    /// Whether a control socket comes with this.
    pub has_control: bool,
    /// Whether a metrics socket comes with this.
    pub has_metrics: bool,
    /// Whether the memory of the heartbeat comes with this.
    pub has_pulse: bool,
    /// Whether a pipe with the packets of another process comes with this.
    pub has_heritage: bool,
    /// The addresses of its interfaces.
    pub own_addresses: OwnAddresses,
    /// Packets lost by earlier worker processes.
    #[serde(default)]
    pub losses: Losses,
}

/// A port that is handed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedPort {
    /// Its address.
    pub address: String,
    /// Its offloads: checksums, TCP segmentation, UDP segmentation. `None` for a port that cannot be handed over:
    /// the receiver opens it.
    pub offloads: Option<[bool; 3]>,
    /// Index of its interface.
    pub index: Option<u32>,
    /// Number of descriptors that come with it.
    pub count: usize,
}

impl HandedPort {
    /// Its offloads.
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads.map(|[checksum, tcp, udp]| Offloads { checksum, tcp, udp })
    }
}

/// Sends a message with these descriptors. Never blocks.
///
/// # Errors
/// The other end is closed, or does not read.
pub fn say(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    descriptors::send(socket, &text, descriptors)
}

/// The next message.
#[derive(Debug)]
pub enum Heard<T> {
    /// A message with its descriptors.
    Said(T, Vec<OwnedFd>),
    /// No message yet.
    Nothing,
    /// The other end is closed.
    Gone,
}

/// Receives a message. Never blocks.
///
/// # Errors
/// The bytes are none of these messages.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Heard<T>> {
    match descriptors::receive(socket, MESSAGE_LEN_MAX) {
        Ok(Some((message, descriptors))) => {
            let said = serde_json::from_slice(&message).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("cannot parse a message: {error}"))
            })?;
            Ok(Heard::Said(said, descriptors))
        }
        Ok(None) => Ok(Heard::Gone),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Heard::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Heard::Nothing),
        Err(error) => Err(error),
    }
}

/// Longest message, in bytes. A configuration of 64 KiB with every byte escaped exceeds the limit of most sockets.
const MESSAGE_LEN_MAX: usize = 256 << 10;
