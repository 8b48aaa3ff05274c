//! Two thousand message lengths -> the lengths at which goodput dips (G28, gB6).
//!
//! Each length gets short bursts, in several sweeps over all lengths. A length has a dip if its goodput is more
//! than 20 % below the median of its ten neighbours in two of three sweeps. Other load of the machine affects a
//! length in one sweep; a cause in the length itself affects it in every sweep. The first and the last five lengths
//! lack neighbours, so they are not judged.
//!
//! Even so, other load affects some of two thousand lengths in two sweeps. So lengths with a dip are suspects: they
//! are measured again, with their neighbours, in the same number of sweeps. A real dip recurs every time.
//!
//! A pause follows each burst. A wide interface uses each IPv4 ID once in two seconds, which limits a pair of hosts
//! to about 61,000 fragmented messages in this time. Further messages would be dropped, whatever their length.

use super::datagrams::{self, Inbox, Load, MESSAGE_LEN_MAX, Received};
use super::wide_interface::{Stack, broken, start_on, wait_until_idle};
use super::{Conditions, Spread};
use crate::net::Offloading;
use crate::three_hosts::v4;
use crate::two_hosts::TwoHosts;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Number of lengths, sweeps and bursts.
#[derive(Clone, Debug)]
pub struct DipsSettings {
    /// MTU of the link, in bytes.
    pub mtu: u32,
    /// Number of lengths, from 64 bytes to the longest message.
    pub lens: usize,
    /// Number of sweeps over all lengths.
    pub sweeps: usize,
    /// Bursts at each length in each sweep. Only the best burst's goodput is used.
    pub bursts: usize,
    /// Approximate payload of each burst, in bytes.
    pub burst_len: usize,
    /// Largest number of times that suspects are measured again.
    pub looks: usize,
}

/// Results of all sweeps.
#[derive(Clone, Debug, Serialize)]
pub struct Dips {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// MTU of the link, in bytes.
    pub mtu: u32,
    /// Sweeps with stock interfaces on both hosts, then sweeps with wide interfaces on both hosts.
    pub systems: Vec<Sweeps>,
    /// Whether no message arrived changed or twice.
    pub intact: bool,
    /// Violated laws of the gateways' counters.
    pub broken: Vec<String>,
}

/// Goodput by message length, with one kind of interface.
#[derive(Clone, Debug, Serialize)]
pub struct Sweeps {
    /// Kind of interface of both hosts.
    pub stack: Stack,
    /// Lengths of messages, in bytes.
    pub lens: Vec<usize>,
    /// Goodput at each length in each sweep, in 10^6 bits per second.
    pub goodput: Vec<Vec<f64>>,
    /// Number of messages that did not arrive.
    pub lost: u64,
    /// Lengths with a dip in these sweeps.
    pub suspects: Vec<Dip>,
    /// Suspects with a dip in every later measurement.
    pub dips: Vec<Dip>,
}

/// A length at which goodput dips.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dip {
    /// Length of the message, in bytes.
    pub len: usize,
    /// Ratio of the goodput to the median of the neighbours: the median over the sweeps.
    pub share: f64,
}

/// Sender and receiver of the bursts.
struct DipEdges {
    outbox: UdpSocket,
    jobs: mpsc::Sender<(u64, Load)>,
    done: mpsc::Receiver<io::Result<Received>>,
    pattern: Vec<u8>,
    next: u64,
}

impl Default for DipsSettings {
    fn default() -> DipsSettings {
        DipsSettings { mtu: 1_500, lens: 2_000, sweeps: 3, bursts: 3, burst_len: 400_000, looks: 3 }
    }
}

/// Measures all sweeps, in turn with stock and with wide interfaces. Passes a description of each sweep to `tell`
/// before it begins.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn dips(settings: &DipsSettings, mut tell: impl FnMut(&str)) -> io::Result<Dips> {
    let pair = TwoHosts::new(settings.mtu, Offloading::Off)?;
    let lens = lens(settings.lens);
    let sweeps = |stack| Sweeps {
        stack,
        lens: lens.clone(),
        goodput: Vec::new(),
        lost: 0,
        suspects: Vec::new(),
        dips: Vec::new(),
    };
    let mut outcome = Dips {
        conditions: Conditions::here(settings.sweeps),
        mtu: settings.mtu,
        systems: [Stack::Stock, Stack::Wide].map(sweeps).into(),
        intact: true,
        broken: Vec::new(),
    };
    for round in 0..settings.sweeps {
        for number in 0..outcome.systems.len() {
            tell(&format!("sweep {} of {}, {}", round + 1, settings.sweeps, outcome.systems[number].stack));
            let figures = outcome.sweep(&pair, settings, number, &lens)?;
            outcome.systems[number].goodput.push(figures);
        }
    }
    for system in &mut outcome.systems {
        system.suspects = dips_in(&system.lens, &system.goodput);
        system.dips.clone_from(&system.suspects);
    }
    for look in 0..settings.looks {
        for number in 0..outcome.systems.len() {
            let system = &outcome.systems[number];
            let (stack, dips) = (system.stack, system.dips.clone());
            let windows: Vec<&[usize]> = dips.iter().map(|dip| window(&lens, dip.len)).collect();
            let around: BTreeSet<usize> = windows.iter().copied().flatten().copied().collect();
            let around: Vec<usize> = around.into_iter().collect();
            let mut goodput = Vec::new();
            for round in 0..if dips.is_empty() { 0 } else { settings.sweeps } {
                tell(&format!(
                    "repetition {} for {} dips, sweep {} of {}, {stack}",
                    look + 1,
                    dips.len(),
                    round + 1,
                    settings.sweeps
                ));
                goodput.push(outcome.sweep(&pair, settings, number, &around)?);
            }
            outcome.systems[number].dips =
                windows.into_iter().flat_map(|window| repeat(window, &around, &goodput)).collect();
        }
    }
    Ok(outcome)
}

/// Returns a length with the five lengths before it and the five lengths after it.
fn window(lens: &[usize], len: usize) -> &[usize] {
    let at = lens.partition_point(|other| *other < len);
    &lens[at - NEIGHBOURS / 2..=at + NEIGHBOURS / 2]
}

/// Returns the dip of the length in the middle of a window; an empty list if there is none.
fn repeat(window: &[usize], lens: &[usize], goodput: &[Vec<f64>]) -> Vec<Dip> {
    let at = |len: &usize| lens.partition_point(|other| other < len);
    let of_window = |sweep: &Vec<f64>| window.iter().map(|len| sweep[at(len)]).collect();
    dips_in(window, &goodput.iter().map(of_window).collect::<Vec<_>>())
}

/// Returns `count` message lengths from 64 bytes to the longest message, evenly spaced apart from rounding.
fn lens(count: usize) -> Vec<usize> {
    let last = count.saturating_sub(1).max(1);
    (0..count).map(|index| LEN_MIN + index * (MESSAGE_LEN_MAX - LEN_MIN) / last).collect()
}

impl Dips {
    /// Whether every message arrived unchanged and without duplicates, and the gateways' counters add up.
    pub fn is_good(&self) -> bool {
        self.intact && self.lost() == 0 && self.broken.is_empty()
    }

    /// Returns the number of messages that did not arrive.
    fn lost(&self) -> u64 {
        self.systems.iter().map(|system| system.lost).sum()
    }

    /// Measures the goodput of one sweep over these lengths.
    fn sweep(
        &mut self,
        pair: &TwoHosts,
        settings: &DipsSettings,
        number: usize,
        lens: &[usize],
    ) -> io::Result<Vec<f64>> {
        let system = &mut self.systems[number];
        let services = [start_on(pair, 0, system.stack)?, start_on(pair, 1, system.stack)?];
        wait_until_idle(pair)?;
        let swept = sweep(pair, settings, lens)?;
        system.lost += swept.lost;
        self.intact &= swept.intact;
        self.broken.extend(broken(services.iter().flatten())?);
        Ok(swept.goodput)
    }
}

/// Results of one sweep.
struct Swept {
    goodput: Vec<f64>,
    lost: u64,
    intact: bool,
}

/// Measures one sweep. Packets must already reach both hosts.
fn sweep(pair: &TwoHosts, settings: &DipsSettings, lens: &[usize]) -> io::Result<Swept> {
    let [receiver, far] = &pair.hosts;
    let mut inbox = Inbox::open(receiver.space(), v4(1))?;
    let outbox = datagrams::outbox(far.space(), inbox.address()?)?;
    let (jobs, asked) = mpsc::channel::<(u64, Load)>();
    let (answers, done) = mpsc::channel();
    let mut ends = DipEdges { outbox, jobs, done, pattern: inbox.message(0, MESSAGE_LEN_MAX), next: 0 };
    thread::scope(|scope| {
        scope.spawn(move || {
            for (first, load) in asked {
                // The requesting thread may have ended.
                let _ = answers.send(inbox.take(first, load.count, load.len, QUIET));
            }
        });
        let mut swept = Swept { goodput: Vec::with_capacity(lens.len()), lost: 0, intact: true };
        for len in lens {
            let count = (settings.burst_len / len).clamp(BURST_MIN, BURST_MAX) as u64;
            let mut best: f64 = 0.0;
            for _ in 0..settings.bursts {
                let (seconds, taken) = ends.burst(Load { len: *len, count, gap: Duration::ZERO })?;
                best = best.max((taken.arrived * *len as u64) as f64 * 8.0 / seconds / 1e6);
                swept.lost += count - taken.arrived.min(count);
                swept.intact &= taken.wrong == 0;
            }
            swept.goodput.push(best);
        }
        // Without a sender of jobs, the receiving thread ends.
        drop(ends);
        Ok(swept)
    })
}

impl DipEdges {
    /// Sends one burst. Returns the seconds from the first message sent to the last one received, and the received
    /// messages.
    fn burst(&mut self, load: Load) -> io::Result<(f64, Received)> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the receiver has ended");
        self.jobs.send((self.next, load)).map_err(|_| gone(()))?;
        let began = datagrams::send(&self.outbox, &mut self.pattern[..load.len], self.next, load)?;
        self.next += load.count;
        let taken = self.done.recv().map_err(|_| gone(()))??;
        let ended = taken.ended.unwrap_or_else(Instant::now);
        thread::sleep((REST * load.count as u32).saturating_sub(began.elapsed()));
        Ok((ended.saturating_duration_since(began).as_secs_f64().max(1e-9), taken))
    }
}

/// Returns the lengths whose goodput is more than 20 % below the median of their ten neighbours in two of three
/// sweeps.
pub fn dips_in(lens: &[usize], goodput: &[Vec<f64>]) -> Vec<Dip> {
    let half = NEIGHBOURS / 2;
    let share = |sweep: &Vec<f64>, at: usize| {
        let around = sweep[at - half..at].iter().chain(&sweep[at + 1..=at + half]);
        Spread::of(around.copied()).map_or(1.0, |neighbours| sweep[at] / neighbours.median)
    };
    let dip = |(at, len): (usize, &usize)| {
        let shares: Vec<f64> = goodput.iter().map(|sweep| share(sweep, at)).collect();
        let low = shares.iter().filter(|share| **share < 1.0 - DEPTH).count();
        let is_dip = low > 0 && low * 3 >= shares.len() * 2;
        let share = Spread::of(shares)?.median;
        is_dip.then_some(Dip { len: *len, share })
    };
    let inner = half..lens.len().saturating_sub(half);
    lens.iter().enumerate().filter(|(at, _)| inner.contains(at)).filter_map(dip).collect()
}

impl fmt::Display for Dips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions)?;
        writeln!(f, "UDP over IPv4, link MTU {}: goodput of message bursts, by message length\n", self.mtu)?;
        for system in &self.systems {
            system.part(f)?;
        }
        writeln!(f, "no message arrived changed or twice: {}", if self.intact { "yes" } else { "NO" })?;
        match self.lost() {
            0 => writeln!(f, "every message arrived: yes")?,
            lost => writeln!(f, "every message arrived: NO, {lost} were lost")?,
        }
        self.broken.iter().try_for_each(|broken| writeln!(f, "packet counts do not add up: {broken}"))
    }
}

impl Sweeps {
    fn part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, suspects, dips) = (self.lens.len(), self.suspects.len(), self.dips.len());
        writeln!(
            f,
            "{} at both ends: {count} lengths, {suspects} with a dip, {dips} of them in every repetition; {} messages lost",
            self.stack, self.lost
        )?;
        let part_len = count.div_ceil(TABLE_ROWS).max(1);
        for from in (0..count).step_by(part_len) {
            let till = count.min(from + part_len);
            let figures = self.goodput.iter().flat_map(|sweep| &sweep[from..till]).copied();
            if let Some(spread) = Spread::of(figures) {
                let Spread { median, least, most } = spread;
                let (first, last) = (self.lens[from], self.lens[till - 1]);
                writeln!(f, "  {first:>6} to {last:>6} bytes {median:>9.1} Mbit/s ({least:.1} to {most:.1})")?;
            }
        }
        for Dip { len, share } in &self.dips {
            writeln!(f, "  dip at {len} bytes: {:.0} % of the neighbouring goodput", share * 100.0)?;
        }
        writeln!(f)
    }
}

const LEN_MIN: usize = 64;
/// Smallest number of messages in a burst; `BURST_MAX` is the largest number.
const BURST_MIN: usize = 8;
const BURST_MAX: usize = 400;
/// Mean interval between messages, for 20,000 messages per second.
const REST: Duration = Duration::from_micros(50);
const NEIGHBOURS: usize = 10;
/// Share by which the goodput of a dip must be below the median of the neighbours.
const DEPTH: f64 = 0.2;
/// Time that the receiver waits after the last message of a burst.
const QUIET: Duration = Duration::from_millis(60);
const TABLE_ROWS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_message_fails_the_experiment() {
        let system = Sweeps {
            stack: Stack::Wide,
            lens: vec![64],
            goodput: vec![vec![1.0]],
            lost: 0,
            suspects: Vec::new(),
            dips: Vec::new(),
        };
        let mut dips = Dips {
            conditions: Conditions::here(1),
            mtu: 1_500,
            systems: vec![system.clone(), system],
            intact: true,
            broken: Vec::new(),
        };
        assert!(dips.is_good() && dips.to_string().contains("every message arrived: yes\n"), "{dips}");
        dips.systems[1].lost = 3;
        assert!(!dips.is_good() && dips.to_string().contains("every message arrived: NO, 3 were lost\n"), "{dips}");
    }

    #[test]
    fn a_dip_lacks_a_fifth_in_two_of_three_sweeps() {
        let lens: Vec<usize> = (100..140).collect();
        let mut goodput = vec![vec![100.0; 40]; 3];
        (goodput[0][7], goodput[2][7]) = (79.0, 75.0);
        goodput[1][20] = 10.0;
        (0..3).for_each(|sweep| goodput[sweep][30] = 81.0);
        (goodput[0][0], goodput[1][0]) = (50.0, 60.0);
        assert_eq!(dips_in(&lens, &goodput), [Dip { len: 107, share: 0.79 }]);
    }

    #[test]
    fn a_dip_is_confirmed_among_the_same_neighbours() {
        let lens: Vec<usize> = (100..140).collect();
        let around: Vec<usize> = window(&lens, 110).iter().chain(window(&lens, 130)).copied().collect();
        assert_eq!((around.len(), around[0], around[21]), (22, 105, 135));
        let mut goodput = vec![vec![100.0; 22]; 3];
        (goodput[0][5], goodput[1][5]) = (60.0, 70.0);
        (goodput[0][16], goodput[1][3]) = (60.0, 60.0);
        assert_eq!(repeat(window(&lens, 110), &around, &goodput), [Dip { len: 110, share: 0.7 }]);
        assert_eq!(repeat(window(&lens, 130), &around, &goodput), []);
    }

    #[test]
    fn lengths_reach_from_the_shortest_message_to_the_longest() {
        let lens = lens(2_000);
        assert_eq!((lens.len(), lens[0], lens[1_999]), (2_000, 64, 65_507));
        assert!(lens.is_sorted_by(|one, next| one < next));
    }
}
