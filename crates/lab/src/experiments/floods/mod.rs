//! Floods of fragments -> the share of good datagrams still reassembled, by the engine and by the live kernel.
//!
//! Each good datagram has two fragments, sent at most half a millisecond apart. The flood consists of first
//! fragments of datagrams that never become complete. The kernel's reassembler and the engine's may each use 4 MiB.
//! Three systems are flooded. In the first, the live kernel behind a TUN device reassembles for a local socket. In
//! the second, the kernel forwards to the engine, which sends reassembled datagrams to a host with a socket. The
//! third system is the engine alone in simulated time. Two of the three floods are as fast as the device accepts
//! packets, or two million fragments per second in simulated time. The third, a slow drip, has the same rate
//! everywhere. One thread does everything, so no queue overflows, and only the reassembler drops datagrams.
//!
//! The drip has 150 fragments per second, which fill the kernel's table in about 12 seconds. The table then stays
//! full, because the kernel's time-out is 30 seconds. So the drip starts with the fragments of 20 seconds, sent
//! without pauses. Good datagrams follow while the drip continues.

mod load;
mod systems;

use super::Conditions;
use linux::clock::Clock;
use load::{Load, is_good};
use packet::{CopyError, Frame, Ingress, LinkType, Packet, Pool, Time, Version};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;
use systems::{Behind, Kernel, Rejoining, Target};

/// Durations of the floods, and their seed.
#[derive(Clone, Copy, Debug)]
pub struct FloodsSettings {
    /// Duration of each flood against the live kernel, and of each flood against the engine behind a TUN device.
    pub live: Duration,
    /// Duration of each simulated flood, in simulated time.
    pub simulated: Duration,
    /// Duration of the simulated drip, in simulated time. It must exceed the time-out of datagrams, so that old
    /// fragments expire.
    pub drip: Duration,
    /// Seed of the sources and IP IDs of the floods.
    pub seed: u64,
}

impl Default for FloodsSettings {
    fn default() -> FloodsSettings {
        FloodsSettings {
            live: Duration::from_secs(12),
            simulated: Duration::from_secs(6),
            drip: Duration::from_secs(90),
            seed: 0,
        }
    }
}

/// Results of all floods.
#[derive(Clone, Debug, Serialize)]
pub struct Floods {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// One row for each flood, version and system.
    pub rows: Vec<FloodRow>,
}

/// Results of one flood against one reassembler.
#[derive(Clone, Debug, Serialize)]
pub struct FloodRow {
    /// The kind of flood.
    pub flood: Flood,
    /// IP version, 4 or 6.
    pub version: u8,
    /// The attacked reassembler.
    pub system: ReassembledBy,
    /// Fragments of the flood per second.
    pub rate: f64,
    /// Number of good datagrams that were sent, apart from those in `set_aside`.
    pub sent: u64,
    /// Number of good datagrams that arrived complete, apart from those in `set_aside`.
    pub whole: u64,
    /// Number of good datagrams left out of the figures, because a busy machine sent their two fragments too far
    /// apart.
    pub set_aside: u64,
    /// Largest number of bytes that the engine held; `None` for the kernel.
    pub held_max: Option<usize>,
    /// Share of good datagrams that must arrive; `None` for the kernel, for which no share is required.
    pub wanted: Option<f64>,
}

/// Kind of flood that is sent together with the good datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flood {
    /// First fragments from random sources, as fast as possible.
    FirstFragments,
    /// First fragments from a thousand sources, as fast as possible.
    ThousandSources,
    /// First fragments from random sources, 150 per second.
    Drip,
}

/// The reassembler under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReassembledBy {
    /// The live kernel, behind a TUN device.
    Kernel,
    /// The engine, behind a TUN device.
    Engine,
    /// The engine, in simulated time.
    Simulated,
}

/// Runs all floods, and passes a description of each one to `tell` before it begins.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn floods(settings: &FloodsSettings, mut tell: impl FnMut(&str)) -> io::Result<Floods> {
    let conditions = Conditions::here(1);
    let mut rows = Vec::new();
    for flood in [Flood::FirstFragments, Flood::ThousandSources, Flood::Drip] {
        for version in [Version::V4, Version::V6] {
            for system in [ReassembledBy::Kernel, ReassembledBy::Engine, ReassembledBy::Simulated] {
                tell(&format!("{flood}, {version:?}, {system}"));
                rows.push(row(settings, flood, version, system)?);
            }
        }
    }
    Ok(Floods { conditions, rows })
}

fn row(settings: &FloodsSettings, flood: Flood, version: Version, system: ReassembledBy) -> io::Result<FloodRow> {
    let load = || Load::new(flood, version, settings.seed);
    let mut row = match system {
        ReassembledBy::Kernel => seen(|| live(&mut load(), settings.live, &mut Kernel::open(version)?))?,
        ReassembledBy::Engine => seen(|| live(&mut load(), settings.live, &mut Behind::open(version)?))?,
        ReassembledBy::Simulated if flood == Flood::Drip => simulated(&mut load(), settings.drip),
        ReassembledBy::Simulated => simulated(&mut load(), settings.simulated),
    };
    row.system = system;
    row.wanted = (system != ReassembledBy::Kernel).then_some(match flood {
        Flood::FirstFragments => 0.999,
        Flood::ThousandSources => 0.9999,
        Flood::Drip => 1.0,
    });
    Ok(row)
}

/// Runs a live flood, at most [`TRIES`] times, until some good datagrams count. On a busy machine, all may be left
/// out.
fn seen(mut live: impl FnMut() -> io::Result<FloodRow>) -> io::Result<FloodRow> {
    let mut row = live()?;
    for _ in 1..TRIES {
        if row.sent > 0 {
            break;
        }
        row = live()?;
    }
    Ok(row)
}

/// Writes a flood to a TUN device, and counts the good datagrams that arrive.
fn live(load: &mut Load, stretch: Duration, target: &mut impl Target) -> io::Result<FloodRow> {
    wait_until_it_joins(load, target)?;
    let mut ledger = GoodDatagrams::default();
    if load.flood == Flood::Drip {
        for _ in 0..DRIP_BEFORE {
            target.write(load.next())?;
        }
    }
    target.arrived(&mut |number| ledger.arrive(number))?;
    let clock = Clock::start();
    let (mut next_good, mut waiting): (Time, Option<(Time, u64, Vec<u8>)>) = (Time::ZERO, None);
    let before = load.count;
    loop {
        let now = clock.now();
        if now.nanos() > stretch.as_nanos() as u64 {
            break;
        }
        if let Some((since, number, second)) = waiting.take_if(|(since, ..)| now.since(*since) >= GAP) {
            target.write(&second)?;
            if clock.now().since(since) > GAP_MAX {
                ledger.set_aside(number);
            }
        }
        if waiting.is_none() && now >= next_good {
            let [first, second] = load.good();
            target.write(&first)?;
            waiting = Some((clock.now(), load.good_count, second));
            next_good = next_good.max(now) + GOOD_EACH;
        }
        match load.flood {
            Flood::Drip => {
                let due = before + now.nanos() * DRIP_RATE / 1_000_000_000;
                if load.count < due {
                    target.write(load.next())?;
                }
                thread::sleep(Duration::from_micros(50));
            }
            _ => (0..BURST).try_for_each(|_| target.write(load.next()))?,
        }
        target.arrived(&mut |number| ledger.arrive(number))?;
    }
    let seconds = clock.now().nanos() as f64 / 1e9;
    let rate = (load.count - before) as f64 / seconds;
    // The second fragment of a datagram that still waits was never sent.
    let sent = load.good_count - u64::from(waiting.is_some());
    for _ in 0..SETTLE {
        target.arrived(&mut |number| ledger.arrive(number))?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(ledger.row(load, rate, sent, target.held_max()))
}

/// Sends good datagrams until some arrive, because a new host's addresses and routes are not ready immediately.
fn wait_until_it_joins(load: &Load, target: &mut impl Target) -> io::Result<()> {
    let mut probes = Load::new(load.flood, load.version, 0);
    // These numbers differ from those of the flood's good datagrams.
    probes.good_count = 1 << 40;
    let mut seen = 0;
    for _ in 0..PROBES_MAX {
        for fragment in probes.good() {
            target.write(&fragment)?;
        }
        target.arrived(&mut |_| seen += 1)?;
        if seen >= PROBES {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Err(io::Error::other("no datagram arrives through the TUN device; check if a firewall drops it"))
}

/// Numbers of the good datagrams that have arrived, and of those left out of the figures.
#[derive(Default)]
struct GoodDatagrams {
    arrived: Vec<u64>,
    aside: Vec<u64>,
}

impl GoodDatagrams {
    fn arrive(&mut self, number: u64) {
        self.arrived.push(number);
    }

    fn set_aside(&mut self, number: u64) {
        self.aside.push(number);
    }

    fn row(mut self, load: &Load, rate: f64, sent: u64, held_max: Option<usize>) -> FloodRow {
        self.arrived.sort_unstable();
        self.arrived.dedup();
        self.arrived.retain(|number| *number <= sent && !self.aside.contains(number));
        let set_aside = self.aside.len() as u64;
        FloodRow {
            flood: load.flood,
            version: if load.version == Version::V4 { 4 } else { 6 },
            system: ReassembledBy::Simulated,
            rate,
            sent: sent - set_aside,
            whole: self.arrived.len() as u64,
            set_aside,
            held_max,
            wanted: None,
        }
    }
}

/// Pushes a flood into the engine, in simulated time.
fn simulated(load: &mut Load, stretch: Duration) -> FloodRow {
    let rate = if load.flood == Flood::Drip { DRIP_RATE } else { SIMULATED_RATE };
    let (mut rejoining, mut ledger) = (Rejoining::new(), GoodDatagrams::default());
    let mut expected = Vec::new();
    let mut seconds: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let step = Duration::from_nanos(1_000_000_000 / rate);
    let (mut now, mut next_flood, mut next_good) = (Time::ZERO, Time::ZERO, Time::ZERO);
    let end = Time::ZERO + stretch;
    while now < end || !seconds.is_empty() {
        let second_at = seconds.front().map_or(Time::NEVER, |(at, _)| *at);
        let good_at = if next_good < end { next_good } else { Time::NEVER };
        now = second_at.min(next_flood).min(good_at);
        let header_len = if load.version == Version::V4 { 28 } else { 48 };
        let packet = if now == second_at {
            seconds.pop_front().map(|(_, fragment)| copy(&fragment, rejoining.pool()))
        } else if now == good_at {
            let [first, second] = load.good();
            seconds.push_back((now + GAP_MAX, second));
            next_good = now + GOOD_EACH;
            Some(copy(&first, rejoining.pool()))
        } else {
            next_flood = now + step;
            Some(copy(load.next(), rejoining.pool()))
        };
        let Some(Ok(packet)) = packet else { continue };
        let took = rejoining.push(now, Frame::Ip(packet), |fragment| {
            is_good(&fragment[header_len..], &mut expected).into_iter().for_each(|number| ledger.arrive(number));
            Ok(())
        });
        took.expect("what only looks cannot fail");
    }
    let rate = load.count as f64 / stretch.as_secs_f64();
    let held_max = Some(rejoining.held_max);
    ledger.row(load, rate, load.good_count, held_max)
}

fn copy(fragment: &[u8], pool: &mut Pool) -> Result<Packet, CopyError> {
    Frame::copy(fragment, LinkType::Ip, Ingress(0), pool)
}

impl FloodRow {
    /// Whether the required share of good datagrams arrived.
    pub fn is_good(&self) -> bool {
        self.wanted.is_none_or(|wanted| self.sent > 0 && self.share() >= wanted)
    }

    /// Returns the share of the good datagrams that arrived.
    pub fn share(&self) -> f64 {
        self.whole as f64 / self.sent.max(1) as f64
    }
}

impl Floods {
    /// Whether the required share of good datagrams arrived in every row.
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(FloodRow::is_good)
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Flood::FirstFragments => "first fragments, all sources",
            Flood::ThousandSources => "1,000 sources",
            Flood::Drip => "slow drip",
        })
    }
}

impl fmt::Display for ReassembledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ReassembledBy::Kernel => "the kernel",
            ReassembledBy::Engine => "the engine",
            ReassembledBy::Simulated => "the engine, simulated",
        })
    }
}

impl fmt::Display for Floods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Good datagrams of two fragments, at most {GAP_MAX:?} apart, during floods of fragments. Memory limit of each system: 4 MiB.\n"
        )?;
        writeln!(
            f,
            "{:<30}{:<4}{:<23}{:>12}{:>8}{:>8}{:>11}{:>9}{:>11}{:>12}",
            "flood",
            "IP",
            "reassembled by",
            "fragments/s",
            "good",
            "whole",
            "share",
            "minimum",
            "excluded",
            "max. bytes"
        )?;
        for row in &self.rows {
            let FloodRow { flood, version, system, rate, sent, whole, set_aside, held_max, wanted } = row;
            let wanted = wanted.map_or_else(|| "-".to_owned(), |wanted| format!("{:.2} %", wanted * 100.0));
            let held = held_max.map_or_else(|| "-".to_owned(), |held| held.to_string());
            let (share, mark) = (row.share() * 100.0, if row.is_good() { "" } else { "  below minimum" });
            writeln!(
                f,
                "{flood:<30}{version:<4}{system:<23}{rate:>12.0}{sent:>8}{whole:>8}{share:>9.3} %{wanted:>9}{set_aside:>11}{held:>12}{mark}"
            )?;
        }
        writeln!(f, "\n{}", self.conditions)
    }
}

/// Interval between good datagrams.
const GOOD_EACH: Duration = Duration::from_micros(500);
const GAP: Duration = Duration::from_micros(300);
const GAP_MAX: Duration = Duration::from_micros(500);
/// Fragments of a flood that are written in one burst.
const BURST: usize = 16;
/// Fragments per second of a simulated flood.
const SIMULATED_RATE: u64 = 2_000_000;
const DRIP_RATE: u64 = 150;
/// Number of a drip's fragments that are sent first without pauses: those of 20 seconds.
const DRIP_BEFORE: u64 = 20 * DRIP_RATE;
/// Number of good datagrams that must arrive before a flood begins.
const PROBES: usize = 20;
const PROBES_MAX: usize = 5_000;
/// Number of tries for a live flood whose good datagrams are all left out.
const TRIES: usize = 3;
/// Time after which no packet is in flight, in milliseconds.
const SETTLE: u32 = 20;
