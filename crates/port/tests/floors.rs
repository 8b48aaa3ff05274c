//! Sources in, proofs that no module of `linux`, `offload` or `port` uses one that stands above it out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

#[test]
fn no_two_modules_use_each_other_by_any_way_round() {
    for name in CRATES {
        let uses = uses(name);
        let mut standing = BTreeSet::new();
        while standing.len() < uses.len() {
            let is_next = |used: &BTreeSet<String>| used.is_subset(&standing);
            let next: Vec<_> =
                uses.iter().filter(|(module, used)| !standing.contains(*module) && is_next(used)).collect();
            let left = || uses.iter().filter(|(module, _)| !standing.contains(*module)).collect::<Vec<_>>();
            assert!(!next.is_empty(), "{name}: a circle is among {:?}", left());
            standing.extend(next.into_iter().map(|(module, _)| module.clone()));
        }
    }
}

#[test]
fn a_crate_uses_none_above_it() {
    for (at, name) in CRATES.into_iter().enumerate() {
        for (module, text) in sources(name) {
            for above in &CRATES[at + 1..] {
                assert!(!code(&text).contains(&format!("use {above}::")), "{name}: {module} uses {above}");
            }
        }
    }
}

/// Which modules of a crate the modules of it name in `use`, tests of their own aside. What stands in `lib.rs` is above all.
fn uses(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources(name);
    let used = |module: &str, text: &str| -> BTreeSet<String> {
        let lines = code(text).lines().map(str::trim).filter_map(|line| line.strip_prefix("use "));
        let target = |line: &str| {
            let (from, rest) = line.split_once("::")?;
            let first = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
            let folder = module.rsplit_once('/').map_or("", |(folder, _)| folder);
            match from {
                "crate" => Some(first.to_owned()),
                "super" => Some(format!("{folder}/{first}")),
                _ => None,
            }
        };
        lines.filter_map(target).collect()
    };
    // A folder stands where the highest of its files does: its `mod.rs` uses them all.
    let name_of = |file: &str| file.strip_suffix("/mod").unwrap_or(file).to_owned();
    let inside = |module: &str| -> BTreeSet<String> {
        let front = format!("{module}/");
        sources.keys().filter(|file| file.starts_with(&front) && !file.ends_with("/mod")).cloned().collect()
    };
    let all = sources.iter().filter(|(file, _)| *file != "lib").map(|(file, text)| {
        let mut used = used(file, text);
        if file.ends_with("/mod") {
            used.extend(inside(&name_of(file)));
        }
        (name_of(file), used)
    });
    all.collect()
}

/// The files of a crate, by their paths without the ending.
fn sources(name: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the sources are here") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let file = path.strip_prefix(&root).expect("it is below").with_extension("").display().to_string();
                found.insert(file, fs::read_to_string(&path).expect("it is text"));
            }
        }
    }
    found
}

/// What stands in front of the tests in a file.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// From the lowest on.
const CRATES: [&str; 3] = ["linux", "offload", "port"];
