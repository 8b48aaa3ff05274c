//! A packet -> the number and lengths of its wire packets.
//!
//! Counters and MTU checks need these numbers before any wire packet exists. Writing the wire packets is left to
//! the engine and the ports.

use super::Body;
use crate::fragmentation::{Content, FragmentRanges};
use crate::ip::{TCP, UDP};
use crate::tcp::TcpFacts;
use crate::{tcp, udp};

/// Methods for the wire packets of this packet.
impl Body {
    /// Returns the payload ranges of the fragments. `None` if the packet is not to be fragmented.
    #[inline]
    pub fn fragment_ranges(&self) -> Option<FragmentRanges<'_>> {
        let cut = self.fragmentation.as_ref()?;
        let map = (cut.content == Content::Sparse).then(|| self.bitmap());
        Some(FragmentRanges::new(cut, self.ip.payload_len(), self.fragment_header_lens(), map))
    }

    /// Returns the header lengths of the fragment at offset 0 and of all others, in bytes.
    #[inline]
    pub fn fragment_header_lens(&self) -> [usize; 2] {
        self.ip.fragment_header_lens(self.header())
    }

    /// Whether the packet stands for exactly one wire packet.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.fragmentation.is_none() && self.gso.is_none()
    }

    /// Returns the number of wire packets.
    pub fn wire_count(&self) -> usize {
        match (self.fragmentation, self.gso) {
            (None, None) => 1,
            (None, Some(gso)) => self.gso_len().div_ceil(usize::from(gso.segment_len).max(1)).max(1),
            (Some(_), _) => self.fragment_ranges().map_or(1, |fragment_ranges| fragment_ranges.totals().0),
        }
    }

    /// Returns the length of the longest wire packet, in bytes, including the IP header.
    pub fn wire_len(&self) -> usize {
        match (self.fragment_ranges(), self.gso) {
            (Some(fragment_ranges), _) => {
                let [first, later] = self.fragment_header_lens();
                fragment_ranges
                    .map(|share| share.len() + if share.start == 0 { first } else { later })
                    .max()
                    .unwrap_or(0)
            }
            (None, Some(gso)) => self.len() - self.gso_len() + self.gso_len().min(gso.segment_len.into()),
            (None, None) => self.len(),
        }
    }

    /// Calls `tell` with the length of each wire packet, in bytes, including the IP header.
    pub fn each_wire_len(&self, mut tell: impl FnMut(usize)) {
        if let Some(fragment_ranges) = self.fragment_ranges() {
            let [first, later] = self.fragment_header_lens();
            fragment_ranges.for_each(|share| tell(share.len() + if share.start == 0 { first } else { later }));
        } else {
            let payload_len = self.gso_len();
            let segment_len = self.gso.map_or(payload_len, |gso| usize::from(gso.segment_len)).max(1);
            let header_len = self.len() - payload_len;
            (0..self.wire_count()).for_each(|index| {
                tell(header_len + segment_len.min(payload_len - index * segment_len));
            });
        }
    }

    /// Returns the facts of the TCP header of an unfragmented packet; `None` for any other packet.
    #[inline]
    pub fn tcp_facts(&self) -> Option<TcpFacts> {
        let upper = self.ip.upper.filter(|upper| upper.protocol == TCP && self.ip.fragment.is_none())?;
        TcpFacts::read(self.upper_bytes(upper))
    }

    /// Whether the transport is TCP.
    pub fn is_tcp(&self) -> bool {
        self.ip.upper.is_some_and(|upper| upper.protocol == TCP)
    }

    /// Returns the payload length of a GSO packet, the sum over all segments, in bytes.
    pub fn gso_len(&self) -> usize {
        let Some(upper) = self.ip.upper else { return 0 };
        match upper.protocol {
            TCP => tcp::payload_len(self.upper_bytes(upper)),
            UDP => udp::UdpHeader::parse(self.upper_bytes(upper)).map_or(0, |(_, payload)| payload.len()),
            _ => 0,
        }
    }
}
