//! The description of the packet in a buffer, beside its bytes.

use super::memory::Memory;
use crate::fragmentation::Fragmentation;
use crate::gso::{Gso, SegmentLimit};
use crate::ip::{Ip, Version};
use crate::link::{L2Scope, LinkType};

/// The fields of a [`Packet`](super::Packet), which is one word; see there.
#[derive(Debug)]
pub struct Body {
    pub(super) memory: Memory,
    /// Offset of the IP header in the buffer's memory.
    pub(super) ip_at: u32,
    pub(super) trailer_len: u16,
    pub(super) link_len: u8,
    pub(super) medium: LinkType,
    pub(super) announced: Option<Version>,
    pub(super) as_received: bool,
    pub(super) l2_scope: L2Scope,
    pub(super) ip: Ip,
    /// Length of the longest fragment that arrived, if the packet arrived in fragments; else 0.
    pub(super) max_fragment_len: u32,
    /// A number of the port's choice, such as that of its record in a capture; the engine ignores it.
    pub tag: u64,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Length limit of its TCP flow toward the receiver; none before the flow is looked up.
    pub segment_limit: Option<SegmentLimit>,
    /// Whether the hosts of its TCP connection use accurate ECN, with three bits of each segment (RFC 9768).
    pub has_accurate_ecn: bool,
    /// Whether it is for a station on the side that it came from. No error is sent about it then: its receiver
    /// already has it.
    pub is_for_ingress_side: bool,
    /// If set, a GSO packet: it stands for TCP segments or UDP datagrams.
    pub gso: Option<Gso>,
    /// How IP fragments this packet at egress.
    pub fragmentation: Option<Fragmentation>,
}

/// State of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Not checked.
    Unverified,
    /// Correct.
    Verified,
    /// Partial: an offloading sender left the pseudo-header's sum in the field, to be completed at egress.
    Partial,
}

impl Body {
    /// Resets the description that the buffer's last packet left.
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

    /// The description of memory that holds no packet.
    pub(super) fn of(memory: Memory) -> Body {
        Body {
            memory,
            ip_at: 0,
            trailer_len: 0,
            link_len: 0,
            medium: LinkType::Ip,
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
