//! What the laws share: packets built byte by byte, a station to push them through, and a model too simple to be wrong.

#![allow(dead_code, reason = "every file of laws uses its own part of this")]

pub mod model;
pub mod station;
pub mod wire;

/// How many seeds a swarm runs: `WIDELOAD_SEEDS`, or as many as given here.
pub fn seed_count(usual: u64) -> u64 {
    number_from("WIDELOAD_SEEDS").unwrap_or(usual)
}

/// A number from the environment.
pub fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Bytes that differ from place to place and from seed to seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// Calls `visit` with every order of `0..count`.
pub fn each_order(count: usize, visit: &mut impl FnMut(&[usize])) {
    fn place(order: &mut Vec<usize>, at: usize, visit: &mut impl FnMut(&[usize])) {
        if at == order.len() {
            return visit(order);
        }
        for other in at..order.len() {
            order.swap(at, other);
            place(order, at + 1, visit);
            order.swap(at, other);
        }
    }
    place(&mut (0..count).collect(), 0, visit);
}
