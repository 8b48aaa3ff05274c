//! Interfaces in private namespaces -> proofs that their state is read and changed correctly.

mod system_pair;

use linux::addresses::{AddressState, InterfaceAddress, Prefix};
use linux::features::Toggle;
use linux::netlink::Netlink;
use packet::LinkType;
use std::io::ErrorKind;
use std::net::UdpSocket;
use system_pair::{FAR, FAR6, NEAR, NEAR6, becomes, inside, ip, namespace, pair};

#[test]
fn a_veth_pair_is_recognised() {
    let [mut near, mut far] = pair();
    for host in [&mut near, &mut far] {
        let wire = host.netlink.interface("wire").expect("it is there");
        assert_eq!((wire.name.as_str(), wire.mtu, wire.kind.as_deref()), ("wire", 1500, Some("veth")));
        assert_eq!((wire.link_type, wire.mac), (Some(LinkType::Ethernet), Some(host.mac)));
        assert!(wire.is_up && wire.has_carrier);
        assert_eq!(host.netlink.interface_at(wire.index).expect("it is there").name, "wire");
        let all = host.netlink.interfaces().expect("they can be listed");
        assert!(all.iter().any(|it| it.name == "wire") && all.iter().any(|it| it.name == "lo"));
    }
}

#[test]
fn a_down_interface_takes_its_peers_carrier() {
    let [mut near, mut far] = pair();
    near.netlink.set_down("wire").expect("it is there");
    let (near, far) = (near.netlink.interface("wire"), far.netlink.interface("wire"));
    let (near, far) = (near.expect("it is there"), far.expect("it is there"));
    assert!(!near.is_up && !near.has_carrier);
    assert!(far.is_up && !far.has_carrier);
}

#[test]
fn mtu_and_hardware_address_read_back() {
    let [mut near, _far] = pair();
    near.netlink.set_mtu("wire", 9000).expect("veth takes it");
    near.netlink.set_mac("wire", [2, 0, 0, 0, 0, 7]).expect("veth takes it");
    let wire = near.netlink.interface("wire").expect("it is there");
    assert_eq!((wire.mtu, wire.mac), (9000, Some([2, 0, 0, 0, 0, 7])));
}

#[test]
fn promiscuous_mode_goes_on_and_off() {
    let [mut near, _far] = pair();
    let mut is_promiscuous = |switch| {
        near.netlink.set_promiscuous("wire", switch).expect("veth takes it");
        let read = || std::process::Command::new("ip").args(["-d", "link", "show", "wire"]).output();
        let said = near.namespace.enter(read).expect("ip is there").stdout;
        String::from_utf8_lossy(&said).contains("PROMISC")
    };
    assert!(is_promiscuous(Toggle::On));
    assert!(!is_promiscuous(Toggle::Off));
}

#[test]
fn counters_count_packets_and_bytes() {
    let [mut near, mut far] = pair();
    let sender = near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let receiver = far.namespace.enter(|| UdpSocket::bind((FAR, 7000))).expect("it has the address");
    receiver.set_nonblocking(true).expect("a socket can be");
    // An interface that has just come up drops packets for a moment.
    becomes(|| {
        sender.send_to(b"who is there", (FAR, 7000)).expect("there is a route");
        receiver.recv(&mut [0; 64]).ok()
    });
    let before = [&mut near, &mut far].map(|host| host.netlink.interface("wire").expect("it is there").counters);
    for _ in 0..10 {
        sender.send_to(&[7; 958], (FAR, 7000)).expect("there is a route");
        becomes(|| receiver.recv(&mut [0; 1000]).ok());
    }
    let after = [&mut near, &mut far].map(|host| host.netlink.interface("wire").expect("it is there").counters);
    // Frames of 1000 bytes; the hosts' own traffic is small.
    let packets = after[0].sent.packet_count - before[0].sent.packet_count;
    let bytes = after[0].sent.byte_count - before[0].sent.byte_count;
    assert!((10..30).contains(&packets) && (10_000..13_000).contains(&bytes), "{packets} packets, {bytes} bytes");
    let packets = after[1].received.packet_count - before[1].received.packet_count;
    assert!((10..30).contains(&packets), "{packets} packets");
    assert_eq!((after[0].sent.error_count, after[1].received.error_count), (0, 0));
}

#[test]
fn a_removed_interface_is_gone_at_both_ends() {
    let [mut near, mut far] = pair();
    near.netlink.remove("wire").expect("it is there");
    for netlink in [&mut near.netlink, &mut far.netlink] {
        let why = netlink.interface("wire").expect_err("it went");
        assert_eq!(why.kind(), ErrorKind::NotFound);
        assert_eq!(why.to_string(), "wire: No such device; `ip link` lists the interfaces");
    }
    let index = near.index;
    assert_eq!(near.netlink.interface_at(index).expect_err("it went").kind(), ErrorKind::NotFound);
    assert_eq!(near.netlink.remove("wire").expect_err("it went").kind(), ErrorKind::NotFound);
    assert_eq!(near.netlink.set_up("wire").expect_err("it went").kind(), ErrorKind::NotFound);
}

#[test]
fn a_taken_name_is_reported() {
    let [mut near, far] = pair();
    let why = near.netlink.make_veth("wire", "other", &far.namespace).expect_err("it is taken here");
    assert_eq!(why.kind(), ErrorKind::AlreadyExists);
    let text = "wire: cannot create a veth pair with other: File exists; remove the existing one first";
    assert_eq!(why.to_string(), text);
    let why = near.netlink.make_veth("other", "wire", &far.namespace).expect_err("it is taken there");
    assert_eq!(why.kind(), ErrorKind::AlreadyExists);
    assert!(near.netlink.interface("other").is_err(), "half a cable was left");
}

#[test]
fn an_error_gives_attempt_place_reason_and_remedy() {
    let [mut near, _far] = pair();
    let why = near.netlink.set_mtu("wire", 70_000).expect_err("no IP packet is so long");
    assert_eq!(why.to_string(), "wire: cannot set MTU 70000: Invalid argument (mtu greater than device maximum)");
    let mut netlink = near.netlink;
    let why = std::thread::scope(|scope| {
        let without_rights = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).expect("they can be read");
            sets.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).expect("less is allowed");
            netlink.set_mtu("wire", 9000).expect_err("the right is gone")
        });
        without_rights.join().expect("it does not panic")
    });
    assert_eq!(why.kind(), ErrorKind::PermissionDenied);
    assert_eq!(
        why.to_string(),
        "wire: cannot set MTU 9000: Operation not permitted; run as root or give CAP_NET_ADMIN"
    );
}

#[test]
fn addresses_come_and_go_and_may_be_used_at_once() {
    // Both ends of a veth pair are removed with the namespace of either end.
    let [near, far] = [namespace(), namespace()];
    let mut netlink = inside(&near);
    netlink.make_veth("one", "two", &far).expect("free");
    for prefix in [Prefix::new(NEAR, 24), Prefix::new(NEAR6, 64), Prefix::host(ip("198.51.100.7"))] {
        netlink.add_address("one", prefix).expect("it has none");
        let index = netlink.interface("one").expect("it is there").index;
        let held = InterfaceAddress { index, prefix, state: AddressState::Usable };
        assert!(netlink.addresses().expect("they can be listed").contains(&held), "{prefix}");
        assert_eq!(netlink.add_address("one", prefix).expect_err("twice").kind(), ErrorKind::AlreadyExists);
        netlink.remove_address("one", prefix).expect("it has it");
        assert!(!netlink.addresses().expect("they can be listed").contains(&held), "{prefix}");
        let why = netlink.remove_address("one", prefix).expect_err("twice");
        assert_eq!(why.kind(), ErrorKind::NotFound, "{why}");
        assert!(why.to_string().starts_with(&format!("one: cannot remove address {prefix}: ")), "{why}");
    }
    let why = netlink.add_address("none", Prefix::host(NEAR)).expect_err("there is no such interface");
    assert_eq!(why.kind(), ErrorKind::NotFound);
}

#[test]
fn a_duplicate_address_is_reported() {
    let [mut near, mut far] = pair();
    far.netlink.remove_address("wire", Prefix::new(FAR6, 64)).expect("it has it");
    far.namespace.set_sysctl("ipv6/conf/wire/accept_dad", "1").expect("it takes it");
    let add = || std::process::Command::new("ip").args(["addr", "add", "2001:db8::1/64", "dev", "wire"]).status();
    assert!(far.namespace.enter(add).expect("ip is there").success());
    let mut state = |wanted| {
        let all = far.netlink.addresses().expect("they can be listed");
        let of = |it: &&InterfaceAddress| it.prefix.address == NEAR6;
        let found = all.iter().find(of).map(|it| it.state);
        (found == Some(wanted)).then_some(())
    };
    becomes(|| state(AddressState::Duplicate));
    let all = near.netlink.addresses().expect("they can be listed");
    assert!(all.iter().any(|it| it.prefix == Prefix::new(NEAR6, 64) && it.state == AddressState::Usable));
}

#[test]
fn many_interfaces_are_all_listed() {
    let [near, far] = [namespace(), namespace()];
    let mut netlink: Netlink = inside(&near);
    for number in 0..40 {
        netlink.make_veth(&format!("v{number}"), &format!("w{number}"), &far).expect("the names are free");
    }
    let all = netlink.interfaces().expect("they can be listed");
    assert_eq!(all.iter().filter(|it| it.name.starts_with('v') && it.kind.as_deref() == Some("veth")).count(), 40);
}
