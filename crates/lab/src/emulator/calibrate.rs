//! Link shapes -> requested values, measured values, and the differences between them.
//!
//! Probes with a number and a send time are sent into one outer port and cross the emulator to the other outer
//! port. Measured delays include system calls and wake-ups at both outer ports. A link without delay is measured
//! first and shows this overhead.

use super::live::{Course, LATE, Outcome, POOL_LIMIT, Scheduling, monotonic, run};
use packet::{Frame, Ingress, LinkType, Pool, Sum, Time};
use port::{Port, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use sim::link::Losses;
use sim::link::{LinkShape, QueueLimit};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io, thread};

/// A link shape, the probes to send over the link, and the kind of figures to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationRun {
    /// The shape that the emulator is told to apply.
    pub shape: LinkShape,
    /// The probes to send.
    pub load: Load,
    /// Kind of figures to measure.
    pub rows: Rows,
}

/// Probes of one length at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of probes.
    pub count: usize,
    /// Length of each frame, in bytes, link header included; at least [`PROBE_LEN_MIN`].
    pub len: usize,
    /// Interval between probes. Probes that are due at the same time are sent together.
    pub pace: Duration,
}

/// Kind of figures that a calibration run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Median and 99th percentile of the delay.
    Delay,
    /// Mean delay, and mean absolute deviation of the delays. The deviation must be half of the jitter.
    Jitter,
    /// Number of lost probes, and number of losses that differ from the model's.
    Loss,
    /// Bits per second on a fully loaded line, link overhead included.
    Rate,
    /// For a burst: the number of probes that found room, and the longest delay.
    Queue,
}

/// Requested and measured values of all calibration runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Measured figures, in the order of the calibration runs.
    pub rows: Vec<Row>,
    /// Faults that invalidate calibration runs, one sentence each.
    pub faults: Vec<String>,
}

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The shape that the emulator was told to apply.
    pub shape: LinkShape,
    /// Name of the figure.
    pub figure: String,
    /// Unit of the figure.
    pub unit: String,
    /// Value that the shape requests.
    pub asked: f64,
    /// The measured value.
    pub measured: f64,
    /// The measured value minus the requested value.
    pub error: f64,
}

/// Performs all calibration runs, one after the other. The emulator connects the two inner ports. Probes enter at
/// the first outer port and leave at the second.
///
/// # Errors
/// An error of a port; a link type that cannot carry probes.
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
    /// Returns the standard runs: delays of 0, 1, 5 and 20 ms, jitter of 1 ms, and losses of 1 % and 10 %. Further
    /// runs have rates of 10, 100 and 500 Mbit/s, and a queue of 20 packets.
    pub fn standard() -> Vec<CalibrationRun> {
        let delay = |millis| LinkShape { delay: Duration::from_millis(millis), ..LinkShape::default() };
        let loss = |loss, seed| LinkShape { loss, seed, ..delay(1) };
        let rate = |megabits: u64| LinkShape { rate_bits_per_second: Some(megabits * 1_000_000), ..delay(5) };
        let every = |count, micros| Load { count, len: 1_500, pace: Duration::from_micros(micros) };
        // Probes for one second, 10 % faster than the line.
        let fill = |megabits: u64| {
            let pace = Duration::from_nanos(1_500 * 8 * 1_000 * 10 / 11 / megabits);
            Load { count: (1e9 / pace.as_nanos() as f64) as usize, len: 1_500, pace }
        };
        let queue = LinkShape { queue: QueueLimit::Packets(20), ..rate(10) };
        let trial = |shape, load, rows| CalibrationRun { shape, load, rows };
        vec![
            trial(delay(0), every(500, 1_000), Rows::Delay),
            trial(delay(1), every(500, 1_000), Rows::Delay),
            trial(delay(5), every(500, 1_000), Rows::Delay),
            trial(delay(20), every(500, 1_000), Rows::Delay),
            // The interval is three times the jitter, so that no probe waits for the previous one.
            trial(LinkShape { jitter: Duration::from_millis(1), ..delay(5) }, every(500, 3_000), Rows::Jitter),
            trial(loss(0.01, 1), every(10_000, 100), Rows::Loss),
            trial(loss(0.1, 2), every(10_000, 100), Rows::Loss),
            trial(rate(10), fill(10), Rows::Rate),
            trial(rate(100), fill(100), Rows::Rate),
            trial(rate(500), fill(500), Rows::Rate),
            trial(queue, every(100, 0), Rows::Queue),
        ]
    }

    /// Returns the expected number of arrivals; `None` if the number depends on timing.
    fn expected_count(&self) -> Option<u64> {
        let is_timed = matches!(self.rows, Rows::Rate | Rows::Queue);
        let arrives = Losses::new(&self.shape).take(self.load.count).filter(|lost| !lost).count();
        (!is_timed).then_some(arrives as u64)
    }
}

/// Probes that arrived in one calibration run.
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
        while port.transmit(&[TxFrame { header: probe, payload: &[], offload: TxOffload::default() }])? == 0 {
            if is_over() {
                return Ok(());
            }
            wait_ready(port, PollFlags::OUT)?;
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
        wait_ready(port, PollFlags::IN)?;
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

/// Waits until every expected probe has arrived, or until no probe has arrived for [`QUIET`].
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

/// Waits up to [`LOOK`] until a port is ready.
fn wait_ready(port: &dyn Port, flags: PollFlags) -> io::Result<()> {
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

    /// Returns the number of probes that found room, and the longest delay. The line holds one more frame than the
    /// queue.
    fn queue_rows(&self, trial: &CalibrationRun, row: impl Fn(&str, &str, f64, f64) -> Row) -> Vec<Row> {
        let CalibrationRun { shape, load, .. } = trial;
        let waiting = match shape.queue {
            QueueLimit::Packets(count) => count,
            QueueLimit::Bytes(len) => len / load.len,
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

    /// Returns the bits per second on the line: the median over stretches with equally many frames. A mean would
    /// include the time during which a delayed sender leaves the line idle.
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

/// A frame that is rewritten for each probe. It has a link header, the mark, the calibration run's number, the
/// probe's number and the send time.
#[derive(Clone)]
struct Probes {
    frame: Vec<u8>,
    header_len: usize,
}

impl Probes {
    fn new(port: &dyn Port, trial: u32, len: usize) -> io::Result<Probes> {
        assert!((PROBE_LEN_MIN..=65_535).contains(&len), "a probe has room for what it carries: {len} bytes");
        let mut frame = match port.link_type() {
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

    /// Returns the number and the send time of a probe of the same calibration run; `None` for any other frame.
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

/// Length of the shortest probe, in bytes: Ethernet's minimum without padding.
pub const PROBE_LEN_MIN: usize = 60;
/// Link header of a probe. The destination is broadcast, so that every interface accepts it. The EtherType is for
/// local experiments (IEEE 802 section 9.2.3).
const ETHERNET_HEADER: [u8; 14] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
/// The first IP protocol number for experiments (RFC 3692 section 2.1).
const EXPERIMENT: u8 = 253;
/// First bytes of every probe.
const MARK: [u8; 8] = *b"wideload";
/// Number of stretches into which the arrivals are divided to measure a rate.
const STRETCH_COUNT: usize = 20;
/// Longest time until an expected probe arrives.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time without an arrival that ends a calibration run whose number of arrivals is unknown.
const QUIET: Duration = Duration::from_millis(500);
/// Longest wait for frames between two checks whether the calibration run has ended.
const LOOK: Duration = Duration::from_millis(5);
