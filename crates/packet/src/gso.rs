//! What a packet says that stands for many: how long its segments are, and how their identifications go on.

/// How a packet stands for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload of each segment but the last, in bytes.
    pub segment_len: u16,
    /// How IPv4 identifications go on from the first.
    pub ids: Identifications,
    /// Whose segments they are.
    pub maker: Maker,
}

/// Who made a train of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// Its sender, which left the segmenting to its card.
    #[default]
    Sender,
    /// The gateway, from segments that came, or from a longer one.
    Gateway,
}

/// IPv4 identifications along a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifications {
    /// By one from segment to segment.
    #[default]
    Rise,
    /// The same in all, as some senders do where DF makes them meaningless (RFC 6864 section 4.1).
    Stay,
}

/// How long the TCP packets of one direction of a connection may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimit {
    /// Longest packet toward the receiver, IP header counted, in bytes.
    pub len_max: u16,
    /// May segments become longer than they came, up to that? Only where both directions of the handshake were seen, so that the
    /// limit is the receiver's own (RFC 9293 section 3.7.1).
    pub may_grow: bool,
}
