//! Processed packets, and frames without a packet -> the output queue or the counters.
//!
//! Every stage ends packets through [`Output`], so no packet is lost uncounted. Transmission is left to the port.

use crate::icmp_error::IcmpResponder;
use crate::ledger::{Event, Ledger, Reason, Tally};
use packet::icmp::IcmpError;
use packet::{OpaqueFrame, Packet, ParseError, Pool, Time};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The only exits of the engine: forwarding, an ICMP error, or retirement. Frames that carry no packet are queued
/// unchanged. The output contains the ledger, and the pool that supplies buffers and takes them back.
///
/// After every push and every expiry, a port empties the output in a loop: [`next`](Output::next), transmit,
/// [`recycle`](Output::recycle).
#[derive(Debug)]
pub struct Output {
    /// The pool that supplies buffers.
    pub pool: Pool,
    /// The counters of all packets of this direction since the output was created.
    pub ledger: Ledger,
    answers: Option<IcmpResponder>,
    queue: VecDeque<Egress>,
}

/// The next stage: another stage, or the queue of an [`Output`]. A packet is handed to the next stage immediately.
pub trait Next {
    /// Takes a packet from the previous stage.
    fn forward(&mut self, packet: Packet);

    /// Returns the output behind all stages.
    fn output(&mut self) -> &mut Output;

    /// Returns the pool that supplies buffers.
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.output().pool
    }

    /// Returns the ledger of the output.
    #[inline]
    fn ledger(&mut self) -> &mut Ledger {
        &mut self.output().ledger
    }

    /// Returns the buffer of a packet to the pool, after its content was copied to another packet.
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

/// A packet or frame to send, and its destination.
#[derive(Debug)]
pub enum Egress {
    /// A packet to be sent toward its destination.
    Forward(Packet),
    /// A packet of our own, to be sent by the port that received the packet that it answers: an ICMP error or an early
    /// acknowledgement.
    IcmpReply(Packet),
    /// A frame without a well-formed IP packet, to be sent unchanged toward its destination.
    PassThrough(OpaqueFrame, ParseError),
}

impl Output {
    /// Creates an empty output that takes buffers from `pool`. Without `answers`, it never sends an ICMP error.
    pub fn new(pool: Pool, answers: Option<IcmpResponder>) -> Output {
        Output { pool, ledger: Ledger::new(), answers, queue: VecDeque::with_capacity(QUEUE_LEN) }
    }

    /// Sets the source addresses of later ICMP errors, one per IP version. No effect without a responder.
    pub fn icmp_source(&mut self, sources: [IpAddr; 2]) {
        if let Some(answers) = &mut self.answers {
            answers.come_from(sources);
        }
    }

    /// Returns the next packet for the port, and counts it as forwarded. For callers that push only packets.
    #[expect(clippy::should_implement_trait, reason = "a port drains what a stage fills again: no iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<Packet> {
        if self.queue.is_empty() { None } else { self.take() }
    }

    /// Returns the next packet or frame with its destination, and counts a packet as forwarded. For callers with
    /// two ports.
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

    /// Returns the buffer of a transmitted packet to the pool.
    #[inline(always)]
    pub fn recycle(&mut self, packet: Packet) {
        self.pool.give(packet.into_buffer());
    }

    /// Returns the number of queued packets and frames.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Queues a frame behind the queued packets. The caller counts the frame when the frame is sent.
    pub(crate) fn pass(&mut self, raw: OpaqueFrame, unfit: ParseError) {
        self.queue.push_back(Egress::PassThrough(raw, unfit));
    }

    /// Queues a packet of our own for the host that sent the answered packet.
    pub(crate) fn reply(&mut self, packet: Packet) {
        self.queue.push_back(Egress::IcmpReply(packet));
    }

    /// Drops or rejects a packet, or a run of packets in one buffer, and counts `ended` under `reason`.
    pub(crate) fn retire(&mut self, packet: Packet, ended: Tally, reason: Reason) {
        self.ledger.retire(reason, ended);
        self.recycle(packet);
    }

    /// Sends an ICMP error to the source of a packet, if the standards and the rate limit allow it.
    pub(crate) fn answer(&mut self, now: Time, icmp_error: IcmpError, about: &Packet) {
        let Some(answers) = &mut self.answers else { return };
        let (event, answer) = answers.about(now, icmp_error, about, &mut self.pool);
        self.ledger.note(event, answer.as_ref().map_or(Tally::new(1, 0), Tally::of));
        if let Some(answer) = answer {
            self.queue.push_back(Egress::IcmpReply(answer));
        }
    }

    /// Sends an ICMP error to the source of a packet, without a rate limit. Returns whether an error was sent.
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

/// Initial capacity of the queue. One push rarely queues more packets.
const QUEUE_LEN: usize = 64;
