//! What is known of the packet in a buffer, beside its bytes.

use super::memory::Memory;
use crate::fragmentation::Fragmentation;
use crate::gso::{Gso, SegmentLimit};
use crate::ip::{Ip, Version};
use crate::link::{L2Scope, LinkType};

/// What a [`Packet`](super::Packet) is, behind its one word; see there.
#[derive(Debug)]
pub struct Body {
    pub(super) memory: Memory,
    /// Where the IP header starts in the buffer's memory.
    pub(super) ip_at: u32,
    pub(super) trailer_len: u16,
    pub(super) link_len: u8,
    pub(super) medium: LinkType,
    pub(super) announced: Option<Version>,
    pub(super) as_received: bool,
    pub(super) l2_scope: L2Scope,
    pub(super) ip: Ip,
    /// Of what came in pieces, the longest of them; else 0.
    pub(super) max_fragment_len: u32,
    /// A number that its port gave it, such as that of its record in a capture; the engine never looks.
    pub tag: u64,
    /// What is known of the transport checksum.
    pub checksum: Checksum,
    /// How long packets of its TCP flow may be toward its receiver; none where nobody has looked.
    pub segment_limit: Option<SegmentLimit>,
    /// Do the hosts of its TCP connection count marks by three bits of each segment (RFC 9768)?
    pub has_accurate_ecn: bool,
    /// Is it for a station of the side that it came from? No error is sent about it then: who it is for has it
    /// already.
    pub is_for_ingress_side: bool,
    /// A train: this packet stands for TCP segments or UDP datagrams that are cut from it.
    pub gso: Option<Gso>,
    /// How IP cuts this packet on its way out.
    pub fragmentation: Option<Fragmentation>,
}

/// What is known of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nobody has looked.
    Unverified,
    /// It covers the bytes.
    Verified,
    /// An offloading sender left the pseudo-header's sum in the field; to be finished on the way out.
    Partial,
}

impl Body {
    /// Forgets what the buffer's last packet was beside its bytes.
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

    /// What lies with memory that is no packet.
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
