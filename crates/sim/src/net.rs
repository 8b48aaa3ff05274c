//! Frames that nodes put on wires in, events at their far ends out; and what all nodes share: the moment, the laws, the trace.

use crate::coverage::Coverage;
use crate::event::{Events, What};
use crate::flow::Flow;
use crate::laws::{Broken, Law};
use crate::link::{Link, Tally};
use crate::trace::Trace;
use crate::wire::{self, FRAGMENT, TCP};
use packet::Time;

/// What all nodes share.
#[derive(Debug)]
pub struct Net {
    /// The moment.
    pub now: Time,
    /// The number of the event that happens, from 1.
    pub event: u64,
    /// One direction of each link.
    pub wires: Vec<Wire>,
    /// What is to happen.
    pub events: Events<What>,
    /// All that happened.
    pub trace: Trace,
    /// How often each thing was met.
    pub hits: Coverage,
    /// Who sends what to whom.
    pub flows: Vec<Flow>,
    /// What each node may be seen to have done to its packets, by number.
    pub hosts: Vec<HostRules>,
    /// Packets that gateways took in, each at the first that it met.
    pub taken_in: u64,
    /// Of them, those of connections.
    pub tcp_taken_in: u64,
    /// Frames that ended elsewhere than on a wire or in a ledger: what does not arrive may be among them.
    pub ended: u64,
    /// Is there a wire that flips bits?
    pub may_damage: bool,
    /// Does a host send what nobody should?
    pub has_junk: bool,
    /// The first law that was broken.
    pub broken: Option<Broken>,
    /// Is everything that is held counted anew after each event, not after as many events as it is long?
    pub is_thorough: bool,
}

/// Which packets of a host may be seen in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostRules {
    /// Do its datagrams forbid cutting?
    pub dont_fragment: bool,
    /// Does its card cut what it sends?
    pub has_cutting_card: bool,
    /// Does it send what nobody should?
    pub is_hostile: bool,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Wire {
    /// What it does to frames.
    pub link: Link,
    /// Who is at its far end, by number.
    pub to: usize,
    /// By which of its own ports.
    pub port: usize,
    /// Longest packet that it takes, in bytes.
    pub mtu: usize,
    /// Does it carry anything?
    pub is_up: bool,
    /// Frames that it lost because it was down.
    pub down_count: u64,
    /// Of those, what was on it already, and came out for nobody.
    pub cut_off: Tally,
    /// With more frames than this on it, those whose sender takes part are marked.
    pub marks_above: Option<u64>,
    /// Frames that it marked.
    pub marked_count: u64,
    /// When its next arrival is planned.
    planned: Time,
}

impl Wire {
    /// One with nothing on it.
    pub fn new(link: Link, to: usize, port: usize, mtu: usize) -> Wire {
        Wire {
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
    /// Puts a frame of `len` bytes on a wire, which `write` writes.
    #[inline]
    pub fn put(&mut self, number: usize, len: usize, write: impl FnOnce(&mut [u8])) {
        let wire = &mut self.wires[number];
        self.hits.laws[Law::Mtu as usize - 1] += 1;
        if len > wire.mtu {
            let mtu = wire.mtu;
            return self.breaks(Law::Mtu, || format!("{len} bytes are put on wire {number}, which takes {mtu}"));
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
            fragment = Piece::seen(room);
        });
        self.plan_arrival(number);
        if let Some(fragment) = fragment {
            self.check_fragment(number, fragment);
        }
    }

    /// Plans the next arrival of a wire, where an earlier one is not planned.
    pub fn plan_arrival(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if let Some(due) = wire.link.next_departure().filter(|due| *due < wire.planned) {
            wire.planned = due;
            self.events.plan(due, What::Arrive(number as u32));
        }
    }

    /// An arrival that was planned has come.
    pub fn arrived(&mut self, number: usize) {
        let wire = &mut self.wires[number];
        if wire.planned <= self.now {
            wire.planned = Time::NEVER;
        }
    }

    /// Notes that a law was looked at.
    #[inline(always)]
    pub fn looked(&mut self, law: Law) {
        self.hits.laws[law as usize - 1] += 1;
    }

    /// Notes that a law is broken; the first one counts.
    #[cold]
    pub fn breaks(&mut self, law: Law, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { law, event: self.event, at: self.now, what: what() });
        }
    }

    /// May packets say what no host of good will wrote?
    #[inline]
    pub fn is_spoilt(&self) -> bool {
        self.may_damage || self.has_junk
    }

    /// Frames that something befell that a checksum may not have seen.
    pub fn damaged_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().corrupted.frames).sum()
    }

    /// Frames that wires delivered twice.
    pub fn duplicated_count(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.counters().duplicated.frames).sum()
    }

    /// Law 4: what must not be cut is not cut.
    fn check_fragment(&mut self, number: usize, fragment: Piece) {
        self.looked(Law::Refusal);
        let Some(rules) = fragment.from.and_then(|host| self.hosts.get(usize::from(host))) else { return };
        // No sum covers a header of IPv6, so damage can make a piece of an atomic fragment, which no segment is.
        let may_be_damaged = self.may_damage && fragment.is_v6 && !fragment.is_tcp;
        if rules.has_cutting_card || rules.is_hostile || may_be_damaged {
            return;
        }
        let must_stay_whole = rules.dont_fragment || fragment.is_tcp || fragment.dont_fragment;
        if must_stay_whole {
            self.breaks(Law::Refusal, || {
                format!("a packet that must not be cut is in pieces on wire {number}: {fragment:?}")
            });
        }
    }
}

/// What a piece says of itself.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: Option<u16>,
    is_v6: bool,
    is_tcp: bool,
    dont_fragment: bool,
}

impl Piece {
    /// The piece in this frame, if it is one.
    #[inline]
    fn seen(frame: &[u8]) -> Option<Piece> {
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
        seen.fragment.map(|_| Piece { from: seen.from, is_v6: seen.is_v6, is_tcp, dont_fragment })
    }
}
