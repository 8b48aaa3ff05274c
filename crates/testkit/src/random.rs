//! Seeds and lengths -> test bytes; counts -> permutations; properties -> tests with many seeds.
//!
//! All randomness of tests comes from seeds, so that each failure can be repeated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// `len` pseudo-random bytes from this seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// `len` bytes in which groups of eight at different offsets very probably differ.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(0x9E37_79B1).to_be_bytes()[0]).collect()
}

/// The byte at position `at` of the test stream. Nearby positions have different bytes.
pub fn stream(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Calls `visit` with every permutation of `0..count`.
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

/// Every permutation of `0..count`.
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = Vec::new();
    each_order(count, &mut |order| orders.push(order.to_vec()));
    orders
}

/// Number of seeds for a randomised test: the environment variable `WIDELOAD_SEEDS`, otherwise `usual`.
pub fn seed_count(usual: u64) -> u64 {
    number_from("WIDELOAD_SEEDS").unwrap_or(usual)
}

/// The number in environment variable `name`; `None` if the variable is unset.
pub fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Tests a property with the seeds from 0 on, and returns the number of seeds. `WIDELOAD_SEEDS` in the environment
/// sets the number; the default is `usual`. `WIDELOAD_SEED` selects a single seed.
///
/// If the property fails, the command that repeats the failure is printed. `of` is the part of the command behind
/// `cargo test`.
pub fn each_seed(of: &str, usual: u64, mut law: impl FnMut(u64)) -> u64 {
    let seeds = match number_from("WIDELOAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..seed_count(usual),
    };
    let count = seeds.end - seeds.start;
    for seed in seeds {
        if let Err(broken) = catch_unwind(AssertUnwindSafe(|| law(seed))) {
            eprintln!("repeat with: WIDELOAD_SEED={seed} cargo test {of}");
            resume_unwind(broken);
        }
    }
    count
}
