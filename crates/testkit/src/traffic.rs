//! A seed -> packets of several flows, with unusual senders and faulty networks.
//!
//! Randomised tests feed the packets to engine and reference model, and compare the results.

use crate::build::{Spec, Summed, tcp, udp};
use crate::fields::*;
use crate::random::stream;
use crate::read::ReadPacket;
use crate::sum::{add, field_at};
use core::time::Duration;
use fastrand::Rng;

/// One packet in transit.
#[derive(Clone, Debug)]
pub struct SentPacket {
    /// Arrival time since the start of the test.
    pub at: Duration,
    /// Number of the packet's flow, from 0.
    pub flow: usize,
    /// The description of the packet.
    pub spec: Spec,
}

/// Parameters of the generated traffic.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Maximum length of packets that must not be segmented, in bytes.
    pub mtu: usize,
    /// Maximum payload length of a TCP segment, in bytes.
    pub segment_max: usize,
    /// Whether the network drops, repeats and reorders packets.
    pub disorder: bool,
    /// Whether some retransmissions carry other bytes than the original.
    pub forgery: bool,
}

/// Frequencies of a sender's actions, in percent of its packets.
#[derive(Clone, Copy, Debug)]
struct Habits {
    push: u8,
    short: u8,
    mark: u8,
    class: u8,
    hops: u8,
    window: u8,
    ack: u8,
    echo: u8,
    rare_flags: u8,
    off: u8,
    half: u8,
    all_ones: u8,
    bare: u8,
    options: u8,
    stamp: u8,
    stamp_back: u8,
    fragment: u8,
    repeat: u8,
    header: u8,
    extension: u8,
    jump: u8,
}

/// Generates the packets of a seed, in order of arrival.
pub fn draw(seed: u64, wishes: Wishes) -> Vec<SentPacket> {
    let mut random = Rng::with_seed(seed);
    let flow_count = *random.choice(&[1, 1, 2, 3, 6]).unwrap();
    let mut flows: Vec<std::vec::IntoIter<Spec>> = (0..flow_count)
        .map(|flow| {
            let mut specs = conversation(&mut random, flow, wishes);
            if wishes.disorder {
                disturb(&mut random, &mut specs);
            }
            specs.into_iter()
        })
        .collect();
    let burst = *random.choice(&[1, 2, 20]).unwrap();
    let pace = *random.choice(&[0, 1, 12, 12, 90, 700, 3_000]).unwrap();
    let silence = *random.choice(&[0, 0, 0, 3]).unwrap();
    let mut now = Duration::from_nanos(random.u64(..1 << 40));
    let mut sent = Vec::new();
    while !flows.is_empty() {
        let index = random.usize(..flows.len());
        for _ in 0..random.usize(1..=burst) {
            let Some(spec) = flows[index].next() else {
                drop(flows.swap_remove(index));
                break;
            };
            let flow = usize::from(spec.ports[0]);
            now += Duration::from_micros(random.u64(0..=2 * pace));
            if random.u8(..100) < silence {
                now += *random
                    .choice(&[
                        Duration::from_micros(900),
                        Duration::from_micros(20_000),
                        Duration::from_secs(1),
                        Duration::from_secs(61),
                    ])
                    .unwrap();
            }
            sent.push(SentPacket { at: now, flow, spec });
        }
    }
    sent
}

impl Habits {
    fn draw(random: &mut Rng) -> Habits {
        let calm = random.u8(..3) == 0;
        let mut often = || if calm { 0 } else { *random.choice(&[0, 0, 0, 0, 3, 25]).unwrap() };
        let mut habits = Habits {
            push: often(),
            short: often(),
            mark: often(),
            class: often(),
            hops: often(),
            window: often(),
            ack: often(),
            echo: often(),
            rare_flags: often(),
            off: often(),
            half: often(),
            all_ones: often(),
            bare: often(),
            options: often(),
            stamp: often(),
            stamp_back: often(),
            fragment: often(),
            repeat: often(),
            header: often(),
            extension: often(),
            jump: often(),
        };
        if random.u8(..4) > 0 {
            habits.stamp_back = 0;
        }
        habits
    }
}

/// Generates the packets of one flow, in the order of transmission.
fn conversation(random: &mut Rng, flow: u16, wishes: Wishes) -> Vec<Spec> {
    let version = *random.choice(&VERSIONS).unwrap();
    let is_udp = random.u8(..8) == 0;
    let habits = Habits::draw(random);
    let sizes: Vec<usize> = [1, 7, 100, 536, 1_448, 1_448, 1_460, 3_000, 8_948, 30_000, 64_000]
        .into_iter()
        .filter(|size| *size <= wishes.segment_max)
        .collect();
    let segment_len = *random.choice(&sizes).unwrap();
    let count = random.usize(
        1..=if segment_len > 10_000 {
            4
        } else if segment_len > 2_000 {
            14
        } else {
            60
        },
    );
    let mut spec = if is_udp { udp(version) } else { tcp(version) };
    spec = spec.between(1 + u32::from(random.u8(..2)), 9);
    spec.ports = [100 + flow, *random.choice(&[80, 443]).unwrap()];
    spec.vlans = Some(random.choice([vec![], vec![], vec![7], vec![0xE007, 8]]).unwrap());
    spec.ip_flags = *random.choice(&[0, DF, DF, DF | RESERVED]).unwrap();
    spec.tos = *random.choice(&[0, 2, 0xB9]).unwrap();
    spec.id = *random.choice(&[0, 7, 0xFFF8]).unwrap();
    if version == 6 && random.bool() {
        spec.extensions = draw_extensions(random, wishes.mtu);
    }
    let start = *random.choice(&[1_000, u32::MAX - 3_000, u32::MAX / 2, random.clone().u32(..)]).unwrap();
    let layout = random.u8(..5);
    let (mut value, mut echo) = (*random.choice(&[9, u32::MAX - 4]).unwrap(), 77u32);
    let id_habit = random.u8(..4);
    let mut bytes: Vec<u8> = Vec::new();
    let mut specs = Vec::new();
    if !is_udp && random.u8(..3) > 0 {
        let options = vec![2, 4, 5, 180, 1, 3, 3, 7];
        specs.push(Spec { seq: start.wrapping_sub(1), flags: SYN, options, payload: Vec::new(), ..spec.clone() });
    }
    while specs.len() < count {
        let mut one = spec.clone();
        match id_habit {
            0 => {}
            1 => spec.id = random.u16(..).into(),
            _ => spec.id = spec.id.wrapping_add(1),
        }
        if happens(random, 2) {
            spec.id = spec.id.wrapping_add(1);
        }
        // Changes that also apply to all later packets.
        if happens(random, habits.class) {
            spec.tos = random.u8(..);
        }
        if happens(random, habits.hops) {
            spec.ttl ^= 1;
        }
        if happens(random, habits.window) {
            spec.window = *random.choice(&[0, 10, 500, 65_535]).unwrap();
        }
        if happens(random, habits.ack) {
            spec.ack = spec.ack.wrapping_add(random.u32(1..3_000));
        }
        if happens(random, habits.header) {
            match random.u8(..4) {
                0 => spec.ip_flags ^= DF,
                1 => spec.reserved ^= 1,
                2 => spec.urgent ^= 5,
                _ => spec.flags ^= ECE,
            }
        }
        if happens(random, habits.extension) && version == 6 {
            spec.extensions = draw_extensions(random, wishes.mtu);
        }
        if happens(random, habits.stamp) {
            value = value.wrapping_add(random.u32(0..9));
            echo = echo.wrapping_add(random.u32(0..9));
        }
        if happens(random, habits.stamp_back) {
            value = value.wrapping_sub(1);
        }
        if happens(random, habits.jump) && bytes.len() > 2 {
            // A part of the stream was lost in transit.
            let more = random.usize(1..2 * segment_len.min(2_000) + 2);
            (bytes.len()..bytes.len() + more).for_each(|at| bytes.push(stream(at as u64)));
        }
        one = Spec { id: one.id, ..spec.clone() };
        if !is_udp {
            one.options = stamps(layout, value, echo);
        }
        // Changes that apply to this packet only.
        if happens(random, habits.mark) {
            one.tos |= 3;
        }
        if happens(random, habits.push) {
            one.flags |= PSH;
        }
        if happens(random, habits.echo) {
            one.flags |= ECE;
        }
        if happens(random, habits.rare_flags) {
            one.flags |= *random.choice(&[SYN, RST, URG, CWR, FIN, FIN | PSH]).unwrap();
            if random.u8(..9) == 0 {
                one.flags &= !ACK;
            }
        }
        if happens(random, habits.options) && !is_udp {
            one.options = odd_options(random, value, echo);
        }
        if happens(random, habits.options) && version == 4 && random.bool() {
            one.ip_options = vec![1, 1, 1, 0];
        }
        let mut len = segment_len;
        if happens(random, habits.short) {
            len = random.usize(1..=segment_len);
        }
        if happens(random, habits.short) && random.u8(..8) == 0 {
            len = random.usize(1..=segment_len * 2).min(wishes.segment_max);
        }
        let is_bare = happens(random, habits.bare);
        if is_bare {
            len = 0;
        }
        let headers_len = one.ip_len();
        let may_be_long = ReadPacket::of_frame(&one.bytes()).may_be_segmented() && !is_udp;
        let room = if may_be_long { 65_535 } else { wishes.mtu };
        len = len.min(room - headers_len);
        // Position in the stream: mostly at its end.
        let mut at = bytes.len();
        let is_again = !is_udp && at > 0 && happens(random, habits.repeat);
        if is_again {
            at = random.usize(..at);
            if random.u8(..4) == 0 {
                // A keep-alive.
                (at, len) = (bytes.len() - 1, random.usize(..=1));
            }
        }
        for place in bytes.len()..at + len {
            bytes.push(stream(place as u64 ^ u64::from(flow) << 40));
        }
        one.payload = bytes[at..at + len].to_vec();
        one.seq = start.wrapping_add(at as u32);
        if is_again && wishes.forgery && random.bool() {
            one.payload.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        if happens(random, habits.off) {
            one.sum = Summed::Off(*random.choice(&[1, 0x100, random.clone().u16(1..0xFFFF)]).unwrap());
        } else if happens(random, habits.half) {
            one.sum = Summed::Half;
        } else if happens(random, habits.all_ones) && !is_again && len >= 2 && one.transport_len() % 2 == 0 {
            let right = word(&one.upper(), field_at(one.protocol).expect("a transport has one"));
            let word = add(word(&one.payload, 0), right).to_be_bytes();
            one.payload[..2].copy_from_slice(&word);
            bytes[at..at + 2].copy_from_slice(&word);
            one.sum = *random.choice(&[Summed::AllOnes, Summed::Right]).unwrap();
        } else if is_udp && random.u8(..9) == 0 {
            one.sum = Summed::None;
        }
        if happens(random, habits.fragment) {
            specs.push(fragment(&one));
        }
        one.padding = *random.choice(&[0, 0, 0, 5]).unwrap();
        specs.push(one);
    }
    if !is_udp && random.bool() {
        let seq = start.wrapping_add(bytes.len() as u32);
        let flags = *random.choice(&[FIN | ACK, RST, FIN | PSH | ACK]).unwrap();
        let payload =
            if flags == RST { Vec::new() } else { (0..random.usize(..9)).map(|at| stream(at as u64)).collect() };
        specs.push(Spec { seq, flags, payload, ..spec });
    }
    specs
}

fn happens(random: &mut Rng, percent: u8) -> bool {
    random.u8(..100) < percent
}

/// Applies network faults to the packets of a flow: loss, repetition and reordering.
fn disturb(random: &mut Rng, specs: &mut Vec<Spec>) {
    let often = |random: &mut Rng| *random.choice(&[0, 0, 0, 2, 20]).unwrap();
    let (loss, repeats, swaps) = (often(random), often(random), often(random));
    specs.retain(|_| random.u8(..100) >= loss);
    let mut index = 0;
    while index < specs.len() {
        if random.u8(..100) < repeats {
            let to = (index + random.usize(1..4)).min(specs.len());
            specs.insert(to, specs[index].clone());
        }
        if random.u8(..100) < swaps {
            let to = (index + random.usize(1..6)).min(specs.len() - 1);
            let late = specs.remove(index);
            specs.insert(to, late);
        }
        index += 1;
    }
}

/// Generates a fragment between the hosts of packet `like`, at offset 0 or later.
fn fragment(like: &Spec) -> Spec {
    let payload = like.payload[..like.payload.len().min(100)].to_vec();
    let one = Spec { payload, options: Vec::new(), sum: Summed::Right, padding: 0, ..like.clone() };
    let fragment = match (like.version(), like.seq % 2) {
        (_, 0) => (0, true),
        (4, _) => (24, false),
        // An atomic fragment.
        _ => (0, false),
    };
    Spec { ip_flags: 0, fragment: Some(fragment), ..one }
}

/// A TCP timestamp option in one of several layouts.
fn stamps(layout: u8, value: u32, echo: u32) -> Vec<u8> {
    let stamps = [&[8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat();
    match layout {
        0 => Vec::new(),
        1 | 2 => [&[1, 1], &stamps[..]].concat(),
        3 => [&[1], &stamps[..], &[1]].concat(),
        _ => [&stamps[..], &[0, 9]].concat(),
    }
}

/// TCP options that prevent coalescing, or permit it only among segments with equal options.
fn odd_options(random: &mut Rng, value: u32, echo: u32) -> Vec<u8> {
    let stamps = [&[8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat();
    match random.u8(..10) {
        // Selective acknowledgements.
        0 => [&[1, 1], &stamps[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat(),
        // An experiment (RFC 4727).
        1 => vec![253, 4, 1, 2],
        // Signatures (RFC 2385, RFC 5925).
        2 => [&[19, 18][..], &[7; 16], &[1, 1]].concat(),
        3 => vec![29, 4, 1, 1],
        // Impossible lengths.
        4 => vec![8, 0, 1, 1],
        5 => vec![1, 1, 1, 8],
        6 => vec![8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        // Two timestamp options.
        7 => [&stamps[..], &stamps[..]].concat(),
        // Another layout.
        8 => [&stamps[..], &[1, 1]].concat(),
        _ => vec![1, 1, 1, 0],
    }
}

fn draw_extensions(random: &mut Rng, mtu: usize) -> Vec<(u8, Vec<u8>)> {
    let padding = |random: &mut Rng| vec![0, 0, 1, 4, 0, 0, 0, random.u8(..2)];
    match random.u8(..6) {
        0 | 1 => vec![(60, padding(random))],
        2 => vec![(0, padding(random))],
        3 => vec![(0, padding(random)), (43, vec![0, 0, 253, 0, 0, 0, 0, 0]), (60, padding(random))],
        // Packets with an Authentication header are never segmented. So they are generated only if no packet
        // exceeds the MTU.
        4 if mtu == 65_535 => vec![(AUTHENTICATION, vec![0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 3, 4, 5, 6])],
        _ => Vec::new(),
    }
}
