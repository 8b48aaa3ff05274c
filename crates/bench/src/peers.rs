//! Folders of peers -> their programs and functions.
//!
//! A peer is a program outside the workspace. A peer's folder defines its build and the workloads it can do;
//! `crates/bench/peers/README.md` has the rules.

use crate::workload::Workload;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A function that a peer's program offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Name of the peer's system.
    pub system: String,
    /// Path of the peer's program.
    pub program: PathBuf,
    /// Arguments that select the system within the program.
    pub arguments: Vec<String>,
    function: String,
    work: String,
    conditions: Vec<Condition>,
}

/// A condition on a fact of a workload, such as `pieces<=8`.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    fact: String,
    relation: &'static str,
    value: String,
}

/// Functions of the available peers, and missing parts of peers.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    /// Functions that available peers offer.
    pub offers: Vec<Offer>,
    /// Parts of peers that are missing, with advice.
    pub missing: Vec<String>,
}

impl Peers {
    /// Builds every family of peers into a folder of its own in `target`.
    ///
    /// # Errors
    /// A folder that cannot be read or created.
    pub fn build(
        target: &Path,
        install: bool,
        dpdk: Option<&Path>,
        mut tell: impl FnMut(&str),
    ) -> io::Result<Peers> {
        let mut peers = Peers::default();
        let mut families: Vec<PathBuf> = std::fs::read_dir(FOLDER)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_dir())
            .collect();
        families.sort();
        for family in families {
            let name = family.file_name().unwrap_or_default().to_string_lossy().into_owned();
            tell(&name);
            let target = target.join(&name);
            std::fs::create_dir_all(&target)?;
            let missing = build(&family, &target, install, dpdk);
            // A build that reports missing parts needs no further message.
            let says = !missing.is_empty();
            peers.missing.extend(missing);
            match std::fs::read_to_string(family.join("systems.tsv")) {
                Ok(table) => peers.offer(&name, &table, &target, says),
                Err(error) => peers.missing.push(format!("{name}: systems.tsv: {error}")),
            }
        }
        Ok(peers)
    }

    /// Returns the offers whose conditions this workload meets.
    pub fn of(&self, workload: &Workload) -> Vec<&Offer> {
        let facts = workload.facts();
        self.offers.iter().filter(|offer| offer.takes(workload, &facts)).collect()
    }

    fn offer(&mut self, family: &str, table: &str, target: &Path, is_explained: bool) {
        let is_row = |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("system\t");
        for line in table.lines().filter(is_row) {
            let lacks = match Offer::parse(line, target) {
                Some(offer) if offer.program.exists() => {
                    self.offers.push(offer);
                    continue;
                }
                Some(_) if is_explained => continue,
                Some(offer) => {
                    let program = offer.program.file_name().unwrap_or_default().to_string_lossy();
                    format!("{family}: program {program} was not built")
                }
                None => format!("{family}: systems.tsv: cannot parse: {line}"),
            };
            if !self.missing.contains(&lacks) {
                self.missing.push(lacks);
            }
        }
    }
}

impl Offer {
    fn parse(line: &str, target: &Path) -> Option<Offer> {
        let [system, function, work, condition, command] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let mut words = command.split_whitespace();
        let program = target.join(words.next()?);
        let conditions = condition.split([' ', ',']).filter(|word| !matches!(*word, "-" | ""));
        Some(Offer {
            system: system.to_string(),
            program,
            arguments: words.map(String::from).collect(),
            function: function.to_string(),
            work: work.to_string(),
            conditions: conditions.map(Condition::parse).collect::<Option<Vec<_>>>()?,
        })
    }

    fn takes(&self, workload: &Workload, facts: &[(&str, String)]) -> bool {
        self.function == workload.function.to_string()
            && self.work == workload.work.to_string()
            && self.conditions.iter().all(|condition| condition.holds(facts))
    }
}

impl Condition {
    fn parse(word: &str) -> Option<Condition> {
        let relation = RELATIONS.into_iter().find(|relation| word.contains(relation))?;
        let (fact, value) = word.split_once(relation)?;
        Some(Condition { fact: fact.to_string(), relation, value: value.to_string() })
    }

    fn holds(&self, facts: &[(&str, String)]) -> bool {
        let Some((_, fact)) = facts.iter().find(|(name, _)| *name == self.fact) else { return false };
        let order = match (fact.parse::<u64>(), self.value.parse::<u64>()) {
            (Ok(fact), Ok(value)) => fact.cmp(&value),
            _ => fact.as_str().cmp(&self.value),
        };
        match self.relation {
            "<=" => order.is_le(),
            ">=" => order.is_ge(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            ">" => order.is_gt(),
            _ => order.is_eq(),
        }
    }
}

/// Runs the `build` script of a family of peers. Returns the missing parts that the script reports.
fn build(family: &Path, target: &Path, install: bool, dpdk: Option<&Path>) -> Vec<String> {
    let name = family.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(family.join("build"));
    command.arg(target).args(install.then_some("--install")).current_dir(family).stdin(Stdio::null());
    // A family's build is independent: none of our build settings reach it.
    command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    if let Some(dpdk) = dpdk {
        command.env("DPDK_BUILD", dpdk);
    }
    match command.output() {
        Ok(output) if output.status.success() => Vec::new(),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
            match last {
                [] => vec![format!("{name}: build failed with {}", output.status)],
                _ => last.iter().map(|line| format!("{name}: {line}")).collect(),
            }
        }
        Err(error) => vec![format!("{name}: {}: {error}", family.join("build").display())],
    }
}

/// Folder with the families of peers.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
/// Relations of conditions. Longer ones are first, because the first match counts.
const RELATIONS: [&str; 6] = ["<=", ">=", "!=", "<", ">", "="];
/// Number of lines shown of a failed build's output.
const LINES_SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Extent, workloads};

    #[test]
    fn a_row_offers_only_allowed_workloads() {
        let target = Path::new("/target");
        let offer = |line: &str| Offer::parse(line, target).unwrap();
        let one = offer("smoltcp\treassemble\tcontiguous\tdatagrams=64 pieces<=8\tsmoltcp-64 --quiet x=1");
        assert_eq!((one.program.as_path(), one.arguments.len()), (Path::new("/target/smoltcp-64"), 2));
        let peers = Peers { offers: vec![one], missing: Vec::new() };
        let all = workloads(Extent::Full, &["reassemble".to_string(), "in order, IPv4:".to_string()]);
        let taken: Vec<String> =
            all.iter().filter(|one| !peers.of(one).is_empty()).map(|one| one.to_string()).collect();
        assert_eq!(
            taken,
            [
                "2 fragments x 64 datagrams, in order, IPv4: contiguous",
                "6 fragments x 64 datagrams, in order, IPv4: contiguous"
            ]
        );
    }

    #[test]
    fn an_invalid_row_is_named() {
        let mut peers = Peers::default();
        let table = "system\tfunction\twork\tcondition\tcommand\na\tb\tc\n";
        peers.offer("some", table, Path::new("/nowhere"), false);
        assert_eq!(peers.missing, ["some: systems.tsv: cannot parse: a\tb\tc"]);
    }

    #[test]
    fn a_program_that_was_not_built_is_named_once() {
        let table = "x\treassemble\theader\t-\tprogram\ny\treassemble\theader\t-\tprogram more\n";
        let mut peers = Peers::default();
        peers.offer("some", table, Path::new("/nowhere"), false);
        assert_eq!(peers.missing, ["some: program program was not built"]);
        let mut explained = Peers::default();
        explained.offer("some", table, Path::new("/nowhere"), true);
        assert!(explained.missing.is_empty() && explained.offers.is_empty());
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let holds = |condition: &str, value: &str| {
            Condition::parse(condition).unwrap().holds(&[("pieces", value.to_string())])
        };
        assert!(holds("pieces<=8", "6") && holds("pieces<=44", "6") && !holds("pieces<=8", "44"));
        assert!(holds("pieces!=6", "44") && !holds("flows=1", "1"));
        assert!(holds("pieces>6", "44") && !holds("pieces>=45", "44") && !holds("pieces<6", "6"));
    }
}
