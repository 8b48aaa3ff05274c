//! Packets for a host in, proofs about which of them its kernel gets out.

mod system_pair;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use system_pair::{FAR, FAR6, Host, NEAR, NEAR6, becomes, ip, pair};
use wideload_port::intercept::Intercept;

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
    assert!(pinger.is_answered(), "before");
    let guard = far.namespace.enter(|| Intercept::ip(far.index)).expect("these tests have the right");
    assert!(!pinger.is_answered(), "between");
    drop(guard);
    assert!(pinger.is_answered(), "behind");
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
    let passed = KINDS.map(|(next_header, first, len)| {
        let before = count_ipv6(&far, "wire");
        sender.send(&[&far.mac[..], &near.mac, &[0x86, 0xdd], &ipv6_packet(next_header, first, len)].concat());
        settle();
        count_ipv6(&far, "wire") - before
    });
    assert_eq!(passed, DISCOVERY);
}

#[test]
fn discovery_passes_where_no_link_header_stands_in_front_of_a_packet() {
    let [_near, mut far] = pair();
    let mut tun = far.namespace.enter(|| open_tun("plain"));
    far.netlink.set_up("plain").expect("it is there");
    let index = far.netlink.interface("plain").expect("it is there").index;
    let guard = far.namespace.enter(|| Intercept::ip(index)).expect("these tests have the right");
    let mut passed = || {
        KINDS.map(|(next_header, first, len)| {
            let before = count_ipv6(&far, "plain");
            tun.write_all(&ipv6_packet(next_header, first, len)).expect("it is up");
            settle();
            count_ipv6(&far, "plain") - before
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
    fn crosses(&mut self, payload: &[u8]) {
        self.sender.send_to(payload, self.to).expect("there is a route");
        let mut buffer = [0; 64];
        let len = becomes(|| self.receiver.recv(&mut buffer).ok());
        assert_eq!(&buffer[..len], payload);
    }

    fn is_only_seen_by(&mut self, tap: &Tap, payload: &[u8]) {
        self.sender.send_to(payload, self.to).expect("there is a route");
        becomes(|| tap.next().filter(|frame| frame.ends_with(payload)));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let heard = self.receiver.recv(&mut [0; 64]);
        assert_eq!(heard.map_err(|why| why.kind()), Err(ErrorKind::WouldBlock));
    }
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

    fn is_answered(&self) -> bool {
        let socket = UdpSocket::from(self.0.try_clone().expect("descriptors are free"));
        socket.send_to(&[128, 0, 0, 0, 0, 7, 0, 1], (FAR6, 0)).expect("there is a route");
        let end = std::time::Instant::now() + std::time::Duration::from_millis(300);
        let mut buffer = [0; 128];
        while std::time::Instant::now() < end {
            match socket.recv(&mut buffer) {
                Ok(_) if buffer[0] == 129 => return true,
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
const DISCOVERY: [u64; KINDS.len()] = [0, 1, 1, 0, 0, 0, 0, 0, 0];
