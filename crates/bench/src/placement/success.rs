//! Hosts that send in turn -> the share of their datagrams placed completely, beside the formula of kB3.
//!
//! Predictions fail where another host's datagram follows. The table shows how often, for this implementation and
//! for the formula.

use super::{Device, NOW, Receiver, fragment};
use crate::harness::Pages;
use crate::section::Section;
use engine::PlacementMode;
use fastrand::Rng;
use packet::LinkType;

/// Prints the table of shares.
pub fn show() {
    println!(
        "\n{HOSTS} hosts in turn; after each frame, another host continues with probability q. Columns: the share of datagrams"
    );
    println!(
        "of n fragments placed completely after the first one; and the share of fragments placed if headers are read first."
    );
    println!("{:>4}{:>6}{:>12}{:>10}{:>16}", "n", "q", "(1-q)^(n-1)", "blind", "match-directed");
    for fragments in [3, 7, 44] {
        for percent in [0, 1, 5, 10, 20, 50] {
            let q = f64::from(percent) / 100.0;
            let formula = (1.0 - q).powi(fragments as i32 - 1);
            let (frames, firsts) = turns(fragments, q);
            let device = Device::new(&frames, 1, LinkType::Ethernet, Pages::Small);
            let (blind, directed) = (blind(device.same_memory(), &firsts, fragments), directed(device));
            println!("{fragments:>4}{percent:>5}%{formula:>12.3}{blind:>10.3}{directed:>16.3}");
        }
    }
}

/// Returns the share of datagrams whose fragments after the first are all placed.
fn blind(device: Device, firsts: &[bool], fragments: usize) -> f64 {
    let mut receiver = Receiver::new(device, PlacementMode::Always, Pages::Small);
    let (mut tried, mut hit, mut next) = (0u32, 0u32, 0);
    while next + fragments <= firsts.len() {
        receiver.receive_plainly(NOW);
        next += 1;
        if firsts[next - 1] {
            let before = receiver.placement_stats().hits;
            receiver.receive(NOW, fragments - 1, |_| {});
            next += fragments - 1;
            tried += 1;
            hit += u32::from(receiver.placement_stats().hits - before == fragments as u64 - 1);
        }
    }
    f64::from(hit) / f64::from(tried.max(1))
}

/// Returns the share of fragments that are placed if each header is parsed before its place is chosen. With this
/// method, the order of fragments has no influence.
fn directed(device: Device) -> f64 {
    let count = device.len();
    let mut receiver = Receiver::new(device, PlacementMode::Always, Pages::Small);
    (0..count).for_each(|_| receiver.receive_seen(NOW));
    receiver.placement_stats().hits as f64 / count as f64
}

/// Generates frames of hosts that take turns, and for each frame, whether it starts a datagram. `q` is the chance
/// that the next frame is from another host.
fn turns(fragments: usize, q: f64) -> (Section, Vec<bool>) {
    let mut random = Rng::with_seed(fragments as u64);
    let mut hosts = [(0u32, 0usize); HOSTS];
    let mut speaking = 0;
    let (mut frames, mut firsts) = (Section::default(), Vec::new());
    for _ in 0..DATAGRAMS * fragments {
        let (id, index) = &mut hosts[speaking];
        frames.push(&fragment(speaking as u8, *id, *index, fragments * STEP, STEP));
        firsts.push(*index == 0);
        *index += 1;
        if *index == fragments {
            (*id, *index) = ((*id + 1) % (1 << 16), 0);
        }
        if random.f64() < q {
            speaking = (speaking + random.usize(1..HOSTS)) % HOSTS;
        }
    }
    (frames, firsts)
}

/// Number of hosts that take turns.
const HOSTS: usize = 8;
/// Number of datagrams sent. In rows with frequent turns, only about a third of them are evaluated.
const DATAGRAMS: usize = 8_000;
/// Payload of a fragment, in bytes. The length has no influence on the shares.
const STEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_rate_matches_the_formula() {
        for (fragments, q) in [(3, 0.05_f64), (7, 0.1), (7, 0.2)] {
            let formula = (1.0 - q).powi(fragments as i32 - 1);
            let (frames, firsts) = turns(fragments, q);
            let device = Device::new(&frames, 1, LinkType::Ethernet, Pages::Small);
            let rate = blind(device.same_memory(), &firsts, fragments);
            // Within 2 points (kB3), and the random error of some thousand datagrams.
            assert!((rate - formula).abs() < 0.02, "{fragments} fragments, {q}: {rate}, not {formula}");
            assert!(directed(device) > 0.99);
        }
    }
}
