//! A GSO packet -> its segments, one by one: a new header each, the payload by reference.
//!
//! Each part of the payload is summed once, on its way out.
//!
//! - CWR stays on the first segment (RFC 3168 section 6.1.2, R043).
//! - PSH and FIN stay on the last segment (RFC 9293 section 3.9.1.2, R117).
//! - Each UDP datagram has its own length and checksum (RFC 8085 section 3.4, R102).

use packet::{Frame, HEADROOM, Packet, Place, Pool, SegmentRange, SegmentTemplate};

/// One packet as it stands on the wire: the parts to gather, in this order.
#[derive(Clone, Copy, Debug)]
pub struct WirePacket<'a> {
    /// Link header and IP header; the whole frame of a packet that is not divided.
    pub header: &'a [u8],
    /// Payload, in place.
    pub payload: &'a [u8],
}

/// The segments of a GSO packet.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    template: SegmentTemplate<'a>,
    rest: &'a [u8],
    offset: usize,
    index: usize,
    segment_len: usize,
}

impl<'a> Segments<'a> {
    /// The segments of `packet`. `None` if it is no GSO packet, or one of a single segment.
    #[inline]
    pub(crate) fn of(packet: &'a Packet) -> Option<Segments<'a>> {
        let gso = packet.gso.filter(|gso| packet.gso_len() > usize::from(gso.segment_len))?;
        assert!(gso.segment_len > 0, "a segment carries something");
        let template = SegmentTemplate::new(packet, gso.ids)?;
        let rest = packet.frame().get(template.len()..template.len() + packet.gso_len())?;
        Some(Segments { template, rest, offset: 0, index: 0, segment_len: usize::from(gso.segment_len) })
    }

    /// The next segment. Its headers are written to the front of `room`.
    #[inline]
    pub(crate) fn next<'r>(&mut self, room: &'r mut [u8]) -> Option<WirePacket<'r>>
    where
        'a: 'r,
    {
        let (payload, after) = self.rest.split_at_checked(self.segment_len).unwrap_or((self.rest, &[]));
        if payload.is_empty() {
            return None;
        }
        let soon = self.segment_len.div_ceil(LINE_LEN).min(FORESIGHT);
        after.chunks(LINE_LEN).take(soon).for_each(packet::prefetch);
        let place = Place { first: self.index == 0, last: after.is_empty() };
        let share = SegmentRange { index: self.index, offset: self.offset, payload, place };
        (self.rest, self.offset, self.index) = (after, self.offset + payload.len(), self.index + 1);
        Some(WirePacket { header: self.template.stamp(room, share), payload })
    }
}

impl WirePacket<'_> {
    /// Copies it to a packet of its own, in a buffer of the pool. `of` is the packet that it was divided from.
    /// `None` if the pool is empty.
    pub(crate) fn to_packet(self, of: &Packet, pool: &mut Pool) -> Option<Packet> {
        let (link, frame_len) = (of.link_header(), self.frame_len());
        let mut buffer = pool.share(frame_len - link.len)?;
        buffer.put(HEADROOM - link.len, self.header);
        buffer.put(HEADROOM - link.len + self.header.len(), self.payload);
        match Frame::parse(buffer, frame_len, link, of.ingress()) {
            Frame::Ip(mut packet) => {
                if of.fragmentation.is_none() {
                    packet.set_max_fragment_len(of.max_fragment_len());
                }
                Some(packet)
            }
            Frame::Other(..) => panic!("a piece that we cut parses"),
        }
    }

    /// Length of the frame, in bytes.
    pub fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// Cache lines of the next segment's payload that are prefetched while this one's are summed. Segments of 1,448
/// bytes from far memory take a seventh less time; near ones take a thirtieth more. Beyond so many lines, the
/// processor prefetches by itself.
const FORESIGHT: usize = 24;
/// Bytes of a cache line.
const LINE_LEN: usize = 64;
