//! Segments in buffers in, trains out.

use super::Station;
use super::ask::Ask;
use super::join::{drain, ignore};
use super::reassemble::SECRET;
use super::ring::{Delivery, Ring, parse};
use crate::section::Section;
use crate::workload::Work;
use engine::{Coalescer, Hold, Mode, Output, Rules, Secret, Switch};
use packet::{Checksum, Packet, Time};
use std::time::Duration;

struct Coalescing {
    ring: Ring,
    coalescer: Coalescer,
    out: Output,
    now: Time,
    how: How,
}

/// How segments are handed over.
#[derive(Clone, Copy)]
struct How {
    burst: usize,
    empties_after_burst: bool,
    /// Has the port verified the checksums?
    checksum: Checksum,
}

/// A coalescer over the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    let checksum = match ask.work {
        Work::Header => return Err("the engine copies each payload as it takes it in".to_string()),
        Work::Contiguous => Checksum::Verified,
        Work::Checksummed => Checksum::Unverified,
    };
    let len_max =
        u16::try_from(ask.len_max).map_err(|_| format!("len_max={}: no length of a packet", ask.len_max))?;
    let (ring, pool) = Ring::new(ask, section, ask.flows + ask.burst, ask.len_max);
    let rules = Rules {
        mode: Mode::Resize,
        hold: Hold::Fixed(Duration::from_secs(1)),
        len_max,
        longer: Switch::Off,
        udp: false,
    };
    Ok(Box::new(Coalescing {
        ring,
        coalescer: Coalescer::new(ask.limit, rules, Vec::new(), Secret::new(SECRET)),
        out: Output::new(pool, None),
        now: Time::ZERO,
        how: How { burst: ask.burst, empties_after_burst: ask.empties_after_burst, checksum },
    }))
}

impl Station for Coalescing {
    fn fill(&mut self) {
        // The same sequence numbers come again: flows have to be forgotten first.
        self.now = self.now + Duration::from_secs(600);
        self.coalescer.expire(self.now, &mut self.out);
        self.ring.fill(&mut self.out.pool);
    }

    fn section(&mut self) -> usize {
        timed_section(self.ring.next(), &mut self.coalescer, self.now, &mut self.out, self.how)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let deliver = |train: &Packet| tell(train.bytes());
        coalesce(self.ring.next(), &mut self.coalescer, self.now, &mut self.out, self.how, deliver);
    }

    fn delivers(&self) -> String {
        let checked = match self.how.checksum {
            Checksum::Unverified => "checksums verified",
            _ => "checksums taken as verified by the card",
        };
        format!("contiguous trains, sealed, {checked}")
    }
}

#[inline(never)]
fn timed_section(
    frames: &mut Vec<Delivery>,
    coalescer: &mut Coalescer,
    now: Time,
    out: &mut Output,
    how: How,
) -> usize {
    coalesce(frames, coalescer, now, out, how, ignore)
}

#[inline(always)]
fn coalesce(
    frames: &mut Vec<Delivery>,
    coalescer: &mut Coalescer,
    now: Time,
    out: &mut Output,
    how: How,
    mut deliver: impl FnMut(&Packet),
) -> usize {
    let (mut completed, mut left) = (0, how.burst);
    for frame in frames.drain(..) {
        let mut packet = parse(frame);
        packet.checksum = how.checksum;
        coalescer.push(now, packet, out);
        completed += drain(out, &mut deliver);
        left -= 1;
        if left == 0 {
            left = how.burst;
            if how.empties_after_burst {
                coalescer.release(now, out);
                completed += drain(out, &mut deliver);
            }
        }
    }
    coalescer.release(now, out);
    completed + drain(out, &mut deliver)
}
