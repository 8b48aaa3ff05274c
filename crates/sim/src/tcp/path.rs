//! Two ends and a path -> the time when a transfer completes.
//!
//! The path is the smallest network in which a connection can be tested: a link with limited rate, a queue, a
//! delay, and random events from a seed. Segments have no payload bytes, so only the positions of data are checked.

use super::SendCounts;
use super::connection::{Connection, Emit, End, Outgoing};
use super::segment::Segment;
use super::settings::Settings;
use crate::event::Events;
use crate::rng::Rng;
use packet::{Ecn, Time};
use std::time::Duration;

/// One direction of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathDirection {
    /// Rate of the link; `None` = unlimited.
    pub rate_bits_per_second: Option<u64>,
    /// Propagation delay: from the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// Limit of the link's queue, in bytes. If the queue is full, packets are dropped.
    pub queue_len: u64,
    /// ECN-capable packets are marked while the queue is longer than this, in bytes (RFC 3168 section 5); `None` =
    /// never.
    pub mark_len: Option<u64>,
    /// Link-layer overhead per packet, in bytes.
    pub overhead_len: u32,
    /// Fraction of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Fraction of packets with extra delay, and the maximum extra delay.
    pub late: (f64, Duration),
    /// Fraction of packets that arrive twice, 0 to 1.
    pub repeats: f64,
    /// MTU of the link, in bytes.
    pub mtu: u32,
    /// A change of the MTU: its time, and the new MTU in bytes.
    pub change: Option<(Time, u32)>,
    /// Whether the path's router sends ICMP errors for packets that exceed the MTU.
    pub reports: bool,
}

/// A transfer over a path.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Settings of the end that opens, sends and closes.
    pub sender: Settings,
    /// Settings of the end that listens, receives and closes.
    pub receiver: Settings,
    /// The path from the sender to the receiver.
    pub there: PathDirection,
    /// The path from the receiver to the sender.
    pub back: PathDirection,
    /// Bytes sent by the sender, and bytes that the receiver sends in reply.
    pub lens: [u64; 2],
    /// The seed of all random events.
    pub seed: u64,
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time from the first SYN until the receiver has all data and the FIN; `None` if the transfer is incomplete.
    pub complete: Option<Duration>,
    /// How each end closed; `None` if it is still open.
    pub ends: [Option<End>; 2],
    /// Bytes received in order: by the sender, by the receiver.
    pub arrived: [u64; 2],
    /// Counters of the sender and of the receiver.
    pub counts: [SendCounts; 2],
    /// Packets dropped by queues or lost in transit.
    pub lost: u64,
    /// Packets sent, including lost ones.
    pub packets: u64,
}

/// An end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that opened.
    Sender,
    /// The end that listened.
    Receiver,
}

/// Events that an observer can see.
#[derive(Clone, Copy, Debug)]
pub enum PathEvent<'a> {
    /// This end has sent this segment.
    Sent(Side, &'a Outgoing),
    /// This segment has arrived at this end.
    Arrives(Side, &'a Outgoing),
}

impl Default for PathDirection {
    fn default() -> PathDirection {
        PathDirection {
            rate_bits_per_second: Some(100_000_000),
            delay: Duration::from_millis(5),
            queue_len: 1 << 20,
            mark_len: None,
            overhead_len: 14,
            loss: 0.0,
            late: (0.0, Duration::ZERO),
            repeats: 0.0,
            mtu: 9_000,
            change: None,
            reports: true,
        }
    }
}

/// Simulates a transfer until it completes, or until `timeout` has passed.
pub fn run(transfer: &Transfer, timeout: Duration, mut observe: impl FnMut(Time, PathEvent<'_>)) -> Outcome {
    let mut path = Path::new(transfer);
    path.step(Side::Sender, Time::ZERO, &mut observe, |end, now, mut out| {
        end.open(now, &mut out);
        end.write(now, transfer.lens[0], &mut out);
        end.close(now, &mut out);
    });
    let limit = Time::ZERO + timeout;
    while let Some(now) = path.next().filter(|now| *now <= limit) {
        path.advance(now, &mut observe);
    }
    path.outcome()
}

struct Path<'a> {
    transfer: &'a Transfer,
    ends: [Connection; 2],
    lines: [Link; 2],
    rng: Rng,
    events: Events<usize>,
    travelling: Vec<Travelling>,
    free: Vec<usize>,
    emitted: Vec<Emit>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    free_at: Time,
}

#[derive(Clone, Copy)]
enum Travelling {
    Segment(Side, Outgoing),
    TooBig { to: Side, mtu: u32, seq: u32 },
}

impl<'a> Path<'a> {
    fn new(transfer: &'a Transfer) -> Path<'a> {
        Path {
            ends: [Connection::new(transfer.sender.clone()), Connection::listening(transfer.receiver.clone())],
            lines: [Link::default(); 2],
            rng: Rng::new(transfer.seed),
            events: Events::default(),
            travelling: Vec::new(),
            free: Vec::new(),
            emitted: Vec::new(),
            outcome: Outcome {
                complete: None,
                ends: [None; 2],
                arrived: [0; 2],
                counts: [SendCounts::default(); 2],
                lost: 0,
                packets: 0,
            },
            transfer,
        }
    }

    /// The time of the next event; `None` if nothing is planned.
    fn next(&self) -> Option<Time> {
        let deadlines = self.ends.iter().filter_map(Connection::next_deadline);
        deadlines.chain(self.events.next_time()).min()
    }

    fn advance(&mut self, now: Time, observe: &mut impl FnMut(Time, PathEvent<'_>)) {
        while self.events.next_time().is_some_and(|at| at <= now)
            && let Some((_, slot)) = self.events.next()
        {
            self.free.push(slot);
            self.arrive(now, self.travelling[slot], observe);
        }
        for side in [Side::Sender, Side::Receiver] {
            if self.ends[side as usize].next_deadline().is_some_and(|at| at <= now) {
                self.step(side, now, observe, |end, now, mut out| end.expire(now, &mut out));
            }
        }
    }

    fn arrive(&mut self, now: Time, travelling: Travelling, observe: &mut impl FnMut(Time, PathEvent<'_>)) {
        match travelling {
            Travelling::TooBig { to, mtu, seq } => {
                self.step(to, now, observe, |end, now, mut out| _ = end.too_big(now, mtu, seq, &mut out));
            }
            Travelling::Segment(to, outgoing) => {
                observe(now, PathEvent::Arrives(to, &outgoing));
                self.step(to, now, observe, |end, now, out| {
                    end.push(now, &outgoing.segment, &mut |emit| {
                        if let Emit::Fresh { offset, at, .. } = emit {
                            let expected = outgoing.offset + u64::from(at);
                            assert_eq!(offset, expected, "law 3: a byte arrives where it was sent");
                        }
                        out(emit);
                    });
                });
            }
        }
    }

    /// Executes one step of an end, and handles its output.
    fn step(
        &mut self,
        side: Side,
        now: Time,
        observe: &mut impl FnMut(Time, PathEvent<'_>),
        act: impl FnOnce(&mut Connection, Time, &mut dyn FnMut(Emit)),
    ) {
        let mut emitted = std::mem::take(&mut self.emitted);
        act(&mut self.ends[side as usize], now, &mut |emit| emitted.push(emit));
        for emit in emitted.drain(..) {
            match emit {
                Emit::Segment(outgoing) => {
                    observe(now, PathEvent::Sent(side, &outgoing));
                    self.carry(now, side, outgoing);
                }
                Emit::Arrived(len) => self.outcome.arrived[side as usize] = len,
                Emit::PeerClosed if side == Side::Receiver => {
                    self.outcome.complete = Some(now.since(Time::ZERO));
                    self.answer(now, observe);
                }
                Emit::Ended(end) => self.outcome.ends[side as usize] = Some(end),
                Emit::Fresh { .. } | Emit::Opened | Emit::PeerClosed => {}
            }
        }
        self.emitted = emitted;
    }

    /// Sends the receiver's reply and closes, because all data has been received.
    fn answer(&mut self, now: Time, observe: &mut impl FnMut(Time, PathEvent<'_>)) {
        let len = self.transfer.lens[1];
        self.step(Side::Receiver, now, observe, |end, now, mut out| {
            end.write(now, len, &mut out);
            end.close(now, &mut out);
        });
    }

    fn carry(&mut self, now: Time, from: Side, mut outgoing: Outgoing) {
        let (direction, to, settings) = match from {
            Side::Sender => (&self.transfer.there, Side::Receiver, &self.transfer.sender),
            Side::Receiver => (&self.transfer.back, Side::Sender, &self.transfer.receiver),
        };
        self.outcome.packets += 1;
        let len = packet_len(settings, &outgoing.segment);
        assert!(len <= settings.mtu, "law 1: a packet of {len} bytes on a link of {}", settings.mtu);
        let mtu = direction.change.filter(|(at, _)| *at <= now).map_or(direction.mtu, |(_, mtu)| mtu);
        if len > mtu && outgoing.dont_fragment {
            self.outcome.lost += 1;
            if direction.reports {
                let seq = outgoing.segment.seq;
                self.travel(now + direction.delay * 2, Travelling::TooBig { to: from, mtu, seq });
            }
            return;
        }
        let line = &mut self.lines[from as usize];
        let Some((sent, waiting)) = line.take(now, direction, len) else {
            self.outcome.lost += 1;
            return;
        };
        if self.rng.unit() < direction.loss {
            self.outcome.lost += 1;
            return;
        }
        if outgoing.segment.ecn != Ecn::NotEct && direction.mark_len.is_some_and(|len| waiting > len) {
            outgoing.segment.ecn = Ecn::Ce;
        }
        let (share, by) = direction.late;
        let late = if self.rng.unit() < share { by.mul_f64(self.rng.unit()) } else { Duration::ZERO };
        let count = if self.rng.unit() < direction.repeats { 2 } else { 1 };
        for copy in 0..count {
            self.travel(sent + direction.delay + late * (copy + 1), Travelling::Segment(to, outgoing));
        }
    }

    fn travel(&mut self, at: Time, what: Travelling) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.travelling[slot] = what;
                slot
            }
            None => {
                self.travelling.push(what);
                self.travelling.len() - 1
            }
        };
        self.events.plan(at, slot);
    }

    fn outcome(&self) -> Outcome {
        Outcome { counts: [self.ends[0].counts(), self.ends[1].counts()], ..self.outcome }
    }
}

impl Link {
    /// Queues a packet. Returns the end of its transmission and the bytes queued before it; `None` if the queue is
    /// full.
    fn take(&mut self, now: Time, direction: &PathDirection, len: u32) -> Option<(Time, u64)> {
        let Some(rate) = direction.rate_bits_per_second else { return Some((now, 0)) };
        let nanos_of = |len: u64| len * 8 * NANOS_PER_SECOND / rate;
        let waiting = (self.free_at.since(now).as_nanos() as u64).saturating_mul(rate) / (8 * NANOS_PER_SECOND);
        if waiting > direction.queue_len {
            return None;
        }
        self.free_at = self.free_at.max(now).later(nanos_of(u64::from(len + direction.overhead_len)));
        Some((self.free_at, waiting))
    }
}

/// Length of the packet that carries a segment, in bytes.
pub fn packet_len(settings: &Settings, segment: &Segment) -> u32 {
    settings.plain_header_len() + segment.option_len() as u32 + segment.len
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
