//! A GSO packet inside a tunnel -> its frames on the wire.
//!
//! With NIC offload or GRO, TCP or UDP inside a tunnel may form a GSO packet. The tunnels are IP in IP, GRE, VXLAN,
//! GENEVE and FOU. A GSO packet states only the payload length of its inner segments. So each segment gets a copy
//! of all headers, from the outermost to the transport header. Lengths, identifications and checksums are computed
//! for each segment.
//!
//! Pseudo-headers contain the final destination. This address may be in a Routing header with segments left, or in
//! an IPv4 source route (RFC 8200 section 8.1, RFC 1122 section 3.2.1.8). A packet is left to the caller if the
//! final destination in its Routing header cannot be determined.
//!
//! The offload request contains the offset of the transport header. The headers before it are parsed in every way
//! that a tunnel over UDP permits. Only a parse that ends at the transport header is accepted. All other packets
//! are left to the caller.

use crate::checksum::{Sum, patched};
use crate::ip::{TCP, UDP};
use crate::link::{Link, LinkType};
use crate::segments::Place;
use crate::tcp::{self, Segment};
use crate::udp;
use arrayvec::ArrayVec;

/// The frames of a GSO packet inside a tunnel.
#[derive(Debug)]
pub struct InnerSegments<'a> {
    frame: &'a [u8],
    layers: ArrayVec<Layer, LAYERS_MAX>,
    /// Offset of the inner payload, in bytes from the start of the frame.
    payload_at: usize,
    /// Payload length of a full segment, in bytes.
    segment_len: usize,
    /// Payload length of all frames written so far, in bytes.
    given_len: usize,
}

/// A header with fields that depend on the bytes behind it, and its offset in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// An IPv4 header: its offset, and the offset of the final destination. `V6` has the same fields.
    V4(usize, usize),
    V6(usize, usize),
    /// A UDP header of a tunnel.
    Udp(usize),
    /// A GRE header with a checksum.
    Gre(usize),
    /// The innermost transport header: its offset and its protocol.
    Transport(usize, u8),
}

impl<'a> InnerSegments<'a> {
    /// Divides the GSO packet `frame` into frames with `segment_len` payload bytes each, fewer in the last. The
    /// innermost transport header must be at offset `transport_at`, in bytes. `None` if the headers before it do
    /// not form a supported tunnel.
    pub fn of(
        frame: &'a [u8],
        link_type: LinkType,
        transport_at: usize,
        segment_len: u16,
    ) -> Option<InnerSegments<'a>> {
        let link = Link::parse(link_type, frame).ok()?;
        let mut walk = Walk { frame, transport_at, layers: ArrayVec::new() };
        let version = frame.get(link.len)? >> 4;
        if segment_len == 0 || !walk.ip(link.len, version) {
            return None;
        }
        let layers = walk.layers;
        let &Layer::Transport(at, protocol) = layers.last()? else { return None };
        let is_tunnel = layers.iter().filter(|layer| matches!(layer, Layer::V4(..) | Layer::V6(..))).count() > 1;
        let header_len = match protocol {
            TCP => Segment::parse(frame.get(at..)?)?.header.header_len(),
            _ => udp::HEADER_LEN,
        };
        let payload_at = at + header_len;
        let is_whole = is_tunnel && payload_at < frame.len();
        is_whole.then_some(InnerSegments {
            frame,
            layers,
            payload_at,
            segment_len: segment_len.into(),
            given_len: 0,
        })
    }

    /// Returns the number of frames on the wire.
    pub fn count(&self) -> usize {
        (self.frame.len() - self.payload_at).div_ceil(self.segment_len)
    }

    /// Returns the length of the next frame, in bytes. `None` after the last.
    pub fn next_len(&self) -> Option<usize> {
        let left = self.frame.len() - self.payload_at - self.given_len;
        (left > 0).then_some(self.payload_at + left.min(self.segment_len))
    }

    /// Writes the next frame to `room`. The length of `room` must be [`next_len`](InnerSegments::next_len).
    ///
    /// # Panics
    /// If `room` has another length.
    pub fn write(&mut self, room: &mut [u8]) {
        let start = self.payload_at + self.given_len;
        let payload_len = room.len() - self.payload_at;
        let (headers, payload) = room.split_at_mut(self.payload_at);
        headers.copy_from_slice(self.frame.get(..self.payload_at).unwrap_or_default());
        payload.copy_from_slice(self.frame.get(start..start + payload_len).unwrap_or_default());
        let place = Place { first: self.given_len == 0, last: start + payload_len == self.frame.len() };
        let index = self.given_len.div_ceil(self.segment_len) as u16;
        self.given_len += payload_len;
        // Lengths are written first, because the checksums of outer headers cover the inner headers.
        for layer in &self.layers {
            match *layer {
                Layer::V4(at, _) => number_v4(room.get_mut(at..).unwrap_or_default(), index),
                Layer::V6(at, _) => put(room, at + 4, (room.len() - at - V6_LEN) as u16),
                Layer::Udp(at) | Layer::Transport(at, UDP) => put(room, at + 4, (room.len() - at) as u16),
                Layer::Gre(_) | Layer::Transport(..) => {}
            }
        }
        let mut layers = self.layers.as_slice();
        while let Some((layer, outer)) = layers.split_last() {
            sum_up(room, *layer, outer, start - self.payload_at, place);
            layers = outer;
        }
    }
}

/// Writes the checksum of a header, over all bytes from this header on. For TCP, also writes sequence number and
/// flags. `outer` contains the headers before this one.
fn sum_up(room: &mut [u8], layer: Layer, outer: &[Layer], offset: usize, place: Place) {
    match layer {
        Layer::Transport(at, TCP) => {
            let seq = u32::from(word(room, at + SEQ_AT)) << 16 | u32::from(word(room, at + SEQ_AT + 2));
            let seq = seq.wrapping_add(offset as u32);
            put(room, at + SEQ_AT, (seq >> 16) as u16);
            put(room, at + SEQ_AT + 2, seq as u16);
            // Header length and the AE bit precede the flags.
            let marks = word(room, at + MARKS_AT);
            let repeated = if marks & ACCURATE_ECN == 0 { 0 } else { tcp::CWR };
            put(room, at + MARKS_AT, marks & (0xFF00 | u16::from(place.flags() | repeated)));
            put(room, at + tcp::CHECKSUM_AT, 0);
            let sum = covered(room, at, outer, TCP).checksum();
            put(room, at + tcp::CHECKSUM_AT, sum);
        }
        Layer::Transport(at, _) | Layer::Udp(at) => {
            let is_outer = matches!(layer, Layer::Udp(_));
            // 0 in the checksum field of an outer UDP header means "no checksum". The innermost checksum is
            // partial, so there 0 is an ordinary value.
            if word(room, at + UDP_SUM_AT) == 0 && is_outer {
                return;
            }
            put(room, at + UDP_SUM_AT, 0);
            let sum = udp::field(covered(room, at, outer, UDP));
            put(room, at + UDP_SUM_AT, sum);
        }
        Layer::Gre(at) => {
            put(room, at + 4, 0);
            let sum = Sum::of(room.get(at..).unwrap_or_default()).checksum();
            put(room, at + 4, sum);
        }
        Layer::V4(..) | Layer::V6(..) => {}
    }
}

/// Returns the sum of the pseudo-header, the transport header at `at`, and all bytes behind it.
fn covered(room: &[u8], at: usize, outer: &[Layer], protocol: u8) -> Sum {
    let addresses = outer.iter().rev().find_map(|layer| match *layer {
        Layer::V4(at, to) => Some([room.get(at + 12..at + 16)?, room.get(to..to + 4)?]),
        Layer::V6(at, to) => Some([room.get(at + 8..at + 24)?, room.get(to..to + 16)?]),
        _ => None,
    });
    let covered = room.get(at..).unwrap_or_default();
    let [source, destination] = addresses.unwrap_or_default();
    let pseudo = Sum::of(source) + Sum::of(destination) + Sum::word(protocol.into());
    pseudo + Sum::long(covered.len() as u32) + Sum::of(covered)
}

/// The state of a parse from header to header, toward the transport header.
struct Walk<'a> {
    frame: &'a [u8],
    transport_at: usize,
    layers: ArrayVec<Layer, LAYERS_MAX>,
}

impl Walk<'_> {
    /// Parses an IP header of this version at `at`. Returns whether the parse reaches the transport header.
    fn ip(&mut self, at: usize, version: u8) -> bool {
        let Some(header) = self.frame.get(at..) else { return false };
        match (version, header) {
            (4, [first, _, _, _, _, _, _, _, _, protocol, ..]) if first >> 4 == 4 && header.len() >= V4_LEN => {
                let is_fragment = word(header, 6) & !0x4000 != 0;
                let len = usize::from(first & 0x0F) * 4;
                let options = header.get(V4_LEN..len).filter(|_| !is_fragment);
                let Some(routed_at) = options.and_then(source_routed_at) else { return false };
                let to = at + routed_at.map_or(V4_LEN - 4, |routed_at| V4_LEN + routed_at);
                self.goes_on(Layer::V4(at, to), |walk| walk.upper(at + len, *protocol))
            }
            (6, [first, _, _, _, _, _, next, ..]) if first >> 4 == 6 && header.len() >= V6_LEN => {
                let (mut next, mut len, mut to) = (*next, V6_LEN, at + V6_LEN - 16);
                while EXTENSIONS.contains(&next) {
                    let Some(&[upper, units]) = header.get(len..len + 2) else { return false };
                    let end = len + 8 * (1 + usize::from(units));
                    if next == ROUTING {
                        let Some(routed_at) = header.get(len..end).and_then(routed_at) else { return false };
                        to = routed_at.map_or(to, |routed_at| at + len + routed_at);
                    }
                    (next, len) = (upper, end);
                }
                self.goes_on(Layer::V6(at, to), |walk| walk.upper(at + len, next))
            }
            _ => false,
        }
    }

    fn upper(&mut self, at: usize, protocol: u8) -> bool {
        match protocol {
            TCP | UDP if at == self.transport_at => self.goes_on(Layer::Transport(at, protocol), |_| true),
            _ if at >= self.transport_at => false,
            UDP => self.goes_on(Layer::Udp(at), |walk| walk.in_udp(at + udp::HEADER_LEN)),
            IPV4 => self.ip(at, 4),
            IPV6 => self.ip(at, 6),
            GRE => self.gre(at),
            _ => false,
        }
    }

    /// Parses the content of UDP as each supported tunnel: FOU (IP directly behind UDP), VXLAN, GENEVE, GRE.
    fn in_udp(&mut self, at: usize) -> bool {
        let options_len = self.frame.get(at).map_or(0, |first| 4 * usize::from(first & 0x3F));
        let kind = self.frame.get(at + 2..at + 4).map_or(0, |kind| word(kind, 0));
        self.ip(at, 4)
            || self.ip(at, 6)
            || self.ethernet(at + VXLAN_LEN)
            || self.content(kind, at + GENEVE_LEN + options_len)
            || self.gre(at)
    }

    fn gre(&mut self, at: usize) -> bool {
        let Some(&[flags, version, high, low]) = self.frame.get(at..at + 4) else { return false };
        let kind = u16::from_be_bytes([high, low]);
        // Neither GRE with sequence numbers nor another GRE version is offloaded to NICs.
        if flags & !(GRE_SUM | GRE_KEY) != 0 || version != 0 {
            return false;
        }
        let len = 4 + [GRE_SUM, GRE_KEY].into_iter().filter(|flag| flags & flag != 0).count() * 4;
        if flags & GRE_SUM != 0 {
            self.goes_on(Layer::Gre(at), |walk| walk.content(kind, at + len))
        } else {
            self.content(kind, at + len)
        }
    }

    /// Parses the header at `at` that the EtherType `kind` announces.
    fn content(&mut self, kind: u16, at: usize) -> bool {
        match kind {
            0x0800 => self.ip(at, 4),
            0x86DD => self.ip(at, 6),
            0x6558 => self.ethernet(at),
            _ => false,
        }
    }

    fn ethernet(&mut self, at: usize) -> bool {
        let Some(inner) = self.frame.get(at..) else { return false };
        let Ok(link) = Link::parse(LinkType::Ethernet, inner) else { return false };
        link.version.is_some_and(|_| {
            let version = inner.get(link.len).map_or(0, |first| first >> 4);
            self.ip(at + link.len, version)
        })
    }

    /// Adds a header and continues the parse. Removes the header if the parse fails.
    fn goes_on(&mut self, layer: Layer, next: impl FnOnce(&mut Self) -> bool) -> bool {
        let len = self.layers.len();
        if self.layers.try_push(layer).is_ok() && next(self) {
            return true;
        }
        self.layers.truncate(len);
        false
    }
}

/// Returns the offset of the final destination in the options of an IPv4 header, in bytes from the first option
/// (RFC 791 section 3.1). Only a source route with hops left contains this address.
///
/// `Some(None)`: the destination field of the header is final. `None`: the options cannot be parsed.
fn source_routed_at(options: &[u8]) -> Option<Option<usize>> {
    let (mut at, mut found) = (0, None);
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(*options.get(at + 1)?),
        };
        let option = options.get(at..at + len.max(1))?;
        match (kind, option) {
            (LOOSE_ROUTE | STRICT_ROUTE, [_, _, pointer, route @ ..]) if route.len().is_multiple_of(4) => {
                let has_hops = !route.is_empty() && usize::from(*pointer) <= len;
                found = if has_hops { Some(at + len - 4) } else { found };
            }
            (LOOSE_ROUTE | STRICT_ROUTE, _) => return None,
            (_, [_]) if kind != 1 => return None,
            _ => {}
        }
        at += len;
    }
    Some(found)
}

/// Returns the offset of the final destination in a Routing header with segments left, in bytes from its start.
///
/// `Some(None)`: no segments are left. `None`: the type is unknown, or the header lacks the address.
fn routed_at(header: &[u8]) -> Option<Option<usize>> {
    let (kind, left) = (*header.get(2)?, *header.get(3)?);
    let at = match kind {
        _ if left == 0 => return Some(None),
        // The last address of the list (RFC 2460 section 4.4; RFC 6275 section 6.4.1, with a single address).
        0 | 2 => header.len().checked_sub(16)?,
        // The first address of the list, because the addresses are in reverse order (RFC 8754 section 2).
        4 => 8,
        _ => return None,
    };
    (at >= 8 && header.len() >= at + 16).then_some(Some(at))
}

/// Sets the total length of an IPv4 header, increases the identification by `index`, and updates the checksum (RFC
/// 1624).
fn number_v4(packet: &mut [u8], index: u16) {
    let len = packet.len() as u16;
    for (at, new) in [(2, len), (4, word(packet, 4).wrapping_add(index))] {
        let sum = patched(word(packet, 10), word(packet, at), new);
        put(packet, at, new);
        put(packet, 10, sum);
    }
}

/// Returns two bytes of a parsed header as a number; 0 if they are missing.
fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Maximum number of parsed headers.
const LAYERS_MAX: usize = 12;
/// Lengths of the headers of a tunnel, in bytes.
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const VXLAN_LEN: usize = 8;
const GENEVE_LEN: usize = 8;
/// The AE bit, in the two bytes that end with the TCP flags (RFC 9768 section 3.2).
const ACCURATE_ECN: u16 = 0x0100;
/// Offsets of fields in TCP and UDP headers, in bytes.
const SEQ_AT: usize = 4;
const MARKS_AT: usize = 12;
const UDP_SUM_AT: usize = 6;
/// Protocol numbers (IANA).
const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
/// Protocol numbers of hop-by-hop options, Routing header and destination options.
const EXTENSIONS: [u8; 3] = [0, ROUTING, 60];
const ROUTING: u8 = 43;
/// Kinds of the IPv4 options for source routes (RFC 791 section 3.1).
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;
/// Bits in the first byte of GRE: a checksum is present, a key is present (RFC 2890).
const GRE_SUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;
