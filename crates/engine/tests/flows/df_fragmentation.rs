//! Datagrams with DF that exceed the next link's MTU: dropped, or fragmented where the settings say so.

use crate::rig::*;
use std::time::Duration;
use wideload_engine::packet::{Frame, Ingress, LinkType, Pool, Time};
use wideload_engine::{
    ANSWERS_BURST, ANSWERS_PER_SECOND, Aggregation, Connections, Event, IcmpResponder, Identifiers, LIFETIME,
    Output, Reason, Role, Secret, Side, Sizing, WirePackets,
};

#[test]
fn df_datagrams_are_fragmented_only_if_configured() {
    for protocol in [UDP, 1, TCP, 47] {
        for (version, is_asked_for) in [(4, false), (4, true), (6, false), (6, true)] {
            let mut out = output();
            let mut side = side(is_asked_for);
            let ids: Vec<_> = (0..2).map(|_| push(&mut side, &mut out, &datagram(version, protocol))).collect();
            let is_cut = is_asked_for && version == 4 && [UDP, 1].contains(&protocol);
            let counts = [Event::DfFragmented, Event::IcmpSent].map(|event| out.ledger.event(event).packets);
            if is_cut {
                assert_eq!((counts, out.ledger.retired(Reason::TooBig).packets), ([2, 0], 0), "{protocol}");
                assert_ne!(ids[0], ids[1], "what its sender wrote is no identification");
            } else if protocol != TCP {
                assert_eq!((counts[0], out.ledger.retired(Reason::TooBig).packets), (0, 2), "{version} {protocol}");
                assert!(protocol != UDP || counts[1] == 2, "its sender is told");
            }
        }
    }
}

#[test]
fn a_fragment_with_df_is_not_fragmented() {
    let mut out = output();
    let mut side = side(true);
    let spec = Spec { fragment: Some((0, true)), ..datagram(4, UDP) };
    push(&mut side, &mut out, &spec);
    assert_eq!(out.ledger.event(Event::DfFragmented).packets, 0);
    assert_eq!(out.ledger.retired(Reason::TooBig).packets, 1);
}

/// Pushes a datagram. Returns the ID of its fragments if it is fragmented, and checks them.
fn push(side: &mut Side, out: &mut Output, spec: &Spec) -> Option<[u8; 2]> {
    let bytes = spec.bytes();
    let packet = Frame::copy(&bytes, LinkType::Ip, Ingress(0), &mut out.pool).expect("it is a packet");
    let now = Time::ZERO + Duration::from_secs(1);
    side.push(now, packet, &mut Connections::new(Secret::new(7)), out);
    let (mut content, mut id) = (Vec::new(), None);
    while let Some(packet) = out.next() {
        let is_cut = packet.fragmentation.is_some();
        let mut fragments = WirePackets::of(&packet);
        while let Some(fragment) = fragments.next() {
            if is_cut {
                let frame = [fragment.header, fragment.payload].concat();
                assert!(frame.len() <= 1_500 && frame[6] & 0x40 == 0, "it fits, and may be cut again");
                assert_eq!(*id.get_or_insert([frame[4], frame[5]]), [frame[4], frame[5]]);
                content.extend_from_slice(&frame[20..]);
            }
        }
        out.recycle(packet);
    }
    assert!(id.is_none() || content == bytes[20..]);
    id
}

fn datagram(version: u8, protocol: u8) -> Spec {
    let datagram = if protocol == TCP { tcp(version) } else { udp(version) };
    Spec { protocol, ..datagram.id(0).payload([7; 4_000]).raw() }
}

fn side(cuts: bool) -> Side {
    let df_identifiers = cuts.then(|| Identifiers::new(Secret::new(3), LIFETIME));
    Side::of(Aggregation::default(), Sizing { df_identifiers, ..Sizing::new(1_500, Role::Transit) })
}

fn output() -> Output {
    let sources = ["192.0.2.1".parse().expect("it is one"), "2001:db8::1".parse().expect("it is one")];
    let answers = IcmpResponder::new(sources, ANSWERS_PER_SECOND, ANSWERS_BURST, Secret::new(1));
    Output::new(Pool::new(64 << 20), Some(answers))
}
