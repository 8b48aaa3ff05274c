//! Fragments -> the datagrams that a host reassembles from them, by a reference model with one entry for every
//! octet.
//!
//! It is written from the rulings alone:
//!
//! - A repeat, whose bytes are all held and equal, is dropped; its datagram stays.
//! - Any other overlap, or a contradiction about the datagram's end, drops the datagram. Its key is then poisoned
//!   until the deadline.
//! - The deadline is the arrival of the first fragment plus the time-out of the version. Nothing extends it.

use crate::build::{Place, Spec};
use crate::fields::{CE, DF};
use crate::read::ReadPacket;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

/// The key of a datagram.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    version: u8,
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    /// In version 4 only.
    protocol: Option<u8>,
    vlans: Vec<u16>,
    ingress: u32,
}

/// All datagrams under reassembly.
pub struct Model {
    /// Reassembly time-out; none: 30 s in version 4, 60 s in version 6.
    timeout: Option<Duration>,
    waiting: BTreeMap<Key, Waiting>,
}

/// One datagram under reassembly.
pub struct Waiting {
    deadline: Duration,
    octets: Vec<Option<u8>>,
    end: Option<usize>,
    poisoned: bool,
    fragments: Vec<HeldFragment>,
}

struct HeldFragment {
    header: Spec,
    offset: usize,
    ip_len: usize,
}

/// The outcome of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is held until the rest arrives.
    Incomplete,
    /// It completes this datagram: header of the fragment at offset 0, DF and ECN of the whole, and payload.
    Complete(Box<Spec>),
    /// Some fragments are ECN-capable and some are not: all are dropped.
    MixedMarks,
    /// It is a repeat.
    Repeat,
    /// It drops its datagram, with this number of fragments including itself.
    Kills(usize),
    /// Its key is poisoned.
    Poisoned,
}

impl Key {
    /// The key of packets with this header.
    pub fn of(header: &Spec) -> Key {
        Key {
            version: header.version(),
            source: header.source,
            destination: header.destination,
            id: header.id,
            protocol: (header.version() == 4).then_some(header.protocol),
            vlans: header.vlans.clone().unwrap_or_default(),
            ingress: header.ingress,
        }
    }

    /// The key of a packet that arrived through this port.
    pub fn of_seen(seen: &ReadPacket, ingress: u32) -> Key {
        Key {
            version: seen.version,
            source: seen.source,
            destination: seen.destination,
            id: seen.id,
            protocol: (seen.version == 4).then_some(seen.protocol),
            vlans: seen.vlans.clone(),
            ingress,
        }
    }

    /// Whether two keys differ only in identification and protocol.
    pub fn of_pair(&self, other: &Key) -> bool {
        let pair = |key: &Key| Key { id: 0, protocol: None, ..key.clone() };
        pair(self) == pair(other)
    }
}

impl Model {
    /// A model with this time-out.
    pub fn new(timeout: Option<Duration>) -> Model {
        Model { timeout, waiting: BTreeMap::new() }
    }

    /// The outcome of a fragment with this header, position and payload.
    pub fn push(&mut self, now: Duration, header: &Spec, place: &Place, payload: &[u8]) -> Verdict {
        let usual = if header.version() == 4 { 30 } else { 60 };
        let timeout = self.timeout.unwrap_or(Duration::from_secs(usual));
        let key = Key::of(header);
        let waiting = self.waiting.entry(key.clone()).or_insert_with(|| Waiting::from(now + timeout));
        let verdict = waiting.take(header, place, payload);
        if matches!(verdict, Verdict::Complete(_) | Verdict::MixedMarks) {
            self.waiting.remove(&key);
        }
        verdict
    }

    /// The datagrams whose deadline has passed, by deadline; poisoned keys are forgotten without a report.
    pub fn expire(&mut self, now: Duration) -> Vec<(Key, Waiting)> {
        let mut late: Vec<_> = self.waiting.extract_if(.., |_, waiting| waiting.deadline <= now).collect();
        late.retain(|(_, waiting)| !waiting.poisoned);
        late.sort_by_key(|(_, waiting)| waiting.deadline);
        late
    }

    /// All datagrams under reassembly, without poisoned keys.
    pub fn open(&self) -> impl Iterator<Item = (&Key, &Waiting)> {
        self.waiting.iter().filter(|(_, waiting)| !waiting.poisoned)
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.deadline).min()
    }
}

impl Waiting {
    fn from(deadline: Duration) -> Waiting {
        Waiting { deadline, octets: Vec::new(), end: None, poisoned: false, fragments: Vec::new() }
    }

    fn take(&mut self, header: &Spec, place: &Place, payload: &[u8]) -> Verdict {
        if self.poisoned {
            return Verdict::Poisoned;
        }
        let range = place.range.clone();
        if self.octets.len() < range.end {
            self.octets.resize(range.end, None);
        }
        let held = &mut self.octets[range.clone()];
        if held.iter().zip(payload).all(|(held, new)| *held == Some(*new)) {
            return Verdict::Repeat;
        }
        let overlaps = held.iter().any(Option::is_some);
        held.iter_mut().zip(payload).for_each(|(held, new)| *held = Some(*new));
        if overlaps || self.disagrees(range.end, place.more) {
            let ended = self.fragments.len() + 1;
            *self = Waiting { poisoned: true, ..Waiting::from(self.deadline) };
            return Verdict::Kills(ended);
        }
        let ip_len = header.fragment_len(range.start) + payload.len();
        self.fragments.push(HeldFragment { header: header.clone(), offset: range.start, ip_len });
        self.whole()
    }

    /// Records the datagram's end. Returns whether that contradicts earlier fragments.
    fn disagrees(&mut self, end: usize, more: bool) -> bool {
        if !more {
            if self.end.is_some_and(|known| known != end) {
                return true;
            }
            self.end = Some(end);
        }
        self.end.is_some_and(|end| self.octets.iter().skip(end).any(Option::is_some))
    }

    fn whole(&self) -> Verdict {
        let octets: Option<Vec<u8>> = self.octets.iter().copied().collect();
        let (Some(payload), true) = (octets, self.end.is_some()) else { return Verdict::Incomplete };
        let Some(ecn) = joined_mark(self.fragments.iter().map(|fragment| fragment.header.tos & 3)) else {
            return Verdict::MixedMarks;
        };
        let Some(first) = self.fragments.iter().find(|fragment| fragment.offset == 0) else {
            return Verdict::Incomplete;
        };
        let longest = self.fragments.iter().map(|fragment| fragment.ip_len).max();
        let has_df =
            |fragment: &HeldFragment| fragment.header.ip_flags & DF != 0 && Some(fragment.ip_len) == longest;
        let df = if self.fragments.iter().any(has_df) { DF } else { 0 };
        let header = first.header.clone();
        let (ip_flags, tos) = (header.ip_flags & !DF | df, header.tos & !3 | ecn.unwrap_or(header.tos & 3));
        Verdict::Complete(Box::new(Spec { ip_flags, tos, fragment: None, payload, ..header }))
    }

    /// The held octets, one by one.
    pub fn octets(&self) -> &[Option<u8>] {
        &self.octets
    }

    /// The datagram's end, if its last fragment has arrived.
    pub fn end(&self) -> Option<usize> {
        self.end
    }

    /// Number of held fragments.
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }
}

/// The ECN codepoint of a reassembled datagram (RFC 3168 section 5.3).
///
/// - Outer none: some fragments are ECN-capable and some are not.
/// - CE if any fragment has it.
/// - Else the codepoint that all share; inner none for a mix of equivalent ones.
pub fn joined_mark(marks: impl Iterator<Item = u8>) -> Option<Option<u8>> {
    let mut marks: Vec<u8> = marks.collect();
    marks.sort_unstable();
    marks.dedup();
    match marks[..] {
        [one] => Some(Some(one)),
        [0, ..] => None,
        [.., CE] => Some(Some(CE)),
        _ => Some(None),
    }
}
