//! The inputs in `corpus/` and mutations of them -> no broken law.
//!
//! `WIDELOAD_SEEDS=<count>` runs more mutations of each. Inputs that broke a law stay in `corpus/<target>-broken/`
//! after the law holds again.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[test]
fn frames_break_no_law() {
    replay("frames");
}

#[test]
fn stages_break_no_law() {
    replay("stages");
}

#[test]
fn captures_break_no_law() {
    replay("captures");
}

#[test]
fn texts_break_no_law() {
    replay("texts");
}

#[test]
fn connections_break_no_law() {
    replay("connections");
}

fn replay(name: &str) {
    let (_, target) = fuzz::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut kept = kept(name);
    assert!(kept.len() >= 20, "{name}: only {} files are kept", kept.len());
    kept.extend(self::kept(&format!("{name}-broken")));
    let changes = std::env::var("WIDELOAD_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(10);
    for (file, bytes) in &kept {
        attempt(target, bytes, &format!("{name}/{file}"));
        for seed in 0..changes {
            attempt(target, &changed(bytes, &kept, seed), &format!("{name}/{file} changed by seed {seed}"));
        }
    }
}

/// Returns the files of a folder, by name. No file if the folder is missing.
fn kept(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut kept: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    kept.sort();
    kept
}

fn attempt(target: &fn(&[u8]), bytes: &[u8], what: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    assert!(outcome.is_ok(), "{what} broke a law; the bytes: {bytes:02x?}");
}

/// Returns the bytes with a few changes: bytes are changed, removed or inserted, or the end is replaced by another
/// file's.
fn changed(bytes: &[u8], kept: &[(String, Vec<u8>)], seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ bytes.len() as u64);
    let mut bytes = bytes.to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=bytes.len());
        match random.u8(..5) {
            0 if at < bytes.len() => bytes[at] = random.u8(..),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            2 => bytes.truncate(at),
            3 => bytes.splice(at..at, (0..random.usize(1..9)).map(|_| random.u8(..))).for_each(drop),
            _ => {
                let (_, other) = &kept[random.usize(..kept.len())];
                bytes.truncate(at);
                bytes.extend(&other[random.usize(..=other.len())..]);
            }
        }
    }
    bytes
}
