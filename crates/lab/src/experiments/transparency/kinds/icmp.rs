//! A kind of ICMP message -> the packets to send: echo, errors, traceroute.
//!
//! Path MTU discovery depends on ICMP errors, so they must cross a gateway unchanged.

use super::super::frames::{Frames, Ip4, Ip6, filled, icmp, udp};
use super::{BOTH, Kind, N, W, kind, short};

/// Kinds of ICMP messages, for both IP versions.
pub(super) const MESSAGES: &[Kind] = &[
    short("icmp", "icmp-echo", |f| {
        for from in BOTH {
            for (v4, v6) in [(8, 128), (0, 129)] {
                let body = [&[0, 7, 0, 1][..], &filled(56)].concat();
                f.send4(from, &f.ip4(from, 1, &icmp(v4, 0, &body, None)));
                f.send6(from, &f.ip6(from, 58, &icmp(v6, 0, &body, Some(f.pseudo6(from, 58)))));
            }
        }
    }),
    short("icmp", "icmp-unreachable", |f| (0..=5).for_each(|code| icmp_error(f, [3, 1], code, [0; 4]))),
    short("icmp", "icmp-too-big", |f| {
        complaint4(f, 3, 4, [0, 0, 5, 0]);
        complaint4(f, 3, 4, [0; 4]);
        complaint6(f, 2, 0, [0, 0, 5, 0]);
    }),
    kind("icmp", "icmp-time-exceeded", |f| icmp_error(f, [11, 3], 0, [0; 4])),
    kind("icmp", "icmp-parameter-problem", |f| icmp_error(f, [12, 4], 0, [0, 0, 0, 9])),
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
];

/// Sends ICMP errors about a packet of the other side, for both IP versions.
fn icmp_error(f: &mut Frames, [v4, v6]: [u8; 2], code: u8, field: [u8; 4]) {
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
