//! The environment variable `TARGET`, and bytes from a coverage-guided fuzzer -> inputs that break a law.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("TARGET").unwrap_or_default();
    let found = fuzz::TARGETS.iter().find(|(name, _)| *name == wanted);
    let names: Vec<_> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    found.unwrap_or_else(|| panic!("TARGET={wanted}: it is one of {names:?}")).1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
