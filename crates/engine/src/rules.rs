//! What a coalescer joins, how long it waits, and which flows it leaves alone; whether a stage works.

use crate::prefixes::Prefix;
use core::time::Duration;

/// Whether a stage works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    /// It does.
    On,
    /// It does not.
    Off,
}

/// What a coalescer joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only what segmenting gives back byte for byte.
    Reversible,
    /// Whatever leaves the stream the same.
    Resize,
}

/// How long a run waits for its next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Ten times the flow's average interval, from 50 µs to 1 ms (L12 to L14, rel:G18).
    Adaptive,
    /// As long, below a minute. Below 20 ms a run becomes at most 20 ms old, else at most twice as old as this.
    Fixed(Duration),
}

/// How a coalescer works, beside its memory.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What joins.
    pub mode: Mode,
    /// How long runs wait.
    pub hold: Hold,
    /// Longest packet that a run of shorter ones becomes, IP header counted, in bytes.
    pub len_max: u16,
    /// Do segments in longer packets gather, up to what an IP header can say? Only where they will be cut again.
    pub longer: Toggle,
    /// Are UDP datagrams joined too? Only for ports that carry the segment size beside the packet.
    pub udp: bool,
}

/// A flow that is never coalesced, because its latency matters more (L22): packets from or to these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Addresses; none: all.
    pub prefix: Option<Prefix>,
    /// Port of TCP or UDP; none: all.
    pub port: Option<u16>,
}
