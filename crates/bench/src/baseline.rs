//! Instruction counts of the baseline and of now -> the workloads that cost more.
//!
//! Instructions are repeatable where nanoseconds are not, so a small increase shows. `guard.rs` counts them and
//! decides about the exit status.

use crate::grid::{Extent, workloads};
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Instructions per packet, keyed by function and workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline(BTreeMap<(String, String), f64>);

/// A workload's instruction count in the baseline and now.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The name of the workload.
    pub name: String,
    /// Instructions per packet in the baseline.
    pub before: f64,
    /// Instructions per packet now.
    pub now: f64,
}

impl Baseline {
    /// Parses a table of function, workload and instructions.
    ///
    /// # Errors
    /// The first line that cannot be parsed.
    pub fn parse(table: &str) -> Result<Baseline, String> {
        let mut baseline = Baseline::default();
        for line in table.lines().skip(1).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split('\t').collect();
            let [function, workload, count] = words[..] else {
                return Err(format!("expected three columns separated by tabs: {line}"));
            };
            let count = count.parse().map_err(|_| format!("not an instruction count: {line}"))?;
            baseline.0.insert((function.to_string(), workload.to_string()), count);
        }
        Ok(baseline)
    }

    /// Adds the instruction count of a workload.
    pub fn insert(&mut self, workload: &Workload, count: f64) {
        self.0.insert(name(workload), count);
    }

    /// Returns the baseline's instructions per packet for this workload; `None` if the baseline lacks it.
    pub fn get(&self, workload: &Workload) -> Option<f64> {
        self.0.get(&name(workload)).copied()
    }

    /// Compares a new count with the baseline's; `None` if the baseline lacks the workload.
    pub fn change(&self, workload: &Workload, now: f64) -> Option<Change> {
        let (function, rest) = name(workload);
        Some(Change { name: format!("{function}: {rest}"), before: self.get(workload)?, now })
    }

    /// Formats the baseline as a tab-separated table.
    pub fn to_table(&self) -> String {
        let mut table = "function\tworkload\tinstructions\n".to_string();
        for ((function, workload), count) in &self.0 {
            writeln!(table, "{function}\t{workload}\t{count:.2}").expect("a string takes all");
        }
        table
    }

    /// Returns the workloads of the grid for which the baseline has a count.
    pub fn workloads(&self) -> Vec<Workload> {
        workloads(Extent::Full, &[]).into_iter().filter(|workload| self.get(workload).is_some()).collect()
    }

    /// Returns the baseline's entries that match no workload of the grid.
    pub fn strangers(&self) -> Vec<String> {
        let known: Vec<(String, String)> = workloads(Extent::Full, &[]).iter().map(name).collect();
        let strangers = self.0.keys().filter(|entry| !known.contains(entry));
        strangers.map(|(function, workload)| format!("{function}: {workload}")).collect()
    }
}

impl Change {
    /// Whether the count rose by more than `ALLOWED`.
    pub fn is_too_much(&self) -> bool {
        self.now > self.before * (1.0 + ALLOWED)
    }

    /// Whether the cost fell so far that the baseline should be rewritten.
    pub fn is_much_less(&self) -> bool {
        self.now < self.before * (1.0 - ALLOWED)
    }

    /// Returns the change in percent; positive if the cost rose.
    pub fn percent(&self) -> f64 {
        (self.now / self.before - 1.0) * 100.0
    }
}

fn name(workload: &Workload) -> (String, String) {
    (workload.function.to_string(), workload.to_string())
}

/// Largest allowed increase of an instruction count, as a share of the baseline's.
const ALLOWED: f64 = 0.03;
/// Path of the committed baseline.
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.tsv");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_three_percent_more_is_allowed() {
        let workload = workloads(Extent::Quick, &[]).remove(0);
        let mut baseline = Baseline::default();
        baseline.insert(&workload, 200.0);
        let verdict = |now| {
            let change = baseline.change(&workload, now).unwrap();
            (change.is_too_much(), change.is_much_less())
        };
        assert_eq!(verdict(206.0), (false, false));
        assert_eq!(verdict(206.1), (true, false));
        assert_eq!(verdict(193.0), (false, true));
        assert_eq!(baseline.change(&workloads(Extent::Quick, &[])[1], 1.0), None);
    }

    #[test]
    fn a_table_reads_back() {
        let mut baseline = Baseline::default();
        workloads(Extent::Quick, &[])
            .iter()
            .zip(1..)
            .for_each(|(one, count)| baseline.insert(one, f64::from(count)));
        assert_eq!(Baseline::parse(&baseline.to_table()), Ok(baseline.clone()));
        assert_eq!(baseline.workloads().len(), workloads(Extent::Quick, &[]).len());
        assert!(Baseline::parse("head\nparse\tall\n").is_err());
        assert!(Baseline::parse("head\nparse\tall\tmany\n").is_err());
        assert_eq!(Baseline::parse("head\nparse\tall\t7.5\n").unwrap().strangers(), ["parse: all"]);
    }

    #[test]
    fn the_committed_baseline_names_workloads_of_the_grid() {
        let baseline = Baseline::parse(&std::fs::read_to_string(PATH).unwrap()).unwrap();
        assert_eq!(baseline.strangers(), [""; 0]);
        assert!(baseline.workloads().len() >= 10);
    }
}
