//! Settings of `hold` -> round trips of small messages, through a border and through a wide interface.
//!
//! A message of 64 bytes crosses to the other host and back, over TCP and over UDP, before the next one is sent. TCP
//! sets PSH on each, so no hold time applies to it, and a UDP datagram is never held. So holding must add nothing.
//! The kernel alone carries the same messages: a bridge in place of the border, a stock interface in place of the
//! wide one.

use super::wide_interface::{broken, wait_until_idle};
use super::{Conditions, Spread, datagrams};
use crate::net::Offloading;
use crate::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4};
use crate::traffic;
use crate::two_hosts::TwoHosts;
use daemon::service::Service;
use linux::namespace::Namespace;
use rustix::net::sockopt;
use serde::Serialize;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Number of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct PingPongSettings {
    /// Number of rounds; each round measures every system once.
    pub rounds: usize,
    /// Round trips per system, transport and round.
    pub messages: usize,
}

/// Results of all systems.
#[derive(Clone, Debug, Serialize)]
pub struct PingPong {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// One row for each path, transport and holding.
    pub rows: Vec<PingPongRow>,
    /// Number of messages that did not return.
    pub lost: usize,
    /// Violated laws of the gateways' counters.
    pub broken: Vec<String>,
}

/// Round trips of one system over one transport.
#[derive(Clone, Debug, Serialize)]
pub struct PingPongRow {
    /// The path of the messages.
    pub path: PingPath,
    /// The transport of the messages.
    pub transport: PingTransport,
    /// The holding of segments.
    pub holding: PingHolding,
    /// Median round trip of each round, in microseconds.
    pub median: Spread,
    /// 99th percentile of each round, in microseconds.
    pub p99: Spread,
    /// Ratio of the median to that without holding on the same path.
    pub versus_off: f64,
}

/// The path of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PingPath {
    /// From a narrow host to a wide one, with a border between them.
    Border,
    /// Between two hosts, one of which has a wide interface.
    WideInterface,
}

/// The transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PingTransport {
    /// A connection. Each message has PSH.
    Tcp,
    /// One datagram for each message.
    Udp,
}

/// The holding of segments by the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PingHolding {
    /// The kernel alone carries the messages.
    Kernel,
    /// Wideload, with `coalesce = "resize"` and all flows exempt from holding.
    Off,
    /// Wideload, with `hold = "adaptive"`.
    Adaptive,
    /// Wideload, with `hold = "10ms"`.
    Long,
}

/// A started system, and the two hosts of the messages.
enum Started<'a> {
    Border(&'a ThreeHosts, Middle),
    WideInterface(&'a TwoHosts, Option<Box<Service>>),
}

impl Default for PingPongSettings {
    fn default() -> PingPongSettings {
        PingPongSettings { rounds: 5, messages: 2_000 }
    }
}

/// Measures all systems, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn ping_pong(settings: &PingPongSettings, mut tell: impl FnMut(&str)) -> io::Result<PingPong> {
    let (three_hosts, two_hosts) =
        (ThreeHosts::new(MTUS, Offloading::Checksums)?, TwoHosts::new(MTUS[1], Offloading::Checksums)?);
    let mut samples: Vec<Vec<[f64; 2]>> = vec![Vec::new(); ROWS];
    let (mut lost, mut faults) = (0, Vec::new());
    for round in 0..settings.rounds {
        for (number, (path, holding)) in systems().enumerate() {
            tell(&format!("round {} of {}: {path}, {}", round + 1, settings.rounds, holding.name()));
            let started = match path {
                PingPath::Border => Started::border(&three_hosts, holding)?,
                PingPath::WideInterface => Started::wide_interface(&two_hosts, holding)?,
            };
            let [from, to] = started.hosts();
            let micros = round_trips(connected(from, to, v4(WIDE))?, settings.messages)?;
            samples[2 * number].push([0.5, 0.99].map(|share| quantile(&micros, share)));
            let pings = datagrams::pings(from, to, v4(WIDE), settings.messages, MESSAGE_LEN)?;
            samples[2 * number + 1].push([pings.median, pings.p99]);
            lost += settings.messages - pings.count;
            faults.extend(started.end()?);
        }
    }
    let conditions = Conditions::here(settings.rounds);
    Ok(PingPong { conditions, rows: rows(&samples), lost, broken: faults })
}

fn systems() -> impl Iterator<Item = (PingPath, PingHolding)> {
    [PingPath::Border, PingPath::WideInterface]
        .into_iter()
        .flat_map(|path| PingHolding::ALL.map(|holding| (path, holding)))
}

fn rows(samples: &[Vec<[f64; 2]>]) -> Vec<PingPongRow> {
    let all = systems().flat_map(|system| [PingTransport::Tcp, PingTransport::Udp].map(|kind| (system, kind)));
    let mut rows: Vec<PingPongRow> = all
        .zip(samples)
        .filter_map(|(((path, holding), transport), samples)| {
            let [median, p99] = [0, 1].map(|at| Spread::of(samples.iter().map(|sample| sample[at])));
            Some(PingPongRow { path, transport, holding, median: median?, p99: p99?, versus_off: f64::NAN })
        })
        .collect();
    let beside = rows.clone();
    for row in &mut rows {
        if let Some(off) = off_of(&beside, row) {
            row.versus_off = row.median.median / off.median.median;
        }
    }
    rows
}

/// Returns the row without holding of the same path and transport.
fn off_of<'a>(rows: &'a [PingPongRow], of: &PingPongRow) -> Option<&'a PingPongRow> {
    let is_beside = |row: &&PingPongRow| (row.path, row.transport) == (of.path, of.transport);
    rows.iter().filter(is_beside).find(|row| row.holding == PingHolding::Off)
}

impl PingPong {
    /// Whether holding added nothing: each median is at most 1.1 times that without holding, plus the range of the
    /// rounds without holding.
    pub fn is_good(&self) -> bool {
        let is_quick = |row: &PingPongRow| {
            off_of(&self.rows, row).is_some_and(|off| {
                row.median.median <= ADDED_MAX * off.median.median + (off.median.most - off.median.least)
            })
        };
        let holds = |row: &&PingPongRow| matches!(row.holding, PingHolding::Adaptive | PingHolding::Long);
        self.lost == 0 && self.broken.is_empty() && self.rows.iter().filter(holds).all(is_quick)
    }
}

impl<'a> Started<'a> {
    fn border(hosts: &'a ThreeHosts, holding: PingHolding) -> io::Result<Started<'a>> {
        let middle = match holding.setting() {
            None => hosts.bridge()?,
            Some(setting) => hosts.gateway(&hosts.border("bypass = [\"flow-offload\"]", setting, ""))?,
        };
        hosts.wait_until_forwarding()?;
        Ok(Started::Border(hosts, middle))
    }

    fn wide_interface(hosts: &'a TwoHosts, holding: PingHolding) -> io::Result<Started<'a>> {
        let start = |setting| hosts.start(0, &hosts.wide_interface(0, MTUS[0], ["", setting, ""]));
        let service = holding.setting().map(start).transpose()?.map(Box::new);
        wait_until_idle(hosts)?;
        Ok(Started::WideInterface(hosts, service))
    }

    /// Returns the namespace of the asking host and that of the answering one.
    fn hosts(&self) -> [&'a Namespace; 2] {
        match self {
            Started::Border(hosts, _) => [hosts.narrow.space(), hosts.wide.space()],
            Started::WideInterface(hosts, _) => [hosts.hosts[1].space(), hosts.hosts[0].space()],
        }
    }

    /// Stops the system. Returns the violated laws of its counters.
    fn end(self) -> io::Result<Vec<String>> {
        match self {
            Started::Border(hosts, middle) => {
                let faults = match &middle {
                    Middle::Bridge => Vec::new(),
                    Middle::Gateway(service) => broken([&**service].into_iter())?,
                };
                hosts.clear(middle)?;
                Ok(faults)
            }
            Started::WideInterface(_, service) => {
                let faults = broken(service.as_deref().into_iter())?;
                if let Some(service) = service {
                    service.stop();
                }
                Ok(faults)
            }
        }
    }
}

impl PingHolding {
    const ALL: [PingHolding; 4] = [PingHolding::Kernel, PingHolding::Off, PingHolding::Adaptive, PingHolding::Long];

    /// The lines of the wide side's configuration; `None` for the kernel.
    fn setting(self) -> Option<&'static str> {
        match self {
            PingHolding::Kernel => None,
            PingHolding::Off => Some("coalesce = \"resize\"\nexempt = [\"0.0.0.0/0\"]"),
            PingHolding::Adaptive => Some("coalesce = \"resize\"\nhold = \"adaptive\""),
            PingHolding::Long => Some("coalesce = \"resize\"\nhold = \"10ms\""),
        }
    }

    fn name(self) -> &'static str {
        match self {
            PingHolding::Kernel => "kernel",
            PingHolding::Off => "off",
            PingHolding::Adaptive => "adaptive",
            PingHolding::Long => "10ms",
        }
    }
}

/// Opens a connection between two hosts. Returns its two sockets.
pub(super) fn connected(from: &Namespace, to: &Namespace, address: IpAddr) -> io::Result<[TcpStream; 2]> {
    let listener = to.enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = listener.local_addr()?;
    let client = from.enter(|| TcpStream::connect_timeout(&target, TIMEOUT))?;
    let (server, came_from) = listener.accept()?;
    debug_assert_eq!(came_from.ip(), v4(NARROW));
    for end in [&client, &server] {
        sockopt::set_tcp_congestion(end, traffic::CONGESTION)?;
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(TIMEOUT))?;
    }
    Ok([client, server])
}

/// Returns the round-trip times of small messages, in microseconds.
pub(super) fn round_trips([mut client, mut server]: [TcpStream; 2], count: usize) -> io::Result<Vec<f64>> {
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut room = [0; MESSAGE_LEN];
            for _ in 0..count {
                server.read_exact(&mut room)?;
                server.write_all(&room)?;
            }
            Ok::<_, io::Error>(())
        });
        let mut micros = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            client.write_all(&[7; MESSAGE_LEN])?;
            client.read_exact(&mut [0; MESSAGE_LEN])?;
            micros.push(began.elapsed().as_secs_f64() * 1e6);
        }
        echo.join().expect("an echo that panics has said why")?;
        Ok(micros)
    })
}

/// Returns the quantile of the values for a share from 0 to 1.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for PingPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PingPath::Border => "border",
            PingPath::WideInterface => "wide interface",
        })
    }
}

impl fmt::Display for PingPong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Messages of {MESSAGE_LEN} bytes to another host and back, one at a time.\n")?;
        writeln!(
            f,
            "{:<16}{:<11}{:<10}{:>12}{:>14}{:>12}",
            "path", "transport", "hold", "median, µs", "99 %, µs", "to off"
        )?;
        for row in &self.rows {
            let transport = if row.transport == PingTransport::Tcp { "TCP" } else { "UDP" };
            let (median, p99) = (row.median.median, row.p99.median);
            let name = row.holding.name();
            writeln!(
                f,
                "{:<16}{transport:<11}{name:<10}{median:>12.1}{p99:>14.1}{:>12.2}",
                row.path, row.versus_off
            )?;
        }
        writeln!(f, "\nmessages lost: {}", self.lost)?;
        self.broken.iter().try_for_each(|fault| writeln!(f, "broken: {fault}"))?;
        let answer = if self.is_good() { "nothing" } else { "too much, or a fault" };
        writeln!(f, "holding added: {answer} (limit: {ADDED_MAX} of the median without holding, and its range)")?;
        writeln!(f, "{}", self.conditions)
    }
}

/// MTUs of the wide link and of the narrow link.
const MTUS: [u32; 2] = [9_000, 1_500];
/// Number of rows: two paths, four kinds of holding, two transports.
const ROWS: usize = 16;
const MESSAGE_LEN: usize = 64;
/// Largest ratio of a median with holding to that without.
const ADDED_MAX: f64 = 1.1;
const TIMEOUT: Duration = Duration::from_secs(10);
