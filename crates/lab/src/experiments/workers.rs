//! Gateways with one worker and with two -> packets that each gateway forwards per CPU second.
//!
//! Small datagrams of a thousand host pairs are sent from the narrow side to the wide one. The number of packets in
//! flight never exceeds the capacity of the queues. So no packet is dropped, and the gateway's own CPU time is
//! measured. Gateways with one and with two workers are measured in turn.

use super::{Conditions, Spread};
use crate::net::{Host, Offloading};
use crate::three_hosts::{Middle, ThreeHosts};
use packet::{Frame, Ingress, Pool, Sum};
use port::{Options, Port, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of rounds and packets.
#[derive(Clone, Copy, Debug)]
pub struct WorkersSettings {
    /// Number of rounds; each measures every number of workers.
    pub rounds: usize,
    /// Number of packets per measurement.
    pub packets: u32,
}

/// Results of all measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Workers {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Results with one worker, then with two.
    pub rows: Vec<WorkersRow>,
    /// Ratio of the packets per CPU second with two workers to those with one worker: the median over the rounds.
    pub versus_one: f64,
    /// Whether every packet arrived.
    pub intact: bool,
    /// Violated laws of the gateways' counters.
    pub broken: Vec<String>,
}

/// Results with one number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct WorkersRow {
    /// Number of workers.
    pub workers: usize,
    /// Packets per second of CPU time, summed over all workers.
    pub per_processor_second: Spread,
    /// Packets per second of elapsed time.
    pub per_second: Spread,
    /// Share of the workers' total CPU time that the busiest worker used: the largest value of all rounds.
    pub busiest_share: f64,
}

/// One measurement with one number of workers.
#[derive(Clone, Copy, Debug)]
struct Round {
    per_processor_second: f64,
    per_second: f64,
    busiest_share: f64,
    arrived: u64,
}

impl Default for WorkersSettings {
    fn default() -> WorkersSettings {
        WorkersSettings { rounds: 5, packets: 200_000 }
    }
}

/// Measures all rounds, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn workers(settings: &WorkersSettings, mut tell: impl FnMut(&str)) -> io::Result<Workers> {
    let frames: Vec<Vec<u8>> = (0..settings.packets).map(frame).collect();
    let (mut turns, mut broken) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..settings.rounds {
        for (count, turns) in COUNTS.into_iter().zip(&mut turns) {
            tell(&format!("round {} of {}, {count} workers", round + 1, settings.rounds));
            turns.push(turn(count, &frames, &mut broken)?);
        }
    }
    let intact = turns.iter().flatten().all(|turn| turn.arrived == u64::from(settings.packets));
    let [one, two] = &turns;
    let ratios = one.iter().zip(two).map(|(one, two)| two.per_processor_second / one.per_processor_second);
    let versus_one = Spread::of(ratios).map_or(f64::NAN, |spread| spread.median);
    let rows = COUNTS.into_iter().zip(&turns).filter_map(|(count, turns)| row(count, turns)).collect();
    Ok(Workers { conditions: Conditions::here(settings.rounds), rows, versus_one, intact, broken })
}

fn row(workers: usize, turns: &[Round]) -> Option<WorkersRow> {
    Some(WorkersRow {
        workers,
        per_processor_second: Spread::of(turns.iter().map(|turn| turn.per_processor_second))?,
        per_second: Spread::of(turns.iter().map(|turn| turn.per_second))?,
        busiest_share: turns.iter().map(|turn| turn.busiest_share).fold(0.0, f64::max),
    })
}

fn turn(count: usize, frames: &[Vec<u8>], broken: &mut Vec<String>) -> io::Result<Round> {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off)?;
    let middle = three_hosts.gateway(&three_hosts.border(&format!("workers = {count}\n"), "", ""))?;
    let began = Instant::now();
    let arrived = flood(&three_hosts, frames)?;
    let seconds = began.elapsed().as_secs_f64();
    let mut each = Vec::new();
    if let Middle::Gateway(service) = &middle {
        for snapshot in service.snapshots()? {
            each.push(snapshot.processor_time.as_secs_f64());
            broken.extend(snapshot.directions.iter().filter_map(|direction| direction.broken.clone()));
        }
    }
    three_hosts.clear(middle)?;
    let all: f64 = each.iter().sum();
    Ok(Round {
        per_processor_second: arrived as f64 / all,
        per_second: arrived as f64 / seconds,
        busiest_share: each.into_iter().fold(0.0, f64::max) / all,
        arrived,
    })
}

/// Sends frames from the narrow host. Returns the number of arrivals at the wide host.
fn flood(three_hosts: &ThreeHosts, frames: &[Vec<u8>]) -> io::Result<u64> {
    let [wide, _, _, narrow] = three_hosts.names();
    let open =
        |host: &Host, name: &str| host.space().enter(|| port::open(&format!("packet:{name}"), &Options::default()));
    let (mut from, mut to) = (open(&three_hosts.narrow, narrow)?, open(&three_hosts.wide, wide)?);
    let arrived = AtomicU64::new(0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(from.as_mut(), frames, &arrived));
        let received = receive(to.as_mut(), frames.len() as u64, &arrived);
        sender.join().expect("a sender that panics has said why")?;
        received
    })?;
    Ok(arrived.into_inner())
}

fn send(port: &mut dyn Port, frames: &[Vec<u8>], arrived: &AtomicU64) -> io::Result<()> {
    let mut sent = 0;
    for batch in frames.chunks(BATCH) {
        let wire = |frame| TxFrame { header: frame, payload: &[], offload: TxOffload::default() };
        let wires: Vec<TxFrame<'_>> = batch.iter().map(|frame| wire(&frame[..])).collect();
        let mut rest = &wires[..];
        while !rest.is_empty() {
            let count = port.transmit(rest)?;
            rest = &rest[count..];
        }
        sent += batch.len() as u64;
        let waited = Instant::now();
        while sent > arrived.load(Ordering::Relaxed) + AHEAD {
            if waited.elapsed() > TIMEOUT {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn receive(port: &mut dyn Port, count: u64, arrived: &AtomicU64) -> io::Result<()> {
    let (mut pool, mut batch) = (Pool::new(POOL_LIMIT), Vec::new());
    let mut quiet = Instant::now();
    while arrived.load(Ordering::Relaxed) < count && quiet.elapsed() < TIMEOUT {
        let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }))?;
        port.receive(Ingress(0), &mut pool, &mut batch)?;
        for frame in batch.drain(..) {
            let (is_ours, buffer) = match frame {
                Frame::Ip(packet) => (packet.frame().get(26..28) == Some(&NETWORK), packet.into_buffer()),
                Frame::Other(raw, _) => (false, raw.into_buffer()),
            };
            pool.give(buffer);
            if is_ours {
                arrived.fetch_add(1, Ordering::Relaxed);
                quiet = Instant::now();
            }
        }
    }
    Ok(())
}

/// Returns the frame of a UDP datagram. The number determines the pair of hosts.
fn frame(number: u32) -> Vec<u8> {
    let [_, _, high, low] = (number % PAIRS).to_be_bytes();
    let [_, _, id @ ..] = number.to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0];
    frame.extend((20 + UDP_LEN).to_be_bytes());
    frame.extend([id[0], id[1], 0, 0, 64, 17, 0, 0, NETWORK[0], NETWORK[1], high, low, 198, 19, high, low]);
    let sum = Sum::of(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0x30, 0x39, 0, 9]);
    frame.extend(UDP_LEN.to_be_bytes());
    frame.resize(34 + usize::from(UDP_LEN), 0);
    frame
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Datagrams of 256 bytes through a border gateway, per CPU second of its workers.\n")?;
        writeln!(f, "workers        packets / CPU second  min        max        packets a second  busiest share")?;
        for WorkersRow { workers, per_processor_second, per_second, busiest_share } in &self.rows {
            let Spread { median, least, most } = per_processor_second;
            writeln!(
                f,
                "{workers:>7} {median:>27.0}  {least:<9.0}  {most:<9.0} {:>17.0} {:>13.0} %",
                per_second.median,
                busiest_share * 100.0
            )?;
        }
        writeln!(f, "\nper CPU second, two workers forward {:.2} times the packets of one", self.versus_one)?;
        writeln!(f, "every packet arrived: {}", if self.intact { "yes" } else { "no" })?;
        self.broken.iter().try_for_each(|broken| writeln!(f, "law broken: {broken}"))?;
        writeln!(f, "{}", self.conditions)
    }
}

const COUNTS: [usize; 2] = [1, 2];
/// Number of host pairs.
const PAIRS: u32 = 1_000;
/// First bytes of an address range for measurements (RFC 2544 section C.2.2).
const NETWORK: [u8; 2] = [198, 18];
/// Length of UDP header and payload, in bytes.
const UDP_LEN: u16 = 256;
const BATCH: usize = 32;
/// Largest number of packets in flight.
const AHEAD: u64 = 400;
const POOL_LIMIT: usize = 64 << 20;
const LOOK: Duration = Duration::from_micros(100);
const TIMEOUT: Duration = Duration::from_secs(10);
