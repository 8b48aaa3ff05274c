//! Packets for a host in, proofs about which of them its kernel gets out.

mod system_pair;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use system_pair::{FAR, FAR6, Host, NEAR, NEAR6, becomes, inside, ip, namespace, pair};
use wideload_port::addresses::Prefix;
use wideload_port::intercept::Intercept;
use wideload_port::namespace::Namespace;
use wideload_port::netlink::Netlink;
use wideload_port::routes::Route;

#[test]
fn what_is_intercepted_reaches_a_packet_socket_and_not_the_kernel() {
    let [near, far] = pair();
    let tap = far.namespace.enter(|| Tap::open(far.index));
    let mut lines = [line(&near, &far, NEAR.into(), FAR.into()), line(&near, &far, NEAR6.into(), FAR6.into())];
    for line in &mut lines {
        line.crosses(b"before");
    }
    let guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    for line in &mut lines {
        line.is_only_seen_by(&tap, b"between");
    }
    drop(guard);
    for line in &mut lines {
        line.crosses(b"behind");
    }
}

#[test]
fn the_kernel_still_finds_neighbours_and_is_found() {
    let [mut near, mut far] = pair();
    let _near = near.namespace.enter(|| Intercept::ip(near.index)).expect("these tests have the right");
    let _far = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    for address in [IpAddr::from(FAR), FAR6.into()] {
        near.netlink.resolve(near.index, address).expect("it is up");
        assert_eq!(becomes(|| near.netlink.neighbour(near.index, address).expect("it can be asked")), far.mac);
    }
    far.netlink.resolve(far.index, NEAR6.into()).expect("it is up");
    assert_eq!(becomes(|| far.netlink.neighbour(far.index, NEAR6.into()).expect("it can be asked")), near.mac);
}

#[test]
fn other_icmpv6_does_not_reach_the_kernel() {
    let [near, far] = pair();
    let pinger = near.namespace.enter(Pinger::open);
    pinger.is_answered_at(1);
    let guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    assert!(!(0..3).any(|_| pinger.hears(2)), "between");
    drop(guard);
    pinger.is_answered_at(3);
}

#[test]
fn where_all_is_intercepted_nobody_is_found() {
    let [mut near, far] = pair();
    let guard = far.namespace.enter(|| Intercept::all(far.index)).expect("these tests have the right");
    near.netlink.resolve(near.index, FAR.into()).expect("it is up");
    let tap = far.namespace.enter(|| Tap::open(far.index));
    near.netlink.resolve(near.index, ip("192.0.2.9")).expect("it is up");
    becomes(|| tap.next().filter(|frame| frame[12..14] == [0x08, 0x06]));
    assert_eq!(near.netlink.neighbour(near.index, FAR.into()).expect("it can be asked"), None);
    drop(guard);
    near.netlink.remove_neighbour(near.index, FAR.into()).expect("it was asked for");
    near.netlink.resolve(near.index, FAR.into()).expect("it is up");
    assert_eq!(becomes(|| near.netlink.neighbour(near.index, FAR.into()).expect("it can be asked")), far.mac);
}

#[test]
fn what_is_for_groups_and_for_all_reaches_the_kernel() {
    let [near, far] = pair();
    let [v4, v6] = near.namespace.enter(|| {
        [IpAddr::from(NEAR), NEAR6.into()].map(|address| UdpSocket::bind((address, 0)).expect("it has the address"))
    });
    v4.set_broadcast(true).expect("a socket can be");
    v4.join_multicast_v4(&GROUP, &NEAR).expect("it has the address");
    let [all, group, group6] = far.namespace.enter(|| {
        let all = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7003)).expect("it is free");
        let group = UdpSocket::bind((GROUP, 7001)).expect("it is free");
        group.join_multicast_v4(&GROUP, &FAR).expect("it has the address");
        let group6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 7002)).expect("it is free");
        group6.join_multicast_v6(&GROUP6, far.index).expect("it is there");
        [all, group, group6]
    });
    let to_group6 = SocketAddrV6::new(GROUP6, 7002, 0, near.index).into();
    let mut lines = [
        Line { sender: v4.try_clone().expect("descriptors are free"), receiver: all, to: (ALL, 7003).into() },
        Line { sender: v4, receiver: group, to: (GROUP, 7001).into() },
        Line { sender: v6, receiver: group6, to: to_group6 },
    ];
    lines.iter().for_each(|line| line.receiver.set_nonblocking(true).expect("a socket can be"));
    let _guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    lines.iter_mut().for_each(|line| line.crosses(b"for many"));
    let tap = far.namespace.enter(|| Tap::open(far.index));
    line(&near, &far, NEAR.into(), FAR.into()).is_only_seen_by(&tap, b"for one");
}

#[test]
fn listener_queries_reach_the_kernel_which_answers_them() {
    let [near, far] = pair();
    let _guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    let member = far.namespace.enter(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 7002))).expect("it is free");
    member.join_multicast_v6(&GROUP6, far.index).expect("it is there");
    let tap = near.namespace.enter(|| Tap::open(near.index));
    tap.send(&listener_query(near.mac));
    // A report of version 2 (type 143) with the group in it.
    becomes(|| tap.next().filter(|frame| frame.get(62) == Some(&143) && has(frame, &GROUP6.octets())));
}

#[test]
fn what_the_kernel_would_forward_is_left_to_us_and_what_is_for_itself_is_not() {
    let net = Routed::new();
    for version in [4, 6] {
        let [mut through, mut to_router] = net.lines(version);
        let inner = net.router.enter(|| Tap::open(net.inner));
        through.crosses(b"forwarded");
        to_router.crosses(b"received");
        let guard =
            net.router.enter(|| Intercept::forwarded(net.outer, net.inner)).expect("these tests have the right");
        let tap = net.router.enter(|| Tap::open(net.outer));
        for _ in 0..3 {
            while inner.next().is_some() {}
            through.is_only_seen_by(&tap, b"left to us");
            assert!(inner.next().is_none_or(|frame| !frame.ends_with(b"left to us")), "it does not come out");
            to_router.crosses(b"received all the same");
        }
        // A port where nobody listens: the router itself refuses it.
        let router = net.router_address(version);
        let refused = net.near.namespace.enter(|| TcpStream::connect_timeout(&(router, 9).into(), SECOND));
        assert_eq!(refused.map(drop).map_err(|why| why.kind()), Err(ErrorKind::ConnectionRefused));
        drop(guard);
        through.crosses(b"forwarded again");
    }
}

#[test]
fn where_a_router_finds_no_neighbour_or_would_cut_the_packet_is_left_to_us() {
    let net = Routed::new();
    let tap = net.router.enter(|| Tap::open(net.outer));
    let sender = net.near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let _guard =
        net.router.enter(|| Intercept::forwarded(net.outer, net.inner)).expect("these tests have the right");
    let inner = net.router.enter(|| Tap::open(net.inner));
    sender.send_to(b"to nobody", (ip("198.51.100.77"), 7000)).expect("there is a route");
    becomes(|| tap.next().filter(|frame| frame.ends_with(b"to nobody")));
    settle();
    while let Some(frame) = inner.next() {
        assert!(!has(&frame, &[198, 51, 100, 77]), "the kernel asks for no neighbour");
    }
    inside(&net.router).set_mtu("inner", 1_280).expect("it is there");
    let long = [7; 1_400];
    sender.send_to(&long, (INSIDE, 7000)).expect("there is a route");
    becomes(|| tap.next().filter(|frame| frame.ends_with(&long)));
    settle();
    while let Some(frame) = inner.next() {
        assert!(!has(&frame, &[7; 100]), "no piece of it comes out");
    }
}

#[test]
fn what_the_kernel_refuses_or_does_not_forward_stays_with_it() {
    let net = Routed::new();
    let guard =
        || net.router.enter(|| Intercept::forwarded(net.outer, net.inner)).expect("these tests have the right");
    let sender = net.near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let tap = net.near.namespace.enter(|| Tap::open(net.near.index));
    let held = guard();
    // Without a route it answers by ICMP (type 3).
    sender.send_to(b"no route", (ip("203.0.113.7"), 7000)).expect("there is a route");
    becomes(|| tap.next().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 3));
    // Neighbours are found with the guard in place.
    let mut near = inside(&net.near.namespace);
    for address in [ROUTER.into(), ROUTER6.into()] {
        near.remove_neighbour(net.near.index, address).ok();
        near.resolve(net.near.index, address).expect("it is up");
        becomes(|| near.neighbour(net.near.index, address).expect("it can be asked"));
    }
    drop(held);
    // A host that is no router keeps what it gets: the program sees to that by itself.
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        net.router.set_sysctl(setting, "0").expect("it takes it");
    }
    let _guard = guard();
    let before = in_addr_errors(&net.router);
    sender.send_to(b"for another", (INSIDE, 7000)).expect("there is a route");
    becomes(|| (in_addr_errors(&net.router) > before).then_some(()));
}

#[test]
fn two_guards_hold_until_both_are_gone() {
    let [near, far] = pair();
    let tap = far.namespace.enter(|| Tap::open(far.index));
    let mut line = line(&near, &far, NEAR.into(), FAR.into());
    line.crosses(b"before");
    let take = || far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    let (first, second) = (take(), take());
    drop(second);
    line.is_only_seen_by(&tap, b"between");
    drop(first);
    line.crosses(b"behind");
}

#[test]
fn frames_that_only_begin_like_discovery_do_not_pass() {
    let [near, far] = pair();
    let sender = near.namespace.enter(|| Tap::open(near.index));
    let _guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    let send = |(next_header, first, len)| {
        sender.send(&[&far.mac[..], &near.mac, &[0x86, 0xdd], &ipv6_packet(next_header, first, len)].concat());
    };
    let passed = KINDS.map(|kind| {
        let once = || {
            let before = count_ipv6(&far, "wire");
            send(kind);
            send(PASSES);
            passed_before(&far, "wire", before)
        };
        // What the near host says to groups by itself passes, and may come between.
        [once(), once(), once()].into_iter().min()
    });
    assert_eq!(passed, DISCOVERY.map(Some));
}

#[test]
fn discovery_passes_where_no_link_header_stands_in_front_of_a_packet() {
    let [_near, mut far] = pair();
    let mut tun = far.namespace.enter(|| open_tun("plain"));
    far.netlink.set_up("plain").expect("it is there");
    let index = far.netlink.interface("plain").expect("it is there").index;
    let guard = far.namespace.enter(|| Intercept::ip(index)).expect("these tests have the right");
    let mut passed = || {
        KINDS.map(|kind| {
            let before = count_ipv6(&far, "plain");
            for (next_header, first, len) in [kind, PASSES] {
                tun.write_all(&ipv6_packet(next_header, first, len)).expect("it is up");
            }
            passed_before(&far, "plain", before)
        })
    };
    assert_eq!(passed(), DISCOVERY);
    drop(guard);
    assert_eq!(passed(), [1; KINDS.len()]);
}

#[test]
fn an_interface_that_is_not_there_cannot_be_intercepted() {
    let [near, _far] = pair();
    near.namespace.enter(|| {
        for why in [Intercept::all(4711), Intercept::ip(4711)] {
            assert_eq!(why.expect_err("there is none").kind(), ErrorKind::NotFound);
        }
    });
}

#[test]
fn without_the_right_the_error_says_which_is_missing() {
    let [near, _far] = pair();
    let why = near.namespace.enter(|| {
        let mut sets = rustix::thread::capabilities(None).expect("they can be read");
        sets.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).expect("less is allowed");
        Intercept::all(near.index).expect_err("the right is gone")
    });
    let text =
        format!("interface {}: cannot keep its packets from the kernel: Operation not permitted; ", near.index);
    assert_eq!(why.to_string(), format!("{text}run as root or give CAP_BPF and CAP_NET_ADMIN of the host"));
}

/// Datagrams from a host to another.
struct Line {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

fn line(near: &Host, far: &Host, from: IpAddr, to: IpAddr) -> Line {
    let sender = near.namespace.enter(|| UdpSocket::bind((from, 0))).expect("it has the address");
    let receiver = far.namespace.enter(|| UdpSocket::bind((to, 7000))).expect("it has the address");
    receiver.set_nonblocking(true).expect("a socket can be");
    Line { sender, receiver, to: (to, 7000).into() }
}

impl Line {
    /// Sends it until it comes: an interface that is just up drops what it is given for a moment.
    fn crosses(&mut self, payload: &[u8]) {
        let mut buffer = [0; 64];
        becomes(|| {
            self.sender.send_to(payload, self.to).expect("there is a route");
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.receiver.recv(&mut buffer).ok().filter(|len| buffer[..*len] == *payload)
        });
    }

    fn is_only_seen_by(&mut self, tap: &Tap, payload: &[u8]) {
        self.sender.send_to(payload, self.to).expect("there is a route");
        becomes(|| tap.next().filter(|frame| frame.ends_with(payload)));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut buffer = [0; 64];
        while let Ok(len) = self.receiver.recv(&mut buffer) {
            assert_ne!(&buffer[..len], payload, "it reaches the kernel");
        }
    }
}

/// A host, a router of two interfaces, and a host behind it.
struct Routed {
    near: Host,
    router: Namespace,
    /// The router's interface towards the near host, and the one behind which the other is.
    outer: u32,
    inner: u32,
    behind: Namespace,
}

impl Routed {
    fn new() -> Routed {
        let [mut near, far] = pair();
        let (mut netlink, behind) = (far.netlink, namespace());
        for quiet in [&far.namespace, &behind] {
            quiet.set_sysctl("ipv6/conf/default/accept_dad", "0").expect("it takes it");
        }
        netlink.make_veth("inner", "wire", &behind).expect("the names are free");
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            far.namespace.set_sysctl(setting, "1").expect("it takes it");
        }
        let mut inside_netlink = inside(&behind);
        inside_netlink.set_up("wire").expect("it is there");
        netlink.set_up("inner").expect("it is there");
        for (netlink, name, v4, v6) in
            [(&mut netlink, "inner", GATE, GATE6), (&mut inside_netlink, "wire", INSIDE, INSIDE6)]
        {
            netlink.add_address(name, Prefix::new(v4, 24)).expect("it has none");
            netlink.add_address(name, Prefix::new(v6, 64)).expect("it has none");
        }
        add_default_routes(&mut inside_netlink, [GATE.into(), GATE6.into()]);
        add_default_routes(&mut near.netlink, [ROUTER.into(), ROUTER6.into()]);
        let inner = netlink.interface("inner").expect("it is there").index;
        Routed { near, router: far.namespace, outer: far.index, inner, behind }
    }

    fn router_address(&self, version: u8) -> IpAddr {
        if version == 4 { ROUTER.into() } else { ROUTER6.into() }
    }

    /// From the near host to the one behind the router, and to the router itself.
    fn lines(&self, version: u8) -> [Line; 2] {
        let (from, to): (IpAddr, IpAddr) =
            if version == 4 { (NEAR.into(), INSIDE.into()) } else { (NEAR6.into(), INSIDE6.into()) };
        let line = |namespace: &Namespace, to: IpAddr| {
            let sender = self.near.namespace.enter(|| UdpSocket::bind((from, 0))).expect("it has the address");
            let receiver = becomes(|| namespace.enter(|| UdpSocket::bind((to, 7000))).ok());
            receiver.set_nonblocking(true).expect("a socket can be");
            Line { sender, receiver, to: (to, 7000).into() }
        };
        [line(&self.behind, to), line(&self.router, self.router_address(version))]
    }
}

/// Packets that a kernel did not take because they are for another.
fn in_addr_errors(namespace: &Namespace) -> u64 {
    let text = namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("it is there");
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let [names, counts] = [(); 2].map(|()| lines.next().expect("it is there").split(' ').collect::<Vec<_>>());
    let at = names.iter().position(|name| *name == "InAddrErrors").expect("it is there");
    counts[at].parse().expect("it is a number")
}

/// A general query for listeners (RFC 3810 section 5.1), to all nodes from a router of this hardware address.
fn listener_query(mac: [u8; 6]) -> Vec<u8> {
    let mut icmp = [0; 28];
    (icmp[0], icmp[5]) = (130, 100);
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7).octets();
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let covered = [&from[..], &to, &[0, 0, 0, icmp.len() as u8, 0, 0, 0, 58], &icmp].concat();
    icmp[2..4].copy_from_slice(&packet::Sum::of(&covered).checksum().to_be_bytes());
    let alert = [58, 0, 5, 2, 0, 0, 1, 0];
    let header = [&[0x60, 0, 0, 0, 0, (alert.len() + icmp.len()) as u8, 0, 1][..], &from, &to].concat();
    [&[0x33, 0x33, 0, 0, 0, 1], &mac[..], &[0x86, 0xdd], &header, &alert, &icmp].concat()
}

fn add_default_routes(netlink: &mut Netlink, gateways: [IpAddr; 2]) {
    for (gateway, any) in
        gateways.into_iter().zip([IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()])
    {
        netlink.add_route(&Route::via(Prefix::new(any, 0), gateway)).expect("the gateway is on the link");
    }
}

/// Do these bytes stand somewhere in the frame?
fn has(frame: &[u8], bytes: &[u8]) -> bool {
    frame.windows(bytes.len()).any(|window| window == bytes)
}

/// A packet socket on one interface that does not wait.
struct Tap(OwnedFd);

impl Tap {
    fn open(index: u32) -> Tap {
        let protocol = 0x0003_u16.to_be();
        // SAFETY: a call on numbers, whose answer is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, protocol.into()) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is fresh.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeros are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the kernel reads one address.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        Tap(fd)
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 2000];
        // SAFETY: the kernel writes no more than the buffer holds.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        buffer.truncate(usize::try_from(len).ok()?);
        Some(buffer)
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: the kernel reads the frame.
        let len = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(usize::try_from(len), Ok(frame.len()), "{}", io::Error::last_os_error());
    }
}

/// Echo requests for the far host (ICMPv6 type 128); the kernel fills in the checksum.
struct Pinger(OwnedFd);

impl Pinger {
    fn open() -> Pinger {
        // SAFETY: a call on numbers, whose answer is checked.
        let fd =
            unsafe { libc::socket(libc::AF_INET6, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_ICMPV6) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is fresh.
        Pinger(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Asks by this number until it is answered.
    fn is_answered_at(&self, number: u8) {
        becomes(|| self.hears(number).then_some(()));
    }

    /// Asks once by this number: does an answer to it come soon?
    fn hears(&self, number: u8) -> bool {
        let socket = UdpSocket::from(self.0.try_clone().expect("descriptors are free"));
        socket.send_to(&[128, 0, 0, 0, 0, 7, 0, number], (FAR6, 0)).expect("there is a route");
        let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
        let mut buffer = [0; 128];
        while std::time::Instant::now() < end {
            match socket.recv(&mut buffer) {
                Ok(_) if (buffer[0], buffer[7]) == (129, number) => return true,
                Ok(_) => {}
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
            }
        }
        false
    }
}

/// An IPv6 packet for the far host, its payload zeros after the first byte.
fn ipv6_packet(next_header: u8, first: u8, len: u16) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([next_header, 255]);
    packet.extend(NEAR6.octets());
    packet.extend(FAR6.octets());
    packet.resize(40 + usize::from(len), 0);
    if let Some(byte) = packet.get_mut(40) {
        *byte = first;
    }
    packet
}

/// IPv6 packets that the kernel of a host took from an interface, malformed ones with them.
fn count_ipv6(host: &Host, interface: &str) -> u64 {
    let read = || std::fs::read_to_string(format!("/proc/thread-self/net/dev_snmp6/{interface}"));
    let text = host.namespace.enter(read).expect("it is there");
    let line = text.lines().find(|line| line.starts_with("Ip6InReceives")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|count| count.parse().ok()).expect("it is a number")
}

/// Packets that the kernel took beside the one of [`PASSES`] that was sent last: where that came, all before it have.
fn passed_before(host: &Host, interface: &str, before: u64) -> u64 {
    becomes(|| (count_ipv6(host, interface) > before).then_some(()));
    settle();
    count_ipv6(host, interface) - before - 1
}

/// The kernel takes a packet in the call that sends it or soon after.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(10));
}

fn open_tun(name: &str) -> File {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun").expect("it is there");
    // SAFETY: all zeros are an `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the kernel reads and writes one `ifreq`.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    tun
}

/// Next header, first byte behind the IPv6 header, and payload length of some packets; and how many of each are taken.
const KINDS: [(u8, u8, u16); 9] = [
    (58, 132, 24),
    (58, 133, 24),
    (58, 137, 24),
    (58, 138, 24),
    (58, 143, 24),
    (58, 128, 24),
    (17, 135, 24),
    (0, 135, 24),
    (58, 135, 0),
];
/// One of them that passes.
const PASSES: (u8, u8, u16) = KINDS[1];
const DISCOVERY: [u64; KINDS.len()] = [0, 1, 1, 0, 0, 0, 0, 0, 0];
/// A group of nobody (RFC 5771 section 9), one for documentation (RFC 3849, RFC 3307), and all hosts on the link.
const GROUP: Ipv4Addr = Ipv4Addr::new(233, 252, 0, 7);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x77, 0x77);
const ALL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 255);
/// The router, towards the near host and the one behind it, and that host.
const ROUTER: Ipv4Addr = FAR;
const ROUTER6: Ipv6Addr = FAR6;
const GATE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const GATE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const INSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
const SECOND: Duration = Duration::from_secs(1);
