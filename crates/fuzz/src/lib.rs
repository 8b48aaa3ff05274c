//! Any bytes in, nothing out; a panic where a law is broken.
//!
//! Each target reads its bytes as something of its own: a frame, a file, a text, or a program of what happens one after another.
//! What must hold is asserted, not only that nothing panics. `tests/corpus.rs` tries what is kept in `corpus/`, and changes of
//! it; `hunt/` has a coverage-guided fuzzer look for more.
#![forbid(unsafe_code)]

mod captures;
mod connections;
mod frames;
mod input;
mod stages;
mod texts;

/// A target: its name, which is that of its folder in `corpus/`, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 5] = [
    ("frames", frames::run),
    ("stages", stages::run),
    ("captures", captures::run),
    ("texts", texts::run),
    ("connections", connections::run),
];
