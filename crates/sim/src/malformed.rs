//! A number -> malformed packets of one of several kinds.
//!
//! A host sends malformed packets in addition to all other traffic. The kinds together cover every reason to drop a
//! packet. Attacks with expected outcomes are left to `attacks`.

use crate::net::Net;
use crate::rng::Rng;
use crate::wire::{
    DESTINATION, FRAGMENT, FRAGMENT_LEN, HOP_BY_HOP, Head, ICMPV6, TCP, UDP, V4_LEN, V6_LEN, seal_v4,
};

/// A generator of malformed packets.
#[derive(Debug)]
pub struct Malformed {
    dice: Rng,
    next: usize,
    /// IP identification of the next packet. The first one is random.
    id: u32,
}

/// A function that sends one kind of malformed packet.
type Wrong = fn(&mut Malformed, &mut Net, &To);

/// The wire and the addresses of malformed packets.
struct To {
    wire: usize,
    head: Head,
}

impl Malformed {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Malformed {
        let mut dice = Rng::new(seed);
        Malformed { next: dice.below(100) as usize, id: dice.number() as u32, dice }
    }

    /// Sends the next kind of malformed packet.
    pub fn send(&mut self, net: &mut Net, wire: usize, from: u16, to: u16, is_v6: bool) {
        let kinds: &[Wrong] = if is_v6 { &V6 } else { &V4 };
        self.next += 1;
        self.id = self.id.wrapping_add(1);
        let head =
            Head { is_v6, from, to, protocol: UDP, dont_fragment: false, id: self.id, ecn: 0, fragment: None };
        kinds[self.next % kinds.len()](self, net, &To { wire, head });
    }

    /// Transmits a packet with `payload_len` payload bytes, after `spoil` has altered the packet. Omits packets
    /// that exceed the wire's MTU.
    fn put(&mut self, net: &mut Net, to: &To, head: Head, payload_len: usize, spoil: impl FnOnce(&mut [u8])) {
        let split = self.dice.number();
        let len = head.header_len() + payload_len;
        if len > net.wires[to.wire].mtu {
            return;
        }
        net.put(to.wire, len, |room| {
            head.write(room);
            room[head.header_len()..].fill(split as u8);
            spoil(room);
        });
    }

    /// Transmits a fragment. All payload bytes have the same value, so that repeated fragments are exact
    /// duplicates.
    fn fragment(&mut self, net: &mut Net, to: &To, offset: usize, more: bool, len: usize, ecn: u8) {
        let head = Head { fragment: Some((offset, more)), ecn, ..to.head };
        let at = head.header_len();
        self.put(net, to, head, len, |frame| {
            frame[at..].fill(7);
            if offset == 0 && len >= 8 {
                // Port 0 belongs to no flow.
                frame[at..at + 4].fill(0);
            }
        });
    }
}

fn truncated(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 24, |frame| {
        if frame[0] >> 4 == 4 {
            frame[2..4].copy_from_slice(&1_000u16.to_be_bytes());
            seal_v4(&mut frame[..V4_LEN]);
        } else {
            frame[4..6].copy_from_slice(&1_000u16.to_be_bytes());
        }
    });
}

fn bad_version(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 24, |frame| frame[0] = 0x75);
}

fn bad_header_len(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 24, |frame| frame[0] = 0x43);
}

fn bad_total_len(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 24, |frame| {
        frame[2..4].copy_from_slice(&12u16.to_be_bytes());
        seal_v4(&mut frame[..V4_LEN]);
    });
}

fn bad_header_sum(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 24, |frame| frame[10] ^= 1);
}

fn zero_len(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 16, true, 0, 0);
}

fn len_not_8(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 16, true, 21, 0);
}

fn oversize(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 65_528, false, 24, 0);
}

fn repeat(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 8, true, 16, 0);
    junk.fragment(net, to, 8, true, 16, 0);
}

fn overlap(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 8, true, 16, 0);
    junk.fragment(net, to, 16, true, 16, 0);
    // The next fragment meets a poisoned key.
    junk.fragment(net, to, 64, true, 16, 0);
}

fn conflict(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 16, false, 16, 0);
    junk.fragment(net, to, 64, false, 16, 0);
}

fn ecn_mix(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.fragment(net, to, 0, true, 16, 2);
    junk.fragment(net, to, 16, true, 16, 0);
    junk.fragment(net, to, 32, false, 16, 3);
}

fn lonely(junk: &mut Malformed, net: &mut Net, to: &To) {
    let len = 8 * junk.dice.from(1, 40) as usize;
    junk.fragment(net, to, 0, true, len, 0);
}

/// Sends more first fragments at the same time than a small reassembly table can store.
fn flood(junk: &mut Malformed, net: &mut Net, to: &To) {
    for _ in 0..8 {
        junk.id = junk.id.wrapping_add(1);
        let head = Head { id: junk.id, ..to.head };
        junk.fragment(net, &To { head, ..*to }, 0, true, 64, 0);
    }
}

/// Sends a later fragment with an IPv4 option that only first fragments may carry (record route, RFC 791 section
/// 3.1).
fn misplaced_option(junk: &mut Malformed, net: &mut Net, to: &To) {
    let head = Head { fragment: Some((64, true)), ..to.head };
    junk.put(net, to, head, 12 + 16, |frame| {
        frame[0] = 0x48;
        frame[V4_LEN..V4_LEN + 12].copy_from_slice(&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        seal_v4(&mut frame[..V4_LEN + 12]);
    });
}

/// Writes `count` extension headers of eight bytes each. The last header names `last` as the next header.
fn extensions(frame: &mut [u8], count: usize, last: u8) {
    frame[6] = DESTINATION;
    for number in 0..count {
        let at = V6_LEN + 8 * number;
        let next = if number + 1 == count { last } else { DESTINATION };
        frame[at..at + 8].copy_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
    }
}

fn chain_too_long(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 9 * 8 + 16, |frame| extensions(frame, 9, UDP));
}

fn chain_cut(junk: &mut Malformed, net: &mut Net, to: &To) {
    junk.put(net, to, to.head, 16, |frame| {
        frame[6] = DESTINATION;
        frame[V6_LEN..V6_LEN + 8].copy_from_slice(&[UDP, 20, 1, 4, 0, 0, 0, 0]);
    });
}

fn nested(junk: &mut Malformed, net: &mut Net, to: &To) {
    let head = Head { fragment: Some((0, true)), ..to.head };
    junk.put(net, to, head, FRAGMENT_LEN + 16, |frame| {
        frame[V6_LEN] = FRAGMENT;
        frame[V6_LEN + FRAGMENT_LEN..V6_LEN + 16].copy_from_slice(&[UDP, 0, 0, 1, 0, 0, 0, 9]);
    });
}

fn misplaced_hop_by_hop(junk: &mut Malformed, net: &mut Net, to: &To) {
    let head = Head { protocol: HOP_BY_HOP, fragment: Some((0, true)), ..to.head };
    junk.put(net, to, head, 16, |frame| {
        frame[V6_LEN + FRAGMENT_LEN..][..8].copy_from_slice(&[UDP, 0, 1, 4, 0, 0, 0, 0]);
    });
}

fn headers_cut(junk: &mut Malformed, net: &mut Net, to: &To) {
    let head = Head { protocol: TCP, fragment: Some((0, true)), ..to.head };
    junk.put(net, to, head, 8, |_| {});
}

fn neighbour(junk: &mut Malformed, net: &mut Net, to: &To) {
    let first = Head { protocol: ICMPV6, fragment: Some((0, true)), ..to.head };
    junk.put(net, to, first, 32, |frame| frame[V6_LEN + FRAGMENT_LEN] = 135);
    junk.put(net, to, Head { fragment: Some((32, false)), ..first }, 16, |_| {});
}

/// Sends a first fragment whose extension headers do not end within the fragment. The packet is longer than the
/// narrow MTU.
fn unending_headers(junk: &mut Malformed, net: &mut Net, to: &To) {
    let head = Head { protocol: DESTINATION, fragment: Some((0, true)), ..to.head };
    junk.put(net, to, head, 1_552, |frame| {
        frame[V6_LEN + FRAGMENT_LEN..][..8].copy_from_slice(&[UDP, 255, 1, 4, 0, 0, 0, 0]);
    });
}

/// All kinds of malformed IPv4 packets.
const V4: [Wrong; 15] = [
    truncated,
    bad_version,
    bad_header_len,
    bad_total_len,
    bad_header_sum,
    zero_len,
    len_not_8,
    oversize,
    repeat,
    overlap,
    conflict,
    ecn_mix,
    lonely,
    flood,
    misplaced_option,
];
/// All kinds of malformed IPv6 packets.
const V6: [Wrong; 18] = [
    truncated,
    bad_version,
    zero_len,
    len_not_8,
    oversize,
    repeat,
    overlap,
    conflict,
    ecn_mix,
    lonely,
    flood,
    chain_too_long,
    chain_cut,
    nested,
    misplaced_hop_by_hop,
    headers_cut,
    neighbour,
    unending_headers,
];
