//! Frames of datagrams in memory in, what it costs to receive and join them out: payloads copied, and received in place (kB1, kB3).
//!
//!     cargo run --release -p wideload-engine --example landing
//!
//! The port is a loop that copies frames to the memory that it is given, as a kernel does.

use fastrand::Rng;
use packet::{Frame, HEADROOM, Ingress, Landed, Medium, Pool, Sum, Time};
use std::time::Instant;
use wideload_engine::{
    Guessing, Late, Limits, Narrowing, Output, Reassembler, Role, Secret, Side, Widening, packet,
};

fn main() {
    println!(
        "What a fragment costs from the port to the datagram, in nanoseconds: the median of {ROUNDS} rounds in turns"
    );
    let [datagram, fragment, copied, landed, ratio, itself] =
        ["datagram", "fragment", "copied", "landed", "ratio", "left to itself"];
    println!("{datagram:>9} {fragment:>9} {copied:>10} {landed:>10} {ratio:>7} {itself:>16} {ratio:>7}");
    for step in [STEP, LONG_STEP] {
        for len in [9_000, 16_000, 32_000, 65_000] {
            time(len, step, 1);
        }
    }
    println!("\nThe same where two hosts send in turns, so that every guess is wrong");
    for step in [STEP, LONG_STEP] {
        time(32_000, step, 2);
    }
    println!("\nTurns of several hosts: what part of all datagrams lands whole behind its first piece");
    println!("{:>4} {:>6} {:>10} {:>10} {:>14}", "n", "q", "(1-q)^n-1", "blind", "match-directed");
    for pieces in [3, 7, 44] {
        for percent in [0, 1, 5, 10, 20, 50] {
            let q = f64::from(percent) / 100.0;
            let (blind, directed) = (success(pieces, q, false), success(pieces, q, true));
            let formula = (1.0 - q).powi(pieces as i32 - 1);
            println!("{pieces:>4} {percent:>5}% {formula:>10.3} {blind:>10.3} {directed:>14.3}");
        }
    }
}

/// Has every arm receive the same frames in turns.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn time(len: usize, step: usize, hosts: u8) {
    let frames = ring(len, step, hosts);
    let mut arms = ARMS.map(Loop::new);
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..arms.len() {
            let number = (round + turn) % arms.len();
            let started = Instant::now();
            frames.chunks(BATCH_COUNT).for_each(|batch| arms[number].receive(batch));
            times[number].push(started.elapsed().as_nanos() as f64 / frames.len() as f64);
        }
    }
    let [copied, landed, itself] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let [plain, ..] = &arms;
    assert!(arms.iter().all(|arm| arm.out.ledger.forwarded == plain.out.ledger.forwarded));
    let [ratio, own_ratio] = [copied / landed, copied / itself];
    println!("{len:>9} {step:>9} {copied:>10.1} {landed:>10.1} {ratio:>7.2} {itself:>16.1} {own_ratio:>7.2}");
}

/// More frames than lie in a processor's first cache.
fn ring(len: usize, step: usize, hosts: u8) -> Vec<Vec<u8>> {
    let turns = |id, index| (1..=hosts).map(move |host| piece(host, id as u16, index, len, step));
    let of = |id| (0..len.div_ceil(step)).flat_map(move |index| turns(id, index));
    (0..RING_LEN / len / usize::from(hosts)).flat_map(of).collect()
}

/// The part of datagrams of so many pieces that land behind their first one, where another host goes on after each frame with
/// probability `q`.
fn success(pieces: usize, q: f64, is_directed: bool) -> f64 {
    let mut random = Rng::with_seed(pieces as u64);
    let mut hosts = [(0u16, 0usize); HOSTS];
    let mut speaking = 0;
    let mut next = move || {
        let (id, index) = &mut hosts[speaking];
        let (frame, is_first) = (piece(speaking as u8 + 1, *id, *index, pieces * STEP, STEP), *index == 0);
        *index += 1;
        if *index == pieces {
            (*id, *index) = (id.wrapping_add(1), 0);
        }
        if random.f64() < q {
            speaking = (speaking + random.usize(1..HOSTS)) % HOSTS;
        }
        (frame, is_first)
    };
    let mut it = Loop::new(Guessing::Always);
    let (mut tried, mut hit) = (0u32, 0u32);
    while tried < TRIALS {
        let (frame, is_first) = next();
        if is_directed {
            // Who sees headers before it places payloads is wrong about no piece; nothing has to come in a row.
            tried += 1;
            hit += u32::from(it.receive_seen(&frame) == 1);
            continue;
        }
        it.receive_plainly(&frame);
        if is_first {
            tried += 1;
            let rest: Vec<_> = (1..pieces).map(|_| next().0).collect();
            hit += u32::from(it.receive_at_once(&rest) == pieces - 1);
        }
    }
    f64::from(hit) / f64::from(tried)
}

/// A side and the memory that a port receives to.
struct Loop {
    side: Side,
    out: Output,
    landed: Vec<Landed>,
    frames: Vec<Frame>,
}

impl Loop {
    fn new(guessing: Guessing) -> Loop {
        let limits = Limits { bytes: 64 << 20, patience: None };
        let reassembler = Reassembler::new(limits, Late::Retire, Secret::new(7)).guessing(guessing);
        let side = Side {
            widening: Widening { reassembler: Some(reassembler), ..Widening::default() },
            narrowing: Narrowing::new(u16::MAX, Role::Transit),
        };
        Loop { side, out: Output::new(Pool::new(128 << 20), None), landed: Vec::new(), frames: Vec::new() }
    }

    fn receive(&mut self, batch: &[Vec<u8>]) {
        self.receive_at_once(batch);
    }

    /// Receives a batch, payloads apart where places are lent; says how many landed.
    fn receive_at_once(&mut self, batch: &[Vec<u8>]) -> usize {
        let before = self.side.guesses().right;
        let Loop { side, out, landed, frames } = self;
        let mut bet = side.bet(&mut out.pool);
        receive(batch, bet.places(), &mut out.pool, landed, frames);
        bet.settle(NOW, landed, frames, out, |_| true, |_| {});
        self.push();
        (self.side.guesses().right - before) as usize
    }

    /// The same of a frame whose header was looked at before.
    fn receive_seen(&mut self, frame: &[u8]) -> usize {
        let before = self.side.guesses().right;
        let Loop { side, out, landed, frames } = self;
        let seen = Frame::copy(frame, Medium::Ethernet, Ingress(0), &mut out.pool).expect("it is a fragment");
        let mut bet = side.bet_toward(&seen, &mut out.pool);
        receive(&[frame.to_vec()], bet.places(), &mut out.pool, landed, frames);
        bet.settle(NOW, landed, frames, out, |_| true, |_| {});
        self.out.done(seen);
        self.push();
        (self.side.guesses().right - before) as usize
    }

    fn receive_plainly(&mut self, frame: &[u8]) {
        let packet = Frame::copy(frame, Medium::Ethernet, Ingress(0), &mut self.out.pool);
        self.side.push(NOW, packet.expect("it is a fragment"), &mut self.out);
        self.drain();
    }

    fn push(&mut self) {
        for frame in self.frames.drain(..) {
            match frame {
                Frame::Ip(packet) => self.side.push(NOW, packet, &mut self.out),
                Frame::Other(..) => panic!("all frames are packets"),
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(packet) = self.out.next() {
            self.out.done(packet);
        }
    }
}

/// What a port and its kernel do.
fn receive(
    batch: &[Vec<u8>],
    mut places: Option<packet::Places<'_>>,
    pool: &mut Pool,
    landed: &mut Vec<Landed>,
    frames: &mut Vec<Frame>,
) {
    let front = places.as_ref().map(packet::Places::front);
    let mut is_wrong = false;
    for frame in batch {
        let len = if frame.len() > BUFFER_LEN { LONG_BUFFER_LEN } else { BUFFER_LEN };
        let mut buffer = pool.lend(len).expect("the pool is large");
        let place = places.as_mut().and_then(Iterator::next);
        let (Some(place), Some(front)) = (place, front) else {
            buffer.put(AT, frame);
            frames.push(Frame::read(buffer, AT, frame.len(), Medium::Ethernet, Ingress(0)));
            continue;
        };
        let (header, rest) = frame.split_at(front.len());
        let (payload, behind) = rest.split_at(place.len().min(rest.len()));
        buffer.put(AT, header);
        place[..payload.len()].copy_from_slice(payload);
        buffer.put(AT + header.len() + place.len(), behind);
        let came = Landed::read(buffer, AT, frame.len(), front, place, Medium::Ethernet, Ingress(0));
        match came {
            Ok(it) if !is_wrong => landed.push(it),
            Ok(it) => frames.push(Frame::Ip(it.copy_out(place))),
            Err(buffer) => {
                is_wrong = true;
                frames.push(Frame::read(buffer, AT, frame.len(), Medium::Ethernet, Ingress(0)));
            }
        }
    }
}

fn piece(host: u8, id: u16, index: usize, len: usize, step: usize) -> Vec<u8> {
    let (start, end) = (index * step, len.min((index + 1) * step));
    let place = (start / 8) as u16 | if end < len { 0x2000 } else { 0 };
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + (end - start) as u16).to_be_bytes());
    bytes.extend([id.to_be_bytes(), place.to_be_bytes()].concat());
    bytes.extend([64, 17, 0, 0, 10, 0, 0, host, 10, 1, 1, 1]);
    let checksum = Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.resize(20 + end - start, index as u8);
    [&[2; 12][..], &[8, 0], &bytes].concat()
}

/// Without, with, and left to itself.
const ARMS: [Guessing; 3] = [Guessing::Never, Guessing::Always, Guessing::WherePays];
const ROUNDS: usize = 31;
/// Frames of a batch.
const BATCH_COUNT: usize = 64;
/// Payload of a fragment, in bytes: a link of 1,500.
const STEP: usize = 1_480;
/// See [`STEP`]: a link of 9,000.
const LONG_STEP: usize = 8_976;
/// Bytes of all frames together: they lie in the processor's second cache.
const RING_LEN: usize = 1 << 20;
/// Hosts that take turns.
const HOSTS: usize = 8;
/// Datagrams, or pieces, that are tried.
const TRIALS: u32 = 20_000;
/// What a port's small buffer holds on a link of 1,500 and of 9,000, in bytes.
const BUFFER_LEN: usize = 2_048;
/// See [`BUFFER_LEN`].
const LONG_BUFFER_LEN: usize = 16_384;
/// Where a frame starts in its buffer.
const AT: usize = HEADROOM - 14;
const NOW: Time = Time::from_nanos(1_000_000_000);
