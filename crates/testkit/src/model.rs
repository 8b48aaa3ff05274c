//! Fragments -> datagrams, by a reference model of reassembly that stores every octet separately.
//!
//! The model is simple enough to be checked by reading. The model implements only these rulings:
//!
//! - A repeat is a fragment whose bytes have all arrived before with equal values. It is dropped, and its datagram
//!   remains.
//! - Any other overlap, or a contradiction about the datagram's end, drops the datagram. The datagram's key is
//!   poisoned until the deadline.
//! - The deadline is the arrival of the first fragment plus the time-out of the IP version. No event extends a
//!   deadline.

use crate::build::{Place, Spec};
use crate::fields::{CE, DF};
use crate::read::ReadPacket;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

/// The key of a datagram under reassembly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    version: u8,
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    /// Protocol number in IPv4; `None` in IPv6.
    protocol: Option<u8>,
    vlans: Vec<u16>,
    ingress: u32,
}

/// All datagrams under reassembly and all poisoned keys.
pub struct Model {
    /// Reassembly time-out; `None`: 30 s in IPv4 and 60 s in IPv6.
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

/// The result of a fragment's arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The fragment is stored until the rest of its datagram arrives.
    Incomplete,
    /// The fragment completes this datagram. Header fields are those of the fragment at offset 0, except DF and
    /// ECN.
    Complete(Box<Spec>),
    /// The datagram is complete, but only some of its fragments are ECN-capable. All fragments are dropped.
    MixedMarks,
    /// The fragment is a repeat, and is dropped.
    Repeat,
    /// The fragment contradicts its datagram, which is dropped. The number counts the dropped fragments, including
    /// this one.
    Kills(usize),
    /// The fragment's key is poisoned, so the fragment is dropped.
    Poisoned,
}

impl Key {
    /// The reassembly key of a fragment described by `header`.
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

    /// The reassembly key of a received fragment. `ingress` is the number of the receiving port.
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

    /// Whether two keys differ at most in identification and protocol.
    pub fn of_pair(&self, other: &Key) -> bool {
        let pair = |key: &Key| Key { id: 0, protocol: None, ..key.clone() };
        pair(self) == pair(other)
    }
}

impl Model {
    /// An empty model with this time-out; `None`: 30 s in IPv4 and 60 s in IPv6.
    pub fn new(timeout: Option<Duration>) -> Model {
        Model { timeout, waiting: BTreeMap::new() }
    }

    /// Processes a fragment with this header, position and payload. `now` must not decrease.
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

    /// Removes expired datagrams and returns them in order of their deadlines. Expired poisoned keys are removed,
    /// but not returned.
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

    /// The earliest deadline of a datagram or poisoned key; `None` if nothing is stored.
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

    /// Records the datagram's length, if this is the last fragment. Returns whether the length contradicts earlier
    /// fragments.
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

    /// The octets of the body; `None` for octets that have not arrived.
    pub fn octets(&self) -> &[Option<u8>] {
        &self.octets
    }

    /// Length of the body, in bytes; `None` until the last fragment arrives.
    pub fn end(&self) -> Option<usize> {
        self.end
    }

    /// Number of fragments that have arrived.
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }
}

/// The ECN codepoint of a reassembled datagram (RFC 3168 section 5.3):
///
/// - `None`: only some fragments are ECN-capable, so the datagram must be dropped.
/// - `Some(Some(CE))`: any fragment is marked CE.
/// - `Some(Some(codepoint))`: all fragments have this codepoint.
/// - `Some(None)`: the fragments have ECT(0) and ECT(1), so either codepoint is correct.
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
