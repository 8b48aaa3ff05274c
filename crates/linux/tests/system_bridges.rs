//! Interfaces -> proofs that a bridge connects and releases them.

mod system_pair;

use linux::addresses::Prefix;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;
use system_pair::{FAR, NEAR, becomes, inside, namespace};

#[test]
fn frames_cross_a_bridge_while_both_links_are_ports() {
    let [middle, near, far] = [namespace(), namespace(), namespace()];
    let mut netlink = inside(&middle);
    netlink.make_bridge("bridge").expect("the name is free");
    netlink.set_up("bridge").expect("it is there");
    for (name, host, address) in [("one", &near, NEAR), ("other", &far, FAR)] {
        netlink.make_veth(name, "wire", host).expect("the names are free");
        netlink.set_bridge(name, Some("bridge")).expect("both are there");
        netlink.set_up(name).expect("it is there");
        let mut netlink = inside(host);
        netlink.set_up("wire").expect("it is there");
        netlink.add_address("wire", Prefix::new(address, 24)).expect("it has none");
    }
    let sender = near.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let receiver = far.enter(|| UdpSocket::bind((FAR, 7000))).expect("it has the address");
    receiver.set_nonblocking(true).expect("a socket can be");
    let came = || receiver.recv(&mut [0; 64]).ok();
    let crosses = || {
        becomes(|| {
            sender.send_to(b"across", (FAR, 7000)).expect("there is a route");
            sleep(Duration::from_millis(5));
            came()
        })
    };
    assert_eq!(netlink.interface("bridge").expect("it is there").kind.as_deref(), Some("bridge"));
    crosses();
    netlink.set_bridge("other", None).expect("it is a port");
    for _ in 0..5 {
        sender.send_to(b"nowhere", (FAR, 7000)).expect("there is a route");
        sleep(Duration::from_millis(10));
    }
    // Frames sent before may still arrive.
    let mut room = [0; 64];
    while let Ok(len) = receiver.recv(&mut room) {
        assert_eq!(room[..len], *b"across");
    }
    netlink.set_bridge("other", Some("bridge")).expect("both are there");
    crosses();
}

#[test]
fn a_failed_bridge_gives_the_reason() {
    let [middle, host] = [namespace(), namespace()];
    let mut netlink = inside(&middle);
    netlink.make_bridge("bridge").expect("the name is free");
    netlink.make_veth("one", "wire", &host).expect("the names are free");
    let said = |error: std::io::Error| (error.kind(), error.to_string());
    let (kind, text) = said(netlink.make_bridge("bridge").expect_err("it is there"));
    assert_eq!(kind, ErrorKind::AlreadyExists, "{text}");
    assert!(text.starts_with("bridge: cannot create a bridge: File exists; remove"), "{text}");
    let (kind, text) = said(netlink.set_bridge("one", Some("none")).expect_err("there is none"));
    assert!(kind == ErrorKind::NotFound && text.starts_with("none: "), "{text}");
    let (kind, text) = said(netlink.set_bridge("two", Some("bridge")).expect_err("there is none"));
    assert!(kind == ErrorKind::NotFound && text.starts_with("two: cannot add it to bridge bridge: "), "{text}");
    let (_, text) = said(netlink.set_bridge("lo", Some("bridge")).expect_err("it cannot be a port"));
    assert!(text.starts_with("lo: cannot add it to bridge bridge: "), "{text}");
    let (_, text) = said(netlink.set_bridge("one", Some("lo")).expect_err("it is no bridge"));
    assert!(text.starts_with("one: cannot add it to bridge lo: "), "{text}");
    netlink.set_bridge("one", None).expect("to be of none already is no error");
    let (kind, text) = said(without_rights(&middle));
    assert!(kind == ErrorKind::PermissionDenied && text.contains("; run as root or give CAP_NET_ADMIN"), "{text}");
}

/// Returns the error of creating a bridge without privileges.
fn without_rights(namespace: &Namespace) -> std::io::Error {
    namespace.enter(|| {
        let mut netlink = Netlink::open().expect("a netlink socket is free");
        let mut sets = rustix::thread::capabilities(None).expect("they can be read");
        sets.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).expect("less is allowed");
        netlink.make_bridge("another").expect_err("the right is gone")
    })
}
