//! The description of the packet in a buffer, beside its bytes.
//!
//! Facts that were parsed from the bytes, and state without a field in the bytes, are stored here. The bytes are
//! left to `Memory`.

use super::memory::Memory;
use crate::fragmentation::Fragmentation;
use crate::gso::{Gso, SegmentLimit};
use crate::ip::{Ip, Version};
use crate::link::{L2Scope, LinkType};

/// The fields of a [`Packet`](super::Packet), stored beside the bytes of its buffer.
#[derive(Debug)]
pub struct Body {
    pub(super) memory: Memory,
    /// Offset of the IP header in the buffer's memory, in bytes.
    pub(super) ip_at: u32,
    pub(super) trailer_len: u16,
    pub(super) link_len: u8,
    pub(super) link_type: LinkType,
    pub(super) announced: Option<Version>,
    pub(super) as_received: bool,
    pub(super) l2_scope: L2Scope,
    pub(super) ip: Ip,
    /// Length of the longest received fragment in bytes, if the packet arrived in fragments; otherwise 0.
    pub(super) max_fragment_len: u32,
    /// A number that the port chooses, such as the number of a record in a capture. The engine ignores it.
    pub tag: u64,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Size limit of the TCP flow toward the receiver. `None` before the flow was looked up.
    pub segment_limit: Option<SegmentLimit>,
    /// Whether the hosts of the TCP connection use accurate ECN, with three header bits in each segment (RFC 9768).
    pub has_accurate_ecn: bool,
    /// Whether the packet's destination station is on the side by which the packet arrived. No ICMP error is sent
    /// about such a packet, because the station already received it.
    pub is_for_ingress_side: bool,
    /// Segment size, IP IDs and origin of a GSO packet. `None` for any other packet.
    pub gso: Option<Gso>,
    /// Fragmentation of this packet during transmission. `None`: it is sent unfragmented.
    pub fragmentation: Option<Fragmentation>,
}

/// State of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Not checked.
    Unverified,
    /// Correct.
    Verified,
    /// Partial: the field contains the sum of the pseudo-header, because the source host uses checksum offload. It
    /// is completed before or during transmission.
    Partial,
}

impl Body {
    /// Resets the state of the buffer's previous packet. `as_received`: the bytes of the new packet are as a port
    /// received them.
    pub(super) fn become_fresh(&mut self, as_received: bool) {
        self.as_received = as_received;
        self.max_fragment_len = 0;
        self.checksum = Checksum::Unverified;
        self.segment_limit = None;
        self.has_accurate_ecn = false;
        self.is_for_ingress_side = false;
        self.gso = None;
        self.fragmentation = None;
    }

    /// Creates the description of memory without a packet.
    pub(super) fn of(memory: Memory) -> Body {
        Body {
            memory,
            ip_at: 0,
            trailer_len: 0,
            link_len: 0,
            link_type: LinkType::Ip,
            announced: None,
            as_received: false,
            l2_scope: L2Scope::default(),
            ip: Ip::NONE,
            max_fragment_len: 0,
            tag: 0,
            checksum: Checksum::Unverified,
            segment_limit: None,
            has_accurate_ecn: false,
            is_for_ingress_side: false,
            gso: None,
            fragmentation: None,
        }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
