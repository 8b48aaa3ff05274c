//! A packet in, its pieces out, one by one: a fresh header each, the payload by reference.
//!
//! Nothing is copied but the header, and the first piece is ready before the second exists (G3, G4, C7); a packet's
//! pieces come one after the other, so nothing interleaves them (C16).

use packet::{Fragment, Packet, Shares, Template};

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
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of who sends, once a packet")]
enum State<'a> {
    Uncut,
    Cutting { shares: Shares<'a>, template: Template, base: Fragment },
    Done,
}

impl<'a> Pieces<'a> {
    /// The pieces of `packet`, as its `cut` says.
    pub fn of(packet: &'a Packet) -> Pieces<'a> {
        let state = match (packet.shares(), packet.cut) {
            (Some(shares), Some(cut)) => {
                let template = Template::new(packet, packet.ip().starts());
                // A piece that is cut again keeps its place and the end of its datagram (RFC 791 section 3.2, R003).
                let (offset, more) = packet.ip().fragment.map_or((0, false), |piece| (piece.offset, piece.more));
                State::Cutting { shares, template, base: Fragment { id: cut.id, offset, more } }
            }
            _ => State::Uncut,
        };
        Pieces { packet, state }
    }

    /// The next piece.
    #[expect(clippy::should_implement_trait, reason = "each piece borrows the template that the next one patches")]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        let packet = self.packet;
        if matches!(self.state, State::Uncut) {
            self.state = State::Done;
            return Some(Piece { header: packet.frame(), payload: &[] });
        }
        let State::Cutting { shares, template, base } = &mut self.state else { return None };
        let share = shares.next()?;
        if share.start > 0 && packet.ip().starts() {
            // What follows the first piece carries fewer options (RFC 791 section 3.1, R004).
            let [first, later] = packet.piece_header_lens();
            if first != later && template.header_len() == first {
                *template = Template::new(packet, false);
            }
        }
        let payload = packet.payload().get(share.clone()).unwrap_or_default();
        let more = base.more || share.end < packet.ip().payload_len();
        let fragment = Fragment { offset: base.offset + share.start as u16, more, ..*base };
        Some(Piece { header: template.stamp(payload.len(), fragment), payload })
    }
}

impl Piece<'_> {
    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}
