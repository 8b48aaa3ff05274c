//! Packets -> packets that fit a link: segmented, fragmented, dropped with an ICMP error, or unchanged.
//!
//! This stage only decides how a packet is divided. The division itself is left to [`WirePackets`], during
//! transmission.

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

/// Divides packets that exceed the MTU of a side.
#[derive(Debug)]
pub struct Sizing {
    /// The MTU of this side, in bytes, including the IP header.
    pub mtu: u16,
    /// The role of this side, which decides how DF and IP IDs are treated.
    pub role: Role,
    /// Size limit for TCP packets of unknown flows, in bytes, including the IP header. Packets of known flows carry
    /// their own [`SegmentLimit`].
    pub unknown_len_max: u16,
    /// Division of a payload among fragments or segments.
    pub split: Split,
    /// Whether TCP packets above the MTU are segmented. Otherwise they are fragmented or dropped like all other
    /// packets.
    pub segment: Toggle,
    /// Whether packets above the MTU are fragmented. Otherwise, [`Role::Transit`] drops them, and [`Role::Source`]
    /// forwards them unchanged.
    pub fragment: Toggle,
    /// Segment size of TCP GSO packets.
    pub gso_packets: SegmentSize,
    /// Whether this side or the port completes partial checksums.
    pub checksums: Checksums,
    /// IP IDs for transit UDP and ICMP datagrams that are fragmented despite DF. `None`: such datagrams are
    /// dropped. Their own IDs cannot be kept, since a host may choose any ID for datagrams with DF (RFC 6864
    /// section 4.1).
    pub df_identifiers: Option<Identifiers>,
    /// IP IDs for TCP packets that are sent without DF; see [`SegmentLimit::clears_df`]. `None`: DF is kept.
    pub cleared_df_identifiers: Option<Identifiers>,
}

/// Segment size of sent TCP GSO packets. A GSO packet of several segments stays a GSO packet in every mode. Ports
/// with GSO send it undivided. For other ports, [`WirePackets`](crate::WirePackets) writes its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// The segment size of the received packets, if it fits. For segments that must be restored byte for byte, and
    /// for a host's receive offload.
    Preserve,
    /// The largest size that fits, if both directions of the connection's handshake were seen. Otherwise the size
    /// of the received packets. For a border.
    ResizedWhereKnown,
    /// The largest size that fits, for any receiver. For a host's own interface, and for captures.
    Maximise,
}

impl SegmentSize {
    /// Returns the segment size for a side with this coalescing mode, or without coalescing. `is_for_own_host`: the
    /// packets are for this host.
    pub fn of(coalesces: Option<Mode>, is_for_own_host: bool) -> SegmentSize {
        match (coalesces, is_for_own_host) {
            (Some(Mode::Resize), true) => SegmentSize::Maximise,
            (Some(Mode::Resize), false) => SegmentSize::ResizedWhereKnown,
            (Some(Mode::Reversible) | None, _) => SegmentSize::Preserve,
        }
    }
}

/// The place where partial checksums, left by hosts with checksum offload, are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// This stage, for ports that accept only complete checksums. The checksum of a GSO packet stays partial,
    /// because each of its [`WirePackets`] gets a new checksum.
    Complete,
    /// The port: checksums stay partial, and this stage sums no payload. Only packets that are sent in IP fragments
    /// get complete checksums.
    Defer,
}

/// Whether the source host of a dropped packet gets an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IcmpReplies {
    Send,
    Suppress,
}

/// The treatment of DF and IP IDs by a side.
#[derive(Debug)]
pub enum Role {
    /// The interface of the host that sends the packets. Datagrams are fragmented regardless of DF, with IP IDs
    /// issued here (X1).
    Source(Identifiers),
    /// A device in transit, such as a border. Packets that must not be fragmented are dropped, and their source
    /// hosts get an ICMP error.
    Transit,
    /// A gateway beside a kernel that forwards or delivers the packets. The kernel fragments or drops packets that
    /// are too long, so received packets stay unchanged. Datagrams that were reassembled here and exceed the MTU
    /// are fragmented again, regardless of DF. No fragment exceeds the longest received fragment.
    Helper,
}

impl Sizing {
    /// Creates a stage for an MTU of `mtu` bytes, with segmentation and fragmentation on, for a port without GSO.
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
            df_identifiers: None,
            cleared_df_identifiers: None,
        }
    }

    /// Takes a packet. A packet that fits is forwarded. Any other packet is marked for fragmentation or
    /// segmentation, or dropped.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if let Err((packet, reason)) = self.size(now, packet, out) {
            self.too_big(now, packet, reason, IcmpReplies::Send, out);
        }
    }

    /// Forwards a packet, divided if necessary.
    ///
    /// # Errors
    /// The packet, and the reason why it can neither be forwarded undivided nor be divided.
    fn size(&mut self, now: Time, mut packet: Packet, out: &mut Output) -> Result<(), (Packet, Reason)> {
        finish_len(&mut packet, out);
        if packet.checksum == Checksum::Partial && self.checksums == Checksums::Complete {
            note_finished(&packet, out);
        }
        self.segment(now, &mut packet, out);
        // A packet that cannot be divided keeps its DF, so that its host is told.
        let len = packet.wire_len();
        if packet.segment_limit.is_some_and(|limit| limit.clears_df && len <= usize::from(limit.len_max)) {
            self.clear_df(now, &mut packet, out);
        }
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
        // Fragments of the received length may exceed this link's MTU.
        packet.fragmentation = None;
        if packet.gso.is_some() {
            self.split_into_packets(now, packet, out);
            return Ok(());
        }
        // No interface completes the checksum of a fragment, or of a packet that an ICMP error quotes.
        self.complete_checksum(&mut packet, out);
        match self.cut(now, &packet) {
            Ok(cut) => {
                if packet.segment_limit.is_some_and(|limit| limit.in_fragments) {
                    out.ledger.note(Event::SuperFragmented, Tally::of(&packet));
                }
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

    /// Forwards a packet. Completes its checksum if this stage is responsible for checksums. Segments of a GSO
    /// packet get their own checksums later.
    #[inline]
    fn forward(&self, mut packet: Packet, out: &mut Output) {
        let is_mine =
            packet.fragmentation.is_some() || packet.gso.is_none() && self.checksums == Checksums::Complete;
        if packet.checksum == Checksum::Partial && is_mine {
            self.complete_checksum(&mut packet, out);
        }
        out.forward(packet);
    }

    /// Completes a partial checksum. Counts the checksum, unless it was counted at arrival.
    fn complete_checksum(&self, packet: &mut Packet, out: &mut Output) {
        if packet.complete_checksum() && self.checksums == Checksums::Defer {
            out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
        }
    }

    /// Whether the MTU is below the minimum of the packet's IP version. In this case, the side does not fragment or
    /// reassemble packets of this version. It only resizes TCP packets.
    pub(crate) fn is_below_every_link(&self, packet: &Packet) -> bool {
        self.mtu < MTU_OF_ALL && usize::from(self.mtu) < packet.ip().mtu_min()
    }

    /// Whether the forwarding kernel decides about this packet, and therefore gets it unchanged.
    fn leaves_to_kernel(&self, packet: &Packet) -> bool {
        matches!(self.role, Role::Helper) && !packet.was_fragmented()
    }

    /// Returns the maximum length of a TCP packet, within the MTU of this side and the limit of its receiver.
    #[inline]
    fn tcp_len_max(&self, now: Time, packet: &Packet) -> u16 {
        match packet.segment_limit {
            Some(limit) if limit.in_fragments && self.may_super_fragment(now, packet) => limit.len_max,
            limit => self.mtu.min(limit.map_or(self.unknown_len_max, |limit| limit.len_max)),
        }
    }

    /// Whether TCP segments above the MTU may be sent in IP fragments: the host's own, or those that their host
    /// allows routers to fragment. Without enough IP IDs, they are segmented.
    fn may_super_fragment(&self, now: Time, packet: &Packet) -> bool {
        self.fragment == Toggle::On
            && match &self.role {
                Role::Source(identifiers) => identifiers.suffice(now, packet),
                Role::Transit => !packet.ip().dont_fragment,
                Role::Helper => false,
            }
    }

    /// Whether the segments of a GSO packet may be made longer, toward a receiver with this limit.
    pub(crate) fn may_grow(&self, limit: Option<SegmentLimit>) -> bool {
        match self.gso_packets {
            SegmentSize::Preserve => false,
            SegmentSize::ResizedWhereKnown => limit.is_some_and(|limit| limit.may_grow),
            SegmentSize::Maximise => true,
        }
    }

    /// Sets the segment size of TCP packets. It is the largest size that fits, unless the size of a received GSO
    /// packet is preserved and fits.
    ///
    /// GSO packets exist only inside hosts, so a new segment size fragments no packet with DF, and DF stays set
    /// (law 4). Datagrams of a UDP GSO packet keep their sizes. A GSO packet with a single segment becomes an
    /// ordinary packet.
    fn segment(&self, now: Time, packet: &mut Packet, out: &mut Output) {
        let len_max = usize::from(self.tcp_len_max(now, packet));
        let fits = packet.wire_len() <= len_max;
        if packet.gso.is_some_and(|gso| packet.gso_len() <= usize::from(gso.segment_len)) {
            packet.gso = None;
        }
        let stays = match packet.gso {
            // A host's own segments are fragmented or dropped as received. Segments of a run that was coalesced
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

    /// Clears DF of a packet for an IPv4 path that carries less than any segment here. Its segments get new IP IDs,
    /// since routers fragment them. If these run out, DF is kept.
    #[cold]
    #[inline(never)]
    fn clear_df(&mut self, now: Time, packet: &mut Packet, out: &mut Output) {
        let Some(identifiers) = &mut self.cleared_df_identifiers else { return };
        let is_fragment = packet.ip().fragment.is_some() || packet.fragmentation.is_some();
        if !packet.ip().dont_fragment || packet.ip().version != Version::V4 || is_fragment {
            return;
        }
        let Some(first) = identifiers.next(now, packet) else { return };
        let count = packet.gso.map_or(1, |gso| packet.gso_len().div_ceil(usize::from(gso.segment_len.max(1))));
        if (1..count).any(|_| identifiers.next(now, packet).is_none()) {
            return;
        }
        packet.clear_dont_fragment(first as u16);
        packet.gso = packet.gso.map(|gso| Gso { ids: Identifications::Rise, ..gso });
        out.ledger.note(Event::DfCleared, Tally::of(packet));
    }

    /// Splits a GSO packet whose segments exceed the MTU into single packets. Each packet is fragmented or dropped
    /// separately. The source host gets at most one ICMP error.
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

    /// Returns the fragmentation of a packet above the MTU, or the reason why the packet is dropped.
    ///
    /// Packets that must not be fragmented in transit are dropped. Their source hosts are told the link's MTU (RFC
    /// 1191 section 4, RFC 8200 section 4.5; R011, R086, R111).
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
            // A datagram that arrived fragmented may be sent in fragments, none longer than the longest received
            // fragment.
            let mtu = packet.max_fragment_len().filter(|wire_packet_len| *wire_packet_len <= usize::from(self.mtu));
            if let Some(mtu) = mtu {
                return Ok(Fragmentation { mtu: mtu as u16, ..cut });
            }
            let fits = packet.headers_in_payload_len() <= self.room(packet);
            let identifiers = self.df_identifiers.as_mut().filter(|_| fits && may_be_fragmented_despite_df(packet));
            let id = identifiers.ok_or(Reason::TooBig)?.next(now, packet).ok_or(Reason::NoIdentifier)?;
            return Ok(Fragmentation { id, ..cut });
        }
        // Fragments of this fragment would exceed the maximum datagram length, or start between two offset units.
        if let Some(reason) = packet.ip().fragment.and_then(|fragment| len_fault(packet.ip(), fragment)) {
            return Err(reason);
        }
        if packet.headers_in_payload_len() > self.room(packet) {
            return Err(Reason::Uncuttable);
        }
        let id = match &mut self.role {
            // Fragments of a fragment belong to the original datagram, and keep its ID.
            Role::Source(identifiers) if packet.ip().fragment.is_none() => identifiers.next(now, packet),
            _ => Some(packet.ip().id),
        };
        let id = id.ok_or(Reason::NoIdentifier)?;
        Ok(Fragmentation { id, ..cut })
    }

    /// Returns the maximum payload of the first fragment, in bytes.
    fn room(&self, packet: &Packet) -> usize {
        let [first, _] = packet.fragment_header_lens();
        usize::from(self.mtu).saturating_sub(first) / packet::UNIT * packet::UNIT
    }
}

/// Whether a packet can be divided into segments that repeat its header. Runs that were coalesced here were checked
/// before.
fn is_divisible(packet: &Packet) -> bool {
    packet.gso.is_some_and(|gso| gso.maker == Maker::Gateway) || may_be_segmented(packet)
}

/// Calls `take` for each wire packet of `packet`, as a packet of its own. If the pool is empty, wire packets are
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

/// Returns the tally of a wire packet that was dropped for lack of a buffer.
fn lost(wire_packet: &WirePacket<'_>, of: &Packet) -> Tally {
    let header_len = match of.fragmentation {
        Some(_) => wire_packet.header.len(),
        None => of.link().len() + usize::from(of.ip().payload_at),
    };
    Tally::new(1, wire_packet.frame_len() - header_len)
}

/// Whether the packet is an unfragmented IPv4 datagram of UDP or ICMP, which may be sent without its DF. TCP hosts
/// are told the MTU instead, and then send shorter segments.
fn may_be_fragmented_despite_df(packet: &Packet) -> bool {
    let ip = packet.ip();
    let is_datagram = [packet::ip::UDP, packet::ip::ICMP].contains(&ip.protocol);
    ip.version == Version::V4 && ip.fragment.is_none() && packet.max_fragment_len().is_none() && is_datagram
}

/// Minimum MTU of every IPv6 link (RFC 8200 section 5), used for IPv4 too.
const MTU_OF_ALL: u16 = 1_280;

/// Writes the length that a host left to segmentation offload, and adds it to a checksum that lacks it.
#[inline]
fn finish_len(packet: &mut Packet, out: &mut Output) {
    if !packet.finish_len() {
        return;
    }
    out.ledger.note(Event::LengthCompleted, Tally::of(packet));
    note_finished(packet, out);
    packet.complete_checksum();
}

/// Counts a partial checksum that is completed here, or during transmission in each segment of a GSO packet.
fn note_finished(packet: &Packet, out: &mut Output) {
    if packet.is_partial() {
        out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
    }
}
