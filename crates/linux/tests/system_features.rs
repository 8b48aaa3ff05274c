//! Interfaces in private namespaces -> proofs about their own offloads.

mod system_pair;

use linux::features::{self, Features, Toggle};
use linux::frames::{FrameSocket, SeenFrame};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use system_pair::{FAR, Host, NEAR, becomes, pair};

#[test]
fn features_match_ethtool() {
    let [near, _far] = pair();
    let features = near.namespace.enter(|| Features::of("wire")).expect("it is there");
    let said = near.namespace.enter(|| Command::new("ethtool").args(["-k", "wire"]).output());
    let said = String::from_utf8(said.expect("ethtool is there").stdout).expect("it is text");
    let mut compared_count = 0;
    for line in said.lines() {
        let Some((name, state)) = line.trim().split_once(": ") else { continue };
        // The other names are ethtool's own names for groups of kernel features.
        let is_own = name.ends_with("-checksumming") || name.ends_with("-offload");
        if (name.starts_with("tx-") || name.starts_with("rx-")) && !is_own {
            assert_eq!(features.is_on(name), state.starts_with("on"), "{line}");
            assert_eq!(features.can_change(name), !state.contains("[fixed]"), "{line}");
            compared_count += 1;
        }
    }
    assert!(compared_count > 30, "{said}");
}

#[test]
fn a_feature_goes_off_and_comes_back() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        let is_on = |feature| Features::of("wire").expect("it is there").is_on(feature);
        assert!(is_on("tx-tcp-segmentation") && !is_on("rx-gro"));
        let switches = [("tx-tcp-segmentation", Toggle::Off), ("rx-gro", Toggle::On)];
        let previous = features::set("wire", &switches).expect("veth takes it");
        assert!(!is_on("tx-tcp-segmentation") && is_on("rx-gro") && is_on("tx-tcp6-segmentation"));
        assert!(!previous.is_same());
        previous.restore().expect("it is there");
        assert!(is_on("tx-tcp-segmentation") && !is_on("rx-gro"));
        assert!(features::set("wire", &[("rx-gro", Toggle::Off)]).expect("it is off").is_same());
    });
}

#[test]
fn wanted_features_are_restored_not_only_active_ones() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        // Without scatter-gather there is no segmentation, although it is still requested.
        let gather = features::set("wire", &[("tx-scatter-gather", Toggle::Off)]).expect("veth takes it");
        assert!(!Features::of("wire").expect("it is there").is_on("tx-tcp-segmentation"));
        let wire = features::as_a_wire("wire").expect("veth takes it");
        wire.restore().expect("it is there");
        gather.restore().expect("it is there");
        let features = Features::of("wire").expect("it is there");
        assert!(features.is_on("tx-tcp-segmentation") && features.is_on("tx-checksum-ip-generic"));
    });
}

#[test]
fn a_feature_that_depends_on_another_is_refused_and_nothing_changes() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        let before: Vec<String> = on();
        let switches =
            [("tx-scatter-gather", Toggle::Off), ("tx-tcp-segmentation", Toggle::On), ("rx-gro", Toggle::On)];
        let why = features::set("wire", &switches).expect_err("the one needs the other");
        assert_eq!(why.kind(), ErrorKind::Unsupported);
        assert_eq!(why.to_string(), "wire: cannot set tx-tcp-segmentation on: it depends on another feature");
        assert_eq!(on(), before);
    });
}

#[test]
fn unknown_and_fixed_features_and_interfaces_are_refused() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        let why = features::set("wire", &[("tx-nonsense", Toggle::On)]).expect_err("there is none");
        assert_eq!(why.kind(), ErrorKind::InvalidInput);
        assert_eq!(why.to_string(), "wire: no feature tx-nonsense; `ethtool -k wire` lists the features");
        let why = features::set("wire", &[("rx-lro", Toggle::On)]).expect_err("veth has none");
        assert_eq!(why.to_string(), "wire: cannot set rx-lro on: the driver fixes it");
        assert_eq!(Features::of("none").expect_err("there is none").kind(), ErrorKind::NotFound);
        assert_eq!(Features::of("a name that is too long").expect_err("none").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn features_are_restored_where_they_were_changed() {
    let [near, _far] = pair();
    let previous = near.namespace.enter(|| features::as_a_wire("wire")).expect("veth takes it");
    previous.restore().expect("the thread's namespace does not matter");
    assert!(near.namespace.enter(|| Features::of("wire")).expect("it is there").is_on("tx-tcp-segmentation"));
}

#[test]
fn an_interface_as_a_plain_wire_changes_no_packets() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        features::set("wire", &[("rx-gro", Toggle::On)]).map(drop).expect("veth takes it");
        let _previous = features::as_a_wire("wire").expect("veth takes it");
        let features = Features::of("wire").expect("it is there");
        let left: Vec<_> = features.on().filter(|feature| features.can_change(feature)).collect();
        for word in ["segmentation", "checksum", "scatter", "gso", "gro", "lro"] {
            assert!(!left.iter().any(|feature| feature.contains(word)), "{left:?}");
        }
    });
}

#[test]
fn a_gso_packet_crosses_a_plain_wire_as_segments() {
    let [near, far] = pair();
    assert_eq!(frames_of_a_gso(&near, &far), [4 * 1000 + 42], "without it the train crosses whole");
    let _near = near.namespace.enter(|| features::as_a_wire("wire")).expect("veth takes it");
    let _far = far.namespace.enter(|| features::as_a_wire("wire")).expect("veth takes it");
    assert_eq!(frames_of_a_gso(&near, &far), [1042; 4]);
}

/// Sends a UDP GSO packet of four segments of 1000 bytes, and returns the lengths of the frames that arrive.
fn frames_of_a_gso(near: &Host, far: &Host) -> Vec<usize> {
    let sender = near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let receiver = far.namespace.enter(|| UdpSocket::bind((FAR, 7000))).expect("it has the address");
    receiver.set_nonblocking(true).expect("a socket can be");
    becomes(|| {
        // An interface that has just come up drops packets for a moment.
        sender.send_to(b"who is there", (FAR, 7000)).expect("there is a route");
        receiver.recv(&mut [0; 2000]).ok()
    });
    let mut tap = far.namespace.enter(|| FrameSocket::open("wire")).expect("it is there");
    let segment_len = 1000_i32;
    // SAFETY: the kernel reads one `int`.
    let set = unsafe {
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const segment_len).cast(), 4)
    };
    assert_eq!(set, 0);
    sender.send_to(&[7; 4000], (FAR, 7000)).expect("there is a route");
    let mut lens = Vec::new();
    becomes(|| {
        while let Some(frame) = tap.receive().expect("it is up") {
            lens.extend(len_of_ours(&frame));
        }
        (lens.iter().map(|len| len - 42).sum::<usize>() == 4000).then_some(())
    });
    lens
}

/// Returns the length of a frame with the test's payload; `None` for frames that the hosts themselves send.
fn len_of_ours(frame: &SeenFrame) -> Option<usize> {
    frame.bytes.ends_with(&[7; 1000]).then_some(frame.bytes.len())
}

fn on() -> Vec<String> {
    Features::of("wire").expect("it is there").on().map(str::to_owned).collect()
}
