//! Packets in that have been dealt with, and frames that carry none; the only ways out.

use crate::icmp_error::IcmpResponder;
use crate::ledger::{Event, Ledger, Reason, Tally};
use packet::icmp::IcmpError;
use packet::{OpaqueFrame, Packet, ParseError, Pool, Time};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The only ways out: forward, answer, retire; frames that carry no packet pass. It keeps the pool that buffers
/// come from and return to, and the ledger.
///
/// A port drains it after every push and every expiry: [`next`](Output::next), transmit, [`recycle`](Output::recycle).
#[derive(Debug)]
pub struct Output {
    /// Where buffers come from.
    pub pool: Pool,
    /// What happened so far.
    pub ledger: Ledger,
    answers: Option<IcmpResponder>,
    queue: VecDeque<Egress>,
}

/// What comes behind a stage: another one, or the queue of an [`Output`]. A packet is handed on at once.
pub trait Next {
    /// Takes a packet that goes on.
    fn forward(&mut self, packet: Packet);

    /// Where all ways end.
    fn output(&mut self) -> &mut Output;

    /// Where buffers come from.
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.output().pool
    }

    /// What happened so far.
    #[inline]
    fn ledger(&mut self) -> &mut Ledger {
        &mut self.output().ledger
    }

    /// Takes back the buffer of a packet whose content is elsewhere now.
    #[inline(always)]
    fn recycle(&mut self, packet: Packet) {
        self.output().done(packet);
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

/// A packet on its way out: where it goes.
#[derive(Debug)]
pub enum Egress {
    /// On.
    Forward(Packet),
    /// Back, by the port that the packet came from which it is about: it is an ICMP error of ours.
    IcmpReply(Packet),
    /// On, as it came: it carries no packet for us.
    PassThrough(OpaqueFrame, ParseError),
}

impl Output {
    /// An output that draws on `pool`. Without `answers`, no ICMP error is ever sent.
    pub fn new(pool: Pool, answers: Option<IcmpResponder>) -> Output {
        Output { pool, ledger: Ledger::new(), answers, queue: VecDeque::with_capacity(QUEUE_LEN) }
    }

    /// Has answers come from these two addresses from here on, one of each version, where any are sent.
    pub fn answer_from(&mut self, sources: [IpAddr; 2]) {
        if let Some(answers) = &mut self.answers {
            answers.come_from(sources);
        }
    }

    /// The next packet for the port, counted as gone: for who hands in packets alone.
    #[expect(clippy::should_implement_trait, reason = "a port drains what a stage fills again: no iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<Packet> {
        if self.queue.is_empty() { None } else { self.take() }
    }

    /// The same, with where it goes: for who has two ports.
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
        match packet.shares() {
            Some(shares) => {
                let (count, bytes) = shares.totals();
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
    pub fn done(&mut self, packet: Packet) {
        self.pool.give(packet.into_buffer());
    }

    /// Packets that wait for the port.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Has a frame go on behind what is queued; whoever sends it counts it.
    pub(crate) fn pass(&mut self, raw: OpaqueFrame, unfit: ParseError) {
        self.queue.push_back(Egress::PassThrough(raw, unfit));
    }

    /// Ends a packet, or a run of them that share a buffer.
    pub(crate) fn retire(&mut self, packet: Packet, ended: Tally, reason: Reason) {
        self.ledger.retire(reason, ended);
        self.done(packet);
    }

    /// Tells a packet's sender what is wrong with it, as far as the standards and the rate limit let us.
    pub(crate) fn answer(&mut self, now: Time, complaint: IcmpError, about: &Packet) {
        let Some(answers) = &mut self.answers else { return };
        let (event, answer) = answers.about(now, complaint, about, &mut self.pool);
        self.ledger.note(event, answer.as_ref().map_or(Tally::new(1, 0), Tally::of));
        if let Some(answer) = answer {
            self.queue.push_back(Egress::IcmpReply(answer));
        }
    }

    /// Tells a packet's sender what is wrong with it outside of the rate limit; says whether it could be told.
    pub(crate) fn tell(&mut self, complaint: IcmpError, about: &Packet) -> bool {
        let answers = self.answers.as_ref();
        let Some(answer) = answers.and_then(|answers| answers.about_all(complaint, about, &mut self.pool)) else {
            return false;
        };
        self.ledger.note(Event::IcmpSent, Tally::of(&answer));
        self.queue.push_back(Egress::IcmpReply(answer));
        true
    }
}

/// Packets that one push usually makes, at most.
const QUEUE_LEN: usize = 64;
