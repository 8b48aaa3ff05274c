//! Frames received with header split -> the same packets as without it: no byte, counter or order changes.

use crate::memory_port::{Call, receive};
use core::net::IpAddr;
use core::time::Duration;
use fastrand::Rng;
use packet::{Frame, Ingress, LinkType, Pool, Time};
use testkit::fields::UDP;
use testkit::{Spec, ip, noise, seal_ip};
use wideload_engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Late, Limits, PlacementMode, PlacementStats,
    Position, Prefixes, Reason, Secret, Secrets, SideSettings, WirePackets, packet,
};

#[test]
fn batches_and_placement_do_not_change_the_output() {
    let mut all = PlacementStats::default();
    let mut wrong_by_seed = 0;
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let limits = Limits {
            bytes: *random.choice(&[8_000, 60_000, 300_000, 1 << 28]).unwrap(),
            timeout: random.bool().then_some(Duration::from_millis(400)),
        };
        let late = *random.choice(&[Late::Retire, Late::Release { mtu: 1_280 }]).unwrap();
        let directions = [Came::Singly, Came::Whole, Came::Apart(Call::Batch), Came::Apart(Call::Frame)];
        let mut stations =
            directions.map(|direction| Station::new(limits, late, direction, PlacementMode::Always, seed % 2 == 0));
        let mut traffic = Traffic::draw(&mut random);
        let mut now = Time::from_nanos(1_000_000_000);
        for step in 0..40 {
            if random.u8(..6) == 0 {
                now = now + Duration::from_millis(random.u64(1..300));
            }
            let batch = traffic.batch(&mut random);
            let [singly, others @ ..] = stations.each_mut().map(|station| station.step(now, &batch));
            for (other, direction) in others.into_iter().zip(&directions[1..]) {
                assert!(singly == other, "seed {seed}, step {step}, {direction:?}:\n{singly:02x?}\n{other:02x?}");
            }
        }
        for station in &mut stations {
            station.gateway.flush(now);
            station.drain();
            assert_eq!(station.gateway.output(0).pool.in_use_count(), 0, "seed {seed}");
        }
        for station in &stations[2..] {
            let stats = station.stats();
            all.predicted += stats.predicted;
            all.hits += stats.hits;
            wrong_by_seed += u64::from(stats.hits < stats.predicted);
        }
    }
    println!("{all:?}, wrong in {wrong_by_seed}");
    // The law shows nothing if no prediction is made, hits or misses.
    assert!(all.hits > 20_000 && all.predicted - all.hits > 5_000 && wrong_by_seed > 250, "{all:?}");
}

#[test]
fn a_burst_is_placed_after_its_first_datagram() {
    for (version, len) in [(4, 9_000), (4, 60_000), (6, 9_000), (6, 60_000)] {
        for call in [Call::Batch, Call::Frame] {
            let mut station = Station::usual(call, PlacementMode::WherePays);
            let frames: Vec<_> = (0..200).flat_map(|id| datagram(version, 1, id, len, 1_480)).collect();
            frames.chunks(64).for_each(|batch| drop(station.step(NOW, batch)));
            let stats = station.stats();
            let bytes = 200 * len as u64;
            assert_eq!(station.rejoined_count(), 200);
            assert!(stats.in_place_bytes * 20 > bytes * 17, "{version}, {len}: {stats:?} of {bytes}");
            assert_eq!((stats.predicted, stats.copied_out_bytes), (stats.hits, 0), "{version}, {len}");
        }
    }
}

#[test]
fn an_unusually_long_datagram_is_placed_as_far_as_its_buffer_reaches() {
    for call in [Call::Batch, Call::Frame] {
        let mut station = Station::usual(call, PlacementMode::Always);
        let [usual, longer] = [(1, 9_000), (2, 60_000)].map(|(id, len)| datagram(4, 1, id, len, 1_480));
        usual.chunks(2).for_each(|batch| drop(station.step(NOW, batch)));
        let before = station.stats().in_place_bytes;
        longer.chunks(2).for_each(|batch| drop(station.step(NOW, batch)));
        let split_frame = station.stats().in_place_bytes - before;
        assert_eq!(station.rejoined_count(), 2);
        assert!(split_frame > 20_000, "{split_frame} of 60,000 bytes");
    }
}

#[test]
fn a_port_that_reads_headers_first_gets_the_right_place() {
    let mut plain = Station { direction: Came::Singly, ..Station::usual(Call::Frame, PlacementMode::Always) };
    let mut split = Station::usual(Call::Frame, PlacementMode::Always);
    split.looks_first = true;
    for id in 0..40 {
        let [one, other] = [1, 2].map(|host| datagram(4, host, id, 9_000, 1_480));
        for frame in one.iter().zip(&other).flat_map(|(one, other)| [one, other]) {
            let [plain, split] = [&mut plain, &mut split].map(|it| it.step(NOW, core::slice::from_ref(frame)));
            assert_eq!(plain, split);
        }
    }
    let guesses = split.stats();
    // All payloads are received in place, except those of first fragments and of the first datagrams.
    assert!(guesses.hits * 10 > guesses.predicted * 8 && guesses.in_place_bytes > 2 * 30 * 7_520, "{guesses:?}");
}

#[test]
fn placement_stops_if_predictions_fail() {
    let mut station = Station::usual(Call::Batch, PlacementMode::WherePays);
    // Two hosts in turns: each fragment is followed by one of the other host.
    let frames: Vec<_> = (0..400)
        .flat_map(|id| {
            let [one, other] = [1, 2].map(|host| datagram(4, host, id, 9_000, 1_480));
            one.into_iter().zip(other).flat_map(|(one, other)| [one, other])
        })
        .collect();
    frames.chunks(64).for_each(|batch| drop(station.step(NOW, batch)));
    let stats = station.stats();
    assert_eq!(station.rejoined_count(), 800);
    assert!(stats.hits * 10 < stats.predicted && stats.predicted * 10 < frames.len() as u64, "{stats:?}");
}

#[test]
fn placement_restarts_when_predictions_hit_again() {
    let mut station = Station::usual(Call::Batch, PlacementMode::WherePays);
    let mixed: Vec<_> = (0..200)
        .flat_map(|id| {
            let [one, other] = [1, 2].map(|host| datagram(4, host, id, 9_000, 1_480));
            one.into_iter().zip(other).flat_map(|(one, other)| [one, other])
        })
        .collect();
    mixed.chunks(64).for_each(|batch| drop(station.step(NOW, batch)));
    let before = station.stats();
    let plain: Vec<_> = (0..2_000).flat_map(|id| datagram(4, 3, id, 9_000, 1_480)).collect();
    plain.chunks(64).for_each(|batch| drop(station.step(NOW, batch)));
    let after = station.stats();
    assert!(after.hits - before.hits > 7_000, "{before:?} {after:?}");
}

#[test]
fn other_traffic_gets_no_predictions() {
    let mut station = Station::usual(Call::Batch, PlacementMode::WherePays);
    let frames: Vec<_> = datagram(4, 1, 1, 9_000, 1_480);
    station.step(NOW, &frames);
    let whole: Vec<_> = (0..1_000).map(|id| v4(1, id, 0, false, 0, &noise(1_000, 1))).collect();
    whole.chunks(64).for_each(|batch| drop(station.step(NOW, batch)));
    let stats = station.stats();
    assert!(stats.predicted <= 64 && stats.hits == 0, "{stats:?}");
}

/// A gateway, and the mode in which frames are received.
struct Station {
    gateway: Gateway,
    direction: Came,
    /// Whether headers are read before slots are offered.
    looks_first: bool,
    gone: Vec<Vec<u8>>,
}

/// The mode in which frames are received.
#[derive(Clone, Copy, Debug)]
enum Came {
    /// One by one, complete.
    Singly,
    /// In one batch, complete.
    Whole,
    /// In one batch, with their payloads in the offered slots.
    Apart(Call),
}

impl Station {
    fn new(limits: Limits, late: Late, direction: Came, guessing: PlacementMode, is_uniform: bool) -> Station {
        let [v4, v6] = ["10.2.0.0/16", "300::/8"].map(|text| text.parse().expect("it is a prefix"));
        let policies = Prefixes::new(FragmentPolicy::Reassemble);
        let side = SideSettings {
            memory: limits.bytes,
            policies: if is_uniform {
                policies
            } else {
                policies.with(v4, FragmentPolicy::ReassembleHop).with(v6, FragmentPolicy::ReassembleHop)
            },
            fragment_timeout: limits.timeout,
            late,
            placement: guessing,
            icmp_source: Some([IpAddr::from([10, 9, 9, 9]), IpAddr::from([9; 16])]),
            ..SideSettings::new(u16::MAX, Position::Transit)
        };
        let secrets = Secrets::both(Secret::new(5));
        let gateway = Gateway::new(&GatewaySettings::one(side), secrets, || Pool::new(1 << 30));
        Station { gateway, direction, looks_first: false, gone: Vec::new() }
    }

    fn usual(call: Call, guessing: PlacementMode) -> Station {
        Station::new(Limits { bytes: 8 << 20, timeout: None }, Late::Retire, Came::Apart(call), guessing, true)
    }

    fn stats(&self) -> PlacementStats {
        self.gateway.placement_stats(0)
    }

    fn rejoined_count(&self) -> u64 {
        self.gateway.ledger(0).event(Event::Reassembled).packets
    }

    /// Pushes a batch. Returns all visible effects.
    fn step(&mut self, now: Time, frames: &[Vec<u8>]) -> (String, Vec<Vec<u8>>) {
        self.gateway.expire(now);
        match self.direction {
            Came::Singly => frames.chunks(1).for_each(|frames| self.push(now, frames, None)),
            Came::Whole => self.push(now, frames, None),
            Came::Apart(call) => self.push(now, frames, Some(call)),
        }
        self.drain();
        self.gateway.check(0).unwrap();
        let gone = core::mem::take(&mut self.gone);
        let aggregation = &self.gateway.side(0).aggregation;
        let counts = (aggregation.held(), aggregation.charged(), self.gateway.next_deadline());
        let ledger = self.gateway.ledger(0);
        let events: Vec<_> = Event::ALL.iter().map(|event| ledger.event(*event)).collect();
        let ends: Vec<_> = Reason::ALL.iter().map(|reason| ledger.retired(*reason)).collect();
        let in_use_count = self.gateway.output(0).pool.in_use_count();
        let totals = (ledger.received, ledger.forwarded);
        (format!("{counts:?} {in_use_count} {totals:?} {events:?} {ends:?}"), gone)
    }

    /// Receives frames as one batch, and pushes the batch. With `apart`, payloads are received in the offered
    /// slots.
    fn push(&mut self, now: Time, frames: &[Vec<u8>], apart: Option<Call>) {
        let mut batch = Batch::default();
        let Batch { split, frames: whole } = &mut batch;
        let next = frames.first().filter(|_| self.looks_first).map(|frame| {
            let pool = &mut self.gateway.output_mut(0).pool;
            Frame::copy(frame, LinkType::Ethernet, Ingress(0), pool).expect("it is a packet")
        });
        match (apart, &next) {
            (None, _) => receive(frames, Call::Batch, None, &mut self.gateway.output_mut(0).pool, split, whole),
            (Some(call), next) => {
                let (places, pool) = match next {
                    Some(next) => self.gateway.places_for(next, 0),
                    None => self.gateway.places(0),
                };
                receive(frames, call, places, pool, split, whole);
            }
        }
        next.into_iter().for_each(|next| self.gateway.recycle(0, next));
        self.gateway.push(now, 0, &mut batch);
        assert!(batch.split.is_empty() && batch.frames.is_empty());
    }

    fn drain(&mut self) {
        while let Some(direction) = self.gateway.next(0) {
            match direction {
                Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                    let mut fragments = WirePackets::of(&packet);
                    while let Some(fragment) = fragments.next() {
                        self.gone.push([fragment.header, fragment.payload].concat());
                    }
                    self.gateway.recycle(0, packet);
                }
                Egress::PassThrough(raw, unfit) => {
                    self.gone.push([format!("{unfit:?}").as_bytes(), raw.frame()].concat());
                    self.gateway.output_mut(0).pool.give(raw.into_buffer());
                }
            }
        }
    }
}

/// Hosts that send datagrams, and changes to their frames on the way.
struct Traffic {
    hosts: Vec<Host>,
    speaking: usize,
    /// Each of the next five numbers is the mean distance of a change, in frames: another host sends, or a frame is
    /// swapped, repeated, lost or replaced.
    switch: usize,
    swap: usize,
    repeat: usize,
    lose: usize,
    stranger: usize,
    /// One frame in so many gets a copy in front of it or instead of it. The copy differs in one header bit or in
    /// length.
    twin: usize,
    /// Whether hosts take turns, each with a complete datagram.
    takes_turns: bool,
    /// Sent frames, which may be sent again.
    past: Vec<Vec<u8>>,
}

struct Host {
    version: u8,
    number: u8,
    protocol: u8,
    /// Whether the host sends to a destination with the policy reassemble-hop.
    is_elsewhere: bool,
    lens: Vec<usize>,
    step: usize,
    id: u32,
    /// Frames of its datagram still to be sent, the next one last.
    left: Vec<Vec<u8>>,
}

impl Traffic {
    fn draw(random: &mut Rng) -> Traffic {
        let host = |number: usize, random: &mut Rng| {
            let step = *random.choice(&[48, 400, 1_480]).unwrap();
            let unit = *random.choice(&[1, 1, step]).unwrap();
            let lens = (0..*random.choice(&[1, 1, 3]).unwrap())
                .map(|_| unit * random.usize(1..step / unit * 12))
                .collect();
            let version = if random.u8(..3) == 0 { 6 } else { 4 };
            let protocol = *random.choice(&[17, 17, 17, 47, 50, 4, 58]).unwrap();
            let (is_elsewhere, id) = (random.u8(..8) == 0, random.u32(..40_000));
            Host { version, number: number as u8, protocol, is_elsewhere, lens, step, id, left: Vec::new() }
        };
        let hosts = (0..*random.choice(&[1, 1, 2, 5]).unwrap()).map(|number| host(number, random)).collect();
        let mut one_in = || *random.choice(&[7, 40, 300, usize::MAX, usize::MAX]).unwrap();
        let (switch, swap, repeat, lose, stranger) = (one_in(), one_in(), one_in(), one_in(), one_in());
        let (twin, takes_turns) = (one_in(), random.u8(..3) == 0);
        Traffic { hosts, speaking: 0, switch, swap, repeat, lose, stranger, twin, takes_turns, past: Vec::new() }
    }

    fn batch(&mut self, random: &mut Rng) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        for _ in 0..random.usize(1..=64) {
            let happens = |one_in: usize, random: &mut Rng| one_in < usize::MAX && random.usize(..one_in) == 0;
            let is_between = self.takes_turns && self.hosts[self.speaking].left.is_empty();
            if is_between || happens(self.switch, random) {
                self.speaking = random.usize(..self.hosts.len());
            }
            if happens(self.stranger, random) {
                batch.push(stranger(random));
            }
            if happens(self.repeat, random) && !self.past.is_empty() {
                let mut again = random.choice(&self.past).unwrap().clone();
                if random.bool() {
                    let last = again.len() - 1;
                    again[last] ^= 1;
                }
                batch.push(again);
            }
            let frame = self.hosts[self.speaking].next(random);
            if self.past.len() < 30 || random.u8(..20) == 0 {
                self.past.truncate(30);
                self.past.insert(0, frame.clone());
            }
            let has_twin = happens(self.twin, random);
            if has_twin {
                batch.push(twin(&frame, random));
            }
            if !(has_twin && random.bool() || happens(self.lose, random)) {
                batch.push(frame);
            }
            if happens(self.swap, random) && batch.len() > 1 {
                let last = batch.len() - 1;
                batch.swap(last, random.usize(last.saturating_sub(4)..last));
            }
        }
        batch
    }
}

impl Host {
    fn next(&mut self, random: &mut Rng) -> Vec<u8> {
        while self.left.is_empty() {
            self.id += 1;
            let len = *random.choice(&self.lens).unwrap();
            self.left = datagram(self.version, self.number, self.id, len, self.step);
            if random.u8(..4) == 0 {
                tunnelled(&mut self.left[0]);
            }
            self.left.iter_mut().for_each(|frame| readdress(frame, self.protocol, self.is_elsewhere));
            match random.u8(..60) {
                0 => random.shuffle(&mut self.left),
                1 => self.left.iter_mut().for_each(|frame| padded(frame, 3)),
                2 if self.version == 4 => self.left.iter_mut().for_each(with_option),
                3 => self.left.reverse(),
                4 if self.version == 4 => mark(&mut self.left, 3),
                5 if self.version == 4 => mark(&mut self.left, 2),
                6 => change_from_one_on(&mut self.left, random),
                _ => {}
            }
            self.left.reverse();
        }
        self.left.pop().unwrap()
    }
}

/// A frame that belongs to no held datagram.
fn stranger(random: &mut Rng) -> Vec<u8> {
    let payload = noise(random.usize(0..1_500), random.u64(..));
    match random.u8(..9) {
        0 => payload,
        // The VLAN tag looks like the start of an IPv4 header.
        7 => {
            let mut frame = tagged(v4(1, random.u32(..), 0, true, 0, &noise(8 * random.usize(1..185), 3)));
            frame[14..16].copy_from_slice(&[0x45, 7]);
            frame
        }
        1 => [&[2; 12][..], &[8, 6], &payload].concat(),
        2 => tagged(v4(1, random.u32(..), 0, true, 0, &noise(1_480, 3))),
        3 => v4(random.u8(..3), random.u32(..40_100), 8 * random.usize(..400), random.bool(), 0, &payload),
        4 => v6(random.u8(..3), random.u32(..40_100), 8 * random.usize(..400), random.bool(), &payload),
        5 => v6_with_options(&payload),
        6 => {
            let mut frame = v4(1, 3, 0, true, 0, &noise(64, 1));
            frame[24] ^= 1;
            frame
        }
        _ => v4(9, 1, 0, false, 0, &payload),
    }
}

/// The frames of a datagram with this payload length, in order.
fn datagram(version: u8, host: u8, id: u32, len: usize, step: usize) -> Vec<Vec<u8>> {
    let payload = noise(len, u64::from(id) << 8 | u64::from(host));
    let fragments = payload.chunks(step).enumerate();
    let frames = fragments.map(|(index, fragment)| {
        let (offset, more) = (index * step, (index + 1) * step < len);
        if version == 4 { v4(host, id, offset, more, 0, fragment) } else { v6(host, id, offset, more, fragment) }
    });
    frames.collect()
}

fn v4(host: u8, id: u32, offset: usize, more: bool, tos: u8, payload: &[u8]) -> Vec<u8> {
    let packet = ip(4).from([10, 0, 0, host]).to([10, 1, 1, 1]).id(id).part(offset, payload, more);
    Spec { protocol: UDP, tos, ..packet.ethernet() }.bytes()
}

fn v6(host: u8, id: u32, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let packet = ip(6).from([host; 16]).to([2; 16]).id(id).part(offset, payload, more);
    Spec { protocol: UDP, ..packet.ethernet() }.bytes()
}

/// A first fragment whose next header is another extension header, in the place of payload.
fn v6_with_options(payload: &[u8]) -> Vec<u8> {
    let mut frame = v6(1, 7, 0, true, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], payload, &[0; 8]].concat());
    frame[14 + 40] = 60;
    frame
}

fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0, 7]);
    frame
}

fn padded(frame: &mut Vec<u8>, len: usize) {
    frame.extend(vec![0xEE; len]);
}

/// Inserts an option of four bytes behind an IPv4 header.
fn with_option(frame: &mut Vec<u8>) {
    frame.splice(34..34, [0x88, 4, 1, 2]);
    frame[14] = 0x46;
    reseal(frame, 4);
}

/// Sets this ECN mark in the second fragment.
fn mark(frames: &mut [Vec<u8>], bits: u8) {
    if let Some(frame) = frames.get_mut(1) {
        frame[15] = bits;
        reseal(frame, 0);
    }
}

/// Changes a frame's protocol and, if `is_elsewhere`, its destination to one with reassembly for the next hop.
fn readdress(frame: &mut [u8], protocol: u8, is_elsewhere: bool) {
    if frame[12] == 8 {
        (frame[23], frame[31]) = (protocol, if is_elsewhere { 2 } else { 1 });
        reseal(frame, 0);
    } else {
        (frame[54], frame[38]) = (protocol, if is_elsewhere { 3 } else { 2 });
    }
}

/// Writes a UDP tunnel's header into a first fragment if it is long enough.
fn tunnelled(frame: &mut [u8]) {
    if let Some(start) = frame.get_mut(front_len(frame)..).and_then(<[u8]>::first_chunk_mut) {
        *start = [0x30, 0x39, 0x12, 0xB5, 0xF0, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 0];
    }
}

/// Flips the same bit in the headers of all fragments from one on.
fn change_from_one_on(frames: &mut [Vec<u8>], random: &mut Rng) {
    let (from, at, bit) = (random.usize(..frames.len()), random.usize(..front_len(&frames[0])), random.u8(..8));
    frames[from..].iter_mut().for_each(|frame| flip(frame, at, bit));
}

/// A copy of a frame that differs in one bit of its headers, or in length.
fn twin(frame: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut twin = frame.to_vec();
    let front_len = front_len(frame);
    if random.u8(..4) > 0 {
        flip(&mut twin, random.usize(..front_len), random.u8(..8));
        return twin;
    }
    let payload_len = random.usize(..=frame.len() - front_len);
    twin.truncate(front_len + payload_len);
    let (at, header_len) = if frame[12] == 8 { (16, 20) } else { (18, 8) };
    twin[at..at + 2].copy_from_slice(&(header_len + payload_len as u16).to_be_bytes());
    if frame[12] == 8 {
        reseal(&mut twin, 0);
    }
    twin
}

/// Flips a bit in a frame's headers. The checksum stays correct unless the bit is in it.
fn flip(frame: &mut [u8], at: usize, bit: u8) {
    frame[at] ^= 1 << bit;
    if frame[12] == 8 && frame[14] == 0x45 && !(24..26).contains(&at) {
        reseal(frame, 0);
    }
}

/// Bytes in front of a fragment's payload, for a header without options.
fn front_len(frame: &[u8]) -> usize {
    if frame[12] == 8 { 34 } else { 62 }
}

fn reseal(frame: &mut [u8], more_len: u16) {
    let len = u16::from_be_bytes([frame[16], frame[17]]) + more_len;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    seal_ip(&mut frame[14..]);
}

const NOW: Time = Time::from_nanos(1_000_000_000);
