//! A TCP packet that carries nothing but an acknowledgement -> its numbers; that packet with other numbers.
//!
//! Such packets may be repeated with lower numbers, or be replaced by a later one. The choice of the numbers is left
//! to the engine.

use crate::ip::{Ecn, TCP, Version};
use crate::packet::{Checksum, Frame, Packet, Pool};
use crate::segment_facts::{tcp_headers_share, timestamps};
use crate::tcp::{self, Segment, TcpSegmentFacts, Timestamps};

/// The numbers of a pure acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PureAck {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number: the next byte expected from the peer.
    pub ack: u32,
    /// Receive window, without window scaling.
    pub window: u16,
    /// Timestamps (RFC 7323 section 3). `None` without this option.
    pub timestamps: Option<Timestamps>,
}

impl PureAck {
    /// Reads a pure acknowledgement. A checksum that was verified is recorded as such in the packet. `None` for any
    /// other packet:
    ///
    /// - a fragment, or a packet with IPv4 options or an Authentication header;
    /// - a segment with data, with another flag than ACK, or with an option other than timestamps;
    /// - a packet with a congestion mark (CE);
    /// - a packet with a wrong checksum.
    pub fn read(packet: &mut Packet) -> Option<PureAck> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| upper.protocol == TCP && ip.fragment.is_none())?;
        if !packet.is_single()
            || ip.length_missing
            || ip.ecn == Ecn::Ce
            || !ip.headers_may_be_shared(packet.bytes())
        {
            return None;
        }
        let Segment { header, options, payload } = Segment::parse(packet.upper_bytes(upper))?;
        if header.flags() != tcp::ACK || header.has_accurate_ecn_bit() || !payload.is_empty() {
            return None;
        }
        let (seq, ack, window) = (header.seq.get(), header.ack.get(), header.window.get());
        let timestamps = timestamps(options)?;
        if packet.checksum == Checksum::Unverified {
            if !packet.checksum_error().is_right() {
                return None;
            }
            packet.checksum = Checksum::Verified;
        }
        Some(PureAck { seq, ack, window, timestamps })
    }

    /// Whether the headers of two pure acknowledgements are equal, except acknowledgement number, window and
    /// timestamps, and the fields that differ between all packets: identification and checksums.
    pub fn is_like(&self, packet: &Packet, other: &PureAck, other_packet: &Packet) -> bool {
        let (ip, other_ip) = (packet.ip(), other_packet.ip());
        let (Some(upper), true) = (ip.upper, ip.version == other_ip.version && ip.upper == other_ip.upper) else {
            return false;
        };
        self.seq == other.seq
            && packet.l2_scope() == other_packet.l2_scope()
            && packet.link() == other_packet.link()
            && ip.shares_header(packet.header(), other_packet.header())
            && tcp_headers_share(
                packet.upper_bytes(upper),
                &self.facts(),
                other_packet.upper_bytes(upper),
                &other.facts(),
            )
    }

    fn facts(&self) -> TcpSegmentFacts {
        let PureAck { seq, ack, window, timestamps } = *self;
        TcpSegmentFacts { seq, ack, window, ends: 0, timestamps }
    }

    /// Copies a pure acknowledgement with another acknowledgement number and another window. `None` if the pool has
    /// no buffer, or if the copy would need an IP ID of its own: IPv4 without DF (RFC 6864 section 4).
    pub fn copy(packet: &Packet, ack: u32, window: u16, pool: &mut Pool) -> Option<Packet> {
        let ip = packet.ip();
        if ip.version == Version::V4 && !ip.dont_fragment {
            return None;
        }
        let mut copy = Frame::copy(packet.frame(), packet.link_type(), packet.ingress(), pool).ok()?;
        copy.tag = packet.tag;
        copy.checksum = packet.checksum;
        copy.segment_limit = packet.segment_limit;
        copy.has_accurate_ecn = packet.has_accurate_ecn;
        copy.is_for_ingress_side = packet.is_for_ingress_side;
        copy.set_ack(ack, window);
        Some(copy.originated_here())
    }
}
