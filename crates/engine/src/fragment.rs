//! A packet -> its fragments or segments, one by one.
//!
//! Each wire packet gets a new header, and refers to its payload in the original packet. Only headers are copied.
//! The first wire packet is ready before the second exists (G3, G4, C7). The wire packets of one packet are sent
//! consecutively, so no other packet comes between them (C16). Transmission is left to the port.

use crate::segment::{Segments, WirePacket};
use packet::{FRAGMENT_HEADER_LEN_MAX, Fragment, FragmentRanges, Fragmentation, Packet, Template};

/// The wire packets of a packet, one at a time. A packet that needs no division is its only wire packet.
#[derive(Debug)]
pub struct WirePackets<'a> {
    cuts: FragmentWriter<'a>,
    room: [u8; FRAGMENT_HEADER_LEN_MAX],
}

/// The wire packets of a packet, each with a header buffer from the caller. A port can therefore transmit several
/// wire packets together.
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

/// The fragments of a packet.
#[derive(Debug)]
struct Cutting<'a> {
    fragment_ranges: FragmentRanges<'a>,
    template: Template<'a>,
    base: Fragment,
    payload: &'a [u8],
}

impl<'a> WirePackets<'a> {
    /// Returns an iterator over the wire packets of `packet`: its fragments, its segments, or the packet itself.
    pub fn of(packet: &'a Packet) -> WirePackets<'a> {
        WirePackets { cuts: FragmentWriter::of(packet), room: [0; FRAGMENT_HEADER_LEN_MAX] }
    }

    /// Returns the next wire packet. `None` after the last.
    #[expect(
        clippy::should_implement_trait,
        reason = "each piece borrows the room that the next one is written to"
    )]
    pub fn next(&mut self) -> Option<WirePacket<'_>> {
        self.cuts.next(&mut self.room)
    }
}

impl<'a> FragmentWriter<'a> {
    /// Returns an iterator over the wire packets of `packet`: its fragments, its segments, or the packet itself.
    #[inline]
    pub fn of(packet: &'a Packet) -> FragmentWriter<'a> {
        let state = match (packet.fragment_ranges(), packet.fragmentation) {
            (Some(fragment_ranges), Some(cut)) => State::Cutting(Cutting::new(packet, fragment_ranges, cut)),
            _ => Segments::of(packet).map_or(State::Uncut { sent: false }, State::Segmenting),
        };
        FragmentWriter { packet, state }
    }

    /// Returns the next wire packet; `None` after the last. Its header is written to the start of `room`. `room`
    /// must hold the link, IP and transport headers: [`FRAGMENT_HEADER_LEN_MAX`] bytes are always enough. The
    /// header of an undivided packet stays in place.
    ///
    /// # Panics
    /// If the header is longer than `room`.
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
    fn new(packet: &'a Packet, fragment_ranges: FragmentRanges<'a>, cut: Fragmentation) -> Cutting<'a> {
        // The fragments of a fragment start at its offset. MF stays set unless it is the datagram's last fragment
        // (RFC 791 section 3.2, R003).
        let (offset, more) = packet.ip().fragment.map_or((0, false), |fragment| (fragment.offset, fragment.more));
        let base = Fragment { id: cut.id, offset, more };
        Cutting { fragment_ranges, template: Template::new(packet), base, payload: packet.payload() }
    }

    #[inline]
    fn next<'r>(&mut self, room: &'r mut [u8]) -> Option<WirePacket<'r>>
    where
        'a: 'r,
    {
        let share = self.fragment_ranges.next()?;
        let more = self.base.more || share.end < self.payload.len();
        let offset = usize::from(self.base.offset) + share.start;
        assert!(offset <= OFFSET_MAX, "no piece starts behind the last offset that a header can say");
        let payload = self.payload.get(share).unwrap_or_default();
        let fragment = Fragment { offset: offset as u16, more, ..self.base };
        Some(WirePacket { header: self.template.stamp(room, payload.len(), fragment), payload })
    }
}

/// Maximum offset of a fragment, in bytes: 13 bits in units of eight bytes (RFC 791 section 3.1).
const OFFSET_MAX: usize = 65_528;
