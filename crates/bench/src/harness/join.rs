//! Fragments in buffers in, longer fragments out.

use super::Station;
use super::ask::Ask;
use super::reassemble::SECRET;
use super::ring::{Delivery, Ring, parse};
use crate::section::Section;
use crate::workload::Work;
use engine::{Full, JoinLimits, Joiner, Output, RunsBy, Secret};
use packet::{Packet, Time};
use std::time::Duration;

struct Joining {
    ring: Ring,
    joiner: Joiner,
    out: Output,
    now: Time,
}

/// A graceful joiner over the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    match ask.work {
        Work::Contiguous => {}
        Work::Header => return Err("the engine copies each payload as it takes it in".to_string()),
        Work::Checksummed => return Err("joining never judges a transport checksum".to_string()),
    }
    let mtu = u16::try_from(ask.mtu).map_err(|_| format!("mtu={}: no MTU", ask.mtu))?;
    let (ring, pool) = Ring::new(ask, section, ask.datagrams, ask.mtu);
    let limits = JoinLimits {
        bytes: ask.limit,
        patience: Duration::from_millis(10),
        full: Full::Pass,
        runs: RunsBy::Datagram,
    };
    let joiner = Joiner::new(limits, mtu, Secret::new(SECRET));
    Ok(Box::new(Joining { ring, joiner, out: Output::new(pool, None), now: Time::ZERO }))
}

impl Station for Joining {
    fn fill(&mut self) {
        // Long enough for what passed to be forgotten: a section's datagrams are new to the next.
        self.now = self.now + Duration::from_secs(600);
        self.ring.fill(&mut self.out.pool);
    }

    fn section(&mut self) -> usize {
        timed_section(self.ring.next(), &mut self.joiner, self.now, &mut self.out)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        join(self.ring.next(), &mut self.joiner, self.now, &mut self.out, |run| tell(run.payload()));
    }

    fn delivers(&self) -> String {
        "contiguous fragments, sealed; all let go at the section's end".to_string()
    }
}

#[inline(never)]
fn timed_section(frames: &mut Vec<Delivery>, joiner: &mut Joiner, now: Time, out: &mut Output) -> usize {
    join(frames, joiner, now, out, ignore)
}

#[inline(always)]
fn join(
    frames: &mut Vec<Delivery>,
    joiner: &mut Joiner,
    now: Time,
    out: &mut Output,
    mut deliver: impl FnMut(&Packet),
) -> usize {
    let mut completed = 0;
    for frame in frames.drain(..) {
        joiner.push(now, parse(frame), out);
        completed += drain(out, &mut deliver);
    }
    joiner.flush(now, out);
    completed + drain(out, &mut deliver)
}

/// Takes what waits for the port, and gives its buffers back.
#[inline(always)]
pub fn drain(out: &mut Output, deliver: &mut impl FnMut(&Packet)) -> usize {
    let mut count = 0;
    while let Some(packet) = out.next() {
        deliver(&packet);
        out.done(packet);
        count += 1;
    }
    count
}

/// Delivers to nobody.
pub fn ignore(_: &Packet) {}
