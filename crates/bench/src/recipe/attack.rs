//! Attack -> its packets, beside the cheapest traffic.
//!
//! An attacker chooses the packets that cost a system the most time. Each attack's rate is compared with that of
//! the cheapest traffic.

use super::{ArrivalOrder, Flows, Fragments, Hold, PACKETS_MIN, Recipe};
use crate::reference::Reference;
use crate::section::Section;
use crate::wire::{Pair, Place, UDP, noise};
use crate::workload::{flows, fragments};
use std::fmt;

/// Attacks on the CPU time of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// One datagram of the maximum length, in fragments of eight bytes, in random order.
    RandomOffsets,
    /// One datagram of the maximum length, in fragments of eight bytes, the even fragments first.
    EveryOther,
    /// First fragments from many sources, without any later fragments.
    FirstFragments,
    /// A first fragment and a last one at a high offset, for each of many keys.
    FarEnds,
    /// The last fragment of one datagram, repeated.
    SameEnd,
    /// Two overlapping fragments for each of many keys.
    Overlaps,
    /// Many incomplete datagrams whose keys agree in every bit that a simple hash would use.
    Collisions,
    /// Tiny segments, each pair of them swapped.
    TinySegments,
}

impl Attack {
    /// All attacks, in the order of the tables.
    pub const ALL: [Attack; 8] = [
        Attack::RandomOffsets,
        Attack::EveryOther,
        Attack::FirstFragments,
        Attack::FarEnds,
        Attack::SameEnd,
        Attack::Overlaps,
        Attack::Collisions,
        Attack::TinySegments,
    ];

    /// Returns the cheapest traffic with as much payload per packet as the attack.
    pub fn best_case(self) -> Recipe {
        let in_order = |fragment_len| Fragments { fragment_len, ..fragments(44, 1, ArrivalOrder::Forward) };
        match self {
            Attack::RandomOffsets | Attack::EveryOther | Attack::FarEnds => Recipe::Fragments(in_order(8)),
            Attack::SameEnd => Recipe::Fragments(in_order(24)),
            Attack::FirstFragments | Attack::Overlaps => Recipe::Fragments(in_order(1_000)),
            Attack::Collisions => Recipe::Fragments(fragments(44, 1, ArrivalOrder::Forward)),
            Attack::TinySegments => {
                Recipe::Flows(Flows { order: ArrivalOrder::Forward, flows: 1, per_flow: 512, ..tiny_segments() })
            }
        }
    }

    /// Whether the attack targets the coalescing of segments.
    pub fn is_of_segments(self) -> bool {
        self == Attack::TinySegments
    }

    pub(super) fn keys(self) -> Vec<(&'static str, String)> {
        match self {
            Attack::TinySegments => tiny_segments().keys(),
            _ => vec![("datagrams", "4096".to_string()), ("pieces", "44".to_string())],
        }
    }

    /// Returns the limit of held bytes for the attacked system; `None`: no limit.
    pub fn limit(self) -> Option<usize> {
        match self {
            Attack::FirstFragments => Some(4 << 20),
            Attack::FarEnds | Attack::Overlaps => Some(64 << 20),
            _ => None,
        }
    }

    pub(super) fn build(self) -> (Section, Reference) {
        match self {
            Attack::RandomOffsets => tiny_fragments(ArrivalOrder::Random),
            Attack::EveryOther => every_other(),
            Attack::FirstFragments => {
                let payload = noise(1, 1_000);
                nothing((0..16_384).map(|name| stranger(name).fragment(UDP, place(name, 0, true), &payload)))
            }
            Attack::FarEnds => nothing((0..8_192).flat_map(|name| {
                let pair = stranger(name);
                let first = pair.fragment(UDP, place(name, 0, true), &[7; 8]);
                [first, pair.fragment(UDP, place(name, 64_800, false), &[7; 8])]
            })),
            Attack::SameEnd => {
                nothing((0..4_096).map(|_| stranger(1).fragment(UDP, place(1, 65_488, false), &[7; 24])))
            }
            Attack::Overlaps => {
                let [payload, other] = [1, 2].map(|seed| noise(seed, 1_000));
                nothing((0..8_192).flat_map(move |name| {
                    let pair = stranger(name);
                    let first = pair.fragment(UDP, place(name, 0, true), &payload);
                    [first, pair.fragment(UDP, place(name, 504, true), &other)]
                }))
            }
            Attack::Collisions => {
                let (section, datagrams) = fragments(6, 1_024, ArrivalOrder::Forward).generate(|version, index| {
                    let source = (index as u32 / 64) << 16;
                    (Pair { version, source, destination: 1_000 }, (index as u32 % 64) << 10)
                });
                (section, Reference::Payloads(datagrams))
            }
            Attack::TinySegments => tiny_segments().build(),
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Attack::RandomOffsets => "attack: 8-byte fragments, random offsets",
            Attack::EveryOther => "attack: 8-byte fragments, every other first",
            Attack::FirstFragments => "attack: first fragments from many sources",
            Attack::FarEnds => "attack: first and last fragment 64 KB apart",
            Attack::SameEnd => "attack: endless repeats of a last fragment",
            Attack::Overlaps => "attack: two overlapping fragments",
            Attack::Collisions => "attack: 1,024 datagrams with similar keys",
            Attack::TinySegments => "attack: 64-byte segments, each pair swapped",
        })
    }
}

fn tiny_fragments(order: ArrivalOrder) -> (Section, Reference) {
    Fragments { fragment_len: 8, ..fragments(8_188, 1, order) }.build()
}

fn every_other() -> (Section, Reference) {
    let (section, reference) = tiny_fragments(ArrivalOrder::Forward);
    let packets: Vec<&[u8]> = section.packets().collect();
    let (even, odd) = (packets.iter().step_by(2), packets.iter().skip(1).step_by(2));
    (even.chain(odd).collect(), reference)
}

/// Returns packets whose correct output is not compared.
fn nothing(packets: impl Iterator<Item = Vec<u8>>) -> (Section, Reference) {
    let section: Section = packets.collect();
    assert!(section.len() >= PACKETS_MIN, "a section has at least {PACKETS_MIN} packets");
    (section, Reference::Payloads(Vec::new()))
}

fn stranger(name: u32) -> Pair {
    Pair { version: 4, source: name.wrapping_mul(0x9E37_79B9) >> 8, destination: 1_000 }
}

fn place(name: u32, offset: usize, more: bool) -> Place {
    Place { id: name & 0xFFFF, offset, more }
}

fn tiny_segments() -> Flows {
    Flows { order: ArrivalOrder::Reverse, per_flow: 128, payload_len: 64, ..flows(8, Hold::Section) }
}
