//! Any bytes -> nothing, or a panic if a law is broken.
//!
//! Each target reads its bytes in its own way: as a frame, a file, a text, or a program of events. It asserts laws,
//! beyond the absence of panics. `tests/corpus.rs` runs the inputs in `corpus/` and mutations of them; `hunt/` runs
//! a coverage-guided fuzzer.
#![forbid(unsafe_code)]

mod captures;
mod connections;
mod frames;
mod input;
mod stages;
mod texts;

/// A target: its name, which is that of its folder in `corpus/`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 5] = [
    ("frames", frames::run),
    ("stages", stages::run),
    ("captures", captures::run),
    ("texts", texts::run),
    ("connections", connections::run),
];
