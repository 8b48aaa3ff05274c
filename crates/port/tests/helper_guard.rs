//! A route with a guard device as its second next hop -> proofs that the route is removed with the device.

#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use linux::addresses::Prefix;
use linux::routes::{Route, RouteLifetime};
use system_pair::{FAR, NEAR, becomes, ip, pair};
use wideload_port::helper;

#[test]
fn a_route_ends_with_its_guard_device() {
    let [mut near, far] = pair();
    let tether = near.namespace.enter(|| helper::anchor_device("test")).expect("these tests have the right");
    let other = near.netlink.interface(tether.name()).expect("it was just made").index;
    let route = Route { source: Some(NEAR.into()), ..Route::via(Prefix::new(ip("203.0.113.0"), 24), FAR.into()) };
    let on_link = Route::on(Prefix::new(ip("198.51.100.0"), 24), near.index);
    for (route, to) in [(route, "203.0.113."), (on_link, "198.51.100.")] {
        let route =
            Route { index: Some(near.index), mtu: Some(60_000), ends: Some(RouteLifetime::With(other)), ..route };
        near.netlink.replace_route(&route).expect("these tests have the right");
        near.netlink.replace_route(&route).expect("it takes its own place");
        for host in 1..255 {
            let taken = near.netlink.route_to(ip(&format!("{to}{host}"))).expect("there is one");
            assert_eq!((taken.index, taken.gateway, taken.mtu), (Some(near.index), route.gateway, Some(60_000)));
        }
    }
    drop(tether);
    becomes(|| near.netlink.route_to(ip("203.0.113.9")).is_err().then_some(()));
    becomes(|| near.netlink.route_to(ip("198.51.100.9")).is_err().then_some(()));
    drop(far);
}
