//! Link shapes -> requested values, measured values, and the difference.
//!
//! Probes with a number and a send time go into one outer end, through the emulator, and out of the other. The
//! measurement includes the cost of both ends (system calls, wake-ups). So a plain wire is measured too, and its
//! delay is the zero of all others.

use super::live::{Course, LATE, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
use packet::{Frame, Ingress, LinkType, Pool, Sum, Time};
use port::{Port, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use sim::link::Losses;
use sim::link::{LinkShape, Queue};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io, thread};

/// One shape, its load, and the figures to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationRun {
    /// The requested shape.
    pub shape: LinkShape,
    /// The probes.
    pub load: Load,
    /// The figures to measure.
    pub rows: Rows,
}

/// Probes of one length at one pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub count: usize,
    /// Length of each frame, in bytes, link header included; at least [`PROBE_LEN_MIN`].
    pub len: usize,
    /// Interval between probes. Probes that are due together are sent together.
    pub pace: Duration,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Median and 99th percentile of the delay.
    Delay,
    /// Mean delay, and the mean distance from it: half of the jitter.
    Jitter,
    /// The lost probes: exactly those of the model.
    Loss,
    /// Bits per second on a full line, overhead included.
    Rate,
    /// Of a burst, the number of queued probes, and the delay of the last.
    Queue,
}

/// Requested and measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// In the order of the runs.
    pub rows: Vec<Row>,
    /// Faults that invalidate runs, each in a sentence.
    pub faults: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The requested shape.
    pub shape: LinkShape,
    /// Name of the figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// The value that the shape requests.
    pub asked: f64,
    /// The measured value.
    pub measured: f64,
    /// Measured less requested.
    pub error: f64,
}

/// Runs every trial in turn. Probes go from the first outer end to the second, over the inner two, which the
/// emulator joins.
///
/// # Errors
/// A port's error; a port whose link type carries no probes.
pub fn calibrate(
    inner: [&mut dyn Port; 2],
    outer: [&mut dyn Port; 2],
    trials: &[CalibrationRun],
    scheduling: Scheduling,
) -> io::Result<Calibration> {
    let [a, b] = inner;
    let [sender, receiver] = outer;
    let mut calibration = Calibration::default();
    let mut pools = [Pool::new(POOL_LIMIT), Pool::new(POOL_LIMIT)];
    for (number, trial) in trials.iter().enumerate() {
        let probes = Probes::new(sender, number as u32, trial.load.len)?;
        let seen = attempt([a, b], [sender, receiver], &mut pools, trial, probes, scheduling)?;
        calibration.rows.extend(seen.rows(trial));
        calibration.faults.extend(seen.faults(trial));
    }
    Ok(calibration)
}

impl CalibrationRun {
    /// Delays of 0, 1, 5 and 20 ms; jitter of 1 ms; losses of 1 % and 10 %. Rates of 10, 100 and 500 Mbit/s; a
    /// queue of 20 packets.
    pub fn standard() -> Vec<CalibrationRun> {
        let delay = |millis| LinkShape { delay: Duration::from_millis(millis), ..LinkShape::default() };
        let loss = |loss, seed| LinkShape { loss, seed, ..delay(1) };
        let rate = |megabits: u64| LinkShape { rate_bits_per_second: Some(megabits * 1_000_000), ..delay(5) };
        let every = |count, micros| Load { count, len: 1_500, pace: Duration::from_micros(micros) };
        // A tenth faster than the line, for one second.
        let fill = |megabits: u64| {
            let pace = Duration::from_nanos(1_500 * 8 * 1_000 * 10 / 11 / megabits);
            Load { count: (1e9 / pace.as_nanos() as f64) as usize, len: 1_500, pace }
        };
        let queue = LinkShape { queue: Queue::Packets(20), ..rate(10) };
        let trial = |shape, load, rows| CalibrationRun { shape, load, rows };
        vec![
            trial(delay(0), every(500, 1_000), Rows::Delay),
            trial(delay(1), every(500, 1_000), Rows::Delay),
            trial(delay(5), every(500, 1_000), Rows::Delay),
            trial(delay(20), every(500, 1_000), Rows::Delay),
            // Three times the jitter apart, so that no probe waits for the previous one.
            trial(LinkShape { jitter: Duration::from_millis(1), ..delay(5) }, every(500, 3_000), Rows::Jitter),
            trial(loss(0.01, 1), every(10_000, 100), Rows::Loss),
            trial(loss(0.1, 2), every(10_000, 100), Rows::Loss),
            trial(rate(10), fill(10), Rows::Rate),
            trial(rate(100), fill(100), Rows::Rate),
            trial(rate(500), fill(500), Rows::Rate),
            trial(queue, every(100, 0), Rows::Queue),
        ]
    }

    /// Number of probes to expect, where it does not depend on time.
    fn expected_count(&self) -> Option<u64> {
        let is_timed = matches!(self.rows, Rows::Rate | Rows::Queue);
        let arrives = Losses::new(&self.shape).take(self.load.count).filter(|lost| !lost).count();
        (!is_timed).then_some(arrives as u64)
    }
}

/// Observations of one trial.
struct Measured {
    arrivals: Vec<Arrival>,
    outcome: Outcome,
}

struct Arrival {
    index: u64,
    sent: Time,
    arrived: Time,
}

fn attempt(
    inner: [&mut dyn Port; 2],
    outer: [&mut dyn Port; 2],
    pools: &mut [Pool; 2],
    trial: &CalibrationRun,
    mut probes: Probes,
    scheduling: Scheduling,
) -> io::Result<Measured> {
    let clock = monotonic();
    let [a, b] = inner;
    let [sender, receiver] = outer;
    let [inner_pool, outer_pool] = pools;
    let shapes = [trial.shape.clone(), LinkShape::default()];
    let (stop, arrived_count) = (AtomicBool::new(false), AtomicU64::new(0));
    let course = Course { clock: &clock, stop: &stop, until: Time::NEVER, late: LATE, scheduling };
    let reader = probes.clone();
    thread::scope(|scope| {
        let emulator = scope.spawn(|| run(a, b, shapes, inner_pool, &course));
        let arrivals = scope.spawn(|| receive(receiver, outer_pool, &reader, &clock, &stop, &arrived_count));
        let is_over = || emulator.is_finished() || arrivals.is_finished();
        let sent = send(sender, &mut probes, trial.load, &clock, &is_over);
        if sent.is_ok() {
            await_arrivals(trial, &arrived_count, &is_over);
        }
        stop.store(true, Ordering::Relaxed);
        let outcome = emulator.join().expect("the emulator asserts what holds");
        let arrivals = arrivals.join().expect("receiving does not panic");
        sent?;
        Ok(Measured { outcome: outcome?, arrivals: arrivals? })
    })
}

fn send(
    port: &mut dyn Port,
    probes: &mut Probes,
    load: Load,
    clock: &dyn Fn() -> Time,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let start = clock();
    for index in 0..load.count {
        let due = start + load.pace * index as u32;
        let early = due.since(clock());
        if early > Duration::ZERO {
            thread::sleep(early);
        }
        let probe = probes.write(index as u64, clock());
        while port.transmit(&[TxFrame { header: probe, payload: &[], to_do: TxOffload::default() }])? == 0 {
            if is_over() {
                return Ok(());
            }
            look(port, PollFlags::OUT)?;
        }
    }
    Ok(())
}

fn receive(
    port: &mut dyn Port,
    pool: &mut Pool,
    probes: &Probes,
    clock: &dyn Fn() -> Time,
    stop: &AtomicBool,
    arrived_count: &AtomicU64,
) -> io::Result<Vec<Arrival>> {
    let (mut frames, mut arrivals) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        look(port, PollFlags::IN)?;
        port.receive(Ingress(0), pool, &mut frames)?;
        let arrived = clock();
        for frame in frames.drain(..) {
            let (read, buffer) = match frame {
                Frame::Ip(packet) => (probes.read(packet.frame()), packet.into_buffer()),
                Frame::Other(raw, _) => (probes.read(raw.frame()), raw.into_buffer()),
            };
            arrivals.extend(read.map(|(index, sent)| Arrival { index, sent, arrived }));
            pool.give(buffer);
        }
        arrived_count.store(arrivals.len() as u64, Ordering::Relaxed);
    }
    Ok(arrivals)
}

/// Waits until every expected probe arrived, or until nothing arrived for [`QUIET`].
fn await_arrivals(trial: &CalibrationRun, arrived_count: &AtomicU64, is_over: &dyn Fn() -> bool) {
    let (expected, timeout) = match trial.expected_count() {
        Some(expected) => (expected, TIMEOUT),
        None => (u64::MAX, QUIET),
    };
    let clock = monotonic();
    let (mut count, mut since) = (0, clock());
    while !is_over() && count < expected && clock().since(since) < timeout + trial.shape.delay + trial.shape.jitter
    {
        thread::sleep(LOOK);
        let seen = arrived_count.load(Ordering::Relaxed);
        if seen > count {
            (count, since) = (seen, clock());
        }
    }
}

/// Waits up to [`LOOK`] for a port.
fn look(port: &dyn Port, flags: PollFlags) -> io::Result<()> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
    match poll(&mut [PollFd::from_borrowed_fd(port.fd(), flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Measured {
    fn rows(&self, trial: &CalibrationRun) -> Vec<Row> {
        let row = |figure: &str, unit: &str, asked: f64, measured: f64| Row {
            shape: trial.shape.clone(),
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            asked,
            measured,
            error: measured - asked,
        };
        let delays = self.sorted_delays();
        let (asked, jitter) = (millis(trial.shape.delay), millis(trial.shape.jitter));
        let mut rows = match trial.rows {
            Rows::Delay => vec![
                row("delay, median", "ms", asked, quantile(&delays, 0.5)),
                row("delay, 99 %", "ms", asked, quantile(&delays, 0.99)),
            ],
            Rows::Jitter => {
                let mean = mean(delays.iter().copied());
                let distance = self::mean(delays.iter().map(|delay| (delay - mean).abs()));
                vec![
                    row("delay, mean", "ms", asked, mean),
                    row("distance from it, mean", "ms", jitter / 2.0, distance),
                ]
            }
            Rows::Loss => {
                let (asked, lost) = (lost_by_model(trial), self.lost(trial));
                let differing = asked.symmetric_difference(&lost).count();
                vec![
                    row("lost", "packets", asked.len() as f64, lost.len() as f64),
                    row("lost, others than the model's", "packets", 0.0, differing as f64),
                ]
            }
            Rows::Rate => {
                let rate = trial.shape.rate_bits_per_second.unwrap_or_default() as f64 / 1e6;
                vec![row("rate, median", "Mbit/s", rate, self.rate(trial) / 1e6)]
            }
            Rows::Queue => self.queue_rows(trial, row),
        };
        let lateness = &self.outcome.directions[0].lateness;
        rows.push(row("lateness, median", "us", 0.0, lateness.quantile(0.5) as f64 / 1e3));
        rows.push(row("lateness, 99 %", "us", 0.0, lateness.quantile(0.99) as f64 / 1e3));
        rows
    }

    /// One frame is on the line, and the queue holds its limit.
    fn queue_rows(&self, trial: &CalibrationRun, row: impl Fn(&str, &str, f64, f64) -> Row) -> Vec<Row> {
        let CalibrationRun { shape, load, .. } = trial;
        let waiting = match shape.queue {
            Queue::Packets(count) => count,
            Queue::Bytes(len) => len / load.len,
        };
        let bits = 8.0 * (load.len + shape.overhead_len) as f64;
        let on_line = bits / shape.rate_bits_per_second.unwrap_or(u64::MAX) as f64 * 1e3;
        let longest = (waiting + 1) as f64 * on_line + millis(shape.delay);
        vec![
            row("of a burst, found room", "packets", (waiting + 1) as f64, self.arrivals.len() as f64),
            row("delay, longest", "ms", longest, quantile(&self.sorted_delays(), 1.0)),
        ]
    }

    fn faults(&self, trial: &CalibrationRun) -> Vec<String> {
        let mut faults: Vec<String> =
            self.outcome.faults.iter().map(|fault| format!("{}: {fault}", trial.shape)).collect();
        if self.arrivals.is_empty() {
            faults.push(format!("{}: no probe arrived; are all four interfaces up?", trial.shape));
        }
        let offered = self.outcome.directions[0].counters.offered.frames;
        if offered != trial.load.count as u64 {
            faults.push(format!(
                "{}: {} probes were sent, but {offered} frames crossed the link; \
                 stop all other traffic on the interfaces",
                trial.shape, trial.load.count
            ));
        }
        faults
    }

    fn sorted_delays(&self) -> Vec<f64> {
        let delay = |arrival: &Arrival| millis(arrival.arrived.since(arrival.sent));
        let mut delays: Vec<f64> = self.arrivals.iter().map(delay).collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    fn lost(&self, trial: &CalibrationRun) -> HashSet<u64> {
        let arrived: HashSet<u64> = self.arrivals.iter().map(|arrival| arrival.index).collect();
        (0..trial.load.count as u64).filter(|index| !arrived.contains(index)).collect()
    }

    /// Bits per second on the line. It is the median of stretches with equally many frames, because a delayed
    /// sender leaves the line idle.
    fn rate(&self, trial: &CalibrationRun) -> f64 {
        let frame_count = (self.arrivals.len().saturating_sub(1) / STRETCH_COUNT).max(1);
        let bits = (8 * (trial.load.len + trial.shape.overhead_len) * frame_count) as f64;
        let marks: Vec<Time> = self.arrivals.iter().step_by(frame_count).map(|arrival| arrival.arrived).collect();
        let mut rates: Vec<f64> =
            marks.windows(2).map(|ends| bits / ends[1].since(ends[0]).as_secs_f64().max(1e-9)).collect();
        rates.sort_by(f64::total_cmp);
        quantile(&rates, 0.5)
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:46} {:30} {:>10} {:>10} {:>10} unit", "shape", "figure", "asked", "measured", "error")?;
        for Row { shape, figure, unit, asked, measured, error } in &self.rows {
            let shape = if *shape == LinkShape::default() { "(plain)".to_owned() } else { shape.to_string() };
            writeln!(f, "{shape:46} {figure:30} {asked:>10.3} {measured:>10.3} {error:>+10.3} {unit}")?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "not valid: {fault}"))
    }
}

/// A frame that is rewritten for each probe: link header, mark, trial, number, time.
#[derive(Clone)]
struct Probes {
    frame: Vec<u8>,
    header_len: usize,
}

impl Probes {
    fn new(port: &dyn Port, trial: u32, len: usize) -> io::Result<Probes> {
        assert!((PROBE_LEN_MIN..=65_535).contains(&len), "a probe has room for what it carries: {len} bytes");
        let mut frame = match port.medium() {
            LinkType::Ethernet => ETHERNET_HEADER.to_vec(),
            LinkType::Ip => ip_header(len as u16),
            other => {
                let what =
                    format!("{}: its link type ({other:?}) carries no probes; use Ethernet or IP", port.address());
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
        };
        let header_len = frame.len();
        frame.extend(MARK);
        frame.extend(trial.to_be_bytes());
        frame.resize(len, 0);
        Ok(Probes { frame, header_len })
    }

    fn write(&mut self, index: u64, sent: Time) -> &[u8] {
        let at = self.header_len + MARK.len() + 4;
        self.frame[at..at + 8].copy_from_slice(&index.to_be_bytes());
        self.frame[at + 8..at + 16].copy_from_slice(&sent.nanos().to_be_bytes());
        &self.frame
    }

    /// Number and time of a probe of this trial; none for any other frame.
    fn read(&self, frame: &[u8]) -> Option<(u64, Time)> {
        let mark = self.header_len..self.header_len + MARK.len() + 4;
        if frame.get(mark.clone())? != &self.frame[mark.clone()] {
            return None;
        }
        let number = |at| Some(u64::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        Some((number(mark.end)?, Time::from_nanos(number(mark.end + 8)?)))
    }
}

fn ip_header(len: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, EXPERIMENT, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = Sum::of(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn lost_by_model(trial: &CalibrationRun) -> HashSet<u64> {
    let lost = Losses::new(&trial.shape).take(trial.load.count).enumerate();
    lost.filter(|(_, is_lost)| *is_lost).map(|(index, _)| index as u64).collect()
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len().max(1) as f64;
    numbers.sum::<f64>() / count
}

fn millis(stretch: Duration) -> f64 {
    stretch.as_secs_f64() * 1e3
}

/// Shortest probe, in bytes: Ethernet's minimum without padding.
pub const PROBE_LEN_MIN: usize = 60;
/// Broadcast, so that no interface has to listen for an address; the type is for local experiments (IEEE 802
/// section 9.2.3).
const ETHERNET_HEADER: [u8; 14] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
/// The first protocol number for experiments (RFC 3692 section 2.1).
const EXPERIMENT: u8 = 253;
/// First bytes of every probe.
const MARK: [u8; 8] = *b"wideload";
/// Number of stretches of a trial for its rate.
const STRETCH_COUNT: usize = 20;
/// Time-out for a probe that must arrive.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A trial ends after this time without an arrival, where the number of arrivals is unknown.
const QUIET: Duration = Duration::from_millis(500);
/// Duration of one poll for frames or for the end.
const LOOK: Duration = Duration::from_millis(5);
