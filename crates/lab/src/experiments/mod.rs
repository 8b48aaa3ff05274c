//! Settings of an experiment -> measurements of kernels and gateways, with the conditions of the measurement.
//!
//! All experiments except [`link()`] stay in private namespaces. Systems to compare are measured in turn on the
//! same links, so that other load on the machine affects all of them.

mod account;
mod acks;
mod attacks;
mod border;
mod calibration;
mod datagrams;
mod differential;
mod dips;
mod disorder;
mod fairness;
mod floods;
mod forwarder;
mod hold;
mod lifecycle;
mod link;
mod network;
mod observer;
mod path_change;
mod ping_pong;
mod receive_offload;
mod running;
mod saturation;
mod segment_sizes;
mod soak;
mod swarm;
mod tcp;
mod transparency;
mod wide_interface;
mod wire;
mod workers;

pub use account::{Account, Receiving};
pub use acks::{AckSender, AckTransfer, AcksComparison, AcksFigures, AcksRow, AcksSettings, acks};
pub use attacks::{AttackRow, Attacks, AttacksSettings, attack_named, attacks};
pub use border::{Border, BorderRow, BorderSettings, Scene, Versus, border};
pub use calibration::{Calibrated, calibration};
pub use datagrams::{Inbox, Load, Pings, Received, pings, send};
pub use differential::{Cases, Differential, DifferentialSettings, differential, repeat};
pub use dips::{Dip, Dips, DipsSettings, Sweeps, dips, dips_in};
pub use disorder::{Disorder, Fragments, deliver};
pub use fairness::{DmaRow, Fairness, FairnessRow, FairnessSettings, fairness};
pub use floods::{Flood, FloodRow, Floods, FloodsSettings, ReassembledBy, floods};
pub use hold::{Hold, HoldDelay, HoldLen, HoldLoad, HoldSettings, hold};
pub use lifecycle::{
    Change, Lifecycle, LifecycleEvent, LifecycleRow, LifecycleSettings, Outcome, Remedy, lifecycle,
};
pub use link::link;
pub use network::{FlowRow, LinkRow, Network, network};
pub use observer::{Observed, observe};
pub use path_change::{PathChange, PathChangeRow, PathChangeSettings, PathMiddle, path_change};
pub use ping_pong::{PingHolding, PingPath, PingPong, PingPongRow, PingPongSettings, PingTransport, ping_pong};
pub use receive_offload::{
    OffloadBorderRow, OffloadNicRow, OffloadPaperRow, ReceiveOffload, ReceiveOffloadSettings, receive_offload,
};
pub use segment_sizes::{
    CostRow, Goodput, SegmentSizes, SegmentSizesRow, SegmentSizesSettings, SizingSystem, segment_sizes,
};
pub use sim::swarm::Case;
pub use sim::tcp::settings::Algorithm;
pub use soak::{Arrived, Changes, Kills, Mixed, Soak, SoakSettings, Usage, soak};
pub use swarm::{Hit, Progress, Swarm, SwarmSettings, replay, swarm};
pub use tcp::{TcpComparison, TcpRow, TcpSettings, tcp};
pub use transparency::{
    LinkKind, Middle, PortKind, Role, Transparency, TransparencyRow, TransparencySettings, Verdict, transparency,
    transparency_kind_named, transparency_list,
};
pub use wide_interface::{
    Delivery, Latency, Stack, System, WideInterface, WideInterfaceRow, WideInterfaceSettings, wide_interface,
};
pub use workers::{Workers, WorkersRow, WorkersSettings, workers};

use serde::Serialize;
use std::{fmt, fs};

/// Machine, kernel and program of an experiment, and the number of measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Kernel release.
    pub kernel: String,
    /// Number of CPUs that this process may use.
    pub processors: usize,
    /// Load averages of the last 1, 5 and 15 minutes, before the start.
    pub load: Vec<f64>,
    /// Number of times that each figure was measured.
    pub rounds: usize,
    /// Version of this program, and kind of build.
    pub build: String,
}

impl Conditions {
    /// Returns conditions that are the same on every machine.
    #[cfg(test)]
    fn made_up() -> Conditions {
        let (kernel, build) = ("6.12.38".to_owned(), "1.2.3 release".to_owned());
        Conditions { kernel, processors: 4, load: vec![0.5, 0.25, 1.0], rounds: 1, build }
    }

    /// Reads the current kernel release, CPU count and load.
    pub fn here(rounds: usize) -> Conditions {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg").split(' ').take(3).filter_map(|word| word.parse().ok()).collect();
        let checks = if cfg!(debug_assertions) { "with every check" } else { "release" };
        Conditions {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load,
            rounds,
            build: format!("{} {checks}", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load: Vec<String> = self.load.iter().map(|load| format!("{load:.2}")).collect();
        let Conditions { kernel, processors, rounds, build, .. } = self;
        write!(
            f,
            "Linux {kernel}, {processors} processors, load {} at the start, medians of {rounds} rounds, build {build}",
            load.join(" ")
        )
    }
}

/// Median, minimum and maximum of repeated measurements of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median of the measurements.
    pub median: f64,
    /// Smallest measurement.
    pub least: f64,
    /// Largest measurement.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of these figures; `None` without figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let (least, most, upper) = (*figures.first()?, *figures.last()?, *figures.get(middle)?);
        let median = if figures.len().is_multiple_of(2) { figures[middle - 1].midpoint(upper) } else { upper };
        Some(Spread { median, least, most })
    }
}

/// Returns the median of the figures; `None` if a figure is missing.
pub(crate) fn median_of(figures: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let figures: Option<Vec<f64>> = figures.into_iter().collect();
    Spread::of(figures?).map(|spread| spread.median)
}

/// Formats a figure as a table cell.
fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([]), None);
        assert_eq!(median_of([Some(1.0), None]), None, "a figure that is missing makes the median unknown");
    }
}
