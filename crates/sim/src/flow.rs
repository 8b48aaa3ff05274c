//! Flow plans -> the state of flows during a run: data sent and data delivered.
//!
//! All data is a pattern, so that a receiver can verify every byte without a copy. Packets are built in `host.rs`.

use crate::pattern::Pattern;
use crate::rng::Rng;
use crate::tcp::{End, Settings};
use crate::wire::{TCP, UDP};
use core::time::Duration;
use packet::Time;

/// The plan of the traffic from one host to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The kind of traffic.
    pub kind: Kind,
    /// Number of the transmitting node.
    pub from: usize,
    /// Number of the receiving node.
    pub to: usize,
    /// Whether the flow uses IPv6.
    pub is_v6: bool,
    /// Payload lengths of messages, segments or writes, in bytes.
    pub sizes: Sizes,
    /// Number of messages, segments or writes.
    pub count: u64,
    /// Number of messages or segments that are transmitted together.
    pub burst: u32,
    /// Time between the starts of two bursts.
    pub gap: Duration,
    /// Start of the first burst, from the start of the run.
    pub start: Duration,
    /// One in this many segments is reordered within its burst or repeated; 0 = none.
    pub disorder: u64,
    /// Whether segments carry timestamps.
    pub has_timestamps: bool,
    /// The receiver acknowledges one in this many segments; 0 = no acknowledgements.
    pub acks_every: u64,
    /// The behaviour of a connection's two hosts. Other flows use only the ECN setting.
    pub talk: Talk,
}

/// The behaviour of a connection: the settings of its ends, and its reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Talk {
    /// Settings of the end that opens, and of the end that listens. The hosts fill in IP version, MTU and first
    /// sequence number.
    pub ends: [Settings; 2],
    /// Number of bytes that the listening end sends.
    pub reply_len: u64,
    /// When the listening end sends its data and closes.
    pub reply: Reply,
    /// Whether an end may abort the connection. Otherwise all data must be delivered.
    pub may_end_early: bool,
}

/// When the listening end of a connection sends its data and closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// As soon as the connection is open.
    AtOnce,
    /// After the other end has closed.
    #[default]
    AtLast,
}

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP messages.
    Datagrams,
    /// Segments with TCP headers, transmitted as planned regardless of acknowledgements. This traffic is the
    /// hardest to coalesce.
    Stream,
    /// A TCP connection. One end opens, writes and closes. The other listens, replies and closes.
    Tcp,
    /// Malformed packets; see `malformed.rs`.
    Malformed,
}

/// A rule for payload lengths, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Always the longest payload that fits.
    Full,
    /// Always this length.
    Fixed(u32),
    /// Random lengths in this range, inclusive.
    Between(u32, u32),
    /// `Mixed(short, often)`: random lengths from 1 to `short`, but one in `often` lengths is random from 1 to
    /// 65,535.
    Mixed(u32, u64),
}

impl Sizes {
    /// Draws the next length, at most `most`.
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

    /// The mean length in bytes, if no maximum applies.
    pub fn mean_len(self) -> u64 {
        match self {
            Sizes::Full => 65_535,
            Sizes::Fixed(len) => u64::from(len),
            Sizes::Between(least, greatest) => u64::from(least.midpoint(greatest)),
            Sizes::Mixed(short, often) => u64::from(short / 2) + 32_768 / often,
        }
    }
}

/// The state of a flow during a run.
#[derive(Debug)]
pub struct Flow {
    /// The flow's plan.
    pub plan: Plan,
    /// The flow's number, which is encoded in its ports.
    pub number: u16,
    pattern: Pattern,
    /// The constant part of the mark at the start of messages: the number of the flow's pattern.
    mark: u64,
    /// The bytes that the connection's listening end sends.
    back: Pattern,
    /// The flow's random numbers.
    pub dice: Rng,
    /// Number of messages sent, or of stream bytes sent.
    pub sent: u64,
    /// Number of messages or segments yet to be sent.
    pub left: u64,
    /// Number of messages or bytes delivered, without repeats.
    pub arrived: u64,
    /// Number of payload bytes delivered, without repeats.
    pub arrived_len: u64,
    /// Time of the last delivery of new data. Recorded for messages and connections only.
    pub last_arrival: Time,
    /// The path MTU from received ICMP errors, in bytes; `usize::MAX` before any.
    pub told_len: usize,
    /// The MSS that the receiver announced; `None` before its SYN-ACK.
    pub peer_mss: Option<u16>,
    /// Number of SYNs sent for the stream.
    pub syn_count: u32,
    /// Number of segments that the receiver accepted.
    pub segment_count: u64,
    /// Time of the next burst. Send events planned for other times are void.
    pub next_send: Time,
    /// One bit for each message: whether it was delivered. Unused for streams.
    seen: Vec<u64>,
    /// Reply of a connection: bytes sent, and bytes delivered in order.
    pub reply: [u64; 2],
    /// Bytes of each end of a connection that its peer, or a gateway, has acknowledged.
    pub acked: [u64; 2],
    /// How each end of the connection closed; `None` while it is open.
    pub endings: [Option<End>; 2],
    /// Disjoint ranges of stream bytes that were delivered, in order.
    ranges: Vec<(u64, u64)>,
}

impl Flow {
    /// A flow that has not started.
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
            acked: [0; 2],
            endings: [None; 2],
            ranges: Vec::new(),
            plan,
        }
    }

    /// The flow's port number at both hosts.
    pub fn port(&self) -> u16 {
        PORT + self.number
    }

    /// The sequence number of the stream's SYN.
    pub fn isn(&self) -> u32 {
        self.mark as u32
    }

    /// The sequence number of the SYN that end `end` of a connection sends. End 0 opens.
    pub fn first_seq(&self, end: usize) -> u32 {
        self.isn() ^ if end == 0 { 0 } else { 0x5555_5555 }
    }

    /// Converts a sequence number to an offset in the bytes that end `end` sends.
    pub fn place_of(&self, end: usize, seq: u32) -> u64 {
        u64::from(seq.wrapping_sub(self.first_seq(end).wrapping_add(1)))
    }

    /// The bytes that end `end` of a connection sends.
    pub fn stream_of(&self, end: usize) -> Pattern {
        if end == 0 { self.pattern } else { self.back }
    }

    /// Source and destination port of the packets that end `end` sends.
    pub fn ports_of(&self, end: usize) -> [u16; 2] {
        let [opens, waits] = [self.port() + APART, self.port()];
        if end == 0 { [opens, waits] } else { [waits, opens] }
    }

    /// Numbers of the source and destination host of the packets that end `end` sends.
    pub fn hosts_of(&self, end: usize) -> [u16; 2] {
        let [opens, waits] = [self.plan.from as u16, self.plan.to as u16];
        if end == 0 { [opens, waits] } else { [waits, opens] }
    }

    /// The end that sends packets with this protocol and these ports. `None` if they belong to another flow, as in
    /// damaged packets.
    #[inline]
    pub fn sender_of(&self, protocol: u8, ports: [u16; 2]) -> Option<usize> {
        match (self.plan.kind, protocol) {
            (Kind::Tcp, TCP) => [0, 1].into_iter().find(|end| self.ports_of(*end) == ports),
            (Kind::Stream, TCP) | (Kind::Datagrams, UDP) => (ports == [self.port(); 2]).then_some(0),
            _ => None,
        }
    }

    /// Whether all data of the connection was delivered and both ends closed properly. One end may get no ACK of
    /// its FIN, because the other end eventually forgets the connection.
    pub fn is_done(&self) -> bool {
        let has_all = self.arrived == self.sent && self.left == 0 && self.reply == [self.plan.talk.reply_len; 2];
        has_all && self.endings.iter().all(Option::is_some) && self.endings.contains(&Some(End::Closed))
    }

    /// The bytes of the flow's stream.
    pub fn stream(&self) -> Pattern {
        self.pattern
    }

    /// Fills `to` with the bytes of message `number`.
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

    /// The number of a message; `None` if the message is too short to contain a number.
    pub fn message_of(&self, message: &[u8]) -> Option<u64> {
        let mark = message.first_chunk::<MARK_LEN>()?;
        Some((u64::from_be_bytes(*mark) ^ self.mark) >> 16)
    }

    /// Converts a sequence number to an offset in the flow's stream.
    pub fn offset_of(&self, seq: u32) -> u64 {
        self.place_of(0, seq)
    }

    /// Records a delivered message after a check of its bytes.
    ///
    /// # Errors
    /// A sentence that describes the wrong bytes.
    pub fn receive_message(&mut self, message: &[u8]) -> Result<Arrival, String> {
        let len = message.len() as u64;
        let Some(number) = self.message_of(message) else {
            return match self.pattern.part(!len).first_wrong(0, message) {
                None => {
                    self.arrived += 1;
                    Ok(Arrival::Short)
                }
                Some(at) => Err(format!("a message of {len} bytes differs, starting at byte {at}")),
            };
        };
        let mark = message.first_chunk::<MARK_LEN>().map_or(0, |mark| u64::from_be_bytes(*mark));
        let said_len = (mark ^ self.mark) & 0xFFFF;
        if number >= self.sent || said_len != len {
            return Err(format!("a message of {len} bytes contains number {number} and length {said_len}"));
        }
        if let Some(at) = self.pattern.part(number).first_wrong(0, &message[MARK_LEN..]) {
            return Err(format!("message {number}, of {len} bytes, differs, starting at byte {}", at + MARK_LEN));
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

    /// Records a segment's payload at `offset` of the stream after a check of its bytes.
    ///
    /// # Errors
    /// A sentence that describes the wrong bytes.
    pub fn receive_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let end = offset + bytes.len() as u64;
        if end > self.sent {
            return Err(format!("a segment ends at byte {end}, but only {} bytes were sent", self.sent));
        }
        if let Some(at) = self.pattern.first_wrong(offset, bytes) {
            return Err(format!(
                "a segment of {} bytes at offset {offset} differs, starting at byte {at}",
                bytes.len()
            ));
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

/// The kinds of delivery of a correct message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first delivery of this message.
    First,
    /// A repeated delivery of this message.
    Again,
    /// A message too short to contain its number.
    Short,
}

/// The number of the flow with these ports; `None` if the ports are of no flow.
#[inline]
pub fn flow_of(ports: [u16; 2]) -> Option<usize> {
    ports[0].min(ports[1]).checked_sub(PORT).map(usize::from)
}

/// The number of the connection with these ports, and the end that sends such packets. `None` if the ports are of
/// no connection.
#[inline]
pub fn connection_of([source, destination]: [u16; 2]) -> Option<(usize, usize)> {
    let (low, end) = if source > destination { (destination, 0) } else { (source, 1) };
    let is_ours = source.abs_diff(destination) == APART && low >= PORT;
    is_ours.then(|| (usize::from(low - PORT), end))
}

/// The lowest port number of flows.
pub const PORT: u16 = 4_096;
/// Difference between the two ports of a connection. Other flows have the same port at both hosts.
const APART: u16 = 1 << 15;
/// Length of the mark at the start of a message, in bytes. The mark contains the message's number and length.
const MARK_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_port_bit_matches_no_flow() {
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
