//! Seeds -> random scenes, compared with a model. Datagrams of all kinds are interleaved, lost, repeated, forged
//! and late.
//!
//! A failure names its seed. `WIDELOAD_SEED=<seed> cargo test -p wideload-engine swarm` repeats it alone, and
//! `WIDELOAD_SEEDS=<count>` runs more of them.

use crate::station::{Left, Station, at};
use core::time::Duration;
use fastrand::Rng;
use std::collections::{BTreeMap, HashSet};
use testkit::fields::{DESTINATION_OPTIONS, DF, EXPERIMENT, HOP_BY_HOP, ROUTING, UDP};
use testkit::model::{Key, Model, Verdict};
use testkit::{Place, ReadPacket, Spec, copied_option, each_seed, extension, host, ip, uncopied_option};
use wideload_engine::{Event, Late, Limits, Reason};

#[test]
fn with_enough_memory_every_scene_ends_as_the_model() {
    let mut met = Fates::default();
    let seeds = each_seed("-p wideload-engine swarm", 2_000, |seed| {
        let scene = Scene::draw(seed);
        let limits = Limits { bytes: 64 << 20, timeout: scene.timeout };
        let mut station = Station::joining(limits, scene.late);
        let mut model = Model::new(scene.timeout);
        let mut fates = Fates::default();
        for sent in &scene.sent {
            expire(&mut station, &mut model, scene.late, sent.at, &mut fates);
            let left = station.push(at(sent.at), &sent.frame, &sent.header);
            let verdict = model.push(sent.at, &sent.header, &sent.place, &sent.payload);
            fates.note(&verdict);
            match verdict {
                Verdict::Complete(expected) => {
                    assert_eq!(frames(&left), [expected.bytes()]);
                    assert_eq!(left[0].ingress, expected.ingress);
                }
                _ => assert_eq!(left, []),
            }
            check_held(&station, &model);
        }
        while let Some(deadline) = model.next_deadline() {
            expire(&mut station, &mut model, scene.late, deadline, &mut fates);
        }
        assert_eq!(station.side.next_deadline(), None);
        assert_eq!(station.out.pool.in_use_count(), 0);
        fates.check(&station);
        met.add(&fates);
    });
    println!("{seeds} scenes: {met:?}");
    // A swarm without one kind of outcome tests nothing of it.
    let least = [met.whole, met.repeats, met.killed, met.poisoned, met.released, met.mixed].into_iter().min();
    assert!(seeds < 500 || least >= Some(seeds / 10), "{met:?}");
}

#[test]
fn with_short_memory_only_sent_datagrams_leave_within_the_limit() {
    each_seed("-p wideload-engine swarm", 1_000, |seed| {
        let scene = Scene::draw(seed ^ 0x5EED << 32);
        let limit = [2_000, 6_000, 20_000, 100_000][seed as usize % 4];
        let mut station = Station::joining(Limits { bytes: limit, timeout: scene.timeout }, scene.late);
        let mut known: BTreeMap<Key, HashSet<(usize, u8)>> = BTreeMap::new();
        for sent in &scene.sent {
            let octets = sent.payload.iter().enumerate().map(|(at, octet)| (sent.place.range.start + at, *octet));
            known.entry(Key::of(&sent.header)).or_default().extend(octets);
            let mut left = station.expire(at(sent.at));
            left.extend(station.push(at(sent.at), &sent.frame, &sent.header));
            check_charged(&station, limit);
            check_sent(&left, &known);
        }
        let left = station.flush(at(scene.sent.last().map_or(Duration::ZERO, |sent| sent.at)));
        check_sent(&left, &known);
        check_charged(&station, 0);
    });
}

/// A scene drawn from a seed: first the kinds of events, then the events.
struct Scene {
    timeout: Option<Duration>,
    late: Late,
    sent: Vec<Sent>,
}

/// One fragment in transit.
#[derive(Clone)]
struct Sent {
    at: Duration,
    header: Spec,
    place: Place,
    payload: Vec<u8>,
    frame: Vec<u8>,
}

impl Scene {
    fn draw(seed: u64) -> Scene {
        let mut random = Rng::with_seed(seed);
        let versions: &[u8] = random.choice([&[4][..], &[6], &[4, 6]]).unwrap();
        let timeout_ms = *random.choice(&[0u64, 0, 1, 50, 2_000]).unwrap();
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let late = match random.u8(..3) {
            0 => Late::Retire,
            1 if versions == [4] => Late::Release { mtu: 68 },
            _ => Late::Release { mtu: *random.choice(&[1_280, 1_500, 9_000]).unwrap() },
        };
        let mut sent = draw_fragments(&mut random, versions);
        let (loss, repeats, forged) =
            (percent(&mut random), percent(&mut random), *random.choice(&[0, 0, 5, 30]).unwrap());
        let equal = random.bool();
        for index in 0..sent.len() {
            if random.u8(..100) < repeats {
                sent.push(sent[index].clone());
            }
            if random.u8(..100) < forged {
                let forged = forge(&mut random, &sent[index], equal);
                sent.push(forged);
            }
        }
        sent.retain(|_| random.u8(..100) >= loss);
        match random.u8(..3) {
            0 => random.shuffle(&mut sent),
            1 => sent.chunks_mut(6).for_each(|chunk| random.shuffle(chunk)),
            _ => {}
        }
        // The duration of the scene is between zero and several time-outs.
        let span = timeout.unwrap_or(Duration::from_secs(60)) * random.u32(0..4);
        let step = span / (sent.len() as u32 + 1);
        let mut now = Duration::from_nanos(random.u64(..1 << 40));
        for sent in &mut sent {
            now += step.mul_f64(random.f64() * 2.0);
            sent.at = now;
        }
        Scene { timeout, late, sent }
    }
}

fn draw_fragments(random: &mut Rng, versions: &[u8]) -> Vec<Sent> {
    let longest = *random.choice(&[40, 300, 3_000, 12_000]).unwrap();
    let ids = *random.choice(&[1, 3, 1_000]).unwrap();
    let marks: &[u8] = random.choice([&[0][..], &[2], &[1, 2], &[2, 3], &[0, 2, 3]]).unwrap();
    let extras = random.bool();
    let mut sent = Vec::new();
    for _ in 0..random.usize(1..30) {
        let version = *random.choice(versions).unwrap();
        let header = draw_header(random, version, ids, extras);
        let mut payload = vec![0; random.usize(9..=longest)];
        random.fill(&mut payload);
        let mut datagram = Spec { payload, ..header };
        let first = sent.len();
        for place in draw_places(random, datagram.payload.len()) {
            datagram.tos = 0xB8 | *random.choice(marks).unwrap();
            datagram.ip_flags = if version == 4 && random.u8(..4) == 0 { DF } else { 0 };
            sent.push(send(&datagram, place.clone(), &datagram.payload[place.range]));
        }
        match random.u8(..3) {
            0 => sent[first..].reverse(),
            1 => random.shuffle(&mut sent[first..]),
            _ => {}
        }
    }
    sent
}

fn draw_header(random: &mut Rng, version: u8, ids: u32, extras: bool) -> Spec {
    let mut header = ip(version);
    header.source = host(version, 1 + random.u32(..2));
    header.destination = host(version, random.u32(6..8));
    // Multiples of these share a hint, in the merger and in the reassembler.
    header.id = (random.u32(..ids) * *random.choice(&[1, 64, 16_384]).unwrap()) % 65_536;
    header.protocol = *random.choice(&[UDP, EXPERIMENT]).unwrap();
    header.vlans = random.choice([None, Some(vec![7]), Some(vec![8]), Some(vec![7, 8])]).unwrap();
    header.ingress = random.u32(..2);
    header.ttl = random.u8(1..);
    if extras && version == 4 {
        header.ip_options =
            random.choice([copied_option(), [uncopied_option(), copied_option()].concat()]).unwrap();
    } else if extras {
        let number = *random.choice(&[HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS]).unwrap();
        header.extensions = vec![extension(number, 8 * random.usize(1..4))];
    }
    header
}

/// At least two fragments of any lengths, in order.
fn draw_places(random: &mut Rng, len: usize) -> Vec<Place> {
    let units = len.div_ceil(8);
    let count = random.usize(2..=units.min(9));
    let mut cuts: Vec<usize> = (1..units).collect();
    random.shuffle(&mut cuts);
    cuts.truncate(count - 1);
    cuts.sort_unstable();
    let starts = [0].into_iter().chain(cuts.iter().map(|cut| cut * 8));
    let ends = cuts.iter().map(|cut| cut * 8).chain([len]);
    starts.zip(ends).map(|(start, end)| Place { range: start..end, more: end < len }).collect()
}

/// A fragment near another one, with its key: with equal bytes where they overlap, or with others.
fn forge(random: &mut Rng, like: &Sent, equal: bool) -> Sent {
    let start = like.place.range.start.saturating_sub(8 * random.usize(..4)) + 8 * random.usize(..4);
    let more = random.u8(..4) > 0;
    let mut len = random.usize(1..64);
    if more {
        len = len.next_multiple_of(8);
    } else if start == 0 {
        // At offset 0 that would be a whole datagram.
        return like.clone();
    }
    let mut payload = vec![0; len];
    random.fill(&mut payload);
    if equal {
        for (at, octet) in payload.iter_mut().enumerate() {
            let known = (start + at).checked_sub(like.place.range.start).and_then(|at| like.payload.get(at));
            *octet = *known.unwrap_or(octet);
        }
    }
    send(&like.header, Place { range: start..start + len, more }, &payload)
}

fn send(header: &Spec, place: Place, payload: &[u8]) -> Sent {
    let datagram = Spec { payload: Vec::new(), ..header.clone() };
    let frame = datagram.fragment_with(&place, payload);
    Sent { at: Duration::ZERO, header: header.clone(), place, payload: payload.to_vec(), frame }
}

/// The number of fragments for each outcome.
#[derive(Debug, Default)]
struct Fates {
    whole: u64,
    mixed: u64,
    repeats: u64,
    killed: u64,
    poisoned: u64,
    released: u64,
}

impl Fates {
    fn note(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Complete(..) => self.whole += 1,
            Verdict::Repeat => self.repeats += 1,
            Verdict::Kills(ended) => self.killed += *ended as u64,
            Verdict::Poisoned => self.poisoned += 1,
            Verdict::MixedMarks => self.mixed += 1,
            Verdict::Incomplete => {}
        }
    }

    fn add(&mut self, others: &Fates) {
        self.whole += others.whole;
        self.mixed += others.mixed;
        self.repeats += others.repeats;
        self.killed += others.killed;
        self.poisoned += others.poisoned;
        self.released += others.released;
    }

    fn check(&self, station: &Station) {
        let ledger = &station.out.ledger;
        let retired = |reason| ledger.retired(reason).packets;
        assert_eq!(ledger.event(Event::Reassembled).packets, self.whole);
        assert_eq!(retired(Reason::FragRepeat), self.repeats);
        assert_eq!(retired(Reason::FragOverlap) + retired(Reason::FragConflict), self.killed);
        assert_eq!(retired(Reason::FragPoisoned), self.poisoned);
        assert_eq!(ledger.event(Event::ReleasedTimeout).packets, self.released);
    }
}

/// Expires late datagrams, and compares the frames that leave with the model's.
fn expire(station: &mut Station, model: &mut Model, late: Late, now: Duration, fates: &mut Fates) {
    assert_eq!(station.side.next_deadline(), model.next_deadline().map(at));
    let left = station.expire(at(now));
    let given_up = model.expire(now);
    let Late::Release { mtu } = late else { return assert_eq!(left, []) };
    fates.released += given_up.len() as u64;
    let mut fragments: BTreeMap<Key, Vec<&Left>> = BTreeMap::new();
    left.iter().for_each(|fragment| fragments.entry(fragment.key()).or_default().push(fragment));
    assert_eq!(fragments.len(), given_up.len());
    for (key, waiting) in given_up {
        let mut octets = vec![None; waiting.octets().len()];
        for fragment in &fragments[&key] {
            assert!(fragment.ip().len() <= usize::from(mtu));
            let seen = ReadPacket::of(fragment.ip());
            let (offset, more) = seen.fragment.expect("what is late leaves in fragments");
            let payload = seen.body();
            assert_eq!(more, waiting.end() != Some(offset + payload.len()));
            for (octet, known) in octets[offset..].iter_mut().zip(payload) {
                assert_eq!(octet.replace(*known), None, "each octet leaves once");
            }
        }
        assert_eq!(octets, waiting.octets());
    }
}

fn check_held(station: &Station, model: &Model) {
    let (tally, buffers) = station.side.aggregation.held();
    let fragments: usize = model.open().map(|(_, waiting)| waiting.fragment_count()).sum();
    let octets: usize = model.open().map(|(_, waiting)| waiting.octets().iter().flatten().count()).sum();
    assert_eq!((tally.packets, tally.bytes), (fragments as u64, octets as u64));
    assert_eq!(buffers, model.open().count());
}

fn check_charged(station: &Station, limit: usize) {
    let charged = station.side.aggregation.reassembler.as_ref().map_or(0, |reassembler| reassembler.charged());
    assert!(charged <= limit, "{charged} bytes are charged, {limit} allowed");
}

fn check_sent(left: &[Left], known: &BTreeMap<Key, HashSet<(usize, u8)>>) {
    for fragment in left {
        let seen = ReadPacket::of(fragment.ip());
        let offset = seen.fragment.map_or(0, |(offset, _)| offset);
        let mut payload = seen.body().iter().enumerate();
        // A reassembled IPv6 datagram has no ID: each octet came from some sender of its pair.
        let of_it = |key: &Key| *key == fragment.key() || seen.fragment.is_none() && key.of_pair(&fragment.key());
        let sets: Vec<_> = known.iter().filter(|(key, _)| of_it(key)).map(|(_, octets)| octets).collect();
        assert!(payload.all(|(at, octet)| sets.iter().any(|octets| octets.contains(&(offset + at, *octet)))));
    }
}

fn percent(random: &mut Rng) -> u8 {
    *random.choice(&[0, 0, 5, 40]).unwrap()
}

fn frames(left: &[Left]) -> Vec<&[u8]> {
    left.iter().map(|left| left.frame.as_slice()).collect()
}
