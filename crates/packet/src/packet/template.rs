//! A packet to be fragmented, and the position of a fragment -> the headers of that fragment.
//!
//! The payload ranges are left to [`FragmentRanges`](crate::FragmentRanges).

use super::Packet;
use crate::ip::{Common, Fragment, Ip};

/// The header template of one packet's fragments. Common fields are computed once. Fields that differ are written
/// for each fragment (G3).
#[derive(Debug)]
pub struct Template<'a> {
    ip: &'a Ip,
    /// Link and IP header of the packet.
    front: &'a [u8],
    link_len: usize,
    /// Header length of the first fragment, then of later fragments, in bytes.
    lens: [usize; 2],
    /// Whether later fragments repeat the complete header of the first.
    repeats_all: bool,
    common: Common,
    dont_fragment: bool,
}

impl<'a> Template<'a> {
    /// Creates the template for the fragments of `packet`.
    #[inline]
    pub fn new(packet: &'a Packet) -> Template<'a> {
        let link_len = packet.link_len();
        let [_, later_len] = packet.fragment_header_lens();
        let front =
            packet.memory.bytes(packet.ip_at() - link_len..packet.ip_at() + usize::from(packet.ip.header_len));
        // Fragments that were received with DF are sent with DF.
        let dont_fragment = packet.ip.dont_fragment && packet.max_fragment_len().is_some();
        let lens = [front.len() + packet.ip.fragment_header_len(), link_len + later_len];
        let [whole, later] = lens;
        Template {
            // A later header can have the same length, if padding replaces the omitted options.
            repeats_all: whole == later && !packet.ip.keeps_options_to_the_first(packet.header()),
            ip: &packet.ip,
            front,
            link_len,
            lens,
            common: packet.ip.common(packet.header(), dont_fragment),
            dont_fragment,
        }
    }

    /// Writes the link and IP header of a fragment with `payload_len` bytes of payload to the start of `room`.
    /// Returns the written bytes.
    ///
    /// # Panics
    /// If `room` is too short.
    #[inline]
    pub fn stamp<'r>(&self, room: &'r mut [u8], payload_len: usize, fragment: Fragment) -> &'r [u8] {
        let [whole, _] = self.lens;
        if !self.repeats_all && fragment.offset > 0 {
            return self.stamp_later(room, payload_len, fragment);
        }
        let header = fitting(room, whole);
        let (front, _) = header.split_at_mut(self.front.len());
        simd::copy(front, self.front);
        self.ip.stamp(header.get_mut(self.link_len..).unwrap_or_default(), self.common, payload_len, fragment);
        header
    }

    /// Writes the header of a later fragment, which has fewer options (RFC 791 section 3.1, R004).
    #[cold]
    fn stamp_later<'r>(&self, room: &'r mut [u8], payload_len: usize, fragment: Fragment) -> &'r [u8] {
        let [_, later] = self.lens;
        let all = fitting(room, later);
        let (link, header) = all.split_at_mut(self.link_len);
        let (link_from, header_from) = self.front.split_at(self.link_len);
        link.copy_from_slice(link_from);
        self.ip.later_header(header_from, header);
        let common = self.ip.common(header, self.dont_fragment);
        self.ip.stamp(header, common, payload_len, fragment);
        all
    }
}

/// Returns the first `len` bytes of `room`. Panics if `room` is shorter.
#[inline]
pub(crate) fn fitting(room: &mut [u8], len: usize) -> &mut [u8] {
    match room.get_mut(..len) {
        Some(header) => header,
        None => panic!("a header fits where it is written"),
    }
}
