//! Frames received with header split -> fragments whose payload is already at its predicted place.
//!
//! A port copies every frame to memory anyway. If the place of a payload is predicted before the header is read,
//! the port can copy the payload directly into the datagram's buffer:
//!
//! - The predictor supplies [`PayloadSlots`], one slot for each of the next frames (K2).
//! - The port receives headers and payloads into different memory (K1).
//! - A frame that may be the predicted fragment becomes a [`SplitFrame`]. The headers then confirm or refute the
//!   prediction (K3).
//! - The payload of any other frame is copied out of its slot (K4), so no data is lost.
//!
//! Only a few headers of a batch are parsed. Consecutive fragments of a datagram have equal bytes before the
//! payload, except the offset and the IPv4 header checksum. So the next headers are known, and one comparison for
//! each frame is enough. The prediction is left to the engine.

use crate::checksum::patched;
use crate::fragmentation::UNIT;
use crate::ip::{ICMPV6, TCP, UDP, Version};
use crate::link::{Ingress, LINK_LEN_MAX, LinkType};
use crate::packet::{Buffer, Checksum, Frame, HEADROOM, Packet};
use core::slice::IterMut;

/// The slots for the payloads of the next frames, in order.
#[derive(Debug)]
pub struct PayloadSlots<'a> {
    front: HeaderLayout,
    step: usize,
    rest: &'a mut [u8],
    fresh: IterMut<'a, Option<Buffer>>,
    fresh_len: usize,
    left: usize,
    taken_count: &'a mut usize,
}

/// The layout of the headers before the payload of the expected fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Length of the link header, in bytes.
    pub link_len: usize,
    /// Length of the IP header, in bytes, including a Fragment header.
    pub header_len: usize,
}

/// The layout of the slots: consecutive fragments of an open datagram, then fragments of new datagrams.
#[derive(Clone, Copy, Debug)]
pub struct SlotLayout {
    /// The layout of the headers before each payload.
    pub front: HeaderLayout,
    /// Payload length of each fragment except the last, in bytes.
    pub step: usize,
    /// Predicted payload length of each new datagram, in bytes.
    pub fresh_len: usize,
    /// Maximum number of slots.
    pub count: usize,
}

/// A frame that may be the predicted fragment. Its unparsed headers are in a buffer, its payload is in a slot.
#[derive(Debug)]
pub struct SplitFrame {
    buffer: Buffer,
    laid: FrameSpan,
}

/// A fragment whose headers were parsed. The headers are in a buffer, the payload is in a slot.
#[derive(Debug)]
pub struct SplitPacket {
    packet: Packet,
    laid: FrameSpan,
}

/// The position of a frame in its buffer, and the port's facts about the frame.
#[derive(Clone, Copy, Debug)]
struct FrameSpan {
    /// Offset of the frame in the buffer's memory, in bytes. `len` is the length of the frame, including its
    /// payload.
    at: usize,
    len: usize,
    front: HeaderLayout,
    link_type: LinkType,
    ingress: Ingress,
    checksum: Checksum,
    /// A number that the port chooses: see [`Packet`].
    tag: u64,
    is_for_ingress_side: bool,
}

impl<'a> PayloadSlots<'a> {
    /// Creates slots in `rest`, the missing end of an open datagram, and then in the buffers `fresh`. `taken_count`
    /// is set to 0, and incremented for each slot that the iterator returns.
    pub fn new(
        grid: SlotLayout,
        rest: &'a mut [u8],
        fresh: &'a mut [Option<Buffer>],
        taken_count: &'a mut usize,
    ) -> PayloadSlots<'a> {
        let SlotLayout { front, step, fresh_len, count } = grid;
        *taken_count = 0;
        PayloadSlots {
            front,
            step: step.max(1),
            rest,
            fresh: fresh.iter_mut(),
            fresh_len,
            left: count,
            taken_count,
        }
    }

    /// Returns the layout of the headers before each payload.
    pub fn front(&self) -> HeaderLayout {
        self.front
    }

    /// Returns the length of the longest slot, in bytes.
    pub fn step(&self) -> usize {
        self.step
    }
}

impl<'a> Iterator for PayloadSlots<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<&'a mut [u8]> {
        if self.left == 0 {
            return None;
        }
        if self.rest.is_empty() {
            let buffer = self.fresh.by_ref().flatten().next()?;
            self.rest = buffer.bytes_mut(HEADROOM..HEADROOM + self.fresh_len);
        }
        let rest = core::mem::take(&mut self.rest);
        let (place, rest) = rest.split_at_mut(self.step.min(rest.len()));
        self.rest = rest;
        self.left -= 1;
        *self.taken_count += 1;
        Some(place)
    }
}

impl HeaderLayout {
    /// Returns the length of all headers before the payload, in bytes.
    pub fn len(self) -> usize {
        self.link_len + self.header_len
    }

    /// Always false, because there is an IP header.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Returns the number of payload bytes that the buffer needs for parsing a packet with these headers. `None` if
    /// the packet cannot be an expected fragment.
    fn peek_len(self, front: &[u8]) -> Option<usize> {
        let header = front.get(self.link_len..)?;
        match *header.first()? {
            V4_PLAIN if self.header_len == V4_LEN => {
                let word = u16::from_be_bytes([*header.get(6)?, *header.get(7)?]);
                let is_first = word & V4_OFFSET == 0;
                (word & (V4_OFFSET | V4_MORE) != 0).then_some(if is_first { PEEK_LEN } else { 0 })
            }
            first if first >> 4 == 6 && self.header_len == V6_LEN => {
                let &[next_header, _, high, low, ..] = header.get(V6_LEN - V6_FRAGMENT_LEN..)? else { return None };
                let is_first = u16::from_be_bytes([high, low]) & V6_OFFSET == 0;
                // More extension headers would have to be parsed at the start of the payload.
                let is_plain = matches!(next_header, TCP | UDP | ICMPV6);
                let is_fragment = header.get(6) == Some(&V6_FRAGMENT);
                (is_fragment && (is_plain || !is_first)).then_some(if is_first { PEEK_LEN } else { 0 })
            }
            _ => None,
        }
    }
}

impl SplitFrame {
    /// Creates a split frame from a received frame of `len` bytes. The headers must be at offset `at` of the
    /// buffer's memory. The payload must start in the slot `place`. Payload beyond the slot must continue in the
    /// buffer, behind a gap of the slot's length.
    ///
    /// # Errors
    /// The buffer with the complete frame, if the frame cannot be the expected fragment.
    #[inline(always)]
    pub fn of(
        mut buffer: Buffer,
        at: usize,
        len: usize,
        front: HeaderLayout,
        place: &[u8],
        link_type: LinkType,
        ingress: Ingress,
    ) -> Result<SplitFrame, Buffer> {
        let payload_at = at + front.len();
        let Some(behind_len) = len.checked_sub(front.len()) else { return Err(buffer) };
        if behind_len <= place.len()
            && let Some(peek_len) = front.peek_len(buffer.bytes(at..payload_at))
        {
            if peek_len > 0 {
                put(&mut buffer, payload_at, place, peek_len.min(behind_len));
            }
            let checksum = Checksum::Unverified;
            let laid =
                FrameSpan { at, len, front, link_type, ingress, checksum, tag: 0, is_for_ingress_side: false };
            return Ok(SplitFrame { buffer, laid });
        }
        put(&mut buffer, payload_at, place, behind_len);
        Err(buffer)
    }

    /// Sets the state of the transport checksum, as far as the port knows it.
    pub fn with_checksum(mut self, checksum: Checksum) -> SplitFrame {
        self.laid.checksum = checksum;
        self
    }

    /// Records `tag` and `is_for_ingress_side` for the packet that parsing will return.
    pub fn mark(&mut self, tag: u64, is_for_ingress_side: bool) {
        (self.laid.tag, self.laid.is_for_ingress_side) = (tag, is_for_ingress_side);
    }

    /// Returns the link header.
    pub fn link(&self) -> &[u8] {
        let FrameSpan { at, front, .. } = self.laid;
        self.buffer.bytes(at..at + front.link_len)
    }

    /// Returns the length of the frame, in bytes, including the payload in the slot.
    pub fn frame_len(&self) -> usize {
        self.laid.len
    }

    /// Parses the headers.
    ///
    /// # Errors
    /// The unchanged frame, if it is no fragment of the expected layout.
    pub fn read(self) -> Result<SplitPacket, SplitFrame> {
        let SplitFrame { buffer, laid } = self;
        let buffer = match laid.read(buffer) {
            Frame::Ip(packet) if laid.front.is_of(&packet) => return Ok(SplitPacket { packet, laid }),
            Frame::Ip(packet) => packet.into_buffer(),
            Frame::Other(raw, _) => raw.into_buffer(),
        };
        Err(SplitFrame { buffer, laid })
    }

    /// Returns the number of slot bytes that the frame uses.
    pub fn len(&self) -> usize {
        self.laid.behind_len()
    }

    /// Whether the frame uses no byte of the slot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the payload from the slot `place` to the buffer, and parses the complete frame.
    pub fn copy_out(self, place: &[u8]) -> Frame {
        let SplitFrame { mut buffer, laid } = self;
        put(&mut buffer, laid.at + laid.front.len(), place, laid.behind_len());
        laid.read(buffer)
    }

    /// Returns the buffer. The payload stays in its slot.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Returns the headers before the payload.
    #[inline]
    fn front(&self) -> &[u8] {
        let FrameSpan { at, front, .. } = self.laid;
        self.buffer.bytes(at..at + front.len())
    }
}

impl SplitPacket {
    /// Returns the fragment as a packet. The packet's buffer contains the headers, but not the payload.
    #[inline]
    pub fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Returns the number of leading frames of `next` that continue this fragment.
    ///
    /// Each of these frames has the length and the headers of this fragment, except the offset and the IPv4 header
    /// checksum. Parsing such a frame would give the same facts, except the offset.
    pub fn followed_by(&self, next: &[SplitFrame]) -> usize {
        let Some(mut expected) = Expected::behind(self) else { return 0 };
        let goes_on = |it: &&SplitFrame| {
            let is_alike = it.laid.len == self.laid.len && it.laid.ingress == self.laid.ingress;
            is_alike && expected.move_on() && it.front() == expected.bytes()
        };
        next.iter().take_while(goes_on).count()
    }

    /// Converts the fragment back to a split frame, as it was before parsing.
    pub fn into_split_frame(self) -> SplitFrame {
        SplitFrame { buffer: self.packet.into_buffer(), laid: self.laid }
    }

    /// Returns the buffer. The payload stays in its slot.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        self.packet.into_buffer()
    }
}

impl FrameSpan {
    /// Parses the frame in this buffer, with or without its payload.
    fn read(self, buffer: Buffer) -> Frame {
        let mut frame = Frame::read(buffer, self.at, self.len, self.link_type, self.ingress);
        if let Frame::Ip(packet) = &mut frame {
            packet.checksum = self.checksum;
            (packet.tag, packet.is_for_ingress_side) = (self.tag, self.is_for_ingress_side);
        }
        frame
    }

    fn behind_len(self) -> usize {
        self.len - self.front.len()
    }
}

impl HeaderLayout {
    fn is_of(self, packet: &Packet) -> bool {
        let ip = packet.ip();
        ip.fragment.is_some() && packet.link_len() == self.link_len && usize::from(ip.payload_at) == self.header_len
    }
}

/// The expected headers of a datagram's next fragment.
struct Expected {
    bytes: [u8; FRONT_LEN_MAX],
    len: usize,
    /// Offset of the word with the fragment offset, in bytes. `checksum_at` is the offset of the IPv4 header
    /// checksum, in bytes; `None` in IPv6.
    word_at: usize,
    checksum_at: Option<usize>,
    /// Increase of the offset word from one fragment to the next: in units of eight bytes in IPv4, in bytes in
    /// IPv6.
    step: u16,
}

impl Expected {
    /// Creates the expectation from the headers of `fragment`; `move_on` then advances to the next fragment. `None`
    /// if no fragment can follow.
    fn behind(fragment: &SplitPacket) -> Option<Expected> {
        let (ip, front) = (fragment.packet.ip(), fragment.laid.front);
        let payload_len = u16::try_from(ip.payload_len()).ok()?;
        if !ip.fragment?.more || payload_len == 0 || !usize::from(payload_len).is_multiple_of(UNIT) {
            return None;
        }
        let header_at = front.link_len;
        let (word_at, checksum_at, step) = match ip.version {
            Version::V4 => (header_at + V4_WORD_AT, Some(header_at + V4_CHECKSUM_AT), payload_len / UNIT as u16),
            Version::V6 => (header_at + V6_LEN - V6_FRAGMENT_LEN + V6_WORD_AT, None, payload_len),
        };
        let mut bytes = [0; FRONT_LEN_MAX];
        let at = fragment.laid.at;
        bytes.get_mut(..front.len())?.copy_from_slice(fragment.packet.memory().bytes(at..at + front.len()));
        Some(Expected { bytes, len: front.len(), word_at, checksum_at, step })
    }

    /// Advances to the headers of the next fragment. Returns false if the offset of that fragment would exceed the
    /// maximum of a datagram.
    #[inline]
    fn move_on(&mut self) -> bool {
        let Some(word) = self.word(self.word_at) else { return false };
        let mask = if self.checksum_at.is_some() { V4_OFFSET } else { V6_OFFSET };
        let Some(offset) = (word & mask).checked_add(self.step).filter(|offset| offset & !mask == 0) else {
            return false;
        };
        let next = word & !mask | offset;
        if let Some(at) = self.checksum_at
            && let Some(checksum) = self.word(at)
        {
            self.put(at, patched(checksum, word, next));
        }
        self.put(self.word_at, next);
        true
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    #[inline]
    fn put(&mut self, at: usize, word: u16) {
        if let Some(bytes) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *bytes = word.to_be_bytes();
        }
    }
}

/// Copies the first `len` bytes of a slot to the buffer, or the complete slot if it is shorter.
fn put(buffer: &mut Buffer, at: usize, place: &[u8], len: usize) {
    buffer.put(at, place.get(..len).unwrap_or(place));
}

/// Maximum number of payload bytes of a first fragment that are parsed: a UDP header and the start of a tunnel's
/// header.
const PEEK_LEN: usize = 64;
/// Constants of an IPv4 header without options: the first byte, the length in bytes, and masks of the word with
/// flags and offset.
const V4_PLAIN: u8 = 0x45;
const V4_LEN: usize = 20;
const V4_OFFSET: u16 = 0x1FFF;
const V4_MORE: u16 = 0x2000;
/// Constants of an IPv6 header with a Fragment header: both lengths in bytes, the next header number, and the mask
/// of the offset.
const V6_LEN: usize = 48;
const V6_FRAGMENT_LEN: usize = 8;
const V6_FRAGMENT: u8 = 44;
const V6_OFFSET: u16 = 0xFFF8;
/// Offsets of three fields, in bytes: the fragment offset in an IPv4 header and in a Fragment header, and the IPv4
/// checksum.
const V4_WORD_AT: usize = 6;
const V6_WORD_AT: usize = 2;
const V4_CHECKSUM_AT: usize = 10;
/// Maximum length of the headers before a payload, in bytes: a link header, and an IPv6 header with a Fragment
/// header.
const FRONT_LEN_MAX: usize = LINK_LEN_MAX + V6_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Sum;
    use crate::packet::Pool;

    #[test]
    fn a_first_fragment_recognises_its_followers() {
        for version in [Version::V4, Version::V6] {
            let mut pool = Pool::new(1 << 20);
            let fragments: Vec<SplitFrame> =
                (0..44).map(|index| split_frame(version, index, |_| {}, &mut pool)).collect();
            let mut fragments = fragments.into_iter();
            let first = fragments.next().and_then(|it| it.read().ok()).expect("it is a fragment");
            // The last fragment has no MF flag, so no fragment follows it.
            assert_eq!(first.followed_by(fragments.as_slice()), 42, "{version:?}");
            let of_second = fragments.nth(1).and_then(|it| it.read().ok()).expect("it is a fragment");
            assert_eq!(of_second.followed_by(fragments.as_slice()), 40, "{version:?}");
            assert_eq!(first.followed_by(fragments.as_slice()), 0, "{version:?}: one is missing between");
            let last = fragments.next_back().and_then(|it| it.read().ok()).expect("it is a fragment");
            assert_eq!(last.followed_by(fragments.as_slice()), 0, "{version:?}");
        }
    }

    #[test]
    fn any_changed_header_byte_ends_the_match() {
        for (version, front_len) in [(Version::V4, 34), (Version::V6, 62)] {
            let mut pool = Pool::new(1 << 20);
            let first = split_frame(version, 0, |_| {}, &mut pool).read().expect("it is a fragment");
            let mut seen = 0;
            for at in 0..front_len {
                let frame = split_frame(version, 1, |frame| frame[at] ^= 1, &mut pool);
                seen += first.followed_by(core::slice::from_ref(&frame));
                pool.give(frame.into_buffer());
            }
            assert_eq!(seen, 0, "{version:?}");
            let longer = split_frame(version, 1, |frame| frame.push(0), &mut pool);
            assert_eq!(first.followed_by(&[longer]), 0, "{version:?}");
        }
    }

    #[test]
    fn other_ports_last_fragments_and_odd_lengths_end_the_match() {
        let mut pool = Pool::new(1 << 20);
        let mut count = |[first, second]: [(u16, u16); 2], ingress| {
            let [first, mut second] = [first, second]
                .map(|(word, len)| split_frame(Version::V4, 0, |frame| reseal(frame, word, len), &mut pool));
            second.laid.ingress = Ingress(ingress);
            first.read().expect("it is a fragment").followed_by(&[second])
        };
        let [len, odd_len] = [20 + STEP as u16, 16 + STEP as u16];
        let step = STEP as u16 / 8;
        assert_eq!(count([(V4_MORE, len), (V4_MORE | step, len)], 0), 1);
        assert_eq!(count([(V4_MORE, len), (V4_MORE | step, len)], 1), 0, "of another port");
        assert_eq!(count([(step, len), (2 * step, len)], 0), 0, "behind a last one");
        assert_eq!(count([(V4_MORE, odd_len), (V4_MORE | (step - 1), odd_len)], 0), 0, "between two units");
        let highest = V4_OFFSET + 1 - step;
        assert_eq!(count([(V4_MORE | highest, len), (V4_MORE, len)], 0), 0, "past every offset");
    }

    #[test]
    fn a_vlan_tag_is_not_taken_for_a_header() {
        let mut pool = Pool::new(1 << 20);
        let tag = |frame: &mut Vec<u8>| {
            frame.truncate(frame.len() - 8);
            reseal(frame, V4_MORE, 12 + STEP as u16);
            frame.splice(12..12, [0x81, 0, 0x45, 0]);
        };
        let mut it = split_frame(Version::V4, 0, tag, &mut pool);
        // Old bytes in the buffer may happen to equal the bytes that the frame lacks.
        it.buffer.put(HEADROOM + 20, &[10, 0, 0, 2]);
        assert!(it.read().is_err());
    }

    #[test]
    fn an_unread_split_frame_is_copied_out_whole() {
        let mut pool = Pool::new(1 << 20);
        for index in [0, 7, 43] {
            let Frame::Ip(packet) =
                split_frame(Version::V4, index, |_| {}, &mut pool).copy_out(&[index as u8; STEP])
            else {
                panic!("it is a packet")
            };
            assert!(packet.payload() == [index as u8; STEP]);
            assert_eq!(packet.ip().fragment.map(|it| usize::from(it.offset)), Some(index * STEP));
        }
    }

    /// Creates the split frame of fragment `index` of a datagram of 44 fragments. `change` is applied to the frame
    /// first.
    fn split_frame(
        version: Version,
        index: usize,
        change: impl FnOnce(&mut Vec<u8>),
        pool: &mut Pool,
    ) -> SplitFrame {
        let more = index < 43;
        let header = match version {
            Version::V4 => v4(index, more),
            Version::V6 => v6(index, more),
        };
        let front = HeaderLayout { link_len: 14, header_len: header.len() };
        let protocol = if version == Version::V4 { [8, 0] } else { [0x86, 0xDD] };
        let mut frame = [&[2; 12][..], &protocol, &header, &[index as u8; STEP]].concat();
        change(&mut frame);
        let (head, payload) = frame.split_at(front.len());
        let mut place = [0; STEP + 8];
        place[..payload.len()].copy_from_slice(payload);
        let mut buffer = pool.allocate(2_048).expect("the pool is large");
        buffer.put(HEADROOM - 14, head);
        let laid = FrameSpan {
            at: HEADROOM - 14,
            len: frame.len(),
            front,
            link_type: LinkType::Ethernet,
            ingress: Ingress(0),
            checksum: Checksum::Unverified,
            tag: 0,
            is_for_ingress_side: false,
        };
        match SplitFrame::of(buffer, laid.at, laid.len, front, &place, laid.link_type, laid.ingress) {
            Ok(it) => it,
            // The layouts that a port rejects are compared too.
            Err(buffer) => SplitFrame { buffer, laid },
        }
    }

    /// Sets the total length and the word of flags and offset of an IPv4 frame, and corrects the header checksum.
    fn reseal(frame: &mut [u8], word: u16, len: u16) {
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[20..22].copy_from_slice(&word.to_be_bytes());
        frame[24..26].fill(0);
        let checksum = Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }

    fn v4(index: usize, more: bool) -> Vec<u8> {
        let word = (index * STEP / 8) as u16 | if more { V4_MORE } else { 0 };
        let mut header = vec![0x45, 0];
        header.extend((20 + STEP as u16).to_be_bytes());
        header.extend([[7, 7], word.to_be_bytes(), [64, 17], [0, 0]].concat());
        header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = Sum::of(&header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn v6(index: usize, more: bool) -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((8 + STEP as u16).to_be_bytes());
        header.extend([44, 64]);
        header.extend([[1; 16], [2; 16]].concat());
        header.extend([17, 0]);
        header.extend(((index * STEP) as u16 | u16::from(more)).to_be_bytes());
        header.extend(7u32.to_be_bytes());
        header
    }

    /// Payload length of a fragment, in bytes.
    const STEP: usize = 1_480;
}
