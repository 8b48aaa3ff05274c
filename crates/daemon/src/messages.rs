//! What the keeper and its worker process say to each other in, messages on their socket out; and back.

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

/// What the keeper says to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// Begin: the first that is said. With it come the descriptors that it speaks of, in its order.
    Begin(Begin),
    /// Go on as this configuration says, with these addresses of its interfaces.
    Reload(String, OwnAddresses),
    /// Let go of what is held, and end.
    Drain,
    /// None goes on: tell hosts that were told to send longer packets; then do the same.
    Finish,
    /// Write what is held to the pipe that comes with this, and end: another goes on.
    HandOver,
    /// What became of the wish of this number, or why it was not fulfilled.
    Said {
        /// That of the wish.
        number: u64,
        /// What was done.
        outcome: Result<Done, String>,
    },
    /// The ports of an end were opened anew, those of all workers in their order: they come with this. Or why they
    /// could not be.
    Reopened {
        /// The wide end (0) or the narrow one (1).
        end: usize,
        /// The ports.
        ports: Result<Vec<HandedPort>, String>,
    },
}

/// What a worker process says to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToKeeper {
    /// All is prepared; it touches no packet yet.
    Ready,
    /// All of its workers got around once more.
    Beat,
    /// It goes on as it was told, or it does not, for this reason.
    Reloaded(Result<(), String>),
    /// Open the ports of an end anew: their interface is gone, or is another one by now.
    Reopen {
        /// The wide end (0) or the narrow one (1).
        end: usize,
        /// Number of the interface that the asker's ports are on.
        index: Option<u32>,
    },
    /// Somebody who may ask asks for this, and is answered under this number.
    Wish {
        /// No other of this process has it.
        number: u64,
        /// What is asked for.
        wish: Wish,
    },
    /// It ends, and told so many hosts that their packets are too long from here on.
    Farewell(Farewell),
    /// This is lost, for a worker ended and another takes its place.
    Lost(Losses),
}

/// How a wish was fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was done, in words.
    pub said: String,
    /// Where the gateway is asked from here on.
    pub control: PathBuf,
}

/// What those who may speak to a worker process may ask of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// Read the configuration anew.
    Reload,
    /// Start anew, without losing a packet.
    Restart,
    /// End.
    Stop,
}

/// All that a worker process is told before it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// The file of the configuration.
    pub file: String,
    /// What stands in it.
    pub text: String,
    /// Are stages that join left out, because processes before this one have died?
    pub is_careful: bool,
    /// The ports, those of each worker one after the other, the wide one first.
    pub ports: Vec<HandedPort>,
    /// Does a socket come with this on which somebody may ask?
    pub has_control: bool,
    /// Does a socket come with this on which figures are fetched?
    pub has_metrics: bool,
    /// Does memory come with this into which its workers write that they work?
    pub has_pulse: bool,
    /// Does a pipe come with this out of which comes what another process holds?
    pub has_heritage: bool,
    /// What addresses its interfaces have.
    pub own_addresses: OwnAddresses,
    /// What worker processes before it lost.
    #[serde(default)]
    pub losses: Losses,
}

/// A port as it is handed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedPort {
    /// Its address.
    pub address: String,
    /// What it takes: finishing checksums, cutting TCP, cutting UDP; none where it cannot be handed over, and is
    /// opened by who is told.
    pub offloads: Option<[bool; 3]>,
    /// Number of its interface.
    pub index: Option<u32>,
    /// How many descriptors come with it.
    pub count: usize,
}

impl HandedPort {
    /// What it takes.
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads.map(|[checksum, tcp, udp]| Offloads { checksum, tcp, udp })
    }
}

/// Says something, with these descriptors; never waits.
///
/// # Errors
/// The other end is gone, or listens to nothing.
pub fn say(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    descriptors::send(socket, &text, descriptors)
}

/// What was said next.
#[derive(Debug)]
pub enum Heard<T> {
    /// This, with these descriptors.
    Said(T, Vec<OwnedFd>),
    /// Nothing so far.
    Nothing,
    /// The other end is gone.
    Gone,
}

/// Listens; never waits.
///
/// # Errors
/// What came is none of these messages.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Heard<T>> {
    match descriptors::receive(socket, MESSAGE_LEN_MAX) {
        Ok(Some((message, descriptors))) => {
            let said = serde_json::from_slice(&message).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("a message is not understood: {error}"))
            })?;
            Ok(Heard::Said(said, descriptors))
        }
        Ok(None) => Ok(Heard::Gone),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Heard::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Heard::Nothing),
        Err(error) => Err(error),
    }
}

/// Longest message, in bytes: a configuration of 64 KiB, each byte spelled out, is longer than most sockets take.
const MESSAGE_LEN_MAX: usize = 256 << 10;
