//! Fragments in buffers -> datagrams.
//!
//! The engine is measured in two ways: as a complete gateway with parsing, and as the reassembly stage alone.

use super::Station;
use super::ask::Ask;
use super::live::Live;
use super::ring::{Ring, burst, frame};
use crate::section::Section;
use crate::workload::Work;
use engine::{
    CopyPayload, GatewayRole, Late, Output, PayloadSink, Reassembler, Secret, Secrets, Side, SideSettings, Toward,
};
use packet::{Frame, Packet, Time};
use std::time::Duration;

/// A complete gateway: fragments are parsed, reassembled, and delivered as datagrams.
struct Reassembly {
    ring: Ring,
    live: Live,
    now: Time,
    work: Work,
}

/// The reassembly stage alone, on parsed fragments. Payloads are not copied; only their places are recorded.
struct HeaderWork {
    ring: Ring,
    reassembler: Reassembler,
    out: Output,
    now: Time,
    /// Frames of a section.
    frames: Vec<Frame>,
    places: Vec<Placed>,
}

/// The address where a payload belongs, and the address where it is.
type Placed = (*const u8, *const u8);

/// Opens a station that reassembles the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    let count = section.len();
    let (ring, pool) = Ring::new(ask, section, ask.datagrams, usize::from(u16::MAX));
    Ok(match ask.work {
        Work::Header => Box::new(HeaderWork {
            ring,
            reassembler: stage(ask.limit),
            out: Output::new(pool, None),
            now: Time::ZERO,
            frames: Vec::with_capacity(count),
            places: Vec::with_capacity(count),
        }),
        Work::Contiguous | Work::Checksummed => {
            Box::new(Reassembly { ring, live: Live::host(ask.limit, pool), now: Time::ZERO, work: ask.work })
        }
    })
}

/// Returns the reassembly stage of a wide interface, for fragments to its host.
fn stage(limit: usize) -> Reassembler {
    let usual = SideSettings::usual(GatewayRole::WideInterface, Toward::Wide, u16::MAX);
    let settings = SideSettings { memory: limit, late: Late::Retire, ..usual };
    let side = Side::new(&settings, Toward::Wide.direction(), Secrets::both(Secret::new(SECRET)));
    side.aggregation.reassembler.expect("it joins what is for its host")
}

impl Station for Reassembly {
    fn fill(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.ring.fill(self.live.pool());
    }

    fn section(&mut self) -> usize {
        match self.work {
            Work::Checksummed => timed_section_judged(self),
            _ => timed_section(self),
        }
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let judges = self.work == Work::Checksummed;
        reassemble(self, |datagram| {
            let takes = !judges || is_right(datagram);
            if takes {
                tell(datagram.payload());
            }
            takes
        });
    }

    fn delivers(&self) -> String {
        match self.work {
            Work::Checksummed => {
                "contiguous datagrams through engine::Gateway, sealed, checksum verified".to_string()
            }
            _ => "contiguous datagrams through engine::Gateway, sealed, checksum not inspected".to_string(),
        }
    }
}

impl Station for HeaderWork {
    fn fill(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.ring.fill(&mut self.out.pool);
        self.places.clear();
        self.frames.extend(self.ring.next().drain(..).map(frame));
    }

    fn section(&mut self) -> usize {
        timed_section_of_headers(self)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        // The timed part only records places, which gives no packets to show. Here, payloads are copied to the same
        // places.
        push_all(self, &mut CopyPayload, |datagram| tell(datagram.payload()));
    }

    fn delivers(&self) -> String {
        "datagrams by the stage alone, sealed; each payload's place is recorded".to_string()
    }
}

#[inline(never)]
fn timed_section_of_headers(it: &mut HeaderWork) -> usize {
    let mut places = std::mem::take(&mut it.places);
    let completed =
        push_all(it, &mut |to: &mut [u8], from: &[u8]| places.push((to.as_ptr(), from.as_ptr())), |_| {});
    it.places = places;
    completed
}

#[inline(never)]
fn timed_section(it: &mut Reassembly) -> usize {
    reassemble(it, takes_all)
}

#[inline(never)]
fn timed_section_judged(it: &mut Reassembly) -> usize {
    reassemble(it, is_right)
}

/// Reassembles a section. Returns the number of datagrams for which `takes` is true.
#[inline(always)]
fn reassemble(it: &mut Reassembly, mut takes: impl FnMut(&Packet) -> bool) -> usize {
    let Reassembly { ring, live, now, .. } = it;
    let mut completed = 0;
    let mut deliveries = ring.next().drain(..);
    while burst(&mut deliveries, &mut live.batch.frames) {
        live.push(*now, |datagram| completed += usize::from(takes(datagram)));
    }
    completed
}

/// Pushes the frames as a gateway does, and passes each datagram to `take`. Returns the number of datagrams.
#[inline(always)]
fn push_all(it: &mut HeaderWork, sink: &mut impl PayloadSink, mut take: impl FnMut(&Packet)) -> usize {
    let HeaderWork { reassembler, out, now, frames, .. } = it;
    let mut completed = 0;
    let mut frames = frames.drain(..);
    loop {
        let taken = reassembler.take_front(frames.as_slice(), out, sink);
        if taken > 0 {
            frames.by_ref().take(taken).for_each(|frame| out.pool.give(frame.into_buffer()));
        } else {
            let Some(Frame::Ip(packet)) = frames.next() else { break };
            reassembler.push_unlike(*now, packet, out, sink);
        }
        while let Some(datagram) = out.next() {
            take(&datagram);
            out.recycle(datagram);
            completed += 1;
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

/// Secret of the keyed hash. No attacker knows it, so any value will do.
pub const SECRET: u128 = 7;
