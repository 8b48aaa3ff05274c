//! Interleaved fragments -> the number of packets that leave, for each fragment policy and memory limit (C19,
//! cB12).
//!
//!     cargo run --release -p wideload-engine --example merging

use std::time::Duration;
use wideload_engine::packet::{Ingress, LinkType, Pool, Sum, Time};
use wideload_engine::{
    Batch, Egress as Leaving, FragmentPolicy, Full, Gateway, GatewaySettings, Position, Prefixes, Secret, Secrets,
    SideSettings,
};

/// The fragment policies that are compared.
#[derive(Clone, Copy)]
enum Policy {
    Merge(Full),
    Hop,
    Destination,
}

fn main() {
    println!("{SHOWN}");
    for (mtu, link) in [(1_500, "1,500"), (9_000, "9,000")] {
        println!("\nToward a link of {link} bytes");
        for [left, right] in POLICIES {
            println!("\n{:>14}{:<41}{}", "", name(left), name(right));
            println!("{:>4}{:>7}   {}     {}", "k", "came", buffers_in_a_row(), buffers_in_a_row());
            for datagrams in COUNTS {
                let row = |policy| {
                    COUNTS.map(|buffers| format!("{:>6}", left_count(policy, mtu, datagrams, buffers))).concat()
                };
                println!("{datagrams:>4}{:>7}   {}     {}", datagrams * fragment_count(), row(left), row(right));
            }
        }
    }
}

/// Returns the number of packets that leave, for the fragments of `datagrams` datagrams, with memory for `buffers`
/// runs.
fn left_count(policy: Policy, mtu: u16, datagrams: usize, buffers: usize) -> u64 {
    let mut gateway = gateway(policy, mtu, buffers * run_charge(mtu));
    let mut now = Time::ZERO;
    for start in (0..LEN - HEADER_LEN).step_by(FRAGMENT_LEN - HEADER_LEN) {
        for host in 0..datagrams {
            now = now + Duration::from_micros(1);
            gateway.expire(now);
            push(&mut gateway, now, &fragment(start, host));
            drain(&mut gateway);
        }
    }
    gateway.flush(now);
    drain(&mut gateway);
    gateway.check(0).expect("what came has left");
    gateway.ledger(0).forwarded.packets
}

fn push(gateway: &mut Gateway, now: Time, frame: &[u8]) {
    let mut batch = Batch::default();
    let (mut places, pool) = gateway.places(0);
    assert!(batch.receive(frame, LinkType::Ip, Ingress(0), places.as_mut(), pool), "the pool is large");
    gateway.push(now, 0, &mut batch);
}

fn drain(gateway: &mut Gateway) {
    while let Some(leaving) = gateway.next(0) {
        let Leaving::Forward(packet) = leaving else { panic!("only fragments came, and nobody is answered") };
        gateway.recycle(0, packet);
    }
}

/// Creates a gateway with this policy and a memory limit of `bytes` bytes.
fn gateway(policy: Policy, mtu: u16, bytes: usize) -> Gateway {
    let (policies, mtu, merge_full) = match policy {
        Policy::Merge(full) => (FragmentPolicy::Merge, mtu, full),
        Policy::Hop => (FragmentPolicy::ReassembleHop, mtu, Full::Pass),
        // Datagrams for the host itself have no next link.
        Policy::Destination => (FragmentPolicy::Reassemble, u16::MAX, Full::Pass),
    };
    let policies = Prefixes::new(policies);
    let side = SideSettings { memory: bytes, policies, merge_full, ..SideSettings::new(mtu, Position::Transit) };
    Gateway::new(&GatewaySettings::one(side), Secrets::both(Secret::new(1)), || Pool::new(256 << 20))
}

/// Returns the charge of one run, in bytes.
fn run_charge(mtu: u16) -> usize {
    let mut gateway = gateway(Policy::Merge(Full::Pass), mtu, 1 << 20);
    push(&mut gateway, Time::ZERO, &fragment(0, 0));
    gateway.side(0).aggregation.charged()
}

/// Returns the fragment of a host's datagram that starts at the offset `start`, in bytes.
fn fragment(start: usize, host: usize) -> Vec<u8> {
    let end = (start + FRAGMENT_LEN - HEADER_LEN).min(LEN - HEADER_LEN);
    let flags = if end < LEN - HEADER_LEN { 0x2000 } else { 0 } | (start / 8) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 192, 0, 2, host as u8, 198, 51, 100, 1];
    bytes[2..4].copy_from_slice(&((HEADER_LEN + end - start) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&flags.to_be_bytes());
    let sum = Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.resize(HEADER_LEN + end - start, host as u8);
    bytes
}

fn fragment_count() -> usize {
    (LEN - HEADER_LEN).div_ceil(FRAGMENT_LEN - HEADER_LEN)
}

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Merge(Full::Pass) => "graceful; when full, newcomers pass",
        Policy::Merge(Full::Evict) => "graceful; when full, the oldest leaves",
        Policy::Hop => "whole, hop by hop, and cut again",
        Policy::Destination => "whole, for the host itself",
    }
}

fn buffers_in_a_row() -> String {
    COUNTS.map(|buffers| format!("{:>6}", format!("B={buffers}"))).concat()
}

const SHOWN: &str = "\
Datagrams of 9,000 bytes come in 19 fragments of up to 508, the fragments of k datagrams in turns. Each table says how
many packets leave, with memory for B of the longest packets that the link takes: graceful joining keeps at least B/k of
what it can gain where newcomers pass, and hardly anything where they push out the oldest.";
const POLICIES: [[Policy; 2]; 2] =
    [[Policy::Merge(Full::Pass), Policy::Merge(Full::Evict)], [Policy::Hop, Policy::Destination]];
/// Numbers of concurrent datagrams, and numbers of buffers.
const COUNTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Lengths in bytes: of a datagram, of its fragments (`FRAGMENT_LEN`, a plateau of RFC 1191), and of their header
/// (`HEADER_LEN`).
const LEN: usize = 9_000;
/// See [`LEN`].
const FRAGMENT_LEN: usize = 508;
/// See [`LEN`].
const HEADER_LEN: usize = 20;
