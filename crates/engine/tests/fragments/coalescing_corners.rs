//! Former bugs, each as the smallest traffic that triggered it.

use crate::rig::*;
use testkit::Place;
use wideload_engine::{
    Coalescer, Event, FragmentMerger, FragmentPolicy, Full, Hold, MergeLimits, Mode, Prefixes, Reason, Role, Rules,
    RunsBy, Toggle,
};

// A packet whose Fragment header was removed starts at another place in its buffer than a new packet.
#[test]
fn an_atomic_fragment_starts_a_run_like_any_packet() {
    for len in 2_000..2_040 {
        let mut rig = Rig::host();
        rig.side.aggregation.coalescer = Some(coalescer(9_000, Toggle::On));
        let atomic = Spec { id: 7, fragment: Some((0, false)), ..segment(6, 0, len) };
        let next = [1, 2].map(|index| segment(6, index * len as u32, len).bytes());
        rig.push(&atomic.bytes());
        let mut wire = rig.push_all(&next);
        wire.extend(rig.flush());
        assert_eq!(wire.len(), 1, "{len}");
        assert_eq!(wire[0].len(), 60 + 3 * len);
    }
}

// Their headers leave no room in the MTU. A GSO packet of them cannot be split into segments, but each can be
// fragmented.
#[test]
fn segments_with_headers_as_long_as_the_mtu_leave_alone() {
    for mtu in 68..=84 {
        let wire = |count: u32| {
            let mut rig = Rig::router(mtu);
            rig.side.aggregation.coalescer = Some(coalescer(mtu, Toggle::On));
            let segments =
                (0..count).map(|index| segment(4, index * 100, 100).ip_flags(0).options([1; 40]).bytes());
            let mut wire = rig.push_all(&segments.collect::<Vec<_>>());
            wire.extend(rig.flush());
            assert_eq!(rig.retired(Reason::Uncuttable), 0);
            wire.iter().map(|packet| packet.len()).collect::<Vec<_>>()
        };
        let (one, two) = (wire(1), wire(2));
        assert!(
            !one.is_empty() && two.len() > one.len() && two.iter().all(|len| *len <= usize::from(mtu)),
            "at {mtu}"
        );
    }
}

#[test]
fn long_segments_coalesce_only_if_segmented_again() {
    for (longer, segment_stage, expected) in [(Toggle::On, Toggle::On, 0), (Toggle::Off, Toggle::Off, 2)] {
        let mut rig = Rig::new(1_500, Role::Transit, None);
        rig.side.aggregation.coalescer = Some(coalescer(1_500, longer));
        rig.side.sizing.segment = segment_stage;
        let segments = [0, 1].map(|index| segment(4, index * 4_000, 4_000).bytes());
        rig.push_all(&segments);
        rig.flush();
        assert_eq!(rig.retired(Reason::TooBig), expected, "{longer:?}");
        assert_eq!(rig.event(Event::Resized) > 0, expected == 0);
    }
}

// RFC 4302 section 3.3.3: the header covers the packet as its sender sent it.
#[test]
fn authenticated_packets_are_not_segmented() {
    let mut rig = Rig::card(1_280);
    let signed = Spec { extensions: vec![extension(AUTHENTICATION, 24)], ..segment(6, 0, 3_000) };
    let wire = rig.push(&signed.bytes());
    assert!(wire.len() == 3 && ReadPacket::all(&wire).iter().all(|fragment| fragment.is_fragment()));
    assert_eq!(rig.event(Event::Resized), 0);
}

// R039, R040: a filter by ports drops these; reassembly never drops.
#[test]
fn tiny_tcp_fragments_are_reassembled() {
    let mut rig = Rig::router(1_500);
    let limits = MergeLimits { bytes: 1 << 20, timeout: seconds(1), full: Full::Pass, runs: RunsBy::Datagram };
    rig.side.aggregation.policies = Prefixes::new(FragmentPolicy::Merge);
    rig.side.aggregation.merger = Some(FragmentMerger::new(limits, 1_500, secret()));
    let segment = segment(4, 0, 100).ip_flags(0).raw();
    let places = [0..8, 8..16, 16..segment.payload.len()];
    let fragments = places.map(|range| segment.fragment(&Place { more: range.start < 16, range }));
    let wire = rig.push_all(&fragments);
    assert_whole(&wire, &segment.payload);
    assert_eq!(rig.out.ledger.retired_all().packets, 0);
}

fn coalescer(len_max: u16, longer: Toggle) -> Coalescer {
    let rules = Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max, longer, udp: false };
    Coalescer::new(1 << 20, rules, Vec::new(), secret())
}

fn segment(version: u8, seq: u32, len: usize) -> Spec {
    tcp(version).seq(seq).payload(pattern(len))
}
