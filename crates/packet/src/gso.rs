//! The description of a GSO packet: segment length, IPv4 identifications, origin.
//!
//! A GSO packet is one packet that stands for many TCP segments or UDP datagrams.

/// How a GSO packet is segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload of each segment but the last, in bytes.
    pub segment_len: u16,
    /// How the IPv4 identifications of the segments continue from the first.
    pub ids: Identifications,
    /// The origin of the segments.
    pub maker: Maker,
}

/// The origin of a GSO packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// Its sender, which left the segmentation to its network card.
    #[default]
    Sender,
    /// The gateway, from received segments or from a longer one.
    Gateway,
}

/// IPv4 identifications of the segments of a GSO packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifications {
    /// They rise by one from segment to segment.
    #[default]
    Rise,
    /// They are equal, as some senders send them when DF makes them meaningless (RFC 6864 section 4.1).
    Stay,
}

/// Length limit for the TCP packets of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimit {
    /// Maximum packet length toward the receiver, IP header included, in bytes.
    pub len_max: u16,
    /// Whether segments may become longer than they arrived, up to that limit. This needs both directions of the
    /// handshake, so that the limit is the receiver's own (RFC 9293 section 3.7.1).
    pub may_grow: bool,
}
