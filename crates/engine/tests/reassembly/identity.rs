//! Datagrams -> fragments -> the same datagrams, for every length.

use crate::station::{ROOM, Station, at};
use core::time::Duration;
use testkit::fields::{DF, IPV4_LEN};
use testkit::{Place, ReadPacket, Spec, ip, noise, seal_ip};
use wideload_engine::packet::{Packet, Split, Time};
use wideload_engine::{Late, Limits, Reason, Side, WirePackets};

#[test]
fn every_ipv4_length_survives_fragmentation_and_reassembly() {
    // The longest UDP payload is 65,507 bytes: 65,535 less the headers of IPv4 and UDP.
    let lens = (1..=65_507).map(|len| len + UDP_LEN);
    [68, 576, 1_280, 1_500, 9_000].iter().for_each(|mtu| cut_and_join(4, *mtu, Split::Max, lens.clone()));
}

#[test]
fn every_length_of_ipv6_is_cut_and_joined_to_itself() {
    // The longest datagrams are those of an MTU of 65,535 bytes: 65,535 less the header.
    let lens = (1..=65_495 - UDP_LEN).map(|len| len + UDP_LEN);
    [1_280, 1_500, 9_000].iter().for_each(|mtu| cut_and_join(6, *mtu, Split::Max, lens.clone()));
}

#[test]
fn balanced_fragments_are_reassembled_like_full_ones() {
    let lens = (1..=65_400).step_by(5);
    [68, 1_500, 9_000].iter().for_each(|mtu| cut_and_join(4, *mtu, Split::Balanced, lens.clone()));
    cut_and_join(6, 1_280, Split::Balanced, lens);
}

#[test]
fn fragments_are_fewest_and_balanced_ones_are_never_tiny() {
    for version in [4, 6] {
        for mtu in [1_280, 1_500, 9_000] {
            let header_len = ip(version).fragment_len(0);
            let room = mtu - header_len;
            let alike = room / 8 * 8;
            let mut lens: Vec<usize> = (room + 1..room + 60).chain((room..60_000).step_by(997)).collect();
            lens.extend((1..6).flat_map(|count| (0..40).map(move |more| count * alike + more)));
            for len in lens.into_iter().filter(|len| *len > room + 48 && *len < 65_400) {
                // The last fragment takes any length, the others multiples of eight bytes.
                let fewest = 1 + (len - room).div_ceil(alike);
                let datagram = ip(version).noise(len);
                for split in [Split::Max, Split::Balanced] {
                    let mut station = Station::source(mtu as u16, split);
                    let left = station.push_ip(Time::ZERO, &datagram.bytes());
                    assert_eq!(left.len(), fewest, "{len} bytes of version {version} at {mtu}, {split:?}");
                    let lens: Vec<_> = left.iter().map(|fragment| fragment.frame.len() - header_len).collect();
                    let shortest = lens.iter().min().unwrap();
                    match split {
                        Split::Max => assert!(lens[..fewest - 1].iter().all(|len| *len == alike), "{lens:?}"),
                        Split::Balanced => assert!(*shortest >= room / 2 - 8 * fewest, "a tiny piece: {lens:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn packets_that_fit_are_not_fragmented() {
    for version in [4, 6] {
        for mtu in [1_280, 1_500, 9_000] {
            let header_len = if version == 4 { 20 } else { 40 };
            for (len, count) in [(mtu - header_len, 1), (mtu - header_len + 1, 2)] {
                let datagram = ip(version).noise(len);
                let left = Station::source(mtu as u16, Split::Max).push_ip(Time::ZERO, &datagram.bytes());
                assert_eq!(left.len(), count, "version {version} at {mtu}");
                assert!(count > 1 || left[0].frame == datagram.bytes());
            }
        }
    }
}

#[test]
fn refragmented_fragments_are_reassembled() {
    for (version, dont_fragment) in [(4, false), (4, true), (6, true)] {
        for (wide, narrow) in [(9_000, 1_500), (9_000, 1_280), (1_500, 1_280), (4_000, 1_288), (16_000, 9_000)] {
            for len in (wide + 1..40_000).step_by(797).chain([65_400]) {
                let mut datagram = ip(version).noise(len);
                datagram.ip_flags = if dont_fragment { DF } else { 0 };
                let mut twice = Station::source(narrow, Split::Max);
                let mut joining = Station::usual();
                let mut left = Vec::new();
                let mut end = 0;
                for place in datagram.places(wide) {
                    let cut = twice.push_ip(Time::ZERO, &datagram.fragment(&place));
                    check_fragments(
                        &cut.iter().map(|left| left.ip()).collect::<Vec<_>>(),
                        &place,
                        narrow,
                        &mut end,
                    );
                    for fragment in cut {
                        left.extend(joining.push_ip(Time::ZERO, &fragment.frame));
                    }
                }
                assert_eq!(end, len, "every byte leaves");
                // A datagram that is fragmented for its host loses DF. One that is not fragmented keeps it, unless
                // it is the longest.
                datagram.ip_flags = if ReadPacket::of(left[0].ip()).dont_fragment { DF } else { 0 };
                let frames: Vec<_> = left.iter().map(|left| left.frame.as_slice()).collect();
                assert_eq!(frames, [datagram.bytes()], "version {version}, {len} bytes, {wide} then {narrow}");
            }
        }
    }
}

#[test]
fn a_router_refragments_and_keeps_identification_and_mf() {
    for start in (0..64_000).step_by(8 * 499) {
        for len in (1..40).chain([1_480, 1_481, 1_488, 3_000, 8_000]) {
            for more in [false, true] {
                let end = start + if more { len * 8 } else { len };
                if end - start > 8_000 || end > 65_515 || start == 0 && !more {
                    continue;
                }
                let datagram = ip(4).noise(end);
                let place = Place { range: start..end, more };
                for mtu in [68, 69, 75, 76, 576, 1_500] {
                    for split in [Split::Max, Split::Balanced] {
                        let left = Station::router(mtu, split).push_ip(Time::ZERO, &datagram.fragment(&place));
                        let fragments: Vec<_> = left.iter().map(|left| left.ip()).collect();
                        check_fragments(&fragments, &place, mtu, &mut start.clone());
                        let bytes: Vec<u8> =
                            fragments.iter().flat_map(|fragment| &fragment[IPV4_LEN..]).copied().collect();
                        assert_eq!(bytes, datagram.payload[start..end]);
                        assert!(fragments.iter().all(|fragment| ReadPacket::of(fragment).id == datagram.id));
                    }
                }
            }
        }
    }
}

#[test]
fn a_fragment_past_65535_bytes_is_never_refragmented() {
    for version in [4, 6] {
        // IPv4's header counts towards the longest datagram, IPv6's does not.
        let longest = if version == 4 { 65_515 } else { 65_535 };
        for start in [57_600, 62_000, 64_000, 65_400, 65_528] {
            for excess in (1..40).chain([1_480, 5_000]) {
                let (end, datagram) = (longest + excess, ip(version).noise(0));
                if end <= start + 1_480 || end > start + 8_900 {
                    continue;
                }
                let place = Place { range: start..end, more: false };
                let mut station = Station::source(1_500, Split::Max);
                let frame = datagram.fragment_with(&place, &vec![7; end - start]);
                assert_eq!(station.push_ip(Time::ZERO, &frame), [], "{place:?} of version {version}");
                assert_eq!(station.out.ledger.retired(Reason::FragOversize).packets, 1);
            }
        }
    }
}

#[test]
fn a_router_never_fragments_df_packets() {
    for version in [4, 6] {
        let mut datagram = ip(version).noise(3_000);
        datagram.ip_flags = DF;
        let mut station = Station::router(1_500, Split::Max);
        assert_eq!(station.push_ip(Time::ZERO, &datagram.bytes()), []);
        assert_eq!(station.out.ledger.retired(Reason::TooBig).packets, 1);
        for fragment in datagram.fragments(2_000) {
            station.push_ip(Time::ZERO, &fragment).iter().for_each(|left| assert!(left.frame.len() <= 1_500));
        }
        assert_eq!(station.out.ledger.retired(Reason::TooBig).packets, 2, "the second piece fits");
    }
}

/// Fragments datagrams of these payloads to `mtu` as their source, reassembles them, compares.
fn cut_and_join(version: u8, mtu: u16, split: Split, lens: impl Iterator<Item = usize>) {
    let payload = noise(65_536, u64::from(mtu));
    let mut cutting = Station::source(mtu, split);
    let mut joining = Station::joining(Limits { bytes: 1 << 20, timeout: None }, Late::Retire);
    let mut header = ip(version);
    header.ip_flags = DF;
    let original = Spec { payload: Vec::new(), ..header }.bytes();
    for (index, len) in lens.enumerate() {
        // Datagrams are sent as fast as the IDs allow: 25,000 per second.
        let now = at(Duration::from_micros(40) * index as u32);
        let payload = &payload[..len];
        let header = header_for(&original, len);
        cutting.push_parts(now, &header, payload);
        let mut id = 0;
        let mut count = 0;
        while let Some(packet) = cutting.out.next() {
            let mut fragments = WirePackets::of(&packet);
            while let Some(fragment) = fragments.next() {
                let seen = ReadPacket::of(&[fragment.header, fragment.payload].concat());
                assert!(fragment.frame_len() <= usize::from(mtu) && seen.ip_len() == fragment.frame_len());
                assert!(
                    version == 6 || !seen.dont_fragment || packet.fragmentation.is_none(),
                    "pieces may be cut again"
                );
                assert!(count == 0 || seen.id == id, "the pieces of a datagram share its identification");
                id = seen.id;
                count += 1;
                let fragment = joining.packet_of(fragment.header, fragment.payload);
                assert_eq!(joining.out.queued_count(), 0, "nothing leaves before all is here");
                joining.side.push(now, fragment, &mut joining.connections, &mut joining.out);
            }
            cutting.out.recycle(packet);
        }
        assert_eq!(joining.out.queued_count(), 1, "{len} bytes at {mtu}");
        let joined = joining.out.next().expect("one is queued");
        assert_same(&joined, &header, payload, count > 1, id);
        joining.out.recycle(joined);
        check(&cutting.side, &cutting);
        check(&joining.side, &joining);
    }
    assert_eq!((cutting.out.pool.in_use_count(), joining.out.pool.in_use_count()), (0, 0));
    assert!(joining.out.pool.heap_len() <= ROOM);
}

fn check(side: &Side, station: &Station) {
    side.check(&station.out).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Checks that the datagram is its host's. If it was fragmented, it has the ID of its fragments and no DF.
fn assert_same(joined: &Packet, header: &[u8], payload: &[u8], was_cut: bool, id: u32) {
    assert!(joined.payload() == payload, "{} bytes differ", payload.len());
    let mut expected = header.to_vec();
    if was_cut && header[0] >> 4 == 4 {
        expected[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        expected[6..8].fill(0);
        seal_ip(&mut expected);
    }
    assert_eq!(joined.header(), expected);
}

/// The header of a datagram with a payload of this length.
fn header_for(original: &[u8], payload_len: usize) -> Vec<u8> {
    let mut header = original.to_vec();
    if header[0] >> 4 == 4 {
        header[2..4].copy_from_slice(&((IPV4_LEN + payload_len) as u16).to_be_bytes());
        seal_ip(&mut header);
    } else {
        header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
    }
    header
}

/// Checks the fragments of `place`: disjoint, in order, within the MTU, in multiples of eight bytes. Only the last
/// may end the datagram.
fn check_fragments(fragments: &[&[u8]], place: &Place, mtu: u16, end: &mut usize) {
    assert!(!fragments.is_empty(), "something leaves");
    for (index, fragment) in fragments.iter().enumerate() {
        let seen = ReadPacket::of(fragment);
        let (offset, more) = seen.fragment.expect("a piece stays a piece");
        assert_eq!(offset, *end, "one begins where the one before it ends");
        assert!(fragment.len() <= usize::from(mtu), "{} bytes at {mtu}", fragment.len());
        let len = fragment.len() - seen.body_at;
        let is_last = index + 1 == fragments.len();
        assert!(len > 0 && (is_last || len.is_multiple_of(8)));
        assert_eq!(more, !is_last || place.more);
        *end += len;
    }
    assert_eq!(*end, place.range.end);
}

/// The UDP header, in bytes.
const UDP_LEN: usize = 8;
