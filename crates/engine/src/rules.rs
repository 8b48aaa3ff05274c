//! The rules of a coalescer: the segments to join, the hold time, and the exempt flows.
//!
//! The rules are separate from the [coalescer](crate::coalescing), so that settings do not depend on a stage.
//! [`Toggle`], which switches any stage, is here too.

use crate::prefixes::Prefix;
use core::time::Duration;
use packet::Address;

/// The treatment of acknowledgements at a border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckPolicy {
    /// Acknowledgements are forwarded as they are.
    #[default]
    Unchanged,
    /// An acknowledgement of a wide host for many segments becomes several, one for each two segments of the narrow
    /// host. Senders that count acknowledgements then grow their window as fast as without a border.
    Expand,
    /// Successive acknowledgements of a narrow host in one batch become one for each two segments of the wide host.
    Compress,
    /// The border acknowledges data of narrow hosts before the wide host does. It keeps each acknowledged byte until the
    /// wide host has acknowledged it too. Needs [`Border::ack_store`](crate::Border).
    Early,
}

impl AckPolicy {
    /// Returns the policy's name in configurations.
    pub fn name(self) -> &'static str {
        AckPolicy::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// Each policy's name in a configuration.
    pub const NAMES: [(&str, AckPolicy); 4] = [
        ("unchanged", AckPolicy::Unchanged),
        ("expand", AckPolicy::Expand),
        ("compress", AckPolicy::Compress),
        ("early", AckPolicy::Early),
    ];
}

/// Whether a stage is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    /// The stage processes packets.
    On,
    /// Packets bypass the stage.
    Off,
}

/// The segments that a coalescer joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only segments that segmentation restores byte for byte.
    Reversible,
    /// All segments whose joining does not change the byte stream.
    Resize,
}

/// Maximum wait of a run for its next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Ten times the flow's average interval, between 50 µs and 1 ms (L12 to L14, rel:G18).
    Adaptive,
    /// A fixed time, which must be below one minute. A value below 20 ms limits the age of a run to 20 ms, a larger
    /// one to twice the value. Above 1 ms, a run of TCP segments also ends at a quarter of its sender's estimated
    /// window (L21).
    Fixed(Duration),
}

/// The rules of a coalescer, except its memory limit.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The coalescing mode.
    pub mode: Mode,
    /// The maximum wait of a run.
    pub hold: Hold,
    /// Maximum length of a run of shorter packets, in bytes, including the IP header.
    pub len_max: u16,
    /// Whether segments in packets above `len_max` are coalesced, up to the maximum length of an IP packet. Only
    /// for sides that segment the coalesced packets again.
    pub longer: Toggle,
    /// Whether UDP datagrams are coalesced. Only for ports that transmit GSO packets with their segment size.
    pub udp: bool,
}

/// A flow that is never coalesced, because its latency matters more (L22). A packet belongs to it if its source or
/// its destination has this prefix and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Prefix of source or destination. `None`: all addresses.
    pub prefix: Option<Prefix>,
    /// TCP or UDP port of source or destination. `None`: all ports.
    pub port: Option<u16>,
}

impl Exempt {
    /// Whether a flow between these hosts and ports is exempt.
    pub(crate) fn covers(&self, hosts: [Address; 2], ports: [u16; 2]) -> bool {
        let by_prefix = self.prefix.is_none_or(|prefix| hosts.iter().any(|host| prefix.contains(*host)));
        by_prefix && self.port.is_none_or(|port| ports.contains(&port))
    }
}
