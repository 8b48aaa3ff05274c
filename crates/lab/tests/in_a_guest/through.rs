//! Two hosts with a tunnel between them -> packets delivered through it, by a kernel alone and by a gateway.
//!
//! GSO packets of TCP and UDP travel inside of the tunnel, and GRO is on at all interfaces. A tunnel's packets fit
//! the narrow link, or they are longer and cross it in fragments.

use crate::devices::{Below, Device, Path};
use crate::net::{
    CABLES, Datagrams, Delivered, Links, Middle, Net, PORT, ROUTERS, TIMEOUT, WIDE_INTERFACES, alike_by, bound, ip,
    kernel_counters, lay_with, payload, run, twice, v4, v6,
};
use linux::features::{self, Toggle};
use linux::sockets;
use packet::Version;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use wideload_lab::net::{Host, Offloading};
use wideload_lab::three_hosts::{self, ThreeHosts};
use wideload_lab::traffic;

/// The tunnel leads from the narrow host through a router to the wide one.
pub fn router(device: &Device) {
    between(device, Middle::Forwarding, ROUTERS);
}

/// The tunnel leads from the narrow host to one with a wide interface.
pub fn wide_interface(device: &Device) {
    between(device, Middle::Stock, WIDE_INTERFACES);
}

fn between(device: &Device, kernel: Middle, middles: &[Middle]) {
    let is_host = kernel == Middle::Stock;
    let [of_narrow, of_far] = if is_host {
        [("10.78.2.1", "fd78:2::1"), ("10.78.2.2", "fd78:2::2")]
    } else {
        [("10.78.2.1", "fd78:2::1"), ("10.78.1.1", "fd78:1::1")]
    };
    for &path in device.paths() {
        let tunnel = |net: &Net| {
            let far = if is_host { &net.middle } else { &net.wide };
            make(device, path, [(&net.narrow, of_narrow), (far, of_far)]);
        };
        alike_by(Links { lay: &lay_all, ..CABLES }, kernel, middles, tunnel, |net, _| {
            let far = if is_host { &net.middle } else { &net.wide };
            let before = net.taken_from_narrow();
            let outcome = talk(device, &net.narrow, far, &|| net.counters());
            assert!(net.is_right());
            // The kernel processes unfragmented packets itself.
            if net.has_gateway() && path == Path::TooLong {
                assert!(net.taken_from_narrow() > before, "no fragment of the tunnel's packets was taken");
            }
            let names = if is_host { ["to-narrow"; 2] } else { ["to-narrow", "to-wide"] };
            check_gso(device, path, &net.middle, names);
            outcome
        });
    }
}

/// Cables that GSO packets cross unsplit, with GRO on at their ends.
fn lay_all(net: &Net) {
    let ends = [
        [(&net.narrow, "narrow"), (&net.middle, "to-narrow")],
        [(&net.middle, "to-wide"), (&net.wide, "wide")],
        [(&net.middle, "to-other"), (&net.wide, "other")],
    ];
    for (ends, mtu) in ends.into_iter().zip([1_500, 9_000, 9_000]) {
        lay_with(Offloading::On, ends, mtu);
        ends.into_iter().for_each(|(host, name)| join_received(host, name));
    }
}

/// The tunnel leads from the narrow host to the wide one past a bridge or a border.
pub fn border(device: &Device) {
    for &path in device.paths() {
        let outcome = |mtus: [u32; 2], is_border: bool| {
            let three_hosts = ThreeHosts::new(mtus, Offloading::On).unwrap();
            let names = three_hosts.names();
            let hosts = [&three_hosts.wide, &three_hosts.middle, &three_hosts.middle, &three_hosts.narrow];
            hosts.into_iter().zip(names).for_each(|(host, name)| join_received(host, name));
            let middle = if is_border {
                three_hosts.gateway(&three_hosts.border("", "reassemble = true", "")).unwrap()
            } else {
                three_hosts.bridge().unwrap()
            };
            three_hosts.wait_until_forwarding().unwrap();
            make(
                device,
                path,
                [(&three_hosts.narrow, ("10.77.0.2", "fd77::2")), (&three_hosts.wide, ("10.77.0.1", "fd77::1"))],
            );
            let counters = || {
                let hosts = [&three_hosts.narrow, &three_hosts.middle, &three_hosts.wide].map(kernel_counters);
                let gateway = match &middle {
                    three_hosts::Middle::Gateway(service) => Some(service.snapshots().unwrap()),
                    _ => None,
                };
                format!("{}\n{gateway:#?}", hosts.join("\n"))
            };
            let outcome = talk(device, &three_hosts.narrow, &three_hosts.wide, &counters);
            if let three_hosts::Middle::Gateway(service) = &middle {
                for snapshot in service.snapshots().unwrap() {
                    assert!(snapshot.directions.iter().all(|direction| direction.broken.is_none()));
                    assert!(snapshot.ends.iter().all(|end| end.rx.frames > 100));
                }
            }
            check_gso(device, path, &three_hosts.middle, [names[1], names[2]]);
            three_hosts.clear(middle).unwrap();
            outcome
        };
        let without = outcome([1_500, 1_500], false);
        assert_eq!(outcome([9_000, 1_500], true), without, "{path:?}");
    }
}

/// Checks that GSO packets arrived by these interfaces, if the tunnel makes any.
fn check_gso(device: &Device, path: Path, middle: &Host, names: [&str; 2]) {
    for name in names {
        let received = middle.tell(|netlink| Ok(netlink.interface(name)?.counters.received)).unwrap();
        let mean = received.byte_count / received.packet_count;
        println!(
            "{}, {path:?}: {name} received {} packets of {mean} bytes on average",
            device.name, received.packet_count
        );
        assert!(mean > 2_000 || path == Path::TooLong || !device.makes_gso, "{name}: {mean} bytes on average");
    }
}

/// Creates the tunnel's devices, with addresses.
fn make(device: &Device, path: Path, ends: [(&Host, (&str, &str)); 2]) {
    let below = ends.map(|(host, (v4, v6))| Below { host, over: "", v4, v6 });
    let mtu = if path == Path::Fits { 1_500 - device.overhead } else { LONG_MTU };
    device.make(below, ["tunnel"; 2], mtu, path);
    for ((host, _), number) in ends.into_iter().zip(1..) {
        if path == Path::TooLong {
            // Otherwise TCP would adapt to the narrow link's MTU.
            host.space().set_sysctl("ipv4/ip_no_pmtu_disc", "1").unwrap();
        }
        for address in inner(device, number) {
            let (len, nodad) = if address.is_ipv4() { (24, "") } else { (64, " nodad") };
            ip(host, &format!("addr add {address}/{len} dev tunnel{nodad}"));
        }
    }
}

/// Addresses inside of the tunnel.
fn inner(device: &Device, number: u8) -> impl Iterator<Item = IpAddr> {
    let versions = device.versions;
    [(Version::V4, v4(5, number)), (Version::V6, v6(5, number))]
        .into_iter()
        .filter_map(move |(version, address)| versions.contains(&version).then_some(address))
}

/// Switches GRO on for an interface, also for packets that arrive one by one.
fn join_received(host: &Host, name: &str) {
    let features = [("rx-gro", Toggle::On), ("rx-udp-gro-forwarding", Toggle::On)];
    host.space().enter(|| drop(features::set(name, &features).unwrap()));
    let settings = [("gro_flush_timeout", "200000"), ("napi_defer_hard_irqs", "10"), ("threaded", "1")];
    let writes =
        settings.map(|(setting, value)| format!("echo {value} > /sys/class/net/{name}/{setting}")).join(" && ");
    run(host, "unshare", &["-m", "sh", "-c", &format!("mount -t sysfs sysfs /sys && {writes}")]);
}

/// Sends TCP, datagrams and UDP GSO packets through the tunnel, in both directions, and checks that all arrive.
/// `counters` are printed if some do not.
fn talk(device: &Device, one: &Host, other: &Host, counters: &dyn Fn() -> String) -> Vec<(bool, Delivered, usize)> {
    let directions = [(one, other, 2), (other, one, 1)];
    let mut outcome = Vec::new();
    for (from, to, number) in directions {
        for target in inner(device, number) {
            let until = Instant::now() + TIMEOUT;
            while Datagrams::new(from, to, target).send().is_none() {
                assert!(Instant::now() < until, "nothing comes to {target}");
            }
            let transfer = traffic::tcp(from.space(), to.space(), target, TCP_LEN, 1);
            let transfer = transfer.unwrap_or_else(|error| panic!("TCP to {target}: {error}"));
            let delivered = twice(|| Datagrams::new(from, to, target).send(), Delivered::is_all, counters);
            let segments =
                twice(|| segments(from, to, target), |count| *count == SEGMENT_COUNT * GSO_COUNT, counters);
            outcome.push((transfer.intact, delivered, segments));
        }
    }
    let is_right = |(intact, delivered, segment_count): &(bool, Delivered, usize)| {
        *intact && delivered.is_all() && *segment_count == SEGMENT_COUNT * GSO_COUNT
    };
    assert!(outcome.iter().all(is_right), "{outcome:?}");
    outcome
}

/// Sends UDP GSO packets. Returns the number of their datagrams that arrive.
fn segments(from: &Host, to: &Host, target: IpAddr) -> usize {
    // Another port than the datagrams', the last of which may still be in transit.
    let at = SocketAddr::new(target, PORT + 1);
    let receiver = to.space().enter(|| bound(at, None)).unwrap();
    receiver.set_read_timeout(Some(TIMEOUT / 10)).unwrap();
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = from.space().enter(|| bound(any.parse().unwrap(), None)).unwrap();
    sockets::set_option(&sender, libc::IPPROTO_UDP, libc::UDP_SEGMENT, &(SEGMENT_LEN as i32).to_ne_bytes())
        .unwrap();
    for number in 0..GSO_COUNT {
        let one = |segment: usize| payload((number * SEGMENT_COUNT + segment) as u64, SEGMENT_LEN);
        sender.send_to(&(0..SEGMENT_COUNT).flat_map(one).collect::<Vec<_>>(), at).unwrap();
    }
    let mut room = [0; SEGMENT_LEN + 1];
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < SEGMENT_COUNT * GSO_COUNT
        && let Ok(len) = receiver.recv(&mut room)
    {
        let number = u64::from_be_bytes(room[..8].try_into().unwrap());
        assert!(
            room[..len] == payload(number, SEGMENT_LEN),
            "message {number} arrives as another one of {len} bytes"
        );
        assert!(seen.insert(number), "message {number} comes twice");
    }
    seen.len()
}

/// MTU of a tunnel whose own packets exceed the narrow link's MTU, in bytes.
const LONG_MTU: u32 = 4_000;
const TCP_LEN: usize = 2 << 20;
/// Payload of a datagram in a GSO packet, in bytes: it fits every tunnel.
const SEGMENT_LEN: usize = 1_200;
/// Datagrams in a GSO packet.
const SEGMENT_COUNT: usize = 20;
const GSO_COUNT: usize = 10;
