//! Fragments in buffers -> longer fragments.
//!
//! The engine merges as in a router: only fragments that arrive in order, without reassembly.

use super::Station;
use super::ask::Ask;
use super::live::Live;
use super::ring::{Ring, burst};
use crate::section::Section;
use crate::workload::Work;
use engine::Output;
use packet::{Packet, Time};
use std::time::Duration;

struct Merging {
    ring: Ring,
    live: Live,
    now: Time,
}

/// Opens a station that merges the fragments of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    match ask.work {
        Work::Contiguous => {}
        Work::Header => return Err("the engine copies each payload as it takes it in".to_string()),
        Work::Checksummed => return Err("joining never judges a transport checksum".to_string()),
    }
    let mtu = u16::try_from(ask.mtu).map_err(|_| format!("mtu={}: not a valid MTU", ask.mtu))?;
    let (ring, pool) = Ring::new(ask, section, ask.datagrams, ask.mtu);
    Ok(Box::new(Merging { ring, live: Live::router(ask.limit, mtu, pool), now: Time::ZERO }))
}

impl Station for Merging {
    fn fill(&mut self) {
        // Long enough to expire the state of passed datagrams: the next section reuses their identifications.
        self.now = self.now + Duration::from_secs(600);
        self.live.expire(self.now);
        self.ring.fill(self.live.pool());
    }

    fn section(&mut self) -> usize {
        timed_section(self)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        merge(self, |run| tell(run.payload()));
    }

    fn delivers(&self) -> String {
        "contiguous fragments through engine::Gateway, sealed; all released at the section's end".to_string()
    }
}

#[inline(never)]
fn timed_section(it: &mut Merging) -> usize {
    merge(it, ignore)
}

#[inline(always)]
fn merge(it: &mut Merging, mut deliver: impl FnMut(&Packet)) -> usize {
    let Merging { ring, live, now } = it;
    let mut completed = 0;
    let mut deliveries = ring.next().drain(..);
    while burst(&mut deliveries, &mut live.batch.frames) {
        completed += live.push(*now, &mut deliver);
    }
    completed + live.flush(*now, deliver)
}

/// Delivers the packets that wait for the port, and recycles their buffers. Returns their number.
#[inline(always)]
pub fn drain(out: &mut Output, deliver: &mut impl FnMut(&Packet)) -> usize {
    let mut count = 0;
    while let Some(packet) = out.next() {
        deliver(&packet);
        out.recycle(packet);
        count += 1;
    }
    count
}

/// Discards a packet.
pub fn ignore(_: &Packet) {}
