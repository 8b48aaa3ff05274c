//! Fragments -> their datagrams, within limits of memory and time.
//!
//! The table of datagrams selects the datagram of each fragment, and evicts datagrams. The bytes and holes of one
//! datagram are left to [`Run`].

use super::Late;
use super::hints::Hints;
use super::may_join::{DatagramKey, fault};
use super::pairs::Pairs;
use super::run::{Expected, LastComplete, Outcome, Run};
use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Reason, Tally};
use crate::output::Next;
use crate::sink::{LeavePayload, PayloadSink};
use crate::table::{FairTable, Handle, Key, VacantEntry};
use core::ops::Range;
use core::time::Duration;
use packet::icmp::IcmpError;
use packet::{Address, Buffer, Fragment, Packet, PrevHop, Time};

/// The incomplete datagrams, and the keys of poisoned datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    held: FairTable<DatagramKey, State>,
    hints: Hints<HINT_COUNT>,
    pairs: Pairs,
    late: Late,
    /// The handle of the datagram that last gained a fragment. The datagram may have been removed.
    touched: Handle,
    last_complete: Option<LastComplete>,
    limit: usize,
}

#[derive(Debug)]
enum State {
    Open(Run),
    /// A datagram that was dropped for an overlap or another contradiction. Later fragments with its key are
    /// dropped too.
    Poisoned,
}

impl Datagrams {
    pub(super) fn new(limit: usize, pairs: Pairs, late: Late, secret: Secret) -> Datagrams {
        Datagrams {
            held: FairTable::new(limit, &pairs.timeouts(), secret),
            hints: Hints::new(),
            pairs,
            late,
            touched: Handle::NONE,
            last_complete: None,
            limit,
        }
    }

    pub(super) fn set_table_key(&mut self, key: Secret) {
        self.held.set_key(key);
    }

    /// Takes the leading fragments of the first fragment's hinted datagram, until a fragment needs the slow path.
    /// Returns the number of fragments taken (C2, C3, C6).
    #[inline(always)]
    pub(super) fn take_front<'p>(
        &mut self,
        fragments: impl IntoIterator<Item = &'p Packet>,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> usize {
        let mut fragments = fragments.into_iter();
        let Some(mut fragment) = fragments.next() else { return 0 };
        let Some(first) = fragment.ip().fragment else { return 0 };
        let Some(at) = self.hints.get(first.id) else { return 0 };
        let Some((key, run)) = self.open_run(at) else { return 0 };
        let mut taken = 0;
        loop {
            match run.append_fast(key, fragment, sink) {
                Outcome::Not => break,
                Outcome::Fragment => taken += 1,
                Outcome::Last => {
                    self.close(at, out);
                    return taken + 1;
                }
            }
            match fragments.next() {
                Some(next) => fragment = next,
                None => break,
            }
        }
        if taken > 0 {
            self.touched = at;
        }
        taken
    }

    /// Returns the run at this handle, if it is open and its identification cannot have been reused.
    #[inline(always)]
    fn open_run(&mut self, at: Handle) -> Option<(&DatagramKey, &mut Run)> {
        match self.held.get_mut(at)? {
            (key, State::Open(run)) if !self.pairs.id_may_have_wrapped(run.epoch(), key.version) => {
                Some((key, run))
            }
            _ => None,
        }
    }

    /// Copies a fragment's payload to its position in its datagram. `hop` is `None` if the fragment is for a host.
    ///
    /// # Errors
    /// The reason why the fragment is dropped.
    pub(super) fn take(
        &mut self,
        hop: Option<PrevHop>,
        now: Time,
        fragment: &Packet,
        frag: Fragment,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Reason> {
        if let Some((reason, icmp_error)) = fault(fragment, frag) {
            if let Some(icmp_error) = icmp_error {
                out.output().answer(now, icmp_error, fragment);
            }
            return Err(reason);
        }
        let key = DatagramKey::of(fragment, frag, hop);
        let mut sought = self.hints.find(&self.held, &key, key.id);
        if let Err(at) = sought
            && let State::Open(run) = self.held.slot_mut(at)
            && self.pairs.id_may_have_wrapped(run.epoch(), key.version)
        {
            self.evict(now, at, Event::ReleasedTimeout, Reason::FragLate, out);
            sought = self.held.entry(&key);
        }
        match sought {
            Ok(vacant) => {
                let pair = self.pairs.of(&key);
                // Even a fragment that finds no memory consumes an identification.
                let (timeout, epoch) = self.pairs.count(now, pair, key.version);
                let end = usize::from(frag.offset) + fragment.ip().payload_len();
                let buffer =
                    out.pool().allocate(end.max(self.pairs.predicted_len(pair))).ok_or(Reason::NoBuffer)?;
                let run = Run::open(fragment, frag, buffer, epoch, hop.is_some(), sink);
                self.hold(now, vacant, key, run, timeout);
                Ok(())
            }
            Err(at) => self.join(at, fragment, frag, out, sink),
        }
    }

    /// Inserts a new datagram.
    #[inline(always)]
    fn hold(&mut self, now: Time, vacant: VacantEntry, key: DatagramKey, run: Run, timeout: Duration) -> Handle {
        let charge = run.packet().pinned_len();
        let at = self.held.insert_vacant(now, vacant, key, State::Open(run), charge, timeout);
        self.hints.set(key.id, at);
        self.touched = at;
        at
    }

    /// Adds a fragment to its open datagram.
    fn join(
        &mut self,
        at: Handle,
        fragment: &Packet,
        frag: Fragment,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Reason> {
        let State::Open(run) = self.held.slot_mut(at) else { return Err(Reason::FragPoisoned) };
        match run.conflict_with(fragment, frag) {
            None => {}
            Some(Reason::FragRepeat) => return Err(Reason::FragRepeat),
            Some(reason) => return Err(self.end(at, reason, out)),
        }
        if let Some(len) = run.lacks(fragment, frag) {
            let larger = out.pool().allocate(len).ok_or(Reason::NoBuffer)?;
            out.pool().give(run.grow(larger));
            let charge = run.packet().pinned_len();
            self.held.charge(at, charge);
        }
        let State::Open(run) = self.held.slot_mut(at) else { return Err(Reason::FragPoisoned) };
        run.take(fragment, frag, sink);
        if run.is_whole() || run.is_oversize() {
            self.close(at, out);
        } else {
            self.touched = at;
        }
        Ok(())
    }

    /// Forwards a complete datagram, or drops it if it is too long or inconsistent.
    pub(super) fn close(&mut self, at: Handle, out: &mut impl Next) {
        let State::Open(run) = self.held.slot_mut(at) else { return };
        if run.is_oversize() {
            self.end(at, Reason::FragOversize, out);
            return;
        }
        match run.close() {
            Ok(complete) => self.last_complete = Some(complete),
            Err(reason) => return self.held.remove(at).retire(reason, out),
        }
        let tally = run.tally();
        self.pairs.note_len(run.epoch(), run.held_len());
        out.ledger().note(Event::FragmentsUsed, tally);
        out.ledger().note(Event::Reassembled, Tally { packets: 1, ..tally });
        if let State::Open(run) = self.held.remove(at) {
            out.forward(run.into_packet());
        }
    }

    /// Drops a datagram for this reason. Its key stays poisoned until its deadline.
    fn end(&mut self, at: Handle, reason: Reason, out: &mut impl Next) -> Reason {
        core::mem::replace(self.held.slot_mut(at), State::Poisoned).retire(reason, out);
        self.held.charge(at, POISON_CHARGE);
        reason
    }

    /// Evicts datagrams as long as the memory limit is exceeded.
    #[inline]
    pub(super) fn make_room(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.over_limit() {
            // Whether a datagram belongs to the reserve is decided only when memory is short, which is rare.
            let is_promising = matches!(self.held.get(at), Some(State::Open(run)) if run.is_promising());
            if !(is_promising && self.held.move_to_reserve(at)) {
                self.evict(now, at, Event::ReleasedEvicted, Reason::FragEvicted, out);
            }
        }
    }

    /// Removes the datagrams whose deadline has passed.
    pub(super) fn expire(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.overdue(now) {
            self.evict(now, at, Event::ReleasedTimeout, Reason::FragLate, out);
        }
    }

    /// Removes all datagrams, the earliest deadline first.
    pub(super) fn flush(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.held.oldest() {
            self.evict(now, at, Event::ReleasedAtEnd, Reason::FragLate, out);
        }
    }

    /// Removes a datagram after a time-out, for lack of memory, or because the input has ended. Its fragments are
    /// released or dropped.
    fn evict(&mut self, now: Time, at: Handle, event: Event, reason: Reason, out: &mut impl Next) {
        let State::Open(run) = self.held.slot_mut(at) else {
            self.held.remove(at);
            return;
        };
        let tally = run.tally();
        match self.late {
            Late::Release { mtu } => {
                run.release(mtu.max(run.packet().ip().mtu_min() as u16));
                out.ledger().note(Event::FragmentsUsed, tally);
                out.ledger().note(event, Tally { packets: 1, ..tally });
            }
            Late::Retire => {
                if reason == Reason::FragLate
                    && let Some(first) = run.first_fragment(out)
                {
                    out.output().answer(now, IcmpError::ReassemblyTime, &first);
                    out.recycle(first);
                }
            }
        }
        if let State::Open(run) = self.held.remove(at) {
            let packet = run.into_packet();
            match self.late {
                Late::Release { .. } => out.forward(packet),
                Late::Retire => {
                    // When memory is short, the pool supplies this buffer next, and the buffer is no longer in the
                    // CPU's cache.
                    packet::prefetch_lines(packet.laid(0, packet.capacity()), NARROW_LINES);
                    out.output().retire(packet, tally, reason);
                }
            }
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.held.next_deadline()
    }

    /// Recounts the held fragments with their payload bytes, and their buffers.
    pub(super) fn held(&self) -> (Tally, usize) {
        let open = |state: &State| match state {
            State::Open(run) => Some(run.tally()),
            State::Poisoned => None,
        };
        self.held.values().filter_map(open).fold((Tally::NONE, 0), |(mut tally, buffers), more| {
            tally += more;
            (tally, buffers + 1)
        })
    }

    #[cfg(test)]
    pub(super) fn forget_hints(&mut self) {
        self.hints.clear();
    }

    /// Returns the number of open datagrams and poisoned keys.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.held.count()
    }

    /// Returns the bytes charged against the limit.
    pub(super) fn charged(&self) -> usize {
        self.held.charged()
    }

    /// Returns the number of steps of the longest search for a datagram by its key (rel:A10).
    pub(super) fn longest_search(&self) -> usize {
        self.held.longest_search()
    }

    /// Prefetches data for the packets behind the next one, in order of use: hints, runs, their packets, payload
    /// positions.
    #[inline]
    pub(super) fn prefetch<'p>(&self, ahead: impl Fn(usize) -> Option<&'p Packet>, sink: &impl PayloadSink) {
        let frag = |packet: &Packet| packet.ip().fragment;
        if let Some(frag) = ahead(3 * FORESIGHT).and_then(frag) {
            self.hints.prefetch(frag.id);
        }
        let place_of = |packet: &'p Packet| self.hints.get(frag(packet)?.id);
        if let Some(at) = ahead(2 * FORESIGHT).and_then(place_of) {
            self.held.prefetch(at);
        }
        let run_of = |packet: &'p Packet| match self.held.get_entry(place_of(packet)?)? {
            (key, State::Open(run)) if key.is_of(packet, frag(packet)?, false) => Some(run),
            _ => None,
        };
        if let Some(run) = ahead(FORESIGHT).and_then(run_of) {
            run.packet().prefetch();
        }
        if let Some(packet) = ahead(FORESIGHT / 2)
            && let Some(place) = run_of(packet).and_then(|run| run.place_of(packet))
        {
            sink.prefetch(place, packet.payload());
        }
    }
}

/// The interface for placement prediction: see [`Placement`](super::Placement).
impl Datagrams {
    /// Returns the datagram that last gained a fragment, the offset of its next fragment, and its expected rest.
    /// `None` if the datagram has gaps or was removed.
    pub(super) fn expected(&self) -> Option<(Handle, usize, Expected)> {
        let (key, State::Open(run)) = self.held.get_entry(self.touched)? else { return None };
        let next = run.next().filter(|_| key.hop.is_none())?;
        Some((self.touched, next, run.expected(self.pairs.predicted_len(run.epoch().pair()))?))
    }

    /// Returns the expected fragments of a new datagram like the last complete one.
    pub(super) fn expected_again(&self) -> Option<Expected> {
        self.last_complete?.expected_again()
    }

    /// Clears the state of the latest fragments, so that no further prediction uses it.
    pub(super) fn forget_last(&mut self) {
        (self.touched, self.last_complete) = (Handle::NONE, None);
    }

    /// Sets the datagram of this packet as the one that last gained a fragment.
    pub(super) fn turn_to(&mut self, next: &Packet) {
        let known = next.ip().fragment.and_then(|frag| {
            let key = DatagramKey::of(next, frag, None);
            self.hints.find(&self.held, &key, key.id).err()
        });
        self.touched = known.unwrap_or(Handle::NONE);
    }

    /// Returns a range of a datagram's buffer. The range may include bytes that were not received.
    pub(super) fn laid(&self, at: Handle, range: Range<usize>) -> &[u8] {
        match self.held.get(at) {
            Some(State::Open(run)) => run.packet().laid(range.start, range.len()),
            _ => panic!("a place is good as long as its run is held"),
        }
    }

    /// Returns bytes of a datagram's buffer, mutable. Empty if no datagram is open at this handle.
    pub(super) fn place_mut(&mut self, at: Handle, range: Range<usize>) -> &mut [u8] {
        match self.held.get_mut(at) {
            Some((_, State::Open(run))) => run.place_mut(range),
            _ => &mut [],
        }
    }

    /// Whether `charge` bytes can be charged without an eviction.
    pub(super) fn has_room_for(&self, charge: usize) -> bool {
        self.held.charged() + charge <= self.limit
    }

    /// Takes a fragment whose payload is at offset `start` of this datagram's buffer, if the fast path accepts it.
    /// After the last fragment, the caller must call [`close`](Datagrams::close).
    pub(super) fn take_placed(&mut self, at: Handle, start: usize, fragment: &Packet) -> Outcome {
        let Some((key, run)) = self.open_run(at) else { return Outcome::Not };
        if run.next() != Some(start) {
            return Outcome::Not;
        }
        let taken = run.append_fast(key, fragment, &mut LeavePayload);
        if taken == Outcome::Fragment {
            self.touched = at;
        }
        taken
    }

    /// Takes fragments with headers like those of the last fragment, whose payloads follow its payload in memory.
    /// Returns their number, which is limited by the room in the buffer.
    pub(super) fn take_more_placed(&mut self, at: Handle, len: usize, count: impl FnOnce(usize) -> usize) -> usize {
        match self.held.get_mut(at) {
            Some((_, State::Open(run))) => run.take_more(len, count),
            _ => 0,
        }
    }

    /// Opens a datagram with a fragment whose payload is in `buffer`. The size of the buffer must be the size that
    /// the datagram would get without prediction.
    ///
    /// # Errors
    /// The buffer, if the fragment starts no new datagram, if memory is short, or if the size differs.
    pub(super) fn open_placed(&mut self, now: Time, fragment: &Packet, buffer: Buffer) -> Result<Handle, Buffer> {
        let Some(frag) = fragment.ip().fragment.filter(|it| it.offset == 0 && it.more) else { return Err(buffer) };
        let charge = buffer.pinned_len();
        // A prediction never causes an eviction.
        if fault(fragment, frag).is_some() || !self.has_room_for(charge) {
            return Err(buffer);
        }
        let key = DatagramKey::of(fragment, frag, None);
        let pair = self.pairs.of(&key);
        let len = fragment.ip().payload_len().max(self.pairs.predicted_len(pair));
        let Ok(vacant) = self.held.entry(&key) else { return Err(buffer) };
        if Buffer::pinned_len_for(len) != charge {
            return Err(buffer);
        }
        let (timeout, epoch) = self.pairs.count(now, pair, key.version);
        let run = Run::open(fragment, frag, buffer, epoch, false, &mut LeavePayload);
        Ok(self.hold(now, vacant, key, run, timeout))
    }
}

impl State {
    fn retire(self, reason: Reason, out: &mut impl Next) {
        if let State::Open(run) = self {
            let ended = run.tally();
            out.output().retire(run.into_packet(), ended, reason);
        }
    }
}

impl DatagramKey {
    /// Returns the key of the datagram's flow, equal for all datagrams of the flow.
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
        let [l2_scope, port] = self.l2_scope.words();
        let what = u64::from(self.id) | u64::from(self.protocol) << 32 | (self.version as u64) << 40;
        let hop = self.hop.map_or(0, |hop| hop.number().wrapping_add(1));
        table.hash([e0, e1, e2, e3, what, l2_scope, port, hop])
    }
}

/// Number of hints, indexed by the low bits of the identification.
const HINT_COUNT: usize = 16_384;
/// Distance between a prefetch and its use, in packets: enough for data to arrive from main memory.
const FORESIGHT: usize = 4;
/// Cache lines of a narrow packet.
const NARROW_LINES: usize = 24;
/// Charge of a poisoned key, in bytes: its slot, its source and its table entries.
const POISON_CHARGE: usize = 512;
