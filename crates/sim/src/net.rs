//! Frames sent by nodes -> arrival events at the far ends of wires.
//!
//! It also holds the state that all nodes share: the time, the checks of laws, the coverage and the trace.

use crate::coverage::Coverage;
use crate::event::{Events, What};
use crate::flow::Flow;
use crate::laws::{Broken, Law};
use crate::link::{Link, Tally};
use crate::trace::Trace;
use crate::wire::{self, FRAGMENT, TCP};
use packet::Time;

/// State shared by all nodes.
#[derive(Debug)]
pub struct Net {
    /// The current time.
    pub now: Time,
    /// The number of the current event, from 1.
    pub event: u64,
    /// One direction of each link.
    pub wires: Vec<Attachment>,
    /// Future events.
    pub events: Events<What>,
    /// The trace so far.
    pub trace: Trace,
    /// How often each fault, law, reason and event occurred.
    pub hits: Coverage,
    /// The flows, by number.
    pub flows: Vec<Flow>,
    /// The checks that apply to each node's packets, by node number.
    pub hosts: Vec<HostRules>,
    /// Packets received by gateways, each counted at the first one.
    pub taken_in: u64,
    /// Packets of connections among them.
    pub tcp_taken_in: u64,
    /// Frames that ended neither on a wire nor in a ledger. Missing data may be among them.
    pub ended: u64,
    /// Whether some wire flips bits.
    pub may_damage: bool,
    /// Whether some host sends malformed packets.
    pub has_junk: bool,
    /// The first law that was broken.
    pub broken: Option<Broken>,
    /// Whether all held data is recounted after each event. Otherwise a recount follows as many events as there are
    /// entries.
    pub is_thorough: bool,
}

/// The packets of a host that may legally appear as fragments.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostRules {
    /// Whether its datagrams forbid fragmentation.
    pub dont_fragment: bool,
    /// Whether its network card fragments the packets it sends.
    pub has_cutting_card: bool,
    /// Whether it sends malformed packets.
    pub is_hostile: bool,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Attachment {
    /// The model of its delay, rate and losses.
    pub link: Link,
    /// The node at its far end, by number.
    pub to: usize,
    /// The port of that node.
    pub port: usize,
    /// Longest packet that it carries, in bytes.
    pub mtu: usize,
    /// Whether the link is up.
    pub is_up: bool,
    /// Frames lost because it was down.
    pub down_count: u64,
    /// Frames among them that were already in flight.
    pub cut_off: Tally,
    /// Above this number of frames in flight, ECN-capable packets are marked.
    pub marks_above: Option<u64>,
    /// Frames that it marked.
    pub marked_count: u64,
    /// Time of the next planned arrival.
    planned: Time,
}

impl Attachment {
    /// An idle wire.
    pub fn new(link: Link, to: usize, port: usize, mtu: usize) -> Attachment {
        Attachment {
            link,
            to,
            port,
            mtu,
            is_up: true,
            down_count: 0,
            cut_off: Tally::default(),
            marks_above: None,
            marked_count: 0,
            planned: Time::NEVER,
        }
    }
}

impl Net {
    /// Puts a frame of `len` bytes on a wire; `write` fills it in.
    #[inline]
    pub fn put(&mut self, number: usize, len: usize, write: impl FnOnce(&mut [u8])) {
        let wire = &mut self.wires[number];
        self.hits.laws[Law::Mtu as usize - 1] += 1;
        if len > wire.mtu {
            let mtu = wire.mtu;
            return self
                .breaks(Law::Mtu, || format!("a frame of {len} bytes is sent on wire {number} with MTU {mtu}"));
        }
        if !wire.is_up {
            wire.down_count += 1;
            return;
        }
        let is_crowded = wire.marks_above.is_some_and(|count| wire.link.inside().frames > count);
        let marked_count = &mut wire.marked_count;
        let trace = &mut self.trace;
        let mut fragment = None;
        wire.link.push_with(self.now, len, |room| {
            write(room);
            if is_crowded && wire::mark(room) {
                *marked_count += 1;
            }
            trace.note_frame(number, room);
            fragment = FragmentRecord::seen(room);
        });
        self.plan_arrival(number);
        if let Some(fragment) = fragment {
            self.check_fragment(number, fragment);
        }
    }

    /// Plans the next arrival of a wire, unless an earlier one is planned.
    pub fn plan_arrival(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if let Some(due) = wire.link.next_departure().filter(|due| *due < wire.planned) {
            wire.planned = due;
            self.events.plan(due, What::Arrive(number as u32));
        }
    }

    /// Clears the planned arrival that is now due.
    pub fn arrived(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if wire.planned <= self.now {
            wire.planned = Time::NEVER;
        }
    }

    /// Counts a check of a law.
    #[inline(always)]
    pub fn looked(&mut self, law: Law) {
        self.hits.laws[law as usize - 1] += 1;
    }

    /// Records a broken law; only the first one is kept.
    #[cold]
    pub fn breaks(&mut self, law: Law, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { law, event: self.event, at: self.now, what: what() });
        }
    }

    /// Whether packets may have contents that no correct host wrote.
    #[inline]
    pub fn is_spoilt(&self) -> bool {
        self.may_damage || self.has_junk
    }

    /// Frames damaged on a wire, perhaps undetected by a checksum.
    pub fn damaged_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().corrupted.frames).sum()
    }

    /// Frames that wires delivered twice.
    pub fn duplicated_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().duplicated.frames).sum()
    }

    /// Law 4: a packet that must not be fragmented is not fragmented.
    fn check_fragment(&mut self, number: usize, fragment: FragmentRecord) {
        self.looked(Law::Refusal);
        let Some(rules) = fragment.from.and_then(|host| self.hosts.get(usize::from(host))) else { return };
        // No checksum covers an IPv6 header. Damage can therefore turn an atomic fragment into a real one. A
        // segment is never atomic.
        let may_be_damaged = self.may_damage && fragment.is_v6 && !fragment.is_tcp;
        if rules.has_cutting_card || rules.is_hostile || may_be_damaged {
            return;
        }
        let must_stay_whole = rules.dont_fragment || fragment.is_tcp || fragment.dont_fragment;
        if must_stay_whole {
            self.breaks(Law::Refusal, || format!("a packet with DF is fragmented on wire {number}: {fragment:?}"));
        }
    }
}

/// Header fields of a fragment that the checks need.
#[derive(Clone, Copy, Debug)]
struct FragmentRecord {
    from: Option<u16>,
    is_v6: bool,
    is_tcp: bool,
    dont_fragment: bool,
}

impl FragmentRecord {
    /// The fragment in this frame, if it is one.
    #[inline]
    fn seen(frame: &[u8]) -> Option<FragmentRecord> {
        let is_fragment = match frame.first()? >> 4 {
            4 => wire::word(frame, 6) & 0x3FFF > 0,
            _ => *frame.get(6)? == FRAGMENT,
        };
        if !is_fragment {
            return None;
        }
        let seen = wire::read(frame)?;
        let dont_fragment = seen.dont_fragment && !seen.is_v6;
        let is_tcp = seen.protocol == TCP;
        seen.fragment.map(|_| FragmentRecord { from: seen.from, is_v6: seen.is_v6, is_tcp, dont_fragment })
    }
}
