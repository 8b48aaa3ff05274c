//! Fragments -> the datagrams that a host delivers.
//!
//! The model follows the engine's behaviour or the kernel's. The model has a map of received octets, and a switch
//! for each known difference. To be an independent check, the model shares no code with the engine. The model is
//! used only where kernel and engine differ.

use super::reassembly::seen;
use super::{Known, Verdict};
use packet::Sum;
use std::collections::BTreeMap;

/// Returns the known differences that explain why the kernel's output differs from the engine's. Without an
/// explanation, the verdict describes the difference.
pub(super) fn explain(frames: &[Vec<u8>], kernel: &[Vec<u8>], engine: &[Vec<u8>]) -> Verdict {
    let ours = run(frames, &[]);
    if ours != engine {
        return Verdict::Differs(format!(
            "the engine delivers {}, the kernel {}; expected by our rules: {}",
            shown(engine),
            shown(kernel),
            shown(&ours)
        ));
    }
    let mut directions = Known::REASSEMBLY.to_vec();
    let theirs = run(frames, &directions);
    if theirs != kernel {
        return Verdict::Differs(format!(
            "the kernel delivers {}, the engine {}; expected from the known differences: {}",
            shown(kernel),
            shown(engine),
            shown(&theirs)
        ));
    }
    // A known difference without effect is not part of the explanation.
    for known in Known::REASSEMBLY {
        let fewer: Vec<Known> = directions.iter().copied().filter(|direction| *direction != known).collect();
        if run(frames, &fewer) == kernel {
            directions = fewer;
        }
    }
    Verdict::Known(directions)
}

/// Lists packets in words, each by its length and first bytes.
pub(super) fn shown(delivered: &[Vec<u8>]) -> String {
    let each = delivered.iter().map(|it| format!("{} bytes {:02x?}", it.len(), &it[..it.len().min(44)]));
    format!("[{}]", each.collect::<Vec<_>>().join("; "))
}

/// Returns the packets that a host delivers if the given differences follow the kernel's behaviour.
fn run(frames: &[Vec<u8>], kernels_direction: &[Known]) -> Vec<Vec<u8>> {
    let mut model =
        Model { kernels_direction, open: BTreeMap::new(), rounds: BTreeMap::new(), delivered: Vec::new() };
    for frame in frames {
        if let Some(fragment) = ParsedFragment::read(frame) {
            model.push(&fragment);
        }
    }
    model.delivered.sort_unstable();
    model.delivered
}

struct Model<'a> {
    kernels_direction: &'a [Known],
    open: BTreeMap<Vec<u8>, Datagram>,
    /// Number of fragments received from each source.
    rounds: BTreeMap<Vec<u8>, u32>,
    delivered: Vec<Vec<u8>>,
}

/// A packet with its fragment fields parsed.
#[derive(Clone)]
struct ParsedFragment<'a> {
    is_v4: bool,
    key: Vec<u8>,
    source: Vec<u8>,
    header: &'a [u8],
    /// IPv6: next header of the Fragment header.
    next_header: u8,
    payload: &'a [u8],
    start: usize,
    more: bool,
    is_fragment: bool,
    ecn: u8,
    dont_fragment: bool,
}

#[derive(Default)]
struct Datagram {
    octets: Vec<u8>,
    came: Vec<bool>,
    came_count: usize,
    /// Runs of fragments, each of which arrived directly after its predecessor in the datagram.
    runs: Vec<(usize, usize)>,
    /// Index of the run at the highest offsets, the only run that can grow; `None` without fragments.
    tail: Option<usize>,
    top: usize,
    has_end: bool,
    marks: u8,
    longest: usize,
    longest_dont_fragment: usize,
    /// Header and next header of the fragment at offset 0; `None` until it arrives.
    first: Option<(Vec<u8>, u8)>,
    is_poisoned: bool,
    round: u32,
}

/// Outcome of a fragment.
enum Fate {
    Accepted,
    Dropped,
    /// The datagram and the fragment are dropped.
    EndsDatagram,
}

impl Model<'_> {
    fn is_kernels(&self, known: Known) -> bool {
        self.kernels_direction.contains(&known)
    }

    fn push(&mut self, fragment: &ParsedFragment<'_>) {
        if !fragment.is_fragment {
            let class = class(fragment.header);
            return self.deliver(fragment.header, fragment.next_header, fragment.payload, class, None);
        }
        if self.is_unusable(fragment) {
            return;
        }
        let round = self.rounds.entry(fragment.source.clone()).or_default();
        *round += 1;
        let round = *round;
        let mut datagram = self.open.remove(&fragment.key).unwrap_or_default();
        let is_far = fragment.is_v4 && !datagram.runs.is_empty() && round - datagram.round > DISTANCE_MAX;
        if is_far && self.is_kernels(Known::Distance) {
            datagram = datagram.begun_anew();
        }
        datagram.round = round;
        match self.join(&mut datagram, fragment) {
            Fate::EndsDatagram if self.is_kernels(Known::NoPoison) => return,
            Fate::EndsDatagram => datagram = Datagram { is_poisoned: true, ..Datagram::default() },
            Fate::Accepted if datagram.is_whole() => return self.close(&datagram),
            Fate::Dropped | Fate::Accepted => {}
        }
        self.open.insert(fragment.key.clone(), datagram);
    }

    /// Whether a fragment is dropped before any look-up.
    fn is_unusable(&self, fragment: &ParsedFragment<'_>) -> bool {
        let (len, end) = (fragment.payload.len(), fragment.start + fragment.payload.len());
        let is_uneven = fragment.more && !len.is_multiple_of(8);
        let is_cut = fragment.start == 0 && !fragment.is_v4 && self.lacks_headers(fragment);
        len == 0 && !self.is_kernels(Known::Empty)
            || is_uneven && !(fragment.is_v4 && self.is_kernels(Known::Trimmed))
            || self.is_too_long(fragment, end)
            || is_cut
            || fragment.start > 0 && has_first_option(fragment) && !self.is_kernels(Known::LateOption)
    }

    /// Whether a fragment ends beyond the longest possible datagram.
    fn is_too_long(&self, fragment: &ParsedFragment<'_>, end: usize) -> bool {
        match (fragment.is_v4, self.is_kernels(Known::Oversize)) {
            (true, true) => false,
            (true, false) => fragment.header.len() + end > LEN_MAX,
            (false, true) => end > LEN_MAX,
            (false, false) => fragment.header.len() - V6_LEN + end > LEN_MAX,
        }
    }

    /// Whether the first fragment of an IPv6 datagram lacks upper-layer headers.
    fn lacks_headers(&self, fragment: &ParsedFragment<'_>) -> bool {
        let (mut next, mut at) = (fragment.next_header, 0);
        while next == DESTINATION {
            let Some(header) = fragment.payload.get(at..at + 2) else { return !self.is_kernels(Known::CutChain) };
            (next, at) = (header[0], at + 8 + usize::from(header[1]) * 8);
        }
        let needed = if next == UDP { 8 } else { usize::from(self.is_kernels(Known::BareHeader)) };
        fragment.payload.len() < at + needed
    }

    fn join(&self, datagram: &mut Datagram, fragment: &ParsedFragment<'_>) -> Fate {
        if datagram.is_poisoned {
            return Fate::Dropped;
        }
        let mut payload = fragment.payload;
        if fragment.is_v4 && fragment.more {
            payload = &payload[..payload.len() / 8 * 8];
        }
        let (start, end) = (fragment.start, fragment.start + payload.len());
        let contradicts = if fragment.more {
            datagram.has_end && end > datagram.top
        } else {
            end < datagram.top || datagram.has_end && end != datagram.top
        };
        if self.is_kernels(Known::EndFirst) {
            if contradicts {
                return Fate::EndsDatagram;
            }
            datagram.note_end(end, fragment.more);
        }
        if payload.is_empty() {
            return Fate::EndsDatagram;
        }
        let held = (start..end).filter(|at| datagram.came.get(*at) == Some(&true)).count();
        if held == payload.len() {
            let is_equal = datagram.octets[start..end] == *payload;
            let is_in_one = datagram.runs.iter().any(|(from, to)| *from <= start && end <= *to);
            return match (is_in_one, is_equal) {
                (false, _) if self.is_kernels(Known::AcrossRuns) => Fate::EndsDatagram,
                (_, true) => Fate::Dropped,
                (_, false) if self.is_kernels(Known::UnequalRepeat) => Fate::Dropped,
                (_, false) => Fate::EndsDatagram,
            };
        }
        if held > 0 || contradicts {
            return Fate::EndsDatagram;
        }
        datagram.note_end(end, fragment.more);
        datagram.take(fragment, payload, start..end);
        Fate::Accepted
    }

    fn close(&mut self, datagram: &Datagram) {
        let Some((header, next_header)) = &datagram.first else { return };
        let is_v4 = header[0] >> 4 == 4;
        let len = datagram.top + header.len() - if is_v4 { 0 } else { V6_LEN };
        let Some(mark) = joined(datagram.marks) else { return };
        if len > LEN_MAX {
            return;
        }
        let dont_fragment = datagram.longest == datagram.longest_dont_fragment;
        let class = class(header) | mark;
        self.deliver(header, *next_header, &datagram.octets[..datagram.top], class, Some(dont_fragment));
    }

    /// Delivers a complete datagram. `rejoined` is `None` for an unfragmented datagram. For a reassembled one, it
    /// is the DF flag to set.
    fn deliver(&mut self, header: &[u8], next_header: u8, payload: &[u8], class: u8, rejoined: Option<bool>) {
        if header[0] >> 4 == 6 {
            let Some((protocol, at)) = walk(next_header, payload) else { return };
            if RECEIVED.contains(&protocol) {
                let said = [class, header[7], protocol];
                self.delivered.push(seen(&header[8..24], &header[24..40], said, &payload[at..]));
            }
            return;
        }
        let mut whole = [header, payload].concat();
        if let Some(dont_fragment) = rejoined {
            let len = whole.len() as u16;
            whole[1] = class;
            whole[2..4].copy_from_slice(&len.to_be_bytes());
            whole[6..8].copy_from_slice(&[if dont_fragment { 0x40 } else { 0 }, 0]);
            whole[10..12].fill(0);
            let sum = Sum::of(&whole[..header.len()]).checksum();
            whole[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        if RECEIVED.contains(&whole[9]) {
            self.delivered.push(whole);
        }
    }
}

impl Datagram {
    fn is_whole(&self) -> bool {
        self.has_end && self.first.is_some() && self.came_count == self.top
    }

    /// Returns the state that the kernel keeps when it restarts a datagram: the lengths of the longest fragments,
    /// dropped ones included.
    fn begun_anew(&self) -> Datagram {
        let Datagram { longest, longest_dont_fragment, .. } = *self;
        Datagram { longest, longest_dont_fragment, ..Datagram::default() }
    }

    fn note_end(&mut self, end: usize, more: bool) {
        self.has_end |= !more;
        self.top = self.top.max(end);
    }

    fn take(&mut self, fragment: &ParsedFragment<'_>, payload: &[u8], range: std::ops::Range<usize>) {
        if self.octets.len() < range.end {
            self.octets.resize(range.end, 0);
            self.came.resize(range.end, false);
        }
        self.octets[range.clone()].copy_from_slice(payload);
        self.came[range.clone()].fill(true);
        self.came_count += payload.len();
        match self.tail.map(|tail| &mut self.runs[tail]) {
            Some(run) if run.1 == range.start => run.1 = range.end,
            tail => {
                let is_highest = tail.is_none_or(|run| run.1 < range.end);
                self.runs.push((range.start, range.end));
                if is_highest {
                    self.tail = Some(self.runs.len() - 1);
                }
            }
        }
        self.marks |= 1 << fragment.ecn;
        let len = fragment.header.len() + payload.len();
        self.longest = self.longest.max(len);
        if fragment.dont_fragment {
            self.longest_dont_fragment = self.longest_dont_fragment.max(len);
        }
        if range.start == 0 {
            self.first = Some((fragment.header.to_vec(), fragment.next_header));
        }
    }
}

impl<'a> ParsedFragment<'a> {
    /// Parses a packet; `None` if a host drops it regardless of other fragments.
    fn read(frame: &'a [u8]) -> Option<ParsedFragment<'a>> {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        if frame[0] >> 4 == 4 {
            let header = &frame[..usize::from(frame[0] & 15) * 4];
            let payload = &frame[header.len()..usize::from(word(2))];
            let key = [&frame[12..20], &frame[9..10], &frame[4..6]].concat();
            let place = word(6);
            let (start, more) = (usize::from(place & 0x1FFF) * 8, place & 0x2000 != 0);
            return Sum::of(header).is_right().then(|| ParsedFragment {
                is_v4: true,
                key,
                source: frame[12..16].to_vec(),
                header,
                next_header: frame[9],
                payload,
                start,
                more,
                is_fragment: start > 0 || more,
                ecn: frame[1] & 3,
                dont_fragment: place & 0x4000 != 0,
            });
        }
        let end = V6_LEN + usize::from(word(4));
        let (mut at, mut next) = (V6_LEN, frame[6]);
        while next != FRAGMENT {
            next = frame[at];
            at += 8 + usize::from(frame[at + 1]) * 8;
        }
        let place = word(at + 2);
        let (start, more) = (usize::from(place & 0xFFF8), place & 1 != 0);
        Some(ParsedFragment {
            is_v4: false,
            key: [&frame[8..40], &frame[at + 4..at + 8]].concat(),
            source: frame[8..24].to_vec(),
            header: &frame[..at],
            next_header: frame[at],
            payload: &frame[at + 8..end],
            start,
            more,
            is_fragment: start > 0 || more,
            ecn: class(frame) & 3,
            dont_fragment: false,
        })
    }
}

fn class(header: &[u8]) -> u8 {
    if header[0] >> 4 == 4 { header[1] } else { header[0] << 4 | header[1] >> 4 }
}

/// Returns the ECN mark for a datagram whose fragments have these marks. Returns `None` if Not-ECT and other marks
/// are mixed.
fn joined(marks: u8) -> Option<u8> {
    let (not, met) = (marks & 1 != 0, marks & 8 != 0);
    match (not, met) {
        (true, _) if marks == 1 => Some(0),
        (true, _) => None,
        (false, met) => Some(if met { 3 } else { 0 }),
    }
}

/// Returns the protocol behind destination options, and its offset; `None` if the options are truncated.
fn walk(mut next: u8, payload: &[u8]) -> Option<(u8, usize)> {
    let mut at = 0;
    while next == DESTINATION {
        let header = payload.get(at..at + 2)?;
        let len = 8 + usize::from(header[1]) * 8;
        payload.get(at..at + len)?;
        (next, at) = (header[0], at + len);
    }
    Some((next, at))
}

/// Whether the fragment has an IPv4 option that only a first fragment may carry.
fn has_first_option(fragment: &ParsedFragment<'_>) -> bool {
    fragment.is_v4 && fragment.header.get(20).is_some_and(|option| *option == 0x1E)
}

const LEN_MAX: usize = 65_535;
const V6_LEN: usize = 40;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const UDP: u8 = 17;
/// Protocols for which the host has a socket.
const RECEIVED: [u8; 3] = [17, 253, 254];
/// Number of fragments of a source after which the kernel restarts a datagram (ipfrag_max_dist).
const DISTANCE_MAX: u32 = 64;
