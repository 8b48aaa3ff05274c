//! Segments in buffers -> GSO packets.
//!
//! The engine is measured in two ways: as a complete gateway with parsing, and as the coalescing stage alone.

use super::Station;
use super::ask::Ask;
use super::live::Live;
use super::merge::{drain, ignore};
use super::reassemble::SECRET;
use super::ring::{Ring, burst, frame};
use crate::section::Section;
use crate::workload::Work;
use engine::{
    BURST_MAX, Coalescer, Connections, CopyPayload, GatewayRole, Holding, Output, PayloadSink, Secret, Secrets,
    Side, SideSettings, Toward,
};
use packet::{Checksum, Frame, Packet, Time};
use std::time::Duration;

/// A complete gateway: segments are parsed, coalesced, and delivered as GSO packets.
struct Coalescing {
    ring: Ring,
    live: Live,
    now: Time,
    how: How,
    work: Work,
    len_max: u16,
}

/// The coalescing stage alone, on parsed segments. Payloads are not copied; only their places are recorded.
struct HeaderWork {
    ring: Ring,
    coalescer: Coalescer,
    connections: Connections,
    out: Output,
    now: Time,
    how: How,
    /// Frames of a section.
    frames: Vec<Frame>,
    places: Vec<(*const u8, *const u8)>,
}

/// How segments are handed to the engine.
#[derive(Clone, Copy)]
struct How {
    burst: usize,
    empties_after_burst: bool,
    /// `Verified` if the port has verified the checksums.
    checksum: Checksum,
}

/// Opens a station that coalesces the segments of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    let checksum = match ask.work {
        Work::Header | Work::Contiguous => Checksum::Verified,
        Work::Checksummed => Checksum::Unverified,
    };
    let len_max =
        u16::try_from(ask.len_max).map_err(|_| format!("len_max={}: not a valid packet length", ask.len_max))?;
    let count = section.len();
    let (ring, pool) = Ring::new(ask, section, ask.flows + ask.burst, ask.len_max);
    let how = How { burst: ask.burst, empties_after_burst: ask.empties_after_burst, checksum };
    if ask.work != Work::Header {
        return Ok(Box::new(Coalescing {
            ring,
            live: Live::border(ask.limit, len_max, ask.flows, pool),
            now: Time::ZERO,
            how,
            work: ask.work,
            len_max,
        }));
    }
    Ok(Box::new(HeaderWork {
        ring,
        coalescer: stage(ask.limit, len_max),
        connections: Connections::new(Secret::new(SECRET)),
        out: Output::new(pool, None),
        now: Time::ZERO,
        how,
        frames: Vec::with_capacity(count),
        places: Vec::with_capacity(count),
    }))
}

/// Returns the coalescing stage of a border toward its wide side.
fn stage(limit: usize, len_max: u16) -> Coalescer {
    let settings = SideSettings {
        memory: limit,
        hold: Holding::Fixed(BURST_MAX),
        ..SideSettings::usual(GatewayRole::Border, Toward::Wide, len_max)
    };
    let side = Side::new(&settings, Toward::Wide.direction(), Secrets::both(Secret::new(SECRET)));
    side.aggregation.coalescer.expect("a border coalesces toward its wide side")
}

impl Station for Coalescing {
    fn fill(&mut self) {
        // The sequence numbers repeat, so the flows have to expire first.
        self.now = self.now + Duration::from_secs(10_000);
        self.live.expire(self.now);
        self.ring.fill(self.live.pool());
        self.live.open_flows(self.now, self.ring.section(), self.len_max - 40);
    }

    fn section(&mut self) -> usize {
        timed_section(self)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        coalesce(self, |gso: &Packet| tell(gso.bytes()));
    }

    fn delivers(&self) -> String {
        match self.work {
            Work::Checksummed => {
                "contiguous GSO packets through engine::Gateway, sealed, checksums verified".to_string()
            }
            _ => "contiguous GSO packets through engine::Gateway, sealed, checksums assumed verified by the NIC"
                .to_string(),
        }
    }
}

impl Station for HeaderWork {
    fn fill(&mut self) {
        // The sequence numbers repeat, so the flows have to expire first.
        self.now = self.now + Duration::from_secs(600);
        self.coalescer.expire(self.now, &mut self.connections, &mut self.out);
        drain(&mut self.out, &mut ignore);
        self.ring.fill(&mut self.out.pool);
        self.places.clear();
        self.frames.extend(self.ring.next().drain(..).map(frame));
        set_checksums(&mut self.frames, Checksum::Verified);
    }

    fn section(&mut self) -> usize {
        timed_section_of_headers(self)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        // The timed part only records places, which gives no packets to show. Here, payloads are copied to the same
        // places.
        coalesce_headers(self, |gso: &Packet| tell(gso.bytes()), &mut CopyPayload);
    }

    fn delivers(&self) -> String {
        "GSO packets by the stage alone, sealed; each payload's place is recorded".to_string()
    }
}

#[inline(never)]
fn timed_section_of_headers(it: &mut HeaderWork) -> usize {
    let mut places = std::mem::take(&mut it.places);
    let completed = coalesce_headers(it, ignore, &mut |to: &mut [u8], from: &[u8]| {
        places.push((to.as_ptr(), from.as_ptr()));
    });
    it.places = places;
    completed
}

#[inline(never)]
fn timed_section(it: &mut Coalescing) -> usize {
    coalesce(it, ignore)
}

#[inline(always)]
fn coalesce_headers(it: &mut HeaderWork, mut deliver: impl FnMut(&Packet), sink: &mut impl PayloadSink) -> usize {
    let HeaderWork { coalescer, connections, out, now, how, frames, .. } = it;
    let (mut completed, mut came) = (0, 0);
    let mut frames = frames.drain(..);
    loop {
        coalescer.prefetch(frames.as_slice(), connections, sink);
        let Some(Frame::Ip(packet)) = frames.next() else { break };
        coalescer.push_with(*now, packet, connections, out, sink);
        completed += drain(out, &mut deliver);
        came += 1;
        if how.empties_after_burst && came % how.burst == 0 {
            coalescer.release(*now, connections, out);
            completed += drain(out, &mut deliver);
        }
    }
    coalescer.release(*now, connections, out);
    completed + drain(out, &mut deliver)
}

#[inline(always)]
fn set_checksums(frames: &mut [Frame], checksum: Checksum) {
    frames.iter_mut().for_each(|frame| {
        if let Frame::Ip(packet) = frame {
            packet.checksum = checksum;
        }
    });
}

#[inline(always)]
fn coalesce(it: &mut Coalescing, mut deliver: impl FnMut(&Packet)) -> usize {
    let Coalescing { ring, live, now, how, .. } = it;
    let (mut completed, mut came) = (0, 0);
    let mut deliveries = ring.next().drain(..);
    while burst(&mut deliveries, &mut live.batch.frames) {
        set_checksums(&mut live.batch.frames, how.checksum);
        came += live.batch.frames.len();
        completed += live.push(*now, &mut deliver);
        if how.empties_after_burst && came >= how.burst {
            came = 0;
            completed += live.release(*now, &mut deliver);
        }
    }
    completed + live.release(*now, &mut deliver)
}
