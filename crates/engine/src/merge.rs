//! Fragments in order -> longer fragments (Chandranmenon section 3.2; C10 to C13, C19).
//!
//! A datagram has at most one open run. The fragment that comes next in order is appended to the run's first
//! fragment, whose buffer grows. At any other fragment of the datagram, the run leaves as it stands. A run may
//! start anywhere in its datagram. It never grows longer than the MTU of the next link. No packet ends here
//! (rel:G20): the reassembling host gets the bytes of each datagram in their order of arrival, in fewer fragments.
//! Fragments that merge with nothing pass unchanged.
//!
//! Bytes that have passed are never merged with bytes that have not. A host drops a repeated fragment. A fragment
//! that repeats held bytes and adds others ends the datagram (RFC 5722 section 4, R063). So no repeat may become
//! part of a longer fragment. A datagram that did not pass in order to its end is remembered for a while, with its
//! highest passed byte. Only fragments beyond that byte are merged.
//!
//! A router must not reassemble (RFC 1812 section 5.2.6, R031), unless the routers of one network agree on it
//! (R010). So a side merges only where its settings name it (rel:C1). IPv6 fragments pass unchanged: they are as
//! long as their sender made them (R087).

use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::reassembly::{DatagramKey, Hints, fault};
use crate::table::{FairTable, Handle, Key};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use packet::{Address, Buffer, Fragment, Packet, Time};

/// How a side handles the fragments for a destination (C14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentPolicy {
    /// Fragments pass unchanged.
    Off,
    /// Fragments are reassembled, whichever station fragmented the datagram: the host is behind this side.
    Reassemble,
    /// Fragments from the same previous hop are reassembled, and fragmented again for the next hop (C15).
    ReassembleHop,
    /// Fragments in order are merged into longer ones, up to the MTU of the next link (C10).
    Merge,
}

/// Limits of a fragment merger: memory, time, and the sharing of runs.
#[derive(Clone, Copy, Debug)]
pub struct MergeLimits {
    /// Bytes of buffers. An open run is charged as much as its longest possible packet would pin.
    pub bytes: usize,
    /// How long a run may wait, counted from its first fragment (rel:G18).
    pub timeout: Duration,
    /// The policy for fragments where memory is full.
    pub full: Full,
    /// The fragments that share a run.
    pub runs: RunsBy,
}

/// The policy for fragments where memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The fragment passes unchanged, so that open runs go on (C19).
    Pass,
    /// The oldest run leaves to make room, as in the paper: there, a fragment takes its slot before it is examined.
    /// With more concurrent datagrams than runs, hardly any fragments merge. For comparison only.
    Evict,
}

/// The fragments that share a run (C13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsBy {
    /// Each datagram has a run of its own.
    Datagram,
    /// The datagrams of a flow share one run: a fragment of another datagram pushes the run out. A flow has one
    /// pair of addresses and one protocol.
    Flow,
    /// All datagrams share one run: a fragment of any other datagram pushes it out.
    All,
}

/// Merges the fragments of each datagram that come in order into longer ones.
///
/// ```
/// use std::time::Duration;
/// use wideload_engine::packet::{self, Frame, Ingress, LinkType, Pool, Time};
/// use wideload_engine::{FragmentMerger, Full, MergeLimits, Output, RunsBy, Secret};
///
/// # let fragment = |at: u16, more: bool| {
/// #     let mut bytes = vec![0x45, 0, 1, 36, 0, 7, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
/// #     bytes[6..8].copy_from_slice(&(at / 8 | u16::from(more) << 13).to_be_bytes());
/// #     let sum = packet::Sum::of(&bytes).checksum();
/// #     bytes[10..12].copy_from_slice(&sum.to_be_bytes());
/// #     bytes.resize(292, at as u8);
/// #     bytes
/// # };
/// let timeout = Duration::from_millis(10);
/// let limits = MergeLimits { bytes: 1 << 20, timeout, full: Full::Pass, runs: RunsBy::Datagram };
/// let mut merger = FragmentMerger::new(limits, 1_500, Secret::new(0x0123_4567_89AB_CDEF));
/// let mut out = Output::new(Pool::new(2 << 20), None);
/// // Five fragments of 272 bytes fit into one packet of 1,380 bytes. The sixth does not fit.
/// for number in 0..6 {
///     let packet = Frame::copy(&fragment(number * 272, true), LinkType::Ip, Ingress(0), &mut out.pool).unwrap();
///     merger.push(Time::ZERO, packet, &mut out);
/// }
/// let merged = out.next().unwrap();
/// assert_eq!(merged.len(), 1_380);
/// out.done(merged);
/// merger.expire(Time::ZERO + timeout, &mut out);
/// let late = out.next().unwrap();
/// assert!(late.is_as_received());
/// # out.done(late);
/// ```
#[derive(Debug)]
pub struct FragmentMerger {
    runs: FairTable<RunKey, Run>,
    /// How far datagrams without an open run have passed, where more fragments may come.
    passed: FairTable<DatagramKey, DeliveredUpTo>,
    limits: MergeLimits,
    mtu: u16,
    run_hints: Hints<HINT_COUNT>,
    passed_hints: Hints<HINT_COUNT>,
}

/// The key of a run: a datagram; a flow (a datagram without identification); or none, for one run in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunKey(Option<DatagramKey>);

/// Fragments in order, in the buffer of the first.
#[derive(Debug)]
struct Run {
    datagram: DatagramKey,
    packet: Packet,
    /// Whether other fragments of the datagram follow the last one.
    more: bool,
    passed: DeliveredUpTo,
    came: Tally,
    longest: u32,
}

/// How far a datagram has passed.
#[derive(Clone, Copy, Debug)]
struct DeliveredUpTo {
    /// The end of its highest byte that came, in bytes.
    top: usize,
    /// Whether the first fragment started at 0, and every later one at the end of the one before it.
    in_order: bool,
    /// Whether the datagram passed in order to its end.
    is_over: bool,
}

/// An arriving fragment.
struct Arrival {
    packet: Packet,
    datagram: DatagramKey,
    /// The range of its payload in the datagram, in bytes: `start` to `end`.
    start: usize,
    end: usize,
    more: bool,
    /// Whether a host would accept it, and it may be made longer.
    is_sound: bool,
}

impl FragmentMerger {
    /// A merger that makes packets of at most `mtu` bytes. The memory limit of the pool must exceed the merger's
    /// own limit: a run that has left keeps its buffer until the port has sent it.
    pub fn new(limits: MergeLimits, mtu: u16, secret: Secret) -> FragmentMerger {
        FragmentMerger {
            runs: FairTable::new(limits.bytes, &[limits.timeout], secret),
            passed: FairTable::new(PASSED_COUNT, &[REPEATED_WITHIN], secret),
            limits,
            mtu,
            run_hints: Hints::new(),
            passed_hints: Hints::new(),
        }
    }

    /// Sets the hash key of the tables.
    pub fn with_table_key(mut self, key: Secret) -> FragmentMerger {
        self.runs.set_key(key);
        self.passed.set_key(key);
        self
    }

    /// Takes a packet. An IPv4 fragment is appended to its datagram's run, starts a run, or passes behind the run.
    /// Any other packet is forwarded.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut impl Next) {
        let ip = packet.ip();
        let Some(fragment) = ip.fragment.filter(|_| ip.is_fragmented_on_path()) else { return out.forward(packet) };
        while let Some(at) = self.passed.overdue(now) {
            self.passed.remove(at);
        }
        let arrival = Arrival::of(packet, fragment);
        let key = self.limits.runs.key(arrival.datagram);
        if let Err(at) = self.run_hints.find(&self.runs, &key, fragment.id) {
            match self.refuses(now, at, &arrival, out) {
                None => return self.append(now, at, arrival, out),
                Some(event) => self.flush_run(now, at, event, out),
            }
        }
        self.open(now, key, arrival, out);
    }

    /// Sends out the runs whose deadline has passed.
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.overdue(now) {
            self.flush_run(now, at, Event::MergedTimeout, out);
        }
    }

    /// Sends out all runs, the earliest deadline first: the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.oldest() {
            self.flush_run(now, at, Event::MergedAtEnd, out);
        }
    }

    /// The deadline at which [`expire`](FragmentMerger::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.runs.next_deadline()
    }

    /// The held fragments, counted anew, and the number of buffers that they lie in.
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

    /// The reason why a fragment cannot be appended to the run; none where it can. Grows the run's buffer where
    /// needed.
    fn refuses(&mut self, now: Time, at: Handle, arrival: &Arrival, out: &mut impl Next) -> Option<Event> {
        let run = self.runs.slot_mut(at);
        let payload_len = arrival.payload_len();
        if run.datagram != arrival.datagram {
            Some(Event::MergedEvicted)
        } else if arrival.start != run.passed.top {
            Some(Event::MergedGap)
        } else if !run.packet.shares_fragment_header(&arrival.packet) {
            Some(Event::MergedChanged)
        } else if !arrival.is_sound {
            Some(Event::MergedGap)
        } else if run.packet.len() + payload_len > usize::from(self.mtu) {
            Some(Event::MergedFull)
        } else if run.packet.room() < payload_len && !self.grow(now, at, out) {
            Some(Event::MergedEvicted)
        } else {
            None
        }
    }

    fn append(&mut self, now: Time, at: Handle, arrival: Arrival, out: &mut impl Next) {
        let run = self.runs.slot_mut(at);
        run.append(&arrival);
        out.recycle(arrival.packet);
        let event = match (run.more, run.packet.ip().starts()) {
            (false, true) => Event::MergedComplete,
            (false, false) => Event::MergedLast,
            (true, _) if run.packet.len() == usize::from(self.mtu) => Event::MergedFull,
            (true, _) => return,
        };
        self.flush_run(now, at, event, out);
    }

    /// Handles a fragment without an open run. It starts a run where three conditions hold: it lies beyond all
    /// passed bytes of its datagram, there is a next fragment to wait for, and there is room. Otherwise it passes.
    fn open(&mut self, now: Time, key: RunKey, arrival: Arrival, out: &mut impl Next) {
        let charge = self.charge_of(arrival.packet.pinned_len());
        let has_room = self.make_room(now, charge, None, out);
        let id = arrival.packet.ip().id;
        let before = match self.passed_hints.find(&self.passed, &arrival.datagram, id) {
            Ok(_) => DeliveredUpTo::NOTHING,
            Err(at) => *self.passed.slot_mut(at),
        };
        let joins = arrival.start >= before.top && arrival.waits(self.mtu);
        let passed = before.and(&arrival);
        if joins && has_room {
            let at = self.runs.insert(now, key, Run::new(arrival, passed), charge, self.limits.timeout);
            self.run_hints.set(id, at);
            return;
        }
        if joins {
            out.ledger().note(Event::MergeRefused, Tally::of(&arrival.packet));
        }
        self.remember(now, &arrival.datagram, id, passed);
        out.forward(arrival.packet);
    }

    /// Ends a run for this reason.
    fn flush_run(&mut self, now: Time, at: Handle, event: Event, out: &mut impl Next) {
        let run = self.runs.remove(at);
        self.remember(now, &run.datagram, run.packet.ip().id, run.passed);
        run.leave(event, out);
    }

    /// Remembers how far a datagram has passed, unless it passed in order to its end. The entry's time-out is never
    /// refreshed: its identification will be reused.
    fn remember(&mut self, now: Time, datagram: &DatagramKey, id: u32, passed: DeliveredUpTo) {
        match self.passed_hints.find(&self.passed, datagram, id) {
            Err(at) if passed.is_over => drop(self.passed.remove(at)),
            Err(at) => *self.passed.slot_mut(at) = passed,
            Ok(_) if passed.is_over => {}
            Ok(vacant) => {
                let at = self.passed.insert_vacant(now, vacant, *datagram, passed, 1, REPEATED_WITHIN);
                self.passed_hints.set(id, at);
            }
        }
        if let Some(at) = self.passed.over_limit() {
            self.passed.remove(at);
        }
    }

    /// Moves a run to a buffer for packets of MTU length; false where there is no memory.
    fn grow(&mut self, now: Time, at: Handle, out: &mut impl Next) -> bool {
        let Some(larger) = out.pool().share(self.mtu.into()) else { return false };
        // A pool that is short may supply a larger buffer than requested and charged.
        let charge = self.charge_of(larger.pinned_len());
        if !self.make_room(now, charge - self.charge_of(0), Some(at), out) {
            out.pool().give(larger);
            return false;
        }
        out.pool().give(self.runs.slot_mut(at).packet.move_to(larger));
        self.runs.charge(at, charge);
        true
    }

    /// Whether there is room for `more` bytes. With [`Full::Evict`], the oldest runs leave to make room, except
    /// `keep`.
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

    /// The charge of a run whose buffer pins `pinned_len` bytes. Room for its longest packet is charged at once.
    /// Otherwise new runs would take the memory that open runs need.
    fn charge_of(&self, pinned_len: usize) -> usize {
        RUN_CHARGE + pinned_len.max(Buffer::pinned_len_for(self.mtu.into()))
    }
}

impl Run {
    fn new(first: Arrival, passed: DeliveredUpTo) -> Run {
        let Arrival { packet, datagram, more, .. } = first;
        Run { datagram, more, passed, came: Tally::of(&packet), longest: packet.ip().len, packet }
    }

    fn append(&mut self, arrival: &Arrival) {
        self.packet.append(arrival.packet.payload());
        self.more = arrival.more;
        self.passed = self.passed.and(arrival);
        self.came += Tally::of(&arrival.packet);
        self.longest = self.longest.max(arrival.packet.ip().len);
    }

    /// Forwards the run as one fragment, or as the complete datagram. A run of one fragment leaves unchanged.
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
    /// No byte has passed.
    const NOTHING: DeliveredUpTo = DeliveredUpTo { top: 0, in_order: true, is_over: false };

    /// The state with this fragment added, merged or not.
    fn and(self, arrival: &Arrival) -> DeliveredUpTo {
        let in_order = self.in_order && arrival.is_sound && arrival.start == self.top;
        DeliveredUpTo { top: self.top.max(arrival.end), in_order, is_over: in_order && !arrival.more }
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

    /// Whether to wait for the next fragment: one follows, and one of the same length would fit (C11).
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

/// Number of remembered run handles.
const HINT_COUNT: usize = 64;
/// Charge of a run beside its buffer, in bytes: its slot, its source, and their table entries.
const RUN_CHARGE: usize = 512;
/// Number of datagrams whose passed bytes are remembered.
const PASSED_COUNT: usize = 1_024;
/// How long they are remembered: repeats made by a network come soon, and identifications are reused later.
const REPEATED_WITHIN: Duration = Duration::from_millis(100);
