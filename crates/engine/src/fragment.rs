//! A packet in, its pieces out, one by one: a fresh header each, the payload by reference.
//!
//! Nothing is copied but the header, and the first piece is ready before the second exists (G3, G4, C7); a packet's
//! pieces come one after the other, so nothing interleaves them (C16).

use crate::segment::{Segments, WirePacket};
use packet::{FRAGMENT_HEADER_LEN_MAX, Fragment, FragmentRanges, Fragmentation, Packet, Template};

/// The pieces that a packet leaves in, one at a time; a packet that is not to be cut is its own only piece.
#[derive(Debug)]
pub struct WirePackets<'a> {
    cuts: FragmentWriter<'a>,
    room: [u8; FRAGMENT_HEADER_LEN_MAX],
}

/// The same, each header written where the caller says: so many can leave at once.
#[derive(Debug)]
pub struct FragmentWriter<'a> {
    packet: &'a Packet,
    state: State<'a>,
}

#[derive(Debug)]
enum State<'a> {
    Uncut { sent: bool },
    Cutting(Cutting<'a>),
    Segmenting(Segments<'a>),
}

/// The fragments that a packet leaves in.
#[derive(Debug)]
struct Cutting<'a> {
    shares: FragmentRanges<'a>,
    template: Template<'a>,
    base: Fragment,
    payload: &'a [u8],
}

impl<'a> WirePackets<'a> {
    /// The pieces of `packet`, as its `fragmentation` says.
    pub fn of(packet: &'a Packet) -> WirePackets<'a> {
        WirePackets { cuts: FragmentWriter::of(packet), room: [0; FRAGMENT_HEADER_LEN_MAX] }
    }

    /// The next piece.
    #[expect(
        clippy::should_implement_trait,
        reason = "each piece borrows the room that the next one is written to"
    )]
    pub fn next(&mut self) -> Option<WirePacket<'_>> {
        self.cuts.next(&mut self.room)
    }
}

impl<'a> FragmentWriter<'a> {
    /// The pieces of `packet`, as its `fragmentation` says.
    #[inline]
    pub fn of(packet: &'a Packet) -> FragmentWriter<'a> {
        let state = match (packet.shares(), packet.fragmentation) {
            (Some(shares), Some(cut)) => State::Cutting(Cutting::new(packet, shares, cut)),
            _ => Segments::of(packet).map_or(State::Uncut { sent: false }, State::Segmenting),
        };
        FragmentWriter { packet, state }
    }

    /// The next piece. Its header is written to the front of `room`, which has [`FRAGMENT_HEADER_LEN_MAX`] bytes, or as many as
    /// link, IP and transport header take; a packet that is not cut stays where it is.
    ///
    /// # Panics
    /// Where the header does not fit.
    #[inline]
    pub fn next<'r>(&mut self, room: &'r mut [u8]) -> Option<WirePacket<'r>>
    where
        'a: 'r,
    {
        match &mut self.state {
            State::Uncut { sent: true } => None,
            State::Uncut { sent } => {
                *sent = true;
                Some(WirePacket { header: self.packet.frame(), payload: &[] })
            }
            State::Cutting(cutting) => cutting.next(room),
            State::Segmenting(segments) => segments.next(room),
        }
    }
}

impl<'a> Cutting<'a> {
    #[inline]
    fn new(packet: &'a Packet, shares: FragmentRanges<'a>, cut: Fragmentation) -> Cutting<'a> {
        // A piece that is cut again keeps its place and the end of its datagram (RFC 791 section 3.2, R003).
        let (offset, more) = packet.ip().fragment.map_or((0, false), |fragment| (fragment.offset, fragment.more));
        let base = Fragment { id: cut.id, offset, more };
        Cutting { shares, template: Template::new(packet), base, payload: packet.payload() }
    }

    #[inline]
    fn next<'r>(&mut self, room: &'r mut [u8]) -> Option<WirePacket<'r>>
    where
        'a: 'r,
    {
        let share = self.shares.next()?;
        let more = self.base.more || share.end < self.payload.len();
        let offset = usize::from(self.base.offset) + share.start;
        assert!(offset <= OFFSET_MAX, "no piece starts behind the last offset that a header can say");
        let payload = self.payload.get(share).unwrap_or_default();
        let fragment = Fragment { offset: offset as u16, more, ..self.base };
        Some(WirePacket { header: self.template.stamp(room, payload.len(), fragment), payload })
    }
}

/// The last place that a fragment can have, in bytes: 13 bits of eights (RFC 791 section 3.1).
const OFFSET_MAX: usize = 65_528;
