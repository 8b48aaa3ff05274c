//! Function, work and recipe -> a name for people, and arguments for harnesses.
//!
//! A workload is the unit of comparison: every system gets the same packets and does the same work.

use crate::recipe::{ArrivalOrder, Flows, Fragments, Hold, Recipe};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One line of the grid: a function, an extent of work, and packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The function to measure.
    pub function: Function,
    /// The extent of the work that is timed.
    pub work: Work,
    /// The packets.
    pub recipe: Recipe,
    /// Place of the packets when a section starts.
    pub warmth: Warmth,
}

/// Functions that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// Fragments to datagrams.
    Reassemble,
    /// Fragments in a device's memory to datagrams, with payloads received in their places.
    Place,
    /// Fragments to longer fragments.
    Merge,
    /// Packets to fragments.
    Fragment,
    /// Segments to GSO packets.
    Coalesce,
    /// GSO packets to segments.
    Segment,
    /// Byte strings to their checksums.
    Checksum,
    /// Packets to their parsed headers.
    Parse,
    /// Held and allocated memory; measured for Wideload alone.
    Memory,
}

/// Extent of the work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// From a parsed packet to a decision and a place; the payload is not copied.
    Header,
    /// From bytes to a contiguous result.
    Contiguous,
    /// From bytes to a contiguous result, with transport checksums verified or written.
    Checksummed,
}

/// Place of a section's packets when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// In the CPU's caches, as far as the preparation left them there. The section is in memory only once.
    Hot,
    /// Outside all caches. Copies of the section are used in turn, enough of them to exceed the largest cache.
    Cold,
}

impl Workload {
    /// Creates a workload with hot packets.
    pub fn new(function: Function, work: Work, recipe: Recipe) -> Workload {
        Workload { function, work, recipe, warmth: Warmth::Hot }
    }

    /// Returns this workload with cold packets.
    pub fn cold(self) -> Workload {
        Workload { warmth: Warmth::Cold, ..self }
    }

    /// Returns the arguments of the harness, except the file's path.
    pub fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("function", self.function.to_string()), ("work", self.work.to_string())];
        keys.extend(self.recipe.keys());
        keys
    }

    /// Returns the arguments, and further facts that a row of `systems.tsv` may test.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.keys();
        facts.extend(self.recipe.facts());
        facts
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.recipe)?;
        match (self.function, self.warmth) {
            (Function::Checksum | Function::Parse, _) => return Ok(()),
            (_, Warmth::Cold) => f.write_str(", cold")?,
            (_, Warmth::Hot) => {}
        }
        write!(f, ": {}", self.work.what(self.function))
    }
}

impl Function {
    /// All functions, in the order of the tables.
    pub const ALL: [Function; 8] = [
        Function::Reassemble,
        Function::Place,
        Function::Merge,
        Function::Fragment,
        Function::Coalesce,
        Function::Segment,
        Function::Checksum,
        Function::Parse,
    ];

    /// Returns the unit of the results, such as `fragment in` for nanoseconds per input fragment.
    pub fn unit(self) -> &'static str {
        match self {
            Function::Reassemble | Function::Place | Function::Merge => "fragment in",
            Function::Fragment => "fragment out",
            Function::Segment => "segment out",
            Function::Coalesce => "segment in",
            Function::Checksum | Function::Parse | Function::Memory => "packet",
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Function::Reassemble => "reassemble",
            Function::Place => "place",
            Function::Merge => "merge",
            Function::Fragment => "fragment",
            Function::Coalesce => "coalesce",
            Function::Segment => "segment",
            Function::Checksum => "checksum",
            Function::Parse => "parse",
            Function::Memory => "memory",
        })
    }
}

impl Work {
    /// All extents of work.
    pub const ALL: [Work; 3] = [Work::Header, Work::Contiguous, Work::Checksummed];

    fn what(self, function: Function) -> &'static str {
        match (self, function) {
            (Work::Header, Function::Fragment | Function::Segment) => "headers, payload in place",
            (Work::Header, _) => "header work only",
            (Work::Contiguous, _) => "contiguous",
            (Work::Checksummed, Function::Fragment | Function::Segment) => "both checksums",
            (Work::Checksummed, _) => "contiguous and checksummed",
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Header => "header",
            Work::Contiguous => "contiguous",
            Work::Checksummed => "checksummed",
        })
    }
}

/// Returns IPv4 datagrams in fragments with 1,480 bytes of payload.
pub fn fragments(fragments: usize, datagrams: usize, order: ArrivalOrder) -> Fragments {
    Fragments { version: 4, fragments, datagrams, order, fragment_len: 1_480 }
}

/// Returns TCP flows with 1,448 bytes per segment, in bursts of 64.
pub fn flows(flows: usize, hold: Hold) -> Flows {
    let len_max = if flows > 10_000 { 9_000 } else { 65_535 };
    let per_flow = match hold {
        Hold::Burst => (512 / flows).max(8),
        Hold::Section if len_max < 65_535 => 6,
        // A run of 45 segments makes the longest packet.
        Hold::Section => 45 * 12usize.div_ceil(flows),
    };
    Flows { flows, per_flow, burst: 64, hold, order: ArrivalOrder::Forward, len_max, payload_len: 1_448 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_a_text_and_keys() {
        let recipe = Recipe::Fragments(fragments(6, 64, ArrivalOrder::Random));
        let workload = Workload::new(Function::Reassemble, Work::Contiguous, recipe).cold();
        assert_eq!(workload.to_string(), "6 fragments x 64 datagrams, random, IPv4, cold: contiguous");
        let keys = workload.keys();
        for expected in [("function", "reassemble"), ("work", "contiguous"), ("datagrams", "64"), ("pieces", "6")] {
            assert!(keys.contains(&(expected.0, expected.1.to_string())), "{keys:?}");
        }
    }
}
