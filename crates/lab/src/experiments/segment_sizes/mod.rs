//! Delays, losses and segment policies -> goodput of TCP, in the simulator and of kernels over the link emulator;
//! CPU time of the policies.
//!
//! The systems are ordinary TCP over 1,500 bytes, a border, and TCP over a link that is wide from end to end. Two
//! hosts with wide interfaces have each segment policy in turn. Losses are independent, with the same rate for every
//! packet on the link, in both directions.

mod cost;
mod live;
mod simulated;

use super::{Conditions, Spread, cell};
use crate::chart::{Chart, Panel};
use engine::SegmentPolicy;
use serde::Serialize;
use sim::tcp::settings::Algorithm;
use std::fmt;
use std::io;
use std::time::Duration;

pub use cost::CostRow;

/// Extent of the measurement.
#[derive(Clone, Debug)]
pub struct SegmentSizesSettings {
    /// Round-trip times of the link.
    pub trips: Vec<Duration>,
    /// Shares of packets that are lost in each direction, from 0 to 1.
    pub losses: Vec<f64>,
    /// Congestion control algorithms.
    pub algorithms: Vec<Algorithm>,
    /// MTU of the wide links and of the wide interfaces, in bytes.
    pub wide_mtu: u16,
    /// The systems to measure.
    pub systems: Vec<SizingSystem>,
    /// Number of simulated transfers for each figure, each with another seed.
    pub seeds: u64,
    /// Number of transfers of kernels for each figure; 0: none.
    pub rounds: usize,
    /// Number of measurements of CPU time for each policy; 0: none.
    pub cost_rounds: usize,
}

impl Default for SegmentSizesSettings {
    fn default() -> SegmentSizesSettings {
        SegmentSizesSettings {
            trips: [10, 100].map(Duration::from_millis).to_vec(),
            losses: vec![0.0, 1e-5, 1e-4, 1e-3, 1e-2],
            algorithms: vec![Algorithm::Cubic, Algorithm::Reno],
            wide_mtu: 9_000,
            systems: SizingSystem::ALL.to_vec(),
            seeds: 9,
            rounds: 0,
            cost_rounds: 0,
        }
    }
}

/// A way to send large TCP segments over a link of 1,500 bytes, or one that is compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingSystem {
    /// The hosts' MTU is 1,500 bytes.
    Ordinary,
    /// The sender's link is wide, and a border resizes the segments.
    Border,
    /// All links are wide.
    EndToEnd,
    /// Both hosts have wide interfaces with this policy.
    Policy(SegmentPolicy),
}

impl SizingSystem {
    /// All systems, in the order of the table's columns.
    pub const ALL: [SizingSystem; 9] = [
        SizingSystem::Ordinary,
        SizingSystem::Border,
        SizingSystem::EndToEnd,
        SizingSystem::Policy(SegmentPolicy::Segment),
        SizingSystem::Policy(SegmentPolicy::Fragment),
        SizingSystem::Policy(SegmentPolicy::Lan),
        SizingSystem::Policy(SegmentPolicy::LanSlow),
        SizingSystem::Policy(SegmentPolicy::Wan),
        SizingSystem::Policy(SegmentPolicy::Dynamic),
    ];

    /// The system's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            SizingSystem::Ordinary => "ordinary",
            SizingSystem::Border => "border",
            SizingSystem::EndToEnd => "wide",
            SizingSystem::Policy(policy) => policy.name(),
        }
    }
}

/// Goodput of all systems, and CPU time of the policies.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentSizes {
    /// Machine, kernel and program of the measurement.
    pub conditions: Conditions,
    /// MTU of the wide links, in bytes.
    pub wide_mtu: u16,
    /// A row for each round-trip time, algorithm and loss.
    pub rows: Vec<SegmentSizesRow>,
    /// The CPU time of each policy.
    pub costs: Vec<CostRow>,
    /// Laws that a simulated gateway broke, and faults of live transfers.
    pub faults: Vec<String>,
}

/// Goodput of all systems on one link.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentSizesRow {
    /// Round-trip time, in milliseconds.
    pub trip_ms: f64,
    /// Congestion control algorithm.
    pub algorithm: &'static str,
    /// Share of packets that are lost in each direction, from 0 to 1.
    pub loss: f64,
    /// Goodput in the simulator.
    pub simulated: Vec<Goodput>,
    /// Goodput of kernels over the link emulator; empty if it was not measured.
    pub live: Vec<Goodput>,
}

/// Goodput of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Goodput {
    /// The system's name.
    pub system: &'static str,
    /// Goodput, in 10^6 bits per second; `None` if no transfer was valid.
    pub mbits: Option<Spread>,
    /// TCP segments above 1,500 bytes that were sent in IP fragments, for each million bytes; `None` if unknown.
    pub fragmented_per_megabyte: Option<f64>,
    /// How often segments became shorter and longer; `None` if unknown.
    pub changes: Option<[u64; 2]>,
}

/// The link of a row.
#[derive(Clone, Copy, Debug)]
struct Path {
    trip: Duration,
    loss: f64,
    algorithm: Algorithm,
    wide_mtu: u16,
}

/// Measures all systems, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// With live measurements: a missing privilege or kernel feature; the message contains advice.
pub fn segment_sizes(settings: &SegmentSizesSettings, mut tell: impl FnMut(&str)) -> io::Result<SegmentSizes> {
    let mut faults = Vec::new();
    let mut rows = Vec::new();
    for &trip in &settings.trips {
        for &algorithm in &settings.algorithms {
            for &loss in &settings.losses {
                let path = Path { trip, loss, algorithm, wide_mtu: settings.wide_mtu };
                tell(&format!("simulator: {path}"));
                let simulated: Vec<Goodput> = settings
                    .systems
                    .iter()
                    .map(|system| simulated::goodput(*system, path, settings.seeds, &mut faults))
                    .collect();
                let mut live = Vec::new();
                for (system, simulated) in settings.systems.iter().zip(&simulated) {
                    if settings.rounds > 0 {
                        tell(&format!("kernels: {path}, {}", system.name()));
                        live.push(live::goodput(*system, path, settings.rounds, simulated.median(), &mut faults)?);
                    }
                }
                let (trip_ms, algorithm) = (trip.as_secs_f64() * 1e3, algorithm.name());
                rows.push(SegmentSizesRow { trip_ms, algorithm, loss, simulated, live });
            }
        }
    }
    let costs = match settings.cost_rounds {
        0 => Vec::new(),
        rounds => cost::costs(settings.wide_mtu, rounds, &mut tell)?,
    };
    Ok(SegmentSizes {
        conditions: Conditions::here(settings.rounds),
        wide_mtu: settings.wide_mtu,
        rows,
        costs,
        faults,
    })
}

impl SegmentSizes {
    /// Returns the rows in which [`SegmentPolicy::Dynamic`] has too little goodput in the simulator, in words. It
    /// should reach 0.95 of the best other policy. It should reach ordinary TCP at a loss of at most 0.1 %, and 0.9
    /// of ordinary TCP at a higher loss.
    pub fn behind(&self) -> Vec<String> {
        let mut behind = Vec::new();
        for row in &self.rows {
            let of = |system| Figures::Simulated.goodput(row, system).and_then(Goodput::median);
            let policy = |policy| of(SizingSystem::Policy(policy));
            let others = [SegmentPolicy::Segment, SegmentPolicy::Fragment, SegmentPolicy::Lan, SegmentPolicy::Wan];
            let best = others.into_iter().filter_map(policy).fold(0.0, f64::max);
            let ordinary = of(SizingSystem::Ordinary).unwrap_or(f64::NAN);
            let ours = policy(SegmentPolicy::Dynamic).unwrap_or(0.0);
            let least = if row.loss <= 1e-3 { 1.0 } else { 0.9 };
            for (what, bound) in [("0.95 of the best policy", 0.95 * best), ("ordinary TCP", least * ordinary)] {
                // Medians differ by chance.
                if ours < bound * (1.0 - CHANCE) {
                    behind.push(format!("{row}: {ours:.2} Mbit/s is below {what}, {bound:.2}"));
                }
            }
        }
        behind
    }

    /// Whether no law was broken, and [`behind`](Self::behind) returns nothing.
    pub fn is_good(&self) -> bool {
        !self.rows.is_empty() && self.faults.is_empty() && self.behind().is_empty()
    }

    /// Draws the goodput of all systems over the loss, in panels by round-trip time and algorithm.
    pub fn chart(&self) -> Chart {
        let mut panels: Vec<Panel> = Vec::new();
        for (name, of) in [("simulator", Figures::Simulated), ("kernels", Figures::Live)] {
            for row in self.rows.iter().filter(|row| !of.of(row).is_empty()) {
                let title = format!("{name}: {} ms, {}", row.trip_ms, row.algorithm);
                let at = panels.iter().position(|panel| panel.title == title).unwrap_or_else(|| {
                    let lines = vec![Vec::new(); SizingSystem::ALL.len()];
                    panels.push(Panel { title, categories: Vec::new(), lines });
                    panels.len() - 1
                });
                let Some(panel) = panels.get_mut(at) else { continue };
                panel.categories.push(format!("{}", row.loss));
                for (line, system) in panel.lines.iter_mut().zip(SizingSystem::ALL) {
                    line.push(of.goodput(row, system).and_then(Goodput::median));
                }
            }
        }
        let title = format!("Goodput of one TCP flow over 100 Mbit/s by loss, wide MTU {} bytes", self.wide_mtu);
        let lines = SizingSystem::ALL.iter().map(|system| system.name().to_owned()).collect();
        Chart { title, axis: "Mbit/s".to_owned(), lines, panels }
    }
}

/// The figures of a table.
#[derive(Clone, Copy)]
enum Figures {
    Simulated,
    Live,
}

impl Figures {
    fn of(self, row: &SegmentSizesRow) -> &[Goodput] {
        match self {
            Figures::Simulated => &row.simulated,
            Figures::Live => &row.live,
        }
    }

    fn goodput(self, row: &SegmentSizesRow, system: SizingSystem) -> Option<&Goodput> {
        self.of(row).iter().find(|goodput| goodput.system == system.name())
    }
}

impl Goodput {
    fn median(&self) -> Option<f64> {
        self.mbits.map(|spread| spread.median)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {}, loss {}", self.trip.as_millis(), self.algorithm.name(), self.loss)
    }
}

impl fmt::Display for SegmentSizesRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {}, loss {}", self.trip_ms, self.algorithm, self.loss)
    }
}

impl fmt::Display for SegmentSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions)?;
        writeln!(
            f,
            "Goodput of one TCP flow over 100 Mbit/s, in Mbit/s: medians. Wide MTU: {} bytes.",
            self.wide_mtu
        )?;
        for (name, figures) in [("Simulator", Figures::Simulated), ("Kernels", Figures::Live)] {
            if self.rows.iter().all(|row| figures.of(row).is_empty()) {
                continue;
            }
            write!(f, "\n{name}\n{:>3} {:5} {:>6}", "ms", "", "loss")?;
            SizingSystem::ALL.iter().try_for_each(|system| write!(f, " {:>8}", system.name()))?;
            writeln!(f)?;
            for row in &self.rows {
                write!(f, "{:>3} {:5} {:>6}", row.trip_ms, row.algorithm, row.loss)?;
                for system in SizingSystem::ALL {
                    let median = figures.goodput(row, system).and_then(Goodput::median);
                    write!(f, " {:>8}", cell(median, 2))?;
                }
                writeln!(f)?;
            }
        }
        if !self.costs.is_empty() {
            writeln!(f, "\nCPU time of both hosts, without loss, in seconds for 10^9 bytes; ratio to segment")?;
            self.costs.iter().try_for_each(|cost| writeln!(f, "{cost}"))?;
        }
        for line in self.behind().iter().chain(&self.faults) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Rate of the link, in bits per second.
const RATE: u64 = 100_000_000;
/// Difference of two medians that chance explains.
const CHANCE: f64 = 0.02;

/// Returns the limit of the link's queue: one bandwidth-delay product, at least 250 kB.
fn queue_len(trip: Duration) -> usize {
    ((RATE / 8) as f64 * trip.as_secs_f64()).max(250_000.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(loss: f64, [ordinary, segment, fragment, dynamic]: [f64; 4]) -> SegmentSizes {
        let figures = |system: SizingSystem| match system {
            SizingSystem::Ordinary => Some(ordinary),
            SizingSystem::Policy(SegmentPolicy::Segment) => Some(segment),
            SizingSystem::Policy(SegmentPolicy::Fragment) => Some(fragment),
            SizingSystem::Policy(SegmentPolicy::Dynamic) => Some(dynamic),
            _ => None,
        };
        let goodput = |system: &SizingSystem| Goodput {
            system: system.name(),
            mbits: figures(*system).and_then(|figure| Spread::of([figure])),
            fragmented_per_megabyte: None,
            changes: None,
        };
        let simulated = SizingSystem::ALL.iter().map(goodput).collect();
        let row = SegmentSizesRow { trip_ms: 10.0, algorithm: "reno", loss, simulated, live: Vec::new() };
        let conditions = Conditions::made_up();
        SegmentSizes { conditions, wide_mtu: 9_000, rows: vec![row], costs: Vec::new(), faults: Vec::new() }
    }

    #[test]
    fn a_policy_that_is_behind_is_named() {
        assert!(outcome(1e-3, [50.0, 80.0, 70.0, 78.0]).is_good());
        assert!(!outcome(1e-3, [50.0, 80.0, 70.0, 74.0]).is_good(), "below 0.95 of the best");
        assert!(!outcome(1e-3, [80.0, 60.0, 70.0, 77.0]).is_good(), "below ordinary TCP");
        assert!(outcome(1e-2, [80.0, 60.0, 70.0, 73.0]).is_good(), "at 1 %, 0.9 of ordinary TCP do");
        assert!(!outcome(1e-2, [80.0, 60.0, 70.0, 70.0]).is_good());
        let broken = SegmentSizes { faults: vec!["a law".to_owned()], ..outcome(0.0, [1.0; 4]) };
        assert!(!broken.is_good());
    }

    #[test]
    fn tables_and_pictures_have_every_system() {
        let outcome = outcome(1e-3, [50.0, 80.0, 70.0, 78.0]);
        let (table, svg) = (outcome.to_string(), outcome.chart().svg());
        for system in SizingSystem::ALL {
            assert!(table.contains(system.name()) && svg.contains(system.name()), "{}", system.name());
        }
        assert!(table.contains("78.00"));
    }
}
