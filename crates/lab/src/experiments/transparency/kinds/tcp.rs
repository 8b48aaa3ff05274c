//! A kind of TCP traffic -> the segments to send: options, flags, checksums, order, bulk.
//!
//! A gateway changes TCP more than other protocols, by coalescing. So TCP has many kinds.

use super::super::frames::{ACK, AE, CWR, ECE, FIN, Frames, Ip4, Ip6, PSH, RST, SYN, Side, Tcp, URG, filled};
use super::{BOTH, Kind, N, W, kind, short};
use packet::Sum;

/// Kinds of TCP segments.
pub(super) const SEGMENTS: &[Kind] = &[
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
        // An Ethernet payload has at least 46 bytes: zeros pad a short packet.
        for from in BOTH {
            for seq in [1_001_u32, 1_003, 1_005] {
                let packet = f.ip4(from, 6, &Tcp::data(seq, b"ab").bytes(f.pseudo4(from, 6))).bytes();
                f.ether(from, 0x0800, &[&packet[..], &[0; 4]].concat());
            }
        }
    }),
];

/// Sends segments of a stream, 1,400 bytes each, over IPv4 and over IPv6.
fn stream(f: &mut Frames, from: Side, count: u32, options: &[u8], flags: u16) {
    for index in 0..count {
        let segment = Tcp { flags, options: options.to_vec(), ..Tcp::data(1_001 + index * 1_400, &filled(1_400)) };
        f.both(from, 6, |sum| segment.bytes(sum));
    }
}

/// Sends a TCP handshake with these options, and then data from both sides.
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
