//! A program of segments, reads, writes and time -> checks of a TCP connection with a hostile peer.
//!
//! The connection must report each received byte as new only once, and deliver the bytes in order. Bytes must not
//! be acknowledged before they were written.

use crate::input::Input;
use packet::Time;
use sim::tcp::segment::{ACK, FIN, RST, SYN, Timestamps};
use sim::tcp::{Connection, Emit, Segment, Settings};
use std::collections::BTreeMap;

/// One end of a connection. The fuzzer's input controls the peer.
struct Talk {
    end: Connection,
    now: Time,
    written: u64,
    is_closed: bool,
    seen: SeenSegment,
}

/// A summary of the events that the connection has reported.
#[derive(Default)]
struct SeenSegment {
    /// Ranges of received bytes that were reported as new: start and end.
    fresh: BTreeMap<u64, u64>,
    arrived: u64,
    has_ended: bool,
    /// The next sequence number that the connection expects. `sent` is the number behind its last segment. Most
    /// generated segments are near these numbers.
    ack: u32,
    sent: u32,
}

/// Executes the input as a program.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.byte();
    let settings = Settings {
        initial_seq: input.long(),
        sack: choice & 1 > 0,
        timestamps: choice & 2 > 0,
        window_scale: choice & 4 > 0,
        ecn: choice & 8 > 0,
        ..if choice & 16 > 0 { Settings::linux() } else { Settings::standard() }
    };
    let is_listening = choice & 32 > 0;
    let end = if is_listening { Connection::listening(settings) } else { Connection::new(settings) };
    let mut talk = Talk { end, now: Time::ZERO, written: 0, is_closed: false, seen: SeenSegment::default() };
    if !is_listening {
        let seen = &mut talk.seen;
        talk.end.open(talk.now, &mut |emit| seen.note(emit));
    }
    let mut count = 0;
    while !input.is_empty() && count < STEP_COUNT_MAX {
        talk.step(&mut input);
        talk.check();
        count += 1;
    }
}

impl Talk {
    fn step(&mut self, input: &mut Input<'_>) {
        let Talk { end, now, seen, .. } = self;
        match input.byte() % 8 {
            0..=3 => {
                let segment = segment(input, seen);
                end.push(*now, &segment, &mut |emit| seen.note(emit));
            }
            4 if !self.is_closed => {
                let len = u64::from(input.word());
                self.written += len;
                end.write(*now, len, &mut |emit| seen.note(emit));
            }
            5 => {
                let len = u64::from(input.word()).min(end.unread_len());
                end.read(*now, len, &mut |emit| seen.note(emit));
            }
            6 => {
                *now = end.next_deadline().unwrap_or(*now).max(*now).later(u64::from(input.word()) * 1_000);
                end.expire(*now, &mut |emit| seen.note(emit));
            }
            _ if input.bit() => {
                self.is_closed = true;
                end.close(*now, &mut |emit| seen.note(emit));
            }
            _ => {
                let (mtu, seq) = (u32::from(input.word()), seen.sent.wrapping_sub(u32::from(input.byte())));
                end.too_big(*now, mtu, seq, &mut |emit| seen.note(emit));
            }
        }
    }

    fn check(&self) {
        assert!(self.end.acked_len() <= self.written, "no more is acknowledged than was written");
        assert_eq!(self.end.arrived_len(), self.seen.arrived, "what has arrived was said");
        let in_order =
            self.seen.fresh.first_key_value().map_or(0, |(start, end)| if *start == 0 { *end } else { 0 });
        assert!(self.seen.arrived <= in_order, "what has arrived was fresh, all of it");
        if let Some((window, _)) = self.end.congestion() {
            assert!(window > 0, "something may always leave");
        }
    }
}

impl SeenSegment {
    fn note(&mut self, emit: Emit) {
        match emit {
            Emit::Fresh { offset, len, .. } => self.note_fresh(offset, offset + u64::from(len)),
            Emit::Arrived(len) => {
                assert!(len > self.arrived, "it only grows");
                self.arrived = len;
            }
            Emit::Segment(outgoing) => {
                let segment = outgoing.segment;
                assert!(segment.len <= 65_535 && segment.option_len() <= 40, "{segment:?}");
                (self.ack, self.sent) = (segment.ack, segment.seq.wrapping_add(segment.seq_len()));
            }
            Emit::Ended(_) => {
                assert!(!self.has_ended, "it ends once");
                self.has_ended = true;
            }
            Emit::Opened | Emit::PeerClosed => {}
        }
    }

    fn note_fresh(&mut self, start: u64, end: u64) {
        let before = self.fresh.range(..end).next_back().map(|(start, end)| (*start, *end));
        assert!(before.is_none_or(|(_, before_end)| before_end <= start), "a byte is fresh once");
        let mut merged = (start, end);
        if let Some((before_start, before_end)) = before
            && before_end == start
        {
            merged.0 = before_start;
        }
        if let Some(after_end) = self.fresh.remove(&end) {
            merged.1 = after_end;
        }
        self.fresh.insert(merged.0, merged.1);
    }
}

/// Generates a segment near the next expected one, or far from it.
fn segment(input: &mut Input<'_>, seen: &SeenSegment) -> Segment {
    let shape = input.byte();
    let near = |input: &mut Input<'_>, to: u32, is_far: bool| {
        if is_far { input.long() } else { to.wrapping_add(u32::from(input.byte())).wrapping_sub(4) }
    };
    let mut segment = Segment {
        seq: if shape & 1 > 0 { near(input, seen.ack, shape & 2 > 0) } else { seen.ack },
        ack: if shape & 4 > 0 { near(input, seen.sent, shape & 8 > 0) } else { seen.sent },
        flags: if shape & 16 > 0 { input.byte() } else { ACK },
        window: input.word(),
        len: if shape & 32 > 0 { input.word().into() } else { 0 },
        ..Segment::default()
    };
    if segment.has(SYN) {
        segment.mss = Some(input.word());
        segment.window_scale = Some(input.byte() % 20);
        segment.sack_permitted = input.bit();
    }
    if segment.has(RST) || segment.has(FIN) {
        segment.len = segment.len.min(100);
    }
    if shape & 64 > 0 {
        segment.timestamps = Some(Timestamps { value: input.long(), echo: input.word().into() });
    }
    if shape & 128 > 0 {
        for _ in 0..input.byte() % 5 {
            let start = near(input, seen.sent.wrapping_sub(2_000), false);
            segment.sack.push(start, start.wrapping_add(input.word().into()));
        }
    }
    segment
}

const STEP_COUNT_MAX: usize = 2_000;
