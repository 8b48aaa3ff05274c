//! Sizes, round trips and losses -> transfer times of the kernel's TCP and of the simulator's, side by side.
//!
//! The kernel's TCP and the simulator's TCP send over links of the same shape. For the kernel's TCP, the link
//! emulator connects two hosts in private namespaces. For the simulator's TCP, the path is simulated. The clock
//! runs from the sender's SYN to the receiver's last byte and FIN. Each transfer has a new connection and a new
//! emulator, and the kernel keeps no state of earlier transfers. A transfer during which the emulator was late is
//! repeated with the same loss seeds. Each round and row of the table has its own loss seeds.

use super::{Conditions, Spread, cell, link};
use crate::emulator::{LinkShape, QueueLimit, Scheduling};
use crate::net::{Host, Offloading};
use crate::three_hosts::{NARROW, ThreeHosts, v4};
use rustix::net::{AddressFamily, SocketType, connect, ipproto, socket, sockopt, sockopt::Timeout};
use serde::Serialize;
use sim::tcp::path::{PathDirection, Transfer, run};
use sim::tcp::settings::{Algorithm, Memory, SlowStartExit};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Transfers to compare.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// Payload of each transfer, in bytes.
    pub lens: Vec<usize>,
    /// Round-trip times of the path.
    pub trips: Vec<Duration>,
    /// Congestion control algorithms.
    pub algorithms: Vec<Algorithm>,
    /// MTUs of the path, in bytes.
    pub mtus: Vec<u32>,
    /// Share of packets that are lost in each direction, from 0 to 1.
    pub loss: f64,
    /// Rate of the link in each direction, in bits per second.
    pub rate_bits_per_second: u64,
    /// Number of kernel measurements per row.
    pub rounds: usize,
    /// Number of simulations per row, each with another seed. Without loss, one simulation is enough.
    pub seeds: u64,
}

impl Default for TcpSettings {
    fn default() -> TcpSettings {
        TcpSettings {
            lens: vec![30_000, 300_000, 1_000_000, 50_000_000],
            trips: [10, 100].map(Duration::from_millis).to_vec(),
            algorithms: vec![Algorithm::Cubic, Algorithm::Reno],
            mtus: vec![1_500, 9_000],
            loss: 0.0,
            rate_bits_per_second: 100_000_000,
            rounds: 5,
            seeds: 301,
        }
    }
}

/// Transfer times of both systems, and the conditions.
#[derive(Clone, Debug, Serialize)]
pub struct TcpComparison {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Share of packets that were lost in each direction, from 0 to 1.
    pub loss: f64,
    /// Rate of the link in each direction, in bits per second.
    pub rate_bits_per_second: u64,
    /// One row for each size, round trip, algorithm and MTU.
    pub rows: Vec<TcpRow>,
}

/// Transfer times of one kind of transfer.
#[derive(Clone, Debug, Serialize)]
pub struct TcpRow {
    /// Payload of the transfer, in bytes.
    pub len: usize,
    /// Round-trip time of the path, in milliseconds.
    pub trip_ms: f64,
    /// Congestion control algorithm, as the kernel names it.
    pub algorithm: &'static str,
    /// MTU of the path, in bytes.
    pub mtu: u32,
    /// Transfer time of the kernel's TCP, in milliseconds; `None` if no transfer completed.
    pub kernel_ms: Option<Spread>,
    /// Transfer time of the simulator's TCP, in milliseconds; `None` if no transfer completed.
    pub simulator_ms: Option<Spread>,
    /// Number of kernel transfers during which the emulator was on time. If there are any, `kernel_ms` covers only
    /// these transfers.
    pub in_time_count: usize,
    /// Number of kernel transfers during which the emulator was not on time, mostly because it was late.
    pub late_count: usize,
    /// Whether most of the requested rounds were on time.
    pub is_valid: bool,
}

impl TcpRow {
    /// Returns the simulator's median minus the kernel's median, as a share of the kernel's median; `None` if a
    /// median is missing.
    pub fn deviation(&self) -> Option<f64> {
        Some(self.simulator_ms?.median / self.kernel_ms?.median - 1.0)
    }
}

impl TcpComparison {
    /// Returns the allowed difference of the medians. With loss, the bound is larger, because chance decides which
    /// packets are dropped.
    pub fn bound(&self) -> f64 {
        if self.loss > 0.0 { BOUND_WITH_LOSS } else { BOUND_WITHOUT_LOSS }
    }

    /// Returns the valid rows whose deviation exceeds [`bound`](Self::bound) or is unknown.
    pub fn apart(&self) -> impl Iterator<Item = &TcpRow> {
        let is_near = |row: &TcpRow| row.deviation().is_some_and(|deviation| deviation.abs() <= self.bound());
        self.rows.iter().filter(move |row| row.is_valid && !is_near(row))
    }

    /// Whether at least one row is valid, and [`apart`](Self::apart) returns no row.
    pub fn is_good(&self) -> bool {
        self.rows.iter().any(|row| row.is_valid) && self.apart().next().is_none()
    }
}

/// Compares the kernel's TCP with the simulator's, and passes each row to `tell`.
///
/// # Errors
/// No privilege to create hosts; an error of a socket or a port.
pub fn tcp(settings: &TcpSettings, mut tell: impl FnMut(&TcpRow)) -> io::Result<TcpComparison> {
    let conditions = Conditions::here(settings.rounds);
    let mut rows = Vec::new();
    for mtu in &settings.mtus {
        let three_hosts = ThreeHosts::new([*mtu, *mtu], Offloading::Off)?;
        for host in [&three_hosts.wide, &three_hosts.narrow] {
            for (name, value) in SYSCTLS {
                host.space().set_sysctl(name, value)?;
            }
        }
        for trip in &settings.trips {
            for algorithm in &settings.algorithms {
                for len in &settings.lens {
                    let row = row(&three_hosts, settings, (*len, *trip, *algorithm, *mtu))?;
                    tell(&row);
                    rows.push(row);
                }
            }
        }
    }
    Ok(TcpComparison { conditions, loss: settings.loss, rate_bits_per_second: settings.rate_bits_per_second, rows })
}

/// Calls `act` while the emulator connects the two links of the middle host. The seeds, one for each direction,
/// determine the losses. Returns whether the emulator was on time, including the few packets of neighbour
/// discovery.
fn over<T>(
    three_hosts: &ThreeHosts,
    settings: &TcpSettings,
    trip: Duration,
    seeds: [u64; 2],
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, bool)> {
    let stop = AtomicBool::new(false);
    let [_, a, b, _] = three_hosts.names();
    let shape = |seed| LinkShape {
        delay: trip / 2,
        rate_bits_per_second: Some(settings.rate_bits_per_second),
        queue: QueueLimit::Bytes(QUEUE_LEN),
        loss: settings.loss,
        seed,
        ..LinkShape::default()
    };
    let shapes = seeds.map(shape);
    thread::scope(|scope| {
        let wire = scope
            .spawn(|| three_hosts.middle.space().enter(|| link([a, b], shapes, None, &stop, Scheduling::Realtime)));
        let done = {
            let _stops = StopWhenDropped(&stop);
            three_hosts.wait_until_forwarding().and_then(|()| act())
        };
        let outcome = wire.join().expect("an emulator that panics has said why")?;
        Ok((done?, outcome.is_valid))
    })
}

/// Sets the flag when dropped, so that the emulator always ends.
pub(super) struct StopWhenDropped<'a>(pub(super) &'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn row(three_hosts: &ThreeHosts, settings: &TcpSettings, wanted: Wanted) -> io::Result<TcpRow> {
    let (len, trip, algorithm, mtu) = wanted;
    let (in_time, late) = rounds(settings.rounds, Instant::now, |round| {
        over(three_hosts, settings, trip, losses(wanted, round), || {
            transfer_time([&three_hosts.wide, &three_hosts.narrow], v4(NARROW), len, algorithm)
        })
    })?;
    let simulated = (0..if settings.loss > 0.0 { settings.seeds } else { 1 })
        .filter_map(|seed| simulated_time(settings, len, trip, algorithm, mtu, seed));
    Ok(TcpRow {
        len,
        trip_ms: trip.as_secs_f64() * 1e3,
        algorithm: algorithm.name(),
        mtu,
        in_time_count: in_time.len(),
        late_count: late.len(),
        is_valid: 2 * in_time.len() > settings.rounds,
        kernel_ms: Spread::of(if in_time.is_empty() { late } else { in_time }),
        simulator_ms: Spread::of(simulated.map(|time| time.as_secs_f64() * 1e3)),
    })
}

/// Measures the rounds of a row. Returns the times of the rounds that were on time, in milliseconds, and the number
/// of late tries. A late round is repeated within the row's time limit.
fn rounds(
    count: usize,
    clock: impl Fn() -> Instant,
    mut try_round: impl FnMut(usize) -> io::Result<(Duration, bool)>,
) -> io::Result<(Vec<f64>, Vec<f64>)> {
    let [mut in_time, mut late] = [Vec::new(), Vec::new()];
    let began = clock();
    while in_time.len() < count
        && (clock() - began < ROW_TIMEOUT || in_time.len() + late.len() < TRIES_PER_ROUND * count)
    {
        let (time, is_in_time) = try_round(in_time.len())?;
        if is_in_time { &mut in_time } else { &mut late }.push(time.as_secs_f64() * 1e3);
    }
    Ok((in_time, late))
}

/// Returns the loss seeds of a round, one for each direction. All rounds and rows have different seeds.
fn losses((len, trip, algorithm, mtu): Wanted, round: usize) -> [u64; 2] {
    let parts = [len as u64, trip.as_nanos() as u64, algorithm as u64, mtu.into(), round as u64];
    let seed = parts.into_iter().fold(0, |seed, part| fastrand::Rng::with_seed(seed ^ part).u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    [random.u64(..), random.u64(..)]
}

/// Returns the duration of one transfer between the kernels of two hosts, to an address of the second.
pub(super) fn transfer_time(
    [from, to]: [&Host; 2],
    address: IpAddr,
    len: usize,
    algorithm: Algorithm,
) -> io::Result<Duration> {
    let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    sockopt::set_socket_timeout(&listener, Timeout::Recv, Some(TIMEOUT))?;
    let target = listener.local_addr()?;
    let socket = from.space().enter(|| socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)))?;
    sockopt::set_tcp_congestion(&socket, algorithm.name())?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(TIMEOUT))?;
    let content = vec![7; len];
    let began = Instant::now();
    connect(&socket, &target).map_err(|error| halted("connect", &error.into()))?;
    let mut sender = TcpStream::from(socket);
    sender.set_read_timeout(Some(TIMEOUT))?;
    thread::scope(|scope| {
        // The kernel has completed the handshake; the data is still on its way.
        let receiver = scope.spawn(|| -> io::Result<Instant> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut room = vec![0; READ_LEN];
            while stream.read(&mut room)? > 0 {}
            Ok(Instant::now())
        });
        let sent = sender.write_all(&content).and_then(|()| sender.shutdown(Shutdown::Write));
        if sent.is_err() {
            // If the link still carries packets, this ends the receiver's wait.
            let _ = sender.shutdown(Shutdown::Both);
        }
        let ended = receiver.join().expect("a receiver that panics has said why");
        sent.map_err(|error| halted("send", &error))?;
        let ended = ended.map_err(|error| halted("receive", &error))?;
        // Waits until the other end has closed as well.
        let _ = sender.read(&mut [0]);
        Ok(ended.duration_since(began))
    })
}

fn halted(what: &str, error: &io::Error) -> io::Error {
    let said =
        format!("the kernel's TCP over the emulated link could not {what} within {} s: {error}", TIMEOUT.as_secs());
    io::Error::new(error.kind(), said)
}

/// Returns the duration of one simulated transfer; `None` if it does not complete.
fn simulated_time(
    settings: &TcpSettings,
    len: usize,
    trip: Duration,
    algorithm: Algorithm,
    mtu: u32,
    seed: u64,
) -> Option<Duration> {
    let memory = Memory::Growing { first: 65_535, limit: RECEIVE_MEMORY_LEN };
    // Linux leaves slow start early only with CUBIC.
    let slow_start_exit = match algorithm {
        Algorithm::Reno => SlowStartExit::Loss,
        Algorithm::Cubic => SlowStartExit::HyStart,
    };
    let end = sim::tcp::Settings { algorithm, slow_start_exit, mtu, memory, ..sim::tcp::Settings::linux() };
    let direction = PathDirection {
        rate_bits_per_second: Some(settings.rate_bits_per_second),
        delay: trip / 2,
        queue_len: QUEUE_LEN as u64,
        loss: settings.loss,
        overhead_len: ETHERNET_LEN,
        mtu,
        ..PathDirection::default()
    };
    let transfer = Transfer {
        sender: end.clone(),
        receiver: end,
        there: direction,
        back: direction,
        lens: [len as u64, 0],
        seed,
    };
    run(&transfer, TIMEOUT, |_, _| {}).complete
}

impl fmt::Display for TcpRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |spread: Option<Spread>| match spread {
            Some(Spread { median, least, most }) => format!("{median:>9.1} ({least:.1} to {most:.1})"),
            None => "-".to_owned(),
        };
        write!(
            f,
            "{:>9} B  {:>4.0} ms  {:<5}  MTU {:>5}  kernel {:<30}  simulator {:<30}  {:>6} %{}",
            self.len,
            self.trip_ms,
            self.algorithm,
            self.mtu,
            spread(self.kernel_ms),
            spread(self.simulator_ms),
            cell(self.deviation().map(|deviation| deviation * 100.0), 1),
            match (self.is_valid, self.late_count) {
                (true, 0) => String::new(),
                (true, late) => format!("  ({late} late, repeated)"),
                (false, late) => format!("  ({late} late, {} in time: ignored)", self.in_time_count),
            },
        )
    }
}

impl fmt::Display for TcpComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions)?;
        let rate = self.rate_bits_per_second as f64 / 1e6;
        writeln!(
            f,
            "A link of {rate} Mbit/s with {} % loss in each direction; times in ms, medians (min to max)",
            self.loss * 100.0
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        let (apart, late) = (self.apart().count(), self.rows.iter().filter(|row| !row.is_valid).count());
        let bound = self.bound() * 100.0;
        writeln!(
            f,
            "{apart} of {} medians differ by more than {bound:.0} %; {late} ignored because the emulator was late",
            self.rows.len()
        )
    }
}

/// Payload in bytes, round-trip time, algorithm and MTU of a row.
type Wanted = (usize, Duration, Algorithm, u32);

/// Largest number of kernel measurements per requested round after [`ROW_TIMEOUT`].
const TRIES_PER_ROUND: usize = 3;
/// Time after which late rounds of a row are repeated only up to [`TRIES_PER_ROUND`].
const ROW_TIMEOUT: Duration = Duration::from_secs(10);
/// Allowed difference of the simulator's median from the kernel's without loss, as a share of the kernel's.
const BOUND_WITHOUT_LOSS: f64 = 0.15;
/// Allowed difference of the simulator's median from the kernel's with loss, as a share of the kernel's.
const BOUND_WITH_LOSS: f64 = 0.3;
/// Settings of both hosts' kernels: no state survives a connection, and the limits are equal to those of the
/// simulated hosts.
pub(super) const SYSCTLS: [(&str, &str); 5] = [
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_rmem", "4096 131072 33554432"),
    ("ipv4/tcp_wmem", "4096 16384 33554432"),
    ("ipv4/tcp_ecn", "0"),
    ("ipv4/tcp_mtu_probing", "0"),
];
/// Longest receive window of the simulator's hosts, in bytes. The kernel's setting is twice as large, because the
/// kernel also counts its own overhead.
const RECEIVE_MEMORY_LEN: u32 = 16 << 20;
/// Length of the line's queue, in bytes; more than any window, so that the queue never overflows.
const QUEUE_LEN: usize = 64 << 20;
/// Length of the link header of each packet on the line, in bytes.
const ETHERNET_LEN: u32 = 14;
const READ_LEN: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fails_beyond_its_bound_unless_the_emulator_was_late() {
        let at = |ms: f64, is_valid| TcpRow {
            len: 1,
            trip_ms: 10.0,
            algorithm: "reno",
            mtu: 1_500,
            kernel_ms: Spread::of([100.0]),
            simulator_ms: Spread::of([ms]),
            in_time_count: 1,
            late_count: 0,
            is_valid,
        };
        let with =
            |loss, rows| TcpComparison { conditions: Conditions::here(1), loss, rate_bits_per_second: 1, rows };
        assert!(with(0.0, vec![at(114.0, true), at(86.0, true), at(500.0, false)]).is_good());
        assert!(!with(0.0, vec![at(116.0, true)]).is_good());
        assert!(!with(0.0, vec![at(84.0, true)]).is_good());
        assert!(with(0.001, vec![at(129.0, true)]).is_good());
        assert!(!with(0.001, vec![at(131.0, true)]).is_good());
        assert!(!with(0.0, vec![at(100.0, false)]).is_good(), "nothing that counts was measured");
        let never = TcpRow { simulator_ms: None, ..at(100.0, true) };
        assert!(!with(0.0, vec![never]).is_good(), "a transfer that never ends is apart");
    }

    #[test]
    fn late_measurements_are_repeated_until_the_timeout() {
        let now = std::cell::Cell::new(Instant::now());
        let mut asked = Vec::new();
        let (in_time, late) = rounds(
            2,
            || now.get(),
            |round| {
                asked.push(round);
                Ok((Duration::from_millis(asked.len() as u64), asked.len() != 2))
            },
        )
        .unwrap();
        assert_eq!((in_time, late, asked), (vec![1.0, 3.0], vec![2.0], vec![0, 1, 1]));
        let (in_time, late) = rounds(
            2,
            || now.get(),
            |_| {
                now.set(now.get() + ROW_TIMEOUT / 4);
                Ok((Duration::ZERO, false))
            },
        )
        .unwrap();
        assert_eq!((in_time.len(), late.len()), (0, 6), "as often as may be, though that takes longer");
        let (in_time, late) = rounds(
            2,
            || now.get(),
            |_| {
                now.set(now.get() + ROW_TIMEOUT / 20);
                Ok((Duration::ZERO, false))
            },
        )
        .unwrap();
        assert_eq!((in_time.len(), late.len()), (0, 20), "as long as there is patience");
    }

    #[test]
    fn no_two_rounds_and_no_two_rows_lose_the_same_packets() {
        let TcpSettings { lens, trips, algorithms, mtus, .. } = TcpSettings::default();
        let mut seen = std::collections::BTreeSet::new();
        let mut rows = 0;
        for mtu in &mtus {
            for trip in &trips {
                for algorithm in &algorithms {
                    for len in &lens {
                        rows += 1;
                        (0..30).for_each(|round| seen.extend(losses((*len, *trip, *algorithm, *mtu), round)));
                    }
                }
            }
        }
        assert_eq!((rows, seen.len()), (32, 32 * 30 * 2));
        assert_eq!(losses((1, trips[0], algorithms[0], 2), 3), losses((1, trips[0], algorithms[0], 2), 3));
    }
}
