//! Segments and datagrams built by hand in, what stands on the wire out.
//!
//! Nothing here asks the code under test for a number: headers are written, read and summed field by field, so that a
//! test and the engine can only agree by both being right.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod traffic;

use core::ops::Range;
use core::time::Duration;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use wideload_engine::packet::{Checksum, Frame, Ingress, Medium, Pool, Time, Train};
use wideload_engine::{
    Coalescer, Event, Exempt, Hold, Identifiers, LIFETIME, Mode, Narrowing, Output, Pieces, Role, Rules, Secret,
    Side, Switch, Trains, Widening,
};

/// A TCP segment or UDP datagram to be built.
#[derive(Clone, Debug)]
pub struct Spec {
    pub version: u8,
    /// Last bytes of source and destination address.
    pub hosts: [u8; 2],
    pub ports: [u16; 2],
    /// None: no link header. Else an Ethernet header with these tags.
    pub vlans: Option<Vec<u16>>,
    /// IPv6: extension headers, whose first two bytes are written here. IPv4: the first one's bytes are the options.
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    /// IPv4's reserved bit, DF and MF and the offset in eights.
    pub flags_offset: u16,
    /// IPv6: a Fragment header with this word of offset and M.
    pub fragment: Option<u16>,
    pub protocol: u8,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// The four bits behind the data offset.
    pub reserved: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    pub sum: Summed,
    /// Is the IPv4 header's checksum wrong by one?
    pub ip_sum_off: u16,
    /// Bytes of padding behind the packet.
    pub padding: usize,
}

/// How a transport checksum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    Right,
    /// Wrong by so much.
    Off(u16),
    /// The pseudo-header's sum, for a card to finish.
    Half,
    /// All ones where it is 0.
    AllOnes,
    /// UDP: 0, for none.
    None,
}

impl Spec {
    pub fn tcp(version: u8) -> Spec {
        Spec {
            version,
            hosts: [1, 2],
            ports: [1_500, 8_000],
            vlans: None,
            extensions: Vec::new(),
            tos: 0,
            ttl: 64,
            id: 8,
            flags_offset: DF,
            fragment: None,
            protocol: TCP,
            seq: 100,
            ack: 100,
            flags: ACK,
            reserved: 0,
            window: 65_535,
            urgent: 0,
            options: Vec::new(),
            payload: Vec::new(),
            sum: Summed::Right,
            ip_sum_off: 0,
            padding: 0,
        }
    }

    pub fn udp(version: u8) -> Spec {
        Spec { protocol: UDP, ..Spec::tcp(version) }
    }

    /// So many bytes of a stream, from `offset` on.
    pub fn carrying(self, offset: usize, len: usize) -> Spec {
        let seq = self.seq.wrapping_add(offset as u32);
        Spec { seq, payload: (offset..offset + len).map(|at| stream(at as u64)).collect(), ..self }
    }

    /// With time stamps as most senders write them.
    pub fn stamped(self, value: u32, echo: u32) -> Spec {
        Spec { options: [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat(), ..self }
    }

    pub fn transport_len(&self) -> usize {
        if self.protocol == TCP { 20 + self.options.len() } else { 8 }
    }

    pub fn ip_header_len(&self) -> usize {
        let extensions: usize = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
        let fixed = if self.version == 4 { 20 } else { 40 };
        fixed + extensions + if self.fragment.is_some() { 8 } else { 0 }
    }

    /// Bytes of the packet, from the IP header on.
    pub fn ip_len(&self) -> usize {
        self.ip_header_len() + self.transport_len() + self.payload.len()
    }

    /// What an offloading card would have made of it.
    pub fn finished(&self) -> Spec {
        let sum = if self.sum == Summed::Half { Summed::Right } else { self.sum };
        Spec { sum, padding: 0, ..self.clone() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut upper = self.transport();
        let pseudo = self.pseudo(upper.len());
        let at = if self.protocol == TCP { 16 } else { 6 };
        let mut right = !sum_of(&[&pseudo, &upper]);
        if self.protocol == UDP && right == 0 {
            right = 0xFFFF;
        }
        let field = match self.sum {
            Summed::Right => right,
            Summed::Off(off) => {
                // By adding in one's complement: never what it was, in either way to write 0.
                assert!(off != 0 && off != 0xFFFF);
                add(right, off)
            }
            Summed::Half => sum_of(&[&pseudo]),
            Summed::AllOnes => {
                assert!(right == 0 || right == 0xFFFF, "{right:04x}");
                0xFFFF
            }
            Summed::None => 0,
        };
        upper[at..at + 2].copy_from_slice(&field.to_be_bytes());
        let mut frame = self.link();
        frame.extend(if self.version == 4 { self.ipv4(upper.len()) } else { self.ipv6(upper.len()) });
        frame.extend(upper);
        frame.extend(vec![0xEE; self.padding]);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let mut upper = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        if self.protocol == TCP {
            assert!(self.options.len().is_multiple_of(4) && self.options.len() <= 40);
            upper.extend(self.seq.to_be_bytes());
            upper.extend(self.ack.to_be_bytes());
            upper.extend([(self.transport_len() * 4) as u8 | self.reserved, self.flags]);
            upper.extend(self.window.to_be_bytes());
            upper.extend([0, 0]);
            upper.extend(self.urgent.to_be_bytes());
            upper.extend(&self.options);
        } else {
            upper.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            upper.extend([0, 0]);
        }
        upper.extend(&self.payload);
        upper
    }

    fn address(&self, which: usize) -> Vec<u8> {
        match self.version {
            4 => vec![192, 0, 2, self.hosts[which]],
            _ => [&[0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[self.hosts[which]]].concat(),
        }
    }

    fn pseudo(&self, upper_len: usize) -> Vec<u8> {
        let len = (upper_len as u32).to_be_bytes();
        [&self.address(0)[..], &self.address(1), &len, &[0, 0, 0, self.protocol]].concat()
    }

    fn link(&self) -> Vec<u8> {
        let Some(vlans) = &self.vlans else { return Vec::new() };
        let mut link = vec![2, 0, 0, 0, 0, self.hosts[1], 2, 0, 0, 0, 0, self.hosts[0]];
        for vlan in vlans {
            link.extend([0x81, 0x00]);
            link.extend(vlan.to_be_bytes());
        }
        link.extend(if self.version == 4 { [0x08, 0x00] } else { [0x86, 0xDD] });
        link
    }

    fn ipv4(&self, upper_len: usize) -> Vec<u8> {
        let options: Vec<u8> = self.extensions.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let header_len = 20 + options.len();
        let mut bytes = vec![0x40 | (header_len / 4) as u8, self.tos];
        bytes.extend(((header_len + upper_len) as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.flags_offset.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(self.address(0));
        bytes.extend(self.address(1));
        bytes.extend(options);
        let field = add(!sum_of(&[&bytes]), self.ip_sum_off);
        bytes[10..12].copy_from_slice(&field.to_be_bytes());
        bytes
    }

    fn ipv6(&self, upper_len: usize) -> Vec<u8> {
        let mut headers = self.extensions.clone();
        if let Some(word) = self.fragment {
            headers.push((44, [&[0, 0][..], &word.to_be_bytes(), &[0, 0], &self.id.to_be_bytes()].concat()));
        }
        let kinds: Vec<u8> = headers.iter().map(|(kind, _)| *kind).chain([self.protocol]).collect();
        let extensions_len: usize = headers.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut bytes = vec![0x60 | self.tos >> 4, self.tos << 4 | 5, 0x12, 0x34];
        bytes.extend(((extensions_len + upper_len) as u16).to_be_bytes());
        bytes.extend([kinds[0], self.ttl]);
        bytes.extend(self.address(0));
        bytes.extend(self.address(1));
        for ((kind, header), next) in headers.iter().zip(&kinds[1..]) {
            let at = bytes.len();
            bytes.extend(header);
            bytes[at] = *next;
            match *kind {
                44 => {}
                AUTHENTICATION => bytes[at + 1] = (header.len() / 4 - 2) as u8,
                _ => bytes[at + 1] = (header.len() / 8 - 1) as u8,
            }
        }
        bytes
    }
}

/// What a test reads from a frame.
#[derive(Clone, Debug)]
pub struct Seen {
    pub ip_at: usize,
    /// The transport header, from the frame's start.
    pub upper_at: usize,
    /// The packet's end, without padding.
    pub end: usize,
    pub version: u8,
    pub is_fragment: bool,
    pub protocol: u8,
    pub tos: u8,
    pub id: u16,
    pub dont_fragment: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Range<usize>,
    pub payload: Range<usize>,
    /// Is the transport checksum right (or absent, in UDP)?
    pub sum_is_right: bool,
    /// Does an Authentication header stand in front, or are there IPv4 options?
    pub speaks_of_one: bool,
    /// Does its header lie in the packet?
    pub has_header: bool,
}

impl Seen {
    /// Reads a frame; panics where a length or the IPv4 header checksum is wrong.
    pub fn of(frame: &[u8], medium: Medium) -> Seen {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let mut ip_at = 0;
        if medium == Medium::Ethernet {
            ip_at = 14;
            while word(ip_at - 2) == 0x8100 {
                ip_at += 4;
            }
        }
        let version = frame[ip_at] >> 4;
        let mut seen = Seen {
            ip_at,
            upper_at: ip_at + 40,
            end: ip_at + 40 + usize::from(word(ip_at + 4)),
            version,
            is_fragment: false,
            protocol: frame[ip_at + 6],
            tos: (word(ip_at) >> 4) as u8,
            id: 0,
            dont_fragment: true,
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            options: 0..0,
            payload: 0..0,
            sum_is_right: true,
            speaks_of_one: false,
            has_header: false,
        };
        if version == 4 {
            let header_len = usize::from(frame[ip_at] & 15) * 4;
            assert_eq!(sum_of(&[&frame[ip_at..ip_at + header_len]]), 0xFFFF, "an IPv4 header's checksum is right");
            seen.upper_at = ip_at + header_len;
            seen.end = ip_at + usize::from(word(ip_at + 2));
            seen.is_fragment = word(ip_at + 6) & 0x3FFF != 0;
            seen.protocol = frame[ip_at + 9];
            seen.tos = frame[ip_at + 1];
            seen.id = word(ip_at + 4);
            seen.dont_fragment = word(ip_at + 6) & DF != 0;
            seen.speaks_of_one = header_len > 20;
        }
        let mut offset_is_0 = version == 6 || word(ip_at + 6) & 0x1FFF == 0;
        while version == 6 && [0, 43, 44, AUTHENTICATION, 60].contains(&seen.protocol) {
            let (kind, at) = (seen.protocol, seen.upper_at);
            seen.protocol = frame[at];
            seen.upper_at += match kind {
                44 => 8,
                AUTHENTICATION => usize::from(frame[at + 1]) * 4 + 8,
                _ => usize::from(frame[at + 1]) * 8 + 8,
            };
            seen.speaks_of_one |= kind == AUTHENTICATION;
            if kind == 44 {
                seen.is_fragment = true;
                offset_is_0 = word(at + 2) & 0xFFF8 == 0;
            }
        }
        assert!(seen.end <= frame.len(), "a packet is as long as it says");
        if offset_is_0 {
            seen.read_transport(&frame[..seen.end]);
        }
        seen
    }

    fn read_transport(&mut self, packet: &[u8]) {
        let upper = &packet[self.upper_at.min(packet.len())..];
        let long = |at: usize| u32::from_be_bytes([upper[at], upper[at + 1], upper[at + 2], upper[at + 3]]);
        let addresses = if self.version == 4 { 12..20 } else { 8..40 };
        let addresses = &packet[self.ip_at + addresses.start..self.ip_at + addresses.end];
        let pseudo = [addresses, &(upper.len() as u32).to_be_bytes(), &[0, 0, 0, self.protocol]].concat();
        let sum = sum_of(&[&pseudo, upper]);
        match self.protocol {
            TCP if upper.len() >= 20 => {
                let header_len = usize::from(upper[12] >> 4) * 4;
                (self.seq, self.ack, self.flags) = (long(4), long(8), upper[13]);
                self.window = u16::from_be_bytes([upper[14], upper[15]]);
                self.sum_is_right = sum == 0xFFFF;
                if header_len >= 20 && header_len <= upper.len() {
                    self.has_header = true;
                    self.options = self.upper_at + 20..self.upper_at + header_len;
                    self.payload = self.options.end..self.end;
                }
            }
            UDP if upper.len() >= 8 => {
                let claimed_len = usize::from(u16::from_be_bytes([upper[4], upper[5]]));
                self.sum_is_right = upper[6..8] == [0, 0] || sum == 0xFFFF;
                self.has_header = claimed_len == upper.len();
                self.payload = self.upper_at + 8..self.end;
            }
            _ => {}
        }
    }

    /// Length of the packet, IP header counted.
    pub fn ip_len(&self) -> usize {
        self.end - self.ip_at
    }

    /// The sequence number behind its payload.
    pub fn seq_end(&self) -> u32 {
        self.seq.wrapping_add(self.payload.len() as u32)
    }

    /// May it share its header with its neighbours? By the rulings: a whole TCP segment with payload and a right
    /// checksum, no flags but ACK, PSH, FIN and ECE, no options but one of time stamps.
    pub fn joins(&self, frame: &[u8]) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment
            && !self.speaks_of_one
            && self.sum_is_right
            && !self.payload.is_empty()
            && self.flags & !(PSH | FIN | ECE) == ACK
            && options(&frame[self.options.clone()]).is_some()
    }

    /// May it be cut into segments? Not what opens, resets or is urgent, or whose options sign it or cannot be read.
    pub fn may_be_segmented(&self, frame: &[u8]) -> bool {
        self.protocol == TCP
            && self.has_header
            && !self.is_fragment
            && !(self.version == 6 && self.speaks_of_one)
            && self.flags & (SYN | RST | URG) == 0
            && !signs(&frame[self.options.clone()])
    }

    /// Time stamps, where there is one option of them.
    pub fn stamps(&self, frame: &[u8]) -> Option<(u32, u32)> {
        let at = options(&frame[self.options.clone()])?? + self.options.start;
        let long = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        Some((long(at), long(at + 4)))
    }

    /// Everything that a TCP packet's bytes leave with unchanged, in one number: link header, IP header but for lengths,
    /// identification and checksum; ports, reserved bits, flags but CWR, PSH and FIN, urgent pointer, options but for
    /// the values of time stamps.
    pub fn surroundings(&self, frame: &[u8]) -> u64 {
        let mut kept = frame[..self.options.end].to_vec();
        let ip_at = self.ip_at;
        if self.version == 4 {
            kept[ip_at + 2..ip_at + 6].fill(0);
            kept[ip_at + 10..ip_at + 12].fill(0);
        } else {
            kept[ip_at + 4..ip_at + 6].fill(0);
        }
        let upper = &mut kept[self.upper_at..];
        upper[4..12].fill(0);
        upper[13] &= !(CWR | PSH | FIN);
        upper[14..18].fill(0);
        if let Some(Some(at)) = options(&frame[self.options.clone()]) {
            upper[20 + at..20 + at + 8].fill(0);
        }
        let mut hasher = DefaultHasher::new();
        kept.hash(&mut hasher);
        hasher.finish()
    }
}

/// Where the time stamps' values stand, if nothing else stands among the options; none where anything else does.
fn options(bytes: &[u8]) -> Option<Option<usize>> {
    let (mut at, mut found) = (0, None);
    while at < bytes.len() {
        match bytes[at] {
            0 => break,
            1 => at += 1,
            8 if found.is_none() && bytes.get(at + 1) == Some(&10) && at + 10 <= bytes.len() => {
                found = Some(at + 2);
                at += 10;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// Does an option sign the segment, or can the options not be read?
fn signs(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (0, _) => return false,
            (1, _) => at += 1,
            (kind, Some(len)) if *len >= 2 && at + usize::from(*len) <= bytes.len() => {
                if [19, 29].contains(&kind) {
                    return true;
                }
                at += usize::from(*len);
            }
            _ => return true,
        }
    }
    false
}

/// One side that coalesces, with its output and a clock.
pub struct Rig {
    pub side: Side,
    pub out: Output,
    pub now: Time,
    pub medium: Medium,
    pub ingress: Ingress,
}

/// A packet that left.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its frame, before it is cut.
    pub frame: Vec<u8>,
    /// What stands for it on the wire.
    pub wire: Vec<Vec<u8>>,
    pub train: Option<Train>,
    pub as_received: bool,
}

impl Rig {
    /// One that makes trains, which stay trains, and lets any length pass.
    pub fn carrying(rules: Rules) -> Rig {
        let narrowing = Narrowing { trains: Trains::Kept, ..Narrowing::new(u16::MAX, Role::Transit) };
        Rig::new(rules, narrowing, 16 << 20)
    }

    /// One that makes packets of up to `mtu` bytes.
    pub fn resizing(mtu: u16) -> Rig {
        Rig::new(resize(mtu), Narrowing::new(mtu, Role::Transit), 16 << 20)
    }

    pub fn new(rules: Rules, narrowing: Narrowing, limit: usize) -> Rig {
        Rig::exempting(rules, narrowing, limit, Vec::new())
    }

    pub fn exempting(rules: Rules, narrowing: Narrowing, limit: usize, exempt: Vec<Exempt>) -> Rig {
        let coalescer = Coalescer::new(limit, rules, exempt, Secret::new(7));
        let widening = Widening { coalescer: Some(coalescer), ..Widening::default() };
        Rig {
            side: Side { widening, narrowing },
            out: Output::new(Pool::new(2 * limit + (64 << 20)), None),
            now: Time::ZERO,
            medium: Medium::Ip,
            ingress: Ingress(0),
        }
    }

    pub fn ethernet(self) -> Rig {
        Rig { medium: Medium::Ethernet, ..self }
    }

    /// Pushes a packet and returns what leaves at once; a half-filled checksum is marked as such.
    pub fn push(&mut self, spec: &Spec) -> Vec<Left> {
        let checksum = if spec.sum == Summed::Half { Checksum::Partial } else { Checksum::Unverified };
        self.push_frame(&spec.bytes(), checksum)
    }

    pub fn push_all<'a>(&mut self, specs: impl IntoIterator<Item = &'a Spec>) -> Vec<Left> {
        specs.into_iter().flat_map(|spec| self.push(spec)).collect()
    }

    pub fn push_frame(&mut self, frame: &[u8], checksum: Checksum) -> Vec<Left> {
        let packet = Frame::copy(frame, self.medium, self.ingress, &mut self.out.pool);
        let mut packet = packet.unwrap_or_else(|unfit| panic!("{unfit:?}: {frame:02x?}"));
        packet.checksum = checksum;
        self.side.push(self.now, packet, &mut self.out);
        self.drain()
    }

    /// Lets time pass, and gives up what becomes late on the way, when it does.
    pub fn wait_until(&mut self, moment: Time) -> Vec<(Time, Left)> {
        let mut left = Vec::new();
        while let Some(deadline) = self.side.next_deadline().filter(|deadline| *deadline <= moment) {
            assert!(deadline >= self.now, "nothing is held past its deadline");
            self.now = deadline;
            self.side.expire(deadline, &mut self.out);
            left.extend(self.drain().into_iter().map(|packet| (deadline, packet)));
            assert!(self.side.next_deadline().is_none_or(|next| next > deadline), "what is late has left");
        }
        self.now = moment;
        left
    }

    pub fn wait(&mut self, stretch: Duration) -> Vec<Left> {
        self.wait_until(self.now + stretch).into_iter().map(|(_, left)| left).collect()
    }

    /// The port pauses.
    pub fn release(&mut self) -> Vec<Left> {
        self.side.release(self.now, &mut self.out);
        self.drain()
    }

    /// The input ends.
    pub fn flush(&mut self) -> Vec<Left> {
        self.side.flush(self.now, &mut self.out);
        let left = self.drain();
        assert_eq!(self.out.pool.lent_count(), 0, "after the end nothing is held");
        left
    }

    pub fn coalescer(&self) -> &Coalescer {
        self.side.widening.coalescer.as_ref().expect("it coalesces")
    }

    pub fn count(&self, event: Event) -> u64 {
        self.out.ledger.event(event).packets
    }

    fn drain(&mut self) -> Vec<Left> {
        self.check();
        let mut left = Vec::new();
        while let Some(packet) = self.out.next() {
            let mut wire = Vec::new();
            let mut pieces = Pieces::of(&packet);
            while let Some(piece) = pieces.next() {
                wire.push([piece.header, piece.payload].concat());
            }
            assert_eq!(wire.len(), packet.wire_count(), "a packet stands for as many as it says");
            let (train, as_received) = (packet.train, packet.is_as_received());
            left.push(Left { frame: packet.frame().to_vec(), wire, train, as_received });
            self.out.done(packet);
        }
        self.check();
        left
    }

    fn check(&self) {
        self.side.check(&self.out).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// What stands on the wire.
pub fn wire(left: Vec<Left>) -> Vec<Vec<u8>> {
    left.into_iter().flat_map(|left| left.wire).collect()
}

pub fn reversible() -> Rules {
    Rules { mode: Mode::Reversible, hold: Hold::Adaptive, len_max: u16::MAX, longer: Switch::On, udp: true }
}

pub fn resize(len_max: u16) -> Rules {
    Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max, longer: Switch::On, udp: false }
}

pub fn source() -> Role {
    Role::Source(Identifiers::new(Secret::new(3), LIFETIME))
}

/// The bytes of every stream, by place; no two places near each other are alike.
pub fn stream(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The one's complement sum of parts, of which only the last may have an odd length.
pub fn sum_of(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let (words, rest) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        sum += rest.first().map_or(0, |last| u64::from(*last) << 8);
    }
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    sum as u16
}

/// The sum of two words in one's complement.
pub fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// Runs a law on many seeds, or on the one that `WIDELOAD_SEED` names; `WIDELOAD_SEEDS` runs more of them.
pub fn each_seed(file: &str, usual: u64, mut law: impl FnMut(u64)) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
    };
    let seeds = match number("WIDELOAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WIDELOAD_SEEDS").unwrap_or(usual),
    };
    for seed in seeds {
        if let Err(broken) = catch_unwind(AssertUnwindSafe(|| law(seed))) {
            eprintln!("repeat with: WIDELOAD_SEED={seed} cargo test -p wideload-engine --test {file}");
            resume_unwind(broken);
        }
    }
}

pub fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

pub const VERSIONS: [u8; 2] = [4, 6];
pub const DF: u16 = 0x4000;
pub const MF: u16 = 0x2000;
pub const RESERVED: u16 = 0x8000;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const AUTHENTICATION: u8 = 51;
pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;
