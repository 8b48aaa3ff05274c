//! Router advertisements and DHCP messages -> the MTU that they announce; invalid or changed messages -> no MTU.

use crate::frames::{fragment_v4, fragment_v6};
use testkit::{Spec, Transport, icmp, seal_ip, seal_transport, udp};
use wideload_packet::{Checksum, Frame, Ingress, LinkType, Pool, advised_mtu};

#[test]
fn a_router_advertisement_gives_its_mtu_option() {
    for mtu in [1_280, 1_281, 1_500, 9_000, 65_535, 65_536, u32::MAX] {
        assert_eq!(told(&Advertisement::with(&[mtu_option(mtu)]).bytes()), Some(mtu));
    }
    for mtu in [0, 68, 1_279] {
        assert_eq!(told(&Advertisement::with(&[mtu_option(mtu)]).bytes()), None, "{mtu} is below every link");
    }
    let address = vec![1, 1, 2, 0, 0, 0, 0, 1];
    let prefix = [&[3, 4, 64, 0xC0][..], &[0; 28]].concat();
    for options in [
        vec![mtu_option(1_500), address.clone(), prefix.clone()],
        vec![address.clone(), mtu_option(1_500), prefix.clone()],
        vec![address.clone(), prefix.clone(), mtu_option(1_500)],
        vec![mtu_option(9_000), mtu_option(1_500), mtu_option(2_000)],
    ] {
        assert_eq!(told(&Advertisement::with(&options).bytes()), Some(1_500), "{options:02x?}");
    }
    assert_eq!(told(&Advertisement::with(&[address, prefix]).bytes()), None, "it does not speak of it");
    assert_eq!(told(&Advertisement::with(&[]).bytes()), None);
}

// RFC 4861 section 6.1.2
#[test]
fn invalid_advertisements_give_no_mtu() {
    let good = Advertisement::with(&[mtu_option(1_500)]);
    for (what, bad) in [
        ("it was forwarded", Advertisement { hop_limit: 254, ..good.clone() }),
        ("it is from elsewhere", Advertisement { source: GLOBAL, ..good.clone() }),
        ("a solicitation", Advertisement { kind: 133, ..good.clone() }),
        ("a code", Advertisement { code: 1, ..good.clone() }),
        ("its sum is wrong", Advertisement { sum_off: 1, ..good.clone() }),
        ("an option of no length", Advertisement { options: vec![5, 0, 0, 0, 0, 0, 5, 0xDC], ..good.clone() }),
        (
            "an option of two eights",
            Advertisement::with(&[[&[5, 2][..], &mtu_option(1_500)[2..], &[0; 8]].concat()]),
        ),
        ("an option past the end", Advertisement::with(&[mtu_option(1_500), vec![1, 2, 0, 0, 0, 0, 0, 0]])),
        ("a byte of an option", Advertisement::with(&[mtu_option(1_500), vec![1]])),
    ] {
        assert_eq!(told(&bad.bytes()), None, "{what}");
    }
    let bytes = good.bytes();
    let fragment = fragment_v6(0, true, &bytes[40..]);
    assert_eq!(told(&fragment), None, "none comes in fragments (RFC 6980)");
}

#[test]
fn a_dhcp_server_gives_its_mtu_option() {
    for mtu in [68, 69, 576, 1_500, 9_000, 65_535u16] {
        for kind in [Some(2), Some(5), None] {
            assert_eq!(told(&Dhcp { kind, ..Dhcp::with(&interface_mtu(mtu)) }.bytes()), Some(mtu.into()));
        }
    }
    for mtu in [0, 1, 67] {
        assert_eq!(told(&Dhcp::with(&interface_mtu(mtu)).bytes()), None, "{mtu} is below every link");
    }
    let lease = [51, 4, 0, 0, 14, 16];
    let mtu = interface_mtu(1_500);
    for options in [
        [&lease[..], &mtu, &[255]].concat(),
        [&[0, 0][..], &mtu, &lease, &[255, 26, 2, 3, 0]].concat(),
        [&mtu[..], &lease].concat(),
        [&interface_mtu(9_000)[..], &mtu, &[255]].concat(),
        // A field of another length than two bytes is another option.
        [&[26, 1, 1, 26, 0][..], &mtu, &[255]].concat(),
    ] {
        assert_eq!(told(&Dhcp::with(&options).bytes()), Some(1_500), "{options:02x?}");
    }
}

// RFC 2132 section 9.3
#[test]
fn dhcp_options_continue_in_overloaded_fields() {
    let mtu = [&interface_mtu(1_500)[..], &[255]].concat();
    for overload in 0..=4 {
        let options = if overload == 0 { vec![255] } else { vec![52, 1, overload, 255] };
        let in_file = Dhcp { file: mtu.clone(), ..Dhcp::with(&options) };
        let in_name = Dhcp { name: mtu.clone(), ..Dhcp::with(&options) };
        let expected = |which| if which { Some(1_500) } else { None };
        assert_eq!(told(&in_file.bytes()), expected([1, 3].contains(&overload)), "{overload}");
        assert_eq!(told(&in_name.bytes()), expected([2, 3].contains(&overload)), "{overload}");
    }
}

#[test]
fn invalid_dhcp_messages_give_no_mtu() {
    let good = Dhcp::with(&interface_mtu(1_500));
    for (what, bad) in [
        ("a client's request", Dhcp { op: 1, ..good.clone() }),
        ("to a relay", Dhcp { ports: [67, 67], ..good.clone() }),
        ("from a client", Dhcp { ports: [68, 67], ..good.clone() }),
        ("a refusal", Dhcp { kind: Some(6), ..good.clone() }),
        ("a discovery", Dhcp { kind: Some(1), ..good.clone() }),
        ("another cookie", Dhcp { cookie: [99, 130, 83, 98], ..good.clone() }),
        ("its sum is wrong", Dhcp { sum_off: 1, ..good.clone() }),
        ("an option past the end", Dhcp::with(&[&interface_mtu(1_500)[..], &[12, 200, 1]].concat())),
        ("an option without a length", Dhcp::with(&[&interface_mtu(1_500)[..], &[12]].concat())),
    ] {
        assert_eq!(told(&bad.bytes()), None, "{what}");
    }
    let bytes = good.bytes();
    for len in 28..bytes.len() - 1 {
        let mut short = bytes[..len].to_vec();
        short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        seal_ip(&mut short);
        assert_eq!(told(&short), None, "{len} bytes of it");
    }
    assert_eq!(told(&fragment_v4(0, true, &bytes[20..])), None);
}

#[test]
fn absent_and_partial_checksums_are_accepted() {
    let mut without = Dhcp::with(&interface_mtu(1_500)).bytes();
    without[26..28].fill(0);
    assert_eq!(told(&without), Some(1_500));
    let half = Dhcp { sum_off: 77, ..Dhcp::with(&interface_mtu(1_500)) }.bytes();
    let mut pool = Pool::new(1 << 20);
    let mut packet = Frame::copy(&half, LinkType::Ip, Ingress(0), &mut pool).unwrap();
    packet.checksum = Checksum::Partial;
    assert_eq!(advised_mtu(&packet), Some(1_500));
}

#[test]
fn mutated_messages_never_panic_or_give_an_unwritten_mtu() {
    let good = [Advertisement::with(&[mtu_option(1_500)]).bytes(), Dhcp::with(&interface_mtu(1_500)).bytes()];
    let mut pool = Pool::new(1 << 20);
    for (bytes, upper_at) in [(&good[0], 40), (&good[1], 20)] {
        for at in upper_at..bytes.len() {
            for value in [0, 1, 2, 5, 26, 52, 127, 255, bytes[at] ^ 0x80] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                // Once with a corrected checksum, once with the original checksum.
                for sealed in [true, false] {
                    if sealed {
                        seal_transport(&mut bytes);
                    }
                    let Ok(packet) = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut pool) else { continue };
                    if let Some(mtu) = advised_mtu(&packet) {
                        let written = [mtu.to_be_bytes().to_vec(), (mtu as u16).to_be_bytes().to_vec()];
                        let is_there = |it: &Vec<u8>| bytes[upper_at..].windows(it.len()).any(|there| there == it);
                        assert!(written.iter().any(is_there), "byte {at} as {value}: {mtu}");
                    }
                    pool.give(packet.into_buffer());
                }
            }
        }
    }
    let mut random = Noise(7);
    let mut told_count = 0;
    for _ in 0..20_000 {
        let len = random.below(60);
        let options: Vec<u8> = (0..len).map(|_| [0, 5, 26, 2, 1, 255, 52, 3][random.below(8)]).collect();
        let which = [Dhcp::with(&options).bytes(), Advertisement { options, ..Advertisement::with(&[]) }.bytes()];
        told_count += which.iter().filter(|bytes| told(bytes).is_some()).count();
    }
    assert!(told_count > 100, "some of it is advice: {told_count}");
}

// Helpers.

fn told(bytes: &[u8]) -> Option<u32> {
    let mut pool = Pool::new(1 << 20);
    let packet = Frame::copy(bytes, LinkType::Ip, Ingress(0), &mut pool).unwrap();
    advised_mtu(&packet)
}

#[derive(Clone)]
struct Advertisement {
    source: [u8; 16],
    hop_limit: u8,
    kind: u8,
    code: u8,
    options: Vec<u8>,
    sum_off: u16,
}

impl Advertisement {
    fn with(options: &[Vec<u8>]) -> Advertisement {
        Advertisement { source: LOCAL, hop_limit: 255, kind: 134, code: 0, options: options.concat(), sum_off: 0 }
    }

    fn bytes(&self) -> Vec<u8> {
        let transport = Transport::Icmp(self.kind, self.code, [64, 0, 7, 8]);
        let like = Spec { transport, ttl: self.hop_limit, ..icmp(6, self.kind, self.code) };
        let mut bytes = like.from(self.source).to(ALL_NODES).payload([&[0; 8][..], &self.options].concat()).bytes();
        bytes[43] ^= self.sum_off as u8;
        bytes
    }
}

#[derive(Clone)]
struct Dhcp {
    ports: [u16; 2],
    op: u8,
    cookie: [u8; 4],
    kind: Option<u8>,
    options: Vec<u8>,
    name: Vec<u8>,
    file: Vec<u8>,
    sum_off: u8,
}

impl Dhcp {
    /// Returns an acknowledgement with these options behind the message type.
    fn with(options: &[u8]) -> Dhcp {
        Dhcp {
            ports: [67, 68],
            op: 2,
            cookie: [99, 130, 83, 99],
            kind: Some(5),
            options: options.to_vec(),
            name: Vec::new(),
            file: Vec::new(),
            sum_off: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut message = vec![self.op, 1, 6, 0, 1, 2, 3, 4];
        message.resize(44, 0);
        message.extend(&self.name);
        message.resize(108, 0);
        message.extend(&self.file);
        message.resize(236, 0);
        message.extend(self.cookie);
        message.extend(self.kind.into_iter().flat_map(|kind| [53, 1, kind]));
        message.extend(&self.options);
        let mut bytes = Spec { ports: self.ports, ..udp(4).ip_flags(0) }.to([255; 4]).payload(message).bytes();
        bytes[27] ^= self.sum_off;
        bytes
    }
}

fn mtu_option(mtu: u32) -> Vec<u8> {
    [&[5, 1, 0, 0][..], &mtu.to_be_bytes()].concat()
}

fn interface_mtu(mtu: u16) -> Vec<u8> {
    [&[26, 2][..], &mtu.to_be_bytes()].concat()
}

struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

const LOCAL: [u8; 16] = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const GLOBAL: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
