//! Packets -> their kinds of tunnel: every kind, near misses, and fragments.

use crate::frames::*;
use testkit::fields::AUTHENTICATION;
use testkit::{Summed, chain};
use wideload_packet::{LinkType, Pool, Tunnel};

#[test]
fn every_kind_is_recognised_behind_every_ip_header() {
    for ip in headers() {
        for example in examples() {
            assert_eq!(told(&packet(&ip, &example)), Some(example.tunnel), "{example:?} in {ip:?}");
        }
    }
}

#[test]
fn every_kind_is_recognised_behind_tags() {
    for example in examples() {
        for tags in [&[][..], &[0x81, 0, 0, 7], &[0x88, 0xA8, 0, 9, 0x81, 0, 0, 7]] {
            for (ip, ether_type) in [(&headers()[0], [8, 0]), (&headers()[16], [0x86, 0xDD])] {
                let frame = [&[2; 12][..], tags, &ether_type, &packet(ip, &example), &[0; 9]].concat();
                assert_eq!(told_on(&frame, LinkType::Ethernet), Some(example.tunnel), "{example:?}");
            }
        }
    }
}

#[test]
fn near_tunnels_are_not_recognised() {
    for (what, example) in near_misses() {
        for ip in [&headers()[0], &headers()[16]] {
            assert_eq!(told(&packet(ip, &example)), None, "{what}");
        }
    }
}

// The model: a message is detected only on the ports of its tunnel, except that nearly all messages on ESP's port
// are ESP.
#[test]
fn a_message_is_recognised_only_on_its_ports() {
    let known = [VXLAN, OLD_VXLAN, GENEVE, GTP, WIREGUARD, ESP, CLIENT];
    let mut pairs: Vec<_> = known.iter().flat_map(|one| known.map(|other| (*one, other))).collect();
    pairs.extend((0..=u16::MAX).flat_map(|port| [(port, CLIENT), (CLIENT, port)]));
    let mut pool = Pool::new(1 << 20);
    for Example { tunnel, ports, bytes, .. } in examples() {
        if ports.is_none() {
            continue;
        }
        let mut whole = fragment_v4(0, false, &bytes);
        for &(source, destination) in &pairs {
            let either = |port| source == port || destination == port;
            let fits = match tunnel {
                Tunnel::Vxlan => [VXLAN, OLD_VXLAN].contains(&destination),
                Tunnel::Geneve => destination == GENEVE,
                Tunnel::Gtp => either(GTP),
                Tunnel::WireGuard => either(WIREGUARD),
                _ => false,
            };
            let expected = if fits { Some(tunnel) } else { either(ESP).then_some(Tunnel::Ipsec) };
            whole[20..22].copy_from_slice(&source.to_be_bytes());
            whole[22..24].copy_from_slice(&destination.to_be_bytes());
            let packet = read(&whole, LinkType::Ip, &mut pool);
            assert_eq!(Tunnel::of(&packet), expected, "{tunnel:?} from {source} to {destination}");
            pool.give(packet.into_buffer());
        }
    }
}

#[test]
fn a_message_is_recognised_at_valid_lengths() {
    for mut example in examples() {
        let longest = example.bytes.clone();
        for len in 0..=longest.len() {
            example.bytes = longest[..len].to_vec();
            let cut = told(&fragment_of(&example, 0, false));
            // In IPv6, this is an atomic fragment.
            assert_eq!(told(&fragment_of_v6(&example, 0, false)), cut, "{example:?}");
            if example.ports.is_none() {
                assert_eq!(cut, Some(example.tunnel), "{example:?}");
                continue;
            }
            // The UDP header states more bytes than there are.
            assert_eq!(cut.is_some(), len == longest.len(), "{example:?}");
            let Some(message_len) = len.checked_sub(8) else { continue };
            example.bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            let fits = match (example.tunnel, longest[8]) {
                (Tunnel::WireGuard, 4) => message_len >= 32,
                (Tunnel::WireGuard, _) => len == longest.len(),
                _ => message_len >= 8,
            };
            let expected = fits.then_some(example.tunnel);
            assert_eq!(told(&fragment_of(&example, 0, false)), expected, "{example:?}");
        }
    }
}

#[test]
fn a_first_fragment_is_recognised_by_its_udp_length() {
    for mut example in examples() {
        let whole = example.bytes.clone();
        for len in 0..=whole.len() {
            example.bytes = whole[..len].to_vec();
            let fits = match example.tunnel {
                _ if example.ports.is_none() => true,
                Tunnel::WireGuard => len >= 8 + 4,
                _ => len >= 8 + 8,
            };
            for packet in [fragment_of(&example, 0, true), fragment_of_v6(&example, 0, true)] {
                assert_eq!(told(&packet), fits.then_some(example.tunnel), "{len} bytes of {:?}", example.tunnel);
            }
        }
    }
    // A handshake whose UDP length is one byte too long is not detected, even in a first fragment.
    for mut example in examples().into_iter().filter(|example| example.tunnel == Tunnel::WireGuard) {
        let is_handshake = example.bytes[8] != 4;
        let len = example.bytes.len() as u16 + 1;
        example.bytes[4..6].copy_from_slice(&len.to_be_bytes());
        assert_eq!(told(&fragment_of(&example, 0, true)).is_none(), is_handshake, "{example:?}");
    }
}

#[test]
fn a_later_fragment_is_recognised_by_protocol() {
    for example in examples() {
        // The first bytes of a later fragment look like a UDP header, but are payload.
        let expected = example.ports.is_none().then_some(example.tunnel);
        for (offset, more) in [(8, true), (8, false), (1_480, true), (65_000, false)] {
            for packet in [fragment_of(&example, offset, more), fragment_of_v6(&example, offset, more)] {
                assert_eq!(told(&packet), expected, "{example:?} at {offset}");
            }
        }
    }
    // If IPv6 options precede the tunnel's header, later fragments name the options.
    let options = Example { protocol: 60, ..over_ip(Tunnel::Gre, 47) };
    assert_eq!(told(&fragment_of_v6(&options, 8, false)), None);
}

#[test]
fn a_length_that_an_offloading_sender_left_out_is_that_of_the_packet() {
    for example in examples().into_iter().filter(|example| example.ports.is_some() && example.bytes.len() > 60) {
        let mut whole = fragment_of(&example, 0, false);
        whole[24..26].fill(0);
        assert_eq!(told(&whole), None, "only the UDP length is missing: {example:?}");
        whole[2..4].fill(0);
        seal_ip(&mut whole);
        assert_eq!(told(&whole), Some(example.tunnel), "{example:?}");
    }
}

#[test]
fn bytes_behind_the_udp_datagram_are_ignored() {
    for mut example in examples().into_iter().filter(|example| example.ports.is_some()) {
        example.bytes.extend([0xEE; 5]);
        assert_eq!(told(&fragment_of(&example, 0, false)), Some(example.tunnel), "{example:?}");
        for claimed_len in 0..8u8 {
            example.bytes[4..6].copy_from_slice(&[0, claimed_len]);
            assert_eq!(told(&fragment_of(&example, 0, false)), None, "{example:?}");
            assert_eq!(told(&fragment_of(&example, 0, true)), None, "{example:?}");
        }
    }
}

#[test]
fn tunnels_behind_ah_are_recognised_in_ipv6_only() {
    let signed = extension(AUTHENTICATION, 24);
    let in_v6 = Spec { extensions: vec![signed.clone()], ..ip(6) };
    for example in examples() {
        assert_eq!(told(&packet(&in_v6, &example)), Some(example.tunnel), "{example:?}");
        let (protocol, front) = chain(std::slice::from_ref(&signed), example.protocol);
        let in_v4 = Example { protocol, bytes: [front, example.bytes.clone()].concat(), ..example };
        assert_eq!(told(&packet(&ip(4), &in_v4)), None, "{in_v4:?}");
    }
}

#[test]
fn noise_on_the_port_of_wireguard_is_not_wireguard() {
    let noise = noise(20_000);
    for len in [4, 32, 64, 92, 148, 1_452] {
        for message in noise.windows(len) {
            let bytes = in_udp(WIREGUARD, WIREGUARD, message);
            assert_eq!(told(&fragment_v4(0, false, &bytes)), None, "{message:?}");
        }
    }
}

// Helpers.

/// The content of a packet behind its IP headers.
#[derive(Clone, Debug)]
struct Example {
    tunnel: Tunnel,
    protocol: u8,
    /// Source and destination port; `None` for a tunnel with an IP protocol of its own.
    ports: Option<(u16, u16)>,
    bytes: Vec<u8>,
}

/// Returns at least one example of each kind of tunnel.
fn examples() -> Vec<Example> {
    let mut examples = vec![
        over_ip(Tunnel::Gre, 47),
        over_ip(Tunnel::IpInIp, 4),
        over_ip(Tunnel::IpInIp, 41),
        over_ip(Tunnel::Ipsec, 50),
    ];
    let mut add = |tunnel, source, destination, start: &[u8], len: usize| {
        examples.push(over_udp(tunnel, source, destination, start, len));
    };
    add(Tunnel::Vxlan, CLIENT, VXLAN, &[0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0], 80);
    add(Tunnel::Vxlan, CLIENT, OLD_VXLAN, &[0x08, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0], 60);
    // With a group and its policy, as Linux writes it.
    add(Tunnel::Vxlan, CLIENT, VXLAN, &[0x88, 0x48, 0xAB, 0xCD, 0, 0, 1, 0], 50);
    add(Tunnel::Vxlan, CLIENT, VXLAN, &[0x88, 0, 0, 1, 0, 0, 1, 0], 50);
    add(Tunnel::Geneve, CLIENT, GENEVE, &[0, 0, 0x65, 0x58, 0, 0, 1, 0], 80);
    add(Tunnel::Geneve, CLIENT, GENEVE, &[0x3F, 0xC0, 0x08, 0x00, 0, 0, 1, 0xFF], 300);
    add(Tunnel::Geneve, CLIENT, GENEVE, &[0x01, 0x40, 0x86, 0xDD, 0, 0, 1, 0], 80);
    add(Tunnel::Gtp, CLIENT, GTP, &[0x30, 255, 0, 40, 0, 0, 0, 1], 48);
    add(Tunnel::Gtp, GTP, CLIENT, &[0x34, 255, 0, 92, 0, 0, 0, 1, 0, 0, 0, 0x85], 100);
    add(Tunnel::WireGuard, CLIENT, WIREGUARD, &[1, 0, 0, 0], 148);
    add(Tunnel::WireGuard, WIREGUARD, CLIENT, &[2, 0, 0, 0], 92);
    add(Tunnel::WireGuard, WIREGUARD, WIREGUARD, &[3, 0, 0, 0], 64);
    add(Tunnel::WireGuard, CLIENT, WIREGUARD, &[4, 0, 0, 0], 32);
    // The longest message of a tunnel with an MTU of 1,420.
    add(Tunnel::WireGuard, WIREGUARD, CLIENT, &[4, 0, 0, 0], 1_452);
    add(Tunnel::Ipsec, ESP, ESP, &[0xC0, 0xDE, 0xCA, 0xFE, 0, 0, 0, 1], 100);
    add(Tunnel::Ipsec, CLIENT, ESP, &[0, 0, 0, 1, 0, 0, 0, 0], 40);
    add(Tunnel::Ipsec, ESP, CLIENT, &[1, 0, 0, 0, 0, 0, 0, 0], 40);
    examples
}

/// Returns messages on a tunnel's port that are not a tunnel, or are a form of tunnel that is not detected.
fn near_misses() -> Vec<(&'static str, Example)> {
    let mut all = Vec::new();
    let mut add = |what, source, destination, start: &[u8], len| {
        // The tunnel `Gre` is a placeholder: no tunnel is expected.
        all.push((what, over_udp(Tunnel::Gre, source, destination, start, len)));
    };
    add("VXLAN without the flag", CLIENT, VXLAN, &[0, 0, 0, 0, 0, 0, 1, 0], 80);
    add("VXLAN with another flag, on the old port", CLIENT, OLD_VXLAN, &[0x04, 0, 0, 0, 0, 0, 1, 0], 80);
    add("VXLAN with a next protocol", CLIENT, VXLAN, &[0x0C, 0, 0, 3, 0, 0, 1, 0], 80);
    add("VXLAN with a version", CLIENT, VXLAN, &[0x18, 0, 0, 0, 0, 0, 1, 0], 80);
    for at in 1..4 {
        let mut start = [0x08, 0, 0, 0, 0, 0, 1, 0];
        start[at] = 1;
        add("VXLAN with a reserved bit", CLIENT, VXLAN, &start, 80);
    }
    add("VXLAN with a last reserved bit", CLIENT, VXLAN, &[0x08, 0, 0, 0, 0, 0, 1, 1], 80);
    add("a group without the flag", CLIENT, VXLAN, &[0x80, 0, 0, 1, 0, 0, 1, 0], 80);
    add("a group with a reserved bit", CLIENT, VXLAN, &[0x88, 0x80, 0, 1, 0, 0, 1, 0], 80);
    add("a group with a last reserved bit", CLIENT, VXLAN, &[0x88, 0, 0, 1, 0, 0, 1, 1], 80);
    add("VXLAN on its way back", VXLAN, CLIENT, &[0x08, 0, 0, 0, 0, 0, 1, 0], 80);
    add("an answer of DNS to 4789", 53, VXLAN, &[0x08, 0x15, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], 60);
    add("a question of DNS to 4789", CLIENT, VXLAN, &[0x08, 0x00, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0], 60);
    add("Geneve of version 1", CLIENT, GENEVE, &[0x40, 0, 0x65, 0x58, 0, 0, 1, 0], 80);
    add("Geneve of version 2", CLIENT, GENEVE, &[0x80, 0, 0x65, 0x58, 0, 0, 1, 0], 80);
    add("ARP in Geneve", CLIENT, GENEVE, &[0, 0, 0x08, 0x06, 0, 0, 1, 0], 80);
    add("MPLS in Geneve", CLIENT, GENEVE, &[0, 0, 0x88, 0x47, 0, 0, 1, 0], 80);
    add("Geneve on its way back", GENEVE, CLIENT, &[0, 0, 0x65, 0x58, 0, 0, 1, 0], 80);
    add("an echo of GTP", CLIENT, GTP, &[0x32, 1, 0, 4, 0, 0, 0, 0], 12);
    add("an error of GTP", GTP, GTP, &[0x32, 26, 0, 4, 0, 0, 0, 0], 12);
    add("GTP of version 2", CLIENT, GTP, &[0x48, 255, 0, 40, 0, 0, 0, 1], 48);
    add("GTP'", CLIENT, GTP, &[0x20, 255, 0, 40, 0, 0, 0, 1], 48);
    add("GTP of version 0", CLIENT, GTP, &[0x10, 255, 0, 40, 0, 0, 0, 1], 48);
    for (kind, lens) in
        [(0, [148, 32]), (1, [147, 149]), (2, [148, 93]), (3, [92, 65]), (4, [16, 31]), (5, [64, 32])]
    {
        for len in lens {
            add("WireGuard of another length", CLIENT, WIREGUARD, &[kind, 0, 0, 0], len);
        }
    }
    for at in 1..4 {
        let mut start = [4, 0, 0, 0];
        start[at] = 1;
        add("WireGuard with a reserved byte", WIREGUARD, CLIENT, &start, 96);
    }
    add("DNS to WireGuard's port", 53, WIREGUARD, &[4, 0, 0x81, 0x80, 0, 1, 0, 1], 148);
    add("QUIC to WireGuard's port", 443, WIREGUARD, &[0xC3, 0, 0, 0, 1], 1_200);
    add("key exchange", ESP, ESP, &[0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44], 200);
    add("a keepalive", ESP, ESP, &[0xFF], 1);
    add("nothing on ESP's port", CLIENT, ESP, &[], 0);
    add("too little for ESP", CLIENT, ESP, &[0, 0, 1, 0, 0, 0, 1], 7);
    add("DNS", 53, CLIENT, &[0x08, 0, 0, 0, 0, 0, 1, 0], 60);
    for protocol in [1, 2, 3, 5, 6, 33, 40, 42, 46, 48, 49, 58, 89, 103, 115, 132, 136, 255] {
        all.push(("another protocol", over_ip(Tunnel::Gre, protocol)));
    }
    // A tunnel's port in other protocols that have ports.
    for protocol in [6, 33, 132, 136] {
        let example = over_udp(Tunnel::Vxlan, CLIENT, VXLAN, &[0x08, 0, 0, 0, 0, 0, 1, 0], 80);
        all.push(("VXLAN's port elsewhere", Example { protocol, ..example }));
    }
    all
}

fn over_ip(tunnel: Tunnel, protocol: u8) -> Example {
    Example { tunnel, protocol, ports: None, bytes: noise(48) }
}

/// Returns a message of `len` bytes that starts with the bytes `start` and continues with noise.
fn over_udp(tunnel: Tunnel, source: u16, destination: u16, start: &[u8], len: usize) -> Example {
    let message = [start, &noise(len)[start.len()..]].concat();
    let bytes = in_udp(source, destination, &message);
    Example { tunnel, protocol: 17, ports: Some((source, destination)), bytes }
}

fn in_udp(source: u16, destination: u16, message: &[u8]) -> Vec<u8> {
    udp(4).ports(source, destination).sum(Summed::None).payload(message).upper()
}

fn packet(ip: &Spec, example: &Example) -> Vec<u8> {
    Spec { protocol: example.protocol, ..ip.clone() }.payload(&example.bytes).bytes()
}

/// Returns a fragment with the example's bytes as payload; an unfragmented packet for offset 0 without MF.
fn fragment_of(example: &Example, offset: usize, more: bool) -> Vec<u8> {
    Spec { protocol: example.protocol, ..ip(4).part(offset, &example.bytes, more) }.bytes()
}

fn fragment_of_v6(example: &Example, offset: usize, more: bool) -> Vec<u8> {
    Spec { protocol: example.protocol, ..ip(6).part(offset, &example.bytes, more) }.bytes()
}

#[track_caller]
fn told(packet: &[u8]) -> Option<Tunnel> {
    told_on(packet, LinkType::Ip)
}

#[track_caller]
fn told_on(frame: &[u8], link_type: LinkType) -> Option<Tunnel> {
    Tunnel::of(&read(frame, link_type, &mut Pool::new(1 << 20)))
}

/// A port that no tunnel uses.
const CLIENT: u16 = 40_000;
const VXLAN: u16 = 4_789;
const OLD_VXLAN: u16 = 8_472;
const GENEVE: u16 = 6_081;
const GTP: u16 = 2_152;
const WIREGUARD: u16 = 51_820;
const ESP: u16 = 4_500;
