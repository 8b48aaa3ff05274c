//! Recipe -> a section of packets and its correct output.
//!
//! Equal recipes give equal packets on every machine, so that results can be compared.

mod attack;
mod flows;
mod fragments;
mod plain;

pub use attack::Attack;
pub use flows::{Flows, Hold};
pub use fragments::Fragments;

use crate::reference::Reference;
use crate::section::Section;
use std::fmt;

/// Kinds of packets that a section can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Fragments of datagrams, to be reassembled.
    Fragments(Fragments),
    /// Fragments of datagrams, to be merged into packets of up to this many bytes.
    Joinable(Fragments, usize),
    /// Packets of `len` bytes, to be fragmented for an MTU of `mtu`.
    Wide {
        /// Length of each packet, in bytes.
        len: usize,
        /// Length of the longest fragment, in bytes.
        mtu: usize,
    },
    /// Segments of TCP flows, to be coalesced.
    Flows(Flows),
    /// TCP packets with as many full segments as fit into 64 KiB, to be segmented.
    GsoPackets {
        /// Payload of a segment, in bytes.
        segment: usize,
    },
    /// Plain bytes, whose checksums are computed.
    Bytes {
        /// Length of each byte string, in bytes.
        len: usize,
    },
    /// TCP and UDP packets over IPv4 and IPv6, to be parsed.
    Mixed,
    /// The packets of an attack.
    Attack(Attack),
}

/// Order in which the fragments or segments arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalOrder {
    /// In the order of sending.
    Forward,
    /// In reverse order: the last fragment of each datagram arrives first.
    Reverse,
    /// Fragments: in any order, across all interleaved datagrams. Segments: 1 in 100 is swapped with the next.
    Random,
    /// In the order of sending. 1 fragment in 100 is repeated just before the next of its datagram.
    Repeats,
}

impl Recipe {
    /// Generates the packets and their correct output.
    pub fn build(&self) -> (Section, Reference) {
        match self {
            Recipe::Fragments(fragments) => fragments.build(),
            Recipe::Joinable(fragments, _) => fragments.build_joinable(),
            Recipe::Wide { len, mtu } => plain::wide(*len, *mtu),
            Recipe::Flows(flows) => flows.build(),
            Recipe::GsoPackets { segment } => plain::gso_packets(*segment),
            Recipe::Bytes { len } => plain::bytes(*len),
            Recipe::Mixed => plain::mixed(),
            Recipe::Attack(attack) => attack.build(),
        }
    }

    /// Returns the harness arguments that describe the packets.
    pub fn keys(&self) -> Vec<(&'static str, String)> {
        match self {
            Recipe::Fragments(fragments) => fragments.keys(),
            Recipe::Joinable(fragments, mtu) => {
                let mut keys = fragments.keys();
                keys.push(("mtu", mtu.to_string()));
                keys
            }
            Recipe::Wide { mtu, .. } => vec![("mtu", mtu.to_string())],
            Recipe::Flows(flows) => flows.keys(),
            Recipe::GsoPackets { segment } => vec![("segment", segment.to_string())],
            Recipe::Bytes { .. } | Recipe::Mixed => Vec::new(),
            Recipe::Attack(attack) => attack.keys(),
        }
    }

    /// Returns further facts about the packets that a condition in `systems.tsv` may test.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let version = match self {
            Recipe::Fragments(fragments) | Recipe::Joinable(fragments, _) => fragments.version,
            _ => 4,
        };
        let len = match self {
            Recipe::Wide { len, .. } | Recipe::Bytes { len } => vec![("len", len.to_string())],
            _ => Vec::new(),
        };
        [vec![("version", version.to_string())], len].concat()
    }

    /// Returns the approximate length of the buffers that a system needs for one section's results, in bytes.
    pub fn held_len(&self) -> usize {
        match self {
            Recipe::Fragments(fragments) | Recipe::Joinable(fragments, _) => {
                fragments.datagrams * fragments.fragments * fragments.fragment_len * 2
            }
            Recipe::Flows(flows) => flows.flows * usize::from(u16::MAX).min(flows.len_max) * 2,
            _ => 64 << 20,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recipe::Fragments(fragments) => write!(f, "{fragments}"),
            Recipe::Joinable(fragments, mtu) => write!(f, "{fragments}, up to {mtu} B"),
            Recipe::Wide { len, mtu } => write!(f, "{len} B to {mtu} B"),
            Recipe::Flows(flows) => write!(f, "{flows}"),
            Recipe::GsoPackets { segment } => write!(f, "64 KiB to {segment} B of payload"),
            Recipe::Bytes { len } => write!(f, "{len} B"),
            Recipe::Mixed => write!(f, "IPv4 and IPv6, TCP and UDP"),
            Recipe::Attack(attack) => write!(f, "{attack}"),
        }
    }
}

impl fmt::Display for ArrivalOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArrivalOrder::Forward => "in order",
            ArrivalOrder::Reverse => "reverse",
            ArrivalOrder::Random => "random",
            ArrivalOrder::Repeats => "1 % repeats",
        })
    }
}

/// Fewest packets in a section, so that the clock's own cost does not show.
pub const PACKETS_MIN: usize = 128;
