//! Hosts on one veth pair -> proofs about the kernel's neighbour entries.

mod system_pair;

use std::io::ErrorKind;
use std::net::IpAddr;
use system_pair::{FAR, FAR6, becomes, ip, pair};

#[test]
fn the_kernel_finds_a_neighbour_that_it_is_asked_for() {
    let [mut near, far] = pair();
    for address in [IpAddr::from(FAR), FAR6.into()] {
        let known = near.netlink.neighbour(near.index, address).expect("it can be asked");
        assert_eq!(known, None, "{address} before it was asked for");
        near.netlink.resolve(near.index, address).expect("it is up");
        let mac = becomes(|| near.netlink.neighbour(near.index, address).expect("it can be asked"));
        assert_eq!(mac, far.mac, "{address}");
        near.netlink.resolve(near.index, address).expect("to ask again is no error");
    }
}

#[test]
fn a_neighbour_that_does_not_answer_has_no_hardware_address() {
    let [mut near, _far] = pair();
    let silent = ip("192.0.2.99");
    near.namespace.set_sysctl("ipv4/neigh/wire/retrans_time_ms", "10").expect("it takes it");
    near.netlink.resolve(near.index, silent).expect("it is up");
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(near.netlink.neighbour(near.index, silent).expect("it can be asked"), None);
}

#[test]
fn a_static_neighbour_is_kept_until_removed() {
    let [mut near, _far] = pair();
    for address in [ip("192.0.2.50"), ip("2001:db8::50")] {
        near.netlink.add_neighbour(near.index, address, [2, 0, 0, 0, 0, 5]).expect("it is up");
        near.netlink.add_neighbour(near.index, address, [2, 0, 0, 0, 0, 6]).expect("the last word counts");
        let known = near.netlink.neighbour(near.index, address).expect("it can be asked");
        assert_eq!(known, Some([2, 0, 0, 0, 0, 6]));
        near.netlink.remove_neighbour(near.index, address).expect("it is there");
        assert_eq!(near.netlink.neighbour(near.index, address).expect("it can be asked"), None);
        let never = ip("192.0.2.77");
        let why = near.netlink.remove_neighbour(near.index, never).expect_err("it was never known");
        assert_eq!(why.kind(), ErrorKind::NotFound, "{why}");
    }
}

#[test]
fn an_interface_that_is_not_there_has_no_neighbours() {
    let [mut near, _far] = pair();
    let none = 4711;
    assert_eq!(near.netlink.neighbour(none, FAR.into()).expect_err("no interface").kind(), ErrorKind::NotFound);
    assert_eq!(near.netlink.resolve(none, FAR.into()).expect_err("no interface").kind(), ErrorKind::NotFound);
    let why = near.netlink.add_neighbour(none, FAR.into(), [2; 6]).expect_err("no interface");
    let text = "cannot set neighbour 192.0.2.2 of interface 4711 to 02:02:02:02:02:02: No such device";
    assert!(why.to_string().starts_with(text), "{why}");
}
