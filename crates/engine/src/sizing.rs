//! Packets in, packets that fit a link out: cut into segments, cut into fragments, refused, or left alone.

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

/// One packet to many.
#[derive(Debug)]
pub struct Sizing {
    /// Longest packet that this side takes, IP header counted, in bytes.
    pub mtu: u16,
    /// Who we are to the packets.
    pub role: Role,
    /// Longest TCP packet whose receiver nobody has looked up, IP header counted, in bytes. Others say themselves what theirs
    /// takes: see [`SegmentLimit`].
    pub unknown_len_max: u16,
    /// How a cut shares a payload out.
    pub fill: Split,
    /// Is TCP that is too long cut into segments? Else it is cut or refused as anything else.
    pub segment: Toggle,
    /// Is what is too long cut into fragments? Else a router refuses it, and a source's packets are left alone.
    pub fragment: Toggle,
    /// What becomes of the segments of TCP trains.
    pub gso_packets: SegmentSize,
    /// Who finishes half-filled checksums.
    pub checksums: Checksums,
    /// Identifiers for UDP and ICMP datagrams with DF that are cut on the way all the same; none where they are refused. A sender gives datagrams that
    /// nobody may cut any identification (RFC 6864 section 4.1), so theirs cannot be kept.
    pub df_cut: Option<Identifiers>,
}

/// How long the segments of a TCP train leave. A train of several stays a train in either case: a port that carries trains
/// takes it whole, for any other [`WirePackets`](crate::WirePackets) spells it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// As they came, as far as they fit: for what must be given back byte for byte, and for a host's receive offload.
    Preserve,
    /// The longest that fit, where both directions of the connection's handshake were seen, else as they came: for a border between two
    /// sizes.
    ResizedWhereKnown,
    /// The longest that fit, whoever receives them: for a host's own card, and where packets go to a file.
    Maximise,
}

impl SegmentSize {
    /// Those of a side that coalesces so, or not at all, on the way to its own host or to any other.
    pub fn of(coalesces: Option<Mode>, is_for_own_host: bool) -> SegmentSize {
        match (coalesces, is_for_own_host) {
            (Some(Mode::Resize), true) => SegmentSize::Maximise,
            (Some(Mode::Resize), false) => SegmentSize::ResizedWhereKnown,
            (Some(Mode::Reversible) | None, _) => SegmentSize::Preserve,
        }
    }
}

/// Who finishes the half-filled checksums of offloading senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// This side, for a port that takes finished ones. A train's stays half-filled: each of its
    /// [`WirePackets`] has its own, which is made anew.
    Complete,
    /// The port: they stay half-filled, and no payload is summed for them. Of what leaves in IP fragments they are finished.
    Defer,
}

/// Whether the sender of what is refused hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Told,
    Untold,
}

/// Who cuts.
#[derive(Debug)]
pub enum Role {
    /// The source host's own card: it cuts the host's datagrams whatever DF says, under identifiers of its own (X1).
    Source(Identifiers),
    /// A router: what must not be cut is refused, and its sender is told.
    Transit,
    /// The helper of a kernel that forwards or delivers: the kernel cuts or refuses, so packets stay as they came. What was
    /// joined here and is too long leaves in pieces no longer than the longest that came, whatever DF says.
    Helper,
}

impl Sizing {
    /// One that makes packets of at most `mtu` bytes, with every stage on, for a port that takes single packets.
    pub fn new(mtu: u16, role: Role) -> Sizing {
        Sizing {
            mtu,
            role,
            unknown_len_max: u16::MAX,
            fill: Split::Max,
            segment: Toggle::On,
            fragment: Toggle::On,
            gso_packets: SegmentSize::Maximise,
            checksums: Checksums::Complete,
            df_cut: None,
        }
    }

    /// Takes a packet: one that fits goes on, a longer one is marked to be cut, or refused.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if let Err((packet, reason)) = self.size(now, packet, out) {
            self.too_big(now, packet, reason, Sender::Told, out);
        }
    }

    /// Sends a packet on, cut where it must be.
    ///
    /// # Errors
    /// The packet, and why it can neither stay as long as it is nor be cut.
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
        // Pieces as long as came may be longer than this link takes.
        packet.fragmentation = None;
        if packet.gso.is_some() {
            self.split_into_packets(now, packet, out);
            return Ok(());
        }
        // What is cut, or told of, has no card to finish it.
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

    /// Lets a packet go on, its checksum finished where that is for this side to do; a train's segments have their own.
    #[inline]
    fn forward(&self, mut packet: Packet, out: &mut Output) {
        let is_mine =
            packet.fragmentation.is_some() || packet.gso.is_none() && self.checksums == Checksums::Complete;
        if packet.checksum == Checksum::Partial && is_mine {
            self.complete_checksum(&mut packet, out);
        }
        out.forward(packet);
    }

    /// Finishes a half-filled checksum, and counts it where that was not done when it came.
    fn complete_checksum(&self, packet: &mut Packet, out: &mut Output) {
        if packet.complete_checksum() && self.checksums == Checksums::Defer {
            out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
        }
    }

    /// No link of its version has so small an MTU: a packet's fragments are left as they are, and only TCP is resized.
    pub(crate) fn is_below_every_link(&self, packet: &Packet) -> bool {
        self.mtu < MTU_OF_ALL && usize::from(self.mtu) < packet.ip().mtu_min()
    }

    /// Whoever forwards it finds it as it came, and decides.
    fn leaves_to_kernel(&self, packet: &Packet) -> bool {
        matches!(self.role, Role::Helper) && !packet.was_fragmented()
    }

    /// Longest TCP packet that both this side and the packet's receiver take.
    #[inline]
    fn tcp_len_max(&self, packet: &Packet) -> u16 {
        self.mtu.min(packet.segment_limit.map_or(self.unknown_len_max, |limit| limit.len_max))
    }

    /// May the segments of a train become longer than they came, toward a receiver with this limit?
    pub(crate) fn may_grow(&self, limit: Option<SegmentLimit>) -> bool {
        match self.gso_packets {
            SegmentSize::Preserve => false,
            SegmentSize::ResizedWhereKnown => limit.is_some_and(|limit| limit.may_grow),
            SegmentSize::Maximise => true,
        }
    }

    /// Gives TCP the segments that this side wants: as long as fit, where a train's are not kept or do not fit. Trains are
    /// on no wire, so nothing is cut here that must not be, and DF stays (law 4). A UDP train's datagrams are its sender's,
    /// and stay. What stands for one packet is no train.
    fn segment(&self, packet: &mut Packet, out: &mut Output) {
        let len_max = usize::from(self.tcp_len_max(packet));
        let fits = packet.wire_len() <= len_max;
        if packet.gso.is_some_and(|gso| packet.gso_len() <= usize::from(gso.segment_len)) {
            packet.gso = None;
        }
        let stays = match packet.gso {
            // A sender's own segments are cut or refused as they came. Those of a run that was made here have identifications of ours.
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

    /// Makes a train whose packets are too long single packets, each of which is cut, or refused, alone; their sender is
    /// told once.
    fn split_into_packets(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if self.checksums == Checksums::Defer {
            note_finished(&packet, out);
        }
        let mut sender = Sender::Told;
        take_singles(packet, out, |single, out| {
            if let Err((single, reason)) = self.size(now, single, out) {
                self.too_big(now, single, reason, sender, out);
                sender = Sender::Untold;
            }
        });
    }

    fn segment_len(&self, payload_len: usize, room: usize) -> u16 {
        match self.fill {
            Split::Max => payload_len.min(room) as u16,
            Split::Balanced => payload_len.div_ceil(payload_len.div_ceil(room)) as u16,
        }
    }

    fn too_big(&self, now: Time, packet: Packet, reason: Reason, sender: Sender, out: &mut Output) {
        match (&self.role, reason, sender) {
            (Role::Source(_) | Role::Helper, Reason::TooBig, _) => return self.leave_alone(packet, out),
            (_, Reason::TooBig, Sender::Told) => out.answer(now, IcmpError::TooBig { mtu: self.mtu }, &packet),
            _ => {}
        }
        let ended = Tally::of(&packet);
        out.retire(packet, ended, reason);
    }

    /// Nothing here may change its length.
    fn leave_alone(&self, packet: Packet, out: &mut Output) {
        if packet.wire_len() > usize::from(self.mtu) {
            out.ledger.note(Event::LeftOversize, Tally::of(&packet));
        }
        self.forward(packet, out);
    }

    /// How a packet that is too long is cut, or why it is not.
    ///
    /// What must not be cut in transit ends, and its sender is told what the link takes (RFC 1191 section 4, RFC 8200
    /// section 4.5; R011, R086, R111).
    fn cut(&mut self, now: Time, packet: &Packet) -> Result<Fragmentation, Reason> {
        let cut = Fragmentation { mtu: self.mtu, id: packet.ip().id, fill: self.fill, content: Content::Whole };
        if matches!(self.role, Role::Helper) {
            let mtu = packet.max_fragment_len().ok_or(Reason::TooBig)?;
            return Ok(Fragmentation { mtu: mtu.min(u16::MAX.into()) as u16, ..cut });
        }
        if self.fragment == Toggle::Off {
            return Err(Reason::TooBig);
        }
        if matches!(self.role, Role::Transit) && packet.ip().dont_fragment {
            // What came in pieces may leave in pieces, none longer than the longest that came.
            let mtu = packet.max_fragment_len().filter(|wire_packet_len| *wire_packet_len <= usize::from(self.mtu));
            if let Some(mtu) = mtu {
                return Ok(Fragmentation { mtu: mtu as u16, ..cut });
            }
            let fits = packet.headers_in_payload_len() <= self.room(packet);
            let identifiers = self.df_cut.as_mut().filter(|_| fits && may_be_cut_despite_df(packet));
            let id = identifiers.ok_or(Reason::TooBig)?.next(now, packet).ok_or(Reason::NoIdentifier)?;
            return Ok(Fragmentation { id, ..cut });
        }
        // Its pieces would end past every datagram, or between two units of its offsets.
        if let Some(reason) = packet.ip().fragment.and_then(|fragment| len_fault(packet.ip(), fragment)) {
            return Err(reason);
        }
        if packet.headers_in_payload_len() > self.room(packet) {
            return Err(Reason::Uncuttable);
        }
        let id = match &mut self.role {
            // The pieces of a piece belong to the other pieces of their datagram.
            Role::Source(identifiers) if packet.ip().fragment.is_none() => identifiers.next(now, packet),
            _ => Some(packet.ip().id),
        };
        let id = id.ok_or(Reason::NoIdentifier)?;
        Ok(Fragmentation { id, ..cut })
    }

    /// Payload that fits into the first piece.
    fn room(&self, packet: &Packet) -> usize {
        let [first, _] = packet.fragment_header_lens();
        usize::from(self.mtu).saturating_sub(first) / packet::UNIT * packet::UNIT
    }
}

/// May a packet be divided into segments that repeat its header? What was joined here was looked at before.
fn is_divisible(packet: &Packet) -> bool {
    packet.gso.is_some_and(|gso| gso.maker == Maker::Gateway) || may_be_segmented(packet)
}

/// Gives each packet that stands on the wire for this one as a packet of its own, as far as there are buffers; a packet for which
/// there is none ends there.
pub(crate) fn take_singles(packet: Packet, out: &mut Output, mut take: impl FnMut(Packet, &mut Output)) {
    let mut wire_packets = WirePackets::of(&packet);
    while let Some(wire_packet) = wire_packets.next() {
        match wire_packet.to_packet(&packet, &mut out.pool) {
            Some(single) => take(single, out),
            None => out.ledger.retire(Reason::NoBuffer, lost(&wire_packet, &packet)),
        }
    }
    out.done(packet);
}

/// What a piece that found no buffer counts as.
fn lost(wire_packet: &WirePacket<'_>, of: &Packet) -> Tally {
    let header_len = match of.fragmentation {
        Some(_) => wire_packet.header.len(),
        None => of.link().len() + usize::from(of.ip().payload_at),
    };
    Tally::new(1, wire_packet.frame_len() - header_len)
}

/// Is it a whole datagram of IPv4 whose sender takes no harm where DF is cleared? TCP's is told, and sends shorter segments.
fn may_be_cut_despite_df(packet: &Packet) -> bool {
    let ip = packet.ip();
    let is_datagram = [packet::ip::UDP, packet::ip::ICMP].contains(&ip.protocol);
    ip.version == Version::V4 && ip.fragment.is_none() && packet.max_fragment_len().is_none() && is_datagram
}

/// Every link of either version takes packets of so many bytes (RFC 8200 section 5).
const MTU_OF_ALL: u16 = 1_280;

/// Writes the length that an offloading sender left to its card, and the checksum, which may lack it too.
#[inline]
fn finish_len(packet: &mut Packet, out: &mut Output) {
    if !packet.finish_len() {
        return;
    }
    out.ledger.note(Event::LengthCompleted, Tally::of(packet));
    note_finished(packet, out);
    packet.complete_checksum();
}

/// Counts a half-filled checksum that is finished, if there is one: now, or on the way out, in each piece of a train.
fn note_finished(packet: &Packet, out: &mut Output) {
    if packet.is_half_filled() {
        out.ledger.note(Event::ChecksumCompleted, Tally::of(packet));
    }
}
