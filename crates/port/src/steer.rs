//! A frame in, the number of the worker that takes it out.
//!
//! Both directions of a TCP connection meet at one worker, whichever port they come in by; every other packet goes by its
//! addresses and protocol, and so do all fragments, wherever their ports are. What is no IP goes to the first worker.
//!
//! The kernel shares frames out by a program that is written here by instruction; [`worker`] computes the same number. The
//! number hangs on nothing but the packet: who can choose addresses can choose a worker.

use crate::bpf::{self, Instruction};

use packet::Medium;
use std::io;
use std::os::fd::OwnedFd;

/// The worker, of `count`, that a frame with this in front of its IP packet goes to.
pub fn worker(medium: Medium, frame: &[u8], count: usize) -> usize {
    let key = match medium {
        Medium::Ethernet => behind_tags(frame).and_then(key),
        _ => key(frame),
    };
    key.map_or(0, |key| key.worker(count))
}

/// Does the kernel let this process share frames out by a program?
///
/// # Errors
/// Why not, and what to do.
pub fn allowed() -> io::Result<()> {
    program(Start::Packet, 2).map(drop)
}

/// What a packet is steered by.
struct Key {
    /// Address and port of both ends; the port is 0 where it does not count.
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

/// The packet behind an Ethernet header and its tags.
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

/// As the machine reads them; none where the packet ends before.
fn ports(packet: &[u8], at: usize) -> [u16; 2] {
    match packet.get(at..at + 4) {
        Some(&[a, b, c, d]) => [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])],
        _ => [0; 2],
    }
}

fn word(header: &[u8], at: usize) -> u32 {
    header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// What the kernel's program finds where its frame starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// An IP packet: on a TUN device, and on an interface without link headers.
    Packet,
    /// What stands behind the Ethernet header, whose type is told beside, and a first tag too: at a packet socket.
    Told,
    /// An Ethernet frame: on a TAP device.
    Frame,
}

/// The program that gives the number of a worker, of `count`, for each frame.
///
/// # Errors
/// The kernel does not take it.
pub(crate) fn program(start: Start, count: u16) -> io::Result<OwnedFd> {
    let instructions = Draft::of(start, count).assembled();
    bpf::load(bpf::Kind::Filter, 0, &instructions)
        .map_err(|refusal| refusal.about("cannot share frames out by a program of ours"))
}

/// A program in the making: jumps go to places that have a name.
#[derive(Default)]
struct Draft {
    steps: Vec<[i64; 5]>,
    jumps: Vec<(usize, &'static str)>,
    places: Vec<(&'static str, usize)>,
}

impl Draft {
    fn of(start: Start, count: u16) -> Draft {
        let mut draft = Draft::default();
        draft.copy(CONTEXT, R1);
        draft.find_packet(start);
        draft.key_v4();
        draft.hash(1, V4_SOURCE_AT as i16, count);
        draft.key_v6();
        draft.hash(ADDRESS_WORDS as i16, V6_SOURCE_AT as i16, count);
        draft.place("none");
        draft.set(R0, 0);
        draft.exit();
        draft
    }

    /// Where the packet starts goes into [`AT`]; goes on at `v4` or `v6`.
    fn find_packet(&mut self, start: Start) {
        match start {
            Start::Packet => {
                self.set(AT, 0);
                self.load(0, ROOM, 1);
                self.jump(IF_OTHER, R0, 0, "none");
                self.load_byte(R1, ROOM);
                self.shift_right(R1, 4);
                self.jump(IF_EQUAL, R1, 4, "v4");
                self.jump(IF_EQUAL, R1, 6, "v6");
                return self.go("none");
            }
            Start::Told => {
                self.set(AT, 0);
                self.step([LOAD_WORD, R1, CONTEXT, PROTOCOL_AT, 0]);
                // A tag that is told beside is one of the three.
                self.step([LOAD_WORD, R2, CONTEXT, TAG_IS_TOLD_AT, 0]);
                self.tell_type("tag");
                self.jump(IF_OTHER, R2, 0, "second");
            }
            Start::Frame => {
                self.set(AT, TYPE_AT as i64 + 2);
                self.load(-2, ROOM, 2);
                self.jump(IF_OTHER, R0, 0, "none");
                self.load_half(R1, ROOM);
                self.tell_type("tag");
            }
        }
        for [place, next] in [["first", "to second"], ["second", "to third"], ["third", "too many"]] {
            self.place(place);
            // A tag and the type behind it.
            self.load(0, ROOM, TAG_LEN as i64);
            self.jump(IF_OTHER, R0, 0, "none");
            self.add(AT, TAG_LEN as i64);
            self.load_half(R1, ROOM + 2);
            self.tell_type(next);
        }
        self.go("none");
    }

    /// Goes where a type leads; on at `tag`, which is next, where it is a tag's.
    fn tell_type(&mut self, tag: &'static str) {
        self.jump(IF_EQUAL, R1, network_order(IPV4), "v4");
        self.jump(IF_EQUAL, R1, network_order(IPV6), "v6");
        TAGS.iter().for_each(|ether_type| self.jump(IF_EQUAL, R1, network_order(*ether_type), tag));
        self.go("none");
        self.place(tag);
    }

    /// Header, ports and protocol of an IPv4 packet.
    fn key_v4(&mut self) {
        self.place("v4");
        self.load(0, HEADER, V4_LEN as i64);
        self.jump(IF_OTHER, R0, 0, "none");
        self.load_byte(R1, HEADER);
        self.copy(R2, R1);
        self.shift_right(R2, 4);
        self.jump(IF_OTHER, R2, 4, "none");
        self.mask(R1, 0x0F);
        self.jump(IF_LESS, R1, V4_LEN as i64 / 4, "none");
        self.shift_left(R1, 2);
        self.step([ADD_REGISTER, AT, R1, 0, 0]);
        self.put_word(ROOM, 0);
        self.load_byte(UPPER, HEADER + 9);
        self.jump(IF_OTHER, UPPER, i64::from(TCP), "hash v4");
        self.load_half(R1, HEADER + 6);
        self.mask(R1, network_order(FRAGMENT_BITS));
        self.jump(IF_OTHER, R1, 0, "hash v4");
        // Where there are no ports, it writes zeros.
        self.load(0, ROOM, 4);
        self.place("hash v4");
    }

    /// Header, ports and protocol of an IPv6 packet.
    fn key_v6(&mut self) {
        self.place("v6");
        self.load(0, HEADER, V6_LEN as i64);
        self.jump(IF_OTHER, R0, 0, "none");
        self.load_byte(R1, HEADER);
        self.shift_right(R1, 4);
        self.jump(IF_OTHER, R1, 6, "none");
        self.load_byte(UPPER, HEADER + 6);
        self.put_word(ROOM, 0);
        self.jump(IF_EQUAL, UPPER, i64::from(FRAGMENT), "fragment");
        self.jump(IF_OTHER, UPPER, i64::from(TCP), "hash v6");
        self.load(V6_LEN as i64, ROOM, 4);
        self.go("hash v6");
        self.place("fragment");
        self.load(V6_LEN as i64, ROOM, 1);
        self.load_byte(UPPER, ROOM);
        self.put_word(ROOM, 0);
        self.place("hash v6");
    }

    /// What [`Key::worker`] does, and the end.
    fn hash(&mut self, word_count: i16, source_at: i16, count: u16) {
        self.set_wide(R4, FACTOR);
        for (sum, port_at, from) in [(R1, 0, source_at), (R2, 2, source_at + 4 * word_count)] {
            self.load_half(sum, ROOM + port_at);
            self.step([MULTIPLY, sum, R4, 0, 0]);
            for index in 0..word_count {
                self.step([LOAD_WORD, R3, R10, i64::from(HEADER + from + 4 * index), 0]);
                self.step([XOR, sum, R3, 0, 0]);
                self.stir(sum);
            }
        }
        self.step([ADD_REGISTER, R1, R2, 0, 0]);
        self.step([ADD_REGISTER, R1, UPPER, 0, 0]);
        self.stir(R1);
        self.step([MULTIPLY, R1, R4, 0, 0]);
        self.shift_right(R1, 32);
        self.step([MULTIPLY_BY, R1, 0, 0, i64::from(count)]);
        self.shift_right(R1, 32);
        self.copy(R0, R1);
        self.exit();
    }

    fn stir(&mut self, sum: i64) {
        self.step([MULTIPLY, sum, R4, 0, 0]);
        self.copy(R3, sum);
        self.shift_right(R3, 32);
        self.step([XOR, sum, R3, 0, 0]);
    }

    /// Copies bytes that stand `beyond` [`AT`] to the stack; register 0 is 0 where they are all there.
    fn load(&mut self, beyond: i64, room: i16, len: i64) {
        self.copy(R1, CONTEXT);
        self.copy(R2, AT);
        self.add(R2, beyond);
        self.copy(R3, R10);
        self.add(R3, room.into());
        self.set(R4, len);
        self.step([CALL, 0, 0, 0, LOAD_BYTES]);
    }

    fn load_byte(&mut self, to: i64, room: i16) {
        self.step([0x71, to, R10, room.into(), 0]);
    }

    fn load_half(&mut self, to: i64, room: i16) {
        self.step([0x69, to, R10, room.into(), 0]);
    }

    fn put_word(&mut self, room: i16, value: i64) {
        self.step([0x62, R10, 0, room.into(), value]);
    }

    fn set(&mut self, to: i64, value: i64) {
        self.step([0xb7, to, 0, 0, value]);
    }

    fn set_wide(&mut self, to: i64, value: u64) {
        self.step([0x18, to, 0, 0, i64::from(value as u32 as i32)]);
        self.step([0, 0, 0, 0, i64::from((value >> 32) as u32 as i32)]);
    }

    fn copy(&mut self, to: i64, from: i64) {
        self.step([0xbf, to, from, 0, 0]);
    }

    fn add(&mut self, to: i64, value: i64) {
        self.step([0x07, to, 0, 0, value]);
    }

    fn mask(&mut self, to: i64, bits: i64) {
        self.step([0x57, to, 0, 0, bits]);
    }

    fn shift_left(&mut self, to: i64, by: i64) {
        self.step([0x67, to, 0, 0, by]);
    }

    fn shift_right(&mut self, to: i64, by: i64) {
        self.step([0x77, to, 0, 0, by]);
    }

    fn exit(&mut self) {
        self.step([0x95, 0, 0, 0, 0]);
    }

    fn go(&mut self, place: &'static str) {
        self.jump(0x05, 0, 0, place);
    }

    fn jump(&mut self, comparison: i64, register: i64, value: i64, place: &'static str) {
        self.jumps.push((self.steps.len(), place));
        self.step([comparison, register, 0, 0, value]);
    }

    fn place(&mut self, name: &'static str) {
        self.places.push((name, self.steps.len()));
    }

    fn step(&mut self, step: [i64; 5]) {
        self.steps.push(step);
    }

    fn assembled(mut self) -> Vec<Instruction> {
        for (at, place) in &self.jumps {
            let (_, to) = self.places.iter().find(|(name, _)| name == place).expect("a jump stays in its program");
            self.steps[*at][3] = *to as i64 - (*at as i64 + 1);
        }
        let written = |[code, to, from, offset, value]: &[i64; 5]| {
            bpf::instruction(*code as u8, *to as u8, *from as u8, *offset as i16, *value as i32)
        };
        self.steps.iter().map(written).collect()
    }
}

/// As the kernel and a frame have it.
fn network_order(half: u16) -> i64 {
    i64::from(half.to_be())
}

/// An odd number whose bits are those of the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Words of the longest address.
const ADDRESS_WORDS: usize = 4;
/// Where an Ethernet header has its type.
const TYPE_AT: usize = 12;
const TAG_LEN: usize = 4;
/// Tags that are looked behind, as `packet` has it.
const TAGS_MAX: usize = 3;
const TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const V4_LEN: usize = 20;
const V4_SOURCE_AT: usize = 12;
const V6_LEN: usize = 40;
const V6_SOURCE_AT: usize = 8;
/// More fragments, and the offset (RFC 791 section 3.1).
const FRAGMENT_BITS: u16 = 0x3FFF;
const TCP: u8 = 6;
/// The Fragment header of IPv6.
const FRAGMENT: u8 = 44;

/// Registers: answer and arguments; then what outlives a call.
const R0: i64 = 0;
const R1: i64 = 1;
const R2: i64 = 2;
const R3: i64 = 3;
const R4: i64 = 4;
const CONTEXT: i64 = 6;
const AT: i64 = 7;
const UPPER: i64 = 8;
const R10: i64 = 10;
/// Places on the stack: the IP header, and four bytes of whatever is looked at.
const HEADER: i16 = -40;
const ROOM: i16 = -48;
const LOAD_WORD: i64 = 0x61;
const ADD_REGISTER: i64 = 0x0f;
const MULTIPLY: i64 = 0x2f;
const MULTIPLY_BY: i64 = 0x27;
const XOR: i64 = 0xaf;
const CALL: i64 = 0x85;
/// BPF_JMP with BPF_JEQ, BPF_JNE, BPF_JLT.
const IF_EQUAL: i64 = 0x15;
const IF_OTHER: i64 = 0x55;
const IF_LESS: i64 = 0xa5;
/// BPF_FUNC_skb_load_bytes.
const LOAD_BYTES: i64 = 26;
/// Where `struct __sk_buff` has its protocol, and whether a tag was set apart.
const PROTOCOL_AT: i64 = 16;
const TAG_IS_TOLD_AT: i64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_kernels_program_and_the_function_name_the_same_worker_for_every_frame() {
        let mut draw = Draw(1);
        for count in [1, 2, 3, 7, 64] {
            let told = program(Start::Told, count).expect("the test runs as root");
            let packet = program(Start::Packet, count).expect("the test runs as root");
            let frame = program(Start::Frame, count).expect("the test runs as root");
            let mut seen = vec![0_u32; count.into()];
            for number in 0..4_000 {
                let (bytes, ip_at) = draw.frame();
                let expected = worker(Medium::Ethernet, &bytes, count.into()) as u32;
                // The kernel makes no packet that is shorter than a header of its type for a program to look at.
                if bytes.len() >= ip_at + V6_LEN {
                    let said = bpf::run(told.as_fd(), &bytes).expect("it runs");
                    assert_eq!(said, expected, "told, frame {number} of {count}: {bytes:02x?}");
                }
                // A header in front stands for what the kernel takes off before such a program runs.
                let run = |program: &OwnedFd, rest: &[u8]| {
                    let behind = [&[2; TYPE_AT], &[0x88, 0xB5][..], rest].concat();
                    bpf::run(program.as_fd(), &behind).expect("it runs")
                };
                assert_eq!(run(&frame, &bytes), expected, "frame {number} of {count}: {bytes:02x?}");
                let bare = worker(Medium::Ip, &bytes[ip_at..], count.into()) as u32;
                assert_eq!(run(&packet, &bytes[ip_at..]), bare, "packet {number} of {count}: {bytes:02x?}");
                seen[expected as usize] += 1;
            }
            let (few, many) = (seen.iter().skip(1).min().copied(), seen.iter().skip(1).max().copied());
            assert!(few >= many.map(|many| many / 3), "of {count}: {seen:?}");
        }
    }

    #[test]
    fn both_directions_of_a_connection_and_all_fragments_of_a_datagram_meet() {
        let mut draw = Draw(2);
        let mut moved = 0;
        for _ in 0..20_000 {
            let (ends, upper) = (draw.ends(), [draw.next() as u8; 40]);
            for version in [4, 6] {
                let whole = |[one, other]: [End; 2], protocol| ip(version, [one, other], protocol, None, &upper);
                let of = |bytes: Vec<u8>| worker(Medium::Ip, &bytes, 16);
                let [one, other] = ends;
                assert_eq!(of(whole([one, other], TCP)), of(whole([other, one], TCP)));
                let next = End { port: one.port.wrapping_add(1), ..one };
                moved += usize::from(of(whole([one, other], TCP)) != of(whole([next, other], TCP)));
                for protocol in [17, 1, 50, 132] {
                    let datagram = of(whole([one, other], protocol));
                    for piece in [0, 0x2000, 0x2001, 0x00B9] {
                        assert_eq!(of(ip(version, [one, other], protocol, Some(piece), &upper)), datagram);
                        assert_eq!(of(ip(version, [other, one], protocol, Some(piece), &upper)), datagram);
                    }
                }
                let first = of(ip(version, ends, TCP, Some(0x2000), &upper));
                assert_eq!(of(ip(version, ends, TCP, Some(0x00B9), &[0xFF; 40])), first);
            }
        }
        assert!(moved > 30_000, "connections of the same hosts part: {moved} of 40,000 do");
    }

    #[test]
    fn hosts_of_two_networks_that_are_numbered_alike_spread() {
        let mut seen = [0_u32; 4];
        for host in 0..=255 {
            let end =
                |network| End { address: [10, 0, network, host].repeat(4).try_into().expect("16 bytes"), port: 0 };
            seen[worker(Medium::Ip, &ip(4, [end(1), end(2)], 17, None, &[0; 8]), 4)] += 1;
        }
        assert!(seen.iter().all(|count| (40..100).contains(count)), "{seen:?}");
    }

    /// Numbers from a seed (Marsaglia 2003, xorshift).
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

        /// A frame, now and then cut short or damaged, and where its packet starts.
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

    /// A packet, or the fragment with these bits.
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
