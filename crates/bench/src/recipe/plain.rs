//! Length -> packets of this length, and their fragments or segments by a simple reference.
//!
//! The reference is written for clarity, and shares no code with the measured engine.

use super::PACKETS_MIN;
use crate::reference::Reference;
use crate::section::Section;
use crate::wire::{
    ACK, IPV4_LEN, PSH, Pair, Place, TCP, TCP_LEN, Tcp, UDP, fold, noise, put, seal_ipv4, seal_tcp4, sum, word,
};

/// Returns IPv4 packets that are too long for `mtu`, and their fragments.
pub fn wide(len: usize, mtu: usize) -> (Section, Reference) {
    let room = (mtu - IPV4_LEN) / 8 * 8;
    let count = (4 * PACKETS_MIN).div_ceil((len - IPV4_LEN).div_ceil(room));
    let mut section = Section::default();
    let mut fragments = Vec::new();
    for index in 0..count {
        let pair = Pair { version: 4, source: 1, destination: 1_000 };
        let datagram = pair.udp(&noise(index as u64, len - IPV4_LEN - 8));
        section.push(&pair.cuttable(UDP, index as u16 + 1, &datagram));
        for (number, payload) in datagram.chunks(room).enumerate() {
            let offset = number * room;
            let place = Place { id: index as u32 + 1, offset, more: offset + payload.len() < datagram.len() };
            fragments.push(pair.fragment(UDP, place, payload));
        }
    }
    (section, Reference::Packets(fragments))
}

/// Returns TCP packets of up to 64 KiB whose checksums are left to the NIC, and their segments.
pub fn gso_packets(segment: usize) -> (Section, Reference) {
    let per_gso = (usize::from(u16::MAX) - IPV4_LEN - TCP_LEN) / segment;
    let count = PACKETS_MIN.div_ceil(per_gso).max(16);
    let mut section = Section::default();
    let mut segments = Vec::new();
    for index in 0..count {
        let pair = Pair { version: 4, source: 1, destination: 1_000 };
        let tcp = Tcp { ports: [443, 10_000], seq: (index as u32) << 24 | 0xFF_FF00, flags: ACK | PSH };
        let upper = pair.tcp(tcp, &noise(index as u64, per_gso * segment), true);
        let gso = pair.whole(TCP, 64 * index as u16, &upper);
        cut(&gso, segment, &mut segments);
        section.push(&gso);
    }
    (section, Reference::Packets(segments))
}

/// Segments a GSO packet as a NIC does, with the simplest possible code.
fn cut(gso: &[u8], segment: usize, segments: &mut Vec<Vec<u8>>) {
    let (header, payload) = gso.split_at(IPV4_LEN + TCP_LEN);
    let count = payload.len().div_ceil(segment);
    let seq = u32::from_be_bytes([header[24], header[25], header[26], header[27]]);
    for (index, part) in payload.chunks(segment).enumerate() {
        let mut packet = [header, part].concat();
        let len = packet.len() as u16;
        put(&mut packet, 2, len);
        put(&mut packet, 4, (word(header, 4) as u16).wrapping_add(index as u16));
        packet[24..28].copy_from_slice(&seq.wrapping_add((index * segment) as u32).to_be_bytes());
        if index + 1 < count {
            packet[33] &= !PSH;
        }
        seal_ipv4(&mut packet);
        seal_tcp4(&mut packet);
        segments.push(packet);
    }
}

/// Returns plain bytes and their checksums.
pub fn bytes(len: usize) -> (Section, Reference) {
    let count = (BYTES_AT_ONCE / len).clamp(8, 1_024);
    let section: Section = (0..count).map(|index| noise(index as u64, len)).collect();
    let checksums = section.packets().map(|bytes| (!fold(sum(bytes))).to_be_bytes().to_vec()).collect();
    (section, Reference::Packets(checksums))
}

/// Returns TCP and UDP packets over IPv4 and IPv6.
pub fn mixed() -> (Section, Reference) {
    let section: Section = (0..2 * PACKETS_MIN)
        .map(|index| {
            let pair =
                Pair { version: if index % 2 == 0 { 4 } else { 6 }, source: index as u32, destination: 1_000 };
            let payload = noise(index as u64, 1_400);
            let tcp = Tcp { ports: [443, 10_000], seq: index as u32, flags: ACK };
            match index / 2 % 2 {
                0 => pair.whole(TCP, 1, &pair.tcp(tcp, &payload, false)),
                _ => pair.whole(UDP, 1, &pair.udp(&payload)),
            }
        })
        .collect();
    let count = section.len();
    (section, Reference::Count(count))
}

/// Total length of the byte strings of one section, in bytes. They fit the second-level cache of most CPUs.
const BYTES_AT_ONCE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice};

    #[test]
    fn etherparse_confirms_the_simple_segmenter() {
        for segment in [1_448, 8_948] {
            let (section, Reference::Packets(segments)) = gso_packets(segment) else { panic!() };
            let mut payload = Vec::new();
            for packet in &segments {
                let sliced = SlicedPacket::from_ip(packet).unwrap();
                let ipv4 = sliced.net.as_ref().unwrap().ipv4_ref().unwrap().header();
                assert_eq!(ipv4.to_header().calc_header_checksum(), ipv4.header_checksum());
                let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!() };
                assert_eq!(tcp.calc_checksum_ipv4(ipv4.source(), ipv4.destination()).unwrap(), tcp.checksum());
                payload.extend_from_slice(tcp.payload());
            }
            let expected: Vec<u8> = section.packets().flat_map(|gso| &gso[52..]).copied().collect();
            assert!(payload == expected);
        }
    }

    #[test]
    fn fragments_have_right_headers_and_fit() {
        for len in [9_000, 65_000] {
            let (section, Reference::Packets(fragments)) = wide(len, 1_500) else { panic!() };
            assert!(section.packets().all(|packet| packet.len() == len) && fragments.len() >= PACKETS_MIN);
            for fragment in &fragments {
                assert!(fragment.len() <= 1_500);
                let sliced = SlicedPacket::from_ip(fragment).unwrap();
                let header = sliced.net.as_ref().unwrap().ipv4_ref().unwrap().header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
            }
        }
    }

    #[test]
    fn etherparse_reads_the_parse_workload() {
        let (section, _) = mixed();
        let mut kinds = [0; 4];
        for packet in section.packets() {
            let sliced = SlicedPacket::from_ip(packet).unwrap();
            let net = sliced.net.as_ref().unwrap();
            let (computed, stands, kind) = match (&sliced.transport, net.ipv4_ref(), net.ipv6_ref()) {
                (Some(TransportSlice::Tcp(tcp)), Some(ip), _) => {
                    let (from, to) = (ip.header().source(), ip.header().destination());
                    (tcp.calc_checksum_ipv4(from, to).unwrap(), tcp.checksum(), 0)
                }
                (Some(TransportSlice::Tcp(tcp)), _, Some(ip)) => {
                    let (from, to) = (ip.header().source(), ip.header().destination());
                    (tcp.calc_checksum_ipv6(from, to).unwrap(), tcp.checksum(), 1)
                }
                (Some(TransportSlice::Udp(udp)), Some(ip), _) => {
                    let header = udp.to_header();
                    (
                        header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap(),
                        header.checksum,
                        2,
                    )
                }
                (Some(TransportSlice::Udp(udp)), _, Some(ip)) => {
                    let header = udp.to_header();
                    (
                        header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap(),
                        header.checksum,
                        3,
                    )
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(computed, stands);
            kinds[kind] += 1;
        }
        assert_eq!(kinds, [64; 4]);
    }
}
