//! A flood, an IP version and a seed -> the packets of the flood, and good datagrams beside them.
//!
//! The content of a good datagram follows from its number, so every receiver can verify it.

use super::super::wire::{self, Filled, Ip, TransportFacts, put_content, put_ip, put_upper};
use super::Flood;
use fastrand::Rng;
use packet::Version;

/// Generator of a flood's packets and of good datagrams.
pub(super) struct Load {
    pub(super) flood: Flood,
    pub(super) version: Version,
    rng: Rng,
    fragment: Vec<u8>,
    /// Number of the flood's fragments so far. `good_count` is the number of good datagrams so far.
    pub(super) count: u64,
    pub(super) good_count: u64,
    whole: Vec<u8>,
}

impl Load {
    pub(super) fn new(flood: Flood, version: Version, seed: u64) -> Load {
        let rng = Rng::with_seed(seed);
        Load { flood, version, rng, fragment: Vec::new(), count: 0, good_count: 0, whole: Vec::new() }
    }

    /// Returns the next fragment of the flood.
    pub(super) fn next(&mut self) -> &[u8] {
        self.count += 1;
        let source = match self.flood {
            Flood::ThousandSources => FLOOD_SOURCE + self.count as u32 % 1_000,
            Flood::FirstFragments | Flood::Drip => FLOOD_SOURCE + self.rng.u32(..1 << 22),
        };
        let id = self.rng.u32(..);
        self.fragment.clear();
        put_fragment(&mut self.fragment, self.version, source, id, (0, true), |to| {
            to.resize(to.len() + FLOOD_LEN, 7)
        });
        &self.fragment
    }

    /// Returns the two fragments of the next good datagram.
    pub(super) fn good(&mut self) -> [Vec<u8>; 2] {
        self.good_count += 1;
        let number = self.good_count;
        // Each of a few sources sends many good datagrams.
        let source = GOOD_SOURCE + (number % GOOD_SOURCES) as u32;
        let ip = header(self.version, source, 0);
        let upper = TransportFacts {
            is_tcp: false,
            ports: [PORT, PORT],
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            urgent: 0,
            options: wire::Options::None,
        };
        self.whole.clear();
        put_upper(&mut self.whole, (&ip, &[], UDP), &upper, Filled::Right, |to| {
            to.extend(number.to_be_bytes());
            put_content(to, number as u32, 0, GOOD_LEN);
        });
        let content = &self.whole[if self.version == Version::V4 { 20 } else { 40 }..];
        let id = (number / GOOD_SOURCES) as u32;
        [(0, &content[..CUT], true), (CUT, &content[CUT..], false)].map(|(offset, part, more)| {
            let mut fragment = Vec::new();
            put_fragment(&mut fragment, self.version, source, id, (offset, more), |to| to.extend(part));
            fragment
        })
    }
}

fn header(version: Version, source: u32, id: u32) -> Ip {
    Ip { version, source, destination: 1, class: 0, hops: 64, flow: 0, id: id as u16, flags_offset: 0 }
}

fn put_fragment(
    to: &mut Vec<u8>,
    version: Version,
    source: u32,
    id: u32,
    (offset, more): (usize, bool),
    content: impl FnOnce(&mut Vec<u8>),
) {
    let ip = header(version, source, id);
    match version {
        Version::V4 => {
            let flags_offset = (offset >> 3) as u16 | u16::from(more) << 13;
            put_ip(to, &Ip { flags_offset, ..ip }, &[], UDP, content);
        }
        Version::V6 => {
            let place = (offset as u16 | u16::from(more)).to_be_bytes();
            let front = [&[UDP, 0], &place[..], &id.to_be_bytes()].concat();
            put_ip(to, &ip, &front, FRAGMENT, content);
        }
    }
}

/// Returns the number of a good datagram; `None` if its content has changed.
pub(super) fn is_good(content: &[u8], expected: &mut Vec<u8>) -> Option<u64> {
    let (number, rest) = content.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    expected.clear();
    put_content(expected, number as u32, 0, GOOD_LEN);
    (rest == expected).then_some(number)
}

/// Payload of a flood's fragment, in bytes.
const FLOOD_LEN: usize = 1_000;
const GOOD_LEN: usize = 1_600;
const CUT: usize = 1_400;
const GOOD_SOURCES: u64 = 64;
/// Number of the first source of good datagrams.
const GOOD_SOURCE: u32 = 1 << 16;
const FLOOD_SOURCE: u32 = 1 << 17;
pub(super) const PORT: u16 = 9_000;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
