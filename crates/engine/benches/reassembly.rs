//! Fragments in, nanoseconds a fragment out: by pieces of a datagram, datagrams in flight, and order of arrival.
//!
//! `cargo bench -p wideload-engine` prints the table. Timed: the engine from a parsed packet to the sealed datagram that a
//! port would take, with the copy of every payload to its place; frames are put into buffers and parsed outside. With a
//! number as argument, one case runs that often and nothing is timed, for an instruction counter around it.
#![allow(clippy::disallowed_methods, missing_docs)]

use packet::{Frame, Ingress, Medium, Packet, Pool, Sum, Time};
use std::time::Instant;
use wideload_engine::{Late, Limits, Narrowing, Output, Reassembler, Role, Secret, Side, Widening};

fn main() {
    let rounds = std::env::args().find_map(|arg| arg.parse::<usize>().ok());
    if let Some(rounds) = rounds {
        let mut bench = Bench::new();
        let frames = frames(6, 64, Order::Forward);
        for _ in 0..rounds {
            bench.round(&frames);
        }
        return;
    }
    println!(
        "{:<10}{:>8}{:>10}{:>10}{:>10}   ns a fragment, median of {ROUNDS}",
        "order", "pieces", "1", "64", "1,024"
    );
    for order in [Order::Forward, Order::Reverse, Order::Shuffled] {
        for pieces in [2, 6, 44] {
            let figures = [1, 64, 1_024].map(|datagrams| median(pieces, datagrams, order));
            let [one, some, many] = figures.map(|figure| format!("{figure:.1}"));
            println!("{:<10}{pieces:>8}{one:>10}{some:>10}{many:>10}", format!("{order:?}"));
        }
    }
}

fn median(pieces: usize, datagrams: usize, order: Order) -> f64 {
    let mut bench = Bench::new();
    let frames = frames(pieces, datagrams, order);
    // A section of the clock is worth its reading from a few hundred fragments on.
    let repeats = 512usize.div_ceil(frames.len());
    let mut figures: Vec<f64> =
        (0..ROUNDS).map(|_| (0..repeats).map(|_| bench.round(&frames)).sum::<f64>() / repeats as f64).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

struct Bench {
    side: Side,
    out: Output,
    packets: Vec<Packet>,
}

impl Bench {
    fn new() -> Bench {
        let secret = Secret::new(7);
        let limits = Limits { bytes: 256 << 20, patience: None };
        Bench {
            side: Side {
                widening: Widening {
                    reassembler: Some(Reassembler::new(limits, Late::Retire, secret)),
                    ..Widening::default()
                },
                narrowing: Narrowing::new(u16::MAX, Role::Transit),
            },
            out: Output::new(Pool::new(1 << 30), None),
            packets: Vec::new(),
        }
    }

    /// Nanoseconds a fragment for all of `frames`, each of which must find its datagram.
    fn round(&mut self, frames: &[Vec<u8>]) -> f64 {
        for frame in frames {
            self.packets
                .push(Frame::copy(frame, Medium::Ip, Ingress(0), &mut self.out.pool).expect("frames parse"));
        }
        let started = Instant::now();
        for packet in self.packets.drain(..) {
            self.side.push(Time::ZERO, packet, &mut self.out);
            while let Some(datagram) = self.out.next() {
                self.out.done(datagram);
            }
        }
        let taken = started.elapsed();
        self.side.check(&self.out).expect("the law holds");
        assert_eq!(self.side.widening.held().1, 0, "every datagram became whole");
        taken.as_nanos() as f64 / frames.len() as f64
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Forward,
    Reverse,
    Shuffled,
}

/// The fragments of `datagrams` datagrams, one piece of each in turn.
fn frames(pieces: usize, datagrams: usize, order: Order) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = (0..pieces).collect();
    let mut frames = Vec::new();
    match order {
        Order::Forward => {}
        Order::Reverse => places.reverse(),
        // Odd ones first, from both ends: no piece continues the one before it.
        Order::Shuffled => places.sort_by_key(|place| (place % 2 == 0, place * 7 % pieces)),
    }
    for place in &places {
        for datagram in 0..datagrams {
            frames.push(fragment(datagram, *place, pieces));
        }
    }
    frames
}

fn fragment(datagram: usize, place: usize, pieces: usize) -> Vec<u8> {
    let more = if place + 1 < pieces { 0x2000 } else { 0 };
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 0, 198, 51, 100, 1];
    packet[2..4].copy_from_slice(&(20 + PAYLOAD_LEN as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&(datagram as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&(more | (place * PAYLOAD_LEN / 8) as u16).to_be_bytes());
    packet[15] = (datagram % 64) as u8;
    let checksum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.resize(20 + PAYLOAD_LEN, 0xA5);
    packet
}

/// What fits into an Ethernet frame, in bytes.
const PAYLOAD_LEN: usize = 1_480;
const ROUNDS: usize = 45;
