//! Datagrams whose fragments come in turns in, packets that leave out: what joining gains with how much memory (C19, cB12).
//!
//!     cargo run --release -p wideload-engine --example joining

use std::time::Duration;
use wideload_engine::packet::{Frame, Ingress, Medium, Pool, Sum, Time};
use wideload_engine::{
    Full, Join, JoinLimits, Joiner, Late, Limits, Narrowing, Output, Prefixes, Reassembler, Role, RunsBy, Secret,
    Side, Widening,
};

/// Who joins.
#[derive(Clone, Copy)]
enum Way {
    Graceful(Full),
    Hop,
    Destination,
}

fn main() {
    println!("{SHOWN}");
    for (mtu, link) in [(1_500, "1,500"), (9_000, "9,000")] {
        println!("\nToward a link of {link} bytes");
        for [left, right] in WAYS {
            println!("\n{:>14}{:<41}{}", "", name(left), name(right));
            println!("{:>4}{:>7}   {}     {}", "k", "came", buffers_in_a_row(), buffers_in_a_row());
            for datagrams in COUNTS {
                let row =
                    |way| COUNTS.map(|buffers| format!("{:>6}", left_count(way, mtu, datagrams, buffers))).concat();
                println!("{datagrams:>4}{:>7}   {}     {}", datagrams * piece_count(), row(left), row(right));
            }
        }
    }
}

/// Packets that leave, of so many datagrams, with memory for so many runs.
fn left_count(way: Way, mtu: u16, datagrams: usize, buffers: usize) -> u64 {
    let mut side = side(way, mtu, buffers * run_charge(mtu));
    let mut out = Output::new(Pool::new(256 << 20), None);
    let mut now = Time::ZERO;
    for start in (0..LEN - HEADER_LEN).step_by(PIECE_LEN - HEADER_LEN) {
        for host in 0..datagrams {
            now = now + Duration::from_micros(1);
            side.expire(now, &mut out);
            let packet = Frame::copy(&fragment(start, host), Medium::Ip, Ingress(0), &mut out.pool);
            side.push(now, packet.expect("it is an IPv4 packet, and the pool is large"), &mut out);
            drain(&mut out);
        }
    }
    side.flush(now, &mut out);
    drain(&mut out);
    side.check(&out).expect("what came has left");
    out.ledger.forwarded.packets
}

fn drain(out: &mut Output) {
    while let Some(packet) = out.next() {
        out.done(packet);
    }
}

/// A router's side that joins in this way within so many bytes.
fn side(way: Way, mtu: u16, bytes: usize) -> Side {
    let mut widening = Widening::default();
    let mut narrowing = Narrowing::new(mtu, Role::Transit);
    let limits = Limits { bytes, patience: None };
    let reassembler = Reassembler::new(limits, Late::Release { mtu }, Secret::new(1));
    match way {
        Way::Graceful(full) => {
            widening.joins = Prefixes::new(Join::Graceful);
            widening.joiner = Some(joiner(mtu, bytes, full));
        }
        Way::Hop => {
            widening.joins = Prefixes::new(Join::Hop);
            widening.reassembler = Some(reassembler);
        }
        Way::Destination => {
            widening.reassembler = Some(reassembler);
            // No link follows.
            narrowing.mtu = u16::MAX;
        }
    }
    Side { widening, narrowing }
}

fn joiner(mtu: u16, bytes: usize, full: Full) -> Joiner {
    let limits = JoinLimits { bytes, patience: Duration::from_millis(10), full, runs: RunsBy::Datagram };
    Joiner::new(limits, mtu, Secret::new(1))
}

/// What one run is charged.
fn run_charge(mtu: u16) -> usize {
    let mut joiner = joiner(mtu, 1 << 20, Full::Pass);
    let mut out = Output::new(Pool::new(1 << 20), None);
    let packet = Frame::copy(&fragment(0, 0), Medium::Ip, Ingress(0), &mut out.pool);
    joiner.push(Time::ZERO, packet.expect("it is an IPv4 packet"), &mut out);
    joiner.charged()
}

/// The fragment of a host's datagram whose payload starts there.
fn fragment(start: usize, host: usize) -> Vec<u8> {
    let end = (start + PIECE_LEN - HEADER_LEN).min(LEN - HEADER_LEN);
    let flags = if end < LEN - HEADER_LEN { 0x2000 } else { 0 } | (start / 8) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 192, 0, 2, host as u8, 198, 51, 100, 1];
    bytes[2..4].copy_from_slice(&((HEADER_LEN + end - start) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&flags.to_be_bytes());
    let sum = Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.resize(HEADER_LEN + end - start, host as u8);
    bytes
}

fn piece_count() -> usize {
    (LEN - HEADER_LEN).div_ceil(PIECE_LEN - HEADER_LEN)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Graceful(Full::Pass) => "graceful; when full, newcomers pass",
        Way::Graceful(Full::Evict) => "graceful; when full, the oldest leaves",
        Way::Hop => "whole, hop by hop, and cut again",
        Way::Destination => "whole, for the host itself",
    }
}

fn buffers_in_a_row() -> String {
    COUNTS.map(|buffers| format!("{:>6}", format!("B={buffers}"))).concat()
}

const SHOWN: &str = "\
Datagrams of 9,000 bytes come in 19 fragments of up to 508, the fragments of k datagrams in turns. Each table says how
many packets leave, with memory for B of the longest packets that the link takes: graceful joining keeps at least B/k of
what it can gain where newcomers pass, and hardly anything where they push out the oldest.";
const WAYS: [[Way; 2]; 2] = [[Way::Graceful(Full::Pass), Way::Graceful(Full::Evict)], [Way::Hop, Way::Destination]];
/// Datagrams at once, and buffers.
const COUNTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// A datagram, its fragments (one of RFC 1191's plateaus) and their header, in bytes.
const LEN: usize = 9_000;
/// See [`LEN`].
const PIECE_LEN: usize = 508;
/// See [`LEN`].
const HEADER_LEN: usize = 20;
