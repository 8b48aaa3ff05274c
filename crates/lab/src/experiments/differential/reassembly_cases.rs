//! A case of fragmented datagrams -> its description, smaller cases, and its packets.
//!
//! A case is plain data, so it can be printed and shrunk. `reassembly_draw.rs` draws the cases; `reassembly.rs`
//! gives them to the kernel and the engine.

use crate::experiments::wire::{Ip, put_content, put_ip};
use packet::Version;
use std::fmt::Write;

/// A test case: a few datagrams, and the fragments of all of them in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub version: Version,
    pub datagrams: Vec<Datagram>,
    pub fragments: Vec<FragmentSpec>,
}

/// Properties shared by all fragments of one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub protocol: u8,
    pub destination: u8,
    /// Difference from the first IP ID of the case.
    pub id: u16,
    pub content: u32,
    pub hops: u8,
    pub class: u8,
    /// Optional headers of every fragment. IPv4: options. IPv6: headers in front of the Fragment header.
    pub front: HeaderKind,
    /// IPv6: headers behind the Fragment header, which belong to the fragmentable part.
    pub behind: HeaderKind,
}

/// Optional headers of a fragment: IPv4 options or IPv6 extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderKind {
    None,
    /// IPv4: no-operation options of this many 32-bit words.
    Nops(u8),
    /// IPv4: an option that every fragment carries. `FirstOnly` is an option that only the first fragment carries.
    Copied,
    FirstOnly,
    /// IPv6: a hop-by-hop options header with padding, whose length field has this value.
    HopByHop(u8),
    Destination(u8),
    Routing,
    Both,
    /// IPv6: two destination options headers.
    Twice,
}

/// Position, length and faults of one fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentSpec {
    pub datagram: u8,
    pub offset: u16,
    pub len: u16,
    pub more: bool,
    pub ecn: u8,
    pub dont_fragment: bool,
    pub hops: Option<u8>,
    pub class: Option<u8>,
    /// Offset of a changed byte in the fragment's payload; `None` if no byte is changed.
    pub altered: Option<u16>,
    /// Number of padding bytes behind the packet.
    pub padding: u8,
    pub front: Option<HeaderKind>,
    /// IPv6: next header, if it differs from the first fragment's.
    pub next_header: Option<u8>,
    /// IPv4: whether the header checksum is wrong.
    pub is_damaged: bool,
}

impl Case {
    /// Returns a case with one datagram in one fragment.
    pub(super) fn whole(version: Version, destination: u8) -> Case {
        let protocol = PROTOCOLS[1];
        let (front, behind) = (HeaderKind::None, HeaderKind::None);
        let datagram = Datagram { protocol, destination, id: 0, content: 0, hops: 64, class: 0, front, behind };
        Case {
            version,
            datagrams: vec![datagram],
            fragments: vec![FragmentSpec { len: 64, more: false, ..FragmentSpec::first_of(0) }],
        }
    }

    /// Returns the wire packets of the case. The slot distinguishes its packets from those of other cases.
    pub(super) fn frames(&self, slot: u32) -> impl Iterator<Item = Vec<u8>> {
        self.fragments.iter().map(move |fragment| {
            let mut frame = Vec::new();
            self.put_fragment(&mut frame, fragment, slot);
            frame
        })
    }

    /// Appends the wire packet of a fragment.
    pub(super) fn put_fragment(&self, to: &mut Vec<u8>, fragment: &FragmentSpec, slot: u32) {
        let datagram = &self.datagrams[usize::from(fragment.datagram)];
        let (start, ip) = (to.len(), self.ip(fragment, slot));
        let front = fragment.front.unwrap_or(datagram.front);
        let content = |to: &mut Vec<u8>| put_payload(to, datagram, fragment);
        match self.version {
            Version::V4 => put_ip(to, &ip, &options(front), datagram.protocol, content),
            Version::V6 => {
                let fragment = fragment_header(datagram, fragment, u32::from(ip.id) << 16 | slot & 0xFFFF);
                let chain = headers(front, FRAGMENT);
                let first = chain.first().map_or(FRAGMENT, |(kind, _)| *kind);
                put_ip(to, &ip, &[joined(chain), fragment].concat(), first, content);
            }
        }
        if fragment.is_damaged && self.version == Version::V4 {
            to[start + 10] ^= 1;
        }
        to.extend(std::iter::repeat_n(0, fragment.padding.into()));
    }

    fn ip(&self, fragment: &FragmentSpec, slot: u32) -> Ip {
        let datagram = &self.datagrams[usize::from(fragment.datagram)];
        let flags = if fragment.dont_fragment { 1 << 14 } else { 0 } | if fragment.more { 1 << 13 } else { 0 };
        Ip {
            version: self.version,
            source: slot,
            destination: datagram.destination,
            class: fragment.class.unwrap_or(datagram.class) & !3 | fragment.ecn,
            hops: fragment.hops.unwrap_or(datagram.hops),
            flow: datagram.content,
            id: (slot as u16).wrapping_mul(0x9E37).wrapping_add(datagram.id),
            flags_offset: flags | fragment.offset >> 3,
        }
    }

    /// Returns cases that are smaller than this one.
    pub(super) fn smaller(&self) -> Vec<Case> {
        let mut smaller = Vec::new();
        for at in (0..self.fragments.len()).rev() {
            let mut less = self.clone();
            less.fragments.remove(at);
            smaller.push(less);
        }
        for (at, fragment) in self.fragments.iter().enumerate() {
            let plain = fragment.plain();
            if plain.words() != fragment.words() {
                let mut plainer = self.clone();
                plainer.fragments[at] = plain;
                smaller.push(plainer);
            }
        }
        for (at, datagram) in self.datagrams.iter().enumerate() {
            if datagram.front != HeaderKind::None || datagram.behind != HeaderKind::None {
                let mut plainer = self.clone();
                plainer.datagrams[at] = Datagram { front: HeaderKind::None, behind: HeaderKind::None, ..*datagram };
                smaller.push(plainer);
            }
        }
        smaller
    }

    pub(super) fn words(&self) -> String {
        let mut words = format!("{:?}\n", self.version);
        for (index, datagram) in self.datagrams.iter().enumerate() {
            let _ = writeln!(words, "  datagram {index}: {datagram:?}");
        }
        for fragment in &self.fragments {
            let _ = writeln!(words, "  piece of {}", fragment.words());
        }
        words
    }
}

impl FragmentSpec {
    /// Returns an empty fragment at offset 0, without faults.
    pub(super) fn first_of(datagram: u8) -> FragmentSpec {
        FragmentSpec {
            datagram,
            offset: 0,
            len: 0,
            more: true,
            ecn: 0,
            dont_fragment: false,
            hops: None,
            class: None,
            altered: None,
            padding: 0,
            front: None,
            next_header: None,
            is_damaged: false,
        }
    }

    /// Returns the fragment without padding and without unusual values of header fields.
    fn plain(&self) -> FragmentSpec {
        FragmentSpec { ecn: 0, hops: None, class: None, padding: 0, front: None, dont_fragment: false, ..*self }
    }

    fn words(&self) -> String {
        let FragmentSpec { datagram, offset, len, more, ecn, .. } = self;
        let mut words = format!("{datagram}: bytes {offset} to {}", usize::from(*offset) + usize::from(*len));
        words.push_str(if *more { ", more to come" } else { ", the last" });
        let mut say = |word: String| {
            let _ = write!(words, ", {word}");
        };
        if *ecn > 0 {
            say(format!("mark {ecn}"));
        }
        if self.dont_fragment {
            say("DF".to_owned());
        }
        self.hops.into_iter().for_each(|hops| say(format!("TTL {hops}")));
        self.class.into_iter().for_each(|class| say(format!("traffic class {class:#x}")));
        self.altered.into_iter().for_each(|at| say(format!("byte {at} changed")));
        self.front.into_iter().for_each(|front| say(format!("headers {front:?}")));
        self.next_header.into_iter().for_each(|next| say(format!("next header {next}")));
        if self.padding > 0 {
            say(format!("{} bytes of padding", self.padding));
        }
        if self.is_damaged {
            say("a wrong header checksum".to_owned());
        }
        words
    }
}

/// Appends the fragment's part of the datagram: headers behind the Fragment header, then content.
fn put_payload(to: &mut Vec<u8>, datagram: &Datagram, fragment: &FragmentSpec) {
    let (start, at, len) = (to.len(), usize::from(fragment.offset), usize::from(fragment.len));
    let behind = joined(headers(datagram.behind, datagram.protocol));
    let shared = behind.get(at..(at + len).min(behind.len())).unwrap_or_default();
    to.extend(shared);
    put_content(to, datagram.content, at + shared.len(), len - shared.len());
    // Headers stay unchanged, because they are checked by the host and not by the reassembler.
    let altered = fragment.altered.map(usize::from).filter(|it| at + it >= HEADERS_LEN_MAX);
    if let Some(byte) = altered.and_then(|altered| to.get_mut(start + altered)) {
        *byte ^= 0x55;
    }
}

fn fragment_header(datagram: &Datagram, fragment: &FragmentSpec, id: u32) -> Vec<u8> {
    let behind = headers(datagram.behind, datagram.protocol);
    let cut = behind.first().map_or(datagram.protocol, |(kind, _)| *kind);
    let mut header = vec![fragment.next_header.unwrap_or(cut), 0];
    header.extend((fragment.offset & !7 | u16::from(fragment.more)).to_be_bytes());
    header.extend(id.to_be_bytes());
    header
}

/// Returns IPv4 options, padded to 32-bit words.
fn options(front: HeaderKind) -> Vec<u8> {
    match front {
        HeaderKind::Nops(words) => vec![1; usize::from(words) * 4],
        HeaderKind::Copied => vec![0x9E, 4, 7, 7],
        HeaderKind::FirstOnly => vec![0x1E, 4, 7, 7],
        _ => Vec::new(),
    }
}

/// Returns IPv6 extension headers in front of `next`, each with its protocol number.
fn headers(front: HeaderKind, next: u8) -> Vec<(u8, Vec<u8>)> {
    match front {
        HeaderKind::HopByHop(units) => vec![(HOP_BY_HOP, padded(next, units))],
        HeaderKind::Destination(units) => vec![(DESTINATION, padded(next, units))],
        HeaderKind::Routing => vec![(ROUTING, vec![next, 0, 253, 0, 0, 0, 0, 0])],
        HeaderKind::Both => vec![(HOP_BY_HOP, padded(DESTINATION, 0)), (DESTINATION, padded(next, 1))],
        HeaderKind::Twice => vec![(DESTINATION, padded(DESTINATION, 0)), (DESTINATION, padded(next, 1))],
        _ => Vec::new(),
    }
}

/// Returns an options header that one option fills completely.
fn padded(next: u8, units: u8) -> Vec<u8> {
    let len = 8 * (usize::from(units) + 1);
    let mut header = vec![next, units, UNKNOWN_OPTION, (len - 4) as u8];
    header.resize(len, 0);
    header
}

fn joined(headers: Vec<(u8, Vec<u8>)>) -> Vec<u8> {
    headers.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

/// Length of the longest headers behind a Fragment header, in bytes.
const HEADERS_LEN_MAX: usize = 32;
/// Largest number of datagrams in a case, apart from datagrams that only separate others.
pub(super) const DATAGRAMS_MAX: usize = 3;
/// Protocols of the datagrams: UDP, and two for experiments (RFC 3692 section 2.1).
pub(super) const PROTOCOLS: [u8; 3] = [17, 253, 254];
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// An option for experiments. Receivers without support ignore it (RFC 4727 section 4).
const UNKNOWN_OPTION: u8 = 0x1E;
