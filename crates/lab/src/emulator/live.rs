//! Two ports -> the frames of each port sent to the other over an emulated link, and counts of these frames.
//!
//! One thread receives frames, asks the two links for due frames, and sends them. The thread sleeps until shortly
//! before the next frame is due and then spins, because a sleep ends some microseconds late. The lateness of each
//! frame is recorded. If too many frames are late, the results are marked as invalid.
//!
//! The thread cannot know how long a frame waited in the kernel before reception. This delay is visible only
//! outside of the emulator, where [`calibrate`](super::calibrate) measures it.

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

/// Clock, end and timing requirements of an emulator run.
pub struct Course<'a> {
    /// The clock of the emulator. It must advance at the same rate as the system's clock.
    pub clock: &'a (dyn Fn() -> Time + Sync),
    /// Flag that ends the emulator run once the flag is true.
    pub stop: &'a AtomicBool,
    /// Time at which the emulator run ends.
    pub until: Time,
    /// Lateness above which a departure counts as late. On a link without delay, the lateness of 99 % of the
    /// departures must not exceed this value.
    pub late: Duration,
    /// Scheduling of the emulator's thread.
    pub scheduling: Scheduling,
}

/// Scheduling of the emulator's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Real-time priority and locked memory, as far as the kernel allows them.
    Realtime,
    /// Ordinary priority.
    Ordinary,
}

/// Outcome of an emulator run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the links behaved as requested, so that the figures are valid.
    pub is_valid: bool,
    /// Reasons why the figures are invalid, one sentence each.
    pub faults: Vec<String>,
    /// Scheduling of the emulator's thread, in words.
    pub scheduling: String,
    /// Duration of the emulator run, in nanoseconds.
    pub time_ns: u64,
    /// The direction from the first port to the second, then the opposite one.
    pub directions: [EmulatedLink; 2],
}

/// Counts and lateness of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulatedLink {
    /// Port that received the frames.
    pub from: String,
    /// Port that sent the frames.
    pub to: String,
    /// The shape that the link was told to apply.
    pub shape: LinkShape,
    /// Counters of the emulated link.
    pub counters: Counters,
    /// Frames that were still on the link when the run ended.
    pub inside: Tally,
    /// Frames that had crossed the link but were not yet accepted by the egress port when the run ended.
    pub waiting_count: u64,
    /// Frames that the egress port accepted.
    pub sent_count: u64,
    /// Frames that the egress port rejected.
    pub refused_count: u64,
    /// Reason for the first rejection; `None` without rejections.
    pub first_refusal: Option<String>,
    /// Frames that the ingress port dropped because they were truncated or no buffer was available.
    pub lost_by_port_count: u64,
    /// Lateness of the sent frames.
    pub lateness: Lateness,
    /// Number of frames sent later than [`Course::late`] allows.
    pub late_count: u64,
    /// Lateness that 99 % of the departures must not exceed, in nanoseconds.
    pub allowed_lateness_ns: u64,
}

/// Connects two ports by two emulated links. The first shape applies to frames from `a` to `b`, the second shape to
/// frames from `b` to `a`.
///
/// Frames are received into buffers of `pool`, for which [`POOL_LIMIT`] is a sufficient limit. A port may keep a
/// buffer after the call, so all calls with the same ports must use the same pool.
///
/// The interfaces behind the ports must have their offloads off. A port's capabilities do not show this, so the
/// received frames are checked. A GSO packet, or a checksum left to a NIC, ends the call with an error.
///
/// # Errors
/// An error of a port, such as a removed interface; a received frame that no wire could carry.
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
    // Locking covers only memory that is already allocated, so the buffers are allocated first.
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

/// Allocates the buffers that both ports may use at the same time, and touches their memory. Later page faults
/// would delay frames.
fn preallocate(pool: &mut Pool) {
    let lens = CLASS_LENS.iter().flat_map(|len| std::iter::repeat_n(*len, FORESEEN_BUFFER_COUNT));
    let buffers: Vec<_> = lens.map_while(|len| Some((len, pool.allocate(len)?))).collect();
    for (len, mut buffer) in buffers {
        (0..HEADROOM + len).step_by(PAGE_LEN).for_each(|at| buffer.put(at, &[1]));
        pool.give(buffer);
    }
}

/// Returns a clock that starts at zero.
pub fn monotonic() -> impl Fn() -> Time + Clone + Send + Sync {
    let start = Instant::now();
    move || Time::from_nanos(start.elapsed().as_nanos() as u64)
}

/// Receive batch of a port. Frames are copied to their link immediately, so no more than one batch of buffers is in
/// use.
struct Inlet<'a> {
    pool: &'a mut Pool,
    frames: Vec<Frame>,
}

/// One direction of the emulator: a link, and the frames that have crossed the link.
struct Lane {
    link: Link,
    late: Duration,
    /// Frames that have crossed the link, but that the egress port has not accepted yet.
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

    /// Puts the port's received frames on the link. Returns whether no frame remains in the port.
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

    /// Returns the time of the next departure. Returns `None` while the port accepts no more frames, because the
    /// loop then polls the port.
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
    /// Returns the reasons why the figures are not valid for the requested shape.
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

/// Sleep and spin times of the emulator's thread. The thread sleeps until shortly before a departure is due. Then
/// it spins, but no longer than it has slept.
///
/// A real-time thread that never sleeps is suspended by the kernel's fair server for 50 ms of each second. With
/// dense departures, wake-ups that are a few microseconds late cost far less.
struct Rest {
    /// Time slept and not yet used for spinning, at most [`SPIN`].
    slept: Duration,
    /// Time until which the thread spins instead of sleeping.
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
        // The caller's loop must receive frames that arrive meanwhile, because their delay starts on arrival. So
        // one spin is one pass of that loop.
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

/// Returns the poll flags of the port to which a direction sends.
fn wants(lane: &Lane) -> PollFlags {
    if lane.ready.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
}

fn wire(departure: &Departure) -> TxFrame<'_> {
    TxFrame { header: departure.frame(), payload: &[], offload: TxOffload::default() }
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

/// Value of [`Course::late`] that suits most measurements.
pub const LATE: Duration = Duration::from_millis(1);
/// Error message for a received frame that no wire could carry.
const NO_WIRE: &str = "received a GSO packet or an incomplete checksum, which a link cannot carry; \
                       disable the sender's offloads: `ethtool -K IF tso off gso off gro off tx off`";
/// Time before a departure at which the thread stops sleeping. A timer wake-up is later than this in one of a
/// hundred cases (measured on a virtual machine of two cores).
const SPIN: Duration = Duration::from_micros(80);
/// Time before a departure during which the thread reads only the clock: about as long as two empty polls of ports.
const BLIND_SPIN: Duration = Duration::from_micros(4);
/// Longest sleep, which bounds the delay until the stop flag has effect.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// Divisor of a link's delay: 99 % of the departures may be late by at most 1/20 of the delay.
const LATE_PART: u32 = 20;
/// Frames per send call.
const BATCH: usize = 32;
/// Enough memory for one batch of each port, in bytes.
pub const POOL_LIMIT: usize = 64 << 20;
/// Frames of a receive batch for which memory is allocated at the start.
const INLET_BATCH: usize = 256;
/// Buffers of each size class that are allocated at the start. Each of two ports keeps up to 64 buffers for future
/// frames.
const FORESEEN_BUFFER_COUNT: usize = 128;
/// Length of a memory page, in bytes.
const PAGE_LEN: usize = 4_096;
/// Frames for which a link's memory is allocated at the start: those of 1 Gbit/s in 20 ms, and some more.
const FORESEEN_COUNT: usize = 2_000;
/// Assumed length of the [`FORESEEN_COUNT`] frames, in bytes: a full Ethernet frame with two VLAN tags.
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
