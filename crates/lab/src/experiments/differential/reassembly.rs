//! Datagrams cut into pieces in, what the kernel's reassembler delivers of them beside what the engine's does out.

use super::reassembly_model::{explain, shown};
use super::{Bench, Kind, Verdict};
use crate::experiments::wire::{Ip, put_content, put_ip, v4_destination, v6_destination};
use crate::net::Host;
use engine::{Copying, Late, Limits, Output, Reassembler, Secret};
use fastrand::Rng;
use packet::{Frame, Ingress, Medium, Packet, Pool, Time, Version};
use port::addresses::Prefix;
use port::raw::RawSocket;
use port::routes::Route;
use port::{Kind as DeviceKind, Offloads, Options, Port, Tap, ToDo, Wire};
use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Datagrams, and their pieces in the order in which they come.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub version: Version,
    pub datagrams: Vec<Datagram>,
    pub pieces: Vec<Piece>,
}

/// What the pieces of one datagram have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub protocol: u8,
    pub destination: u8,
    /// Beside that of the case.
    pub id: u16,
    pub content: u32,
    pub hops: u8,
    pub class: u8,
    /// Of IPv4, options; of IPv6, headers in front of the Fragment header.
    pub front: Front,
    /// Of IPv6: headers behind the Fragment header, which are part of what is cut.
    pub behind: Front,
}

/// Headers that stand where none has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    None,
    /// IPv4: options that say nothing, so many words of four bytes.
    Nops(u8),
    /// IPv4: an option that each fragment carries, and one that only the first does.
    Copied,
    FirstOnly,
    /// IPv6: hop-by-hop options, destination options, a routing header that leads nowhere; each with padding.
    HopByHop(u8),
    Destination(u8),
    Routing,
    Both,
    /// Destination options twice.
    Twice,
}

/// A piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub datagram: u8,
    pub offset: u16,
    pub len: u16,
    pub more: bool,
    pub ecn: u8,
    pub dont_fragment: bool,
    pub hops: Option<u8>,
    pub class: Option<u8>,
    /// This byte of it is another one.
    pub altered: Option<u16>,
    /// Bytes behind the packet.
    pub padding: u8,
    pub front: Option<Front>,
    /// IPv6: what a later piece says that follows.
    pub next_header: Option<u8>,
    /// IPv4: the header's checksum is wrong.
    pub is_damaged: bool,
}

/// The kernel behind a TUN device, and an engine.
pub(super) struct Reassembly {
    _host: Host,
    tap: Tap,
    sockets: Vec<(Version, u8, RawSocket)>,
    /// One for each of the engine's ways: packet by packet, and in batches.
    singly: Reassembler,
    in_batches: Reassembler,
    out: Output,
    now: Time,
    slot: u32,
}

/// Frames that lie one behind the other.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where each ends, and of which case it is.
    ends: Vec<(usize, usize)>,
}

/// What was delivered of a case: IPv4 as it stands; IPv6 as addresses, class, hops, protocol and what is behind all headers.
type Delivered = Vec<Vec<u8>>;

impl Bench for Reassembly {
    type Case = Case;
    const KIND: Kind = Kind::Reassembly;

    fn open(rng: &mut Rng) -> io::Result<Reassembly> {
        let host = Host::new("receiver")?;
        for (name, value) in SETTINGS {
            host.space().set_sysctl(name, value)?;
        }
        let options = Options { mtu: Some(65_535), offloads: Offloads::default(), ..Options::default() };
        let tap = host.space().enter(|| Tap::open(DEVICE, DeviceKind::Tun, &options))?;
        host.tell(|netlink| {
            netlink.set_up(DEVICE)?;
            let index = netlink.interface(DEVICE)?.index;
            for number in 1..=2 {
                netlink.add_address(DEVICE, Prefix::host(Ipv4Addr::from(v4_destination(number))))?;
                netlink.add_address(DEVICE, Prefix::host(Ipv6Addr::from(v6_destination(number))))?;
            }
            netlink.add_route(&Route::on(Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8), index))?;
            netlink.add_route(&Route::on(Prefix::new(Ipv6Addr::new(0xfd00, 10, 0, 0, 0, 0, 0, 0), 32), index))
        })?;
        let mut sockets = Vec::new();
        for (version, protocol) in [Version::V4, Version::V6].into_iter().flat_map(|it| PROTOCOLS.map(|p| (it, p)))
        {
            let socket = host.space().enter(|| RawSocket::open(version, protocol))?;
            sockets.push((version, protocol, socket));
        }
        let limits = Limits { bytes: 256 << 20, patience: None };
        Ok(Reassembly {
            _host: host,
            tap,
            sockets,
            singly: Reassembler::new(limits, Late::Retire, Secret::new(rng.u128(..))),
            in_batches: Reassembler::new(limits, Late::Retire, Secret::new(rng.u128(..))),
            out: Output::new(Pool::new(512 << 20), None),
            now: Time::ZERO,
            slot: rng.u32(..1 << 24),
        })
    }

    fn draw(rng: &mut Rng) -> Case {
        draw(rng)
    }

    fn compare(&mut self, cases: &[Case]) -> io::Result<Vec<Verdict>> {
        let first = self.slot;
        let mut frames = Frames::default();
        for (index, case) in cases.iter().enumerate() {
            let slot = first.wrapping_add(index as u32);
            for piece in &case.pieces {
                put_piece(&mut frames.bytes, case, piece, slot);
                frames.ends.push((frames.bytes.len(), index));
            }
        }
        self.slot = first.wrapping_add(cases.len() as u32);
        let kernel = self.ask_kernel(&frames, first, cases.len())?;
        let [singly, in_batches] = self.ask_engine(&frames, cases.len());
        let outcomes = cases.iter().zip(kernel).zip(singly.into_iter().zip(in_batches)).enumerate();
        Ok(outcomes
            .map(|(index, ((case, kernel), (engine, in_batches)))| {
                if engine != in_batches {
                    return Verdict::Differs(format!(
                        "the engine's two ways differ: packet by packet it delivers {}, in a batch {}",
                        shown(&engine),
                        shown(&in_batches)
                    ));
                }
                if kernel == engine {
                    return Verdict::Same;
                }
                let slot = first.wrapping_add(index as u32);
                let frames = case.pieces.iter().map(|piece| {
                    let mut frame = Vec::new();
                    put_piece(&mut frame, case, piece, slot);
                    frame
                });
                explain(&frames.collect::<Vec<_>>(), &kernel, &engine)
            })
            .collect())
    }

    fn smaller(case: &Case) -> Vec<Case> {
        let mut smaller = Vec::new();
        for at in (0..case.pieces.len()).rev() {
            let mut less = case.clone();
            less.pieces.remove(at);
            smaller.push(less);
        }
        for at in 0..case.pieces.len() {
            let piece = case.pieces[at];
            let plain =
                Piece { ecn: 0, hops: None, class: None, padding: 0, front: None, dont_fragment: false, ..piece };
            if plain.words() != piece.words() {
                let mut plainer = case.clone();
                plainer.pieces[at] = plain;
                smaller.push(plainer);
            }
        }
        for at in 0..case.datagrams.len() {
            let datagram = &case.datagrams[at];
            if datagram.front != Front::None || datagram.behind != Front::None {
                let mut plainer = case.clone();
                plainer.datagrams[at] = Datagram { front: Front::None, behind: Front::None, ..*datagram };
                smaller.push(plainer);
            }
        }
        smaller
    }

    fn words(case: &Case) -> String {
        let mut words = format!("{:?}\n", case.version);
        for (index, datagram) in case.datagrams.iter().enumerate() {
            let _ = writeln!(words, "  datagram {index}: {datagram:?}");
        }
        for piece in &case.pieces {
            let _ = writeln!(words, "  piece of {}", piece.words());
        }
        words
    }

    fn counts(case: &Case) -> (u64, u64) {
        (case.datagrams.len().min(DATAGRAMS_MAX) as u64, case.pieces.len() as u64)
    }
}

impl Reassembly {
    fn ask_kernel(&mut self, frames: &Frames, first: u32, count: usize) -> io::Result<Vec<Delivered>> {
        for (frame, _) in frames.each() {
            let wire = Wire { header: frame, payload: &[], to_do: ToDo::default() };
            // What the kernel refuses at once it does not deliver either.
            let _ = self.tap.transmit(&[wire]);
        }
        let mut delivered = vec![Delivered::new(); count];
        for (version, protocol, socket) in &mut self.sockets {
            while let Some(arrival) = socket.receive()? {
                let (slot, bytes) = match (arrival.source, arrival.header) {
                    (IpAddr::V4(source), _) => (number(&source.octets()), arrival.bytes.to_vec()),
                    (IpAddr::V6(source), header) => {
                        let (to, class, hops) = header.unwrap_or((Ipv6Addr::UNSPECIFIED, 0, 0));
                        let seen = seen(&source.octets(), &to.octets(), [class, hops, *protocol], arrival.bytes);
                        (number(&source.octets()), seen)
                    }
                };
                let mask = if *version == Version::V4 { 0xFF_FFFF } else { u32::MAX };
                let index = (slot.wrapping_sub(first) & mask) as usize;
                if let Some(delivered) = delivered.get_mut(index) {
                    delivered.push(bytes);
                }
            }
        }
        delivered.iter_mut().for_each(|it| it.sort_unstable());
        Ok(delivered)
    }

    /// What the engine delivers packet by packet, and in batches.
    fn ask_engine(&mut self, frames: &Frames, count: usize) -> [Vec<Delivered>; 2] {
        // All that was held before is late.
        self.now = self.now + Duration::from_secs(3_600);
        let mut both = [self.ask_singly(frames, count), self.ask_in_batches(frames, count)];
        both.iter_mut().flatten().for_each(|it| it.sort_unstable());
        both
    }

    fn ask_singly(&mut self, frames: &Frames, count: usize) -> Vec<Delivered> {
        self.singly.expire(self.now, &mut self.out);
        let mut delivered = vec![Delivered::new(); count];
        for (frame, case) in frames.each() {
            if let Ok(packet) = Frame::copy(frame, Medium::Ip, Ingress(0), &mut self.out.pool) {
                self.singly.push(self.now, packet, &mut self.out);
                take_all(&mut self.out, &mut delivered[case]);
            }
        }
        delivered
    }

    /// Of each case a batch: then what leaves is its own.
    fn ask_in_batches(&mut self, frames: &Frames, count: usize) -> Vec<Delivered> {
        self.in_batches.expire(self.now, &mut self.out);
        let mut delivered = vec![Delivered::new(); count];
        let mut ends = frames.each().peekable();
        while let Some((_, case)) = ends.peek().copied() {
            let mut batch = Vec::new();
            while let Some((frame, _)) = ends.next_if(|(_, of)| *of == case) {
                batch.extend(Frame::copy(frame, Medium::Ip, Ingress(0), &mut self.out.pool).ok());
            }
            let mut batch = batch.into_iter();
            while !batch.as_ref().is_empty() {
                self.in_batches.push_some(self.now, &mut batch, &mut self.out, &mut Copying);
                take_all(&mut self.out, &mut delivered[case]);
            }
        }
        delivered
    }
}

impl Frames {
    fn each(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, case))| (&self.bytes[start..*end], *case))
    }
}

fn take_all(out: &mut Output, delivered: &mut Delivered) {
    while let Some(packet) = out.next() {
        delivered.extend(as_delivered(&packet));
        out.done(packet);
    }
}

/// A whole packet as a host's sockets would see it, where one of ours would.
fn as_delivered(packet: &Packet) -> Option<Vec<u8>> {
    let bytes = packet.bytes();
    if packet.ip().version == Version::V4 {
        return PROTOCOLS.contains(&packet.ip().protocol).then(|| bytes.to_vec());
    }
    let upper = packet.ip().upper.filter(|upper| PROTOCOLS.contains(&upper.protocol))?;
    let class = (u16::from_be_bytes([bytes[0], bytes[1]]) >> 4) as u8;
    Some(seen(&bytes[8..24], &bytes[24..40], [class, bytes[7], upper.protocol], &bytes[usize::from(upper.at)..]))
}

pub(super) fn seen(source: &[u8], destination: &[u8], said: [u8; 3], content: &[u8]) -> Vec<u8> {
    [source, destination, &said, content].concat()
}

fn number(address: &[u8]) -> u32 {
    let from = if address.len() == 4 { 0 } else { 4 };
    let bytes = address.get(from..).and_then(|it| it.first_chunk::<4>()).copied().unwrap_or_default();
    let number = u32::from_be_bytes(bytes);
    if from == 0 { number & 0xFF_FFFF } else { number }
}

fn put_piece(to: &mut Vec<u8>, case: &Case, piece: &Piece, slot: u32) {
    let datagram = &case.datagrams[usize::from(piece.datagram)];
    let class = piece.class.unwrap_or(datagram.class) & !3 | piece.ecn;
    let id = (slot as u16).wrapping_mul(0x9E37).wrapping_add(datagram.id);
    let flags = if piece.dont_fragment { 1 << 14 } else { 0 } | if piece.more { 1 << 13 } else { 0 };
    let ip = Ip {
        version: case.version,
        source: slot,
        destination: datagram.destination,
        class,
        hops: piece.hops.unwrap_or(datagram.hops),
        flow: datagram.content,
        id,
        flags_offset: flags | piece.offset >> 3,
    };
    let start = to.len();
    let front = piece.front.unwrap_or(datagram.front);
    let protocol = datagram.protocol;
    let content = |to: &mut Vec<u8>| {
        let at = to.len();
        put_content_of(to, datagram, piece.offset.into(), piece.len.into());
        // What stands in headers is for the host to judge, not for who joins.
        let altered = piece.altered.filter(|it| usize::from(piece.offset) + usize::from(*it) >= HEADERS_LEN_MAX);
        if let Some(byte) = altered.and_then(|altered| to.get_mut(at + usize::from(altered))) {
            *byte ^= 0x55;
        }
    };
    match case.version {
        Version::V4 => put_ip(to, &ip, &options(front), protocol, content),
        Version::V6 => {
            let behind = headers(datagram.behind, protocol);
            let follows = piece.next_header.unwrap_or(behind.first().map_or(protocol, |(kind, _)| *kind));
            let mut fragment = vec![follows, 0];
            fragment.extend((piece.offset & !7 | u16::from(piece.more)).to_be_bytes());
            fragment.extend((u32::from(id) << 16 | slot & 0xFFFF).to_be_bytes());
            let chain = headers(front, FRAGMENT);
            let first = chain.first().map_or(FRAGMENT, |(kind, _)| *kind);
            let mut bytes: Vec<u8> = chain.into_iter().flat_map(|(_, bytes)| bytes).collect();
            bytes.extend(fragment);
            put_ip(to, &ip, &bytes, first, content);
        }
    }
    if piece.is_damaged && case.version == Version::V4 {
        to[start + 10] ^= 1;
    }
    to.extend(std::iter::repeat_n(0, piece.padding.into()));
}

/// What is cut: headers behind the Fragment header, then content.
fn put_content_of(to: &mut Vec<u8>, datagram: &Datagram, at: usize, len: usize) {
    let behind: Vec<u8> = headers(datagram.behind, datagram.protocol).into_iter().flat_map(|(_, it)| it).collect();
    let end = at + len;
    let shared = behind.get(at..end.min(behind.len())).unwrap_or_default();
    to.extend(shared);
    put_content(to, datagram.content, at + shared.len(), len - shared.len());
}

/// Options of IPv4, padded to words.
fn options(front: Front) -> Vec<u8> {
    match front {
        Front::Nops(words) => vec![1; usize::from(words) * 4],
        Front::Copied => vec![0x9E, 4, 7, 7],
        Front::FirstOnly => vec![0x1E, 4, 7, 7],
        _ => Vec::new(),
    }
}

/// Headers of IPv6, each with its number, that lead to `next`.
fn headers(front: Front, next: u8) -> Vec<(u8, Vec<u8>)> {
    let padded = |next: u8, units: u8| {
        let len = 8 * (usize::from(units) + 1);
        let mut header = vec![next, units, UNKNOWN_OPTION, (len - 4) as u8];
        header.resize(len, 0);
        header
    };
    match front {
        Front::HopByHop(units) => vec![(HOP_BY_HOP, padded(next, units))],
        Front::Destination(units) => vec![(DESTINATION, padded(next, units))],
        Front::Routing => vec![(ROUTING, vec![next, 0, 253, 0, 0, 0, 0, 0])],
        Front::Both => vec![(HOP_BY_HOP, padded(DESTINATION, 0)), (DESTINATION, padded(next, 1))],
        Front::Twice => vec![(DESTINATION, padded(DESTINATION, 0)), (DESTINATION, padded(next, 1))],
        _ => Vec::new(),
    }
}

fn draw(rng: &mut Rng) -> Case {
    let version = if rng.bool() { Version::V4 } else { Version::V6 };
    let count = [1, 1, 1, 1, 2, DATAGRAMS_MAX][rng.usize(..6)];
    let mut datagrams = vec![draw_datagram(rng, version)];
    while datagrams.len() < count {
        // A twin, which differs in one part of what tells datagrams apart; or in nothing, so that its name comes again.
        let mut twin = Datagram { content: rng.u32(..), ..datagrams[0] };
        match rng.u8(..4) {
            0 => twin.protocol = PROTOCOLS[rng.usize(..3)],
            1 => twin.destination = 3 - twin.destination,
            2 => twin.id = twin.id.wrapping_add(1 << rng.u8(..16)),
            _ => {}
        }
        datagrams.push(twin);
    }
    let faults = Faults::draw(rng);
    let mut pieces = Vec::new();
    for (index, datagram) in datagrams.iter().enumerate() {
        let own = draw_pieces(rng, &faults, datagram, version, index as u8);
        if rng.bool() {
            pieces.extend(own);
        } else {
            for piece in own {
                pieces.insert(rng.usize(..=pieces.len()), piece);
            }
        }
    }
    if faults.disorder && rng.bool() {
        rng.shuffle(&mut pieces);
    }
    if version == Version::V4 && rng.u8(..) == 0 {
        put_between(rng, &mut datagrams, &mut pieces);
    }
    Case { version, datagrams, pieces }
}

/// First pieces of so many other datagrams of the source that the kernel takes what came before them for lost.
fn put_between(rng: &mut Rng, datagrams: &mut Vec<Datagram>, pieces: &mut Vec<Piece>) {
    let (Some(like), at) = (pieces.first().copied(), rng.usize(..=pieces.len())) else { return };
    let first = datagrams.len();
    let others = first..first + rng.usize(60..70);
    for (number, index) in others.clone().enumerate() {
        datagrams.push(Datagram { id: 0x4000 + number as u16, ..datagrams[0] });
        pieces.insert(at, Piece { datagram: index as u8, offset: 0, len: 16, more: true, altered: None, ..like });
    }
}

fn draw_datagram(rng: &mut Rng, version: Version) -> Datagram {
    let (mut front, mut behind) = (Front::None, Front::None);
    if rng.u8(..4) == 0 {
        front = match (version, rng.u8(..4)) {
            (Version::V4, 0) => Front::Copied,
            (Version::V4, 1) => Front::FirstOnly,
            (Version::V4, _) => Front::Nops(rng.u8(1..=10)),
            (Version::V6, 0) => Front::HopByHop(rng.u8(..3)),
            (Version::V6, 1) => Front::Destination(rng.u8(..3)),
            (Version::V6, 2) => Front::Routing,
            (Version::V6, _) => Front::Both,
        };
    }
    if version == Version::V6 && rng.u8(..6) == 0 {
        behind = if rng.bool() { Front::Twice } else { Front::Destination(rng.u8(..4)) };
    }
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

/// What goes wrong in a case.
struct Faults {
    disorder: bool,
    repeats: bool,
    alterations: bool,
    overlaps: bool,
    gaps: bool,
    empty: bool,
    uneven: bool,
    ends: bool,
    offsets: bool,
    marks: bool,
    headers: bool,
    damage: bool,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        let rare = |rng: &mut Rng, of: u8| rng.u8(..of) == 0;
        Faults {
            disorder: rng.bool(),
            repeats: rare(rng, 3),
            alterations: rare(rng, 6),
            overlaps: rare(rng, 4),
            gaps: rare(rng, 6),
            empty: rare(rng, 12),
            uneven: rare(rng, 12),
            ends: rare(rng, 8),
            offsets: rare(rng, 12),
            marks: rare(rng, 4),
            headers: rare(rng, 4),
            damage: rare(rng, 24),
        }
    }
}

fn draw_pieces(rng: &mut Rng, faults: &Faults, datagram: &Datagram, version: Version, index: u8) -> Vec<Piece> {
    let longest = match rng.u8(..64) {
        0 => 65_515,
        1..4 => 9_000,
        4..12 => 3_000,
        _ => 400,
    };
    let len = rng.usize(9..longest);
    let (dont_fragment, ecn) = (rng.u8(..4) == 0, rng.u8(..4));
    let plain = Piece {
        datagram: index,
        offset: 0,
        len: 0,
        more: true,
        ecn,
        dont_fragment,
        hops: None,
        class: None,
        altered: None,
        padding: 0,
        front: None,
        next_header: None,
        is_damaged: false,
    };
    let count_max = if rng.u8(..4) == 0 { 9 } else { 4 };
    let count = rng.usize(2..=count_max);
    let mut cuts: Vec<usize> = (1..count).map(|_| rng.usize(1..=(len - 1) / 8) * 8).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces: Vec<Piece> = cuts
        .windows(2)
        .map(|ends| Piece {
            offset: ends[0] as u16,
            len: (ends[1] - ends[0]) as u16,
            more: ends[1] < len,
            front: (version == Version::V4 && datagram.front == Front::FirstOnly && ends[0] > 0)
                .then_some(Front::None),
            ..plain
        })
        .collect();
    match rng.u8(..3) {
        0 => pieces.reverse(),
        1 if faults.disorder => rng.shuffle(&mut pieces),
        _ => {}
    }
    for fault in 0..12 {
        let on = match fault {
            0 => faults.repeats,
            1 => faults.alterations && faults.repeats,
            2 => faults.overlaps,
            3 => faults.gaps,
            4 => faults.empty,
            5 => faults.uneven,
            6 => faults.ends,
            7 => faults.offsets,
            8 => faults.marks,
            9 => faults.headers,
            10 => faults.damage,
            _ => false,
        };
        if on && !pieces.is_empty() {
            spoil(rng, fault, version, len, &mut pieces);
        }
    }
    pieces
}

fn spoil(rng: &mut Rng, fault: u8, version: Version, len: usize, pieces: &mut Vec<Piece>) {
    let at = rng.usize(..pieces.len());
    let mut piece = pieces[at];
    let to = rng.usize(..=pieces.len());
    match fault {
        0 => pieces.insert(to, piece),
        1 => {
            piece.altered = Some(rng.u16(..piece.len.max(1)));
            pieces.insert(to, piece);
        }
        2 => {
            let start = rng.usize(..=len / 8) * 8;
            let end = rng.usize(start..=len + 16);
            piece.more = end < len;
            let end = if piece.more {
                end / 8 * 8
            } else if rng.bool() {
                len.max(start)
            } else {
                end
            };
            (piece.offset, piece.len) = (start as u16, (end - start) as u16);
            if rng.u8(..4) == 0 {
                piece.altered = Some(rng.u16(..piece.len.max(1)));
            }
            pieces.insert(to, piece);
        }
        3 => {
            pieces.remove(at);
        }
        4 => {
            (piece.len, piece.more) = (0, rng.bool());
            if rng.bool() {
                piece.offset = (rng.usize(..=len / 8) * 8) as u16;
            }
            pieces.insert(to, piece);
        }
        5 => {
            piece.len = piece.len.saturating_add(rng.u16(1..8));
            piece.more = true;
            if rng.bool() { pieces.insert(to, piece) } else { pieces[at] = piece }
        }
        6 => {
            piece.more = !piece.more;
            if rng.bool() { pieces.insert(to, piece) } else { pieces[at] = piece }
        }
        7 => {
            piece.offset = if rng.bool() { 8_191 - rng.u16(..40) } else { rng.u16(..8_192) } * 8;
            if rng.bool() { pieces.insert(to, piece) } else { pieces[at] = piece }
        }
        8 => {
            let usual = rng.u8(..4);
            pieces.iter_mut().for_each(|piece| piece.ecn = if rng.bool() { rng.u8(..4) } else { usual });
        }
        9 => {
            let piece = &mut pieces[at];
            match rng.u8(..6) {
                0 => piece.hops = Some(rng.u8(2..)),
                1 => piece.class = Some(rng.u8(..)),
                2 => piece.dont_fragment = !piece.dont_fragment,
                3 => piece.padding = rng.u8(1..20),
                4 if version == Version::V6 => piece.next_header = Some(PROTOCOLS[rng.usize(..3)]),
                5 if version == Version::V6 => {
                    piece.front = Some([Front::None, Front::HopByHop(0), Front::Both][rng.usize(..3)]);
                }
                _ => {
                    piece.front =
                        Some([Front::None, Front::Nops(3), Front::Copied, Front::FirstOnly][rng.usize(..4)])
                }
            }
        }
        _ => pieces[at].is_damaged = true,
    }
}

impl Piece {
    fn words(&self) -> String {
        let Piece { datagram, offset, len, more, ecn, .. } = self;
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
        self.hops.into_iter().for_each(|hops| say(format!("{hops} hops left")));
        self.class.into_iter().for_each(|class| say(format!("class {class:#x}")));
        self.altered.into_iter().for_each(|at| say(format!("byte {at} of it altered")));
        self.front.into_iter().for_each(|front| say(format!("headers {front:?}")));
        self.next_header.into_iter().for_each(|next| say(format!("names {next} as the next header")));
        if self.padding > 0 {
            say(format!("{} bytes of padding", self.padding));
        }
        if self.is_damaged {
            say("a wrong header checksum".to_owned());
        }
        words
    }
}

/// Headers behind a Fragment header, at most, in bytes.
const HEADERS_LEN_MAX: usize = 32;
/// Datagrams of a case, but for those that only stand between others.
const DATAGRAMS_MAX: usize = 3;
/// Protocols that are received: UDP, and two for experiments (RFC 3692 section 2.1).
const PROTOCOLS: [u8; 3] = [17, 253, 254];
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// An option for experiments, which who does not know it skips (RFC 4727 section 4).
const UNKNOWN_OPTION: u8 = 0x1E;
const DEVICE: &str = "pieces0";
/// What has the kernel take what comes, whoever sent it, and hold little of what never becomes whole.
const SETTINGS: [(&str, &str); 8] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ipfrag_high_thresh", "2000000000"),
    ("ipv4/ipfrag_low_thresh", "1900000000"),
    ("ipv4/ipfrag_time", "10"),
    ("ipv6/ip6frag_high_thresh", "2000000000"),
    ("ipv6/ip6frag_time", "10"),
    ("ipv6/conf/default/accept_dad", "0"),
];
