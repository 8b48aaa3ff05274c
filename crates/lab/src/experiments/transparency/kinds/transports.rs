//! A kind of tunnel, or of transport other than TCP -> the packets to send.
//!
//! A gateway does not resize packets inside tunnels, and must not mistake such packets for TCP packets.

use super::super::frames::{Frames, Tcp, filled, udp};
use super::{BOTH, Kind, N, W, kind, short};
use packet::Sum;

/// Kinds of tunnels, and of transports other than TCP and UDP.
pub(super) const TRANSPORTS_AND_TUNNELS: &[Kind] = &[
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
];

/// Kinds of UDP messages.
pub(super) const DATAGRAMS: &[Kind] = &[
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
];

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

/// Sends IPv4 packets with TCP, behind a tunnel header.
fn tunnelled(f: &mut Frames, protocol: u8, header: &[u8]) {
    for from in BOTH {
        for index in 0..4 {
            let segment = Tcp::data(1_001 + index * 1_000, &filled(1_000)).bytes(f.pseudo4(from, 6));
            let inner = f.ip4(from, 6, &segment).bytes();
            f.both(from, protocol, |_| [header, &inner].concat());
        }
    }
}

/// Sends frames with TCP, behind UDP and a tunnel header.
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
