//! A host or router with several next hops: each packet takes the kernel's choice of route, in the kernel's order.

use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::routes::Route;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use wideload_lab::net::{Host, HostLink, Offloading, cable};
use wideload_lab::traffic::{self, Messages};

#[test]
fn routes_over_a_third_interface_bypass_the_wide_one() {
    let net = Star::new();
    // The right host is not behind the wide interface.
    let service = net.wide_interface("to-left");
    for (host, address, goes_wide) in [(&net.left, LEFT, true), (&net.right, RIGHT, false)] {
        net.await_direction(host, address);
        let before = net.sent_over("wlo-to-left");
        let messages = Messages { len: 4_000, count: 50, rate: Some(50e6) };
        let transfer = traffic::udp(net.centre.space(), host.space(), address, messages, 1).unwrap();
        assert_eq!((transfer.messages, transfer.intact), (50, true), "to {address}");
        let over = net.sent_over("wlo-to-left") - before;
        assert_eq!(over >= 50, goes_wide, "{over} packets to {address} went over the wide interface");
        assert!(traffic::tcp(host.space(), net.centre.space(), net.own(address), 1 << 20, 2).unwrap().intact);
    }
    service.stop();
}

#[test]
fn two_wide_interfaces_on_one_host_carry_their_own_prefixes() {
    let net = Star::new();
    let services = [net.wide_interface("to-left"), net.wide_interface("to-right")];
    for (host, address, device, other) in
        [(&net.left, LEFT, "wlo-to-left", "wlo-to-right"), (&net.right, RIGHT, "wlo-to-right", "wlo-to-left")]
    {
        net.await_direction(host, address);
        let before = [device, other].map(|name| net.sent_over(name));
        let messages = Messages { len: 4_000, count: 50, rate: Some(50e6) };
        let transfer = traffic::udp(net.centre.space(), host.space(), address, messages, 3).unwrap();
        assert_eq!((transfer.messages, transfer.intact), (50, true), "to {address}");
        let after = [device, other].map(|name| net.sent_over(name));
        assert!(after[0] - before[0] >= 50, "{device} carries what is for {address}: {before:?} {after:?}");
        assert!(after[1] - before[1] < 50, "{other} does not: {before:?} {after:?}");
        assert!(traffic::tcp(host.space(), net.centre.space(), net.own(address), 1 << 20, 4).unwrap().intact);
    }
    // One ends, the other continues, and the hosts behind the first are reached as before.
    let [first, second] = services;
    first.stop();
    for (host, address) in [(&net.left, LEFT), (&net.right, RIGHT)] {
        assert!(traffic::tcp(net.centre.space(), host.space(), address, 1 << 20, 5).unwrap().intact);
    }
    second.stop();
}

#[test]
fn broadcasts_cross_the_wide_interface() {
    let net = Star::new();
    let service = net.wide_interface("to-left");
    net.await_direction(&net.left, LEFT);
    let receiver = net.left.space().enter(|| UdpSocket::bind("0.0.0.0:4321")).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let sender = net.centre.space().enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.set_broadcast(true).unwrap();
    let all = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 80, 1, 255)), 4321);
    let until = Instant::now() + TIMEOUT;
    let mut room = [0; 3_000];
    loop {
        sender.send_to(&[9; 2_500], all).unwrap();
        if let Ok(len) = receiver.recv(&mut room) {
            break assert_eq!(len, 2_500);
        }
        assert!(Instant::now() < until, "nobody hears what is for all");
    }
    service.stop();
}

#[test]
fn packets_that_waited_for_a_next_hop_leave_first_and_in_order() {
    let net = Star::new();
    net.centre.space().set_sysctl("ipv4/ip_forward", "1").unwrap();
    let text = "role = \"router\"\n[wide]\nport = \"packet:to-left\"\nmtu = 9000\n\
                [narrow]\nport = \"packet:to-right\"\nmtu = 1500\n";
    let config = Config::parse(text, "router.toml").unwrap();
    let service = net.centre.space().enter(|| Service::start(config)).unwrap();
    let everywhere = Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    net.left.tell(|netlink| netlink.add_route(&Route::via(everywhere, CENTRE_LEFT))).unwrap();
    net.right.tell(|netlink| netlink.add_route(&Route::via(everywhere, CENTRE_RIGHT))).unwrap();
    // The left host is a known neighbour; the right host is not known yet.
    net.await_direction(&net.left, LEFT);
    let receiver = net.right.space().enter(|| UdpSocket::bind(SocketAddr::new(RIGHT, 0))).unwrap();
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let target = receiver.local_addr().unwrap();
    let sender = net.left.space().enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    for number in 0..100_u32 {
        sender.send_to(&number.to_be_bytes(), target).unwrap();
        thread::sleep(Duration::from_micros(200));
    }
    for number in 0..100_u32 {
        let mut room = [0; 8];
        assert_eq!(receiver.recv(&mut room).unwrap(), 4);
        assert_eq!(u32::from_be_bytes(room[..4].try_into().unwrap()), number, "in order, and none lost");
    }
    service.stop();
}

/// A host in the middle of two cables.
struct Star {
    left: Host,
    centre: Host,
    right: Host,
}

impl Star {
    fn new() -> Star {
        let [left, centre, right] = ["left", "centre", "right"].map(|name| Host::new(name).unwrap());
        let of = |address: IpAddr| [Prefix::new(address, 24)];
        let addresses = [LEFT, CENTRE_LEFT, CENTRE_RIGHT, RIGHT].map(of);
        let end = |host, interface, addresses| HostLink { host, interface, mtu: 1_500, addresses };
        cable([end(&left, "left", &addresses[0][..]), end(&centre, "to-left", &addresses[1][..])], Offloading::Off)
            .unwrap();
        cable(
            [end(&centre, "to-right", &addresses[2][..]), end(&right, "right", &addresses[3][..])],
            Offloading::Off,
        )
        .unwrap();
        Star { left, centre, right }
    }

    /// Starts a wide interface on an interface of the middle host.
    fn wide_interface(&self, narrow: &str) -> Service {
        let text = format!(
            "role = \"wide-interface\"\n[wide]\nmtu = 65535\n\
             [narrow]\nport = \"packet:{narrow}\"\nmtu = 1500\n"
        );
        let config = Config::parse(&text, &format!("{narrow}.toml")).unwrap();
        self.centre.space().enter(|| Service::start(config)).unwrap()
    }

    /// The middle host's address on the link to this one.
    fn own(&self, next_to: IpAddr) -> IpAddr {
        if next_to == LEFT { CENTRE_LEFT } else { CENTRE_RIGHT }
    }

    /// Waits until a host answers the middle host.
    fn await_direction(&self, host: &Host, address: IpAddr) {
        let until = Instant::now() + TIMEOUT;
        while !traffic::tcp(self.centre.space(), host.space(), address, 1_000, 9).is_ok_and(|it| it.intact) {
            assert!(Instant::now() < until, "{address} is not reached");
        }
    }

    /// Packets that the middle host sent over this interface.
    fn sent_over(&self, name: &str) -> u64 {
        self.centre.tell(|netlink| Ok(netlink.interface(name)?.counters.sent.packet_count)).unwrap()
    }
}

const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 80, 1, 1));
const CENTRE_LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 80, 1, 2));
const CENTRE_RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 80, 2, 2));
const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 80, 2, 1));
const TIMEOUT: Duration = Duration::from_secs(8);
