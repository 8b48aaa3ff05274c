//! The smallest input for each outcome: every reason and every event of the ledger is reached.

use crate::rig::*;
use std::time::Duration;
use wideload_engine::packet::{Checksum, Frame, Ingress, LinkType, Pool, SegmentLimit};
use wideload_engine::{
    Border, Coalescer, Connections, Event, FragmentMerger, FragmentPolicy, Full, Hold, IcmpResponder, Identifiers,
    LIFETIME, Late, Limits, MergeLimits, Mode, Output, Prefixes, Raise, Reason, Role, Rules, RunsBy, Toggle,
    Toward,
};

#[test]
fn every_reason_is_reached() {
    let table: Vec<(Reason, Rig)> = vec![
        (Reason::NotIp, after(ethernet(), &[[&[0; 12][..], &[8, 6], &[0; 46]].concat()])),
        (Reason::Truncated, after(Rig::host(), &[whole(4, &[0; 8])[..27].to_vec()])),
        (Reason::TooLong, after(Rig::host(), &[jumbo()])),
        (Reason::BadVersion, after(Rig::host(), &[vec![0x50; 40]])),
        (Reason::BadHeaderLen, after(Rig::host(), &[changed(&whole(4, &[0; 8]), 0, 0x44)])),
        (Reason::BadTotalLen, after(Rig::host(), &[total_len_of_19()])),
        (Reason::BadHeaderSum, after(Rig::host(), &[changed(&whole(4, &[0; 8]), 10, 0)])),
        (Reason::ChainTooLong, after(Rig::host(), &[behind(vec![extension(DESTINATION_OPTIONS, 8); 9])])),
        (Reason::ChainCut, after(Rig::host(), &[behind(vec![(DESTINATION_OPTIONS, vec![0, 200, 0, 0])])])),
        (Reason::FragNested, after(Rig::host(), &[behind(vec![(FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 0]); 2])])),
        (
            Reason::HopByHopMisplaced,
            after(Rig::host(), &[behind(vec![(FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 0]), extension(HOP_BY_HOP, 8)])]),
        ),
        (Reason::FragZeroLen, after(Rig::host(), &[fragment(4, 0, &[], true)])),
        (Reason::FragLenNot8, after(Rig::host(), &[fragment(4, 0, &[0; 7], true)])),
        (Reason::FragOversize, after(Rig::host(), &[fragment(4, 65_528, &[0; 8], false)])),
        (Reason::FragHeadersCut, after(Rig::host(), &[headers_cut(8)])),
        (
            Reason::FragOption,
            after(Rig::host(), &[Spec { ip_options: vec![7, 3, 4, 0], ..ip(4).part(8, [0; 8], true) }.bytes()]),
        ),
        (Reason::FragNeighbour, after(Rig::host(), &neighbour_solicitation())),
        (Reason::FragRepeat, after(Rig::host(), &[part(0, 0, true), part(0, 0, true)])),
        (Reason::FragOverlap, after(Rig::host(), &[part(0, 0, true), part(0, 1, true)])),
        (Reason::FragConflict, after(Rig::host(), &[part(16, 0, true), part(8, 0, false)])),
        (
            Reason::FragEcnMix,
            after(Rig::host(), &[part(0, 0, true), Spec { tos: 1, ..ip(4).part(8, [0; 8], false) }.bytes()]),
        ),
        (Reason::FragPoisoned, after(Rig::host(), &[part(0, 0, true), part(0, 1, true), part(8, 0, true)])),
        (Reason::FragLate, late(Late::Retire)),
        (Reason::FragEvicted, evicted(Late::Retire)),
        (Reason::TooBig, after(Rig::router(68), &[too_big()])),
        (Reason::Uncuttable, after(Rig::card(1_280), &[headers_cut(1_600)])),
        (Reason::NoIdentifier, after(worn_out(), &[whole(4, &[0; 100])])),
        (
            Reason::NoBuffer,
            after(Rig { out: Output::new(Pool::new(2_500), None), ..Rig::host() }, &[part(0, 0, true)]),
        ),
    ];
    for (reason, rig) in &table {
        let count = rig.out.ledger.retired(*reason).packets + rig.out.ledger.passed(*reason).packets;
        assert!(count > 0, "{reason} is not reached: {:?}", rig.out.ledger);
    }
    // The first two occur only with capture files, the third only at a live port. Those of ICMP are reached in
    // tests/flows/paths.rs, the last three in fair_intake.rs, acks.rs and early_acks.rs.
    let elsewhere = [
        Reason::OtherLink,
        Reason::SnapCut,
        Reason::TooManySegments,
        Reason::IcmpUsed,
        Reason::IcmpRefused,
        Reason::IntakeFull,
        Reason::AckCompressed,
        Reason::AckAbsorbed,
    ];
    for reason in Reason::ALL {
        let reached = table.iter().any(|(known, _)| known == reason);
        assert!(reached != elsewhere.contains(reason), "{reason} has its line in the table");
    }
}

#[test]
fn every_event_is_reached() {
    let release = Late::Release { mtu: 1_500 };
    let table: Vec<(Event, Rig)> = vec![
        (Event::FragmentsUsed, after(Rig::host(), &[part(0, 0, true), part(8, 0, false)])),
        (Event::Reassembled, after(Rig::host(), &[part(0, 0, true), part(8, 0, false)])),
        (Event::AtomicStripped, after(Rig::host(), &[fragment(6, 0, &[0; 8], false)])),
        (Event::ReleasedTimeout, late(release)),
        (Event::ReleasedEvicted, evicted(release)),
        (Event::ReleasedAtEnd, {
            let mut rig = after(Rig::new(1_500, Role::Transit, Some(release)), &[part(0, 0, true)]);
            assert_eq!(rig.flush(), [part(0, 0, true)]);
            rig
        }),
        (Event::Fragmented, after(Rig::router(68), &[whole(4, &[0; 100])])),
        (Event::Fragments, after(Rig::router(68), &[whole(4, &[0; 100])])),
        (Event::FragmentedForHost, after(Rig::card(68), &[too_big()])),
        (Event::LeftOversize, after(Rig::router(67), &[whole(4, &[0; 100])])),
        (Event::ChecksumCompleted, half_filled()),
        (Event::LengthCompleted, after(Rig::host(), &[without_len()])),
        (Event::IcmpSent, after(Rig::router(68), &[too_big()])),
        (Event::Merged, after(joining(1 << 20), &[part(0, 0, true), part(8, 0, false)])),
        (Event::MergedComplete, after(joining(1 << 20), &[part(0, 0, true), part(8, 0, false)])),
        (Event::MergedLast, after(joining(1 << 20), &[part(8, 0, true), part(16, 0, false)])),
        (Event::MergedFull, {
            let long = |offset| fragment(4, offset, &[0; 400], true);
            after(joining(1 << 20), &[long(0), long(400), long(800), long(1_200)])
        }),
        (Event::MergedGap, after(joining(1 << 20), &[part(0, 0, true), part(8, 0, true), part(24, 0, true)])),
        (Event::MergedChanged, {
            let other = Spec { ttl: 9, ..ip(4).part(16, [0; 8], true) }.bytes();
            after(joining(1 << 20), &[part(0, 0, true), part(8, 0, true), other])
        }),
        (Event::MergedTimeout, {
            let mut rig = after(joining(1 << 20), &[part(0, 0, true), part(8, 0, true)]);
            rig.wait(Duration::from_millis(10));
            rig
        }),
        (Event::MergedEvicted, {
            let limits = MergeLimits { full: Full::Evict, ..join_limits(3_000) };
            let other = Spec { id: 7, ..ip(4).part(0, [0; 8], true) }.bytes();
            after(joining_within(limits), &[part(0, 0, true), part(8, 0, true), other])
        }),
        (Event::MergedAtEnd, {
            let mut rig = after(joining(1 << 20), &[part(0, 0, true), part(8, 0, true)]);
            rig.flush();
            rig
        }),
        (Event::MergeRefused, after(joining(0), &[part(0, 0, true)])),
        (Event::Coalesced, after(gathering(Mode::Resize), &[segment(0, 100, PSH)])),
        (Event::RunFull, after(gathering(Mode::Resize), &[segment(0, 900, 0)])),
        (Event::RunPushed, after(gathering(Mode::Resize), &[segment(0, 100, PSH)])),
        (Event::RunUneven, after(gathering(Mode::Reversible), &[segment(0, 100, 0), segment(100, 99, 0)])),
        (Event::RunChanged, after(gathering(Mode::Resize), &[segment(0, 100, 0), segment(100, 100, ECE)])),
        (Event::RunGap, after(gathering(Mode::Reversible), &[segment(0, 100, 0), segment(200, 100, 0)])),
        (Event::RunInterrupted, after(gathering(Mode::Resize), &[segment(0, 100, 0), segment(100, 0, 0)])),
        (Event::RunTimeout, {
            let mut rig = after(gathering(Mode::Resize), &[segment(0, 100, 0)]);
            rig.wait(Duration::from_millis(1));
            rig
        }),
        (Event::RunWindow, {
            let mut rig = gathering(Mode::Resize);
            let rules =
                Rules { hold: Hold::Fixed(Duration::from_millis(2)), len_max: 9_000, ..rules(Mode::Resize) };
            rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, rules, Vec::new(), secret()));
            after(rig, &[segment(0, 1_300, 0), segment(1_300, 1_300, 0)])
        }),
        (Event::RunEvicted, {
            let mut rig = gathering(Mode::Resize);
            rig.side.aggregation.coalescer = Some(Coalescer::new(1_000, rules(Mode::Resize), Vec::new(), secret()));
            after(rig, &[segment(0, 100, 0)])
        }),
        (Event::RunAtEnd, {
            let mut rig = after(gathering(Mode::Resize), &[segment(0, 100, 0)]);
            rig.flush();
            rig
        }),
        (Event::Reordered, after(gathering(Mode::Resize), &[segment(0, 100, 0), segment(200, 100, 0)])),
        (
            Event::EqualisedIn,
            after(gathering(Mode::Resize), &THREE.map(|(seq, len, flags)| segment(seq, len, flags))),
        ),
        (
            Event::EqualisedOut,
            after(gathering(Mode::Resize), &THREE.map(|(seq, len, flags)| segment(seq, len, flags))),
        ),
        (Event::Resized, after(Rig::router(576), &[segment(0, 1_000, 0)])),
        (Event::Segments, after(Rig::router(576), &[segment(0, 1_000, 0)])),
        (Event::DfFragmented, {
            let mut rig = Rig::router(576);
            rig.side.sizing.df_identifiers = Some(Identifiers::new(secret(), LIFETIME));
            after(rig, &[Spec { protocol: 17, ip_flags: DF, ..ip(4).payload(vec![0; 1_000]) }.bytes()])
        }),
        (Event::DfCleared, {
            let mut rig = Rig::router(1_500);
            rig.side.sizing.cleared_df_identifiers = Some(Identifiers::new(secret(), LIFETIME));
            let bytes = tcp(4).seq(0).payload(vec![0; 1_000]).bytes();
            let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
            packet.segment_limit = Some(SegmentLimit { clears_df: true, ..SegmentLimit::new(552, false) });
            rig.side.push(rig.now, packet, &mut rig.connections, &mut rig.out);
            rig
        }),
        (Event::MssRaised, crossing(&[(Toward::Wide, syn(1_460, 0))])),
        (Event::MssLowered, crossing(&[(Toward::Narrow, syn(8_960, 0))])),
        (Event::MssUntouched, crossing(&[(Toward::Narrow, syn(8_960, 1))])),
        (Event::MssAsymmetric, crossing(&[(Toward::Wide, syn(1_460, 0)), (Toward::Wide, segment(1, 0, 0))])),
        (Event::MssUnknown, crossing(&[(Toward::Narrow, segment(0, 1_400, 0))])),
        (Event::InVxlan, after(Rig::host(), &[tunnel(4_789, &[8, 0, 0, 0, 0, 0, 1, 0])])),
        (Event::InGeneve, after(Rig::host(), &[tunnel(6_081, &[0, 0, 0x65, 0x58, 0, 0, 1, 0])])),
        (Event::InGre, after(Rig::host(), &[Spec { protocol: 47, ..ip(4).payload(vec![0, 0, 8, 0]) }.bytes()])),
        (Event::InIp, after(Rig::host(), &[Spec { protocol: 4, ..ip(4).payload(whole(4, &[0; 8])) }.bytes()])),
        (Event::InWireGuard, after(Rig::host(), &[tunnel(51_820, &[&[4, 0, 0, 0][..], &[7; 28]].concat())])),
        (Event::InGtp, after(Rig::host(), &[tunnel(2_152, &[0x30, 255, 0, 4, 0, 0, 0, 1, 1, 2, 3, 4])])),
        (Event::InIpsec, after(Rig::host(), &[Spec { protocol: 50, ..ip(4).payload(vec![1; 40]) }.bytes()])),
        (
            Event::IcmpForbidden,
            after(
                Rig::router(68),
                &[Spec { source: [0; 4].into(), ip_flags: DF, ..ip(4).payload(vec![0; 100]) }.bytes()],
            ),
        ),
        (Event::IcmpRateLimited, {
            let answers = IcmpResponder::new([ROUTER_V4.into(), ROUTER_V6.into()], 1, 0, secret());
            let out = Output::new(Pool::new(1 << 20), Some(answers));
            after(Rig { out, ..Rig::router(68) }, &[too_big()])
        }),
    ];
    for (event, rig) in &table {
        assert!(rig.event(*event) > 0, "{} is not reached: {:?}", event.name(), rig.out.ledger);
    }
    // Those of paths, segment sizing and acknowledgements are reached in tests/flows/paths.rs, segment_sizing.rs,
    // acks.rs and early_acks.rs.
    let of_flows = [
        Event::SegmentsShorter,
        Event::SegmentsLonger,
        Event::SuperFragmented,
        Event::AcksExpanded,
        Event::EarlyAcks,
        Event::EarlyResent,
        Event::EarlyLost,
    ];
    let is_elsewhere = |event: &Event| event.name().starts_with("path_") || of_flows.contains(event);
    for event in Event::ALL.iter().filter(|event| !is_elsewhere(event)) {
        assert!(table.iter().any(|(known, _)| known == event), "{} has its line in the table", event.name());
    }
}

#[test]
fn counters_have_names_and_sentences_of_their_own() {
    let names = Reason::ALL.iter().map(|reason| (reason.name(), reason.what()));
    let names: Vec<_> = names.chain(Event::ALL.iter().map(|event| (event.name(), event.what()))).collect();
    for (index, (name, what)) in names.iter().enumerate() {
        assert!(what.ends_with('.') && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()));
        assert!(names[..index].iter().all(|(other, sentence)| other != name && sentence != what), "{name}");
    }
}

// Helpers.

fn after(mut rig: Rig, frames: &[Vec<u8>]) -> Rig {
    rig.push_all(frames);
    rig
}

/// A router that merges fragments to 1,500 bytes, with a memory limit of `bytes` bytes.
fn joining(bytes: usize) -> Rig {
    joining_within(join_limits(bytes))
}

fn joining_within(limits: MergeLimits) -> Rig {
    let mut rig = Rig::router(1_500);
    rig.side.aggregation.policies = Prefixes::new(FragmentPolicy::Merge);
    rig.side.aggregation.merger = Some(FragmentMerger::new(limits, 1_500, secret()));
    rig
}

fn join_limits(bytes: usize) -> MergeLimits {
    MergeLimits { bytes, timeout: Duration::from_millis(10), full: Full::Pass, runs: RunsBy::Datagram }
}

/// A border after these packets have crossed it.
fn crossing(packets: &[(Toward, Vec<u8>)]) -> Rig {
    let mut rig = Rig::host();
    let border = Border { raise: Raise::Always, ..Border::usual(9_000, 1_500) };
    let mut mss = Connections::at_border(1 << 20, border, secret());
    for (toward, bytes) in packets {
        let mut packet = Frame::copy(bytes, LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
        mss.on_packet(rig.now, &mut packet, *toward, &mut rig.out.ledger);
        rig.out.recycle(packet);
    }
    rig
}

/// A SYN with this MSS, and a checksum that is wrong by `sum_off`.
fn syn(mss: u16, sum_off: u16) -> Vec<u8> {
    let sum = if sum_off == 0 { Summed::Right } else { Summed::Off(sum_off) };
    tcp(4).seq(0).flags(SYN).options([&[2, 4], &mss.to_be_bytes()[..]].concat()).sum(sum).bytes()
}

/// A side that coalesces segments to 1,500 bytes.
fn gathering(mode: Mode) -> Rig {
    let mut rig = Rig::router(1_500);
    rig.side.aggregation.coalescer = Some(Coalescer::new(1 << 20, rules(mode), Vec::new(), secret()));
    rig
}

fn rules(mode: Mode) -> Rules {
    Rules { mode, hold: Hold::Adaptive, len_max: 1_500, longer: Toggle::On, udp: false }
}

fn segment(seq: u32, len: usize, flags: u8) -> Vec<u8> {
    tcp(4).seq(seq).flags(ACK | flags).payload(vec![7; len]).bytes()
}

/// A datagram to this port.
fn tunnel(port: u16, content: &[u8]) -> Vec<u8> {
    udp(4).ip_flags(0).ports(5_555, port).payload(content).bytes()
}

fn ethernet() -> Rig {
    Rig { link_type: LinkType::Ethernet, ..Rig::host() }
}

/// A fragment of eight bytes of this value.
fn part(offset: usize, value: u8, more: bool) -> Vec<u8> {
    fragment(4, offset, &[value; 8], more)
}

fn changed(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = value;
    bytes
}

fn total_len_of_19() -> Vec<u8> {
    with_total_len(ip(4).payload(vec![0; 8]), 19)
}

/// A packet whose length the sender leaves to its NIC: the total length is 0.
fn without_len() -> Vec<u8> {
    with_total_len(udp(4).ip_flags(0).payload([1; 100]), 0)
}

fn with_total_len(packet: Spec, len: u16) -> Vec<u8> {
    let mut bytes = packet.bytes();
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    seal_ip(&mut bytes);
    bytes
}

/// A jumbogram: length 0, without the option that states its length.
fn jumbo() -> Vec<u8> {
    let mut bytes = Spec { extensions: vec![extension(HOP_BY_HOP, 8)], ..ip(6).payload(vec![0; 8]) }.bytes();
    bytes[4..6].fill(0);
    bytes
}

fn behind(headers: Vec<(u8, Vec<u8>)>) -> Vec<u8> {
    let (next_header, payload) = chain(&headers, EXPERIMENT);
    Spec { protocol: next_header, ..ip(6).payload(payload) }.bytes()
}

/// A first fragment of `len` bytes: the start of a long header.
fn headers_cut(len: usize) -> Vec<u8> {
    let (next_header, options) = chain(&[extension(DESTINATION_OPTIONS, 2_048)], UDP);
    Spec { protocol: next_header, ..ip(6).part(0, &options[..len], true) }.bytes()
}

fn neighbour_solicitation() -> [Vec<u8>; 2] {
    let mut payload = [0; 24];
    payload[0] = 135;
    [(0, 16, true), (16, 24, false)].map(|(start, end, more)| {
        Spec { protocol: ICMPV6, ..ip(6).part(start, &payload[start..end], more) }.bytes()
    })
}

fn too_big() -> Vec<u8> {
    Spec { ip_flags: DF, ..ip(4).payload(vec![0; 100]) }.bytes()
}

fn late(late: Late) -> Rig {
    let mut rig = after(Rig::new(1_500, Role::Transit, Some(late)), &[part(0, 0, true)]);
    rig.wait(seconds(30));
    rig
}

fn evicted(late: Late) -> Rig {
    let limits = Limits { bytes: 1_000, timeout: None };
    after(Rig::with_limits(1_500, Role::Transit, Some(late), limits), &[part(0, 0, true)])
}

/// A source that has assigned all IDs of one pair.
fn worn_out() -> Rig {
    let mut rig = Rig::new(68, Role::Source(Identifiers::new(secret(), Duration::from_secs(60))), None);
    for _ in 0..65_536 {
        rig.push(&whole(4, &[0; 100]));
    }
    assert_eq!(rig.retired(Reason::NoIdentifier), 0, "every one of them is used once");
    rig
}

fn half_filled() -> Rig {
    let mut rig = Rig::host();
    let bytes = udp(4).ip_flags(0).payload([1, 2, 3]).bytes();
    let mut packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut rig.out.pool).unwrap();
    packet.checksum = Checksum::Partial;
    rig.side.push(rig.now, packet, &mut rig.connections, &mut rig.out);
    let packet = rig.out.next().unwrap();
    assert_eq!(packet.bytes(), bytes);
    rig.out.recycle(packet);
    rig
}

/// Segments of unequal lengths: sequence number, length, flags.
const THREE: [(u32, usize, u8); 3] = [(0, 50, 0), (50, 100, 0), (150, 10, PSH)];
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const ECE: u8 = 0x40;
