//! The description of a GSO packet: segment length, IPv4 identifications, origin.
//!
//! A GSO packet stands for many TCP segments or UDP datagrams. The kernel or the NIC segments it later.

/// The parameters for the segmentation of a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload length of each segment except the last, in bytes.
    pub segment_len: u16,
    /// The progress of the IPv4 IDs from segment to segment.
    pub ids: Identifications,
    /// The origin of the segments.
    pub maker: Maker,
}

/// The origin of the segments of a GSO packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// The source host, which left segmentation to its NIC.
    #[default]
    Sender,
    /// The gateway, which made the GSO packet from received segments or from a longer segment.
    Gateway,
}

/// The progress of the IPv4 IDs in a GSO packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifications {
    /// The ID of each segment is one higher than the ID of the segment before.
    #[default]
    Rise,
    /// All segments have the same ID. Some hosts send such segments, because DF makes IDs meaningless (RFC 6864
    /// section 4.1).
    Stay,
}

/// Size limit for the TCP packets of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimit {
    /// Maximum packet length toward the receiver, in bytes, including the IP header.
    pub len_max: u16,
    /// Whether received segments may be made longer, up to `len_max`. True only if both directions of the handshake
    /// were seen, so that `len_max` follows from the receiver's own MSS (RFC 9293 section 3.7.1).
    pub may_grow: bool,
    /// Whether packets above the MTU of the link are sent in IP fragments, up to `len_max`. Otherwise they are
    /// segmented.
    pub in_fragments: bool,
    /// Whether IPv4 packets are sent without DF and with new IP IDs, as their path carries less than
    /// [`IPV4_DF_MIN`] bytes.
    pub clears_df: bool,
}

/// Minimum length to which IPv4 packets are shortened for a path, in bytes: the default of Linux
/// (net.ipv4.route.min_pmtu). Packets for a path with a smaller MTU have this length, and no DF.
pub const IPV4_DF_MIN: u16 = 552;

impl SegmentLimit {
    /// Returns a limit for packets that fit the MTU of the link.
    pub const fn new(len_max: u16, may_grow: bool) -> SegmentLimit {
        SegmentLimit { len_max, may_grow, in_fragments: false, clears_df: false }
    }
}
