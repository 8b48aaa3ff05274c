//! Messages -> the transmission times of their fragments.
//!
//! The model is a NIC that fragments and reassembles datagrams in little memory (G2 to G5, G26).

use super::FRAMING_LEN;
use super::dma::{Dma, DmaSettings, Notice, Request, WriteOrder};
use super::ring::{Class, Ring};
use engine::Limits;
use packet::Time;
use std::time::Duration;

/// A NIC whose firmware fragments datagrams.
#[derive(Clone, Debug)]
pub struct Card {
    /// Memory for program, rings and the table of incomplete datagrams, in bytes.
    pub memory_len: u32,
    /// Number of processors on the NIC.
    pub processor_count: u32,
    /// Clock rate of each processor, in hertz.
    pub hertz: u64,
    /// Settings of the NIC's DMA engine.
    pub dma: DmaSettings,
    /// Rate of the NIC's link.
    pub bits_per_second: u64,
    /// Buffer classes for received frames (G2).
    pub classes: [Class; 3],
}

/// The result of a simulated transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Number of fragments.
    pub fragments: u64,
    /// Time from the first request to the last transmitted bit.
    pub time: Duration,
    /// Idle time of the link between the first and the last transmitted bit (G4).
    pub idle: Duration,
}

impl Card {
    /// A Tigon II NIC on a bus of this rate (G2, G26, gB7).
    pub fn tigon_2(bus_bytes_per_second: u64) -> Card {
        Card {
            memory_len: 2 << 20,
            processor_count: 2,
            hertz: 88_000_000,
            dma: DmaSettings {
                start: Duration::from_micros(5),
                bytes_per_second: bus_bytes_per_second,
                order: WriteOrder::FirstIn,
                tag_count: 1,
                depth: usize::MAX,
                notice: Notice::AtOnce,
                threshold: None,
            },
            bits_per_second: 1_000_000_000,
            classes: [
                Class { len: 100, count: 256 },
                Class { len: 1_518, count: 512 },
                Class { len: 64_000, count: 8 },
            ],
        }
    }

    /// The NIC's receive ring with all buffers free.
    pub fn ring(&self) -> Ring {
        Ring::new(&self.classes)
    }

    /// Memory limits of reassembly on the NIC (G26): the memory that the rings leave free.
    pub fn limits(&self) -> Limits {
        let rings = u32::try_from(self.ring().bytes()).unwrap_or(u32::MAX);
        Limits { bytes: self.memory_len.saturating_sub(rings) as usize, timeout: None }
    }

    /// Available clock cycles per packet of `len` bytes (with IP header) on a full link, over all processors.
    pub fn cycles_per_packet(&self, len: u32) -> f64 {
        let packets_per_second = self.bits_per_second as f64 / (f64::from(len + FRAMING_LEN) * 8.0);
        f64::from(self.processor_count) * self.hertz as f64 / packets_per_second
    }

    /// Simulates the transmission of `count` messages, fragmented to the link's MTU. Each fragment is fetched
    /// during the transmission of the previous one (G3, G4). Lengths are in bytes, with IP header.
    pub fn send(&self, count: u32, message_len: u32, mtu: u32) -> Sending {
        let mut dma = Dma::new(self.dma.clone());
        let mut waiting = (0..count).flat_map(|_| fragments(message_len, mtu)).enumerate().peekable();
        let mut asked = 0;
        let mut ask = |dma: &mut Dma, now| {
            while let Some((number, len)) = waiting.peek()
                && dma.push(now, Request { number: *number as u64, queue: 0, len: *len })
            {
                waiting.next();
                asked += 1;
            }
        };
        ask(&mut dma, Time::ZERO);
        let (mut wire_free, mut first, mut idle) = (Time::ZERO, None, Duration::ZERO);
        while let Some(at) = dma.next_deadline() {
            dma.expire(at, |done| {
                let begins = done.usable.max(wire_free);
                idle += if first.is_some() { begins.since(wire_free) } else { Duration::ZERO };
                first.get_or_insert(begins);
                let bits = u64::from(done.request.len + IP_LEN + FRAMING_LEN) * 8;
                let crossing = Duration::from_nanos(bits * 1_000_000_000 / self.bits_per_second);
                // The last bit of a fragment cannot be transmitted before the DMA transfer has ended.
                wire_free = (begins + crossing).max(done.ended);
            });
            ask(&mut dma, at);
        }
        Sending { fragments: asked, time: wire_free.since(Time::ZERO), idle }
    }
}

/// The payload lengths of a message's fragments, in bytes.
fn fragments(message_len: u32, mtu: u32) -> impl Iterator<Item = u32> {
    let payload = message_len.saturating_sub(IP_LEN);
    let step = if message_len <= mtu { payload } else { mtu.saturating_sub(IP_LEN) / 8 * 8 }.max(1);
    (0..payload.div_ceil(step)).map(move |fragment| step.min(payload - fragment * step))
}

const IP_LEN: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP payload rate, in bits per second.
    fn goodput(card: &Card, message_len: u32, mtu: u32) -> f64 {
        let sent = card.send(200, message_len, mtu);
        f64::from(message_len - 28) * 8.0 * 200.0 / sent.time.as_secs_f64()
    }

    // gB3, gB7
    #[test]
    fn transfer_starts_limit_a_slow_bus_and_the_wire_a_fast_one() {
        let rate = |bus| goodput(&Card::tigon_2(bus), 55_000, 1_500) / 1e6;
        assert!((rate(480_000_000) / 962.0 - 1.0).abs() < 0.01, "{}", rate(480_000_000));
        assert!((rate(120_000_000) / 683.0 - 1.0).abs() < 0.01, "{}", rate(120_000_000));
        assert!((rate(150_000_000) / 800.0 - 1.0).abs() < 0.10, "{}", rate(150_000_000));
    }

    // gB4
    #[test]
    fn large_frames_leave_the_wire_as_the_bound() {
        let rate = goodput(&Card::tigon_2(480_000_000), 55_000, 9_000) / 1e6;
        assert!(rate > 0.98 * 992.7 && rate < 993.0, "{rate}");
    }

    // G4
    #[test]
    fn with_a_fast_bus_the_wire_waits_only_for_the_first_fragment() {
        let card = Card::tigon_2(480_000_000);
        assert_eq!(card.send(1, 55_000, 1_500).idle, Duration::ZERO);
        assert!(Card::tigon_2(120_000_000).send(1, 55_000, 1_500).idle > Duration::ZERO);
    }

    // G30
    #[test]
    fn tags_and_a_threshold_hide_the_start() {
        let with = |tag_count, threshold| {
            let card = Card::tigon_2(150_000_000);
            let card = Card { dma: DmaSettings { tag_count, threshold, ..card.dma.clone() }, ..card };
            card.send(100, 55_000, 1_500)
        };
        let (plain, tagged, early) = (with(1, None), with(2, None), with(2, Some(256)));
        assert!(tagged.time.as_secs_f64() < 0.9 * plain.time.as_secs_f64(), "{tagged:?} {plain:?}");
        assert!(early.time < tagged.time, "{early:?} {tagged:?}");
        assert_eq!(plain.fragments, 3_800);
    }

    // G26
    #[test]
    fn reassembly_memory_is_the_rest_of_the_rings() {
        let card = Card::tigon_2(480_000_000);
        assert_eq!(card.limits().bytes, (2 << 20) - 100 * 256 - 1_518 * 512 - 64_000 * 8);
        assert!((card.cycles_per_packet(1_500) - 2_165.0).abs() < 5.0, "{}", card.cycles_per_packet(1_500));
    }

    // G2, G5
    #[test]
    fn a_frame_takes_a_buffer_of_the_smallest_class_that_has_one() {
        let mut ring = Card::tigon_2(1).ring();
        let small = ring.take(60).unwrap();
        assert_eq!(ring.len_max(small), 100);
        let large: Vec<_> = (0..8).map(|_| ring.take(9_000).unwrap()).collect();
        assert_eq!((ring.take(9_000), ring.refused()), (None, 1));
        ring.give_back(large[0]);
        assert_eq!(ring.take(1_519).map(|slot| ring.len_max(slot)), Some(64_000));
    }
}
