//! Arbitrary bytes -> no result, or a panic if a property is violated.
//!
//! Each target interprets its input as a frame, a file, a text, or a program of events. Targets check properties of
//! the results, in addition to the absence of panics. `tests/corpus.rs` runs the inputs in `corpus/` and mutations
//! of these inputs. A coverage-guided fuzzer is in `hunt/`.
#![forbid(unsafe_code)]

mod captures;
mod connections;
mod frames;
mod input;
mod intake;
mod stages;
mod texts;

/// A fuzz target: its name and its function. The target's folder in `corpus/` has the same name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: [Target; 5] = [
    ("frames", frames::run),
    ("stages", stages::run),
    ("captures", captures::run),
    ("texts", texts::run),
    ("connections", connections::run),
];
