//! Packets -> packets that fit a link: segmented, fragmented, dropped with an ICMP error, or unchanged.

use crate::fragment::WirePackets;
use crate::ip_id::Identifiers;
use crate::ledger::{Event, Reason, Tally};
use crate::output::{Next, Output};
use crate::reassembly::len_fault;
use crate::rules::{Mode, Toggle};
use crate::segment::WirePacket;
use packet::icmp::IcmpError;
use packet::{
    Checksum, Content, Fragmentation, Gso, Identifications, Maker, Packet, SegmentLimit, Split, Time, Version,
    may_be_segmented,
};

/// One packet -> many.
#[derive(Debug)]
pub struct Sizing {
    /// Longest packet that this side sends, in bytes, including the IP header.
    pub mtu: u16,
    /// The role of this side, which decides how DF and IP IDs are treated.
    pub role: Role,
    /// Size limit for TCP packets of unknown flows, in bytes, including the IP header. Packets of known flows carry
    /// their own [`SegmentLimit`].
    pub unknown_len_max: u16,
    /// How a payload is divided among fragments or segments.
    pub split: Split,
    /// Whether TCP packets that are too long are segmented. If not, they are fragmented or dropped as any other
    /// packet.
    pub segment: Toggle,
    /// Whether packets that are too long are fragmented. If not, a router drops them, and a source's packets stay
    /// unchanged.
    pub fragment: Toggle,
    /// Segment size of TCP GSO packets.
    pub gso_packets: SegmentSize,
    /// Whether this side or the port completes partial checksums.
    pub checksums: Checksums,
    /// IP IDs for UDP and ICMP datagrams with DF that are fragmented on the way nevertheless. `None`: these
    /// datagrams are dropped. Their own IDs cannot be kept, since a sender may choose any ID for datagrams that
    /// nobody fragments (RFC 6864 section 4.1).
    pub df_cut: Option<Identifiers>,
}

/// Segment size of outgoing TCP GSO packets. A GSO packet of several segments stays one in either case. A port with
/// GSO sends it whole; for any other port, [`WirePackets`](crate::WirePackets) writes out its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// The segment size that came, as far as it fits. For segments that must be given back byte for byte, and for a
    /// host's receive offload.
    Preserve,
    /// The longest that fits where both directions of the connection's handshake were seen, else the size that
    /// came. For a border between two packet sizes.
    ResizedWhereKnown,
    /// The longest that fits, for any receiver. For a host's own interface, and for packets that go to a file.
    Maximise,
}

impl SegmentSize {
    /// The segment size of a side with this mode of coalescing, or none, toward its own host or any other.
    pub fn of(coalesces: Option<Mode>, is_for_own_host: bool) -> SegmentSize {
        match (coalesces, is_for_own_host) {
            (Some(Mode::Resize), true) => SegmentSize::Maximise,
            (Some(Mode::Resize), false) => SegmentSize::ResizedWhereKnown,
            (Some(Mode::Reversible) | None, _) => SegmentSize::Preserve,
        }
    }
}

/// Where the partial checksums of senders with checksum offload are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// In this side, for a port that takes complete checksums only. That of a GSO packet stays partial: each of its
    /// [`WirePackets`] gets a new one.
    Complete,
    /// In the port: checksums stay partial, and no payload is summed for them. Only packets that leave in IP
    /// fragments get complete ones.
    Defer,
}

/// Whether the sender of a dropped packet gets an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IcmpReplies {
    Send,
    Suppress,
}

/// The role of a side toward its packets.
#[derive(Debug)]
pub enum Role {
    /// The source host's own interface: it fragments the host's datagrams whatever DF says, under IP IDs of its own
    /// (X1).
    Source(Identifiers),
    /// A router: packets that must not be fragmented are dropped, and their sender gets an ICMP error.
    Transit,
    /// Beside a kernel that forwards or delivers: the kernel fragments or drops, so packets stay as they came.
    /// Datagrams that were reassembled here and are too long leave in fragments again, whatever DF says. None is
    /// longer than the longest received one.
    Helper,
}

impl Sizing {
    /// Makes packets of at most `mtu` bytes, with every stage on, for a port that takes single packets.
    pub fn new(mtu: u16, role: Role) -> Sizing {
        Sizing {
            mtu,
            role,
            unknown_len_max: u16::MAX,
            split: Split::Max,
            segment: Toggle::On,
            fragment: Toggle::On,
            gso_packets: SegmentSize::Maximise,
            checksums: Checksums::Complete,
            df_cut: None,
        }
    }

    /// Takes a packet. If it fits, it is forwarded. Else it is marked for fragmentation or segmentation, or
    /// dropped.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if let Err((packet, reason)) = self.size(now, packet, out) {
            self.too_big(now, packet, reason, IcmpReplies::Send, out);
        }
    }

    /// Forwards a packet, divided where necessary.
    ///
    /// # Errors
    /// The packet, and why it can neither keep its length nor be divided.
    fn size(&mut self, now: Time, mut packet: Packet, out: &mut Output) -> Result<(), (Packet, Reason)> {
        finish_len(&mut packet, out);
        if packet.checksum == Checksum::Partial && self.checksums == Checksums::Complete {
            note_finished(&packet, out);
        }
        self.segment(&mut packet, out);
        if self.is_below_every_link(&packet) || self.leaves_to_kernel(&packet) {
            self.leave_alone(packet, out);
            return Ok(());
        }
        let has_holes = packet.fragmentation.is_some_and(|cut| cut.content == Content::Sparse);
        if has_holes || packet.wire_len() <= usize::from(self.mtu) {
            packet.trim(self.mtu.into());
            self.forward(packet, out);
            return Ok(());
        }
        // Fragments as long as the received ones may exceed this link's MTU.
        packet.fragmentation = None;
        if packet.gso.is_some() {
            self.split_into_packets(now, packet, out);
            return Ok(());
        }
        // No interface completes the checksum of a fragment, or of a packet that an ICMP error quotes.
        self.complete_checksum(&mut packet, out);
        match self.cut(now, &packet) {
            Ok(cut) => {
                match self.role {
                    _ if !packet.ip().dont_fragment => {}
                    Role::Source(_) => out.ledger.note(Event::FragmentedForHost, Tally::of(&packet)),
                    Role::Transit if packet.max_fragment_len().is_none() => {
                        out.ledger.note(Event::DfFragmented, Tally::of(&packet));
                    }
                    Role::Transit | Role::Helper => {}
                }
                packet.fragmentation = Some(cut);
                out.forward(packet);
                Ok(())
            }
            Err(reason) => Err((packet, reason)),
        }
    }

    /// Forwards a packet. Its checksum is completed where that is this side's task; segments of a GSO packet have
    /// their own.
    #[inline]
    fn forward(&self, mut packet: Packet, out: &mut Output) {
        let is_mine =
            packet.fragmentation.is_some() || packet.gso.is_none() && self.checksums == Checksums::Complete;
        if packet.checksum == Checksum::Partial && is_mine {
            self.complete_checksum(&mut packet, out);
        }
        out.forward(packet);
    }

    /// Completes a partial checksum. Counts it where it was not counted at its arrival.
    fn complete_checksum(&self, packet: &mut Packet, out: &mut Output) {
        if packet.complete_checksum() && self.checksums == Checksums::Defer {
            out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
        }
    }

    /// Whether the MTU is below that of every link of this IP version. Fragments of a packet then stay as they are,
    /// and only TCP is resized.
    pub(crate) fn is_below_every_link(&self, packet: &Packet) -> bool {
        self.mtu < MTU_OF_ALL && usize::from(self.mtu) < packet.ip().mtu_min()
    }

    /// Whether the kernel that forwards the packet has to decide. It gets the packet as it came.
    fn leaves_to_kernel(&self, packet: &Packet) -> bool {
        matches!(self.role, Role::Helper) && !packet.was_fragmented()
    }

    /// Longest TCP packet within the limits of this side and of the packet's receiver.
    #[inline]
    fn tcp_len_max(&self, packet: &Packet) -> u16 {
        self.mtu.min(packet.segment_limit.map_or(self.unknown_len_max, |limit| limit.len_max))
    }

    /// Whether the segments of a GSO packet may become longer than they came, toward a receiver with this limit.
    pub(crate) fn may_grow(&self, limit: Option<SegmentLimit>) -> bool {
        match self.gso_packets {
            SegmentSize::Preserve => false,
            SegmentSize::ResizedWhereKnown => limit.is_some_and(|limit| limit.may_grow),
            SegmentSize::Maximise => true,
        }
    }

    /// Sets the segment size of TCP packets: the longest that fits, unless a GSO packet's own size is preserved and
    /// fits.
    ///
    /// GSO packets are on no wire, so this fragments nothing that must not be fragmented, and DF stays (law 4).
    /// Datagrams of a UDP GSO packet keep their sizes. A GSO packet that stands for one packet becomes an ordinary
    /// one.
    fn segment(&self, packet: &mut Packet, out: &mut Output) {
        let len_max = usize::from(self.tcp_len_max(packet));
        let fits = packet.wire_len() <= len_max;
        if packet.gso.is_some_and(|gso| packet.gso_len() <= usize::from(gso.segment_len)) {
            packet.gso = None;
        }
        let stays = match packet.gso {
            // A sender's own segments are fragmented or dropped as they came. Segments of a run that was coalesced
            // here have IP IDs issued here.
            Some(gso) if self.segment == Toggle::Off && gso.maker == Maker::Sender => true,
            Some(_) => fits && !self.may_grow(packet.segment_limit),
            None => fits || self.segment == Toggle::Off,
        };
        if stays || !packet.is_tcp() || packet.fragmentation.is_some() || !is_divisible(packet) {
            return;
        }
        let payload_len = packet.gso_len();
        let room = len_max.saturating_sub(packet.len() - payload_len);
        if payload_len == 0 || room == 0 {
            return;
        }
        let segment_len = self.segment_len(payload_len, room);
        let (ids, maker) = packet.gso.map_or((Identifications::Rise, Maker::Gateway), |gso| (gso.ids, gso.maker));
        let before = Tally::of(packet);
        packet.gso = (payload_len > usize::from(segment_len)).then_some(Gso { segment_len, ids, maker });
        let after = Tally::of(packet);
        if before != after {
            out.ledger.note(Event::Resized, before);
            out.ledger.note(Event::Segments, after);
        }
    }

    /// Splits a GSO packet whose packets are too long into single packets. Each is fragmented or dropped alone; the
    /// sender gets one ICMP error at most.
    fn split_into_packets(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if self.checksums == Checksums::Defer {
            note_finished(&packet, out);
        }
        let mut sender = IcmpReplies::Send;
        take_singles(packet, out, |single, out| {
            if let Err((single, reason)) = self.size(now, single, out) {
                self.too_big(now, single, reason, sender, out);
                sender = IcmpReplies::Suppress;
            }
        });
    }

    fn segment_len(&self, payload_len: usize, room: usize) -> u16 {
        match self.split {
            Split::Max => payload_len.min(room) as u16,
            Split::Balanced => payload_len.div_ceil(payload_len.div_ceil(room)) as u16,
        }
    }

    fn too_big(&self, now: Time, packet: Packet, reason: Reason, sender: IcmpReplies, out: &mut Output) {
        match (&self.role, reason, sender) {
            (Role::Source(_) | Role::Helper, Reason::TooBig, _) => return self.leave_alone(packet, out),
            (_, Reason::TooBig, IcmpReplies::Send) => out.answer(now, IcmpError::TooBig { mtu: self.mtu }, &packet),
            _ => {}
        }
        let ended = Tally::of(&packet);
        out.retire(packet, ended, reason);
    }

    /// Forwards a packet whose length must not change here.
    fn leave_alone(&self, packet: Packet, out: &mut Output) {
        if packet.wire_len() > usize::from(self.mtu) {
            out.ledger.note(Event::LeftOversize, Tally::of(&packet));
        }
        self.forward(packet, out);
    }

    /// How a packet that is too long is fragmented, or why it is not.
    ///
    /// Packets that must not be fragmented in transit are dropped. Their sender is told the link's MTU (RFC 1191
    /// section 4, RFC 8200 section 4.5; R011, R086, R111).
    fn cut(&mut self, now: Time, packet: &Packet) -> Result<Fragmentation, Reason> {
        let cut =
            Fragmentation { mtu: self.mtu, id: packet.ip().id, split: self.split, content: Content::Complete };
        if matches!(self.role, Role::Helper) {
            let mtu = packet.max_fragment_len().ok_or(Reason::TooBig)?;
            return Ok(Fragmentation { mtu: mtu.min(u16::MAX.into()) as u16, ..cut });
        }
        if self.fragment == Toggle::Off {
            return Err(Reason::TooBig);
        }
        if matches!(self.role, Role::Transit) && packet.ip().dont_fragment {
            // A datagram that was fragmented may leave in fragments, none longer than the longest received one.
            let mtu = packet.max_fragment_len().filter(|wire_packet_len| *wire_packet_len <= usize::from(self.mtu));
            if let Some(mtu) = mtu {
                return Ok(Fragmentation { mtu: mtu as u16, ..cut });
            }
            let fits = packet.headers_in_payload_len() <= self.room(packet);
            let identifiers = self.df_cut.as_mut().filter(|_| fits && may_be_cut_despite_df(packet));
            let id = identifiers.ok_or(Reason::TooBig)?.next(now, packet).ok_or(Reason::NoIdentifier)?;
            return Ok(Fragmentation { id, ..cut });
        }
        // Its fragments would end beyond the longest datagram, or between two units of its offsets.
        if let Some(reason) = packet.ip().fragment.and_then(|fragment| len_fault(packet.ip(), fragment)) {
            return Err(reason);
        }
        if packet.headers_in_payload_len() > self.room(packet) {
            return Err(Reason::Uncuttable);
        }
        let id = match &mut self.role {
            // Fragments of a fragment belong to the other fragments of their datagram.
            Role::Source(identifiers) if packet.ip().fragment.is_none() => identifiers.next(now, packet),
            _ => Some(packet.ip().id),
        };
        let id = id.ok_or(Reason::NoIdentifier)?;
        Ok(Fragmentation { id, ..cut })
    }

    /// Payload that fits into the first fragment, in bytes.
    fn room(&self, packet: &Packet) -> usize {
        let [first, _] = packet.fragment_header_lens();
        usize::from(self.mtu).saturating_sub(first) / packet::UNIT * packet::UNIT
    }
}

/// Whether a packet can be divided into segments that repeat its header. Runs coalesced here were checked before.
fn is_divisible(packet: &Packet) -> bool {
    packet.gso.is_some_and(|gso| gso.maker == Maker::Gateway) || may_be_segmented(packet)
}

/// Passes on each packet that this one has on the wire, as a packet of its own. A packet that gets no buffer is
/// dropped.
pub(crate) fn take_singles(packet: Packet, out: &mut Output, mut take: impl FnMut(Packet, &mut Output)) {
    let mut wire_packets = WirePackets::of(&packet);
    while let Some(wire_packet) = wire_packets.next() {
        match wire_packet.to_packet(&packet, &mut out.pool) {
            Some(single) => take(single, out),
            None => out.ledger.retire(Reason::NoBuffer, lost(&wire_packet, &packet)),
        }
    }
    out.recycle(packet);
}

/// The tally of a packet that got no buffer.
fn lost(wire_packet: &WirePacket<'_>, of: &Packet) -> Tally {
    let header_len = match of.fragmentation {
        Some(_) => wire_packet.header.len(),
        None => of.link().len() + usize::from(of.ip().payload_at),
    };
    Tally::new(1, wire_packet.frame_len() - header_len)
}

/// Whether it is a whole IPv4 datagram whose sender is not harmed by a cleared DF. TCP senders are told instead,
/// and send shorter segments.
fn may_be_cut_despite_df(packet: &Packet) -> bool {
    let ip = packet.ip();
    let is_datagram = [packet::ip::UDP, packet::ip::ICMP].contains(&ip.protocol);
    ip.version == Version::V4 && ip.fragment.is_none() && packet.max_fragment_len().is_none() && is_datagram
}

/// Every link of either version takes packets of this many bytes (RFC 8200 section 5).
const MTU_OF_ALL: u16 = 1_280;

/// Writes the length that a sender left to segmentation offload. A checksum that lacks the length gets it too.
#[inline]
fn finish_len(packet: &mut Packet, out: &mut Output) {
    if !packet.finish_len() {
        return;
    }
    out.ledger.note(Event::LengthCompleted, Tally::of(packet));
    note_finished(packet, out);
    packet.complete_checksum();
}

/// Counts a partial checksum that is completed, if there is one: here, or on the way out, in each packet of a GSO
/// packet.
fn note_finished(packet: &Packet, out: &mut Output) {
    if packet.is_partial() {
        out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
    }
}
