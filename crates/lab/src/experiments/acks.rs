//! Treatment of acknowledgements at a border, round trip and wide MTU -> time of a simulated transfer.
//!
//! ```text
//! wide host ──── 9,000 or 65,535 ──── border ──── 1,500, with the delay ──── narrow host
//! ```
//!
//! In slow start, the congestion window of a sender grows by the number of acknowledgements (RFC 5681). Or it grows by
//! the bytes that they acknowledge (RFC 3465), as in Linux. The links have no rate limit, so only round trips and
//! windows count, and the packets of one flight form batches. The simulator verifies every byte and the laws.

use super::Conditions;
use engine::{AckPolicy, Event, Reason};
use serde::Serialize;
use sim::tcp::Settings;
use sim::tcp::settings::{Algorithm, Growth, SlowStartExit};
use sim::{Kind, Scene, Simulation};
use std::fmt;
use std::time::Duration;

/// Extent of the comparison.
#[derive(Clone, Debug)]
pub struct AcksSettings {
    /// Round-trip times.
    pub trips: Vec<Duration>,
    /// MTUs of the wide link, in bytes.
    pub wide_mtus: Vec<u16>,
    /// Bytes of a transfer.
    pub bytes: u64,
}

impl Default for AcksSettings {
    fn default() -> AcksSettings {
        let trips = [1, 10, 100].map(Duration::from_millis).to_vec();
        AcksSettings { trips, wide_mtus: vec![9_000, 65_535], bytes: 10_000_000 }
    }
}

/// A sender, by the growth of its window in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckSender {
    /// Each acknowledgement grows the window by at most one segment, with Reno.
    CountsAcks,
    /// The window grows by the acknowledged bytes, with Reno.
    CountsBytes,
    /// As in Linux: the window grows by the acknowledged bytes, with CUBIC and HyStart.
    Linux,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckTransfer {
    /// The narrow host sends, and the wide host acknowledges.
    ToWide,
    /// The wide host sends, and the narrow host acknowledges.
    ToNarrow,
}

/// Results of all transfers.
#[derive(Clone, Debug, Serialize)]
pub struct AcksComparison {
    /// Machine, kernel and program of the comparison.
    pub conditions: Conditions,
    /// Bytes of a transfer.
    pub bytes: u64,
    /// A row for each direction, sender, wide MTU and round trip.
    pub rows: Vec<AcksRow>,
    /// Laws that the border broke, and transfers that did not end.
    pub faults: Vec<String>,
}

/// The transfers of one sender with each policy.
#[derive(Clone, Debug, Serialize)]
pub struct AcksRow {
    /// The direction of the transfer.
    pub transfer: AckTransfer,
    /// The sender.
    pub sender: AckSender,
    /// MTU of the wide link, in bytes.
    pub wide_mtu: u16,
    /// Round-trip time, in milliseconds.
    pub trip_ms: f64,
    /// The result of each policy, in the order of [`AckPolicy::NAMES`].
    pub policies: Vec<AcksFigures>,
}

/// One transfer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AcksFigures {
    /// The policy's name.
    pub policy: &'static str,
    /// Time from the first SYN until the last byte arrived, in seconds.
    pub seconds: f64,
    /// Acknowledgements that the border made.
    pub made: u64,
    /// Acknowledgements that the border replaced by later ones, or absorbed.
    pub replaced: u64,
}

/// Simulates all transfers, and passes a description of each step to `tell` before the step.
pub fn acks(settings: &AcksSettings, mut tell: impl FnMut(&str)) -> AcksComparison {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for transfer in [AckTransfer::ToWide, AckTransfer::ToNarrow] {
        for sender in AckSender::ALL {
            for &wide_mtu in &settings.wide_mtus {
                for &trip in &settings.trips {
                    let trip_ms = trip.as_secs_f64() * 1e3;
                    let mut row = AcksRow { transfer, sender, wide_mtu, trip_ms, policies: Vec::new() };
                    tell(&row.name());
                    for (policy, treatment) in AckPolicy::NAMES {
                        let figures = row.simulate(policy, treatment, trip, settings.bytes, &mut faults);
                        row.policies.extend(figures);
                    }
                    rows.push(row);
                }
            }
        }
    }
    AcksComparison { conditions: Conditions::here(1), bytes: settings.bytes, rows, faults }
}

impl AcksComparison {
    /// Returns the transfers that a policy made longer by more than 5 % and a round trip, in words. Compression is excluded for senders
    /// that count acknowledgements: they have fewer to count.
    pub fn slower(&self) -> Vec<String> {
        let mut slower = Vec::new();
        for row in &self.rows {
            let Some((usual, others)) = row.policies.split_first() else { continue };
            for other in others {
                let is_expected = row.sender == AckSender::CountsAcks && other.policy == AckPolicy::Compress.name();
                let most = usual.seconds * SLOWER_MAX + row.trip_ms / 1e3;
                if other.seconds > most && !is_expected {
                    slower.push(format!("{}, {}: {:.3} s", row.name(), other.policy, other.seconds));
                }
            }
        }
        slower
    }

    /// Whether no law was broken, every byte arrived, and [`slower`](Self::slower) returns nothing.
    pub fn is_good(&self) -> bool {
        !self.rows.is_empty() && self.faults.is_empty() && self.slower().is_empty()
    }
}

impl AckSender {
    /// All senders, in the order of the table.
    pub const ALL: [AckSender; 3] = [AckSender::CountsAcks, AckSender::CountsBytes, AckSender::Linux];

    /// The sender's name in the table.
    pub fn name(self) -> &'static str {
        match self {
            AckSender::CountsAcks => "counts ACKs",
            AckSender::CountsBytes => "counts bytes",
            AckSender::Linux => "Linux",
        }
    }

    fn settings(self) -> Settings {
        let growth = match self {
            AckSender::Linux => return Settings::linux(),
            AckSender::CountsAcks => Growth::OneSegment,
            AckSender::CountsBytes => Growth::AllAcknowledged,
        };
        let (algorithm, slow_start_exit) = (Algorithm::Reno, SlowStartExit::Loss);
        Settings { growth, algorithm, slow_start_exit, ..Settings::linux() }
    }
}

impl AcksRow {
    fn name(&self) -> String {
        let AcksRow { transfer, sender, wide_mtu, trip_ms, .. } = self;
        let transfer = if *transfer == AckTransfer::ToWide { "to wide" } else { "to narrow" };
        format!("{transfer:9} {:12} {wide_mtu:>5} {trip_ms:>3}", sender.name())
    }

    fn simulate(
        &self,
        policy: &'static str,
        treatment: AckPolicy,
        trip: Duration,
        bytes: u64,
        faults: &mut Vec<String>,
    ) -> Option<AcksFigures> {
        let scene = self.scene(treatment, trip, bytes);
        let outcome = Simulation::new(&scene).run();
        faults.extend(outcome.broken.iter().map(|broken| format!("{}, {policy}: {broken}", self.name())));
        let flow = outcome.flows.first()?;
        if flow.arrived_len < bytes {
            faults.push(format!("{}, {policy}: only {} bytes arrived", self.name(), flow.arrived_len));
        }
        let count = |counts: &[u64], at: usize| counts.get(at).copied().unwrap_or(0);
        Some(AcksFigures {
            policy,
            seconds: flow.stretch.as_secs_f64(),
            made: [Event::AcksExpanded, Event::EarlyAcks]
                .map(|event| count(&outcome.hits.events, event as usize))
                .iter()
                .sum(),
            replaced: [Reason::AckCompressed, Reason::AckAbsorbed]
                .map(|reason| count(&outcome.hits.reasons, reason as usize))
                .iter()
                .sum(),
        })
    }

    fn scene(&self, policy: AckPolicy, trip: Duration, bytes: u64) -> Scene {
        let [from, to] = match self.transfer {
            AckTransfer::ToWide => ["narrow", "wide"],
            AckTransfer::ToNarrow => ["wide", "narrow"],
        };
        let shape = format!("delay={}us", trip.as_micros() / 2);
        let text = format!(
            "[[node]]\nname = \"wide\"\nkind = \"host\"\n\
             [[node]]\nname = \"narrow\"\nkind = \"host\"\n\
             [[node]]\nname = \"border\"\nkind = \"border\"\nwide = \"wide\"\nhold = \"adaptive\"\n\
             [[link]]\nends = [\"wide\", \"border\"]\nmtu = {}\nshape = \"delay=10us\"\n\
             [[link]]\nends = [\"border\", \"narrow\"]\nmtu = 1500\nshape = \"{shape}\"\n\
             [[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nkind = \"tcp\"\nbytes = {bytes}\n",
            self.wide_mtu
        );
        let mut scene: Scene = match text.parse() {
            Ok(scene) => scene,
            Err(wrong) => panic!("a scene of our own is right: {wrong}"),
        };
        for node in &mut scene.topology.nodes {
            if let Kind::Gateway(gateway) = &mut node.kind {
                gateway.acks = policy;
            }
        }
        for flow in &mut scene.flows {
            let [sender, _] = &mut flow.talk.ends;
            *sender = self.sender.settings();
        }
        scene.seed = 1;
        scene
    }
}

impl fmt::Display for AcksComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions)?;
        writeln!(f, "Transfer of {} bytes in the simulator, in seconds, by the policy of the border", self.bytes)?;
        write!(f, "{:9} {:12} {:>5} {:>3}", "transfer", "sender", "mtu", "ms")?;
        AckPolicy::NAMES.iter().try_for_each(|(name, _)| write!(f, " {name:>7}"))?;
        writeln!(f, " {:>5} {:>6}", "made", "fewer")?;
        for row in &self.rows {
            write!(f, "{}", row.name())?;
            row.policies
                .iter()
                .try_for_each(|figures| write!(f, " {:>1$.3}", figures.seconds, figures.policy.len().max(7)))?;
            let sum = |of: fn(&AcksFigures) -> u64| row.policies.iter().map(of).sum::<u64>();
            writeln!(f, " {:>5} {:>6}", sum(|figures| figures.made), sum(|figures| figures.replaced))?;
        }
        for line in self.slower().iter().chain(&self.faults) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Ratio of two times that chance explains.
const SLOWER_MAX: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sender: AckSender, seconds: [f64; 4]) -> AcksComparison {
        let figures = AckPolicy::NAMES.into_iter().zip(seconds);
        let policies =
            figures.map(|((policy, _), seconds)| AcksFigures { policy, seconds, made: 5, replaced: 7 }).collect();
        let row = AcksRow { transfer: AckTransfer::ToWide, sender, wide_mtu: 9_000, trip_ms: 100.0, policies };
        AcksComparison { conditions: Conditions::made_up(), bytes: 10, rows: vec![row], faults: Vec::new() }
    }

    #[test]
    fn a_policy_that_slows_a_transfer_down_is_named() {
        assert!(outcome(AckSender::CountsBytes, [1.0, 1.14, 0.5, 1.0]).is_good());
        assert!(!outcome(AckSender::CountsBytes, [1.0, 1.16, 1.0, 1.0]).is_good());
        assert!(!outcome(AckSender::Linux, [1.0, 1.0, 1.16, 1.0]).is_good());
        assert!(outcome(AckSender::CountsAcks, [1.0, 1.0, 1.16, 1.0]).is_good(), "it has fewer to count");
        assert!(!outcome(AckSender::CountsAcks, [1.0, 1.0, 1.0, 1.16]).is_good());
        let broken = AcksComparison { faults: vec!["a law".to_owned()], ..outcome(AckSender::Linux, [1.0; 4]) };
        assert!(!broken.is_good() && broken.to_string().contains("a law"));
    }
}
