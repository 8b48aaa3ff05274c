//! Fragments in, datagrams out (RFC 791, RFC 815, RFC 8200 section 4.5, RFC 5722).
//!
//! Each payload is copied once, to its final place in one buffer. A fragment that continues the run that a hint points
//! at is appended with one compare of the hint, one of the key and one of the offset (C1 to C6, G7); any other order
//! costs a few words more (C9). A repeat is dropped alone; any other overlap ends the datagram and poisons its key until
//! its deadline (RFC 5722 section 4, R063). The transport checksum is carried, not judged.

use crate::fragment::Pieces;
use crate::held::{Handle, Held, Key, Vacancy};
use crate::holes::{Fit, Holes};
use crate::landing::{Landfall, Landing};
use crate::ledger::{Event, Reason, Tally};
use crate::output::Next;
use crate::secret::{Secret, TableKey};
use crate::segment::Piece;
use crate::sink::{CopyPayload, LeavePayload, PayloadSink};
use core::ops::Range;
use core::time::Duration;
use packet::icmp::Complaint;
use packet::{
    Address, Buffer, Content, Cut, Ecn, Ends, Fill, Fragment, Frame, Front, HEADROOM, Hop, Origin, Packet, Places,
    Shape, Time, UNIT, Version,
};

/// Joins fragments into datagrams.
#[derive(Debug)]
pub struct Reassembler {
    held: Held<DatagramKey, State>,
    hints: Box<[Hint]>,
    rates: Box<[Rate]>,
    /// Datagrams that were started, of all pairs. A pair never has more of them than this, so runs in whose time few were
    /// started need no look at its own counters.
    opened: u32,
    /// Per hash of a pair, the payload of its last whole datagram, in bytes: what the next one will need.
    lens: Box<[u16]>,
    /// How long datagrams of each version may wait, the longest first.
    steps: [Steps; 2],
    late: Late,
    /// For tables in which pairs or sources that meet cost each other little.
    spread: TableKey,
    /// The run that a piece was added to last, wherever it is now.
    touched: Handle,
    /// The last datagram that became whole.
    whole: Option<Whole>,
    limit: usize,
    pub(crate) landing: Landing,
}

/// What is known of a datagram that became whole, in bytes.
#[derive(Clone, Copy, Debug)]
struct Whole {
    len: u32,
    /// Length of its longest piece.
    longest: u32,
    link_len: u16,
    header_len: u16,
}

/// What a datagram's pieces are like that are still to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) front: Front,
    /// Payload of each but the last, in bytes.
    pub(crate) step: usize,
    /// The datagram's payload, as far as it can be foreseen, in bytes.
    pub(crate) len: usize,
}

/// How much a reassembler may hold, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of buffers, what they pin counted.
    pub bytes: usize,
    /// How long to wait for a datagram's other pieces; none: 30 s for IPv4, 60 s for IPv6.
    pub patience: Option<Duration>,
}

/// What becomes of a datagram whose pieces did not all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It leaves as fragments of at most `mtu` bytes (IPv6: no less than 1,280) that carry what came; the host behind us decides.
    Release {
        /// Longest fragment, IP header counted, in bytes.
        mtu: u16,
    },
    /// It ends, and its sender is told if its first piece came (RFC 1122 section 3.3.2, R012, R017, R091): for who
    /// stands in the place of the host.
    Retire,
}

/// What makes fragments belong together (RFC 791 section 3.2, R006): never mixed between VLANs or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramKey {
    ends: Ends,
    version: Version,
    protocol: u8,
    id: u32,
    origin: Origin,
    /// Who cut it, where only that one's pieces are joined.
    hop: Option<Hop>,
}

/// Whom datagrams are joined for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toward {
    /// The host that they are for, or its own card.
    Host,
    /// The next hop: what the previous hop cut, and nobody else, is made whole (C15).
    Hop,
}

#[derive(Debug)]
enum State {
    Open(Run),
    /// Ended by overlap; what still comes under its key ends too.
    Poisoned,
}

/// A datagram of which some bytes are missing.
///
/// Invariant: `next` is what is held as long as all of it came in order and more is to come; nothing starts at [`NEVER`].
#[derive(Debug)]
#[repr(C)]
struct Run {
    /// Where a piece starts that goes on in order.
    next: u32,
    /// How far pieces like the last one may reach: by the buffer, and by the length field.
    room: u32,
    /// The shape of the last piece.
    shape: Shape,
    /// How many datagrams had been started before it.
    opened_before: u32,
    packet: Packet,
    holes: Holes,
    pieces: u32,
    /// Has the piece at offset 0 come, and how long was its payload?
    first_len: Option<u16>,
    marks: Marks,
    longest: u32,
    longest_dont_fragment: u32,
    /// Is it rejoined on the way, hop by hop?
    is_on_the_way: bool,
    birth: Birth,
}

/// When a run was opened, in datagrams of its pair: what each of the pair's two counters said.
#[derive(Clone, Copy, Debug)]
struct Birth {
    counters: [u16; 2],
    totals: [u32; 2],
}

/// What is known of a run before it starts.
#[derive(Clone, Copy, Debug)]
struct Opening {
    patience: Duration,
    birth: Birth,
    opened_before: u32,
}

/// Where the fragments with this identification belong.
#[derive(Clone, Copy, Debug)]
struct Hint {
    id: u32,
    at: Handle,
}

/// What became of a piece that may be like the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It takes a closer look.
    Not,
    /// It was taken in.
    Piece,
    /// It was taken in, and nothing is missing now.
    Last,
}

/// How long datagrams of one version may wait, the longest first.
type Steps = [Step; SHORTER.len()];

/// A patience, and with how many new datagrams in a window of [`Rate`] a pair's identifiers last so long.
#[derive(Clone, Copy, Debug)]
struct Step {
    patience: Duration,
    datagrams: u32,
}

/// New datagrams of the pairs that share a hash: of all time, in the running window, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    window: u64,
    total: u32,
    count: u32,
    before: u32,
}

/// The congestion marks seen on a datagram's pieces, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Marks(u8);

impl Reassembler {
    /// A reassembler within these limits. The pool that it draws on must allow more: what is given up keeps its buffer
    /// until the port has sent it.
    pub fn new(limits: Limits, late: Late, secret: Secret) -> Reassembler {
        let whole = limits.patience.map_or(STANDARD_PATIENCES, |patience| [patience; 2]);
        let [v4, v6] = whole;
        let steps = [(v4, V4_ID_BITS), (v6, V6_ID_BITS)]
            .map(|(patience, id_bits)| SHORTER.map(|divisor| Step::new(patience / divisor, id_bits)));
        let mut patiences: Vec<Duration> = steps.as_flattened().iter().map(|step| step.patience).collect();
        patiences.sort();
        patiences.dedup();
        Reassembler {
            held: Held::new(limits.bytes, &patiences, secret),
            hints: vec![Hint { id: 0, at: Handle::NONE }; HINT_COUNT].into_boxed_slice(),
            rates: vec![Rate::default(); 2 * RATE_COUNT].into_boxed_slice(),
            opened: 0,
            lens: vec![0; RATE_COUNT].into_boxed_slice(),
            steps,
            late,
            spread: TableKey::new(secret),
            touched: Handle::NONE,
            whole: None,
            limit: limits.bytes,
            landing: Landing::default(),
        }
    }

    /// Finds what is held by this key; `secret` then only draws what shows outside.
    pub fn with_table_key(mut self, key: Secret) -> Reassembler {
        self.held.set_key(key);
        self
    }

    /// Takes a packet: a fragment is held or completes its datagram, anything else goes on.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        if self.take_alike([&packet], out, &mut CopyPayload) > 0 {
            out.done(packet);
        } else {
            self.push_unlike(now, packet, out, &mut CopyPayload);
        }
    }

    /// Takes in the front ones of these frames that go on where the hint says, as [`push`](Reassembler::push)
    /// would, and returns how many they are; has the processor fetch what those behind them will need.
    #[inline]
    pub fn take_front(&mut self, frames: &[Frame], out: &mut impl Next, sink: &mut impl PayloadSink) -> usize {
        let mut front = frames;
        if self.held.count() > NEAR_COUNT {
            // Each step foresees one packet further, so it takes one.
            self.foresee(|index| frames.get(index)?.packet(), sink);
            front = frames.get(..1).unwrap_or_default();
        }
        self.take_alike(front.iter().map_while(Frame::packet), out, sink)
    }

    /// Takes a packet that goes on nowhere as the one before it did.
    pub fn push_unlike(&mut self, now: Time, packet: Packet, out: &mut impl Next, sink: &mut impl PayloadSink) {
        self.push_toward(Toward::Host, now, packet, out, sink);
    }

    /// Has the processor fetch what the packets behind the next one will need: hints, then runs, then their packets, then
    /// the places of payloads.
    #[inline]
    fn foresee<'p>(&self, ahead: impl Fn(usize) -> Option<&'p Packet>, sink: &impl PayloadSink) {
        if let Some(hint) = ahead(3 * FORESIGHT).and_then(|packet| self.hint_like(packet)) {
            packet::prefetch_value(hint);
        }
        let place_of = |packet: &Packet| {
            let id = packet.ip().fragment?.id;
            self.hint_like(packet).filter(|hint| hint.id == id).map(|hint| hint.at)
        };
        if let Some(at) = ahead(2 * FORESIGHT).and_then(place_of) {
            self.held.foresee(at);
        }
        let run_of = |packet: &Packet| match self.held.glimpse(place_of(packet)?)? {
            (key, State::Open(run)) if key.id == packet.ip().id && key.is_of(packet) => Some(run),
            _ => None,
        };
        if let Some(run) = ahead(FORESIGHT).and_then(run_of) {
            run.packet.foresee();
        }
        if let Some(packet) = ahead(FORESIGHT / 2)
            && let Some(run) = run_of(packet)
            && let Some((start, len)) = run.has_room_for(packet)
        {
            sink.prefetch(run.packet.laid(start, len), packet.payload());
        }
    }

    /// The hint for packets with this one's identification, and others.
    #[inline]
    fn hint_like(&self, packet: &Packet) -> Option<&Hint> {
        self.hints.get(packet.ip().fragment?.id as usize % HINT_COUNT)
    }

    /// Does the same on the way, hop by hop (C15): what two stations cut is not joined, and what becomes whole is cut again
    /// where it is too long. Of an IPv6 datagram no Fragment header is taken out: it leaves in pieces no longer than the
    /// longest that came (R087).
    pub fn push_hop_by_hop(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        self.push_toward(Toward::Hop, now, packet, out, &mut CopyPayload);
    }

    /// Takes in the front ones of these pieces that belong where the hint says that the first one does, as long as each is
    /// like the one before it, and returns how many they are: the fast path (C2, C3, C6). One of the same shape is, in all
    /// that joining looks at but its offset, the piece before it, which was looked at closely.
    #[inline(always)]
    fn take_alike<'p>(
        &mut self,
        pieces: impl IntoIterator<Item = &'p Packet>,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> usize {
        let mut pieces = pieces.into_iter();
        let Some(mut piece) = pieces.next() else { return 0 };
        let Some(first) = piece.ip().fragment else { return 0 };
        let Some(hint) = self.hints.get(first.id as usize % HINT_COUNT) else { return 0 };
        if hint.id != first.id {
            return 0;
        }
        // What lies where the hint says may be another datagram than the hint is of, or one of another round.
        let at = hint.at;
        let Some((key, State::Open(run))) = self.held.look(at) else { return 0 };
        if key.hop.is_some() || self.opened.wrapping_sub(run.opened_before) >= ROUND_MIN {
            return 0;
        }
        self.touched = at;
        let mut taken = 0;
        loop {
            match run.take_alike(key, piece, sink) {
                Taken::Not => return taken,
                Taken::Piece => taken += 1,
                Taken::Last => {
                    self.close(at, out);
                    return taken + 1;
                }
            }
            match pieces.next() {
                Some(next) => piece = next,
                None => return taken,
            }
        }
    }

    #[inline(always)]
    fn push_toward(
        &mut self,
        toward: Toward,
        now: Time,
        packet: Packet,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) {
        let Some(fragment) = packet.ip().fragment else { return out.forward(packet) };
        if fragment.offset == 0 && !fragment.more {
            return match toward {
                Toward::Host => make_whole(packet, out),
                Toward::Hop => out.forward(packet),
            };
        }
        match self.take_in(toward, now, &packet, fragment, out, sink) {
            Ok(()) => out.done(packet),
            Err(reason) => {
                let ended = Tally::of(&packet);
                out.output().retire(packet, ended, reason);
            }
        }
        if self.held.has_surplus() {
            self.make_room(now, out);
        }
    }

    fn make_room(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.surplus() {
            // Who belongs into the reserve is asked when it is needed, which is seldom.
            if !(self.is_promising(at) && self.held.protect(at)) {
                self.give_up(now, at, Event::ReleasedEvicted, Reason::FragEvicted, out);
            }
        }
    }

    /// Is it a datagram whose pieces come in order (C31)?
    fn is_promising(&self, at: Handle) -> bool {
        let Some(State::Open(run)) = self.held.peek(at) else { return false };
        run.pieces >= RESERVE_PIECES && run.holes.in_order()
    }

    /// Gives up what is late.
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.late(now) {
            self.give_up(now, at, Event::ReleasedLate, Reason::FragLate, out);
        }
    }

    /// Gives up everything, the earliest deadline first: the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.oldest() {
            self.give_up(now, at, Event::ReleasedAtEnd, Reason::FragLate, out);
        }
    }

    /// When [`expire`](Reassembler::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.held.next_deadline()
    }

    /// The pieces that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        let mut tally = Tally::NONE;
        let mut buffers = 0;
        for state in self.held.values() {
            if let State::Open(run) = state {
                tally += run.tally();
                buffers += 1;
            }
        }
        (tally, buffers)
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.held.charged()
    }

    /// Steps of the longest search for a datagram by its key (rel:A10).
    pub fn longest_search(&self) -> usize {
        self.held.longest_search()
    }

    /// The run that a fragment belongs to, where the hint says so.
    #[inline]
    fn hinted(&mut self, piece: &Packet, fragment: Fragment) -> Option<Handle> {
        let at = self.hint(fragment.id).at;
        let (key, _) = self.held.look(at)?;
        (key.id == fragment.id && key.hop.is_none() && key.is_of_kind(piece) && key.is_of(piece)).then_some(at)
    }

    /// Copies a fragment's payload to its place, or says why the fragment ends.
    fn take_in(
        &mut self,
        toward: Toward,
        now: Time,
        piece: &Packet,
        fragment: Fragment,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Reason> {
        if let Some((reason, complaint)) = unusable(piece, fragment) {
            if let Some(complaint) = complaint {
                out.output().answer(now, complaint, piece);
            }
            return Err(reason);
        }
        if toward == Toward::Host
            && let Some(at) = self.hinted(piece, fragment)
            && !self.came_round(at, piece)
        {
            return self.join(at, piece, fragment, out, sink);
        }
        let hop = (toward == Toward::Hop).then(|| piece.previous_hop());
        let key = DatagramKey { hop, ..DatagramKey::of(piece, fragment) };
        let mut sought = self.held.seek(&key);
        if let Err(at) = sought
            && self.came_round(at, piece)
        {
            self.give_up(now, at, Event::ReleasedLate, Reason::FragLate, out);
            sought = self.held.seek(&key);
        }
        match sought {
            Ok(vacancy) => self.open(now, vacancy, key, piece, fragment, out, sink),
            Err(at) => self.join(at, piece, fragment, out, sink),
        }
    }

    /// Starts a run with the first piece that came.
    #[expect(clippy::too_many_arguments, reason = "all that is known of a first piece")]
    #[inline]
    fn open(
        &mut self,
        now: Time,
        vacancy: Vacancy,
        key: DatagramKey,
        piece: &Packet,
        fragment: Fragment,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Reason> {
        let opening = self.count_opened(now, &key, piece);
        let end = usize::from(fragment.offset) + piece.ip().payload_len();
        let len = end.max(self.usual_len(opening.birth.counters));
        let buffer = out.pool().lend(len).ok_or(Reason::NoBuffer)?;
        self.start(now, vacancy, key, opening, piece, fragment, buffer, sink);
        Ok(())
    }

    /// Counts a datagram that is started, wherever its pair's counters have it, too: before it may end for want of memory.
    #[inline(always)]
    fn count_opened(&mut self, now: Time, key: &DatagramKey, piece: &Packet) -> Opening {
        let (patience, birth) = self.patience_for(now, key, piece);
        let opened_before = self.opened;
        self.opened = opened_before.wrapping_add(1);
        Opening { patience, birth, opened_before }
    }

    /// Starts a run in this buffer.
    #[expect(clippy::too_many_arguments, reason = "all that is known of a first piece")]
    #[inline(always)]
    fn start(
        &mut self,
        now: Time,
        vacancy: Vacancy,
        key: DatagramKey,
        Opening { patience, birth, opened_before }: Opening,
        piece: &Packet,
        fragment: Fragment,
        buffer: Buffer,
        sink: &mut impl PayloadSink,
    ) {
        let start = usize::from(fragment.offset);
        let range = start..start + piece.ip().payload_len();
        let charge = buffer.pinned_len();
        let mut packet = Packet::open(piece, buffer);
        sink.bring(packet.laid_mut(start, range.len()), piece.payload());
        let run = Run::new(packet, piece, &range, fragment, key.hop.is_some(), opened_before, birth);
        let at = self.held.fill(now, vacancy, key, State::Open(run), charge, patience);
        *self.hint(fragment.id) = Hint { id: fragment.id, at };
        self.touched = at;
    }

    /// Adds a piece to the run it belongs to.
    fn join(
        &mut self,
        at: Handle,
        piece: &Packet,
        fragment: Fragment,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Reason> {
        let State::Open(run) = self.held.at_mut(at) else { return Err(Reason::FragPoisoned) };
        let start = usize::from(fragment.offset);
        let range = start..start + piece.ip().payload_len();
        let goes_on = run.next as usize == start;
        match if goes_on { Fit::Fills } else { run.fit(&range, fragment) } {
            Fit::Fills => {}
            Fit::Held if run.packet.laid(start, range.len()) == piece.payload() => return Err(Reason::FragRepeat),
            Fit::Held | Fit::Overlaps => return Err(self.end(at, Reason::FragOverlap, out)),
            Fit::Contradicts => return Err(self.end(at, Reason::FragConflict, out)),
        }
        if range.end > run.packet.capacity() {
            self.grow(at, range.end, out)?;
        }
        let State::Open(run) = self.held.at_mut(at) else { return Err(Reason::FragPoisoned) };
        sink.bring(run.packet.laid_mut(start, range.len()), piece.payload());
        run.take(piece, fragment, range);
        if run.holes.is_whole() || run.is_oversize() {
            self.close(at, out);
            return Ok(());
        }
        run.expect_like(piece);
        *self.hint(fragment.id) = Hint { id: fragment.id, at };
        self.touched = at;
        Ok(())
    }

    /// Sends a run on that has become whole.
    fn close(&mut self, at: Handle, out: &mut impl Next) {
        let State::Open(run) = self.held.at_mut(at) else { return };
        if run.is_oversize() {
            self.end(at, Reason::FragOversize, out);
            return;
        }
        let Some(ecn) = run.marks.joined(run.packet.ip().ecn) else {
            self.held.remove(at).retire(Reason::FragEcnMix, out);
            return;
        };
        // As long as a piece came with DF, the datagram may not be cut finer than its longest one (rel:C8).
        let dont_fragment = run.longest_dont_fragment == run.longest;
        run.packet.close(run.holes.held_len(), ecn, dont_fragment, run.longest);
        if run.stays_cut() {
            let cut = run.cut(run.longest as u16, Content::Whole);
            run.packet.cut = Some(cut);
        }
        if run.packet.is_neighbour_discovery() {
            return self.held.remove(at).retire(Reason::FragNeighbour, out);
        }
        self.whole = Some(Whole {
            len: run.holes.held_len() as u32,
            longest: run.longest,
            link_len: run.packet.link_len() as u16,
            header_len: run.packet.ip().header_len,
        });
        let (tally, [counter, _]) = (run.tally(), run.birth.counters);
        if let Some(known) = self.lens.get_mut(usize::from(counter)) {
            *known = run.holes.held_len() as u16;
        }
        out.ledger().note(Event::Absorbed, tally);
        out.ledger().note(Event::Reassembled, Tally { packets: 1, ..tally });
        if let State::Open(run) = self.held.remove(at) {
            out.forward(run.packet);
        }
    }

    /// Ends a datagram, for this reason; its key stays until its deadline.
    fn end(&mut self, at: Handle, reason: Reason, out: &mut impl Next) -> Reason {
        core::mem::replace(self.held.at_mut(at), State::Poisoned).retire(reason, out);
        self.held.charge(at, POISON_CHARGE);
        reason
    }

    /// Gives a datagram up: for time, for memory, or because the input has ended.
    fn give_up(&mut self, now: Time, at: Handle, event: Event, reason: Reason, out: &mut impl Next) {
        let State::Open(run) = self.held.at_mut(at) else {
            self.held.remove(at);
            return;
        };
        let tally = run.tally();
        match self.late {
            Late::Release { mtu } => {
                run.release(mtu.max(run.packet.ip().mtu_min() as u16));
                out.ledger().note(Event::Absorbed, tally);
                out.ledger().note(event, Tally { packets: 1, ..tally });
            }
            Late::Retire => {
                if reason == Reason::FragLate
                    && let Some(first) = run.first_piece(out)
                {
                    out.output().answer(now, Complaint::ReassemblyTime, &first);
                    out.done(first);
                }
            }
        }
        if let State::Open(run) = self.held.remove(at) {
            match self.late {
                Late::Release { .. } => out.forward(run.packet),
                Late::Retire => {
                    // Where memory is short, its buffer is the next one to be lent; it has not been touched for long.
                    packet::prefetch_lines(run.packet.laid(0, run.packet.capacity()), NARROW_LINES);
                    out.output().retire(run.packet, tally, reason);
                }
            }
        }
    }

    /// Moves a run to a larger buffer.
    fn grow(&mut self, at: Handle, len: usize, out: &mut impl Next) -> Result<(), Reason> {
        let larger = out.pool().lend(len).ok_or(Reason::NoBuffer)?;
        let State::Open(run) = self.held.at_mut(at) else { panic!("only an open run grows") };
        let smaller = run.packet.grow(larger, run.holes.top());
        out.pool().give(smaller);
        let charge = run.packet.pinned_len();
        self.held.charge(at, charge);
        Ok(())
    }

    /// How long to wait for this datagram: shorter where its pair's identifiers come round sooner, so that two datagrams
    /// of one identifier are never held together (X2, RFC 4963 section 2, R060).
    #[inline(always)]
    fn patience_for(&mut self, now: Time, key: &DatagramKey, piece: &Packet) -> (Duration, Birth) {
        let counters = self.counters_of(key);
        let window = now.nanos() / RATE_WINDOW.as_nanos() as u64;
        let [(count, total), (other_count, other_total)] =
            counters.map(|at| self.rates.get_mut(at).map_or((0, 0), |rate| rate.count(window)));
        let birth = Birth { counters: counters.map(|at| at as u16), totals: [total, other_total] };
        let datagrams = count.min(other_count);
        let [v4, v6] = &self.steps;
        let steps = if piece.ip().version == Version::V4 { v4 } else { v6 };
        let [.., shortest] = steps;
        let step = steps.iter().find(|step| datagrams <= step.datagrams).unwrap_or(shortest);
        (step.patience, birth)
    }

    /// Where the datagrams of a key's pair are counted: each counter may count other pairs too, but never fewer than this one,
    /// so the lower is nearer. A fast pair spoils one of another's counters, hardly ever both.
    #[inline(always)]
    fn counters_of(&self, key: &DatagramKey) -> [usize; 2] {
        let [e0, e1, e2, e3] = key.ends.words();
        let what = u64::from(key.protocol) | (key.version as u64) << 8;
        let pair = if e1 | e2 | e3 == 0 {
            self.spread.hash([e0, what])
        } else {
            self.spread.hash([e0, e1, e2, e3, what, 0])
        };
        [pair as usize % RATE_COUNT, RATE_COUNT + (pair >> 32) as usize % RATE_COUNT]
    }

    fn totals(&self, counters: [usize; 2]) -> [u32; 2] {
        counters.map(|at| self.rates.get(at).map_or(0, |rate| rate.total))
    }

    /// Has the pair sent so many datagrams since this run was opened that its identifier may be another's? Where a pair
    /// becomes fast, what came before was promised more patience than its identifiers last.
    fn came_round(&mut self, at: Handle, piece: &Packet) -> bool {
        let State::Open(Run { birth, .. }) = *self.held.at_mut(at) else { return false };
        let totals = self.totals(birth.counters.map(usize::from));
        totals.iter().zip(birth.totals).all(|(total, then)| total.wrapping_sub(then) >= half_a_round(piece))
    }

    fn usual_len(&self, counters: [u16; 2]) -> usize {
        let [at, _] = counters;
        self.lens.get(usize::from(at)).map_or(0, |len| usize::from(*len))
    }

    fn hint(&mut self, id: u32) -> &mut Hint {
        match self.hints.get_mut(id as usize % HINT_COUNT) {
            Some(hint) => hint,
            None => panic!("a remainder is below its divisor"),
        }
    }
}

/// What a guess of the next fragments asks, and how its places are taken; see [`land`](crate::land).
impl Reassembler {
    /// The run that was touched last, where its next piece starts, and what is to come of it; none where it has gaps or is
    /// gone.
    pub(crate) fn goes_on(&self) -> Option<(Handle, usize, Ahead)> {
        let (key, State::Open(run)) = self.held.glimpse(self.touched)? else { return None };
        if key.hop.is_some() || run.next == NEVER {
            return None;
        }
        let [first, later] = run.packet.piece_header_lens();
        let front = Front { link_len: run.packet.link_len(), header_len: first };
        let step = (run.longest as usize).checked_sub(first).filter(|_| first == later)?;
        let (next, room) = (run.next as usize, run.room as usize);
        let len = match self.usual_len(run.birth.counters) {
            // Nobody knows how long it becomes.
            usual if usual <= next => next + room.saturating_sub(next) / step.max(1) * step,
            usual => usual.min(room),
        };
        Some((self.touched, next, Ahead { front, step, len }))
    }

    /// What a datagram's pieces will be like if it is like the last one that became whole.
    pub(crate) fn again(&self) -> Option<Ahead> {
        let Whole { len, longest, link_len, header_len } = self.whole?;
        let header_len = usize::from(header_len);
        // The Fragment header was taken out.
        let header_len = if header_len == V6_HEADER_LEN { header_len + V6_FRAGMENT_LEN } else { header_len };
        let step = (longest as usize).checked_sub(header_len)?;
        Some(Ahead { front: Front { link_len: link_len.into(), header_len }, step, len: len as usize })
    }

    /// Forgets what was seen last: nothing is to be concluded from it again.
    pub(crate) fn forget_last(&mut self) {
        (self.touched, self.whole) = (Handle::NONE, None);
    }

    /// Bytes that lie in a run, or would.
    pub(crate) fn laid(&self, at: Handle, range: Range<usize>) -> &[u8] {
        match self.held.peek(at) {
            Some(State::Open(run)) => run.packet.laid(range.start, range.len()),
            _ => panic!("a place is good as long as its run is held"),
        }
    }

    /// The places that are drawn up.
    pub(crate) fn places(&mut self) -> Option<Places<'_>> {
        let Landing { grid, rest, fresh, current, taken_count, .. } = &mut self.landing;
        let rest: &mut [u8] = match current.and_then(|(_, at)| self.held.look(at)) {
            Some((_, State::Open(run))) => run.packet.laid_mut(rest.start, rest.len()),
            _ => &mut [],
        };
        Some(Places::new((*grid)?, rest, fresh, taken_count))
    }

    /// Takes the run that this packet belongs to for the one that was touched last.
    pub(crate) fn turn_to(&mut self, next: &Packet) {
        let known = |fragment: Fragment| {
            self.hinted(next, fragment).or_else(|| self.held.find(&DatagramKey::of(next, fragment)))
        };
        self.touched = next.ip().fragment.and_then(known).unwrap_or(Handle::NONE);
    }

    /// Could so much more be charged without giving anything up?
    pub(crate) fn has_room_for(&self, charge: usize) -> bool {
        self.held.charged() + charge <= self.limit
    }

    /// Takes in a piece whose payload lies at `start` in this run, if it belongs there and is like the one before it.
    pub(crate) fn take_landed(&mut self, at: Handle, start: usize, piece: &Packet) -> Landfall {
        let Some((key, State::Open(run))) = self.held.look(at) else { return Landfall::Wrong };
        let is_round = self.opened.wrapping_sub(run.opened_before) >= ROUND_MIN;
        if run.next as usize != start || key.hop.is_some() || is_round || !key.is_of_kind(piece) {
            return Landfall::Wrong;
        }
        match run.take_alike(key, piece, &mut LeavePayload) {
            Taken::Not => return Landfall::Wrong,
            Taken::Piece => {}
            Taken::Last => return Landfall::Last,
        }
        self.touched = at;
        Landfall::Piece
    }

    /// Takes in pieces whose payloads lie behind that of the piece that was taken in last, which they are like, as many as there
    /// is room for, and says how many that is.
    pub(crate) fn take_more_landed(&mut self, at: Handle, len: usize, count: impl FnOnce(usize) -> usize) -> usize {
        match self.held.look(at) {
            Some((_, State::Open(run))) => run.take_more_alike(len, count),
            _ => 0,
        }
    }

    /// Starts a run with a first piece whose payload lies in this buffer, if it is one, and the buffer what it would have been
    /// lent.
    ///
    /// # Errors
    /// The buffer.
    pub(crate) fn open_landed(&mut self, now: Time, piece: &Packet, buffer: Buffer) -> Result<Handle, Buffer> {
        let Some(fragment) = piece.ip().fragment.filter(|it| it.offset == 0 && it.more) else { return Err(buffer) };
        let charge = buffer.pinned_len();
        // Nothing is given up for a guess.
        if unusable(piece, fragment).is_some() || !self.has_room_for(charge) {
            return Err(buffer);
        }
        let key = DatagramKey::of(piece, fragment);
        let counters = self.counters_of(&key).map(|at| at as u16);
        let len = piece.ip().payload_len().max(self.usual_len(counters));
        let Ok(vacancy) = self.held.seek(&key) else { return Err(buffer) };
        if Buffer::pinned_len_for(len) != charge {
            return Err(buffer);
        }
        let opening = self.count_opened(now, &key, piece);
        self.start(now, vacancy, key, opening, piece, fragment, buffer, &mut LeavePayload);
        Ok(self.touched)
    }

    /// Sends a run on whose last piece has landed.
    pub(crate) fn close_landed(&mut self, at: Handle, out: &mut impl Next) {
        self.close(at, out);
    }
}

impl Run {
    /// A run that holds the first piece that came, which is laid in `packet`.
    #[inline(always)]
    fn new(
        mut packet: Packet,
        piece: &Packet,
        range: &Range<usize>,
        fragment: Fragment,
        is_on_the_way: bool,
        opened_before: u32,
        birth: Birth,
    ) -> Run {
        let ip = piece.ip();
        let holes = if range.start == 0 {
            Holes::behind(range.end)
        } else {
            Holes::around(range, fragment.more, packet.map_mut())
        };
        Run {
            next: next(&holes),
            room: room(&packet, piece),
            shape: ip.shape,
            opened_before,
            packet,
            holes,
            pieces: 1,
            first_len: (range.start == 0).then_some(range.end as u16),
            marks: Marks(1 << ip.ecn.bits()),
            longest: ip.len,
            longest_dont_fragment: if ip.dont_fragment { ip.len } else { 0 },
            is_on_the_way,
            birth,
        }
    }

    /// Takes in a piece that goes on in order, or fills a hole behind the first one, where it is like the one before it.
    #[inline(always)]
    fn take_alike(&mut self, key: &DatagramKey, piece: &Packet, sink: &mut impl PayloadSink) -> Taken {
        let ip = piece.ip();
        let Some(fragment) = ip.fragment else { return Taken::Not };
        let (start, len) = (usize::from(fragment.offset), ip.payload_len());
        let end = start + len;
        if fragment.id != key.id || end > self.room as usize || !key.is_of(piece) {
            return Taken::Not;
        }
        if !self.shape.is_same(ip.shape) {
            let fits = len > 0 && (!fragment.more || len.is_multiple_of(UNIT));
            if !fits || !self.shape.is_like(ip.shape) {
                return Taken::Not;
            }
        }
        if self.next as usize == start {
            self.holes.extend(len, fragment.more);
            self.next = if fragment.more { end as u32 } else { NEVER };
        } else if start == 0 || !self.holes.fill_between(self.packet.map_mut(), &(start..end), fragment.more) {
            return Taken::Not;
        }
        if !self.shape.is_same(ip.shape) {
            self.see(piece);
            self.shape = ip.shape;
        }
        sink.bring(self.packet.laid_mut(start, len), piece.payload());
        self.pieces += 1;
        if self.holes.is_whole() { Taken::Last } else { Taken::Piece }
    }

    /// Takes in pieces of this length that are like the last one, go on in order and lie in their places; `count` says how many
    /// there are, of at most so many.
    fn take_more_alike(&mut self, len: usize, count: impl FnOnce(usize) -> usize) -> usize {
        let Some(count_max) = self.room.saturating_sub(self.next).checked_div(len as u32) else { return 0 };
        let count = count(count_max as usize);
        let all_len = len * count;
        if count > 0 {
            self.holes.extend(all_len, true);
            self.next += all_len as u32;
            self.pieces += count as u32;
        }
        count
    }

    /// Where in the datagram a piece lies, and how many bytes it is, if the buffer takes it.
    #[inline]
    fn has_room_for(&self, piece: &Packet) -> Option<(usize, usize)> {
        let (start, len) = (usize::from(piece.ip().fragment?.offset), piece.ip().payload_len());
        (start + len <= self.packet.capacity()).then_some((start, len))
    }

    fn fit(&self, range: &Range<usize>, fragment: Fragment) -> Fit {
        self.holes.fit(self.packet.map(), range, fragment.more)
    }

    /// Takes in a piece that fills a hole.
    fn take(&mut self, piece: &Packet, fragment: Fragment, range: Range<usize>) {
        if range.start == 0 {
            self.packet.take_headers(piece);
            self.first_len = Some(range.len() as u16);
        }
        if self.next as usize == range.start {
            self.holes.extend(range.len(), fragment.more);
        } else {
            self.holes.fill(self.packet.map_mut(), &range, fragment.more);
        }
        self.next = next(&self.holes);
        self.pieces += 1;
        self.see(piece);
    }

    /// Takes pieces like this one for what comes next.
    #[inline(always)]
    fn expect_like(&mut self, piece: &Packet) {
        self.shape = piece.ip().shape;
        self.room = room(&self.packet, piece);
    }

    /// Takes note of what a piece's header says.
    #[inline(always)]
    fn see(&mut self, piece: &Packet) {
        let ip = piece.ip();
        self.marks.see(ip.ecn);
        self.longest = self.longest.max(ip.len);
        if ip.dont_fragment {
            self.longest_dont_fragment = self.longest_dont_fragment.max(ip.len);
        }
    }

    /// Would the whole datagram be longer than its length field can say, with the header of the piece that starts it
    /// (rel:A01, R069)?
    fn is_oversize(&self) -> bool {
        self.first_len.is_some() && self.holes.top() > self.packet.ip().payload_len_max()
    }

    fn tally(&self) -> Tally {
        Tally::new(self.pieces as usize, self.holes.held_len())
    }

    /// Makes the run a packet that leaves in fragments which carry what came.
    fn release(&mut self, mtu: u16) {
        let content = if self.holes.in_order() { Content::Whole } else { Content::Sparse };
        let cut = self.cut(mtu, content);
        let ecn = self.marks.released(self.packet.ip().ecn);
        self.packet.release(self.holes.top(), !self.holes.has_end(), ecn, cut);
    }

    /// Must it leave in pieces no longer than came? On the way, what no router may cut (rel:C8, R087).
    fn stays_cut(&self) -> bool {
        let has_dont_fragment = self.longest_dont_fragment == self.longest;
        self.is_on_the_way && (has_dont_fragment || !self.packet.ip().may_grow_on_the_way())
    }

    /// The cut into pieces of at most `mtu` bytes, and no longer than came where it must stay cut.
    fn cut(&self, mtu: u16, content: Content) -> Cut {
        let header_len = self.packet.piece_header_lens().into_iter().max().unwrap_or_default();
        let longest = (self.longest as usize).max(header_len + UNIT) as u16;
        let mtu = if self.stays_cut() { mtu.min(longest) } else { mtu };
        Cut { mtu, id: self.packet.ip().id, fill: Fill::Full, content }
    }

    /// The piece that started the datagram, built again, for the error that quotes it.
    fn first_piece(&mut self, out: &mut impl Next) -> Option<Packet> {
        let first_len = self.first_len?;
        let [header_len, _] = self.packet.piece_header_lens();
        self.release((header_len + usize::from(first_len)) as u16);
        let mut pieces = Pieces::of(&self.packet);
        let Piece { header, payload } = pieces.next()?;
        let link = self.packet.link_header();
        let frame_len = header.len() + payload.len();
        let mut buffer = out.pool().lend(frame_len - link.len)?;
        buffer.put(HEADROOM - link.len, header);
        buffer.put(HEADROOM - link.len + header.len(), payload);
        match Frame::parse(buffer, frame_len, link, self.packet.ingress()) {
            Frame::Ip(packet) => Some(packet),
            Frame::Other(..) => panic!("a piece that we cut parses"),
        }
    }
}

impl State {
    fn retire(self, reason: Reason, out: &mut impl Next) {
        if let State::Open(run) = self {
            let ended = run.tally();
            out.output().retire(run.packet, ended, reason);
        }
    }
}

impl DatagramKey {
    /// The key of any hop's pieces.
    pub(crate) fn of(piece: &Packet, fragment: Fragment) -> DatagramKey {
        DatagramKey {
            ends: piece.ends(),
            version: piece.ip().version,
            protocol: piece.ip().key_protocol(),
            id: fragment.id,
            origin: piece.origin(),
            hop: None,
        }
    }

    /// Is it for pieces of this version and protocol?
    fn is_of_kind(&self, piece: &Packet) -> bool {
        self.version == piece.ip().version && self.protocol == piece.ip().key_protocol()
    }

    /// Is it the key of this piece, whose identification, version, protocol and hop are looked at elsewhere?
    #[inline(always)]
    fn is_of(&self, piece: &Packet) -> bool {
        piece.has_ends(&self.ends) && piece.origin() == self.origin
    }

    /// What it shares with the other datagrams of its flow.
    pub(crate) fn flow(self) -> DatagramKey {
        DatagramKey { id: 0, ..self }
    }
}

impl Key for DatagramKey {
    fn source(&self) -> Address {
        self.ends.source(self.version)
    }

    fn hash(&self, table: &TableKey) -> u64 {
        let [e0, e1, e2, e3] = self.ends.words();
        let [origin, port] = self.origin.words();
        let what = u64::from(self.id) | u64::from(self.protocol) << 32 | (self.version as u64) << 40;
        let hop = self.hop.map_or(0, |hop| hop.number().wrapping_add(1));
        table.hash([e0, e1, e2, e3, what, origin, port, hop])
    }
}

impl Step {
    /// The step of so long a patience, where identifiers have so many bits: half of them may come in it.
    fn new(patience: Duration, id_bits: u32) -> Step {
        let windows = patience.as_nanos().div_ceil(RATE_WINDOW.as_nanos()).max(1);
        let datagrams = (1 << (id_bits - 1)) / windows;
        Step { patience, datagrams: u32::try_from(datagrams).unwrap_or(u32::MAX) }
    }
}

impl Rate {
    /// Counts a datagram; returns how many came in a window, by the busier of the last two, and of all time.
    #[inline(always)]
    fn count(&mut self, window: u64) -> (u32, u32) {
        if window != self.window {
            self.before = if window == self.window + 1 { self.count } else { 0 };
            (self.window, self.count) = (window, 0);
        }
        self.total = self.total.wrapping_add(1);
        self.count = self.count.saturating_add(1);
        (self.count.max(self.before), self.total)
    }
}

impl Marks {
    fn see(&mut self, ecn: Ecn) {
        self.0 |= 1 << ecn.bits();
    }

    /// The mark of the whole: one that all pieces share; congestion where one of those that take part met it; none
    /// where some take part and some do not (RFC 3168 section 5.3, R042).
    fn joined(self, first: Ecn) -> Option<Ecn> {
        let seen = |ecn: Ecn| self.0 & 1 << ecn.bits() != 0;
        match (seen(Ecn::NotEct), seen(Ecn::Ce)) {
            (true, _) if self.0 == 1 => Some(Ecn::NotEct),
            (true, _) => None,
            (false, true) => Some(Ecn::Ce),
            (false, false) => Some(first),
        }
    }

    /// The mark of pieces that are released: congestion where one of them met it, so that none loses it. Where some take part and some
    /// do not, the host behind us judges.
    fn released(self, first: Ecn) -> Ecn {
        let has_ce = self.0 & 1 << Ecn::Ce.bits() != 0;
        if has_ce { Ecn::Ce } else { self.joined(first).unwrap_or(first) }
    }
}

/// Datagrams after which a pair's identifiers are half used up.
fn half_a_round(piece: &Packet) -> u32 {
    1 << (piece.ip().id_bits() - 1)
}

/// Why a fragment is of no use, and what its sender is to be told; before any state is touched.
pub(crate) fn unusable(packet: &Packet, fragment: Fragment) -> Option<(Reason, Option<Complaint>)> {
    let ip = packet.ip();
    let len = ip.payload_len();
    if len == 0 {
        Some((Reason::FragZeroLen, None))
    } else if fragment.more && !len.is_multiple_of(UNIT) {
        // RFC 8200 section 4.5 (R089): the payload length is what is wrong.
        Some((Reason::FragLenNot8, Some(Complaint::BadField { pointer: PAYLOAD_LEN_AT })))
    } else if usize::from(fragment.offset) + len > ip.payload_len_max() {
        // RFC 8200 section 4.5 (R090): the offset is what is wrong.
        let pointer = u32::from(ip.header_len) + OFFSET_AT;
        Some((Reason::FragOversize, Some(Complaint::BadField { pointer })))
    } else if packet.lacks_headers() {
        Some((Reason::FragHeadersCut, Some(Complaint::HeadersCut)))
    } else if ip.option_misplaced {
        Some((Reason::FragOption, None))
    } else {
        None
    }
}

/// An atomic fragment is a whole datagram, whatever else is held under its key (RFC 6946 section 4, R081).
fn make_whole(mut packet: Packet, out: &mut impl Next) {
    if packet.is_neighbour_discovery() {
        let ended = Tally::of(&packet);
        return out.output().retire(packet, ended, Reason::FragNeighbour);
    }
    packet.make_whole();
    out.ledger().note(Event::MadeWhole, Tally::of(&packet));
    out.forward(packet);
}

/// How far a piece may reach that is like this one: in the buffer, behind the first header, and behind its own; in bytes.
#[inline(always)]
fn room(packet: &Packet, piece: &Packet) -> u32 {
    let len_max = packet.ip().payload_len_max().min(piece.ip().payload_len_max());
    packet.capacity().min(len_max) as u32
}

/// Where the piece starts that goes on in order.
#[inline(always)]
fn next(holes: &Holes) -> u32 {
    if holes.in_order() && !holes.has_end() { holes.held_len() as u32 } else { NEVER }
}

/// Runs whose place is remembered, by the low bits of their identifications.
const HINT_COUNT: usize = 16_384;
/// Packets between a wish and its use, so that what is wished for comes from far memory meanwhile.
const FORESIGHT: usize = 4;
/// Datagrams that stay near the processor without being wished for.
const NEAR_COUNT: usize = 256;
/// Lines of memory that a narrow packet takes.
const NARROW_LINES: usize = 24;
/// The offset of nothing.
const NEVER: u32 = u32::MAX;
/// Fewer datagrams than this use up less than half of any version's identifiers.
const ROUND_MIN: u32 = 1 << (V4_ID_BITS - 1);
/// Entries of the tables that are found by a hash of a source or a pair; for pairs there are two.
const RATE_COUNT: usize = 1_024;
/// Stretch in which new datagrams of a pair are counted.
const RATE_WINDOW: Duration = Duration::from_millis(100);
/// Patiences of IPv4 and IPv6, whole and shortened by these divisors for pairs with fast identifiers.
const STANDARD_PATIENCES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Bits of identifiers.
const V4_ID_BITS: u32 = 16;
/// See [`V4_ID_BITS`].
const V6_ID_BITS: u32 = 32;
/// See [`STANDARD_PATIENCES`].
const SHORTER: [u32; 4] = [1, 8, 64, 512];
/// Pieces in order that take a datagram into the reserve (C31).
const RESERVE_PIECES: u32 = 2;
/// What a poisoned key is charged, in bytes: its slot, its source and their places in tables.
const POISON_CHARGE: usize = 512;
/// Length of an IPv6 header, and of a Fragment header, in bytes.
const V6_HEADER_LEN: usize = 40;
/// See [`V6_HEADER_LEN`].
const V6_FRAGMENT_LEN: usize = 8;
/// Where the payload length stands in an IPv6 header, and the offset in a Fragment header.
const PAYLOAD_LEN_AT: u32 = 4;
/// See [`PAYLOAD_LEN_AT`].
const OFFSET_AT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;
    use fastrand::Rng;
    use packet::{Ingress, Medium, Pool, Sum};
    use std::collections::HashSet;

    #[test]
    fn hints_and_batches_change_nothing_that_can_be_seen() {
        for seed in 0..60 {
            let mut random = Rng::with_seed(seed);
            let limits = Limits {
                bytes: *random.choice(&[8_000, 60_000, 1 << 28]).unwrap(),
                patience: random.bool().then_some(Duration::from_millis(400)),
            };
            let late = *random.choice(&[Late::Retire, Late::Release { mtu: 1_280 }]).unwrap();
            let ways = [Way::Each, Way::Closely, Way::Batches];
            let mut halves = ways.map(|way| Half::new(limits, late, way));
            let crowd = *random.choice(&[2, 20, 500]).unwrap();
            let mut now = Time::from_nanos(1_000_000_000);
            for step in 0..60 {
                if random.u8(..4) == 0 {
                    now = now + Duration::from_millis(random.u64(1..300));
                }
                let frames: Vec<Vec<u8>> =
                    (0..random.usize(1..80)).map(|_| piece(crowd, step, &mut random)).collect();
                let [each, closely, batches] = halves.each_mut().map(|half| half.step(now, &frames));
                assert!(each == closely, "seed {seed}, step {step}, closely:\n{each}\n{closely}");
                assert!(each == batches, "seed {seed}, step {step}, in batches:\n{each}\n{batches}");
            }
            for half in &mut halves {
                half.reassembler.flush(now, &mut half.out);
                half.drain();
                assert_eq!(half.out.pool.lent_count(), 0, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_hint_does_not_outlive_a_round_of_identifiers() {
        let limits = Limits { bytes: 1 << 28, patience: None };
        let mut half = Half::new(limits, Late::Retire, Way::Each);
        let now = Time::from_nanos(1_000_000_000);
        let first = v4(1, 5, 0, true, 0, &[7; 64]);
        half.step(now, &[first]);
        // One that could go on in order, for as long as half of all identifiers have not been used since.
        for id in 0..ROUND_MIN - 1 {
            let id = (10_000 + id) as u16;
            half.step(now, &[v4(1, id, 0, true, 0, &[1; 64]), v4(1, id, 64, false, 0, &[1; 64])]);
        }
        let more = v4(1, 5, 64, true, 0, &[8; 64]);
        half.step(now, &[more]);
        assert_eq!(half.reassembler.held().0.packets, 2, "it goes on");
        half.step(now, &[v4(1, 6, 0, true, 0, &[1; 64]), v4(1, 6, 64, false, 0, &[1; 64])]);
        half.step(now, &[v4(1, 5, 128, true, 0, &[9; 64])]);
        assert_eq!(half.reassembler.held().0.packets, 1, "it is of another datagram");
        assert_eq!(half.out.ledger.retired(Reason::FragLate).packets, 2);
    }

    #[test]
    fn a_hint_to_what_is_joined_for_a_hop_is_not_one_for_the_host() {
        let limits = Limits { bytes: 1 << 28, patience: None };
        let mut half = Half::new(limits, Late::Retire, Way::Each);
        let now = Time::from_nanos(1_000_000_000);
        let [first, second] = [0, 64].map(|offset| {
            Frame::copy(&v4(1, 5, offset, true, 0, &[7; 64]), Medium::Ip, Ingress(0), &mut half.out.pool).unwrap()
        });
        half.reassembler.push_hop_by_hop(now, first, &mut half.out);
        half.reassembler.push(now, second, &mut half.out);
        assert_eq!(half.reassembler.held().1, 2, "two runs");
    }

    #[test]
    fn a_pair_is_counted_twice_where_hardly_another_one_is() {
        let mut half = Half::new(Limits { bytes: 1 << 28, patience: None }, Late::Retire, Way::Each);
        let (mut seen, mut both) = ([[0; RATE_COUNT], [0; RATE_COUNT]], HashSet::new());
        for (source, destination) in
            (0..64).flat_map(|source| (0..64).map(move |destination| (source, destination)))
        {
            let mut piece = v4(1, 0, 0, true, 0, &[7; 64]);
            (piece[15], piece[19]) = (source, destination);
            let counters = half.counters_of(&mended(piece));
            seen[0][counters[0]] += 1;
            seen[1][counters[1] - RATE_COUNT] += 1;
            both.insert(counters);
        }
        for counts in seen {
            // Of 4,096 drawn pairs a counter has four in the mean, and one in 55 has none.
            assert!(counts.iter().filter(|count| **count == 0).count() < 60, "{counts:?}");
            assert!(counts.iter().all(|count| *count < 20), "{counts:?}");
        }
        // In a million places, 4,096 meet eight times.
        assert!(both.len() > 4_070, "{} of 4,096 pairs have counters of their own", both.len());
    }

    #[test]
    fn protocols_and_versions_and_every_part_of_an_address_tell_pairs_apart() {
        let mut half = Half::new(Limits { bytes: 1 << 28, patience: None }, Late::Retire, Way::Each);
        let protocols: HashSet<_> = (0..=255)
            .map(|protocol| {
                let mut piece = v4(1, 0, 0, true, 0, &[7; 64]);
                piece[9] = protocol;
                half.counters_of(&mended(piece))
            })
            .collect();
        assert!(protocols.len() > 250, "{} of 256 protocols", protocols.len());
        let as_v6 = |ends: [u64; 4]| {
            let mut piece = v6(7, 0, true, 0, &[7; 64]);
            piece[8..40].copy_from_slice(&ends.map(u64::to_be_bytes).concat());
            piece
        };
        // The same in all but the version: IPv6 has no protocol here.
        let mut as_v4 = v4(1, 0, 0, true, 0, &[7; 64]);
        as_v4[9] = 0;
        as_v4[16..20].fill(0);
        let same_bytes = u64::from_be_bytes([10, 0, 0, 1, 0, 0, 0, 0]);
        assert_ne!(half.counters_of(&mended(as_v4)), half.counters_of(&as_v6([same_bytes, 0, 0, 0])));
        for word in 0..4 {
            let ends = |value| core::array::from_fn(|at| if at == word { value } else { 0 });
            let pairs: HashSet<_> = (0..64).map(|value| half.counters_of(&as_v6(ends(value)))).collect();
            assert!(pairs.len() > 60, "{} of 64 pairs that differ in word {word}", pairs.len());
        }
    }

    #[test]
    fn a_datagram_without_memory_uses_up_an_identifier_too() {
        let limits = Limits { bytes: 1 << 28, patience: None };
        // Room for a run and a packet that comes.
        let pool = Pool::new(2 * packet::Buffer::pinned_len_for(64));
        let mut half = Half { out: Output::new(pool, None), ..Half::new(limits, Late::Retire, Way::Each) };
        let now = Time::from_nanos(1_000_000_000);
        half.step(now, &[v4(1, 5, 0, true, 0, &[7; 64])]);
        for id in 0..ROUND_MIN {
            half.step(now, &[v4(1, (10_000 + id) as u16, 0, true, 0, &[1; 64])]);
        }
        assert_eq!(half.out.ledger.retired(Reason::NoBuffer).packets, u64::from(ROUND_MIN));
        half.step(now, &[v4(1, 5, 64, true, 0, &[8; 64])]);
        assert_eq!(half.out.ledger.retired(Reason::FragLate).packets, 1, "it is of another datagram");
    }

    /// One of those that are compared.
    struct Half {
        reassembler: Reassembler,
        out: Output,
        way: Way,
        gone: Vec<String>,
    }

    /// How packets are pushed.
    #[derive(Clone, Copy, PartialEq)]
    enum Way {
        /// One by one.
        Each,
        /// One by one, without what hints would say.
        Closely,
        /// As many as there are.
        Batches,
    }

    impl Half {
        fn new(limits: Limits, late: Late, way: Way) -> Half {
            let reassembler = Reassembler::new(limits, late, Secret::new(5));
            Half { reassembler, out: Output::new(Pool::new(1 << 30), None), way, gone: Vec::new() }
        }

        /// Where the pair of a piece is counted.
        fn counters_of(&mut self, frame: &[u8]) -> [usize; 2] {
            let packet = Frame::copy(frame, Medium::Ip, Ingress(0), &mut self.out.pool).unwrap();
            let key = DatagramKey::of(&packet, packet.ip().fragment.unwrap());
            self.out.done(packet);
            self.reassembler.counters_of(&key)
        }

        /// All that can be seen of a step.
        fn step(&mut self, now: Time, frames: &[Vec<u8>]) -> String {
            self.reassembler.expire(now, &mut self.out);
            self.drain();
            let pool = &mut self.out.pool;
            let read = |frame: &Vec<u8>| Frame::Ip(Frame::copy(frame, Medium::Ip, Ingress(0), pool).unwrap());
            let frames: Vec<Frame> = frames.iter().map(read).collect();
            let mut frames = frames.into_iter();
            while let [_, ..] = frames.as_slice() {
                if self.way == Way::Closely {
                    self.reassembler.hints.fill(Hint { id: 0, at: Handle::NONE });
                }
                let taken = match self.way {
                    Way::Batches => self.reassembler.take_front(frames.as_slice(), &mut self.out, &mut CopyPayload),
                    Way::Each | Way::Closely => 0,
                };
                frames.by_ref().take(taken).for_each(|frame| self.out.pool.give(frame.into_buffer()));
                if taken == 0
                    && let Some(Frame::Ip(packet)) = frames.next()
                {
                    match self.way {
                        Way::Batches => {
                            self.reassembler.push_unlike(now, packet, &mut self.out, &mut CopyPayload);
                        }
                        Way::Each | Way::Closely => self.reassembler.push(now, packet, &mut self.out),
                    }
                }
                self.drain();
            }
            let gone = core::mem::take(&mut self.gone);
            let it = &self.reassembler;
            let counts = (it.held(), it.charged(), it.next_deadline(), self.out.pool.lent_count());
            let ledger = &self.out.ledger;
            let events: Vec<_> = Event::ALL.iter().map(|event| (event.name(), ledger.event(*event))).collect();
            let ends: Vec<_> = Reason::ALL.iter().map(|reason| (reason.name(), ledger.retired(*reason))).collect();
            format!("{counts:?} {events:?} {ends:?} {gone:?}")
        }

        fn drain(&mut self) {
            while let Some(packet) = self.out.next() {
                let more = (packet.cut, packet.longest_piece());
                self.gone.push(format!("{:02x?} {more:?}", packet.frame()));
                self.out.done(packet);
            }
        }
    }

    /// A piece of one of a crowd of datagrams: mostly one that fits, in many orders, and some that do not.
    fn piece(crowd: usize, step: usize, random: &mut Rng) -> Vec<u8> {
        let number = random.usize(..crowd);
        // Those of one number have one length; names come again.
        let (pieces, len) = (2 + number % 5, 8 * (1 + number % 80));
        let in_order = (step / 2) % pieces;
        let index = if random.bool() { in_order } else { random.usize(..pieces) };
        let more = index + 1 < pieces;
        let (mut offset, mut len, mut more) = (index * len, if more { len } else { len - number % 8 }, more);
        match random.u16(..120) {
            0 => offset += 8,
            1 => len += 8,
            2 => len += 1,
            3 => more = !more,
            4 => len = 0,
            _ => {}
        }
        let marks = if random.u8(..40) == 0 { random.u8(..4) } else { 0 };
        let payload: Vec<u8> = (0..len).map(|at| (offset + at + number) as u8).collect();
        let bytes = if number.is_multiple_of(3) {
            v6(number as u32, offset, more, marks, &payload)
        } else {
            let tos = if marks == 3 { 2 } else { 0 };
            // Two sources use the same identifiers.
            v4(1 + number as u8 % 2, number as u16 / 2, offset, more, tos, &payload)
        };
        if marks < 2 || number.is_multiple_of(3) {
            bytes
        } else {
            with_option(bytes, *random.choice(&[0x88, 0x07]).unwrap())
        }
    }

    fn v4(source: u8, id: u16, offset: usize, more: bool, tos: u8, payload: &[u8]) -> Vec<u8> {
        let place = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
        let mut bytes = vec![0x45, tos, 0, 0];
        bytes.extend([id.to_be_bytes(), place.to_be_bytes()].concat());
        bytes.extend([64, 17, 0, 0, 10, 0, 0, source, 10, 1, 1, 1]);
        bytes.extend(payload);
        mended(bytes)
    }

    /// The same with an option, which every piece carries or only the first one may.
    fn with_option(mut bytes: Vec<u8>, kind: u8) -> Vec<u8> {
        bytes.splice(20..20, [kind, 4, 1, 2]);
        bytes[0] = 0x46;
        mended(bytes)
    }

    fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[10..12].fill(0);
        let header_len = usize::from(bytes[0] & 15) * 4;
        let checksum = Sum::of(&bytes[..header_len]).checksum();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn v6(id: u32, offset: usize, more: bool, marks: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, marks << 4, 0, 0];
        bytes.extend((8 + payload.len() as u16).to_be_bytes());
        bytes.extend([44, 64]);
        bytes.extend([[1; 16], [2; 16]].concat());
        bytes.extend([17, 0]);
        bytes.extend((offset as u16 | u16::from(more)).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}
