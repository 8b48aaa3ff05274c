//! Datagrams -> their fragments in order of arrival.
//!
//! The correct output is the set of complete datagrams, or of runs of complete fragments.

use super::{ArrivalOrder, PACKETS_MIN};
use crate::reference::Reference;
use crate::section::Section;
use crate::wire::{Pair, Place, UDP, noise};
use fastrand::Rng;
use std::fmt;

/// Datagrams whose fragments are interleaved: one fragment of each datagram, then the next of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Version of IP: 4 or 6.
    pub version: u8,
    /// Number of fragments of each datagram.
    pub fragments: usize,
    /// Number of datagrams that are interleaved.
    pub datagrams: usize,
    /// Order in which the fragments of a datagram arrive.
    pub order: ArrivalOrder,
    /// Payload of each fragment, in bytes.
    pub fragment_len: usize,
}

/// Index of a datagram and index of a fragment in it.
type FlowAndSeries = (usize, usize);

impl Fragments {
    /// Returns datagrams like these over IPv6.
    pub fn ipv6(self) -> Fragments {
        Fragments { version: 6, fragment_len: 1_448, ..self }
    }

    pub(super) fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams", self.datagrams.to_string()), ("pieces", self.fragments.to_string())]
    }

    /// Generates interleaved datagrams, group after group, and their correct output.
    pub(super) fn build(&self) -> (Section, Reference) {
        let (section, datagrams) = self.generate(usual_pair);
        (section, Reference::Payloads(datagrams))
    }

    pub(super) fn build_joinable(&self) -> (Section, Reference) {
        let (section, datagrams) = self.generate(usual_pair);
        let fragments = section.len();
        (section, Reference::Runs { datagrams, fragment_len: self.fragment_len, fragments })
    }

    /// Generates the packets, and the payload of each datagram. `name` returns the address pair and the
    /// identification of a datagram.
    pub(super) fn generate(&self, name: impl Fn(u8, usize) -> (Pair, u32)) -> (Section, Vec<Vec<u8>>) {
        let waves = PACKETS_MIN.div_ceil(self.fragments * self.datagrams);
        let mut random = Rng::with_seed(SEED);
        let mut section = Section::default();
        let mut datagrams = Vec::with_capacity(waves * self.datagrams);
        for wave in 0..waves {
            let first = wave * self.datagrams;
            for index in first..first + self.datagrams {
                let (pair, _) = name(self.version, index);
                datagrams.push(pair.udp(&noise(index as u64, self.fragments * self.fragment_len - 8)));
            }
            for (datagram, fragment) in self.turns(&mut random) {
                let (pair, id) = name(self.version, first + datagram);
                let range = fragment * self.fragment_len..(fragment + 1) * self.fragment_len;
                let place = Place { id, offset: range.start, more: fragment + 1 < self.fragments };
                section.push(&pair.fragment(UDP, place, &datagrams[first + datagram][range]));
            }
        }
        (section, datagrams)
    }

    fn turns(&self, random: &mut Rng) -> Vec<FlowAndSeries> {
        let of_each = |fragment: usize| (0..self.datagrams).map(move |datagram| (datagram, fragment));
        let mut turns: Vec<FlowAndSeries> = match self.order {
            ArrivalOrder::Reverse => (0..self.fragments).rev().flat_map(of_each).collect(),
            _ => (0..self.fragments).flat_map(of_each).collect(),
        };
        match self.order {
            ArrivalOrder::Forward | ArrivalOrder::Reverse => turns,
            ArrivalOrder::Random => {
                random.shuffle(&mut turns);
                turns
            }
            ArrivalOrder::Repeats => {
                let again = |(datagram, fragment): FlowAndSeries| {
                    let repeated = fragment > 0 && random.u8(..100) == 0;
                    repeated.then(|| (datagram, fragment - 1)).into_iter().chain([(datagram, fragment)])
                };
                turns.into_iter().flat_map(again).collect()
            }
        }
    }
}

impl fmt::Display for Fragments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let datagrams = if self.datagrams == 1 { "datagram" } else { "datagrams" };
        write!(
            f,
            "{} fragments x {} {datagrams}, {}, IPv{}",
            self.fragments, self.datagrams, self.order, self.version
        )
    }
}

/// Returns the address pair and the identification of a datagram: 64 hosts send in turn.
fn usual_pair(version: u8, index: usize) -> (Pair, u32) {
    (Pair { version, source: 1 + index as u32 % 64, destination: 1_000 }, index as u32)
}

/// Seed of all random choices.
const SEED: u64 = 0x5EED;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fragments;
    use etherparse::defrag::{IpDefragPayloadVec, IpDefragPool};
    use etherparse::{NetSlice, SlicedPacket};

    #[test]
    fn an_independent_reassembler_gives_the_reference() {
        for order in [ArrivalOrder::Forward, ArrivalOrder::Reverse, ArrivalOrder::Random, ArrivalOrder::Repeats] {
            for (count, datagrams) in [(2, 1), (6, 64), (44, 3)] {
                for recipe in [fragments(count, datagrams, order), fragments(count, datagrams, order).ipv6()] {
                    let (section, Reference::Payloads(expected)) = recipe.build() else { panic!() };
                    assert!(section.len() >= PACKETS_MIN);
                    let mut whole: Vec<Vec<u8>> =
                        rejoined(&section, recipe.version).into_iter().map(|datagram| datagram.payload).collect();
                    let mut expected = expected;
                    whole.sort();
                    expected.sort();
                    assert!(whole == expected, "{recipe}");
                }
            }
        }
    }

    #[test]
    fn one_fragment_in_a_hundred_is_repeated() {
        let (section, _) = fragments(44, 64, ArrivalOrder::Repeats).build();
        let repeats = section.len() - 44 * 64;
        assert!((14..=42).contains(&repeats), "{repeats} of {}", 44 * 64);
    }

    fn rejoined(section: &Section, version: u8) -> Vec<IpDefragPayloadVec> {
        let mut pool = IpDefragPool::<(), ()>::new();
        let mut whole = Vec::new();
        for packet in section.packets() {
            assert!(packet.len() <= 1_504 && packet.len() > 1_400);
            let sliced = SlicedPacket::from_ip(packet).unwrap();
            match &sliced.net {
                Some(NetSlice::Ipv4(ipv4)) if version == 4 => {
                    let header = ipv4.header().to_header();
                    assert_eq!(header.calc_header_checksum(), header.header_checksum);
                }
                Some(NetSlice::Ipv6(_)) if version == 6 => {}
                other => panic!("{other:?}"),
            }
            whole.extend(pool.process_sliced_packet(&sliced, (), ()).unwrap());
        }
        whole
    }
}
