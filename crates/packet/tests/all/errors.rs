//! Packets that cannot be forwarded -> ICMP errors: byte for byte the errors of etherparse, and no error where the
//! RFCs forbid it.

use crate::frames::*;
use etherparse::icmpv6::{ParameterProblemCode, ParameterProblemHeader};
use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv6Header, icmpv4, icmpv6,
};
use std::net::IpAddr;
use wideload_packet::icmp::{IcmpError, error};
use wideload_packet::{Frame, Ingress, LinkType, Packet, Pool};

// R011, R021, R035
#[test]
fn version_4_errors_are_those_of_etherparse_and_at_most_576_bytes() {
    let mut pool = Pool::new(1 << 20);
    for ip in headers().into_iter().filter(|ip| ip.version() == 4) {
        for len in [0, 1, 8, 499, 500, 501, 519, 520, 521, 540, 1_472, 9_000] {
            let bytes = packet(ip.clone(), Transport::Udp, &noise(len));
            let about = read(&bytes, LinkType::Ip, &mut pool);
            for mtu in [68, 576, 1_500, 65_535] {
                let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded {
                    next_hop_mtu: mtu,
                });
                check_v4(IcmpError::TooBig { mtu }, kind, &about, &mut pool);
            }
            let kind = Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::FragmentReassemblyTimeExceeded);
            check_v4(IcmpError::ReassemblyTime, kind, &about, &mut pool);
            for icmp_error in [IcmpError::BadField { pointer: 4 }, IcmpError::HeadersCut] {
                assert!(error(icmp_error, &about, ROUTER_V4.into(), &mut pool).is_none(), "version 4 has none");
            }
            pool.give(about.into_buffer());
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

// R046, R048, R083, R089, R090
#[test]
fn version_6_errors_are_those_of_etherparse_and_at_most_1280_bytes() {
    let mut pool = Pool::new(1 << 20);
    for ip in headers().into_iter().filter(|ip| ip.version() == 6) {
        for len in [0, 1, 1_100, 1_183, 1_184, 1_185, 1_186, 1_452, 9_000] {
            let bytes = packet(ip.clone(), Transport::Udp, &noise(len));
            let about = read(&bytes, LinkType::Ip, &mut pool);
            for mtu in [1_280, 1_500, 65_535] {
                let kind = Icmpv6Type::PacketTooBig { mtu: mtu.into() };
                check_v6(IcmpError::TooBig { mtu }, kind, &about, &mut pool);
            }
            let kind = Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::FragmentReassemblyTimeExceeded);
            check_v6(IcmpError::ReassemblyTime, kind, &about, &mut pool);
            for pointer in [4, 42, 66] {
                let code = ParameterProblemCode::ErroneousHeaderField;
                let kind = Icmpv6Type::ParameterProblem(ParameterProblemHeader { code, pointer });
                check_v6(IcmpError::BadField { pointer }, kind, &about, &mut pool);
            }
            let code = ParameterProblemCode::Ipv6FirstFragmentIncompleteHeaderChain;
            let kind = Icmpv6Type::ParameterProblem(ParameterProblemHeader { code, pointer: 0 });
            check_v6(IcmpError::HeadersCut, kind, &about, &mut pool);
            pool.give(about.into_buffer());
        }
    }
    assert_eq!(pool.in_use_count(), 0);
}

#[test]
fn an_icmp_error_returns_to_station_and_vlan() {
    let mut pool = Pool::new(1 << 20);
    for tag_count in 0..=2 {
        for ip in [headers()[0].clone(), headers()[16].clone()] {
            let source = if ip.version() == 4 { ROUTER_V4.into() } else { ROUTER_V6.into() };
            let bytes = frame(tag_count, ip, Transport::Udp, &noise(100));
            let about = read(&bytes, LinkType::Ethernet, &mut pool);
            let error = error(IcmpError::TooBig { mtu: 1_280 }, &about, source, &mut pool).unwrap();
            assert_eq!(error.link()[..12], [STATIONS[0], STATIONS[1]].concat(), "to whom it came from");
            assert_eq!(error.link()[12..], about.link()[12..]);
            assert_eq!((error.tags(), error.ingress()), (about.tags(), about.ingress()));
            assert!(!error.is_as_received());
            pool.give(error.into_buffer());
            pool.give(about.into_buffer());
        }
    }
}

// R020
#[test]
fn no_error_answers_a_version_4_packet_that_must_not_be_answered() {
    let mut pool = Pool::new(1 << 20);
    let from = |source: [u8; 4], destination: [u8; 4]| {
        packet(ip(4).from(source).to(destination), Transport::Udp, &[0; 64])
    };
    let icmp = |kind: u8| {
        let mut bytes = packet(headers()[0].clone(), Transport::Echo, &[0; 64]);
        bytes[20] = kind;
        bytes
    };
    let table: Vec<(&str, Vec<u8>, bool)> = vec![
        ("plain", from(HOST_V4, PEER_V4), true),
        ("echo request", icmp(8), true),
        ("echo reply", icmp(0), true),
        ("time stamp", icmp(13), true),
        ("unreachable", icmp(3), false),
        ("source quench", icmp(4), false),
        ("redirect", icmp(5), false),
        ("time exceeded", icmp(11), false),
        ("parameter problem", icmp(12), false),
        ("a type that nobody knows", icmp(200), false),
        ("first fragment", fragment_v4(0, true, &[0; 64]), true),
        ("later fragment", fragment_v4(8, true, &[0; 64]), false),
        ("last fragment", fragment_v4(8, false, &[0; 64]), false),
        ("to multicast", from(HOST_V4, [224, 0, 0, 251]), false),
        ("to broadcast", from(HOST_V4, [255; 4]), false),
        ("from nobody", from([0; 4], PEER_V4), false),
        ("from loopback", from([127, 0, 0, 1], PEER_V4), false),
        ("from multicast", from([239, 1, 2, 3], PEER_V4), false),
        ("from broadcast", from([255; 4], PEER_V4), false),
        ("from a reserved address", from([240, 0, 0, 1], PEER_V4), false),
    ];
    for (name, bytes, answered) in table {
        let about = read(&bytes, LinkType::Ip, &mut pool);
        for icmp_error in [IcmpError::TooBig { mtu: 68 }, IcmpError::ReassemblyTime] {
            let error = error(icmp_error, &about, ROUTER_V4.into(), &mut pool);
            assert_eq!(error.is_some(), answered, "{name}: {icmp_error:?}");
            error.into_iter().for_each(|error| pool.give(error.into_buffer()));
        }
        assert!(error(IcmpError::TooBig { mtu: 68 }, &about, ROUTER_V6.into(), &mut pool).is_none());
        pool.give(about.into_buffer());
    }
}

// R047
#[test]
fn no_error_answers_a_version_6_packet_that_must_not_be_answered() {
    let mut pool = Pool::new(1 << 20);
    let from = |source: [u8; 16], destination: [u8; 16]| {
        packet(ip(6).from(source).to(destination), Transport::Udp, &[0; 64])
    };
    let icmp = |kind: u8| {
        let mut bytes = packet(headers()[16].clone(), Transport::Echo, &[0; 64]);
        bytes[40] = kind;
        bytes
    };
    let many = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    // Whether Packet Too Big is sent; errors about a fragment; other errors.
    let table: Vec<(&str, Vec<u8>, [bool; 3])> = vec![
        ("plain", from(HOST_V6, PEER_V6), [true; 3]),
        ("echo request", icmp(128), [true; 3]),
        ("multicast listener report", icmp(143), [true; 3]),
        ("unreachable", icmp(1), [false; 3]),
        ("packet too big", icmp(2), [false; 3]),
        ("an error that nobody knows", icmp(127), [false; 3]),
        ("redirect", icmp(137), [false; 3]),
        ("first fragment", fragment_v6(0, true, &[0; 64]), [true; 3]),
        ("later fragment", fragment_v6(8, true, &[0; 64]), [true; 3]),
        ("to multicast", from(HOST_V6, many), [true, false, false]),
        ("from nobody", from([0; 16], PEER_V6), [false; 3]),
        ("from multicast", from(many, PEER_V6), [false; 3]),
    ];
    for (name, bytes, answered) in table {
        let about = read(&bytes, LinkType::Ip, &mut pool);
        let icmp_errors =
            [IcmpError::TooBig { mtu: 1_280 }, IcmpError::BadField { pointer: 4 }, IcmpError::ReassemblyTime];
        for (icmp_error, answered) in icmp_errors.into_iter().zip(answered) {
            let error = error(icmp_error, &about, ROUTER_V6.into(), &mut pool);
            assert_eq!(error.is_some(), answered, "{name}: {icmp_error:?}");
            error.into_iter().for_each(|error| pool.give(error.into_buffer()));
        }
        pool.give(about.into_buffer());
    }
}

// R020, R047: no error about a packet that was sent to several stations, whatever its IP header states.
#[test]
fn no_error_answers_a_frame_for_many_stations() {
    let mut pool = Pool::new(1 << 20);
    for (version, too_big) in [(0, false), (16, true)] {
        let packet = packet(headers()[version].clone(), Transport::Udp, &[0; 64]);
        let ether_type = if version == 0 { [8, 0] } else { [0x86, 0xDD] };
        let source = if version == 0 { ROUTER_V4.into() } else { ROUTER_V6.into() };
        let ethernet = |to: [u8; 6]| [&to[..], &STATIONS[0], &ether_type, &packet].concat();
        let cooked = |kind: u8| [&[0, kind][..], &[0; 12], &ether_type, &packet].concat();
        let cooked2 = |kind: u8| [&ether_type[..], &[0; 8], &[kind], &[0; 9], &packet].concat();
        let table: [(LinkType, Vec<u8>, bool); 9] = [
            (LinkType::Ethernet, ethernet(STATIONS[1]), true),
            (LinkType::Ethernet, ethernet([0xFF; 6]), false),
            (LinkType::Ethernet, ethernet([0x33, 0x33, 0, 0, 0, 1]), false),
            (LinkType::Cooked, cooked(0), true),
            (LinkType::Cooked, cooked(1), false),
            (LinkType::Cooked, cooked(2), false),
            (LinkType::Cooked2, cooked2(0), true),
            (LinkType::Cooked2, cooked2(1), false),
            (LinkType::Cooked2, cooked2(2), false),
        ];
        for (link_type, frame, answered) in table {
            let about = read(&frame, link_type, &mut pool);
            for icmp_error in [IcmpError::TooBig { mtu: 1_280 }, IcmpError::ReassemblyTime] {
                // Packet Too Big is exempt (RFC 4443 section 2.4(e.3)).
                let exempt = too_big && matches!(icmp_error, IcmpError::TooBig { .. });
                let error = error(icmp_error, &about, source, &mut pool);
                assert_eq!(error.is_some(), answered || exempt, "{link_type:?}: {icmp_error:?}");
                error.into_iter().for_each(|error| pool.give(error.into_buffer()));
            }
            pool.give(about.into_buffer());
        }
    }
}

#[test]
fn without_a_buffer_there_is_no_error() {
    let bytes = packet(headers()[0].clone(), Transport::Udp, &[0; 64]);
    let mut pool = Pool::new(2_500);
    let about = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap();
    assert!(error(IcmpError::TooBig { mtu: 68 }, &about, ROUTER_V4.into(), &mut pool).is_none());
    assert_eq!(pool.in_use_count(), 1);
    pool.give(about.into_buffer());
}

// Helpers.

#[track_caller]
fn check_v4(icmp_error: IcmpError, kind: Icmpv4Type, about: &Packet, pool: &mut Pool) {
    let quote = &about.bytes()[..about.len().min(576 - 28)];
    let icmp = Icmpv4Header::with_checksum(kind, quote);
    let mut ip = Ipv4Header::new(0, 64, IpNumber::ICMP, ROUTER_V4, HOST_V4).unwrap();
    ip.dscp = 48.try_into().unwrap();
    ip.dont_fragment = true;
    ip.set_payload_len(8 + quote.len()).unwrap();
    ip.header_checksum = ip.calc_header_checksum();
    let expected = [&ip.to_bytes()[..], &icmp.to_bytes(), quote].concat();
    let error = error(icmp_error, about, ROUTER_V4.into(), pool).unwrap();
    assert!(expected.len() <= 576 && error.bytes() == expected, "{icmp_error:?} about {} bytes", about.len());
    pool.give(error.into_buffer());
}

#[track_caller]
fn check_v6(icmp_error: IcmpError, kind: Icmpv6Type, about: &Packet, pool: &mut Pool) {
    let quote = &about.bytes()[..about.len().min(1_280 - 48)];
    let icmp = Icmpv6Header::with_checksum(kind, ROUTER_V6, HOST_V6, quote).unwrap();
    let ip = Ipv6Header {
        traffic_class: 0,
        flow_label: Default::default(),
        payload_length: 8 + quote.len() as u16,
        next_header: IpNumber::IPV6_ICMP,
        source: ROUTER_V6,
        destination: HOST_V6,
        hop_limit: 64,
    };
    let expected = [&ip.to_bytes()[..], &icmp.to_bytes(), quote].concat();
    let error = error(icmp_error, about, IpAddr::from(ROUTER_V6), pool).unwrap();
    assert!(expected.len() <= 1_280 && error.bytes() == expected, "{icmp_error:?} about {} bytes", about.len());
    pool.give(error.into_buffer());
}

const ROUTER_V4: [u8; 4] = [203, 0, 113, 9];
const ROUTER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
