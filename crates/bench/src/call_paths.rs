//! Workload -> the functions that its packets go through, from callgrind's call counts.
//!
//! Only a build without inlining shows every call; `docs/lab.md` has the command. Functions of the standard library
//! are left out. Calls to them, and calls that they make, are not counted.

use crate::instructions::{self, FEW, MANY};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Number of calls in one profile, by caller and called function.
#[derive(Debug, Default, PartialEq)]
pub struct Calls(BTreeMap<(String, String), u64>);

/// The mean call path of one packet.
#[derive(Debug, Default, PartialEq)]
pub struct CallPath {
    /// Calls per packet, by function of Wideload's crates.
    pub calls: BTreeMap<String, f64>,
    /// Calls per packet from one Wideload crate to another.
    pub crossings: f64,
}

/// Traces a packet's path: the additional calls of four more sections, divided by their packets.
///
/// # Errors
/// Valgrind is missing, or the harness failed under it.
pub fn of_packet(harness: &Command, packets: usize, folder: &Path, timeout: Duration) -> Result<CallPath, String> {
    let few = instructions::profile(harness, FEW, folder, timeout)?;
    let many = instructions::profile(harness, MANY, folder, timeout)?;
    let (few, many) = (Calls::parse(&few), Calls::parse(&many));
    Ok(many.way_beyond(&few, (MANY - FEW) as f64 * packets as f64))
}

impl Calls {
    /// Parses a profile in callgrind's format.
    pub fn parse(profile: &str) -> Calls {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut calls = Calls::default();
        let (mut caller, mut callee) = ("", "");
        for line in profile.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            match key {
                "fn" => caller = name(&mut names, value),
                "cfn" => callee = name(&mut names, value),
                "calls" => {
                    let count = value.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                    *calls.0.entry((plain(caller), plain(callee))).or_default() += count;
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns the calls that this profile has in addition to `fewer`, per packet.
    fn way_beyond(&self, fewer: &Calls, packets: f64) -> CallPath {
        let mut way = CallPath::default();
        for (call, count) in &self.0 {
            let more = count.saturating_sub(fewer.0.get(call).copied().unwrap_or(0)) as f64 / packets;
            let (caller, callee) = call;
            let Some(of) = crate_of(callee) else { continue };
            *way.calls.entry(callee.clone()).or_default() += more;
            if crate_of(caller).is_some_and(|caller| caller != of) {
                way.crossings += more;
            }
        }
        way
    }
}

impl CallPath {
    /// Returns the functions with at least `USUAL` calls per packet, and their calls per packet.
    pub fn functions(&self) -> impl Iterator<Item = (&str, f64)> {
        let usual = self.calls.iter().filter(|(_, count)| **count >= USUAL);
        usual.map(|(name, count)| (name.as_str(), *count))
    }

    /// Returns the calls per packet of all functions whose names end with `end`.
    pub fn count_of(&self, end: &str) -> f64 {
        self.calls.iter().filter(|(name, _)| name.ends_with(end)).fold(0.0, |sum, (_, count)| sum + count)
    }

    /// Returns the crates on the path, and the number of functions of each.
    pub fn crates(&self) -> BTreeMap<&str, usize> {
        let mut crates = BTreeMap::new();
        let names: BTreeSet<&str> = self.functions().map(|(name, _)| name).collect();
        for of in names.into_iter().filter_map(crate_of) {
            *crates.entry(of).or_default() += 1;
        }
        crates
    }
}

/// Resolves a name. Callgrind writes a name only at its first use, with a number: `(7) name`. Later it writes the
/// number alone.
fn name<'a>(names: &mut BTreeMap<&'a str, &'a str>, value: &'a str) -> &'a str {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(value).copied().unwrap_or(value),
    }
}

/// Removes the hash and the mark of a recursion from a name.
fn plain(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or(name);
    let cut = name.rfind("::h").filter(|at| name.len() == at + 3 + HASH_LEN).unwrap_or(name.len());
    name[..cut].to_string()
}

/// Returns the Wideload crate of a function; `None` for functions of other crates.
fn crate_of(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once(PREFIX).filter(|(before, _)| before.chars().all(|it| "<&_".contains(it)))?;
    rest.split("::").next()
}

/// Prefix of Wideload's crate names.
const PREFIX: &str = "wideload_";
/// Length of the hash at a name's end.
const HASH_LEN: usize = 16;
/// Fewest calls per packet for a function to belong to the path.
const USUAL: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_packet_and_the_crates_that_they_cross() {
        let profile = |count: u64| {
            format!(
                "fn=(1) bench::timed_section\ncfn=(2) wideload_engine::push::h0123456789abcdef\n\
                 calls={count} 7\n3 40\nfn=(2)\ncfn=(3) <wideload_packet::Packet>::ip\ncalls={} 0\n1 2\n\
                 cfn=(4) core::map\ncalls=9 0\n1 2\nfn=(4)\ncfn=(5) <T as wideload_packet::Trait>::call\ncalls=5 1\n",
                2 * count
            )
        };
        let way = Calls::parse(&profile(12)).way_beyond(&Calls::parse(&profile(2)), 10.0);
        let calls: Vec<_> = way.functions().collect();
        assert_eq!(calls, [("<wideload_packet::Packet>::ip", 2.0), ("wideload_engine::push", 1.0)]);
        assert_eq!(way.crossings, 2.0);
        assert_eq!(way.crates(), BTreeMap::from([("engine", 1), ("packet", 1)]));
        assert_eq!(way.count_of("::ip"), 2.0);
    }
}
