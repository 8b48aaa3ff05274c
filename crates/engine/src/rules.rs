//! The rules of a coalescer: which segments join, how long they wait, and which flows are exempt.
//!
//! [`Toggle`] stands here too: it switches any stage.

use crate::prefixes::Prefix;
use core::time::Duration;

/// Whether a stage is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    /// The stage works.
    On,
    /// Packets pass it by.
    Off,
}

/// Which segments a coalescer joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only segments that segmentation gives back byte for byte.
    Reversible,
    /// All segments that leave the byte stream the same.
    Resize,
}

/// How long a run waits for its next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Ten times the flow's average interval, between 50 µs and 1 ms (L12 to L14, rel:G18).
    Adaptive,
    /// This long, below a minute. If it is below 20 ms, a run becomes at most 20 ms old, else at most twice this.
    Fixed(Duration),
}

/// The rules of a coalescer, except its memory limit.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Which segments join.
    pub mode: Mode,
    /// How long runs wait.
    pub hold: Hold,
    /// Longest packet that a run of shorter ones becomes, in bytes, including the IP header.
    pub len_max: u16,
    /// Whether segments in longer packets are coalesced, up to the maximum of an IP header. Only where they are
    /// segmented again.
    pub longer: Toggle,
    /// Whether UDP datagrams are coalesced too. Only for ports that carry the segment size beside the packet.
    pub udp: bool,
}

/// A flow that is never coalesced, because its latency matters more (L22): packets from or to this prefix and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Addresses. `None`: all.
    pub prefix: Option<Prefix>,
    /// Port of TCP or UDP. `None`: all.
    pub port: Option<u16>,
}
