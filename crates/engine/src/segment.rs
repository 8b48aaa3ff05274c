//! A train in, its segments out, one by one: a fresh header each, the payload by reference.
//!
//! Each part of the payload is summed once, on its way out. CWR stays on the first segment (RFC 3168 section 6.1.2,
//! R043), PSH and FIN on the last (RFC 9293 section 3.9.1.2, R117); each UDP datagram has its own length and checksum
//! (RFC 8085 section 3.4, R102).

use packet::{Frame, HEADROOM, Packet, Place, Pool, SegmentRange, SegmentTemplate};

/// One packet as it stands on the wire: what to gather, in this order.
#[derive(Clone, Copy, Debug)]
pub struct WirePacket<'a> {
    /// Link header and IP header; of a packet that is not cut, the whole frame.
    pub header: &'a [u8],
    /// Payload, in place.
    pub payload: &'a [u8],
}

/// The segments that a train leaves in.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    template: SegmentTemplate<'a>,
    rest: &'a [u8],
    offset: usize,
    index: usize,
    segment_len: usize,
}

impl<'a> Segments<'a> {
    /// The segments of `packet`; none where it is no train, or one of a single segment.
    #[inline]
    pub(crate) fn of(packet: &'a Packet) -> Option<Segments<'a>> {
        let gso = packet.gso.filter(|gso| packet.gso_len() > usize::from(gso.segment_len))?;
        assert!(gso.segment_len > 0, "a segment carries something");
        let template = SegmentTemplate::new(packet, gso.ids)?;
        let rest = packet.frame().get(template.len()..template.len() + packet.gso_len())?;
        Some(Segments { template, rest, offset: 0, index: 0, segment_len: usize::from(gso.segment_len) })
    }

    /// The next segment, its headers written to the front of `room`.
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
    /// The piece as a packet of its own, in a buffer of the pool; `of` is what it was cut from.
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

    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// Lines of the next segment's payload that are asked for while this one's are summed. Segments of 1,448 bytes out of memory
/// take a seventh less, for a thirtieth more where they are near; behind so many lines, the processor foresees by itself.
const FORESIGHT: usize = 24;
/// Bytes that memory hands out at a time.
const LINE_LEN: usize = 64;
