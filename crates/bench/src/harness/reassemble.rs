//! Fragments in buffers in, datagrams out.

use super::Station;
use super::ask::Ask;
use super::ring::{Delivery, Ring, parse};
use crate::section::Section;
use crate::workload::Work;
use engine::{Late, Limits, Output, Reassembler, Secret};
use packet::{Packet, Time};
use std::time::Duration;

struct Reassembly {
    ring: Ring,
    reassembler: Reassembler,
    out: Output,
    now: Time,
    /// Is the transport checksum of what becomes whole verified?
    judges: bool,
}

/// A reassembler over the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    if ask.work == Work::Header {
        return Err("the engine copies each payload as it takes it in".to_string());
    }
    let (ring, pool) = Ring::new(ask, section, ask.datagrams, usize::from(u16::MAX));
    let limits = Limits { bytes: ask.limit, patience: None };
    Ok(Box::new(Reassembly {
        ring,
        reassembler: Reassembler::new(limits, Late::Retire, Secret::new(SECRET)),
        out: Output::new(pool, None),
        now: Time::ZERO,
        judges: ask.work == Work::Checksummed,
    }))
}

impl Station for Reassembly {
    fn fill(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.ring.fill(&mut self.out.pool);
    }

    fn section(&mut self) -> usize {
        let frames = self.ring.next();
        match self.judges {
            true => timed_section_judged(frames, &mut self.reassembler, self.now, &mut self.out),
            false => timed_section(frames, &mut self.reassembler, self.now, &mut self.out),
        }
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let frames = self.ring.next();
        let judges = self.judges;
        let judge = |datagram: &Packet| !judges || is_right(datagram);
        reassemble(frames, &mut self.reassembler, self.now, &mut self.out, |datagram| {
            let takes = judge(datagram);
            if takes {
                tell(datagram.payload());
            }
            takes
        });
    }

    fn delivers(&self) -> String {
        let checksum = if self.judges { "checksum verified" } else { "checksum not looked at" };
        format!("contiguous datagrams, sealed, {checksum}")
    }
}

#[inline(never)]
fn timed_section(frames: &mut Vec<Delivery>, reassembler: &mut Reassembler, now: Time, out: &mut Output) -> usize {
    reassemble(frames, reassembler, now, out, takes_all)
}

#[inline(never)]
fn timed_section_judged(
    frames: &mut Vec<Delivery>,
    reassembler: &mut Reassembler,
    now: Time,
    out: &mut Output,
) -> usize {
    reassemble(frames, reassembler, now, out, is_right)
}

/// Datagrams that `takes` takes.
#[inline(always)]
fn reassemble(
    frames: &mut Vec<Delivery>,
    reassembler: &mut Reassembler,
    now: Time,
    out: &mut Output,
    mut takes: impl FnMut(&Packet) -> bool,
) -> usize {
    let mut completed = 0;
    for frame in frames.drain(..) {
        reassembler.push(now, parse(frame), out);
        while let Some(datagram) = out.next() {
            completed += usize::from(takes(&datagram));
            out.done(datagram);
        }
    }
    completed
}

fn takes_all(_: &Packet) -> bool {
    true
}

fn is_right(datagram: &Packet) -> bool {
    matches!(datagram.checksum_error().fold(), 0 | 0xFFFF)
}

/// Any will do: nobody attacks who knows it.
pub const SECRET: u128 = 7;
