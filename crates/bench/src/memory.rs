//! Number of packets -> memory that the engine allocated and held for them.
//!
//! The stream has every cause of too many allocations or held bytes. Its fragments are in every order, and some
//! belong to datagrams that never complete. The stream also has duplicates, overlaps, floods of keys, and TCP flows
//! with and without disorder.

use crate::grid::has;
use crate::recipe::{ArrivalOrder, Flows, Hold, Recipe};
use crate::rows::{Row, WIDELOAD};
use crate::wire::{IPV4_LEN, Pair, Place, UDP, noise, put, seal_ipv4};
use crate::workload::{Function, flows};
use engine::{
    Batch, Egress, FragmentPolicy, Gateway, GatewaySettings, Late, Mode, Position, Prefixes, Secret, Secrets,
    SideSettings,
};
use packet::{Ingress, LinkType, Pool, Time};
use std::time::{Duration, Instant};

/// Whether the name of the memory row has all of these words.
pub fn is_meant(words: &[String]) -> bool {
    has(&format!("{} {WORKLOAD}", Function::Memory), words)
}

/// Sends this many packets through an engine, counts the allocations, and returns them as a row.
pub fn row(packets: u64) -> Row {
    let mut stream = Stream::new();
    (0..WARM_ROUNDS).for_each(|_| stream.round());
    let rounds = packets.div_ceil(stream.len() as u64);
    let started = Instant::now();
    let seen = allocation_counter::measure(|| (0..rounds).for_each(|_| stream.round()));
    let ns = started.elapsed().as_nanos() as f64 / (rounds * stream.len() as u64) as f64;
    let count = rounds * stream.len() as u64;
    let mut faults = Vec::new();
    if seen.count_total > 0 {
        faults.push(format!("{} allocations", seen.count_total));
    }
    if stream.held_max > HELD_LEN {
        faults.push(format!("{} B held, {HELD_LEN} allowed", stream.held_max));
    }
    let fault = Some(faults.join(", ")).filter(|fault| !fault.is_empty());
    let memory = stream.gateway.output(0).pool.heap_len();
    let remark = format!(
        "{} allocations; {} B of at most {HELD_LEN} held; buffers of {memory} B, at most {POOL_LEN}",
        seen.count_total, stream.held_max
    );
    Row {
        function: Function::Memory,
        workload: WORKLOAD.to_string(),
        system: WIDELOAD.to_string(),
        ns: Some(ns),
        ns_min: None,
        ns_max: None,
        ratio: None,
        instructions: None,
        gbit_s: None,
        completed: Some(count),
        delivers: String::new(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        fault,
        remark: Some(remark),
    }
}

struct Stream {
    gateway: Gateway,
    batch: Batch,
    fragments: Vec<Vec<u8>>,
    segments: Vec<Vec<u8>>,
    rounds: u32,
    held_max: usize,
}

impl Stream {
    fn new() -> Stream {
        let side = SideSettings {
            memory: HELD_LEN / 2,
            policies: Prefixes::new(FragmentPolicy::Reassemble),
            late: Late::Retire,
            coalesce: Some(Mode::Resize),
            ..SideSettings::new(u16::MAX, Position::Transit)
        };
        let secrets = Secrets::both(Secret::new(7));
        let flows = Flows { order: ArrivalOrder::Random, per_flow: 90, ..flows(16, Hold::Section) };
        let (section, _) = Recipe::Flows(flows).build();
        Stream {
            gateway: Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(POOL_LEN)),
            batch: Batch::default(),
            fragments: fragments(),
            segments: section.packets().map(<[u8]>::to_vec).collect(),
            rounds: 0,
            held_max: 0,
        }
    }

    fn len(&self) -> usize {
        self.fragments.len() + self.segments.len()
    }

    /// Sends all packets of the stream to the engine, the fragments under new keys.
    fn round(&mut self) {
        self.rounds += 1;
        // Long enough for flows to expire: their segments are new in each round.
        let start = Time::ZERO + Duration::from_secs(200) * self.rounds;
        for packet in &mut self.fragments {
            put(packet, 12, 0x0A00 | (self.rounds >> 16) as u16 & 0xFF);
            put(packet, 14, self.rounds as u16);
            seal_ipv4(packet);
        }
        let all = self.fragments.iter().chain(&self.segments);
        for (index, bytes) in all.enumerate() {
            let now = start + Duration::from_micros(1) * index as u32;
            let Stream { gateway, batch, .. } = self;
            gateway.expire(now);
            let (mut places, pool) = gateway.places(0);
            batch.receive(bytes, LinkType::Ip, Ingress(0), places.as_mut(), pool);
            gateway.push(now, 0, batch);
            while let Some(way) = gateway.next(0) {
                let Egress::Forward(packet) = way else { panic!("all frames are packets, and nobody is answered") };
                gateway.recycle(0, packet);
            }
            self.held_max = self.held_max.max(self.gateway.side(0).aggregation.charged());
        }
    }
}

/// Returns fragments of datagrams with up to eight fragments, some missing, repeated or overlapping.
fn fragments() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(3);
    let pair = Pair { version: 4, source: 1, destination: 1_000 };
    let payload = noise(1, 1_000);
    let mut all = Vec::new();
    for id in 0..2_000 {
        let fragment = |index: usize| {
            let place = Place { id, offset: index * 1_000, more: index < 7 };
            pair.fragment(UDP, place, &payload)
        };
        let mut fragments: Vec<Vec<u8>> = (0..8).map(fragment).collect();
        match id % 8 {
            0 => fragments.reverse(),
            1 => random.shuffle(&mut fragments),
            2 => drop(fragments.remove(random.usize(..8))),
            3 => fragments.truncate(1),
            4 => {
                let place = Place { id, offset: 504, more: true };
                fragments.insert(2, pair.fragment(UDP, place, &noise(2, 1_000)));
            }
            5 => fragments.push(fragments[3].clone()),
            _ => {}
        }
        all.extend(fragments);
    }
    // Fragments are shuffled within groups of ninety, so that fragments of several datagrams are interleaved.
    all.chunks_mut(90).for_each(|chunk| random.shuffle(chunk));
    assert!(all.iter().all(|packet| packet.len() > IPV4_LEN), "every fragment carries something");
    all
}

/// Name of the workload.
const WORKLOAD: &str = "fragments in every order, floods, overlaps, flows";
/// Rounds before allocations are counted. After these, every table has its final size.
const WARM_ROUNDS: u32 = 3;
/// Limit of the bytes that the engine may hold.
const HELD_LEN: usize = 8 << 20;
/// Limit of the engine's pool, in bytes.
const POOL_LEN: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allocated_and_the_cap_holds() {
        let row = row(50_000);
        assert_eq!(row.fault, None);
        assert!(row.completed.unwrap() >= 50_000);
        assert!(row.note().starts_with("0 allocations; "), "{}", row.note());
    }
}
