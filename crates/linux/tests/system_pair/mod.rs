//! Nothing -> two hosts on one veth pair, each in a namespace of its own.
#![allow(dead_code, reason = "each file of tests takes what it needs")]

use linux::addresses::Prefix;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use linux::routes::RouteKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// A host at one end of the veth pair.
pub struct Host {
    pub namespace: Namespace,
    pub netlink: Netlink,
    pub index: u32,
    pub mac: [u8; 6],
}

/// Makes two hosts. Both interfaces are named `wire` and are up. The hosts have the addresses [`NEAR`] and
/// [`NEAR6`], and [`FAR`] and [`FAR6`].
pub fn pair() -> [Host; 2] {
    let [near, far] = [namespace(), namespace()];
    for quiet in [&near, &far] {
        quiet.set_sysctl("ipv6/conf/default/accept_dad", "0").expect("it takes it");
        quiet.set_sysctl("ipv6/conf/default/router_solicitations", "0").expect("it takes it");
    }
    let mut netlink = inside(&near);
    netlink.make_veth("wire", "wire", &far).expect("the names are free");
    for end in [&near, &far] {
        inside(end).set_up("wire").expect("it is there");
    }
    [host(near, NEAR, NEAR6), host(far, FAR, FAR6)]
}

pub fn namespace() -> Namespace {
    Namespace::new().expect("these tests need root, or a user namespace of their own")
}

pub fn inside(namespace: &Namespace) -> Netlink {
    namespace.enter(Netlink::open).expect("a netlink socket is free")
}

/// Calls `ask` until it returns a value, for at most ten seconds, because the machine may be busy.
pub fn becomes<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "it did not become so in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn host(namespace: Namespace, v4: Ipv4Addr, v6: Ipv6Addr) -> Host {
    let mut netlink = inside(&namespace);
    netlink.add_address("wire", Prefix::new(v4, 24)).expect("it has none");
    netlink.add_address("wire", Prefix::new(v6, 64)).expect("it has none");
    becomes(|| netlink.route_to(v6.into()).ok().filter(|route| route.kind == RouteKind::Local));
    let wire = netlink.interface("wire").expect("it is there");
    Host { namespace, netlink, index: wire.index, mac: wire.mac.expect("veth has one") }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address of the test")
}

pub const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const NEAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
