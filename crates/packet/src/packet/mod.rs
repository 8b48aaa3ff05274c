//! A frame in a buffer in, a packet out: parsed once, changed in place, sealed once.

mod body;
mod buffer;
mod memory;

pub use body::{Body, Checksum};
pub use buffer::{Buffer, Pool};
pub use memory::{CLASS_LENS, HEADROOM};

use crate::cut::{Content, Cut, Shares};
use crate::ip::{
    Address, Common, Ecn, Ends, Fragment, ICMPV6, Ip, LEN_MAX, Shape, TCP, UDP, Unfit, Upper, pseudo_sum,
};
use crate::link::{Hop, Ingress, LINK_LEN_MAX, Link, Medium, Origin, Tags};
use crate::sum::Sum;
use crate::tcp::{TcpFacts, TcpPart};
use crate::train::Train;
use crate::{tcp, udp};
use core::ops::{Deref, DerefMut};

/// One IP header over contiguous bytes, with its link header.
///
/// A packet stands for one on the wire, or for many: `train` makes it one that a port or the segmenter cuts
/// into TCP segments or UDP datagrams, `cut` says that it leaves in fragments. [`wire_count`](Body::wire_count) and
/// [`wire_len`](Body::wire_len) answer for the wire.
///
/// Invariant: the bytes are those of one IP packet whenever a packet is in other hands; a run being joined is sealed
/// first, and one with holes carries a sparse cut.
///
/// It is one word: what is known of it lies with its buffer, and neither moves while it is handed on.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// What a port delivers.
#[derive(Debug)]
pub enum Frame {
    /// An IP packet.
    Ip(Packet),
    /// Anything else, with the reason; it passes.
    Other(Raw, Unfit),
}

/// A frame that is no packet to us: bytes in a buffer.
#[derive(Debug)]
pub struct Raw {
    buffer: Buffer,
    at: usize,
    len: usize,
}

/// Why a frame did not become a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPacket {
    /// For what it is.
    Unfit(Unfit),
    /// The pool has no buffer left.
    NoBuffer,
}

impl Frame {
    /// Reads the frame of `frame_len` bytes that ends its link header where the buffer's content starts.
    ///
    /// A port puts a frame at [`HEADROOM`] less the link header's length, so that the IP header is the first content.
    #[inline]
    pub fn parse(buffer: Buffer, frame_len: usize, link: Link, ingress: Ingress) -> Frame {
        Frame::parse_at(buffer, HEADROOM, frame_len - link.len, link, ingress)
    }

    /// Reads the frame of `len` bytes that lies at `at` in the buffer's memory, whatever its link header turns out to be.
    pub fn read(buffer: Buffer, at: usize, len: usize, medium: Medium, ingress: Ingress) -> Frame {
        match Link::parse(medium, buffer.bytes(at..at + len)) {
            Ok(link) => Frame::parse_at(buffer, at + link.len, len - link.len, link, ingress),
            Err(unfit) => Frame::Other(Raw { buffer, at, len }, unfit),
        }
    }

    /// Reads the packet in the `ip_len` bytes at `ip_at`, behind this link header.
    #[inline(always)]
    fn parse_at(buffer: Buffer, ip_at: usize, ip_len: usize, link: Link, ingress: Ingress) -> Frame {
        let raw = |body| Raw { buffer: Buffer(body), at: ip_at - link.len, len: link.len + ip_len };
        let Buffer(mut body) = buffer;
        let Body { memory, ip, .. } = &mut *body;
        let read = ip.read(memory.bytes(ip_at..ip_at + ip_len));
        if let Err(unfit) = read {
            return Frame::Other(raw(body), unfit);
        }
        if link.version.is_some_and(|version| version != body.ip.version) {
            return Frame::Other(raw(body), Unfit::BadVersion);
        }
        body.ip_at = ip_at as u32;
        body.trailer_len = (ip_len - body.ip.len as usize) as u16;
        (body.link_len, body.medium, body.announced) = (link.len as u8, link.medium, link.version);
        body.origin = Origin::new(&link, ingress);
        body.tag = 0;
        body.become_fresh(true);
        Frame::Ip(Packet(body))
    }

    /// Copies a frame into a buffer of the pool and reads it.
    ///
    /// # Errors
    /// Why there is no packet to work on.
    pub fn copy(bytes: &[u8], medium: Medium, ingress: Ingress, pool: &mut Pool) -> Result<Packet, NoPacket> {
        let link = Link::parse(medium, bytes).map_err(NoPacket::Unfit)?;
        // What lies behind the longest packet is padding; a packet that claims more does not parse.
        let bytes = bytes.get(..link.len + LEN_MAX + 1).unwrap_or(bytes);
        let ip_len = bytes.len() - link.len;
        let mut buffer = pool.lend(ip_len).ok_or(NoPacket::NoBuffer)?;
        buffer.put(HEADROOM - link.len, bytes);
        match Frame::parse(buffer, bytes.len(), link, ingress) {
            Frame::Ip(packet) => Ok(packet),
            Frame::Other(raw, unfit) => {
                pool.give(raw.into_buffer());
                Err(NoPacket::Unfit(unfit))
            }
        }
    }
}

impl Frame {
    /// The packet, if it is one.
    #[inline]
    pub fn packet(&self) -> Option<&Packet> {
        match self {
            Frame::Ip(packet) => Some(packet),
            Frame::Other(..) => None,
        }
    }

    /// Gives the buffer back.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        match self {
            Frame::Ip(packet) => packet.into_buffer(),
            Frame::Other(raw, _) => raw.into_buffer(),
        }
    }
}

impl Raw {
    /// The bytes of the frame.
    pub fn frame(&self) -> &[u8] {
        self.buffer.bytes(self.at..self.at + self.len)
    }

    /// Gives the buffer back.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Deref for Packet {
    type Target = Body;

    #[inline(always)]
    fn deref(&self) -> &Body {
        &self.0
    }
}

impl DerefMut for Packet {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

/// Reading a packet.
impl Body {
    /// What its IP header says.
    #[inline(always)]
    pub fn ip(&self) -> &Ip {
        &self.ip
    }

    /// The whole frame: link header, packet and, as long as nothing has changed, the link's padding.
    pub fn frame(&self) -> &[u8] {
        let start = self.ip_at();
        self.memory.bytes(start - self.link_len()..start + self.len() + usize::from(self.trailer_len))
    }

    /// The link header.
    pub fn link(&self) -> &[u8] {
        self.memory.bytes(self.ip_at() - self.link_len()..self.ip_at())
    }

    /// The IP header that every piece repeats, without a Fragment header.
    #[inline(always)]
    pub fn header(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + usize::from(self.ip.header_len))
    }

    /// The payload that fragmentation divides.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        self.memory.bytes(self.payload_at()..self.ip_at() + self.len())
    }

    /// The bytes of the packet from the IP header on.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes(self.ip_at()..self.ip_at() + self.len())
    }

    /// Length of the packet, IP header counted, in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.ip.len as usize
    }

    /// Never: a packet has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Which two hosts it is between, as its header says it.
    #[inline(always)]
    pub fn ends(&self) -> Ends {
        self.ip.ends(self.header())
    }

    /// Is it between these two?
    #[inline(always)]
    pub fn has_ends(&self, ends: &Ends) -> bool {
        self.ip.has_ends(self.header(), ends)
    }

    /// Source and destination.
    pub fn addresses(&self) -> (Address, Address) {
        self.ip.addresses(self.header())
    }

    /// The VLANs that it travels in.
    pub fn tags(&self) -> Tags {
        self.origin.tags()
    }

    /// What its link header says.
    pub fn link_header(&self) -> Link {
        Link {
            len: self.link_len(),
            medium: self.medium,
            version: self.announced,
            tags: self.origin.tags(),
            channel: self.origin.channel(),
        }
    }

    /// Where it came from: port and VLANs.
    #[inline(always)]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What its link header is.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// The station that sent the frame, where the link header names it.
    pub fn previous_hop(&self) -> Hop {
        Hop::of(self.medium, self.link())
    }

    /// The port that it came from.
    pub fn ingress(&self) -> Ingress {
        self.origin.ingress()
    }

    /// True while these are, byte for byte, the packet that came.
    pub fn is_as_received(&self) -> bool {
        self.as_received && self.cut.is_none() && self.train.is_none()
    }

    /// True for a piece of a datagram, and for a datagram that came in pieces.
    pub fn came_in_pieces(&self) -> bool {
        self.longest_piece > 0 || self.ip.fragment.is_some()
    }

    /// Length of the longest piece that a joined datagram or fragment came in, IP header counted, in bytes.
    pub fn longest_piece(&self) -> Option<usize> {
        (self.longest_piece > 0).then_some(self.longest_piece as usize)
    }

    /// Says that the packet came in pieces, the longest of which had so many bytes, IP header counted; none: that it came whole.
    pub fn set_longest_piece(&mut self, len: Option<usize>) {
        self.longest_piece = len.unwrap_or_default() as u32;
    }

    /// Says that the packet came in pieces with this identification, the longest of which had so many bytes, IP header counted:
    /// what a whole packet does not say itself.
    pub fn set_pieces(&mut self, longest_piece: usize, id: u32) {
        self.set_longest_piece(Some(longest_piece));
        if !self.ip.is_numbered() {
            self.ip.id = id;
        }
    }

    /// The map of the buffer: which eights of bytes a sparse packet holds.
    pub fn map(&self) -> &[u8] {
        self.memory.map()
    }

    /// Bytes of memory that this packet pins.
    pub fn pinned_len(&self) -> usize {
        self.memory.pinned_len()
    }

    /// Bytes of payload that its buffer takes.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    #[inline(always)]
    fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    /// Length of the link header, in bytes.
    #[inline(always)]
    pub fn link_len(&self) -> usize {
        usize::from(self.link_len)
    }

    #[inline(always)]
    fn payload_at(&self) -> usize {
        self.ip_at() + usize::from(self.ip.payload_at)
    }
}

/// What stands on the wire for this packet.
impl Body {
    /// The parts of the payload that leave in one piece each, where the packet is to be cut.
    #[inline]
    pub fn shares(&self) -> Option<Shares<'_>> {
        let cut = self.cut.as_ref()?;
        let map = (cut.content == Content::Sparse).then(|| self.map());
        Some(Shares::new(cut, self.ip.payload_len(), self.piece_header_lens(), map))
    }

    /// Length of the header of the piece that starts the datagram, and of the others, in bytes.
    #[inline]
    pub fn piece_header_lens(&self) -> [usize; 2] {
        self.ip.piece_header_lens(self.header())
    }

    /// Does it stand for itself alone?
    #[inline]
    pub fn is_single(&self) -> bool {
        self.cut.is_none() && self.train.is_none()
    }

    /// Packets on the wire.
    pub fn wire_count(&self) -> usize {
        match (self.cut, self.train) {
            (None, None) => 1,
            (None, Some(train)) => self.train_len().div_ceil(usize::from(train.segment_len).max(1)).max(1),
            (Some(_), _) => self.shares().map_or(1, |shares| shares.totals().0),
        }
    }

    /// Length of the longest packet on the wire, IP header counted, in bytes.
    pub fn wire_len(&self) -> usize {
        match (self.shares(), self.train) {
            (Some(shares), _) => {
                let [first, later] = self.piece_header_lens();
                shares.map(|share| share.len() + if share.start == 0 { first } else { later }).max().unwrap_or(0)
            }
            (None, Some(train)) => self.len() - self.train_len() + self.train_len().min(train.segment_len.into()),
            (None, None) => self.len(),
        }
    }

    /// Tells the length of each packet on the wire, IP header counted, in bytes.
    pub fn each_wire_len(&self, mut tell: impl FnMut(usize)) {
        if let Some(shares) = self.shares() {
            let [first, later] = self.piece_header_lens();
            shares.for_each(|share| tell(share.len() + if share.start == 0 { first } else { later }));
        } else {
            let payload_len = self.train_len();
            let segment_len = self.train.map_or(payload_len, |train| usize::from(train.segment_len)).max(1);
            let header_len = self.len() - payload_len;
            (0..self.wire_count()).for_each(|index| {
                tell(header_len + segment_len.min(payload_len - index * segment_len));
            });
        }
    }

    /// What the TCP header of a whole packet says.
    #[inline]
    pub fn tcp_facts(&self) -> Option<TcpFacts> {
        let upper = self.ip.upper.filter(|upper| upper.protocol == TCP && self.ip.fragment.is_none())?;
        TcpFacts::read(self.upper_bytes(upper))
    }

    /// Does it carry TCP?
    pub fn is_tcp(&self) -> bool {
        self.ip.upper.is_some_and(|upper| upper.protocol == TCP)
    }

    /// Bytes of payload of a train, which its segments share.
    pub fn train_len(&self) -> usize {
        let Some(upper) = self.ip.upper else { return 0 };
        match upper.protocol {
            TCP => tcp::payload_len(self.upper_bytes(upper)),
            UDP => udp::UdpHeader::parse(self.upper_bytes(upper)).map_or(0, |(_, payload)| payload.len()),
            _ => 0,
        }
    }
}

/// The transport checksum.
impl Body {
    /// Marks the checksum as half-filled where its field holds the pseudo-header's sum, as an offloading sender's
    /// packets are captured, and does not by chance cover the bytes. For ports that cannot tell, such as files.
    pub fn judge_checksum(&mut self) {
        let Some((field_at, upper)) = self.checksum_field() else { return };
        let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
        // Senders that leave the length to their card leave it out of the sum too.
        let without_len = pseudo_sum(self.addresses(), upper.protocol, 0);
        let half_filled = |sum: Sum| self.word(field_at) == sum.fold();
        let is_half = half_filled(half) || self.ip.length_missing && half_filled(without_len);
        if is_half && !(half + Sum::of(self.upper_bytes(upper))).is_right() {
            self.checksum = Checksum::Partial;
        }
    }

    /// Is its checksum half-filled, and one that can be finished?
    pub fn is_half_filled(&self) -> bool {
        self.checksum == Checksum::Partial && self.checksum_field().is_some()
    }

    /// Finishes a half-filled checksum; true where there was one.
    pub fn finish_checksum(&mut self) -> bool {
        if self.checksum != Checksum::Partial {
            return false;
        }
        let Some((field_at, upper)) = self.checksum_field() else { return false };
        self.set_word(field_at, 0);
        let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
        let sum = half + Sum::of(self.upper_bytes(upper));
        let checksum = if upper.protocol == UDP { udp::field(sum) } else { sum.checksum() };
        self.set_word(field_at, checksum);
        self.checksum = Checksum::Verified;
        self.as_received = false;
        true
    }

    /// Leaves the checksum of a packet to a card or kernel that finishes it, as it does for those of its own host: its field
    /// then holds the pseudo-header's sum. Says where transport header and field start, from the IP header on; nothing
    /// where there is no checksum that could be left, or where it may be wrong, which would be mended in silence.
    pub fn leave_checksum(&mut self) -> Option<(usize, usize)> {
        if self.checksum == Checksum::Unverified {
            return None;
        }
        let (field_at, upper) = self.checksum_field()?;
        if self.checksum == Checksum::Verified {
            let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
            self.set_word(field_at, half.fold());
            self.checksum = Checksum::Partial;
            self.as_received = false;
        }
        Some((usize::from(upper.at), field_at))
    }

    /// What the sum over a TCP or UDP packet with its checksum is wrong by; zero where it is right, where it is still to be
    /// finished, and where there is none.
    pub fn checksum_error(&self) -> Sum {
        match self.checksum_field() {
            Some((_, upper)) if self.checksum == Checksum::Unverified => {
                pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len())
                    + Sum::of(self.upper_bytes(upper))
            }
            _ => Sum::ZERO,
        }
    }

    /// Writes the length that an offloading sender left out; true where it had.
    pub fn finish_len(&mut self) -> bool {
        if !self.ip.length_missing {
            return false;
        }
        self.ip.length_missing = false;
        self.seal();
        if let Some(upper) = self.ip.upper
            && let Some(field_at) = udp::missing_len_at(upper.protocol, self.upper_bytes(upper))
        {
            let len = self.upper_bytes(upper).len() as u16;
            self.set_word(usize::from(upper.at) + field_at, len);
        }
        true
    }

    /// Would sealing its headers anew give the same checksums, bit for bit? 0 can be written in two ways.
    pub fn has_canonical_checksums(&self) -> bool {
        let Some(upper) = self.ip.upper else { return false };
        let field_at = usize::from(upper.at) + tcp::CHECKSUM_AT;
        // 0xFFFF is what UDP writes for 0, and what nothing else would.
        let is_canonical = upper.protocol == UDP || self.bytes().get(field_at..field_at + 2) != Some(&[0xFF, 0xFF]);
        is_canonical && self.ip.checksum_is_canonical(self.header())
    }

    /// Where the checksum field stands in the packet, of a whole TCP or UDP packet that has one.
    fn checksum_field(&self) -> Option<(usize, Upper)> {
        if self.ip.fragment.is_some() {
            return None;
        }
        let upper = self.ip.upper?;
        let within = match upper.protocol {
            TCP => tcp::checksum_at(self.upper_bytes(upper))?,
            UDP => udp::checksum_at(self.upper_bytes(upper), self.ip.length_missing)?,
            _ => return None,
        };
        Some((usize::from(upper.at) + within, upper))
    }

    /// The bytes behind the IP headers.
    pub fn upper_bytes(&self, upper: Upper) -> &[u8] {
        self.bytes().get(usize::from(upper.at)..).unwrap_or_default()
    }

    pub(crate) fn word(&self, at: usize) -> u16 {
        match self.bytes().get(at..at + 2) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => panic!("a header field lies in its packet"),
        }
    }

    pub(crate) fn set_word(&mut self, at: usize, word: u16) {
        self.memory.put(self.ip_at as usize + at, &word.to_be_bytes());
    }

    /// Is no longer what came.
    pub(crate) fn touch(&mut self) {
        self.as_received = false;
    }
}

/// Joining: a run is a packet that still has holes.
impl Packet {
    /// Starts a run in `buffer` with the headers of `piece`, the first that came.
    pub fn open(piece: &Packet, buffer: Buffer) -> Packet {
        let Buffer(mut run) = buffer;
        run.trailer_len = 0;
        run.origin = piece.origin;
        run.tag = piece.tag;
        run.become_fresh(false);
        run.take_headers(piece);
        Packet(run)
    }

    /// Has the processor fetch what is known of it.
    #[inline]
    pub fn foresee(&self) {
        lanes::prefetch_value(&*self.0);
    }

    /// Says of a packet that nobody received it.
    pub(crate) fn made_here(mut self) -> Packet {
        self.as_received = false;
        self
    }

    /// Gives the buffer back.
    #[inline(always)]
    pub fn into_buffer(self) -> Buffer {
        Buffer(self.0)
    }

    /// Its frame, as one that carries no packet.
    pub fn into_raw(self) -> Raw {
        let at = self.ip_at() - self.link_len();
        let len = self.frame().len();
        Raw { at, len, buffer: self.into_buffer() }
    }
}

/// What is done to a run.
impl Body {
    /// Takes over the headers of the piece that starts the datagram (RFC 791 section 3.2, R009; RFC 8200 section 4.5,
    /// R093).
    pub fn take_headers(&mut self, piece: &Packet) {
        let header_len = usize::from(piece.ip.header_len);
        self.ip = piece.ip.without_fragment_header();
        self.ip_at = (HEADROOM - header_len) as u32;
        (self.link_len, self.medium, self.announced) = (piece.link_len, piece.medium, piece.announced);
        let (start, end) = (piece.ip_at() - piece.link_len(), piece.ip_at() + header_len);
        let front = self.memory.bytes_mut(HEADROOM - (end - start)..HEADROOM);
        lanes::copy(front, piece.memory.bytes(start..end));
    }

    /// The place of the `len` bytes from `offset` on in the datagram.
    #[inline(always)]
    pub fn laid_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(HEADROOM + offset..HEADROOM + offset + len)
    }

    /// The bytes that are laid from `offset` on.
    pub fn laid(&self, offset: usize, len: usize) -> &[u8] {
        self.memory.bytes(HEADROOM + offset..HEADROOM + offset + len)
    }

    /// The map of the buffer, to be changed.
    pub fn map_mut(&mut self) -> &mut [u8] {
        self.memory.map_mut()
    }

    /// Moves a run, of which `laid_len` bytes are laid, to a larger buffer, and returns the smaller one.
    pub fn grow(&mut self, mut larger: Buffer, laid_len: usize) -> Buffer {
        let start = self.ip_at() - self.link_len();
        larger.put(start, self.memory.bytes(start..HEADROOM + laid_len));
        larger.map_mut().fill(0);
        if let Some((front, _)) = larger.map_mut().split_at_mut_checked(self.memory.map().len()) {
            front.copy_from_slice(self.memory.map());
        }
        core::mem::swap(&mut self.memory, &mut larger.0.memory);
        larger
    }

    /// Makes a run the whole datagram of `payload_len` bytes, which came in pieces of at most `longest_piece` bytes; 0: it came
    /// whole.
    pub fn close(&mut self, payload_len: usize, ecn: Ecn, dont_fragment: bool, longest_piece: u32) {
        self.ip.len = (usize::from(self.ip.header_len) + payload_len) as u32;
        self.ip.ecn = ecn;
        self.ip.dont_fragment = dont_fragment;
        self.ip.fragment = None;
        self.longest_piece = longest_piece;
        self.seal_as(None);
    }

    /// Makes a run that never completed a packet with holes, up to `payload_len` bytes long: it leaves by a sparse
    /// cut, as fragments that carry what came. `more`: is the datagram's end still missing?
    pub fn release(&mut self, payload_len: usize, more: bool, ecn: Ecn, cut: Cut) {
        self.ip.len = (usize::from(self.ip.header_len) + payload_len) as u32;
        if let Some(fragment) = &mut self.ip.fragment {
            *fragment = Fragment { offset: 0, more, ..*fragment };
        }
        self.ip.ecn = ecn;
        self.seal();
        self.cut = Some(cut);
    }

    /// Takes the Fragment header out of an atomic fragment, which is a whole datagram (RFC 6946 section 4).
    pub fn make_whole(&mut self) {
        let header_len = usize::from(self.ip.header_len);
        let moved_by = usize::from(self.ip.payload_at) - header_len;
        let front = self.ip_at() - self.link_len();
        let end = self.ip_at() + header_len;
        self.memory.bytes_mut(front..end + moved_by).copy_within(..end - front, moved_by);
        self.ip_at += moved_by as u32;
        self.trailer_len = 0;
        let payload_len = self.ip.payload_len();
        self.ip = self.ip.without_fragment_header();
        // Of IPv6 only pieces have one (RFC 8200 section 4.5).
        self.ip.id = 0;
        self.close(payload_len, self.ip.ecn, self.ip.dont_fragment, 0);
    }

    /// Takes away what stands behind the packet in its frame, where both together are longer than this, in bytes.
    #[inline]
    pub fn trim(&mut self, len_max: usize) {
        if self.len() + usize::from(self.trailer_len) > len_max {
            self.trailer_len = 0;
        }
    }

    /// Puts another link header in front of the packet; the link's padding goes.
    ///
    /// # Panics
    /// Where it is longer than [`LINK_LEN_MAX`].
    pub fn relink(&mut self, medium: Medium, header: &[u8]) {
        assert!(header.len() <= LINK_LEN_MAX, "a link header fits in front of its packet");
        let start = self.ip_at() - header.len();
        self.memory.put(start, header);
        (self.link_len, self.medium, self.announced) = (header.len() as u8, medium, None);
        self.trailer_len = 0;
        self.as_received = false;
    }

    /// Hops that it may still take: time to live, or hop limit.
    pub fn hops_left(&self) -> u8 {
        self.ip.hops_left(self.header())
    }

    /// Takes one of them, as a router does that passes it on (R038).
    pub fn take_hop(&mut self) {
        let (start, len) = (self.ip_at(), usize::from(self.ip.header_len));
        self.ip.take_hop(self.memory.bytes_mut(start..start + len));
        self.ip.shape = Shape::CHANGED;
        self.as_received = false;
    }

    /// Bytes that fit behind the packet in its buffer.
    pub fn room(&self) -> usize {
        (HEADROOM + self.capacity()).saturating_sub(self.ip_at() + self.len())
    }

    /// Moves the packet to a larger buffer, its IP header to where content starts, and returns the smaller one.
    pub fn move_to(&mut self, mut larger: Buffer) -> Buffer {
        let (start, end) = (self.ip_at() - self.link_len(), self.ip_at() + self.len());
        larger.put(HEADROOM - self.link_len(), self.memory.bytes(start..end));
        self.ip_at = HEADROOM as u32;
        core::mem::swap(&mut self.memory, &mut larger.0.memory);
        larger
    }

    /// Is another packet's link header, byte for byte, the same?
    #[inline]
    pub fn shares_link(&self, other: &Packet) -> bool {
        self.link_len == other.link_len && (self.link_len == 0 || self.link() == other.link())
    }

    /// The `len` bytes of memory behind the packet's payload, if there are as many.
    #[inline]
    pub fn behind(&self, len: usize) -> Option<&[u8]> {
        let end = self.ip_at() + self.len();
        (len <= self.room()).then(|| self.memory.bytes(end..end + len))
    }

    /// The `len` bytes of memory behind the packet's payload.
    #[inline]
    pub fn behind_mut(&mut self, len: usize) -> &mut [u8] {
        let end = self.ip_at() + self.len();
        self.memory.bytes_mut(end..end + len)
    }

    /// Takes the `len` bytes behind the payload into the packet; the headers wait to be sealed.
    #[inline]
    pub fn lengthen(&mut self, len: usize) {
        self.ip.len += len as u32;
        self.trailer_len = 0;
        self.as_received = false;
    }

    /// Puts the payload of the packet that follows behind this one's; the headers wait to be sealed.
    pub fn append(&mut self, payload: &[u8]) {
        self.behind_mut(payload.len()).copy_from_slice(payload);
        self.lengthen(payload.len());
    }

    /// Could the headers of this fragment stand for the one that follows it in its datagram, too? Where they could not,
    /// joining the two would lose what the second says.
    pub fn shares_piece_header(&self, next: &Packet) -> bool {
        self.link() == next.link() && self.ip.shares_piece_header(self.header(), next.header())
    }

    /// Makes a run of fragments, whose payloads were appended to the first one's, one fragment, or the whole datagram:
    /// `more` is what the last one said, `longest_piece` the length of the longest, IP header counted, in bytes. IPv4 only.
    pub fn seal_pieces(&mut self, more: bool, longest_piece: u32) {
        let fragment = self.ip.fragment.map(|fragment| Fragment { more, ..fragment });
        self.ip.fragment = fragment.filter(|fragment| fragment.offset > 0 || more);
        self.longest_piece = longest_piece;
        self.seal();
    }

    /// Makes a run of segments or datagrams, which share the headers of the first, one train. Its payload starts at
    /// `payload_at`, in bytes from the IP header; `last` is what the last segment said, `payload_sum` the sum of all payload.
    pub fn seal_train(&mut self, last: Option<&TcpPart>, payload_at: u16, payload_sum: Sum, train: Train) {
        let Some(upper) = self.ip.upper else { panic!("a train has a transport header") };
        let (start, len) = (self.ip_at(), self.len());
        let pseudo = pseudo_sum(self.addresses(), upper.protocol, len - usize::from(upper.at));
        let id = self.ip.id;
        let headers = self.memory.bytes_mut(start..start + len);
        let Some((ip_header, rest)) = headers.split_at_mut_checked(upper.at.into()) else {
            panic!("a packet holds its headers")
        };
        let version = self.ip.version;
        Ip::stamp_segment(version, ip_header, Ip::sum_of_rest(version, ip_header), rest.len(), id);
        match last {
            Some(last) => {
                let header_len = usize::from(payload_at - upper.at);
                tcp::seal(fitting(rest, header_len), last, pseudo + payload_sum);
            }
            None => udp::seal(rest, pseudo + payload_sum),
        }
        self.checksum = Checksum::Verified;
        self.as_received = false;
        self.train = Some(train);
    }

    /// Writes lengths, marks and checksum of the header.
    fn seal(&mut self) {
        self.seal_as(self.ip.fragment);
    }

    /// Does the same, where it is known which part of a datagram the packet is.
    #[inline]
    fn seal_as(&mut self, fragment: Option<Fragment>) {
        let (start, len) = (self.ip_at(), usize::from(self.ip.header_len));
        self.ip.seal(self.memory.bytes_mut(start..start + len), fragment);
        self.ip.shape = Shape::CHANGED;
        self.trailer_len = 0;
        self.as_received = false;
    }
}

/// A header for the pieces of one packet: what they have in common is read once, what differs is written for each (G3).
#[derive(Debug)]
pub struct Template<'a> {
    ip: &'a Ip,
    /// Link and IP header of the packet.
    front: &'a [u8],
    link_len: usize,
    /// Length of a header that repeats all of the packet's, and of one that does not start its datagram.
    lens: [usize; 2],
    /// Do pieces that do not start their datagram repeat all of it, too?
    repeats_all: bool,
    common: Common,
    dont_fragment: bool,
}

impl<'a> Template<'a> {
    /// The header of the pieces of `packet`.
    #[inline]
    pub fn new(packet: &'a Packet) -> Template<'a> {
        let link_len = packet.link_len();
        let [_, later_len] = packet.piece_header_lens();
        let front =
            packet.memory.bytes(packet.ip_at() - link_len..packet.ip_at() + usize::from(packet.ip.header_len));
        // What came in pieces with DF leaves in pieces with DF.
        let dont_fragment = packet.ip.dont_fragment && packet.longest_piece().is_some();
        let lens = [front.len() + packet.ip.fragment_header_len(), link_len + later_len];
        let [whole, later] = lens;
        Template {
            // What is left out may be made up for by padding.
            repeats_all: whole == later && !packet.ip.keeps_options_to_the_first(packet.header()),
            ip: &packet.ip,
            front,
            link_len,
            lens,
            common: packet.ip.common(packet.header(), dont_fragment),
            dont_fragment,
        }
    }

    /// Writes the link and IP header of the piece with this place and `payload_len` bytes of payload to the front of
    /// `room`, and returns it.
    ///
    /// # Panics
    /// Where it does not fit.
    #[inline]
    pub fn stamp<'r>(&self, room: &'r mut [u8], payload_len: usize, fragment: Fragment) -> &'r [u8] {
        let [whole, _] = self.lens;
        if !self.repeats_all && fragment.offset > 0 {
            return self.stamp_later(room, payload_len, fragment);
        }
        let header = fitting(room, whole);
        let (front, _) = header.split_at_mut(self.front.len());
        lanes::copy(front, self.front);
        self.ip.stamp(header.get_mut(self.link_len..).unwrap_or_default(), self.common, payload_len, fragment);
        header
    }

    /// What follows the first piece carries fewer options (RFC 791 section 3.1, R004).
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

/// The front of `room`.
#[inline]
pub(crate) fn fitting(room: &mut [u8], len: usize) -> &mut [u8] {
    match room.get_mut(..len) {
        Some(header) => header,
        None => panic!("a header fits where it is written"),
    }
}

/// What only some packets are.
impl Body {
    /// True where a first piece lacks headers that it must hold (RFC 7112 section 5, R083).
    pub fn lacks_headers(&self) -> bool {
        self.ip.fragment.is_some() && self.ip.starts() && usize::from(self.ip.headers_end) > self.len()
    }

    /// Bytes of headers that stand in the payload and must all go into the first piece (RFC 7112 section 5, R082).
    pub fn headers_in_payload_len(&self) -> usize {
        usize::from(self.ip.headers_end).min(self.len()).saturating_sub(usize::from(self.ip.payload_at))
    }

    /// True for neighbour discovery, which may never come in fragments (RFC 6980 section 5, R103).
    pub fn is_neighbour_discovery(&self) -> bool {
        self.ip.upper.is_some_and(|upper| {
            let kind = self.upper_bytes(upper).first();
            upper.protocol == ICMPV6 && kind.is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
        })
    }
}

/// ICMPv6 types of neighbour discovery and its certificates (RFC 4861 section 4, RFC 3971 section 6.4).
const NEIGHBOUR_DISCOVERY: [u8; 7] = [133, 134, 135, 136, 137, 148, 149];
