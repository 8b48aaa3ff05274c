//! Evicted connections, switched stages, replaced settings -> each stream complete and in order.

use super::rig::*;
use core::net::IpAddr;
use core::time::Duration;
use fastrand::Rng;
use std::collections::BTreeMap;
use wideload_engine::packet::{Address, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    Batch, Egress, Event, Gateway, GatewayRole, GatewaySettings, Holding, Secret, Secrets, SideStage, Toggle,
    Toward, WirePackets,
};

#[test]
fn held_segments_stay_when_their_handshake_is_evicted() {
    let mut crossing = Crossing::new(8, Duration::from_secs(1));
    for round in 0..3 {
        for port in 0..40 {
            crossing.send(Toward::Wide, port, 500);
            assert!(crossing.connection_count() <= 8, "round {round}, port {port}");
        }
    }
    assert_eq!((crossing.count(Event::RunEvicted), crossing.gateway.held(Toward::Wide.direction()).1), (0, 40));
    crossing.end();
}

#[test]
fn a_syn_flood_evicts_no_streams() {
    let mut crossing = Crossing::new(64, Duration::from_secs(1));
    // Connections that started earlier.
    for port in 0..400 {
        crossing.push(Toward::Wide, port, ACK, 1, vec![7; 500]);
    }
    for port in 400..2_000 {
        crossing.push(Toward::Wide, port, SYN, 0, Vec::new());
    }
    assert_eq!((crossing.count(Event::RunEvicted), crossing.gateway.held(Toward::Wide.direction()).1), (0, 400));
    assert_eq!(crossing.connection_count(), 64);
}

#[test]
fn a_new_border_does_not_know_announcements_to_an_ended_one() {
    let mut crossing = Crossing::new(8, Duration::from_millis(5));
    let ends = ends_of(3);
    let known =
        |crossing: &mut Crossing| crossing.gateway.on_offloaded(crossing.now, ends, Toward::Wide.direction());
    crossing.send(Toward::Wide, 3, 100);
    crossing.push(Toward::Narrow, 3, SYN | ACK, 0, Vec::new());
    assert!(known(&mut crossing).is_some());
    crossing.replace(8, true, true);
    assert!(known(&mut crossing).is_some(), "a border goes on with what it knows");
    crossing.replace(8, true, false);
    crossing.replace(8, true, true);
    assert_eq!((known(&mut crossing), crossing.connection_count()), (None, 0));
}

#[test]
fn segments_reveal_nothing_about_the_handshake() {
    let mut crossing = Crossing::new(8, Duration::from_secs(1));
    crossing.push(Toward::Wide, 3, ACK, 1, vec![7; 500]);
    assert_eq!(crossing.gateway.on_offloaded(crossing.now, ends_of(3), Toward::Wide.direction()), None);
    assert_eq!((crossing.connection_count(), crossing.gateway.held(Toward::Wide.direction()).1), (0, 1));
}

#[test]
fn without_segmentation_long_segments_are_not_coalesced() {
    for (switches, count) in [(&[Toggle::Off][..], 0), (&[Toggle::Off, Toggle::On][..], 2)] {
        let mut crossing = Crossing::new(8, Duration::from_millis(1));
        crossing.push(Toward::Narrow, 3, SYN, 0, Vec::new());
        for switch in switches {
            crossing.gateway.switch(crossing.now, Toward::Narrow.direction(), SideStage::Segment, *switch);
        }
        crossing.push(Toward::Narrow, 3, ACK, 1, vec![7; 8_900]);
        crossing.push(Toward::Narrow, 3, ACK, 8_901, vec![7; 8_900]);
        assert_eq!(crossing.gateway.held(Toward::Narrow.direction()).0.packets, count, "{switches:?}");
        crossing.gateway.flush(crossing.now);
        crossing.drain();
        let came = &crossing.came[&(Toward::Narrow.direction(), 3)];
        assert_eq!(came.len() as u64, count * 8_900, "{switches:?}");
    }
    let mut settings = settings(8, Duration::from_secs(1), true, true);
    settings.sides[Toward::Narrow.direction()].left_out.push(SideStage::Segment);
    let mut crossing = Crossing::with(&settings);
    crossing.push(Toward::Narrow, 3, ACK, 1, vec![7; 8_900]);
    assert_eq!(crossing.gateway.held(Toward::Narrow.direction()).1, 0);
}

#[test]
fn streams_stay_in_order_across_switches_and_replacements() {
    let mut gathered = 0;
    each_seed("connections", 60, |seed| {
        let mut random = Rng::with_seed(seed);
        let count = *random.choice(&[4, 12, 1_000]).unwrap();
        let mut crossing = Crossing::new(count, Duration::from_millis(random.u64(1..50)));
        // Without a border, packets from another port belong to another connection.
        let stays_border = random.bool();
        for _ in 0..400 {
            match random.u8(..40) {
                0 => crossing.switch(if random.bool() { Toggle::On } else { Toggle::Off }),
                1 => {
                    let count = *random.choice(&[4, 12, 1_000]).unwrap();
                    crossing.replace(count, random.bool(), stays_border || random.bool());
                }
                2 => crossing.wait(Duration::from_millis(random.u64(..100))),
                3 => crossing.wait(Duration::from_secs(300)),
                4 => crossing.release(),
                what => {
                    let toward = if what % 3 == 0 { Toward::Narrow } else { Toward::Wide };
                    crossing.ingress = u32::from(stays_border && random.u8(..8) == 0);
                    crossing.flags = ACK | if random.u8(..8) == 0 { PSH } else { 0 };
                    let len = if random.u8(..8) == 0 { 0 } else { random.usize(1..1_000) };
                    crossing.send(toward, random.u16(..20), len);
                }
            }
        }
        assert_eq!(crossing.count(Event::RunEvicted), 0, "there is memory for all that is held");
        gathered += crossing.count(Event::Coalesced);
        crossing.end();
    });
    assert!(gathered > 5_000, "{gathered} segments");
}

/// A border that coalesces in both directions, the hosts on both sides, and the bytes that each has sent and
/// received.
struct Crossing {
    gateway: Gateway,
    now: Time,
    /// Flags of the next packet. `ingress` is the port by which the packet arrives, one of the two ports of its
    /// side.
    flags: u8,
    ingress: u32,
    sent: BTreeMap<(usize, u16), Vec<u8>>,
    came: BTreeMap<(usize, u16), Vec<u8>>,
    /// The port by which each byte of a stream arrived.
    came_by: BTreeMap<(usize, u16), Vec<u32>>,
}

impl Crossing {
    fn new(flow_count: usize, hold: Duration) -> Crossing {
        Crossing::with(&settings(flow_count, hold, true, true))
    }

    fn with(settings: &GatewaySettings) -> Crossing {
        let gateway = Gateway::new(settings, secrets(), || Pool::new(64 << 20));
        let now = Time::ZERO + Duration::from_secs(1);
        Crossing {
            gateway,
            now,
            flags: ACK,
            ingress: 0,
            sent: BTreeMap::new(),
            came: BTreeMap::new(),
            came_by: BTreeMap::new(),
        }
    }

    fn send(&mut self, toward: Toward, port: u16, len: usize) {
        let direction = toward.direction();
        if !self.sent.contains_key(&(direction, port)) {
            self.push(toward, port, SYN, 0, Vec::new());
        }
        let stream = self.sent.entry((direction, port)).or_default();
        let payload: Vec<u8> = (0..len).map(|at| (stream.len() + at) as u8 ^ port as u8).collect();
        let seq = 1 + stream.len() as u32;
        stream.extend(&payload);
        let came_by = self.came_by.entry((direction, port)).or_default();
        came_by.extend(payload.iter().map(|_| 2 * self.ingress + direction as u32));
        self.push(toward, port, self.flags, seq, payload);
    }

    fn push(&mut self, toward: Toward, port: u16, flags: u8, seq: u32, payload: Vec<u8>) {
        let direction = toward.direction();
        let [narrow, wide] = [[10, 0, 0, (port % 5) as u8], [10, 1, 0, 1]];
        let (from, to, ports) = match toward {
            Toward::Wide => (narrow, wide, [1_000 + port, 80]),
            Toward::Narrow => (wide, narrow, [80, 1_000 + port]),
        };
        let bytes = Spec { ports, flags, ..tcp(4).seq(seq).from(from).to(to).payload(payload) }.bytes();
        let mut batch = Batch::default();
        let (mut places, pool) = self.gateway.places(direction);
        assert!(batch.receive(
            &bytes,
            LinkType::Ip,
            Ingress(2 * self.ingress + direction as u32),
            places.as_mut(),
            pool
        ));
        self.gateway.push(self.now, direction, &mut batch);
        self.drain();
    }

    fn wait(&mut self, stretch: Duration) {
        self.now = self.now + stretch;
        self.gateway.expire(self.now);
        self.drain();
    }

    fn release(&mut self) {
        [0, 1].into_iter().for_each(|direction| self.gateway.release(self.now, direction));
        self.drain();
    }

    fn switch(&mut self, switch: Toggle) {
        self.gateway.switch(self.now, Toward::Wide.direction(), SideStage::Coalesce, switch);
        self.drain();
    }

    fn replace(&mut self, flow_count: usize, coalesces: bool, is_border: bool) {
        let settings = settings(flow_count, Duration::from_millis(5), coalesces, is_border);
        self.gateway.replace(self.now, &settings, secrets());
        self.drain();
    }

    fn connection_count(&self) -> usize {
        self.gateway.connections().map_or(0, |connections| connections.flow_count())
    }

    fn count(&self, event: Event) -> u64 {
        [0, 1].map(|direction| self.gateway.ledger(direction).event(event).packets).iter().sum()
    }

    /// Checks that each packet that left continues its stream.
    fn drain(&mut self) {
        for direction in [0, 1] {
            while let Some(egress) = self.gateway.next(direction) {
                let Egress::Forward(packet) = egress else { panic!("nothing but segments came") };
                let mut fragments = WirePackets::of(&packet);
                while let Some(fragment) = fragments.next() {
                    let seen = ReadPacket::of(&[fragment.header, fragment.payload].concat());
                    let port = seen.ports.into_iter().find(|port| *port != 80).expect("one end is narrow") - 1_000;
                    let stream = self.came.entry((direction, port)).or_default();
                    let behind_syn = u32::from(seen.flags & SYN == 0);
                    assert_eq!(seen.seq, behind_syn + stream.len() as u32, "the stream goes on where it was");
                    let start = stream.len();
                    stream.extend(seen.payload());
                    let came_by =
                        self.came_by.get(&(direction, port)).map_or(&[][..], |all| &all[start..stream.len()]);
                    assert!(came_by.iter().all(|by| Ingress(*by) == packet.ingress()), "ports are never mixed");
                }
                self.gateway.recycle(direction, packet);
            }
            self.gateway.check(direction).expect("the laws hold");
            assert_eq!(self.gateway.is_idle(direction), self.gateway.held(direction).1 == 0);
        }
    }

    /// Checks that all sent bytes have arrived.
    fn end(mut self) {
        self.gateway.flush(self.now);
        self.drain();
        assert!(self.sent == self.came);
        assert_eq!([0, 1].map(|direction| self.gateway.held(direction).1), [0, 0]);
    }
}

fn settings(flow_count: usize, hold: Duration, coalesces: bool, is_border: bool) -> GatewaySettings {
    let mut settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
    settings.flow_count = flow_count;
    let wide = settings.sides[Toward::Wide.direction()].coalesce.filter(|_| coalesces);
    for side in &mut settings.sides {
        (side.hold, side.coalesce) = (Holding::Fixed(hold), wide);
    }
    settings.border = settings.border.filter(|_| is_border);
    settings
}

/// The endpoints of a connection, the narrow one first.
fn ends_of(port: u16) -> [(Address, u16); 2] {
    let [narrow, wide] = [[10, 0, 0, (port % 5) as u8], [10, 1, 0, 1]];
    [(narrow, 1_000 + port), (wide, 80)].map(|(ip, port)| (Address::from(IpAddr::from(ip)), port))
}

fn secrets() -> Secrets {
    Secrets::both(Secret::new(5))
}
