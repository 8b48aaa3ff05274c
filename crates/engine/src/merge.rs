//! Fragments in order -> longer fragments (Chandranmenon section 3.2; C10 to C13, C19).
//!
//! A datagram has at most one open run. The next fragment in order is appended to the first fragment of the run,
//! whose buffer grows. Any other fragment of the datagram ends the run, which is then sent. A run may start
//! anywhere in its datagram. A run never exceeds the MTU of the next link. No packet is dropped here (rel:G20): the
//! reassembling host gets the bytes of each datagram in their order of arrival, in fewer fragments. Fragments that
//! cannot be merged are forwarded unchanged.
//!
//! Forwarded bytes are never merged with new bytes. A host drops a repeated fragment. A fragment that repeats held
//! bytes and adds others makes the host discard the datagram (RFC 5722 section 4, R063). So no repeat may become
//! part of a longer fragment. The highest forwarded byte of a datagram is remembered for a while, unless the
//! datagram was complete and in order. Only fragments beyond that byte are merged.
//!
//! A router must not reassemble (RFC 1812 section 5.2.6, R031), unless the routers of one network agree on it
//! (R010). So a side merges only if its settings say so (rel:C1). IPv6 fragments are forwarded unchanged: their
//! source chose their length (R087).

use crate::keyed_hash::{Secret, TableKey};
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::reassembly::{DatagramKey, Hints, fault};
use crate::table::{FairTable, Handle, Key};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use packet::{Address, Buffer, Fragment, Packet, Time};

/// The treatment of fragments for a destination (C14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentPolicy {
    /// Fragments are forwarded unchanged.
    Off,
    /// Fragments are reassembled, whichever station fragmented the datagram. The destination host is behind this
    /// side.
    Reassemble,
    /// Fragments from one previous hop are reassembled, and the datagram is fragmented again for the next hop
    /// (C15).
    ReassembleHop,
    /// Fragments in order are merged into longer ones, up to the MTU of the next link (C10).
    Merge,
}

/// Limits of a fragment merger: memory, time, and the sharing of runs.
#[derive(Clone, Copy, Debug)]
pub struct MergeLimits {
    /// Memory limit for buffers, in bytes. An open run is charged for the buffer of its longest possible packet.
    pub bytes: usize,
    /// Maximum time from the first fragment of a run until the run is sent (rel:G18).
    pub timeout: Duration,
    /// The policy for fragments when memory is full.
    pub full: Full,
    /// The fragments that share a run.
    pub runs: RunsBy,
}

/// The policy for fragments when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The fragment is forwarded unchanged, and open runs continue (C19).
    Pass,
    /// The oldest run is sent to make room, as in Chandranmenon's paper: a fragment gets a run's memory before it
    /// is examined. With more concurrent datagrams than runs, hardly any fragments are merged. Only used for
    /// comparison with the paper.
    Evict,
}

/// The fragments that share a run (C13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsBy {
    /// Each datagram has a run of its own.
    Datagram,
    /// The datagrams of a flow share one run. A fragment of another datagram ends the run. A flow has one pair of
    /// addresses and one protocol.
    Flow,
    /// All datagrams share one run. A fragment of any other datagram ends the run.
    All,
}

/// Merges consecutive fragments of each datagram into longer fragments.
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
/// out.recycle(merged);
/// merger.expire(Time::ZERO + timeout, &mut out);
/// let late = out.next().unwrap();
/// assert!(late.is_as_received());
/// # out.recycle(late);
/// ```
#[derive(Debug)]
pub struct FragmentMerger {
    runs: FairTable<RunKey, Run>,
    /// State of datagrams without an open run, if more of their fragments may arrive.
    passed: FairTable<DatagramKey, DeliveredUpTo>,
    limits: MergeLimits,
    mtu: u16,
    run_hints: Hints<HINT_COUNT>,
    passed_hints: Hints<HINT_COUNT>,
}

/// The key of a run, by [`RunsBy`]: a datagram; a flow, as a datagram key without identification; or `None` for the
/// only run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunKey(Option<DatagramKey>);

/// Merged fragments, in the buffer of the first fragment.
#[derive(Debug)]
struct Run {
    datagram: DatagramKey,
    packet: Packet,
    /// Whether other fragments of the datagram follow the last merged fragment (MF).
    more: bool,
    passed: DeliveredUpTo,
    came: Tally,
    longest: u32,
}

/// The progress of a datagram: the bytes that were forwarded or merged so far.
#[derive(Clone, Copy, Debug)]
struct DeliveredUpTo {
    /// Offset behind the highest received byte of the datagram, in bytes.
    top: usize,
    /// Whether the first fragment had offset 0, and every later fragment began at the end of the fragment before
    /// it.
    in_order: bool,
    /// Whether the complete datagram was received in order.
    is_over: bool,
}

/// An arriving fragment.
struct Arrival {
    packet: Packet,
    datagram: DatagramKey,
    /// Offset of the payload in the datagram, in bytes. `end` is the offset behind the payload.
    start: usize,
    end: usize,
    more: bool,
    /// Whether a host would accept the fragment, and routers may make it longer.
    is_sound: bool,
}

impl FragmentMerger {
    /// Creates a merger for packets of at most `mtu` bytes. The memory limit of the pool must exceed that of the
    /// merger: a sent run occupies its buffer until the port has transmitted it.
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

    /// Takes a packet. An IPv4 fragment is appended to its datagram's run, starts a run, or is forwarded behind the
    /// run. Any other packet is forwarded.
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

    /// Sends the runs whose deadline has passed.
    pub fn expire(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.overdue(now) {
            self.flush_run(now, at, Event::MergedTimeout, out);
        }
    }

    /// Sends all runs, the earliest deadline first, because the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut impl Next) {
        while let Some(at) = self.runs.oldest() {
            self.flush_run(now, at, Event::MergedAtEnd, out);
        }
    }

    /// Returns the time at which [`expire`](FragmentMerger::expire) next has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.runs.next_deadline()
    }

    /// Recounts the held fragments with their payload bytes, and their buffers.
    pub fn held(&self) -> (Tally, usize) {
        self.runs.values().fold((Tally::NONE, 0), |(mut tally, buffers), run| {
            tally += run.came;
            (tally, buffers + 1)
        })
    }

    /// Returns the bytes charged against the limit.
    pub fn charged(&self) -> usize {
        self.runs.charged()
    }

    /// Returns the reason why a fragment cannot be appended to the run. `None` if it can. Enlarges the run's buffer
    /// if necessary.
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

    /// Handles a fragment without an open run. It starts a run under three conditions: it begins behind all
    /// received bytes of its datagram, another fragment follows, and there is memory. Otherwise it is forwarded.
    fn open(&mut self, now: Time, key: RunKey, arrival: Arrival, out: &mut impl Next) {
        let charge = self.charge_of(arrival.packet.pinned_len());
        let has_room = self.make_room(now, charge, None, out);
        let id = arrival.packet.ip().id;
        let before = match self.passed_hints.find(&self.passed, &arrival.datagram, id) {
            Ok(_) => DeliveredUpTo::NOTHING,
            Err(at) => *self.passed.slot_mut(at),
        };
        let policies = arrival.start >= before.top && arrival.waits(self.mtu);
        let passed = before.and(&arrival);
        if policies && has_room {
            let at = self.runs.insert(now, key, Run::new(arrival, passed), charge, self.limits.timeout);
            self.run_hints.set(id, at);
            return;
        }
        if policies {
            out.ledger().note(Event::MergeRefused, Tally::of(&arrival.packet));
        }
        self.remember(now, &arrival.datagram, id, passed);
        out.forward(arrival.packet);
    }

    /// Ends a run for the reason `event`, and sends it.
    fn flush_run(&mut self, now: Time, at: Handle, event: Event, out: &mut impl Next) {
        let run = self.runs.remove(at);
        self.remember(now, &run.datagram, run.packet.ip().id, run.passed);
        run.leave(event, out);
    }

    /// Remembers the progress of a datagram, unless the complete datagram was forwarded in order. The entry's
    /// time-out is never refreshed, because the IP ID will be reused.
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

    /// Moves a run to a buffer for packets of MTU length. Returns false if there is no memory.
    fn grow(&mut self, now: Time, at: Handle, out: &mut impl Next) -> bool {
        let Some(larger) = out.pool().allocate(self.mtu.into()) else { return false };
        // A pool that is short of memory may supply a larger buffer than requested and charged.
        let charge = self.charge_of(larger.pinned_len());
        if !self.make_room(now, charge - self.charge_of(0), Some(at), out) {
            out.pool().give(larger);
            return false;
        }
        out.pool().give(self.runs.slot_mut(at).packet.move_to(larger));
        self.runs.charge(at, charge);
        true
    }

    /// Whether there is memory for `more` bytes. With [`Full::Evict`], the oldest runs except `keep` are sent to
    /// make room.
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

    /// Returns the charge of a run whose buffer pins `pinned_len` bytes. The charge includes room for the run's
    /// longest packet from the start. Otherwise new runs would use the memory that open runs need to grow.
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

    /// Forwards the run as one fragment, or as the complete datagram. A run of a single fragment is forwarded
    /// unchanged.
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
    /// The state before the first byte.
    const NOTHING: DeliveredUpTo = DeliveredUpTo { top: 0, in_order: true, is_over: false };

    /// Returns the state after this fragment, whether it was merged or not.
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

    /// Whether to wait for the next fragment: another fragment follows, and one of equal length would fit (C11).
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

/// Number of hints, separately for open runs and for the progress of datagrams.
const HINT_COUNT: usize = 64;
/// Charge of a run without its buffer, in bytes: its slot, its source, and their table entries.
const RUN_CHARGE: usize = 512;
/// Maximum number of datagrams whose progress is remembered. Above it, the oldest entry of the source with the most
/// entries is evicted.
const PASSED_COUNT: usize = 1_024;
/// Time-out of a datagram's progress. Repeats made by a network arrive within this time; IP IDs are reused later.
const REPEATED_WITHIN: Duration = Duration::from_millis(100);
