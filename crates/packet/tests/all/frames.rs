//! Frames of every kind: options, chains, tags and transports in all combinations.

use testkit::fields::{DESTINATION_OPTIONS, DF, HOP_BY_HOP, PSH, ROUTING, UDP};
pub use testkit::{HOST_V4, HOST_V6, PEER_V4, PEER_V6, Spec, extension, icmp, ip, seal_ip, tcp, udp};
use wideload_packet::{Frame, Ingress, LinkType, Packet, Pool};

/// The content of a packet behind its IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
    Echo,
}

pub const TRANSPORTS: [Transport; 3] = [Transport::Udp, Transport::Tcp, Transport::Echo];
pub const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Ethernet frames of every kind of header, each with this payload.
pub fn frames(payload: &[u8]) -> Vec<Vec<u8>> {
    let with_tags = |tag_count| {
        let one = move |ip: Spec| TRANSPORTS.map(|transport| frame(tag_count, ip.clone(), transport, payload));
        headers().into_iter().flat_map(one)
    };
    (0..=2).flat_map(with_tags).collect()
}

/// Returns an Ethernet frame. The outer of two tags is an 802.1ad tag.
pub fn frame(tag_count: usize, ip: Spec, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let (vlans, tag_type) = match tag_count {
        0 => (vec![], 0x8100),
        1 => (vec![7], 0x8100),
        _ => (vec![9, 7], 0x88A8),
    };
    packet(Spec { vlans: Some(vlans), tag_type, ..ip }, transport, payload)
}

/// Returns the bytes of a packet, with the link header of `ip`, if any.
pub fn packet(ip: Spec, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let version = ip.version();
    let like = match transport {
        Transport::Udp => udp(version).ports(5_000, 53),
        Transport::Tcp => tcp(version).ports(5_000, 80).flags(PSH),
        Transport::Echo => icmp(version, if version == 4 { 8 } else { 128 }, 0),
    };
    let Spec { protocol, transport, ports, flags, .. } = like;
    Spec { protocol, transport, ports, flags, ..ip }.payload(payload).bytes()
}

/// IP headers of both versions, 16 of each: options, marks, flags and chains.
pub fn headers() -> Vec<Spec> {
    let mut headers = Vec::new();
    for options_len in [0, 4, 20, 40] {
        for (ip_flags, ecn) in [(0, 0), (DF, 1), (0, 2), (DF, 3)] {
            headers.push(Spec { ip_options: options(options_len), ip_flags, tos: ecn, ..ip(4).id(0xBEEF) });
        }
    }
    for chain in 0..16 {
        let has = |bit: u32| chain >> bit & 1 == 1;
        let kinds = [(HOP_BY_HOP, 8), (DESTINATION_OPTIONS, 16), (ROUTING, 24), (DESTINATION_OPTIONS, 32)];
        let here = [has(0), has(1), has(2), has(2) && has(3)];
        let kinds = kinds.into_iter().zip(here).filter(|(_, is_here)| *is_here);
        let extensions = kinds.map(|((kind, len), _)| extension(kind, len)).collect();
        headers.push(Spec { extensions, tos: 0xB9, label: 0x12345, ..ip(6) });
    }
    headers
}

/// A fragment with this payload.
pub fn fragment_v4(offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    Spec { protocol: UDP, ..ip(4).id(0xBEEF).part(offset, payload, more) }.bytes()
}

pub fn fragment_v6(offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    Spec { protocol: UDP, ..ip(6).id(0xDEAD_BEEF).part(offset, payload, more) }.bytes()
}

/// Parses a frame, which must be valid.
#[track_caller]
pub fn read(bytes: &[u8], link_type: LinkType, pool: &mut Pool) -> Packet {
    Frame::copy(bytes, link_type, Ingress(3), pool).unwrap()
}

/// Bytes without a pattern that a checksum would miss.
pub fn noise(len: usize) -> Vec<u8> {
    testkit::noise(len, 7)
}

/// Returns an IPv4 option of `len` bytes. None of its bytes ends the list of options.
fn options(len: usize) -> Vec<u8> {
    let mut options = vec![0xAB; len];
    if len > 0 {
        (options[0], options[1]) = (0x83, len as u8);
    }
    options
}
