//! Fragments of one datagram, in its reassembly buffer -> the datagram.
//!
//! A run combines the payload, the holes and the header summary of one datagram. Keys, time-outs and eviction are
//! left to [`Datagrams`](super::datagrams::Datagrams).

use super::ecn::EcnSeen;
use super::holes::Holes;
use super::may_join::{DatagramKey, conflict, fault};
use super::pairs::IdEpoch;
use crate::fragment::WirePackets;
use crate::ledger::{Reason, Tally};
use crate::output::Next;
use crate::segment::WirePacket;
use crate::sink::PayloadSink;
use core::ops::Range;
use packet::{
    Buffer, Content, Fragment, FragmentFingerprint, Fragmentation, Frame, HEADROOM, HeaderLayout, Packet, Split,
    UNIT,
};

/// An incomplete datagram.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Run {
    holes: Holes,
    seen: Arrivals,
    fragments: u32,
    packet: Packet,
    epoch: IdEpoch,
    /// Payload length of the fragment at offset 0, in bytes. `None` before this fragment was received.
    first_len: Option<u16>,
    /// Whether the datagram is reassembled in transit, hop by hop.
    is_on_path: bool,
}

/// A summary of the headers of a datagram's fragments.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Arrivals {
    /// The fingerprint of the latest fragment with MF, and the limit `room`. A fragment with an equal fingerprint
    /// that ends at or below `room` needs no further checks, and fits the buffer.
    shape: FragmentFingerprint,
    room: u32,
    longest: u32,
    longest_dont_fragment: u32,
    ecn: EcnSeen,
}

/// The result of the fast path for a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The fragment was not taken: it needs the slow path.
    Not,
    /// The fragment was taken.
    Fragment,
    /// The fragment was taken, and the datagram is complete.
    Last,
}

/// The expected lengths of a datagram's next fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) front: HeaderLayout,
    /// Payload length of each fragment except the last, in bytes.
    pub(super) step: usize,
    /// Payload length of the datagram in bytes, as far as it is known.
    pub(super) len: usize,
}

/// The lengths of a complete datagram, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastComplete {
    len: u32,
    /// Length of its longest fragment, in bytes.
    longest: u32,
    link_len: u16,
    header_len: u16,
}

impl Run {
    /// Opens a datagram in `buffer` with the first received fragment.
    #[inline(always)]
    pub(super) fn open(
        fragment: &Packet,
        frag: Fragment,
        buffer: Buffer,
        epoch: IdEpoch,
        is_on_path: bool,
        sink: &mut impl PayloadSink,
    ) -> Run {
        let range = range_of(fragment, frag);
        let (mut packet, mut holes) = (Packet::open(fragment, buffer), Holes::ALL);
        holes.fill(|| packet.map_mut(), &range, frag.more);
        sink.place(packet.payload_mut(range.start, range.len()), fragment.payload());
        let seen = Arrivals::NOTHING.and(fragment, frag, &packet);
        let first_len = (range.start == 0).then_some(range.len() as u16);
        Run { holes, seen, fragments: 1, packet, epoch, first_len, is_on_path }
    }

    /// Takes a fragment on the fast path, if there is room in the buffer. The fragment must be next in order, or
    /// fill a hole behind the fragment at offset 0.
    #[inline(always)]
    pub(super) fn append_fast(
        &mut self,
        key: &DatagramKey,
        fragment: &Packet,
        sink: &mut impl PayloadSink,
    ) -> Outcome {
        let ip = fragment.ip();
        let Some(frag) = ip.fragment else { return Outcome::Not };
        let range = range_of(fragment, frag);
        let is_like_the_last = self.seen.shape.is_same(ip.shape);
        if !key.is_of(fragment, frag, is_like_the_last) || range.end > self.seen.room as usize {
            return Outcome::Not;
        }
        if !is_like_the_last && fault(fragment, frag).is_some() {
            return Outcome::Not;
        }
        // The fragment at offset 0 replaces the headers.
        let Run { holes, packet, .. } = self;
        if range.start == 0 || !holes.claim(|| packet.map_mut(), &range, frag.more) {
            return Outcome::Not;
        }
        sink.place(self.packet.payload_mut(range.start, range.len()), fragment.payload());
        self.fragments += 1;
        if !is_like_the_last {
            self.seen = self.seen.and(fragment, frag, &self.packet);
        }
        if self.holes.is_whole() { Outcome::Last } else { Outcome::Fragment }
    }

    /// Takes several fragments of payload length `len`, with headers like the last one's, that are in order and in
    /// their slots. `count` gets the maximum number, and returns the available number.
    pub(super) fn take_more(&mut self, len: usize, count: impl FnOnce(usize) -> usize) -> usize {
        let Some(next) = self.holes.next() else { return 0 };
        let Some(count_max) = (self.seen.room as usize).saturating_sub(next).checked_div(len) else { return 0 };
        let count = count(count_max);
        self.holes.extend(next + len * count, true);
        self.fragments += count as u32;
        count
    }

    /// Returns the conflict between a fragment and this datagram. `None` if the fragment fills a hole.
    pub(super) fn conflict_with(&self, fragment: &Packet, frag: Fragment) -> Option<Reason> {
        let range = range_of(fragment, frag);
        let fit = self.holes.classify(self.packet.bitmap(), &range, frag.more);
        conflict(fit, || self.packet.laid(range.start, range.len()) == fragment.payload())
    }

    /// Takes a fragment. The fragment must fill a hole.
    #[inline(always)]
    pub(super) fn take(&mut self, fragment: &Packet, frag: Fragment, sink: &mut impl PayloadSink) {
        let range = range_of(fragment, frag);
        if range.start == 0 {
            if !self.packet.ip().starts() {
                self.packet.copy_headers_from(fragment);
            }
            self.first_len = Some(range.len() as u16);
        }
        let Run { holes, packet, .. } = self;
        holes.fill(|| packet.map_mut(), &range, frag.more);
        sink.place(self.packet.payload_mut(range.start, range.len()), fragment.payload());
        self.fragments += 1;
        self.seen = self.seen.and(fragment, frag, &self.packet);
    }

    /// Returns the payload length that the buffer would need for a fragment, in bytes. `None` if the buffer is
    /// large enough.
    pub(super) fn lacks(&self, fragment: &Packet, frag: Fragment) -> Option<usize> {
        let end = range_of(fragment, frag).end;
        (end > self.packet.capacity()).then_some(end)
    }

    /// Moves the datagram to a larger buffer. Returns the smaller buffer.
    pub(super) fn grow(&mut self, larger: Buffer) -> Buffer {
        self.packet.grow(larger, self.holes.top())
    }

    /// Whether the datagram is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.holes.is_whole()
    }

    /// Whether the fragments of the datagram arrive in order, so that it belongs in the reserve (C31).
    pub(super) fn is_promising(&self) -> bool {
        self.fragments >= RESERVE_FRAGMENTS && self.holes.in_order()
    }

    /// Whether the complete datagram would exceed the maximum of its IP length field, given the header of its first
    /// fragment (rel:A01, R069).
    pub(super) fn is_oversize(&self) -> bool {
        self.first_len.is_some() && self.holes.top() > self.packet.ip().payload_len_max()
    }

    /// Returns the counts of the datagram's host pair at the start of the datagram.
    #[inline(always)]
    pub(super) fn epoch(&self) -> &IdEpoch {
        &self.epoch
    }

    /// Returns the headers and the received payload.
    pub(super) fn packet(&self) -> &Packet {
        &self.packet
    }

    pub(super) fn into_packet(self) -> Packet {
        self.packet
    }

    /// Returns the number of received payload bytes.
    pub(super) fn held_len(&self) -> usize {
        self.holes.held_len()
    }

    pub(super) fn tally(&self) -> Tally {
        Tally::new(self.fragments as usize, self.holes.held_len())
    }

    /// Returns the offset of the next fragment in order. `None` after a reordering, or after the last fragment.
    #[inline]
    pub(super) fn next(&self) -> Option<usize> {
        self.holes.next()
    }

    /// Returns the memory of this range of the datagram's payload.
    pub(super) fn place_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.packet.payload_mut(range.start, range.len())
    }

    /// Returns the memory for a fragment's payload, if the buffer has room.
    #[inline]
    pub(super) fn place_of(&self, fragment: &Packet) -> Option<&[u8]> {
        let range = range_of(fragment, fragment.ip().fragment?);
        (range.end <= self.packet.capacity()).then(|| self.packet.laid(range.start, range.len()))
    }

    /// Returns the expected rest of a datagram whose fragments arrived in order. `predicted_len` is the predicted
    /// payload length of the datagram in bytes, 0 if unknown.
    pub(super) fn expected(&self, predicted_len: usize) -> Option<Expected> {
        let next = self.holes.next()?;
        let [first, later] = self.packet.fragment_header_lens();
        let front = HeaderLayout { link_len: self.packet.link_len(), header_len: first };
        let step = (self.seen.longest as usize).checked_sub(first).filter(|_| first == later)?;
        let room = self.seen.room as usize;
        let len = match predicted_len {
            // The length of the datagram is unknown.
            predicted if predicted <= next => next + room.saturating_sub(next) / step.max(1) * step,
            predicted => predicted.min(room),
        };
        Some(Expected { front, step, len })
    }

    /// Converts the run to the complete datagram.
    ///
    /// # Errors
    /// The reason why the datagram is dropped instead.
    pub(super) fn close(&mut self) -> Result<LastComplete, Reason> {
        let ecn = self.seen.ecn.joined(self.packet.ip().ecn).ok_or(Reason::FragEcnMix)?;
        let len = self.holes.held_len();
        // If the longest fragment arrived with DF, the datagram must not be fragmented to a smaller size (rel:C8).
        let dont_fragment = self.has_dont_fragment();
        self.packet.close(len, ecn, dont_fragment, self.seen.longest);
        if self.stays_fragmented() {
            self.packet.fragmentation = Some(self.fragmentation(self.seen.longest as u16, Content::Complete));
        }
        if self.packet.is_neighbour_discovery() {
            return Err(Reason::FragNeighbour);
        }
        let (link_len, header_len) = (self.packet.link_len() as u16, self.packet.ip().header_len);
        Ok(LastComplete { len: len as u32, longest: self.seen.longest, link_len, header_len })
    }

    /// Converts an incomplete datagram to a packet that is sent as fragments of the received bytes.
    pub(super) fn release(&mut self, mtu: u16) {
        let content = if self.holes.in_order() { Content::Complete } else { Content::Sparse };
        let cut = self.fragmentation(mtu, content);
        let ecn = self.seen.ecn.released(self.packet.ip().ecn);
        self.packet.release(self.holes.top(), !self.holes.has_end(), ecn, cut);
    }

    /// Whether the datagram's fragments must not become longer. True in transit for packets that routers must not
    /// fragment (rel:C8, R087).
    fn stays_fragmented(&self) -> bool {
        self.is_on_path && (self.has_dont_fragment() || !self.packet.ip().may_grow_on_path())
    }

    /// Whether the longest fragment arrived with DF.
    fn has_dont_fragment(&self) -> bool {
        self.seen.longest_dont_fragment == self.seen.longest
    }

    /// Returns a fragmentation into fragments of at most `mtu` bytes. If the datagram must stay fragmented, no
    /// fragment exceeds the longest received one.
    fn fragmentation(&self, mtu: u16, content: Content) -> Fragmentation {
        let header_len = self.packet.fragment_header_lens().into_iter().max().unwrap_or_default();
        let longest = (self.seen.longest as usize).max(header_len + UNIT) as u16;
        let mtu = if self.stays_fragmented() { mtu.min(longest) } else { mtu };
        Fragmentation { mtu, id: self.packet.ip().id, split: Split::Max, content }
    }

    /// Rebuilds the first fragment of the datagram, to be quoted in an ICMP error.
    pub(super) fn first_fragment(&mut self, out: &mut impl Next) -> Option<Packet> {
        let first_len = self.first_len?;
        let [header_len, _] = self.packet.fragment_header_lens();
        self.release((header_len + usize::from(first_len)) as u16);
        let mut fragments = WirePackets::of(&self.packet);
        let WirePacket { header, payload } = fragments.next()?;
        let link = self.packet.link_header();
        let frame_len = header.len() + payload.len();
        let mut buffer = out.pool().allocate(frame_len - link.len)?;
        buffer.put(HEADROOM - link.len, header);
        buffer.put(HEADROOM - link.len + header.len(), payload);
        match Frame::parse(buffer, frame_len, link, self.packet.ingress()) {
            Frame::Ip(packet) => Some(packet),
            Frame::Other(..) => panic!("a piece that we cut parses"),
        }
    }
}

impl Arrivals {
    const NOTHING: Arrivals = Arrivals {
        shape: FragmentFingerprint::CHANGED,
        room: 0,
        longest: 0,
        longest_dont_fragment: 0,
        ecn: EcnSeen::NONE,
    };

    /// Returns the summary including this fragment. A fragment with an equal fingerprint would not change the
    /// summary.
    #[inline(always)]
    fn and(mut self, fragment: &Packet, frag: Fragment, run: &Packet) -> Arrivals {
        let ip = fragment.ip();
        self.ecn.note(ip.ecn);
        self.longest = self.longest.max(ip.len);
        if ip.dont_fragment {
            self.longest_dont_fragment = self.longest_dont_fragment.max(ip.len);
        }
        // No later fragment has the fingerprint of the datagram's last fragment.
        if frag.more {
            self.shape = ip.shape;
            let len_max = run.ip().payload_len_max().min(ip.payload_len_max());
            self.room = run.capacity().min(len_max) as u32;
        }
        self
    }
}

impl LastComplete {
    /// Returns the expected fragments of a new datagram like this one.
    pub(super) fn expected_again(self) -> Option<Expected> {
        let LastComplete { len, longest, link_len, header_len } = self;
        let header_len = usize::from(header_len);
        // The complete datagram has no Fragment header, but its fragments had one.
        let header_len = if header_len == V6_HEADER_LEN { header_len + V6_FRAGMENT_LEN } else { header_len };
        let step = (longest as usize).checked_sub(header_len)?;
        Some(Expected { front: HeaderLayout { link_len: link_len.into(), header_len }, step, len: len as usize })
    }
}

/// Returns the range of a fragment's payload in its datagram.
#[inline(always)]
fn range_of(fragment: &Packet, frag: Fragment) -> Range<usize> {
    let start = usize::from(frag.offset);
    start..start + fragment.ip().payload_len()
}

/// Number of consecutive fragments after which a datagram belongs in the reserve (C31).
const RESERVE_FRAGMENTS: u32 = 2;
/// Length of an IPv6 header, in bytes.
const V6_HEADER_LEN: usize = 40;
/// Length of an IPv6 Fragment header, in bytes.
const V6_FRAGMENT_LEN: usize = 8;
