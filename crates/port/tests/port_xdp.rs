//! AF_XDP sockets on veth pairs in namespaces of the test: streams, tags, limits, and the packets left to the
//! kernel.

mod port_support;
#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use packet::{Checksum, Frame, Ingress, Pool};
use port_support::{
    Namespace, Told, drain, drain_at_least, forward_until, into_buffer, ours, plain, receive_one, run, send,
    settle, transfer, wait,
};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use system_pair::{FAR, becomes};
use wideload_port::{Kind, Options, PacketSocket, Port, SendError, Tap, TxFrame, TxOffload, XdpSocket, open};

#[test]
fn a_stream_with_partial_checksums_crosses_with_complete_ones() {
    let told = cross(1_500, "on");
    assert!(told.finished_count > 4 << 20 >> 11, "{told:?}");
    assert_eq!((told.longest, told.gso_count), (1_514, 0), "{told:?}");
}

#[test]
fn a_stream_with_complete_checksums_crosses_unchanged() {
    let told = cross(1_500, "off");
    assert_eq!((told.finished_count, told.longest), (0, 1_514), "{told:?}");
}

#[test]
fn a_stream_of_jumbo_frames_crosses_in_several_chunks_each() {
    for (offload, finishes) in [("on", true), ("off", false)] {
        let told = cross(9_000, offload);
        assert_eq!((told.longest, told.finished_count > 0), (9_014, finishes), "{told:?}");
    }
}

#[test]
fn datagrams_and_echoes_cross_with_right_checksums() {
    let net = Net::new(1_500, "on");
    net.forwarding(|left, right| {
        for (from, to) in [("10.7.0.1", "10.7.0.2"), ("fd07::1", "fd07::2")] {
            let near = left.run(|| UdpSocket::bind((from, 0)).expect("it has the address"));
            let far = right.run(|| UdpSocket::bind((to, 7000)).expect("it has the address"));
            far.set_read_timeout(Some(TIMEOUT)).expect("it is a time");
            for len in [1, 2, 700, 1_401] {
                let payload = port_support::noise(len);
                near.send_to(&payload, (to, 7000)).expect("there is a route");
                let mut buffer = [0; 2_000];
                let came = far.recv(&mut buffer).expect("it comes, so its checksum is right");
                assert!(buffer[..came] == payload, "{to}: {len} bytes");
            }
        }
        let pinger = left.run(Pinger::open);
        assert!(pinger.is_answered(), "an echo comes back");
    });
}

#[test]
fn only_partial_checksums_are_marked_partial() {
    for (offload, of_udp) in [("on", Checksum::Partial), ("off", Checksum::Unverified)] {
        let net = Net::new(1_500, offload);
        let mut port = net.middle.run(|| XdpSocket::open("port1", &Options::default()).expect("it is there"));
        let (socket, pinger) =
            net.left.run(|| (UdpSocket::bind("[fd07::1]:0").expect("it has the address"), Pinger::open()));
        net.left.run(|| port_support::ip("neigh add fd07::2 lladdr 02:00:00:00:00:02 dev host"));
        let mut pool = Pool::new(1 << 20);
        let mut frames = Vec::new();
        let mut judged = |protocol: u8, send: &dyn Fn()| {
            becomes(|| {
                // An interface that has just come up drops packets for a moment.
                send();
                wait(&[&mut port], 20);
                port.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
                let judge = |frame: &Frame| match frame {
                    Frame::Ip(packet) if packet.ip().upper?.protocol == protocol => Some(packet.checksum),
                    _ => None,
                };
                let found = frames.iter().find_map(judge);
                frames.drain(..).for_each(|frame| pool.give(into_buffer(frame)));
                found
            })
        };
        let datagram = || {
            socket.send_to(b"a datagram", "[fd07::2]:7000").expect("there is a route");
        };
        assert_eq!(judged(17, &datagram), of_udp);
        assert_eq!(judged(58, &|| pinger.ask()), Checksum::Unverified);
    }
}

#[test]
fn vlan_frames_pass_unchanged_in_both_directions() {
    pair(1_500, |xdp, packet| {
        // The longest frames: bytes behind one tag count against the MTU, and packet sockets allow two tags.
        let tags = [(&[0x81, 0, 0x60, 7][..], 1_518), (&[0x88, 0xA8, 0, 3, 0x81, 0, 0x60, 7], 1_514)];
        for (tag, longest) in tags {
            for len in [100, longest] {
                let plain = ours(len - tag.len());
                let frame = [&plain[..12], tag, &plain[12..]].concat();
                send(xdp, &frame);
                assert!(comes(packet, &frame), "{len} bytes to the wire");
                send(packet, &frame);
                assert!(comes(xdp, &frame), "{len} bytes from the wire");
            }
        }
    });
}

#[test]
fn a_frame_in_several_chunks_arrives_whole() {
    pair(65_535, |xdp, packet| {
        // Lengths around the capacity of a chunk (3,840 bytes received, 4,096 sent), and the longest frame.
        for len in [60, 3_840, 3_841, 4_096, 4_097, 7_680, 8_192, 8_193, 9_014, 61_441, 65_549] {
            let mut frame = ours(len);
            let noise = port_support::noise(len);
            frame[34..].copy_from_slice(&noise[34..]);
            for split in [0, 14, 34, 60] {
                let (header, payload) = frame.split_at(split);
                let wire = TxFrame { header, payload, offload: TxOffload::default() };
                assert_eq!(xdp.transmit(&[wire]).expect("it is up"), 1);
                assert!(comes(packet, &frame), "{len} bytes, {split} of them header, to the wire");
            }
            send(packet, &frame);
            assert!(comes(xdp, &frame), "{len} bytes from the wire");
        }
        let mut tagged = ours(65_549);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        send(xdp, &tagged);
        assert!(comes(packet, &tagged), "the longest behind a tag");
    });
}

#[test]
fn a_frame_above_the_mtu_is_refused_by_name_until_the_mtu_is_raised() {
    pair(1_500, |xdp, packet| {
        let (fits, too_long) = (ours(1_514), ours(1_515));
        let wires = [&fits, &fits, &too_long, &fits].map(|frame| plain(frame));
        assert_eq!(xdp.transmit(&wires).expect("the first two fit"), 2);
        let error = xdp.transmit(&wires[2..]).expect_err("it is too long");
        assert_eq!(SendError::of(&error), Some(SendError::TooLong), "{error}");
        assert!(error.to_string().contains("xdp:pa: cannot send"), "{error}");
        assert_eq!((drain_at_least(packet, 2), xdp.unsent()), (2, 0));
        // A frame longer than all chunks together.
        let endless = vec![0x45; 20 << 20];
        let error = xdp.transmit(&[plain(&endless)]).expect_err("it is too long");
        assert_eq!(SendError::of(&error), Some(SendError::TooLong), "{error}");
        ["pa", "pb"].iter().for_each(|name| port_support::ip(&format!("link set {name} mtu 2000")));
        assert_eq!(xdp.transmit(&wires[2..]).expect("all fit"), 2);
        assert_eq!((drain_at_least(packet, 2), xdp.unsent()), (2, 0));
    });
}

#[test]
fn a_frame_the_peer_does_not_take_is_counted() {
    pair(2_000, |xdp, packet| {
        port_support::ip("link set pb mtu 1500");
        let frames = [ours(1_900), ours(100), ours(1_901)];
        assert_eq!(xdp.transmit(&frames.each_ref().map(|frame| plain(frame))).expect("it is up"), 3);
        assert_eq!((drain_at_least(packet, 1), xdp.unsent()), (1, 2));
        port_support::ip("link set pb down");
        for count in 3..103 {
            send(xdp, &frames[1]);
            assert_eq!(xdp.unsent(), count);
        }
        let wires = vec![plain(&frames[1]); 3_000];
        assert_eq!(xdp.transmit(&wires).expect("it is up"), 3_000);
        assert_eq!(xdp.unsent(), 3_102);
        port_support::ip("link set pb up");
        // A packet socket reports once that the interface was down.
        packet.receive(Ingress(0), &mut Pool::new(0), &mut Vec::new()).expect_err("it was down");
        settle(xdp, packet);
    });
}

#[test]
fn offload_requests_are_refused_by_name() {
    pair(1_500, |xdp, packet| {
        assert_eq!(xdp.offloads(), port_support::NOTHING);
        let frame = ours(100);
        let wire =
            TxFrame { header: &frame, payload: &[], offload: TxOffload { checksum: Some((34, 50)), gso: None } };
        let error = xdp.transmit(&[wire]).expect_err("it finishes none");
        assert_eq!(SendError::of(&error), Some(SendError::UnsupportedOffload), "{error}");
        let error = xdp.transmit(&[plain(&frame[..13])]).expect_err("it is no frame");
        assert_eq!(SendError::of(&error), None, "{error}");
        assert_eq!(drain(packet), 0);
    });
}

#[test]
fn a_down_interface_gives_an_error_and_recovers_without_old_frames() {
    pair(1_500, |xdp, packet| {
        let frame = ours(100);
        let mut pool = Pool::new(1 << 20);
        for _ in 0..50 {
            port_support::ip("link set pa down");
            let error = xdp.receive(Ingress(0), &mut pool, &mut Vec::new()).expect_err("it is down");
            assert!(error.to_string().contains("xdp:pa: cannot receive"), "{error}");
            for _ in 0..100 {
                let error = xdp.transmit(&[plain(&frame); 64]).expect_err("it is down");
                assert_eq!(SendError::of(&error), Some(SendError::Down), "{error}");
            }
            port_support::ip("link set pa up");
            assert_eq!(xdp.transmit(&[plain(&frame); 3]).expect("it is up"), 3);
            assert_eq!(drain_at_least(packet, 3), 3);
        }
        send(packet, &frame);
        assert!(comes(xdp, &frame));
    });
}

#[test]
fn a_removed_interface_gives_an_error() {
    pair(1_500, |xdp, _| {
        port_support::ip("link del pb");
        let mut pool = Pool::new(1 << 20);
        let error = xdp.receive(Ingress(0), &mut pool, &mut Vec::new()).expect_err("it is gone");
        assert!(error.to_string().contains("xdp:pa: cannot receive"), "{error}");
        let error = xdp.transmit(&[plain(&ours(100))]).expect_err("it is gone");
        assert_eq!(SendError::of(&error), Some(SendError::Down), "{error}");
    });
}

#[test]
fn frames_not_read_in_time_are_counted() {
    for len in [1_514, 9_014] {
        pair(9_000, |xdp, packet| {
            assert_eq!(xdp.missed(), 0);
            let frame = ours(len);
            (0..5_000).for_each(|_| send(packet, &frame));
            let (taken, missed) = drain_all(xdp, 5_000);
            assert!(missed > 0 && taken > 0, "{missed} missed, {taken} taken");
            assert_eq!(missed + taken, 5_000);
            // The kernel has all chunks again.
            (0..100).for_each(|_| send(packet, &frame));
            assert_eq!((drain_at_least(xdp, 100), xdp.missed()), (100, missed));
        });
    }
}

#[test]
fn a_frame_without_memory_is_lost_and_counted() {
    pair(1_500, |xdp, packet| {
        (0..5).for_each(|_| send(packet, &ours(100)));
        let mut pool = Pool::new(0);
        let mut frames = Vec::new();
        let (mut count, mut lost_count) = (0, 0);
        becomes(|| {
            let told = xdp.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
            (count, lost_count) = (count + told.count, lost_count + told.lost_count);
            (count >= 5 && told.was_last).then_some(())
        });
        assert_eq!((count, lost_count), (5, 5));
        assert!(frames.is_empty());
    });
}

#[test]
fn frames_are_accepted_while_they_can_be_sent() {
    pair(1_500, |xdp, packet| {
        // One call sends more frames than there are chunks. No buffer of the pool stays in use.
        let frame = ours(1_514);
        let wires = vec![plain(&frame); 5_000];
        let mut sent_count = 0;
        while sent_count < wires.len() {
            sent_count += xdp.transmit(&wires[sent_count..]).expect("it is up");
        }
        let (came, missed) = drain_all(packet, 5_000);
        assert_eq!(came + missed, 5_000);
        assert_eq!((xdp.unsent(), xdp.kept_count()), (0, 0));
    });
}

#[test]
fn it_can_be_opened_again_at_once() {
    Namespace::new().run(|| {
        port_support::ip("link add pa type veth peer name pb");
        ["pa", "pb"].iter().for_each(|name| port_support::ip(&format!("link set {name} addrgenmode none up")));
        let mut packet = PacketSocket::open("pb", &Options::default()).expect("it is there");
        let mut stretches = Vec::new();
        for _ in 0..20 {
            let before = Instant::now();
            let mut xdp = open("xdp:pa", &Options::default()).expect("its queue is free");
            stretches.push(before.elapsed());
            settle(&mut packet, &mut *xdp);
        }
        stretches.sort();
        println!("opened again 20 times, half of them in at most {:?}", stretches[10]);
        assert!(stretches[10] < Duration::from_millis(500), "{stretches:?}");
    });
}

#[test]
fn full_interception_is_promiscuous_and_starves_the_kernel() {
    let [mut near, far] = system_pair::pair();
    // The kernel counts requests for promiscuous mode that do not set the visible flag (IFLA_PROMISCUITY).
    let is_promiscuous = |host: &system_pair::Host| {
        let output = host.namespace.enter(|| Command::new("ip").args(["-d", "link", "show", "wire"]).output());
        let shown = output.expect("it is installed").stdout;
        String::from_utf8_lossy(&shown).contains("promiscuity 1")
    };
    let port = far.namespace.enter(|| open("xdp:wire", &Options::default())).expect("it is there");
    assert!(is_promiscuous(&far));
    near.netlink.resolve(near.index, FAR.into()).expect("it is up");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(near.netlink.neighbour(near.index, FAR.into()).expect("it can be asked"), None);
    drop(port);
    assert!(!is_promiscuous(&far));
    near.netlink.remove_neighbour(near.index, FAR.into()).expect("it was asked for");
    near.netlink.resolve(near.index, FAR.into()).expect("it is up");
    assert_eq!(becomes(|| near.netlink.neighbour(near.index, FAR.into()).expect("it can be asked")), far.mac);
}

#[test]
fn a_failed_open_gives_a_remedy() {
    Namespace::new().run(|| {
        let why = |address: &str| {
            let error = open(address, &Options::default()).err().expect("it cannot be opened").to_string();
            assert!(error.starts_with(address), "{error}");
            error
        };
        assert!(why("xdp:eth7").contains("No such device"), "{}", why("xdp:eth7"));
        assert!(why("xdp:lo").contains("not an Ethernet interface; use packet:lo"), "{}", why("xdp:lo"));
        let _tun = Tap::open("wide0", Kind::Tun, &Options::default()).expect("it can be made");
        assert!(why("xdp:wide0").contains("not an Ethernet interface"), "{}", why("xdp:wide0"));
        port_support::ip("link add pa numrxqueues 2 numtxqueues 2 type veth peer name pb");
        assert!(why("xdp:pa").contains("2 queues"), "{}", why("xdp:pa"));
        run("ethtool", "-L pa rx 1 tx 1");
        let _first = open("xdp:pa", &Options::default()).expect("it has one queue");
        let error = why("xdp:pa");
        assert!(error.contains("busy") && error.contains("another"), "{error}");
    });
}

/// Two hosts, connected by veth pairs to the interfaces `port1` and `port2` of a third namespace.
struct Net {
    middle: Namespace,
    left: Namespace,
    right: Namespace,
}

impl Net {
    /// Makes the network. The hosts send partial checksums if `tx` is "on".
    fn new(mtu: usize, tx: &str) -> Net {
        let [middle, left, right] = [0, 1, 2].map(|_| Namespace::new());
        for (number, host) in [(1, &left), (2, &right)] {
            let path = host.path();
            middle.run(|| {
                let name = format!("port{number}");
                port_support::ip(&format!(
                    "link add {name} mtu {mtu} type veth peer name host mtu {mtu} netns {path}"
                ));
                port_support::ip(&format!("link set {name} addrgenmode none up"));
            });
            host.run(|| {
                run("ethtool", &format!("-K host tx {tx}"));
                port_support::ip(&format!("addr add 10.7.0.{number}/24 dev host"));
                port_support::ip(&format!("addr add fd07::{number}/64 dev host nodad"));
                port_support::ip("link set host addrgenmode none up");
            });
        }
        Net { middle, left, right }
    }

    /// Runs `within` while a forwarder connects two AF_XDP ports. Returns the result of `within`, the counts of
    /// both directions, and the forwarder's CPU time.
    fn forwarding<T>(&self, within: impl FnOnce(&Namespace, &Namespace) -> T) -> (T, [Told; 2], Duration) {
        let [mut one, mut other] = self.middle.run(|| {
            [1, 2]
                .map(|number| XdpSocket::open(&format!("port{number}"), &Options::default()).expect("it is there"))
        });
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let forwarded = scope.spawn(|| {
                let told = forward_until(&stop, &mut one, &mut other);
                assert_eq!((one.kept_count(), other.kept_count()), (0, 0));
                told
            });
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| within(&self.left, &self.right)));
            stop.store(true, Ordering::Relaxed);
            let (told, spent) = forwarded.join().expect("it forwards to the end");
            (outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause)), told, spent)
        })
    }
}

/// Sends 4 MiB of TCP over a forwarder, and returns the forwarder's counts.
fn cross(mtu: usize, tx: &str) -> Told {
    let net = Net::new(mtu, tx);
    let ((), [there, back], spent) = net.forwarding(|left, right| {
        transfer(left, right, "10.7.0.2:7000", 4 << 20);
    });
    assert_eq!((there.lost_count, back.lost_count), (0, 0));
    let frame_count = there.frame_count + back.frame_count;
    println!("MTU {mtu}, tx {tx}: {} ns of CPU per frame; {there:?}", spent.as_nanos() as u64 / frame_count);
    there
}

/// Runs `within` with an AF_XDP socket at `pa` and a packet socket at `pb`, the other end. There is no other
/// traffic.
fn pair(mtu: usize, within: impl FnOnce(&mut dyn Port, &mut dyn Port) + Send) {
    Namespace::new().run(|| {
        port_support::ip(&format!("link add pa mtu {mtu} type veth peer name pb mtu {mtu}"));
        ["pa", "pb"]
            .iter()
            .for_each(|name| port_support::ip(&format!("link set {name} addrgenmode none arp off up")));
        let mut xdp = XdpSocket::open("pa", &Options::default()).expect("it is there");
        let mut packet = PacketSocket::open("pb", &Options::default()).expect("it is there");
        settle(&mut xdp, &mut packet);
        settle(&mut packet, &mut xdp);
        let unsent = xdp.unsent();
        assert_eq!(unsent, 0);
        within(&mut xdp, &mut packet);
    });
}

/// Whether the next frame that arrives is this frame.
fn comes(port: &mut dyn Port, frame: &[u8]) -> bool {
    let mut pool = Pool::new(4 << 20);
    let is_it =
        receive_one(port, &mut pool, |came| Some(port_support::wire(came, TxOffload::default()).header == frame));
    port.give_back(&mut pool);
    assert_eq!(pool.in_use_count(), 0);
    is_it
}

/// Receives until the sum of received and missed frames is `count`, and returns both numbers.
fn drain_all(port: &mut dyn Port, count: u64) -> (u64, u64) {
    let (began, mut taken) = (Instant::now(), 0);
    loop {
        taken += drain(port);
        let missed = port.missed();
        if taken + missed >= count || began.elapsed() > TIMEOUT {
            return (taken, missed);
        }
    }
}

/// Echo requests from a host to `fd07::2` (ICMPv6 type 128); the kernel fills in the checksum.
struct Pinger(UdpSocket);

impl Pinger {
    fn open() -> Pinger {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: a call on numbers, whose answer is checked.
        let fd = unsafe { libc::socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is fresh.
        let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set_read_timeout(Some(TIMEOUT)).expect("it is a time");
        Pinger(socket)
    }

    fn ask(&self) {
        self.0.send_to(&[128, 0, 0, 0, 0, 7, 0, 1], ("fd07::2", 0)).expect("there is a route");
    }

    fn is_answered(&self) -> bool {
        self.ask();
        let mut buffer = [0; 128];
        (0..20).any(|_| self.0.recv(&mut buffer).is_ok() && buffer[0] == 129)
    }
}

/// Longest wait of a test for its frames.
const TIMEOUT: Duration = Duration::from_secs(10);
