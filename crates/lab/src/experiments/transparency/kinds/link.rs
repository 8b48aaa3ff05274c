//! A kind of link-layer or multicast traffic -> the frames to send: neighbours, link protocols, tags, multicast.
//!
//! The engine does not process such frames, so a gateway must forward them as a bridge does.

use super::super::frames::{Frames, Ip4, Ip6, Side, Tcp, filled, icmp, udp};
use super::{ALERT, ALL_NODES, BOTH, Kind, N, W, kind, short};
use packet::Sum;

/// Kinds of frames: neighbour discovery, address configuration, link protocols, VLAN tags, multicast and broadcast.
pub(super) const NEIGHBOURS_LINKS_GROUPS: &[Kind] = &[
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
        // 802.3 with SNAP: an IP packet that IP stacks ignore.
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

/// Sends a neighbour discovery message to an IPv6 address.
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

/// Sends a short, a long and a full-size packet, and a SYN, behind tags, from both sides.
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

const BROADCAST: [u8; 6] = [0xFF; 6];
const ALL_ROUTERS: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
