//! A kind of IP header or fragment -> the packets to send.
//!
//! A gateway must forward unknown headers, and treat faulty headers as the kernel does.

use super::super::frames::{DF, Frames, Ip4, Ip6, MORE, Tcp, filled, udp};
use super::{ALERT, ALL_NODES, BOTH, Kind, N, W, kind, short};

/// Kinds of IPv4 headers.
pub(super) const HEADERS_V4: &[Kind] = &[
    kind("ipv4", "ipv4-zero-length", |f| each(f, |p| Ip4 { total_len: Some(0), checksum: Some(0), ..p })),
    kind("ipv4", "ipv4-length-short", |f| each(f, |p| Ip4 { total_len: Some(19), ..p })),
    kind("ipv4", "ipv4-length-long", |f| each(f, |p| Ip4 { total_len: Some(1_400), ..p })),
    short("ipv4", "ipv4-bad-checksum", |f| each(f, |p| Ip4 { checksum: Some(0x5555), ..p })),
    kind("ipv4", "ipv4-checksum-ffff", |f| each(f, |p| Ip4 { checksum: Some(0xFFFF), ..p })),
    kind("ipv4", "ipv4-bad-version", |f| {
        each(f, |p| Ip4 { version: 6, ..p });
        each(f, |p| Ip4 { version: 0, ..p });
        each(f, |p| Ip4 { version: 15, ..p });
    }),
    kind("ipv4", "ipv4-header-cut", |f| {
        let packet = f.ip4(N, 17, &filled(40)).bytes();
        for len in [0, 1, 9, 19, 20] {
            f.ether(N, 0x0800, &packet[..len]);
        }
    }),
    kind("ipv4", "ipv4-header-len", |f| {
        for first in [0x40_u8, 0x44, 0x4F] {
            let mut packet = f.ip4(N, 17, &filled(8)).bytes();
            packet[0] = first;
            f.ether(N, 0x0800, &packet);
        }
    }),
    short("ipv4", "ipv4-ttl-0", |f| each(f, |p| Ip4 { ttl: 0, ..p })),
    short("ipv4", "ipv4-ttl-1", |f| each(f, |p| Ip4 { ttl: 1, ..p })),
    kind("ipv4", "ipv4-ttl-1-tcp", |f| {
        for from in BOTH {
            for index in 0..4 {
                let segment = Tcp::data(1_001 + index * 1_000, &filled(1_000)).bytes(f.pseudo4(from, 6));
                f.send4(from, &Ip4 { ttl: 1, ..f.ip4(from, 6, &segment) });
            }
        }
    }),
    short("ipv4", "ipv4-router-alert", |f| each(f, |p| Ip4 { options: ALERT.to_vec(), ..p })),
    kind("ipv4", "ipv4-record-route", |f| {
        each(f, |p| Ip4 { options: vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..p })
    }),
    kind("ipv4", "ipv4-timestamp", |f| {
        each(f, |p| Ip4 { options: vec![68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..p })
    }),
    kind("ipv4", "ipv4-source-route", |f| each(f, |p| Ip4 { options: vec![131, 7, 4, 10, 9, 9, 9, 0], ..p })),
    kind("ipv4", "ipv4-options-bad", |f| each(f, |p| Ip4 { options: vec![7, 40, 4, 0], ..p })),
    kind("ipv4", "ipv4-trailer", |f| {
        for from in BOTH {
            let packet = f.ip4(from, 17, &udp(f.pseudo4(from, 17), [1, 2], &filled(100))).bytes();
            f.ether(from, 0x0800, &[&packet[..], b"trailer"].concat());
            let packet = f.ip6(from, 17, &udp(f.pseudo6(from, 17), [1, 2], &filled(100))).bytes();
            f.ether(from, 0x86DD, &[&packet[..], b"trailer"].concat());
        }
    }),
    kind("ipv4", "ipv4-tos", |f| (0..=255).step_by(17).for_each(|tos| each(f, |p| Ip4 { tos, ..p }))),
    kind("ipv4", "ipv4-evil-bit", |f| each(f, |p| Ip4 { fragment: 0x8000 | DF, ..p })),
    kind("ipv4", "ipv4-no-df", |f| each(f, |p| Ip4 { fragment: 0, ..p })),
    kind("ipv4", "ipv4-full-size", |f| {
        for from in BOTH {
            f.both(from, 17, |sum| udp(sum, [1, 2], &filled(1_452)));
            f.send4(from, &f.ip4(from, 17, &udp(f.pseudo4(from, 17), [1, 2], &filled(1_472))));
        }
    }),
    kind("ipv4", "ipv4-martians", |f| {
        for source in [[127, 0, 0, 1], [0; 4], [255; 4], [224, 0, 0, 1], [240, 0, 0, 1]] {
            f.send4(N, &Ip4 { source: source.into(), ..f.ip4(N, 253, &filled(60)) });
            f.send4(N, &Ip4 { target: source.into(), ..f.ip4(N, 253, &filled(60)) });
        }
    }),
    kind("ipv4", "ipv4-link-local", |f| {
        f.send4(N, &Ip4 { source: [169, 254, 1, 1].into(), ..f.ip4(N, 253, &filled(60)) });
        f.send4(N, &Ip4 { target: [169, 254, 1, 1].into(), ..f.ip4(N, 253, &filled(60)) });
    }),
    kind("ipv4", "ipv4-land", |f| f.send4(N, &Ip4 { source: f.v4(W), ..f.ip4(N, 253, &filled(60)) })),
];

/// Kinds of IPv6 headers.
pub(super) const HEADERS_V6: &[Kind] = &[
    kind("ipv6", "ipv6-hop-by-hop", |f| each6(f, |p| p.behind(0, &[5, 2, 0, 0, 1, 0]))),
    kind("ipv6", "ipv6-hop-by-hop-jumbo", |f| {
        each6(f, |p| Ip6 { len: Some(0), ..p.behind(0, &[0xC2, 4, 0, 1, 0, 0]) })
    }),
    kind("ipv6", "ipv6-minimum-path-mtu", |f| each6(f, |p| p.behind(0, &[0x30, 4, 0x23, 0x28, 0, 0]))),
    kind("ipv6", "ipv6-destination-options", |f| each6(f, |p| p.behind(60, &[1, 4, 0, 0, 0, 0]))),
    kind("ipv6", "ipv6-routing", |f| each6(f, |p| p.behind(43, &[4, 0, 0, 0, 0, 0]))),
    short("ipv6", "ipv6-ten-headers", |f| {
        each6(f, |p| (0..10).fold(p, |p, _| p.behind(60, &[1, 4, 0, 0, 0, 0])));
    }),
    kind("ipv6", "ipv6-tcp-behind-options", |f| {
        for index in 0..4 {
            let segment = Tcp::data(1_001 + index * 1_000, &filled(1_000)).bytes(f.pseudo6(N, 6));
            f.send6(N, &f.ip6(N, 6, &segment).behind(60, &[1, 4, 0, 0, 0, 0]));
        }
    }),
    kind("ipv6", "ipv6-mobility", |f| each6(f, |p| p.behind(135, &[0, 0, 0, 0, 0, 0]))),
    kind("ipv6", "ipv6-zero-length", |f| each6(f, |p| Ip6 { len: Some(0), ..p })),
    kind("ipv6", "ipv6-length-long", |f| each6(f, |p| Ip6 { len: Some(1_400), ..p })),
    kind("ipv6", "ipv6-header-cut", |f| {
        let packet = f.ip6(N, 17, &filled(40)).bytes();
        for len in [0, 1, 20, 39, 40] {
            f.ether(N, 0x86DD, &packet[..len]);
        }
    }),
    kind("ipv6", "ipv6-flow-label", |f| each6(f, |p| Ip6 { label: 0xF_FFFF, class: 0xB8, ..p })),
    short("ipv6", "ipv6-hops-0-1", |f| {
        each6(f, |p| Ip6 { hops: 0, ..p });
        each6(f, |p| Ip6 { hops: 1, ..p });
    }),
    kind("ipv6", "ipv6-martians", |f| {
        let loopback = std::net::Ipv6Addr::LOCALHOST;
        f.send6(N, &Ip6 { source: loopback, ..f.ip6(N, 253, &filled(60)) });
        f.send6(N, &Ip6 { source: [0; 16].into(), ..f.ip6(N, 253, &filled(60)) });
        f.send6(N, &Ip6 { source: ALL_NODES.into(), ..f.ip6(N, 253, &filled(60)) });
        f.send6(N, &Ip6 { target: loopback, ..f.ip6(N, 253, &filled(60)) });
    }),
    kind("ipv6", "ipv6-link-local", |f| {
        let own = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        f.send6(N, &Ip6 { source: own.into(), ..f.ip6(N, 253, &filled(60)) });
    }),
];

/// Kinds of fragments, for both IP versions.
pub(super) const FRAGMENTS: &[Kind] = &[
    short("fragments", "fragments-in-order", |f| fragments(f, |p| p)),
    short("fragments", "fragments-reversed", |f| {
        fragments(f, |mut p| {
            p.reverse();
            p
        })
    }),
    kind("fragments", "fragments-last-first", |f| {
        fragments(f, |mut p| {
            p.rotate_right(1);
            p
        })
    }),
    kind("fragments", "fragments-duplicated", |f| fragments(f, |p| p.iter().chain(&p).cloned().collect())),
    kind("fragments", "fragments-incomplete", |f| {
        fragments(f, |mut p| {
            p.remove(1);
            p
        })
    }),
    kind("fragments", "fragments-without-first", |f| {
        fragments(f, |mut p| {
            p.remove(0);
            p
        })
    }),
    kind("fragments", "fragments-overlapping", |f| {
        let whole = f.ip4(N, 17, &filled(3_200));
        for (offset, len, more) in [(0, 1_000, MORE), (800, 1_000, MORE), (1_600, 800, MORE), (2_400, 800, 0)] {
            let part = filled(3_200)[offset..offset + len].to_vec();
            f.send4(N, &Ip4 { fragment: (offset / 8) as u16 | more, payload: part, ..whole.clone() });
        }
    }),
    kind("fragments", "fragments-tiny", |f| {
        for fragment in (Ip4 { fragment: 0, ..f.ip4(N, 17, &filled(80)) }).fragments(8) {
            f.send4(N, &fragment);
        }
        for fragment in f.ip6(N, 17, &filled(80)).fragments(8, 7) {
            f.send6(N, &fragment);
        }
    }),
    kind("fragments", "fragments-atomic", |f| {
        for from in BOTH {
            f.ip6(from, 17, &filled(200)).fragments(1_000, 77).iter().for_each(|fragment| f.send6(from, fragment));
        }
    }),
    kind("fragments", "fragments-df", |f| {
        for from in BOTH {
            for fragment in (Ip4 { fragment: 0, ..f.ip4(from, 17, &filled(3_000)) }).fragments(1_480) {
                f.send4(from, &Ip4 { fragment: fragment.fragment | DF, ..fragment });
            }
        }
    }),
    kind("fragments", "fragments-odd-length", |f| {
        let whole = f.ip4(N, 17, &filled(100));
        f.send4(N, &Ip4 { fragment: MORE, payload: filled(51), ..whole.clone() });
        f.send4(N, &Ip4 { fragment: 7, payload: filled(49), ..whole });
    }),
    kind("fragments", "fragments-beyond-64k", |f| {
        f.send4(N, &Ip4 { fragment: 8_191, payload: filled(1_000), ..f.ip4(N, 17, &[]) });
    }),
    kind("fragments", "fragments-of-tcp", |f| {
        for from in BOTH {
            let segment = Tcp::data(1, &filled(4_000)).bytes(f.pseudo4(from, 6));
            for fragment in (Ip4 { fragment: 0, ..f.ip4(from, 6, &segment) }).fragments(1_400) {
                f.send4(from, &fragment);
            }
        }
    }),
    kind("fragments", "fragments-full-size", |f| {
        for from in BOTH {
            for fragment in (Ip4 { fragment: 0, ..f.ip4(from, 17, &filled(5_920)) }).fragments(1_480) {
                f.send4(from, &fragment);
            }
        }
    }),
];

/// Kinds of packets that are too long for the narrow link.
pub(super) const TOO_LONG: &[Kind] = &[
    short("too-long", "long-df", |f| {
        f.send4(W, &f.ip4(W, 17, &udp(f.pseudo4(W, 17), [1, 2], &filled(8_000))));
        f.send6(W, &f.ip6(W, 17, &udp(f.pseudo6(W, 17), [1, 2], &filled(8_000))));
    }),
    kind("too-long", "long-by-one", |f| {
        f.send4(W, &f.ip4(W, 17, &udp(f.pseudo4(W, 17), [1, 2], &filled(1_473))));
        f.send6(W, &f.ip6(W, 17, &udp(f.pseudo6(W, 17), [1, 2], &filled(1_453))));
    }),
    kind("too-long", "long-no-df", |f| {
        f.send4(W, &Ip4 { fragment: 0, ..f.ip4(W, 17, &udp(f.pseudo4(W, 17), [1, 2], &filled(8_000))) });
    }),
    kind("too-long", "long-vlan", |f| {
        let packet = f.ip4(W, 17, &udp(f.pseudo4(W, 17), [1, 2], &filled(8_000))).bytes();
        f.tagged(W, &[(0x8100, 100)], 0x0800, &packet);
    }),
    kind("too-long", "long-unknown-ethertype", |f| {
        for len in [1_501, 1_504, 1_505, 8_000] {
            f.ether(W, 0x88B5, &filled(len));
        }
    }),
    kind("too-long", "long-multicast", |f| {
        let packet = Ip4 { target: [239, 1, 2, 3].into(), ..f.ip4(W, 17, &filled(4_000)) };
        f.ether_to(W, [1, 0, 0x5E, 1, 2, 3], 0x0800, &packet.bytes());
    }),
    kind("too-long", "long-esp", |f| {
        f.send4(W, &f.ip4(W, 50, &filled(8_000)));
        f.send4(W, &Ip4 { fragment: 0, ..f.ip4(W, 50, &filled(8_000)) });
    }),
];

/// Sends a UDP datagram from each side, with the IPv4 header changed by `change`.
fn each(f: &mut Frames, change: impl Fn(Ip4) -> Ip4) {
    for from in BOTH {
        let packet = f.ip4(from, 17, &udp(f.pseudo4(from, 17), [1_000, 2_000], &filled(120)));
        f.send4(from, &change(packet));
    }
}

fn each6(f: &mut Frames, change: impl Fn(Ip6) -> Ip6) {
    for from in BOTH {
        let packet = f.ip6(from, 17, &udp(f.pseudo6(from, 17), [1_000, 2_000], &filled(120)));
        f.send6(from, &change(packet));
    }
}

/// Sends the fragments of datagrams of both IP versions from both sides, in the order that `order` returns.
fn fragments(f: &mut Frames, order: impl Fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>) {
    for from in BOTH {
        let body = udp(f.pseudo4(from, 17), [1_000, 2_000], &filled(4_000));
        let whole = Ip4 { fragment: 0, ..f.ip4(from, 17, &body) };
        let packets = order(whole.fragments(1_400).iter().map(Ip4::bytes).collect());
        packets.iter().for_each(|packet| f.ether(from, 0x0800, packet));
        let body = udp(f.pseudo6(from, 17), [1_000, 2_000], &filled(4_000));
        let packets = order(f.ip6(from, 17, &body).fragments(1_400, 9).iter().map(Ip6::bytes).collect());
        packets.iter().for_each(|packet| f.ether(from, 0x86DD, packet));
    }
}
