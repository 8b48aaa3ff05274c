//! Batches of all kinds -> the packets that leave a gateway: their order, header split, stages that are switched.

use core::time::Duration;
use packet::{Ingress, LinkType, Pool, Time};
use testkit::{Spec, ip, udp};
use wideload_engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Mode, PlacementMode, Position, Prefixes,
    Secret, Secrets, SideSettings, SideStage, Toggle, WirePackets, packet,
};

#[test]
fn a_non_ip_frame_leaves_behind_earlier_packets() {
    let mut gateway = gateway(SideSettings::new(1_500, Position::Transit));
    let packet = |id| udp(4).id(id).payload([7; 100]).ethernet().bytes();
    let arp = arp();
    let left = push(&mut gateway, &[packet(1), arp.clone(), packet(2)]);
    assert_eq!(left, [packet(1), arp, packet(2)]);
}

#[test]
fn a_frame_of_any_length_is_received_in_any_offered_place() {
    let whole = Spec { ttl: 9, ..udp(4).id(3).noise(8_000) };
    let fragments = || whole.clone().ethernet().fragments(1_500);
    let others = [
        vec![0; 5],
        arp(),
        udp(6).noise(4_000).ethernet().bytes(),
        ip(4).id(3).part(1_480, [1; 2_960], true).ethernet().bytes(),
        [udp(4).id(9).payload([2; 18]).ethernet().bytes(), vec![0; 20]].concat(),
        vec![0xFF; 70_000],
    ];
    for (number, other) in others.iter().enumerate() {
        for at in 0..4 {
            let both = [PlacementMode::Never, PlacementMode::Always].map(|guessing| {
                let side = SideSettings { placement: guessing, ..reassembling() };
                let mut gateway = gateway(side);
                // The next packet looks like the previous one.
                push(&mut gateway, &Spec { id: 2, ..whole.clone() }.ethernet().fragments(1_500));
                let mut frames = fragments();
                frames.insert(at, other.clone());
                let left = push(&mut gateway, &frames);
                gateway.flush(Time::ZERO);
                let mut rest = drain(&mut gateway);
                rest.sort();
                (left, rest, gateway.ledger(0).received, gateway.output(0).pool.in_use_count())
            });
            assert!(both[0] == both[1], "frame {number} at {at}");
            assert_eq!(both[0].3, 0);
        }
    }
}

#[test]
fn a_stage_flushes_when_switched_off_and_others_continue() {
    let graceful = "10.2.0.0/16".parse().expect("it is a prefix");
    let policies = Prefixes::new(FragmentPolicy::Reassemble).with(graceful, FragmentPolicy::Merge);
    let side = SideSettings { memory: 1 << 20, ..SideSettings::new(9_000, Position::Transit) };
    let mut gateway = gateway(SideSettings { policies, coalesce: Some(Mode::Resize), ..side });
    let half = |to: [u8; 4]| udp(4).id(1).ip_flags(0).to(to).noise(4_000).ethernet().fragments(1_500).remove(0);
    let [for_host, on_the_direction] = [[10, 1, 0, 1], [10, 2, 0, 1]].map(half);
    assert!(push(&mut gateway, &[for_host, on_the_direction]).is_empty());
    assert_eq!(gateway.held(0).1, 2);
    gateway.switch(NOW, 0, SideStage::Reassemble, Toggle::Off);
    assert_eq!((drain(&mut gateway).len(), gateway.held(0).1), (1, 1), "the other stage holds its own");
    assert_eq!(gateway.ledger(0).event(Event::ReleasedAtEnd).packets, 1);
    let other = half([10, 1, 0, 1]);
    let other = [other];
    assert_eq!(push(&mut gateway, &other), other, "it passes");
    gateway.switch(NOW, 0, SideStage::Reassemble, Toggle::On);
    assert!(push(&mut gateway, &other).is_empty(), "it is held again");
    gateway.switch(NOW, 0, SideStage::Merge, Toggle::Off);
    assert_eq!((drain(&mut gateway).len(), gateway.held(0).1), (1, 1));
    gateway.check(0).unwrap();
    gateway.replace(NOW, &GatewaySettings::one(SideSettings::new(1_500, Position::Transit)), secrets());
    assert_eq!((drain(&mut gateway).len(), gateway.held(0).1), (1, 0), "nothing joins any more");
}

#[test]
#[should_panic(expected = "places are lent until what came to them is pushed")]
fn expiry_panics_while_places_are_offered() {
    let mut gateway = gateway(SideSettings { placement: PlacementMode::Always, ..reassembling() });
    push(&mut gateway, &udp(4).id(1).noise(8_000).ethernet().fragments(1_500)[..2]);
    assert!(gateway.places(0).0.is_some());
    gateway.expire(NOW + Duration::from_secs(60));
}

/// A frame without an IP packet.
fn arp() -> Vec<u8> {
    [&[0xFF; 6][..], &[2; 6], &[0x08, 0x06], &[1; 28]].concat()
}

fn reassembling() -> SideSettings {
    let policies = Prefixes::new(FragmentPolicy::Reassemble);
    SideSettings { policies, memory: 1 << 20, ..SideSettings::new(u16::MAX, Position::Transit) }
}

fn gateway(side: SideSettings) -> Gateway {
    Gateway::new(&GatewaySettings::one(side), secrets(), || Pool::new(8 << 20))
}

fn secrets() -> Secrets {
    Secrets::both(Secret::new(5))
}

/// Pushes frames as one batch, with payloads in the offered slots. Returns the frames that leave.
fn push(gateway: &mut Gateway, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut batch = Batch::default();
    let (mut places, pool) = gateway.places(0);
    for frame in frames {
        assert!(batch.receive(frame, LinkType::Ethernet, Ingress(0), places.as_mut(), pool), "the pool is large");
    }
    gateway.push(NOW, 0, &mut batch);
    drain(gateway)
}

fn drain(gateway: &mut Gateway) -> Vec<Vec<u8>> {
    let mut left = Vec::new();
    while let Some(direction) = gateway.next(0) {
        match direction {
            Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                let mut fragments = WirePackets::of(&packet);
                while let Some(fragment) = fragments.next() {
                    left.push([fragment.header, fragment.payload].concat());
                }
                gateway.recycle(0, packet);
            }
            Egress::PassThrough(raw, _) => {
                left.push(raw.frame().to_vec());
                gateway.output_mut(0).pool.give(raw.into_buffer());
            }
        }
    }
    left
}

const NOW: Time = Time::ZERO;
