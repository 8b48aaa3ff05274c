//! Received packets -> deliveries to the host, through a NIC with many threads (L15 to L19, lB1 to lB4, lB7, lB9).
//!
//! The model shows how receive offload depends on threads and DMA. Each connection has a window of packets in
//! flight. With offload, each connection is assigned to a thread. The thread processes and acknowledges packets,
//! and gathers their data. Gathered data is delivered by one DMA request when it is full or its time-out has
//! passed. Without offload, each packet is one DMA request.

use super::FRAMING_LEN;
use super::dma::{Dma, DmaSettings, Notice, Request, WriteOrder};
use crate::event::Events;
use crate::rng::Rng;
use packet::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The number of the NIC's threads for each task (L17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSplit {
    /// Threads that transmit.
    pub send: u32,
    /// Threads that handle time-outs and serve the request queues in turn.
    pub time_out: u32,
    /// Threads that receive.
    pub receive: u32,
    /// Threads that run the NIC's command shell.
    pub shell: u32,
}

impl ThreadSplit {
    /// Returns the split if it has `threads` threads in total and at least one receives; otherwise `None`.
    pub fn of(self, threads: u32) -> Option<ThreadSplit> {
        let sum = self.send + self.time_out + self.receive + self.shell;
        (sum == threads && self.receive > 0).then_some(self)
    }
}

/// The settings of a receiving NIC.
#[derive(Clone, Debug)]
pub struct Offload {
    /// The split of threads.
    pub threads: ThreadSplit,
    /// Processing time of a receiving thread per packet.
    pub per_packet: Duration,
    /// Maximum length of a delivery, in bytes; `None` = each packet is delivered separately.
    pub delivery_len: Option<u32>,
    /// Gathered data is delivered if no data was added for this time.
    pub timeout: Duration,
    /// Settings of the NIC's DMA engine.
    pub dma: DmaSettings,
}

/// The traffic that the NIC receives.
#[derive(Clone, Debug)]
pub struct Load {
    /// Number of connections.
    pub connections: u32,
    /// Maximum number of packets in flight per connection.
    pub window: u32,
    /// Payload per packet, in bytes.
    pub segment_len: u32,
    /// Headers per packet from the IP header on, in bytes.
    pub header_len: u32,
    /// Rate of the link.
    pub bits_per_second: u64,
    /// Time from an acknowledgement until the next packet is on the link.
    pub trip: Duration,
    /// Arrival times of SYNs of additional connections.
    pub syns: Vec<Duration>,
    /// The seed for the assignment of connections to threads.
    pub seed: u64,
}

/// The data delivered to the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Payload bytes delivered, by connection.
    pub bytes: Vec<u64>,
    /// Number of deliveries.
    pub deliveries: u64,
    /// Number of delivered segments.
    pub segments: u64,
    /// Delay of each SYN until its delivery; `None` if it was not delivered.
    pub syn_waits: Vec<Option<Duration>>,
    /// Number of threads with at least one connection.
    pub threads_used: usize,
    /// Duration of the measurement.
    pub span: Duration,
}

impl Received {
    /// Payload rate, in bits per second.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 8.0 / self.span.as_secs_f64()
    }

    /// Jain's fairness index of the connections: 1 = equal rates, 1/n = only one connection served (Jain, Chiu and
    /// Hawe 1984).
    pub fn jain(&self) -> f64 {
        let sum: f64 = self.bytes.iter().map(|bytes| *bytes as f64).sum();
        let squares: f64 = self.bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        if squares == 0.0 { 0.0 } else { sum * sum / (self.bytes.len() as f64 * squares) }
    }
}

impl Load {
    /// Saturating connections between two hosts without a switch, as Li measured them.
    pub fn back_to_back(connections: u32) -> Load {
        Load {
            connections,
            window: 90,
            segment_len: 1_448,
            header_len: 52,
            bits_per_second: 10_000_000_000,
            trip: Duration::from_micros(50),
            syns: Vec::new(),
            seed: 1,
        }
    }
}

impl Offload {
    /// Li's NIC: four cores with four threads each. The times are fitted to Li's figures (lB4). The model therefore
    /// shows only that one DMA engine and thirteen threads can explain these figures.
    pub fn xls416() -> Offload {
        Offload {
            threads: ThreadSplit { send: 1, time_out: 1, receive: 13, shell: 1 },
            per_packet: Duration::from_nanos(31_700),
            delivery_len: Some(65_535),
            timeout: Duration::from_millis(1),
            dma: DmaSettings {
                start: Duration::from_nanos(10_400),
                bytes_per_second: 655_000_000,
                order: WriteOrder::RoundRobin,
                tag_count: 1,
                depth: usize::MAX,
                notice: Notice::AtOnce,
                threshold: None,
            },
        }
    }

    /// Li's NIC without offload: one DMA request per packet (lB2).
    pub fn plain() -> Offload {
        Offload { delivery_len: None, per_packet: Duration::ZERO, ..Offload::xls416() }
    }

    /// Simulates for twice `span`, and measures the second half.
    pub fn run(&self, load: &Load, span: Duration) -> Received {
        let mut run = Run::new(self, load);
        let (from, until) = (Time::ZERO + span, Time::ZERO + span + span);
        while let Some((now, step)) = run.steps.next()
            && now <= until
        {
            run.is_counting = now > from;
            run.step(now, step);
        }
        let used = run.threads.iter().filter(|thread| thread.was_used).count();
        Received { threads_used: used, span, ..run.received }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MachineStep {
    /// A packet of this connection is transmitted.
    Send(u32),
    /// A packet of this connection has arrived.
    Arrive(u32),
    /// The SYN with this number has arrived.
    Syn(u32),
    /// The thread with this number has processed a packet.
    Served(usize),
    /// The time-out of this connection's gathered data must be checked.
    Late(u32),
    /// The DMA engine has a completion or report.
    Engine,
}

/// The state of a simulated NIC.
struct Run<'a> {
    card: &'a Offload,
    load: &'a Load,
    steps: Events<MachineStep>,
    dma: Dma,
    threads: Vec<Thread>,
    held: Vec<Gathered>,
    link_free: Time,
    is_counting: bool,
    received: Received,
}

#[derive(Clone, Default)]
struct Thread {
    packets: VecDeque<u32>,
    was_used: bool,
}

/// Segments gathered for one connection.
#[derive(Clone, Copy, Default)]
struct Gathered {
    thread: usize,
    count: u32,
    last: Time,
    is_watched: bool,
}

impl<'a> Run<'a> {
    fn new(card: &'a Offload, load: &'a Load) -> Run<'a> {
        let mut dice = Rng::new(load.seed);
        let receive = card.threads.receive.max(1);
        let of = |dice: &mut Rng| Gathered {
            thread: (dice.number() % u64::from(receive)) as usize,
            ..Gathered::default()
        };
        let mut steps = Events::default();
        for _ in 0..load.window {
            (0..load.connections).for_each(|connection| steps.plan(Time::ZERO, MachineStep::Send(connection)));
        }
        for (number, at) in (0..).zip(&load.syns) {
            steps.plan(Time::ZERO + *at, MachineStep::Syn(number));
        }
        Run {
            card,
            load,
            steps,
            dma: Dma::new(card.dma.clone()),
            threads: vec![Thread::default(); receive as usize],
            held: (0..load.connections).map(|_| of(&mut dice)).collect(),
            link_free: Time::ZERO,
            is_counting: false,
            received: Received {
                bytes: vec![0; load.connections as usize],
                deliveries: 0,
                segments: 0,
                syn_waits: vec![None; load.syns.len()],
                threads_used: 0,
                span: Duration::ZERO,
            },
        }
    }

    fn step(&mut self, now: Time, step: MachineStep) {
        match step {
            MachineStep::Send(connection) => {
                let bits = u64::from(self.load.header_len + self.load.segment_len + FRAMING_LEN) * 8;
                let crossing = Duration::from_nanos(bits * 1_000_000_000 / self.load.bits_per_second.max(1));
                self.link_free = self.link_free.max(now) + crossing;
                self.steps.plan(self.link_free, MachineStep::Arrive(connection));
            }
            MachineStep::Arrive(connection) if self.card.delivery_len.is_some() => self.arrive(now, connection),
            MachineStep::Arrive(connection) => self.ask(now, connection, connection, 1),
            MachineStep::Syn(number) => {
                self.ask(now, self.load.connections + number, self.load.connections + number, 0)
            }
            MachineStep::Served(thread) => self.served(now, thread),
            MachineStep::Late(connection) => self.lookup(now, connection),
            MachineStep::Engine => self.engine(now),
        }
    }

    fn arrive(&mut self, now: Time, connection: u32) {
        let number = self.held[connection as usize].thread;
        let thread = &mut self.threads[number];
        thread.packets.push_back(connection);
        thread.was_used = true;
        if thread.packets.len() == 1 {
            self.steps.plan(now + self.card.per_packet, MachineStep::Served(number));
        }
    }

    fn served(&mut self, now: Time, number: usize) {
        let Some(connection) = self.threads[number].packets.pop_front() else { return };
        if !self.threads[number].packets.is_empty() {
            self.steps.plan(now + self.card.per_packet, MachineStep::Served(number));
        }
        self.steps.plan(now + self.load.trip, MachineStep::Send(connection));
        let held = &mut self.held[connection as usize];
        (held.count, held.last) = (held.count + 1, now);
        let next_len = (held.count + 1) * self.load.segment_len + self.load.header_len;
        if next_len > self.card.delivery_len.unwrap_or(0) {
            self.deliver(now, connection);
        } else if !std::mem::replace(&mut held.is_watched, true) {
            self.steps.plan(now + self.card.timeout, MachineStep::Late(connection));
        }
    }

    fn lookup(&mut self, now: Time, connection: u32) {
        let held = &mut self.held[connection as usize];
        let due = held.last + self.card.timeout;
        held.is_watched = held.count > 0 && due > now;
        if held.is_watched {
            self.steps.plan(due, MachineStep::Late(connection));
        } else if held.count > 0 {
            self.deliver(now, connection);
        }
    }

    fn deliver(&mut self, now: Time, connection: u32) {
        let held = &mut self.held[connection as usize];
        let (queue, count) = (held.thread as u32, std::mem::take(&mut held.count));
        self.ask(now, queue, connection, count);
    }

    /// Requests a DMA transfer of this number of segments; 0 = a SYN.
    fn ask(&mut self, now: Time, queue: u32, connection: u32, segments: u32) {
        self.engine(now);
        let number = u64::from(connection) << 32 | u64::from(segments);
        let len = self.load.header_len + segments * self.load.segment_len;
        assert!(self.dma.push(now, Request { number, queue, len }), "the engine is as deep as its card asks");
        self.plan_engine();
    }

    fn plan_engine(&mut self) {
        if let Some(at) = self.dma.next_deadline() {
            self.steps.plan(at, MachineStep::Engine);
        }
    }

    fn engine(&mut self, now: Time) {
        let mut ended = Vec::new();
        self.dma.expire(now, |done| ended.push(done));
        if ended.is_empty() {
            return;
        }
        for done in ended {
            let (connection, segments) = (done.request.number >> 32, done.request.number & 0xffff_ffff);
            if segments == 0 {
                let number = connection as usize - self.received.bytes.len();
                self.received.syn_waits[number] = Some(done.ended.since(done.asked));
                continue;
            }
            if self.is_counting {
                self.received.bytes[connection as usize] += segments * u64::from(self.load.segment_len);
                self.received.deliveries += 1;
                self.received.segments += segments;
            }
            if self.card.delivery_len.is_none() {
                self.steps.plan(now + self.load.trip, MachineStep::Send(connection as u32));
            }
        }
        self.plan_engine();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(300);

    // L17
    #[test]
    fn a_split_is_one_of_all_threads_or_none() {
        let split = Offload::xls416().threads;
        assert_eq!(split.of(16), Some(split));
        assert_eq!(split.of(15), None);
        assert_eq!(ThreadSplit { receive: 0, shell: 14, ..split }.of(16), None);
    }

    // lB2, lB4
    #[test]
    fn a_plain_card_is_limited_by_its_engine() {
        for connections in [1, 2, 8, 64] {
            let bits = Offload::plain().run(&Load::back_to_back(connections), SPAN).bits_per_second();
            assert!((bits / 913.3e6 - 1.0).abs() < 0.05, "{connections}: {bits:.3e}");
        }
    }

    // lB1, lB3, lB5, lB9
    #[test]
    fn with_threads_the_rate_rises_with_connections_until_all_threads_have_one() {
        let rates: Vec<_> = [1, 2, 4, 8, 16, 32, 64]
            .into_iter()
            .map(|connections| Offload::xls416().run(&Load::back_to_back(connections), SPAN))
            .collect();
        let bits: Vec<_> = rates.iter().map(Received::bits_per_second).collect();
        assert!(bits.windows(2).all(|pair| pair[1] > 0.97 * pair[0]), "{bits:?}");
        let (last, plateau) = (rates.last().unwrap(), *bits.last().unwrap());
        assert!((plateau / 4.75e9 - 1.0).abs() < 0.10, "{plateau:.3e}");
        assert_eq!(last.threads_used, 13);
        assert!(last.segments as f64 / last.deliveries as f64 >= 0.9 * 45.0, "{last:?}");
        let plain = Offload::plain().run(&Load::back_to_back(64), SPAN).bits_per_second();
        assert!(plateau / plain >= 4.4, "{}", plateau / plain);
        let per_thread = bits[0];
        assert!((per_thread / (1_448.0 * 8.0 / 31.7e-6) - 1.0).abs() < 0.05, "{per_thread:.3e}");
    }

    // L16, lB7
    #[test]
    fn a_request_stack_starves_new_connections_and_round_robin_does_not() {
        let syns = (0..64).map(|number| Duration::from_millis(100 + number)).collect();
        let busy = Load { syns, ..Load::back_to_back(64) };
        let with = |order| {
            let plain = Offload::plain();
            Offload { dma: DmaSettings { order, ..plain.dma.clone() }, ..plain }.run(&busy, Duration::from_secs(1))
        };
        let stack = with(WriteOrder::LastIn);
        // After one second, a host repeats its SYN.
        let is_late = |wait: &Option<Duration>| wait.is_none_or(|wait| wait > Duration::from_secs(1));
        assert!(stack.syn_waits.iter().any(is_late), "{:?}", stack.syn_waits);
        assert!(stack.jain() < 0.5, "{}", stack.jain());
        let turns = with(WriteOrder::RoundRobin);
        let round = Dma::new(Offload::plain().dma).time_alone(1_500) * 65;
        assert!(
            turns.syn_waits.iter().all(|wait| wait.is_some_and(|wait| wait <= 2 * round)),
            "{:?}",
            turns.syn_waits
        );
        assert!(turns.jain() >= 0.95, "{}", turns.jain());
    }

    // lB6
    #[test]
    fn a_partial_delivery_leaves_at_its_timeout() {
        let few = Load { window: 5, trip: Duration::from_millis(20), ..Load::back_to_back(1) };
        let got = Offload::xls416().run(&few, SPAN);
        assert!(got.segments > 0 && got.segments == 5 * got.deliveries, "{got:?}");
    }
}
