//! Random numbers -> cases of fragmented datagrams.
//!
//! Complete datagrams are drawn first, some of which share a key. Then their fragments are drawn, then the faults
//! of the fragments. Equal random numbers give equal cases.

use super::reassembly_cases::{Case, DATAGRAMS_MAX, Datagram, FragmentSpec, HeaderKind, PROTOCOLS};
use fastrand::Rng;
use packet::Version;

/// Draws a case: an IP version, datagrams, and fragments with faults.
pub(super) fn draw(rng: &mut Rng) -> Case {
    let version = if rng.bool() { Version::V4 } else { Version::V6 };
    let mut datagrams = draw_datagrams(rng, version);
    let faults = Faults::draw(rng);
    let mut fragments = Vec::new();
    for (index, datagram) in datagrams.iter().enumerate() {
        let own = draw_fragments(rng, &faults, datagram, version, index as u8);
        if rng.bool() {
            fragments.extend(own);
        } else {
            for fragment in own {
                fragments.insert(rng.usize(..=fragments.len()), fragment);
            }
        }
    }
    if faults.disorder && rng.bool() {
        rng.shuffle(&mut fragments);
    }
    if version == Version::V4 && rng.u8(..) == 0 {
        put_between(rng, &mut datagrams, &mut fragments);
    }
    Case { version, datagrams, fragments }
}

fn draw_datagrams(rng: &mut Rng, version: Version) -> Vec<Datagram> {
    let count = [1, 1, 1, 1, 2, DATAGRAMS_MAX][rng.usize(..6)];
    let first = draw_datagram(rng, version);
    let mut datagrams = vec![first];
    datagrams.extend((1..count).map(|_| draw_twin(rng, &first)));
    datagrams
}

fn draw_datagram(rng: &mut Rng, version: Version) -> Datagram {
    let front = if rng.u8(..4) == 0 { draw_front(rng, version) } else { HeaderKind::None };
    let behind = if version == Version::V6 && rng.u8(..6) == 0 { draw_behind(rng) } else { HeaderKind::None };
    Datagram {
        protocol: PROTOCOLS[rng.usize(..3)],
        destination: rng.u8(1..=2),
        id: 0,
        content: rng.u32(..),
        hops: rng.u8(2..),
        class: rng.u8(..) & !3,
        front,
        behind,
    }
}

fn draw_front(rng: &mut Rng, version: Version) -> HeaderKind {
    match (version, rng.u8(..4)) {
        (Version::V4, 0) => HeaderKind::Copied,
        (Version::V4, 1) => HeaderKind::FirstOnly,
        (Version::V4, _) => HeaderKind::Nops(rng.u8(1..=10)),
        (Version::V6, 0) => HeaderKind::HopByHop(rng.u8(..3)),
        (Version::V6, 1) => HeaderKind::Destination(rng.u8(..3)),
        (Version::V6, 2) => HeaderKind::Routing,
        (Version::V6, _) => HeaderKind::Both,
    }
}

fn draw_behind(rng: &mut Rng) -> HeaderKind {
    if rng.bool() { HeaderKind::Twice } else { HeaderKind::Destination(rng.u8(..4)) }
}

/// Draws a datagram that differs from another in one part of the reassembly key. Some differ in no part and reuse
/// the key.
fn draw_twin(rng: &mut Rng, of: &Datagram) -> Datagram {
    let mut twin = Datagram { content: rng.u32(..), ..*of };
    match rng.u8(..4) {
        0 => twin.protocol = PROTOCOLS[rng.usize(..3)],
        1 => twin.destination = 3 - twin.destination,
        2 => twin.id = twin.id.wrapping_add(1 << rng.u8(..16)),
        _ => {}
    }
    twin
}

/// Inserts many first fragments of other datagrams from the same source. The kernel then assumes that the missing
/// fragments of the case are lost.
fn put_between(rng: &mut Rng, datagrams: &mut Vec<Datagram>, fragments: &mut Vec<FragmentSpec>) {
    let (Some(like), at) = (fragments.first().copied(), rng.usize(..=fragments.len())) else { return };
    let first = datagrams.len();
    let others = first..first + rng.usize(60..70);
    for (number, index) in others.clone().enumerate() {
        datagrams.push(Datagram { id: 0x4000 + number as u16, ..datagrams[0] });
        fragments.insert(
            at,
            FragmentSpec { datagram: index as u8, offset: 0, len: 16, more: true, altered: None, ..like },
        );
    }
}

fn draw_fragments(
    rng: &mut Rng,
    faults: &Faults,
    datagram: &Datagram,
    version: Version,
    index: u8,
) -> Vec<FragmentSpec> {
    let len = draw_len(rng);
    let plain = FragmentSpec { dont_fragment: rng.u8(..4) == 0, ecn: rng.u8(..4), ..FragmentSpec::first_of(index) };
    let is_first_only = version == Version::V4 && datagram.front == HeaderKind::FirstOnly;
    let fragment = |ends: &[usize]| FragmentSpec {
        offset: ends[0] as u16,
        len: (ends[1] - ends[0]) as u16,
        more: ends[1] < len,
        front: (is_first_only && ends[0] > 0).then_some(HeaderKind::None),
        ..plain
    };
    let mut fragments: Vec<FragmentSpec> = draw_cuts(rng, len).windows(2).map(fragment).collect();
    match rng.u8(..3) {
        0 => fragments.reverse(),
        1 if faults.disorder => rng.shuffle(&mut fragments),
        _ => {}
    }
    for fault in &faults.others {
        if !fragments.is_empty() {
            spoil(rng, *fault, version, len, &mut fragments);
        }
    }
    fragments
}

fn draw_len(rng: &mut Rng) -> usize {
    let longest = match rng.u8(..64) {
        0 => 65_515,
        1..4 => 9_000,
        4..12 => 3_000,
        _ => 400,
    };
    rng.usize(9..longest)
}

/// Draws the fragment boundaries of `len` bytes, including 0 and `len`.
fn draw_cuts(rng: &mut Rng, len: usize) -> Vec<usize> {
    let count_max = if rng.u8(..4) == 0 { 9 } else { 4 };
    let count = rng.usize(2..=count_max);
    let mut cuts: Vec<usize> = (1..count).map(|_| rng.usize(1..=(len - 1) / 8) * 8).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Faults of the fragments of one case.
struct Faults {
    disorder: bool,
    /// Faults in the order in which they are applied to the fragments of each datagram.
    others: Vec<Fault>,
}

/// A fault of a datagram's fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Repeat,
    /// A byte of a duplicate is changed. Without duplicates, this fault has no effect.
    Alteration,
    Overlap,
    Gap,
    Empty,
    Uneven,
    End,
    Offset,
    EcnMarks,
    Header,
    Damage,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        let disorder = rng.bool();
        let drawn = Fault::ALL.into_iter().filter(|(_, of)| rng.u8(..*of) == 0).map(|(fault, _)| fault);
        let mut others: Vec<Fault> = drawn.collect();
        if !others.contains(&Fault::Repeat) {
            others.retain(|fault| *fault != Fault::Alteration);
        }
        Faults { disorder, others }
    }
}

impl Fault {
    /// Each fault, and its frequency: a value of 3 means one in three cases.
    const ALL: [(Fault, u8); 11] = [
        (Fault::Repeat, 3),
        (Fault::Alteration, 6),
        (Fault::Overlap, 4),
        (Fault::Gap, 6),
        (Fault::Empty, 12),
        (Fault::Uneven, 12),
        (Fault::End, 8),
        (Fault::Offset, 12),
        (Fault::EcnMarks, 4),
        (Fault::Header, 4),
        (Fault::Damage, 24),
    ];
}

fn spoil(rng: &mut Rng, fault: Fault, version: Version, len: usize, fragments: &mut Vec<FragmentSpec>) {
    let at = rng.usize(..fragments.len());
    let to = rng.usize(..=fragments.len());
    let fragment = fragments[at];
    let (spoilt, is_beside) = match fault {
        Fault::Repeat => (fragment, true),
        Fault::Alteration => (draw_altered(rng, fragment), true),
        Fault::Overlap => (draw_overlapping(rng, fragment, len), true),
        Fault::Empty => (draw_empty(rng, fragment, len), true),
        Fault::Uneven => (draw_uneven(rng, fragment), rng.bool()),
        Fault::End => (FragmentSpec { more: !fragment.more, ..fragment }, rng.bool()),
        Fault::Offset => (draw_elsewhere(rng, fragment), rng.bool()),
        Fault::Header => (draw_headed(rng, fragment, version), false),
        Fault::Damage => (FragmentSpec { is_damaged: true, ..fragment }, false),
        Fault::EcnMarks => return draw_marks(rng, fragments),
        Fault::Gap => {
            fragments.remove(at);
            return;
        }
    };
    if is_beside { fragments.insert(to, spoilt) } else { fragments[at] = spoilt }
}

fn draw_altered(rng: &mut Rng, fragment: FragmentSpec) -> FragmentSpec {
    FragmentSpec { altered: Some(rng.u16(..fragment.len.max(1))), ..fragment }
}

/// Returns the fragment with another byte range, which may extend beyond the end of the datagram.
fn draw_overlapping(rng: &mut Rng, fragment: FragmentSpec, len: usize) -> FragmentSpec {
    let start = rng.usize(..=len / 8) * 8;
    let end = rng.usize(start..=len + 16);
    let more = end < len;
    let end = if more {
        end / 8 * 8
    } else if rng.bool() {
        len.max(start)
    } else {
        end
    };
    let over = FragmentSpec { offset: start as u16, len: (end - start) as u16, more, ..fragment };
    if rng.u8(..4) == 0 { draw_altered(rng, over) } else { over }
}

fn draw_empty(rng: &mut Rng, fragment: FragmentSpec, len: usize) -> FragmentSpec {
    let more = rng.bool();
    let offset = if rng.bool() { (rng.usize(..=len / 8) * 8) as u16 } else { fragment.offset };
    FragmentSpec { len: 0, more, offset, ..fragment }
}

/// Returns the fragment with the more-fragments flag and up to seven bytes more. Usually the length is then not a
/// multiple of eight.
fn draw_uneven(rng: &mut Rng, fragment: FragmentSpec) -> FragmentSpec {
    FragmentSpec { len: fragment.len.saturating_add(rng.u16(1..8)), more: true, ..fragment }
}

/// Returns the fragment at another random offset, often near the largest possible offset.
fn draw_elsewhere(rng: &mut Rng, fragment: FragmentSpec) -> FragmentSpec {
    let unit = if rng.bool() { 8_191 - rng.u16(..40) } else { rng.u16(..8_192) };
    FragmentSpec { offset: unit * 8, ..fragment }
}

fn draw_marks(rng: &mut Rng, fragments: &mut [FragmentSpec]) {
    let usual = rng.u8(..4);
    fragments.iter_mut().for_each(|fragment| fragment.ecn = if rng.bool() { rng.u8(..4) } else { usual });
}

/// Returns the fragment with a header field or padding that the other fragments of the datagram do not have.
fn draw_headed(rng: &mut Rng, mut fragment: FragmentSpec, version: Version) -> FragmentSpec {
    match rng.u8(..6) {
        0 => fragment.hops = Some(rng.u8(2..)),
        1 => fragment.class = Some(rng.u8(..)),
        2 => fragment.dont_fragment = !fragment.dont_fragment,
        3 => fragment.padding = rng.u8(1..20),
        4 if version == Version::V6 => fragment.next_header = Some(PROTOCOLS[rng.usize(..3)]),
        5 if version == Version::V6 => {
            fragment.front = Some([HeaderKind::None, HeaderKind::HopByHop(0), HeaderKind::Both][rng.usize(..3)]);
        }
        _ => {
            fragment.front = Some(
                [HeaderKind::None, HeaderKind::Nops(3), HeaderKind::Copied, HeaderKind::FirstOnly][rng.usize(..4)],
            );
        }
    }
    fragment
}
