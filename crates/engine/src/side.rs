//! Packets in, packets of the sizes that one side wants out: widen, then narrow.

use crate::coalesce::Coalescer;
use crate::fragment::Pieces;
use crate::identify::Identifiers;
use crate::join::{Join, Joiner};
use crate::ledger::{Event, Reason, Tally};
use crate::output::{Next, Output};
use crate::prefixes::Prefixes;
use crate::reassemble::Reassembler;
use crate::rules::{Mode, Switch};
use crate::segment::Piece;
use crate::sink::CopyPayload;
use packet::icmp::Complaint;
use packet::{
    Checksum, Content, Cut, Fill, Frame, Identifications, Maker, Packet, SegmentLimit, Shares, Time, Train, Tunnel,
    Version, may_be_segmented,
};

/// All that happens to a packet on its way out of one side.
#[derive(Debug)]
pub struct Side {
    /// Many packets to one.
    pub widening: Widening,
    /// One packet to many.
    pub narrowing: Narrowing,
}

/// Many packets to one.
#[derive(Debug)]
pub struct Widening {
    /// How fragments are joined, by their destination (C14). Where the stage that it names is none, they pass.
    pub joins: Prefixes<Join>,
    /// Joins fragments into datagrams, where this side wants whole ones.
    pub reassembler: Option<Reassembler>,
    /// Joins fragments into longer ones, gracefully.
    pub joiner: Option<Joiner>,
    /// Joins the segments of a flow, rejoined ones too.
    pub coalescer: Option<Coalescer>,
}

/// One packet to many.
#[derive(Debug)]
pub struct Narrowing {
    /// Longest packet that this side takes, IP header counted, in bytes.
    pub mtu: u16,
    /// Who we are to the packets.
    pub role: Role,
    /// Longest TCP packet whose receiver nobody has looked up, IP header counted, in bytes. Others say themselves what theirs
    /// takes: see [`SegmentLimit`].
    pub unknown_len_max: u16,
    /// How a cut shares a payload out.
    pub fill: Fill,
    /// Is TCP that is too long cut into segments? Else it is cut or refused as anything else.
    pub segment: Switch,
    /// Is what is too long cut into fragments? Else a router refuses it, and a source's packets are left alone.
    pub fragment: Switch,
    /// What becomes of the segments of TCP trains.
    pub trains: Trains,
    /// Who finishes half-filled checksums.
    pub checksums: Checksums,
    /// Identifiers for UDP and ICMP datagrams with DF that are cut on the way all the same; none where they are refused. A sender gives datagrams that
    /// nobody may cut any identification (RFC 6864 section 4.1), so theirs cannot be kept.
    pub df_cut: Option<Identifiers>,
}

/// How long the segments of a TCP train leave. A train of several stays a train in either case: a port that carries trains
/// takes it whole, for any other [`Pieces`](crate::Pieces) spells it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trains {
    /// As they came, as far as they fit: for what must be given back byte for byte, and for a host's receive offload.
    Kept,
    /// The longest that fit, where both directions of the connection's handshake were seen, else as they came: for a border between two
    /// sizes.
    ResizedWhereKnown,
    /// The longest that fit, whoever receives them: for a host's own card, and where packets go to a file.
    Resized,
}

impl Trains {
    /// Those of a side that coalesces so, or not at all, on the way to its own host or to any other.
    pub fn of(coalesces: Option<Mode>, is_for_own_host: bool) -> Trains {
        match (coalesces, is_for_own_host) {
            (Some(Mode::Resize), true) => Trains::Resized,
            (Some(Mode::Resize), false) => Trains::ResizedWhereKnown,
            (Some(Mode::Reversible) | None, _) => Trains::Kept,
        }
    }
}

/// Who finishes the half-filled checksums of offloading senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// This side, for a port that takes finished ones. A train's stays half-filled: each of its
    /// [`Pieces`] has its own, which is made anew.
    Finished,
    /// The port: they stay half-filled, and no payload is summed for them. Of what leaves in IP fragments they are finished.
    Left,
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

impl Side {
    /// Takes a packet that leaves by this side. What was late by `now` has been [expired](Side::expire) before.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        let frame = Frame::Ip(packet);
        if self.take_front(now, core::slice::from_ref(&frame), out) > 0 {
            return out.pool.give(frame.into_buffer());
        }
        if let Frame::Ip(packet) = frame {
            self.push_unlike(now, packet, out);
        }
    }

    /// Takes a packet that [goes on](Side::take_front) nowhere.
    #[inline]
    pub(crate) fn push_unlike(&mut self, now: Time, packet: Packet, out: &mut Output) {
        self.receive(&packet, out);
        self.push_received(now, packet, out);
    }

    /// Takes a packet that was counted. What goes nowhere else is made to fit at once.
    #[inline]
    fn push_received(&mut self, now: Time, packet: Packet, out: &mut Output) {
        let Side { widening, narrowing } = self;
        let is_joined = packet.ip().fragment.is_some() && !narrowing.is_below_every_link(&packet);
        let next = ToNarrowing { now, narrowing, out };
        if is_joined {
            widening.push_fragment(now, packet, next)
        } else {
            widening.coalescing(now, next).forward(packet)
        }
    }

    /// Takes in the front ones of these frames that go on with the datagram of the last fragment, as
    /// [`push`](Side::push) would each, and returns how many they are.
    #[inline]
    pub(crate) fn take_front(&mut self, now: Time, frames: &[Frame], out: &mut Output) -> usize {
        let Some(Frame::Ip(first)) = frames.first() else { return 0 };
        if first.ip().fragment.is_none() || !self.reassembles(first) {
            return 0;
        }
        let Some((reassembler, mut next)) = self.reassembling(now, out) else { return 0 };
        let taken = reassembler.take_front(frames, &mut next, &mut CopyPayload);
        frames.iter().take(taken).filter_map(Frame::packet).for_each(|piece| self.receive(piece, out));
        taken
    }

    /// Prefetches for the frames behind the first one.
    #[inline]
    pub(crate) fn prefetch(&self, frames: &[Frame]) {
        if let Some(coalescer) = &self.widening.coalescer {
            coalescer.prefetch(frames, &CopyPayload);
        }
    }

    /// Counts a packet that came.
    #[inline(always)]
    pub(crate) fn receive(&self, packet: &Packet, out: &mut Output) {
        out.ledger.received += Tally::of(packet);
        if let Some(tunnel) = Tunnel::of(packet) {
            out.ledger.note(inside(tunnel), Tally::of(packet));
        }
    }

    /// Counts so many later pieces that are, in all that is counted, like one of their datagram.
    pub(crate) fn receive_alike(&self, packet: &Packet, count: usize, out: &mut Output) {
        let tally = Tally::new(count, count * packet.ip().payload_len());
        out.ledger.received += tally;
        if let Some(tunnel) = Tunnel::of_protocol(packet.ip().protocol) {
            out.ledger.note(inside(tunnel), tally);
        }
    }

    /// Does a fragment go to the reassembler, for the host that it is for?
    pub(crate) fn reassembles(&self, packet: &Packet) -> bool {
        let joins = self.widening.joins_of(packet);
        joins == Join::Destination
            && self.widening.reassembler.is_some()
            && !self.narrowing.is_below_every_link(packet)
    }

    /// The reassembler, and what comes behind it.
    #[inline(always)]
    pub(crate) fn reassembling<'a>(
        &'a mut self,
        now: Time,
        out: &'a mut Output,
    ) -> Option<(&'a mut Reassembler, ToCoalescer<'a, ToNarrowing<'a>>)> {
        let Side { widening: Widening { reassembler, coalescer, .. }, narrowing } = self;
        Some((reassembler.as_mut()?, ToCoalescer { now, coalescer, next: ToNarrowing { now, narrowing, out } }))
    }

    /// How long the packets of a flow's TCP trains may leave without being seen here, where its receiver's limit is this: all that
    /// is done to them is that they get segments of another length. None where that is not all.
    pub fn resizes_to(&self, limit: SegmentLimit) -> Option<SegmentLimit> {
        let Narrowing { mtu, fill, segment, .. } = self.narrowing;
        let joins_so = self.widening.coalescer.as_ref().is_none_or(Coalescer::resizes);
        let resizes = (segment, fill) == (Switch::On, Fill::Full) && joins_so;
        let may_grow = self.narrowing.may_grow(Some(limit));
        (resizes && limit.len_max > 0).then_some(SegmentLimit { len_max: mtu.min(limit.len_max), may_grow })
    }

    /// Gives up what is late.
    pub fn expire(&mut self, now: Time, out: &mut Output) {
        let Side { widening, narrowing } = self;
        widening.expire(now, ToNarrowing { now, narrowing, out });
    }

    /// Lets go of the segments that are held: the port has nothing more to give.
    pub fn release(&mut self, now: Time, out: &mut Output) {
        let Side { widening, narrowing } = self;
        widening.release(now, ToNarrowing { now, narrowing, out });
    }

    /// Lets go of everything: the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut Output) {
        let Side { widening, narrowing } = self;
        widening.flush(now, ToNarrowing { now, narrowing, out });
    }

    /// When [`expire`](Side::expire) next has work; none while nothing is held or remembered.
    pub fn next_deadline(&self) -> Option<Time> {
        self.widening.next_deadline()
    }

    /// The laws, between two packets: what came has left or is held, and every buffer on loan is held or queued.
    ///
    /// # Errors
    /// The law that is broken, with its figures.
    pub fn check(&self, out: &Output) -> Result<(), String> {
        let (held, buffers) = self.widening.held();
        let expected = buffers + out.queued_count();
        if out.pool.lent_count() != expected {
            let lent = out.pool.lent_count();
            return Err(format!("{lent} buffers are lent, {expected} are held or queued"));
        }
        if out.queued_count() > 0 {
            return Ok(());
        }
        out.ledger.check(held)
    }

    /// Ends what rejoins datagrams, what joins fragments on the way, and what coalesces, but for those that stay:
    /// what they hold leaves first, through all that follows them.
    pub(crate) fn end_all_but(&mut self, stays: [bool; 3], now: Time, out: &mut Output) {
        let [reassembler_stays, joiner_stays, coalescer_stays] = stays;
        let Widening { reassembler, joiner, coalescer, .. } = &mut self.widening;
        if reassembler.is_some() && !reassembler_stays || joiner.is_some() && !joiner_stays {
            let staying = (reassembler.take_if(|_| reassembler_stays), joiner.take_if(|_| joiner_stays));
            self.flush(now, out);
            (self.widening.reassembler, self.widening.joiner) = staying;
        } else if coalescer.is_some() && !coalescer_stays {
            self.release(now, out);
        }
        if !coalescer_stays {
            self.widening.coalescer = None;
        }
    }

    /// Lets go of what is held, to whoever goes on in its place: it is not made to fit what leaves here.
    pub fn hand_over(&mut self, now: Time, out: &mut Output) {
        self.widening.flush(now, out);
    }

    /// Goes on in place of another side, before anything is pushed: what that one holds may still become longer here, and no
    /// identification that it gave out is given out again too soon.
    ///
    /// What is remembered of datagrams that have ended is lost.
    pub fn take_over(&mut self, now: Time, mut other: Side, out: &mut Output) {
        other.widening.flush(now, TakingOver { now, side: self, out });
        if let (Role::Source(mine), Role::Source(theirs)) = (&mut self.narrowing.role, other.narrowing.role) {
            mine.go_on_from(theirs);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.narrowing.df_cut, other.narrowing.df_cut) {
            mine.go_on_from(theirs);
        }
    }

    /// Takes single packets of what another side held; they were counted when they came.
    fn take_held(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if packet.is_single() {
            return self.push_received(now, packet, out);
        }
        if let Some((count, bytes)) = packet.shares().map(Shares::totals) {
            out.ledger.note(Event::Divided, Tally::new(1, bytes));
            out.ledger.note(Event::Pieces, Tally::new(count, bytes));
        }
        take_singles(packet, out, |single, out| self.push_received(now, single, out));
    }
}

/// Behind the stages that join fragments: what coalesces, where anything does.
pub(crate) struct ToCoalescer<'a, N> {
    now: Time,
    coalescer: &'a mut Option<Coalescer>,
    next: N,
}

impl<N: Next> Next for ToCoalescer<'_, N> {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        match self.coalescer {
            Some(coalescer) => coalescer.push(self.now, packet, &mut self.next),
            None => self.next.forward(packet),
        }
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        self.next.output()
    }
}

/// Behind all that widens.
pub(crate) struct ToNarrowing<'a> {
    now: Time,
    narrowing: &'a mut Narrowing,
    out: &'a mut Output,
}

impl Next for ToNarrowing<'_> {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        self.narrowing.push(self.now, packet, self.out);
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        self.out
    }
}

/// Behind a side that ends: the one that goes on in its place.
struct TakingOver<'a> {
    now: Time,
    side: &'a mut Side,
    out: &'a mut Output,
}

impl Next for TakingOver<'_> {
    fn forward(&mut self, packet: Packet) {
        self.side.take_held(self.now, packet, self.out);
    }

    fn output(&mut self) -> &mut Output {
        self.out
    }
}

impl Default for Widening {
    /// Nothing is joined; where there is a reassembler, it is asked for every destination.
    fn default() -> Widening {
        Widening { joins: Prefixes::new(Join::Destination), reassembler: None, joiner: None, coalescer: None }
    }
}

impl Widening {
    /// How fragments like this one are joined.
    #[inline]
    fn joins_of(&self, packet: &Packet) -> Join {
        *self.joins.one().unwrap_or_else(|| {
            let (_, destination) = packet.addresses();
            self.joins.get(destination)
        })
    }

    /// Fragments become datagrams, or longer fragments; rejoined segments become trains.
    fn push_fragment(&mut self, now: Time, packet: Packet, next: impl Next) {
        let joins = self.joins_of(&packet);
        let Widening { reassembler, joiner, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, next };
        match (joins, reassembler, joiner) {
            (Join::Destination, Some(reassembler), _) => {
                reassembler.push_unlike(now, packet, &mut next, &mut CopyPayload);
            }
            (Join::Hop, Some(reassembler), _) => reassembler.push_hop_by_hop(now, packet, &mut next),
            (Join::Graceful, _, Some(joiner)) => joiner.push(now, packet, &mut next),
            _ => next.forward(packet),
        }
    }

    /// Segments become trains; what does not goes on.
    #[inline(always)]
    fn coalescing<'a, N: Next + 'a>(&'a mut self, now: Time, next: N) -> ToCoalescer<'a, N> {
        ToCoalescer { now, coalescer: &mut self.coalescer, next }
    }

    fn expire(&mut self, now: Time, next: impl Next) {
        let Widening { reassembler, joiner, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, next };
        if let Some(reassembler) = reassembler {
            reassembler.expire(now, &mut next);
        }
        if let Some(joiner) = joiner {
            joiner.expire(now, &mut next);
        }
        if let Some(coalescer) = next.coalescer {
            coalescer.expire(now, &mut next.next);
        }
    }

    fn release(&mut self, now: Time, mut next: impl Next) {
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.release(now, &mut next);
        }
    }

    fn flush(&mut self, now: Time, next: impl Next) {
        let Widening { reassembler, joiner, coalescer, .. } = self;
        let mut next = ToCoalescer { now, coalescer, next };
        if let Some(reassembler) = reassembler {
            reassembler.flush(now, &mut next);
        }
        if let Some(joiner) = joiner {
            joiner.flush(now, &mut next);
        }
        if let Some(coalescer) = next.coalescer {
            coalescer.release(now, &mut next.next);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let fragments = self.reassembler.as_ref().and_then(Reassembler::next_deadline);
        let joined = self.joiner.as_ref().and_then(Joiner::next_deadline);
        let segments = self.coalescer.as_ref().and_then(Coalescer::next_deadline);
        fragments.into_iter().chain(joined).chain(segments).min()
    }

    /// Bytes charged against the limits of the stages.
    pub fn charged(&self) -> usize {
        self.charges().iter().sum()
    }

    /// Bytes charged against the limit of each stage: of what rejoins datagrams, of what joins fragments on the
    /// way, of what coalesces.
    pub fn charges(&self) -> [usize; 3] {
        let Widening { reassembler, joiner, coalescer, .. } = self;
        [
            reassembler.as_ref().map_or(0, Reassembler::charged),
            joiner.as_ref().map_or(0, Joiner::charged),
            coalescer.as_ref().map_or(0, Coalescer::charged),
        ]
    }

    /// The packets and payload that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        let fragments = self.reassembler.as_ref().map(Reassembler::held);
        let joined = self.joiner.as_ref().map(Joiner::held);
        let segments = self.coalescer.as_ref().map(Coalescer::held);
        fragments.into_iter().chain(joined).chain(segments).fold(
            (Tally::NONE, 0),
            |(mut tally, buffers), (more, count)| {
                tally += more;
                (tally, buffers + count)
            },
        )
    }
}

impl Narrowing {
    /// One that makes packets of at most `mtu` bytes, with every stage on, for a port that takes single packets.
    pub fn new(mtu: u16, role: Role) -> Narrowing {
        Narrowing {
            mtu,
            role,
            unknown_len_max: u16::MAX,
            fill: Fill::Full,
            segment: Switch::On,
            fragment: Switch::On,
            trains: Trains::Resized,
            checksums: Checksums::Finished,
            df_cut: None,
        }
    }

    /// Takes a packet: one that fits goes on, a longer one is marked to be cut, or refused.
    fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if let Err((packet, reason)) = self.fit(now, packet, out) {
            self.refuse(now, packet, reason, Sender::Told, out);
        }
    }

    /// Sends a packet on, cut where it must be.
    ///
    /// # Errors
    /// The packet, and why it can neither stay as long as it is nor be cut.
    fn fit(&mut self, now: Time, mut packet: Packet, out: &mut Output) -> Result<(), (Packet, Reason)> {
        finish_len(&mut packet, out);
        if packet.checksum == Checksum::Partial && self.checksums == Checksums::Finished {
            note_finished(&packet, out);
        }
        self.segment(&mut packet, out);
        if self.is_below_every_link(&packet) || self.leaves_to_kernel(&packet) {
            self.leave_alone(packet, out);
            return Ok(());
        }
        let has_holes = packet.cut.is_some_and(|cut| cut.content == Content::Sparse);
        if has_holes || packet.wire_len() <= usize::from(self.mtu) {
            packet.trim(self.mtu.into());
            self.forward(packet, out);
            return Ok(());
        }
        // Pieces as long as came may be longer than this link takes.
        packet.cut = None;
        if packet.train.is_some() {
            self.take_apart(now, packet, out);
            return Ok(());
        }
        // What is cut, or told of, has no card to finish it.
        self.finish_checksum(&mut packet, out);
        match self.cut(now, &packet) {
            Ok(cut) => {
                match self.role {
                    _ if !packet.ip().dont_fragment => {}
                    Role::Source(_) => out.ledger.note(Event::CutForHost, Tally::of(&packet)),
                    Role::Transit if packet.longest_piece().is_none() => {
                        out.ledger.note(Event::DfCut, Tally::of(&packet));
                    }
                    Role::Transit | Role::Helper => {}
                }
                packet.cut = Some(cut);
                out.forward(packet);
                Ok(())
            }
            Err(reason) => Err((packet, reason)),
        }
    }

    /// Lets a packet go on, its checksum finished where that is for this side to do; a train's segments have their own.
    #[inline]
    fn forward(&self, mut packet: Packet, out: &mut Output) {
        let is_mine = packet.cut.is_some() || packet.train.is_none() && self.checksums == Checksums::Finished;
        if packet.checksum == Checksum::Partial && is_mine {
            self.finish_checksum(&mut packet, out);
        }
        out.forward(packet);
    }

    /// Finishes a half-filled checksum, and counts it where that was not done when it came.
    fn finish_checksum(&self, packet: &mut Packet, out: &mut Output) {
        if packet.finish_checksum() && self.checksums == Checksums::Left {
            out.ledger.note(Event::ChecksumFinished, Tally::of(packet));
        }
    }

    /// No link of its version has so small an MTU: a packet's fragments are left as they are, and only TCP is resized.
    fn is_below_every_link(&self, packet: &Packet) -> bool {
        self.mtu < MTU_OF_ALL && usize::from(self.mtu) < packet.ip().mtu_min()
    }

    /// Whoever forwards it finds it as it came, and decides.
    fn leaves_to_kernel(&self, packet: &Packet) -> bool {
        matches!(self.role, Role::Helper) && !packet.came_in_pieces()
    }

    /// Longest TCP packet that both this side and the packet's receiver take.
    #[inline]
    fn tcp_len_max(&self, packet: &Packet) -> u16 {
        self.mtu.min(packet.segment_limit.map_or(self.unknown_len_max, |limit| limit.len_max))
    }

    /// May the segments of a train become longer than they came, toward a receiver with this limit?
    fn may_grow(&self, limit: Option<SegmentLimit>) -> bool {
        match self.trains {
            Trains::Kept => false,
            Trains::ResizedWhereKnown => limit.is_some_and(|limit| limit.may_grow),
            Trains::Resized => true,
        }
    }

    /// Gives TCP the segments that this side wants: as long as fit, where a train's are not kept or do not fit. Trains are
    /// on no wire, so nothing is cut here that must not be, and DF stays (law 4). A UDP train's datagrams are its sender's,
    /// and stay. What stands for one packet is no train.
    fn segment(&self, packet: &mut Packet, out: &mut Output) {
        let len_max = usize::from(self.tcp_len_max(packet));
        let fits = packet.wire_len() <= len_max;
        if packet.train.is_some_and(|train| packet.train_len() <= usize::from(train.segment_len)) {
            packet.train = None;
        }
        let stays = match packet.train {
            // A sender's own segments are cut or refused as they came. Those of a run that was made here have identifications of ours.
            Some(train) if self.segment == Switch::Off && train.maker == Maker::Sender => true,
            Some(_) => fits && !self.may_grow(packet.segment_limit),
            None => fits || self.segment == Switch::Off,
        };
        if stays || !packet.is_tcp() || packet.cut.is_some() || !may_be_segmented(packet) {
            return;
        }
        let payload_len = packet.train_len();
        let room = len_max.saturating_sub(packet.len() - payload_len);
        if payload_len == 0 || room == 0 {
            return;
        }
        let segment_len = self.segment_len(payload_len, room);
        let (ids, maker) =
            packet.train.map_or((Identifications::Rise, Maker::Gateway), |train| (train.ids, train.maker));
        let before = Tally::of(packet);
        packet.train = (payload_len > usize::from(segment_len)).then_some(Train { segment_len, ids, maker });
        let after = Tally::of(packet);
        if before != after {
            out.ledger.note(Event::Resized, before);
            out.ledger.note(Event::Segments, after);
        }
    }

    /// Makes a train whose packets are too long single packets, each of which is cut, or refused, alone; their sender is
    /// told once.
    fn take_apart(&mut self, now: Time, packet: Packet, out: &mut Output) {
        if self.checksums == Checksums::Left {
            note_finished(&packet, out);
        }
        let mut sender = Sender::Told;
        take_singles(packet, out, |single, out| {
            if let Err((single, reason)) = self.fit(now, single, out) {
                self.refuse(now, single, reason, sender, out);
                sender = Sender::Untold;
            }
        });
    }

    fn segment_len(&self, payload_len: usize, room: usize) -> u16 {
        match self.fill {
            Fill::Full => payload_len.min(room) as u16,
            Fill::Even => payload_len.div_ceil(payload_len.div_ceil(room)) as u16,
        }
    }

    fn refuse(&self, now: Time, packet: Packet, reason: Reason, sender: Sender, out: &mut Output) {
        match (&self.role, reason, sender) {
            (Role::Source(_) | Role::Helper, Reason::TooBig, _) => return self.leave_alone(packet, out),
            (_, Reason::TooBig, Sender::Told) => out.answer(now, Complaint::TooBig { mtu: self.mtu }, &packet),
            _ => {}
        }
        let ended = Tally::of(&packet);
        out.retire(packet, ended, reason);
    }

    /// Nothing here may change its length.
    fn leave_alone(&self, packet: Packet, out: &mut Output) {
        if packet.wire_len() > usize::from(self.mtu) {
            out.ledger.note(Event::LeftAlone, Tally::of(&packet));
        }
        self.forward(packet, out);
    }

    /// How a packet that is too long is cut, or why it is not.
    ///
    /// What must not be cut in transit ends, and its sender is told what the link takes (RFC 1191 section 4, RFC 8200
    /// section 4.5; R011, R086, R111).
    fn cut(&mut self, now: Time, packet: &Packet) -> Result<Cut, Reason> {
        let cut = Cut { mtu: self.mtu, id: packet.ip().id, fill: self.fill, content: Content::Whole };
        if matches!(self.role, Role::Helper) {
            let mtu = packet.longest_piece().ok_or(Reason::TooBig)?;
            return Ok(Cut { mtu: mtu.min(u16::MAX.into()) as u16, ..cut });
        }
        if self.fragment == Switch::Off {
            return Err(Reason::TooBig);
        }
        if matches!(self.role, Role::Transit) && packet.ip().dont_fragment {
            // What came in pieces may leave in pieces, none longer than the longest that came.
            let mtu = packet.longest_piece().filter(|piece_len| *piece_len <= usize::from(self.mtu));
            if let Some(mtu) = mtu {
                return Ok(Cut { mtu: mtu as u16, ..cut });
            }
            let fits = packet.headers_in_payload_len() <= self.room(packet);
            let identifiers = self.df_cut.as_mut().filter(|_| fits && may_be_cut_despite_df(packet));
            let id = identifiers.ok_or(Reason::TooBig)?.next(now, packet).ok_or(Reason::NoIdentifier)?;
            return Ok(Cut { id, ..cut });
        }
        if let Some(reason) = uncuttable_piece(packet) {
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
        Ok(Cut { id, ..cut })
    }

    /// Payload that fits into the first piece.
    fn room(&self, packet: &Packet) -> usize {
        let [first, _] = packet.piece_header_lens();
        usize::from(self.mtu).saturating_sub(first) / packet::UNIT * packet::UNIT
    }
}

/// Gives each packet that stands on the wire for this one as a packet of its own, as far as there are buffers; a packet for which
/// there is none ends there.
fn take_singles(packet: Packet, out: &mut Output, mut take: impl FnMut(Packet, &mut Output)) {
    let mut pieces = Pieces::of(&packet);
    while let Some(piece) = pieces.next() {
        match piece.to_packet(&packet, &mut out.pool) {
            Some(single) => take(single, out),
            None => out.ledger.retire(Reason::NoBuffer, lost(&piece, &packet)),
        }
    }
    out.done(packet);
}

/// What a piece that found no buffer counts as.
fn lost(piece: &Piece<'_>, of: &Packet) -> Tally {
    let header_len = match of.cut {
        Some(_) => piece.header.len(),
        None => of.link().len() + usize::from(of.ip().payload_at),
    };
    Tally::new(1, piece.frame_len() - header_len)
}

/// Is it a whole datagram of IPv4 whose sender takes no harm where DF is cleared? TCP's is told, and sends shorter segments.
fn may_be_cut_despite_df(packet: &Packet) -> bool {
    let ip = packet.ip();
    let is_datagram = [packet::ip::UDP, packet::ip::ICMP].contains(&ip.protocol);
    ip.version == Version::V4 && ip.fragment.is_none() && packet.longest_piece().is_none() && is_datagram
}

/// Why a fragment cannot be cut again: its pieces would end past every datagram, or between two units of its offsets.
fn uncuttable_piece(packet: &Packet) -> Option<Reason> {
    let (ip, fragment) = (packet.ip(), packet.ip().fragment?);
    if usize::from(fragment.offset) + ip.payload_len() > ip.payload_len_max() {
        Some(Reason::FragOversize)
    } else if fragment.more && !ip.payload_len().is_multiple_of(packet::UNIT) {
        Some(Reason::FragLenNot8)
    } else {
        None
    }
}

/// Every link of either version takes packets of so many bytes (RFC 8200 section 5).
const MTU_OF_ALL: u16 = 1_280;

/// The counter of what is inside a tunnel.
fn inside(tunnel: Tunnel) -> Event {
    match tunnel {
        Tunnel::Vxlan => Event::InVxlan,
        Tunnel::Geneve => Event::InGeneve,
        Tunnel::Gre => Event::InGre,
        Tunnel::IpInIp => Event::InIp,
        Tunnel::WireGuard => Event::InWireGuard,
        Tunnel::Gtp => Event::InGtp,
        Tunnel::Ipsec => Event::InIpsec,
    }
}

/// Writes the length that an offloading sender left to its card, and the checksum, which may lack it too.
#[inline]
fn finish_len(packet: &mut Packet, out: &mut Output) {
    if !packet.finish_len() {
        return;
    }
    out.ledger.note(Event::LengthFinished, Tally::of(packet));
    note_finished(packet, out);
    packet.finish_checksum();
}

/// Counts a half-filled checksum that is finished, if there is one: now, or on the way out, in each piece of a train.
fn note_finished(packet: &Packet, out: &mut Output) {
    if packet.is_half_filled() {
        out.ledger.note(Event::ChecksumFinished, Tally::of(packet));
    }
}
