//! Who sends what to whom in, what was sent of it and what arrived out; every byte of it is a pattern.

use crate::pattern::Pattern;
use crate::rng::Rng;
use crate::tcp::{End, Settings};
use crate::wire::{TCP, UDP};
use core::time::Duration;
use packet::Time;

/// What one host sends another, as it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Datagrams, or a stream.
    pub kind: Kind,
    /// The sender, by the number of its node.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// IPv6?
    pub is_v6: bool,
    /// How long messages, or segments, are.
    pub sizes: Sizes,
    /// How many there are.
    pub count: u64,
    /// How many leave at once.
    pub burst: u32,
    /// How long after a burst the next one leaves.
    pub gap: Duration,
    /// When the first one leaves.
    pub start: Duration,
    /// Of segments, one in so many leaves in another place of its burst, or twice; 0: none.
    pub disorder: u64,
    /// Do segments carry timestamps?
    pub has_timestamps: bool,
    /// The receiver acknowledges each so many-th segment; 0: none.
    pub acks_every: u64,
    /// How the hosts of a connection behave. Of what is no connection, whether its packets may be marked.
    pub talk: Talk,
}

/// A connection: its ends, and what is said in turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Talk {
    /// The end that opens and the one that waits; version, link and first number are the hosts' to say.
    pub ends: [Settings; 2],
    /// Bytes that the one that waits sends.
    pub reply_len: u64,
    /// When it sends them, and closes.
    pub reply: Reply,
    /// May an end give it up? Else all of it has to arrive.
    pub may_end_early: bool,
}

/// When the end that waited for a connection sends what it has, and closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// As soon as the connection is open.
    AtOnce,
    /// When the other end has closed.
    #[default]
    AtLast,
}

/// What a flow consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP messages.
    Datagrams,
    /// Segments with TCP's headers, sent as they are planned, whatever is acknowledged: for joining, the hardest of senders.
    Stream,
    /// A TCP connection: an end that opens, writes and closes, and one that waits, answers and closes.
    Tcp,
    /// Packets that nobody should send; see `junk.rs`.
    Malformed,
}

/// How long things are, in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// As long as fits.
    Full,
    /// All alike.
    Fixed(u32),
    /// Any length of these.
    Between(u32, u32),
    /// Mostly short, one in so many as long as can be.
    Mixed(u32, u64),
}

impl Sizes {
    /// The length of the next, which is at most `most`.
    pub fn draw(self, dice: &mut Rng, most: u32) -> u32 {
        let len = match self {
            Sizes::Full => most,
            Sizes::Fixed(len) => len,
            Sizes::Between(least, greatest) => dice.from(u64::from(least), u64::from(greatest)) as u32,
            Sizes::Mixed(_, often) if dice.one_in(often) => dice.from(1, 65_535) as u32,
            Sizes::Mixed(short, _) => dice.from(1, u64::from(short)) as u32,
        };
        len.clamp(1, most.max(1))
    }

    /// The mean of what is drawn where anything fits.
    pub fn mean_len(self) -> u64 {
        match self {
            Sizes::Full => 65_535,
            Sizes::Fixed(len) => u64::from(len),
            Sizes::Between(least, greatest) => u64::from(least.midpoint(greatest)),
            Sizes::Mixed(short, often) => u64::from(short / 2) + 32_768 / often,
        }
    }
}

/// A flow as it goes on.
#[derive(Debug)]
pub struct Flow {
    /// What was planned.
    pub plan: Plan,
    /// Its number, which its ports say.
    pub number: u16,
    pattern: Pattern,
    /// What all its messages begin with, beside what each says: its pattern's number.
    mark: u64,
    /// The bytes of a connection's second end.
    back: Pattern,
    /// Where its sender draws from.
    pub dice: Rng,
    /// Messages that were sent, or bytes of the stream.
    pub sent: u64,
    /// Messages, or segments, that are planned still.
    pub left: u64,
    /// What arrived of it, once.
    pub arrived: u64,
    /// Bytes of the messages that arrived.
    pub arrived_len: u64,
    /// When the last of that came; of streams without a connection nobody looks.
    pub last_arrival: Time,
    /// The sender was told that no longer packets reach the receiver, in bytes.
    pub told_len: usize,
    /// Longest segment that the receiver said it takes; none before it did.
    pub peer_mss: Option<u16>,
    /// How often the sender has tried to open its stream.
    pub syn_count: u32,
    /// Segments that the receiver took.
    pub segment_count: u64,
    /// When it sends next: what was planned for another moment is void.
    pub next_send: Time,
    /// Which messages arrived, a bit each; of a stream, nothing.
    seen: Vec<u64>,
    /// Of a connection, what its second end sent, and what of it arrived in order.
    pub reply: [u64; 2],
    /// Of a connection, how each end ended.
    pub endings: [Option<End>; 2],
    /// Which bytes of the stream arrived, in order, apart.
    ranges: Vec<(u64, u64)>,
}

impl Flow {
    /// A flow that has not begun.
    pub fn new(seed: u64, number: u16, plan: Plan) -> Flow {
        let pattern = Pattern::new(seed).part(u64::from(number));
        Flow {
            number,
            pattern,
            mark: pattern.number(),
            back: pattern.part(u64::MAX),
            dice: Rng::new(pattern.number() ^ 1),
            sent: 0,
            left: plan.count,
            arrived: 0,
            arrived_len: 0,
            last_arrival: Time::ZERO + plan.start,
            told_len: usize::MAX,
            peer_mss: None,
            syn_count: 0,
            segment_count: 0,
            next_send: Time::ZERO + plan.start,
            seen: Vec::new(),
            reply: [0; 2],
            endings: [None; 2],
            ranges: Vec::new(),
            plan,
        }
    }

    /// Its port, at both hosts.
    pub fn port(&self) -> u16 {
        PORT + self.number
    }

    /// The sequence number of the stream's SYN.
    pub fn isn(&self) -> u32 {
        self.mark as u32
    }

    /// The sequence number of the SYN of one end of a connection: 0 is the one that opens.
    pub fn first_seq(&self, end: usize) -> u32 {
        self.isn() ^ if end == 0 { 0 } else { 0x5555_5555 }
    }

    /// Where in the stream of this end a segment with this sequence number starts.
    pub fn place_of(&self, end: usize, seq: u32) -> u64 {
        u64::from(seq.wrapping_sub(self.first_seq(end).wrapping_add(1)))
    }

    /// The bytes that one end of a connection sends.
    pub fn stream_of(&self, end: usize) -> Pattern {
        if end == 0 { self.pattern } else { self.back }
    }

    /// The ports of what one end of a connection sends: its own, and the other's.
    pub fn ports_of(&self, end: usize) -> [u16; 2] {
        let [opens, waits] = [self.port() + APART, self.port()];
        if end == 0 { [opens, waits] } else { [waits, opens] }
    }

    /// The hosts of what one end of a connection sends: its own, and the other.
    pub fn hosts_of(&self, end: usize) -> [u16; 2] {
        let [opens, waits] = [self.plan.from as u16, self.plan.to as u16];
        if end == 0 { [opens, waits] } else { [waits, opens] }
    }

    /// The end that sends packets of this protocol with these ports; none where they are of another flow, as damaged ones may be.
    #[inline]
    pub fn sender_of(&self, protocol: u8, ports: [u16; 2]) -> Option<usize> {
        match (self.plan.kind, protocol) {
            (Kind::Tcp, TCP) => [0, 1].into_iter().find(|end| self.ports_of(*end) == ports),
            (Kind::Stream, TCP) | (Kind::Datagrams, UDP) => (ports == [self.port(); 2]).then_some(0),
            _ => None,
        }
    }

    /// Has all of a connection arrived, and did its ends end as they should? One end may ask in vain whether its last word
    /// arrived: the other forgets it after a while.
    pub fn is_done(&self) -> bool {
        let has_all = self.arrived == self.sent && self.left == 0 && self.reply == [self.plan.talk.reply_len; 2];
        has_all && self.endings.iter().all(Option::is_some) && self.endings.contains(&Some(End::Closed))
    }

    /// The bytes of its stream.
    pub fn stream(&self) -> Pattern {
        self.pattern
    }

    /// Writes message `number` to all of `to`.
    pub fn write_message(&self, number: u64, to: &mut [u8]) {
        let len = to.len() as u64;
        match to.split_first_chunk_mut::<MARK_LEN>() {
            Some((mark, rest)) => {
                *mark = ((number << 16 | len) ^ self.mark).to_be_bytes();
                self.pattern.part(number).fill(0, rest);
            }
            None => self.pattern.part(!len).fill(0, to),
        }
    }

    /// The number of a message, where it is long enough to say it.
    pub fn message_of(&self, message: &[u8]) -> Option<u64> {
        let mark = message.first_chunk::<MARK_LEN>()?;
        Some((u64::from_be_bytes(*mark) ^ self.mark) >> 16)
    }

    /// Where in the stream a segment with this sequence number starts.
    pub fn offset_of(&self, seq: u32) -> u64 {
        self.place_of(0, seq)
    }

    /// Takes a message that arrived; says what is wrong with it.
    ///
    /// # Errors
    /// One sentence.
    pub fn receive_message(&mut self, message: &[u8]) -> Result<Arrival, String> {
        let len = message.len() as u64;
        let Some(number) = self.message_of(message) else {
            return match self.pattern.part(!len).first_wrong(0, message) {
                None => {
                    self.arrived += 1;
                    Ok(Arrival::Short)
                }
                Some(at) => Err(format!("a message of {len} bytes is wrong from byte {at} on")),
            };
        };
        let mark = message.first_chunk::<MARK_LEN>().map_or(0, |mark| u64::from_be_bytes(*mark));
        let said_len = (mark ^ self.mark) & 0xFFFF;
        if number >= self.sent || said_len != len {
            return Err(format!("a message of {len} bytes says that it is number {number} and has {said_len}"));
        }
        if let Some(at) = self.pattern.part(number).first_wrong(0, &message[MARK_LEN..]) {
            return Err(format!("message {number}, of {len} bytes, is wrong from byte {} on", at + MARK_LEN));
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit > 0 {
            return Ok(Arrival::Again);
        }
        self.seen[word] |= bit;
        self.arrived += 1;
        Ok(Arrival::First)
    }

    /// Takes a segment's payload, which stands at `offset` of the stream; says what is wrong with it.
    ///
    /// # Errors
    /// One sentence.
    pub fn receive_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let end = offset + bytes.len() as u64;
        if end > self.sent {
            return Err(format!("a segment ends at {end}, {} bytes were sent", self.sent));
        }
        if let Some(at) = self.pattern.first_wrong(offset, bytes) {
            return Err(format!("a segment of {} bytes at {offset} is wrong from byte {at} on", bytes.len()));
        }
        self.segment_count += 1;
        self.note(offset, end);
        Ok(())
    }

    fn note(&mut self, start: u64, end: u64) {
        if let Some(last) = self.ranges.last_mut().filter(|last| last.1 == start) {
            last.1 = end;
            self.arrived += end - start;
            return;
        }
        let from = self.ranges.partition_point(|range| range.1 < start);
        let until = self.ranges.partition_point(|range| range.0 <= end);
        let touched = &self.ranges[from..until];
        let known: u64 = touched.iter().map(|range| range.1 - range.0).sum();
        let whole = touched.iter().fold((start, end), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.ranges.splice(from..until, [whole]);
        self.arrived += whole.1 - whole.0 - known;
    }
}

/// How a message arrived that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// For the first time.
    First,
    /// Not for the first time.
    Again,
    /// It is too short to say which it is.
    Short,
}

/// The number of the flow that a packet with these ports is of, if it is of one.
#[inline]
pub fn flow_of(ports: [u16; 2]) -> Option<usize> {
    ports[0].min(ports[1]).checked_sub(PORT).map(usize::from)
}

/// The flow of a TCP packet with these ports, where they are those of a connection, and which end sends it.
#[inline]
pub fn connection_of([source, destination]: [u16; 2]) -> Option<(usize, usize)> {
    let (low, end) = if source > destination { (destination, 0) } else { (source, 1) };
    let is_ours = source.abs_diff(destination) == APART && low >= PORT;
    is_ours.then(|| (usize::from(low - PORT), end))
}

/// Ports of flows begin here.
pub const PORT: u16 = 4_096;
/// So far apart are the two ports of a connection; those of other flows are the same.
const APART: u16 = 1 << 15;
/// A message begins with its number and its length, in so many bytes.
const MARK_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_becomes_of_one_bit_of_its_ports_a_packet_is_of_no_flow() {
        for (kind, protocol) in [(Kind::Tcp, TCP), (Kind::Stream, TCP), (Kind::Datagrams, UDP)] {
            let flows: Vec<Flow> = (0..8).map(|number| Flow::new(3, number, plan(kind))).collect();
            for (number, end) in (0..8).flat_map(|number| [(number, 0), (number, 1)]) {
                let of = |ports: [u16; 2]| {
                    flow_of(ports).and_then(|flow| Some((flow, flows.get(flow)?.sender_of(protocol, ports)?)))
                };
                let ports = if kind == Kind::Tcp { flows[number].ports_of(end) } else { [flows[number].port(); 2] };
                let end = if kind == Kind::Tcp { end } else { 0 };
                assert_eq!(of(ports), Some((number, end)), "{kind:?}");
                for (at, bit) in (0..16).flat_map(|bit| [(0, bit), (1, bit)]) {
                    let mut damaged = ports;
                    damaged[at] ^= 1 << bit;
                    assert_eq!(of(damaged), None, "{kind:?}: {ports:?} as {damaged:?}");
                }
            }
        }
    }

    fn plan(kind: Kind) -> Plan {
        Plan {
            kind,
            from: 0,
            to: 1,
            is_v6: false,
            sizes: Sizes::Full,
            count: 1,
            burst: 1,
            gap: Duration::ZERO,
            start: Duration::ZERO,
            disorder: 0,
            has_timestamps: false,
            acks_every: 0,
            talk: Talk::default(),
        }
    }
}
