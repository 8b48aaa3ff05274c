//! The name of a kind in, its frames out: what hosts send across a link, good and bad.

use super::frames::{
    ACK, AE, CWR, DF, ECE, FIN, Frames, Ip4, Ip6, MORE, PSH, RST, SYN, Side, Tcp, URG, filled, icmp, udp,
};
use packet::Sum;

/// One kind of traffic.
pub(super) struct Kind {
    pub name: &'static str,
    pub family: &'static str,
    /// Part of the short run?
    pub is_short: bool,
    pub make: fn(&mut Frames),
}

const N: Side = Side::Narrow;
const W: Side = Side::Wide;
const BOTH: [Side; 2] = [N, W];

const fn kind(family: &'static str, name: &'static str, make: fn(&mut Frames)) -> Kind {
    Kind { name, family, is_short: false, make }
}

const fn short(family: &'static str, name: &'static str, make: fn(&mut Frames)) -> Kind {
    Kind { name, family, is_short: true, make }
}

/// All kinds of raw frames.
pub(super) const KINDS: &[Kind] = &[
    // Neighbours and configuration
    short("arp", "arp-request", |f| BOTH.iter().for_each(|&from| arp(f, from, 1, BROADCAST))),
    kind("arp", "arp-reply", |f| BOTH.iter().for_each(|&from| arp(f, from, 2, f.mac(from.other())))),
    kind("arp", "arp-gratuitous", gratuitous),
    kind("arp", "arp-probe-reverse", |f| {
        for from in BOTH {
            let body = [&[0, 1, 8, 0, 6, 4, 0, 3][..], &f.mac(from), &[0; 4], &f.mac(from), &[0; 4]].concat();
            f.ether_to(from, BROADCAST, 0x8035, &body);
        }
    }),
    short("nd", "nd-solicitation", |f| {
        let target = f.v6(W).octets();
        let rest = [&[0; 4][..], &target, &[1, 1], &f.mac(N)].concat();
        let [.., a, b, c] = target;
        nd(f, N, [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, a, b, c], 135, &rest);
    }),
    kind("nd", "nd-advertisement", |f| {
        let rest = [&[0x60, 0, 0, 0][..], &f.v6(W).octets(), &[2, 1], &f.mac(W)].concat();
        let target = f.v6(N).octets();
        nd(f, W, target, 136, &rest);
    }),
    kind("nd", "nd-router-solicitation", |f| {
        let rest = [&[0; 4][..], &[1, 1], &f.mac(N)].concat();
        nd(f, N, ALL_ROUTERS, 133, &rest);
    }),
    short("nd", "nd-router-advertisement", |f| {
        let mtu = [5, 1, 0, 0, 0, 0, 0x23, 0x28];
        let rest = [&[64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0][..], &[1, 1], &f.mac(W), &mtu].concat();
        nd(f, W, ALL_NODES, 134, &rest);
    }),
    kind("nd", "nd-redirect", |f| {
        let rest = [&[0; 4][..], &f.v6(W).octets(), &f.v6(N).octets()].concat();
        let target = f.v6(N).octets();
        nd(f, W, target, 137, &rest);
    }),
    kind("nd", "mld-report", |f| {
        let rest = [&[0, 0, 0, 1, 4, 0, 0, 0][..], &[0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]].concat();
        nd(f, N, [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16], 143, &rest);
    }),
    kind("multicast", "igmp-report", |f| {
        let body = icmp(0x16, 0, &[239, 1, 2, 3], None);
        let packet = Ip4 { target: [239, 1, 2, 3].into(), ttl: 1, options: ALERT.to_vec(), ..f.ip4(N, 2, &body) };
        f.ether_to(N, [1, 0, 0x5E, 1, 2, 3], 0x0800, &packet.bytes());
    }),
    short("dhcp", "dhcp-discover", |f| dhcp(f, N, 1)),
    kind("dhcp", "dhcp-offer", |f| dhcp(f, W, 2)),
    kind("dhcp", "dhcp-v6", |f| {
        let target = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2];
        let sum = Sum::of(&f.v6(N).octets()) + Sum::of(&target) + Sum::word(17);
        let body = udp(sum, [546, 547], &[1, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, 1]);
        let packet = Ip6 { target: target.into(), hops: 1, ..f.ip6(N, 17, &body) };
        f.ether_to(N, [0x33, 0x33, 0, 1, 0, 2], 0x86DD, &packet.bytes());
    }),
    // Link protocols
    kind("link", "lldp", |f| {
        BOTH.iter().for_each(|&from| f.ether_to(from, [1, 0x80, 0xC2, 0, 0, 0x0E], 0x88CC, &filled(60)))
    }),
    kind("link", "lldp-customer", |f| f.ether_to(N, [1, 0x80, 0xC2, 0, 0, 0], 0x88CC, &filled(60))),
    kind("link", "stp", |f| {
        let body = [&[0x42, 0x42, 3, 0, 0, 0, 0][..], &filled(31), &[0; 8]].concat();
        BOTH.iter().for_each(|&from| f.ether_to(from, [1, 0x80, 0xC2, 0, 0, 0], 38, &body));
    }),
    kind("link", "pvst", |f| f.ether_to(N, [1, 0, 0x0C, 0xCC, 0xCC, 0xCD], 50, &filled(50))),
    kind("link", "lacp", |f| {
        BOTH.iter().for_each(|&from| f.ether_to(from, [1, 0x80, 0xC2, 0, 0, 2], 0x8809, &filled(110)))
    }),
    kind("link", "pause", |f| f.ether_to(N, [1, 0x80, 0xC2, 0, 0, 1], 0x8808, &[0, 1, 0xFF, 0xFF])),
    kind("link", "eapol", |f| f.ether_to(N, [1, 0x80, 0xC2, 0, 0, 3], 0x888E, &filled(46))),
    kind("link", "ptp", |f| f.ether_to(N, [1, 0x1B, 0x19, 0, 0, 0], 0x88F7, &filled(46))),
    kind("link", "unknown-ethertype", |f| {
        for len in [0, 1, 46, 47, 1_499, 1_500] {
            BOTH.iter().for_each(|&from| f.ether(from, 0x88B5, &filled(len)));
        }
    }),
    kind("link", "llc", |f| {
        for len in [3_u16, 46, 100, 1_500] {
            f.ether(N, len, &filled(len.into()));
        }
        // Ethernet in 802.3 with SNAP: an IP packet that no IP stack sees.
        let ip = f.ip4(N, 17, &filled(30)).bytes();
        f.ether(N, 58, &[&[0xAA, 0xAA, 3, 0, 0, 0, 8, 0][..], &ip].concat());
    }),
    kind("link", "ipx-length-field", |f| f.ether(N, 46, &[&[0xFF, 0xFF][..], &filled(44)].concat())),
    kind("link", "mpls", |f| {
        for from in BOTH {
            let ip = f.ip4(from, 17, &filled(500)).bytes();
            f.ether(from, 0x8847, &[&[0, 1, 0x01, 64][..], &ip].concat());
            f.ether(from, 0x8848, &[&[0, 1, 0x00, 64, 0, 2, 0x01, 64][..], &ip].concat());
        }
    }),
    kind("link", "pppoe", |f| {
        for from in BOTH {
            let ip = f.ip4(from, 6, &Tcp::syn(&[2, 4, 5, 0xA0]).bytes(f.pseudo4(from, 6))).bytes();
            f.ether(from, 0x8863, &[&[0x11, 9, 0, 0, 0, 4][..], &[1, 1, 0, 0]].concat());
            let len = (ip.len() as u16 + 2).to_be_bytes();
            f.ether(from, 0x8864, &[&[0x11, 0, 0, 1][..], &len, &[0, 0x21], &ip].concat());
        }
    }),
    kind("link", "macsec", |f| f.ether(N, 0x88E5, &filled(600))),
    // Tags
    short("vlan", "vlan", |f| tags(f, &[(0x8100, 100)])),
    kind("vlan", "vlan-priority", |f| tags(f, &[(0x8100, 0xA000)])),
    kind("vlan", "vlan-dei", |f| tags(f, &[(0x8100, 0x1064)])),
    kind("vlan", "vlan-4095", |f| tags(f, &[(0x8100, 0xFFF)])),
    short("vlan", "qinq", |f| tags(f, &[(0x88A8, 200), (0x8100, 100)])),
    kind("vlan", "qinq-8100", |f| tags(f, &[(0x8100, 200), (0x8100, 100)])),
    kind("vlan", "qinq-9100", |f| tags(f, &[(0x9100, 200), (0x8100, 100)])),
    kind("vlan", "three-tags", |f| tags(f, &[(0x88A8, 300), (0x8100, 200), (0x8100, 100)])),
    kind("vlan", "vlan-arp", |f| {
        let body =
            [&[0, 1, 8, 0, 6, 4, 0, 1][..], &f.mac(N), &f.v4(N).octets(), &[0; 6], &f.v4(W).octets()].concat();
        f.tagged(N, &[(0x8100, 7)], 0x0806, &body);
        f.tagged(W, &[(0x88A8, 7)], 0x0806, &body);
    }),
    // Multicast and broadcast
    short("multicast", "multicast-v4", |f| cast(f, [224, 0, 0, 251])),
    kind("multicast", "multicast-v4-global", |f| cast(f, [239, 200, 1, 2])),
    kind("multicast", "multicast-v6", |f| {
        for from in BOTH {
            let target = [0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
            let sum = Sum::of(&f.v6(from).octets()) + Sum::of(&target) + Sum::word(17);
            let packet = Ip6 { target: target.into(), ..f.ip6(from, 17, &udp(sum, [5_353; 2], &filled(300))) };
            f.ether_to(from, [0x33, 0x33, 0, 0, 1, 2], 0x86DD, &packet.bytes());
        }
    }),
    kind("multicast", "broadcast-v4", |f| {
        for from in BOTH {
            let packet = Ip4 { target: [255; 4].into(), ..f.ip4(from, 17, &filled(200)) };
            f.ether_to(from, BROADCAST, 0x0800, &packet.bytes());
        }
    }),
    kind("multicast", "unicast-in-broadcast-frame", |f| {
        let packet = f.ip4(N, 17, &filled(100)).bytes();
        f.ether_to(N, BROADCAST, 0x0800, &packet);
    }),
    // Other transports and tunnels
    short("transport", "sctp", |f| raw_transport(f, 132, 400)),
    kind("transport", "dccp", |f| raw_transport(f, 33, 400)),
    kind("transport", "udp-lite", |f| raw_transport(f, 136, 400)),
    short("transport", "esp", |f| raw_transport(f, 50, 1_400)),
    kind("transport", "ah", |f| {
        for from in BOTH {
            let inner = udp(f.pseudo4(from, 17), [1_000, 2_000], &filled(100));
            let header = [&[17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &filled(12)].concat();
            f.send4(from, &f.ip4(from, 51, &[header.clone(), inner.clone()].concat()));
            f.send6(from, &f.ip6(from, 51, &[header, inner].concat()));
        }
    }),
    kind("transport", "ipcomp", |f| raw_transport(f, 108, 300)),
    kind("transport", "ospf", |f| raw_transport(f, 89, 64)),
    kind("transport", "vrrp", |f| raw_transport(f, 112, 20)),
    kind("transport", "unknown-protocol", |f| {
        raw_transport(f, 253, 700);
        raw_transport(f, 255, 700);
    }),
    kind("transport", "no-next-header", |f| f.send6(N, &f.ip6(N, 59, &filled(20)))),
    short("tunnel", "nat-t", |f| message(f, [4_500; 2], 1_200)),
    kind("tunnel", "nat-t-keepalive", |f| {
        f.both(N, 17, |sum| udp(sum, [4_500; 2], &[0xFF]));
    }),
    short("tunnel", "quic", |f| {
        for number in 0..20 {
            f.both(N, 17, |sum| udp(sum, [50_000, 443], &[&[0x40, number][..], &filled(1_250)].concat()));
            f.both(W, 17, |sum| udp(sum, [443, 50_000], &[&[0x40, number][..], &filled(1_250)].concat()));
        }
    }),
    kind("tunnel", "wireguard", |f| message(f, [51_820; 2], 1_420)),
    kind("tunnel", "gre", |f| tunnelled(f, 47, &[0, 0, 8, 0])),
    kind("tunnel", "gre-key-checksum", |f| tunnelled(f, 47, &[0xB0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1])),
    kind("tunnel", "ipip", |f| tunnelled(f, 4, &[])),
    kind("tunnel", "6in4", |f| {
        for from in BOTH {
            let inner = f.ip6(from, 6, &Tcp::syn(&[2, 4, 5, 0xA0]).bytes(f.pseudo6(from, 6))).bytes();
            f.send4(from, &f.ip4(from, 41, &inner));
            f.send6(from, &f.ip6(from, 41, &inner));
        }
    }),
    kind("tunnel", "vxlan", |f| over_udp(f, 4_789, &[8, 0, 0, 0, 0, 0, 42, 0], false)),
    kind("tunnel", "vxlan-no-checksum", |f| over_udp(f, 4_789, &[8, 0, 0, 0, 0, 0, 42, 0], true)),
    kind("tunnel", "geneve", |f| over_udp(f, 6_081, &[0, 0, 0x65, 0x58, 0, 0, 42, 0], false)),
    kind("tunnel", "fou", |f| {
        for from in BOTH {
            let inner = f.ip4(from, 6, &Tcp::data(1, &filled(300)).bytes(f.pseudo4(from, 6))).bytes();
            f.both(from, 17, |sum| udp(sum, [5_555, 5_555], &inner));
        }
    }),
    kind("tunnel", "l2tp", |f| raw_transport(f, 115, 900)),
    // TCP
    short("tcp", "tcp-syn-mss", |f| {
        for from in BOTH {
            f.both(from, 6, |sum| Tcp::syn(&[2, 4, 5, 0xB4]).bytes(sum));
            f.both(from, 6, |sum| {
                Tcp { flags: SYN | ACK, ack: 1, ports: [5_001, 40_001], ..Tcp::syn(&[2, 4, 5, 0xB4]) }.bytes(sum)
            });
        }
    }),
    kind("tcp", "tcp-syn-mss-wide", |f| {
        BOTH.iter().for_each(|&from| f.both(from, 6, |sum| Tcp::syn(&[2, 4, 0x23, 0]).bytes(sum)))
    }),
    kind("tcp", "tcp-syn-mss-odd", |f| {
        f.both(N, 6, |sum| Tcp::syn(&[1, 2, 4, 5, 0xB4, 1, 1, 0]).bytes(sum));
        f.both(N, 6, |sum| Tcp { ports: [40_002, 5_001], ..Tcp::syn(&[1, 1, 1, 2, 4, 5, 0xB4, 0]) }.bytes(sum));
    }),
    kind("tcp", "tcp-syn-without-options", |f| {
        BOTH.iter().for_each(|&from| f.both(from, 6, |sum| Tcp::syn(&[]).bytes(sum)))
    }),
    kind("tcp", "tcp-syn-options-cut", |f| {
        f.both(N, 6, |sum| Tcp::syn(&[2, 9, 5, 0xB4]).bytes(sum));
        f.both(N, 6, |sum| Tcp { ports: [40_002, 5_001], ..Tcp::syn(&[8, 0, 2, 4]) }.bytes(sum));
        f.both(N, 6, |sum| Tcp { ports: [40_003, 5_001], ..Tcp::syn(&[1, 1, 2, 4]) }.bytes(sum));
    }),
    short("tcp", "tcp-md5", |f| {
        let option = [&[19, 18][..], &filled(16), &[1, 1]].concat();
        f.both(N, 6, |sum| Tcp::syn(&[&[2, 4, 5, 0xB4][..], &option].concat()).bytes(sum));
        stream(f, N, 4, &option, ACK);
        stream(f, W, 4, &option, ACK);
    }),
    kind("tcp", "tcp-ao", |f| {
        let option = [&[29, 16, 1, 1][..], &filled(12)].concat();
        f.both(N, 6, |sum| Tcp::syn(&[&[2, 4, 5, 0xB4][..], &option].concat()).bytes(sum));
        stream(f, N, 4, &option, ACK);
    }),
    kind("tcp", "tcp-mptcp", |f| {
        let capable = [&[2, 4, 5, 0xB4, 30, 4, 1, 0x81][..]].concat();
        f.both(N, 6, |sum| Tcp::syn(&capable).bytes(sum));
        for part in 0..4_u8 {
            let dss = [30, 20, 0x20, 0x05, 0, 0, 0, 1, 0, 0, 0, part, 0, 0, 0, part, 5, 0, 0, 0];
            f.both(N, 6, |sum| {
                Tcp { options: dss.to_vec(), ..Tcp::data(1_001 + u32::from(part) * 1_280, &filled(1_280)) }
                    .bytes(sum)
            });
        }
    }),
    kind("tcp", "tcp-fast-open", |f| {
        let options = [&[2, 4, 5, 0xB4, 34, 10][..], &filled(8), &[1, 1]].concat();
        f.both(N, 6, |sum| Tcp { payload: filled(400), ..Tcp::syn(&options) }.bytes(sum));
        f.both(N, 6, |sum| Tcp { ports: [40_002, 5_001], ..Tcp::syn(&[34, 2, 1, 1]) }.bytes(sum));
    }),
    kind("tcp", "tcp-accecn-syn", |f| {
        f.both(N, 6, |sum| Tcp { flags: SYN | ECE | CWR | AE, ..Tcp::syn(&[2, 4, 5, 0xB4]) }.bytes(sum));
    }),
    short("tcp", "tcp-accecn-data", |f| {
        for (index, flags) in [AE, CWR, ECE, AE | CWR, AE | ECE, CWR | ECE, AE | CWR | ECE].into_iter().enumerate()
        {
            f.both(N, 6, |sum| {
                Tcp { flags: ACK | flags, ..Tcp::data(1_001 + index as u32 * 1_000, &filled(1_000)) }.bytes(sum)
            });
        }
    }),
    kind("tcp", "tcp-ecn-marks", |f| {
        for (index, tos) in [2_u8, 1, 3, 0, 2, 3].into_iter().enumerate() {
            let segment = Tcp::data(1_001 + index as u32 * 1_000, &filled(1_000));
            f.send4(N, &Ip4 { tos, ..f.ip4(N, 6, &segment.bytes(f.pseudo4(N, 6))) });
            f.send6(N, &Ip6 { class: tos, ..f.ip6(N, 6, &segment.bytes(f.pseudo6(N, 6))) });
        }
    }),
    kind("tcp", "tcp-urgent", |f| {
        for (index, flags) in [ACK, ACK | URG, ACK].into_iter().enumerate() {
            f.both(N, 6, |sum| {
                let urgent = if flags & URG == 0 { 0 } else { 5 };
                Tcp { flags, urgent, ..Tcp::data(1_001 + index as u32 * 500, &filled(500)) }.bytes(sum)
            });
        }
    }),
    kind("tcp", "tcp-keep-alive", |f| {
        BOTH.iter().for_each(|&from| {
            f.both(from, 6, |sum| Tcp::data(999, &[]).bytes(sum));
            f.both(from, 6, |sum| Tcp::data(999, &[0]).bytes(sum));
        })
    }),
    kind("tcp", "tcp-zero-window", |f| {
        f.both(N, 6, |sum| Tcp { window: 0, ..Tcp::data(1_001, &[]) }.bytes(sum));
        f.both(N, 6, |sum| Tcp { window: 9, ..Tcp::data(1_001, &[]) }.bytes(sum));
        f.both(W, 6, |sum| Tcp::data(7_000, &[1]).bytes(sum));
    }),
    kind("tcp", "tcp-half-close", |f| {
        f.both(N, 6, |sum| Tcp { flags: ACK | FIN, ..Tcp::data(1_001, &[]) }.bytes(sum));
        f.both(N, 6, |sum| Tcp { ack: 8_000, ..Tcp::data(1_002, &[]) }.bytes(sum));
        f.both(W, 6, |sum| Tcp { flags: ACK | FIN | PSH, ..Tcp::data(7_000, &filled(1_000)) }.bytes(sum));
    }),
    kind("tcp", "tcp-reset", |f| {
        BOTH.iter().for_each(|&from| {
            f.both(from, 6, |sum| Tcp { flags: RST, ..Tcp::data(1_001, &[]) }.bytes(sum));
            f.both(from, 6, |sum| Tcp { flags: RST | ACK, ..Tcp::data(1_001, b"reason") }.bytes(sum));
        })
    }),
    kind("tcp", "tcp-odd-flags", |f| {
        for flags in [0, SYN | FIN, SYN | RST, FIN, PSH | URG | FIN, 0x1FF, 0xE00 | ACK] {
            f.both(N, 6, |sum| Tcp { flags, ..Tcp::data(1_001, &filled(100)) }.bytes(sum));
        }
    }),
    short("tcp", "tcp-syn-flood", |f| {
        for port in 0..200 {
            f.both(N, 6, |sum| Tcp { ports: [20_000 + port, 80], ..Tcp::syn(&[2, 4, 5, 0xB4]) }.bytes(sum));
        }
    }),
    short("tcp", "tcp-bad-checksum", |f| {
        BOTH.iter().for_each(|&from| {
            for (index, checksum) in [0, 0xFFFF, 0x1234].into_iter().enumerate() {
                f.both(from, 6, |sum| {
                    Tcp { checksum: Some(checksum), ..Tcp::data(1_001 + index as u32 * 900, &filled(900)) }
                        .bytes(sum)
                });
            }
        })
    }),
    kind("tcp", "tcp-bad-checksum-in-stream", |f| {
        for index in 0..5 {
            let checksum = (index == 2).then_some(0xBEEF);
            f.both(N, 6, |sum| Tcp { checksum, ..Tcp::data(1_001 + index * 900, &filled(900)) }.bytes(sum));
        }
    }),
    kind("tcp", "tcp-bad-checksum-syn", |f| {
        f.both(N, 6, |sum| Tcp { checksum: Some(0xBEEF), ..Tcp::syn(&[2, 4, 5, 0xB4]) }.bytes(sum));
    }),
    kind("tcp", "tcp-checksum-of-pseudo-header", |f| {
        for from in BOTH {
            let sum = f.pseudo4(from, 6) + Sum::word(20 + 600);
            let segment = Tcp { checksum: Some(sum.fold()), ..Tcp::data(1_001, &filled(600)) };
            f.send4(from, &f.ip4(from, 6, &segment.bytes(sum)));
        }
    }),
    kind("tcp", "tcp-old-duplicates", |f| {
        for seq in [1_001, 2_001, 1_001, 1_001, 2_001, 3_001] {
            f.both(N, 6, |sum| Tcp::data(seq, &filled(1_000)).bytes(sum));
        }
    }),
    kind("tcp", "tcp-partial-overlap", |f| {
        for seq in [1_001, 1_501, 2_001, 1_901] {
            f.both(N, 6, |sum| Tcp::data(seq, &filled(1_000)).bytes(sum));
        }
    }),
    kind("tcp", "tcp-out-of-order", |f| {
        for seq in [5_001, 3_001, 4_001, 1_001, 2_001] {
            f.both(N, 6, |sum| Tcp::data(seq, &filled(1_000)).bytes(sum));
        }
    }),
    kind("tcp", "tcp-acks", |f| {
        for ack in [1, 1, 1, 1_001, 2_001, 500, 2_001] {
            f.both(W, 6, |sum| Tcp { ack, ..Tcp::data(7_000, &[]) }.bytes(sum));
            f.both(N, 6, |sum| Tcp { ack, ..Tcp::data(7_000, &[]) }.bytes(sum));
        }
    }),
    kind("tcp", "tcp-sack", |f| {
        for index in 0..3 {
            let options = [1, 1, 5, 10, 0, 0, 40, 0, 0, 0, 41, index];
            f.both(N, 6, |sum| Tcp { options: options.to_vec(), ..Tcp::data(7_000, &[]) }.bytes(sum));
        }
    }),
    short("tcp", "tcp-connection", |f| connection(f, &[])),
    kind("tcp", "tcp-connection-timestamps", |f| connection(f, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])),
    short("tcp", "tcp-bulk-to-wide", |f| stream(f, N, 12, &[], ACK)),
    kind("tcp", "tcp-bulk-to-wide-timestamps", |f| stream(f, N, 12, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], ACK)),
    kind("tcp", "tcp-bulk-to-narrow", |f| stream(f, W, 12, &[], ACK)),
    kind("tcp", "tcp-wide-segments", |f| {
        for index in 0..3 {
            f.both(W, 6, |sum| Tcp::data(1_001 + index * 8_900, &filled(8_900)).bytes(sum));
        }
    }),
    kind("tcp", "tcp-header-cut", |f| {
        for len in [0, 8, 13, 19] {
            let whole = Tcp::data(1, &[]).bytes(Sum::ZERO);
            f.both(N, 6, |_| whole[..len].to_vec());
        }
        let mut long = Tcp::data(1, &[]).bytes(Sum::ZERO);
        long[12] = 0xF0;
        f.both(N, 6, |_| long.clone());
        long[12] = 0x40;
        f.both(N, 6, |_| long.clone());
    }),
    kind("tcp", "tcp-in-padding", |f| {
        // 46 bytes of payload is the least that a wire carries: a short packet has zeros behind it.
        for from in BOTH {
            for seq in [1_001_u32, 1_003, 1_005] {
                let packet = f.ip4(from, 6, &Tcp::data(seq, b"ab").bytes(f.pseudo4(from, 6))).bytes();
                f.ether(from, 0x0800, &[&packet[..], &[0; 4]].concat());
            }
        }
    }),
    // IPv4 headers
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
    // UDP
    short("udp", "udp-no-checksum", |f| {
        for from in BOTH {
            let mut body = udp(f.pseudo4(from, 17), [1, 2], &filled(100));
            body[6..8].fill(0);
            f.send4(from, &f.ip4(from, 17, &body));
            f.send6(from, &f.ip6(from, 17, &body));
        }
    }),
    kind("udp", "udp-bad-checksum", |f| {
        BOTH.iter().for_each(|&from| f.both(from, 17, |_| udp(Sum::word(9), [1, 2], &filled(100))))
    }),
    kind("udp", "udp-length-mismatch", |f| {
        for len in [0_u16, 7, 8, 50, 109, 2_000] {
            f.both(N, 17, |sum| {
                let mut body = udp(sum, [1, 2], &filled(100));
                body[4..6].copy_from_slice(&len.to_be_bytes());
                body
            });
        }
    }),
    kind("udp", "udp-empty", |f| BOTH.iter().for_each(|&from| f.both(from, 17, |sum| udp(sum, [1, 2], &[])))),
    kind("udp", "udp-sizes", |f| {
        for len in (1..1_452).step_by(121) {
            BOTH.iter().for_each(|&from| f.both(from, 17, |sum| udp(sum, [1, 2], &filled(len))));
        }
    }),
    // IPv6
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
    // Fragments
    short("fragments", "fragments-in-order", |f| pieces(f, |p| p)),
    short("fragments", "fragments-reversed", |f| {
        pieces(f, |mut p| {
            p.reverse();
            p
        })
    }),
    kind("fragments", "fragments-last-first", |f| {
        pieces(f, |mut p| {
            p.rotate_right(1);
            p
        })
    }),
    kind("fragments", "fragments-duplicated", |f| pieces(f, |p| p.iter().chain(&p).cloned().collect())),
    kind("fragments", "fragments-incomplete", |f| {
        pieces(f, |mut p| {
            p.remove(1);
            p
        })
    }),
    kind("fragments", "fragments-without-first", |f| {
        pieces(f, |mut p| {
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
        for piece in (Ip4 { fragment: 0, ..f.ip4(N, 17, &filled(80)) }).fragments(8) {
            f.send4(N, &piece);
        }
        for piece in f.ip6(N, 17, &filled(80)).fragments(8, 7) {
            f.send6(N, &piece);
        }
    }),
    kind("fragments", "fragments-atomic", |f| {
        for from in BOTH {
            f.ip6(from, 17, &filled(200)).fragments(1_000, 77).iter().for_each(|piece| f.send6(from, piece));
        }
    }),
    kind("fragments", "fragments-df", |f| {
        for from in BOTH {
            for piece in (Ip4 { fragment: 0, ..f.ip4(from, 17, &filled(3_000)) }).fragments(1_480) {
                f.send4(from, &Ip4 { fragment: piece.fragment | DF, ..piece });
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
            for piece in (Ip4 { fragment: 0, ..f.ip4(from, 6, &segment) }).fragments(1_400) {
                f.send4(from, &piece);
            }
        }
    }),
    kind("fragments", "fragments-full-size", |f| {
        for from in BOTH {
            for piece in (Ip4 { fragment: 0, ..f.ip4(from, 17, &filled(5_920)) }).fragments(1_480) {
                f.send4(from, &piece);
            }
        }
    }),
    // ICMP
    short("icmp", "icmp-echo", |f| {
        for from in BOTH {
            for (v4, v6) in [(8, 128), (0, 129)] {
                let body = [&[0, 7, 0, 1][..], &filled(56)].concat();
                f.send4(from, &f.ip4(from, 1, &icmp(v4, 0, &body, None)));
                f.send6(from, &f.ip6(from, 58, &icmp(v6, 0, &body, Some(f.pseudo6(from, 58)))));
            }
        }
    }),
    short("icmp", "icmp-unreachable", |f| (0..=5).for_each(|code| complaint(f, [3, 1], code, [0; 4]))),
    short("icmp", "icmp-too-big", |f| {
        complaint4(f, 3, 4, [0, 0, 5, 0]);
        complaint4(f, 3, 4, [0; 4]);
        complaint6(f, 2, 0, [0, 0, 5, 0]);
    }),
    kind("icmp", "icmp-time-exceeded", |f| complaint(f, [11, 3], 0, [0; 4])),
    kind("icmp", "icmp-parameter-problem", |f| complaint(f, [12, 4], 0, [0, 0, 0, 9])),
    kind("icmp", "icmp-source-quench", |f| complaint4(f, 4, 0, [0; 4])),
    kind("icmp", "icmp-redirect", |f| {
        let [a, b, c, d] = f.v4(W).octets();
        complaint4(f, 5, 1, [a, b, c, d]);
    }),
    kind("icmp", "icmp-timestamp", |f| {
        f.send4(N, &f.ip4(N, 1, &icmp(13, 0, &filled(16), None)));
        f.send4(W, &f.ip4(W, 1, &icmp(14, 0, &filled(16), None)));
    }),
    kind("icmp", "icmp-bad-checksum", |f| {
        let body = [&[8, 0, 1, 1, 0, 1, 0, 1][..], &filled(40)].concat();
        f.send4(N, &f.ip4(N, 1, &body));
        f.send6(N, &f.ip6(N, 58, &body));
    }),
    kind("icmp", "icmp-extended", |f| {
        let mut inner = f.ip4(W, 17, &filled(108)).bytes();
        inner.resize(128, 0);
        let rest = [&[0, 32, 0, 0][..], &inner, &[0x20, 0, 0xDF, 0xFF, 0, 8, 1, 1, 0, 1, 0x01, 64]].concat();
        f.send4(N, &f.ip4(N, 1, &icmp(11, 0, &rest, None)));
    }),
    short("icmp", "traceroute", |f| {
        for ttl in 1..=8 {
            let body = udp(f.pseudo4(N, 17), [33_000, 33_433 + u16::from(ttl)], &filled(32));
            f.send4(N, &Ip4 { ttl, ..f.ip4(N, 17, &body) });
            let body = udp(f.pseudo6(N, 17), [33_000, 33_433 + u16::from(ttl)], &filled(32));
            f.send6(N, &Ip6 { hops: ttl, ..f.ip6(N, 17, &body) });
        }
    }),
    // Too long for the narrow link
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

fn arp(f: &mut Frames, from: Side, operation: u8, to: [u8; 6]) {
    let target = if operation == 1 { [0; 6] } else { f.mac(from.other()) };
    let body = [
        &[0, 1, 8, 0, 6, 4, 0, operation][..],
        &f.mac(from),
        &f.v4(from).octets(),
        &target,
        &f.v4(from.other()).octets(),
    ]
    .concat();
    f.ether_to(from, to, 0x0806, &body);
}

fn gratuitous(f: &mut Frames) {
    for from in BOTH {
        let address = f.v4(from).octets();
        let body = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &f.mac(from), &address, &[0; 6], &address, &[0; 18]].concat();
        f.ether_to(from, BROADCAST, 0x0806, &body);
    }
}

/// A message of neighbour discovery, to an address of IPv6.
fn nd(f: &mut Frames, from: Side, target: [u8; 16], kind: u8, rest: &[u8]) {
    let sum = Sum::of(&f.v6(from).octets()) + Sum::of(&target) + Sum::word(58);
    let packet = Ip6 { target: target.into(), hops: 255, ..f.ip6(from, 58, &icmp(kind, 0, rest, Some(sum))) };
    let [.., a, b, c, d] = target;
    let to = if target[0] == 0xFF { [0x33, 0x33, a, b, c, d] } else { f.next_hop(from) };
    f.ether_to(from, to, 0x86DD, &packet.bytes());
}

fn dhcp(f: &mut Frames, from: Side, operation: u8) {
    let mut body = vec![operation, 1, 6, 0, 1, 2, 3, 4];
    body.resize(236, 0);
    body.extend([99, 130, 83, 99, 53, 1, operation, 255]);
    body.resize(300, 0);
    let ports = if operation == 1 { [68, 67] } else { [67, 68] };
    let sum = Sum::of(&[255; 4]) + Sum::word(17);
    let packet = Ip4 { source: [0; 4].into(), target: [255; 4].into(), ..f.ip4(from, 17, &udp(sum, ports, &body)) };
    f.ether_to(from, BROADCAST, 0x0800, &packet.bytes());
}

/// A short, a long and a full packet, and a SYN, behind tags, from both ends.
fn tags(f: &mut Frames, tags: &[(u16, u16)]) {
    for from in BOTH {
        for len in [18, 700, 1_472] {
            let packet = f.ip4(from, 17, &udp(f.pseudo4(from, 17), [1, 2], &filled(len))).bytes();
            f.tagged(from, tags, 0x0800, &packet);
        }
        let packet = f.ip6(from, 17, &udp(f.pseudo6(from, 17), [1, 2], &filled(1_452))).bytes();
        f.tagged(from, tags, 0x86DD, &packet);
        let packet = f.ip4(from, 6, &Tcp::syn(&[2, 4, 5, 0xB4]).bytes(f.pseudo4(from, 6))).bytes();
        f.tagged(from, tags, 0x0800, &packet);
        for ethertype in [0x8864, 0x8847, 0x88B5] {
            f.tagged(from, tags, ethertype, &filled(1_500));
        }
    }
}

fn cast(f: &mut Frames, group: [u8; 4]) {
    for from in BOTH {
        let sum = Sum::of(&f.v4(from).octets()) + Sum::of(&group) + Sum::word(17);
        let packet = Ip4 { target: group.into(), ..f.ip4(from, 17, &udp(sum, [5_353; 2], &filled(300))) };
        f.ether_to(from, [1, 0, 0x5E, group[1] & 0x7F, group[2], group[3]], 0x0800, &packet.bytes());
    }
}

fn raw_transport(f: &mut Frames, protocol: u8, len: usize) {
    for from in BOTH {
        for len in [len, len + 1] {
            f.both(from, protocol, |_| filled(len));
        }
    }
}

fn message(f: &mut Frames, ports: [u16; 2], len: usize) {
    for from in BOTH {
        (0..3).for_each(|index| f.both(from, 17, |sum| udp(sum, ports, &filled(len + index))));
    }
}

/// Packets of IPv4 with TCP, behind a header of a tunnel.
fn tunnelled(f: &mut Frames, protocol: u8, header: &[u8]) {
    for from in BOTH {
        for index in 0..4 {
            let segment = Tcp::data(1_001 + index * 1_000, &filled(1_000)).bytes(f.pseudo4(from, 6));
            let inner = f.ip4(from, 6, &segment).bytes();
            f.both(from, protocol, |_| [header, &inner].concat());
        }
    }
}

/// Frames with TCP, behind UDP and a header of a tunnel.
fn over_udp(f: &mut Frames, port: u16, header: &[u8], is_without_checksum: bool) {
    for from in BOTH {
        for index in 0..4 {
            let segment = Tcp::data(1_001 + index * 1_000, &filled(1_000)).bytes(f.pseudo4(from, 6));
            let inner =
                [&f.mac(from.other())[..], &f.mac(from), &[8, 0], &f.ip4(from, 6, &segment).bytes()].concat();
            f.both(from, 17, |sum| {
                let mut body = udp(sum, [49_152, port], &[header, &inner].concat());
                if is_without_checksum {
                    body[6..8].fill(0);
                }
                body
            });
        }
    }
}

/// Segments of a stream, 1,400 bytes each, by IPv4 and by IPv6.
fn stream(f: &mut Frames, from: Side, count: u32, options: &[u8], flags: u16) {
    for index in 0..count {
        let segment = Tcp { flags, options: options.to_vec(), ..Tcp::data(1_001 + index * 1_400, &filled(1_400)) };
        f.both(from, 6, |sum| segment.bytes(sum));
    }
}

/// A handshake, and then data from both ends.
fn connection(f: &mut Frames, options: &[u8]) {
    let ports = |from| if from == N { [40_000, 5_001] } else { [5_001, 40_000] };
    for (from, flags, mss) in [(N, SYN, [5, 0xB4]), (W, SYN | ACK, [0x23, 0])] {
        let options = [&[2, 4][..], &mss, options].concat();
        f.both(from, 6, |sum| {
            Tcp { ports: ports(from), flags, seq: 1_000, ack: 1_001, ..Tcp::syn(&options) }.bytes(sum)
        });
    }
    let segment = |from, seq, len| Tcp {
        ports: ports(from),
        ack: 1_001,
        options: options.to_vec(),
        ..Tcp::data(seq, &filled(len))
    };
    f.both(N, 6, |sum| segment(N, 1_001, 0).bytes(sum));
    (0..12).for_each(|index| f.both(N, 6, |sum| segment(N, 1_001 + index * 1_400, 1_400).bytes(sum)));
    (0..4).for_each(|index| f.both(W, 6, |sum| segment(W, 1_001 + index * 4_000, 4_000).bytes(sum)));
}

/// A datagram of UDP with another header, from both ends.
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

/// The fragments of datagrams of both versions, from both ends, in the order that `order` makes.
fn pieces(f: &mut Frames, order: impl Fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>) {
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

/// Errors about a packet of the other end, of both versions.
fn complaint(f: &mut Frames, [v4, v6]: [u8; 2], code: u8, field: [u8; 4]) {
    complaint4(f, v4, code, field);
    complaint6(f, v6, code, field);
}

fn complaint4(f: &mut Frames, kind: u8, code: u8, field: [u8; 4]) {
    for from in BOTH {
        let about = f.ip4(from.other(), 17, &udp(f.pseudo4(from.other(), 17), [1, 2], &filled(400))).bytes();
        let rest = [&field[..], &about].concat();
        f.send4(from, &f.ip4(from, 1, &icmp(kind, code, &rest, None)));
    }
}

fn complaint6(f: &mut Frames, kind: u8, code: u8, field: [u8; 4]) {
    for from in BOTH {
        let about = f.ip6(from.other(), 17, &udp(f.pseudo6(from.other(), 17), [1, 2], &filled(400))).bytes();
        let rest = [&field[..], &about].concat();
        f.send6(from, &f.ip6(from, 58, &icmp(kind, code, &rest, Some(f.pseudo6(from, 58)))));
    }
}

const BROADCAST: [u8; 6] = [0xFF; 6];
/// Router alert (RFC 2113).
const ALERT: [u8; 4] = [148, 4, 0, 0];
const ALL_NODES: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_ROUTERS: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
