//! Templates -> headers whose checksums equal the checksums computed over the complete header or segment.

use testkit::fields::word;
use testkit::{Spec, ip, seal_ip, seal_transport, sum};
use wideload_packet::{
    Checksum, FRAGMENT_HEADER_LEN_MAX, Fragment, Frame, Identifications, Ingress, Ip, LinkType, Packet, Place,
    Pool, SegmentRange, SegmentTemplate, Template,
};

#[test]
fn fragment_header_checksums_are_valid() {
    for options in [&[][..], &COPIED, &BOTH, &PADDED, &[1; 40]] {
        for flags in [0x0000, 0x4000, 0x8000] {
            let packet = parsed(&ipv4(options, flags, 17, &[0; 8]));
            let template = Template::new(&packet);
            let check = |payload_len, fragment| check_fragment(&packet, &template, payload_len, fragment);
            for payload_len in 0..=65_535 - 60 {
                for (offset, more) in [(0, true), (8, false), (65_528, true)] {
                    check(payload_len, Fragment { id: 0x1234, offset, more });
                }
            }
            for offset in (0..=65_528).step_by(8) {
                for more in [false, true] {
                    check(1_480, Fragment { id: 0xFFFF, offset, more });
                }
            }
            // The IDs include those that give a sum of plus or minus zero.
            for id in 0..=0xFFFF {
                check(1_000, Fragment { id, offset: 1_000, more: true });
            }
        }
    }
}

#[test]
fn a_header_checksum_of_minus_zero_is_handled() {
    let zero = (0..=0xFFFF).find_map(|id: u16| {
        let mut bytes = ipv4(&[], 0, 17, &[0; 8]);
        bytes[4..6].copy_from_slice(&id.to_be_bytes());
        seal_ip(&mut bytes);
        (bytes[10..12] == [0, 0]).then_some(bytes)
    });
    let mut bytes = zero.expect("some identification makes the checksum 0");
    bytes[10..12].fill(0xFF);
    let packet = parsed(&bytes);
    let template = Template::new(&packet);
    for id in 0..=0xFFFF {
        check_fragment(&packet, &template, 8, Fragment { id, offset: 8, more: true });
    }
}

#[test]
fn segment_checksums_are_valid() {
    for (version, protocol) in [(4, 6), (6, 6), (4, 17), (6, 17)] {
        let header = if protocol == 6 { tcp_header() } else { udp_header() };
        for ids in [Identifications::Rise, Identifications::Stay] {
            let upper = [&header[..], &[7; 3_000]].concat();
            let bytes = if version == 4 { ipv4(&[], 0x4000, protocol, &upper) } else { ipv6(protocol, &upper) };
            let mut packet = parsed(&bytes);
            packet.checksum = Checksum::Partial;
            let template = SegmentTemplate::new(&packet, ids).expect("a train has headers");
            let check = |index, offset, payload: &[u8]| {
                let place = Place { first: index == 0, last: false };
                let mut room = [0xAA; FRAGMENT_HEADER_LEN_MAX];
                let headers = template.stamp(&mut room, SegmentRange { index, offset, payload, place });
                check_segment(headers, payload, protocol);
            };
            // The words include those that give a sum of plus or minus zero.
            for word in 0..=u16::MAX {
                check(1, 3, &word.to_be_bytes());
                check(usize::from(word), 5, &[1, 2, 3]);
                check(1, usize::from(word) << 16 | 0xFFFE, &[9]);
            }
            let payload: Vec<u8> = (0..9_000).map(|index| (index * 7 % 251) as u8).collect();
            (0..payload.len()).for_each(|len| check(0, len, &payload[..len]));
        }
    }
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let mut header = udp_header();
    header[6..8].fill(0);
    let packet = parsed(&ipv4(&[], 0, 17, &[&header[..], &[7; 100]].concat()));
    let template = SegmentTemplate::new(&packet, Identifications::Rise).expect("a train has headers");
    let place = Place { first: true, last: false };
    let mut room = [0xAA; FRAGMENT_HEADER_LEN_MAX];
    let headers = template.stamp(&mut room, SegmentRange { index: 0, offset: 0, payload: &[1, 2], place });
    assert_eq!(headers[24..28], [0, 10, 0, 0]);
}

#[test]
fn a_template_writes_only_its_header() {
    for options in [&[][..], &COPIED, &BOTH] {
        let packet = parsed(&ipv4(options, 0, 17, &[0; 8]));
        for offset in [0, 8] {
            let mut room = [0xAA; FRAGMENT_HEADER_LEN_MAX];
            let fragment = Fragment { id: 1, offset, more: true };
            let len = Template::new(&packet).stamp(&mut room, 8, fragment).len();
            let [first, later] = packet.fragment_header_lens();
            assert_eq!(len, if offset == 0 { first } else { later });
            assert!(room[len..].iter().all(|byte| *byte == 0xAA));
        }
    }
}

/// Stamps a fragment's header and compares it with the requested fields.
fn check_fragment(packet: &Packet, template: &Template<'_>, payload_len: usize, fragment: Fragment) {
    let mut room = [0xAA; FRAGMENT_HEADER_LEN_MAX];
    let header = template.stamp(&mut room, payload_len, fragment);
    assert_eq!(sum(header), 0xFFFF, "{payload_len}, {fragment:?}");
    assert_eq!(usize::from(word(header, 2)), header.len() + payload_len);
    assert_eq!(u32::from(word(header, 4)), fragment.id & 0xFFFF);
    let flags = word(packet.header(), 6) & 0x8000 | if fragment.more { 0x2000 } else { 0 };
    assert_eq!(word(header, 6), flags | fragment.offset >> 3);
    assert_eq!((header[1], &header[8..10], &header[12..20]), (0, &[64, 17][..], &packet.header()[12..20]));
    // Later fragments must not have these options, which are not copied.
    let is_of_the_first = |byte: &u8| [0x07, 0x44].contains(byte);
    assert!(fragment.offset == 0 || !header[20..].iter().any(is_of_the_first), "{header:02x?}");
}

/// Checks that the lengths and checksums in `headers` equal those computed from the complete segment.
fn check_segment(headers: &[u8], payload: &[u8], protocol: u8) {
    let segment = [headers, payload].concat();
    let mut expected = segment.clone();
    seal_transport(&mut expected);
    if headers[0] >> 4 == 4 {
        seal_ip(&mut expected);
        assert_eq!(usize::from(word(headers, 2)), segment.len());
    } else {
        assert_eq!(usize::from(word(headers, 4)), segment.len() - 40);
    }
    assert!(segment == expected, "{headers:02x?} of {protocol} with {} bytes", payload.len());
}

fn parsed(bytes: &[u8]) -> Packet {
    assert!(Ip::parse(bytes).is_ok());
    Frame::copy(bytes, LinkType::Ip, Ingress(0), &mut Pool::new(1 << 20)).expect("a packet parses")
}

fn ipv4(options: &[u8], flags: u16, protocol: u8, upper: &[u8]) -> Vec<u8> {
    Spec { ip_options: options.to_vec(), ip_flags: flags, protocol, ..ip(4) }.payload(upper).bytes()
}

fn ipv6(protocol: u8, upper: &[u8]) -> Vec<u8> {
    Spec { protocol, ..ip(6) }.payload(upper).bytes()
}

/// Returns a TCP header with timestamps, and with a sequence number that wraps soon.
fn tcp_header() -> Vec<u8> {
    let mut header =
        vec![1, 187, 0x27, 0x10, 0xFF, 0xFF, 0xFF, 0xF0, 0, 0, 0, 6, 0x80, 0x98, 4, 0, 0xBE, 0xEF, 0, 0];
    header.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
    header
}

fn udp_header() -> Vec<u8> {
    vec![1, 187, 0x27, 0x10, 0x0B, 0xC0, 0xBE, 0xEF]
}

/// An option with the copied bit. `BOTH` also has two options without it.
const COPIED: [u8; 4] = [0x94, 4, 0, 0];
/// An option of five bytes with the copied bit, and one of three bytes without it. Later fragments need padding.
const PADDED: [u8; 8] = [0x86, 5, 0, 0, 0, 0x07, 3, 4];
const BOTH: [u8; 12] = [0x07, 4, 4, 0, 0x94, 4, 0, 0, 0x44, 4, 5, 0];
