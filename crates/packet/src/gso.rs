//! The description of a GSO packet: segment length, IPv4 identifications, origin.
//!
//! A GSO packet stands for many TCP segments or UDP datagrams. The kernel or the NIC segments it later.

/// The parameters for the segmentation of a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload of each segment except the last, in bytes.
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
    /// Each segment's ID is one higher than the last.
    #[default]
    Rise,
    /// All segments have an equal ID, as some hosts send them when DF makes IDs meaningless (RFC 6864 section 4.1).
    Stay,
}

/// Size limit for the TCP packets of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimit {
    /// Maximum packet length toward the receiver, in bytes, including the IP header.
    pub len_max: u16,
    /// Whether received segments may be made longer, up to `len_max`. This requires both directions of the
    /// handshake, so that the limit is the receiver's own (RFC 9293 section 3.7.1).
    pub may_grow: bool,
}
