//! Two ends and what lies between them in, when the last byte arrived out.
//!
//! The least network that a connection can be asked in: a line of so many bits per second with a queue in front of it, a
//! delay, and what a seed says befalls a packet. Segments travel as what they say; that each byte is where it belongs is
//! checked by its place.

use super::SendCounts;
use super::connection::{Connection, Emit, End, Outgoing};
use super::segment::Segment;
use super::settings::Settings;
use crate::event::Events;
use crate::rng::Rng;
use packet::{Ecn, Time};
use std::time::Duration;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathDirection {
    /// What the line carries; none: any number of bits at once.
    pub rate_bits_per_second: Option<u64>,
    /// From the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// How much waits for the line, in bytes; what comes to a full queue is dropped.
    pub queue_len: u64,
    /// From how much on in the queue packets that take part are marked (RFC 3168 section 5), in bytes.
    pub mark_len: Option<u64>,
    /// Counted on the line for each packet beside its own bytes.
    pub overhead_len: u32,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of packets that arrive late, by up to this.
    pub late: (f64, Duration),
    /// Share of packets that arrive twice.
    pub repeats: f64,
    /// The longest packet that it takes, in bytes.
    pub mtu: u32,
    /// It takes another length from a moment on.
    pub change: Option<(Time, u32)>,
    /// Does its router say what it takes?
    pub reports: bool,
}

/// What is sent over a path.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The end that opens, sends and closes.
    pub sender: Settings,
    /// The end that waits, takes and closes.
    pub receiver: Settings,
    /// From the sender to the receiver.
    pub there: PathDirection,
    /// From the receiver to the sender.
    pub back: PathDirection,
    /// Bytes that the sender sends, and that the receiver sends in turn.
    pub lens: [u64; 2],
    /// What befalls whom.
    pub seed: u64,
}

/// What became of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From the first SYN to the moment at which the receiver had all, FIN included.
    pub complete: Option<Duration>,
    /// How both ends ended.
    pub ends: [Option<End>; 2],
    /// Bytes that arrived in order at the sender and at the receiver.
    pub arrived: [u64; 2],
    /// What both ends have done.
    pub counts: [SendCounts; 2],
    /// Packets that the queues dropped or the ways lost.
    pub lost: u64,
    /// Packets that entered the path.
    pub packets: u64,
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that opened.
    Sender,
    /// The one that waited.
    Receiver,
}

/// What can be seen on the path.
#[derive(Clone, Copy, Debug)]
pub enum PathEvent<'a> {
    /// This end has sent it.
    Left(Side, &'a Outgoing),
    /// This end gets it.
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

/// Runs a transfer to its end, or until `hold_timeout` has passed.
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
    dice: Rng,
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
            dice: Rng::new(transfer.seed),
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

    /// When something happens next.
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

    /// Has one end do something, and takes what it emits.
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
                    observe(now, PathEvent::Left(side, &outgoing));
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

    /// The receiver has all: it sends its own, and closes.
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
        if self.dice.unit() < direction.loss {
            self.outcome.lost += 1;
            return;
        }
        if outgoing.segment.ecn != Ecn::NotEct && direction.mark_len.is_some_and(|len| waiting > len) {
            outgoing.segment.ecn = Ecn::Ce;
        }
        let (share, by) = direction.late;
        let late = if self.dice.unit() < share { by.mul_f64(self.dice.unit()) } else { Duration::ZERO };
        let count = if self.dice.unit() < direction.repeats { 2 } else { 1 };
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
    /// When a packet has been sent, and how many bytes waited in front of it; none where the queue is full.
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
