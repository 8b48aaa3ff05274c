//! Bugs that once were, each as the smallest traffic that met it.

mod packets;

use packets::*;
use wideload_engine::packet::Version;
use wideload_engine::{
    Coalescer, Event, Full, Hold, Join, JoinLimits, Joiner, Mode, Prefixes, Reason, Role, Rules, RunsBy, Switch,
};

// What lost its Fragment header does not stand where a fresh packet stands in its buffer.
#[test]
fn an_atomic_fragment_starts_a_run_like_any_packet() {
    for len in 2_000..2_040 {
        let mut rig = Rig::host();
        rig.side.widening.coalescer = Some(coalescer(9_000, Switch::On));
        let atomic = V6 { fragment: Some((7, 0, false)), ..v6(segment(Version::V6, 0, len)) };
        let next = [1, 2].map(|index| v6(segment(Version::V6, index * len as u32, len)).bytes());
        rig.push(&atomic.bytes());
        let mut wire = rig.push_all(&next);
        wire.extend(rig.flush());
        assert_eq!(wire.len(), 1, "{len}");
        assert_eq!(wire[0].len(), 60 + 3 * len);
    }
}

// Their headers leave no room in the MTU: a train of them cannot be cut into segments, but each can be fragmented.
#[test]
fn segments_whose_headers_fill_the_mtu_leave_as_each_alone_would() {
    for mtu in 68..=84 {
        let wire = |count: u32| {
            let mut rig = Rig::router(mtu);
            rig.side.widening.coalescer = Some(coalescer(mtu, Switch::On));
            let segments =
                (0..count).map(|index| V4 { protocol: TCP, ..V4::whole(padded(index * 100, 100)) }.bytes());
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
fn longer_segments_gather_only_where_they_will_be_cut_again() {
    for (longer, segment_stage, expected) in [(Switch::On, Switch::On, 0), (Switch::Off, Switch::Off, 2)] {
        let mut rig = Rig::new(1_500, Role::Transit, None);
        rig.side.widening.coalescer = Some(coalescer(1_500, longer));
        rig.side.narrowing.segment = segment_stage;
        let segments = [0, 1].map(|index| {
            V4 { flags: DF, protocol: TCP, ..V4::whole(segment(Version::V4, index * 4_000, 4_000)) }.bytes()
        });
        rig.push_all(&segments);
        rig.flush();
        assert_eq!(rig.retired(Reason::TooBig), expected, "{longer:?}");
        assert_eq!(rig.event(Event::Resized) > 0, expected == 0);
    }
}

// RFC 4302 section 3.3.3: the header covers the packet as its sender sent it.
#[test]
fn what_is_authenticated_as_a_whole_is_not_cut_into_segments() {
    let mut rig = Rig::card(1_280);
    let ah = (51, [&[0, 4][..], &[0; 22]].concat());
    let (first, mut payload) = chain(&[ah], TCP);
    payload.extend(segment(Version::V6, 0, 3_000));
    let wire = rig.push(&V6 { next_header: first, ..V6::whole(payload) }.bytes());
    assert!(wire.len() == 3 && Wire::read_all(&wire).iter().all(|piece| piece.is_fragment));
    assert_eq!(rig.event(Event::Resized), 0);
}

// R039, R040: who filters by ports drops these; joining never drops.
#[test]
fn tiny_fragments_of_tcp_are_joined_like_any_other() {
    let mut rig = Rig::router(1_500);
    let limits = JoinLimits { bytes: 1 << 20, patience: seconds(1), full: Full::Pass, runs: RunsBy::Datagram };
    rig.side.widening.joins = Prefixes::new(Join::Graceful);
    rig.side.widening.joiner = Some(Joiner::new(limits, 1_500, secret()));
    let segment = segment(Version::V4, 0, 100);
    let places = [(0, 8, true), (8, 8, true), (16, segment.len() - 16, false)];
    let pieces =
        places.map(|(at, len, more)| V4 { protocol: TCP, ..V4::piece(at, &segment[at..at + len], more) }.bytes());
    let wire = rig.push_all(&pieces);
    assert_whole(&wire, &segment);
    assert_eq!(rig.out.ledger.retired_all().packets, 0);
}

fn coalescer(len_max: u16, longer: Switch) -> Coalescer {
    let rules = Rules { mode: Mode::Resize, hold: Hold::Adaptive, len_max, longer, udp: false };
    Coalescer::new(1 << 20, rules, Vec::new(), secret())
}

fn v6(segment: Vec<u8>) -> V6 {
    V6 { next_header: TCP, ..V6::whole(segment) }
}

fn segment(version: Version, seq: u32, len: usize) -> Vec<u8> {
    tcp(version, &[], seq, len)
}

/// With forty bytes of options that say nothing.
fn padded(seq: u32, len: usize) -> Vec<u8> {
    tcp(Version::V4, &[1; 40], seq, len)
}

fn tcp(version: Version, options: &[u8], seq: u32, len: usize) -> Vec<u8> {
    let mut tcp = vec![0x10, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[12] += (options.len() as u8 / 4) << 4;
    tcp.extend(options);
    tcp.extend(pattern(len));
    let addresses = match version {
        Version::V4 => [&HOST_V4[..], &PEER_V4].concat(),
        Version::V6 => [&HOST_V6[..], &PEER_V6].concat(),
    };
    let pseudo = [&addresses[..], &[0, TCP], &(tcp.len() as u16).to_be_bytes()].concat();
    let sum = !ones_sum(&[&pseudo[..], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    tcp
}
