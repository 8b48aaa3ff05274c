//! Two segments -> the fast header match and the full test of the second: both must agree.

use std::ops::Range;
use testkit::{Summed, seal_ip, seal_transport, tcp};
use wideload_packet::{Checksum, Frame, HeaderMatch, Ingress, LinkType, Packet, Pool, SegmentFacts, share_headers};

#[test]
fn a_header_match_is_never_wrong() {
    let mut pool = Pool::new(1 << 20);
    for layout in LAYOUTS {
        let first = layout.segment(100);
        let len = layout.header_len();
        for one in 0..8 * len {
            check(&first, &flipped(&first, &[one]), &mut pool);
            for other in 0..one {
                check(&first, &flipped(&first, &[one, other]), &mut pool);
            }
        }
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bits: Vec<usize> = (0..random.usize(1..12)).map(|_| random.usize(..8 * len)).collect();
            check(&first, &flipped(&first, &bits), &mut pool);
        }
        for payload_len in [1, 99, 101, 400] {
            check(&first, &layout.segment(payload_len), &mut pool);
        }
        for other in LAYOUTS {
            check(&first, &other.segment(100), &mut pool);
            check(&first, &other.segment(100 + layout.header_len() - other.header_len()), &mut pool);
        }
    }
}

#[test]
fn changing_flow_fields_still_match() {
    let mut pool = Pool::new(1 << 20);
    for layout in LAYOUTS {
        let first = layout.segment(100);
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut next = first.clone();
            for moving in layout.moving() {
                next[moving].fill_with(|| random.u8(..));
            }
            assert!(check(&first, &next, &mut pool), "{layout:?}, seed {seed}");
        }
    }
}

#[test]
fn packets_that_end_a_run_have_no_header_match() {
    let mut pool = Pool::new(1 << 20);
    for layout in LAYOUTS {
        for flag in [0x08, 0x01] {
            let mut last = layout.segment(100);
            last[layout.ip_len() + 13] |= flag;
            let last = read(&last, Checksum::Verified, &mut pool).unwrap();
            let part = SegmentFacts::of(&last).unwrap();
            assert!(HeaderMatch::of(&last, &part).is_none());
            pool.give(last.into_buffer());
        }
    }
}

#[test]
fn header_match_verifies_checksums() {
    let mut pool = Pool::new(1 << 20);
    for layout in LAYOUTS {
        let right = layout.sealed(layout.segment(101));
        let first = read(&right, Checksum::Unverified, &mut pool).unwrap();
        let glance = HeaderMatch::of(&first, &SegmentFacts::of(&first).unwrap()).unwrap();
        for bit in (8 * layout.ip_len()..8 * right.len()).map(Some).chain([None]) {
            let bytes = flipped(&right, bit.as_slice());
            let other = read(&bytes, Checksum::Unverified, &mut pool).unwrap();
            if let Some(tcp) = glance.match_next(&other) {
                let (part, close) = (glance.part(&other, tcp), SegmentFacts::of(&other));
                assert_eq!(part.is_some(), close.is_some(), "{layout:?}, bit {bit:?}");
                assert_eq!(bit.is_none(), part.is_some(), "{layout:?}, bit {bit:?}");
                let mut place = vec![0; 101];
                let split_frame = glance.copy_payload(&other, &mut place, |_, _| panic!("the sum is not known"));
                assert_eq!(split_frame.is_some(), close.is_some(), "{layout:?}, bit {bit:?}");
                if let (Some(part), Some(close), Some((sum, less))) = (part, close, split_frame) {
                    assert_eq!(part.payload_sum.fold(), close.payload_sum.fold());
                    assert_eq!((sum - less).fold(), close.payload_sum.fold());
                    assert!(place == bytes[layout.header_len()..]);
                }
            }
            pool.give(other.into_buffer());
        }
        pool.give(first.into_buffer());
    }
}

/// Returns whether the header match accepts the second segment after the first. If so, checks that the full test
/// agrees.
fn check(first: &[u8], second: &[u8], pool: &mut Pool) -> bool {
    let first = read(first, Checksum::Verified, pool).expect("it is a packet");
    let part = SegmentFacts::of(&first).expect("it is a segment");
    let glance = HeaderMatch::of(&first, &part).expect("it is laid out in one of the usual ways");
    let mut seen = false;
    if let Some(second) = read(second, Checksum::Verified, pool) {
        if let Some(tcp) = glance.match_next(&second) {
            seen = true;
            let close = SegmentFacts::of(&second).expect("what looks like a segment is one");
            assert!(share_headers(&first, &part, &second, &close), "{:02x?}", second.bytes());
            assert_eq!(Some(tcp), close.tcp, "{:02x?}", second.bytes());
            let at_a_glance = glance.part(&second, tcp).expect("its checksum is verified");
            assert_eq!(format!("{at_a_glance:?}"), format!("{close:?}"));
            assert_eq!(close.payload_len, part.payload_len);
            let mut place = vec![0; usize::from(close.payload_len)];
            let (sum, less) =
                glance.copy_payload(&second, &mut place, <[u8]>::copy_from_slice).expect("it is verified");
            assert_eq!((sum - less).fold(), close.payload_sum.fold());
            assert!(place == second.bytes()[usize::from(close.payload_at)..]);
        }
        pool.give(second.into_buffer());
    }
    pool.give(first.into_buffer());
    seen
}

fn read(bytes: &[u8], checksum: Checksum, pool: &mut Pool) -> Option<Packet> {
    let mut packet = Frame::copy(bytes, LinkType::Ip, Ingress(0), pool).ok()?;
    packet.checksum = checksum;
    Some(packet)
}

fn flipped(bytes: &[u8], bits: &[usize]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
    // A wrong header checksum would hide the change.
    if bytes[0] >> 4 == 4 && !bits.iter().any(|bit| (10..12).contains(&(bit / 8))) {
        seal_v4(&mut bytes);
    }
    bytes
}

fn seal_v4(bytes: &mut [u8]) {
    let header_len = usize::from(bytes[0] & 15) * 4;
    if (20..=bytes.len()).contains(&header_len) {
        seal_ip(bytes);
    }
}

/// A layout of a segment's headers.
#[derive(Clone, Copy, Debug)]
struct Layout {
    version: u8,
    stamped: bool,
}

impl Layout {
    fn ip_len(self) -> usize {
        if self.version == 4 { 20 } else { 40 }
    }

    fn header_len(self) -> usize {
        self.ip_len() + if self.stamped { 32 } else { 20 }
    }

    /// A segment with this payload length; its transport checksum is wrong.
    fn segment(self, payload_len: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..payload_len).map(|at| (at * 7 + 1) as u8).collect();
        let segment = tcp(self.version).seq(4_096).payload(payload).sum(Summed::Off(0x55));
        if self.stamped { segment.stamped(256, 512).bytes() } else { segment.bytes() }
    }

    fn sealed(self, mut bytes: Vec<u8>) -> Vec<u8> {
        seal_transport(&mut bytes);
        bytes
    }

    /// The places of sequence and acknowledgement number, window, checksum and timestamps.
    fn moving(self) -> Vec<Range<usize>> {
        let tcp = self.ip_len();
        let mut moving = vec![tcp + 4..tcp + 12, tcp + 14..tcp + 18];
        if self.stamped {
            moving.push(tcp + 24..tcp + 32);
        }
        moving
    }
}

const LAYOUTS: [Layout; 4] = [
    Layout { version: 4, stamped: false },
    Layout { version: 4, stamped: true },
    Layout { version: 6, stamped: false },
    Layout { version: 6, stamped: true },
];
