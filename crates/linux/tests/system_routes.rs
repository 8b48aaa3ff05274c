//! Routes and rules in private namespaces -> proofs about the kernel's choice of route.

mod system_pair;

use linux::addresses::Prefix;
use linux::routes::{MAIN, Route, RouteKind, RouteLifetime, Rule};
use packet::Version;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::Command;
use system_pair::{FAR, FAR6, Host, NEAR, NEAR6, becomes, ip, pair};

#[test]
fn a_neighbour_is_reached_on_the_link_itself() {
    let [mut near, _far] = pair();
    for (far, own) in [(IpAddr::from(FAR), IpAddr::from(NEAR)), (FAR6.into(), NEAR6.into())] {
        let route = near.netlink.route_to(far).expect("it is on the link");
        assert_eq!((route.kind, route.gateway, route.index), (RouteKind::Unicast, None, Some(near.index)));
        assert_eq!((route.source, route.destination), (Some(own), Prefix::host(far)));
    }
}

#[test]
fn an_own_address_is_local_and_none_is_unreachable() {
    let [mut near, _far] = pair();
    assert_eq!(near.netlink.route_to(NEAR.into()).expect("it is ours").kind, RouteKind::Local);
    assert_eq!(near.netlink.route_to(NEAR6.into()).expect("it is ours").kind, RouteKind::Local);
    for elsewhere in [ip("203.0.113.9"), ip("2001:db8:9::9")] {
        let why = near.netlink.route_to(elsewhere).expect_err("there is no route");
        assert_eq!(why.kind(), ErrorKind::NetworkUnreachable);
        assert!(why.to_string().starts_with(&format!("no route to {elsewhere}: Network is unreachable")), "{why}");
    }
}

#[test]
fn an_added_route_is_listed_taken_and_removed() {
    let [mut near, _far] = pair();
    let index = Some(near.index);
    for (to, gateway, inner, source) in [
        (Prefix::new(ip("203.0.113.0"), 24), ip("192.0.2.2"), ip("203.0.113.9"), IpAddr::from(NEAR)),
        (Prefix::new(ip("0.0.0.0"), 0), ip("192.0.2.2"), ip("8.8.8.8"), NEAR.into()),
        (Prefix::new(ip("2001:db8:9::"), 48), ip("2001:db8::2"), ip("2001:db8:9::9"), NEAR6.into()),
        (Prefix::new(ip("::"), 0), ip("2001:db8::2"), ip("2a00::1"), NEAR6.into()),
    ] {
        let mtu = Some(1400);
        let route = Route { index, source: Some(source), metric: 50, mtu, ..Route::via(to, gateway) };
        near.netlink.add_route(&route).expect("there is none");
        assert!(near.netlink.routes().expect("they can be listed").contains(&route), "{to}");
        let taken = near.netlink.route_to(inner).expect("there is one");
        assert_eq!((taken.gateway, taken.index, taken.source), (Some(gateway), index, Some(source)));
        assert_eq!((taken.mtu, taken.kind), (mtu, RouteKind::Unicast));
        let why = near.netlink.add_route(&route).expect_err("twice");
        assert_eq!(why.kind(), ErrorKind::AlreadyExists, "{why}");
        near.netlink.remove_route(&route).expect("it is there");
        assert!(!near.netlink.routes().expect("they can be listed").contains(&route), "{to}");
        let why = near.netlink.remove_route(&route).expect_err("twice");
        assert_eq!(why.kind(), ErrorKind::NotFound, "{why}");
        assert!(why.to_string().contains(&format!("cannot remove the route to {to} from table 254: ")), "{why}");
    }
}

#[test]
fn a_route_without_a_gateway_is_on_the_link() {
    let [mut near, _far] = pair();
    let route = Route::on(Prefix::new(ip("198.51.100.0"), 24), near.index);
    near.netlink.add_route(&route).expect("there is none");
    let taken = near.netlink.route_to(ip("198.51.100.9")).expect("there is one");
    assert_eq!((taken.gateway, taken.index, taken.mtu), (None, Some(near.index), None));
}

#[test]
fn an_unreachable_gateway_is_refused_with_the_kernels_message() {
    let [mut near, _far] = pair();
    let route = Route::via(Prefix::new(ip("203.0.113.0"), 24), ip("198.51.100.1"));
    let why = near.netlink.add_route(&route).expect_err("nobody has that gateway");
    let text = "cannot add the route to 203.0.113.0/24 in table 254: Network is unreachable \
                (Nexthop has invalid gateway)";
    assert_eq!(why.to_string(), text);
}

#[test]
fn an_ipv4_route_may_have_an_ipv6_gateway() {
    let [mut near, _far] = pair();
    let to = Prefix::new(ip("203.0.113.0"), 24);
    let route = Route { index: Some(near.index), ..Route::via(to, FAR6.into()) };
    near.netlink.add_route(&route).expect("there is none");
    assert!(near.netlink.routes().expect("they can be listed").contains(&route));
    assert_eq!(near.netlink.route_to(ip("203.0.113.9")).expect("there is one").gateway, Some(FAR6.into()));
}

#[test]
fn a_refusing_route_refuses() {
    let [mut near, _far] = pair();
    let to = Prefix::new(ip("203.0.113.0"), 24);
    let route = Route { kind: RouteKind::Refused, gateway: None, ..Route::via(to, FAR.into()) };
    near.netlink.add_route(&route).expect("there is none");
    assert!(near.netlink.routes().expect("they can be listed").contains(&route));
    let why = near.netlink.route_to(ip("203.0.113.9")).expect_err("it refuses");
    assert_eq!(why.kind(), ErrorKind::HostUnreachable);
}

#[test]
fn a_route_of_two_next_hops_is_there_twice() {
    let [mut near, _far] = pair();
    ip_command(&near, "route add 203.0.113.0/24 nexthop via 192.0.2.2 nexthop via 192.0.2.3");
    ip_command(&near, "route add 2001:db8:9::/48 nexthop via 2001:db8::2 nexthop via 2001:db8::3");
    let routes = near.netlink.routes().expect("they can be listed");
    for (to, gateways) in [
        (Prefix::new(ip("203.0.113.0"), 24), ["192.0.2.2", "192.0.2.3"]),
        (Prefix::new(ip("2001:db8:9::"), 48), ["2001:db8::2", "2001:db8::3"]),
    ] {
        let hops = routes.iter().filter(|route| route.destination == to);
        let found: Vec<_> = hops.map(|route| (route.gateway, route.index)).collect();
        assert_eq!(found, gateways.map(|gateway| (Some(ip(gateway)), Some(near.index))));
    }
}

#[test]
fn a_rule_selects_a_table_for_both_versions() {
    let [mut near, _far] = pair();
    let table = 1000;
    assert_eq!(near.netlink.routes_of(table).expect("an empty table is no error"), []);
    let routes = [
        Route { table, ..Route::via(Prefix::new(ip("0.0.0.0"), 0), FAR.into()) },
        Route { table, ..Route::via(Prefix::new(ip("::"), 0), FAR6.into()) },
    ];
    for route in &routes {
        near.netlink.add_route(route).expect("there is none");
    }
    assert_eq!(near.netlink.routes_of(table).expect("they can be listed").len(), 2);
    assert!(near.netlink.routes().expect("they can be listed").iter().all(|route| route.table == MAIN));
    assert!(near.netlink.route_to(ip("203.0.113.9")).is_err());

    near.netlink.add_rule(100, table).expect("there is none");
    let rules = near.netlink.rules().expect("they can be listed");
    for version in [Version::V4, Version::V6] {
        assert!(rules.contains(&Rule {
            version,
            priority: 100,
            table: Some(table),
            selects_by_mark_or_ports: false
        }));
        assert!(rules.contains(&Rule {
            version,
            priority: 32766,
            table: Some(MAIN),
            selects_by_mark_or_ports: false
        }));
    }
    assert_eq!(near.netlink.route_to(ip("203.0.113.9")).expect("a rule leads there").gateway, Some(FAR.into()));
    assert_eq!(near.netlink.route_to(ip("2a00::1")).expect("a rule leads there").gateway, Some(FAR6.into()));
    assert_eq!(near.netlink.add_rule(100, table).expect_err("twice").kind(), ErrorKind::AlreadyExists);

    near.netlink.remove_rule(100, table).expect("it is there");
    assert!(near.netlink.route_to(ip("203.0.113.9")).is_err() && near.netlink.route_to(ip("2a00::1")).is_err());
    assert_eq!(near.netlink.remove_rule(100, table).expect_err("twice").kind(), ErrorKind::NotFound);
}

#[test]
fn a_rule_shows_whether_it_matches_marks_or_ports() {
    let [mut near, _far] = pair();
    let rules = [("fwmark 7", true), ("ipproto udp", false), ("dport 53", true), ("sport 53", true)];
    for (selector, selects_by_mark_or_ports) in
        rules.into_iter().chain([("from 192.0.2.1", false), ("iif wire", false), ("tos 8", false)])
    {
        ip_command(&near, &format!("rule add {selector} pref 100 lookup 1000"));
        let rules = near.netlink.rules().expect("they can be listed");
        let rule = rules.iter().find(|rule| rule.priority == 100).expect("it was just added");
        assert_eq!(rule.selects_by_mark_or_ports, selects_by_mark_or_ports, "{selector}");
        ip_command(&near, "rule del pref 100");
    }
}

#[test]
fn a_rule_is_added_for_both_versions_or_none() {
    let [mut near, _far] = pair();
    ip_command(&near, "-6 rule add iif lo pref 100 lookup 1000");
    assert_eq!(near.netlink.add_rule(100, 1000).expect_err("IPv6 has it").kind(), ErrorKind::AlreadyExists);
    let rules = near.netlink.rules().expect("they can be listed");
    let versions: Vec<_> = rules.iter().filter(|rule| rule.priority == 100).map(|rule| rule.version).collect();
    assert_eq!(versions, [Version::V6]);
}

#[test]
fn a_route_expires_unless_it_is_set_again() {
    let [mut near, _far] = pair();
    let to = Prefix::new(ip("2001:db8:9::"), 48);
    let route =
        Route { index: Some(near.index), ends: Some(RouteLifetime::After(1)), ..Route::via(to, FAR6.into()) };
    let lasting = Route { ends: Some(RouteLifetime::After(100)), ..route.clone() };
    near.netlink.replace_route(&route).expect("these tests have the right");
    assert!(near.netlink.route_to(ip("2001:db8:9::9")).is_ok());
    becomes(|| near.netlink.route_to(ip("2001:db8:9::9")).is_err().then_some(()));
    near.netlink.replace_route(&route).expect("it may come again");
    near.netlink.replace_route(&lasting).expect("it is set again");
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert!(near.netlink.route_to(ip("2001:db8:9::9")).is_ok());
}

#[test]
fn a_thousand_routes_are_all_listed() {
    let [mut near, _far] = pair();
    for number in 0..1000_u32 {
        let address = IpAddr::V4((0x0a00_0000 + (number << 8)).into());
        near.netlink.add_route(&Route::via(Prefix::new(address, 24), FAR.into())).expect("there is none");
    }
    let routes = near.netlink.routes().expect("they can be listed");
    assert_eq!(routes.iter().filter(|route| route.gateway == Some(FAR.into())).count(), 1000);
}

fn ip_command(host: &Host, arguments: &str) {
    let run = || Command::new("ip").args(arguments.split(' ')).status();
    assert!(host.namespace.enter(run).expect("ip is there").success(), "ip {arguments}");
}
