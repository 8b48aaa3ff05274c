//! All overlaps of fragments, in every order of arrival -> exact bytes, or nothing.
//!
//! Fragments are numbered in their order of arrival. A relation is an order of all their starts and ends. So all
//! relations of numbered fragments are all overlaps in all orders. Up to four fragments are always tested. Five
//! fragments need `WIDELOAD_OVERLAPS=5 cargo test -p wideload-engine --test reassembly overlaps`: 54 million cases,
//! in a few minutes.

use crate::station::{Left, Station, USUAL, at};
use core::time::Duration;
use std::ops::Range;
use testkit::model::{Model, Verdict};
use testkit::{Place, ReadPacket, Spec, ip, number_from};
use wideload_engine::Late;

#[test]
fn every_overlap_of_up_to_four_ipv4_fragments_gives_exact_bytes_or_nothing() {
    try_overlaps(4);
}

#[test]
fn every_overlap_of_up_to_four_ipv6_fragments_gives_exact_bytes_or_nothing() {
    try_overlaps(6);
}

fn try_overlaps(version: u8) {
    let most = number_from("WIDELOAD_OVERLAPS").unwrap_or(4) as usize;
    for count in 2..=most {
        let relations = [13, 409, 23_917, 2_244_361][count - 2];
        assert_eq!(try_relations(count, version), relations, "relations of {count} fragments");
    }
}

/// Tries every relation of so many fragments. Returns their number.
fn try_relations(count: usize, version: u8) -> usize {
    let (mut bench, mut tried) = (Bench::new(version), 0);
    each_relation(count, &mut |relation| {
        tried += 1;
        bench.try_relation(relation);
    });
    tried
}

/// A station, the model, and all fragments that a relation can need.
struct Bench {
    version: u8,
    station: Station,
    model: Model,
    header: Spec,
    now: Duration,
    fragments: Vec<Option<Piece>>,
}

#[derive(Clone)]
struct Piece {
    place: Place,
    payload: Vec<u8>,
    frame: Vec<u8>,
}

/// The end of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More fragments follow.
    More,
    /// The last fragment, at its full length.
    Last,
    /// The last fragment, three bytes short of its full length.
    Ragged,
}

/// The bytes that a fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// The datagram's bytes.
    True,
    /// Bytes that differ from those of the datagram.
    Own,
}

impl Bench {
    fn new(version: u8) -> Bench {
        Bench {
            version,
            station: Station::joining(USUAL, Late::Release { mtu: 1_280 }),
            model: Model::new(None),
            header: ip(version),
            now: Duration::ZERO,
            fragments: vec![None; FRAGMENTS_MAX * RANKS_MAX * RANKS_MAX * 6],
        }
    }

    /// Tries a relation with equal and different bytes, and each fragment or none as the last.
    fn try_relation(&mut self, relation: &[Range<usize>]) {
        let count = relation.len();
        let everyone = (1 << count) - 1;
        let liars: Vec<u32> = match count {
            ..4 => (0..=everyone).collect(),
            4 => vec![0, 1, 2, 4, 8, everyone],
            _ => vec![0, everyone],
        };
        for liars in liars {
            self.try_case(relation, liars, None);
            for last in 0..count {
                self.try_case(relation, liars, Some((last, End::Last)));
                if count < 5 {
                    self.try_case(relation, liars, Some((last, End::Ragged)));
                }
            }
        }
    }

    fn try_case(&mut self, relation: &[Range<usize>], liars: u32, last: Option<(usize, End)>) {
        for (label, ranks) in relation.iter().enumerate() {
            let end = last.map_or(End::More, |(last, end)| if last == label { end } else { End::More });
            let bytes = if liars >> label & 1 == 1 { Bytes::Own } else { Bytes::True };
            let fragment = self.fragment(label, ranks, end, bytes);
            let left = self.station.push_ip(at(self.now), &fragment.frame);
            let what = || format!("version {}: {relation:?}, liars {liars:b}, last {last:?}", self.version);
            // At offset 0 the last fragment is a whole datagram, whichever others are held.
            let expected = if fragment.place.range.start == 0 && !fragment.place.more {
                Some(Spec { payload: fragment.payload, ..self.header.clone() })
            } else {
                match self.model.push(self.now, &self.header, &fragment.place, &fragment.payload) {
                    Verdict::Complete(whole) => Some(*whole),
                    _ => None,
                }
            };
            match expected {
                Some(whole) => assert_eq!(frames(&left), [whole.bytes()], "{}", what()),
                None => assert_eq!(left, [], "{}", what()),
            }
        }
        self.give_up(relation, liars, last);
    }

    /// Checks that the held octets are those of the model, and expires them.
    fn give_up(&mut self, relation: &[Range<usize>], liars: u32, last: Option<(usize, End)>) {
        self.now += Duration::from_secs(120);
        let mut expected = Vec::new();
        for (_, waiting) in self.model.expire(self.now) {
            expected = waiting.octets().to_vec();
        }
        let mut octets = vec![None; expected.len()];
        for fragment in self.station.expire(at(self.now)) {
            let seen = ReadPacket::of(fragment.ip());
            let (offset, _) = seen.fragment.expect("what is late leaves in fragments");
            for (octet, known) in octets[offset..].iter_mut().zip(seen.body()) {
                *octet = Some(*known);
            }
        }
        assert_eq!(octets, expected, "held of version {}: {relation:?}, {liars:b}, {last:?}", self.version);
        assert_eq!(self.station.out.pool.in_use_count(), 0);
        assert_eq!(self.station.side.next_deadline(), None);
    }

    fn fragment(&mut self, label: usize, ranks: &Range<usize>, end: End, bytes: Bytes) -> Piece {
        let index =
            ((label * RANKS_MAX + ranks.start) * RANKS_MAX + ranks.end) * 6 + end as usize * 2 + bytes as usize;
        let header = &self.header;
        let make = || {
            let shorter = if end == End::Ragged { 3 } else { 0 };
            let range = ranks.start * 8..ranks.end * 8 - shorter;
            let own = if bytes == Bytes::Own { 100 + 10 * label as u8 } else { 0 };
            let payload: Vec<u8> = range.clone().map(|octet| octet as u8 ^ own).collect();
            let place = Place { range, more: end == End::More };
            let datagram = Spec { payload: Vec::new(), ..header.clone() };
            Piece { frame: datagram.fragment_with(&place, &payload), payload, place }
        };
        self.fragments[index].get_or_insert_with(make).clone()
    }
}

/// Calls `visit` with every relation of so many fragments: the ranks of their starts and ends. Ranks may be shared,
/// and a fragment ends after it starts.
fn each_relation(count: usize, visit: &mut impl FnMut(&[Range<usize>])) {
    fn rank(
        rank_at: usize,
        placed: &mut Vec<(Option<usize>, Option<usize>)>,
        visit: &mut impl FnMut(&[Range<usize>]),
    ) {
        // The next endpoint of each fragment that has one left; any of them may share this rank.
        let open: Vec<usize> = (0..placed.len()).filter(|label| placed[*label].1.is_none()).collect();
        if open.is_empty() {
            let relation: Vec<_> = placed.iter().map(|ends| ends.0.unwrap()..ends.1.unwrap()).collect();
            return visit(&relation);
        }
        for chosen in 1u32..1 << open.len() {
            let before = placed.clone();
            for (_, label) in open.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1) {
                let ends = &mut placed[*label];
                *(if ends.0.is_none() { &mut ends.0 } else { &mut ends.1 }) = Some(rank_at);
            }
            rank(rank_at + 1, placed, visit);
            *placed = before;
        }
    }
    rank(0, &mut vec![(None, None); count], visit);
}

fn frames(left: &[Left]) -> Vec<&[u8]> {
    left.iter().map(|left| left.frame.as_slice()).collect()
}

const FRAGMENTS_MAX: usize = 5;
/// The number of endpoints: two for each fragment.
const RANKS_MAX: usize = 2 * FRAGMENTS_MAX;
