//! Saturating TCP connections through a border -> the delay of a new connection's SYN, and the shares of the
//! connections.
//!
//! ```text
//! wide host: 64 senders and SYNs ──── 9,000 ──── border ──── 1,500 ──── narrow host
//! ```
//!
//! The border's only worker is busy, so packets wait in front of it: in order of arrival, or by flow. A table of the
//! simulator's DMA engine shows the same question for the requests of a NIC (L16).

use super::saturation::{run_first, saturate, tcp_socket};
use super::tcp::StopWhenDropped;
use super::{Conditions, Spread};
use crate::chart::{Chart, Panel};
use crate::net::Offloading;
use crate::three_hosts::{Middle, NARROW, ThreeHosts, v4};
use rustix::net::{connect, sockopt};
use serde::Serialize;
use sim::machines::{DmaSettings, Load, Offload, WriteOrder};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct FairnessSettings {
    /// Number of rounds; each measures both orders.
    pub rounds: usize,
    /// Number of saturating connections.
    pub flows: usize,
    /// Duration of one measurement.
    pub stretch: Duration,
}

impl Default for FairnessSettings {
    fn default() -> FairnessSettings {
        FairnessSettings { rounds: 5, flows: 64, stretch: Duration::from_secs(4) }
    }
}

/// Results of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Number of saturating connections.
    pub flows: usize,
    /// Results with `queueing = "fifo"`, then with `queueing = "fair"`.
    pub rows: Vec<FairnessRow>,
    /// Results of the simulated NIC, by the order of its DMA requests.
    pub dma: Vec<DmaRow>,
    /// Violated laws of the gateways' counters.
    pub broken: Vec<String>,
}

/// Results with one order of packets in the worker. Each figure is the spread of its values in the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct FairnessRow {
    /// The value of the key `queueing`.
    pub queueing: &'static str,
    /// Median of the time from SYN to reply, in milliseconds.
    pub syn_median_ms: Spread,
    /// 99th percentile of the time from SYN to reply, in milliseconds.
    pub syn_p99_ms: Spread,
    /// Jain's fairness index of the connections' goodputs.
    pub jain: Spread,
    /// Goodput of all connections, in bits per second.
    pub bits_per_second: Spread,
    /// Frames that the kernel dropped because the worker did not read them in time.
    pub missed: Spread,
}

/// Results of the simulated NIC with one order of DMA requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DmaRow {
    /// The order of requests.
    pub order: &'static str,
    /// Median of the time from a SYN's arrival to its delivery, in milliseconds; `None` if it was not delivered.
    pub syn_median_ms: Option<f64>,
    /// 99th percentile of this time, in milliseconds; `None` if the SYN was not delivered.
    pub syn_p99_ms: Option<f64>,
    /// Share of the SYNs that took over a second. A host then repeats its SYN.
    pub late_share: f64,
    /// Jain's fairness index of the connections.
    pub jain: f64,
}

/// One measurement.
struct Round {
    syn_ms: Vec<f64>,
    bytes: Vec<u64>,
    seconds: f64,
    missed: u64,
}

impl Fairness {
    /// Whether the counters obey their laws, the fair order shares fairly, and it delays SYNs less.
    pub fn is_good(&self) -> bool {
        let [fifo, fair] = &self.rows[..] else { return false };
        self.broken.is_empty() && fair.jain.median >= JAIN_MIN && fair.syn_p99_ms.median < fifo.syn_p99_ms.median
    }

    /// Draws the delay of SYNs: of the border, and of the simulated NIC.
    pub fn chart(&self) -> Chart {
        let live: Vec<_> = self.rows.iter().map(|row| (row.queueing, row)).collect();
        let border = Panel {
            title: format!("border, {} connections", self.flows),
            categories: live.iter().map(|(name, _)| (*name).to_owned()).collect(),
            lines: vec![
                live.iter().map(|(_, row)| Some(row.syn_median_ms.median)).collect(),
                live.iter().map(|(_, row)| Some(row.syn_p99_ms.median)).collect(),
            ],
        };
        let nic = Panel {
            title: format!("simulated NIC, {} connections", DMA_FLOWS),
            categories: self.dma.iter().map(|row| row.order.to_owned()).collect(),
            lines: vec![
                self.dma.iter().map(|row| row.syn_median_ms).collect(),
                self.dma.iter().map(|row| row.syn_p99_ms).collect(),
            ],
        };
        Chart {
            title: "Time from SYN to reply, by the order of waiting packets".to_owned(),
            axis: "milliseconds".to_owned(),
            lines: ["median", "99th percentile"].map(str::to_owned).to_vec(),
            panels: vec![border, nic],
        }
    }
}

/// Measures all rounds, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn fairness(settings: &FairnessSettings, mut tell: impl FnMut(&str)) -> io::Result<Fairness> {
    let (mut all, mut broken) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..settings.rounds {
        for (queueing, rounds) in QUEUEINGS.into_iter().zip(&mut all) {
            tell(&format!("round {} of {}: queueing = \"{queueing}\"", round + 1, settings.rounds));
            rounds.push(turn(queueing, settings, &mut broken)?);
        }
    }
    tell("simulated DMA engines");
    Ok(Fairness {
        conditions: Conditions::here(settings.rounds),
        flows: settings.flows,
        rows: QUEUEINGS.into_iter().zip(&all).filter_map(|(queueing, rounds)| row(queueing, rounds)).collect(),
        dma: dma(),
        broken,
    })
}

fn row(queueing: &'static str, rounds: &[Round]) -> Option<FairnessRow> {
    let spread = |of: fn(&Round) -> f64| Spread::of(rounds.iter().map(of));
    Some(FairnessRow {
        queueing,
        syn_median_ms: spread(|round| quantile(&round.syn_ms, 0.5))?,
        syn_p99_ms: spread(|round| quantile(&round.syn_ms, 0.99))?,
        jain: spread(|round| jain(&round.bytes))?,
        bits_per_second: spread(|round| round.bytes.iter().sum::<u64>() as f64 * 8.0 / round.seconds)?,
        missed: spread(|round| round.missed as f64)?,
    })
}

fn turn(queueing: &str, settings: &FairnessSettings, broken: &mut Vec<String>) -> io::Result<Round> {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off)?;
    let more = format!("queueing = \"{queueing}\"\nbypass = [\"flow-offload\"]\n");
    let middle = three_hosts.gateway(&three_hosts.border(&more, "", ""))?;
    three_hosts.wait_until_forwarding()?;
    let mut round = load(&three_hosts, settings)?;
    if let Middle::Gateway(service) = &middle {
        for snapshot in service.snapshots()? {
            round.missed += snapshot.ends.iter().map(|end| end.missed).sum::<u64>();
            broken.extend(snapshot.directions.iter().filter_map(|direction| direction.broken.clone()));
        }
    }
    three_hosts.clear(middle)?;
    Ok(round)
}

/// Saturates the border, and opens connections meanwhile.
fn load(three_hosts: &ThreeHosts, settings: &FairnessSettings) -> io::Result<Round> {
    let (wide, narrow) = (three_hosts.wide.space(), three_hosts.narrow.space());
    let door = narrow.enter(|| TcpListener::bind(SocketAddr::new(v4(NARROW), 0)))?;
    let target = door.local_addr()?;
    let has_ended = AtomicBool::new(false);
    let (bytes, syn_ms) = saturate(wide, (narrow, v4(NARROW)), settings.flows, settings.stretch, |began| {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    // The connection is reset by the other host at once.
                    drop(door.accept());
                }
            });
            let probed = {
                let _stops = StopWhenDropped(&has_ended);
                wide.enter(|| probe(target, began, settings.stretch))
            };
            // The last connection ends the loop that accepts.
            let _ = wide.enter(|| TcpStream::connect_timeout(&target, REPLY_MAX));
            probed
        })
    })?;
    Ok(Round { syn_ms, bytes, seconds: settings.stretch.as_secs_f64(), missed: 0 })
}

/// Opens connections one after the other. Returns the time from SYN to reply for each, in milliseconds.
fn probe(target: SocketAddr, began: Instant, stretch: Duration) -> io::Result<Vec<f64>> {
    run_first();
    thread::sleep(began.saturating_duration_since(Instant::now()));
    let mut times = Vec::new();
    while Instant::now() < began + stretch {
        let socket = tcp_socket()?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(REPLY_MAX))?;
        // A reset at the end: no later segment of the connection is in the way of others.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        let sent = Instant::now();
        // Without a reply, the time is the time limit.
        let _ = connect(&socket, &target);
        times.push(sent.elapsed().as_secs_f64() * 1e3);
        drop(socket);
        thread::sleep(PROBE_GAP);
    }
    Ok(times)
}

/// Simulates a NIC whose DMA engine transfers each packet of 64 saturating connections, with each order of requests.
pub(super) fn dma() -> Vec<DmaRow> {
    let syns = (0..DMA_SYNS).map(|number| DMA_SPAN / 10 + DMA_SPAN * number / (2 * DMA_SYNS)).collect();
    let load = Load { syns, ..Load::back_to_back(DMA_FLOWS) };
    let with = |(name, order)| {
        let plain = Offload::plain();
        let card = Offload { dma: DmaSettings { order, ..plain.dma.clone() }, ..plain };
        let received = card.run(&load, DMA_SPAN);
        let waits: Vec<f64> = received
            .syn_waits
            .iter()
            .map(|wait| wait.map_or(f64::INFINITY, |wait| wait.as_secs_f64() * 1e3))
            .collect();
        let of = |share| Some(quantile(&waits, share)).filter(|wait| wait.is_finite());
        let late_count = waits.iter().filter(|wait| **wait > 1e3).count();
        DmaRow {
            order: name,
            syn_median_ms: of(0.5),
            syn_p99_ms: of(0.99),
            late_share: late_count as f64 / waits.len() as f64,
            jain: received.jain(),
        }
    };
    DMA_ORDERS.into_iter().map(with).collect()
}

/// Returns Jain's fairness index: 1 for equal shares, 1/n if only one of n gets a share (Jain, Chiu and Hawe 1984).
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Returns the quantile of the values for a share from 0 to 1.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SYNs among {} saturating TCP connections through a border with one worker.\n", self.flows)?;
        writeln!(
            f,
            "queueing   SYN p50 ms  min-max          SYN p99 ms  min-max          Jain   min    Gbit/s  missed"
        )?;
        for row in &self.rows {
            let range = |spread: &Spread| format!("{:.2}-{:.2}", spread.least, spread.most);
            writeln!(
                f,
                "{:<8} {:>12.2}  {:<15} {:>11.2}  {:<15} {:>6.3} {:>6.3} {:>8.2} {:>7.0}",
                row.queueing,
                row.syn_median_ms.median,
                range(&row.syn_median_ms),
                row.syn_p99_ms.median,
                range(&row.syn_p99_ms),
                row.jain.median,
                row.jain.least,
                row.bits_per_second.median / 1e9,
                row.missed.median,
            )?;
        }
        writeln!(f, "\nSYNs among {DMA_FLOWS} connections through the DMA engine of a simulated NIC.\n")?;
        writeln!(f, "order         SYN p50 ms  SYN p99 ms  over 1 s    Jain")?;
        for DmaRow { order, syn_median_ms, syn_p99_ms, late_share, jain } in &self.dma {
            let [median, p99] = [syn_median_ms, syn_p99_ms].map(|wait| super::cell(*wait, 2));
            writeln!(f, "{order:<11} {median:>12} {p99:>11} {:>7.0} % {jain:>7.3}", late_share * 100.0)?;
        }
        self.broken.iter().try_for_each(|broken| writeln!(f, "law broken: {broken}"))?;
        writeln!(
            f,
            "\nthe fair order is fair, and faster for SYNs: {}",
            if self.is_good() { "yes" } else { "no" }
        )?;
        writeln!(f, "{}", self.conditions)
    }
}

const QUEUEINGS: [&str; 2] = ["fifo", "fair"];
/// The DMA engine of Li's NIC has a stack of requests (L16).
const DMA_ORDERS: [(&str, WriteOrder); 3] =
    [("LIFO", WriteOrder::LastIn), ("FIFO", WriteOrder::FirstIn), ("round robin", WriteOrder::RoundRobin)];
/// Smallest index of a fair order.
const JAIN_MIN: f64 = 0.95;
/// Time between a reply and the next SYN.
const PROBE_GAP: Duration = Duration::from_millis(3);
/// Longest wait for a reply.
const REPLY_MAX: Duration = Duration::from_secs(4);
const DMA_FLOWS: u32 = 64;
const DMA_SYNS: u32 = 200;
const DMA_SPAN: Duration = Duration::from_secs(2);
