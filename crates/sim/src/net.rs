//! Frames transmitted by nodes -> arrival events at the far ends of wires.
//!
//! The state that all nodes share is also here: time, checks of laws, coverage and trace.

use crate::coverage::Coverage;
use crate::event::{Events, What};
use crate::flow::Flow;
use crate::laws::{Broken, Law};
use crate::link::{Link, Tally};
use crate::trace::Trace;
use crate::wire::{self, FRAGMENT, TCP};
use packet::Time;

/// The state shared by all nodes.
#[derive(Debug)]
pub struct Net {
    /// The current simulated time.
    pub now: Time,
    /// Number of the current event, from 1.
    pub event: u64,
    /// All wires. A wire is one direction of a link.
    pub wires: Vec<Attachment>,
    /// The queue of future events.
    pub events: Events<What>,
    /// The hash of all events and frames so far.
    pub trace: Trace,
    /// Number of occurrences of each fault, law, reason and event.
    pub hits: Coverage,
    /// All flows, by number.
    pub flows: Vec<Flow>,
    /// Rules for the packets of each host, by node number.
    pub hosts: Vec<HostRules>,
    /// Packets received by gateways. A packet that crosses several gateways is counted at the first.
    pub taken_in: u64,
    /// TCP connection packets received by gateways. A packet that crosses several gateways is counted at the first.
    pub tcp_taken_in: u64,
    /// Frames dropped outside of wires and ledgers. Undelivered data may be among these frames.
    pub ended: u64,
    /// Whether any wire flips bits.
    pub may_damage: bool,
    /// Whether any host sends malformed packets.
    pub has_malformed: bool,
    /// Whether any wire loses long frames more often than short ones.
    pub loses_by_len: bool,
    /// Number of paths behind borders whose packet size is lowered at the end.
    pub lowered_path_count: usize,
    /// The first violation of a law; `None` if all laws held.
    pub broken: Option<Broken>,
    /// Whether all stored data is recounted after each event. Otherwise the recount follows after as many events as
    /// there are entries.
    pub is_thorough: bool,
}

/// Rules for checks of a host's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostRules {
    /// Whether the host's datagrams must not be fragmented.
    pub dont_fragment: bool,
    /// Whether a wide interface has fragmented packets of the host.
    pub has_cutting_card: bool,
    /// Whether the host sends malformed packets.
    pub is_hostile: bool,
}

/// A wire: one direction of a link.
#[derive(Debug)]
pub struct Attachment {
    /// The model of the wire's delay, rate and losses.
    pub link: Link,
    /// Number of the node at the far end.
    pub to: usize,
    /// Number of the port at the far end.
    pub port: usize,
    /// The link's MTU, in bytes.
    pub mtu: usize,
    /// The smallest MTU of the link so far, in bytes.
    pub least_mtu: usize,
    /// Whether the link is up.
    pub is_up: bool,
    /// Frames dropped because the link was down.
    pub down_count: u64,
    /// Frames that were in flight when the link went down.
    pub cut_off: Tally,
    /// ECN-capable packets are marked while more frames than this are in flight; `None` = never.
    pub marks_above: Option<u64>,
    /// Number of frames that the wire marked.
    pub marked_count: u64,
    /// Time of the next planned arrival event.
    planned: Time,
}

impl Attachment {
    /// A wire without frames in flight.
    pub fn new(link: Link, to: usize, port: usize, mtu: usize) -> Attachment {
        Attachment {
            link,
            to,
            port,
            mtu,
            least_mtu: mtu,
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
    /// Numbers of this wire and of all behind it, up to the node that transmits on it.
    pub fn wires_behind(&self, wire: usize) -> Vec<usize> {
        let (start, from) = (wire, self.wires[wire ^ 1].to);
        let mut behind = vec![start];
        let mut seen = 0;
        while let Some(wire) = behind.get(seen).copied() {
            let at = self.wires[wire].to;
            let next = (0..self.wires.len()).filter(|next| at != from && self.wires[next ^ 1].to == at);
            behind.extend(next.filter(|next| !behind.contains(next)).collect::<Vec<_>>());
            seen += 1;
        }
        behind
    }

    /// Transmits a frame of `len` bytes on wire `number`; `write` fills in the bytes.
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

    /// Plans an event for the next arrival on a wire, unless an earlier event is planned.
    pub fn plan_arrival(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if let Some(due) = wire.link.next_departure().filter(|due| *due < wire.planned) {
            wire.planned = due;
            self.events.plan(due, What::Arrive(number as u32));
        }
    }

    /// Clears the planned arrival event of a wire if the event's time has come.
    pub fn arrived(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if wire.planned <= self.now {
            wire.planned = Time::NEVER;
        }
    }

    /// Counts a check of `law`.
    #[inline(always)]
    pub fn looked(&mut self, law: Law) {
        self.hits.laws[law as usize - 1] += 1;
    }

    /// Records a violation of `law`. Only the first violation is stored.
    #[cold]
    pub fn breaks(&mut self, law: Law, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { law, event: self.event, at: self.now, what: what() });
        }
    }

    /// Whether packets may have contents that no correct host sent.
    #[inline]
    pub fn is_spoilt(&self) -> bool {
        self.may_damage || self.has_malformed
    }

    /// Number of frames damaged on wires, whether or not a checksum detects the damage.
    pub fn damaged_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().corrupted.frames).sum()
    }

    /// Number of frames that wires delivered twice.
    pub fn duplicated_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().duplicated.frames).sum()
    }

    /// Checks law 4: packets that must not be fragmented are not fragmented.
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
        // Below this MTU, borders clear DF of TCP packets.
        let is_cleared = fragment.is_tcp
            && !fragment.is_v6
            && !fragment.dont_fragment
            && self.wires.iter().any(|wire| wire.mtu < usize::from(packet::IPV4_DF_MIN));
        if must_stay_whole && !is_cleared {
            self.breaks(Law::Refusal, || format!("a packet with DF is fragmented on wire {number}: {fragment:?}"));
        }
    }
}

/// Header fields of a fragment, for the checks.
#[derive(Clone, Copy, Debug)]
struct FragmentRecord {
    from: Option<u16>,
    is_v6: bool,
    is_tcp: bool,
    dont_fragment: bool,
}

impl FragmentRecord {
    /// The header fields of a fragment; `None` if the frame is not a fragment.
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
