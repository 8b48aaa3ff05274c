//! Attack name and seed -> its packets through a gateway, and a verdict.
//!
//! The 54 attacks are those of PAPERS.md (`rel:A01` to `rel:A54`). Each is a generator: its packets depend on the
//! seed alone. The judges know nothing about the engine's design. They use laws checked after every packet, models
//! too simple to be wrong, and bounds. Time and work that only a clock can measure are left to the bench (its rows
//! `attack`).

mod background;
mod craft;
mod errors;
mod floods;
mod fragments;
mod headers;
mod list;
mod octets;
mod platform;
mod rig;
mod segments;

pub use list::ATTACKS;

use crate::rng::{Rng, mix};
use crate::topology::{Gateway, GatewayRole, Lateness};
use rig::{Rig, Verdict};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A named attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its number, such as `A01`.
    pub id: &'static str,
    /// A short description.
    pub words: &'static str,
    state: State,
}

/// How an attack is judged.
#[derive(Clone, Copy, Debug)]
enum State {
    /// By this judge.
    Judged(Judge),
    /// Not yet: the component that it attacks does not exist.
    Waiting(&'static str),
    /// On live ports, by tests: their names and the paths of their files.
    Live(&'static [(&'static str, &'static str)]),
}

type Judge = fn(&mut Field) -> Verdict;

/// The length of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Short enough for a test that runs all attacks within seconds.
    Short,
    /// As long as its row of the table asks for, up to about a minute.
    Full,
}

/// The result of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its number.
    pub id: &'static str,
    /// Its description.
    pub words: &'static str,
    /// The seed of every random choice.
    pub seed: u64,
    /// Packets that it sent.
    pub packets: u64,
    /// The result.
    pub end: End,
}

/// The result of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All laws and bounds held.
    Withstood,
    /// A law or a bound was broken.
    Broken(String),
    /// This component does not exist.
    Waiting(&'static str),
    /// These tests on live ports cover it, each with its file.
    Live(&'static [(&'static str, &'static str)]),
}

impl Attack {
    /// The attack of this number.
    pub fn named(id: &str) -> Option<&'static Attack> {
        ATTACKS.iter().find(|attack| attack.id.eq_ignore_ascii_case(id))
    }

    /// Whether it can be run here.
    pub fn is_judged(&self) -> bool {
        matches!(self.state, State::Judged(_))
    }

    /// Runs the attack. The engine's own assertions are laws too: a panic counts as broken.
    pub fn run(&self, seed: u64, extent: Extent) -> Report {
        let mut field = Field { dice: Rng::new(seed ^ mix(number(self.id))), seed, extent, packets: 0 };
        let end = match self.state {
            State::Waiting(what) => End::Waiting(what),
            State::Live(tests) => End::Live(tests),
            State::Judged(judge) => match catch_unwind(AssertUnwindSafe(|| judge(&mut field))) {
                Ok(Ok(())) => End::Withstood,
                Ok(Err(what)) => End::Broken(what),
                Err(cause) => End::Broken(crate::said(cause)),
            },
        };
        Report { id: self.id, words: self.words, seed, packets: field.packets, end }
    }
}

/// The tools of a judge.
struct Field {
    dice: Rng,
    seed: u64,
    extent: Extent,
    packets: u64,
}

impl Field {
    /// The full number of repetitions, or the short one in a short run.
    fn times(&self, full: u64, short: u64) -> u64 {
        if self.extent == Extent::Full { full } else { short }
    }

    /// The network card of a host behind a link of 1,500 bytes. It reassembles datagrams, and drops incomplete
    /// ones.
    fn host(&self) -> Rig {
        self.rig(&host(), [65_535, 1_500])
    }

    /// A border between links of 9,000 and of 1,500 bytes.
    fn border(&self) -> Rig {
        self.rig(&Gateway::new(GatewayRole::Border, 0), [9_000, 1_500])
    }

    fn rig(&self, gateway: &Gateway, mtus: [u16; 2]) -> Rig {
        Rig::new(gateway, mtus, self.seed)
    }

    /// Ends an attack on a gateway.
    fn end(&mut self, stand: &mut Rig) -> Verdict {
        self.packets += stand.packets;
        stand.end()
    }
}

/// A host's network card that drops incomplete datagrams.
fn host() -> Gateway {
    Gateway { late: Lateness::Retire, ..Gateway::new(GatewayRole::WideInterface, 0) }
}

/// Checks a bound or a law of one attack.
fn holds(is_kept: bool, what: impl FnOnce() -> String) -> Verdict {
    if is_kept { Ok(()) } else { Err(what()) }
}

fn number(id: &str) -> u64 {
    id.bytes().fold(0, |number, byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn no_named_attack_breaks_a_law() {
        let reports = ATTACKS.each_ref().map(|attack| (attack, attack.run(1, Extent::Short)));
        let broken: Vec<_> = reports
            .iter()
            .map(|(_, report)| report)
            .filter(|report| matches!(report.end, End::Broken(_)))
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
        for (attack, report) in &reports {
            assert!(report.packets > 0 || !attack.is_judged(), "{} sends something", attack.id);
        }
    }

    #[test]
    fn equal_seeds_give_equal_attacks() {
        for id in ["A07", "A21", "A37", "A48"] {
            let attack = Attack::named(id).unwrap();
            assert_eq!(attack.run(7, Extent::Short), attack.run(7, Extent::Short));
        }
    }

    #[test]
    fn every_attack_of_the_table_is_there_once_and_in_its_order() {
        let ids: Vec<String> = (1..=54).map(|number| format!("A{number:02}")).collect();
        assert_eq!(ATTACKS.map(|attack| attack.id.to_owned()).to_vec(), ids);
    }

    #[test]
    fn the_live_tests_that_attacks_name_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut count = 0;
        for attack in &ATTACKS {
            let State::Live(tests) = attack.state else { continue };
            for (file, test) in tests {
                let text = std::fs::read_to_string(crates.join(file)).unwrap_or_default();
                assert!(text.contains(&format!("fn {test}()")), "{}: {file} has no test {test}", attack.id);
                count += 1;
            }
        }
        assert!(count > 0);
    }
}
