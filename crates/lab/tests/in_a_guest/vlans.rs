//! Packets of VLAN devices -> the results of a gateway below them, and of a border between them.

use crate::devices::{Below, Device, Path, QINQ, VLAN};
use crate::needing;
use crate::net::{
    CABLES, Datagrams, Delivered, Links, Middle, Net, ROLES, TIMEOUT, alike_by, both_directions, ip, lay_other,
    lay_wide, lay_with, v4, v6,
};
use libtest_mimic::Trial;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use wideload_lab::net::{Host, Offloading};
use wideload_lab::three_hosts::{self, NARROW, ThreeHosts, WIDE};
use wideload_lab::traffic;

pub fn tests() -> Vec<Trial> {
    let test = |name: &str, test: fn()| needing(name.to_owned(), VLAN.needs, test);
    vec![
        test("vlan_traffic_passes_a_gateway_on_the_parent", || beside(&["{parent}.10 type vlan id 10"])),
        test("traffic_of_802_1ad_passes_a_gateway_on_the_parent", || {
            beside(&["{parent}.10 type vlan protocol 802.1ad id 10"]);
        }),
        test("traffic_with_two_tags_passes_a_gateway_on_the_parent", || {
            beside(&["{parent}.5 type vlan protocol 802.1ad id 5", "{parent}.10 type vlan id 10"]);
        }),
        test("a_border_between_two_vlan_devices", || border(&VLAN)),
        test("a_border_between_two_qinq_devices", || border(&QINQ)),
    ]
}

/// A VLAN of the narrow host and the middle host, with its own addresses, beside untagged packets. Each device is
/// on top of the previous one.
fn beside(devices: &[&str]) {
    for offloading in [Offloading::Off, Offloading::On] {
        let lay = |net: &Net| {
            lay_with(offloading, [(&net.narrow, "narrow"), (&net.middle, "to-narrow")], 1_500);
            lay_wide(net);
            lay_other(net);
        };
        let prepare = |net: &Net| {
            for (host, parent, number) in [(&net.narrow, "narrow", 1), (&net.middle, "to-narrow", 2)] {
                let mut below = parent.to_owned();
                for device in devices {
                    let words = device.replace("{parent}", parent);
                    let name = words.split(' ').next().unwrap();
                    ip(host, &format!("link add link {below} name {words}"));
                    ip(host, &format!("link set {name} mtu {VLAN_MTU} up"));
                    below = name.to_owned();
                }
                ip(host, &format!("addr add {}/24 dev {below}", v4(4, number)));
                ip(host, &format!("addr add {}/64 dev {below} nodad", v6(4, number)));
            }
            // Packets from such a source return by the VLAN.
            ip(&net.narrow, "route add default via 10.78.4.2 table 4");
            ip(&net.narrow, "rule add from 10.78.4.1 table 4");
            ip(&net.narrow, "-6 route add default via fd78:4::2 table 4");
            ip(&net.narrow, "-6 rule add from fd78:4::1 table 4");
            ip(&net.wide, "-6 route add fd78:4::/64 via fd78:1::2 mtu 1400");
        };
        for (kernel, middles) in ROLES {
            let links = Links { lay: &lay, ..CABLES };
            let delivered = alike_by(links, *kernel, middles, prepare, |net, _| {
                let until = Instant::now() + TIMEOUT;
                while !tagged(net, *kernel).iter().all(Delivered::is_all) {
                    assert!(Instant::now() < until, "nothing crosses the VLAN");
                }
                let before = net.taken();
                let with_tag = tagged(net, *kernel);
                assert_eq!(net.taken(), before, "packets with a tag were taken");
                let without = both_directions(net, *kernel);
                assert_eq!(net.taken() > before, net.has_gateway());
                [with_tag, without]
            });
            assert!(delivered.iter().flatten().all(Delivered::is_all), "{delivered:?}");
        }
    }
}

/// Datagrams in both directions by the VLAN.
fn tagged(net: &Net, kernel: Middle) -> Vec<Delivered> {
    let (far, network, host) = if kernel == Middle::Stock { (&net.middle, 4, 2) } else { (&net.wide, 1, 1) };
    let there = [(v4(4, 1), v4(network, host)), (v6(4, 1), v6(network, host))].map(|(own, target)| {
        Datagrams { source: SocketAddr::new(own, 0), ..Datagrams::new(&net.narrow, far, target) }.send()
    });
    let back = [v4(4, 1), v6(4, 1)].map(|target| Datagrams::new(far, &net.narrow, target).send());
    there.into_iter().chain(back).collect()
}

/// Two hosts whose VLAN devices are connected by a bridge or a border.
fn border(device: &Device) {
    let outcome = |mtus: [u32; 2], is_border: bool| {
        let three_hosts = ThreeHosts::new(mtus, Offloading::On).unwrap();
        let names = three_hosts.names();
        let ends = [(&three_hosts.wide, names[0], mtus[0], WIDE), (&three_hosts.middle, names[1], mtus[0], 0)];
        let others =
            [(&three_hosts.middle, names[2], mtus[1], 0), (&three_hosts.narrow, names[3], mtus[1], NARROW)];
        for (host, parent, mtu, number) in ends.into_iter().chain(others) {
            let name = format!("{parent}.10");
            let below = Below { host, over: parent, v4: "", v6: "" };
            device.make_one(0, [below; 2], &name, mtu - device.overhead, Path::Fits);
            if number > 0 {
                ip(host, &format!("addr add {}/24 dev {name}", inner(number)[0]));
                ip(host, &format!("addr add {}/64 dev {name} nodad", inner(number)[1]));
            }
        }
        let service = if is_border {
            let mut config = three_hosts.border("", "reassemble = true", "");
            for (name, mtu) in [(names[1], mtus[0]), (names[2], mtus[1])] {
                config = config.replace(name, &format!("{name}.10"));
                config = config.replace(&format!("mtu = {mtu}"), &format!("mtu = {}", mtu - device.overhead));
            }
            Some(three_hosts.gateway(&config).unwrap())
        } else {
            ip(&three_hosts.middle, "link add bridge type bridge");
            ip(&three_hosts.middle, &format!("link set {}.10 master bridge", names[1]));
            ip(&three_hosts.middle, &format!("link set {}.10 master bridge", names[2]));
            ip(&three_hosts.middle, "link set bridge up");
            None
        };
        let directions =
            [(&three_hosts.wide, &three_hosts.narrow, NARROW), (&three_hosts.narrow, &three_hosts.wide, WIDE)];
        settle(&directions);
        let arrived: Vec<_> = directions
            .iter()
            .flat_map(|(from, to, number)| {
                inner(*number).map(|target| {
                    let transfer = traffic::tcp(from.space(), to.space(), target, TCP_LEN, 1).unwrap();
                    (transfer.intact, Datagrams::new(from, to, target).send())
                })
            })
            .collect();
        if let Some(three_hosts::Middle::Gateway(service)) = &service {
            let snapshots = service.snapshots().unwrap();
            assert!(snapshots.iter().flat_map(|snapshot| &snapshot.ends).all(|end| end.rx.packets > 100));
            assert!(
                snapshots
                    .iter()
                    .flat_map(|snapshot| &snapshot.directions)
                    .all(|direction| direction.broken.is_none())
            );
        }
        arrived
    };
    let without = outcome([1_500, 1_500], false);
    assert!(without.iter().all(|(intact, delivered)| *intact && delivered.is_all()), "{without:?}");
    assert_eq!(outcome([9_000, 1_500], true), without);
}

/// Waits until datagrams cross.
fn settle(directions: &[(&Host, &Host, u8)]) {
    for (from, to, number) in directions {
        for target in inner(*number) {
            let until = Instant::now() + TIMEOUT;
            while Datagrams::new(from, to, target).send().is_none() {
                assert!(Instant::now() < until, "nothing comes to {target}");
            }
        }
    }
}

/// Addresses of a host on the VLAN.
fn inner(number: u8) -> [IpAddr; 2] {
    [v4(5, number), v6(5, number)]
}

/// MTU of the VLAN devices, in bytes, with room for two VLAN tags.
const VLAN_MTU: u32 = 1_496;
const TCP_LEN: usize = 2 << 20;
