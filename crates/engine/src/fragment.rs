//! A packet in, its pieces out, one by one: a fresh header each, the payload by reference.
//!
//! Nothing is copied but the header, and the first piece is ready before the second exists (G3, G4, C7); a packet's
//! pieces come one after the other, so nothing interleaves them (C16).

use crate::segment::Segments;
use packet::{Fragment, Frame, HEADROOM, Packet, Pool, Shares, Template};

/// The pieces that a packet leaves in; a packet that is not to be cut is its own only piece.
#[derive(Debug)]
pub struct Pieces<'a> {
    packet: &'a Packet,
    state: State<'a>,
}

/// One packet as it stands on the wire: what to gather, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Link header and IP header; of a packet that is not cut, the whole frame.
    pub header: &'a [u8],
    /// Payload, in place.
    pub payload: &'a [u8],
}

#[derive(Debug)]
enum State<'a> {
    Uncut {
        sent: bool,
    },
    /// `shrinks`: the pieces that follow the first have another header, and the first is yet to come.
    Cutting {
        shares: Shares<'a>,
        template: Template,
        base: Fragment,
        shrinks: bool,
    },
    Segmenting(Segments<'a>),
}

impl<'a> Pieces<'a> {
    /// The pieces of `packet`, as its `cut` says.
    pub fn of(packet: &'a Packet) -> Pieces<'a> {
        let state = match (packet.shares(), packet.cut) {
            (Some(shares), Some(cut)) => {
                let template = Template::new(packet, packet.ip().starts());
                let [first, later] = packet.piece_header_lens();
                // A piece that is cut again keeps its place and the end of its datagram (RFC 791 section 3.2, R003).
                let (offset, more) = packet.ip().fragment.map_or((0, false), |piece| (piece.offset, piece.more));
                let base = Fragment { id: cut.id, offset, more };
                State::Cutting { shares, template, base, shrinks: first != later }
            }
            _ => Segments::of(packet).map_or(State::Uncut { sent: false }, State::Segmenting),
        };
        Pieces { packet, state }
    }

    /// The next piece.
    #[expect(clippy::should_implement_trait, reason = "each piece borrows the template that the next one patches")]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        let packet = self.packet;
        match &mut self.state {
            State::Uncut { sent: true } => None,
            State::Uncut { sent } => {
                *sent = true;
                Some(Piece { header: packet.frame(), payload: &[] })
            }
            State::Cutting { shares, template, base, shrinks } => {
                let share = shares.next()?;
                if *shrinks && share.start > 0 {
                    // What follows the first piece carries fewer options (RFC 791 section 3.1, R004).
                    *template = Template::new(packet, false);
                    *shrinks = false;
                }
                let payload = packet.payload().get(share.clone()).unwrap_or_default();
                let more = base.more || share.end < packet.ip().payload_len();
                let offset = usize::from(base.offset) + share.start;
                assert!(offset <= OFFSET_MAX, "no piece starts behind the last offset that a header can say");
                let fragment = Fragment { offset: offset as u16, more, ..*base };
                Some(Piece { header: template.stamp(payload.len(), fragment), payload })
            }
            State::Segmenting(segments) => segments.next(),
        }
    }
}

impl Piece<'_> {
    /// The piece as a packet of its own, in a buffer of the pool; `of` is what it was cut from.
    pub(crate) fn to_packet(self, of: &Packet, pool: &mut Pool) -> Option<Packet> {
        let (link, frame_len) = (of.link_header(), self.frame_len());
        let mut buffer = pool.lend(frame_len - link.len)?;
        buffer.put(HEADROOM - link.len, self.header);
        buffer.put(HEADROOM - link.len + self.header.len(), self.payload);
        match Frame::parse(buffer, frame_len, link, of.ingress()) {
            Frame::Ip(packet) => Some(packet),
            Frame::Other(..) => panic!("a piece that we cut parses"),
        }
    }

    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// The last place that a fragment can have, in bytes: 13 bits of eights (RFC 791 section 3.1).
const OFFSET_MAX: usize = 65_528;
