//! Processed packets, and frames without a packet -> the output queue or the counters.

use crate::icmp_error::IcmpResponder;
use crate::ledger::{Event, Ledger, Reason, Tally};
use packet::icmp::IcmpError;
use packet::{OpaqueFrame, Packet, ParseError, Pool, Time};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The only exits of the engine: forward, answer with an ICMP error, retire. Frames that carry no packet pass
/// through. The output holds the ledger, and the pool that supplies buffers and takes them back.
///
/// A port drains the output after every push and every expiry: [`next`](Output::next), transmit,
/// [`recycle`](Output::recycle).
#[derive(Debug)]
pub struct Output {
    /// The pool that supplies buffers.
    pub pool: Pool,
    /// The counters of all packets so far.
    pub ledger: Ledger,
    answers: Option<IcmpResponder>,
    queue: VecDeque<Egress>,
}

/// The next stage: another stage, or the queue of an [`Output`]. A packet is handed on at once.
pub trait Next {
    /// Takes a forwarded packet.
    fn forward(&mut self, packet: Packet);

    /// The output at the end of all stages.
    fn output(&mut self) -> &mut Output;

    /// The pool that supplies buffers.
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.output().pool
    }

    /// The counters of all packets so far.
    #[inline]
    fn ledger(&mut self) -> &mut Ledger {
        &mut self.output().ledger
    }

    /// Takes back the buffer of a packet whose content has been moved elsewhere.
    #[inline(always)]
    fn recycle(&mut self, packet: Packet) {
        self.output().recycle(packet);
    }
}

impl Next for Output {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        self.queue.push_back(Egress::Forward(packet));
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        self
    }
}

impl<N: Next> Next for &mut N {
    #[inline]
    fn forward(&mut self, packet: Packet) {
        (**self).forward(packet);
    }

    #[inline(always)]
    fn output(&mut self) -> &mut Output {
        (**self).output()
    }
}

/// A leaving packet or frame, and its destination.
#[derive(Debug)]
pub enum Egress {
    /// A packet toward its destination.
    Forward(Packet),
    /// An ICMP error of our own. It leaves by the port that the packet in error came from.
    IcmpReply(Packet),
    /// A frame that carries no packet for us, unchanged, toward its destination.
    PassThrough(OpaqueFrame, ParseError),
}

impl Output {
    /// An output that takes buffers from `pool`. Without `answers`, it never sends an ICMP error.
    pub fn new(pool: Pool, answers: Option<IcmpResponder>) -> Output {
        Output { pool, ledger: Ledger::new(), answers, queue: VecDeque::with_capacity(QUEUE_LEN) }
    }

    /// Sets the source addresses of ICMP errors from now on, one per IP version. No effect without a responder.
    pub fn icmp_source(&mut self, sources: [IpAddr; 2]) {
        if let Some(answers) = &mut self.answers {
            answers.come_from(sources);
        }
    }

    /// The next packet for the port, counted as forwarded. For callers that push only packets.
    #[expect(clippy::should_implement_trait, reason = "a port drains what a stage fills again: no iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<Packet> {
        if self.queue.is_empty() { None } else { self.take() }
    }

    /// The same, with the destination. For callers with two ports.
    #[inline]
    pub fn next_direction(&mut self) -> Option<Egress> {
        let direction = self.queue.pop_front()?;
        if let Egress::Forward(packet) = &direction {
            self.count_gone(packet);
        }
        Some(direction)
    }

    fn take(&mut self) -> Option<Packet> {
        match self.queue.pop_front()? {
            Egress::PassThrough(..) => panic!("whoever hands in other frames than packets takes all that leaves"),
            Egress::IcmpReply(packet) => Some(packet),
            Egress::Forward(packet) => {
                self.count_gone(&packet);
                Some(packet)
            }
        }
    }

    #[inline(always)]
    fn count_gone(&mut self, packet: &Packet) {
        if packet.is_single() {
            self.ledger.forwarded += Tally::of(packet);
            return;
        }
        self.count_gone_in_parts(packet);
    }

    fn count_gone_in_parts(&mut self, packet: &Packet) {
        match packet.fragment_ranges() {
            Some(fragment_ranges) => {
                let (count, bytes) = fragment_ranges.totals();
                let fragments = Tally::new(count, bytes);
                self.ledger.note(Event::Fragmented, Tally::new(1, bytes));
                self.ledger.note(Event::Fragments, fragments);
                self.ledger.forwarded += fragments;
            }
            None => self.ledger.forwarded += Tally::of(packet),
        }
    }

    /// Takes back a packet that the port has transmitted.
    #[inline(always)]
    pub fn recycle(&mut self, packet: Packet) {
        self.pool.give(packet.into_buffer());
    }

    /// Number of queued packets.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Queues a frame behind the queued packets. The sender of the frame counts it.
    pub(crate) fn pass(&mut self, raw: OpaqueFrame, unfit: ParseError) {
        self.queue.push_back(Egress::PassThrough(raw, unfit));
    }

    /// Ends a packet, or a run of packets that share a buffer.
    pub(crate) fn retire(&mut self, packet: Packet, ended: Tally, reason: Reason) {
        self.ledger.retire(reason, ended);
        self.recycle(packet);
    }

    /// Reports an error to a packet's sender, within the limits of the standards and the rate limit.
    pub(crate) fn answer(&mut self, now: Time, icmp_error: IcmpError, about: &Packet) {
        let Some(answers) = &mut self.answers else { return };
        let (event, answer) = answers.about(now, icmp_error, about, &mut self.pool);
        self.ledger.note(event, answer.as_ref().map_or(Tally::new(1, 0), Tally::of));
        if let Some(answer) = answer {
            self.queue.push_back(Egress::IcmpReply(answer));
        }
    }

    /// Reports an error to a packet's sender outside of the rate limit. Returns whether an ICMP error was sent.
    pub(crate) fn tell(&mut self, icmp_error: IcmpError, about: &Packet) -> bool {
        let answers = self.answers.as_ref();
        let Some(answer) = answers.and_then(|answers| answers.about_all(icmp_error, about, &mut self.pool)) else {
            return false;
        };
        self.ledger.note(Event::IcmpSent, Tally::of(&answer));
        self.queue.push_back(Egress::IcmpReply(answer));
        true
    }
}

/// Packets that one push usually queues, at most.
const QUEUE_LEN: usize = 64;
