//! IDs of attacks and a seed -> the verdicts on a gateway under each attack.
//!
//! `docs/PAPERS.md` lists the attacks of papers and CVEs. This experiment sends each attack through simulated
//! gateways.

use serde::Serialize;
use sim::attacks::{ATTACKS, Attack, End, Extent, Report};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Attacks to run, and their seed.
#[derive(Clone, Debug)]
pub struct AttacksSettings {
    /// IDs of the attacks; empty: all.
    pub ids: Vec<String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl Default for AttacksSettings {
    fn default() -> AttacksSettings {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        AttacksSettings { ids: Vec::new(), seed: 1, threads }
    }
}

/// Results of all attacks.
#[derive(Clone, Debug, Serialize)]
pub struct Attacks {
    /// Seed of all random choices.
    pub seed: u64,
    /// One row per attack.
    pub rows: Vec<AttackRow>,
    /// Total duration, in seconds.
    pub seconds: f64,
}

/// Result of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct AttackRow {
    /// ID of the attack in PAPERS.md, such as `A01`.
    pub id: &'static str,
    /// Short description of the attack.
    pub attack: &'static str,
    /// Number of packets that the attack sent.
    pub packets: u64,
    /// `held`: no law was violated. `broken`: a law was violated. `waiting` and `live`: the attack was not
    /// simulated.
    pub verdict: &'static str,
    /// For `broken`, the violation; for `waiting`, the missing component; for `live`, the tests with real ports
    /// that cover the attack.
    pub what: String,
    /// Command that repeats the attack; `None` unless the attack broke a law.
    pub repeat: Option<String>,
    /// Duration, in seconds.
    pub seconds: f64,
}

/// Returns the ID of an attack, spelled as in PAPERS.md.
///
/// # Errors
/// No attack has this ID.
pub fn attack_named(id: &str) -> Result<String, String> {
    let found = Attack::named(id).map(|attack| attack.id.to_owned());
    found.ok_or_else(|| format!("there is no attack `{id}`; the identifiers are A01 to A{}", ATTACKS.len()))
}

/// Sends the attacks through simulated gateways, and passes each result to `tell`.
///
/// # Panics
/// A thread cannot be started.
pub fn attacks(settings: &AttacksSettings, mut tell: impl FnMut(&AttackRow)) -> Attacks {
    let begun = Instant::now();
    let is_wanted = |attack: &&Attack| settings.ids.is_empty() || settings.ids.iter().any(|id| id == attack.id);
    let wanted: Vec<&Attack> = ATTACKS.iter().filter(is_wanted).collect();
    let next = AtomicUsize::new(0);
    let mut rows = BTreeMap::new();
    let (give, take) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.max(1) {
            let give = give.clone();
            let (next, wanted) = (&next, &wanted);
            scope.spawn(move || {
                while let Some(attack) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let report = attack.run(settings.seed, Extent::Full);
                    if give.send(AttackRow::new(&report, begun.elapsed().as_secs_f64())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(give);
        for row in take {
            tell(&row);
            rows.insert(row.id, row);
        }
    });
    Attacks { seed: settings.seed, rows: rows.into_values().collect(), seconds: begun.elapsed().as_secs_f64() }
}

impl AttackRow {
    fn new(report: &Report, seconds: f64) -> AttackRow {
        let Report { id, words, seed, packets, end } = report;
        let (verdict, what) = match end {
            End::Withstood => ("held", String::new()),
            End::Broken(what) => ("broken", what.clone()),
            End::Waiting(component) => ("waiting", format!("for {component}")),
            End::Live(tests) => {
                let tests: Vec<String> = tests.iter().map(|(file, test)| format!("{file}: {test}")).collect();
                ("live", tests.join("; "))
            }
        };
        let repeat = (verdict == "broken").then(|| format!("wideload lab attacks {id} --seed {seed}"));
        AttackRow { id, attack: words, packets: *packets, verdict, what, repeat, seconds }
    }
}

impl Attacks {
    /// Whether no attack has the verdict `broken`.
    pub fn is_good(&self) -> bool {
        self.count("broken") == 0
    }

    fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

impl fmt::Display for Attacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<5}{:<42}{:>10}{:>8}  verdict", "id", "attack", "packets", "seconds")?;
        for row in &self.rows {
            let AttackRow { id, attack, packets, verdict, what, seconds, .. } = row;
            writeln!(f, "{id:<5}{attack:<42}{packets:>10}{seconds:>8.1}  {verdict} {what}")?;
            row.repeat.iter().try_for_each(|command| writeln!(f, "     repeat with: {command}"))?;
        }
        let counts: Vec<String> = ["held", "broken", "waiting", "live"]
            .iter()
            .map(|verdict| format!("{} {verdict}", self.count(verdict)))
            .collect();
        let packets: u64 = self.rows.iter().map(|row| row.packets).sum();
        writeln!(f, "{}; {packets} packets in {:.0} s; seed {}", counts.join(", "), self.seconds, self.seed)?;
        writeln!(
            f,
            "For the cost of attack packets, see the rows `attack` of BENCHMARKS.md, or run cargo run --release -p bench"
        )
    }
}
