//! The side beside a kernel: reassembled datagrams leave complete or as received, all other packets leave as
//! received.

use crate::rig::*;
use wideload_engine::{Event, Late, Role};

#[test]
fn unfragmented_packets_pass_unchanged_at_any_length() {
    let mut rig = Rig::new(1_500, Role::Helper, None);
    for version in VERSIONS {
        for len in [100, 1_460, 1_500, 9_000] {
            let packet = whole(version, &pattern(len));
            assert_only(&rig.push(&packet), &packet);
        }
    }
    let refused = Spec { ip_flags: DF, ..ip(4).payload(pattern(9_000)) }.bytes();
    assert_only(&rig.push(&refused), &refused);
    assert_eq!(rig.event(Event::LeftOversize), 5, "those longer than the MTU are counted");
}

#[test]
fn long_reassembled_datagrams_leave_within_the_longest_received_fragment() {
    for version in VERSIONS {
        let mut rig = Rig::new(4_000, Role::Helper, Some(Late::Release { mtu: 4_000 }));
        let fits = pattern(3_000);
        assert_whole(&rig.push_all(&fragments(version, &fits, 1_400)), &fits);
        let long = pattern(7_000);
        let came = fragments(version, &long, 1_400);
        let left = rig.push_all(&came);
        assert_eq!(ReadPacket::all(&left), ReadPacket::all(&came), "as they came");
    }
}

#[test]
fn fragments_of_a_reassembled_datagram_keep_df() {
    let mut rig = Rig::new(1_000, Role::Helper, Some(Late::Release { mtu: 1_000 }));
    let long = pattern(2_800);
    let came = ip(4).ip_flags(DF).payload(&long).parts(1_400);
    assert_eq!(ReadPacket::all(&rig.push_all(&came)), ReadPacket::all(&came));
}
