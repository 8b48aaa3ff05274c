//! A wide interface over a host's narrow one: packets that cross it, and the host's state before, during and after.

use linux::addresses::AddressState;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use wideload_lab::net::Offloading;
use wideload_lab::three_hosts::{v4, v6};
use wideload_lab::traffic::{self, Messages};
use wideload_lab::two_hosts::TwoHosts;

#[test]
fn messages_of_every_size_cross_between_wide_and_stock_hosts() {
    for (mtu, wide_mtu) in [(1_500, 65_535), (9_000, 65_535), (1_500, 9_000)] {
        for wide_count in [1, 2] {
            let pair = TwoHosts::new(mtu, Offloading::Off).unwrap();
            let services: Vec<_> = (0..wide_count).map(|host| start(&pair, host, wide_mtu)).collect();
            await_direction(&pair);
            for len in [8, 1_472, 1_473, 30_000, 65_487] {
                for (from, to) in [(0, 1), (1, 0)] {
                    for address in [v4(to as u8 + 1), v6(to as u8 + 1)] {
                        let messages = Messages { len, count: 12, rate: Some(100e6) };
                        let transfer =
                            traffic::udp(pair.hosts[from].space(), pair.hosts[to].space(), address, messages, 5)
                                .unwrap();
                        assert!(transfer.intact);
                        assert_eq!(
                            transfer.messages, 12,
                            "{len} bytes to {address}, link {mtu}, wide MTU {wide_mtu}, {wide_count} wide"
                        );
                    }
                }
            }
            check_books(&services);
        }
    }
}

#[test]
fn tcp_crosses_between_wide_and_stock_hosts() {
    for offloading in [Offloading::Off, Offloading::On] {
        for wide_count in [1, 2] {
            let pair = TwoHosts::new(1_500, offloading).unwrap();
            let services: Vec<_> = (0..wide_count).map(|host| start(&pair, host, 65_535)).collect();
            await_direction(&pair);
            for (from, to) in [(0, 1), (1, 0)] {
                for address in [v4(to as u8 + 1), v6(to as u8 + 1)] {
                    let transfer =
                        traffic::tcp(pair.hosts[from].space(), pair.hosts[to].space(), address, 8 << 20, 6)
                            .unwrap();
                    assert!(transfer.intact, "to {address}, {offloading:?}, {wide_count} wide");
                }
            }
            check_books(&services);
        }
    }
}

#[test]
fn a_stopped_wide_interface_restores_the_host() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let host = &pair.hosts[0];
    let state = || {
        host.tell(|netlink| {
            let mut routes = netlink.routes()?;
            routes.retain(|route| route.metric != 1_024 || route.index.is_some());
            let rules = netlink.rules()?;
            let names: Vec<_> = netlink.interfaces()?.into_iter().map(|interface| interface.name).collect();
            Ok((routes, rules, names, netlink.addresses()?))
        })
        .unwrap()
    };
    await_direction(&pair);
    let mut before = state();
    // A host first probes its own addresses for a second or two (RFC 4862 5.4).
    while before.3.iter().any(|address| address.state == AddressState::Tentative) {
        thread::sleep(Duration::from_millis(10));
        before = state();
    }
    let service = pair.start(0, &pair.wide_interface(0, 65_535, [""; 3])).unwrap();
    await_direction(&pair);
    for address in [v4(2), v6(2)] {
        let during = host.tell(|netlink| netlink.route_to(address)).unwrap();
        let narrow = host.tell(|netlink| Ok(netlink.interface(pair.names()[0])?.index)).unwrap();
        assert_eq!((during.index, during.mtu), (Some(narrow), Some(65_520)), "{address}");
    }
    assert_eq!(host.tell(|netlink| netlink.routes()).unwrap().len(), before.0.len(), "the main table is nobody's");
    service.stop();
    let after = state();
    assert_eq!(after, before);
    assert_eq!(exchange(&pair), Some(20));
}

#[test]
fn only_configured_prefixes_are_routed() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let more = "[wide-interface]\nprefixes = [\"10.77.0.0/24\"]\n";
    let _service = pair.start(0, &pair.wide_interface(0, 65_535, [more, "", ""])).unwrap();
    await_direction(&pair);
    let host = &pair.hosts[0];
    assert_eq!(host.tell(|netlink| netlink.route_to(v4(2))).unwrap().mtu, Some(65_520));
    assert_eq!(host.tell(|netlink| netlink.route_to(v6(2))).unwrap().mtu, None);
}

#[test]
fn specific_routes_are_kept_and_removed_routes_restored() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let (host, name) = (&pair.hosts[0], pair.names()[0]);
    let ip = |arguments: String| {
        let run = || Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(host.space().enter(run).success(), "ip {arguments}");
    };
    ip(format!("route add 10.200.0.0/16 via 192.0.2.200 dev {name} onlink"));
    ip("route add 10.201.0.0/16 via 10.77.0.2 mtu 1400".to_owned());
    let _service = start(&pair, 0, 65_535);
    await_direction(&pair);
    let mtu_to = |address: &str| {
        let address = address.parse().unwrap();
        host.tell(|netlink| netlink.route_to(address)).unwrap().mtu
    };
    assert_eq!(
        [mtu_to("10.200.0.1"), mtu_to("10.201.0.1"), mtu_to("10.77.0.2")],
        [None, Some(1_400), Some(65_520)]
    );
    let becomes = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    ip("route add 10.202.0.0/16 via 10.77.0.2".to_owned());
    becomes("a new route becomes wide", &|| mtu_to("10.202.0.1") == Some(65_520));
    ip("route del 10.202.0.0/16".to_owned());
    becomes("one that is gone goes", &|| {
        host.tell(|netlink| Ok(netlink.route_to("10.202.0.1".parse().unwrap()).is_err())).unwrap()
    });
    ip("rule del pref 32765".to_owned());
    becomes("the rule comes again", &|| mtu_to("10.77.0.2") == Some(65_520));
    ip("-6 rule del pref 32765".to_owned());
    becomes("that of IPv6, too", &|| host.tell(|netlink| netlink.route_to(v6(2))).unwrap().mtu == Some(65_520));
}

#[test]
fn a_burst_of_small_messages_waits_in_the_device() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let _service = pair.start(0, &pair.wide_interface(0, 65_535, [""; 3])).unwrap();
    await_direction(&pair);
    let messages = Messages { len: 64, count: 3_000, rate: None };
    let transfer = traffic::udp(pair.hosts[0].space(), pair.hosts[1].space(), v4(2), messages, 9).unwrap();
    assert_eq!((transfer.messages, transfer.intact), (3_000, true));
}

#[test]
fn packets_that_fit_bypass_the_gateway() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let service = start(&pair, 0, 65_535);
    await_direction(&pair);
    let seen = || service.snapshots().unwrap()[0].ends.each_ref().map(|end| end.rx.packets);
    let before = seen();
    for (len, crosses) in [(1_472, false), (1_473, true)] {
        for (from, to) in [(0, 1), (1, 0)] {
            let messages = Messages { len, count: 200, rate: Some(20e6) };
            let [sender, receiver] = [from, to].map(|host: usize| pair.hosts[host].space());
            let transfer = traffic::udp(sender, receiver, v4(to as u8 + 1), messages, 8).unwrap();
            assert_eq!((transfer.messages, transfer.intact), (200, true), "{len} bytes to host {to}");
        }
        let counts = seen();
        let [sent, received] = [0, 1].map(|end| counts[end] - before[end]);
        // The host's own packets cross too, but they are few.
        assert_eq!((sent > 100, received > 100), (crosses, crosses), "{len} bytes: {sent} and {received}");
    }
}

#[test]
fn a_reload_changes_the_bypass_length() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let text = pair.wide_interface(0, 65_535, [""; 3]);
    let mut service = pair.start(0, &text).unwrap();
    await_direction(&pair);
    for (mtu, len, crosses) in [(1_300, 1_400, true), (1_500, 1_400, false), (1_500, 1_473, true)] {
        let text = text.replace("mtu = 1500", &format!("mtu = {mtu}"));
        let config = config::Config::parse(&text, "wide.toml").unwrap();
        pair.hosts[0].space().enter(|| service.reload(config)).unwrap();
        let seen = || service.snapshots().unwrap()[0].ends[0].rx.packets;
        let before = seen();
        let messages = Messages { len, count: 200, rate: Some(20e6) };
        let [sender, receiver] = [0, 1].map(|host: usize| pair.hosts[host].space());
        let transfer = traffic::udp(sender, receiver, v4(2), messages, 8).unwrap();
        assert_eq!((transfer.messages, transfer.intact), (200, true), "{len} bytes by an MTU of {mtu}");
        let sent = seen() - before;
        assert_eq!(sent > 100, crosses, "{len} bytes by an MTU of {mtu}: {sent}");
    }
}

#[test]
fn short_messages_that_follow_long_ones_come_in_order() {
    for (from, to) in [(0, 1), (1, 0)] {
        let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
        let _service = start(&pair, 0, 65_535);
        await_direction(&pair);
        let receiver =
            pair.hosts[to].space().enter(|| UdpSocket::bind(SocketAddr::new(v4(to as u8 + 1), 0))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = pair.hosts[from].space().enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let (mut room, mut followed) = ([0; 30_000], 0);
        for number in 0..200_u64 {
            let began = Instant::now();
            for len in [20_000, 64] {
                let mut message = vec![0; len];
                message[..8].copy_from_slice(&number.to_be_bytes());
                sender.send(&message).unwrap();
            }
            // If the second message is sent much later, its order is not compared.
            let follows = began.elapsed() < Duration::from_micros(500);
            let came = [0, 1].map(|_| receiver.recv(&mut room).unwrap());
            followed += usize::from(follows);
            assert!(!follows || came == [20_000, 64], "{came:?}, number {number} to host {to}");
        }
        assert!(followed > 0, "the machine is too busy to show anything");
    }
}

/// A wide interface on a host.
fn start(pair: &TwoHosts, host: usize, mtu: u32) -> daemon::service::Service {
    pair.start(host, &pair.wide_interface(host, mtu, [""; 3])).unwrap()
}

/// Waits until a message of each IP version is answered; IPv6 addresses cannot be used at once.
fn await_direction(pair: &TwoHosts) {
    let until = Instant::now() + Duration::from_secs(10);
    for address in [v4(2), v6(2)] {
        let there = || {
            let server = pair.hosts[1].space().enter(|| UdpSocket::bind(SocketAddr::new(address, 0))).ok()?;
            let target = server.local_addr().ok()?;
            server.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = pair.hosts[0].space().enter(|| UdpSocket::bind(any)).ok()?;
            client.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
            client.send_to(b"there?", target).ok()?;
            let (len, from) = server.recv_from(&mut [0; 16]).ok()?;
            server.send_to(b"here", from).ok()?;
            client.recv_from(&mut [0; 16]).ok().map(|_| len)
        };
        while there().is_none() {
            assert!(Instant::now() < until, "{address}: no message comes through");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The number of 20 messages that arrive.
fn exchange(pair: &TwoHosts) -> Option<u64> {
    let messages = Messages { len: 3_000, count: 20, rate: Some(50e6) };
    let [one, other] = &pair.hosts;
    traffic::udp(one.space(), other.space(), v4(2), messages, 7).ok().map(|transfer| transfer.messages)
}

fn check_books(services: &[daemon::service::Service]) {
    for snapshot in services.iter().flat_map(|service| service.snapshots().unwrap()) {
        for direction in &snapshot.directions {
            assert_eq!(direction.broken, None);
        }
        for end in &snapshot.ends {
            assert_eq!((end.tx.rejected, end.tx.link_down, end.rx.dropped), (0, 0, 0), "{}", end.address);
        }
    }
}
