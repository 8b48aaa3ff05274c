//! Frames that another crate writes: options, chains, tags and transports in all combinations.
#![allow(dead_code, reason = "each test file uses its part")]

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv4Options, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header,
    Ipv6RawExtHeader, Ipv6RoutingExtensions, PacketBuilder, PacketBuilderStep, VlanId,
};
use wideload_packet::{Frame, Ingress, Medium, Packet, Pool};

pub const HOST_V4: [u8; 4] = [192, 0, 2, 1];
pub const PEER_V4: [u8; 4] = [198, 51, 100, 2];
pub const HOST_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const PEER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// What stands behind the IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
    Echo,
}

pub const TRANSPORTS: [Transport; 3] = [Transport::Udp, Transport::Tcp, Transport::Echo];

/// Ethernet frames of every kind of header, each with this payload.
pub fn frames(payload: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for tag_count in 0..=2 {
        for ip in headers() {
            for transport in TRANSPORTS {
                frames.push(frame(tag_count, ip.clone(), transport, payload));
            }
        }
    }
    frames
}

/// One Ethernet frame.
pub fn frame(tag_count: usize, ip: IpHeaders, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2(STATIONS[0], STATIONS[1]);
    let id = |id| VlanId::try_new(id).unwrap();
    let is_v4 = ip.ipv4().is_some();
    let network = match tag_count {
        0 => link.ip(ip),
        1 => link.single_vlan(id(7)).ip(ip),
        _ => link.double_vlan(id(9), id(7)).ip(ip),
    };
    transported(network, is_v4, transport, payload)
}

/// One packet without a link header.
pub fn packet(ip: IpHeaders, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let is_v4 = ip.ipv4().is_some();
    transported(PacketBuilder::ip(ip), is_v4, transport, payload)
}

fn transported(
    network: PacketBuilderStep<IpHeaders>,
    is_v4: bool,
    transport: Transport,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    match transport {
        Transport::Udp => network.udp(5_000, 53).write(&mut bytes, payload),
        Transport::Tcp => network.tcp(5_000, 80, 1, 1_024).psh().write(&mut bytes, payload),
        Transport::Echo if is_v4 => network.icmpv4_echo_request(1, 2).write(&mut bytes, payload),
        Transport::Echo => network.icmpv6_echo_request(1, 2).write(&mut bytes, payload),
    }
    .unwrap();
    bytes
}

/// IP headers of both versions: options, marks, flags and chains.
pub fn headers() -> Vec<IpHeaders> {
    let mut headers = Vec::new();
    for options_len in [0, 4, 20, 40] {
        for (dont_fragment, ecn) in [(false, 0), (true, 1), (false, 2), (true, 3)] {
            let mut header = v4();
            header.options = Ipv4Options::try_from(&options(options_len)[..]).unwrap();
            header.dont_fragment = dont_fragment;
            header.ecn = ecn.try_into().unwrap();
            headers.push(IpHeaders::Ipv4(header, Default::default()));
        }
    }
    for chain in 0..16 {
        let has = |bit: u32| chain >> bit & 1 == 1;
        let options = |len| Ipv6RawExtHeader::new_raw(IpNumber::UDP, &padding(len)).unwrap();
        let extensions = Ipv6Extensions {
            hop_by_hop_options: has(0).then(|| options(8)),
            destination_options: has(1).then(|| options(16)),
            routing: has(2).then(|| Ipv6RoutingExtensions {
                routing: Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[0; 22]).unwrap(),
                final_destination_options: has(3).then(|| options(32)),
            }),
            ..Default::default()
        };
        headers.push(IpHeaders::Ipv6(v6(), extensions));
    }
    headers
}

pub fn v4() -> Ipv4Header {
    let mut header = Ipv4Header::new(0, 64, IpNumber::UDP, HOST_V4, PEER_V4).unwrap();
    header.identification = 0xBEEF;
    header
}

pub fn v6() -> Ipv6Header {
    Ipv6Header {
        traffic_class: 0xB9,
        flow_label: 0x12345.try_into().unwrap(),
        payload_length: 0,
        next_header: IpNumber::UDP,
        hop_limit: 64,
        source: HOST_V6,
        destination: PEER_V6,
    }
}

/// A fragment of either version with this payload.
pub fn fragment_v4(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut header = v4();
    header.fragment_offset = IpFragOffset::try_new(offset / 8).unwrap();
    header.more_fragments = more;
    header.set_payload_len(payload.len()).unwrap();
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], payload].concat()
}

pub fn fragment_v6(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let offset = IpFragOffset::try_new(offset / 8).unwrap();
    let fragment = Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, 0xDEAD_BEEF);
    let header = Ipv6Header { next_header: IpNumber::IPV6_FRAGMENTATION_HEADER, ..v6() };
    let header = Ipv6Header { payload_length: 8 + payload.len() as u16, ..header };
    [&header.to_bytes()[..], &fragment.to_bytes(), payload].concat()
}

/// Reads a frame, which must be readable.
#[track_caller]
pub fn read(bytes: &[u8], medium: Medium, pool: &mut Pool) -> Packet {
    Frame::copy(bytes, medium, Ingress(3), pool).unwrap()
}

/// Bytes with no pattern that a sum would miss.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An IPv4 option that fills these bytes, none of which end the list.
fn options(len: usize) -> Vec<u8> {
    let mut options = vec![0xAB; len];
    if len > 0 {
        (options[0], options[1]) = (0x83, len as u8);
    }
    options
}

/// The body of an options header of `len` bytes: one PadN.
fn padding(len: usize) -> Vec<u8> {
    let mut body = vec![0; len - 2];
    (body[0], body[1]) = (1, (len - 4) as u8);
    body
}
