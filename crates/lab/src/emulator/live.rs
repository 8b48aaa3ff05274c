//! Two ports -> their frames exchanged over an emulated link, and the counts of that.
//!
//! One thread does everything: it receives, queries the two links for due frames, and sends them. It sleeps until
//! shortly before the next frame is due and then spins, because a sleep ends some microseconds late. The lateness
//! of each frame is counted. A run in which lateness matters is no experiment: it says so itself, in words and in
//! its JSON.
//!
//! The thread cannot know how long a frame waited in the kernel before reception. That shows at the outer ends,
//! where [`calibrate`](super::calibrate) measures.

use super::lateness::Lateness;
use arrayvec::ArrayVec;
use linux::realtime::Realtime;
use packet::{CLASS_LENS, Checksum, Frame, HEADROOM, Ingress, Pool, Time};
use port::{Port, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use sim::link::{Counters, Departure, Link, LinkShape, Tally};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration and requirements of a run.
pub struct Course<'a> {
    /// The clock, which must advance like the system's.
    pub clock: &'a (dyn Fn() -> Time + Sync),
    /// Ends the run once it is true.
    pub stop: &'a AtomicBool,
    /// Ends the run at this time.
    pub until: Time,
    /// Bound above which a departure counts as late. Where a link has no delay to take 5 % of, 99 % of its
    /// departures must keep this bound too.
    pub late: Duration,
    /// Scheduling class of the thread.
    pub scheduling: Scheduling,
}

/// Scheduling of the emulator's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Before all ordinary threads, with the program's memory locked, where the kernel allows it.
    Realtime,
    /// As an ordinary thread.
    Ordinary,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether its figures are those of the requested links.
    pub is_valid: bool,
    /// Why not, each reason in a sentence.
    pub faults: Vec<String>,
    /// Scheduling of the thread, in words.
    pub scheduling: String,
    /// Duration, in nanoseconds.
    pub time_ns: u64,
    /// From the first port to the second, and back.
    pub directions: [EmulatedLink; 2],
}

/// Outcome of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulatedLink {
    /// Port that its frames came from.
    pub from: String,
    /// Port that they went to.
    pub to: String,
    /// The requested shape.
    pub shape: LinkShape,
    /// The link's counters.
    pub counters: Counters,
    /// Still on the link when the run ended.
    pub inside: Tally,
    /// Off the link, and not yet accepted by the egress port when the run ended.
    pub waiting_count: u64,
    /// Accepted by the egress port.
    pub sent_count: u64,
    /// Rejected by the egress port.
    pub refused_count: u64,
    /// Reason for the first rejection.
    pub first_refusal: Option<String>,
    /// Lost by the ingress port: no buffer, or truncated.
    pub lost_by_port_count: u64,
    /// Lateness of the sent frames.
    pub lateness: Lateness,
    /// Sent later than [`Course::late`].
    pub late_count: u64,
    /// Bound that 99 % of the departures must keep, in nanoseconds.
    pub allowed_lateness_ns: u64,
}

/// Joins two ports by two links. Frames of `a` go to `b` by the first shape, those of `b` go to `a` by the second.
///
/// Frames are received into buffers of `pool`, whose limit may be [`POOL_LIMIT`]. A port may keep a buffer for the
/// next run, so runs of the same ports share one pool.
///
/// The interfaces behind the ports must have their offloads off. Received frames prove it, not a port's
/// capabilities. The first GSO packet, or the first checksum left to a card, ends the run.
///
/// # Errors
/// The error of a port that is gone; a received frame that no wire could carry.
pub fn run(
    a: &mut dyn Port,
    b: &mut dyn Port,
    shapes: [LinkShape; 2],
    pool: &mut Pool,
    course: &Course<'_>,
) -> io::Result<Outcome> {
    let [there, back] = shapes;
    let mut lanes = [Lane::new(there, course), Lane::new(back, course)];
    let mut inlet = Inlet { pool, frames: Vec::with_capacity(INLET_BATCH) };
    // Memory is locked as it is, so a run's memory is allocated first.
    preallocate(inlet.pool);
    let realtime = (course.scheduling == Scheduling::Realtime).then(Realtime::ask);
    let mut rest = Rest::new();
    let start = (course.clock)();
    loop {
        let [there, back] = &mut lanes;
        if (course.clock)() >= course.until || course.stop.load(Ordering::Relaxed) {
            break;
        }
        let took_all_of_a = there.take_in(a, Ingress(0), &mut inlet, course.clock)?;
        let took_all_of_b = back.take_in(b, Ingress(1), &mut inlet, course.clock)?;
        there.let_out(b, course.clock);
        back.let_out(a, course.clock);
        if took_all_of_a && took_all_of_b {
            rest.wait([&*a, &*b], [&*there, &*back], course)?;
        }
    }
    let time_ns = (course.clock)().since(start).as_nanos() as u64;
    let [there, back] = lanes;
    let directions = [there.end(a, b), back.end(b, a)];
    let faults: Vec<String> = directions.iter().flat_map(EmulatedLink::faults).collect();
    let scheduling = scheduling(realtime.as_ref());
    Ok(Outcome { is_valid: faults.is_empty(), faults, scheduling, time_ns, directions })
}

/// Allocates the buffers that both ports may hold at once, and touches their memory. During a run, that would take
/// long enough to delay frames.
fn preallocate(pool: &mut Pool) {
    let lens = CLASS_LENS.iter().flat_map(|len| std::iter::repeat_n(*len, FORESEEN_BUFFER_COUNT));
    let buffers: Vec<_> = lens.map_while(|len| Some((len, pool.share(len)?))).collect();
    for (len, mut buffer) in buffers {
        (0..HEADROOM + len).step_by(PAGE_LEN).for_each(|at| buffer.put(at, &[1]));
        pool.give(buffer);
    }
}

/// A clock that starts at zero.
pub fn monotonic() -> impl Fn() -> Time + Clone + Send + Sync {
    let start = Instant::now();
    move || Time::from_nanos(start.elapsed().as_nanos() as u64)
}

/// Receive batch. Frames are copied to their link at once, so one batch is the most that is ever in use.
struct Inlet<'a> {
    pool: &'a mut Pool,
    frames: Vec<Frame>,
}

/// One direction of a run.
struct Lane {
    link: Link,
    late: Duration,
    /// Off the link; the port has not accepted them yet.
    ready: VecDeque<Departure>,
    sent_count: u64,
    refused_count: u64,
    first_refusal: Option<String>,
    lost_by_port_count: u64,
    lateness: Lateness,
    late_count: u64,
}

impl Lane {
    fn new(shape: LinkShape, course: &Course<'_>) -> Lane {
        let mut link = Link::new(shape);
        link.preallocate(FORESEEN_COUNT, FORESEEN_LEN);
        Lane {
            link,
            late: course.late,
            ready: VecDeque::with_capacity(BATCH),
            sent_count: 0,
            refused_count: 0,
            first_refusal: None,
            lost_by_port_count: 0,
            lateness: Lateness::default(),
            late_count: 0,
        }
    }

    /// Puts the port's received frames on the link. Returns whether that was all.
    fn take_in(
        &mut self,
        port: &mut dyn Port,
        ingress: Ingress,
        inlet: &mut Inlet<'_>,
        clock: &dyn Fn() -> Time,
    ) -> io::Result<bool> {
        let received = port
            .receive(ingress, inlet.pool, &mut inlet.frames)
            .map_err(|error| said(port, error.kind(), format!("cannot receive: {error}; is the interface up?")))?;
        self.lost_by_port_count += received.lost_count as u64;
        let now = clock();
        for frame in inlet.frames.drain(..) {
            if !is_on_a_wire(&frame) {
                return Err(said(port, io::ErrorKind::InvalidData, NO_WIRE.to_owned()));
            }
            let buffer = match frame {
                Frame::Ip(packet) => {
                    self.link.push(now, packet.frame());
                    packet.into_buffer()
                }
                Frame::Other(raw, _) => {
                    self.link.push(now, raw.frame());
                    raw.into_buffer()
                }
            };
            inlet.pool.give(buffer);
        }
        Ok(received.was_last)
    }

    /// Sends the due frames until the port accepts no more.
    fn let_out(&mut self, port: &mut dyn Port, clock: &dyn Fn() -> Time) {
        loop {
            let now = clock();
            while self.ready.len() < BATCH
                && let Some(departure) = self.link.pop(now)
            {
                self.ready.push_back(departure);
            }
            if self.ready.is_empty() {
                return;
            }
            let wires: ArrayVec<TxFrame<'_>, BATCH> = self.ready.iter().take(BATCH).map(wire).collect();
            let taken = port.transmit(&wires);
            drop(wires);
            match taken {
                Ok(0) => return,
                Ok(count) => self.sent(count, clock()),
                Err(error) => self.refused(&error),
            }
        }
    }

    fn sent(&mut self, count: usize, now: Time) {
        for departure in self.ready.drain(..count) {
            let late = now.since(departure.due);
            self.lateness.record(late.as_nanos() as u64);
            self.late_count += u64::from(late > self.late);
            self.link.give_back(departure);
        }
        self.sent_count += count as u64;
    }

    fn refused(&mut self, error: &io::Error) {
        let Some(departure) = self.ready.pop_front() else { return };
        let len = departure.frame().len();
        self.first_refusal.get_or_insert_with(|| format!("a frame of {len} bytes: {error}"));
        self.refused_count += 1;
        self.link.give_back(departure);
    }

    /// Time of the next departure; none while the port accepts no more, because the loop then polls the port.
    fn next_departure(&self) -> Option<Time> {
        if self.ready.is_empty() { self.link.next_departure() } else { None }
    }

    fn end(self, from: &dyn Port, to: &dyn Port) -> EmulatedLink {
        let delay = self.link.shape().delay;
        let allowed = if delay.is_zero() { self.late } else { delay / LATE_PART };
        let counters = *self.link.counters();
        let waiting_count = self.ready.len() as u64;
        let delivered = counters.delivered.frames;
        assert!(
            delivered == self.sent_count + self.refused_count + waiting_count,
            "delivered frames are sent, refused or waiting: {delivered} frames",
        );
        EmulatedLink {
            from: from.address().to_owned(),
            to: to.address().to_owned(),
            shape: self.link.shape().clone(),
            counters,
            inside: self.link.inside(),
            waiting_count,
            sent_count: self.sent_count,
            refused_count: self.refused_count,
            first_refusal: self.first_refusal,
            lost_by_port_count: self.lost_by_port_count,
            lateness: self.lateness,
            late_count: self.late_count,
            allowed_lateness_ns: allowed.as_nanos() as u64,
        }
    }
}

impl EmulatedLink {
    /// Why the figures are not those of the shape.
    fn faults(&self) -> Vec<String> {
        let EmulatedLink { from, to, .. } = self;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (p99, allowed) = (self.lateness.quantile(0.99), self.allowed_lateness_ns);
        let without_room = self.counters.without_room.frames;
        let mut faults = Vec::new();
        if p99 > allowed {
            let (p99, allowed) = (micros(p99), micros(allowed));
            faults.push(format!(
                "{from} to {to}: 1 % of the frames left at least {p99:.1} us late, and the limit is {allowed:.1} us; \
                 lower the rate, raise the delay, or reduce other load on the machine"
            ));
        }
        if without_room > 0 {
            faults.push(format!(
                "{from} to {to}: {without_room} frames were dropped, because the emulator was out of memory; shorten the queue"
            ));
        }
        if self.lost_by_port_count > 0 {
            faults.push(format!(
                "{from}: {} frames were lost before the emulator received them; lower the rate",
                self.lost_by_port_count
            ));
        }
        if let Some(refusal) = &self.first_refusal {
            faults.push(format!("{to}: the interface refused {} frames, the first: {refusal}", self.refused_count));
        }
        faults
    }
}

/// How the thread waits. It sleeps until shortly before a departure is due, and then spins, if it has slept as
/// long.
///
/// The kernel's fair server takes a real-time thread that never sleeps off its processor for 50 ms in each second.
/// Where departures are dense, waking a few microseconds late costs far less.
struct Rest {
    /// Sleep not yet spent on spinning, at most [`SPIN`].
    slept: Duration,
    /// End of the spin that sleep has paid for.
    spin_till: Time,
}

impl Rest {
    fn new() -> Rest {
        Rest { slept: SPIN, spin_till: Time::ZERO }
    }

    /// Waits until a frame arrives or the first departure is due.
    fn wait(&mut self, ports: [&dyn Port; 2], lanes: [&Lane; 2], course: &Course<'_>) -> io::Result<()> {
        let next = lanes.iter().filter_map(|lane| lane.next_departure()).fold(course.until, Time::min);
        let now = (course.clock)();
        let gap = next.since(now);
        if gap <= BLIND_SPIN {
            while (course.clock)() < next {
                std::hint::spin_loop();
            }
            return Ok(());
        }
        // Frames that arrive meanwhile are received, because their own delay starts then; so a spin is one pass of
        // the whole loop.
        if next <= self.spin_till {
            return Ok(());
        }
        if gap <= self.slept {
            (self.slept, self.spin_till) = (self.slept - gap, next);
            return Ok(());
        }
        let sleep = if gap > SPIN { gap - SPIN } else { gap };
        sleep_till_readable(ports, lanes, sleep.min(STOP_LOOK))?;
        self.slept = (self.slept + (course.clock)().since(now)).min(SPIN);
        Ok(())
    }
}

fn sleep_till_readable(ports: [&dyn Port; 2], lanes: [&Lane; 2], timeout: Duration) -> io::Result<()> {
    let [a, b] = ports;
    let [there, back] = lanes;
    let mut fds = [PollFd::from_borrowed_fd(a.fd(), wants(back)), PollFd::from_borrowed_fd(b.fd(), wants(there))];
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(io::Error::other(format!("cannot wait for frames: {error}"))),
    }
}

/// Poll flags of a port, for the lane that sends to it.
fn wants(lane: &Lane) -> PollFlags {
    if lane.ready.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
}

fn wire(departure: &Departure) -> TxFrame<'_> {
    TxFrame { header: departure.frame(), payload: &[], to_do: TxOffload::default() }
}

fn is_on_a_wire(frame: &Frame) -> bool {
    match frame {
        Frame::Ip(packet) => packet.gso.is_none() && packet.checksum != Checksum::Partial,
        Frame::Other(..) => true,
    }
}

fn said(port: &dyn Port, kind: io::ErrorKind, what: String) -> io::Error {
    io::Error::new(kind, format!("{}: {what}", port.address()))
}

fn scheduling(realtime: Option<&Realtime>) -> String {
    let Some(realtime) = realtime else { return "ordinary".to_owned() };
    let fifo =
        realtime.without_fifo.as_ref().map_or("SCHED_FIFO".to_owned(), |why| format!("no SCHED_FIFO ({why})"));
    let lock = realtime
        .without_lock
        .as_ref()
        .map_or("memory locked".to_owned(), |why| format!("memory not locked ({why})"));
    format!("{fifo}, {lock}")
}

/// A bound for late departures that suits most runs.
pub const LATE: Duration = Duration::from_millis(1);
/// Why a run ends at a frame that no wire could carry.
const NO_WIRE: &str = "received a GSO packet or an incomplete checksum, which a link cannot carry; \
                       disable the sender's offloads: `ethtool -K IF tso off gso off gro off tx off`";
/// How long before a departure the thread stops sleeping. A timer wake-up is later than this once in a hundred
/// times (measured on a virtual machine of two cores).
const SPIN: Duration = Duration::from_micros(80);
/// How long before a departure the thread polls only the clock: about the time of two empty polls of ports.
const BLIND_SPIN: Duration = Duration::from_micros(4);
/// Longest sleep, so that the stop flag is seen.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// Share of the delay that 99 % of the departures may be late by: 1/20.
const LATE_PART: u32 = 20;
/// Frames per send call.
const BATCH: usize = 32;
/// Enough memory for one batch of each port, in bytes.
pub const POOL_LIMIT: usize = 64 << 20;
/// Frames of a batch for which the list has room from the start.
const INLET_BATCH: usize = 256;
/// Buffers of each size class that exist from the start: each of two ports keeps up to 64 for future frames.
const FORESEEN_BUFFER_COUNT: usize = 128;
/// Smallest unit of system memory, in bytes.
const PAGE_LEN: usize = 4_096;
/// Frames for which a link has memory from the start: 1 Gbit/s for 20 ms, and 200 more.
const FORESEEN_COUNT: usize = 2_000;
/// Their length: an Ethernet frame with tags, in bytes.
const FORESEEN_LEN: usize = 1_522;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_names_each_reason_for_invalid_figures() {
        let mut direction = EmulatedLink {
            from: "a".to_owned(),
            to: "b".to_owned(),
            shape: LinkShape::default(),
            counters: Counters::default(),
            inside: Tally::default(),
            waiting_count: 0,
            sent_count: 100,
            refused_count: 0,
            first_refusal: None,
            lost_by_port_count: 0,
            lateness: Lateness::default(),
            late_count: 0,
            allowed_lateness_ns: 50_000,
        };
        (0..99).for_each(|_| direction.lateness.record(49_000));
        direction.lateness.record(9_000_000);
        assert_eq!(direction.faults(), [""; 0], "one in a hundred may be late");
        direction.lateness.record(9_000_000);
        direction.counters.without_room.frames = 1;
        direction.lost_by_port_count = 2;
        (direction.refused_count, direction.first_refusal) =
            (3, Some("a frame of 9014 bytes: Message too long".to_owned()));
        let faults = direction.faults();
        for (fault, start) in
            faults.iter().zip(["a to b: 1 % of", "a to b: 1 frames", "a: 2 frames", "b: the interface refused 3"])
        {
            assert!(fault.starts_with(start), "{fault}");
        }
        assert_eq!(faults.len(), 4);
    }
}
