//! Packets of a host -> proofs that only the right ones are redirected to a helper device. Packets that are written
//! to the helper must be received or sent by the interface.

#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use linux::addresses::Prefix;
use linux::routes::Route;
use offload::redirect::{Pair, Redirect, Taking, Target};
use packet::{Frame, Ingress, Pool};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use system_pair::{FAR, FAR6, Host, NEAR, NEAR6, becomes, pair};
use wideload_port::helper::{self, Direction};
use wideload_port::{Options, Port, Tap, TxFrame, TxOffload};

#[test]
fn fragments_for_the_host_pass_through_the_helper() {
    let [near, far] = pair();
    let mut helper = Helper::ingress(&far, Taking { target: Target::Host, tcp: false });
    for (from, to) in [(IpAddr::from(NEAR), IpAddr::from(FAR)), (NEAR6.into(), FAR6.into())] {
        let sender = near.namespace.enter(|| UdpSocket::bind((from, 0))).expect("it has the address");
        let receiver = far.namespace.enter(|| bound_to_wire(to));
        let target = receiver.local_addr().expect("it has one");
        // The kernel receives a short packet.
        sender.send_to(b"short", target).expect("there is a way");
        assert_eq!(receiver.recv(&mut [0; 16]).expect("it comes"), 5);
        assert!(helper.frames().is_empty(), "{to}: nothing but fragments is taken");
        let long: Vec<u8> = (0..20_000_u32).map(|byte| byte as u8).collect();
        sender.send_to(&long, target).expect("there is a way");
        let mut fragments = Vec::new();
        becomes(|| {
            fragments.extend(helper.frames());
            (fragments.len() == 14).then_some(())
        });
        helper.write(&joined(&fragments));
        let mut room = vec![0; 30_000];
        assert_eq!(receiver.recv(&mut room).expect("the whole comes in"), long.len());
        assert_eq!(&room[..long.len()], long, "{to}");
        assert!(helper.frames().is_empty(), "{to}: what came back is not taken again");
        // Fragments that are written back unchanged are reassembled by the kernel.
        sender.send_to(&long, target).expect("there is a way");
        let mut count = 0;
        becomes(|| {
            for fragment in helper.frames() {
                helper.write(&fragment);
                count += 1;
            }
            (count == 14).then_some(())
        });
        assert_eq!(receiver.recv(&mut room).expect("the kernel joins them"), long.len());
    }
}

#[test]
fn packets_behind_redirected_fragments_are_redirected() {
    let [near, far] = pair();
    let mut helper = Helper::ingress(&far, Taking { target: Target::Host, tcp: false });
    let sender = near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    sender.send_to(&[1; 3_000], (FAR, 9)).expect("there is a way");
    sender.send_to(b"behind", (FAR, 9)).expect("there is a way");
    let mut all = Vec::new();
    becomes(|| {
        all.extend(helper.frames());
        (all.len() == 4).then_some(())
    });
    assert!(all.last().is_some_and(|frame| frame.ends_with(b"behind")));
}

#[test]
fn long_packets_leave_through_the_helper() {
    let [mut near, far] = pair();
    let to = Prefix::new(FAR, 32);
    let route = Route { mtu: Some(65_000), source: Some(NEAR.into()), ..Route::on(to, near.index) };
    near.netlink.add_route(&route).expect("it is new");
    let mut helper = Helper::egress(&near, 1_500);
    let sender = near.namespace.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
    let receiver = far.namespace.enter(|| bound_to_wire(FAR.into()));
    let target = receiver.local_addr().expect("it has one");
    sender.send_to(b"short", target).expect("there is a way");
    assert_eq!(receiver.recv(&mut [0; 16]).expect("it comes"), 5);
    assert!(helper.frames().is_empty(), "what fits is the kernel's");
    sender.send_to(&[3; 60_000], target).expect("there is a way");
    let taken = becomes(|| helper.frames().pop());
    assert_eq!(taken.len(), 14 + 28 + 60_000);
    // A short packet with the same addresses replaces the long one.
    let mut short = taken[..14 + 28 + 6].to_vec();
    set_lens(&mut short);
    helper.write(&short);
    assert_eq!(receiver.recv(&mut [0; 16]).expect("it leaves"), 6);
    assert!(helper.frames().is_empty(), "what came back is not taken again");
}

#[test]
fn a_gso_packet_is_measured_by_segment_length() {
    let [mut near, mut far] = pair();
    for host in [&mut near, &mut far] {
        host.netlink.set_mtu("wire", 9_000).expect("these tests have the right");
    }
    let listener = far.namespace.enter(|| TcpListener::bind((FAR6, 0))).expect("it has the address");
    let target = listener.local_addr().expect("it has one");
    let connect = || near.namespace.enter(|| TcpStream::connect(target)).expect("somebody listens");
    let (mut plain, mut extended) = (connect(), connect());
    let mut accepted = Vec::new();
    let padding: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
    set(&extended, libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, &padding);
    let mut helper = Helper::egress(&near, 9_000);
    for stream in [&mut plain, &mut extended] {
        stream.write_all(&[5; 60_000]).expect("there is room");
        let (mut came, _) = listener.accept().expect("it connected");
        came.set_read_timeout(Some(Duration::from_secs(5))).expect("it takes it");
        came.read_exact(&mut [0; 60_000]).expect("it comes");
        accepted.push(came);
    }
    assert!(helper.frames().is_empty(), "segments that fit are the kernel's");
    drop(helper);
    let mut helper = Helper::egress(&near, 1_500);
    for (stream, next_header) in [(&mut plain, 6), (&mut extended, 60)] {
        stream.write_all(&[5; 60_000]).expect("there is room");
        let came = becomes(|| helper.frames().into_iter().find(|frame| frame[20] == next_header));
        assert!(came.len() > 9_014, "{} bytes", came.len());
    }
}

/// A helper device of the interface `wire`, and its redirect.
struct Helper {
    tap: Tap,
    pool: Pool,
    _redirect: Redirect,
}

impl Helper {
    fn ingress(host: &Host, taking: Taking) -> Helper {
        Helper::of(host, Direction::Ingress, |pair| Redirect::ingress(pair, taking, None, None))
    }

    fn egress(host: &Host, mtu: u16) -> Helper {
        Helper::of(host, Direction::Egress, |pair| Redirect::egress(pair, mtu, None))
    }

    fn of(
        host: &Host,
        direction: Direction,
        redirect: impl Fn(Pair) -> std::io::Result<Redirect> + Sync,
    ) -> Helper {
        host.namespace.enter(|| {
            let tap = helper::open(direction, "wire", &Options::default()).expect("these tests have the right");
            let mut netlink = linux::netlink::Netlink::open().expect("a netlink socket is free");
            let helper = netlink.interface(tap.name()).expect("it was just made").index;
            let pair = Pair { interface: host.index, helper, link_type: tap.link_type() };
            let _redirect = redirect(pair).expect("these tests have the right");
            Helper { tap, pool: Pool::new(64 << 20), _redirect }
        })
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.tap.receive(Ingress(0), &mut self.pool, &mut frames).expect("the device is there");
        let mut bytes = Vec::new();
        for frame in frames {
            match frame {
                Frame::Ip(packet) => {
                    bytes.push(packet.frame().to_vec());
                    self.pool.give(packet.into_opaque_frame().into_buffer());
                }
                Frame::Other(raw, _) => {
                    bytes.push(raw.frame().to_vec());
                    self.pool.give(raw.into_buffer());
                }
            }
        }
        bytes
    }

    fn write(&mut self, frame: &[u8]) {
        let wire = TxFrame { header: frame, payload: &[], offload: TxOffload::default() };
        assert_eq!(self.tap.transmit(&[wire]).expect("the device takes it"), 1);
    }
}

/// Returns the frame of the complete datagram of these fragments.
fn joined(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for fragment in fragments {
        let (header_len, at) = if fragment[12] == 8 {
            (34, usize::from(u16::from_be_bytes([fragment[20], fragment[21]]) & 0x1FFF) * 8)
        } else {
            (62, usize::from(u16::from_be_bytes([fragment[56], fragment[57]]) & 0xFFF8))
        };
        let payload = &fragment[header_len..];
        whole.resize(whole.len().max(at + payload.len()), 0);
        whole[at..at + payload.len()].copy_from_slice(payload);
    }
    let first = &fragments[0];
    if first[12] == 8 {
        let mut frame = first[..34].to_vec();
        (frame[20], frame[21]) = (0, 0);
        frame.extend(whole);
        let len = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        header_sum(&mut frame);
        return frame;
    }
    let mut frame = first[..54].to_vec();
    frame[18..20].copy_from_slice(&(whole.len() as u16).to_be_bytes());
    frame[20] = first[54];
    frame.extend(whole);
    frame
}

fn set_lens(frame: &mut [u8]) {
    let len = frame.len() as u16;
    frame[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    frame[38..40].copy_from_slice(&(len - 34).to_be_bytes());
    // No checksum (RFC 768).
    (frame[40], frame[41]) = (0, 0);
    header_sum(frame);
}

fn header_sum(frame: &mut [u8]) {
    (frame[24], frame[25]) = (0, 0);
    let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A socket that receives only from the interface `wire`.
fn bound_to_wire(address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(address, 0)).expect("it has the address");
    set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"wire");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("it takes it");
    socket
}

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: &[u8]) {
    // SAFETY: the kernel reads the value, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    assert_eq!(outcome, 0, "these tests have the right");
}
