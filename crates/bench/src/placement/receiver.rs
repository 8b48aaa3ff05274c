//! Device -> datagrams, received by a gateway, with their payloads copied or placed.
//!
//! A receiver joins a device and a gateway as a worker does, without a kernel and without threads.

use super::device::{BATCH_COUNT, Device};
use crate::harness::{Pages, SECRET, arena};
use engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Late, PlacementMode, PlacementStats, Position,
    Prefixes, Secret, Secrets, SideSettings,
};
use packet::{Packet, Time};

/// A gateway and the device that it receives from.
pub struct Receiver {
    /// The device that frames are received from.
    pub device: Device,
    gateway: Gateway,
    batch: Batch,
}

impl Receiver {
    /// Creates a receiver with this placement mode. Buffers use the same kind of pages as the device.
    pub fn new(device: Device, guessing: PlacementMode, pages: Pages) -> Receiver {
        let side = SideSettings {
            policies: Prefixes::new(FragmentPolicy::Reassemble),
            late: Late::Retire,
            placement: guessing,
            ..SideSettings::new(u16::MAX, Position::Transit)
        };
        let mut counts = device.counts();
        counts.iter_mut().for_each(|count| *count += DATAGRAMS);
        let secrets = Secrets::both(Secret::new(SECRET));
        let gateway = Gateway::new(&GatewaySettings::one(side), secrets, || arena::pool(counts, pages));
        Receiver { device, gateway, batch: Batch::default() }
    }

    /// Receives `count` frames in batches, and passes each datagram to `take`.
    #[inline(always)]
    pub fn receive_all(&mut self, now: Time, count: usize, mut take: impl FnMut(&Packet)) {
        for start in (0..count).step_by(BATCH_COUNT) {
            self.receive(now, BATCH_COUNT.min(count - start), &mut take);
        }
    }

    /// Receives `count` frames as one batch. Payloads are split from headers where the gateway offers places.
    #[inline(always)]
    pub fn receive(&mut self, now: Time, count: usize, take: impl FnMut(&Packet)) {
        let Receiver { device, gateway, batch } = self;
        let (places, pool) = gateway.places(ONLY);
        device.receive(count, places, pool, batch);
        self.push(now, take);
    }

    /// Receives one frame into a buffer, without a prediction.
    pub fn receive_plainly(&mut self, now: Time) {
        let Receiver { device, gateway, batch } = self;
        device.receive(1, None, &mut gateway.output_mut(ONLY).pool, batch);
        self.push(now, |_| {});
    }

    /// Receives one frame whose header is parsed before a place is chosen for its payload.
    pub fn receive_seen(&mut self, now: Time) {
        let Receiver { device, gateway, batch } = self;
        let seen = device.copy_next(&mut gateway.output_mut(ONLY).pool);
        let (places, pool) = gateway.places_for(&seen, ONLY);
        device.receive(1, places, pool, batch);
        pool.give(seen.into_buffer());
        self.push(now, |_| {});
    }

    /// Returns the statistics of the predictions.
    pub fn placement_stats(&self) -> PlacementStats {
        self.gateway.placement_stats(ONLY)
    }

    /// Returns the number of completed datagrams.
    pub fn whole(&self) -> u64 {
        self.gateway.ledger(ONLY).event(Event::Reassembled).packets
    }

    /// Returns the bytes of payload that were copied after reception, per delivered byte.
    pub fn copied_per_byte(&self) -> f64 {
        let PlacementStats { in_place_bytes: landed_bytes, copied_out_bytes, .. } = self.placement_stats();
        let delivered = self.gateway.ledger(ONLY).event(Event::FragmentsUsed).bytes;
        (delivered - landed_bytes + copied_out_bytes) as f64 / delivered.max(1) as f64
    }

    #[inline(always)]
    fn push(&mut self, now: Time, mut take: impl FnMut(&Packet)) {
        self.gateway.push(now, ONLY, &mut self.batch);
        while let Some(way) = self.gateway.next(ONLY) {
            let Egress::Forward(packet) = way else { panic!("all frames are packets, and nobody is answered") };
            take(&packet);
            self.gateway.recycle(ONLY, packet);
        }
    }
}

/// Index of the gateway's only used direction.
const ONLY: usize = 0;
/// Buffers of a class for incomplete datagrams: those of a batch, and those offered for the next one.
const DATAGRAMS: usize = 40;
