//! Frames in batches, and the same frames one by one -> the same packets in the same order, and the same ledgers.
//!
//! The frames cross a border that reassembles and coalesces in both directions.

use super::rig::*;
use core::time::Duration;
use fastrand::Rng;
use std::collections::VecDeque;
use wideload_engine::packet::{Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewayRole, GatewaySettings, Holding, Late, Mode,
    PlacementMode, PlacementStats, Prefixes, Reason, Secret, Secrets, Toward, WirePackets,
};

#[test]
fn a_batch_gives_the_same_result_as_single_packets() {
    let (mut guesses, mut events) = (PlacementStats::default(), [0; EVENTS.len()]);
    each_seed("batches", 100, |seed| {
        let mut random = Rng::with_seed(seed);
        let settings = settings(&mut random);
        let [mut one_by_one, mut at_once] = [1, usize::MAX].map(|batch_len| Half::new(&settings, batch_len));
        let mut traffic = Traffic::draw(&mut random);
        let mut now = Time::from_nanos(1_000_000_000);
        for step in 0..40 {
            now = now + Duration::from_micros(*random.choice(&[0, 1, 40, 400, 3_000, 80_000]).unwrap());
            let toward = *random.choice(&[Toward::Wide, Toward::Wide, Toward::Narrow]).unwrap();
            let batch = traffic.batch(toward, &mut random);
            let is_idle = random.bool();
            let [one, other] =
                [&mut one_by_one, &mut at_once].map(|half| half.take(now, toward.direction(), &batch, is_idle));
            assert!(one == other, "seed {seed}, step {step}: {}", difference(&one, &other));
        }
        let [one, other] = [&mut one_by_one, &mut at_once].map(|half| half.end(now));
        assert!(one == other, "seed {seed}, at the end: {}", difference(&one, &other));
        for direction in BOTH {
            let seen = at_once.gateway.placement_stats(direction);
            guesses.hits += seen.hits;
            guesses.predicted += seen.predicted;
            guesses.copied_out_bytes += seen.copied_out_bytes;
            let ledger = at_once.gateway.ledger(direction);
            events.iter_mut().zip(EVENTS).for_each(|(count, event)| *count += ledger.event(event).packets);
        }
    });
    println!("{guesses:?}, {events:?}");
    // Batches that cause none of this would test nothing.
    assert!(guesses.hits > 1_500 && guesses.predicted - guesses.hits > 1_500, "{guesses:?}");
    assert!(guesses.copied_out_bytes > 500_000, "{guesses:?}");
    assert!(events.iter().all(|count| *count > 200), "{:?}", EVENTS.iter().zip(events).collect::<Vec<_>>());
}

/// A border, and the largest number of frames that are pushed at once.
struct Half {
    gateway: Gateway,
    batch_len: usize,
}

impl Half {
    fn new(settings: &GatewaySettings, batch_len: usize) -> Half {
        Half { gateway: Gateway::new(settings, Secrets::both(Secret::new(5)), || Pool::new(1 << 28)), batch_len }
    }

    /// Pushes the frames of one moment. Returns all visible effects.
    fn take(&mut self, now: Time, direction: usize, frames: &[Vec<u8>], is_idle: bool) -> Told {
        self.gateway.expire(now);
        for frames in frames.chunks(self.batch_len.min(frames.len())) {
            let mut batch = Batch::default();
            let (mut places, pool) = self.gateway.places(direction);
            let ingress = Ingress(direction as u32);
            for frame in frames {
                assert!(batch.receive(frame, LinkType::Ip, ingress, places.as_mut(), pool), "the pool is large");
            }
            self.gateway.push(now, direction, &mut batch);
            assert!(batch.split.is_empty() && batch.frames.is_empty());
        }
        if is_idle {
            self.gateway.port_is_idle(now, direction);
        }
        self.tell()
    }

    fn end(&mut self, now: Time) -> Told {
        self.gateway.flush(now);
        let told = self.tell();
        for direction in BOTH {
            assert_eq!(self.gateway.output(direction).pool.in_use_count(), 0);
        }
        told
    }

    fn tell(&mut self) -> Told {
        let gone = BOTH.map(|direction| self.drain(direction));
        let said = BOTH.map(|direction| self.tell_of(direction));
        let connections = self.gateway.connections().expect("it is a border");
        assert!(connections.charged() <= connections.limit());
        (format!("{} {} {said:?}", connections.charged(), connections.flow_count()), gone)
    }

    fn tell_of(&self, direction: usize) -> String {
        self.gateway.check(direction).unwrap();
        let aggregation = &self.gateway.side(direction).aggregation;
        let held = (aggregation.held(), aggregation.charges(), self.gateway.next_deadline_of(direction));
        let in_use_count = self.gateway.output(direction).pool.in_use_count();
        let ledger = self.gateway.ledger(direction);
        let events: Vec<_> = Event::ALL.iter().map(|event| (event.name(), ledger.event(*event))).collect();
        let fates = |reason: &Reason| (reason.name(), ledger.retired(*reason), ledger.passed(*reason));
        let fates: Vec<_> = Reason::ALL.iter().map(fates).collect();
        let totals = (ledger.received, ledger.forwarded);
        format!("{held:?} {in_use_count} {totals:?} {events:?} {fates:?}")
    }

    fn drain(&mut self, direction: usize) -> Vec<Gone> {
        let mut gone = Vec::new();
        while let Some(egress) = self.gateway.next(direction) {
            match egress {
                Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                    let is = (packet.gso, packet.checksum, packet.max_fragment_len(), packet.is_as_received());
                    let mut fragments = WirePackets::of(&packet);
                    while let Some(fragment) = fragments.next() {
                        gone.push((format!("{is:?}"), [fragment.header, fragment.payload].concat()));
                    }
                    self.gateway.recycle(direction, packet);
                }
                Egress::PassThrough(raw, unfit) => {
                    gone.push((format!("{unfit:?}"), raw.frame().to_vec()));
                    let out = self.gateway.output_mut(direction);
                    out.ledger.pass(unfit.into(), raw.frame().len());
                    out.pool.give(raw.into_buffer());
                }
            }
        }
        gone
    }
}

/// A border that reassembles and coalesces in both directions, sometimes with fewer table entries than connections.
fn settings(random: &mut Rng) -> GatewaySettings {
    let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
    settings.flow_count = *random.choice(&[8, 1_000]).unwrap();
    for side in &mut settings.sides {
        side.policies = Prefixes::new(
            *random
                .choice(&[FragmentPolicy::Reassemble, FragmentPolicy::Reassemble, FragmentPolicy::Merge])
                .unwrap(),
        );
        side.coalesce = Some(*random.choice(&[Mode::Resize, Mode::Reversible]).unwrap());
        side.hold = *random.choice(&[Holding::Burst, Holding::Adaptive, Holding::Fixed(HOLD)]).unwrap();
        side.memory = *random.choice(&[30_000, 300_000, 1 << 24]).unwrap();
        side.late = *random.choice(&[Late::Retire, Late::Release { mtu: side.mtu }]).unwrap();
        side.fragment_timeout = random.bool().then_some(Duration::from_millis(50));
        side.placement = PlacementMode::Always;
        side.icmp_source = Some(VERSIONS.map(|version| host(version, 9)));
    }
    settings
}

/// Hosts on both sides of a border, and changes to their frames on the way.
struct Traffic {
    /// By direction: the hosts that receive datagrams, and the connections.
    talks: [Vec<Talk>; 2],
    /// One frame in `turn` is from another sender, one in `swap` is swapped, one in `repeat` is repeated, and one
    /// in `lose` is lost.
    turn: usize,
    swap: usize,
    repeat: usize,
    lose: usize,
    past: Vec<Vec<u8>>,
}

/// One direction of a connection, or of datagrams between two hosts.
struct Talk {
    like: Spec,
    /// Payload length of a segment or datagram, in bytes. `cut_len` is the payload length of its fragments, if it
    /// arrives in fragments.
    len: usize,
    cut_len: usize,
    next: u32,
    left: VecDeque<Vec<u8>>,
}

impl Traffic {
    fn draw(random: &mut Rng) -> Traffic {
        let count = *random.choice(&[1, 2, 6, 24]).unwrap();
        let draw = |toward: Toward, random: &mut Rng| {
            (0..count).map(|number| Talk::draw(toward, number, random)).collect::<Vec<_>>()
        };
        let mut talks = [Vec::new(), Vec::new()];
        for toward in [Toward::Wide, Toward::Narrow] {
            talks[toward.direction()] = draw(toward, random);
        }
        let mut one_in = || *random.choice(&[7, 40, 300, usize::MAX]).unwrap();
        let [turn, swap, repeat, lose] = [(); 4].map(|()| one_in());
        Traffic { talks, turn, swap, repeat, lose, past: Vec::new() }
    }

    fn batch(&mut self, toward: Toward, random: &mut Rng) -> Vec<Vec<u8>> {
        let happens = |one_in: usize, random: &mut Rng| one_in < usize::MAX && random.usize(..one_in) == 0;
        let talks = &mut self.talks[toward.direction()];
        let mut batch: Vec<Vec<u8>> = Vec::new();
        let mut speaking = random.usize(..talks.len());
        for _ in 0..random.usize(1..=64) {
            if happens(self.turn, random) {
                speaking = random.usize(..talks.len());
            }
            let frame = talks[speaking].say(random);
            if happens(self.repeat, random) && !self.past.is_empty() {
                batch.push(random.choice(&self.past).unwrap().clone());
            }
            if self.past.len() < 30 || random.u8(..20) == 0 {
                self.past.truncate(29);
                self.past.insert(0, frame.clone());
            }
            if !happens(self.lose, random) {
                batch.push(frame);
            }
            if happens(self.swap, random) && batch.len() > 1 {
                let last = batch.len() - 1;
                batch.swap(last, random.usize(last.saturating_sub(4)..last));
            }
        }
        if batch.is_empty() {
            batch.push(talks[speaking].say(random));
        }
        batch
    }
}

impl Talk {
    fn draw(toward: Toward, number: u32, random: &mut Rng) -> Talk {
        let version = *random.choice(&[4, 4, 6]).unwrap();
        let is_tcp = random.u8(..5) < 3;
        let ports = [1_000 + number as u16, 80];
        let like = if is_tcp { tcp(version) } else { udp(version).ip_flags(0) };
        let like = like.between(10 + number % 5, 1).ports(ports[0], ports[1]);
        let like = match toward {
            Toward::Wide => like,
            Toward::Narrow => like.turned(),
        };
        let like = if is_tcp && random.bool() { like.stamped(7, 8) } else { like };
        let wide_len = if toward == Toward::Narrow { 8_000 } else { 1_400 };
        let len = if is_tcp { random.usize(1..wide_len) } else { random.usize(600..20_000) };
        let cut_len = match (is_tcp, random.u8(..6)) {
            // Only a few segments are fragmented.
            (true, 0) => 200,
            (true, _) => usize::MAX,
            (false, _) => *random.choice(&[400, 1_000, 1_480]).unwrap(),
        };
        Talk { like: Spec { seq: random.u32(..), ..like }, len, cut_len, next: 0, left: VecDeque::new() }
    }

    fn say(&mut self, random: &mut Rng) -> Vec<u8> {
        while self.left.is_empty() {
            let is_tcp = self.like.protocol == TCP;
            let like = self.like.clone().id(self.next);
            let packet = match random.u8(..30) {
                _ if self.next == 0 && is_tcp => like.flags(SYN).options([2, 4, 0x22, 0]),
                0 if is_tcp => like,
                1 if is_tcp => like.noise(self.len).flags(ACK | FIN),
                2..5 if is_tcp => like.noise(self.len).flags(ACK | PSH),
                5 => like.noise(random.usize(1..=self.len)),
                6 => like.noise(self.len).sum(Summed::Off(1)),
                _ => like.noise(self.len),
            };
            self.next += 1;
            self.like.seq = self.like.seq.wrapping_add(packet.payload.len() as u32);
            match packet.upper().len() <= self.cut_len {
                true => self.left.push_back(packet.bytes()),
                false => self.left.extend(packet.ip_flags(0).parts(self.cut_len)),
            }
        }
        self.left.pop_front().expect("something is said")
    }
}

/// The first difference of two results: of counters, otherwise of packets.
fn difference((one, one_gone): &Told, (other, other_gone): &Told) -> String {
    let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let end = |text: &str| text.chars().skip(at.saturating_sub(60)).take(200).collect::<String>();
    let pairs = one_gone.iter().flatten().zip(other_gone.iter().flatten());
    let packets = pairs.filter(|(one, other)| one != other).take(1);
    format!("{} instead of {}, {:02x?}", end(other), end(one), packets.collect::<Vec<_>>())
}

/// Counters, and the packets that were sent in each direction.
type Told = (String, [Vec<Gone>; 2]);
/// A packet that was sent: its metadata and its bytes.
type Gone = (String, Vec<u8>);

const BOTH: [usize; 2] = [0, 1];
const HOLD: Duration = Duration::from_micros(300);
/// Events that must happen, as the comparison tests nothing without them.
const EVENTS: [Event; 5] =
    [Event::Reassembled, Event::Coalesced, Event::Reordered, Event::RunEvicted, Event::Segments];
