//! Changes in private namespaces -> proofs that a monitor reports them.

mod system_pair;

use linux::addresses::Prefix;
use linux::monitor::{Change, Monitor, Presence};
use linux::routes::Route;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use system_pair::{Host, becomes, ip, pair};

#[test]
fn no_change_gives_no_event() {
    let [near, _far] = pair();
    let mut monitor = monitor(&near);
    // The kernel reports changes of a new veth pair for a second or two.
    becomes(|| {
        drain(&mut monitor);
        std::thread::sleep(std::time::Duration::from_millis(50));
        (!is_readable(&monitor) && monitor.next().is_none()).then_some(())
    });
}

#[test]
fn interface_changes_give_events() {
    let [mut near, _far] = pair();
    let mut monitor = monitor(&near);
    near.netlink.set_mtu("wire", 9000).expect("veth takes it");
    assert!(is_readable(&monitor));
    told(
        &mut monitor,
        |change| matches!(change, Change::Link(Presence::Set, it) if it.mtu == 9000 && it.name == "wire"),
    );
    near.netlink.set_down("wire").expect("it is there");
    told(&mut monitor, |change| matches!(change, Change::Link(Presence::Set, it) if !it.is_up && !it.has_carrier));
    near.netlink.remove("wire").expect("it is there");
    told(&mut monitor, |change| matches!(change, Change::Link(Presence::Gone, it) if it.index == near.index));
}

#[test]
fn address_changes_give_events() {
    let [mut near, _far] = pair();
    let mut monitor = monitor(&near);
    for prefix in [Prefix::new(ip("198.51.100.1"), 24), Prefix::new(ip("2001:db8:5::1"), 64)] {
        near.netlink.add_address("wire", prefix).expect("it has none");
        told(&mut monitor, |change| matches!(change, Change::Address(Presence::Set, it) if it.prefix == prefix));
        near.netlink.remove_address("wire", prefix).expect("it has it");
        told(&mut monitor, |change| matches!(change, Change::Address(Presence::Gone, it) if it.prefix == prefix));
    }
}

#[test]
fn route_changes_give_events() {
    let [mut near, _far] = pair();
    let mut monitor = monitor(&near);
    for (to, gateway) in [("203.0.113.0", ip("192.0.2.2")), ("2001:db8:9::", ip("2001:db8::2"))] {
        let route = Route { index: Some(near.index), metric: 7, ..Route::via(Prefix::new(ip(to), 24), gateway) };
        let route = Route {
            destination: if gateway.is_ipv6() { Prefix::new(ip(to), 48) } else { route.destination },
            ..route
        };
        near.netlink.add_route(&route).expect("there is none");
        told(&mut monitor, |change| matches!(change, Change::Route(Presence::Set, it) if *it == route));
        near.netlink.remove_route(&route).expect("it is there");
        told(&mut monitor, |change| matches!(change, Change::Route(Presence::Gone, it) if *it == route));
    }
}

#[test]
fn lost_events_are_reported() {
    let [mut near, _far] = pair();
    let mut monitor = monitor(&near);
    for mtu in 0..2000 {
        near.netlink.set_mtu("wire", 1400 + mtu % 2).expect("veth takes it");
    }
    told(&mut monitor, |change| *change == Change::Lost);
    drain(&mut monitor);
    near.netlink.set_mtu("wire", 3000).expect("veth takes it");
    told(&mut monitor, |change| matches!(change, Change::Link(Presence::Set, it) if it.mtu == 3000));
}

#[test]
fn a_monitor_ignores_other_namespaces() {
    let [mut near, far] = pair();
    let mut monitor = monitor(&far);
    near.netlink.add_address("wire", Prefix::new(ip("198.51.100.1"), 24)).expect("it has none");
    while let Some(change) = monitor.next() {
        assert!(!matches!(change, Change::Address(_, it) if it.prefix.address == ip("198.51.100.1")));
    }
}

fn monitor(host: &Host) -> Monitor {
    host.namespace.enter(Monitor::open).expect("a netlink socket is free")
}

fn drain(monitor: &mut Monitor) {
    while monitor.next().is_some() {}
}

fn told(monitor: &mut Monitor, is_it: impl Fn(&Change) -> bool) {
    becomes(|| monitor.next().filter(&is_it));
}

fn is_readable(monitor: &Monitor) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(monitor.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).expect("it can be asked") == 1
}
