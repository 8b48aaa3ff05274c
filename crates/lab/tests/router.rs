//! A Wideload router between two real hosts, on a host whose kernel routes too.

use linux::addresses::Prefix;
use linux::routes::Route;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use wideload_lab::net::{Host, HostLink, Offloading, cable};
use wideload_lab::traffic::{self, Messages};

#[test]
fn packets_follow_kernel_routes_with_decremented_ttl() {
    let net = Net::new("");
    let transfer = traffic::tcp(net.narrow.space(), net.wide.space(), WIDE, 4 << 20, 1).unwrap();
    assert!(transfer.intact);
    let receiver = net.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(WIDE, 0)).unwrap());
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let sender = net.narrow.space().enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    sender.set_ttl(2).unwrap();
    sender.send_to(b"two hops", receiver.local_addr().unwrap()).unwrap();
    assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 8);
    // With a TTL of 1 the packet ends at the router, whose kernel sends an ICMP error.
    sender.set_ttl(1).unwrap();
    sender.send_to(b"one hop", receiver.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(receiver.recv(&mut [0; 16]).is_err());
}

#[test]
fn the_routers_own_addresses_are_its_hosts() {
    let net = Net::new("");
    for address in [MIDDLE_WIDE, MIDDLE_NARROW] {
        let refused = net
            .narrow
            .space()
            .enter(|| TcpStream::connect_timeout(&SocketAddr::new(address, 9), TIMEOUT).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
    }
}

#[test]
fn fragments_are_joined_toward_a_wide_link_when_it_is_asked_for() {
    for (more, at_most) in [("", 1_500), ("fragment-policy = \"merge\"\n", 9_000)] {
        let net = Net::new(more);
        let before = net.wide.tell(|netlink| Ok(netlink.interface("wide")?.counters.received)).unwrap();
        let messages = Messages { len: 8_000, count: 200, rate: Some(50e6) };
        let transfer = traffic::udp(net.narrow.space(), net.wide.space(), WIDE, messages, 2).unwrap();
        assert_eq!((transfer.messages, transfer.intact), (200, true));
        let after = net.wide.tell(|netlink| Ok(netlink.interface("wide")?.counters.received)).unwrap();
        let count = after.packet_count - before.packet_count;
        if at_most == 9_000 {
            assert!(count < 700, "{count} packets for 200 messages of 6 fragments");
        } else {
            assert!(count >= 1_200, "{count} packets for 200 messages of 6 fragments");
        }
    }
}

#[test]
fn long_packets_are_fragmented_or_with_df_refused() {
    let net = Net::new("");
    // Linux sets DF by default: the first datagram is rejected, and then the host fragments.
    let messages = Messages { len: 8_000, count: 40, rate: Some(50e6) };
    let first = traffic::udp(net.wide.space(), net.narrow.space(), NARROW, messages, 3).unwrap();
    let second = traffic::udp(net.wide.space(), net.narrow.space(), NARROW, messages, 3).unwrap();
    assert!(first.intact && second.intact);
    assert_eq!(second.messages, 40);
    let learnt = net.wide.tell(|netlink| netlink.route_to(NARROW)).unwrap();
    assert_eq!(learnt.mtu, Some(1_500));
}

#[test]
fn the_routers_own_replies_keep_their_ttl() {
    let net = Net::new("");
    let mut seen = net.wide.space().enter(|| port::open("packet:wide", &port::Options::default())).unwrap();
    let sender = net.wide.space().enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let (mut pool, mut frames) = (packet::Pool::new(16 << 20), Vec::new());
    let until = std::time::Instant::now() + Duration::from_secs(5);
    let hops = loop {
        assert!(std::time::Instant::now() < until, "no answer comes");
        // Linux sets DF by default. Once it knows the MTU, it returns an error here, and fragments.
        let _ = sender.send_to(&[7; 5_000], SocketAddr::new(NARROW, 9));
        std::thread::sleep(Duration::from_millis(5));
        seen.receive(packet::Ingress(0), &mut pool, &mut frames).unwrap();
        let mut answers = frames.drain(..).filter_map(|frame| match frame {
            packet::Frame::Ip(packet) if packet.bytes()[9] == 1 && packet.bytes()[20..22] == [3, 4] => {
                Some(packet.bytes()[8])
            }
            _ => None,
        });
        if let Some(hops) = answers.next_back() {
            break hops;
        }
    };
    assert_eq!(hops, 64, "as it was made");
}

/// A wide host, a router with Wideload, a narrow host: two IP networks.
struct Net {
    wide: Host,
    narrow: Host,
    _middle: Host,
    _service: daemon::service::Service,
}

impl Net {
    fn new(more: &str) -> Net {
        let [wide, middle, narrow] = ["wide", "middle", "narrow"].map(|name| Host::new(name).unwrap());
        let of = |address: IpAddr| [Prefix::new(address, 24)];
        let addresses = [WIDE, MIDDLE_WIDE, MIDDLE_NARROW, NARROW].map(of);
        let end = |host, interface, mtu, addresses| HostLink { host, interface, mtu, addresses };
        let wide_ends =
            [end(&wide, "wide", 9_000, &addresses[0][..]), end(&middle, "to-wide", 9_000, &addresses[1][..])];
        cable(wide_ends, Offloading::Off).unwrap();
        let narrow_ends =
            [end(&middle, "to-narrow", 1_500, &addresses[2][..]), end(&narrow, "narrow", 1_500, &addresses[3][..])];
        cable(narrow_ends, Offloading::Off).unwrap();
        let everywhere = Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        wide.tell(|netlink| netlink.add_route(&Route::via(everywhere, MIDDLE_WIDE))).unwrap();
        narrow.tell(|netlink| netlink.add_route(&Route::via(everywhere, MIDDLE_NARROW))).unwrap();
        middle.space().set_sysctl("ipv4/ip_forward", "1").unwrap();
        let text = format!(
            "role = \"router\"\n[wide]\nport = \"packet:to-wide\"\nmtu = 9000\n{more}[narrow]\nport = \"packet:to-narrow\"\nmtu = 1500\n"
        );
        let config = config::Config::parse(&text, "router.toml").unwrap();
        let service = middle.space().enter(|| daemon::service::Service::start(config)).unwrap();
        let net = Net { wide, narrow, _middle: middle, _service: service };
        settle(&net.narrow, WIDE);
        settle(&net.wide, NARROW);
        net
    }
}

/// Sends to a closed port until it is rejected: an interface that has just come up drops packets for a moment.
fn settle(from: &Host, to: IpAddr) {
    let refused = |_| {
        let knocked = from.space().enter(|| TcpStream::connect_timeout(&SocketAddr::new(to, 9), TIMEOUT / 20));
        matches!(knocked, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
    };
    assert!((0..20).any(refused), "no packet comes to {to}");
}

const WIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 1, 1));
const MIDDLE_WIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 1, 2));
const MIDDLE_NARROW: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 2, 2));
const NARROW: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 2, 1));
const TIMEOUT: Duration = Duration::from_secs(10);
