//! The exact edges of settings, limits and lengths.

use std::time::Duration;
use testkit::fields::*;
use testkit::{Spec, host, tcp, udp};
use wideload_engine::packet::{Frame, Gso, Identifications, Ingress, LinkType, Maker, Packet, Pool, Time};
use wideload_engine::{
    Aggregation, Batch, Connections, Egress, Event, FLOW_CHARGE, FragmentPolicy, Gateway, GatewayRole,
    GatewaySettings, Identifiers, LIFETIME, Output, Position, Prefixes, Reason, Role, SAFE_LEN, Secret, Secrets,
    Side, SideSettings, SideStage, Sizing, Toward, WirePackets,
};

const NARROW: usize = 0;

fn gateway(settings: &GatewaySettings) -> Gateway {
    Gateway::new(settings, Secrets::both(Secret::new(7)), || Pool::new(8 << 20))
}

fn push(gateway: &mut Gateway, now: Time, direction: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut batch = Batch::default();
    let (_, pool) = gateway.places(direction);
    assert!(batch.receive(bytes, LinkType::Ip, Ingress(direction as u32), None, pool));
    gateway.push(now, direction, &mut batch);
    drain(gateway, direction)
}

fn drain(gateway: &mut Gateway, direction: usize) -> Vec<Vec<u8>> {
    let mut left = Vec::new();
    while let Some(egress) = gateway.next(direction) {
        let (Egress::Forward(packet) | Egress::IcmpReply(packet)) = egress else { panic!("an IP packet leaves") };
        let mut packets = WirePackets::of(&packet);
        while let Some(packet) = packets.next() {
            left.push([packet.header, packet.payload].concat());
        }
        gateway.recycle(direction, packet);
    }
    left
}

fn packet(bytes: &[u8], pool: &mut Pool) -> Packet {
    Frame::copy(bytes, LinkType::Ip, Ingress(0), pool).unwrap()
}

#[test]
fn each_fragment_policy_belongs_to_one_stage() {
    use FragmentPolicy::{Merge, Off, Reassemble, ReassembleHop};
    let of = |usual, other: Option<FragmentPolicy>| {
        let policies = Prefixes::new(usual);
        let policies = match other {
            Some(other) => policies.with("192.0.2.0/24".parse().unwrap(), other),
            None => policies,
        };
        SideSettings { policies, ..SideSettings::new(1_500, Position::Transit) }
    };
    for (usual, other, reassembles, merges) in [
        (Off, None, false, false),
        (Reassemble, None, true, false),
        (ReassembleHop, None, false, true),
        (Merge, None, false, true),
        (Off, Some(Reassemble), true, false),
        (Off, Some(ReassembleHop), false, true),
        // One reassembler serves both policies.
        (Reassemble, Some(ReassembleHop), true, false),
        (ReassembleHop, Some(Reassemble), true, false),
        (Reassemble, Some(Merge), true, true),
    ] {
        let settings = of(usual, other);
        let what = format!("{usual:?}, {other:?}");
        assert_eq!(settings.has(SideStage::Reassemble), reassembles, "{what}");
        assert_eq!(settings.has(SideStage::Merge), merges, "{what}");
        for policy in [Off, Reassemble, ReassembleHop, Merge] {
            assert_eq!(
                settings.uses_policy(policy),
                policy == usual || Some(policy) == other,
                "{what}: {policy:?}"
            );
        }
        assert!(settings.has(SideStage::Segment) && !settings.has(SideStage::Coalesce));
    }
}

#[test]
fn the_tables_of_a_border_share_its_limit() {
    for flow_count in [64, 4_096] {
        let settings = GatewaySettings { flow_count, ..GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500) };
        let limit = flow_count * FLOW_CHARGE;
        let gateway = gateway(&settings);
        assert_eq!(gateway.connections().unwrap().limit(), limit + limit / 4 + limit / 4);
    }
}

#[test]
fn a_packet_of_the_safe_length_is_not_counted_as_limited() {
    for (len, count) in [(SAFE_LEN, 0), (SAFE_LEN + 1, 1)] {
        let mut gateway = gateway(&GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500));
        let segment = tcp(4).from(host(4, 1)).to(host(4, 2)).flags(ACK).noise(usize::from(len) - 40).bytes();
        assert_eq!(segment.len(), usize::from(len));
        push(&mut gateway, Time::ZERO, NARROW, &segment);
        assert_eq!(gateway.ledger(NARROW).event(Event::MssUnknown).packets, count, "{len} bytes");
    }
}

#[test]
fn a_gateway_that_hands_over_holds_nothing_afterwards() {
    let mut settings = GatewaySettings::usual(GatewayRole::WideInterface, 9_000, 1_500);
    settings.sides[1].policies = Prefixes::new(FragmentPolicy::Reassemble);
    let mut gateway = gateway(&settings);
    let fragments = udp(4).noise(4_000).fragments(1_500);
    assert!(push(&mut gateway, Time::ZERO, 1, &fragments[0]).is_empty());
    assert_eq!(gateway.held(1).0.packets, 1);
    gateway.hand_over(Time::ZERO, 1);
    assert_eq!((gateway.held(1).0.packets, gateway.output(1).queued_count()), (0, 1));
    assert_eq!(drain(&mut gateway, 1).len(), 1);
    gateway.check(1).unwrap();
}

#[test]
fn datagrams_of_a_gso_packet_without_memory_are_counted() {
    for link_type in [LinkType::Ip, LinkType::Ethernet] {
        // The packet takes the only buffer.
        let spec = udp(4).noise(6_000);
        let spec = if link_type == LinkType::Ethernet { spec.ethernet() } else { spec };
        let mut out = Output::new(Pool::new(48 << 10), None);
        let mut packet = Frame::copy(&spec.bytes(), link_type, Ingress(0), &mut out.pool).unwrap();
        packet.gso = Some(Gso { segment_len: 3_000, ids: Identifications::Rise, maker: Maker::Sender });
        let mut others = Vec::new();
        while let Some(buffer) = out.pool.allocate(100) {
            others.push(buffer);
        }
        let mut side = Side::of(Aggregation::default(), Sizing::new(1_500, source()));
        side.push(Time::ZERO, packet, &mut Connections::new(Secret::new(7)), &mut out);
        others.into_iter().for_each(|buffer| out.pool.give(buffer));
        let lost = out.ledger.retired(Reason::NoBuffer);
        // Two datagrams, each with a UDP header.
        assert_eq!((lost.packets, lost.bytes), (2, 2 * 8 + 6_000));
        side.check(&out).unwrap();
    }
}

#[test]
fn a_hosts_gso_packet_with_a_signature_keeps_its_segments() {
    let signature = [vec![19, 18], vec![7; 16], vec![1, 1]].concat();
    for (options, segments) in [(signature, false), (vec![1; 20], true)] {
        let spec = tcp(4).from(host(4, 1)).to(host(4, 2)).flags(ACK).options(options).noise(6_000);
        let mut side = Side::of(Aggregation::default(), Sizing::new(1_500, source()));
        let mut out = Output::new(Pool::new(1 << 20), None);
        let mut packet = packet(&spec.bytes(), &mut out.pool);
        packet.gso = Some(Gso { segment_len: 3_000, ids: Identifications::Rise, maker: Maker::Sender });
        side.push(Time::ZERO, packet, &mut Connections::new(Secret::new(7)), &mut out);
        let resized = out.ledger.event(Event::Resized).packets > 0;
        assert_eq!(resized, segments);
        // The segments that are signed leave in IP fragments.
        let mut is_fragmented = false;
        while let Some(packet) = out.next() {
            is_fragmented |= packet.fragmentation.is_some();
            out.recycle(packet);
        }
        assert_eq!(is_fragmented, !segments);
    }
}

#[test]
fn a_repeated_syn_of_a_live_connection_opens_nothing() {
    let mut gateway = gateway(&GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500));
    let mss = |mss: u16| [vec![2, 4], mss.to_be_bytes().to_vec()].concat();
    let from_wide = || tcp(4).from(host(4, 1)).to(host(4, 2)).ports(40_000, 80);
    let from_narrow = || tcp(4).from(host(4, 2)).to(host(4, 1)).ports(80, 40_000);
    let syn = Spec { seq: 0, flags: SYN, options: mss(8_960), ..from_wide() }.bytes();
    let ends = [(host(4, 1).into(), 40_000), (host(4, 2).into(), 80)];
    let now = Time::ZERO + Duration::from_millis(1);
    push(&mut gateway, now, NARROW, &syn);
    push(
        &mut gateway,
        now,
        1,
        &Spec { seq: 0, ack: 1, flags: SYN | ACK, options: mss(1_460), ..from_narrow() }.bytes(),
    );
    push(&mut gateway, now, NARROW, &Spec { seq: 1, ack: 1, flags: ACK, ..from_wide() }.bytes());
    let limit = |gateway: &Gateway| gateway.connections().unwrap().limits(ends, Toward::Narrow).unwrap()[0];
    assert!(limit(&gateway).may_grow);
    // A late copy of the SYN, then the end of the connection.
    push(&mut gateway, now, NARROW, &syn);
    push(&mut gateway, now, NARROW, &Spec { seq: 1, ack: 1, flags: FIN | ACK, ..from_wide() }.bytes());
    assert_eq!((limit(&gateway).len_max, limit(&gateway).may_grow), (1_500, true));
}

fn source() -> Role {
    Role::Source(Identifiers::new(Secret::new(5), LIFETIME))
}
