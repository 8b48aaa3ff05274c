//! Attack name and seed -> attack packets through a gateway, and a verdict.
//!
//! The 54 attacks are listed in PAPERS.md (`rel:A01` to `rel:A54`). The packets of an attack depend only on the
//! seed. Judges do not depend on the engine's design. Judges use laws that are checked after every packet, simple
//! reference models, and limits. Measurements of time and work are left to the bench (its rows `attack`).

mod acks;
mod background;
mod conversation;
mod craft;
mod errors;
mod floods;
mod fragments;
mod headers;
mod list;
mod octets;
mod paths;
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
    /// The attack's number, such as `A01`.
    pub id: &'static str,
    /// A short description of the attack.
    pub words: &'static str,
    state: State,
}

/// How an attack is judged.
#[derive(Clone, Copy, Debug)]
enum State {
    /// By this function.
    Judged(Judge),
    /// Not yet, because the component that it attacks (named here) does not exist.
    Waiting(&'static str),
    /// By tests with ports of the kernel: the name of each test, and the path of its file.
    Live(&'static [(&'static str, &'static str)]),
}

type Judge = fn(&mut Field) -> Verdict;

/// The number of repetitions of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Few repetitions, for a test that runs all attacks within seconds.
    Short,
    /// The number of repetitions that the attack's description asks for, up to about a minute.
    Full,
}

/// The report about one attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The attack's number.
    pub id: &'static str,
    /// The attack's description.
    pub words: &'static str,
    /// The seed of all random choices.
    pub seed: u64,
    /// Number of packets sent by the attack.
    pub packets: u64,
    /// The outcome of the attack.
    pub end: End,
}

/// The outcome of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The gateway respected all laws and limits.
    Withstood,
    /// The gateway violated a law or limit, as described.
    Broken(String),
    /// The attack was not run, because the component that it attacks (named here) does not exist.
    Waiting(&'static str),
    /// The attack was not run, because these tests with ports of the kernel cover it: name and file of each.
    Live(&'static [(&'static str, &'static str)]),
}

impl Attack {
    /// The attack with this number; `None` if there is none.
    pub fn named(id: &str) -> Option<&'static Attack> {
        ATTACKS.iter().find(|attack| attack.id.eq_ignore_ascii_case(id))
    }

    /// Whether the attack can be run in a simulation.
    pub fn is_judged(&self) -> bool {
        matches!(self.state, State::Judged(_))
    }

    /// Runs the attack. A panic, such as a failed assertion of the engine, is a violation.
    pub fn run(&self, seed: u64, extent: Extent) -> Report {
        let mut field = Field { rng: Rng::new(seed ^ mix(number(self.id))), seed, extent, packets: 0 };
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

/// The seed and random numbers of an attack, its number of repetitions, and the count of its packets.
struct Field {
    rng: Rng,
    seed: u64,
    extent: Extent,
    packets: u64,
}

impl Field {
    /// Returns `full` if the extent is [`Extent::Full`], and `short` if it is [`Extent::Short`].
    fn times(&self, full: u64, short: u64) -> u64 {
        if self.extent == Extent::Full { full } else { short }
    }

    /// A wide interface on a link with an MTU of 1,500 bytes. It reassembles datagrams, and drops incomplete ones.
    fn host(&self) -> Rig {
        self.rig(&host(), [65_535, 1_500])
    }

    /// A border between links with MTUs of 9,000 and 1,500 bytes.
    fn border(&self) -> Rig {
        self.rig(&Gateway::new(GatewayRole::Border, 0), [9_000, 1_500])
    }

    fn rig(&self, gateway: &Gateway, mtus: [u16; 2]) -> Rig {
        Rig::new(gateway, mtus, self.seed)
    }

    /// Ends an attack on a gateway: adds the gateway's packet count, and checks the laws that hold at the end.
    fn end(&mut self, testbed: &mut Rig) -> Verdict {
        self.packets += testbed.packets;
        testbed.end()
    }
}

/// Settings of a wide interface that drops incomplete datagrams.
fn host() -> Gateway {
    Gateway { late: Lateness::Retire, ..Gateway::new(GatewayRole::WideInterface, 0) }
}

/// Returns an error with the description `what` unless `is_kept`.
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
