//! Packets in buffers -> their parsed headers.
//!
//! Parsing is part of all other functions' cost. This harness shows the share of parsing.

use super::Station;
use super::ask::Ask;
use super::ring::{Delivery, Ring, parse};
use crate::section::Section;
use crate::workload::Work;
use packet::{Packet, Pool, ip, tcp, udp};
use std::hint::black_box;

struct Parsing {
    ring: Ring,
    pool: Pool,
}

/// Opens a station that parses the packets of a section.
pub fn open(ask: &Ask, section: Section) -> Result<Box<dyn Station>, String> {
    if ask.work != Work::Header {
        return Err("parsing ends with what the headers say".to_string());
    }
    let longest = section.longest();
    let (ring, pool) = Ring::new(ask, section, 0, longest);
    Ok(Box::new(Parsing { ring, pool }))
}

impl Station for Parsing {
    fn fill(&mut self) {
        self.ring.fill(&mut self.pool);
    }

    fn section(&mut self) -> usize {
        timed_section(self.ring.next(), &mut self.pool)
    }

    fn show(&mut self, _: &mut dyn FnMut(&[u8])) {
        self.section();
    }

    fn delivers(&self) -> String {
        "IP header with its checksum verified, extension headers, transport header".to_string()
    }
}

#[inline(never)]
fn timed_section(frames: &mut Vec<Delivery>, pool: &mut Pool) -> usize {
    let mut count = 0;
    for frame in frames.drain(..) {
        let packet = parse(frame);
        count += usize::from(has_transport(&packet));
        pool.give(packet.into_buffer());
    }
    count
}

#[inline(always)]
fn has_transport(packet: &Packet) -> bool {
    let Some(upper) = packet.ip().upper else { return false };
    let bytes = packet.upper_bytes(upper);
    match upper.protocol {
        ip::TCP => black_box(tcp::Segment::parse(bytes)).is_some(),
        ip::UDP => black_box(udp::UdpHeader::parse(bytes)).is_some(),
        _ => false,
    }
}
