//! Fragments in order in, longer fragments out: graceful joining on the way (Chandranmenon section 3.2; C10 to C13, C19).
//!
//! An open run per datagram; the fragment that comes next in order is appended to the run's first one, whose buffer grows;
//! at anything else the run leaves as it stands. A run may start anywhere in its datagram, and becomes no longer than the
//! next link takes. Nothing ends here (rel:G20): whoever reassembles behind us gets the bytes of each datagram in the order
//! in which they came, in fewer pieces. What joins nothing passes as it came.
//!
//! What has passed is never joined to what has not. A host drops a repeat, but a piece that repeats a part of what it holds
//! and adds to it ends the datagram (RFC 5722 section 4, R063), so no repeat may become such a piece. Of a datagram that did
//! not pass in order to its end it is known for a while how far it came, and only what lies beyond joins.
//!
//! A router is told not to join (RFC 1812 section 5.2.6, R031), unless those of one network agree on it (R010): a side does
//! it only where it is asked for by name (rel:C1). IPv6 fragments pass: they are as long as their sender made them (R087).

use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::reassembly::{DatagramKey, Hints, fault};
use crate::table::{FairTable, Handle, Key};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use packet::{Address, Buffer, Fragment, Packet, Time};

/// What a side does with the fragments for a destination (C14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentPolicy {
    /// They pass.
    Off,
    /// They become whole datagrams, whoever cut them: the host is behind us.
    Reassemble,
    /// They become whole datagrams, as the previous hop cut them, and are cut again for the next (C15).
    ReassembleHop,
    /// They become longer fragments, as long as they come in order and the next link takes them (C10).
    Merge,
}

/// How much a joiner may hold, how long, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct MergeLimits {
    /// Bytes of buffers. An open run counts as much as the longest packet that it may become would pin.
    pub bytes: usize,
    /// How long a run may wait, counted from its first fragment (rel:G18).
    pub patience: Duration,
    /// What becomes of a fragment that there is no room for.
    pub full: Full,
    /// What shares a run.
    pub runs: RunsBy,
}

/// What becomes of a fragment that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It passes as it came, so that open runs go on (C19).
    Pass,
    /// The oldest run leaves for it, as in the paper, where a fragment takes its place before it is looked at. With more
    /// datagrams at once than there is room for, hardly anything joins; to compare.
    Evict,
}

/// What shares a run (C13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsBy {
    /// Each datagram has its own.
    Datagram,
    /// The datagrams of a flow share one: a fragment of another of them pushes the run out. A flow is what has the same
    /// addresses and protocol.
    Flow,
    /// There is one run in all, pushed out by a fragment of any other datagram.
    All,
}

/// Joins the fragments of each datagram that come in order into longer ones.
///
/// ```
/// use std::time::Duration;
/// use wideload_engine::packet::{self, Frame, Ingress, Medium, Pool, Time};
/// use wideload_engine::{Full, JoinLimits, Joiner, Output, RunsBy, Secret};
///
/// # let piece = |at: u16, more: bool| {
/// #     let mut bytes = vec![0x45, 0, 1, 36, 0, 7, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
/// #     bytes[6..8].copy_from_slice(&(at / 8 | u16::from(more) << 13).to_be_bytes());
/// #     let sum = packet::Sum::of(&bytes).checksum();
/// #     bytes[10..12].copy_from_slice(&sum.to_be_bytes());
/// #     bytes.resize(292, at as u8);
/// #     bytes
/// # };
/// let patience = Duration::from_millis(10);
/// let limits = JoinLimits { bytes: 1 << 20, patience, full: Full::Pass, runs: RunsBy::Datagram };
/// let mut joiner = Joiner::new(limits, 1_500, Secret::new(0x0123_4567_89AB_CDEF));
/// let mut out = Output::new(Pool::new(2 << 20), None);
/// // Five fragments of 272 bytes fit into one packet of 1,380; the sixth does not.
/// for number in 0..6 {
///     let packet = Frame::copy(&piece(number * 272, true), Medium::Ip, Ingress(0), &mut out.pool).unwrap();
///     joiner.push(Time::ZERO, packet, &mut out);
/// }
/// let joined = out.next().unwrap();
/// assert_eq!(joined.len(), 1_380);
/// out.done(joined);
/// joiner.expire(Time::ZERO + patience, &mut out);
/// let late = out.next().unwrap();
/// assert!(late.is_as_received());
/// # out.done(late);
/// ```
#[derive(Debug)]
pub struct FragmentMerger {
    runs: FairTable<RunKey, Run>,
    /// How far the datagrams came of which no run is open, where more may come.
    passed: FairTable<DatagramKey, DeliveredUpTo>,
    limits: MergeLimits,
    mtu: u16,
    run_hints: Hints<HINT_COUNT>,
    passed_hints: Hints<HINT_COUNT>,
}

/// What shares a run: a datagram; a flow, which is a datagram without identification; or, without any, everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunKey(Option<DatagramKey>);

/// Fragments in order, in the buffer of the first.
#[derive(Debug)]
struct Run {
    datagram: DatagramKey,
    packet: Packet,
    /// Do others follow the last one in the datagram?
    more: bool,
    passed: DeliveredUpTo,
    came: Tally,
    longest: u32,
}

/// How far a datagram came.
#[derive(Clone, Copy, Debug)]
struct DeliveredUpTo {
    /// Where the highest of its bytes that came ends, in bytes.
    top: usize,
    /// Did every fragment start where the one before it ended, and the first at 0?
    in_order: bool,
    /// Have they reached its end so?
    is_over: bool,
}

/// A fragment that came.
struct Arrival {
    packet: Packet,
    datagram: DatagramKey,
    /// Its bytes in the datagram.
    start: usize,
    end: usize,
    more: bool,
    /// Is it such that a host takes it, and may it become longer?
    is_sound: bool,
}

impl FragmentMerger {
    /// A joiner that makes packets of at most `mtu` bytes. The pool that it draws on must allow more than its limit: what
    /// has left keeps its buffer until the port has sent it.
    pub fn new(limits: MergeLimits, mtu: u16, secret: Secret) -> FragmentMerger {
        FragmentMerger {
            runs: FairTable::new(limits.bytes, &[limits.patience], secret),
            passed: FairTable::new(PASSED_COUNT, &[REPEATED_WITHIN], secret),
            limits,
            mtu,
            run_hints: Hints::new(),
            passed_hints: Hints::new(),
        }
    }

    /// Finds what is held by this key.
    pub fn with_table_key(mut self, key: Secret) -> FragmentMerger {
        self.runs.set_key(key);
        self.passed.set_key(key);
        self
    }

    /// Takes a packet: an IPv4 fragment joins its datagram's run, starts one, or passes behind it; anything else goes on.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        let ip = packet.ip();
        let Some(fragment) = ip.fragment.filter(|_| ip.is_fragmented_on_path()) else { return out.forward(packet) };
        while let Some(at) = self.passed.overdue(now) {
            self.passed.remove(at);
        }
        let newcomer = Arrival::of(packet, fragment);
        let key = self.limits.runs.key(newcomer.datagram);
        if let Err(at) = self.run_hints.find(&self.runs, &key, fragment.id) {
            match self.refuses(now, at, &newcomer, out) {
                None => return self.append(now, at, newcomer, out),
                Some(event) => self.flush_run(now, at, event, out),
            }
        }
        self.open(now, key, newcomer, out);
    }

    /// Lets go of what has waited long enough.
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.overdue(now) {
            self.flush_run(now, at, Event::MergedTimeout, out);
        }
    }

    /// Lets go of everything, the earliest deadline first: the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.oldest() {
            self.flush_run(now, at, Event::MergedAtEnd, out);
        }
    }

    /// When [`expire`](Joiner::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.runs.next_deadline()
    }

    /// The fragments that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        self.runs.values().fold((Tally::NONE, 0), |(mut tally, buffers), run| {
            tally += run.came;
            (tally, buffers + 1)
        })
    }

    /// Bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.runs.charged()
    }

    /// Why a fragment does not join the run, if it does not. Makes room where it does.
    fn refuses(&mut self, now: Time, at: Handle, newcomer: &Arrival, out: &mut impl Next) -> Option<Event> {
        let run = self.runs.slot_mut(at);
        let payload_len = newcomer.payload_len();
        if run.datagram != newcomer.datagram {
            Some(Event::MergedEvicted)
        } else if newcomer.start != run.passed.top {
            Some(Event::MergedGap)
        } else if !run.packet.shares_fragment_header(&newcomer.packet) {
            Some(Event::MergedChanged)
        } else if !newcomer.is_sound {
            Some(Event::MergedGap)
        } else if run.packet.len() + payload_len > usize::from(self.mtu) {
            Some(Event::MergedFull)
        } else if run.packet.room() < payload_len && !self.grow(now, at, out) {
            Some(Event::MergedEvicted)
        } else {
            None
        }
    }

    fn append(&mut self, now: Time, at: Handle, newcomer: Arrival, out: &mut impl Next) {
        let run = self.runs.slot_mut(at);
        run.append(&newcomer);
        out.recycle(newcomer.packet);
        let event = match (run.more, run.packet.ip().starts()) {
            (false, true) => Event::MergedComplete,
            (false, false) => Event::MergedLast,
            (true, _) if run.packet.len() == usize::from(self.mtu) => Event::MergedFull,
            (true, _) => return,
        };
        self.flush_run(now, at, event, out);
    }

    /// With no run open for it, a fragment starts one: where it lies beyond all that has passed of its datagram, where there
    /// is something to wait for, and room. Else it passes.
    fn open(&mut self, now: Time, key: RunKey, newcomer: Arrival, out: &mut impl Next) {
        let charge = self.charge_of(newcomer.packet.pinned_len());
        let has_room = self.make_room(now, charge, None, out);
        let id = newcomer.packet.ip().id;
        let before = match self.passed_hints.find(&self.passed, &newcomer.datagram, id) {
            Ok(_) => DeliveredUpTo::NOTHING,
            Err(at) => *self.passed.slot_mut(at),
        };
        let joins = newcomer.start >= before.top && newcomer.waits(self.mtu);
        let passed = before.and(&newcomer);
        if joins && has_room {
            let at = self.runs.insert(now, key, Run::new(newcomer, passed), charge, self.limits.patience);
            self.run_hints.set(id, at);
            return;
        }
        if joins {
            out.ledger().note(Event::MergeRefused, Tally::of(&newcomer.packet));
        }
        self.remember(now, &newcomer.datagram, id, passed);
        out.forward(newcomer.packet);
    }

    /// Ends a run by this rule.
    fn flush_run(&mut self, now: Time, at: Handle, event: Event, out: &mut impl Next) {
        let run = self.runs.remove(at);
        self.remember(now, &run.datagram, run.packet.ip().id, run.passed);
        run.leave(event, out);
    }

    /// Remembers how far a datagram came, unless it passed in order to its end. Nothing makes this last longer: its
    /// identification will be another's.
    fn remember(&mut self, now: Time, datagram: &DatagramKey, id: u32, passed: DeliveredUpTo) {
        match self.passed_hints.find(&self.passed, datagram, id) {
            Err(at) if passed.is_over => drop(self.passed.remove(at)),
            Err(at) => *self.passed.slot_mut(at) = passed,
            Ok(_) if passed.is_over => {}
            Ok(vacancy) => {
                let at = self.passed.insert_vacant(now, vacancy, *datagram, passed, 1, REPEATED_WITHIN);
                self.passed_hints.set(id, at);
            }
        }
        if let Some(at) = self.passed.over_limit() {
            self.passed.remove(at);
        }
    }

    /// Moves a run to a buffer that takes the longest packet; false where there is none.
    fn grow(&mut self, now: Time, at: Handle, out: &mut impl Next) -> bool {
        let Some(larger) = out.pool().share(self.mtu.into()) else { return false };
        // A pool that is short may lend a larger one than was asked for, and charged.
        let charge = self.charge_of(larger.pinned_len());
        if !self.make_room(now, charge - self.charge_of(0), Some(at), out) {
            out.pool().give(larger);
            return false;
        }
        out.pool().give(self.runs.slot_mut(at).packet.move_to(larger));
        self.runs.charge(at, charge);
        true
    }

    /// Is there room for so much more? Where that is the rule, the oldest leave for it, but not the one to `keep`.
    fn make_room(&mut self, now: Time, more: usize, keep: Option<Handle>, out: &mut impl Next) -> bool {
        while self.runs.charged() + more > self.limits.bytes {
            match self.runs.oldest() {
                Some(oldest) if self.limits.full == Full::Evict && keep != Some(oldest) => {
                    self.flush_run(now, oldest, Event::MergedEvicted, out);
                }
                _ => return false,
            }
        }
        true
    }

    /// What a run whose buffer pins so much is charged. Room for what it may become is taken at once: else newcomers would
    /// take what open runs need.
    fn charge_of(&self, pinned_len: usize) -> usize {
        RUN_CHARGE + pinned_len.max(Buffer::pinned_len_for(self.mtu.into()))
    }
}

impl Run {
    fn new(first: Arrival, passed: DeliveredUpTo) -> Run {
        let Arrival { packet, datagram, more, .. } = first;
        Run { datagram, more, passed, came: Tally::of(&packet), longest: packet.ip().len, packet }
    }

    fn append(&mut self, newcomer: &Arrival) {
        self.packet.append(newcomer.packet.payload());
        self.more = newcomer.more;
        self.passed = self.passed.and(newcomer);
        self.came += Tally::of(&newcomer.packet);
        self.longest = self.longest.max(newcomer.packet.ip().len);
    }

    /// Goes on as one fragment, or as the whole datagram; a run of one as it came.
    fn leave(mut self, event: Event, out: &mut impl Next) {
        if self.came.packets > 1 {
            self.packet.seal_fragments(self.more, self.longest);
            out.ledger().note(Event::Merged, self.came);
            out.ledger().note(event, Tally { packets: 1, ..self.came });
        }
        out.forward(self.packet);
    }
}

impl DeliveredUpTo {
    /// Nothing has passed.
    const NOTHING: DeliveredUpTo = DeliveredUpTo { top: 0, in_order: true, is_over: false };

    /// How far it came with this fragment, joined or not.
    fn and(self, newcomer: &Arrival) -> DeliveredUpTo {
        let in_order = self.in_order && newcomer.is_sound && newcomer.start == self.top;
        DeliveredUpTo { top: self.top.max(newcomer.end), in_order, is_over: in_order && !newcomer.more }
    }
}

impl Arrival {
    fn of(packet: Packet, fragment: Fragment) -> Arrival {
        let start = usize::from(fragment.offset);
        Arrival {
            datagram: DatagramKey::of(&packet, fragment, None),
            start,
            end: start + packet.ip().payload_len(),
            more: fragment.more,
            is_sound: packet.ip().may_grow_on_path() && fault(&packet, fragment).is_none(),
            packet,
        }
    }

    fn payload_len(&self) -> usize {
        self.end - self.start
    }

    /// Is there something to wait for: does another one follow, and would one as long as this fit behind it (C11)?
    fn waits(&self, mtu: u16) -> bool {
        self.is_sound && self.more && self.packet.len() + self.payload_len() <= usize::from(mtu)
    }
}

impl RunsBy {
    fn key(self, datagram: DatagramKey) -> RunKey {
        RunKey(match self {
            RunsBy::Datagram => Some(datagram),
            RunsBy::Flow => Some(datagram.flow()),
            RunsBy::All => None,
        })
    }
}

impl Key for RunKey {
    fn source(&self) -> Address {
        let of_all = || IpAddr::V4(Ipv4Addr::UNSPECIFIED).into();
        self.0.map_or_else(of_all, |datagram| datagram.source())
    }

    fn hash(&self, table: &TableKey) -> u64 {
        self.0.map_or(0, |datagram| datagram.hash(table))
    }
}

/// Runs whose place is remembered.
const HINT_COUNT: usize = 64;
/// What a run is charged beside its buffer, in bytes: its slot, its source and their places in tables.
const RUN_CHARGE: usize = 512;
/// Datagrams of which it is remembered how far they came.
const PASSED_COUNT: usize = 1_024;
/// How long that is: repeats that a network makes come soon, and identifications come round later.
const REPEATED_WITHIN: Duration = Duration::from_millis(100);
