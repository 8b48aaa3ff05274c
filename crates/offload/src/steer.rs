//! A frame -> the number of the worker that processes it.
//!
//! Each worker has its own tables, without locks (PAPERS.md, L2 and L3). So packets of both directions of a TCP
//! connection are steered to the same worker, regardless of the port at which a packet arrives. Fragments and
//! packets other than TCP are steered by addresses and protocol. Frames other than IP are steered to the first
//! worker.
//!
//! A program that is assembled here distributes frames in the kernel. The function [`worker`] computes the same
//! numbers. The number depends only on the packet, so a sender that can choose its addresses can choose a worker.

use crate::bpf::{
    self, EXIT, IF_EQUAL, IF_LESS, IF_OTHER, Insn, Kind, LOAD_BYTES, R0, R1, R2, R3, R4, R6, R7, R8, R10, add,
    add_register, assemble, call, copy, exclusive_or, go, jump, load_byte, load_half, load_word, mask, multiply,
    multiply_by, put_word, set, set_wide, shift_left, shift_right,
};
use crate::names;
use packet::LinkType;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Returns the number of the worker, out of `count`, for a frame with this link type.
pub fn worker(link_type: LinkType, frame: &[u8], count: usize) -> usize {
    let key = match link_type {
        LinkType::Ethernet => behind_tags(frame).and_then(key),
        _ => key(frame),
    };
    key.map_or(0, |key| key.worker(count))
}

/// Returns the number of the worker, out of `count`, for the packets of the TCP connection between two ends, each
/// with address and port.
pub fn connection_worker(ends: [(IpAddr, u16); 2], count: usize) -> usize {
    let end = |(address, port): (IpAddr, u16)| {
        let mut words = [0; ADDRESS_WORDS];
        match address {
            IpAddr::V4(address) => words[0] = u32::from_ne_bytes(address.octets()),
            IpAddr::V6(address) => {
                let octets = address.octets();
                words = std::array::from_fn(|index| word(&octets, 4 * index));
            }
        }
        (words, u16::from_ne_bytes(port.to_be_bytes()))
    };
    let word_count = if ends[0].0.is_ipv4() { 1 } else { ADDRESS_WORDS };
    Key { ends: ends.map(end), word_count, protocol: TCP }.worker(count)
}

/// Checks that the kernel lets this process load a program for steering.
///
/// # Errors
/// The kernel's reason, and a way to fix it.
pub fn allowed() -> io::Result<()> {
    program(Start::Packet, 2).map(drop)
}

/// Input of the steering hash.
struct Key {
    /// Address and port of both hosts; the port is 0 if steering does not use it.
    ends: [([u32; ADDRESS_WORDS], u16); 2],
    word_count: usize,
    protocol: u8,
}

impl Key {
    fn worker(&self, count: usize) -> usize {
        let end = |(words, port): &([u32; ADDRESS_WORDS], u16)| {
            let start = u64::from(*port).wrapping_mul(FACTOR);
            words.iter().take(self.word_count).fold(start, |sum, word| stirred(sum ^ u64::from(*word)))
        };
        let [one, other] = &self.ends;
        let both = end(one).wrapping_add(end(other)).wrapping_add(u64::from(self.protocol));
        let drawn = stirred(both).wrapping_mul(FACTOR) >> 32;
        ((drawn * count as u64) >> 32) as usize
    }
}

fn stirred(sum: u64) -> u64 {
    let product = sum.wrapping_mul(FACTOR);
    product ^ product >> 32
}

/// Returns the IP packet after an Ethernet header and its VLAN tags; `None` for other frames.
fn behind_tags(frame: &[u8]) -> Option<&[u8]> {
    let mut at = TYPE_AT;
    for _ in 0..=TAGS_MAX {
        let ether_type: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
        match u16::from_be_bytes(ether_type) {
            IPV4 => return frame.get(at + 2..).filter(|packet| is_version(packet, 4)),
            IPV6 => return frame.get(at + 2..).filter(|packet| is_version(packet, 6)),
            tag if TAGS.contains(&tag) => at += TAG_LEN,
            _ => return None,
        }
    }
    None
}

fn is_version(packet: &[u8], version: u8) -> bool {
    packet.first().is_some_and(|first| first >> 4 == version)
}

fn key(packet: &[u8]) -> Option<Key> {
    match packet.first()? >> 4 {
        4 => key_v4(packet),
        6 => key_v6(packet),
        _ => None,
    }
}

fn key_v4(packet: &[u8]) -> Option<Key> {
    let header = packet.get(..V4_LEN)?;
    let header_len = usize::from(header[0] & 0x0F) * 4;
    if header_len < V4_LEN {
        return None;
    }
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS != 0;
    let protocol = header[9];
    let ports = if protocol == TCP && !is_fragment { ports(packet, header_len) } else { [0; 2] };
    let [source, target] = [V4_SOURCE_AT, V4_SOURCE_AT + 4].map(|at| [word(header, at), 0, 0, 0]);
    Some(Key { ends: [(source, ports[0]), (target, ports[1])], word_count: 1, protocol })
}

fn key_v6(packet: &[u8]) -> Option<Key> {
    let header = packet.get(..V6_LEN)?;
    let (protocol, ports) = match header[6] {
        TCP => (TCP, ports(packet, V6_LEN)),
        FRAGMENT => (packet.get(V6_LEN).copied().unwrap_or(0), [0; 2]),
        next => (next, [0; 2]),
    };
    let address = |at: usize| std::array::from_fn(|index| word(header, at + 4 * index));
    let ends = [(address(V6_SOURCE_AT), ports[0]), (address(V6_SOURCE_AT + 16), ports[1])];
    Some(Key { ends, word_count: ADDRESS_WORDS, protocol })
}

/// Returns both ports in native byte order; 0 if the packet is too short.
fn ports(packet: &[u8], at: usize) -> [u16; 2] {
    match packet.get(at..at + 4) {
        Some(&[a, b, c, d]) => [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])],
        _ => [0; 2],
    }
}

fn word(header: &[u8], at: usize) -> u32 {
    header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// The start of the data that the kernel passes to the program for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// An IP packet: on a TUN device, or on an interface without link headers.
    Packet,
    /// The bytes after the Ethernet header, at a packet socket. The metadata contain the ethertype, and whether a
    /// first tag was stripped.
    Steered,
    /// An Ethernet frame: on a TAP device.
    Frame,
}

/// Loads the program that returns the number of a worker, out of `count`, for each frame.
///
/// # Errors
/// The kernel rejects the program.
pub fn program(start: Start, count: u16) -> io::Result<OwnedFd> {
    bpf::load(names::STEER, Kind::Filter, 0, &assemble(&steps(start, count)))
        .map_err(|refusal| refusal.about("cannot load the program that distributes frames over workers"))
}

/// Returns the complete program: it finds the packet, builds its key and hashes the key.
fn steps(start: Start, count: u16) -> Vec<Insn> {
    let mut steps = vec![copy(CONTEXT, R1)];
    steps.extend(find_packet(start));
    steps.extend(key_v4_steps());
    steps.extend(choose_worker(1, V4_SOURCE_AT as i16, count));
    steps.extend(key_v6_steps());
    steps.extend(choose_worker(ADDRESS_WORDS as i16, V6_SOURCE_AT as i16, count));
    steps.extend([Insn::Place("none"), set(R0, 0), EXIT]);
    steps
}

/// Returns steps that put the packet's offset into [`AT`] and jump to `v4` or `v6`.
fn find_packet(start: Start) -> Vec<Insn> {
    let mut steps = Vec::new();
    match start {
        Start::Packet => {
            steps.push(set(AT, 0));
            steps.extend(read(0, ROOM, 1));
            steps.extend([
                jump(IF_OTHER, R0, 0, "none"),
                load_byte(R1, R10, ROOM),
                shift_right(R1, 4),
                jump(IF_EQUAL, R1, 4, "v4"),
                jump(IF_EQUAL, R1, 6, "v6"),
                go("none"),
            ]);
            return steps;
        }
        Start::Steered => {
            // A stripped tag counts as one of the three tags.
            steps.extend([set(AT, 0), load_word(R1, CONTEXT, PROTOCOL_AT), load_word(R2, CONTEXT, TAG_IS_TOLD_AT)]);
            steps.extend(tell_type("tag"));
            steps.push(jump(IF_OTHER, R2, 0, "second"));
        }
        Start::Frame => {
            steps.push(set(AT, TYPE_AT as i32 + 2));
            steps.extend(read(-2, ROOM, 2));
            steps.extend([jump(IF_OTHER, R0, 0, "none"), load_half(R1, R10, ROOM)]);
            steps.extend(tell_type("tag"));
        }
    }
    for [place, next] in [["first", "to second"], ["second", "to third"], ["third", "too many"]] {
        steps.push(Insn::Place(place));
        // The tag control information, and the ethertype after it.
        steps.extend(read(0, ROOM, TAG_LEN as i32));
        steps.extend([jump(IF_OTHER, R0, 0, "none"), add(AT, TAG_LEN as i32), load_half(R1, R10, ROOM + 2)]);
        steps.extend(tell_type(next));
    }
    steps.push(go("none"));
    steps
}

/// Returns steps that jump by ethertype. For a VLAN tag, they jump to the target `tag`, which is at the end of
/// these steps.
fn tell_type(tag: &'static str) -> Vec<Insn> {
    let mut steps =
        vec![jump(IF_EQUAL, R1, network_order(IPV4), "v4"), jump(IF_EQUAL, R1, network_order(IPV6), "v6")];
    steps.extend(TAGS.map(|ether_type| jump(IF_EQUAL, R1, network_order(ether_type), tag)));
    steps.extend([go("none"), Insn::Place(tag)]);
    steps
}

/// Returns steps that read the header, ports and protocol of an IPv4 packet.
fn key_v4_steps() -> Vec<Insn> {
    let mut steps = vec![Insn::Place("v4")];
    steps.extend(read(0, HEADER, V4_LEN as i32));
    steps.extend([
        jump(IF_OTHER, R0, 0, "none"),
        load_byte(R1, R10, HEADER),
        copy(R2, R1),
        shift_right(R2, 4),
        jump(IF_OTHER, R2, 4, "none"),
        mask(R1, 0x0F),
        jump(IF_LESS, R1, V4_LEN as i32 / 4, "none"),
        shift_left(R1, 2),
        add_register(AT, R1),
        put_word(R10, ROOM, 0),
        load_byte(UPPER, R10, HEADER + 9),
        jump(IF_OTHER, UPPER, i32::from(TCP), "hash v4"),
        load_half(R1, R10, HEADER + 6),
        mask(R1, network_order(FRAGMENT_BITS)),
        jump(IF_OTHER, R1, 0, "hash v4"),
    ]);
    // If the packet is too short for ports, the kernel writes zeros.
    steps.extend(read(0, ROOM, 4));
    steps.push(Insn::Place("hash v4"));
    steps
}

/// Returns steps that read the header, ports and protocol of an IPv6 packet.
fn key_v6_steps() -> Vec<Insn> {
    let mut steps = vec![Insn::Place("v6")];
    steps.extend(read(0, HEADER, V6_LEN as i32));
    steps.extend([
        jump(IF_OTHER, R0, 0, "none"),
        load_byte(R1, R10, HEADER),
        shift_right(R1, 4),
        jump(IF_OTHER, R1, 6, "none"),
        load_byte(UPPER, R10, HEADER + 6),
        put_word(R10, ROOM, 0),
        jump(IF_EQUAL, UPPER, i32::from(FRAGMENT), "fragment"),
        jump(IF_OTHER, UPPER, i32::from(TCP), "hash v6"),
    ]);
    steps.extend(read(V6_LEN as i32, ROOM, 4));
    steps.extend([go("hash v6"), Insn::Place("fragment")]);
    steps.extend(read(V6_LEN as i32, ROOM, 1));
    steps.extend([load_byte(UPPER, R10, ROOM), put_word(R10, ROOM, 0), Insn::Place("hash v6")]);
    steps
}

/// Returns steps that compute [`Key::worker`] and end the program.
fn choose_worker(word_count: i16, source_at: i16, count: u16) -> Vec<Insn> {
    let mut steps = set_wide(R4, FACTOR).to_vec();
    for (sum, port_at, from) in [(R1, 0, source_at), (R2, 2, source_at + 4 * word_count)] {
        steps.extend([load_half(sum, R10, ROOM + port_at), multiply(sum, R4)]);
        for index in 0..word_count {
            steps.extend([load_word(R3, R10, HEADER + from + 4 * index), exclusive_or(sum, R3)]);
            steps.extend(stir(sum));
        }
    }
    steps.extend([add_register(R1, R2), add_register(R1, UPPER)]);
    steps.extend(stir(R1));
    steps.extend([
        multiply(R1, R4),
        shift_right(R1, 32),
        multiply_by(R1, i32::from(count)),
        shift_right(R1, 32),
        copy(R0, R1),
        EXIT,
    ]);
    steps
}

/// Returns steps that compute [`stirred`].
fn stir(sum: u8) -> [Insn; 4] {
    [multiply(sum, R4), copy(R3, sum), shift_right(R3, 32), exclusive_or(sum, R3)]
}

/// Returns steps that copy `len` bytes of the frame to the offset `room` of the stack. The bytes start `beyond`
/// bytes after the offset in register [`AT`]. Register 0 becomes 0 if all of the bytes exist.
fn read(beyond: i32, room: i16, len: i32) -> [Insn; 7] {
    [
        copy(R1, CONTEXT),
        copy(R2, AT),
        add(R2, beyond),
        copy(R3, R10),
        add(R3, room.into()),
        set(R4, len),
        call(LOAD_BYTES),
    ]
}

/// Converts to network byte order, as in a frame.
fn network_order(half: u16) -> i32 {
    i32::from(half.to_be())
}

/// Factor of the hash: 2^64 times the fractional part of the golden ratio, an odd number (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Length of the longest address, in 32-bit words.
const ADDRESS_WORDS: usize = 4;
/// Offset of the ethertype in an Ethernet header.
const TYPE_AT: usize = 12;
const TAG_LEN: usize = 4;
/// Largest number of tags that are skipped, as in the crate `packet`.
const TAGS_MAX: usize = 3;
const TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const V4_LEN: usize = 20;
const V4_SOURCE_AT: usize = 12;
const V6_LEN: usize = 40;
const V6_SOURCE_AT: usize = 8;
/// The more-fragments flag and the fragment offset of IPv4 (RFC 791 section 3.1).
const FRAGMENT_BITS: u16 = 0x3FFF;
const TCP: u8 = 6;
/// Protocol number of the IPv6 Fragment header.
const FRAGMENT: u8 = 44;

/// Registers preserved across calls: the metadata, the current offset, the protocol.
const CONTEXT: u8 = R6;
const AT: u8 = R7;
const UPPER: u8 = R8;
/// Offsets on the stack: the IP header, and four bytes of other data.
const HEADER: i16 = -40;
const ROOM: i16 = -48;
/// Offsets in `struct __sk_buff`: protocol, and whether a tag was stripped.
const PROTOCOL_AT: i16 = 16;
const TAG_IS_TOLD_AT: i16 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn program_and_function_choose_the_same_worker() {
        let mut draw = Draw(1);
        for count in [1, 2, 3, 7, 64] {
            let told = program(Start::Steered, count).expect("the test runs as root");
            let packet = program(Start::Packet, count).expect("the test runs as root");
            let frame = program(Start::Frame, count).expect("the test runs as root");
            let mut seen = vec![0_u32; count.into()];
            for number in 0..4_000 {
                let (bytes, ip_at) = draw.frame();
                let expected = worker(LinkType::Ethernet, &bytes, count.into()) as u32;
                // The kernel tests a program only with packets that are at least as long as a header of their type.
                if bytes.len() >= ip_at + V6_LEN {
                    let said = bpf::run(told.as_fd(), &bytes).expect("it runs");
                    assert_eq!(said, expected, "told, frame {number} of {count}: {bytes:02x?}");
                }
                // A header in front replaces the one that the kernel removes before such a program runs.
                let run = |program: &OwnedFd, rest: &[u8]| {
                    let behind = [&[2; TYPE_AT], &[0x88, 0xB5][..], rest].concat();
                    bpf::run(program.as_fd(), &behind).expect("it runs")
                };
                assert_eq!(run(&frame, &bytes), expected, "frame {number} of {count}: {bytes:02x?}");
                let bare = worker(LinkType::Ip, &bytes[ip_at..], count.into()) as u32;
                assert_eq!(run(&packet, &bytes[ip_at..]), bare, "packet {number} of {count}: {bytes:02x?}");
                seen[expected as usize] += 1;
            }
            let (few, many) = (seen.iter().skip(1).min().copied(), seen.iter().skip(1).max().copied());
            assert!(few >= many.map(|many| many / 3), "of {count}: {seen:?}");
        }
    }

    #[test]
    fn both_directions_and_all_fragments_reach_one_worker() {
        let mut draw = Draw(2);
        let mut moved = 0;
        for _ in 0..20_000 {
            let (ends, upper) = (draw.ends(), [draw.next() as u8; 40]);
            for version in [4, 6] {
                let whole = |[one, other]: [End; 2], protocol| ip(version, [one, other], protocol, None, &upper);
                let of = |bytes: Vec<u8>| worker(LinkType::Ip, &bytes, 16);
                let [one, other] = ends;
                let address = |end: End| match version {
                    4 => IpAddr::from(<[u8; 4]>::try_from(&end.address[..4]).expect("four bytes")),
                    _ => IpAddr::from(end.address),
                };
                let connection = ends.map(|end| (address(end), end.port));
                assert_eq!(connection_worker(connection, 16), of(whole(ends, TCP)));
                assert_eq!(of(whole([one, other], TCP)), of(whole([other, one], TCP)));
                let next = End { port: one.port.wrapping_add(1), ..one };
                moved += usize::from(of(whole([one, other], TCP)) != of(whole([next, other], TCP)));
                for protocol in [17, 1, 50, 132] {
                    let datagram = of(whole([one, other], protocol));
                    for fragment in [0, 0x2000, 0x2001, 0x00B9] {
                        assert_eq!(of(ip(version, [one, other], protocol, Some(fragment), &upper)), datagram);
                        assert_eq!(of(ip(version, [other, one], protocol, Some(fragment), &upper)), datagram);
                    }
                }
                let first = of(ip(version, ends, TCP, Some(0x2000), &upper));
                assert_eq!(of(ip(version, ends, TCP, Some(0x00B9), &[0xFF; 40])), first);
            }
        }
        assert!(moved > 30_000, "connections of the same hosts part: {moved} of 40,000 do");
    }

    #[test]
    fn hosts_with_equal_numbers_in_two_networks_are_spread() {
        let mut seen = [0_u32; 4];
        for host in 0..=255 {
            let end =
                |network| End { address: [10, 0, network, host].repeat(4).try_into().expect("16 bytes"), port: 0 };
            seen[worker(LinkType::Ip, &ip(4, [end(1), end(2)], 17, None, &[0; 8]), 4)] += 1;
        }
        assert!(seen.iter().all(|count| (40..100).contains(count)), "{seen:?}");
    }

    /// A sequence of numbers from a seed (Marsaglia 2003, xorshift).
    struct Draw(u64);

    #[derive(Clone, Copy)]
    struct End {
        address: [u8; 16],
        port: u16,
    }

    impl Draw {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
        }

        fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
            choices[self.next() as usize % choices.len()]
        }

        fn ends(&mut self) -> [End; 2] {
            [(); 2].map(|()| End { address: std::array::from_fn(|_| self.next() as u8), port: self.next() as u16 })
        }

        /// Returns a frame, sometimes truncated or damaged, and the offset of its packet.
        fn frame(&mut self) -> (Vec<u8>, usize) {
            let version = self.one_of(&[4, 4, 6, 6, 9]);
            let (any, bits) = (self.next() as u8, self.next() as u16);
            let protocol = self.one_of(&[TCP, TCP, 17, 1, 0, FRAGMENT, 132, any]);
            let fragment = self.one_of(&[None, None, Some(0), Some(0x2000), Some(bits)]);
            let ends = self.ends();
            let mut packet = ip(version, ends, protocol, fragment, &self.next().to_ne_bytes().repeat(6));
            if version == 4 && self.next().is_multiple_of(4) {
                packet[0] = self.next() as u8 & 0x0F | 0x40;
            }
            if self.next().is_multiple_of(8) {
                packet.truncate(1 + self.next() as usize % packet.len());
            }
            let mut frame = vec![2; TYPE_AT];
            for _ in 0..self.one_of(&[0, 0, 0, 1, 2, 3, 4]) {
                frame.extend(self.one_of(&TAGS).to_be_bytes());
                frame.extend((self.next() as u16).to_be_bytes());
            }
            let honest = if version == 6 { IPV6 } else { IPV4 };
            frame.extend(self.one_of(&[honest, honest, honest, honest, 0x0806, IPV4, IPV6]).to_be_bytes());
            let ip_at = frame.len();
            frame.extend(packet);
            (frame, ip_at)
        }
    }

    /// Returns a packet, or the fragment with these bits.
    fn ip(version: u8, [one, other]: [End; 2], protocol: u8, fragment: Option<u16>, upper: &[u8]) -> Vec<u8> {
        let mut packet = match version {
            6 => {
                let next = if fragment.is_some() { FRAGMENT } else { protocol };
                let mut packet = vec![0x60, 0, 0, 0, 0, 48, next, 64];
                packet.extend([one.address, other.address].concat());
                if let Some(bits) = fragment {
                    packet.extend([protocol, 0]);
                    packet.extend(bits.rotate_left(3).to_be_bytes());
                    packet.extend([0, 0, 0, 1]);
                }
                packet
            }
            _ => {
                let mut packet = vec![version << 4 | 5, 0, 0, 68, 0, 1];
                packet.extend(fragment.unwrap_or(0x4000).to_be_bytes());
                packet.extend([64, protocol, 0, 0]);
                packet.extend([&one.address[..4], &other.address[..4]].concat());
                packet
            }
        };
        if fragment.is_none() {
            packet.extend(one.port.to_be_bytes());
            packet.extend(other.port.to_be_bytes());
        }
        packet.extend(upper);
        packet
    }
}
