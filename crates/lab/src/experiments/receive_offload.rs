//! Numbers of connections -> goodput with and without receive offload: of a simulated NIC, and of a border.
//!
//! ```text
//! narrow host: senders ──── 1,500 ──── border ──── 9,000 ──── wide host
//! ```
//!
//! The simulated NIC is that of a paper, which publishes few figures: the model shows whether one DMA engine and
//! thirteen threads explain them (lB1 to lB7, lB9). The border's only worker receives each narrow packet with and without
//! coalescing, so it gains less than the NIC.

use super::fairness::dma;
use super::saturation::saturate;
use super::{Conditions, Spread, cell};
use crate::chart::{Chart, Panel};
use crate::net::Offloading;
use crate::three_hosts::{Middle, ThreeHosts, WIDE, v4};
use daemon::service::Service;
use engine::Toward;
use serde::Serialize;
use sim::machines::{Dma, Load, Offload, Received};
use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Extent of the measurement.
#[derive(Clone, Debug)]
pub struct ReceiveOffloadSettings {
    /// Numbers of connections of the simulated NIC.
    pub connections: Vec<u32>,
    /// Numbers of connections of the border.
    pub live_connections: Vec<usize>,
    /// Number of measurements of the border for each figure; 0: none.
    pub rounds: usize,
    /// Duration of one measurement of the border.
    pub stretch: Duration,
}

impl Default for ReceiveOffloadSettings {
    fn default() -> ReceiveOffloadSettings {
        ReceiveOffloadSettings {
            connections: vec![1, 2, 4, 8, 16, 32, 64, 1_000, 10_000],
            live_connections: vec![1, 4, 16, 64],
            rounds: 0,
            stretch: Duration::from_secs(2),
        }
    }
}

/// Results of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveOffload {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// The simulated NIC, by number of connections.
    pub nic: Vec<OffloadNicRow>,
    /// The paper's figures and those of the simulated NIC.
    pub paper: Vec<OffloadPaperRow>,
    /// The border, by number of connections.
    pub border: Vec<OffloadBorderRow>,
    /// Violated laws of the gateways' counters.
    pub broken: Vec<String>,
}

/// Goodput of the simulated NIC with a number of connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffloadNicRow {
    /// Number of connections.
    pub connections: u32,
    /// Goodput without receive offload, in bits per second.
    pub without_offload: f64,
    /// Goodput with receive offload, in bits per second.
    pub with_offload: f64,
    /// Mean number of segments in a delivery to the host, with receive offload.
    pub segments_per_delivery: f64,
    /// Number of receiving threads with at least one connection.
    pub threads_used: usize,
}

/// A figure of the paper, and that of the simulated NIC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffloadPaperRow {
    /// The figure, with its unit.
    pub figure: &'static str,
    /// The paper's value; `None` if it gives none.
    pub paper: Option<f64>,
    /// The value of the simulated NIC.
    pub here: f64,
    /// Smallest value that counts as reproduced.
    pub least: f64,
    /// Largest value that counts as reproduced.
    pub most: f64,
}

/// A border with a number of connections, without and with coalescing.
#[derive(Clone, Debug, Serialize)]
pub struct OffloadBorderRow {
    /// Number of connections.
    pub connections: usize,
    /// Goodput without coalescing, in bits per second.
    pub without_coalescing: Spread,
    /// Goodput with coalescing, in bits per second.
    pub with_coalescing: Spread,
    /// Ratio of the goodputs in the same round: with coalescing to without it.
    pub goodput_ratio: Spread,
    /// Ratio of the worker's CPU time for a byte in the same round: without coalescing to with it.
    pub worker_ratio: Spread,
    /// Ratio of the packets that the worker receives and sends for a byte: without coalescing to with it. It is the ratio of
    /// CPU times if each packet costs the same.
    pub packet_ratio: Spread,
    /// Mean number of segments in a packet toward the wide host, with coalescing.
    pub segments_per_packet: Spread,
}

/// One measurement of the border.
#[derive(Clone, Copy)]
struct Sample {
    bits_per_second: f64,
    worker_seconds_per_byte: f64,
    packets_per_byte: f64,
    segments_per_packet: f64,
}

impl OffloadPaperRow {
    /// Whether the figure is reproduced.
    pub fn is_reproduced(&self) -> bool {
        (self.least..=self.most).contains(&self.here)
    }
}

impl ReceiveOffload {
    /// Whether every figure of the paper is reproduced, and the counters obey their laws.
    pub fn is_good(&self) -> bool {
        self.paper.iter().all(OffloadPaperRow::is_reproduced) && self.broken.is_empty()
    }

    /// Draws the goodput by number of connections.
    pub fn chart(&self) -> Chart {
        let mut panels = vec![Panel {
            title: "simulated NIC".to_owned(),
            categories: self.nic.iter().map(|row| row.connections.to_string()).collect(),
            lines: vec![
                self.nic.iter().map(|row| Some(row.without_offload / 1e9)).collect(),
                self.nic.iter().map(|row| Some(row.with_offload / 1e9)).collect(),
            ],
        }];
        if !self.border.is_empty() {
            panels.push(Panel {
                title: "border with one worker".to_owned(),
                categories: self.border.iter().map(|row| row.connections.to_string()).collect(),
                lines: vec![
                    self.border.iter().map(|row| Some(row.without_coalescing.median / 1e9)).collect(),
                    self.border.iter().map(|row| Some(row.with_coalescing.median / 1e9)).collect(),
                ],
            });
        }
        Chart {
            title: "Goodput by number of connections".to_owned(),
            axis: "Gbit/s".to_owned(),
            lines: ["without coalescing", "with coalescing"].map(str::to_owned).to_vec(),
            panels,
        }
    }
}

/// Simulates the NIC and measures the border, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice. Only the measurement of the border has errors.
pub fn receive_offload(
    settings: &ReceiveOffloadSettings,
    mut tell: impl FnMut(&str),
) -> io::Result<ReceiveOffload> {
    let nic = settings.connections.iter().map(|connections| {
        tell(&format!("simulated NIC: {connections} connections"));
        nic_row(*connections)
    });
    let nic = nic.collect();
    tell("simulated NIC: the paper's figures");
    let paper = paper();
    let (mut border, mut broken) = (Vec::new(), Vec::new());
    for connections in settings.live_connections.iter().filter(|_| settings.rounds > 0) {
        let mut samples = Vec::new();
        for round in 0..settings.rounds {
            tell(&format!("border: {connections} connections, round {} of {}", round + 1, settings.rounds));
            let mut with = |bypass| sample(*connections, settings.stretch, bypass, &mut broken);
            samples.push([with("\"flow-offload\", \"coalesce\"")?, with("\"flow-offload\"")?]);
        }
        border.extend(border_row(*connections, &samples));
    }
    Ok(ReceiveOffload { conditions: Conditions::here(settings.rounds), nic, paper, border, broken })
}

fn nic_row(connections: u32) -> OffloadNicRow {
    let load = Load::back_to_back(connections);
    // The measurement covers several rounds of packets of all connections.
    let span = SPAN.max(Duration::from_micros(150) * connections);
    let offloaded = Offload::xls416().run(&load, span);
    OffloadNicRow {
        connections,
        without_offload: Offload::plain().run(&load, span).bits_per_second(),
        with_offload: offloaded.bits_per_second(),
        segments_per_delivery: per_delivery(&offloaded),
        threads_used: offloaded.threads_used,
    }
}

fn per_delivery(received: &Received) -> f64 {
    received.segments as f64 / received.deliveries.max(1) as f64
}

/// Compares the paper's figures with the model.
fn paper() -> Vec<OffloadPaperRow> {
    let within = |figure, paper: f64, here: f64, share: f64| {
        let (least, most) = (paper * (1.0 - share), paper * (1.0 + share));
        OffloadPaperRow { figure, paper: Some(paper), here, least, most }
    };
    let offloaded = Offload::xls416().run(&Load::back_to_back(64), SPAN);
    let plateau = offloaded.bits_per_second();
    let plain = Offload::plain().run(&Load::back_to_back(64), SPAN).bits_per_second();
    let alone = Offload::xls416().run(&Load::back_to_back(1), SPAN);
    let engine = Dma::new(Offload::xls416().dma);
    // 8 KB in flight, and no more before an acknowledgement that comes after the time-out.
    let few = Load { window: 5, trip: Duration::from_millis(20), ..Load::back_to_back(1) };
    let stalled = Offload::xls416().run(&few, SPAN);
    let orders = dma();
    let order = |name| orders.iter().find(|row| row.order == name).expect("an order of the model");
    let (stack, turns) = (order("LIFO"), order("round robin"));
    let round_ms = engine.time_alone(1_500).as_secs_f64() * 1e3 * 65.0;
    let at_least = |figure, paper, here, least| OffloadPaperRow { figure, paper, here, least, most: f64::INFINITY };
    let at_most =
        |figure, paper, here, most| OffloadPaperRow { figure, paper, here, least: f64::NEG_INFINITY, most };
    vec![
        within("goodput of 64 connections with offload, Gbit/s", 4.75, plateau / 1e9, 0.10),
        within("goodput of 64 connections without it, Mbit/s", 913.3, plain / 1e6, 0.05),
        at_least("ratio of both", Some(5.2), plateau / plain, 4.4),
        within("goodput of one connection with offload, Mbit/s", 365.0, alone.bits_per_second() / 1e6, 0.05),
        within("DMA of 1,500 bytes, us", 12.68, engine.time_alone(1_500).as_secs_f64() * 1e6, 0.02),
        at_most("DMA of 64 KB, us", Some(110.0), engine.time_alone(65_535).as_secs_f64() * 1e6, 115.0),
        at_least("segments in a delivery", Some(45.3), per_delivery(&offloaded), 0.9 * 45.0),
        at_least("partial deliveries a second (5 of 45 segments)", None, deliveries(&stalled), 1.0),
        at_least("LIFO: SYNs that wait over 1 s, %", None, stack.late_share * 100.0, 0.5),
        at_most(
            "round robin: 99th percentile of SYNs, ms",
            None,
            turns.syn_p99_ms.unwrap_or(f64::MAX),
            2.0 * round_ms,
        ),
        at_least("round robin: Jain's index", None, turns.jain, 0.95),
        within("threads used by 64 connections, of 13", 12.9, offloaded.threads_used as f64, 0.05),
    ]
}

fn deliveries(received: &Received) -> f64 {
    received.deliveries as f64 / received.span.as_secs_f64()
}

fn border_row(connections: usize, samples: &[[Sample; 2]]) -> Option<OffloadBorderRow> {
    let spread = |of: &dyn Fn(&[Sample; 2]) -> f64| Spread::of(samples.iter().map(of));
    Some(OffloadBorderRow {
        connections,
        without_coalescing: spread(&|[off, _]| off.bits_per_second)?,
        with_coalescing: spread(&|[_, on]| on.bits_per_second)?,
        goodput_ratio: spread(&|[off, on]| on.bits_per_second / off.bits_per_second)?,
        worker_ratio: spread(&|[off, on]| off.worker_seconds_per_byte / on.worker_seconds_per_byte)?,
        packet_ratio: spread(&|[off, on]| off.packets_per_byte / on.packets_per_byte)?,
        segments_per_packet: spread(&|[_, on]| on.segments_per_packet)?,
    })
}

/// Measures a border whose worker receives all packets, with these stages off.
fn sample(connections: usize, stretch: Duration, bypass: &str, broken: &mut Vec<String>) -> io::Result<Sample> {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off)?;
    let middle = three_hosts.gateway(&three_hosts.border(&format!("bypass = [{bypass}]\n"), "", ""))?;
    three_hosts.wait_until_forwarding()?;
    let Middle::Gateway(service) = &middle else { return Err(io::Error::other("the middle is a gateway")) };
    let (wide, narrow) = (three_hosts.wide.space(), three_hosts.narrow.space());
    let (bytes, [before, after]) = saturate(narrow, (wide, v4(WIDE)), connections, stretch, |began| {
        thread::sleep(began.saturating_duration_since(Instant::now()));
        let before = Work::of(service)?;
        thread::sleep(stretch);
        Ok([before, Work::of(service)?])
    })?;
    for snapshot in service.snapshots()? {
        broken.extend(snapshot.directions.iter().filter_map(|direction| direction.broken.clone()));
    }
    three_hosts.clear(middle)?;
    let bytes = bytes.iter().sum::<u64>().max(1) as f64;
    let [received, sent] = [after.received - before.received, after.sent - before.sent].map(|count| count as f64);
    Ok(Sample {
        bits_per_second: bytes * 8.0 / stretch.as_secs_f64(),
        worker_seconds_per_byte: (after.seconds - before.seconds) / bytes,
        packets_per_byte: (received + sent) / bytes,
        segments_per_packet: received / sent.max(1.0),
    })
}

/// The work of all workers so far: packets toward the wide host, and CPU time.
#[derive(Clone, Copy)]
struct Work {
    received: u64,
    sent: u64,
    seconds: f64,
}

impl Work {
    fn of(service: &Service) -> io::Result<Work> {
        let mut work = Work { received: 0, sent: 0, seconds: 0.0 };
        for snapshot in service.snapshots()? {
            let ledger = &snapshot.directions[Toward::Wide.direction()].ledger;
            work.received += ledger.received.packets;
            work.sent += ledger.forwarded.packets;
            work.seconds += snapshot.processor_time.as_secs_f64();
        }
        Ok(work)
    }
}

impl fmt::Display for ReceiveOffload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Simulated NIC: goodput in Gbit/s with and without receive offload.\n")?;
        writeln!(f, "connections  without   with  ratio  segments/delivery  threads used")?;
        for row in &self.nic {
            writeln!(
                f,
                "{:>11} {:>8.3} {:>6.3} {:>6.2} {:>18.1} {:>13}",
                row.connections,
                row.without_offload / 1e9,
                row.with_offload / 1e9,
                row.with_offload / row.without_offload,
                row.segments_per_delivery,
                row.threads_used
            )?;
        }
        writeln!(f, "\n{:<48} {:>7} {:>7}  reproduced", "figure", "paper", "here")?;
        for row in &self.paper {
            let is_reproduced = if row.is_reproduced() { "yes" } else { "no" };
            writeln!(f, "{:<48} {:>7} {:>7.2}  {is_reproduced}", row.figure, cell(row.paper, 2), row.here)?;
        }
        if !self.border.is_empty() {
            writeln!(
                f,
                "\nBorder with one worker, without flow offload: goodput in Gbit/s, and ratios of the same"
            )?;
            writeln!(f, "round: of goodputs, of the worker's CPU time, of its packets.\n")?;
            writeln!(f, "connections  without   with  goodput  min-max    CPU time  packets  segments")?;
        }
        for row in &self.border {
            writeln!(
                f,
                "{:>11} {:>8.2} {:>6.2} {:>8.2}  {:<9} {:>9.2} {:>8.2} {:>9.1}",
                row.connections,
                row.without_coalescing.median / 1e9,
                row.with_coalescing.median / 1e9,
                row.goodput_ratio.median,
                format!("{:.2}-{:.2}", row.goodput_ratio.least, row.goodput_ratio.most),
                row.worker_ratio.median,
                row.packet_ratio.median,
                row.segments_per_packet.median,
            )?;
        }
        self.broken.iter().try_for_each(|broken| writeln!(f, "law broken: {broken}"))?;
        writeln!(f, "{}", self.conditions)
    }
}

/// Simulated time of a measurement of the NIC.
const SPAN: Duration = Duration::from_millis(300);
