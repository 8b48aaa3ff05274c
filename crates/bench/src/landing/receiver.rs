//! A device in, datagrams out: received by a side, their payloads copied or landed.

use super::device::{BATCH_COUNT, Device};
use crate::harness::{Pages, SECRET, arena};
use engine::{
    Event, Guesses, Guessing, Late, Limits, Narrowing, Output, Reassembler, Role, Secret, Side, Widening,
};
use packet::{Frame, Landed, Packet, Time};

/// A side and the device that it receives from, as a worker has them.
pub struct Receiver {
    /// Where frames come from.
    pub device: Device,
    side: Side,
    out: Output,
    landed: Vec<Landed>,
    frames: Vec<Frame>,
}

impl Receiver {
    /// One that guesses by this rule. Its buffers are of memory like the device's.
    pub fn new(device: Device, guessing: Guessing, pages: Pages) -> Receiver {
        let limits = Limits { bytes: HELD_LEN, patience: None };
        let reassembler = Reassembler::new(limits, Late::Retire, Secret::new(SECRET)).guessing(guessing);
        let side = Side {
            widening: Widening { reassembler: Some(reassembler), ..Widening::default() },
            narrowing: Narrowing::new(u16::MAX, Role::Transit),
        };
        let mut counts = device.counts();
        counts.iter_mut().for_each(|count| *count += DATAGRAMS);
        let out = Output::new(arena::pool(counts, pages), None);
        Receiver { device, side, out, landed: Vec::new(), frames: Vec::new() }
    }

    /// Receives so many frames, batch by batch.
    #[inline(always)]
    pub fn receive_all(&mut self, now: Time, count: usize, mut take: impl FnMut(&Packet)) {
        for start in (0..count).step_by(BATCH_COUNT) {
            self.receive(now, BATCH_COUNT.min(count - start), &mut take);
        }
    }

    /// Receives so many frames as one batch, their payloads apart where places are lent.
    #[inline(always)]
    pub fn receive(&mut self, now: Time, count: usize, take: impl FnMut(&Packet)) {
        let Receiver { device, side, out, landed, frames } = self;
        let mut bet = side.bet(&mut out.pool);
        device.receive(count, bet.places(), &mut out.pool, landed, frames);
        bet.settle(now, landed, frames, out, |_, _| {});
        self.push(now, take);
    }

    /// Receives one frame without a guess.
    pub fn receive_plainly(&mut self, now: Time) {
        let Receiver { device, out, landed, frames, .. } = self;
        device.receive(1, None, &mut out.pool, landed, frames);
        self.push(now, |_| {});
    }

    /// Receives one frame whose header was looked at before it was given a place.
    pub fn receive_seen(&mut self, now: Time) {
        let Receiver { device, side, out, landed, frames } = self;
        let seen = device.look(&mut out.pool);
        let mut bet = side.bet_toward(&seen, &mut out.pool);
        device.receive(1, bet.places(), &mut out.pool, landed, frames);
        bet.settle(now, landed, frames, out, |_, _| {});
        self.out.done(seen);
        self.push(now, |_| {});
    }

    /// How guesses went.
    pub fn guesses(&self) -> Guesses {
        self.side.guesses()
    }

    /// Datagrams that became whole.
    pub fn whole(&self) -> u64 {
        self.out.ledger.event(Event::Reassembled).packets
    }

    /// Bytes of payload that were copied behind the port for each that was delivered.
    pub fn copied_per_byte(&self) -> f64 {
        let Guesses { landed_bytes, copied_out_bytes, .. } = self.guesses();
        let delivered = self.out.ledger.event(Event::Absorbed).bytes;
        (delivered - landed_bytes + copied_out_bytes) as f64 / delivered.max(1) as f64
    }

    #[inline(always)]
    fn push(&mut self, now: Time, mut take: impl FnMut(&Packet)) {
        for frame in self.frames.drain(..) {
            match frame {
                Frame::Ip(packet) => self.side.push(now, packet, &mut self.out),
                Frame::Other(_, unfit) => panic!("all frames are packets: {unfit:?}"),
            }
        }
        while let Some(packet) = self.out.next() {
            take(&packet);
            self.out.done(packet);
        }
    }
}

/// Bytes that may be held.
const HELD_LEN: usize = 64 << 20;
/// Datagrams in buffers of a class at once: those of a batch, and what is lent for the next one.
const DATAGRAMS: usize = 40;
