//! Fragments in a device's memory -> datagrams, with payloads received in their places.
//!
//! The harness is the reassembly benchmark with placement instead of copying. `placement/` has the device.

use super::Station;
use super::ask::Ask;
use crate::placement::{Device, Receiver};
use crate::section::Section;
use engine::PlacementMode;
use packet::{LinkType, Packet, Time};
use std::time::Duration;

struct PlacementHarness {
    receiver: Receiver,
    /// Number of frames in a section.
    count: usize,
    now: Time,
}

/// Opens a station that receives the packets of a section with placement.
pub fn open(ask: &Ask, section: &Section) -> Result<Box<dyn Station>, String> {
    let device = Device::new(section, ask.ring, LinkType::Ip, ask.pages);
    let receiver = Receiver::new(device, PlacementMode::Always, ask.pages);
    Ok(Box::new(PlacementHarness { receiver, count: section.len(), now: Time::ZERO }))
}

impl Station for PlacementHarness {
    fn fill(&mut self) {
        self.now = self.now + Duration::from_secs(1);
    }

    fn section(&mut self) -> usize {
        timed_section(self)
    }

    fn show(&mut self, tell: &mut dyn FnMut(&[u8])) {
        self.receiver.receive_all(self.now, self.count, |datagram: &Packet| tell(datagram.payload()));
    }

    fn delivers(&self) -> String {
        "contiguous datagrams through engine::Gateway, sealed, received in place; checksum not inspected"
            .to_string()
    }
}

#[inline(never)]
fn timed_section(it: &mut PlacementHarness) -> usize {
    let mut completed = 0;
    it.receiver.receive_all(it.now, it.count, |_| completed += 1);
    completed
}
