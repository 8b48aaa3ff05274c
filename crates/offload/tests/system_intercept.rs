//! Packets for a host -> proofs that the host's kernel receives none of them.

#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use system_pair::{FAR, FAR6, Host, NEAR, NEAR6, becomes, pair};
use wideload_offload::intercept::Intercept;

#[test]
fn intercepted_packets_reach_only_the_packet_socket() {
    let [near, far] = pair();
    let tap = far.namespace.enter(|| Tap::open(far.index));
    let mut lines = [line(&near, &far, NEAR.into(), FAR.into()), line(&near, &far, NEAR6.into(), FAR6.into())];
    for line in &mut lines {
        line.crosses(b"before");
    }
    let guard = far.namespace.enter(|| Intercept::all(far.index)).expect("these tests have the right");
    for line in &mut lines {
        line.is_only_seen_by(&tap, b"between");
    }
    drop(guard);
    for line in &mut lines {
        line.crosses(b"behind");
    }
}

#[test]
fn full_interception_hides_the_host() {
    let [mut near, far] = pair();
    let _guard = far.namespace.enter(|| Intercept::all(far.index)).expect("these tests have the right");
    near.netlink.resolve(near.index, FAR.into()).expect("it is up");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(near.netlink.neighbour(near.index, FAR.into()).expect("it can be asked"), None);
}

#[test]
fn two_guards_hold_until_both_are_gone() {
    let [near, far] = pair();
    let tap = far.namespace.enter(|| Tap::open(far.index));
    let mut line = line(&near, &far, NEAR.into(), FAR.into());
    line.crosses(b"before");
    let take = || far.namespace.enter(|| Intercept::all(far.index)).expect("these tests have the right");
    let (first, second) = (take(), take());
    drop(second);
    line.is_only_seen_by(&tap, b"between");
    drop(first);
    line.crosses(b"behind");
}

#[test]
fn an_interface_that_is_not_there_cannot_be_intercepted() {
    let [near, _far] = pair();
    let why = near.namespace.enter(|| Intercept::all(4711)).expect_err("there is none");
    assert_eq!(why.kind(), ErrorKind::NotFound);
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
    let text = format!(
        "interface {}: cannot attach the program that keeps packets from the kernel: Operation not permitted; ",
        near.index
    );
    assert_eq!(why.to_string(), format!("{text}run as root or give CAP_BPF and CAP_NET_ADMIN of the host"));
}

/// Two sockets that send datagrams from one host to another.
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
    /// Sends a payload until it arrives: an interface that has just come up drops packets for a moment.
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

/// A non-blocking packet socket on one interface.
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
}
